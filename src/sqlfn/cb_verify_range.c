/*-------------------------------------------------------------------------
 *
 * cb_verify_range.c
 *	  The part of cache_batch_verify() that checks range buffers.
 *
 * Inner pages are read before the range pages, those from left to right, and
 * after each of them the runs that it listed then.  Range pages are never
 * deleted, and split while they list no live run; and the pages of a run that
 * is retired meanwhile are kept as long as this statement has its snapshot
 * (range/cb_range.h).  So all of this holds while others write, but for two
 * things, which need strict: replay brings a new range page's downlink before
 * the right link that leads to it; and runs that had been retired before the
 * snapshot was taken can lose their pages at any time.  In recovery any run
 * can, once it has been retired: then it is left alone, as its entries are in
 * tiles or the leaves, which are read later.  A tile's run can at any time, and its
 * entries may be in the run that the tile has now: then the tile page is read again,
 * from that tile on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "base/cb_base.h"
#include "miscadmin.h"
#include "page/cb_leaf.h"
#include "range/cb_range.h"
#include "sqlfn/cb_verify.h"
#include "tree/cb_tree.h"
#include "utils/memutils.h"

/* a range page, or a tile page, as it was read */
typedef struct CbVerifyRange
{
	IndexTuple	low;			/* NULL: minus infinity */
	IndexTuple	high;			/* NULL: infinite */
	BlockNumber next;
	CbRunWatch	watch;			/* of its runs */
	PGAlignedBlock page;
} CbVerifyRange;

/* which ranges say that tiles may have entries of theirs; only if strict */
typedef struct CbVerifyTiled
{
	int64		n;
	int64		size;
	IndexTuple *highs;			/* NULL: infinite */
	bool	   *tiled;
	int64		at;				/* the range of the last entry looked up */
} CbVerifyTiled;

/* a run that is being checked */
typedef struct CbVerifyRun
{
	CbRunItem	item;
	CbRunWatch *watch;			/* NULL: its pages stay */
	CbVerifyTiled *tiled;		/* NULL: it is not a tile's, or not strict */
	IndexTuple	low;			/* bounds of its range; NULL: none */
	IndexTuple	high;
	CbVerifyLinks links;		/* to its data pages */
	int64		nentries;		/* met so far */
	IndexTuple	last;			/* the last of them, or NULL; in lastbuf */
	PGAlignedBlock lastbuf;
	PGAlignedBlock filters[CB_RUN_MAX_FILTERS];
} CbVerifyRun;

/* ---------- runs ---------- */

/*
 * Copies a page of a run, which the current page names, and checks its kind.
 * False: the run is lost.
 */
static bool
cb_verify_run_page(CbVerify *v, CbVerifyRun *run, BlockNumber blkno, int level)
{
	CbPageOpaque opaque;
	uint16		packed = level == CB_RUN_DATA_LEVEL ? CBP_PACKED : 0;

	cb_verify_read(v, blkno, v->blkno);
	if (run->watch != NULL && cb_run_is_lost(v->rel, run->watch, v->page.data))
		return false;
	cb_verify_page_frame(v);
	opaque = CbPageGetOpaque(v->page.data);
	if ((opaque->flags & ~packed) != CBP_RUN || opaque->level != level ||
		opaque->next != InvalidBlockNumber)
		cb_verify_fail(v, "It is not a page of level %d of a run: flags %04X, level %u.",
					   level, opaque->flags, opaque->level);
	cb_verify_mark_seen(v);
	return true;
}

static bool
cb_verify_filter_page(CbVerify *v, CbVerifyRun *run, int i)
{
	if (!cb_verify_run_page(v, run, run->item.filters[i], CB_RUN_FILTER_LEVEL))
		return false;
	if (((PageHeader) v->page.data)->pd_lower !=
		CB_RUN_FILTER_START + CB_RUN_FILTER_LINES * 64)
		cb_verify_fail(v, "The filter has %u bytes.",
					   ((PageHeader) v->page.data)->pd_lower);
	run->filters[i] = v->page;
	return true;
}

