/*-------------------------------------------------------------------------
 *
 * cb_verify.c
 *	  cache_batch_verify(): checks the structure of an index, and that every
 *	  visible row of its table has an entry.
 *
 * Pages are copied under their share lock and checked without it; one page
 * lock is held at a time.  The journal is read before the range buffers, those
 * (cb_verify_range.c) before the tree, and each level of the tree from left to
 * right: entries move downwards and to the right only, so nothing that was
 * published before the snapshot is missed.
 * Without strict, pages can leave the tree meanwhile; see tree/cb_unlink.c.  In
 * recovery they can be used again as well; see tree/cb_search.c.
 *
 * Invariants checked, always:
 *	 a) every page has our id, format version, and the type and level that
 *	    the way to it promises; items lie inside the page, apart from each
 *	    other, and have the tuple form of their place;
 *	 b) on a level, low <= items < high key in strict (key, TID) order, low
 *	    being the high key of the page on the left, if that has not changed
 *	    since; the packed part of a leaf and its plain entries each in an
 *	    order of their own;
 *	 c) journal pages have consecutive sequence numbers from the tail on and
 *	    hold whole entries;
 *	 d) the bounds of range pages, and of tiles, fit together, and each run that
 *	    is not retired has the pages, the entries, in order and inside its range
 *	    or tile, and the filters that it should have.
 * With heapallindexed, which locks out writers (strict), also:
 *	 e) the downlinks of a level name the pages of the level below in order,
 *	    with the high key of the page on the left as separator; only the
 *	    right sibling of an incomplete split has no downlink; those above range
 *	    pages and tile pages name such pages, or inner ones, with their low keys,
 *	    but there may be some without downlink; and retired runs have the pages
 *	    that they had;
 *	 f) no block is reached twice, and no tree page, range page, tile page or
 *	    page of a run is out of reach;
 *	 g) the entry of every row that the snapshot sees is in journal, range
 *	    buffers or tree.
 * In recovery nobody can lock writers out: then e and f are left out.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "am/cb_am.h"
#include "base/cb_counts.h"
#include "base/cb_progress.h"
#include "catalog/index.h"
#include "catalog/pg_operator_d.h"
#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "fmgr.h"
#include "journal/cb_journal.h"
#include "miscadmin.h"
#include "page/cb_leaf.h"
#include "page/cb_range_page.h"
#include "sqlfn/cb_sqlfn.h"
#include "sqlfn/cb_verify.h"
#include "tree/cb_tree.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* a fingerprint: block (32 bits), offset (12), hash of the key (20) */
#define CB_FP_OFFSET_BITS	12
#define CB_FP_HASH_BITS		20

StaticAssertDecl(MaxOffsetNumber < (1 << CB_FP_OFFSET_BITS),
				 "fingerprints need an exact offset");
StaticAssertDecl(32 + CB_FP_OFFSET_BITS + CB_FP_HASH_BITS == 64,
				 "fingerprints fill 64 bits");

PG_FUNCTION_INFO_V1(cache_batch_verify);

/* ---------- reading pages ---------- */

/* Makes a block the current one, to which block from links. */
static void
cb_verify_link(CbVerify *v, BlockNumber blkno, BlockNumber from)
{
	if (blkno >= v->nblocks)
		v->nblocks = RelationGetNumberOfBlocks(v->rel);
	if (blkno >= v->nblocks)
	{
		v->blkno = from;
		cb_verify_fail(v, "It links to block %u, but the index has %u blocks.",
					   blkno, v->nblocks);
	}
	v->blkno = blkno;
}

/*
 * Copies a block into v->page; the link that led to it is from "from", a
 * block, or the metapage.  Sets v->blkno.  Takes the page's share lock and
 * gives it back, so the caller holds no buffer lock; interrupts are served.  A
 * link that leads out of the file raises the error of the page that it is
 * from.
 */
void
cb_verify_read(CbVerify *v, BlockNumber blkno, BlockNumber from)
{
	Buffer		buf;

	CHECK_FOR_INTERRUPTS();
	cb_verify_link(v, blkno, from);
	cb_progress_add(1);
	buf = cb_sound_read(v->rel, blkno, v->strategy);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	memcpy(v->page.data, BufferGetPage(buf), BLCKSZ);
	v->reuses = cb_counts_reuses(v->rel);
	UnlockReleaseBuffer(buf);
}

/*
 * Marks the current block as reached, or raises an error if it was before:
 * each block has one place.  Nothing is known of that without strict.
 */
void
cb_verify_mark_seen(CbVerify *v)
{
	uint8		bit = 1 << (v->blkno % 8);

	if (!v->strict)
		return;
	if (v->seen[v->blkno / 8] & bit)
		cb_verify_fail(v, "Two links lead to it.");
	v->seen[v->blkno / 8] |= bit;
}

