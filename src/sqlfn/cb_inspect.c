/*-------------------------------------------------------------------------
 *
 * cb_inspect.c
 *	  Functions that show the pages of an index.
 *
 * Pages are copied under a share lock and shown from the copy, one at a time,
 * so what two rows say need not be of the same moment.  Nothing read from a
 * page is trusted: a corrupted one gives an error or odd values, not a crash.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/itup.h"
#include "access/relation.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "journal/cb_journal.h"
#include "miscadmin.h"
#include "page/cb_leaf.h"
#include "page/cb_range_page.h"
#include "sqlfn/cb_sqlfn.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/uuid.h"

PG_FUNCTION_INFO_V1(cache_batch_metapage);
PG_FUNCTION_INFO_V1(cache_batch_page);
PG_FUNCTION_INFO_V1(cache_batch_page_items);
PG_FUNCTION_INFO_V1(cache_batch_journal);
PG_FUNCTION_INFO_V1(cache_batch_ranges);
PG_FUNCTION_INFO_V1(cache_batch_tiles);

/* ---------- reading ---------- */

/* Copies a page that a link leads to. */
static void
cb_inspect_follow(Relation rel, BlockNumber blkno, PGAlignedBlock *copy)
{
	Buffer		buf = cb_sound_read(rel, blkno, NULL);

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	memcpy(copy->data, BufferGetPage(buf), BLCKSZ);
	UnlockReleaseBuffer(buf);
}

/* Copies a page that is asked for. */
static void
cb_inspect_read(Relation rel, int64 blkno, PGAlignedBlock *copy)
{
	if (blkno < 0 || blkno >= RelationGetNumberOfBlocks(rel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("block number " INT64_FORMAT " is out of range for index \"%s\"",
						blkno, RelationGetRelationName(rel))));
	cb_inspect_follow(rel, (BlockNumber) blkno, copy);
}

static void
cb_inspect_read_meta(Relation rel, CbMetaPageData *meta)
{
	PGAlignedBlock copy;

	cb_inspect_read(rel, CB_METAPAGE_BLKNO, &copy);
	*meta = *cb_page_check_meta(rel, copy.data);
}

static TupleDesc
cb_inspect_row_type(FunctionCallInfo fcinfo)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	return BlessTupleDesc(tupdesc);
}

static Datum
cb_inspect_text_array(Datum *elements, int n)
{
	return PointerGetDatum(construct_array(elements, n, TEXTOID, -1, false,
										   TYPALIGN_INT));
}

/* ---------- cache_batch_metapage ---------- */

static const char *
cb_inspect_tier_name(uint8 kind)
{
	switch (kind)
	{
		case CB_TIER_JOURNAL:
			return "journal";
		case CB_TIER_RUNS:
			return "runs";
		case CB_TIER_TREE:
			return "tree";
		default:
			return "unknown";
	}
}

static Datum
cb_inspect_tiers(const CbMetaPageData *meta)
{
	Datum		names[CB_MAX_TIERS];
	int			n = Min(meta->ntiers, CB_MAX_TIERS);

	for (int i = 0; i < n; i++)
		names[i] = CStringGetTextDatum(cb_inspect_tier_name(meta->tiers[i]));
	return cb_inspect_text_array(names, n);
}

/*
 * cache_batch_metapage(index regclass, OUT ...): one row.
 *
 * AccessShareLock on the index; the page is copied under its share lock.
 * Raises an error if it is no metapage of ours.
 */
