/*-------------------------------------------------------------------------
 *
 * cb_seal.c
 *	  Taking chunks for a flush, and out of their buckets after it.
 *
 * Chunks are owned by one flusher at a time.  They stay in their lists, and so
 * readable, until all of their entries are in the tree or in runs (I1).
 *
 * Owners come under the publish lock, set->lock and the bucket's, and go without
 * a lock: so whoever has one of the bucket set's exclusively, and finds no owner,
 * knows that none comes.  Chunks leave a list under set->lock, shared, and the
 * bucket's, exclusively; readers that have no lock are told by the bucket's count
 * of removals, which is odd meanwhile (I2_REMOVALS).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "bucket/cb_bucket.h"
#include "miscadmin.h"

/*
 * Shares set->lock; false, without it: the attachment is gone.  Of the bucket
 * set's locks the publish lock alone may be held on entry.
 */
static bool
cb_seal_lock(CbBucketSet *set, uint64 attach_id)
{
	cb_set_share(set);
	if (set->state == CB_SET_ATTACHED && set->attach_id == attach_id)
		return true;
	LWLockRelease(&set->lock);
	return false;
}

/*
 * Owns what nobody owns; publish, set->lock and bucket lock are held.  The slot
 * has room for all that a list can have.  The chunk that takes entries is sealed:
 * nobody is about to fill it, as that needs the publish lock (I1_SEAL).
 */
static int
cb_seal_take(CbBucket *bucket, CbPoolChunk **chunks)
{
	int			n = 0;

	for (uint32 i = 0; i < bucket->nchunks; i++)
	{
		CbPoolChunk *chunk = &cb_pool_chunks[bucket->chunks[i]];

		if (!cb_slot_own(chunk))
			continue;
		if (cb_chunk_state(&chunk->chunk) == CB_CHUNK_ACTIVE)
			cb_chunk_set_state(&chunk->chunk, CB_CHUNK_SEALED);
		cb_chunk_set_state(&chunk->chunk, CB_CHUNK_FLUSHING);
		chunks[n++] = chunk;
	}
	return n;
}

/*
 * Owns the chunks of a bucket that nobody owns, oldest first, into an array of
 * CB_BUCKET_MAX_CHUNKS, and returns how many; they take no more entries.  None
 * if the bucket is not of this attachment any more, or the slot has no room.
 * A negative result: the attachment is gone.
 *
 * No LWLock is held on entry, nor on return; the publish lock is waited for.
 * The slot owns the chunks until cb_bucket_retire(), or until it is released
 * to a mark from before, which the caller sees to, after an error as well
 * (B3).
 */
int
cb_bucket_seal(CbBucketSet *set, uint64 attach_id, uint32 number,
			   CbPoolChunk **chunks)
{
	CbBucket   *bucket = &cb_pool_buckets[number];
	int			n = 0;

	if (!cb_slot_has_room(0, CB_BUCKET_MAX_CHUNKS))
		return 0;

	/* nobody fills the chunk that takes entries */
	LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	if (!cb_seal_lock(set, attach_id))
		n = -1;
	else
	{
		if (bucket->set == set->number)
		{
			LWLockAcquire(&bucket->lock, LW_EXCLUSIVE);
			n = cb_seal_take(bucket, chunks);
			LWLockRelease(&bucket->lock);
		}
		LWLockRelease(&set->lock);
	}
	LWLockRelease(&set->publish);
	return n;
}

/*
 * Takes an owned chunk out of a bucket's list, if it is there.  The bucket's lock
 * is held exclusively.
 */
static void
cb_seal_unlink(CbBucket *bucket, CbPoolChunk *chunk, TimestampTz now)
{
	uint32		i = 0;

	while (i < bucket->nchunks && bucket->chunks[i] != chunk->number)
		i++;
	if (i == bucket->nchunks)
		return;
	bucket->nchunks--;
	memmove(&bucket->chunks[i], &bucket->chunks[i + 1],
			(bucket->nchunks - i) * sizeof(uint32));
	bucket->since = now;
	chunk->nlists--;
	(void) cb_chunk_release(&chunk->chunk); /* the owner's hold is left */
}

/*
 * Takes owned chunks out of a bucket's list; set->lock is shared, the bucket's is
 * taken for a moment.  The count of removals is odd before the list changes, and
 * even when that is over.
 */
