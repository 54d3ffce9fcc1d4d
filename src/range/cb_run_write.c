/*-------------------------------------------------------------------------
 *
 * cb_run_write.c
 *	  Writing a run, and listing it; a tile's run, in the place of another one.
 *
 * One record has all pages of the run in full and the item that lists it, so
 * after a crash the run is there as a whole, or its pages are free ones that
 * VACUUM finds.  The pages are new: no full-page image is logged for them
 * besides.
 *
 * A tile's new run and its item are one record; the pages of the run that it
 * replaces are given up by the next one (cb_range_merge.c), as one record cannot
 * name the pages of both.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "range/cb_range.h"
#include "rel/cb_alloc.h"

/* entries of a data page, to begin with, and tries to find how many fit */
#define CB_RUN_GUESS	500
#define CB_RUN_TRIES	6

/* a run while it is written */
typedef struct CbRunWriter
{
	CbKeyDesc  *kd;
	int			n;				/* entries without repetitions */
	IndexTuple *items;
	int		   *places;			/* of each in what was given, and of the end */
	uint32	   *hashes;			/* NULL: no filters */
	int			guess;
	int			max_filters;
	int			ndata;			/* data pages */
	IndexTuple	separators[CB_RUN_MAX_PAGES];	/* before each */
	Size		root_space;		/* that their downlinks take in the root */
	CbRunItem	item;
	Buffer		bufs[CB_RUN_MAX_PAGES]; /* data pages, filters, root */
	PGAlignedBlock *images;
} CbRunWriter;

/* ---------- entries ---------- */

/*
 * Takes the entries without repetitions: where they are, not copies.  What
 * this and the rest of the writer allocate is left to the current memory
 * context.
 */
static void
cb_run_take(CbRunWriter *writer, const CbSortEntry *entries, int n)
{
	CbKeyDesc  *kd = writer->kd;
	bool		hashed = cb_key_prepare_hash(kd) != CB_HASH_NONE;

	writer->items = MemoryContextAllocHuge(CurrentMemoryContext,
										   sizeof(IndexTuple) * n);
	writer->places = MemoryContextAllocHuge(CurrentMemoryContext,
											sizeof(int) * (n + 1));
	writer->hashes = hashed ?
		MemoryContextAllocHuge(CurrentMemoryContext, sizeof(uint32) * n) : NULL;
	for (int i = 0; i < n; i++)
	{
		IndexTuple	itup = entries[i].itup;

		if (writer->n > 0 &&
			cb_key_compare(kd, writer->items[writer->n - 1], itup) == 0)
			continue;
		if (hashed)
			writer->hashes[writer->n] = entries[i].first_null ? 0 :
				cb_key_hash(kd, entries[i].first);
		writer->places[writer->n] = i;
		writer->items[writer->n++] = itup;
	}
	writer->places[writer->n] = n;
}

/* ---------- pages ---------- */

/* Makes a packed data page of some entries.  False: they do not fit. */
static bool
cb_run_pack_page(IndexTuple *items, int n, Page image)
{
	cb_page_init(image, CBP_RUN, CB_RUN_DATA_LEVEL);
	return cb_leaf_can_pack(items, n) && cb_leaf_put_packed(image, items, n);
}

/* Makes a plain data page of as many entries as fit; returns how many. */
static int
cb_run_fill_page(IndexTuple *items, int n, Page image)
{
	int			i;

	cb_page_init(image, CBP_RUN, CB_RUN_DATA_LEVEL);
	for (i = 0; i < n; i++)
	{
		if (PageAddItem(image, (Item) items[i], IndexTupleSize(items[i]),
						InvalidOffsetNumber, false, false) == InvalidOffsetNumber)
			break;
	}
	return i;
}

/*
 * Makes a data page of the first of n entries: packed, if there is a number
 * that fits and is more than fit unpacked.  Returns how many.
 */
static int
cb_run_make_page(CbRunWriter *writer, IndexTuple *items, int n, Page image)
{
	int			fits = 0;
	int			beyond = Min(n, CB_PACK_MAX_ENTRIES) + 1;
	int			next = writer->guess;

	for (int try = 0; try < CB_RUN_TRIES && fits + 1 < beyond; try++)
	{
		next = Max(fits + 1, Min(next, beyond - 1));
		if (cb_run_pack_page(items, next, image))
		{
			fits = next;
			next += Max(next / 16, 1);
		}
		else
		{
			beyond = next;
			next = fits > 0 ? (fits + beyond) / 2 : next * 7 / 8;
		}
	}
	if (fits > 0)
		writer->guess = fits;
	if (fits > 0 && cb_run_pack_page(items, fits, image))
		return fits;
	return cb_run_fill_page(items, n, image);
}

