/*-------------------------------------------------------------------------
 *
 * cb_key_total.c
 *	  Which indexes can trust their comparisons not to fail.
 *
 * Who puts an entry into the journal, or into the delta of a packed leaf, has
 * compared it with few others.  If it cannot be compared with another one, all
 * that comes to both later fails: flushes, VACUUM, scans.  So that is for
 * indexes whose comparisons are known to be total, which is to compare all
 * values, or of which the user says so (buffered = on).  Entries of others go
 * to the tree with their statement, and an error refuses it (C12_TOTAL).  What
 * has reached other leaves by then is the dead entries of a transaction that
 * was rolled back.  Leaves are plain, so that neighbours are met.  A packed
 * one, of a time of trust, is written anew, for which its entries and the new
 * ones are merged (C12_PACKED), and cut in halves before if it stands for more
 * plain leaves than a split makes (C12_FULLPART).
 *
 * Known are functions of the server and of its contrib modules; for arrays,
 * rows and ranges those of what they are made of count as well.
 *
 * The answer holds until any relation, operator class or function changes
 * (C12_ANEW).  It may change in the middle of anything: a publication that
 * still goes to the journal was asked about before its values could have a new
 * attribute, and older entries have a null in that place, which no function
 * compares.  Entries that go to the tree at once and others do not disturb
 * each other.  Values that cannot be compared with themselves are refused from
 * the first on, as a window begins by looking for an entry.  What remains:
 * neighbours have been compared, not all pairs; a scan of all may fail where
 * btree's does not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "base/cb_base.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "rel/cb_key.h"
#include "rel/cb_rel.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

/* what the answers hang on has changed so often, but for one */
static uint64 cb_total_generation = 1;

static bool cb_total_type(Oid type);

/*
 * contrib modules that have operator classes for btree, and functions of their
 * own
 */
static bool
cb_total_is_contrib(const char *library)
{
	static const char *const libraries[] = {
		"$libdir/citext", "$libdir/cube", "$libdir/hstore", "$libdir/ltree",
		"$libdir/seg"
	};

	for (int i = 0; i < lengthof(libraries); i++)
	{
		if (strcmp(library, libraries[i]) == 0)
			return true;
	}
	return false;
}

/*
 * The server's function that a function is, under whatever name; its own OID
 * if it is a contrib module's; else InvalidOid.  Only superusers can make
 * functions that look like these.  Reads the catalog caches.
 */
static Oid
cb_total_find_function(Oid function)
{
	HeapTuple	tuple;
	Form_pg_proc proc;
	Oid			found = InvalidOid;

	if (function < FirstGenbkiObjectId)
		return function;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	if (proc->prolang == INTERNALlanguageId || proc->prolang == ClanguageId)
	{
		bool		internal = proc->prolang == INTERNALlanguageId;
		bool		isnull;
		Datum		datum = SysCacheGetAttr(PROCOID, tuple,
											internal ? Anum_pg_proc_prosrc :
											Anum_pg_proc_probin, &isnull);
		char	   *name = isnull ? pstrdup("") : TextDatumGetCString(datum);

		if (internal)
			found = fmgr_internal_function(name);
		else if (cb_total_is_contrib(name))
			found = function;
		pfree(name);
	}
	ReleaseSysCache(tuple);
	return found;
}

/* Can all rows of a composite type be compared? */
static bool
cb_total_row(Oid type)
{
	TupleDesc	tupdesc;
	bool		total = true;

	if (!type_is_rowtype(type) || type == RECORDOID)
		return false;
	tupdesc = lookup_rowtype_tupdesc(type, -1);
	for (int i = 0; i < tupdesc->natts && total; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(tupdesc, i);

		total = attr->attisdropped || cb_total_type(attr->atttypid);
	}
	ReleaseTupleDesc(tupdesc);
	return total;
}

