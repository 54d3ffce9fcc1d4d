/*-------------------------------------------------------------------------
 *
 * cb_waiter.h
 *	  Does somebody wait for a lock that this process holds?
 *
 * A worker says which locks of relations it holds, and looks between two leaves
 * whether another process waits for one of them, or for the end of its
 * transaction, as CREATE INDEX CONCURRENTLY does.  If so, it ends what it does,
 * and its transaction, at the next place where that can be gone on with.  The
 * lock manager grants the lock before the worker can ask again, and a worker
 * asks only for what is free; so nobody starves.  No look is taken while
 * entries are sorted, components of a shared copy are merged, or a run or a
 * leaf is written.  Other processes say nothing, and so never find that
 * somebody waits; they can be cancelled at each leaf.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_WAITER_H
#define CB_WAITER_H

#include "storage/lockdefs.h"

/* This process gives way, until cb_waiter_end(). */
extern void cb_waiter_begin(Oid indexoid);
extern void cb_waiter_end(void);

/* Does it give way? */
extern bool cb_waiter_is_watching(void);

/* Gives way at that table's lock, too; false: somebody waits already. */
extern bool cb_waiter_watch_table(Oid heapoid, LOCKMODE mode);
extern void cb_waiter_forget_table(void);

/* Does somebody wait? */
extern bool cb_waiter_is_there(void);

#endif							/* CB_WAITER_H */
