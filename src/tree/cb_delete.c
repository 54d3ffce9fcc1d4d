/*-------------------------------------------------------------------------
 *
 * cb_delete.c
 *	  VACUUM's pass over the leaves.
 *
 * Leaves are visited in block order.  Each is locked for cleanup, whether it
 * has anything to delete or not: a scan that holds a pin on a leaf relies on
 * none of the leaf's entries being removed, and so on none of their TIDs being
 * reused, before it lets go (I8).
 *
 * A split may move entries from a leaf not yet visited to a block already
 * passed.  Such pages carry this VACUUM's cycle id, and the pass follows
 * their right link at once (I4, A11).  The cycle ids are the server's, as
 * nbtree uses them.
 *
 * Nothing is held while waiting for a cleanup lock (B5).
 *
 * Entries that cannot be dead are not looked at: VACUUM's dead TIDs are known,
 * and a packed leaf says of its entries, some dozens at a time, between which
 * blocks of the table their TIDs lie.
 *
 * A leaf that is left without entries is taken out of the tree at once, if it
 * can be (cb_unlink.c).  That moves no entries, so the pass misses none: who
 * puts entries into the range from now on, puts new ones (I4).
 *
 * Why skipping is right (I4_SKIP): a packed part says of each 64 entries
 * between which heap blocks their TIDs lie.  A TID outside of that range cannot
 * come out of these entries, whatever their bytes are, and one that is not in
 * VACUUM's list is not dead.  Other callers have no list, as CREATE INDEX
 * CONCURRENTLY, which asks for all entries: none is skipped (I4_SKIPCALLER).
 * Nothing is concluded from the table's state.  The leaf is locked for cleanup
 * all the same, its cycle id is looked at, and plain entries are looked at one
 * by one.  Before anything is removed the packed part is checked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "base/cb_progress.h"
#include "commands/progress.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "page/cb_leaf.h"
#include "page/cb_wal.h"
#include "pgstat.h"
#include "rel/cb_alloc.h"
#include "storage/bufmgr.h"
#include "storage/indexfsm.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tree/cb_tree.h"
#include "utils/backend_progress.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 170000
#include "access/tidstore.h"
#endif

typedef struct CbDeleteState
{
	IndexVacuumInfo *info;
	Relation	rel;
	IndexBulkDeleteResult *stats;
	IndexBulkDeleteCallback callback;
	void	   *callback_state;
	BlockNumber *dead;			/* blocks of the table with dead rows, in
								 * order; NULL: not known */
	int64		ndead;
	int64		dead_size;		/* room in dead */
	BlockNumber first_dead;		/* all of them are between these */
	BlockNumber last_dead;
	int64		skipped;		/* packed parts of leaves that were not looked
								 * at */
	BTCycleId	cycleid;
	CbUnlinker *unlinker;
	CbPos		tail;			/* journal tail when the pass began */
	BlockNumber scan_blkno;		/* how far the pass has come */
} CbDeleteState;

/*
 * Registers the lists as the data of block 0 of a record, for a caller in its
 * critical section.  They have to stay where they are until XLogInsert().
 */
void
cb_tree_register_deletable(const CbDeletable *dead)
{
	XLogRegisterBufData(0, (char *) dead->ordinals,
						dead->nordinals * sizeof(uint16));
	XLogRegisterBufData(0, (char *) dead->offsets,
						dead->noffsets * sizeof(OffsetNumber));
}

/*
 * Does to the page of block 0, which is exclusively locked, what
 * cb_tree_register_deletable() has in the record.  Marking the page is the
 * caller's part.
 */
void
cb_tree_redo_deletable(XLogReaderState *record, Page page, int nordinals,
					   int noffsets)
{
	char	   *data = XLogRecGetBlockData(record, 0, NULL);
	CbDeletable dead;
	CbLeaf		leaf;

	/* the record's data is not aligned; one that removes nothing has none */
	if (data != NULL)
	{
		memcpy(dead.ordinals, data, nordinals * sizeof(uint16));
		memcpy(dead.offsets, data + nordinals * sizeof(uint16),
			   noffsets * sizeof(OffsetNumber));
	}
	cb_redo_require(record, 0, cb_leaf_open(&leaf, page, NULL));
	cb_redo_require(record, 0, nordinals == 0 ||
					(cb_leaf_check(&leaf) && dead.ordinals[nordinals - 1] < leaf.npacked));
	cb_redo_require(record, 0, noffsets == 0 ||
					(dead.offsets[0] >= CbPageFirstPlain(page) &&
					 dead.offsets[noffsets - 1] <= PageGetMaxOffsetNumber(page)));
	cb_leaf_delete(page, dead.ordinals, nordinals, dead.offsets, noffsets);
}

