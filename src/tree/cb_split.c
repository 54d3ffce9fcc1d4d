/*-------------------------------------------------------------------------
 *
 * cb_split.c
 *	  Splitting pages, and telling their parents.
 *
 * A page is split into itself and up to CB_MAX_SPLIT_PAGES new pages in one
 * WAL record (C4), which carries all of them in full, so that redo of a page
 * never looks at another (I10).  Each page but the last is marked as an
 * incomplete split: its right sibling has no downlink yet.  The downlinks go
 * into the parent in one batch, in the record that clears the marks.  After
 * an error or a crash in between, the pages are reached by their right links,
 * and the next writer that comes by inserts the missing downlink.
 *
 * If that is too few for a packed leaf and an entry to come, as what is in its
 * delta spoils the coding of all once they are packed together, the leaf is
 * cut in two as it is, packed part and delta (cb_tree_split_as_is).  Each half
 * is a copy from which the other's entries are removed, so it fits (U13).  If
 * there is no room for the left one's high key it is cut further left than in
 * the middle, after one entry if need be (C4_ASISROOM).  The packed parts get
 * shorter, so that a split is enough in the end (C4_ASIS).
 *
 * Locks: the pages of the split stay exclusively locked until their parent
 * has been told; parents are locked after children, the metapage last.  All
 * pages that get a cycle id are locked when it is read, so that a VACUUM that
 * starts afterwards can't pass any of them before the split is in place.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "base/cb_heat.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "rel/cb_alloc.h"
#include "storage/bufmgr.h"
#include "tree/cb_tree.h"

#define CB_MAX_PARTS	(CB_MAX_SPLIT_PAGES + 1)

/* how the items of a page are spread over several */
typedef struct CbSplitPlan
{
	int			nparts;
	int			first[CB_MAX_PARTS + 1];	/* item at which part i begins */
	IndexTuple	hikey[CB_MAX_PARTS];	/* NULL: rightmost */
	bool		packed;			/* the parts are leaves with packed parts */
} CbSplitPlan;

/* ---------- planning ---------- */

/*
 * Upper bound of the line pointer and high key that separate before items[i]:
 * in a leaf it may get a TID, in an internal page it is the item itself.
 */
static Size
cb_split_hikey_bound(IndexTuple *items, int nitems, int i, IndexTuple old_hikey)
{
	if (i < nitems)
		return CbItemSpace(items[i]) +
			(BTreeTupleIsPivot(items[i]) ? 0 : MAXALIGN(sizeof(ItemPointerData)));
	return old_hikey ? CbItemSpace(old_hikey) : 0;
}

/*
 * Cut the items into parts of about target bytes.  Returns the number of
 * parts, or 0 if there would be too many.
 */
static int
cb_split_divide(IndexTuple *items, int nitems, IndexTuple old_hikey, Size target,
				CbSplitPlan *plan)
{
	Size		used = 0;
	int			nparts = 1;

	plan->first[0] = 0;
	for (int i = 0; i < nitems; i++)
	{
		Size		space = CbItemSpace(items[i]);
		Size		hikey = cb_split_hikey_bound(items, nitems, i + 1, old_hikey);

		if (used > 0 &&
			(used + space / 2 > target || used + space + hikey > CB_PAGE_ROOM))
		{
			if (nparts == CB_MAX_PARTS)
				return 0;
			plan->first[nparts++] = i;
			used = 0;
		}
		used += space;
	}
	plan->first[nparts] = nitems;
	return nparts;
}

/*
 * Choose the parts: even ones, or, where entries arrive in order at the right
 * end, ones filled to the fillfactor.  False: they would be too many.
 */
static bool
cb_split_plan(const CbKeyDesc *kd, IndexTuple *items, int nitems,
			  IndexTuple old_hikey, bool at_end, CbSplitPlan *plan)
{
	Size		total = cb_tree_plain_space(items, nitems);
	int			parts;
	int			fillfactor = BTreeTupleIsPivot(items[0]) ?
		CB_INTERNAL_FILLFACTOR : CbGetFillFactor(kd->rel);

	plan->packed = false;
	plan->nparts = 0;
	if (at_end)
		plan->nparts = cb_split_divide(items, nitems, old_hikey,
									   CB_PAGE_ROOM * fillfactor / 100, plan);

	/* leave about a fifth of each page free */
	parts = Max(2, (int) ((total + CB_PAGE_ROOM * 4 / 5 - 1) / (CB_PAGE_ROOM * 4 / 5)));
	if (plan->nparts < 2)
		plan->nparts = cb_split_divide(items, nitems, old_hikey,
									   total / Min(parts, CB_MAX_PARTS), plan);
	if (plan->nparts < 2)
		plan->nparts = cb_split_divide(items, nitems, old_hikey, CB_PAGE_ROOM, plan);
	return plan->nparts >= 2;
}

/* ---------- planning packed leaves ---------- */

/* entries whose encoded size is found at a time */
#define CB_SPLIT_SAMPLE		128

