/*-------------------------------------------------------------------------
 *
 * cb_window.c
 *	  Reading an index scan's windows, and leaving them.
 *
 * To read the window that starts at a bound (a serializable transaction locks it
 * first: cb_window_lock.c):
 *
 *	1. every upper tier is copied, uppermost first (cb_window_tiers);
 *	2. the leaf beyond the bound is copied under its share lock;
 *	3. with no lock held, the leaf's entries and those of the upper tiers in
 *	   the window are merged in scan order and tested against the quals,
 *	   one by one if the window's ends do not tell.
 *
 * Where the upper tiers have nothing, the first window of a scan, which is
 * short, is read from the leaf itself under its lock; so is one at an end of
 * the index, which is shorter, for which the bucket's first entry was copied.
 *
 * In recovery a run of an upper tier can be given up before it is read: then
 * all three are done again (cb_window_range.c); so they are under a dirty or
 * self snapshot if a bulk delete has begun (cb_window_lost_rows).
 *
 * An entry moves from an upper tier to a lower one only (what moves up, when
 * something fails, is argued in cb_failing.c and cb_sweep.c), and is readable
 * below before it goes above, so this order of reading cannot miss it; an
 * entry that is seen twice is returned once, as the leaf's.  The window is
 * [bound, high key) going forward and [leaf's lower bound, bound) going
 * backward; it ends earlier if it would take too many entries of upper tiers,
 * or is the first one and has enough, and the leaf is then read again for the
 * next one.
 *
 * At most one leaf is pinned, none is locked, between calls.  The pin is kept
 * where VACUUM has to wait for the scan before a TID can be used again: in
 * index-only scans, but for those that took a cached entry, or look at the
 * table for each row, as their transaction began in recovery, and under
 * snapshots that are not MVCC.  It is also kept where page LSNs cannot tell
 * that a leaf has changed, for LP_DEAD hints.
 *
 * A window that is read in place is read after the upper tiers, as any
 * (I2_INPLACE).  Only comparisons that btree runs there run under the lock,
 * and no other is taken.  At an end of the index it may be read so if all
 * chunks are in order.  The first entry of each is copied under the bucket's
 * lock, in place of pinning them.  Which one comes first is found out when the
 * lock has been given up, and the window ends with it, as nothing is known of
 * what the bucket has beyond (I2_ENDCLIP).  If one is not beyond the scan's
 * bound, as where it is a null that the scan leaves out, the view is opened
 * anew, to pin chunks (I2_ENDBOUND), if the index still has buckets
 * (I2_ENDREFUSED).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"
#include "base/cb_counts.h"
#include "base/cb_heat.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/memutils.h"

/*
 * An upper tier.  copy: called before each leaf is read, makes what the
 * tier holds at so->pos and beyond stay readable for the window.  open: adds
 * its entries between the window's bounds to the merge; called without locks.
 */
typedef struct CbUpperTier
{
	void		(*copy) (IndexScanDesc scan, ScanDirection dir);
	void		(*open) (CbScanOpaque so, CbMerge *merge, CbPlace *near,
						 CbPlace *far);
} CbUpperTier;

/*
 * Uppermost first.  What the buckets hold and what the journal holds from
 * before them are apart; the first tells how far the second goes.
 */
static const CbUpperTier cb_window_tiers[] = {
	{cb_window_copy_bucket, cb_window_open_bucket},
	{cb_window_copy_journal, cb_window_open_journal},
	{cb_window_copy_range, cb_window_open_range},
};

/* ---------- reading a window ---------- */

/* Opens all tiers between the window's bounds. */
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
	merge->packed_has_dead = true;
	merge->reads_on = false;
	merge->nread = 0;
	merge->read_from = 0;
	for (int i = 0; i < lengthof(cb_window_tiers); i++)
		cb_window_tiers[i].open(so, merge,
								forward ? &window->lo : &window->hi,
								forward ? &window->hi : &window->lo);
	cb_merge_open_leaf(so, merge);
}

