/*-------------------------------------------------------------------------
 *
 * cb_shared.c
 *	  The shared copy of a journal: sorted once, read by all.
 *
 * Who scans an index whose buckets lack a part of the journal (on a standby,
 * after a restart, without buckets) needs that part in order.  Up to a few
 * pages of it a backend reads by itself (cb_copy.c).  What is more goes into
 * the shared copy, in the pool: a list of components (cb_shared_component.c),
 * which together have all entries from the tail up to a position, "upto".
 *
 * One process at a time, the copy's builder, adds what has been appended since,
 * in pieces that it sorts in memory of its own, as further components, and
 * merges components when they become many.  Others wait for it, but not for
 * long: a builder runs comparisons, and these may wait for what the waiting
 * process holds.  Or they look through the journal meanwhile for what they
 * want.
 *
 * Why a scan misses nothing (I1, I11).  It takes "upto" first, then the tail,
 * and reads from the greater of them on by itself.  For each window it pins the
 * components that the copy has then, and sees that they still reach from its
 * tail up to where it began.  What a builder finds below a later tail it leaves
 * out: that need not be where the scan looks, which may know of no range
 * buffers then, or not have read the journal so far that it meets what was
 * appended again.  So the scan begins anew, with the tail and all that goes
 * with it; it does so as well if its own tail is older than the copy's
 * (I11_SHAREDTAIL).  Positions count for one build in one file, to which the
 * bucket set belongs; what was read of a page with the expected number stays
 * true.
 *
 * Why it returns nothing wrong: an entry can outlive its row only below the
 * tail, as VACUUM truncates before it removes (I4), and what lies below the
 * tail that the scan has read is ignored, as in private copies
 * (I11_SHAREDBELOW).  What it took earlier its MVCC snapshot judges.
 *
 * Replay changes nothing here: it moves the tail, in the metapage, and reuses
 * pages, which their numbers tell.  A promoted server goes on with the copy.
 *
 * Builders change the list under both locks of the bucket set, after their
 * comparisons (I11_SHAREDMERGE); a number tells them that the copy was given up
 * meanwhile.  On a primary the builder is a worker, which is asked for it, and
 * builds before it sweeps.  It is asked once: if there is no room it sweeps at
 * once (B4_ASKED).  If none has come after a second the scan builds.
 *
 * After an error, or the end of the process, what is listed stays, and what is
 * not is freed with the slot; after a kill all shared memory begins anew.
 *
 * Locks: comparisons run, pages are read and memory is allocated with none
 * held.  Then both locks of the bucket set are taken, for a few stores and the
 * chunks of components that go.  Readers share set->lock for as long as it
 * takes to pin 8 components.
 *
 * Who needs what a builder is at waits, for a second at most.  Then, or where
 * the pool has no room, a scan reads the rest by itself (cb_copy.c).  A scan
 * for one value does not wait at first, and builds for a moment only: it goes
 * through what the copy lacks then, and takes what has the value's hash.  That
 * is a piece of the journal as well, so none that looks for another value gets
 * it (I11_LOOKED).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_clock.h"
#include "base/cb_waiter.h"
#include "bucket/cb_bucket.h"
#include "journal/cb_read.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/memutils.h"

/* how long a process waits for a builder, ... */
#define CB_SHARED_WAIT_MS	1000

/* ... looking so often, if it is not woken, ... */
#define CB_SHARED_LOOK_MS	100

/* ... and how long it does not wait after that */
#define CB_SHARED_NO_WAIT_MS	10000

/* what a copy lacks is little, but is added to it after so long */
#define CB_SHARED_DUE_MS	1000

/* how long nobody builds after there was no room */
#define CB_SHARED_RETRY_MS	1000

/* a copy not used for so long may be given up for another index's */
#define CB_SHARED_IDLE_MS	1000

/*
 * What the builder is at, in its own memory.  upto, block and full are of the
 * copy as it was looked at last, then of what is to be installed.
 */
