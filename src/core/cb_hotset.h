/*-------------------------------------------------------------------------
 *
 * cb_hotset.h
 *	  Entries found by look-ups, by the hash of their key; a table of fixed
 *	  size.
 *
 * An entry is put in by somebody who keeps others from changing its leaf
 * meanwhile, with the leaf's count of changes (cb_changes.h).  Whoever changes a
 * leaf adds to its count while he keeps others from reading it.  So an entry whose
 * leaf has the count still is as the leaf is, without a look at the leaf.
 *
 * Invariants:
 *	a) An entry is found as it was put in, or not at all: a line of entries is
 *	   written by one at a time, and who reads one that is being written sees so
 *	   from its state, of which each writer makes another.
 *	b) Nothing is promised to be there.  Nobody waits: who finds a line taken
 *	   does without.
 *
 * A line has the size of two of the CPU's.  Of its entries the one is replaced
 * that was not found since it was last looked at for this (second chance).
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_HOTSET_H
#define CB_HOTSET_H

#include <stddef.h>

#include "core/cb_atomic.h"

#define CB_HOTSET_WAYS		3
#define CB_HOTSET_DATA		3	/* words of 8 bytes, the caller's */

typedef struct CbHotItem
{
	uint32_t	owner;			/* not 0 */
	uint32_t	hash;			/* of the key; equal ones need not be the same */
	uint32_t	block;			/* of the leaf */
	uint64_t	changes;		/* the leaf's count; 48 bits are kept */
	uint64_t	data[CB_HOTSET_DATA];
} CbHotItem;

typedef struct CbHotLine
{
	cb_atomic64 state;
	cb_atomic64 words[CB_HOTSET_WAYS][2 + CB_HOTSET_DATA];
} CbHotLine;

typedef struct CbHotSet
{
	uint32_t	nlines;
	CbHotLine  *lines;			/* the caller's memory */
} CbHotSet;

/* Nobody else may use the set yet. */
extern void cb_hotset_init(CbHotSet *set, CbHotLine *lines, uint32_t nlines);

/* Finds owner's entry of that hash; its leaf may have changed since. */
extern bool cb_hotset_find(CbHotSet *set, uint32_t owner, uint32_t hash,
						   CbHotItem *item);

/* Puts an item in, in the place of its predecessor if there is one. */
extern void cb_hotset_put(CbHotSet *set, const CbHotItem *item);

/* Takes owner's entry of that hash out. */
extern void cb_hotset_remove(CbHotSet *set, uint32_t owner, uint32_t hash);

#endif							/* CB_HOTSET_H */
