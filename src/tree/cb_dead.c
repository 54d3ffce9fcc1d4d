/*-------------------------------------------------------------------------
 *
 * cb_dead.c
 *	  Dropping the entries of rows that are dead to everyone, before a leaf is
 *	  packed or split for want of room.
 *
 * An UPDATE that leaves the index's columns alone brings an entry with the key
 * of an older one, which is dead once no snapshot needs the old version.  The
 * table is asked, page by page, through the server's interface for index
 * deletion; what it calls deletable is removed from the leaf, and not put into
 * it if it is part of the batch.  One record tells standbys first to end the
 * queries that could see it.
 *
 * Two reasons to ask for an entry: a scan has found it dead; or new entries
 * tend to be new versions (kd->new_versions), and another entry, of leaf or
 * batch, has the same bytes.  The latter is a guess, so table pages are asked
 * as long as enough of them have something to drop.
 *
 * Why that is safe:
 *	- Rows.  They are those that VACUUM would remove: one is deletable if it is
 *	  dead to every snapshot, and so are all versions that its TID leads to.
 *	  The TIDs stay until VACUUM has drained and come to every leaf (I4).  If an
 *	  entry comes down again, after an error or a crash, it is a dead entry once
 *	  more.
 *	- Pins (I8).  The exclusive lock is enough, as in nbtree.  A reader with a
 *	  copy of the leaf and a pin may return a dead entry, or mark it: the TID is
 *	  not another row's before VACUUM has got its cleanup lock on this leaf,
 *	  which it takes whatever is left there.  Other readers have a snapshot.
 *	- Standbys (U6).  The record has the table's horizon, and replay resolves
 *	  conflicts before it changes the page.  It is written before dropped
 *	  entries of a batch can leave the journal, also if the leaf loses nothing.
 *	  Where rows were pruned before, the table's record was that conflict.  An
 *	  old snapshot (A16) meets its LSN on the leaf.
 *	- Locks (I9).  Table pages are share-locked one at a time, under the leaf's
 *	  lock, as in nbtree.  Nobody waits for an index with one locked: aminsert
 *	  is called without, and A1 locks no leaf.  No keys are compared.
 *
 * The table takes a question for a TID that it cannot have for damage.  No
 * entry leads to one, as VACUUM removes entries first and the table's records
 * precede ours; but where VACUUM passes over an index that is being dropped
 * (which is not asked for), and where the table is damaged.  So what has to
 * empty journal and buckets asks nothing (VACUUM, sweeps), or not again after
 * an error (flushes).
 *
 * The batch is placed anew afterwards (I5).  A leaf that is left empty is
 * marked as one that VACUUM may delete.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "access/xlogutils.h"
#include "base/cb_base.h"
#include "base/cb_waiter.h"
#include "catalog/catalog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/standby.h"
#include "tree/cb_tree.h"

/*
 * Table pages asked for each of the two reasons: for each new entry and
 * besides; and how many in vain on a guess, beyond those that were not.
 */
#define CB_DEAD_BLOCKS_EACH	2
#define CB_DEAD_BLOCKS_MORE	16
#define CB_DEAD_PATIENCE	4

/* table pages that are read ahead */
#define CB_DEAD_PREFETCH	4

/* room to make beyond what the batch needs */
#define CB_DEAD_RESERVE	(CB_PAGE_ROOM / 8)

/* counters of entries by their hashes, to see which are alike; power of 2 */
#define CB_DEAD_SLOTS		8192

typedef enum CbDeadOrigin
{
	CB_DEAD_PACKED,
	CB_DEAD_PLAIN,
	CB_DEAD_NEW					/* of the batch */
} CbDeadOrigin;

typedef struct CbDeadItem
{
	ItemPointerData tid;
	uint16		number;			/* its ordinal, offset, or place in the batch */
	uint16		size;			/* what the page gains, about */
	uint16		slot;
	uint8		origin;
	uint8		weight;			/* how likely it is dead; 0: no reason */
	bool		killed;			/* a scan has found it dead */
	bool		dead;			/* the table says so */
} CbDeadItem;

