/*-------------------------------------------------------------------------
 *
 * cb_sound.c
 *	  Reading pages in, and looking whether they are sound.
 *
 * What is on disk may be damaged.  Whoever searches a page follows its line
 * pointers, and the lengths of tuples and values, without a look at each: that
 * would cost more than the search.  So all of them are looked at once, by the
 * process that reads the page from disk, unless the server's checksums tell that
 * it is as it was written.  An unsound page gets another page id, in memory only,
 * and cb_page_check() raises the error for all who come.
 *
 * The mark is made under the page's exclusive lock and is no change of the
 * page: it is not logged, and the buffer is not dirtied.  Redo may change a marked
 * page, if its items are inside, and write it: it is as damaged as before.  Whoever
 * makes the page anew, or restores an image of it, overwrites the mark.
 *
 * What this cannot do: another process can have the page locked before it is
 * looked at; and a page that pg_prewarm or redo has read in is not looked at.
 * Links, levels and order are for their readers to check, and the contents of a
 * value for its type.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/itup.h"
#include "access/toast_compression.h"
#include "access/toast_internals.h"
#include "access/xlog.h"
#include "executor/instrument.h"
#include "page/cb_leaf.h"
#include "page/cb_range_page.h"
#include "rel/cb_rel.h"
#include "rel/cb_sound.h"
#include "storage/bufpage.h"

/* ---------- tuples ---------- */

/*
 * Bytes of a value that has a length of its own, of which room > 0 bytes are
 * inside the tuple; 0: it is damaged.
 */
static Size
cb_sound_varlena(const char *value, Size room)
{
	if (VARATT_IS_1B_E(value))
		return 0;				/* indexes have no values elsewhere */
	if (VARATT_IS_1B(value))
		return VARSIZE_1B(value);
	if (room < VARHDRSZ_COMPRESSED && (room < VARHDRSZ || VARATT_IS_4B_C(value)))
		return 0;
	if (!VARATT_IS_4B_C(value))
		return VARSIZE_4B(value) < VARHDRSZ ? 0 : VARSIZE_4B(value);
	if (VARSIZE_4B(value) < VARHDRSZ_COMPRESSED ||
		TOAST_COMPRESS_METHOD(value) > TOAST_LZ4_COMPRESSION_ID)
		return 0;
	return VARSIZE_4B(value);
}

/* The same of a value of any type; its length may be more than room. */
static Size
cb_sound_value(Form_pg_attribute attr, const char *value, Size room)
{
	const char *end;

	if (attr->attlen > 0)
		return attr->attlen;
	if (attr->attlen == -1)
		return cb_sound_varlena(value, room);
	end = memchr(value, '\0', room);
	return end == NULL ? 0 : end - value + 1;
}

/*
 * Do the first natts values lie inside the tuple, which has size bytes for them
 * and its header?
 */
static bool
cb_sound_values(TupleDesc desc, IndexTuple itup, Size size, int natts)
{
	Size		off = IndexInfoFindDataOffset(itup->t_info);
	bits8	   *nulls = (bits8 *) (itup + 1);

	if (off > size)
		return false;
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);
		Size		len;

		if (IndexTupleHasNulls(itup) && att_isnull(i, nulls))
			continue;
		/* the server finds later values by that bit, and remembers where they are */
		if (off >= size || (attr->attlen < 0 && !IndexTupleHasVarwidths(itup)))
			return false;
		off = att_align_pointer(off, attr->attalign, attr->attlen, (char *) itup + off);
		if (off >= size)
			return false;
		len = cb_sound_value(attr, (char *) itup + off, size - off);
		if (len == 0 || len > size - off)
			return false;
		off += len;
	}
	return true;
}

/* Is that an entry?  Its size is known to lie inside. */
static bool
cb_sound_entry(Relation rel, IndexTuple itup)
{
	return (itup->t_info & INDEX_ALT_TID_MASK) == 0 &&
		ItemPointerIsValid(&itup->t_tid) &&
		cb_sound_values(RelationGetDescr(rel), itup, IndexTupleSize(itup),
						RelationGetDescr(rel)->natts);
}

