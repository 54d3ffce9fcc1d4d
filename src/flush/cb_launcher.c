/*-------------------------------------------------------------------------
 *
 * cb_launcher.c
 *	  The launcher: starts workers for databases that have something to do.
 *
 * One process, started with the server as soon as it accepts writes.  It is
 * connected to no database, and reads one shared catalog: pg_database, to
 * have each database visited once after a start (cb_resume.c), and to find out
 * whether one that no worker can connect to is gone.  It also asks for flushes
 * of entries that got older than max_delay.
 *
 * A worker's entry is made here (STARTING), taken by the worker (CONNECTING),
 * given up at its exit (GONE), and freed here.  A worker that never gets as
 * far as to take its entry is noticed by its handle, or, if this process was
 * itself restarted meanwhile, by the clock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "catalog/pg_database.h"
#include "flush/cb_worker.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/relcache.h"
#include "utils/wait_event.h"

#define CB_LAUNCHER_RESTART_S	5

/* a worker that has not begun after so long is not coming any more */
#define CB_LAUNCHER_START_MS	60000

/* a database that cannot be connected to so often in a row is not visited */
#define CB_LAUNCHER_TRIES		3

/* so many databases at a time; others have places, too, while these wait */
#define CB_LAUNCHER_VISITS		(CB_MAX_DATABASES / 2)

#define CB_LAUNCHER_RETRY_MS	1000	/* after the first failure */
#define CB_LAUNCHER_RETRY_MAX_MS 60000

/* how often to look for sweeps that workers rest from */
#define CB_LAUNCHER_SWEEP_MS	5000

/* a database whose queue is this long, per worker, gets one more */
#define CB_LAUNCHER_LONG		8

static BackgroundWorkerHandle *cb_launcher_handles[CB_MAX_WORKERS];
static int	cb_launcher_next_place = 0;

/* databases that are to be visited and have no place yet: OIDs */
static List *cb_launcher_unmarked = NIL;

/* ---------- coming and going ---------- */

static void
cb_launcher_exit(int code, Datum arg)
{
	pg_atomic_write_u32(&cb_workers->launcher_pid, 0);
}

static void
cb_launcher_enlist(void)
{
	before_shmem_exit(cb_launcher_exit, (Datum) 0);
	cb_workers->launcher_latch = MyLatch;
	pg_memory_barrier();
	pg_atomic_write_u32(&cb_workers->launcher_pid, MyProcPid);
}

/*
 * Takes a worker out of its database's: adds its counts to those of the
 * database, marks its entry GONE, and wakes those who wait for workers to
 * leave.  Called once for an entry: by the worker as it exits, or by the
 * launcher for one that never began.  Takes cb_workers->lock; the caller holds
 * no LWLock.
 */
void
cb_launcher_strike_off(CbWorker *worker)
{
	CbDatabase *database = &cb_workers->databases[worker->place];

	LWLockAcquire(cb_workers->lock, LW_EXCLUSIVE);
	worker->latch = NULL;
	worker->pid = 0;
	pg_atomic_fetch_add_u64(&database->requests,
							pg_atomic_exchange_u64(&worker->requests, 0));
	pg_atomic_fetch_add_u64(&database->entries,
							pg_atomic_exchange_u64(&worker->entries, 0));
	pg_atomic_write_u32(&worker->indexoid, InvalidOid);
	pg_atomic_write_u32(&worker->state, CB_WORKER_GONE);
	pg_atomic_fetch_sub_u32(&database->nworkers, 1);
	LWLockRelease(cb_workers->lock);
	ConditionVariableBroadcast(&database->left);
}

/* ---------- databases that no worker can serve ---------- */

/* Does the database exist, and can it be connected to? */
static bool
cb_launcher_database_exists(Oid dboid)
{
	Relation	rel;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	bool		exists;

	StartTransactionCommand();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_database_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(dboid));
	scan = systable_beginscan(rel, DatabaseOidIndexId,
							  criticalSharedRelcachesBuilt, NULL, 1, &key);
	tuple = systable_getnext(scan);
	exists = HeapTupleIsValid(tuple);
