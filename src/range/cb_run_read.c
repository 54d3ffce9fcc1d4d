/*-------------------------------------------------------------------------
 *
 * cb_run_read.c
 *	  Reading runs.
 *
 * A run's pages never change while somebody can have copied its item from a
 * range page (cb_range.h), so each is copied under its share lock and read
 * without.  What is not a page of a run is damage.
 *
 * A tile's run is given up as soon as another one has taken its place.  In recovery
 * any run may be: the primary does not know of a standby's snapshots, and a
 * conflict at RUN_FREE, or when the pages are used again, would end long queries
 * where rows are only inserted, which btree never does.  Then the page has a later
 * LSN than the range page had when it listed the run,
 * since the run was retired in between.  A copy of the whole file gives pages
 * later LSNs as well, but leaves the range page as it is afterwards; so a page
 * is another one's only if the range page has changed, too.  The range page
 * loses the run's item before the run's pages change.
 *
 * A scan that has lost a run reads its window again from the start: range page,
 * tile, then leaf (A11_RUNLOST, A11_RUNCOPIED, A11_TILELOST).  It misses nothing: the range page
 * that it reads now was changed after RETIRE, so the leaves had the run's
 * entries (I1), and they are read after it (I2); the older copy is as good
 * (I11).  Nothing comes twice, as of that window nothing was returned.  If the
 * page's LSN has changed for another reason that is in vain, but once: the new
 * copy of the range page is later than all pages of the copied file.  It ends:
 * each time the primary has merged a run, hundreds of pages, and given it up
 * since the window, some pages, began.  Both pages are share-locked in the
 * order that freeing takes.
 *
 * What was read of runs is kept for the next window only while the range page
 * is the same: another run may have its root in that block.  Filters go the
 * same way.  After promotion such a scan goes on looking; what is retired then
 * is kept for its snapshot.
 *
 * A link of the tree to such a page is from before it was a run's.  When it
 * became one REUSE_PAGE was counted, so whoever has the link sees that
 * (tree/cb_search.c); RUN_FREE, and what the page becomes then, need no count
 * of their own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "miscadmin.h"
#include "range/cb_range.h"
#include "utils/snapmgr.h"

/* Raises an error unless the buffer, which is locked, has a page of a run. */
void
cb_run_check_page(Relation rel, Buffer buf)
{
	BlockNumber blkno = BufferGetBlockNumber(buf);
	Page		page = BufferGetPage(buf);

	cb_page_check(rel, blkno, page);
	if (!CbPageIsRun(page))
		cb_report_corrupt(rel, blkno, "It is not a page of a run.");
}

/*
 * Is a page of a run, which was read because the range page listed it, another
 * one by now?  Then watch->lost is set as well, for good.  The page is a copy,
 * or share-locked; the range page is share-locked for a moment.
 */
bool
cb_run_is_lost(Relation rel, CbRunWatch *watch, Page page)
{
	Buffer		range;
	bool		lost;

	if (PageGetLSN(page) <= watch->lsn)
		return false;
	range = cb_sound_read(rel, watch->range, NULL);
	LockBuffer(range, BUFFER_LOCK_SHARE);
	lost = PageGetLSN(BufferGetPage(range)) != watch->lsn;
	UnlockReleaseBuffer(range);
	watch->lost |= lost;
	return lost;
}

static void
cb_run_check_link(Relation rel, BlockNumber blkno)
{
	if (blkno == InvalidBlockNumber)
		cb_report_corrupt(rel, blkno, "A link to a page of a run leads nowhere.");
}

/* Reads and share-locks a page of a run; InvalidBuffer: the run is lost. */
static Buffer
cb_run_read_page(Relation rel, BlockNumber blkno, int level, CbRunWatch *watch)
{
	Buffer		buf;

	cb_run_check_link(rel, blkno);
	buf = cb_rel_read_buffer(rel, blkno);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (watch != NULL && cb_run_is_lost(rel, watch, BufferGetPage(buf)))
	{
		UnlockReleaseBuffer(buf);
		return InvalidBuffer;
	}
	cb_run_check_page(rel, buf);
	if (CbPageGetOpaque(BufferGetPage(buf))->level != level)
		cb_report_corrupt(rel, blkno, "It is not a page of level %d of a run.",
						  level);
	return buf;
}

/*
 * Begins to read a run: reads nothing yet.  The item is copied; the watch,
 * NULL if the run cannot be given up, must stay as long as the cursor.  A
 * cursor holds neither pins nor locks nor memory of its own, so nothing ends
 * it.
 */