/* Is that a separator, or a bound?  Its size is known to lie inside. */
static bool
cb_sound_pivot(Relation rel, IndexTuple itup)
{
	Size		size = IndexTupleSize(itup);
	Size		tid = MAXALIGN(sizeof(ItemPointerData));
	int			natts;

	if (!BTreeTupleIsPivot(itup))
		return false;
	natts = BTreeTupleGetNAtts(itup, rel);
	if (BTreeTupleGetHeapTID(itup) != NULL)
	{
		if (size < sizeof(IndexTupleData) + tid)
			return false;
		size -= tid;
	}
	return natts <= IndexRelationGetNumberOfKeyAttributes(rel) &&
		cb_sound_values(RelationGetDescr(rel), itup, size, natts);
}

/* ---------- pages ---------- */

/* The tuple of an item that lies inside the page; NULL: it has another size. */
static IndexTuple
cb_sound_tuple(Page page, OffsetNumber off)
{
	Size		len = ItemIdGetLength(PageGetItemId(page, off));
	IndexTuple	itup;

	if (len < sizeof(IndexTupleData))
		return NULL;
	itup = CbPageGetTuple(page, off);
	return IndexTupleSize(itup) < sizeof(IndexTupleData) ||
		IndexTupleSize(itup) > len ? NULL : itup;
}

/* Are the items from first to last separators or bounds? */
static bool
cb_sound_pivots(Relation rel, Page page, OffsetNumber first, OffsetNumber last)
{
	for (OffsetNumber off = first; off <= last; off++)
	{
		IndexTuple	itup = cb_sound_tuple(page, off);

		if (itup == NULL || !cb_sound_pivot(rel, itup))
			return false;
	}
	return true;
}

/* The size of all entries without nulls, if every value has a fixed length; else 0. */
static Size
cb_sound_fixed_size(TupleDesc desc)
{
	Size		size = IndexInfoFindDataOffset(0);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);

		if (attr->attlen <= 0)
			return 0;
		size = att_align_nominal(size, attr->attalign) + attr->attlen;
	}
	return MAXALIGN(size);
}

/*
 * Is it certain, without a look at each, that all that can be read of the packed part
 * are entries?  So it is if all have the size that their values take, or if their one
 * value takes all of them.
 */
static bool
cb_sound_packed_is_of_one_shape(Relation rel, const CbLeaf *leaf)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Size		size = cb_sound_fixed_size(desc);
	uint16		bits = INDEX_NULL_MASK | INDEX_ALT_TID_MASK;
	uint16		info;

	if (size > 0)
		return cb_pack_is_of_words(&leaf->packed, (size - CB_LEAF_HEADER) / sizeof(uint64), &info) &&
			(info & bits) == 0;
	return desc->natts == 1 && TupleDescAttr(desc, 0)->attlen == -1 &&
		cb_pack_is_of_texts(&leaf->packed, &info) &&
		(info & (bits | INDEX_VAR_MASK)) == INDEX_VAR_MASK;
}

/*
 * Is all that can be read of the packed part an entry?  What cannot be read is found
 * by whoever tries.
 */
static bool
cb_sound_packed(Relation rel, Page page)
{
	CbLeaf		leaf;
	CbLeafTuple tuple;

	if (!cb_leaf_open(&leaf, page))
		return false;
	if (leaf.npacked == 0 || cb_sound_packed_is_of_one_shape(rel, &leaf))
		return true;
	for (int i = 0; i < leaf.npacked; i++)
	{
		if (cb_leaf_read(&leaf, i, &tuple) != NULL &&
			!cb_sound_entry(rel, &tuple.tuple))
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
		!cb_sound_pivots(rel, page, FirstOffsetNumber, CbPageFirstItem(page) - 1) ||
		!cb_sound_packed(rel, page))
		return false;
	for (OffsetNumber off = CbPageFirstPlain(page); off <= max; off++)
	{
		IndexTuple	itup = cb_sound_tuple(page, off);

		if (itup == NULL || !cb_sound_entry(rel, itup))
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
			IndexTupleSize(itup) > end - at || !cb_sound_entry(rel, itup))
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
 * Is there such a block?  How many there are is asked only where a link leads
 * further than any before.
 */
static inline bool
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
 * from disk, and no checksum tells that it is sound, it is marked if it is not.  The caller
 * has not locked this page; it may have locked others, as nothing is waited for.
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
		(!DataChecksumsEnabled() || ignore_checksum_failure))
		cb_sound_mark(rel, buf);
	return buf;
}
