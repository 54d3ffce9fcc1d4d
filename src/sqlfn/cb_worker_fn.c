/*-------------------------------------------------------------------------
 *
 * cb_worker_fn.c
 *	  Flush workers as a SQL function, below cache_batch_stat_workers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "catalog/pg_authid.h"
#include "flush/cb_worker.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(cache_batch_stat_get_workers);

static void
cb_worker_fn_put(const CbWorkerRow *row, bool show_error, ReturnSetInfo *rsinfo)
{
	Datum		values[10] = {0};
	bool		nulls[10] = {false};
	bool		is_worker = row->pid != 0;
	bool		failed = row->error_at != 0;

	values[0] = Int32GetDatum(row->pid);
	nulls[0] = !is_worker;
	values[1] = ObjectIdGetDatum(row->dboid);
	values[2] = CStringGetTextDatum(row->state);
	values[3] = ObjectIdGetDatum(row->indexoid);
	nulls[3] = !OidIsValid(row->indexoid);
	values[4] = Int64GetDatum((int64) row->pending);
	nulls[4] = is_worker;
	values[5] = Int64GetDatum((int64) row->requests);
	values[6] = Int64GetDatum((int64) row->entries);
	nulls[7] = nulls[8] = !failed || !show_error;
	if (!nulls[7])
	{
		values[7] = CStringGetTextDatum(unpack_sql_state(row->error_code));
		values[8] = CStringGetTextDatum(row->error);
	}
	values[9] = TimestampTzGetDatum(cb_clock_to_timestamptz(row->error_at));
	nulls[9] = !failed;
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * cache_batch_stat_get_workers(): one row for each worker, and one, with a
 * null pid, for each database that has asked for one.  What an error says may
 * quote data of a table, so it is shown to those who may read all statistics.
 */
Datum
cache_batch_stat_get_workers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		show_error = has_privs_of_role(GetUserId(),
											   ROLE_PG_READ_ALL_STATS);
	CbWorkerRow *rows;
	int			n;

	cb_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	rows = cb_worker_list(&n);
	for (int i = 0; i < n; i++)
		cb_worker_fn_put(&rows[i], show_error, rsinfo);
	pfree(rows);

	return (Datum) 0;
}
