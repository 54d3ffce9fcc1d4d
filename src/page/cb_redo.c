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
#include "page/cb_range_page.h"
#include "page/cb_wal.h"
#include "storage/bufmgr.h"

/*
 * Copies a record's main data, of this size now; what a record of an earlier
 * version lacks at its end becomes 0.
 */
void
cb_redo_read_data(XLogReaderState *record, void *data, Size size)
{
	memset(data, 0, size);
	memcpy(data, XLogRecGetData(record), Min(size, XLogRecGetDataLen(record)));
}

/*
 * Ends recovery, and so the server, unless the page of the block is such as the
 * record needs.  Pages on disk may be damaged; to change one at places that are
 * not in it would damage what lies beside it in memory.
 */
void
cb_redo_require(XLogReaderState *record, uint8 block, bool sound)
{
	RelFileLocator file;
	BlockNumber blkno;

	if (likely(sound))
		return;
	XLogRecGetBlockTag(record, block, &file, NULL, &blkno);
	ereport(FATAL,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("cache_batch: cannot replay a change of block %u of file %u/%u/%u, as the page is damaged",
					blkno, file.spcOid, file.dbOid, file.relNumber),
			 errhint("If a newer version of cache_batch was here, install that again. Otherwise restore the file from a backup.")));
}

/*
 * Is the page of one of these kinds, and are its items, or entries, inside?  It may
 * be marked by a reader (rel/cb_sound.c): no query may end what a standby replays.
 */
static bool
cb_redo_is_sound(Page page, uint16 kinds)
{
	uint16		flags;

	if (PageIsNew(page) || !(cb_page_has_id(page, CB_PAGE_ID) ||
							 cb_page_has_id(page, CB_PAGE_ID_UNSOUND)))
		return false;
	flags = CbPageGetOpaque(page)->flags;
	if ((flags & kinds) == 0 || !cb_page_flags_are_sound(page))
		return false;
	if (flags & CBP_META)
		return true;
	if (flags & CBP_JOURNAL)
		return ((PageHeader) page)->pd_lower >= CB_JOURNAL_FIRST &&
			((PageHeader) page)->pd_lower <= CB_JOURNAL_END;
	return cb_page_items_are_inside(page) &&
		((flags & CBP_RANGE) == 0 || cb_range_page_is_sound(page)) &&
		((flags & CBP_TILES) == 0 || cb_tile_page_is_sound(page));
}

/*
 * Begins the redo of a block: the page, which is to be changed as the record
 * says; NULL if it is as the record leaves it, or does not exist any more.
 * *buf is pinned and exclusively locked, or InvalidBuffer.  In recovery only,
 * as all that is called cb_redo_*.
 *
 * kinds: CBP_* flags, of which the page has one.  If it has not, or its items
 * are not all inside, it is damaged: see cb_redo_require().
 */
Page
cb_redo_begin(XLogReaderState *record, uint8 block, uint16 kinds, Buffer *buf)
{
	if (XLogReadBufferForRedo(record, block, buf) != BLK_NEEDS_REDO)
		return NULL;
	cb_redo_require(record, block, cb_redo_is_sound(BufferGetPage(*buf), kinds));
	return BufferGetPage(*buf);
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
		Page		page = cb_redo_begin(record, first_block + i, CBP_LEAF | CBP_INTERNAL,
										 &buf);

		if (page != NULL)
			cb_page_clear_incomplete(page);
		cb_redo_end(record, page, buf);
	}
}
