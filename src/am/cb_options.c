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
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "commands/defrem.h"
#include "rel/cb_key.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static relopt_kind cb_relopt_kind;

/* the words that the server takes for its own such options */
static relopt_enum_elt_def cb_buffered_values[] = {
	{"auto", CB_BUFFERED_AUTO},
	{"on", CB_BUFFERED_ON},
	{"off", CB_BUFFERED_OFF},
	{"true", CB_BUFFERED_ON},
	{"false", CB_BUFFERED_OFF},
	{"yes", CB_BUFFERED_ON},
	{"no", CB_BUFFERED_OFF},
	{"1", CB_BUFFERED_ON},
	{"0", CB_BUFFERED_OFF},
	{NULL}
};

static void
cb_options_check_threshold(const char *option, const char *value)
{
	int64		unused;

	if (value != NULL && !cb_guc_parse_threshold(value, &unused))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for option \"%s\": \"%s\"",
						option, value),
				 errhint("It is \"off\", a size such as 64MB, or a percentage of shared_buffers such as 25%%.")));
}

static void
cb_options_check_cold(const char *value)
{
	cb_options_check_threshold("cold_threshold", value);
}

static void
cb_options_check_spill(const char *value)
{
	cb_options_check_threshold("spill_threshold", value);
}

/*
 * Defines the storage parameters, once, at load.  "buffered" is changed under
 * the strongest lock, so that no scan and no insertion runs with the old
 * value.
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
	add_enum_reloption(cb_relopt_kind, "buffered",
					   "Collects new entries in batches; if off, each statement's entries go straight to the tree",
					   cb_buffered_values, CB_BUFFERED_AUTO,
					   gettext_noop("Valid values are \"on\", \"off\", and \"auto\"."),
					   AccessExclusiveLock);
	add_bool_reloption(cb_relopt_kind, "pack_leaves",
					   "Stores the entries of full leaves in a compressed form; if off, leaves that are written anew are plain",
					   true, ShareUpdateExclusiveLock);
	add_string_reloption(cb_relopt_kind, "cold_threshold",
						 "Size of the index beyond which workers pack its coldest leaves densely",
						 NULL, cb_options_check_cold,
						 ShareUpdateExclusiveLock);
	add_string_reloption(cb_relopt_kind, "spill_threshold",
						 "Size of the index beyond which flushed buckets may become range buffers",
						 NULL, cb_options_check_spill,
						 ShareUpdateExclusiveLock);
}

/*
 * amoptions: parses the storage parameters into a palloc'd CbOptions.
 * validate: raise an error for a value that is not allowed.
 */
bytea *
cb_am_options(Datum reloptions, bool validate)
{
	static const relopt_parse_elt elements[] = {
		{"fillfactor", RELOPT_TYPE_INT, offsetof(CbOptions, fillfactor)},
		{"deduplicate_items", RELOPT_TYPE_BOOL,
		offsetof(CbOptions, deduplicate_items)},
		{"buffered", RELOPT_TYPE_ENUM, offsetof(CbOptions, buffered)},
		{"pack_leaves", RELOPT_TYPE_BOOL, offsetof(CbOptions, pack_leaves)},
		{"cold_threshold", RELOPT_TYPE_STRING,
		offsetof(CbOptions, cold_threshold)},
		{"spill_threshold", RELOPT_TYPE_STRING,
		offsetof(CbOptions, spill_threshold)},
	};

	return (bytea *) build_reloptions(reloptions, validate, cb_relopt_kind,
									  sizeof(CbOptions),
									  elements, lengthof(elements));
}

static Oid
cb_options_opclass(Relation index, int column)
{
	bool		isnull;
	Datum		datum;

	datum = SysCacheGetAttr(INDEXRELID, index->rd_indextuple,
							Anum_pg_index_indclass, &isnull);
	Assert(!isnull);
	return ((oidvector *) DatumGetPointer(datum))->values[column];
}

/* for messages */
static char *
cb_options_opclass_name(Oid opclass)
{
	HeapTuple	tuple;
	char	   *name;

	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclass);
	name = pstrdup(NameStr(((Form_pg_opclass) GETSTRUCT(tuple))->opcname));
	ReleaseSysCache(tuple);

	return name;
}

