/*-------------------------------------------------------------------------
 *
 * cb_range_merge.c
 *	  Merging a range's runs into the tree, and giving up their pages.
 *
 * The runs stay listed until the records of all leaves are written (I1); an
 * error, or a crash, before that leaves them as they are, and what reached the
 * tree is found there the next time (I5).  Their pages are given up later,
 * when nobody can be reading them.
 *
 * They are given up when no snapshot of the table's rows is left from before
 * (A11_RUNTABLE): readers of the index are in its database, or on a standby
 * with feedback, or they decode WAL, which reads user catalog tables only.
 * The horizon takes the table's relation, if the lock is free (B1), which
 * keeps user_catalog_table as it is; else the cluster's horizon serves, which
 * is never later.  A transaction that made or moved the table has an xid older
 * than any safexid that it reads.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "base/cb_waiter.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "range/cb_range.h"
#include "rel/cb_alloc.h"
#include "rel/cb_ring.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* ---------- looking at a range ---------- */

/* A bound of the range; NULL for minus infinity. */
static IndexTuple
cb_range_copy_bound(Relation rel, IndexTuple bound)
{
	return BTreeTupleGetNAtts(bound, rel) > 0 ? CopyIndexTuple(bound) : NULL;
}

/*
 * Takes down a locked range page, but lsn and blkno.  The bounds are copies,
 * palloc'd.
 */
void
cb_range_read(Relation rel, Page page, CbRangeState *state)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	memset(state, 0, offsetof(CbRangeState, runs));
	state->nentries = 0;
	state->nretired = 0;
	state->low = cb_range_copy_bound(rel, CbRangeGetLow(page));
	if (!CbPageIsRightmost(page))
		state->high = CopyIndexTuple(CbPageGetHighKey(page));
	state->next = CbPageGetOpaque(page)->next;
	state->has_room = cb_range_page_has_room(page);
	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		CbRunItem  *item = CbRangeGetRun(page, off);

		if (!CbRunIsLive(item))
		{
			state->nretired++;
			continue;
		}
		Assert(state->nruns < CB_RANGE_MAX_RUNS);
		state->runs[state->nruns++] = *item;
		state->nentries += item->nentries;
	}
}

/*
 * The lock that whoever retires runs of a range or frees their pages holds.
 * It is one of the lock manager's, so those who wait are seen by the deadlock
 * detector, and it goes with the transaction at the latest.  False: it is not
 * free, and not to wait.  No LWLock is held.
 */
bool
cb_range_lock(Relation rel, BlockNumber range, bool wait)
{
	if (!wait)
		return ConditionalLockPage(rel, range, ExclusiveLock);
	LockPage(rel, range, ExclusiveLock);
	return true;
}

/* Gives that lock back. */
void
cb_range_unlock(Relation rel, BlockNumber range)
{
	UnlockPage(rel, range, ExclusiveLock);
}

/* ---------- merging ---------- */

/* entries of runs, collected */
typedef struct CbRangeMerge
{
	const CbKeyDesc *kd;
	CbArena		arena;
	int			n;
	int			allocated;
	CbSortEntry *entries;		/* pos: which run, from 1 on, and its ordinal
								 * there; 0: of no run */
	CbRangeState state;
	int			first[CB_RANGE_MAX_RUNS + 1];	/* entry of each run */
	XLogRecPtr	lsns[CB_RANGE_MAX_RUNS];
	CbRunCursor cursor;
} CbRangeMerge;

#define CbRangeMergePos(run, ordinal) (((CbPos) (run) + 1) << 32 | (ordinal))

/*
 * Adds an entry, which must stay: it is not copied.  More entries than the
 * range page says are an error.
 */
static void
cb_range_add(CbRangeMerge *merge, IndexTuple itup)
{
	if (merge->n == merge->allocated)
		cb_report_corrupt(merge->kd->rel, merge->state.blkno,
						  "Its runs have more entries than it says.");
	cb_key_fill_sort_entry(merge->kd, &merge->entries[merge->n], itup);
	merge->n++;
}

