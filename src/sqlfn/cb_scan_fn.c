/*-------------------------------------------------------------------------
 *
 * cb_scan_fn.c
 *	  cache_batch_last_scans(): what the session's last index scans took from
 *	  each tier.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_explain.h"
#include "base/cb_base.h"
#include "fmgr.h"
#include "funcapi.h"

PG_FUNCTION_INFO_V1(cache_batch_last_scans);

/*
 * cache_batch_last_scans(): one row for each, the last one first.  A scan counts
 * when it has ended, with its statement.
 */
Datum
cache_batch_last_scans(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	const CbLastScan *last;

	cb_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; (last = cb_explain_last_scan(i)) != NULL; i++)
	{
		const CbScanCounts *counts = &last->counts;
		Datum		values[] = {
			Int32GetDatum(i + 1),
			ObjectIdGetDatum(last->indexoid),
			Int64GetDatum(counts->windows),
			Int64GetDatum(cb_explain_leaves(counts)),
			Int64GetDatum(counts->cached),
			Int64GetDatum(cb_explain_leaf_entries(counts)),
			Int64GetDatum(counts->upper[CB_SOURCE_RANGE - CB_SOURCE_UPPER]),
			Int64GetDatum(counts->upper[CB_SOURCE_CHUNK - CB_SOURCE_UPPER]),
			Int64GetDatum(cb_explain_journal_entries(counts))
		};
		bool		nulls[lengthof(values)] = {false};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
