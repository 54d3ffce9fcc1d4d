/*-------------------------------------------------------------------------
 *
 * cb_set.c
 *	  Bucket sets: which indexes have buckets.
 *
 * A bucket set belongs to one build of an index in one file (I0).  Backends
 * remember where an index's bucket set is as long as its file's counter of
 * bucket sets made and removed stands (table_gen); what they remember is a
 * hint, and the key is compared under one of the bucket set's locks.
 *
 * Attaching loads nothing.  Under the bucket set's locks and the append lock
 * "from" becomes the journal's head: whoever appends later knows of the bucket
 * set.  One who looked for it before it was made compares table_gen again under
 * the append lock: it is counted up before the attaching backend takes the
 * append lock, and the append lock orders the two (I3_GENERATION).  Entries
 * below "from" are read from the journal's copies, and moved to the tree by a
 * sweep.  So an index is usable at once after a restart, and a bucket set may
 * be given up whenever nobody owns a chunk of it: the journal has its entries.
 * Parallel workers do not attach, as they do not know which indexes are new.
 *
 * The sweep lock is held while attaching, so that no sweep goes on beyond a
 * "from" that it does not know: an entry must not be truncated from the
 * journal and stay in a bucket, or a flush would put it back into the tree
 * after VACUUM has removed it (I4).
 *
 * Another file of the same name and build may come to stand in an index's
 * place.  So the first use of an attachment compares "head" with the journal's
 * head, and detaches the bucket set if they differ (U22).  A build removes that
 * of its file.  One of another build is removed; while it cannot be, it counts
 * as none.
 *
 * Every wait for a lock of a bucket set ends, however many sessions go on.  The
 * server lets sharers of a lock in past those who want it alone, so a lock that
 * somebody always shares is never had alone, and such a wait cannot be
 * cancelled:
 *
 *	- A publication holds the publish lock and not the bucket set's.  It is
 *	  always taken exclusively: by publications, seals, and changes of the
 *	  bucket set.  Those who wait for it hold nothing of the bucket set, and are
 *	  woken in turn.  State and bounds are changed under both locks, so they
 *	  stand still for publications and for readers, without either waiting for
 *	  the other.
 *	- Whoever shares the bucket set's lock waits for buckets' locks only, whose
 *	  holders wait for nothing.  So that sharers do not overlap for ever, a
 *	  process that wants the lock alone and finds it taken closes the gate;
 *	  later sharers wait there until it has the lock (cb_set_share(), I9_GATE).
 *	  There is one such process, as it holds the publish lock, and it opens the
 *	  gate before it goes on.
 *	- What can be left out does not wait: joining buckets, taking an idle
 *	  index's buckets or bucket set, what a scan does (I9_SCANWAIT).  Dividing
 *	  waits, or the buckets with most entries would be divided least; so does an
 *	  insertion that attaches.
 *	- A scan waits for the publish lock once, at its session's first use of an
 *	  attachment, and changes the bucket set only if that turns out to be
 *	  another file's; and as the builder of the shared copy, once for each component.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xlog.h"
#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "bucket/cb_bucket.h"
#include "bucket/cb_key_filter.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "range/cb_range.h"
#include "storage/lmgr.h"
#include "storage/shmem.h"

/* a bucket set not used for so long may be given to another index */
#define CB_SET_IDLE_MS		1000

/* how long a backend waits until it tries to attach an index again */
#define CB_SET_RETRY_MS	1000

typedef struct CbSetKey
{
	RelFileLocator file;			/* hash key */
	uint32		number;
} CbSetKey;

/* What a backend remembers of an index here, as long as its CbRelCache. */
typedef struct CbSetCache
{
	uint64		set_gen;		/* table_gen when it looked for the bucket
								 * set, ... */
	CbBucketSet *set;			/* ... and what it found */
	CbEmptyJournal empty;		/* when the journal was empty without a set */
	TimestampTz attach_at;		/* when it tried to attach, if in vain, or 0 */
	bool		uses_copy;		/* it has used the shared copy */
} CbSetCache;

StaticAssertDecl(sizeof(CbSetCache) <= CB_REL_UPPER_WORDS * sizeof(uint64),
				 "CbSetCache has its place in CbRelCache");

static HTAB *cb_set_table = NULL;

/*
 * Asks for the table of nsets bucket sets by file; in the postmaster's request
 * hook.
 */
void
cb_set_shmem_request(uint32 nsets)
{
	RequestAddinShmemSpace(hash_estimate_size(nsets, sizeof(CbSetKey)));
}

