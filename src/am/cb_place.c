/*-------------------------------------------------------------------------
 *
 * cb_place.c
 *	  Places of a scan (cb_scan.h): bounds, with their tuples and keys in
 *	  memory of their own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"
#include "utils/memutils.h"

/* A copy of a tuple in the place's own memory. */
static IndexTuple
cb_place_own_tuple(CbScanOpaque so, CbPlace *place, IndexTuple tuple)
{
	Size		size = IndexTupleSize(tuple);

	if (place->buf_size < size)
	{
		if (place->buf)
			pfree(place->buf);
		place->buf_size = Max(size, 128);
		place->buf = MemoryContextAlloc(so->own_cxt, place->buf_size);
	}
	memcpy(place->buf, tuple, size);
	return (IndexTuple) place->buf;
}

/* Memory for the keys of a place's bound. */
static CbBoundKey *
cb_place_own_keys(CbScanOpaque so, CbPlace *place)
{
	if (place->keys == NULL)
		place->keys = MemoryContextAlloc(so->own_cxt, sizeof(CbBoundKey) *
										 INDEX_MAX_KEYS);
	return place->keys;
}

/*
 * Sets the bound of a place to one beside an entry, or at a separator, which
 * is copied into memory that the place keeps.  after: the bound is right of
 * it.  Nothing is known of its leaf, nor of its places in components of a copy.
 */
void
cb_place_set_tuple(CbScanOpaque so, CbPlace *place, IndexTuple tuple,
				   bool after)
{
	place->bound = (CbBound) {.kind = CB_BOUND_TUPLE,.after = after};
	place->bound.tuple = cb_place_own_tuple(so, place, tuple);
	place->points = NULL;
	place->leaf.blkno = InvalidBlockNumber;
	place->upper_serial = 0;
}

/* Copies keys' values, so many, from an entry: they point to a copy of it. */
static void
cb_place_own_values(CbScanOpaque so, CbPlace *place, IndexTuple entry, int n)
{
	place->nentry = n;
	if (n == 0)
		return;
	entry = cb_place_own_tuple(so, place, entry);
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		place->bound.keys[i].value = index_getattr(entry, i + 1,
												   so->kd.tupdesc, &isnull);
	}
}

/*
 * Sets the bound of a place to where the scan goes in this direction, which is
 * so->keys.place: it is of the entry, NULL if there is none, and of the scan's
 * keys.  Nothing is known of its leaf, nor of its places in components of a
 * copy.
 */
void
cb_place_set_keys(CbScanOpaque so, CbPlace *place, IndexTuple entry,
				  ScanDirection dir)
{
	const CbKeyPlace *to = &so->keys.place;
	const CbKeyPart *first = &to->parts[0];
	int			n = 0;

	cb_keys_make_bound(&so->keys, to, entry, dir, cb_place_own_keys(so, place),
					   &place->bound);
	while (n < to->nparts && to->parts[n].source == CB_PART_ENTRY)
		n++;
	cb_place_own_values(so, place, entry, n);
	place->dir = dir;
	place->points = NULL;
	if (to->nparts > 0 && first->source == CB_PART_COND &&
		first->cond->kind == CB_COND_POINTS && !first->cond->is_null)
	{
		place->points = first->cond;
		place->point = first->index;
	}
	place->leaf.blkno = InvalidBlockNumber;
	place->upper_serial = 0;
}

/* The same bound, copied, and all that is known of it. */
void
cb_place_copy(CbScanOpaque so, CbPlace *dst, const CbPlace *src)
{
	dst->bound = src->bound;
	if (src->bound.kind == CB_BOUND_TUPLE)
		dst->bound.tuple = cb_place_own_tuple(so, dst, src->bound.tuple);
	if (src->bound.kind == CB_BOUND_KEYS)
	{
		dst->bound.keys = cb_place_own_keys(so, dst);
		memcpy(dst->keys, src->keys, sizeof(CbBoundKey) * src->bound.nkeys);
		cb_place_own_values(so, dst, (IndexTuple) src->buf, src->nentry);
	}
	dst->dir = src->dir;
	dst->points = src->points;
	dst->point = src->point;
	dst->leaf = src->leaf;
	dst->upper_serial = src->upper_serial;
	memcpy(dst->component_index, src->component_index, sizeof(dst->component_index));
}
