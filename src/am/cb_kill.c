/*-------------------------------------------------------------------------
 *
 * cb_kill.c
 *	  Marking entries of a leaf dead that a scan has found dead.
 *
 * The marks are hints: bits that VACUUM need not trust and redo does not know.
 * They are set when the scan leaves its window, under the leaf's share lock,
 * and only where an entry with the TID is known to be the same one still
 * (A12).  Entries move within their leaf, so they are found by TID, never by
 * their place (U14).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_scan.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * Marks dead the leaf's plain entry with this TID, at the offset or right of
 * it: it can have moved right since the leaf was copied.
 */
static bool
cb_kill_plain(Page page, OffsetNumber off, ItemPointer tid)
{
	for (off = Max(off, CbPageFirstPlain(page));
		 off <= PageGetMaxOffsetNumber(page);
		 off++)
	{
		ItemId		item = PageGetItemId(page, off);

		if (!ItemPointerEquals(&((IndexTuple) PageGetItem(page, item))->t_tid,
							   tid))
			continue;
		if (ItemIdIsDead(item))
			return false;
		ItemIdMarkDead(item);
		return true;
	}
	return false;
}

/* The same for an entry of its packed part. */
static bool
cb_kill_packed(Page page, int ordinal, ItemPointer tid)
{
	CbLeaf		leaf;
	Size		len;

	if (!cb_leaf_open(&leaf, page, NULL))
		return false;
	for (int i = ordinal; i < leaf.npacked; i++)
	{
		ItemPointerData found;

		cb_leaf_read_tid(&leaf, i, &found);
		if (!ItemPointerEquals(&found, tid))
			continue;
		return cb_pack_set_dead(cb_leaf_blob(page, &len), i);
	}
	return false;
}

/*
 * The leaf, pinned and share-locked, if its items with the TIDs of the window
 * are still the same entries: the pin was held, or the page has not changed.
 */
static Buffer
cb_kill_lock_leaf(IndexScanDesc scan)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	Relation	rel = scan->indexRelation;
	Buffer		buf = window->buf;

	if (BufferIsValid(buf))
	{
		IncrBufferRefCount(buf);
		LockBuffer(buf, BUFFER_LOCK_SHARE);
		return buf;
	}

	/* LSNs tell nothing here */
	if (!RelationNeedsWAL(rel))
		return InvalidBuffer;

	buf = cb_sound_read(rel, window->leaf.blkno, NULL);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (BufferGetLSNAtomic(buf) == window->lsn)
		return buf;
	UnlockReleaseBuffer(buf);
	return InvalidBuffer;
}

/*
 * Sets the dead bits, which are hints, of the items found dead; nothing if the
 * leaf may have changed since it was read and was not pinned.  Takes the
 * leaf's share lock, so none is held; on exit its lock is given back, and the
 * pin that the window had is kept.  Writes no WAL, but may log a full page for
 * the hint.
 */
void
cb_kill_items(IndexScanDesc scan)
{
	CbWindow   *window = ((CbScanOpaque) scan->opaque)->cur;
	Buffer		buf;
	Page		page;
	bool		changed = false;

	if (window->nkilled == 0)
		return;
	buf = cb_kill_lock_leaf(scan);
	if (!BufferIsValid(buf))
	{
		window->nkilled = 0;
		return;
	}

	page = BufferGetPage(buf);
	if (cb_page_has_id(page, CB_PAGE_ID) && CbPageIsLeaf(page) && !CbPageIsGone(page))
	{
		for (int i = 0; i < window->nkilled; i++)
		{
			CbScanItem *item = &window->items[window->killed[i]];

			changed |= item->origin == CB_ITEM_PACKED ?
				cb_kill_packed(page, item->number, &item->itup->t_tid) :
				cb_kill_plain(page, item->number, &item->itup->t_tid);
		}
	}
	if (changed)
	{
		CbPageGetOpaque(page)->flags |= CBP_HAS_GARBAGE;
		MarkBufferDirtyHint(buf, true);
	}
	UnlockReleaseBuffer(buf);
	window->nkilled = 0;
}
