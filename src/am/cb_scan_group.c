/*-------------------------------------------------------------------------
 *
 * cb_scan_group.c
 *	  Where a scan begins, or goes to, if that is known without a descent.
 *
 * A scan that wants several values in the first column goes from one to the
 * other.  The leaves of the next ones are found together, which locks few
 * pages, and reads those in that are not in memory.  A scan that is started
 * again with another key begins at the leaf that it read last, if that has the
 * key's place.
 *
 * Only going forward: a scan going backward needs the leaf's lower bound.
 *
 * Why such a leaf is a place to begin at:
 *
 *	- When it was found its lower bound was not right of the scan's: a
 *	  separator on the way was not, or an entry in it is not, or the bound
 *	  that it was found for is not (I9_LOW).  Bounds only fall, and a page
 *	  that has left the tree leads on.  So what lies right of the scan's
 *	  bound is in it or right of it; its high key tells, under the lock, and
 *	  the scan descends anew (I9_HINT).
 *	- It is the same page: blocks are remembered within one scan, whose
 *	  snapshot is held, and stays the same when it is started again; in
 *	  recovery, with the count of pages used again (tree/cb_search.c).
 *	- What it holds is read after the upper tiers, for each window (I2).
 *
 * The scan's copy of the root is as good as an old link: no page that it names
 * becomes another one while the snapshot is held, taken before.  So only scans
 * under MVCC snapshots keep one.  In recovery none does, as there a snapshot
 * keeps no page as it is.  A key beyond the high key of what was the root is
 * looked for from the new one; a descent that moves right more than twice
 * makes the copy anew (I9_ROOTCOPY).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_scan.h"
#include "base/cb_base.h"
#include "storage/buf_internals.h"

#define CB_SCAN_GROUP_MIN	8	/* the first group; each is twice the last */
#define CB_SCAN_CACHE_LINE	64
#define CB_SCAN_PREFETCH	256 /* bytes of a leaf's packed part */

/*
 * Has what a search in the leaf looks at first brought into the processor's
 * caches: its high key, which stands at the page's end, and its packed part's
 * directory.  The packed part is the second item of all packed leaves but the
 * rightmost.  The page's header is there already.  The leaf may have left its
 * buffer, or may be changing: what is read of it tells where to look, no more.
 * Inlined, as a call of a function that does nothing else is dropped by some
 * compilers.
 */
static pg_attribute_always_inline void
cb_scan_group_prefetch(const CbLeafHint *hint)
{
	const char *page;
	int			packed;

	if (!BufferIsValid(hint->buf) || BufferIsLocal(hint->buf))
		return;
	page = (const char *) BufferGetBlock(hint->buf);
	packed = ((volatile PageHeaderData *) page)->pd_linp[1].lp_off % BLCKSZ;
	__builtin_prefetch(page + BLCKSZ - CB_SCAN_CACHE_LINE);
	for (int i = 0; i < CB_SCAN_PREFETCH; i += CB_SCAN_CACHE_LINE)
		__builtin_prefetch(page + packed + i);
}

/* Finds the leaves of the point that the scan goes to, and of those behind it. */
static void
cb_scan_group_fill(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanGroup *group = &so->group;
	const CbKeyCond *points = so->pos.points;
	CbBound		first = so->pos.bound;
	int			n = group->n > 0 ? 2 * group->n : CB_SCAN_GROUP_MIN;

	/*
	 * to begin at the first entry with the value is never too late; its lead is set
	 * with each value
	 */
	first.nkeys = 1;
	first.lead_kind = CB_LEAD_NONE;
	first.after = false;
	group->n = 0;
	n = Min(n, points->n - so->pos.point);
	n = Min(n, CB_SCAN_GROUP_MAX);
	cb_tree_find_leaves(&so->kd, &first, (const Datum *) points->values + so->pos.point,
						n, scan->xs_snapshot, group->hints);
	group->points = points;
	group->first = so->pos.point;
	group->n = n;
	CB_TEST_POINT("scan-group-found");
}

/* The leaf of the point that the scan goes to. */
static CbLeafHint
cb_scan_group_leaf(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanGroup *group = &so->group;
	int			i;

	if (group->n == 0 || group->points != so->pos.points ||
		so->pos.point < group->first || so->pos.point >= group->first + group->n)
		cb_scan_group_fill(scan);
	i = so->pos.point - group->first;
	if (i + 1 < group->n && group->hints[i + 1].blkno != group->hints[i].blkno)
		cb_scan_group_prefetch(&group->hints[i + 1]);
	return group->hints[i];
}

/*
 * A leaf whose lower bound is not right of so->pos, which the scan goes to, and
 * which is near it; its block is invalid: none is known.  No lock or pin is
 * held on entry or on exit, so the leaf may have been split since.  Comparison
 * functions run.
 */
CbLeafHint
cb_scan_find_leaf(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbLeafHint	unknown = {InvalidBlockNumber, InvalidBuffer, 0};

	if (!ScanDirectionIsForward(dir) || so->pos.bound.kind != CB_BOUND_KEYS)
		return unknown;
	if (cb_window_covers(so, &so->pos.bound))
		return so->cur->leaf;
	if (so->pos.points == NULL || so->pos.points->n < 2)
		return unknown;
	return cb_scan_group_leaf(scan);
}
