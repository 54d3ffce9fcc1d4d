/*-------------------------------------------------------------------------
 *
 * cb_desc.c
 *	  Descriptors: which indexes have buckets.
 *
 * A descriptor belongs to one build of an index in one file (I0).  Backends
 * remember where an index's descriptor is as long as its file's counter of
 * descriptors made and removed stands (table_gen); what they remember is a hint,
 * and the key is compared under one of the descriptor's locks.
 *
 * Attaching loads nothing.  Under the descriptor's locks and the lane "from"
 * becomes the journal's head: whoever appends later knows of the descriptor.
 * One who looked for it before it was made compares table_gen again under the
 * lane: it is counted up before the attaching backend takes the lane, and the
 * lane's lock orders the two.  Entries below "from" are read from the journal
 * by private copies, and moved to the tree by a sweep.
 *
 * The sweep lock is held while attaching, so that no sweep goes on beyond a
 * "from" that it does not know: an entry must not be truncated from the
 * journal and stay in a bucket, or a flush would put it back into the tree
 * after VACUUM has removed it (I4).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "range/cb_range.h"
#include "storage/lmgr.h"
#include "storage/shmem.h"

/* a descriptor not used for so long may be given to another index */
#define CB_DESC_IDLE_MS		1000

/* how long a backend waits until it tries to attach an index again */
#define CB_DESC_RETRY_MS	1000

typedef struct CbDescKey
{
	RelFileNode file;			/* hash key */
	uint32		number;
} CbDescKey;

/* What a backend remembers of an index here, as long as its CbRelCache. */
typedef struct CbDescCache
{
	uint64		desc_gen;		/* when it looked for the descriptor, ... */
	CbDesc	   *desc;			/* ... and what it found */
	CbQuiet		quiet;			/* when the journal was empty and had no desc */
	TimestampTz attach_at;		/* when it tried to attach, if in vain */
} CbDescCache;

StaticAssertDecl(sizeof(CbDescCache) <= CB_REL_UPPER_WORDS * sizeof(uint64),
				 "CbDescCache has its place in CbRelCache");

static HTAB *cb_desc_table = NULL;

/*
 * Asks for the table of ndescs descriptors by file; in the postmaster's request
 * hook.
 */
void
cb_desc_shmem_request(uint32 ndescs)
{
	RequestAddinShmemSpace(hash_estimate_size(ndescs, sizeof(CbDescKey)));
}