/* the items of one table page, one after the other */
typedef struct CbDeadBlock
{
	BlockNumber block;
	int			first;
	int			n;
	int			weight;
	int			killed;			/* how many of them */
	bool		asked;
} CbDeadBlock;

typedef struct CbDead
{
	const CbKeyDesc *kd;
	Buffer		buf;
	const CbLeafBatch *batch;
	int			n;
	CbDeadItem *items;
	int			nblocks;
	CbDeadBlock *blocks;
	bool		any_killed;
	int			ndead;
	Size		gained;			/* room, about */
	TransactionId horizon;		/* latest that made one of the dead dead */
} CbDead;

/* ---------- the table ---------- */

/*
 * The table of an index, open and locked with AccessShareLock; the index is
 * locked by the caller, so that it is not dropped.  NULL, with no lock: the
 * lock cannot be had at once, somebody waits for it already, or the table is
 * gone.  A process that gives way to waiters watches for those of this lock,
 * too, from now on.
 *
 * Whoever inserts has the lock; a worker does not wait for it (B1).  To be
 * undone by cb_tree_close_table(), or an error.
 */
Relation
cb_tree_open_table(Relation index)
{
	Oid			heapoid = index->rd_index->indrelid;
	Relation	heap;

	if (!ConditionalLockRelationOid(heapoid, AccessShareLock))
		return NULL;
	if (cb_waiter_watch_table(heapoid, AccessShareLock))
	{
		heap = try_relation_open(heapoid, NoLock);
		if (heap != NULL)
			return heap;
		cb_waiter_forget_table();
	}
	UnlockRelationOid(heapoid, AccessShareLock);
	return NULL;
}

/* Closes and unlocks what cb_tree_open_table() has returned, NULL included. */
void
cb_tree_close_table(Relation heap)
{
	if (heap == NULL)
		return;
	cb_waiter_forget_table();
	relation_close(heap, AccessShareLock);
}

/*
 * Lets applies with this description ask the table for dead entries, if its
 * lock can be had at once; new_versions: new entries are likely to be new
 * versions of rows.  The index is locked.  To be undone by cb_dead_end(), or
 * an error.
 *
 * Without the lock, and where the index is not yet complete or about to be
 * dropped, nothing is asked, and nothing else is different.
 */
void
cb_dead_begin(CbKeyDesc *kd, bool new_versions)
{
	/* VACUUM passes over an index that is being dropped */
	if (!kd->rel->rd_index->indisready || !kd->rel->rd_index->indislive)
		return;
	kd->heap = cb_tree_open_table(kd->rel);
	kd->new_versions = new_versions;
}

/* Undoes cb_dead_begin(), whether it got the table's lock or not. */
void
cb_dead_end(CbKeyDesc *kd)
{
	cb_tree_close_table(kd->heap);
	kd->heap = NULL;
}

/* ---------- candidates ---------- */

static inline uint16
cb_dead_slot(IndexTuple itup)
{
	return hash_bytes((unsigned char *) itup + sizeof(IndexTupleData),
					  IndexTupleSize(itup) - sizeof(IndexTupleData)) %
		CB_DEAD_SLOTS;
}

/*
 * Lists an entry; size: bytes that the page has more without it, about.  Only
 * its TID and a hash of its values are kept, so itup may go.
 */
static void
cb_dead_add(CbDead *search, CbDeadOrigin origin, uint16 number,
			IndexTuple itup, Size size, bool killed)
{
	CbDeadItem *item = &search->items[search->n++];

	item->tid = itup->t_tid;
	item->number = number;
	item->size = size;
	item->slot = search->kd->new_versions ? cb_dead_slot(itup) : 0;
	item->origin = origin;
	item->weight = 0;
	item->killed = killed;
	item->dead = false;
	search->any_killed |= killed;
}

/*
 * The entries of the leaf's packed part; its size is shared among them.  The
 * blob is read in place, as the leaf stays locked.
 */
