/*-------------------------------------------------------------------------
 *
 * cb_waiter.h
 *	  Does somebody wait for a lock that this process holds?
 *
 * A worker says which locks of relations it holds, and looks between two leaves
 * whether another process waits for one of them, or for the end of its
 * transaction, as CREATE INDEX CONCURRENTLY does.  If so, it ends what it does
 * at the next place where that can be gone on with.  Other processes say nothing,
 * and so never find that somebody waits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_WAITER_H
#define CB_WAITER_H

#include "storage/lockdefs.h"

/*
 * This process gives way from now on, until cb_waiter_end(), which is to be
 * called when its transaction has ended.  It holds RowExclusiveLock on the index.
 */
extern void cb_waiter_begin(Oid indexoid);
extern void cb_waiter_end(void);

/* Does it give way? */
extern bool cb_waiter_is_watching(void);

/*
 * If it does: to those as well who wait for this lock on the index's table, which
 * it holds, until it has said as often that it does not any more.  False: it
 * should not hold it, as somebody waits already.
 */
extern bool cb_waiter_watch_table(Oid heapoid, LOCKMODE mode);
extern void cb_waiter_forget_table(void);

/*
 * Does somebody wait?  Looks every few milliseconds; once found, it is so to the
 * transaction's end.  May take locks of the lock manager.
 */
extern bool cb_waiter_is_there(void);

#endif							/* CB_WAITER_H */