/* Makes that table, or finds it.  The caller holds AddinShmemInitLock. */
void
cb_set_shmem_startup(uint32 nsets)
{
	HASHCTL		info = {0};

	info.keysize = sizeof(RelFileLocator);
	info.entrysize = sizeof(CbSetKey);
	cb_set_table = ShmemInitHash("cache_batch bucket sets by file", nsets,
								 nsets, &info,
								 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* ---------- locking ---------- */

/*
 * Takes set->lock, shared; released by LWLockRelease().  On entry no lock of
 * the bucket set is held but, maybe, the publish lock.  No error is raised.
 *
 * The server gives a lock to those that share it before those that have long
 * waited to have it alone: here they let these go first.  Those who wait at
 * the gate go on when the lock is held exclusively, and wait for it then like
 * everybody; the next one who wants it closes the gate when they have passed.
 * So it waits once for each who had the lock or was on the way to it.
 */
void
cb_set_share(CbBucketSet *set)
{
	if (cb_load_relaxed(&set->wanted) != 0)
	{
		LWLockAcquire(&set->gate, LW_SHARED);
		LWLockRelease(&set->gate);
	}
	LWLockAcquire(&set->lock, LW_SHARED);
}

/*
 * Takes set->lock, EXCL, of which others have a part: closes the gate, so that it
 * waits once for each of them (I9_GATE).  The publish lock is held, so nobody else
 * is here; those who wait for the gate have no lock of the bucket set.
 */
static void
cb_set_exclude(CbBucketSet *set)
{
	LWLockAcquire(&set->gate, LW_EXCLUSIVE);
	cb_store_relaxed(&set->wanted, 1);
	LWLockAcquire(&set->lock, LW_EXCLUSIVE);
	cb_store_relaxed(&set->wanted, 0);
	LWLockRelease(&set->gate);
}

/*
 * Takes both locks of the bucket set, EXCL, to change it; cb_set_unlock()
 * releases them.  False, with neither held, if not to wait: one of them is not
 * free.  Of LWLocks the table lock may be held on entry, and no other one.
 */
bool
cb_set_lock(CbBucketSet *set, bool wait)
{
	if (wait)
		LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	else if (!LWLockConditionalAcquire(&set->publish, LW_EXCLUSIVE))
		return false;
	if (LWLockConditionalAcquire(&set->lock, LW_EXCLUSIVE))
		return true;
	if (wait)
	{
		cb_set_exclude(set);
		return true;
	}
	LWLockRelease(&set->publish);
	return false;
}

/* Releases what cb_set_lock() took. */
void
cb_set_unlock(CbBucketSet *set)
{
	LWLockRelease(&set->lock);
	LWLockRelease(&set->publish);
}

/*
 * To be called before the bounds are changed, or the buckets given up; both
 * locks are held, EXCL.  Whoever reads a list without a lock, and finds in it
 * what is stored after this, finds the count raised, too
 * (cb_view_has_nothing()).
 */
void
cb_set_begin_change(CbBucketSet *set)
{
	set->layout_gen++;
	pg_write_barrier();
}

/* ---------- finding ---------- */

/*
 * What this backend remembers of the index.  It is cb_rel_cache()'s, and goes with
 * that: to be asked for anew after a relation was locked or a catalog read.
 */
static inline CbSetCache *
cb_set_cache(Relation rel)
{
	return (CbSetCache *) cb_rel_cache(rel)->upper;
}

/*
 * The bucket set that the table has for this file, of whatever build, or NULL.
 * The table lock is held, and keeps the answer.
 */
static CbBucketSet *
cb_set_look_up(const RelFileLocator *file)
{
	CbSetKey   *key = hash_search(cb_set_table, file, HASH_FIND, NULL);

	return key ? &cb_pool_sets[key->number] : NULL;
}

/*
 * The bucket set of an index that is open, NULL if it has none.  On a standby it
 * has no buckets, but a shared copy of the journal.  A hint until locked: it can
 * be made another build's, or another index's, at any time, which
 * cb_set_is_current() tells.  The memory stays.
 *
 * No LWLock is held on entry: it may read the metapage, which can raise an
 * error, and takes the table lock, shared.
 */
CbBucketSet *
cb_set_find(Relation rel)
{
	CbSetCache *cache;
	uint64		gen;
	CbBucketSet *set;

	if (cb_pool == NULL)
		return NULL;
	(void) cb_rel_build_id(rel);	/* cb_set_is_current() must not read it */
	cache = cb_set_cache(rel);
	gen = cb_load_acquire(&cb_pool_gens_of(&rel->rd_locator)->table_gen);
	if (cache->set_gen == gen)
		return cache->set;

	LWLockAcquire(&cb_pool->table_lock, LW_SHARED);
	set = cb_set_look_up(&rel->rd_locator);
	LWLockRelease(&cb_pool->table_lock);
	cache->set = set;
	cache->set_gen = gen;
	return set;
}

/*
 * Does this backend use the index's shared copy for the first time, as far as
 * it knows?  Takes no lock.
 */
bool
cb_set_is_first_copy(Relation rel)
{
	CbSetCache *cache = cb_set_cache(rel);
	bool		first = !cache->uses_copy;

	cache->uses_copy = true;
	return first;
}

/*
 * Is the journal of an index without bucket set still as empty as this backend
 * last found it?  If not, whoever reads it to its head now, and finds it
 * empty, gives *now to cb_set_note_empty_journal().  What is published before
 * the call is told.  Takes no lock and raises no error; never true in
 * recovery.
 *
 * Entries are appended with a bucket set, which is counted when it is made, or
 * without, which is counted under the append lock before it is done.  So while
 * both counters stand still nothing is: what the scan has to see was published
 * before its snapshot, or before the barrier that it begins with (I3_EMPTY).  A
 * scan that has seen an attachment remembers nothing, as it reads the journal
 * only up to "from" (I3_EMPTYFROM).  Redo counts nothing.  Files share 256
 * pairs of counters; a bucket set that goes to another index counts in both
 * pairs.  The memory goes with the relation cache's entry.
 */
bool
cb_set_journal_is_empty(Relation rel, CbEmptyJournal *now)
{
	const CbEmptyJournal *empty = &cb_set_cache(rel)->empty;
	CbGens	   *gens;

	now->table_gen = 0;
	if (cb_pool == NULL || RecoveryInProgress())
		return false;
	gens = cb_pool_gens_of(&rel->rd_locator);
	now->table_gen = cb_load_acquire(&gens->table_gen);
	now->no_set_gen = cb_load_acquire(&gens->no_set_gen);
	return empty->table_gen == now->table_gen &&
		empty->no_set_gen == now->no_set_gen;
}

/*
 * The journal was read to its head, and found empty, after the counters were
 * seen there.  If there is no bucket set now, there was none then, or its
 * removal has been counted.  Locks and errors as cb_set_find().
 */
void
cb_set_note_empty_journal(Relation rel, const CbEmptyJournal *seen)
{
	if (seen->table_gen != 0 && cb_set_find(rel) == NULL)
		cb_set_cache(rel)->empty = *seen;
}

/*
 * Is it still the bucket set of this build in this file?  One of its locks is
 * held, so nothing is read here: the build id is known since cb_set_find(), or
 * the answer is no.
 */
bool
cb_set_is_current(const CbBucketSet *set, Relation rel)
{
	CbRelCache *cache = cb_rel_cache(rel);

	return set->state != CB_SET_FREE &&
		RelFileLocatorEquals(set->key, rel->rd_locator) &&
		cache->build_known &&
		memcmp(set->build_id, cache->build_id, CB_BUILD_ID_LEN) == 0;
}

/*
 * The same, without a lock held: takes set->lock, shared, for a moment.  A
 * hint.
 */
bool
cb_set_belongs_to(CbBucketSet *set, Relation rel)
{
	bool		result;

	cb_set_share(set);
	result = cb_set_is_current(set, rel);
	LWLockRelease(&set->lock);
	return result;
}

/*
 * The attach_id, and in *from where the entries of its buckets begin, if the
 * bucket set is the relation's and attached; else 0, and *from is left alone.
 * Takes set->lock, shared, for a moment.
 */
uint64
cb_set_attachment(CbBucketSet *set, Relation rel, CbPos *from)
{
	uint64		attach_id = 0;

	cb_set_share(set);
	if (set->state == CB_SET_ATTACHED && cb_set_is_current(set, rel))
	{
		attach_id = set->attach_id;
		*from = set->from;
	}
	LWLockRelease(&set->lock);
	return attach_id;
}

/* ---------- detaching ---------- */

/*
 * Does anybody own a chunk of its buckets?  Both locks are held: no owner can
 * come, but one can go, and then has done its last with the chunk.
 */
static bool
cb_set_has_owner(const CbBucketSet *set)
{
	for (uint32 i = 0; i < set->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[set->buckets[i]];

		for (uint32 j = 0; j < bucket->nchunks; j++)
		{
			if (cb_load_acquire(&cb_pool_chunks[bucket->chunks[j]].chunk.owner) != 0)
				return true;
		}
	}
	return false;
}

/*
 * Gives up all buckets: from ATTACHED to EMPTY.  Both locks are held, and nobody
 * owns a chunk.  What readers have pinned is freed when they let go.  attach_id
 * and the count of changes come first, for those who read without a lock
 * (I2_LAYOUT).  Waits for nothing, cannot fail.
 */
static void
cb_set_clear(CbBucketSet *set)
{
	set->attach_id = 0;
	cb_set_begin_change(set);
	for (uint32 i = 0; i < set->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[set->buckets[i]];

		for (uint32 j = 0; j < bucket->nchunks; j++)
		{
			CbPoolChunk *chunk = &cb_pool_chunks[bucket->chunks[j]];

			if (--chunk->nlists == 0)
				cb_chunk_set_state(&chunk->chunk, CB_CHUNK_RETIRED);
			if (cb_chunk_release(&chunk->chunk))
				cb_pool_free_chunk(chunk);
		}
		bucket->nchunks = 0;
		bucket->set = CB_NONE;
		cb_freelist_push(&cb_pool->free_buckets, bucket->number);
	}
	set->nbuckets = 0;
	set->state = CB_SET_EMPTY;
}

/*
 * Detaches as cb_set_detach(), with both locks held, which it has released on
 * return.
 */
static bool
cb_set_detach_locked(CbBucketSet *set, uint64 attach_id)
{
	bool		detached = true;

	if (set->state == CB_SET_ATTACHED &&
		(attach_id == 0 || set->attach_id == attach_id))
	{
		detached = !cb_set_has_owner(set);
		if (detached)
			cb_set_clear(set);
	}
	cb_set_unlock(set);
	return detached;
}

/*
 * Detaches: chunks are let go, their entries are still in the journal, from
 * where a sweep moves them to the tree.  attach_id 0: whatever it is.  False:
 * a chunk has an owner, and it stays attached; true also if it was not
 * attached, or to another attach_id.
 *
 * Waits for both locks of the bucket set; no LWLock is held on entry.  No
 * error is raised.
 */
bool
cb_set_detach(CbBucketSet *set, uint64 attach_id)
{
	(void) cb_set_lock(set, true);
	return cb_set_detach_locked(set, attach_id);
}

/*
 * The pool is full, and nobody flushes what it is full of: the index that has
 * got no entries for longest loses its buckets.  It may be one of another
 * database.  False: all are in use, or a lock of that one is not free; it
 * waits for no lock.
 */
bool
cb_set_detach_idle(void)
{
	TimestampTz now = cb_clock_now();
	CbBucketSet *oldest = NULL;

	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		CbBucketSet *set = &cb_pool_sets[i];

		if (set->state == CB_SET_ATTACHED &&
			(oldest == NULL || set->used_at < oldest->used_at))
			oldest = set;
	}
	return oldest != NULL &&
		TimestampDifferenceExceeds(oldest->used_at, now, CB_SET_IDLE_MS) &&
		cb_set_lock(oldest, false) &&
		cb_set_detach_locked(oldest, oldest->attach_id);
}

/*
 * Remembers that the journal's tail has moved, to this position at least.
 * Nothing is done if the attachment is gone.  Takes set->lock, shared, for a
 * moment.
 */
void
cb_set_note_tail(CbBucketSet *set, uint64 attach_id, CbPos tail)
{
	cb_set_share(set);
	if (set->state == CB_SET_ATTACHED && set->attach_id == attach_id)
	{
		uint64		known = cb_load_relaxed(&set->tail);

		while (known < tail && !cb_swap_if(&set->tail, &known, tail))
			;
	}
	LWLockRelease(&set->lock);
}

/*
 * Counts that entries from below "from" were spilled.  Nothing is done if the
 * attachment is gone.  Takes set->lock, shared, for a moment.
 */
void
cb_set_note_spill(CbBucketSet *set, uint64 attach_id)
{
	cb_set_share(set);
	if (set->state == CB_SET_ATTACHED && set->attach_id == attach_id)
		cb_fetch_add(&set->spills, 1);
	LWLockRelease(&set->lock);
}

/*
 * Shows a worker's error with the index, cut to CB_ERROR_LENGTH; "" takes it
 * away.  False: it is shown already.  It is, until a bucket that failed has
 * been flushed.  Nothing is shown if the attachment is gone.  Waits for both
 * locks of the bucket set; no LWLock is held on entry.
 */
bool
cb_set_show_error(CbBucketSet *set, uint64 attach_id, const char *message)
{
	bool		news = true;

	(void) cb_set_lock(set, true);
	if (set->attach_id == attach_id)
	{
		news = strncmp(set->error, message, CB_ERROR_LENGTH - 1) != 0;
		strlcpy(set->error, message, CB_ERROR_LENGTH);
	}
	cb_set_unlock(set);
	return news;
}

/*
 * The journal may take this part of the index, as its pages stay in the file;
 * that is 30 to 50 entries a leaf.  But cache_batch.journal_limit at least.
 */
#define CB_SET_JOURNAL_PART	10

/*
 * Bytes that the journal may have at the index's present size: two pools of them
 * at most, but never less than the setting.  Asks the file system for the size,
 * so it can raise an error.
 */
static uint64
cb_set_journal_limit(Relation rel)
{
	uint64		pool = (uint64) cb_pool->nchunks * cb_pool->chunk_size;
	uint64		part = (uint64) RelationGetNumberOfBlocks(rel) * BLCKSZ /
		CB_SET_JOURNAL_PART;

	return Max((uint64) cb_journal_limit * 1024, Min(2 * pool, part));
}

/*
 * Sets journal_limit by the index's present size, which it looks up in the
 * file system: that can raise an error, and no LWLock is held.  What is set is
 * a hint.
 */
void
cb_set_limit_journal(CbBucketSet *set, uint64 attach_id, Relation rel)
{
	uint64		limit = cb_set_journal_limit(rel);

	if (set->attach_id == attach_id)
		cb_store_relaxed(&set->journal_limit, limit);
}

/* of so many entries those before are forgotten, half of them at a time */
#define CB_SET_RECENT		16384

/* one in so many is a good part */
#define CB_SET_VERSIONS_PART	16

/*
 * Counts n entries that were published, and how many came with updates that
 * left the index's columns alone, about.  Hints: no lock is taken.
 */
void
cb_set_note_versions(CbBucketSet *set, uint64 attach_id, uint32 n, uint32 nunchanged)
{
	uint32		recent;
	uint64		unchanged;

	if (set->attach_id != attach_id)
		return;
	recent = cb_fetch_add(&set->nrecent, n) + n;
	if (nunchanged > 0)
		(void) cb_fetch_add(&set->nunchanged, Min(n, nunchanged));
	if (recent < CB_SET_RECENT)
		return;

	/* others may count meanwhile: these are hints */
	unchanged = cb_load_relaxed(&set->nunchanged);
	cb_store_relaxed(&set->nrecent, CB_SET_RECENT / 2);
	cb_store_relaxed(&set->nunchanged,
					 unchanged * (CB_SET_RECENT / 2) / recent);
}

/* Are new versions a good part of what was published lately?  A hint. */
bool
cb_set_has_versions(const CbBucketSet *set)
{
	uint32		unchanged = cb_load_relaxed(&set->nunchanged);

	return unchanged > 0 &&
		unchanged >= cb_load_relaxed(&set->nrecent) / CB_SET_VERSIONS_PART;
}

/* flushes that do not ask the table after one that did has failed */
#define CB_SET_PAUSE		256

/*
 * A flush that had asked the table for dead rows failed: those that follow do
 * not ask, so that what is wrong with the table does not keep entries here.
 * Takes no lock and cannot fail: called within PG_CATCH.
 */
void
cb_set_pause_asking(CbBucketSet *set)
{
	cb_store_relaxed(&set->npaused, CB_SET_PAUSE);
}

/* May this flush ask?  Counts it; two that count at once may be one. */
bool
cb_set_may_ask(CbBucketSet *set)
{
	uint32		paused = cb_load_relaxed(&set->npaused);

	if (paused > 0)
		cb_store_relaxed(&set->npaused, paused - 1);
	return paused == 0;
}

/*
 * Detaches and removes; table lock EXCL, then both of the bucket set, which are
 * released on return.  False: a chunk has an owner, or it is locked, and not to
 * wait.  True: it is free, its shared copy is gone, and the file's counter tells
 * those who remember it.
 */
static bool
cb_set_remove(CbBucketSet *set, bool wait)
{
	if (!cb_set_lock(set, wait))
		return false;
	if (set->state == CB_SET_ATTACHED)
	{
		if (cb_set_has_owner(set))
		{
			cb_set_unlock(set);
			return false;
		}
		cb_set_clear(set);
	}
	if (set->state == CB_SET_EMPTY)
	{
		cb_shared_forget(set);
		(void) hash_search(cb_set_table, &set->key, HASH_REMOVE, NULL);
		set->state = CB_SET_FREE;
		cb_fetch_add(&cb_pool_gens_of(&set->key)->table_gen, 1);
	}
	cb_set_unlock(set);
	return true;
}

/*
 * Detaches and removes the bucket set of a file, if it has one, and forgets its
 * filter of keys: the file is not that of an index any more, or an index is built
 * in it.  A bucket set with an owned chunk stays.  Waits for the table lock and
 * the bucket set's; no LWLock is held on entry.
 */
void
cb_set_forget_file(RelFileLocator file)
{
	CbBucketSet *set;

	if (cb_pool == NULL)
		return;
	cb_key_filter_forget(&file);
	LWLockAcquire(&cb_pool->table_lock, LW_EXCLUSIVE);
	set = cb_set_look_up(&file);
	if (set != NULL)
		(void) cb_set_remove(set, true);
	LWLockRelease(&cb_pool->table_lock);
}

/*
 * The same for all of a database's, which has been dropped or moved.
 * The table lock is held all the time.
 */
void
cb_set_forget_database(Oid dboid)
{
	if (cb_pool == NULL)
		return;
	cb_key_filter_forget_database(dboid);
	LWLockAcquire(&cb_pool->table_lock, LW_EXCLUSIVE);
	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		CbBucketSet *set = &cb_pool_sets[i];

		if (set->state != CB_SET_FREE && set->key.dbOid == dboid)
			(void) cb_set_remove(set, true);
	}
	LWLockRelease(&cb_pool->table_lock);
}

