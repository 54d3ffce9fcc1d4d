/*-------------------------------------------------------------------------
 *
 * cb_key_sort.c
 *	  Sorting entries, by abbreviations of the first key column where it has
 *	  some.
 *
 * Two sources of abbreviations.  Comparisons known by their comparator or
 * function, of types that fit in 64 bits: exact, and free to set up.  And the
 * operator class's abbreviating SortSupport, if it compares abbreviations as
 * unsigned numbers: a prefix.  Its converters are functions of the value; what
 * they remember between calls are buffers, and statistics for abbrev_abort,
 * which is not called, since we never give up half-way.
 *
 * Many entries are sorted by radix, which costs a few ns an entry; then only
 * those with equal abbreviations are compared.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "core/cb_radix.h"
#include "miscadmin.h"
#include "rel/cb_key.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#define CB_KEY_RADIX_MIN	64	/* fewer are compared */
#define CB_KEY_SAMPLES		16	/* to see whether prefixes differ */

static uint64
cb_key_convert_unsigned(Datum value, SortSupport ssup)
{
	return (uint64) value;
}

/* int2, int4, int8 and what is stored like them */
static uint64
cb_key_convert_int16(Datum value, SortSupport ssup)
{
	return cb_key_abbreviate_number(DatumGetInt16(value));
}

static uint64
cb_key_convert_int32(Datum value, SortSupport ssup)
{
	return cb_key_abbreviate_number(DatumGetInt32(value));
}

static uint64
cb_key_convert_int64(Datum value, SortSupport ssup)
{
	return cb_key_abbreviate_number(DatumGetInt64(value));
}

static uint64
cb_key_convert_oid(Datum value, SortSupport ssup)
{
	return DatumGetObjectId(value);
}

/* The bits of IEEE numbers; zeros are equal, NaNs too and above all others. */
static inline uint64
cb_key_convert_double(float8 number)
{
	uint64		bits;

	if (isnan(number))
		return PG_UINT64_MAX;
	if (number == 0)
		number = 0;
	memcpy(&bits, &number, sizeof(bits));
	return bits & CB_KEY_SIGN ? ~bits : bits | CB_KEY_SIGN;
}

static uint64
cb_key_convert_float4(Datum value, SortSupport ssup)
{
	return cb_key_convert_double(DatumGetFloat4(value));
}

static uint64
cb_key_convert_float8(Datum value, SortSupport ssup)
{
	return cb_key_convert_double(DatumGetFloat8(value));
}

/* The operator class's own abbreviation. */
static uint64
cb_key_convert_by_class(Datum value, SortSupport ssup)
{
	return (uint64) ssup->abbrev_converter(value, ssup);
}

/* Is the first column of a kind that has an exact abbreviation? */
static bool
cb_key_find_exact(CbKeyDesc *kd)
{
	SortSupport ssup = &kd->ssup[0];
	CbAbbrev   *abbrev = &kd->abbrev;

	if (ssup->comparator == ssup_datum_int32_cmp)
		abbrev->convert = cb_key_convert_int32;
	else if (ssup->comparator == ssup_datum_unsigned_cmp)
		abbrev->convert = cb_key_convert_unsigned;
#if SIZEOF_DATUM >= 8
	else if (ssup->comparator == ssup_datum_signed_cmp)
		abbrev->convert = cb_key_convert_int64;
#endif
	else
		switch (index_getprocid(kd->rel, 1, CB_ORDER_PROC))
		{
			case F_BTINT2CMP:
				abbrev->convert = cb_key_convert_int16;
				break;
			case F_BTOIDCMP:
				abbrev->convert = cb_key_convert_oid;
				break;
			case F_BTFLOAT4CMP:
				abbrev->convert = cb_key_convert_float4;
				break;
			case F_BTFLOAT8CMP:
				abbrev->convert = cb_key_convert_float8;
				break;
			default:
				return false;
		}
	return true;
}

/*
 * Does the operator class abbreviate to unsigned numbers?  Its support
 * function runs, which may raise errors.
 */
