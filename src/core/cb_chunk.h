/*-------------------------------------------------------------------------
 *
 * cb_chunk.h
 *	  Chunks: the unit of memory in which buckets hold entries.
 *
 * A chunk's data area of fixed size is filled from both ends: entries, opaque
 * bytes each 8-aligned, from the front, and one CbItem an entry from the back.
 * Entries are only ever appended, and never change or move (immutable below
 * the count), so whoever has the chunk pinned reads them without a lock.
 *
 * The first nsorted entries are a sorted part: item r's "order" is the place
 * of the entry of rank r.  The others are the unsorted rest.
 *
 * Concurrency:
 *	append			one writer at a time (the caller's lock); publishes with a
 *					release store of the count
 *	count			acquire load; entries below it may be read by any holder
 *	install_order	under the caller's exclusive lock, which keeps new readers
 *					out, and only while no other holder reads the order
 *	hold, release	any process at any time
 *
 * A lock-free reader needs nothing more than these: that the caller's lock
 * guards nsorted and order is the one thing that it would have to replace.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_CHUNK_H
#define CB_CHUNK_H

#include <stddef.h>

#include "core/cb_atomic.h"

typedef enum CbChunkState
{
	CB_CHUNK_FREE,				/* in the free list */
	CB_CHUNK_ACTIVE,			/* takes entries */
	CB_CHUNK_SEALED,			/* takes no more */
	CB_CHUNK_FLUSHING,			/* sealed, and owned by a flusher */
	CB_CHUNK_RETIRED			/* applied and unlinked; freed by its last
								 * holder */
} CbChunkState;

typedef struct CbItem
{
	uint16_t	place;			/* of the entry, in units of 8 bytes */
	uint16_t	order;			/* place of the entry of this rank */
} CbItem;

typedef struct CbChunk
{
	char	   *data;
	uint32_t	size;			/* of data, bytes; <= 65536 */
	uint32_t	used;			/* by entries */
	cb_atomic32 count;			/* entries */
	cb_atomic32 nsorted;
	cb_atomic32 state;			/* CbChunkState */
	cb_atomic32 holders;		/* lists + pins + owner */
	cb_atomic32 owner;			/* who flushes it, 0: nobody */
} CbChunk;

/* three-way comparison of two entries; may not return (longjmp) */
typedef int (*cb_chunk_compare) (const void *a, const void *b, void *arg);

/* where an entry lies as seen from some bound: < 0 left of it, else right */
typedef int (*cb_chunk_probe) (const void *entry, void *arg);

#define CB_CHUNK_ALIGN(len)	(((len) + 7u) & ~(size_t) 7u)

/* largest entry that a chunk of this size takes */
#define CB_CHUNK_MAX_ENTRY(size) (((size) - sizeof(CbItem)) & ~(size_t) 7u)

static inline CbItem *
cb_chunk_item(const CbChunk *chunk, uint32_t i)
{
	return (CbItem *) (chunk->data + chunk->size) - 1 - i;
}

/* the entry at a place */
static inline const void *
cb_chunk_at(const CbChunk *chunk, uint16_t place)
{
	return chunk->data + (size_t) place * 8;
}

/* entry number i, as they were appended */
static inline const void *
cb_chunk_entry(const CbChunk *chunk, uint32_t i)
{
	return cb_chunk_at(chunk, cb_chunk_item(chunk, i)->place);
}

static inline uint32_t
cb_chunk_count(const CbChunk *chunk)
{
	return cb_load_acquire(&((CbChunk *) chunk)->count);
}

/* bytes that are left for the next entry */
static inline uint32_t
cb_chunk_room(const CbChunk *chunk)
{
	uint32_t	taken = chunk->used +
		(cb_load_relaxed(&((CbChunk *) chunk)->count) + 1) * sizeof(CbItem);

	return taken >= chunk->size ? 0 : chunk->size - taken;
}

/* Sets up an empty chunk in state FREE over this memory. */
extern void cb_chunk_init(CbChunk *chunk, void *data, uint32_t size);

/* FREE -> ACTIVE, empty, with one holder: the list that it will be in. */
extern void cb_chunk_open(CbChunk *chunk);

/* Appends an entry of len bytes; there is room for CB_CHUNK_ALIGN(len). */
extern void cb_chunk_append(CbChunk *chunk, const void *entry, uint32_t len);

/* The same for one that has been written to where the next one goes. */
extern void cb_chunk_add(CbChunk *chunk, uint32_t len);

static inline char *
cb_chunk_next(const CbChunk *chunk)
{
	return chunk->data + chunk->used;
}

/* Computes the sorted order of the first n entries; touches no shared state. */
extern void cb_chunk_sort(const CbChunk *chunk, uint32_t n, uint16_t *order,
						  uint16_t *scratch, cb_chunk_compare compare,
						  void *arg);

/* Makes the first n entries the sorted part, in this order. */
extern void cb_chunk_install_order(CbChunk *chunk, const uint16_t *order,
								   uint32_t n);

/* Searches ranks [from, to) of the sorted part for a bound's place. */
extern uint32_t cb_chunk_search(const CbChunk *chunk, uint32_t from,
								uint32_t to, bool near, cb_chunk_probe probe,
								void *arg);

/* The one place where states change: asserts that the edge is legal. */
extern void cb_chunk_set_state(CbChunk *chunk, CbChunkState to);

static inline CbChunkState
cb_chunk_state(const CbChunk *chunk)
{
	return (CbChunkState) cb_load_acquire(&((CbChunk *) chunk)->state);
}

static inline void
cb_chunk_hold(CbChunk *chunk)
{
	cb_fetch_add(&chunk->holders, 1);
}

/* Gives up a hold; true: it was the last, the caller frees the chunk. */
static inline bool
cb_chunk_release(CbChunk *chunk)
{
	return cb_fetch_sub(&chunk->holders, 1) == 1;
}

/* Takes the ownership for a flush, with a hold; false: it is another's. */
extern bool cb_chunk_own(CbChunk *chunk, uint32_t me);

/* Gives up the ownership, not the hold. */
extern void cb_chunk_disown(CbChunk *chunk);

#endif							/* CB_CHUNK_H */