/* Makes the data pages: as many as the root, and one record, can name. */
static void
cb_run_make_data(CbRunWriter *writer)
{
	int			done = 0;

	while (done < writer->n &&
		   writer->ndata < CB_RUN_MAX_PAGES - 1 - writer->max_filters)
	{
		IndexTuple	separator = done == 0 ? cb_key_minus_infinity(0) :
			cb_key_make_separator(writer->kd, writer->items[done - 1],
								  writer->items[done]);
		Size		space = CbItemSpace(separator);

		if (writer->root_space + space > CB_PAGE_ROOM)
			break;
		writer->root_space += space;
		writer->separators[writer->ndata] = separator;
		done += cb_run_make_page(writer, writer->items + done, writer->n - done,
								 (Page) writer->images[writer->ndata].data);
		writer->ndata++;
	}
	writer->n = done;
}

static void
cb_run_make_filters(CbRunWriter *writer)
{
	CbRunItem  *item = &writer->item;
	PGAlignedBlock *images = writer->images + writer->ndata;

	if (writer->hashes == NULL)
		return;
	item->nfilters = Min(writer->max_filters,
						 (writer->n + CB_RUN_FILTER_ENTRIES - 1) / CB_RUN_FILTER_ENTRIES);
	for (int i = 0; i < item->nfilters; i++)
		cb_run_filter_init((Page) images[i].data);
	for (int i = 0; i < writer->n; i++)
	{
		uint32		within;
		int			filter = cb_run_filter_of(writer->hashes[i], item->nfilters,
											  &within);

		cb_run_filter_add((Page) images[filter].data, within);
	}
}

/* Makes the root, once it is known where the data pages will be. */
static void
cb_run_make_root(CbRunWriter *writer, Page image)
{
	cb_page_init(image, CBP_RUN, CB_RUN_ROOT_LEVEL);
	for (int i = 0; i < writer->ndata; i++)
	{
		BlockNumber blkno = BufferGetBlockNumber(writer->bufs[i]);
		IndexTuple	downlink = cb_key_make_downlink(writer->separators[i], blkno);

		if (PageAddItem(image, (Item) downlink, IndexTupleSize(downlink),
						InvalidOffsetNumber, false, false) == InvalidOffsetNumber)
			elog(ERROR, "cache_batch: no room in the root of a run");
		pfree(downlink);
	}
}

/*
 * Takes pages for all, pinned and exclusively locked, and fills in what
 * depends on where they are.
 */
static void
cb_run_take_pages(CbRunWriter *writer)
{
	CbRunItem  *item = &writer->item;

	item->npages = writer->ndata + item->nfilters + 1;
	item->nentries = writer->n;
	for (int i = 0; i < item->npages; i++)
		writer->bufs[i] = cb_rel_alloc_page(writer->kd->rel);
	for (int i = 0; i < item->nfilters; i++)
		item->filters[i] = BufferGetBlockNumber(writer->bufs[writer->ndata + i]);
	item->root = BufferGetBlockNumber(writer->bufs[item->npages - 1]);
	cb_run_make_root(writer, (Page) writer->images[item->npages - 1].data);
}

/*
 * Makes images of the pages of a run of sorted entries: of as many as fit.
 * Returns how many.
 */
static int
cb_run_make(CbRunWriter *writer, CbKeyDesc *kd, const CbSortEntry *entries,
			int n, int max_filters)
{
	writer->kd = kd;
	writer->guess = CB_RUN_GUESS;
	writer->max_filters = max_filters;
	writer->images = palloc(sizeof(PGAlignedBlock) * CB_RUN_MAX_PAGES);
	cb_run_take(writer, entries, n);
	cb_run_make_data(writer);
	cb_run_make_filters(writer);
	return writer->places[writer->n];
}

/*
 * Unlocks and unpins the new pages; those of a run that is not listed go back.
 */
