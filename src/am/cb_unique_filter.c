/*-------------------------------------------------------------------------
 *
 * cb_unique_filter.c
 *	  Filling the filters of unique indexes: bucket/cb_key_filter.h says why they
 *	  can be believed.
 *
 * Checks that have to read the index are counted, as are looks of ON CONFLICT
 * that find nothing.  When they are as many as the index has pages, to read all
 * of it once costs no more than they did: then a worker that has come to flush
 * the index begins to fill a filter.  It reads all windows of a scan, in slices,
 * between which it ends its transaction; where the last one ends is noted with
 * the filter, and any worker goes on there.  Bounds are in the order of (key,
 * TID), in which no entry moves, so that what is there all the time is in one of
 * the windows, and each is read as any scan's is (I1, I2).
 *
 * One process at a time does so, which a lock of the lock manager tells, so that
 * it is given back after an error.  Hash functions are the server's; comparisons,
 * which the scan makes, as well (cb_unique.c, f).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "am/cb_scan.h"
#include "am/cb_unique.h"
#include "base/cb_clock.h"
#include "base/cb_counts.h"
#include "base/cb_waiter.h"
#include "bucket/cb_claim.h"
#include "bucket/cb_key_filter.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "utils/snapmgr.h"

/* looks of a process that are counted together */
#define CB_FILTER_LOOKS			256

/* a worker reads for so long in one transaction */
#define CB_FILTER_SLICE_MS		50

/*
 * A filter that has fewer bits a key is filled anew, if it can be larger or most of
 * its keys are gone; or is given up.
 */
#define CB_FILTER_SMALL_BITS	4
#define CB_FILTER_FULL_BITS		3

/* so many times more keys than there are entries: most are gone */
#define CB_FILTER_GONE			4

/* entries in a page of the index, if nothing is known: about, and at most */
#define CB_FILTER_PAGE_KEYS		150
#define CB_FILTER_PAGE_MAX		1500

/* pages that are not worth a filter */
#define CB_FILTER_MIN_PAGES		64

/* Do tests want filters at once? */
static inline bool
cb_filter_is_tested(void)
{
#ifdef CB_TESTPOINTS
	return cb_test_filters;
#else
	return false;
#endif
}

/* A key was looked for in the index's entries. */
void
cb_unique_count_look(Relation index)
{
	static uint32 nlooks = 0;

	if (++nlooks % CB_FILTER_LOOKS == 0 || cb_filter_is_tested())
		cb_key_filter_count_looks(RelationGetRelid(index), CB_FILTER_LOOKS);
}

/* About how many entries the index has, with so many in a page if nothing is known. */
static uint64
cb_filter_count_entries(Relation index, int page_keys)
{
	uint64		npages = RelationGetNumberOfBlocks(index);

	if (index->rd_rel->relpages > 0 && index->rd_rel->reltuples > 0)
		return index->rd_rel->reltuples / index->rd_rel->relpages * npages;
	return npages * page_keys;
}

/* Are most of the keys that the index's filter has seen gone? */
static bool
cb_filter_is_of_gone(Relation index, const CbKeyFilterInfo *info)
{
	return info->nkeys >
		CB_FILTER_GONE * cb_filter_count_entries(index, CB_FILTER_PAGE_MAX);
}

/* Has a filter that answers fewer bits for each key? */
static bool
cb_filter_has_less(const CbKeyFilterInfo *info, int bits)
{
	return info->state == CB_KEY_FILTER_READY &&
		info->nbytes * BITS_PER_BYTE < info->nkeys * bits;
}

/*
 * Does the index want another filter?  It has none, or a small one, and as many
 * looks were taken since that was begun as it takes pages to read it.
 */
static bool
cb_filter_is_wanted(Relation index, const CbKeyFilterInfo *info)
{
	uint64		npages = Max(RelationGetNumberOfBlocks(index), CB_FILTER_MIN_PAGES);

	return info->nlooks >= (cb_filter_is_tested() ? 1 : npages) &&
		(info->state == CB_KEY_FILTER_NONE ||
		 cb_filter_has_less(info, CB_FILTER_SMALL_BITS));
}

/* The hash of an entry's key; false: it has a null that makes it distinct. */
static bool
cb_filter_get_hash(Relation index, FmgrInfo **functions, IndexTuple entry,
				   uint64 *hash)
{
	*hash = 0;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		bool		isnull;
		Datum		value = index_getattr(entry, i + 1, RelationGetDescr(index),
										  &isnull);

		if (isnull && !index->rd_index->indnullsnotdistinct)
			return false;
		*hash = cb_unique_add_hash(index, i, functions[i], value, isnull, *hash);
	}
	return true;
}