#ifdef DATCONNLIMIT_INVALID_DB
	if (exists)
		exists = ((Form_pg_database) GETSTRUCT(tuple))->datconnlimit !=
			DATCONNLIMIT_INVALID_DB;
#endif
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	return exists;
}

static void
cb_launcher_forget(int place)
{
	Oid			dboid = pg_atomic_read_u32(&cb_workers->dboids[place]);

	cb_set_forget_database(dboid);
	cb_queue_discard(place);
	LWLockAcquire(cb_workers->lock, LW_EXCLUSIVE);
	if (pg_atomic_read_u32(&cb_workers->databases[place].nworkers) == 0 &&
		pg_atomic_read_u32(&cb_workers->databases[place].suspended) == 0)
		pg_atomic_write_u32(&cb_workers->dboids[place], InvalidOid);
	LWLockRelease(cb_workers->lock);
}

static void
cb_launcher_back_off(CbDatabase *database)
{
	int			wait = CB_LAUNCHER_RETRY_MS << Min(database->failures, 6);
	TimestampTz retry_at =
		TimestampTzPlusMilliseconds(cb_clock_now(),
									Min(wait, CB_LAUNCHER_RETRY_MAX_MS));

	database->failures++;
	pg_atomic_write_u64(&database->retry_at, retry_at);
}

/* ---------- workers that are gone ---------- */

/* Has a worker that was asked for not begun, and never will? */
static bool
cb_launcher_never_began(int i)
{
	CbWorker   *worker = &cb_workers->workers[i];
	pid_t		pid;

	if (pg_atomic_read_u32(&worker->state) != CB_WORKER_STARTING)
		return false;
	if (cb_launcher_handles[i] == NULL)
		return TimestampDifferenceExceeds(worker->started_at,
										  cb_clock_now(),
										  CB_LAUNCHER_START_MS);

	/* its state once more: it may have run from start to end in between */
	return GetBackgroundWorkerPid(cb_launcher_handles[i], &pid) == BGWH_STOPPED &&
		pg_atomic_read_u32(&worker->state) == CB_WORKER_STARTING;
}

static void
cb_launcher_free_worker(int i)
{
	if (cb_launcher_handles[i] != NULL)
		pfree(cb_launcher_handles[i]);
	cb_launcher_handles[i] = NULL;
	LWLockAcquire(cb_workers->lock, LW_EXCLUSIVE);
	cb_workers->workers[i].generation++;
	pg_atomic_write_u32(&cb_workers->workers[i].state, CB_WORKER_FREE);
	pg_atomic_fetch_sub_u32(&cb_workers->running, 1);
	LWLockRelease(cb_workers->lock);
}

static void
cb_launcher_reap_worker(int i)
{
	CbWorker   *worker = &cb_workers->workers[i];
	CbDatabase *database = &cb_workers->databases[worker->place];
	int			place = worker->place;
	bool		clean = worker->clean;
	bool		connected = worker->connected;
	bool		same = pg_atomic_read_u32(&cb_workers->dboids[place]) == worker->dboid;

	cb_launcher_free_worker(i);
	if (!same)
		return;					/* the place is another's by now */
	if (clean)
	{
		database->failures = 0;
		pg_atomic_write_u64(&database->retry_at, 0);
		return;
	}
	cb_launcher_back_off(database);
	if (connected)
		return;
	if (database->failures >= CB_LAUNCHER_TRIES)
		pg_atomic_write_u32(&database->unvisited, 0);
	if (pg_atomic_read_u32(&database->nworkers) == 0 &&
		!cb_launcher_database_exists(pg_atomic_read_u32(&cb_workers->dboids[place])))
		cb_launcher_forget(place);
}

static void
cb_launcher_reap(void)
{
	for (int i = 0; i < cb_max_workers; i++)
	{
		CbWorker   *worker = &cb_workers->workers[i];

		if (cb_launcher_never_began(i))
			cb_launcher_strike_off(worker);
		if (pg_atomic_read_u32(&worker->state) == CB_WORKER_GONE)
			cb_launcher_reap_worker(i);
	}
}

