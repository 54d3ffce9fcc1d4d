/*-------------------------------------------------------------------------
 *
 * cb_key_filter.c
 *	  The filters of unique indexes in shared memory.
 *
 * Why they can be believed is said in cb_key_filter.h.
 *
 * Each filter is a Bloom filter, whose bits for a hash are in one cache line
 * (core/cb_filter.h).  The upper half of a hash tells the part, the claim's
 * partition its share of that, the lower half the line and the bits.  All filters
 * together have a quarter of the pool at most, and leave it what it must have
 * free.  One to which nobody has added a key for some time is given up.
 *
 * No lock is held on entry, unless a contract says so; the locks of claims come
 * after those of bucket sets, and nothing is waited for under them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "bucket/cb_claim.h"
#include "bucket/cb_key_filter.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

StaticAssertDecl(sizeof(CbKeyFilterPlace) <= 4096 &&
				 sizeof(((CbKeyFilterPlace *) NULL)->tuple) >=
				 CB_MAX_ITEM_SIZE + MAXALIGN(sizeof(ItemPointerData)),
				 "a separator has room in the place, and that in the least chunk");

/* places for filters */
#define CB_KEY_FILTERS			256

/* parts of the pool: what filters may have, what they leave */
#define CB_KEY_FILTER_PART		4
#define CB_KEY_FILTER_LEAVES	4

/* bits a key: that are wanted, that are enough to begin */
#define CB_KEY_FILTER_BITS		12
#define CB_KEY_FILTER_MIN_BITS	2

/* how long a filter stays to which no key is added */
#define CB_KEY_FILTER_IDLE_MS	(10 * 60 * 1000)

typedef struct CbKeyFilter
{
	/* changed with all locks of claims held, so any of them keeps it */
	CbKeyFilterState state;
	Oid			indexoid;
	RelFileLocator file;
	uint32		directory;
	uint32		nparts;			/* of the directory's members, behind the first */
	char		pad[PG_CACHE_LINE_SIZE];

	cb_atomic32 nearlier;		/* claims that have added nothing */
	cb_atomic32 nlooks;			/* that read the index; a hint */
	uint32		nadded;			/* hashes of partition 0, under its lock */
	bool		used;			/* was a key added lately?  A hint */
} CbKeyFilter;

typedef struct CbKeyFilters
{
	cb_atomic32 nchunks;		/* that filters have */
	cb_atomic64 looked_at;		/* when idle ones were last looked for */
	CbKeyFilter filters[CB_KEY_FILTERS];
} CbKeyFilters;

/* NULL where there are no unique indexes, or no pool */
static CbKeyFilters *cb_key_filters = NULL;

/* ---------- shared memory ---------- */

/* Asks for the filters' places; from shmem_request_hook. */
void
cb_key_filter_shmem_request(void)
{
	if (CB_HAS_UNIQUE && cb_pool_size_bytes() > 0)
		RequestAddinShmemSpace(sizeof(CbKeyFilters));
}

/* Sets up or attaches to them, behind the pool; from shmem_startup_hook. */
void
cb_key_filter_shmem_startup(void)
{
	bool		found;

	if (!CB_HAS_UNIQUE || cb_pool_size_bytes() == 0)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_key_filters = ShmemInitStruct("cache_batch key filters",
									 sizeof(CbKeyFilters), &found);
	if (!found)
		memset(cb_key_filters, 0, sizeof(CbKeyFilters));
	LWLockRelease(AddinShmemInitLock);
}

/* ---------- asking and adding ---------- */

/* The place of an index's filter, whosever is there; NULL: none has one. */
static inline CbKeyFilter *
cb_key_filter_at(Oid indexoid)
{
	if (cb_key_filters == NULL)
		return NULL;
	return &cb_key_filters->filters[indexoid % CB_KEY_FILTERS];
}

/* Have two indexes one place? */
bool
cb_key_filter_shares_place(Oid indexoid, Oid other)
{
	return indexoid % CB_KEY_FILTERS == other % CB_KEY_FILTERS;
}

/* Is there a filter of this file?  A lock of claims is held. */
static inline bool
cb_key_filter_is_of(const CbKeyFilter *filter, Oid indexoid,
					const RelFileLocator *file)
{
	return filter != NULL && filter->state != CB_KEY_FILTER_NONE &&
		filter->indexoid == indexoid && RelFileLocatorEquals(filter->file, *file);
}