/* Checks what every kind of page has: header, special area, id, version. */
void
cb_verify_page_frame(CbVerify *v)
{
	cb_page_check_header(v->rel, v->blkno, v->page.data);
}

/*
 * Reads and checks the metapage, and copies its contents to *meta.  It is the
 * current page afterwards.
 */
void
cb_verify_meta(CbVerify *v, CbMetaPageData *meta)
{
	cb_verify_read(v, CB_METAPAGE_BLKNO, CB_METAPAGE_BLKNO);
	cb_verify_page_frame(v);
	*meta = *cb_page_check_meta(v->rel, v->page.data);

	if (meta->root == CB_METAPAGE_BLKNO)
		cb_verify_fail(v, "The metapage names itself as the root.");
	if (meta->ntiers < 1 || meta->ntiers > CB_MAX_TIERS ||
		meta->tiers[meta->ntiers - 1] != CB_TIER_TREE)
		cb_verify_fail(v, "The list of tiers is wrong.");
	if ((meta->range_root != 0) !=
		(meta->ntiers > 2 && meta->tiers[1] == CB_TIER_RUNS))
		cb_verify_fail(v, "Its range root of range pages, %u, and the list of tiers do not agree.",
					   meta->range_root);
	if ((meta->tile_root != 0 && meta->version != CB_FORMAT_LEVELS) ||
		(meta->version == CB_FORMAT_LEVELS && meta->range_root == 0))
		cb_verify_fail(v, "Its root of tile pages, %u, and its version do not agree.",
					   meta->tile_root);
	if (meta->journal_tail_block == CB_METAPAGE_BLKNO ||
		(meta->journal_tail_block != InvalidBlockNumber &&
		 CbPosSeq(meta->journal_tail) == 0))
		cb_verify_fail(v, "The journal's tail is wrong: block %u, position %llu.",
					   meta->journal_tail_block,
					   (unsigned long long) meta->journal_tail);
}

/* ---------- tuples ---------- */

/* Fingerprint of an entry, whatever way its values are stored. */
static int64
cb_verify_fingerprint(CbVerify *v, IndexTuple itup)
{
	TupleDesc	tupdesc = v->kd.tupdesc;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	uint64		hash = 0;
	uint64		result;

	index_deform_tuple(itup, tupdesc, values, isnull);
	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);
		const char *data = (const char *) &values[i];
		int			len = sizeof(Datum);

		if (isnull[i])
			len = 0;
		else if (att->attlen == -1)
		{
			struct varlena *plain = PG_DETOAST_DATUM_PACKED(values[i]);

			data = VARDATA_ANY(plain);
			len = VARSIZE_ANY_EXHDR(plain);
		}
		else if (!att->attbyval)
		{
			data = DatumGetPointer(values[i]);
			len = att->attlen == -2 ? strlen(data) + 1 : att->attlen;
		}
		hash = hash_bytes_extended((const unsigned char *) data, len,
								   hash + (isnull[i] ? 1 : 0));
	}

	result = ItemPointerGetBlockNumber(&itup->t_tid);
	result = (result << CB_FP_OFFSET_BITS) |
		ItemPointerGetOffsetNumber(&itup->t_tid);
	result = (result << CB_FP_HASH_BITS) |
		(hash & ((UINT64CONST(1) << CB_FP_HASH_BITS) - 1));
	return (int64) result;
}

/*
 * Checks that a tuple is a plain leaf entry, and takes its fingerprint, if the
 * rows of the table are to be compared.  where: its item or its place, for the
 * message.
 */
void
cb_verify_entry(CbVerify *v, IndexTuple itup, unsigned where)
{
	if (itup->t_info & INDEX_AM_RESERVED_BIT)
		cb_verify_fail(v, "The tuple at %u is not a plain entry.", where);
	if (!cb_page_is_row_tid(&itup->t_tid) ||
		ItemPointerGetOffsetNumber(&itup->t_tid) > MaxOffsetNumber)
		cb_verify_fail(v, "The entry at %u has no valid TID.", where);
	if (IndexTupleSize(itup) > CB_MAX_ITEM_SIZE)
		cb_verify_fail(v, "The entry at %u has %zu bytes, more than %zu.", where,
					   (size_t) IndexTupleSize(itup), (size_t) CB_MAX_ITEM_SIZE);
	if (v->indexed)
		tuplesort_putdatum(v->indexed,
						   Int64GetDatum(cb_verify_fingerprint(v, itup)), false);
}

/*
 * Checks the form of a high key or of a downlink, but not its order.  off: its
 * item, for the message.
 */
