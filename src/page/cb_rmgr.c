/*-------------------------------------------------------------------------
 *
 * cb_rmgr.c
 *	  The resource manager: dispatch of redo, description, masking.
 *
 * See cb_wal.h for the records.  What is done with each kind of them stands in
 * one table (cache_batch.c): their redo functions are the upper layers'.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/bufmask.h"
#include "access/xlog.h"
#include "base/cb_counts.h"
#include "page/cb_leaf.h"
#include "page/cb_wal.h"

/* by number: the upper half of a record's info */
static const CbWalAction *cb_rmgr_actions = NULL;

static inline const CbWalAction *
cb_rmgr_action(uint8 info)
{
	return &cb_rmgr_actions[info >> 4];
}

/* For readers of a standby, when the record's pages are as it leaves them. */
static void
cb_rmgr_count(XLogReaderState *record, int counts)
{
	RelFileLocator file;

	XLogRecGetBlockTag(record, 0, &file, NULL, NULL);
	cb_counts_add(file.relNumber, counts);
}

static void
cb_rmgr_redo(XLogReaderState *record)
{
	const CbWalAction *action = cb_rmgr_action(XLogRecGetInfo(record) & XLR_RMGR_INFO_MASK);

	if (action->redo == NULL)
		elog(PANIC, "cache_batch: unknown WAL record type %u",
			 XLogRecGetInfo(record) & XLR_RMGR_INFO_MASK);
	action->redo(record);
	if (action->counted != CB_COUNT_NOTHING)
		cb_rmgr_count(record, action->counted);
}

static void
cb_rmgr_desc(StringInfo buf, XLogReaderState *record)
{
	uint8		info = XLogRecGetInfo(record) & XLR_RMGR_INFO_MASK;
	union
	{
		uint64		align;
		char		data[128];
	}			rec;

	StaticAssertStmt(sizeof(rec) >= SizeOfCbUnlink(CB_MAX_UNLINK_PAGES),
					 "the largest of what records say");
	cb_redo_read_data(record, &rec, sizeof(rec));
	if (cb_rmgr_action(info)->describe != NULL)
		cb_rmgr_action(info)->describe(buf, rec.data);
}

static const char *
cb_rmgr_identify(uint8 info)
{
	return cb_rmgr_action(info & ~XLR_INFO_MASK)->name;
}

/* ---------- description of each kind of record ---------- */

/*
 * Each of these appends to buf what a record of its kind says; rec is the
 * record's main data, and zeros behind it.  They read nothing else, so they may be
 * called at any time, by any process that has the record.
 */
void
cb_describe_journal_append(StringInfo buf, const char *rec)
{
	const xl_cb_journal_append *xlrec = (const xl_cb_journal_append *) rec;

	appendStringInfo(buf, "seq " UINT64_FORMAT "%s", xlrec->seq,
					 xlrec->is_new ? ", new page" : "");
}

void
cb_describe_journal_truncate(StringInfo buf, const char *rec)
{
	const xl_cb_journal_truncate *xlrec = (const xl_cb_journal_truncate *) rec;

	appendStringInfo(buf, "tail " UINT64_FORMAT "/%u, block %u",
					 CbPosSeq(xlrec->tail), CbPosOff(xlrec->tail),
					 xlrec->tail_block);
}

void
cb_describe_insert(StringInfo buf, const char *rec)
{
	const xl_cb_insert *xlrec = (const xl_cb_insert *) rec;

	appendStringInfo(buf, "nitems %u, nchildren %u",
					 xlrec->nitems, xlrec->nchildren);
}

void
cb_describe_split(StringInfo buf, const char *rec)
{
	const xl_cb_split *xlrec = (const xl_cb_split *) rec;

	appendStringInfo(buf, "level %u, nnew %u, nchildren %u",
					 xlrec->level, xlrec->nnew, xlrec->nchildren);
}

void
cb_describe_newroot(StringInfo buf, const char *rec)
{
	const xl_cb_newroot *xlrec = (const xl_cb_newroot *) rec;

	appendStringInfo(buf, "root %u, level %u, nchildren %u",
					 xlrec->root, xlrec->level, xlrec->nchildren);
}

