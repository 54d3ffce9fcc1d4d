/*-------------------------------------------------------------------------
 *
 * cb_range_seen.c
 *	  Range pages as this backend has read them, with their runs' filters in
 *	  few.
 *
 * A look-up of a key that no run of its range has asks the filter of each run:
 * a page each.  For ranges that it comes to again and again a backend keeps
 * unions of these filters, or that there are no runs, which serves any scan.
 * That is right until a run is added to the range: for as long
 * as the index's count of spills is what it was before the range page was
 * read, or else the range page has the LSN that it had then.  Runs never
 * change while they are listed, and a range that is split lists none: its
 * parts lack what it lacked.
 *
 * There are some slots for each bucket, as far as they go: a bucket mostly has
 * one range, or parts of a few.
 *
 * Why the unions are right (I2_RANGESEEN): they have what the listed runs
 * have, and more, until a run is added.  Listed runs do not change, retired
 * ones are in the leaves, or in tiles, which are looked at if the range page said
 * that there may be some; entries that go there from a bucket are counted as
 * spills, too.  The count of spills is raised after SPILL and
 * before the chunks leave their bucket, and read with the bucket's list, in
 * the same attachment; so whoever misses the entries in the bucket sees the
 * new count.  (A spill between the two readings is in the unions, and is
 * counted in vain.) The LSN is read after the bucket and before the leaf (I2),
 * under a pin without lock: its halves are those of the earlier one only if
 * one was read before the change.
 *
 * Unlogged indexes, and scans that began in recovery, do without; with
 * old_snapshot_threshold the page is always looked at (A16).  What is known is
 * copied before bounds are compared: a comparison may run SQL that gives the
 * slot to another range.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "range/cb_range.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#define CB_RANGE_SEEN		512
#define CB_RANGE_SEEN_EACH	4	/* slots of a bucket */

/* pages of all unions of a range, and of all ranges: 2 MB */
#define CB_RANGE_SEEN_PAGES		6
#define CB_RANGE_SEEN_ALL		256

/* unions are made when so many look-ups have found the range page the same */
#define CB_RANGE_SEEN_VISITS	4

/*
 * a union is of so many times the entries that a filter is meant for, at most
 */
#define CB_RANGE_SEEN_LOAD		3

#define CB_RUN_FILTER_WORDS	(CB_RUN_FILTER_LINES * CB_FILTER_LINE_WORDS)

static CbRangeSeen cb_range_seen[CB_RANGE_SEEN][CB_RANGE_SEEN_EACH];
static MemoryContext cb_range_seen_cxt = NULL;
static int	cb_range_seen_npages = 0;	/* of all unions */

/* The slots of the bucket. */
static inline CbRangeSeen *
cb_range_seen_slots(const CbRangeMoment *now)
{
	return cb_range_seen[now->bucket % CB_RANGE_SEEN];
}

/*
 * Is the range page as it was when it was seen?  Its LSN is read without its
 * lock.  An error is raised if it is too new for the snapshot.
 */
static bool
cb_range_seen_is_same(const CbRangeSeen *seen, Relation rel, Snapshot snapshot)
{
	Buffer		buf = cb_rel_read_buffer(rel, seen->blkno);
	XLogRecPtr	lsn = BufferGetLSNAtomic(buf);

	TestForOldSnapshot(snapshot, rel, BufferGetPage(buf));
	ReleaseBuffer(buf);
	return lsn == seen->lsn;
}

static bool
cb_range_seen_may_hold(const CbRangeSeen *seen, uint32 hash)
{
	uint32		within;
	int			filter;

	if (seen->npages == 0)
		return false;
	filter = cb_run_filter_of(hash, seen->nfilters, &within);
	for (; filter < seen->npages; filter += seen->nfilters)
	{
		if (cb_filter_may_hold(seen->filters + CB_RUN_FILTER_WORDS * filter,
							   CB_RUN_FILTER_LINES, within))
			return true;
	}
	return false;
}

/* A copy of a bound, in the room for it or palloc'd. */
static IndexTuple
cb_range_seen_copy(IndexTuple bound, char *room)
{
	Size		size;

	if (bound == NULL)
		return NULL;
	size = IndexTupleSize(bound);
	return memcpy(size <= CB_RANGE_BOUND_ROOM ? room : palloc(size), bound, size);
}

