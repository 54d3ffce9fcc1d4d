/*-------------------------------------------------------------------------
 *
 * cb_vacuum.c
 *	  ambulkdelete and amvacuumcleanup.
 *
 * No resurrection (I4): before a TID is removed from the tree, whatever the
 * journal could hold of it is truncated from there.  An entry of a dead TID
 * was published before its transaction ended, so it lies below the journal's
 * head when the drain begins; the drain waits for a sweep in progress, which
 * may have read the journal before us and apply such an entry later.  Sweeps
 * that begin after the drain find only entries above that head, and none of
 * them has a TID that the callback calls dead.  Range buffers are merged after
 * the drain: those that are listed later got their entries from buckets that
 * hold none from below that head.
 *
 * Bulk deletes are counted after that: whoever finds an entry above the tree,
 * and the count as it was before, knows that its TID has not been given away
 * (I8).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_am.h"
#include "base/cb_counts.h"
#include "base/cb_progress.h"
#include "flush/cb_flush.h"
#include "range/cb_range.h"

static void
cb_vacuum_drain(IndexVacuumInfo *info)
{
	cb_flush_drain(info->index, CB_FLUSH_VACUUM);
	CB_TEST_POINT("vacuum-drained");
}

/*
 * ambulkdelete: removes the entries whose TIDs the callback calls dead, after
 * all that was published before has been moved into the tree.  Also called by
 * CREATE INDEX CONCURRENTLY and REINDEX CONCURRENTLY, with a callback that
 * collects the TIDs and calls none dead.
 *
 * The caller holds ShareUpdateExclusiveLock on the table and RowExclusiveLock
 * on the index.  Waits for flushes of others; comparison functions run.  stats
 * is the caller's, or palloc'd in the current memory context if it is NULL.
 */
IndexBulkDeleteResult *
cb_am_bulkdelete(IndexVacuumInfo *info, IndexBulkDeleteResult *stats,
				 IndexBulkDeleteCallback callback, void *callback_state)
{
	bool		begun;

	cb_require_preload();
	begun = cb_progress_begin(CB_PROGRESS_VACUUM, info->index);
	if (stats == NULL)
		stats = palloc0(sizeof(IndexBulkDeleteResult));
	CB_TEST_POINT("vacuum-begun");
	cb_vacuum_drain(info);
	(void) cb_flush_ranges(info->index);
	CB_TEST_POINT("vacuum-merged");
	cb_counts_add(info->index->rd_locator.relNumber, CB_COUNT_REMOVALS);
	CB_TEST_POINT("vacuum-counted");
	cb_progress_phase(CB_PHASE_REMOVE, 0);
	cb_tree_bulk_delete(info, stats, callback, callback_state);
	cb_progress_end(begun);
	return stats;
}

/*
 * Ranges of keys that get no entries any more are not flushed: VACUUM alone
 * comes to the pages that their runs have given up.
 */
static void
cb_vacuum_free_runs(Relation index)
{
	CbKeyDesc	kd;

	cb_key_init(&kd, index);
	cb_range_free_all(&kd);
}

/*
 * amvacuumcleanup: drains the journal even if nothing was dead.  Like btree's,
 * the leaves are not visited just to count entries; but all pages are if the
 * map may lack free ones.
 *
 * Locks as in cb_am_bulkdelete(); ANALYZE alone does nothing here.  The result
 * is stats, or palloc'd or NULL if that is NULL.
 */
IndexBulkDeleteResult *
cb_am_vacuumcleanup(IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	bool		begun;

	if (info->analyze_only)
		return stats;
	cb_require_preload();
	begun = cb_progress_begin(CB_PROGRESS_VACUUM, info->index);
	cb_vacuum_drain(info);
	cb_vacuum_free_runs(info->index);
	cb_progress_end(begun);
	if (stats == NULL)
		return cb_tree_complete_map(info);
	if (!info->estimated_count &&
		stats->num_index_tuples > info->num_heap_tuples)
		stats->num_index_tuples = info->num_heap_tuples;
	return stats;
}
