/*-------------------------------------------------------------------------
 *
 * cb_queue.c
 *	  Requests to flush buckets, from any backend to the workers.
 *
 * One wait-free queue a database, liburcu's "wfcqueue", in shared memory.
 * Whoever puts a request in does one exchange and one store; requests are
 * taken out under the database's lock.  Each bucket has one node, and is in
 * one queue at most once: bucket->queued.  The nodes hold pointers, which is
 * sound since shared memory stands at the same address in each process.
 *
 * liburcu is LGPL 2.1+; the functions used here are the small inlined ones
 * that its licence allows to be used in works under any terms (section 5).
 * This is the only file that includes its headers.
 *
 * Places are given to databases that have work, and taken away from idle ones
 * when they run out.  One who found a place just before it was given away
 * puts its request into a stranger's queue: the worker that takes it notices
 * and passes it on.  Queues themselves are never made anew.
 *
 * The order of "put in, then look for sleepers" here and "say that I sleep,
 * then look at the queue" in the worker (cb_worker_rest) means that no
 * request is left lying: each has a full barrier between the two.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#define _LGPL_SOURCE
#include <urcu/wfcqueue.h>

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "flush/cb_worker.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/shmem.h"

/* a worker with more requests than this before it gets a colleague */
#define CB_QUEUE_LONG		8

/* what the pool is made of at most, to size the array of nodes */
#define CB_QUEUE_CHUNK_MIN	4096
#define CB_QUEUE_SETS_MAX	256

/* how often to look again while somebody is in the middle of putting in */
#define CB_QUEUE_SPINS		100

typedef struct CbQueueNode
{
	struct cds_wfcq_node link;	/* first */
	uint32		cause;
} CbQueueNode;

typedef struct CbQueue
{
	union
	{
		struct __cds_wfcq_head head;
		char		pad[PG_CACHE_LINE_SIZE];
	}			out;
	union
	{
		struct cds_wfcq_tail tail;
		char		pad[PG_CACHE_LINE_SIZE];
	}			in;
} CbQueue;

CbWorkers  *cb_workers = NULL;

static CbQueue *cb_queues = NULL;	/* one a place */
static CbQueueNode *cb_queue_nodes = NULL;	/* one a bucket */

/* ---------- shared memory ---------- */

static bool
cb_queue_is_wanted(void)
{
	return cb_max_workers > 0 && cb_pool_size_bytes() > 0;
}

/*
 * There are at least as many nodes as buckets: a few large chunks make fewer.
 */
static uint32
cb_queue_count_nodes(void)
{
	return cb_pool_size_bytes() / CB_QUEUE_CHUNK_MIN + CB_QUEUE_SETS_MAX;
}

static Size
cb_queue_workers_size(void)
{
	return add_size(offsetof(CbWorkers, workers),
					mul_size(cb_max_workers, sizeof(CbWorker)));
}

static Size
cb_queue_queues_size(void)
{
	return add_size(mul_size(CB_MAX_DATABASES, sizeof(CbQueue)),
					PG_CACHE_LINE_SIZE);
}

/*
 * Asks for the shared memory and the LWLocks of the queues; from
 * shmem_request_hook.
 */
void
cb_queue_shmem_request(void)
{
	if (!cb_queue_is_wanted())
		return;
	RequestAddinShmemSpace(cb_queue_workers_size());
	RequestAddinShmemSpace(cb_queue_queues_size());
	RequestAddinShmemSpace(mul_size(cb_queue_count_nodes(),
									sizeof(CbQueueNode)));
	RequestNamedLWLockTranche("CacheBatchQueue", 1 + CB_MAX_DATABASES);
}

static void
cb_queue_init_database(int place, LWLock *lock)
{
	CbDatabase *database = &cb_workers->databases[place];
	CbQueue    *queue = &cb_queues[place];

	pg_atomic_init_u32(&cb_workers->dboids[place], InvalidOid);
	database->lock = lock;
	pg_atomic_init_u32(&database->pending, 0);
	pg_atomic_init_u32(&database->nworkers, 0);
	pg_atomic_init_u32(&database->suspended, 0);
	pg_atomic_init_u32(&database->unvisited, 0);
	pg_atomic_init_u64(&database->retry_at, 0);
	pg_atomic_init_u64(&database->requests, 0);
	pg_atomic_init_u64(&database->entries, 0);
	ConditionVariableInit(&database->left);
	__cds_wfcq_init(&queue->out.head, &queue->in.tail);
}