/* ---------- making ---------- */

/*
 * A bucket set that is free, or that another index has long not used, which
 * loses it.  The table lock is held, EXCL; waits for no lock.
 */
static CbBucketSet *
cb_set_take_free(void)
{
	TimestampTz now = cb_clock_now();
	CbBucketSet *oldest = NULL;

	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		CbBucketSet *set = &cb_pool_sets[i];

		if (set->state == CB_SET_FREE)
			return set;
		if (oldest == NULL || set->used_at < oldest->used_at)
			oldest = set;
	}
	if (oldest != NULL &&
		TimestampDifferenceExceeds(oldest->used_at, now, CB_SET_IDLE_MS) &&
		cb_set_remove(oldest, false))
		return oldest;
	return NULL;
}

/*
 * Gives a free bucket set to the index; table lock EXCL, then both of the bucket
 * set, which are released on return.  False: the table has no room, or it is
 * locked, and not to wait.  build_id was looked up before, as no page is read
 * under these locks.
 */
static bool
cb_set_enter(CbBucketSet *set, Relation rel, const uint8 *build_id, bool wait)
{
	CbSetKey   *key;

	if (!cb_set_lock(set, wait))
		return false;
	key = hash_search(cb_set_table, &rel->rd_locator, HASH_ENTER_NULL, NULL);
	if (key != NULL)
	{
		key->number = set->number;
		set->key = rel->rd_locator;
		memcpy(set->build_id, build_id, CB_BUILD_ID_LEN);
		set->indexoid = RelationGetRelid(rel);
		set->used_at = cb_clock_now();
		cb_store_relaxed(&set->spills, 0);
		cb_failing_forget(&set->filling);
		set->state = CB_SET_EMPTY;

		/* before the append lock is taken to attach: see above */
		cb_fetch_add(&cb_pool_gens_of(&set->key)->table_gen, 1);
	}
	cb_set_unlock(set);
	return key != NULL;
}

