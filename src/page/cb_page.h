/*-------------------------------------------------------------------------
 *
 * cb_page.h
 *	  Layout of every page of a cachebatch index, and pure page mutations.
 *
 * Block 0 is the metapage.  Every other page is a tree page (leaf or
 * internal), a journal page, a range page, a tile page, an inner page above those, a
 * page of a run, or free.  All have CbPageOpaqueData as their
 * special area; a page without CB_PAGE_ID there that is not all-zero is
 * corrupt.
 *
 * Tree pages hold tuples in nbtree's format: leaf entries are plain index
 * tuples, separators are pivot tuples (see nbtree.h).  Item 1 of a page that
 * is not the rightmost of its level is its high key.  A page covers the
 * entries e with low <= e < high key in (key, TID) order, low being the
 * separator that leads to it; note that nbtree has the bounds the other way
 * round.  The first downlink of an internal page has no key (minus infinity).
 *
 * Mutations here change one Page and nothing else: they cannot fail, never
 * compare keys, and serve the doing side and redo alike.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_PAGE_H
#define CB_PAGE_H

#include "base/cb_compat.h"
#include "storage/bufpage.h"

/* version of the on-disk format, in the metapage and in every page */
#define CB_FORMAT_VERSION	1
#define CB_FORMAT_LEVELS	2	/* in the metapage of an index that has tiles, or
								 * inner pages below a range root */

#define CB_META_MAGIC		0xCBA7C401
#define CB_PAGE_ID			0xFFCB	/* last two bytes of each page */
#define CB_PAGE_ID_UNSOUND	0xFFCC	/* in memory only: see rel/cb_sound.c */

#define CB_METAPAGE_BLKNO	0

typedef struct CbPageOpaqueData
{
	BlockNumber next;			/* right sibling, or next journal page */
	uint16		level;			/* 0: leaf */
	uint16		flags;			/* CBP_* */
	BTCycleId	cycleid;		/* vacuum cycle id of the latest split */
	uint16		version;		/* CB_FORMAT_VERSION */
	uint16		reserved;
	uint16		page_id;		/* CB_PAGE_ID */
} CbPageOpaqueData;

typedef CbPageOpaqueData *CbPageOpaque;

StaticAssertDecl(sizeof(CbPageOpaqueData) == 16, "on-disk layout");

#define CBP_META				(1 << 0)
#define CBP_LEAF				(1 << 1)
#define CBP_INTERNAL			(1 << 2)
#define CBP_JOURNAL				(1 << 3)
#define CBP_ROOT				(1 << 4)	/* leftmost page of the top level */
#define CBP_INCOMPLETE_SPLIT	(1 << 5)	/* right sibling has no downlink */
#define CBP_DELETED				(1 << 6)	/* out of the tree, see safexid */
#define CBP_EMPTY				(1 << 7)	/* leaf that has lost all its
											 * entries */
#define CBP_HAS_GARBAGE			(1 << 8)	/* hint: has dead items */
#define CBP_PACKED				(1 << 9)	/* leaf whose first item is a
											 * packed part */
#define CBP_RANGE				(1 << 10)	/* lists runs: see cb_range_page.h */
#define CBP_RUN					(1 << 11)	/* of a run */
#define CBP_TILES				(1 << 12)	/* lists tiles: see cb_range_page.h */
#define CBP_HAS_TILES			(1 << 13)	/* range page: tiles may have entries
											 * of its range */

/* of these a page has one */
#define CBP_KINDS \
	(CBP_META | CBP_LEAF | CBP_INTERNAL | CBP_JOURNAL | CBP_DELETED | CBP_RANGE | \
	 CBP_RUN | CBP_TILES)

#define CbPageGetOpaque(page) ((CbPageOpaque) PageGetSpecialPointer(page))
#define CbPageIsLeaf(page) ((CbPageGetOpaque(page)->flags & CBP_LEAF) != 0)
#define CbPageIsInternal(page) \
	((CbPageGetOpaque(page)->flags & CBP_INTERNAL) != 0)
#define CbPageIsTree(page) \
	((CbPageGetOpaque(page)->flags & (CBP_LEAF | CBP_INTERNAL)) != 0)
#define CbPageIsJournal(page) ((CbPageGetOpaque(page)->flags & CBP_JOURNAL) != 0)
#define CbPageIsRightmost(page) \
	(CbPageGetOpaque(page)->next == InvalidBlockNumber)