/*
 * Removes items, as one atomic action.  buf is locked for cleanup, before and
 * after; the leaf has been checked, so that this cannot fail.
 */
static void
cb_delete_items(Relation rel, Buffer buf, CbDeletable *dead)
{
	Page		page = BufferGetPage(buf);

	START_CRIT_SECTION();
	cb_leaf_delete(page, dead->ordinals, dead->nordinals, dead->offsets,
				   dead->noffsets);
	CbPageGetOpaque(page)->cycleid = 0;
	cb_rel_mark_dirty(buf);
	if (RelationNeedsWAL(rel))
	{
		xl_cb_vacuum_leaf xlrec;
		XLogRecPtr	lsn;

		xlrec.nitems = dead->noffsets;
		xlrec.nordinals = dead->nordinals;
		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfCbVacuumLeaf);
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
		cb_tree_register_deletable(dead);
		lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_VACUUM_LEAF);
		PageSetLSN(page, lsn);
	}
	END_CRIT_SECTION();
}

/*
 * Redo of XLOG_CB_VACUUM_LEAF.  No scan of a standby relies on its pin, so the
 * exclusive lock is enough (I8).
 */
void
cb_redo_vacuum_leaf(XLogReaderState *record)
{
	xl_cb_vacuum_leaf *xlrec = (xl_cb_vacuum_leaf *) XLogRecGetData(record);
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_LEAF, &buf);

	if (page != NULL)
	{
		cb_tree_redo_deletable(record, page, xlrec->nordinals, xlrec->nitems);
		CbPageGetOpaque(page)->cycleid = 0;
	}
	cb_redo_end(record, page, buf);
}

/* ---------- what is dead ---------- */

/*
 * Is what the callback calls dead VACUUM's list for a heap?
 *
 * VACUUM of a heap hands its list of dead TIDs on to its callback.  Others do
 * not: CREATE INDEX CONCURRENTLY has a callback that has to be given every
 * TID.  VACUUM is known by its process flag, which is of this transaction
 * alone and which its parallel workers have too.
 */
static bool
cb_delete_has_list(const CbDeleteState *state)
{
	Relation	heap;
	bool		is_heap;

	if ((MyProc->statusFlags & PROC_IN_VACUUM) == 0)
		return false;
	heap = table_open(state->rel->rd_index->indrelid, NoLock);
	is_heap = heap->rd_tableam == GetHeapamTableAmRoutine();
	table_close(heap, NoLock);
	return is_heap;
}

/* Adds a block, not before the last one, to the list. */
static void
cb_delete_add_block(CbDeleteState *state, BlockNumber block)
{
	if (state->ndead > 0 && state->dead[state->ndead - 1] == block)
		return;
	if (state->ndead == state->dead_size)
	{
		state->dead_size *= 2;
		state->dead = repalloc_huge(state->dead, sizeof(BlockNumber) * state->dead_size);
	}
	state->dead[state->ndead++] = block;
}

/* Lists the blocks of VACUUM's list; of version 17 on that is a TidStore. */
static void
cb_delete_list_blocks(CbDeleteState *state)
{
#if PG_VERSION_NUM >= 170000
	TidStoreIter *iter = TidStoreBeginIterate(state->callback_state);
	TidStoreIterResult *result;

	while ((result = TidStoreIterateNext(iter)) != NULL)
		cb_delete_add_block(state, result->blkno);
	TidStoreEndIterate(iter);
#else
	const VacDeadItems *dead = state->callback_state;

	for (int i = 0; i < dead->num_items; i++)
		cb_delete_add_block(state, ItemPointerGetBlockNumber(&dead->items[i]));
#endif
}

/*
 * Finds out in which blocks of the table there are dead rows, if that is
 * known.  The list, smaller than VACUUM's, is palloc'd.
 */
static void
cb_delete_set_dead(CbDeleteState *state)
{
	state->dead = NULL;
	state->ndead = 0;
	state->first_dead = 0;
	state->last_dead = InvalidBlockNumber;
	if (!cb_delete_has_list(state))
		return;
	state->dead_size = 64;
	state->dead = palloc(sizeof(BlockNumber) * state->dead_size);
	cb_delete_list_blocks(state);
	if (state->ndead > 0)
	{
		state->first_dead = state->dead[0];
		state->last_dead = state->dead[state->ndead - 1];
	}
	else
		state->first_dead = InvalidBlockNumber; /* none at all */
}

