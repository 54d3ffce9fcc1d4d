/*-------------------------------------------------------------------------
 *
 * cb_window.h
 *	  A window's tiers and its leaf, shared by the window files only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_WINDOW_H
#define CB_WINDOW_H

#include "am/cb_merge.h"
#include "executor/instrument.h"

/* cb_place.c */
extern void cb_place_set_tuple(CbScanOpaque so, CbPlace *place,
							   IndexTuple tuple, bool after);
extern void cb_place_set_keys(CbScanOpaque so, CbPlace *place,
							  IndexTuple entry, ScanDirection dir);
extern void cb_place_copy(CbScanOpaque so, CbPlace *dst, const CbPlace *src);

/* cb_window_lock.c */
extern void cb_window_lock(IndexScanDesc scan, ScanDirection dir);
extern bool cb_window_journal_is_old(const CbScanOpaqueData *so);

/* cb_window_bucket.c */
extern bool cb_window_find_hash(CbScanOpaque so, ScanDirection dir, uint32 *hash);
extern void cb_window_set_hash(CbScanOpaque so, ScanDirection dir);
extern void cb_window_copy_bucket(IndexScanDesc scan, ScanDirection dir);
extern void cb_window_open_bucket(CbScanOpaque so, CbMerge *merge,
								  CbPlace *near, CbPlace *far);

/* cb_window_journal.c */
extern void cb_window_copy_journal(IndexScanDesc scan, ScanDirection dir);
extern void cb_window_open_journal(CbScanOpaque so, CbMerge *merge,
								   CbPlace *near, CbPlace *far);

/* cb_window_range.c */
extern void cb_window_copy_range(IndexScanDesc scan, ScanDirection dir);
extern void cb_window_open_range(CbScanOpaque so, CbMerge *merge,
								 CbPlace *near, CbPlace *far);
extern bool cb_window_lost_run(CbScanOpaque so);

/* cb_window_leaf.c */
extern bool cb_window_read_leaf(IndexScanDesc scan, ScanDirection dir,
								bool in_place);
extern void cb_window_unlock_leaf(IndexScanDesc scan);

/* cb_window_cached.c */
extern bool cb_window_may_be_cached(IndexScanDesc scan);
extern bool cb_window_find_cached(IndexScanDesc scan, CbCachedTuple *tuple,
								  BlockNumber *leaf);
extern void cb_window_keep_cached(IndexScanDesc scan);

/* Pages that this backend has read from files. */
static inline int64
cb_window_count_reads(void)
{
#ifdef CB_TESTPOINTS
	static int64 n = 0;

	if (cb_test_read_ahead)
		return n++;
#endif
	return pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
}

#endif							/* CB_WINDOW_H */
