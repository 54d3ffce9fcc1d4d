/*-------------------------------------------------------------------------
 *
 * cb_page.c
 *	  Initialising, checking and changing single pages.
 *
 * Nothing here takes a lock, writes WAL, compares keys or looks at a second
 * page.  The mutations are called by the doing side inside its critical
 * section, on pages that were found to have the room, and by redo; none of
 * them can fail there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "page/cb_page.h"
#include "port/pg_bitutils.h"

/* Makes a page of ours without items, rightmost until next is set. */
void
cb_page_init(Page page, uint16 flags, uint16 level)
{
	CbPageOpaque opaque;

	PageInit(page, BLCKSZ, sizeof(CbPageOpaqueData));
	opaque = CbPageGetOpaque(page);
	opaque->next = InvalidBlockNumber;
	opaque->level = level;
	opaque->flags = flags;
	opaque->version = CB_FORMAT_VERSION;
	opaque->page_id = CB_PAGE_ID;
}

/* What lies below pd_lower survives a full-page image. */
static void
cb_page_cover_meta(Page page)
{
	((PageHeader) page)->pd_lower =
		((char *) CbPageGetMeta(page) + sizeof(CbMetaPageData)) - (char *) page;
}

/* Makes the metapage of an index with an empty journal and this root. */
void
cb_page_init_meta(Page page, const uint8 *build_id, BlockNumber root,
				  uint32 root_level)
{
	CbMetaPageData *meta;

	cb_page_init(page, CBP_META, 0);
	meta = CbPageGetMeta(page);
	memset(meta, 0, sizeof(CbMetaPageData));
	meta->magic = CB_META_MAGIC;
	meta->version = CB_FORMAT_VERSION;
	memcpy(meta->build_id, build_id, CB_BUILD_ID_LEN);
	meta->root = root;
	meta->root_level = root_level;
	meta->journal_tail = CbPosMake(1, CB_JOURNAL_FIRST);
	meta->journal_tail_block = InvalidBlockNumber;
	meta->ntiers = 2;
	meta->tiers[0] = CB_TIER_JOURNAL;
	meta->tiers[1] = CB_TIER_TREE;

	cb_page_cover_meta(page);
}

/* The metapage says that version 1 cannot read all of the index. */
void
cb_page_set_meta_version(Page page)
{
	CbPageGetMeta(page)->version = CB_FORMAT_LEVELS;
	cb_page_cover_meta(page);
}

/*
 * The root above range pages, or tile pages, is in this block: the metapage says
 * so, and has the tier of runs.
 */
void
cb_page_set_meta_range_root(Page page, uint16 kind, BlockNumber root)
{
	CbMetaPageData *meta = CbPageGetMeta(page);

	if (kind == CBP_TILES)
	{
		meta->tile_root = root;
		cb_page_set_meta_version(page);
		return;
	}
	meta->range_root = root;
	if (meta->ntiers == 2)
	{
		meta->tiers[2] = meta->tiers[1];
		meta->tiers[1] = CB_TIER_RUNS;
		meta->ntiers = 3;
	}
}

/* Makes a journal page without entries; seq: its number in the journal. */
void
cb_page_init_journal(Page page, uint64 seq)
{
	CbJournalHeader *header;

	cb_page_init(page, CBP_JOURNAL, 0);
	header = CbJournalGetHeader(page);
	header->seq = seq;
	header->reserved = 0;
	((PageHeader) page)->pd_lower = CB_JOURNAL_FIRST;
}

/*
 * Makes a page that has left the tree.  It keeps its right link, for those who
 * are on their way to it; safexid: from when on nobody can be, and it may be
 * used again.
 */
void
cb_page_init_deleted(Page page, uint16 level, BlockNumber next,
					 FullTransactionId safexid)
{
	cb_page_init(page, CBP_DELETED, level);
	CbPageGetOpaque(page)->next = next;
	CbPageGetDeleted(page)->safexid = safexid;
	((PageHeader) page)->pd_lower =
		((char *) CbPageGetDeleted(page) + sizeof(CbDeletedPageData)) - (char *) page;
}

/* ---------- checking ---------- */

/*
 * Raises the error for a damaged index.  blkno: where it is damaged, or
 * InvalidBlockNumber if that cannot be known; fmt: a sentence that says what
 * is wrong there.  Locks and pins go with the error; not for critical
 * sections.
 */
void
cb_report_corrupt(Relation rel, BlockNumber blkno, const char *fmt,...)
{
	va_list		args;
	char		detail[512];

	va_start(args, fmt);
	vsnprintf(detail, sizeof(detail), fmt, args);
	va_end(args);

	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 blkno == InvalidBlockNumber ?
			 errmsg("index \"%s\" is corrupted", RelationGetRelationName(rel)) :
			 errmsg("index \"%s\" is corrupted at block %u",
					RelationGetRelationName(rel), blkno),
			 errdetail_internal("%s", detail),
			 errhint("Please REINDEX it.")));
}

