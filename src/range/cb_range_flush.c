/*-------------------------------------------------------------------------
 *
 * cb_range_flush.c
 *	  Where a bucket's entries go: to the leaves, or into a run.
 *
 * Decided for each range by itself, from what it has.  Let k be the entries a
 * leaf that its runs and the new ones bring.  If k is enough, or there is no
 * room for another run, all of them are applied in one sweep; else the new
 * ones become a run.  Nothing is merged with other ranges, so the work that a
 * flush can meet is bounded.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_progress.h"
#include "base/cb_waiter.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "range/cb_range.h"
#include "utils/memutils.h"

/*
 * In kB.  An index with cold leaves has range buffers, too, if they are not
 * off:  single entries would make its packed leaves split again.
 */
static int64
cb_range_threshold(Relation rel)
{
	int64		spill = cb_guc_spill_threshold(rel);
	int64		cold = cb_guc_cold_threshold(rel);

	return spill == CB_THRESHOLD_OFF || cold == CB_THRESHOLD_OFF ? spill :
		Min(spill, cold);
}

/*
 * Is the index so large that buckets spill?  Looks its size up in the file
 * system, and whether it is buffered in the catalogs: errors can be raised,
 * and no LWLock is held.
 */
bool
cb_range_is_wanted(Relation rel)
{
	int64		threshold = cb_range_threshold(rel);

	return threshold != CB_THRESHOLD_OFF && cb_is_buffered(rel) &&
		rel->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		(int64) RelationGetNumberOfBlocks(rel) * (BLCKSZ / 1024) >= threshold;
}

/* Are so many entries enough for a run? */
static bool
cb_range_is_run(int n)
{
#ifdef CB_TESTPOINTS
	if (cb_test_run_min >= 0)
		return n >= cb_test_run_min;
#endif
	return n >= CB_RUN_MIN_ENTRIES;
}

/* Do the range's runs have to go down, as it has no room for another? */
static bool
cb_range_is_full(const CbRangeState *state)
{
#ifdef CB_TESTPOINTS
	if (cb_test_tiles > 0 && state->nruns > 0)
		return true;
#endif
	return !state->has_room;
}

/* ---------- dividing ranges ---------- */

/*
 * A range is split at a bound of what a bucket brings, if it has more than
 * twice the leaves that this falls into, and leaves half as many, at least, on
 * either side.  So ranges become about as large as buckets' ones, and a bucket
 * whose bounds have moved does not make ever smaller ones.
 */
static bool
cb_range_split_at(const CbKeyDesc *kd, BlockNumber root,
				  const CbRangeState *state, IndexTuple separator, int64 span)
{
	int64		least = Max(span / 2, 1);

	return cb_range_is_inside(kd, state->low, state->high, separator) &&
		cb_tree_count_leaves(kd, state->low, separator, least) >= least &&
		cb_tree_count_leaves(kd, separator, state->high, least) >= least &&
		cb_range_split(kd, root, separator);
}

/* ---------- one range ---------- */

typedef struct CbRangeApply
{
	CbKeyDesc  *kd;
	BlockNumber root;
	CbSpillMode mode;
	IndexTuple	low;			/* bounds of the leaves of the whole batch, */
	IndexTuple	high;			/* NULL: infinite */
	int64		span;			/* leaves between them, about */
	CbRangePlace *place;
	CbApplyStats *stats;
	int64		spilled;
	CbRangeState state;
} CbRangeApply;

/* Finds the range of an entry and looks at it; no lock is held afterwards. */
static void
cb_range_locate(CbRangeApply *apply, IndexTuple itup)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = itup};
	Buffer		buf = cb_range_find(apply->kd, apply->root, CBP_RANGE, &bound,
									ForwardScanDirection, BUFFER_LOCK_SHARE,
									InvalidBlockNumber, NULL);

	cb_range_read(apply->kd->rel, BufferGetPage(buf), &apply->state);
	apply->state.blkno = BufferGetBlockNumber(buf);
	UnlockReleaseBuffer(buf);
}

/*
 * Splits the range where that makes sense: to the left of the batch, or to its
 * right.
 */
