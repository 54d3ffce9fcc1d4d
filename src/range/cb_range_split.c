/*-------------------------------------------------------------------------
 *
 * cb_range_split.c
 *	  Making and splitting range pages, tile pages and the inner pages above
 *	  them.
 *
 * Range pages are split while they list no live run, tile pages between two tiles, in
 * one record with the page that gets the downlink.  Before that the inner pages on the
 * way to it that have not room enough are split, from the root downwards, each in one
 * record with the one above it, which has room then.  If another has used that up
 * meanwhile, the new page has no downlink, and is reached from the one to its left.
 *
 * When the root is full its contents go to two new pages, and it names these, in one
 * record: its block stays the root's, and its level is the only one that ever changes.
 * Who has a page locked that others can come to waits for pages of higher levels only,
 * one at a time; who has locked the root, for the metapage.
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

#define CB_RANGE_PAGES	4		/* that one record changes, at most */

/* Room for a range's bounds and as many items as a range may list. */
#define CB_RANGE_MAX_SEPARATOR \
	((CB_PAGE_ROOM - CB_RANGE_MAX_ITEMS * \
	  (sizeof(CbRunItem) + sizeof(ItemIdData))) / 2 - 2 * sizeof(ItemIdData))

/*
 * Puts images in the place of n locked pages, as one atomic action, which the
 * record has in full; unlocks them.
 */
static void
cb_range_install(Relation rel, Buffer *bufs, PGAlignedBlock *images, int n)
{
	START_CRIT_SECTION();
	for (int i = 0; i < n; i++)
	{
		memcpy(BufferGetPage(bufs[i]), images[i].data, BLCKSZ);
		MarkBufferDirty(bufs[i]);
	}
	if (RelationNeedsWAL(rel))
	{
		XLogRecPtr	lsn;

		XLogBeginInsert();
		for (int i = 0; i < n; i++)
			XLogRegisterBuffer(i, bufs[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
		lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_RANGE_PAGES);
		for (int i = 0; i < n; i++)
			PageSetLSN(BufferGetPage(bufs[i]), lsn);
	}
	END_CRIT_SECTION();
	for (int i = 0; i < n; i++)
		UnlockReleaseBuffer(bufs[i]);
}

/* Adds an item to the end of an image of an inner page. */
static void
cb_range_inner_add(Relation rel, Page image, IndexTuple itup)
{
	if (PageAddItem(image, (Item) itup, IndexTupleSize(itup), InvalidOffsetNumber,
					false, false) == InvalidOffsetNumber)
		cb_report_corrupt(rel, BTreeTupleGetDownLink(itup),
						  "The page above it has more items than it has room for.");
}

/* Makes an inner page whose only item, beside a high key, is its first downlink. */
static void
cb_range_inner_init(Relation rel, Page image, int level, IndexTuple high,
					BlockNumber next, BlockNumber first)
{
	IndexTuple	downlink = cb_key_minus_infinity(first);

	cb_page_init(image, CBP_RANGE, level);
	CbPageGetOpaque(image)->next = next;
	if (high != NULL)
		cb_range_inner_add(rel, image, high);
	cb_range_inner_add(rel, image, downlink);
	pfree(downlink);
}

/* The root with its first downlink, and the first page, which has all. */
static void
cb_range_init_first(Relation rel, uint16 kind, Page root_page, Page range,
					BlockNumber range_blkno)
{
	IndexTuple	low = cb_key_minus_infinity(range_blkno);
	CbTileRuns	none = {0};

	cb_range_inner_init(rel, root_page, CB_RANGE_INNER_LEVEL, NULL,
						InvalidBlockNumber, range_blkno);
	if (kind == CBP_TILES)
	{
		cb_tile_page_init(range, NULL, InvalidBlockNumber);
		cb_tile_page_add(range, FirstOffsetNumber, low, &none);
	}
	else
		cb_range_page_init(range, NULL, low, InvalidBlockNumber);
	pfree(low);
}

/*
 * Makes the first page of this kind and the root, unless another did.  Returns
 * the root's block.  One atomic action, with the link in the metapage, which is
 * locked last.  No LWLock is held, on entry or on return; an error, as of a full
 * disk, changes nothing.  Not in recovery.
 */
BlockNumber
cb_range_create(Relation rel, uint16 kind)
{
	Buffer		bufs[3];		/* metapage, root, range page */
	PGAlignedBlock images[3];
	BlockNumber root;
	BlockNumber made;			/* another's */

	bufs[1] = cb_rel_alloc_page(rel);
	bufs[2] = cb_rel_alloc_page(rel);
	root = BufferGetBlockNumber(bufs[1]);
	cb_range_init_first(rel, kind, (Page) images[1].data, (Page) images[2].data,
						BufferGetBlockNumber(bufs[2]));
	bufs[0] = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	LockBuffer(bufs[0], BUFFER_LOCK_EXCLUSIVE);
	made = cb_page_meta_root(cb_page_check_meta(rel, BufferGetPage(bufs[0])), kind);
	if (made != 0)
	{
		UnlockReleaseBuffer(bufs[0]);
		cb_rel_return_page(rel, bufs[2]);
		cb_rel_return_page(rel, bufs[1]);
		return made;
	}
	memcpy(images[0].data, BufferGetPage(bufs[0]), BLCKSZ);
	cb_page_set_meta_range_root((Page) images[0].data, kind, root);
	cb_range_install(rel, bufs, images, lengthof(bufs));
	CB_TEST_POINT("range-created");
	return root;
}

/*
 * Does the separator lie between the bounds of a range or a tile, beside neither?
 * Of the bounds NULL is none; no separator (NULL) does.  Comparisons run.
 */
bool
cb_range_is_inside(const CbKeyDesc *kd, IndexTuple low, IndexTuple high,
				   IndexTuple separator)
{
	return separator != NULL &&
		(low == NULL || cb_key_compare(kd, low, separator) < 0) &&
		(high == NULL || cb_key_compare(kd, separator, high) < 0);
}

/*
 * Is the separator inside the range, and does the range list no live run?  The
 * page is locked; comparisons run.
 */
static bool
cb_range_can_split(const CbKeyDesc *kd, Page page, IndexTuple separator)
{
	CbRangeState state;

	cb_range_read(kd->rel, page, &state);
	if (state.nruns > 0)
		return false;
	return cb_range_is_inside(kd, state.low, state.high, separator);
}

/* The left part of a range page that is split: retired runs stay with it. */
static void
cb_range_make_left(Page image, Page page, IndexTuple high, BlockNumber next)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	cb_range_page_init(image, high, CbRangeGetLow(page), next);
	CbPageGetOpaque(image)->flags |= CbPageGetOpaque(page)->flags & CBP_HAS_TILES;
	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
		cb_range_page_add(image, CbRangeGetRun(page, off));
}

