/*-------------------------------------------------------------------------
 *
 * cb_unlink.c
 *	  Taking leaves out of the tree.
 *
 * VACUUM deletes a leaf that it has left without entries, in one WAL record.
 * The right neighbour takes over the range of keys: nothing but links change,
 * and bounds of pages only ever fall.  Where a cold range is packed
 * (cb_compact.c) the right neighbour takes over the leaf's entries in the same
 * record.
 *
 *		parent:		... [P] [L] [R] ...			... [P] [R] ...
 *					     |   |   |		=>		     |   |
 *		level:		--> P > L > R -->			--> P > R -->  (L leads to R)
 *
 *	a) The right link of P, the left neighbour, leads to R.  The parent's
 *	   separator of L leads to R; R's own is dropped.
 *	b) L and R have the same parent, so that only that page changes above.  If
 *	   L is its parent's only child, the parent is deleted with it in the same
 *	   way, and so on upwards: a chain of pages that have one child each, with
 *	   the same range of keys.
 *	c) So these stay: the leftmost page and the rightmost page of each level,
 *	   and the last child of a parent as long as it has siblings.  When the
 *	   last sibling goes, the child is tried again.
 *	d) The siblings' and the deleted pages' splits are complete.
 *	e) A leaf that VACUUM has yet to come to, for entries that have moved from
 *	   it behind its back, stays until it has (A11).
 *
 * What was seen without locks is checked again under them: first P and L,
 * then the same one level up, at last the parent that loses a downlink; all
 * stay locked until the record is written; R as well if it gets L's entries.
 * L is only deleted if nobody else has it pinned: a scan that relies on its
 * pin (I8) keeps a leaf that VACUUM comes to.
 *
 * P's right link is looked at before L is locked: in between L may have got
 * entries of its left neighbour and been split below them, so that the second
 * descent came to L's right neighbour in P's place (A11_SIBLING).
 *
 * Why nobody misses an entry.  Let p, l and r be the high keys of P, L and R.
 * R covers [p, r) afterwards.  Whoever comes to L by an old link moves right,
 * as from a page that was split, to the page that has taken over [p, l), or to
 * one that was deleted since and leads on.
 *
 *	- A forward scan with a copy of P reads R in L's place, from p on; one with
 *	  a copy of L looks in R for what lies beyond l only.
 *	- A backward scan's lower bound is a separator from the way down, and its
 *	  leaf may have taken over more since.  Entries left of the bound are left
 *	  out; the next window begins there, with a descent, and has them.
 *	- Writers insert into R.  A flush with a copy of the parent descends again
 *	  where a child is no leaf any more; one that still is has the place, as its
 *	  lower bound can only have fallen.
 *	- Splits in progress: P's and L's are complete, and they are locked.  If R
 *	  is being split, the separator that is dropped is R's own; the new pages'
 *	  go behind what leads to R, before or after.
 *	- VACUUM's pass (A11): a deletion moves nothing, and what comes into the
 *	  range later is not dead (I4).  A deleted page has no mark to lead the pass
 *	  back; so a leaf is deleted only when VACUUM has been at it and taken the
 *	  mark away (A11_MARKED), and the pass tries once more when it comes to it.
 *	- An old snapshot (A16) meets the LSN of the deletion on P, L and the page
 *	  above; each way to R by which it could miss removed entries leads over
 *	  one of them.
 *	- Verification without lock skips a deleted page, and holds no lower bound
 *	  against a page whose left neighbour has been deleted since.
 *
 * A deleted page keeps its right link for those who read a link to it before.
 * safexid is the next transaction id, read while all pages with links to it are
 * locked: whoever holds such a link had a snapshot or a transaction id before,
 * so the page is used again only when no horizon is that old (cb_alloc.c).  It
 * is the horizon of all databases, as in btree; the table's is not at hand
 * where a page is taken under others' locks.  VACUUM's snapshot holds no
 * horizon back, but nobody else deletes meanwhile, nor does it while it has
 * links at hand: what they lead to was in the tree, and is not free before it
 * is deleted.
 *
 * Only one backend at a time deletes pages of an index: VACUUM, or another one
 * with a lock on the table that keeps VACUUM away.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "base/cb_heat.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "rel/cb_alloc.h"
#include "storage/bufmgr.h"
#include "storage/indexfsm.h"
#include "storage/procarray.h"
#include "tree/cb_tree.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* times that a leaf is tried whose neighbours are found to have changed */
#define CB_UNLINK_TRIES		3

