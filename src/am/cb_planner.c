/*-------------------------------------------------------------------------
 *
 * cb_planner.c
 *	  Lets the planner see four built-in operator families as btree's.
 *
 * In a few places the planner asks for one of btree's families by its OID: for
 * tests of boolean columns (WHERE flag), for LIKE with the pattern classes,
 * and for the containment of networks.  Our families of these types have the
 * same operators under the same numbers, so an index's description can name
 * btree's instead, and such conditions find the index as they would find a
 * btree.  The executor goes by the index itself, thus by our families; hence
 * this is done only if they have all that btree's have.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_am.h"
#include "catalog/pg_opfamily.h"
#include "nodes/pathnodes.h"
#include "optimizer/plancat.h"
#include "utils/catcache.h"
#include "utils/syscache.h"

static get_relation_info_hook_type prev_get_relation_info_hook;

static int
cb_planner_count_operators(Oid family)
{
	CatCList   *list = SearchSysCacheList1(AMOPSTRATEGY,
										   ObjectIdGetDatum(family));
	int			n = list->n_members;

	ReleaseCatCacheList(list);
	return n;
}

static bool
cb_planner_is_special(Oid btree_family)
{
	return btree_family == BOOL_BTREE_FAM_OID ||
		btree_family == TEXT_PATTERN_BTREE_FAM_OID ||
		btree_family == BPCHAR_PATTERN_BTREE_FAM_OID ||
		btree_family == NETWORK_BTREE_FAM_OID;
}

static void
cb_planner_show_index(IndexOptInfo *info)
{
	for (int i = 0; i < info->nkeycolumns; i++)
	{
		Oid			btree_family = info->sortopfamily[i];

		if (cb_planner_is_special(btree_family) &&
			cb_planner_count_operators(btree_family) ==
			cb_planner_count_operators(info->opfamily[i]))
			info->opfamily[i] = btree_family;
	}
}

static void
cb_planner_relation_info(PlannerInfo *root, Oid relid, bool inhparent,
						 RelOptInfo *rel)
{
	ListCell   *lc;

	if (prev_get_relation_info_hook)
		prev_get_relation_info_hook(root, relid, inhparent, rel);

	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *info = lfirst_node(IndexOptInfo, lc);

		if (info->amcostestimate == (void (*) ()) cb_am_costestimate &&
			info->sortopfamily != NULL)
			cb_planner_show_index(info);
	}
}

/*
 * Puts this module's hook behind get_relation_info_hook; only while the
 * library is preloaded.
 */
void
cb_planner_init(void)
{
	prev_get_relation_info_hook = get_relation_info_hook;
	get_relation_info_hook = cb_planner_relation_info;
}
