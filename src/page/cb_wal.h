/*-------------------------------------------------------------------------
 *
 * cb_wal.h
 *	  WAL records of cache_batch and its resource manager.
 *
 * Every record names all pages that it changes, at most 33.  Redo of a page
 * uses that page's old image and the record only (I10): never another page,
 * an operator class or shared memory.
 *
 * The actions live in upper layers, their redo functions beside them.  So the
 * table of what is done with each kind of record is cache_batch.c's, and is
 * handed to the resource manager when the library is loaded.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_WAL_H
#define CB_WAL_H

#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "lib/stringinfo.h"
#include "page/cb_page.h"
#include "storage/buf.h"

/*
 * The fixed id of the resource manager: it stands in WAL, so it must not
 * change, and no other library of the cluster may use it.
 */
#define CB_RMGR_ID		203		/* 0xCB */
#define CB_RMGR_NAME	"cache_batch"

#define XLOG_CB_JOURNAL_APPEND		0x00
#define XLOG_CB_JOURNAL_TRUNCATE	0x10
#define XLOG_CB_LEAF_BATCH			0x20
#define XLOG_CB_SPLIT				0x30
#define XLOG_CB_INTERNAL_INSERT		0x40
#define XLOG_CB_NEWROOT				0x50
#define XLOG_CB_VACUUM_LEAF			0x60
#define XLOG_CB_LEAF_PACK			0x70
#define XLOG_CB_REDISTRIBUTE				0x80
#define XLOG_CB_UNLINK				0x90
#define XLOG_CB_REUSE_PAGE			0xA0
#define XLOG_CB_LEAF_DELETE			0xB0
#define XLOG_CB_RANGE_PAGES			0xC0
#define XLOG_CB_SPILL				0xD0
#define XLOG_CB_RETIRE				0xE0
#define XLOG_CB_RUN_FREE			0xF0
#define CB_NUM_WAL_ACTIONS			16

/*
 * Append to the journal.
 *
 * block 0: the page appended to; its data: the entries.  Initialised by the
 * record if the page is new.
 * block 1 (only if the page is new and not the first): its predecessor, whose
 * next link is set.
 * block 2 (only for the first page of an index): the metapage.
 */
typedef struct xl_cb_journal_append
{
	uint64		seq;			/* sequence number of the page */
	bool		is_new;			/* block 0 is initialised */
} xl_cb_journal_append;

#define SizeOfCbJournalAppend \
	(offsetof(xl_cb_journal_append, is_new) + sizeof(bool))

/*
 * Move the journal's tail.
 *
 * block 0: the metapage
 */
typedef struct xl_cb_journal_truncate
{
	CbPos		tail;
	BlockNumber tail_block;
} xl_cb_journal_truncate;

#define SizeOfCbJournalTruncate \
	(offsetof(xl_cb_journal_truncate, tail_block) + sizeof(BlockNumber))

/*
 * Insert a sorted batch into one leaf that has room for it.
 * Insert downlinks into one internal page that has room for them.
 *
 * block 0: the page; its data: nitems final offsets (ascending), then the
 * tuples, each MAXALIGNed.
 * blocks 1 ... (XLOG_CB_INTERNAL_INSERT): children, whose incomplete-split
 * flag is cleared.
 */
typedef struct xl_cb_insert
{
	uint16		nitems;
	uint16		nchildren;
} xl_cb_insert;

#define SizeOfCbInsert (offsetof(xl_cb_insert, nchildren) + sizeof(uint16))

/*
 * Split one page into 1 + nnew.
 *
 * block 0: the page that was split, in full.
 * blocks 1 ... nnew: the new pages, in full, left to right.
 * blocks nnew + 1 ...: children, whose incomplete-split flag is cleared.
 */
typedef struct xl_cb_split
{
	uint16		level;
	uint16		nnew;
	uint16		nchildren;
} xl_cb_split;

#define SizeOfCbSplit (offsetof(xl_cb_split, nchildren) + sizeof(uint16))

/*
 * Grow the tree by a level.
 *
 * block 0: the new root, in full.
 * block 1: the metapage.
 * blocks 2 ...: children, whose incomplete-split and root flags are cleared.
 */
typedef struct xl_cb_newroot
{
	BlockNumber root;
	uint32		level;
	uint16		nchildren;
} xl_cb_newroot;

