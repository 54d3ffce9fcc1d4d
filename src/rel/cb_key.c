/*-------------------------------------------------------------------------
 *
 * cb_key.c
 *	  Comparing and forming entries, separators and bounds.
 *
 * Comparisons go through SortSupport, so that common types are compared
 * without the function manager.  The order is the operator class's own; no
 * abbreviated key stands in for it here (see cb_key_sort.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heaptoast.h"
#include "access/tupmacs.h"
#include "catalog/pg_am_d.h"
#include "rel/cb_key.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"
#include "utils/uuid.h"

/* Are texts of this collation in the order of their bytes? */
static inline bool
cb_key_is_bytewise(Oid collation)
{
	if (!OidIsValid(collation))
		return false;
#if PG_VERSION_NUM >= 180000
	return pg_newlocale_from_collation(collation)->collate_is_c;
#else
	return lc_collate_is_c(collation);
#endif
}

/* The leads that values of a column would have if it were the first one. */
static CbLeadKind
cb_key_find_column_lead_kind(const CbKeyDesc *kd, int column)
{
#if SIZEOF_DATUM >= 8 && !defined(WORDS_BIGENDIAN)
	Form_pg_attribute attr = TupleDescAttr(kd->tupdesc, column);
	const SortSupportData *ssup = &kd->ssup[column];

	if (ssup->ssup_reverse)
		return CB_LEAD_NONE;
	if (attr->attbyval && attr->attlen == sizeof(int64) &&
		ssup->comparator == ssup_datum_signed_cmp)
		return CB_LEAD_INT64;
	if (attr->attbyval && attr->attlen == sizeof(int32) &&
		ssup->comparator == ssup_datum_int32_cmp)
		return CB_LEAD_INT32;
	switch (kd->order_proc[column])
	{
		case F_BTFLOAT8CMP:
			return attr->attlen == sizeof(float8) ? CB_LEAD_FLOAT64 : CB_LEAD_NONE;
		case F_UUID_CMP:
			return attr->attlen == UUID_LEN ? CB_LEAD_BYTES : CB_LEAD_NONE;
		case F_BTTEXTCMP:
			return attr->attlen == -1 && cb_key_is_bytewise(ssup->ssup_collation) ?
				CB_LEAD_TEXT : CB_LEAD_NONE;
		case F_BTTEXT_PATTERN_CMP:
		case F_BYTEACMP:
			return attr->attlen == -1 ? CB_LEAD_TEXT : CB_LEAD_NONE;
		case F_NUMERIC_CMP:
			return attr->attlen == -1 ? CB_LEAD_NUMERIC : CB_LEAD_NONE;
	}
#endif
	return CB_LEAD_NONE;
}

/* The leads of the index's keys. */
static CbLeadKind
cb_key_find_lead_kind(const CbKeyDesc *kd)
{
	CbLeadKind	kind = cb_key_find_column_lead_kind(kd, 0);
	CbLeadKind	second;

	if (kind != CB_LEAD_INT32 || kd->nkeyatts == 1)
		return kind;
	second = cb_key_find_column_lead_kind(kd, 1);
	return second == CB_LEAD_INT32 ? CB_LEAD_INT32_INT32 :
		second == CB_LEAD_TEXT ? CB_LEAD_INT32_TEXT : kind;
}

/* The first bytes of a value without a fixed length; false: as below. */
static bool
cb_key_find_content(Datum value, uint64 *head)
{
	const char *bytes = DatumGetPointer(value);

	if (VARATT_IS_COMPRESSED(bytes) || VARATT_IS_EXTERNAL(bytes))
		return false;
	*head = 0;
	memcpy(head, VARDATA_ANY(bytes), Min(VARSIZE_ANY_EXHDR(bytes), sizeof(*head)));
	return true;
}

/* cb_key_find_lead() of a pair. */
static bool
cb_key_find_pair_lead(const CbKeyDesc *kd, const CbBoundKey *keys, int64 *lead)
{
	int32		first = DatumGetInt32(keys[0].value);
	uint64		head;

	if (kd->lead_kind == CB_LEAD_INT32_INT32)
	{
		*lead = cb_lead_of_pair(first, cb_lead_of_second_int32(DatumGetInt32(keys[1].value)));
		return true;
	}
	if (!cb_key_find_content(keys[1].value, &head))
		return false;
	*lead = cb_lead_of_pair(first, cb_lead_of_second_text(head));
	return true;
}