static void
cb_queue_init(void)
{
	LWLockPadded *locks = GetNamedLWLockTranche("CacheBatchQueue");

	memset(cb_workers, 0, cb_queue_workers_size());
	cb_workers->lock = &locks[0].lock;
	pg_atomic_init_u32(&cb_workers->launcher_pid, 0);
	pg_atomic_init_u32(&cb_workers->running, 0);
	pg_atomic_init_u32(&cb_workers->wanted, 0);
	pg_atomic_init_u64(&cb_workers->pause_until, 0);
	pg_atomic_init_u64(&cb_workers->swept, 0);
	pg_atomic_init_u64(&cb_workers->sweep_at, 0);
	for (int i = 0; i < CB_MAX_DATABASES; i++)
		cb_queue_init_database(i, &locks[1 + i].lock);
	for (int i = 0; i < cb_max_workers; i++)
	{
		CbWorker   *worker = &cb_workers->workers[i];

		pg_atomic_init_u32(&worker->state, CB_WORKER_FREE);
		pg_atomic_init_u32(&worker->indexoid, InvalidOid);
		pg_atomic_init_u64(&worker->requests, 0);
		pg_atomic_init_u64(&worker->entries, 0);
	}
}

/*
 * Sets up or attaches to the queues; from shmem_startup_hook, after
 * cb_pool_shmem_startup(), which has counted the buckets.  Leaves cb_workers
 * NULL if there are no buckets or max_workers is 0.
 */
void
cb_queue_shmem_startup(void)
{
	bool		found;
	char	   *queues;

	if (!cb_queue_is_wanted())
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	queues = ShmemInitStruct("cache_batch queues", cb_queue_queues_size(),
							 &found);
	cb_queues = (CbQueue *) TYPEALIGN(PG_CACHE_LINE_SIZE, queues);
	cb_queue_nodes = ShmemInitStruct("cache_batch requests",
									 mul_size(cb_queue_count_nodes(),
											  sizeof(CbQueueNode)),
									 &found);
	cb_workers = ShmemInitStruct("cache_batch workers",
								 cb_queue_workers_size(), &found);
	if (!found)
		cb_queue_init();
	LWLockRelease(AddinShmemInitLock);
	Assert(cb_pool->nbuckets <= cb_queue_count_nodes());
}

/* ---------- places ---------- */

/*
 * The place of a database; -1: it has none.  Without a lock, so it may be
 * given away right after.  cb_workers is not NULL.
 */
int
cb_queue_find_place(Oid dboid)
{
	for (int i = 0; i < CB_MAX_DATABASES; i++)
	{
		if (pg_atomic_read_u32(&cb_workers->dboids[i]) == dboid)
			return i;
	}
	return -1;
}

/* A place that is free, or whose database has nothing to do. */
static int
cb_queue_free_place(void)
{
	int			place = cb_queue_find_place(InvalidOid);

	for (int i = 0; place < 0 && i < CB_MAX_DATABASES; i++)
	{
		CbDatabase *database = &cb_workers->databases[i];

		if (pg_atomic_read_u32(&database->nworkers) == 0 &&
			pg_atomic_read_u32(&database->suspended) == 0 &&
			!cb_queue_has_work(i))
			place = i;
	}
	return place;
}

/*
 * The place of a database, which gets one if it has none: a free one, or that
 * of an idle database.  -1: there is none to be had.  cb_workers->lock is held
 * exclusively, so it cannot be given away until that is released.
 */
int
cb_queue_make_place_locked(Oid dboid)
{
	int			place = cb_queue_find_place(dboid);
	CbDatabase *database;

	if (place >= 0)
		return place;
	place = cb_queue_free_place();
	if (place < 0)
		return -1;
	database = &cb_workers->databases[place];
	database->failures = 0;
	pg_atomic_write_u64(&database->retry_at, 0);
	pg_atomic_write_u64(&database->requests, 0);
	pg_atomic_write_u64(&database->entries, 0);
	pg_atomic_write_u32(&database->unvisited, 0);
	database->error_at = 0;
	pg_atomic_write_u32(&cb_workers->dboids[place], dboid);
	return place;
}