static void
cb_dead_add_packed(CbDead *search, CbLeaf *leaf)
{
	Size		len;
	char	   *blob;

	if (leaf->npacked == 0)
		return;
	blob = cb_leaf_blob(leaf->page, &len);
	for (int i = 0; i < leaf->npacked; i++)
	{
		CbLeafTuple tuple;
		IndexTuple	itup = cb_leaf_read(leaf, i, &tuple);

		if (itup == NULL)
			cb_leaf_report_damaged(search->kd->rel, BufferGetBlockNumber(search->buf));
		cb_dead_add(search, CB_DEAD_PACKED, i, itup,
					Max(len / leaf->npacked, 1), cb_pack_is_dead(blob, i));
	}
}

/*
 * Lists all entries of the leaf and the batch.  The leaf is checked, every
 * entry of its packed part as well, so that it can lose entries without fail;
 * an error if it is damaged.
 */
static void
cb_dead_list(CbDead *search)
{
	Page		page = BufferGetPage(search->buf);
	OffsetNumber first = CbPageFirstPlain(page);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	const CbLeafBatch *batch = search->batch;
	BlockNumber blkno = BufferGetBlockNumber(search->buf);
	CbLeaf		leaf;

	/* what is checked can lose entries without fail */
	if (max > MaxIndexTuplesPerPage)
		cb_report_corrupt(search->kd->rel, blkno, "It has %u items.", max);
	if (!cb_leaf_open(&leaf, page, cb_sound_desc(search->kd->rel)) || !cb_leaf_check(&leaf))
		cb_leaf_report_damaged(search->kd->rel, blkno);
	search->items = palloc(sizeof(CbDeadItem) *
						   (leaf.npacked + max + batch->n));
	cb_dead_add_packed(search, &leaf);
	for (OffsetNumber off = first; off <= max; off = OffsetNumberNext(off))
	{
		IndexTuple	itup = CbPageGetTuple(page, off);

		cb_dead_add(search, CB_DEAD_PLAIN, off, itup, CbItemSpace(itup),
					ItemIdIsDead(PageGetItemId(page, off)));
	}
	for (int i = 0; i < batch->n; i++)
		cb_dead_add(search, CB_DEAD_NEW, i, batch->tuples[i],
					CbItemSpace(batch->tuples[i]), false);
}

/*
 * An old entry is probably dead if there is a new one alike.  Of several new
 * ones, or several old ones, one may be alive.
 */
static void
cb_dead_weigh(CbDead *search)
{
	uint8		nold[CB_DEAD_SLOTS] = {0};
	uint8		nnew[CB_DEAD_SLOTS] = {0};

	for (int i = 0; i < search->n; i++)
	{
		CbDeadItem *item = &search->items[i];
		uint8	   *count = item->origin == CB_DEAD_NEW ?
			&nnew[item->slot] : &nold[item->slot];

		*count += *count < PG_UINT8_MAX;
	}
	for (int i = 0; i < search->n; i++)
	{
		CbDeadItem *item = &search->items[i];

		if (item->origin == CB_DEAD_NEW)
			item->weight = nnew[item->slot] > 1;
		else if (nnew[item->slot] > 0)
			item->weight = 4;
		else
			item->weight = nold[item->slot] > 1;
	}
}

static int
cb_dead_compare_items(const void *a, const void *b)
{
	return ItemPointerCompare(&((CbDeadItem *) a)->tid,
							  &((CbDeadItem *) b)->tid);
}

/* Groups the items by table page. */
static void
cb_dead_group(CbDead *search)
{
	CbDeadBlock *block = NULL;

	qsort(search->items, search->n, sizeof(CbDeadItem), cb_dead_compare_items);
	search->blocks = palloc(sizeof(CbDeadBlock) * search->n);
	for (int i = 0; i < search->n; i++)
	{
		CbDeadItem *item = &search->items[i];
		BlockNumber blkno = ItemPointerGetBlockNumber(&item->tid);

		if (block == NULL || block->block != blkno)
		{
			block = &search->blocks[search->nblocks++];
			memset(block, 0, sizeof(CbDeadBlock));
			block->block = blkno;
			block->first = i;
		}
		block->n++;
		block->weight += item->weight;
		block->killed += item->killed;
	}
}

