/*-------------------------------------------------------------------------
 *
 * cb_share.c
 *	  A full leaf gives entries to its right neighbour, in place of a split.
 *
 * If the neighbour is full as well, the two are spread over three leaves: so
 * leaves that fill up alike are two thirds full afterwards, and not half.
 *
 * Where leaves are packed because they are cold (cb_cool.c) the right one gets
 * as many as it can take.
 *
 * One record changes both leaves, in full, and the separator between them in
 * their parent, and makes the third, whose downlink comes later, as after a
 * split.  Entries move to the right only, so that whoever is on the way finds
 * them: who comes to a leaf that has lost them moves right by its new high
 * key; who was in the left leaf before, and goes on in the right one by its
 * block, looks for what lies beyond the left one's old high key only.  The
 * right leaf's range grows to the left, into what nobody looks for there
 * before the record.  All get VACUUM's cycle id, as after a split: its pass
 * may have come to the right one, and not to the left one (A11).
 *
 * Locks: left leaf, right leaf, new leaf, parent, as for a split.
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

/* room that each leaf keeps, or that one has that is worth filling up */
#define CB_SHARE_RESERVE	(CB_PAGE_ROOM / 16)

#define CB_SHARE_MAX_PARTS	3

#define CB_SHARE_HIKEY_ROOM(page) \
	(CbPageIsRightmost(page) ? 0 : CbItemSpace(CbPageGetHighKey(page)))

/* times that is tried how many entries fill a leaf, and plain ones worth it */
#define CB_SHARE_FILL_TRIES	8
#define CB_SHARE_FILL_PLAIN	16

typedef struct CbShare
{
	const CbKeyDesc *kd;
	CbArena    *arena;
	Buffer		bufs[CB_SHARE_MAX_PARTS];	/* left, right, new */
	Buffer		parent;
	OffsetNumber off;			/* of the right leaf's downlink in the parent */
	IndexTuple *items;			/* of both leaves, in order */
	int			nleft;			/* of the left leaf */
	int			n;
	Size		reserve;		/* room that each part keeps */
	bool		packed;
	int			nparts;
	int			first[CB_SHARE_MAX_PARTS + 1];	/* item at which part i begins */
	IndexTuple	hikey[CB_SHARE_MAX_PARTS];	/* NULL: rightmost */
	IndexTuple	downlink;		/* to the right leaf */
	PGAlignedBlock *images;		/* of the parts */
} CbShare;

/* ---------- finding the neighbour and its downlink ---------- */

/*
 * Locks the right neighbour exclusively; false, with no lock: it is in change.
 * The left one is locked already.
 */
