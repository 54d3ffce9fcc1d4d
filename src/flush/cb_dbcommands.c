/*-------------------------------------------------------------------------
 *
 * cb_dbcommands.c
 *	  Keeping workers out of the way of commands on whole databases.
 *
 * CREATE DATABASE (its template), DROP DATABASE, and ALTER DATABASE RENAME or
 * SET TABLESPACE fail if somebody is connected to the database.  Before such
 * a command the database is suspended: its workers leave, and none is
 * started, until the command has ended in whichever way (C9).  The wait is
 * bounded and can be cancelled; if a worker does not leave in time, the
 * command is run all the same, and judges for itself.
 *
 * After DROP and SET TABLESPACE no index of the database is where it was: its
 * bucket sets are removed, or one would be taken for valid when a file of the
 * same name comes back.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/htup_details.h"
#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "flush/cb_worker.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/syscache.h"
#include "utils/wait_event.h"

/* how long to wait until workers have left, and until they are told so */
#define CB_SUSPEND_WAIT_MS		5000
#define CB_SUSPEND_POLITE_MS	500
#define CB_SUSPEND_LOOK_MS		100

static ProcessUtility_hook_type prev_process_utility = NULL;

/* what this backend has suspended; -1: nothing */
static int	cb_suspended_place = -1;
static bool cb_suspended_registered = false;

/* ---------- suspending ---------- */

static void
cb_dbcommands_resume(void)
{
	int			place = cb_suspended_place;

	if (place < 0)
		return;
	cb_suspended_place = -1;
	pg_atomic_fetch_sub_u32(&cb_workers->databases[place].suspended, 1);
	cb_queue_wake_launcher();
}

static void
cb_dbcommands_exit(int code, Datum arg)
{
	cb_dbcommands_resume();
}

/*
 * Makes this backend the one that has suspended a database, if there is a
 * place for it; cb_dbcommands_resume() ends that, at the latest when the
 * backend exits.
 */
static void
cb_dbcommands_mark(Oid dboid)
{
	int			place;

	if (!cb_suspended_registered)
	{
		before_shmem_exit(cb_dbcommands_exit, (Datum) 0);
		cb_suspended_registered = true;
	}

	/* the launcher looks at it under the same lock: no worker slips through */
	LWLockAcquire(cb_workers->lock, LW_EXCLUSIVE);
	place = cb_queue_make_place_locked(dboid);
	if (place >= 0)
	{
		pg_atomic_fetch_add_u32(&cb_workers->databases[place].suspended, 1);
		cb_suspended_place = place;
	}
	LWLockRelease(cb_workers->lock);
}

/* Makes the database's workers look at "suspended", or ends what they do. */
static void
cb_dbcommands_tell(int place, bool end)
{
	LWLockAcquire(cb_workers->lock, LW_SHARED);
	for (int i = 0; i < cb_max_workers; i++)
	{
		CbWorker   *worker = &cb_workers->workers[i];

		/* it is alive: it takes the lock to leave the table */
		if (worker->place != place || worker->pid == 0)
			continue;
		if (worker->latch)
			SetLatch(worker->latch);
		if (end)
			kill(worker->pid, SIGTERM);
	}
	LWLockRelease(cb_workers->lock);
}

/*
 * Waits until the database's workers have left, CB_SUSPEND_WAIT_MS at most; no
 * LWLock is held, and interrupts are served.
 */
static void
cb_dbcommands_wait(int place)
{
	CbDatabase *database = &cb_workers->databases[place];
	TimestampTz start = cb_clock_now();
	bool		ended = false;

	cb_dbcommands_tell(place, false);
	ConditionVariablePrepareToSleep(&database->left);
	while (pg_atomic_read_u32(&database->nworkers) > 0)
	{
		TimestampTz now = cb_clock_now();

		if (TimestampDifferenceExceeds(start, now, CB_SUSPEND_WAIT_MS))
			break;
		if (!ended &&
			TimestampDifferenceExceeds(start, now, CB_SUSPEND_POLITE_MS))
		{
			cb_dbcommands_tell(place, true);
			ended = true;
		}
		(void) ConditionVariableTimedSleep(&database->left,
										   CB_SUSPEND_LOOK_MS,
										   cb_wait_event(CB_WAIT_WORKERS_LEAVE));
	}
	ConditionVariableCancelSleep();
}

/* ---------- which commands ---------- */

typedef struct CbDatabaseCommand
{
	Oid			dboid;			/* Invalid: not such a command */
	bool		moves;			/* its files are somewhere else afterwards */
} CbDatabaseCommand;

static DefElem *
cb_dbcommands_option(List *options, const char *name)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, name) == 0)
			return option;
	}
	return NULL;
}

