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
	state->has_tiles = CbRangeHasTiles(page);
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

typedef struct CbRangeMerge
{
	CbRangeState state;
	CbRunEntries all;			/* pos: which run, from 1 on, and its ordinal
								 * there; 0: of no run */
	int			first[CB_RANGE_MAX_RUNS + 1];	/* entry of each run */
	XLogRecPtr	lsns[CB_RANGE_MAX_RUNS];
} CbRangeMerge;

#define CbRangeMergePos(run, ordinal) (((CbPos) (run) + 1) << 32 | (ordinal))

static void
cb_range_add_run(CbRangeMerge *merge, int run)
{
	CbRunEntries *all = &merge->all;

	merge->first[run] = all->n;
	cb_run_entries_add_run(all, &merge->state.runs[run]);
	merge->lsns[run] = all->cursor.lsn;
	merge->first[run + 1] = all->n;
	for (int i = merge->first[run]; i < all->n; i++)
		all->entries[i].pos = CbRangeMergePos(run, i - merge->first[run]);
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
			return merge->all.entries[at].itup;
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
		CbSortEntry *entries = merge->all.entries + merge->first[run];
		int			count = merge->first[run + 1] - merge->first[run];

		if (merge->lsns[run] <= place->lsn)
			count = cb_key_keep_right(merge->all.kd, entries, count, upto);
		memmove(merge->all.entries + n, entries, count * sizeof(CbSortEntry));
		n += count;
	}
	merge->all.n = n;
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
		pos = merge->all.entries[--done].pos;
	if (pos == 0)
		return;					/* none of a run's: it stays */
	place->lsn = latest;
	place->range = merge->state.blkno;
	place->root = merge->state.runs[(pos >> 32) - 1].root;
	place->ordinal = (uint32) pos;
}

/*
 * Takes down a range page, but its LSN; no lock is held, on entry or on
 * return.  The bounds are copies, palloc'd.
 */
