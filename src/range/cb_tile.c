/*-------------------------------------------------------------------------
 *
 * cb_tile.c
 *	  Tiles: the second level of range buffers.
 *
 * Where an index is so large that the runs of a range bring few entries to each
 * leaf, their entries go to tiles.  A tile is a range of keys so narrow that one
 * run holds enough for its leaves.  What comes to it is merged with the run that
 * it has, and becomes its run, in the place of that; or all of it is applied to
 * the leaves, if it is enough for them or does not fit into a run.  So an entry is
 * written anew some times, packed and with its neighbours, where it would cost a
 * leaf to be read and written; a look-up asks one filter more, and the work that a
 * merge can meet is that of its range's entries.  (O'Neil, Cheng, Gawlick,
 * O'Neil: The Log-Structured Merge-Tree, 1996, rolls a level into the next one
 * like this, a piece at a time; here no level above the leaves spans the index.)
 *
 * Whoever changes a tile page holds its page lock (cb_range.h), from before the
 * tile was read until it has been changed.  Workers take it only if it is free,
 * as they own chunks (B1); else their entries go to the leaves.  VACUUM waits for
 * it, with no other one held but the lock of a range, and none of those who have
 * one wait for that.
 *
 * Tiles are cut while they have no run, at bounds of leaves, so wide that as many
 * entries as fit into a run are enough for their leaves.  A tile page begins where a
 * range does, if it can: so merges of two ranges do not want the same lock.
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

typedef struct CbTileApply
{
	const CbKeyDesc *kd;
	BlockNumber root;
	IndexTuple	low;			/* where the range begins; NULL: minus infinity */
	BlockNumber locked;			/* the tile page whose lock is held, or invalid */
	int64		width;			/* leaves of a tile, at most */
	bool		gave_way;		/* in the middle of a tile */
	CbApplyStats *stats;
} CbTileApply;

/* Entries that are enough for a leaf. */
static inline int64
cb_tile_target(void)
{
	return Max(2 * cb_spill_target / CB_TILE_PART, 1);
}

/*
 * For how many leaves has a tile's run enough entries, if its pages get as many as
 * those of the range's densest run?  For a quarter more, as tiles become so much
 * wider before they are cut.
 */
int64
cb_tile_width(const CbRangeState *state)
{
	int64		most = 1;		/* entries of a page */

	for (int i = 0; i < state->nruns; i++)
	{
		const CbRunItem *run = &state->runs[i];

		most = Max(most, run->nentries / Max(run->npages - run->nfilters - 1, 1));
	}
	return Max(most * (CB_RUN_MAX_PAGES - 1 - CB_TILE_FILTERS) /
			   (cb_tile_target() + cb_tile_target() / 4), 1);
}

/* ---------- locks ---------- */

static void
cb_tile_unlock(CbTileApply *apply)
{
	if (apply->locked != InvalidBlockNumber)
		cb_range_unlock(apply->kd->rel, apply->locked);
	apply->locked = InvalidBlockNumber;
}

/* Takes another tile page's lock, if it can be had at once. */
static bool
cb_tile_lock(CbTileApply *apply, BlockNumber blkno)
{
	cb_tile_unlock(apply);
	if (!cb_range_lock(apply->kd->rel, blkno, false))
		return false;
	apply->locked = blkno;
	return true;
}

/* ---------- one tile ---------- */

/* Finds the tile of an entry; no page lock is held afterwards. */
static void
cb_tile_locate(const CbTileApply *apply, IndexTuple itup, CbTile *tile)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = itup};
	Buffer		buf = cb_range_find(apply->kd, apply->root, CBP_TILES, &bound,
									ForwardScanDirection, BUFFER_LOCK_SHARE,
									InvalidBlockNumber, NULL);

	cb_tile_read(apply->kd, buf, &bound, ForwardScanDirection, tile);
	UnlockReleaseBuffer(buf);
}

/*
 * Where to cut a tile that has no run; NULL: nowhere.  Where the range begins; else,
 * if it is too wide, so that tiles are alike.
 */
