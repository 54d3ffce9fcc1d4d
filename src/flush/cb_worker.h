/*-------------------------------------------------------------------------
 *
 * cb_worker.h
 *	  The launcher, the workers, and what they share.
 *
 * The launcher starts workers for databases that have work; a worker
 * serves one database and leaves when there is nothing left to do.  After a
 * start each database gets a worker that goes through its indexes.
 *
 * Locks:
 *	cb_workers->lock	which database has which place, and is suspended; the
 *						table of workers.  Its fields may be read without it
 *						as hints
 *	CbDatabase.lock		taking requests from its queue; errors
 * Both are leaves, and neither is held while the other is taken.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_WORKER_H
#define CB_WORKER_H

#include "flush/cb_queue.h"
#include "port/atomics.h"
#include "storage/latch.h"

#define CB_MAX_DATABASES	64
#define CB_MAX_WORKERS		64

typedef enum CbWorkerState
{
	CB_WORKER_FREE,
	CB_WORKER_STARTING,			/* the launcher has asked for it */
	CB_WORKER_CONNECTING,
	CB_WORKER_IDLE,
	CB_WORKER_PAUSING,			/* it gives way to scans */
	CB_WORKER_FLUSHING,
	CB_WORKER_GONE				/* the launcher has not seen it yet */
} CbWorkerState;

typedef struct CbWorker
{
	pg_atomic_uint32 state;		/* CbWorkerState */
	uint32		generation;		/* counts the uses of this entry */
	int			place;			/* of its database */
	Oid			dboid;
	int			pid;
	Latch	   *latch;			/* NULL until it is connected */
	TimestampTz started_at;		/* asked for; then, its turn began */
	bool		connected;
	bool		clean;			/* left by itself */
	pg_atomic_uint32 indexoid;	/* that it is flushing, or visits */
	pg_atomic_uint64 requests;	/* served */
	pg_atomic_uint64 entries;	/* moved to trees */
} CbWorker;

typedef struct CbDatabase
{
	LWLock	   *lock;
	pg_atomic_uint32 pending;	/* requests in the queue, about */
	pg_atomic_uint32 nworkers;	/* STARTING .. FLUSHING */
	pg_atomic_uint32 suspended; /* commands that want workers away */
	pg_atomic_uint32 unvisited; /* a worker shall go through its indexes */
	Oid			visited;		/* the visitor's: the last index it looked at */
	ConditionVariable left;		/* broadcast when a worker has left */

	/* the launcher's: when workers come to a bad end */
	int			failures;
	pg_atomic_uint64 retry_at;	/* 0: now */

	/* of workers that have left */
	pg_atomic_uint64 requests;
	pg_atomic_uint64 entries;

	TimestampTz error_at;		/* 0: there was none */
	int			error_code;
	char		error[CB_ERROR_LENGTH];
} CbDatabase;

typedef struct CbWorkers
{
	LWLock	   *lock;
	pg_atomic_uint32 launcher_pid;	/* 0: none */
	Latch	   *launcher_latch;
	bool		has_begun;		/* a launcher has begun to list the databases */
	pg_atomic_uint32 running;	/* workers in all */
	pg_atomic_uint32 wanted;	/* a database has no worker, and none is left */
	pg_atomic_uint64 pause_until;	/* of all workers, see cb_throttle.c */
	pg_atomic_uint64 swept;		/* microseconds since they rested from it, */
	pg_atomic_uint64 sweep_at;	/* and when they go on, see cb_sweep.c */
	pg_atomic_uint32 dboids[CB_MAX_DATABASES];	/* Invalid: free place */
	CbDatabase	databases[CB_MAX_DATABASES];
	CbWorker	workers[FLEXIBLE_ARRAY_MEMBER];
} CbWorkers;

/* NULL if there are no buckets or max_workers is 0 */
extern CbWorkers *cb_workers;

/* A time for all workers becomes this one, unless it is later already. */
static inline void
cb_worker_raise(pg_atomic_uint64 *at, uint64 to)
{
	uint64		old = pg_atomic_read_u64(at);

	while (old < to && !pg_atomic_compare_exchange_u64(at, &old, to))
		;
}

/* ---------- cb_queue.c ---------- */

/* The place of a database; -1: it has none, or there is none to be had. */
extern int	cb_queue_find_place(Oid dboid);
extern int	cb_queue_make_place(Oid dboid);
extern int	cb_queue_make_place_locked(Oid dboid);

extern bool cb_queue_has_work(int place);

extern void cb_queue_wake_launcher(void);

/* ---------- cb_launcher.c ---------- */

extern void cb_flush_init(void);	/* at preload */
pg_noreturn extern PGDLLEXPORT void cb_launcher_main(Datum arg);

/* Takes a worker out of its database's; it or the launcher calls this. */
extern void cb_launcher_strike_off(CbWorker *worker);

/* ---------- cb_worker.c ---------- */

pg_noreturn extern PGDLLEXPORT void cb_worker_main(Datum arg);

/* Counts entries that were flushed, if this process is a worker. */
extern void cb_worker_count_entries(uint64 n);

/*
 * What a worker does for the index beside, by what scans it, which is above this
 * layer; set at preload.  True: it shall come again soon, to go on.
 */
extern bool (*cb_worker_fill_filter) (Relation index);

/* ---------- cb_resume.c ---------- */

extern List *cb_resume_list_databases(void);
extern List *cb_resume_list_indexes(Oid after);
extern void cb_resume_index(Oid indexoid);

/* ---------- cb_dbcommands.c ---------- */

extern void cb_dbcommands_init(void);

/* ---------- cb_worker_list.c ---------- */

/*
 * One row for each worker, and one (pid 0) for each database that ever had
 * one: counts of workers that have left, and its last error.
 */
typedef struct CbWorkerRow
{
	int			pid;
	Oid			dboid;
	const char *state;			/* of a worker "starting", "idle", "pausing",
								 * "flushing"; of a database "suspended",
								 * "failing", "waiting", "idle" */
	Oid			indexoid;		/* Invalid: none */
	uint32		pending;		/* requests that wait; of a database */
	uint64		requests;		/* served */
	uint64		entries;		/* moved to trees */
	TimestampTz error_at;		/* 0: there was no error */
	int			error_code;		/* SQLSTATE, packed */
	char		error[CB_ERROR_LENGTH];
} CbWorkerRow;

/* Rows of all workers and databases, palloc'd; *n: how many. */
extern CbWorkerRow *cb_worker_list(int *n);

/* Forgets counts and errors of a database. */
extern void cb_worker_list_reset(Oid dboid);

#endif							/* CB_WORKER_H */
