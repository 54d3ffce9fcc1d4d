/*-------------------------------------------------------------------------
 *
 * cb_sqlfn.h
 *	  What the SQL-callable functions share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_SQLFN_H
#define CB_SQLFN_H

#include "base/cb_base.h"
#include "storage/lock.h"

/*
 * Opens an index, or raises an error if the relation is not a cachebatch
 * index that this session can read, or if the library was not preloaded.
 */
extern Relation cb_sqlfn_open_index(Oid indexoid, LOCKMODE lockmode);

/* Raises an error if recovery is in progress; names the function. */
extern void cb_sqlfn_check_primary(const char *function);

/*
 * Raises an error if the relation is not the user's.  Before a lock is taken, as
 * one that is waited for keeps others away, too.
 */
extern void cb_sqlfn_check_owner(Oid oid);

/* Opens an index of the user's. */
extern Relation cb_sqlfn_open_own_index(Oid indexoid, LOCKMODE lockmode);

#endif							/* CB_SQLFN_H */