/* Cache lines of a part that a partition of claims has. */
static inline uint32
cb_key_filter_lines(void)
{
	return cb_pool->chunk_size / (CB_FILTER_LINE_BYTES * CB_CLAIM_PARTITIONS);
}

/* The lines in which a hash has its bits. */
static inline cb_atomic64 *
cb_key_filter_share(const CbKeyFilter *filter, uint32 partition, uint64 hash)
{
	uint32		part = ((hash >> 32) * filter->nparts) >> 32;
	const CbChunk *member = cb_directory_member(cb_directory(filter->directory),
												part + 1);

	return (cb_atomic64 *) member->data +
		partition * cb_key_filter_lines() * CB_FILTER_LINE_WORDS;
}

/*
 * Adds a hash to the filter of this file, if there is one.  True: no entry of the
 * index had it.  The lock of the hash's partition is held, EXCL.
 */
bool
cb_key_filter_add(Oid indexoid, const RelFileLocator *file, uint32 partition,
				  uint64 hash)
{
	CbKeyFilter *filter = cb_key_filter_at(indexoid);
	cb_atomic64 *share;

	if (!cb_key_filter_is_of(filter, indexoid, file))
		return false;
	share = cb_key_filter_share(filter, partition, hash);
	if (cb_filter_may_hold(share, cb_key_filter_lines(), (uint32) hash))
		return false;
	cb_filter_add(share, cb_key_filter_lines(), (uint32) hash);
	if (partition == 0)
		filter->nadded++;
	if (!filter->used)
		filter->used = true;
	return filter->state == CB_KEY_FILTER_READY;
}

/*
 * Is it certain that no entry of the index has the hash?  The lock of the hash's
 * partition is held.
 */
bool
cb_key_filter_lacks(Oid indexoid, const RelFileLocator *file, uint32 partition,
					uint64 hash)
{
	const CbKeyFilter *filter = cb_key_filter_at(indexoid);

	return cb_key_filter_is_of(filter, indexoid, file) &&
		filter->state == CB_KEY_FILTER_READY &&
		!cb_filter_may_hold(cb_key_filter_share(filter, partition, hash),
							cb_key_filter_lines(), (uint32) hash);
}

/* An earlier claim has ended: its partition's lock is held.  Cannot fail. */
void
cb_key_filter_end_earlier(Oid indexoid)
{
	CbKeyFilter *filter = cb_key_filter_at(indexoid);

	if (filter != NULL)
		cb_fetch_sub(&filter->nearlier, 1);
}

/* So many keys were looked for in the index.  A hint. */
void
cb_key_filter_count_looks(Oid indexoid, uint32 n)
{
	CbKeyFilter *filter = cb_key_filter_at(indexoid);

	if (filter != NULL)
		cb_fetch_add(&filter->nlooks, n);
}

/* ---------- memory ---------- */

/* Bits of so many parts. */
static inline uint64
cb_key_filter_bits(uint64 nparts)
{
	return nparts * CB_CLAIM_PARTITIONS * cb_key_filter_lines() *
		CB_FILTER_LINE_BYTES * BITS_PER_BYTE;
}

/*
 * How many parts a filter of so many keys can have now, in the place of one that
 * has so many chunks; 0: there is no room for one that is of use.  A hint.
 */
static uint32
cb_key_filter_choose_parts(uint64 nkeys, uint32 nold)
{
	uint64		part = cb_key_filter_bits(1);
	int64		free = (int64) cb_freelist_count(&cb_pool->free_chunks) -
		cb_pool->nchunks / CB_KEY_FILTER_LEAVES;
	int64		share = (int64) (cb_pool->nchunks / CB_KEY_FILTER_PART) -
		cb_load_relaxed(&cb_key_filters->nchunks);
	int64		room = Min(Min(free, share) + nold, cb_directory_max_members()) - 2;
	int64		nparts = Min((int64) (nkeys * CB_KEY_FILTER_BITS / part) + 1, room);

	return nparts > 0 && cb_key_filter_bits(nparts) >= nkeys * CB_KEY_FILTER_MIN_BITS ?
		nparts : 0;
}

/*
 * Makes the memory of a filter, with all bits 0; NULL: no room.  The slot has the
 * directory, and the caller releases that to a mark from before.
 */
