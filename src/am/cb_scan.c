/*-------------------------------------------------------------------------
 *
 * cb_scan.c
 *	  Index scans: the access method's callbacks.
 *
 * Scan keys and array keys are the server's own code for btree, which works
 * on the BTScanOpaqueData at the start of our opaque data.  A scan with array
 * keys runs one primitive scan for each combination of elements.  Positions
 * are windows (cb_window.c); a scan without a valid window is before its
 * start or past its end, and starts anew in whatever direction comes next.
 *
 * An entry of an upper level can outlive its heap tuple, and nothing makes
 * VACUUM wait for us before its TID is used again (I8).  Under an MVCC
 * snapshot the heap fetch decides, and index-only scans make one here, unless
 * there has been no bulk delete; dirty and self snapshots are told to recheck
 * the key; bitmaps recheck too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "am/cb_scan.h"
#include "base/cb_bulkdel.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "pgstat.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* TIDs that go into a bitmap at a time */
#define CB_SCAN_BITMAP_BATCH	256

/*
 * amcanreturn: an entry has all columns as they were inserted, so any can be.
 */
bool
cb_am_canreturn(Relation index, int attno)
{
	return true;
}

/*
 * ambeginscan: makes a scan, in the current memory context, with a context of
 * its own below that.  Holds no lock or pin yet, and reads nothing.  Raises an
 * error without preload.
 */
IndexScanDesc
cb_am_beginscan(Relation index, int nkeys, int norderbys)
{
	IndexScanDesc scan;
	CbScanOpaque so;
	MemoryContext oldcxt;

	cb_require_preload();

	scan = RelationGetIndexScan(index, nkeys, norderbys);
	scan->xs_itupdesc = RelationGetDescr(index);

	so = palloc(sizeof(CbScanOpaqueData));
	memset(&so->bt, 0, offsetof(BTScanOpaqueData, currPos));
	memset(&so->cxt, 0, offsetof(CbScanOpaqueData, kd) -
		   offsetof(CbScanOpaqueData, cxt));
	memset(&so->descent, 0, offsetof(CbDescent, parent));
	so->cxt = AllocSetContextCreate(CurrentMemoryContext, "cachebatch scan",
									ALLOCSET_SMALL_SIZES);
	so->work_cxt = AllocSetContextCreate(so->cxt, "cachebatch scan window",
										 ALLOCSET_SMALL_SIZES);
	so->group.n = 0;
	so->mark_index = -1;

	oldcxt = MemoryContextSwitchTo(so->cxt);
	if (scan->numberOfKeys > 0)
		so->bt.keyData = palloc(scan->numberOfKeys * sizeof(ScanKeyData));
	cb_key_init(&so->kd, index);
	MemoryContextSwitchTo(oldcxt);

	scan->opaque = so;
	return scan;
}

/* Gives up the current window and the mark. */
static void
cb_scan_drop_windows(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	so->mark_index = -1;
	if (so->mark != NULL)
		so->mark->valid = false;
	cb_window_leave(scan);
}

/*
 * amrescan: gives up the current window and the mark, and takes new keys,
 * which are copied.  What was read of the upper levels is kept if the snapshot
 * is the same.  No lock or pin is held on return, but for a page of the
 * visibility map.
 */
void
cb_am_rescan(IndexScanDesc scan, ScanKey keys, int nkeys,
			 ScanKey orderbys, int norderbys)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	MemoryContext oldcxt;

	cb_scan_drop_windows(scan);
	if (!cb_window_upper_is_current(so, scan->xs_snapshot))
	{
		cb_window_release_upper(so);
		cb_window_forget_ranges(so);
	}
	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	so->bt.numberOfKeys = 0;
	so->bt.arrayKeyCount = 0;
	so->group.n = 0;
	/* not the first one: there may be many */
	if (so->cur != NULL && so->descent.root == NULL &&
		IsMVCCSnapshot(scan->xs_snapshot) && !scan->xactStartedInRecovery)
		so->descent.root = MemoryContextAlloc(so->cxt, BLCKSZ);

	oldcxt = MemoryContextSwitchTo(so->cxt);
	_bt_preprocess_array_keys(scan);
	MemoryContextSwitchTo(oldcxt);
}

/*
 * amendscan: sets the LP_DEAD hints, gives up pins, and frees the scan's
 * memory.
 */
void
cb_am_endscan(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_scan_drop_windows(scan);
	cb_window_release_upper(so);
	if (so->slot != NULL)
		ExecDropSingleTupleTableSlot(so->slot);
	if (BufferIsValid(so->vm_buf))
		ReleaseBuffer(so->vm_buf);
	MemoryContextDelete(so->cxt);
	pfree(so);
}

