/*-------------------------------------------------------------------------
 *
 * cb_replay.c
 *	  The counts of cb_replay.h in shared memory: 24 kB.
 *
 * The startup process alone writes them.  They begin at 1.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_replay.h"

#include "access/xlog.h"
#include "core/cb_atomic.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#define CB_REPLAY_SLOTS		1024

typedef struct CbReplaySlot
{
	cb_atomic64 journal;
	cb_atomic64 removals;
	cb_atomic64 reuses;
} CbReplaySlot;

static CbReplaySlot *cb_replay_slots = NULL;

/* Asks for the counts' memory; from shmem_request_hook. */
void
cb_replay_shmem_request(void)
{
	RequestAddinShmemSpace(CB_REPLAY_SLOTS * sizeof(CbReplaySlot));
}

/* Sets up or attaches to the counts; from shmem_startup_hook. */
void
cb_replay_shmem_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_replay_slots = ShmemInitStruct("cache_batch replay",
									  CB_REPLAY_SLOTS * sizeof(CbReplaySlot),
									  &found);
	for (int i = 0; !found && i < CB_REPLAY_SLOTS; i++)
	{
		cb_store_relaxed(&cb_replay_slots[i].journal, 1);
		cb_store_relaxed(&cb_replay_slots[i].removals, 1);
		cb_store_relaxed(&cb_replay_slots[i].reuses, 1);
	}
	LWLockRelease(AddinShmemInitLock);
}

static inline CbReplaySlot *
cb_replay_slot(Oid file)
{
	return &cb_replay_slots[file % CB_REPLAY_SLOTS];
}

/*
 * Counts what a record has done to a file: a set of CbReplayKind.  Its pages are
 * as the record leaves them, or, of a reuse, are yet to change.  An acquire and a
 * release; cannot fail.
 */
void
cb_replay_count(Oid file, int kinds)
{
	CbReplaySlot *slot = cb_replay_slot(file);

	if (kinds & CB_REPLAY_JOURNAL)
		cb_fetch_add(&slot->journal, 1);
	if (kinds & CB_REPLAY_REMOVAL)
		cb_fetch_add(&slot->removals, 1);
	if (kinds & CB_REPLAY_REUSE)
		cb_fetch_add(&slot->reuses, 1);
}

/*
 * What has been counted for the index since the server's start, from 1 on.  No
 * read moves from one side of the call to the other.  Takes no lock.
 */
uint64
cb_replay_journal(Relation index)
{
	pg_read_barrier();
	return cb_load_acquire(&cb_replay_slot(index->rd_locator.relNumber)->journal);
}

uint64
cb_replay_removals(Relation index)
{
	pg_read_barrier();
	return cb_load_acquire(&cb_replay_slot(index->rd_locator.relNumber)->removals);
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
cb_replay_reuses(Relation index)
{
	if (likely(!RecoveryInProgress()))
		return 0;
	pg_read_barrier();
	return cb_load_acquire(&cb_replay_slot(index->rd_locator.relNumber)->reuses);
}