static CbPoolChunk *
cb_key_filter_make(uint32 nparts)
{
	uint32		number;
	CbDirectory *contents;
	CbPoolChunk *directory;

	if (!cb_slot_has_room(1, 0) || (number = cb_pool_open_chunk()) == CB_NONE)
		return NULL;
	directory = &cb_pool_chunks[number];
	contents = cb_directory(number);
	memset(contents, 0, offsetof(CbDirectory, members));
	directory->is_directory = true;
	cb_chunk_set_state(&directory->chunk, CB_CHUNK_RETIRED);
	cb_slot_adopt(directory);
	while (contents->nmembers < nparts + 1)
	{
		number = cb_pool_open_chunk();
		if (number == CB_NONE)
			return NULL;
		contents->members[contents->nmembers++].chunk = number;
		memset(cb_pool_chunks[number].chunk.data, 0, cb_pool->chunk_size);
	}
	return directory;
}

/*
 * Gives a filter up, with its memory, and counts looks anew.  All locks of claims
 * are held, so nobody reads it.  Cannot fail.
 */
static void
cb_key_filter_drop(CbKeyFilter *filter)
{
	CbPoolChunk *directory = &cb_pool_chunks[filter->directory];

	if (filter->state == CB_KEY_FILTER_NONE)
		return;
	filter->state = CB_KEY_FILTER_NONE;
	cb_store_relaxed(&filter->nlooks, 0);
	cb_fetch_sub(&cb_key_filters->nchunks, filter->nparts + 2);
	if (cb_chunk_release(&directory->chunk))
		cb_pool_free_chunk(directory);
}

/* ---------- filling ---------- */

/* What is told of a filter.  A lock of claims is held. */
static CbKeyFilterInfo
cb_key_filter_describe(const CbKeyFilter *filter)
{
	return (CbKeyFilterInfo) {
		.state = filter->state,
		.indexoid = filter->indexoid,
		.settled = cb_load_acquire(&((CbKeyFilter *) filter)->nearlier) == 0,
		.nbytes = cb_key_filter_bits(filter->nparts) / BITS_PER_BYTE,
		.nkeys = (uint64) filter->nadded * CB_CLAIM_PARTITIONS
	};
}

/*
 * The filter of an index that is open.  If that has none the state is NONE, and
 * nkeys are those that the last one of the file had seen.
 */
CbKeyFilterInfo
cb_key_filter_look(Relation index)
{
	const CbKeyFilter *filter = cb_key_filter_at(RelationGetRelid(index));
	CbKeyFilterInfo info = {.state = CB_KEY_FILTER_NONE,.indexoid = RelationGetRelid(index)};

	if (filter == NULL)
		return info;
	cb_claim_lock_filters(LW_SHARED);
	if (filter->indexoid == info.indexoid &&
		RelFileLocatorEquals(filter->file, index->rd_locator))
		info = cb_key_filter_describe(filter);
	info.nlooks = cb_load_relaxed(&filter->nlooks);
	cb_claim_unlock_filters(LW_SHARED);
	return info;
}

/* The filter at a place, if it is of this database; false: no such place. */
bool
cb_key_filter_show(uint32 place, CbKeyFilterInfo *info)
{
	const CbKeyFilter *filter;

	if (cb_key_filters == NULL || place >= CB_KEY_FILTERS)
		return false;
	filter = &cb_key_filters->filters[place];
	memset(info, 0, sizeof(CbKeyFilterInfo));
	cb_claim_lock_filters(LW_SHARED);
	if (filter->state != CB_KEY_FILTER_NONE && filter->file.dbOid == MyDatabaseId)
		*info = cb_key_filter_describe(filter);
	cb_claim_unlock_filters(LW_SHARED);
	return true;
}

/* Has another index its filter at this place?  A lock of claims is held. */
static bool
cb_key_filter_is_of_another(const CbKeyFilter *filter, Relation index)
{
	return filter->state != CB_KEY_FILTER_NONE &&
		(filter->indexoid != RelationGetRelid(index) ||
		 filter->file.dbOid != index->rd_locator.dbOid);
}

/*
 * How many parts a filter of so many keys gets, for the index; 0: none.  If another
 * one has the place, looks are counted anew.  What the index has must be smaller by
 * a third, unless it is to be renewed.
 */
