/*-------------------------------------------------------------------------
 *
 * cb_range_find.c
 *	  Finding range pages and tile pages.
 *
 * Above the chain of either kind of pages are levels of inner pages, the topmost of
 * which is one page, the range root.  Its block stays the root for as long as the
 * index's file: when the root is full its contents go to two new pages, and it rises
 * by a level (cb_range_split.c).  Pages of a level have right links and high keys, and
 * a page without downlink is reached from the one to its left, as in Lehman and Yao's
 * tree: readers lock one page at a time.  None is ever deleted; so a link to one stays
 * good.
 *
 * Which chain is meant tells the kind of its pages, CBP_RANGE or CBP_TILES; inner pages
 * above either have CBP_RANGE.  "Range page" means either here, where nothing else is
 * said.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "miscadmin.h"
#include "range/cb_range.h"
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
 * Reads and locks an inner page, of this level if it is not 0, which the caller
 * unlocks and unpins.  An error is raised if the page is none, or if it is to be
 * changed and its items cannot be what they should be.
 */
Buffer
cb_range_read_inner(Relation rel, BlockNumber blkno, int level, int lockmode)
{
	Buffer		buf = cb_rel_read_buffer(rel, blkno);
	Page		page = BufferGetPage(buf);
	int			at;

	cb_sound_lock(rel, buf, lockmode);
	cb_page_check(rel, blkno, page);
	at = CbPageGetOpaque(page)->level;
	if (!CbPageIsRange(page) || at < CB_RANGE_INNER_LEVEL ||
		at >= CB_MAX_TREE_LEVELS || (level != 0 && at != level) ||
		PageGetMaxOffsetNumber(page) < CbPageFirstItem(page) ||
		CbPageGetOpaque(page)->next == blkno ||
		(lockmode == BUFFER_LOCK_EXCLUSIVE &&
		 !(cb_page_items_are_inside(page) &&
		   cb_sound_pivots(rel, page, FirstOffsetNumber, PageGetMaxOffsetNumber(page)))))
		cb_report_corrupt(rel, blkno, "It is not an inner page above range pages.");
	return buf;
}

/*
 * The level of the root, which can rise as soon as it is known.  No LWLock is held,
 * on entry or on return.
 */
int
cb_range_root_level(Relation rel, BlockNumber root)
{
	Buffer		buf = cb_range_read_inner(rel, root, 0, BUFFER_LOCK_SHARE);
	int			level = CbPageGetOpaque(BufferGetPage(buf))->level;

	UnlockReleaseBuffer(buf);
	return level;
}

/*
 * Reads, locks and checks a page of this kind, which the caller unlocks and
 * unpins; snapshot: of a scan, or NULL.  An error is raised if the link leads
 * nowhere, if the page is no sound one (its bounds are looked at each time, as redo
 * may have read it in, and scans end there) or its own right neighbour, and if it is
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
	cb_sound_lock(rel, buf, lockmode);
	cb_page_check(rel, blkno, page);
	sound = kind == CBP_TILES ? cb_tile_page_is_sound(page) : cb_range_page_is_sound(page);
	if (sound)
		sound = cb_sound_pivots(rel, page, FirstOffsetNumber, CbPageFirstItem(page));
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
 * an error is raised.  Cheap if asked at each move.
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

/* Is the place beside the bound beyond this page, which is locked? */
static bool
cb_range_page_is_left(const CbKeyDesc *kd, const CbBound *bound,
					  ScanDirection dir, Page page)
{
	return cb_range_is_beyond(kd, bound, dir, CbPageIsRightmost(page) ? NULL :
							  CbPageGetHighKey(page));
}

/*
 * Descends from the root to a page of this level that has the place beside the
 * bound, or lies left of it.  The page itself is read only if it is the root.
 */
static BlockNumber
cb_range_descend(const CbKeyDesc *kd, BlockNumber root, const CbBound *bound,
				 ScanDirection dir, int level)
{
	BlockNumber blkno = root;
	BlockNumber moves = 0;
	int			at = 0;			/* level of that page; 0: not known yet */

	do
	{
		Buffer		buf = cb_range_read_inner(kd->rel, blkno, at, BUFFER_LOCK_SHARE);
		Page		page = BufferGetPage(buf);

		at = CbPageGetOpaque(page)->level;
		if (at < level)
			cb_report_corrupt(kd->rel, blkno, "It has level %d, but there was level %d.",
							  at, level);
		if (cb_range_page_is_left(kd, bound, dir, page))
		{
			blkno = CbPageGetOpaque(page)->next;
			cb_range_check_moves(kd->rel, blkno, ++moves);
		}
		else if (at > level)
		{
			OffsetNumber off = cb_tree_search_page(kd, bound, page, dir);

			blkno = BTreeTupleGetDownLink(CbPageGetTuple(page, off));
			at--;
		}
		UnlockReleaseBuffer(buf);
		CHECK_FOR_INTERRUPTS();
	} while (at > level);
	return blkno;
}