void
cb_verify_pivot(CbVerify *v, IndexTuple itup, CbVerifyForm form,
				OffsetNumber off)
{
	int			natts;

	if (!BTreeTupleIsPivot(itup))
		cb_verify_fail(v, "Item %u is not a separator.", off);
	natts = BTreeTupleGetNAtts(itup, v->rel);
	if (form == CB_FORM_MINUS_INFINITY && natts != 0)
		cb_verify_fail(v, "The first downlink has a key of %d columns.", natts);
	if (form == CB_FORM_SEPARATOR && (natts < 1 || natts > v->kd.nkeyatts))
		cb_verify_fail(v, "The separator at item %u has %d columns, not 1 to %d.",
					   off, natts, v->kd.nkeyatts);
	if (BTreeTupleGetHeapTID(itup) != NULL && natts != v->kd.nkeyatts)
		cb_verify_fail(v, "The separator at item %u has a TID, but only %d of %d columns.",
					   off, natts, v->kd.nkeyatts);
	if (IndexTupleSize(itup) >
		CB_MAX_ITEM_SIZE + MAXALIGN(sizeof(ItemPointerData)))
		cb_verify_fail(v, "The separator at item %u has %zu bytes.", off,
					   (size_t) IndexTupleSize(itup));
}

/* Checks that an item is of the kind that it should be, by its length. */
static void
cb_verify_item_length(CbVerify *v, OffsetNumber off, unsigned len)
{
	Page		page = v->page.data;

	if (CbPageIsPacked(page) && off == CbPageFirstItem(page))
	{
		if (!cb_pack_check(PageGetItem(page, PageGetItemId(page, off)), len))
			cb_verify_fail(v, "The packed part at item %u is damaged.", off);
	}
	else if (CbPageListsRuns(page) && off >= CbRangeFirstRun(page))
	{
		if (len != sizeof(CbRunItem))
			cb_verify_fail(v, "Item %u, of a run, has %u bytes.", off, len);
	}
	else if (CbPageListsTiles(page) && off >= CbPageFirstItem(page))
	{
		if (len != CbTileItemSize(CbPageGetTuple(page, off)))
			cb_verify_fail(v, "Item %u, of a tile, has %u bytes.", off, len);
	}
	else if (MAXALIGN(IndexTupleSize(CbPageGetTuple(page, off))) != MAXALIGN(len))
		cb_verify_fail(v, "Item %u has %u bytes, but its tuple has %zu.",
					   off, len,
					   (size_t) IndexTupleSize(CbPageGetTuple(page, off)));
}

/*
 * Checks line pointers: every item inside the page, none over another, and of
 * the length that its kind has.  A packed part is looked at as a whole.  The
 * page's frame was checked.
 */
void
cb_verify_line_pointers(CbVerify *v)
{
	Page		page = v->page.data;
	PageHeader	header = (PageHeader) page;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	Size		total = 0;

	if (max > MaxIndexTuplesPerPage)
		cb_verify_fail(v, "It has %u items.", max);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		item = PageGetItemId(page, off);
		unsigned	start = ItemIdGetOffset(item);
		unsigned	len = ItemIdGetLength(item);

		if (!ItemIdIsUsed(item) || ItemIdIsRedirected(item) ||
			start < header->pd_upper || start + len > header->pd_special ||
			start != MAXALIGN(start) || len < sizeof(IndexTupleData))
			cb_verify_fail(v, "The line pointer of item %u is wrong: offset %u, length %u, flags %u.",
						   off, start, len, ItemIdGetFlags(item));
		cb_verify_item_length(v, off, len);
		total += MAXALIGN(len);
	}
	if (total > header->pd_special - header->pd_upper)
		cb_verify_fail(v, "Items overlap: %zu bytes of tuples in %u bytes.",
					   (size_t) total,
					   (unsigned) (header->pd_special - header->pd_upper));
}

/* ---------- the tree ---------- */

/* Checks type, level and flags of a tree page. */
static void
cb_verify_tree_flags(CbVerify *v)
{
	CbPageOpaque opaque = CbPageGetOpaque(v->page.data);
	uint16		kind = v->level == 0 ? CBP_LEAF : CBP_INTERNAL;

	if ((opaque->flags & CBP_KINDS) != kind)
		cb_verify_fail(v, "A page of level %u has the flags %04X.",
					   v->level, opaque->flags);
	if (opaque->level != v->level)
		cb_verify_fail(v, "Its level is %u, not %u.", opaque->level, v->level);
	if (CbPageHasIncompleteSplit(v->page.data) &&
		CbPageIsRightmost(v->page.data))
		cb_verify_fail(v, "A page without right sibling is marked as split.");
	if (PageGetMaxOffsetNumber(v->page.data) + 1 < CbPageFirstItem(v->page.data))
		cb_verify_fail(v, "The high key is missing.");
	if (v->level > 0)
		cb_page_check_downlinks(v->rel, v->blkno, v->page.data);
	if (CbPageIsPacked(v->page.data) &&
		(v->level > 0 ||
		 PageGetMaxOffsetNumber(v->page.data) < CbPageFirstItem(v->page.data)))
		cb_verify_fail(v, "It is marked as packed, but cannot be.");
	if ((opaque->flags & CBP_EMPTY) != 0 &&
		PageGetMaxOffsetNumber(v->page.data) >= CbPageFirstItem(v->page.data))
		cb_verify_fail(v, "It has items, but is marked as empty.");
}