/* Bytes that items take as plain ones, their line pointers included. */
Size
cb_tree_plain_space(IndexTuple *items, int nitems)
{
	Size		space = 0;

	for (int i = 0; i < nitems; i++)
		space += CbItemSpace(items[i]);
	return space;
}

/*
 * Bytes that the entries take in packed parts, about; *plain: as plain
 * entries.  What cannot be part of a packed part counts as it is.  No
 * comparison function runs.
 */
Size
cb_tree_measure(IndexTuple *items, int nitems, Size *plain)
{
	Size		total = 0;

	*plain = 0;
	for (int i = 0; i < nitems; i += CB_SPLIT_SAMPLE)
	{
		int			n = Min(CB_SPLIT_SAMPLE, nitems - i);
		Size		space = cb_tree_plain_space(items + i, n);
		Size		packed;

		packed = cb_leaf_can_pack(items + i, n) ?
			cb_leaf_measure(items + i, n, CB_PAGE_ROOM) : 0;
		total += packed > 0 ? packed : space;
		*plain += space;
	}
	return total;
}

/*
 * Cuts items into parts of target bytes, counted as plain ones, and a last one
 * with the rest; nparts at most.  Returns how many; first[i] is the item at
 * which part i begins, and first[parts] is nitems, so that first has room for
 * nparts + 1.
 */
int
cb_tree_divide_bytes(IndexTuple *items, int nitems, Size target, int nparts,
					 int *first)
{
	Size		used = 0;
	int			part = 1;

	first[0] = 0;
	for (int i = 0; i < nitems && part < nparts; i++)
	{
		if (i > 0 && used >= target * part)
			first[part++] = i;
		used += CbItemSpace(items[i]);
	}
	first[part] = nitems;
	return part;
}

/* Do n items from the first on fit into one packed leaf with its high key? */
static bool
cb_split_fits_from(IndexTuple *items, int nitems, IndexTuple old_hikey,
				   int first, int n)
{
	Size		hikey = cb_split_hikey_bound(items, nitems, first + n, old_hikey);

	return cb_leaf_can_pack(items + first, n) &&
		cb_leaf_measure(items + first, n,
						CB_PAGE_ROOM - hikey - sizeof(ItemIdData)) > 0;
}

/* Do all parts fit into packed parts, each with its high key on its page? */
static bool
cb_split_fits_packed(IndexTuple *items, int nitems, IndexTuple old_hikey,
					 const CbSplitPlan *plan)
{
	if (plan->nparts < 2)
		return false;
	for (int i = 0; i < plan->nparts; i++)
	{
		int			n = plan->first[i + 1] - plan->first[i];

		if (n == 0 ||
			!cb_split_fits_from(items, nitems, old_hikey, plan->first[i], n))
			return false;
	}
	return true;
}

/*
 * Choose parts that are packed; false: that would not save a fifth of the
 * space, or they do not fit.
 */
static bool
cb_split_plan_packed(const CbKeyDesc *kd, IndexTuple *items, int nitems,
					 IndexTuple old_hikey, bool at_end, CbSplitPlan *plan)
{
	Size		plain;
	Size		packed;
	Size		per_page;

	if (!cb_packs_leaves(kd->rel))
		return false;
#ifdef CB_TESTPOINTS
	if (cb_test_delta >= 0 && nitems % 2 == 1)
		return false;
#endif
	packed = cb_tree_measure(items, nitems, &plain);
	if (packed * 5 > plain * 4)
		return false;

	plan->packed = true;
	if (at_end)
	{
		per_page = CB_PAGE_ROOM * CbGetFillFactor(kd->rel) / 100;
		plan->nparts = cb_tree_divide_bytes(items, nitems,
											Min(plain * per_page / packed,
												plain * CB_PACK_MAX_ENTRIES / nitems),
											CB_MAX_PARTS, plan->first);
		if (cb_split_fits_packed(items, nitems, old_hikey, plan))
			return true;
	}

	/* leave about a fifth of each page free */
	per_page = CB_PAGE_ROOM * 4 / 5;
	for (int parts = Max(2, (int) ((packed + per_page - 1) / per_page));
		 parts <= CB_MAX_PARTS; parts++)
	{
		plan->nparts = cb_tree_divide_bytes(items, nitems,
											(plain + parts - 1) / parts, parts,
											plan->first);
		if (cb_split_fits_packed(items, nitems, old_hikey, plan))
			return true;
	}
	return false;
}

/*
 * The last resort: as many items in each part as fit into a packed leaf.  A
 * packed part can stand for entries of many pages, if they repeat their keys,
 * and then neither plain parts nor parts of as many plain bytes are few
 * enough.
 *
 * Not where leaves are not packed: the first part would be as full as the leaf
 * was, and each entry that comes to it would make one more page.  Such a leaf
 * is cut in its middle (cb_tree_split_as_is) until plain parts are few enough.
 */