/* Checks the root, and takes its downlinks. */
static bool
cb_verify_run_root(CbVerify *v, CbVerifyRun *run)
{
	const CbRunItem *item = &run->item;

	if (!cb_verify_run_page(v, run, item->root, CB_RUN_ROOT_LEVEL))
		return false;
	cb_verify_line_pointers(v);
	v->level = CB_RUN_ROOT_LEVEL;
	cb_verify_list_items(v);
	if (v->nitems < 1 || v->nitems + item->nfilters + 1 != item->npages)
		cb_verify_fail(v, "The root has %d downlinks, but the run %u pages, %u of them filters.",
					   v->nitems, item->npages, item->nfilters);
	for (int i = 0; i < v->nitems; i++)
	{
		cb_verify_pivot(v, v->items[i],
						i == 0 ? CB_FORM_MINUS_INFINITY : CB_FORM_SEPARATOR, i + 1);
		cb_verify_add_link(&run->links, BTreeTupleGetDownLink(v->items[i]),
						   i == 0 ? NULL : v->items[i]);
	}
	return true;
}

/* Checks that the filters know an entry. */
static void
cb_verify_run_hash(CbVerify *v, CbVerifyRun *run, IndexTuple itup, int i)
{
	bool		isnull;
	Datum		first = index_getattr(itup, 1, v->kd.tupdesc, &isnull);
	uint32		hash = isnull ? 0 : cb_key_hash(&v->kd, first);
	uint32		within;
	int			filter = cb_run_filter_of(hash, run->item.nfilters, &within);

	if (!cb_run_filter_may_hold((Page) run->filters[filter].data, within))
		cb_verify_fail(v, "The hash of entry %d is not in the filter, which is block %u.",
					   i + 1, run->item.filters[filter]);
}

/* Takes down what a range page says. */
static void
cb_verify_note_tiled(CbVerifyTiled *tiled, IndexTuple high, bool has_tiles)
{
	if (tiled->n == tiled->size)
	{
		tiled->size = Max(2 * tiled->size, 64);
		tiled->highs = tiled->n == 0 ? palloc(tiled->size * sizeof(IndexTuple)) :
			repalloc_huge(tiled->highs, tiled->size * sizeof(IndexTuple));
		tiled->tiled = tiled->n == 0 ? palloc(tiled->size * sizeof(bool)) :
			repalloc_huge(tiled->tiled, tiled->size * sizeof(bool));
	}
	tiled->highs[tiled->n] = high ? CopyIndexTuple(high) : NULL;
	tiled->tiled[tiled->n++] = has_tiles;
}

/* Checks that the range of a tile's entry says that there are tiles. */
static void
cb_verify_is_tiled(CbVerify *v, CbVerifyTiled *tiled, IndexTuple itup, int i)
{
	while (tiled->at < tiled->n - 1 && tiled->highs[tiled->at] != NULL &&
		   cb_key_compare(&v->kd, itup, tiled->highs[tiled->at]) >= 0)
		tiled->at++;
	if (!tiled->tiled[tiled->at])
		cb_verify_fail(v, "Entry %d of a tile's run is of a range that does not say that it has tiles.",
					   i + 1);
}

