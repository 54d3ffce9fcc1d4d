/*-------------------------------------------------------------------------
 *
 * cb_sound.c
 *	  Reading pages in, and looking whether they are sound.
 *
 * What is on disk may be damaged.  Whoever searches a page follows its line
 * pointers, and the lengths of tuples and values, without a look at each: that
 * would cost more than the search.  So all of them are looked at once, by the
 * process that reads the page from disk, unless the server's checksums tell that
 * it is as it was written; but entries of a packed part when they are read, as few
 * of them may ever be (cb_leaf_open).  An unsound page gets another page id, in
 * memory only, and cb_page_check() raises the error for all who come.
 *
 * The mark is made under the page's exclusive lock and is no change of the
 * page: it is not logged, and the buffer is not dirtied.  Redo may change a marked
 * page, if its items are inside, and write it: it is as damaged as before.  Whoever
 * makes the page anew, or restores an image of it, overwrites the mark.
 *
 * What this cannot do: another process can have the page locked before it is
 * looked at; and a page that pg_prewarm or redo has read in is not looked at, but
 * for the bounds of range pages and tile pages, each time (range/cb_range_find.c).
 * Links, levels and order are for their readers to check, and the contents of a
 * value for its type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "executor/instrument.h"
#include "page/cb_entry.h"
#include "page/cb_leaf.h"
#include "page/cb_range_page.h"
#include "rel/cb_rel.h"
#include "rel/cb_sound.h"
#include "storage/bufpage.h"

/* ---------- pages ---------- */

/* Is that item, which lies inside the page, a separator or a bound? */
static bool
cb_sound_pivot(Relation rel, Page page, OffsetNumber off)
{
	Size		len = ItemIdGetLength(PageGetItemId(page, off));
	IndexTuple	itup = CbPageGetTuple(page, off);
	Size		size;
	Size		tid = MAXALIGN(sizeof(ItemPointerData));
	int			natts;

	if (len < sizeof(IndexTupleData))
		return false;
	size = IndexTupleSize(itup);
	if (size < sizeof(IndexTupleData) || size > len || !BTreeTupleIsPivot(itup))
		return false;
	natts = BTreeTupleGetNAtts(itup, rel);
	if (BTreeTupleGetHeapTID(itup) != NULL)
	{
		if (size < sizeof(IndexTupleData) + tid)
			return false;
		size -= tid;
	}
	return natts <= IndexRelationGetNumberOfKeyAttributes(rel) &&
		cb_entry_fits(RelationGetDescr(rel), itup, size, natts);
}

/*
 * Are the items from first to last, which lie inside the page, separators or bounds?
 * Raises no error; no comparison runs.
 */
bool
cb_sound_pivots(Relation rel, Page page, OffsetNumber first, OffsetNumber last)
{
	for (OffsetNumber off = first; off <= last; off++)
	{
		if (!cb_sound_pivot(rel, page, off))
			return false;
	}
	return true;
}

/* Of a leaf, or a page with entries of a run. */
static bool
cb_sound_leaf(Relation rel, Page page)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	if (max > MaxIndexTuplesPerPage || max + 1 < CbPageFirstItem(page) ||
		!cb_sound_pivots(rel, page, FirstOffsetNumber, CbPageFirstItem(page) - 1))
		return false;
	for (OffsetNumber off = CbPageFirstPlain(page); off <= max; off++)
	{
		IndexTuple	itup = cb_page_get_entry(page, off);

		if (itup == NULL || !cb_entry_is_sound(RelationGetDescr(rel), itup))
			return false;
	}
	return true;
}

static bool
cb_sound_journal(Relation rel, Page page)
{
	Size		end = ((PageHeader) page)->pd_lower;
	Size		at = CB_JOURNAL_FIRST;

	if (end < at || end > CB_JOURNAL_END)
		return false;
	while (at < end)
	{
		IndexTuple	itup = (IndexTuple) (page + at);

		if (end - at < sizeof(IndexTupleData) ||
			IndexTupleSize(itup) < sizeof(IndexTupleData) ||
			IndexTupleSize(itup) > end - at ||
			!cb_entry_is_sound(RelationGetDescr(rel), itup))
			return false;
		at += MAXALIGN(IndexTupleSize(itup));
	}
	return true;
}

