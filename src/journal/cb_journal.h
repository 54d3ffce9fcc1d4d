/*-------------------------------------------------------------------------
 *
 * cb_journal.h
 *	  The journal: the durable copy of entries that are not in the tree yet.
 *
 * A chain of pages of the index relation, linked from the one that holds the
 * tail (metapage) to the last.  Entries are only ever appended to the last
 * page; its exclusive content lock is the append lane.  A page is a live
 * journal page if it has the expected sequence number; readers check that
 * under the page lock, since truncated pages are reused.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_JOURNAL_H
#define CB_JOURNAL_H

#include "tree/cb_tree.h"

/*
 * One immutable sorted part of a backend's private copy.  Kept alive by the
 * references of the copy and of scans.
 */
typedef struct CbRun
{
	int			refcount;
	int			n;
	CbPos		min_pos;
	CbPos		max_pos;
	Size		bytes;
	MemoryContext cxt;			/* holds everything of the run */
	CbSortEntry *entries;		/* sorted by (key, TID), no duplicates */
} CbRun;

#define CB_MAX_RUNS		8

/*
 * What a scan sees of the upper levels: entries of the runs at journal
 * positions >= tail.  Immutable for the scan's life.
 */
typedef struct CbUpper
{
	CbPos		tail;
	int			nruns;
	CbRun	   *runs[CB_MAX_RUNS];
	MemoryContextCallback cb;
	bool		released;
} CbUpper;

/* pages and entries that a drain has read */
typedef struct CbJournalBatch
{
	CbPos		from;			/* the tail that was read from */
	CbPos		upto;			/* V: the head when it was read */
	BlockNumber upto_block;
	int			npages;			/* pages wholly below upto, for recycling */
	BlockNumber *pages;
	int			n;
	CbSortEntry *entries;		/* unsorted, journal order */
} CbJournalBatch;

/* cb_append.c */
extern uint64 cb_journal_append(Relation rel, CbSortEntry *entries, int n);
extern void cb_redo_journal_append(XLogReaderState *record);

/* cb_copy.c: private sorted copies */
extern CbUpper *cb_copy_acquire(const CbKeyDesc *kd, Snapshot snapshot);
extern void cb_copy_release(CbUpper *upper);

/* cb_drain.c */
extern void cb_journal_read_all(const CbKeyDesc *kd, CbJournalBatch *batch);
extern void cb_journal_truncate(Relation rel, const CbJournalBatch *batch);
extern void cb_redo_journal_truncate(XLogReaderState *record);

#endif							/* CB_JOURNAL_H */