static void
cb_seal_unlink_all(CbBucket *bucket, CbPoolChunk **chunks, int n,
				   TimestampTz now)
{
	LWLockAcquire(&bucket->lock, LW_EXCLUSIVE);
	cb_store_relaxed(&bucket->removals, cb_load_relaxed(&bucket->removals) + 1);
	pg_write_barrier();
	for (int i = 0; i < n; i++)
		cb_seal_unlink(bucket, chunks[i], now);
	cb_store_release(&bucket->removals, cb_load_relaxed(&bucket->removals) + 1);
	LWLockRelease(&bucket->lock);
}

/*
 * Is any of these chunks in a list still?  They are owned by this backend, and
 * set->lock is shared, so nobody else counts their lists.
 */
static bool
cb_seal_is_listed(CbPoolChunk **chunks, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (chunks[i]->nlists > 0)
			return true;
	}
	return false;
}

/*
 * Takes chunks, all owned by this backend, out of all lists; disowns them, and
 * wakes who waits for that.  Their entries have reached the tree or runs, in
 * WAL (I1).  Readers that have pinned a chunk keep it.  No LWLock is held on
 * entry; cannot fail.
 */
void
cb_bucket_retire(CbBucketSet *set, CbPoolChunk **chunks, int n)
{
	TimestampTz now = cb_clock_now();

	/* owned chunks keep it attached */
	cb_set_share(set);
	for (int i = 0; i < n; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[chunks[i]->bucket];

		if (bucket->set == set->number)
			cb_seal_unlink_all(bucket, &chunks[i], 1, now);
	}
	/* buckets that were split list their chunks more than once */
	for (uint32 i = 0; i < set->nbuckets && cb_seal_is_listed(chunks, n); i++)
		cb_seal_unlink_all(&cb_pool_buckets[set->buckets[i]], chunks, n, now);
	LWLockRelease(&set->lock);

	for (int i = 0; i < n; i++)
		cb_slot_retire(chunks[i]);
	ConditionVariableBroadcast(&set->cv);
}

/*
 * Where a merge of the bucket's range is to be gone on with; all zero if there
 * is no such place.  The bucket may be another attachment's by now, or become
 * one's: its place is for one only.  Takes the bucket's lock for a moment.
 */
CbRangePlace
cb_bucket_get_place(uint32 number, uint64 attach_id)
{
	CbBucket   *bucket = &cb_pool_buckets[number];
	CbRangePlace place = {0};

	LWLockAcquire(&bucket->lock, LW_SHARED);
	if (bucket->place_attach_id == attach_id)
		place = bucket->place;
	LWLockRelease(&bucket->lock);
	return place;
}

/*
 * Notes it, for this attachment alone; later ones of the bucket do not see it.
 * Takes the bucket's lock for a moment.
 */
void
cb_bucket_set_place(uint32 number, uint64 attach_id, const CbRangePlace *place)
{
	CbBucket   *bucket = &cb_pool_buckets[number];

	LWLockAcquire(&bucket->lock, LW_EXCLUSIVE);
	bucket->place_attach_id = attach_id;
	bucket->place = *place;
	LWLockRelease(&bucket->lock);
}

/*
 * Where a sweep is to be gone on with; all zero if there is no such place, or
 * the attachment is gone.  The sweep lock is held; set->lock is taken for a
 * moment.
 */
CbSweepPlace
cb_set_get_sweep_place(CbBucketSet *set, uint64 attach_id)
{
	CbSweepPlace place = {0};

	if (cb_seal_lock(set, attach_id))
	{
		place = set->sweep_place;
		LWLockRelease(&set->lock);
	}
	return place;
}

/* Notes it; nothing is done if the attachment is gone.  Locks as above. */
void
cb_set_set_sweep_place(CbBucketSet *set, uint64 attach_id,
					   const CbSweepPlace *place)
{
	if (cb_seal_lock(set, attach_id))
	{
		set->sweep_place = *place;
		LWLockRelease(&set->lock);
	}
}

/*
 * Where the attachment stands in the journal; false: it is gone, and
 * *positions says nothing.  The head is read first, under the publish lock:
 * what was published before the call lies below it, and what is published
 * later lies at it or above, so no entry comes below min any more.  No LWLock
 * is held on entry, nor on return; raises no error.
 */
