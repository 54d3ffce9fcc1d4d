/*-------------------------------------------------------------------------
 *
 * cb_window_bucket.c
 *	  Buckets as an upper tier of a scan's windows.
 *
 * The chunks of the bucket at the window's start are pinned while the window
 * is read; what it wants of their entries is copied into it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"

/*
 * The one value of the first column that the window is for; false: there is
 * none such.  It is the one that the scan has gone to, in its direction, or the
 * only one that it wants.
 */
static bool
cb_window_get_value(CbScanOpaque so, ScanDirection dir, const CbKeysType **type,
					Datum *value)
{
	const CbKeyCond *cond = so->keys.space.columns[0].conds;
	int			i = 0;

	if (so->keys.space.ncolumns == 0 || so->keys.space.columns[0].nconds == 0)
		return false;
	if (so->pos.points != NULL)
	{
		if (so->pos.dir != dir)
			return false;
		cond = so->pos.points;
		i = so->pos.point;
	}
	else if (cond->kind != CB_COND_POINTS || cond->n > 1 || cond->is_null)
		return false;
	*type = cond->arg;
	*value = (Datum) cond->values[i];
	return true;
}

/*
 * Does the window want entries with one value in the first column, and has that
 * a hash?  A value of another type may have another hash, so it is made one of the
 * column's type, if it is an integer, or has none.
 */
bool
cb_window_find_hash(CbScanOpaque so, ScanDirection dir, uint32 *hash)
{
	const CbKeysType *type;
	Datum		value;

	if (!cb_window_get_value(so, dir, &type, &value))
		return false;
	if (OidIsValid(type->type) && !cb_key_convert_integer(type->operator.fn_oid, &value))
		return false;
	if (so->kd.hash == CB_HASH_NONE &&
		cb_key_prepare_hash(&so->kd) == CB_HASH_NONE)
		return false;
	*hash = cb_key_hash(&so->kd, value);
	return true;
}

/*
 * The hash of the window's one value tells which chunks can be left out.  Where it
 * is one of several and they are, or no other is locked (A32), the window ends with
 * it.
 */
void
cb_window_set_hash(CbScanOpaque so, ScanDirection dir)
{
	CbBucketView *view = &so->view;
	bool		several = so->pos.points != NULL && so->pos.points->n > 1;

	view->has_hash = (cb_set_find(so->kd.rel) != NULL ||
					  cb_rel_cache(so->kd.rel)->range_root != 0) &&
		cb_window_find_hash(so, dir, &view->hash);
	so->for_point = several && (view->has_hash || so->locks_value);
}

/*
 * Pins the chunks of the bucket that has so->pos, for as long as so->view is
 * open: the slot mark of the window's reading gives them up.  Comparison
 * functions run.
 */
void
cb_window_copy_bucket(IndexScanDesc scan, ScanDirection dir)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;

	cb_window_set_hash(so, dir);
	so->view.wants_end = so->starting && cb_bound_is_at_end(&so->pos.bound);
	cb_bucket_view_open(&so->kd, &so->pos.bound, dir, &so->view);
	CB_TEST_POINT("scan-bucket-pinned");
}

/* Adds the one entry that was copied, which the window ends at. */
static void
cb_window_open_end(CbScanOpaque so, CbMerge *merge)
{
	CbSource   *source = &merge->sources[merge->nsources++];

	source->kind = CB_SOURCE_CHUNK;
	source->chunk = &so->view.ends;
	source->places = (CbChunkPlaces) {.n = 1,.order = &so->view.end_place,.stride = 1,.open = true};
	source->first = source->cur = 0;
	source->end = merge->step;
}

/*
 * Adds each chunk's entries between the bounds.  They stay in the chunks,
 * which are pinned while the merge runs.  Comparison functions run.
 */
void
cb_window_open_bucket(CbScanOpaque so, CbMerge *merge, CbPlace *near,
					  CbPlace *far)
{
	bool		forward = merge->step > 0;
	const CbBound *lo = forward ? &near->bound : &far->bound;
	const CbBound *hi = forward ? &far->bound : &near->bound;

	if (so->view.end != NULL)
	{
		cb_window_open_end(so, merge);
		return;
	}
	for (int i = 0; i < so->view.nchunks; i++)
	{
		CbSource   *source = &merge->sources[merge->nsources];
		int			n;

		cb_bucket_view_entries(&so->kd, &so->view, i, lo, hi,
							   (ScanDirection) merge->step, &source->places);
		n = source->places.n;
		if (n == 0)
			continue;
		merge->nsources++;
		source->kind = CB_SOURCE_CHUNK;
		source->chunk = &so->view.chunks[i].chunk->chunk;
		source->first = source->cur = forward ? 0 : n - 1;
		source->end = forward ? n : -1;
	}
}