typedef enum CbUnlinkResult
{
	CB_UNLINK_DONE,
	CB_UNLINK_AGAIN,			/* something has changed meanwhile */
	CB_UNLINK_NOT				/* the leaf has to stay */
} CbUnlinkResult;

/* pages to delete, the leaf first, with their left siblings: hints */
typedef struct CbUnlinkPlan
{
	int			npages;
	BlockNumber page[CB_MAX_UNLINK_PAGES];
	BlockNumber left[CB_MAX_UNLINK_PAGES];
	BlockNumber parent;			/* of the last one */
	bool		merge;			/* the leaf's entries go to its right
								 * neighbour */
} CbUnlinkPlan;

/* the same, locked */
typedef struct CbUnlinkPages
{
	int			npages;
	Buffer		page[CB_MAX_UNLINK_PAGES];
	Buffer		left[CB_MAX_UNLINK_PAGES];
	Buffer		parent;
	OffsetNumber offset;		/* of the last one's downlink in the parent */
	Buffer		right;			/* of the leaf, if that is merged; or invalid */
} CbUnlinkPages;

/*
 * Has the leaf lost all its entries, and got none since?  The page is locked,
 * and not all-zero.  The root of an index that was built without entries
 * counts as such a leaf.
 */
bool
cb_tree_leaf_is_empty(Page page)
{
	return CbPageIsLeaf(page) &&
		(CbPageGetOpaque(page)->flags & CBP_EMPTY) != 0 &&
		PageGetMaxOffsetNumber(page) < CbPageFirstItem(page);
}

/* ---------- planning ---------- */

/*
 * The high key, palloc'd, of a leaf that is to be merged, or is empty, and is
 * not the rightmost; or NULL.  The page is share-locked meanwhile.
 */
static IndexTuple
cb_unlink_copy_hikey(Relation rel, BlockNumber leaf, bool merge)
{
	Buffer		buf = cb_sound_read(rel, leaf, NULL);
	Page		page = BufferGetPage(buf);
	IndexTuple	hikey = NULL;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	cb_page_check(rel, leaf, page);
	if ((cb_tree_leaf_is_empty(page) ||
		 (merge && CbPageIsLeaf(page) && !CbPageIsGone(page))) &&
		!CbPageIsRightmost(page))
		hikey = CopyIndexTuple(CbPageGetHighKey(page));
	UnlockReleaseBuffer(buf);
	return hikey;
}

/*
 * The pages on the way to the last position left of the separator; returns the
 * leaf's lower bound, palloc'd, NULL for minus infinity.  All are hints:
 * nothing is locked any more.  Comparison functions run.
 */
static IndexTuple
cb_unlink_find_path(CbUnlinker *unlinker, IndexTuple separator, CbPath *path)
{
	CbDescent  *descent = palloc0(sizeof(CbDescent));
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = separator};

	descent->want_low = true;
	descent->path = path;
	UnlockReleaseBuffer(cb_tree_descend(&unlinker->kd, &bound,
										BackwardScanDirection, NULL, descent));
	return descent->low;
}

/*
 * Which pages are to be deleted with the leaf?  False: it has to stay.  All
 * pages of the chain have the leaf's bounds, so the way to what lies left of
 * it leads through their left siblings.
 *
 * No lock is held before or after; the plan is of hints.
 */
