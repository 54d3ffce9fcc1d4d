/*-------------------------------------------------------------------------
 *
 * cb_testpoint.c
 *	  Named places where tests fail, kill or stop a backend.
 *
 * cache_batch.test_points lists them: name=action[,name=action...], with
 *	  error[:N]		raise an error, each time or at the Nth hit only
 *	  kill[:N]		end the process with SIGKILL, at once or at the Nth hit,
 *					when the WAL that it has made is on disk, as others could
 *					have brought it there
 *	  cancel[:N]	cancel the query, as pg_cancel_backend() does
 *	  stop			stop the process with SIGSTOP, with all that it holds
 *	  wait:KEY		wait until nobody holds advisory lock KEY exclusively
 *	  call			SELECT cache_batch_test_point(name), which the test has made
 *	  count			count only
 * cache_batch.test_point_hits shows how often each listed point was reached by
 * this backend since the list was set.
 *
 * "error", "wait" and "call" are ignored where an error could not be raised
 * safely:  in a critical section, with an LWLock held, or outside a
 * transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"

#ifdef CB_TESTPOINTS

#include <signal.h>
#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#define CB_TESTPOINT_NAMELEN	40
#define CB_TESTPOINT_MAX		32

typedef enum CbTestAction
{
	CB_TEST_ERROR,
	CB_TEST_KILL,
	CB_TEST_CANCEL,
	CB_TEST_STOP,
	CB_TEST_WAIT,
	CB_TEST_CALL,
	CB_TEST_COUNT
} CbTestAction;

typedef struct CbTestPoint
{
	char		name[CB_TESTPOINT_NAMELEN];
	CbTestAction action;
	int64		arg;
	int64		hits;
} CbTestPoint;

typedef struct CbTestPoints
{
	int			n;
	CbTestPoint point[FLEXIBLE_ARRAY_MEMBER];
} CbTestPoints;

bool		cb_test_buckets = true;
bool		cb_test_visits = true;
int			cb_test_delta = -1;
int			cb_test_max_buckets = 0;
int			cb_test_share = 0;
bool		cb_test_join = false;
int			cb_test_run_min = -1;
bool		cb_test_spill = false;
int			cb_test_tiles = 0;
bool		cb_test_read_ahead = false;
bool		cb_test_filters = false;
bool		cb_test_lock_views = false;
int			cb_test_heat_rate = 0;
int			cb_test_heat_ahead = 0;
int			cb_test_stat_indexes = 0;
static char *cb_test_points_string = NULL;
static char *cb_test_hits_string = NULL;
static CbTestPoints *cb_test_points = NULL;

/* Reads a decimal number that fills the rest of the item. */
static bool
cb_testpoint_parse_number(const char *s, int64 *result)
{
	char	   *end;

	if (*s == '\0')
		return false;
	errno = 0;
	*result = strtoll(s, &end, 10);
	return errno == 0 && *end == '\0';
}

/* Reads "name" or, if the action takes a number, "name:number". */
static bool
cb_testpoint_parse_action(const char *action, CbTestPoint *point)
{
	static const struct
	{
		const char *name;
		CbTestAction action;
		bool		needs_number;
		bool		takes_number;
	}			actions[] = {
		{"count", CB_TEST_COUNT, false, false},
		{"call", CB_TEST_CALL, false, false},
		{"stop", CB_TEST_STOP, false, false},
		{"error", CB_TEST_ERROR, false, true},
		{"kill", CB_TEST_KILL, false, true},
		{"cancel", CB_TEST_CANCEL, false, true},
		{"wait", CB_TEST_WAIT, true, true}
	};
	Size		len = strcspn(action, ":");

	point->arg = 0;
	for (int i = 0; i < lengthof(actions); i++)
	{
		if (strlen(actions[i].name) != len ||
			strncmp(action, actions[i].name, len) != 0)
			continue;
		point->action = actions[i].action;
		if (action[len] == '\0')
			return !actions[i].needs_number;
		return actions[i].takes_number &&
			cb_testpoint_parse_number(action + len + 1, &point->arg);
	}
	return false;
}

static bool
cb_testpoint_parse_item(char *item, CbTestPoint *point)
{
	char	   *equals = strchr(item, '=');
	Size		len;

	if (equals == NULL)
		return false;
	*equals = '\0';
	len = strspn(item, "abcdefghijklmnopqrstuvwxyz0123456789-");
	if (len == 0 || item[len] != '\0' || len >= CB_TESTPOINT_NAMELEN)
		return false;
	strlcpy(point->name, item, CB_TESTPOINT_NAMELEN);
	point->hits = 0;
	return cb_testpoint_parse_action(equals + 1, point);
}

