/*-------------------------------------------------------------------------
 *
 * cb_flush.c
 *	  Flushing buckets: a bucket's chunks, sorted, into the tree or into runs.
 *
 * The chunks are owned meanwhile and stay readable in their buckets; they are
 * taken out only after the WAL of the last leaf (I1).  An error gives the
 * ownership up and leaves them sealed in their place: somebody flushes them
 * again, and what reached the tree is found there by (key, TID) (I5).  The
 * bucket is left alone for a while then: only workers whose time has come, and
 * those who need all of the index in the tree, try it.
 *
 * The journal is truncated behind what all buckets have given to the tree or to
 * runs (I7_FROM, I7_MINPOS), by whoever gets the sweep lock.
 *
 * VACUUM's drain (I4) sweeps what lies below "from", takes the head, flushes
 * every chunk with a minpos below it, waits for those that others own, who have
 * their locks and need none of its own (B1), and truncates.  Then it sees that
 * the attachment is the same, and the tail where it should be, also above what
 * failing buckets have appended again meanwhile (cb_failing.c); else it begins
 * again.  The tail is read before the attachment is seen to stand still, or it
 * could be that of another index, which has got the bucket set (I4_TAIL).
 *
 * Giving way.  A worker that ends between two leaves, as somebody waits for its
 * locks (base/cb_waiter.h), notes in shared memory how far it came.  The next
 * attempt begins there, only with what has come since (16 chunks, 32 runs,
 * 1024 pages of the journal at most), and applies one leaf at least; so what is
 * stopped again and again comes to an end.
 *
 *	- A flush: a chunk says up to which of its entries all have left it.  The
 *	  owner writes that before it lets go, and the next one reads it.  Readers
 *	  have all of a chunk's entries.  A new chunk has no note (I1_MOVED).
 *	- A merge: of the runs that were live then, what is not right of one of
 *	  their entries is in the tree.  Runs are known by the LSN of their SPILL,
 *	  unlogged ones by a number that counts on; so a later one is merged from
 *	  its beginning (I1_LATERRUN).  The note names the entry by its run, and
 *	  says nothing once that is not live any more.
 *	- A sweep: the same for what lies below a position.  The note is read and
 *	  written under the sweep's lock, and the tail does not move before all are
 *	  in the tree (cb_sweep.c).
 *
 * Notes count for one attachment, whose number is never used again; a crash
 * forgets them.  They are as safe as an error: chunks are sealed again, runs
 * stay listed, the tail stays (I1).  What is left out next time was logged
 * before RETIRE or the truncation.  If it has been removed from its leaf since,
 * as its row was dead to all, its TID is not another row's: VACUUM empties all
 * tiers first, and no chunk, run or part of the journal that a note is about
 * is left then (I4).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "base/cb_base.h"
#include "base/cb_progress.h"
#include "base/cb_waiter.h"
#include "flush/cb_flush.h"
#include "flush/cb_throttle.h"
#include "flush/cb_worker.h"
#include "miscadmin.h"
#include "range/cb_range.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

/* a flush that brings fewer entries to a leaf divides the bucket */
#define CB_FLUSH_DENSE		32

/* truncate when it frees at least this much, in bytes */
#define CB_FLUSH_TRUNCATE_MIN	(256 * 1024)

/* buckets that a publication flushes, at most, as the journal is too long */
#define CB_FLUSH_SHORTEN_MAX	4

/* how long to sleep at most for an owner to let go */
#define CB_FLUSH_WAIT_MS	1000

typedef struct CbFlush
{
	Relation	rel;
	CbBucketSet *set;
	uint64		attach_id;
	CbFlushCause cause;
	CbKeyDesc	kd;
	int			nchunks;
	CbPoolChunk *chunks[CB_BUCKET_MAX_CHUNKS];
	int			n;
	CbSortEntry *entries;
	int			nmoved;			/* entries that have left, in their order */
	int64		nspilled;		/* of these, entries that went to range
								 * buffers */
	CbApplyStats stats;
} CbFlush;

#define CbFlushCounter(cause) ((int) CB_STAT_FLUSHES_LIMIT + (int) (cause))