static bool
cb_split_plan_full(const CbKeyDesc *kd, IndexTuple *items, int nitems,
				   IndexTuple old_hikey, CbSplitPlan *plan)
{
	int			first = 0;

	if (!cb_packs_leaves(kd->rel))
		return false;
	plan->packed = true;
	for (plan->nparts = 0; first < nitems; plan->nparts++)
	{
		int			low = 0;
		int			high = Min(nitems - first - (first == 0 ? 1 : 0),
							   CB_PACK_MAX_ENTRIES);

		while (low < high)
		{
			int			mid = (low + high + 1) / 2;

			if (cb_split_fits_from(items, nitems, old_hikey, first, mid))
				low = mid;
			else
				high = mid - 1;
		}
		if (low == 0 || plan->nparts == CB_MAX_PARTS)
			return false;
		plan->first[plan->nparts] = first;
		first += low;
	}
	plan->first[plan->nparts] = nitems;
	return plan->nparts >= 2;
}

/*
 * Chooses the parts, packed or plain; the last resort comes last.  False:
 * there is no way.  Nothing is compared, and no page is changed.
 */
static bool
cb_split_choose(const CbKeyDesc *kd, bool leaf, IndexTuple *items, int nitems,
				IndexTuple old_hikey, bool at_end, CbSplitPlan *plan)
{
	return (leaf && cb_split_plan_packed(kd, items, nitems, old_hikey, at_end, plan)) ||
		cb_split_plan(kd, items, nitems, old_hikey, at_end, plan) ||
		(leaf && cb_split_plan_full(kd, items, nitems, old_hikey, plan));
}

/* ---------- high keys ---------- */

/*
 * Fills in the high keys; those that are made are palloc'd, the last is the
 * old one.  Comparison functions run for a leaf.
 */
static void
cb_split_make_hikeys(const CbKeyDesc *kd, IndexTuple *items, bool leaf,
					 IndexTuple old_hikey, CbSplitPlan *plan)
{
	for (int i = 0; i < plan->nparts - 1; i++)
	{
		int			next = plan->first[i + 1];

		plan->hikey[i] = leaf ?
			cb_key_make_separator(kd, items[next - 1], items[next]) :
			CopyIndexTuple(items[next]);
	}
	plan->hikey[plan->nparts - 1] = old_hikey;
}

/* ---------- page images ---------- */

static void
cb_split_add_item(Page page, IndexTuple itup)
{
	if (PageAddItem(page, (Item) itup, IndexTupleSize(itup),
					InvalidOffsetNumber, false, false) == InvalidOffsetNumber)
		elog(ERROR, "cache_batch: no room for an item while splitting a page");
}

/*
 * Builds one part as a page image, without right link and cycle id; hikey:
 * NULL for the rightmost page.  The first item of an internal page loses its
 * key.  False: a packed part does not fit.  Plain items are known to fit: else
 * an error.
 */
bool
cb_tree_build_page(Page page, uint16 flags, uint16 level, IndexTuple hikey,
				   bool packed, IndexTuple *items, int nitems)
{
	cb_page_init(page, flags, level);
	if (hikey)
		cb_split_add_item(page, hikey);
	if (packed)
		return cb_leaf_put_packed(page, items, nitems);
	for (int i = 0; i < nitems; i++)
	{
		if (i == 0 && level > 0)
		{
			IndexTuple	first = cb_key_minus_infinity(BTreeTupleGetDownLink(items[0]));

			cb_split_add_item(page, first);
			pfree(first);
		}
		else
			cb_split_add_item(page, items[i]);
	}
	return true;
}

/*
 * Builds all parts; bufs are the pages that they will go to.  All are locked
 * exclusively, so that cycleid, which was read with them locked, is right for
 * all (A11).
 */
static void
cb_split_build_all(CbSplitPlan *plan, IndexTuple *items, Buffer *bufs,
				   PGAlignedBlock *images, BTCycleId cycleid)
{
	CbPageOpaque old = CbPageGetOpaque(BufferGetPage(bufs[0]));

	for (int i = 0; i < plan->nparts; i++)
	{
		Page		image = (Page) images[i].data;
		bool		last = i == plan->nparts - 1;
		uint16		flags = old->flags & (CBP_LEAF | CBP_INTERNAL);
		CbPageOpaque opaque;

		if (i == 0)
			flags |= old->flags & CBP_ROOT;
		if (!last)
			flags |= CBP_INCOMPLETE_SPLIT;
		if (!cb_tree_build_page(image, flags, old->level, plan->hikey[i],
								plan->packed, items + plan->first[i],
								plan->first[i + 1] - plan->first[i]))
			elog(ERROR, "cache_batch: no room for the packed part of a leaf that is split");
		opaque = CbPageGetOpaque(image);
		opaque->next = last ? old->next : BufferGetBlockNumber(bufs[i + 1]);
		opaque->cycleid = cycleid;
	}
}

/* ---------- parents ---------- */

