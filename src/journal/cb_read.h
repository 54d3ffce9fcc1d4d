/*-------------------------------------------------------------------------
 *
 * cb_read.h
 *	  Reading the journal's pages, shared by private copies and drains.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_READ_H
#define CB_READ_H

#include "journal/cb_journal.h"

/* entries read from the journal, and the memory that holds them */
typedef struct CbReader
{
	MemoryContext cxt;			/* of the arrays, ... */
	MemoryContext bytes_cxt;	/* ... and of the entries' bytes: the same, or
								 * the caller's other one */
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
} CbReader;

extern void cb_read_begin(CbReader *reader, Relation rel, MemoryContext cxt,
						  CbPos pos, BlockNumber block, CbPos limit);
extern void cb_read_begin_again(CbReader *reader, CbPos pos, BlockNumber block,
								CbPos limit);
extern bool cb_read_to_head(const CbKeyDesc *kd, CbReader *reader,
							Snapshot snapshot);

#endif							/* CB_READ_H */
