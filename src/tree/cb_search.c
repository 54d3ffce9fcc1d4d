/*-------------------------------------------------------------------------
 *
 * cb_search.c
 *	  Finding pages and positions in the tree.
 *
 * Descents follow Lehman and Yao: a reader holds one page lock at a time, and
 * moves right where a page's high key shows that it was split since its
 * parent was read.  A writer that meets an incomplete split finishes it first
 * and starts again from the root.
 *
 * A page may leave the tree (cb_unlink.c) between the reading of a link to it
 * and its own locking.  It is then marked as deleted, and its right link leads
 * to the page that has taken over its range: who comes to it moves right.  It
 * becomes no other page while anybody can hold a link to it, which is anybody
 * who had a snapshot or a transaction id before it was deleted; so whoever
 * follows links has one (cb_search_is_protected).  The leftmost page of a
 * level never leaves the tree, so a root that was remembered stays valid.
 *
 * The primary does not know of a standby's snapshots, and a conflict would end
 * long queries where rows are only inserted and cold ranges packed.  So whoever
 * follows a link in recovery sees for itself that its page has not been used
 * again:
 *
 *	- Before a deleted page that was not a run's is used again, REUSE_PAGE is
 *	  logged, whoever takes the page (cb_alloc_from_map() alone gives out pages
 *	  that were used).  Replay counts it, for the index's file (A11_REUSECOUNT).
 *	  A record or an image that makes the page anew comes later, and changes it
 *	  under its exclusive lock.  So if the count, read under the page's share
 *	  lock, is what it was when the link was good, the page is the link's, be it
 *	  deleted; and stays so until it is unlocked (A11_REUSED).
 *	- A link is good while the page that has it is locked and in the tree: a
 *	  page leaves the tree by a record that changes all pages with links to it,
 *	  and replay of UNLINK keeps them locked until the last is changed.
 *	  (Readers hold one lock at a time and wait for none meanwhile, so it cannot
 *	  deadlock.)  A descent reads the count once, before it reads the root's
 *	  links, and compares at each page.  As it is still the same there, it is
 *	  the count of each page's own links, too.
 *	- A deleted page's right link may lead to one that was used again before the
 *	  deleted page was come to.  The count from before the descent tells of
 *	  that, too; so no newer one is taken at a deleted page (A11_REUSEOLD), and
 *	  hints get theirs under the lock of a leaf that is in the tree
 *	  (A11_REUSEHINT).
 *	- The leftmost pages, so roots too, need no count.
 *
 * If the count has changed the page may be another one, and nothing is
 * concluded from it.  The descent begins anew at the root, for the same bound;
 * a scan with a hint descends; leaves that were looked up together are
 * forgotten; verification (A11_REUSEVERIFY) and prewarming descend to what lies
 * right of the last page that they have been at.
 *
 * That ends, as a descent is a few page reads, whose pages are in memory after
 * the first, and reuses are as far apart as splits are.  Where comparisons are
 * slow, and replay is fast, it can take many attempts; it can be cancelled.
 * Indexes that share a slot of counts have each other begin anew in vain.
 *
 * After a promotion the count is 0, so no count from before it is believed
 * (A11_REUSEPROMOTED).
 * The horizon would not do: a snapshot of the standby can have an xmin beyond
 * the safexid of a deletion that was replayed after it, as a transaction can
 * get that id and commit between its reading and the record.  Who reads the
 * count with a page locked and is in recovery still knows that nobody has
 * written the page as a primary.  Links that are read afterwards, also by a
 * transaction that began in recovery, are to pages that are in the tree then;
 * if they leave it their safexid is the next transaction id of that time, which
 * is not below the xmin of any snapshot that there is.
 *
 * The other keepers of blocks: the list of leaves read ahead and heat are hints
 * by which nothing is found; the entry cache and copies of the root are not for
 * recovery, nor for who began in it; samples of separators take any page for
 * what it is; writers and VACUUM are on a primary.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_counts.h"
#include "miscadmin.h"
#include "storage/predicate.h"
#include "storage/proc.h"
#include "tree/cb_tree.h"
#include "utils/snapmgr.h"

/* a descent starts again this often, each time after a split was finished */
#define CB_MAX_DESCENTS 10000

