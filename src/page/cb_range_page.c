/*-------------------------------------------------------------------------
 *
 * cb_range_page.c
 *	  Making and changing range pages and tile pages.
 *
 * Nothing here takes a lock, writes WAL, compares keys or looks at a second
 * page.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "page/cb_range_page.h"

static void
cb_range_page_put(Page page, const void *item, Size size)
{
	if (PageAddItem(page, (Item) unconstify(void *, item), size,
					InvalidOffsetNumber, false, false) == InvalidOffsetNumber)
		elog(PANIC, "cache_batch: no room in a range page");
}

/*
 * Makes an empty range page; high is NULL for the rightmost.  The bounds are
 * copied.  There is room for both, or the server goes down.
 */
void
cb_range_page_init(Page page, IndexTuple high, IndexTuple low, BlockNumber next)
{
	cb_page_init(page, CBP_RANGE, CB_RANGE_LEVEL);
	CbPageGetOpaque(page)->next = next;
	if (high != NULL)
		cb_range_page_put(page, high, IndexTupleSize(high));
	cb_range_page_put(page, low, IndexTupleSize(low));
}

/* Does the item lie inside the page, behind its line pointers? */
static bool
cb_range_item_is_inside(Page page, OffsetNumber off)
{
	ItemId		id = PageGetItemId(page, off);
	Size		start = ItemIdGetOffset(id);

	return ItemIdIsNormal(id) && start == MAXALIGN(start) &&
		start >= ((PageHeader) page)->pd_upper &&
		start + ItemIdGetLength(id) <= ((PageHeader) page)->pd_special;
}

/* Can the item be a pivot tuple?  The page's header is sound. */
bool
cb_range_bound_is_sound(Page page, OffsetNumber off)
{
	return cb_range_item_is_inside(page, off) &&
		ItemIdGetLength(PageGetItemId(page, off)) >= sizeof(IndexTupleData) &&
		IndexTupleSize(CbPageGetTuple(page, off)) ==
		ItemIdGetLength(PageGetItemId(page, off)) &&
		BTreeTupleIsPivot(CbPageGetTuple(page, off));
}

static inline bool
cb_range_item_is_sound(const CbRunItem *run)
{
	return run->nfilters <= CB_RUN_MAX_FILTERS && run->npages <= CB_RUN_MAX_PAGES;
}

static bool
cb_range_run_is_sound(Page page, OffsetNumber off)
{
	return cb_range_item_is_inside(page, off) &&
		ItemIdGetLength(PageGetItemId(page, off)) == sizeof(CbRunItem) &&
		cb_range_item_is_sound(CbRangeGetRun(page, off));
}

/*
 * Can the page's items be what they should be?  The page was checked to be one
 * of ours; raises no error.
 */
bool
cb_range_page_is_sound(Page page)
{
	PageHeader	header = (PageHeader) page;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			nlive = 0;

	if (!CbPageListsRuns(page) || header->pd_lower > header->pd_upper ||
		header->pd_upper > header->pd_special ||
		max < CbPageFirstItem(page) ||
		max - CbPageFirstItem(page) > CB_RANGE_MAX_ITEMS)
		return false;
	for (OffsetNumber off = FirstOffsetNumber; off <= CbPageFirstItem(page); off++)
	{
		if (!cb_range_bound_is_sound(page, off))
			return false;
	}
	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		if (!cb_range_run_is_sound(page, off))
			return false;
		nlive += CbRunIsLive(CbRangeGetRun(page, off));
	}
	return nlive <= CB_RANGE_MAX_RUNS;
}

/*
 * Has the page room for another run?  It is sound.  Runs that have been
 * retired take room until they are removed.
 */
bool
cb_range_page_has_room(Page page)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			nlive = 0;

	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
		nlive += CbRunIsLive(CbRangeGetRun(page, off));
	return nlive < CB_RANGE_MAX_RUNS &&
		max - CbPageFirstItem(page) < CB_RANGE_MAX_ITEMS &&
		PageGetFreeSpace(page) >= sizeof(CbRunItem);
}

/*
 * Adds a run behind the others, to a page that has the room; for critical
 * sections and redo.
 */
void
cb_range_page_add(Page page, const CbRunItem *item)
{
	cb_range_page_put(page, item, sizeof(CbRunItem));
}