/* The same for a caller that holds no LWLock. */
int
cb_queue_make_place(Oid dboid)
{
	int			place = cb_queue_find_place(dboid);

	if (place >= 0)
		return place;
	LWLockAcquire(cb_workers->lock, LW_EXCLUSIVE);
	place = cb_queue_make_place_locked(dboid);
	LWLockRelease(cb_workers->lock);
	return place;
}

/* ---------- waking ---------- */

/*
 * Sets the launcher's latch, if there is a launcher.  No lock is needed; a
 * latch that is set for nothing makes it look once more.
 */
void
cb_queue_wake_launcher(void)
{
	Latch	   *latch = cb_workers->launcher_latch;

	/* latches of processes stay valid memory for ever */
	if (latch != NULL && pg_atomic_read_u32(&cb_workers->launcher_pid) != 0)
		SetLatch(latch);
}

/* Wakes whoever should see to a request that was just put in. */
static void
cb_queue_wake(int place)
{
	CbDatabase *database = &cb_workers->databases[place];
	uint32		nworkers;

	pg_memory_barrier();		/* pairs with cb_worker_rest() */
	nworkers = pg_atomic_read_u32(&database->nworkers);
	for (int i = 0; nworkers > 0 && i < cb_max_workers; i++)
	{
		CbWorker   *worker = &cb_workers->workers[i];

		if (worker->place == place &&
			pg_atomic_read_u32(&worker->state) == CB_WORKER_IDLE)
		{
			Latch	   *latch = worker->latch;

			if (latch != NULL)
				SetLatch(latch);
			return;
		}
	}
	if (nworkers == 0 ||
		(pg_atomic_read_u32(&database->pending) > nworkers * CB_QUEUE_LONG &&
		 pg_atomic_read_u32(&cb_workers->running) < cb_max_workers))
		cb_queue_wake_launcher();
}

/* ---------- putting in ---------- */

/* The database of a bucket's index; a hint.  Invalid: it is free. */
static Oid
cb_queue_database_of(const CbBucket *bucket)
{
	uint32		set = *(volatile const uint32 *) &bucket->set;

	return set < cb_pool->nsets ? cb_pool_sets[set].key.dbOid : InvalidOid;
}

static void
cb_queue_put(int place, uint32 bucket, CbFlushCause cause)
{
	CbQueueNode *node = &cb_queue_nodes[bucket];
	CbQueue    *queue = &cb_queues[place];

	node->cause = cause;
	cds_wfcq_node_init(&node->link);
	pg_atomic_fetch_add_u32(&cb_workers->databases[place].pending, 1);
	(void) cds_wfcq_enqueue(&queue->out.head, &queue->in.tail, &node->link);
}

static inline bool
cb_queue_has_launcher(void)
{
	return cb_workers != NULL &&
		pg_atomic_read_u32(&cb_workers->launcher_pid) != 0;
}

/*
 * Asks that a bucket be flushed.  Cheap if it has been asked for already: one
 * look without a lock.  Never waits for a flush and never raises an error; an
 * LWLock is taken only when the database has no place yet, so none is held by
 * the caller.  Nothing happens if nobody serves requests, the bucket is free,
 * or all places are taken.
 */
void
cb_queue_request(uint32 number, CbFlushCause cause)
{
	CbBucket   *bucket;
	uint32		queued = 0;
	Oid			dboid;
	int			place;

	if (!cb_queue_has_launcher() || number >= cb_pool->nbuckets)
		return;
	bucket = &cb_pool_buckets[number];
	if (cb_load_relaxed(&bucket->queued) != 0)
		return;
	dboid = cb_queue_database_of(bucket);
	if (!OidIsValid(dboid))
		return;
	place = cb_queue_make_place(dboid);

	/* whoever sets it owns the node until it is in the queue */
	if (place < 0 || !cb_swap_if(&bucket->queued, &queued, 1))
		return;
	cb_queue_put(place, number, cause);
	cb_queue_wake(place);
}

