/*-------------------------------------------------------------------------
 *
 * cb_counts.h
 *	  What has happened to an index, counted for readers.
 *
 * A scan that finds a count as it was knows, without reading a page, that
 * nothing of that kind has happened since:
 *
 *	journal		replay: entries appended, or the tail moved
 *	removals	entries may have been taken out of which the row can be gone.  A
 *				bulk delete counts when it begins, replay each record that takes
 *				entries out of a tier, when it is done.  The server gives a TID
 *				away only after a bulk delete of each index of the table, and
 *				before that all tiers above the tree are emptied into it; so the
 *				TID of an entry that was met still stands for the same row (I8)
 *	reuses		replay: deleted pages of the tree are about to be used again
 *
 * Counted by file, in slots that indexes may share: then one is taken for the
 * other's, which does no harm.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_COUNTS_H
#define CB_COUNTS_H

#include "postgres.h"

#include "base/cb_compat.h"

/* sets of them are what a record counts */
typedef enum CbCount
{
	CB_COUNT_NOTHING = 0,
	CB_COUNT_JOURNAL = 1,
	CB_COUNT_REMOVALS = 2,
	CB_COUNT_REUSES = 4
} CbCount;

extern void cb_counts_shmem_request(void);
extern void cb_counts_shmem_startup(void);
extern void cb_counts_add(Oid file, int counts);
extern uint64 cb_counts_journal(Relation index);
extern uint64 cb_counts_removals(Relation index);
extern uint64 cb_counts_reuses(Relation index);

#endif							/* CB_COUNTS_H */
