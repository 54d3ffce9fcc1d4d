/*-------------------------------------------------------------------------
 *
 * cb_heat_fn.c
 *	  Heat as a SQL function, below the view cache_batch_stat_heat.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xlog.h"
#include "base/cb_heat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sqlfn/cb_sqlfn.h"
#include "storage/bufmgr.h"

PG_FUNCTION_INFO_V1(cache_batch_stat_get_heat);

typedef int64 CbHeatHistogram[CB_HEAT_CLASSES][CB_HEAT_KINDS];

/* Counts the blocks of the file by the class of their ages. */
static void
cb_heat_fn_count(Relation rel, uint32 clock, CbHeatHistogram blocks)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);

	for (BlockNumber block = 0; block < nblocks; block++)
	{
		if (block % 4096 == 0)
			CHECK_FOR_INTERRUPTS();
		for (int kind = 0; kind < CB_HEAT_KINDS; kind++)
		{
			uint32		age = cb_heat_age(rel, block, (CbHeatKind) kind, clock);

			blocks[cb_heatmap_class(age)][kind]++;
		}
	}
}

/* Of what was never accessed all that is known is that the clock began then. */
static void
cb_heat_fn_put_class(int class, uint32 clock, const int64 *blocks,
					 ReturnSetInfo *rsinfo)
{
	Datum		values[4];
	bool		nulls[4] = {false};
	uint32		age = cb_heatmap_class_age(class);

	values[0] = Int32GetDatum(age == CB_HEAT_NEVER ? Min(age, clock) : age);
	values[1] = Int32GetDatum(age == 0 ? 0 : 2 * age - 1);
	nulls[1] = age == CB_HEAT_NEVER;
	values[2] = Int64GetDatum(blocks[CB_HEAT_READ]);
	values[3] = Int64GetDatum(blocks[CB_HEAT_WRITE]);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * Is it an index of ours with a file?  An unlogged one has none on a standby.
 */
static bool
cb_heat_fn_has_heat(Relation rel)
{
	return cb_heat_is_kept() && rel->rd_rel->relkind == RELKIND_INDEX &&
		cb_sqlfn_is_ours(rel) &&
		!(rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED &&
		  RecoveryInProgress());
}

/*
 * cache_batch_stat_get_heat(index oid): one row for each class of ages that
 * has blocks, the youngest first; none if it is no cachebatch index, or is
 * gone.
 */
Datum
cache_batch_stat_get_heat(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	CbHeatHistogram blocks = {0};
	uint32		clock;
	Relation	rel;

	cb_require_preload();
	clock = cb_heat_clock();
	InitMaterializedSRF(fcinfo, 0);
	rel = try_relation_open(PG_GETARG_OID(0), AccessShareLock);
	if (rel == NULL)
		return (Datum) 0;
	if (cb_heat_fn_has_heat(rel))
		cb_heat_fn_count(rel, clock, blocks);
	relation_close(rel, AccessShareLock);

	for (int class = 0; class < CB_HEAT_CLASSES; class++)
	{
		if (blocks[class][CB_HEAT_READ] > 0 || blocks[class][CB_HEAT_WRITE] > 0)
			cb_heat_fn_put_class(class, clock, blocks[class], rsinfo);
	}
	return (Datum) 0;
}