typedef struct CbSharedBuild
{
	CbKeyDesc  *kd;
	CbBucketSet *set;
	CbPos		limit;
	uint32		serial;			/* of the copy that this is about */
	CbPos		tail;			/* that was read last */
	CbPos		upto;			/* as the copy has it */
	BlockNumber block;
	CbJournalPage full;
	CbSorted	sorted;			/* its pieces, one after the other */
} CbSharedBuild;

/* the bucket set of the copy that this backend builds, or NULL */
static CbBucketSet *cb_shared_building = NULL;

/* ---------- the list of components ---------- */

/*
 * Lets go of a component that was listed; both locks are held.  Who has it
 * pinned keeps it; the last one frees it.  Waits for nothing, cannot fail.
 */
static void
cb_shared_drop_component(uint32 directory)
{
	CbPoolChunk *chunk = &cb_pool_chunks[directory];

	if (cb_chunk_release(&chunk->chunk))
		cb_pool_free_chunk(chunk);
}

/*
 * Gives the copy up.  Who has components pinned keeps them; a builder finds
 * out.  Both locks of the bucket set are held.  Cannot fail.
 */
void
cb_shared_forget(CbBucketSet *set)
{
	CbSharedCopy *copy = &set->copy;

	while (copy->ncomponents > 0)
		cb_shared_drop_component(copy->components[--copy->ncomponents]);
	copy->upto = copy->tail = 0;
	copy->block = InvalidBlockNumber;
	copy->full.seq = 0;
	copy->failed_at = copy->asked_at = 0;
	copy->serial++;
}

/*
 * Gives the relation's copy up if nobody needs it: all that it has is below the
 * tail, and so in lower tiers, or the buckets have what lies above.  Waits for
 * both locks of the bucket set; no LWLock is held on entry.
 */
void
cb_shared_forget_below(CbBucketSet *set, Relation rel, CbPos tail)
{
	set->copy.asked_at = 0;
	if (set->copy.ncomponents == 0)
		return;
	(void) cb_set_lock(set, true);
	if (cb_set_is_current(set, rel) &&
		(set->copy.upto <= tail ||
		 (set->state == CB_SET_ATTACHED && set->from <= tail)))
		cb_shared_forget(set);
	cb_set_unlock(set);
}

/*
 * The pool has little room: gives up the copy that was not used for longest, of
 * any index but keep's.  idle: only if nobody uses it.  False: there is none
 * such, or its lock is not free.  No LWLock is held; waits for none.
 */
bool
cb_shared_evict(const CbBucketSet *keep, bool idle)
{
	TimestampTz now = cb_clock_now();
	CbBucketSet *oldest = NULL;

	for (uint32 i = 0; i < cb_pool->nsets; i++)
	{
		CbBucketSet *set = &cb_pool_sets[i];

		if (set != keep && set->copy.ncomponents > 0 &&
			(oldest == NULL || set->used_at < oldest->used_at))
			oldest = set;
	}
	if (oldest == NULL ||
		(idle && !TimestampDifferenceExceeds(oldest->used_at, now, CB_SHARED_IDLE_MS)) ||
		!cb_set_lock(oldest, false))
		return false;
	cb_shared_forget(oldest);
	cb_set_unlock(oldest);
	return true;
}

/* ---------- building ---------- */

/*
 * Takes both locks of the bucket set, waiting for them, to change the copy;
 * false, without a lock: it has been given up, or is another index's by now.
 * Comparisons are over (I11_SHAREDMERGE).
 */
static bool
cb_shared_lock(const CbSharedBuild *build)
{
	(void) cb_set_lock(build->set, true);
	if (cb_set_is_current(build->set, build->kd->rel) &&
		build->set->copy.serial == build->serial)
		return true;
	cb_set_unlock(build->set);
	return false;
}

