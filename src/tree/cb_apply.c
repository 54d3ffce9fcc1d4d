/*-------------------------------------------------------------------------
 *
 * cb_apply.c
 *	  Applying a sorted batch of entries to the tree.
 *
 * One descent serves a row of neighbouring leaves: the level-1 page that it
 * came through is copied, and the next leaves are found in the copy.  Each
 * leaf is locked once and gets all its entries in one critical section and
 * one WAL record.  An entry whose exact (key, TID) is in the leaf already is
 * skipped, so that a batch may be applied again (I5).
 *
 * The copy of a parent is a hint: a leaf that was split or deleted since sends
 * us to the root again.  A leaf that was not has the place: its lower bound
 * never rises.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "base/cb_heat.h"
#include "base/cb_progress.h"
#include "base/cb_waiter.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "rel/cb_ring.h"
#include "storage/bufmgr.h"
#include "tree/cb_tree.h"
#include "utils/memutils.h"

/*
 * Puts n tuples, of len bytes in all, one behind the other and each
 * MAXALIGNed, into a page that has the room, and logs it.  offsets are the
 * places where they stand once all are in, ascending.
 *
 * info is XLOG_CB_LEAF_BATCH or XLOG_CB_INTERNAL_INSERT; with the latter,
 * children are pages whose incomplete-split flag is cleared by the same
 * record.  All buffers are exclusively locked, before and after.  Only lack of
 * memory is an error, before anything is changed.
 */
void
cb_tree_insert_at(Relation rel, Buffer buf, uint8 info, int n,
				  const OffsetNumber *offsets, const char *tuples, Size len,
				  Buffer *child_bufs, int nchildren)
{
	Page		page = BufferGetPage(buf);
	bool		wal = RelationNeedsWAL(rel);

	if (wal)
		XLogEnsureRecordSpace(1 + nchildren, 0);

	START_CRIT_SECTION();
	cb_page_insert_batch(page, n, offsets, tuples, len);
	cb_rel_mark_dirty(buf);
	for (int i = 0; i < nchildren; i++)
	{
		cb_page_clear_incomplete(BufferGetPage(child_bufs[i]));
		cb_rel_mark_dirty(child_bufs[i]);
	}
	if (wal)
	{
		xl_cb_insert xlrec;
		XLogRecPtr	lsn;

		xlrec.nitems = n;
		xlrec.nchildren = nchildren;
		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfCbInsert);
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
		XLogRegisterBufData(0, unconstify(char *, (const char *) offsets),
							n * sizeof(OffsetNumber));
		XLogRegisterBufData(0, unconstify(char *, tuples), len);
		for (int i = 0; i < nchildren; i++)
			XLogRegisterBuffer(1 + i, child_bufs[i], REGBUF_STANDARD);
		lsn = XLogInsert(CB_RMGR_ID, info);
		PageSetLSN(page, lsn);
		for (int i = 0; i < nchildren; i++)
			PageSetLSN(BufferGetPage(child_bufs[i]), lsn);
	}
	END_CRIT_SECTION();
}

/*
 * Redo of XLOG_CB_LEAF_BATCH and XLOG_CB_INTERNAL_INSERT.  One page is locked
 * at a time: that the parent's downlink can be seen before the child's flag is
 * cleared misleads no reader.
 */
void
cb_redo_insert(XLogReaderState *record)
{
	xl_cb_insert *xlrec = (xl_cb_insert *) XLogRecGetData(record);
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_LEAF | CBP_INTERNAL, &buf);

	if (page != NULL)
	{
		Size		len;
		char	   *data = XLogRecGetBlockData(record, 0, &len);
		Size		offsets_len = xlrec->nitems * sizeof(OffsetNumber);
		OffsetNumber offsets[MaxIndexTuplesPerPage];
		PGAlignedBlock tuples;

		/* the record's data is not aligned */
		memcpy(offsets, data, offsets_len);
		memcpy(tuples.data, data + offsets_len, len - offsets_len);
		cb_redo_require(record, 0, PageGetExactFreeSpace(page) >=
						len - offsets_len + xlrec->nitems * sizeof(ItemIdData));
		cb_redo_require(record, 0, offsets[xlrec->nitems - 1] <=
						PageGetMaxOffsetNumber(page) + xlrec->nitems);
		cb_page_insert_batch(page, xlrec->nitems, offsets, tuples.data,
							 len - offsets_len);
	}
	cb_redo_end(record, page, buf);
	cb_redo_clear_incomplete(record, 1, xlrec->nchildren);
}