static IndexTuple
cb_tile_find_cut(const CbTileApply *apply, const CbTile *tile)
{
	const CbKeyDesc *kd = apply->kd;
	int64		most = apply->width + apply->width / 4;
	int64		nleaves;
	IndexTuple	separator;

	if (CbTileHasRun(tile))
		return NULL;
	if (cb_range_is_inside(kd, tile->low, tile->high, apply->low))
		return apply->low;
	nleaves = cb_tree_count_leaves(kd, tile->low, tile->high, 2 * apply->width);
	if (nleaves <= most)
		return NULL;
	separator = cb_tree_find_separator_after(kd, tile->low,
											 Min(nleaves / 2, apply->width));
	return cb_range_is_inside(kd, tile->low, tile->high, separator) ? separator : NULL;
}

/* Does the range begin with the tile, within a tile page? */
static bool
cb_tile_begins_range(const CbTileApply *apply, const CbTile *tile)
{
	return !tile->first && apply->low != NULL &&
		cb_key_compare(apply->kd, tile->low, apply->low) == 0;
}

/* Has the tile enough for its leaves, with so many entries? */
static bool
cb_tile_is_ripe(const CbKeyDesc *kd, const CbTile *tile, int64 n)
{
	int64		most = n / cb_tile_target();

	return most > 0 &&
		cb_tree_count_leaves(kd, tile->low, tile->high, most + 1) <= most;
}

/*
 * Collects the entries of the tile's run, and n more, which are sorted, in order.
 */
static void
cb_tile_collect(const CbKeyDesc *kd, const CbTile *tile,
				const CbSortEntry *entries, int n, CbRunEntries *all)
{
	cb_run_entries_init(all, kd, tile->blkno, (int64) tile->runs.run.nentries + n);
	if (CbTileHasRun(tile))
		cb_run_entries_add_run(all, &tile->runs.run);
	cb_run_entries_add(all, entries, n);
	if (CbTileHasRun(tile) && n > 0)
		cb_key_sort(kd, all->entries, all->n);
}

/* What was collected, but for the first ones, becomes the tile's run, if it fits. */
static bool
cb_tile_keep(CbTile *tile, const CbRunEntries *all, int first,
			 CbApplyStats *stats)
{
	if (!cb_run_write_tile(unconstify(CbKeyDesc *, all->kd), tile,
						   all->entries + first, all->n - first))
		return false;
	stats->tiled += all->n - first;
	return true;
}

/*
 * The entries of the tile's run that lie left of this one are in the leaves: the
 * others become its run, if it has one.
 */
static void
cb_tile_shorten(const CbKeyDesc *kd, CbTile *tile, IndexTuple upto)
{
	CbRunEntries *own = palloc(sizeof(CbRunEntries));
	CbApplyStats unused = {0};
	int			left;

	if (!CbTileHasRun(tile))
		return;
	cb_tile_collect(kd, tile, NULL, 0, own);
	left = cb_run_entries_left_of(kd, own->entries, own->n, upto);
	if (left == own->n)
		cb_tile_retire(kd->rel, tile);
	else if (left > 0)
		(void) cb_tile_keep(tile, own, left, &unused);
}

/*
 * Applies what was collected to the leaves, and retires the tile's run.  Of the n
 * entries that came to the tile it returns how many have come down: all, unless it
 * gave way and what is left does not fit into a run of the tile's.  What has come
 * to the leaves then is not brought there again.
 */
static int
cb_tile_bring_down(CbTileApply *apply, CbTile *tile, CbRunEntries *all,
				   const CbSortEntry *entries, int n)
{
	const CbKeyDesc *kd = all->kd;
	int			done = cb_tree_apply(kd, all->entries, all->n, apply->stats);

	CB_TEST_POINT("tile-applied");
	if (done == all->n)
	{
		if (CbTileHasRun(tile))
			cb_tile_retire(kd->rel, tile);
		return n;
	}
	apply->gave_way = true;
	if (cb_tile_keep(tile, all, done, apply->stats))
		return n;
	cb_tile_shorten(kd, tile, all->entries[done].itup);
	return cb_run_entries_left_of(kd, entries, n, all->entries[done].itup);
}

/*
 * Brings n entries, which lie in the tile, into it, or with what it has to the
 * leaves; returns how many.
 */