static bool
cb_unlink_plan(CbUnlinker *unlinker, BlockNumber leaf, bool merge,
			   CbUnlinkPlan *plan)
{
	IndexTuple	hikey = cb_unlink_copy_hikey(unlinker->rel, leaf, merge);
	IndexTuple	low;
	CbPath		path;
	CbPath		left;
	int			n = 1;

	if (hikey == NULL)
		return false;
	low = cb_unlink_find_path(unlinker, hikey, &path);
	if (low == NULL || path.blkno[0] != leaf)
		return false;
	while (n < path.nlevels && path.single[n])
		n++;
	if (n >= path.nlevels || n > (merge ? 1 : CB_MAX_UNLINK_PAGES))
		return false;

	CB_TEST_POINT("unlink-bound");
	(void) cb_unlink_find_path(unlinker, low, &left);
	plan->npages = n;
	plan->merge = merge;
	plan->parent = path.blkno[n];
	for (int i = 0; i < n; i++)
	{
		plan->page[i] = path.blkno[i];
		plan->left[i] = left.blkno[i];
		if (plan->page[i] == plan->left[i])
			return false;
	}
	return true;
}

/* ---------- locking and checking ---------- */

/*
 * Pins a page and locks it exclusively.  An error if it is not one of ours, or
 * locked already.
 */
static Buffer
cb_unlink_lock_page(Relation rel, BlockNumber blkno)
{
	Buffer		buf = cb_sound_read(rel, blkno, NULL);

	cb_sound_lock(rel, buf, BUFFER_LOCK_EXCLUSIVE);
	cb_page_check(rel, blkno, BufferGetPage(buf));
	return buf;
}

static void
cb_unlink_release(CbUnlinkPages *pages)
{
	if (BufferIsValid(pages->parent))
		UnlockReleaseBuffer(pages->parent);
	if (BufferIsValid(pages->right))
		UnlockReleaseBuffer(pages->right);
	for (int i = 0; i < pages->npages; i++)
	{
		UnlockReleaseBuffer(pages->left[i]);
		UnlockReleaseBuffer(pages->page[i]);
	}
}

static bool
cb_unlink_is_level(Page page, int level)
{
	return CbPageIsTree(page) && CbPageGetOpaque(page)->level == level;
}

/*
 * Does a page, which is locked, stand left of the page of its level?  If it
 * does it keeps doing so until it is unlocked.
 */
static bool
cb_unlink_check_left(const CbUnlinkPlan *plan, Buffer left, int level)
{
	return cb_unlink_is_level(BufferGetPage(left), level) &&
		CbPageGetOpaque(BufferGetPage(left))->next == plan->page[level];
}

/*
 * In the order of locks (I9): level by level upwards, from left to right.
 * False, with no lock: a page is not left of the other one.  It may even be
 * right of it, and must not be locked first: two descents have made the plan,
 * and in between the leaf can have got entries of its left neighbour and been
 * split below them.
 */
static bool
cb_unlink_lock(Relation rel, const CbUnlinkPlan *plan, CbUnlinkPages *pages)
{
	pages->right = pages->parent = InvalidBuffer;
	for (pages->npages = 0; pages->npages < plan->npages; pages->npages++)
	{
		int			i = pages->npages;
		Page		page;

		pages->left[i] = cb_unlink_lock_page(rel, plan->left[i]);
		if (!cb_unlink_check_left(plan, pages->left[i], i))
		{
			UnlockReleaseBuffer(pages->left[i]);
			cb_unlink_release(pages);
			return false;
		}
		pages->page[i] = cb_unlink_lock_page(rel, plan->page[i]);
		page = BufferGetPage(pages->page[i]);
		if (plan->merge && !CbPageIsRightmost(page))
			pages->right = cb_unlink_lock_page(rel, CbPageGetOpaque(page)->next);
	}
	pages->parent = cb_unlink_lock_page(rel, plan->parent);
	return true;
}