#define CbPageIsGone(page) \
	((CbPageGetOpaque(page)->flags & CBP_DELETED) != 0)
#define CbPageHasIncompleteSplit(page) \
	((CbPageGetOpaque(page)->flags & CBP_INCOMPLETE_SPLIT) != 0)

#define CB_HIKEY	((OffsetNumber) 1)
#define CbPageFirstItem(page) \
	(CbPageIsRightmost(page) ? FirstOffsetNumber : OffsetNumberNext(CB_HIKEY))
#define CbPageGetTuple(page, off) \
	((IndexTuple) PageGetItem((page), PageGetItemId((page), (off))))
#define CbPageGetHighKey(page) CbPageGetTuple(page, CB_HIKEY)

/*
 * Can a row have this TID?  By a block number that is none the server would add a
 * block to the table.
 */
static inline bool
cb_page_is_row_tid(const ItemPointerData *tid)
{
	return ItemPointerIsValid(tid) &&
		ItemPointerGetBlockNumberNoCheck(tid) != InvalidBlockNumber;
}

/*
 * The entry of an item of a leaf or of a run's data page, whose header is
 * sound; NULL: what is there is damaged.
 */
static inline IndexTuple
cb_page_get_entry(Page page, OffsetNumber off)
{
	ItemId		item = PageGetItemId(page, off);
	IndexTuple	itup;

	if (!ItemIdHasStorage(item) ||
		ItemIdGetLength(item) < sizeof(IndexTupleData) ||
		ItemIdGetOffset(item) + ItemIdGetLength(item) > BLCKSZ)
		return NULL;
	itup = (IndexTuple) PageGetItem(page, item);
	if (IndexTupleSize(itup) < sizeof(IndexTupleData) ||
		IndexTupleSize(itup) > ItemIdGetLength(item) ||
		BTreeTupleIsPivot(itup) || !cb_page_is_row_tid(&itup->t_tid))
		return NULL;
	return itup;
}

/*
 * Copies a tuple to an aligned place, with zeros up to the next one; returns
 * how many bytes that are.
 */
static inline Size
cb_page_copy_tuple(char *at, IndexTuple itup)
{
	Size		size = IndexTupleSize(itup);

	memcpy(at, itup, size);
	memset(at + size, 0, MAXALIGN(size) - size);
	return MAXALIGN(size);
}

/* bytes for line pointers and tuples on a fresh page */
#define CB_PAGE_ROOM \
	(BLCKSZ - MAXALIGN(SizeOfPageHeaderData) - MAXALIGN(sizeof(CbPageOpaqueData)))

/* what one tuple takes of that room */
#define CbItemSpace(itup) (MAXALIGN(IndexTupleSize(itup)) + sizeof(ItemIdData))

/*
 * Largest entry: btree's limit (a third of a page, less the TID that a
 * separator may need), so that what btree takes, cachebatch takes.
 */
#define CB_MAX_ITEM_SIZE \
	(MAXALIGN_DOWN((BLCKSZ - \
					MAXALIGN(SizeOfPageHeaderData + 3 * sizeof(ItemIdData) + \
							 3 * sizeof(ItemPointerData)) - \
					MAXALIGN(sizeof(BTPageOpaqueData))) / 3))

/* ---------- metapage ---------- */

#define CB_BUILD_ID_LEN		16

/*
 * the tiers that an index's file has, upper first: for verification and
 * inspection
 */
typedef enum CbTierKind
{
	CB_TIER_NONE = 0,
	CB_TIER_JOURNAL = 1,
	CB_TIER_RUNS = 2,			/* range buffers, once there are any */
	CB_TIER_TREE = 3
} CbTierKind;

#define CB_MAX_TIERS		8

/*
 * A journal position: page sequence number * BLCKSZ + byte offset in the
 * page.  Sequence numbers start at 1 and are never reused within a build.
 */
typedef uint64 CbPos;

#define CbPosMake(seq, off)	((CbPos) (seq) * BLCKSZ + (off))
#define CbPosSeq(pos)		((uint64) ((pos) / BLCKSZ))
#define CbPosOff(pos)		((uint32) ((pos) % BLCKSZ))