#define SizeOfCbNewroot (offsetof(xl_cb_newroot, nchildren) + sizeof(uint16))

/*
 * VACUUM removed items from a leaf.  Replay needs no cleanup lock (I8).
 *
 * block 0: the leaf; its data: the ordinals removed from its packed part, and
 * the offsets of the plain entries removed, both ascending.
 */
typedef struct xl_cb_vacuum_leaf
{
	uint16		nitems;
	uint16		nordinals;
} xl_cb_vacuum_leaf;

#define SizeOfCbVacuumLeaf \
	(offsetof(xl_cb_vacuum_leaf, nordinals) + sizeof(uint16))

/*
 * Remove entries of rows that are dead to everyone from a leaf, without
 * VACUUM.  Standbys end the queries that could see them first.
 *
 * block 0: the leaf; its data: as of xl_cb_vacuum_leaf.  Nothing may be left
 * to remove: then the record stands for entries that were on their way to it.
 */
typedef struct xl_cb_leaf_delete
{
	TransactionId horizon;		/* latest one that made a row dead */
	uint16		nitems;
	uint16		nordinals;
	bool		is_decoded;		/* does logical decoding read the table? */
} xl_cb_leaf_delete;

#define SizeOfCbLeafDelete \
	(offsetof(xl_cb_leaf_delete, is_decoded) + sizeof(bool))

/*
 * Put all entries of a leaf, and new ones, into its packed part.
 *
 * block 0: the leaf; its data: the places of its plain entries in the new
 * packed part, or CB_PLACE_DROP; the places of the new ones, ascending; the
 * new ones, each MAXALIGNed.
 */
typedef struct xl_cb_leaf_pack
{
	uint16		nplain;
	uint16		nnew;
} xl_cb_leaf_pack;

#define SizeOfCbLeafPack (offsetof(xl_cb_leaf_pack, nnew) + sizeof(uint16))

/*
 * Spread the entries of a leaf over it, its right neighbour, and perhaps a new
 * leaf to the right of that, which then lacks its downlink.
 *
 * block 0: the parent; its data: the neighbour's new downlink, which takes
 * the place of the one at off.
 * blocks 1 ... nleaves: the leaves, in full, left to right.
 */
typedef struct xl_cb_redistribute
{
	uint16		nleaves;
	OffsetNumber off;
} xl_cb_redistribute;

#define SizeOfCbRedistribute (offsetof(xl_cb_redistribute, off) + sizeof(OffsetNumber))

/* pages that leave the tree in one record, at most one a level */
#define CB_MAX_UNLINK_PAGES		8

/*
 * Take an empty leaf out of the tree, and the pages above it that have no
 * other child; or a leaf whose entries go to its right neighbour.
 *
 * block 0: the lowest page above that has more children; it loses one.
 * blocks 1 + 2i: the left sibling of the page of level i; its right link
 * becomes next[i].
 * blocks 2 + 2i: the page of level i, initialised as a deleted one.
 * the next block, if merged: the leaf's right neighbour, in full.
 */
typedef struct xl_cb_unlink
{
	FullTransactionId safexid;
	OffsetNumber offset;		/* of the downlink in block 0 */
	uint8		npages;
	bool		merged;
	BlockNumber next[CB_MAX_UNLINK_PAGES];	/* npages of them */
} xl_cb_unlink;

#define SizeOfCbUnlink(npages) \
	(offsetof(xl_cb_unlink, next) + (npages) * sizeof(BlockNumber))

/*
 * A deleted page of the tree is about to be used again.  No blocks: the page
 * changes later, if at all, and the standby's readers have to know before.
 */
typedef struct xl_cb_reuse_page
{
	RelFileLocator file;
	BlockNumber block;			/* for pg_waldump */
} xl_cb_reuse_page;

#define SizeOfCbReusePage sizeof(xl_cb_reuse_page)

/*
 * Make the index's first range page, or tile page, and the root above it; or
 * split one, or an inner page above them; or move what the root has to two new
 * pages below it; or cut a tile in two; or note that tiles may have entries of
 * a range.  No data: all blocks are there in full.
 *
 * blocks 0 ...: the metapage, the root, the page; or the page, the new one to
 * its right, the inner page above; or the metapage, the left and the right new
 * page, the root; or the page alone.
 */

