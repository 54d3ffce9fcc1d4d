/*-------------------------------------------------------------------------
 *
 * cb_guc.c
 *	  Settings, and the check that the library was preloaded.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"

#include "utils/guc.h"

int			cb_journal_limit = 4096;
int			cb_stage_size = 64;
int			cb_stage_total_size = 4096;
bool		cb_preloaded = false;

/* Defines every setting and reserves the prefix; once, at load. */
void
cb_guc_define(void)
{
	DefineCustomIntVariable("cache_batch.journal_limit",
							"Size of an index's journal that makes the next writer flush it.",
							"A larger journal makes larger batches and costs readers more memory.",
							&cb_journal_limit,
							4096, 64, 1024 * 1024,
							PGC_SUSET, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.stage_size",
							"Memory for the entries that one statement collects for one index.",
							"When it is used up, the entries are published before the statement's end.",
							&cb_stage_size,
							64, 8, 1024,
							PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.stage_total_size",
							"Memory for the entries that one statement collects for all indexes.",
							"When it is used up, the largest collections are published.",
							&cb_stage_total_size,
							4096, 64, 1024 * 1024,
							PGC_USERSET, GUC_UNIT_KB, NULL, NULL, NULL);

#ifdef CB_TESTPOINTS
	cb_testpoint_define_guc();
#endif

	MarkGUCPrefixReserved("cache_batch");
}

void
cb_require_preload(void)
{
	if (unlikely(!cb_preloaded))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cache_batch must be loaded via shared_preload_libraries"),
				 errhint("Add cache_batch to shared_preload_libraries and restart the server.")));
}

void
cb_report_reentry(Relation index)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("cannot use index \"%s\" while its keys are being compared",
					RelationGetRelationName(index)),
			 errhint("A comparison function must not read or change a table indexed with it.")));
}