/*
 * Has the leaf been split or shared since VACUUM began, and VACUUM not been at
 * it since?  Then it is what leads VACUUM back to entries that have moved
 * (A11).
 */
static bool
cb_unlink_is_marked(Relation rel, Page page)
{
	return CbPageGetOpaque(page)->cycleid != 0 &&
		CbPageGetOpaque(page)->cycleid == _bt_vacuum_cycleid(rel);
}

/*
 * May the page of a level go, as far as it tells itself?  All pages are
 * locked.  A leaf may if this backend's pin is the only one on it (I8).
 */
static bool
cb_unlink_check_page(Relation rel, const CbUnlinkPages *pages, int level)
{
	Page		page = BufferGetPage(pages->page[level]);
	OffsetNumber first = CbPageFirstItem(page);

	if (!cb_unlink_is_level(page, level) || CbPageIsRightmost(page) ||
		(CbPageGetOpaque(page)->flags & CBP_ROOT) != 0)
		return false;
	if (level == 0 && cb_unlink_is_marked(rel, page))
		return false;
	if (level == 0)
		return (BufferIsValid(pages->right) || cb_tree_leaf_is_empty(page)) &&
			IsBufferCleanupOK(pages->page[level]);
	return PageGetMaxOffsetNumber(page) == first &&
		BTreeTupleGetDownLink(CbPageGetTuple(page, first)) ==
		BufferGetBlockNumber(pages->page[level - 1]);
}

/*
 * Finds the downlink that the parent is to lose.  It must have that of the
 * right sibling as well.
 */
static CbUnlinkResult
cb_unlink_check_parent(Relation rel, CbUnlinkPages *pages)
{
	Page		parent = BufferGetPage(pages->parent);
	Buffer		child = pages->page[pages->npages - 1];
	OffsetNumber max = PageGetMaxOffsetNumber(parent);
	OffsetNumber off = CbPageFirstItem(parent);

	if (!cb_unlink_is_level(parent, pages->npages))
		return CB_UNLINK_AGAIN;
	while (off <= max && BTreeTupleGetDownLink(CbPageGetTuple(parent, off)) !=
		   BufferGetBlockNumber(child))
		off++;
	if (off > max)
		return CB_UNLINK_AGAIN;
	if (off == max)
		return CB_UNLINK_NOT;
	cb_page_check_items(rel, BufferGetBlockNumber(pages->parent), parent);
	pages->offset = off;
	return BTreeTupleGetDownLink(CbPageGetTuple(parent, off + 1)) ==
		CbPageGetOpaque(BufferGetPage(child))->next ?
		CB_UNLINK_DONE : CB_UNLINK_AGAIN;
}

/*
 * All are locked: may all of them go?  AGAIN: what was seen without locks is
 * not so any more.
 */
static CbUnlinkResult
cb_unlink_check(Relation rel, CbUnlinkPages *pages)
{
	for (int i = 0; i < pages->npages; i++)
	{
		if (!cb_unlink_check_page(rel, pages, i))
			return CB_UNLINK_AGAIN;
	}
	return cb_unlink_check_parent(rel, pages);
}

/*
 * A page whose split is incomplete, or InvalidBuffer.  All are locked, and
 * stay so.
 */
static Buffer
cb_unlink_find_incomplete(CbUnlinkPages *pages)
{
	for (int i = 0; i < pages->npages; i++)
	{
		if (CbPageHasIncompleteSplit(BufferGetPage(pages->left[i])))
			return pages->left[i];
		if (CbPageHasIncompleteSplit(BufferGetPage(pages->page[i])))
			return pages->page[i];
	}
	if (BufferIsValid(pages->right) &&
		CbPageHasIncompleteSplit(BufferGetPage(pages->right)))
		return pages->right;
	return InvalidBuffer;
}

