/*-------------------------------------------------------------------------
 *
 * cb_resume.c
 *	  What is done once in each database after a start of the server.
 *
 * A crash, a restart or a promotion leaves in the journal alone what was in
 * buckets, and an index gets buckets only by somebody who uses it.  So the
 * launcher has each database visited: a worker, when it has no request to
 * serve, looks at the next of the database's cachebatch indexes, in the order
 * of their OIDs.  One whose journal has entries gets its buckets, as by an
 * insertion, and a request that moves down what lies below them, with rests
 * (cb_sweep.c).  What sessions of the database ask for goes first.
 *
 * All that is what any session may do at any time, so it needs no argument of
 * its own, and nothing depends on it: an index that is left out, as it is
 * locked, or damaged, or there is no bucket set for it, or another index takes
 * that before it is emptied, waits for its first user, as do those of a database
 * that no worker can connect to.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "commands/defrem.h"
#include "flush/cb_flush.h"
#include "flush/cb_worker.h"
#include "journal/cb_journal.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* ---------- what there is ---------- */

/* The access method; Invalid: the extension is not in this database. */
static Oid
cb_resume_find_am(void)
{
	return get_index_am_oid("cachebatch", true);
}

static List *
cb_resume_append(List *list, Oid oid, MemoryContext cxt)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);

	list = lappend_oid(list, oid);
	MemoryContextSwitchTo(oldcxt);
	return list;
}

static int
cb_resume_compare_down(const ListCell *a, const ListCell *b)
{
	return list_oid_cmp(b, a);
}

/* Not if a DROP DATABASE has begun, and came to a bad end. */
static bool
cb_resume_is_valid(Form_pg_database database)
{
#ifdef DATCONNLIMIT_INVALID_DB
	return database->datconnlimit != DATCONNLIMIT_INVALID_DB;
#else
	return true;
#endif
}

/*
 * The databases that can be connected to: OIDs, in a list in the current memory
 * context.  In no transaction.
 */
List *
cb_resume_list_databases(void)
{
	MemoryContext cxt = CurrentMemoryContext;
	List	   *found = NIL;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);

		if (database->datallowconn && cb_resume_is_valid(database))
			found = cb_resume_append(found, database->oid, cxt);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	MemoryContextSwitchTo(cxt);
	return found;
}

/*
 * The cachebatch indexes of this database with greater OIDs than that, but temporary
 * ones: OIDs, the least one last, in a list in TopMemoryContext.  In a transaction.
 */
List *
cb_resume_list_indexes(Oid after)
{
	Oid			am = cb_resume_find_am();
	List	   *found = NIL;
	Relation	rel;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (!OidIsValid(am))
		return NIL;
	rel = table_open(RelationRelationId, AccessShareLock);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class class = (Form_pg_class) GETSTRUCT(tuple);

		if (class->relam == am && class->relkind == RELKIND_INDEX &&
			class->relpersistence != RELPERSISTENCE_TEMP && class->oid > after)
			found = cb_resume_append(found, class->oid, TopMemoryContext);
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	list_sort(found, cb_resume_compare_down);
	return found;
}

/* ---------- an index ---------- */

/* Has the journal entries? */
static bool
cb_resume_is_wanted(Relation rel)
{
	CbJournalWalk walk;
	Page		page;
	bool		wanted;

	cb_walk_begin_at_tail(&walk, rel);
	if (walk.block == InvalidBlockNumber)
		return false;
	page = cb_walk_lock(&walk);
	if (page == NULL)
		return true;			/* the tail has moved: it is in use */
	wanted = walk.next != InvalidBlockNumber ||
		((PageHeader) page)->pd_lower > CbPosOff(walk.tail);
	cb_walk_unlock(&walk);
	return wanted;
}

/* Gives the index buckets, and asks for what lies below them. */
static void
cb_resume_attach(Relation rel)
{
	CbKeyDesc	kd;
	CbBucketSet *set;

	cb_key_init(&kd, rel);
	set = cb_set_attach(&kd, true);
	if (set != NULL)
		cb_flush_request_before(set);
}

/*
 * Takes up an index, which may be gone, if its journal has entries.  In a
 * transaction, with which the lock goes; waits for no lock on the index.
 */
void
cb_resume_index(Oid indexoid)
{
	Relation	rel;
	CbOwnerMark mark;

	if (!ConditionalLockRelationOid(indexoid, AccessShareLock))
		return;
	rel = try_relation_open(indexoid, NoLock);
	if (rel == NULL)
		return;
	if (rel->rd_rel->relkind == RELKIND_INDEX &&
		rel->rd_rel->relam == cb_resume_find_am() &&
		rel->rd_index->indisready && cb_resume_is_wanted(rel))
	{
		cb_owner_begin(rel, &mark);
		PushActiveSnapshot(GetTransactionSnapshot());
		cb_resume_attach(rel);
		PopActiveSnapshot();
		cb_owner_end(&mark);
	}
	relation_close(rel, NoLock);
}
