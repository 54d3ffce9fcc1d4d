/*-------------------------------------------------------------------------
 *
 * cb_compat.h
 *	  The one place for differences between server versions.
 *
 * Each entry names the version that made the difference and the reason.
 *
 * nbtree.h is included here because cache_batch uses, and does not copy,
 * what the server already has and exports there: the pivot tuple format and
 * the registry of vacuum cycle ids.  Neither looks at a page.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_COMPAT_H
#define CB_COMPAT_H

#include "postgres.h"

#include "access/nbtree.h"
#include "utils/rel.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 160000
#error "cache_batch needs PostgreSQL 15"
#endif

#endif							/* CB_COMPAT_H */