static bool
cb_share_lock_right(CbShare *share)
{
	Relation	rel = share->kd->rel;
	Page		page;

	share->bufs[1] = ReadBuffer(rel, CbPageGetOpaque(BufferGetPage(share->bufs[0]))->next);
	LockBuffer(share->bufs[1], BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(share->bufs[1]);
	cb_page_check(rel, BufferGetBlockNumber(share->bufs[1]), page);
	if (CbPageIsLeaf(page) && !CbPageIsGone(page) &&
		!CbPageHasIncompleteSplit(page))
		return true;
	UnlockReleaseBuffer(share->bufs[1]);
	return false;
}

/*
 * Locks the page with the right neighbour's downlink, exclusively; false, with
 * no lock on it: the separator stands further up, as it is its parent's first
 * child.  Both leaves are locked.  Comparison functions run.  The descent may
 * finish splits of other pages.
 */
static bool
cb_share_lock_parent(CbShare *share)
{
	CbCut		cut = {.kind = CB_CUT_TUPLE};
	Page		page;

	cut.tuple = CopyIndexTuple(CbPageGetHighKey(BufferGetPage(share->bufs[0])));
	share->parent = cb_tree_descend_for_write(share->kd, &cut, 1, NULL);
	page = BufferGetPage(share->parent);
	share->off = cb_tree_search_page(share->kd, &cut, page,
									 ForwardScanDirection);
	if (share->off > CbPageFirstItem(page) &&
		BTreeTupleGetDownLink(CbPageGetTuple(page, share->off)) ==
		BufferGetBlockNumber(share->bufs[1]))
		return true;
	UnlockReleaseBuffer(share->parent);
	return false;
}

/* ---------- planning ---------- */

/*
 * All entries of a leaf, in order, of a copy in the arena's memory; how many.
 * Comparison functions run, if it is packed.
 */
static int
cb_share_read(CbShare *share, Buffer buf, IndexTuple **items)
{
	Page		copy = cb_arena_alloc(share->arena, BLCKSZ);
	CbLeafBatch none = {0};
	CbRepack	unused;

	memcpy(copy, BufferGetPage(buf), BLCKSZ);
	return cb_repack_merge(share->kd, BufferGetBlockNumber(buf), copy, &none,
						   share->arena, &unused, items);
}

/* Adds the right leaf's entries to the left one's. */
static void
cb_share_collect(CbShare *share, IndexTuple *left)
{
	IndexTuple *right;
	int			n = cb_share_read(share, share->bufs[1], &right);

	share->n = share->nleft + n;
	share->items = cb_arena_alloc(share->arena, sizeof(IndexTuple) * share->n);
	memcpy(share->items, left, sizeof(IndexTuple) * share->nleft);
	memcpy(share->items + share->nleft, right, sizeof(IndexTuple) * n);
}

/* The entries of both leaves, read from copies; the leaves are locked. */
static void
cb_share_collect_both(CbShare *share)
{
	IndexTuple *left;

	share->nleft = cb_share_read(share, share->bufs[0], &left);
	cb_share_collect(share, left);
}

/* Makes part i's image; false: it does not fit, with some room left. */
static bool
cb_share_build(const CbShare *share, int i)
{
	Page		image = (Page) share->images[i].data;
	IndexTuple *items = share->items + share->first[i];
	int			n = share->first[i + 1] - share->first[i];
	Size		room = CB_PAGE_ROOM - share->reserve -
		(share->hikey[i] ? CbItemSpace(share->hikey[i]) : 0);

	if (n == 0 || (share->packed ? !cb_leaf_can_pack(items, n) :
				   cb_tree_plain_space(items, n) > room))
		return false;
	return cb_tree_build_page(image, CBP_LEAF, 0, share->hikey[i],
							  share->packed, items, n) &&
		PageGetExactFreeSpace(image) >= share->reserve;
}

/*
 * Cuts the items into parts of as many bytes.  False: the left leaf would get
 * more than it has.
 */
static bool
cb_share_cut(CbShare *share, Size plain, int nparts)
{
	share->nparts = nparts;
	return cb_tree_cut_bytes(share->items, share->n,
							 (plain + nparts - 1) / nparts, nparts,
							 share->first) == nparts &&
		share->first[1] < share->nleft;
}

/* Makes the high keys and the downlink, palloc'd.  Comparison functions run. */
static void
cb_share_make_hikeys(CbShare *share)
{
	Page		right = BufferGetPage(share->bufs[1]);

	for (int i = 0; i < share->nparts - 1; i++)
	{
		IndexTuple *next = &share->items[share->first[i + 1]];

		share->hikey[i] = cb_key_make_separator(share->kd, next[-1], next[0]);
	}
	share->hikey[share->nparts - 1] = CbPageIsRightmost(right) ? NULL :
		CopyIndexTuple(CbPageGetHighKey(right));
	share->downlink = cb_key_make_downlink(share->hikey[0],
										   BufferGetBlockNumber(share->bufs[1]));
}

/*
 * Shall the leaves be packed?  Yes if one of them is, so if that has paid, and
 * else if it saves a fifth.
 */
static bool
cb_share_packs(const CbShare *share, Page left, Page right)
{
	Size		plain;

	if (!cb_packs_leaves(share->kd->rel))
		return false;
	return CbPageIsPacked(left) || CbPageIsPacked(right) ||
		cb_tree_measure(share->items, share->n, &plain) * 5 <= plain * 4;
}

/*
 * Makes two parts if they have the room, else three; false: no way.  Both
 * leaves are locked.  Comparison functions run.
 */
static bool
cb_share_plan(CbShare *share)
{
	Size		plain = cb_tree_plain_space(share->items, share->n);

	share->packed = cb_share_packs(share, BufferGetPage(share->bufs[0]),
								   BufferGetPage(share->bufs[1]));
	for (int nparts = 2; nparts <= CB_SHARE_MAX_PARTS; nparts++)
	{
		bool		fits = cb_share_cut(share, plain, nparts);

		if (!fits)
			continue;
		cb_share_make_hikeys(share);
		for (int i = 0; i < nparts && fits; i++)
			fits = cb_share_build(share, i);
		if (fits)
			return true;
	}
	return false;
}

/*
 * Has the parent room for the separator in place of the one it has?  The parent
 * is locked, and its items are checked, so that replacing it cannot fail.
 */
static bool
cb_share_fits_parent(const CbShare *share)
{
	Page		page = BufferGetPage(share->parent);
	Size		old = MAXALIGN(ItemIdGetLength(PageGetItemId(page, share->off)));

	cb_page_check_items(share->kd->rel, BufferGetBlockNumber(share->parent), page);
	return MAXALIGN(IndexTupleSize(share->downlink)) <=
		old + PageGetExactFreeSpace(page);
}

/* ---------- the action ---------- */

/* Gives the image of part i what it has besides its items. */
static void
cb_share_link(const CbShare *share, int i, BTCycleId cycleid)
{
	CbPageOpaque opaque = CbPageGetOpaque((Page) share->images[i].data);
	Page		old = BufferGetPage(share->bufs[Min(i, 1)]);

	opaque->cycleid = cycleid;
	opaque->next = CbPageGetOpaque(old)->next;
	if (i == 1 && share->nparts > 2)
	{
		opaque->next = BufferGetBlockNumber(share->bufs[2]);
		opaque->flags |= CBP_INCOMPLETE_SPLIT;
	}
}

/*
 * Logs the action within its critical section: the leaves in full (U12), as for
 * a split.
 */
static void
cb_share_log(const CbShare *share)
{
	xl_cb_share xlrec = {.nleaves = share->nparts,.off = share->off};
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbShare);
	XLogRegisterBuffer(0, share->parent, REGBUF_STANDARD);
	XLogRegisterBufData(0, (char *) share->downlink,
						IndexTupleSize(share->downlink));
	for (int i = 0; i < share->nparts; i++)
		XLogRegisterBuffer(1 + i, share->bufs[i],
						   REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_SHARE);
	PageSetLSN(BufferGetPage(share->parent), lsn);
	for (int i = 0; i < share->nparts; i++)
		PageSetLSN(BufferGetPage(share->bufs[i]), lsn);
}