/*
 * The index's bucket set, made if need be; NULL: none is to be had.  It is of
 * an earlier build if it could not be removed.  No LWLock is held on entry,
 * nor on return; wait: for locks.
 */
static CbBucketSet *
cb_set_make(Relation rel, bool wait)
{
	const uint8 *build_id = cb_rel_build_id(rel);
	CbBucketSet *set;

	if (wait)
		LWLockAcquire(&cb_pool->table_lock, LW_EXCLUSIVE);
	else if (!LWLockConditionalAcquire(&cb_pool->table_lock, LW_EXCLUSIVE))
		return NULL;
	set = cb_set_look_up(&rel->rd_locator);
	if (set != NULL && memcmp(set->build_id, build_id, CB_BUILD_ID_LEN) != 0)
		set = cb_set_remove(set, wait) ? NULL : set;
	if (set == NULL)
	{
		set = cb_set_take_free();
		if (set != NULL && !cb_set_enter(set, rel, build_id, wait))
			set = NULL;
	}
	LWLockRelease(&cb_pool->table_lock);
	return set;
}

/*
 * May this index have a bucket set at all?  Not if others cannot know of it:
 * workers do not know what is new.
 */
static bool
cb_set_is_possible(Relation rel)
{
	return cb_pool != NULL &&
		!IsParallelWorker() &&
		rel->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		rel->rd_createSubid == InvalidSubTransactionId &&
		rel->rd_newRelfilelocatorSubid == InvalidSubTransactionId &&
		rel->rd_firstRelfilelocatorSubid == InvalidSubTransactionId;
}