void
cb_run_open(CbRunCursor *cursor, const CbRunItem *item, CbRunWatch *watch)
{
	cursor->item = *item;
	cursor->watch = watch;
	cursor->npages = 0;
	cursor->at = -1;
	cursor->ahead_of = -1;
	cursor->nentries = 0;
}

/* Lets the cursor have no entries, as its run is lost. */
static void
cb_run_lose(CbRunCursor *cursor)
{
	cursor->npages = 0;
	cursor->at = -1;
	cursor->nentries = 0;
}

/*
 * May the run hold entries with this hash of their first column? watch: as of
 * a cursor; a run that is lost holds none.  Yes if it has no filters.
 * Share-locks the filter's page for a moment; damage raises an error.
 */
bool
cb_run_may_hold(Relation rel, const CbRunItem *item, uint32 hash,
				CbRunWatch *watch)
{
	uint32		within;
	int			filter = cb_run_filter_of(hash, item->nfilters, &within);
	Buffer		buf;
	bool		result;

	if (item->nfilters == 0)
		return true;
	buf = cb_run_read_page(rel, item->filters[filter], CB_RUN_FILTER_LEVEL,
						   watch);
	if (!BufferIsValid(buf))
		return false;
	result = cb_run_filter_may_hold(BufferGetPage(buf), within);
	UnlockReleaseBuffer(buf);
	return result;
}

/*
 * Adds the bits of one of the run's filters to a filter as large, in memory of
 * the backend's own.  The run is a range's, and listed, and cannot be given up: not
 * in recovery.
 */
void
cb_run_add_filter(Relation rel, const CbRunItem *item, int filter,
				  cb_atomic64 *to)
{
	Buffer		buf = cb_run_read_page(rel, item->filters[filter],
									   CB_RUN_FILTER_LEVEL, NULL);
	const cb_atomic64 *from = CbRunFilterBits(BufferGetPage(buf));

	for (int i = 0; i < CB_RUN_FILTER_LINES * CB_FILTER_LINE_WORDS; i++)
		cb_store_relaxed(&to[i], cb_load_relaxed(&to[i]) |
						 cb_load_relaxed(&from[i]));
	UnlockReleaseBuffer(buf);
}

/* ---------- the root ---------- */

/* Takes the data pages' blocks from the root, which is locked. */
static void
cb_run_note_pages(Relation rel, CbRunCursor *cursor, Page root)
{
	OffsetNumber max = PageGetMaxOffsetNumber(root);

	if (max < CbPageFirstItem(root) || max > CB_RUN_MAX_PAGES)
		cb_report_corrupt(rel, cursor->item.root, "The root of a run has %u items.",
						  max);
	cursor->lsn = PageGetLSN(root);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		if (!cb_range_bound_is_sound(root, off))
			cb_report_corrupt(rel, cursor->item.root,
							  "Item %u is not a separator.", off);
		cursor->pages[off - 1] = BTreeTupleGetDownLink(CbPageGetTuple(root, off));
	}
	cursor->npages = max;
}

static void
cb_run_read_root(Relation rel, CbRunCursor *cursor)
{
	Buffer		buf = cb_run_read_page(rel, cursor->item.root, CB_RUN_ROOT_LEVEL,
									   NULL);

	cb_run_note_pages(rel, cursor, BufferGetPage(buf));
	UnlockReleaseBuffer(buf);
}

/*
 * Raises an error if a page of the run has no block, or two have one: who
 * could lock it?
 */
static void
cb_run_check_distinct(Relation rel, BlockNumber root, const BlockNumber *pages,
					  int n)
{
	for (int i = 0; i < n; i++)
	{
		bool		distinct = pages[i] != InvalidBlockNumber;

		for (int j = 0; j < i; j++)
			distinct &= pages[i] != pages[j];
		if (!distinct)
			cb_report_corrupt(rel, root,
							  "Its run has block %u twice, or for no page.",
							  pages[i]);
	}
}

/*
 * All pages of a run, which are different ones: data pages, filters, the root;
 * returns how many, at most CB_RUN_MAX_PAGES.  The run cannot be given up, as
 * the range's lock is held.  An error is raised if the root and the item do
 * not agree: nothing may be freed by them then.
 */
