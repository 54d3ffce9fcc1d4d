/*-------------------------------------------------------------------------
 *
 * cb_window_lock.c
 *	  What a scan of a serializable transaction locks before it reads a window.
 *
 * A value, if the scan wants nothing but that, else the range of a downlink
 * (tree/cb_predicate.c), with which the window ends.  All levels are read after
 * that, for each window; so is the journal of an index without buckets, which
 * other scans read once (A34).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"
#include "storage/predicate.h"

/*
 * Values that a scan locks one by one.  If it wants more they may be neighbours,
 * and the server has no room for many locks: it would lock the whole index.
 */
#define CB_LOCKED_VALUES_MAX	16

/*
 * Locks what the window that starts at so->pos will be read of, if the
 * transaction is serializable.  Nothing has been read for it; so->locked.end is
 * where it has to end, in the memory context of the window's reading.  Going
 * forward so->pos gets a leaf to begin at.
 *
 * No page is locked.  Comparison functions run.  Raises the error of a
 * transaction that is to fail.
 */
void
cb_window_lock(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	Relation	rel = scan->indexRelation;
	uint32		hash;

	so->locked.end = NULL;
	so->locks = CheckForSerializableConflictOutNeeded(rel, scan->xs_snapshot);
	if (likely(!so->locks))
		return;
	if (so->nlocked_values < CB_LOCKED_VALUES_MAX && so->keys.space.ncolumns == 1 &&
		cb_window_find_hash(so, dir, &hash))
	{
		so->nlocked_values++;
		cb_predicate_lock_value(rel, hash, scan->xs_snapshot);
	}
	else
	{
		cb_predicate_lock_range(&so->kd, &so->pos.bound, dir, scan->xs_snapshot,
								&so->descent, &so->locked);
		if (ScanDirectionIsForward(dir))
			so->pos.leaf = so->locked.leaf;
	}
	CB_TEST_POINT("scan-locked");
}

/*
 * May what was read of the journal lack entries that were published before the
 * window's lock was taken?  The view of the buckets has been opened since.
 */
bool
cb_window_journal_is_old(const CbScanOpaqueData *so)
{
	return so->locks && so->view.attach_id == 0;
}
