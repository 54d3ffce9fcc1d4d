/*-------------------------------------------------------------------------
 *
 * cb_build_team.c
 *	  Index builds in parallel: processes that read and sort a part of the
 *	  table each.
 *
 * The team is the process that builds the index, its leader, and workers.  Each
 * member takes blocks of the table from a shared scan, and sorts their entries
 * with its share of maintenance_work_mem.  When all have done so the leader's
 * sort merges what they have sorted.  Equal keys of a unique index are refused
 * by the member that has both, or by the leader's merge; rows that are dead, but
 * not to everyone, are merged by themselves, whoever has met some (A21_TEAM).
 *
 * Workers have the leader's snapshots and locks, and write nothing but files
 * of sorts, which are gone with the team's shared memory.  No entry is staged,
 * and nobody reads the index: the leader loads it, as if it were alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "am/cb_build.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"
#include "tcop/tcopprot.h"
#include "utils/backend_progress.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

/* what the team's shared memory has */
#define CB_TEAM_KEY_SHARED		1
#define CB_TEAM_KEY_LIVE		2
#define CB_TEAM_KEY_DEAD		3
#define CB_TEAM_KEY_QUERY		4
#define CB_TEAM_KEY_WAL_USAGE	5
#define CB_TEAM_KEY_BUFFER_USAGE	6

typedef struct CbTeamShared
{
	Oid			heap_id;
	Oid			index_id;
	bool		unique;
	bool		nulls_not_distinct;
	bool		concurrent;
	int			nmembers;		/* that share maintenance_work_mem */
	uint64		query_id;

	ConditionVariable done;		/* signalled when a member has sorted */
	slock_t		lock;			/* of what follows: sums of those who have */
	int			ndone;
	double		heap_tuples;
	double		index_tuples;
	bool		any_dead;
	bool		broken_hot_chain;
} CbTeamShared;

/* the shared scan of the table follows */
#define CbTeamScan(shared) \
	((ParallelTableScanDesc) ((char *) (shared) + BUFFERALIGN(sizeof(CbTeamShared))))

struct CbBuildTeam
{
	Relation	heap;
	Relation	index;
	ParallelContext *context;
	CbTeamShared *shared;
	Sharedsort *live;
	Sharedsort *dead;			/* NULL: none */
	Snapshot	snapshot;
	WalUsage   *wal_usage;		/* of each worker */
	BufferUsage *buffer_usage;
};

/* ---------- a member ---------- */

/* Begins a member's sorts. */
static void
cb_team_begin_sorts(CbBuildSorts *sorts, Relation heap, Relation index,
					const CbTeamShared *shared, Sharedsort *live, Sharedsort *dead,
					int memory)
{
	CbBuildSortOptions options = {
		.unique = shared->unique,
		.nulls_not_distinct = shared->nulls_not_distinct,
		.live_mem = memory,
		.dead_mem = Min(memory, work_mem)
	};
	SortCoordinateData live_part = {.isWorker = true,.nParticipants = -1,.sharedsort = live};
	SortCoordinateData dead_part = {.isWorker = true,.nParticipants = -1,.sharedsort = dead};

	options.live = &live_part;
	options.dead = &dead_part;
	cb_build_begin_sorts(sorts, heap, index, &options);
}

/* Adds what a member has read and sorted. */
static void
cb_team_report(CbTeamShared *shared, const CbBuildSorts *sorts, double heap_tuples,
			   bool broken_hot_chain)
{
	SpinLockAcquire(&shared->lock);
	shared->ndone++;
	shared->heap_tuples += heap_tuples;
	shared->index_tuples += sorts->index_tuples;
	shared->any_dead |= sorts->any_dead;
	shared->broken_hot_chain |= broken_hot_chain;
	SpinLockRelease(&shared->lock);
	ConditionVariableSignal(&shared->done);
}

/*
 * Reads and sorts a member's part.  The sort of dead rows is performed even if
 * there are none, as others may have some.  progress: it is the leader.
 */
static void
cb_team_take_part(Relation heap, Relation index, CbTeamShared *shared, Sharedsort *live,
				  Sharedsort *dead, int memory, bool progress)
{
	IndexInfo  *index_info = BuildIndexInfo(index);
	CbBuildSorts sorts;
	double		heap_tuples;

	index_info->ii_Concurrent = shared->concurrent;
	cb_team_begin_sorts(&sorts, heap, index, shared, live, dead, memory);
	heap_tuples = cb_build_scan(&sorts, heap, index, index_info, progress,
								table_beginscan_parallel(heap, CbTeamScan(shared)));
	if (progress)
		pgstat_progress_update_param(PROGRESS_CREATEIDX_SUBPHASE, CB_BUILD_PHASE_SORT);
	tuplesort_performsort(sorts.live);
	if (sorts.dead != NULL)
		tuplesort_performsort(sorts.dead);
	CB_TEST_POINT("build-part-sorted");
	cb_team_report(shared, &sorts, heap_tuples, index_info->ii_BrokenHotChain);
	cb_build_end_sorts(&sorts);
}

