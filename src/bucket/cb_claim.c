/*-------------------------------------------------------------------------
 *
 * cb_claim.c
 *	  The table of claims in shared memory, and the locks by which they are
 *	  waited for.
 *
 * The table is the server's partitioned hash table, with a lock for each
 * partition; nothing is done under these but to look at the index's filter of
 * keys, and none of them is taken under another, but all in their order where
 * such a filter comes or goes.  A session has a limited number of claims, for
 * which the table has room.
 *
 * A hash is claimed by one process at a time, which counts its claims to it: it
 * may have one to a key whose entry could not be published yet, when it adds
 * the key once more.
 *
 * Before version 18 there are no unique indexes, so no table either.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"

#include "bucket/cb_claim.h"
#include "bucket/cb_key_filter.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

/*
 * Claims of a session at most, and of all together about; the first is less
 * where there may be very many sessions.
 */
#define CB_CLAIM_MAX			512
#define CB_CLAIM_MIN			32
#define CB_CLAIM_MAX_ALL		131072

typedef struct CbClaimKey
{
	Oid			database;
	Oid			indexoid;
	uint64		hash;
} CbClaimKey;

typedef struct CbClaim
{
	CbClaimKey	key;			/* first */
	int			owner;
	int			count;
	bool		earlier;		/* than the index's filter of keys */
} CbClaim;

StaticAssertDecl(sizeof(CbClaimKey) == 2 * sizeof(Oid) + sizeof(uint64),
				 "a key that is hashed as bytes has no padding");

static HTAB *cb_claims = NULL;
static LWLockPadded *cb_claim_locks = NULL;
static uint64 *cb_claim_ended = NULL;	/* in each partition, under its lock */
static int	cb_claim_count = 0;	/* of this process */

/* ---------- shared memory ---------- */

static int
cb_claim_max(void)
{
	return Max(Min(CB_CLAIM_MAX_ALL / MaxBackends, CB_CLAIM_MAX), CB_CLAIM_MIN);
}

/* A session has one more than its limit while it adds an entry. */
static long
cb_claim_max_all(void)
{
	return (long) MaxBackends * (cb_claim_max() + 1);
}

/* Asks for the table's memory and locks; from shmem_request_hook. */
void
cb_claim_shmem_request(void)
{
	if (!CB_HAS_UNIQUE)
		return;
	RequestAddinShmemSpace(hash_estimate_size(cb_claim_max_all(), sizeof(CbClaim)));
	RequestAddinShmemSpace(CB_CLAIM_PARTITIONS * sizeof(uint64));
	RequestNamedLWLockTranche("CacheBatchClaim", CB_CLAIM_PARTITIONS);
}

/* Sets up or attaches to the table; from shmem_startup_hook. */
void
cb_claim_shmem_startup(void)
{
	HASHCTL		ctl;
	bool		found;

	if (!CB_HAS_UNIQUE)
		return;
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(CbClaimKey);
	ctl.entrysize = sizeof(CbClaim);
	ctl.num_partitions = CB_CLAIM_PARTITIONS;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_claims = ShmemInitHash("cache_batch claims", cb_claim_max_all(),
							  cb_claim_max_all(), &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_PARTITION);
	cb_claim_ended = ShmemInitStruct("cache_batch ended claims",
									 CB_CLAIM_PARTITIONS * sizeof(uint64), &found);
	if (!found)
		memset(cb_claim_ended, 0, CB_CLAIM_PARTITIONS * sizeof(uint64));
	cb_claim_locks = GetNamedLWLockTranche("CacheBatchClaim");
	LWLockRelease(AddinShmemInitLock);
}

/* ---------- claims ---------- */

static inline int
cb_claim_self(void)
{
	return GetNumberFromPGProc(MyProc);
}

/* Which partition a key is in, by the hash that the table has of it. */
static inline uint32
cb_claim_partition(uint32 hashvalue)
{
	return hashvalue % CB_CLAIM_PARTITIONS;
}

