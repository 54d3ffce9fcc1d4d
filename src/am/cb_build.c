/*-------------------------------------------------------------------------
 *
 * cb_build.c
 *	  CREATE INDEX and REINDEX: sort the table's entries, load them bottom-up.
 *
 * The sort is the server's, of rows (index columns..., TID) by the operator
 * class's own "<": its entry point for btree indexes refuses other access
 * methods before version 18 (C5).  The TID is sorted as an int8, which is
 * compared without the function manager.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "am/cb_am.h"
#include "bucket/cb_bucket.h"
#include "catalog/index.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "commands/progress.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "tree/cb_tree.h"
#include "utils/backend_progress.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"

#define CB_BUILD_PHASE_SCAN		2
#define CB_BUILD_PHASE_SORT		3
#define CB_BUILD_PHASE_LOAD		4

typedef struct CbBuildState
{
	Relation	heap;
	Relation	index;
	CbKeyDesc	kd;
	TupleDesc	sort_desc;		/* index columns, TID */
	Tuplesortstate *sort;
	TupleTableSlot *slot;
	MemoryContext tuple_cxt;	/* reset for each tuple */
	double		index_tuples;
} CbBuildState;

char *
cb_am_buildphasename(int64 phasenum)
{
	switch (phasenum)
	{
		case PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE:
			return "initializing";
		case CB_BUILD_PHASE_SCAN:
			return "scanning table";
		case CB_BUILD_PHASE_SORT:
			return "sorting tuples";
		case CB_BUILD_PHASE_LOAD:
			return "loading tuples in tree";
	}
	return NULL;
}

/* The index's columns and a TID. */
static TupleDesc
cb_build_make_sort_desc(Relation index)
{
	TupleDesc	desc = RelationGetDescr(index);
	TupleDesc	sort_desc = CreateTemplateTupleDesc(desc->natts + 1);

	for (int i = 1; i <= desc->natts; i++)
		TupleDescCopyEntry(sort_desc, i, desc, i);
	TupleDescInitEntry(sort_desc, desc->natts + 1, "ctid", INT8OID, -1, 0);
	return sort_desc;
}

static inline Datum
cb_build_encode_tid(ItemPointer tid)
{
	return Int64GetDatum((int64) ItemPointerGetBlockNumber(tid) << 16 |
						 ItemPointerGetOffsetNumber(tid));
}

static inline void
cb_build_decode_tid(Datum datum, ItemPointer tid)
{
	int64		value = DatumGetInt64(datum);

	ItemPointerSet(tid, (BlockNumber) (value >> 16), (OffsetNumber) (value & 0xFFFF));
}

static void
cb_build_begin_sort(CbBuildState *state)
{
	Relation	index = state->index;
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index) + 1;
	AttrNumber *attnums = palloc(sizeof(AttrNumber) * nkeys);
	Oid		   *operators = palloc(sizeof(Oid) * nkeys);
	Oid		   *collations = palloc0(sizeof(Oid) * nkeys);
	bool	   *nulls_first = palloc0(sizeof(bool) * nkeys);

	for (int i = 0; i < nkeys - 1; i++)
	{
		bool		desc = (index->rd_indoption[i] & INDOPTION_DESC) != 0;

		attnums[i] = i + 1;
		operators[i] = get_opfamily_member(index->rd_opfamily[i],
										   index->rd_opcintype[i],
										   index->rd_opcintype[i],
										   desc ? BTGreaterStrategyNumber : BTLessStrategyNumber);
		if (!OidIsValid(operators[i]))
			elog(ERROR, "cache_batch: operator family %u lacks an ordering operator",
				 index->rd_opfamily[i]);
		collations[i] = index->rd_indcollation[i];
		nulls_first[i] = (index->rd_indoption[i] & INDOPTION_NULLS_FIRST) != 0;
	}
	attnums[nkeys - 1] = state->sort_desc->natts;
	operators[nkeys - 1] = Int8LessOperator;

	state->sort = tuplesort_begin_heap(state->sort_desc, nkeys, attnums, operators,
									   collations, nulls_first,
									   maintenance_work_mem, NULL,
									   TUPLESORT_NONE);
}

