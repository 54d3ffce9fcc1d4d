/*-------------------------------------------------------------------------
 *
 * cb_window.c
 *	  Reading an index scan's windows, and leaving them.
 *
 * To read the window that starts at a bound:
 *
 *	1. every upper level is copied, uppermost first (cb_window_levels);
 *	2. the leaf beyond the bound is copied under its share lock;
 *	3. with no lock held, the leaf's entries and those of the upper levels in
 *	   the window are merged in scan order and tested against the quals.
 *
 * Where the upper levels have nothing, the first window of a scan, which is
 * short, is read from the leaf itself under its lock; so is one at an end of
 * the index, which is shorter, for which the bucket's first entry was copied.
 *
 * In recovery a run of an upper level can be given up before it is read: then
 * all three are done again (cb_window_range.c).
 *
 * An entry moves from an upper level to a lower one only, and is readable
 * below before it goes above, so this order of reading cannot miss it; an
 * entry that is seen twice is returned once, as the leaf's.  The window is
 * [bound, high key) going forward and [leaf's lower bound, bound) going
 * backward; it ends earlier if it would take too many entries of upper levels,
 * or is the first one and has enough, and the leaf is then read again for the
 * next one.
 *
 * At most one leaf is pinned, none is locked, between calls.  The pin is kept
 * where VACUUM has to wait for the scan before a TID can be used again: in
 * index-only scans, but for those that look at the table for each row, as
 * their transaction began in recovery, and under snapshots that are not MVCC.
 * It is also kept where page LSNs cannot tell that a leaf has changed, for
 * LP_DEAD hints.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"
#include "base/cb_heat.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/*
 * An upper level.  copy: called before each leaf is read, makes what the
 * level holds at so->pos and beyond stay readable for the window.  open: adds
 * its entries between the window's bounds to the merge; called without locks.
 */
typedef struct CbUpperLevel
{
	void		(*copy) (IndexScanDesc scan, ScanDirection dir);
	void		(*open) (CbScanOpaque so, CbMerge *merge, CbPlace *near,
						 CbPlace *far);
} CbUpperLevel;

/*
 * Uppermost first.  What the buckets hold and what the journal holds from
 * before them are apart; the first tells how far the second goes.
 */
static const CbUpperLevel cb_window_levels[] = {
	{cb_window_copy_bucket, cb_window_open_bucket},
	{cb_window_copy_journal, cb_window_open_journal},
	{cb_window_copy_range, cb_window_open_range},
};

/* ---------- reading a window ---------- */

/* Opens all levels between the window's bounds. */
static void
cb_window_open_merge(IndexScanDesc scan, CbMerge *merge, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	bool		forward = ScanDirectionIsForward(dir);

	merge->step = forward ? 1 : -1;
	merge->far = forward ? &window->hi.bound : &window->lo.bound;
	merge->nsources = 0;
	merge->nordered = 0;
	for (int i = 0; i < lengthof(cb_window_levels); i++)
		cb_window_levels[i].open(so, merge,
								 forward ? &window->lo : &window->hi,
								 forward ? &window->hi : &window->lo);
	cb_merge_open_leaf(so, merge);
}

/* Makes a window without contents, for the life of the scan. */
static CbWindow *
cb_window_init(CbScanOpaque so, CbWindow *window)
{
	memset(window, 0, offsetof(CbWindow, killed));
	window->nallocated = 32;
	window->items = MemoryContextAlloc(so->cxt, sizeof(CbScanItem) *
									   window->nallocated);
	cb_arena_init(&window->kept, so->cxt);
	return window;
}

/*
 * Ends the window before the merge's next entry, in the direction of the
 * scan: the next window starts with that entry.  Its place in the runs is
 * found anew then: a run may be past entries beyond it, which the leaf has as
 * well.
 */
static void
cb_window_end_early(CbScanOpaque so, CbMerge *merge)
{
	bool		forward = merge->step > 0;
	CbPlace    *far = forward ? &so->cur->hi : &so->cur->lo;

	cb_place_set_tuple(so, far, merge->ordered[0]->head, !forward);
	if (forward)
		far->leaf = so->cur->leaf;
	far->upper_serial = 0;
}

