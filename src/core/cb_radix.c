/*-------------------------------------------------------------------------
 *
 * cb_radix.c
 *	  Radix sort of (key, value) pairs.
 *
 * Keys are sorted by two digits, the highest bits of those in which they differ,
 * the lower digit first.  Of keys that are spread out that leaves few equal, which
 * are then sorted by the bits below, in the same way.  A digit that all keys
 * share needs no pass.  Few items have shorter digits, as there are fewer to count,
 * or are sorted by insertion: counting would cost more.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_radix.h"

#include <string.h>

#define CB_RADIX_BITS		11
#define CB_RADIX_FEW_BITS	8
#define CB_RADIX_MANY		4096	/* fewer items have shorter digits */
#define CB_RADIX_VALUES		(1 << CB_RADIX_BITS)
#define CB_RADIX_FEW		32	/* insertion sort up to so many items */

/* the two digits, of so many bits each, the lower one from bit "shift" on */
typedef struct CbRadixDigits
{
	int			bits;
	int			shift;
} CbRadixDigits;

static inline unsigned
cb_radix_digit(uint64_t key, const CbRadixDigits *digits, int d)
{
	return (unsigned) (key >> (digits->shift + d * digits->bits)) &
		((1u << digits->bits) - 1);
}

/* The digits for n keys that differ in these bits. */
static inline CbRadixDigits
cb_radix_choose(uint64_t differ, size_t n)
{
	CbRadixDigits digits;

	digits.bits = n < CB_RADIX_MANY ? CB_RADIX_FEW_BITS : CB_RADIX_BITS;
	digits.shift = 64 - __builtin_clzll(differ) - 2 * digits.bits;
	if (digits.shift < 0)
		digits.shift = 0;
	return digits;
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
cb_radix_pass(const CbRadixItem *from, CbRadixItem *to, size_t n,
			  const CbRadixDigits *digits, int d, uint32_t *counts)
{
	uint32_t	place = 0;

	for (int v = 0; v < 1 << digits->bits; v++)
	{
		uint32_t	count = counts[v];

		counts[v] = place;
		place += count;
	}
	for (size_t i = 0; i < n; i++)
		to[counts[cb_radix_digit(from[i].key, digits, d)]++] = from[i];
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

/* Sorts by the digits; keys differ in these bits. */
static void
cb_radix_sort_digits(CbRadixItem *items, CbRadixItem *scratch, size_t n,
					 const CbRadixDigits *digits, uint64_t differ)
{
	uint32_t	counts[2][CB_RADIX_VALUES];
	CbRadixItem *from = items;
	CbRadixItem *to = scratch;

	for (int d = 0; d < 2; d++)
		memset(counts[d], 0, sizeof(uint32_t) << digits->bits);
	for (size_t i = 0; i < n; i++)
	{
		counts[0][cb_radix_digit(items[i].key, digits, 0)]++;
		counts[1][cb_radix_digit(items[i].key, digits, 1)]++;
	}
	for (int d = 0; d < 2; d++)
	{
		CbRadixItem *swap = from;

		if (cb_radix_digit(differ, digits, d) == 0)
			continue;
		cb_radix_pass(from, to, n, digits, d, counts[d]);
		from = to;
		to = swap;
	}
	if (from != items)
		memcpy(items, from, n * sizeof(CbRadixItem));
}

/*
 * Sorts n items by key, fewer than 2^32; scratch has room for as many, and its
 * contents are lost.  Stable.  Allocates nothing and cannot fail.
 */
void
cb_radix_sort(CbRadixItem *items, CbRadixItem *scratch, size_t n)
{
	uint64_t	differ;
	CbRadixDigits digits;
	size_t		start = 0;

	if (n <= CB_RADIX_FEW)
	{
		cb_radix_insertion_sort(items, n);
		return;
	}
	differ = cb_radix_difference(items, n);
	if (differ == 0)
		return;
	digits = cb_radix_choose(differ, n);
	cb_radix_sort_digits(items, scratch, n, &digits, differ);

	/* those equal in these digits, by the bits below */
	for (size_t i = 1; digits.shift > 0 && i <= n; i++)
	{
		if (i < n && (items[i].key ^ items[start].key) >> digits.shift == 0)
			continue;
		if (i - start > 1)
			cb_radix_sort(items + start, scratch, i - start);
		start = i;
	}
}