static bool
cb_testpoint_check(char **newval, void **extra, GucSource source)
{
	CbTestPoints *points;
	char	   *copy;
	char	   *item;
	char	   *state = NULL;

	points = guc_malloc(LOG, offsetof(CbTestPoints, point) +
						CB_TESTPOINT_MAX * sizeof(CbTestPoint));
	copy = guc_strdup(LOG, *newval ? *newval : "");
	if (points == NULL || copy == NULL)
	{
		if (points != NULL)
			guc_free(points);
		if (copy != NULL)
			guc_free(copy);
		return false;
	}
	points->n = 0;
	for (item = strtok_r(copy, ", ", &state); item != NULL;
		 item = strtok_r(NULL, ", ", &state))
	{
		if (points->n >= CB_TESTPOINT_MAX ||
			!cb_testpoint_parse_item(item, &points->point[points->n]))
		{
			GUC_check_errdetail("A list of name=action is expected; actions: error[:N], kill[:N], cancel[:N], stop, wait:KEY, call, count.");
			guc_free(points);
			guc_free(copy);
			return false;
		}
		points->n++;
	}
	guc_free(copy);
	*extra = points;
	return true;
}

static void
cb_testpoint_assign(const char *newval, void *extra)
{
	CbTestPoints *points = (CbTestPoints *) extra;
	int			i;

	cb_test_points = points;
	for (i = 0; points != NULL && i < points->n; i++)
		points->point[i].hits = 0;
}

static const char *
cb_testpoint_show_hits(void)
{
	static char buf[CB_TESTPOINT_MAX * (CB_TESTPOINT_NAMELEN + 24)];
	Size		used = 0;
	int			i;

	buf[0] = '\0';
	for (i = 0; cb_test_points != NULL && i < cb_test_points->n; i++)
		used += snprintf(buf + used, sizeof(buf) - used, "%s%s:" INT64_FORMAT,
						 i > 0 ? "," : "", cb_test_points->point[i].name,
						 cb_test_points->point[i].hits);
	return buf;
}