/*
 * Starts a primitive scan: moves to its first item in the direction.  The
 * upper levels are copied once for all primitive scans after a rescan, when
 * the entries that this backend still has staged have been published.
 */
static bool
cb_scan_first(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbBound		bound;

	if (so->upper == NULL)
	{
		so->deletes = cb_bulkdel_count(scan->indexRelation);
		cb_stage_publish_index(scan->indexRelation);

		/*
		 * Pairs with the barrier at the end of another backend's publication:
		 * of two that publish and then look, one at least sees the other's
		 * entry (A15).
		 */
		pg_memory_barrier();
	}

	pgstat_count_index_scan(scan->indexRelation);
	_bt_preprocess_keys(scan);
	if (!so->bt.qual_ok || !cb_scan_start_bound(scan, dir, &bound))
		return false;
	return cb_window_first(scan, &bound, dir, cb_scan_find_leaf(scan, dir, &bound));
}

static inline bool
cb_scan_has_window(CbScanOpaque so)
{
	return so->cur != NULL && so->cur->valid;
}

/* Moves to the next item in the direction. */
static bool
cb_scan_next(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;

	if (ScanDirectionIsForward(dir))
	{
		if (window->index + 1 < window->nitems)
		{
			window->index++;
			return true;
		}
	}
	else if (window->index > 0)
	{
		window->index--;
		return true;
	}
	return cb_window_next(scan, dir);
}

/*
 * Remembers that the item last returned is dead to everyone, to mark it so
 * when the scan leaves the window.  Only leaf items can be marked.
 */
static void
cb_scan_remember_killed(CbScanOpaque so)
{
	CbWindow   *window = so->cur;

	if (window->cached_attach_id != 0)
		cb_window_drop_cached(window);
	if (!CbScanItemIsUpper(&window->items[window->index]) &&
		window->nkilled < lengthof(window->killed))
		window->killed[window->nkilled++] = window->index;
}

/* Does the scan's snapshot see a row for the TID? */
static bool
cb_scan_is_visible(IndexScanDesc scan, ItemPointer tid)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	ItemPointerData heap_tid = *tid;	/* is moved along a HOT chain */
	bool		call_again = false;
	bool		all_dead = false;
	bool		found;

	if (so->slot == NULL)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(so->cxt);

		so->slot = table_slot_create(scan->heapRelation, NULL);
		MemoryContextSwitchTo(oldcxt);
	}
	found = table_index_fetch_tuple(scan->xs_heapfetch, &heap_tid,
									scan->xs_snapshot, so->slot, &call_again,
									&all_dead);
	ExecClearTuple(so->slot);
	return found;
}

/*
 * Does everybody see the row that an upper level's entry is for?  Without a
 * bulk delete since the scan met it, its TID still is that row's, of which the
 * visibility map tells; and what the snapshot sees keeps its TID for as long
 * as the snapshot is there.
 */
static bool
cb_scan_is_visible_to_all(IndexScanDesc scan, const CbScanItem *item)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	BlockNumber block = ItemPointerGetBlockNumber(&item->itup->t_tid);

	if (!CbScanItemIsUpper(item) || !IsMVCCSnapshot(scan->xs_snapshot) ||
		scan->xactStartedInRecovery || IsolationIsSerializable() ||
		OldSnapshotThresholdActive() ||
		!VM_ALL_VISIBLE(scan->heapRelation, block, &so->vm_buf))
		return false;
	return cb_bulkdel_count(scan->indexRelation) == so->deletes;
}

/*
 * An index-only scan may trust the visibility map alone only for an item of a
 * leaf that has been pinned all the time; on a standby not even then, as
 * entries can have moved to another page.  For others more is asked here.
 */
static bool
cb_scan_item_is_returnable(IndexScanDesc scan)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	CbScanItem *item = &window->items[window->index];

	if (!scan->xs_want_itup)
		return true;
	if (!CbScanItemIsUpper(item) && BufferIsValid(window->buf) &&
		!scan->xactStartedInRecovery)
		return true;
	return cb_scan_is_visible_to_all(scan, item) ||
		cb_scan_is_visible(scan, &item->itup->t_tid);
}

