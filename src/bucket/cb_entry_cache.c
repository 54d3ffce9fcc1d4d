/*-------------------------------------------------------------------------
 *
 * cb_entry_cache.c
 *	  The entry cache: the tables in shared memory.
 *
 * There is one table of entries (core/cb_cacheset.h) and one of counts
 * (rel/cb_change.h), of sizes that are settled at the server's start.  Who owns
 * an entry is told by an attachment's number, and by no bucket set: when that
 * is given up its entries need not be looked for, as nobody asks by this number
 * again.
 *
 *-------------------------------------------------------------------------
 */
#include "bucket/cb_entry_cache.h"

#include "base/cb_base.h"
#include "rel/cb_change.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/* entry_cache_size -1: bytes of the pool for a byte */
#define CB_ENTRY_CACHE_DEFAULT_PART		2

#define CB_ENTRY_CACHE_MAX_SIZE			(UINT64CONST(16) * 1024 * 1024 * 1024)

/* counts of changes: so many bytes of the tables for one of them */
#define CB_ENTRY_CACHE_COUNT_PART		64

typedef struct CbCacheShape
{
	uint32		nlines;			/* 0: none */
	uint32		ncounts;
} CbCacheShape;

static CbCacheSet *cb_entry_cache_set = NULL;

/* ---------- shared memory ---------- */

/*
 * How many lines and counts fit into what the settings allow: these do not change
 * while the server runs, so whoever asks comes to the same.  pool_size is in
 * bytes; 0: no lines, as without buckets nothing has an attachment.
 */
static CbCacheShape
cb_entry_cache_shape(uint64 pool_size)
{
	CbCacheShape shape = {0};
	uint64		bytes = cb_entry_cache_size >= 0 ? (uint64) cb_entry_cache_size * 1024 :
		pool_size / CB_ENTRY_CACHE_DEFAULT_PART;

	if (bytes == 0 || pool_size == 0)
		return shape;
	bytes = Min(bytes, CB_ENTRY_CACHE_MAX_SIZE);
	shape.ncounts = bytes / CB_ENTRY_CACHE_COUNT_PART;
	shape.nlines = (bytes - shape.ncounts * sizeof(cb_atomic64)) / sizeof(CbCacheLine);
	return shape;
}

/*
 * Bytes of the table of entries, with what it takes to begin at a cache line; the
 * counts ask for themselves.
 */
static Size
cb_entry_cache_shmem_size(const CbCacheShape *shape)
{
	Size		size = add_size(sizeof(CbCacheSet), PG_CACHE_LINE_SIZE);

	return add_size(size, mul_size(shape->nlines, sizeof(CbCacheLine)));
}

/*
 * Asks for memory by entry_cache_size, or in proportion to pool_size: that of
 * all cache-buckets, in bytes.  In the postmaster's request hook.
 */
void
cb_entry_cache_shmem_request(uint64 pool_size)
{
	CbCacheShape shape = cb_entry_cache_shape(pool_size);

	if (shape.nlines == 0)
		return;
	RequestAddinShmemSpace(cb_entry_cache_shmem_size(&shape));
	cb_change_shmem_request(shape.ncounts);
}

/*
 * Makes the tables, or finds them; pool_size as before.  AddinShmemInitLock is
 * not held.
 */
void
cb_entry_cache_shmem_startup(uint64 pool_size)
{
	CbCacheShape shape = cb_entry_cache_shape(pool_size);
	bool		found;

	if (shape.nlines == 0)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_entry_cache_set = ShmemInitStruct("cache_batch cached entries",
										 cb_entry_cache_shmem_size(&shape), &found);
	if (!found)
	{
		CbCacheLine *lines = (CbCacheLine *) TYPEALIGN(PG_CACHE_LINE_SIZE,
													   cb_entry_cache_set + 1);

		cb_cacheset_init(cb_entry_cache_set, lines, shape.nlines);
	}
	cb_change_shmem_startup(shape.ncounts);
	LWLockRelease(AddinShmemInitLock);
}

/* Are any kept?  False: entry_cache_size is 0, or the library not preloaded. */
bool
cb_entry_cache_is_kept(void)
{
	return cb_entry_cache_set != NULL;
}

/* ---------- entries ---------- */

/*
 * Attachments are numbered; after the 4 billionth they have no cached entries.
 */
static inline bool
cb_entry_cache_has_owner(uint64 attach_id)
{
	return cb_entry_cache_set != NULL && attach_id != 0 && attach_id <= PG_UINT32_MAX;
}

/*
 * Keeps a copy of what is the only entry of the value with this hash in the
 * tree.  It is in this leaf, which is share-locked: so the count is that of
 * the leaf as it was read.  An entry larger than CB_ENTRY_CACHE_MAX_TUPLE is
 * not kept, nor is any while another writes to its line.  attach_id is that of
 * the buckets that the look-up saw; 0: it is not kept.
 */
void
cb_entry_cache_keep(Relation rel, uint64 attach_id, uint32 hash, BlockNumber leaf,
					IndexTuple itup)
{
	Size		size = IndexTupleSize(itup);
	CbCacheItem item = {.hash = hash,.block = leaf};

	if (!cb_entry_cache_has_owner(attach_id) || size > CB_ENTRY_CACHE_MAX_TUPLE)
		return;
	item.owner = (uint32) attach_id;
	item.changes = cb_rel_changes(rel, leaf);
	memcpy(item.data, itup, size);
	cb_cacheset_put(cb_entry_cache_set, &item);
}

/*
 * Has the leaf that an entry was found for still not changed, so that it has it?
 * What the caller has read before was read while it had.
 */
bool
cb_entry_cache_is_same(Relation rel, const CbCachedLeaf *leaf)
{
	pg_read_barrier();
	return cb_rel_changes(rel, leaf->block) == leaf->changes;
}

/*
 * Copies the entry kept for a value with this hash, maybe for another such
 * value, and tells its leaf; false: none.  The caller has looked at all upper
 * tiers first (I2), and compares the entry with the value.  What is copied is
 * the caller's; no page is pinned for it.
 */
bool
cb_entry_cache_find(Relation rel, uint64 attach_id, uint32 hash, CbCachedTuple *tuple,
					CbCachedLeaf *leaf)
{
	CbCacheItem item;

	if (!cb_entry_cache_has_owner(attach_id) ||
		!cb_cacheset_find(cb_entry_cache_set, (uint32) attach_id, hash, &item))
		return false;
	*leaf = (CbCachedLeaf) {.block = item.block,.changes = item.changes};
	memcpy(tuple, item.data, sizeof(item.data));
	return cb_entry_cache_is_same(rel, leaf);
}

/*
 * The entry that is kept for this hash is of no use, as its row is dead to
 * everyone.  If another has come in its place, that goes; nothing is lost by it.
 */
void
cb_entry_cache_drop(uint64 attach_id, uint32 hash)
{
	if (cb_entry_cache_has_owner(attach_id))
		cb_cacheset_remove(cb_entry_cache_set, (uint32) attach_id, hash);
}