void
cb_describe_vacuum_leaf(StringInfo buf, const char *rec)
{
	const xl_cb_vacuum_leaf *xlrec = (const xl_cb_vacuum_leaf *) rec;

	appendStringInfo(buf, "nitems %u, nordinals %u",
					 xlrec->nitems, xlrec->nordinals);
}

void
cb_describe_leaf_pack(StringInfo buf, const char *rec)
{
	const xl_cb_leaf_pack *xlrec = (const xl_cb_leaf_pack *) rec;

	appendStringInfo(buf, "nplain %u, nnew %u", xlrec->nplain, xlrec->nnew);
}

void
cb_describe_redistribute(StringInfo buf, const char *rec)
{
	const xl_cb_redistribute *xlrec = (const xl_cb_redistribute *) rec;

	appendStringInfo(buf, "nleaves %u, off %u", xlrec->nleaves, xlrec->off);
}

void
cb_describe_unlink(StringInfo buf, const char *rec)
{
	const xl_cb_unlink *xlrec = (const xl_cb_unlink *) rec;

	appendStringInfo(buf, "npages %u, offset %u, safexid %u:%u%s",
					 xlrec->npages, xlrec->offset,
					 EpochFromFullTransactionId(xlrec->safexid),
					 XidFromFullTransactionId(xlrec->safexid),
					 xlrec->merged ? ", merged" : "");
}

void
cb_describe_reuse_page(StringInfo buf, const char *rec)
{
	const xl_cb_reuse_page *xlrec = (const xl_cb_reuse_page *) rec;

	appendStringInfo(buf, "rel %u/%u/%u, block %u",
					 xlrec->file.spcOid, xlrec->file.dbOid,
					 xlrec->file.relNumber, xlrec->block);
}

void
cb_describe_leaf_delete(StringInfo buf, const char *rec)
{
	const xl_cb_leaf_delete *xlrec = (const xl_cb_leaf_delete *) rec;

	appendStringInfo(buf, "horizon %u, nitems %u, nordinals %u, is_decoded %d",
					 xlrec->horizon, xlrec->nitems, xlrec->nordinals,
					 xlrec->is_decoded);
}

void
cb_describe_spill(StringInfo buf, const char *rec)
{
	const xl_cb_spill *xlrec = (const xl_cb_spill *) rec;

	appendStringInfo(buf, "npages %u, tile %u", xlrec->npages, xlrec->tile);
}

void
cb_describe_retire(StringInfo buf, const char *rec)
{
	const xl_cb_retire *xlrec = (const xl_cb_retire *) rec;

	appendStringInfo(buf, "nitems %u, safexid %u:%u, tile %u", xlrec->nitems,
					 EpochFromFullTransactionId(xlrec->safexid),
					 XidFromFullTransactionId(xlrec->safexid), xlrec->tile);
}

void
cb_describe_run_free(StringInfo buf, const char *rec)
{
	const xl_cb_run_free *xlrec = (const xl_cb_run_free *) rec;

	appendStringInfo(buf, "%s %u, npages %u", xlrec->is_tile ? "tile" : "offset",
					 xlrec->offset, xlrec->npages);
}

/* ---------- masking, registration ---------- */

/*
 * Masks what redo may leave different.
 *
 * Hints set without WAL: dead bits, of line pointers and in packed parts, and
 * CBP_HAS_GARBAGE by scans, a cycle id that is no longer needed by VACUUM, and
 * what VACUUM knows of the free space map.  Bytes between pd_lower and pd_upper
 * are not compared, of a journal page neither.
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

/*
 * Registers the resource manager; actions: CB_NUM_WAL_ACTIONS of them, by
 * number, to stay.  Called at preload only: the server refuses it at any other
 * time.
 */
void
cb_wal_register(const CbWalAction *actions)
{
	cb_rmgr_actions = actions;
	RegisterCustomRmgr(CB_RMGR_ID, unconstify(RmgrData *, &cb_rmgr));
}