StaticAssertDecl(CbFlushCounter(CB_FLUSH_REQUEST) == CB_STAT_FLUSHES_REQUEST &&
				 CbFlushCounter(CB_FLUSH_VACUUM) == CB_STAT_FLUSHES_VACUUM &&
				 CbFlushCounter(CB_FLUSH_FULL) == CB_STAT_FLUSHES_FULL &&
				 CbFlushCounter(CB_FLUSH_PRESSURE) == CB_STAT_FLUSHES_PRESSURE &&
				 CbFlushCounter(CB_FLUSH_DELAY) == CB_STAT_FLUSHES_DELAY &&
				 CbFlushCounter(CB_FLUSH_HELP) == CB_STAT_FLUSHES_HELP &&
				 CbFlushCounter(CB_FLUSH_READS) == CB_STAT_FLUSHES_READS,
				 "each cause has its counter, in the same order");

/*
 * Counts, in the index's statistics, a sweep or a flush that has moved n
 * entries, and what that did to the tree.  It is not undone if the transaction
 * is rolled back.
 */
void
cb_flush_count(Relation rel, CbFlushCause cause, int n,
			   const CbApplyStats *stats)
{
	cb_stat_add(rel, CbFlushCounter(cause), 1);
	cb_stat_add(rel, CB_STAT_FLUSHED, n);
	cb_tree_count_applied(rel, stats);
}

static void
cb_flush_count_bucket(const CbFlush *flush)
{
	cb_flush_count(flush->rel, flush->cause, flush->nmoved, &flush->stats);
	cb_stat_add(flush->rel, CB_STAT_SPILLED, flush->nspilled);
	cb_worker_count_entries(flush->nmoved);
}

/* ---------- one bucket ---------- */

/* Lists the entries of an owned chunk, where they stand. */
static void
cb_flush_collect_chunk(CbFlush *flush, const CbPoolChunk *chunk)
{
	uint32		count = cb_chunk_count(&chunk->chunk);
	CbSortEntry *entries = flush->entries + flush->n;

	for (uint32 i = 0; i < count; i++)
		cb_key_fill_sort_entry(&flush->kd, &entries[i],
							   (IndexTuple) cb_chunk_entry(&chunk->chunk, i));
	if (chunk->moved > 0)
		count = cb_key_keep_right(&flush->kd, entries, count,
								  (IndexTuple) cb_chunk_entry(&chunk->chunk,
															  chunk->moved - 1));
	flush->n += count;
}

/*
 * Lists the entries of all owned chunks, palloc'd; their tuples stay in the
 * chunks, which keep them until they are retired.
 */
static void
cb_flush_collect(CbFlush *flush)
{
	uint32		total = 0;

	for (int i = 0; i < flush->nchunks; i++)
		total += cb_chunk_count(&flush->chunks[i]->chunk);
	flush->entries = MemoryContextAllocHuge(CurrentMemoryContext,
											sizeof(CbSortEntry) * (total + 1));
	for (int i = 0; i < flush->nchunks; i++)
		cb_flush_collect_chunk(flush, flush->chunks[i]);
}

/*
 * It gave way: takes down how far it came, for each chunk, for whoever owns it
 * next.
 */
static void
cb_flush_note_moved(CbFlush *flush)
{
	for (int i = 0; i < flush->nchunks; i++)
	{
		CbPoolChunk *chunk = flush->chunks[i];
		uint32		count = cb_chunk_count(&chunk->chunk);
		const char *latest = NULL;

		for (int j = flush->nmoved - 1; j >= 0 && latest == NULL; j--)
		{
			const char *itup = (const char *) flush->entries[j].itup;

			if (itup >= chunk->chunk.data &&
				itup < chunk->chunk.data + chunk->chunk.size)
				latest = itup;
		}
		for (uint32 j = 0; j < count && latest != NULL; j++)
		{
			if (cb_chunk_entry(&chunk->chunk, j) == latest)
				chunk->moved = j + 1;
		}
	}
}

/* Was the bucket flushed nearly empty, as others need the room? */
static bool
cb_flush_may_join(const CbFlush *flush)
{
	if (flush->nchunks > 2)
		return false;
#ifdef CB_TESTPOINTS
	if (cb_test_join)
		return true;
#endif
	return flush->cause == CB_FLUSH_PRESSURE;
}

