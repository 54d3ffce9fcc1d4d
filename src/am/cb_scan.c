/*-------------------------------------------------------------------------
 *
 * cb_scan.c
 *	  Index scans: the access method's callbacks.
 *
 * Positions are windows (cb_window.c); a scan without a valid window is before
 * its start or past its end, and starts anew in whatever direction comes next.
 * What the keys want is told by each entry alone (cb_keys.h), so nothing else
 * has to be kept for a mark, or for a scan that turns round.
 *
 * An entry of an upper tier can outlive its heap tuple, and nothing makes
 * VACUUM wait for us before its TID is used again (I8).  Under an MVCC
 * snapshot the heap fetch decides, and index-only scans make one here, unless
 * there has been no bulk delete.  Under a dirty or self snapshot a window is
 * read again if there has been one (cb_window.c).  Bitmaps are rechecked.
 *
 * An index-only scan returns an entry of an upper tier without the heap if the
 * visibility map says so of its page, and after that the index's count of
 * removals (cb_counts.h) is as before the scan read anything that it still has.
 * If the TID was given away since the entry was met, a bulk delete of this
 * index began in between, and was counted as it began (I8_BEGIN).  If not, the
 * map speaks of the entry's row: a page with a dead line pointer is not
 * all-visible.  The snapshot sees that row, which keeps its TID; a scan that
 * sees it deleted later asks the heap at the same TID.  So only MVCC snapshots
 * may, not with old_snapshot_threshold, nor in serializable transactions, which
 * lock rows that they read.  Copies that outlive a rescan keep their count
 * (I8_COUNT).
 *
 * A cached entry is the tree's, and a bulk delete that is under way may have yet to
 * come to it.  An index-only scan takes it if the map says that all see its row, and
 * after that its leaf is as it was when it was met: so its TID had not been given away
 * when the map was read (I8_CACHED).
 *
 * On a standby no scan relies on a pin, so replay of VACUUM_LEAF takes the
 * exclusive lock only, and cancels no query.  Index-only scans that began in
 * recovery ask the heap, for entries of a leaf too (I8_STANDBYPIN), unless all
 * see the row.  The row that has got a TID since is one that the snapshot does
 * not see: it was inserted after the replay of VACUUM_LEAF, which came after
 * the snapshot.  Other snapshots are for writing (constraints, logical apply,
 * rebuilds), so recovery has none.  That all see it is believed as on a
 * primary, by a scan that no VACUUM of this server has come before: replay
 * counts the records that take entries out of a tier (JOURNAL_TRUNCATE,
 * RETIRE, VACUUM_LEAF, LEAF_DELETE) when their pages are changed, and these
 * come before the table's records that give the TID away (I8_REPLAYED).  Rows
 * that the snapshot does not see are on no page that is all-visible: replay of
 * that ends the query first, as with btree.
 *
 * At a promotion a transaction that began in recovery asks the heap to its end,
 * but for scans that began before the promotion, and VACUUM removes no row that
 * it sees.  Any other, and a parallel worker, has read nothing before replay
 * ended, so each VACUUM that it meets takes cleanup locks.  Under other
 * snapshots a scan keeps its pin in any case: its transaction can write after
 * promotion.  Nothing is marked dead in recovery, and what is not logged cannot
 * be read there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "access/xlog.h"
#include "am/cb_scan.h"
#include "am/cb_unique.h"
#include "base/cb_counts.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* TIDs that go into a bitmap at a time */
#define CB_SCAN_BITMAP_BATCH	256

/* items that the visibility map is asked for at a time: of a window at first, then */
#define CB_SCAN_MAP_FIRST		4
#define CB_SCAN_MAP_BATCH		64

/*
 * Memory of a scan that has ended, for the next one, or NULL.  A session makes one
 * scan after the other, and most read one window: there is one for each row of
 * INSERT ... ON CONFLICT.
 */
static CbScanOpaque cb_scan_spare = NULL;

/*
 * amcanreturn: an entry has all columns as they were inserted, so any can be.
 * Without preload none: the planner of version 18 looks for the ends of an
 * index that returns its column, and no query may fail for that (C1).
 */
bool
cb_am_canreturn(Relation index, int attno)
{
	return cb_preloaded;
}