/* cb_key_find_lead() of the first column alone. */
static bool
cb_key_find_first_lead(CbLeadKind kind, Form_pg_attribute attr, Datum value, int64 *lead)
{
	uint64		head = 0;

	if (attr->attlen < 0)
		return cb_key_find_content(value, &head) && cb_lead_of_content(kind, head, lead);
	if (attr->attbyval)
		store_att_byval(&head, value, attr->attlen);
	else
		memcpy(&head, DatumGetPointer(value), sizeof(head));
	return cb_lead(kind, head, lead);
}

/*
 * Finds the lead of a bound of keys, of an index whose keys have leads; the first
 * value is of the column's own type, and not null.  The kind of its lead: of the first
 * column alone where the second value tells nothing, none where that one does neither,
 * as it is compressed, elsewhere, or a long numeric.
 */
CbLeadKind
cb_key_find_lead(const CbKeyDesc *kd, const CbBound *bound, int64 *lead)
{
	CbLeadKind	kind = kd->lead_kind;

	if (cb_lead_is_pair(kind))
	{
		if (bound->nkeys > 1 && cb_key_is_own(&bound->keys[1]) &&
			cb_key_find_pair_lead(kd, bound->keys, lead))
			return kind;
		kind = CB_LEAD_INT32;
	}
	return cb_key_find_first_lead(kind, TupleDescAttr(kd->tupdesc, 0), bound->keys[0].value,
								  lead) ? kind : CB_LEAD_NONE;
}

/* Columns that a separator has. */
static inline int
cb_key_pivot_natts(IndexTuple pivot)
{
	return ItemPointerGetOffsetNumberNoCheck(&pivot->t_tid) & BT_OFFSET_MASK;
}

/* cb_key_get_lead() of a pair; the first column may be all that a separator has. */
bool
cb_key_get_pair_lead(CbLeadKind kind, IndexTuple itup, int64 *lead)
{
	uint64		head = *(uint64 *) ((char *) itup + sizeof(IndexTupleData));

	if (BTreeTupleIsPivot(itup) && cb_key_pivot_natts(itup) < 2)
	{
		*lead = cb_lead_of_pair((int32) head, 0);
		return true;
	}
	return cb_lead(kind, head, lead);
}

/*
 * cb_key_get_lead() of an entry with columns, none null, the first one without a fixed
 * length.
 */
bool
cb_key_get_content_lead(CbLeadKind kind, IndexTuple itup, int64 *lead)
{
	const unsigned char *body = (unsigned char *) itup + sizeof(IndexTupleData);
	uint64		head;

	return cb_lead_find_head(body, IndexTupleSize(itup) - sizeof(IndexTupleData), &head) &&
		cb_lead_of_content(kind, head, lead);
}

/*
 * Fills in the key description of an index, for as long as the relation is
 * open; what it allocates goes to the current memory context, which has to
 * live as long.  Abbreviations and hashes are not prepared.
 *
 * The operator class's support functions run, which may raise errors; no page
 * is locked.
 */
void
cb_key_init(CbKeyDesc *kd, Relation rel)
{
	kd->rel = rel;
	kd->tupdesc = RelationGetDescr(rel);
	kd->nkeyatts = IndexRelationGetNumberOfKeyAttributes(rel);
	kd->abbrev.kind = CB_ABBREV_UNKNOWN;
	kd->hash = CB_HASH_NONE;
	kd->heap = NULL;
	kd->new_versions = false;
	memset(kd->ssup, 0, sizeof(SortSupportData) * kd->nkeyatts);

	for (int i = 0; i < kd->nkeyatts; i++)
	{
		SortSupport ssup = &kd->ssup[i];

		kd->order_proc[i] = index_getprocid(rel, i + 1, CB_ORDER_PROC);
		ssup->ssup_cxt = CurrentMemoryContext;
		ssup->ssup_collation = rel->rd_indcollation[i];
		ssup->ssup_attno = i + 1;
		ssup->ssup_reverse = (rel->rd_indoption[i] & INDOPTION_DESC) != 0;
		ssup->ssup_nulls_first =
			(rel->rd_indoption[i] & INDOPTION_NULLS_FIRST) != 0;
		if (RegProcedureIsValid(index_getprocid(rel, i + 1, CB_SORTSUPPORT_PROC)))
			FunctionCall1(index_getprocinfo(rel, i + 1, CB_SORTSUPPORT_PROC),
						  PointerGetDatum(ssup));
		if (ssup->comparator == NULL)
			PrepareSortSupportComparisonShim(kd->order_proc[i], ssup);
	}
	kd->lead_kind = cb_key_find_lead_kind(kd);
}