/* ---------- inner pages ---------- */

/*
 * Has an inner page room for the downlink of any page below it?  If not it has two
 * downlinks at least, so that it can be divided.
 */
static inline bool
cb_range_inner_has_room(Page page)
{
	return PageGetFreeSpace(page) >= MAXALIGN(CB_RANGE_MAX_SEPARATOR) ||
		PageGetMaxOffsetNumber(page) == CbPageFirstItem(page);
}

/* The item of an inner page, not its first one, before which half of its bytes lie. */
static OffsetNumber
cb_range_inner_middle(Page page)
{
	OffsetNumber off = CbPageFirstItem(page);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	Size		half = (CB_PAGE_ROOM - PageGetExactFreeSpace(page)) / 2;
	Size		before = 0;

	do
		before += CbItemSpace(CbPageGetTuple(page, off));
	while (++off < max && before < half);
	return off;
}

/*
 * Divides an inner page, before an item that is not its first one, into the images
 * of two; right: the right one's block.
 */
static void
cb_range_inner_divide(Relation rel, Page page, OffsetNumber off, Page left_image,
					  Page right_image, BlockNumber right)
{
	OffsetNumber first = CbPageFirstItem(page);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			level = CbPageGetOpaque(page)->level;

	cb_range_inner_init(rel, left_image, level, CbPageGetTuple(page, off), right,
						BTreeTupleGetDownLink(CbPageGetTuple(page, first)));
	for (OffsetNumber i = first + 1; i < off; i++)
		cb_range_inner_add(rel, left_image, CbPageGetTuple(page, i));
	cb_range_inner_init(rel, right_image, level, CbPageIsRightmost(page) ? NULL :
						CbPageGetHighKey(page), CbPageGetOpaque(page)->next,
						BTreeTupleGetDownLink(CbPageGetTuple(page, off)));
	for (OffsetNumber i = off + 1; i <= max; i++)
		cb_range_inner_add(rel, right_image, CbPageGetTuple(page, i));
}

/*
 * Puts the new page's downlink into the image of an inner page, if it has room.
 * Comparisons run.
 */