/*
 * Divides the bucket at a leaf's bound near the middle of what was flushed, if
 * it filled up and its leaves got few entries each, or would have.  The other
 * way round, a bucket flushed nearly empty for others' need is joined with its
 * neighbour.
 */
static void
cb_flush_adapt(CbFlush *flush, uint32 bucket)
{
	if (flush->cause == CB_FLUSH_FULL &&
		flush->nchunks >= CB_BUCKET_FULL_CHUNKS / 2 && !cb_pool_is_low() &&
		(flush->nspilled > 0 || flush->stats.tiled > 0 ||
		 flush->stats.entries < CB_FLUSH_DENSE * flush->stats.visits))
	{
		IndexTuple	middle = flush->entries[flush->n / 2].itup;
		IndexTuple	separator = cb_tree_find_separator(&flush->kd, middle);

		if (separator != NULL)
			(void) cb_layout_split(&flush->kd, flush->set, flush->attach_id,
								   bucket, separator);
	}
	else if (cb_flush_may_join(flush))
		(void) cb_layout_join_next(flush->set, flush->attach_id, bucket);
}

/*
 * May the entries become range buffers?  Whoever waits for a flush wants them
 * in the tree; a backend that helps itself to room does not merge ranges.
 */
static CbSpillMode
cb_flush_spill_mode(const CbFlush *flush)
{
	if (flush->cause == CB_FLUSH_VACUUM || flush->cause == CB_FLUSH_REQUEST ||
		!cb_range_is_wanted(flush->rel))
		return CB_SPILL_NEVER;
	return flush->cause == CB_FLUSH_HELP ? CB_SPILL_ONLY : CB_SPILL_OR_MERGE;
}

/* Moves the entries down.  Others know of ranges before chunks are retired. */
static void
cb_flush_move(CbFlush *flush, uint32 bucket)
{
	CbRangePlace place = cb_bucket_get_place(bucket, flush->attach_id);

	flush->nmoved = cb_range_apply(&flush->kd, flush->entries, flush->n,
								   cb_flush_spill_mode(flush), &place,
								   &flush->stats, &flush->nspilled);
	if (flush->nmoved < flush->n)
	{
		cb_flush_note_moved(flush);
		cb_bucket_set_place(bucket, flush->attach_id, &place);
	}
	if (flush->nspilled > 0 || flush->stats.tiled > 0)
		cb_fetch_add(&flush->set->spills, 1);
}

/*
 * The chunks are owned.  Comparisons run; an error leaves them as they are,
 * and so does giving way: then false.
 */
static bool
cb_flush_apply(CbFlush *flush, uint32 bucket)
{
	cb_key_init(&flush->kd, flush->rel);
	/* VACUUM removes what is dead itself, soon */
	if (flush->cause != CB_FLUSH_VACUUM && cb_set_may_ask(flush->set))
		cb_dead_begin(&flush->kd, cb_set_has_versions(flush->set));
	cb_flush_collect(flush);
	CB_TEST_POINT("flush-sealed");
	cb_key_sort(&flush->kd, flush->entries, flush->n);
	cb_flush_move(flush, bucket);
	CB_TEST_POINT("flush-applied");
	cb_dead_end(&flush->kd);
	if (flush->nmoved < flush->n)
	{
		cb_flush_count_bucket(flush);
		return false;
	}
	cb_flush_adapt(flush, bucket);
	cb_bucket_retire(flush->set, flush->chunks, flush->nchunks);
	CB_TEST_POINT("flush-retired");
	cb_flush_count_bucket(flush);
	return true;
}

/* Notes that a flush has failed, unless it was stopped; within PG_CATCH. */
static void
cb_flush_note_error(uint32 bucket)
{
	if (geterrcode() != ERRCODE_QUERY_CANCELED)
		cb_failing_note(&cb_pool_buckets[bucket].failing);
}