/* Checks an entry: its place between the others, the separators and bounds. */
static void
cb_verify_run_entry(CbVerify *v, CbVerifyRun *run, int i, IndexTuple low,
					IndexTuple high)
{
	IndexTuple	itup = v->items[i];

	cb_verify_entry(v, itup, i + 1);
	if (run->last != NULL && cb_key_compare(&v->kd, run->last, itup) >= 0)
		cb_verify_fail(v, "Entry %d of a run is not in order.", i + 1);
	if ((low != NULL && cb_key_compare(&v->kd, low, itup) > 0) ||
		(high != NULL && cb_key_compare(&v->kd, itup, high) >= 0))
		cb_verify_fail(v, "Entry %d is not between the separators of the run's root.",
					   i + 1);
	if ((run->low != NULL && cb_key_compare(&v->kd, run->low, itup) > 0) ||
		(run->high != NULL && cb_key_compare(&v->kd, itup, run->high) >= 0))
		cb_verify_fail(v, "Entry %d of a run is not in its range.", i + 1);
	if (run->item.nfilters > 0 && v->kd.hash != CB_HASH_NONE)
		cb_verify_run_hash(v, run, itup, i);
	if (run->tiled != NULL)
		cb_verify_is_tiled(v, run->tiled, itup, i);
	run->last = itup;
}

/* Checks data page i. */
static bool
cb_verify_run_data(CbVerify *v, CbVerifyRun *run, int i)
{
	CbVerifyLinks *links = &run->links;
	IndexTuple	high = i + 1 < links->n ? links->separators[i + 1] : NULL;

	v->blkno = run->item.root;
	if (!cb_verify_run_page(v, run, links->children[i], CB_RUN_DATA_LEVEL))
		return false;
	cb_verify_line_pointers(v);
	v->level = CB_RUN_DATA_LEVEL;
	cb_verify_list_items(v);
	if (v->nitems < 1 || (v->npacked > 0 && v->nitems > v->npacked) ||
		v->nitems > CB_PACK_MAX_ENTRIES)
		cb_verify_fail(v, "A page of a run has %d entries, %d of them packed.",
					   v->nitems, v->npacked);
	for (int j = 0; j < v->nitems; j++)
		cb_verify_run_entry(v, run, j, links->separators[i], high);
	run->nentries += v->nitems;
	memcpy(run->lastbuf.data, run->last, IndexTupleSize(run->last));
	run->last = (IndexTuple) run->lastbuf.data;
	return true;
}

/*
 * Checks a run that the range page, block from, lists, as far as it is there.
 */
static void
cb_verify_run(CbVerify *v, CbVerifyRun *run, BlockNumber from)
{
	v->blkno = from;
	for (int i = 0; i < run->item.nfilters; i++)
	{
		if (!cb_verify_filter_page(v, run, i))
			return;
		v->blkno = from;
	}
	if (!cb_verify_run_root(v, run))
		return;
	for (int i = 0; i < run->links.n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(v->page_cxt);
		bool		there = cb_verify_run_data(v, run, i);

		MemoryContextSwitchTo(old);
		MemoryContextReset(v->page_cxt);
		if (!there)
			return;
	}
	v->blkno = from;
	if (run->nentries != run->item.nentries)
		cb_verify_fail(v, "The run with its root in block %u has " INT64_FORMAT " entries, not %u.",
					   run->item.root, run->nentries, run->item.nentries);
}

/*
 * Checks a run of a range or of a tile, which has these bounds and is on the page
 * in this block.
 */
static void
cb_verify_listed_run(CbVerify *v, const CbRunItem *item, CbRunWatch *watch,
					 CbVerifyTiled *tiled, IndexTuple low, IndexTuple high,
					 BlockNumber from)
{
	CbVerifyRun *run = palloc(sizeof(CbVerifyRun));

	memset(run, 0, offsetof(CbVerifyRun, lastbuf));
	run->item = *item;
	run->watch = watch;
	run->tiled = tiled;
	run->low = low;
	run->high = high;
	cb_verify_run(v, run, from);
	cb_verify_free_links(&run->links);
	pfree(run);
}

/*
 * Checks the runs of a range.  The entries of retired ones are in tiles or the
 * leaves, and the range may have been split since.
 */
