/*-------------------------------------------------------------------------
 *
 * cb_merge.c
 *	  Merging the tiers of a window, in scan order.
 *
 * Sources are the leaf's packed part and its plain entries, which are opened
 * here, and what the upper tiers add.  Each is in order; of equal entries of
 * two sources one is returned.  Comparison functions run; no lock is held, but
 * the leaf's where the leaf is the only source.
 *
 * A scan for one number in the first column is over when the first entries
 * right of its bound, of packed part and delta, are greater.  If one has none
 * there, that says nothing: the entries can begin in the next leaf, where
 * VACUUM has removed those before them (I2_LACKS).  Shorter integers are
 * widened first; that loses nothing, and the family's order is one for all its
 * types (A10_WIDEN).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_merge.h"

/* ---------- the leaf ---------- */

/*
 * Must the leaf's entries be compared with the far bound?  Going forward it is
 * the leaf's own high key, unless the window was clipped.  Going backward the
 * leaf may have taken over the range of its left neighbour, or a part of it,
 * since the page was read that led to it and told its lower bound.
 */
static inline bool
cb_merge_ends_inside(CbScanOpaque so, const CbMerge *merge)
{
	return merge->step < 0 || so->cur->clipped;
}

/* Is an entry beyond the near bound left of the far one, as the scan goes? */
static inline bool
cb_merge_is_inside(CbScanOpaque so, const CbMerge *merge, IndexTuple entry)
{
	int			cmp = cb_key_compare_bound(&so->kd, merge->far, entry);

	return merge->step > 0 ? cmp <= 0 : cmp > 0;
}

/* Adds the leaf's plain entries between the window's bounds. */
static void
cb_merge_open_plain(CbScanOpaque so, CbMerge *merge)
{
	Page		page = so->cur->page;
	ScanDirection dir = (ScanDirection) merge->step;
	bool		forward = merge->step > 0;
	OffsetNumber last = forward ? PageGetMaxOffsetNumber(page) :
		CbPageFirstPlain(page);
	CbSource   *source = &merge->sources[merge->nsources++];

	source->kind = CB_SOURCE_LEAF;
	source->cur = cb_tree_search_page(&so->kd, &so->pos.bound, page, dir);
	source->end = forward ? last + 1 : last;
	if (source->cur != source->end && !merge->leaf_open &&
		cb_merge_ends_inside(so, merge) &&
		!cb_merge_is_inside(so, merge, CbPageGetTuple(page, last)))
		source->end = cb_tree_search_page(&so->kd, merge->far, page, dir);
	if (!forward)
	{
		source->cur--;
		source->end--;
	}
}

/* How many entries of the leaf's packed part lie left of the bound. */
static int
cb_merge_search_packed(CbScanOpaque so, const CbBound *bound)
{
	CbWindow   *window = so->cur;

	return cb_tree_search_packed(&so->kd, bound, &window->reader, window->leaf.blkno);
}

/* The same for the far bound, beyond which the leaf mostly has no entry. */
static int
cb_merge_search_packed_far(CbScanOpaque so, const CbMerge *merge)
{
	CbWindow   *window = so->cur;
	CbLeaf	   *leaf = &window->reader;
	int			n = leaf->npacked;

	if (merge->step > 0 &&
		cb_tree_packed_is_left(&so->kd, merge->far, leaf, window->leaf.blkno, n - 1))
		return n;
	if (merge->step < 0 &&
		!cb_tree_packed_is_left(&so->kd, merge->far, leaf, window->leaf.blkno, 0))
		return 0;
	return cb_merge_search_packed(so, merge->far);
}

/*
 * From now on entries of the leaf's packed part are read many at once, as the scan
 * may want many.  The merge has been opened, or is.
 */
void
cb_merge_read_on(CbScanOpaque so, CbMerge *merge)
{
	CbLeaf	   *leaf = &so->cur->reader;

	if (merge->reads_on)
		return;
	Assert(!merge->leaf_open);
	merge->reads_on = true;
	merge->packed_has_dead = leaf->npacked > 0 && cb_pack_has_dead(leaf->packed.blob);
}

