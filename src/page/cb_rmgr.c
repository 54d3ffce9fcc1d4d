/*-------------------------------------------------------------------------
 *
 * cb_rmgr.c
 *	  The resource manager: dispatch of redo, description, masking.
 *
 * See cb_wal.h for the records and for where their redo functions live.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/bufmask.h"
#include "access/xlog.h"
#include "access/xlogutils.h"
#include "page/cb_leaf.h"
#include "page/cb_wal.h"
#include "storage/bufmgr.h"

static CbRedoFunction cb_redo_functions[CB_NUM_WAL_ACTIONS];

void
cb_wal_set_redo(uint8 info, CbRedoFunction redo)
{
	Assert((info >> 4) < CB_NUM_WAL_ACTIONS);
	cb_redo_functions[info >> 4] = redo;
}

static void
cb_rmgr_redo(XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & XLR_RMGR_INFO_MASK;

	if ((info >> 4) >= CB_NUM_WAL_ACTIONS ||
		cb_redo_functions[info >> 4] == NULL)
		elog(PANIC, "cache_batch: unknown WAL record type %u", info);
	cb_redo_functions[info >> 4] (record);
}

/* Pages of the journal, and pages that come and go. */
static void
cb_rmgr_desc_space(StringInfo buf, uint8 info, char *rec)
{
	if (info == XLOG_CB_JOURNAL_APPEND)
	{
		xl_cb_journal_append *xlrec = (xl_cb_journal_append *) rec;

		appendStringInfo(buf, "seq " UINT64_FORMAT "%s", xlrec->seq,
						 xlrec->is_new ? ", new page" : "");
	}
	else if (info == XLOG_CB_JOURNAL_TRUNCATE)
	{
		xl_cb_journal_truncate *xlrec = (xl_cb_journal_truncate *) rec;

		appendStringInfo(buf, "tail " UINT64_FORMAT "/%u, block %u",
						 CbPosSeq(xlrec->tail), CbPosOff(xlrec->tail),
						 xlrec->tail_block);
	}
	else if (info == XLOG_CB_UNLINK)
	{
		xl_cb_unlink *xlrec = (xl_cb_unlink *) rec;

		appendStringInfo(buf, "npages %u, offset %u, safexid %u:%u%s",
						 xlrec->npages, xlrec->offset,
						 EpochFromFullTransactionId(xlrec->safexid),
						 XidFromFullTransactionId(xlrec->safexid),
						 xlrec->merged ? ", merged" : "");
	}
	else if (info == XLOG_CB_REUSE_PAGE)
	{
		xl_cb_reuse_page *xlrec = (xl_cb_reuse_page *) rec;

		appendStringInfo(buf, "rel %u/%u/%u, block %u, safexid %u:%u",
						 xlrec->node.spcNode, xlrec->node.dbNode,
						 xlrec->node.relNode, xlrec->block,
						 EpochFromFullTransactionId(xlrec->safexid),
						 XidFromFullTransactionId(xlrec->safexid));
	}
}

/* What changes the entries of a leaf. */
static void
cb_rmgr_desc_leaf(StringInfo buf, uint8 info, char *rec)
{
	if (info == XLOG_CB_VACUUM_LEAF)
	{
		xl_cb_vacuum_leaf *xlrec = (xl_cb_vacuum_leaf *) rec;

		appendStringInfo(buf, "nitems %u, nordinals %u",
						 xlrec->nitems, xlrec->nordinals);
	}
	else if (info == XLOG_CB_LEAF_DELETE)
	{
		xl_cb_leaf_delete *xlrec = (xl_cb_leaf_delete *) rec;

		appendStringInfo(buf, "horizon %u, nitems %u, nordinals %u",
						 xlrec->horizon, xlrec->nitems, xlrec->nordinals);
	}
	else if (info == XLOG_CB_LEAF_PACK)
	{
		xl_cb_leaf_pack *xlrec = (xl_cb_leaf_pack *) rec;

		appendStringInfo(buf, "nplain %u, nnew %u",
						 xlrec->nplain, xlrec->nnew);
	}
	else if (info == XLOG_CB_SHARE)
	{
		xl_cb_share *xlrec = (xl_cb_share *) rec;

		appendStringInfo(buf, "nleaves %u, off %u",
						 xlrec->nleaves, xlrec->off);
	}
}

/* Runs and the pages that list them. */
static void
cb_rmgr_desc_range(StringInfo buf, uint8 info, char *rec)
{
	if (info == XLOG_CB_SPILL)
		appendStringInfo(buf, "npages %u", ((xl_cb_spill *) rec)->npages);
	else if (info == XLOG_CB_RETIRE)
	{
		xl_cb_retire *xlrec = (xl_cb_retire *) rec;

		appendStringInfo(buf, "nitems %u, safexid %u:%u", xlrec->nitems,
						 EpochFromFullTransactionId(xlrec->safexid),
						 XidFromFullTransactionId(xlrec->safexid));
	}
	else if (info == XLOG_CB_RUN_FREE)
	{
		xl_cb_run_free *xlrec = (xl_cb_run_free *) rec;

		appendStringInfo(buf, "offset %u, npages %u",
						 xlrec->offset, xlrec->npages);
	}
}

