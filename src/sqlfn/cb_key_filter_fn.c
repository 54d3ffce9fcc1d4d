/*-------------------------------------------------------------------------
 *
 * cb_key_filter_fn.c
 *	  The filters of unique indexes, as a SQL function.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "bucket/cb_key_filter.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(cache_batch_key_filters);

static void
cb_key_filter_fn_put(const CbKeyFilterInfo *info, ReturnSetInfo *rsinfo)
{
	Datum		values[4];
	bool		nulls[4] = {false};

	values[0] = ObjectIdGetDatum(info->indexoid);
	values[1] = CStringGetTextDatum(info->state == CB_KEY_FILTER_READY ?
									"ready" : "filling");
	values[2] = Int64GetDatum(info->nbytes);
	values[3] = Int64GetDatum(info->nkeys);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* cache_batch_key_filters(): one row for each filter of the current database. */
Datum
cache_batch_key_filters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	CbKeyFilterInfo info;

	cb_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (uint32 i = 0; cb_key_filter_show(i, &info); i++)
	{
		if (info.state != CB_KEY_FILTER_NONE)
			cb_key_filter_fn_put(&info, rsinfo);
	}
	return (Datum) 0;
}
