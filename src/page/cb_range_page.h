/*-------------------------------------------------------------------------
 *
 * cb_range_page.h
 *	  Layout of range pages, tile pages, the inner pages above them, and the pages of
 *	  runs.
 *
 * Range pages form a chain by their right links.  Each covers the entries e
 * with low <= e < high key, and lists the runs of that range.  Item 1 is the
 * high key, but for the rightmost; then comes the low key, which never changes
 * (minus infinity in the leftmost); then a CbRunItem for each run.  Above them
 * are levels of inner pages, as in the tree, the topmost of which is the range
 * root alone; a page that has no downlink is reached by right links.
 *
 * A run is written once and never changed: data pages, which are like leaves
 * without high key and right link; a root, an internal page with downlinks to
 * them; and filters of the hashes of its entries' first columns.  All have
 * CBP_RUN, and no right link.
 *
 * Tile pages form a chain of their own, below inner pages of their own.  Each covers
 * low <= e < high key, as range pages do, and lists the tiles of these keys in
 * order.  A tile is a range of keys that has one run at most.  Its item is a
 * pivot tuple, the tile's low key, with a CbTileRuns behind it; the first one's
 * low key is the page's.  A tile ends where the next one begins.
 *
 * Mutations here change one page, cannot fail, and serve redo alike.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_RANGE_PAGE_H
#define CB_RANGE_PAGE_H

#include "core/cb_filter.h"
#include "page/cb_page.h"

/* page levels */
#define CB_RANGE_LEVEL		0
#define CB_RANGE_INNER_LEVEL	1	/* and greater ones */

#define CB_RUN_DATA_LEVEL	0
#define CB_RUN_ROOT_LEVEL	1
#define CB_RUN_FILTER_LEVEL	2

#define CB_RUN_MAX_PAGES	30	/* of all kinds: one record names them all */
#define CB_RUN_MAX_FILTERS	3
#define CB_TILE_FILTERS		1	/* of a tile's run: of tiles there are many */

/* live runs of a range, and runs whose pages are not free yet */
#define CB_RANGE_MAX_RUNS	32
#define CB_RANGE_MAX_ITEMS	128

typedef struct CbRunItem
{
	FullTransactionId safexid;	/* not 0: retired; readers with older
								 * snapshots may still be at its pages */
	uint32		nentries;
	BlockNumber root;
	uint16		npages;			/* of all kinds */
	uint16		nfilters;
	BlockNumber filters[CB_RUN_MAX_FILTERS];
} CbRunItem;

StaticAssertDecl(sizeof(CbRunItem) == 32, "on-disk layout");

#define CbPageIsRange(page) \
	((CbPageGetOpaque(page)->flags & CBP_RANGE) != 0)
#define CbPageIsRun(page) \
	((CbPageGetOpaque(page)->flags & CBP_RUN) != 0)

#define CbPageListsRuns(page) \
	(CbPageIsRange(page) && CbPageGetOpaque(page)->level == CB_RANGE_LEVEL)

#define CbRangeGetLow(page) CbPageGetTuple(page, CbPageFirstItem(page))
#define CbRangeFirstRun(page) OffsetNumberNext(CbPageFirstItem(page))
#define CbRangeGetRun(page, off) \
	((CbRunItem *) PageGetItem((page), PageGetItemId((page), (off))))
#define CbRunIsLive(item) (!FullTransactionIdIsValid((item)->safexid))

#define CbPageListsTiles(page) \
	((CbPageGetOpaque(page)->flags & CBP_TILES) != 0)
#define CbRangeHasTiles(page) \
	((CbPageGetOpaque(page)->flags & CBP_HAS_TILES) != 0)

/* a tile's runs, each of which is none if it has no pages */
typedef struct CbTileRuns
{
	CbRunItem	run;
	CbRunItem	old;			/* the one before: its pages are to be given up, as
								 * nobody is to come to them any more */
} CbTileRuns;

#define CbTileGetRuns(page, off) \
	((CbTileRuns *) ((char *) CbPageGetTuple(page, off) + \
					 MAXALIGN(IndexTupleSize(CbPageGetTuple(page, off)))))
#define CbTileItemSize(low) (MAXALIGN(IndexTupleSize(low)) + sizeof(CbTileRuns))

/* Makes an empty range page; high is NULL for the rightmost. */
extern void cb_range_page_init(Page page, IndexTuple high, IndexTuple low,
							   BlockNumber next);

/* Can the page's items be what they should be? */
extern bool cb_range_page_is_sound(Page page);

/* Can the item be a pivot tuple?  The page's header is sound. */
extern bool cb_range_bound_is_sound(Page page, OffsetNumber off);

/* Has the page room for another run? */
extern bool cb_range_page_has_room(Page page);

extern void cb_range_page_add(Page page, const CbRunItem *item);
extern void cb_range_page_retire(Page page, const OffsetNumber *offsets, int n,
								 FullTransactionId safexid);

/* Makes a tile page without tiles; high is NULL for the rightmost. */
extern void cb_tile_page_init(Page page, IndexTuple high, BlockNumber next);

/* Can the page's items be what they should be? */
extern bool cb_tile_page_is_sound(Page page);

extern bool cb_tile_page_has_room(Page page, IndexTuple low);
extern void cb_tile_page_add(Page page, OffsetNumber off, IndexTuple low,
							 const CbTileRuns *runs);
extern void cb_tile_page_set(Page page, OffsetNumber off, const CbRunItem *run);
extern void cb_tile_page_give_up(Page page, OffsetNumber off);

/* ---------- filters ---------- */

#define CB_RUN_FILTER_START	64	/* aligned to cache lines, as pages are */
#define CB_RUN_FILTER_LINES \
	((BLCKSZ - MAXALIGN(sizeof(CbPageOpaqueData)) - CB_RUN_FILTER_START) / 64)

/* entries of a run for each of its filters, at 16 bits; more if that were too many filters */
#define CB_RUN_FILTER_ENTRIES	(CB_RUN_FILTER_LINES * 32)

extern void cb_run_filter_init(Page page);

#define CbRunFilterBits(page) \
	((cb_atomic64 *) ((char *) (page) + CB_RUN_FILTER_START))

/* Which of a run's filters a hash is in; *within: its hash there. */
static inline int
cb_run_filter_of(uint32 hash, int nfilters, uint32 *within)
{
	uint64		place = (uint64) hash * nfilters;

	*within = (uint32) place;
	return (int) (place >> 32);
}

static inline void
cb_run_filter_add(Page page, uint32 within)
{
	cb_filter_add(CbRunFilterBits(page), CB_RUN_FILTER_LINES, within);
}

static inline bool
cb_run_filter_may_hold(Page page, uint32 within)
{
	return cb_filter_may_hold(CbRunFilterBits(page), CB_RUN_FILTER_LINES, within);
}

#endif							/* CB_RANGE_PAGE_H */
