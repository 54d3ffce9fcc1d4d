/*-------------------------------------------------------------------------
 *
 * cb_view.c
 *	  Reading a bucket: what a scan pins, and how it finds entries in it.
 *
 * Mostly a bucket has nothing that the scan wants, which is seen without a lock.
 * Else its list, its range and the counts of its chunks are read at one
 * moment, under its lock; the entries below the counts never change, so they
 * are searched later with no lock, as long as the chunks are pinned.
 *
 * Chunks are sorted when they are read, not when they are written: a reader
 * that meets a long unsorted part sorts a copy of the order, and installs it
 * if nobody else can be reading the chunk's order: it holds the bucket's lock
 * exclusively, its holders are its lists and this reader's pin, nobody owns
 * it; and if other buckets list it, the bucket set's lock is held exclusively,
 * too, if it could be had at once: else the copy serves this reader only.  The
 * bucket may have been joined with another one since the view was opened; then
 * its lock says nothing (A5_JOIN).
 *
 * That a bucket has nothing is seen from an empty list, or from filters that
 * say no (cb_view_has_nothing()).  It is right although the list may change
 * meanwhile:
 *
 *	- What the scan must see was published before it began, so it is in a
 *	  chunk that the list has, or that has left it; or it is in the journal
 *	  below "from", whence a sweep can send it up.  Of that "again" and the
 *	  tail tell, which are read before the list (I2_POSITIONS): if they are
 *	  new the list has it, else the scan sees later that they have changed.
 *	  What else is added meanwhile need not be seen.
 *	- A chunk leaves a list between two counts of the bucket's removals.  If
 *	  these stand still, and are even, the list has lost none while it was
 *	  read (I2_REMOVALS), and what it has is not used for anything else, so
 *	  its filter is its own.  A chunk that had left before has its entries
 *	  in the tree or in a run, which are read later (I1, I2).  That there
 *	  are runs (spills) is read after the list, and before what follows
 *	  (I2_SPILLS).
 *	- Changes of the bounds, and giving the buckets up, are counted in
 *	  layout_gen before anything is changed, with a write barrier; attach_id
 *	  is 0 before that, and is never used again.  Both are looked at after
 *	  the list, behind a read barrier: whoever has met a part of a change
 *	  finds them changed (I2_LAYOUT).  Routers are made under the bucket
 *	  set's lock, when a change is over.
 *	- If any of these has changed the scan takes the locks, as it does where
 *	  a chunk may have something.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "miscadmin.h"

/* unsorted entries of a chunk that a reader goes through one by one, at most */
#define CB_VIEW_UNSORTED_MAX	64

/* a bound, for the searches of core/cb_chunk.h */
typedef struct CbViewProbe
{
	const CbKeyDesc *kd;
	const CbBound *bound;
} CbViewProbe;

/* ---------- opening and closing ---------- */

/*
 * Can a chunk be left out, as it has no entry with the hash?  An entry below
 * the count has its bits in the filter since before it was counted.
 */
static inline bool
cb_view_is_filtered(const CbBucketView *view, uint32 chunk)
{
	return view->has_hash &&
		!cb_filter_may_hold(cb_pool_filter(chunk), cb_pool->filter_lines,
							view->hash);
}

/*
 * What a scan has to know of an attachment, beside what its buckets hold.  Read
 * before the bucket's list is (I2_POSITIONS).  Without a lock what is read is
 * good only if the attachment is the same afterwards.
 */
static void
cb_view_read_positions(CbBucketView *view)
{
	const CbBucketSet *set = view->set;

	view->from = set->from;
	view->swept = cb_load_acquire(&set->tail) >= view->from;
	view->again = cb_load_acquire(&set->again);
}

/*
 * Has bucket i nothing that the scan wants?  Takes no lock and writes nothing
 * that others read, so any number of processes can look for what is not there.
 * False: it may have something, or it is being changed.
 *
 * The list is that of one moment, if no chunk was taken out of it meanwhile, and
 * the bounds are still those that led to it.  What is added meanwhile has been
 * published since the scan began, or comes from the journal, of which the
 * positions tell, as they were before.  A chunk that is listed is not used for
 * anything else.
 */
