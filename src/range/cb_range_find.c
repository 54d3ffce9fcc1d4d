/*-------------------------------------------------------------------------
 *
 * cb_range_find.c
 *	  The chains of range pages and of tile pages: finding, making and
 *	  splitting them.
 *
 * The root of a chain is one page.  A page that has no downlink in it is
 * reached from the one to its left.  When the root is full it is made anew, with
 * downlinks to pages at even distances.  Range pages are split while they list
 * no live run, tile pages between two tiles, in one record with the root.  None
 * is ever deleted; so a link to one stays good for as long as the index's file.
 *
 * Which chain is meant tells the kind of its pages, CBP_RANGE or CBP_TILES.  "Range
 * page" means either here, where nothing else is said.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "page/cb_wal.h"
#include "range/cb_range.h"
#include "rel/cb_alloc.h"
#include "utils/snapmgr.h"

/*
 * The root's block, as the metapage says now; 0: there is none.  Share-locks the
 * metapage for a moment.
 */
BlockNumber
cb_range_root(Relation rel, uint16 kind)
{
	CbMetaPageData meta;

	cb_rel_read_meta(rel, NULL, &meta);
	return cb_page_meta_root(&meta, kind);
}

/*
 * Reads and locks the range root, which is pinned, too; an error is raised if
 * the page is none.
 */
static Buffer
cb_range_read_root(Relation rel, BlockNumber root, int lockmode)
{
	Buffer		buf = cb_rel_read_buffer(rel, root);
	Page		page = BufferGetPage(buf);

	LockBuffer(buf, lockmode);
	cb_page_check(rel, root, page);
	if (!CbPageIsRange(page) || CbPageGetOpaque(page)->level != CB_RANGE_ROOT_LEVEL ||
		PageGetMaxOffsetNumber(page) < CbPageFirstItem(page))
		cb_report_corrupt(rel, root, "It is not the range root of range pages.");
	return buf;
}

/*
 * Reads, locks and checks a page of this kind, which the caller unlocks and
 * unpins; snapshot: of a scan, or NULL.  An error is raised if the link leads
 * nowhere, if the page is no sound one or its own right neighbour, and if it is
 * too new for the snapshot.
 */
Buffer
cb_range_read_page(Relation rel, BlockNumber blkno, uint16 kind, int lockmode,
				   Snapshot snapshot)
{
	Buffer		buf;
	Page		page;
	bool		sound;

	if (blkno == InvalidBlockNumber)
		cb_report_corrupt(rel, blkno, "A link to a range page leads nowhere.");
	buf = cb_rel_read_buffer(rel, blkno);
	page = BufferGetPage(buf);
	LockBuffer(buf, lockmode);
	cb_page_check(rel, blkno, page);
	sound = kind == CBP_TILES ? cb_tile_page_is_sound(page) : cb_range_page_is_sound(page);
	if (!sound || CbPageGetOpaque(page)->next == blkno)
		cb_report_corrupt(rel, blkno, "It is not a valid %s page.",
						  kind == CBP_TILES ? "tile" : "range");
	if (snapshot)
		TestForOldSnapshot(snapshot, rel, page);
	return buf;
}

/*
 * Is this block, which may lie beyond the file, a range page of the index?
 * Share-locks it for a moment.  An error is raised if it is not even a page of
 * the index's.
 */
bool
cb_range_is_at(Relation rel, BlockNumber blkno)
{
	Buffer		buf;
	Page		page;
	bool		result;

	if (blkno >= RelationGetNumberOfBlocks(rel))
		return false;
	buf = cb_sound_read(rel, blkno, NULL);
	page = BufferGetPage(buf);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	result = !PageIsNew(page);
	if (result)
	{
		cb_page_check(rel, blkno, page);
		result = cb_range_page_is_sound(page);
	}
	UnlockReleaseBuffer(buf);
	return result;
}

/* A bound as a page has it; NULL for minus infinity, else palloc'd. */
IndexTuple
cb_range_copy_bound(Relation rel, IndexTuple bound)
{
	return BTreeTupleGetNAtts(bound, rel) > 0 ? CopyIndexTuple(bound) : NULL;
}

/*
 * After so many moves to the right, here to next: is the chain a circle?  Then
 * an error is raised.  Cheap if asked at each move; no lock is held.
 */
void
cb_range_check_moves(Relation rel, BlockNumber next, BlockNumber moves)
{
	if (moves % CB_CHECK_MOVES == 0 && moves > RelationGetNumberOfBlocks(rel))
		cb_report_corrupt(rel, next, "The right links of range pages form a ring.");
}

/*
 * Does a range with this high key, or NULL, end before the position beside the
 * bound?  Comparisons run.
 */