static uint32
cb_key_filter_plan(CbKeyFilter *filter, Relation index, uint64 nkeys, bool renew)
{
	uint32		nparts = 0;
	uint32		nold;
	bool		taken;

	cb_claim_lock_filters(LW_SHARED);
	taken = cb_key_filter_is_of_another(filter, index);
	nold = filter->state == CB_KEY_FILTER_NONE ? 0 : filter->nparts;
	renew |= !cb_key_filter_is_of(filter, RelationGetRelid(index), &index->rd_locator);
	cb_claim_unlock_filters(LW_SHARED);
	if (taken)
		cb_store_relaxed(&filter->nlooks, 0);
	else
		nparts = cb_key_filter_choose_parts(nkeys, nold > 0 ? nold + 2 : 0);
	return renew || nparts * 2 >= nold * 3 ? nparts : 0;
}

/*
 * Gives the place, if it is free, to the index, whose filter is FILLING from here
 * on.  All locks of claims are held.
 */
static bool
cb_key_filter_enter(CbKeyFilter *filter, Relation index, uint32 directory)
{
	if (filter->state != CB_KEY_FILTER_NONE)
		return false;
	filter->indexoid = RelationGetRelid(index);
	filter->file = index->rd_locator;
	filter->directory = directory;
	filter->nparts = cb_directory(directory)->nmembers - 1;
	filter->nadded = 0;
	filter->used = true;
	cb_store_relaxed(&filter->nlooks, 0);
	cb_store_relaxed(&filter->nearlier,
					 cb_claim_mark_earlier(RelationGetRelid(index)));
	filter->state = CB_KEY_FILTER_FILLING;
	return true;
}

/* Gives up what the index has at its place, of whatever file. */
static void
cb_key_filter_clear(CbKeyFilter *filter, Relation index)
{
	cb_claim_lock_filters(LW_EXCLUSIVE);
	if (!cb_key_filter_is_of_another(filter, index))
		cb_key_filter_drop(filter);
	cb_claim_unlock_filters(LW_EXCLUSIVE);
}

/* Makes a filter of so many parts, and enters it; false: no room, or no place. */
static bool
cb_key_filter_make_and_enter(CbKeyFilter *filter, Relation index, uint32 nparts)
{
	CbSlotMark	mark = cb_slot_mark();
	CbPoolChunk *directory = cb_key_filter_make(nparts);
	bool		entered = false;

	if (directory != NULL)
	{
		cb_claim_lock_filters(LW_EXCLUSIVE);
		entered = cb_key_filter_enter(filter, index, directory->number);
		if (entered)
			cb_chunk_hold(&directory->chunk);
		cb_claim_unlock_filters(LW_EXCLUSIVE);
	}
	cb_slot_release_to(mark);
	return entered;
}

/*
 * Begins to fill a filter for so many keys, in the place of an earlier one; false:
 * there is no room for one that is larger, or, if it is to be renewed, for one at
 * all.  The caller has the lock by which one process does so.
 */
bool
cb_key_filter_begin(Relation index, uint64 nkeys, bool renew)
{
	CbKeyFilter *filter = cb_key_filter_at(RelationGetRelid(index));
	uint32		nparts;

	if (filter == NULL)
		return false;
	nparts = cb_key_filter_plan(filter, index, nkeys, renew);
	if (nparts == 0)
		return false;
	cb_key_filter_clear(filter, index);
	if (cb_fetch_add(&cb_key_filters->nchunks, nparts + 2) + nparts + 2 <=
		cb_pool->nchunks / CB_KEY_FILTER_PART &&
		cb_key_filter_make_and_enter(filter, index, nparts))
		return true;
	cb_fetch_sub(&cb_key_filters->nchunks, nparts + 2);
	return false;
}

/* Where the builder notes how far it has come; all 0: it has not begun. */
static inline CbKeyFilterPlace *
cb_key_filter_note(const CbKeyFilter *filter)
{
	return (CbKeyFilterPlace *)
		cb_directory_member(cb_directory(filter->directory), 0)->data;
}

/*
 * How far the builder has come: a copy; NULL if it has not begun, or there is no
 * filter any more.
 */