static void
cb_verify_runs(CbVerify *v, CbVerifyRange *range, BlockNumber blkno)
{
	Page		page = (Page) range->page.data;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	Tuplesortstate *indexed = v->indexed;

	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		CbRunItem  *item = CbRangeGetRun(page, off);
		bool		live = CbRunIsLive(item);

		if (!live && !v->strict)
			continue;
		v->indexed = live ? indexed : NULL;
		cb_verify_listed_run(v, item, TransactionStartedDuringRecovery() ?
							 &range->watch : NULL, NULL,
							 range->low, live ? range->high : NULL, blkno);
		v->indexed = indexed;
	}
}

/*
 * Checks the old run of a tile, whose entries are elsewhere; the tile may have been
 * cut since.
 */
static void
cb_verify_old_run(CbVerify *v, const CbRunItem *item, IndexTuple low,
				  BlockNumber from)
{
	Tuplesortstate *indexed = v->indexed;

	v->indexed = NULL;
	cb_verify_listed_run(v, item, NULL, NULL, low, NULL, from);
	v->indexed = indexed;
}

/*
 * Checks the runs of a tile page's tiles, from the tile on that begins at "begin",
 * or from the first one (NULL).  Returns the low key, palloc'd, of the tile whose
 * run was lost, else NULL.
 */
static IndexTuple
cb_verify_tile_runs(CbVerify *v, CbVerifyRange *range, BlockNumber blkno,
					CbVerifyTiled *tiled, IndexTuple begin)
{
	Page		page = (Page) range->page.data;
	OffsetNumber first = CbPageFirstItem(page);
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = first; off <= max; off++)
	{
		CbTileRuns *runs = CbTileGetRuns(page, off);
		IndexTuple	low = CbPageGetTuple(page, off);
		IndexTuple	high = off == max ? range->high : CbPageGetTuple(page, off + 1);

		if (begin != NULL && cb_key_compare(&v->kd, low, begin) < 0)
			continue;
		if (off == first)
			low = range->low;
		if (runs->old.npages > 0 && v->strict)
			cb_verify_old_run(v, &runs->old, low, blkno);
		if (runs->run.npages > 0)
			cb_verify_listed_run(v, &runs->run, &range->watch,
								 v->strict ? tiled : NULL, low, high, blkno);
		if (range->watch.lost)
			return CopyIndexTuple(CbPageGetTuple(page, off));
	}
	return NULL;
}

/* ---------- pages and the downlinks to them ---------- */

/*
 * Checks type and level of an inner page, a range page or a tile page.  may: other
 * flags that it may have.
 */
static void
cb_verify_range_flags(CbVerify *v, uint16 kind, uint16 may, int level)
{
	CbPageOpaque opaque;

	cb_verify_page_frame(v);
	opaque = CbPageGetOpaque(v->page.data);
	if ((opaque->flags & ~may) != kind || opaque->level != level)
		cb_verify_fail(v, "It is not a range page or tile page of level %d: flags %04X, level %u.",
					   level, opaque->flags, opaque->level);
	cb_verify_mark_seen(v);
	cb_verify_line_pointers(v);
}

/* Checks e for the current page: a downlink is the next, or to others. */
static void
cb_verify_range_link(CbVerify *v, const CbVerifyLinks *links, int64 *next,
					 IndexTuple low)
{
	IndexTuple	separator;

	if (!v->strict || *next == links->n || links->children[*next] != v->blkno)
		return;
	separator = links->separators[(*next)++];
	if ((separator == NULL) != (low == NULL) ||
		(separator && cb_key_compare(&v->kd, separator, low) != 0))
		cb_verify_fail(v, "The separator of its downlink differs from its low key.");
}

/* Has each downlink led to a page? */
static void
cb_verify_range_links_met(CbVerify *v, const CbVerifyLinks *links, int64 next)
{
	if (!v->strict || next == links->n)
		return;
	v->blkno = links->children[next];
	cb_verify_fail(v, "A downlink leads to it, but it is not the page that comes there.");
}

/* ---------- inner pages ---------- */