/*
 * The runs at these offsets are read no more by those who come; safexid: when
 * their pages may be used again.  Cannot fail.
 */
void
cb_range_page_retire(Page page, const OffsetNumber *offsets, int n,
					 FullTransactionId safexid)
{
	for (int i = 0; i < n; i++)
		CbRangeGetRun(page, offsets[i])->safexid = safexid;
}

/* ---------- tile pages ---------- */

/*
 * Makes a tile page without tiles, which gets one for its low key at least; high
 * is NULL for the rightmost, and copied.  There is room for it.
 */
void
cb_tile_page_init(Page page, IndexTuple high, BlockNumber next)
{
	cb_page_init(page, CBP_TILES, CB_RANGE_LEVEL);
	CbPageGetOpaque(page)->next = next;
	if (high != NULL)
		cb_range_page_put(page, high, IndexTupleSize(high));
}

static bool
cb_tile_is_sound(Page page, OffsetNumber off)
{
	Size		len = ItemIdGetLength(PageGetItemId(page, off));

	return cb_range_item_is_inside(page, off) &&
		len >= sizeof(IndexTupleData) + sizeof(CbTileRuns) &&
		len == CbTileItemSize(CbPageGetTuple(page, off)) &&
		BTreeTupleIsPivot(CbPageGetTuple(page, off)) &&
		cb_range_item_is_sound(&CbTileGetRuns(page, off)->run) &&
		cb_range_item_is_sound(&CbTileGetRuns(page, off)->old);
}

/*
 * Can the page's items be what they should be?  The page was checked to be one
 * of ours; raises no error.
 */
bool
cb_tile_page_is_sound(Page page)
{
	PageHeader	header = (PageHeader) page;
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	if (!CbPageListsTiles(page) || CbPageGetOpaque(page)->level != CB_RANGE_LEVEL ||
		header->pd_lower > header->pd_upper ||
		header->pd_upper > header->pd_special || max < CbPageFirstItem(page) ||
		(!CbPageIsRightmost(page) && !cb_range_bound_is_sound(page, CB_HIKEY)))
		return false;
	for (OffsetNumber off = CbPageFirstItem(page); off <= max; off++)
	{
		if (!cb_tile_is_sound(page, off))
			return false;
	}
	return true;
}

/* Has the page room for another tile, which begins there? */
bool
cb_tile_page_has_room(Page page, IndexTuple low)
{
	return PageGetFreeSpace(page) >= CbTileItemSize(low);
}

/*
 * Adds a tile, which is item number off then, to the image of a page that has the
 * room; an error if it has not.  low and runs are copied.
 */
void
cb_tile_page_add(Page page, OffsetNumber off, IndexTuple low,
				 const CbTileRuns *runs)
{
	Size		size = CbTileItemSize(low);
	PGAlignedBlock item;

	(void) cb_page_copy_tuple(item.data, low);
	memcpy(item.data + size - sizeof(CbTileRuns), runs, sizeof(CbTileRuns));
	if (PageAddItem(page, (Item) item.data, size, off, false, false) == InvalidOffsetNumber)
		elog(ERROR, "cache_batch: no room in a tile page");
}

/*
 * Gives a tile another run, or none (npages 0); the one that it has becomes the
 * old one, of which it has none.  Cannot fail.
 */
void
cb_tile_page_set(Page page, OffsetNumber off, const CbRunItem *run)
{
	CbTileRuns *runs = CbTileGetRuns(page, off);

	runs->old = runs->run;
	runs->run = *run;
}

/* The pages of a tile's old run have been given up.  Cannot fail. */
void
cb_tile_page_give_up(Page page, OffsetNumber off)
{
	memset(&CbTileGetRuns(page, off)->old, 0, sizeof(CbRunItem));
}

/* ---------- filters ---------- */

/* Makes a filter page without a bit set. */
void
cb_run_filter_init(Page page)
{
	cb_page_init(page, CBP_RUN, CB_RUN_FILTER_LEVEL);
	memset(CbRunFilterBits(page), 0, CB_RUN_FILTER_LINES * 64);
	((PageHeader) page)->pd_lower = CB_RUN_FILTER_START + CB_RUN_FILTER_LINES * 64;
}
