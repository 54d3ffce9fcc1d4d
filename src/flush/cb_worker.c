/*-------------------------------------------------------------------------
 *
 * cb_worker.c
 *	  A worker: flushes buckets of one database.
 *
 * It takes requests from its database's queue and serves those for one index
 * in one transaction, which it ends after CB_WORKER_SLICE_MS, so that neither
 * its lock on the index nor its snapshot is in anyone's way.  What takes
 * longer is ended between two leaves if somebody waits for it
 * (base/cb_waiter.h), and gone on with later.  It never waits for a lock on an
 * index: if somebody wants it alone, the request is dropped, and comes
 * back with the next insertion or when the entries get too old (B1).
 *
 * While there are no requests one worker of a database goes through its indexes
 * once after a start, one in a transaction (cb_resume.c).  If it has to leave,
 * another one goes on.
 *
 * It leaves when nothing was asked for some time, when a command wants its
 * database for itself, when the server shuts down, and for a database that
 * has no worker at all (C9).
 *
 * An error is remembered for the statistics, and keeps workers from what it
 * was about for a time that doubles with each failure in a row: from that
 * bucket if its flush has failed, else from all that is to be done for the
 * index beside flushes of buckets.  The log has one line for all failures in a
 * row of the same kind.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "base/cb_waiter.h"
#include "bucket/cb_key_filter.h"
#include "catalog/pg_class.h"
#include "flush/cb_throttle.h"
#include "flush/cb_worker.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "rel/cb_ring.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

/* how long a worker stays with nothing to do */
#define CB_WORKER_LINGER_MS		1000

/* how long it works before another database may have its turn */
#define CB_WORKER_TURN_MS		1000

/* how often it looks whether it should end a pause */
#define CB_WORKER_LOOK_MS		10

/* what a request stands for, as its bucket set says */
typedef struct CbTarget
{
	CbBucketSet *set;
	uint64		attach_id;
	Oid			indexoid;
	RelFileLocator file;
} CbTarget;

bool		(*cb_worker_fill_filter) (Relation index) = NULL;

static CbWorker *cb_worker = NULL;	/* this process */
static CbDatabase *cb_worker_database = NULL;

/* the request being served; its bucket is CB_NONE if there is none */
static CbRequest cb_worker_request = {CB_NONE, CB_FLUSH_REQUEST};

/*
 * the index being worked on, if there is a set, and what to blame for an error
 */
static CbTarget cb_worker_target;
static CbFailing *cb_worker_failing = NULL;

/* does this process visit the database, and which indexes are to come: OIDs */
static bool cb_worker_is_visitor = false;
static List *cb_worker_unvisited = NIL;

/*
 * Counts entries that were flushed, if this process is a worker; else it does
 * nothing.  One atomic addition.
 */
void
cb_worker_count_entries(uint64 n)
{
	if (cb_worker != NULL)
		pg_atomic_fetch_add_u64(&cb_worker->entries, n);
}

/* ---------- coming and going ---------- */

static bool
cb_worker_is_suspended(void)
{
	return pg_atomic_read_u32(&cb_worker_database->suspended) != 0;
}

/*
 * Runs after the process has left the array of processes, since it was
 * registered before it got there: whoever waits for "left" does not find it
 * connected any more.
 */
static void
cb_worker_exit(int code, Datum arg)
{
	CbRequest	request = cb_worker_request;

	if (cb_worker_is_suspended())
		cb_worker->clean = true;
	if (cb_worker_is_visitor)
		pg_atomic_write_u32(&cb_worker_database->unvisited, 1);
	cb_launcher_strike_off(cb_worker);

	/* killed in the middle: somebody else shall do it */
	if (request.bucket != CB_NONE)
		cb_queue_request(request.bucket, request.cause);
	cb_queue_wake_launcher();
}

