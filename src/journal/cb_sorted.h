/*-------------------------------------------------------------------------
 *
 * cb_sorted.h
 *	  A piece of the journal, sorted where it was copied to.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_SORTED_H
#define CB_SORTED_H

#include "core/cb_radix.h"
#include "rel/cb_key.h"

/*
 * Entries of some pages in turn.  Their bytes lie as on the pages, so an entry's
 * position tells where it is.
 */
typedef struct CbSorted
{
	MemoryContext cxt;			/* of what follows */
	char	   *bytes;			/* of pages, from first on */
	uint32		npages;			/* that there is room for */
	CbPos		first;			/* of the first page's beginning */
	int			n;				/* entries */
	int			allocated;
	CbRadixItem *items;			/* abbreviation and position of each */
	int			nscratch;
	CbRadixItem *scratch;
} CbSorted;

/* The entry at a position. */
static inline IndexTuple
cb_sorted_entry(const CbSorted *sorted, CbPos pos)
{
	return (IndexTuple) (sorted->bytes + (pos - sorted->first));
}

extern void cb_sorted_init(CbSorted *sorted, MemoryContext cxt, uint32 npages);
extern void cb_sorted_begin(CbSorted *sorted, CbPos pos);
extern void cb_sorted_add(const CbKeyDesc *kd, CbSorted *sorted, CbPos pos);
extern void cb_sorted_finish(const CbKeyDesc *kd, CbSorted *sorted);

#endif							/* CB_SORTED_H */