/* Forgets what a slot has. */
static void
cb_range_seen_forget(CbRangeSeen *seen)
{
	if (seen->filters != NULL)
	{
		pfree(seen->filters);
		cb_range_seen_npages -= seen->npages;
	}
	*seen = (CbRangeSeen) {0};
}

/* Is it of this version of the range page that the slot knows something? */
static bool
cb_range_seen_is_of(const CbRangeSeen *seen, uint64 attach_id,
					BlockNumber blkno, XLogRecPtr lsn)
{
	return seen->attach_id == attach_id && seen->blkno == blkno &&
		seen->lsn == lsn;
}

/*
 * Has no run been added to the range since it was seen?  known is what the slot
 * had, which is forgotten if it can never be so again.
 */
static bool
cb_range_seen_is_current(CbRangeSeen *seen, const CbRangeSeen *known,
						 Relation rel, const CbRangeMoment *now, Snapshot snapshot)
{
	bool		same;

	if (known->spills == now->spills && !OldSnapshotThresholdActive())
		return true;
	same = cb_range_seen_is_same(known, rel, snapshot);
	if (!cb_range_seen_is_of(seen, known->attach_id, known->blkno, known->lsn))
		return same;
	if (same)
		seen->spills = now->spills;
	else
		cb_range_seen_forget(seen);
	return same;
}

/*
 * Did no run of the slot's range hold entries with the hash, when it was seen?
 */
static bool
cb_range_seen_lacks_hash(const CbRangeSeen *seen, const CbRangeMoment *now,
						 const uint32 *hash)
{
	return seen->attach_id == now->attach_id && seen->filters != NULL &&
		(hash != NULL ? !cb_range_seen_may_hold(seen, *hash) : seen->npages == 0);
}

/*
 * Is it known of the range that has the place that no run in it holds entries
 * with this hash of their first column, as it is now, or that it has no run?
 * hash: NULL if any hash is wanted.  *range gets what is to be known of the
 * range then.
 *
 * The index is logged, and the transaction did not begin in recovery.  No
 * LWLock is held.  Comparisons may run SQL that reads the index, which can give
 * the slot to another range: what the slot has is copied before.
 */
bool
cb_range_seen_lacks(const CbKeyDesc *kd, const CbRangeMoment *now,
					const CbBound *bound, ScanDirection dir, const uint32 *hash,
					Snapshot snapshot, CbRangeBounds *range)
{
	CbRangeSeen *slots = cb_range_seen_slots(now);

	for (int i = 0; i < CB_RANGE_SEEN_EACH; i++)
	{
		CbRangeSeen *seen = &slots[i];
		CbRangeSeen known;

		if (!cb_range_seen_lacks_hash(seen, now, hash))
			continue;
		known = *seen;
		range->has_runs = known.npages > 0;
		range->has_tiles = known.has_tiles;
		range->low = cb_range_seen_copy(known.low, range->room[0]);
		range->high = cb_range_seen_copy(known.high, range->room[1]);
		if (cb_range_covers(kd, bound, dir, range->low, range->high))
			return cb_range_seen_is_current(seen, &known, kd->rel, now, snapshot);
	}
	return false;
}

/*
 * Which pages of unions each run's filters go to, from firsts[] on; returns
 * how many there are.  -1: the runs' filters are not alike, or too many.
 */
static int
cb_range_seen_plan(const CbRangeState *state, int *firsts)
{
	int			nfilters = state->runs[0].nfilters;
	int64		limit = nfilters * CB_RUN_FILTER_ENTRIES * CB_RANGE_SEEN_LOAD;
	int			first = 0;
	int64		n = 0;

	if (nfilters < 1 || nfilters > CB_RUN_MAX_FILTERS)
		return -1;
	for (int i = 0; i < state->nruns; i++)
	{
		if (state->runs[i].nfilters != nfilters)
			return -1;
		if (n > 0 && n + state->runs[i].nentries > limit)
		{
			first += nfilters;
			n = 0;
		}
		n += state->runs[i].nentries;
		firsts[i] = first;
	}
	return first + nfilters <= CB_RANGE_SEEN_PAGES ? first + nfilters : -1;
}

