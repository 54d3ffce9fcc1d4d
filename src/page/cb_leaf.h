/*-------------------------------------------------------------------------
 *
 * cb_leaf.h
 *	  Leaves: a packed part and plain entries.
 *
 * A plain leaf holds its entries as items in order.  A packed leaf's first
 * item (behind the high key) is its packed part, a blob of entries in order,
 * encoded by core/cb_pack; the items behind it, the leaf's delta, are plain
 * entries in an order of their own.  Packed part and delta may hold the same
 * (key, TID): readers and whoever packs the leaf again use one of them, VACUUM
 * removes both.
 *
 * New entries go to the delta while the page has room; then the leaf is packed
 * again, with all of them in its packed part.  Which leaf is packed is decided
 * when a plain one runs full.
 *
 * Nothing here compares keys: what is done to a page is told by places, so
 * that redo does it alike (I10).
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_LEAF_H
#define CB_LEAF_H

#include "base/cb_arena.h"
#include "core/cb_pack.h"
#include "page/cb_entry.h"
#include "page/cb_page.h"

#define CbPageIsPacked(page) \
	((CbPageGetOpaque(page)->flags & CBP_PACKED) != 0)

/* the first plain entry of a leaf */
#define CbPageFirstPlain(page) \
	((OffsetNumber) (CbPageFirstItem(page) + (CbPageIsPacked(page) ? 1 : 0)))

/* a leaf being read: of the page, or of a copy that stays where it is */
typedef struct CbLeaf
{
	Page		page;
	int			npacked;		/* entries of the packed part; 0: there is
								 * none */
	TupleDesc	desc;			/* what these are to look like; NULL: nobody
								 * looks */
	CbPackReader packed;
} CbLeaf;

/* memory for one entry that was read from a packed part */
typedef union CbLeafTuple
{
	IndexTupleData tuple;
	char		bytes[sizeof(IndexTupleData) + CB_PACK_MAX_BODY];
	uint64		align;
} CbLeafTuple;

#define CB_LEAF_HEADER	sizeof(IndexTupleData)

/* memory that cb_leaf_read_from() asks for */
#define CB_LEAF_READ_ROOM \
	Max(sizeof(CbLeafTuple), CB_PACK_WORDS_ROOM(CB_LEAF_HEADER))

/* The TID as a number, in the order of TIDs. */
static inline uint64
cb_leaf_tid_number(const ItemPointerData *tid)
{
	return (uint64) ItemPointerGetBlockNumberNoCheck(tid) << 16 |
		ItemPointerGetOffsetNumberNoCheck(tid);
}

/* Begins to read a leaf; false: its packed part is damaged. */
extern bool cb_leaf_open(CbLeaf *leaf, Page page, TupleDesc desc);

/* Raises the error for a page whose packed part is damaged. */
pg_noreturn extern void cb_leaf_report_damaged(Relation rel, BlockNumber blkno);

/* Looks at every entry of the packed part; false: it is damaged. */
extern bool cb_leaf_check(const CbLeaf *leaf);

/* Entry i of the packed part, in *tuple; NULL: the packed part is damaged. */
extern IndexTuple cb_leaf_read(CbLeaf *leaf, int i, CbLeafTuple *tuple);

extern void cb_leaf_read_tid(const CbLeaf *leaf, int i, ItemPointer tid);

/*
 * TIDs of entry i of the packed part and of some behind it; 0: it is damaged.
 */
extern int	cb_leaf_read_tids(const CbLeaf *leaf, int i, ItemPointer tids);

/* The same, but only blocks of the table beyond which none of these TIDs is. */
extern int	cb_leaf_heap_range(const CbLeaf *leaf, int i, BlockNumber *low,
							   BlockNumber *high);

/* Entry i of the packed part and some behind it, in the arena's memory. */
extern int	cb_leaf_read_from(CbLeaf *leaf, int i, CbArena *arena, IndexTuple *items);

/* All of its entries; false: it is damaged. */
extern bool cb_leaf_read_all(CbLeaf *leaf, CbArena *arena, IndexTuple *items);

/* The page's blob. */
extern char *cb_leaf_blob(Page page, Size *len);

/* Can these entries be part of a packed part? */
extern bool cb_leaf_can_pack(IndexTuple *items, int n);

/* Bytes that a packed part of these entries takes, 0 if more than capacity. */
extern Size cb_leaf_measure(IndexTuple *items, int n, Size capacity);

/* Encodes entries that can be part of a packed part; 0: they do not fit. */
extern Size cb_leaf_encode(IndexTuple *items, int n, char *blob, Size capacity);

/* Puts a blob into a page without entries; false: it does not fit. */
extern bool cb_leaf_put_blob(Page page, const char *blob, Size len);

/* The same of entries. */
extern bool cb_leaf_put_packed(Page page, IndexTuple *items, int n);

/* Builds in image the leaf with exactly these entries; false: no room. */
extern bool cb_leaf_build(Page page, IndexTuple *items, int n, Size reserve,
						  Page image);

/* how a leaf is packed again */
#define CB_PLACE_DROP	0xFFFF	/* a plain entry that the packed part has, too */

typedef struct CbRepack
{
	int			nplain;			/* the page's plain entries */
	uint16	   *plain_at;		/* place of each in the new packed part, or
								 * DROP */
	int			nnew;			/* new entries */
	uint16	   *new_at;			/* place of each; ascending */
	const char *tuples;			/* the new entries, each MAXALIGNed */
	Size		tuples_len;
} CbRepack;

/* Entries of the leaf, in order, as they are to be packed again. */
extern int	cb_leaf_merge(Page page, const CbRepack *repack, CbArena *arena,
						  IndexTuple **items);

/* Removes entries of the packed part and plain ones; cannot fail. */
extern void cb_leaf_delete(Page page, const uint16 *ordinals, int nordinals,
						   OffsetNumber *offsets, int noffsets);

#endif							/* CB_LEAF_H */