/* Adds the entries of the data page that the cursor is at. */
static void
cb_range_add_page(CbRangeMerge *merge)
{
	CbRunCursor *cursor = &merge->cursor;
	IndexTuple *items;

	if (CbPageIsPacked((Page) cursor->copy.data))
	{
		items = palloc(sizeof(IndexTuple) * cursor->nentries);
		if (!cb_leaf_read_all(&cursor->leaf, &merge->arena, items))
			cb_leaf_report_damaged(merge->kd->rel, cursor->pages[cursor->at]);
		for (int i = 0; i < cursor->nentries; i++)
			cb_range_add(merge, items[i]);
		pfree(items);
		return;
	}
	for (int i = 0; i < cursor->nentries; i++)
	{
		IndexTuple	itup = cb_run_entry(merge->kd->rel, cursor, i, NULL);
		IndexTuple	copy = cb_arena_alloc(&merge->arena, IndexTupleSize(itup));

		memcpy(copy, itup, IndexTupleSize(itup));
		cb_range_add(merge, copy);
	}
}

static void
cb_range_add_run(CbRangeMerge *merge, int run)
{
	Relation	rel = merge->kd->rel;
	CbBound		bound = {.kind = CB_BOUND_MIN};

	merge->first[run] = merge->n;
	cb_run_open(&merge->cursor, &merge->state.runs[run], NULL);
	(void) cb_run_seek(merge->kd, &merge->cursor, &bound, ForwardScanDirection);
	do
	{
		if (merge->cursor.at + 1 < merge->cursor.npages)
			cb_sound_prefetch(rel, merge->cursor.pages[merge->cursor.at + 1]);
		cb_range_add_page(merge);
		CHECK_FOR_INTERRUPTS();
	} while (cb_run_turn(rel, &merge->cursor, ForwardScanDirection));
	merge->lsns[run] = merge->cursor.lsn;
	merge->first[run + 1] = merge->n;
	for (int i = merge->first[run]; i < merge->n; i++)
		merge->entries[i].pos = CbRangeMergePos(run, i - merge->first[run]);
}

/* ---------- giving way ---------- */

/* The entry that the place names, if it is one of these runs'; else NULL. */
static IndexTuple
cb_range_place_entry(const CbRangeMerge *merge, const CbRangePlace *place)
{
	if (place->lsn == 0 || place->range != merge->state.blkno)
		return NULL;
	for (int run = 0; run < merge->state.nruns; run++)
	{
		int			at = merge->first[run] + place->ordinal;

		if (merge->state.runs[run].root == place->root &&
			merge->lsns[run] <= place->lsn && at < merge->first[run + 1])
			return merge->entries[at].itup;
	}
	return NULL;
}

/* Leaves out what the runs have that was applied up to the place. */
static void
cb_range_go_on(CbRangeMerge *merge, const CbRangePlace *place)
{
	IndexTuple	upto = cb_range_place_entry(merge, place);
	int			n = 0;

	if (upto == NULL)
		return;
	for (int run = 0; run < merge->state.nruns; run++)
	{
		CbSortEntry *entries = merge->entries + merge->first[run];
		int			count = merge->first[run + 1] - merge->first[run];

		if (merge->lsns[run] <= place->lsn)
			count = cb_key_keep_right(merge->kd, entries, count, upto);
		memmove(merge->entries + n, entries, count * sizeof(CbSortEntry));
		n += count;
	}
	merge->n = n;
}

/* Takes down that the first so many of the sorted entries are in the tree. */
static void
cb_range_note_place(const CbRangeMerge *merge, int done, CbRangePlace *place)
{
	XLogRecPtr	latest = 0;
	CbPos		pos = 0;

	for (int run = 0; run < merge->state.nruns; run++)
		latest = Max(latest, merge->lsns[run]);
	while (done > 0 && pos == 0)
		pos = merge->entries[--done].pos;
	if (pos == 0)
		return;					/* none of a run's: it stays */
	place->lsn = latest;
	place->range = merge->state.blkno;
	place->root = merge->state.runs[(pos >> 32) - 1].root;
	place->ordinal = (uint32) pos;
}

