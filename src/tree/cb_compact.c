/*-------------------------------------------------------------------------
 *
 * cb_compact.c
 *	  Packing the leaves of a cold range of keys densely.
 *
 * Leaves that take new entries keep room for them; those of a range that gets
 * none any more need not.  From right to left each leaf gets the entries of
 * its left neighbour: all of them if they fit, and the neighbour is taken out
 * of the tree (cb_tree_unlink_merged); else the last ones, as many as fit
 * (cb_redistribute_fill), and the neighbour is next.  So entries move, to the
 * right, and are never in two places; each step is one record, which empties
 * one leaf at most, and may be the last one.
 *
 * Pages are deleted here, so VACUUM has to be kept away from the index: the
 * caller holds a lock on the table that conflicts with VACUUM's.  Everybody
 * else goes on.  No lock on a page is held between steps.
 *
 * What is said of redistributing and deleting holds (cb_redistribute.c,
 * cb_unlink.c), and:
 *	- Pins (I8).  VACUUM, which removes the entries from the right leaf, would
 *	  not wait for a scan with a pin on the left one.  So that goes only if
 *	  nobody else has it pinned (I8_MERGEPIN, U8); if it stays VACUUM waits at
 *	  it.  Scans of a standby do not rely on pins, so replay needs no cleanup
 *	  lock.
 *	- VACUUM may have come to the right leaf and not to the left one, and
 *	  follows links without a snapshot.  The table's lock keeps it, and other
 *	  packers, away to the end (A11_COMPACT).
 *	- Replay gives the right leaf its image first, and keeps all pages locked to
 *	  the end.
 *	- Comparisons run under the locks of both leaves, the page left of them and
 *	  their parent, which are seen to be held still.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "base/cb_progress.h"
#include "base/cb_waiter.h"
#include "miscadmin.h"
#include "rel/cb_ring.h"
#include "tree/cb_tree.h"
#include "utils/memutils.h"

typedef struct CbCompact
{
	const CbKeyDesc *kd;
	CbCompactTask *task;
	CbUnlinker *unlinker;
} CbCompact;

/*
 * The range begins at the right end of the leaf that an earlier one has come
 * to, which is its block in task->leaf.  It is the tree's right end if the
 * page is no leaf any more.  Whatever the page is by now, that is only where
 * work goes on.
 *
 * Sets task->leaf and task->at.  The leaf is share-locked meanwhile, and
 * nothing is held on entry or exit; no comparison function runs.
 */
void
cb_tree_compact_go_on(Relation rel, CbCompactTask *task, BlockNumber leaf)
{
	Buffer		buf = cb_ring_read(rel, leaf);
	Page		page = BufferGetPage(buf);

	task->leaf = leaf;
	task->at.kind = CB_BOUND_MAX;
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	cb_page_check(rel, leaf, page);
	if (CbPageIsLeaf(page) && !CbPageIsGone(page) && !CbPageIsRightmost(page))
		cb_bound_copy_tuple(&task->at, CbPageGetHighKey(page), &task->tuple);
	UnlockReleaseBuffer(buf);
}

/*
 * The leaf with the last position left of the bound, and its lower bound,
 * palloc'd; NULL: minus infinity.  *loose: would it take more entries?  No
 * lock is held before or after, so all of this may be old.
 */
static BlockNumber
cb_compact_find(const CbKeyDesc *kd, const CbBound *bound, IndexTuple *low, bool *loose)
{
	CbDescent  *descent = palloc0(sizeof(CbDescent));
	Buffer		buf;
	BlockNumber blkno;

	descent->want_low = true;
	buf = cb_tree_descend(kd, bound, BackwardScanDirection, NULL, descent);
	blkno = BufferGetBlockNumber(buf);
	*loose = cb_redistribute_is_worth_filling(BufferGetPage(buf));
	UnlockReleaseBuffer(buf);
	*low = descent->low;
	return blkno;
}

/*
 * Locks the leaf exclusively if its right neighbour is still the other one,
 * and no split of it is incomplete; else InvalidBuffer, and no lock.
 */
