/*-------------------------------------------------------------------------
 *
 * cb_seal.c
 *	  Taking chunks for a flush, and out of their buckets after it.
 *
 * Chunks are owned by one flusher at a time.  They stay in their lists, and so
 * readable, until all of their entries are in the tree.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "miscadmin.h"

/* Shares desc->lock; false, without it: the attachment is gone. */
static bool
cb_seal_lock(CbDesc *desc, uint64 attach_id)
{
	cb_desc_share(desc);
	if (desc->state == CB_DESC_ATTACHED && desc->attach_id == attach_id)
		return true;
	LWLockRelease(&desc->lock);
	return false;
}

/* Owns what nobody owns; publish, desc->lock and bucket lock are held. */
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
 * if the bucket is not of this attachment any more, or the slot has no room.  A
 * negative result: the attachment is gone.
 *
 * No LWLock is held on entry, nor on return; the publish lock is waited for.
 * The slot owns the chunks until cb_bucket_retire(), or until it is released to
 * a mark from before, which the caller sees to, after an error as well (B3).
 */
int
cb_bucket_seal(CbDesc *desc, uint64 attach_id, uint32 number,
			   CbPoolChunk **chunks)
{
	CbBucket   *bucket = &cb_pool_buckets[number];
	int			n = 0;

	if (!cb_slot_has_room(0, CB_BUCKET_MAX_CHUNKS))
		return 0;

	/* nobody fills the chunk that takes entries */
	LWLockAcquire(&desc->publish, LW_EXCLUSIVE);
	if (!cb_seal_lock(desc, attach_id))
		n = -1;
	else
	{
		if (bucket->desc == desc->number)
		{
			LWLockAcquire(&bucket->lock, LW_EXCLUSIVE);
			n = cb_seal_take(bucket, chunks);
			LWLockRelease(&bucket->lock);
		}
		LWLockRelease(&desc->lock);
	}
	LWLockRelease(&desc->publish);
	return n;
}

/* Takes an owned chunk out of a bucket's list, if it is there. */
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

/* Takes owned chunks out of a bucket's list; desc->lock is shared. */
static void
cb_seal_unlink_all(CbBucket *bucket, CbPoolChunk **chunks, int n,
				   TimestampTz now)
{
	LWLockAcquire(&bucket->lock, LW_EXCLUSIVE);
	for (int i = 0; i < n; i++)
		cb_seal_unlink(bucket, chunks[i], now);
	LWLockRelease(&bucket->lock);
}

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
cb_bucket_retire(CbDesc *desc, CbPoolChunk **chunks, int n)
{
	TimestampTz now = GetCurrentTimestamp();

	/* owned chunks keep it attached */
	cb_desc_share(desc);
	for (int i = 0; i < n; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[chunks[i]->bucket];

		if (bucket->desc == desc->number)
			cb_seal_unlink_all(bucket, &chunks[i], 1, now);
	}
	/* ranges that were split list their chunks more than once */
	for (uint32 i = 0; i < desc->nbuckets && cb_seal_is_listed(chunks, n); i++)
		cb_seal_unlink_all(&cb_pool_buckets[desc->buckets[i]], chunks, n, now);
	LWLockRelease(&desc->lock);

	for (int i = 0; i < n; i++)
		cb_slot_retire(chunks[i]);
	ConditionVariableBroadcast(&desc->cv);
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
 * the attachment is gone.  The sweep lock is held; desc->lock is taken for a
 * moment.
 */
CbSweepPlace
cb_desc_get_sweep_place(CbDesc *desc, uint64 attach_id)
{
	CbSweepPlace place = {0};

	if (cb_seal_lock(desc, attach_id))
	{
		place = desc->sweep_place;
		LWLockRelease(&desc->lock);
	}
	return place;
}

/* Notes it; nothing is done if the attachment is gone.  Locks as above. */
void
cb_desc_set_sweep_place(CbDesc *desc, uint64 attach_id,
						const CbSweepPlace *place)
{
	if (cb_seal_lock(desc, attach_id))
	{
		desc->sweep_place = *place;
		LWLockRelease(&desc->lock);
	}
}

/*
 * Where the attachment stands in the journal; false: it is gone, and *positions
 * says nothing.  The head is read first, under the publish lock: what was
 * published before the call lies below it, and what is published later lies at
 * it or above, so no entry comes below min any more.  No LWLock is held on
 * entry, nor on return; raises no error.
 */
bool
cb_bucket_positions(CbDesc *desc, uint64 attach_id,
					CbBucketPositions *positions)
{
	bool		attached;

	/* whatever is published from here on lies at head or above */
	LWLockAcquire(&desc->publish, LW_EXCLUSIVE);
	attached = cb_seal_lock(desc, attach_id);
	positions->from = desc->from;
	positions->head = positions->min = desc->head;
	positions->again = cb_load_relaxed(&desc->again);
	LWLockRelease(&desc->publish);
	if (!attached)
		return false;
	positions->failing_bytes = 0;

	for (uint32 i = 0; i < desc->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[desc->buckets[i]];

		LWLockAcquire(&bucket->lock, LW_SHARED);
		for (uint32 j = 0; j < bucket->nchunks; j++)
		{
			CbPoolChunk *chunk = &cb_pool_chunks[bucket->chunks[j]];
			CbPos		pos = chunk->minpos;

			if (cb_bucket_is_failing(bucket))
				positions->failing_bytes += chunk->chunk.used;
			if (pos != 0)
				positions->min = Min(positions->min, pos);
		}
		LWLockRelease(&bucket->lock);
	}
	LWLockRelease(&desc->lock);
	return true;
}

/* How many of a bucket's chunks nobody owns. */
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
 * not one that fails.  A hint once it returns.  Takes desc->lock and buckets'
 * locks, shared.
 */
uint32
cb_bucket_find_fullest(CbDesc *desc, uint64 attach_id)
{
	uint32		found = CB_NONE;
	uint32		most = 0;

	if (!cb_seal_lock(desc, attach_id))
		return CB_NONE;
	for (uint32 i = 0; i < desc->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[desc->buckets[i]];
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
	LWLockRelease(&desc->lock);
	return found;
}

/*
 * A bucket with a chunk whose first entry lies below pos, and that nobody owns,
 * or CB_NONE; *owned: a chunk with such an entry is being flushed by others, so
 * the caller may wait for desc->cv.  failing: may it be a bucket that fails?
 * Takes desc->lock and buckets' locks, shared.
 */
uint32
cb_bucket_find_below(CbDesc *desc, uint64 attach_id, CbPos pos, bool failing,
					 bool *owned)
{
	uint32		found = CB_NONE;

	*owned = false;
	if (!cb_seal_lock(desc, attach_id))
		return CB_NONE;
	for (uint32 i = 0; i < desc->nbuckets && found == CB_NONE; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[desc->buckets[i]];

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
	LWLockRelease(&desc->lock);
	return found;
}