/*
 * Lists the items of the current page, those of a leaf's packed part first.
 * v->items is palloc'd in the current memory context, entries of a packed part
 * in v->page_cxt; the others stay in v->page.  Line pointers were checked.
 */
void
cb_verify_list_items(CbVerify *v)
{
	Page		page = v->page.data;
	OffsetNumber first = v->level == 0 ? CbPageFirstPlain(page) :
		CbPageFirstItem(page);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	CbArena		arena;
	CbLeaf		leaf = {.npacked = 0};

	cb_arena_init(&arena, v->page_cxt);
	if (v->level == 0 && !cb_leaf_open(&leaf, page, RelationGetDescr(v->rel)))
		cb_leaf_report_damaged(v->rel, v->blkno);
	v->npacked = v->nitems = leaf.npacked;
	v->items = palloc(sizeof(IndexTuple) * (leaf.npacked + max + 1));
	if (!cb_leaf_read_all(&leaf, &arena, v->items))
		cb_leaf_report_damaged(v->rel, v->blkno);
	for (OffsetNumber off = first; off <= max; off++)
		v->items[v->nitems++] = CbPageGetTuple(page, off);
}

/*
 * Has the page on the left changed since it was read?  Then it may have been
 * deleted, or have given entries to the current one, whose range has grown.
 */
static bool
cb_verify_left_has_changed(CbVerify *v)
{
	Buffer		buf;
	XLogRecPtr	lsn;

	if (v->strict || v->left == InvalidBlockNumber)
		return false;
	if (!RelationNeedsWAL(v->rel))
		return true;			/* LSNs do not tell */
	buf = cb_sound_read(v->rel, v->left, v->strategy);
	lsn = BufferGetLSNAtomic(buf);
	ReleaseBuffer(buf);
	return lsn != v->left_lsn;
}

/*
 * Checks that item i, from 0, is not below the high key of the page on the
 * left.
 */
static void
cb_verify_low(CbVerify *v, IndexTuple itup, int i)
{
	if (v->low != NULL && cb_key_compare(&v->kd, v->low, itup) > 0 &&
		!cb_verify_left_has_changed(v))
		cb_verify_fail(v, "Entry %d is below the high key of the page on the left.",
					   i + 1);
}

/* Checks b: low <= items < high key, strictly ascending. */
static void
cb_verify_order(CbVerify *v)
{
	Page		page = v->page.data;
	IndexTuple	high = CbPageIsRightmost(page) ? NULL : CbPageGetHighKey(page);

	if (high && v->low && cb_key_compare(&v->kd, v->low, high) >= 0 &&
		!cb_verify_left_has_changed(v))
		cb_verify_fail(v, "Its high key is not above that of the page on its left.");

	/* the first downlink stands for the page's low bound */
	for (int i = v->level > 0 ? 1 : 0; i < v->nitems; i++)
	{
		IndexTuple	itup = v->items[i];
		IndexTuple	prev = i > (v->level > 0 ? 1 : 0) && i != v->npacked ?
			v->items[i - 1] : NULL;

		if (prev && cb_key_compare(&v->kd, prev, itup) >= 0)
			cb_verify_fail(v, "Entries %d and %d are not in order.", i, i + 1);
		cb_verify_low(v, itup, i);
		if (high && cb_key_compare(&v->kd, itup, high) >= 0)
			cb_verify_fail(v, "Entry %d is not below the high key.", i + 1);
	}
}

/* Checks the tuple forms of a page; entries are fingerprinted in passing. */
static void
cb_verify_items(CbVerify *v)
{
	Page		page = v->page.data;

	if (!CbPageIsRightmost(page))
		cb_verify_pivot(v, CbPageGetHighKey(page), CB_FORM_SEPARATOR, CB_HIKEY);
	for (int i = 0; i < v->nitems; i++)
	{
		if (v->level == 0)
			cb_verify_entry(v, v->items[i], i + 1);
		else
			cb_verify_pivot(v, v->items[i],
							i == 0 ? CB_FORM_MINUS_INFINITY : CB_FORM_SEPARATOR,
							CbPageFirstItem(page) + i);
	}
}

/*
 * Adds a downlink to the list, whose memory is the current context's, where
 * its separator is copied to.  NULL: minus infinity.
 */
