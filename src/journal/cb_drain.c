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
 * The pages that a truncation leaves are not changed: their numbers tell that
 * they are free.  They go to the free space map after the record; whoever takes
 * one looks at the tail (A13).  What a crash keeps out of the map VACUUM finds.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "journal/cb_read.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "rel/cb_alloc.h"
#include "storage/bufmgr.h"

/*
 * Read everything from the tail to the head as it is now, or to the limit,
 * into the current memory context, to which the batch's arrays and the
 * entries' bytes belong.  The caller holds the sweep lock and no LWLock.
 * Raises an error if the journal is broken: nobody else can have moved the
 * tail.  No comparison runs.
 */
void
cb_journal_read_all(const CbKeyDesc *kd, CbPos limit, CbJournalBatch *batch)
{
	CbMetaPageData meta;
	CbReader	reader;

	cb_rel_read_meta(kd->rel, NULL, &meta);
	memset(batch, 0, sizeof(CbJournalBatch));
	batch->from = batch->upto = meta.journal_tail;
	batch->upto_block = meta.journal_tail_block;
	if (meta.journal_tail_block == InvalidBlockNumber ||
		meta.journal_tail >= limit)
		return;

	cb_read_begin(&reader, kd->rel, CurrentMemoryContext, meta.journal_tail,
				  meta.journal_tail_block, limit);
	if (!cb_read_to_head(kd, &reader, NULL))
		cb_walk_report_broken(&reader.walk);
	batch->upto = reader.pos;
	batch->upto_block = reader.walk.block;
	batch->npages = reader.nleft;
	batch->pages = reader.left;
	batch->n = reader.n;
	batch->entries = reader.entries;
}

/*
 * Sets the tail and its page; both or neither, for readers.  The metapage is
 * locked exclusively, in a critical section, or replayed.
 */
static void
cb_drain_set_tail(Page page, CbPos tail, BlockNumber tail_block)
{
	CbMetaPageData *meta = CbPageGetMeta(page);

	meta->journal_tail = tail;
	meta->journal_tail_block = tail_block;
}

/*
 * Logs the new tail.  Within the critical section that has changed the metapage,
 * which is locked; the page's LSN is set.
 */
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
 * Move the tail behind a batch whose entries are all in the tree or in runs, in WAL, and
 * put the pages that it leaves into the free space map.  Sorts the batch's
 * pages.
 *
 * The caller holds the sweep lock and no LWLock; the metapage is locked
 * exclusively for a moment.  Raises an error, and changes nothing, if the tail
 * is not where the batch begins.
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

	cb_rel_free_pages(rel, batch->pages, batch->npages, false);
}

/*
 * Move the tail to a position between it and the head, below which all entries
 * are in the tree or in runs.  The caller holds the sweep lock and no LWLock.
 * False: the tail is there already, or beyond.  Goes along the pages that it
 * leaves, and raises an error if they do not lead there; nothing is changed
 * then.
 */
bool
cb_journal_truncate_to(Relation rel, CbPos pos)
{
	CbJournalWalk walk;
	CbJournalBatch batch = {0};

	cb_walk_begin_at_tail(&walk, rel);
	if (pos <= walk.tail || walk.block == InvalidBlockNumber)
		return false;
	batch.from = walk.tail;
	batch.upto = pos;
	batch.pages = MemoryContextAllocHuge(CurrentMemoryContext,
										 (CbPosSeq(pos) - walk.seq + 1) * sizeof(BlockNumber));
	while (walk.seq < CbPosSeq(pos))
	{
		if (cb_walk_lock(&walk) == NULL)
			cb_walk_report_broken(&walk);
		cb_walk_unlock(&walk);
		if (walk.next == InvalidBlockNumber)
			cb_report_corrupt(rel, walk.block,
							  "The journal ends before page " UINT64_FORMAT ".",
							  CbPosSeq(pos));
		batch.pages[batch.npages++] = walk.block;
		cb_walk_step(&walk);
	}
	batch.upto_block = walk.block;
	cb_journal_truncate(rel, &batch);
	pfree(batch.pages);
	return true;
}

/*
 * Redo of XLOG_CB_JOURNAL_TRUNCATE: the metapage alone.  The pages are changed
 * by whoever uses them again.
 */
void
cb_redo_journal_truncate(XLogReaderState *record)
{
	xl_cb_journal_truncate *xlrec = (xl_cb_journal_truncate *) XLogRecGetData(record);
	Buffer		buf;
	Page		page = cb_redo_begin(record, 0, CBP_META, &buf);

	if (page != NULL)
		cb_drain_set_tail(page, xlrec->tail, xlrec->tail_block);
	cb_redo_end(record, page, buf);
}
