/*-------------------------------------------------------------------------
 *
 * cb_redistribute.c
 *	  A full leaf gives entries to its right neighbour, in place of a split.
 *
 * If the neighbour is full as well, the two are spread over three leaves: so
 * leaves that fill up alike are two thirds full afterwards, and not half.
 *
 * Where leaves are packed because they are cold (cb_compact.c) the right one
 * gets as many as it can take.
 *
 * One record changes both leaves, in full, and the separator between them in
 * their parent, and makes the third, whose downlink comes later, as after a
 * split.  Entries move to the right only, so that whoever is on the way finds
 * them: who comes to a leaf that has lost them moves right by its new high key;
 * who was in the left leaf before, and goes on in the right one by its block,
 * looks for what lies beyond the left one's old high key only.  The right
 * leaf's range grows to the left, into what nobody looks for there before the
 * record.  If a forward scan's next leaf has given away what lies beyond the
 * scan's bound, it descends anew.  All get VACUUM's cycle id, as after a split:
 * its pass may have come to the right one, and not to the left one
 * (A11_REDISTRIBUTE).  A pin on the left one protects what has moved, too (I8):
 * it moved out of a page that VACUUM has yet to come to, and waits for, or out
 * of one that it has cleaned.
 *
 * A backward scan knows the leaf's lower bound from its way down.  What has
 * come into the leaf from below that bound is left out, and found by the next
 * descent, which starts at the bound.  So a window that ends at a bucket's
 * bound, which was a leaf's once, leaves out the leaf's entries beyond
 * (A11_BOUNDS breaks both, A11_ENDBOUND the window at an end of the index).
 *
 * Redo goes from right to left, so a standby's reader between two pages sees an
 * entry twice at most, and beyond its bound.  It keeps the leaves locked until
 * all have changed, as the primary does: verification that meets entries which
 * a leaf got sees by the LSN of the leaf on its left that they came from there
 * (I11_REDISTRIBUTE).
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
#define CB_REDISTRIBUTE_RESERVE	(CB_PAGE_ROOM / 16)

#define CB_REDISTRIBUTE_MAX_PARTS	3

#define CB_REDISTRIBUTE_HIKEY_ROOM(page) \
	(CbPageIsRightmost(page) ? 0 : CbItemSpace(CbPageGetHighKey(page)))

/* times that is tried how many entries fill a leaf, and plain ones worth it */
#define CB_REDISTRIBUTE_FILL_TRIES	8
#define CB_REDISTRIBUTE_FILL_PLAIN	16

typedef struct CbRedistribute
{
	const CbKeyDesc *kd;
	CbArena    *arena;
	Buffer		bufs[CB_REDISTRIBUTE_MAX_PARTS];	/* left, right, new */
	Buffer		parent;
	OffsetNumber off;			/* of the right leaf's downlink in the parent */
	IndexTuple *items;			/* of both leaves, in order */
	int			nleft;			/* of the left leaf */
	int			n;
	Size		reserve;		/* room that each part keeps */
	bool		packed;
	int			nparts;
	int			first[CB_REDISTRIBUTE_MAX_PARTS + 1];	/* item at which part i
														 * begins */
	IndexTuple	hikey[CB_REDISTRIBUTE_MAX_PARTS];	/* NULL: rightmost */
	IndexTuple	downlink;		/* to the right leaf */
	PGAlignedBlock *images;		/* of the parts */
} CbRedistribute;

/* ---------- finding the neighbour and its downlink ---------- */

/*
 * Locks the right neighbour exclusively; false, with no lock: it is in change.
 * The left one is locked already.
 */
