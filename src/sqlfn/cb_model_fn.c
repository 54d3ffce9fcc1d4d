/*-------------------------------------------------------------------------
 *
 * cb_model_fn.c
 *	  cache_batch_model(): the model of src/core as an SQL function.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "core/cb_model.h"
#include "fmgr.h"
#include "funcapi.h"

PG_FUNCTION_INFO_V1(cache_batch_model);

#define CB_MODEL_COLUMNS	15

/* raises an error unless least <= value <= most (which NaN is not) */
static double
cb_model_check(const char *name, double value, double least, double most)
{
	if (!(value >= least && value <= most))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"%s\" must be between %g and %g", name, least, most)));
	return value;
}

static double
cb_model_int8(FunctionCallInfo fcinfo, int arg, const char *name,
			  double least, double otherwise)
{
	if (PG_ARGISNULL(arg))
		return otherwise;
	return cb_model_check(name, (double) PG_GETARG_INT64(arg), least,
						  (double) PG_INT64_MAX);
}

static double
cb_model_int4(FunctionCallInfo fcinfo, int arg, const char *name,
			  double least, double otherwise)
{
	if (PG_ARGISNULL(arg))
		return otherwise;
	return cb_model_check(name, PG_GETARG_INT32(arg), least, PG_INT32_MAX);
}

static double
cb_model_float8(FunctionCallInfo fcinfo, int arg, const char *name,
				double least, double most, double otherwise)
{
	if (PG_ARGISNULL(arg))
		return otherwise;
	return cb_model_check(name, PG_GETARG_FLOAT8(arg), least, most);
}

/* the arguments; null means what the script gives as their defaults */
static void
cb_model_get_input(FunctionCallInfo fcinfo, CbModelInput *in)
{
	in->leaves = cb_model_int8(fcinfo, 0, "leaves", 0, 0);
	in->pool_bytes = cb_model_int8(fcinfo, 1, "pool_size", 0, 0);
	in->entry_bytes = cb_model_int4(fcinfo, 2, "entry_size", 1, 20);
	in->leaf_bytes = cb_model_int4(fcinfo, 3, "leaf_size",
								   CB_MODEL_LINE_BYTES, BLCKSZ);
	in->buckets = cb_model_int8(fcinfo, 4, "buckets", 1, 0);
	in->period = cb_model_int4(fcinfo, 5, "period", 1, 1);
	in->stagger = cb_model_float8(fcinfo, 6, "stagger", 1, 1000, 1);
	in->uncached = cb_model_float8(fcinfo, 7, "uncached", 0, 1, 0);
	in->entries_per_visit = cb_model_float8(fcinfo, 8, "measured", 0,
											(double) PG_INT64_MAX, 0);
}

static Datum
cb_model_bytes(double bytes)
{
	return Int64GetDatum((int64) ceil(bytes));
}

/*
 * cache_batch_model(leaves, pool_size, entry_size, leaf_size, buckets, period,
 * stagger, uncached, measured, OUT ...): a row, null if leaves or pool_size
 * is.
 */
Datum
cache_batch_model(PG_FUNCTION_ARGS)
{
	CbModelInput in;
	CbModelResult r;
	TupleDesc	tupdesc;
	Datum		values[CB_MODEL_COLUMNS];
	bool		nulls[CB_MODEL_COLUMNS] = {false};
	int			i = 0;

	if (PG_ARGISNULL(0) || PG_ARGISNULL(1))
		PG_RETURN_NULL();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != CB_MODEL_COLUMNS)
		elog(ERROR, "cache_batch_model() has an unexpected return type");

	cb_model_get_input(fcinfo, &in);
	cb_model_compute(&in, &r);

	values[i++] = Float8GetDatum(r.buckets);
	values[i++] = Float8GetDatum(r.capacity);
	values[i++] = Float8GetDatum(r.leaves_per_flush);
	values[i++] = Float8GetDatum(r.entries_per_visit);
	values[i++] = Float8GetDatum(r.hit_direct);
	values[i++] = Float8GetDatum(r.miss_direct);
	values[i++] = Float8GetDatum(r.miss_batched);
	nulls[i] = r.miss_ratio < 0;
	values[i++] = Float8GetDatum(r.miss_ratio);
	values[i++] = Float8GetDatum(r.lines_direct);
	values[i++] = Float8GetDatum(r.lines_per_visit);
	nulls[i] = r.lines_ratio < 0;
	values[i++] = Float8GetDatum(r.lines_ratio);
	values[i++] = Float8GetDatum(r.direct_ns);
	values[i++] = Float8GetDatum(r.batched_ns);
	values[i++] = Float8GetDatum(r.cost_ratio);
	values[i++] = cb_model_bytes(r.fade_bytes);
	Assert(i == CB_MODEL_COLUMNS);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}