void
cb_verify_add_link(CbVerifyLinks *links, BlockNumber child, IndexTuple separator)
{
	if (links->n == links->size)
	{
		links->size = Max(1024, links->size * 2);
		if (links->children == NULL)
		{
			links->children = palloc(links->size * sizeof(BlockNumber));
			links->separators = palloc(links->size * sizeof(IndexTuple));
		}
		else
		{
			links->children = repalloc_huge(links->children,
											links->size * sizeof(BlockNumber));
			links->separators = repalloc_huge(links->separators,
											  links->size * sizeof(IndexTuple));
		}
	}
	links->children[links->n] = child;
	links->separators[links->n] = separator ? CopyIndexTuple(separator) : NULL;
	links->n++;
}

/*
 * Keeps the downlinks of the current internal page.  Without strict only the
 * first of the level is of interest: it leads to the next level.
 */
static void
cb_verify_collect_links(CbVerify *v)
{
	Page		page = v->page.data;
	OffsetNumber first = CbPageFirstItem(page);
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = first; off <= max; off++)
	{
		IndexTuple	itup = CbPageGetTuple(page, off);

		if (!v->strict && v->below.n > 0)
			return;
		cb_verify_add_link(&v->below, BTreeTupleGetDownLink(itup),
						   off == first ? v->low : itup);
	}
}

/* Checks e for the current page. */
static void
cb_verify_downlink(CbVerify *v)
{
	bool		linked = v->nextlink < v->above.n &&
		v->above.children[v->nextlink] == v->blkno;
	IndexTuple	separator;

	if (!v->strict)
		return;
	if (linked && v->left_incomplete)
		cb_verify_fail(v, "It has a downlink, but its left sibling is marked as an incomplete split.");
	if (!linked)
	{
		if (v->left_incomplete)
			return;
		if (v->nextlink < v->above.n)
			cb_verify_fail(v, "It has no downlink; the next downlink of level %u is to block %u.",
						   v->level + 1, v->above.children[v->nextlink]);
		cb_verify_fail(v, "It has no downlink on level %u.", v->level + 1);
	}

	separator = v->above.separators[v->nextlink++];
	if ((separator == NULL) != (v->low == NULL) ||
		(separator && cb_key_compare(&v->kd, separator, v->low) != 0))
		cb_verify_fail(v, "The separator of its downlink differs from the high key of the page on the left.");
}

/* Checks the current tree page, and makes it the left neighbour. */
static void
cb_verify_tree_page(CbVerify *v)
{
	MemoryContext old;
	IndexTuple	low = v->low;

	cb_verify_page_frame(v);
	cb_verify_tree_flags(v);
	cb_verify_mark_seen(v);
	cb_verify_line_pointers(v);

	old = MemoryContextSwitchTo(v->page_cxt);
	cb_verify_list_items(v);
	cb_verify_items(v);
	cb_verify_order(v);
	cb_verify_downlink(v);
	MemoryContextSwitchTo(old);
	MemoryContextReset(v->page_cxt);

	if (v->level > 0)
		cb_verify_collect_links(v);
	v->left_incomplete = CbPageHasIncompleteSplit(v->page.data);
	v->left = v->blkno;
	v->left_lsn = PageGetLSN(v->page.data);
	v->low = CbPageIsRightmost(v->page.data) ? NULL :
		CopyIndexTuple(CbPageGetHighKey(v->page.data));
	if (low)
		pfree(low);
}

/*
 * Is the current page one that was deleted after the link to it was read?  The
 * page on its right has taken over its range of keys.
 */
static bool
cb_verify_skip_deleted(CbVerify *v)
{
	if (v->strict || PageIsNew(v->page.data))
		return false;
	cb_verify_page_frame(v);
	return CbPageIsGone(v->page.data) &&
		CbPageGetOpaque(v->page.data)->level == v->level;
}

/*
 * The page of the level that lies right of v->low now, found by a descent, for
 * which there is a snapshot; *reuses: with what count.
 */
static BlockNumber
cb_verify_find_right(CbVerify *v, uint64 *reuses)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = v->low};
	Buffer		buf = cb_tree_descend_to(&v->kd, &bound, ForwardScanDirection,
										 v->level, NULL, NULL);
	BlockNumber blkno = BufferGetBlockNumber(buf);

	*reuses = cb_counts_reuses(v->rel);
	UnlockReleaseBuffer(buf);
	return blkno;
}

