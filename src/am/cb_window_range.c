/*-------------------------------------------------------------------------
 *
 * cb_window_range.c
 *	  Range buffers as an upper tier of a scan's windows.
 *
 * For each window the range page is looked at, after the buckets and before
 * the leaf: the runs that it lists are read later, as nobody gives up their
 * pages while a snapshot from before their retirement is held (cb_range.h).  If
 * it says that tiles may have entries of the range, the tile is looked at after
 * that; a window ends where either does.
 *
 * In recovery runs may be given up all the same, and a tile's run at any time.
 * The scan finds out when it comes to such a page, and reads the window again
 * from its start: the page does not list the run any more, and the tile, or the
 * leaf, which is read after it, has the run's entries.
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
	so->ranges->tile_known = false;
	cb_window_forget_runs(so->ranges);
}

/*
 * Has a run been given up that the window was to read?  Then the window is to
 * be read again from its start; of a range's runs in recovery only.
 */
bool
cb_window_lost_run(CbScanOpaque so)
{
	return (so->in_range && so->ranges->watch.lost) ||
		(so->in_tile && so->ranges->tile_watch.lost);
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

/*
 * Makes cursors[i] one for run i, with what it may have read of it before; the
 * window has to read it.
 */
static void
cb_window_want_run(CbScanOpaque so, int i, CbRunWatch *watch)
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
			ranges->wanted[ranges->nwanted++] = cursor;
			return;
		}
	}
	if (ranges->cursors[i] == NULL)
		ranges->cursors[i] = MemoryContextAlloc(so->cxt, sizeof(CbRunCursor));
	cb_run_open(ranges->cursors[i], item, watch);
	ranges->wanted[ranges->nwanted++] = ranges->cursors[i];
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
	buf = cb_range_find(&so->kd, root, CBP_RANGE, &so->pos.bound, dir, BUFFER_LOCK_SHARE,
						cb_window_range_hint(so, dir), scan->xs_snapshot);
	cb_window_read_range(scan, buf);
	UnlockReleaseBuffer(buf);
	so->in_range = true;
	so->range.low = so->ranges->state.low;
	so->range.high = so->ranges->state.high;
	so->range.has_tiles = so->ranges->state.has_tiles;
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

	for (int i = 0; i < ranges->state.nruns; i++)
	{
		if (so->view.has_hash &&
			!cb_run_may_hold(scan->indexRelation, &ranges->state.runs[i],
							 so->view.hash, watch))
			continue;
		cb_window_want_run(so, i, watch);
	}

	/* a scan that goes on reads each page of a run once, for many windows */
	if (so->starting && ranges->state.nruns > 0 && !so->for_unique)
		cb_throttle_note_scan();
	if (so->starting && ranges->nwanted > 0)
		cb_flush_note_run_reads(&so->view, ranges->state.blkno,
								ranges->nwanted, ranges->state.nentries);
}

/* ---------- tiles ---------- */

/* The root above the tile pages: a range page says that there are some. */
static BlockNumber
cb_window_tile_root(CbScanOpaque so)
{
	BlockNumber root = cb_rel_cache(so->kd.rel)->tile_root;

	if (root == 0)
		root = cb_range_root(so->kd.rel, CBP_TILES);
	if (root == 0)
		cb_report_corrupt(so->kd.rel, CB_METAPAGE_BLKNO, "It names no root of tile pages, but a range has tiles.");
	return root;
}

/* Is the tile that was read last that of the scan's place, as far as is known? */
static inline bool
cb_window_is_in_tile(CbScanOpaque so, ScanDirection dir)
{
	const CbTile *tile = &so->ranges->tile;

	return so->ranges->tile_known &&
		cb_range_covers(&so->kd, &so->pos.bound, dir, tile->low, tile->high);
}