typedef struct CbMetaPageData
{
	uint32		magic;
	uint32		version;
	uint8		build_id[CB_BUILD_ID_LEN];	/* I0: new with every build */
	BlockNumber root;
	uint32		root_level;
	CbPos		journal_tail;	/* below it all is in the tree or in runs (I7) */
	BlockNumber journal_tail_block; /* page that holds it; Invalid: no journal
									 * page yet */
	uint32		ntiers;
	uint8		tiers[CB_MAX_TIERS];	/* CbTierKind, upper first */
	BlockNumber range_root;		/* topmost page above the range pages; 0: none */
	uint32		map_incarnation;	/* hint: of the server, when the free
									 * space map was seen to be complete; 0:
									 * it was not */
	BlockNumber tile_root;		/* topmost page above the tile pages; 0: none.
								 * Version 1 had no bytes here: they are 0 */
} CbMetaPageData;

#define CbPageGetMeta(page) ((CbMetaPageData *) PageGetContents(page))

/* The root above range pages, or tile pages (CBP_TILES); 0: there is none. */
static inline BlockNumber
cb_page_meta_root(const CbMetaPageData *meta, uint16 kind)
{
	return kind == CBP_TILES ? meta->tile_root : meta->range_root;
}

/* ---------- journal page ---------- */

/* at the start of the contents; entries follow, each MAXALIGNed, to pd_lower */
typedef struct CbJournalHeader
{
	uint64		seq;
	uint64		reserved;
} CbJournalHeader;

#define CbJournalGetHeader(page) ((CbJournalHeader *) PageGetContents(page))
#define CB_JOURNAL_FIRST \
	(MAXALIGN(SizeOfPageHeaderData) + MAXALIGN(sizeof(CbJournalHeader)))
#define CB_JOURNAL_END	(BLCKSZ - MAXALIGN(sizeof(CbPageOpaqueData)))

/* ---------- deleted page ---------- */

/*
 * A page that has left the tree, by tree/cb_unlink.c, or was one of a run.  It
 * keeps its level and its right link, for those who still come to it: the page
 * that this leads to has taken over its range of keys.  It is no leaf or
 * internal page any more.
 */
typedef struct CbDeletedPageData
{
	FullTransactionId safexid;	/* reusable once no snapshot can hold it; 0:
								 * at once, also on standbys */
} CbDeletedPageData;

#define CbPageGetDeleted(page) ((CbDeletedPageData *) PageGetContents(page))

/* ---------- cb_page.c ---------- */

extern void cb_page_init(Page page, uint16 flags, uint16 level);
extern void cb_page_init_meta(Page page, const uint8 *build_id,
							  BlockNumber root, uint32 root_level);
extern void cb_page_set_meta_version(Page page);
extern void cb_page_set_meta_range_root(Page page, uint16 kind, BlockNumber root);
extern void cb_page_init_journal(Page page, uint64 seq);
extern void cb_page_init_deleted(Page page, uint16 level, BlockNumber next,
								 FullTransactionId safexid);
pg_noreturn extern void cb_report_corrupt(Relation rel, BlockNumber blkno,
										  const char *fmt,...)
			pg_attribute_printf(3, 4);
pg_noreturn extern void cb_page_report_entry(Relation rel, BlockNumber blkno,
											 OffsetNumber off);
extern bool cb_page_has_id(Page page, uint16 id);
extern bool cb_page_flags_are_sound(Page page);
extern bool cb_page_items_are_inside(Page page);
extern void cb_page_check(Relation rel, BlockNumber blkno, Page page);
extern void cb_page_check_header(Relation rel, BlockNumber blkno, Page page);
extern void cb_page_check_items(Relation rel, BlockNumber blkno, Page page);
extern CbMetaPageData *cb_page_check_meta(Relation rel, Page page);
extern void cb_page_insert_batch(Page page, int n, const OffsetNumber *offsets,
								 const char *tuples, Size tuples_len);
extern void cb_page_note_deleted(Page page);
extern void cb_page_append_journal(Page page, const char *data, Size len);
extern void cb_page_clear_incomplete(Page page);
extern void cb_page_drop_downlink(Page page, OffsetNumber off);

/* Raises an error if an internal page has no downlink, which all have. */
static inline void
cb_page_check_downlinks(Relation rel, BlockNumber blkno, Page page)
{
	if (PageGetMaxOffsetNumber(page) < CbPageFirstItem(page))
		cb_report_corrupt(rel, blkno, "An internal page has no downlink.");
}

#endif							/* CB_PAGE_H */
