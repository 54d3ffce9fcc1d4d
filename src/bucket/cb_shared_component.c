/*-------------------------------------------------------------------------
 *
 * cb_shared_component.c
 *	  Sorted parts of shared copies: written once, then read by all.
 *
 * A component is a chunk, its directory, and those that the directory names,
 * its members, which have the entries in order.  All are of the pool, and in no
 * bucket's list.
 *
 * While a component is written nobody else knows of it: the directory is pinned
 * by the writer's slot alone, and goes with its members if that is released
 * after an error.  What is listed in a shared copy never changes.  It is held
 * by that copy, and by the slots of those who read it; the last one to let go
 * frees it.  The directory is in the state RETIRED all the time, since it can
 * come to its end at any of these moments.
 *
 * Of equal entries a component has one, the one that is in the journal longest:
 * the TID of an earlier one can have been used again, so its bytes can differ
 * (I11_NEWEST, I11_SHAREDNEWEST).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "bucket/cb_bucket.h"
#include "lib/binaryheap.h"
#include "miscadmin.h"

/* a component that is written */
typedef struct CbSharedWriter
{
	const CbKeyDesc *kd;
	const CbBucketSet *set;		/* the index's */
	CbPoolChunk *directory;
	CbDirectory *component;
	CbPoolChunk *member;		/* the last one, which takes entries, or NULL */
} CbSharedWriter;

/* ---------- writing ---------- */

/* How many members a component can have: as many as its directory has room for. */
uint32
cb_directory_max_members(void)
{
	return (cb_pool->chunk_size - offsetof(CbDirectory, members)) /
		sizeof(CbSharedMember);
}

/*
 * May components take one more chunk?  Where there are buckets half of the pool
 * is theirs; in recovery there are none.  A hint: builders of other copies ask,
 * too.
 */
static bool
cb_shared_may_grow(void)
{
	return RecoveryInProgress() ||
		cb_freelist_count(&cb_pool->free_chunks) > cb_pool->nchunks / 2;
}

/*
 * A chunk for the component, held once; CB_NONE: no room.  For it the copy of
 * another index goes that was not used for longest.  No LWLock is held; waits
 * for none.
 */
static uint32
cb_shared_open_chunk(const CbSharedWriter *writer)
{
	uint32		number;

	do
	{
		number = cb_shared_may_grow() ? cb_pool_open_chunk() : CB_NONE;
	} while (number == CB_NONE && cb_shared_evict(writer->set, true));
	return number;
}

/*
 * Begins a component; false: no room.  The slot has room for a pin.  From here
 * on the directory is the slot's, and its members go with it (B3): so it is
 * RETIRED already, and says that it is a directory, before the slot has it.
 */
static bool
cb_shared_begin_component(CbSharedWriter *writer, const CbKeyDesc *kd,
						  const CbBucketSet *set)
{
	uint32		number;

	writer->kd = kd;
	writer->set = set;
	writer->member = NULL;
	number = cb_shared_open_chunk(writer);
	if (number == CB_NONE)
		return false;
	writer->directory = &cb_pool_chunks[number];
	writer->component = cb_directory(number);
	memset(writer->component, 0, offsetof(CbDirectory, members));
	writer->component->has_numbers = kd->lead_kind == CB_LEAD_INT64;
	writer->directory->is_directory = true;
	cb_chunk_set_state(&writer->directory->chunk, CB_CHUNK_RETIRED);
	cb_slot_adopt(writer->directory);
	return true;
}

/*
 * Adds a member that begins with the entry; false: no room.  It is the
 * component's as soon as the component counts it: nothing can fail between that
 * and its opening.
 */
static bool
cb_shared_add_member(CbSharedWriter *writer, IndexTuple itup)
{
	CbDirectory *component = writer->component;
	CbSharedMember *member = &component->members[component->nmembers];
	uint32		number;

	if (component->nmembers == cb_directory_max_members())
		return false;
	number = cb_shared_open_chunk(writer);
	if (number == CB_NONE)
		return false;
	member->chunk = number;
	component->has_numbers = component->has_numbers && cb_key_get_number(itup, &member->number);
	component->nmembers++;
	writer->member = &cb_pool_chunks[number];
	return true;
}

/*
 * What an entry hashes to, for the filters; no NULL is looked for by that.  Can
 * raise an error (detoasting).
 */
static uint32
cb_shared_hash(const CbKeyDesc *kd, IndexTuple itup)
{
	bool		isnull;
	Datum		first = index_getattr(itup, 1, kd->tupdesc, &isnull);

	return isnull || kd->hash == CB_HASH_NONE ? 0 : cb_key_hash(kd, first);
}