static bool
cb_redistribute_lock_right(CbRedistribute *redist)
{
	Relation	rel = redist->kd->rel;
	Page		page;

	redist->bufs[1] = cb_sound_read(rel, CbPageGetOpaque(BufferGetPage(redist->bufs[0]))->next,
									NULL);
	cb_sound_lock(rel, redist->bufs[1], BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(redist->bufs[1]);
	cb_page_check(rel, BufferGetBlockNumber(redist->bufs[1]), page);
	if (CbPageIsLeaf(page) && !CbPageIsGone(page) &&
		!CbPageHasIncompleteSplit(page))
		return true;
	UnlockReleaseBuffer(redist->bufs[1]);
	return false;
}

/*
 * Locks the page with the right neighbour's downlink, exclusively; false, with
 * no lock on it: the separator stands further up, as it is its parent's first
 * child.  Both leaves are locked.  Comparison functions run.  The descent may
 * finish splits of other pages.
 */
static bool
cb_redistribute_lock_parent(CbRedistribute *redist)
{
	CbBound		bound = {.kind = CB_BOUND_TUPLE};
	Page		page;

	bound.tuple = CopyIndexTuple(CbPageGetHighKey(BufferGetPage(redist->bufs[0])));
	redist->parent = cb_tree_descend_for_write(redist->kd, &bound, 1, NULL);
	page = BufferGetPage(redist->parent);
	redist->off = cb_tree_search_page(redist->kd, &bound, page,
									  ForwardScanDirection);
	if (redist->off > CbPageFirstItem(page) &&
		BTreeTupleGetDownLink(CbPageGetTuple(page, redist->off)) ==
		BufferGetBlockNumber(redist->bufs[1]))
		return true;
	UnlockReleaseBuffer(redist->parent);
	return false;
}

/* ---------- planning ---------- */

/*
 * All entries of a leaf, in order, of a copy in the arena's memory; how many.
 * Comparison functions run, if it is packed.
 */
static int
cb_redistribute_read(CbRedistribute *redist, Buffer buf, IndexTuple **items)
{
	Page		copy = cb_arena_alloc(redist->arena, BLCKSZ);
	CbLeafBatch none = {0};
	CbRepack	unused;

	memcpy(copy, BufferGetPage(buf), BLCKSZ);
	return cb_repack_merge(redist->kd, BufferGetBlockNumber(buf), copy, &none,
						   redist->arena, &unused, items);
}

/* Adds the right leaf's entries to the left one's. */
static void
cb_redistribute_collect(CbRedistribute *redist, IndexTuple *left)
{
	IndexTuple *right;
	int			n = cb_redistribute_read(redist, redist->bufs[1], &right);

	redist->n = redist->nleft + n;
	redist->items = cb_arena_alloc(redist->arena, sizeof(IndexTuple) * redist->n);
	memcpy(redist->items, left, sizeof(IndexTuple) * redist->nleft);
	memcpy(redist->items + redist->nleft, right, sizeof(IndexTuple) * n);
}

/* The entries of both leaves, read from copies; the leaves are locked. */
static void
cb_redistribute_collect_both(CbRedistribute *redist)
{
	IndexTuple *left;

	redist->nleft = cb_redistribute_read(redist, redist->bufs[0], &left);
	cb_redistribute_collect(redist, left);
}

/* Makes part i's image; false: it does not fit, with some room left. */
static bool
cb_redistribute_build(const CbRedistribute *redist, int i)
{
	Page		image = (Page) redist->images[i].data;
	IndexTuple *items = redist->items + redist->first[i];
	int			n = redist->first[i + 1] - redist->first[i];
	Size		room = CB_PAGE_ROOM - redist->reserve -
		(redist->hikey[i] ? CbItemSpace(redist->hikey[i]) : 0);

	if (n == 0 || (redist->packed ? !cb_leaf_can_pack(items, n) :
				   cb_tree_plain_space(items, n) > room))
		return false;
	return cb_tree_build_page(image, CBP_LEAF, 0, redist->hikey[i],
							  redist->packed, items, n) &&
		PageGetExactFreeSpace(image) >= redist->reserve;
}

/*
 * Cuts the items into parts of as many bytes.  False: the left leaf would get
 * more than it has.
 */
static bool
cb_redistribute_divide(CbRedistribute *redist, Size plain, int nparts)
{
	redist->nparts = nparts;
	return cb_tree_divide_bytes(redist->items, redist->n,
								(plain + nparts - 1) / nparts, nparts,
								redist->first) == nparts &&
		redist->first[1] < redist->nleft;
}

/* Makes the high keys and the downlink, palloc'd.  Comparison functions run. */
static void
cb_redistribute_make_hikeys(CbRedistribute *redist)
{
	Page		right = BufferGetPage(redist->bufs[1]);

	for (int i = 0; i < redist->nparts - 1; i++)
	{
		IndexTuple *next = &redist->items[redist->first[i + 1]];

		redist->hikey[i] = cb_key_make_separator(redist->kd, next[-1], next[0]);
	}
	redist->hikey[redist->nparts - 1] = CbPageIsRightmost(right) ? NULL :
		CopyIndexTuple(CbPageGetHighKey(right));
	redist->downlink = cb_key_make_downlink(redist->hikey[0],
											BufferGetBlockNumber(redist->bufs[1]));
}

/*
 * Shall the leaves be packed?  Yes if one of them is, so if that has paid, and
 * else if it saves a fifth.
 */
static bool
cb_redistribute_packs(const CbRedistribute *redist, Page left, Page right)
{
	Size		plain;

	if (!cb_packs_leaves(redist->kd->rel))
		return false;
	return CbPageIsPacked(left) || CbPageIsPacked(right) ||
		cb_tree_measure(redist->items, redist->n, &plain) * 5 <= plain * 4;
}

/*
 * Makes two parts if they have the room, else three; false: no way.  Both
 * leaves are locked.  Comparison functions run.
 */
static bool
cb_redistribute_plan(CbRedistribute *redist)
{
	Size		plain = cb_tree_plain_space(redist->items, redist->n);

	redist->packed = cb_redistribute_packs(redist, BufferGetPage(redist->bufs[0]),
										   BufferGetPage(redist->bufs[1]));
	for (int nparts = 2; nparts <= CB_REDISTRIBUTE_MAX_PARTS; nparts++)
	{
		bool		fits = cb_redistribute_divide(redist, plain, nparts);

		if (!fits)
			continue;
		cb_redistribute_make_hikeys(redist);
		for (int i = 0; i < nparts && fits; i++)
			fits = cb_redistribute_build(redist, i);
		if (fits)
			return true;
	}
	return false;
}

/*
 * Has the parent room for the separator in place of the one it has?  The
 * parent is locked, and its items are checked, so that replacing it cannot
 * fail.
 */
static bool
cb_redistribute_fits_parent(const CbRedistribute *redist)
{
	Page		page = BufferGetPage(redist->parent);
	Size		old = MAXALIGN(ItemIdGetLength(PageGetItemId(page, redist->off)));

	cb_page_check_items(redist->kd->rel, BufferGetBlockNumber(redist->parent), page);
	return MAXALIGN(IndexTupleSize(redist->downlink)) <=
		old + PageGetExactFreeSpace(page);
}

/* ---------- the action ---------- */

/* Gives the image of part i what it has besides its items. */
static void
cb_redistribute_link(const CbRedistribute *redist, int i, BTCycleId cycleid)
{
	CbPageOpaque opaque = CbPageGetOpaque((Page) redist->images[i].data);
	Page		old = BufferGetPage(redist->bufs[Min(i, 1)]);

	opaque->cycleid = cycleid;
	opaque->next = CbPageGetOpaque(old)->next;
	if (i == 1 && redist->nparts > 2)
	{
		opaque->next = BufferGetBlockNumber(redist->bufs[2]);
		opaque->flags |= CBP_INCOMPLETE_SPLIT;
	}
}

/*
 * Logs the action within its critical section: the leaves in full (U12), as
 * for a split.
 */
static void
cb_redistribute_log(const CbRedistribute *redist)
{
	xl_cb_redistribute xlrec = {.nleaves = redist->nparts,.off = redist->off};
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbRedistribute);
	XLogRegisterBuffer(0, redist->parent, REGBUF_STANDARD);
	XLogRegisterBufData(0, (char *) redist->downlink,
						IndexTupleSize(redist->downlink));
	for (int i = 0; i < redist->nparts; i++)
		XLogRegisterBuffer(1 + i, redist->bufs[i],
						   REGBUF_FORCE_IMAGE | REGBUF_STANDARD);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_REDISTRIBUTE);
	PageSetLSN(BufferGetPage(redist->parent), lsn);
	for (int i = 0; i < redist->nparts; i++)
		PageSetLSN(BufferGetPage(redist->bufs[i]), lsn);
}