/* Does this comparison compare all values of the type? */
static bool
cb_total_compare(Oid type, Oid compare)
{
	TypeCacheEntry *entry;

	check_stack_depth();
	type = getBaseType(type);
	compare = cb_total_find_function(compare);
	switch (compare)
	{
		case InvalidOid:
			return false;
		case F_BTARRAYCMP:
			return cb_total_type(get_element_type(type));
		case F_BTRECORDCMP:
			return cb_total_row(type);
		case F_RANGE_CMP:
		case F_MULTIRANGE_CMP:
			if (type_is_multirange(type))
				type = get_multirange_range(type);
			entry = lookup_type_cache(type, TYPECACHE_RANGE_INFO);
			return entry->rngelemtype != NULL &&
				cb_total_compare(entry->rngelemtype->type_id,
								 entry->rng_cmp_proc_finfo.fn_oid);
		default:
			return true;
	}
}

/* The same of the comparison that a type has in arrays and rows. */
static bool
cb_total_type(Oid type)
{
	return OidIsValid(type) &&
		cb_total_compare(type, lookup_type_cache(type, TYPECACHE_CMP_PROC)->cmp_proc);
}

/*
 * The first key column of an index, of btree or cachebatch, whose comparison
 * is not known to be total, counted from 1; 0: there is none.  Reads catalogs,
 * so it may wait for their locks and raise errors; no page is locked.  No
 * comparison function runs.
 */
int
cb_key_find_partial(Relation index)
{
	for (int i = 1; i <= IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (!cb_total_compare(TupleDescAttr(RelationGetDescr(index), i - 1)->atttypid,
							  index_getprocid(index, i, CB_ORDER_PROC)))
			return i;
	}
	return 0;
}

static void
cb_total_note_relation(Datum arg, Oid relid)
{
	cb_total_generation++;
}

static void
cb_total_note_catalog(Datum arg, int cacheid, uint32 hash)
{
	cb_total_generation++;
}

/*
 * An answer holds until any composite type's attributes, any operator class or
 * any function may have changed; the server tells.
 */
static void
cb_total_watch(void)
{
	static bool watching = false;

	if (watching)
		return;
	CacheRegisterRelcacheCallback(cb_total_note_relation, (Datum) 0);
	CacheRegisterSyscacheCallback(CLAOID, cb_total_note_catalog, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, cb_total_note_catalog, (Datum) 0);
	watching = true;
}

/*
 * Are the comparisons of all key columns known to be total?  The answer is
 * remembered until a catalog changes; where it is not known it is looked up,
 * as by cb_key_find_partial().  Looking it up may replace what this backend
 * remembers of the index (cb_rel_cache).
 */
bool
cb_key_is_total(Relation rel)
{
	CbRelCache *cache = cb_rel_cache(rel);

	if (unlikely(cache->total_generation != cb_total_generation))
	{
		uint64		generation;
		bool		total;

		cb_total_watch();
		generation = cb_total_generation;
		total = cb_key_find_partial(rel) == 0;
		cache = cb_rel_cache(rel);	/* reading catalogs may have dropped it */
		cache->total = total;
		cache->total_generation = generation;
	}
	return cache->total;
}

static CbBuffered
cb_total_get_option(Relation rel)
{
	return rel->rd_options ? ((CbOptions *) rel->rd_options)->buffered :
		CB_BUFFERED_AUTO;
}

/*
 * May entries be left to be compared later?  Yes if the user says so, or all
 * comparisons are total.  May read catalogs, unless cb_key_prepare_trust() was
 * called just before.
 */
bool
cb_key_is_trusted(Relation rel)
{
	return cb_total_get_option(rel) == CB_BUFFERED_ON || cb_key_is_total(rel);
}

/*
 * Looks the answer up if need be, for those who will ask with pages locked: a
 * catalog's lock may have to be waited for.  No page is locked here.
 */
void
cb_key_prepare_trust(Relation rel)
{
	(void) cb_key_is_total(rel);
}

/*
 * Do new entries go to journal and buckets?  By the index's options and its
 * comparisons; whether it has buckets at present is another question.  As
 * cb_key_is_trusted(), otherwise.
 */
bool
cb_is_buffered(Relation rel)
{
	return cb_total_get_option(rel) != CB_BUFFERED_OFF && cb_key_is_trusted(rel);
}

/*
 * Are leaves packed that are written anew?  Those that are packed stay so
 * until they are.  As cb_key_is_trusted(), otherwise.
 */
bool
cb_packs_leaves(Relation rel)
{
	return (!rel->rd_options || ((CbOptions *) rel->rd_options)->pack_leaves) &&
		cb_key_is_trusted(rel);
}