/* Makes a window without contents.  It, and all its memory, is of own_cxt. */
static CbWindow *
cb_window_init(CbScanOpaque so, CbWindow *window)
{
	memset(window, 0, offsetof(CbWindow, killed));
	window->nallocated = 32;
	window->items = MemoryContextAlloc(so->own_cxt, sizeof(CbScanItem) *
									   window->nallocated);
	cb_arena_init(&window->kept, so->own_cxt);
	return window;
}

/* The window, which has been left, tells nothing any more. */
void
cb_window_forget(CbWindow *window)
{
	window->copied = false;
	window->has_low = false;
	window->nitems = 0;
}

/* The same at the scan's end; some memory is kept for the next scan. */
void
cb_window_end(CbWindow *window)
{
	if (window->items == NULL)
		return;
	cb_window_forget(window);
	cb_arena_reset(&window->kept);
}

/*
 * Ends the window before the merge's next entry, in the direction of the scan:
 * the next window starts with that entry.  Its place in the components is found
 * anew then: a component may be past entries beyond it, which the leaf has as
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
		source->kind == CB_SOURCE_RANGE ||
		(source->kind == CB_SOURCE_LEAF && window->copied);
}

/* Makes room for so many more items. */
static inline void
cb_window_reserve(CbWindow *window, int n)
{
	if (window->nitems + n <= window->nallocated)
		return;
	window->nallocated = Max(window->nallocated * 2, window->nitems + n);
	window->items = repalloc(window->items,
							 sizeof(CbScanItem) * window->nallocated);
}

/* Adds the head of a source to the window. */
static void
cb_window_add_item(CbScanOpaque so, const CbSource *source)
{
	CbWindow   *window = so->cur;
	CbScanItem *item;

	cb_window_reserve(window, 1);
	item = &window->items[window->nitems++];
	item->itup = cb_window_has(window, source) ? source->head :
		cb_window_keep(window, source->head);
	item->origin = source->kind == CB_SOURCE_LEAF ? CB_ITEM_PLAIN :
		source->kind == CB_SOURCE_PACKED ? CB_ITEM_PACKED : CB_ITEM_UPPER;
	item->number = CbSourceIsUpper(source) ? 0 : source->cur;
	if (CbSourceIsUpper(source))
		so->counts.upper[source->kind - CB_SOURCE_UPPER]++;
}

/*
 * The first entries of the window are wanted, and all between wanted entries is: are
 * all of the window?  Yes, if an entry with the values of its far end would be wanted.
 * Of a separator that lacks some these say nothing (I2_WANTED).
 */
static bool
cb_window_is_wanted(CbScanOpaque so, const CbMerge *merge, ScanDirection dir)
{
	const CbBound *far = merge->far;
	int			natts;

	Assert(!so->for_point);		/* what lies between points is not wanted */
	if (far->kind != CB_BOUND_TUPLE)
		return false;
	natts = BTreeTupleGetNAtts(far->tuple, so->kd.rel);
	return natts >= so->keys.space.ncolumns &&
		cb_keys_test(&so->keys, far->tuple, natts, dir) == CB_KEY_MATCH;
}

/*
 * Adds the head of the merge's first source, which is wanted, and those that come
 * next, are at hand, and are wanted, as all are, or since the last one is: all between
 * is then.  How many: n at most.
 */
