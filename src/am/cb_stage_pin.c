/*-------------------------------------------------------------------------
 *
 * cb_stage_pin.c
 *	  Pins that keep heap TIDs from being used again while entries are staged
 *	  for rows that may have been inserted speculatively.
 *
 * A row of INSERT ... ON CONFLICT that loses is dead at once, while its
 * transaction goes on, and no index is told.  Were its entry still staged,
 * VACUUM could free the TID, another row get it, and the entry be published
 * then (A1).
 *
 * Invariants:
 *	a) From aminsert on, and so from before the row can die, its heap page is
 *	   pinned.  Line pointers of tuples are taken away under a cleanup lock
 *	   only, which nobody gets then: the TID remains that row's.
 *	b) Before the pin is given up, each of the page's rows is looked at.  The
 *	   entries of those that have died are taken out of the stages.  The others
 *	   live until their (sub)transaction ends, as do plain INSERT's.
 *	c) Pins do not outlive the executor or utility call that they were taken
 *	   in, so a command that comes after it meets none.
 *	d) A pin belongs to its (sub)transaction's resource owner, which drops it
 *	   after an error; the page is then only forgotten here.
 *
 * Why the pin is enough: VACUUM passes over the page, or waits if it has to
 * freeze; pruning on access, our own too, gives way.  What VACUUM frees was
 * dead before.  The insertion's lock keeps the table from being truncated or
 * rewritten.  The executor decides on a row after its last aminsert, so in
 * aminsert it is alive.  When a row is looked at, under the content lock, an
 * invalid xmin says that it was killed.  When the executor call returns that
 * took a pin its rows are all decided; calls nested in it have pins of their
 * own (A1_NESTED).  An entry that is published while its page is pinned needs no
 * look: a VACUUM that removes the row prunes later, and drains after that (I4).
 *
 * A VACUUM that has to freeze waits as for a cursor's pin.  The statement must
 * not wait for that VACUUM: by ANALYZE or DDL of the very table in a function of
 * it, or for a row of a session that does so next, as the deadlock detector does
 * not see who waits for a pin.  Without us it must not either: who waits for a row,
 * as ON CONFLICT DO UPDATE may, has the row's page pinned.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"
#include "am/cb_stage.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/resowner.h"

/* pages at a time, each of another table or nesting: partitions take turns */
#define CB_PIN_MAX_PAGES	8

typedef struct CbPinnedPage
{
	Oid			heapoid;
	BlockNumber block;
	Buffer		buffer;
	ResourceOwner owner;
	int			depth;			/* cb_nesting.depth of the call */
	int			nest_level;		/* nesting level of the subtransaction */
	int			nrows;
	OffsetNumber rows[MaxHeapTuplesPerPage];	/* with entries, in order */
} CbPinnedPage;

static CbPinnedPage cb_pin_pages[CB_PIN_MAX_PAGES];
static int	cb_pin_npages = 0;

static void
cb_pin_remove(int i)
{
	cb_pin_pages[i] = cb_pin_pages[--cb_pin_npages];
}

/*
 * Finds the rows that have died.  A row's fate is settled when its call
 * inserts the next one, or returns; the error is for callers that do not go
 * by this, and makes the entries go with their transaction.
 */
static int
cb_pin_find_dead(const CbPinnedPage *pinned, OffsetNumber *dead)
{
	Page		page = BufferGetPage(pinned->buffer);
	int			ndead = 0;

	LockBuffer(pinned->buffer, BUFFER_LOCK_SHARE);
	for (int i = 0; i < pinned->nrows; i++)
	{
		ItemId		lp = PageGetItemId(page, pinned->rows[i]);
		HeapTupleHeader tuple = NULL;

		if (ItemIdIsNormal(lp))
			tuple = (HeapTupleHeader) PageGetItem(page, lp);
		if (tuple == NULL || HeapTupleHeaderIsSpeculative(tuple))
			elog(ERROR, "row (%u,%u) of table %u is still being inserted",
				 pinned->block, pinned->rows[i], pinned->heapoid);
		if (!TransactionIdIsValid(HeapTupleHeaderGetRawXmin(tuple)))
			dead[ndead++] = pinned->rows[i];
	}
	LockBuffer(pinned->buffer, BUFFER_LOCK_UNLOCK);
	return ndead;
}

