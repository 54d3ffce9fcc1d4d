/*-------------------------------------------------------------------------
 *
 * cb_journal.h
 *	  The journal: the durable copy of entries that no lower tier has yet.
 *
 * A chain of pages of the index relation, linked from the one that holds the
 * tail (metapage) to the last.  Entries are only ever appended to the last
 * page; its exclusive content lock is the append lock.  A page is a live
 * journal page if it has the expected sequence number; readers check that
 * under the page lock, since truncated pages are reused.
 *
 * Invariants:
 *	a) Along the right links numbers go up by one, and no build uses one twice;
 *	   so positions are in the order of appending.
 *	b) While a page has its number, what it has below its end does not change.
 *	   It gets its right link once, in the record of its successor's first
 *	   entries; from then on nothing of it changes.
 *	c) The tail lies between two entries, or at the head, and only rises.  A
 *	   page with a smaller number than the tail's is free.
 *	d) The last page is never given up: an index without one has had no entry
 *	   here since it was built.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_JOURNAL_H
#define CB_JOURNAL_H

#include "rel/cb_key.h"
#include "rel/cb_rel.h"

/*
 * One immutable sorted part of a backend's private copy.  Kept alive by the
 * references of the copy and of scans, which the backend counts without a lock.
 */
typedef struct CbCopyComponent
{
	int			refcount;
	int			n;
	CbPos		min_pos;
	CbPos		max_pos;
	Size		bytes;
	MemoryContext cxt;			/* holds everything of the component */
	CbSortEntry *entries;		/* sorted by (key, TID), no duplicates */
} CbCopyComponent;

#define CB_COPY_MAX_COMPONENTS		8

/* pages that a private copy reads: as many as there are */
#define CB_COPY_ALL_PAGES	(UINT64_C(1) << 40)

/* no limit: as far as the journal's head */
#define CB_POS_MAX		PG_UINT64_MAX

/*
 * What a scan has read of the journal by itself: entries of the components at
 * positions >= tail and >= from.  Immutable for the scan's life.  It has a
 * reference to each component, which the end of its memory context gives up.
 */
typedef struct CbUpper
{
	CbPos		tail;
	CbPos		from;			/* what lies below is in the shared copy; 0:
								 * nothing does */
	ScanDirection dir;			/* not 0: it has what lies beyond a bound in
								 * this direction, ... */
	IndexTuple	end;			/* ... up to this entry, without it; NULL: all */
	int			ncomponents;
	CbCopyComponent *components[CB_COPY_MAX_COMPONENTS];
	MemoryContextCallback cb;
} CbUpper;

/*
 * Pages and entries that a drain has read.  The arrays and the entries are of the
 * memory context that was current then.  What it says of tail and pages is true
 * as long as the sweep lock is held.
 */
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

/*
 * What an upper layer does around the append lock.
 *
 * lock		before the append lock is taken; false: don't.  Nothing that can
 *			fail or wait for long may happen from here to unlock.
 * reserve	with the append lock: how many of the n entries from number first
 *			on may be appended at head, or behind it
 * fill		with the append lock, once m of them are in the journal: the first
 *			at pos, and head behind the last.  Cannot fail.
 * unlock	when the append lock is free again
 *
 * For each page that is tried, lock and unlock come in pairs; between them are
 * reserve, once or not at all, and fill, if anything was appended.  A try can
 * come to nothing, as the journal has gone on or a fresh page is needed: then it
 * is done again.  Less than n from reserve ends the call.  No comparison runs in
 * any of them (Order of locks in src/README).
 */
typedef struct CbAppendSink
{
	bool		(*lock) (void *arg);
	int			(*reserve) (void *arg, int first, int n, CbPos head);
	void		(*fill) (void *arg, int first, int m, CbPos pos, CbPos head);
	void		(*unlock) (void *arg);
} CbAppendSink;

/*
 * The page number that stands for "sweep of this index" in the lock manager.
 * Its holder alone moves the tail; who attaches buckets holds it, too.
 */
#define CB_SWEEP_LOCK_PAGE		1

/*
 * A page that has a successor: while it has this number it never changes, and
 * so has this LSN.
 */
typedef struct CbJournalPage
{
	BlockNumber block;
	uint64		seq;			/* 0: none */
	XLogRecPtr	lsn;
} CbJournalPage;

/*
 * Pages of the journal whose entries so much memory takes while they are
 * sorted: it is about six times their place there.
 */
static inline uint64
cb_journal_pages_in(uint64 kilobytes)
{
	return kilobytes * 1024 / 6 / BLCKSZ;
}

/*
 * A way along the pages of the journal.  Between two calls it holds a pin and a
 * share lock only from cb_walk_lock() to cb_walk_unlock().
 */
typedef struct CbJournalWalk
{
	Relation	rel;
	BufferAccessStrategy strategy;	/* NULL: the server's own */
	CbPos		tail;			/* that it began at, or 0 */
	BlockNumber block;			/* the page that it is at; Invalid: there is
								 * no more */
	uint64		seq;			/* that page's number */
	Buffer		buf;			/* its buffer while it is locked */
	BlockNumber next;			/* its right link when it was */
} CbJournalWalk;

/* cb_walk.c */
extern void cb_walk_begin(CbJournalWalk *walk, Relation rel, BlockNumber block,
						  uint64 seq);
extern void cb_walk_begin_at_tail(CbJournalWalk *walk, Relation rel);
extern Page cb_walk_lock(CbJournalWalk *walk);
extern void cb_walk_unlock(CbJournalWalk *walk);
extern void cb_walk_step(CbJournalWalk *walk);
extern void cb_walk_restart(CbJournalWalk *walk);
pg_noreturn extern void cb_walk_report_broken(const CbJournalWalk *walk);

/* cb_append.c */
extern int	cb_journal_append(Relation rel, CbSortEntry *entries, int n,
							  const CbAppendSink *sink, void *arg,
							  uint64 *length);
extern void cb_journal_visit_head(Relation rel, const CbAppendSink *sink,
								  void *arg);
extern void cb_redo_journal_append(XLogReaderState *record);

/* cb_copy.c: private sorted copies */
extern CbUpper *cb_copy_acquire(const CbKeyDesc *kd, Snapshot snapshot,
								CbPos from, BlockNumber from_block,
								CbPos limit, uint64 npages);
extern CbUpper *cb_copy_acquire_piece(const CbKeyDesc *kd, Snapshot snapshot,
									  CbPos from, BlockNumber from_block,
									  CbPos limit, const CbBound *near,
									  ScanDirection dir, const uint32 *hash);
extern CbUpper *cb_copy_acquire_again(const CbKeyDesc *kd);
extern bool cb_copy_acquire_empty(const CbKeyDesc *kd, CbUpper *upper);
extern void cb_copy_acquire_none(const CbKeyDesc *kd, CbPos tail,
								 CbUpper *upper);

/* cb_drain.c */
extern void cb_journal_read_all(const CbKeyDesc *kd, CbPos limit,
								CbJournalBatch *batch);
extern void cb_journal_truncate(Relation rel, const CbJournalBatch *batch);
extern bool cb_journal_truncate_to(Relation rel, CbPos pos);
extern void cb_redo_journal_truncate(XLogReaderState *record);

#endif							/* CB_JOURNAL_H */
