/*-------------------------------------------------------------------------
 *
 * cb_window_leaf.c
 *	  The leaf of a scan's window, which ends where the leaf does.
 *
 * The leaf is found for the window's start, by its block if that is known.  It
 * is copied under its share lock, or left locked to be read in place, and its
 * pin is kept where VACUUM has to wait for the scan (I8).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"
#include "base/cb_heat.h"
#include "base/cb_counts.h"
#include "utils/snapmgr.h"

/*
 * The leaf beyond so->pos, pinned and share-locked.  The one that is known by
 * its block may have been split, or have given to its right neighbour what
 * lies there, or, on a standby, be another page.
 */
static Buffer
cb_window_find_leaf(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (ScanDirectionIsForward(dir) && so->pos.leaf.blkno != InvalidBlockNumber)
	{
		Buffer		buf = cb_tree_read_leaf(scan->indexRelation, &so->pos.leaf,
											scan->xs_snapshot);

		if (BufferIsValid(buf))
		{
			Page		page = BufferGetPage(buf);

			if (CbPageIsRightmost(page) ||
				cb_key_compare_bound(&so->kd, &so->pos.bound,
									 CbPageGetHighKey(page)) > 0)
				return buf;
			UnlockReleaseBuffer(buf);
		}
	}
	return cb_tree_descend(&so->kd, &so->pos.bound, dir, scan->xs_snapshot,
						   &so->descent);
}

/*
 * Is the leaf's lower bound not right of the bound, as far as the window
 * tells?
 */
static bool
cb_window_begins_before(CbScanOpaque so, const CbBound *bound)
{
	CbWindow   *window = so->cur;

	if (window->has_low && bound->lead_kind == CB_LEAD_INT64)
		return bound->lead >= window->low;
	return window->nitems > 0 && !CbScanItemIsUpper(&window->items[0]) &&
		cb_key_compare_bound(&so->kd, bound, window->items[0].itup) <= 0;
}

/*
 * Has the bound, of keys, its place in the leaf last read, as far as the
 * window tells?  The leaf's lower bound is not right of the number that the
 * scan looked for in it, nor of what it found.  No lock is needed; comparison
 * functions run.
 */
bool
cb_window_covers(CbScanOpaque so, const CbBound *bound)
{
	CbWindow   *window = so->cur;
	const CbBound *end;

	if (window == NULL || (!window->has_low && window->nitems == 0))
		return false;
	end = &window->hi.bound;
	return (end->kind == CB_BOUND_MAX ||
			(end->kind == CB_BOUND_TUPLE &&
			 cb_key_compare_bound(&so->kd, bound, end->tuple) > 0)) &&
		cb_window_begins_before(so, bound);
}

/* Copies a page without its hole. */
static void
cb_window_copy_page(Page page, Page from)
{
	Size		lower = ((PageHeader) from)->pd_lower;
	Size		upper = ((PageHeader) from)->pd_upper;

	if (lower > upper || upper > BLCKSZ)
		lower = upper = BLCKSZ;
	memcpy(page, from, lower);
	memcpy((char *) page + upper, (char *) from + upper, BLCKSZ - upper);
}

/*
 * Copies the leaf, which is locked, into the window, unless the window has a
 * copy of it as it is.
 */
static void
cb_window_copy_leaf(Relation rel, CbWindow *window, Buffer buf)
{
	BlockNumber blkno = BufferGetBlockNumber(buf);
	XLogRecPtr	lsn = BufferGetLSNAtomic(buf);

	if (window->copied && window->leaf.blkno == blkno &&
		window->lsn == lsn && RelationNeedsWAL(rel))
		return;
	window->copied = false;
	window->lsn = lsn;
	window->page = (Page) window->copy.data;
	cb_window_copy_page(window->page, BufferGetPage(buf));
}

/* Does VACUUM have to wait for the scan at the leaf (I8)? */
static bool
cb_window_needs_pin(IndexScanDesc scan)
{
	bool		trusts_map = scan->xs_want_itup;

	trusts_map &= !scan->xactStartedInRecovery;
	return trusts_map || !IsMVCCSnapshot(scan->xs_snapshot) ||
		!RelationNeedsWAL(scan->indexRelation);
}

/* Gives up the leaf's lock, and its pin if it is not needed. */
void
cb_window_unlock_leaf(IndexScanDesc scan)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;

	LockBuffer(window->buf, BUFFER_LOCK_UNLOCK);
	if (cb_window_needs_pin(scan))
		return;
	ReleaseBuffer(window->buf);
	window->buf = InvalidBuffer;
}

/* Checks the leaf and begins to read it. */
static void
cb_window_open_leaf(Relation rel, CbWindow *window)
{
	Page		page = window->page;

	if (!CbPageIsLeaf(page) ||
		PageGetMaxOffsetNumber(page) > MaxIndexTuplesPerPage ||
		(!CbPageIsRightmost(page) && PageGetMaxOffsetNumber(page) < CB_HIKEY) ||
		!cb_leaf_open(&window->reader, page, cb_sound_desc(rel)))
		cb_report_corrupt(rel, window->leaf.blkno, "The page is not a valid leaf.");
}

/*
 * Raises the error if the scan would not move on by a window that ends at the
 * bound, which is one of a leaf, or, with no block, of a range of keys.  A damaged
 * value, on a page that redo has read in, may differ from itself.
 */