/*
 * Leaves out what the tail has passed, and finds out where to go on.  False:
 * the copy has been given up.  The tail is read before the locks are taken, so
 * it may have moved on since: then a component is kept that need not be.
 * Errors can be raised; both locks are held for a moment.
 */
static bool
cb_shared_look(CbSharedBuild *build)
{
	CbSharedCopy *copy = &build->set->copy;
	CbMetaPageData meta;
	uint32		kept = 0;

	cb_rel_read_meta(build->kd->rel, NULL, &meta);
	if (!cb_shared_lock(build))
		return false;
	for (uint32 i = 0; i < copy->ncomponents; i++)
	{
		if (cb_directory(copy->components[i])->max_pos < meta.journal_tail)
			cb_shared_drop_component(copy->components[i]);
		else
			copy->components[kept++] = copy->components[i];
	}
	copy->ncomponents = kept;
	copy->tail = meta.journal_tail;
	if (copy->upto < meta.journal_tail || copy->block == InvalidBlockNumber)
	{
		copy->upto = meta.journal_tail;
		copy->block = meta.journal_tail_block;
	}
	if (build->set->state == CB_SET_EMPTY)
		cb_store_relaxed(&build->set->tail, meta.journal_tail);
	build->tail = meta.journal_tail;
	build->upto = copy->upto;
	build->block = copy->block;
	build->full = copy->full;
	cb_set_unlock(build->set);
	return true;
}

/*
 * Puts a component, if any, in the place of the newest n, and notes how far the
 * copy reaches.  False: it has been given up.  The list takes a hold of its
 * own; the builder's goes with its slot.  Both locks are held for a moment, in
 * which readers find the old components or the new one.
 */
static bool
cb_shared_install(const CbSharedBuild *build, CbPoolChunk *directory, uint32 n)
{
	CbSharedCopy *copy = &build->set->copy;

	if (!cb_shared_lock(build))
		return false;
	while (n-- > 0)
		cb_shared_drop_component(copy->components[--copy->ncomponents]);
	if (directory != NULL && cb_directory(directory->number)->nentries > 0)
	{
		cb_chunk_hold(&directory->chunk);
		copy->components[copy->ncomponents++] = directory->number;
	}
	copy->upto = build->upto;
	copy->block = build->block;
	copy->full = build->full;
	copy->extended_at = build->set->used_at = cb_clock_now();
	cb_set_unlock(build->set);
	return true;
}

/*
 * Pins the newest components that are to be merged into one: as many as are not
 * much longer than those before them together, two at least.  Returns how many;
 * 0: the copy has been given up, or one component cannot have what two have.
 * The slot has room for the pins.  While they are merged nobody else changes
 * the list but to give it up, as there is one builder.
 */
static int
cb_shared_pin_newest(const CbSharedBuild *build, const CbDirectory **components)
{
	CbSharedCopy *copy = &build->set->copy;
	uint64		sum = 0;
	uint32		nmembers = 0;
	int			n = 0;

	if (!cb_shared_lock(build))
		return 0;
	while (n < copy->ncomponents)
	{
		uint32		directory = copy->components[copy->ncomponents - 1 - n];

		components[n] = cb_directory(directory);
		nmembers += components[n]->nmembers;
		if (nmembers > cb_directory_max_members() ||
			(n >= 2 && components[n]->nentries > 2 * sum))
			break;
		cb_slot_pin(&cb_pool_chunks[directory]);
		sum += components[n++]->nentries;
	}
	cb_set_unlock(build->set);
	return n >= 2 ? n : 0;
}

/*
 * Makes the components fewer; false: there is no room, or no copy any more.  No
 * lock is held; comparisons run.
 */
static bool
cb_shared_merge(const CbSharedBuild *build)
{
	const CbDirectory *components[CB_SHARED_MAX_COMPONENTS];
	int			n = cb_shared_pin_newest(build, components);
	CbPoolChunk *merged;

	if (n == 0)
		return false;
	CB_TEST_POINT("shared-merge");
	merged = cb_shared_merge_components(build->kd, build->set, components, n, build->tail);
	return merged != NULL && cb_shared_install(build, merged, n);
}