Datum
cache_batch_metapage(PG_FUNCTION_ARGS)
{
	Relation	rel = cb_sqlfn_open_index(PG_GETARG_OID(0), AccessShareLock);
	TupleDesc	tupdesc = cb_inspect_row_type(fcinfo);
	pg_uuid_t  *build_id = palloc(sizeof(pg_uuid_t));
	CbMetaPageData meta;
	Datum		values[10];
	bool		nulls[10] = {false};

	cb_inspect_read_meta(rel, &meta);
	relation_close(rel, AccessShareLock);

	memcpy(build_id->data, meta.build_id, UUID_LEN);
	values[0] = CStringGetTextDatum(psprintf("0x%08X", meta.magic));
	values[1] = Int32GetDatum((int32) meta.version);
	values[2] = UUIDPGetDatum(build_id);
	values[3] = Int64GetDatum((int64) meta.root);
	values[4] = Int32GetDatum((int32) meta.root_level);
	values[5] = Int64GetDatum((int64) CbPosSeq(meta.journal_tail));
	values[6] = Int32GetDatum((int32) CbPosOff(meta.journal_tail));
	values[7] = Int64GetDatum((int64) meta.journal_tail_block);
	nulls[7] = meta.journal_tail_block == InvalidBlockNumber;
	values[8] = cb_inspect_tiers(&meta);
	values[9] = Int64GetDatum((int64) meta.range_root);
	nulls[9] = meta.range_root == 0;

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}

/* ---------- cache_batch_page ---------- */

static const char *
cb_inspect_run_type(uint16 level)
{
	switch (level)
	{
		case CB_RUN_DATA_LEVEL:
			return "run";
		case CB_RUN_ROOT_LEVEL:
			return "run_root";
		case CB_RUN_FILTER_LEVEL:
			return "run_filter";
		default:
			return "unknown";
	}
}

static const char *
cb_inspect_page_type(Page page)
{
	uint16		flags = CbPageGetOpaque(page)->flags;

	if (flags & CBP_META)
		return "meta";
	if (flags & CBP_DELETED)
		return "deleted";
	if (flags & CBP_JOURNAL)
		return "journal";
	if (flags & CBP_LEAF)
		return "leaf";
	if (flags & CBP_INTERNAL)
		return "internal";
	if (flags & CBP_RANGE)
		return CbPageListsRuns(page) ? "range" : "range internal";
	if (flags & CBP_TILES)
		return "tiles";
	if (flags & CBP_RUN)
		return cb_inspect_run_type(CbPageGetOpaque(page)->level);
	return "unknown";
}

static Datum
cb_inspect_flags(uint16 flags)
{
	static const char *const names[] = {
		"meta", "leaf", "internal", "journal", "root", "incomplete_split",
		"deleted", "empty", "has_garbage", "packed", "range", "run", "tiles",
		"has_tiles"
	};
	Datum		set[lengthof(names)];
	int			n = 0;

	StaticAssertStmt(CBP_META == 1 && CBP_HAS_TILES == 1 << (lengthof(names) - 1),
					 "each flag has its name, in the same order");

	for (int i = 0; i < lengthof(names); i++)
	{
		if (flags & (1 << i))
			set[n++] = CStringGetTextDatum(names[i]);
	}
	return cb_inspect_text_array(set, n);
}

/* Does the page have items: is it one of the tree, of range buffers? */
static bool
cb_inspect_has_items(Page page)
{
	if (CbPageIsGone(page))
		return false;
	return CbPageIsTree(page) || CbPageIsRange(page) || CbPageListsTiles(page) ||
		(CbPageIsRun(page) &&
		 CbPageGetOpaque(page)->level != CB_RUN_FILTER_LEVEL);
}

/* Is the item one that lists a run? */
static bool
cb_inspect_is_run_item(Page page, OffsetNumber off)
{
	return CbPageListsRuns(page) && off >= CbRangeFirstRun(page);
}

/* The run that an item lists, or NULL if it points to none. */
static CbRunItem *
cb_inspect_run_item(Page page, OffsetNumber off)
{
	ItemId		iid = PageGetItemId(page, off);

	if (!ItemIdHasStorage(iid) || ItemIdGetLength(iid) != sizeof(CbRunItem) ||
		ItemIdGetOffset(iid) != MAXALIGN(ItemIdGetOffset(iid)) ||
		ItemIdGetOffset(iid) + sizeof(CbRunItem) > BLCKSZ)
		return NULL;
	return CbRangeGetRun(page, off);
}

