/*-------------------------------------------------------------------------
 *
 * cb_compact_fn.c
 *	  cache_batch_compact() and cache_batch_prewarm(): what a user knows of the
 *	  use of a range of keys.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "am/cb_am.h"
#include "base/cb_progress.h"
#include "flush/cb_flush.h"
#include "fmgr.h"
#include "parser/parse_coerce.h"
#include "sqlfn/cb_sqlfn.h"
#include "tree/cb_tree.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(cache_batch_compact);
PG_FUNCTION_INFO_V1(cache_batch_prewarm);

/* a range of keys, in the index's order, as the arguments say */
typedef struct CbCompactBounds
{
	CbBound		lo;
	CbBound		hi;
	CbBoundKey	keys[2];
} CbCompactBounds;

/* The bounds are of the type that the index's first column compares. */
static void
cb_compact_fn_check_type(Relation rel, Oid type)
{
	Oid			expected = rel->rd_opcintype[0];

	if (!IsBinaryCoercible(type, expected))
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("bounds of type %s do not suit index \"%s\"",
						format_type_be(type), RelationGetRelationName(rel)),
				 errhint("Its first column is compared as %s: cast them to that type.",
						 format_type_be(expected))));
}

/* A bound before or after all entries with this value in the first column. */
static void
cb_compact_fn_make_bound(Datum value, bool after, CbBoundKey *key,
						 CbBound *bound)
{
	*key = (CbBoundKey) {.value = value};
	bound->kind = CB_BOUND_KEYS;
	bound->nkeys = 1;
	bound->keys = key;
	bound->lead_kind = CB_LEAD_NONE;
	bound->after = after;
}

/* Packs, as the index's owner, since it calls comparison functions. */
static void
cb_compact_fn_execute(Relation rel, CbCompactTask *task)
{
	CbKeyDesc	kd;
	CbOwnerMark mark;
	bool		begun;

	cb_owner_begin(rel, &mark);
	begun = cb_progress_begin(CB_PROGRESS_COMPACT, rel);

	/* what waits for these leaves would soon make them split again */
	cb_stage_publish_index(rel);
	cb_flush_drain(rel, CB_FLUSH_REQUEST);
	(void) cb_flush_ranges_between(rel, &task->lo, &task->at);
	cb_key_init(&kd, rel);
	cb_progress_phase(CB_PHASE_PACK,
					  cb_tree_count_leaves_between(&kd, &task->lo, &task->at,
												   PG_INT64_MAX));
	cb_tree_compact(&kd, task);

	cb_progress_end(begun);
	cb_owner_end(&mark);
}

/* The bounds of the call; without arguments for them there are none. */
static void
cb_compact_fn_get_bounds(FunctionCallInfo fcinfo, Relation rel,
						 CbCompactBounds *bounds)
{
	int			lo_arg = 1;
	int			hi_arg = 2;

	memset(bounds, 0, sizeof(CbCompactBounds));
	bounds->lo.kind = CB_BOUND_MIN;
	bounds->hi.kind = CB_BOUND_MAX;
	if (PG_NARGS() == 1)
		return;
	cb_compact_fn_check_type(rel, get_fn_expr_argtype(fcinfo->flinfo, 1));
	if ((rel->rd_indoption[0] & INDOPTION_DESC) != 0)
	{
		lo_arg = 2;
		hi_arg = 1;
	}
	if (!PG_ARGISNULL(lo_arg))
		cb_compact_fn_make_bound(PG_GETARG_DATUM(lo_arg), false,
								 &bounds->keys[0], &bounds->lo);
	if (!PG_ARGISNULL(hi_arg))
		cb_compact_fn_make_bound(PG_GETARG_DATUM(hi_arg), true,
								 &bounds->keys[1], &bounds->hi);
}

/*
 * cache_batch_compact(index regclass) returns bigint
 * cache_batch_compact(index regclass, lo anyelement, hi anyelement) returns
 * bigint
 *
 * Returns how many leaves it has freed.  The index is the user's.
 * ShareUpdateExclusiveLock on the table, to the transaction's end, and
 * RowExclusiveLock on the index.  Comparison functions run, as the index's
 * owner.  An error in recovery, and for bounds of another type.
 */
Datum
cache_batch_compact(PG_FUNCTION_ARGS)
{
	Relation	heap;
	Relation	rel;
	CbCompactBounds bounds;
	CbCompactTask *task = palloc0(sizeof(CbCompactTask));

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	cb_require_preload();
	cb_sqlfn_check_primary("cache_batch_compact");

	/* the table's lock keeps VACUUM away, while leaves leave the tree */
	rel = cb_sqlfn_open_own_with_table(PG_GETARG_OID(0), RowExclusiveLock,
									   ShareUpdateExclusiveLock, &heap);
	cb_compact_fn_get_bounds(fcinfo, rel, &bounds);
	task->lo = bounds.lo;
	task->at = bounds.hi;
	task->budget = PG_INT64_MAX;
	cb_compact_fn_execute(rel, task);
	relation_close(rel, RowExclusiveLock);
	table_close(heap, NoLock);
	PG_RETURN_INT64(task->freed);
}

/*
 * cache_batch_prewarm(index regclass) returns bigint
 * cache_batch_prewarm(index regclass, lo anyelement, hi anyelement) returns
 * bigint
 *
 * Returns the number of leaves that it has visited.  The index is the user's;
 * AccessShareLock on it, so it may run on a standby.  Comparison functions
 * run, as the index's owner.
 */
Datum
cache_batch_prewarm(PG_FUNCTION_ARGS)
{
	Relation	rel;
	CbCompactBounds bounds;
	CbKeyDesc	kd;
	CbOwnerMark mark;
	int64		leaves;
	bool		begun;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	cb_require_preload();
	rel = cb_sqlfn_open_own_index(PG_GETARG_OID(0), AccessShareLock);
	cb_compact_fn_get_bounds(fcinfo, rel, &bounds);

	cb_owner_begin(rel, &mark);
	begun = cb_progress_begin(CB_PROGRESS_PREWARM, rel);
	cb_key_init(&kd, rel);
	cb_progress_phase(CB_PHASE_READ,
					  cb_tree_count_leaves_between(&kd, &bounds.lo, &bounds.hi,
												   PG_INT64_MAX));
	leaves = cb_tree_prewarm(&kd, &bounds.lo, &bounds.hi);
	cb_progress_end(begun);
	cb_owner_end(&mark);
	relation_close(rel, AccessShareLock);
	PG_RETURN_INT64(leaves);
}