static int
cb_window_add_many(CbScanOpaque so, const CbMerge *merge, int n, bool all,
				   ScanDirection dir)
{
	CbWindow   *window = so->cur;
	int			number = merge->ordered[0]->cur;
	int			nready = cb_merge_count_ready(so, merge);
	CbScanItem *item;

	n = Min(n, nready);
	while (n > 1 && !all && cb_keys_test(&so->keys, cb_merge_ready(merge, n - 1),
								 so->kd.nkeyatts, dir) != CB_KEY_MATCH)
		n /= 2;
	if (n <= 1)
	{
		cb_window_add_item(so, merge->ordered[0]);
		return 1;
	}

	cb_window_reserve(window, n);
	item = &window->items[window->nitems];
	for (int i = 0; i < n; i++)
		*item++ = (CbScanItem) {
			.itup = cb_merge_ready(merge, i),
			.origin = CB_ITEM_PACKED,
			.number = number + i * merge->step
		};
	window->nitems += n;
	return n;
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
 * Nothing wanted lies between the entry and so->keys.place, where the scan is
 * to go from this window.
 */
static void
cb_window_set_to(CbScanOpaque so, IndexTuple entry, ScanDirection dir)
{
	cb_place_set_keys(so, &so->cur->to, entry, dir);
	so->cur->goes = true;
}

/*
 * Does so->keys.place, of an entry of the window, lead to a point further on than
 * that which the window began at?  Where a comparison with another type has an
 * order of its own, or one contradicts itself, it may lead back, or nowhere, again
 * and again; then the scan reads on (A18_POINTS).
 */
static bool
cb_window_leads_to_point(CbScanOpaque so, ScanDirection dir)
{
	const CbKeyPart *first = &so->keys.place.parts[0];

	return so->pos.points != NULL && first->source == CB_PART_COND &&
		first->cond == so->pos.points &&
		(first->index - so->pos.point) * (int) dir > 0 &&
		cb_keys_is_ordered(first->cond);
}

/* Has the scan gone to the window's leaf from another one, for such a place? */
static inline bool
cb_window_is_far(CbScanOpaque so)
{
	return so->gone_from != InvalidBlockNumber &&
		so->gone_from != so->cur->leaf.blkno;
}

/*
 * The scan wants nothing between the entry and so->keys.place, and so it was
 * with *n entries before: does it go there, rather than read on?  It does if it
 * goes from point to point, if it has just gone to another leaf in this way, or
 * if what it aimed at some entries ago has not come yet.
 */
static bool
cb_window_goes_to_place(CbScanOpaque so, IndexTuple entry, int *n, ScanDirection dir)
{
	CbPlace    *to = &so->cur->to;
	int			cmp;

	if (cb_window_leads_to_point(so, dir) ||
		(cb_window_is_far(so) && cb_keys_place_is_ordered(&so->keys.place)))
	{
		cb_window_set_to(so, entry, dir);
		return true;
	}
	if (++*n % CB_WINDOW_UNWANTED_STEP != 0)
		return false;
	if (*n > CB_WINDOW_UNWANTED_STEP)
	{
		cmp = cb_key_compare_bound(&so->kd, &to->bound, entry);
		if (ScanDirectionIsForward(dir) ? cmp < 0 : cmp > 0)
			return so->cur->goes = true;
	}
	if (cb_keys_place_is_ordered(&so->keys.place))
		cb_place_set_keys(so, to, entry, dir);
	else
		*n = 0;
	return false;
}

/* Has what got this answer another value than the window's point? */
static inline bool
cb_window_leaves_point(CbScanOpaque so, CbKeyAnswer answer)
{
	switch (answer)
	{
		case CB_KEY_MATCH:
			return so->pos.points->near != so->pos.point;
		case CB_KEY_SKIP:
			return so->keys.place.parts[0].source != CB_PART_ENTRY ||
				so->pos.points->near != so->pos.point;
		default:
			return true;
	}
}

/*
 * The window has all that there is of its point: the scan goes to the next one.
 * False if there is none.
 */
static bool
cb_window_goes_to_next_point(CbScanOpaque so, ScanDirection dir)
{
	int			next = so->pos.point + (int) dir;

	if (next < 0 || next >= so->pos.points->n)
		return false;
	cb_keyspace_go_to_point(&so->keys.space, so->pos.points, next,
							ScanDirectionIsForward(dir), &so->keys.place);
	cb_window_set_to(so, NULL, dir);
	return true;
}

/*
 * The window has been filled up to its end; its last entries, nunwanted, are
 * not wanted.  Returns whether there may be matches beyond it.  What stands at
 * the end may tell that there are none, or where the scan goes: to the next of
 * several points, or away from entries that are so long that few are together.
 */
static bool
cb_window_look_beyond(IndexScanDesc scan, ScanDirection dir, int nunwanted)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	const CbBound *far = ScanDirectionIsForward(dir) ? &so->cur->hi.bound :
		&so->cur->lo.bound;
	CbKeyAnswer answer = CB_KEY_END;

	if (far->kind == CB_BOUND_TUPLE)
		answer = cb_keys_test(&so->keys, far->tuple,
							  BTreeTupleGetNAtts(far->tuple, scan->indexRelation), dir);
	if (so->for_point && cb_window_leaves_point(so, answer))
		return cb_window_goes_to_next_point(so, dir);
	if (answer == CB_KEY_SKIP &&
		(cb_window_leads_to_point(so, dir) ||
		 (so->cur->nitems == 0 && nunwanted < 2 * CB_WINDOW_UNWANTED_STEP &&
		  cb_keys_place_is_ordered(&so->keys.place))))
		cb_window_set_to(so, far->tuple, dir);
	return answer != CB_KEY_END;
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
	int			nupper = 0;
	int			nunwanted = 0;
	int			most = so->starting ? cb_window_first_max(so) : INT_MAX;
	int			few = so->starting ? CB_WINDOW_FEW : 1;
	bool		many = false;	/* are entries added many at once? */
	bool		all = false;	/* are all of them wanted? */
	int			nadded;

	cb_merge_start(scan, merge);
	for (; merge->nordered > 0; cb_merge_advance(scan, merge, nadded))
	{
		CbSource   *source = merge->ordered[0];
		CbKeyAnswer answer = all ? CB_KEY_MATCH :
			cb_keys_test(&so->keys, source->head, so->kd.nkeyatts, dir);

		nadded = 1;
		if (so->for_point && cb_window_leaves_point(so, answer))
			return cb_window_goes_to_next_point(so, dir);
		if (nupper >= CB_WINDOW_UPPER_MAX || window->nitems >= most)
		{
			cb_window_end_early(so, merge);
			return true;
		}
		if (CbSourceIsUpper(source))
			nupper++;
		if (answer == CB_KEY_END)
			return false;
		if (answer == CB_KEY_SKIP)
		{
			if (so->passed_on ||
				!cb_window_goes_to_place(so, source->head, &nunwanted, dir))
				continue;
			if (scan->parallel_scan != NULL)
				cb_window_end_early(so, merge);
			return true;
		}
		nunwanted = 0;
		if (source->head_dead)
			continue;
		if (many)
		{
			nadded = cb_window_add_many(so, merge, most - window->nitems, all, dir);
			continue;
		}
		cb_window_add_item(so, source);
		if (window->nitems == few)
		{
			cb_merge_read_on(so, merge);
			many = cb_keys_are_interval(&so->keys);
			all = many && cb_window_is_wanted(so, merge, dir);
		}
	}
	return all || cb_window_look_beyond(scan, dir, nunwanted);
}

