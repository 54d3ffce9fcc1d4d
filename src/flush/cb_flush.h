/*-------------------------------------------------------------------------
 *
 * cb_flush.h
 *	  Moving entries into the tree in sorted batches.
 *
 * A sweep moves what lies in the journal; a flush moves the chunks of one
 * bucket.  Callers of either hold RowExclusiveLock or more on the index and no
 * LWLock, and own no chunk.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_FLUSH_H
#define CB_FLUSH_H

#include "bucket/cb_bucket.h"

/* why it ran: names as in cache_batch_stat_indexes */
typedef enum CbFlushCause
{
	CB_FLUSH_LIMIT,				/* the journal was past its limit */
	CB_FLUSH_REQUEST,			/* cache_batch_flush() */
	CB_FLUSH_VACUUM,
	CB_FLUSH_FULL,				/* the bucket was full */
	CB_FLUSH_PRESSURE,			/* the pool was nearly full */
	CB_FLUSH_DELAY,				/* its entries were older than max_delay */
	CB_FLUSH_HELP,				/* an insertion found no room */
	CB_FLUSH_READS				/* scans had to read its range buffers */
} CbFlushCause;

/* how long one transaction of a worker goes on */
#define CB_WORKER_SLICE_MS		50

/* ---------- cb_sweep.c ---------- */

/* Moves the journal into the tree, up to where the buckets' entries begin. */
extern bool cb_flush_sweep(Relation rel, CbFlushCause cause, bool wait);

/* Moves what lay in the journal before the index got its buckets. */
extern void cb_flush_before(Relation rel, CbBucketSet *set);

/* The same by a worker, some at a time; true: come again at once. */
extern bool cb_flush_some_before(Relation rel, CbBucketSet *set);

/* Is there anything to be moved?  A hint. */
static inline bool
cb_flush_before_is_left(const CbBucketSet *set)
{
	return cb_load_acquire(&set->tail) < set->from;
}

/* Shall a worker come for it? */
extern bool cb_flush_before_is_due(CbBucketSet *set);

/* ---------- cb_compactor.c ---------- */

/* Packs some cold leaves of an index if it is time. */
extern void cb_compactor_work(Relation rel, CbBucketSet *set);

/* Shall a worker come for it? */
extern bool cb_compactor_is_due(const CbBucketSet *set, TimestampTz now);

/* ---------- cb_flush.c ---------- */

extern void cb_flush_count(Relation rel, CbFlushCause cause, int n,
						   const CbApplyStats *stats);

/* Asks workers for cb_flush_some_before(), if that is due. */
extern void cb_flush_request_before(CbBucketSet *set);

/* Flushes a bucket of an attachment; false: there was nothing to do. */
extern bool cb_flush_bucket(Relation rel, CbBucketSet *set, uint64 attach_id,
							uint32 bucket, CbFlushCause cause);

/* Makes room by a flush; false: others are at all that there is. */
extern bool cb_flush_help(Relation rel, CbBucketSet *set, uint64 attach_id);

/* Moves all that was published before the call into the tree or into runs; waits. */
extern void cb_flush_drain(Relation rel, CbFlushCause cause);

/* Merges the index's range buffers into its tree; false: they were empty. */
extern bool cb_flush_ranges(Relation rel);

/* The same for those that have keys between the bounds. */
extern bool cb_flush_ranges_between(Relation rel, const CbBound *lo,
									const CbBound *hi);

/* Counts runs that a scan had to read; asks for a merge once that would pay. */
extern void cb_flush_note_run_reads(const CbBucketView *view,
									BlockNumber range, int nruns,
									int64 nentries);

/* Flushes the failing bucket that has refused entries, if it is time to. */
extern bool cb_flush_retry(Relation rel, const CbPublishResult *result);

/* Has a publication made flushes due? */
extern bool cb_flush_is_due(const CbPublishResult *result);

/* Flushes what publications at commit could not, where there are no workers. */
extern void cb_flush_overdue(Relation rel);

/* Asks workers for the flushes that are due, or does them. */
extern void cb_flush_after_publish(Relation rel, const CbPublishResult *result,
								   bool large, bool may_work);

#endif							/* CB_FLUSH_H */
