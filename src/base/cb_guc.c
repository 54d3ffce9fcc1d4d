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
int			cb_pool_size = -1;
int			cb_max_workers = 2;
int			cb_max_delay = 60000;
int			cb_entry_cache_size = -1;
int			cb_heat_size = -1;
int			cb_heat_epoch = 60;
char	   *cb_cold_threshold;
int			cb_cold_rate;
char	   *cb_spill_threshold;
int			cb_spill_target = 64;
double		cb_scan_delay;
bool		cb_preloaded = false;

/*
 * Parses "off", a size such as 64MB, or a percentage of shared_buffers such as
 * 25%.  *kilobytes: CB_THRESHOLD_OFF, or kB.  False, without an error: it is
 * none of these.
 */
bool
cb_guc_parse_threshold(const char *value, int64 *kilobytes)
{
	const char *hint;
	char	   *end;
	double		percent;
	int			size;

	if (pg_strcasecmp(value, "off") == 0)
	{
		*kilobytes = CB_THRESHOLD_OFF;
		return true;
	}
	if (parse_int(value, &size, GUC_UNIT_KB, &hint))
	{
		*kilobytes = size;
		return size >= 0;
	}
	errno = 0;
	percent = strtod(value, &end);
	if (end == value || errno != 0 || strcmp(end, "%") != 0 ||
		!(percent >= 0 && percent <= 1000000))
		return false;
	*kilobytes = (int64) (percent / 100 * NBuffers * (BLCKSZ / 1024));
	return true;
}

static bool
cb_guc_check_threshold(char **newval, void **extra, GucSource source)
{
	int64		unused;

	if (cb_guc_parse_threshold(*newval, &unused))
		return true;
	GUC_check_errdetail("It is \"off\", a size, or a percentage of shared_buffers.");
	return false;
}

/* As the index's option says, if it is set, else the setting. */
static int64
cb_guc_threshold(Relation index, int offset, const char *value)
{
	int64		kilobytes;

	if (offset != 0)
		value = (const char *) index->rd_options + offset;
	return cb_guc_parse_threshold(value, &kilobytes) ? kilobytes : CB_THRESHOLD_OFF;
}

/*
 * Kilobytes of an index beyond which its coldest leaves are packed, or
 * CB_THRESHOLD_OFF: by its storage parameter if that is set, else by the
 * setting.
 */
int64
cb_guc_cold_threshold(Relation index)
{
	const CbOptions *options = (const CbOptions *) index->rd_options;

	return cb_guc_threshold(index, options ? options->cold_threshold : 0,
							cb_cold_threshold);
}

/*
 * Kilobytes of an index beyond which buckets are flushed to range buffers, or
 * CB_THRESHOLD_OFF: by its storage parameter if that is set, else by the
 * setting.
 */
int64
cb_guc_spill_threshold(Relation index)
{
	const CbOptions *options = (const CbOptions *) index->rd_options;

	return cb_guc_threshold(index, options ? options->spill_threshold : 0,
							cb_spill_threshold);
}

/*
 * The context of settings that shape shared memory.  In a backend that loads the
 * library by itself they mean nothing, and can no longer be defined as what they
 * are.
 */
static GucContext
cb_guc_startup_context(void)
{
	return cb_preloaded ? PGC_POSTMASTER : PGC_SIGHUP;
}

static void
cb_guc_define_startup(void)
{
	GucContext	context = cb_guc_startup_context();

	DefineCustomIntVariable("cache_batch.pool_size",
							"Shared memory for cache-buckets, of all indexes together.",
							"-1: as large as the CPU's last-level cache.  0: no buckets.",
							&cb_pool_size,
							-1, -1, MAX_KILOBYTES,
							context, GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.max_workers",
							"Background workers that flush cache-buckets, at most.",
							"They are taken from max_worker_processes.  0: whoever fills a bucket flushes it.",
							&cb_max_workers,
							2, 0, 64,
							context, 0, NULL, NULL, NULL);
}

