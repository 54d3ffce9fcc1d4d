/*-------------------------------------------------------------------------
 *
 * cb_window_lock.c
 *	  What a scan of a serializable transaction locks before it reads a window.
 *
 * A value, if the scan wants nothing but that, or a few cells, if it wants a
 * short range of numbers; else the range of a downlink (tree/cb_predicate.c), with
 * which the window ends.  All levels are read after that, for each window; so is
 * the journal of an index without buckets, which other scans read once (A34).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "am/cb_window.h"
#include "storage/predicate.h"

/*
 * Windows of an index that a transaction locks by values or cells.  If it reads
 * more they may be neighbours, and the server has no room for many locks: it would
 * lock the whole index.
 */
#define CB_LOCKED_MAX	16

/* May another one be locked so? */
static bool
cb_window_count_locked(Relation rel)
{
	CbRelCache *cache = cb_rel_cache(rel);
	TimestampTz began = GetCurrentTransactionStartTimestamp();

	if (cache->locking_since != began)
	{
		cache->locking_since = began;
		cache->nlocked = 0;
	}
	return cache->nlocked++ < CB_LOCKED_MAX;
}

/*
 * Does the scan want a range of the first column's values that have exact
 * abbreviations, with two ends?
 */
static bool
cb_window_find_numbers(CbScanOpaque so, CbNumbers *numbers)
{
	const CbKeyColumn *column = &so->keys.space.columns[0];
	int			nlower = 0;

	if (so->keys.space.ncolumns == 0 || column->nconds != 2 ||
		(so->kd.hash == CB_HASH_NONE && cb_key_prepare_hash(&so->kd) == CB_HASH_NONE) ||
		so->kd.hash != CB_HASH_ABBREV)
		return false;
	for (int i = 0; i < 2; i++)
	{
		const CbKeyCond *cond = &column->conds[i];
		const CbKeysType *type = cond->arg;

		if (cond->kind == CB_COND_POINTS || cond->is_null || OidIsValid(type->type))
			return false;
		nlower += cond->kind == CB_COND_LOWER;
		(void) cb_key_abbreviate(&so->kd, (Datum) cond->values[0],
								 cond->kind == CB_COND_LOWER ? &numbers->low : &numbers->high);
	}
	return nlower == 1;
}

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
	CbNumbers	numbers;
	uint32		hash;
	bool		few;

	so->locked.end = NULL;
	so->locks = CheckForSerializableConflictOutNeeded(rel, scan->xs_snapshot);
	if (likely(!so->locks))
		return;
	few = cb_window_count_locked(rel);
	if (few && so->keys.space.ncolumns == 1 && cb_window_find_hash(so, dir, &hash))
		cb_predicate_lock_value(rel, hash, scan->xs_snapshot);
	else
	{
		few = few && cb_window_find_numbers(so, &numbers);
		cb_predicate_lock_range(&so->kd, &so->pos.bound, dir, scan->xs_snapshot,
								&so->descent, few ? &numbers : NULL, &so->locked);
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