/*
 * Finishes the split of a page, one of these, which are released.  It may have
 * no downlink itself, as its left neighbour's split is incomplete too: a
 * writer on the way to what lies beyond its high key finishes all of them,
 * from the left.
 */
static void
cb_unlink_finish_split(CbUnlinker *unlinker, CbUnlinkPages *pages,
					   Buffer incomplete)
{
	Page		page = BufferGetPage(incomplete);
	int			level = CbPageGetOpaque(page)->level;
	CbBound		bound = {.kind = CB_BOUND_TUPLE};

	bound.tuple = CopyIndexTuple(CbPageGetHighKey(page));
	cb_unlink_release(pages);
	UnlockReleaseBuffer(cb_tree_descend_for_write(&unlinker->kd, &bound, level,
												  NULL));
}

/* ---------- the deletion ---------- */

/*
 * Logs the action within its critical section.  Deleted pages are made anew by
 * redo, and the merged one is logged in full (U12).
 */
static void
cb_unlink_log(CbUnlinkPages *pages, const xl_cb_unlink *xlrec)
{
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData(unconstify(char *, (const char *) xlrec),
					 SizeOfCbUnlink(xlrec->npages));
	XLogRegisterBuffer(0, pages->parent, REGBUF_STANDARD);
	for (int i = 0; i < pages->npages; i++)
	{
		XLogRegisterBuffer(1 + 2 * i, pages->left[i], REGBUF_STANDARD);
		XLogRegisterBuffer(2 + 2 * i, pages->page[i],
						   REGBUF_WILL_INIT | REGBUF_STANDARD);
	}
	if (xlrec->merged)
		XLogRegisterBuffer(1 + 2 * pages->npages, pages->right,
						   REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_UNLINK);
	PageSetLSN(BufferGetPage(pages->parent), lsn);
	if (xlrec->merged)
		PageSetLSN(BufferGetPage(pages->right), lsn);
	for (int i = 0; i < pages->npages; i++)
	{
		PageSetLSN(BufferGetPage(pages->left[i]), lsn);
		PageSetLSN(BufferGetPage(pages->page[i]), lsn);
	}
}

/*
 * All are locked and checked: one atomic action.  They stay locked.  merged:
 * the right neighbour with the leaf's entries, or NULL.  The transaction id
 * that tells when the pages are free is read under the locks: who holds a link
 * to one of them has read it before.
 */
static void
cb_unlink_pages(Relation rel, CbUnlinkPages *pages, Page merged)
{
	xl_cb_unlink xlrec;

	xlrec.safexid = ReadNextFullTransactionId();
	xlrec.offset = pages->offset;
	xlrec.npages = pages->npages;
	xlrec.merged = merged != NULL;
	for (int i = 0; i < pages->npages; i++)
		xlrec.next[i] = CbPageGetOpaque(BufferGetPage(pages->page[i]))->next;
	if (RelationNeedsWAL(rel))
		XLogEnsureRecordSpace(2 * pages->npages + xlrec.merged, 0);
	cb_predicate_transfer(rel, BufferGetBlockNumber(pages->page[0]), xlrec.next[0]);

	CB_TEST_POINT("unlink-before");
	START_CRIT_SECTION();
	if (xlrec.merged)
	{
		memcpy(BufferGetPage(pages->right), merged, BLCKSZ);
		cb_rel_mark_dirty(pages->right);
	}
	cb_page_drop_downlink(BufferGetPage(pages->parent), pages->offset);
	cb_rel_mark_dirty(pages->parent);
	for (int i = 0; i < pages->npages; i++)
	{
		CbPageGetOpaque(BufferGetPage(pages->left[i]))->next = xlrec.next[i];
		cb_rel_mark_dirty(pages->left[i]);
		cb_page_init_deleted(BufferGetPage(pages->page[i]), i, xlrec.next[i],
							 xlrec.safexid);
		cb_rel_mark_dirty(pages->page[i]);
	}
	if (RelationNeedsWAL(rel))
		cb_unlink_log(pages, &xlrec);
	END_CRIT_SECTION();
	CB_TEST_POINT("unlink-after");
}