/*
 * Journal pages that are sorted at a time: what so many times work_mem takes,
 * where short entries have three times their place in the journal, and a
 * component, in which they have less than twice that.
 */
#define CB_SHARED_FACTOR		2
#define CB_SHARED_PLACES		3
#define CB_SHARED_MIN_PAGES		16
#define CB_SHARED_MAX_PAGES		1024	/* a worker does not look up meanwhile */

/*
 * How many pages of the journal are sorted at a time: what memory takes, but no
 * more than a component of the pool can have.
 */
static uint64
cb_shared_piece(void)
{
	uint64		memory = (uint64) work_mem * 1024 * CB_SHARED_FACTOR / CB_SHARED_PLACES / BLCKSZ;
	uint64		component = (uint64) cb_directory_max_members() * cb_pool->chunk_size /
		2 / BLCKSZ;

	return Max(Min(Min(memory, component), CB_SHARED_MAX_PAGES), CB_SHARED_MIN_PAGES);
}

/*
 * Adds a piece of the journal to the copy; *more: it goes on behind that, or the
 * tail has passed it.  False: there is no room, or no copy any more.  No lock is
 * held; comparisons run, and errors can be raised: the copy stays as it was.
 */
static bool
cb_shared_add_piece(CbSharedBuild *build, bool *more)
{
	CbPos		end = Min(build->limit,
						  CbPosMake(CbPosSeq(build->upto) + build->sorted.npages,
									CB_JOURNAL_FIRST));
	CbPoolChunk *directory = NULL;
	CbSorted   *sorted = &build->sorted;
	CbReader	reader;

	*more = true;
	CB_TEST_POINT("shared-begin");
	cb_sorted_begin(sorted, build->upto);
	cb_read_begin(&reader, build->kd->rel, CurrentMemoryContext, build->upto,
				  build->block, end);
	reader.sorted = sorted;
	if (!cb_read_to_head(build->kd, &reader, NULL))
	{
		/* the tail has moved past it, or this raises an error */
		cb_walk_restart(&reader.walk);
		return true;
	}
	cb_stat_add(build->kd->rel, CB_STAT_JOURNAL_READS, reader.npages);
	CB_TEST_POINT("shared-read");
	if (sorted->n > 0)
	{
		cb_sorted_finish(build->kd, sorted);
		directory = cb_shared_write(build->kd, build->set, sorted);
		if (directory == NULL)
			return false;
	}
	*more = reader.pos >= end && reader.pos < build->limit;
	build->upto = reader.pos;
	build->block = reader.walk.block;
	if (reader.full.seq != 0)
		build->full = reader.full;
	CB_TEST_POINT("shared-write");
	return cb_shared_install(build, directory, 0);
}

/*
 * Goes on with the copy: merges components, if there can be no more of them, or
 * adds a piece.  *more: there is more to do.  False: as cb_shared_add_piece().
 */
static bool
cb_shared_go_on(CbSharedBuild *build, bool *more)
{
	*more = false;
	if (!cb_shared_look(build))
		return false;
	if (build->block == InvalidBlockNumber || build->upto >= build->limit)
		return true;
	if (build->set->copy.ncomponents < CB_SHARED_MAX_COMPONENTS)
		return cb_shared_add_piece(build, more);
	*more = true;
	return cb_shared_merge(build);
}

/* Is the slice over, or shall a worker give way? */
static bool
cb_shared_must_pause(TimestampTz began, int slice_ms)
{
	return slice_ms > 0 &&
		(cb_waiter_is_there() ||
		 TimestampDifferenceExceeds(began, cb_clock_now(), slice_ms));
}