/*
 * a copy of the root from which more moves to the right are needed is made
 * anew
 */
#define CB_ROOT_MOVES 2

#ifdef USE_ASSERT_CHECKING
/*
 * May this backend follow links?  Its snapshot or transaction id keeps pages
 * that are deleted meanwhile from being used again.  VACUUM's do not; but only
 * one VACUUM is at a table, and nobody else deletes pages.
 */
static bool
cb_search_is_protected(void)
{
	return TransactionIdIsValid(MyProc->xmin) ||
		TransactionIdIsValid(MyProc->xid) ||
		(MyProc->statusFlags & PROC_IN_VACUUM) != 0;
}
#endif

/*
 * Locks a pinned page and checks that it is a tree page of this level, or one
 * that was deleted, and that an internal page has a downlink; else an error.
 * snapshot: the page is tested against old_snapshot_threshold; NULL: it is
 * not.
 *
 * reuses: of the link that led to the page, or 0, as of a page that never
 * leaves the tree.  NULL, and the buffer is released: the page may be another
 * one by now.
 */
static Page
cb_search_lock(Relation rel, Buffer buf, int lockmode, int level,
			   Snapshot snapshot, uint64 reuses)
{
	Page		page = BufferGetPage(buf);

	cb_rel_prefetch_ends(page);
	cb_sound_lock(rel, buf, lockmode);
	if (unlikely(reuses != 0) && cb_counts_reuses(rel) != reuses)
	{
		UnlockReleaseBuffer(buf);
		return NULL;
	}
	cb_page_check(rel, BufferGetBlockNumber(buf), page);
	if ((!CbPageIsTree(page) && !CbPageIsGone(page)) ||
		CbPageGetOpaque(page)->level != level)
		cb_report_corrupt(rel, BufferGetBlockNumber(buf),
						  "It is not a tree page of level %d.", level);
	if (level > 0 && !CbPageIsGone(page))
		cb_page_check_downlinks(rel, BufferGetBlockNumber(buf), page);
	if (snapshot)
		TestForOldSnapshot(snapshot, rel, page);
	return page;
}

/*
 * The root, locked; *level is its level.  A leaf gets leaf_lockmode.  The page
 * may have ceased to be the root while it was being locked: it is then still
 * the leftmost of its level, and a descent from it is right all the same.
 *
 * Reads the metapage, whose lock is the last in the order (I9), if the root is
 * not remembered or has ceased to be it.
 */
static Buffer
cb_search_get_root(Relation rel, int lockmode, int leaf_lockmode,
				   Snapshot snapshot, int *level)
{
	CbRelCache *cache = cb_rel_cache(rel);

	Assert(cb_search_is_protected());
	for (int tries = 0;; tries++)
	{
		CbMetaPageData meta;
		BlockNumber root = cache->root;
		int			root_level = cache->root_level;
		Buffer		buf;
		Page		page;

		if (root == InvalidBlockNumber)
		{
			cb_rel_read_meta(rel, NULL, &meta);
			root = meta.root;
			root_level = meta.root_level;
		}
		buf = cb_rel_read_buffer(rel, root);
		page = cb_search_lock(rel, buf,
							  root_level == 0 ? leaf_lockmode : lockmode,
							  root_level, snapshot, 0);
		*level = root_level;
		if ((CbPageGetOpaque(page)->flags & CBP_ROOT) != 0 || tries > 0)
			return buf;

		/* a stale hint */
		UnlockReleaseBuffer(buf);
		cache = cb_rel_cache(rel);
		cache->root = InvalidBlockNumber;
	}
}

/*
 * Is the first position right of the bound (forward), or the last one left of
 * it (backward), beyond this page?  Of a deleted page everything is.
 */
static inline bool
cb_search_is_beyond(const CbKeyDesc *kd, const CbBound *bound, Page page,
					ScanDirection dir)
{
	int			cmp;

	if (CbPageIsGone(page))
		return true;
	if (CbPageIsRightmost(page) || bound->kind == CB_BOUND_MIN)
		return false;
	cmp = cb_key_compare_bound(kd, bound, CbPageGetHighKey(page));
	return ScanDirectionIsBackward(dir) ? cmp < 0 : cmp <= 0;
}