/* The contexts of a scan, below the current one, with its state in the first. */
static CbScanOpaque
cb_scan_make_memory(void)
{
	MemoryContext own = AllocSetContextCreate(CurrentMemoryContext, "cachebatch scan",
											  ALLOCSET_SMALL_SIZES);
	CbScanOpaque so = MemoryContextAlloc(own, sizeof(CbScanOpaqueData));

	so->own_cxt = own;
	so->cxt = AllocSetContextCreate(own, "cachebatch scan data",
									ALLOCSET_DEFAULT_SIZES);
	so->work_cxt = AllocSetContextCreate(own, "cachebatch scan window",
										 ALLOCSET_SMALL_SIZES);
	so->keys.room = 0;
	so->upper_serial = 0;
	memset(&so->pos, 0, sizeof(CbPlace));
	so->first.items = NULL;
	return so;
}

/*
 * Memory for a scan, below the current context, so that it goes with that if the
 * scan is not ended.
 */
static CbScanOpaque
cb_scan_get_memory(void)
{
	CbScanOpaque so = cb_scan_spare;

	if (so == NULL)
		return cb_scan_make_memory();
	cb_scan_spare = NULL;
	MemoryContextSetParent(so->own_cxt, CurrentMemoryContext);
	return so;
}

/*
 * The scan's memory is kept for the next one, or freed if some is kept, or if it
 * has a second window.
 */
static void
cb_scan_put_memory(CbScanOpaque so)
{
	if (cb_scan_spare != NULL || so->mark != NULL)
	{
		MemoryContextDelete(so->own_cxt);
		return;
	}
	MemoryContextReset(so->cxt);
	MemoryContextReset(so->work_cxt);
	cb_window_end(&so->first);
	MemoryContextSetParent(so->own_cxt, TopMemoryContext);
	cb_scan_spare = so;
}

/*
 * ambeginscan: makes a scan, in the current memory context, with contexts of its
 * own below that.  Holds no lock or pin yet, and reads nothing.  Raises an error
 * without preload.
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
	/* the server sets it later, but not in scans of our own */
	scan->parallel_scan = NULL;

	so = cb_scan_get_memory();
	memset((char *) so + offsetof(CbScanOpaqueData, upper_cxt), 0,
		   offsetof(CbScanOpaqueData, kd) - offsetof(CbScanOpaqueData, upper_cxt));
	memset(&so->descent, 0, offsetof(CbDescent, parent));
	so->group.n = 0;
	so->mark_index = -1;

	oldcxt = MemoryContextSwitchTo(so->cxt);
	cb_key_init(&so->kd, index);
	MemoryContextSwitchTo(oldcxt);
	cb_keys_init(&so->keys, &so->kd, nkeys, so->own_cxt);

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
 * which are copied.  What was read of the upper tiers is kept if the snapshot
 * is the same.  No lock or pin is held on return, but for a page of the
 * visibility map.
 */
void
cb_am_rescan(IndexScanDesc scan, ScanKey keys, int nkeys,
			 ScanKey orderbys, int norderbys)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_scan_drop_windows(scan);
	if (!cb_window_upper_is_current(so, scan->xs_snapshot))
	{
		cb_window_release_upper(so);
		cb_window_forget_ranges(so);
	}
	if (keys && scan->numberOfKeys > 0)
		memmove(scan->keyData, keys, scan->numberOfKeys * sizeof(ScanKeyData));
	so->group.n = 0;
	/* not the first one: there may be many */
	if (so->cur != NULL && so->descent.root == NULL &&
		IsMVCCSnapshot(scan->xs_snapshot) && !scan->xactStartedInRecovery)
		so->descent.root = MemoryContextAlloc(so->cxt, BLCKSZ);
	so->possible = cb_keys_set(&so->keys, scan->keyData, scan->numberOfKeys, so->cxt);
}

/*
 * amendscan: sets the LP_DEAD hints, and gives up pins and the scan's memory.
 */
void
cb_am_endscan(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_scan_drop_windows(scan);
	cb_window_release_upper(so);
	if (so->counts.windows > 0 && !so->is_internal)
		cb_explain_keep(&so->counts, RelationGetRelid(scan->indexRelation));
	if (so->slot != NULL)
		ExecDropSingleTupleTableSlot(so->slot);
	if (BufferIsValid(so->vm_buf))
		ReleaseBuffer(so->vm_buf);
	cb_scan_put_memory(so);
}

/*
 * For a scan that will be used for other keys later, and not ended: gives up all
 * that it holds, and all that it knows.
 */
void
cb_scan_forget(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_scan_drop_windows(scan);
	cb_window_release_upper(so);
	cb_window_forget_ranges(so);
	if (so->cur != NULL)
		cb_window_forget(so->cur);
}

/*
 * Does the planner ask for an end of the index, as it does from version 18 on?
 * It looks at the table itself, and guesses only, so it gets what there is.
 */
