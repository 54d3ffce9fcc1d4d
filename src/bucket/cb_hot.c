/*-------------------------------------------------------------------------
 *
 * cb_hot.c
 *	  Hot entries: the tables in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "bucket/cb_hot.h"

#include "base/cb_base.h"
#include "rel/cb_change.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

/* hot_size -1: bytes of the pool for a byte */
#define CB_HOT_DEFAULT_PART		2

#define CB_HOT_MAX_SIZE			(UINT64CONST(16) * 1024 * 1024 * 1024)

/* counts of changes: so many bytes of the tables for one of them */
#define CB_HOT_COUNT_PART		64

typedef struct CbHotShape
{
	uint32		nlines;			/* 0: none */
	uint32		ncounts;
} CbHotShape;

static CbHotSet *cb_hot_set = NULL;

/* ---------- shared memory ---------- */

static CbHotShape
cb_hot_shape(uint64 pool_size)
{
	CbHotShape	shape = {0};
	uint64		bytes = cb_hot_size >= 0 ? (uint64) cb_hot_size * 1024 :
		pool_size / CB_HOT_DEFAULT_PART;

	if (bytes == 0 || pool_size == 0)
		return shape;
	bytes = Min(bytes, CB_HOT_MAX_SIZE);
	shape.ncounts = bytes / CB_HOT_COUNT_PART;
	shape.nlines = (bytes - shape.ncounts * sizeof(cb_atomic64)) / sizeof(CbHotLine);
	return shape;
}

static Size
cb_hot_shmem_size(const CbHotShape *shape)
{
	Size		size = add_size(sizeof(CbHotSet), PG_CACHE_LINE_SIZE);

	return add_size(size, mul_size(shape->nlines, sizeof(CbHotLine)));
}

/*
 * Asks for memory by hot_size, or in proportion to pool_size: that of all
 * cache-buckets, in bytes.  In the postmaster's request hook.
 */
void
cb_hot_shmem_request(uint64 pool_size)
{
	CbHotShape	shape = cb_hot_shape(pool_size);

	if (shape.nlines == 0)
		return;
	RequestAddinShmemSpace(cb_hot_shmem_size(&shape));
	cb_change_shmem_request(shape.ncounts);
}

/*
 * Makes the tables, or finds them; pool_size as before.  AddinShmemInitLock is
 * not held.
 */
void
cb_hot_shmem_startup(uint64 pool_size)
{
	CbHotShape	shape = cb_hot_shape(pool_size);
	bool		found;

	if (shape.nlines == 0)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_hot_set = ShmemInitStruct("cache_batch hot entries",
								 cb_hot_shmem_size(&shape), &found);
	if (!found)
	{
		CbHotLine  *lines = (CbHotLine *) TYPEALIGN(PG_CACHE_LINE_SIZE,
													cb_hot_set + 1);

		cb_hotset_init(cb_hot_set, lines, shape.nlines);
	}
	cb_change_shmem_startup(shape.ncounts);
	LWLockRelease(AddinShmemInitLock);
}

/* Are any kept?  False: hot_size is 0, or the library not preloaded. */
bool
cb_hot_is_kept(void)
{
	return cb_hot_set != NULL;
}

/* ---------- entries ---------- */

/* Attachments are numbered; after the 4 billionth they have no hot entries. */
static inline bool
cb_hot_has_owner(uint64 attach_id)
{
	return cb_hot_set != NULL && attach_id != 0 && attach_id <= PG_UINT32_MAX;
}

/*
 * Keeps a copy of what is the only entry of the value with this hash in the
 * tree.  It is in this leaf, which is share-locked: so the count is that of the
 * leaf as it was read.  An entry larger than CB_HOT_MAX_TUPLE is not kept, nor
 * is any while another writes to its line.
 */
void
cb_hot_keep(Relation rel, uint64 attach_id, uint32 hash, BlockNumber leaf,
			IndexTuple itup)
{
	Size		size = IndexTupleSize(itup);
	CbHotItem	item = {.hash = hash,.block = leaf};

	if (!cb_hot_has_owner(attach_id) || size > CB_HOT_MAX_TUPLE)
		return;
	item.owner = (uint32) attach_id;
	item.changes = cb_rel_changes(rel, leaf);
	memcpy(item.data, itup, size);
	cb_hotset_put(cb_hot_set, &item);
}

/*
 * Copies the entry kept for a value with this hash, maybe for another such
 * value, and tells its leaf; false: none.  The caller has looked at all upper
 * levels first (I2), and compares the entry with the value.
 */
bool
cb_hot_find(Relation rel, uint64 attach_id, uint32 hash, CbHotTuple *tuple,
			BlockNumber *leaf)
{
	CbHotItem	item;

	if (!cb_hot_has_owner(attach_id) ||
		!cb_hotset_find(cb_hot_set, (uint32) attach_id, hash, &item))
		return false;
	if (cb_rel_changes(rel, item.block) != item.changes)
		return false;
	memcpy(tuple, item.data, sizeof(item.data));
	*leaf = item.block;
	return true;
}

/* The entry is of no use, as its row is dead to everyone. */
void
cb_hot_drop(uint64 attach_id, uint32 hash)
{
	if (cb_hot_has_owner(attach_id))
		cb_hotset_remove(cb_hot_set, (uint32) attach_id, hash);
}