/*
 * Builds up to the journal's head, or the limit, as far as there is room and the
 * slice takes.  Memory that one piece has taken serves the next one: to get it
 * from the operating system takes longer than to sort.  After an error it goes
 * with the current context, and the caller releases the slot.
 */
static CbSharedEnd
cb_shared_build(CbSharedBuild *build, int slice_ms)
{
	TimestampTz began = cb_clock_now();
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch shared copy",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext piece_cxt = AllocSetContextCreate(cxt,
													"cache_batch shared copy's piece",
													ALLOCSET_DEFAULT_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(piece_cxt);
	CbSlotMark	mark = cb_slot_mark();
	bool		more = true;
	bool		built = true;

	(void) cb_key_prepare_abbrev(build->kd);
	(void) cb_key_prepare_hash(build->kd);
	cb_sorted_init(&build->sorted, cxt, cb_shared_piece());
	do
	{
		CHECK_FOR_INTERRUPTS();
		built = cb_shared_go_on(build, &more);
		cb_slot_release_to(mark);
		MemoryContextReset(piece_cxt);
	} while (more && built && !cb_shared_must_pause(began, slice_ms));
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(cxt);
	build->set->copy.failed_at = built ? 0 : cb_clock_now();
	if (!built)
		return CB_SHARED_NOT_NOW;
	if (more)
		return CB_SHARED_PAUSED;
	build->set->copy.asked_at = 0;	/* there is nothing to do */
	return CB_SHARED_COMPLETE;
}

/* ---------- one builder at a time ---------- */

/* Was there no room a moment ago?  A hint: takes no lock. */
bool
cb_shared_has_failed(const CbBucketSet *set)
{
	TimestampTz failed_at = set->copy.failed_at;

	return failed_at != 0 &&
		!TimestampDifferenceExceeds(failed_at, cb_clock_now(),
									CB_SHARED_RETRY_MS);
}

/*
 * Lets another process build, and wakes those who wait; nothing if this one does
 * not build.  A release: who takes over sees what was done.  Takes no lock and
 * cannot fail: called after errors, and when the process ends (B3).
 */
static void
cb_shared_end_build(void)
{
	CbBucketSet *set = cb_shared_building;

	if (set == NULL)
		return;
	cb_shared_building = NULL;
	cb_store_release(&set->copy.builder, 0);
	ConditionVariableBroadcast(&set->cv);
}

/* The process ends, maybe as the builder; a before_shmem_exit callback. */
static void
cb_shared_exit(int code, Datum arg)
{
	cb_shared_end_build();
}

/*
 * Becomes the builder, until cb_shared_end_build(); false: another process is.
 * By compare and swap, with no lock; a process builds one copy at a time.
 */
static bool
cb_shared_begin_build(CbBucketSet *set)
{
	static bool registered = false;
	uint32		none = 0;

	if (!registered)
	{
		before_shmem_exit(cb_shared_exit, (Datum) 0);
		registered = true;
	}
	if (!cb_swap_if(&set->copy.builder, &none, GetNumberFromPGProc(MyProc) + 1))
		return false;
	cb_shared_building = set;
	return true;
}

/*
 * Waits for the builder to be done; false: it takes long, or another did.  Then
 * this process does not wait again for some time, for any copy.  No LWLock is
 * held; can be interrupted.
 */
static bool
cb_shared_wait(CbBucketSet *set)
{
	static TimestampTz late_at = 0;
	TimestampTz began = cb_clock_now();
	bool		late = false;

	if (late_at != 0 &&
		!TimestampDifferenceExceeds(late_at, began, CB_SHARED_NO_WAIT_MS))
		return false;
	/* there are other reasons to be woken than that it is done */
	ConditionVariablePrepareToSleep(&set->cv);
	while (!late && cb_load_acquire(&set->copy.builder) != 0)
	{
		(void) ConditionVariableTimedSleep(&set->cv, CB_SHARED_LOOK_MS,
										   cb_wait_event(CB_WAIT_SHARED_COPY));
		late = TimestampDifferenceExceeds(began, cb_clock_now(),
										  CB_SHARED_WAIT_MS);
	}
	ConditionVariableCancelSleep();
	late_at = late ? cb_clock_now() : 0;
	return !late;
}

