/*-------------------------------------------------------------------------
 *
 * cb_bulkdel.c
 *	  The counts of cb_bulkdel.h in shared memory: 8 kB.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_bulkdel.h"

#include "core/cb_atomic.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define CB_BULKDEL_SLOTS	1024

static cb_atomic64 *cb_bulkdel_slots = NULL;

/* Asks for the counts' memory; from shmem_request_hook. */
void
cb_bulkdel_shmem_request(void)
{
	RequestAddinShmemSpace(CB_BULKDEL_SLOTS * sizeof(cb_atomic64));
}

/* Sets up or attaches to the counts; from shmem_startup_hook. */
void
cb_bulkdel_shmem_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_bulkdel_slots = ShmemInitStruct("cache_batch bulk deletes",
									   CB_BULKDEL_SLOTS * sizeof(cb_atomic64),
									   &found);
	if (!found)
		memset(cb_bulkdel_slots, 0, CB_BULKDEL_SLOTS * sizeof(cb_atomic64));
	LWLockRelease(AddinShmemInitLock);
}

static inline cb_atomic64 *
cb_bulkdel_slot(Relation index)
{
	return &cb_bulkdel_slots[index->rd_locator.relNumber % CB_BULKDEL_SLOTS];
}

/*
 * Counts a bulk delete: the levels above the tree have been emptied, and
 * nothing is deleted yet.  An acquire and a release; takes no lock and raises
 * no error.
 */
void
cb_bulkdel_begin(Relation index)
{
	cb_fetch_add(cb_bulkdel_slot(index), 1);
}

/*
 * Bulk deletes since the server's start, of this index or of another that
 * shares its slot.  No read moves from one side of the call to the other.
 * Takes no lock.
 */
uint64
cb_bulkdel_count(Relation index)
{
	pg_read_barrier();
	return cb_load_acquire(cb_bulkdel_slot(index));
}