static int
cb_tile_bring(CbTileApply *apply, CbTile *tile, const CbSortEntry *entries,
			  int n)
{
	CbRunEntries *all = palloc(sizeof(CbRunEntries));

	cb_tile_collect(apply->kd, tile, entries, n, all);
	if (cb_tile_is_ripe(apply->kd, tile, all->n) ||
		!cb_tile_keep(tile, all, 0, apply->stats))
		n = cb_tile_bring_down(apply, tile, all, entries, n);
	cb_progress_add(n);
	return n;
}

/* ---------- sorted entries ---------- */

/*
 * Brings some of the sorted entries down, those of the first one's tile; returns how
 * many.  0: nothing yet, as a lock was taken, or a tile cut, or a tile page split.
 */
static int
cb_tile_apply_some(CbTileApply *apply, CbSortEntry *entries, int n)
{
	const CbKeyDesc *kd = apply->kd;
	CbTile		tile;
	bool		locked;
	IndexTuple	cut;

	cb_tile_locate(apply, entries[0].itup, &tile);
	locked = tile.blkno == apply->locked;
	if (!locked && cb_tile_lock(apply, tile.blkno))
		return 0;				/* it may have changed before that */
	n = cb_run_entries_inside(kd, entries, n, tile.high);
	if (!locked)
		return cb_tree_apply(kd, entries, n, apply->stats);
	cb_tile_free_old(kd->rel, &tile);
	if (cb_tile_begins_range(apply, &tile))
	{
		cb_tile_split_page(kd, apply->root, tile.blkno, tile.off);
		return 0;
	}
	cut = cb_tile_find_cut(apply, &tile);
	if (cut != NULL && cb_tile_cut(kd, apply->root, &tile, cut))
		return 0;
	return cb_tile_bring(apply, &tile, entries, n);
}

/*
 * The block of the root above the tile pages, which is made if there is none.
 * Errors and locks as cb_range_create().
 */
BlockNumber
cb_tile_find_root(Relation rel)
{
	BlockNumber root = cb_range_root(rel, CBP_TILES);

	return root != 0 ? root : cb_range_create(rel, CBP_TILES);
}

/*
 * Moves n sorted entries of a range's runs, and others', down: to tiles, or
 * to the leaves with what the tiles have, tile by tile.  low: where the range begins,
 * or NULL; width: cb_tile_width().  Returns how many: the first ones, fewer than n if it gave way.
 *
 * The caller has the range's lock and RowExclusiveLock on the index, and no
 * LWLock; the range page says that it has tiles.  Locks of tile pages are taken if
 * they are free.  Comparisons run.  An error leaves a part of the entries
 * moved; to move them once more does no harm (I5).  The entries are the caller's.
 * stats: added to.  The index is logged; not in recovery.
 */
int
cb_tile_apply(const CbKeyDesc *kd, BlockNumber root, IndexTuple low,
			  CbSortEntry *entries, int n, int64 width, CbApplyStats *stats)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch tile",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	CbTileApply apply = {
		.kd = kd,
		.root = root,
		.low = low,
		.locked = InvalidBlockNumber,
		.width = width,
		.stats = stats
	};
	int			done = 0;

	cb_progress_expect(n);
	while (done < n && !apply.gave_way && (done == 0 || !cb_waiter_is_there()))
	{
		done += cb_tile_apply_some(&apply, entries + done, n - done);
		MemoryContextReset(cxt);
		CB_TEST_POINT("tile-next");
		CHECK_FOR_INTERRUPTS();
	}
	cb_tile_unlock(&apply);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	return done;
}

/* ---------- all tiles ---------- */

/* Takes down the tiles of a page that have runs, or old ones; returns how many. */
static int
cb_tile_list(const CbKeyDesc *kd, BlockNumber blkno, CbTile **tiles)
{
	Buffer		buf = cb_range_read_page(kd->rel, blkno, CBP_TILES,
										 BUFFER_LOCK_SHARE, NULL);
	Page		page = BufferGetPage(buf);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			n = 0;

	*tiles = palloc0(sizeof(CbTile) * max);
	for (OffsetNumber off = CbPageFirstItem(page); off <= max; off++)
	{
		CbTile	   *tile = &(*tiles)[n];

		tile->blkno = blkno;
		tile->off = off;
		tile->low = cb_range_copy_bound(kd->rel, CbPageGetTuple(page, off));
		tile->runs = *CbTileGetRuns(page, off);
		n += CbTileHasRun(tile) || tile->runs.old.npages > 0;
	}
	UnlockReleaseBuffer(buf);
	return n;
}