/*
 * Leaf: the first plain entry right of the bound, in either direction; one
 * past the last if there is none.
 *
 * Internal page: the downlink to follow.  That is the last item whose key is
 * left of the bound; going forward also one that is the bound itself.  The
 * first item counts as minus infinity.
 *
 * The caller has the page locked, or works on a copy, and has seen that an
 * internal page has a downlink.  Comparison functions run; so who changes the
 * page afterwards calls cb_tree_check_still_locked() first.  Pages of runs and
 * range pages are searched alike.
 */
OffsetNumber
cb_tree_search_page(const CbKeyDesc *kd, const CbBound *bound, Page page,
					ScanDirection dir)
{
	bool		leaf = CbPageIsLeaf(page);
	OffsetNumber low = leaf ? CbPageFirstPlain(page) : CbPageFirstItem(page);
	OffsetNumber high = PageGetMaxOffsetNumber(page) + 1;
	int			goal = (!leaf && ScanDirectionIsBackward(dir)) ? -1 : 0;

	Assert(leaf || low < high);
	if (!leaf)
		low++;

	/* beside an end of the index all items mostly lie on one side */
	if (low < high && cb_bound_is_at_end(bound) &&
		cb_key_compare_bound(kd, bound, CbPageGetTuple(page, high - 1)) <= goal)
		low = high;

	/* everything before low is left of the bound, from high on right of it */
	while (low < high)
	{
		OffsetNumber mid = low + (high - low) / 2;

		if (cb_key_compare_bound(kd, bound, CbPageGetTuple(page, mid)) <= goal)
			low = mid + 1;
		else
			high = mid;
	}
	return leaf ? low : low - 1;
}

/* ---------- among packed entries ---------- */

/* a search for a bound in a leaf's packed part */
typedef struct CbPackedSearch
{
	const CbKeyDesc *kd;
	const CbBound *bound;
	CbLeaf	   *leaf;
	BlockNumber blkno;
} CbPackedSearch;

/*
 * Is entry i of the leaf's packed part left of the bound?  blkno is the leaf's.
 * It is locked, or a copy, as for cb_tree_search_page().  Comparison functions
 * run; a damaged entry raises an error.
 */
bool
cb_tree_packed_is_left(const CbKeyDesc *kd, const CbBound *bound, CbLeaf *leaf,
					   BlockNumber blkno, int i)
{
	CbLeafTuple tuple;
	IndexTuple	itup = cb_leaf_read(leaf, i, &tuple);

	if (itup == NULL)
		cb_leaf_report_damaged(kd->rel, blkno);
	return cb_key_compare_bound(kd, bound, itup) <= 0;
}

/* The same, as core/cb_pack.h asks it. */
static bool
cb_search_packed_is_left(void *arg, int i)
{
	const CbPackedSearch *search = arg;

	return cb_tree_packed_is_left(search->kd, search->bound, search->leaf,
								  search->blkno, i);
}

/*
 * How many entries of the leaf's packed part, which has some, lie left of the
 * bound.  Numbers and leads are looked for where they stand, if no entry has
 * nulls.  Otherwise as cb_tree_packed_is_left().  Pages of runs are searched
 * alike.
 */
int
cb_tree_search_packed(const CbKeyDesc *kd, const CbBound *bound, CbLeaf *leaf,
					  BlockNumber blkno)
{
	CbPackReader *packed = &leaf->packed;
	CbPackedSearch search = {.kd = kd,.bound = bound,.leaf = leaf,.blkno = blkno};
	bool		has_leads = bound->kind == CB_BOUND_KEYS &&
		((packed->info | packed->info_mask) & INDEX_NULL_MASK) == 0;

	if (has_leads && bound->lead_kind == CB_LEAD_INT64 && bound->nkeys == 1)
	{
		int			n = cb_pack_search_number(packed, bound->lead, bound->after);

		if (n >= 0)
			return n;
	}
	if (cb_bound_is_at_end(bound) &&
		cb_tree_packed_is_left(kd, bound, leaf, blkno, leaf->npacked - 1))
		return leaf->npacked;
	if (has_leads && bound->lead_kind != CB_LEAD_NONE)
		return cb_pack_search_lead(packed, bound->lead_kind, bound->lead,
								   cb_search_packed_is_left, &search);
	return cb_pack_search(packed, cb_search_packed_is_left, &search);
}

