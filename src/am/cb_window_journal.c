/*-------------------------------------------------------------------------
 *
 * cb_window_journal.c
 *	  The journal as an upper level of a scan's windows.
 *
 * It is read to where the buckets begin, or to its head where there are none:
 * once after a rescan, into runs that stay as they are.  A window's places in
 * them go with its bounds (CbPlace).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"
#include "flush/cb_flush.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* ---------- places ---------- */

/*
 * The number of entries of [from, to) of the run left of the bound, plus from.
 */
static int
cb_window_search_run(CbScanOpaque so, const CbJournalRun *run, const CbBound *bound,
					 int from, int to)
{
	while (from < to)
	{
		int			mid = from + (to - from) / 2;

		if (cb_key_compare_bound(&so->kd, bound, run->entries[mid].itup) <= 0)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

/*
 * The same for the whole run, where the answer lies near a known place on the
 * side of dir: looks at ever larger steps from there first.
 */
static int
cb_window_search_run_near(CbScanOpaque so, const CbJournalRun *run, const CbBound *bound,
						  int start, ScanDirection dir)
{
	int			from = start;
	int			to = start;

	if (ScanDirectionIsForward(dir))
	{
		for (int jump = 1; to < run->n; jump *= 2)
		{
			to = Min(run->n, from + jump);
			if (cb_key_compare_bound(&so->kd, bound, run->entries[to - 1].itup) > 0)
			{
				to--;			/* known to be right of the bound */
				break;
			}
			from = to;
		}
	}
	else
	{
		for (int jump = 1; from > 0; jump *= 2)
		{
			from = Max(0, to - jump);
			if (cb_key_compare_bound(&so->kd, bound, run->entries[from].itup) <= 0)
			{
				from++;			/* known to be left of the bound */
				break;
			}
			to = from;
		}
	}
	return cb_window_search_run(so, run, bound, from, to);
}

/* ---------- copying ---------- */

/*
 * May what was copied of the upper levels serve a scan that starts again?
 * Under the same MVCC snapshot it may: entries of later rows are not visible
 * to it, and what has left the upper levels meanwhile is dropped where the
 * leaf has it too.
 */
bool
cb_window_upper_is_current(CbScanOpaque so, Snapshot snapshot)
{
	return so->upper != NULL && IsMVCCSnapshot(snapshot) &&
		so->upper_xmin == snapshot->xmin &&
		so->upper_xmax == snapshot->xmax &&
		so->upper_curcid == snapshot->curcid &&
		so->upper_completions == snapshot->snapXactCompletionCount;
}

/* All of the journal is in the tree. */
static CbUpper *
cb_window_acquire_none(CbScanOpaque so, Snapshot snapshot, CbPos tail)
{
	CbMetaPageData meta;

	/* a truncation leaves its LSN on the metapage (A16) */
	if (OldSnapshotThresholdActive())
		cb_rel_read_meta(so->kd.rel, snapshot, &meta);
	cb_copy_acquire_none(&so->kd, tail, &so->none);
	return &so->none;
}

/* Entries of the journal up to the limit. */
static CbUpper *
cb_window_acquire_some(CbScanOpaque so, Snapshot snapshot, CbPos limit)
{
	MemoryContext oldcxt;
	CbUpper    *upper;

	if (so->upper_cxt == NULL)
		so->upper_cxt = AllocSetContextCreate(so->cxt, "cachebatch scan levels",
											  ALLOCSET_SMALL_SIZES);
	oldcxt = MemoryContextSwitchTo(so->upper_cxt);
	upper = cb_copy_acquire(&so->kd, snapshot, limit);
	MemoryContextSwitchTo(oldcxt);
	return upper;
}

/* Which part of the journal it is that the buckets do not hold. */
static CbUpper *
cb_window_acquire_upper(CbScanOpaque so, Snapshot snapshot)
{
	CbBucketView *view = &so->view;
	CbUpper    *upper;
	CbEmptyJournal now;

	if (view->attach_id != 0 && view->swept)
		return cb_window_acquire_none(so, snapshot, view->from);
	if (cb_set_journal_is_empty(so->kd.rel, &now))
		return cb_window_acquire_none(so, snapshot,
									  cb_rel_cache(so->kd.rel)->journal_tail);
	upper = cb_window_acquire_some(so, snapshot, view->attach_id != 0 ?
								   view->from : CB_POS_MAX);

	/* give it buckets, and have what there is moved to the tree */
	if (view->attach_id == 0 && upper->nruns > 0)
	{
		CbBucketSet *set = cb_set_attach(&so->kd, false);

		if (set != NULL)
			cb_flush_request_before(set);
	}

	/* of an index with buckets it was not read to its head */
	if (view->attach_id == 0 && upper->nruns == 0)
		cb_set_note_empty_journal(so->kd.rel, &now);
	return upper;
}

/*
 * Once after a rescan, and again if the index has got or lost its buckets
 * since: tail and head are read with the snapshot taken.  What was acquired
 * before is kept until the next rescan, as windows may point into it.
 */
static void
cb_window_get_upper(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	Snapshot	snapshot = scan->xs_snapshot;

	if (so->upper != NULL && so->upper_attach_id == so->view.attach_id)
		return;
	CB_TEST_POINT("scan-copy-journal");
	so->upper = cb_window_acquire_upper(so, snapshot);
	so->upper_serial++;
	so->upper_attach_id = so->view.attach_id;
	so->upper_xmin = snapshot->xmin;
	so->upper_xmax = snapshot->xmax;
	so->upper_curcid = snapshot->curcid;
	so->upper_completions = snapshot->snapXactCompletionCount;

	/* what a sweep could not put into the tree has left the journal upwards */
	if (cb_bucket_view_is_late(&so->view))
	{
		cb_slot_release_to(so->view.mark);
		cb_window_copy_bucket(scan, dir);
		cb_window_get_upper(scan, dir);
	}
}

/*
 * Gives up what was copied of the journal, with its memory.  No window may
 * point into it any more.
 */
void
cb_window_release_upper(CbScanOpaque so)
{
	so->upper = NULL;
	if (so->upper_cxt != NULL)
		MemoryContextReset(so->upper_cxt);
}

/* ---------- reading ---------- */

/* Finds the place of so->pos in the runs, if it is not known. */
static void
cb_window_place_pos(CbScanOpaque so)
{
	CbPlace    *pos = &so->pos;

	if (pos->upper_serial == so->upper_serial)
		return;
	for (int i = 0; i < so->upper->nruns; i++)
	{
		CbJournalRun *run = so->upper->runs[i];

		pos->run_index[i] = cb_window_search_run(so, run, &pos->bound, 0, run->n);
	}
	pos->upper_serial = so->upper_serial;
}

/*
 * Gets the scan its view of the journal, and the place of so->pos in it.  The
 * view stays until the next rescan, and is got anew if the index has got or
 * lost its buckets.  Comparison functions run; pages of the journal are read.
 */
void
cb_window_copy_journal(IndexScanDesc scan, ScanDirection dir)
{
	cb_window_get_upper(scan, dir);
	cb_window_place_pos((CbScanOpaque) scan->opaque);
}

/*
 * Adds each run's entries between the bounds; sets far's place in each run.
 * near's places are known.  Comparison functions run; takes no lock.
 */
void
cb_window_open_journal(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					   CbPlace *far)
{
	CbUpper    *upper = so->upper;
	ScanDirection dir = (ScanDirection) merge->step;

	far->upper_serial = so->upper_serial;
	for (int i = 0; i < upper->nruns; i++)
	{
		CbJournalRun *run = upper->runs[i];
		int			start = near->run_index[i];
		int			end = cb_window_search_run_near(so, run, &far->bound, start,
													dir);
		CbSource   *source;

		far->run_index[i] = end;
		if (start == end)
			continue;
		source = &merge->sources[merge->nsources++];
		source->kind = CB_SOURCE_RUN;
		source->run = run;
		source->cur = merge->step > 0 ? start : start - 1;
		source->end = merge->step > 0 ? end : end - 1;
	}
}