/* The same for the leaf's packed part. */
static void
cb_merge_open_packed(CbScanOpaque so, CbMerge *merge)
{
	CbSource   *source;
	bool		forward = merge->step > 0;

	if (so->cur->reader.npacked == 0)
		return;

	/* a scan that may want few of them looks at these alone */
	if (!so->starting)
		cb_merge_read_on(so, merge);
	source = &merge->sources[merge->nsources++];
	source->kind = CB_SOURCE_PACKED;
	source->cur = cb_merge_search_packed(so, &so->pos.bound);
	source->end = cb_merge_ends_inside(so, merge) && !merge->leaf_open ?
		cb_merge_search_packed_far(so, merge) :
		forward ? so->cur->reader.npacked : 0;
	if (!forward)
	{
		source->cur--;
		source->end--;
	}
}

/*
 * Adds the entries of the leaf between the window's bounds: those of its
 * packed part, then the plain ones.  A window of few entries compares each with
 * the far bound; for others that is looked for.  The leaf is share-locked, or a
 * copy.  Comparison functions run, and a damaged packed part raises an error.
 */
void
cb_merge_open_leaf(CbScanOpaque so, CbMerge *merge)
{
	merge->leaf_open = so->starting && cb_bound_is_at_end(&so->pos.bound) &&
		cb_merge_ends_inside(so, merge);
	cb_merge_open_packed(so, merge);
	cb_merge_open_plain(so, merge);
}

/*
 * Adds the entries of a shared component, which is pinned, from a place on in
 * the merge's direction.  Takes no lock, compares nothing.
 */
void
cb_merge_add_shared(CbMerge *merge, const CbDirectory *component,
					const CbSharedPlace *place)
{
	CbSource   *source = &merge->sources[merge->nsources++];
	bool		forward = merge->step > 0;

	source->kind = CB_SOURCE_SHARED;
	source->shared = component;
	source->member = place->member;
	source->chunk = cb_directory_member(component, place->member);
	source->cur = forward ? place->rank : place->rank - 1;
	source->end = forward ? (int) cb_chunk_count(source->chunk) : -1;
}

/*
 * Is there an entry of the source, and is it known to be right of the number?
 */
static bool
cb_merge_is_right_of(CbScanOpaque so, const CbSource *source, const CbBound *bound)
{
	CbWindow   *window = so->cur;
	CbPackReader *packed = &window->reader.packed;
	IndexTuple	itup;
	int64		number;

	if (source->kind == CB_SOURCE_PACKED)
		return (packed->info & INDEX_NULL_MASK) == 0 &&
			cb_pack_read_number(packed, source->cur, &number) &&
			number > bound->lead;
	itup = cb_page_get_entry(window->page, source->cur);
	return itup != NULL && cb_key_compare_lead(bound, itup) > 0;
}

/*
 * The leaf is all that there is, and the scan wants one number in the first
 * column: do the first entries of packed part and delta right of the bound
 * tell that there is none, and none further on?  They are known without being
 * read as a whole.  All sources are open.  Takes no lock, raises no error;
 * false if it cannot tell.
 */
bool
cb_merge_lacks_number(CbScanOpaque so, const CbMerge *merge)
{
	const CbBound *bound = &so->pos.bound;
	bool		found = false;

	if (bound->kind != CB_BOUND_KEYS || bound->lead_kind != CB_LEAD_INT64 ||
		bound->after || so->pos.points == NULL || so->pos.points->n > 1)
		return false;
	for (int i = 0; i < merge->nsources; i++)
	{
		const CbSource *source = &merge->sources[i];

		if (source->cur == source->end)
			continue;
		if (!cb_merge_is_right_of(so, source, bound))
			return false;
		found = true;
	}
	return found;
}

/* The tuple of an item of the leaf, once it is known to lie within. */
static IndexTuple
cb_merge_get_plain(IndexScanDesc scan, Page page, OffsetNumber off)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	IndexTuple	itup = cb_page_get_entry(page, off);

	if (itup == NULL)
		cb_page_report_entry(scan->indexRelation, window->leaf.blkno, off);
	return itup;
}