static Buffer
cb_compact_lock_left(Relation rel, BlockNumber blkno, BlockNumber right)
{
	Buffer		buf = cb_ring_read(rel, blkno);
	Page		page = BufferGetPage(buf);

	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	cb_page_check(rel, blkno, page);
	if (CbPageIsLeaf(page) && !CbPageIsGone(page) &&
		!CbPageHasIncompleteSplit(page) && CbPageGetOpaque(page)->next == right)
		return buf;
	UnlockReleaseBuffer(buf);
	return InvalidBuffer;
}

/*
 * Moves what it can from a leaf to its right neighbour; false: nothing.  No
 * lock is held before or after.
 */
static bool
cb_compact_fill(CbCompact *compact, BlockNumber left, BlockNumber right)
{
	Buffer		buf = cb_compact_lock_left(compact->kd->rel, left, right);
	CbArena		arena;

	if (!BufferIsValid(buf))
		return false;
	cb_arena_init(&arena, CurrentMemoryContext);
	return cb_redistribute_fill(compact->kd, buf, &arena);
}

/*
 * Fills up the leaf left of the place that was reached from its left
 * neighbour, with all of that one's entries if they fit.  False: there is no
 * such neighbour in the range.  No lock is held before or after; an error
 * leaves *task as it was, but for task->leaf.
 */
static bool
cb_compact_step(CbCompact *compact)
{
	const CbKeyDesc *kd = compact->kd;
	CbCompactTask *task = compact->task;
	CbBound		low = {.kind = CB_BOUND_TUPLE};
	bool		loose;
	BlockNumber right = cb_compact_find(kd, &task->at, &low.tuple, &loose);
	BlockNumber left;
	IndexTuple	left_low;
	bool		left_loose;

	task->leaf = right;
	if (low.tuple == NULL || cb_key_compare_bound(kd, &task->lo, low.tuple) <= 0)
		return false;
	CB_TEST_POINT("compact-found");
	left = cb_compact_find(kd, &low, &left_low, &left_loose);
	CB_TEST_POINT("compact-step");

	/* the same: it has got entries of its left neighbour meanwhile */
	if (left != right &&
		(task->is_cold == NULL || task->is_cold(kd->rel, left, task->arg)) &&
		loose)
	{
		if (cb_tree_unlink_merged(compact->unlinker, left))
		{
			task->freed++;
			return true;
		}
		if (cb_compact_fill(compact, left, right))
			(void) cb_compact_find(kd, &task->at, &low.tuple, &loose);
	}
	cb_bound_copy_tuple(&task->at, low.tuple, &task->tuple);
	task->leaf = left;
	return true;
}

/* Is there time for another step? */
static inline bool
cb_compact_has_time(const CbCompactTask *task)
{
	return !cb_waiter_is_there() &&
		(task->until == 0 || cb_clock_now() < task->until);
}

/*
 * Packs leaves of a range of keys, from its right end on, until its left end
 * is reached, the budget is used, it is late, or a lock of this process is
 * waited for; one step is made at least.  Where to go on is left in *task,
 * with what was done.
 *
 * The caller holds a lock on the table that keeps VACUUM away, one on the
 * index for writing, and has a snapshot or a transaction id.  No page is
 * locked on entry, nor between steps, nor on return.  Comparison functions
 * run, with pages locked.  An error leaves the steps before it done; each of
 * them is an action by itself.
 *
 * task->is_cold is called with no lock held, for each leaf that would be
 * given up.  It may raise errors.  No memory is kept.
 */
void
cb_tree_compact(const CbKeyDesc *kd, CbCompactTask *task)
{
	CbCompact	compact = {.kd = kd,.task = task};
	IndexBulkDeleteResult stats = {0};
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch compact",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt;

	compact.unlinker = cb_tree_unlink_begin(kd->rel, &stats);
	oldcxt = MemoryContextSwitchTo(cxt);
	task->freed = 0;
	task->done = false;
	for (int64 n = 0; n < task->budget && !task->done &&
		 (n == 0 || cb_compact_has_time(task)); n++)
	{
		CHECK_FOR_INTERRUPTS();
		cb_key_prepare_trust(kd->rel);
		task->done = !cb_compact_step(&compact);
		cb_progress_add(1);
		MemoryContextReset(cxt);
	}
	MemoryContextSwitchTo(oldcxt);
	cb_tree_unlink_finish(compact.unlinker, 0); /* it remembers no page */
	cb_stat_add(kd->rel, CB_STAT_COMPACTED, task->freed);
	MemoryContextDelete(cxt);
}
