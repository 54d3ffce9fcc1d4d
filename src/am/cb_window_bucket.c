/*-------------------------------------------------------------------------
 *
 * cb_window_bucket.c
 *	  Buckets as an upper level of a scan's windows.
 *
 * The chunks of the bucket at the window's start are pinned while the window
 * is read; what it wants of their entries is copied into it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_window.h"

/*
 * Does the scan want entries with one value in the first column?  Then their
 * hash tells which chunks can be left out.  The quals are the server's, as
 * preprocessed: for the first column equality comes first; with array keys it
 * is for the present element.  A value of another type may have another hash,
 * so it is made one of the column's type, if it is an integer, or has none.
 */
static void
cb_window_set_hash(CbScanOpaque so)
{
	const ScanKey key = so->bt.keyData;
	CbBucketView *view = &so->view;
	Datum		value;

	view->has_hash = false;
	if ((cb_set_find(so->kd.rel) == NULL &&
		 cb_rel_cache(so->kd.rel)->range_root == 0) ||
		so->bt.numberOfKeys == 0 || key->sk_attno != 1 ||
		key->sk_strategy != BTEqualStrategyNumber ||
		(key->sk_flags & (SK_ISNULL | SK_SEARCHNULL | SK_SEARCHNOTNULL |
						  SK_ROW_HEADER)) != 0)
		return;
	value = key->sk_argument;
	if (OidIsValid(key->sk_subtype) &&
		key->sk_subtype != so->kd.rel->rd_opcintype[0] &&
		!cb_key_convert_integer(key->sk_func.fn_oid, &value))
		return;
	if (so->kd.hash == CB_HASH_NONE &&
		cb_key_prepare_hash(&so->kd) == CB_HASH_NONE)
		return;
	view->hash = cb_key_hash(&so->kd, value);
	view->has_hash = true;
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

	cb_window_set_hash(so);
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
	source->range = (CbChunkRange) {.n = 1,.order = &so->view.end_place,.stride = 1,.open = true};
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

		cb_bucket_view_range(&so->kd, &so->view, i, lo, hi,
							 (ScanDirection) merge->step, &source->range);
		n = source->range.n;
		if (n == 0)
			continue;
		merge->nsources++;
		source->kind = CB_SOURCE_CHUNK;
		source->chunk = &so->view.chunks[i].chunk->chunk;
		source->first = source->cur = forward ? 0 : n - 1;
		source->end = forward ? n : -1;
	}
}
