/*-------------------------------------------------------------------------
 *
 * cb_recent.c
 *	  The tables of cb_recent.h in shared memory: 16 to 32 bytes a buffer, and 8
 *	  kB.
 *
 *-------------------------------------------------------------------------
 */
#include "rel/cb_recent.h"

#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

cb_atomic64 *cb_recent_slots = NULL;
uint32		cb_recent_mask = 0;
cb_atomic64 *cb_recent_ends = NULL;

/* Two for each buffer, as pages that share a slot take it from each other. */
static uint32
cb_recent_count_slots(void)
{
	return 2 * pg_nextpower2_32(NBuffers);
}

static Size
cb_recent_shmem_size(void)
{
	return mul_size(cb_recent_count_slots() + CB_RECENT_ENDS,
					sizeof(cb_atomic64));
}

/* Asks for the tables' shared memory, when the server starts. */
void
cb_recent_shmem_request(void)
{
	RequestAddinShmemSpace(cb_recent_shmem_size());
}

/*
 * Finds or makes the tables in shared memory.  AddinShmemInitLock is not held.
 */
void
cb_recent_shmem_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_recent_slots = ShmemInitStruct("cache_batch recent places",
									  cb_recent_shmem_size(), &found);
	cb_recent_mask = cb_recent_count_slots() - 1;
	cb_recent_ends = cb_recent_slots + cb_recent_count_slots();
	if (!found)
		memset(cb_recent_slots, 0, cb_recent_shmem_size());
	LWLockRelease(AddinShmemInitLock);
}
