/*-------------------------------------------------------------------------
 *
 * cb_publish.c
 *	  Publication: entries go to the journal and, the same moment, to buckets.
 *
 * Entries are routed first, with no lock.  Then, for as many as go to one page
 * of the journal, under the bucket set's publish lock and the append lock:
 *
 *	1. see that attachment and bounds are those that the routing knew, and that
 *	   the journal's head is where the last publication left it;
 *	2. make room in the buckets, by opening chunks.  Only holders of the
 *	   publish lock open, fill or seal the chunk that takes entries, so the
 *	   room stays; the entries for which there is none are left for another
 *	   call, as are those for a bucket whose flush fails, and which has its
 *	   share;
 *	3. append to the journal: one critical section;
 *	4. copy the entries into the chunks, each bucket under its lock.
 *
 * Nothing fails between 3 and 4 and no reader needs both at once: who looks
 * into the bucket before 4 started before the publication was over.  A flusher
 * cannot seal a chunk in between (I1_SEAL).  A position is assigned and its
 * chunk's minpos set within one hold of the publish lock, so whoever reads the
 * head under that lock, and minpos later, misses none (I4, I7).
 *
 * Locks: the publish lock, then the append lock, then one bucket's at a time;
 * set->lock is not taken.  What is routed, hashed, read or allocated is so
 * before the first of them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "bucket/cb_bucket.h"
#include "miscadmin.h"

/* batches up to this size need no memory of their own */
#define CB_PUBLISH_FEW	32

typedef struct CbPublish
{
	const CbKeyDesc *kd;
	CbSortEntry *entries;
	CbBucketSet *set;			/* NULL: there was none when table_gen was
								 * read */
	CbGens	   *gens;			/* the index's */
	uint64		table_gen;
	CbRouter   *router;			/* NULL: not attached */
	uint16	   *route;			/* each entry's bucket: its place in set */
	uint32	   *hashes;			/* each entry's, 0 if its key is null */
	TimestampTz now;
	CbPublishResult *result;
	bool		stale;			/* look again: something has changed */
	bool		broken;			/* the journal is not the one we know */
} CbPublish;

/* ---------- under the locks ---------- */

/*
 * Takes the publish lock, if there is a bucket set, and sees that it still is
 * what the routing knew; false, with no lock held: look again.
 */
static bool
cb_publish_lock(void *arg)
{
	CbPublish  *pub = arg;
	CbBucketSet *set = pub->set;
	const CbRouter *router = pub->router;
	bool		attached;

	if (set == NULL)
		return true;
	LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	attached = set->state == CB_SET_ATTACHED;
	if (router == NULL && !attached &&
		cb_set_is_current(set, pub->kd->rel))
		return true;

	/* an attach_id stands for the build and the file as well */
	if (router != NULL && attached &&
		set->attach_id == router->attach_id &&
		set->layout_gen == router->layout_gen)
		return true;
	LWLockRelease(&set->publish);
	pub->stale = true;
	return false;
}

/*
 * Releases what cb_publish_lock() took, if there is a bucket set; the append lock
 * is free again.
 */
static void
cb_publish_unlock(void *arg)
{
	CbPublish  *pub = arg;

	if (pub->set != NULL)
		LWLockRelease(&pub->set->publish);
}

/*
 * The bucket of entry i of this piece.  The publish lock is held, so the routing
 * is right still.
 */
static inline CbBucket *
cb_publish_bucket(CbPublish *pub, int i)
{
	return &cb_pool_buckets[pub->set->buckets[pub->route[i]]];
}

/*
 * The chunk of a bucket that takes entries, NULL if there is none.  The
 * bucket's lock is held: flushed chunks are taken out of the list meanwhile.
 */
static CbPoolChunk *
cb_publish_active(const CbBucket *bucket)
{
	CbPoolChunk *chunk;

	if (bucket->nchunks == 0)
		return NULL;
	chunk = &cb_pool_chunks[bucket->chunks[bucket->nchunks - 1]];
	return cb_chunk_state(&chunk->chunk) == CB_CHUNK_ACTIVE ? chunk : NULL;
}

/*
 * May the bucket have one more chunk?  One whose flush fails keeps what it
 * has, so it gets no more than others have on average, and nothing that they
 * need (B4_SHARE).  Its lock is held.
 */
