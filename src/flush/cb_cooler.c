/*-------------------------------------------------------------------------
 *
 * cb_cooler.c
 *	  Workers pack the cold leaves of indexes that are larger than they should be.
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
 * back at the end of the pass, which is the next leaf if somebody waits for it:
 * VACUUM is not at work meanwhile, and does not wait long.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_heat.h"
#include "base/cb_waiter.h"
#include "catalog/pg_class.h"
#include "common/pg_prng.h"
#include "flush/cb_flush.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tree/cb_tree.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* leaves of one pass, at most, and its time, whatever has to be read in */
#define CB_COOLER_MAX_STEPS		4096
#define CB_COOLER_SLICE_MS		200

/* time from a pass to the next, and from the end of the range to its beginning */
#define CB_COOLER_PAUSE_MS		1000
#define CB_COOLER_REST_EPOCHS	4

/* a leaf that was written later than so many epochs ago is never cold */
#define CB_COOLER_MIN_AGE		4

/*
 * A leaf that is written once an epoch may not have been sampled in that time,
 * eight of them will.
 */
#define CB_COOLER_MIN_RUN		8

/* The epoch in which the leaf was written last, as far as is known. */
static uint32
cb_cooler_leaf_epoch(Relation rel, BlockNumber leaf, uint32 clock)
{
	return clock - Min(cb_heat_age(rel, leaf, CB_HEAT_WRITE, clock), clock);
}

typedef struct CbCooler
{
	uint32		clock;
	uint32		since;			/* leaves written in it or later are warm */
	int			run;			/* leaves in turn that are not */
} CbCooler;

/* blocks whose ages are looked at, in an index that has more */
#define CB_COOLER_SAMPLE	65536

/* Is it one of a run of cold leaves? */
static bool
cb_cooler_is_cold(Relation rel, BlockNumber leaf, void *arg)
{
	CbCooler   *cooler = arg;

	if (cb_cooler_leaf_epoch(rel, leaf, cooler->clock) >= cooler->since)
		cooler->run = 0;
	else
		cooler->run++;
	return cooler->run >= CB_COOLER_MIN_RUN;
}

/*
 * The first epoch such that what was written later fits the threshold, by
 * classes of ages: of all blocks, or of one of every so many, anywhere among
 * them, so that it takes no longer in a large index.
 */
static uint32
cb_cooler_choose_epoch(Relation rel, int64 threshold, uint32 clock)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	int64		room = threshold / (BLCKSZ / 1024);
	int64		classes[CB_HEAT_CLASSES] = {0};
	int			class = 0;
	int64		stretch = nblocks / CB_COOLER_SAMPLE + 1;
	uint32		age;

	for (int64 first = 1; first < nblocks; first += stretch)
	{
		int64		n = Min(stretch, nblocks - first);
		BlockNumber block = first +
			pg_prng_uint64_range(&pg_global_prng_state, 0, n - 1);

		classes[cb_heatmap_class(clock - cb_cooler_leaf_epoch(rel, block, clock))] += n;
	}
	while (class < CB_HEAT_CLASSES - 1 && classes[class] <= room)
		room -= classes[class++];
	age = Max(cb_heatmap_class_age(class), CB_COOLER_MIN_AGE);
	return age <= clock ? clock - age + 1 : 0;
}

/*
 * Goes on where the last pass stopped, or begins at the right end; false: the
 * attachment is gone.
 */
static bool
cb_cooler_begin(Relation rel, CbDesc *desc, uint64 attach_id, int64 threshold,
				CbCooler *cooler, CbCoolRange *range)
{
	TimestampTz now = GetCurrentTimestamp();
	BlockNumber leaf;
	bool		found;
	int64		ms;

	LWLockAcquire(&desc->publish, LW_EXCLUSIVE);
	found = desc->attach_id == attach_id;
	leaf = desc->cool_leaf;
	cooler->since = desc->cool_since;
	cooler->run = desc->cool_run;
	ms = TimestampDifferenceMilliseconds(desc->cooled_at, now);
	LWLockRelease(&desc->publish);
	if (!found)
		return false;

	cooler->clock = cb_heat_clock();
	range->lo.kind = CB_CUT_MIN;
	range->at.kind = CB_CUT_MAX;
	if (leaf != 0)
		cb_tree_cool_go_on(rel, range, leaf);
	if (range->at.kind == CB_CUT_MAX)
	{
		cooler->since = cb_cooler_choose_epoch(rel, threshold, cooler->clock);
		cooler->run = 0;
	}
	range->budget = Max(1, Min(cb_cold_rate * ms / 1000, CB_COOLER_MAX_STEPS));
	range->until = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
											   CB_COOLER_SLICE_MS);
	return true;
}