static bool
cb_view_has_nothing(CbBucketView *view, const CbRouter *router, uint32 i)
{
	volatile const CbBucketSet *set = view->set;
	volatile const CbBucket *bucket = &cb_pool_buckets[set->buckets[i]];
	uint32		removals = cb_load_acquire(&bucket->removals);
	uint32		nchunks;
	uint64		spills;

#ifdef CB_TESTPOINTS
	if (cb_test_lock_views)
		return false;
#endif
	cb_view_read_positions(view);
	pg_read_barrier();
	nchunks = bucket->nchunks;
	if (removals % 2 != 0 || nchunks > CB_BUCKET_MAX_CHUNKS)
		return false;
	for (uint32 j = 0; j < nchunks; j++)
	{
		if (!cb_view_is_filtered(view, bucket->chunks[j]))
			return false;
		CB_TEST_POINT("view-filtered");
	}
	/* set before a chunk leaves the list; of this attachment, if that stands */
	pg_read_barrier();
	spills = cb_load_acquire(&view->set->spills);
	if (cb_load_relaxed(&bucket->removals) != removals ||
		set->attach_id != router->attach_id ||
		set->layout_gen != router->layout_gen)
		return false;
	CB_TEST_POINT("view-valid");
	view->spills = spills;
	view->attach_id = router->attach_id;
	view->bucket = &cb_pool_buckets[bucket->number];
	return true;
}

/*
 * Copies the first entry of each chunk as the scan goes.  The bucket is locked,
 * shared, so no order is installed meanwhile.  False: a chunk is not in order, or
 * there is no room.
 */
static bool
cb_view_copy_ends(CbBucketView *view, ScanDirection dir)
{
	const CbBucket *bucket = view->bucket;

	view->ends.data = view->end_data;
	view->ends.used = 0;
	for (uint32 i = 0; i < bucket->nchunks; i++)
	{
		CbChunk    *chunk = &cb_pool_chunks[bucket->chunks[i]].chunk;
		uint32		n = cb_chunk_count(chunk);
		uint32		rank = ScanDirectionIsForward(dir) ? 0 : n - 1;
		IndexTuple	itup;
		Size		size;

		if (n == 0)
			continue;
		if (cb_load_relaxed(&chunk->nsorted) < n)
			return false;
		itup = (IndexTuple) cb_chunk_at(chunk, cb_chunk_item(chunk, rank)->order);
		size = CB_CHUNK_ALIGN(IndexTupleSize(itup));
		if (view->ends.used + size > CB_VIEW_END_DATA)
			return false;
		memcpy(view->end_data + view->ends.used, itup, size);
		view->ends.used += size;
	}
	return true;
}

/*
 * The first of the entries that were copied becomes the view's end.  False:
 * one of them is not beyond the bound.  Comparisons run, with no lock held: the
 * copies are the view's.
 */
static bool
cb_view_choose_end(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
				   CbBucketView *view)
{
	for (uint32 at = 0; at < view->ends.used;)
	{
		IndexTuple	itup = (IndexTuple) (view->end_data + at);
		int			cmp = cb_key_compare_bound(kd, bound, itup);

		if (ScanDirectionIsForward(dir) ? cmp <= 0 : cmp > 0)
			return false;
		if (view->end == NULL || cb_key_compare(kd, itup, view->end) * dir < 0)
		{
			view->end = itup;
			view->end_place = at / 8;
		}
		at += CB_CHUNK_ALIGN(IndexTupleSize(itup));
	}
	return true;
}

/*
 * Pins what the bucket's list has, as far as the scan wants it, and takes down
 * how many entries each chunk has now, and how many in order.  The bucket is
 * locked, shared, and set->lock: nobody unlinks.  The slot has room; cannot fail.
 */
