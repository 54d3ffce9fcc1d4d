/*-------------------------------------------------------------------------
 *
 * cb_failing.c
 *	  Buckets whose flush fails, as one of their leaves is damaged, say.
 *
 * The failure is noted with the bucket, so that what is wrong with one range of
 * keys does not stop the others: who chooses a bucket to make room leaves it
 * out, and it takes no more entries than its share of the pool, 4 chunks, and
 * no new chunk while the pool is low (B4_SHARE).  Other entries go to the tree,
 * each to its leaf; so an insertion gets the error if it is for the damaged
 * leaf or fills the one on its left, as with btree, and else does not
 * (B4_FAILING).  A failure is forgotten when all of the bucket has been
 * flushed.  A failing bucket is neither joined nor divided.
 *
 * Its chunks stay, and with them the journal's tail would stay for ever.  So
 * when the journal is too long, and four times as long as what failing buckets
 * hold, the entries of the oldest such bucket are appended once more, and
 * minpos is raised to where they are now; so 3/4 at least of what is appended
 * is new.  No entry is lost (I7_AGAIN):
 *
 *	- The chunks are owned meanwhile, as for a flush: nobody retires them half
 *	  way, and they keep the index attached.
 *	- minpos is raised when the last of them is in the journal, under the
 *	  bucket set's lock, exclusively: who reads the positions of chunks holds
 *	  it.  The head read before that lies at or below the new positions, or
 *	  bounds the tail itself.
 *	- An error or a crash on the way leaves some entries in the journal twice.
 *	  That is what they are afterwards, too, until the tail has moved: those
 *	  who read the journal take the later one of two equal entries, and a sweep
 *	  puts one into the tree (I5).
 *	- All are in WAL before the tail's record.  A standby reads the tail before
 *	  the head, so it has one of the two.
 *	- A VACUUM that has read the head before, and waits for these chunks, must
 *	  not leave what is appended now in the journal: minpos tells nothing of
 *	  that.  So set->again, under the publish lock, says how far the tail has to
 *	  come (I4_AGAIN).  What is appended again after the drain was published
 *	  after its head, so it has no dead TID.  A drain that meets the error
 *	  fails, before VACUUM has removed anything.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "bucket/cb_bucket.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define CB_FAILING_RETRY_MS		1000	/* after the first failure */
#define CB_FAILING_RETRY_MAX_MS	60000

/*
 * One more failure in a row: workers leave it alone until a time that doubles
 * with each, up to a minute.  No lock, no error: called within PG_CATCH.
 */
void
cb_failing_note(CbFailing *failing)
{
	uint32		before = cb_fetch_add(&failing->failures, 1);
	int			wait = CB_FAILING_RETRY_MS << Min(before, 6);

	cb_store_relaxed(&failing->retry_at,
					 TimestampTzPlusMilliseconds(cb_clock_now(),
												 Min(wait, CB_FAILING_RETRY_MAX_MS)));
}

/* It does not fail, or not any more.  A hint, as all of these. */
void
cb_failing_forget(CbFailing *failing)
{
	/* it is read by all who publish */
	if (likely(cb_load_relaxed(&failing->failures) == 0 &&
			   cb_load_relaxed(&failing->reports) == 0))
		return;
	cb_store_relaxed(&failing->failures, 0);
	cb_store_relaxed(&failing->reports, 0);
}

/* Has it failed, and is its time to be tried again yet to come?  A hint. */
bool
cb_failing_waits(CbFailing *failing)
{
	return unlikely(cb_load_relaxed(&failing->failures) != 0) &&
		(TimestampTz) cb_load_relaxed(&failing->retry_at) > cb_clock_now();
}

/* ---------- appending again ---------- */

typedef struct CbAgain
{
	CbBucketSet *set;			/* owned chunks keep it attached */
	CbPos		first;			/* of the entries; 0: none was appended yet */
	bool		broken;			/* the journal is not the one we know */
} CbAgain;

/*
 * Takes the publish lock, before the append lock.  Never says no: the attachment
 * stays as long as its chunks are owned.
 */
static bool
cb_again_lock(void *arg)
{
	LWLockAcquire(&((CbAgain *) arg)->set->publish, LW_EXCLUSIVE);
	return true;
}

/*
 * Takes all that goes to this page, or nothing, if another file's journal has
 * come in place of the one that the bucket set knows (U22).  Both the publish
 * lock and the append lock are held, here and in the next one.
 */