void
cb_range_look(Relation rel, BlockNumber blkno, CbRangeState *state)
{
	Buffer		buf = cb_range_read_page(rel, blkno, CBP_RANGE, BUFFER_LOCK_SHARE, NULL);

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
	Buffer		buf = cb_range_read_page(rel, state->blkno, CBP_RANGE,
										 BUFFER_LOCK_EXCLUSIVE, NULL);
	OffsetNumber offsets[CB_RANGE_MAX_RUNS];
	xl_cb_retire xlrec = {0};

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
 * How many leaves the tiles have that the merge's entries go to; 0: they go to the
 * leaves, as they are enough for these.
 */
static int64
cb_range_tile_width(const CbRangeMerge *merge)
{
	const CbKeyDesc *kd = merge->all.kd;
	const CbRangeState *state = &merge->state;
	int64		many = (int64) merge->all.n * CB_TILE_PART / cb_spill_target;

	if (state->nruns == 0 || !RelationNeedsWAL(kd->rel))
		return 0;
#ifdef CB_TESTPOINTS
	if (cb_test_tiles > 0)
		return cb_test_tiles;
#endif
	return cb_tree_count_leaves(kd, state->low, state->high, many + 1) > many ?
		cb_tile_width(state) : 0;
}

/*
 * Brings the merge's entries, which are sorted, to tiles, or to the leaves.
 * Returns how many: fewer than all if it gave way.
 */
static int
cb_range_bring_down(CbRangeMerge *merge, bool may_tile, CbApplyStats *stats)
{
	const CbKeyDesc *kd = merge->all.kd;
	int64		width = may_tile ? cb_range_tile_width(merge) : 0;
	BlockNumber root;

	if (width == 0)
		return cb_tree_apply(kd, merge->all.entries, merge->all.n, stats);
	root = cb_tile_find_root(kd->rel);
	cb_range_note_tiles(kd->rel, merge->state.blkno);
	return cb_tile_apply(kd, root, merge->state.low, merge->all.entries,
						 merge->all.n, width, stats);
}

/*
 * Applies the range's runs as they are now, but for what was applied up to the
 * place, and n more entries, sorted, to the tree, or to tiles if may_tile and they
 * are few for the leaves, and retires the runs.  If it gave way, the runs stay as they are, and *place is set, if it got
 * beyond an entry of theirs.  Returns how many of the n were applied: the first
 * ones, all unless it gave way, or the range has been split and some lie in its
 * right part now, which may not say that it has tiles (A5_RANGETILES).
 *
 * The range's lock and RowExclusiveLock on the index are held, and no LWLock.
 * Comparisons run.  An error leaves the runs as they are, and some entries in
 * the tree, where the next merge finds them (I5).  The entries are the
 * caller's; what is allocated is freed, but for what kd gets.  stats: added to.
 * Not in recovery.
 */
int
cb_range_merge(const CbKeyDesc *kd, BlockNumber range, CbRangePlace *place,
			   const CbSortEntry *entries, int n, bool may_tile,
			   CbApplyStats *stats)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch range",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = CurrentMemoryContext;
	CbRangeMerge *merge;
	CbRangeState *state;
	CbRunEntries *all;
	int			done;

	(void) cb_key_prepare_hash(unconstify(CbKeyDesc *, kd));
	MemoryContextSwitchTo(cxt);
	merge = palloc0(sizeof(CbRangeMerge));
	state = &merge->state;
	all = &merge->all;
	cb_range_look(kd->rel, range, state);
	if (state->high != NULL)
		n = cb_run_entries_left_of(kd, entries, n, state->high);
	cb_run_entries_init(all, kd, range, state->nentries + n);
	for (int i = 0; i < state->nruns; i++)
		cb_range_add_run(merge, i);
	cb_range_go_on(merge, place);
	cb_run_entries_add(all, entries, n);
	CB_TEST_POINT("merge-read");
	if (state->nruns > 0)
		cb_key_sort(kd, all->entries, all->n);
	done = cb_range_bring_down(merge, may_tile, stats);
	CB_TEST_POINT("merge-applied");
	if (done < all->n)
	{
		n = cb_run_entries_left_of(kd, entries, n, all->entries[done].itup);
		cb_range_note_place(merge, done, place);
	}
	else if (state->nruns > 0)
		cb_range_retire(kd->rel, state);
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	return n;
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

/* Locks all pages of a run, which is listed, exclusively. */
static void
cb_run_lock_pages(Relation rel, const CbRunItem *item, BlockNumber *pages,
				  Buffer *bufs)
{
	(void) cb_run_list_pages(rel, item, pages);
	for (int i = 0; i < item->npages; i++)
	{
		bufs[i] = cb_ring_read(rel, pages[i]);
		cb_sound_lock(rel, bufs[i], BUFFER_LOCK_EXCLUSIVE);
		cb_run_check_page(rel, bufs[i]);
	}
}

/* Unlocks them, now that they are free, and has them found. */
static void
cb_run_release_pages(Relation rel, BlockNumber *pages, Buffer *bufs, int n)
{
	for (int i = 0; i < n; i++)
		UnlockReleaseBuffer(bufs[i]);
	cb_rel_free_pages(rel, pages, n, false);
}

/* Within the critical section; all pages are locked exclusively. */
static XLogRecPtr
cb_run_log_free(Buffer listed, const xl_cb_run_free *xlrec, Buffer *bufs)
{
	XLogBeginInsert();
	XLogRegisterData((char *) unconstify(xl_cb_run_free *, xlrec), SizeOfCbRunFree);
	XLogRegisterBuffer(0, listed, REGBUF_STANDARD);
	for (int i = 0; i < xlrec->npages; i++)
		XLogRegisterBuffer(1 + i, bufs[i], REGBUF_WILL_INIT);
	return XLogInsert(CB_RMGR_ID, XLOG_CB_RUN_FREE);
}

/* The page lists the run no more. */
static void
cb_run_drop_item(Page page, const xl_cb_run_free *xlrec)
{
	if (xlrec->is_tile)
		cb_tile_page_give_up(page, xlrec->offset);
	else
		PageIndexTupleDelete(page, xlrec->offset);
}

/*
 * Frees the pages of one run, which are locked, and drops its item, as one
 * atomic action.  The page that lists it is locked exclusively.
 *
 * A file that is new in this transaction need not be logged.  A tile's readers go
 * by LSNs all the same: what the file has was logged before, so its pages have
 * lower ones than there are now.
 */
static void
cb_run_free(Relation rel, Buffer listed, const xl_cb_run_free *xlrec,
			Buffer *bufs)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	if (RelationNeedsWAL(rel))
		XLogEnsureRecordSpace(CB_RUN_MAX_PAGES, 2);
	CB_TEST_POINT("run-free-before");
	START_CRIT_SECTION();
	for (int i = 0; i < xlrec->npages; i++)
	{
		cb_run_free_page(BufferGetPage(bufs[i]));
		MarkBufferDirty(bufs[i]);
	}
	cb_run_drop_item(BufferGetPage(listed), xlrec);
	MarkBufferDirty(listed);
	if (RelationNeedsWAL(rel))
		lsn = cb_run_log_free(listed, xlrec, bufs);
	else if (xlrec->is_tile)
		lsn = GetXLogInsertRecPtr();
	if (lsn != InvalidXLogRecPtr)
	{
		PageSetLSN(BufferGetPage(listed), lsn);
		for (int i = 0; i < xlrec->npages; i++)
			PageSetLSN(BufferGetPage(bufs[i]), lsn);
	}
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
	Buffer		range = cb_range_read_page(rel, blkno, CBP_RANGE, BUFFER_LOCK_SHARE,
										   NULL);
	BlockNumber pages[CB_RUN_MAX_PAGES];
	Buffer		bufs[CB_RUN_MAX_PAGES];
	OffsetNumber off;
	CbRunItem	item = {0};
	xl_cb_run_free xlrec = {0};

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
	cb_run_lock_pages(rel, &item, pages, bufs);

	LockBuffer(range, BUFFER_LOCK_EXCLUSIVE);
	xlrec.npages = item.npages;
	xlrec.offset = cb_range_find_run(rel, BufferGetPage(range), item.root);
	cb_run_free(rel, range, &xlrec, bufs);
	UnlockReleaseBuffer(range);
	cb_run_release_pages(rel, pages, bufs, item.npages);
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

/* ---------- a tile's run ---------- */

/*
 * Raises an error if the tile is not as it was read, on its page, which is
 * locked.  It is, as the tile page's lock is held since then; but a comparison can
 * have run a flush in this same session.
 */
void
cb_tile_check_page(Relation rel, const CbTile *tile, Page page)
{
	if (tile->off < CbPageFirstItem(page) || tile->off > PageGetMaxOffsetNumber(page) ||
		(tile->low != NULL &&
		 memcmp(CbPageGetTuple(page, tile->off), tile->low, IndexTupleSize(tile->low)) != 0) ||
		memcmp(CbTileGetRuns(page, tile->off), &tile->runs, sizeof(CbTileRuns)) != 0)
		elog(ERROR, "cache_batch: a tile page of index \"%s\" has changed unexpectedly",
			 RelationGetRelationName(rel));
}

/*
 * Gives up the pages of a tile's old run, if it has one, as one atomic action.  Any
 * scan may be reading it: it sees that the pages have changed.
 *
 * The tile page's lock is held since the tile was read, and no LWLock, on entry or
 * on return.  Damage raises an error before anything is changed.  Not in recovery.
 */
void
cb_tile_free_old(Relation rel, CbTile *tile)
{
	xl_cb_run_free xlrec = {
		.offset = tile->off,
		.npages = tile->runs.old.npages,
		.is_tile = true
	};
	BlockNumber pages[CB_RUN_MAX_PAGES];
	Buffer		bufs[CB_RUN_MAX_PAGES];
	Buffer		buf;

	if (xlrec.npages == 0)
		return;
	cb_run_lock_pages(rel, &tile->runs.old, pages, bufs);
	buf = cb_range_read_page(rel, tile->blkno, CBP_TILES, BUFFER_LOCK_EXCLUSIVE,
							 NULL);
	cb_tile_check_page(rel, tile, BufferGetPage(buf));
	cb_run_free(rel, buf, &xlrec, bufs);
	memset(&tile->runs.old, 0, sizeof(CbRunItem));
	UnlockReleaseBuffer(buf);
	cb_run_release_pages(rel, pages, bufs, xlrec.npages);
}

/* Within the critical section; the tile page is locked exclusively. */
static void
cb_tile_log_retire(Buffer buf, OffsetNumber off)
{
	xl_cb_retire xlrec = {.tile = off};
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbRetire);
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_RETIRE);
	PageSetLSN(BufferGetPage(buf), lsn);
}

