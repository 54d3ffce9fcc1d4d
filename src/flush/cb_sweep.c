/*-------------------------------------------------------------------------
 *
 * cb_sweep.c
 *	  Emptying the journal into the tree, or into runs: one sorted sweep.
 *
 * Sweeps of an index exclude one another by LockPage(index, 1), a
 * heavyweight lock, so that whoever waits for one is seen by the deadlock
 * detector (B1).  Whoever holds it has its lock on the relation already.
 *
 * An error or a crash at any point leaves the journal as it was: the sweep is
 * done again by the next who comes, and entries that reached the tree are
 * skipped then (I5).  Entries appended while a sweep runs lie at or above the
 * head that it read, and stay.
 *
 * A worker sweeps a piece in a transaction.  It flushes what buckets would have
 * had, but for the restart; so where leaves would get too little the entries
 * become runs.  The count of spills is raised before the tail moves.  A scan
 * may have looked into its bucket before that, when the index had no runs, and
 * at the tail after it; so it asks for the count again when it has its copies,
 * and if that has changed looks into the bucket once more (I2_SPILLED).
 *
 * What lay in the journal before the buckets can wait, as scans read a sorted
 * copy of it.  To sweep it costs much just after a start, as no leaf is in memory,
 * and each gets a full page of WAL.  So workers give a twentieth of their time to
 * that, all of them together:  when they have swept for a while they rest from it.
 * An index is in a hurry, and swept at once, to the end, if its journal is too long,
 * if the pool has no room for the copy, or if that leaves too little for buckets.
 * What is one piece at most is swept as well, so that many short journals need no
 * time.
 *
 * If a piece gives way it is sorted anew the next time, and not looked for
 * others meanwhile.  So the next one is half as long (64 pages at least), else
 * twice (B1_PIECES).
 *
 * One damaged leaf must not keep the journal from before the buckets in its
 * place for ever, nor what has come after it.  So a worker's sweep leaves out,
 * by subtransactions, each entry at which there is an error, and publishes
 * these once more: then they are at the journal's head and wait in their
 * bucket, as those that come later do.  If the buckets do not take them, or
 * they are too many, it fails, to be tried again.  Other sweeps get the error:
 * a session's can run while a subtransaction ends, when no other can begin.
 *
 * These entries move up.  A scan could look into the bucket before they come,
 * and into the journal when they have left.  So the sweep changes "again"
 * between the two, and a scan that has its copies for a window pins the bucket
 * again if "again" has changed since (I2_AGAIN), or the attachment, with which
 * it begins anew (I2_AGAINANEW).  If the index has lost its buckets meanwhile
 * and got others, scans would not look: the sweep fails (I2_AGAINLOST).  VACUUM
 * waits for the sweep's lock before it reads its head (U18).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "base/cb_progress.h"
#include "base/cb_waiter.h"
#include "flush/cb_flush.h"
#include "flush/cb_worker.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/* the index that is swept */
typedef struct CbSweep
{
	Relation	rel;
	CbFlushCause cause;
	CbBucketSet *set;
	uint64		attach_id;		/* 0: it has no buckets */
	CbPos		limit;
	bool		skip;			/* publish what the tree does not take */
	bool		spill;			/* to range buffers, where leaves would get
								 * too little */
	CbSweepPlace place;			/* where to go on */
} CbSweep;

/* entries of a sweep that the tree does not take, at most */
#define CB_SWEEP_MAX_SKIPPED	4096

/*
 * Moves sorted entries down; returns how many, in turn: fewer than n if it gave
 * way, one at least.  Others know of ranges before the tail moves.  Merges are
 * left to flushes of buckets, which know where to go on with them.
 */
