/*-------------------------------------------------------------------------
 *
 * cb_wait.c
 *	  Wait events: what pg_stat_activity says that a process waits for.
 *
 * Before version 17 the server has one wait event for all extensions, but names
 * of LWLocks.  There a wait for others is reported as one for an LWLock of the
 * same name, which nobody takes; it is no other to those who look.  Idle
 * processes would look stuck that way, and are "Extension" there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "storage/lwlock.h"
#include "utils/wait_event.h"

static const char *const cb_wait_names[] = {
	[CB_WAIT_LAUNCHER_MAIN] = "CacheBatchLauncherMain",
	[CB_WAIT_WORKER_MAIN] = "CacheBatchWorkerMain",
	[CB_WAIT_WORKER_PAUSE] = "CacheBatchWorkerPause",
	[CB_WAIT_WORKERS_LEAVE] = "CacheBatchWorkersLeave",
	[CB_WAIT_FLUSH] = "CacheBatchFlush",
	[CB_WAIT_POOL_ROOM] = "CacheBatchPoolRoom",
	[CB_WAIT_SHARED_COPY] = "CacheBatchSharedCopy",
	[CB_WAIT_TURN] = "CacheBatchParallelScan"
};

#if PG_VERSION_NUM >= 170000

/* Nothing: names are made when they are first asked for. */
void
cb_wait_shmem_request(void)
{
}

static uint32
cb_wait_make_event(CbWait wait)
{
	return WaitEventExtensionNew(cb_wait_names[wait]);
}

#else

static inline bool
cb_wait_is_idle(CbWait wait)
{
	return wait == CB_WAIT_LAUNCHER_MAIN || wait == CB_WAIT_WORKER_MAIN;
}

/* Asks for the names of LWLocks; from shmem_request_hook. */
void
cb_wait_shmem_request(void)
{
	for (int i = 0; i < lengthof(cb_wait_names); i++)
	{
		if (!cb_wait_is_idle(i))
			RequestNamedLWLockTranche(cb_wait_names[i], 1);
	}
}

static uint32
cb_wait_make_event(CbWait wait)
{
	return cb_wait_is_idle(wait) ? PG_WAIT_EXTENSION :
		PG_WAIT_LWLOCK | GetNamedLWLockTranche(cb_wait_names[wait])->lock.tranche;
}

#endif

/* The wait event, for WaitLatch() and its like. */
uint32
cb_wait_event(CbWait wait)
{
	static uint32 events[lengthof(cb_wait_names)];

	if (events[wait] == 0)
		events[wait] = cb_wait_make_event(wait);
	return events[wait];
}