static bool
cb_dbcommands_may_create(void)
{
	HeapTuple	tuple;
	bool		result;

	if (superuser())
		return true;
	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetUserId()));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_authid) GETSTRUCT(tuple))->rolcreatedb;
	ReleaseSysCache(tuple);
	return result;
}

/* A database that the user may do this to; Invalid: the command will fail. */
static Oid
cb_dbcommands_owned(const char *name)
{
	Oid			dboid = get_database_oid(name, true);

	if (OidIsValid(dboid) && !object_ownercheck(DatabaseRelationId, dboid, GetUserId()))
		return InvalidOid;
	return dboid;
}

static bool
cb_dbcommands_is_template(Oid dboid)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(dboid));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_database) GETSTRUCT(tuple))->datistemplate;
	ReleaseSysCache(tuple);
	return result;
}

/* The database to be copied; Invalid: the command will fail. */
static Oid
cb_dbcommands_template(const CreatedbStmt *stmt)
{
	DefElem    *option = cb_dbcommands_option(stmt->options, "template");
	const char *name = "template1";
	Oid			dboid;

	if (!cb_dbcommands_may_create())
		return InvalidOid;
	if (option && option->arg)
		name = defGetString(option);
	dboid = get_database_oid(name, true);
	return cb_dbcommands_is_template(dboid) ? dboid : cb_dbcommands_owned(name);
}

/*
 * Which database a command wants for itself.  Those that the command will
 * refuse anyway are left alone, so that nobody can suspend what belongs
 * to others.
 */
static CbDatabaseCommand
cb_dbcommands_classify(Node *stmt)
{
	CbDatabaseCommand command = {InvalidOid, false};

	if (IsA(stmt, CreatedbStmt))
		command.dboid = cb_dbcommands_template((CreatedbStmt *) stmt);
	else if (IsA(stmt, DropdbStmt))
	{
		command.dboid = cb_dbcommands_owned(((DropdbStmt *) stmt)->dbname);
		command.moves = true;
	}
	else if (IsA(stmt, AlterDatabaseStmt))
	{
		AlterDatabaseStmt *alter = (AlterDatabaseStmt *) stmt;

		if (cb_dbcommands_option(alter->options, "tablespace"))
		{
			command.dboid = cb_dbcommands_owned(alter->dbname);
			command.moves = true;
		}
	}
	else if (IsA(stmt, RenameStmt) &&
			 ((RenameStmt *) stmt)->renameType == OBJECT_DATABASE)
		command.dboid = cb_dbcommands_owned(((RenameStmt *) stmt)->subname);
	return command;
}

/* ---------- the hook ---------- */

static void
cb_dbcommands_go_on(PlannedStmt *stmt, const char *query, bool read_only_tree,
					ProcessUtilityContext context, ParamListInfo params,
					QueryEnvironment *env, DestReceiver *dest,
					QueryCompletion *qc)
{
	if (prev_process_utility)
		prev_process_utility(stmt, query, read_only_tree, context, params, env,
							 dest, qc);
	else
		standard_ProcessUtility(stmt, query, read_only_tree, context, params,
								env, dest, qc);
}

static void
cb_dbcommands_process_utility(PlannedStmt *stmt, const char *query,
							  bool read_only_tree,
							  ProcessUtilityContext context,
							  ParamListInfo params, QueryEnvironment *env,
							  DestReceiver *dest, QueryCompletion *qc)
{
	CbDatabaseCommand command = {InvalidOid, false};

	if (cb_pool != NULL && context == PROCESS_UTILITY_TOPLEVEL)
		command = cb_dbcommands_classify(stmt->utilityStmt);
	if (!OidIsValid(command.dboid))
	{
		cb_dbcommands_go_on(stmt, query, read_only_tree, context, params, env,
							dest, qc);
		return;
	}

	PG_TRY();
	{
		if (cb_workers != NULL)
			cb_dbcommands_mark(command.dboid);
		if (cb_suspended_place >= 0)
			cb_dbcommands_wait(cb_suspended_place);
		cb_dbcommands_go_on(stmt, query, read_only_tree, context, params, env,
							dest, qc);
		if (IsA(stmt->utilityStmt, DropdbStmt) && cb_suspended_place >= 0)
			pg_atomic_write_u32(&cb_workers->databases[cb_suspended_place].unvisited, 0);
	}
	PG_FINALLY();
	{
		/* it may have moved, and failed afterwards */
		if (command.moves)
			cb_set_forget_database(command.dboid);
		cb_dbcommands_resume();
	}
	PG_END_TRY();
}

/*
 * Puts this module's hook before ProcessUtility_hook; only while the library
 * is preloaded.
 */
void
cb_dbcommands_init(void)
{
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = cb_dbcommands_process_utility;
}
