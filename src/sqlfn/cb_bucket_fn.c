/*-------------------------------------------------------------------------
 *
 * cb_bucket_fn.c
 *	  What the pool holds, as SQL functions below the statistics views.
 *
 * Everything is copied under the locks that cb_bucket.h names, one bucket set
 * at a time, into memory allocated before, and formatted when they are free
 * again.  What two rows say need not be of the same moment.
 *
 * A chunk whose bucket was split is in several lists; figures of a whole index
 * count it once.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "base/cb_clock.h"
#include "bucket/cb_bucket.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "sqlfn/cb_sqlfn.h"
#include "utils/acl.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(cache_batch_stat_get_pool);
PG_FUNCTION_INFO_V1(cache_batch_stat_get_bucket_sets);
PG_FUNCTION_INFO_V1(cache_batch_bucket_list);

/* what chunks hold */
typedef struct CbHeld
{
	uint32		chunks;
	uint64		entries;
	uint64		bytes;			/* of entries and their items */
} CbHeld;

typedef struct CbSetRow
{
	RelFileLocator key;
	Oid			indexoid;
	bool		attached;
	uint32		nbuckets;
	CbHeld		held;
	CbHeld		copied;			/* by the shared copy */
	TimestampTz oldest;			/* 0: no chunk */
	CbPos		from;
	CbPos		head;
	CbPos		tail;
	TimestampTz attached_at;
	uint32		failing_buckets;
	char		error[CB_ERROR_LENGTH];
} CbSetRow;

typedef struct CbBucketRow
{
	uint32		number;
	CbHeld		held;
	uint64		sorted;
	uint32		flushing;		/* chunks that have an owner */
	bool		queued;
	uint32		failures;
	TimestampTz since;			/* 0: no chunk */
} CbBucketRow;

/* The chunk is in a list of a bucket that is locked. */
static void
cb_bucket_fn_add_chunk(CbHeld *held, const CbPoolChunk *chunk)
{
	uint32		count = cb_chunk_count(&chunk->chunk);

	held->chunks++;
	held->entries += count;
	held->bytes += chunk->chunk.used + (uint64) count * sizeof(CbItem);
}

/* ---------- cache_batch_stat_get_pool ---------- */

static void
cb_bucket_fn_count_sets(uint32 *used, uint32 *attached)
{
	*used = *attached = 0;
	LWLockAcquire(&cb_pool->table_lock, LW_SHARED);
	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		CbBucketSetState state = cb_pool_sets[i].state;

		*used += state != CB_SET_FREE;
		*attached += state == CB_SET_ATTACHED;
	}
	LWLockRelease(&cb_pool->table_lock);
}

/*
 * cache_batch_stat_get_pool(OUT ...): one row; zeros if there is no pool.  The
 * figures are not of one moment: only the bucket sets are counted under a
 * lock.
 */
Datum
cache_batch_stat_get_pool(PG_FUNCTION_ARGS)
{
	Datum		values[10];
	bool		nulls[10] = {false};
	uint64		figures[10] = {0};
	TupleDesc	tupdesc;

	cb_require_preload();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	if (cb_pool != NULL)
	{
		uint32		used;
		uint32		attached;

		cb_bucket_fn_count_sets(&used, &attached);
		figures[0] = (uint64) cb_pool->nchunks * cb_pool->chunk_size;
		figures[1] = cb_pool->chunk_size;
		figures[2] = cb_pool->nchunks;
		figures[3] = cb_freelist_count(&cb_pool->free_chunks);
		figures[4] = cb_pool->nbuckets;
		figures[5] = cb_freelist_count(&cb_pool->free_buckets);
		figures[6] = cb_pool->nsets;
		figures[7] = used;
		figures[8] = attached;
		figures[9] = cb_load_relaxed(&cb_pool->no_room);
	}
	for (int i = 0; i < lengthof(values); i++)
		values[i] = Int64GetDatum((int64) figures[i]);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}

/* ---------- cache_batch_stat_get_bucket_sets ---------- */