/* ---------- after a start ---------- */

/* Has a worker go through the database's indexes; false: there is no place. */
static bool
cb_launcher_mark(Oid dboid)
{
	int			place;

	LWLockAcquire(cb_workers->lock, LW_EXCLUSIVE);
	place = cb_queue_make_place_locked(dboid);
	if (place >= 0)
	{
		cb_workers->databases[place].visited = InvalidOid;
		pg_write_barrier();
		pg_atomic_write_u32(&cb_workers->databases[place].unvisited, 1);
	}
	LWLockRelease(cb_workers->lock);
	return place >= 0;
}

/* How many databases are to be visited by a worker that has not come yet. */
static int
cb_launcher_count_marked(void)
{
	int			n = 0;

	for (int i = 0; i < CB_MAX_DATABASES; i++)
		n += pg_atomic_read_u32(&cb_workers->databases[i].unvisited) != 0;
	return n;
}

/*
 * Has all databases visited, each once after a start, some at a time.  What is left
 * when this process has to be started again is not.
 */
static void
cb_launcher_mark_databases(void)
{
#ifdef CB_TESTPOINTS
	if (!cb_test_visits)
		return;
#endif
	if (!cb_workers->has_begun)
	{
		cb_workers->has_begun = true;
		cb_launcher_unmarked = cb_resume_list_databases();
	}
	while (cb_launcher_unmarked != NIL &&
		   cb_launcher_count_marked() < CB_LAUNCHER_VISITS)
	{
		Oid			dboid = llast_oid(cb_launcher_unmarked);

		if (cb_launcher_database_exists(dboid) && !cb_launcher_mark(dboid))
			break;
		cb_launcher_unmarked = list_delete_last(cb_launcher_unmarked);
	}
}

/* ---------- starting workers ---------- */

/* A worker's entry for a database; -1: all are in use, or it is suspended. */
static int
cb_launcher_reserve(int place)
{
	CbDatabase *database = &cb_workers->databases[place];
	int			found = -1;

	LWLockAcquire(cb_workers->lock, LW_EXCLUSIVE);
	for (int i = 0; i < cb_max_workers && found < 0; i++)
	{
		if (pg_atomic_read_u32(&cb_workers->workers[i].state) == CB_WORKER_FREE)
			found = i;
	}
	if (pg_atomic_read_u32(&database->suspended) != 0)
		found = -1;
	if (found >= 0)
	{
		CbWorker   *worker = &cb_workers->workers[found];

		worker->place = place;
		worker->dboid = pg_atomic_read_u32(&cb_workers->dboids[place]);
		worker->started_at = cb_clock_now();
		worker->connected = worker->clean = false;
		pg_atomic_write_u32(&worker->state, CB_WORKER_STARTING);
		pg_atomic_fetch_add_u32(&database->nworkers, 1);
		pg_atomic_fetch_add_u32(&cb_workers->running, 1);
	}
	LWLockRelease(cb_workers->lock);
	return found;
}

/* Describes a process that runs this function once the server takes writes. */
static void
cb_launcher_describe(BackgroundWorker *entry, const char *type,
					 const char *function, int restart_time)
{
	memset(entry, 0, sizeof(BackgroundWorker));
	strlcpy(entry->bgw_name, type, BGW_MAXLEN);
	strlcpy(entry->bgw_type, type, BGW_MAXLEN);
	entry->bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	entry->bgw_start_time = BgWorkerStart_RecoveryFinished;
	entry->bgw_restart_time = restart_time;
	strlcpy(entry->bgw_library_name, "cache_batch", BGW_MAXLEN);
	strlcpy(entry->bgw_function_name, function, BGW_MAXLEN);
}

