/*-------------------------------------------------------------------------
 *
 * cb_sqlfn.c
 *	  Opening an index for an SQL function: is it one of ours, and may the
 *	  user?
 *
 * The functions' own privileges say who may call them at all.  Those that
 * change an index, or run its functions, are its owner's besides.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xlog.h"
#include "am/cb_am.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "sqlfn/cb_sqlfn.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

/*
 * Is it an index, or a partitioned one, with our callbacks?  There can be
 * several access methods with one handler.  The relation is open.
 */
bool
cb_sqlfn_is_ours(Relation rel)
{
	return rel->rd_indam != NULL && rel->rd_indam->ambuild == cb_am_build;
}

/*
 * Opens an index with that lock.  Raises an error if it is none of ours, is
 * another session's, or has never been built, or if the library was not
 * preloaded.  The caller closes it; who the user is, is not looked at.
 */
Relation
cb_sqlfn_open_index(Oid indexoid, LOCKMODE lockmode)
{
	Relation	rel;

	cb_require_preload();

	rel = try_relation_open(indexoid, lockmode);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("could not open relation with OID %u", indexoid)));
	if (rel->rd_rel->relkind != RELKIND_INDEX || !cb_sqlfn_is_ours(rel))
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

static void
cb_sqlfn_check_owner(Oid oid)
{
	if (!object_ownercheck(RelationRelationId, oid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, get_rel_name(oid));
}

/*
 * The same for an index of the user's, or raises an error.  That is seen
 * before a lock is taken, as one that is waited for keeps others away, too;
 * and once more when the lock is there, as the owner may be another one by
 * then.
 */
Relation
cb_sqlfn_open_own_index(Oid indexoid, LOCKMODE lockmode)
{
	Relation	rel;

	cb_sqlfn_check_owner(indexoid);
	rel = cb_sqlfn_open_index(indexoid, lockmode);
	cb_sqlfn_check_owner(indexoid);
	return rel;
}

/*
 * The same, with its table, which is locked first, so as not to deadlock.
 * *table is open, too, and not NULL on return: raises an error if there is
 * none.
 */
Relation
cb_sqlfn_open_own_with_table(Oid indexoid, LOCKMODE lockmode,
							 LOCKMODE table_lockmode, Relation *table)
{
	Oid			tableoid;
	Relation	rel;

	cb_sqlfn_check_owner(indexoid);
	tableoid = IndexGetRelation(indexoid, true);
	*table = OidIsValid(tableoid) ? table_open(tableoid, table_lockmode) : NULL;
	rel = cb_sqlfn_open_own_index(indexoid, lockmode);
	if (*table == NULL || rel->rd_index->indrelid != tableoid)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("could not open parent table of index \"%s\"",
						RelationGetRelationName(rel))));
	return rel;
}

/* Raises an error if recovery is in progress; names the function. */
void
cb_sqlfn_check_primary(const char *function)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("recovery is in progress"),
				 errhint("%s() cannot be executed during recovery.", function)));
}
