/*-------------------------------------------------------------------------
 *
 * cb_sorted.c
 *	  Sorting a piece of the journal for a component of the shared copy.
 *
 * Many entries are sorted while a query waits, and then memory costs more than
 * comparisons: to get it from the operating system, and to go through it.  So an
 * entry takes its place in the journal, and the two items of the radix sort; and
 * all of that serves one piece after the other.  An item has the abbreviation of
 * the first column, and the entry's position, which tells where its bytes are.
 *
 * Without abbreviations all items are alike to the radix sort, and so are those of
 * equal values.  Such groups are compared.  NULLs have the least or the greatest
 * abbreviation there can be, and maybe share it with a value.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "journal/cb_sorted.h"
#include "miscadmin.h"
#include "page/cb_leaf.h"
#include "utils/memutils.h"

/* what the comparison of two items needs */
typedef struct CbSortedCompare
{
	const CbKeyDesc *kd;
	const CbSorted *sorted;
} CbSortedCompare;

/*
 * An empty piece of so many pages at most, whose memory is the context's, and goes
 * with it.  Abbreviations have been prepared (cb_key_prepare_abbrev).
 */
void
cb_sorted_init(CbSorted *sorted, MemoryContext cxt, uint32 npages)
{
	memset(sorted, 0, sizeof(CbSorted));
	sorted->cxt = cxt;
	sorted->npages = npages;
	sorted->bytes = MemoryContextAllocHuge(cxt, (Size) npages * BLCKSZ);
}

/* Empties it, for entries of the page that has this position, and the next ones. */
void
cb_sorted_begin(CbSorted *sorted, CbPos pos)
{
	sorted->first = CbPosMake(CbPosSeq(pos), 0);
	sorted->n = 0;
}

/* What abbreviations cannot tell apart: NULLs, and the values that have this one. */
static inline uint64
cb_sorted_null_key(const CbKeyDesc *kd)
{
	return kd->ssup[0].ssup_nulls_first ? 0 : PG_UINT64_MAX;
}

/* The abbreviation of an entry's first column, or what stands for it. */
static inline uint64
cb_sorted_key(const CbKeyDesc *kd, IndexTuple itup)
{
	uint64		key = 0;
	int64		number;
	bool		isnull;
	Datum		first;

	if (kd->lead_kind == CB_LEAD_INT64 && cb_key_get_number(itup, &number))
		return cb_key_abbreviate_number(number);
	first = index_getattr(itup, 1, kd->tupdesc, &isnull);
	if (isnull)
		return cb_sorted_null_key(kd);
	(void) cb_key_abbreviate(kd, first, &key);
	return key;
}

/*
 * Adds the entry at a position, whose bytes are there.  May raise an error
 * (detoasting).
 */
void
cb_sorted_add(const CbKeyDesc *kd, CbSorted *sorted, CbPos pos)
{
	uint64		key = cb_sorted_key(kd, cb_sorted_entry(sorted, pos));

	if (sorted->n == sorted->allocated)
	{
		sorted->allocated = Max(1024, sorted->allocated * 2);
		sorted->items = sorted->items == NULL ?
			MemoryContextAllocHuge(sorted->cxt, sizeof(CbRadixItem) * sorted->allocated) :
			repalloc_huge(sorted->items, sizeof(CbRadixItem) * sorted->allocated);
	}
	sorted->items[sorted->n++] = (CbRadixItem) {.key = key,.value = pos};
}

/*
 * By key and TID; of equal entries, by position.  Comparisons run, and may raise
 * an error; can be interrupted.
 */
static int
cb_sorted_compare(const void *a, const void *b, void *arg)
{
	const CbSortedCompare *compare = arg;
	CbPos		x = ((const CbRadixItem *) a)->value;
	CbPos		y = ((const CbRadixItem *) b)->value;
	int			cmp = cb_key_compare(compare->kd, cb_sorted_entry(compare->sorted, x),
									 cb_sorted_entry(compare->sorted, y));

	CHECK_FOR_INTERRUPTS();
	if (cmp != 0)
		return cmp;
	return x < y ? -1 : 1;
}

/*
 * Sorts n items that have one abbreviation, and equal values, by TID.  Equal ones
 * stay in their order, which is that of positions.  No comparison runs.
 */
static void
cb_sorted_sort_by_tid(const CbSorted *sorted, CbRadixItem *items, int n)
{
	uint64		key = items[0].key;

	for (int i = 0; i < n; i++)
		items[i].key = cb_leaf_tid_number(&cb_sorted_entry(sorted, items[i].value)->t_tid);
	cb_radix_sort(items, sorted->scratch, n);
	for (int i = 0; i < n; i++)
		items[i].key = key;
}

/*
 * Sorts n items that have one abbreviation, in the order of the journal.  Of equal
 * entries the last one in the journal is kept: the TID of an earlier one can have
 * been used again, so its bytes can differ.  Returns how many are kept.
 */
static int
cb_sorted_settle(const CbKeyDesc *kd, const CbSorted *sorted, CbRadixItem *items, int n)
{
	CbSortedCompare compare = {.kd = kd,.sorted = sorted};
	int			kept = 0;

	if (kd->abbrev.kind == CB_ABBREV_EXACT && kd->nkeyatts == 1 &&
		items[0].key != cb_sorted_null_key(kd))
		cb_sorted_sort_by_tid(sorted, items, n);
	else
		qsort_arg(items, n, sizeof(CbRadixItem), cb_sorted_compare, &compare);
	for (int i = 0; i < n; i++)
	{
		IndexTuple	entry = cb_sorted_entry(sorted, items[i].value);
		IndexTuple	next = i + 1 < n ? cb_sorted_entry(sorted, items[i + 1].value) : NULL;

		if (next == NULL || !ItemPointerEquals(&entry->t_tid, &next->t_tid) ||
			cb_key_compare(kd, entry, next) != 0)
			items[kept++] = items[i];
	}
	return kept;
}

/*
 * Sorts the entries by (key, TID), and leaves out all but one of equal ones: the
 * one that is in the journal longest.  Comparisons run, and may raise an error.
 * Can be interrupted.
 */
void
cb_sorted_finish(const CbKeyDesc *kd, CbSorted *sorted)
{
	CbRadixItem *items = sorted->items;
	int			n = sorted->n;
	int			kept = 0;
	int			start = 0;

	if (sorted->nscratch < sorted->allocated)
	{
		if (sorted->scratch != NULL)
			pfree(sorted->scratch);
		sorted->scratch = NULL;
		sorted->nscratch = 0;
		sorted->scratch = MemoryContextAllocHuge(sorted->cxt,
												 sizeof(CbRadixItem) * sorted->allocated);
		sorted->nscratch = sorted->allocated;
	}
	cb_radix_sort(items, sorted->scratch, n);
	for (int i = 1; i <= n; i++)
	{
		int			group = 1;

		if (i < n && items[i].key == items[start].key)
			continue;
		if (i - start > 1)
			group = cb_sorted_settle(kd, sorted, &items[start], i - start);
		if (kept < start)
			memmove(&items[kept], &items[start], group * sizeof(CbRadixItem));
		kept += group;
		start = i;
	}
	sorted->n = kept;
}
