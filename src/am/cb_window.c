/*-------------------------------------------------------------------------
 *
 * cb_window.c
 *	  Reading an index scan's windows, and leaving them.
 *
 * To read the window that starts at a cut:
 *
 *	1. every upper level is copied, uppermost first (cb_window_levels);
 *	2. the leaf beyond the cut is copied under its share lock;
 *	3. with no lock held, the leaf's entries and those of the upper levels in
 *	   the window are merged in scan order and tested against the quals.
 *
 * Where the upper levels have nothing, the first window of a scan, which is
 * short, is read from the leaf itself under its lock; so is one at an end of the
 * index, which is shorter, where only chunks in order have something.
 *
 * In recovery a run of an upper level can be given up before it is read: then all
 * three are done again (cb_window_range.c).
 *
 * An entry moves from an upper level to a lower one only, and is readable
 * below before it goes above, so this order of reading cannot miss it; an
 * entry that is seen twice is returned once, as the leaf's.  The window is
 * [cut, high key) going forward and [leaf's lower bound, cut) going backward;
 * it ends earlier if it would take too many entries of upper levels, or is the
 * first one and has enough, and the leaf is then read again for the next one.
 *
 * At most one leaf is pinned, none is locked, between calls.  The pin is kept
 * where VACUUM has to wait for the scan before a TID can be used again: in
 * index-only scans, but for those that look at the table for each row, as their
 * transaction began in recovery, and under snapshots that are not MVCC.  It is
 * also kept where page LSNs cannot tell that a leaf has changed, for kill hints.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_merge.h"
#include "base/cb_heat.h"
#include "executor/instrument.h"
#include "flush/cb_flush.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/*
 * An upper level.  copy: called before each leaf is read, makes what the
 * level holds at so->pos and beyond stay readable for the window.  open: adds
 * its entries between the window's cuts to the merge; called without locks.
 */
typedef struct CbUpperLevel
{
	void		(*copy) (IndexScanDesc scan, ScanDirection dir);
	void		(*open) (CbScanOpaque so, CbMerge *merge, CbPlace *near,
						 CbPlace *far);
} CbUpperLevel;

static void cb_window_pin_bucket(IndexScanDesc scan, ScanDirection dir);
static void cb_window_open_chunks(CbScanOpaque so, CbMerge *merge,
								  CbPlace *near, CbPlace *far);
static void cb_window_copy_journal(IndexScanDesc scan, ScanDirection dir);
static void cb_window_open_runs(CbScanOpaque so, CbMerge *merge,
								CbPlace *near, CbPlace *far);
static void cb_window_open_ranges(CbScanOpaque so, CbMerge *merge,
								  CbPlace *near, CbPlace *far);

/*
 * Uppermost first.  What the buckets hold and what the journal holds from
 * before them are apart; the first tells how far the second goes.
 */
static const CbUpperLevel cb_window_levels[] = {
	{cb_window_pin_bucket, cb_window_open_chunks},
	{cb_window_copy_journal, cb_window_open_runs},
	{cb_window_copy_ranges, cb_window_open_ranges},
};

/* ---------- places ---------- */

/* Sets the cut of a place; a tuple is copied to the place's own memory. */
static void
cb_place_set_cut(CbScanOpaque so, CbPlace *place, const CbCut *cut)
{
	place->cut = *cut;
	place->leaf.blkno = InvalidBlockNumber;
	if (cut->kind == CB_CUT_TUPLE)
	{
		Size		size = IndexTupleSize(cut->tuple);

		if (place->buf_size < size)
		{
			if (place->buf)
				pfree(place->buf);
			place->buf_size = Max(size, 128);
			place->buf = MemoryContextAlloc(so->cxt, place->buf_size);
		}
		memcpy(place->buf, cut->tuple, size);
		place->cut.tuple = (IndexTuple) place->buf;
	}
}

static void
cb_place_set_tuple(CbScanOpaque so, CbPlace *place, IndexTuple tuple,
				   bool after)
{
	CbCut		cut;

	memset(&cut, 0, sizeof(cut));
	cut.kind = CB_CUT_TUPLE;
	cut.tuple = tuple;
	cut.after = after;
	cb_place_set_cut(so, place, &cut);
}