/* The descent's lower bound becomes a palloc'd copy of the separator. */
static void
cb_search_set_low(CbDescent *descent, IndexTuple separator)
{
	if (descent->low)
		pfree(descent->low);
	descent->low = CopyIndexTuple(separator);
}

/*
 * Raises an error if there have been more moves to the right, on this level, than the
 * index has blocks; next is where the last one leads.
 */
void
cb_tree_check_moves(Relation rel, BlockNumber next, BlockNumber moves, int level)
{
	if (moves % CB_CHECK_MOVES == 0 && moves > RelationGetNumberOfBlocks(rel))
		cb_report_corrupt(rel, next, "The right links of level %d form a ring.",
						  level);
}

/*
 * Moves right, with one lock at a time, to the page that has the position.
 * Stops at an incomplete split if for_write.  The page to the right of a
 * deleted one has its lower bound.
 *
 * buf is locked in lockmode; it is released if it is not what is returned,
 * which is locked likewise.  This is what makes one lock at a time enough
 * (Lehman and Yao, Efficient Locking for Concurrent Operations on B-Trees,
 * 1981).  An error if the links lead round in a ring.
 *
 * reuses: of the link that led to buf.  InvalidBuffer: the way may have led to
 * a page that is another one by now.
 */
static Buffer
cb_search_move_right(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
					 Buffer buf, int lockmode, Snapshot snapshot,
					 bool for_write, CbDescent *descent, uint64 reuses)
{
	Page		page = BufferGetPage(buf);
	int			level = CbPageGetOpaque(page)->level;
	BlockNumber moves = 0;

	while (!(for_write && CbPageHasIncompleteSplit(page)) &&
		   cb_search_is_beyond(kd, bound, page, dir))
	{
		BlockNumber next = CbPageGetOpaque(page)->next;

		if (CbPageIsRightmost(page))
			cb_report_corrupt(kd->rel, BufferGetBlockNumber(buf),
							  "It was deleted, but has no right link.");
		if (descent && descent->want_low && !CbPageIsGone(page))
			cb_search_set_low(descent, CbPageGetHighKey(page));
		UnlockReleaseBuffer(buf);
		CHECK_FOR_INTERRUPTS();
		cb_tree_check_moves(kd->rel, next, ++moves, level);
		buf = cb_rel_read_buffer(kd->rel, next);
		page = cb_search_lock(kd->rel, buf, lockmode, level, snapshot, reuses);
		if (page == NULL)
			return InvalidBuffer;
	}
	if (descent && moves > CB_ROOT_MOVES)
		descent->root_level = 0;
	return buf;
}

/*
 * Steps down one level: releases buf, returns the child, pinned only.  Between
 * the two no lock is held; what happens to the child meanwhile
 * cb_search_move_right() makes good.
 */
static Buffer
cb_search_step_down(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
					Buffer buf, CbDescent *descent)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber off = cb_tree_search_page(kd, bound, page, dir);
	IndexTuple	downlink = CbPageGetTuple(page, off);
	BlockNumber child = BTreeTupleGetDownLink(downlink);

	if (descent && descent->want_low && off > CbPageFirstItem(page))
		cb_search_set_low(descent, downlink);
	if (descent && descent->want_parent && CbPageGetOpaque(page)->level == 1)
	{
		memcpy(descent->parent.data, page, BLCKSZ);
		descent->parent_valid = true;
	}
	UnlockReleaseBuffer(buf);
	CHECK_FOR_INTERRUPTS();
	CB_TEST_POINT("step-down");
	return cb_rel_read_buffer(kd->rel, child);
}

/*
 * The path's page of this level is the one of buf, which is locked.  An error
 * if the level is higher than a path has room for.
 */