/* ---------- asking ---------- */

/* a question to the table */
typedef struct CbDeadOp
{
	TM_IndexDeleteOp op;
	int		   *id;				/* of each item */
} CbDeadOp;

/*
 * An empty question, with room for all items; palloc'd.  bottomup: on a guess.
 */
static void
cb_dead_op_init(CbDeadOp *op, const CbDead *search, bool bottomup)
{
	op->op.irel = search->kd->rel;
	op->op.iblknum = BufferGetBlockNumber(search->buf);
	op->op.bottomup = bottomup;
	op->op.bottomupfreespace = PG_INT16_MAX;	/* all of the page, then */
	op->op.ndeltids = 0;
	op->op.deltids = palloc(sizeof(TM_IndexDelete) * search->n);
	op->op.status = palloc(sizeof(TM_IndexStatus) * search->n);
	op->id = palloc(sizeof(int) * search->n);
}

/*
 * Adds the items of a table page.  The table wants each TID once, while packed
 * part, delta and batch may all have the same entry (U15).
 */
static void
cb_dead_op_add(CbDeadOp *op, const CbDead *search, const CbDeadBlock *block)
{
	for (int i = block->first; i < block->first + block->n; i++)
	{
		CbDeadItem *item = &search->items[i];
		int			id = op->op.ndeltids - 1;

		if (i == block->first || !ItemPointerEquals(&item->tid, &item[-1].tid))
		{
			id = op->op.ndeltids++;
			op->op.deltids[id].tid = item->tid;
			op->op.deltids[id].id = id;
			/* for messages only; an ordinal may be more than an offset can */
			op->op.status[id].idxoffnum =
				Min(Max(item->number, FirstOffsetNumber), MaxOffsetNumber);
			op->op.status[id].knowndeletable = false;
			op->op.status[id].promising = false;
			op->op.status[id].freespace = item->size;
		}
		op->id[i] = id;
		op->op.status[id].knowndeletable |= item->killed && !op->op.bottomup;
		op->op.status[id].promising |= item->weight > 0 && op->op.bottomup;
	}
}

/*
 * Asks the table, whose pages are share-locked meanwhile, one at a time, while
 * the leaf is locked.  Keeps the latest horizon of all answers.
 */
static void
cb_dead_op_ask(CbDeadOp *op, CbDead *search)
{
	TransactionId horizon = table_index_delete_tuples(search->kd->heap, &op->op);

	if (TransactionIdIsValid(horizon) &&
		(!TransactionIdIsValid(search->horizon) ||
		 TransactionIdFollows(horizon, search->horizon)))
		search->horizon = horizon;
}

/* Takes the answer for a table page; does it have dead items? */
static bool
cb_dead_op_take(const CbDeadOp *op, CbDead *search, const CbDeadBlock *block)
{
	int			before = search->ndead;

	for (int i = block->first; i < block->first + block->n; i++)
	{
		CbDeadItem *item = &search->items[i];

		if (item->dead || !op->op.status[op->id[i]].knowndeletable)
			continue;
		item->dead = true;
		search->ndead++;
		search->gained += item->size;
	}
	return search->ndead > before;
}

static int
cb_dead_compare_killed(const void *a, const void *b)
{
	return ((const CbDeadBlock *) b)->killed - ((const CbDeadBlock *) a)->killed;
}

/*
 * Drops what scans have found dead, and what the table finds dead on the same
 * pages, which it has to look at for the horizon.  At most max pages.
 */
static void
cb_dead_ask_killed(CbDead *search, int max)
{
	int			n = 0;
	CbDeadOp	op;

	cb_dead_op_init(&op, search, false);
	qsort(search->blocks, search->nblocks, sizeof(CbDeadBlock),
		  cb_dead_compare_killed);
	for (; n < Min(max, search->nblocks) && search->blocks[n].killed > 0; n++)
	{
		cb_dead_op_add(&op, search, &search->blocks[n]);
		search->blocks[n].asked = true;
	}
	cb_dead_op_ask(&op, search);
	for (int i = 0; i < n; i++)
		(void) cb_dead_op_take(&op, search, &search->blocks[i]);
}