/* An entry that is marked dead, or a retired run. */
static bool
cb_inspect_is_dead(Page page, OffsetNumber off)
{
	CbRunItem  *run;

	if (!cb_inspect_is_run_item(page, off))
		return ItemIdIsDead(PageGetItemId(page, off));
	run = cb_inspect_run_item(page, off);
	return run != NULL && !CbRunIsLive(run);
}

static void
cb_inspect_open_leaf(Relation rel, BlockNumber blkno, Page page, CbLeaf *leaf)
{
	if (!cb_leaf_open(leaf, page, RelationGetDescr(rel)))
		cb_leaf_report_damaged(rel, blkno);
}

static void
cb_inspect_count_items(Relation rel, BlockNumber blkno, Page page, int *live,
					   int *dead)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	CbLeaf		leaf;
	Size		len;

	cb_page_check_header(rel, blkno, page);
	cb_inspect_open_leaf(rel, blkno, page, &leaf);
	*live = *dead = 0;
	for (int i = 0; i < leaf.npacked; i++)
	{
		if (cb_pack_is_dead(cb_leaf_blob(page, &len), i))
			(*dead)++;
		else
			(*live)++;
	}
	for (OffsetNumber off = CbPageListsRuns(page) ? CbRangeFirstRun(page) :
		 CbPageFirstPlain(page); off <= max; off++)
	{
		if (cb_inspect_is_dead(page, off))
			(*dead)++;
		else
			(*live)++;
	}
}

/* fills what depends on the kind of page; the rest stays null */
static void
cb_inspect_page_details(Relation rel, BlockNumber blkno, Page page, Datum *values,
						bool *nulls)
{
	CbPageOpaque opaque = CbPageGetOpaque(page);
	int			live;
	int			dead;

	values[2] = cb_inspect_flags(opaque->flags);
	nulls[2] = false;
	values[3] = Int64GetDatum((int64) opaque->next);
	nulls[3] = opaque->next == InvalidBlockNumber;

	if (cb_inspect_has_items(page))
	{
		cb_inspect_count_items(rel, blkno, page, &live, &dead);
		values[1] = Int32GetDatum(opaque->level);
		values[4] = Int32GetDatum(opaque->cycleid);
		values[5] = Int32GetDatum(live);
		values[6] = Int32GetDatum(dead);
		values[7] = Int32GetDatum((int32) PageGetExactFreeSpace(page));
		nulls[1] = nulls[4] = nulls[5] = nulls[6] = nulls[7] = false;
	}
	else if (CbPageIsJournal(page))
	{
		values[7] = Int32GetDatum((int32) CB_JOURNAL_END -
								  ((PageHeader) page)->pd_lower);
		values[8] = Int64GetDatum((int64) CbJournalGetHeader(page)->seq);
		nulls[7] = nulls[8] = false;
	}
}

/*
 * cache_batch_page(index regclass, block bigint, OUT ...): one row, with nulls
 * for what a page of its type does not have; an all-zero page is "new".
 *
 * AccessShareLock on the index; the page is copied under its share lock.
 * Raises an error if the page is not one of ours.
 */
Datum
cache_batch_page(PG_FUNCTION_ARGS)
{
	Relation	rel = cb_sqlfn_open_index(PG_GETARG_OID(0), AccessShareLock);
	int64		blkno = PG_GETARG_INT64(1);
	TupleDesc	tupdesc = cb_inspect_row_type(fcinfo);
	PGAlignedBlock copy;
	Page		page = copy.data;
	Datum		values[9] = {0};
	bool		nulls[9];

	memset(nulls, true, sizeof(nulls));
	nulls[0] = false;

	cb_inspect_read(rel, blkno, &copy);
	if (PageIsNew(page))
		values[0] = CStringGetTextDatum("new");
	else
	{
		cb_page_check(rel, (BlockNumber) blkno, page);
		values[0] = CStringGetTextDatum(cb_inspect_page_type(page));
		cb_inspect_page_details(rel, blkno, page, values, nulls);
	}
	relation_close(rel, AccessShareLock);

	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(tupdesc, values, nulls)));
}