static void
cb_rmgr_desc(StringInfo buf, XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & XLR_RMGR_INFO_MASK;
	char	   *rec = XLogRecGetData(record);

	if (info == XLOG_CB_LEAF_BATCH || info == XLOG_CB_INTERNAL_INSERT)
	{
		xl_cb_insert *xlrec = (xl_cb_insert *) rec;

		appendStringInfo(buf, "nitems %u, nchildren %u",
						 xlrec->nitems, xlrec->nchildren);
	}
	else if (info == XLOG_CB_SPLIT)
	{
		xl_cb_split *xlrec = (xl_cb_split *) rec;

		appendStringInfo(buf, "level %u, nnew %u, nchildren %u",
						 xlrec->level, xlrec->nnew, xlrec->nchildren);
	}
	else if (info == XLOG_CB_NEWROOT)
	{
		xl_cb_newroot *xlrec = (xl_cb_newroot *) rec;

		appendStringInfo(buf, "root %u, level %u, nchildren %u",
						 xlrec->root, xlrec->level, xlrec->nchildren);
	}
	cb_rmgr_desc_space(buf, info, rec);
	cb_rmgr_desc_leaf(buf, info, rec);
	cb_rmgr_desc_range(buf, info, rec);
}

static const char *
cb_rmgr_identify(uint8 info)
{
	switch (info & ~XLR_INFO_MASK)
	{
		case XLOG_CB_JOURNAL_APPEND:
			return "JOURNAL_APPEND";
		case XLOG_CB_JOURNAL_TRUNCATE:
			return "JOURNAL_TRUNCATE";
		case XLOG_CB_LEAF_BATCH:
			return "LEAF_BATCH";
		case XLOG_CB_SPLIT:
			return "SPLIT";
		case XLOG_CB_INTERNAL_INSERT:
			return "INTERNAL_INSERT";
		case XLOG_CB_NEWROOT:
			return "NEWROOT";
		case XLOG_CB_VACUUM_LEAF:
			return "VACUUM_LEAF";
		case XLOG_CB_LEAF_PACK:
			return "LEAF_PACK";
		case XLOG_CB_SHARE:
			return "SHARE";
		case XLOG_CB_UNLINK:
			return "UNLINK";
		case XLOG_CB_REUSE_PAGE:
			return "REUSE_PAGE";
		case XLOG_CB_LEAF_DELETE:
			return "LEAF_DELETE";
		case XLOG_CB_RANGE_PAGES:
			return "RANGE_PAGES";
		case XLOG_CB_SPILL:
			return "SPILL";
		case XLOG_CB_RETIRE:
			return "RETIRE";
		case XLOG_CB_RUN_FREE:
			return "RUN_FREE";
	}
	return NULL;
}

/*
 * Masks what redo may leave different.
 *
 * Hints set without WAL: dead bits, of line pointers and in bases, and
 * CBP_HAS_GARBAGE by scans, a cycle id that is no longer needed by VACUUM, and
 * what VACUUM knows of the free space map.
 * The hole of a journal page is left alone: its bytes below pd_lower are all
 * logged, those above it are not compared.
 */
static void
cb_rmgr_mask(char *pagedata, BlockNumber blkno)
{
	Page		page = (Page) pagedata;

	mask_page_lsn_and_checksum(page);
	mask_page_hint_bits(page);
	mask_unused_space(page);

	if (CbPageIsLeaf(page))
	{
		mask_lp_flags(page);
		if (CbPageIsPacked(page))
		{
			Size		len;

			cb_pack_clear_dead(cb_leaf_blob(page, &len));
		}
		CbPageGetOpaque(page)->flags &= ~CBP_HAS_GARBAGE;
		CbPageGetOpaque(page)->cycleid = 0;
	}
	if ((CbPageGetOpaque(page)->flags & CBP_META) != 0)
		CbPageGetMeta(page)->map_incarnation = 0;
}

static const RmgrData cb_rmgr = {
	.rm_name = CB_RMGR_NAME,
	.rm_redo = cb_rmgr_redo,
	.rm_desc = cb_rmgr_desc,
	.rm_identify = cb_rmgr_identify,
	.rm_mask = cb_rmgr_mask
};

/* Called at preload only: the server refuses it at any other time. */
void
cb_wal_register(void)
{
	RegisterCustomRmgr(CB_RMGR_ID, unconstify(RmgrData *, &cb_rmgr));
}

/*
 * Redo of the part that several records share: blocks first_block ... were
 * pages whose right sibling has its downlink now.
 */
void
cb_wal_redo_clear_incomplete(XLogReaderState *record, uint8 first_block,
							 int nchildren)
{
	for (int i = 0; i < nchildren; i++)
	{
		Buffer		buf;

		if (XLogReadBufferForRedo(record, first_block + i, &buf) == BLK_NEEDS_REDO)
		{
			Page		page = BufferGetPage(buf);

			cb_page_clear_incomplete(page);
			PageSetLSN(page, record->EndRecPtr);
			MarkBufferDirty(buf);
		}
		if (BufferIsValid(buf))
			UnlockReleaseBuffer(buf);
	}
}