/*
 * The index's bucket set, made if need be, but not attached; NULL: none is to
 * be had.  A hint, as cb_set_find() returns; also in recovery.  No LWLock is
 * held; waits for none of those that it takes, but may read the metapage,
 * which can raise an error.
 */
CbBucketSet *
cb_set_find_or_make(Relation rel)
{
	CbBucketSet *set = cb_set_find(rel);

	if (!cb_set_is_possible(rel) || (set != NULL && cb_set_belongs_to(set, rel)))
		return set;
	return cb_set_make(rel, false);
}

/* ---------- attaching ---------- */

/* what is found out before the locks are taken, for what is done under them */
typedef struct CbAttach
{
	Relation	rel;
	CbBucketSet *set;
	bool		wait;
	CbPos		tail;
	bool		has_ranges;
	uint64		journal_limit;
	TimestampTz now;
	int			nfences;		/* one less than buckets that are wanted */
	IndexTuple *fences;			/* their lower bounds, but the first's */
} CbAttach;

/*
 * Takes both locks, before the append lock, if there is something to attach;
 * false: neither is held.  Not if another has attached it, or it was removed,
 * since it was found; nor if one of them is not free, and it is not to wait.
 */
static bool
cb_attach_lock(void *arg)
{
	CbAttach   *attach = arg;

	if (!cb_set_lock(attach->set, attach->wait))
		return false;
	if (attach->set->state == CB_SET_EMPTY &&
		cb_set_is_current(attach->set, attach->rel))
		return true;
	cb_set_unlock(attach->set);
	return false;
}

