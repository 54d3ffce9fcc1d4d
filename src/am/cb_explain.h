/*-------------------------------------------------------------------------
 *
 * cb_explain.h
 *	  What an index scan took from each level, for EXPLAIN and for those who
 *	  ask afterwards.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_EXPLAIN_H
#define CB_EXPLAIN_H

#include "base/cb_compat.h"

/* the upper levels, in the order of their CbSourceKind from CB_SOURCE_RUN on */
typedef enum CbScanUpper
{
	CB_UPPER_RUN,				/* the journal, a copy of the scan's own */
	CB_UPPER_CHUNK,				/* a bucket */
	CB_UPPER_SHARED,			/* the journal's shared copy */
	CB_UPPER_SPILLED,			/* range buffers */
	CB_NUM_UPPERS
} CbScanUpper;

/*
 * Since the scan was made; entries that it wanted, also if read once more.  Few
 * bytes, as each look-up zeroes and keeps them: the smaller ones would wrap after
 * hours of one scan.
 */
typedef struct CbScanCounts
{
	int64		entries;		/* of all levels, ... */
	uint32		upper[CB_NUM_UPPERS];	/* ... of these */
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