/*
 * Are requests of this database served, or should callers flush themselves?
 * False without a launcher, while the database is suspended, and while its
 * workers are not started since they came to a bad end.  A hint.  Takes
 * cb_workers->lock if the database has no place yet; the caller holds no
 * LWLock.
 */
bool
cb_queue_is_served(void)
{
	CbDatabase *database;
	uint64		retry_at;
	int			place;

	if (!cb_queue_has_launcher())
		return false;
	place = cb_queue_make_place(MyDatabaseId);
	if (place < 0)
		return false;
	database = &cb_workers->databases[place];
	retry_at = pg_atomic_read_u64(&database->retry_at);
	return pg_atomic_read_u32(&database->suspended) == 0 &&
		(retry_at == 0 || (TimestampTz) retry_at <= cb_clock_now());
}

/*
 * Will they be served soon?  They are, or the server has just started, and the
 * launcher is on its way.  A hint, as before.
 */
bool
cb_queue_will_be_served(void)
{
	return cb_queue_is_served() ||
		(cb_workers != NULL && cb_workers->launcher_latch == NULL);
}

/* ---------- taking out ---------- */

/*
 * Is the queue of this place empty?  Without a lock; one who puts a request in
 * at the same time may or may not be seen.
 */
bool
cb_queue_is_empty(int place)
{
	CbQueue    *queue = &cb_queues[place];

	return cds_wfcq_empty(&queue->out.head, &queue->in.tail);
}

/* The same of all that there is for workers to do: visits, too. */
bool
cb_queue_has_work(int place)
{
	return !cb_queue_is_empty(place) ||
		pg_atomic_read_u32(&cb_workers->databases[place].unvisited) != 0;
}

/* NULL: empty; CDS_WFCQ_WOULDBLOCK. */
static struct cds_wfcq_node *
cb_queue_take_node(int place)
{
	CbQueue    *queue = &cb_queues[place];
	struct cds_wfcq_node *node = NULL;

	LWLockAcquire(cb_workers->databases[place].lock, LW_EXCLUSIVE);
	for (int i = 0; i < CB_QUEUE_SPINS; i++)
	{
		node = __cds_wfcq_dequeue_nonblocking(&queue->out.head,
											  &queue->in.tail);
		if (node != CDS_WFCQ_WOULDBLOCK)
			break;
	}
	LWLockRelease(cb_workers->databases[place].lock);
	return node;
}

/*
 * Takes the oldest request of a place.  From then on the bucket may be asked
 * for again, so that what comes into it while it is flushed is not forgotten.
 * Takes the database's lock, so no LWLock is held; never sleeps for one who is
 * putting a request in: CB_TAKEN_LATER.  *request is set for CB_TAKEN_REQUEST
 * only.
 */
CbTaken
cb_queue_take(int place, CbRequest *request)
{
	struct cds_wfcq_node *node;
	CbQueueNode *taken;

	if (cb_queue_is_empty(place))
		return CB_TAKEN_NOTHING;
	node = cb_queue_take_node(place);
	if (node == NULL)
		return CB_TAKEN_NOTHING;
	if (node == CDS_WFCQ_WOULDBLOCK)
		return CB_TAKEN_LATER;
	taken = (CbQueueNode *) node;
	request->bucket = taken - cb_queue_nodes;
	request->cause = taken->cause;
	pg_atomic_fetch_sub_u32(&cb_workers->databases[place].pending, 1);
	cb_store_release(&cb_pool_buckets[request->bucket].queued, 0);
	return CB_TAKEN_REQUEST;
}

/*
 * Drops what is in the queue of a place whose database is gone; requests for
 * another database are passed on.  Stops when the place is given away, or
 * while somebody is putting a request in.  No LWLock is held.
 */
void
cb_queue_discard(int place)
{
	Oid			dboid = pg_atomic_read_u32(&cb_workers->dboids[place]);
	CbRequest	request;

	while (pg_atomic_read_u32(&cb_workers->dboids[place]) == dboid &&
		   cb_queue_take(place, &request) == CB_TAKEN_REQUEST)
	{
		Oid			other = cb_queue_database_of(&cb_pool_buckets[request.bucket]);

		if (other != dboid)
			cb_queue_request(request.bucket, request.cause);
	}
}