static void
cb_run_release_pages(CbRunWriter *writer, bool listed)
{
	for (int i = 0; i < writer->item.npages; i++)
	{
		if (listed)
			UnlockReleaseBuffer(writer->bufs[i]);
		else
			cb_rel_return_page(writer->kd->rel, writer->bufs[i]);
	}
}

/* Puts the images in the place of the new pages; within the critical section. */
static void
cb_run_put_pages(CbRunWriter *writer)
{
	for (int i = 0; i < writer->item.npages; i++)
	{
		memcpy(BufferGetPage(writer->bufs[i]), writer->images[i].data, BLCKSZ);
		MarkBufferDirty(writer->bufs[i]);
	}
}

/*
 * Logs the new pages, and the page that lists the run: that of a range (tile 0) or
 * of this tile.  Within the critical section; all are locked exclusively.
 */
static void
cb_run_log(CbRunWriter *writer, Buffer listed, OffsetNumber tile)
{
	xl_cb_spill xlrec = {.npages = writer->item.npages,.tile = tile};
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbSpill);
	XLogRegisterBuffer(0, listed, REGBUF_STANDARD);
	XLogRegisterBufData(0, (char *) &writer->item, sizeof(CbRunItem));
	for (int i = 0; i < writer->item.npages; i++)
		XLogRegisterBuffer(1 + i, writer->bufs[i],
						   REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_SPILL);
	PageSetLSN(BufferGetPage(listed), lsn);
	for (int i = 0; i < writer->item.npages; i++)
		PageSetLSN(BufferGetPage(writer->bufs[i]), lsn);
}

/* ---------- of a range ---------- */

/*
 * The run's pages, and the item that lists it, as one atomic action.  All are
 * locked exclusively, and stay so.
 */