/* The most likely first; those that were asked are last. */
static int
cb_dead_compare_likely(const void *a, const void *b)
{
	const CbDeadBlock *ba = a;
	const CbDeadBlock *bb = b;

	if (ba->asked != bb->asked)
		return ba->asked ? 1 : -1;
	if (ba->weight != bb->weight)
		return bb->weight - ba->weight;
	return ba->block < bb->block ? -1 : 1;
}

/*
 * Asks for likely ones, until target bytes are gained or too many pages were
 * asked in vain; at most max.  One page at a time: the table gives up at the
 * first page without dead rows, and we know better how likely the next one is.
 */
static void
cb_dead_ask_likely(CbDead *search, int max, Size target)
{
	int			useful = 0;
	CbDeadOp	op;

	cb_dead_op_init(&op, search, true);
	qsort(search->blocks, search->nblocks, sizeof(CbDeadBlock),
		  cb_dead_compare_likely);
	for (int i = 0; i < Min(max, search->nblocks); i++)
	{
		CbDeadBlock *block = &search->blocks[i];

		if (block->asked || block->weight == 0 || search->gained >= target ||
			i - useful > useful + CB_DEAD_PATIENCE)
			break;
		if (i + CB_DEAD_PREFETCH < search->nblocks &&
			block[CB_DEAD_PREFETCH].weight > 0)
			(void) PrefetchBuffer(search->kd->heap, MAIN_FORKNUM,
								  block[CB_DEAD_PREFETCH].block);
		op.op.ndeltids = 0;
		cb_dead_op_add(&op, search, block);
		cb_dead_op_ask(&op, search);
		useful += cb_dead_op_take(&op, search, block);
	}
}

/* ---------- dropping ---------- */

static int
cb_dead_compare_places(const void *a, const void *b)
{
	return (int) *(const uint16 *) a - (int) *(const uint16 *) b;
}

/* What is to go from the leaf. */
static void
cb_dead_collect(const CbDead *search, CbDeletable *dead)
{
	dead->nordinals = dead->noffsets = 0;
	for (int i = 0; i < search->n; i++)
	{
		const CbDeadItem *item = &search->items[i];

		if (!item->dead)
			continue;
		if (item->origin == CB_DEAD_PACKED)
			dead->ordinals[dead->nordinals++] = item->number;
		else if (item->origin == CB_DEAD_PLAIN)
			dead->offsets[dead->noffsets++] = item->number;
	}
	qsort(dead->ordinals, dead->nordinals, sizeof(uint16),
		  cb_dead_compare_places);
	qsort(dead->offsets, dead->noffsets, sizeof(OffsetNumber),
		  cb_dead_compare_places);
}

/* The batch's dead entries are not put into the tree. */
static void
cb_dead_mark_batch(const CbDead *search, CbSortEntry *entries)
{
	bool	   *dead = palloc0(search->batch->n + 1);
	int			next = 0;

	for (int i = 0; i < search->n; i++)
	{
		if (search->items[i].dead && search->items[i].origin == CB_DEAD_NEW)
			dead[search->items[i].number] = true;
	}
	for (int i = 0; next < search->batch->n; i++)
	{
		if (entries[i].itup == search->batch->tuples[next])
			entries[i].dead = dead[next++];
	}
}

/*
 * Removes entries, as one atomic action; buf is exclusively locked.  A cleanup
 * lock is not needed: what is removed here is dead to all snapshots, and the
 * TIDs are not given away before VACUUM has been at the leaf (I8).  Cycle ids
 * are VACUUM's: they stay (A11).
 */
