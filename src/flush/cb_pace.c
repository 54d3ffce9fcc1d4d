/*-------------------------------------------------------------------------
 *
 * cb_pace.c
 *	  Flushes give way to scans.
 *
 * Where an index is much larger than memory, flushes and look-ups wait for the
 * same storage and processors.  A flush keeps both busy, while a look-up asks for
 * a page at a time, and would get what is left over.  So a worker pauses for each
 * scan that began while it worked, in indexes with range buffers, and who brings
 * large batches waits for room meanwhile rather than to flush for himself.
 *
 * All of it is bounded, and a matter of speed only: a pause by the time that was
 * worked before, and it ends when the pool is nearly full, so that single rows
 * find room; a wait for room by CB_PACE_ROOM_US.  A worker pauses between two
 * transactions, with no lock, snapshot or chunk; a session waits with what its
 * transaction holds, as when it flushes itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "flush/cb_pace.h"
#include "flush/cb_worker.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

/*
 * A pause is so many times as long as what went before, at most.  With 4, look-ups
 * beside a bulk load had 0.83 of those beside a btree's load (test/bench,
 * tight-ingest-1, 0.19 without pauses), and it had a quarter of its speed.
 */
#define CB_PACE_FACTOR		4

/* shorter pauses are put off, longer ones cut short */
#define CB_PACE_MIN_US		1000
#define CB_PACE_MAX_US		400000

/* how long a session waits for room, and how often it looks */
#define CB_PACE_ROOM_US		200000
#define CB_PACE_LOOK_MS		1

void
cb_pace_note_scan(void)
{
	if (cb_pool != NULL)
		(void) cb_fetch_add(&cb_pool->scans, 1);
}

void
cb_pace_begin(CbPace *pace)
{
	INSTR_TIME_SET_CURRENT(pace->began);
	pace->scans_before = cb_load_relaxed(&cb_pool->scans);
}

void
cb_pace_end(CbPace *pace)
{
	pace->worked += cb_pace_since(pace->began);
	pace->scans += cb_load_relaxed(&cb_pool->scans) - pace->scans_before;
}

int64
cb_pace_take_pause(CbPace *pace)
{
	double		wanted = pace->scans * cb_scan_delay * 1000.0;
	double		most = (double) pace->worked * CB_PACE_FACTOR;
	double		pause = Min(Min(wanted, most), CB_PACE_MAX_US);

	if (pause < CB_PACE_MIN_US)
		return 0;
	pace->worked = 0;
	pace->scans = 0;
	return pause;
}

/* Does a worker of this database pause?  A hint. */
static bool
cb_pace_is_pausing(void)
{
	for (int i = 0; cb_workers != NULL && i < cb_max_workers; i++)
	{
		CbWorker   *worker = &cb_workers->workers[i];

		if (worker->dboid == MyDatabaseId &&
			pg_atomic_read_u32(&worker->state) == CB_WORKER_PAUSING)
			return true;
	}
	return false;
}

bool
cb_pace_wait_for_room(void)
{
	instr_time	start;

	if (!cb_pace_is_pausing())
		return false;
	CB_TEST_POINT("pace-wait");
	INSTR_TIME_SET_CURRENT(start);
	while (cb_pool_is_very_low())
	{
		if (cb_pace_since(start) > CB_PACE_ROOM_US || !cb_queue_is_served())
			return false;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 CB_PACE_LOOK_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}