static void
cb_window_copy_tiers(IndexScanDesc scan, ScanDirection dir)
{
	for (int i = 0; i < lengthof(cb_window_tiers); i++)
		cb_window_tiers[i].copy(scan, dir);
	CB_TEST_POINT("scan-upper-copied");
}

/* Has the leaf alone entries for the window?  Upper tiers have been copied. */
static inline bool
cb_window_is_of_leaf(CbScanOpaque so)
{
	return so->upper->ncomponents == 0 && so->shared.ncomponents == 0 &&
		(so->ranges == NULL || so->ranges->nwanted == 0) &&
		so->view.nchunks == 0;
}

/*
 * Is the leaf read in place?  A few entries are looked at for one that is
 * wanted.  Nothing that is read beside it takes a lock.
 */
static inline bool
cb_window_is_read_in_place(CbScanOpaque so)
{
	return so->starting && cb_window_is_of_leaf(so);
}

/*
 * Passes the turn of a parallel scan on, with where the window ends; or with the
 * next point, if the window was for one of several (I14_POINT).  Where the scan
 * goes to otherwise is told by the entry that the window ends with (I14_GOES).
 */
static void
cb_window_pass_turn(IndexScanDesc scan, ScanDirection dir, bool more)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	CbPlace    *far = ScanDirectionIsForward(dir) ? &window->hi : &window->lo;

	so->passed_on = true;
	if (more && so->for_point && window->goes && window->to.points != NULL)
		cb_turns_pass_point(scan, window->to.points - so->keys.space.columns[0].conds,
							window->to.point);
	else if (more && far->bound.kind == CB_BOUND_TUPLE)
		cb_turns_pass_place(scan, far);
	else
		cb_turns_end(scan);
}