static void
cb_range_carve(CbRangeApply *apply, IndexTuple itup)
{
	const CbRangeState *state = &apply->state;

	while (state->nruns == 0 &&
		   cb_tree_count_leaves(apply->kd, state->low, state->high,
								2 * apply->span + 1) > 2 * apply->span &&
		   (cb_range_split_at(apply->kd, apply->root, state, apply->low,
							  apply->span) ||
			cb_range_split_at(apply->kd, apply->root, state, apply->high,
							  apply->span)))
	{
		cb_range_locate(apply, itup);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Has the range enough for its leaves, with n more? */
static bool
cb_range_is_ripe(const CbRangeApply *apply, int n)
{
	const CbRangeState *state = &apply->state;
	int64		most = (state->nentries + n) / cb_spill_target;

	return most > 0 &&
		cb_tree_count_leaves(apply->kd, state->low, state->high, most + 1) <= most;
}

/*
 * Applies entries, with the range's runs if its lock can be had at once;
 * returns how many.
 */
static int
cb_range_bring(CbRangeApply *apply, CbSortEntry *entries, int n)
{
	Relation	rel = apply->kd->rel;
	BlockNumber blkno = apply->state.blkno;

	if (apply->mode != CB_SPILL_OR_MERGE || apply->state.nruns == 0 ||
		!cb_range_lock(rel, blkno, false))
		return cb_tree_apply(apply->kd, entries, n, apply->stats);
	n = cb_range_merge(apply->kd, blkno, apply->place, entries, n, true,
					   apply->stats);
	cb_range_unlock(rel, blkno);
	return n;
}

/*
 * Frees what a range's retired runs have given up, if nobody else is at it;
 * returns whether it tried.
 */
static bool
cb_range_tidy(Relation rel, const CbRangeState *state)
{
	if (state->nretired == 0 || !cb_range_lock(rel, state->blkno, false))
		return false;
	cb_range_free_retired(rel, state->blkno);
	cb_range_unlock(rel, state->blkno);
	return true;
}

/*
 * Moves those of the entries down that lie in the range of the first of them;
 * returns how many.
 */
static int
cb_range_apply_some(CbRangeApply *apply, CbSortEntry *entries, int n)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch spill",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	int			written = 0;

	cb_range_locate(apply, entries[0].itup);
	if (apply->mode == CB_SPILL_OR_MERGE &&
		cb_range_tidy(apply->kd->rel, &apply->state))
		cb_range_locate(apply, entries[0].itup);
	cb_range_carve(apply, entries[0].itup);
	n = cb_run_entries_inside(apply->kd, entries, n, apply->state.high);
	if (cb_range_is_full(&apply->state) ||
		(apply->mode == CB_SPILL_OR_MERGE && cb_range_is_ripe(apply, n)))
	{
		CB_TEST_POINT("merge-planned");
		n = cb_range_bring(apply, entries, n);
	}
	else
	{
		if (cb_range_is_run(n))
			written = cb_run_write(apply->kd, apply->state.blkno, entries, n);
		if (written == 0)
			n = cb_tree_apply(apply->kd, entries, n, apply->stats);
	}
	apply->spilled += written;
	cb_progress_add(written);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	return written > 0 ? written : n;
}

/*
 * Range by range.  Before it gives way it brings some entries, or what runs
 * have left of them: then none of these, and the place is set.
 */
static int
cb_range_apply_each(CbRangeApply *apply, CbSortEntry *entries, int n)
{
	int			done = 0;

	if (apply->root == 0)
		apply->root = cb_range_create(apply->kd->rel, CBP_RANGE);
	do
	{
		cb_progress_expect(n - done);
		done += cb_range_apply_some(apply, entries + done, n - done);
		CHECK_FOR_INTERRUPTS();
	} while (done < n && !cb_waiter_is_there());
	return done;
}

/*
 * Moves sorted entries down: each range's part of them becomes a run, or goes
 * to the leaves, with the range's runs if that pays.  The caller owns them,
 * and holds no LWLock.  place, stats: as cb_range_merge().  *spilled: the
 * entries that went to runs.  Returns how many were moved: the first ones,
 * fewer than n if it gave way.
 *
 * The caller holds RowExclusiveLock on the index.  Ranges' locks are taken
 * only if they are free.  Comparisons run.  An error leaves a part of the
 * entries moved; to move them once more does no harm (I5).  Not in recovery.
 */
int
cb_range_apply(CbKeyDesc *kd, CbSortEntry *entries, int n, CbSpillMode mode,
			   CbRangePlace *place, CbApplyStats *stats, int64 *spilled)
{
	CbRangeApply *apply;
	int			done;

	*spilled = 0;
	if (mode == CB_SPILL_NEVER || !cb_range_is_run(n))
		return cb_tree_apply(kd, entries, n, stats);
	apply = palloc0(sizeof(CbRangeApply));
	apply->kd = kd;
	apply->mode = mode;
	apply->place = place;
	apply->stats = stats;
	apply->low = cb_tree_find_low(kd, entries[0].itup);
	apply->high = cb_tree_find_separator(kd, entries[n - 1].itup);
	apply->span = cb_tree_count_leaves(kd, apply->low, apply->high, PG_INT32_MAX);
	(void) cb_key_prepare_hash(kd); /* in this memory context */
	apply->root = cb_range_root(kd->rel, CBP_RANGE);
	if (n / apply->span >= cb_spill_target)
		done = cb_tree_apply(kd, entries, n, stats);
	else
		done = cb_range_apply_each(apply, entries, n);
	*spilled = apply->spilled;
	pfree(apply);
	return done;
}

/* ---------- several ranges ---------- */

/*
 * The range page right of one that was looked at, if it begins left of the bound,
 * else InvalidBlockNumber.
 */
static BlockNumber
cb_range_right_of(const CbKeyDesc *kd, const CbRangeState *state, const CbBound *upto)
{
	return state->high == NULL ||
		cb_key_compare_bound(kd, upto, state->high) > 0 ?
		InvalidBlockNumber : state->next;
}

/*
 * Merges the runs of one range; returns the one to its right, if it begins
 * left of the bound, else InvalidBlockNumber.
 */
static BlockNumber
cb_range_merge_one(const CbKeyDesc *kd, BlockNumber blkno, const CbBound *upto,
				   bool wait, CbRangePlace *place, CbApplyStats *stats)
{
	Relation	rel = kd->rel;
	CbRangeState *state = palloc(sizeof(CbRangeState));
	BlockNumber next;

	cb_range_look(rel, blkno, state);
	next = cb_range_right_of(kd, state, upto);
	if ((state->nruns > 0 || state->nretired > 0) &&
		cb_range_lock(rel, blkno, wait))
	{
		if (state->nruns > 0)
			(void) cb_range_merge(kd, blkno, place, NULL, 0, false, stats);
		cb_range_free_retired(rel, blkno);
		cb_range_unlock(rel, blkno);
	}
	pfree(state);
	return next;
}

/*
 * Merges those of one range, unless somebody is at it.  The block may be
 * another page of the index by mistake: then nothing is done.  place: as
 * cb_range_merge().  The range's lock is taken here, if it is free; other
 * locks and errors as there.
 */
void
cb_range_merge_at(const CbKeyDesc *kd, BlockNumber blkno, CbRangePlace *place,
				  CbApplyStats *stats)
{
	CbBound		upto = {.kind = CB_BOUND_MIN};

	if (cb_range_is_at(kd->rel, blkno))
		(void) cb_range_merge_one(kd, blkno, &upto, false, place, stats);
}

/*
 * The range page right of the bound; InvalidBlockNumber: there are no ranges.
 */
static BlockNumber
cb_range_find_first(const CbKeyDesc *kd, const CbBound *bound)
{
	BlockNumber blkno = cb_range_root(kd->rel, CBP_RANGE);
	Buffer		buf;

	if (blkno == 0)
		return InvalidBlockNumber;
	buf = cb_range_find(kd, blkno, CBP_RANGE, bound, ForwardScanDirection,
						BUFFER_LOCK_SHARE, InvalidBlockNumber, NULL);
	blkno = BufferGetBlockNumber(buf);
	UnlockReleaseBuffer(buf);
	return blkno;
}

/*
 * How many entries the ranges have, from this one to the one that reaches to the
 * bound: for those who ask how far a merge of them has come.
 */
static int64
cb_range_count_entries(const CbKeyDesc *kd, BlockNumber blkno, const CbBound *upto)
{
	CbRangeState *state = palloc(sizeof(CbRangeState));
	BlockNumber moves = 0;
	int64		n = 0;

	while (blkno != InvalidBlockNumber)
	{
		cb_range_look(kd->rel, blkno, state);
		n += state->nentries;
		blkno = cb_range_right_of(kd, state, upto);
		cb_range_check_moves(kd->rel, blkno, ++moves);
		CHECK_FOR_INTERRUPTS();
	}
	pfree(state);
	return n;
}

/*
 * Merges the runs of all ranges, and then of all tiles, that reach between the
 * bounds into the tree, and frees what can be freed of them.  wait: for others who are at it, else
 * leaves theirs out.  For sessions, which do not give way.  The ranges' locks
 * are taken here, one at a time; other locks and errors as cb_range_merge().
 */
void
cb_range_merge_between(const CbKeyDesc *kd, const CbBound *lo, const CbBound *hi,
					   bool wait, CbApplyStats *stats)
{
	BlockNumber blkno = cb_range_find_first(kd, lo);
	BlockNumber moves = 0;
	CbRangePlace place = {0};	/* a session's: it does not give way */

	cb_progress_expect(cb_range_count_entries(kd, blkno, hi));
	while (blkno != InvalidBlockNumber)
	{
		blkno = cb_range_merge_one(kd, blkno, hi, wait, &place, stats);
		cb_range_check_moves(kd->rel, blkno, ++moves);
		vacuum_delay_point(false);
	}
	cb_tile_merge_between(kd, lo, hi, wait, stats);
}

/*
 * Frees what runs of any range or tile have given up, if nobody can be reading it,
 * but leaves those alone that others are at.  The caller holds no LWLock.
 * Comparisons run, to find the first range; errors as cb_range_free_retired().
 */
void
cb_range_free_all(const CbKeyDesc *kd)
{
	CbRangeState *state = palloc(sizeof(CbRangeState));
	CbBound		first = {.kind = CB_BOUND_MIN};
	BlockNumber blkno = cb_range_find_first(kd, &first);
	BlockNumber moves = 0;

	while (blkno != InvalidBlockNumber)
	{
		cb_range_look(kd->rel, blkno, state);
		(void) cb_range_tidy(kd->rel, state);
		blkno = state->next;
		cb_range_check_moves(kd->rel, blkno, ++moves);
		vacuum_delay_point(false);
	}
	pfree(state);
	cb_tile_merge_between(kd, &first, &(CbBound) {.kind = CB_BOUND_MAX}, false, NULL);
}