bool
cb_range_is_beyond(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
				   IndexTuple high)
{
	int			cmp;

	if (high == NULL || bound->kind == CB_BOUND_MIN)
		return false;
	cmp = cb_key_compare_bound(kd, bound, high);
	return ScanDirectionIsBackward(dir) ? cmp < 0 : cmp <= 0;
}

/*
 * Has a range with these bounds, or NULL, the position beside the bound?
 * Comparisons run.
 */
bool
cb_range_covers(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
				IndexTuple low, IndexTuple high)
{
	if (low != NULL)
	{
		int			cmp = cb_key_compare_bound(kd, bound, low);

		if (ScanDirectionIsForward(dir) ? cmp > 0 : cmp >= 0)
			return false;
	}
	return !cb_range_is_beyond(kd, bound, dir, high);
}

/* The block that the root names for the bound. */
static BlockNumber
cb_range_find_child(const CbKeyDesc *kd, BlockNumber root, const CbBound *bound,
					ScanDirection dir)
{
	Buffer		buf = cb_range_read_root(kd->rel, root, BUFFER_LOCK_SHARE);
	Page		page = BufferGetPage(buf);
	OffsetNumber off = cb_tree_search_page(kd, bound, page, dir);
	BlockNumber blkno = BTreeTupleGetDownLink(CbPageGetTuple(page, off));

	UnlockReleaseBuffer(buf);
	return blkno;
}

/*
 * The page of this kind that has the first position right of the bound [last
 * left of it], pinned and locked.  from: one that does not begin right of that,
 * or InvalidBlockNumber: then the way begins at the root, which is there.
 * snapshot: as cb_range_read_page().
 *
 * Holds one page lock at a time, none on entry; comparison functions run under
 * it, as in nbtree.  Errors are raised for damage; can be cancelled.
 */