/* ---------- heads ---------- */

/*
 * Brings the entry of a chunk that comes after the head into the caches.
 * Inlined, as in cb_scan_group.c.
 */
static pg_attribute_always_inline void
cb_source_prefetch(const CbSource *source, int step)
{
	const CbChunkPlaces *places = &source->places;
	int			next = source->cur + step;

	if (next != source->end)
		__builtin_prefetch(cb_chunk_at(source->chunk,
									   places->order[next * places->stride]));
}

static inline IndexTuple
cb_source_entry(const CbSource *source, int i)
{
	const CbChunkPlaces *places = &source->places;

	return (IndexTuple) cb_chunk_at(source->chunk,
									places->order[i * places->stride]);
}

/*
 * Is the entry of a chunk the same as the one before it?  A publication that
 * fails half-way is done again as a whole, so a chunk can hold one twice.
 */
static inline bool
cb_merge_is_repeated(CbScanOpaque so, const CbMerge *merge,
					 const CbSource *source)
{
	IndexTuple	entry;
	IndexTuple	last;

	if (source->cur == source->first)
		return false;
	entry = cb_source_entry(source, source->cur);
	last = cb_source_entry(source, source->cur - merge->step);
	return ItemPointerEquals(&entry->t_tid, &last->t_tid) &&
		cb_key_compare(&so->kd, entry, last) == 0;
}

/* Is entry i of the leaf's packed part one of merge->read? */
static inline bool
cb_merge_has_read(const CbMerge *merge, int i)
{
	return i >= merge->read_from && i < merge->read_from + merge->nread;
}

/* Room for so many bytes of entries; what these do not take is given back. */
static inline CbLeafTuple *
cb_merge_reserve(CbArena *kept, Size size)
{
	if (kept->left < size + CB_SCAN_SLACK)
		cb_arena_extend(kept, size + CB_SCAN_SLACK);
	return (CbLeafTuple *) kept->at;
}

/*
 * Reads entry i of the leaf's packed part into merge->read, with those that come
 * after it in the merge's direction and can be read with it.
 */
static void
cb_merge_read_many(CbScanOpaque so, CbMerge *merge, int i)
{
	CbLeaf	   *leaf = &so->cur->reader;

	(void) cb_merge_reserve(&so->cur->kept, CB_LEAF_READ_ROOM);
	merge->read_from = merge->step > 0 ? i : cb_pack_words_start(&leaf->packed, i);
	merge->nread = cb_leaf_read_from(leaf, merge->read_from, &so->cur->kept, merge->read);
}

/*
 * Entry i of the leaf's packed part, which lives as long as the window; NULL:
 * the packed part is damaged.
 */
static IndexTuple
cb_merge_read_packed(CbScanOpaque so, CbMerge *merge, int i)
{
	CbWindow   *window = so->cur;
	CbArena    *kept = &window->kept;
	CbLeafTuple *room;
	IndexTuple	itup;

	if (merge->reads_on)
	{
		if (!cb_merge_has_read(merge, i))
			cb_merge_read_many(so, merge, i);
		return cb_merge_has_read(merge, i) ? merge->read[i - merge->read_from] : NULL;
	}
	room = cb_merge_reserve(kept, sizeof(CbLeafTuple));
	itup = cb_leaf_read(&window->reader, i, room);
	if (itup != NULL)
		(void) cb_arena_alloc(kept, IndexTupleSize(itup));
	return itup;
}

/*
 * Sets the head of a source that is a run of a range buffer, from cur or from
 * the next page on; it lives as long as the window.  False: it is used up.
 */