/* How many of the n sorted entries are left of this one. */
static int
cb_range_count_left(const CbKeyDesc *kd, const CbSortEntry *entries, int n,
					IndexTuple itup)
{
	int			count = 0;

	while (count < n && cb_key_compare(kd, entries[count].itup, itup) < 0)
		count++;
	return count;
}

/*
 * Takes down a range page, but its LSN; no lock is held, on entry or on
 * return.  The bounds are copies, palloc'd.
 */
void
cb_range_look(Relation rel, BlockNumber blkno, CbRangeState *state)
{
	Buffer		buf = cb_range_read_page(rel, blkno, BUFFER_LOCK_SHARE, NULL);

	cb_range_read(rel, BufferGetPage(buf), state);
	state->blkno = blkno;
	UnlockReleaseBuffer(buf);
}

/* The offsets of these runs' items; the page is locked. */
static int
cb_range_find_items(Page page, const CbRangeState *state, OffsetNumber *offsets)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			n = 0;

	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		CbRunItem  *item = CbRangeGetRun(page, off);

		for (int i = 0; i < state->nruns && CbRunIsLive(item); i++)
		{
			if (state->runs[i].root == item->root)
				offsets[n++] = off;
		}
	}
	return n;
}

/*
 * Retires the runs, as one atomic action.  safexid is read under the lock:
 * who has copied their items has an older snapshot.
 */
static void
cb_range_retire(Relation rel, const CbRangeState *state)
{
	Buffer		buf = cb_range_read_page(rel, state->blkno, BUFFER_LOCK_EXCLUSIVE, NULL);
	OffsetNumber offsets[CB_RANGE_MAX_RUNS];
	xl_cb_retire xlrec;

	xlrec.nitems = cb_range_find_items(BufferGetPage(buf), state, offsets);
	xlrec.safexid = ReadNextFullTransactionId();
	CB_TEST_POINT("retire-before");
	START_CRIT_SECTION();
	cb_range_page_retire(BufferGetPage(buf), offsets, xlrec.nitems,
						 xlrec.safexid);
	MarkBufferDirty(buf);
	if (RelationNeedsWAL(rel))
	{
		XLogRecPtr	lsn;

		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfCbRetire);
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
		XLogRegisterBufData(0, (char *) offsets,
							xlrec.nitems * sizeof(OffsetNumber));
		lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_RETIRE);
		PageSetLSN(BufferGetPage(buf), lsn);
	}
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buf);
	CB_TEST_POINT("retire-after");
}

/* ---------- all of it ---------- */

/*
 * Applies the range's runs as they are now, but for what was applied up to the
 * place, and n more entries, sorted, to the tree, and retires the runs.  If it
 * gave way, the runs stay as they are, and *place is set, if it got beyond an
 * entry of theirs.  Returns how many of the n were applied: the first ones,
 * all unless it gave way.
 *
 * The range's lock and RowExclusiveLock on the index are held, and no LWLock.
 * Comparisons run.  An error leaves the runs as they are, and some entries in
 * the tree, where the next merge finds them (I5).  The entries are the
 * caller's; what is allocated is freed.  stats: added to.  Not in recovery.
 */
int
cb_range_merge(const CbKeyDesc *kd, BlockNumber range, CbRangePlace *place,
			   const CbSortEntry *entries, int n, CbApplyStats *stats)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch range",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	CbRangeMerge *merge = palloc0(sizeof(CbRangeMerge));
	CbRangeState *state = &merge->state;
	int			done;

	cb_range_look(kd->rel, range, state);
	merge->kd = kd;
	merge->allocated = state->nentries + n;
	merge->entries = MemoryContextAllocHuge(cxt, sizeof(CbSortEntry) *
											(merge->allocated + 1));
	cb_arena_init(&merge->arena, cxt);
	for (int i = 0; i < state->nruns; i++)
		cb_range_add_run(merge, i);
	cb_range_go_on(merge, place);
	if (n > 0)
		memcpy(merge->entries + merge->n, entries, n * sizeof(CbSortEntry));
	merge->n += n;
	CB_TEST_POINT("merge-read");
	if (state->nruns > 0)
		cb_key_sort(kd, merge->entries, merge->n);
	done = cb_tree_apply(kd, merge->entries, merge->n, stats);
	CB_TEST_POINT("merge-applied");
	if (done < merge->n)
	{
		n = cb_range_count_left(kd, entries, n, merge->entries[done].itup);
		cb_range_note_place(merge, done, place);
	}
	else if (state->nruns > 0)
		cb_range_retire(kd->rel, state);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	return n;
}