/* Time from the end of the range to its beginning, or after an error. */
static int64
cb_cooler_rest_ms(void)
{
	return CB_COOLER_REST_EPOCHS * cb_heat_epoch * INT64CONST(1000);
}

static void
cb_cooler_put_off(CbDesc *desc, int64 ms)
{
	cb_store_relaxed(&desc->cool_at,
					 (uint64) TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms));
}

/* Remembers where to go on, and when. */
static void
cb_cooler_end(CbDesc *desc, uint64 attach_id, const CbCooler *cooler,
			  const CbCoolRange *range)
{
	LWLockAcquire(&desc->publish, LW_EXCLUSIVE);
	if (desc->attach_id == attach_id)
	{
		desc->cool_leaf = range->done ? 0 : range->leaf;
		desc->cool_since = cooler->since;
		desc->cool_run = cooler->run;
		desc->cooled_at = GetCurrentTimestamp();
		cb_cooler_put_off(desc, range->done ? cb_cooler_rest_ms() : CB_COOLER_PAUSE_MS);
	}
	LWLockRelease(&desc->publish);
}

/* One pass; the table is locked. */
static void
cb_cooler_pass(Relation rel, CbDesc *desc, uint64 attach_id, int64 threshold)
{
	CbCoolRange *range = palloc0(sizeof(CbCoolRange));
	CbCooler	cooler;
	CbKeyDesc	kd;

	CB_TEST_POINT("cooler-locked");
	if (!cb_cooler_begin(rel, desc, attach_id, threshold, &cooler, range))
		return;
	range->is_cold = cb_cooler_is_cold;
	range->arg = &cooler;
	cb_key_init(&kd, rel);
	cb_tree_cool(&kd, range);
	cb_cooler_end(desc, attach_id, &cooler, range);
	pfree(range);
	CB_TEST_POINT("cooler-pass");
}

/*
 * Is it this process's turn?  Of those that find so one gets true, and has put
 * the next turn off: for long, so that a pass that fails each time, at a damaged
 * leaf, does not keep workers from flushing the index.
 */
static bool
cb_cooler_take_turn(CbDesc *desc)
{
	uint64		at = cb_load_relaxed(&desc->cool_at);
	TimestampTz now = GetCurrentTimestamp();

	return (TimestampTz) at <= now &&
		cb_swap_if(&desc->cool_at, &at,
				   (uint64) TimestampTzPlusMilliseconds(now, cb_cooler_rest_ms()));
}

/*
 * Shall a worker come to pack leaves?  A look without locks, so a hint; false
 * if the index was found too small the last time.
 */
bool
cb_cooler_is_due(const CbDesc *desc, TimestampTz now)
{
	uint64		at = cb_load_relaxed(&((CbDesc *) desc)->cool_at);

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
cb_cooler_run(Relation rel, CbDesc *desc)
{
	int64		threshold = cb_guc_cold_threshold(rel);
	Oid			heapoid = rel->rd_index->indrelid;
	uint64		attach_id;
	CbPos		unused;

	if (threshold == CB_THRESHOLD_OFF || !cb_heat_is_kept() ||
		RelationGetNumberOfBlocks(rel) <= threshold / (BLCKSZ / 1024))
	{
		cb_store_relaxed(&desc->cool_at, 0);
		return;
	}
	attach_id = cb_desc_attachment(desc, rel, &unused);
	if (attach_id == 0 || !cb_cooler_take_turn(desc))
		return;
	if (!ConditionalLockRelationOid(heapoid, ShareUpdateExclusiveLock))
	{
		cb_cooler_put_off(desc, CB_COOLER_PAUSE_MS);
		return;
	}
	(void) cb_waiter_watch_table(heapoid, ShareUpdateExclusiveLock);
	cb_cooler_pass(rel, desc, attach_id, threshold);
	cb_waiter_forget_table();
	UnlockRelationOid(heapoid, ShareUpdateExclusiveLock);
}