/* ---------- cache_batch_page_items ---------- */

/* the tuple of a line pointer, or NULL if that points to no sane one */
static IndexTuple
cb_inspect_item(Page page, OffsetNumber off)
{
	ItemId		iid = PageGetItemId(page, off);
	Size		length = ItemIdGetLength(iid);
	IndexTuple	itup;

	if (ItemIdGetOffset(iid) != MAXALIGN(ItemIdGetOffset(iid)) ||
		ItemIdGetOffset(iid) < SizeOfPageHeaderData ||
		ItemIdGetOffset(iid) + length > ((PageHeader) page)->pd_special ||
		length < sizeof(IndexTupleData))
		return NULL;

	itup = (IndexTuple) PageGetItem(page, iid);
	if (IndexTupleSize(itup) > length ||
		IndexTupleSize(itup) < IndexInfoFindDataOffset(itup->t_info))
		return NULL;

	return itup;
}

/* the page that a pivot tuple leads to; of a tile, its run's root */
static bool
cb_inspect_child(Page page, OffsetNumber off, IndexTuple itup, BlockNumber *child)
{
	if (off < CbPageFirstItem(page) || CbPageListsRuns(page))
		return false;
	*child = BTreeTupleGetDownLink(itup);
	if (!CbPageListsTiles(page))
		return true;
	if (ItemIdGetLength(PageGetItemId(page, off)) != CbTileItemSize(itup))
		return false;
	*child = CbTileGetRuns(page, off)->run.root;
	return CbTileGetRuns(page, off)->run.npages > 0;
}

/* bytes of the key, or, of a pivot tuple, of the key and its TID */
static char *
cb_inspect_data(IndexTuple itup)
{
	const unsigned char *bytes = (const unsigned char *) itup;
	StringInfoData text;

	initStringInfo(&text);
	for (Size i = IndexInfoFindDataOffset(itup->t_info);
		 i < IndexTupleSize(itup); i++)
		appendStringInfo(&text, text.len > 0 ? " %02x" : "%02x", bytes[i]);
	return text.data;
}

