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

/* ---------- cb_sweep.c ---------- */

/*
 * Moves the journal up to its head at the time of the call, or up to limit,
 * into the tree, unless it gives way to one who waits for its locks.  wait: wait
 * for another sweep of the index to end first, else return false if there is
 * one.
 */
extern bool cb_flush_sweep(Relation rel, CbFlushCause cause, bool wait);

/*
 * Moves what lay in the journal before the index got its buckets, unless
 * somebody else is at it.  skip: what the tree does not take goes to the buckets
 * (in subtransactions: not while one ends).
 */
extern void cb_flush_before(Relation rel, CbDesc *desc, bool skip);

/* ---------- cb_cooler.c ---------- */

/*
 * Packs some cold leaves of an index, if it is larger than it should be and it
 * is time; by a worker, with the index locked for writing and a snapshot.
 */
extern void cb_cooler_run(Relation rel, CbDesc *desc);

/* Shall a worker come for it?  A look without locks. */
extern bool cb_cooler_is_due(const CbDesc *desc, TimestampTz now);

/* ---------- cb_flush.c ---------- */

/* Counts a sweep or a flush that has moved n entries, and what it did to the tree. */
extern void cb_flush_count(Relation rel, CbFlushCause cause, int n,
						   const CbApplyStats *stats);

/* Asks workers for that; does nothing if it is done, or there are none. */
extern void cb_flush_request_before(CbDesc *desc);

/*
 * Flushes a bucket of an attachment.  False if there was nothing to do, the
 * attachment is gone, or it gave way to one who waits for its locks.
 */
extern bool cb_flush_bucket(Relation rel, CbDesc *desc, uint64 attach_id,
							uint32 bucket, CbFlushCause cause);

/*
 * Makes room: flushes the attachment's fullest bucket.  False: others are
 * flushing all that there is, but what fails.
 */
extern bool cb_flush_help(Relation rel, CbDesc *desc, uint64 attach_id);

/*
 * Moves everything that was published before the call into the tree, and
 * truncates the journal so far.  Waits for others who are at it.
 */
extern void cb_flush_drain(Relation rel, CbFlushCause cause);

/*
 * Merges the range buffers that the index has into its tree, and waits for
 * others who are at it.  Returns whether there were entries in them.
 */
extern bool cb_flush_ranges(Relation rel);

/* The same for those that have keys between the cuts. */
extern bool cb_flush_ranges_between(Relation rel, const CbCut *lo,
									const CbCut *hi);

/*
 * A scan in the view's bucket had to read so many runs of a range page's range,
 * which hold nentries: asks for a merge once that would have cost less.
 */
extern void cb_flush_note_run_reads(const CbBucketView *view,
									BlockNumber range, int nruns,
									int64 nentries);

/*
 * Flushes the failing bucket that has refused entries, if it is time to.  False:
 * it is not, or there was nothing to do.
 */
extern bool cb_flush_retry(Relation rel, const CbPublishResult *result);

/* Has a publication made flushes due? */
extern bool cb_flush_is_due(const CbPublishResult *result);

/*
 * Flushes the fullest bucket, and makes the journal shorter if it is too long:
 * publications could not, as they were at commit, and there are no workers.
 */
extern void cb_flush_overdue(Relation rel);

/*
 * Asks workers for them.  may_work: does them itself if there are no workers;
 * a large batch flushes a bucket, too, if the pool is about to run out.
 */
extern void cb_flush_after_publish(Relation rel, const CbPublishResult *result,
								   bool large, bool may_work);

#endif							/* CB_FLUSH_H */