/* Walks one level by right links; v->above has been set. */
static void
cb_verify_level(CbVerify *v)
{
	BlockNumber blkno = v->above.children[0];
	BlockNumber from = blkno;
	uint64		npages = 0;
	uint64		reuses = 0;		/* of the last page in the tree */

	v->left = InvalidBlockNumber;
	v->low = NULL;
	v->left_incomplete = false;
	v->nextlink = 0;
	memset(&v->below, 0, sizeof(CbVerifyLinks));

	while (blkno != InvalidBlockNumber)
	{
		cb_verify_read(v, blkno, from);

		/* the leftmost page never leaves the tree */
		if (v->left != InvalidBlockNumber && v->reuses != reuses)
		{
			blkno = cb_verify_find_right(v, &reuses);
			continue;
		}
		if (!cb_verify_skip_deleted(v))
		{
			cb_verify_tree_page(v);
			reuses = v->reuses;
			CB_TEST_POINT("verify-right");
		}
		if (++npages > v->nblocks &&
			npages > RelationGetNumberOfBlocks(v->rel))
			cb_verify_fail(v, "The right links of level %u form a ring.",
						   v->level);
		from = blkno;
		blkno = CbPageGetOpaque(v->page.data)->next;
	}

	if (v->strict && v->nextlink < v->above.n)
	{
		v->blkno = v->above.children[v->nextlink];
		cb_verify_fail(v, "A downlink of level %u leads to it, but it is not on level %u.",
					   v->level + 1, v->level);
	}
}

/* Frees the list's memory; the list is to be zeroed before it is used again. */
void
cb_verify_free_links(CbVerifyLinks *links)
{
	if (links->children == NULL)
		return;
	for (int64 i = 0; i < links->n; i++)
	{
		if (links->separators[i])
			pfree(links->separators[i]);
	}
	pfree(links->children);
	pfree(links->separators);
}

/* Walks all levels, top to bottom. */
static void
cb_verify_tree(CbVerify *v)
{
	CbMetaPageData meta;

	cb_verify_meta(v, &meta);
	cb_verify_read(v, meta.root, CB_METAPAGE_BLKNO);
	cb_verify_page_frame(v);
	if (v->strict &&
		(CbPageGetOpaque(v->page.data)->flags & CBP_ROOT) == 0)
		cb_verify_fail(v, "The metapage names it as the root, but it is not marked so.");

	memset(&v->above, 0, sizeof(CbVerifyLinks));
	cb_verify_add_link(&v->above, meta.root, NULL);
	v->level = meta.root_level;
	for (;;)
	{
		cb_verify_level(v);
		cb_verify_free_links(&v->above);
		if (v->level == 0)
			break;
		v->above = v->below;
		v->level--;
	}
}

/* Checks f: a page that the walk has not met is lost. */
static void
cb_verify_unreached(CbVerify *v)
{
	for (BlockNumber blkno = 1; blkno < v->nblocks; blkno++)
	{
		if (v->seen[blkno / 8] & (1 << (blkno % 8)))
			continue;
		cb_verify_read(v, blkno, blkno);
		if (PageIsNew(v->page.data))
			continue;
		cb_verify_page_frame(v);
		if (CbPageIsTree(v->page.data) && !CbPageIsGone(v->page.data))
			cb_verify_fail(v, "It is a tree page, but no link leads to it.");
		if (CbPageIsRange(v->page.data))
			cb_verify_fail(v, "It is a range page, but no link leads to it.");
		if (CbPageListsTiles(v->page.data))
			cb_verify_fail(v, "It is a tile page, but no link leads to it.");
		if (CbPageIsRun(v->page.data))
			cb_verify_fail(v, "It is a page of a run, but no range or tile lists that.");
	}
}

/* ---------- the journal ---------- */

/*
 * Checks the entries of a journal page; those below tail are in lower tiers.
 */
static void
cb_verify_journal_entries(CbVerify *v, CbPos tail)
{
	PageHeader	header = (PageHeader) v->page.data;
	uint64		seq = CbJournalGetHeader(v->page.data)->seq;
	unsigned	off = CB_JOURNAL_FIRST;
	bool		tail_met = CbPosSeq(tail) != seq;
	Tuplesortstate *indexed = v->indexed;
	MemoryContext old = MemoryContextSwitchTo(v->page_cxt);

	while (off < header->pd_lower)
	{
		IndexTuple	itup = (IndexTuple) (v->page.data + off);

		tail_met |= CbPosMake(seq, off) == tail;
		if (off + sizeof(IndexTupleData) > header->pd_lower ||
			IndexTupleSize(itup) < sizeof(IndexTupleData) ||
			off + MAXALIGN(IndexTupleSize(itup)) > header->pd_lower)
			cb_verify_fail(v, "The journal entry at %u is longer than the page.",
						   off);
		v->indexed = CbPosMake(seq, off) < tail ? NULL : indexed;
		cb_verify_entry(v, itup, off);
		off += MAXALIGN(IndexTupleSize(itup));
	}
	v->indexed = indexed;
	tail_met |= CbPosMake(seq, off) == tail;
	if (!tail_met)
		cb_verify_fail(v, "The journal's tail %u is not at an entry.",
					   CbPosOff(tail));
	MemoryContextSwitchTo(old);
	MemoryContextReset(v->page_cxt);
}