/* downlinks that a parent lacks; bufs[i] is the page to the left of child i */
typedef struct CbMissing
{
	int			n;
	IndexTuple	downlinks[CB_MAX_SPLIT_PAGES];
	Buffer		bufs[CB_MAX_SPLIT_PAGES];
} CbMissing;

static void
cb_split_release(Buffer *bufs, int n)
{
	for (int i = 0; i < n; i++)
		UnlockReleaseBuffer(bufs[i]);
}

/* ---------- a new root ---------- */

static void
cb_split_log_newroot(Buffer root_buf, Buffer meta_buf, Buffer *child_bufs,
					 int nchildren, int level)
{
	xl_cb_newroot xlrec;
	XLogRecPtr	lsn;

	xlrec.root = BufferGetBlockNumber(root_buf);
	xlrec.level = level;
	xlrec.nchildren = nchildren;
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbNewroot);
	XLogRegisterBuffer(0, root_buf, REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	XLogRegisterBuffer(1, meta_buf, REGBUF_STANDARD);
	for (int i = 0; i < nchildren; i++)
		XLogRegisterBuffer(2 + i, child_bufs[i], REGBUF_STANDARD);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_NEWROOT);
	PageSetLSN(BufferGetPage(root_buf), lsn);
	PageSetLSN(BufferGetPage(meta_buf), lsn);
	for (int i = 0; i < nchildren; i++)
		PageSetLSN(BufferGetPage(child_bufs[i]), lsn);
}

/* The page changes of a new root, for the doing side and redo. */
static void
cb_split_set_root(Page meta_page, BlockNumber root, uint32 level)
{
	CbPageGetMeta(meta_page)->root = root;
	CbPageGetMeta(meta_page)->root_level = level;
}

/*
 * A child of a new root is no root, and has its right sibling's downlink; for
 * the doing side and redo.
 */
static void
cb_split_demote_root(Page page)
{
	cb_page_clear_incomplete(page);
	CbPageGetOpaque(page)->flags &= ~CBP_ROOT;
}

/*
 * Builds the image of a new root over the first page of missing; returns how
 * many of the downlinks fit, one at least.
 */
static int
cb_split_build_root(Page page, int level, CbMissing *missing)
{
	IndexTuple	first = cb_key_minus_infinity(BufferGetBlockNumber(missing->bufs[0]));
	int			n;

	cb_page_init(page, CBP_INTERNAL | CBP_ROOT, level);
	cb_split_add_item(page, first);
	pfree(first);
	for (n = 0; n < missing->n; n++)
	{
		if (CbItemSpace(missing->downlinks[n]) > PageGetExactFreeSpace(page))
			break;
		cb_split_add_item(page, missing->downlinks[n]);
	}
	return n;
}

/*
 * The page missing->bufs[0] is the root and was split: puts a new root above
 * it, with as many of the downlinks as fit.  Returns how many; their pages are
 * released, the others still locked.  The metapage is locked last (I9), when
 * the new root's page, which may need the map or a larger file, has been
 * taken.  An error (disk full) leaves the downlinks missing.
 */
static int
cb_split_new_root(const CbKeyDesc *kd, CbMissing *missing)
{
	Relation	rel = kd->rel;
	int			level = CbPageGetOpaque(BufferGetPage(missing->bufs[0]))->level + 1;
	Buffer		root_buf = cb_rel_alloc_page(rel);
	Buffer		meta_buf = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	PGAlignedBlock image;
	int			n = cb_split_build_root((Page) image.data, level, missing);

	LockBuffer(meta_buf, BUFFER_LOCK_EXCLUSIVE);
	cb_page_check_meta(rel, BufferGetPage(meta_buf));
	if (RelationNeedsWAL(rel))
		XLogEnsureRecordSpace(2 + n, 0);

	CB_TEST_POINT("newroot");
	START_CRIT_SECTION();
	memcpy(BufferGetPage(root_buf), image.data, BLCKSZ);
	cb_rel_mark_dirty(root_buf);
	cb_split_set_root(BufferGetPage(meta_buf), BufferGetBlockNumber(root_buf),
					  level);
	cb_rel_mark_dirty(meta_buf);
	for (int i = 0; i < n; i++)
	{
		cb_split_demote_root(BufferGetPage(missing->bufs[i]));
		cb_rel_mark_dirty(missing->bufs[i]);
	}
	if (RelationNeedsWAL(rel))
		cb_split_log_newroot(root_buf, meta_buf, missing->bufs, n, level);
	END_CRIT_SECTION();

	cb_rel_cache(rel)->root = BufferGetBlockNumber(root_buf);
	cb_rel_cache(rel)->root_level = level;
	UnlockReleaseBuffer(meta_buf);
	UnlockReleaseBuffer(root_buf);
	cb_split_release(missing->bufs, n);
	return n;
}

/*
 * Redo of XLOG_CB_NEWROOT.  The new root is there before the metapage leads to
 * it; one page is locked at a time.
 */