/*
 * Is there a shared copy of the index's journal that has not been extended for
 * some time, and nobody is at it?  Takes no lock: a hint.
 */
bool
cb_shared_is_due(Relation rel)
{
	const CbBucketSet *set = cb_set_find(rel);

	return set != NULL && set->copy.upto != 0 &&
		cb_load_relaxed(&set->copy.builder) == 0 &&
		TimestampDifferenceExceeds(set->copy.extended_at, cb_clock_now(),
								   CB_SHARED_DUE_MS);
}

/*
 * Will another process soon have extended the copy?  One that is at it, or a
 * worker, which is asked for it here if workers serve the index.  If that has
 * not begun after a second, the answer is no.  A hint.
 */
bool
cb_shared_leave_to_others(CbBucketSet *set, bool served)
{
	CbSharedCopy *copy = &set->copy;
	TimestampTz now = cb_clock_now();

	if (set == cb_shared_building || cb_shared_has_failed(set))
		return false;
	if (cb_load_relaxed(&copy->builder) != 0)
		return true;
	if (!served)
		return false;
	if (copy->asked_at == 0)
		copy->asked_at = now;
	return !TimestampDifferenceExceeds(copy->asked_at, now, CB_SHARED_WAIT_MS);
}

/*
 * Brings the index's shared copy up to the journal's head or the limit, the
 * end of an entry, or has seen another process do so.  An index that should
 * have one gets it here.  CB_SHARED_NOT_NOW: it cannot have one, the pool has no
 * room, or another process is at it; the caller reads the journal by itself.
 *
 * slice_ms: builds for so long, or one piece or merge, a worker until somebody
 * waits for its locks; then CB_SHARED_PAUSED.  Does not wait for another builder.
 * 0: to the end, and waits for that, unless the other one takes long.
 *
 * No LWLock is held.  Also in recovery.  Comparisons run; one that uses the
 * index that it compares for gets an error (C11), and while it uses another
 * one that has no copy built.  Raises errors; what was added before stays.
 */
CbSharedEnd
cb_shared_extend(CbKeyDesc *kd, CbPos limit, int slice_ms)
{
	CbBucketSet *set = cb_set_find_or_make(kd->rel);
	CbSharedBuild build = {.kd = kd,.set = set,.limit = limit};
	volatile CbSharedEnd end = CB_SHARED_NOT_NOW;
	CbSlotMark	mark = cb_slot_mark();

	if (set != NULL && set == cb_shared_building)
		cb_report_reentry(kd->rel);
	if (set == NULL || cb_shared_building != NULL || cb_shared_has_failed(set) ||
		!cb_slot_has_room(CB_SHARED_MAX_COMPONENTS + 1, 0))
		return CB_SHARED_NOT_NOW;
	if (!cb_shared_begin_build(set))
		return slice_ms == 0 && cb_shared_wait(set) ? CB_SHARED_COMPLETE : CB_SHARED_NOT_NOW;
	build.serial = set->copy.serial;
	PG_TRY();
	{
		end = cb_shared_build(&build, slice_ms);
	}
	PG_FINALLY();
	{
		cb_slot_release_to(mark);
		cb_shared_end_build();
	}
	PG_END_TRY();
	return end;
}

/* ---------- reading ---------- */

/* Notes that the copy is used, about twice a second: others read that. */
static inline void
cb_shared_note_use(CbBucketSet *set)
{
	TimestampTz now = cb_clock_now();

	if (TimestampDifferenceExceeds(set->used_at, now, CB_SHARED_IDLE_MS / 2))
		set->used_at = now;
}

