/*-------------------------------------------------------------------------
 *
 * cb_stat.c
 *	  Counters of each index, in shared memory.
 *
 * A hash table, keyed by database and index, that grows to 65,536 indexes.
 * What it has not grown to is address space that no page stands behind yet, and
 * that other tables of the server may take.  Counters are atomics and are added
 * to without the lock, which guards the table only.  If there is no room the
 * index is not counted.
 *
 * Entries of dropped indexes and databases are removed when there are twice as
 * many entries as the last removal left, 1,024 at least.  So at most that many
 * are in vain; the session that does it reads catalogs of its own database.
 *
 * Concurrency.  Entries are made and removed under the lock, held exclusively,
 * and made with zeros there, by the one session that does not find it: two that
 * count the same new index get the same entry, and nothing of either is lost.
 * An entry stays where it is until it is removed.  A backend keeps pointers to
 * the entries it used last, or that there are none.  They are good as long as
 * the table's generation stands still: it moves with every removal.  So indexes
 * that are not counted cost no more than others.  An addition that races with a
 * removal may be counted for the entry's next owner, and one that races with a
 * reset may be lost or stay, which is harmless.
 *
 * The counters survive a clean restart in a file (cb_stat_file.c), which the
 * postmaster writes when all others are gone, and reads before there are any:
 * so it takes no lock.  That is why the table is in main shared memory: the
 * postmaster has no other.  The server's own cumulative statistics, to which
 * extensions can add theirs from version 18 on, are not used: whoever starts
 * the server once without this library would lose all of them, the server's
 * too (doc/experiments.md).
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"

#include "access/xact.h"
#include "base/cb_clock.h"
#include "base/cb_stat_file.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/syscache.h"

#define CB_STAT_MAX_INDEXES		65536
#define CB_STAT_FEW_INDEXES		1024	/* not worth a look for dropped ones */
#define CB_STAT_CACHE_SIZE		8	/* power of 2 */
#define CB_STAT_PRUNE_WAIT_MS	60000

typedef struct CbStatEntry
{
	CbStatKey	key;
	pg_atomic_uint64 counters[CB_NUM_COUNTERS];
} CbStatEntry;

typedef struct CbStatShared
{
	LWLock	   *lock;			/* guards the hash table, and prune_at */
	pg_atomic_uint64 generation;
	long		prune_at;		/* entries with which dropped ones are removed */
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

/* How many indexes can be counted. */
static long
cb_stat_max(void)
{
#ifdef CB_TESTPOINTS
	if (cb_test_stat_indexes > 0)
		return cb_test_stat_indexes;
#endif
	return CB_STAT_MAX_INDEXES;
}

/*
 * Finds an entry or makes it, with zeros; NULL if there is no room.  The caller
 * holds the table's lock exclusively, or is alone.
 */
static CbStatEntry *
cb_stat_find_or_make(const CbStatKey *key)
{
	CbStatEntry *entry;
	bool		found;

	if (hash_get_num_entries(cb_stat_hash) >= cb_stat_max())
		return hash_search(cb_stat_hash, key, HASH_FIND, NULL);
	entry = hash_search(cb_stat_hash, key, HASH_ENTER_NULL, &found);
	if (entry != NULL && !found)
	{
		for (int i = 0; i < CB_NUM_COUNTERS; i++)
			pg_atomic_init_u64(&entry->counters[i], 0);
	}
	return entry;
}

/* ---------- from one start of the server to the next ---------- */

/* At the postmaster's end, when it is alone. */
static void
cb_stat_save(int code, Datum arg)
{
	HASH_SEQ_STATUS seq;
	CbStatEntry *entry;
	CbStatSaved *saved;
	uint32		n = 0;

	if (code != 0)
		return;
	saved = palloc_extended((hash_get_num_entries(cb_stat_hash) + 1) *
							sizeof(CbStatSaved),
							MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (saved == NULL)
		return;
	hash_seq_init(&seq, cb_stat_hash);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		saved[n].key = entry->key;
		for (int i = 0; i < CB_NUM_COUNTERS; i++)
			saved[n].counters[i] = pg_atomic_read_u64(&entry->counters[i]);
		n++;
	}
	cb_stat_file_save(saved, n);
	pfree(saved);
}

/* At the postmaster's start, or at one after a crash, when it is alone. */
static void
cb_stat_load(void)
{
	uint32		n;
	CbStatSaved *saved = cb_stat_file_load(&n);

	for (uint32 i = 0; saved != NULL && i < n; i++)
	{
		CbStatEntry *entry = cb_stat_find_or_make(&saved[i].key);

		for (int c = 0; entry != NULL && c < CB_NUM_COUNTERS; c++)
			pg_atomic_write_u64(&entry->counters[c], saved[i].counters[c]);
	}
	if (saved != NULL)
		pfree(saved);
	on_shmem_exit(cb_stat_save, (Datum) 0);
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
		cb_stat_shared->prune_at = CB_STAT_FEW_INDEXES;
	}
	memset(&info, 0, sizeof(info));
	info.keysize = sizeof(CbStatKey);
	info.entrysize = sizeof(CbStatEntry);
	cb_stat_hash = ShmemInitHash("cache_batch statistics of indexes",
								 CB_STAT_FEW_INDEXES, CB_STAT_MAX_INDEXES,
								 &info, HASH_ELEM | HASH_BLOBS);
	LWLockRelease(AddinShmemInitLock);
	if (!IsUnderPostmaster)
		cb_stat_load();
}

