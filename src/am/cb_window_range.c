/*-------------------------------------------------------------------------
 *
 * cb_window_range.c
 *	  Range buffers as an upper tier of a scan's windows.
 *
 * For each window the range page is looked at, after the buckets and before
 * the leaf: the runs that it lists are read later, as nobody gives up their
 * pages while a snapshot from before their retirement is held (cb_range.h).
 *
 * In recovery they may be given up all the same.  A scan that began there
 * finds out when it comes to such a page, and reads the window again from its
 * start: the range page does not list the run any more, and the leaf, which is
 * read after it, has the run's entries.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"
#include "flush/cb_flush.h"
#include "flush/cb_throttle.h"
#include "utils/memutils.h"

/*
 * The range root's block; 0: there are no entries in range buffers that the
 * scan does not find elsewhere.
 *
 * With buckets, the window's view tells whether there are any.  Without, the
 * metapage did when the journal's tail was read: what lies above that tail is
 * in the scan's copy of the journal.
 */
static BlockNumber
cb_window_range_root(CbScanOpaque so)
{
	CbRelCache *cache = cb_rel_cache(so->kd.rel);
	bool		attached = so->view.attach_id != 0;

	if (attached && so->view.spills == 0)
		return 0;
	if (!cache->build_known || (attached && cache->range_root == 0))
	{
		CbMetaPageData meta;

		cb_rel_read_meta(so->kd.rel, NULL, &meta);
		return meta.range_root;
	}
	return cache->range_root;
}

static CbScanRanges *
cb_window_make_ranges(CbScanOpaque so)
{
	CbScanRanges *ranges = MemoryContextAllocZero(so->cxt, sizeof(CbScanRanges));

	ranges->cxt = AllocSetContextCreate(so->cxt, "cache_batch scan ranges",
										ALLOCSET_SMALL_SIZES);
	return ranges;
}

/* Forgets what has been read of runs. */
static void
cb_window_forget_runs(CbScanRanges *ranges)
{
	for (int i = 0; i < CB_RANGE_MAX_RUNS; i++)
	{
		if (ranges->cursors[i] != NULL)
			cb_run_open(ranges->cursors[i], &(CbRunItem) {0}, NULL);
	}
}

/*
 * The next scan may have another snapshot: it begins to look anew.  The memory
 * of cursors is kept.
 */
void
cb_window_forget_ranges(CbScanOpaque so)
{
	if (so->ranges == NULL)
		return;
	so->ranges->known = false;
	cb_window_forget_runs(so->ranges);
}

/*
 * Has a run been given up that the window was to read?  Then the window is to
 * be read again from its start; in recovery only.
 */
bool
cb_window_lost_run(CbScanOpaque so)
{
	return so->in_range && so->ranges->watch.lost;
}

/*
 * The range page last read, if the scan's place is in its range, as far as is
 * known; beyond that the range root knows better than the right links.
 */
static BlockNumber
cb_window_range_hint(CbScanOpaque so, ScanDirection dir)
{
	const CbRangeState *state = &so->ranges->state;

	if (so->ranges->known &&
		cb_range_covers(&so->kd, &so->pos.bound, dir, state->low, state->high))
		return state->blkno;
	return InvalidBlockNumber;
}

/*
 * Takes down the range page, which is locked, unless it has not changed.  In
 * recovery a run that it lists now can be another one in the same pages.
 */
static void
cb_window_read_range(IndexScanDesc scan, Buffer buf)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanRanges *ranges = so->ranges;
	CbRangeState *state = &ranges->state;
	XLogRecPtr	lsn = BufferGetLSNAtomic(buf);
	MemoryContext oldcxt;

	if (ranges->known && state->blkno == BufferGetBlockNumber(buf) &&
		state->lsn == lsn && RelationNeedsWAL(so->kd.rel))
		return;
	ranges->known = false;
	if (scan->xactStartedInRecovery)
		cb_window_forget_runs(ranges);
	MemoryContextReset(ranges->cxt);
	oldcxt = MemoryContextSwitchTo(ranges->cxt);
	cb_range_read(so->kd.rel, BufferGetPage(buf), state);
	MemoryContextSwitchTo(oldcxt);
	state->blkno = BufferGetBlockNumber(buf);
	state->lsn = lsn;
	ranges->watch = (CbRunWatch) {.range = state->blkno,.lsn = lsn};
	ranges->known = true;
}

/* Makes cursors[i] one for run i, with what it may have read of it before. */
static void
cb_window_set_cursor(CbScanOpaque so, int i, CbRunWatch *watch)
{
	CbScanRanges *ranges = so->ranges;
	const CbRunItem *item = &ranges->state.runs[i];

	for (int j = 0; j < CB_RANGE_MAX_RUNS; j++)
	{
		CbRunCursor *cursor = ranges->cursors[j];

		if (cursor != NULL && cursor->item.root == item->root)
		{
			ranges->cursors[j] = ranges->cursors[i];
			ranges->cursors[i] = cursor;
			return;
		}
	}
	if (ranges->cursors[i] == NULL)
		ranges->cursors[i] = MemoryContextAlloc(so->cxt, sizeof(CbRunCursor));
	cb_run_open(ranges->cursors[i], item, watch);
}

/* May the scan use, and note, what this backend has seen of range pages? */
static bool
cb_window_may_have_seen(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	return so->view.attach_id != 0 && !scan->xactStartedInRecovery &&
		RelationNeedsWAL(so->kd.rel);
}