/*
 * Is it certain where the window of a parallel scan ends, before its entries are
 * looked at?  So it is if the leaf alone has some (I14_UPPER), and the window
 * will not be read again, as it may be in recovery.  Then it is neither short
 * nor for one of several points, as that would be read in place.
 */
static inline bool
cb_window_ends_with_leaf(CbScanOpaque so)
{
	return cb_window_is_of_leaf(so) && !cb_window_lost_run(so);
}

/*
 * The window of a look-up whose entry is kept with the cached ones, if it is.
 * The upper tiers have been copied and have nothing for it.  *more: may there
 * be matches beyond it?
 */
static bool
cb_window_read_cached(IndexScanDesc scan, bool *more)
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
	so->counts.cached++;
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
	window->cached_hash = so->whole_hash;
	if (scan->xs_want_itup)
	{
		window->map_from = 0;
		window->map_to = 1;
		window->map_all = 1;
	}
	window->valid = true;
	*more = cb_window_goes_to_next_point(so, ForwardScanDirection);
	return true;
}

/*
 * Reads the tiers in their order and merges them.  Returns whether there
 * may be matches beyond the window.
 */
static bool
cb_window_read_tiers(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbMerge		merge;
	bool		in_place = false;
	bool		cached = false;
	bool		missed = false;
	bool		more;

	cb_window_copy_tiers(scan, dir);
	in_place = cb_window_is_read_in_place(so);
	cached = in_place && ScanDirectionIsForward(dir) && cb_window_may_be_cached(scan);
	if (cached && cb_window_read_cached(scan, &more))
		return more;
	missed = cb_window_read_leaf(scan, dir, in_place);
	if (!in_place)
	{
		if (scan->parallel_scan != NULL && cb_window_ends_with_leaf(so))
		{
			Assert(!so->starting && !so->for_point);
			cb_window_pass_turn(scan, dir, true);
		}
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
		if (cached && (!more || so->cur->goes || so->cur->hi.bound.kind == CB_BOUND_MAX))
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

/* Reads the tiers for the window; returns as cb_window_read_tiers(). */
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
	window->removals = so->removals;
	window->map_to = 0;
	window->nkilled = 0;
	window->goes = false;
	window->cached_attach_id = 0;
	oldcxt = MemoryContextSwitchTo(so->work_cxt);
	PG_TRY();
	{
		cb_window_lock(scan, dir);
		more = cb_window_read_tiers(scan, dir);
	}
	PG_FINALLY();
	{
		cb_slot_release_to(mark);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(oldcxt);
	so->counts.windows++;
	so->counts.entries += window->nitems;
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

/*
 * Can an entry of the window have the TID of another row by now, which the
 * snapshot sees?  MVCC snapshots see none.  Others do, if a bulk delete has
 * begun since the upper tiers were read; one that begins from now on waits for
 * the window's pin.  Then they are forgotten, and the window is to be read again
 * from its start.
 */
static bool
cb_window_lost_rows(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	SnapshotType type = scan->xs_snapshot->snapshot_type;
	uint64		removals;

	if (type != SNAPSHOT_DIRTY && type != SNAPSHOT_SELF)
		return false;
	removals = cb_counts_removals(scan->indexRelation);
	if (removals == so->removals)
		return false;
	so->removals = removals;
	cb_window_release_upper(so);
	cb_window_forget_ranges(so);
	return true;
}

/* Reads the window that starts at so->pos; the scan has left the last one. */
static void
cb_window_read(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	bool		more = cb_window_try_read(scan, dir);

	while (cb_window_lost_run(so) || cb_window_lost_rows(scan))
	{
		Assert(!so->passed_on);
		cb_window_discard(window);
		CHECK_FOR_INTERRUPTS();
		CB_TEST_POINT("scan-run-lost");
		more = cb_window_try_read(scan, dir);
	}

	if (ScanDirectionIsForward(dir))
	{
		window->index = 0;
		window->more_right = more &&
			(window->goes || window->hi.bound.kind != CB_BOUND_MAX);
	}
	else
	{
		cb_window_reverse_items(window);
		window->index = window->nitems - 1;
		window->more_left = more &&
			(window->goes || window->lo.bound.kind != CB_BOUND_MIN);
	}
}

/*
 * The scan begins at so->pos, a place of its keys, or has gone there.  It has
 * left its window, whose leaf may have that place as well.
 */
static void
cb_window_begin(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (!so->for_unique)
		pgstat_count_index_scan(scan->indexRelation);
#if PG_VERSION_NUM >= 180000
	if (scan->instrument != NULL)
		scan->instrument->nsearches++;
#endif
	so->pos.leaf = cb_scan_find_leaf(scan, dir);
	so->starting = true;
	cb_scan_ahead_go(so, dir);
}

/* The scan begins where its keys say. */
static void
cb_window_start(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_keyspace_start(&so->keys.space, ScanDirectionIsForward(dir), &so->keys.place);
	cb_place_set_keys(so, &so->pos, NULL, dir);
	cb_window_begin(scan, dir);
}

/*
 * Leaves the window for what comes next in the direction: reads on, or goes to
 * where it says.
 */
static void
cb_window_go_on(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	bool		goes = window->goes && window->to.dir == dir;

	so->gone_from = goes ? window->leaf.blkno : InvalidBlockNumber;
	cb_place_copy(so, &so->pos, goes ? &window->to :
				  ScanDirectionIsForward(dir) ? &window->hi : &window->lo);
	cb_window_leave(scan);
	if (!goes)
		return;
	cb_window_begin(scan, dir);
	so->ahead.hops = so->pos.points == NULL;
}

/* Sets so->pos beside a tuple, where the scan reads on, as another one has left off. */
static void
cb_window_set_beside(CbScanOpaque so, IndexTuple tuple, bool after)
{
	cb_place_set_tuple(so, &so->pos, tuple, after);
	so->starting = false;
}

/*
 * Sets so->pos beside the tuple, where a window of a parallel scan starts, or
 * where the scan goes from there.  False if there is nothing wanted any more.
 */
static bool
cb_window_start_beside(IndexScanDesc scan, ScanDirection dir, const CbTurn *turn)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	IndexTuple	tuple = (IndexTuple) turn->tuple.data;
	CbKeyAnswer answer = cb_keys_test(&so->keys, tuple,
									  BTreeTupleGetNAtts(tuple, scan->indexRelation), dir);

	if (answer == CB_KEY_END)
		return false;
	if (answer == CB_KEY_SKIP && cb_keys_place_is_ordered(&so->keys.place))
	{
		cb_place_set_keys(so, &so->pos, tuple, dir);
		cb_window_begin(scan, dir);
		so->ahead.hops = so->pos.points == NULL;
		return true;
	}
	cb_window_set_beside(so, tuple, turn->after);
	so->pos.leaf = turn->leaf;
	return true;
}

/*
 * Waits for a turn of the parallel scan, and sets so->pos to where its window
 * starts; false at the scan's end.
 */
static bool
cb_window_take_turn(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	const CbTurn *turn;

	so->passed_on = false;
	so->gone_from = InvalidBlockNumber;
	switch (cb_turns_take(scan, &turn))
	{
		case CB_TURN_START:
			cb_window_start(scan, dir);
			return true;
		case CB_TURN_POINT:
			cb_keyspace_go_to_point(&so->keys.space,
									&so->keys.space.columns[0].conds[turn->cond], turn->point,
									ScanDirectionIsForward(dir), &so->keys.place);
			cb_place_set_keys(so, &so->pos, NULL, dir);
			cb_window_begin(scan, dir);
			return true;
		case CB_TURN_TUPLE:
			if (cb_window_start_beside(scan, dir, turn))
				return true;
			cb_turns_end(scan);
			return false;
		default:
			return false;
	}
}

/*
 * Takes turns of a parallel scan until there is a window with items.  False at
 * the end of the scan.  There is no valid window on entry.
 */
static bool
cb_window_seek_turn(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	for (;;)
	{
		CbWindow   *window = so->cur;

		CHECK_FOR_INTERRUPTS();
		if (!cb_window_take_turn(scan, dir))
			return false;
		cb_window_read(scan, dir);
		if (!so->passed_on)
			cb_window_pass_turn(scan, dir, ScanDirectionIsForward(dir) ?
								window->more_right : window->more_left);
		if (window->nitems > 0)
			return true;
		cb_window_leave(scan);
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

		/* no lock or pin is held here; a bitmap scan does not look elsewhere */
		CHECK_FOR_INTERRUPTS();
		cb_window_read(scan, dir);
		if (window->nitems > 0)
			return true;

		if (!(ScanDirectionIsForward(dir) ? window->more_right : window->more_left))
		{
			cb_window_leave(scan);
			return false;
		}
		cb_window_go_on(scan, dir);
	}
}

/* The scan, which holds no window, begins. */
static void
cb_window_prepare(CbScanOpaque so)
{
	if (so->first.items == NULL)
		cb_window_init(so, &so->first);
	if (so->cur == NULL)
		so->cur = &so->first;
	so->cur->more_left = so->cur->more_right = false;
	cb_scan_ahead_start(&so->ahead);
}

/*
 * Reads the first window with items of a scan that begins in this direction
 * where its keys say.  The scan holds no window.  Nothing before its beginning
 * can match.
 *
 * False: there is no match, and no valid window then.  No lock is held on
 * entry or on exit; the window's leaf stays pinned if VACUUM has to wait for
 * the scan.  Comparison functions run, and interrupts are served between
 * windows.
 */
bool
cb_window_first(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_window_prepare(so);
	if (scan->parallel_scan != NULL)
		return cb_window_seek_turn(scan, dir);
	cb_window_start(scan, dir);
	so->gone_from = InvalidBlockNumber;
	return cb_window_seek(scan, dir);
}

/*
 * Reads one window of a scan forward of all entries: that which starts beside a
 * tuple, or at the index's beginning if that is NULL.  It may have no items.  The
 * scan holds no window; otherwise as cb_window_first().
 */
void
cb_window_read_beside(IndexScanDesc scan, IndexTuple tuple, bool after)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_window_prepare(so);
	so->gone_from = InvalidBlockNumber;
	cb_window_start(scan, ForwardScanDirection);
	so->starting = false;
	if (tuple != NULL)
		cb_window_set_beside(so, tuple, after);
	cb_window_read(scan, ForwardScanDirection);
}

/* Reads the window that comes next, of which there is one (more_right). */
void
cb_window_read_next(IndexScanDesc scan)
{
	cb_window_go_on(scan, ForwardScanDirection);
	cb_window_read(scan, ForwardScanDirection);
}

/*
 * Goes to the next window with items in the direction.  False at the end of
 * the scan; there is no valid window then.  Otherwise as cb_window_first().
 */
bool
cb_window_next(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (scan->parallel_scan != NULL)
	{
		cb_window_leave(scan);
		return cb_window_seek_turn(scan, dir);
	}
	if (!(ScanDirectionIsForward(dir) ? so->cur->more_right : so->cur->more_left))
	{
		cb_window_leave(scan);
		return false;
	}
	so->starting = false;
	cb_window_go_on(scan, dir);

	/* there may be matches where the scan comes from */
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
			so->mark = cb_window_init(so, MemoryContextAlloc(so->own_cxt,
															 sizeof(CbWindow)));
		so->cur = so->mark;
		so->mark = window;
		window->index = so->mark_index;
		so->mark_index = -1;
	}
	so->cur->valid = false;
}