/*
 * Redo of XLOG_CB_RETIRE.  The runs' pages stay as they are: a standby's scans
 * read them until XLOG_CB_RUN_FREE.
 */
void
cb_redo_retire(XLogReaderState *record)
{
	xl_cb_retire xlrec;
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_RANGE, &buf);

	memcpy(&xlrec, XLogRecGetData(record), SizeOfCbRetire);
	if (page != NULL)
	{
		OffsetNumber offsets[CB_RANGE_MAX_RUNS];

		memcpy(offsets, XLogRecGetBlockData(record, 0, NULL),
			   xlrec.nitems * sizeof(OffsetNumber));
		for (int i = 0; i < xlrec.nitems; i++)
			cb_redo_require(record, 0, offsets[i] >= CbRangeFirstRun(page) &&
							offsets[i] <= PageGetMaxOffsetNumber(page));
		cb_range_page_retire(page, offsets, xlrec.nitems, xlrec.safexid);
	}
	cb_redo_end(record, page, buf);
}

/* ---------- freeing ---------- */

/*
 * Can nobody be reading the pages of a run that was retired then?  heap: the
 * table, whose horizon it is; NULL: that of all databases and slots serves.
 */
static bool
cb_range_is_past(Relation heap, FullTransactionId safexid)
{
	return GlobalVisCheckRemovableFullXid(heap, safexid);
}

/*
 * A retired run of the page whose pages may be freed, or InvalidOffsetNumber.
 */
static OffsetNumber
cb_range_find_past(Relation heap, Page page)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		CbRunItem  *item = CbRangeGetRun(page, off);

		if (!CbRunIsLive(item) && cb_range_is_past(heap, item->safexid))
			return off;
	}
	return InvalidOffsetNumber;
}

/* A page of a run becomes a free one: no link to it is left. */
static void
cb_run_free_page(Page page)
{
	cb_page_init_deleted(page, 0, InvalidBlockNumber, InvalidFullTransactionId);
}

/* Within the critical section; all pages are locked exclusively. */
static void
cb_run_log_free(Buffer range, const xl_cb_run_free *xlrec, Buffer *bufs)
{
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData((char *) unconstify(xl_cb_run_free *, xlrec), SizeOfCbRunFree);
	XLogRegisterBuffer(0, range, REGBUF_STANDARD);
	for (int i = 0; i < xlrec->npages; i++)
		XLogRegisterBuffer(1 + i, bufs[i], REGBUF_WILL_INIT);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_RUN_FREE);
	PageSetLSN(BufferGetPage(range), lsn);
	for (int i = 0; i < xlrec->npages; i++)
		PageSetLSN(BufferGetPage(bufs[i]), lsn);
}

/*
 * Frees the pages of one run, which are locked, and drops its item, as one
 * atomic action.  The range page is locked exclusively.
 */
static void
cb_run_free(Relation rel, Buffer range, OffsetNumber off, Buffer *bufs)
{
	CbRunItem	item = *CbRangeGetRun(BufferGetPage(range), off);
	xl_cb_run_free xlrec = {.offset = off,.npages = item.npages};

	if (RelationNeedsWAL(rel))
		XLogEnsureRecordSpace(CB_RUN_MAX_PAGES, 2);
	CB_TEST_POINT("run-free-before");
	START_CRIT_SECTION();
	for (int i = 0; i < item.npages; i++)
	{
		cb_run_free_page(BufferGetPage(bufs[i]));
		MarkBufferDirty(bufs[i]);
	}
	PageIndexTupleDelete(BufferGetPage(range), off);
	MarkBufferDirty(range);
	if (RelationNeedsWAL(rel))
		cb_run_log_free(range, &xlrec, bufs);
	END_CRIT_SECTION();
	CB_TEST_POINT("run-free-after");
}