/*
 * Merges the runs of a tile page, whose lock is held, into the tree.
 */
static void
cb_tile_merge_page(const CbKeyDesc *kd, BlockNumber blkno, CbApplyStats *stats)
{
	CbTileApply apply = {.kd = kd,.stats = stats};
	CbTile	   *tiles;
	int			n = cb_tile_list(kd, blkno, &tiles);
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch tile merge",
											  ALLOCSET_DEFAULT_SIZES);

	for (int i = 0; i < n; i++)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
		CbRunEntries *all = palloc(sizeof(CbRunEntries));

		cb_tile_free_old(kd->rel, &tiles[i]);
		cb_tile_collect(kd, &tiles[i], NULL, 0, all);
		(void) cb_tile_bring_down(&apply, &tiles[i], all, NULL, 0);
		MemoryContextSwitchTo(oldcxt);
		MemoryContextReset(cxt);
		vacuum_delay_point(false);
	}
	MemoryContextDelete(cxt);
	pfree(tiles);
}

/* Gives up the pages of old runs of a tile page, whose lock is held. */
static void
cb_tile_free_page(const CbKeyDesc *kd, BlockNumber blkno)
{
	CbTile	   *tiles;
	int			n = cb_tile_list(kd, blkno, &tiles);

	for (int i = 0; i < n; i++)
		cb_tile_free_old(kd->rel, &tiles[i]);
	pfree(tiles);
}

/*
 * The tile page right of this one, if it begins left of the bound, else
 * InvalidBlockNumber.
 */
static BlockNumber
cb_tile_right_of(const CbKeyDesc *kd, BlockNumber blkno, const CbBound *upto)
{
	Buffer		buf = cb_range_read_page(kd->rel, blkno, CBP_TILES,
										 BUFFER_LOCK_SHARE, NULL);
	Page		page = BufferGetPage(buf);
	BlockNumber next = InvalidBlockNumber;

	if (!CbPageIsRightmost(page) &&
		cb_key_compare_bound(kd, upto, CbPageGetHighKey(page)) <= 0)
		next = CbPageGetOpaque(page)->next;
	UnlockReleaseBuffer(buf);
	return next;
}

/*
 * Merges the runs of all tile pages that reach between the bounds into the tree; or
 * gives up the pages of their old runs only (stats NULL).  wait: for others who are
 * at them, else leaves those out.  For sessions, which do not give way.  Tile pages'
 * locks are taken here, one at a time, from left to right: what is split off
 * meanwhile comes later.  Otherwise as cb_tile_apply().
 */
void
cb_tile_merge_between(const CbKeyDesc *kd, const CbBound *lo, const CbBound *hi,
					  bool wait, CbApplyStats *stats)
{
	Relation	rel = kd->rel;
	BlockNumber blkno = cb_range_root(rel, CBP_TILES);
	BlockNumber moves = 0;
	Buffer		buf;

	if (blkno == 0)
		return;
	buf = cb_range_find(kd, blkno, CBP_TILES, lo, ForwardScanDirection,
						BUFFER_LOCK_SHARE, InvalidBlockNumber, NULL);
	blkno = BufferGetBlockNumber(buf);
	UnlockReleaseBuffer(buf);
	while (blkno != InvalidBlockNumber)
	{
		BlockNumber next;
		bool		locked = cb_range_lock(rel, blkno, wait);

		if (locked && stats == NULL)
			cb_tile_free_page(kd, blkno);
		else if (locked)
			cb_tile_merge_page(kd, blkno, stats);
		next = cb_tile_right_of(kd, blkno, hi);
		if (locked)
			cb_range_unlock(rel, blkno);
		blkno = next;
		cb_range_check_moves(rel, blkno, ++moves);
	}
}