static void
cb_place_copy(CbScanOpaque so, CbPlace *dst, const CbPlace *src)
{
	cb_place_set_cut(so, dst, &src->cut);
	dst->leaf = src->leaf;
	dst->upper_serial = src->upper_serial;
	memcpy(dst->run_index, src->run_index, sizeof(dst->run_index));
}

/* The number of entries of [from, to) of the run left of the cut, plus from. */
static int
cb_window_search_run(CbScanOpaque so, const CbRun *run, const CbCut *cut,
					 int from, int to)
{
	while (from < to)
	{
		int			mid = from + (to - from) / 2;

		if (cb_key_compare_cut(&so->kd, cut, run->entries[mid].itup) <= 0)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

/*
 * The same for the whole run, where the answer lies near a known place on the
 * side of dir: looks at ever larger steps from there first.
 */
static int
cb_window_search_run_near(CbScanOpaque so, const CbRun *run, const CbCut *cut,
						  int start, ScanDirection dir)
{
	int			from = start;
	int			to = start;

	if (ScanDirectionIsForward(dir))
	{
		for (int jump = 1; to < run->n; jump *= 2)
		{
			to = Min(run->n, from + jump);
			if (cb_key_compare_cut(&so->kd, cut, run->entries[to - 1].itup) > 0)
			{
				to--;			/* known to be right of the cut */
				break;
			}
			from = to;
		}
	}
	else
	{
		for (int jump = 1; from > 0; jump *= 2)
		{
			from = Max(0, to - jump);
			if (cb_key_compare_cut(&so->kd, cut, run->entries[from].itup) <= 0)
			{
				from++;			/* known to be left of the cut */
				break;
			}
			to = from;
		}
	}
	return cb_window_search_run(so, run, cut, from, to);
}

/* ---------- buckets as an upper level ---------- */

/*
 * Does the scan want entries with one value in the first column?  Then their
 * hash tells which chunks can be left out.  The quals are the server's, as
 * preprocessed: for the first column equality comes first; with array keys it
 * is for the present element.  A value of another type may have another hash,
 * so it is made one of the column's type, if it is an integer, or has none.
 */
static void
cb_window_set_hash(CbScanOpaque so)
{
	const ScanKey key = so->bt.keyData;
	CbBucketView *view = &so->view;
	Datum		value;

	view->has_hash = false;
	if ((cb_desc_find(so->kd.rel) == NULL &&
		 cb_rel_cache(so->kd.rel)->range_root == 0) ||
		so->bt.numberOfKeys == 0 || key->sk_attno != 1 ||
		key->sk_strategy != BTEqualStrategyNumber ||
		(key->sk_flags & (SK_ISNULL | SK_SEARCHNULL | SK_SEARCHNOTNULL |
						  SK_ROW_HEADER)) != 0)
		return;
	value = key->sk_argument;
#ifndef CB_MUTATE_A10_CROSSTYPE
	if (OidIsValid(key->sk_subtype) &&
		key->sk_subtype != so->kd.rel->rd_opcintype[0] &&
		!cb_key_convert_integer(key->sk_func.fn_oid, &value))
		return;
#endif
	if (so->kd.hash == CB_HASH_NONE &&
		cb_key_prepare_hash(&so->kd) == CB_HASH_NONE)
		return;
	view->hash = cb_key_hash(&so->kd, value);
	view->has_hash = true;
}

static void
cb_window_pin_bucket(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_window_set_hash(so);
	cb_bucket_view_open(&so->kd, &so->pos.cut, dir, &so->view);
	CB_TEST_POINT("scan-bucket-pinned");
}

static void
cb_window_open_chunks(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					  CbPlace *far)
{
	bool		forward = merge->step > 0;
	const CbCut *lo = forward ? &near->cut : &far->cut;
	const CbCut *hi = forward ? &far->cut : &near->cut;

	cb_bucket_view_search(&so->kd, &so->view, &near->cut);
	for (int i = 0; i < so->view.nchunks; i++)
	{
		CbSource   *source = &merge->sources[merge->nsources];
		int			n;

		cb_bucket_view_range(&so->kd, &so->view, i, lo, hi,
							 (ScanDirection) merge->step, &source->range);
		n = source->range.n;
		if (n == 0)
			continue;
		merge->nsources++;
		source->kind = CB_SOURCE_CHUNK;
		source->chunk = &so->view.chunks[i].chunk->chunk;
		source->first = source->cur = forward ? 0 : n - 1;
		source->end = forward ? n : -1;
	}
}

/* Ends the window at a bound, if that is nearer than far; returns whether it is. */
static bool
cb_window_clip_at(CbScanOpaque so, CbPlace *far, bool forward, IndexTuple bound)
{
	int			cmp;

	if (bound == NULL)
		return false;
	cmp = cb_key_compare_cut(&so->kd, &far->cut, bound);
	if (forward ? cmp >= 0 : cmp <= 0)
		return false;
	cb_place_set_tuple(so, far, bound, false);
	return true;
}

/*
 * Ends the window where the bucket's range ends, or the range buffer's, if that
 * is nearer than the leaf's bound; returns whether it is.  These were bounds of
 * leaves once, so they seldom are: where a leaf has taken over its left
 * neighbour's range, or a part of it.
 */
static bool
cb_window_clip(CbScanOpaque so, CbPlace *far, bool forward)
{
	bool		clipped;

	clipped = cb_window_clip_at(so, far, forward,
								forward ? so->view.hi : so->view.lo);
#ifndef CB_MUTATE_A5_RANGECLIP
	clipped |= cb_window_clip_at(so, far, forward,
								 forward ? so->range_high : so->range_low);
#endif
	return clipped;
}

/* ---------- the journal as an upper level ---------- */

/*
 * May what was copied of the upper levels serve a scan that starts again?
 * Under the same MVCC snapshot it may: entries of later rows are not visible
 * to it, and what has left the upper levels meanwhile is dropped where the
 * leaf has it too.
 */
bool
cb_window_upper_is_current(CbScanOpaque so, Snapshot snapshot)
{
	return so->upper != NULL && IsMVCCSnapshot(snapshot) &&
		so->upper_xmin == snapshot->xmin &&
		so->upper_xmax == snapshot->xmax &&
		so->upper_curcid == snapshot->curcid &&
		so->upper_completions == snapshot->snapXactCompletionCount;
}

/* All of the journal is in the tree. */
static CbUpper *
cb_window_acquire_none(CbScanOpaque so, Snapshot snapshot, CbPos tail)
{
	CbMetaPageData meta;

	/* a truncation leaves its LSN on the metapage (A16) */
	if (OldSnapshotThresholdActive())
		cb_tree_read_meta(so->kd.rel, snapshot, &meta);
	cb_copy_acquire_none(&so->kd, tail, &so->none);
	return &so->none;
}

/* Entries of the journal up to the limit. */
static CbUpper *
cb_window_acquire_some(CbScanOpaque so, Snapshot snapshot, CbPos limit)
{
	MemoryContext oldcxt;
	CbUpper    *upper;

	if (so->upper_cxt == NULL)
		so->upper_cxt = AllocSetContextCreate(so->cxt, "cachebatch scan levels",
											  ALLOCSET_SMALL_SIZES);
	oldcxt = MemoryContextSwitchTo(so->upper_cxt);
	upper = cb_copy_acquire(&so->kd, snapshot, limit);
	MemoryContextSwitchTo(oldcxt);
	return upper;
}

/* Which part of the journal it is that the buckets do not hold. */
static CbUpper *
cb_window_acquire_upper(CbScanOpaque so, Snapshot snapshot)
{
	CbBucketView *view = &so->view;
	CbUpper    *upper;
	CbQuiet		now;

	if (view->attach_id != 0 && view->swept)
		return cb_window_acquire_none(so, snapshot, view->from);
	if (cb_desc_is_quiet(so->kd.rel, &now))
		return cb_window_acquire_none(so, snapshot,
									  cb_rel_cache(so->kd.rel)->journal_tail);
	upper = cb_window_acquire_some(so, snapshot, view->attach_id != 0 ?
								   view->from : CB_POS_MAX);

	/* give it buckets, and have what there is moved to the tree */
	if (view->attach_id == 0 && upper->nruns > 0)
	{
		CbDesc	   *desc = cb_desc_attach(&so->kd, false);

		if (desc != NULL)
			cb_flush_request_before(desc);
	}

	/* of an index with buckets it was not read to its head */
#ifndef CB_MUTATE_I3_QUIETFROM
	if (view->attach_id == 0 && upper->nruns == 0)
#else
	if (upper->nruns == 0)
#endif
		cb_desc_note_quiet(so->kd.rel, &now);
	return upper;
}

/*
 * Once after a rescan, and again if the index has got or lost its buckets
 * since: tail and head are read with the snapshot taken.  What was acquired
 * before is kept until the next rescan, as windows may point into it.
 */
static void
cb_window_copy_journal(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	Snapshot	snapshot = scan->xs_snapshot;

#ifndef CB_MUTATE_I2_ATTACHMENT
	if (so->upper != NULL && so->upper_attach_id == so->view.attach_id)
		return;
#else
	if (so->upper != NULL)
		return;
#endif
	CB_TEST_POINT("scan-copy-journal");
	so->upper = cb_window_acquire_upper(so, snapshot);
	so->upper_serial++;
	so->upper_attach_id = so->view.attach_id;
	so->upper_xmin = snapshot->xmin;
	so->upper_xmax = snapshot->xmax;
	so->upper_curcid = snapshot->curcid;
	so->upper_completions = snapshot->snapXactCompletionCount;

	/* what a sweep could not put into the tree has left the journal upwards */
	if (cb_bucket_view_is_late(&so->view))
	{
		cb_slot_release_to(so->view.mark);
		cb_window_pin_bucket(scan, dir);
		cb_window_copy_journal(scan, dir);
	}
}

void
cb_window_release_upper(CbScanOpaque so)
{
	so->upper = NULL;
	if (so->upper_cxt != NULL)
		MemoryContextReset(so->upper_cxt);
}

/* Adds each run's entries between the cuts; sets far's place in each run. */
static void
cb_window_open_runs(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					CbPlace *far)
{
	CbUpper    *upper = so->upper;
	ScanDirection dir = (ScanDirection) merge->step;

	far->upper_serial = so->upper_serial;
	for (int i = 0; i < upper->nruns; i++)
	{
		CbRun	   *run = upper->runs[i];
		int			start = near->run_index[i];
		int			end = cb_window_search_run_near(so, run, &far->cut, start,
													dir);
		CbSource   *source;

		far->run_index[i] = end;
		if (start == end)
			continue;
		source = &merge->sources[merge->nsources++];
		source->kind = CB_SOURCE_RUN;
		source->run = run;
		source->cur = merge->step > 0 ? start : start - 1;
		source->end = merge->step > 0 ? end : end - 1;
	}
}

/* ---------- range buffers as an upper level ---------- */

/* Pages that this backend has read from files. */
static inline int64
cb_window_count_reads(void)
{
#ifdef CB_TESTPOINTS
	static int64 n = 0;

	if (cb_test_read_ahead)
		return n++;
#endif
	return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
}

/*
 * Adds the runs that may have entries beyond the near cut.  When one is not in
 * memory the others are asked for.
 */
static void
cb_window_open_ranges(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					  CbPlace *far)
{
	CbScanRanges *ranges = so->ranges;
	ScanDirection dir = (ScanDirection) merge->step;
	int			asked = 0;

	for (int i = 0; so->in_range && i < ranges->nwanted; i++)
	{
		CbSource   *source = &merge->sources[merge->nsources++];
		CbRunCursor *cursor = ranges->cursors[ranges->wanted[i]];
		int64		nread = cb_window_count_reads();

		source->kind = CB_SOURCE_SPILLED;
		source->cursor = cursor;
		source->cur = cb_run_seek(&so->kd, cursor, &near->cut, dir);
		source->end = merge->step > 0 ? cursor->nentries : -1;
		if (i >= asked && cb_window_count_reads() > nread)
			asked = cb_window_prefetch_runs(so, i + 1, &near->cut, dir);
		if (so->ahead.on)
			cb_run_prefetch_next(&so->kd, cursor, &so->ahead.list->end, dir);
	}
}

/* ---------- the leaf ---------- */

/*
 * The leaf beyond so->pos, pinned and share-locked.  The one that is known by
 * its block may have been split, or have given to its right neighbour what
 * lies there.
 */
static Buffer
cb_window_find_leaf(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (ScanDirectionIsForward(dir) && so->pos.leaf.blkno != InvalidBlockNumber)
	{
		Buffer		buf = cb_tree_read_leaf(scan->indexRelation, &so->pos.leaf,
											scan->xs_snapshot);
		Page		page = BufferGetPage(buf);

#ifdef CB_MUTATE_I9_HINT
		return buf;
#endif
		if (CbPageIsRightmost(page) ||
			cb_key_compare_cut(&so->kd, &so->pos.cut,
							   CbPageGetHighKey(page)) > 0)
			return buf;
		UnlockReleaseBuffer(buf);
	}
	return cb_tree_descend(&so->kd, &so->pos.cut, dir, scan->xs_snapshot,
						   &so->descent);
}

/* Is the leaf's lower bound not right of the cut, as far as the window tells? */
static bool
cb_window_begins_before(CbScanOpaque so, const CbCut *cut)
{
	CbWindow   *window = so->cur;

#ifdef CB_MUTATE_I9_LOW
	if (window->has_low)
		return true;
#endif
	if (window->has_low && cut->is_number)
		return DatumGetInt64(cut->keys[0].sk_argument) >= window->low;
	return window->nitems > 0 && !CbScanItemIsUpper(&window->items[0]) &&
		cb_key_compare_cut(&so->kd, cut, window->items[0].itup) <= 0;
}

/*
 * Has the cut, of keys, its place in the leaf last read, as far as the window tells?
 * The leaf's lower bound is not right of the number that the scan looked for in it,
 * nor of what it found.
 */
bool
cb_window_covers(CbScanOpaque so, const CbCut *cut)
{
	CbWindow   *window = so->cur;
	const CbCut *end;

	if (window == NULL || (!window->has_low && window->nitems == 0))
		return false;
	end = &window->hi.cut;
	return (end->kind == CB_CUT_MAX ||
			(end->kind == CB_CUT_TUPLE &&
			 cb_key_compare_cut(&so->kd, cut, end->tuple) > 0)) &&
		cb_window_begins_before(so, cut);
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

#ifndef CB_MUTATE_I2_COPY
	if (window->copied && window->leaf.blkno == blkno &&
		window->lsn == lsn && RelationNeedsWAL(rel))
		return;
#else
	if (window->copied && window->leaf.blkno == blkno)
		return;
#endif
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

#ifndef CB_MUTATE_I8_STANDBYPIN
	trusts_map &= !scan->xactStartedInRecovery;
#endif
	return trusts_map || !IsMVCCSnapshot(scan->xs_snapshot) ||
		!RelationNeedsWAL(scan->indexRelation);
}

/* Gives up the leaf's lock, and its pin if it is not needed. */
static void
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
		!cb_leaf_open(&window->reader, page))
		cb_report_corrupt(rel, window->leaf.blkno, "The page is not a valid leaf.");
}

