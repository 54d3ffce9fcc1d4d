/*-------------------------------------------------------------------------
 *
 * cb_radix.c
 *	  Radix sort of (key, value) pairs, least significant digit first.
 *
 * One look at the items counts all digits.  A digit that all keys share needs
 * no pass.  Few items are sorted by insertion: counting would cost more.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_radix.h"

#include <string.h>

#define CB_RADIX_BITS		8
#define CB_RADIX_VALUES		(1 << CB_RADIX_BITS)
#define CB_RADIX_DIGITS		(64 / CB_RADIX_BITS)
#define CB_RADIX_FEW		32	/* insertion sort up to so many items */

static inline unsigned
cb_radix_digit(uint64_t key, int d)
{
	return (unsigned) (key >> (d * CB_RADIX_BITS)) & (CB_RADIX_VALUES - 1);
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

/*
 * Sorts n items by key; scratch has room for as many, and its contents are
 * lost.  Stable.  Allocates nothing and cannot fail.
 */
void
cb_radix_sort(CbRadixItem *items, CbRadixItem *scratch, size_t n)
{
	size_t		counts[CB_RADIX_DIGITS][CB_RADIX_VALUES];
	CbRadixItem *from = items;
	CbRadixItem *to = scratch;

	if (n <= CB_RADIX_FEW)
	{
		cb_radix_insertion_sort(items, n);
		return;
	}

	memset(counts, 0, sizeof(counts));
	for (size_t i = 0; i < n; i++)
	{
		uint64_t	key = items[i].key;

		for (int d = 0; d < CB_RADIX_DIGITS; d++)
			counts[d][cb_radix_digit(key, d)]++;
	}

	for (int d = 0; d < CB_RADIX_DIGITS; d++)
	{
		CbRadixItem *swap = from;

		if (counts[d][cb_radix_digit(items[0].key, d)] == n)
			continue;
		cb_radix_pass(from, to, n, d, counts[d]);
		from = to;
		to = swap;
	}
	if (from != items)
		memcpy(items, from, n * sizeof(CbRadixItem));
}