/* Puts the new separator in the place of the old one; the page has the room. */
static void
cb_share_set_downlink(Page parent, OffsetNumber off, IndexTuple downlink)
{
	(void) PageIndexTupleOverwrite(parent, off, (Item) downlink,
								   IndexTupleSize(downlink));
}

/*
 * Puts the images in place, as one atomic action.  All pages are exclusively
 * locked, before and after; nobody else has seen the new one.
 */
static void
cb_share_apply(const CbShare *share)
{
	bool		wal = RelationNeedsWAL(share->kd->rel);
	BTCycleId	cycleid = _bt_vacuum_cycleid(share->kd->rel);

	for (int i = 0; i < share->nparts; i++)
		cb_share_link(share, i, cycleid);
	if (wal)
		XLogEnsureRecordSpace(1 + share->nparts, 0);

	CB_TEST_POINT("share-before");
	START_CRIT_SECTION();
	for (int i = 0; i < share->nparts; i++)
	{
		memcpy(BufferGetPage(share->bufs[i]), share->images[i].data, BLCKSZ);
		cb_rel_mark_dirty(share->bufs[i]);
	}
	cb_share_set_downlink(BufferGetPage(share->parent), share->off,
						  share->downlink);
	cb_rel_mark_dirty(share->parent);
	if (wal)
		cb_share_log(share);
	END_CRIT_SECTION();
	CB_TEST_POINT("share-after");
}

/*
 * Plans with the pages locked, and does it if there is a way.  All locks are as
 * before on return, with that of the new leaf if there is one.
 */
static bool
cb_share_try(CbShare *share, IndexTuple *items)
{
	Relation	rel = share->kd->rel;

	cb_share_collect(share, items);
	if (!cb_share_plan(share) || !cb_share_fits_parent(share))
		return false;
	cb_tree_check_still_locked(rel, share->bufs[0]);
	cb_tree_check_still_locked(rel, share->bufs[1]);
	cb_tree_check_still_locked(rel, share->parent);
	if (share->nparts == 3)
		share->bufs[2] = cb_rel_alloc_page(rel);
	cb_share_apply(share);
	for (int i = 1; i < share->nparts; i++)
		cb_heat_inherit(rel, BufferGetBlockNumber(share->bufs[i]),
						BufferGetBlockNumber(share->bufs[i - 1]));
	return true;
}

