/*-------------------------------------------------------------------------
 *
 * cb_compactor.c
 *	  Workers pack the cold leaves of indexes that are larger than they should
 *	  be.
 *
 * An index whose file is larger than its cold_threshold is gone through from
 * right to left, again and again, as many leaves a second as cold_rate says: a
 * worker that has come to flush the index, or was asked to come for this, goes
 * on where the last one stopped.  A leaf is packed into its right neighbour if
 * it is cold, as the last few to the right of it: not written since an epoch
 * that is chosen, at the right end, by the ages of the file's blocks, so that
 * the warmer ones fit the threshold.  Reads do not count, as packed leaves are
 * read as fast.
 *
 * It takes its lock on the table only if that can be had at once, and gives it
 * back at the end of the pass, which is the next leaf if somebody waits for
 * it:  VACUUM is not at work meanwhile, and does not wait long.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "base/cb_heat.h"
#include "base/cb_progress.h"
#include "base/cb_waiter.h"
#include "catalog/pg_class.h"
#include "common/pg_prng.h"
#include "flush/cb_flush.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tree/cb_tree.h"
#include "utils/rel.h"

/* leaves of one pass, at most, and its time, whatever has to be read in */
#define CB_COMPACTOR_MAX_STEPS		4096
#define CB_COMPACTOR_SLICE_MS		200

/*
 * time from a pass to the next, and from the end of the range to its beginning
 */
#define CB_COMPACTOR_PAUSE_MS		1000
#define CB_COMPACTOR_REST_EPOCHS	4

/* a leaf that was written later than so many epochs ago is never cold */
#define CB_COMPACTOR_MIN_AGE		4

/*
 * A leaf that is written once an epoch may not have been sampled in that time,
 * eight of them will.
 */
#define CB_COMPACTOR_MIN_STREAK		8

/* The epoch in which the leaf was written last, as far as is known. */
static uint32
cb_compactor_leaf_epoch(Relation rel, BlockNumber leaf, uint32 clock)
{
	return clock - Min(cb_heat_age(rel, leaf, CB_HEAT_WRITE, clock), clock);
}

typedef struct CbCompactor
{
	uint32		clock;
	uint32		since;			/* leaves written in it or later are warm */
	int			streak;			/* leaves in turn that are not */
} CbCompactor;

/* blocks whose ages are looked at, in an index that has more */
#define CB_COMPACTOR_SAMPLE	65536

/* Is it one of a streak of cold leaves? */
static bool
cb_compactor_is_cold(Relation rel, BlockNumber leaf, void *arg)
{
	CbCompactor *compactor = arg;

	if (cb_compactor_leaf_epoch(rel, leaf, compactor->clock) >= compactor->since)
		compactor->streak = 0;
	else
		compactor->streak++;
	return compactor->streak >= CB_COMPACTOR_MIN_STREAK;
}

/*
 * The first epoch such that what was written later fits the threshold, by
 * classes of ages: of all blocks, or of one of every so many, anywhere among
 * them, so that it takes no longer in a large index.
 */
static uint32
cb_compactor_choose_epoch(Relation rel, int64 threshold, uint32 clock)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	int64		room = threshold / (BLCKSZ / 1024);
	int64		classes[CB_HEAT_CLASSES] = {0};
	int			class = 0;
	int64		stretch = nblocks / CB_COMPACTOR_SAMPLE + 1;
	uint32		age;

	for (int64 first = 1; first < nblocks; first += stretch)
	{
		int64		n = Min(stretch, nblocks - first);
		BlockNumber block = first +
			pg_prng_uint64_range(&pg_global_prng_state, 0, n - 1);

		classes[cb_heatmap_class(clock - cb_compactor_leaf_epoch(rel, block, clock))] += n;
	}
	while (class < CB_HEAT_CLASSES - 1 && classes[class] <= room)
		room -= classes[class++];
	age = Max(cb_heatmap_class_age(class), CB_COMPACTOR_MIN_AGE);
	return age <= clock ? clock - age + 1 : 0;
}

/*
 * Goes on where the last pass stopped, or begins at the right end; false: the
 * attachment is gone.
 */
static bool
cb_compactor_begin(Relation rel, CbBucketSet *set, uint64 attach_id, int64 threshold,
				   CbCompactor *compactor, CbCompactTask *task)
{
	TimestampTz now = cb_clock_now();
	BlockNumber leaf;
	bool		found;
	int64		ms;

	LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	found = set->attach_id == attach_id;
	leaf = set->compact_leaf;
	compactor->since = set->compact_since;
	compactor->streak = set->compact_streak;
	ms = TimestampDifferenceMilliseconds(set->compacted_at, now);
	LWLockRelease(&set->publish);
	if (!found)
		return false;

	compactor->clock = cb_heat_clock();
	task->lo.kind = CB_BOUND_MIN;
	task->at.kind = CB_BOUND_MAX;
	if (leaf != 0)
		cb_tree_compact_go_on(rel, task, leaf);
	if (task->at.kind == CB_BOUND_MAX)
	{
		compactor->since = cb_compactor_choose_epoch(rel, threshold, compactor->clock);
		compactor->streak = 0;
	}
	task->budget = Max(1, Min(cb_cold_rate * ms / 1000, CB_COMPACTOR_MAX_STEPS));
	task->until = TimestampTzPlusMilliseconds(cb_clock_now(),
											  CB_COMPACTOR_SLICE_MS);
	return true;
}