int
cb_run_list_pages(Relation rel, const CbRunItem *item, BlockNumber *pages)
{
	CbRunCursor *cursor = palloc(sizeof(CbRunCursor));
	int			n;

	cb_run_open(cursor, item, NULL);
	cb_run_read_root(rel, cursor);
	n = cursor->npages;
	if (n + item->nfilters + 1 != item->npages)
		cb_report_corrupt(rel, item->root,
						  "The root has %d downlinks, but the run %u pages, %u of them filters.",
						  n, item->npages, item->nfilters);
	memcpy(pages, cursor->pages, n * sizeof(BlockNumber));
	memcpy(pages + n, item->filters, item->nfilters * sizeof(BlockNumber));
	pages[n + item->nfilters] = item->root;
	cb_run_check_distinct(rel, item->root, pages, item->npages);
	pfree(cursor);
	return item->npages;
}

/* ---------- data pages ---------- */

/*
 * Copies data page i and begins to read it.  False: the run is lost.  The page
 * is share-locked while it is copied; the cursor is at no page after an error.
 */
static bool
cb_run_load(Relation rel, CbRunCursor *cursor, int i)
{
	Page		page = (Page) cursor->copy.data;
	Buffer		buf;

	if (cursor->at == i)
		return true;
	cursor->at = -1;
	buf = cb_run_read_page(rel, cursor->pages[i], CB_RUN_DATA_LEVEL,
						   cursor->watch);
	if (!BufferIsValid(buf))
	{
		cb_run_lose(cursor);
		return false;
	}
	memcpy(page, BufferGetPage(buf), BLCKSZ);
	UnlockReleaseBuffer(buf);
	if (!cb_leaf_open(&cursor->leaf, page, cb_sound_desc(rel)))
		cb_leaf_report_damaged(rel, cursor->pages[i]);
	cursor->nentries = CbPageIsPacked(page) ? cursor->leaf.npacked :
		PageGetMaxOffsetNumber(page);
	if (cursor->nentries < 1 || cursor->nentries > CB_PACK_MAX_ENTRIES)
		cb_report_corrupt(rel, cursor->pages[i], "A page of a run has %d entries.",
						  cursor->nentries);
	cursor->at = i;
	return true;
}

/*
 * Entry i of the page that the cursor is at; in *tuple, or in the copy, so
 * good until either is used again.  tuple may be NULL if the page is plain.
 * No lock is needed, no comparison runs; a damaged entry raises an error.
 */
IndexTuple
cb_run_entry(Relation rel, CbRunCursor *cursor, int i, CbLeafTuple *tuple)
{
	Page		page = (Page) cursor->copy.data;
	IndexTuple	itup;

	if (CbPageIsPacked(page))
		itup = cb_leaf_read(&cursor->leaf, i, tuple);
	else
		itup = cb_page_get_entry(page, i + 1);
	if (itup != NULL)
		return itup;
	if (CbPageIsPacked(page))
		cb_leaf_report_damaged(rel, cursor->pages[cursor->at]);
	cb_page_report_entry(rel, cursor->pages[cursor->at], i + 1);
}

/*
 * The data page that the root names for the bound; -1: the run is lost.
 * Comparisons run with the root share-locked, as it is not copied.
 */
static int
cb_run_find_page(const CbKeyDesc *kd, CbRunCursor *cursor, const CbBound *bound,
				 ScanDirection dir)
{
	Buffer		buf = cb_run_read_page(kd->rel, cursor->item.root,
									   CB_RUN_ROOT_LEVEL, cursor->watch);
	Page		page;
	OffsetNumber off;

	if (!BufferIsValid(buf))
	{
		cb_run_lose(cursor);
		return -1;
	}
	page = BufferGetPage(buf);
	cb_run_note_pages(kd->rel, cursor, page);
	off = cb_tree_search_page(kd, bound, page, dir);
	UnlockReleaseBuffer(buf);
	return off - 1;
}

/*
 * Does the bound lie inside the page in the copy, between two of its entries?
 */
static bool
cb_run_covers(const CbKeyDesc *kd, CbRunCursor *cursor, const CbBound *bound)
{
	CbLeafTuple tuple;

	return cursor->at >= 0 &&
		cb_key_compare_bound(kd, bound, cb_run_entry(kd->rel, cursor, 0, &tuple)) <= 0 &&
		cb_key_compare_bound(kd, bound, cb_run_entry(kd->rel, cursor,
													 cursor->nentries - 1, &tuple)) > 0;
}

