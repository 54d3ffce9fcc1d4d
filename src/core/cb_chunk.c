/*-------------------------------------------------------------------------
 *
 * cb_chunk.c
 *	  Chunks: appending, sorting, searching, and their life.
 *
 * Who may do what when is said in the header.  Pairs of orderings:
 *
 *	  count		release in append and open; acquire in cb_chunk_count(): the
 *				entry and its item are complete
 *	  nsorted	release in install_order; acquire in sort: so is the order
 *	  holders	each hold and release is both: whoever frees a chunk, or finds
 *				itself its only reader, sees that all others are done with it
 *	  owner		taken with acquire, given up with release: the next owner sees
 *				what the former one did
 *	  state		release, acquire
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_chunk.h"

#include <string.h>

#include "core/cb_assert.h"

#define CB_CHUNK_MIN_PIECE	8	/* shorter pieces are filled up by insertion */
#define CB_CHUNK_MAX_PIECES	20	/* each is at least twice the next one */
#define CB_CHUNK_GALLOP		6	/* sorted part/rest from which on searching
								 * pays */

/* what a sort needs at hand */
typedef struct CbChunkSort
{
	const CbChunk *chunk;
	cb_chunk_compare compare;
	void	   *arg;
	uint16_t   *scratch;
} CbChunkSort;

/* a sorted piece of the rest */
typedef struct CbChunkPiece
{
	uint32_t	start;
	uint32_t	len;
} CbChunkPiece;

/* The life of a chunk. */
static inline bool
cb_chunk_edge_is_legal(CbChunkState from, CbChunkState to)
{
	switch (from)
	{
		case CB_CHUNK_FREE:
			return to == CB_CHUNK_ACTIVE;
		case CB_CHUNK_ACTIVE:	/* retired: it was empty, and is dropped */
			return to == CB_CHUNK_SEALED || to == CB_CHUNK_RETIRED;
		case CB_CHUNK_SEALED:
			return to == CB_CHUNK_FLUSHING || to == CB_CHUNK_RETIRED;
		case CB_CHUNK_FLUSHING: /* sealed: the flusher gave up */
			return to == CB_CHUNK_SEALED || to == CB_CHUNK_RETIRED;
		case CB_CHUNK_RETIRED:
			return to == CB_CHUNK_FREE;
	}
	return false;
}

/*
 * Sets up an empty chunk in state FREE over size bytes (a multiple of 8, at
 * most 65536) of 8-aligned memory, which stays the caller's.  Nobody else may
 * use the chunk yet.
 */
void
cb_chunk_init(CbChunk *chunk, void *data, uint32_t size)
{
	assert(size % 8 == 0 && size <= 65536 && (uintptr_t) data % 8 == 0);

	chunk->data = data;
	chunk->size = size;
	chunk->used = 0;
	atomic_init(&chunk->count, 0);
	atomic_init(&chunk->nsorted, 0);
	atomic_init(&chunk->state, CB_CHUNK_FREE);
	atomic_init(&chunk->holders, 0);
	atomic_init(&chunk->owner, 0);
}

/*
 * FREE -> ACTIVE, empty, with one holder: the list that it will be in.  The
 * caller has taken the chunk off the free list: it is nobody else's.
 */
void
cb_chunk_open(CbChunk *chunk)
{
	assert(cb_load_acquire(&chunk->holders) == 0);
	assert(cb_load_acquire(&chunk->owner) == 0);

	chunk->used = 0;
	cb_store_relaxed(&chunk->nsorted, 0);
	cb_store_release(&chunk->count, 0);
	cb_store_release(&chunk->holders, 1);
	cb_chunk_set_state(chunk, CB_CHUNK_ACTIVE);
}

/*
 * Appends an entry of len bytes; there is room for CB_CHUNK_ALIGN(len).  The
 * caller excludes other appends and a change of state; cannot fail.  Readers
 * may be there: they see the entry as a whole, or not at all.
 */
void
cb_chunk_append(CbChunk *chunk, const void *entry, uint32_t len)
{
	assert(CB_CHUNK_ALIGN(len) <= cb_chunk_room(chunk));

	memcpy(cb_chunk_next(chunk), entry, len);
	cb_chunk_add(chunk, len);
}

/*
 * The same for an entry that the caller has written to cb_chunk_next(), where
 * there is room for it.
 */
void
cb_chunk_add(CbChunk *chunk, uint32_t len)
{
	uint32_t	i = cb_load_relaxed(&chunk->count);
	CbItem	   *item = cb_chunk_item(chunk, i);

	assert(cb_chunk_state(chunk) == CB_CHUNK_ACTIVE);
	assert(CB_CHUNK_ALIGN(len) <= cb_chunk_room(chunk));

	item->place = (uint16_t) (chunk->used / 8);
	item->order = 0;
	chunk->used += CB_CHUNK_ALIGN(len);
	cb_store_release(&chunk->count, i + 1);
}