/* Of a page whose items lie inside it. */
static bool
cb_sound_items(Relation rel, Page page)
{
	uint16		level = CbPageGetOpaque(page)->level;

	if (CbPageIsLeaf(page) || (CbPageIsRun(page) && level == CB_RUN_DATA_LEVEL))
		return cb_sound_leaf(rel, page);
	if (CbPageListsRuns(page))
		return cb_range_page_is_sound(page) &&
			cb_sound_pivots(rel, page, FirstOffsetNumber, CbPageFirstItem(page));
	if (CbPageListsTiles(page) && !cb_tile_page_is_sound(page))
		return false;
	return cb_sound_pivots(rel, page, FirstOffsetNumber,
						   PageGetMaxOffsetNumber(page));
}

/*
 * Can the page be read?  Yes also if it is none of ours, as cb_page_check()
 * tells that.  The page is locked.
 */
static bool
cb_sound_page(Relation rel, Page page)
{
	uint16		flags;

	if (PageIsNew(page) || !cb_page_has_id(page, CB_PAGE_ID))
		return true;
	if (!cb_page_flags_are_sound(page))
		return false;
	flags = CbPageGetOpaque(page)->flags;
	if (flags & (CBP_META | CBP_DELETED))
		return true;
	if (flags & CBP_JOURNAL)
		return cb_sound_journal(rel, page);
	if (CbPageIsRun(page) && CbPageGetOpaque(page)->level == CB_RUN_FILTER_LEVEL)
		return true;
	return cb_page_items_are_inside(page) && cb_sound_items(rel, page);
}

/*
 * Marks the page, which was read in just now, if it is unsound.  Pinned, and not
 * locked by this process, or by nobody: if another one has it locked, nothing
 * is done.  Raises no error.
 */
static void
cb_sound_mark(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);

	if (!ConditionalLockBuffer(buf))
		return;
	if (!cb_sound_page(rel, page))
		CbPageGetOpaque(page)->page_id = CB_PAGE_ID_UNSOUND;
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
}

/* ---------- reading ---------- */

/*
 * What entries that are read from disk are to look like; NULL: nobody need look,
 * as checksums tell that they are as they were written.
 */
TupleDesc
cb_sound_desc(Relation rel)
{
	return DataChecksumsEnabled() && !ignore_checksum_failure ? NULL :
		RelationGetDescr(rel);
}

/*
 * Is there such a block?  How many there are is asked only where a link leads
 * further than any before.
 */
bool
cb_sound_has_block(Relation rel, BlockNumber blkno)
{
	CbRelCache *cache = cb_rel_cache(rel);

	if (likely(blkno < cache->nblocks))
		return true;
	cache->nblocks = RelationGetNumberOfBlocks(rel);
	return blkno < cache->nblocks;
}

/*
 * As PrefetchBuffer() of the main fork.  The block number may come from a page:
 * if there is no such block nothing is done, as whoever reads it will say so.
 */
PrefetchBufferResult
cb_sound_prefetch(Relation rel, BlockNumber blkno)
{
	if (!cb_sound_has_block(rel, blkno))
		return (PrefetchBufferResult) {InvalidBuffer, false};
	return PrefetchBuffer(rel, MAIN_FORKNUM, blkno);
}

/*
 * As ReadBufferExtended() of the main fork: pinned, not locked.  The block number
 * may come from a page: an error if there is no such block.  If the page is read
 * from disk, and no checksum tells that it is sound, it is marked if it is not.
 * The caller has not locked this page; it may have locked others, as nothing is
 * waited for.
 */
Buffer
cb_sound_read(Relation rel, BlockNumber blkno, BufferAccessStrategy strategy)
{
	int64		before = pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read;
	Buffer		buf;

	if (unlikely(!cb_sound_has_block(rel, blkno)))
		cb_report_corrupt(rel, InvalidBlockNumber,
						  "There is no block %u: the file has %u blocks.",
						  blkno, cb_rel_cache(rel)->nblocks);
	buf = ReadBufferExtended(rel, MAIN_FORKNUM, blkno, RBM_NORMAL, strategy);
	if (unlikely(pgBufferUsage.shared_blks_read + pgBufferUsage.local_blks_read != before) &&
		cb_sound_desc(rel) != NULL)
		cb_sound_mark(rel, buf);
	return buf;
}

/*
 * As LockBuffer(), of a page that a link of another one has led to.  No link leads
 * back to a page that one has still locked, so one that does is an error: this
 * backend would wait for itself, and could not be cancelled.  A page of a temporary
 * index has no lock.  The page is pinned, and stays so if an error is raised.
 */
void
cb_sound_lock(Relation rel, Buffer buf, int mode)
{
	if (unlikely(cb_rel_has_locked(buf)))
		cb_report_corrupt(rel, BufferGetBlockNumber(buf),
						  "A link leads back to it.");
	LockBuffer(buf, mode);
}