/*
 * How many of the page's entries lie left of the bound.  A scan that goes
 * backward mostly begins at the end of a page: that of max(), or the one
 * before.
 */
static int
cb_run_search(const CbKeyDesc *kd, CbRunCursor *cursor, const CbBound *bound,
			  ScanDirection dir)
{
	int			low = 0;
	int			high = cursor->nentries;
	CbLeafTuple last;

	if (high == 0)
		return 0;
	if (ScanDirectionIsBackward(dir) &&
		cb_key_compare_bound(kd, bound, cb_run_entry(kd->rel, cursor, high - 1, &last)) <= 0)
		return high;
	if (CbPageIsPacked((Page) cursor->copy.data))
		return cb_tree_search_packed(kd, bound, &cursor->leaf, cursor->pages[cursor->at]);
	while (low < high)
	{
		int			mid = low + (high - low) / 2;
		CbLeafTuple tuple;

		if (cb_key_compare_bound(kd, bound, cb_run_entry(kd->rel, cursor, mid, &tuple)) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/*
 * Goes to the data page with the first entry right of the bound [last left of
 * it], if there is one; returns the entry's place in the page, or one past its
 * end [-1].  Of a run that is lost the page has no entries.  No page lock is
 * held, on entry or on return.  Comparison functions run, under the lock of
 * the root as well; damage raises an error.
 */
int
cb_run_seek(const CbKeyDesc *kd, CbRunCursor *cursor, const CbBound *bound,
			ScanDirection dir)
{
	int			left;

	if (!cb_run_covers(kd, cursor, bound))
	{
		int			at = cb_run_find_page(kd, cursor, bound, dir);

		if (at >= 0)
			(void) cb_run_load(kd->rel, cursor, at);
	}
	left = cb_run_search(kd, cursor, bound, dir);
	return ScanDirectionIsForward(dir) ? left : left - 1;
}

/*
 * Goes to the next page in the direction.  False: there is none, or the run is
 * lost.  Locks and errors as cb_run_seek(); no comparison runs.
 */
bool
cb_run_turn(Relation rel, CbRunCursor *cursor, ScanDirection dir)
{
	int			next = cursor->at + (ScanDirectionIsForward(dir) ? 1 : -1);

	if (next < 0 || next >= cursor->npages)
		return false;
	CB_TEST_POINT("run-turn");
	return cb_run_load(rel, cursor, next);
}

/* ---------- all entries ---------- */

/*
 * Begins to collect n entries at most, in the current memory context; listed: the
 * page that lists their runs, to report damage.
 */
void
cb_run_entries_init(CbRunEntries *all, const CbKeyDesc *kd, BlockNumber listed,
					int64 n)
{
	all->kd = kd;
	all->listed = listed;
	all->n = 0;
	all->allocated = n;
	all->entries = MemoryContextAllocHuge(CurrentMemoryContext,
										  sizeof(CbSortEntry) * (n + 1));
	cb_arena_init(&all->arena, CurrentMemoryContext);
}

/* Adds an entry, which must stay: it is not copied. */
static void
cb_run_entries_add_one(CbRunEntries *all, IndexTuple itup)
{
	if (all->n == all->allocated)
		cb_report_corrupt(all->kd->rel, all->listed,
						  "Its runs have more entries than it says.");
	cb_key_fill_sort_entry(all->kd, &all->entries[all->n], itup);
	all->n++;
}

/* Adds the entries of the data page that the cursor is at. */
static void
cb_run_entries_add_page(CbRunEntries *all)
{
	CbRunCursor *cursor = &all->cursor;
	Relation	rel = all->kd->rel;
	IndexTuple *items;

	if (CbPageIsPacked((Page) cursor->copy.data))
	{
		items = palloc(sizeof(IndexTuple) * cursor->nentries);
		if (!cb_leaf_read_all(&cursor->leaf, &all->arena, items))
			cb_leaf_report_damaged(rel, cursor->pages[cursor->at]);
		for (int i = 0; i < cursor->nentries; i++)
			cb_run_entries_add_one(all, items[i]);
		pfree(items);
		return;
	}
	for (int i = 0; i < cursor->nentries; i++)
	{
		IndexTuple	itup = cb_run_entry(rel, cursor, i, NULL);
		IndexTuple	copy = cb_arena_alloc(&all->arena, IndexTupleSize(itup));

		memcpy(copy, itup, IndexTupleSize(itup));
		cb_run_entries_add_one(all, copy);
	}
}

/*
 * Adds copies of a run's entries, in order.  The run cannot be given up.  Its
 * pages are share-locked one at a time, no comparison runs.  Damage, and more
 * entries than there is room for, raise an error.
 */
void
cb_run_entries_add_run(CbRunEntries *all, const CbRunItem *item)
{
	Relation	rel = all->kd->rel;
	CbBound		bound = {.kind = CB_BOUND_MIN};
	CbRunCursor *cursor = &all->cursor;

	cb_run_open(cursor, item, NULL);
	(void) cb_run_seek(all->kd, cursor, &bound, ForwardScanDirection);
	do
	{
		if (cursor->at + 1 < cursor->npages)
			cb_sound_prefetch(rel, cursor->pages[cursor->at + 1]);
		cb_run_entries_add_page(all);
		CHECK_FOR_INTERRUPTS();
	} while (cb_run_turn(rel, cursor, ForwardScanDirection));
}

/*
 * Adds n entries of the caller's, which stay its; an error if the runs have left no
 * room for them.
 */
void
cb_run_entries_add(CbRunEntries *all, const CbSortEntry *entries, int n)
{
	if (n > all->allocated - all->n)
		cb_report_corrupt(all->kd->rel, all->listed,
						  "Its runs have more entries than it says.");
	if (n > 0)
		memcpy(all->entries + all->n, entries, n * sizeof(CbSortEntry));
	all->n += n;
}

/* How many of n sorted entries are left of a tuple. */
int
cb_run_entries_left_of(const CbKeyDesc *kd, const CbSortEntry *entries, int n,
					   IndexTuple itup)
{
	int			low = 0;

	while (low < n)
	{
		int			mid = low + (n - low) / 2;

		if (cb_key_compare(kd, entries[mid].itup, itup) < 0)
			low = mid + 1;
		else
			n = mid;
	}
	return low;
}

/*
 * How many of n > 0 sorted entries lie in a range or tile that ends at high,
 * NULL: nowhere.  The first of them does, whatever comparisons say.
 */
int
cb_run_entries_inside(const CbKeyDesc *kd, const CbSortEntry *entries, int n,
					  IndexTuple high)
{
	int			nleft = high == NULL ? n : cb_run_entries_left_of(kd, entries, n, high);

	return Max(nleft, 1);
}

/* ---------- reading ahead ---------- */

static void
cb_run_prefetch_page(Relation rel, BlockNumber blkno)
{
	cb_run_check_link(rel, blkno);
	(void) cb_sound_prefetch(rel, blkno);
}

/*
 * Has those pages of runs read in that cb_run_seek() will need for the bound,
 * if nothing has been read of a run.  Waits for the roots, not for the data
 * pages.  Comparisons run; if a run is lost it leaves the others out.
 */
void
cb_run_prefetch(const CbKeyDesc *kd, CbRunCursor *const *cursors, int n,
				const CbBound *bound, ScanDirection dir)
{
	for (int i = 0; i < n; i++)
	{
		if (cursors[i]->at < 0)
			cb_run_prefetch_page(kd->rel, cursors[i]->item.root);
	}
	for (int i = 0; i < n; i++)
	{
		if (cursors[i]->at < 0)
		{
			int			at = cb_run_find_page(kd, cursors[i], bound, dir);

			if (at < 0)
				return;
			cb_run_prefetch_page(kd->rel, cursors[i]->pages[at]);
			CB_TEST_POINT("run-read-ahead");
		}
	}
}

/*
 * Has the next page in the direction read in, if a scan to the end needs it,
 * once for each page that the cursor is at.  Comparisons run.
 */
void
cb_run_prefetch_next(const CbKeyDesc *kd, CbRunCursor *cursor,
					 const CbBound *end, ScanDirection dir)
{
	bool		forward = ScanDirectionIsForward(dir);
	int			next = cursor->at + (forward ? 1 : -1);
	CbLeafTuple tuple;
	int			cmp;

	if (cursor->at == cursor->ahead_of)
		return;
	cursor->ahead_of = cursor->at;
	if (next < 0 || next >= cursor->npages)
		return;
	cmp = cb_key_compare_bound(kd, end,
							   cb_run_entry(kd->rel, cursor,
											forward ? cursor->nentries - 1 : 0,
											&tuple));
	if (forward ? cmp > 0 : cmp <= 0)
		return;
	cb_run_prefetch_page(kd->rel, cursor->pages[next]);
	CB_TEST_POINT("run-read-next");
}