/* Where entries are put. */
static void
cb_testpoint_define_tiers(void)
{
	DefineCustomBoolVariable("cache_batch.test_buckets",
							 "Whether this session gives indexes their buckets.",
							 "Off, it leaves those alone that have none.",
							 &cb_test_buckets,
							 true,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("cache_batch.test_visits",
							 "Whether workers visit databases after a start.",
							 "Off, what waits in a journal stays there until the index is used.",
							 &cb_test_visits,
							 true,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("cache_batch.test_delta",
							"Plain entries that a leaf takes before it is packed; every other split leaves plain leaves.",
							"-1: as many as there is room for.",
							&cb_test_delta,
							-1, -1, 1000,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("cache_batch.test_max_buckets",
							"Buckets of an index beyond which this session divides none.",
							"0: as without it.",
							&cb_test_max_buckets,
							0, 0, 512,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("cache_batch.test_share",
							"Buckets that an index gets at most when this session gives it some.",
							"0: a fair share of the pool.",
							&cb_test_share,
							0, 0, 256,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("cache_batch.test_join",
							 "Whether this session's flushes join nearly empty buckets as if the pool were short.",
							 NULL,
							 &cb_test_join,
							 false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("cache_batch.test_run_min",
							"Entries that are enough for a run of a range buffer.",
							"-1: as many as without it.",
							&cb_test_run_min,
							-1, -1, 100000,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("cache_batch.test_spill",
							 "Whether cache_batch_flush() flushes buckets as workers do, and leaves range buffers alone.",
							 NULL,
							 &cb_test_spill,
							 false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("cache_batch.test_tiles",
							"Leaves of a tile, where the runs of range buffers go to tiles as soon as there is another one.",
							"0: where there is no room for more, and few for each leaf.",
							&cb_test_tiles,
							0, 0, 100000,
							PGC_USERSET, 0, NULL, NULL, NULL);
}

/* How they are read, and what is counted. */
static void
cb_testpoint_define_reads(void)
{
	DefineCustomBoolVariable("cache_batch.test_read_ahead",
							 "Whether scans read ahead even if all is in memory.",
							 NULL,
							 &cb_test_read_ahead,
							 false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("cache_batch.test_filters",
							 "Whether filters of keys are filled as soon as a key was looked for, and in small slices.",
							 NULL,
							 &cb_test_filters,
							 false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("cache_batch.test_lock_views",
							 "Whether scans lock buckets even if these have nothing for them.",
							 NULL,
							 &cb_test_lock_views,
							 false,
							 PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("cache_batch.test_heat_rate",
							"One in so many visits of leaves is sampled; takes effect with the next sample.",
							"0: as without it.",
							&cb_test_heat_rate,
							0, 0, 1024,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("cache_batch.test_heat_ahead",
							"Epochs by which this session's clock of accesses is ahead.",
							NULL,
							&cb_test_heat_ahead,
							0, 0, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("cache_batch.test_stat_indexes",
							"Indexes beyond which this session has no counters for another one.",
							"0: as without it.",
							&cb_test_stat_indexes,
							0, 0, INT_MAX,
							PGC_USERSET, 0, NULL, NULL, NULL);
}

static void
cb_testpoint_define_points(void)
{
	DefineCustomStringVariable("cache_batch.test_points",
							   "Test points that act, with what they do.",
							   NULL,
							   &cb_test_points_string,
							   "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE,
							   cb_testpoint_check, cb_testpoint_assign, NULL);
	DefineCustomStringVariable("cache_batch.test_point_hits",
							   "How often each of the test points was reached.",
							   NULL,
							   &cb_test_hits_string,
							   "",
							   PGC_INTERNAL,
							   GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   NULL, NULL, cb_testpoint_show_hits);
}

/* Defines the settings of tests; called once, by cb_guc_define(). */
void
cb_testpoint_define_guc(void)
{
	cb_testpoint_define_tiers();
	cb_testpoint_define_reads();
	cb_testpoint_define_points();
}

/*
 * Waits for an advisory lock, as pg_advisory_lock(key) of another session
 * holds it, and releases it at once.
 */
static void
cb_testpoint_wait(int64 key)
{
	LOCKTAG		tag;
	bool		session = CurrentResourceOwner == NULL;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (key >> 32),
						 (uint32) key, 1);
	(void) LockAcquire(&tag, ShareLock, session, false);
	LockRelease(&tag, ShareLock, session);
}

/* Calls the test's function; points that it reaches itself do nothing. */
static void
cb_testpoint_call(const char *name)
{
	CbTestPoints *save = cb_test_points;
	char	   *query = psprintf("SELECT cache_batch_test_point('%s')", name);

	cb_test_points = NULL;
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		SPI_connect();
		SPI_execute(query, false, 0);
		SPI_finish();
		PopActiveSnapshot();
	}
	PG_FINALLY();
	{
		cb_test_points = save;
	}
	PG_END_TRY();
	pfree(query);
}

static void
cb_testpoint_act(CbTestPoint *point)
{
	bool		safe = InterruptHoldoffCount == 0 && CritSectionCount == 0 &&
		MyProc != NULL && IsTransactionState();

	point->hits++;
	switch (point->action)
	{
		case CB_TEST_ERROR:
			if (safe && (point->arg == 0 || point->hits == point->arg))
				ereport(ERROR,
						(errcode(ERRCODE_INTERNAL_ERROR),
						 errmsg("error at test point \"%s\"", point->name)));
			break;
		case CB_TEST_KILL:
			if (point->arg == 0 || point->hits == point->arg)
			{
				XLogFlush(XactLastRecEnd);
				kill(MyProcPid, SIGKILL);
				for (;;)
					pause();
			}
			break;
		case CB_TEST_CANCEL:
			if (point->arg == 0 || point->hits == point->arg)
				kill(MyProcPid, SIGINT);
			break;
		case CB_TEST_STOP:
			kill(MyProcPid, SIGSTOP);
			break;
		case CB_TEST_WAIT:
			if (safe)
				cb_testpoint_wait(point->arg);
			break;
		case CB_TEST_CALL:
			if (safe)
				cb_testpoint_call(point->name);
			break;
		case CB_TEST_COUNT:
			break;
	}
}

/*
 * Does what is set for the point of this name, if anything: counts it, raises
 * an error, waits, calls a function of tests, or kills the backend.  May stand
 * anywhere: with an LWLock held, or in a critical section, there is no error
 * and no wait.
 */
void
cb_testpoint_hit(const char *name)
{
	int			i;

	if (likely(cb_test_points == NULL))
		return;
	for (i = 0; i < cb_test_points->n; i++)
	{
		if (strcmp(cb_test_points->point[i].name, name) == 0)
		{
			cb_testpoint_act(&cb_test_points->point[i]);
			return;
		}
	}
}

#endif							/* CB_TESTPOINTS */
