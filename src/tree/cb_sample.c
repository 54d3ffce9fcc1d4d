/*-------------------------------------------------------------------------
 *
 * cb_sample.c
 *	  Separators of the tree, for those who divide its range of keys.
 *
 * What is read here are hints: pages may be split or leave the tree meanwhile.
 * A separator then is still a bound between keys, if not one between leaves.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "tree/cb_tree.h"

/* pages of a level that are read, or as many as separators are wanted */
#define CB_SAMPLE_PAGES		64

typedef struct CbSample
{
	int			n;
	int			allocated;
	IndexTuple *separators;
} CbSample;

/* Adds a palloc'd copy. */
static void
cb_sample_add(CbSample *sample, IndexTuple itup)
{
	if (sample->n == sample->allocated)
	{
		sample->allocated = Max(64, sample->allocated * 2);
		sample->separators = sample->separators == NULL ?
			palloc(sizeof(IndexTuple) * sample->allocated) :
			repalloc(sample->separators, sizeof(IndexTuple) * sample->allocated);
	}
	sample->separators[sample->n++] = CopyIndexTuple(itup);
}

/* Is it a separator with a key, and not too large?  Pages can be damaged. */
static inline bool
cb_sample_is_usable(IndexTuple itup, Size max_size)
{
	return IndexTupleSize(itup) > sizeof(IndexTupleData) &&
		IndexTupleSize(itup) <= max_size && BTreeTupleIsPivot(itup);
}

/* Adds the separators in a copy of an internal page; the first has no key. */
static void
cb_sample_add_page(CbSample *sample, Page page, Size max_size)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = OffsetNumberNext(CbPageFirstItem(page));
		 off <= max; off = OffsetNumberNext(off))
	{
		IndexTuple	itup = CbPageGetTuple(page, off);

		if (cb_sample_is_usable(itup, max_size))
			cb_sample_add(sample, itup);
	}
	if (!CbPageIsRightmost(page) &&
		cb_sample_is_usable(CbPageGetHighKey(page), max_size))
		cb_sample_add(sample, CbPageGetHighKey(page));
}

/*
 * Copies a page that should be of an internal level, under its share lock, the
 * only one.  Hints may lead to one that was deleted, or is another one by now:
 * then it has no downlinks to count on.
 */
static void
cb_sample_copy_page(Relation rel, BlockNumber blkno, Page copy)
{
	Buffer		buf = cb_sound_read(rel, blkno, NULL);

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	cb_page_check(rel, blkno, BufferGetPage(buf));
	memcpy(copy, BufferGetPage(buf), BLCKSZ);
	UnlockReleaseBuffer(buf);
	if (CbPageIsInternal(copy))
		cb_page_check_downlinks(rel, blkno, copy);
}

/*
 * Reads the pages of an internal level from its leftmost on, max at most, each
 * copied under its share lock.  Returns the leftmost page's first child, or
 * InvalidBlockNumber if the level is not what was expected.
 */
static BlockNumber
cb_sample_read_level(Relation rel, BlockNumber blkno, int level, int max,
					 Size max_size, CbSample *sample)
{
	BlockNumber child = InvalidBlockNumber;
	PGAlignedBlock copy;
	Page		page = (Page) copy.data;

	for (int i = 0; i < max && blkno != InvalidBlockNumber; i++)
	{
		cb_sample_copy_page(rel, blkno, page);
		if (CbPageIsGone(page))
		{
			blkno = CbPageGetOpaque(page)->next;
			continue;
		}
		if (!CbPageIsInternal(page) || CbPageGetOpaque(page)->level != level)
			return InvalidBlockNumber;
		if (i == 0)
			child = BTreeTupleGetDownLink(CbPageGetTuple(page, CbPageFirstItem(page)));
		cb_sample_add_page(sample, page, max_size);
		blkno = CbPageGetOpaque(page)->next;
		CHECK_FOR_INTERRUPTS();
	}
	return child;
}

/*
 * At most max separators, evenly spaced, none larger than max_size bytes: from
 * the highest level that has so many, or the lowest internal one.  They are of
 * all of it, as the level above has too few to lead to more than max pages;
 * but where many are too large, of its left part only.
 *
 * *n is set to how many.  The array and the separators are palloc'd, and in
 * order; if there are none it may be NULL.
 *
 * Holds one share lock at a time, and none on entry; no comparison function
 * runs.
 */
IndexTuple *
cb_tree_sample_separators(const CbKeyDesc *kd, int max, Size max_size, int *n)
{
	CbSample	sample = {0};
	CbMetaPageData meta;
	BlockNumber blkno;

	cb_rel_read_meta(kd->rel, NULL, &meta);
	blkno = meta.root;
	for (int level = meta.root_level; level > 0; level--)
	{
		sample.n = 0;
		blkno = cb_sample_read_level(kd->rel, blkno, level,
									 Max(max, CB_SAMPLE_PAGES), max_size,
									 &sample);
		if (sample.n >= max || blkno == InvalidBlockNumber)
			break;
	}
	*n = Min(sample.n, Max(max, 0));
	for (int i = 0; i < *n; i++)
		sample.separators[i] =
			sample.separators[(int64) (i + 1) * sample.n / (*n + 1)];
	return sample.separators;
}

/*
 * The upper bound of the leaf that an entry belongs to, palloc'd; NULL if it
 * is infinite.  It is right when it is read, under the leaf's share lock.
 *
 * The caller holds no page lock, and has a snapshot or a transaction id.
 * Comparison functions run.
 */