/* Takes the entry that the launcher has made; false: it is not wanted. */
static bool
cb_worker_enlist(int number)
{
	CbWorker   *worker = &cb_workers->workers[number];
	uint32		generation;
	bool		wanted;

	memcpy(&generation, MyBgworkerEntry->bgw_extra, sizeof(generation));
	LWLockAcquire(cb_workers->lock, LW_EXCLUSIVE);
	wanted = worker->generation == generation &&
		pg_atomic_read_u32(&worker->state) == CB_WORKER_STARTING;
	if (wanted)
	{
		worker->pid = MyProcPid;
		worker->latch = MyLatch;
		pg_atomic_write_u32(&worker->state, CB_WORKER_CONNECTING);
	}
	LWLockRelease(cb_workers->lock);
	if (!wanted)
		return false;
	cb_worker = worker;
	cb_worker_database = &cb_workers->databases[worker->place];
	return true;
}

/*
 * Settings of the database or the configuration file that are meant for
 * sessions must not stop a worker.
 */
static void
cb_worker_configure(void)
{
	static const char *const settings[][2] = {
		{"application_name", "cache_batch flusher"},
		{"search_path", ""},
		{"zero_damaged_pages", "false"},
		{"statement_timeout", "0"},
		{"lock_timeout", "0"},
		{"idle_in_transaction_session_timeout", "0"},
		{"idle_session_timeout", "0"},
#if PG_VERSION_NUM >= 170000
		{"transaction_timeout", "0"},
#endif
		{"default_transaction_isolation", "read committed"},
		{"default_transaction_read_only", "false"},
		{"default_transaction_deferrable", "false"},
		{"synchronous_commit", "local"}
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET,
						PGC_S_OVERRIDE);

	/*
	 * A worker writes much in a row.  The system shall begin to, too: if what
	 * is to be written filled its memory, sessions would wait for that.
	 */
	if (backend_flush_after == 0)
		SetConfigOption("backend_flush_after", "512kB", PGC_SUSET,
						PGC_S_OVERRIDE);
}

/* Once it has said that it gives way, another worker counts on it. */
static bool
cb_worker_gives_way(void)
{
	static bool gives_way = false;
	uint32		wanted = 1;

	if (likely(pg_atomic_read_u32(&cb_workers->wanted) == 0) || gives_way)
		return gives_way;
	if (pg_atomic_read_u32(&cb_worker_database->nworkers) == 1 &&
		(cb_worker_is_visitor || cb_queue_has_work(cb_worker->place)) &&
		!TimestampDifferenceExceeds(cb_worker->started_at,
									cb_clock_now(), CB_WORKER_TURN_MS))
		return false;
	gives_way = pg_atomic_compare_exchange_u32(&cb_workers->wanted, &wanted, 0);
	return gives_way;
}

static bool
cb_worker_must_leave(void)
{
	return ProcDiePending || cb_worker_is_suspended() || cb_worker_gives_way();
}

/* ---------- errors ---------- */

/* Has a filter of keys failed? */
static bool
cb_worker_was_filling(void)
{
	return cb_worker_target.set != NULL &&
		cb_worker_failing == &cb_worker_target.set->filling;
}

/*
 * Notes what has failed.  Returns whether that is news: the index had another
 * error before, or none, and neither the bucket nor the filter did fail.
 */
static bool
cb_worker_blame(const char *message)
{
	CbBucketSet *set = cb_worker_target.set;
	CbFailing  *failing = cb_worker_failing;
	bool		news;

	if (failing == NULL)
		return true;
	news = cb_set_show_error(set, cb_worker_target.attach_id, message);

	/* a flush has noted it with its bucket, but what came after it has not */
	if (cb_worker_was_filling())
		cb_failing_note(failing);
	if (failing != &set->failing && cb_load_relaxed(&failing->failures) > 0)
		return cb_fetch_add(&failing->reports, 1) == 0 && news;
	cb_failing_note(&set->failing);
	return news;
}