static bool
cb_launcher_register(int i)
{
	CbWorker   *worker = &cb_workers->workers[i];
	BackgroundWorker entry;

	cb_launcher_describe(&entry, "cache_batch flusher", "cb_worker_main",
						 BGW_NEVER_RESTART);
	snprintf(entry.bgw_name, BGW_MAXLEN, "cache_batch flusher of database %u",
			 worker->dboid);
	entry.bgw_main_arg = Int32GetDatum(i);
	memcpy(entry.bgw_extra, &worker->generation, sizeof(worker->generation));
	entry.bgw_notify_pid = MyProcPid;
	return RegisterDynamicBackgroundWorker(&entry, &cb_launcher_handles[i]);
}

/* False: there is no worker left. */
static bool
cb_launcher_start_worker(int place)
{
	CbDatabase *database = &cb_workers->databases[place];
	int			i = cb_launcher_reserve(place);

	if (i < 0)
		return pg_atomic_read_u32(&database->suspended) != 0;
	if (cb_launcher_register(i))
		return true;

	if (database->failures == 0)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no background worker slot is free for a cache_batch flusher"),
				 errhint("Consider increasing the configuration parameter \"%s\".",
						 "max_worker_processes")));
	cb_workers->workers[i].clean = true;	/* the failure is counted here */
	cb_launcher_strike_off(&cb_workers->workers[i]);
	cb_launcher_free_worker(i);
	cb_launcher_back_off(database);
	return true;
}

/* How long until the database may have one (more) worker, in ms; -1: never. */
static long
cb_launcher_delay(int place, TimestampTz now)
{
	CbDatabase *database = &cb_workers->databases[place];
	uint32		nworkers = pg_atomic_read_u32(&database->nworkers);
	TimestampTz retry_at = pg_atomic_read_u64(&database->retry_at);

	if (pg_atomic_read_u32(&cb_workers->dboids[place]) == InvalidOid ||
		!cb_queue_has_work(place) ||
		pg_atomic_read_u32(&database->suspended) != 0)
		return -1;
	if (nworkers > 0 &&
		pg_atomic_read_u32(&database->pending) <= nworkers * CB_LAUNCHER_LONG)
		return -1;
	return retry_at <= now ? 0 : TimestampDifferenceMilliseconds(now, retry_at);
}

/* A database has no worker and there is none left: one shall give way. */
static void
cb_launcher_want(void)
{
	pg_atomic_write_u32(&cb_workers->wanted, 1);
	pg_memory_barrier();
	for (int i = 0; i < cb_max_workers; i++)
	{
		CbWorker   *worker = &cb_workers->workers[i];
		Latch	   *latch = worker->latch;

		if (latch != NULL &&
			pg_atomic_read_u32(&worker->state) == CB_WORKER_IDLE)
			SetLatch(latch);
	}
}

/*
 * Starts a worker for each database that wants one and has none, in turn; then
 * more for those with long queues.  Returns when to look again, in ms.
 */
static long
cb_launcher_start_workers(long timeout)
{
	TimestampTz now = cb_clock_now();

	pg_atomic_write_u32(&cb_workers->wanted, 0);
	for (int i = 0; i < 2 * CB_MAX_DATABASES; i++)
	{
		bool		first = i < CB_MAX_DATABASES;
		int			place = (cb_launcher_next_place + i) % CB_MAX_DATABASES;
		bool		none = pg_atomic_read_u32(&cb_workers->databases[place].nworkers) == 0;
		long		delay;

		if (first != none)
			continue;
		delay = cb_launcher_delay(place, now);
		if (delay > 0)
			timeout = Min(timeout, delay);
		if (delay != 0)
			continue;
		if (!cb_launcher_start_worker(place))
		{
			cb_launcher_next_place = place; /* it is the next one's turn */
			if (first)
				cb_launcher_want();
			break;
		}
	}
	return timeout;
}

/* ---------- old entries ---------- */

/*
 * The first bucket of an index whose entries from before it had buckets, or cold
 * leaves, are due.
 */
static uint32
cb_launcher_due_bucket(CbBucketSet *set, TimestampTz now)
{
	uint32		bucket = CB_NONE;

	if (set->state != CB_SET_ATTACHED)	/* a look without its lock */
		return CB_NONE;
	cb_set_share(set);
	if (set->state == CB_SET_ATTACHED && set->nbuckets > 0 &&
		(cb_flush_before_is_due(set) || cb_compactor_is_due(set, now)))
		bucket = set->buckets[0];
	LWLockRelease(&set->lock);
	return bucket;
}

