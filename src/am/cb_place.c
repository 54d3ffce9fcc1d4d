/*-------------------------------------------------------------------------
 *
 * cb_place.c
 *	  Places of a scan (cb_scan.h): bounds, with their tuples in memory of
 *	  their own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"
#include "utils/memutils.h"

/* Copies the tuple of a place's bound to the place's own memory. */
static void
cb_place_own_tuple(CbScanOpaque so, CbPlace *place)
{
	Size		size = IndexTupleSize(place->bound.tuple);

	if (place->buf_size < size)
	{
		if (place->buf)
			pfree(place->buf);
		place->buf_size = Max(size, 128);
		place->buf = MemoryContextAlloc(so->cxt, place->buf_size);
	}
	memcpy(place->buf, place->bound.tuple, size);
	place->bound.tuple = (IndexTuple) place->buf;
}

/*
 * Sets the bound of a place; a tuple is copied into memory that the place
 * keeps, of the scan's context.  Nothing is known of its leaf.
 */
void
cb_place_set_bound(CbScanOpaque so, CbPlace *place, const CbBound *bound)
{
	place->bound = *bound;
	place->leaf.blkno = InvalidBlockNumber;
	if (bound->kind == CB_BOUND_TUPLE)
		cb_place_own_tuple(so, place);
}

/*
 * The same, beside an entry, or at a separator, which is copied.  after: the
 * bound is right of it.
 */
void
cb_place_set_tuple(CbScanOpaque so, CbPlace *place, IndexTuple tuple,
				   bool after)
{
	place->bound = (CbBound) {.kind = CB_BOUND_TUPLE,.tuple = tuple,.after = after};
	place->leaf.blkno = InvalidBlockNumber;
	cb_place_own_tuple(so, place);
}

/* The same bound, copied, and all that is known of it. */
void
cb_place_copy(CbScanOpaque so, CbPlace *dst, const CbPlace *src)
{
	cb_place_set_bound(so, dst, &src->bound);
	dst->leaf = src->leaf;
	dst->upper_serial = src->upper_serial;
	memcpy(dst->run_index, src->run_index, sizeof(dst->run_index));
}