static void
cb_window_reverse_items(CbWindow *window)
{
	for (int i = 0, j = window->nitems - 1; i < j; i++, j--)
	{
		CbScanItem	item = window->items[i];

		window->items[i] = window->items[j];
		window->items[j] = item;
	}
}

/*
 * A copy of an entry, which lives as long as the window.  Its size is read
 * once: a comparison may have lost the leaf's lock.
 */
static IndexTuple
cb_window_keep(CbWindow *window, IndexTuple itup)
{
	CbArena    *kept = &window->kept;
	Size		len = ((volatile IndexTupleData *) itup)->t_info & INDEX_SIZE_MASK;
	Size		size = MAXALIGN(len);
	IndexTuple	copy;

	if (kept->left < size + CB_SCAN_SLACK)
		cb_arena_extend(kept, size + CB_SCAN_SLACK);
	copy = cb_arena_alloc(kept, size);
	memcpy(copy, itup, len);
	return copy;
}

/* Does the head of a source stay as it is while the window lives? */
static inline bool
cb_window_has(const CbWindow *window, const CbSource *source)
{
	return source->kind == CB_SOURCE_PACKED ||
		source->kind == CB_SOURCE_SPILLED ||
		(source->kind == CB_SOURCE_LEAF && window->copied);
}

/* Adds the head of a source to the window. */
static void
cb_window_add_item(CbWindow *window, const CbSource *source)
{
	CbScanItem *item;

	if (window->nitems == window->nallocated)
	{
		window->nallocated *= 2;
		window->items = repalloc(window->items,
								 sizeof(CbScanItem) * window->nallocated);
	}
	item = &window->items[window->nitems++];
	item->itup = cb_window_has(window, source) ? source->head :
		cb_window_keep(window, source->head);
	item->origin = source->kind == CB_SOURCE_LEAF ? CB_ITEM_PLAIN :
		source->kind == CB_SOURCE_PACKED ? CB_ITEM_PACKED : CB_ITEM_UPPER;
	item->number = CbSourceIsUpper(source) ? 0 : source->cur;
}

/*
 * How many items the first window of a scan has at most.  One that begins at
 * an end of the index, or at its nulls, mostly wants the one entry there: min,
 * max.
 */
static int
cb_window_first_max(CbScanOpaque so)
{
	return cb_bound_is_at_end(&so->pos.bound) ? CB_WINDOW_END_MAX :
		CB_WINDOW_FIRST_MAX;
}

/*
 * Fills the window from the merge.  Returns whether there may be matches
 * beyond it in the scan's direction, as far as the quals tell.
 */
static bool
cb_window_fill(IndexScanDesc scan, CbMerge *merge, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	Relation	rel = scan->indexRelation;
	int			natts = IndexRelationGetNumberOfAttributes(rel);
	int			nupper = 0;
	int			most = so->starting ? cb_window_first_max(so) : INT_MAX;
	bool		more = true;

	cb_merge_start(scan, merge);
	for (; merge->nordered > 0; cb_merge_advance(scan, merge))
	{
		CbSource   *source = merge->ordered[0];

		if (nupper >= CB_WINDOW_UPPER_MAX || window->nitems >= most)
		{
			cb_window_end_early(so, merge);
			return true;
		}
		if (CbSourceIsUpper(source))
			nupper++;

		if (_bt_checkkeys(scan, source->head, natts, dir, &more) &&
			!source->head_dead)
			cb_window_add_item(window, source);
		if (!more)
			return false;
	}

	/* the high key can tell that there are no matches further right */
	if (ScanDirectionIsForward(dir) && window->hi.bound.kind == CB_BOUND_TUPLE)
	{
		IndexTuple	high = window->hi.bound.tuple;

		(void) _bt_checkkeys(scan, high, BTreeTupleGetNAtts(high, rel), dir,
							 &more);
	}
	return more;
}