static void
cb_run_install(CbRunWriter *writer, Buffer range)
{
	Relation	rel = writer->kd->rel;

	if (RelationNeedsWAL(rel))
		XLogEnsureRecordSpace(CB_RUN_MAX_PAGES, 3);
	CB_TEST_POINT("spill-before");
	START_CRIT_SECTION();
	cb_run_put_pages(writer);
	cb_range_page_add(BufferGetPage(range), &writer->item);
	MarkBufferDirty(range);
	if (RelationNeedsWAL(rel))
		cb_run_log(writer, range, InvalidOffsetNumber);
	else if (rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		PageSetLSN(BufferGetPage(writer->bufs[writer->item.npages - 1]),
				   GetFakeLSNForUnloggedRel()); /* see CbRunCursor */
	END_CRIT_SECTION();
	CB_TEST_POINT("spill-after");
}

/*
 * Is the range page, which is locked, still that of all entries, and has it
 * room?  Comparisons run.
 */
static bool
cb_run_may_install(CbRunWriter *writer, Page range)
{
	return cb_range_page_has_room(range) &&
		(CbPageIsRightmost(range) ||
		 cb_key_compare(writer->kd, writer->items[writer->n - 1],
						CbPageGetHighKey(range)) < 0);
}

/*
 * Writes sorted entries, all of one range, as a run and lists it, as one
 * atomic action.  Returns how many, or 0 if the range page has no room, or no
 * longer has that range, or the entries are so long that few fit: then nothing
 * has changed.  It can be fewer than n, where they do not fit into a run.
 * Equal entries are written once.
 *
 * No LWLock is held, on entry or on return; the range's lock is not needed.
 * Memory is allocated in the current context and left there.  Comparisons run,
 * under the lock of the range page as well.  An error changes nothing; pages
 * that it has taken are left for VACUUM.  Not in recovery.
 */
int
cb_run_write(CbKeyDesc *kd, BlockNumber blkno, const CbSortEntry *entries,
			 int n)
{
	CbRunWriter *writer = palloc0(sizeof(CbRunWriter));
	Relation	rel = kd->rel;
	Buffer		range;
	bool		done;

	CB_TEST_POINT("spill-planned");
	if (cb_run_make(writer, kd, entries, n, CB_RUN_MAX_FILTERS) <
		Min(n, CB_RUN_MIN_ENTRIES))
		return 0;
	cb_run_take_pages(writer);

	range = cb_range_read_page(rel, blkno, CBP_RANGE, BUFFER_LOCK_EXCLUSIVE, NULL);
	done = cb_run_may_install(writer, BufferGetPage(range));
	cb_tree_check_still_locked(rel, range);
	if (done)
		cb_run_install(writer, range);
	UnlockReleaseBuffer(range);
	cb_run_release_pages(writer, done);
	return done ? writer->places[writer->n] : 0;
}

/* ---------- of a tile ---------- */

/* The run's pages, and the tile's item, as one atomic action.  All are locked. */
static void
cb_run_install_tile(CbRunWriter *writer, Buffer buf, OffsetNumber off)
{
	XLogEnsureRecordSpace(CB_RUN_MAX_PAGES, 3);
	CB_TEST_POINT("tile-before");
	START_CRIT_SECTION();
	cb_run_put_pages(writer);
	cb_tile_page_set(BufferGetPage(buf), off, &writer->item);
	MarkBufferDirty(buf);
	cb_run_log(writer, buf, off);
	END_CRIT_SECTION();
	CB_TEST_POINT("tile-after");
}

/*
 * Writes sorted entries, all that the tile's run has among them, as the tile's
 * run, in the place of that, whose pages are given up, which is another action.
 * False: they do not all fit into one; then nothing has changed.  Equal entries are
 * written once.
 *
 * The tile page's lock is held since the tile was read, and no LWLock, on entry
 * or on return.  Memory is allocated in the current context and left there.
 * Comparisons run, none under a page lock.  An error leaves the tile with the one
 * run or the other; pages that it has taken are left for VACUUM.  The index is
 * logged; not in recovery.
 */
bool
cb_run_write_tile(CbKeyDesc *kd, CbTile *tile, const CbSortEntry *entries, int n)
{
	CbRunWriter *writer = palloc0(sizeof(CbRunWriter));
	Buffer		buf;

	Assert(RelationNeedsWAL(kd->rel));
	if (cb_run_make(writer, kd, entries, n, CB_TILE_FILTERS) < n)
		return false;
	cb_tile_free_old(kd->rel, tile);
	cb_run_take_pages(writer);
	buf = cb_range_read_page(kd->rel, tile->blkno, CBP_TILES,
							 BUFFER_LOCK_EXCLUSIVE, NULL);
	cb_tile_check_page(kd->rel, tile, BufferGetPage(buf));
	cb_run_install_tile(writer, buf, tile->off);
	tile->runs = *CbTileGetRuns(BufferGetPage(buf), tile->off);
	UnlockReleaseBuffer(buf);
	cb_run_release_pages(writer, true);
	cb_tile_free_old(kd->rel, tile);
	return true;
}

/* ---------- redo ---------- */

/* The item that block 0 has as its data, where its page needs redo. */
static CbRunItem
cb_redo_run_item(XLogReaderState *record)
{
	CbRunItem	item;

	memcpy(&item, XLogRecGetBlockData(record, 0, NULL), sizeof(item));
	return item;
}

/* The range page lists the run. */
static void
cb_redo_list_run(XLogReaderState *record)
{
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_RANGE, &buf);

	if (page != NULL)
	{
		CbRunItem	item = cb_redo_run_item(record);

		cb_redo_require(record, 0, cb_range_page_has_room(page));
		cb_range_page_add(page, &item);
	}
	cb_redo_end(record, page, buf);
}

/* The tile has the run in the place of its old one. */
static void
cb_redo_tile_run(XLogReaderState *record, OffsetNumber tile)
{
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_TILES, &buf);

	if (page != NULL)
	{
		CbRunItem	item = cb_redo_run_item(record);

		cb_redo_require(record, 0, tile >= CbPageFirstItem(page) &&
						tile <= PageGetMaxOffsetNumber(page));
		cb_tile_page_set(page, tile, &item);
	}
	cb_redo_end(record, page, buf);
}

/* Redo of XLOG_CB_SPILL: the run is there before it is listed. */
void
cb_redo_spill(XLogReaderState *record)
{
	xl_cb_spill xlrec;

	cb_redo_read_data(record, &xlrec, SizeOfCbSpill);
	for (int i = 1; i <= xlrec.npages; i++)
		UnlockReleaseBuffer(cb_redo_image(record, i));
	if (xlrec.tile == InvalidOffsetNumber)
		cb_redo_list_run(record);
	else
		cb_redo_tile_run(record, xlrec.tile);
}
