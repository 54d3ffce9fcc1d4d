/*-------------------------------------------------------------------------
 *
 * cb_radix.h
 *	  Sorting by 8-byte abbreviated keys.  Stable.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_RADIX_H
#define CB_RADIX_H

#include <stddef.h>
#include <stdint.h>

typedef struct CbRadixItem
{
	uint64_t	key;
	uint64_t	value;
} CbRadixItem;

/* Sorts n items by key; scratch has room for as many. */
extern void cb_radix_sort(CbRadixItem *items, CbRadixItem *scratch, size_t n);

#endif							/* CB_RADIX_H */