/*
 * Checks that the downlinks of the current inner page are in order right of low, and
 * takes them.  Returns its high key, palloc'd; NULL: it is the rightmost.
 */
static IndexTuple
cb_verify_range_downlinks(CbVerify *v, IndexTuple low, CbVerifyLinks *below)
{
	Page		page = v->page.data;
	IndexTuple	last = low;
	IndexTuple	high = NULL;

	cb_verify_list_items(v);
	if (v->nitems < 1)
		cb_verify_fail(v, "An inner page above range pages has no downlink.");
	for (int i = 0; i < v->nitems; i++)
	{
		IndexTuple	itup = v->items[i];

		cb_verify_pivot(v, itup, i == 0 ? CB_FORM_MINUS_INFINITY : CB_FORM_SEPARATOR,
						i + CbPageFirstItem(page));
		if (i > 0 && last != NULL && cb_key_compare(&v->kd, last, itup) >= 0)
			cb_verify_fail(v, "Downlink %d is not in order.", i + 1);
		last = i > 0 ? itup : low;
		cb_verify_add_link(below, BTreeTupleGetDownLink(itup), last);
	}
	if (!CbPageIsRightmost(page))
	{
		cb_verify_pivot(v, CbPageGetHighKey(page), CB_FORM_SEPARATOR, CB_HIKEY);
		high = CopyIndexTuple(CbPageGetHighKey(page));
		if (last != NULL && cb_key_compare(&v->kd, last, high) >= 0)
			cb_verify_fail(v, "Its high key is not above its downlinks.");
	}
	return high;
}

/*
 * Walks a level of inner pages, to which these downlinks of the level above lead (0:
 * the only one leads to the root); they are replaced by the level's own.  Returns the
 * level.
 */
static int
cb_verify_range_level(CbVerify *v, int above, CbVerifyLinks *links)
{
	CbVerifyLinks below = {0};
	BlockNumber blkno = links->children[0];
	BlockNumber from = v->blkno;
	int			level = above - 1;
	int64		nextlink = 0;
	IndexTuple	low = NULL;

	while (blkno != InvalidBlockNumber)
	{
		cb_verify_read(v, blkno, from);
		if (above == 0)
		{
			cb_verify_page_frame(v);
			level = CbPageGetOpaque(v->page.data)->level;
			if (level < CB_RANGE_INNER_LEVEL || level >= CB_MAX_TREE_LEVELS)
				cb_verify_fail(v, "It is not a range root: it has level %d.", level);
		}
		cb_verify_range_flags(v, CBP_RANGE, 0, level);
		v->level = level;
		cb_verify_range_link(v, links, &nextlink, low);
		low = cb_verify_range_downlinks(v, low, &below);
		from = blkno;
		blkno = CbPageGetOpaque(v->page.data)->next;
		if (above == 0 && blkno != InvalidBlockNumber)
			cb_verify_fail(v, "The range root has a right link.");
	}
	cb_verify_range_links_met(v, links, nextlink);
	cb_verify_free_links(links);
	*links = below;
	return level;
}

/*
 * Checks the inner pages, from the root downwards, and takes the downlinks of the
 * lowest.  The metapage was read before: without strict the root may have risen.
 */
static void
cb_verify_range_inner(CbVerify *v, BlockNumber root, const CbMetaPageData *meta,
					  CbVerifyLinks *links)
{
	int			level;

	cb_verify_add_link(links, root, NULL);
	v->blkno = CB_METAPAGE_BLKNO;
	level = cb_verify_range_level(v, 0, links);
	if (level > CB_RANGE_INNER_LEVEL ?
		v->strict && meta->version != CB_FORMAT_LEVELS :
		meta->tile_root == 0 && meta->version == CB_FORMAT_LEVELS)
		cb_verify_fail(v, "It has level %d, but the metapage has version %u.", level,
					   meta->version);
	while (level > CB_RANGE_INNER_LEVEL)
		level = cb_verify_range_level(v, level, links);
}