/* Puts the new separator in the place of the old one; the page has the room. */
static bool
cb_redistribute_set_downlink(Page parent, OffsetNumber off, IndexTuple downlink)
{
	return PageIndexTupleOverwrite(parent, off, (Item) downlink,
								   IndexTupleSize(downlink));
}

/*
 * Puts the images in place, as one atomic action.  All pages are exclusively
 * locked, before and after; nobody else has seen the new one.
 */
static void
cb_redistribute_apply(const CbRedistribute *redist)
{
	bool		wal = RelationNeedsWAL(redist->kd->rel);
	BTCycleId	cycleid = _bt_vacuum_cycleid(redist->kd->rel);

	for (int i = 0; i < redist->nparts; i++)
		cb_redistribute_link(redist, i, cycleid);
	if (wal)
		XLogEnsureRecordSpace(1 + redist->nparts, 0);
	cb_predicate_transfer(redist->kd->rel, BufferGetBlockNumber(redist->bufs[0]),
						  BufferGetBlockNumber(redist->bufs[1]));

	CB_TEST_POINT("redistribute-before");
	START_CRIT_SECTION();
	for (int i = 0; i < redist->nparts; i++)
	{
		memcpy(BufferGetPage(redist->bufs[i]), redist->images[i].data, BLCKSZ);
		cb_rel_mark_dirty(redist->bufs[i]);
	}
	(void) cb_redistribute_set_downlink(BufferGetPage(redist->parent), redist->off,
										redist->downlink);
	cb_rel_mark_dirty(redist->parent);
	if (wal)
		cb_redistribute_log(redist);
	END_CRIT_SECTION();
	CB_TEST_POINT("redistribute-after");
}