/*
 * The offset of a run's item: the page may have got a high key meanwhile.  Who
 * has the range's lock is the only one who takes items away.
 */
static OffsetNumber
cb_range_find_run(Relation rel, Page page, BlockNumber root)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		if (CbRangeGetRun(page, off)->root == root)
			return off;
	}
	elog(ERROR, "cache_batch: a range page of index \"%s\" has lost a run",
		 RelationGetRelationName(rel));
}

/*
 * Frees one retired run of the range, if there is one that can be.  The
 * range's lock is held, so the run stays listed while its pages are locked,
 * before the range page.  No page lock is held, on entry or on return.
 */
static bool
cb_range_free_one(Relation rel, Relation heap, BlockNumber blkno)
{
	Buffer		range = cb_range_read_page(rel, blkno, BUFFER_LOCK_SHARE, NULL);
	BlockNumber pages[CB_RUN_MAX_PAGES];
	Buffer		bufs[CB_RUN_MAX_PAGES];
	OffsetNumber off;
	CbRunItem	item = {0};

	off = cb_range_find_past(heap, BufferGetPage(range));
	if (off != InvalidOffsetNumber)
		item = *CbRangeGetRun(BufferGetPage(range), off);
	LockBuffer(range, BUFFER_LOCK_UNLOCK);
	if (off == InvalidOffsetNumber)
	{
		ReleaseBuffer(range);
		return false;
	}
	CB_TEST_POINT("run-free-found");
	(void) cb_run_list_pages(rel, &item, pages);
	for (int i = 0; i < item.npages; i++)
	{
		bufs[i] = cb_ring_read(rel, pages[i]);
		cb_sound_lock(rel, bufs[i], BUFFER_LOCK_EXCLUSIVE);
		cb_run_check_page(rel, bufs[i]);
	}

	LockBuffer(range, BUFFER_LOCK_EXCLUSIVE);
	off = cb_range_find_run(rel, BufferGetPage(range), item.root);
	cb_run_free(rel, range, off, bufs);
	UnlockReleaseBuffer(range);
	for (int i = 0; i < item.npages; i++)
		UnlockReleaseBuffer(bufs[i]);
	cb_rel_free_pages(rel, pages, item.npages, false);
	return true;
}

/*
 * Frees what runs have given up, if nobody can be reading it, each run as one
 * atomic action; ends early if it gives way.  The range's lock is held, and no
 * LWLock.  Damage raises an error, before the run concerned is changed; no
 * comparison runs.  Not in recovery.
 */
void
cb_range_free_retired(Relation rel, BlockNumber range)
{
	Relation	heap = cb_tree_open_table(rel);

	while (!cb_waiter_is_there() && cb_range_free_one(rel, heap, range))
		CHECK_FOR_INTERRUPTS();
	cb_tree_close_table(heap);
}

/*
 * Redo of XLOG_CB_RUN_FREE.  The range page first: who copies its items after
 * that finds no way to the run, and who did before, and comes to a page that
 * has changed, sees that the range page has changed (cb_run_is_lost).
 */
void
cb_redo_run_free(XLogReaderState *record)
{
	xl_cb_run_free xlrec;
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_RANGE, &buf);

	memcpy(&xlrec, XLogRecGetData(record), SizeOfCbRunFree);
	if (page != NULL)
	{
		cb_redo_require(record, 0, xlrec.offset >= CbRangeFirstRun(page) &&
						xlrec.offset <= PageGetMaxOffsetNumber(page));
		PageIndexTupleDelete(page, xlrec.offset);
	}
	cb_redo_end(record, page, buf);
	for (int i = 1; i <= xlrec.npages; i++)
	{
		page = cb_redo_begin_init(record, i, &buf);
		cb_run_free_page(page);
		cb_redo_end(record, page, buf);
	}
}