static void
cb_window_check_progress(CbScanOpaque so, IndexTuple bound, bool forward,
						 BlockNumber blkno)
{
	const CbBound *pos = &so->pos.bound;
	int			cmp = cb_key_compare_bound(&so->kd, pos, bound);

	if ((forward ? cmp <= 0 : cmp >= 0) ||
		(pos->kind == CB_BOUND_TUPLE && !pos->after &&
		 IndexTupleSize(pos->tuple) == IndexTupleSize(bound) &&
		 memcmp(pos->tuple, bound, IndexTupleSize(bound)) == 0))
		cb_report_corrupt(so->kd.rel, blkno,
						  "The scan makes no progress beyond the %s bounds.",
						  blkno == InvalidBlockNumber ? "range's" : "page's");
}

/*
 * Ends the window at a bound, or after it, if that is nearer than far; returns
 * whether it is.
 */
static bool
cb_window_clip_at(CbScanOpaque so, CbPlace *far, bool forward, IndexTuple bound,
				  bool after)
{
	int			cmp;

	if (bound == NULL)
		return false;
	cmp = cb_key_compare_bound(&so->kd, &far->bound, bound);
	if (forward ? cmp >= 0 : cmp <= 0)
		return false;
	cb_window_check_progress(so, bound, forward, InvalidBlockNumber);
	cb_place_set_tuple(so, far, bound, after);
	return true;
}

/*
 * Ends the window where the bucket's range ends, or the range buffer's, if
 * that is nearer than the leaf's bound; returns whether it is.  These were
 * bounds of leaves once, so they seldom are: where a leaf has taken over its
 * left neighbour's range, or a part of it.  So it is with what a serializable
 * transaction has locked (A32).  Of a bucket of which only the first
 * entry was copied nothing is known beyond that; of a journal of which a piece
 * was read, nothing beyond its end.
 */
static bool
cb_window_clip(CbScanOpaque so, CbPlace *far, bool forward)
{
	bool		clipped;

	clipped = cb_window_clip_at(so, far, forward,
								forward ? so->view.hi : so->view.lo, false);
	clipped |= cb_window_clip_at(so, far, forward,
								 forward ? so->range.high : so->range.low, false);
	clipped |= cb_window_clip_at(so, far, forward, so->locked.end, false);
	clipped |= cb_window_clip_at(so, far, forward, so->view.end, forward);
	if (so->upper->dir != NoMovementScanDirection)
		clipped |= cb_window_clip_at(so, far, forward, so->upper->end, !forward);
	return clipped;
}

/* Sets the window's bounds: from so->pos to the leaf's bound. */
static void
cb_window_set_bounds(CbScanOpaque so, bool forward)
{
	CbWindow   *window = so->cur;
	Page		page = window->page;
	CbPlace    *far = forward ? &window->hi : &window->lo;
	IndexTuple	bound;

	cb_place_copy(so, forward ? &window->lo : &window->hi, &so->pos);
	window->has_low = forward && so->pos.bound.kind == CB_BOUND_KEYS &&
		so->pos.bound.lead_kind == CB_LEAD_INT64 && so->pos.bound.nkeys == 1 &&
		!so->pos.bound.after;
	if (window->has_low)
		window->low = so->pos.bound.lead;
	bound = forward ?
		(CbPageIsRightmost(page) ? NULL : CbPageGetHighKey(page)) :
		so->descent.low;
	if (bound == NULL)
		far->bound.kind = forward ? CB_BOUND_MAX : CB_BOUND_MIN;
	else
	{
		cb_window_check_progress(so, bound, forward, window->leaf.blkno);
		cb_place_set_tuple(so, far, bound, false);
		if (forward)
			far->leaf = (CbLeafHint) {CbPageGetOpaque(page)->next, InvalidBuffer,
				window->leaf.reuses};
	}
	window->clipped = cb_window_clip(so, far, forward);
}

/*
 * Reads the leaf beyond so->pos and sets the window's bounds from it.
 * in_place: it is left pinned and share-locked, and is not copied; else it is
 * copied, and kept pinned if it has to stay so.  Returns whether a page was
 * read from the index's file.  Comparison functions run, in place under the
 * leaf's lock.  A damaged page raises an error.
 */
bool
cb_window_read_leaf(IndexScanDesc scan, ScanDirection dir, bool in_place)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	bool		forward = ScanDirectionIsForward(dir);
	int64		nread = cb_window_count_reads();
	bool		missed;
	Buffer		buf;

	so->descent.want_low = !forward;
	buf = cb_window_find_leaf(scan, dir);
	missed = cb_window_count_reads() > nread;
	if (in_place)
	{
		window->copied = false;
		window->page = BufferGetPage(buf);
	}
	else
		cb_window_copy_leaf(scan->indexRelation, window, buf);
	window->leaf = (CbLeafHint) {BufferGetBlockNumber(buf), buf,
		cb_counts_reuses(scan->indexRelation)};
	window->buf = buf;
	window->valid = true;
	cb_heat_note(scan->indexRelation, window->leaf.blkno, CB_HEAT_READ);
	if (!in_place)
		cb_window_unlock_leaf(scan);
	if (!window->copied)
		cb_window_open_leaf(scan->indexRelation, window);
	window->copied = !in_place;
	cb_window_set_bounds(so, forward);
	return missed;
}
