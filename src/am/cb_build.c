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
 * Workers may read and sort parts of the table (cb_build_team.c); the entries
 * are merged here, and loaded by this process alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "am/cb_build.h"
#include "bucket/cb_bucket.h"
#include "catalog/index.h"
#include "catalog/pg_am_d.h"
#include "commands/progress.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "pgstat.h"
#include "tree/cb_tree.h"
#include "utils/backend_progress.h"

typedef struct CbBuildState
{
	Relation	index;
	CbKeyDesc	kd;
	bool		total;			/* cb_key_is_total() */
	CbBuildSorts sorts;
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

/* ---------- sorting ---------- */

/* Makes the index as the sort sees it. */
static void
cb_build_disguise(CbBuildSorts *sorts, Relation index)
{
	sorts->disguise = *index;
	memcpy(&sorts->disguise_class, index->rd_rel, CLASS_TUPLE_SIZE);
	sorts->disguise_class.relam = BTREE_AM_OID;
	sorts->disguise.rd_rel = &sorts->disguise_class;
}

/* Begins sorts without entries. */
void
cb_build_begin_sorts(CbBuildSorts *sorts, Relation heap, Relation index,
					 const CbBuildSortOptions *options)
{
	cb_build_disguise(sorts, index);
	sorts->live = tuplesort_begin_index_btree(heap, &sorts->disguise, options->unique,
											  options->nulls_not_distinct,
											  options->live_mem, options->live,
											  TUPLESORT_NONE);
	sorts->dead = !options->unique ? NULL :
		tuplesort_begin_index_btree(heap, &sorts->disguise, false, false,
									options->dead_mem, options->dead, TUPLESORT_NONE);
	sorts->any_dead = false;
	sorts->index_tuples = 0;
}

/* Called for each heap tuple: hands its entry to a sort. */
static void
cb_build_callback(Relation index, ItemPointer tid, Datum *values, bool *isnull,
				  bool tuple_is_alive, void *arg)
{
	CbBuildSorts *sorts = arg;
	bool		dead = sorts->dead != NULL && !tuple_is_alive;

	tuplesort_putindextuplevalues(dead ? sorts->dead : sorts->live, index, tid,
								  values, isnull);
	sorts->any_dead |= dead;
	sorts->index_tuples++;
}

/*
 * Hands entries of the table to the sorts: all, or with a scan's descriptor,
 * which it ends, those of this process's part.  Returns how many rows the table
 * has, or the part.
 */
double
cb_build_scan(CbBuildSorts *sorts, Relation heap, Relation index,
			  IndexInfo *index_info, bool progress, TableScanDesc scan)
{
	return table_index_build_scan(heap, index, index_info, true, progress,
								  cb_build_callback, sorts, scan);
}

/*
 * Ends the sorts, and frees their memory and files.  After an error the end of the
 * transaction does.
 */
void
cb_build_end_sorts(CbBuildSorts *sorts)
{
	tuplesort_end(sorts->live);
	if (sorts->dead != NULL)
		tuplesort_end(sorts->dead);
}

static void
cb_build_perform_sorts(CbBuildSorts *sorts)
{
	tuplesort_performsort(sorts->live);
	if (sorts->any_dead)
		tuplesort_performsort(sorts->dead);
}

/* ---------- loading ---------- */

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
	CbBuildSorts *sorts = &state->sorts;
	CbLoader   *loader = cb_load_begin(&state->kd, CbGetFillFactor(state->index),
									   MAIN_FORKNUM);
	IndexTuple	itup = tuplesort_getindextuple(sorts->live, true);
	IndexTuple	dead = sorts->any_dead ?
		tuplesort_getindextuple(sorts->dead, true) : NULL;
	int64		done = 0;

	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_TOTAL,
								 (int64) sorts->index_tuples);
	while (itup != NULL || dead != NULL)
	{
		if (dead == NULL ||
			(itup != NULL && cb_key_compare(&state->kd, itup, dead) < 0))
		{
			cb_build_load_entry(state, loader, itup);
			itup = tuplesort_getindextuple(sorts->live, true);
		}
		else
		{
			cb_build_load_entry(state, loader, dead);
			dead = tuplesort_getindextuple(sorts->dead, true);
		}
		if (++done % 1024 == 0)
			pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
	}
	pgstat_progress_update_param(PROGRESS_CREATEIDX_TUPLES_DONE, done);
	cb_load_finish(loader);
}

/* ---------- the callbacks ---------- */

/*
 * How many workers are asked for.  Before version 17 the server asks for btrees
 * alone.
 */
static int
cb_build_plan_workers(Relation heap, Relation index, const IndexInfo *index_info)
{
#if PG_VERSION_NUM >= 170000
	return index_info->ii_ParallelWorkers;
#else
	return !IsNormalProcessingMode() ? 0 :
		plan_create_index_workers(RelationGetRelid(heap), RelationGetRelid(index));
#endif
}

/*
 * Makes the entries of the table ready to be sorted, with workers, if there are
 * some: *team is to be ended when the sorts have been.  Returns how many rows
 * the table has.
 */
static double
cb_build_collect(CbBuildState *state, Relation heap, IndexInfo *index_info,
				 CbBuildTeam **team)
{
	CbBuildSortOptions options = {
		.unique = index_info->ii_Unique,
		.nulls_not_distinct = index_info->ii_NullsNotDistinct,
		.live_mem = maintenance_work_mem,
		.dead_mem = work_mem
	};
	int			nworkers = cb_build_plan_workers(heap, state->index, index_info);

	*team = nworkers == 0 ? NULL :
		cb_build_team_begin(heap, state->index, index_info, nworkers);
	if (*team != NULL)
		return cb_build_team_scan(*team, &state->sorts, &options,
								  &index_info->ii_BrokenHotChain);
	cb_build_begin_sorts(&state->sorts, heap, state->index, &options);
	return cb_build_scan(&state->sorts, heap, state->index, index_info, true, NULL);
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
	CbBuildTeam *team;
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

	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_SCAN);
	result = palloc0(sizeof(IndexBuildResult));
	result->heap_tuples = cb_build_collect(&state, heap, index_info, &team);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_SORT);
	cb_build_perform_sorts(&state.sorts);
	pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_LOAD);
	cb_build_load(&state);
	cb_build_end_sorts(&state.sorts);
	if (team != NULL)
		cb_build_team_end(team);

	result->index_tuples = state.sorts.index_tuples;
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