/* Locks the partition of a key. */
static LWLock *
cb_claim_lock_partition(const CbClaimKey *key, uint32 *hashvalue, LWLockMode mode)
{
	LWLock	   *lock;

	*hashvalue = get_hash_value(cb_claims, key);
	lock = &cb_claim_locks[cb_claim_partition(*hashvalue)].lock;
	LWLockAcquire(lock, mode);
	return lock;
}

/*
 * Claims a hash, if no other process has claimed it; says who has it now, which
 * is nobody if there is no room.  The caller holds the lock of its claims in the
 * index.  Whoever had a claim to the hash before has ended it: what was written
 * by then is what is read after this.  What is claimed is added to the index's
 * filter, if there is one of this file, which is asked before (I13_FILTER).  No
 * LWLock is held.
 */
CbClaimed
cb_claim_take(Oid indexoid, const RelFileLocator *file, uint64 hash)
{
	CbClaimKey	key = {MyDatabaseId, indexoid, hash};
	CbClaimed	result = {CB_CLAIM_NOBODY};
	uint32		hashvalue;
	LWLock	   *lock = cb_claim_lock_partition(&key, &hashvalue, LW_EXCLUSIVE);
	bool		found;
	CbClaim    *claim = hash_search_with_hash_value(cb_claims, &key, hashvalue,
													HASH_ENTER_NULL, &found);

	if (claim != NULL && !found)
	{
		claim->owner = cb_claim_self();
		claim->count = 0;
		claim->earlier = false;
	}
	if (claim != NULL && claim->owner == cb_claim_self())
	{
		result.count = ++claim->count;
		cb_claim_count++;
		result.absent = cb_key_filter_add(indexoid, file,
										  cb_claim_partition(hashvalue), hash);
	}
	if (claim != NULL)
		result.owner = claim->owner;
	result.ended = cb_claim_ended[cb_claim_partition(hashvalue)];
	LWLockRelease(lock);
	return result;
}

/*
 * Ends one claim of this process to a hash.  What it has written before this is
 * seen by whoever claims the hash afterwards.  Cannot fail.
 */
void
cb_claim_end(Oid indexoid, uint64 hash)
{
	CbClaimKey	key = {MyDatabaseId, indexoid, hash};
	uint32		hashvalue;
	LWLock	   *lock = cb_claim_lock_partition(&key, &hashvalue, LW_EXCLUSIVE);
	CbClaim    *claim = hash_search_with_hash_value(cb_claims, &key, hashvalue,
													HASH_FIND, NULL);

	Assert(claim != NULL && claim->owner == cb_claim_self());
	if (--claim->count == 0)
	{
		if (claim->earlier)
			cb_key_filter_end_earlier(indexoid);
		(void) hash_search_with_hash_value(cb_claims, &key, hashvalue,
										   HASH_REMOVE, NULL);
	}
	cb_claim_ended[cb_claim_partition(hashvalue)]++;
	cb_claim_count--;
	LWLockRelease(lock);
}

/*
 * Adds the key of an entry of the index to its filter, if there is one of this
 * file.
 */
void
cb_claim_add_key(Oid indexoid, const RelFileLocator *file, uint64 hash)
{
	CbClaimKey	key = {MyDatabaseId, indexoid, hash};
	uint32		hashvalue;
	LWLock	   *lock = cb_claim_lock_partition(&key, &hashvalue, LW_EXCLUSIVE);

	(void) cb_key_filter_add(indexoid, file, cb_claim_partition(hashvalue), hash);
	LWLockRelease(lock);
}

/* An entry without a claim was published: counts it as if it had had one. */
void
cb_claim_count_none(Oid indexoid, uint64 hash)
{
	CbClaimKey	key = {MyDatabaseId, indexoid, hash};
	uint32		hashvalue;
	LWLock	   *lock = cb_claim_lock_partition(&key, &hashvalue, LW_EXCLUSIVE);

	cb_claim_ended[cb_claim_partition(hashvalue)]++;
	LWLockRelease(lock);
}