/* Redo of one block of XLOG_CB_UNLINK; the buffer stays locked. */
static Buffer
cb_redo_unlink_block(XLogReaderState *record, const xl_cb_unlink *xlrec, int i)
{
	int			level = (i - 1) / 2;
	bool		goes = i > 0 && i % 2 == 0;
	Buffer		buf;
	Page		page = goes ? cb_redo_begin_init(record, i, &buf) :
		cb_redo_begin(record, i, i == 0 ? CBP_INTERNAL : CBP_LEAF | CBP_INTERNAL, &buf);

	if (page == NULL)
		return buf;
	if (goes)
		cb_page_init_deleted(page, level, xlrec->next[level], xlrec->safexid);
	else if (i == 0)
	{
		cb_redo_require(record, 0, xlrec->offset < PageGetMaxOffsetNumber(page));
		cb_page_drop_downlink(page, xlrec->offset);
	}
	else
		CbPageGetOpaque(page)->next = xlrec->next[level];
	cb_redo_mark(record, page, buf);
	return buf;
}

/*
 * Redo of XLOG_CB_UNLINK.  All pages stay locked until the last is changed, as
 * on the primary; a reader has one page locked at most.  The right neighbour
 * has the leaf's entries before the leaf loses them.
 */
void
cb_redo_unlink(XLogReaderState *record)
{
	xl_cb_unlink *xlrec = (xl_cb_unlink *) XLogRecGetData(record);
	int			nblocks = 1 + 2 * xlrec->npages;
	Buffer		bufs[2 + 2 * CB_MAX_UNLINK_PAGES];

	if (xlrec->merged)
		bufs[nblocks] = cb_redo_image(record, nblocks);
	for (int i = 0; i < nblocks; i++)
		bufs[i] = cb_redo_unlink_block(record, xlrec, i);
	for (int i = 0; i < nblocks + xlrec->merged; i++)
	{
		if (BufferIsValid(bufs[i]))
			UnlockReleaseBuffer(bufs[i]);
	}
}

/* ---------- the pass ---------- */

/*
 * A page is its parent's only child: the leaf at the end of a chain of such
 * pages, or InvalidBlockNumber.  One share lock at a time, and none before or
 * after.
 */
static BlockNumber
cb_unlink_follow_single(Relation rel, BlockNumber blkno)
{
	for (;;)
	{
		Buffer		buf = cb_sound_read(rel, blkno, NULL);
		Page		page = BufferGetPage(buf);
		OffsetNumber first;
		BlockNumber child = InvalidBlockNumber;
		bool		leaf;

		LockBuffer(buf, BUFFER_LOCK_SHARE);
		cb_page_check(rel, blkno, page);
		leaf = CbPageIsLeaf(page);
		first = CbPageFirstItem(page);
		if (!leaf && PageGetMaxOffsetNumber(page) == first)
			child = BTreeTupleGetDownLink(CbPageGetTuple(page, first));
		UnlockReleaseBuffer(buf);
		if (leaf)
			return blkno;
		if (child == InvalidBlockNumber)
			return InvalidBlockNumber;
		blkno = child;
	}
}

/* The only child of the parent now, or InvalidBlockNumber. */
static BlockNumber
cb_unlink_only_child(Page parent)
{
	OffsetNumber first = CbPageFirstItem(parent);

	if (PageGetMaxOffsetNumber(parent) != first)
		return InvalidBlockNumber;
	return BTreeTupleGetDownLink(CbPageGetTuple(parent, first));
}

/*
 * Counts the deleted pages.  Keeps some of those in mind that the pass has
 * been at; it comes to the others.
 */
