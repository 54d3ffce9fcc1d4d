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

/* cb_sqlfn.c */
extern bool cb_sqlfn_is_ours(Relation rel);
extern Relation cb_sqlfn_open_index(Oid indexoid, LOCKMODE lockmode);
extern Relation cb_sqlfn_open_own_index(Oid indexoid, LOCKMODE lockmode);
extern Relation cb_sqlfn_open_own_with_table(Oid indexoid, LOCKMODE lockmode,
											 LOCKMODE table_lockmode,
											 Relation *table);
extern void cb_sqlfn_check_primary(const char *function);

#endif							/* CB_SQLFN_H */
