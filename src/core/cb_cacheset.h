/*-------------------------------------------------------------------------
 *
 * cb_cacheset.h
 *	  Entries found by look-ups, by the hash of their key; a table of fixed
 *	  size.
 *
 * An entry is put in by somebody who keeps others from changing its leaf
 * meanwhile, with the leaf's count of changes (cb_changes.h).  Whoever changes
 * a leaf adds to its count while keeping others from reading it.  So an entry
 * whose leaf has the count still is as the leaf is, without a look at the
 * leaf.
 *
 * Invariants:
 *	a) An entry is found as it was put in, or not at all: a line of entries is
 *	   written by one at a time, and who reads one that is being written sees
 *	   so from its state, of which each writer makes another.
 *	b) Nothing is promised to be there.  Nobody waits: who finds a line taken
 *	   does without.
 *
 * A line has the size of two of the CPU's.  Of its entries the one is replaced
 * that was not found since it was last looked at for this (second chance).
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_CACHESET_H
#define CB_CACHESET_H

#include <stddef.h>

#include "core/cb_atomic.h"

#define CB_CACHESET_WAYS		3
#define CB_CACHESET_DATA		3	/* words of 8 bytes, the caller's */

typedef struct CbCacheItem
{
	uint32_t	owner;			/* not 0 */
	uint32_t	hash;			/* of the key; equal ones need not be the same */
	uint32_t	block;			/* of the leaf */
	uint64_t	changes;		/* the leaf's count; 48 bits are kept */
	uint64_t	data[CB_CACHESET_DATA];
} CbCacheItem;

typedef struct CbCacheLine
{
	cb_atomic64 state;
	cb_atomic64 words[CB_CACHESET_WAYS][2 + CB_CACHESET_DATA];
} CbCacheLine;

typedef struct CbCacheSet
{
	uint32_t	nlines;
	CbCacheLine *lines;			/* the caller's memory */
} CbCacheSet;

/* Nobody else may use the set yet. */
extern void cb_cacheset_init(CbCacheSet *set, CbCacheLine *lines, uint32_t nlines);

/* Finds owner's entry of that hash; its leaf may have changed since. */
extern bool cb_cacheset_find(CbCacheSet *set, uint32_t owner, uint32_t hash,
							 CbCacheItem *item);

/* Puts an item in, in the place of its predecessor if there is one. */
extern void cb_cacheset_put(CbCacheSet *set, const CbCacheItem *item);

/* Takes owner's entry of that hash out. */
extern void cb_cacheset_remove(CbCacheSet *set, uint32_t owner, uint32_t hash);

#endif							/* CB_CACHESET_H */