Buffer
cb_range_find(const CbKeyDesc *kd, BlockNumber root, uint16 kind,
			  const CbBound *bound, ScanDirection dir, int lockmode,
			  BlockNumber from, Snapshot snapshot)
{
	BlockNumber blkno = from != InvalidBlockNumber ? from :
		cb_range_find_child(kd, root, bound, dir);
	BlockNumber moves = 0;

	for (;;)
	{
		Buffer		buf = cb_range_read_page(kd->rel, blkno, kind, lockmode,
											 snapshot);
		Page		page = BufferGetPage(buf);

		if (!cb_range_is_beyond(kd, bound, dir, CbPageIsRightmost(page) ?
								NULL : CbPageGetHighKey(page)))
			return buf;
		blkno = CbPageGetOpaque(page)->next;
		UnlockReleaseBuffer(buf);
		cb_range_check_moves(kd->rel, blkno, ++moves);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Separators between ranges, in order, none larger than max_size; all is
 * palloc'd.  Those of ranges that the range root does not name are left out.
 * The range root is there, and is share-locked meanwhile; no comparison runs.
 */
IndexTuple *
cb_range_separators(Relation rel, BlockNumber root, Size max_size, int *n)
{
	Buffer		buf = cb_range_read_root(rel, root, BUFFER_LOCK_SHARE);
	Page		root_page = BufferGetPage(buf);
	OffsetNumber max = PageGetMaxOffsetNumber(root_page);
	IndexTuple *separators = palloc(sizeof(IndexTuple) * max);

	*n = 0;
	for (OffsetNumber off = OffsetNumberNext(FirstOffsetNumber); off <= max; off++)
	{
		IndexTuple	itup = CbPageGetTuple(root_page, off);

		if (IndexTupleSize(itup) <= max_size)
			separators[(*n)++] = CopyIndexTuple(itup);
	}
	UnlockReleaseBuffer(buf);
	return separators;
}

/* ---------- making and splitting ---------- */

#define CB_RANGE_PAGES	3		/* that one record changes, at most */

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

/* The root with its first downlink, and the first page, which has all. */
static void
cb_range_init_first(uint16 kind, Page root_page, Page range,
					BlockNumber range_blkno)
{
	IndexTuple	downlink = cb_key_minus_infinity(range_blkno);
	CbTileRuns	none = {0};

	cb_page_init(root_page, CBP_RANGE, CB_RANGE_ROOT_LEVEL);
	(void) PageAddItem(root_page, (Item) downlink, IndexTupleSize(downlink),
					   FirstOffsetNumber, false, false);
	if (kind == CBP_TILES)
	{
		cb_tile_page_init(range, NULL, InvalidBlockNumber);
		cb_tile_page_add(range, FirstOffsetNumber, downlink, &none);
	}
	else
		cb_range_page_init(range, NULL, downlink, InvalidBlockNumber);
	pfree(downlink);
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
	Buffer		bufs[CB_RANGE_PAGES];	/* metapage, root, range page */
	PGAlignedBlock images[CB_RANGE_PAGES];
	BlockNumber root;
	BlockNumber made;			/* another's */

	bufs[1] = cb_rel_alloc_page(rel);
	bufs[2] = cb_rel_alloc_page(rel);
	root = BufferGetBlockNumber(bufs[1]);
	cb_range_init_first(kind, (Page) images[1].data, (Page) images[2].data,
						BufferGetBlockNumber(bufs[2]));
	bufs[0] = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	LockBuffer(bufs[0], BUFFER_LOCK_EXCLUSIVE);
	made = cb_page_meta_root(CbPageGetMeta(BufferGetPage(bufs[0])), kind);
	if (made != 0)
	{
		UnlockReleaseBuffer(bufs[0]);
		cb_rel_return_page(rel, bufs[2]);
		cb_rel_return_page(rel, bufs[1]);
		return made;
	}
	memcpy(images[0].data, BufferGetPage(bufs[0]), BLCKSZ);
	cb_page_set_meta_range_root((Page) images[0].data, kind, root);
	cb_range_install(rel, bufs, images, CB_RANGE_PAGES);
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

/* Has the root, as it is now, room for another downlink of this size? */
static bool
cb_range_root_has_room(Relation rel, BlockNumber root, Size size)
{
	Buffer		buf = cb_range_read_root(rel, root, BUFFER_LOCK_SHARE);
	bool		result = PageGetFreeSpace(BufferGetPage(buf)) >= size;

	UnlockReleaseBuffer(buf);
	return result;
}

/*
 * Makes a root anew that names pages at even distances and is half full, so that
 * none is far from a downlink: where keys go on for ever, say, there are ever
 * more of them.  No lock is held: one that is split off meanwhile is missing in
 * it, and is reached by right links.
 */
static void
cb_range_make_root(const CbKeyDesc *kd, BlockNumber root, uint16 kind,
				   Page root_page)
{
	CbBound		bound = {.kind = CB_BOUND_MIN};
	Buffer		buf = cb_range_find(kd, root, kind, &bound, ForwardScanDirection,
									BUFFER_LOCK_SHARE, InvalidBlockNumber, NULL);
	List	   *downlinks = NIL;
	Size		space = 0;
	int			step;

	for (BlockNumber moves = 1;; moves++)
	{
		Page		page = BufferGetPage(buf);
		BlockNumber next = CbPageGetOpaque(page)->next;

		downlinks = lappend(downlinks,
							cb_key_make_downlink(CbRangeGetLow(page),
												 BufferGetBlockNumber(buf)));
		space += CbItemSpace((IndexTuple) llast(downlinks));
		UnlockReleaseBuffer(buf);
		if (next == InvalidBlockNumber)
			break;
		cb_range_check_moves(kd->rel, next, moves);
		CHECK_FOR_INTERRUPTS();
		buf = cb_range_read_page(kd->rel, next, kind, BUFFER_LOCK_SHARE, NULL);
	}

	cb_page_init(root_page, CBP_RANGE, CB_RANGE_ROOT_LEVEL);
	step = space / (CB_PAGE_ROOM / 2) + 1;
	for (int i = 0; i < list_length(downlinks); i += step)
	{
		IndexTuple	downlink = list_nth(downlinks, i);

		(void) PageAddItem(root_page, (Item) downlink, IndexTupleSize(downlink),
						   InvalidOffsetNumber, false, false);
	}
	list_free_deep(downlinks);
}

/* Puts the new page's downlink into an image of the root, if it has room. */
static void
cb_range_add_downlink(const CbKeyDesc *kd, Page root_page, IndexTuple separator,
					  BlockNumber blkno)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = separator};
	IndexTuple	downlink = cb_key_make_downlink(separator, blkno);
	OffsetNumber off;

	off = OffsetNumberNext(cb_tree_search_page(kd, &bound, root_page,
											   ForwardScanDirection));
	if (PageGetFreeSpace(root_page) >= MAXALIGN(IndexTupleSize(downlink)))
		(void) PageAddItem(root_page, (Item) downlink, IndexTupleSize(downlink),
						   off, false, false);
	pfree(downlink);
}

/* Room for a range's bounds and as many items as a range may list. */
#define CB_RANGE_MAX_SEPARATOR \
	((CB_PAGE_ROOM - CB_RANGE_MAX_ITEMS * \
	  (sizeof(CbRunItem) + sizeof(ItemIdData))) / 2 - 2 * sizeof(ItemIdData))

/*
 * Makes the root anew, in the image, if it has no room for another downlink;
 * returns whether it did.
 */
static bool
cb_range_plan_root(const CbKeyDesc *kd, BlockNumber root, uint16 kind,
				   IndexTuple separator, PGAlignedBlock *image)
{
	if (cb_range_root_has_room(kd->rel, root, CbItemSpace(separator)))
		return false;
	cb_range_make_root(kd, root, kind, (Page) image->data);
	return true;
}

/*
 * Splits a page, as one atomic action, with the root: the left one and the new
 * right one are locked, their images are made.  anew: so is the root's.
 * Comparisons run, and an error is raised if one has released a lock.
 */
static void
cb_range_finish_split(const CbKeyDesc *kd, BlockNumber root, Buffer *bufs,
					  PGAlignedBlock *images, bool anew, IndexTuple separator)
{
	bufs[2] = cb_range_read_root(kd->rel, root, BUFFER_LOCK_EXCLUSIVE);
	if (!anew)
		memcpy(images[2].data, BufferGetPage(bufs[2]), BLCKSZ);
	cb_range_add_downlink(kd, (Page) images[2].data, separator,
						  BufferGetBlockNumber(bufs[1]));
	for (int i = 0; i < CB_RANGE_PAGES; i++)
		cb_tree_check_still_locked(kd->rel, bufs[i]);

	CB_TEST_POINT("range-split-before");
	cb_range_install(kd->rel, bufs, images, CB_RANGE_PAGES);
	CB_TEST_POINT("range-split-after");
}

/*
 * Splits the range page at a separator within it, if it lists no live run: one
 * atomic action, with the range root.  False: it could not be done, as the
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
	Buffer		bufs[CB_RANGE_PAGES];	/* left, right, range root */
	PGAlignedBlock images[CB_RANGE_PAGES];
	bool		anew;
	Page		left;
	BlockNumber right;

	if (IndexTupleSize(separator) > CB_RANGE_MAX_SEPARATOR)
		return false;
	anew = cb_range_plan_root(kd, root, CBP_RANGE, separator, &images[2]);
	CB_TEST_POINT("range-split-planned");
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
	cb_range_finish_split(kd, root, bufs, images, anew, separator);
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

/*
 * Takes down the tile of a locked tile page that has the first position right of
 * the bound [last left of it].  The bounds are copies, palloc'd.  Comparison
 * functions run.
 */
void
cb_tile_read(const CbKeyDesc *kd, Buffer buf, const CbBound *bound,
			 ScanDirection dir, CbTile *tile)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	OffsetNumber off = cb_tree_search_page(kd, bound, page, dir);

	tile->blkno = BufferGetBlockNumber(buf);
	tile->lsn = BufferGetLSNAtomic(buf);
	tile->off = off;
	tile->first = off == CbPageFirstItem(page);
	tile->low = cb_range_copy_bound(kd->rel, CbPageGetTuple(page, off));
	if (off < max)
		tile->high = CopyIndexTuple(CbPageGetTuple(page, off + 1));
	else
		tile->high = CbPageIsRightmost(page) ? NULL :
			CopyIndexTuple(CbPageGetHighKey(page));
	tile->runs = *CbTileGetRuns(page, off);
}

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
 * middle (0), as one atomic action, with the root.  It has two tiles, at least.
 *
 * The tile page's lock is held; no LWLock is, on entry or on return.  Comparisons
 * run under the root's lock, and an error is raised if one has released locks,
 * before anything is changed.  Not in recovery.
 */