/* Makes that table, or finds it.  The caller holds AddinShmemInitLock. */
void
cb_desc_shmem_startup(uint32 ndescs)
{
	HASHCTL		info = {0};

	info.keysize = sizeof(RelFileNode);
	info.entrysize = sizeof(CbDescKey);
	cb_desc_table = ShmemInitHash("cache_batch descriptors by file", ndescs,
								  ndescs, &info,
								  HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
}

/* ---------- locking ---------- */

/*
 * Takes desc->lock, shared; released by LWLockRelease().  On entry no lock of
 * the descriptor is held but, maybe, the publish lock.  No error is raised.
 *
 * The server gives a lock to those that share it before those that have long
 * waited to have it alone: here they let these go first.  Those who wait at the
 * gate go on when the lock is held exclusively, and wait for it then like
 * everybody; the next one who wants it closes the gate when they have passed.
 */
void
cb_desc_share(CbDesc *desc)
{
	if (cb_load_relaxed(&desc->wanted) != 0)
	{
		LWLockAcquire(&desc->gate, LW_SHARED);
		LWLockRelease(&desc->gate);
	}
	LWLockAcquire(&desc->lock, LW_SHARED);
}

/* The publish lock is held, so nobody else is here. */
static void
cb_desc_exclude(CbDesc *desc)
{
	LWLockAcquire(&desc->gate, LW_EXCLUSIVE);
	cb_store_relaxed(&desc->wanted, 1);
	LWLockAcquire(&desc->lock, LW_EXCLUSIVE);
	cb_store_relaxed(&desc->wanted, 0);
	LWLockRelease(&desc->gate);
}

/*
 * Takes both locks of the descriptor, EXCL, to change it; cb_desc_unlock()
 * releases them.  False, with neither held, if not to wait: one of them is not
 * free.  Of LWLocks the table lock may be held on entry, and no other one.
 */
bool
cb_desc_lock(CbDesc *desc, bool wait)
{
	if (wait)
		LWLockAcquire(&desc->publish, LW_EXCLUSIVE);
	else if (!LWLockConditionalAcquire(&desc->publish, LW_EXCLUSIVE))
		return false;
	if (LWLockConditionalAcquire(&desc->lock, LW_EXCLUSIVE))
		return true;
	if (wait)
	{
		cb_desc_exclude(desc);
		return true;
	}
	LWLockRelease(&desc->publish);
	return false;
}

/* Releases what cb_desc_lock() took. */
void
cb_desc_unlock(CbDesc *desc)
{
	LWLockRelease(&desc->lock);
	LWLockRelease(&desc->publish);
}

/* ---------- finding ---------- */

static inline CbDescCache *
cb_desc_cache(Relation rel)
{
	return (CbDescCache *) cb_rel_cache(rel)->upper;
}

/* The table lock is held. */
static CbDesc *
cb_desc_look_up(const RelFileNode *file)
{
	CbDescKey  *key = hash_search(cb_desc_table, file, HASH_FIND, NULL);

	return key ? &cb_pool_descs[key->number] : NULL;
}

/*
 * The descriptor of an index that is open, NULL if it has none; standbys have
 * none.  A hint until locked: it can be made another build's, or another
 * index's, at any time, which cb_desc_is_current() tells.  The memory stays.
 *
 * No LWLock is held on entry: it may read the metapage, which can raise an
 * error, and takes the table lock, shared.
 */
CbDesc *
cb_desc_find(Relation rel)
{
	CbDescCache *cache;
	uint64		gen;
	CbDesc	   *desc;

	if (cb_pool == NULL)
		return NULL;
	(void) cb_rel_build_id(rel);	/* cb_desc_is_current() must not read it */
	cache = cb_desc_cache(rel);
	gen = cb_load_acquire(&cb_pool_gens_of(&rel->rd_node)->table_gen);
	if (cache->desc_gen == gen)
		return cache->desc;

	LWLockAcquire(&cb_pool->table_lock, LW_SHARED);
	desc = cb_desc_look_up(&rel->rd_node);
	LWLockRelease(&cb_pool->table_lock);
	cache->desc = desc;
	cache->desc_gen = gen;
	return desc;
}

/*
 * Is the journal of an index without descriptor still as empty as this backend
 * last found it?  If not, whoever reads it to its head now, and finds it empty,
 * gives *now to cb_desc_note_quiet().  What is published before the call is
 * told.  Takes no lock and raises no error; never true in recovery.
 *
 * Entries are appended with a descriptor, which is counted when it is made, or
 * without, which is counted under the lane before it is done.  So while both
 * counters stand still nothing is.  Redo counts nothing.
 */
bool
cb_desc_is_quiet(Relation rel, CbQuiet *now)
{
	const CbQuiet *quiet = &cb_desc_cache(rel)->quiet;
	CbGens	   *gens;

	now->table_gen = 0;
	if (cb_pool == NULL || RecoveryInProgress())
		return false;
	gens = cb_pool_gens_of(&rel->rd_node);
	now->table_gen = cb_load_acquire(&gens->table_gen);
	now->lone_gen = cb_load_acquire(&gens->lone_gen);
	return quiet->table_gen == now->table_gen &&
		quiet->lone_gen == now->lone_gen;
}

/*
 * The journal was read to its head, and found empty, after the counters were
 * seen there.  If there is no descriptor now, there was none then, or its
 * removal has been counted.  Locks and errors as cb_desc_find().
 */
void
cb_desc_note_quiet(Relation rel, const CbQuiet *seen)
{
	if (seen->table_gen != 0 && cb_desc_find(rel) == NULL)
		cb_desc_cache(rel)->quiet = *seen;
}

/*
 * Is it still the descriptor of this build in this file?  One of its locks is
 * held, so nothing is read here: the build id is known since cb_desc_find(), or
 * the answer is no.
 */
bool
cb_desc_is_current(const CbDesc *desc, Relation rel)
{
	CbRelCache *cache = cb_rel_cache(rel);

	return desc->state != CB_DESC_FREE &&
		RelFileNodeEquals(desc->key, rel->rd_node) &&
		cache->build_known &&
		memcmp(desc->build_id, cache->build_id, CB_BUILD_ID_LEN) == 0;
}

/*
 * The same, without a lock held: takes desc->lock, shared, for a moment.  A
 * hint.
 */
bool
cb_desc_belongs_to(CbDesc *desc, Relation rel)
{
	bool		result;

	cb_desc_share(desc);
	result = cb_desc_is_current(desc, rel);
	LWLockRelease(&desc->lock);
	return result;
}

/*
 * The attach_id, and in *from where the entries of its buckets begin, if the
 * descriptor is the relation's and attached; else 0, and *from is left alone.
 * Takes desc->lock, shared, for a moment.
 */
uint64
cb_desc_attachment(CbDesc *desc, Relation rel, CbPos *from)
{
	uint64		attach_id = 0;

	cb_desc_share(desc);
	if (desc->state == CB_DESC_ATTACHED && cb_desc_is_current(desc, rel))
	{
		attach_id = desc->attach_id;
		*from = desc->from;
	}
	LWLockRelease(&desc->lock);
	return attach_id;
}

/* ---------- detaching ---------- */

/* Under a lock of the descriptor; while that is exclusive none can come. */
static bool
cb_desc_has_owner(const CbDesc *desc)
{
	for (uint32 i = 0; i < desc->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[desc->buckets[i]];

		for (uint32 j = 0; j < bucket->nchunks; j++)
		{
			if (cb_load_acquire(&cb_pool_chunks[bucket->chunks[j]].chunk.owner) != 0)
				return true;
		}
	}
	return false;
}

/* Locked to be changed; nobody owns a chunk. */
static void
cb_desc_clear(CbDesc *desc)
{
	for (uint32 i = 0; i < desc->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[desc->buckets[i]];

		for (uint32 j = 0; j < bucket->nchunks; j++)
		{
			CbPoolChunk *chunk = &cb_pool_chunks[bucket->chunks[j]];

			if (--chunk->nlists == 0)
				cb_chunk_set_state(&chunk->chunk, CB_CHUNK_RETIRED);
			if (cb_chunk_release(&chunk->chunk))
				cb_pool_free_chunk(chunk);
		}
		bucket->nchunks = 0;
		bucket->desc = CB_NONE;
		cb_freelist_push(&cb_pool->free_buckets, bucket->number);
	}
	desc->nbuckets = 0;
	desc->layout_gen++;
	desc->attach_id = 0;
	desc->state = CB_DESC_EMPTY;
}

/* Locked to be changed, which it gives up. */
static bool
cb_desc_detach_locked(CbDesc *desc, uint64 attach_id)
{
	bool		detached = true;

	if (desc->state == CB_DESC_ATTACHED &&
		(attach_id == 0 || desc->attach_id == attach_id))
	{
		detached = !cb_desc_has_owner(desc);
		if (detached)
			cb_desc_clear(desc);
	}
	cb_desc_unlock(desc);
	return detached;
}

/*
 * Detaches: chunks are let go, their entries are still in the journal, from
 * where a sweep moves them to the tree.  attach_id 0: whatever it is.  False: a
 * chunk has an owner, and it stays attached; true also if it was not attached,
 * or to another attach_id.
 *
 * Waits for both locks of the descriptor; no LWLock is held on entry.  No error
 * is raised.
 */
bool
cb_desc_detach(CbDesc *desc, uint64 attach_id)
{
	(void) cb_desc_lock(desc, true);
	return cb_desc_detach_locked(desc, attach_id);
}

/*
 * The pool is full, and nobody flushes what it is full of: the index that has
 * got no entries for longest loses its buckets.  It may be one of another
 * database.  False: all are in use, or a lock of that one is not free; it waits
 * for no lock.
 */
bool
cb_desc_detach_idle(void)
{
	TimestampTz now = GetCurrentTimestamp();
	CbDesc	   *oldest = NULL;

	for (uint32 i = 0; i < cb_pool->ndescs; i++)
	{
		CbDesc	   *desc = &cb_pool_descs[i];

		if (desc->state == CB_DESC_ATTACHED &&
			(oldest == NULL || desc->used_at < oldest->used_at))
			oldest = desc;
	}
	return oldest != NULL &&
		TimestampDifferenceExceeds(oldest->used_at, now, CB_DESC_IDLE_MS) &&
		cb_desc_lock(oldest, false) &&
		cb_desc_detach_locked(oldest, oldest->attach_id);
}

/*
 * Remembers that the journal's tail has moved, to this position at least.
 * Nothing is done if the attachment is gone.  Takes desc->lock, shared, for a
 * moment.
 */
void
cb_desc_note_tail(CbDesc *desc, uint64 attach_id, CbPos tail)
{
	cb_desc_share(desc);
	if (desc->state == CB_DESC_ATTACHED && desc->attach_id == attach_id)
	{
		uint64		known = cb_load_relaxed(&desc->tail);

		while (known < tail && !cb_swap_if(&desc->tail, &known, tail))
			;
	}
	LWLockRelease(&desc->lock);
}

/*
 * Shows a worker's error with the index, cut to CB_ERROR_LENGTH; "" takes it
 * away.  False: it is shown already.  It is, until a bucket that failed has
 * been flushed.  Nothing is shown if the attachment is gone.  Waits for both
 * locks of the descriptor; no LWLock is held on entry.
 */
bool
cb_desc_show_error(CbDesc *desc, uint64 attach_id, const char *message)
{
	bool		news = true;

	(void) cb_desc_lock(desc, true);
	if (desc->attach_id == attach_id)
	{
		news = strncmp(desc->error, message, CB_ERROR_LENGTH - 1) != 0;
		strlcpy(desc->error, message, CB_ERROR_LENGTH);
	}
	cb_desc_unlock(desc);
	return news;
}

/*
 * The journal may take this part of the index, as its pages stay in the file;
 * that is 30 to 50 entries a leaf.  But cache_batch.journal_limit at least.
 */
#define CB_DESC_JOURNAL_PART	10

static uint64
cb_desc_journal_limit(Relation rel)
{
	uint64		pool = (uint64) cb_pool->nchunks * cb_pool->chunk_size;
	uint64		part = (uint64) RelationGetNumberOfBlocks(rel) * BLCKSZ /
		CB_DESC_JOURNAL_PART;

	return Max((uint64) cb_journal_limit * 1024, Min(2 * pool, part));
}

/*
 * Sets journal_limit by the index's present size, which it looks up in the file
 * system: that can raise an error, and no LWLock is held.  What is set is a
 * hint.
 */
void
cb_desc_limit_journal(CbDesc *desc, uint64 attach_id, Relation rel)
{
	uint64		limit = cb_desc_journal_limit(rel);

	if (desc->attach_id == attach_id)
		cb_store_relaxed(&desc->journal_limit, limit);
}

/* of so many entries those before are forgotten, half of them at a time */
#define CB_DESC_RECENT		16384

/* one in so many is a good part */
#define CB_DESC_CHURN_PART	16

/*
 * Counts n entries that were published, and how many came with updates that
 * left the index's columns alone, about.  Hints: no lock is taken.
 */
void
cb_desc_note_churn(CbDesc *desc, uint64 attach_id, uint32 n, uint32 nunchanged)
{
	uint32		recent;
	uint64		unchanged;

	if (desc->attach_id != attach_id)
		return;
	recent = cb_fetch_add(&desc->nrecent, n) + n;
	if (nunchanged > 0)
		(void) cb_fetch_add(&desc->nunchanged, Min(n, nunchanged));
	if (recent < CB_DESC_RECENT)
		return;

	/* others may count meanwhile: these are hints */
	unchanged = cb_load_relaxed(&desc->nunchanged);
	cb_store_relaxed(&desc->nrecent, CB_DESC_RECENT / 2);
	cb_store_relaxed(&desc->nunchanged,
					 unchanged * (CB_DESC_RECENT / 2) / recent);
}

/* Are new versions a good part of what was published lately?  A hint. */
bool
cb_desc_has_churn(const CbDesc *desc)
{
	uint32		unchanged = cb_load_relaxed(&desc->nunchanged);

	return unchanged > 0 &&
		unchanged >= cb_load_relaxed(&desc->nrecent) / CB_DESC_CHURN_PART;
}

/* flushes that do not ask the table after one that did has failed */
#define CB_DESC_PAUSE		256

/*
 * A flush that had asked the table for dead rows failed: those that follow do
 * not ask, so that what is wrong with the table does not keep entries here.
 * Takes no lock and cannot fail: called within PG_CATCH.
 */
void
cb_desc_pause_asking(CbDesc *desc)
{
	cb_store_relaxed(&desc->npaused, CB_DESC_PAUSE);
}

/* May this flush ask?  Counts it; two that count at once may be one. */
bool
cb_desc_may_ask(CbDesc *desc)
{
	uint32		paused = cb_load_relaxed(&desc->npaused);

	if (paused > 0)
		cb_store_relaxed(&desc->npaused, paused - 1);
	return paused == 0;
}

/*
 * Detaches and removes; table lock EXCL.  False: a chunk has an owner, or it is
 * locked, and not to wait.
 */
static bool
cb_desc_remove(CbDesc *desc, bool wait)
{
	if (!cb_desc_lock(desc, wait))
		return false;
	if (desc->state == CB_DESC_ATTACHED)
	{
		if (cb_desc_has_owner(desc))
		{
			cb_desc_unlock(desc);
			return false;
		}
		cb_desc_clear(desc);
	}
	if (desc->state == CB_DESC_EMPTY)
	{
		(void) hash_search(cb_desc_table, &desc->key, HASH_REMOVE, NULL);
		desc->state = CB_DESC_FREE;
		cb_fetch_add(&cb_pool_gens_of(&desc->key)->table_gen, 1);
	}
	cb_desc_unlock(desc);
	return true;
}

/*
 * Detaches and removes the descriptor of a file, if it has one: the file is not
 * that of an index any more, or an index is built in it.  A descriptor with an
 * owned chunk stays.  Waits for the table lock and the descriptor's; no LWLock
 * is held on entry.
 */
void
cb_desc_forget_file(RelFileNode file)
{
	CbDesc	   *desc;

	if (cb_pool == NULL)
		return;
	LWLockAcquire(&cb_pool->table_lock, LW_EXCLUSIVE);
	desc = cb_desc_look_up(&file);
	if (desc != NULL)
		(void) cb_desc_remove(desc, true);
	LWLockRelease(&cb_pool->table_lock);
}

/* The same for all descriptors of a database. */
void
cb_desc_forget_database(Oid dboid)
{
	if (cb_pool == NULL)
		return;
	LWLockAcquire(&cb_pool->table_lock, LW_EXCLUSIVE);
	for (uint32 i = 0; i < cb_pool->ndescs; i++)
	{
		CbDesc	   *desc = &cb_pool_descs[i];

		if (desc->state != CB_DESC_FREE && desc->key.dbNode == dboid)
			(void) cb_desc_remove(desc, true);
	}
	LWLockRelease(&cb_pool->table_lock);
}

/* ---------- making ---------- */

/*
 * A descriptor that is free, or that another index has long not used, which
 * loses it.  The table lock is held, EXCL; waits for no lock.
 */
static CbDesc *
cb_desc_take_free(void)
{
	TimestampTz now = GetCurrentTimestamp();
	CbDesc	   *oldest = NULL;

	for (uint32 i = 0; i < cb_pool->ndescs; i++)
	{
		CbDesc	   *desc = &cb_pool_descs[i];

		if (desc->state == CB_DESC_FREE)
			return desc;
		if (oldest == NULL || desc->used_at < oldest->used_at)
			oldest = desc;
	}
	if (oldest != NULL &&
		TimestampDifferenceExceeds(oldest->used_at, now, CB_DESC_IDLE_MS) &&
		cb_desc_remove(oldest, false))
		return oldest;
	return NULL;
}

/*
 * Gives a free descriptor to the index; table lock EXCL.  False: the table has
 * no room, or it is locked, and not to wait.
 */
static bool
cb_desc_enter(CbDesc *desc, Relation rel, const uint8 *build_id, bool wait)
{
	CbDescKey  *key;

	if (!cb_desc_lock(desc, wait))
		return false;
	key = hash_search(cb_desc_table, &rel->rd_node, HASH_ENTER_NULL, NULL);
	if (key != NULL)
	{
		key->number = desc->number;
		desc->key = rel->rd_node;
		memcpy(desc->build_id, build_id, CB_BUILD_ID_LEN);
		desc->indexoid = RelationGetRelid(rel);
		desc->used_at = GetCurrentTimestamp();
		cb_store_relaxed(&desc->spills, 0);
		desc->state = CB_DESC_EMPTY;

		/* before the lane is taken to attach: see above */
		cb_fetch_add(&cb_pool_gens_of(&desc->key)->table_gen, 1);
	}
	cb_desc_unlock(desc);
	return key != NULL;
}

/*
 * The index's descriptor, made if need be; NULL: none is to be had.  It is of
 * an earlier build if it could not be removed.  No LWLock is held on entry, nor
 * on return; wait: for locks.
 */
static CbDesc *
cb_desc_make(Relation rel, bool wait)
{
	const uint8 *build_id = cb_rel_build_id(rel);
	CbDesc	   *desc;

	if (wait)
		LWLockAcquire(&cb_pool->table_lock, LW_EXCLUSIVE);
	else if (!LWLockConditionalAcquire(&cb_pool->table_lock, LW_EXCLUSIVE))
		return NULL;
	desc = cb_desc_look_up(&rel->rd_node);
	if (desc != NULL && memcmp(desc->build_id, build_id, CB_BUILD_ID_LEN) != 0)
		desc = cb_desc_remove(desc, wait) ? NULL : desc;
	if (desc == NULL)
	{
		desc = cb_desc_take_free();
		if (desc != NULL && !cb_desc_enter(desc, rel, build_id, wait))
			desc = NULL;
	}
	LWLockRelease(&cb_pool->table_lock);
	return desc;
}

/* ---------- attaching ---------- */

typedef struct CbAttach
{
	Relation	rel;
	CbDesc	   *desc;
	bool		wait;
	CbPos		tail;
	bool		has_ranges;
	uint64		journal_limit;
	TimestampTz now;
	int			nfences;
	IndexTuple *fences;
} CbAttach;

/* Takes both locks if there is something to attach; false: neither is held. */
static bool
cb_attach_lock(void *arg)
{
	CbAttach   *attach = arg;

	if (!cb_desc_lock(attach->desc, attach->wait))
		return false;
	if (attach->desc->state == CB_DESC_EMPTY &&
		cb_desc_is_current(attach->desc, attach->rel))
		return true;
	cb_desc_unlock(attach->desc);
	return false;
}

/*
 * Makes the list of buckets; fewer than wanted if they run out, false if there
 * are none at all.  The descriptor is locked, EXCL.
 */
static bool
cb_attach_make_buckets(CbAttach *attach)
{
	CbDesc	   *desc = attach->desc;

	desc->nbuckets = 0;
	for (int i = -1; i < attach->nfences; i++)
	{
		uint32		number = cb_freelist_pop(&cb_pool->free_buckets);
		CbBucket   *bucket;

		if (number == CB_FREELIST_NONE)
			break;
		bucket = &cb_pool_buckets[number];
		bucket->desc = desc->number;
		bucket->nchunks = 0;
		cb_store_relaxed(&bucket->run_reads, 0);
		cb_failing_forget(&bucket->failing);
		bucket->fence_len = 0;
		if (i >= 0)
		{
			bucket->fence_len = IndexTupleSize(attach->fences[i]);
			memcpy(bucket->fence.bytes, attach->fences[i], bucket->fence_len);
		}
		desc->buckets[desc->nbuckets++] = number;
	}
	return desc->nbuckets > 0;
}

/*
 * Under the descriptor's locks and the lane: head is where the next entry will
 * be.  Appends nothing; if there are no buckets to be had the descriptor stays
 * as it is.
 */
static int
cb_attach_at_head(void *arg, int first, int n, CbPos head)
{
	CbAttach   *attach = arg;
	CbDesc	   *desc = attach->desc;

	if (!cb_attach_make_buckets(attach))
		return 0;
	desc->from = desc->head = head;
	cb_store_release(&desc->again, 0);	/* after attach_id has changed */
	cb_failing_forget(&desc->failing);
	desc->error[0] = '\0';
	cb_store_relaxed(&desc->tail, attach->tail);
	desc->attached_at = attach->now;
	desc->used_at = attach->now;
	cb_store_relaxed(&desc->journal_limit, attach->journal_limit);
	cb_store_relaxed(&desc->nrecent, 0);
	cb_store_relaxed(&desc->nunchanged, 0);
	cb_store_relaxed(&desc->npaused, 0);
	desc->sweep_place.upto = 0;
	if (attach->has_ranges)
		cb_fetch_add(&desc->spills, 1);
	cb_store_relaxed(&desc->cool_at, 0);
	desc->cooled_at = attach->now;
	desc->cool_leaf = 0;
	desc->layout_gen++;
	desc->attach_id = cb_fetch_add(&cb_pool->next_attach_id, 1);
	desc->state = CB_DESC_ATTACHED;
	return 0;
}

static void
cb_attach_unlock(void *arg)
{
	cb_desc_unlock(((CbAttach *) arg)->desc);
}

static const CbAppendSink cb_attach_sink = {
	.lock = cb_attach_lock,
	.reserve = cb_attach_at_head,
	.unlock = cb_attach_unlock
};

/* How many buckets to begin with: a fair share of the pool. */
static int
cb_attach_count_buckets(void)
{
	int			attached = 1;
	int			share;

#ifdef CB_TESTPOINTS
	if (cb_test_share > 0)
		return cb_test_share;
#endif
	for (uint32 i = 0; i < cb_pool->ndescs; i++)
		attached += cb_pool_descs[i].state == CB_DESC_ATTACHED;
	share = cb_pool->nchunks / ((CB_BUCKET_FULL_CHUNKS / 2 + 1) * attached);
	return Max(1, Min(share, CB_DESC_MAX_BUCKETS / 2));
}

/* Keeps max of the fences, evenly: other indexes want buckets as well. */
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
 * that a bucket's entries make few runs; else separators of the tree.
 */
static void
cb_attach_find_fences(CbAttach *attach, const CbKeyDesc *kd, BlockNumber ranges)
{
	int			max = cb_attach_count_buckets() - 1;

	if (ranges != 0)
		attach->fences = cb_range_separators(kd->rel, ranges,
											 CB_BUCKET_FENCE_SIZE,
											 &attach->nfences);
	cb_attach_thin_fences(attach, max);
	if (attach->fences == NULL || attach->nfences < max / 2)
		attach->fences = cb_tree_sample_separators(kd, max, CB_BUCKET_FENCE_SIZE,
												   &attach->nfences);
}

/* May this index have buckets at all? */
static bool
cb_attach_is_possible(Relation rel)
{
#ifdef CB_TESTPOINTS
	if (!cb_test_buckets)
		return false;
#endif
	return cb_pool != NULL &&
		!RecoveryInProgress() &&
		!IsInParallelMode() &&	/* workers do not know what is new */
		cb_is_buffered(rel) &&
		rel->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		rel->rd_createSubid == InvalidSubTransactionId &&
		rel->rd_newRelfilenodeSubid == InvalidSubTransactionId &&
		rel->rd_firstRelfilenodeSubid == InvalidSubTransactionId;
}

/* Not again at once if it did not work: it costs something. */
static bool
cb_attach_is_time(Relation rel)
{
	CbDescCache *cache = cb_desc_cache(rel);
	TimestampTz now = GetCurrentTimestamp();

	if (cache->attach_at != 0 &&
		!TimestampDifferenceExceeds(cache->attach_at, now, CB_DESC_RETRY_MS))
		return false;
	cache->attach_at = now;
	return true;
}

/*
 * Finds the index's descriptor, makes and attaches one if it should have one
 * and no sweep is at work.  NULL, or one that need not be attached: it could
 * not be, may have been detached again, or is of an earlier build and could not
 * be removed.  The caller sees that under a lock.
 *
 * wait: for locks of descriptors, too, as a publication does anyway; the sweep
 * lock is taken only if it is free.  No LWLock is held; RowExclusiveLock or
 * AccessShareLock on the index is.  Catalogs and pages are read, and memory is
 * allocated in the current context, so errors can be raised; no comparison
 * runs.
 */
CbDesc *
cb_desc_attach(const CbKeyDesc *kd, bool wait)
{
	Relation	rel = kd->rel;
	CbDesc	   *desc = cb_desc_find(rel);
	CbAttach	attach = {0};
	CbMetaPageData meta;
	CbPos		from;

	if (desc != NULL && cb_desc_attachment(desc, rel, &from) != 0)
		return desc;
	if (!cb_attach_is_possible(rel) || !cb_attach_is_time(rel))
		return desc;
	if (!ConditionalLockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock))
		return desc;
	desc = cb_desc_make(rel, wait);
	if (desc != NULL)
	{
		attach.rel = rel;
		attach.desc = desc;
		attach.wait = wait;
		attach.now = GetCurrentTimestamp();
		cb_rel_read_meta(rel, NULL, &meta);
		attach.tail = meta.journal_tail;
		attach.has_ranges = meta.range_root != 0;
		cb_attach_find_fences(&attach, kd, meta.range_root);
		attach.journal_limit = cb_desc_journal_limit(rel);
		CB_TEST_POINT("attach-before");
		cb_journal_visit_head(rel, &cb_attach_sink, &attach);
		CB_TEST_POINT("attach-done");
		if (desc->state == CB_DESC_ATTACHED)
			cb_desc_cache(rel)->attach_at = 0;
	}
	UnlockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);
	return desc;
}
