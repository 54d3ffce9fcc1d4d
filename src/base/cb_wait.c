/*-------------------------------------------------------------------------
 *
 * cb_wait.c
 *	  Wait events: what pg_stat_activity says that a process waits for.
 *
 * Before version 17 the server has one wait event for all extensions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "utils/wait_event.h"

/* The wait event, for WaitLatch() and its like. */
uint32
cb_wait_event(CbWait wait)
{
#if PG_VERSION_NUM >= 170000
	static const char *const names[] = {
		[CB_WAIT_LAUNCHER_MAIN] = "CacheBatchLauncherMain",
		[CB_WAIT_WORKER_MAIN] = "CacheBatchWorkerMain",
		[CB_WAIT_WORKER_PAUSE] = "CacheBatchWorkerPause",
		[CB_WAIT_WORKERS_LEAVE] = "CacheBatchWorkersLeave",
		[CB_WAIT_FLUSH] = "CacheBatchFlush",
		[CB_WAIT_POOL_ROOM] = "CacheBatchPoolRoom",
		[CB_WAIT_SHARED_COPY] = "CacheBatchSharedCopy",
		[CB_WAIT_TURN] = "CacheBatchParallelScan"
	};
	static uint32 events[lengthof(names)];

	if (events[wait] == 0)
		events[wait] = WaitEventExtensionNew(names[wait]);
	return events[wait];
#else
	return PG_WAIT_EXTENSION;
#endif
}
