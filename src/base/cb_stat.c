/*-------------------------------------------------------------------------
 *
 * cb_stat.c
 *	  Counters of each index, in shared memory.
 *
 * A hash table of fixed size, keyed by database and index.  Counters are
 * atomics and are added to without the lock, which guards the table only.
 * When the table is full, entries of dropped indexes and databases make room;
 * if there are none, the index is not counted.
 *
 * A backend keeps pointers to the entries it used last, or that there are
 * none.  They are good as long as the table's generation stands still: it
 * moves with every removal.  So indexes that are not counted cost no more than
 * others, for they are many where the table is full.  An
 * addition that races with a removal may be counted for the entry's next
 * owner, which is harmless.  Counters do not survive a restart.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"
#include "base/cb_clock.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/syscache.h"

#define CB_STAT_MAX_INDEXES		1024
#define CB_STAT_CACHE_SIZE		8	/* power of 2 */
#define CB_STAT_PRUNE_WAIT_MS	60000

typedef struct CbStatKey
{
	Oid			dboid;
	Oid			indexoid;
} CbStatKey;

typedef struct CbStatEntry
{
	CbStatKey	key;
	pg_atomic_uint64 counters[CB_NUM_COUNTERS];
} CbStatEntry;

typedef struct CbStatShared
{
	LWLock	   *lock;			/* guards the hash table */
	pg_atomic_uint64 generation;
} CbStatShared;

typedef struct CbStatCached
{
	Oid			indexoid;
	uint64		generation;
	CbStatEntry *entry;
} CbStatCached;

static CbStatShared *cb_stat_shared = NULL;
static HTAB *cb_stat_hash = NULL;
static CbStatCached cb_stat_cache[CB_STAT_CACHE_SIZE];
static TimestampTz cb_stat_pruned_at = 0;

/* Asks for the table's memory and lock; from shmem_request_hook. */
void
cb_stat_shmem_request(void)
{
	RequestAddinShmemSpace(MAXALIGN(sizeof(CbStatShared)));
	RequestAddinShmemSpace(hash_estimate_size(CB_STAT_MAX_INDEXES,
											  sizeof(CbStatEntry)));
	RequestNamedLWLockTranche("CacheBatchStat", 1);
}

/* Sets up or attaches to the table; from shmem_startup_hook. */
void
cb_stat_shmem_startup(void)
{
	HASHCTL		info;
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_stat_shared = ShmemInitStruct("cache_batch statistics",
									 sizeof(CbStatShared), &found);
	if (!found)
	{
		cb_stat_shared->lock = &GetNamedLWLockTranche("CacheBatchStat")->lock;
		pg_atomic_init_u64(&cb_stat_shared->generation, 1);
	}
	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(CbStatKey);
	info.entrysize = sizeof(CbStatEntry);
	cb_stat_hash = ShmemInitHash("cache_batch statistics of indexes",
								 CB_STAT_MAX_INDEXES, CB_STAT_MAX_INDEXES,
								 &info,
								 HASH_ELEM | HASH_BLOBS | HASH_FIXED_SIZE);
	LWLockRelease(AddinShmemInitLock);
}

/* Copies the table's keys; returns their number. */
static int
cb_stat_copy_keys(CbStatKey *keys)
{
	HASH_SEQ_STATUS seq;
	CbStatEntry *entry;
	int			n = 0;

	LWLockAcquire(cb_stat_shared->lock, LW_SHARED);
	hash_seq_init(&seq, cb_stat_hash);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		if (n < CB_STAT_MAX_INDEXES)
			keys[n++] = entry->key;
	}
	LWLockRelease(cb_stat_shared->lock);
	return n;
}

/*
 * May this backend look for entries to remove?  That reads catalogs, so only
 * in a transaction with no LWLock held, and not more than once a minute.
 */
static bool
cb_stat_may_prune(void)
{
	return IsTransactionState() && InterruptHoldoffCount == 0 &&
		CritSectionCount == 0 &&
		TimestampDifferenceExceeds(cb_stat_pruned_at, cb_clock_now(),
								   CB_STAT_PRUNE_WAIT_MS);
}

/*
 * Removes entries of indexes of this database that are gone, and of databases
 * that are gone.
 */
static void
cb_stat_prune(void)
{
	CbStatKey  *keys;
	int			n;
	int			i;

	cb_stat_pruned_at = cb_clock_now();
	keys = palloc(CB_STAT_MAX_INDEXES * sizeof(CbStatKey));
	n = cb_stat_copy_keys(keys);
	for (i = 0; i < n; i++)
	{
		bool		alive;

		if (keys[i].dboid == MyDatabaseId)
			alive = SearchSysCacheExists1(RELOID,
										  ObjectIdGetDatum(keys[i].indexoid));
		else
			alive = SearchSysCacheExists1(DATABASEOID,
										  ObjectIdGetDatum(keys[i].dboid));
		if (alive)
			continue;
		LWLockAcquire(cb_stat_shared->lock, LW_EXCLUSIVE);
		(void) hash_search(cb_stat_hash, &keys[i], HASH_REMOVE, NULL);
		pg_atomic_fetch_add_u64(&cb_stat_shared->generation, 1);
		LWLockRelease(cb_stat_shared->lock);
	}
	pfree(keys);
}

