/*-------------------------------------------------------------------------
 *
 * cb_options.c
 *	  Storage parameters of an index, and checks of its columns.
 *
 * The kind of storage parameters exists in every backend that has loaded the
 * library, preloaded or not: without it an index with options could not even
 * be opened to be dropped.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/reloptions.h"
#include "am/cb_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static relopt_kind cb_relopt_kind;

/*
 * "buffered" is changed under the strongest lock, so that no scan and no
 * insertion runs with the old value.
 */
void
cb_options_init(void)
{
	cb_relopt_kind = add_reloption_kind();

	add_int_reloption(cb_relopt_kind, "fillfactor",
					  "Packs the leaves of a cachebatch index only to this percentage when it is built",
					  CB_DEFAULT_FILLFACTOR, CB_MIN_FILLFACTOR, 100,
					  ShareUpdateExclusiveLock);
	add_bool_reloption(cb_relopt_kind, "deduplicate_items",
					   "Accepted so that the DDL of btree indexes works unchanged; has no effect on a cachebatch index",
					   true, ShareUpdateExclusiveLock);
	add_bool_reloption(cb_relopt_kind, "buffered",
					   "Collects new entries in batches; if off, each statement's entries go straight to the tree",
					   true, AccessExclusiveLock);
}

bytea *
cb_am_options(Datum reloptions, bool validate)
{
	static const relopt_parse_elt elements[] = {
		{"fillfactor", RELOPT_TYPE_INT, offsetof(CbOptions, fillfactor)},
		{"deduplicate_items", RELOPT_TYPE_BOOL,
		offsetof(CbOptions, deduplicate_items)},
		{"buffered", RELOPT_TYPE_BOOL, offsetof(CbOptions, buffered)},
	};

	return (bytea *) build_reloptions(reloptions, validate, cb_relopt_kind,
									  sizeof(CbOptions),
									  elements, lengthof(elements));
}

/* name of the operator class of a key column, for messages */
static char *
cb_options_opclass_name(Relation index, int column)
{
	bool		isnull;
	Datum		datum;
	oidvector  *classes;
	HeapTuple	tuple;
	char	   *name;

	datum = SysCacheGetAttr(INDEXRELID, index->rd_indextuple,
							Anum_pg_index_indclass, &isnull);
	Assert(!isnull);
	classes = (oidvector *) DatumGetPointer(datum);

	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(classes->values[column]));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u",
			 classes->values[column]);
	name = pstrdup(NameStr(((Form_pg_opclass) GETSTRUCT(tuple))->opcname));
	ReleaseSysCache(tuple);

	return name;
}

/*
 * Refuses columns that would give wrong answers; to be called by build.
 *
 * The pattern classes order by bytes, but the "=" in them follows the column's
 * collation.  With a nondeterministic one the two contradict each other.  The
 * server refuses that for its own btree classes, by their OIDs; here they are
 * told by their comparison functions, which finds them whatever their names.
 */
void
cb_check_index_columns(Relation index)
{
	int			column;

	for (column = 0; column < IndexRelationGetNumberOfKeyAttributes(index);
		 column++)
	{
		Oid			collation = index->rd_indcollation[column];
		RegProcedure compare;

		if (!OidIsValid(collation) || get_collation_isdeterministic(collation))
			continue;

		compare = index_getprocid(index, column + 1, BTORDER_PROC);
		if (compare == F_BTTEXT_PATTERN_CMP ||
			compare == F_BTBPCHAR_PATTERN_CMP)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("nondeterministic collations are not supported for operator class \"%s\"",
							cb_options_opclass_name(index, column))));
	}
}