static void
cb_worker_note_error(const ErrorData *edata)
{
	CbDatabase *database = cb_worker_database;
	const char *message = edata->message ? edata->message : "unknown error";

	LWLockAcquire(database->lock, LW_EXCLUSIVE);
	database->error_at = cb_clock_now();
	database->error_code = edata->sqlerrcode;
	strlcpy(database->error, message, CB_ERROR_LENGTH);
	LWLockRelease(database->lock);

	if (!cb_worker_blame(message))
		return;
	if (cb_worker_is_visitor && cb_worker_target.set == NULL)
		ereport(WARNING,
				(errcode(edata->sqlerrcode),
				 OidIsValid(cb_worker_target.indexoid) ?
				 errmsg("could not look for entries in the journal of cachebatch index %u of database %u: %s",
						cb_worker_target.indexoid, MyDatabaseId, message) :
				 errmsg("could not look for cachebatch indexes of database %u: %s",
						MyDatabaseId, message),
				 edata->detail ? errdetail_internal("%s", edata->detail) : 0,
				 errhint("What a journal has stays there until the index is used.")));
	else if (cb_worker_was_filling())
		ereport(WARNING,
				(errcode(edata->sqlerrcode),
				 errmsg("could not fill filter of keys of cachebatch index %u of database %u: %s",
						cb_worker_target.indexoid, MyDatabaseId, message),
				 edata->detail ? errdetail_internal("%s", edata->detail) : 0,
				 errhint("New keys are looked for in the index; the filter is tried again, without another message.")));
	else
		ereport(WARNING,
				(errcode(edata->sqlerrcode),
				 errmsg("could not flush cachebatch index %u of database %u: %s",
						cb_worker_target.indexoid, MyDatabaseId, message),
				 edata->detail ? errdetail_internal("%s", edata->detail) : 0,
				 errhint("Its entries stay in its journal; the flush is tried again, without another message.")));
}

/* ---------- one index ---------- */

/* What the request's bucket belongs to now; false: nothing of ours. */
static bool
cb_worker_identify(const CbRequest *request, CbTarget *target)
{
	CbBucket   *bucket = &cb_pool_buckets[request->bucket];
	uint32		number = *(volatile uint32 *) &bucket->set;
	CbBucketSet *set;
	bool		found;

	if (number >= cb_pool->nsets)
		return false;
	set = &cb_pool_sets[number];
	cb_set_share(set);
	found = set->state == CB_SET_ATTACHED && bucket->set == number;
	target->set = set;
	target->attach_id = set->attach_id;
	target->indexoid = set->indexoid;
	target->file = set->key;
	LWLockRelease(&set->lock);

	if (found && target->file.dbOid != MyDatabaseId)
	{
		cb_queue_request(request->bucket, request->cause);
		return false;
	}
	return found;
}

/* NULL: the index is gone, or somebody wants it alone. */
static Relation
cb_worker_open(const CbTarget *target)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(target->indexoid, RowExclusiveLock))
		return NULL;
	rel = try_relation_open(target->indexoid, NoLock);
	if (rel != NULL && rel->rd_rel->relkind == RELKIND_INDEX &&
		RelFileLocatorEquals(rel->rd_locator, target->file))
		return rel;

	cb_set_forget_file(target->file);
	if (rel != NULL)
		relation_close(rel, NoLock);
	UnlockRelationOid(target->indexoid, RowExclusiveLock);
	return NULL;
}

/* Does an idle bucket wait for so long that it should be flushed? */
static bool
cb_worker_is_old(uint32 bucket)
{
	return TimestampDifferenceExceeds(cb_pool_buckets[bucket].since,
									  cb_clock_now(), cb_max_delay);
}

/*
 * Still, when its turn has come?  A bucket flushed for nothing has few
 * entries.  One that fails can keep the journal short all the same.
 */
static bool
cb_worker_is_wanted(CbBucketSet *set, const CbRequest *request)
{
	bool		waits = cb_failing_waits(&cb_pool_buckets[request->bucket].failing);

	switch (request->cause)
	{
		case CB_FLUSH_LIMIT:
			return true;
		case CB_FLUSH_READS:
			return !cb_failing_waits(&set->failing);
		case CB_FLUSH_DELAY:
			return !waits && cb_worker_is_old(request->bucket);
		case CB_FLUSH_PRESSURE:
			return !waits && cb_pool_is_low();
		default:
			return !waits;
	}
}