/* Adds the entry unless the table is full. */
static CbStatEntry *
cb_stat_enter(Oid indexoid)
{
	CbStatKey	key = {MyDatabaseId, indexoid};
	CbStatEntry *entry;
	bool		found;

	LWLockAcquire(cb_stat_shared->lock, LW_EXCLUSIVE);
	if (hash_get_num_entries(cb_stat_hash) >= CB_STAT_MAX_INDEXES)
		entry = hash_search(cb_stat_hash, &key, HASH_FIND, NULL);
	else
	{
		entry = hash_search(cb_stat_hash, &key, HASH_ENTER_NULL, &found);
		if (entry != NULL && !found)
		{
			for (int i = 0; i < CB_NUM_COUNTERS; i++)
				pg_atomic_init_u64(&entry->counters[i], 0);
		}
	}
	LWLockRelease(cb_stat_shared->lock);
	return entry;
}

/* Looks for an entry; NULL: there is none.  *full: nor can there be. */
static CbStatEntry *
cb_stat_look_up(Oid indexoid, bool *full)
{
	CbStatKey	key = {MyDatabaseId, indexoid};
	CbStatEntry *entry;

	LWLockAcquire(cb_stat_shared->lock, LW_SHARED);
	entry = hash_search(cb_stat_hash, &key, HASH_FIND, NULL);
	*full = hash_get_num_entries(cb_stat_hash) >= CB_STAT_MAX_INDEXES;
	LWLockRelease(cb_stat_shared->lock);
	return entry;
}

/* Finds or makes the entry of an index of this database; NULL if full. */
static CbStatEntry *
cb_stat_find(Oid indexoid)
{
	CbStatCached *cached = &cb_stat_cache[indexoid & (CB_STAT_CACHE_SIZE - 1)];
	uint64		generation = pg_atomic_read_u64(&cb_stat_shared->generation);
	CbStatEntry *entry;
	bool		full;

	if (cached->indexoid == indexoid && cached->generation == generation &&
		(cached->entry != NULL || !cb_stat_may_prune()))
		return cached->entry;

	entry = cb_stat_look_up(indexoid, &full);
	if (entry == NULL && full && cb_stat_may_prune())
	{
		cb_stat_prune();
		full = false;			/* perhaps */
	}
	if (entry == NULL && !full)
		entry = cb_stat_enter(indexoid);
	cached->indexoid = indexoid;
	cached->generation = generation;
	cached->entry = entry;
	return entry;
}

/*
 * Adds n to a counter of an index of this database.  Nothing happens if there
 * is no room for the index, or no shared memory, as without preload.
 *
 * Takes the table's lock only if this backend has not used the index lately.
 * May be called with LWLocks held and in critical sections: entries of dropped
 * indexes are looked for, which reads catalogs, only where neither is so.
 */
void
cb_stat_add_oid(Oid indexoid, CbCounter counter, uint64 n)
{
	CbStatEntry *entry;

	if (cb_stat_hash == NULL || n == 0)
		return;
	entry = cb_stat_find(indexoid);
	if (entry != NULL)
		pg_atomic_fetch_add_u64(&entry->counters[counter], n);
}

/* The same for a relation that is open. */
void
cb_stat_add(Relation rel, CbCounter counter, uint64 n)
{
	cb_stat_add_oid(RelationGetRelid(rel), counter, n);
}

/*
 * Copies the counters of an index of this database; all are 0 if nothing was
 * counted yet.  False: it is not counted, as the table is full or there is
 * none.  Takes the table's lock, shared.
 */
bool
cb_stat_get(Oid indexoid, uint64 counters[CB_NUM_COUNTERS])
{
	CbStatEntry *entry;
	bool		full;

	if (cb_stat_hash == NULL)
		return false;
	entry = cb_stat_look_up(indexoid, &full);
	for (int i = 0; i < CB_NUM_COUNTERS; i++)
		counters[i] = entry ? pg_atomic_read_u64(&entry->counters[i]) : 0;
	return entry != NULL || !full;
}

/*
 * Sets all counters of this database's indexes to 0; additions at the same
 * time may be lost or stay.  Takes the table's lock, shared.
 */
void
cb_stat_reset(void)
{
	HASH_SEQ_STATUS seq;
	CbStatEntry *entry;

	if (cb_stat_hash == NULL)
		return;
	LWLockAcquire(cb_stat_shared->lock, LW_SHARED);
	hash_seq_init(&seq, cb_stat_hash);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		if (entry->key.dboid != MyDatabaseId)
			continue;
		for (int i = 0; i < CB_NUM_COUNTERS; i++)
			pg_atomic_write_u64(&entry->counters[i], 0);
	}
	LWLockRelease(cb_stat_shared->lock);
}