/* Adds the keys of the window's entries. */
static void
cb_filter_add_window(IndexScanDesc scan, FmgrInfo **functions)
{
	Relation	index = scan->indexRelation;
	const CbWindow *window = ((CbScanOpaque) scan->opaque)->cur;

	for (int i = 0; i < window->nitems; i++)
	{
		uint64		hash;

		if (cb_filter_get_hash(index, functions, window->items[i].itup, &hash))
			cb_claim_add_key(RelationGetRelid(index), &index->rd_locator, hash);
	}
}

/* Is it time to end the slice that began then? */
static bool
cb_filter_must_pause(TimestampTz began)
{
	return cb_waiter_is_there() || cb_filter_is_tested() ||
		TimestampDifferenceExceeds(began, cb_clock_now(), CB_FILTER_SLICE_MS);
}

/*
 * Adds the keys of windows from the place on, NULL: the beginning, until the slice
 * is over.  True: there is no further window.
 */
static bool
cb_filter_read(IndexScanDesc scan, FmgrInfo **functions, const CbKeyFilterPlace *place)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	TimestampTz began = cb_clock_now();

	if (place == NULL)
		cb_window_read_beside(scan, NULL, false);
	else
		cb_window_read_beside(scan, (IndexTuple) &place->tuple, place->after);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		cb_filter_add_window(scan, functions);
		CB_TEST_POINT("filter-window");
		if (!so->cur->more_right)
			return true;
		if (cb_filter_must_pause(began))
			return false;
		cb_window_read_next(scan);
	}
}

/* Reads a slice; true: that was the last one.  The earlier claims have ended. */
static bool
cb_filter_read_slice(Relation index, FmgrInfo **functions)
{
	IndexScanDesc scan = cb_am_beginscan(index, 0, 0);
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	SnapshotData dirty;
	bool		done;

	InitDirtySnapshot(dirty);
	scan->xs_snapshot = &dirty;
	so->for_unique = true;
	so->is_internal = true;
	so->removals = cb_counts_removals(index);
	cb_am_rescan(scan, NULL, 0, NULL, 0);
	done = cb_filter_read(scan, functions, cb_key_filter_get_place(index));
	if (done)
		cb_key_filter_finish(index);
	else
		cb_key_filter_set_place(index, &so->cur->hi.bound);
	cb_am_endscan(scan);
	IndexScanEnd(scan);
	return done;
}

/* The lock by which one process fills the index's filter. */
static void
cb_filter_set_locktag(LOCKTAG *tag, Relation index)
{
	SET_LOCKTAG_TUPLE(*tag, MyDatabaseId, RelationGetRelid(index),
					  InvalidBlockNumber, FirstOffsetNumber);
}

/* Begins the filter that the index wants, or gives up one that is of no use. */
static void
cb_filter_renew(Relation index, const CbKeyFilterInfo *info)
{
	bool		gone = cb_filter_is_of_gone(index, info);
	uint64		nkeys = cb_filter_count_entries(index, CB_FILTER_PAGE_KEYS);

	if (!gone)
		nkeys = Max(nkeys, info->nkeys);
	if (!cb_key_filter_begin(index, nkeys * 3 / 2, gone) &&
		cb_filter_has_less(info, CB_FILTER_FULL_BITS))
		cb_key_filter_forget(&index->rd_locator);
}

/* Begins a filter, or goes on with it; true: there is more to do. */
static bool
cb_filter_go_on(Relation index, FmgrInfo **functions)
{
	CbKeyFilterInfo info = cb_key_filter_look(index);

	if (cb_filter_is_wanted(index, &info))
	{
		cb_filter_renew(index, &info);
		info = cb_key_filter_look(index);
	}
	return info.state == CB_KEY_FILTER_FILLING && info.settled &&
		!cb_filter_read_slice(index, functions);
}

/*
 * What a worker does for the filter of an index that it has come to flush; true:
 * it shall come again soon for the rest.  It holds RowExclusiveLock on the index,
 * in a transaction, as the index's owner.  Waits for no lock of the lock manager.
 * Raises errors; then there is no filter, as it would have no end.
 */
bool
cb_unique_fill_filter(Relation index)
{
	FmgrInfo   *functions[INDEX_MAX_KEYS];
	LOCKTAG		tag;
	volatile bool more;

	if (!CB_HAS_UNIQUE)
		return false;
	cb_key_filter_forget_idle();
	if (!index->rd_index->indisunique || !cb_unique_get_hashes(index, functions))
		return false;
	cb_filter_set_locktag(&tag, index);
	if (LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		return false;
	PG_TRY();
	{
		more = cb_filter_go_on(index, functions);
	}
	PG_CATCH();
	{
		cb_key_filter_forget(&index->rd_locator);
		PG_RE_THROW();
	}
	PG_END_TRY();
	(void) LockRelease(&tag, ExclusiveLock, false);
	return more;
}