void
cb_redo_newroot(XLogReaderState *record)
{
	xl_cb_newroot *xlrec = (xl_cb_newroot *) XLogRecGetData(record);
	Buffer		buf;
	Page		page;

	UnlockReleaseBuffer(cb_redo_image(record, 0));
	page = cb_redo_begin(record, 1, CBP_META, &buf);
	if (page != NULL)
		cb_split_set_root(page, xlrec->root, xlrec->level);
	cb_redo_end(record, page, buf);
	for (int i = 2; i < 2 + xlrec->nchildren; i++)
	{
		page = cb_redo_begin(record, i, CBP_LEAF | CBP_INTERNAL, &buf);
		if (page != NULL)
			cb_split_demote_root(page);
		cb_redo_end(record, page, buf);
	}
}

/* ---------- downlinks ---------- */

/*
 * Where in the parent the downlinks go: behind the one that leads to
 * missing->bufs[0].  It is an error if that one is not there.  The parent is
 * exclusively locked; comparison functions run.
 */
static OffsetNumber
cb_split_parent_offset(const CbKeyDesc *kd, Page parent, const CbBound *bound,
					   CbMissing *missing)
{
	OffsetNumber off = cb_tree_search_page(kd, bound, parent,
										   ForwardScanDirection);
	BlockNumber left = BufferGetBlockNumber(missing->bufs[0]);

	if (BTreeTupleGetDownLink(CbPageGetTuple(parent, off)) != left)
		cb_report_corrupt(kd->rel, left,
						  "Its downlink is not where its keys lead on level %u.",
						  CbPageGetOpaque(parent)->level);
	return OffsetNumberNext(off);
}

/*
 * The parent has the room: one record.  Releases it and the pages of missing.
 */
static void
cb_split_insert_in_place(Relation rel, Buffer parent_buf, OffsetNumber off,
						 CbMissing *missing, Size len)
{
	PGAlignedBlock tuples;
	OffsetNumber offsets[CB_MAX_SPLIT_PAGES];
	Size		at = 0;

	for (int i = 0; i < missing->n; i++)
	{
		at += cb_page_copy_tuple(tuples.data + at, missing->downlinks[i]);
		offsets[i] = off + i;
	}
	Assert(at == len);
	cb_tree_insert_at(rel, parent_buf, XLOG_CB_INTERNAL_INSERT, missing->n,
					  offsets, tuples.data, len, missing->bufs, missing->n);
	UnlockReleaseBuffer(parent_buf);
	cb_split_release(missing->bufs, missing->n);
}

/*
 * The parent lacks the room: splits it, which releases it and the pages of
 * missing.
 */
static void
cb_split_insert_by_split(const CbKeyDesc *kd, Buffer parent_buf,
						 OffsetNumber off, CbMissing *missing)
{
	PGAlignedBlock copy;
	Page		page = (Page) copy.data;
	OffsetNumber max;
	IndexTuple *items;
	int			nitems = 0;
	bool		at_end;

	memcpy(copy.data, BufferGetPage(parent_buf), BLCKSZ);
	max = PageGetMaxOffsetNumber(page);
	at_end = CbPageIsRightmost(page) && off > max;
	items = palloc(sizeof(IndexTuple) * (max + missing->n));
	for (OffsetNumber i = CbPageFirstItem(page); i <= max; i++)
	{
		if (i == off)
			for (int j = 0; j < missing->n; j++)
				items[nitems++] = missing->downlinks[j];
		items[nitems++] = CbPageGetTuple(page, i);
	}
	if (off > max)
		for (int j = 0; j < missing->n; j++)
			items[nitems++] = missing->downlinks[j];

	if (!cb_tree_split(kd, parent_buf, items, nitems, missing->bufs, missing->n,
					   at_end))
		elog(ERROR, "cache_batch: no way to split page %u of index \"%s\"",
			 BufferGetBlockNumber(parent_buf), RelationGetRelationName(kd->rel));
	pfree(items);
}

/*
 * The children are to have downlinks of their own, by which what serializable
 * transactions have locked is named; up to now their keys are the first page's.
 * The parent is locked, or there is none yet and that page is the root (A31).
 */
static void
cb_split_transfer_locks(Relation rel, const CbMissing *missing)
{
	if (!CbPageIsLeaf(BufferGetPage(missing->bufs[0])))
		return;
	for (int i = 0; i < missing->n; i++)
		cb_predicate_transfer(rel, BufferGetBlockNumber(missing->bufs[0]),
							  BTreeTupleGetDownLink(missing->downlinks[i]));
}

/*
 * Gives the parent its missing downlinks, and releases their pages.  On entry
 * all of missing->bufs are exclusively locked, and on exit nothing is.  Goes
 * up the tree by recursion if parents have to be split as well: each level
 * keeps the pages whose downlinks are missing locked until its parent has
 * them, and then lets them go.
 */