static void
cb_view_pin_chunks(CbBucketView *view)
{
	CbBucket   *bucket = view->bucket;

	for (uint32 i = 0; view->has_hash && i < bucket->nchunks; i++)
		__builtin_prefetch(cb_filter_line(cb_pool_filter(bucket->chunks[i]),
										  cb_pool->filter_lines, view->hash));
	for (uint32 i = 0; i < bucket->nchunks; i++)
	{
		CbPoolChunk *chunk;
		int			n = view->nchunks;

		if (cb_view_is_filtered(view, bucket->chunks[i]))
			continue;
		chunk = &cb_pool_chunks[bucket->chunks[i]];
		cb_slot_pin(chunk);
		view->chunks[n].chunk = chunk;
		view->chunks[n].count = cb_chunk_count(&chunk->chunk);
		view->chunks[n].nsorted = cb_load_relaxed(&chunk->chunk.nsorted);
		view->nchunks++;
	}
}

/*
 * Copies the chunks' first entries, or pins the chunks, if the router is up to
 * date; false: it is not, and nothing is pinned.  No LWLock is held on entry,
 * nor on return; shares set->lock, then the bucket's.  The order of reading is
 * that without a lock: positions, list, spills (I2_POSITIONS, I2_SPILLS).
 */
static bool
cb_view_pin(CbBucketView *view, const CbRouter *router, uint32 i,
			ScanDirection dir)
{
	CbBucketSet *set = view->set;

	cb_set_share(set);
	if (set->state != CB_SET_ATTACHED ||
		set->attach_id != router->attach_id ||
		set->layout_gen != router->layout_gen)
	{
		LWLockRelease(&set->lock);
		return false;
	}
	view->attach_id = set->attach_id;
	cb_view_read_positions(view);
	view->bucket = &cb_pool_buckets[set->buckets[i]];
	CB_TEST_POINT("view-pin");

	/* a publication that this scan must see was over before it began */
	if (view->bucket->nchunks > 0)
	{
		LWLockAcquire(&view->bucket->lock, LW_SHARED);
		if (!view->wants_end || !cb_view_copy_ends(view, dir))
		{
			view->wants_end = false;
			cb_view_pin_chunks(view);
		}
		LWLockRelease(&view->bucket->lock);
	}
	/* after the list of chunks was read: set before one leaves it */
	pg_read_barrier();
	view->spills = cb_load_acquire(&set->spills);
	LWLockRelease(&set->lock);
	return true;
}

/* Makes it that of an index without buckets.  Pins are the slot's to release. */
static void
cb_view_reset(CbBucketView *view)
{
	view->attach_id = 0;
	view->spills = 0;
	view->nchunks = 0;
	view->end = NULL;
	view->ends.used = 0;
	view->lo = view->hi = NULL;
}

/*
 * Pins the chunks of the bucket that holds what lies right [left] of the
 * bound; if the view has a hash, only those that may hold it.  If the scan
 * mostly wants the bucket's first entry there, that is copied in their place,
 * where all chunks are in order.  attach_id 0 in the view: the index has no
 * buckets, or the slot no room; the scan reads the journal then.  Whoever calls
 * this releases to a mark from before, after an error, too.
 *
 * No LWLock is held on entry, nor on return.  Comparisons run, and errors can
 * be raised.  lo and hi of the view are the router's, which the slot keeps as
 * long as the pins.
 */