/*
 * Write a run and list it; or make it a tile's, in the place of the one that it
 * has, whose entries it has as well, and which becomes the tile's old one.
 *
 * block 0: the range page, or the tile page; its data: the run's CbRunItem.
 * blocks 1 ... npages: the run's pages, in full.
 */
typedef struct xl_cb_spill
{
	uint16		npages;
	OffsetNumber tile;			/* its item; 0: it is a range page, as in 1.0,
								 * which lacks this */
} xl_cb_spill;

#define SizeOfCbSpill (offsetof(xl_cb_spill, tile) + sizeof(OffsetNumber))

/*
 * The entries of some runs of a range are in the leaves, or in tiles; or those of
 * a tile's run are in the leaves, and it becomes the tile's old one.
 *
 * block 0: the range page; its data: the offsets of their items.  Or the tile
 * page.
 */
typedef struct xl_cb_retire
{
	FullTransactionId safexid;	/* not of a tile's */
	uint16		nitems;
	OffsetNumber tile;			/* as in xl_cb_spill */
} xl_cb_retire;

#define SizeOfCbRetire (offsetof(xl_cb_retire, tile) + sizeof(OffsetNumber))

/*
 * Give up the pages of a run that nobody can be reading any more; queries of
 * standbys, which can, notice it, and so does who reads a tile's old run.
 *
 * block 0: the range page, which loses the item; or the tile page, whose tile has no
 * old run then.
 * blocks 1 ... npages: the run's pages, initialised as deleted ones.
 */
typedef struct xl_cb_run_free
{
	OffsetNumber offset;
	uint16		npages;
	bool		is_tile;		/* not in version 1.0 */
} xl_cb_run_free;

#define SizeOfCbRunFree (offsetof(xl_cb_run_free, is_tile) + sizeof(bool))

/* what is done with a kind of record */
typedef struct CbWalAction
{
	const char *name;
	void		(*redo) (XLogReaderState *record);
	void		(*describe) (StringInfo buf, const char *rec);	/* or NULL */
	int			counted;		/* what redo counts: a set of CbCount; the
								 * record's block 0 is of the file.  A reuse is
								 * counted by its own redo */
} CbWalAction;

/* cb_rmgr.c */
extern void cb_wal_register(const CbWalAction *actions);

/* cb_redo.c: the frame of redo functions */
extern Page cb_redo_begin(XLogReaderState *record, uint8 block, uint16 kinds,
						  Buffer *buf);
extern void cb_redo_read_data(XLogReaderState *record, void *data, Size size);
extern void cb_redo_require(XLogReaderState *record, uint8 block, bool sound);
extern Page cb_redo_begin_init(XLogReaderState *record, uint8 block,
							   Buffer *buf);
extern void cb_redo_mark(XLogReaderState *record, Page page, Buffer buf);
extern void cb_redo_end(XLogReaderState *record, Page page, Buffer buf);
extern Buffer cb_redo_image(XLogReaderState *record, uint8 block);
extern void cb_redo_clear_incomplete(XLogReaderState *record,
									 uint8 first_block, int nchildren);

/* each appends what a record of its kind says */
extern void cb_describe_journal_append(StringInfo buf, const char *rec);
extern void cb_describe_journal_truncate(StringInfo buf, const char *rec);
extern void cb_describe_insert(StringInfo buf, const char *rec);
extern void cb_describe_split(StringInfo buf, const char *rec);
extern void cb_describe_newroot(StringInfo buf, const char *rec);
extern void cb_describe_vacuum_leaf(StringInfo buf, const char *rec);
extern void cb_describe_leaf_pack(StringInfo buf, const char *rec);
extern void cb_describe_redistribute(StringInfo buf, const char *rec);
extern void cb_describe_unlink(StringInfo buf, const char *rec);
extern void cb_describe_reuse_page(StringInfo buf, const char *rec);
extern void cb_describe_leaf_delete(StringInfo buf, const char *rec);
extern void cb_describe_spill(StringInfo buf, const char *rec);
extern void cb_describe_retire(StringInfo buf, const char *rec);
extern void cb_describe_run_free(StringInfo buf, const char *rec);

#endif							/* CB_WAL_H */
