/*-------------------------------------------------------------------------
 *
 * cb_stat_fn.c
 *	  Counters as SQL functions, below the view cache_batch_stat_indexes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "base/cb_base.h"
#include "flush/cb_worker.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sqlfn/cb_sqlfn.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(cache_batch_stat_get);
PG_FUNCTION_INFO_V1(cache_batch_stat_reset);
PG_FUNCTION_INFO_V1(cache_batch_stat_reset_index);

/*
 * cache_batch_stat_get(index oid, OUT ... bigint): one column for each
 * counter, in the order of CbCounter; zeros if there was nothing to count,
 * nulls if there is no place to count it.
 */
Datum
cache_batch_stat_get(PG_FUNCTION_ARGS)
{
	uint64		counters[CB_NUM_COUNTERS] = {0};
	Datum		values[CB_NUM_COUNTERS];
	bool		nulls[CB_NUM_COUNTERS] = {false};
	TupleDesc	tupdesc;
	int			i;

	cb_require_preload();

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != CB_NUM_COUNTERS)
		elog(ERROR, "cache_batch_stat_get() has an unexpected return type");

	if (!cb_stat_get(PG_GETARG_OID(0), counters))
		memset(nulls, true, sizeof(nulls));
	for (i = 0; i < CB_NUM_COUNTERS; i++)
		values[i] = Int64GetDatum((int64) counters[i]);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}

/*
 * cache_batch_stat_reset(): all counters of this database's indexes and
 * workers, its last error, and the pool's counter, which is everybody's
 */
Datum
cache_batch_stat_reset(PG_FUNCTION_ARGS)
{
	cb_require_preload();
	cb_stat_reset(InvalidOid);
	cb_worker_list_reset(MyDatabaseId);
	if (cb_pool != NULL)
		cb_store_relaxed(&cb_pool->no_room, 0);
	PG_RETURN_VOID();
}

/* cache_batch_stat_reset(index regclass): the counters of one index */
Datum
cache_batch_stat_reset_index(PG_FUNCTION_ARGS)
{
	Relation	rel = cb_sqlfn_open_index(PG_GETARG_OID(0), AccessShareLock);

	cb_stat_reset(RelationGetRelid(rel));
	relation_close(rel, AccessShareLock);
	PG_RETURN_VOID();
}