static void
cb_unlink_remember(CbUnlinker *unlinker, const CbUnlinkPlan *plan)
{
	for (int i = 0; i < plan->npages; i++)
	{
		unlinker->stats->pages_newly_deleted++;
		if (plan->page[i] > unlinker->scan_blkno)
			continue;
		unlinker->stats->pages_deleted++;
		if (unlinker->nremembered < CB_UNLINK_REMEMBERED)
			unlinker->remembered[unlinker->nremembered++] = plan->page[i];
	}
}

/*
 * Makes the right neighbour's image with the leaf's entries; false: they do
 * not go together.  Comparison functions run; an error if one has released a
 * lock.
 */
static bool
cb_unlink_merge(CbUnlinker *unlinker, CbUnlinkPages *pages, Page image)
{
	if (!cb_unlink_is_level(BufferGetPage(pages->right), 0) ||
		!cb_redistribute_merge(&unlinker->kd, pages->page[0], pages->right, image))
		return false;
	cb_tree_check_still_locked(unlinker->rel, pages->left[0]);
	cb_tree_check_still_locked(unlinker->rel, pages->page[0]);
	cb_tree_check_still_locked(unlinker->rel, pages->right);
	cb_tree_check_still_locked(unlinker->rel, pages->parent);
	return true;
}

/*
 * One attempt.  *more: the next leaf to try, if done, as it has no siblings
 * any more; else InvalidBlockNumber.  No lock is held before or after.  Memory
 * is left in the current context, which the caller resets.
 */
static CbUnlinkResult
cb_unlink_try(CbUnlinker *unlinker, BlockNumber leaf, bool merge,
			  BlockNumber *more)
{
	Relation	rel = unlinker->rel;
	CbUnlinkPlan plan;
	CbUnlinkPages pages;
	CbUnlinkResult result;
	PGAlignedBlock image;
	Buffer		incomplete;

	*more = InvalidBlockNumber;
	if (!cb_unlink_plan(unlinker, leaf, merge, &plan))
		return CB_UNLINK_NOT;
	CB_TEST_POINT("unlink-planned");
	if (!cb_unlink_lock(rel, &plan, &pages))
		return CB_UNLINK_AGAIN;

	incomplete = cb_unlink_find_incomplete(&pages);
	if (BufferIsValid(incomplete))
	{
		cb_unlink_finish_split(unlinker, &pages, incomplete);
		return CB_UNLINK_AGAIN;
	}
	result = cb_unlink_check(rel, &pages);
	if (result == CB_UNLINK_DONE && BufferIsValid(pages.right) &&
		!cb_unlink_merge(unlinker, &pages, (Page) image.data))
		result = CB_UNLINK_NOT;
	if (result == CB_UNLINK_DONE)
	{
		cb_unlink_pages(rel, &pages,
						BufferIsValid(pages.right) ? (Page) image.data : NULL);
		if (BufferIsValid(pages.right))
			cb_heat_inherit(rel, BufferGetBlockNumber(pages.right), leaf);
		else
			cb_unlink_remember(unlinker, &plan);
		*more = cb_unlink_only_child(BufferGetPage(pages.parent));
	}
	cb_unlink_release(&pages);
	if (*more != InvalidBlockNumber)
		*more = cb_unlink_follow_single(rel, *more);
	return result;
}

/*
 * Deletes the leaf if it is empty and can go, and with it leaves that become
 * able to go.  scan_blkno: how far the pass has come, for the statistics.  If
 * neighbours keep changing the leaf stays, for the next VACUUM.
 *
 * The caller holds no lock on a page, and no pin on the leaf, which would keep
 * it.  Waits for locks on pages in the order of locks (I9).  Comparison
 * functions run in descents, under one share lock.  An error, about a damaged
 * page, leaves the tree as the last complete record did.
 *
 * The right neighbour takes over the range, as in Lanin and Shasha's algorithm
 * (A Symmetric Concurrent B-Tree Algorithm, 1986).
 */