/*
 * Makes the list of buckets, which have no chunks; fewer than wanted if they
 * run out, false if there are none at all.  Both locks are held, and bounds are
 * being changed; waits for nothing, cannot fail.
 */
static bool
cb_attach_make_buckets(CbAttach *attach)
{
	CbBucketSet *set = attach->set;

	set->nbuckets = 0;
	for (int i = -1; i < attach->nfences; i++)
	{
		uint32		number = cb_freelist_pop(&cb_pool->free_buckets);
		CbBucket   *bucket;

		if (number == CB_FREELIST_NONE)
			break;
		bucket = &cb_pool_buckets[number];
		bucket->set = set->number;
		bucket->nchunks = 0;
		cb_store_relaxed(&bucket->run_reads, 0);
		cb_failing_forget(&bucket->failing);
		bucket->fence_len = 0;
		if (i >= 0)
		{
			bucket->fence_len = IndexTupleSize(attach->fences[i]);
			memcpy(bucket->fence.bytes, attach->fences[i], bucket->fence_len);
		}
		set->buckets[set->nbuckets++] = number;
	}
	return set->nbuckets > 0;
}

/*
 * Under the bucket set's locks and the append lock: head is where the next
 * entry will be.  Appends nothing; if there are no buckets to be had the
 * bucket set stays as it is.  What lies below head is read from the journal's
 * copies; what comes from now on the buckets have (I7).  attach_id comes last:
 * there is no router of this attachment before the locks are free.
 */
