/*-------------------------------------------------------------------------
 *
 * cb_cost.c
 *	  Cost estimates for the planner.
 *
 * The server's estimator for btree does the work: bounds, selectivities,
 * correlation and page counts mean the same here.  It expects a few things of
 * the planner's description of an index that the planner fills in for btree
 * only, so it is given a copy that has them.
 *
 * Before version 18 it does not know that a scan can go from value to value of
 * a column without an equality (core/cb_keyspace.h): that is priced here, and
 * what is cheaper of both counts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/stratnum.h"
#include "am/cb_am.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/index_selfuncs.h"
#include "utils/lsyscache.h"
#include "utils/selfuncs.h"

/* children of an internal page, for the guess at the tree's height */
#define CB_COST_FANOUT	200.0

/*
 * The number of levels above the leaves, from the number of pages.  Planning
 * reads no page for it.
 */
static int
cb_cost_tree_height(BlockNumber pages)
{
	if (pages <= 2)
		return 0;				/* metapage and root */
	return (int) ceil(log((double) pages) / log(CB_COST_FANOUT));
}

/*
 * Without the library's other half an index cannot be scanned.  Such a path
 * should lose against any other, and the scan says why if none is left.
 */
static void
cb_cost_prohibit(IndexPath *path, Cost *startup_cost, Cost *total_cost,
				 Selectivity *selectivity, double *correlation, double *pages)
{
#if PG_VERSION_NUM >= 180000
	path->path.disabled_nodes++;
#endif
	*startup_cost = disable_cost;
	*total_cost = disable_cost;
	*selectivity = 1.0;
	*correlation = 0.0;
	*pages = 0.0;
}

#if PG_VERSION_NUM < 180000
/* what a scan has to search for */
typedef struct CbCostSearch
{
	List	   *skipped;		/* columns, as expressions, whose values it goes
								 * through ... */
	List	   *ranges;			/* ... and conditions on these */
	double		narrays;		/* how many values arrays have, multiplied */
	int			nequal;			/* columns that are equal to something, behind
								 * the first one that is skipped */
} CbCostSearch;

/* Does the condition on a column leave single values of it? */
static bool
cb_cost_is_equality(PlannerInfo *root, const IndexOptInfo *index, int column,
					Expr *clause, double *narray)
{
	Oid			operator;

	*narray = 1;
	if (IsA(clause, NullTest))
		return ((NullTest *) clause)->nulltesttype == IS_NULL;
	if (IsA(clause, ScalarArrayOpExpr))
	{
		ScalarArrayOpExpr *array = (ScalarArrayOpExpr *) clause;

		operator = array->opno;
#if PG_VERSION_NUM >= 170000
		*narray = Max(1, estimate_array_length(root, lsecond(array->args)));
#else
		*narray = Max(1, estimate_array_length(lsecond(array->args)));
#endif
	}
	else if (IsA(clause, OpExpr))
		operator = ((OpExpr *) clause)->opno;
	else
		return false;
	return get_op_opfamily_strategy(operator, index->opfamily[column]) ==
		BTEqualStrategyNumber;
}

/* Adds a column, whose conditions are these. */
static void
cb_cost_add_column(PlannerInfo *root, const IndexOptInfo *index, int column,
				   List *conditions, CbCostSearch *search)
{
	ListCell   *lc;

	foreach(lc, conditions)
	{
		double		narray;

		if (cb_cost_is_equality(root, index, column,
								lfirst_node(RestrictInfo, lc)->clause, &narray))
		{
			search->narrays *= narray;
			search->nequal += search->skipped != NIL;
			return;
		}
	}
	search->skipped = lappend(search->skipped,
							  list_nth_node(TargetEntry, index->indextlist, column)->expr);
	search->ranges = list_concat(search->ranges, conditions);
}

/* The conditions on a column. */
static List *
cb_cost_get_conditions(const IndexPath *path, int column)
{
	List	   *found = NIL;
	ListCell   *lc;

	foreach(lc, path->indexclauses)
	{
		IndexClause *clause = lfirst_node(IndexClause, lc);

		if (clause->indexcol == column)
			found = list_concat(found, clause->indexquals);
	}
	return found;
}

/* Does the scan go from value to value of a column, to find what? */
static bool
cb_cost_find_search(PlannerInfo *root, const IndexPath *path, CbCostSearch *search)
{
	IndexOptInfo *index = path->indexinfo;
	IndexClause *last = path->indexclauses == NIL ? NULL :
		llast_node(IndexClause, path->indexclauses);

	*search = (CbCostSearch) {.narrays = 1};
	for (int i = 0; last != NULL && i <= last->indexcol; i++)
		cb_cost_add_column(root, index, i, cb_cost_get_conditions(path, i), search);
	return search->nequal > 0;
}

