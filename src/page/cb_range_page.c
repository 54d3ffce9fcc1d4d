/*-------------------------------------------------------------------------
 *
 * cb_range_page.c
 *	  Making and changing range pages.
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

void
cb_range_page_init(Page page, IndexTuple high, IndexTuple low, BlockNumber next)
{
	cb_page_init(page, CBP_RANGE, CB_RANGE_LEVEL);
	CbPageGetOpaque(page)->next = next;
	if (high != NULL)
		cb_range_page_put(page, high, IndexTupleSize(high));
	cb_range_page_put(page, low, IndexTupleSize(low));
}

bool
cb_range_page_is_sound(Page page)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	if (!CbPageIsRange(page) || CbPageGetOpaque(page)->level != CB_RANGE_LEVEL ||
		max < CbPageFirstItem(page) ||
		max - CbPageFirstItem(page) > CB_RANGE_MAX_ITEMS)
		return false;
	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		ItemId		id = PageGetItemId(page, off);

		if (!ItemIdHasStorage(id) || ItemIdGetLength(id) != sizeof(CbRunItem) ||
			ItemIdGetOffset(id) + sizeof(CbRunItem) > BLCKSZ ||
			CbRangeGetRun(page, off)->nfilters > CB_RUN_MAX_FILTERS ||
			CbRangeGetRun(page, off)->npages > CB_RUN_MAX_PAGES)
			return false;
	}
	return true;
}

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

void
cb_range_page_add(Page page, const CbRunItem *item)
{
	cb_range_page_put(page, item, sizeof(CbRunItem));
}

void
cb_range_page_retire(Page page, const OffsetNumber *offsets, int n,
					 FullTransactionId safexid)
{
	for (int i = 0; i < n; i++)
		CbRangeGetRun(page, offsets[i])->safexid = safexid;
}

void
cb_run_filter_init(Page page)
{
	cb_page_init(page, CBP_RUN, CB_RUN_FILTER_LEVEL);
	memset(CbRunFilterBits(page), 0, CB_RUN_FILTER_LINES * 64);
	((PageHeader) page)->pd_lower = CB_RUN_FILTER_START + CB_RUN_FILTER_LINES * 64;
}
