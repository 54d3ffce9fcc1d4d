/*-------------------------------------------------------------------------
 *
 * cb_redo.c
 *	  What redo does around the change of a page.
 *
 * A redo function takes a block of its record by cb_redo_begin(), changes the
 * page if there is one to change, and gives it back by cb_redo_end().  It
 * locks one page at a time in this way, as readers of a standby do.  A record
 * whose pages have to stay locked until all have changed (XLOG_CB_UNLINK,
 * XLOG_CB_REDISTRIBUTE) marks each by cb_redo_mark(), or takes its image, and
 * releases them in the end.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlogutils.h"
#include "page/cb_wal.h"
#include "storage/bufmgr.h"

/*
 * Begins the redo of a block: the page, which is to be changed as the record
 * says; NULL if it is as the record leaves it, or does not exist any more.
 * *buf is pinned and exclusively locked, or InvalidBuffer.  In recovery only,
 * as all that is called cb_redo_*.
 */
Page
cb_redo_begin(XLogReaderState *record, uint8 block, Buffer *buf)
{
	return XLogReadBufferForRedo(record, block, buf) == BLK_NEEDS_REDO ?
		BufferGetPage(*buf) : NULL;
}

/*
 * The same for a page that the record makes anew, whatever it was before;
 * never NULL.
 */
Page
cb_redo_begin_init(XLogReaderState *record, uint8 block, Buffer *buf)
{
	*buf = XLogInitBufferForRedo(record, block);
	return BufferGetPage(*buf);
}

/*
 * The page is as the record leaves it: sets its LSN and marks the buffer
 * dirty.  It stays pinned and locked.
 */
void
cb_redo_mark(XLogReaderState *record, Page page, Buffer buf)
{
	PageSetLSN(page, record->EndRecPtr);
	MarkBufferDirty(buf);
}

/*
 * Ends what cb_redo_begin() began, whose result page is: releases the buffer,
 * if there is one.
 */
void
cb_redo_end(XLogReaderState *record, Page page, Buffer buf)
{
	if (page != NULL)
		cb_redo_mark(record, page, buf);
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);
}

/*
 * Redo of a block that the record has in full, as it always does: nothing else
 * says what the page looks like.  Returns it pinned and exclusively locked.  A
 * record without the image ends the server.
 */
Buffer
cb_redo_image(XLogReaderState *record, uint8 block)
{
	Buffer		buf;

	if (XLogReadBufferForRedo(record, block, &buf) != BLK_RESTORED)
		elog(PANIC, "cache_batch: a WAL record has no image of its block %u",
			 block);
	return buf;
}

/*
 * Redo of the part that several records share: blocks first_block ... were
 * pages whose right sibling has its downlink now.  No buffer stays pinned.
 */
void
cb_redo_clear_incomplete(XLogReaderState *record, uint8 first_block,
						 int nchildren)
{
	for (int i = 0; i < nchildren; i++)
	{
		Buffer		buf;
		Page		page = cb_redo_begin(record, first_block + i, &buf);

		if (page != NULL)
			cb_page_clear_incomplete(page);
		cb_redo_end(record, page, buf);
	}
}
