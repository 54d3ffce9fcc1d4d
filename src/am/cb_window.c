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
 * An entry moves from an upper level to a lower one only, and is readable
 * below before it goes above, so this order of reading cannot miss it; an
 * entry that is seen twice is returned once, as the leaf's.  The window is
 * [cut, high key) going forward and [leaf's lower bound, cut) going backward;
 * it ends earlier if it would take too many entries of upper levels, and the
 * leaf is then read again for the next one.
 *
 * At most one leaf is pinned, none is locked, between calls.  The pin is kept
 * where VACUUM has to wait for the scan before a TID can be used again: in
 * index-only scans and under snapshots that are not MVCC.  It is also kept
 * where page LSNs cannot tell that a leaf has changed, for kill hints.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_scan.h"
#include "flush/cb_flush.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

typedef enum CbSourceKind
{
	CB_SOURCE_BASE,
	CB_SOURCE_LEAF,
	CB_SOURCE_RUN,
	CB_SOURCE_CHUNK
} CbSourceKind;

/*
 * One sorted input of the merge.  cur is the place of head: an ordinal of the
 * leaf's base, an offset of the leaf copy, or an index of the run's entries
 * or of the chunk's order.  It moves by the merge's step and is used up at
 * end.
 */
typedef struct CbSource
{
	CbSourceKind kind;
	CbRun	   *run;
	int			run_no;			/* index in CbUpper */
	const CbChunk *chunk;
	CbChunkRange range;			/* places of the chunk's entries */
	int			first;
	int			cur;
	int			end;
	IndexTuple	head;
	bool		head_dead;		/* head is marked dead: not to be returned */
} CbSource;

#define CbSourceIsUpper(source) ((source)->kind >= CB_SOURCE_RUN)

#define CB_MERGE_MAX	(CB_MAX_RUNS + CB_BUCKET_MAX_CHUNKS + 2)

typedef struct CbMerge
{
	int			step;			/* 1 forward, -1 backward */
	const CbCut *far;			/* where the window ends */
	int			nsources;
	CbSource	sources[CB_MERGE_MAX];
	int			nordered;
	CbSource   *ordered[CB_MERGE_MAX];	/* by head, in scan order */
	CbLeafTuple base_head;		/* the head of the base */
} CbMerge;

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

/*
 * Uppermost first.  What the buckets hold and what the journal holds from
 * before them are apart; the first tells how far the second goes.
 */
static const CbUpperLevel cb_window_levels[] = {
	{cb_window_pin_bucket, cb_window_open_chunks},
	{cb_window_copy_journal, cb_window_open_runs},
};

static void
cb_window_report_corrupt(Relation rel, BlockNumber blkno, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("index \"%s\" is corrupted at block %u",
					RelationGetRelationName(rel), blkno),
			 errdetail_internal("%s", detail),
			 errhint("Please REINDEX it.")));
}

/* ---------- places ---------- */