static void
cb_search_note_page(Relation rel, CbPath *path, Buffer buf, int level)
{
	Page		page = BufferGetPage(buf);

	if (level >= CB_MAX_TREE_LEVELS)
		cb_report_corrupt(rel, BufferGetBlockNumber(buf),
						  "Its level is %d, and there cannot be so many.", level);
	path->blkno[level] = BufferGetBlockNumber(buf);
	path->single[level] = PageGetMaxOffsetNumber(page) == CbPageFirstItem(page);
}

/*
 * Keeps a copy of the root, if it leads to other pages.  Its links are good
 * for as long as the caller holds the snapshot under which it is made: nobody
 * in recovery has room for one.
 */
static void
cb_search_keep_root(CbDescent *descent, Buffer buf, int level)
{
	if (level == 0)
		return;
	memcpy(descent->root, BufferGetPage(buf), BLCKSZ);
	descent->root_level = level;
}

/*
 * Steps down from the copy of the root: the child, pinned only, or
 * InvalidBuffer if the copy does not lead there.
 */
static Buffer
cb_search_leave_root(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
					 CbDescent *descent)
{
	Page		root = descent->root;
	OffsetNumber off;

	if (cb_search_is_beyond(kd, bound, root, dir))
		return InvalidBuffer;
	off = cb_tree_search_page(kd, bound, root, dir);
	if (descent->want_low && off > CbPageFirstItem(root))
		cb_search_set_low(descent, CbPageGetTuple(root, off));
	return cb_rel_read_buffer(kd->rel,
							  BTreeTupleGetDownLink(CbPageGetTuple(root, off)));
}

/*
 * One attempt of cb_tree_descend_to(): InvalidBuffer, with no lock, if a page
 * on the way may have been another one by then.
 */
static Buffer
cb_search_try_descend(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
					  int target_level, Snapshot snapshot, CbDescent *descent)
{
	uint64		reuses = cb_counts_reuses(kd->rel);
	int			level;
	Buffer		buf = InvalidBuffer;

	if (descent)
		descent->low = NULL;
	if (descent && descent->root_level > target_level)
		buf = cb_search_leave_root(kd, bound, dir, descent);
	if (BufferIsValid(buf))
	{
		level = descent->root_level - 1;
		cb_search_lock(kd->rel, buf, BUFFER_LOCK_SHARE, level, snapshot, 0);
	}
	else
		buf = cb_search_get_root(kd->rel, BUFFER_LOCK_SHARE, BUFFER_LOCK_SHARE,
								 snapshot, &level);
	if (descent && descent->root != NULL && descent->root_level == 0)
		cb_search_keep_root(descent, buf, level);
	if (descent && descent->path)
		descent->path->nlevels = level + 1;
	for (;;)
	{
		buf = cb_search_move_right(kd, bound, dir, buf, BUFFER_LOCK_SHARE,
								   snapshot, false, descent, reuses);
		if (!BufferIsValid(buf))
			return InvalidBuffer;
		if (descent && descent->path)
			cb_search_note_page(kd->rel, descent->path, buf, level);
		if (level <= target_level)
			return buf;
		buf = cb_search_step_down(kd, bound, dir, buf, descent);
		if (cb_search_lock(kd->rel, buf, BUFFER_LOCK_SHARE, --level, snapshot,
						   reuses) == NULL)
			return InvalidBuffer;
	}
}

/*
 * Descends for reading.  Returns the page of the target level, or the root if
 * that is lower, pinned and share-locked, that holds the first position right
 * of the bound (forward) or the last one left of it (backward).  Holds no
 * other lock at any time; the caller holds none on a page, and has a snapshot
 * or a transaction id that keeps deleted pages from being used again.
 *
 * descent may be NULL; its low, palloc'd, is set if want_low, its path filled
 * in if there is one, and its parent if want_parent and the descent came
 * through level 1.  If it has room for a copy of the root, the next descent
 * begins there.
 *
 * snapshot: pages are tested for being too new for it (A16); NULL: they are
 * not.  Comparison functions run under the pages' locks.  A page that is no
 * page of the tree is an error.  Changes no page, so it serves standbys as
 * well: there it begins anew if replay has had pages used again meanwhile.
 */