static bool
cb_merge_settle_spilled(IndexScanDesc scan, CbMerge *merge, CbSource *source)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbRunCursor *cursor = source->cursor;
	CbArena    *kept = &so->cur->kept;
	CbLeafTuple *room = cb_merge_reserve(kept, sizeof(CbLeafTuple));
	IndexTuple	itup;

	if (source->cur == source->end)
	{
		if (!cb_run_turn(scan->indexRelation, cursor,
						 (ScanDirection) merge->step))
			return false;
		source->cur = merge->step > 0 ? 0 : cursor->nentries - 1;
		source->end = merge->step > 0 ? cursor->nentries : -1;
	}
	itup = cb_run_entry(scan->indexRelation, cursor, source->cur, room);
	if (itup != &room->tuple)
		memcpy(room, itup, IndexTupleSize(itup));
	(void) cb_arena_alloc(kept, IndexTupleSize(itup));
	source->head = &room->tuple;
	source->head_dead = false;
	return cb_merge_is_inside(so, merge, source->head);
}

/* Goes to the next member of a component of a shared copy; false: there is none. */
static bool
cb_merge_turn_shared(const CbMerge *merge, CbSource *source)
{
	bool		forward = merge->step > 0;
	int			n;

	if (source->member == (forward ? source->shared->nmembers - 1 : 0))
		return false;
	source->member += merge->step;
	source->chunk = cb_directory_member(source->shared, source->member);
	n = cb_chunk_count(source->chunk);
	source->cur = forward ? 0 : n - 1;
	source->end = forward ? n : -1;
	return true;
}

/*
 * Sets the head of a source that is a component of the shared copy, from cur or
 * from the next member on; false: it is used up.
 */
static bool
cb_merge_settle_shared(CbScanOpaque so, const CbMerge *merge, CbSource *source)
{
	for (;; source->cur += merge->step)
	{
		if (source->cur == source->end && !cb_merge_turn_shared(merge, source))
			return false;
		source->head = (IndexTuple) cb_chunk_entry(source->chunk, source->cur);
		if (cb_shared_entry_pos(source->head) >= so->upper->tail)
			break;
	}
	source->head_dead = false;
	return cb_merge_is_inside(so, merge, source->head);
}

/*
 * Sets the head of a source of the leaf from cur; false: it is marked dead
 * and to be skipped.  The leftmost of its source stays, though, when going
 * backward: it can end the scan.
 */
static bool
cb_merge_settle_leaf(IndexScanDesc scan, CbMerge *merge, CbSource *source)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbWindow   *window = so->cur;
	Page		page = window->page;
	bool		packed = source->kind == CB_SOURCE_PACKED;

	source->head_dead = scan->ignore_killed_tuples &&
		(packed ? merge->packed_has_dead &&
		 cb_pack_is_dead(window->reader.packed.blob, source->cur) :
		 ItemIdIsDead(PageGetItemId(page, source->cur)));
	if (source->head_dead &&
		(merge->step > 0 || source->cur != source->end + 1))
		return false;
	source->head = packed ? cb_merge_read_packed(so, merge, source->cur) :
		cb_merge_get_plain(scan, page, source->cur);
	if (source->head == NULL)
		cb_leaf_report_damaged(scan->indexRelation, window->leaf.blkno);
	return true;
}

/*
 * Moves a source, from cur on, to its first entry that counts: at a journal
 * position not below the tail; in a leaf, not marked dead.  False if the
 * source is used up.
 */
static bool
cb_merge_settle(IndexScanDesc scan, CbMerge *merge, CbSource *source)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	if (source->kind == CB_SOURCE_RANGE)
		return cb_merge_settle_spilled(scan, merge, source);
	if (source->kind == CB_SOURCE_SHARED)
		return cb_merge_settle_shared(so, merge, source);
	for (; source->cur != source->end; source->cur += merge->step)
	{
		if (source->kind == CB_SOURCE_CHUNK)
		{
			if (cb_merge_is_repeated(so, merge, source))
				continue;
			cb_source_prefetch(source, merge->step);
			source->head = cb_source_entry(source, source->cur);
			source->head_dead = false;
			return !source->places.open ||
				cb_merge_is_inside(so, merge, source->head);
		}
		if (source->kind == CB_SOURCE_JOURNAL)
		{
			CbSortEntry *entry = &source->component->entries[source->cur];

			if (entry->pos < so->upper->tail)
				continue;
			source->head = entry->itup;
			source->head_dead = false;
			return true;
		}
		if (cb_merge_settle_leaf(scan, merge, source))
			return !merge->leaf_open ||
				cb_merge_is_inside(so, merge, source->head);
	}
	return false;
}

