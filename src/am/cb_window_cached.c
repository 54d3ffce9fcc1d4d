/*-------------------------------------------------------------------------
 *
 * cb_window_cached.c
 *	  Look-ups that do without the leaf: which may, and what they keep.
 *
 * A cached entry (cb_entry_cache.h) stands for all that the tree has of one
 * value.  It takes the leaf's place for a scan that
 *
 *	- wants one value of an index of one key column, and nothing else, and has
 *	  just begun: its window starts left of all entries of the value, wherever
 *	  their TIDs would put them;
 *	- found nothing for it in the upper tiers, which it looked at before, and
 *	  what it looked at reaches beyond the value;
 *	- needs no pin on the leaf: who holds the snapshot may meet a TID whose row
 *	  has gone, as with any leaf that has been copied.  An index-only scan asks
 *	  the visibility map, and after that whether the leaf is as it was (I8);
 *	- may leave out what others found dead to everyone.
 *
 * So it is for MVCC snapshots, and for logged indexes.  It is not for recovery, whose redo counts no changes, nor for who
 * began in it, as they must not leave out what is marked dead; nor with
 * old_snapshot_threshold, as the leaf's LSN is not looked at.  Dead marks are
 * not counted: a scan that finds the row dead to everyone takes the entry out.
 * A file that is the transaction's own, which TRUNCATE empties in place, has
 * no attachment, and so no entries here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "am/cb_window.h"
#include "utils/snapmgr.h"

/*
 * Is the scan such a one, as far as it can tell before it has read the leaf?
 * Takes no lock.
 */
bool
cb_window_may_be_cached(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	Relation	rel = scan->indexRelation;

	if (so->pos.points == NULL || !ScanDirectionIsForward(so->pos.dir) ||
		so->pos.bound.kind != CB_BOUND_KEYS)
		return false;
	return cb_entry_cache_is_kept() && so->view.has_hash && so->view.attach_id != 0 &&
		so->keys.space.columns[0].nconds == 1 &&
		IndexRelationGetNumberOfKeyAttributes(rel) == 1 &&
		IsMVCCSnapshot(scan->xs_snapshot) &&
		RelationNeedsWAL(rel) && scan->ignore_killed_tuples &&
		!RecoveryInProgress() && !OldSnapshotThresholdActive();
}

/* Is the bound, NULL if there is none, right of all entries of the value? */
static bool
cb_window_ends_value(IndexScanDesc scan, IndexTuple bound)
{
	return bound == NULL ||
		cb_keys_test(&((CbScanOpaque) scan->opaque)->keys, bound,
					 BTreeTupleGetNAtts(bound, scan->indexRelation),
					 ForwardScanDirection) != CB_KEY_MATCH;
}

/* Has the tuple the value that the scan has gone to? */
static bool
cb_window_has_value(CbScanOpaque so, IndexTuple itup)
{
	const CbKeyCond *points = so->pos.points;
	bool		isnull;
	Datum		value = index_getattr(itup, 1, so->kd.tupdesc, &isnull);

	return !isnull &&
		points->compare(points, (uintptr_t) value, points->values[so->pos.point]) == 0;
}

/*
 * Have the bucket and the range buffer all that there may be of the value, and
 * what a serializable transaction has locked?
 */
static bool
cb_window_has_whole_value(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	return cb_window_ends_value(scan, so->view.hi) &&
		cb_window_ends_value(scan, so->range.high) &&
		cb_window_ends_value(scan, so->locked.end);
}

/*
 * The entry that is kept for the scan's value, and its leaf; false: none is.
 * *tuple gets a copy.  No page is read.  Comparison functions run.
 */
bool
cb_window_find_cached(IndexScanDesc scan, CbCachedTuple *tuple, CbCachedLeaf *leaf)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	return cb_entry_cache_find(scan->indexRelation, so->view.attach_id,
							   so->view.hash, tuple, leaf) &&
		cb_window_has_whole_value(scan) &&
		cb_window_has_value(so, &tuple->header);
}

/*
 * The window has all that there is of the scan's value, and its leaf is still
 * share-locked, so that nobody changes it: keeps the entry, if it is one.
 */
void
cb_window_keep_cached(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;

	if (window->nitems != 1 || CbScanItemIsUpper(&window->items[0]))
		return;
	cb_entry_cache_keep(scan->indexRelation, so->view.attach_id, so->view.hash,
						window->leaf.blkno, window->items[0].itup);
	window->cached_attach_id = so->view.attach_id;
	window->cached_hash = so->view.hash;
}

/*
 * The row of the window's entry is dead to everyone: takes it out of the
 * cached ones.
 */
void
cb_window_drop_cached(CbWindow *window)
{
	cb_entry_cache_drop(window->cached_attach_id, window->cached_hash);
}