/*
 * If it had to give way, or more of what is from before the buckets is due, the
 * request is made once more.
 */
static void
cb_worker_flush_bucket(Relation rel, CbBucketSet *set, const CbRequest *request)
{
	CbPos		from;
	uint64		attach_id = cb_set_attachment(set, rel, &from);
	bool		done = true;

	if (attach_id == 0)
		return;
	if (cb_flush_before_is_left(set) && !cb_failing_waits(&set->failing))
		done = !cb_flush_some_before(rel, set) && !cb_waiter_is_there();
	if (done && cb_worker_is_wanted(set, request))
	{
		cb_worker_failing = &cb_pool_buckets[request->bucket].failing;
		done = cb_flush_bucket(rel, set, attach_id, request->bucket,
							   request->cause) || !cb_waiter_is_there();
		cb_worker_failing = &set->failing;
	}
	if (!done)
		cb_queue_request(request->bucket, request->cause);
	pg_atomic_fetch_add_u64(&cb_worker->requests, 1);
}

/*
 * Serves the request, and following ones of the same index.  Returns whether
 * a request of another index was taken: then it is the current one.
 */
static bool
cb_worker_flush_requests(Relation rel, const CbTarget *target)
{
	TimestampTz start = cb_clock_now();

	for (;;)
	{
		CbTarget	next;

		CB_TEST_POINT("worker-flush");
		cb_worker_flush_bucket(rel, target->set, &cb_worker_request);
		cb_worker_request.bucket = CB_NONE;
		CHECK_FOR_INTERRUPTS();
		if (cb_waiter_is_there() || cb_worker_must_leave() ||
			cb_queue_take(cb_worker->place, &cb_worker_request) != CB_TAKEN_REQUEST)
			return false;
		if (!cb_worker_identify(&cb_worker_request, &next))
		{
			cb_worker_request.bucket = CB_NONE;
			return false;
		}
		if (next.set != target->set || next.attach_id != target->attach_id ||
			TimestampDifferenceExceeds(start, cb_clock_now(),
									   CB_WORKER_SLICE_MS))
			return true;
	}
}

/*
 * Fills the index's filter of keys, if it wants one.  To come again for the rest it
 * makes a request for a bucket that is flushed only if the pool is low.  Not while
 * there are entries from before the buckets, for which its scan would sort the
 * journal.
 */
static void
cb_worker_fill(Relation rel, CbBucketSet *set, uint32 bucket)
{
	CbPos		from;

	if (cb_failing_waits(&set->filling) ||
		cb_set_attachment(set, rel, &from) == 0 ||
		cb_flush_before_is_left(set))
		return;
	cb_worker_failing = &set->filling;
	if (cb_worker_fill_filter(rel))
		cb_queue_request(bucket, CB_FLUSH_PRESSURE);
	if (cb_load_relaxed(&set->filling.failures) != 0 &&
		cb_key_filter_look(rel).state == CB_KEY_FILTER_READY)
		cb_failing_forget(&set->filling);
	cb_worker_failing = &set->failing;
}

/* As the index's owner, whose comparison functions run. */
static bool
cb_worker_flush_as_owner(Relation rel, const CbTarget *target)
{
	CbOwnerMark mark;
	uint32		bucket = cb_worker_request.bucket;
	bool		more;

	cb_owner_begin(rel, &mark);
	PushActiveSnapshot(GetTransactionSnapshot());

	more = cb_worker_flush_requests(rel, target);
	if (!cb_failing_waits(&target->set->failing) && !cb_waiter_is_there())
		cb_compactor_work(rel, target->set);
	if (!cb_waiter_is_there())
		cb_worker_fill(rel, target->set, bucket);

	PopActiveSnapshot();
	cb_owner_end(&mark);
	return more;
}

static void
cb_worker_report_activity(Relation rel)
{
	char		activity[2 * NAMEDATALEN + 32];
	char	   *schema = get_namespace_name(RelationGetNamespace(rel));

	snprintf(activity, sizeof(activity), "flush of index %s.%s",
			 schema ? schema : "?", RelationGetRelationName(rel));
	pgstat_report_activity(STATE_RUNNING, activity);
	if (schema)
		pfree(schema);
}