/* Those for indexes that are larger than memory. */
static void
cb_guc_define_sizes(void)
{
	DefineCustomStringVariable("cache_batch.cold_threshold",
							   "Size of an index beyond which workers pack its coldest leaves densely.",
							   "A size, or a percentage of shared_buffers.  off: they do not.",
							   &cb_cold_threshold,
							   "off",
							   PGC_SIGHUP, 0,
							   cb_guc_check_threshold, NULL, NULL);

	DefineCustomStringVariable("cache_batch.spill_threshold",
							   "Size of an index beyond which flushed buckets may become range buffers.",
							   "A size, or a percentage of shared_buffers.  off: they go to the leaves.",
							   &cb_spill_threshold,
							   "10%",
							   PGC_SIGHUP, 0,
							   cb_guc_check_threshold, NULL, NULL);

	DefineCustomRealVariable("cache_batch.scan_delay",
							 "Time that workers pause for each scan of an index with range buffers that began while one of them flushed.",
							 "They pause at most five times as long as that one has worked.  0: not at all.",
							 &cb_scan_delay,
							 5, 0, 1000,
							 PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
}

/*
 * Developer options: for measurements and tests.  Their defaults follow from the
 * other settings, or from what was measured.
 */
static void
cb_guc_define_developer(void)
{
	GucContext	startup = cb_guc_startup_context();

	DefineCustomIntVariable("cache_batch.entry_cache_size",
							"Shared memory for entries that look-ups have found, of all indexes together.",
							"-1: half of pool_size.  0: none are kept.",
							&cb_entry_cache_size,
							-1, -1, 16 * 1024 * 1024,
							startup, GUC_NOT_IN_SAMPLE | GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.heat_size",
							"Shared memory for the times of the latest accesses to leaves, of all indexes together.",
							"4 bytes a leaf.  -1: a 128th of shared_buffers.  0: none are kept.",
							&cb_heat_size,
							-1, -1, 16 * 1024 * 1024,
							startup, GUC_NOT_IN_SAMPLE | GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.heat_epoch",
							"Unit in which the age of the latest accesses to leaves is counted.",
							"Accesses more than 32767 of them ago are forgotten.",
							&cb_heat_epoch,
							60, 1, 24 * 3600,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE | GUC_UNIT_S, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.cold_rate",
							"Leaves of an index that workers look at in a second, to pack cold ones.",
							NULL,
							&cb_cold_rate,
							200, 1, 1000000,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.spill_target",
							"Entries that a range buffer collects for each leaf before they are applied.",
							NULL,
							&cb_spill_target,
							64, 1, 1000,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.stage_size",
							"Memory for the entries that one statement collects for one index.",
							"When it is used up, the entries are published before the statement's end.",
							&cb_stage_size,
							64, 8, 1024,
							PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_UNIT_KB, NULL, NULL, NULL);

	DefineCustomIntVariable("cache_batch.stage_total_size",
							"Memory for the entries that one statement collects for all indexes.",
							"When it is used up, the largest collections are published.",
							&cb_stage_total_size,
							4096, 64, 1024 * 1024,
							PGC_USERSET, GUC_NOT_IN_SAMPLE | GUC_UNIT_KB, NULL, NULL, NULL);
}

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

	DefineCustomIntVariable("cache_batch.max_delay",
							"Time after which workers flush buckets that do not fill up.",
							"It is looked at twice in this time, so up to half as much again may pass.",
							&cb_max_delay,
							60000, 100, 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);

	cb_guc_define_sizes();
	cb_guc_define_startup();
	cb_guc_define_developer();

#ifdef CB_TESTPOINTS
	cb_testpoint_define_guc();
#endif

	MarkGUCPrefixReserved("cache_batch");
}

/*
 * Raises the error of C1 unless the library was preloaded.  Cheap, so each
 * entry from the server calls it.
 */
void
cb_require_preload(void)
{
	if (unlikely(!cb_preloaded))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cache_batch must be loaded via shared_preload_libraries"),
				 errhint("Add cache_batch to shared_preload_libraries and restart the server.")));
}

/*
 * Raises the error of C11: the index is used from within its own comparisons.
 */
void
cb_report_reentry(Relation index)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("cannot use index \"%s\" while its keys are being compared",
					RelationGetRelationName(index)),
			 errhint("A comparison function must not read or change a table indexed with it.")));
}