/* Sets the cut of a place; a tuple is copied to the place's own memory. */
static void
cb_place_set_cut(CbScanOpaque so, CbPlace *place, const CbCut *cut)
{
	place->cut = *cut;
	place->leaf = InvalidBlockNumber;
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
 * is for the present element.  A value of another type may have another hash.
 */
static void
cb_window_set_hash(CbScanOpaque so)
{
	const ScanKey key = so->bt.keyData;
	CbBucketView *view = &so->view;

	if (so->bt.numberOfKeys == 0 || key->sk_attno != 1 ||
		key->sk_strategy != BTEqualStrategyNumber ||
		(key->sk_flags & (SK_ISNULL | SK_SEARCHNULL | SK_SEARCHNOTNULL |
						  SK_ROW_HEADER)) != 0)
		return;
#ifndef CB_MUTATE_A10_CROSSTYPE
	if (OidIsValid(key->sk_subtype) &&
		key->sk_subtype != so->kd.rel->rd_opcintype[0])
		return;
#endif
	if (so->kd.hash == CB_HASH_NONE &&
		cb_key_prepare_hash(&so->kd) == CB_HASH_NONE)
		return;
	view->hash = cb_key_hash(&so->kd, key->sk_argument);
	view->has_hash = true;
}

static void
cb_window_pin_bucket(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_bucket_view_open(&so->kd, &so->pos.cut, dir, &so->view);
	if (so->view.nchunks > 0)
		cb_window_set_hash(so);
	CB_TEST_POINT("scan-bucket-pinned");
}

static void
cb_window_open_chunks(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					  CbPlace *far)
{
	bool		forward = merge->step > 0;
	const CbCut *lo = forward ? &near->cut : &far->cut;
	const CbCut *hi = forward ? &far->cut : &near->cut;

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

/*
 * Ends the window where the bucket's range ends, if that is nearer than the
 * leaf's bound; returns whether it is.  Bounds of buckets were bounds of leaves
 * once, so it seldom is: where a leaf has taken over its left neighbour's
 * range, or a part of it.
 */
static bool
cb_window_clip(CbScanOpaque so, CbPlace *far, bool forward)
{
	IndexTuple	bound = forward ? so->view.hi : so->view.lo;
	int			cmp;

	if (bound == NULL)
		return false;
	cmp = cb_key_compare_cut(&so->kd, &far->cut, bound);
	if (forward ? cmp >= 0 : cmp <= 0)
		return false;
	cb_place_set_tuple(so, far, bound, false);
	return true;
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

/* Which part of the journal it is that the buckets do not hold. */
static CbUpper *
cb_window_acquire_upper(CbScanOpaque so, Snapshot snapshot)
{
	CbBucketView *view = &so->view;
	CbUpper    *upper;

	if (view->attach_id != 0 && view->swept)
	{
		CbMetaPageData meta;

		/* a truncation leaves its LSN on the metapage (A16) */
		if (OldSnapshotThresholdActive())
			cb_tree_read_meta(so->kd.rel, snapshot, &meta);
		return cb_copy_acquire_none(&so->kd, view->from);
	}
	upper = cb_copy_acquire(&so->kd, snapshot,
							view->attach_id != 0 ? view->from : CB_POS_MAX);

	/* give it buckets, and have what there is moved to the tree */
	if (view->attach_id == 0 && upper->nruns > 0)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(so->work_cxt);
		CbDesc	   *desc = cb_desc_attach(&so->kd);

		if (desc != NULL)
			cb_flush_request_before(desc);
		MemoryContextSwitchTo(oldcxt);
	}
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
	MemoryContext oldcxt;

#ifndef CB_MUTATE_I2_ATTACHMENT
	if (so->upper != NULL && so->upper_attach_id == so->view.attach_id)
		return;
#else
	if (so->upper != NULL)
		return;
#endif
	oldcxt = MemoryContextSwitchTo(so->upper_cxt);
	so->upper = cb_window_acquire_upper(so, snapshot);
	MemoryContextSwitchTo(oldcxt);
	so->upper_serial++;
	so->upper_attach_id = so->view.attach_id;
	so->upper_xmin = snapshot->xmin;
	so->upper_xmax = snapshot->xmax;
	so->upper_curcid = snapshot->curcid;
	so->upper_completions = snapshot->snapXactCompletionCount;
}

void
cb_window_release_upper(CbScanOpaque so)
{
	if (so->upper == NULL)
		return;
	so->upper = NULL;
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
		source->run_no = i;
		source->cur = merge->step > 0 ? start : start - 1;
		source->end = merge->step > 0 ? end : end - 1;
	}
}

/* ---------- the leaf ---------- */

/*
 * The leaf beyond so->pos, pinned and share-locked.  The one that is known by
 * its block may have given to its right neighbour what lies there.
 */
static Buffer
cb_window_find_leaf(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (ScanDirectionIsForward(dir) && so->pos.leaf != InvalidBlockNumber)
	{
		Buffer		buf = cb_tree_read_leaf(scan->indexRelation, so->pos.leaf,
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

/*
 * Copies the leaf beyond so->pos, and sets the window's cuts from it.  Keeps
 * the leaf pinned if it has to stay so.
 */
static void
cb_window_read_leaf(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	Page		page = (Page) window->leaf.data;
	bool		forward = ScanDirectionIsForward(dir);
	Buffer		buf;
	CbPlace    *far = forward ? &window->hi : &window->lo;
	IndexTuple	bound;

	so->descent.want_low = !forward;
	buf = cb_window_find_leaf(scan, dir);
	memcpy(page, BufferGetPage(buf), BLCKSZ);
	window->lsn = BufferGetLSNAtomic(buf);
	window->blkno = BufferGetBlockNumber(buf);
	if (scan->xs_want_itup || !IsMVCCSnapshot(scan->xs_snapshot) ||
		!RelationNeedsWAL(scan->indexRelation))
	{
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		window->buf = buf;
	}
	else
	{
		UnlockReleaseBuffer(buf);
		window->buf = InvalidBuffer;
	}
	window->valid = true;

	if (!CbPageIsLeaf(page) ||
		PageGetMaxOffsetNumber(page) > MaxIndexTuplesPerPage ||
		(!CbPageIsRightmost(page) && PageGetMaxOffsetNumber(page) < CB_HIKEY) ||
		!cb_leaf_open(&window->reader, page))
		cb_window_report_corrupt(scan->indexRelation, window->blkno,
								 "The page is not a valid leaf.");

	cb_place_copy(so, forward ? &window->lo : &window->hi, &so->pos);
	bound = forward ?
		(CbPageIsRightmost(page) ? NULL : CbPageGetHighKey(page)) :
		so->descent.low;
	if (bound == NULL)
		far->cut.kind = forward ? CB_CUT_MAX : CB_CUT_MIN;
	else
	{
		int			cmp = cb_key_compare_cut(&so->kd, &so->pos.cut, bound);

		if (forward ? cmp <= 0 : cmp >= 0)
			cb_window_report_corrupt(scan->indexRelation, window->blkno,
									 "The scan makes no progress beyond the page's bounds.");
		cb_place_set_tuple(so, far, bound, false);
		if (forward)
			far->leaf = CbPageGetOpaque(page)->next;
	}
	window->clipped = cb_window_clip(so, far, forward);
}

/*
 * Must the leaf's entries be compared with the far cut?  Going forward it is
 * the leaf's own high key, unless the window was clipped.  Going backward the
 * leaf may have taken over the range of its left neighbour, or a part of it,
 * since the page was read that led to it and told its lower bound.
 */
static inline bool
cb_merge_ends_inside(CbScanOpaque so, const CbMerge *merge)
{
#ifdef CB_MUTATE_A11_BOUNDS
	return false;
#endif
	return merge->step < 0 || so->cur->clipped;
}

/* Adds the leaf's plain entries between the window's cuts. */
static void
cb_window_open_plain(CbScanOpaque so, CbMerge *merge)
{
	Page		page = (Page) so->cur->leaf.data;
	ScanDirection dir = (ScanDirection) merge->step;
	bool		forward = merge->step > 0;
	CbSource   *source = &merge->sources[merge->nsources++];
	int			end = forward ? PageGetMaxOffsetNumber(page) + 1 :
		CbPageFirstPlain(page);

	if (cb_merge_ends_inside(so, merge))
		end = cb_tree_search_page(&so->kd, merge->far, page, dir);
	source->kind = CB_SOURCE_LEAF;
	source->cur = cb_tree_search_page(&so->kd, &so->pos.cut, page, dir);
	source->end = end;
	if (!forward)
	{
		source->cur--;
		source->end--;
	}
}

/* Is entry i of the leaf's base left of the cut? */
static bool
cb_window_base_is_left(CbScanOpaque so, CbMerge *merge, const CbCut *cut, int i)
{
	IndexTuple	itup = cb_leaf_read(&so->cur->reader, i, &merge->base_head);

	if (itup == NULL)
		cb_window_report_corrupt(so->kd.rel, so->cur->blkno,
								 "The leaf's base is damaged.");
	return cb_key_compare_cut(&so->kd, cut, itup) <= 0;
}

/* How many entries of the leaf's base lie left of the cut: blocks first. */
static int
cb_window_search_base(CbScanOpaque so, CbMerge *merge, const CbCut *cut)
{
	const CbPackReader *base = &so->cur->reader.base;
	int			first = 0;
	int			last = cb_pack_nblocks(base->blob);
	int			low;
	int			high;

	while (first < last)
	{
		int			mid = first + (last - first) / 2;

		if (cb_window_base_is_left(so, merge, cut,
								   cb_pack_block_start(base, mid)))
			first = mid + 1;
		else
			last = mid;
	}
	if (first == 0)
		return 0;
	low = cb_pack_block_start(base, first - 1) + 1;
	high = cb_pack_block_start(base, first);
	while (low < high)
	{
		int			mid = low + (high - low) / 2;

		if (cb_window_base_is_left(so, merge, cut, mid))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The same for the leaf's base. */
static void
cb_window_open_base(CbScanOpaque so, CbMerge *merge)
{
	CbSource   *source;
	bool		forward = merge->step > 0;
	int			end = forward ? so->cur->reader.nbase : 0;

	if (so->cur->reader.nbase == 0)
		return;
	if (cb_merge_ends_inside(so, merge))
		end = cb_window_search_base(so, merge, merge->far);
	source = &merge->sources[merge->nsources++];
	source->kind = CB_SOURCE_BASE;
	source->cur = cb_window_search_base(so, merge, &so->pos.cut);
	source->end = end;
	if (!forward)
	{
		source->cur--;
		source->end--;
	}
}

/* The tuple of an item of the leaf copy, once it is known to lie within. */
static IndexTuple
cb_window_get_leaf_tuple(IndexScanDesc scan, Page page, OffsetNumber off)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	ItemId		item = PageGetItemId(page, off);

	if (!ItemIdHasStorage(item) ||
		ItemIdGetLength(item) < sizeof(IndexTupleData) ||
		ItemIdGetOffset(item) + ItemIdGetLength(item) > BLCKSZ ||
		IndexTupleSize((IndexTuple) PageGetItem(page, item)) > ItemIdGetLength(item))
		cb_window_report_corrupt(scan->indexRelation, window->blkno,
								 "A line pointer is not valid.");
	return (IndexTuple) PageGetItem(page, item);
}

/* ---------- merge ---------- */

static inline IndexTuple
cb_source_entry(const CbSource *source, int i)
{
	const CbChunkRange *range = &source->range;

	return (IndexTuple) cb_chunk_at(source->chunk,
									range->order[i * range->stride]);
}

/*
 * Is the entry of a chunk the same as the one before it?  A publication that
 * fails half-way is done again as a whole, so a chunk can hold one twice.
 */
static inline bool
cb_merge_is_repeated(CbScanOpaque so, const CbMerge *merge,
					 const CbSource *source)
{
	IndexTuple	entry;
	IndexTuple	last;

#ifdef CB_MUTATE_A15_REPEATED
	return false;
#endif
	if (source->cur == source->first)
		return false;
	entry = cb_source_entry(source, source->cur);
	last = cb_source_entry(source, source->cur - merge->step);
	return ItemPointerEquals(&entry->t_tid, &last->t_tid) &&
		cb_key_compare(&so->kd, entry, last) == 0;
}

/* Is an entry beyond the near cut left of the far one, as the scan goes? */
static inline bool
cb_merge_is_inside(CbScanOpaque so, const CbMerge *merge, IndexTuple entry)
{
	int			cmp = cb_key_compare_cut(&so->kd, merge->far, entry);

	return merge->step > 0 ? cmp <= 0 : cmp > 0;
}

/*
 * Sets the head of a source of the leaf from cur; false: it is marked dead
 * and to be skipped.  The leftmost of its source stays, though, when going
 * backward: it can end the scan.
 */
static bool
cb_merge_settle_leaf(IndexScanDesc scan, CbMerge *merge, CbSource *source)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	Page		page = (Page) window->leaf.data;
	bool		base = source->kind == CB_SOURCE_BASE;
	Size		len;

	source->head_dead = scan->ignore_killed_tuples &&
		(base ? cb_pack_is_dead(cb_leaf_blob(page, &len), source->cur) :
		 ItemIdIsDead(PageGetItemId(page, source->cur)));
	if (source->head_dead &&
		(merge->step > 0 || source->cur != source->end + 1))
		return false;
	source->head = base ?
		cb_leaf_read(&window->reader, source->cur, &merge->base_head) :
		cb_window_get_leaf_tuple(scan, page, source->cur);
	if (source->head == NULL)
		cb_window_report_corrupt(scan->indexRelation, window->blkno,
								 "The leaf's base is damaged.");
	return true;
}

/*
 * Moves a source, from cur on, to its first entry that counts: at a journal
 * position not below the tail; in a leaf, not marked dead.  False if the
 * source is used up.
 */
static bool
cb_merge_settle(IndexScanDesc scan, CbMerge *merge, CbSource *source)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	for (; source->cur != source->end; source->cur += merge->step)
	{
		if (source->kind == CB_SOURCE_CHUNK)
		{
			if (cb_merge_is_repeated(so, merge, source))
				continue;
			source->head = cb_source_entry(source, source->cur);
			source->head_dead = false;
			return !source->range.open ||
				cb_merge_is_inside(so, merge, source->head);
		}
		if (source->kind == CB_SOURCE_RUN)
		{
			CbSortEntry *entry = &source->run->entries[source->cur];

			if (entry->pos < so->upper->tail)
				continue;
			source->head = entry->itup;
			source->head_dead = false;
			return true;
		}
		if (cb_merge_settle_leaf(scan, merge, source))
			return true;
	}
	return false;
}

/* Which of two equal entries stays: the leaf's, unless it is marked dead. */
static inline int
cb_merge_rank(const CbSource *source)
{
	if (CbSourceIsUpper(source))
		return 1;
	return source->head_dead ? 2 : 0;
}

/*
 * Puts a source that has a head among the others.  Where two have the same
 * entry, one of them goes on to its next.
 */
static void
cb_merge_place(IndexScanDesc scan, CbMerge *merge, CbSource *source)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	int			i;

	for (i = 0; i < merge->nordered; i++)
	{
		CbSource   *other = merge->ordered[i];
		int			cmp = cb_key_compare(&so->kd, source->head, other->head);

#ifdef CB_MUTATE_A15_DUPLICATE
		if (cmp == 0)
			break;
#endif
		if (cmp * merge->step < 0)
			break;
		if (cmp != 0)
			continue;

		if (cb_merge_rank(source) < cb_merge_rank(other))
		{
			merge->ordered[i] = source;
			source = other;
		}
		source->cur += merge->step;
		if (!cb_merge_settle(scan, merge, source))
			return;
	}

	memmove(&merge->ordered[i + 1], &merge->ordered[i],
			(merge->nordered - i) * sizeof(CbSource *));
	merge->ordered[i] = source;
	merge->nordered++;
}

/* Takes the first source's head out of the merge. */
static void
cb_merge_advance(IndexScanDesc scan, CbMerge *merge)
{
	CbSource   *source = merge->ordered[0];

	bool		has_more;

	source->cur += merge->step;
	has_more = cb_merge_settle(scan, merge, source);
	if (has_more && merge->nordered == 1)
		return;

	merge->nordered--;
	memmove(&merge->ordered[0], &merge->ordered[1],
			merge->nordered * sizeof(CbSource *));
	if (has_more)
		cb_merge_place(scan, merge, source);
}

static void
cb_merge_open(IndexScanDesc scan, CbMerge *merge, ScanDirection dir)
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
	cb_window_open_base(so, merge);
	cb_window_open_plain(so, merge);

	for (int i = 0; i < merge->nsources; i++)
	{
		if (cb_merge_settle(scan, merge, &merge->sources[i]))
			cb_merge_place(scan, merge, &merge->sources[i]);
	}
}

/* ---------- windows ---------- */

/* A window without contents, for the life of the scan. */
static CbWindow *
cb_window_make(CbScanOpaque so)
{
	CbWindow   *window = MemoryContextAlloc(so->cxt, sizeof(CbWindow));

	memset(window, 0, offsetof(CbWindow, killed));
	window->nallocated = 32;
	window->items = MemoryContextAlloc(so->cxt, sizeof(CbScanItem) *
									   window->nallocated);
	cb_arena_init(&window->kept, so->cxt);
	return window;
}

/*
 * Ends the window before the merge's next entry, in the direction of the
 * scan: the next window starts with that entry.
 */
static void
cb_window_cut_short(CbScanOpaque so, CbMerge *merge)
{
	bool		forward = merge->step > 0;
	CbPlace    *far = forward ? &so->cur->hi : &so->cur->lo;

	cb_place_set_tuple(so, far, merge->ordered[0]->head, !forward);
	for (int i = 0; i < merge->nsources; i++)
	{
		CbSource   *source = &merge->sources[i];

		if (source->kind == CB_SOURCE_RUN)
			far->run_index[source->run_no] =
				forward ? source->cur : source->cur + 1;
	}
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

/* A copy of an entry, which lives as long as the window. */
static IndexTuple
cb_window_keep(CbWindow *window, IndexTuple itup)
{
	IndexTuple	copy = cb_arena_alloc(&window->kept, IndexTupleSize(itup));

	memcpy(copy, itup, IndexTupleSize(itup));
	return copy;
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
	item->itup = source->kind == CB_SOURCE_CHUNK || source->kind == CB_SOURCE_BASE ?
		cb_window_keep(window, source->head) : source->head;
	item->origin = source->kind == CB_SOURCE_LEAF ? CB_ITEM_PLAIN :
		source->kind == CB_SOURCE_BASE ? CB_ITEM_BASE : CB_ITEM_UPPER;
	item->number = CbSourceIsUpper(source) ? 0 : source->cur;
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
	bool		more = true;

	for (; merge->nordered > 0; cb_merge_advance(scan, merge))
	{
		CbSource   *source = merge->ordered[0];

		if (nupper >= CB_WINDOW_UPPER_MAX)
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
 * Copies the levels in their order and merges them.  Returns whether there
 * may be matches beyond the window.
 */
static bool
cb_window_read_levels(IndexScanDesc scan, ScanDirection dir)
{
	CbMerge		merge;

#ifdef CB_MUTATE_I2_ORDER
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	so->view.lo = so->view.hi = NULL;
	cb_window_read_leaf(scan, dir);
	CB_TEST_POINT("scan-leaf-read");
	cb_window_release_upper(so);
	cb_window_copy_levels(scan, dir);
	cb_place_copy(so, ScanDirectionIsForward(dir) ? &so->cur->lo : &so->cur->hi,
				  &so->pos);
#else
	cb_window_copy_levels(scan, dir);
	cb_window_read_leaf(scan, dir);
	CB_TEST_POINT("scan-leaf-read");
#endif
	cb_merge_open(scan, &merge, dir);
	return cb_window_fill(scan, &merge, dir);
}

/* Reads the window that starts at so->pos; the scan has left the last one. */
static void
cb_window_read(IndexScanDesc scan, ScanDirection dir)
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

		cb_window_read(scan, dir);
		if (window->nitems > 0)
			return true;

		cb_place_copy(so, &so->pos, forward ? &window->hi : &window->lo);
		cb_window_leave(scan);
		if (!(forward ? window->more_right : window->more_left))
			return false;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Reads the first window with items of a scan that starts at the cut.  The
 * scan holds no window.  Nothing beyond the starting cut can match.
 */
bool
cb_window_first(IndexScanDesc scan, const CbCut *cut, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (so->cur == NULL)
		so->cur = cb_window_make(so);
	cb_place_set_cut(so, &so->pos, cut);
	so->pos.upper_serial = 0;
	so->cur->more_left = so->cur->more_right = false;
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
	so->cur->more_left = so->cur->more_right = true;
	return cb_window_seek(scan, dir);
}

/* ---------- leaving a window ---------- */

/*
 * Marks dead the leaf's plain entry with this TID, at the offset or right of
 * it: it can have moved right since the leaf was copied.
 */
static bool
cb_window_kill_plain(Page page, OffsetNumber off, ItemPointer tid)
{
	for (off = Max(off, CbPageFirstPlain(page));
		 off <= PageGetMaxOffsetNumber(page);
		 off++)
	{
		ItemId		item = PageGetItemId(page, off);

#ifndef CB_MUTATE_U14_ORDINAL
		if (!ItemPointerEquals(&((IndexTuple) PageGetItem(page, item))->t_tid,
							   tid))
			continue;
#endif
		if (ItemIdIsDead(item))
			return false;
		ItemIdMarkDead(item);
		return true;
	}
	return false;
}

/* The same for an entry of its base. */
static bool
cb_window_kill_base(Page page, int ordinal, ItemPointer tid)
{
	CbLeaf		leaf;
	Size		len;

	if (!cb_leaf_open(&leaf, page))
		return false;
	for (int i = ordinal; i < leaf.nbase; i++)
	{
		ItemPointerData found;

		cb_leaf_read_tid(&leaf, i, &found);
#ifndef CB_MUTATE_U14_ORDINAL
		if (!ItemPointerEquals(&found, tid))
			continue;
#endif
		return cb_pack_set_dead(cb_leaf_blob(page, &len), i);
	}
	return false;
}

/*
 * The leaf, pinned and share-locked, if its items with the TIDs of the window
 * are still the same entries: the pin was held, or the page has not changed.
 */
static Buffer
cb_window_lock_leaf_again(IndexScanDesc scan)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	Relation	rel = scan->indexRelation;
	Buffer		buf = window->buf;

	if (BufferIsValid(buf))
	{
		IncrBufferRefCount(buf);
		LockBuffer(buf, BUFFER_LOCK_SHARE);
		return buf;
	}

	/* LSNs tell nothing here */
	if (!RelationNeedsWAL(rel))
		return InvalidBuffer;

	buf = ReadBuffer(rel, window->blkno);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
#ifdef CB_MUTATE_A12_LSN
	return buf;
#endif
	if (BufferGetLSNAtomic(buf) == window->lsn)
		return buf;
	UnlockReleaseBuffer(buf);
	return InvalidBuffer;
}

/* Sets the dead bits, which are hints, of the items found dead. */
static void
cb_window_kill_items(IndexScanDesc scan)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	Buffer		buf;
	Page		page;
	bool		changed = false;

	if (window->nkilled == 0)
		return;
	buf = cb_window_lock_leaf_again(scan);
	if (!BufferIsValid(buf))
	{
		window->nkilled = 0;
		return;
	}

	page = BufferGetPage(buf);
	if (!PageIsNew(page) && CbPageIsLeaf(page) && !CbPageIsGone(page))
	{
		for (int i = 0; i < window->nkilled; i++)
		{
			CbScanItem *item = &window->items[window->killed[i]];

			changed |= item->origin == CB_ITEM_BASE ?
				cb_window_kill_base(page, item->number, &item->itup->t_tid) :
				cb_window_kill_plain(page, item->number, &item->itup->t_tid);
		}
	}
	if (changed)
	{
		CbPageGetOpaque(page)->flags |= CBP_HAS_GARBAGE;
		MarkBufferDirtyHint(buf, true);
	}
	UnlockReleaseBuffer(buf);
	window->nkilled = 0;
}

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

	cb_window_kill_items(scan);
	if (BufferIsValid(window->buf))
	{
		ReleaseBuffer(window->buf);
		window->buf = InvalidBuffer;
	}
	if (so->mark_index >= 0)
	{
		if (so->mark == NULL)
			so->mark = cb_window_make(so);
		so->cur = so->mark;
		so->mark = window;
		window->index = so->mark_index;
		so->mark_index = -1;
	}
	so->cur->valid = false;
}