static bool
cb_publish_may_grow(CbBucket *bucket)
{
	return !cb_bucket_is_failing(bucket) ||
		(bucket->nchunks < CB_BUCKET_FULL_CHUNKS / 2 && !cb_pool_is_low());
}

/*
 * Opens a chunk for the bucket, seals the present one.  NULL: no room.  The
 * bucket's lock is held exclusively, and the publish lock: nobody but its holder
 * lists a chunk that takes entries.  The list has the chunk's first hold.
 */
static CbPoolChunk *
cb_publish_open_chunk(CbPublish *pub, CbBucket *bucket, CbPoolChunk *active)
{
	CbPoolChunk *chunk;
	uint32		number;

	if (bucket->nchunks == CB_BUCKET_MAX_CHUNKS)
		return NULL;
	number = cb_pool_open_chunk();
	if (number == CB_NONE)
		return NULL;
	chunk = &cb_pool_chunks[number];
	chunk->bucket = bucket->number;
	if (active)
		cb_chunk_set_state(&active->chunk, CB_CHUNK_SEALED);
	if (bucket->nchunks == 0)
		bucket->since = pub->now;
	bucket->chunks[bucket->nchunks++] = number;
	return chunk;
}

/*
 * How many of n entries, all for one bucket, the active chunk takes; none if it
 * is NULL.  The bucket's lock is held.
 */
static int
cb_publish_count_fitting(const CbPoolChunk *active, const CbSortEntry *entries,
						 int n)
{
	int64		room;
	int			i;

	if (active == NULL)
		return 0;
	room = (int64) active->chunk.size - active->chunk.used -
		cb_chunk_count(&active->chunk) * sizeof(CbItem);
	for (i = 0; i < n; i++)
	{
		room -= CB_CHUNK_ALIGN(IndexTupleSize(entries[i].itup)) + sizeof(CbItem);
		if (room < 0)
			break;
	}
	return i;
}

/* The end of the entries from i on that go to the same bucket. */
static inline int
cb_publish_group_end(const CbPublish *pub, int i, int end)
{
	uint16		bucket = pub->route[i];

	do
		i++;
	while (i < end && pub->route[i] == bucket);
	return i;
}

/*
 * Tells the caller what should be flushed, now that the bucket has got a chunk:
 * that bucket, if it has many, or any, if the pool is low.  Its lock is held.
 */
static void
cb_publish_note_pressure(CbPublish *pub, CbBucket *bucket)
{
	CbPublishResult *result = pub->result;

	if (bucket->nchunks >= CB_BUCKET_FULL_CHUNKS)
		result->full_bucket = bucket->number;
	if (cb_pool_is_low())
		result->pressed = true;
}

/*
 * Makes room for some of n entries, all for one bucket; returns for how many.
 * If it is 0 the pool or the list has no room, or the bucket fails and has its
 * share: then nrefused says so.  The publish lock is held; takes the bucket's,
 * and has released it on return: the room stays (B2).
 */
static int
cb_publish_make_room_for(CbPublish *pub, CbBucket *bucket,
						 const CbSortEntry *entries, int n)
{
	CbPoolChunk *chunk;
	int			fitting;

	LWLockAcquire(&bucket->lock, LW_EXCLUSIVE);
	chunk = cb_publish_active(bucket);
	fitting = cb_publish_count_fitting(chunk, entries, n);
	if (fitting == 0 && !cb_publish_may_grow(bucket))
	{
		pub->result->full_bucket = bucket->number;
		pub->result->nrefused = n;
	}
	else if (fitting == 0)
	{
		chunk = cb_publish_open_chunk(pub, bucket, chunk);
		fitting = cb_publish_count_fitting(chunk, entries, n);
		if (chunk)
			cb_publish_note_pressure(pub, bucket);
	}
	LWLockRelease(&bucket->lock);
	return fitting;
}

/*
 * Makes room for entries [first, first + n); returns for how many.  A group
 * that does not fit into its bucket's active chunk is cut there: its rest is
 * left for the next page of the journal, when a new chunk is opened.  That the
 * pool has no room the caller is told only if the first entry finds none.
 */
