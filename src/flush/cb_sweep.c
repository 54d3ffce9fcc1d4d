/*-------------------------------------------------------------------------
 *
 * cb_sweep.c
 *	  Emptying the journal into the tree: one sorted sweep.
 *
 * Sweeps of an index exclude one another by LockPage(index, 1), a
 * heavyweight lock, so that whoever waits for one is seen by the deadlock
 * detector (B1).  Whoever holds it has its lock on the relation already.
 *
 * An error or a crash at any point leaves the journal as it was: the sweep is
 * done again by the next who comes, and entries that reached the tree are
 * skipped then (I5).  Entries appended while a sweep runs lie at or above the
 * head that it read, and stay.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "base/cb_base.h"
#include "flush/cb_flush.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"

static void
cb_sweep_count(Relation rel, CbFlushCause cause, int n, const CbApplyStats *stats)
{
	cb_stat_add(rel, CB_STAT_FLUSHES_LIMIT + cause, 1);
	cb_stat_add(rel, CB_STAT_FLUSHED, n);
	cb_tree_count_applied(rel, stats);
}

/*
 * Sweeps up to the limit; the sweep lock is held.  False: the journal ended
 * before.
 */
static bool
cb_sweep_run(Relation rel, CbPos limit, CbFlushCause cause)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch sweep",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	CbApplyStats stats = {0};
	CbJournalBatch batch;
	CbKeyDesc	kd;

	CB_TEST_POINT("sweep-start");
	cb_key_init(&kd, rel);
	cb_journal_read_all(&kd, limit, &batch);
	CB_TEST_POINT("sweep-read");
#ifdef CB_MUTATE_I1_TRUNCATE_FIRST
	cb_journal_truncate(rel, &batch);
#endif
	cb_key_sort(&kd, batch.entries, batch.n);
	cb_tree_apply(&kd, batch.entries, batch.n, &stats);
	CB_TEST_POINT("sweep-applied");
#ifndef CB_MUTATE_I1_TRUNCATE_FIRST
	cb_journal_truncate(rel, &batch);
#endif
	if (batch.n > 0)
		cb_sweep_count(rel, cause, batch.n, &stats);

	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	return batch.upto >= limit;
}

/* At this backend's first use: is the attachment of this file (U22)? */
static void
cb_sweep_check(Relation rel, CbDesc *desc)
{
	CbSlotMark	mark = cb_slot_mark();
	CbKeyDesc	kd;

	cb_key_init(&kd, rel);
	(void) cb_route_get(&kd, desc);
	cb_slot_release_to(mark);
}

/*
 * How far a sweep may go: to where the buckets' entries begin, if the index
 * has any.  Under the sweep lock no other attachment can come.
 */
static CbPos
cb_sweep_limit(Relation rel, CbDesc **desc, uint64 *attach_id)
{
	CbPos		from;

	*desc = cb_desc_find(rel);
	if (*desc)
		cb_sweep_check(rel, *desc);
	*attach_id = *desc ? cb_desc_attachment(*desc, rel, &from) : 0;
	return *attach_id != 0 ? from : CB_POS_MAX;
}

/*
 * Journal pages that are swept at a time.  An entry takes about six times its
 * place in the journal while it is sorted, so that is maintenance_work_mem.
 */
#define CB_SWEEP_MIN_PAGES		64

static uint64
cb_sweep_piece(void)
{
	return Max((uint64) maintenance_work_mem * 1024 / 6 / BLCKSZ,
			   CB_SWEEP_MIN_PAGES);
}

/*
 * Sweeps as far as it may, in pieces; the sweep lock is held.  What is appended
 * meanwhile need not be: the journal is no longer than the index.
 */
static void
cb_sweep_all(Relation rel, CbFlushCause cause)
{
	CbDesc	   *desc;
	uint64		attach_id;
	CbPos		limit = cb_sweep_limit(rel, &desc, &attach_id);
	uint64		piece = cb_sweep_piece();
	uint64		left = RelationGetNumberOfBlocks(rel) / piece + 1;
	CbMetaPageData meta;
	CbPos		end;

	do
	{
		cb_tree_read_meta(rel, NULL, &meta);
		end = Min(limit, CbPosMake(CbPosSeq(meta.journal_tail) + piece,
								   CB_JOURNAL_FIRST));
	} while (cb_sweep_run(rel, end, cause) && end < limit && left-- > 0);
	if (attach_id != 0)
		cb_desc_note_tail(desc, attach_id, limit);
}

/*
 * Empties the journal up to its head at the time of the call; see the header.
 */
bool
cb_flush_sweep(Relation rel, CbFlushCause cause, bool wait)
{
	if (RecoveryInProgress())
		return false;
	if (wait)
		LockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);
	else if (!ConditionalLockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock))
		return false;

	cb_sweep_all(rel, cause);
	UnlockPage(rel, CB_SWEEP_LOCK_PAGE, ExclusiveLock);
	return true;
}

void
cb_flush_before(Relation rel, CbDesc *desc)
{
	if (cb_load_acquire(&desc->tail) < desc->from)
		(void) cb_flush_sweep(rel, CB_FLUSH_DELAY, false);
}