void
cb_tile_split_page(const CbKeyDesc *kd, BlockNumber root, BlockNumber blkno,
				   OffsetNumber off)
{
	Relation	rel = kd->rel;
	Buffer		bufs[CB_RANGE_PAGES];	/* left, right, root */
	PGAlignedBlock images[CB_RANGE_PAGES];
	IndexTuple	separator;
	OffsetNumber max;
	bool		anew;
	Page		left;

	bufs[0] = cb_range_read_page(rel, blkno, CBP_TILES, BUFFER_LOCK_SHARE, NULL);
	left = BufferGetPage(bufs[0]);
	max = PageGetMaxOffsetNumber(left);
	if (off == InvalidOffsetNumber)
		off = (CbPageFirstItem(left) + max + 1) / 2;
	separator = CopyIndexTuple(CbPageGetTuple(left, off));
	LockBuffer(bufs[0], BUFFER_LOCK_UNLOCK);

	/* whoever has the page's lock is the only one who changes it */
	anew = cb_range_plan_root(kd, root, CBP_TILES, separator, &images[2]);
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
	cb_range_finish_split(kd, root, bufs, images, anew, separator);
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
	static const uint8 order[CB_RANGE_PAGES] = {1, 2, 0};

	for (int i = 0; i < CB_RANGE_PAGES; i++)
	{
		if (XLogRecHasBlockRef(record, order[i]))
			UnlockReleaseBuffer(cb_redo_image(record, order[i]));
	}
}