static int
cb_publish_make_room(CbPublish *pub, int first, int n)
{
	int			end = first + n;
	int			i = first;

	while (i < end)
	{
		CbBucket   *bucket = cb_publish_bucket(pub, i);
		int			group_end = cb_publish_group_end(pub, i, end);
		int			fitting = cb_publish_make_room_for(pub, bucket,
													   &pub->entries[i],
													   group_end - i);

		if (fitting == 0 && i == first && pub->result->nrefused == 0)
		{
			pub->result->no_room = true;
			pub->result->full_bucket = bucket->number;
		}
		i += fitting;
		if (i < group_end)
			break;
	}
	return i - first;
}

/*
 * With the publish lock and the append lock: how many of the entries may be
 * appended at head.  Room for them is made here, and stays while the locks are
 * held (B2).  0 with stale or broken set: the routing is not right any more, or
 * the journal is another file's (U22).
 */
static int
cb_publish_reserve(void *arg, int first, int n, CbPos head)
{
	CbPublish  *pub = arg;

	if (pub->set == NULL)
	{
		/* an attachment since then may have taken this head as its "from" */
		if (cb_load_acquire(&pub->gens->table_gen) != pub->table_gen)
		{
			pub->stale = true;
			return 0;
		}
		cb_fetch_add(&pub->gens->no_set_gen, 1);
		return n;
	}
	if (pub->router == NULL)
		return n;
	if (pub->set->head != head)
	{
		pub->broken = true;
		return 0;
	}
	return cb_publish_make_room(pub, first, n);
}

/*
 * Copies the entries, which are in the journal now, into the chunks.  With the
 * publish lock and the append lock; there is room, so it cannot fail (I6).
 * minpos before the entries, a filter's bits before its entry: whoever sees the
 * entry sees these.  Each bucket is locked once, exclusively.
 */
static void
cb_publish_fill(void *arg, int first, int n, CbPos pos, CbPos head)
{
	CbPublish  *pub = arg;
	int			end = first + n;

	if (pub->router == NULL)
		return;
	CB_TEST_POINT("publish-fill");
	for (int i = first; i < end;)
	{
		CbBucket   *bucket = cb_publish_bucket(pub, i);
		int			group_end = cb_publish_group_end(pub, i, end);
		CbPoolChunk *chunk;

		LWLockAcquire(&bucket->lock, LW_EXCLUSIVE);
		chunk = cb_publish_active(bucket);
		if (chunk->minpos == 0)
			chunk->minpos = pos;
		for (; i < group_end; i++)
		{
			IndexTuple	itup = pub->entries[i].itup;

			if (pub->kd->hash != CB_HASH_NONE)
				cb_filter_add(cb_pool_filter(chunk->number),
							  cb_pool->filter_lines, pub->hashes[i]);
			cb_chunk_append(&chunk->chunk, itup, IndexTupleSize(itup));
		}
		LWLockRelease(&bucket->lock);
	}
	pub->set->head = head;
	pub->set->used_at = pub->now;
}

static const CbAppendSink cb_publish_sink = {
	.lock = cb_publish_lock,
	.reserve = cb_publish_reserve,
	.fill = cb_publish_fill,
	.unlock = cb_publish_unlock
};

/* ---------- before the locks ---------- */

/*
 * Each entry's bucket, as its place in the router.  They are sorted: go from one
 * bucket to the next.  Comparisons run; no lock is held.
 */
static void
cb_publish_route(const CbKeyDesc *kd, const CbRouter *router,
				 const CbSortEntry *entries, uint16 *route, int n)
{
	int			i = 0;

	while (i < n)
	{
		uint32		bucket = cb_route_entry(kd, router, entries[i].itup);
		IndexTuple	bound = bucket + 1 == router->nbuckets ? NULL :
			cb_route_fence(router, bucket + 1);

		do
			route[i++] = bucket;
		while (i < n && (bound == NULL ||
						 cb_key_compare(kd, entries[i].itup, bound) < 0));
	}
}

/*
 * Each entry's hash, 0 if its first column is null; nothing if the index has no
 * hashes.  May read a catalog and raise an error: no lock is held.
 */
static void
cb_publish_hash(CbKeyDesc *kd, const CbSortEntry *entries, uint32 *hashes,
				int n)
{
	if (cb_key_prepare_hash(kd) == CB_HASH_NONE)
		return;
	for (int i = 0; i < n; i++)
		hashes[i] = entries[i].first_null ? 0 :
			cb_key_hash(kd, entries[i].first);
}

