/*-------------------------------------------------------------------------
 *
 * cb_drain.c
 *	  Reading the whole journal for a sweep, and truncating it afterwards.
 *
 * Both run under LockPage(index, 1), which keeps other sweeps out, so the
 * tail stands still in between.  The truncation's WAL record comes after those
 * of all leaves that got the entries (I1), and before VACUUM removes anything
 * (I4).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "journal/cb_read.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "storage/bufmgr.h"

/*
 * Read everything from the tail to the head as it is now, or to the limit,
 * into the current memory context.
 */
void
cb_journal_read_all(const CbKeyDesc *kd, CbPos limit, CbJournalBatch *batch)
{
	CbMetaPageData meta;
	CbReader	reader;

	cb_tree_read_meta(kd->rel, NULL, &meta);
	memset(batch, 0, sizeof(CbJournalBatch));
	batch->from = batch->upto = meta.journal_tail;
	batch->upto_block = meta.journal_tail_block;
	if (meta.journal_tail_block == InvalidBlockNumber ||
		meta.journal_tail >= limit)
		return;

	cb_read_begin(&reader, CurrentMemoryContext, meta.journal_tail,
				  meta.journal_tail_block, limit);
	if (!cb_read_to_head(kd, &reader, NULL))
		cb_report_corrupt(kd->rel, reader.block,
						  "It is not journal page " UINT64_FORMAT ".",
						  CbPosSeq(reader.pos));
	batch->upto = reader.pos;
	batch->upto_block = reader.block;
	batch->npages = reader.nleft;
	batch->pages = reader.left;
	batch->n = reader.n;
	batch->entries = reader.entries;
}

static void
cb_drain_set_tail(Page page, CbPos tail, BlockNumber tail_block)
{
	CbMetaPageData *meta = CbPageGetMeta(page);

	meta->journal_tail = tail;
	meta->journal_tail_block = tail_block;
}

static void
cb_drain_log(Buffer buf, CbPos tail, BlockNumber tail_block)
{
	xl_cb_journal_truncate xlrec = {0};
	XLogRecPtr	lsn;

	xlrec.tail = tail;
	xlrec.tail_block = tail_block;
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbJournalTruncate);
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
	lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_JOURNAL_TRUNCATE);
	PageSetLSN(BufferGetPage(buf), lsn);
}

/*
 * Move the tail behind a batch whose entries are all in the tree, and put the
 * pages that it leaves into the free space map.  Sorts the batch's pages.
 */
void
cb_journal_truncate(Relation rel, const CbJournalBatch *batch)
{
	Buffer		buf;
	Page		page;

	if (batch->upto == batch->from)
		return;

	buf = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(buf);
	if (cb_page_check_meta(rel, page)->journal_tail != batch->from)
		elog(ERROR, "cache_batch: the journal of index \"%s\" was truncated by another sweep",
			 RelationGetRelationName(rel));

	START_CRIT_SECTION();
	cb_drain_set_tail(page, batch->upto, batch->upto_block);
	MarkBufferDirty(buf);
	if (RelationNeedsWAL(rel))
		cb_drain_log(buf, batch->upto, batch->upto_block);
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buf);
	cb_rel_cache(rel)->journal_tail = batch->upto;
	CB_TEST_POINT("sweep-truncated");

	cb_tree_free_pages(rel, batch->pages, batch->npages);
}

/* The right link of a journal page that lies between tail and head. */
static BlockNumber
cb_drain_next(Relation rel, BlockNumber blkno, uint64 seq)
{
	Buffer		buf = ReadBuffer(rel, blkno);
	Page		page = BufferGetPage(buf);
	BlockNumber next = InvalidBlockNumber;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (!PageIsNew(page) && CbPageGetOpaque(page)->page_id == CB_PAGE_ID &&
		CbPageIsJournal(page) && CbJournalGetHeader(page)->seq == seq)
		next = CbPageGetOpaque(page)->next;
	UnlockReleaseBuffer(buf);
	if (next == InvalidBlockNumber)
		cb_report_corrupt(rel, blkno, "It is not journal page " UINT64_FORMAT ".",
						  seq);
	return next;
}

/*
 * Move the tail to a position between it and the head, below which all
 * entries are in the tree.  The caller holds the sweep lock.  False: the tail
 * is there already.
 */
bool
cb_journal_truncate_to(Relation rel, CbPos pos)
{
	CbMetaPageData meta;
	CbJournalBatch batch = {0};
	uint64		seq;

	cb_tree_read_meta(rel, NULL, &meta);
	if (pos <= meta.journal_tail ||
		meta.journal_tail_block == InvalidBlockNumber)
		return false;
	seq = CbPosSeq(meta.journal_tail);
	batch.from = meta.journal_tail;
	batch.upto = pos;
	batch.upto_block = meta.journal_tail_block;
	batch.pages = MemoryContextAllocHuge(CurrentMemoryContext,
										 (CbPosSeq(pos) - seq + 1) * sizeof(BlockNumber));
	for (; seq < CbPosSeq(pos); seq++)
	{
		batch.pages[batch.npages++] = batch.upto_block;
		batch.upto_block = cb_drain_next(rel, batch.upto_block, seq);
		CHECK_FOR_INTERRUPTS();
	}
	cb_journal_truncate(rel, &batch);
	pfree(batch.pages);
	return true;
}

/* Redo of XLOG_CB_JOURNAL_TRUNCATE. */
void
cb_redo_journal_truncate(XLogReaderState *record)
{
	xl_cb_journal_truncate *xlrec = (xl_cb_journal_truncate *) XLogRecGetData(record);
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, &buf);

	if (page != NULL)
		cb_drain_set_tail(page, xlrec->tail, xlrec->tail_block);
	cb_redo_end(record, page, buf);
}
