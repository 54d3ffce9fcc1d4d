/*-------------------------------------------------------------------------
 *
 * cb_prewarm.c
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

#include "base/cb_base.h"
#include "base/cb_heat.h"
#include "base/cb_counts.h"
#include "base/cb_progress.h"
#include "miscadmin.h"
#include "tree/cb_tree.h"
#include "utils/memutils.h"

/* leaves that are being read in before they are waited for */
#define CB_PREWARM_AHEAD	32

typedef struct CbPrewarm
{
	const CbKeyDesc *kd;
	const CbBound *hi;
	CbBound		at;				/* what lies left of it has been visited */
	PGAlignedBlock tuple;		/* of at */
	CbDescent	descent;
	int64		leaves;
} CbPrewarm;

/* Has the leaf read in to which a downlink of the parent's copy leads. */
static void
cb_prewarm_prefetch(CbPrewarm *prewarm, OffsetNumber off)
{
	IndexTuple	downlink = CbPageGetTuple((Page) prewarm->descent.parent.data, off);

	(void) cb_sound_prefetch(prewarm->kd->rel, BTreeTupleGetDownLink(downlink));
}

/* The block is that of a leaf which is locked, or the link in it. */
static CbLeafHint
cb_prewarm_hint(CbPrewarm *prewarm, BlockNumber blkno)
{
	return (CbLeafHint) {blkno, InvalidBuffer, cb_counts_reuses(prewarm->kd->rel)};
}

/*
 * Visits a leaf, which is share-locked, and unlocks it; false: it is the last
 * one.  *next becomes the next one.  Comparison functions run when the leaf is
 * unlocked.
 */
static bool
cb_prewarm_leaf(CbPrewarm *prewarm, Buffer buf, CbLeafHint *next)
{
	Page		page = BufferGetPage(buf);
	bool		rightmost = CbPageIsRightmost(page);

	cb_heat_touch(prewarm->kd->rel, BufferGetBlockNumber(buf));
	prewarm->leaves++;
	cb_progress_add(1);
	*next = cb_prewarm_hint(prewarm, CbPageGetOpaque(page)->next);
	if (!rightmost)
		cb_bound_copy_tuple(&prewarm->at, CbPageGetHighKey(page), &prewarm->tuple);
	UnlockReleaseBuffer(buf);
	if (prewarm->leaves % CB_CHECK_MOVES == 0 &&
		prewarm->leaves > 2 * (int64) RelationGetNumberOfBlocks(prewarm->kd->rel))
		cb_report_corrupt(prewarm->kd->rel, next->blkno,
						  "The right links of leaves form a ring.");
	return !rightmost &&
		cb_key_compare_bound(prewarm->kd, prewarm->hi, prewarm->at.tuple) < 0;
}

/*
 * Visits the leaves that one level-1 page leads to, or, on a standby, fewer, if
 * one of them may be another page by now; false: the range ends.  No lock is
 * held before or after.  Allocates in the current context, which the caller
 * resets.
 */
static bool
cb_prewarm_children(CbPrewarm *prewarm)
{
	CbDescent  *descent = &prewarm->descent;
	Page		parent = (Page) descent->parent.data;
	Buffer		buf;
	CbLeafHint	leaf;
	OffsetNumber off = 0;
	OffsetNumber last = 0;
	OffsetNumber ahead;

	descent->parent_valid = false;
	buf = cb_tree_descend(prewarm->kd, &prewarm->at, ForwardScanDirection, NULL, descent);
	leaf = cb_prewarm_hint(prewarm, BufferGetBlockNumber(buf));
	UnlockReleaseBuffer(buf);
	if (descent->low != NULL &&
		cb_key_compare_bound(prewarm->kd, prewarm->hi, descent->low) >= 0)
		return false;
	if (descent->parent_valid)
	{
		off = cb_tree_search_page(prewarm->kd, &prewarm->at, parent, ForwardScanDirection);
		last = cb_tree_search_page(prewarm->kd, prewarm->hi, parent, BackwardScanDirection);
	}
	for (ahead = off + 1;; off++)
	{
		for (; ahead <= Min(last, off + CB_PREWARM_AHEAD); ahead++)
			cb_prewarm_prefetch(prewarm, ahead);
		CHECK_FOR_INTERRUPTS();
		buf = cb_tree_read_leaf(prewarm->kd->rel, &leaf, NULL);
		if (!BufferIsValid(buf))
			return true;
		if (!cb_prewarm_leaf(prewarm, buf, &leaf))
			return false;
		CB_TEST_POINT("prewarm-right");
		if (off >= last)
			return true;
	}
}

/*
 * Reads the leaves between two bounds into shared buffers, and lets them count
 * as read and written at present; returns how many.  The caller holds a lock
 * on the index, and has a snapshot.  No page is locked on entry or exit, and
 * one at a time, shared, in between.
 *
 * Comparison functions run.  Nothing is changed, so a standby may call it.
 */
int64
cb_tree_prewarm(const CbKeyDesc *kd, const CbBound *lo, const CbBound *hi)
{
	CbPrewarm  *prewarm = palloc0(sizeof(CbPrewarm));
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch prewarm",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	int64		leaves;

	prewarm->kd = kd;
	prewarm->hi = hi;
	prewarm->at = *lo;
	prewarm->descent.want_low = true;
	prewarm->descent.want_parent = true;
	do
	{
		MemoryContextReset(cxt);
		(void) cb_heat_clock();
	} while (cb_prewarm_children(prewarm));
	leaves = prewarm->leaves;
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	pfree(prewarm);
	return leaves;
}