static int
cb_attach_at_head(void *arg, int first, int n, CbPos head)
{
	CbAttach   *attach = arg;
	CbBucketSet *set = attach->set;

	cb_set_begin_change(set);
	if (!cb_attach_make_buckets(attach))
		return 0;
	set->from = set->head = head;
	cb_store_release(&set->again, 0);	/* after attach_id has changed */
	cb_failing_forget(&set->failing);
	set->error[0] = '\0';
	cb_store_relaxed(&set->tail, attach->tail);
	set->attached_at = attach->now;
	set->used_at = attach->now;
	cb_store_relaxed(&set->journal_limit, attach->journal_limit);
	cb_store_relaxed(&set->asked_at, 0);
	cb_store_relaxed(&set->nrecent, 0);
	cb_store_relaxed(&set->nunchanged, 0);
	cb_store_relaxed(&set->npaused, 0);
	memset(&set->sweep_place, 0, sizeof(CbSweepPlace));
	cb_store_relaxed(&set->hurry, 0);
	if (attach->has_ranges)
		cb_fetch_add(&set->spills, 1);
	cb_store_relaxed(&set->compact_at, 0);
	set->compacted_at = attach->now;
	set->compact_leaf = 0;
	set->attach_id = cb_fetch_add(&cb_pool->next_attach_id, 1);
	set->state = CB_SET_ATTACHED;
	return 0;
}

/* Releases what cb_attach_lock() took, when the append lock is free again. */
static void
cb_attach_unlock(void *arg)
{
	cb_set_unlock(((CbAttach *) arg)->set);
}

static const CbAppendSink cb_attach_sink = {
	.lock = cb_attach_lock,
	.reserve = cb_attach_at_head,
	.unlock = cb_attach_unlock
};

/*
 * How many buckets to begin with: a fair share of the pool, by how many indexes
 * are attached now.  A look without locks.
 */