/* Sets the window's cuts: from so->pos to the leaf's bound. */
static void
cb_window_set_cuts(CbScanOpaque so, bool forward)
{
	CbWindow   *window = so->cur;
	Page		page = window->page;
	CbPlace    *far = forward ? &window->hi : &window->lo;
	IndexTuple	bound;

	cb_place_copy(so, forward ? &window->lo : &window->hi, &so->pos);
	window->has_low = forward && so->pos.cut.kind == CB_CUT_KEYS &&
		so->pos.cut.is_number && so->pos.cut.nkeys == 1 && !so->pos.cut.after;
	if (window->has_low)
		window->low = DatumGetInt64(so->pos.cut.keys[0].sk_argument);
	bound = forward ?
		(CbPageIsRightmost(page) ? NULL : CbPageGetHighKey(page)) :
		so->descent.low;
	if (bound == NULL)
		far->cut.kind = forward ? CB_CUT_MAX : CB_CUT_MIN;
	else
	{
		int			cmp = cb_key_compare_cut(&so->kd, &so->pos.cut, bound);

		if (forward ? cmp <= 0 : cmp >= 0)
			cb_report_corrupt(so->kd.rel, window->leaf.blkno,
							  "The scan makes no progress beyond the page's bounds.");
		cb_place_set_tuple(so, far, bound, false);
		if (forward)
			far->leaf = (CbLeafHint) {CbPageGetOpaque(page)->next, InvalidBuffer};
	}
	window->clipped = cb_window_clip(so, far, forward);
}

