/*-------------------------------------------------------------------------
 *
 * cb_change.c
 *	  Marking pages of the tree dirty, and the counts of that in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "rel/cb_change.h"

#include "core/cb_changes.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

static CbChanges cb_change_counts = {0, NULL};

static Size
cb_change_shmem_size(uint32 ncounts)
{
	return mul_size(ncounts, sizeof(cb_atomic64));
}

/* Asks for the shared memory of that many counts, when the server starts. */
void
cb_change_shmem_request(uint32 ncounts)
{
	RequestAddinShmemSpace(cb_change_shmem_size(ncounts));
}

/*
 * Finds or makes the counts in shared memory, as many as were asked for.  The
 * caller holds AddinShmemInitLock.
 */
void
cb_change_shmem_startup(uint32 ncounts)
{
	bool		found;
	cb_atomic64 *counts = ShmemInitStruct("cache_batch changes of pages",
										  cb_change_shmem_size(ncounts), &found);

	cb_change_counts.counts = counts;
	cb_change_counts.ncounts = ncounts;
	if (!found)
		cb_changes_init(&cb_change_counts, counts, ncounts);
}

static inline uint64
cb_change_file(RelFileLocator file)
{
	return (uint64) file.dbOid << 32 | file.relNumber;
}

/*
 * MarkBufferDirty() for pages of the tree, which are locked exclusively; redo
 * has the plain one.  Counts the change, if anybody may ask for it.  To be
 * called in the critical section that changes the page.
 */
void
cb_rel_mark_dirty(Buffer buf)
{
	RelFileLocator file;
	ForkNumber	fork;
	BlockNumber block;

	MarkBufferDirty(buf);
	if (cb_change_counts.counts == NULL || BufferIsLocal(buf))
		return;
	BufferGetTag(buf, &file, &fork, &block);
	cb_changes_note(&cb_change_counts, cb_change_file(file), block);
}

/*
 * A page's count of changes, which only grows; pages share counts, so another
 * page's change may show in it.  There are counts: cb_change_shmem_startup()
 * was called.
 *
 * No lock is needed: who compares it with an earlier count, taken while the
 * page was locked, and finds it the same, knows that the page has not changed
 * since.
 */
uint64
cb_rel_changes(Relation rel, BlockNumber block)
{
	return cb_changes_count(&cb_change_counts, cb_change_file(rel->rd_locator),
							block);
}