/* Does the entry at place a come after that at b? */
static inline bool
cb_chunk_after(const CbChunkSort *s, uint16_t a, uint16_t b)
{
	return s->compare(cb_chunk_at(s->chunk, a), cb_chunk_at(s->chunk, b),
					  s->arg) > 0;
}

/* The place of the entry of this rank of the sorted part. */
static inline uint16_t
cb_chunk_ranked(const CbChunkSort *s, uint32_t rank)
{
	return cb_chunk_item(s->chunk, rank)->order;
}

/*
 * Length of the sorted part at the start of places.  Publications come sorted,
 * so there are such.
 */
static uint32_t
cb_chunk_find_piece(const CbChunkSort *s, const uint16_t *places, uint32_t n)
{
	uint32_t	len = 1;

	while (len < n && !cb_chunk_after(s, places[len - 1], places[len]))
		len++;
	return len;
}

/* Inserts places[sorted .. n) into the sorted ones before them; stable. */
static void
cb_chunk_insert(const CbChunkSort *s, uint16_t *places, uint32_t sorted,
				uint32_t n)
{
	for (uint32_t i = sorted; i < n; i++)
	{
		uint16_t	place = places[i];
		uint32_t	low = 0;
		uint32_t	high = i;

		while (low < high)
		{
			uint32_t	mid = (low + high) / 2;

			if (!cb_chunk_after(s, places[mid], place))
				low = mid + 1;
			else
				high = mid;
		}
		memmove(places + low + 1, places + low, (i - low) * sizeof(uint16_t));
		places[low] = place;
	}
}

/* Merges places[0 .. left) with places[left .. n); stable. */
static void
cb_chunk_merge(const CbChunkSort *s, uint16_t *places, uint32_t left,
			   uint32_t n)
{
	uint32_t	i = 0;
	uint32_t	j = left;
	uint32_t	k = 0;

	/* nothing to do if they are in order */
	if (!cb_chunk_after(s, places[left - 1], places[left]))
		return;

	memcpy(s->scratch, places, left * sizeof(uint16_t));
	while (i < left && j < n)
	{
		if (!cb_chunk_after(s, s->scratch[i], places[j]))
			places[k++] = s->scratch[i++];
		else
			places[k++] = places[j++];
	}
	memcpy(places + k, s->scratch + i, (left - i) * sizeof(uint16_t));
}

/* Merges the last two pieces into one. */
static void
cb_chunk_pop_piece(const CbChunkSort *s, uint16_t *places, CbChunkPiece *pieces,
				   int *npieces)
{
	CbChunkPiece *a = &pieces[*npieces - 2];
	CbChunkPiece *b = &pieces[*npieces - 1];

	cb_chunk_merge(s, places + a->start, a->len, a->len + b->len);
	a->len += b->len;
	(*npieces)--;
}

/*
 * Merge sort of the rest from the pieces it is made of.  A piece is merged with
 * the one before unless that is twice as long: so few wait at any time.
 */
static void
cb_chunk_sort_rest(const CbChunkSort *s, uint16_t *places, uint32_t n)
{
	CbChunkPiece pieces[CB_CHUNK_MAX_PIECES];
	int			npieces = 0;
	uint32_t	start = 0;

	while (start < n)
	{
		uint32_t	len = cb_chunk_find_piece(s, places + start, n - start);
		uint32_t	full = n - start;

		if (full > CB_CHUNK_MIN_PIECE)
			full = CB_CHUNK_MIN_PIECE;
		if (len < full)
		{
			cb_chunk_insert(s, places + start, len, full);
			len = full;
		}
		pieces[npieces].start = start;
		pieces[npieces].len = len;
		npieces++;
		start += len;

		while (npieces > 1 && pieces[npieces - 2].len < 2 * pieces[npieces - 1].len)
			cb_chunk_pop_piece(s, places, pieces, &npieces);
		assert(npieces < CB_CHUNK_MAX_PIECES);
	}
	while (npieces > 1)
		cb_chunk_pop_piece(s, places, pieces, &npieces);
}

/*
 * The first rank >= from of the sorted part whose entry comes after the other:
 * by steps that double, then by halving.  Equal entries of the sorted part are
 * older.
 */