static bool
cb_key_find_prefix(CbKeyDesc *kd)
{
	RegProcedure proc = index_getprocid(kd->rel, 1, CB_SORTSUPPORT_PROC);
	MemoryContext cxt = kd->ssup[0].ssup_cxt;
	SortSupport ssup;

	if (!RegProcedureIsValid(proc))
		return false;

	ssup = MemoryContextAllocZero(cxt, sizeof(SortSupportData));
	ssup->ssup_cxt = cxt;
	ssup->ssup_collation = kd->ssup[0].ssup_collation;
	ssup->ssup_reverse = kd->ssup[0].ssup_reverse;
	ssup->ssup_nulls_first = kd->ssup[0].ssup_nulls_first;
	ssup->ssup_attno = 1;
	ssup->abbreviate = true;
	OidFunctionCall1(proc, PointerGetDatum(ssup));
	if (ssup->abbrev_converter == NULL ||
		ssup->comparator != ssup_datum_unsigned_cmp)
		return false;

	kd->abbrev.convert = cb_key_convert_by_class;
	kd->abbrev.ssup = ssup;
	return true;
}

/*
 * Has the first column exact abbreviations?  Cheaper than
 * cb_key_prepare_abbrev() where it has not.  Allocates nothing; no function of
 * the operator class runs.
 */
bool
cb_key_prepare_exact(CbKeyDesc *kd)
{
	if (kd->abbrev.kind == CB_ABBREV_UNKNOWN && cb_key_find_exact(kd))
	{
		kd->abbrev.ssup = NULL;
		kd->abbrev.flip = kd->ssup[0].ssup_reverse ? PG_UINT64_MAX : 0;
		kd->abbrev.kind = CB_ABBREV_EXACT;
	}
	return kd->abbrev.kind == CB_ABBREV_EXACT;
}

/*
 * Finds out, once a description, whether the first column has abbreviations.
 * What this allocates goes to the memory context of cb_key_init().  A support
 * function of the operator class may run, and raise an error: no page is
 * locked.
 */
CbAbbrevKind
cb_key_prepare_abbrev(CbKeyDesc *kd)
{
	CbAbbrev   *abbrev = &kd->abbrev;

	if (abbrev->kind != CB_ABBREV_UNKNOWN)
		return abbrev->kind;

	if (cb_key_prepare_exact(kd))
		return CB_ABBREV_EXACT;
	abbrev->flip = kd->ssup[0].ssup_reverse ? PG_UINT64_MAX : 0;
	if (cb_key_find_prefix(kd))
		abbrev->kind = CB_ABBREV_PREFIX;
	else
		abbrev->kind = CB_ABBREV_NONE;
	return abbrev->kind;
}

static int
cb_key_compare_sort_entries(const void *a, const void *b, void *arg)
{
	const CbKeyDesc *kd = arg;
	const CbSortEntry *ea = a;
	const CbSortEntry *eb = b;
	int			cmp;

	CHECK_FOR_INTERRUPTS();
	cmp = ApplySortComparator(ea->first, ea->first_null,
							  eb->first, eb->first_null,
							  unconstify(SortSupportData *, &kd->ssup[0]));
	if (cmp != 0)
		return cmp;
	if (kd->nkeyatts == 1)
		return ItemPointerCompare(&ea->itup->t_tid, &eb->itup->t_tid);
	return cb_key_compare(kd, ea->itup, eb->itup);
}

/*
 * Can be interrupted at each comparison; then entries may be in any order, but
 * all are there.
 */
static void
cb_key_sort_by_comparing(const CbKeyDesc *kd, CbSortEntry *entries, int n)
{
	if (n > 1)
		qsort_arg(entries, n, sizeof(CbSortEntry), cb_key_compare_sort_entries,
				  unconstify(CbKeyDesc *, kd));
}

/*
 * Do prefixes tell these entries apart?  Values that all begin alike are not
 * worth converting.  Of some entries, a quarter has to differ from the last.
 */
static bool
cb_key_prefixes_differ(const CbKeyDesc *kd, const CbSortEntry *entries, int n)
{
	uint64		last = 0;
	int			ndiffer = 0;

	for (int i = 0; i < CB_KEY_SAMPLES; i++)
	{
		const CbSortEntry *entry = &entries[(int64) n * i / CB_KEY_SAMPLES];
		uint64		abbrev = 0;

		if (!entry->first_null)
			cb_key_abbreviate(kd, entry->first, &abbrev);
		ndiffer += abbrev != last;
		last = abbrev;
	}
	return ndiffer >= CB_KEY_SAMPLES / 4;
}

/*
 * Abbreviate the entries that are not NULL, into items (value: the number of
 * the entry).  Returns how many; *ordered: they are in order already.
 */