/*
 * Spreads the entries of a leaf that is too full, which are items, over the
 * leaf, its right neighbour, and a new one if need be, as one atomic action,
 * and inserts the new one's downlink.  So two leaves become three only if both
 * are full, as in a B*-tree (Knuth, The Art of Computer Programming, volume 3,
 * section 6.2.4).
 *
 * buf is exclusively locked, its split complete; it is released if it was
 * done.  False: there is no such neighbour, it is another parent's, or there is
 * no room; nothing has changed, and buf is still locked.  items do not point
 * into it.  The caller holds no other page lock.
 *
 * Comparison functions run.  Errors, no disk space among them, come before
 * anything is changed; but one while the downlink is inserted leaves the new
 * leaf to be found by its left neighbour's link, as after a split.  Takes
 * memory from the arena and from the current context, which it leaves there.
 */
bool
cb_share_leaf(const CbKeyDesc *kd, Buffer buf, CbArena *arena,
			  IndexTuple *items, int n)
{
	PGAlignedBlock images[CB_SHARE_MAX_PARTS];
	CbShare		share = {.kd = kd,.arena = arena,.nleft = n,
	.reserve = CB_SHARE_RESERVE,.images = images};
	bool		shared;

	share.bufs[0] = buf;
	if (CbPageIsRightmost(BufferGetPage(buf)) || !cb_share_lock_right(&share))
		return false;
	if (!cb_share_lock_parent(&share))
	{
		UnlockReleaseBuffer(share.bufs[1]);
		return false;
	}
	shared = cb_share_try(&share, items);
	UnlockReleaseBuffer(share.parent);
	if (shared)
		UnlockReleaseBuffer(buf);
	if (shared && share.nparts == 3)
	{
		UnlockReleaseBuffer(share.bufs[2]);
		cb_tree_finish_split(kd, share.bufs[1]);
	}
	else
		UnlockReleaseBuffer(share.bufs[1]);
	return shared;
}

/* ---------- filling up ---------- */

/*
 * Has the leaf so much room, or so much to pack, that it may take entries of
 * its left neighbour?  Its page is locked, or the answer a guess.
 */
bool
cb_share_is_worth_filling(Page page)
{
	return !CbPageIsPacked(page) ||
		PageGetExactFreeSpace(page) >= CB_SHARE_RESERVE ||
		PageGetMaxOffsetNumber(page) - CbPageFirstPlain(page) >= CB_SHARE_FILL_PLAIN;
}

/* Makes the parts: the right one gets all items but the first few. */
static bool
cb_share_build_fill(CbShare *share, int nkept)
{
	IndexTuple *items = share->items;
	Page		right = BufferGetPage(share->bufs[1]);
	BlockNumber blkno = BufferGetBlockNumber(share->bufs[1]);

	share->nparts = 2;
	share->first[0] = 0;
	share->first[1] = nkept;
	share->first[2] = share->n;
	share->hikey[0] = cb_key_make_separator(share->kd, items[nkept - 1],
											items[nkept]);
	share->hikey[1] = CbPageIsRightmost(right) ? NULL : CbPageGetHighKey(right);
	share->downlink = cb_key_make_downlink(share->hikey[0], blkno);
	return cb_share_build(share, 1) && cb_share_build(share, 0);
}

/*
 * Plans to keep as few entries as possible in the left leaf; false: there is
 * nothing to gain.
 */
static bool
cb_share_plan_fill(CbShare *share)
{
	int			most = share->nleft;	/* so many are kept without it */
	int			least = 1;
	int			nkept = least;
	int			built = -1;

	share->packed = cb_share_packs(share, BufferGetPage(share->bufs[0]),
								   BufferGetPage(share->bufs[1]));
	for (int try = 0; try < CB_SHARE_FILL_TRIES && nkept < most; try++)
	{
		bool		fits = cb_share_build_fill(share, nkept);

		built = fits ? nkept : -1;
		if (fits)
			most = nkept;
		else
			least = nkept + 1;
		nkept = least + (most - least) / 2;
	}
	if (most == share->nleft)
		return false;
	return built == most || cb_share_build_fill(share, most);
}