static void
cb_flush_forget_error(CbBucketSet *set, uint64 attach_id, uint32 bucket)
{
	if (likely(!cb_bucket_is_failing(&cb_pool_buckets[bucket])))
		return;
	cb_failing_forget(&cb_pool_buckets[bucket].failing);
	(void) cb_set_show_error(set, attach_id, "");
}

/*
 * Flushes the chunks of a bucket that nobody owns; returns how many, 0 also if
 * it gave way.
 */
static int
cb_flush_chunks(Relation rel, CbBucketSet *set, uint64 attach_id, uint32 bucket,
				CbFlushCause cause)
{
	CbFlush		flush = {.rel = rel,.set = set,.attach_id = attach_id,
	.cause = cause};
	CbSlotMark	mark = cb_slot_mark();
	MemoryContext cxt;
	MemoryContext oldcxt;

	cxt = AllocSetContextCreate(CurrentMemoryContext, "cache_batch flush",
								ALLOCSET_DEFAULT_SIZES);
	oldcxt = MemoryContextSwitchTo(cxt);
	flush.nchunks = cb_bucket_seal(set, attach_id, bucket, flush.chunks);
	if (flush.nchunks > 0)
	{
		PG_TRY();
		{
			if (!cb_flush_apply(&flush, bucket))
			{
				cb_slot_release_to(mark);
				flush.nchunks = 0;
			}
		}
		PG_CATCH();
		{
			if (flush.kd.heap != NULL)
				cb_set_pause_asking(set);
			cb_flush_note_error(bucket);
			cb_slot_release_to(mark);
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	if (flush.nchunks > 0)
		cb_flush_forget_error(set, attach_id, bucket);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	return flush.nchunks;
}

/* ---------- truncation ---------- */

/*
 * Moves the tail to the first entry that some bucket still holds (I7).  Nothing
 * is truncated while entries from before the attachment are not swept.  The head
 * is read under the publish lock, the chunks after it: what was published before
 * is in a chunk, or in the tree with its WAL written.
 */
static void
cb_flush_truncate_locked(Relation rel, CbBucketSet *set, uint64 attach_id)
{
	CbBucketPositions positions;
	CbMetaPageData meta;

	if (!cb_bucket_positions(set, attach_id, &positions))
		return;
	CB_TEST_POINT("flush-truncate");
	cb_rel_read_meta(rel, NULL, &meta);
	if (meta.journal_tail < positions.from)
		return;
	(void) cb_journal_truncate_to(rel, positions.min);
	cb_set_note_tail(set, attach_id, positions.min);
}

/* The same if it frees enough, or anything (all), and nobody else is at it. */
static void
cb_flush_truncate(Relation rel, CbBucketSet *set, uint64 attach_id, bool all)
{
	uint64		limit = cb_load_relaxed(&set->journal_limit);
	uint64		min = all ? 1 : Min(limit / 8, CB_FLUSH_TRUNCATE_MIN);
	CbBucketPositions positions;

	if (!cb_bucket_positions(set, attach_id, &positions) ||
		positions.min < cb_load_relaxed(&set->tail) + min)
		return;
	if (!ConditionalLockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock))
		return;
	cb_flush_truncate_locked(rel, set, attach_id);
	UnlockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);
}

/* ---------- callers ---------- */

/*
 * A journal that is so many times as long as what failing buckets hold is
 * worth writing that to it again.
 */
#define CB_FLUSH_AGAIN_PART		4

/* The bucket that keeps the tail of too long a journal back, or CB_NONE. */
static uint32
cb_flush_find_oldest(CbBucketSet *set, uint64 attach_id)
{
	CbBucketPositions positions;
	uint64		length;
	bool		owned;

	if (!cb_bucket_positions(set, attach_id, &positions))
		return CB_NONE;
	length = positions.head - Min(positions.head, positions.min);
	if (length <= cb_load_relaxed(&set->journal_limit))
		return CB_NONE;
	return cb_bucket_find_below(set, attach_id, positions.min + length / 4,
								length / CB_FLUSH_AGAIN_PART > positions.failing_bytes,
								&owned);
}

/* Asks for the oldest bucket, if the journal is too long. */
static void
cb_flush_request_oldest(CbBucketSet *set, uint64 attach_id)
{
	uint32		bucket = cb_flush_find_oldest(set, attach_id);

	if (bucket != CB_NONE)
		cb_queue_request(bucket, CB_FLUSH_LIMIT);
}