/* Hands the current item to the caller. */
static void
cb_scan_return_item(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanItem *item = &so->cur->items[so->cur->index];

	scan->xs_heaptid = item->itup->t_tid;
	scan->xs_recheck = CbScanItemIsUpper(item) &&
		(scan->xs_snapshot->snapshot_type == SNAPSHOT_DIRTY ||
		 scan->xs_snapshot->snapshot_type == SNAPSHOT_SELF);

	if (scan->xs_want_itup)
		scan->xs_itup = item->itup;
}

/*
 * amgettuple: the next item in the direction, in xs_heaptid, and with
 * xs_want_itup its tuple in xs_itup, which is the scan's until the next call.
 * False: there are no more.
 *
 * Publishes what this backend has staged for the index before the first item.
 * Comparison functions run, so no LWLock or buffer lock is held on entry; on
 * exit none is, but the window's leaf may be pinned until the scan leaves it
 * (I8).
 */
bool
cb_am_gettuple(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	bool		found;

	scan->xs_recheck = false;

	/* only now is it known at which end the array keys start */
	if (so->bt.numArrayKeys != 0 && !cb_scan_has_window(so))
	{
		if (so->bt.numArrayKeys < 0)
			return false;
		_bt_start_array_keys(scan, dir);
	}

	do
	{
		if (!cb_scan_has_window(so))
			found = cb_scan_first(scan, dir);
		else
		{
			if (scan->kill_prior_tuple)
				cb_scan_remember_killed(so);
			found = cb_scan_next(scan, dir);
		}

		while (found && !cb_scan_item_is_returnable(scan))
		{
			CHECK_FOR_INTERRUPTS();
			found = cb_scan_next(scan, dir);
		}
	} while (!found && so->bt.numArrayKeys != 0 &&
			 _bt_advance_array_keys(scan, dir));

	if (found)
		cb_scan_return_item(scan);
	return found;
}

/*
 * Adds the window's items to the bitmap, first those of the leaf, then the
 * others, which are to be rechecked.
 */
static int64
cb_scan_add_window(CbWindow *window, TIDBitmap *tbm)
{
	ItemPointerData tids[CB_SCAN_BITMAP_BATCH];

	for (int recheck = 0; recheck <= 1; recheck++)
	{
		int			n = 0;

		for (int i = 0; i < window->nitems; i++)
		{
			if (CbScanItemIsUpper(&window->items[i]) != (bool) recheck)
				continue;
			if (n == CB_SCAN_BITMAP_BATCH)
			{
				tbm_add_tuples(tbm, tids, n, recheck);
				n = 0;
			}
			tids[n++] = window->items[i].itup->t_tid;
		}
		if (n > 0)
			tbm_add_tuples(tbm, tids, n, recheck);
	}
	return window->nitems;
}

/*
 * amgetbitmap: adds the TIDs of all matches to the bitmap; those of the upper
 * levels are to be rechecked.  Returns how many.  Otherwise as
 * cb_am_gettuple().
 */
int64
cb_am_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	int64		ntids = 0;

	so->ahead.whole = true;
	if (so->bt.numArrayKeys != 0)
	{
		if (so->bt.numArrayKeys < 0)
			return 0;
		_bt_start_array_keys(scan, ForwardScanDirection);
	}

	do
	{
		bool		found = cb_scan_first(scan, ForwardScanDirection);

		while (found)
		{
			ntids += cb_scan_add_window(so->cur, tbm);
			found = cb_window_next(scan, ForwardScanDirection);
		}
	} while (so->bt.numArrayKeys != 0 &&
			 _bt_advance_array_keys(scan, ForwardScanDirection));

	return ntids;
}

/*
 * ammarkpos: remembers the current item, in place of what was marked before.
 * The window is not copied: it is set aside once the scan leaves it.
 */
void
cb_am_markpos(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	so->mark_index = -1;
	if (so->mark != NULL)
		so->mark->valid = false;
	if (cb_scan_has_window(so))
		so->mark_index = so->cur->index;
	if (so->bt.numArrayKeys != 0)
		_bt_mark_array_keys(scan);
}

/*
 * amrestrpos: a mark in the current window costs nothing to restore.  A window
 * that was set aside becomes the current one again; it is not pinned any more.
 */
void
cb_am_restrpos(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (so->bt.numArrayKeys != 0)
		_bt_restore_array_keys(scan);

	if (so->mark_index >= 0)
	{
		so->cur->index = so->mark_index;
		return;
	}

	cb_window_leave(scan);
	if (so->mark != NULL && so->mark->valid)
	{
		CbWindow   *window = so->mark;

		so->mark = so->cur;
		so->cur = window;
		so->mark_index = window->index;
	}
}