/*
 * The pattern classes order by bytes, but the "=" in them follows the column's
 * collation.  With a nondeterministic one the two contradict each other.  The
 * server refuses that for its own btree classes, by their OIDs; here they are
 * told by their comparison functions, which finds them whatever their names.
 */
static void
cb_options_check_collation(Relation index, int column)
{
	Oid			collation = index->rd_indcollation[column];
	RegProcedure compare = index_getprocid(index, column + 1, BTORDER_PROC);

	if ((compare == F_BTTEXT_PATTERN_CMP ||
		 compare == F_BTBPCHAR_PATTERN_CMP) &&
		OidIsValid(collation) && !get_collation_isdeterministic(collation))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("nondeterministic collations are not supported for operator class \"%s\"",
						cb_options_opclass_name(cb_options_opclass(index,
																   column)))));
}

/*
 * Sorting, and all that the planner knows of sort orders, goes by the btree
 * family of "<", so it must be one there, too.
 */
static void
cb_options_check_order(Relation index, int column)
{
	Oid			type = index->rd_opcintype[column];
	Oid			less = get_opfamily_member(index->rd_opfamily[column],
										   type, type, BTLessStrategyNumber);

	if (!OidIsValid(less) ||
		cb_validate_btree_families(less, BTLessStrategyNumber, type, type) == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("operator class \"%s\" does not agree with a btree operator class",
						cb_options_opclass_name(cb_options_opclass(index,
																   column))),
				 errhint("amvalidate() tells what is wrong with it.")));
}

/*
 * A type of an extension that converts to one of the server's, as citext does
 * to text, gets the other's class by default until its own was adopted.  Such
 * an index is sound, but no query on the column would use it.
 */
static void
cb_options_check_default(Relation index, int column)
{
	Oid			type = TupleDescAttr(RelationGetDescr(index), column)->atttypid;
	Oid			ours = cb_options_opclass(index, column);
	Oid			btree;

	if (ours != GetDefaultOpClass(type, index->rd_rel->relam))
		return;					/* the user's choice */
	btree = GetDefaultOpClass(type, BTREE_AM_OID);
	if (OidIsValid(btree) &&
		get_opclass_input_type(btree) != get_opclass_input_type(ours))
		ereport(WARNING,
				(errmsg("column %d of index \"%s\" has operator class \"%s\", but a btree index would have \"%s\"",
						column + 1, RelationGetRelationName(index),
						cb_options_opclass_name(ours),
						cb_options_opclass_name(btree)),
				 errhint("Call cache_batch_adopt_operator_classes(), and create the index again.")));
}

/*
 * Says that an index will have no buckets as its comparisons may fail, which
 * the user may know better.  Once, when it is created: not for each partition,
 * and not when it is built again.
 */
static void
cb_options_report_partial(Relation index)
{
	CbOptions  *options = (CbOptions *) index->rd_options;
	int			column = cb_key_find_partial(index);

	if (column == 0 ||
		(options != NULL && options->buffered != CB_BUFFERED_AUTO) ||
		index->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		index->rd_rel->relispartition ||
		ReindexIsProcessingIndex(RelationGetRelid(index)))
		return;
	ereport(NOTICE,
			(errmsg("index \"%s\" is not buffered, as comparing values of its column %d may fail",
					RelationGetRelationName(index), column),
			 errhint("If all its values can be compared, set the index's storage parameter \"buffered\" to on.")));
}

/*
 * Refuses columns that would give wrong answers, and warns of one that would
 * be of no use; to be called by build.  Reads catalogs, so within a
 * transaction; raises an error for a column that is refused.
 */
void
cb_check_index_columns(Relation index)
{
	int			column;

	for (column = 0; column < IndexRelationGetNumberOfKeyAttributes(index);
		 column++)
	{
		cb_options_check_collation(index, column);
		cb_options_check_order(index, column);
		cb_options_check_default(index, column);
	}
	cb_options_report_partial(index);
}
