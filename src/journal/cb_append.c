/*-------------------------------------------------------------------------
 *
 * cb_append.c
 *	  Appending entries to the journal.
 *
 * The exclusive content lock of the last page is the append lane.  All that
 * can fail comes before the critical section (I6): a fresh page is obtained
 * before the lane, and its pin kept, but not its lock: the way to the last page
 * may lead over that very page, or over another backend's, if the page that we
 * remember was truncated meanwhile.  It is locked again under the lane, only
 * if that needs no wait (it may have become the last page), and seen to be
 * still free (M7).  No disk read or extension happens under the lane.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "access/xlogutils.h"
#include "base/cb_base.h"
#include "journal/cb_journal.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/indexfsm.h"
#include "wal/cb_wal.h"

/* entries of a batch that go to one page, as the bytes that it will hold */
typedef struct CbAppendChunk
{
	int			n;
	Size		len;
	PGAlignedBlock data;
} CbAppendChunk;

static void
cb_append_report_corrupt(Relation rel, BlockNumber blkno, uint64 seq)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("page %u of index \"%s\" is not page " UINT64_FORMAT " of its journal",
					blkno, RelationGetRelationName(rel), seq),
			 errhint("Please REINDEX it.")));
}

static Size
cb_append_page_room(Page page)
{
	return CB_JOURNAL_END - ((PageHeader) page)->pd_lower;
}

/* Collect as many of the entries as fit into room. */
static void
cb_append_fill_chunk(CbAppendChunk *chunk, CbSortEntry *entries, int n, Size room)
{
	chunk->n = 0;
	chunk->len = 0;
	while (chunk->n < n)
	{
		IndexTuple	itup = entries[chunk->n].itup;
		Size		size = IndexTupleSize(itup);

		if (chunk->len + MAXALIGN(size) > room)
			break;
		memcpy(chunk->data.data + chunk->len, itup, size);
		memset(chunk->data.data + chunk->len + size, 0, MAXALIGN(size) - size);
		chunk->len += MAXALIGN(size);
		chunk->n++;
	}
}

/*
 * Append a chunk, as one atomic action.  prev: the last page, if buf is a new
 * one; meta: the metapage, if buf is the index's first journal page; else
 * InvalidBuffer.  All are exclusively locked.
 */
static void
cb_append_chunk(Relation rel, Buffer buf, uint64 seq, CbAppendChunk *chunk,
				Buffer prev, Buffer meta)
{
	Page		page = BufferGetPage(buf);
	bool		is_new = BufferIsValid(prev) || BufferIsValid(meta);

	CB_TEST_POINT("journal-append-before");
	START_CRIT_SECTION();
	if (is_new)
		cb_page_init_journal(page, seq);
	cb_page_append_journal(page, chunk->data.data, chunk->len);
	MarkBufferDirty(buf);
	if (BufferIsValid(prev))
	{
		CbPageGetOpaque(BufferGetPage(prev))->next = BufferGetBlockNumber(buf);
		MarkBufferDirty(prev);
	}
	if (BufferIsValid(meta))
	{
		CbMetaPageData *metad = CbPageGetMeta(BufferGetPage(meta));

		metad->journal_tail_block = BufferGetBlockNumber(buf);
		MarkBufferDirty(meta);
	}
	if (RelationNeedsWAL(rel))
	{
		xl_cb_journal_append xlrec;
		XLogRecPtr	lsn;

		xlrec.seq = seq;
		xlrec.is_new = is_new;
		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfCbJournalAppend);

		/*
		 * A new page needs no image.  A later append may need one, if a
		 * checkpoint came in between (A13).
		 */
		XLogRegisterBuffer(0, buf, is_new ? REGBUF_WILL_INIT | REGBUF_STANDARD :
#ifdef CB_MUTATE_A13_IMAGE
						   REGBUF_NO_IMAGE |
#endif
						   REGBUF_STANDARD);
		XLogRegisterBufData(0, chunk->data.data, chunk->len);
		if (BufferIsValid(prev))
			XLogRegisterBuffer(1, prev, REGBUF_STANDARD);
		if (BufferIsValid(meta))
			XLogRegisterBuffer(2, meta, REGBUF_STANDARD);
		lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_JOURNAL_APPEND);
		PageSetLSN(page, lsn);
		if (BufferIsValid(prev))
			PageSetLSN(BufferGetPage(prev), lsn);
		if (BufferIsValid(meta))
			PageSetLSN(BufferGetPage(meta), lsn);
	}
	END_CRIT_SECTION();
	CB_TEST_POINT("journal-append-after");
}