/* Takes down the tile of the scan's place, unless its page has not changed. */
static void
cb_window_find_tile(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanRanges *ranges = so->ranges;
	CbTile	   *tile = &ranges->tile;
	bool		inside = cb_window_is_in_tile(so, dir);
	Buffer		buf = cb_range_find(&so->kd, cb_window_tile_root(so), CBP_TILES,
									&so->pos.bound, dir, BUFFER_LOCK_SHARE,
									inside ? tile->blkno : InvalidBlockNumber,
									scan->xs_snapshot);
	MemoryContext oldcxt;

	if (!inside || tile->blkno != BufferGetBlockNumber(buf) ||
		tile->lsn != BufferGetLSNAtomic(buf) || !RelationNeedsWAL(so->kd.rel))
	{
		ranges->tile_known = false;
		if (ranges->tile_cxt == NULL)
			ranges->tile_cxt = AllocSetContextCreate(so->cxt, "cache_batch scan tile",
													 ALLOCSET_SMALL_SIZES);
		MemoryContextReset(ranges->tile_cxt);
		oldcxt = MemoryContextSwitchTo(ranges->tile_cxt);
		cb_tile_read(&so->kd, buf, &so->pos.bound, dir, tile);
		MemoryContextSwitchTo(oldcxt);
		ranges->tile_watch = (CbRunWatch) {.range = tile->blkno,.lsn = tile->lsn};
		if (ranges->tile_cursor == NULL)
			ranges->tile_cursor = MemoryContextAlloc(so->cxt, sizeof(CbRunCursor));
		cb_run_open(ranges->tile_cursor, &tile->runs.run, &ranges->tile_watch);
		ranges->tile_known = true;
	}
	UnlockReleaseBuffer(buf);
}

/* Ends the window where the tile does, if that comes before the range's ends. */
static void
cb_window_clip_to_tile(CbScanOpaque so)
{
	const CbTile *tile = &so->ranges->tile;
	CbRangeBounds *range = &so->range;

	if (tile->low != NULL &&
		(range->low == NULL || cb_key_compare(&so->kd, range->low, tile->low) < 0))
		range->low = tile->low;
	if (tile->high != NULL &&
		(range->high == NULL || cb_key_compare(&so->kd, tile->high, range->high) < 0))
		range->high = tile->high;
}

/* Looks at the tile of the scan's place, and whether its run is to be read. */
static void
cb_window_copy_tile(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanRanges *ranges;

	if (so->ranges == NULL)
		so->ranges = cb_window_make_ranges(so);
	ranges = so->ranges;
	cb_window_find_tile(scan, dir);
	so->in_tile = true;
	cb_window_clip_to_tile(so);
	CB_TEST_POINT("scan-tile-copied");
	if (CbTileHasRun(&ranges->tile) &&
		(!so->view.has_hash ||
		 cb_run_may_hold(scan->indexRelation, &ranges->tile.runs.run, so->view.hash,
						 &ranges->tile_watch)))
		ranges->wanted[ranges->nwanted++] = ranges->tile_cursor;
}

/* ---------- the tier ---------- */

/* Looks at the range page of so->pos, unless what it says is known. */
static void
cb_window_copy_runs(IndexScanDesc scan, BlockNumber root, ScanDirection dir)
{
	if (!cb_window_may_have_seen(scan))
		cb_window_find_range(scan, root, dir);
	else if (cb_window_range_lacks(scan, root, dir))
		return;
	CB_TEST_POINT("scan-range-copied");
	cb_window_choose_runs(scan);
}

/*
 * Looks at the range page of so->pos, then at the tile, and chooses the runs to
 * read.  No page is locked or pinned on return: what they say is in so->ranges.
 * Comparison functions run.
 */
void
cb_window_copy_range(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	BlockNumber root = cb_window_range_root(so);

	so->in_range = false;
	so->in_tile = false;
	so->range.low = so->range.high = NULL;
	if (so->ranges != NULL)
		so->ranges->nwanted = 0;
	if (root == 0)
		return;
	cb_window_copy_runs(scan, root, dir);
	if (so->range.has_tiles)
		cb_window_copy_tile(scan, dir);
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
	int			next = Min(ranges->nwanted,
						   first + cb_scan_ahead_max(so->kd.rel));

	cb_run_prefetch(&so->kd, ranges->wanted + first, next - first, bound, dir);
	return next;
}

/*
 * Adds the runs that may have entries beyond the near bound.  When one is not
 * in memory the others are asked for.  Reads pages of runs; none stays locked.
 * A run may be found to be given up: see cb_window_lost_run().
 */
void
cb_window_open_range(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					 CbPlace *far)
{
	CbScanRanges *ranges = so->ranges;
	ScanDirection dir = (ScanDirection) merge->step;
	int			asked = 0;

	for (int i = 0; ranges != NULL && i < ranges->nwanted; i++)
	{
		CbSource   *source = &merge->sources[merge->nsources++];
		CbRunCursor *cursor = ranges->wanted[i];
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
