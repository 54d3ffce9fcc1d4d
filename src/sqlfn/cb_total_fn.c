/*-------------------------------------------------------------------------
 *
 * cb_total_fn.c
 *	  An SQL function that tells whether an index's comparisons are trusted.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_am_d.h"
#include "fmgr.h"
#include "rel/cb_key.h"
#include "sqlfn/cb_sqlfn.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(cache_batch_comparison_is_total);

/*
 * cache_batch_comparison_is_total(index regclass): null if it is gone, or of
 * an access method that does not compare as btree does
 */
Datum
cache_batch_comparison_is_total(PG_FUNCTION_ARGS)
{
	Relation	rel = try_relation_open(PG_GETARG_OID(0), AccessShareLock);
	bool		known = false;
	bool		total = false;

	if (rel != NULL)
	{
		known = rel->rd_rel->relam == BTREE_AM_OID || cb_sqlfn_is_ours(rel);
		total = known && cb_key_find_partial(rel) == 0;
		relation_close(rel, AccessShareLock);
	}
	if (!known)
		PG_RETURN_NULL();
	PG_RETURN_BOOL(total);
}
