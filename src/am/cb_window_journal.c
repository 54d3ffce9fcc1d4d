/*-------------------------------------------------------------------------
 *
 * cb_window_journal.c
 *	  The journal as an upper tier of a scan's windows.
 *
 * It is read to where the buckets begin, or to its head where there are none.
 * Most of it is read from the index's shared copy, whose components are pinned
 * while a window is read.  What that lacks is read once after a rescan, into
 * private components that stay as they are; a window's places in them go with
 * its bounds (CbPlace).  attach_id and "from" come with each window's bucket;
 * if they have changed the copy is made again (I2_ATTACHMENT).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xlog.h"
#include "am/cb_window.h"
#include "flush/cb_flush.h"
#include "flush/cb_queue.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* ---------- places ---------- */

/*
 * The number of entries of [from, to) of the component left of the bound, plus
 * from.
 */
static int
cb_component_search(CbScanOpaque so, const CbCopyComponent *component,
					const CbBound *bound, int from, int to)
{
	while (from < to)
	{
		int			mid = from + (to - from) / 2;

		if (cb_key_compare_bound(&so->kd, bound, component->entries[mid].itup) <= 0)
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

/*
 * The same for the whole component, where the answer lies near a known place on
 * the side of dir: looks at ever larger steps from there first.
 */
static int
cb_component_search_near(CbScanOpaque so, const CbCopyComponent *component,
						 const CbBound *bound, int start, ScanDirection dir)
{
	int			from = start;
	int			to = start;

	if (ScanDirectionIsForward(dir))
	{
		for (int jump = 1; to < component->n; jump *= 2)
		{
			to = Min(component->n, from + jump);
			if (cb_key_compare_bound(&so->kd, bound, component->entries[to - 1].itup) > 0)
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
			if (cb_key_compare_bound(&so->kd, bound, component->entries[from].itup) <= 0)
			{
				from++;			/* known to be left of the bound */
				break;
			}
			to = from;
		}
	}
	return cb_component_search(so, component, bound, from, to);
}

/* ---------- copying ---------- */

/*
 * May what was copied of the upper tiers serve a scan that starts again?
 * Under the same MVCC snapshot it may: entries of later rows are not visible
 * to it, and what has left the upper tiers meanwhile is dropped where the
 * leaf has it too.
 */
bool
cb_window_upper_is_current(CbScanOpaque so, Snapshot snapshot)
{
	return so->upper != NULL && so->upper->dir == NoMovementScanDirection &&
		IsMVCCSnapshot(snapshot) &&
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

/* a scan reads so many pages by itself; what is more goes into the shared copy */
#define CB_WINDOW_OWN_PAGES		2

/*
 * How many pages a scan reads by itself that has found no room in the shared
 * copy: all, if the index cannot have one, else what so many times work_mem
 * takes.  A parallel worker makes no set of buckets, so it does not know.
 */
#define CB_WINDOW_OWN_FACTOR	16

static inline uint64
cb_window_own_pages(Relation rel)
{
	if (cb_set_find(rel) == NULL && !RecoveryInProgress() && !IsParallelWorker())
		return CB_COPY_ALL_PAGES;
	return Max(cb_journal_pages_in((uint64) work_mem * CB_WINDOW_OWN_FACTOR),
			   CB_WINDOW_OWN_PAGES);
}

/* The index's bucket set, or NULL; *served: workers will come to it soon. */
static CbBucketSet *
cb_window_find_builders(CbScanOpaque so, bool *served)
{
	CbBucketSet *set;
	CbPos		from;

	*served = false;
	if (RecoveryInProgress())
		return cb_set_find_or_make(so->kd.rel);
	set = cb_set_attach(&so->kd, false);
	*served = set != NULL && cb_queue_will_be_served() &&
		cb_set_attachment(set, so->kd.rel, &from) != 0 &&
		!cb_failing_waits(&set->failing);
	return set;
}

/* a scan for one value adds to the shared copy for so long, or a piece */
#define CB_WINDOW_SLICE_MS		20

/*
 * May the scan go through the journal for the one value that it wants, and leave the
 * rest of it?  If so, *builds: it shall first add to the shared copy, as no other
 * process extends it, and no worker is asked for that.
 */
static bool
cb_window_may_look(CbScanOpaque so, ScanDirection dir, bool *builds)
{
	CbBucketSet *set;
	bool		served;

	*builds = true;
	if (so->has_looked)
		return false;
	set = cb_window_find_builders(so, &served);
	if (set == NULL)
		return false;
	cb_window_set_hash(so, dir);
	if (!so->view.has_hash || so->for_point)
		return false;
	*builds = !cb_shared_leave_to_others(set, served);
	return true;
}

/*
 * Extends the shared copy, which ends at a position: then *extended, and NULL is
 * returned, as where it cannot be extended.  Or else, once a scan, returns what there
 * is of the one value that it wants in what the copy lacks; before that, it adds a
 * part to the copy if nobody else does.
 */
static CbUpper *
cb_window_extend_or_look(CbScanOpaque so, Snapshot snapshot, ScanDirection dir,
						 CbPos from, BlockNumber block, CbPos limit, bool *extended)
{
	bool		builds;
	bool		may_look = cb_window_may_look(so, dir, &builds);
	const CbBucketSet *set;

	*extended = builds &&
		cb_shared_extend(&so->kd, limit,
						 may_look ? CB_WINDOW_SLICE_MS : 0) == CB_SHARED_COMPLETE;
	set = cb_set_find(so->kd.rel);
	if (*extended || !may_look || set == NULL || cb_shared_has_failed(set))
		return NULL;
	so->has_looked = true;
	from = cb_shared_end(so->kd.rel, &block);
	return cb_copy_acquire_piece(&so->kd, snapshot, from, block, limit,
								 &so->pos.bound, dir, &so->view.hash);
}

/*
 * Entries of the journal up to the limit that the shared copy lacks; if there
 * are many, as there is no room for them in that, those nearest to so->pos, or
 * of its value.  anew: as it is not what it was.
 */
static CbUpper *
cb_window_acquire_some(CbScanOpaque so, Snapshot snapshot, ScanDirection dir,
					   CbPos limit, bool anew)
{
	uint64		npages = CB_WINDOW_OWN_PAGES;
	CbUpper    *upper = anew || limit < CB_POS_MAX ? NULL :
		cb_copy_acquire_again(&so->kd);

	if (upper != NULL && upper->ncomponents > 0 && cb_shared_is_due(so->kd.rel))
	{
		upper = NULL;
		npages = 0;
	}
	while (upper == NULL)
	{
		BlockNumber block = InvalidBlockNumber;
		CbPos		from = cb_shared_end(so->kd.rel, &block);
		bool		extended;

		CHECK_FOR_INTERRUPTS();
		upper = cb_copy_acquire(&so->kd, snapshot, from, block, limit, npages);
		if (upper != NULL)
			break;
		npages = CB_WINDOW_OWN_PAGES;
		upper = cb_window_extend_or_look(so, snapshot, dir, from, block, limit, &extended);
		if (upper != NULL || extended)
			continue;
		npages = cb_window_own_pages(so->kd.rel);
		upper = cb_copy_acquire(&so->kd, snapshot, from, block, limit, npages);
		if (upper == NULL)
			upper = cb_copy_acquire_piece(&so->kd, snapshot, from, block, limit,
										  &so->pos.bound, dir, NULL);
	}
	return upper;
}

/* Which part of the journal it is that the buckets do not hold. */
static CbUpper *
cb_window_acquire_upper(CbScanOpaque so, Snapshot snapshot, ScanDirection dir,
						bool anew)
{
	CbBucketView *view = &so->view;
	MemoryContext oldcxt;
	CbUpper    *upper;
	CbEmptyJournal now;
	bool		empty;

	if (view->attach_id != 0 && view->swept)
		return cb_window_acquire_none(so, snapshot, view->from);
	if (cb_set_journal_is_empty(so->kd.rel, &now))
		return cb_window_acquire_none(so, snapshot,
									  cb_rel_cache(so->kd.rel)->journal_tail);
	if (view->attach_id == 0 && !anew && cb_copy_acquire_empty(&so->kd, &so->none))
		return &so->none;
	if (so->upper_cxt == NULL)
		so->upper_cxt = AllocSetContextCreate(so->cxt, "cachebatch scan tiers",
											  ALLOCSET_SMALL_SIZES);
	oldcxt = MemoryContextSwitchTo(so->upper_cxt);
	upper = cb_window_acquire_some(so, snapshot, dir, view->attach_id != 0 ?
								   view->from : CB_POS_MAX, anew);
	MemoryContextSwitchTo(oldcxt);

	if (view->attach_id != 0)
		cb_flush_request_before(view->set);
	empty = upper->ncomponents == 0 && upper->from <= upper->tail &&
		upper->dir == NoMovementScanDirection;

	/* give it buckets, and have what there is moved to the tree */
	if (view->attach_id == 0 && !empty)
	{
		CbBucketSet *set = cb_set_attach(&so->kd, false);

		if (set != NULL)
			cb_flush_request_before(set);
	}

	/* of an index with buckets it was not read to its head */
	if (view->attach_id == 0 && empty)
		cb_set_note_empty_journal(so->kd.rel, &now);
	return upper;
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

/* Does what was read of the journal go on beyond so->pos in the direction? */
static bool
cb_window_upper_reaches(CbScanOpaque so, ScanDirection dir)
{
	const CbUpper *upper = so->upper;
	const CbBound *bound = &so->pos.bound;

	if (upper->dir == NoMovementScanDirection)
		return true;
	if (upper->dir != dir)
		return false;
	if (upper->end == NULL)
		return true;
	if (bound->kind == CB_BOUND_TUPLE &&
		cb_key_compare(&so->kd, bound->tuple, upper->end) == 0)
		return false;			/* a window has ended there */
	return cb_key_compare_bound(&so->kd, bound, upper->end) * dir > 0;
}

/* Pins what the shared copy has of the journal; false: that is not enough. */
static inline bool
cb_window_pin_shared(CbScanOpaque so)
{
	return cb_shared_pin(so->kd.rel, so->upper->from, so->upper->tail, &so->shared);
}

/*
 * Once after a rescan, and again if the index has got or lost its buckets
 * since, if the shared copy is not what it was, if a piece is used up, or, for a
 * serializable transaction, if the index has no buckets (A34): tail and head are
 * read with the snapshot taken.  What was acquired before is given up: windows
 * have copies of what they hold.
 */
static void
cb_window_get_upper(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	Snapshot	snapshot = scan->xs_snapshot;
	bool		same = so->upper != NULL && so->upper_attach_id == so->view.attach_id &&
		!cb_window_journal_is_old(so);

	if (same && cb_window_upper_reaches(so, dir) && cb_window_pin_shared(so))
		return;
	CB_TEST_POINT("scan-copy-journal");
	cb_window_release_upper(so);
	so->upper = cb_window_acquire_upper(so, snapshot, dir, same);
	so->upper_serial++;
	so->upper_attach_id = so->view.attach_id;
	so->upper_xmin = snapshot->xmin;
	so->upper_xmax = snapshot->xmax;
	so->upper_curcid = snapshot->curcid;
	so->upper_completions = snapshot->snapXactCompletionCount;
	if (!cb_window_pin_shared(so))
		cb_window_get_upper(scan, dir);
}

/* ---------- reading ---------- */

/* Finds the place of so->pos in the components, if it is not known. */
static void
cb_window_place_pos(CbScanOpaque so)
{
	CbPlace    *pos = &so->pos;

	if (pos->upper_serial == so->upper_serial)
		return;
	for (int i = 0; i < so->upper->ncomponents; i++)
	{
		CbCopyComponent *component = so->upper->components[i];

		pos->component_index[i] = cb_component_search(so, component, &pos->bound, 0,
													  component->n);
	}
	pos->upper_serial = so->upper_serial;
}

/*
 * Finds the place of so->pos in the shared components, and leaves out those
 * that have nothing with the value that the window is for.
 */
static void
cb_window_place_shared(CbScanOpaque so)
{
	CbSharedView *view = &so->shared;
	const uint32 *hash = so->view.has_hash ? &so->view.hash : NULL;
	int			kept = 0;

	for (int i = 0; i < view->ncomponents; i++)
	{
		const CbDirectory *component = view->components[i];

		if (cb_shared_seek(&so->kd, component, &so->pos.bound, hash, &view->places[kept]))
			view->components[kept++] = component;
	}
	view->ncomponents = kept;
}

/*
 * Gets the scan its view of the journal, and the place of so->pos in it.  The
 * view stays until the next rescan, and is got anew if the index has got or
 * lost its buckets.  Comparison functions run; pages of the journal are read.
 */
void
cb_window_copy_journal(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_window_get_upper(scan, dir);

	/* what a sweep could not put into the tree has left the journal upwards */
	while (cb_bucket_view_is_late(&so->view))
	{
		cb_slot_release_to(so->view.mark);
		cb_window_copy_bucket(scan, dir);
		cb_window_get_upper(scan, dir);
	}
	cb_window_place_shared(so);
	cb_window_place_pos(so);
}

/*
 * Adds each component's entries between the bounds; sets far's place in each
 * private component.  near's places are known.  Comparison functions run; takes
 * no lock.
 */
void
cb_window_open_journal(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					   CbPlace *far)
{
	CbUpper    *upper = so->upper;
	ScanDirection dir = (ScanDirection) merge->step;

	for (int i = 0; i < so->shared.ncomponents; i++)
		cb_merge_add_shared(merge, so->shared.components[i], &so->shared.places[i]);
	far->upper_serial = so->upper_serial;
	for (int i = 0; i < upper->ncomponents; i++)
	{
		CbCopyComponent *component = upper->components[i];
		int			start = near->component_index[i];
		int			end = cb_component_search_near(so, component, &far->bound, start,
												   dir);
		CbSource   *source;

		far->component_index[i] = end;
		if (start == end)
			continue;
		source = &merge->sources[merge->nsources++];
		source->kind = CB_SOURCE_JOURNAL;
		source->component = component;
		source->cur = merge->step > 0 ? start : start - 1;
		source->end = merge->step > 0 ? end : end - 1;
	}
}