static int
cb_key_abbreviate_entries(const CbKeyDesc *kd, const CbSortEntry *entries,
						  int n, CbRadixItem *items, bool *ordered)
{
	uint64		last = 0;
	int			nitems = 0;

	*ordered = true;
	for (int i = 0; i < n; i++)
	{
		CbRadixItem *item = &items[nitems];

		if (entries[i].first_null)
			continue;
		cb_key_abbreviate(kd, entries[i].first, &item->key);
		item->value = i;
		*ordered &= item->key >= last;
		last = item->key;
		nitems++;
	}
	return nitems;
}

/* Bring the entries into the order of the items; NULLs where they belong. */
static void
cb_key_permute(const CbKeyDesc *kd, CbSortEntry *entries, int n,
			   const CbRadixItem *items, int nitems, CbSortEntry *space)
{
	CbSortEntry *nulls = space;
	CbSortEntry *others = space;

	if (kd->ssup[0].ssup_nulls_first)
		others += n - nitems;
	else
		nulls += nitems;

	for (int i = 0; i < nitems; i++)
		others[i] = entries[items[i].value];
	for (int i = 0; i < n && nitems < n; i++)
	{
		if (entries[i].first_null)
			*nulls++ = entries[i];
	}
	memcpy(entries, space, n * sizeof(CbSortEntry));
}

/* Sort each group of entries that have the same abbreviation, or are NULL. */
static void
cb_key_sort_ties(const CbKeyDesc *kd, CbSortEntry *entries, int n,
				 const CbRadixItem *items, int nitems)
{
	int			nnulls = n - nitems;
	bool		nulls_first = kd->ssup[0].ssup_nulls_first;
	CbSortEntry *others = nulls_first ? entries + nnulls : entries;
	int			start = 0;

	for (int i = 1; i <= nitems; i++)
	{
		if (i < nitems && items[i].key == items[start].key)
			continue;
		cb_key_sort_by_comparing(kd, others + start, i - start);
		start = i;
	}
	cb_key_sort_by_comparing(kd, nulls_first ? entries : entries + nitems,
							 nnulls);
}

static void
cb_key_sort_by_radix(const CbKeyDesc *kd, CbSortEntry *entries, int n)
{
	CbRadixItem *items = MemoryContextAllocHuge(CurrentMemoryContext,
												sizeof(CbRadixItem) * n);
	bool		ordered;
	int			nitems = cb_key_abbreviate_entries(kd, entries, n, items, &ordered);

	if (!ordered || nitems < n)
	{
		CbSortEntry *space = MemoryContextAllocHuge(CurrentMemoryContext,
													sizeof(CbSortEntry) * n);

		/* first of use to the radix sort, then to the permutation */
		StaticAssertStmt(sizeof(CbSortEntry) >= sizeof(CbRadixItem),
						 "too little space for a radix sort");
		if (!ordered)
			cb_radix_sort(items, (CbRadixItem *) space, nitems);
		cb_key_permute(kd, entries, n, items, nitems, space);
		pfree(space);
	}
	cb_key_sort_ties(kd, entries, n, items, nitems);
	pfree(items);
}

/*
 * Sorts entries by (key, TID), in place; those that are equal in both come in
 * any order.  The comparison may raise an error, so no lock may be held that
 * an error would not release; entries are then in any order.  Takes up to 48
 * bytes an entry from the current memory context, for the moment.  Can be
 * interrupted.
 *
 * Many are sorted by radix, if they have abbreviations.  Finding that out may
 * change kd, once.
 */
void
cb_key_sort(const CbKeyDesc *kd, CbSortEntry *entries, int n)
{
	CbAbbrevKind kind = CB_ABBREV_NONE;

	if (n >= CB_KEY_RADIX_MIN)
		kind = cb_key_prepare_abbrev(unconstify(CbKeyDesc *, kd));
	if (kind == CB_ABBREV_EXACT ||
		(kind == CB_ABBREV_PREFIX && cb_key_prefixes_differ(kd, entries, n)))
		cb_key_sort_by_radix(kd, entries, n);
	else
		cb_key_sort_by_comparing(kd, entries, n);
}

/*
 * Keeps those of the entries, in any order, that lie right of itup; returns
 * how many.  They come to the front, in the order they had; the others are
 * lost.  The comparison may raise an error.  Can be interrupted.
 */
int
cb_key_keep_right(const CbKeyDesc *kd, CbSortEntry *entries, int n,
				  IndexTuple itup)
{
	int			kept = 0;

	for (int i = 0; i < n; i++)
	{
		if (cb_key_compare(kd, entries[i].itup, itup) > 0)
			entries[kept++] = entries[i];
		CHECK_FOR_INTERRUPTS();
	}
	return kept;
}
