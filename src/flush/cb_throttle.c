/*-------------------------------------------------------------------------
 *
 * cb_throttle.c
 *	  Flushes give way to scans.
 *
 * Where an index is much larger than memory, flushes and look-ups wait for the
 * same storage and processors.  A flush keeps both busy, while a look-up asks
 * for a page at a time, and would get what is left over.  So when a worker has
 * worked in indexes with range buffers, workers pause for each scan that began
 * meanwhile, all of them until the same moment, and sessions with large batches
 * wait for room and do not flush themselves.
 *
 * All of it is bounded, and a matter of speed only: a pause by the time that
 * was worked before, and it ends when the pool is nearly full, so that single
 * rows find room; a wait for room by CB_THROTTLE_ROOM_US.  A pause is put off
 * only by those who were within a transaction when it began.  A worker pauses
 * between two transactions, with no lock, snapshot or chunk; a session waits
 * with what its transaction holds, as when it flushes itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "flush/cb_throttle.h"
#include "flush/cb_worker.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

/*
 * A pause is so many times as long as what went before, at most.  With 5,
 * look-ups beside a bulk load had 1.07 of those beside a btree's load
 * (test/bench, tight-ingest-1; 0.19 without pauses), and it had a fifth of its
 * speed.
 */
#define CB_THROTTLE_FACTOR		5

/* shorter pauses are put off, longer ones cut short */
#define CB_THROTTLE_MIN_US		1000
#define CB_THROTTLE_MAX_US		500000

/* how long a session waits for room, and how often it looks */
#define CB_THROTTLE_ROOM_US		CB_THROTTLE_MAX_US
#define CB_THROTTLE_LOOK_MS		1

/*
 * Counts that a scan begins in a range that has runs.  One atomic addition; no
 * lock, no error, and nothing if there are no buckets.
 */
void
cb_throttle_note_scan(void)
{
	if (cb_pool != NULL)
		(void) cb_fetch_add(&cb_pool->scans, 1);
}

/* Microseconds, by a clock that nobody sets and that all processes share. */
static int64
cb_throttle_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return INSTR_TIME_GET_MICROSEC(now);
}

/*
 * Around a worker's transaction: cb_throttle_begin() before it,
 * cb_throttle_end() after.  Workers only, since cb_pool and cb_workers must
 * exist.  Neither takes a lock or raises an error.
 */
void
cb_throttle_begin(CbThrottle *throttle)
{
	throttle->began = cb_throttle_now();
	throttle->scans_before = cb_load_relaxed(&cb_pool->scans);
}

/*
 * If the worker has more to do, all workers pause for the scans that began in
 * its time: scan_delay for each, but CB_THROTTLE_FACTOR times what was worked
 * at most.  A pause that would be too short is saved up in *throttle.  A
 * worker that has no more to do rests by itself, so it asks for none.
 */
void
cb_throttle_end(CbThrottle *throttle, bool more)
{
	if (more)
	{
		int64		now = cb_throttle_now();
		double		pause;

		throttle->worked += now - throttle->began;
		throttle->scans += cb_load_relaxed(&cb_pool->scans) - throttle->scans_before;
		pause = Min(throttle->scans * cb_scan_delay * 1000.0,
					(double) throttle->worked * CB_THROTTLE_FACTOR);
		if (pause < CB_THROTTLE_MIN_US)
			return;
		cb_worker_raise(&cb_workers->pause_until,
						 now + (int64) Min(pause, CB_THROTTLE_MAX_US));
	}
	throttle->worked = 0;
	throttle->scans = 0;
}

/*
 * Microseconds for which a worker should pause now; 0: it should go on.  A
 * look without locks.
 */
int64
cb_throttle_left(void)
{
	int64		left;

	if (cb_scan_delay == 0)
		return 0;
	left = pg_atomic_read_u64(&cb_workers->pause_until) - cb_throttle_now();
	return Max(left, 0);
}

/* Does a worker of this database pause?  A hint. */
static bool
cb_throttle_is_pausing(void)
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

/*
 * Waits until the pool is not very low any more, CB_THROTTLE_ROOM_US at most,
 * if a worker of this database pauses.  False: there is no room, or none that
 * pauses, so the caller should help itself.  No LWLock is held, but what the
 * transaction holds stays held; interrupts are served, so a cancel raises an
 * error.
 */
bool
cb_throttle_wait_for_room(void)
{
	int64		start;

	if (!cb_throttle_is_pausing())
		return false;
	CB_TEST_POINT("throttle-wait");
	start = cb_throttle_now();
	while (cb_pool_is_very_low())
	{
		if (cb_throttle_now() - start > CB_THROTTLE_ROOM_US || !cb_queue_is_served())
			return false;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 CB_THROTTLE_LOOK_MS, cb_wait_event(CB_WAIT_POOL_ROOM));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	return true;
}
