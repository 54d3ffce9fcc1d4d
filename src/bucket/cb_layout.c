/*-------------------------------------------------------------------------
 *
 * cb_layout.c
 *	  Dividing buckets, and joining them.
 *
 * Under both locks of the bucket set, exclusively, so that nobody publishes,
 * pins what a list has or unlinks; who reads a list without a lock is told by
 * cb_set_begin_change().  Dividing waits for them, as every flush waits to
 * seal its chunks; joining, which can be done another time, does not.  Entries
 * never move (A5): the chunk that took entries is sealed, and each chunk is
 * listed by every bucket whose range it may overlap.  layout_gen is counted
 * first: whoever routed by the old bounds, and comes later, routes again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "miscadmin.h"

/* so many neighbours without entries are of keys that nobody inserts */
#define CB_LAYOUT_UNUSED	4

/*
 * Takes both locks of the bucket set, EXCL; false, with neither held: the
 * attachment is gone, or one of them is not free, and not to wait.
 */
static bool
cb_layout_lock(CbBucketSet *set, uint64 attach_id, bool wait)
{
	if (!cb_set_lock(set, wait))
		return false;
	if (set->state == CB_SET_ATTACHED && set->attach_id == attach_id)
		return true;
	cb_set_unlock(set);
	return false;
}

/*
 * The place of a bucket in the bucket set's list, or the list's length.  One of
 * the bucket set's locks is held.
 */
static uint32
cb_layout_find(const CbBucketSet *set, uint32 number)
{
	uint32		i = 0;

	while (i < set->nbuckets && set->buckets[i] != number)
		i++;
	return i;
}

/*
 * The chunk of the bucket that takes entries takes no more.  Both locks are
 * held: nobody fills it.
 */
static void
cb_layout_seal_active(CbBucket *bucket)
{
	for (uint32 i = 0; i < bucket->nchunks; i++)
	{
		CbChunk    *chunk = &cb_pool_chunks[bucket->chunks[i]].chunk;

		if (cb_chunk_state(chunk) == CB_CHUNK_ACTIVE)
			cb_chunk_set_state(chunk, CB_CHUNK_SEALED);
	}
}

/*
 * Lists a chunk in one more bucket, which has room for it.  Both locks are
 * held.
 */
static void
cb_layout_list_chunk(CbBucket *bucket, uint32 number)
{
	CbPoolChunk *chunk = &cb_pool_chunks[number];

	cb_chunk_hold(&chunk->chunk);
	chunk->nlists++;
	bucket->chunks[bucket->nchunks++] = number;
}

/* Buckets that an index may have, at most. */
static uint32
cb_layout_max_buckets(void)
{
#ifdef CB_TESTPOINTS
	if (cb_test_max_buckets > 0)
		return cb_test_max_buckets;
#endif
	return CB_SET_MAX_BUCKETS;
}

/*
 * Puts a bucket for [separator, ...) behind number i.  False: no bucket is to
 * be had, and nothing is changed.  Both locks are held; cannot fail.  The new
 * one lists all chunks of the old one, also those that others own: so whoever
 * retires them takes them out of both (A5).
 */
static bool
cb_layout_divide(CbBucketSet *set, uint32 i, IndexTuple separator)
{
	CbBucket   *left = &cb_pool_buckets[set->buckets[i]];
	uint32		number;
	CbBucket   *right;

	if (set->nbuckets >= cb_layout_max_buckets())
		return false;
	number = cb_freelist_pop(&cb_pool->free_buckets);
	if (number == CB_FREELIST_NONE)
		return false;
	cb_set_begin_change(set);
	right = &cb_pool_buckets[number];
	right->set = set->number;
	right->nchunks = 0;
	right->since = left->since;
	cb_store_relaxed(&right->run_reads, 0);
	cb_failing_forget(&right->failing);
	right->fence_len = IndexTupleSize(separator);
	memcpy(right->fence.bytes, separator, right->fence_len);

	cb_layout_seal_active(left);
	for (uint32 j = 0; j < left->nchunks; j++)
		cb_layout_list_chunk(right, left->chunks[j]);
	memmove(&set->buckets[i + 2], &set->buckets[i + 1],
			(set->nbuckets - i - 1) * sizeof(uint32));
	set->buckets[i + 1] = number;
	set->nbuckets++;
	return true;
}

/*
 * Does the separator divide the range of bucket i of the router?  Comparisons
 * run, with no LWLock held.
 */
static bool
cb_layout_is_inside(const CbKeyDesc *kd, const CbRouter *router, uint32 i,
					IndexTuple separator)
{
	IndexTuple	lo = cb_route_fence(router, i);
	IndexTuple	hi = i + 1 < router->nbuckets ?
		cb_route_fence(router, i + 1) : NULL;

	return (lo == NULL || cb_key_compare(kd, lo, separator) < 0) &&
		(hi == NULL || cb_key_compare(kd, separator, hi) < 0);
}

/* Is the chunk in the bucket's list?  Both locks are held. */
static bool
cb_layout_lists(const CbBucket *bucket, uint32 number)
{
	for (uint32 i = 0; i < bucket->nchunks; i++)
	{
		if (bucket->chunks[i] == number)
			return true;
	}
	return false;
}