IndexTuple
cb_tree_find_separator(const CbKeyDesc *kd, IndexTuple itup)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = itup};
	Buffer		buf = cb_tree_descend(kd, &bound, ForwardScanDirection, NULL,
									  NULL);
	Page		page = BufferGetPage(buf);
	IndexTuple	result = NULL;

	if (!CbPageIsRightmost(page))
		result = CopyIndexTuple(CbPageGetHighKey(page));
	UnlockReleaseBuffer(buf);
	return result;
}

/*
 * Its lower bound, palloc'd; NULL if it is infinite.  As
 * cb_tree_find_separator(), otherwise.
 */
IndexTuple
cb_tree_find_low(const CbKeyDesc *kd, IndexTuple itup)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = itup};
	CbDescent  *descent = palloc0(sizeof(CbDescent));
	IndexTuple	result;

	descent->want_low = true;
	UnlockReleaseBuffer(cb_tree_descend(kd, &bound, ForwardScanDirection, NULL,
										descent));
	result = descent->low;
	pfree(descent);
	return result;
}

/*
 * The downlinks of a level-1 page left of the bound, from off on.  The page is
 * a copy; comparison functions run.  *end: the bound is in this page, or there
 * is no other.
 */
static int64
cb_sample_count_downlinks(const CbKeyDesc *kd, Page page, OffsetNumber off,
						  const CbBound *high, bool *end)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	*end = CbPageIsRightmost(page);
	if (high->kind == CB_BOUND_MAX ||
		(!CbPageIsRightmost(page) &&
		 cb_key_compare_bound(kd, high, CbPageGetHighKey(page)) < 0))
		return max - off + 1;
	*end = true;
	return cb_tree_search_page(kd, high, page, BackwardScanDirection) - off + 1;
}

/*
 * How many leaves there are between two bounds.  At least 1: the leaf of low
 * counts.  Stops counting past max.  About: pages split meanwhile.
 *
 * Reads pages of level 1, and one leaf, with one share lock at a time.
 * Comparison functions run, on copies but for the descent.  The caller holds
 * no page lock, and has a snapshot or a transaction id.
 */
int64
cb_tree_count_leaves_between(const CbKeyDesc *kd, const CbBound *low,
							 const CbBound *high, int64 max)
{
	CbDescent  *descent = palloc0(sizeof(CbDescent));
	Page		page = (Page) descent->parent.data;
	bool		end = true;
	int64		n = 1;
	BlockNumber moves = 0;

	descent->want_parent = true;
	UnlockReleaseBuffer(cb_tree_descend(kd, low, ForwardScanDirection, NULL,
										descent));
	if (descent->parent_valid)
		n = cb_sample_count_downlinks(kd, page,
									  cb_tree_search_page(kd, low, page,
														  ForwardScanDirection),
									  high, &end);
	while (!end && n <= max)
	{
		BlockNumber next = CbPageGetOpaque(page)->next;

		cb_tree_check_moves(kd->rel, next, ++moves, 1);
		cb_sample_copy_page(kd->rel, next, page);
		CHECK_FOR_INTERRUPTS();
		if (CbPageIsGone(page) && !CbPageIsRightmost(page))
			continue;
		if (!CbPageIsInternal(page))
			break;
		n += cb_sample_count_downlinks(kd, page, CbPageFirstItem(page), high,
									   &end);
	}
	pfree(descent);
	return Max(n, 1);
}

/* The same between two tuples; NULL: minus infinity, or infinity. */
int64
cb_tree_count_leaves(const CbKeyDesc *kd, IndexTuple low, IndexTuple high,
					 int64 max)
{
	CbBound		from = {.kind = low ? CB_BOUND_TUPLE : CB_BOUND_MIN,.tuple = low};
	CbBound		upto = {.kind = high ? CB_BOUND_TUPLE : CB_BOUND_MAX,.tuple = high};

	return cb_tree_count_leaves_between(kd, &from, &upto, max);
}

/*
 * The separator that has so many leaves, about, between it and low; NULL for low:
 * minus infinity.  Palloc'd; NULL: there are fewer leaves.
 *
 * Otherwise as cb_tree_count_leaves_between().
 */
IndexTuple
cb_tree_find_separator_after(const CbKeyDesc *kd, IndexTuple low, int64 nleaves)
{
	CbBound		from = {.kind = low ? CB_BOUND_TUPLE : CB_BOUND_MIN,.tuple = low};
	CbDescent  *descent = palloc0(sizeof(CbDescent));
	Page		page = (Page) descent->parent.data;
	OffsetNumber off;
	BlockNumber moves = 0;
	IndexTuple	result = NULL;

	descent->want_parent = true;
	UnlockReleaseBuffer(cb_tree_descend(kd, &from, ForwardScanDirection, NULL,
										descent));
	if (descent->parent_valid)
	{
		off = cb_tree_search_page(kd, &from, page, ForwardScanDirection);
		while (off + nleaves > PageGetMaxOffsetNumber(page) &&
			   !CbPageIsRightmost(page) &&
			   (CbPageIsInternal(page) || CbPageIsGone(page)))
		{
			BlockNumber next = CbPageGetOpaque(page)->next;

			if (CbPageIsInternal(page))
				nleaves -= PageGetMaxOffsetNumber(page) - off + 1;
			cb_tree_check_moves(kd->rel, next, ++moves, 1);
			cb_sample_copy_page(kd->rel, next, page);
			off = CbPageFirstItem(page);
			CHECK_FOR_INTERRUPTS();
		}
		/* the first downlink of a page has no key */
		off += Max(nleaves, 1);
		if (CbPageIsInternal(page) && off <= PageGetMaxOffsetNumber(page))
			result = CopyIndexTuple(CbPageGetTuple(page, off));
	}
	pfree(descent);
	return result;
}