/* The same, of an item that should be an entry. */
void
cb_page_report_entry(Relation rel, BlockNumber blkno, OffsetNumber off)
{
	cb_report_corrupt(rel, blkno, "Item %u is not a valid entry.", off);
}

static void
cb_page_report_header(Relation rel, BlockNumber blkno, Page page)
{
	PageHeader	header = (PageHeader) page;

	cb_report_corrupt(rel, blkno,
					  "The page header is wrong: lower %u, upper %u, special %u.",
					  header->pd_lower, header->pd_upper, header->pd_special);
}

/* An index of another version is not damaged, but cannot be read either. */
static void
cb_page_check_version(Relation rel, BlockNumber blkno, uint32 version)
{
	if (version != CB_FORMAT_VERSION &&
		(blkno != CB_METAPAGE_BLKNO || version != CB_FORMAT_LEVELS))
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("index \"%s\" has format version %u at block %u, but this version of cache_batch reads version %d",
						RelationGetRelationName(rel), version, blkno,
						CB_FORMAT_VERSION),
				 version > CB_FORMAT_VERSION ?
				 errhint("If a newer version of cache_batch was here, install that again and restart the server. Otherwise REINDEX it.") :
				 errhint("Please REINDEX it.")));
}

/* Is it a page of this version, with that page id?  It is not all-zero. */
bool
cb_page_has_id(Page page, uint16 id)
{
	return ((PageHeader) page)->pd_special == BLCKSZ - MAXALIGN(sizeof(CbPageOpaqueData)) &&
		CbPageGetOpaque(page)->page_id == id &&
		CbPageGetOpaque(page)->version == CB_FORMAT_VERSION;
}

/*
 * Raises an error unless the page is one of ours.  An all-zero page is
 * reported too: whoever may meet one tests for it first.  The page is locked
 * or a copy.
 */
void
cb_page_check(Relation rel, BlockNumber blkno, Page page)
{
	if (PageIsNew(page))
		cb_report_corrupt(rel, blkno, "The page is all zero.");
	if (((PageHeader) page)->pd_special != BLCKSZ - MAXALIGN(sizeof(CbPageOpaqueData)))
		cb_page_report_header(rel, blkno, page);
	if (CbPageGetOpaque(page)->page_id == CB_PAGE_ID_UNSOUND)
		cb_report_corrupt(rel, blkno,
						  "Its flags, its items, or their values, are damaged.");
	if (CbPageGetOpaque(page)->page_id != CB_PAGE_ID)
		cb_report_corrupt(rel, blkno, "The page id is %04X, not %04X.",
						  CbPageGetOpaque(page)->page_id, CB_PAGE_ID);
	cb_page_check_version(rel, blkno, CbPageGetOpaque(page)->version);
}

/*
 * The same, and the page's header says where its line pointers and items are.
 */
void
cb_page_check_header(Relation rel, BlockNumber blkno, Page page)
{
	PageHeader	header = (PageHeader) page;

	cb_page_check(rel, blkno, page);
	if (header->pd_lower < SizeOfPageHeaderData ||
		header->pd_lower > header->pd_upper ||
		header->pd_upper > header->pd_special)
		cb_page_report_header(rel, blkno, page);
}

/*
 * Is the page of one kind alone, and may its split be incomplete if that is said?  The
 * page was checked to be one of ours.
 */
bool
cb_page_flags_are_sound(Page page)
{
	uint16		flags = CbPageGetOpaque(page)->flags;

	return pg_popcount32(flags & CBP_KINDS) == 1 &&
		((flags & CBP_INCOMPLETE_SPLIT) == 0 || !CbPageIsRightmost(page));
}

/*
 * Do all items lie within the page, and none over another?  The page was checked
 * to be one of ours.
 */
bool
cb_page_items_are_inside(Page page)
{
	PageHeader	header = (PageHeader) page;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	Size		total = 0;
	bool		sound = header->pd_lower >= SizeOfPageHeaderData &&
		header->pd_lower <= header->pd_upper &&
		header->pd_upper <= header->pd_special;

	for (OffsetNumber off = FirstOffsetNumber; sound && off <= max; off++)
	{
		ItemId		item = PageGetItemId(page, off);
		unsigned	start = ItemIdGetOffset(item);
		unsigned	len = ItemIdGetLength(item);

		sound = ItemIdHasStorage(item) && start == MAXALIGN(start) &&
			start >= header->pd_upper && start + len <= header->pd_special;
		total += MAXALIGN(len);
	}
	return sound && total <= header->pd_special - header->pd_upper;
}

