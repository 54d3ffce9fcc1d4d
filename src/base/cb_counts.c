/*-------------------------------------------------------------------------
 *
 * cb_counts.c
 *	  The counts of cb_counts.h in shared memory: 24 kB.
 *
 * They begin at 1.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_counts.h"

#include "access/xlog.h"
#include "core/cb_atomic.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define CB_COUNTS_SLOTS		1024

typedef struct CbCountsSlot
{
	cb_atomic64 journal;
	cb_atomic64 removals;
	cb_atomic64 reuses;
} CbCountsSlot;

static CbCountsSlot *cb_counts_slots = NULL;

/* Asks for the counts' memory; from shmem_request_hook. */
void
cb_counts_shmem_request(void)
{
	RequestAddinShmemSpace(CB_COUNTS_SLOTS * sizeof(CbCountsSlot));
}

/* Sets up or attaches to the counts; from shmem_startup_hook. */
void
cb_counts_shmem_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_counts_slots = ShmemInitStruct("cache_batch counts",
									  CB_COUNTS_SLOTS * sizeof(CbCountsSlot),
									  &found);
	for (int i = 0; !found && i < CB_COUNTS_SLOTS; i++)
	{
		cb_store_relaxed(&cb_counts_slots[i].journal, 1);
		cb_store_relaxed(&cb_counts_slots[i].removals, 1);
		cb_store_relaxed(&cb_counts_slots[i].reuses, 1);
	}
	LWLockRelease(AddinShmemInitLock);
}

static inline CbCountsSlot *
cb_counts_slot(Oid file)
{
	return &cb_counts_slots[file % CB_COUNTS_SLOTS];
}

/*
 * Counts what has happened to a file: a set of CbCount.  Pages are as a record
 * that is replayed leaves them, or, of a reuse, are yet to change.  Of a bulk
 * delete the tiers above the tree have been emptied, and nothing is deleted
 * yet.  An acquire and a release; takes no lock, cannot fail.
 */
void
cb_counts_add(Oid file, int counts)
{
	CbCountsSlot *slot = cb_counts_slot(file);

	if (counts & CB_COUNT_JOURNAL)
		cb_fetch_add(&slot->journal, 1);
	if (counts & CB_COUNT_REMOVALS)
		cb_fetch_add(&slot->removals, 1);
	if (counts & CB_COUNT_REUSES)
		cb_fetch_add(&slot->reuses, 1);
}

/*
 * What has been counted for the index since the server's start, from 1 on.  No
 * read moves from one side of the call to the other.  Takes no lock.
 */
uint64
cb_counts_journal(Relation index)
{
	pg_read_barrier();
	return cb_load_acquire(&cb_counts_slot(index->rd_locator.relNumber)->journal);
}

/*
 * The same, of what may have taken entries out whose rows can be gone: bulk
 * deletes that have begun, and records of removals that were replayed.
 */
uint64
cb_counts_removals(Relation index)
{
	pg_read_barrier();
	return cb_load_acquire(&cb_counts_slot(index->rd_locator.relNumber)->removals);
}

/*
 * The same, of deleted pages used again; 0 where there is no recovery, or not
 * any more.  A link of the tree is good for as long as this is what it was at a
 * moment when the page that has the link was in the tree, or, of 0, for as long
 * as the caller's snapshot or transaction id, which is from before that moment,
 * is held.  Asked with a page locked, it says so of that page until it is
 * unlocked.
 */
uint64
cb_counts_reuses(Relation index)
{
	if (likely(!RecoveryInProgress()))
		return 0;
	pg_read_barrier();
	return cb_load_acquire(&cb_counts_slot(index->rd_locator.relNumber)->reuses);
}