/* ---------- one leaf ---------- */

/*
 * Raises an error if this backend does not hold the lock of a page that it has
 * locked: a comparison function with an exception block in it can release all
 * locks of this backend.  Nothing may be changed then.
 *
 * To be called after the last comparison and before the first change.  A
 * buffer of a temporary index has no lock.
 */
void
cb_tree_check_still_locked(Relation rel, Buffer buf)
{
	if (!BufferIsLocal(buf) && !cb_rel_has_locked(buf))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a comparison function of index \"%s\" released the lock of page %u",
						RelationGetRelationName(rel), BufferGetBlockNumber(buf)),
				 errhint("Comparison functions must not use subtransactions (exception blocks).")));
}

/*
 * How many of the first n entries belong left of the page's high key; the
 * first one is known to.  Looks ahead in ever longer steps, then halves:
 * nothing is known of how far the leaf goes, and mostly it is not far (Bentley
 * and Yao, An Almost Optimal Algorithm for Unbounded Searching, 1976).
 */
static int
cb_apply_count_covered(const CbKeyDesc *kd, Page page, CbSortEntry *entries,
					   int n)
{
	int			low = 1;
	int			high;
	int			step = 8;
	IndexTuple	hikey;

	if (CbPageIsRightmost(page))
		return n;
	hikey = CbPageGetHighKey(page);

	/* the first one is covered; gallop, then halve */
	while (low < n && low + step <= n &&
		   cb_key_compare(kd, entries[low + step - 1].itup, hikey) < 0)
	{
		low += step;
		step *= 2;
	}
	high = Min(n, low + step);
	while (low < high)
	{
		int			mid = low + (high - low) / 2;

		if (cb_key_compare(kd, entries[mid].itup, hikey) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* First item >= itup, not before low; *found: it is itup itself. */
static OffsetNumber
cb_apply_find_place(const CbKeyDesc *kd, Page page, OffsetNumber low,
					IndexTuple itup, bool *found)
{
	OffsetNumber high = PageGetMaxOffsetNumber(page) + 1;

	*found = false;
	while (low < high)
	{
		OffsetNumber mid = low + (high - low) / 2;
		int			cmp = cb_key_compare(kd, CbPageGetTuple(page, mid), itup);

		if (cmp == 0)
		{
			*found = true;
			return mid;
		}
		if (cmp < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/*
 * Finds the places of the leaf's entries among its plain ones; what its packed
 * part has is not looked at, so that most visits do not touch it.  Takes new
 * ones of no more than limit bytes, but one at least.  The page stays locked,
 * while comparison functions run.
 *
 * The batch's arrays are palloc'd; its tuples are those of entries.
 */
static void
cb_apply_place(const CbKeyDesc *kd, Page page, CbSortEntry *entries, int n,
			   Size limit, CbLeafBatch *batch)
{
	int			covered = cb_apply_count_covered(kd, page, entries, n);
	OffsetNumber low = CbPageFirstPlain(page);

	/* the last leaf covers all that ascends, which may be very many */
	int			most = Min(covered, limit / sizeof(IndexTupleData) + 1);

	batch->tuples = palloc(sizeof(IndexTuple) * most);
	batch->offsets = palloc(sizeof(OffsetNumber) * most);
	batch->n = 0;
	batch->ndead = 0;
	batch->len = 0;
	for (batch->taken = 0; batch->taken < covered; batch->taken++)
	{
		IndexTuple	itup = entries[batch->taken].itup;
		Size		size = MAXALIGN(IndexTupleSize(itup));
		bool		found;

		if (entries[batch->taken].dead)
		{
			batch->ndead++;
			continue;
		}
		if (batch->n > 0 && batch->len + size > limit)
			break;
		low = cb_apply_find_place(kd, page, low, itup, &found);
		if (found || (batch->n > 0 &&
					  ItemPointerEquals(&batch->tuples[batch->n - 1]->t_tid,
										&itup->t_tid) &&
					  cb_key_compare(kd, batch->tuples[batch->n - 1], itup) == 0))
			continue;
		Assert(batch->n < most);
		batch->tuples[batch->n] = itup;
		batch->offsets[batch->n] = low;
		batch->len += size;
		batch->n++;
	}
}

/*
 * The leaf has the room: one record.  Releases buf.  The batch's places are
 * changed to those that its entries have afterwards.
 */
static void
cb_apply_in_place(Relation rel, Buffer buf, CbLeafBatch *batch)
{
	PGAlignedBlock tuples;
	Size		at = 0;

	for (int i = 0; i < batch->n; i++)
	{
		at += cb_page_copy_tuple(tuples.data + at, batch->tuples[i]);
		batch->offsets[i] += i; /* where it stands once all are in */
	}
	Assert(at == batch->len);
	cb_tree_insert_at(rel, buf, XLOG_CB_LEAF_BATCH, batch->n, batch->offsets,
					  tuples.data, at, NULL, 0);
	UnlockReleaseBuffer(buf);
}

/*
 * The leaf lacks the room: merges old and new, and packs them, shares them
 * with the right neighbour, or splits.  *moved tells whether bounds of leaves
 * changed.
 *
 * True: it is done, and buf is released.  False, with the leaf as it was and
 * locked: the new ones are too many.  Comparison functions run.
 */
static bool
cb_apply_by_rewriting(const CbKeyDesc *kd, Buffer buf, CbLeafBatch *batch,
					  CbApplyStats *stats, bool *moved)
{
	PGAlignedBlock copy;
	CbArena		arena;
	CbRepack	repack;
	IndexTuple *items;
	int			n;
	bool		at_end;

	cb_arena_init(&arena, CurrentMemoryContext);
	memcpy(copy.data, BufferGetPage(buf), BLCKSZ);
	n = cb_repack_merge(kd, BufferGetBlockNumber(buf), (Page) copy.data, batch,
						&arena, &repack, &items);
	cb_tree_check_still_locked(kd->rel, buf);
	if (batch->n == 0 ||
		cb_repack_leaf(kd->rel, buf, batch, &arena, &repack, items, n))
	{
		UnlockReleaseBuffer(buf);
		return true;
	}

	*moved = true;
	if (cb_redistribute_leaf(kd, buf, &arena, items, n))
		return true;
	at_end = CbPageIsRightmost((Page) copy.data) &&
		repack.new_at[0] == n - batch->n;
	if (!cb_tree_split(kd, buf, items, n, NULL, 0, at_end))
		return false;
	stats->splits++;
	return true;
}

/*
 * Has the leaf room for the new entries among its plain ones?  Not if they
 * have to meet those of its packed part as well: it is written anew, and
 * plain, first.
 */
static bool
cb_apply_has_room(Relation rel, Page page, const CbLeafBatch *batch)
{
	Size		need = batch->len + batch->n * sizeof(ItemIdData);

	if (CbPageIsPacked(page) && !cb_key_is_trusted(rel))
		return false;
#ifdef CB_TESTPOINTS
	if (cb_test_delta >= 0 && cb_packs_leaves(rel) && batch->n +
		PageGetMaxOffsetNumber(page) + 1 - CbPageFirstPlain(page) > cb_test_delta)
		return false;
#endif
	return need <= PageGetExactFreeSpace(page);
}

/*
 * Applies what belongs to the leaf of the first n entries; the first one does.
 * buf is exclusively locked, its split complete; it is released.  Returns how
 * many entries were dealt with, 0 if the leaf had to be cut first; *moved
 * tells whether bounds of leaves changed.
 *
 * An error leaves the leaf as it was, or with what was done by an earlier
 * record: dead entries removed.  The caller resets the memory context.
 */
static int
cb_apply_to_leaf(const CbKeyDesc *kd, Buffer buf, CbSortEntry *entries, int n,
				 CbApplyStats *stats, bool *moved)
{
	Page		page = BufferGetPage(buf);
	CbLeafBatch batch;
	Size		limit = 3 * CB_PAGE_ROOM * CbGetFillFactor(kd->rel) / 100;
	bool		asked = false;
	int			placed;

	*moved = false;
	cb_heat_note(kd->rel, BufferGetBlockNumber(buf), CB_HEAT_WRITE);
	for (;;)
	{
		/* the caller resets the context */
		cb_apply_place(kd, page, entries, n, limit, &batch);
		cb_tree_check_still_locked(kd->rel, buf);
		placed = batch.n;

		CB_TEST_POINT("apply-leaf");
		if (batch.n == 0)
		{
			UnlockReleaseBuffer(buf);
			break;
		}
		if (cb_apply_has_room(kd->rel, page, &batch))
		{
			cb_apply_in_place(kd->rel, buf, &batch);
			break;
		}

		/* what is dead makes room */
		if (!asked && cb_dead_drop(kd, buf, &batch, entries, stats))
		{
			asked = true;
			continue;
		}
		asked = true;
		if (cb_apply_by_rewriting(kd, buf, &batch, stats, moved))
			break;

		/* with fewer, then; or the leaf by itself first, as it is */
		if (placed == 1)
		{
			if (!cb_tree_split_as_is(kd, buf))
				elog(ERROR, "cache_batch: no way to split leaf %u of index \"%s\"",
					 BufferGetBlockNumber(buf), RelationGetRelationName(kd->rel));
			stats->visits++;
			stats->splits++;
			return 0;
		}
		limit = batch.len / 2;
	}

	stats->visits++;
	stats->entries += placed;
	stats->duplicates += batch.taken - batch.ndead - placed;
	return batch.taken;
}

/* ---------- the batch ---------- */

/* bytes that are kept from leaf to leaf: enough to pack most of them */
#define CB_APPLY_CONTEXT	(128 * 1024)

/* leaves to the right of the present one that are read ahead */
#define CB_APPLY_PREFETCH	4

/*
 * Has the leaf read that stands some places to the right of this one in the
 * parent, if the batch goes so far: most batches miss few leaves.
 */
static void
cb_apply_prefetch(const CbKeyDesc *kd, Page parent, OffsetNumber off,
				  IndexTuple last)
{
	OffsetNumber ahead = off + CB_APPLY_PREFETCH;
	IndexTuple	downlink;

	if (ahead > PageGetMaxOffsetNumber(parent))
		return;
	downlink = CbPageGetTuple(parent, ahead);
	if (cb_key_compare(kd, downlink, last) <= 0)
		(void) cb_sound_prefetch(kd->rel, BTreeTupleGetDownLink(downlink));
}

/*
 * The leaf of an entry by way of the parent's copy: exclusively locked, its
 * split complete, or InvalidBuffer if the copy does not lead there.  last: of
 * the batch.  Nothing else is locked while it waits for the leaf.
 */
static Buffer
cb_apply_next_leaf(const CbKeyDesc *kd, const CbBound *bound, IndexTuple last,
				   CbDescent *descent)
{
	Page		parent = (Page) descent->parent.data;
	OffsetNumber off;
	Buffer		buf;
	Page		page;

	if (!descent->parent_valid ||
		(!CbPageIsRightmost(parent) &&
		 cb_key_compare_bound(kd, bound, CbPageGetHighKey(parent)) <= 0))
		return InvalidBuffer;

	off = cb_tree_search_page(kd, bound, parent, ForwardScanDirection);
	cb_apply_prefetch(kd, parent, off, last);
	buf = cb_ring_read(kd->rel, BTreeTupleGetDownLink(CbPageGetTuple(parent, off)));
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(buf);
	cb_page_check(kd->rel, BufferGetBlockNumber(buf), page);
	if (!CbPageIsLeaf(page) || CbPageHasIncompleteSplit(page) ||
		(!CbPageIsRightmost(page) &&
		 cb_key_compare_bound(kd, bound, CbPageGetHighKey(page)) <= 0))
	{
		UnlockReleaseBuffer(buf);
		return InvalidBuffer;
	}
	return buf;
}

/*
 * Applies n entries, sorted by (key, TID), and adds what it did to stats.
 * Returns how many were applied: fewer than n, but those of a leaf at least,
 * if this process gives way to one who waits for a lock of its (cb_waiter.h).
 * Another process applies all.
 *
 * The caller holds RowExclusiveLock on the index and no LWLock; it has a
 * snapshot or a transaction id.  Takes page locks one leaf at a time, and
 * holds none on return.  Comparison functions run, with a leaf locked.
 *
 * Entries that are marked as dead are left out.  If cb_dead_begin() was called
 * the table is asked about full leaves' entries, and more entries may be
 * marked.  The entries remain the caller's; no memory is kept.
 *
 * An error, in a comparison, for want of disk space, or about a damaged page,
 * leaves a prefix of the entries applied, which is harmless: they may all be
 * applied again (I5).
 */
int
cb_tree_apply(const CbKeyDesc *kd, CbSortEntry *entries, int n,
			  CbApplyStats *stats)
{
	CbDescent  *descent = palloc0(sizeof(CbDescent));
	MemoryContext leaf_cxt = AllocSetContextCreate(CurrentMemoryContext,
												   "cache_batch apply",
												   CB_APPLY_CONTEXT,
												   ALLOCSET_DEFAULT_INITSIZE,
												   ALLOCSET_DEFAULT_MAXSIZE);
	MemoryContext oldcxt = MemoryContextSwitchTo(leaf_cxt);
	int			done = 0;

	cb_progress_expect(n);
	descent->want_parent = true;
	while (done < n && (done == 0 || !cb_waiter_is_there()))
	{
		CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = entries[done].itup};
		Buffer		buf;
		bool		moved;
		int			taken;

		cb_key_prepare_trust(kd->rel);
		buf = cb_apply_next_leaf(kd, &bound, entries[n - 1].itup, descent);
		if (!BufferIsValid(buf))
		{
			buf = cb_tree_descend_for_write(kd, &bound, 0, descent);
			stats->descents++;
		}
		taken = cb_apply_to_leaf(kd, buf, entries + done, n - done, stats,
								 &moved);
		done += taken;
		cb_progress_add(taken);
		if (moved)
			descent->parent_valid = false;
		MemoryContextReset(leaf_cxt);
		CB_TEST_POINT("apply-next");
		CHECK_FOR_INTERRUPTS();
	}
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(leaf_cxt);
	pfree(descent);
	return done;
}

/* Adds what applies did to the index's counters, which are in shared memory. */
void
cb_tree_count_applied(Relation rel, const CbApplyStats *stats)
{
	cb_stat_add(rel, CB_STAT_LEAF_VISITS, stats->visits);
	cb_stat_add(rel, CB_STAT_DESCENTS, stats->descents);
	cb_stat_add(rel, CB_STAT_APPLIED, stats->entries);
	cb_stat_add(rel, CB_STAT_SPLITS, stats->splits);
	cb_stat_add(rel, CB_STAT_DROPPED, stats->dropped);
}

/* entries a leaf for a batch to be worth applying at once (k) */
#define CB_DENSE_ENTRIES	32
#define CB_DENSE_SAMPLES	8

/*
 * Would the sorted batch bring CB_DENSE_ENTRIES or more entries to most of its
 * leaves?  Sampled: a stretch of that many entries counts if it lies left of
 * the high key of its first entry's leaf.  False if n is less than that.
 *
 * Reads only, with one share lock at a time, and none on entry; comparison
 * functions run.  The caller has a snapshot or a transaction id.
 */
bool
cb_tree_batch_is_dense(const CbKeyDesc *kd, CbSortEntry *entries, int n)
{
	int			stretches = n / CB_DENSE_ENTRIES;
	int			samples = Min(stretches, CB_DENSE_SAMPLES);
	int			dense = 0;

	for (int i = 0; i < samples; i++)
	{
		int			first = (int) ((int64) i * stretches / samples) * CB_DENSE_ENTRIES;
		CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = entries[first].itup};
		Buffer		buf = cb_tree_descend(kd, &bound, ForwardScanDirection, NULL,
										  NULL);
		Page		page = BufferGetPage(buf);
		IndexTuple	last = entries[first + CB_DENSE_ENTRIES - 1].itup;

		if (CbPageIsRightmost(page) ||
			cb_key_compare(kd, last, CbPageGetHighKey(page)) < 0)
			dense++;
		UnlockReleaseBuffer(buf);

		/* the first few often decide */
		if (i == 1 && dense == 0)
			return false;
	}
	return samples > 0 && dense * 4 >= samples * 3;
}