static void
cb_window_copy_levels(IndexScanDesc scan, ScanDirection dir)
{
	for (int i = 0; i < lengthof(cb_window_levels); i++)
		cb_window_levels[i].copy(scan, dir);
	CB_TEST_POINT("scan-upper-copied");
}

/*
 * Is the leaf read in place?  A few entries are looked at for one that is
 * wanted.  Nothing that is read beside it takes a lock.
 */
static inline bool
cb_window_is_read_in_place(CbScanOpaque so)
{
	return so->starting && so->upper->nruns == 0 &&
		(!so->in_range || so->ranges->nwanted == 0) &&
		so->view.nchunks == 0;
}

/*
 * The window of a look-up whose entry is kept with the cached ones, if it is.
 * The upper levels have been copied and have nothing for it.
 */
static bool
cb_window_read_cached(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	CbCachedTuple tuple;
	BlockNumber leaf;
	CbScanItem *item;

	if (!cb_window_find_cached(scan, &tuple, &leaf))
		return false;
	cb_heat_note(scan->indexRelation, leaf, CB_HEAT_READ);
	cb_stat_add(scan->indexRelation, CB_STAT_CACHED_READS, 1);
	item = &window->items[window->nitems++];
	item->itup = cb_window_keep(window, &tuple.header);
	item->origin = CB_ITEM_UPPER;
	item->number = 0;
	cb_place_copy(so, &window->lo, &so->pos);
	cb_place_set_tuple(so, &window->hi, item->itup, true);
	window->has_low = false;
	window->leaf.blkno = InvalidBlockNumber;
	window->copied = false;
	window->buf = InvalidBuffer;
	window->cached_attach_id = so->view.attach_id;
	window->cached_hash = so->view.hash;
	window->valid = true;
	return true;
}

/*
 * Reads the levels in their order and merges them.  Returns whether there
 * may be matches beyond the window.
 */
static bool
cb_window_read_levels(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbMerge		merge;
	bool		in_place = false;
	bool		cached = false;
	bool		missed = false;
	bool		more;

	cb_window_copy_levels(scan, dir);
	in_place = cb_window_is_read_in_place(so);
	cached = in_place && ScanDirectionIsForward(dir) && cb_window_may_be_cached(scan);
	if (cached && cb_window_read_cached(scan))
		return false;
	missed = cb_window_read_leaf(scan, dir, in_place);
	if (!in_place)
	{
		cb_scan_read_ahead(scan, dir, missed);
		CB_TEST_POINT("scan-leaf-read");
	}
	cb_window_open_merge(scan, &merge, dir);
	more = !(in_place && cb_merge_lacks_number(so, &merge)) &&
		cb_window_fill(scan, &merge, dir);
	if (in_place)
	{
		cb_tree_check_still_locked(scan->indexRelation,
								   so->cur->buf);
		if (cached && (!more || so->cur->hi.bound.kind == CB_BOUND_MAX))
			cb_window_keep_cached(scan);
		if (so->cur->nitems > 0)
			so->cur->lsn = BufferGetLSNAtomic(so->cur->buf);
		cb_window_unlock_leaf(scan);
		if (more)
			cb_scan_read_ahead(scan, dir, missed);
		CB_TEST_POINT("scan-leaf-read");
	}
	return more;
}