/* Takes the entries of dead rows out of the stages, and unpins the page. */
static void
cb_pin_release(int i)
{
	CbPinnedPage *pinned = &cb_pin_pages[i];
	ResourceOwner save = CurrentResourceOwner;
	OffsetNumber dead[MaxHeapTuplesPerPage];
	int			ndead;

	ndead = cb_pin_find_dead(pinned, dead);
	if (ndead > 0)
		cb_stage_void(pinned->heapoid, pinned->block, dead, ndead);
	CurrentResourceOwner = pinned->owner;
	ReleaseBuffer(pinned->buffer);
	CurrentResourceOwner = save;
	cb_pin_remove(i);
}

/*
 * The place of the current call's page of a table, or of one that is to be
 * given up for another page; cb_pin_npages to take a new one, -1 for none.
 */
static int
cb_pin_find_place(Oid heapoid, int nest_level)
{
	int			own = -1;

	for (int i = cb_pin_npages - 1; i >= 0; i--)
	{
		CbPinnedPage *pinned = &cb_pin_pages[i];

		if (pinned->depth != cb_nesting.depth || pinned->nest_level != nest_level)
			continue;
		own = i;
		if (pinned->heapoid == heapoid)
			return i;
	}
	return cb_pin_npages < CB_PIN_MAX_PAGES ? cb_pin_npages : own;
}

static CbPinnedPage *
cb_pin_page(Relation heap, BlockNumber block)
{
	int			nest_level = GetCurrentTransactionNestLevel();
	int			i = cb_pin_find_place(RelationGetRelid(heap), nest_level);
	ResourceOwner save = CurrentResourceOwner;
	CbPinnedPage *pinned;

	if (i < 0)
		return NULL;
	if (i < cb_pin_npages)
	{
		pinned = &cb_pin_pages[i];
		if (pinned->heapoid == RelationGetRelid(heap) &&
			pinned->block == block)
			return pinned;
		cb_pin_release(i);
	}
	pinned = &cb_pin_pages[cb_pin_npages];
	pinned->heapoid = RelationGetRelid(heap);
	pinned->block = block;
	pinned->owner = CurTransactionResourceOwner;
	pinned->depth = cb_nesting.depth;
	pinned->nest_level = nest_level;
	pinned->nrows = 0;
	CurrentResourceOwner = pinned->owner;
	pinned->buffer = ReadBuffer(heap, block);
	CurrentResourceOwner = save;
	cb_pin_npages++;
	return pinned;
}

/*
 * Called by aminsert, for a row that may be speculative.  True: the row's
 * entries may be staged.  False: they have to be published at once, since the
 * table is not a heap or too many pages are pinned.
 *
 * The page stays pinned, by the resource owner of the current
 * (sub)transaction, until its call inserts into another page or returns.
 * Takes the heap page's share lock, so the caller holds no buffer lock.
 */
bool
cb_pin_row(Relation heap, ItemPointer tid)
{
	OffsetNumber row = ItemPointerGetOffsetNumber(tid);
	CbPinnedPage *pinned;

	if (heap->rd_tableam != GetHeapamTableAmRoutine())
		return false;
	pinned = cb_pin_page(heap, ItemPointerGetBlockNumber(tid));
	if (pinned == NULL)
		return false;
	if (pinned->nrows > 0 && pinned->rows[pinned->nrows - 1] == row)
		return true;			/* by another of the table's indexes */
	if (pinned->nrows == MaxHeapTuplesPerPage)
		return false;
	pinned->rows[pinned->nrows++] = row;
	return true;
}

/*
 * Gives up the pins of calls nested deeper than this; they have returned.
 * Entries of rows that have died are taken out of the stages.  Takes share
 * locks of heap pages; raises an error if a row is still speculative.
 */
void
cb_pin_release_deeper(int depth)
{
	for (int i = cb_pin_npages - 1; i >= 0; i--)
	{
		if (cb_pin_pages[i].depth > depth)
			cb_pin_release(i);
	}
}

/*
 * A subtransaction of this level is rolled back, or (0) the transaction ends:
 * the pins go with its resource owner and are forgotten here.  Cannot fail.
 */
void
cb_pin_forget(int min_nest_level)
{
	for (int i = cb_pin_npages - 1; i >= 0; i--)
	{
		if (cb_pin_pages[i].nest_level >= min_nest_level)
			cb_pin_remove(i);
	}
}
