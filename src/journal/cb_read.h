/*-------------------------------------------------------------------------
 *
 * cb_read.h
 *	  Reading the journal's pages, shared by copies and drains.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_READ_H
#define CB_READ_H

#include "journal/cb_journal.h"
#include "journal/cb_sorted.h"

/* entries read from the journal, and the memory that holds them */
typedef struct CbReader
{
	MemoryContext cxt;			/* of the arrays and the entries' bytes */
	CbSorted   *sorted;			/* the caller's, which gets the entries in their
								 * place; or NULL */
	CbJournalWalk walk;			/* at the page of pos */
	CbPos		pos;			/* where to read on */
	CbPos		limit;			/* end of an entry; not to be read beyond */
	const uint32 *hash;			/* only what has this in the first column is
								 * taken; NULL: all */
	int			npages;			/* pages read */
	CbJournalPage full;			/* the last of them that takes no more entries */
	int			n;
	int			allocated;
	CbSortEntry *entries;
	BlockNumber *left;			/* blocks of pages gone through, or NULL */
	int			nleft;
	int			left_allocated;
	char	   *spare;			/* memory of a page of which nothing was taken,
								 * for the next one; or NULL */
} CbReader;

extern void cb_read_begin(CbReader *reader, Relation rel, MemoryContext cxt,
						  CbPos pos, BlockNumber block, CbPos limit);
extern bool cb_read_to_head(const CbKeyDesc *kd, CbReader *reader,
							Snapshot snapshot);

#endif							/* CB_READ_H */