/*
 * Checks c.  If the journal is truncated meanwhile, its pages may be used
 * again: then start from the new tail.
 */
static void
cb_verify_journal(CbVerify *v)
{
	CbMetaPageData meta;
	CbJournalWalk walk;
	BlockNumber from = CB_METAPAGE_BLKNO;

	cb_verify_meta(v, &meta);
	cb_walk_begin_at_tail(&walk, v->rel);
	walk.strategy = v->strategy;
	while (walk.block != InvalidBlockNumber)
	{
		Page		page;

		cb_verify_link(v, walk.block, from);
		page = cb_walk_lock(&walk);
		if (page == NULL)
		{
			cb_walk_restart(&walk);
			from = CB_METAPAGE_BLKNO;
			continue;
		}
		memcpy(v->page.data, page, BLCKSZ);
		cb_walk_unlock(&walk);
		cb_progress_add(1);
		cb_verify_page_frame(v);
		cb_verify_mark_seen(v);
		cb_verify_journal_entries(v, walk.tail);
		from = walk.block;
		cb_walk_step(&walk);
	}
}

/* ---------- heapallindexed ---------- */

static void
cb_verify_heap_callback(Relation index, ItemPointer tid, Datum *values,
						bool *isnull, bool alive, void *state)
{
	CbVerify   *v = (CbVerify *) state;
	MemoryContext old = MemoryContextSwitchTo(v->page_cxt);
	IndexTuple	itup = cb_key_form_entry(index, values, isnull, tid);

	tuplesort_putdatum(v->visible,
					   Int64GetDatum(cb_verify_fingerprint(v, itup)), false);
	v->nrows++;
	cb_progress_add(1);
	MemoryContextSwitchTo(old);
	MemoryContextReset(v->page_cxt);
}

/* How many rows the table has, as ANALYZE found. */
static int64
cb_verify_estimate_rows(Relation heap)
{
	return heap->rd_rel->reltuples < 0 ? CB_PROGRESS_UNKNOWN :
		(int64) heap->rd_rel->reltuples;
}

/* Takes the fingerprints of all rows that the snapshot sees; returns how many. */
static int64
cb_verify_scan_heap(CbVerify *v, Relation heap, Snapshot snapshot)
{
	IndexInfo  *info = BuildIndexInfo(v->rel);
	TableScanDesc scan = table_beginscan_strat(heap, snapshot, 0, NULL,
											   true, true);

	/* only what the snapshot sees, as the first pass of a concurrent build */
	info->ii_Concurrent = true;
	info->ii_Unique = false;
	info->ii_ExclusionOps = NULL;
	info->ii_ExclusionProcs = NULL;
	info->ii_ExclusionStrats = NULL;
	v->nrows = 0;
	(void) table_index_build_scan(heap, v->rel, info, true, false,
								  cb_verify_heap_callback, v, scan);
	return v->nrows;
}

static void
cb_verify_report_missing(CbVerify *v, Relation heap, int64 fingerprint)
{
	uint64		tid = (uint64) fingerprint >> CB_FP_HASH_BITS;

	cb_report_corrupt(v->rel, InvalidBlockNumber,
					  "Row (%u,%u) of table \"%s\" has no entry.",
					  (unsigned) (tid >> CB_FP_OFFSET_BITS),
					  (unsigned) (tid & ((1 << CB_FP_OFFSET_BITS) - 1)),
					  RelationGetRelationName(heap));
}

/* Checks g: merges the two sorted sets of fingerprints. */
static void
cb_verify_compare_sets(CbVerify *v, Relation heap)
{
	Datum		row;
	Datum		entry = (Datum) 0;
	bool		isnull;
	bool		more = true;
	int64		at = PG_INT64_MIN;
	bool		at_valid = false;

	tuplesort_performsort(v->indexed);
	tuplesort_performsort(v->visible);
	CB_TEST_POINT("verify-compare");
	while (tuplesort_getdatum(v->visible, true, true, &row, &isnull, NULL))
	{
		int64		wanted = DatumGetInt64(row);

		cb_progress_add(1);
		while (more && (!at_valid || at < wanted))
		{
			CHECK_FOR_INTERRUPTS();
			more = tuplesort_getdatum(v->indexed, true, true, &entry, &isnull, NULL);
			if (more)
			{
				at = DatumGetInt64(entry);
				at_valid = true;
			}
		}
		if (!at_valid || at != wanted)
			cb_verify_report_missing(v, heap, wanted);
	}
}