CbKeyFilterPlace *
cb_key_filter_get_place(Relation index)
{
	const CbKeyFilter *filter = cb_key_filter_at(RelationGetRelid(index));
	CbKeyFilterPlace *place = palloc0(sizeof(CbKeyFilterPlace));

	cb_claim_lock_filters(LW_SHARED);
	if (cb_key_filter_is_of(filter, RelationGetRelid(index), &index->rd_locator))
		memcpy(place, cb_key_filter_note(filter),
			   offsetof(CbKeyFilterPlace, tuple) +
			   IndexTupleSize(&cb_key_filter_note(filter)->tuple.header));
	cb_claim_unlock_filters(LW_SHARED);
	return IndexTupleSize(&place->tuple.header) > 0 ? place : NULL;
}

/* The builder has come to a bound beside a tuple. */
void
cb_key_filter_set_place(Relation index, const CbBound *bound)
{
	const CbKeyFilter *filter = cb_key_filter_at(RelationGetRelid(index));
	Size		size = IndexTupleSize(bound->tuple);

	Assert(bound->kind == CB_BOUND_TUPLE && size <= sizeof(((CbKeyFilterPlace *) NULL)->tuple));
	cb_claim_lock_filters(LW_EXCLUSIVE);
	if (cb_key_filter_is_of(filter, RelationGetRelid(index), &index->rd_locator))
	{
		cb_key_filter_note(filter)->after = bound->after;
		memcpy(&cb_key_filter_note(filter)->tuple, bound->tuple, size);
	}
	cb_claim_unlock_filters(LW_EXCLUSIVE);
}

/* The builder has come to the index's end: the filter answers from here on. */
void
cb_key_filter_finish(Relation index)
{
	CbKeyFilter *filter = cb_key_filter_at(RelationGetRelid(index));

	cb_claim_lock_filters(LW_EXCLUSIVE);
	if (cb_key_filter_is_of(filter, RelationGetRelid(index), &index->rd_locator))
		filter->state = CB_KEY_FILTER_READY;
	cb_claim_unlock_filters(LW_EXCLUSIVE);
}

/* ---------- giving up ---------- */

/*
 * Gives up the filter of a file, which is not an index's any more, or in which an
 * index is built; or which holds too much that is not there.  Cannot fail.
 */
void
cb_key_filter_forget(const RelFileLocator *file)
{
	if (cb_key_filters == NULL)
		return;
	cb_claim_lock_filters(LW_EXCLUSIVE);
	for (int i = 0; i < CB_KEY_FILTERS; i++)
	{
		if (RelFileLocatorEquals(cb_key_filters->filters[i].file, *file))
			cb_key_filter_drop(&cb_key_filters->filters[i]);
	}
	cb_claim_unlock_filters(LW_EXCLUSIVE);
}

/* The same for all filters of a database, which has been dropped or moved. */
void
cb_key_filter_forget_database(Oid dboid)
{
	if (cb_key_filters == NULL)
		return;
	cb_claim_lock_filters(LW_EXCLUSIVE);
	for (int i = 0; i < CB_KEY_FILTERS; i++)
	{
		if (cb_key_filters->filters[i].file.dbOid == dboid)
			cb_key_filter_drop(&cb_key_filters->filters[i]);
	}
	cb_claim_unlock_filters(LW_EXCLUSIVE);
}

/* Is it time to look for filters that are idle?  True for one process. */
static bool
cb_key_filter_is_time(void)
{
	uint64		last = cb_load_relaxed(&cb_key_filters->looked_at);
	TimestampTz now = cb_clock_now();

	return TimestampDifferenceExceeds((TimestampTz) last, now,
									  CB_KEY_FILTER_IDLE_MS) &&
		cb_swap_if(&cb_key_filters->looked_at, &last, (uint64) now);
}

/*
 * Gives up the filters, of any index, to which no key was added for some time.  May
 * be called often.
 */
void
cb_key_filter_forget_idle(void)
{
	if (cb_key_filters == NULL || !cb_key_filter_is_time())
		return;
	cb_claim_lock_filters(LW_EXCLUSIVE);
	for (int i = 0; i < CB_KEY_FILTERS; i++)
	{
		if (!cb_key_filters->filters[i].used)
			cb_key_filter_drop(&cb_key_filters->filters[i]);
		cb_key_filters->filters[i].used = false;
	}
	cb_claim_unlock_filters(LW_EXCLUSIVE);
}
