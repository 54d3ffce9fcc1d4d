/*-------------------------------------------------------------------------
 *
 * cb_progress_fn.c
 *	  What processes do to indexes, as a SQL function below
 *	  cache_batch_stat_progress.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_progress.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(cache_batch_stat_get_progress);

/* May the user see what a session of this role does? */
static bool
cb_progress_fn_may_see(Oid userid)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), userid);
}

static void
cb_progress_fn_put(const CbProgressRow *row, ReturnSetInfo *rsinfo)
{
	const char *unit = cb_progress_unit(row->phase);
	Datum		values[10] = {0};
	bool		nulls[10] = {false};

	values[0] = Int32GetDatum(row->pid);
	values[1] = ObjectIdGetDatum(row->dboid);
	if (cb_progress_fn_may_see(row->userid))
	{
		values[2] = ObjectIdGetDatum(row->heapoid);
		values[3] = ObjectIdGetDatum(row->indexoid);
		values[4] = CStringGetTextDatum(cb_progress_command_name(row->command));
		values[5] = CStringGetTextDatum(cb_progress_phase_name(row->phase));
		values[6] = Int64GetDatum(row->done);
		values[7] = Int64GetDatum(row->total);
		nulls[6] = unit == NULL;
		nulls[7] = unit == NULL || row->total == CB_PROGRESS_UNKNOWN;
		nulls[8] = unit == NULL;
		if (unit != NULL)
			values[8] = CStringGetTextDatum(unit);
		values[9] = TimestampTzGetDatum(row->started_at);
	}
	else
		memset(nulls + 2, true, sizeof(nulls) - 2 * sizeof(bool));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * cache_batch_stat_get_progress(): one row for each process that is at work on
 * an index.  As in the server's progress views, everybody sees that there is
 * one, and what others do is shown to those who may read all statistics.
 */
Datum
cache_batch_stat_get_progress(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	cb_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < cb_progress_count_slots(); i++)
	{
		CbProgressRow row;

		if (cb_progress_read(i, &row))
			cb_progress_fn_put(&row, rsinfo);
	}
	return (Datum) 0;
}