/*
 * Reads the leaf beyond so->pos and sets the window's cuts from it.  in_place:
 * it is left locked, and is not copied; else it is copied, and kept pinned if
 * it has to stay so.  Returns whether a page was read from the index's file.
 */
static bool
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
	window->leaf = (CbLeafHint) {BufferGetBlockNumber(buf), buf};
	window->buf = buf;
	window->valid = true;
	cb_heat_note(scan->indexRelation, window->leaf.blkno, CB_HEAT_READ);
	if (!in_place)
		cb_window_unlock_leaf(scan);
	if (!window->copied)
		cb_window_open_leaf(scan->indexRelation, window);
	window->copied = !in_place;
	cb_window_set_cuts(so, forward);
	return missed;
}

/* ---------- windows ---------- */

/* Opens all levels between the window's cuts. */
static void
cb_window_open_merge(IndexScanDesc scan, CbMerge *merge, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	bool		forward = ScanDirectionIsForward(dir);

	merge->step = forward ? 1 : -1;
	merge->far = forward ? &window->hi.cut : &window->lo.cut;
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
 * scan: the next window starts with that entry.  Its place in the runs is found
 * anew then: a run may be past entries beyond it, which the leaf has as well.
 */
static void
cb_window_cut_short(CbScanOpaque so, CbMerge *merge)
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
#ifdef CB_MUTATE_I2_INPLACE
	return !CbSourceIsUpper(source);
#endif
	return source->kind == CB_SOURCE_BASE ||
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
		source->kind == CB_SOURCE_BASE ? CB_ITEM_BASE : CB_ITEM_UPPER;
	item->number = CbSourceIsUpper(source) ? 0 : source->cur;
}