/* ---------- entries of what is dropped ---------- */

/* Copies the table's keys, which are the caller's; returns their number. */
static long
cb_stat_copy_keys(CbStatKey **keys)
{
	HASH_SEQ_STATUS seq;
	CbStatEntry *entry;
	long		n = 0;

	*keys = palloc(CB_STAT_MAX_INDEXES * sizeof(CbStatKey));
	LWLockAcquire(cb_stat_shared->lock, LW_SHARED);
	hash_seq_init(&seq, cb_stat_hash);
	while ((entry = hash_seq_search(&seq)) != NULL)
		(*keys)[n++] = entry->key;
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

/* Is it an index of this database that is there, or of another one that is? */
static bool
cb_stat_is_alive(const CbStatKey *key)
{
	if (key->dboid == MyDatabaseId)
		return SearchSysCacheExists1(RELOID, ObjectIdGetDatum(key->indexoid));
	return SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(key->dboid));
}

/*
 * Removes entries of indexes of this database that are gone, and of databases
 * that are gone.
 */
static void
cb_stat_prune(void)
{
	CbStatKey  *keys;
	long		n;

	cb_stat_pruned_at = cb_clock_now();
	n = cb_stat_copy_keys(&keys);
	for (long i = 0; i < n; i++)
	{
		if (cb_stat_is_alive(&keys[i]))
			continue;
		LWLockAcquire(cb_stat_shared->lock, LW_EXCLUSIVE);
		(void) hash_search(cb_stat_hash, &keys[i], HASH_REMOVE, NULL);
		pg_atomic_fetch_add_u64(&cb_stat_shared->generation, 1);
		LWLockRelease(cb_stat_shared->lock);
	}
	pfree(keys);

	LWLockAcquire(cb_stat_shared->lock, LW_EXCLUSIVE);
	cb_stat_shared->prune_at =
		Max(2 * hash_get_num_entries(cb_stat_hash), CB_STAT_FEW_INDEXES);
	LWLockRelease(cb_stat_shared->lock);
}

/* ---------- counting ---------- */

/* what a look into the table has found */
typedef struct CbStatLook
{
	CbStatEntry *entry;			/* NULL: there is none */
	bool		crowded;		/* worth a look for dropped ones */
	bool		full;			/* nor can there be one */
} CbStatLook;

static CbStatLook
cb_stat_look_up(Oid indexoid)
{
	CbStatKey	key = {MyDatabaseId, indexoid};
	CbStatLook	look;
	long		n;

	LWLockAcquire(cb_stat_shared->lock, LW_SHARED);
	look.entry = hash_search(cb_stat_hash, &key, HASH_FIND, NULL);
	n = hash_get_num_entries(cb_stat_hash);
	look.full = n >= cb_stat_max();
	look.crowded = look.full || n >= cb_stat_shared->prune_at;
	LWLockRelease(cb_stat_shared->lock);
	return look;
}

static CbStatEntry *
cb_stat_enter(Oid indexoid)
{
	CbStatKey	key = {MyDatabaseId, indexoid};
	CbStatEntry *entry;

	CB_TEST_POINT("stat-enter");
	LWLockAcquire(cb_stat_shared->lock, LW_EXCLUSIVE);
	entry = cb_stat_find_or_make(&key);
	LWLockRelease(cb_stat_shared->lock);
	return entry;
}

/* Finds or makes the entry of an index of this database; NULL if full. */
static CbStatEntry *
cb_stat_find(Oid indexoid)
{
	CbStatCached *cached = &cb_stat_cache[indexoid & (CB_STAT_CACHE_SIZE - 1)];
	uint64		generation = pg_atomic_read_u64(&cb_stat_shared->generation);
	CbStatLook	look;

	if (cached->indexoid == indexoid && cached->generation == generation &&
		(cached->entry != NULL || !cb_stat_may_prune()))
		return cached->entry;

	look = cb_stat_look_up(indexoid);
	if (look.entry == NULL && look.crowded && cb_stat_may_prune())
	{
		cb_stat_prune();
		look.full = false;		/* perhaps */
	}
	if (look.entry == NULL && !look.full)
		look.entry = cb_stat_enter(indexoid);
	cached->indexoid = indexoid;
	cached->generation = generation;
	cached->entry = look.entry;
	return look.entry;
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
	CbStatLook	look;

	if (cb_stat_hash == NULL)
		return false;
	look = cb_stat_look_up(indexoid);
	for (int i = 0; i < CB_NUM_COUNTERS; i++)
		counters[i] = look.entry ? pg_atomic_read_u64(&look.entry->counters[i]) : 0;
	return look.entry != NULL || !look.full;
}

/*
 * Sets all counters of one of this database's indexes, or of all of them, to 0;
 * additions at the same time may be lost or stay.  Takes the table's lock,
 * shared.
 */
void
cb_stat_reset(Oid indexoid)
{
	HASH_SEQ_STATUS seq;
	CbStatEntry *entry;

	if (cb_stat_hash == NULL)
		return;
	LWLockAcquire(cb_stat_shared->lock, LW_SHARED);
	hash_seq_init(&seq, cb_stat_hash);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		if (entry->key.dboid != MyDatabaseId ||
			(OidIsValid(indexoid) && entry->key.indexoid != indexoid))
			continue;
		for (int i = 0; i < CB_NUM_COUNTERS; i++)
			pg_atomic_write_u64(&entry->counters[i], 0);
	}
	LWLockRelease(cb_stat_shared->lock);
}