Buffer
cb_tree_descend_to(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
				   int target_level, Snapshot snapshot, CbDescent *descent)
{
	for (;;)
	{
		Buffer		buf = cb_search_try_descend(kd, bound, dir, target_level,
												snapshot, descent);

		if (BufferIsValid(buf))
			return buf;
		if (descent && descent->low)
			pfree(descent->low);
	}
}

/* The same, to a leaf. */
Buffer
cb_tree_descend(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
				Snapshot snapshot, CbDescent *descent)
{
	return cb_tree_descend_to(kd, bound, dir, 0, snapshot, descent);
}

/*
 * The same, to the page with the downlink of that position: of level 1, or the
 * root if it is a leaf, which then has all positions, also those that it has
 * given to a new page, of which no root tells yet.
 */
Buffer
cb_tree_descend_to_downlink(const CbKeyDesc *kd, const CbBound *bound,
							ScanDirection dir, Snapshot snapshot,
							CbDescent *descent)
{
	for (;;)
	{
		CbRelCache *cache = cb_rel_cache(kd->rel);
		int			level;
		Buffer		buf;

		if (cache->root != InvalidBlockNumber && cache->root_level > 0)
			return cb_tree_descend_to(kd, bound, dir, 1, snapshot, descent);
		buf = cb_search_get_root(kd->rel, BUFFER_LOCK_SHARE, BUFFER_LOCK_SHARE,
								 snapshot, &level);
		if (level == 0 && (CbPageGetOpaque(BufferGetPage(buf))->flags & CBP_ROOT) != 0)
		{
			if (descent)
				descent->low = NULL;
			return buf;
		}

		/* the root is higher by now, and the metapage says so */
		UnlockReleaseBuffer(buf);
		cache = cb_rel_cache(kd->rel);
		if (cache->root_level == 0)
			cache->root = InvalidBlockNumber;
	}
}

/*
 * A leaf that is known by its block, or the one that has taken over its range:
 * pinned and share-locked.  The buffer of the hint is not used.  The caller
 * has had a snapshot or a transaction id since it learned of the block, holds
 * no page lock, and looks whether what it wants has moved right.
 * InvalidBuffer: the block may be another page by now.
 *
 * snapshot as for cb_tree_descend_to().  No comparison function runs.  An
 * error if the block is no leaf.  Serves standbys as well.
 */
Buffer
cb_tree_read_leaf(Relation rel, const CbLeafHint *hint, Snapshot snapshot)
{
	Buffer		buf = cb_rel_read_buffer(rel, hint->blkno);

	Assert(hint->reuses != 0 || cb_counts_reuses(rel) == 0);
	for (;;)
	{
		Page		page = cb_search_lock(rel, buf, BUFFER_LOCK_SHARE, 0,
										  snapshot, hint->reuses);
		BlockNumber next;

		if (page == NULL)
			return InvalidBuffer;
		if (!CbPageIsGone(page))
			return buf;
		next = CbPageGetOpaque(page)->next;
		if (CbPageIsRightmost(page))
			cb_report_corrupt(rel, BufferGetBlockNumber(buf),
							  "It was deleted, but has no right link.");
		UnlockReleaseBuffer(buf);
		CHECK_FOR_INTERRUPTS();
		buf = cb_rel_read_buffer(rel, next);
	}
}

/* ---------- many bounds at once ---------- */

/*
 * Sets the hints that name the same page as the first of them, as far as the
 * bounds lie in that page, to the children.  The bound is set to each of them.
 * Returns how many, one at least; 0: the way may have led to a page that is
 * another one by now.  buf is the page, share-locked; it is released.
 */