void
cb_bucket_view_open(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
					CbBucketView *view)
{
	view->mark = cb_slot_mark();
	cb_view_reset(view);
	view->set = cb_set_find(kd->rel);

	/* what this scan must see was published when it had this number, or none */
	if (view->set == NULL || view->set->attach_id == 0 ||
		!cb_slot_has_room(CB_BUCKET_MAX_CHUNKS, 0))
		return;
	for (;;)
	{
		CbRouter   *router = cb_route_get(kd, view->set);
		uint32		i;

		if (router == NULL)
			return;
		i = cb_route_bound(kd, router, bound, dir);
		view->lo = cb_route_fence(router, i);
		view->hi = i + 1 < router->nbuckets ?
			cb_route_fence(router, i + 1) : NULL;
		if (cb_view_has_nothing(view, router, i))
			return;
		if (cb_view_pin(view, router, i, dir))
		{
			if (!view->wants_end || cb_view_choose_end(kd, bound, dir, view))
				return;
			view->wants_end = false;
			CB_TEST_POINT("view-end-refused");
		}
		cb_slot_release_to(view->mark);
		cb_view_reset(view);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * May entries from below "from" have come into the buckets since, or into range
 * buffers, or has the index lost its buckets?  Whoever reads the journal below
 * "from" after the view was opened asks this then.  Takes no lock, cannot fail.
 */
bool
cb_bucket_view_is_late(const CbBucketView *view)
{
	if (view->attach_id == 0 || view->swept)
		return false;
	/* "again" begins anew with an attachment: its number is looked at later */
	if (cb_load_acquire(&view->set->again) != view->again ||
		cb_load_acquire(&view->set->spills) != view->spills)
		return true;
	pg_read_barrier();
	return view->set->attach_id != view->attach_id;
}

/* ---------- sorting ---------- */

/*
 * By (key, TID), for cb_chunk_sort(); arg is the CbKeyDesc.  An error leaves the
 * sort half-way, which has changed nothing that others see.
 */
static int
cb_view_compare(const void *a, const void *b, void *arg)
{
	return cb_key_compare(arg, (IndexTuple) a, (IndexTuple) b);
}

/*
 * Does the bucket of the view, and no other one, list the chunk?  While nobody
 * owns it, the chunk names one that does; that changes with set->lock EXCL
 * only.
 */
static bool
cb_view_lists_alone(const CbBucketView *view, const CbPoolChunk *chunk)
{
	if (chunk->bucket != view->bucket->number)
		return false;
	return chunk->nlists == 1;
}

/*
 * Makes the order the chunk's own, if nobody else can be reading that.  The
 * bucket's lock keeps new readers and owners out if it is the only one that
 * lists the chunk, else the bucket set's does, for which no reader waits.
 * What several buckets list takes no entries, so who publishes does not
 * matter.  False: it cannot be, and the caller keeps its order.  On entry no
 * LWLock is held; set->lock is waited for if it is to be shared, the bucket's
 * after it; both are released on return.  Raises no error.
 */
static bool
cb_view_install_order(CbBucketView *view, CbPoolChunk *chunk,
					  const uint16 *order, uint32 n)
{
	bool		shared = chunk->nlists > 1;
	bool		installed = false;

	if (!shared)
		cb_set_share(view->set);
	else if (!LWLockConditionalAcquire(&view->set->lock, LW_EXCLUSIVE))
		return false;
	LWLockAcquire(&view->bucket->lock, LW_EXCLUSIVE);
	if ((shared || cb_view_lists_alone(view, chunk)) &&
		cb_load_acquire(&chunk->chunk.holders) == chunk->nlists + 1 &&
		cb_load_acquire(&chunk->chunk.owner) == 0 &&
		view->set->attach_id == view->attach_id)
	{
		cb_chunk_install_order(&chunk->chunk, order, n);
		installed = true;
	}
	LWLockRelease(&view->bucket->lock);
	LWLockRelease(&view->set->lock);
	return installed;
}

/*
 * Is chunk i sorted rather than gone through?  Also a short part is, when
 * readers have gone through it so often that sorting would have cost less.  That
 * is counted in shared memory, without a lock: a count may be lost.
 */
static bool
cb_view_should_sort(CbBucketView *view, int i)
{
	CbPoolChunk *chunk = view->chunks[i].chunk;
	uint32		unsorted = view->chunks[i].count - view->chunks[i].nsorted;
	uint32		passed;

	if (unsorted == 0 || unsorted > CB_VIEW_UNSORTED_MAX)
		return unsorted > 0;
	passed = cb_load_relaxed(&chunk->passed) + unsorted;
	cb_store_relaxed(&chunk->passed, passed > view->chunks[i].count ? 0 : passed);
	return passed > view->chunks[i].count;
}

/*
 * The order of all entries of chunk i, below its count, palloc'd; NULL if it has
 * been made the chunk's own.  The chunk is pinned.  Comparisons run, with no lock
 * held, before any is taken.
 */
static uint16 *
cb_view_sort(const CbKeyDesc *kd, CbBucketView *view, int i)
{
	CbPoolChunk *chunk = view->chunks[i].chunk;
	uint32		n = view->chunks[i].count;
	uint16	   *order = palloc(n * sizeof(uint16));
	uint16	   *scratch = palloc(n * sizeof(uint16));

	cb_chunk_sort(&chunk->chunk, n, order, scratch, cb_view_compare,
				  unconstify(CbKeyDesc *, kd));
	pfree(scratch);
	CB_TEST_POINT("view-sorted");
	if (!cb_view_install_order(view, chunk, order, n))
		return order;
	view->chunks[i].nsorted = n;
	pfree(order);
	return NULL;
}

/* ---------- searching ---------- */

/*
 * Where an entry lies as seen from the probe's bound.  An entry is never a
 * boundary, so one of the two is true.  Comparisons run.
 */
static int
cb_view_probe(const void *entry, void *arg)
{
	CbViewProbe *probe = arg;

	return cb_key_compare_bound(probe->kd, probe->bound, (IndexTuple) entry) <= 0 ?
		-1 : 1;
}

/* How many of n entries in this order lie left of the bound.  Comparisons run. */
static uint32
cb_view_search_order(const CbChunk *chunk, const uint16 *order, uint32 n,
					 CbViewProbe *probe)
{
	uint32		low = 0;

	while (low < n)
	{
		uint32		mid = low + (n - low) / 2;

		if (cb_view_probe(cb_chunk_at(chunk, order[mid]), probe) < 0)
			low = mid + 1;
		else
			n = mid;
	}
	return low;
}

/* Does the entry lie right of lo and left of hi?  Comparisons run. */
static bool
cb_view_is_between(const CbKeyDesc *kd, IndexTuple itup, const CbBound *lo,
				   const CbBound *hi)
{
	return cb_key_compare_bound(kd, lo, itup) > 0 &&
		cb_key_compare_bound(kd, hi, itup) <= 0;
}

/*
 * Puts an unsorted entry into its place among the n of these; order is the
 * reader's own, and has room for it.  Comparisons run.
 */
static void
cb_view_insert(const CbKeyDesc *kd, const CbChunk *chunk, uint16 *order, int n,
			   uint16 place)
{
	IndexTuple	itup = (IndexTuple) cb_chunk_at(chunk, place);
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = itup};
	CbViewProbe probe = {.kd = kd,.bound = &bound};
	uint32		at = cb_view_search_order(chunk, order, n, &probe);

	memmove(&order[at + 1], &order[at], (n - at) * sizeof(uint16));
	order[at] = place;
}

/* Has the unsorted part entries between the bounds?  Comparisons run. */
static bool
cb_view_has_unsorted(const CbKeyDesc *kd, const CbChunk *chunk, uint32 count,
					 uint32 nsorted, const CbBound *lo, const CbBound *hi)
{
	for (uint32 i = nsorted; i < count; i++)
	{
		if (cb_view_is_between(kd, (IndexTuple) cb_chunk_entry(chunk, i), lo, hi))
			return true;
	}
	return false;
}

/*
 * The places of what lies between the bounds, of the sorted part and of the
 * rest, in order; palloc'd in the current context.  Comparisons run.
 */
static void
cb_view_collect(const CbKeyDesc *kd, const CbChunk *chunk, uint32 count,
				uint32 nsorted, const CbBound *lo, const CbBound *hi,
				CbChunkPlaces *places)
{
	CbViewProbe low = {.kd = kd,.bound = lo};
	CbViewProbe high = {.kd = kd,.bound = hi};
	uint32		from = cb_chunk_search(chunk, 0, nsorted, false,
									   cb_view_probe, &low);
	uint32		to = cb_chunk_search(chunk, from, nsorted, true,
									 cb_view_probe, &high);
	uint16	   *order = palloc((to - from + count - nsorted) * sizeof(uint16));
	int			n = to - from;

	for (uint32 rank = from; rank < to; rank++)
		order[rank - from] = cb_chunk_item(chunk, rank)->order;
	for (uint32 i = nsorted; i < count; i++)
	{
		if (cb_view_is_between(kd, (IndexTuple) cb_chunk_entry(chunk, i), lo, hi))
			cb_view_insert(kd, chunk, order, n++, cb_chunk_item(chunk, i)->place);
	}
	places->order = order;
	places->stride = 1;
	places->n = n;
	places->open = false;
}

/*
 * The sorted part from the near bound on, as it stands in chunk i: while that
 * is pinned nobody else installs another order.  Comparisons run.
 */
static void
cb_view_point_into_sorted(const CbKeyDesc *kd, CbBucketView *view, int i,
						  const CbBound *near, ScanDirection dir,
						  CbChunkPlaces *places)
{
	CbViewProbe probe = {.kd = kd,.bound = near};
	const CbChunk *chunk = &view->chunks[i].chunk->chunk;
	uint32		nsorted = view->chunks[i].nsorted;
	uint32		left = cb_chunk_search(chunk, 0, nsorted, false, cb_view_probe,
									   &probe);
	uint32		from = ScanDirectionIsForward(dir) ? left : 0;

	places->n = ScanDirectionIsForward(dir) ? nsorted - left : left;
	places->open = true;
	places->stride = -(int) (sizeof(CbItem) / sizeof(uint16));
	places->order = places->n > 0 ? &cb_chunk_item(chunk, from)->order : NULL;
}

/*
 * The part between the bounds of an order of all entries, which *places points
 * into from here on.  Comparisons run.
 */
static void
cb_view_limit_order(const CbKeyDesc *kd, const CbChunk *chunk, uint16 *order,
					uint32 n, const CbBound *lo, const CbBound *hi,
					CbChunkPlaces *places)
{
	CbViewProbe low = {.kd = kd,.bound = lo};
	CbViewProbe high = {.kd = kd,.bound = hi};
	uint32		from = cb_view_search_order(chunk, order, n, &low);

	places->order = order + from;
	places->stride = 1;
	places->n = cb_view_search_order(chunk, order, n, &high) - from;
	places->open = false;
}

/*
 * The entries of chunk i of the view between two bounds, or, if places->open,
 * from the near one on.  What is palloc'd, in the current memory context, and
 * the chunk, must stay while *places is used.  Comparison functions run,
 * with no lock held.
 *
 * A chunk that is sorted here needs set->lock for a moment, exclusively only
 * if that is free at once, and the bucket's lock after it; no LWLock is held
 * on entry.
 */
void
cb_bucket_view_entries(const CbKeyDesc *kd, CbBucketView *view, int i,
					   const CbBound *lo, const CbBound *hi, ScanDirection dir,
					   CbChunkPlaces *places)
{
	const CbChunk *chunk = &view->chunks[i].chunk->chunk;
	uint32		count = view->chunks[i].count;
	uint16	   *order = NULL;

	places->n = 0;
	if (cb_view_should_sort(view, i))
		order = cb_view_sort(kd, view, i);
	if (order != NULL)
		cb_view_limit_order(kd, chunk, order, count, lo, hi, places);
	else if (cb_view_has_unsorted(kd, chunk, count, view->chunks[i].nsorted, lo, hi))
		cb_view_collect(kd, chunk, count, view->chunks[i].nsorted, lo, hi,
						places);
	else
		cb_view_point_into_sorted(kd, view, i,
								  ScanDirectionIsForward(dir) ? lo : hi, dir,
								  places);
}