/* Plans with the pages locked, and does it if there is something to gain. */
static bool
cb_share_try_fill(CbShare *share)
{
	Relation	rel = share->kd->rel;

	if (!cb_share_is_worth_filling(BufferGetPage(share->bufs[1])))
		return false;
	cb_share_collect_both(share);
	if (!cb_share_plan_fill(share) || !cb_share_fits_parent(share))
		return false;
	cb_tree_check_still_locked(rel, share->bufs[0]);
	cb_tree_check_still_locked(rel, share->bufs[1]);
	cb_tree_check_still_locked(rel, share->parent);
	cb_share_apply(share);
	return true;
}

/*
 * Moves as many of a leaf's last entries to its right neighbour as that can
 * take, but for one, as one atomic action.  False: it gave nothing; nothing has
 * changed.
 *
 * buf is exclusively locked, its split complete, and it is not the rightmost;
 * it is released.  The caller holds no other page lock.  Comparison functions
 * run; an error comes before anything is changed.  Takes memory from the arena
 * and from the current context, which it leaves there.
 */
bool
cb_share_fill(const CbKeyDesc *kd, Buffer buf, CbArena *arena)
{
	PGAlignedBlock images[CB_SHARE_MAX_PARTS];
	CbShare		share = {.kd = kd,.arena = arena,.images = images};
	bool		filled = false;

	share.bufs[0] = buf;
	if (cb_share_lock_right(&share))
	{
		if (cb_share_lock_parent(&share))
		{
			filled = cb_share_try_fill(&share);
			UnlockReleaseBuffer(share.parent);
		}
		UnlockReleaseBuffer(share.bufs[1]);
	}
	UnlockReleaseBuffer(buf);
	return filled;
}

/*
 * Makes an image of the right one of two neighbours that has the left one's
 * entries as well, with right link and cycle id; its flags say that it is empty
 * if it is.  False: they do not fit.  Neither page is changed.
 *
 * Both are exclusively locked, before and after.  Comparison functions run; so
 * the caller sees whether all is still locked.  Takes memory from the current
 * context and leaves it there.
 */
bool
cb_share_merge(const CbKeyDesc *kd, Buffer left_buf, Buffer right_buf,
			   Page image)
{
	CbArena		arena;
	CbShare		share = {.kd = kd,.arena = &arena,.bufs = {left_buf, right_buf}};
	Page		right = BufferGetPage(right_buf);
	CbPageOpaque opaque;

	cb_arena_init(&arena, CurrentMemoryContext);
	cb_share_collect_both(&share);
	share.packed = share.n > 0 &&
		cb_share_packs(&share, BufferGetPage(left_buf), right);
	if (share.packed ? !cb_leaf_can_pack(share.items, share.n) :
		cb_tree_plain_space(share.items, share.n) + CB_SHARE_HIKEY_ROOM(right) >
		CB_PAGE_ROOM)
		return false;
	if (!cb_tree_build_page(image, CBP_LEAF, 0,
							CbPageIsRightmost(right) ? NULL : CbPageGetHighKey(right),
							share.packed, share.items, share.n))
		return false;
	opaque = CbPageGetOpaque(image);
	opaque->next = CbPageGetOpaque(right)->next;
	opaque->cycleid = _bt_vacuum_cycleid(kd->rel);
	if (share.n == 0)
		opaque->flags |= CBP_EMPTY;
	return true;
}

/*
 * Redo of XLOG_CB_SHARE.  From right to left: a leaf has its entries before its
 * left neighbour loses them.  The leaves stay locked until all have changed, as
 * on the primary: who reads one that has got entries sees that its left
 * neighbour is another one than before (cb_verify.c); a reader has one page
 * locked at most.
 */
void
cb_redo_share(XLogReaderState *record)
{
	xl_cb_share *xlrec = (xl_cb_share *) XLogRecGetData(record);
	Buffer		bufs[CB_SHARE_MAX_PARTS + 1];
	Buffer		buf;
	Page		page;

	for (int i = xlrec->nleaves; i > 0; i--)
	{
		bufs[i] = cb_redo_image(record, i);
		CB_TEST_POINT("redo-share");
	}
	for (int i = xlrec->nleaves; i > 0; i--)
		UnlockReleaseBuffer(bufs[i]);
	page = cb_redo_begin(record, 0, &buf);
	if (page != NULL)
	{
		Size		len;
		char	   *data = XLogRecGetBlockData(record, 0, &len);
		PGAlignedBlock downlink;

		memcpy(downlink.data, data, len);
		cb_share_set_downlink(page, xlrec->off, (IndexTuple) downlink.data);
	}
	cb_redo_end(record, page, buf);
}