/*
 * The entries of a tile's run are in the leaves: it has none from now on, and its
 * pages are given up, which is another action.  Locks and errors as
 * cb_tile_free_old().
 */
void
cb_tile_retire(Relation rel, CbTile *tile)
{
	CbRunItem	none = {0};
	Buffer		buf;

	cb_tile_free_old(rel, tile);
	buf = cb_range_read_page(rel, tile->blkno, CBP_TILES, BUFFER_LOCK_EXCLUSIVE,
							 NULL);
	cb_tile_check_page(rel, tile, BufferGetPage(buf));
	CB_TEST_POINT("tile-retire-before");
	START_CRIT_SECTION();
	cb_tile_page_set(BufferGetPage(buf), tile->off, &none);
	MarkBufferDirty(buf);
	if (RelationNeedsWAL(rel))
		cb_tile_log_retire(buf, tile->off);
	END_CRIT_SECTION();
	CB_TEST_POINT("tile-retire-after");
	tile->runs = *CbTileGetRuns(BufferGetPage(buf), tile->off);
	UnlockReleaseBuffer(buf);
	cb_tile_free_old(rel, tile);
}

/* ---------- redo ---------- */

/* The range's runs at these offsets are read no more by those who come. */
static void
cb_redo_retire_runs(XLogReaderState *record, const xl_cb_retire *xlrec)
{
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_RANGE, &buf);

	if (page != NULL)
	{
		OffsetNumber offsets[CB_RANGE_MAX_RUNS];

		memcpy(offsets, XLogRecGetBlockData(record, 0, NULL),
			   xlrec->nitems * sizeof(OffsetNumber));
		for (int i = 0; i < xlrec->nitems; i++)
			cb_redo_require(record, 0, offsets[i] >= CbRangeFirstRun(page) &&
							offsets[i] <= PageGetMaxOffsetNumber(page));
		cb_range_page_retire(page, offsets, xlrec->nitems, xlrec->safexid);
	}
	cb_redo_end(record, page, buf);
}

