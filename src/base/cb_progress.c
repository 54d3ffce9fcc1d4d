/*-------------------------------------------------------------------------
 *
 * cb_progress.c
 *	  What each process does to an index at present, and how far it has come.
 *
 * The server's own progress views know its own commands alone: their numbers
 * are an enum, and pg_stat_get_progress_info() takes a fixed list of names.  So
 * there is a slot in shared memory for each process, by its number, which
 * nobody else writes.
 *
 * Writing takes no lock.  The owner makes "changes" odd before it writes who it
 * is and what it does, and even again afterwards; a reader that has met an odd
 * number, or another one after its copy than before it, reads again.  Write
 * barrier and read barrier pair so that a copy between two equal, even numbers
 * has nothing of a later change.  done and total are written at other times as
 * well, each by one atomic store.  What is stored there after a change is so
 * after its barriers, so a reader that sees it sees that the number has moved,
 * and never takes it for that of an earlier phase.
 *
 * A command within another one is a part of it: it sets phases, and has no row
 * of its own.
 *
 * Errors end the command in which they were raised, at the end of its
 * transaction, or of the subtransaction that it began in or one around that.
 * An inner one, as sweeps have, leaves it.  Processes that exit abort their
 * transaction.  A row is shown only while its process still has the slot, should
 * that have failed, and a process that is killed takes all shared memory with
 * it.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"

#include "access/xact.h"
#include "base/cb_progress.h"
#include "core/cb_atomic.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

typedef struct CbProgressSlot
{
	cb_atomic32 changes;		/* odd: row is being changed */
	CbProgressRow row;			/* but done and total */
	cb_atomic64 done;
	cb_atomic64 total;
} CbProgressSlot;

static CbProgressSlot *cb_progress_slots = NULL;

/* this process's, while a command is under way */
static CbProgressSlot *cb_progress_slot = NULL;
static int	cb_progress_nest_level; /* of the subtransaction that it began in */

static const char *const cb_progress_commands[] = {
	[CB_PROGRESS_NONE] = "none",
	[CB_PROGRESS_FLUSH] = "flush",
	[CB_PROGRESS_VACUUM] = "vacuum",
	[CB_PROGRESS_COMPACT] = "compact",
	[CB_PROGRESS_PREWARM] = "prewarm",
	[CB_PROGRESS_VERIFY] = "verify"
};

static const struct
{
	const char *name;
	const char *unit;			/* NULL: nothing is counted */
}			cb_progress_phases[] = {
	[CB_PHASE_STARTING] = {"starting", NULL},
	[CB_PHASE_JOURNAL] = {"flushing journal", "entries"},
	[CB_PHASE_BUCKETS] = {"flushing buckets", "entries"},
	[CB_PHASE_RANGES] = {"merging range buffers", "entries"},
	[CB_PHASE_REMOVE] = {"removing entries", "blocks"},
	[CB_PHASE_PACK] = {"packing leaves", "leaves"},
	[CB_PHASE_READ] = {"reading leaves", "leaves"},
	[CB_PHASE_CHECK_JOURNAL] = {"checking journal", "blocks"},
	[CB_PHASE_CHECK_RANGES] = {"checking range buffers", "blocks"},
	[CB_PHASE_CHECK_TREE] = {"checking tree", "blocks"},
	[CB_PHASE_CHECK_TABLE] = {"scanning table", "rows"},
	[CB_PHASE_COMPARE] = {"comparing rows", "rows"}
};

/* How many slots there are: one for each process that can run a command. */
int
cb_progress_count_slots(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

/* Asks for the slots' memory; from shmem_request_hook. */
void
cb_progress_shmem_request(void)
{
	RequestAddinShmemSpace(mul_size(cb_progress_count_slots(), sizeof(CbProgressSlot)));
}

/* Sets up or attaches to the slots; from shmem_startup_hook. */
void
cb_progress_shmem_startup(void)
{
	Size		size = mul_size(cb_progress_count_slots(), sizeof(CbProgressSlot));
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_progress_slots = ShmemInitStruct("cache_batch progress", size, &found);
	if (!found)
		memset(cb_progress_slots, 0, size);
	LWLockRelease(AddinShmemInitLock);
}

/* ---------- writing ---------- */

/*
 * Between these two the row may be written, and nothing may fail.  The first
 * one's barrier keeps what is written behind the odd number, the second one's
 * before the even one.
 */
static void
cb_progress_open(CbProgressSlot *slot)
{
	cb_store_relaxed(&slot->changes, cb_load_relaxed(&slot->changes) + 1);
	pg_write_barrier();
}

static void
cb_progress_close(CbProgressSlot *slot)
{
	pg_write_barrier();
	cb_store_relaxed(&slot->changes, cb_load_relaxed(&slot->changes) + 1);
}

static void
cb_progress_set_counts(CbProgressSlot *slot, int64 done, int64 total)
{
	cb_store_relaxed(&slot->done, (uint64) done);
	cb_store_relaxed(&slot->total, (uint64) total);
}

/* Ends what this process does; also after an error. */
static void
cb_progress_clear(void)
{
	CbProgressSlot *slot = cb_progress_slot;

	if (slot == NULL)
		return;
	cb_progress_open(slot);
	slot->row.command = CB_PROGRESS_NONE;
	cb_progress_close(slot);
	cb_progress_slot = NULL;
}

/* ---------- ends of transactions ---------- */

static void
cb_progress_xact_callback(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_PARALLEL_ABORT)
		cb_progress_clear();
}