/*
 * Raises an error unless that is so.  To be called before a critical section in
 * which items are removed or changed: the server's functions for that raise an
 * error there, which would end the server.
 */
void
cb_page_check_items(Relation rel, BlockNumber blkno, Page page)
{
	if (!cb_page_items_are_inside(page))
		cb_report_corrupt(rel, blkno,
						  "There are items outside of their page, or one over another.");
}

/*
 * Checks the metapage and returns its contents, where they stand in the page.
 * Raises an error if it is damaged or of another format version.
 */
CbMetaPageData *
cb_page_check_meta(Relation rel, Page page)
{
	CbMetaPageData *meta;

	cb_page_check(rel, CB_METAPAGE_BLKNO, page);
	meta = CbPageGetMeta(page);
	if ((CbPageGetOpaque(page)->flags & CBP_META) == 0 ||
		meta->magic != CB_META_MAGIC)
		cb_report_corrupt(rel, CB_METAPAGE_BLKNO,
						  "It is not the metapage of a cachebatch index.");
	cb_page_check_version(rel, CB_METAPAGE_BLKNO, meta->version);
	return meta;
}

/*
 * Insert n tuples, so that afterwards the i-th stands at offsets[i].
 *
 * offsets ascend; tuples stand one after the other, each MAXALIGNed, and take
 * tuples_len bytes in all.  The page has the room.  The line pointer array is
 * merged from its end, so the cost does not depend on how the new ones are
 * spread.
 */
void
cb_page_insert_batch(Page page, int n, const OffsetNumber *offsets,
					 const char *tuples, Size tuples_len)
{
	PageHeader	header = (PageHeader) page;
	int			old_max = PageGetMaxOffsetNumber(page);
	int			dst = old_max + n;
	int			src = old_max;
	Size		at = tuples_len;

	Assert(header->pd_upper - header->pd_lower >=
		   tuples_len + n * sizeof(ItemIdData));

	header->pd_upper -= tuples_len;
	memcpy((char *) page + header->pd_upper, tuples, tuples_len);
	header->pd_lower += n * sizeof(ItemIdData);

	/* the tuples' sizes are known only front to back, so find each start */
	{
		Size		starts[MaxIndexTuplesPerPage];

		Assert(n <= MaxIndexTuplesPerPage);
		at = 0;
		for (int i = 0; i < n; i++)
		{
			starts[i] = at;
			at += MAXALIGN(IndexTupleSize((IndexTuple) (tuples + at)));
		}
		Assert(at == tuples_len);

		for (int i = n - 1; i >= 0; i--)
		{
			IndexTuple	itup = (IndexTuple) (tuples + starts[i]);

			while (dst > offsets[i])
			{
				*PageGetItemId(page, dst) = *PageGetItemId(page, src);
				dst--;
				src--;
			}
			ItemIdSetNormal(PageGetItemId(page, dst),
							header->pd_upper + starts[i],
							IndexTupleSize(itup));
			dst--;
		}
	}
	CbPageGetOpaque(page)->flags &= ~CBP_EMPTY;
}

/*
 * Items were removed from a leaf: marks one that is left without entries as
 * empty.  Its key range stays its own.  Its hint that there may be dead
 * entries goes.
 */
void
cb_page_note_deleted(Page page)
{
	CbPageOpaque opaque = CbPageGetOpaque(page);

	opaque->flags &= ~CBP_HAS_GARBAGE;
	if (PageGetMaxOffsetNumber(page) < CbPageFirstItem(page))
		opaque->flags |= CBP_EMPTY;
}

/* Appends entries, len bytes in all, to a journal page that has the room. */
void
cb_page_append_journal(Page page, const char *data, Size len)
{
	PageHeader	header = (PageHeader) page;

	Assert(header->pd_lower + len <= CB_JOURNAL_END);
	memcpy((char *) page + header->pd_lower, data, len);
	header->pd_lower += len;
}

/* The right sibling has its downlink now. */
void
cb_page_clear_incomplete(Page page)
{
	CbPageGetOpaque(page)->flags &= ~CBP_INCOMPLETE_SPLIT;
}

/*
 * The child at off leaves the tree: its separator leads to the next child from
 * now on, whose own downlink goes.  There is a next child on the page, and its
 * items were checked.
 */
void
cb_page_drop_downlink(Page page, OffsetNumber off)
{
	IndexTuple	next = CbPageGetTuple(page, OffsetNumberNext(off));

	BTreeTupleSetDownLink(CbPageGetTuple(page, off),
						  BTreeTupleGetDownLink(next));
	PageIndexTupleDelete(page, OffsetNumberNext(off));
}
