/*-------------------------------------------------------------------------
 *
 * cb_bulkdel.h
 *	  How many bulk deletes an index has had.
 *
 * The server gives a TID away only after a bulk delete of each index of the
 * table, which takes its entries out.  Before that, all levels above the tree
 * are emptied into it.  So the TID of an entry that was in one of those still
 * stands for the same row if no bulk delete has been counted since.
 *
 * Counted in shared memory, in slots that indexes may share: then one is taken
 * for the other's, which does no harm.  Redo of their records counts nothing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_BULKDEL_H
#define CB_BULKDEL_H

#include "postgres.h"

#include "base/cb_compat.h"

extern void cb_bulkdel_shmem_request(void);
extern void cb_bulkdel_shmem_startup(void);

/* The levels above the tree have been emptied, and nothing is deleted yet. */
extern void cb_bulkdel_begin(Relation index);

/* Bulk deletes since the server's start. */
extern uint64 cb_bulkdel_count(Relation index);

#endif							/* CB_BULKDEL_H */
