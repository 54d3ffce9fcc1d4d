/*-------------------------------------------------------------------------
 *
 * cb_explain.c
 *	  What index scans took from each tier: EXPLAIN (ANALYZE, VERBOSE), from
 *	  version 18 on, and the session's last scans.
 *
 * A scan counts by itself, once a window, and for each entry of an upper tier.
 * Before version 18 EXPLAIN asks no extension about a node; so the counts of the
 * last scans are kept when they end, and cache_batch_last_scans() shows them, on
 * all versions.
 *
 * Workers of a parallel plan have scans of their own.  Their memory is gone when
 * the plan is shown, and access methods cannot bring anything of it back; so what
 * is shown is the leader's part, and says so.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_explain.h"
#include "am/cb_scan.h"

#if PG_VERSION_NUM >= 180000
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#endif

/* scans that are kept; a power of 2 */
#define CB_EXPLAIN_LAST		16

static CbLastScan cb_explain_last[CB_EXPLAIN_LAST];
static uint32 cb_explain_nended = 0;

/* A scan of the index has ended. */
void
cb_explain_keep(const CbScanCounts *counts, Oid indexoid)
{
	CbLastScan *last = &cb_explain_last[cb_explain_nended++ % CB_EXPLAIN_LAST];

	last->counts = *counts;
	last->indexoid = indexoid;
}

/* The scan that ended i scans before the last one; NULL: it is not known. */
const CbLastScan *
cb_explain_last_scan(int i)
{
	if (i >= Min(cb_explain_nended, CB_EXPLAIN_LAST))
		return NULL;
	return &cb_explain_last[(cb_explain_nended - 1 - i) % CB_EXPLAIN_LAST];
}

/*
 * Leaves that the scan read: each window reads one, unless a cached entry stood for
 * it.  As the two that follow, computed from counts that the scan's process has;
 * no lock is taken.
 */
int64
cb_explain_leaves(const CbScanCounts *counts)
{
	return counts->windows - counts->cached;
}

/* Entries of the journal, from the scan's own copy or from the shared one. */
int64
cb_explain_journal_entries(const CbScanCounts *counts)
{
	return (int64) counts->upper[CB_SOURCE_JOURNAL - CB_SOURCE_UPPER] +
		counts->upper[CB_SOURCE_SHARED - CB_SOURCE_UPPER];
}

/*
 * Entries of leaves: of all, what neither a cached entry nor an upper tier
 * gave.
 */
int64
cb_explain_leaf_entries(const CbScanCounts *counts)
{
	int64		n = counts->entries - counts->cached;

	for (int i = 0; i < CB_NUM_UPPERS; i++)
		n -= counts->upper[i];
	return n;
}

#if PG_VERSION_NUM >= 180000

static explain_per_node_hook_type prev_explain_per_node_hook;

/* The node's scan, if it is of an index of ours, and has begun. */
static IndexScanDesc
cb_explain_find_scan(PlanState *planstate)
{
	IndexScanDesc scan = NULL;

	if (IsA(planstate, IndexScanState))
		scan = castNode(IndexScanState, planstate)->iss_ScanDesc;
	else if (IsA(planstate, IndexOnlyScanState))
		scan = castNode(IndexOnlyScanState, planstate)->ioss_ScanDesc;
	else if (IsA(planstate, BitmapIndexScanState))
		scan = castNode(BitmapIndexScanState, planstate)->biss_ScanDesc;
	return scan != NULL &&
		scan->indexRelation->rd_indam->amgettuple == cb_am_gettuple ? scan : NULL;
}

/* Text has what is not 0, on one line; other formats have a property of each. */
static void
cb_explain_show(const char *label, const char *const *names, const int64 *counts,
				int n, ExplainState *es)
{
	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainOpenGroup(label, label, true, es);
		for (int i = 0; i < n; i++)
			ExplainPropertyInteger(names[i], NULL, counts[i], es);
		ExplainCloseGroup(label, label, true, es);
		return;
	}
	ExplainIndentText(es);
	appendStringInfo(es->str, "%s:", label);
	for (int i = 0; i < n; i++)
	{
		if (i == 0 || counts[i] != 0)
			appendStringInfo(es->str, " %s=" INT64_FORMAT, names[i], counts[i]);
	}
	appendStringInfoChar(es->str, '\n');
}

static void
cb_explain_show_scan(const CbScanCounts *counts, bool leader, ExplainState *es)
{
	static const char *const reads[] = {"windows", "leaves", "cached"};
	static const char *const tiers[] = {"leaves", "runs", "buckets", "journal"};
	int64		nreads[] = {counts->windows, cb_explain_leaves(counts), counts->cached};
	int64		ntiers[] = {
		cb_explain_leaf_entries(counts),
		counts->upper[CB_SOURCE_RANGE - CB_SOURCE_UPPER],
		counts->upper[CB_SOURCE_CHUNK - CB_SOURCE_UPPER],
		cb_explain_journal_entries(counts)
	};

	cb_explain_show(leader ? "Index Reads of Leader" : "Index Reads", reads, nreads,
					lengthof(nreads), es);
	cb_explain_show(leader ? "Index Entries of Leader" : "Index Entries", tiers, ntiers,
					lengthof(ntiers), es);
}

static void
cb_explain_node(PlanState *planstate, List *ancestors, const char *relationship,
				const char *plan_name, ExplainState *es)
{
	IndexScanDesc scan = es->analyze && es->verbose ?
		cb_explain_find_scan(planstate) : NULL;

	if (scan != NULL)
		cb_explain_show_scan(&((CbScanOpaque) scan->opaque)->counts,
							 scan->parallel_scan != NULL || planstate->worker_instrument != NULL,
							 es);
	if (prev_explain_per_node_hook)
		prev_explain_per_node_hook(planstate, ancestors, relationship, plan_name, es);
}

#endif

/* Puts this module's hook before others'; only while the library is preloaded. */
void
cb_explain_init(void)
{
#if PG_VERSION_NUM >= 180000
	prev_explain_per_node_hook = explain_per_node_hook;
	explain_per_node_hook = cb_explain_node;
#endif
}
