/*-------------------------------------------------------------------------
 *
 * cb_build.c
 *	  CREATE INDEX and REINDEX: sort the table's entries, load them bottom-up.
 *
 * The sort is the server's own of btree's entries, by (key, TID).  Before
 * version 18 it wants the index's relation to say that it is a btree, and
 * takes from it what operator classes for btree have and ours have as well
 * (C5): it gets a copy of the relation that says so.
 *
 * For a unique index the sort refuses equal keys of rows that are alive.  Rows
 * that are dead, but not to everyone, may have the key of another: they have a
 * sort of their own, as in btree, and the loader takes from both in turn (A21).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "am/cb_am.h"
#include "bucket/cb_bucket.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "tree/cb_tree.h"
#include "utils/backend_progress.h"
#include "utils/tuplesort.h"

#define CB_BUILD_PHASE_SCAN		2
#define CB_BUILD_PHASE_SORT		3
#define CB_BUILD_PHASE_LOAD		4

typedef struct CbBuildState
{
	Relation	index;
	CbKeyDesc	kd;
	bool		total;			/* cb_key_is_total() */
	Tuplesortstate *sort;
	Tuplesortstate *dead;		/* of dead rows; NULL: they are in sort, too */
	bool		any_dead;
	double		index_tuples;

	/* the index as the sort sees it */
	RelationData sorted;
	FormData_pg_class sorted_class;
} CbBuildState;

/* ambuildphasename; the name is a constant, NULL if there is no such phase. */
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

/* Makes the index as the sort sees it. */
static void
cb_build_disguise(CbBuildState *state)
{
	state->sorted = *state->index;
	memcpy(&state->sorted_class, state->index->rd_rel, CLASS_TUPLE_SIZE);
	state->sorted_class.relam = BTREE_AM_OID;
	state->sorted.rd_rel = &state->sorted_class;
}

static void
cb_build_begin_sorts(CbBuildState *state, Relation heap, IndexInfo *index_info)
{
	cb_build_disguise(state);
	state->sort = tuplesort_begin_index_btree(heap, &state->sorted,
											  index_info->ii_Unique,
											  index_info->ii_NullsNotDistinct,
											  maintenance_work_mem, NULL,
											  TUPLESORT_NONE);
	if (index_info->ii_Unique)
		state->dead = tuplesort_begin_index_btree(heap, &state->sorted, false,
												  false, work_mem, NULL,
												  TUPLESORT_NONE);
}

/* Called for each heap tuple: hands its entry to a sort. */
static void
cb_build_callback(Relation index, ItemPointer tid, Datum *values, bool *isnull,
				  bool tuple_is_alive, void *arg)
{
	CbBuildState *state = arg;
	bool		dead = state->dead != NULL && !tuple_is_alive;

	tuplesort_putindextuplevalues(dead ? state->dead : state->sort, index, tid,
								  values, isnull);
	state->any_dead |= dead;
	state->index_tuples++;
}

static void
cb_build_perform_sorts(CbBuildState *state)
{
	tuplesort_performsort(state->sort);
	if (state->any_dead)
		tuplesort_performsort(state->dead);
}

static void
cb_build_end_sorts(CbBuildState *state)
{
	tuplesort_end(state->sort);
	if (state->dead != NULL)
		tuplesort_end(state->dead);
}

/* Checks an entry, and loads it. */
static void
cb_build_load_entry(CbBuildState *state, CbLoader *loader, IndexTuple itup)
{
	cb_key_check_size(state->index, itup);
	if (!state->total)
		cb_key_check_comparable(&state->kd, &(CbSortEntry) {.itup = itup}, 1);
	cb_load_add(loader, itup);
}

/* Load the sorted entries into a new tree. */
static void
cb_build_load(CbBuildState *state)
{
	CbLoader   *loader = cb_load_begin(&state->kd, CbGetFillFactor(state->index),
									   MAIN_FORKNUM);
	IndexTuple	itup = tuplesort_getindextuple(state->sort, true);
	IndexTuple	dead = state->any_dead ?
		tuplesort_getindextuple(state->dead, true) : NULL;
	int64		done = 0;

	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL,
								 (int64) state->index_tuples);
	while (itup != NULL || dead != NULL)
	{
		if (dead == NULL ||
			(itup != NULL && cb_key_compare(&state->kd, itup, dead) < 0))
		{
			cb_build_load_entry(state, loader, itup);
			itup = tuplesort_getindextuple(state->sort, true);
		}
		else
		{
			cb_build_load_entry(state, loader, dead);
			dead = tuplesort_getindextuple(state->dead, true);
		}
		if (++done % 1024 == 0)
			pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
	}
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
	cb_load_finish(loader);
}

/*
 * ambuild: sorts the table's entries and loads them into a new tree.  The
 * index's file is empty, and nobody else uses it yet; the table may be written
 * meanwhile, as by CREATE INDEX CONCURRENTLY.  The result is palloc'd in the
 * current memory context.  Raises an error for columns that the index cannot
 * have, an entry that is too long or cannot be compared, for equal keys of a
 * unique index, and without preload.  Comparison functions run.
 */
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
	cb_set_forget_file(index->rd_locator);

	state.index = index;
	cb_key_init(&state.kd, index);
	state.total = cb_key_is_total(index);
	cb_build_begin_sorts(&state, heap, index_info);

	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_SCAN);
	result = palloc0(sizeof(IndexBuildResult));
	result->heap_tuples = table_index_build_scan(heap, index, index_info, true, true,
												 cb_build_callback, &state, NULL);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_SORT);
	cb_build_perform_sorts(&state);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_LOAD);
	cb_build_load(&state);
	cb_build_end_sorts(&state);

	result->index_tuples = state.index_tuples;
	return result;
}

/*
 * ambuildempty: the init fork of an unlogged index, an empty tree.  The index
 * is locked against everybody.  Raises an error without preload.
 */
void
cb_am_buildempty(Relation index)
{
	CbKeyDesc	kd;

	cb_require_preload();
	cb_key_init(&kd, index);
	cb_load_finish(cb_load_begin(&kd, CbGetFillFactor(index), INIT_FORKNUM));
}
