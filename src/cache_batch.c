/*-------------------------------------------------------------------------
 *
 * cache_batch.c
 *	  What happens when the library is loaded.
 *
 * Preloaded, it registers everything: the resource manager, shared memory,
 * the hooks of planning and staging.  Loaded later, by a backend that opens an
 * index, it registers only what needs no preloading, so that such an index can
 * be described and dropped (C1); cb_require_preload() stops everything else.
 *
 * It writes nothing and starts nothing here, so pg_upgrade needs no case of
 * its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_am.h"
#include "am/cb_explain.h"
#include "am/cb_unique.h"
#include "base/cb_counts.h"
#include "base/cb_heat.h"
#include "base/cb_progress.h"
#include "bucket/cb_bucket.h"
#include "bucket/cb_claim.h"
#include "bucket/cb_key_filter.h"
#include "flush/cb_worker.h"
#include "fmgr.h"
#include "journal/cb_journal.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "range/cb_range.h"
#include "rel/cb_alloc.h"
#include "rel/cb_recent.h"
#include "sqlfn/cb_adopt.h"
#include "storage/ipc.h"
#include "tree/cb_tree.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

/* What is done with each kind of WAL record. */
static const CbWalAction cb_wal_actions[CB_NUM_WAL_ACTIONS] = {
	[XLOG_CB_JOURNAL_APPEND >> 4] = {"JOURNAL_APPEND",
	cb_redo_journal_append, cb_describe_journal_append, CB_COUNT_JOURNAL},
	[XLOG_CB_JOURNAL_TRUNCATE >> 4] = {"JOURNAL_TRUNCATE",
	cb_redo_journal_truncate, cb_describe_journal_truncate,
	CB_COUNT_JOURNAL | CB_COUNT_REMOVALS},
	[XLOG_CB_LEAF_BATCH >> 4] = {"LEAF_BATCH",
	cb_redo_insert, cb_describe_insert},
	[XLOG_CB_SPLIT >> 4] = {"SPLIT",
	cb_redo_split, cb_describe_split},
	[XLOG_CB_INTERNAL_INSERT >> 4] = {"INTERNAL_INSERT",
	cb_redo_insert, cb_describe_insert},
	[XLOG_CB_NEWROOT >> 4] = {"NEWROOT",
	cb_redo_newroot, cb_describe_newroot},
	[XLOG_CB_VACUUM_LEAF >> 4] = {"VACUUM_LEAF",
	cb_redo_vacuum_leaf, cb_describe_vacuum_leaf, CB_COUNT_REMOVALS},
	[XLOG_CB_LEAF_PACK >> 4] = {"LEAF_PACK",
	cb_redo_leaf_pack, cb_describe_leaf_pack},
	[XLOG_CB_REDISTRIBUTE >> 4] = {"REDISTRIBUTE",
	cb_redo_redistribute, cb_describe_redistribute},
	[XLOG_CB_UNLINK >> 4] = {"UNLINK",
	cb_redo_unlink, cb_describe_unlink},
	[XLOG_CB_REUSE_PAGE >> 4] = {"REUSE_PAGE",
	cb_redo_reuse_page, cb_describe_reuse_page},
	[XLOG_CB_LEAF_DELETE >> 4] = {"LEAF_DELETE",
	cb_redo_leaf_delete, cb_describe_leaf_delete, CB_COUNT_REMOVALS},
	[XLOG_CB_RANGE_PAGES >> 4] = {"RANGE_PAGES",
	cb_redo_range_pages, NULL},
	[XLOG_CB_SPILL >> 4] = {"SPILL",
	cb_redo_spill, cb_describe_spill},
	[XLOG_CB_RETIRE >> 4] = {"RETIRE",
	cb_redo_retire, cb_describe_retire, CB_COUNT_REMOVALS},
	[XLOG_CB_RUN_FREE >> 4] = {"RUN_FREE",
	cb_redo_run_free, cb_describe_run_free}
};

static shmem_request_hook_type prev_shmem_request_hook;
static shmem_startup_hook_type prev_shmem_startup_hook;

static void
cb_shmem_request(void)
{
	if (prev_shmem_request_hook)
		prev_shmem_request_hook();
	cb_wait_shmem_request();
	cb_stat_shmem_request();
	cb_heat_shmem_request();
	cb_recent_shmem_request();
	cb_counts_shmem_request();
	cb_pool_shmem_request();
	cb_queue_shmem_request();
	cb_stage_shmem_request();
	cb_claim_shmem_request();
	cb_key_filter_shmem_request();
	cb_progress_shmem_request();
}

static void
cb_shmem_startup(void)
{
	if (prev_shmem_startup_hook)
		prev_shmem_startup_hook();
	cb_stat_shmem_startup();
	cb_heat_shmem_startup();
	cb_recent_shmem_startup();
	cb_counts_shmem_startup();
	cb_pool_shmem_startup();
	cb_queue_shmem_startup();
	cb_stage_shmem_startup();
	cb_claim_shmem_startup();
	cb_key_filter_shmem_startup();
	cb_progress_shmem_startup();
}

static void
cb_install_hooks(void)
{
	prev_shmem_request_hook = shmem_request_hook;
	shmem_request_hook = cb_shmem_request;
	prev_shmem_startup_hook = shmem_startup_hook;
	shmem_startup_hook = cb_shmem_startup;

	cb_explain_init();
	cb_planner_init();
	cb_stage_init();
	cb_flush_init();
	cb_worker_fill_filter = cb_unique_fill_filter;
	cb_adopt_init();
}

void
_PG_init(void)
{
	cb_preloaded = process_shared_preload_libraries_in_progress;
	cb_guc_define();
	cb_options_init();

	if (!cb_preloaded)
		return;

	cb_wal_register(cb_wal_actions);
	cb_install_hooks();
}