/* ---------- range pages ---------- */

/* Is what the item of a run says possible? */
static void
cb_verify_run_item(CbVerify *v, const CbRunItem *item, OffsetNumber off)
{
	if (item->nfilters > CB_RUN_MAX_FILTERS || item->npages > CB_RUN_MAX_PAGES ||
		item->nentries == 0)
		cb_verify_fail(v, "The run at item %u has %u entries, %u pages, and %u filters.",
					   off, item->nentries, item->npages, item->nfilters);
}

/* Checks the items of the current range page. */
static void
cb_verify_range_items(CbVerify *v)
{
	Page		page = v->page.data;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			nlive = 0;

	if (max - CbPageFirstItem(page) > CB_RANGE_MAX_ITEMS)
		cb_verify_fail(v, "A range page has %u items.", max);
	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		CbRunItem  *item = CbRangeGetRun(page, off);

		cb_verify_run_item(v, item, off);
		nlive += CbRunIsLive(item);
	}
	if (nlive > CB_RANGE_MAX_RUNS)
		cb_verify_fail(v, "It lists %d runs.", nlive);
}

/* Checks the items of the current tile page: the tiles come in order. */
static void
cb_verify_tile_items(CbVerify *v, const CbVerifyRange *range)
{
	Page		page = v->page.data;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	IndexTuple	low = range->low;

	for (OffsetNumber off = CbPageFirstItem(page); off <= max; off++)
	{
		CbTileRuns *runs = CbTileGetRuns(page, off);
		IndexTuple	high = off == max ? range->high : CbPageGetTuple(page, off + 1);

		if (runs->run.npages > 0)
			cb_verify_run_item(v, &runs->run, off);
		if (runs->old.npages > 0)
			cb_verify_run_item(v, &runs->old, off);
		if (off < max)
			cb_verify_pivot(v, high, CB_FORM_SEPARATOR, off + 1);
		if (low != NULL && high != NULL && cb_key_compare(&v->kd, low, high) >= 0)
			cb_verify_fail(v, "The tile at item %u begins where the next one does, or later.", off);
		low = high;
	}
}

/*
 * Checks the current page of this kind, whose low key should be low, and takes
 * it.
 */
static void
cb_verify_range_page(CbVerify *v, uint16 kind, IndexTuple low,
					 CbVerifyRange *range)
{
	Page		page = v->page.data;

	memset(range, 0, offsetof(CbVerifyRange, page));
	cb_verify_range_flags(v, kind, kind == CBP_RANGE ? CBP_HAS_TILES : 0,
						  CB_RANGE_LEVEL);
	if (PageGetMaxOffsetNumber(page) < CbPageFirstItem(page))
		cb_verify_fail(v, "Its low key is missing.");
	cb_verify_pivot(v, CbRangeGetLow(page),
					low ? CB_FORM_SEPARATOR : CB_FORM_MINUS_INFINITY,
					CbPageFirstItem(page));
	if (low != NULL)
	{
		range->low = CopyIndexTuple(CbRangeGetLow(page));
		if (cb_key_compare(&v->kd, low, range->low) != 0)
			cb_verify_fail(v, "Its low key differs from the high key of the page on the left.");
	}
	range->next = CbPageGetOpaque(page)->next;
	range->watch = (CbRunWatch) {.range = v->blkno,.lsn = PageGetLSN(page)};
	if (!CbPageIsRightmost(page))
	{
		cb_verify_pivot(v, CbPageGetHighKey(page), CB_FORM_SEPARATOR, CB_HIKEY);
		range->high = CopyIndexTuple(CbPageGetHighKey(page));
		if (low != NULL && cb_key_compare(&v->kd, low, range->high) >= 0)
			cb_verify_fail(v, "Its high key is not above its low key.");
	}
	if (kind == CBP_RANGE)
		cb_verify_range_items(v);
	else
		cb_verify_tile_items(v, range);
	range->page = v->page;
}

