/*-------------------------------------------------------------------------
 *
 * cb_flush_fn.c
 *	  cache_batch_flush(): empties the journal of an index on request.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/xlog.h"
#include "am/cb_am.h"
#include "catalog/pg_class.h"
#include "flush/cb_flush.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "sqlfn/cb_sqlfn.h"
#include "tree/cb_tree.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(cache_batch_flush);

/*
 * An index is one of ours if it has our callbacks: there can be several access
 * methods with one handler.
 */
Relation
cb_sqlfn_open_index(Oid indexoid, LOCKMODE lockmode)
{
	Relation	rel;

	cb_require_preload();

	rel = relation_open(indexoid, lockmode);
	if (rel->rd_rel->relkind != RELKIND_INDEX ||
		rel->rd_indam->ambuild != cb_am_build)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a cachebatch index",
						RelationGetRelationName(rel))));
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary indexes of other sessions")));
	if (!rel->rd_index->indisready)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not ready",
						RelationGetRelationName(rel)),
				 errdetail("It is being built, or was left by a CREATE INDEX CONCURRENTLY or REINDEX CONCURRENTLY that failed."),
				 errhint("In the latter case, drop it or REINDEX it.")));

	return rel;
}

void
cb_sqlfn_check_primary(const char *function)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("recovery is in progress"),
				 errhint("%s() cannot be executed during recovery.", function)));
}

void
cb_sqlfn_check_owner(Oid oid)
{
	if (!pg_class_ownercheck(oid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, get_rel_name(oid));
}

/* The owner may be another one by the time that the lock is there. */
Relation
cb_sqlfn_open_own_index(Oid indexoid, LOCKMODE lockmode)
{
	Relation	rel;

	cb_sqlfn_check_owner(indexoid);
	rel = cb_sqlfn_open_index(indexoid, lockmode);
	cb_sqlfn_check_owner(indexoid);
	return rel;
}

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

	cb_owner_begin(rel, &mark);

	cb_stage_publish_index(rel);
	cb_rel_read_meta(rel, NULL, &before);
	merged = cb_flush_fn_drain(rel);
	cb_rel_read_meta(rel, NULL, &after);

	cb_owner_end(&mark);

	return merged || after.journal_tail != before.journal_tail;
}

/* cache_batch_flush(index regclass) returns boolean */
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