static void
cb_range_add_downlink(const CbKeyDesc *kd, Page page, IndexTuple separator,
					  BlockNumber blkno)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = separator};
	IndexTuple	downlink = cb_key_make_downlink(separator, blkno);
	OffsetNumber off = OffsetNumberNext(cb_tree_search_page(kd, &bound, page,
															ForwardScanDirection));

	if (PageGetFreeSpace(page) >= MAXALIGN(IndexTupleSize(downlink)))
		(void) PageAddItem(page, (Item) downlink, IndexTupleSize(downlink), off,
						   false, false);
	pfree(downlink);
}

/*
 * Splits a page of the level below, as one atomic action, with the inner page that
 * gets the new one's downlink: the left one and the new right one, bufs[0] and [1],
 * are locked, their images are made.  bufs and images have room for one more.
 * Comparisons run, and an error is raised if one has released a lock.
 */
static void
cb_range_finish_split(const CbKeyDesc *kd, BlockNumber root, int level,
					  Buffer *bufs, PGAlignedBlock *images, IndexTuple separator)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = separator};

	bufs[2] = cb_range_find_inner(kd, root, &bound, level, BUFFER_LOCK_EXCLUSIVE);
	memcpy(images[2].data, BufferGetPage(bufs[2]), BLCKSZ);
	cb_range_add_downlink(kd, (Page) images[2].data, separator,
						  BufferGetBlockNumber(bufs[1]));
	for (int i = 0; i < 3; i++)
		cb_tree_check_still_locked(kd->rel, bufs[i]);

	CB_TEST_POINT("range-split-before");
	cb_range_install(kd->rel, bufs, images, 3);
	CB_TEST_POINT("range-split-after");
}

/*
 * Moves what the root has to two new pages, and has it name these, as one atomic
 * action.  The root is full, and locked exclusively; it is unlocked.
 */
static void
cb_range_raise_root(Relation rel, Buffer root_buf)
{
	Buffer		bufs[4];		/* metapage, left, right, root */
	PGAlignedBlock images[4];
	Page		root = BufferGetPage(root_buf);
	Page		image = (Page) images[3].data;
	OffsetNumber off = cb_range_inner_middle(root);
	IndexTuple	downlink;

	bufs[1] = cb_rel_alloc_page(rel);
	bufs[2] = cb_rel_alloc_page(rel);
	bufs[3] = root_buf;
	cb_range_inner_divide(rel, root, off, (Page) images[1].data, (Page) images[2].data,
						  BufferGetBlockNumber(bufs[2]));
	cb_range_inner_init(rel, image, CbPageGetOpaque(root)->level + 1, NULL,
						InvalidBlockNumber, BufferGetBlockNumber(bufs[1]));
	downlink = cb_key_make_downlink(CbPageGetTuple(root, off),
									BufferGetBlockNumber(bufs[2]));
	cb_range_inner_add(rel, image, downlink);
	pfree(downlink);
	bufs[0] = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	LockBuffer(bufs[0], BUFFER_LOCK_EXCLUSIVE);
	(void) cb_page_check_meta(rel, BufferGetPage(bufs[0]));
	memcpy(images[0].data, BufferGetPage(bufs[0]), BLCKSZ);
	cb_page_set_meta_version((Page) images[0].data);

	CB_TEST_POINT("range-rise-before");
	cb_range_install(rel, bufs, images, 4);
	CB_TEST_POINT("range-rise-after");
}

/* Splits an inner page that is full and locked exclusively; it is unlocked. */
static void
cb_range_split_inner(const CbKeyDesc *kd, BlockNumber root, Buffer buf)
{
	Buffer		bufs[3];		/* left, right, the one above */
	PGAlignedBlock images[3];
	Page		page = BufferGetPage(buf);
	OffsetNumber off = cb_range_inner_middle(page);
	IndexTuple	separator = CopyIndexTuple(CbPageGetTuple(page, off));

	bufs[0] = buf;
	bufs[1] = cb_rel_alloc_page(kd->rel);
	cb_range_inner_divide(kd->rel, page, off, (Page) images[0].data,
						  (Page) images[1].data, BufferGetBlockNumber(bufs[1]));
	cb_range_finish_split(kd, root, CbPageGetOpaque(page)->level + 1, bufs, images,
						  separator);
	pfree(separator);
}

