/*-------------------------------------------------------------------------
 *
 * cb_scan_group.c
 *	  Where a primitive scan begins, if that is known without a descent.
 *
 * A scan with an array key looks its elements up one after the other, in the
 * order of the index.  The leaves of the next ones are found together, which
 * locks few pages, and reads those in that are not in memory; each primitive
 * scan then begins at its leaf.  A scan that is started again with another
 * key begins at the leaf that it read last, if that has the key's place.
 *
 * Only going forward: a scan going backward needs the leaf's lower bound.
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
 * The array key whose elements' order is that in which the scan goes through
 * the index, or NULL: the only one, for equality in the first column.  If that
 * column has another equality as well, the scan may start by that one's value,
 * whose type tells how values are compared.
 */
static BTArrayKeyInfo *
cb_scan_group_array(IndexScanDesc scan)
{
	BTScanOpaque bt = &((CbScanOpaque) scan->opaque)->bt;
	ScanKey		key;

	if (bt->numArrayKeys != 1)
		return NULL;
	key = &bt->arrayKeyData[bt->arrayKeys[0].scan_key];
	if (key->sk_attno != 1 || key->sk_strategy != BTEqualStrategyNumber)
		return NULL;
	if (((CbScanOpaque) scan->opaque)->start_keys[0].sk_subtype != key->sk_subtype)
		return NULL;
	return &bt->arrayKeys[0];
}

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

/* Finds the leaves of the array's present element and of those behind it. */
static void
cb_scan_group_fill(IndexScanDesc scan, const BTArrayKeyInfo *array,
				   const CbBound *bound)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanGroup *group = &so->group;
	CbBound		first = *bound;
	Datum		values[CB_SCAN_GROUP_MAX];
	int			n = group->n > 0 ? 2 * group->n : CB_SCAN_GROUP_MIN;

	/* to begin at the first entry with the element is never too late */
	first.nkeys = 1;
	first.after = false;
	group->n = 0;
	n = Min(n, array->num_elems - array->cur_elem);
	n = Min(n, CB_SCAN_GROUP_MAX);
	for (int i = 0; i < n; i++)
	{
		values[i] = array->elem_values[array->cur_elem + i];
		(void) cb_key_widen_integer(so->kd.order_proc[0],
									first.keys[0].sk_subtype, &values[i]);
	}
	cb_tree_find_leaves(&so->kd, &first, values, n, scan->xs_snapshot,
						group->hints);
	group->first = array->cur_elem;
	group->n = n;
	CB_TEST_POINT("scan-group-found");
}

/* The leaf of the array's present element. */
static CbLeafHint
cb_scan_group_leaf(IndexScanDesc scan, const BTArrayKeyInfo *array,
				   const CbBound *bound)
{
	CbScanGroup *group = &((CbScanOpaque) scan->opaque)->group;
	int			i = array->cur_elem - group->first;

	if (i < 0 || i >= group->n)
	{
		cb_scan_group_fill(scan, array, bound);
		i = 0;
	}
	if (i + 1 < group->n && group->hints[i + 1].blkno != group->hints[i].blkno)
		cb_scan_group_prefetch(&group->hints[i + 1]);
	return group->hints[i];
}

/*
 * A leaf whose lower bound is not right of the bound where a primitive scan
 * starts, and which is near it; its block is invalid: none is known.  No lock
 * or pin is held on entry or on exit, so the leaf may have been split since.
 * Comparison functions run.
 */
CbLeafHint
cb_scan_find_leaf(IndexScanDesc scan, ScanDirection dir, const CbBound *bound)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbLeafHint	unknown = {InvalidBlockNumber, InvalidBuffer};
	BTArrayKeyInfo *array;

	if (!ScanDirectionIsForward(dir) || bound->kind != CB_BOUND_KEYS)
		return unknown;
	if (cb_window_covers(so, bound))
		return so->cur->leaf;
	array = cb_scan_group_array(scan);
	if (array == NULL || array->num_elems < 2)
		return unknown;
	return cb_scan_group_leaf(scan, array, bound);
}
