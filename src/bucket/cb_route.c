/*-------------------------------------------------------------------------
 *
 * cb_route.c
 *	  Which bucket a key belongs to.
 *
 * Keys are compared with no lock held, so a backend routes with a private
 * copy of the lower bounds of an attachment's buckets.  The copy is a hint:
 * whoever uses the result compares attach_id and layout_gen, under the bucket
 * set's lock or after what was read without it, and asks again if they have
 * changed.
 *
 * The table of routers has one use of each, and the slot has those of calls
 * under way: a comparison may run SQL that comes here, and replaces or forgets
 * the router that an outer call is searching.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

/* the routers of so many indexes are kept */
#define CB_ROUTE_MAX	256

typedef struct CbRouterEntry
{
	Oid			indexoid;		/* hash key */
	CbRouter   *router;
} CbRouterEntry;

static HTAB *cb_routers = NULL;
static CbRouterEntry *cb_route_last = NULL; /* found last, or NULL */
static MemoryContext cb_route_cxt = NULL;

/*
 * Makes the table, and the memory of all routers, which stays as long as the
 * backend.  Only lack of memory is an error.
 */
static void
cb_route_make_table(void)
{
	HASHCTL		ctl = {0};

	cb_route_cxt = AllocSetContextCreate(TopMemoryContext,
										 "cache_batch routers",
										 ALLOCSET_SMALL_SIZES);
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(CbRouterEntry);
	ctl.hcxt = cb_route_cxt;
	cb_routers = hash_create("cache_batch routers", 32, &ctl,
							 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/* Gives up one use; the last one frees it.  Cannot fail. */
void
cb_route_unref(CbRouter *router)
{
	if (--router->users == 0)
		pfree(router);
}

/* Forgets all routers; those in use stay until they are let go. */
static void
cb_route_forget_all(void)
{
	HASH_SEQ_STATUS seq;
	CbRouterEntry *entry;

	cb_route_last = NULL;
	hash_seq_init(&seq, cb_routers);
	while ((entry = hash_seq_search(&seq)) != NULL)
	{
		if (entry->router != NULL)
			cb_route_unref(entry->router);
		(void) hash_search(cb_routers, &entry->indexoid, HASH_REMOVE, NULL);
	}
}

/*
 * The backend's entry for the index, made if need be, its router NULL then.  It
 * can go with the next call, when there are too many.  Only lack of memory is an
 * error; no lock is taken.
 */
static CbRouterEntry *
cb_route_find(Oid indexoid)
{
	CbRouterEntry *entry;
	bool		found;

	if (cb_route_last != NULL && cb_route_last->indexoid == indexoid)
		return cb_route_last;
	if (cb_routers == NULL)
		cb_route_make_table();
	entry = cb_route_last = hash_search(cb_routers, &indexoid, HASH_FIND, NULL);
	if (entry != NULL)
		return entry;
	if (hash_get_num_entries(cb_routers) >= CB_ROUTE_MAX)
		cb_route_forget_all();
	entry = hash_search(cb_routers, &indexoid, HASH_ENTER, &found);
	entry->router = NULL;
	return entry;
}

/*
 * A router with one user and room for so many buckets; it lives until the last
 * cb_route_unref().
 */
static CbRouter *
cb_route_make(uint32 allocated)
{
	Size		fences = (Size) allocated * CB_BUCKET_FENCE_SIZE;
	CbRouter   *router = MemoryContextAlloc(cb_route_cxt, MAXALIGN(sizeof(CbRouter)) +
											fences + allocated * (sizeof(int64) + sizeof(uint16)));

	router->users = 1;
	router->allocated = allocated;
	router->attach_id = 0;
	router->fences = (char *) router + MAXALIGN(sizeof(CbRouter));
	router->numbers = (int64 *) (router->fences + fences);
	router->lens = (uint16 *) (router->numbers + allocated);
	return router;
}

/* ---------- is this the journal that the bucket set knows? ---------- */

typedef struct CbRouteCheck
{
	CbBucketSet *set;
	uint64		attach_id;
	bool		same;
} CbRouteCheck;

/* Takes the publish lock; false, without it: the attachment is gone. */
static bool
cb_route_check_lock(void *arg)
{
	CbRouteCheck *check = arg;
	CbBucketSet *set = check->set;

	LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	if (set->state == CB_SET_ATTACHED && set->attach_id == check->attach_id)
		return true;
	LWLockRelease(&set->publish);
	return false;
}

/*
 * Compares where the two say that the next entry comes, with the publish lock and
 * the append lock, so neither moves.  Appends nothing.
 */
static int
cb_route_check_head(void *arg, int first, int n, CbPos head)
{
	CbRouteCheck *check = arg;

	check->same = check->set->head == head;
	return 0;
}

/* Releases the publish lock, when the append lock is free again. */
static void
cb_route_check_unlock(void *arg)
{
	LWLockRelease(&((CbRouteCheck *) arg)->set->publish);
}

static const CbAppendSink cb_route_check_sink = {
	.lock = cb_route_check_lock,
	.reserve = cb_route_check_head,
	.unlock = cb_route_check_unlock
};

/*
 * At a backend's first use of an attachment: a file can have been replaced by
 * another with the same name and build id (a database copied once more, U22).
 * Then the journal's head is elsewhere, and the bucket set is given up, unless a
 * chunk has an owner: publications look again.  No LWLock is held; pages are
 * read, so errors can be raised.
 */
static void
cb_route_check(Relation rel, CbBucketSet *set, uint64 attach_id)
{
	CbRouteCheck check = {.set = set,.attach_id = attach_id,.same = true};

	cb_journal_visit_head(rel, &cb_route_check_sink, &check);
	if (!check.same)
		(void) cb_set_detach(set, attach_id);
}

/* ---------- the router ---------- */

/*
 * The lower bound of bucket i, NULL: minus infinity.  It is the router's, and
 * good for as long as that is kept.
 */
IndexTuple
cb_route_fence(const CbRouter *router, uint32 i)
{
	if (router->lens[i] == 0)
		return NULL;
	return (IndexTuple) (router->fences + i * CB_BUCKET_FENCE_SIZE);
}

/*
 * Copies the bounds, and which buckets they are, all of one moment: set->lock
 * is held.  False: there are more than the router has room for.
 */
static bool
cb_route_copy(CbRouter *router, const CbBucketSet *set)
{
	if (set->nbuckets > router->allocated)
		return false;
	for (uint32 i = 0; i < set->nbuckets; i++)
	{
		const CbBucket *bucket = &cb_pool_buckets[set->buckets[i]];

		router->lens[i] = bucket->fence_len;
		memcpy(router->fences + i * CB_BUCKET_FENCE_SIZE, bucket->fence.bytes,
			   bucket->fence_len);
	}
	router->nbuckets = set->nbuckets;
	router->layout_gen = set->layout_gen;
	router->attach_id = set->attach_id;
	return true;
}

/*
 * Takes down the first columns of the fences that were copied; without a lock, as
 * they are the router's own.
 */
static void
cb_route_note_numbers(CbRouter *router)
{
	router->has_numbers = true;
	for (uint32 i = 1; i < router->nbuckets; i++)
		router->has_numbers &= cb_key_get_number(cb_route_fence(router, i),
												 &router->numbers[i]);
}

/*
 * A router of the bounds as they are, with one use, the caller's; NULL: the
 * index is not attached.  No LWLock is held; shares set->lock for a moment, in
 * which nothing is allocated, so the number of buckets is guessed before it.
 */
static CbRouter *
cb_route_read(Relation rel, CbBucketSet *set)
{
	for (;;)
	{
		CbRouter   *router = cb_route_make(set->nbuckets + 8);
		bool		attached;
		bool		copied = false;

		cb_set_share(set);
		attached = set->state == CB_SET_ATTACHED &&
			cb_set_is_current(set, rel);
		if (attached)
			copied = cb_route_copy(router, set);
		LWLockRelease(&set->lock);
		if (copied)
		{
			cb_route_note_numbers(router);
			return router;
		}
		cb_route_unref(router);
		if (!attached)
			return NULL;
	}
}

/*
 * The router of the index's attachment, as it is now or was a moment ago;
 * NULL:  it is not attached.  The slot keeps it until it is released to a mark
 * from before: a comparison function may come here as well.
 *
 * No LWLock is held on entry.  At the first use of an attachment the journal's
 * head is looked at, so pages are read, and the publish lock is waited for.
 * Errors can be raised, one if the slot has no room for a router; no
 * comparison runs.
 */
CbRouter *
cb_route_get(const CbKeyDesc *kd, CbBucketSet *set)
{
	Oid			indexoid = RelationGetRelid(kd->rel);
	CbRouterEntry *entry = cb_route_find(indexoid);
	CbRouter   *router = entry->router;

	if (router == NULL || router->attach_id != set->attach_id ||
		router->layout_gen != set->layout_gen)
	{
		uint64		known = router ? router->attach_id : 0;

		router = cb_route_read(kd->rel, set);
		if (router != NULL && router->attach_id != known)
			cb_route_check(kd->rel, set, router->attach_id);
		entry = cb_route_find(indexoid);
		if (entry->router != NULL)
			cb_route_unref(entry->router);
		entry->router = router;
		if (router == NULL)
			return NULL;
	}
	cb_slot_keep_router(router);
	return router;
}

/*
 * The last of the buckets whose bound is less than the number; the first one has
 * none.  Where a number belongs cannot be foreseen, so no branch depends on it.
 */
static uint32
cb_route_number(const CbRouter *router, int64 number)
{
	uint32		low = 0;

	for (uint32 n = router->nbuckets; n > 1; n -= n / 2)
		low += router->numbers[low + n / 2] < number ? n / 2 : 0;
	return low;
}

/*
 * The bucket that holds what lies right of the bound, or left of it when going
 * backward: its place in the bucket set's list, if the router is up to date.
 * Comparisons run, unless numbers alone tell; no LWLock is held.
 */
uint32
cb_route_bound(const CbKeyDesc *kd, const CbRouter *router, const CbBound *bound,
			   ScanDirection dir)
{
	uint32		low = 0;		/* that of this one is left of the bound */
	uint32		high = router->nbuckets;
	int			limit = ScanDirectionIsForward(dir) ? 0 : -1;

	if (bound->kind == CB_BOUND_KEYS && bound->lead_kind == CB_LEAD_INT64 &&
		router->has_numbers)
	{
		low = cb_route_number(router, bound->lead);
		if (low + 1 < high && router->numbers[low + 1] > bound->lead)
			high = low + 1;
	}
	while (high - low > 1)
	{
		uint32		mid = low + (high - low) / 2;

		if (cb_key_compare_bound(kd, bound, cb_route_fence(router, mid)) <= limit)
			low = mid;
		else
			high = mid;
	}
	return low;
}

/*
 * The bucket that an entry belongs to, as its place in the list.  Comparisons
 * run; no LWLock is held.
 */
uint32
cb_route_entry(const CbKeyDesc *kd, const CbRouter *router, IndexTuple itup)
{
	uint32		low = 0;
	uint32		high = router->nbuckets;

	while (high - low > 1)
	{
		uint32		mid = low + (high - low) / 2;

		if (cb_key_compare(kd, itup, cb_route_fence(router, mid)) >= 0)
			low = mid;
		else
			high = mid;
	}
	return low;
}