/*
 * Makes the unions of the filters, with copies of the bounds behind them.
 * They are taken up when they are whole: to read a page may fail.
 */
static void
cb_range_seen_make(CbRangeSeen *seen, Relation rel, const CbRangeState *state)
{
	int			firsts[CB_RANGE_MAX_RUNS];
	int			npages = state->nruns == 0 ? 0 : cb_range_seen_plan(state, firsts);
	Size		size = npages * CB_RUN_FILTER_WORDS * sizeof(cb_atomic64);
	Size		low = state->low ? MAXALIGN(IndexTupleSize(state->low)) : 0;
	Size		high = state->high ? MAXALIGN(IndexTupleSize(state->high)) : 0;
	cb_atomic64 *filters;
	char	   *kept;

	if (npages < 0 || cb_range_seen_npages + npages > CB_RANGE_SEEN_ALL)
		return;
	filters = palloc0(size);
	for (int i = 0; i < state->nruns; i++)
	{
		for (int j = 0; j < state->runs[i].nfilters; j++)
			cb_run_add_filter(rel, &state->runs[i], j,
							  filters + CB_RUN_FILTER_WORDS * (firsts[i] + j));
	}
	if (cb_range_seen_cxt == NULL)
		cb_range_seen_cxt = AllocSetContextCreate(TopMemoryContext,
												  "cache_batch range pages seen",
												  ALLOCSET_DEFAULT_SIZES);
	kept = MemoryContextAlloc(cb_range_seen_cxt, size + low + high);
	memcpy(kept, filters, size);
	pfree(filters);
	if (state->low)
		seen->low = memcpy(kept + size, state->low, IndexTupleSize(state->low));
	if (state->high)
		seen->high = memcpy(kept + size + low, state->high,
							IndexTupleSize(state->high));
	seen->nfilters = npages > 0 ? state->runs[0].nfilters : 0;
	seen->npages = npages;
	seen->filters = (cb_atomic64 *) kept;
	cb_range_seen_npages += npages;
}

/* How often have look-ups come to what the slot has, if that may be of use? */
static int
cb_range_seen_visits(const CbRangeSeen *seen, const CbRangeMoment *now)
{
	bool		useful = seen->filters != NULL || seen->visits < CB_RANGE_SEEN_VISITS;

	return seen->attach_id == now->attach_id && useful ? seen->visits : 0;
}

/*
 * The slot of the range page, or else that of the bucket's which look-ups have
 * come to least.
 */
static CbRangeSeen *
cb_range_seen_choose(const CbRangeMoment *now, BlockNumber blkno)
{
	CbRangeSeen *slots = cb_range_seen_slots(now);
	CbRangeSeen *chosen = &slots[0];

	for (int i = 0; i < CB_RANGE_SEEN_EACH; i++)
	{
		if (slots[i].attach_id == now->attach_id && slots[i].blkno == blkno)
			return &slots[i];
		if (cb_range_seen_visits(&slots[i], now) < cb_range_seen_visits(chosen, now))
			chosen = &slots[i];
	}
	return chosen;
}

/*
 * A look-up by hash has read the range page, or another scan has that lists no
 * run, under a snapshot, which it holds.  The state is copied as far as it is
 * kept, in memory that lives as long as the backend.
 *
 * The index is logged; not in recovery.  No LWLock is held: it may read the
 * runs' filters.  An error then leaves the range unknown.  No comparison runs.
 */
void
cb_range_seen_note(Relation rel, const CbRangeMoment *now,
				   const CbRangeState *state, bool by_hash)
{
	CbRangeSeen *seen = cb_range_seen_choose(now, state->blkno);

	if (!cb_range_seen_is_of(seen, now->attach_id, state->blkno, state->lsn))
	{
		/* unions are worth more than what spares one page */
		if (!by_hash && seen->attach_id == now->attach_id && seen->npages > 0)
			return;
		cb_range_seen_forget(seen);
		seen->attach_id = now->attach_id;
		seen->blkno = state->blkno;
		seen->lsn = state->lsn;
		seen->has_tiles = state->has_tiles;
	}
	seen->spills = now->spills;
	if (++seen->visits == CB_RANGE_SEEN_VISITS)
		cb_range_seen_make(seen, rel, state);
}
