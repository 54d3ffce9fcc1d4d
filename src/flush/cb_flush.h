/*-------------------------------------------------------------------------
 *
 * cb_flush.h
 *	  Moving the journal's entries into the tree in one sorted sweep.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_FLUSH_H
#define CB_FLUSH_H

#include "journal/cb_journal.h"

/* why a sweep ran: names as in cache_batch_stat_indexes */
typedef enum CbFlushCause
{
	CB_FLUSH_LIMIT,				/* the journal was past its limit */
	CB_FLUSH_REQUEST,			/* cache_batch_flush() */
	CB_FLUSH_VACUUM
} CbFlushCause;

#define CB_NUM_FLUSH_CAUSES 3

/*
 * Empties the journal up to its head at the time of the call.  wait: wait for
 * another sweep of the index to end first, else return false if there is one.
 * The caller holds RowExclusiveLock or more on the index and no LWLock.
 */
extern bool cb_flush_sweep(Relation rel, CbFlushCause cause, bool wait);

#endif							/* CB_FLUSH_H */