/* Redo of XLOG_CB_JOURNAL_APPEND. */
void
cb_redo_journal_append(XLogReaderState *record)
{
	xl_cb_journal_append *xlrec = (xl_cb_journal_append *) XLogRecGetData(record);
	BlockNumber blkno;
	Buffer		buf;
	bool		redo = true;

	XLogRecGetBlockTag(record, 0, NULL, NULL, &blkno);
	if (xlrec->is_new)
		buf = XLogInitBufferForRedo(record, 0);
	else
		redo = XLogReadBufferForRedo(record, 0, &buf) == BLK_NEEDS_REDO;
	if (redo)
	{
		Page		page = BufferGetPage(buf);
		Size		len;
		char	   *data = XLogRecGetBlockData(record, 0, &len);

		if (xlrec->is_new)
			cb_page_init_journal(page, xlrec->seq);
		cb_page_append_journal(page, data, len);
		PageSetLSN(page, record->EndRecPtr);
		MarkBufferDirty(buf);
	}
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);

	/* only now is the page reachable */
	for (int i = 1; i <= 2; i++)
	{
		if (!XLogRecHasBlockRef(record, i))
			continue;
		if (XLogReadBufferForRedo(record, i, &buf) == BLK_NEEDS_REDO)
		{
			Page		page = BufferGetPage(buf);

			if (i == 1)
				CbPageGetOpaque(page)->next = blkno;
			else
				CbPageGetMeta(page)->journal_tail_block = blkno;
			PageSetLSN(page, record->EndRecPtr);
			MarkBufferDirty(buf);
		}
		if (BufferIsValid(buf))
			UnlockReleaseBuffer(buf);
	}
}

/* ---------- finding the last page ---------- */

/*
 * The first journal page of an index.  Returns false if another backend made
 * it meanwhile.
 */
static bool
cb_append_first_page(Relation rel, CbAppendChunk *chunk)
{
	Buffer		buf = cb_tree_alloc_page(rel);
	Buffer		meta_buf = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	CbMetaPageData *meta;
	CbRelCache *cache;

	LockBuffer(meta_buf, BUFFER_LOCK_EXCLUSIVE);
	meta = cb_page_check_meta(rel, BufferGetPage(meta_buf));
	if (meta->journal_tail_block != InvalidBlockNumber)
	{
		UnlockReleaseBuffer(meta_buf);
		cb_tree_return_page(rel, buf);
		return false;
	}
	cb_append_chunk(rel, buf, CbPosSeq(meta->journal_tail), chunk,
					InvalidBuffer, meta_buf);

	cache = cb_rel_cache(rel);
	cache->journal_block = BufferGetBlockNumber(buf);
	cache->journal_seq = CbPosSeq(meta->journal_tail);
	UnlockReleaseBuffer(meta_buf);
	UnlockReleaseBuffer(buf);
	return true;
}

/*
 * Go to a page of the journal and from there to the last one, and lock it
 * exclusively.  InvalidBuffer if the page was recycled: begin again from the
 * tail.
 */