static int
cb_attach_count_buckets(void)
{
	int			attached = 1;
	int			share;

#ifdef CB_TESTPOINTS
	if (cb_test_share > 0)
		return cb_test_share;
#endif
	for (uint32 i = 0; i < cb_pool->nsets; i++)
		attached += cb_pool_sets[i].state == CB_SET_ATTACHED;
	share = cb_pool->nchunks / ((CB_BUCKET_FULL_CHUNKS / 2 + 1) * attached);
	return Max(1, Min(share, CB_SET_MAX_BUCKETS / 2));
}

/*
 * Keeps max of the fences, evenly: other indexes want buckets as well.  Those
 * left out stay in their memory context.
 */
static void
cb_attach_thin_fences(CbAttach *attach, int max)
{
	int64		n = attach->nfences;

	if (n <= max)
		return;
	for (int i = 0; i < max; i++)
		attach->fences[i] = attach->fences[(i + 1) * n / (max + 1)];
	attach->nfences = max;
}

/*
 * The bounds of its first buckets: those of its ranges, if they are enough, so
 * that a bucket's entries make few runs; else separators of the tree.  palloc'd,
 * in key order, none larger than a bucket's fence may be.  Reads pages, so errors
 * can be raised; no LWLock is held, no comparison runs.
 */
static void
cb_attach_find_fences(CbAttach *attach, const CbKeyDesc *kd, BlockNumber range_root)
{
	int			max = cb_attach_count_buckets() - 1;

	if (range_root != 0)
		attach->fences = cb_range_separators(kd, range_root, max,
											 CB_BUCKET_FENCE_SIZE,
											 &attach->nfences);
	cb_attach_thin_fences(attach, max);
	if (attach->fences == NULL || attach->nfences < max / 2)
		attach->fences = cb_tree_sample_separators(kd, max, CB_BUCKET_FENCE_SIZE,
												   &attach->nfences);
}

/*
 * May this index have buckets at all?  Neither in recovery, nor where others do
 * not know of it, nor if its options or its comparisons do not allow it (C12).
 * May read catalogs, and raise an error.
 */
static bool
cb_attach_is_possible(Relation rel)
{
#ifdef CB_TESTPOINTS
	if (!cb_test_buckets)
		return false;
#endif
	return !RecoveryInProgress() && cb_set_is_possible(rel) &&
		cb_is_buffered(rel);
}

/*
 * Is it time to try?  Not again at once if it did not work: it costs something.
 * Notes the try; who succeeds takes that back.
 */
static bool
cb_attach_is_time(Relation rel)
{
	CbSetCache *cache = cb_set_cache(rel);
	TimestampTz now = cb_clock_now();

	if (cache->attach_at != 0 &&
		!TimestampDifferenceExceeds(cache->attach_at, now, CB_SET_RETRY_MS))
		return false;
	cache->attach_at = now;
	return true;
}

/*
 * Finds the index's bucket set, makes and attaches one if it should have one
 * and no sweep is at work.  NULL, or one that need not be attached: it could
 * not be, may have been detached again, or is of an earlier build and could
 * not be removed.  The caller sees that under a lock.
 *
 * wait: for locks of bucket sets, too, as a publication does anyway; the sweep
 * lock is taken only if it is free.  No LWLock is held; RowExclusiveLock or
 * AccessShareLock on the index is.  Catalogs and pages are read, and memory is
 * allocated in the current context, so errors can be raised; no comparison
 * runs.
 */
CbBucketSet *
cb_set_attach(const CbKeyDesc *kd, bool wait)
{
	Relation	rel = kd->rel;
	CbBucketSet *set = cb_set_find(rel);
	CbAttach	attach = {0};
	CbMetaPageData meta;
	CbPos		from;

	if (set != NULL && cb_set_attachment(set, rel, &from) != 0)
		return set;
	if (!cb_attach_is_possible(rel) || !cb_attach_is_time(rel))
		return set;
	if (!ConditionalLockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock))
		return set;
	set = cb_set_make(rel, wait);
	if (set != NULL)
	{
		attach.rel = rel;
		attach.set = set;
		attach.wait = wait;
		attach.now = cb_clock_now();
		cb_rel_read_meta(rel, NULL, &meta);
		attach.tail = meta.journal_tail;
		attach.has_ranges = meta.range_root != 0;
		cb_attach_find_fences(&attach, kd, meta.range_root);
		attach.journal_limit = cb_set_journal_limit(rel);
		CB_TEST_POINT("attach-before");
		cb_journal_visit_head(rel, &cb_attach_sink, &attach);
		CB_TEST_POINT("attach-done");
		if (set->state == CB_SET_ATTACHED)
			cb_set_cache(rel)->attach_at = 0;
	}
	UnlockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);
	return set;
}