/* Can a TID in these blocks of the table be dead? */
static bool
cb_delete_may_be_dead(const CbDeleteState *state, BlockNumber low,
					  BlockNumber high)
{
	int64		begin = 0;
	int64		end = state->ndead - 1;

	if (high < state->first_dead || low > state->last_dead)
		return false;
	if (state->dead == NULL)
		return true;

	/* the first one that is not below them: there is one */
	while (begin < end)
	{
		int64		mid = begin + (end - begin) / 2;

		if (state->dead[mid] < low)
			begin = mid + 1;
		else
			end = mid;
	}
	return state->dead[begin] <= high;
}

static inline bool
cb_delete_is_dead(CbDeleteState *state, ItemPointer tid)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);

	return block >= state->first_dead && block <= state->last_dead &&
		state->callback(tid, state->callback_state);
}

/* ---------- the leaves ---------- */

/*
 * Finds what is to go from a leaf's packed part, some dozens of entries at a
 * time; those that cannot be dead are not decoded.  An error if the packed
 * part is damaged:  it is checked as a whole before anything goes from it, as
 * removing cannot fail (U13).
 */
static void
cb_delete_find_packed(CbDeleteState *state, Buffer buf, const CbLeaf *leaf,
					  CbDeletable *dead)
{
	ItemPointerData tids[CB_PACK_BLOCK];
	bool		skipped = true;
	BlockNumber low;
	BlockNumber high;
	int			n;

	for (int i = 0; i < leaf->npacked; i += n)
	{
		n = cb_leaf_heap_range(leaf, i, &low, &high);
		if (n > 0 && !cb_delete_may_be_dead(state, low, high))
			continue;
		skipped = false;
		if (n == 0 || cb_leaf_read_tids(leaf, i, tids) != n)
			cb_leaf_report_damaged(state->rel, BufferGetBlockNumber(buf));
		for (int k = 0; k < n; k++)
		{
			if (cb_delete_is_dead(state, &tids[k]))
				dead->ordinals[dead->nordinals++] = i + k;
		}
	}
	if (dead->nordinals > 0 && !cb_leaf_check(leaf))
		cb_leaf_report_damaged(state->rel, BufferGetBlockNumber(buf));
	if (skipped && leaf->npacked > 0)
		state->skipped++;
}

/*
 * Finds what is to go from a leaf, which is locked for cleanup; returns how
 * many entries it has.  An error if it is damaged.  The callback is called.
 */
static int
cb_delete_find(CbDeleteState *state, Buffer buf, CbDeletable *dead)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber first = CbPageFirstPlain(page);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	CbLeaf		leaf;

	if (max > MaxIndexTuplesPerPage)
		cb_report_corrupt(state->rel, BufferGetBlockNumber(buf),
						  "It has %u items.", max);
	if (!cb_leaf_open(&leaf, page, NULL))
		cb_leaf_report_damaged(state->rel, BufferGetBlockNumber(buf));

	dead->nordinals = dead->noffsets = 0;
	cb_delete_find_packed(state, buf, &leaf, dead);
	for (OffsetNumber off = first; off <= max; off = OffsetNumberNext(off))
	{
		if (cb_delete_is_dead(state, &CbPageGetTuple(page, off)->t_tid))
			dead->offsets[dead->noffsets++] = off;
	}
	return leaf.npacked + max + 1 - first;
}

/*
 * Deals with one leaf, which is locked for cleanup, before and after.  Returns
 * the block to go back to, or InvalidBlockNumber.
 */