/*
 * How many items the first window of a scan has at most.  One that begins at an end
 * of the index, or at its nulls, mostly wants the one entry there: min, max.
 */
static int
cb_window_first_max(CbScanOpaque so)
{
	return cb_cut_is_at_end(&so->pos.cut) ? CB_WINDOW_END_MAX :
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
			cb_window_cut_short(so, merge);
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
	if (ScanDirectionIsForward(dir) && window->hi.cut.kind == CB_CUT_TUPLE)
	{
		IndexTuple	high = window->hi.cut.tuple;

		(void) _bt_checkkeys(scan, high, BTreeTupleGetNAtts(high, rel), dir,
							 &more);
	}
	return more;
}

/* Finds the place of so->pos in the runs, if it is not known. */
static void
cb_window_place_pos(CbScanOpaque so)
{
	CbPlace    *pos = &so->pos;

	if (pos->upper_serial == so->upper_serial)
		return;
	for (int i = 0; i < so->upper->nruns; i++)
	{
		CbRun	   *run = so->upper->runs[i];

		pos->run_index[i] = cb_window_search_run(so, run, &pos->cut, 0, run->n);
	}
	pos->upper_serial = so->upper_serial;
}

static void
cb_window_copy_levels(IndexScanDesc scan, ScanDirection dir)
{
	for (int i = 0; i < lengthof(cb_window_levels); i++)
		cb_window_levels[i].copy(scan, dir);
	cb_window_place_pos((CbScanOpaque) scan->opaque);
	CB_TEST_POINT("scan-upper-copied");
}