/* The TID of an entry, or of a separator that has one; NULL: minus infinity. */
static inline ItemPointer
cb_key_get_tid(IndexTuple itup)
{
	if (!BTreeTupleIsPivot(itup))
		return &itup->t_tid;
	return BTreeTupleGetHeapTID(itup);
}

/* Columns that a tuple has of the key, whatever damage says. */
static inline int
cb_key_natts(const CbKeyDesc *kd, IndexTuple itup)
{
	return BTreeTupleIsPivot(itup) ?
		Min(BTreeTupleGetNAtts(itup, kd->rel), kd->nkeyatts) : kd->nkeyatts;
}

static int
cb_key_compare_tids(IndexTuple a, IndexTuple b)
{
	ItemPointer tid_a = cb_key_get_tid(a);
	ItemPointer tid_b = cb_key_get_tid(b);

	if (tid_a == NULL || tid_b == NULL)
		return (tid_a != NULL) - (tid_b != NULL);
	return ItemPointerCompare(tid_a, tid_b);
}

/*
 * Three-way comparison in (key, TID) order; truncated attributes of a
 * separator are minus infinity.  Either may be an entry or a separator.
 *
 * Comparison functions run: they may raise any error, run SQL, and even
 * release locks (cb_tree_check_still_locked).  So not in a critical section,
 * nor with anything held that an error would not release.  What they allocate
 * may be left in the current memory context.
 */
int
cb_key_compare_whole(const CbKeyDesc *kd, IndexTuple a, IndexTuple b)
{
	int			natts_a = cb_key_natts(kd, a);
	int			natts_b = cb_key_natts(kd, b);
	int			natts = Min(natts_a, natts_b);

	for (int i = 0; i < natts; i++)
	{
		bool		null_a,
					null_b;
		Datum		datum_a = index_getattr(a, i + 1, kd->tupdesc, &null_a);
		Datum		datum_b = index_getattr(b, i + 1, kd->tupdesc, &null_b);
		int			cmp = ApplySortComparator(datum_a, null_a, datum_b, null_b,
											  unconstify(SortSupportData *, &kd->ssup[i]));

		if (cmp != 0)
			return cmp;
	}
	if (natts_a != natts_b)
		return natts_a < natts_b ? -1 : 1;
	return cb_key_compare_tids(a, b);
}

/*
 * Raises the error now of an entry that cannot be compared even with itself,
 * such as a row with a json in it.  Sorting need not compare each value of
 * each column, but a scan that goes on behind an entry looks for its place.
 * NULLs are not compared.
 */
void
cb_key_check_comparable(const CbKeyDesc *kd, const CbSortEntry *entries, int n)
{
	for (int i = 0; i < kd->nkeyatts; i++)
	{
		SortSupport ssup = unconstify(SortSupportData *, &kd->ssup[i]);

		for (int j = 0; j < n; j++)
		{
			bool		isnull;
			Datum		datum = index_getattr(entries[j].itup, i + 1,
											  kd->tupdesc, &isnull);

			if (!isnull)
				(void) ssup->comparator(datum, datum, ssup);
		}
	}
}

/*
 * Compares a column of a tuple with a key: <0 tuple first.  A comparison
 * function runs, if neither is NULL.
 */
static int
cb_key_compare_column(const CbKeyDesc *kd, int column, const CbBoundKey *key,
					  IndexTuple itup)
{
	SortSupport ssup = unconstify(SortSupportData *, &kd->ssup[column]);
	bool		isnull;
	Datum		datum = index_getattr(itup, column + 1, kd->tupdesc, &isnull);
	int			cmp;

	/* the column's own comparison is at hand without the function manager */
	if (key->compare == NULL || key->is_null || isnull)
		return ApplySortComparator(datum, isnull, key->value, key->is_null, ssup);
	cmp = DatumGetInt32(FunctionCall2Coll(key->compare, ssup->ssup_collation,
										  datum, key->value));
	if (ssup->ssup_reverse)
		INVERT_COMPARE_RESULT(cmp);
	return cmp;
}