/* set->lock is held; seen[] says by which bucket set a chunk was counted. */
static void
cb_bucket_fn_sum_bucket(CbSetRow *row, const CbBucketSet *set, CbBucket *bucket,
						uint32 *seen)
{
	row->failing_buckets += cb_bucket_is_failing(bucket);
	LWLockAcquire(&bucket->lock, LW_SHARED);
	for (uint32 i = 0; i < bucket->nchunks; i++)
	{
		uint32		number = bucket->chunks[i];

		if (seen[number] == set->number + 1)
			continue;
		seen[number] = set->number + 1;
		cb_bucket_fn_add_chunk(&row->held, &cb_pool_chunks[number]);
	}
	if (bucket->nchunks > 0 && (row->oldest == 0 || bucket->since < row->oldest))
		row->oldest = bucket->since;
	LWLockRelease(&bucket->lock);
}

/* set->lock is held. */
static void
cb_bucket_fn_sum_copy(CbSetRow *row, const CbSharedCopy *copy)
{
	for (uint32 i = 0; i < copy->ncomponents; i++)
	{
		const CbDirectory *component = cb_directory(copy->components[i]);

		for (uint32 j = 0; j < component->nmembers; j++)
			cb_bucket_fn_add_chunk(&row->copied, &cb_pool_chunks[component->members[j].chunk]);
	}
}

/* False: it neither is attached nor has a shared copy of the journal. */
static bool
cb_bucket_fn_copy_set(CbBucketSet *set, CbSetRow *row, uint32 *seen)
{
	memset(row, 0, sizeof(CbSetRow));
	LWLockAcquire(&set->publish, LW_EXCLUSIVE);
	row->head = set->head;
	cb_set_share(set);
	LWLockRelease(&set->publish);
	row->attached = set->state == CB_SET_ATTACHED;
	if (!row->attached && (set->state == CB_SET_FREE || set->copy.upto == 0))
	{
		LWLockRelease(&set->lock);
		return false;
	}
	row->key = set->key;
	row->indexoid = set->indexoid;
	row->nbuckets = set->nbuckets;
	row->from = set->from;
	row->attached_at = set->attached_at;

	row->tail = cb_load_acquire(&set->tail);
	if (!row->attached)
		row->head = set->copy.upto;
	strlcpy(row->error, set->error, CB_ERROR_LENGTH);

	cb_bucket_fn_sum_copy(row, &set->copy);
	for (uint32 i = 0; i < set->nbuckets; i++)
		cb_bucket_fn_sum_bucket(row, set, &cb_pool_buckets[set->buckets[i]],
								seen);
	LWLockRelease(&set->lock);
	return true;
}

static void
cb_bucket_fn_put_set(const CbSetRow *row, bool show_error,
					 ReturnSetInfo *rsinfo)
{
	Datum		values[15] = {0};
	bool		nulls[15] = {false};

	values[0] = ObjectIdGetDatum(row->key.dbOid);
	values[1] = ObjectIdGetDatum(row->indexoid);
	values[2] = ObjectIdGetDatum(row->key.relNumber);
	values[3] = Int32GetDatum((int32) row->nbuckets);
	values[4] = Int32GetDatum((int32) row->held.chunks);
	values[5] = Int64GetDatum((int64) row->held.entries);
	values[6] = Int64GetDatum((int64) row->held.bytes);
	values[7] = TimestampTzGetDatum(cb_clock_to_timestamptz(row->oldest));
	nulls[7] = row->oldest == 0;
	/* positions count bytes; the tail may have moved past a head read before */
	values[8] = Int64GetDatum((int64) (Max(row->head, row->tail) - row->tail));
	values[9] = BoolGetDatum(row->tail >= row->from);
	values[10] = TimestampTzGetDatum(cb_clock_to_timestamptz(row->attached_at));
	nulls[9] = nulls[10] = !row->attached;
	values[11] = Int32GetDatum((int32) row->failing_buckets);
	nulls[12] = row->error[0] == '\0' || !show_error;
	if (!nulls[12])
		values[12] = CStringGetTextDatum(row->error);
	values[13] = Int64GetDatum((int64) row->copied.entries);
	values[14] = Int64GetDatum((int64) row->copied.bytes);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * cache_batch_stat_get_bucket_sets(): one row for each index that is attached,
 * or of whose journal there is a shared copy, of all databases.  What an error
 * says may quote data of a table, so it is shown to those who may read all
 * statistics.
 *
 * No index is opened.  A bucket set's publications wait for the moment in
 * which its head is read; then it and, one at a time, its buckets are locked
 * in shared mode.
 */
Datum
cache_batch_stat_get_bucket_sets(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		show_error = has_privs_of_role(GetUserId(),
											   ROLE_PG_READ_ALL_STATS);
	uint32	   *seen;

	cb_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	if (cb_pool == NULL)
		return (Datum) 0;

	seen = palloc0(cb_pool->nchunks * sizeof(uint32));
	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		CbSetRow	row;

		CHECK_FOR_INTERRUPTS();
		if (cb_bucket_fn_copy_set(&cb_pool_sets[i], &row, seen))
			cb_bucket_fn_put_set(&row, show_error, rsinfo);
	}
	pfree(seen);

	return (Datum) 0;
}