/* Reads the levels for the window; returns as cb_window_read_levels(). */
static bool
cb_window_try_read(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	CbSlotMark	mark = cb_slot_mark();
	MemoryContext oldcxt;
	bool		more;

	MemoryContextReset(so->work_cxt);
	cb_arena_reset(&window->kept);
	window->nitems = 0;
	window->nkilled = 0;
	window->cached_attach_id = 0;
	oldcxt = MemoryContextSwitchTo(so->work_cxt);
	PG_TRY();
	{
		more = cb_window_read_levels(scan, dir);
	}
	PG_FINALLY();
	{
		cb_slot_release_to(mark);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(oldcxt);
	return more;
}

/* Drops what was read of the window. */
static void
cb_window_discard(CbWindow *window)
{
	if (BufferIsValid(window->buf))
		ReleaseBuffer(window->buf);
	window->buf = InvalidBuffer;
	window->valid = false;
}

/* Reads the window that starts at so->pos; the scan has left the last one. */
static void
cb_window_read(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	bool		more = cb_window_try_read(scan, dir);

	while (cb_window_lost_run(so))
	{
		cb_window_discard(window);
		CHECK_FOR_INTERRUPTS();
		CB_TEST_POINT("scan-run-lost");
		more = cb_window_try_read(scan, dir);
	}

	if (ScanDirectionIsForward(dir))
	{
		window->index = 0;
		window->more_right = more && window->hi.bound.kind != CB_BOUND_MAX;
	}
	else
	{
		cb_window_reverse_items(window);
		window->index = window->nitems - 1;
		window->more_left = more && window->lo.bound.kind != CB_BOUND_MIN;
	}
}

/*
 * Reads on in the direction until there is a window with items.  False at the
 * end of the scan; there is no valid window then.
 */
static bool
cb_window_seek(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	for (;;)
	{
		CbWindow   *window = so->cur;
		bool		forward = ScanDirectionIsForward(dir);
		bool		more;

		/* no lock or pin is held here; a bitmap scan does not look elsewhere */
		CHECK_FOR_INTERRUPTS();
		cb_window_read(scan, dir);
		if (window->nitems > 0)
			return true;

		more = forward ? window->more_right : window->more_left;
		if (more)
			cb_place_copy(so, &so->pos, forward ? &window->hi : &window->lo);
		cb_window_leave(scan);
		if (!more)
			return false;
	}
}

/*
 * Reads the first window with items of a scan that starts at the bound.  The
 * scan holds no window.  Nothing beyond the starting bound can match.  leaf:
 * one whose lower bound is not right of the bound, if known; going forward
 * only.
 *
 * False: there is no match, and no valid window then.  No lock is held on
 * entry or on exit; the window's leaf stays pinned if VACUUM has to wait for
 * the scan.  Comparison functions run, and interrupts are served between
 * windows.
 */
bool
cb_window_first(IndexScanDesc scan, const CbBound *bound, ScanDirection dir,
				CbLeafHint leaf)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (so->cur == NULL)
		so->cur = cb_window_init(so, &so->first);
	cb_place_set_bound(so, &so->pos, bound);
	so->pos.leaf = leaf;
	so->pos.upper_serial = 0;
	so->cur->more_left = so->cur->more_right = false;
	so->starting = true;
	cb_scan_ahead_reset(&so->ahead);
	return cb_window_seek(scan, dir);
}

/*
 * Goes to the next window with items in the direction.  False at the end of
 * the scan; there is no valid window then.  Otherwise as cb_window_first().
 */
bool
cb_window_next(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	bool		forward = ScanDirectionIsForward(dir);
	bool		more = forward ? so->cur->more_right : so->cur->more_left;

	if (more)
		cb_place_copy(so, &so->pos, forward ? &so->cur->hi : &so->cur->lo);
	cb_window_leave(scan);
	if (!more)
		return false;

	/* there may be matches where the scan comes from */
	so->starting = false;
	so->cur->more_left = so->cur->more_right = true;
	return cb_window_seek(scan, dir);
}

/* ---------- leaving a window ---------- */

/*
 * Leaves the current window: sets its LP_DEAD hints and gives up its pin.  A
 * window that holds the mark is set aside, without pin; so->cur is another one
 * then.  Nothing happens if there is no valid window.  Items of a window that
 * is not the mark are lost with the next one that is read.
 */
void
cb_window_leave(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;

	if (window == NULL || !window->valid)
		return;

	cb_kill_items(scan);
	if (BufferIsValid(window->buf))
	{
		ReleaseBuffer(window->buf);
		window->buf = InvalidBuffer;
	}
	if (so->mark_index >= 0)
	{
		if (so->mark == NULL)
			so->mark = cb_window_init(so, MemoryContextAlloc(so->cxt,
															 sizeof(CbWindow)));
		so->cur = so->mark;
		so->mark = window;
		window->index = so->mark_index;
		so->mark_index = -1;
	}
	so->cur->valid = false;
}