/* Which of two equal entries stays: the leaf's, unless it is marked dead. */
static inline int
cb_merge_rank(const CbSource *source)
{
	if (CbSourceIsUpper(source))
		return 1;
	return source->head_dead ? 2 : 0;
}

/*
 * Puts a source that has a head among the others.  Where two have the same
 * entry, one of them goes on to its next.
 */
static void
cb_merge_place(IndexScanDesc scan, CbMerge *merge, CbSource *source)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	int			i;

	for (i = 0; i < merge->nordered; i++)
	{
		CbSource   *other = merge->ordered[i];
		int			cmp = cb_key_compare(&so->kd, source->head, other->head);

		if (cmp * merge->step < 0)
			break;
		if (cmp != 0)
			continue;

		if (cb_merge_rank(source) < cb_merge_rank(other))
		{
			merge->ordered[i] = source;
			source = other;
		}
		source->cur += merge->step;
		if (!cb_merge_settle(scan, merge, source))
			return;
	}

	memmove(&merge->ordered[i + 1], &merge->ordered[i],
			(merge->nordered - i) * sizeof(CbSource *));
	merge->ordered[i] = source;
	merge->nordered++;
}

/*
 * How many entries come next that are in merge->read: they lie before all other
 * sources' heads, and none is marked dead.  The first source's head is the first of
 * them; 0 if it is not from there, 0 or 1 if it is marked dead.  Comparison
 * functions run.
 */
int
cb_merge_count_ready(CbScanOpaque so, const CbMerge *merge)
{
	const CbSource *source = merge->ordered[0];
	int			first = source->cur - merge->read_from;
	int			low = 1;
	int			high;
	int			jump = 1;		/* another source's head mostly comes soon */

	if (source->kind != CB_SOURCE_PACKED || !cb_merge_has_read(merge, source->cur))
		return 0;
	high = Min(merge->step > 0 ? merge->nread - first : first + 1,
			   (source->end - source->cur) * merge->step);
	if (merge->packed_has_dead)
		high = cb_pack_count_alive(so->cur->reader.packed.blob, source->cur, high,
								   merge->step);
	if (merge->nordered == 1)
		return high;
	while (low < high)
	{
		int			at = Min(low + jump - 1, low + (high - low) / 2);

		if (cb_key_compare(&so->kd, cb_merge_ready(merge, at),
						   merge->ordered[1]->head) * merge->step < 0)
		{
			low = at + 1;
			jump *= 2;
		}
		else
			high = at;
	}
	return low;
}

/*
 * Takes the first source's head out of the merge, and what comes behind it of
 * that source, n entries in all, and puts its next entry in their place.  There
 * is at least one source with a head; n is 1, or cb_merge_count_ready() at most.
 * As in cb_merge_start().
 */
void
cb_merge_advance(IndexScanDesc scan, CbMerge *merge, int n)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbSource   *source = merge->ordered[0];
	bool		has_more;

	source->cur += n * merge->step;
	has_more = cb_merge_settle(scan, merge, source);
	if (has_more &&
		(merge->nordered == 1 ||
		 cb_key_compare(&so->kd, source->head, merge->ordered[1]->head) * merge->step < 0))
		return;

	merge->nordered--;
	memmove(&merge->ordered[0], &merge->ordered[1],
			merge->nordered * sizeof(CbSource *));
	if (has_more)
		cb_merge_place(scan, merge, source);
}

/*
 * Puts the sources that have entries in order: from here on ordered[0] has the
 * next entry.  All sources are open.  Heads of the leaf's packed part and of
 * range buffers are copied into the window's memory; others stay where they
 * are.  Comparison functions run, pages of range buffers are read, and damage
 * raises an error.
 */
void
cb_merge_start(IndexScanDesc scan, CbMerge *merge)
{
	for (int i = 0; i < merge->nsources; i++)
	{
		if (cb_merge_settle(scan, merge, &merge->sources[i]))
			cb_merge_place(scan, merge, &merge->sources[i]);
	}
}