static void
cb_progress_subxact_callback(SubXactEvent event, SubTransactionId subid,
							 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB &&
		cb_progress_nest_level >= GetCurrentTransactionNestLevel())
		cb_progress_clear();
}

/* At the first command of the process: most begin none, and need no calls. */
static void
cb_progress_register(void)
{
	static bool registered = false;

	if (registered)
		return;
	RegisterXactCallback(cb_progress_xact_callback, NULL);
	RegisterSubXactCallback(cb_progress_subxact_callback, NULL);
	registered = true;
}

/* ---------- commands and phases ---------- */

/*
 * The process begins to do this to the index, which is open.  False: it is a
 * part of what it does already, or there is no shared memory, as without
 * preload.  The result is for cb_progress_end(), which an error stands for.
 * Takes no lock.
 */
bool
cb_progress_begin(CbProgressCommand command, Relation index)
{
	CbProgressRow row = {
		.pid = MyProcPid,
		.dboid = MyDatabaseId,
		.userid = GetSessionUserId(),
		.heapoid = index->rd_index->indrelid,
		.indexoid = RelationGetRelid(index),
		.command = command,
		.started_at = GetCurrentTimestamp()
	};

	if (cb_progress_slot != NULL || cb_progress_slots == NULL)
		return false;
	cb_progress_register();
	cb_progress_slot = &cb_progress_slots[GetNumberFromPGProc(MyProc)];
	cb_progress_nest_level = GetCurrentTransactionNestLevel();
	cb_progress_open(cb_progress_slot);
	cb_progress_slot->row = row;
	cb_progress_set_counts(cb_progress_slot, 0, CB_PROGRESS_UNKNOWN);
	cb_progress_close(cb_progress_slot);
	return true;
}

/* The command has ended, if it is not a part of another one. */
void
cb_progress_end(bool begun)
{
	if (begun)
		cb_progress_clear();
}

/*
 * total: of the phase, or CB_PROGRESS_UNKNOWN.  Nothing happens if the process
 * has begun no command, here and in what follows.  No lock is taken.
 */
void
cb_progress_phase(CbProgressPhase phase, int64 total)
{
	CbProgressSlot *slot = cb_progress_slot;

	if (slot == NULL)
		return;
	cb_progress_open(slot);
	slot->row.phase = phase;
	cb_progress_set_counts(slot, 0, total);
	cb_progress_close(slot);
}

/*
 * Another phase of the same work: what was done and how much there is in all stay
 * as they are.  No lock is taken.
 */
void
cb_progress_go_on(CbProgressPhase phase)
{
	CbProgressSlot *slot = cb_progress_slot;

	if (slot == NULL)
		return;
	cb_progress_open(slot);
	slot->row.phase = phase;
	cb_progress_close(slot);
}

/* So much more is done. */
void
cb_progress_add(int64 n)
{
	CbProgressSlot *slot = cb_progress_slot;

	if (slot != NULL)
		cb_store_relaxed(&slot->done, cb_load_relaxed(&slot->done) + n);
}

/* So much at least is yet to be done in this phase. */
void
cb_progress_expect(int64 n)
{
	CbProgressSlot *slot = cb_progress_slot;
	int64		least;

	if (slot == NULL)
		return;
	least = (int64) cb_load_relaxed(&slot->done) + n;
	if ((int64) cb_load_relaxed(&slot->total) < least)
		cb_store_relaxed(&slot->total, (uint64) least);
}

/* ---------- reading ---------- */

/* Copies a slot, as it was at one moment; done and total are of that phase. */
static void
cb_progress_copy(CbProgressSlot *slot, CbProgressRow *row)
{
	for (;;)
	{
		uint32		before = cb_load_relaxed(&slot->changes);
		uint32		after;

		pg_read_barrier();
		*row = slot->row;
		row->done = (int64) cb_load_relaxed(&slot->done);
		row->total = (int64) cb_load_relaxed(&slot->total);
		pg_read_barrier();
		after = cb_load_relaxed(&slot->changes);
		if (before == after && before % 2 == 0)
			return;
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * What a process does; false: nothing, or it is not there any more.  slot: a
 * number below cb_progress_count_slots().  Takes ProcArrayLock, shared, for a
 * moment.  Interrupts are served.
 */
bool
cb_progress_read(int slot, CbProgressRow *row)
{
	PGPROC	   *proc;

	cb_progress_copy(&cb_progress_slots[slot], row);
	if (row->command == CB_PROGRESS_NONE)
		return false;
	proc = BackendPidGetProc(row->pid);
	return proc != NULL && GetNumberFromPGProc(proc) == slot;
}

/* Constants, for what a row has. */
const char *
cb_progress_command_name(int command)
{
	return cb_progress_commands[command];
}

/* The same for a phase; a row that has a command has one of these. */
const char *
cb_progress_phase_name(int phase)
{
	return cb_progress_phases[phase].name;
}

/* What the phase counts; NULL: nothing. */
const char *
cb_progress_unit(int phase)
{
	return cb_progress_phases[phase].unit;
}