static void
cb_split_insert_downlinks(const CbKeyDesc *kd, CbMissing *missing)
{
	Page		left = BufferGetPage(missing->bufs[0]);
	CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = missing->downlinks[0]};
	Buffer		parent_buf;
	OffsetNumber off;
	Size		len = 0;

	check_stack_depth();
	if (CbPageGetOpaque(left)->flags & CBP_ROOT)
	{
		int			n;

		cb_split_transfer_locks(kd->rel, missing);
		n = cb_split_new_root(kd, missing);
		missing->n -= n;
		memmove(missing->downlinks, missing->downlinks + n,
				sizeof(IndexTuple) * missing->n);
		memmove(missing->bufs, missing->bufs + n, sizeof(Buffer) * missing->n);
		if (missing->n > 0)
			cb_split_insert_downlinks(kd, missing);
		return;
	}

	parent_buf = cb_tree_descend_for_write(kd, &bound,
										   CbPageGetOpaque(left)->level + 1,
										   NULL);
	off = cb_split_parent_offset(kd, BufferGetPage(parent_buf), &bound, missing);
	cb_tree_check_still_locked(kd->rel, parent_buf);
	cb_tree_check_still_locked(kd->rel, missing->bufs[0]);
	cb_split_transfer_locks(kd->rel, missing);
	for (int i = 0; i < missing->n; i++)
		len += MAXALIGN(IndexTupleSize(missing->downlinks[i]));

	CB_TEST_POINT("split-parent");
	if (len + missing->n * sizeof(ItemIdData) <=
		PageGetExactFreeSpace(BufferGetPage(parent_buf)))
		cb_split_insert_in_place(kd->rel, parent_buf, off, missing, len);
	else
		cb_split_insert_by_split(kd, parent_buf, off, missing);
}

/*
 * Inserts the downlink that a split of this page left missing.  The page
 * itself has one, or is the root: the caller has come to it by its downlink,
 * or by the right link of a page whose split was complete.  buf is exclusively
 * locked, and released.
 *
 * The caller may hold locks on pages of lower levels only.  Comparison
 * functions run.  An error, for want of disk space perhaps, leaves the split
 * as incomplete as it was.
 */
void
cb_tree_finish_split(const CbKeyDesc *kd, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	CbMissing	missing;

	Assert(CbPageHasIncompleteSplit(page));
	missing.n = 1;
	missing.bufs[0] = buf;
	missing.downlinks[0] = cb_key_make_downlink(CbPageGetHighKey(page),
												CbPageGetOpaque(page)->next);
	cb_split_insert_downlinks(kd, &missing);
}

/* ---------- the split ---------- */

/*
 * Logs a split within the critical section that makes it.  The parts are
 * logged in full, so that their redo needs nothing else (U12).
 */
static void
cb_split_log(Buffer *bufs, int nparts, int level, Buffer *child_bufs,
			 int nchildren)
{
	xl_cb_split xlrec;
	XLogRecPtr	lsn;

	xlrec.level = level;
	xlrec.nnew = nparts - 1;
	xlrec.nchildren = nchildren;
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbSplit);
	for (int i = 0; i < nparts; i++)
		XLogRegisterBuffer(i, bufs[i], REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	for (int i = 0; i < nchildren; i++)
		XLogRegisterBuffer(nparts + i, child_bufs[i], REGBUF_STANDARD);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_SPLIT);
	for (int i = 0; i < nparts; i++)
		PageSetLSN(BufferGetPage(bufs[i]), lsn);
	for (int i = 0; i < nchildren; i++)
		PageSetLSN(BufferGetPage(child_bufs[i]), lsn);
}

/*
 * Puts the images in place, as one atomic action.  All pages are exclusively
 * locked, before and after.  Only lack of memory is an error, before anything
 * is changed.
 */
static void
cb_split_install(Relation rel, Buffer *bufs, PGAlignedBlock *images, int nparts,
				 Buffer *child_bufs, int nchildren)
{
	int			level = CbPageGetOpaque(BufferGetPage(bufs[0]))->level;

	if (RelationNeedsWAL(rel))
		XLogEnsureRecordSpace(nparts + nchildren, 0);

	CB_TEST_POINT("split-before");
	START_CRIT_SECTION();
	for (int i = 0; i < nparts; i++)
	{
		memcpy(BufferGetPage(bufs[i]), images[i].data, BLCKSZ);
		cb_rel_mark_dirty(bufs[i]);
	}
	for (int i = 0; i < nchildren; i++)
	{
		cb_page_clear_incomplete(BufferGetPage(child_bufs[i]));
		cb_rel_mark_dirty(child_bufs[i]);
	}
	if (RelationNeedsWAL(rel))
		cb_split_log(bufs, nparts, level, child_bufs, nchildren);
	END_CRIT_SECTION();
	CB_TEST_POINT("split-after");
}

/*
 * Installs the images, and tells the parent.  Releases bufs, the pages of the
 * parts, and child_bufs, which are all exclusively locked.  child_bufs are let
 * go first: once the split is in place their downlinks are.
 */
