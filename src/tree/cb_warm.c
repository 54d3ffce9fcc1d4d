/*-------------------------------------------------------------------------
 *
 * cb_warm.c
 *	  Reading the leaves of a range of keys into memory.
 *
 * The leaves are visited from left to right, by their right links, with one
 * share lock at a time.  The copy of a level-1 page says which leaves come
 * next, so that they can be read ahead; it may be stale, which costs a read or
 * two.  When it ends the next one is found by a descent, for the high key of
 * the last leaf.
 *
 * Nothing is changed but heat, so it serves on standbys as well.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_heat.h"
#include "miscadmin.h"
#include "tree/cb_tree.h"
#include "utils/memutils.h"

/* leaves that are being read in before they are waited for */
#define CB_WARM_AHEAD	32

typedef struct CbWarm
{
	const CbKeyDesc *kd;
	const CbCut *hi;
	CbCut		at;				/* what lies left of it has been visited */
	PGAlignedBlock tuple;		/* of at */
	CbDescent	descent;
	int64		leaves;
} CbWarm;

/* Has the leaf read in to which a downlink of the parent's copy leads. */
static void
cb_warm_prefetch(CbWarm *warm, OffsetNumber off)
{
	IndexTuple	downlink = CbPageGetTuple((Page) warm->descent.parent.data, off);

	(void) PrefetchBuffer(warm->kd->rel, MAIN_FORKNUM,
						  BTreeTupleGetDownLink(downlink));
}

/*
 * Visits a leaf, under its share lock; false: it is the last one.  *blkno
 * becomes the next one.  Comparison functions run when the leaf is unlocked.
 */
static bool
cb_warm_leaf(CbWarm *warm, BlockNumber *blkno)
{
	CbLeafHint	hint = {*blkno, InvalidBuffer};
	Buffer		buf = cb_tree_read_leaf(warm->kd->rel, &hint, NULL);
	Page		page = BufferGetPage(buf);
	bool		rightmost = CbPageIsRightmost(page);

	cb_heat_touch(warm->kd->rel, BufferGetBlockNumber(buf));
	warm->leaves++;
	*blkno = CbPageGetOpaque(page)->next;
	if (!rightmost)
		cb_cut_copy_tuple(&warm->at, CbPageGetHighKey(page), &warm->tuple);
	UnlockReleaseBuffer(buf);
	if (warm->leaves % CB_CHECK_MOVES == 0 &&
		warm->leaves > 2 * (int64) RelationGetNumberOfBlocks(warm->kd->rel))
		cb_report_corrupt(warm->kd->rel, *blkno,
						  "The right links of leaves form a ring.");
	return !rightmost &&
		cb_key_compare_cut(warm->kd, warm->hi, warm->at.tuple) < 0;
}

/*
 * Visits the leaves that one level-1 page leads to; false: the range ends.  No
 * lock is held before or after.  Allocates in the current context, which the
 * caller resets.
 */
static bool
cb_warm_run(CbWarm *warm)
{
	CbDescent  *descent = &warm->descent;
	Page		parent = (Page) descent->parent.data;
	Buffer		buf;
	BlockNumber leaf;
	OffsetNumber off = 0;
	OffsetNumber last = 0;
	OffsetNumber ahead;

	descent->parent_valid = false;
	buf = cb_tree_descend(warm->kd, &warm->at, ForwardScanDirection, NULL, descent);
	leaf = BufferGetBlockNumber(buf);
	UnlockReleaseBuffer(buf);
	if (descent->low != NULL &&
		cb_key_compare_cut(warm->kd, warm->hi, descent->low) >= 0)
		return false;
	if (descent->parent_valid)
	{
		off = cb_tree_search_page(warm->kd, &warm->at, parent, ForwardScanDirection);
		last = cb_tree_search_page(warm->kd, warm->hi, parent, BackwardScanDirection);
	}
	for (ahead = off + 1;; off++)
	{
		for (; ahead <= Min(last, off + CB_WARM_AHEAD); ahead++)
			cb_warm_prefetch(warm, ahead);
		CHECK_FOR_INTERRUPTS();
		if (!cb_warm_leaf(warm, &leaf))
			return false;
		if (off >= last)
			return true;
	}
}

/*
 * Reads the leaves between two cuts into shared buffers, and lets them count as
 * read and written at present; returns how many.  The caller holds a lock on
 * the index, and has a snapshot.  No page is locked on entry or exit, and one
 * at a time, shared, in between.
 *
 * Comparison functions run.  Nothing is changed, so a standby may call it.
 */
int64
cb_tree_warm(const CbKeyDesc *kd, const CbCut *lo, const CbCut *hi)
{
	CbWarm	   *warm = palloc0(sizeof(CbWarm));
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch warm",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	int64		leaves;

	warm->kd = kd;
	warm->hi = hi;
	warm->at = *lo;
	warm->descent.want_low = true;
	warm->descent.want_parent = true;
	do
	{
		MemoryContextReset(cxt);
		(void) cb_heat_clock();
	} while (cb_warm_run(warm));
	leaves = warm->leaves;
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	pfree(warm);
	return leaves;
}
