/*-------------------------------------------------------------------------
 *
 * cb_range_find.c
 *	  The range pages: finding, making and splitting them.
 *
 * The range root is one page.  A range page that has no downlink in it is
 * reached from the one to its left.  When the range root is full it is made
 * anew, with downlinks to ranges at even distances.  Range pages are split
 * while they list no live run, in one record with the range root, and are
 * never deleted; so a link to one stays good for as long as the index's file.
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
 * The range root's block, as the metapage says now; 0: there is none.
 * Share-locks the metapage for a moment.
 */
BlockNumber
cb_range_root(Relation rel)
{
	CbMetaPageData meta;

	cb_rel_read_meta(rel, NULL, &meta);
	return meta.range_root;
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
 * Reads, locks and checks a range page, which the caller unlocks and unpins;
 * snapshot: of a scan, or NULL.  An error is raised if the link leads nowhere,
 * if the page is no sound range page or its own right neighbour, and if it is
 * too new for the snapshot.
 */
Buffer
cb_range_read_page(Relation rel, BlockNumber blkno, int lockmode,
				   Snapshot snapshot)
{
	Buffer		buf;
	Page		page;

	if (blkno == InvalidBlockNumber)
		cb_report_corrupt(rel, blkno, "A link to a range page leads nowhere.");
	buf = cb_rel_read_buffer(rel, blkno);
	page = BufferGetPage(buf);
	LockBuffer(buf, lockmode);
	cb_page_check(rel, blkno, page);
	if (!cb_range_page_is_sound(page) || CbPageGetOpaque(page)->next == blkno)
		cb_report_corrupt(rel, blkno, "It is not a valid range page.");
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

/* The block that the range root names for the bound. */
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
 * The range page that has the first position right of the bound [last left of
 * it], pinned and locked.  from: one that does not begin right of that, or
 * InvalidBlockNumber: then the way begins at the range root, root, which is
 * there.  snapshot: as cb_range_read_page().
 *
 * Holds one page lock at a time, none on entry; comparison functions run under
 * it, as in nbtree.  Errors are raised for damage; can be cancelled.
 */
Buffer
cb_range_find(const CbKeyDesc *kd, BlockNumber root, const CbBound *bound,
			  ScanDirection dir, int lockmode, BlockNumber from,
			  Snapshot snapshot)
{
	BlockNumber blkno = from != InvalidBlockNumber ? from :
		cb_range_find_child(kd, root, bound, dir);
	BlockNumber moves = 0;

	for (;;)
	{
		Buffer		buf = cb_range_read_page(kd->rel, blkno, lockmode, snapshot);
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

#define CB_RANGE_PAGES	3		/* that one record changes */

/*
 * Puts images in the place of locked pages, as one atomic action, which the
 * record has in full; unlocks them.
 */
static void
cb_range_install(Relation rel, Buffer *bufs, PGAlignedBlock *images)
{
	START_CRIT_SECTION();
	for (int i = 0; i < CB_RANGE_PAGES; i++)
	{
		memcpy(BufferGetPage(bufs[i]), images[i].data, BLCKSZ);
		MarkBufferDirty(bufs[i]);
	}
	if (RelationNeedsWAL(rel))
	{
		XLogRecPtr	lsn;

		XLogBeginInsert();
		for (int i = 0; i < CB_RANGE_PAGES; i++)
			XLogRegisterBuffer(i, bufs[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
		lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_RANGE_PAGES);
		for (int i = 0; i < CB_RANGE_PAGES; i++)
			PageSetLSN(BufferGetPage(bufs[i]), lsn);
	}
	END_CRIT_SECTION();
	for (int i = 0; i < CB_RANGE_PAGES; i++)
		UnlockReleaseBuffer(bufs[i]);
}

/*
 * The range root with its first downlink, or the first range page, which has
 * all.
 */
static void
cb_range_init_first(Page root_page, Page range, BlockNumber range_blkno)
{
	IndexTuple	downlink = cb_key_minus_infinity(range_blkno);

	cb_page_init(root_page, CBP_RANGE, CB_RANGE_ROOT_LEVEL);
	(void) PageAddItem(root_page, (Item) downlink, IndexTupleSize(downlink),
					   FirstOffsetNumber, false, false);
	cb_range_page_init(range, NULL, downlink, InvalidBlockNumber);
	pfree(downlink);
}

/* Sets the metapage's link; it has the tier of runs then. */
static void
cb_range_set_meta(Page page, BlockNumber root)
{
	CbMetaPageData *meta = CbPageGetMeta(page);

	meta->range_root = root;
	if (meta->ntiers == 2)
	{
		meta->tiers[2] = meta->tiers[1];
		meta->tiers[1] = CB_TIER_RUNS;
		meta->ntiers = 3;
	}
}

/*
 * Makes the first range page and the range root, unless another did.  Returns
 * the range root's block.  One atomic action, with the link in the metapage,
 * which is locked last.  No LWLock is held, on entry or on return; an error,
 * as of a full disk, changes nothing.  Not in recovery.
 */
BlockNumber
cb_range_create(Relation rel)
{
	Buffer		bufs[CB_RANGE_PAGES];	/* metapage, range root, range page */
	PGAlignedBlock images[CB_RANGE_PAGES];
	BlockNumber root;

	bufs[1] = cb_rel_alloc_page(rel);
	bufs[2] = cb_rel_alloc_page(rel);
	root = BufferGetBlockNumber(bufs[1]);
	cb_range_init_first((Page) images[1].data, (Page) images[2].data,
						BufferGetBlockNumber(bufs[2]));
	bufs[0] = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	LockBuffer(bufs[0], BUFFER_LOCK_EXCLUSIVE);
	if (CbPageGetMeta(BufferGetPage(bufs[0]))->range_root != 0)
	{
		root = CbPageGetMeta(BufferGetPage(bufs[0]))->range_root;
		UnlockReleaseBuffer(bufs[0]);
		cb_rel_return_page(rel, bufs[2]);
		cb_rel_return_page(rel, bufs[1]);
		return root;
	}
	memcpy(images[0].data, BufferGetPage(bufs[0]), BLCKSZ);
	cb_range_set_meta((Page) images[0].data, root);
	cb_range_install(rel, bufs, images);
	CB_TEST_POINT("range-created");
	return root;
}

/*
 * Does the separator lie between the bounds of the range, beside neither?
 * Comparisons run.
 */
bool
cb_range_is_inside(const CbKeyDesc *kd, const CbRangeState *state,
				   IndexTuple separator)
{
	return (state->low == NULL || cb_key_compare(kd, state->low, separator) < 0) &&
		(state->high == NULL || cb_key_compare(kd, separator, state->high) < 0);
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
	return cb_range_is_inside(kd, &state, separator);
}

/* The left part of a range page that is split: retired runs stay with it. */
static void
cb_range_make_left(Page image, Page page, IndexTuple high, BlockNumber next)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	cb_range_page_init(image, high, CbRangeGetLow(page), next);
	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
		cb_range_page_add(image, CbRangeGetRun(page, off));
}

/* Has the range root, as it is now, room for another downlink of this size? */
static bool
cb_range_root_has_room(Relation rel, BlockNumber root, Size size)
{
	Buffer		buf = cb_range_read_root(rel, root, BUFFER_LOCK_SHARE);
	bool		result = PageGetFreeSpace(BufferGetPage(buf)) >= size;

	UnlockReleaseBuffer(buf);
	return result;
}

/*
 * Makes a range root anew that names ranges at even distances and is half
 * full, so that no range is far from a downlink: where keys go on for ever,
 * say, there are ever more ranges.  No lock is held: who splits a range
 * meanwhile is missing in it, and is reached by right links.
 */
static void
cb_range_make_root(const CbKeyDesc *kd, BlockNumber root, Page root_page)
{
	CbBound		bound = {.kind = CB_BOUND_MIN};
	Buffer		buf = cb_range_find(kd, root, &bound, ForwardScanDirection,
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
		buf = cb_range_read_page(kd->rel, next, BUFFER_LOCK_SHARE, NULL);
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

/*
 * Puts the new range's downlink into an image of the range root, if it has
 * room.
 */
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
	anew = !cb_range_root_has_room(rel, root, CbItemSpace(separator));
	if (anew)
		cb_range_make_root(kd, root, (Page) images[2].data);
	CB_TEST_POINT("range-split-planned");
	bufs[1] = cb_rel_alloc_page(rel);
	right = BufferGetBlockNumber(bufs[1]);
	bufs[0] = cb_range_find(kd, root, &bound, ForwardScanDirection,
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
	bufs[2] = cb_range_read_root(rel, root, BUFFER_LOCK_EXCLUSIVE);
	if (!anew)
		memcpy(images[2].data, BufferGetPage(bufs[2]), BLCKSZ);
	cb_range_add_downlink(kd, (Page) images[2].data, separator, right);
	for (int i = 0; i < CB_RANGE_PAGES; i++)
		cb_tree_check_still_locked(rel, bufs[i]);

	CB_TEST_POINT("range-split-before");
	cb_range_install(rel, bufs, images);
	CB_TEST_POINT("range-split-after");
	return true;
}

/*
 * Redo of XLOG_CB_RANGE_PAGES: the images are all.  From right to left: a page
 * is there before there are links to it.
 */
void
cb_redo_range_pages(XLogReaderState *record)
{
	static const uint8 order[] = {1, 2, 0};

	for (int i = 0; i < lengthof(order); i++)
		UnlockReleaseBuffer(cb_redo_image(record, order[i]));
}