static int
cb_key_compare_keys_bound(const CbKeyDesc *kd, const CbBound *bound, IndexTuple itup)
{
	int			natts = cb_key_natts(kd, itup);
	bool		pivot = BTreeTupleIsPivot(itup);

	/* min and max begin at the nulls */
	if (bound->keys[0].is_null && natts > 0 && !IndexTupleHasNulls(itup))
		return kd->ssup[0].ssup_nulls_first ? 1 : -1;
	for (int i = 0; i < bound->nkeys; i++)
	{
		int			cmp;

		if (i >= natts)
			return -1;			/* minus infinity here: before any value */
		cmp = cb_key_compare_column(kd, i, &bound->keys[i], itup);
		if (cmp != 0)
			return cmp;
	}

	/* all keys equal */
	if (bound->after)
		return -1;
	if (pivot && natts == bound->nkeys && cb_key_get_tid(itup) == NULL)
		return 0;				/* the very same boundary */
	return 1;
}

/*
 * cb_key_compare_bound(), where a lead does not tell: <0 the tuple
 * lies left of the bound, >0 right of it, 0 for a separator that is the same
 * boundary.  Comparison functions run, as in cb_key_compare(); of a bound at
 * an end none.
 */
int
cb_key_compare_bound_whole(const CbKeyDesc *kd, const CbBound *bound,
						   IndexTuple itup)
{
	int			cmp;

	switch (bound->kind)
	{
		case CB_BOUND_MIN:
			return 1;
		case CB_BOUND_MAX:
			return -1;
		case CB_BOUND_KEYS:
			return cb_key_compare_keys_bound(kd, bound, itup);
		case CB_BOUND_TUPLE:
			break;
	}

	cmp = cb_key_compare(kd, itup, bound->tuple);
	if (cmp != 0)
		return cmp;
	if (bound->after)
		return -1;
	return BTreeTupleIsPivot(itup) ? 0 : 1;
}

/*
 * Sets up a sort entry for itup, which stays the caller's and has to stay
 * where it is; its journal position is set to none.  Nothing is compared or
 * allocated.
 */
void
cb_key_fill_sort_entry(const CbKeyDesc *kd, CbSortEntry *entry, IndexTuple itup)
{
	entry->first = index_getattr(itup, 1, kd->tupdesc, &entry->first_null);
	entry->dead = false;
	entry->itup = itup;
	entry->pos = 0;
}

/* Number of leading key columns that tell firstright from lastleft. */
static int
cb_key_count_needed(const CbKeyDesc *kd, IndexTuple lastleft,
					IndexTuple firstright)
{
	for (int i = 0; i < kd->nkeyatts; i++)
	{
		bool		null_l,
					null_r;
		Datum		datum_l = index_getattr(lastleft, i + 1, kd->tupdesc, &null_l);
		Datum		datum_r = index_getattr(firstright, i + 1, kd->tupdesc, &null_r);

		if (ApplySortComparator(datum_l, null_l, datum_r, null_r,
								unconstify(SortSupportData *, &kd->ssup[i])) != 0)
			return i + 1;
	}
	return kd->nkeyatts + 1;
}

/*
 * The shortest separator s with lastleft < s <= firstright, palloc'd: suffix
 * truncation (Bayer and Unterauer, Prefix B-Trees, 1977), by whole columns as
 * in nbtree.  Both are entries.  Where all key columns are equal, s gets
 * firstright's TID.
 *
 * So it is longer than firstright by the TID's MAXALIGNed size at most.
 * Comparison functions run.
 */