bool
cb_bucket_positions(CbBucketSet *set, uint64 attach_id,
					CbBucketPositions *positions)
{
	bool		attached;

	/* whatever is published from here on lies at head or above */
	LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	attached = cb_seal_lock(set, attach_id);
	positions->from = set->from;
	positions->head = positions->min = set->head;
	positions->again = cb_load_relaxed(&set->again);
	LWLockRelease(&set->publish);
	if (!attached)
		return false;
	positions->failing_bytes = 0;
	positions->nentries = 0;

	for (uint32 i = 0; i < set->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[set->buckets[i]];

		LWLockAcquire(&bucket->lock, LW_SHARED);
		for (uint32 j = 0; j < bucket->nchunks; j++)
		{
			CbPoolChunk *chunk = &cb_pool_chunks[bucket->chunks[j]];
			CbPos		pos = chunk->minpos;

			if (chunk->bucket == bucket->number)
				positions->nentries += cb_chunk_count(&chunk->chunk);
			if (cb_bucket_is_failing(bucket))
				positions->failing_bytes += chunk->chunk.used;
			if (pos != 0)
				positions->min = Min(positions->min, pos);
		}
		LWLockRelease(&bucket->lock);
	}
	LWLockRelease(&set->lock);
	return true;
}

/*
 * How many of a bucket's chunks nobody owns; that can change at once.  set->lock
 * is shared; takes the bucket's, shared, for a moment.
 */
static uint32
cb_seal_count_free(CbBucket *bucket)
{
	uint32		n = 0;

	LWLockAcquire(&bucket->lock, LW_SHARED);
	for (uint32 i = 0; i < bucket->nchunks; i++)
	{
		if (cb_load_relaxed(&cb_pool_chunks[bucket->chunks[i]].chunk.owner) == 0)
			n++;
	}
	LWLockRelease(&bucket->lock);
	return n;
}

/*
 * The bucket of this attachment with most chunks that nobody owns, or CB_NONE;
 * not one that fails.  A hint once it returns.  Takes set->lock and buckets'
 * locks, shared.
 */
uint32
cb_bucket_find_fullest(CbBucketSet *set, uint64 attach_id)
{
	uint32		found = CB_NONE;
	uint32		most = 0;

	if (!cb_seal_lock(set, attach_id))
		return CB_NONE;
	for (uint32 i = 0; i < set->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[set->buckets[i]];
		uint32		n;

		/* a look without its lock tells which are worth it */
		if (bucket->nchunks <= most)
			continue;
		if (cb_bucket_is_failing(bucket))
			continue;
		n = cb_seal_count_free(bucket);
		if (n > most)
		{
			most = n;
			found = bucket->number;
		}
	}
	LWLockRelease(&set->lock);
	return found;
}

/*
 * A bucket with a chunk whose first entry lies below pos, and that nobody
 * owns, or CB_NONE; *owned: a chunk with such an entry is being flushed by
 * others, so the caller may wait for set->cv.  failing: may it be a bucket
 * that fails?  Takes set->lock and buckets' locks, shared.  Who will wait
 * prepares to sleep before the call: an owner that lets go after the look wakes
 * it then.
 */
uint32
cb_bucket_find_below(CbBucketSet *set, uint64 attach_id, CbPos pos, bool failing,
					 bool *owned)
{
	uint32		found = CB_NONE;

	*owned = false;
	if (!cb_seal_lock(set, attach_id))
		return CB_NONE;
	for (uint32 i = 0; i < set->nbuckets && found == CB_NONE; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[set->buckets[i]];

		if (!failing && cb_bucket_is_failing(bucket))
			continue;
		LWLockAcquire(&bucket->lock, LW_SHARED);
		for (uint32 j = 0; j < bucket->nchunks; j++)
		{
			CbPoolChunk *chunk = &cb_pool_chunks[bucket->chunks[j]];

			if (chunk->minpos == 0 || chunk->minpos >= pos)
				continue;
			if (cb_load_acquire(&chunk->chunk.owner) == 0)
				found = bucket->number;
			else
				*owned = true;
		}
		LWLockRelease(&bucket->lock);
	}
	LWLockRelease(&set->lock);
	return found;
}