static int
cb_sweep_move(const CbSweep *sweep, CbKeyDesc *kd, CbSortEntry *entries, int n,
			  CbApplyStats *stats)
{
	CbRangePlace unused = {0};
	int64		nspilled;
	int			done;

	if (!sweep->spill)
		return cb_tree_apply(kd, entries, n, stats);
	done = cb_range_apply(kd, entries, n, CB_SPILL_ONLY, &unused, stats,
						  &nspilled);
	if (nspilled > 0)
		cb_set_note_spill(sweep->set, sweep->attach_id);
	cb_stat_add(sweep->rel, CB_STAT_SPILLED, nspilled);
	return done;
}

/* ---------- what the tree does not take ---------- */

/*
 * Moves entries down in a subtransaction.  Returns how many were, in turn: fewer
 * than n if it gave way, or after an error, which is in *error, else NULL.  An
 * interrupt is passed on.  From an error on all go to the tree, as that tells
 * how far it came.
 */
static int
cb_sweep_try(CbSweep *sweep, CbKeyDesc *kd, CbSortEntry *entries, int n,
			 CbApplyStats *stats, ErrorData **error)
{
	MemoryContext cxt = CurrentMemoryContext;
	MemoryContext apply_cxt = AllocSetContextCreate(cxt, "cache_batch try",
													ALLOCSET_DEFAULT_SIZES);
	ResourceOwner owner = CurrentResourceOwner;
	CbSlotMark	mark = cb_slot_mark();
	int64		before = stats->entries + stats->duplicates;
	bool		spilled = sweep->spill;
	volatile int done = 0;

	*error = NULL;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(apply_cxt);
	PG_TRY();
	{
		CB_TEST_POINT("sweep-try");
		done = cb_sweep_move(sweep, kd, entries, n, stats);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		*error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		cb_slot_release_to(mark);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	MemoryContextDelete(apply_cxt);
	CurrentResourceOwner = owner;
	if (*error == NULL)
		return done;
	if ((*error)->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(*error);
	sweep->spill = false;
	if (spilled)
		return 0;
	return stats->entries + stats->duplicates - before;
}

/* Publishes entries, sorted, once more; error: why. */
static void
cb_sweep_publish(CbSweep *sweep, CbKeyDesc *kd, CbSortEntry *entries, int n,
				 ErrorData *error)
{
	CbPublishResult result;

	/*
	 * They are in the buckets that the sweep knows, where the truncation that
	 * follows leaves them, or it fails.
	 */
	if (cb_bucket_publish(kd, entries, n, &result) < n ||
		result.attach_id != sweep->attach_id)
		ReThrowError(error);
	cb_bucket_note_again(sweep->set, sweep->attach_id);
	CB_TEST_POINT("sweep-published");
}

/*
 * Applies entries, but those at which there is an error: they are published.
 * Returns how many are either; fewer than n if it gave way.
 */
static int
cb_sweep_apply_or_publish(CbSweep *sweep, CbKeyDesc *kd, CbSortEntry *entries,
						  int n, CbApplyStats *stats)
{
	CbSortEntry *skipped = palloc(CB_SWEEP_MAX_SKIPPED * sizeof(CbSortEntry));
	ErrorData  *error = NULL;
	int			nskipped = 0;
	int			done = 0;

	while (done < n)
	{
		ErrorData  *latest;

		bool		spilled = sweep->spill;

		done += cb_sweep_try(sweep, kd, entries + done, n - done, stats, &latest);
		if (latest == NULL || done == n)
			break;
		if (spilled)
			continue;
		if (error != NULL)
			FreeErrorData(error);
		error = latest;
		if (nskipped == CB_SWEEP_MAX_SKIPPED)
			ReThrowError(error);
		skipped[nskipped++] = entries[done++];
		CHECK_FOR_INTERRUPTS();
	}
	if (nskipped > 0)
		cb_sweep_publish(sweep, kd, skipped, nskipped, error);
	return done;
}

/* ---------- one sweep ---------- */

/*
 * Leaves out what an earlier sweep has brought to the tree before it gave way.
 * The entries are in the journal's order.
 */
static void
cb_sweep_go_on(const CbKeyDesc *kd, CbJournalBatch *batch,
			   const CbSweepPlace *place)
{
	IndexTuple	upto = NULL;
	int			below = 0;
	int			kept;

	while (below < batch->n && batch->entries[below].pos < place->upto)
	{
		if (batch->entries[below].pos == place->at)
			upto = batch->entries[below].itup;
		below++;
	}
	if (upto == NULL)
		return;
	kept = cb_key_keep_right(kd, batch->entries, below, upto);
	memmove(batch->entries + kept, batch->entries + below,
			(batch->n - below) * sizeof(CbSortEntry));
	batch->n -= below - kept;
}

/*
 * Sweeps up to a position; the sweep lock is held.  False: the journal ended
 * before, or it gave way, and the place is set.
 */
static bool
cb_sweep_upto(CbSweep *sweep, CbPos end)
{
	Relation	rel = sweep->rel;
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch sweep",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	CbApplyStats stats = {0};
	CbJournalBatch batch;
	CbKeyDesc	kd;
	int			done;

	CB_TEST_POINT("sweep-start");
	cb_key_init(&kd, rel);
	cb_journal_read_all(&kd, end, &batch);
	CB_TEST_POINT("sweep-read");
	cb_sweep_go_on(&kd, &batch, &sweep->place);
	cb_key_sort(&kd, batch.entries, batch.n);
	done = sweep->skip ?
		cb_sweep_apply_or_publish(sweep, &kd, batch.entries, batch.n, &stats) :
		cb_sweep_move(sweep, &kd, batch.entries, batch.n, &stats);
	CB_TEST_POINT("sweep-applied");
	if (done < batch.n)
	{
		sweep->place.upto = batch.upto;
		sweep->place.at = batch.entries[done - 1].pos;
	}
	else
		cb_journal_truncate(rel, &batch);
	if (done > 0)
		cb_flush_count(rel, sweep->cause, done, &stats);

	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	return done == batch.n && batch.upto >= end;
}

/* At this backend's first use: is the attachment of this file (U22)? */
static void
cb_sweep_check(Relation rel, CbBucketSet *set)
{
	CbSlotMark	mark = cb_slot_mark();
	CbKeyDesc	kd;

	cb_key_init(&kd, rel);
	(void) cb_route_get(&kd, set);
	cb_slot_release_to(mark);
}

/*
 * How far a sweep may go: to where the buckets' entries begin, if the index
 * has any.  Under the sweep lock no other attachment can come.
 */
static void
cb_sweep_set_limit(CbSweep *sweep)
{
	CbBucketSet *set = cb_set_find(sweep->rel);

	if (set)
		cb_sweep_check(sweep->rel, set);
	sweep->set = set;
	sweep->attach_id = set ?
		cb_set_attachment(set, sweep->rel, &sweep->limit) : 0;
	if (sweep->attach_id == 0)
	{
		sweep->limit = CB_POS_MAX;
		sweep->skip = false;	/* there are no buckets to wait in */
	}
	sweep->spill = sweep->spill && sweep->attach_id != 0 &&
		cb_range_is_wanted(sweep->rel);
}

/* Journal pages that are swept at a time: what maintenance_work_mem takes. */
#define CB_SWEEP_MIN_PAGES		64

/* and at most, where others may wait for a lock: no look while it is sorted */
#define CB_SWEEP_MAX_PAGES		1024

static uint64
cb_sweep_piece(void)
{
	uint64		piece = Max(cb_journal_pages_in(maintenance_work_mem),
							CB_SWEEP_MIN_PAGES);

	return cb_waiter_is_watching() ? Min(piece, CB_SWEEP_MAX_PAGES) : piece;
}

/*
 * The same for a worker that goes on.  It sorts a piece anew each time it comes,
 * and does not look for others meanwhile: if somebody waits whenever it has
 * sorted one, it gets on by smaller pieces alone.
 */
static uint64
cb_sweep_piece_from(const CbSweepPlace *place)
{
	uint64		piece = cb_sweep_piece();

	return place->npages == 0 || !cb_waiter_is_watching() ? piece :
		Min(piece, place->npages);
}

/* A worker has swept a piece, or has given way before its end. */
static void
cb_sweep_note_place(CbSweep *sweep, uint64 piece)
{
	sweep->place.npages = cb_waiter_is_there() ?
		Max(piece / 2, CB_SWEEP_MIN_PAGES) : piece * 2;
	cb_set_set_sweep_place(sweep->set, sweep->attach_id, &sweep->place);
}

/*
 * Sweeps as far as it may, in pieces; the sweep lock is held.  What is
 * appended meanwhile need not be: the journal is no longer than the index.  A
 * worker sweeps one piece, and comes again for the next one.  If it gives way,
 * the next sweep goes on there, as long as the index has the same buckets.
 */
static void
cb_sweep_all(CbSweep *sweep)
{
	uint64		piece;
	uint64		left;
	bool		more;
	CbMetaPageData meta;
	CbPos		end;

	cb_sweep_set_limit(sweep);
	if (sweep->attach_id != 0)
		sweep->place = cb_set_get_sweep_place(sweep->set, sweep->attach_id);
	piece = cb_sweep_piece_from(&sweep->place);
	left = RelationGetNumberOfBlocks(sweep->rel) / piece + 1;
	do
	{
		cb_rel_read_meta(sweep->rel, NULL, &meta);
		end = Min(sweep->limit,
				  CbPosMake(CbPosSeq(meta.journal_tail) + piece,
							CB_JOURNAL_FIRST));
		more = cb_sweep_upto(sweep, end) && end < sweep->limit;
	} while (more && left-- > 0 && !cb_waiter_is_watching());
	if (sweep->set != NULL)
		cb_shared_forget_below(sweep->set, sweep->rel,
							   cb_rel_cache(sweep->rel)->journal_tail);
	if (sweep->attach_id == 0)
		return;
	if (cb_waiter_is_watching())
		cb_sweep_note_place(sweep, piece);
	cb_set_note_tail(sweep->set, sweep->attach_id,
					 more || cb_waiter_is_there() ?
					 cb_rel_cache(sweep->rel)->journal_tail : sweep->limit);
}

static bool
cb_sweep_locked(CbSweep *sweep, bool wait)
{
	bool		begun;

	if (RecoveryInProgress())
		return false;
	if (wait)
		LockPage(sweep->rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);
	else if (!ConditionalLockPage(sweep->rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock))
		return false;

	begun = cb_progress_begin(CB_PROGRESS_FLUSH, sweep->rel);
	cb_progress_phase(CB_PHASE_JOURNAL, 0);
	cb_sweep_all(sweep);
	cb_progress_end(begun);
	UnlockPage(sweep->rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);
	return true;
}

/*
 * Moves the journal, up to its head at the time of the call, or to where the
 * entries of the index's buckets begin, into the tree, unless it gives way to
 * one who waits for its locks; then the next sweep goes on there.
 *
 * wait: wait for another sweep of the index to end first, else return false if
 * there is one.  False in recovery, too.  On entry RowExclusiveLock or more on
 * the index is held, no LWLock, and no chunk is owned; on exit the same, and
 * the sweep lock is given back.  Comparison functions run.  After an error the
 * journal is as it was, and the sweep lock goes with the transaction or
 * subtransaction.
 */
bool
cb_flush_sweep(Relation rel, CbFlushCause cause, bool wait)
{
	CbSweep		sweep = {.rel = rel,.cause = cause};

	return cb_sweep_locked(&sweep, wait);
}

/*
 * A worker first sorts it for those who read it meanwhile, if they have asked
 * for that.  True: there is more to sort.  If there is no room they go without, so
 * it shall be swept soon (B4_ASKED).
 */
static bool
cb_sweep_build_copy(Relation rel, CbBucketSet *set)
{
	CbKeyDesc	kd;
	CbPos		from;
	CbSharedEnd end;

	if (set->copy.asked_at == 0 || cb_set_attachment(set, rel, &from) == 0)
		return false;
	set->copy.asked_at = 0;		/* after an error, too */
	cb_key_init(&kd, rel);
	end = cb_shared_extend(&kd, from, CB_WORKER_SLICE_MS);
	if (end == CB_SHARED_PAUSED)
		set->copy.asked_at = cb_clock_now();
	else if (end == CB_SHARED_NOT_NOW)
		cb_store_relaxed(&set->hurry, 1);
	return end == CB_SHARED_PAUSED;
}

/*
 * Is there something that lay in the journal before the index got its buckets,
 * and shall a worker come for it now, if there are any?  The bucket set need not be
 * locked: a hint.
 */
bool
cb_flush_before_is_due(CbBucketSet *set)
{
	if (!cb_flush_before_is_left(set) || cb_failing_waits(&set->failing))
		return false;
	return cb_workers == NULL || set->copy.asked_at != 0 ||
		cb_load_relaxed(&set->hurry) != 0 ||
		CbPosSeq(set->from) - CbPosSeq(cb_load_relaxed(&set->tail)) < CB_SWEEP_MIN_PAGES ||
		pg_atomic_read_u64(&cb_workers->sweep_at) <= (uint64) cb_clock_now();
}

/*
 * Moves what lay in the journal before the index got its buckets, unless
 * somebody else is at it: as cb_flush_sweep(), without waiting.  By a session where
 * no worker serves, unless there are any and it is in no hurry.
 */
void
cb_flush_before(Relation rel, CbBucketSet *set)
{
	CbSweep		sweep = {.rel = rel,.cause = CB_FLUSH_DELAY};

	if (cb_flush_before_is_left(set) &&
		(cb_workers == NULL || cb_load_relaxed(&set->hurry) != 0))
		(void) cb_sweep_locked(&sweep, false);
}

/* workers rest when all of them together have swept for so many microseconds, */
#define CB_SWEEP_TURN_US		500000

/* so many times as long as they have swept, */
#define CB_SWEEP_REST			19

/* of which no more than this counts */
#define CB_SWEEP_MAX_US			10000000

/*
 * A worker has swept a piece, since then, with success.  The launcher shall look when
 * the rest is over.
 */
static void
cb_sweep_note_worked(CbBucketSet *set, TimestampTz began)
{
	TimestampTz now = cb_clock_now();
	uint64		swept = pg_atomic_add_fetch_u64(&cb_workers->swept, now - began);
	uint64		until = now + CB_SWEEP_REST * Min(swept, CB_SWEEP_MAX_US);

	cb_failing_forget(&set->failing);
	if (swept < CB_SWEEP_TURN_US)
		return;
	pg_atomic_write_u64(&cb_workers->swept, 0);
	cb_worker_raise(&cb_workers->sweep_at, until);
	cb_queue_wake_launcher();
}

/*
 * The same by a worker, if it is due: a piece of it, or it sorts some for readers who
 * have asked for that.  True: there is more to do, and it is due.
 *
 * What leaves would get too little of goes to range buffers; what the tree does
 * not take is published to the buckets, in subtransactions, so not while a
 * transaction or a subtransaction ends.  An error that is met that way is raised
 * only if there are too many such entries, or if they could not be published.
 */
bool
cb_flush_some_before(Relation rel, CbBucketSet *set)
{
	CbSweep		sweep = {.rel = rel,.cause = CB_FLUSH_DELAY,.skip = true,
	.spill = true};
	TimestampTz began = cb_clock_now();

	if (!cb_flush_before_is_left(set))
		return false;
	if (cb_sweep_build_copy(rel, set))
		return true;
	if (!cb_flush_before_is_due(set) || !cb_sweep_locked(&sweep, false))
		return false;
	cb_sweep_note_worked(set, began);
	return cb_flush_before_is_due(set);
}
