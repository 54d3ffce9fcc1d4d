/*-------------------------------------------------------------------------
 *
 * cb_ahead.c
 *	  Which leaves a scan comes to next.
 *
 * The downlinks of one level-1 page at a time say so, without a visit of the
 * leaves.  They are hints: when they are used a leaf may have been split, or
 * have left the tree.  So they serve to have pages read in before they are
 * waited for, and not to find what is in them: a scan goes by right links and
 * by descents.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "tree/cb_tree.h"

/*
 * The list goes to this bound of a leaf, which is copied into it; NULL: there
 * is nothing beyond.  Comparison functions run.
 */
static void
cb_ahead_set_at(const CbKeyDesc *kd, CbAhead *ahead, IndexTuple bound)
{
	int			cmp;

	ahead->done = true;
	if (bound == NULL)
		return;
	cmp = cb_key_compare_bound(kd, &ahead->end, bound);
	ahead->done = ScanDirectionIsForward(ahead->dir) ? cmp >= 0 : cmp <= 0;
	cb_bound_copy_tuple(&ahead->at, bound, &ahead->tuple);
}

/*
 * Begins an empty list that goes from a bound of a leaf, in the direction, to
 * the end; these two are set.  NULL: there is nothing beyond the bound.  It is
 * copied, so the list needs nothing but its own memory.
 *
 * Takes no lock; comparison functions run.
 */
void
cb_tree_ahead_begin(const CbKeyDesc *kd, CbAhead *ahead, IndexTuple from)
{
	ahead->n = 0;
	cb_ahead_set_at(kd, ahead, from);
}

/*
 * Adds the children of a level-1 page, which is locked, as far as there is
 * room.  low: its lower bound, needed only if the list goes to the left.
 * Comparison functions run under the page's lock.
 */
static void
cb_ahead_add_children(const CbKeyDesc *kd, CbAhead *ahead, Page page,
					  IndexTuple low)
{
	bool		forward = ScanDirectionIsForward(ahead->dir);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	OffsetNumber off = cb_tree_search_page(kd, &ahead->at, page, ahead->dir);
	OffsetNumber last = cb_tree_search_page(kd, &ahead->end, page,
											forward ? BackwardScanDirection :
											ForwardScanDirection);
	IndexTuple	bound;

	/* the first to be added is there, wherever the end is */
	for (;; off += forward ? 1 : -1)
	{
		ahead->leaves[ahead->n++] = (CbLeafHint) {BTreeTupleGetDownLink(CbPageGetTuple(page, off)), InvalidBuffer, 0};
		if ((forward ? off >= last : off <= last) || ahead->n == CB_AHEAD_MAX)
			break;
	}
	if (forward)
		bound = off < max ? CbPageGetTuple(page, off + 1) :
			CbPageIsRightmost(page) ? NULL : CbPageGetHighKey(page);
	else
		bound = off > CbPageFirstItem(page) ? CbPageGetTuple(page, off) : low;
	cb_ahead_set_at(kd, ahead, bound);
}

/*
 * Adds the next leaves to a list that is neither done nor full: those of one
 * level-1 page.  The list may be empty at first, and the caller may have
 * dropped leaves from its beginning since.
 *
 * Holds one share lock at a time, and none on entry and exit; the leaves
 * themselves are not touched.  Comparison functions run.  Allocates a tuple or
 * two in the current memory context, which are left there.  The caller has a
 * snapshot or a transaction id.  Serves standbys as well.
 */
void
cb_tree_ahead_extend(const CbKeyDesc *kd, CbAhead *ahead)
{
	CbDescent	descent;
	Buffer		buf;

	Assert(!ahead->done && ahead->n < CB_AHEAD_MAX);
	memset(&descent, 0, offsetof(CbDescent, parent));
	descent.want_low = ScanDirectionIsBackward(ahead->dir);
	buf = cb_tree_descend_to(kd, &ahead->at, ahead->dir, 1, NULL, &descent);
	if (CbPageIsLeaf(BufferGetPage(buf)))
		ahead->done = true;		/* it is the only one */
	else
		cb_ahead_add_children(kd, ahead, BufferGetPage(buf), descent.low);
	UnlockReleaseBuffer(buf);
}