/* Within a transaction; returns as cb_worker_flush_requests(). */
static bool
cb_worker_flush_index(void)
{
	CbTarget	target;
	Relation	rel;
	bool		waits;
	bool		more = false;

	if (!cb_worker_identify(&cb_worker_request, &target))
		return false;
	rel = cb_worker_open(&target);
	if (rel == NULL)
		return false;

	cb_worker_target = target;
	cb_worker_failing = &target.set->failing;
	waits = cb_failing_waits(cb_worker_failing);
	pg_atomic_write_u32(&cb_worker->indexoid, target.indexoid);
	cb_worker_report_activity(rel);
	cb_waiter_begin(target.indexoid);
	if (cb_set_find(rel) == target.set)
		more = cb_worker_flush_as_owner(rel, &target);

	/* what a sweep has failed at, a sweep forgets (cb_sweep.c) */
	if (!waits && !cb_waiter_is_there() && !cb_flush_before_is_left(target.set))
		cb_failing_forget(&target.set->failing);
	relation_close(rel, NoLock);	/* the lock goes with the transaction */
	return more;
}

/* ---------- visits after a start ---------- */

/* Within a transaction. */
static void
cb_worker_list_unvisited(void)
{
	cb_worker_unvisited = cb_resume_list_indexes(cb_worker_database->visited);
}

/* Within a transaction; an index at which there is an error is not visited again. */
static void
cb_worker_visit_next(void)
{
	cb_worker_target.indexoid = llast_oid(cb_worker_unvisited);
	cb_worker_unvisited = list_delete_last(cb_worker_unvisited);
	cb_worker_database->visited = cb_worker_target.indexoid;
	pg_atomic_write_u32(&cb_worker->indexoid, cb_worker_target.indexoid);
	CB_TEST_POINT("worker-visit");
	cb_resume_index(cb_worker_target.indexoid);
}

/* ---------- transactions ---------- */

/*
 * Within PG_CATCH, with the memory context from before the transaction: aborts
 * it, which gives up its locks, and drops the current request.
 */
static void
cb_worker_catch(MemoryContext cxt)
{
	ErrorData  *edata;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(cxt);
	edata = CopyErrorData();
	FlushErrorState();
	AbortCurrentTransaction();
	MemoryContextSwitchTo(cxt);
	/* the request may be of another index by then */
	if (cb_worker_was_filling() && cb_worker_request.bucket != CB_NONE)
		cb_queue_request(cb_worker_request.bucket, cb_worker_request.cause);
	cb_worker_request.bucket = CB_NONE;
	cb_worker_note_error(edata);
	FreeErrorData(edata);
	QueryCancelPending = false;
	RESUME_INTERRUPTS();
}

/* Serves the current request, if there is one. */
static void
cb_worker_flush(void)
{
	if (!cb_worker_flush_index())
		cb_worker_request.bucket = CB_NONE;
}

/*
 * One transaction.  Afterwards the current request, if any, is one that was
 * taken but not served.
 */
static void
cb_worker_transaction(void (*work) (void))
{
	MemoryContext cxt = CurrentMemoryContext;
	CbSlotMark	mark = cb_slot_mark();

	memset(&cb_worker_target, 0, sizeof(CbTarget));
	cb_worker_failing = NULL;
	pg_atomic_write_u32(&cb_worker->state, CB_WORKER_FLUSHING);
	SetCurrentStatementStartTimestamp();
	PG_TRY();
	{
		StartTransactionCommand();
		work();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		cb_worker_catch(cxt);
		cb_slot_release_to(mark);
	}
	PG_END_TRY();
	cb_waiter_end();
	MemoryContextSwitchTo(cxt);
	pg_atomic_write_u32(&cb_worker->indexoid, InvalidOid);
	pgstat_report_stat(false);
}

/*
 * Sleeps until there is something to do; false: for too long.  State first,
 * then the queue: see cb_queue_wake().
 */