static void
cb_split_carry_out(const CbKeyDesc *kd, CbSplitPlan *plan, Buffer *bufs,
				   PGAlignedBlock *images, Buffer *child_bufs, int nchildren)
{
	CbMissing	missing;

	cb_split_install(kd->rel, bufs, images, plan->nparts, child_bufs, nchildren);
	for (int i = 1; i < plan->nparts; i++)
		cb_heat_inherit(kd->rel, BufferGetBlockNumber(bufs[i]),
						BufferGetBlockNumber(bufs[0]));
	cb_split_release(child_bufs, nchildren);

	missing.n = plan->nparts - 1;
	for (int i = 0; i < missing.n; i++)
	{
		missing.bufs[i] = bufs[i];
		missing.downlinks[i] = cb_key_make_downlink(plan->hikey[i],
													BufferGetBlockNumber(bufs[i + 1]));
	}
	UnlockReleaseBuffer(bufs[missing.n]);
	cb_split_insert_downlinks(kd, &missing);
}

/*
 * Splits a page into as many as its new contents need, and tells the parent.
 *
 * items: the contents to be, in order, without high key; they must not point
 * into the page itself.  child_bufs: exclusively locked pages whose missing
 * downlinks are among the items.  at_end: entries arrive in order at the
 * tree's right end.  buf is exclusively locked, its split complete; it and
 * child_bufs are released.  False: the items are too many, and nothing has
 * changed; all are locked as before.
 *
 * The caller holds locks on pages of lower levels at most.  Comparison
 * functions run.  An error before the split, for want of disk space perhaps,
 * changes nothing, but that the map lacks pages taken for it until VACUUM
 * finds them; one after it leaves downlinks missing, which the next writer
 * inserts.  Takes memory from the current context and leaves some of it there.
 *
 * Keys are shortened as in a prefix B-tree (cb_key_make_separator).  That new
 * pages are found by links until their parent knows them is Lehman and Yao's.
 */
bool
cb_tree_split(const CbKeyDesc *kd, Buffer buf, IndexTuple *items, int nitems,
			  Buffer *child_bufs, int nchildren, bool at_end)
{
	Page		page = BufferGetPage(buf);
	IndexTuple	old_hikey = CbPageIsRightmost(page) ? NULL :
		CopyIndexTuple(CbPageGetHighKey(page));
	PGAlignedBlock *images = palloc(sizeof(PGAlignedBlock) * CB_MAX_PARTS);
	Buffer		bufs[CB_MAX_PARTS];
	CbSplitPlan plan;
	BTCycleId	cycleid;

	Assert(!CbPageHasIncompleteSplit(page));
	if (!cb_split_choose(kd, CbPageIsLeaf(page), items, nitems, old_hikey,
						 at_end, &plan))
	{
		pfree(images);
		return false;
	}
	cb_split_make_hikeys(kd, items, CbPageIsLeaf(page), old_hikey, &plan);
	cb_tree_check_still_locked(kd->rel, buf);

	bufs[0] = buf;
	for (int i = 1; i < plan.nparts; i++)
		bufs[i] = cb_rel_alloc_page(kd->rel);
	cycleid = _bt_vacuum_cycleid(kd->rel);
	cb_split_build_all(&plan, items, bufs, images, cycleid);
	cb_split_carry_out(kd, &plan, bufs, images, child_bufs, nchildren);
	pfree(images);
	return true;
}

/* ---------- cutting a leaf as it is ---------- */

/*
 * Makes the left or the right half of a packed leaf, in image: what the other
 * one has is removed.  That cannot fail, as the packed part was checked (U13).
 * The leaf itself is not changed.
 */
static void
cb_split_make_half(Page page, int ordinal, OffsetNumber off, bool left,
				   Page image)
{
	OffsetNumber end = PageGetMaxOffsetNumber(page) + 1;
	CbDeletable gone = {0};
	CbLeaf		leaf;

	(void) cb_leaf_open(&leaf, page, NULL);
	for (int i = left ? ordinal : 0; i < (left ? leaf.npacked : ordinal); i++)
		gone.ordinals[gone.nordinals++] = i;
	for (OffsetNumber i = left ? off : CbPageFirstPlain(page);
		 i < (left ? end : off); i++)
		gone.offsets[gone.noffsets++] = i;
	memcpy(image, page, BLCKSZ);
	cb_leaf_delete(image, gone.ordinals, gone.nordinals, gone.offsets,
				   gone.noffsets);
}

/* Gives the left half its high key; false: no room. */
static bool
cb_split_set_hikey(Page image, IndexTuple hikey)
{
	if (!CbPageIsRightmost(image))
		return PageIndexTupleOverwrite(image, CB_HIKEY, (Item) hikey,
									   IndexTupleSize(hikey));
	return PageAddItem(image, (Item) hikey, IndexTupleSize(hikey), CB_HIKEY,
					   false, false) != InvalidOffsetNumber;
}

/*
 * Finds the place that n of the leaf's entries, packed part and delta taken
 * together, lie left of, and the separator, palloc'd; NULL: there are no more
 * than n.  Comparison functions run, with the leaf locked.
 */