static int
cb_again_reserve(void *arg, int first, int n, CbPos head)
{
	CbAgain    *again = arg;

	again->broken = again->set->head != head;
	return again->broken ? 0 : n;
}

/*
 * Notes where the first of all entries is, and moves head and "again" behind what
 * this page got: after each page, so that an error on the way leaves both right
 * (I4_AGAIN).  A release, as scans read "again" without a lock.  Cannot fail.
 */
static void
cb_again_fill(void *arg, int first, int n, CbPos pos, CbPos head)
{
	CbAgain    *again = arg;

	if (again->first == 0)
		again->first = pos;
	again->set->head = head;
	cb_store_release(&again->set->again, head);
}

/* Releases it, when the append lock is free again. */
static void
cb_again_unlock(void *arg)
{
	LWLockRelease(&((CbAgain *) arg)->set->publish);
}

static const CbAppendSink cb_again_sink = {
	.lock = cb_again_lock,
	.reserve = cb_again_reserve,
	.fill = cb_again_fill,
	.unlock = cb_again_unlock
};

/*
 * Lists the entries of the owned chunks, where they stand; returns how many.
 * The list is palloc'd in the current context; its tuples are the chunks', which
 * do not change while they are owned.  No lock is needed.
 */
static int
cb_again_collect(CbPoolChunk **chunks, int nchunks, CbSortEntry **entries)
{
	uint32		total = 0;
	int			n = 0;

	for (int i = 0; i < nchunks; i++)
		total += cb_chunk_count(&chunks[i]->chunk);
	*entries = MemoryContextAllocHuge(CurrentMemoryContext,
									  sizeof(CbSortEntry) * (total + 1));
	for (int i = 0; i < nchunks; i++)
	{
		uint32		count = cb_chunk_count(&chunks[i]->chunk);

		for (uint32 j = 0; j < count; j++)
			(*entries)[n++].itup =
				(IndexTuple) cb_chunk_entry(&chunks[i]->chunk, j);
	}
	return n;
}

/*
 * Appends the entries of owned chunks; false: not all of them, and minpos
 * stays as it was.  No LWLock is held; waits for both locks of the bucket set
 * at the end.
 */
static bool
cb_again_append(Relation rel, CbAgain *again, CbPoolChunk **chunks, int nchunks)
{
	CbBucketSet *set = again->set;
	CbSortEntry *entries;
	int			n = cb_again_collect(chunks, nchunks, &entries);
	uint64		length;
	int			done;

	done = cb_journal_append(rel, entries, n, &cb_again_sink, again, &length);
	pfree(entries);
	if (done < n)
		return false;
	CB_TEST_POINT("appended-again");
	(void) cb_set_lock(set, true);
	for (int i = 0; i < nchunks; i++)
		chunks[i]->minpos = again->first;
	cb_set_unlock(set);
	return true;
}

/*
 * Appends the entries of a bucket to the journal once more, so that the tail
 * can move.  False: others own its chunks, it has none, the attachment is
 * gone, or the journal is not the one that it knew: then it is detached.
 *
 * The caller holds RowExclusiveLock on the index and no LWLock.  The chunks
 * are owned meanwhile, and given back, also after an error.  No comparison
 * runs.
 */
bool
cb_bucket_append_again(Relation rel, CbBucketSet *set, uint64 attach_id,
					   uint32 bucket)
{
	CbAgain		again = {.set = set};
	CbSlotMark	mark = cb_slot_mark();
	CbPoolChunk *chunks[CB_BUCKET_MAX_CHUNKS];
	int			nchunks = cb_bucket_seal(set, attach_id, bucket, chunks);
	bool		done = false;

	if (nchunks <= 0)
		return false;
	PG_TRY();
	{
		done = cb_again_append(rel, &again, chunks, nchunks);
	}
	PG_FINALLY();
	{
		cb_slot_release_to(mark);
	}
	PG_END_TRY();
	if (again.broken)
		(void) cb_set_detach(set, attach_id);
	return done;
}

/*
 * What was published so far may be of entries that were in the journal before:
 * a drain is not done until the tail has passed them (I4).  Waits for the
 * publish lock; nothing is done if the attachment is gone.
 */
void
cb_bucket_note_again(CbBucketSet *set, uint64 attach_id)
{
	LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	if (set->state == CB_SET_ATTACHED && set->attach_id == attach_id)
		cb_store_release(&set->again, set->head);
	LWLockRelease(&set->publish);
}