/* a row for a tuple, which is NULL if there is no sane one; ordinal -1: null */
static void
cb_inspect_tuple_row(Relation rel, Page page, OffsetNumber off, int ordinal,
					 Size length, bool dead, IndexTuple itup,
					 ReturnSetInfo *rsinfo)
{
	ItemPointer tid = NULL;
	Datum		values[8] = {0};
	bool		nulls[8] = {false};
	BlockNumber child;

	values[0] = Int32GetDatum(off);
	values[1] = Int32GetDatum(ordinal);
	nulls[1] = ordinal < 0;
	values[2] = Int32GetDatum((int32) length);
	values[3] = BoolGetDatum(dead);
	nulls[4] = nulls[5] = nulls[6] = nulls[7] = true;

	if (itup != NULL)
	{
		bool		pivot = BTreeTupleIsPivot(itup);

		values[4] = Int32GetDatum(BTreeTupleGetNAtts(itup, rel));
		nulls[4] = false;
		if (pivot && cb_inspect_child(page, off, itup, &child))
		{
			values[5] = Int64GetDatum((int64) child);
			nulls[5] = false;
		}
		if (!pivot || IndexTupleSize(itup) >= sizeof(IndexTupleData) +
			sizeof(ItemPointerData))
			tid = BTreeTupleGetHeapTID(itup);
		if (tid != NULL)
		{
			values[6] = PointerGetDatum(tid);
			nulls[6] = false;
		}
		values[7] = CStringGetTextDatum(cb_inspect_data(itup));
		nulls[7] = false;
	}

	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* a row for an item that lists a run: where that has its root */
static void
cb_inspect_run_row(Page page, OffsetNumber off, ReturnSetInfo *rsinfo)
{
	CbRunItem  *run = cb_inspect_run_item(page, off);
	Datum		values[8] = {0};
	bool		nulls[8] = {false, true, false, false, true, false, true, true};

	values[0] = Int32GetDatum(off);
	values[2] = Int32GetDatum((int32) ItemIdGetLength(PageGetItemId(page, off)));
	values[3] = BoolGetDatum(cb_inspect_is_dead(page, off));
	nulls[5] = run == NULL;
	if (run != NULL)
		values[5] = Int64GetDatum((int64) run->root);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* a row for each entry of a leaf's packed part */
static void
cb_inspect_packed_rows(Relation rel, BlockNumber blkno, Page page, OffsetNumber off,
					   ReturnSetInfo *rsinfo)
{
	CbLeaf		leaf;
	Size		len;
	char	   *blob;

	cb_inspect_open_leaf(rel, blkno, page, &leaf);
	blob = cb_leaf_blob(page, &len);
	for (int i = 0; i < leaf.npacked; i++)
	{
		CbLeafTuple memory;
		IndexTuple	itup = cb_leaf_read(&leaf, i, &memory);

		cb_inspect_tuple_row(rel, page, off, i,
							 itup ? IndexTupleSize(itup) : 0,
							 cb_pack_is_dead(blob, i), itup, rsinfo);
	}
}

static void
cb_inspect_item_rows(Relation rel, BlockNumber blkno, Page page, OffsetNumber off,
					 ReturnSetInfo *rsinfo)
{
	ItemId		iid = PageGetItemId(page, off);

	if (CbPageIsPacked(page) && off == CbPageFirstItem(page))
		cb_inspect_packed_rows(rel, blkno, page, off, rsinfo);
	else if (cb_inspect_is_run_item(page, off))
		cb_inspect_run_row(page, off, rsinfo);
	else
		cb_inspect_tuple_row(rel, page, off, -1, ItemIdGetLength(iid),
							 ItemIdIsDead(iid), cb_inspect_item(page, off),
							 rsinfo);
}

/*
 * cache_batch_page_items(index regclass, block bigint): one row for each item
 * of a page of the tree or of range buffers, and for each entry of a packed
 * part.
 *
 * AccessShareLock on the index; the page is copied under its share lock.
 * Raises an error for another page, and for a damaged one.
 */
Datum
cache_batch_page_items(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int64		blkno = PG_GETARG_INT64(1);
	PGAlignedBlock copy;
	Page		page = copy.data;
	OffsetNumber max;
	Relation	rel;

	InitMaterializedSRF(fcinfo, 0);
	rel = cb_sqlfn_open_index(PG_GETARG_OID(0), AccessShareLock);
	cb_inspect_read(rel, blkno, &copy);
	cb_page_check_header(rel, (BlockNumber) blkno, page);
	if (!cb_inspect_has_items(page))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("page " INT64_FORMAT " of index \"%s\" is not a page of its tree or range buffers",
						blkno, RelationGetRelationName(rel))));

	max = PageGetMaxOffsetNumber(page);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
		cb_inspect_item_rows(rel, blkno, page, off, rsinfo);
	relation_close(rel, AccessShareLock);

	return (Datum) 0;
}

/* ---------- cache_batch_journal ---------- */

/* counts the entries from a byte offset on; stops at what is no tuple */
static int
cb_inspect_count_entries(Page page, uint32 from)
{
	uint32		end = ((PageHeader) page)->pd_lower;
	uint32		at = from;
	int			n = 0;

	while (at + sizeof(IndexTupleData) <= end)
	{
		Size		size = IndexTupleSize((IndexTuple) ((char *) page + at));

		if (size < sizeof(IndexTupleData) || at + size > end)
			break;
		at += MAXALIGN(size);
		n++;
	}
	return n;
}

