/*-------------------------------------------------------------------------
 *
 * cb_pool.c
 *	  The pool of chunks in main shared memory, and what stands beside it.
 *
 * Plain arrays, sized at server start from cache_batch.pool_size: they never
 * grow or shrink.  Chunk headers, which are written on each insertion, stand
 * in an array of their own, away from the data: at the distance of whole
 * chunks they would all fall into the same few sets of the CPU's cache.
 *
 * Invariants:
 *	a) The arrays' places and lengths are known before any backend starts, and
 *	   stay: nobody locks to come to a chunk, a bucket or a bucket set.
 *	b) A chunk or bucket is in its free list, or it has been popped, and then
 *	   whoever did so has it alone until it is listed, under a lock.
 *	c) There are as many buckets as chunks and bucket sets together, so that
 *	   they seldom run out where there are chunks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "bucket/cb_entry_cache.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#define CB_CHUNK_SIZE_MIN	4096
#define CB_CHUNK_SIZE_MAX	(24 * 1024)
#define CB_POOL_CHUNKS		1024	/* wanted, within these sizes */
#define CB_POOL_SETS		256
#define CB_POOL_DEFAULT		(8 * 1024 * 1024)	/* where the LLC is unknown */
#define CB_POOL_MIN			(256 * 1024)

/* bytes of entries for a byte of their filter: 10 bits for one of 16 bytes */
#define CB_POOL_FILTER_PART	16

/* the pool is low when fewer than this part of its chunks is free */
#define CB_POOL_LOW_PART		8
#define CB_POOL_VERY_LOW_PART	32
#define CB_POOL_LAST_PART		64
#define CB_POOL_LAST_MIN		4

CbPool	   *cb_pool = NULL;
CbGens	   *cb_pool_gens = NULL;
CbPoolChunk *cb_pool_chunks = NULL;
CbBucket   *cb_pool_buckets = NULL;
CbBucketSet *cb_pool_sets = NULL;
cb_atomic64 *cb_pool_filters = NULL;

/*
 * Bytes of the CPU's last-level cache, 0 if it cannot be found out.  What the
 * kernel shows for one CPU comes first: the C library may count what belongs
 * to others, on a virtual machine.
 */