/* Who has claimed a hash; absent tells nothing where somebody has. */
CbClaimed
cb_claim_find(Oid indexoid, const RelFileLocator *file, uint64 hash)
{
	CbClaimKey	key = {MyDatabaseId, indexoid, hash};
	CbClaimed	result = {CB_CLAIM_NOBODY};
	uint32		hashvalue;
	LWLock	   *lock = cb_claim_lock_partition(&key, &hashvalue, LW_SHARED);
	CbClaim    *claim = hash_search_with_hash_value(cb_claims, &key, hashvalue,
													HASH_FIND, NULL);

	if (claim != NULL)
		result.owner = claim->owner;
	else
		result.absent = cb_key_filter_lacks(indexoid, file,
											cb_claim_partition(hashvalue), hash);
	if (claim != NULL && claim->owner == cb_claim_self())
		result.count = claim->count;
	result.ended = cb_claim_ended[cb_claim_partition(hashvalue)];
	LWLockRelease(lock);
	return result;
}

/* Has this process as many claims as it may have? */
bool
cb_claim_is_full(void)
{
	return cb_claim_count >= cb_claim_max();
}

/* ---------- filters of keys ---------- */

/* Keeps filters as they are, or, EXCL, from being looked at. */
void
cb_claim_lock_filters(LWLockMode mode)
{
	int			n = mode == LW_EXCLUSIVE ? CB_CLAIM_PARTITIONS : 1;

	for (int i = 0; i < n; i++)
		LWLockAcquire(&cb_claim_locks[i].lock, mode);
}

void
cb_claim_unlock_filters(LWLockMode mode)
{
	int			n = mode == LW_EXCLUSIVE ? CB_CLAIM_PARTITIONS : 1;

	while (n-- > 0)
		LWLockRelease(&cb_claim_locks[n].lock);
}

/*
 * The claims in an index that there are now are earlier than its filter, which
 * begins; those of others that would have this place are not any more.  Returns
 * how many.  All partitions are locked; goes through all claims.
 */
uint32
cb_claim_mark_earlier(Oid indexoid)
{
	HASH_SEQ_STATUS status;
	CbClaim    *claim;
	uint32		n = 0;

	hash_seq_init(&status, cb_claims);
	while ((claim = hash_seq_search(&status)) != NULL)
	{
		bool		same = claim->key.database == MyDatabaseId &&
			claim->key.indexoid == indexoid;

		n += same;
		if (same || cb_key_filter_shares_place(claim->key.indexoid, indexoid))
			claim->earlier = same;
	}
	return n;
}

/* ---------- waiting ---------- */

/*
 * No row has this TID in the index: nobody else locks tuples of an index.
 */
static void
cb_claim_set_locktag(LOCKTAG *tag, Oid indexoid, int owner)
{
	SET_LOCKTAG_TUPLE(*tag, MyDatabaseId, indexoid, owner, FirstOffsetNumber);
}

/*
 * Before the first of some claims in an index.  Held like a lock of the session,
 * so by no resource owner: claims end with publication, or with what drops
 * entries.  Whoever has waited for earlier claims holds it for an instant, so
 * this may wait.
 */
void
cb_claim_lock(Oid indexoid)
{
	LOCKTAG		tag;

	cb_claim_set_locktag(&tag, indexoid, cb_claim_self());
	(void) LockAcquire(&tag, ExclusiveLock, true, false);
}

/* The last claim in the index has ended.  Cannot fail. */
void
cb_claim_unlock(Oid indexoid)
{
	LOCKTAG		tag;

	cb_claim_set_locktag(&tag, indexoid, cb_claim_self());
	(void) LockRelease(&tag, ExclusiveLock, true);
}

/*
 * Waits until all claims that a process has in the index have ended.  No LWLock
 * or buffer lock is held, and no claim of this process in the index.  Can be
 * cancelled; raises an error for a deadlock.
 */
void
cb_claim_wait(Oid indexoid, int owner)
{
	LOCKTAG		tag;

	cb_claim_set_locktag(&tag, indexoid, owner);
	(void) LockAcquire(&tag, ShareLock, false, false);
	(void) LockRelease(&tag, ShareLock, false);
}