/*
 * Makes room for a downlink in the inner pages on the way to the separator, from the
 * root downwards.  A half of a page that was split may be too full again, where items
 * are of very different sizes.
 *
 * No LWLock is held, on entry or on return; comparisons run under page locks, and an
 * error is raised if one has released them.
 */
static void
cb_range_make_room(const CbKeyDesc *kd, BlockNumber root, IndexTuple separator)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = separator};
	int			level = cb_range_root_level(kd->rel, root);

	while (level >= CB_RANGE_INNER_LEVEL)
	{
		Buffer		buf = cb_range_find_inner(kd, root, &bound, level,
											  BUFFER_LOCK_EXCLUSIVE);

		if (cb_range_inner_has_room(BufferGetPage(buf)))
		{
			UnlockReleaseBuffer(buf);
			level--;
		}
		else if (BufferGetBlockNumber(buf) == root)
			cb_range_raise_root(kd->rel, buf);
		else
			cb_range_split_inner(kd, root, buf);
	}
	CB_TEST_POINT("range-split-planned");
}

/* ---------- range pages ---------- */

/*
 * Splits the range page at a separator within it, if it lists no live run: one
 * atomic action, with the inner page above.  False: it could not be done, as the
 * separator is not inside any more, say, or so long that bounds would leave
 * too little room for runs; then nothing has changed.
 *
 * No LWLock is held, on entry or on return; the range's lock is not needed.
 * Comparisons run under page locks, and an error is raised, before anything is
 * changed, if one has released them.  Not in recovery.
 */
bool
cb_range_split(const CbKeyDesc *kd, BlockNumber root, IndexTuple separator)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = separator};
	Relation	rel = kd->rel;
	Buffer		bufs[3];		/* left, right, the inner page above */
	PGAlignedBlock images[3];
	Page		left;
	BlockNumber right;

	if (IndexTupleSize(separator) > CB_RANGE_MAX_SEPARATOR)
		return false;
	cb_range_make_room(kd, root, separator);
	bufs[1] = cb_rel_alloc_page(rel);
	right = BufferGetBlockNumber(bufs[1]);
	bufs[0] = cb_range_find(kd, root, CBP_RANGE, &bound, ForwardScanDirection,
							BUFFER_LOCK_EXCLUSIVE, InvalidBlockNumber, NULL);
	left = BufferGetPage(bufs[0]);
	if (!cb_range_can_split(kd, left, separator))
	{
		UnlockReleaseBuffer(bufs[0]);
		cb_rel_return_page(rel, bufs[1]);
		return false;
	}
	cb_range_make_left((Page) images[0].data, left, separator, right);
	cb_range_page_init((Page) images[1].data,
					   CbPageIsRightmost(left) ? NULL : CbPageGetHighKey(left),
					   separator, CbPageGetOpaque(left)->next);
	CbPageGetOpaque((Page) images[1].data)->flags |=
		CbPageGetOpaque(left)->flags & CBP_HAS_TILES;
	cb_range_finish_split(kd, root, CB_RANGE_INNER_LEVEL, bufs, images, separator);
	return true;
}

/*
 * Notes on a range page that tiles may have entries of its range from now on, as
 * one atomic action, if it does not say so.  The range's lock is held, and no
 * LWLock, on entry or on return.  Not in recovery.
 */
void
cb_range_note_tiles(Relation rel, BlockNumber blkno)
{
	Buffer		buf = cb_range_read_page(rel, blkno, CBP_RANGE,
										 BUFFER_LOCK_EXCLUSIVE, NULL);
	PGAlignedBlock image;

	if (CbRangeHasTiles(BufferGetPage(buf)))
	{
		UnlockReleaseBuffer(buf);
		return;
	}
	memcpy(image.data, BufferGetPage(buf), BLCKSZ);
	CbPageGetOpaque((Page) image.data)->flags |= CBP_HAS_TILES;
	cb_range_install(rel, &buf, &image, 1);
	CB_TEST_POINT("range-noted-tiles");
}

/* ---------- tiles ---------- */

/* Copies those tiles of a page to an image that are from first to last. */
static void
cb_tile_copy(Page image, Page page, OffsetNumber first, OffsetNumber last)
{
	for (OffsetNumber off = first; off <= last; off++)
		cb_tile_page_add(image, OffsetNumberNext(PageGetMaxOffsetNumber(image)),
						 CbPageGetTuple(page, off), CbTileGetRuns(page, off));
}

