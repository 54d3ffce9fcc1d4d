/*-------------------------------------------------------------------------
 *
 * cb_compat.h
 *	  The one place for differences between server versions.
 *
 * The sources speak the newest version's language; what older ones lack, or
 * call otherwise, is defined here, the version that made the difference first.
 * Where versions differ in what has to be done, and not in names alone, the
 * place that does it tells them apart itself.
 *
 * nbtree.h is included here because cache_batch uses, and does not copy,
 * what the server already has and exports there: the pivot tuple format and
 * the registry of vacuum cycle ids.  Neither looks at a page.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_COMPAT_H
#define CB_COMPAT_H

#include "postgres.h"

#include "access/nbtree.h"
#include "utils/rel.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "cache_batch needs PostgreSQL 15, 16, 17 or 18"
#endif

/*
 * 16: relations' files have locators; macros for varlenas have a header of
 * their own; one check of ownership is for objects of all kinds; pages that go
 * past the buffer manager are aligned for direct I/O; tuplesort copies a datum
 * only if asked to; settings have memory of their own; conflicts of recovery
 * tell whether logical decoding reads the table; pg_stat_io is new.
 */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#else
#include "catalog/pg_class_d.h"
#include "catalog/pg_database_d.h"
#include "storage/standby.h"
#include "utils/acl.h"
#include "utils/tuplesort.h"

#define RelFileLocator RelFileNode
#define RelFileLocatorEquals RelFileNodeEquals
#define rd_locator rd_node
#define rd_newRelfilelocatorSubid rd_newRelfilenodeSubid
#define rd_firstRelfilelocatorSubid rd_firstRelfilenodeSubid
#define spcOid spcNode
#define dbOid dbNode
#define relNumber relNode
#define BufTagGetForkNum(tag) ((tag)->forkNum)
#define BufTagMatchesRelFileLocator(tag, locator) \
	RelFileNodeEquals((tag)->rnode, *(locator))

#define PGIOAlignedBlock PGAlignedBlock
#define PG_IO_ALIGN_SIZE MAXIMUM_ALIGNOF
#define palloc_aligned(size, alignto, flags) palloc_extended(size, flags)

#define tuplesort_getdatum(state, forward, copy, val, isnull, abbrev) \
	tuplesort_getdatum(state, forward, val, isnull, abbrev)
#define pgstat_count_io_op(object, context, op, cnt, bytes) ((void) 0)
#define guc_malloc(elevel, size) malloc(size)
#define guc_strdup(elevel, string) strdup(string)
#define guc_free(p) free(p)
#define ResolveRecoveryConflictWithSnapshot(horizon, is_catalog, locator) \
	ResolveRecoveryConflictWithSnapshot(horizon, locator)

/* Is the object, of pg_class or pg_database, the role's? */
static inline bool
object_ownercheck(Oid classid, Oid objectid, Oid roleid)
{
	Assert(classid == RelationRelationId || classid == DatabaseRelationId);
	return classid == RelationRelationId ? pg_class_ownercheck(objectid, roleid) :
		pg_database_ownercheck(objectid, roleid);
}
#endif

/*
 * 17: old_snapshot_threshold is gone; a process's number is its place; who asks
 * how much memory a parallel scan takes says for how many keys.
 */
#if PG_VERSION_NUM >= 170000
#define CB_ESTIMATE_PARALLEL_PARAMETERS int nkeys, int norderbys
#define OldSnapshotThresholdActive() false
#define TestForOldSnapshot(snapshot, relation, page) ((void) 0)
#else
#define GetNumberFromPGProc(proc) ((proc)->pgprocno)
#define CB_ESTIMATE_PARALLEL_PARAMETERS void
#endif

/*
 * 18: whoever sleeps for a cost limit says whether it is ANALYZE; ExecutorRun()
 * does not say any more whether the plan is executed once; a function that does
 * not return says so first; who asks how much memory a parallel scan takes says
 * of which index; that memory has counters of the scan's, too; a header declares
 * the setting of failed checksums; pg_stat_io counts bytes.
 */
#if PG_VERSION_NUM >= 180000
#undef CB_ESTIMATE_PARALLEL_PARAMETERS
#define CB_ESTIMATE_PARALLEL_PARAMETERS Relation index, int nkeys, int norderbys
#define CB_EXECUTE_ONCE_PARAMETER
#define CB_EXECUTE_ONCE
#else
#define ps_offset_am ps_offset
#define vacuum_delay_point(is_analyze) vacuum_delay_point()
#define pg_noreturn __attribute__((noreturn))
#define CB_EXECUTE_ONCE_PARAMETER , bool execute_once
#define CB_EXECUTE_ONCE , execute_once
extern PGDLLIMPORT bool ignore_checksum_failure;
#if PG_VERSION_NUM >= 160000
#include "pgstat.h"
#define pgstat_count_io_op(object, context, op, cnt, bytes) \
	pgstat_count_io_op_n(object, context, op, cnt)
#endif
#endif

/*
 * 18: a unique index need not be a btree.  Before, the server looks for btree's
 * equality in it, and one of another access method breaks every ON CONFLICT on
 * its table (C7).
 */
#define CB_HAS_UNIQUE (PG_VERSION_NUM >= 180000)

#endif							/* CB_COMPAT_H */
