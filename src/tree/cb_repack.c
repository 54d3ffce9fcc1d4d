/*-------------------------------------------------------------------------
 *
 * cb_repack.c
 *	  Packing a leaf that has no room for its new entries.
 *
 * All entries of the leaf and the new ones are merged and encoded as the
 * leaf's packed part.  The record tells the places of the plain and the new
 * entries in the result, so redo decodes, merges by place and encodes, and
 * compares nothing; the codec is a function of the entries alone, so that it
 * comes to the same bytes.
 *
 * Entries move within their page only, under its exclusive lock, and second
 * copies alone go: so a scan's pin protects what it did, the page keeps its
 * cycle id, and LP_DEAD hints find entries by their TIDs.  What they mark is
 * dropped before, if the table can be asked (cb_dead.c); else packing forgets
 * them, in replay too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "storage/bufmgr.h"
#include "tree/cb_tree.h"
#include "utils/memutils.h"

/*
 * A leaf of n entries that would have less room left is split: next time soon
 * comes, and costs the more the more entries there are.
 */
#define CB_REPACK_RESERVE(n)	((Size) Max(256, (n) / 4))

/* ---------- merging by comparison ---------- */

/*
 * what goes on top of the packed part: plain and new entries, as one sequence
 */
typedef struct CbRepackMerge
{
	const CbKeyDesc *kd;
	const CbLeafBatch *batch;
	CbRepack   *repack;
	int			npacked;
	IndexTuple *packed;
	int			next_packed;
	int			n;
	IndexTuple *items;
} CbRepackMerge;

/*
 * Moves the packed part's entries below itup to the result.  True: the next
 * one is itup itself.  The search is that of cb_apply_count_covered().
 */
static bool
cb_repack_advance(CbRepackMerge *m, IndexTuple itup)
{
	int			low = m->next_packed;
	int			high = m->npacked;
	int			step = 1;
	bool		found = false;

	/* gallop, then halve: new entries are few and spread out */
	while (low + step <= high &&
		   cb_key_compare(m->kd, m->packed[low + step - 1], itup) < 0)
	{
		low += step;
		step *= 2;
	}
	high = Min(high, low + step - 1);
	while (low < high)
	{
		int			mid = low + (high - low) / 2;

		if (cb_key_compare(m->kd, m->packed[mid], itup) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < m->npacked)
		found = cb_key_compare(m->kd, m->packed[low], itup) == 0;
	memcpy(m->items + m->n, m->packed + m->next_packed,
		   (low - m->next_packed) * sizeof(IndexTuple));
	m->n += low - m->next_packed;
	m->next_packed = low;
	return found;
}

/*
 * Adds a plain entry of the leaf; one that the packed part has as well is
 * dropped (U15).
 */
static void
cb_repack_add_plain(CbRepackMerge *m, IndexTuple itup)
{
	CbRepack   *repack = m->repack;

	if (cb_repack_advance(m, itup))
	{
		repack->plain_at[repack->nplain++] = CB_PLACE_DROP;
		return;
	}
	repack->plain_at[repack->nplain++] = m->n;
	m->items[m->n++] = itup;
}

/*
 * Adds a new entry, unless the packed part has it already (I5).  The kept ones
 * among the batch's entries are moved to its front.
 */
static void
cb_repack_add_new(CbRepackMerge *m, IndexTuple itup)
{
	CbRepack   *repack = m->repack;

	if (cb_repack_advance(m, itup))
		return;
	m->batch->tuples[repack->nnew] = itup;
	repack->new_at[repack->nnew++] = m->n;
	m->items[m->n++] = itup;
}

/*
 * Merges a copy of a leaf, block blkno, with a batch: all entries in order in
 * *items, and their number; and in repack the places for the record.  The
 * batch loses entries that the leaf's packed part has already: batch->n and
 * the front of its tuples are what remains.
 *
 * The entries of the packed part are in the arena's memory, others where they
 * stand, in the copy or the batch; so these have to stay.  Comparison
 * functions run.  An error if the leaf is damaged; nothing but the batch is
 * changed.
 */
int
cb_repack_merge(const CbKeyDesc *kd, BlockNumber blkno, Page page,
				CbLeafBatch *batch, CbArena *arena, CbRepack *repack,
				IndexTuple **items)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	OffsetNumber first = CbPageFirstPlain(page);
	int			nplain = max + 1 - first;
	CbRepackMerge m = {.kd = kd,.batch = batch,.repack = repack};
	CbLeaf		leaf;
	int			next = 0;

	if (!cb_leaf_open(&leaf, page, cb_sound_desc(kd->rel)))
		cb_leaf_report_damaged(kd->rel, blkno);
	m.npacked = leaf.npacked;
	m.packed = cb_arena_alloc(arena, sizeof(IndexTuple) * (leaf.npacked + 1));
	m.items = cb_arena_alloc(arena, sizeof(IndexTuple) *
							 (leaf.npacked + nplain + batch->n));
	repack->plain_at = cb_arena_alloc(arena, sizeof(uint16) * (nplain + 1));
	repack->new_at = cb_arena_alloc(arena, sizeof(uint16) * (batch->n + 1));
	repack->nplain = repack->nnew = 0;
	if (!cb_leaf_read_all(&leaf, arena, m.packed))
		cb_leaf_report_damaged(kd->rel, blkno);

	for (OffsetNumber off = first; off <= max; off = OffsetNumberNext(off))
	{
		IndexTuple	plain = cb_page_get_entry(page, off);

		if (plain == NULL)
			cb_page_report_entry(kd->rel, blkno, off);
		while (next < batch->n && batch->offsets[next] == off)
			cb_repack_add_new(&m, batch->tuples[next++]);
		cb_repack_add_plain(&m, plain);
	}
	while (next < batch->n)
		cb_repack_add_new(&m, batch->tuples[next++]);
	memcpy(m.items + m.n, m.packed + m.next_packed,
		   (m.npacked - m.next_packed) * sizeof(IndexTuple));
	batch->n = repack->nnew;
	*items = m.items;
	return m.n + m.npacked - m.next_packed;
}

