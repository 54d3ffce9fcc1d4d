/*-------------------------------------------------------------------------
 *
 * cb_heat.c
 *	  Heat: sampling, the clock, and the table in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_heat.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/* heat_size -1: bytes of shared_buffers for a byte */
#define CB_HEAT_DEFAULT_PART	128

/* slots that one step of the clock looks at, about: some 50 microseconds */
#define CB_HEAT_STEP_SLOTS		65536

typedef struct CbHeatShared
{
	cb_atomic64 due;			/* when the clock moves on, a TimestampTz */
	CbHeatMap	map;
} CbHeatShared;

int			cb_heat_left[CB_HEAT_KINDS] = {1, 1};

static const int cb_heat_rates[CB_HEAT_KINDS] = {
	CB_HEAT_READ_SAMPLE, CB_HEAT_WRITE_SAMPLE
};
static bool cb_heat_begun[CB_HEAT_KINDS];
static CbHeatShared *cb_heat_shared = NULL;

/* ---------- shared memory ---------- */

/* Slots by the setting; 0: none. */
static uint64
cb_heat_count_slots(void)
{
	uint64		bytes;

	if (cb_heat_size == 0)
		return 0;
	if (cb_heat_size > 0)
		bytes = (uint64) cb_heat_size * 1024;
	else
		bytes = (uint64) NBuffers * BLCKSZ / CB_HEAT_DEFAULT_PART;
	return Max(bytes / (CB_HEAT_SLOT_UNIT * sizeof(CbHeatSlot)), 1) *
		CB_HEAT_SLOT_UNIT;
}

static Size
cb_heat_shmem_size(uint64 nslots)
{
	Size		size = add_size(sizeof(CbHeatShared), PG_CACHE_LINE_SIZE);

	return add_size(size, mul_size(nslots, sizeof(CbHeatSlot)));
}

/* Asks for the map's memory, if heat is kept; from shmem_request_hook. */
void
cb_heat_shmem_request(void)
{
	uint64		nslots = cb_heat_count_slots();

	if (nslots > 0)
		RequestAddinShmemSpace(cb_heat_shmem_size(nslots));
}

