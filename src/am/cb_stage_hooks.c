/*-------------------------------------------------------------------------
 *
 * cb_stage_hooks.c
 *	  When stages are published, and when they are dropped.
 *
 * Entries are published
 *	- when the nesting of ExecutorRun, ExecutorFinish and ProcessUtility falls
 *	  back to zero: then the statement is over.  ExecutorFinish runs AFTER
 *	  triggers and the rest of modifying CTEs, so it publishes at its end.
 *	- before a plan that may start parallel workers runs, and before a utility
 *	  command: others may look at the index then (A14).
 *	- before a subtransaction commits: what it has staged.
 *	- before the transaction commits or is prepared, the latest moment: when
 *	  the COMMIT callback runs, others see the transaction already.
 * An aborting subtransaction drops what it and its children staged (A9).
 *
 * Pins on heap pages of speculative rows are given up when the call returns
 * that they were taken in.
 *
 * SUBXACT_EVENT_START_SUB does nothing: an error there ends the session in a
 * nested PL exception block.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"
#include "am/cb_am.h"
#include "am/cb_stage.h"
#include "am/cb_unique.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "nodes/plannodes.h"
#include "tcop/utility.h"

CbNesting	cb_nesting = {0, 0};

static ExecutorRun_hook_type prev_executor_run = NULL;
static ExecutorFinish_hook_type prev_executor_finish = NULL;
static ProcessUtility_hook_type prev_process_utility = NULL;

/* ---------- nesting ---------- */

/* Can any part of the plan insert speculatively? */
static bool
cb_nesting_plan_is_speculative(PlannedStmt *plan)
{
	ListCell   *lc;

	if (IsA(plan->planTree, ModifyTable) &&
		((ModifyTable *) plan->planTree)->onConflictAction != ONCONFLICT_NONE)
		return true;
	foreach(lc, plan->subplans)
	{
		Plan	   *subplan = (Plan *) lfirst(lc);

		if (subplan != NULL && IsA(subplan, ModifyTable) &&
			((ModifyTable *) subplan)->onConflictAction != ONCONFLICT_NONE)
			return true;
	}
	return false;
}

static CbNesting
cb_nesting_enter(PlannedStmt *plan)
{
	CbNesting	save = cb_nesting;

	cb_nesting.depth++;
	if (plan != NULL && cb_nesting_plan_is_speculative(plan))
		cb_nesting.speculative++;
	return save;
}

/* The call has returned normally; none of its rows is speculative any more. */
static void
cb_nesting_left(void)
{
	cb_pin_release_deeper(cb_nesting.depth);
	if (cb_nesting.depth == 0)
		cb_stage_publish_all(1);
}

static void
cb_stage_executor_run(QueryDesc *query, ScanDirection direction,
					  uint64 count CB_EXECUTE_ONCE_PARAMETER)
{
	CbNesting	save;

	if (query->plannedstmt->parallelModeNeeded)
		cb_stage_publish_all(1);
	save = cb_nesting_enter(query->plannedstmt);
	PG_TRY();
	{
		if (prev_executor_run)
			prev_executor_run(query, direction, count CB_EXECUTE_ONCE);
		else
			standard_ExecutorRun(query, direction, count CB_EXECUTE_ONCE);
	}
	PG_FINALLY();
	{
		cb_nesting = save;
	}
	PG_END_TRY();
	cb_nesting_left();
}

static void
cb_stage_executor_finish(QueryDesc *query)
{
	CbNesting	save = cb_nesting_enter(query->plannedstmt);

	PG_TRY();
	{
		if (prev_executor_finish)
			prev_executor_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_FINALLY();
	{
		cb_nesting = save;
	}
	PG_END_TRY();
	cb_nesting_left();
}

static void
cb_stage_process_utility(PlannedStmt *stmt, const char *query,
						 bool read_only_tree, ProcessUtilityContext context,
						 ParamListInfo params, QueryEnvironment *env,
						 DestReceiver *dest, QueryCompletion *qc)
{
	CbNesting	save;

	cb_stage_publish_all(1);
	save = cb_nesting_enter(NULL);
	PG_TRY();
	{
		if (prev_process_utility)
			prev_process_utility(stmt, query, read_only_tree, context, params,
								 env, dest, qc);
		else
			standard_ProcessUtility(stmt, query, read_only_tree, context,
									params, env, dest, qc);
	}
	PG_FINALLY();
	{
		cb_nesting = save;
	}
	PG_END_TRY();
	cb_nesting_left();
}

/* ---------- transactions ---------- */

static void
cb_stage_complain(const char *what)
{
	int			lost = cb_stage_drop(0);

	ereport(WARNING,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("%d index entries were still unpublished when the transaction was %s",
					lost, what),
			 errhint("REINDEX the cachebatch indexes of the tables that it changed, and report this.")));
}

static void
cb_stage_xact_callback(XactEvent event, void *arg)
{
	cb_unique_forget_look();
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			cb_stage_committing = true;
			cb_stage_publish_all(1);
			CB_TEST_POINT("precommit-published");
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			if (!cb_stage_is_empty())
				cb_stage_complain(event == XACT_EVENT_COMMIT ? "committed" :
								  "prepared");
			cb_pin_forget(0);
			cb_stage_end_xact();
			break;
		case XACT_EVENT_ABORT:
			if (cb_stage_drop(0) > 0)
				CB_TEST_POINT("abort-drop");
			cb_pin_forget(0);
			cb_stage_end_xact();
			break;
		default:
			break;				/* parallel workers do not insert */
	}
}

static void
cb_stage_subxact_callback(SubXactEvent event, SubTransactionId subid,
						  SubTransactionId parent, void *arg)
{
	cb_unique_forget_look();
	if (event == SUBXACT_EVENT_ABORT_SUB)
		cb_pin_forget(GetCurrentTransactionNestLevel());
	if (cb_stage_is_empty())
		return;
	switch (event)
	{
		case SUBXACT_EVENT_PRE_COMMIT_SUB:
			cb_stage_publish_all(GetCurrentTransactionNestLevel());
			break;
		case SUBXACT_EVENT_ABORT_SUB:
			if (cb_stage_drop(GetCurrentTransactionNestLevel()) > 0)
				CB_TEST_POINT("abort-drop");
			break;
		default:
			break;
	}
}

/* Installs hooks and callbacks; only while the library is preloaded. */
void
cb_stage_init(void)
{
	prev_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = cb_stage_executor_run;
	prev_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = cb_stage_executor_finish;
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = cb_stage_process_utility;

	RegisterXactCallback(cb_stage_xact_callback, NULL);
	RegisterSubXactCallback(cb_stage_subxact_callback, NULL);
}