static Buffer
cb_append_find_last(Relation rel, BlockNumber blkno, uint64 *seq)
{
	for (;;)
	{
		Buffer		buf = ReadBuffer(rel, blkno);
		Page		page = BufferGetPage(buf);

		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		if (!PageIsNew(page))
			cb_page_check(rel, blkno, page);
		if (PageIsNew(page) || !CbPageIsJournal(page) ||
			CbJournalGetHeader(page)->seq != *seq)
		{
			UnlockReleaseBuffer(buf);
			return InvalidBuffer;
		}
		if (((PageHeader) page)->pd_lower < CB_JOURNAL_FIRST ||
			((PageHeader) page)->pd_lower > CB_JOURNAL_END)
			cb_append_report_corrupt(rel, blkno, *seq);
		blkno = CbPageGetOpaque(page)->next;
		if (blkno == InvalidBlockNumber)
			return buf;
		(*seq)++;
		UnlockReleaseBuffer(buf);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Lock the last page of the journal: the lane.  InvalidBuffer if the index
 * has no journal page yet.
 */
static Buffer
cb_append_lock_last(Relation rel, uint64 *seq)
{
	CbRelCache *cache = cb_rel_cache(rel);
	Buffer		buf;
	CbMetaPageData meta;

	if (cache->journal_block != InvalidBlockNumber)
	{
		*seq = cache->journal_seq;
		buf = cb_append_find_last(rel, cache->journal_block, seq);
		if (BufferIsValid(buf))
			return buf;
	}

	/* the tail may move on while we go to it, but not for ever */
	for (int tries = 0; tries < 1000; tries++)
	{
		cb_tree_read_meta(rel, NULL, &meta);
		if (meta.journal_tail_block == InvalidBlockNumber)
			return InvalidBuffer;
		*seq = CbPosSeq(meta.journal_tail);
		buf = cb_append_find_last(rel, meta.journal_tail_block, seq);
		if (BufferIsValid(buf))
			return buf;
	}
	cb_append_report_corrupt(rel, meta.journal_tail_block,
							 CbPosSeq(meta.journal_tail));
	return InvalidBuffer;		/* keep compiler quiet */
}

static void
cb_append_remember(Relation rel, Buffer buf, uint64 seq)
{
	CbRelCache *cache = cb_rel_cache(rel);

	cache->journal_block = BufferGetBlockNumber(buf);
	cache->journal_seq = seq;
}

/* Lock a fresh page under the lane.  False: it cannot be used any more. */
static bool
cb_append_claim(Buffer fresh, CbPos tail)
{
	if (!ConditionalLockBuffer(fresh))
		return false;
	if (cb_tree_page_is_free(BufferGetPage(fresh), tail))
		return true;
	LockBuffer(fresh, BUFFER_LOCK_UNLOCK);
	return false;
}

/*
 * Append what fits of the entries.  fresh: a pinned page to go on with if the
 * last one is full, or InvalidBuffer, and a tail below which it was free.
 * *fresh is released and set to InvalidBuffer when it is used or turns out not
 * to be free.  Returns the number of entries appended: 0 asks for a fresh page.
 */
static int
cb_append_some(Relation rel, CbSortEntry *entries, int n, Buffer *fresh,
			   CbPos tail)
{
	CbAppendChunk chunk;
	uint64		seq;
	Buffer		last = cb_append_lock_last(rel, &seq);

	if (!BufferIsValid(last))
	{
		cb_append_fill_chunk(&chunk, entries, n, CB_JOURNAL_END - CB_JOURNAL_FIRST);
		return cb_append_first_page(rel, &chunk) ? chunk.n : 0;
	}

	cb_append_fill_chunk(&chunk, entries, n, cb_append_page_room(BufferGetPage(last)));
	if (chunk.n > 0)
	{
		cb_append_chunk(rel, last, seq, &chunk, InvalidBuffer, InvalidBuffer);
		cb_append_remember(rel, last, seq);
	}
	else if (BufferIsValid(*fresh) && !cb_append_claim(*fresh, tail))
	{
		/* the map is only a hint, should it be in use by now */
		RecordFreeIndexPage(rel, BufferGetBlockNumber(*fresh));
		ReleaseBuffer(*fresh);
		*fresh = InvalidBuffer;
	}
	else if (BufferIsValid(*fresh))
	{
		cb_append_fill_chunk(&chunk, entries, n, CB_JOURNAL_END - CB_JOURNAL_FIRST);
		CB_TEST_POINT("journal-newpage");
		cb_append_chunk(rel, *fresh, seq + 1, &chunk, last, InvalidBuffer);
		cb_append_remember(rel, *fresh, seq + 1);
		UnlockReleaseBuffer(*fresh);
		*fresh = InvalidBuffer;
	}
	UnlockReleaseBuffer(last);
	return chunk.n;
}

/* The journal's length, in bytes, as far as this backend knows. */
static uint64
cb_append_journal_length(Relation rel)
{
	CbRelCache *cache = cb_rel_cache(rel);
	uint64		tail_seq = CbPosSeq(cache->journal_tail);

	/* a sweep may have passed the last page that we know */
	if (cache->journal_seq < tail_seq)
		return 0;
	return (cache->journal_seq + 1 - tail_seq) * BLCKSZ;
}

/*
 * Append n entries, in the order given.  Returns the length of the journal
 * afterwards, in bytes.  The caller holds RowExclusiveLock on the index and
 * no LWLock.  After an error a prefix of the entries may have been appended.
 */
uint64
cb_journal_append(Relation rel, CbSortEntry *entries, int n)
{
	uint64		length;
	int			done = 0;

	while (done < n)
	{
		Buffer		fresh = InvalidBuffer;
		int			appended = cb_append_some(rel, entries + done, n - done, &fresh, 0);

		if (appended == 0)
		{
			CbMetaPageData meta;

			fresh = cb_tree_alloc_page(rel);
			LockBuffer(fresh, BUFFER_LOCK_UNLOCK);
			cb_tree_read_meta(rel, NULL, &meta);
			appended = cb_append_some(rel, entries + done, n - done, &fresh,
									  meta.journal_tail);
			if (BufferIsValid(fresh))
			{
				RecordFreeIndexPage(rel, BufferGetBlockNumber(fresh));
				ReleaseBuffer(fresh);
			}
		}
		done += appended;
		CHECK_FOR_INTERRUPTS();
	}

	length = cb_append_journal_length(rel);
	if (length > (uint64) cb_journal_limit * 1024)
	{
		CbMetaPageData meta;

		/* the tail that we know may be an old one */
		cb_tree_read_meta(rel, NULL, &meta);
		length = cb_append_journal_length(rel);
	}
	return length;
}