/* A sort's shared memory; NULL: there is none. */
static Sharedsort *
cb_team_attach_sort(dsm_segment *segment, shm_toc *toc, uint64 key)
{
	Sharedsort *sort = shm_toc_lookup(toc, key, true);

	if (sort != NULL)
		tuplesort_attach_shared(sort, segment);
	return sort;
}

/*
 * A worker, called by the server.  It takes the locks that its leader has, which
 * it gets at once.
 */
void
cb_build_team_work(dsm_segment *segment, shm_toc *toc)
{
	CbTeamShared *shared = shm_toc_lookup(toc, CB_TEAM_KEY_SHARED, false);
	LOCKMODE	heap_lock = shared->concurrent ? ShareUpdateExclusiveLock : ShareLock;
	LOCKMODE	index_lock = shared->concurrent ? RowExclusiveLock : AccessExclusiveLock;
	WalUsage   *wal_usage = shm_toc_lookup(toc, CB_TEAM_KEY_WAL_USAGE, false);
	BufferUsage *buffer_usage = shm_toc_lookup(toc, CB_TEAM_KEY_BUFFER_USAGE, false);
	Relation	heap;
	Relation	index;

	debug_query_string = shm_toc_lookup(toc, CB_TEAM_KEY_QUERY, true);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	pgstat_report_query_id(shared->query_id, false);
	heap = table_open(shared->heap_id, heap_lock);
	index = index_open(shared->index_id, index_lock);

	InstrStartParallelQuery();
	cb_team_take_part(heap, index, shared,
					  cb_team_attach_sort(segment, toc, CB_TEAM_KEY_LIVE),
					  cb_team_attach_sort(segment, toc, CB_TEAM_KEY_DEAD),
					  maintenance_work_mem / shared->nmembers, false);
	InstrEndParallelQuery(&buffer_usage[ParallelWorkerNumber],
						  &wal_usage[ParallelWorkerNumber]);

	index_close(index, index_lock);
	table_close(heap, heap_lock);
}

/* ---------- the leader ---------- */

static void
cb_team_estimate_chunk(CbBuildTeam *team, Size size)
{
	shm_toc_estimate_chunk(&team->context->estimator, size);
	shm_toc_estimate_keys(&team->context->estimator, 1);
}

static void *
cb_team_allocate(CbBuildTeam *team, uint64 key, Size size)
{
	void	   *memory = shm_toc_allocate(team->context->toc, size);

	shm_toc_insert(team->context->toc, key, memory);
	return memory;
}

static Size
cb_team_shared_size(const CbBuildTeam *team)
{
	return add_size(BUFFERALIGN(sizeof(CbTeamShared)),
					table_parallelscan_estimate(team->heap, team->snapshot));
}

/* Makes the team's shared memory, empty; false: there is none to be had. */
static bool
cb_team_make_memory(CbBuildTeam *team, const IndexInfo *index_info)
{
	ParallelContext *context = team->context;
	Size		sort_size = tuplesort_estimate_shared(context->nworkers + 1);

	cb_team_estimate_chunk(team, cb_team_shared_size(team));
	cb_team_estimate_chunk(team, sort_size);
	if (index_info->ii_Unique)
		cb_team_estimate_chunk(team, sort_size);
	if (debug_query_string)
		cb_team_estimate_chunk(team, strlen(debug_query_string) + 1);
	cb_team_estimate_chunk(team, mul_size(sizeof(WalUsage), context->nworkers));
	cb_team_estimate_chunk(team, mul_size(sizeof(BufferUsage), context->nworkers));
	InitializeParallelDSM(context);
	return context->seg != NULL;
}

/* Makes the memory that members of a sort share. */
static Sharedsort *
cb_team_make_sort(CbBuildTeam *team, uint64 key)
{
	int			nmembers = team->context->nworkers + 1;
	Sharedsort *sort = cb_team_allocate(team, key, tuplesort_estimate_shared(nmembers));

	tuplesort_initialize_shared(sort, nmembers, team->context->seg);
	return sort;
}

