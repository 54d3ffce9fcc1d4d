/*-------------------------------------------------------------------------
 *
 * cb_radix.c
 *	  Radix sort of (key, value) pairs.
 *
 * Keys are sorted by the few highest digits in which they differ, the least of
 * these first.  Of keys that are spread out that leaves few equal, which are
 * then sorted by the digits below, in the same way.  A digit that all keys
 * share needs no pass.  Few items are sorted by insertion: counting would cost
 * more.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_radix.h"

#include <string.h>

#define CB_RADIX_BITS		8
#define CB_RADIX_VALUES		(1 << CB_RADIX_BITS)
#define CB_RADIX_PASSES		3	/* at a time, ... */
#define CB_RADIX_MANY		4096	/* ... and one less for fewer items */
#define CB_RADIX_FEW		32	/* insertion sort up to so many items */

static inline unsigned
cb_radix_digit(uint64_t key, int d)
{
	return (unsigned) (key >> (d * CB_RADIX_BITS)) & (CB_RADIX_VALUES - 1);
}

/* The highest digit that is not 0, or 0. */
static inline int
cb_radix_highest(uint64_t key)
{
	return (63 - __builtin_clzll(key | 1)) / CB_RADIX_BITS;
}

static void
cb_radix_insertion_sort(CbRadixItem *items, size_t n)
{
	for (size_t i = 1; i < n; i++)
	{
		CbRadixItem item = items[i];
		size_t		j = i;

		while (j > 0 && items[j - 1].key > item.key)
		{
			items[j] = items[j - 1];
			j--;
		}
		items[j] = item;
	}
}

/* Distributes the items by one digit; counts becomes the places. */
static void
cb_radix_pass(const CbRadixItem *from, CbRadixItem *to, size_t n, int d,
			  size_t *counts)
{
	size_t		place = 0;

	for (int v = 0; v < CB_RADIX_VALUES; v++)
	{
		size_t		count = counts[v];

		counts[v] = place;
		place += count;
	}
	for (size_t i = 0; i < n; i++)
		to[counts[cb_radix_digit(from[i].key, d)]++] = from[i];
}

/* The bits in which keys differ. */
static uint64_t
cb_radix_difference(const CbRadixItem *items, size_t n)
{
	uint64_t	differ = 0;

	for (size_t i = 1; i < n; i++)
		differ |= items[i].key ^ items[0].key;
	return differ;
}

/* Sorts by the digits from first to last, of which keys differ in these bits. */
static void
cb_radix_sort_digits(CbRadixItem *items, CbRadixItem *scratch, size_t n,
					 int first, int last, uint64_t differ)
{
	size_t		counts[CB_RADIX_PASSES][CB_RADIX_VALUES] = {0};
	CbRadixItem *from = items;
	CbRadixItem *to = scratch;

	for (size_t i = 0; i < n; i++)
	{
		for (int d = first; d <= last; d++)
			counts[d - first][cb_radix_digit(items[i].key, d)]++;
	}
	for (int d = first; d <= last; d++)
	{
		CbRadixItem *swap = from;

		if (cb_radix_digit(differ, d) == 0)
			continue;
		cb_radix_pass(from, to, n, d, counts[d - first]);
		from = to;
		to = swap;
	}
	if (from != items)
		memcpy(items, from, n * sizeof(CbRadixItem));
}

/*
 * Sorts n items by key; scratch has room for as many, and its contents are
 * lost.  Stable.  Allocates nothing and cannot fail.
 */
void
cb_radix_sort(CbRadixItem *items, CbRadixItem *scratch, size_t n)
{
	uint64_t	differ;
	size_t		start = 0;
	int			first;
	int			last;

	if (n <= CB_RADIX_FEW)
	{
		cb_radix_insertion_sort(items, n);
		return;
	}
	differ = cb_radix_difference(items, n);
	if (differ == 0)
		return;
	last = cb_radix_highest(differ);
	first = last + 1 - (n < CB_RADIX_MANY ? CB_RADIX_PASSES - 1 : CB_RADIX_PASSES);
	if (first < 0)
		first = 0;
	cb_radix_sort_digits(items, scratch, n, first, last, differ);

	/* those equal in these digits, by the others */
	for (size_t i = 1; first > 0 && i <= n; i++)
	{
		if (i < n && (items[i].key ^ items[start].key) >> (first * CB_RADIX_BITS) == 0)
			continue;
		if (i - start > 1)
			cb_radix_sort(items + start, scratch, i - start);
		start = i;
	}
}
