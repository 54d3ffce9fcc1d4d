/*-------------------------------------------------------------------------
 *
 * cb_window_cached.c
 *	  Look-ups that do without the leaf: which may, and what they keep.
 *
 * A cached entry (cb_entry_cache.h) stands for all that the tree has of one
 * value, of all key columns together.  It takes the leaf's place for a scan that
 *
 *	- wants one value of each key column, and nothing else, and has just begun:
 *	  its window starts left of all entries of the value, wherever their TIDs
 *	  would put them;
 *	- found nothing for it in the upper tiers, which it looked at before, and
 *	  what it looked at reaches beyond the value;
 *	- needs no pin on the leaf: who holds the snapshot may meet a TID whose row
 *	  has gone, as with any leaf that has been copied.  An index-only scan takes
 *	  it only if all see the row, as the visibility map tells (see cb_scan.c);
 *	  else it would have the table asked twice;
 *	- may leave out what others found dead to everyone.
 *
 * So it is for MVCC snapshots, and for logged indexes.  It is not for
 * index-only scans of serializable transactions, which lock rows that they
 * read.  It is not for recovery, whose redo counts no changes, nor for who
 * began in it, as they must not leave out what is marked dead; nor with
 * old_snapshot_threshold, as the leaf's LSN is not looked at.  Dead marks are
 * not counted: a scan that finds the row dead to everyone takes the entry out.
 * A file that is the transaction's own, which TRUNCATE empties in place, has
 * no attachment, and so no entries here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "am/cb_window.h"
#include "common/hashfn.h"
#include "utils/datum.h"
#include "utils/snapmgr.h"

/* The condition on a key column that has one value: that number *i. */
static inline const CbKeyCond *
cb_window_get_point(CbScanOpaque so, int column, int *i)
{
	*i = column == 0 ? so->pos.point : 0;
	return column == 0 ? so->pos.points : so->keys.space.columns[column].conds;
}

/*
 * The hash of the one value that is wanted in a key column but the first; false: there
 * is none such.  Its image is hashed: who asks for an equal value that looks otherwise
 * finds nothing kept.
 */
static bool
cb_window_hash_column(CbScanOpaque so, int column, uint32 *hash)
{
	const CbKeyCond *cond = so->keys.space.columns[column].conds;
	Form_pg_attribute att = TupleDescAttr(so->kd.tupdesc, column);
	const CbKeysType *type;
	Datum		value;

	if (so->keys.space.columns[column].nconds != 1 || cond->kind != CB_COND_POINTS ||
		cond->n != 1 || cond->is_null)
		return false;
	type = cond->arg;
	value = (Datum) cond->values[0];
	if (OidIsValid(type->type) && !cb_key_convert_integer(type->operator.fn_oid, &value))
		return false;
	*hash = datum_image_hash(value, att->attbyval, att->attlen);
	return true;
}

/*
 * Does the scan want one value of each key column, and nothing else?  Then
 * so->whole_hash becomes the hash of them all.
 */
static bool
cb_window_wants_whole_value(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	const CbKeySpace *space = &so->keys.space;
	uint32		hash;

	if (so->pos.points == NULL || space->columns[0].nconds != 1 ||
		space->ncolumns != IndexRelationGetNumberOfKeyAttributes(scan->indexRelation))
		return false;
	so->whole_hash = so->view.hash;
	for (int column = 1; column < space->ncolumns; column++)
	{
		if (!cb_window_hash_column(so, column, &hash))
			return false;
		so->whole_hash = hash_combine(so->whole_hash, hash);
	}
	return true;
}

/*
 * Is the scan such a one, as far as it can tell before it has read the leaf?
 * Takes no lock.  Can raise an error for lack of memory.
 */
bool
cb_window_may_be_cached(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	Relation	rel = scan->indexRelation;

	if (!ScanDirectionIsForward(so->pos.dir) || so->pos.bound.kind != CB_BOUND_KEYS)
		return false;
	return cb_entry_cache_is_kept() && so->view.has_hash && so->view.attach_id != 0 &&
		IsMVCCSnapshot(scan->xs_snapshot) &&
		!(scan->xs_want_itup && IsolationIsSerializable()) &&
		RelationNeedsWAL(rel) && scan->ignore_killed_tuples &&
		!RecoveryInProgress() && !OldSnapshotThresholdActive() &&
		cb_window_wants_whole_value(scan);
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
	for (int column = 0; column < so->keys.space.ncolumns; column++)
	{
		int			i;
		const CbKeyCond *points = cb_window_get_point(so, column, &i);
		bool		isnull;
		Datum		value = index_getattr(itup, column + 1, so->kd.tupdesc, &isnull);

		if (isnull || points->compare(points, (uintptr_t) value, points->values[i]) != 0)
			return false;
	}
	return true;
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
 * Does everybody see the row of the entry that was found?  The leaf has had the
 * entry until after the map was read.
 */
static bool
cb_window_all_see_cached(IndexScanDesc scan, IndexTuple itup, const CbCachedLeaf *leaf)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	CB_TEST_POINT("scan-cached");
	return VM_ALL_VISIBLE(scan->heapRelation, ItemPointerGetBlockNumber(&itup->t_tid),
						  &so->vm_buf) &&
		cb_entry_cache_is_same(scan->indexRelation, leaf);
}

/*
 * The entry that is kept for the scan's value, and the block of its leaf; false: there
 * is none, or none that the scan may take.  *tuple gets a copy.  No page is read but of
 * the visibility map.  Comparison functions run.
 */
bool
cb_window_find_cached(IndexScanDesc scan, CbCachedTuple *tuple, BlockNumber *block)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbCachedLeaf leaf;

	if (!cb_entry_cache_find(scan->indexRelation, so->view.attach_id,
							 so->whole_hash, tuple, &leaf) ||
		!cb_window_has_whole_value(scan) ||
		!cb_window_has_value(so, &tuple->header))
		return false;
	*block = leaf.block;
	return !scan->xs_want_itup || cb_window_all_see_cached(scan, &tuple->header, &leaf);
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
	cb_entry_cache_keep(scan->indexRelation, so->view.attach_id, so->whole_hash,
						window->leaf.blkno, window->items[0].itup);
	window->cached_attach_id = so->view.attach_id;
	window->cached_hash = so->whole_hash;
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