static inline bool
cb_scan_is_guess(IndexScanDesc scan)
{
	return scan->xs_snapshot->snapshot_type == SNAPSHOT_NON_VACUUMABLE;
}

/*
 * Publishes what this backend has staged, unless it cannot be what is looked
 * for.  A scan with a dirty snapshot wants to see what others are inserting, too.
 * False: there is nothing that it looks for.
 */
static bool
cb_scan_prepare(IndexScanDesc scan)
{
	CbUniqueLook look = CB_UNIQUE_LOOK_STAGED;

	if (scan->xs_snapshot->snapshot_type == SNAPSHOT_DIRTY)
		look = cb_unique_settle_claims(scan);
	if (look == CB_UNIQUE_LOOK_STAGED)
		cb_stage_publish_index(scan->indexRelation);
	return look != CB_UNIQUE_LOOK_ABSENT;
}

/*
 * Starts the scan: moves to its first item in the direction.  The upper tiers
 * are copied once after a rescan, when the scan was prepared.
 */
static bool
cb_scan_first(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	/* a piece of the journal may begin beyond the scan's beginning */
	if (so->upper != NULL && so->upper->dir != NoMovementScanDirection)
		cb_window_release_upper(so);
	if (so->upper == NULL)
	{
		so->is_internal = so->for_unique || cb_scan_is_guess(scan);
		if (!so->is_internal && !cb_scan_prepare(scan))
		{
			pgstat_count_index_scan(scan->indexRelation);
			return false;
		}
		so->removals = cb_counts_removals(scan->indexRelation);
		so->began_in_recovery = RecoveryInProgress();

		/*
		 * Pairs with the barrier at the end of another backend's publication:
		 * of two that publish and then look, one at least sees the other's
		 * entry (A15).
		 */
		pg_memory_barrier();
	}

	return cb_window_first(scan, dir);
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
	cb_scan_rows_turn(scan, &heap_tid);
	found = table_index_fetch_tuple(scan->xs_heapfetch, &heap_tid,
									scan->xs_snapshot, so->slot, &call_again,
									&all_dead);
	ExecClearTuple(so->slot);
	return found;
}

/* Are the TIDs of what the scan's window has still the same rows'? */
static inline bool
cb_scan_keeps_tids(IndexScanDesc scan)
{
	return cb_counts_removals(scan->indexRelation) ==
		((CbScanOpaque) scan->opaque)->cur->removals;
}

/* The map's page that tells of a block; a guess that is wrong costs time alone. */
static inline BlockNumber
cb_scan_map_page(BlockNumber blkno)
{
	return blkno / ((BLCKSZ - MAXALIGN(SizeOfPageHeaderData)) *
					(BITS_PER_BYTE / BITS_PER_HEAPBLOCK));
}

/*
 * Of the window's items from number from on, those asked for (a bit each): which
 * have rows that everybody sees, as the visibility map tells?  In the order of
 * the keys rows can lie anywhere, so the map is read page by page.
 */
static uint64
cb_scan_read_map(IndexScanDesc scan, int from, uint64 asked)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	uint64		all = 0;

	while (asked != 0)
	{
		BlockNumber page = InvalidBlockNumber;

		for (uint64 left = asked; left != 0; left &= left - 1)
		{
			int			i = pg_rightmost_one_pos64(left);
			uint64		bit = UINT64CONST(1) << i;
			BlockNumber blkno = ItemPointerGetBlockNumber(&so->cur->items[from + i].itup->t_tid);

			if (page == InvalidBlockNumber)
				page = cb_scan_map_page(blkno);
			else if (cb_scan_map_page(blkno) != page)
				continue;
			asked &= ~bit;
			if (VM_ALL_VISIBLE(scan->heapRelation, blkno, &so->vm_buf))
				all |= bit;
		}
	}
	return all;
}

/*
 * Asks the visibility map for the window's current item and for some that come
 * next in the direction.  A leaf's entry can be one that a bulk delete has yet to
 * come to, unless there was none: in recovery.
 */
static void
cb_scan_ask_map(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	bool		forward = ScanDirectionIsForward(dir);
	int			n = window->map_to == 0 ? CB_SCAN_MAP_FIRST : CB_SCAN_MAP_BATCH;
	int			from = forward ? window->index : Max(0, window->index - n + 1);
	int			to = forward ? Min(window->nitems, from + n) : window->index + 1;
	uint64		asked = 0;

	for (int i = from; i < to; i++)
	{
		if (CbScanItemIsUpper(&window->items[i]) || so->began_in_recovery)
			asked |= UINT64CONST(1) << (i - from);
	}
	window->map_all = cb_scan_read_map(scan, from, asked);
	cb_scan_rows_ask_some(scan, from, asked & ~window->map_all);
	window->map_from = from;
	window->map_to = to;
}

