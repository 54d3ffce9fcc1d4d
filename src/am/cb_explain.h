/*-------------------------------------------------------------------------
 *
 * cb_explain.h
 *	  What an index scan took from each tier, for EXPLAIN and for those who
 *	  ask afterwards.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_EXPLAIN_H
#define CB_EXPLAIN_H

#include "base/cb_compat.h"

/* where an entry of a scan comes from: a part of the leaf, or an upper tier */
typedef enum CbSourceKind
{
	CB_SOURCE_PACKED,			/* the leaf's packed part */
	CB_SOURCE_LEAF,				/* its plain entries */
	CB_SOURCE_JOURNAL,			/* the journal, a copy of the scan's own */
	CB_SOURCE_CHUNK,			/* a bucket */
	CB_SOURCE_SHARED,			/* the journal's shared copy */
	CB_SOURCE_RANGE				/* range buffers */
} CbSourceKind;

#define CB_SOURCE_UPPER	CB_SOURCE_JOURNAL	/* the first upper tier */
#define CB_NUM_UPPERS	(CB_SOURCE_RANGE + 1 - CB_SOURCE_UPPER)

/*
 * Since the scan was made; entries that it wanted, also if read once more.  Few
 * bytes, as each look-up zeroes and keeps them: the smaller ones would wrap after
 * hours of one scan.
 */
typedef struct CbScanCounts
{
	int64		entries;		/* of all tiers, ... */
	uint32		upper[CB_NUM_UPPERS];	/* ... of these, from CB_SOURCE_UPPER on */
	uint32		windows;
	uint32		cached;			/* windows that took an entry of the entry cache,
								 * and read no leaf */
} CbScanCounts;

typedef struct CbLastScan
{
	CbScanCounts counts;
	Oid			indexoid;
} CbLastScan;

/* leaves read; entries of them; entries of the journal */
extern int64 cb_explain_leaves(const CbScanCounts *counts);
extern int64 cb_explain_leaf_entries(const CbScanCounts *counts);
extern int64 cb_explain_journal_entries(const CbScanCounts *counts);

/* scans of this session that have ended, the last one first */
extern const CbLastScan *cb_explain_last_scan(int i);

extern void cb_explain_keep(const CbScanCounts *counts, Oid indexoid);
extern void cb_explain_init(void);

#endif							/* CB_EXPLAIN_H */