/*
 * The inner page of this level that has the place right of the bound, pinned and
 * locked.  The root is there, and of this level at least; it may rise meanwhile.
 *
 * One lock is held at a time, beside what the caller has on lower levels;
 * comparison functions run under it, and an error is raised if one has released it
 * where the page is to be changed.  Errors are raised for damage, too.
 */
Buffer
cb_range_find_inner(const CbKeyDesc *kd, BlockNumber root, const CbBound *bound,
					int level, int lockmode)
{
	BlockNumber blkno = InvalidBlockNumber;
	BlockNumber moves = 0;

	for (;;)
	{
		Buffer		buf;
		Page		page;
		bool		risen;

		if (blkno == InvalidBlockNumber)
		{
			blkno = cb_range_descend(kd, root, bound, ForwardScanDirection, level);
			CB_TEST_POINT("range-inner-found");
		}
		buf = cb_range_read_inner(kd->rel, blkno, blkno == root ? 0 : level,
								  lockmode);
		page = BufferGetPage(buf);
		risen = CbPageGetOpaque(page)->level != level;	/* the root */
		if (!risen && !cb_range_page_is_left(kd, bound, ForwardScanDirection, page))
		{
			if (lockmode == BUFFER_LOCK_EXCLUSIVE)
				cb_tree_check_still_locked(kd->rel, buf);
			return buf;
		}
		blkno = risen ? InvalidBlockNumber : CbPageGetOpaque(page)->next;
		UnlockReleaseBuffer(buf);
		cb_range_check_moves(kd->rel, blkno, ++moves);
		CHECK_FOR_INTERRUPTS();
	}
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
		cb_range_descend(kd, root, bound, dir, CB_RANGE_LEVEL);
	BlockNumber moves = 0;

	for (;;)
	{
		Buffer		buf = cb_range_read_page(kd->rel, blkno, kind, lockmode,
											 snapshot);
		Page		page = BufferGetPage(buf);

		if (!cb_range_page_is_left(kd, bound, dir, page))
			return buf;
		blkno = CbPageGetOpaque(page)->next;
		UnlockReleaseBuffer(buf);
		cb_range_check_moves(kd->rel, blkno, ++moves);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
cb_range_add_separator(IndexTuple *separators, int *n, IndexTuple separator,
					   Size max_size)
{
	if (IndexTupleSize(separator) <= max_size)
		separators[(*n)++] = CopyIndexTuple(separator);
}

/* As cb_range_separators(), all that a level of inner pages has. */
static IndexTuple *
cb_range_level_separators(const CbKeyDesc *kd, BlockNumber root, int level,
						  Size max_size, int *n)
{
	CbBound		bound = {.kind = CB_BOUND_MIN};
	Buffer		buf = cb_range_find_inner(kd, root, &bound, level,
										  BUFFER_LOCK_SHARE);
	IndexTuple *separators = palloc(0);
	BlockNumber moves = 0;

	*n = 0;
	for (;;)
	{
		Page		page = BufferGetPage(buf);
		OffsetNumber max = PageGetMaxOffsetNumber(page);
		BlockNumber next = CbPageGetOpaque(page)->next;

		separators = repalloc_huge(separators, sizeof(IndexTuple) * (*n + max));
		for (OffsetNumber off = OffsetNumberNext(CbPageFirstItem(page)); off <= max; off++)
			cb_range_add_separator(separators, n, CbPageGetTuple(page, off), max_size);
		if (next != InvalidBlockNumber)
			cb_range_add_separator(separators, n, CbPageGetHighKey(page), max_size);
		UnlockReleaseBuffer(buf);
		if (next == InvalidBlockNumber)
			return separators;

		/* each is of a page of its own */
		if (*n > RelationGetNumberOfBlocks(kd->rel))
			cb_report_corrupt(kd->rel, next, "The right links of level %d above range pages form a ring.",
							  level);
		cb_range_check_moves(kd->rel, next, ++moves);
		CHECK_FOR_INTERRUPTS();
		buf = cb_range_read_inner(kd->rel, next, level, BUFFER_LOCK_SHARE);
	}
}

/*
 * Separators between ranges, in order, none larger than max_size; all is
 * palloc'd.  So many or more, if there are; else those of all ranges, but for the
 * ones that no inner page names.  The root is there; no comparison runs.
 */
IndexTuple *
cb_range_separators(const CbKeyDesc *kd, BlockNumber root, int wanted,
					Size max_size, int *n)
{
	for (int level = cb_range_root_level(kd->rel, root);; level--)
	{
		IndexTuple *separators = cb_range_level_separators(kd, root, level, max_size, n);

		if (*n >= wanted || level == CB_RANGE_INNER_LEVEL)
			return separators;
		pfree(separators);
	}
}

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