/*
 * Does everybody see the row that the window's item is for, as the visibility map
 * tells while its TID is that row's?  What the snapshot sees keeps its TID for as
 * long as the snapshot is there; so the answer is found, and kept, for some of the
 * items that come next.
 */
static bool
cb_scan_is_visible_to_all(IndexScanDesc scan, ScanDirection dir)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	int			i = window->index;

	if (i < window->map_from || i >= window->map_to)
	{
		if (!IsMVCCSnapshot(scan->xs_snapshot) || IsolationIsSerializable() ||
			OldSnapshotThresholdActive() || !cb_scan_keeps_tids(scan))
			return false;
		cb_scan_ask_map(scan, dir);
		if (!cb_scan_keeps_tids(scan))
		{
			window->map_to = 0;
			return false;
		}
	}
	return (window->map_all & (UINT64CONST(1) << (i - window->map_from))) != 0;
}

/*
 * An index-only scan may trust the visibility map alone only for an item of a
 * leaf that has been pinned all the time; on a standby not even then, as
 * entries can have moved to another page.  For others more is asked here.
 */
static bool
cb_scan_item_is_returnable(IndexScanDesc scan, ScanDirection dir)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	CbScanItem *item = &window->items[window->index];

	if (!scan->xs_want_itup || cb_scan_is_guess(scan))
		return true;
	if (!CbScanItemIsUpper(item) && BufferIsValid(window->buf) &&
		!scan->xactStartedInRecovery)
		return true;
	return cb_scan_is_visible_to_all(scan, dir) ||
		cb_scan_is_visible(scan, &item->itup->t_tid);
}

/* Hands the current item to the caller, who mostly looks at its row next. */
static void
cb_scan_return_item(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanItem *item = &so->cur->items[so->cur->index];

	scan->xs_heaptid = item->itup->t_tid;
	if (scan->xs_want_itup)
		scan->xs_itup = item->itup;
	else
		cb_scan_rows_come(scan, dir);
}

/*
 * amgettuple: the next item in the direction, in xs_heaptid, and with
 * xs_want_itup its tuple in xs_itup, which is the scan's until the next call.
 * False: there are no more.  No recheck is asked for: not all callers make it,
 * and the server's says of nulls that they are never the same (A20).
 *
 * Before the first item it publishes what this backend has staged for the
 * index, if the scan could find it.  Comparison functions run, so no LWLock or
 * buffer lock is held on entry.  None is on exit, but the window's leaf may be
 * pinned until the scan leaves it (I8), and the table's scan may have the row's
 * page pinned, which may be pruned (cb_scan_rows.c).
 */
bool
cb_am_gettuple(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	bool		found;

	scan->xs_recheck = false;
	if (!so->possible)
		return false;
	if (!cb_scan_has_window(so))
	{
		found = cb_scan_first(scan, dir);
		if (!so->for_unique && scan->xs_snapshot->snapshot_type == SNAPSHOT_DIRTY)
			cb_unique_note_found(scan, found);
	}
	else
	{
		if (scan->kill_prior_tuple)
			cb_scan_remember_killed(so);
		cb_scan_rows_note(scan);
		found = cb_scan_next(scan, dir);
	}

	while (found && !cb_scan_item_is_returnable(scan, dir))
	{
		CHECK_FOR_INTERRUPTS();
		found = cb_scan_next(scan, dir);
	}

	if (found)
		cb_scan_return_item(scan, dir);
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
 * tiers are to be rechecked.  Returns how many.  Otherwise as
 * cb_am_gettuple().
 */
int64
cb_am_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	int64		ntids = 0;
	bool		found;

	so->ahead.whole = true;
	found = so->possible && cb_scan_first(scan, ForwardScanDirection);
	while (found)
	{
		ntids += cb_scan_add_window(so->cur, tbm);
		found = cb_window_next(scan, ForwardScanDirection);
	}
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
}

/*
 * amrestrpos: a mark in the current window costs nothing to restore.  A window
 * that was set aside becomes the current one again; it is not pinned any more.
 */
void
cb_am_restrpos(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

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
	/* a piece may begin beyond it */
	if (so->upper != NULL && so->upper->dir != NoMovementScanDirection)
		cb_window_release_upper(so);
}