/* Asks for all flushes that are due because of max_delay. */
static void
cb_launcher_request_old(void)
{
	TimestampTz now = cb_clock_now();

	for (uint32 i = 0; i < cb_pool->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[i];
		bool		old;

		if (bucket->set == CB_NONE || bucket->nchunks == 0)
			continue;
		LWLockAcquire(&bucket->lock, LW_SHARED);
		old = bucket->nchunks > 0 &&
			TimestampDifferenceExceeds(bucket->since, now, cb_max_delay);
		LWLockRelease(&bucket->lock);
		if (old)
			cb_queue_request(i, CB_FLUSH_DELAY);
	}
	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		uint32		bucket = cb_launcher_due_bucket(&cb_pool_sets[i], now);

		if (bucket != CB_NONE)
			cb_queue_request(bucket, CB_FLUSH_DELAY);
	}
}

/* ---------- the loop ---------- */

static void
cb_launcher_absorb(void)
{
	CHECK_FOR_INTERRUPTS();
	if (ShutdownRequestPending)
		proc_exit(1);			/* started again, unless the server stops */
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Has an index entries from before it had buckets?  A look without locks. */
static bool
cb_launcher_knows_unswept(void)
{
	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		const CbBucketSet *set = &cb_pool_sets[i];

		if (set->state == CB_SET_ATTACHED && cb_flush_before_is_left(set))
			return true;
	}
	return false;
}

/*
 * Entries are flushed when they are between 1 and 1.5 times max_delay old.  More
 * often it looks for a sweep that a worker rests from.
 */
static long
cb_launcher_request_due(TimestampTz *looked_at)
{
	TimestampTz now = cb_clock_now();
	int			interval = cb_max_delay / 2;
	TimestampTz due;

	if (cb_launcher_knows_unswept())
		interval = Min(interval, CB_LAUNCHER_SWEEP_MS);
	due = TimestampTzPlusMilliseconds(*looked_at, interval);
	if (due <= now)
	{
		cb_launcher_request_old();
		*looked_at = now;
		return interval;
	}
	return TimestampDifferenceMilliseconds(now, due);
}

/*
 * The launcher's process; does not return.  Started by the postmaster as soon
 * as the server accepts writes, and again CB_LAUNCHER_RESTART_S after it has
 * exited with an error or by SIGTERM.
 */
void
cb_launcher_main(Datum arg)
{
	TimestampTz looked_at = cb_clock_now();

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	if (cb_workers == NULL)
		proc_exit(0);
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	SetConfigOption("application_name", "cache_batch launcher", PGC_SUSET,
					PGC_S_OVERRIDE);
#if PG_VERSION_NUM >= 170000
	SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);
#endif
	CB_TEST_POINT("launcher-start");
	cb_launcher_enlist();

	for (;;)
	{
		long		timeout;

		cb_launcher_absorb();
		cb_launcher_reap();
		cb_launcher_mark_databases();
		timeout = cb_launcher_request_due(&looked_at);
		timeout = cb_launcher_start_workers(timeout);
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Max(timeout, 10), cb_wait_event(CB_WAIT_LAUNCHER_MAIN));
		ResetLatch(MyLatch);
	}
}

/*
 * Installs the hook for commands on databases and registers the launcher,
 * unless they would have nothing to do: there are no buckets, or max_workers
 * is 0.  pg_upgrade wants nobody to change data behind its back, so it gets no
 * launcher.  Called only while the library is preloaded.
 */
void
cb_flush_init(void)
{
	BackgroundWorker entry;

	if (cb_pool_size_bytes() == 0)
		return;
	cb_dbcommands_init();
	if (IsBinaryUpgrade || cb_max_workers == 0)
		return;

	cb_launcher_describe(&entry, "cache_batch launcher", "cb_launcher_main",
						 CB_LAUNCHER_RESTART_S);
	RegisterBackgroundWorker(&entry);
}