static Tuplesortstate *
cb_verify_begin_set(void)
{
	return tuplesort_begin_datum(INT8OID, Int8LessOperator, InvalidOid, false,
								 maintenance_work_mem / 2, NULL,
								 TUPLESORT_NONE);
}

/*
 * Takes the snapshot whose rows must be found.  An old snapshot of the
 * transaction cannot be used if it may see rows that the index never had.
 */
static Snapshot
cb_verify_snapshot(Relation rel)
{
	Snapshot	snapshot = RegisterSnapshot(GetTransactionSnapshot());

	if (IsolationUsesXactSnapshot() && rel->rd_index->indcheckxmin &&
		!TransactionIdPrecedes(HeapTupleHeaderGetXmin(rel->rd_indextuple->t_data),
							   snapshot->xmin))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("index \"%s\" cannot be verified with the snapshot of this transaction",
						RelationGetRelationName(rel)),
				 errhint("Verify it in a transaction of its own.")));
	return snapshot;
}

/* ---------- entry point ---------- */

/* All checks; the relations are open and locked. */
static void
cb_verify_index(Relation heap, Relation rel, bool strict, bool heapallindexed)
{
	CbVerify   *v = palloc0(sizeof(CbVerify));
	Snapshot	snapshot = NULL;

	v->rel = rel;
	v->strict = strict;
	v->strategy = GetAccessStrategy(BAS_BULKREAD);
	v->page_cxt = AllocSetContextCreate(CurrentMemoryContext,
										"cache_batch verify page",
										ALLOCSET_DEFAULT_SIZES);
	cb_key_init(&v->kd, rel);

	if (heapallindexed)
	{
		snapshot = cb_verify_snapshot(rel);
		v->indexed = cb_verify_begin_set();
		v->visible = cb_verify_begin_set();
	}

	v->nblocks = RelationGetNumberOfBlocks(rel);
	if (strict)
		v->seen = MemoryContextAllocExtended(CurrentMemoryContext,
											 v->nblocks / 8 + 1,
											 MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);

	cb_progress_phase(CB_PHASE_CHECK_JOURNAL, v->nblocks);
	cb_verify_journal(v);
	cb_progress_go_on(CB_PHASE_CHECK_RANGES);
	cb_verify_ranges(v);
	cb_progress_go_on(CB_PHASE_CHECK_TREE);
	cb_verify_tree(v);
	if (strict)
		cb_verify_unreached(v);
	if (heapallindexed)
	{
		int64		nrows;

		cb_progress_phase(CB_PHASE_CHECK_TABLE, cb_verify_estimate_rows(heap));
		nrows = cb_verify_scan_heap(v, heap, snapshot);
		cb_progress_phase(CB_PHASE_COMPARE, nrows);
		cb_verify_compare_sets(v, heap);
		tuplesort_end(v->indexed);
		tuplesort_end(v->visible);
		UnregisterSnapshot(snapshot);
	}
	MemoryContextDelete(v->page_cxt);
}

/* Raises an error if the index cannot be checked; false: nothing to check. */
static bool
cb_verify_checkable(Relation rel)
{
	if (!rel->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot verify invalid index \"%s\"",
						RelationGetRelationName(rel)),
				 errhint("Please REINDEX it.")));

	/* an unlogged index has no main fork on a standby */
	return rel->rd_rel->relpersistence != RELPERSISTENCE_UNLOGGED ||
		!RecoveryInProgress();
}

/*
 * cache_batch_verify(index regclass, heapallindexed boolean): raises an error
 * at the first fault; see the head of this file.
 *
 * The index is the user's.  Table and index are locked: with heapallindexed,
 * and not in recovery, by ShareLock, else by AccessShareLock.  What the
 * backend has staged is published first.  Comparison functions run, as the
 * table's owner.
 */
Datum
cache_batch_verify(PG_FUNCTION_ARGS)
{
	bool		heapallindexed = PG_GETARG_BOOL(1);
	bool		strict = heapallindexed && !RecoveryInProgress();
	LOCKMODE	lockmode = strict ? ShareLock : AccessShareLock;
	Relation	heap;
	Relation	rel;
	CbOwnerMark mark;
	bool		begun;

	cb_require_preload();
	rel = cb_sqlfn_open_own_with_table(PG_GETARG_OID(0), lockmode, lockmode,
									   &heap);

	/* functions of the index run as the table's owner, as when it was built */
	cb_owner_begin(heap, &mark);

	if (cb_verify_checkable(rel))
	{
		cb_stage_publish_index(rel);
		begun = cb_progress_begin(CB_PROGRESS_VERIFY, rel);
		cb_verify_index(heap, rel, strict, heapallindexed);
		cb_progress_end(begun);
	}

	cb_owner_end(&mark);
	relation_close(rel, lockmode);
	table_close(heap, lockmode);
	PG_RETURN_VOID();
}