static int
cb_search_find_children(const CbKeyDesc *kd, CbBound *bound, const Datum *values,
						int n, Buffer buf, Snapshot snapshot, CbLeafHint *hints)
{
	BlockNumber blkno = hints[0].blkno;
	Page		page;
	int			i = 0;

	cb_bound_set_first(kd, bound, values[0]);
	buf = cb_search_move_right(kd, bound, ForwardScanDirection, buf,
							   BUFFER_LOCK_SHARE, snapshot, false, NULL,
							   hints[0].reuses);
	if (!BufferIsValid(buf))
		return 0;
	page = BufferGetPage(buf);
	do
	{
		OffsetNumber off = cb_tree_search_page(kd, bound, page,
											   ForwardScanDirection);

		hints[i++].blkno = BTreeTupleGetDownLink(CbPageGetTuple(page, off));
		if (i == n || hints[i].blkno != blkno)
			break;
		cb_bound_set_first(kd, bound, values[i]);
	} while (!cb_search_is_beyond(kd, bound, page, ForwardScanDirection));
	UnlockReleaseBuffer(buf);
	return i;
}

/* Nothing is known of the leaves. */
static void
cb_search_forget_leaves(CbLeafHint *hints, int n)
{
	for (int i = 0; i < n; i++)
		hints[i] = (CbLeafHint) {InvalidBlockNumber, InvalidBuffer, 0};
}

/*
 * One level of cb_tree_find_leaves(): hints that lead to its pages are set to
 * their children.  buf is the first page, share-locked, and is released;
 * InvalidBuffer: it is not locked yet.  False: a page may be another one by
 * now, and what the hints say is of no use.
 */
static bool
cb_search_find_level(const CbKeyDesc *kd, CbBound *bound, const Datum *values,
					 int n, int level, Buffer buf, Snapshot snapshot,
					 CbLeafHint *hints)
{
	int			found;

	for (int i = 0; i < n; i += found)
	{
		if (!BufferIsValid(buf))
		{
			CB_TEST_POINT("group-step");
			CHECK_FOR_INTERRUPTS();
			buf = cb_rel_read_buffer(kd->rel, hints[i].blkno);
			if (cb_search_lock(kd->rel, buf, BUFFER_LOCK_SHARE, level, snapshot,
							   hints[i].reuses) == NULL)
				return false;
		}
		found = cb_search_find_children(kd, bound, values + i, n - i, buf,
										snapshot, hints + i);
		if (found == 0)
			return false;
		buf = InvalidBuffer;
	}
	return true;
}

/*
 * The leaves to begin at for n bounds, which differ from the one given, of one
 * key, in the key's value alone, and ascend.  The lower bound of hints[i]'s
 * leaf is not right of bound i; it may have been split or deleted since.  On a
 * standby all blocks are invalid if it was seen that pages were used again
 * meanwhile.
 *
 * All go down in lock step: a page is locked once for all that come through
 * it, and the pages of the next level are read in together.  Holds one lock at
 * a time, none on a leaf but the root, and none on entry and exit.  Nor is
 * anything pinned on exit: a hint's buffer is where the page was.
 *
 * The caller has a snapshot or a transaction id, until the hints are used.
 * Comparison functions run, under the pages' locks.  Serves standbys as well.
 */
void
cb_tree_find_leaves(const CbKeyDesc *kd, const CbBound *bound,
					const Datum *values, int n, Snapshot snapshot,
					CbLeafHint *hints)
{
	CbBoundKey	key = *bound->keys;
	CbBound		own_bound = *bound;
	uint64		reuses = cb_counts_reuses(kd->rel);
	int			level;
	Buffer		buf = cb_search_get_root(kd->rel, BUFFER_LOCK_SHARE,
										 BUFFER_LOCK_SHARE, snapshot, &level);

	Assert(bound->kind == CB_BOUND_KEYS && bound->nkeys == 1);
	own_bound.keys = &key;
	for (int i = 0; i < n; i++)
		hints[i] = (CbLeafHint) {BufferGetBlockNumber(buf), buf, reuses};
	if (level == 0)
		UnlockReleaseBuffer(buf);
	for (; level > 0; level--)
	{
		if (!cb_search_find_level(kd, &own_bound, values, n, level, buf, snapshot,
								  hints))
		{
			cb_search_forget_leaves(hints, n);
			return;
		}
		buf = InvalidBuffer;
		cb_rel_prefetch(kd->rel, hints, n);
	}
}

/* ---------- for writing ---------- */