static void
cb_inspect_journal_row(Page page, uint64 seq, BlockNumber blkno, uint32 from,
					   ReturnSetInfo *rsinfo)
{
	uint32		end = ((PageHeader) page)->pd_lower;
	Datum		values[4];
	bool		nulls[4] = {false};

	values[0] = Int64GetDatum((int64) seq);
	values[1] = Int64GetDatum((int64) blkno);
	values[2] = Int32GetDatum(cb_inspect_count_entries(page, from));
	values[3] = Int32GetDatum(end > from ? (int32) (end - from) : 0);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/* shows the pages from the tail on, or from where that has moved meanwhile */
static void
cb_inspect_walk_journal(Relation rel, ReturnSetInfo *rsinfo)
{
	CbJournalWalk walk;
	PGAlignedBlock copy;

	cb_walk_begin_at_tail(&walk, rel);
	while (walk.block != InvalidBlockNumber)
	{
		Page		page = cb_walk_lock(&walk);
		uint32		from = CB_JOURNAL_FIRST;

		if (page == NULL)
		{
			cb_walk_restart(&walk);
			continue;
		}
		memcpy(copy.data, page, BLCKSZ);
		cb_walk_unlock(&walk);
		if (walk.seq == CbPosSeq(walk.tail))
			from = Max(from, CbPosOff(walk.tail));
		cb_inspect_journal_row(copy.data, walk.seq, walk.block, from, rsinfo);
		cb_walk_step(&walk);
	}
}

/*
 * cache_batch_journal(index regclass): one row for each page, from the tail
 * on.
 *
 * AccessShareLock on the index.  Each page is copied under its share lock, so
 * what is appended or truncated meanwhile may be seen or not.
 */
Datum
cache_batch_journal(PG_FUNCTION_ARGS)
{
	Relation	rel;

	InitMaterializedSRF(fcinfo, 0);
	rel = cb_sqlfn_open_index(PG_GETARG_OID(0), AccessShareLock);
	cb_inspect_walk_journal(rel, (ReturnSetInfo *) fcinfo->resultinfo);
	relation_close(rel, AccessShareLock);

	return (Datum) 0;
}

/* ---------- cache_batch_ranges, cache_batch_tiles ---------- */

/* the leftmost page of this kind; Invalid: there is none */
static BlockNumber
cb_inspect_first_range(Relation rel, uint16 kind)
{
	CbMetaPageData meta;
	PGAlignedBlock copy;
	BlockNumber blkno;
	int			above = PG_UINT16_MAX;

	cb_inspect_read_meta(rel, &meta);
	blkno = cb_page_meta_root(&meta, kind);
	if (blkno == 0)
		return InvalidBlockNumber;
	while (above > CB_RANGE_INNER_LEVEL)
	{
		int			level;
		IndexTuple	downlink;

		cb_inspect_follow(rel, blkno, &copy);
		cb_page_check_header(rel, blkno, copy.data);
		level = CbPageGetOpaque(copy.data)->level;
		if (!CbPageIsRange(copy.data) || CbPageListsRuns(copy.data) || level >= above ||
			PageGetMaxOffsetNumber(copy.data) < CbPageFirstItem(copy.data) ||
			(downlink = cb_inspect_item(copy.data, CbPageFirstItem(copy.data))) == NULL)
			cb_report_corrupt(rel, blkno, "It is not an inner page above %s pages.",
							  kind == CBP_TILES ? "tile" : "range");
		blkno = BTreeTupleGetDownLink(downlink);
		above = level;
	}
	return blkno;
}

static void
cb_inspect_range_row(Page page, int position, BlockNumber blkno,
					 ReturnSetInfo *rsinfo)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			nruns[2] = {0}; /* live, retired */
	int			npages[2] = {0};
	int64		nentries = 0;
	Datum		values[7];
	bool		nulls[7] = {false};

	for (OffsetNumber off = CbRangeFirstRun(page); off <= max; off++)
	{
		CbRunItem  *run = CbRangeGetRun(page, off);
		int			retired = !CbRunIsLive(run);

		nruns[retired]++;
		npages[retired] += run->npages;
		nentries += retired ? 0 : run->nentries;
	}
	values[0] = Int32GetDatum(position);
	values[1] = Int64GetDatum((int64) blkno);
	values[2] = Int32GetDatum(nruns[0]);
	values[3] = Int64GetDatum(nentries);
	values[4] = Int32GetDatum(npages[0]);
	values[5] = Int32GetDatum(nruns[1]);
	values[6] = Int32GetDatum(npages[1]);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
cb_inspect_tile_row(Page page, int position, BlockNumber blkno,
					ReturnSetInfo *rsinfo)
{
	OffsetNumber first = CbPageFirstItem(page);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			nruns = 0;
	int			npages = 0;
	int64		nentries = 0;
	Datum		values[6];
	bool		nulls[6] = {false};

	for (OffsetNumber off = first; off <= max; off++)
	{
		CbTileRuns *runs = CbTileGetRuns(page, off);

		nruns += runs->run.npages > 0;
		npages += runs->run.npages + runs->old.npages;
		nentries += runs->run.nentries;
	}
	values[0] = Int32GetDatum(position);
	values[1] = Int64GetDatum((int64) blkno);
	values[2] = Int32GetDatum(max - first + 1);
	values[3] = Int32GetDatum(nruns);
	values[4] = Int64GetDatum(nentries);
	values[5] = Int32GetDatum(npages);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * One row for each page of this kind, left to right.  Follows their chain, which
 * never gets shorter.
 *
 * AccessShareLock on the index; one page is locked at a time, and copied.
 */
static void
cb_inspect_walk_ranges(FunctionCallInfo fcinfo, uint16 kind)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PGAlignedBlock copy;
	BlockNumber blkno;
	Relation	rel;

	InitMaterializedSRF(fcinfo, 0);
	rel = cb_sqlfn_open_index(PG_GETARG_OID(0), AccessShareLock);
	blkno = cb_inspect_first_range(rel, kind);
	for (int position = 0; blkno != InvalidBlockNumber; position++)
	{
		CHECK_FOR_INTERRUPTS();
		cb_inspect_follow(rel, blkno, &copy);
		cb_page_check(rel, blkno, copy.data);
		if (!(kind == CBP_TILES ? cb_tile_page_is_sound(copy.data) :
			  cb_range_page_is_sound(copy.data)))
			cb_report_corrupt(rel, blkno, "It is not a valid %s page.",
							  kind == CBP_TILES ? "tile" : "range");
		if (position > RelationGetNumberOfBlocks(rel))
			cb_report_corrupt(rel, blkno, "The right links of %s pages form a ring.",
							  kind == CBP_TILES ? "tile" : "range");
		if (kind == CBP_TILES)
			cb_inspect_tile_row(copy.data, position, blkno, rsinfo);
		else
			cb_inspect_range_row(copy.data, position, blkno, rsinfo);
		blkno = CbPageGetOpaque(copy.data)->next;
	}
	relation_close(rel, AccessShareLock);
}

/* cache_batch_ranges(index regclass): one row for each range page */
Datum
cache_batch_ranges(PG_FUNCTION_ARGS)
{
	cb_inspect_walk_ranges(fcinfo, CBP_RANGE);

	return (Datum) 0;
}

/* cache_batch_tiles(index regclass): one row for each tile page */
Datum
cache_batch_tiles(PG_FUNCTION_ARGS)
{
	cb_inspect_walk_ranges(fcinfo, CBP_TILES);

	return (Datum) 0;
}
