/*-------------------------------------------------------------------------
 *
 * cb_worker_list.c
 *	  What the statistics say about workers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "flush/cb_worker.h"

static const char *
cb_worker_list_state(uint32 state)
{
	switch (state)
	{
		case CB_WORKER_STARTING:
		case CB_WORKER_CONNECTING:
			return "starting";
		case CB_WORKER_IDLE:
			return "idle";
		case CB_WORKER_PAUSING:
			return "pausing";
		case CB_WORKER_FLUSHING:
			return "flushing";
		default:
			return NULL;
	}
}

static const char *
cb_worker_list_database_state(const CbDatabase *database, int place)
{
	CbDatabase *d = (CbDatabase *) database;

	if (pg_atomic_read_u32(&d->suspended) != 0)
		return "suspended";
	if ((TimestampTz) pg_atomic_read_u64(&d->retry_at) > cb_clock_now())
		return "failing";
	return cb_queue_has_work(place) ? "waiting" : "idle";
}

/* cb_workers->lock is held. */
static bool
cb_worker_list_worker(CbWorker *worker, CbWorkerRow *row)
{
	memset(row, 0, sizeof(CbWorkerRow));
	row->state = cb_worker_list_state(pg_atomic_read_u32(&worker->state));
	if (row->state == NULL)
		return false;
	row->pid = worker->pid;
	row->dboid = worker->dboid;
	row->indexoid = pg_atomic_read_u32(&worker->indexoid);
	row->requests = pg_atomic_read_u64(&worker->requests);
	row->entries = pg_atomic_read_u64(&worker->entries);
	return row->pid != 0;
}

static bool
cb_worker_list_database(int place, CbWorkerRow *row)
{
	CbDatabase *database = &cb_workers->databases[place];

	memset(row, 0, sizeof(CbWorkerRow));
	row->dboid = pg_atomic_read_u32(&cb_workers->dboids[place]);
	if (!OidIsValid(row->dboid))
		return false;
	row->state = cb_worker_list_database_state(database, place);
	row->pending = pg_atomic_read_u32(&database->pending);
	row->requests = pg_atomic_read_u64(&database->requests);
	row->entries = pg_atomic_read_u64(&database->entries);
	LWLockAcquire(database->lock, LW_SHARED);
	row->error_at = database->error_at;
	row->error_code = database->error_code;
	memcpy(row->error, database->error, CB_ERROR_LENGTH);
	LWLockRelease(database->lock);
	return true;
}

/*
 * One row for each worker and for each database that has a place, palloc'd in
 * the current memory context; *n: how many, 0 if there are no queues.  Takes
 * the databases' locks and cb_workers->lock, one at a time, in shared mode, so
 * the rows are not of one moment; the caller holds no LWLock.
 */
CbWorkerRow *
cb_worker_list(int *n)
{
	CbWorkerRow *rows;

	*n = 0;
	rows = palloc((CB_MAX_DATABASES + CB_MAX_WORKERS) * sizeof(CbWorkerRow));
	if (cb_workers == NULL)
		return rows;
	for (int i = 0; i < CB_MAX_DATABASES; i++)
		*n += cb_worker_list_database(i, &rows[*n]);
	LWLockAcquire(cb_workers->lock, LW_SHARED);
	for (int i = 0; i < cb_max_workers; i++)
		*n += cb_worker_list_worker(&cb_workers->workers[i], &rows[*n]);
	LWLockRelease(cb_workers->lock);
	return rows;
}

/*
 * Forgets the last error of a database and the counts of its workers that have
 * left; those of running workers go on.  Nothing happens if it has no place.
 * Takes the database's lock; the caller holds no LWLock.
 */
void
cb_worker_list_reset(Oid dboid)
{
	CbDatabase *database;
	int			place;

	if (cb_workers == NULL)
		return;
	place = cb_queue_find_place(dboid);
	if (place < 0)
		return;
	database = &cb_workers->databases[place];
	pg_atomic_write_u64(&database->requests, 0);
	pg_atomic_write_u64(&database->entries, 0);
	LWLockAcquire(database->lock, LW_EXCLUSIVE);
	database->error_at = 0;
	database->error_code = 0;
	database->error[0] = '\0';
	LWLockRelease(database->lock);
}