/*
 * Is the leaf read in place?  A few entries are looked at for one that is wanted.
 * Nothing that is read beside it takes a lock.
 */
static inline bool
cb_window_is_read_in_place(CbScanOpaque so)
{
	return so->starting && so->upper->nruns == 0 &&
		(!so->in_range || so->ranges->nwanted == 0) &&
		(so->view.nchunks == 0 || (cb_cut_is_at_end(&so->pos.cut) &&
								   cb_bucket_view_is_sorted(&so->view)));
}

/*
 * The window of a look-up whose entry is kept with the hot ones, if it is.  The
 * upper levels have been copied and have nothing for it.
 */
static bool
cb_window_read_hot(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	CbHotTuple	tuple;
	BlockNumber leaf;
	CbScanItem *item;

	if (!cb_window_find_hot(scan, &tuple, &leaf))
		return false;
	cb_heat_note(scan->indexRelation, leaf, CB_HEAT_READ);
	cb_stat_add(scan->indexRelation, CB_STAT_HOT_READS, 1);
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
	window->hot_attach_id = so->view.attach_id;
	window->hot_hash = so->view.hash;
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
	bool		hot = false;
	bool		missed = false;
	bool		more;

#ifdef CB_MUTATE_I2_ORDER
	so->view.lo = so->view.hi = NULL;
	cb_window_read_leaf(scan, dir, in_place);
	CB_TEST_POINT("scan-leaf-read");
	cb_window_release_upper(so);
	cb_window_copy_levels(scan, dir);
	cb_place_copy(so, ScanDirectionIsForward(dir) ? &so->cur->lo : &so->cur->hi,
				  &so->pos);
#else
	cb_window_copy_levels(scan, dir);
	in_place = cb_window_is_read_in_place(so);
	hot = in_place && ScanDirectionIsForward(dir) && cb_window_may_be_hot(scan);
#ifdef CB_MUTATE_I2_HOTUPPER
	hot = cb_window_may_be_hot(scan);
#endif
	if (hot && cb_window_read_hot(scan))
		return false;
	missed = cb_window_read_leaf(scan, dir, in_place);
	if (!in_place)
	{
		cb_scan_read_ahead(scan, dir, missed);
		CB_TEST_POINT("scan-leaf-read");
	}
#endif
	cb_window_open_merge(scan, &merge, dir);
	more = !(in_place && cb_merge_lacks_number(so, &merge)) &&
		cb_window_fill(scan, &merge, dir);
	if (in_place)
	{
		cb_tree_check_still_locked(scan->indexRelation,
								   so->cur->buf);
		if (hot && (!more || so->cur->hi.cut.kind == CB_CUT_MAX))
			cb_window_keep_hot(scan);
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
	window->hot_attach_id = 0;
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
		window->more_right = more && window->hi.cut.kind != CB_CUT_MAX;
	}
	else
	{
		cb_window_reverse_items(window);
		window->index = window->nitems - 1;
		window->more_left = more && window->lo.cut.kind != CB_CUT_MIN;
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
 * Reads the first window with items of a scan that starts at the cut.  The
 * scan holds no window.  Nothing beyond the starting cut can match.  leaf: one
 * whose lower bound is not right of the cut, if known; going forward only.
 */
bool
cb_window_first(IndexScanDesc scan, const CbCut *cut, ScanDirection dir,
				CbLeafHint leaf)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (so->cur == NULL)
		so->cur = cb_window_init(so, &so->first);
	cb_place_set_cut(so, &so->pos, cut);
	so->pos.leaf = leaf;
	so->pos.upper_serial = 0;
	so->cur->more_left = so->cur->more_right = false;
	so->starting = true;
	cb_scan_ahead_reset(&so->ahead);
	return cb_window_seek(scan, dir);
}

/*
 * Goes to the next window with items in the direction.  False at the end of
 * the scan; there is no valid window then.
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
 * Leaves the current window: sets its kill hints and gives up its pin.  A
 * window that holds the mark is set aside, without pin; so->cur is another
 * one then.
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