/* Sets up or attaches to the map, if heat is kept; from shmem_startup_hook. */
void
cb_heat_shmem_startup(void)
{
	uint64		nslots = cb_heat_count_slots();
	bool		found;

	if (nslots == 0)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_heat_shared = ShmemInitStruct("cache_batch heat",
									 cb_heat_shmem_size(nslots), &found);
	if (!found)
	{
		char	   *slots = (char *) (cb_heat_shared + 1);

		cb_heatmap_init(&cb_heat_shared->map,
						(CbHeatSlot *) TYPEALIGN(PG_CACHE_LINE_SIZE, slots),
						nslots);
		cb_store_relaxed(&cb_heat_shared->due,
						 (uint64) TimestampTzPlusMilliseconds(cb_clock_now(),
															  cb_heat_epoch * INT64CONST(1000)));
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Is any heat kept?  False: heat_size is 0, or the library not preloaded. */
bool
cb_heat_is_kept(void)
{
	return cb_heat_shared != NULL;
}

static CbHeatSlot *
cb_heat_slot(Relation rel, BlockNumber block)
{
	uint64		file = (uint64) rel->rd_locator.dbOid << 32 | rel->rd_locator.relNumber;

	return cb_heatmap_slot(&cb_heat_shared->map, file, block);
}

/* ---------- the clock ---------- */

/* By how many epochs one step may move the clock. */
static int64
cb_heat_max_step(void)
{
	uint64		share = cb_heat_shared->map.nslots / CB_HEAT_SWEEP_EPOCHS;

	return Max(1, Min(CB_HEAT_STEP_SLOTS / share, CB_HEAT_MAX_STEP));
}

/*
 * Moves the clock if an epoch is over, by one step.  Of those who find so, one
 * does it.  True: it may be that more are over.
 */
static bool
cb_heat_tick(void)
{
	int64		length = cb_heat_epoch * USECS_PER_SEC;
	TimestampTz now = cb_clock_now();
	uint64		seen = cb_load_relaxed(&cb_heat_shared->due);
	TimestampTz due = (TimestampTz) seen;
	int64		n = 0;

	if (likely(now < due && due - now <= length))
		return false;
	if (now < due)
		due = now + length;		/* time or setting were set back */
	else
	{
		/* after longer than that everything is forgotten anyway */
		due = Max(due, now - 2 * CB_HEAT_NEVER * length);
		n = Min((now - due) / length + 1, cb_heat_max_step());
		due += n * length;
	}
	if (cb_swap_if(&cb_heat_shared->due, &seen, (uint64) due))
		cb_heatmap_advance(&cb_heat_shared->map, (uint32) n);
	return due <= now;
}

static inline uint32
cb_heat_now(void)
{
	uint32		clock = cb_heatmap_clock(&cb_heat_shared->map);

#ifdef CB_TESTPOINTS
	clock += cb_test_heat_ahead;
#endif
	return clock;
}

/*
 * Brings the clock up to date; epochs since the start of the server.  What is
 * CB_HEAT_NEVER old was not accessed in so many epochs, if they are fewer.
 *
 * May look at many slots if the clock has stood still for long, so not with
 * pages locked.  0 if no heat is kept.
 */
uint32
cb_heat_clock(void)
{
	if (cb_heat_shared == NULL)
		return 0;
	while (cb_heat_tick())
		;
	return cb_heat_now();
}

/* ---------- accesses ---------- */

/* Notes until the next that is sampled: 1 to twice the rate, less 1. */
static int
cb_heat_draw(CbHeatKind kind)
{
	int			rate = cb_heat_rates[kind];

#ifdef CB_TESTPOINTS
	if (cb_test_heat_rate > 0)
		rate = cb_test_heat_rate;
#endif
	return 1 + pg_prng_uint32(&pg_global_prng_state) % (2 * rate - 1);
}

/*
 * cb_heat_note()'s part for a note whose turn it is: notes the access, and
 * draws when the next one is to be sampled.  Moves the clock by one step at
 * most, so it may be called with pages locked and in critical sections.
 */
void
cb_heat_sample(Relation rel, BlockNumber block, CbHeatKind kind)
{
	bool		first = !cb_heat_begun[kind];

	cb_heat_begun[kind] = true;
	cb_heat_left[kind] = cb_heat_draw(kind);

	/* a backend's first visit is no likelier to be sampled than others */
	if (cb_heat_shared == NULL || (first && cb_heat_left[kind] > 1))
		return;
	(void) cb_heat_tick();
	cb_heatmap_note(cb_heat_slot(rel, block), kind, cb_heat_now());
}

/* The leaf will be needed: it counts as read and written at present. */
void
cb_heat_touch(Relation rel, BlockNumber block)
{
	if (cb_heat_shared == NULL)
		return;
	for (int kind = 0; kind < CB_HEAT_KINDS; kind++)
		cb_heatmap_note(cb_heat_slot(rel, block), (CbHeatKind) kind,
						cb_heat_now());
}

/* A page takes over entries of a leaf: it is as warm, unless it is warmer. */
void
cb_heat_inherit(Relation rel, BlockNumber block, BlockNumber from)
{
	if (cb_heat_shared != NULL)
		cb_heatmap_inherit(cb_heat_slot(rel, block), cb_heat_slot(rel, from),
						   cb_heat_now());
}

/*
 * Epochs, at this time of the clock, since the latest sampled access to the
 * leaf or to another that shares its slot; or CB_HEAT_NEVER, also if no heat
 * is kept.
 */
uint32
cb_heat_age(Relation rel, BlockNumber block, CbHeatKind kind, uint32 clock)
{
	if (cb_heat_shared == NULL)
		return CB_HEAT_NEVER;
	return cb_heatmap_age(cb_heat_slot(rel, block), kind, clock);
}