static IndexTuple
cb_split_find_place(const CbKeyDesc *kd, Buffer buf, CbLeaf *leaf, int n,
					int *ordinal, OffsetNumber *off)
{
	Page		page = BufferGetPage(buf);
	CbLeafTuple tuples[2];
	IndexTuple	before = NULL;

	*ordinal = 0;
	*off = CbPageFirstPlain(page);
	for (;; n--)
	{
		IndexTuple	packed = NULL;
		IndexTuple	plain = NULL;
		IndexTuple	next;
		int			cmp;

		if (*ordinal < leaf->npacked &&
			(packed = cb_leaf_read(leaf, *ordinal, &tuples[*ordinal % 2])) == NULL)
			cb_leaf_report_damaged(kd->rel, BufferGetBlockNumber(buf));
		if (*off <= PageGetMaxOffsetNumber(page))
			plain = CbPageGetTuple(page, *off);
		if (packed == NULL && plain == NULL)
			return NULL;
		cmp = packed == NULL ? 1 : plain == NULL ? -1 :
			cb_key_compare(kd, packed, plain);
		next = cmp <= 0 ? packed : plain;
		if (n == 0)
			return cb_key_make_separator(kd, before, next);

		/* both may have the same entry: it stays together */
		*ordinal += cmp <= 0;
		*off += cmp >= 0;
		before = next;
	}
}

/*
 * Makes the halves of a leaf of which n entries go to the left, with the
 * separator as its high key, palloc'd; NULL: there is no room for that, or no
 * such place.  The page is not changed.  Comparison functions run.
 */
static IndexTuple
cb_split_make_halves(const CbKeyDesc *kd, Buffer buf, CbLeaf *leaf, int n,
					 Page left, Page right)
{
	Page		page = BufferGetPage(buf);
	int			ordinal;
	OffsetNumber off;
	IndexTuple	hikey = cb_split_find_place(kd, buf, leaf, n, &ordinal, &off);

	if (hikey == NULL)
		return NULL;
	cb_split_make_half(page, ordinal, off, true, left);
	if (!cb_split_set_hikey(left, hikey))
		return NULL;
	cb_split_make_half(page, ordinal, off, false, right);
	return hikey;
}

/*
 * Cuts a packed leaf in two, each half with its part of packed part and delta,
 * which stays one: the last resort where packed part and delta together would
 * take more pages than one split makes.  The cut is in the middle; further
 * left where the left half, which may have lost little of its packed part, has
 * no room for the separator.  One entry has, with any separator.
 *
 * False: there is nothing to cut; nothing has changed.  Locks, comparisons,
 * errors and memory as for cb_tree_split(); a damaged packed part is an error
 * as well.
 */
bool
cb_tree_split_as_is(const CbKeyDesc *kd, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	PGAlignedBlock images[2];
	Page		left = (Page) images[0].data;
	Page		right = (Page) images[1].data;
	CbSplitPlan plan = {.nparts = 2};
	Buffer		bufs[CB_MAX_PARTS] = {buf};
	CbLeaf		leaf;
	int			n;

	Assert(!CbPageHasIncompleteSplit(page));
	if (!cb_leaf_open(&leaf, page, cb_sound_desc(kd->rel)) || !cb_leaf_check(&leaf))
		cb_leaf_report_damaged(kd->rel, BufferGetBlockNumber(buf));
	n = (leaf.npacked + PageGetMaxOffsetNumber(page) + 1 - CbPageFirstPlain(page)) / 2;
	for (; n > 0 && plan.hikey[0] == NULL; n /= 2)
	{
		plan.hikey[0] = cb_split_make_halves(kd, buf, &leaf, n, left, right);
	}
	if (plan.hikey[0] == NULL)
		return false;
	cb_tree_check_still_locked(kd->rel, buf);

	bufs[1] = cb_rel_alloc_page(kd->rel);
	CbPageGetOpaque(left)->next = BufferGetBlockNumber(bufs[1]);
	CbPageGetOpaque(left)->flags |= CBP_INCOMPLETE_SPLIT;
	CbPageGetOpaque(right)->flags &= ~CBP_ROOT;
	CbPageGetOpaque(left)->cycleid = CbPageGetOpaque(right)->cycleid =
		_bt_vacuum_cycleid(kd->rel);
	cb_split_carry_out(kd, &plan, bufs, images, NULL, 0);
	return true;
}

/*
 * Redo of XLOG_CB_SPLIT.  The new pages come first: the page that was split is
 * what leads readers to them.
 */
void
cb_redo_split(XLogReaderState *record)
{
	xl_cb_split *xlrec = (xl_cb_split *) XLogRecGetData(record);

	for (int i = xlrec->nnew; i >= 0; i--)
		UnlockReleaseBuffer(cb_redo_image(record, i));
	cb_redo_clear_incomplete(record, 1 + xlrec->nnew, xlrec->nchildren);
}