/* Adds an entry, right of those before, that has a position; false: no room. */
static inline bool
cb_shared_add(CbSharedWriter *writer, IndexTuple itup, CbPos pos, uint32 hash)
{
	Size		size = MAXALIGN(IndexTupleSize(itup));
	CbPoolChunk *member = writer->member;
	char	   *place;

	if (member == NULL || cb_chunk_room(&member->chunk) < size + sizeof(CbPos))
	{
		if (!cb_shared_add_member(writer, itup))
			return false;
		member = writer->member;

		/* a damaged page: who reads it without the copy may get on */
		if (cb_chunk_room(&member->chunk) < size + sizeof(CbPos))
			return false;
	}
	cb_filter_add(cb_pool_filter(member->number), cb_pool->filter_lines, hash);
	place = cb_chunk_next(&member->chunk);
	memcpy(place, itup, IndexTupleSize(itup));
	*(CbPos *) (place + size) = pos;
	cb_chunk_add(&member->chunk, size + sizeof(CbPos));
	writer->component->nentries++;
	writer->component->max_pos = Max(writer->component->max_pos, pos);
	return true;
}

/* Entries of a piece lie in another order; so many before it comes to one. */
#define CB_SHARED_AHEAD		16

/*
 * Writes a component of a piece of the journal that is sorted; returns its
 * directory, which the slot has pinned, or NULL: the pool has no room.  set is
 * the index's bucket set, whose copy is left alone.
 *
 * No LWLock is held; hashes are made, so an error can be raised.  The caller
 * releases the slot to a mark from before, after an error or NULL, too.
 */