/* Time from the end of the range to its beginning, or after an error. */
static int64
cb_compactor_rest_ms(void)
{
	return CB_COMPACTOR_REST_EPOCHS * cb_heat_epoch * INT64CONST(1000);
}

static void
cb_compactor_put_off(CbBucketSet *set, int64 ms)
{
	cb_store_relaxed(&set->compact_at,
					 (uint64) TimestampTzPlusMilliseconds(cb_clock_now(), ms));
}

/* Remembers where to go on, and when. */
static void
cb_compactor_end(CbBucketSet *set, uint64 attach_id, const CbCompactor *compactor,
				 const CbCompactTask *task)
{
	LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	if (set->attach_id == attach_id)
	{
		set->compact_leaf = task->done ? 0 : task->leaf;
		set->compact_since = compactor->since;
		set->compact_streak = compactor->streak;
		set->compacted_at = cb_clock_now();
		cb_compactor_put_off(set, task->done ? cb_compactor_rest_ms() : CB_COMPACTOR_PAUSE_MS);
	}
	LWLockRelease(&set->publish);
}

/* One pass; the table is locked. */
static void
cb_compactor_pass(Relation rel, CbBucketSet *set, uint64 attach_id, int64 threshold)
{
	CbCompactTask *task = palloc0(sizeof(CbCompactTask));
	CbCompactor compactor;
	CbKeyDesc	kd;
	bool		begun;

	CB_TEST_POINT("compactor-locked");
	if (!cb_compactor_begin(rel, set, attach_id, threshold, &compactor, task))
		return;
	task->is_cold = cb_compactor_is_cold;
	task->arg = &compactor;
	cb_key_init(&kd, rel);
	begun = cb_progress_begin(CB_PROGRESS_COMPACT, rel);
	cb_progress_phase(CB_PHASE_PACK, task->budget);
	cb_tree_compact(&kd, task);
	cb_progress_end(begun);
	cb_compactor_end(set, attach_id, &compactor, task);
	pfree(task);
	CB_TEST_POINT("compactor-pass");
}

/*
 * Is it this process's turn?  Of those that find so one gets true, and has put
 * the next turn off: for long, so that a pass that fails each time, at a
 * damaged leaf, does not keep workers from flushing the index.
 */
static bool
cb_compactor_take_turn(CbBucketSet *set)
{
	uint64		at = cb_load_relaxed(&set->compact_at);
	TimestampTz now = cb_clock_now();

	return (TimestampTz) at <= now &&
		cb_swap_if(&set->compact_at, &at,
				   (uint64) TimestampTzPlusMilliseconds(now, cb_compactor_rest_ms()));
}

/*
 * Shall a worker come to pack leaves?  A look without locks, so a hint; false
 * if the index was found too small the last time.
 */
bool
cb_compactor_is_due(const CbBucketSet *set, TimestampTz now)
{
	uint64		at = cb_load_relaxed(&((CbBucketSet *) set)->compact_at);

	return at != 0 && (TimestampTz) at <= now;
}

/*
 * Packs some cold leaves of an index, if it is larger than its cold_threshold,
 * it is time, and no other process has taken this turn; else it returns at
 * once.
 *
 * Called by a worker, within a transaction and with a snapshot,
 * RowExclusiveLock on the index and no LWLock.  Takes ShareUpdateExclusiveLock
 * on the table if that can be had at once, and has given it back on return;
 * after an error the transaction's end does.  Comparison functions run.  A
 * damaged leaf raises an error: the turn has been put off by then, so workers
 * still flush the index.
 */
void
cb_compactor_work(Relation rel, CbBucketSet *set)
{
	int64		threshold = cb_guc_cold_threshold(rel);
	Oid			heapoid = rel->rd_index->indrelid;
	uint64		attach_id;
	CbPos		unused;

	if (threshold == CB_THRESHOLD_OFF || !cb_heat_is_kept() ||
		RelationGetNumberOfBlocks(rel) <= threshold / (BLCKSZ / 1024))
	{
		cb_store_relaxed(&set->compact_at, 0);
		return;
	}
	attach_id = cb_set_attachment(set, rel, &unused);
	if (attach_id == 0 || !cb_compactor_take_turn(set))
		return;
	if (!ConditionalLockRelationOid(heapoid, ShareUpdateExclusiveLock))
	{
		cb_compactor_put_off(set, CB_COMPACTOR_PAUSE_MS);
		return;
	}
	(void) cb_waiter_watch_table(heapoid, ShareUpdateExclusiveLock);
	cb_compactor_pass(rel, set, attach_id, threshold);
	cb_waiter_forget_table();
	UnlockRelationOid(heapoid, ShareUpdateExclusiveLock);
}