/* a merge of range buffers, in memory of its own */
typedef struct CbFlushMerge
{
	MemoryContext cxt;
	MemoryContext oldcxt;
	CbKeyDesc	kd;
	CbApplyStats stats;
} CbFlushMerge;

static void
cb_flush_merge_begin(Relation rel, CbFlushMerge *merge)
{
	merge->cxt = AllocSetContextCreate(CurrentMemoryContext,
									   "cache_batch ranges",
									   ALLOCSET_DEFAULT_SIZES);
	merge->oldcxt = MemoryContextSwitchTo(merge->cxt);
	memset(&merge->stats, 0, sizeof(CbApplyStats));
	cb_key_init(&merge->kd, rel);
}

/* Returns whether there were entries. */
static bool
cb_flush_merge_end(Relation rel, CbFlushMerge *merge)
{
	cb_tree_count_applied(rel, &merge->stats);
	MemoryContextSwitchTo(merge->oldcxt);
	MemoryContextDelete(merge->cxt);
	return merge->stats.entries > 0;
}

/*
 * Merges the runs of the range that scans of the bucket's keys had to read,
 * unless somebody is at it; what is in the bucket stays there.  False: it gave
 * way.
 */
static bool
cb_flush_bucket_range(Relation rel, uint64 attach_id, uint32 bucket)
{
	CbRangePlace place = cb_bucket_get_place(bucket, attach_id);
	CbFlushMerge merge;

	cb_flush_merge_begin(rel, &merge);
	cb_range_merge_at(&merge.kd,
					  cb_load_relaxed(&cb_pool_buckets[bucket].read_range),
					  &place, &merge.stats);
	(void) cb_flush_merge_end(rel, &merge);
	cb_stat_add(rel, CB_STAT_FLUSHES_READS, 1);
	if (!cb_waiter_is_there())
		return true;
	cb_bucket_set_place(bucket, attach_id, &place);
	return false;
}

/*
 * Makes a bucket hold back the journal's tail no more.  One that fails gives
 * its entries to the journal again.
 */
static bool
cb_flush_let_go(Relation rel, CbBucketSet *set, uint64 attach_id, uint32 bucket,
				CbFlushCause cause)
{
	if (cause == CB_FLUSH_LIMIT &&
		cb_bucket_is_failing(&cb_pool_buckets[bucket]))
		return cb_bucket_append_again(rel, set, attach_id, bucket);
	return cb_flush_chunks(rel, set, attach_id, bucket, cause) > 0;
}

/*
 * Flushes a bucket of an attachment, then truncates the journal if that frees
 * enough and nobody else is at it.  CB_FLUSH_READS: merges the range whose
 * runs scans had to read, and leaves what is in the bucket there.
 * CB_FLUSH_LIMIT: a failing bucket gives its entries to the journal again
 * instead.
 *
 * False: there was nothing to do, the attachment is gone, it gave way to one
 * who waits for its locks, or recovery is in progress.  On entry
 * RowExclusiveLock or more on the index is held, no LWLock, and no chunk is
 * owned; on exit the same.  Memory is given back.  Comparison functions run.
 * After an error the chunks stay sealed in their bucket, owned by nobody, and
 * the bucket counts as failing unless the query was cancelled.
 */
bool
cb_flush_bucket(Relation rel, CbBucketSet *set, uint64 attach_id, uint32 bucket,
				CbFlushCause cause)
{
	bool		begun = cb_progress_begin(CB_PROGRESS_FLUSH, rel);
	bool		done;

	cb_progress_phase(cause == CB_FLUSH_READS ? CB_PHASE_RANGES : CB_PHASE_BUCKETS, 0);
	done = cause == CB_FLUSH_READS ? cb_flush_bucket_range(rel, attach_id, bucket) :
		!RecoveryInProgress() && cb_flush_let_go(rel, set, attach_id, bucket, cause);
	cb_progress_end(begun);
	if (!done || cause == CB_FLUSH_READS)
		return done;
	cb_flush_truncate(rel, set, attach_id, cause == CB_FLUSH_DELAY);
	cb_set_limit_journal(set, attach_id, rel);
	if (cause == CB_FLUSH_LIMIT && cb_queue_is_served())
		cb_flush_request_oldest(set, attach_id);	/* there may be more */
	return true;
}