IndexTuple
cb_key_make_separator(const CbKeyDesc *kd, IndexTuple lastleft,
					  IndexTuple firstright)
{
	int			needed = cb_key_count_needed(kd, lastleft, firstright);
	int			natts = Min(needed, kd->nkeyatts);
	IndexTuple	truncated;
	IndexTuple	pivot;
	Size		size;

	truncated = index_truncate_tuple(kd->tupdesc, firstright, natts);
	if (needed <= kd->nkeyatts)
	{
		BTreeTupleSetNAtts(truncated, natts, false);
		return truncated;
	}

	/* the TID goes behind the key columns, MAXALIGNed from the end */
	size = MAXALIGN(IndexTupleSize(truncated)) + MAXALIGN(sizeof(ItemPointerData));
	pivot = palloc0(size);
	memcpy(pivot, truncated, IndexTupleSize(truncated));
	pivot->t_info &= ~INDEX_SIZE_MASK;
	pivot->t_info |= size;
	BTreeTupleSetNAtts(pivot, natts, true);
	ItemPointerCopy(&firstright->t_tid, BTreeTupleGetHeapTID(pivot));
	pfree(truncated);
	return pivot;
}

/*
 * A palloc'd copy of a separator that leads to the child.  Only lack of memory
 * is an error, here and in cb_key_minus_infinity().
 */
IndexTuple
cb_key_make_downlink(IndexTuple separator, BlockNumber child)
{
	IndexTuple	downlink = CopyIndexTuple(separator);

	Assert(BTreeTupleIsPivot(separator));
	BTreeTupleSetDownLink(downlink, child);
	return downlink;
}

/* A palloc'd downlink without key: the first of an internal page. */
IndexTuple
cb_key_minus_infinity(BlockNumber child)
{
	IndexTuple	downlink = palloc0(sizeof(IndexTupleData));

	downlink->t_info = sizeof(IndexTupleData);
	BTreeTupleSetNAtts(downlink, 0, false);
	BTreeTupleSetDownLink(downlink, child);
	return downlink;
}

/*
 * Refuses an entry over btree's size limit, by an error, so that any page
 * takes three entries or separators.
 */
void
cb_key_check_size(Relation rel, IndexTuple itup)
{
	if (MAXALIGN(IndexTupleSize(itup)) > CB_MAX_ITEM_SIZE)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("index row size %zu exceeds cachebatch maximum %zu for index \"%s\"",
						IndexTupleSize(itup), (Size) CB_MAX_ITEM_SIZE,
						RelationGetRelationName(rel)),
				 errdetail("Index row references tuple (%u,%u) in its table.",
						   ItemPointerGetBlockNumber(&itup->t_tid),
						   ItemPointerGetOffsetNumber(&itup->t_tid)),
				 errhint("Values larger than 1/3 of a buffer page cannot be indexed.\n"
						 "Consider a function index of an MD5 hash of the value.")));
}

/*
 * Forms the entry of a heap tuple, palloc'd; long values are compressed as in
 * other indexes.  One that is too large is refused here, by an error, before
 * anything is staged (C8).  No comparison function runs.
 */
IndexTuple
cb_key_form_entry(Relation rel, Datum *values, bool *isnull, ItemPointer tid)
{
	IndexTuple	itup = index_form_tuple(RelationGetDescr(rel), values, isnull);

	itup->t_tid = *tid;
	cb_key_check_size(rel, itup);
	return itup;
}

/*
 * Bytes of the values of an entry without nulls, if always the same; else 0.
 * Also 0 if an entry of that length would be over the size limit, so that
 * cb_key_form_fixed() need not refuse any.
 */
Size
cb_key_fixed_len(Relation rel)
{
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Size		len = 0;

	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(tupdesc, i);

		if (attr->attlen <= 0)
			return 0;
		len = att_align_nominal(len, attr->attalign) + attr->attlen;
	}
	return CbFixedEntrySize(len) <= CB_MAX_ITEM_SIZE ? len : 0;
}

/*
 * Forms an entry without NULLs, whose length is cb_key_fixed_len()'s, in
 * place, as index_form_tuple() does elsewhere.  The memory is MAXALIGNed and
 * has CbFixedEntrySize(len) bytes.  Allocates nothing and raises no error.
 */
void
cb_key_form_fixed(Relation rel, Datum *values, bool *isnull, ItemPointer tid,
				  Size len, IndexTuple itup)
{
	uint16		infomask;

	memset(itup, 0, CbFixedEntrySize(len));
	heap_fill_tuple(RelationGetDescr(rel), values, isnull,
					(char *) itup + sizeof(IndexTupleData), len, &infomask,
					NULL);
	itup->t_tid = *tid;
	itup->t_info = CbFixedEntrySize(len);
}
