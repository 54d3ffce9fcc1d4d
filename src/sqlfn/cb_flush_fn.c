/*-------------------------------------------------------------------------
 *
 * cb_flush_fn.c
 *	  cache_batch_flush(): brings all entries of an index to the leaves on request.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "am/cb_am.h"
#include "base/cb_progress.h"
#include "flush/cb_flush.h"
#include "fmgr.h"
#include "sqlfn/cb_sqlfn.h"
#include "tree/cb_tree.h"

PG_FUNCTION_INFO_V1(cache_batch_flush);

/* Moves all down to the tree; returns whether range buffers had entries. */
static bool
cb_flush_fn_drain(Relation rel)
{
#ifdef CB_TESTPOINTS
	if (cb_test_spill)
	{
		cb_flush_drain(rel, CB_FLUSH_DELAY);
		return false;
	}
#endif
	cb_flush_drain(rel, CB_FLUSH_REQUEST);
	return cb_flush_ranges(rel);
}

/*
 * Runs the sweep as the index's owner, since it calls comparison functions.
 * Returns whether the journal's tail moved meanwhile, or range buffers had
 * entries.
 */
static bool
cb_flush_fn_sweep(Relation rel)
{
	CbMetaPageData before;
	CbMetaPageData after;
	CbOwnerMark mark;
	bool		merged;
	bool		begun;

	cb_owner_begin(rel, &mark);
	begun = cb_progress_begin(CB_PROGRESS_FLUSH, rel);

	cb_stage_publish_index(rel);
	cb_rel_read_meta(rel, NULL, &before);
	merged = cb_flush_fn_drain(rel);
	cb_rel_read_meta(rel, NULL, &after);

	cb_progress_end(begun);
	cb_owner_end(&mark);

	return merged || after.journal_tail != before.journal_tail;
}

/*
 * cache_batch_flush(index regclass) returns boolean: were there entries to
 * move?
 *
 * The index is the user's; RowExclusiveLock on it.  Waits for flushes of
 * others, so not from within a comparison function (C11).  Comparison
 * functions run, as the index's owner.  An error in recovery.
 */
Datum
cache_batch_flush(PG_FUNCTION_ARGS)
{
	Relation	rel;
	bool		moved;

	cb_require_preload();
	cb_sqlfn_check_primary("cache_batch_flush");
	rel = cb_sqlfn_open_own_index(PG_GETARG_OID(0), RowExclusiveLock);
	moved = cb_flush_fn_sweep(rel);
	relation_close(rel, RowExclusiveLock);

	PG_RETURN_BOOL(moved);
}