/* Fills the team's shared memory. */
static void
cb_team_fill_memory(CbBuildTeam *team, const IndexInfo *index_info)
{
	int			nworkers = team->context->nworkers;
	CbTeamShared *shared = cb_team_allocate(team, CB_TEAM_KEY_SHARED, cb_team_shared_size(team));

	memset(shared, 0, sizeof(CbTeamShared));
	shared->heap_id = RelationGetRelid(team->heap);
	shared->index_id = RelationGetRelid(team->index);
	shared->unique = index_info->ii_Unique;
	shared->nulls_not_distinct = index_info->ii_NullsNotDistinct;
	shared->concurrent = index_info->ii_Concurrent;
	shared->nmembers = nworkers + 1;
	shared->query_id = pgstat_get_my_query_id();
	ConditionVariableInit(&shared->done);
	SpinLockInit(&shared->lock);
	table_parallelscan_initialize(team->heap, CbTeamScan(shared), team->snapshot);

	team->shared = shared;
	team->live = cb_team_make_sort(team, CB_TEAM_KEY_LIVE);
	team->dead = index_info->ii_Unique ? cb_team_make_sort(team, CB_TEAM_KEY_DEAD) : NULL;
	team->wal_usage = cb_team_allocate(team, CB_TEAM_KEY_WAL_USAGE,
									   mul_size(sizeof(WalUsage), nworkers));
	team->buffer_usage = cb_team_allocate(team, CB_TEAM_KEY_BUFFER_USAGE,
										  mul_size(sizeof(BufferUsage), nworkers));
	if (debug_query_string)
		strcpy(cb_team_allocate(team, CB_TEAM_KEY_QUERY, strlen(debug_query_string) + 1),
			   debug_query_string);
}

/* Ends parallel mode; workers have ended, or there were none. */
static void
cb_team_destroy(CbBuildTeam *team)
{
	if (IsMVCCSnapshot(team->snapshot))
		UnregisterSnapshot(team->snapshot);
	DestroyParallelContext(team->context);
	ExitParallelMode();
	pfree(team);
}

/*
 * Starts so many workers, or fewer.  NULL: none could be started, and the index
 * is to be built without.  Else parallel mode lasts until the team is ended, or
 * an error ends the transaction.
 */
CbBuildTeam *
cb_build_team_begin(Relation heap, Relation index, const IndexInfo *index_info,
					int nworkers)
{
	CbBuildTeam *team = palloc0(sizeof(CbBuildTeam));

	team->heap = heap;
	team->index = index;
	EnterParallelMode();
	team->context = CreateParallelContext("cache_batch", "cb_build_team_work", nworkers);
	team->snapshot = index_info->ii_Concurrent ?
		RegisterSnapshot(GetTransactionSnapshot()) : SnapshotAny;
	if (!cb_team_make_memory(team, index_info))
	{
		cb_team_destroy(team);
		return NULL;
	}
	cb_team_fill_memory(team, index_info);
	LaunchParallelWorkers(team->context);
	if (team->context->nworkers_launched == 0)
	{
		cb_build_team_end(team);
		return NULL;
	}
	return team;
}

/* Waits until so many members have sorted their parts. */
static void
cb_team_wait(CbTeamShared *shared, int nmembers)
{
	int			ndone;

	for (;;)
	{
		SpinLockAcquire(&shared->lock);
		ndone = shared->ndone;
		SpinLockRelease(&shared->lock);
		if (ndone == nmembers)
			break;
		ConditionVariableSleep(&shared->done, WAIT_EVENT_PARALLEL_CREATE_INDEX_SCAN);
	}
	ConditionVariableCancelSleep();
}

/*
 * The leader does its part, and waits for the others.  Then begins sorts that
 * merge all parts.  Returns how many rows the table has.  A worker's error is
 * raised here.
 */
double
cb_build_team_scan(CbBuildTeam *team, CbBuildSorts *sorts, CbBuildSortOptions *options,
				   bool *broken_hot_chain)
{
	CbTeamShared *shared = team->shared;
	int			nmembers = team->context->nworkers_launched + 1;
	SortCoordinateData live = {.nParticipants = nmembers,.sharedsort = team->live};
	SortCoordinateData dead = {.nParticipants = nmembers,.sharedsort = team->dead};

	cb_team_take_part(team->heap, team->index, shared, team->live, team->dead,
					  maintenance_work_mem / nmembers, true);
	/* one that could not start is an error, not a wait */
	WaitForParallelWorkersToAttach(team->context);
	cb_team_wait(shared, nmembers);

	options->live = &live;
	options->dead = &dead;
	cb_build_begin_sorts(sorts, team->heap, team->index, options);
	sorts->any_dead = shared->any_dead;
	sorts->index_tuples = shared->index_tuples;
	*broken_hot_chain |= shared->broken_hot_chain;
	return shared->heap_tuples;
}

/* Waits for the workers to end, and adds up what they have read and written. */
void
cb_build_team_end(CbBuildTeam *team)
{
	WaitForParallelWorkersToFinish(team->context);
	for (int i = 0; i < team->context->nworkers_launched; i++)
		InstrAccumParallelQuery(&team->buffer_usage[i], &team->wal_usage[i]);
	cb_team_destroy(team);
}
