/*-------------------------------------------------------------------------
 *
 * cb_merge.h
 *	  The merge of a window's tiers, shared by the scan files only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_MERGE_H
#define CB_MERGE_H

#include "am/cb_scan.h"

/*
 * One sorted input of the merge.  cur is the place of head: an ordinal of the
 * leaf's packed part, an offset of the leaf, or an index of a component's
 * entries, of the chunk's order, of a shared component's member, or of those on
 * a range buffer's page.  It moves by the merge's step and is used up at end.
 */
typedef struct CbSource
{
	CbSourceKind kind;
	CbCopyComponent *component;
	const CbChunk *chunk;
	CbChunkPlaces places;		/* places of the chunk's entries */
	const CbDirectory *shared;	/* chunk is one of its members */
	uint32		member;
	CbRunCursor *cursor;		/* of a range buffer's run */
	int			first;
	int			cur;
	int			end;
	IndexTuple	head;
	bool		head_dead;		/* head is marked dead: not to be returned */
} CbSource;

#define CbSourceIsUpper(source) ((source)->kind >= CB_SOURCE_UPPER)

#define CB_MERGE_MAX \
	(CB_COPY_MAX_COMPONENTS + CB_BUCKET_MAX_CHUNKS + CB_SHARED_MAX_COMPONENTS + \
	 CB_RANGE_MAX_RUNS + 3)

typedef struct CbMerge
{
	int			step;			/* 1 forward, -1 backward */
	const CbBound *far;			/* where the window ends */
	bool		leaf_open;		/* the leaf's entries go on beyond it */
	int			nsources;
	CbSource	sources[CB_MERGE_MAX];
	int			nordered;
	CbSource   *ordered[CB_MERGE_MAX];	/* by head, in scan order */
	bool		packed_has_dead;	/* may any of its entries be marked dead? */
	bool		reads_on;		/* are they read many at once? */
	int			nread;			/* entries of it that were read at once, ... */
	int			read_from;		/* ... from this one on */
	IndexTuple	read[CB_PACK_BLOCK];
} CbMerge;

/* Adds the entries of the leaf between the window's bounds. */
extern void cb_merge_open_leaf(CbScanOpaque so, CbMerge *merge);

/* Adds a shared component's entries from a place on. */
extern void cb_merge_add_shared(CbMerge *merge, const CbDirectory *component,
								const CbSharedPlace *place);

/* All sources are open, and are the leaf's: is there no such number? */
extern bool cb_merge_lacks_number(CbScanOpaque so, const CbMerge *merge);

/* All sources are open: from here on ordered[0] has the next entry. */
extern void cb_merge_start(IndexScanDesc scan, CbMerge *merge);

/* The scan may want many entries. */
extern void cb_merge_read_on(CbScanOpaque so, CbMerge *merge);

/* How many entries come next and are at hand; number k of them. */
extern int	cb_merge_count_ready(CbScanOpaque so, const CbMerge *merge);
static inline IndexTuple
cb_merge_ready(const CbMerge *merge, int k)
{
	return merge->read[merge->ordered[0]->cur - merge->read_from + k * merge->step];
}

extern void cb_merge_advance(IndexScanDesc scan, CbMerge *merge, int n);

#endif							/* CB_MERGE_H */