static uint32_t
cb_chunk_gallop(const CbChunkSort *s, uint32_t from, uint32_t to,
				uint16_t place)
{
	uint32_t	step = 1;
	uint32_t	low = from;
	uint32_t	high = from;

	while (high < to &&
		   !cb_chunk_after(s, cb_chunk_ranked(s, high), place))
	{
		low = high + 1;
		high += step;
		step *= 2;
	}
	if (high > to)
		high = to;
	while (low < high)
	{
		uint32_t	mid = (low + high) / 2;

		if (!cb_chunk_after(s, cb_chunk_ranked(s, mid), place))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* As gallop, one by one: for a sorted part that is not much longer than the rest. */
static uint32_t
cb_chunk_walk(const CbChunkSort *s, uint32_t from, uint32_t to,
			  uint16_t place)
{
	while (from < to &&
		   !cb_chunk_after(s, cb_chunk_ranked(s, from), place))
		from++;
	return from;
}

/*
 * Merges the sorted part with the sorted rest, which stands at the end of
 * order: what is written never passes what is still to be read.
 */
static void
cb_chunk_merge_rest(const CbChunkSort *s, uint16_t *order, uint32_t nsorted,
					uint32_t n)
{
	bool		far = nsorted / CB_CHUNK_GALLOP >= n - nsorted;
	uint32_t	i = 0;
	uint32_t	k = 0;

	for (uint32_t j = nsorted; j < n; j++)
	{
		uint16_t	place = order[j];
		uint32_t	until = far ? cb_chunk_gallop(s, i, nsorted, place) :
			cb_chunk_walk(s, i, nsorted, place);

		while (i < until)
			order[k++] = cb_chunk_ranked(s, i++);
		order[k++] = place;
	}
	while (i < nsorted)
		order[k++] = cb_chunk_ranked(s, i++);
}

/*
 * Computes the sorted order of the first n entries (n >= nsorted), their
 * places, into order, which has room for n: merges the sorted part with the
 * rest.  Touches no shared state; scratch has room for n places.  The
 * comparison may longjmp.  Stable: equal entries keep the order in which they
 * were appended.
 *
 * The rest is sorted by a natural merge sort, of the pieces that it comes in;
 * where the sorted part is much longer, the rest's places in it are found by
 * exponential search.
 */
void
cb_chunk_sort(const CbChunk *chunk, uint32_t n, uint16_t *order,
			  uint16_t *scratch, cb_chunk_compare compare, void *arg)
{
	CbChunkSort s = {chunk, compare, arg, scratch};
	uint32_t	nsorted = cb_load_acquire(&((CbChunk *) chunk)->nsorted);

	assert(nsorted <= n && n <= cb_chunk_count(chunk));

	for (uint32_t i = nsorted; i < n; i++)
		order[i] = cb_chunk_item(chunk, i)->place;
	cb_chunk_sort_rest(&s, order + nsorted, n - nsorted);
	cb_chunk_merge_rest(&s, order, nsorted, n);
}

/*
 * Makes the first n entries the sorted part, in this order, which comes from
 * cb_chunk_sort() with the same n.  Under the caller's exclusive lock, with no
 * other holder that reads the order; cannot fail.
 */
void
cb_chunk_install_order(CbChunk *chunk, const uint16_t *order, uint32_t n)
{
	assert(n >= cb_load_relaxed(&chunk->nsorted) && n <= cb_chunk_count(chunk));

	for (uint32_t i = 0; i < n; i++)
		cb_chunk_item(chunk, i)->order = order[i];
	cb_store_release(&chunk->nsorted, n);
}

/* Does the entry of this rank of the sorted part lie left of the bound? */
static inline bool
cb_chunk_is_left(const CbChunk *chunk, uint32_t rank, cb_chunk_probe probe,
				 void *arg)
{
	return probe(cb_chunk_at(chunk, cb_chunk_item(chunk, rank)->order),
				 arg) < 0;
}

/*
 * How many of ranks [from, to) of the sorted part lie left of the bound, plus
 * from.  near: it is expected to lie not far from "from".  The caller holds
 * the chunk; the probe may longjmp.
 */
uint32_t
cb_chunk_search(const CbChunk *chunk, uint32_t from, uint32_t to, bool near,
				cb_chunk_probe probe, void *arg)
{
	for (uint32_t step = 1; near && from + step <= to; step *= 2)
	{
		if (!cb_chunk_is_left(chunk, from + step - 1, probe, arg))
			to = from + step - 1;
		else
			from += step;
	}
	while (from < to)
	{
		uint32_t	mid = (from + to) / 2;

		if (cb_chunk_is_left(chunk, mid, probe, arg))
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

/*
 * The one place where states change: asserts that the edge is legal.  The
 * caller's lock, or being the only holder, excludes other changes.  A release.
 */
void
cb_chunk_set_state(CbChunk *chunk, CbChunkState to)
{
	assert(cb_chunk_edge_is_legal(cb_chunk_state(chunk), to));

	cb_store_release(&chunk->state, to);
}

/*
 * Takes the ownership for a flush, with a hold; false: it is another's.  me: a
 * number that tells owners apart, not 0.  The caller keeps the chunk from
 * being freed: by its list's lock or a hold.  Never waits.
 */
bool
cb_chunk_own(CbChunk *chunk, uint32_t me)
{
	uint32_t	nobody = 0;

	assert(me != 0);

	if (!cb_swap_if(&chunk->owner, &nobody, me))
		return false;
	cb_chunk_hold(chunk);
	return true;
}

/*
 * Gives up the ownership, not the hold.  A release: the next owner sees what
 * this one did.
 */
void
cb_chunk_disown(CbChunk *chunk)
{
	assert(cb_load_relaxed(&chunk->owner) != 0);

	cb_store_release(&chunk->owner, 0);
}