/*
 * Reads and checks the page of this kind, which block from leads to, and the runs
 * that it lists.
 */
static void
cb_verify_range_at(CbVerify *v, uint16 kind, BlockNumber blkno, BlockNumber from,
				   IndexTuple low, CbVerifyRange *range, CbVerifyTiled *tiled)
{
	IndexTuple	begin = NULL;

	cb_verify_read(v, blkno, from);
	cb_verify_range_page(v, kind, low, range);
	CB_TEST_POINT("verify-range-read");
	if (kind == CBP_RANGE)
	{
		cb_verify_runs(v, range, blkno);
		return;
	}
	CB_TEST_POINT("verify-tiles-read");
	while ((begin = cb_verify_tile_runs(v, range, blkno, tiled, begin)) != NULL)
	{
		Assert(!v->strict);		/* else it would be met twice */
		CHECK_FOR_INTERRUPTS();
		cb_verify_read(v, blkno, from);
		cb_verify_range_page(v, kind, low, range);
	}
}

/* Walks the pages of this kind, and checks the runs of each. */
static void
cb_verify_range_chain(CbVerify *v, uint16 kind, const CbVerifyLinks *links,
					  CbVerifyTiled *tiled)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch verify range",
											  ALLOCSET_DEFAULT_SIZES);
	CbVerifyRange *range = palloc(sizeof(CbVerifyRange));
	BlockNumber blkno = links->children[0];
	BlockNumber from = v->blkno;
	int64		nextlink = 0;
	IndexTuple	low = NULL;

	while (blkno != InvalidBlockNumber)
	{
		MemoryContext old = MemoryContextSwitchTo(cxt);

		cb_verify_range_at(v, kind, blkno, from, low, range, tiled);
		v->blkno = blkno;
		cb_verify_range_link(v, links, &nextlink, low);
		MemoryContextSwitchTo(old);
		if (v->strict && kind == CBP_RANGE)
			cb_verify_note_tiled(tiled, range->high,
								 CbRangeHasTiles((Page) range->page.data));
		low = range->high ? CopyIndexTuple(range->high) : NULL;
		MemoryContextReset(cxt);
		from = blkno;
		blkno = range->next;
	}
	cb_verify_range_links_met(v, links, nextlink);
	MemoryContextDelete(cxt);
}

/* Checks the pages of one kind, of which there are some. */
static void
cb_verify_range_kind(CbVerify *v, uint16 kind, const CbMetaPageData *meta,
					 CbVerifyTiled *tiled)
{
	CbVerifyLinks links = {0};

	cb_verify_range_inner(v, cb_page_meta_root(meta, kind), meta, &links);
	cb_verify_range_chain(v, kind, &links, tiled);
	cb_verify_free_links(&links);
}

/*
 * Checks d, and what e says of range pages, tile pages and runs; see the head of
 * cb_verify.c.  Comparison functions run.  One page lock is held at a time,
 * and none on exit; memory is given back.
 */
void
cb_verify_ranges(CbVerify *v)
{
	CbMetaPageData meta;
	CbVerifyTiled tiled = {0};
	MemoryContext cxt;
	MemoryContext old;

	cb_verify_meta(v, &meta);
	if (meta.range_root == 0)
		return;
	(void) cb_key_prepare_hash(&v->kd);
	cxt = AllocSetContextCreate(CurrentMemoryContext,
								"cache_batch verify ranges",
								ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(cxt);
	cb_verify_range_kind(v, CBP_RANGE, &meta, &tiled);

	/* what has left the ranges since is in tiles that it names now */
	cb_verify_meta(v, &meta);
	if (meta.tile_root != 0)
		cb_verify_range_kind(v, CBP_TILES, &meta, &tiled);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}