/*
 * Is the page still as it was when the copy was made?  While it is the journal's
 * it does not change, so its LSN tells.  True if none was noted.  No lock is held;
 * the page is share-locked for a moment, and errors can be raised.
 */
static bool
cb_shared_is_of(Relation rel, const CbJournalPage *full)
{
	CbJournalWalk walk;
	Page		page;
	bool		same;

	if (full->seq == 0)
		return true;
	if (full->block >= RelationGetNumberOfBlocks(rel))
		return false;
	cb_walk_begin(&walk, rel, full->block, full->seq);
	page = cb_walk_lock(&walk);
	if (page == NULL)
		return false;
	same = PageGetLSN(page) == full->lsn;
	cb_walk_unlock(&walk);
	return same;
}

/*
 * At a backend's first use of a copy: a file can have been replaced by another
 * with the same name and build id (a database made again, U22), of which no
 * standby is told otherwise.  Then the page is another, as it is if the tail has
 * passed it, and the copy is given up.  No LWLock is held on entry; waits for
 * both locks of the bucket set if it is, else shares set->lock for a moment.
 */
static void
cb_shared_check(Relation rel, CbBucketSet *set)
{
	CbJournalPage full;
	uint32		serial;

	cb_set_share(set);
	full = set->copy.full;
	serial = set->copy.serial;
	LWLockRelease(&set->lock);
	if (cb_shared_is_of(rel, &full))
		return;
	(void) cb_set_lock(set, true);
	if (set->copy.serial == serial)
		cb_shared_forget(set);
	cb_set_unlock(set);
}

/*
 * How far the index's shared copy reaches, and in *block the page where it
 * ends; 0: there is none, or the slot has no room for it.  A scan asks this
 * before it reads the tail.  Takes set->lock, shared, for a moment, if there is
 * a copy; the first time pages are read, and errors can be raised.
 */
CbPos
cb_shared_end(Relation rel, BlockNumber *block)
{
	CbBucketSet *set = cb_set_find(rel);
	CbPos		upto = 0;

	if (set == NULL || set->copy.upto == 0 ||
		!cb_slot_has_room(CB_SHARED_MAX_COMPONENTS, 0))
		return 0;
	if (cb_set_is_first_copy(rel))
		cb_shared_check(rel, set);
	cb_set_share(set);
	if (cb_set_is_current(set, rel))
	{
		upto = set->copy.upto;
		*block = set->copy.block;
	}
	LWLockRelease(&set->lock);
	return upto;
}

/*
 * Pins the copy's components for a window of a scan that has read this tail,
 * and the journal by itself from the position on, cb_shared_end()'s; 0: all of
 * it.  False: the copy does not reach as far any more, to either side, or the
 * slot has no room; the scan begins anew.  Components whose entries are all
 * below the tail are left out.
 *
 * Takes set->lock, shared, for a moment.  The slot's mark from before releases
 * the components.
 */
bool
cb_shared_pin(Relation rel, CbPos from, CbPos tail, CbSharedView *view)
{
	CbBucketSet *set;
	CbSharedCopy *copy;
	bool		reaches;

	view->ncomponents = 0;
	if (from <= tail)
		return true;
	set = cb_set_find(rel);
	if (set == NULL || !cb_slot_has_room(CB_SHARED_MAX_COMPONENTS, 0))
		return false;
	copy = &set->copy;
	cb_set_share(set);
	reaches = cb_set_is_current(set, rel) && copy->upto >= from &&
		copy->tail <= tail;
	for (int i = copy->ncomponents - 1; reaches && i >= 0; i--)
	{
		CbDirectory *component = cb_directory(copy->components[i]);

		if (component->max_pos < tail)
			continue;
		cb_slot_pin(&cb_pool_chunks[copy->components[i]]);
		view->components[view->ncomponents++] = component;
	}
	LWLockRelease(&set->lock);
	if (reaches)
		cb_shared_note_use(set);
	return reaches;
}