/*
 * Reads the range page of the scan's place, by way of the range root or a
 * hint.
 */
static void
cb_window_find_range(IndexScanDesc scan, BlockNumber root, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	Buffer		buf;

	if (so->ranges == NULL)
		so->ranges = cb_window_make_ranges(so);
	buf = cb_range_find(&so->kd, root, &so->pos.bound, dir, BUFFER_LOCK_SHARE,
						cb_window_range_hint(so, dir), scan->xs_snapshot);
	cb_window_read_range(scan, buf);
	UnlockReleaseBuffer(buf);
	so->in_range = true;
	so->range.low = so->ranges->state.low;
	so->range.high = so->ranges->state.high;
}

/*
 * Is the place in a range of which it is known that it has no runs, or that
 * they lack the hash that the scan looks for?  If not, the range page has been
 * read.
 */
static bool
cb_window_range_lacks(IndexScanDesc scan, BlockNumber root, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbBucketView *view = &so->view;
	CbRangeMoment now = {
		.bucket = view->bucket->number,
		.attach_id = view->attach_id,
		.spills = view->spills
	};

	if (cb_range_seen_lacks(&so->kd, &now, &so->pos.bound, dir,
							view->has_hash ? &view->hash : NULL,
							scan->xs_snapshot, &so->range))
	{
		if (so->starting && so->range.has_runs && !so->for_unique)
			cb_throttle_note_scan();
		return true;
	}
	cb_window_find_range(scan, root, dir);
	if (view->has_hash || (so->starting && so->ranges->state.nruns == 0))
		cb_range_seen_note(so->kd.rel, &now, &so->ranges->state,
						   view->has_hash);
	return false;
}

/* Which of the range's runs the window has to read. */
static void
cb_window_choose_runs(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanRanges *ranges = so->ranges;
	CbRunWatch *watch = scan->xactStartedInRecovery ? &ranges->watch : NULL;

	ranges->nwanted = 0;
	for (int i = 0; i < ranges->state.nruns; i++)
	{
		if (so->view.has_hash &&
			!cb_run_may_hold(scan->indexRelation, &ranges->state.runs[i],
							 so->view.hash, watch))
			continue;
		cb_window_set_cursor(so, i, watch);
		ranges->wanted[ranges->nwanted++] = i;
	}

	/* a scan that goes on reads each page of a run once, for many windows */
	if (so->starting && ranges->state.nruns > 0 && !so->for_unique)
		cb_throttle_note_scan();
	if (so->starting && ranges->nwanted > 0)
		cb_flush_note_run_reads(&so->view, ranges->state.blkno,
								ranges->nwanted, ranges->state.nentries);
}

/*
 * Looks at the range page of so->pos, and chooses the runs to read.  The page
 * is neither locked nor pinned on return: what it says is in so->ranges.
 * Comparison functions run.
 */
void
cb_window_copy_range(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	BlockNumber root = cb_window_range_root(so);

	so->in_range = false;
	so->range.low = so->range.high = NULL;
	if (root == 0)
		return;
	if (!cb_window_may_have_seen(scan))
		cb_window_find_range(scan, root, dir);
	else if (cb_window_range_lacks(scan, root, dir))
	{
		CB_TEST_POINT("scan-range-read");
		return;
	}
	CB_TEST_POINT("scan-range-copied");
	cb_window_choose_runs(scan);
	CB_TEST_POINT("scan-range-read");
}

/*
 * Has the pages read in that the window needs of its runs from the first one
 * on, and of as many as may be asked for at a time; returns which is the next.
 */
static int
cb_window_prefetch_runs(CbScanOpaque so, int first, const CbBound *bound,
						ScanDirection dir)
{
	CbScanRanges *ranges = so->ranges;
	CbRunCursor *cursors[CB_RANGE_MAX_RUNS];
	int			next = Min(ranges->nwanted,
						   first + cb_scan_ahead_max(so->kd.rel));

	for (int i = first; i < next; i++)
		cursors[i - first] = ranges->cursors[ranges->wanted[i]];
	cb_run_prefetch(&so->kd, cursors, next - first, bound, dir);
	return next;
}

/*
 * Adds the runs that may have entries beyond the near bound.  When one is not
 * in memory the others are asked for.  Reads pages of runs; none stays locked.
 * In recovery a run may be found to be given up: see cb_window_lost_run().
 */
void
cb_window_open_range(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					 CbPlace *far)
{
	CbScanRanges *ranges = so->ranges;
	ScanDirection dir = (ScanDirection) merge->step;
	int			asked = 0;

	for (int i = 0; so->in_range && i < ranges->nwanted; i++)
	{
		CbSource   *source = &merge->sources[merge->nsources++];
		CbRunCursor *cursor = ranges->cursors[ranges->wanted[i]];
		int64		nread = cb_window_count_reads();

		source->kind = CB_SOURCE_RANGE;
		source->cursor = cursor;
		source->cur = cb_run_seek(&so->kd, cursor, &near->bound, dir);
		source->end = merge->step > 0 ? cursor->nentries : -1;
		if (i >= asked && cb_window_count_reads() > nread)
			asked = cb_window_prefetch_runs(so, i + 1, &near->bound, dir);
		if (so->ahead.on)
			cb_run_prefetch_next(&so->kd, cursor, &so->ahead.list->end, dir);
	}
}
