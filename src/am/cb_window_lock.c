/*-------------------------------------------------------------------------
 *
 * cb_window_lock.c
 *	  What a scan of a serializable transaction locks before it reads a window.
 *
 * One of three (tree/cb_predicate.c):
 *
 *	- a value, if the window is for nothing but that: the scan wants no other,
 *	  or the window ends with it (cb_window_set_hash).  It ends there because
 *	  the leaf has entries of the next values, which are not locked yet
 *	  (A32_POINT);
 *	- a few cells, if the scan wants a short range of numbers;
 *	- else the range of a downlink.  The window ends with that: the leaf may
 *	  have got a left neighbour's range since the upper tiers were read, and
 *	  nobody had locked that for the scan then (A32_CLIP).
 *
 * A cached entry stands for a whole value.  If that goes beyond what was locked
 * the entry is not used.
 *
 * All tiers are read after the lock is taken, for each window.  So is the
 * journal of an index without buckets, which other scans read once (A34_ANEW);
 * buckets have all that comes after a scan's copies.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "am/cb_window.h"
#include "storage/predicate.h"

/*
 * With so many locks of values and cells of an index a transaction locks
 * downlinks only.  If it reads more they may be neighbours, and the server has
 * no room for many locks: it would lock the whole index in place of more than
 * 31 parts of it, by default.
 */
#define CB_LOCKED_MAX	15

/*
 * How many the transaction has locked, with n more.  Those that it locks again
 * count again.
 */
static int
cb_window_count_locked(Relation rel, int n)
{
	CbRelCache *cache = cb_rel_cache(rel);
	TimestampTz began = GetCurrentTransactionStartTimestamp();

	if (cache->locking_since != began)
	{
		cache->locking_since = began;
		cache->nlocked = 0;
	}
	return cache->nlocked += n;
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
 * transaction is serializable.  Nothing has been read for it.  so->locked.end
 * is where it has to end, in the memory context of the window's reading; or it
 * has to end with its value, if so->locks_value.  Going forward so->pos gets a
 * leaf to begin at.
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
	so->locks_value = false;
	so->locks = CheckForSerializableConflictOutNeeded(rel, scan->xs_snapshot);
	if (likely(!so->locks))
		return;
	few = cb_window_count_locked(rel, 0) < CB_LOCKED_MAX;
	so->locks_value = few && so->keys.space.ncolumns == 1 &&
		cb_window_find_hash(so, dir, &hash);
	if (so->locks_value)
		cb_predicate_lock_value(rel, hash, scan->xs_snapshot);
	else
	{
		few = few && cb_window_find_numbers(so, &numbers);
		cb_predicate_lock_keys(&so->kd, &so->pos.bound, dir, scan->xs_snapshot,
							   &so->descent, few ? &numbers : NULL, &so->locked);
		if (ScanDirectionIsForward(dir))
			so->pos.leaf = so->locked.leaf;
	}
	(void) cb_window_count_locked(rel, so->locks_value ? 1 : so->locked.ncells);
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