/*
 * Splits a tile page before its tile number off, which is not its first, or in the
 * middle (0), as one atomic action, with the inner page above.  It has two tiles,
 * at least.
 *
 * The tile page's lock is held; no LWLock is, on entry or on return.  Comparisons
 * run under locks, and an error is raised if one has released locks,
 * before anything is changed.  Not in recovery.
 */
void
cb_tile_split_page(const CbKeyDesc *kd, BlockNumber root, BlockNumber blkno,
				   OffsetNumber off)
{
	Relation	rel = kd->rel;
	Buffer		bufs[3];		/* left, right, the inner page above */
	PGAlignedBlock images[3];
	IndexTuple	separator;
	OffsetNumber max;
	Page		left;

	bufs[0] = cb_range_read_page(rel, blkno, CBP_TILES, BUFFER_LOCK_SHARE, NULL);
	left = BufferGetPage(bufs[0]);
	max = PageGetMaxOffsetNumber(left);
	if (off == InvalidOffsetNumber)
		off = (CbPageFirstItem(left) + max + 1) / 2;
	separator = CopyIndexTuple(CbPageGetTuple(left, off));
	LockBuffer(bufs[0], BUFFER_LOCK_UNLOCK);

	/* whoever has the page's lock is the only one who changes it */
	cb_range_make_room(kd, root, separator);
	bufs[1] = cb_rel_alloc_page(rel);
	LockBuffer(bufs[0], BUFFER_LOCK_EXCLUSIVE);
	if (max != PageGetMaxOffsetNumber(left) ||
		memcmp(CbPageGetTuple(left, off), separator, IndexTupleSize(separator)) != 0)
		elog(ERROR, "cache_batch: a tile page of index \"%s\" has changed unexpectedly",
			 RelationGetRelationName(rel));
	cb_tile_page_init((Page) images[0].data, separator, BufferGetBlockNumber(bufs[1]));
	cb_tile_copy((Page) images[0].data, left, CbPageFirstItem(left), off - 1);
	cb_tile_page_init((Page) images[1].data,
					  CbPageIsRightmost(left) ? NULL : CbPageGetHighKey(left),
					  CbPageGetOpaque(left)->next);
	cb_tile_copy((Page) images[1].data, left, off, max);
	cb_range_finish_split(kd, root, CB_RANGE_INNER_LEVEL, bufs, images, separator);
	pfree(separator);
}

/*
 * Cuts a tile that has no run in two, at a separator inside it.  False: it could
 * not be done, as the separator is so long that few would fit.  Or the tile page
 * has been split, as it had no room; then the tile is to be looked up again, and
 * to be cut (true).
 *
 * The tile page's lock is held since the tile was read; where the page was split
 * the tile may be on the new one, whose lock is not.  No LWLock is held, on entry or
 * on return; one atomic action.  Not in recovery.
 */
bool
cb_tile_cut(const CbKeyDesc *kd, BlockNumber root, const CbTile *tile,
			IndexTuple separator)
{
	Buffer		buf;
	PGAlignedBlock image;
	CbTileRuns	none = {0};

	if (IndexTupleSize(separator) > CB_RANGE_MAX_SEPARATOR)
		return false;
	buf = cb_range_read_page(kd->rel, tile->blkno, CBP_TILES,
							 BUFFER_LOCK_EXCLUSIVE, NULL);
	cb_tile_check_page(kd->rel, tile, BufferGetPage(buf));
	if (!cb_tile_page_has_room(BufferGetPage(buf), separator))
	{
		bool		single = tile->first && tile->off == PageGetMaxOffsetNumber(BufferGetPage(buf));

		UnlockReleaseBuffer(buf);
		if (single)
			return false;
		cb_tile_split_page(kd, root, tile->blkno, InvalidOffsetNumber);
		return true;
	}
	memcpy(image.data, BufferGetPage(buf), BLCKSZ);
	cb_tile_page_add((Page) image.data, OffsetNumberNext(tile->off), separator, &none);
	cb_range_install(kd->rel, &buf, &image, 1);
	CB_TEST_POINT("tile-cut");
	return true;
}

/*
 * Redo of XLOG_CB_RANGE_PAGES: the images are all.  From right to left: a page
 * is there before there are links to it.
 */
void
cb_redo_range_pages(XLogReaderState *record)
{
	static const uint8 order[CB_RANGE_PAGES] = {1, 2, 3, 0};

	for (int i = 0; i < CB_RANGE_PAGES; i++)
	{
		if (XLogRecHasBlockRef(record, order[i]))
			UnlockReleaseBuffer(cb_redo_image(record, order[i]));
	}
}