/*
 * How many combinations of values columns have in the table, at most; all its
 * rows may have others if there are no statistics of one.
 */
static double
cb_cost_count_values(PlannerInfo *root, List *columns, double tuples)
{
	double		n = 1;
	ListCell   *lc;

	foreach(lc, columns)
	{
		VariableStatData stats;
		bool		is_default;

		examine_variable(root, lfirst(lc), 0, &stats);
		n *= get_variable_numdistinct(&stats, &is_default);
		if (is_default)
			n = tuples;
		ReleaseVariableStats(stats);
	}
	return Min(n, tuples);
}

/*
 * What a scan costs that goes from value to value of the columns that it skips:
 * it has to come to each combination of them, and as a rule to the entry
 * behind it as well, to see which is the next.
 */
static Cost
cb_cost_of_search(PlannerInfo *root, IndexPath *path, const CbCostSearch *search,
				  double loop_count, double *pages)
{
	IndexOptInfo *index = path->indexinfo;
	RelOptInfo *rel = index->rel;
	List	   *quals = add_predicate_to_index_quals(index,
													 get_quals_from_indexclauses(path->indexclauses));
	double		ngroups = cb_cost_count_values(root, search->skipped, rel->tuples);
	double		nsearches;
	GenericCosts costs = {0};

	ngroups *= clauselist_selectivity(root, search->ranges, rel->relid, JOIN_INNER, NULL);
	ngroups = clamp_row_est(ngroups);
	costs.numIndexTuples = rint(clauselist_selectivity(root, quals, rel->relid, JOIN_INNER, NULL) *
								rel->tuples / (ngroups * search->narrays));
	costs.numIndexTuples = Max(1, costs.numIndexTuples);
	genericcostestimate(root, path, loop_count * ngroups, &costs);

	nsearches = 2 * ngroups * search->narrays;
	*pages = Min(index->pages, costs.numIndexPages * ngroups);
	return costs.indexTotalCost * ngroups + nsearches *
		(ceil(log(Max(2, index->tuples)) / log(2.0)) + (index->tree_height + 1) * 50.0) *
		cpu_operator_cost;
}

/* Takes that in place of what the server's estimator says, if it is less. */
static void
cb_cost_prefer_search(PlannerInfo *root, IndexPath *path, double loop_count,
					  Cost *startup_cost, Cost *total_cost, double *pages)
{
	CbCostSearch search;
	Cost		cost;
	double		search_pages;

	if (!cb_cost_find_search(root, path, &search))
		return;
	cost = cb_cost_of_search(root, path, &search, loop_count, &search_pages);
	if (cost >= *total_cost)
		return;
	*startup_cost = Min(*startup_cost, cost);
	*total_cost = cost;
	*pages = search_pages;
}
#else
#define cb_cost_prefer_search(root, path, loop_count, startup_cost, total_cost, pages) \
	((void) 0)
#endif

/*
 * amcostestimate, for the planner; reads no page of the index.  Without
 * preload it prohibits the path and raises no error, so that other plans are
 * found.
 */
void
cb_am_costestimate(PlannerInfo *root, IndexPath *path, double loop_count,
				   Cost *startup_cost, Cost *total_cost,
				   Selectivity *selectivity, double *correlation,
				   double *pages)
{
	IndexOptInfo index;
	IndexPath	copy;
	bool		ascending[INDEX_MAX_KEYS] = {false};

	if (!cb_preloaded)
	{
		cb_cost_prohibit(path, startup_cost, total_cost, selectivity, correlation,
						 pages);
		return;
	}

	index = *path->indexinfo;
	copy = *path;
	copy.indexinfo = &index;

	/* no such array if a column's order is not one of a btree family (C6) */
	if (index.reverse_sort == NULL)
		index.reverse_sort = ascending;
	if (index.nulls_first == NULL)
		index.nulls_first = ascending;

	/* a journal has a page at least, and it holds no part of the tree */
	if (index.pages > 2)
		index.pages--;
	if (index.tree_height < 0)
		index.tree_height = cb_cost_tree_height(index.pages);

	btcostestimate(root, &copy, loop_count, startup_cost, total_cost,
				   selectivity, correlation, pages);
	cb_cost_prefer_search(root, &copy, loop_count, startup_cost, total_cost, pages);
}