/*
 * Plans with the pages locked, and does it if there is a way.  All locks are
 * as before on return, with that of the new leaf if there is one.
 */
static bool
cb_redistribute_try(CbRedistribute *redist, IndexTuple *items)
{
	Relation	rel = redist->kd->rel;

	cb_redistribute_collect(redist, items);
	if (!cb_redistribute_plan(redist) || !cb_redistribute_fits_parent(redist))
		return false;
	cb_tree_check_still_locked(rel, redist->bufs[0]);
	cb_tree_check_still_locked(rel, redist->bufs[1]);
	cb_tree_check_still_locked(rel, redist->parent);
	if (redist->nparts == 3)
		redist->bufs[2] = cb_rel_alloc_page(rel);
	cb_redistribute_apply(redist);
	for (int i = 1; i < redist->nparts; i++)
		cb_heat_inherit(rel, BufferGetBlockNumber(redist->bufs[i]),
						BufferGetBlockNumber(redist->bufs[i - 1]));
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
 * done.  False: there is no such neighbour, it is another parent's, or there
 * is no room; nothing has changed, and buf is still locked.  items do not
 * point into it.  The caller holds no other page lock.
 *
 * Comparison functions run.  Errors, no disk space among them, come before
 * anything is changed; but one while the downlink is inserted leaves the new
 * leaf to be found by its left neighbour's link, as after a split.  Takes
 * memory from the arena and from the current context, which it leaves there.
 */
bool
cb_redistribute_leaf(const CbKeyDesc *kd, Buffer buf, CbArena *arena,
					 IndexTuple *items, int n)
{
	PGAlignedBlock images[CB_REDISTRIBUTE_MAX_PARTS];
	CbRedistribute redist = {.kd = kd,.arena = arena,.nleft = n,
	.reserve = CB_REDISTRIBUTE_RESERVE,.images = images};
	bool		shared;

	redist.bufs[0] = buf;
	if (CbPageIsRightmost(BufferGetPage(buf)) || !cb_redistribute_lock_right(&redist))
		return false;
	if (!cb_redistribute_lock_parent(&redist))
	{
		UnlockReleaseBuffer(redist.bufs[1]);
		return false;
	}
	shared = cb_redistribute_try(&redist, items);
	UnlockReleaseBuffer(redist.parent);
	if (shared)
		UnlockReleaseBuffer(buf);
	if (shared && redist.nparts == 3)
	{
		UnlockReleaseBuffer(redist.bufs[2]);
		cb_tree_finish_split(kd, redist.bufs[1]);
	}
	else
		UnlockReleaseBuffer(redist.bufs[1]);
	return shared;
}

/* ---------- filling up ---------- */

/*
 * Has the leaf so much room, or so much to pack, that it may take entries of
 * its left neighbour?  Its page is locked, or the answer a guess.
 */
bool
cb_redistribute_is_worth_filling(Page page)
{
	return !CbPageIsPacked(page) ||
		PageGetExactFreeSpace(page) >= CB_REDISTRIBUTE_RESERVE ||
		PageGetMaxOffsetNumber(page) - CbPageFirstPlain(page) >= CB_REDISTRIBUTE_FILL_PLAIN;
}

/* Makes the parts: the right one gets all items but the first few. */
static bool
cb_redistribute_build_fill(CbRedistribute *redist, int nkept)
{
	IndexTuple *items = redist->items;
	Page		right = BufferGetPage(redist->bufs[1]);
	BlockNumber blkno = BufferGetBlockNumber(redist->bufs[1]);

	redist->nparts = 2;
	redist->first[0] = 0;
	redist->first[1] = nkept;
	redist->first[2] = redist->n;
	redist->hikey[0] = cb_key_make_separator(redist->kd, items[nkept - 1],
											 items[nkept]);
	redist->hikey[1] = CbPageIsRightmost(right) ? NULL : CbPageGetHighKey(right);
	redist->downlink = cb_key_make_downlink(redist->hikey[0], blkno);
	return cb_redistribute_build(redist, 1) && cb_redistribute_build(redist, 0);
}

/*
 * Plans to keep as few entries as possible in the left leaf; false: there is
 * nothing to gain.
 */
static bool
cb_redistribute_plan_fill(CbRedistribute *redist)
{
	int			most = redist->nleft;	/* so many are kept without it */
	int			least = 1;
	int			nkept = least;
	int			built = -1;

	redist->packed = cb_redistribute_packs(redist, BufferGetPage(redist->bufs[0]),
										   BufferGetPage(redist->bufs[1]));
	for (int try = 0; try < CB_REDISTRIBUTE_FILL_TRIES && nkept < most; try++)
	{
		bool		fits = cb_redistribute_build_fill(redist, nkept);

		built = fits ? nkept : -1;
		if (fits)
			most = nkept;
		else
			least = nkept + 1;
		nkept = least + (most - least) / 2;
	}
	if (most == redist->nleft)
		return false;
	return built == most || cb_redistribute_build_fill(redist, most);
}

/* Plans with the pages locked, and does it if there is something to gain. */
static bool
cb_redistribute_try_fill(CbRedistribute *redist)
{
	Relation	rel = redist->kd->rel;

	if (!cb_redistribute_is_worth_filling(BufferGetPage(redist->bufs[1])))
		return false;
	cb_redistribute_collect_both(redist);
	if (!cb_redistribute_plan_fill(redist) || !cb_redistribute_fits_parent(redist))
		return false;
	cb_tree_check_still_locked(rel, redist->bufs[0]);
	cb_tree_check_still_locked(rel, redist->bufs[1]);
	cb_tree_check_still_locked(rel, redist->parent);
	cb_redistribute_apply(redist);
	return true;
}

/*
 * Moves as many of a leaf's last entries to its right neighbour as that can
 * take, but for one, as one atomic action.  False: it gave nothing; nothing
 * has changed.
 *
 * buf is exclusively locked, its split complete, and it is not the rightmost;
 * it is released.  The caller holds no other page lock.  Comparison functions
 * run; an error comes before anything is changed.  Takes memory from the arena
 * and from the current context, which it leaves there.
 */
bool
cb_redistribute_fill(const CbKeyDesc *kd, Buffer buf, CbArena *arena)
{
	PGAlignedBlock images[CB_REDISTRIBUTE_MAX_PARTS];
	CbRedistribute redist = {.kd = kd,.arena = arena,.images = images};
	bool		filled = false;

	redist.bufs[0] = buf;
	if (cb_redistribute_lock_right(&redist))
	{
		if (cb_redistribute_lock_parent(&redist))
		{
			filled = cb_redistribute_try_fill(&redist);
			UnlockReleaseBuffer(redist.parent);
		}
		UnlockReleaseBuffer(redist.bufs[1]);
	}
	UnlockReleaseBuffer(buf);
	return filled;
}

/*
 * Makes an image of the right one of two neighbours that has the left one's
 * entries as well, with right link and cycle id; its flags say that it is
 * empty if it is.  False: they do not fit.  Neither page is changed.
 *
 * Both are exclusively locked, before and after.  Comparison functions run; so
 * the caller sees whether all is still locked.  Takes memory from the current
 * context and leaves it there.
 */
bool
cb_redistribute_merge(const CbKeyDesc *kd, Buffer left_buf, Buffer right_buf,
					  Page image)
{
	CbArena		arena;
	CbRedistribute redist = {.kd = kd,.arena = &arena,.bufs = {left_buf, right_buf}};
	Page		right = BufferGetPage(right_buf);
	CbPageOpaque opaque;

	cb_arena_init(&arena, CurrentMemoryContext);
	cb_redistribute_collect_both(&redist);
	redist.packed = redist.n > 0 &&
		cb_redistribute_packs(&redist, BufferGetPage(left_buf), right);
	if (redist.packed ? !cb_leaf_can_pack(redist.items, redist.n) :
		cb_tree_plain_space(redist.items, redist.n) + CB_REDISTRIBUTE_HIKEY_ROOM(right) >
		CB_PAGE_ROOM)
		return false;
	if (!cb_tree_build_page(image, CBP_LEAF, 0,
							CbPageIsRightmost(right) ? NULL : CbPageGetHighKey(right),
							redist.packed, redist.items, redist.n))
		return false;
	opaque = CbPageGetOpaque(image);
	opaque->next = CbPageGetOpaque(right)->next;
	opaque->cycleid = _bt_vacuum_cycleid(kd->rel);
	if (redist.n == 0)
		opaque->flags |= CBP_EMPTY;
	return true;
}

/*
 * Redo of XLOG_CB_REDISTRIBUTE.  From right to left: a leaf has its entries
 * before its left neighbour loses them.  The leaves stay locked until all have
 * changed, as on the primary: who reads one that has got entries sees that its
 * left neighbour is another one than before (cb_verify.c); a reader has one
 * page locked at most.
 */
void
cb_redo_redistribute(XLogReaderState *record)
{
	xl_cb_redistribute *xlrec = (xl_cb_redistribute *) XLogRecGetData(record);
	Buffer		bufs[CB_REDISTRIBUTE_MAX_PARTS + 1];
	Buffer		buf;
	Page		page;

	for (int i = xlrec->nleaves; i > 0; i--)
	{
		bufs[i] = cb_redo_image(record, i);
		CB_TEST_POINT("redo-redistribute");
	}
	for (int i = xlrec->nleaves; i > 0; i--)
		UnlockReleaseBuffer(bufs[i]);
	page = cb_redo_begin(record, 0, CBP_INTERNAL, &buf);
	if (page != NULL)
	{
		Size		len;
		char	   *data = XLogRecGetBlockData(record, 0, &len);
		PGAlignedBlock downlink;

		cb_redo_require(record, 0, xlrec->off <= PageGetMaxOffsetNumber(page));
		memcpy(downlink.data, data, len);
		cb_redo_require(record, 0,
						cb_redistribute_set_downlink(page, xlrec->off,
													 (IndexTuple) downlink.data));
	}
	cb_redo_end(record, page, buf);
}