/*
 * Makes room: flushes the attachment's fullest bucket.  False: others are
 * flushing all that there is, but what fails.  Locks and errors as in
 * cb_flush_bucket().
 */
bool
cb_flush_help(Relation rel, CbBucketSet *set, uint64 attach_id)
{
	uint32		bucket = cb_bucket_find_fullest(set, attach_id);

	return bucket != CB_NONE &&
		cb_flush_bucket(rel, set, attach_id, bucket, CB_FLUSH_HELP);
}

/*
 * Flushes the failing bucket that has refused entries, if it is time to.
 * False: it is not, or there was nothing to do.  Locks and errors as in
 * cb_flush_bucket().
 */
bool
cb_flush_retry(Relation rel, const CbPublishResult *result)
{
	uint32		bucket = result->full_bucket;

	return !cb_failing_waits(&cb_pool_buckets[bucket].failing) &&
		cb_flush_bucket(rel, result->set, result->attach_id, bucket,
						CB_FLUSH_FULL);
}

/*
 * Flushes all buckets with entries below pos, and waits for those that others
 * are flushing.  They have their locks, so they come to an end (B1).
 */
static void
cb_flush_below(Relation rel, CbBucketSet *set, uint64 attach_id, CbPos pos,
			   CbFlushCause cause)
{
	for (;;)
	{
		bool		owned;
		uint32		bucket;

		ConditionVariablePrepareToSleep(&set->cv);
		bucket = cb_bucket_find_below(set, attach_id, pos, true, &owned);
		if (bucket == CB_NONE)
		{
			if (!owned)
				break;
			CB_TEST_POINT("drain-wait");
			(void) ConditionVariableTimedSleep(&set->cv, CB_FLUSH_WAIT_MS,
											   cb_wait_event(CB_WAIT_FLUSH));
			continue;
		}
		ConditionVariableCancelSleep();
		(void) cb_flush_chunks(rel, set, attach_id, bucket, cause);
		CHECK_FOR_INTERRUPTS();
	}
	ConditionVariableCancelSleep();
}

/* Drains an attached index; false: the attachment was lost on the way. */
static bool
cb_flush_drain_buckets(Relation rel, CbBucketSet *set, uint64 attach_id,
					   CbFlushCause cause)
{
	CbBucketPositions positions;
	CbPos		upto;
	CbPos		tail;

	if (!cb_bucket_positions(set, attach_id, &positions))
		return false;
	upto = positions.head;
	cb_progress_phase(CB_PHASE_BUCKETS, positions.nentries);
	CB_TEST_POINT("drain-head");
	cb_flush_below(rel, set, attach_id, upto, cause);
	CB_TEST_POINT("drain-flushed");

	LockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);
	cb_flush_truncate_locked(rel, set, attach_id);
	UnlockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);

	/* whose tail this is turns out afterwards */
	tail = cb_load_acquire(&set->tail);
	CB_TEST_POINT("drain-tail");
	if (!cb_bucket_positions(set, attach_id, &positions))
		return false;
	/* entries from below may have been appended again meanwhile */
	upto = Max(upto, positions.again);
	return tail >= upto;
}

/*
 * Moves everything that was published before the call into runs or the tree, and
 * truncates the journal so far (I7).  Waits for others who are at it, so it may
 * take long; interrupts are served.  Does nothing in recovery.
 *
 * On entry RowExclusiveLock or more on the index is held, and no LWLock; on
 * exit the same.  Comparison functions run.  Raises the error of C11 if this
 * process owns chunks, as then it is called from within a flush's comparison;
 * else errors are as in cb_flush_sweep() and cb_flush_bucket().
 */