/* The tile's run is read no more by those who come. */
static void
cb_redo_retire_tile(XLogReaderState *record, OffsetNumber tile)
{
	CbRunItem	none = {0};
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_TILES, &buf);

	if (page != NULL)
	{
		cb_redo_require(record, 0, tile >= CbPageFirstItem(page) &&
						tile <= PageGetMaxOffsetNumber(page));
		cb_tile_page_set(page, tile, &none);
	}
	cb_redo_end(record, page, buf);
}

/*
 * Redo of XLOG_CB_RETIRE.  The runs' pages stay as they are: a standby's scans
 * read them until XLOG_CB_RUN_FREE.
 */
void
cb_redo_retire(XLogReaderState *record)
{
	xl_cb_retire xlrec;

	cb_redo_read_data(record, &xlrec, SizeOfCbRetire);
	if (xlrec.tile == InvalidOffsetNumber)
		cb_redo_retire_runs(record, &xlrec);
	else
		cb_redo_retire_tile(record, xlrec.tile);
}

/*
 * Redo of XLOG_CB_RUN_FREE.  The page that lists the run first: who copies its
 * items after that finds no way to the run, and who did before, and comes to a page
 * that has changed, sees that this page has changed, too (cb_run_is_lost).
 */
void
cb_redo_run_free(XLogReaderState *record)
{
	xl_cb_run_free xlrec;
	Buffer		buf;
	Page		page;

	cb_redo_read_data(record, &xlrec, SizeOfCbRunFree);
	page = cb_redo_begin(record, 0, xlrec.is_tile ? CBP_TILES : CBP_RANGE, &buf);
	if (page != NULL)
	{
		cb_redo_require(record, 0, xlrec.offset >= (xlrec.is_tile ?
													CbPageFirstItem(page) : CbRangeFirstRun(page)) &&
						xlrec.offset <= PageGetMaxOffsetNumber(page));
		cb_run_drop_item(page, &xlrec);
	}
	cb_redo_end(record, page, buf);
	for (int i = 1; i <= xlrec.npages; i++)
	{
		page = cb_redo_begin_init(record, i, &buf);
		cb_run_free_page(page);
		cb_redo_end(record, page, buf);
	}
}