/*
 * Looks up, or attaches, the index's bucket set, and routes the entries.  The
 * counter is read before the look: a bucket set that is made after it is told of
 * under the append lock (I3_GENERATION).  No lock is held; comparisons run, errors
 * can be raised.  The slot keeps the router.
 */
static void
cb_publish_prepare(CbPublish *pub, const CbSortEntry *entries, uint16 *route,
				   int n)
{
	pub->stale = pub->broken = false;
	pub->router = NULL;
	pub->table_gen = cb_load_acquire(&pub->gens->table_gen);
	pub->set = cb_set_attach(pub->kd, true);
	if (pub->set == NULL)
		return;
	pub->router = cb_route_get(pub->kd, pub->set);
	if (pub->router != NULL)
		cb_publish_route(pub->kd, pub->router, entries, route, n);
	else if (!cb_set_belongs_to(pub->set, pub->kd->rel))
		pub->set = NULL;		/* of an earlier build, and not to be removed */
}

/* Is there something that the caller has to see to? */
static inline bool
cb_publish_is_stuck(const CbPublishResult *result)
{
	return result->no_room || result->nrefused > 0;
}

/*
 * What the result says of the buckets that the entries went to.  Their journal's
 * length is a hint: head and tail are read without a lock.
 */
static void
cb_publish_set_length(CbPublish *pub)
{
	CbPublishResult *result = pub->result;

	result->set = pub->router ? pub->set : NULL;
	result->attach_id = pub->router ? pub->router->attach_id : 0;
	if (pub->router)
	{
		CbPos		tail = cb_load_relaxed(&pub->set->tail);

		/* a hint, read without lock */
		result->journal_length = Max(pub->set->head, tail) - tail;
	}
}

/*
 * Appends entries, sorted by (key, TID), to the journal and puts copies of
 * them into the index's buckets.  An index that should have some gets them
 * here.  Returns how many, from the first on: fewer than n only if
 * result->no_room or nrefused.  Then the caller makes room, or takes the next
 * ones another way, and calls again.
 *
 * The caller holds RowExclusiveLock on the index and no LWLock.  Comparison
 * functions may run, with no lock held.  An error leaves a prefix of the
 * entries published.  Not in recovery.  There is no full barrier at the end:
 * staging adds it (I3).
 */
int
cb_bucket_publish(CbKeyDesc *kd, CbSortEntry *entries, int n,
				  CbPublishResult *result)
{
	CbPublish	pub = {.kd = kd,.result = result};
	uint16		few_routes[CB_PUBLISH_FEW];
	uint32		few_hashes[CB_PUBLISH_FEW];
	uint16	   *route = few_routes;
	uint32	   *hashes = few_hashes;
	int			done = 0;

	memset(result, 0, sizeof(CbPublishResult));
	result->full_bucket = CB_NONE;
	if (cb_pool == NULL)
		return cb_journal_append(kd->rel, entries, n, NULL, NULL,
								 &result->journal_length);

	pub.now = cb_clock_now();
	pub.gens = cb_pool_gens_of(&kd->rel->rd_locator);
	if (n > CB_PUBLISH_FEW)
	{
		route = palloc(n * sizeof(uint16));
		hashes = palloc(n * sizeof(uint32));
	}
	cb_publish_hash(kd, entries, hashes, n);
	while (done < n && !cb_publish_is_stuck(result))
	{
		CbSlotMark	mark = cb_slot_mark();

		cb_publish_prepare(&pub, entries + done, route + done, n - done);
		CB_TEST_POINT("publish-routed");

		/* in as many pieces as pages of the journal, and full chunks, make */
		while (done < n && !pub.stale && !pub.broken &&
			   !cb_publish_is_stuck(result))
		{
			pub.entries = entries + done;
			pub.route = route + done;
			pub.hashes = hashes + done;
			done += cb_journal_append(kd->rel, pub.entries, n - done,
									  &cb_publish_sink, &pub,
									  &result->journal_length);
		}
		cb_publish_set_length(&pub);
		if (pub.broken)
			(void) cb_set_detach(pub.set, pub.router->attach_id);
		cb_slot_release_to(mark);
		CHECK_FOR_INTERRUPTS();
	}
	if (n > CB_PUBLISH_FEW)
	{
		pfree(route);
		pfree(hashes);
	}
	return done;
}