void
cb_tree_unlink(CbUnlinker *unlinker, BlockNumber leaf, BlockNumber scan_blkno)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(unlinker->cxt);
	int			tries = 0;

	unlinker->scan_blkno = scan_blkno;
	while (leaf != InvalidBlockNumber)
	{
		BlockNumber more;
		CbUnlinkResult result = cb_unlink_try(unlinker, leaf, false, &more);

		MemoryContextReset(unlinker->cxt);
		CHECK_FOR_INTERRUPTS();
		if (result == CB_UNLINK_AGAIN && ++tries < CB_UNLINK_TRIES)
			continue;
		leaf = more;
		tries = 0;
	}
	MemoryContextSwitchTo(oldcxt);
}

/*
 * Gives the leaf's entries to its right neighbour and deletes the leaf, as one
 * atomic action.  False: they do not fit, the leaf is pinned, or it has to
 * stay; nothing has changed, but that a split may have been finished.
 *
 * The caller holds no lock on a page, one on the table that keeps VACUUM away,
 * and has a snapshot or a transaction id.  Comparison functions run, with the
 * pages locked; an error comes before anything is changed.
 */
bool
cb_tree_unlink_merged(CbUnlinker *unlinker, BlockNumber leaf)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(unlinker->cxt);
	CbUnlinkResult result = CB_UNLINK_AGAIN;
	BlockNumber more;

	unlinker->scan_blkno = InvalidBlockNumber;
	for (int tries = 0; tries < CB_UNLINK_TRIES && result == CB_UNLINK_AGAIN;
		 tries++)
	{
		result = cb_unlink_try(unlinker, leaf, true, &more);
		MemoryContextReset(unlinker->cxt);
	}
	MemoryContextSwitchTo(oldcxt);

	/* it is not free yet; but where nothing dies VACUUM would not look for it */
	if (result == CB_UNLINK_DONE)
		cb_rel_free_pages(unlinker->rel, &leaf, 1, true);
	return result == CB_UNLINK_DONE;
}

/*
 * Begins to take leaves out of the tree: for VACUUM's pass, or for one who has
 * a lock on the table that keeps VACUUM away.
 *
 * The unlinker is palloc'd, with a memory context below the current one, until
 * cb_tree_unlink_finish(); an error frees both.  stats are the caller's and
 * have to stay as long: deleted pages are counted there.
 */
CbUnlinker *
cb_tree_unlink_begin(Relation rel, IndexBulkDeleteResult *stats)
{
	CbUnlinker *unlinker = palloc0(sizeof(CbUnlinker));

	unlinker->rel = rel;
	unlinker->stats = stats;
	unlinker->cxt = AllocSetContextCreate(CurrentMemoryContext,
										  "cache_batch unlink",
										  ALLOCSET_DEFAULT_SIZES);
	cb_key_init(&unlinker->kd, rel);
	return unlinker;
}

/*
 * Ends what cb_tree_unlink_begin() began, and frees it.  Pages deleted by this
 * pass may already be free, where transactions begin and end quickly: they are
 * put into the map; else a later VACUUM finds them.  tail: of the journal.
 * Holds one share lock at a time.
 */
void
cb_tree_unlink_finish(CbUnlinker *unlinker, CbPos tail)
{
	Relation	rel = unlinker->rel;

	/* brings the horizon up to date */
	if (unlinker->nremembered > 0)
		(void) GetOldestNonRemovableTransactionId(NULL);
	for (int i = 0; i < unlinker->nremembered; i++)
	{
		Buffer		buf = cb_sound_read(rel, unlinker->remembered[i], NULL);

		LockBuffer(buf, BUFFER_LOCK_SHARE);
		if (cb_rel_page_is_free(BufferGetPage(buf), tail))
		{
			RecordFreeIndexPage(rel, unlinker->remembered[i]);
			unlinker->stats->pages_free++;
		}
		UnlockReleaseBuffer(buf);
	}
	MemoryContextDelete(unlinker->cxt);
	pfree(unlinker);
}