static bool
cb_worker_rest(void)
{
	bool		empty;
	int			events;

	pgstat_report_activity(STATE_IDLE, NULL);
	pg_atomic_write_u32(&cb_worker->state, CB_WORKER_IDLE);
	pg_memory_barrier();
	empty = cb_queue_is_empty(cb_worker->place);
	events = WaitLatch(MyLatch,
					   WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   empty ? CB_WORKER_LINGER_MS : 1,
					   cb_wait_event(CB_WAIT_WORKER_MAIN));
	ResetLatch(MyLatch);
	return !empty || (events & WL_LATCH_SET) != 0;
}

static void
cb_worker_absorb(void)
{
	QueryCancelPending = false; /* it came too late */
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/*
 * Gives way to scans while all do, unless it is wanted elsewhere or single
 * entries will find no room.
 */
static void
cb_worker_pause(void)
{
	int64		left = cb_throttle_left();

	if (left == 0)
		return;
	pgstat_report_activity(STATE_IDLE, NULL);
	pg_atomic_write_u32(&cb_worker->state, CB_WORKER_PAUSING);
	CB_TEST_POINT("worker-pause");
	while (left > 0 && !cb_worker_must_leave() && !cb_pool_is_nearly_full())
	{
		cb_worker_absorb();
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(left / 1000 + 1, CB_WORKER_LOOK_MS),
						 cb_wait_event(CB_WAIT_WORKER_PAUSE));
		ResetLatch(MyLatch);
		left = cb_throttle_left();
	}
}

/* Is there something to do when a transaction has ended? */
static bool
cb_worker_has_more(void)
{
	return cb_worker_request.bucket != CB_NONE ||
		!cb_queue_is_empty(cb_worker->place);
}

/*
 * Visits the next index, if the database has not been visited since the start, and
 * no other worker is at it; else false.  A worker comes to one at least, however
 * soon it must leave.
 */
static bool
cb_worker_visit(void)
{
	if (!cb_worker_is_visitor)
	{
		if (pg_atomic_exchange_u32(&cb_worker_database->unvisited, 0) == 0)
			return false;
		cb_worker_is_visitor = true;
		pgstat_report_activity(STATE_RUNNING, "look for entries in journals");
		cb_worker_transaction(cb_worker_list_unvisited);
	}
	if (cb_worker_unvisited != NIL)
		cb_worker_transaction(cb_worker_visit_next);
	cb_worker_is_visitor = cb_worker_unvisited != NIL;
	return true;
}

static void
cb_worker_serve(void)
{
	CbThrottle	throttle = {0};

	while (!cb_worker_must_leave())
	{
		cb_worker_absorb();
		cb_worker_pause();
		if (cb_worker_request.bucket == CB_NONE &&
			cb_queue_take(cb_worker->place, &cb_worker_request) != CB_TAKEN_REQUEST)
		{
			cb_worker_request.bucket = CB_NONE;
			if (!cb_worker_visit() && !cb_worker_rest())
				break;
		}
		else
		{
			cb_throttle_begin(&throttle);
			cb_worker_transaction(cb_worker_flush);
			cb_throttle_end(&throttle, cb_worker_has_more());
		}
	}
}

/*
 * A worker's process; does not return.  arg: the number of the entry in the
 * table of workers that the launcher has made for it; if that is another's by
 * now the process exits at once.
 */
void
cb_worker_main(Datum arg)
{
	if (cb_workers == NULL || !cb_worker_enlist(DatumGetInt32(arg)))
		proc_exit(0);
	on_shmem_exit(cb_worker_exit, (Datum) 0);

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	if (!cb_worker_is_suspended())
	{
		CB_TEST_POINT("worker-start");
		BackgroundWorkerInitializeConnectionByOid(cb_worker->dboid, InvalidOid,
												  BGWORKER_BYPASS_ALLOWCONN);
		cb_worker_configure();
		cb_ring_make();
		cb_worker->connected = true;
		cb_worker->started_at = cb_clock_now(); /* its turn begins */
		cb_worker_serve();
	}
	cb_worker->clean = !ProcDiePending;
	proc_exit(0);
}