/*
 * Forgets the root if it was remembered as one below the target: others have
 * put a new one above it, and the caller may have that very page locked (I9).
 */
static void
cb_search_forget_below(Relation rel, int target_level)
{
	CbRelCache *cache = cb_rel_cache(rel);

	if (cache->root_level < target_level)
		cache->root = InvalidBlockNumber;
}

/*
 * One attempt of cb_tree_descend_for_write(): InvalidBuffer, with no lock, if
 * an incomplete split had to be finished on the way, or the root remembered
 * was too low.
 */
static Buffer
cb_search_try_descend_for_write(const CbKeyDesc *kd, const CbBound *bound,
								int target_level, CbDescent *descent)
{
	int			level;
	Buffer		buf;
	int			lockmode = BUFFER_LOCK_SHARE;

	cb_search_forget_below(kd->rel, target_level);
	buf = cb_search_get_root(kd->rel, BUFFER_LOCK_SHARE,
							 target_level == 0 ? BUFFER_LOCK_EXCLUSIVE : BUFFER_LOCK_SHARE,
							 NULL, &level);
	if (level < target_level)
	{
		/* the metapage is damaged, if it stays like that */
		UnlockReleaseBuffer(buf);
		cb_rel_cache(kd->rel)->root = InvalidBlockNumber;
		return InvalidBuffer;
	}

	/* the root itself is the target, and not a leaf: lock it anew */
	if (level == target_level)
	{
		lockmode = BUFFER_LOCK_EXCLUSIVE;
		if (level > 0)
		{
			LockBuffer(buf, BUFFER_LOCK_UNLOCK);
			cb_search_lock(kd->rel, buf, lockmode, level, NULL, 0);
		}
	}

	for (;;)
	{
		buf = cb_search_move_right(kd, bound, ForwardScanDirection, buf,
								   lockmode, NULL, true, NULL, 0);
		if (CbPageHasIncompleteSplit(BufferGetPage(buf)))
		{
			if (lockmode != BUFFER_LOCK_EXCLUSIVE)
			{
				LockBuffer(buf, BUFFER_LOCK_UNLOCK);
				cb_search_lock(kd->rel, buf, BUFFER_LOCK_EXCLUSIVE, level, NULL, 0);
			}
			if (CbPageHasIncompleteSplit(BufferGetPage(buf)))
				cb_tree_finish_split(kd, buf);
			else
				UnlockReleaseBuffer(buf);
			return InvalidBuffer;
		}
		if (level == target_level)
			return buf;
		buf = cb_search_step_down(kd, bound, ForwardScanDirection, buf, descent);
		level--;
		if (level == target_level)
			lockmode = BUFFER_LOCK_EXCLUSIVE;
		cb_search_lock(kd->rel, buf, lockmode, level, NULL, 0);
	}
}

/*
 * Descends for writing: returns the page of the target level, pinned and
 * exclusively locked, that has the first position right of the bound; its
 * split is complete.  Splits found incomplete on the way are finished, so
 * pages may be changed, and new ones taken, before it returns.
 *
 * The caller may hold locks on pages of lower levels only (I9), and has a
 * snapshot or a transaction id.  On the way there is one lock at a time
 * besides those, but for what finishing a split needs.  descent may be NULL;
 * its parent becomes a copy of the level-1 page if want_parent.  It does not
 * want a lower bound.
 *
 * Comparison functions run.  Errors: those of a comparison, a damaged page, no
 * disk space for a split that has to be finished.
 */
Buffer
cb_tree_descend_for_write(const CbKeyDesc *kd, const CbBound *bound, int level,
						  CbDescent *descent)
{
	for (int tries = 0; tries < CB_MAX_DESCENTS; tries++)
	{
		Buffer		buf;

		if (descent)
			descent->parent_valid = false;
		buf = cb_search_try_descend_for_write(kd, bound, level, descent);
		if (BufferIsValid(buf))
			return buf;
		CHECK_FOR_INTERRUPTS();
	}
	cb_report_corrupt(kd->rel, CB_METAPAGE_BLKNO,
					  "The root leads to no page of level %d.", level);
}