static uint64
cb_pool_llc_size(void)
{
	uint64		kilobytes = 0;

	for (int level = 4; level >= 2 && kilobytes == 0; level--)
	{
		char		path[MAXPGPATH];
		FILE	   *file;

		snprintf(path, sizeof(path),
				 "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
		file = fopen(path, "r");
		if (file == NULL)
			continue;
		if (fscanf(file, UINT64_FORMAT "K", &kilobytes) != 1)
			kilobytes = 0;
		fclose(file);
	}
#ifdef _SC_LEVEL3_CACHE_SIZE
	if (kilobytes == 0)
		return Max(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
#endif
	return kilobytes * 1024;
}

/*
 * The pool's size by the settings, in bytes; 0: no buckets.  They do not
 * change while the server runs, so those who ask at its start come to the
 * same.
 */
uint64
cb_pool_size_bytes(void)
{
	uint64		size;

	if (cb_pool_size == 0)
		return 0;
	if (cb_pool_size > 0)
		size = (uint64) cb_pool_size * 1024;
	else
		size = cb_pool_llc_size();
	if (size == 0)
		size = CB_POOL_DEFAULT;
	return Max(size, CB_POOL_MIN);
}

/*
 * What the arrays are made for, by the settings; all that is not a number or a
 * size of theirs is zero.  There are buckets: the pool's size is not 0.
 */
static CbPool
cb_pool_shape(void)
{
	CbPool		shape;
	uint64		size = cb_pool_size_bytes();

	memset(&shape, 0, sizeof(shape));
	shape.chunk_size = Min(Max(size / CB_POOL_CHUNKS, CB_CHUNK_SIZE_MIN),
						   CB_CHUNK_SIZE_MAX);
	shape.chunk_size &= ~(uint32) (PG_CACHE_LINE_SIZE - 1);
	shape.filter_lines = shape.chunk_size /
		(CB_POOL_FILTER_PART * CB_FILTER_LINE_BYTES);
	shape.nchunks = size /
		(shape.chunk_size + shape.filter_lines * CB_FILTER_LINE_BYTES);
	shape.nsets = CB_POOL_SETS;
	shape.nbuckets = shape.nchunks + shape.nsets;
	return shape;
}

/*
 * Bytes to ask for, so that an array of n objects can begin at a cache line.
 * Raises an error if that overflows.
 */
static Size
cb_pool_aligned(Size n, Size size)
{
	return add_size(mul_size(n, size), PG_CACHE_LINE_SIZE);
}

/*
 * Asks for the memory of the pool, of the bucket sets' table and of hot
 * entries; in the postmaster's request hook.
 */
void
cb_pool_shmem_request(void)
{
	CbPool		shape;

	if (cb_pool_size_bytes() == 0)
		return;
	shape = cb_pool_shape();
	RequestAddinShmemSpace(cb_pool_aligned(1, sizeof(CbPool)));
	RequestAddinShmemSpace(cb_pool_aligned(CB_POOL_GENS, sizeof(CbGens)));
	RequestAddinShmemSpace(cb_pool_aligned(shape.nchunks, shape.chunk_size));
	RequestAddinShmemSpace(cb_pool_aligned(shape.nchunks,
										   shape.filter_lines * CB_FILTER_LINE_BYTES));
	RequestAddinShmemSpace(cb_pool_aligned(shape.nchunks, sizeof(CbPoolChunk)));
	RequestAddinShmemSpace(cb_pool_aligned(shape.nchunks, sizeof(cb_atomic32)));
	RequestAddinShmemSpace(cb_pool_aligned(shape.nbuckets, sizeof(CbBucket)));
	RequestAddinShmemSpace(cb_pool_aligned(shape.nbuckets, sizeof(cb_atomic32)));
	RequestAddinShmemSpace(cb_pool_aligned(shape.nsets, sizeof(CbBucketSet)));
	cb_set_shmem_request(shape.nsets);
	cb_entry_cache_shmem_request(cb_pool_size_bytes());
}

/*
 * The array of this name, made or found, at a cache line.  What is made is not
 * set up yet.  AddinShmemInitLock is held.
 */
static void *
cb_pool_array(const char *name, uint32 n, Size size)
{
	bool		found;
	char	   *array = ShmemInitStruct(name, cb_pool_aligned(n, size), &found);

	return (void *) TYPEALIGN(PG_CACHE_LINE_SIZE, array);
}

/*
 * Makes all chunks free, their memory side by side.  What is not set here is set
 * when a chunk is opened.  Nobody else is there yet, as in the two that follow.
 */
static void
cb_pool_init_chunks(char *data)
{
	for (uint32 i = 0; i < cb_pool->nchunks; i++)
	{
		CbPoolChunk *chunk = &cb_pool_chunks[i];

		cb_chunk_init(&chunk->chunk, data + (Size) i * cb_pool->chunk_size,
					  cb_pool->chunk_size);
		chunk->number = i;
		chunk->minpos = 0;
		chunk->nlists = 0;
		chunk->bucket = CB_NONE;
	}
}

/*
 * Makes all buckets and bucket sets free, with their locks, whose four tranches
 * are one after the other, in the order of cb_pool_shmem_startup().
 */
static void
cb_pool_init_locks(void)
{
	int			tranche = cb_pool->lock_tranche;

	LWLockInitialize(&cb_pool->table_lock, tranche);
	for (uint32 i = 0; i < cb_pool->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[i];

		memset(bucket, 0, sizeof(CbBucket));
		LWLockInitialize(&bucket->lock, tranche + 2);
		bucket->number = i;
		bucket->set = CB_NONE;
	}
	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		CbBucketSet *set = &cb_pool_sets[i];

		memset(set, 0, sizeof(CbBucketSet));
		LWLockInitialize(&set->lock, tranche + 1);
		LWLockInitialize(&set->gate, tranche + 1);
		LWLockInitialize(&set->publish, tranche + 3);
		ConditionVariableInit(&set->cv);
		set->number = i;
		set->state = CB_SET_FREE;
		set->copy.block = InvalidBlockNumber;
	}
}

/*
 * Fills all arrays, for this shape, when the server starts or starts again after
 * a crash.  The links are for the free lists, and theirs from here on.
 */
static void
cb_pool_init(const CbPool *shape, char *data, cb_atomic32 *chunk_links,
			 cb_atomic32 *bucket_links)
{
	*cb_pool = *shape;
	cb_pool->lock_tranche = LWLockNewTrancheId();
	(void) LWLockNewTrancheId();
	(void) LWLockNewTrancheId();
	(void) LWLockNewTrancheId();
	cb_store_relaxed(&cb_pool->next_attach_id, 1);
	for (int i = 0; i < CB_POOL_GENS; i++)
	{
		cb_store_relaxed(&cb_pool_gens[i].table_gen, 1);
		cb_store_relaxed(&cb_pool_gens[i].no_set_gen, 1);
	}
	cb_pool_init_chunks(data);
	cb_pool_init_locks();
	cb_freelist_init(&cb_pool->free_chunks, chunk_links, shape->nchunks);
	cb_freelist_init(&cb_pool->free_buckets, bucket_links, shape->nbuckets);
}

/*
 * Makes the pool and what stands beside it, or finds it.  In the postmaster,
 * before any backend is there; AddinShmemInitLock is not held.
 */
void
cb_pool_shmem_startup(void)
{
	CbPool		shape;
	char	   *data;
	cb_atomic32 *chunk_links;
	cb_atomic32 *bucket_links;
	int			tranche;

	if (cb_pool_size_bytes() == 0)
		return;
	shape = cb_pool_shape();

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_pool = cb_pool_array("cache_batch pool", 1, sizeof(CbPool));
	cb_pool_gens = cb_pool_array("cache_batch generations", CB_POOL_GENS,
								 sizeof(CbGens));
	data = cb_pool_array("cache_batch chunks", shape.nchunks, shape.chunk_size);
	cb_pool_filters = cb_pool_array("cache_batch filters", shape.nchunks,
									shape.filter_lines * CB_FILTER_LINE_BYTES);
	cb_pool_chunks = cb_pool_array("cache_batch chunk headers", shape.nchunks,
								   sizeof(CbPoolChunk));
	chunk_links = cb_pool_array("cache_batch free chunks", shape.nchunks,
								sizeof(cb_atomic32));
	cb_pool_buckets = cb_pool_array("cache_batch buckets", shape.nbuckets,
									sizeof(CbBucket));
	bucket_links = cb_pool_array("cache_batch free buckets", shape.nbuckets,
								 sizeof(cb_atomic32));
	cb_pool_sets = cb_pool_array("cache_batch bucket sets", shape.nsets,
								 sizeof(CbBucketSet));
	if (!IsUnderPostmaster)
		cb_pool_init(&shape, data, chunk_links, bucket_links);
	cb_set_shmem_startup(shape.nsets);
	LWLockRelease(AddinShmemInitLock);
	cb_entry_cache_shmem_startup(cb_pool_size_bytes());

	tranche = cb_pool->lock_tranche;
	LWLockRegisterTranche(tranche, "CacheBatchTable");
	LWLockRegisterTranche(tranche + 1, "CacheBatchBucketSet");
	LWLockRegisterTranche(tranche + 2, "CacheBatchBucket");
	LWLockRegisterTranche(tranche + 3, "CacheBatchPublish");
}

/*
 * Is it time to flush even buckets that are not full?  This and the two that
 * follow are hints, taken without a lock; the pool exists.
 */
bool
cb_pool_is_low(void)
{
	return cb_freelist_count(&cb_pool->free_chunks) <
		cb_pool->nchunks / CB_POOL_LOW_PART;
}

/* ... and for those who fill it to help the workers? */
bool
cb_pool_is_very_low(void)
{
	return cb_freelist_count(&cb_pool->free_chunks) <
		cb_pool->nchunks / CB_POOL_VERY_LOW_PART;
}

/* ... and will single entries find no room soon? */
bool
cb_pool_is_nearly_full(void)
{
	return cb_freelist_count(&cb_pool->free_chunks) <
		Max(cb_pool->nchunks / CB_POOL_LAST_PART, CB_POOL_LAST_MIN);
}

/*
 * The number of an empty chunk, held for one list, which the caller puts it
 * into; CB_NONE: no room.  Called under that bucket's lock: waits for nothing
 * and cannot fail.
 */
uint32
cb_pool_open_chunk(void)
{
	uint32		number = cb_freelist_pop(&cb_pool->free_chunks);

	if (number == CB_FREELIST_NONE)
		return CB_NONE;
	cb_chunk_open(&cb_pool_chunks[number].chunk);
	cb_filter_clear(cb_pool_filter(number), cb_pool->filter_lines);
	cb_pool_chunks[number].minpos = 0;
	cb_pool_chunks[number].nlists = 1;
	cb_pool_chunks[number].moved = 0;
	cb_pool_chunks[number].is_directory = false;
	cb_store_relaxed(&cb_pool_chunks[number].passed, 0);
	return number;
}

/*
 * Called by whoever gave up the last hold; the chunk is RETIRED.  With a shared
 * component's directory its members go.  Waits for nothing.
 */
void
cb_pool_free_chunk(CbPoolChunk *chunk)
{
	if (chunk->is_directory)
		cb_directory_free_members(chunk);
	cb_chunk_set_state(&chunk->chunk, CB_CHUNK_FREE);
	cb_freelist_push(&cb_pool->free_chunks, chunk->number);
}

/*
 * How much of the pool the bucket's index has, judged by this bucket: the chunks
 * it would hold if all its buckets were as full.  That, not how full one bucket
 * is, says how many entries a flush brings to each leaf.
 */
static uint32
cb_pool_weigh_bucket(const CbBucket *bucket)
{
	uint32		set = bucket->set;

	return set == CB_NONE ? 0 : bucket->nchunks * cb_pool_sets[set].nbuckets;
}

/*
 * The bucket to flush if the pool is low, of any index: in an index the fullest
 * one, among indexes that of the one which holds most, or those with few buckets
 * would be left with fewer and fewer chunks.  Not one that is asked to be flushed
 * already, or that has failed, until its time has come; NULL if there is none.
 * Looks without locks: a hint.  The next call in this process begins to look
 * behind the one that was found.
 */
CbBucket *
cb_pool_heaviest_bucket(void)
{
	static uint32 start = 0;
	CbBucket   *heaviest = NULL;
	uint32		most = 0;

	for (uint32 i = 0; i < cb_pool->nbuckets; i++)
	{
		CbBucket   *bucket = &cb_pool_buckets[(start + i) % cb_pool->nbuckets];
		uint32		weight = cb_pool_weigh_bucket(bucket);

		if (weight > most && cb_load_relaxed(&bucket->queued) == 0 &&
			!cb_failing_waits(&bucket->failing))
		{
			heaviest = bucket;
			most = weight;
		}
	}
	start = heaviest ? heaviest->number + 1 : 0;
	return heaviest;
}