void
cb_flush_drain(Relation rel, CbFlushCause cause)
{
	/* a comparison function of a flush that is under way waited for itself */
	if (cb_slot_mark().nowned > 0)
		cb_report_reentry(rel);
	for (;;)
	{
		CbBucketSet *set;
		CbPos		from;
		uint64		attach_id;

		if (!cb_flush_sweep(rel, cause, true))
			return;				/* in recovery */

		/*
		 * If the index has no buckets now, the sweep went to the head, unless
		 * they were given up meanwhile.
		 */
		set = cb_set_find(rel);
		attach_id = set ? cb_set_attachment(set, rel, &from) : 0;
		if (attach_id == 0)
		{
			(void) cb_flush_sweep(rel, cause, true);
			return;
		}
		if (cb_flush_drain_buckets(rel, set, attach_id, cause))
			return;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Merges the range buffers that have keys between the bounds into the tree,
 * and waits for others who are at it.  Returns whether there were entries in
 * them.
 *
 * On entry RowExclusiveLock or more on the index is held, and no LWLock; on
 * exit the same.  The bounds' keys stay the caller's.  Memory is given back.
 * Comparison functions run, and their errors come through.
 */
bool
cb_flush_ranges_between(Relation rel, const CbBound *lo, const CbBound *hi)
{
	CbFlushMerge merge;

	cb_progress_phase(CB_PHASE_RANGES, 0);
	cb_flush_merge_begin(rel, &merge);
	cb_range_merge_between(&merge.kd, lo, hi, true, &merge.stats);
	return cb_flush_merge_end(rel, &merge);
}

/* As cb_flush_ranges_between(), for all range buffers that the index has. */
bool
cb_flush_ranges(Relation rel)
{
	CbBound		lo = {.kind = CB_BOUND_MIN};
	CbBound		hi = {.kind = CB_BOUND_MAX};

	return cb_flush_ranges_between(rel, &lo, &hi);
}

/*
 * A merge visits a leaf for some of the entries; so many entries, about, cost
 * as much as a run that is read for nothing.
 */
#define CB_FLUSH_ENTRIES_A_READ		8

/*
 * Notes that a scan in the view's bucket had to read nruns runs of a range
 * page's range, which hold nentries: asks workers for a merge once that would
 * have cost less than such reads did.  Nothing happens if the view has no
 * bucket.  Never waits for a flush, raises no error; no LWLock is held.
 */
void
cb_flush_note_run_reads(const CbBucketView *view, BlockNumber range, int nruns,
						int64 nentries)
{
	CbBucket   *bucket = view->bucket;
	uint32		most = Min(nentries / CB_FLUSH_ENTRIES_A_READ + 64, PG_INT32_MAX);

	if (view->attach_id == 0 ||
		cb_fetch_add(&bucket->run_reads, nruns) + nruns < most)
		return;
	cb_store_relaxed(&bucket->run_reads, 0);
	cb_store_relaxed(&bucket->read_range, range);
	cb_queue_request(bucket->number, CB_FLUSH_READS);
}

/* ---------- after a publication ---------- */

/*
 * A publication that finds the journal too long asks for the oldest bucket if it has
 * grown by this part since one did.
 */
#define CB_FLUSH_ASK_PART		64

/* Is the journal too long? */
static inline bool
cb_flush_is_too_long(const CbPublishResult *result)
{
	return result->journal_length > cb_load_relaxed(&result->set->journal_limit);
}

/*
 * Has a publication made flushes due?  A look without locks, so a hint; false
 * if it published to the journal of an index without buckets.
 */
bool
cb_flush_is_due(const CbPublishResult *result)
{
	CbBucketSet *set = result->set;

	return set != NULL &&
		(result->full_bucket != CB_NONE || result->pressed ||
		 cb_flush_before_is_due(set) || cb_flush_is_too_long(result));
}

/*
 * Asks workers to move what lay in the journal before the index got its
 * buckets; does nothing if it has been moved, or they rest from that, or there
 * are no workers.  The bucket set need not be locked: what is read of it are
 * hints.  Never waits, raises no error.
 */
void
cb_flush_request_before(CbBucketSet *set)
{
	if (set->state == CB_SET_ATTACHED && cb_flush_before_is_due(set))
		cb_queue_request(set->buckets[0], CB_FLUSH_DELAY);
}

/*
 * The journal is too long: asks for the oldest bucket, whose flush then asks for the
 * next.  All buckets are looked at to find it, so not after each publication.
 */
static void
cb_flush_request_too_long(const CbPublishResult *result)
{
	CbBucketSet *set = result->set;
	uint64		head = cb_load_relaxed(&set->tail) + result->journal_length;
	uint64		asked_at = cb_load_relaxed(&set->asked_at);

	/* a place beyond the head is another attachment's */
	if (asked_at <= head &&
		head - asked_at < result->journal_length / CB_FLUSH_ASK_PART)
		return;
	cb_store_relaxed(&set->asked_at, head);
	cb_flush_request_oldest(set, result->attach_id);
}

static void
cb_flush_request_all(const CbPublishResult *result)
{
	CbBucketSet *set = result->set;

	if (result->full_bucket != CB_NONE)
		cb_queue_request(result->full_bucket, CB_FLUSH_FULL);
	if (result->pressed && !cb_shared_evict(NULL, true))
	{
		CbBucket   *bucket = cb_pool_heaviest_bucket();

		if (bucket != NULL)
			cb_queue_request(bucket->number, CB_FLUSH_PRESSURE);
	}
	cb_flush_request_before(set);
	if (cb_flush_is_too_long(result))
		cb_flush_request_too_long(result);
}

/* Flushes the oldest buckets, some at a time, if the journal is too long. */
static void
cb_flush_shorten(Relation rel, CbBucketSet *set, uint64 attach_id)
{
	for (int i = 0; i < CB_FLUSH_SHORTEN_MAX; i++)
	{
		uint32		bucket = cb_flush_find_oldest(set, attach_id);

		if (bucket == CB_NONE ||
			!cb_flush_bucket(rel, set, attach_id, bucket, CB_FLUSH_LIMIT))
			break;
	}
}

/*
 * Flushes the fullest bucket, and the oldest ones, a few at most, if the
 * journal is too long: publications could not, as they were at commit, and
 * there are no workers.  Also moves what lay in the journal before the index
 * got its buckets.  Nothing happens if it has none.  Locks and errors as in
 * cb_flush_bucket().
 */
void
cb_flush_overdue(Relation rel)
{
	CbBucketSet *set = cb_set_find(rel);
	CbPos		from;
	uint64		attach_id = set ? cb_set_attachment(set, rel, &from) : 0;

	if (attach_id == 0)
		return;
	cb_flush_before(rel, set);
	(void) cb_flush_help(rel, set, attach_id);
	cb_flush_shorten(rel, set, attach_id);
}

/*
 * Asks workers for the flushes that a publication has made due.
 *
 * may_work: comparison functions may run and errors may be raised, so it does
 * them itself if there are no workers.  large: this was a large batch; with
 * may_work it flushes a bucket, too, or waits for room while workers pause, if
 * the pool is about to run out.  Without may_work it never waits and raises no
 * error, as at commit.  On entry RowExclusiveLock or more on the index is
 * held, no LWLock, and no chunk is owned; on exit the same.
 */
void
cb_flush_after_publish(Relation rel, const CbPublishResult *result,
					   bool large, bool may_work)
{
	CbBucketSet *set = result->set;
	uint64		attach_id = result->attach_id;

	if (cb_flush_before_is_left(set) &&
		(cb_flush_is_too_long(result) ||
		 (result->pressed && set->copy.ncomponents > 0)))
		cb_store_relaxed(&set->hurry, 1);
	if (cb_queue_is_served())
	{
		cb_flush_request_all(result);
		if (large && may_work && cb_pool_is_very_low() &&
			!cb_throttle_wait_for_room())
			(void) cb_flush_help(rel, set, attach_id);
		return;
	}
	if (!may_work)
		return;

	/* nobody else will do it */
	if (result->full_bucket != CB_NONE)
		(void) cb_flush_bucket(rel, set, attach_id, result->full_bucket,
							   CB_FLUSH_FULL);
	else if (result->pressed && !cb_shared_evict(NULL, true))
		(void) cb_flush_help(rel, set, attach_id);
	if (cb_flush_before_is_left(set))
		cb_flush_before(rel, set);
	else
		cb_flush_shorten(rel, set, attach_id);
}