/*
 * Joins buckets i and i + 1, which together have no more chunks than one may
 * list.  Both locks are held; the buckets' own are not needed, as nobody pins
 * what a list has.  A chunk that both list keeps the left one's hold; one that
 * names the right bucket names the left one now.  Cannot fail.
 */
static void
cb_layout_join(CbBucketSet *set, uint32 i)
{
	CbBucket   *left = &cb_pool_buckets[set->buckets[i]];
	CbBucket   *right = &cb_pool_buckets[set->buckets[i + 1]];

	cb_set_begin_change(set);
	cb_layout_seal_active(left);
	cb_layout_seal_active(right);
	for (uint32 j = 0; j < right->nchunks; j++)
	{
		CbPoolChunk *chunk = &cb_pool_chunks[right->chunks[j]];

		if (!cb_layout_lists(left, chunk->number))
			cb_layout_list_chunk(left, chunk->number);
		if (chunk->bucket == right->number)
			chunk->bucket = left->number;
		chunk->nlists--;
		(void) cb_chunk_release(&chunk->chunk); /* the left one's is left */
	}
	left->since = Min(left->since, right->since);
	right->nchunks = 0;
	right->set = CB_NONE;
	cb_freelist_push(&cb_pool->free_buckets, right->number);
	set->nbuckets--;
	memmove(&set->buckets[i + 1], &set->buckets[i + 2],
			(set->nbuckets - i - 1) * sizeof(uint32));
}

/*
 * Joins two of some neighbours that hold nothing, but not the one that room is
 * made for.  Where keys go on, as times do, those that got the
 * earlier ones would keep all buckets that the index may have, and the last
 * one would get all entries.  One that was flushed just now seldom has so many
 * empty neighbours.  Both locks are held; places in the list may change.
 */
static void
cb_layout_make_room(CbBucketSet *set, uint32 bucket)
{
	uint32		nempty = 0;

	for (uint32 i = 0; i < set->nbuckets; i++)
	{
		CbBucket   *other = &cb_pool_buckets[set->buckets[i]];

		nempty = other->number != bucket && other->nchunks == 0 &&
			!cb_bucket_is_failing(other) ? nempty + 1 : 0;
		if (nempty == CB_LAYOUT_UNUSED)
		{
			cb_layout_join(set, i - 1);
			return;
		}
	}
}

/*
 * Divides a bucket at a separator of the tree, which is copied.  False: it is
 * not of this attachment any more, its bounds have changed since they were
 * compared, the separator is too large or not inside, or there is no bucket to
 * be had.
 *
 * No LWLock is held on entry; it waits for both locks of the bucket set.
 * Comparisons run before that, and errors can be raised: the slot is released
 * by the caller then.  The caller may own chunks of the bucket: both parts
 * list them.
 */
bool
cb_layout_split(const CbKeyDesc *kd, CbBucketSet *set, uint64 attach_id,
				uint32 bucket, IndexTuple separator)
{
	CbSlotMark	mark = cb_slot_mark();
	CbRouter   *router;
	uint32		i;
	bool		done = false;

	if (IndexTupleSize(separator) > CB_BUCKET_FENCE_SIZE ||
		IndexTupleSize(separator) <= sizeof(IndexTupleData))
		return false;
	router = cb_route_get(kd, set);
	if (router == NULL || router->attach_id != attach_id)
	{
		cb_slot_release_to(mark);
		return false;
	}
	i = cb_route_entry(kd, router, separator);
	if (cb_layout_is_inside(kd, router, i, separator) &&
		cb_layout_lock(set, attach_id, true))
	{
		if (set->layout_gen == router->layout_gen &&
			set->buckets[i] == bucket)
		{
			done = cb_layout_divide(set, i, separator);
			if (!done)
			{
				cb_layout_make_room(set, bucket);
				done = cb_layout_divide(set, cb_layout_find(set, bucket),
										separator);
			}
		}
		cb_set_unlock(set);
	}
	cb_slot_release_to(mark);
	if (done)
		CB_TEST_POINT("bucket-divided");
	return done;
}

/*
 * Joins a bucket with its right neighbour if both hold little, and that one
 * does not fail: what waits for a bad leaf shall not become more.  False: they
 * do not, the bucket set is locked, or it is not of this attachment any more.
 * Waits for no lock; raises no error.
 */
bool
cb_layout_join_next(CbBucketSet *set, uint64 attach_id, uint32 bucket)
{
	uint32		i;
	bool		done = false;

	if (!cb_layout_lock(set, attach_id, false))
		return false;
	i = cb_layout_find(set, bucket);
	if (i + 1 < set->nbuckets &&
		!cb_bucket_is_failing(&cb_pool_buckets[set->buckets[i + 1]]) &&
		cb_pool_buckets[set->buckets[i]].nchunks +
		cb_pool_buckets[set->buckets[i + 1]].nchunks <= CB_BUCKET_FULL_CHUNKS / 2)
	{
		cb_layout_join(set, i);
		done = true;
	}
	cb_set_unlock(set);
	return done;
}