static void
cb_dead_delete(const CbKeyDesc *kd, Buffer buf, CbDeletable *dead,
			   TransactionId horizon)
{
	Page		page = BufferGetPage(buf);

	START_CRIT_SECTION();
	cb_leaf_delete(page, dead->ordinals, dead->nordinals, dead->offsets,
				   dead->noffsets);
	cb_rel_mark_dirty(buf);
	if (RelationNeedsWAL(kd->rel))
	{
		xl_cb_leaf_delete xlrec;
		XLogRecPtr	lsn;

		xlrec.horizon = XLogStandbyInfoActive() ? horizon : InvalidTransactionId;
		xlrec.nitems = dead->noffsets;
		xlrec.nordinals = dead->nordinals;
		xlrec.is_decoded = RelationIsAccessibleInLogicalDecoding(kd->heap);
		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfCbLeafDelete);
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
		cb_tree_register_deletable(dead);
		lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_LEAF_DELETE);
		PageSetLSN(page, lsn);
	}
	END_CRIT_SECTION();
}

/*
 * Drops entries that are dead to everyone: from the leaf, which is exclusively
 * locked before and after, as one atomic action, and from the batch, whose
 * entries are marked dead.  entries: those that the batch was made of.
 *
 * True: entries of the leaf or of the batch are gone, and as the places in the
 * batch are old ones it has to be made anew.  False: there were none, not
 * enough reason to look, or cb_dead_begin() did not get the table; nothing has
 * changed.
 *
 * No comparison function runs.  Reads pages of the table, share-locked, with
 * the leaf locked.  Errors, of a damaged leaf or in the table, come before
 * anything is changed.  Takes memory from the current context and leaves it
 * there.  Adds to stats->dropped.
 *
 * Bottom-up deletion as in nbtree, but one page of the table at a time.
 */
bool
cb_dead_drop(const CbKeyDesc *kd, Buffer buf, const CbLeafBatch *batch,
			 CbSortEntry *entries, CbApplyStats *stats)
{
	Page		page = BufferGetPage(buf);
	Size		room = PageGetExactFreeSpace(page);
	Size		need = batch->len + batch->n * sizeof(ItemIdData);
	int			max = CB_DEAD_BLOCKS_MORE + CB_DEAD_BLOCKS_EACH * batch->n;
	CbDead		search = {.kd = kd,.buf = buf,.batch = batch};
	CbDeletable dead;

	if (kd->heap == NULL ||
		!(kd->new_versions || CbPageGetOpaque(page)->flags & CBP_HAS_GARBAGE))
		return false;

	cb_dead_list(&search);
	if (kd->new_versions)
		cb_dead_weigh(&search);
	cb_dead_group(&search);
	if (search.any_killed)
		cb_dead_ask_killed(&search, max);
	if (kd->new_versions)
		cb_dead_ask_likely(&search, max, CB_DEAD_RESERVE +
						   (need > room ? need - room : 0));
	if (search.ndead == 0)
		return false;

	cb_page_check_items(kd->rel, BufferGetBlockNumber(buf), page);
	cb_dead_collect(&search, &dead);
	cb_dead_mark_batch(&search, entries);
	CB_TEST_POINT("dead-before");
	cb_dead_delete(kd, buf, &dead, search.horizon);
	CB_TEST_POINT("dead-after");
	stats->dropped += search.ndead;
	return true;
}

/*
 * Redo of XLOG_CB_LEAF_DELETE: conflicts first, then as the doing side.
 * Queries of a standby that could see a row whose entry goes are ended before
 * it does (U6).
 */
void
cb_redo_leaf_delete(XLogReaderState *record)
{
	xl_cb_leaf_delete *xlrec = (xl_cb_leaf_delete *) XLogRecGetData(record);
	Buffer		buf;
	Page		page;

	if (InHotStandby)
	{
		RelFileLocator file;

		XLogRecGetBlockTag(record, 0, &file, NULL, NULL);
		ResolveRecoveryConflictWithSnapshot(xlrec->horizon, xlrec->is_decoded, file);
	}
	page = cb_redo_begin(record, 0, CBP_LEAF, &buf);
	if (page != NULL)
		cb_tree_redo_deletable(record, page, xlrec->nordinals, xlrec->nitems);
	cb_redo_end(record, page, buf);
}