static BlockNumber
cb_delete_from_leaf(CbDeleteState *state, Buffer buf)
{
	CbPageOpaque opaque = CbPageGetOpaque(BufferGetPage(buf));
	BlockNumber back_to = InvalidBlockNumber;
	CbDeletable dead;
	int			nentries = cb_delete_find(state, buf, &dead);
	int			ndead = dead.nordinals + dead.noffsets;

	if (state->cycleid != 0 && opaque->cycleid == state->cycleid &&
		opaque->next != InvalidBlockNumber && opaque->next < state->scan_blkno)
		back_to = opaque->next;

	CB_TEST_POINT("vacuum-leaf");
	if (ndead > 0)
	{
		cb_page_check_items(state->rel, BufferGetBlockNumber(buf),
							BufferGetPage(buf));
		cb_delete_items(state->rel, buf, &dead);
		state->stats->tuples_removed += ndead;
	}
	else if (opaque->cycleid != 0 && opaque->cycleid == state->cycleid)
	{
		/* a hint only: saves later VACUUMs a false match */
		opaque->cycleid = 0;
		MarkBufferDirtyHint(buf, true);
	}

	/* a page that the pass went back to has been counted */
	if (BufferGetBlockNumber(buf) == state->scan_blkno)
		state->stats->num_index_tuples += nentries - ndead;
	return back_to;
}

/*
 * Reads a block, and locks its page, which is one of ours or all-zero; another
 * one is an error.  Shared, and with VACUUM's ring of buffers.  May sleep for
 * VACUUM's cost limit before, with nothing locked.
 */
static Buffer
cb_delete_read_block(IndexVacuumInfo *info, BlockNumber blkno)
{
	Buffer		buf;
	Page		page;

	vacuum_delay_point(false);
	buf = cb_sound_read(info->index, blkno, info->strategy);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buf);
	if (!PageIsNew(page))
		cb_page_check(info->index, blkno, page);
	return buf;
}

/*
 * Puts a page that is locked into the map, if it is free; false: it is not.
 * Counts it, as btree does: what is free or deleted, and how much of it is
 * free.  The page stays locked; whoever takes it from the map looks again,
 * under its lock (A13).
 */
static bool
cb_delete_map_page(Relation rel, Buffer buf, CbPos tail,
				   IndexBulkDeleteResult *stats)
{
	Page		page = BufferGetPage(buf);
	bool		is_free = cb_rel_page_is_free(page, tail);

	if (is_free || CbPageIsGone(page))
		stats->pages_deleted++;
	if (is_free)
	{
		RecordFreeIndexPage(rel, BufferGetBlockNumber(buf));
		stats->pages_free++;
	}
	return is_free;
}

/*
 * Deals with one block.  Returns the block to go back to, or
 * InvalidBlockNumber.  No lock is held before or after, and none while it
 * waits for the cleanup lock (B5); an empty leaf is unlinked when its lock and
 * pin are gone.
 */
static BlockNumber
cb_delete_from_block(CbDeleteState *state, BlockNumber blkno)
{
	Buffer		buf = cb_delete_read_block(state->info, blkno);
	Page		page = BufferGetPage(buf);
	BlockNumber back_to = InvalidBlockNumber;
	bool		mapped = false;
	bool		empty = false;

	/* a page that the pass went back to has been counted */
	if (blkno == state->scan_blkno)
		mapped = cb_delete_map_page(state->rel, buf, state->tail, state->stats);
	if (!mapped && !PageIsNew(page) && CbPageIsLeaf(page) && !CbPageIsGone(page))
	{
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		LockBufferForCleanup(buf);
		/* a leaf stays a leaf, whatever others did in between */
		back_to = cb_delete_from_leaf(state, buf);
		empty = cb_tree_leaf_is_empty(page);
	}
	UnlockReleaseBuffer(buf);
	if (empty)
		cb_tree_unlink(state->unlinker, blkno, state->scan_blkno);
	return back_to;
}

/*
 * How many blocks the index has now.  The lock for extension is taken for a
 * moment, as in nbtree: who has extended it before has locked the new page
 * since.
 */
static BlockNumber
cb_delete_count_blocks(Relation rel)
{
	BlockNumber nblocks;
	bool		need_lock = !RELATION_IS_LOCAL(rel);

	/* wait for those who have just extended it and not yet locked the page */
	if (need_lock)
		LockRelationForExtension(rel, ExclusiveLock);
	nblocks = RelationGetNumberOfBlocks(rel);
	if (need_lock)
		UnlockRelationForExtension(rel, ExclusiveLock);
	return nblocks;
}

/*
 * Visits all blocks, those as well that are added meanwhile.  The blocks are
 * counted anew at the end of each round, with no lock held.
 */