/* ---------- cache_batch_bucket_list ---------- */

static void
cb_bucket_fn_copy_bucket(CbBucket *bucket, CbBucketRow *row)
{
	memset(row, 0, sizeof(CbBucketRow));
	row->number = bucket->number;
	row->queued = cb_load_relaxed(&bucket->queued) != 0;
	row->failures = cb_load_relaxed(&bucket->failing.failures);
	LWLockAcquire(&bucket->lock, LW_SHARED);
	for (uint32 i = 0; i < bucket->nchunks; i++)
	{
		CbPoolChunk *chunk = &cb_pool_chunks[bucket->chunks[i]];

		cb_bucket_fn_add_chunk(&row->held, chunk);
		row->sorted += cb_load_relaxed(&chunk->chunk.nsorted);
		row->flushing += cb_load_relaxed(&chunk->chunk.owner) != 0;
	}
	row->since = bucket->nchunks > 0 ? bucket->since : 0;
	LWLockRelease(&bucket->lock);
}

/* Returns the number of rows, in key order; 0 if it is not attached. */
static int
cb_bucket_fn_copy_buckets(CbBucketSet *set, Relation rel, CbBucketRow *rows)
{
	int			n = 0;

	cb_set_share(set);
	if (set->state == CB_SET_ATTACHED && cb_set_is_current(set, rel))
	{
		for (uint32 i = 0; i < set->nbuckets; i++)
			cb_bucket_fn_copy_bucket(&cb_pool_buckets[set->buckets[i]],
									 &rows[n++]);
	}
	LWLockRelease(&set->lock);
	return n;
}

static void
cb_bucket_fn_put_bucket(const CbBucketRow *row, int position,
						ReturnSetInfo *rsinfo)
{
	Datum		values[10];
	bool		nulls[10] = {false};

	values[0] = Int32GetDatum(position);
	values[1] = Int32GetDatum((int32) row->number);
	values[2] = Int32GetDatum((int32) row->held.chunks);
	values[3] = Int64GetDatum((int64) row->held.entries);
	values[4] = Int64GetDatum((int64) row->held.bytes);
	values[5] = Int64GetDatum((int64) row->sorted);
	values[6] = Int32GetDatum((int32) row->flushing);
	values[7] = BoolGetDatum(row->queued);
	values[8] = TimestampTzGetDatum(cb_clock_to_timestamptz(row->since));
	nulls[8] = row->since == 0;
	values[9] = Int32GetDatum((int32) row->failures);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* cache_batch_bucket_list(index regclass): one row for each bucket */
Datum
cache_batch_bucket_list(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	CbBucketRow *rows;
	Relation	rel;
	CbBucketSet *set;
	int			n = 0;

	InitMaterializedSRF(fcinfo, 0);
	rel = cb_sqlfn_open_index(PG_GETARG_OID(0), AccessShareLock);
	rows = palloc(CB_SET_MAX_BUCKETS * sizeof(CbBucketRow));
	set = cb_set_find(rel);
	if (set != NULL)
		n = cb_bucket_fn_copy_buckets(set, rel, rows);
	for (int i = 0; i < n; i++)
		cb_bucket_fn_put_bucket(&rows[i], i + 1, rsinfo);
	pfree(rows);
	relation_close(rel, AccessShareLock);

	return (Datum) 0;
}