CbPoolChunk *
cb_shared_write(const CbKeyDesc *kd, const CbBucketSet *set,
				const CbSorted *sorted)
{
	CbSharedWriter writer;
	bool		by_abbrev = kd->hash == CB_HASH_ABBREV;

	if (!cb_shared_begin_component(&writer, kd, set))
		return NULL;
	for (int i = 0; i < sorted->n; i++)
	{
		CbPos		pos = sorted->items[i].value;
		IndexTuple	itup = cb_sorted_entry(sorted, pos);
		uint32		hash = by_abbrev ? cb_key_hash_abbrev(sorted->items[i].key) :
			cb_shared_hash(kd, itup);

		if (i % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		if (i + CB_SHARED_AHEAD < sorted->n)
			__builtin_prefetch(cb_sorted_entry(sorted, sorted->items[i + CB_SHARED_AHEAD].value));
		if (!cb_shared_add(&writer, itup, pos, hash))
			return NULL;
	}
	return writer.directory;
}

/*
 * Frees the members of a component whose directory is freed, by whoever had its
 * last hold: nobody reads them.  Waits for nothing, cannot fail; any lock may
 * be held.
 */
void
cb_directory_free_members(CbPoolChunk *directory)
{
	CbDirectory *component = cb_directory(directory->number);

	for (uint32 i = 0; i < component->nmembers; i++)
	{
		CbPoolChunk *member = &cb_pool_chunks[component->members[i].chunk];

		cb_chunk_set_state(&member->chunk, CB_CHUNK_RETIRED);
		(void) cb_chunk_release(&member->chunk);
		cb_pool_free_chunk(member);
	}
}

/* ---------- merging ---------- */

/* a component that is merged */
typedef struct CbSharedInput
{
	const CbDirectory *component;
	int			age;			/* 0: the newest */
	uint32		member;			/* where it is, ... */
	uint32		rank;			/* ... in which */
	IndexTuple	itup;			/* its next entry */
} CbSharedInput;

/*
 * Finds the input's next entry, from its place on, at tail or above; false: there
 * is none.  Components are pinned, and do not change: no lock is needed.
 */
static bool
cb_shared_settle_input(CbSharedInput *input, CbPos tail)
{
	for (; input->member < input->component->nmembers; input->member++)
	{
		const CbChunk *chunk = cb_directory_member(input->component, input->member);
		uint32		n = cb_chunk_count(chunk);

		for (; input->rank < n; input->rank++)
		{
			input->itup = (IndexTuple) cb_chunk_entry(chunk, input->rank);
			if (cb_shared_entry_pos(input->itup) >= tail)
				return true;
		}
		input->rank = 0;
	}
	return false;
}

/*
 * The heap's first is the least entry, of equal ones the newest (I11_SHAREDNEWEST).
 * Comparisons run, and may raise an error.
 */
static int
cb_shared_compare_inputs(Datum a, Datum b, void *arg)
{
	CbSharedInput *x = (CbSharedInput *) DatumGetPointer(a);
	CbSharedInput *y = (CbSharedInput *) DatumGetPointer(b);
	int			cmp = cb_key_compare(arg, x->itup, y->itup);

	return cmp != 0 ? -cmp : y->age - x->age;
}

/*
 * Adds what the heap's inputs have, of equal entries the first; false: no room.
 * Comparisons run; can be interrupted.
 */
static bool
cb_shared_add_inputs(CbSharedWriter *writer, binaryheap *heap, CbPos tail)
{
	IndexTuple	last = NULL;

	for (int64 i = 0; !binaryheap_empty(heap); i++)
	{
		CbSharedInput *input = (CbSharedInput *) DatumGetPointer(binaryheap_first(heap));

		if (i % 1024 == 0)
			CHECK_FOR_INTERRUPTS();
		if (last == NULL || cb_key_compare(writer->kd, last, input->itup) != 0)
		{
			if (!cb_shared_add(writer, input->itup, cb_shared_entry_pos(input->itup),
							   cb_shared_hash(writer->kd, input->itup)))
				return false;
			last = input->itup;
		}
		input->rank++;
		if (cb_shared_settle_input(input, tail))
			binaryheap_replace_first(heap, PointerGetDatum(input));
		else
			(void) binaryheap_remove_first(heap);
	}
	return true;
}

/*
 * Writes a component of what n components have at tail or above; they are given
 * from the newest on, are pinned, and stay as they are.  Otherwise as
 * cb_shared_write(); comparisons run.  The component can be empty.
 */
CbPoolChunk *
cb_shared_merge_components(const CbKeyDesc *kd, const CbBucketSet *set,
						   const CbDirectory **components, int n, CbPos tail)
{
	CbSharedWriter writer;
	CbSharedInput inputs[CB_SHARED_MAX_COMPONENTS];
	binaryheap *heap;
	bool		written;

	if (!cb_shared_begin_component(&writer, kd, set))
		return NULL;
	heap = binaryheap_allocate(n, cb_shared_compare_inputs, unconstify(CbKeyDesc *, kd));
	for (int i = 0; i < n; i++)
	{
		inputs[i] = (CbSharedInput) {.component = components[i],.age = i};
		if (cb_shared_settle_input(&inputs[i], tail))
			binaryheap_add_unordered(heap, PointerGetDatum(&inputs[i]));
	}
	binaryheap_build(heap);
	written = cb_shared_add_inputs(&writer, heap, tail);
	binaryheap_free(heap);
	return written ? writer.directory : NULL;
}

/* ---------- searching ---------- */

/* Does the bound's first column have a number, as the members' first entries have? */
static inline bool
cb_shared_tells_number(const CbDirectory *component, const CbBound *bound)
{
	return component->has_numbers && bound->kind == CB_BOUND_KEYS &&
		bound->lead_kind == CB_LEAD_INT64;
}

/* How many members begin with a number below this one. */
static uint32
cb_shared_count_below(const CbDirectory *component, int64 number)
{
	const CbSharedMember *members = component->members;
	uint32		low = 0;
	uint32		n = component->nmembers;

	while (n > 0)
	{
		uint32		half = n / 2;
		bool		below = members[low + half].number < number;

		low = below ? low + half + 1 : low;
		n = below ? n - half - 1 : half;
	}
	return low;
}

/*
 * How many members begin left of the bound.  Comparisons run, unless the numbers
 * tell: these spare the looks at the members.
 */
static uint32
cb_shared_search_members(const CbKeyDesc *kd, const CbDirectory *component,
						 const CbBound *bound)
{
	uint32		low = 0;
	uint32		high = component->nmembers;

	if (cb_shared_tells_number(component, bound))
	{
		low = cb_shared_count_below(component, bound->lead);
		if (low == high || component->members[low].number != bound->lead)
			return low;
	}
	while (low < high)
	{
		uint32		mid = low + (high - low) / 2;
		const CbChunk *chunk = cb_directory_member(component, mid);

		if (cb_key_compare_bound(kd, bound, (IndexTuple) cb_chunk_entry(chunk, 0)) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/*
 * May the component have entries with this hash of the first column beside a
 * bound at one of the value's ends, which is in this member?  They are in that,
 * or begin with the next (I11_SHAREDNEXT).  Where members have numbers that tells
 * if it begins with this value, which a bound of keys begins with.
 */
static bool
cb_shared_may_hold(const CbDirectory *component, uint32 member,
				   const CbBound *bound, uint32 hash)
{
	const CbSharedMember *members = component->members;
	uint32		next = member + 1;

	if (cb_filter_may_hold(cb_pool_filter(members[member].chunk),
						   cb_pool->filter_lines, hash))
		return true;
	return next < component->nmembers &&
		(!cb_shared_tells_number(component, bound) || members[next].number == bound->lead) &&
		cb_filter_may_hold(cb_pool_filter(members[next].chunk),
						   cb_pool->filter_lines, hash);
}

/*
 * The place of a bound in a pinned component, which has entries.  hash: only
 * those with one value of the first column are wanted, at whose end the bound
 * is; NULL: all.  False: it has none that are wanted.  Comparisons run; takes
 * no lock.
 */
bool
cb_shared_seek(const CbKeyDesc *kd, const CbDirectory *component,
			   const CbBound *bound, const uint32 *hash, CbSharedPlace *place)
{
	uint32		nleft = cb_shared_search_members(kd, component, bound);
	const CbChunk *chunk;
	int			low;
	int			high;

	place->member = nleft == 0 ? 0 : nleft - 1;
	if (hash != NULL && !cb_shared_may_hold(component, place->member, bound, *hash))
		return false;
	chunk = cb_directory_member(component, place->member);
	low = nleft == 0 ? 0 : 1;
	high = nleft == 0 ? 0 : cb_chunk_count(chunk);
	while (low < high)
	{
		int			mid = low + (high - low) / 2;

		if (cb_key_compare_bound(kd, bound, (IndexTuple) cb_chunk_entry(chunk, mid)) <= 0)
			low = mid + 1;
		else
			high = mid;
	}
	place->rank = low;
	return true;
}