static void
cb_delete_pass(CbDeleteState *state)
{
	BlockNumber nblocks;
	BlockNumber blkno = CB_METAPAGE_BLKNO + 1;

	/* pages that splits add while we go on may hold moved entries */
	while ((nblocks = cb_delete_count_blocks(state->rel)) > blkno)
	{
		if (state->info->report_progress)
			pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL, nblocks);
		cb_progress_expect(nblocks - blkno);
		for (; blkno < nblocks; blkno++)
		{
			BlockNumber back_to = blkno;

			state->scan_blkno = blkno;
			while (back_to != InvalidBlockNumber)
				back_to = cb_delete_from_block(state, back_to);
			cb_progress_add(1);
			CB_TEST_POINT("vacuum-block");
			if (state->info->report_progress)
				pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, blkno);
		}
	}
	state->stats->num_pages = nblocks;
}

/*
 * All pages were looked at, and the free ones are in the map.  It does not
 * have the deleted ones that are not free yet; if they are many, as btree has
 * it, the next VACUUM looks again.
 */
static void
cb_delete_finish_map(Relation rel, const IndexBulkDeleteResult *stats)
{
	BlockNumber missing = stats->pages_deleted - stats->pages_free;

	IndexFreeSpaceMapVacuum(rel);
	cb_rel_note_map(rel, missing <= stats->num_pages / 20);
}

/*
 * Visits every leaf, and removes the entries whose TID the callback calls
 * dead; the callback is called with a leaf locked.  Empty leaves are taken out
 * of the tree, and free pages put into the map.  The journal was drained
 * before: no dead TID may come down from there any more (I4).
 *
 * stats: the caller's.  The counts of the index as it is are set anew, those
 * of what was removed go on from what is there.
 *
 * The caller holds a lock that keeps other VACUUMs away, and none on a page.
 * Waits for each leaf's cleanup lock with nothing else held.  Comparison
 * functions run only where a leaf leaves the tree, as that takes descents.  An
 * error, about a damaged page or in the callback, leaves what was done, and
 * this VACUUM's cycle id is given back.
 */
void
cb_tree_bulk_delete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
					IndexBulkDeleteCallback callback, void *callback_state)
{
	CbDeleteState state = {0};
	CbMetaPageData meta;

	state.info = info;
	state.rel = info->index;
	state.stats = stats;
	state.callback = callback;
	state.callback_state = callback_state;
	cb_delete_set_dead(&state);

	stats->estimated_count = false;
	stats->num_index_tuples = 0;
	stats->pages_deleted = 0;
	stats->pages_free = 0;

	cb_rel_read_meta(info->index, NULL, &meta);
	state.tail = meta.journal_tail;
	state.unlinker = cb_tree_unlink_begin(info->index, stats);

	PG_ENSURE_ERROR_CLEANUP(_bt_end_vacuum_callback,
							PointerGetDatum(info->index));
	{
		state.cycleid = _bt_start_vacuum(info->index);
		cb_delete_pass(&state);
	}
	PG_END_ENSURE_ERROR_CLEANUP(_bt_end_vacuum_callback,
								PointerGetDatum(info->index));
	_bt_end_vacuum(info->index);
	if (state.dead != NULL)
		pfree(state.dead);
	cb_stat_add(info->index, CB_STAT_VACUUM_SKIPPED, state.skipped);
	cb_tree_unlink_finish(state.unlinker, state.tail);
	cb_delete_finish_map(info->index, stats);
}

/*
 * Puts the free pages into the map, without a look at the entries, if it is
 * not known to have them.  To be called where no leaf is visited: nothing is
 * dead.
 *
 * Returns palloc'd statistics, with an estimated number of entries; NULL: the
 * map lacks nothing.  Runs in VACUUM, whose delay may make it sleep.  Holds
 * one page lock at a time.
 */
IndexBulkDeleteResult *
cb_tree_complete_map(IndexVacuumInfo *info)
{
	Relation	rel = info->index;
	IndexBulkDeleteResult *stats;
	CbMetaPageData meta;

	if (cb_rel_map_is_complete(rel))
		return NULL;
	stats = palloc0(sizeof(IndexBulkDeleteResult));
	stats->estimated_count = true;
	stats->num_index_tuples = info->num_heap_tuples;
	stats->num_pages = cb_delete_count_blocks(rel);
	cb_rel_read_meta(rel, NULL, &meta);
	for (BlockNumber blkno = CB_METAPAGE_BLKNO + 1; blkno < stats->num_pages;
		 blkno++)
	{
		Buffer		buf = cb_delete_read_block(info, blkno);

		(void) cb_delete_map_page(rel, buf, meta.journal_tail, stats);
		UnlockReleaseBuffer(buf);
	}
	cb_delete_finish_map(rel, stats);
	return stats;
}