/* Called for each heap tuple: hands its entry to the sort. */
static void
cb_build_callback(Relation index, ItemPointer tid, Datum *values, bool *isnull,
				  bool tuple_is_alive, void *arg)
{
	CbBuildState *state = arg;
	TupleTableSlot *slot = state->slot;
	int			natts = RelationGetDescr(index)->natts;
	MemoryContext oldcxt;

	ExecClearTuple(slot);
	MemoryContextReset(state->tuple_cxt);
	oldcxt = MemoryContextSwitchTo(state->tuple_cxt);
	for (int i = 0; i < natts; i++)
	{
		slot->tts_values[i] = values[i];
		slot->tts_isnull[i] = isnull[i];

		/* the sort would fetch it for each comparison */
		if (!isnull[i] && TupleDescAttr(state->sort_desc, i)->attlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
			slot->tts_values[i] = PointerGetDatum(PG_DETOAST_DATUM(values[i]));
	}
	MemoryContextSwitchTo(oldcxt);
	slot->tts_values[natts] = cb_build_encode_tid(tid);
	slot->tts_isnull[natts] = false;
	ExecStoreVirtualTuple(slot);
	tuplesort_puttupleslot(state->sort, slot);
	state->index_tuples++;
}

/* Load the sorted entries into a new tree. */
static void
cb_build_load(CbBuildState *state)
{
	CbLoader   *loader = cb_load_begin(&state->kd, CbGetFillFactor(state->index),
									   MAIN_FORKNUM);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(state->sort_desc,
													&TTSOpsMinimalTuple);
	int			tid_att = state->sort_desc->natts - 1;
	int64		done = 0;

	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL,
								 (int64) state->index_tuples);
	while (tuplesort_gettupleslot(state->sort, true, false, slot, NULL))
	{
		IndexTuple	itup;
		ItemPointerData tid;

		slot_getallattrs(slot);
		cb_build_decode_tid(slot->tts_values[tid_att], &tid);
		itup = cb_key_form_entry(state->index, slot->tts_values, slot->tts_isnull,
								 &tid);
		cb_load_add(loader, itup);
		pfree(itup);
		if (++done % 1024 == 0)
			pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
	}
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
	ExecDropSingleTupleTableSlot(slot);
	cb_load_finish(loader);
}

IndexBuildResult *
cb_am_build(Relation heap, Relation index, IndexInfo *index_info)
{
	CbBuildState state = {0};
	IndexBuildResult *result;

	cb_require_preload();
	cb_check_index_columns(index);
	if (RelationGetNumberOfBlocks(index) != 0)
		elog(ERROR, "index \"%s\" already contains data",
			 RelationGetRelationName(index));
	cb_rel_forget(index);
	cb_desc_forget_file(index->rd_node);

	state.heap = heap;
	state.index = index;
	state.sort_desc = cb_build_make_sort_desc(index);
	state.slot = MakeSingleTupleTableSlot(state.sort_desc, &TTSOpsVirtual);
	state.tuple_cxt = AllocSetContextCreate(CurrentMemoryContext,
											"cachebatch build tuple",
											ALLOCSET_SMALL_SIZES);
	cb_key_init(&state.kd, index);
	cb_build_begin_sort(&state);

	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_SCAN);
	result = palloc0(sizeof(IndexBuildResult));
	result->heap_tuples = table_index_build_scan(heap, index, index_info, true, true,
												 cb_build_callback, &state, NULL);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_SORT);
	tuplesort_performsort(state.sort);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_LOAD);
	cb_build_load(&state);
	tuplesort_end(state.sort);
	ExecDropSingleTupleTableSlot(state.slot);

	result->index_tuples = state.index_tuples;
	return result;
}

/* The init fork of an unlogged index: an empty tree. */
void
cb_am_buildempty(Relation index)
{
	CbKeyDesc	kd;

	cb_require_preload();
	cb_key_init(&kd, index);
	cb_load_finish(cb_load_begin(&kd, CbGetFillFactor(index), INIT_FORKNUM));
}
