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
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "am/cb_am.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "utils/index_selfuncs.h"

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
cb_cost_prohibit(Cost *startup_cost, Cost *total_cost,
				 Selectivity *selectivity, double *correlation, double *pages)
{
	*startup_cost = disable_cost;
	*total_cost = disable_cost;
	*selectivity = 1.0;
	*correlation = 0.0;
	*pages = 0.0;
}

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
		cb_cost_prohibit(startup_cost, total_cost, selectivity, correlation,
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
}