/* ---------- the action ---------- */

/*
 * Logs the action within its critical section: places and new entries, no
 * image.
 */
static void
cb_repack_log(Buffer buf, const CbRepack *repack)
{
	xl_cb_leaf_pack xlrec = {.nplain = repack->nplain,.nnew = repack->nnew};
	XLogRecPtr	lsn;

	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbLeafPack);
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
	XLogRegisterBufData(0, (char *) repack->plain_at,
						repack->nplain * sizeof(uint16));
	XLogRegisterBufData(0, (char *) repack->new_at,
						repack->nnew * sizeof(uint16));
	XLogRegisterBufData(0, unconstify(char *, repack->tuples),
						repack->tuples_len);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_LEAF_PACK);
	PageSetLSN(BufferGetPage(buf), lsn);
}

/*
 * The new entries one behind the other, as the record has them, in the arena's
 * memory: all that needs memory comes before the critical section.
 */
static void
cb_repack_fill_tuples(const CbLeafBatch *batch, CbArena *arena, CbRepack *repack)
{
	char	   *at;

	repack->tuples_len = 0;
	for (int i = 0; i < repack->nnew; i++)
		repack->tuples_len += MAXALIGN(IndexTupleSize(batch->tuples[i]));
	at = cb_arena_alloc(arena, repack->tuples_len);
	repack->tuples = at;
	for (int i = 0; i < repack->nnew; i++)
		at += cb_page_copy_tuple(at, batch->tuples[i]);
}

/*
 * Packs the leaf with these entries, which cb_repack_merge() has made of it,
 * as one atomic action.  False, and nothing has changed: they do not fit with
 * some room to spare, or are not to be packed.
 *
 * buf is exclusively locked, before and after.  No comparison function runs.
 */
bool
cb_repack_leaf(Relation rel, Buffer buf, const CbLeafBatch *batch,
			   CbArena *arena, CbRepack *repack, IndexTuple *items, int n)
{
	Page		page = BufferGetPage(buf);
	PGAlignedBlock image;

	if (!cb_packs_leaves(rel) || !cb_leaf_can_pack(items, n) ||
		!cb_leaf_build(page, items, n, CB_REPACK_RESERVE(n), (Page) image.data))
		return false;
	cb_repack_fill_tuples(batch, arena, repack);

	CB_TEST_POINT("repack-before");
	START_CRIT_SECTION();
	memcpy(page, image.data, BLCKSZ);
	cb_rel_mark_dirty(buf);
	if (RelationNeedsWAL(rel))
		cb_repack_log(buf, repack);
	END_CRIT_SECTION();
	CB_TEST_POINT("repack-after");
	return true;
}

/* The page after the record; false: that cannot be, so it is damaged. */
static bool
cb_redo_repack_page(Page page, const CbRepack *repack)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch redo",
											  ALLOCSET_DEFAULT_SIZES);
	PGAlignedBlock image;
	CbArena		arena;
	IndexTuple *items;
	int			n;
	bool		done;

	cb_arena_init(&arena, cxt);
	n = cb_leaf_merge(page, repack, &arena, &items);
	done = n > 0 && cb_leaf_can_pack(items, n) &&
		cb_leaf_build(page, items, n, 0, (Page) image.data);
	if (done)
		memcpy(page, image.data, BLCKSZ);
	MemoryContextDelete(cxt);
	return done;
}

/*
 * Redo of XLOG_CB_LEAF_PACK: merges by place what the record says, and encodes
 * it as the doing side did.
 */
void
cb_redo_leaf_pack(XLogReaderState *record)
{
	xl_cb_leaf_pack *xlrec = (xl_cb_leaf_pack *) XLogRecGetData(record);
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_LEAF, &buf);

	if (page != NULL)
	{
		Size		places = (xlrec->nplain + xlrec->nnew) * sizeof(uint16);
		Size		len;
		char	   *data = XLogRecGetBlockData(record, 0, &len);
		uint16	   *at = palloc(places + 1);
		char	   *tuples = palloc(len - places + 1);
		CbRepack	repack = {.nplain = xlrec->nplain,.nnew = xlrec->nnew};

		/* the record's data is not aligned */
		memcpy(at, data, places);
		memcpy(tuples, data + places, len - places);
		repack.plain_at = at;
		repack.new_at = at + xlrec->nplain;
		repack.tuples = tuples;
		repack.tuples_len = len - places;
		cb_redo_require(record, 0, cb_redo_repack_page(page, &repack));
		pfree(at);
		pfree(tuples);
	}
	cb_redo_end(record, page, buf);
}
