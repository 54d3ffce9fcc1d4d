/*-------------------------------------------------------------------------
 *
 * cb_tree.h
 *	  The B-link tree: search, batch apply, split, bulk load, bulk delete.
 *
 * Lock order (I9): a child before its parent, left before right on one level;
 * the metapage last.  Readers hold one page lock at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_TREE_H
#define CB_TREE_H

#include "access/genam.h"
#include "page/cb_leaf.h"
#include "rel/cb_change.h"
#include "rel/cb_key.h"
#include "rel/cb_rel.h"
#include "storage/bufmgr.h"

/* a tree page is split into this many new pages at most, in one record */
#define CB_MAX_SPLIT_PAGES	8

/* where entries come in order internal pages are filled to this part */
#define CB_INTERNAL_FILLFACTOR	70

/* moves to the right after which a circle of right links is suspected */
#define CB_CHECK_MOVES	1024

/* a taller tree is corrupt */
#define CB_MAX_TREE_LEVELS	32

/* the pages that a descent came through, one a level; leaf first */
typedef struct CbPath
{
	int			nlevels;		/* as seen at the root */
	BlockNumber blkno[CB_MAX_TREE_LEVELS];
	bool		single[CB_MAX_TREE_LEVELS]; /* has one item */
} CbPath;

/* the parent page that a descent came through, to find neighbouring leaves */
typedef struct CbDescent
{
	CbPath	   *path;			/* out, if not NULL; for reading only */
	IndexTuple	low;			/* out: palloc'd copy of the greatest
								 * separator followed: the leaf's lower bound,
								 * NULL for minus infinity; only if want_low */
	bool		want_low;
	Page		root;			/* room for a copy of the root, where descents
								 * begin, all for reading and under one MVCC
								 * snapshot; NULL: none */
	int			root_level;		/* of the copy, 0: it is not made yet */
	bool		want_parent;	/* keep a copy of the level-1 page */
	bool		parent_valid;
	BlockNumber leaf;
	PGAlignedBlock parent;
} CbDescent;

/* what an apply did, for the statistics */
typedef struct CbApplyStats
{
	int64		entries;		/* entries put into leaves */
	int64		duplicates;		/* already there (I5) */
	int64		visits;			/* leaves locked and changed */
	int64		descents;		/* descents from the root */
	int64		splits;
	int64		dropped;		/* dead ones: out of leaves, or never put in */
	int64		tiled;			/* entries that went to tiles instead (range/) */
} CbApplyStats;

/* the entries of a batch that go to one leaf, with their places */
typedef struct CbLeafBatch
{
	int			taken;			/* entries of the input dealt with */
	int			ndead;			/* dead ones among them, which were dropped */
	int			n;				/* new ones among them */
	Size		len;			/* MAXALIGNed bytes of the new ones */
	IndexTuple *tuples;
	OffsetNumber *offsets;		/* in the page as it is: insert before */
} CbLeafBatch;

/* cb_search.c */
extern Buffer cb_tree_descend(const CbKeyDesc *kd, const CbBound *bound,
							  ScanDirection dir, Snapshot snapshot,
							  CbDescent *descent);
extern Buffer cb_tree_descend_to(const CbKeyDesc *kd, const CbBound *bound,
								 ScanDirection dir, int target_level,
								 Snapshot snapshot, CbDescent *descent);
extern Buffer cb_tree_descend_to_downlink(const CbKeyDesc *kd, const CbBound *bound,
										  ScanDirection dir, Snapshot snapshot,
										  CbDescent *descent);
extern Buffer cb_tree_read_leaf(Relation rel, const CbLeafHint *hint,
								Snapshot snapshot);
extern void cb_tree_find_leaves(const CbKeyDesc *kd, const CbBound *bound,
								const Datum *values, int n, Snapshot snapshot,
								CbLeafHint *hints);
extern Buffer cb_tree_descend_for_write(const CbKeyDesc *kd, const CbBound *bound,
										int level, CbDescent *descent);
extern OffsetNumber cb_tree_search_page(const CbKeyDesc *kd, const CbBound *bound,
										Page page, ScanDirection dir);
extern bool cb_tree_packed_is_left(const CbKeyDesc *kd, const CbBound *bound,
								   CbLeaf *leaf, BlockNumber blkno, int i);
extern int	cb_tree_search_packed(const CbKeyDesc *kd, const CbBound *bound,
								  CbLeaf *leaf, BlockNumber blkno);
extern void cb_tree_check_moves(Relation rel, BlockNumber next, BlockNumber moves, int level);

extern IndexTuple *cb_tree_sample_separators(const CbKeyDesc *kd, int max,
											 Size max_size, int *n);
extern IndexTuple cb_tree_find_separator(const CbKeyDesc *kd, IndexTuple itup);
extern IndexTuple cb_tree_find_low(const CbKeyDesc *kd, IndexTuple itup);
extern IndexTuple cb_tree_find_separator_after(const CbKeyDesc *kd, IndexTuple low,
											   int64 nleaves);
extern int64 cb_tree_count_leaves_between(const CbKeyDesc *kd, const CbBound *low,
										  const CbBound *high, int64 max);
extern int64 cb_tree_count_leaves(const CbKeyDesc *kd, IndexTuple low,
								  IndexTuple high, int64 max);

/* cb_ahead.c */

#define CB_AHEAD_MAX	1024

/*
 * The leaves that a scan will come to, in its order.  Hints, as the page above
 * them told: they may have been split since, or have left the tree.
 */
typedef struct CbAhead
{
	ScanDirection dir;
	CbBound		end;			/* where the scan ends */
	CbBound		at;				/* how far the list goes */
	PGAlignedBlock tuple;		/* of at */
	bool		done;			/* that is the scan's end */
	int			n;
	CbLeafHint	leaves[CB_AHEAD_MAX];
} CbAhead;

extern void cb_tree_ahead_begin(const CbKeyDesc *kd, CbAhead *ahead,
								IndexTuple from);
extern void cb_tree_ahead_extend(const CbKeyDesc *kd, CbAhead *ahead);

/* cb_apply.c */
extern int	cb_tree_apply(const CbKeyDesc *kd, CbSortEntry *entries, int n,
						  CbApplyStats *stats);
extern void cb_tree_count_applied(Relation rel, const CbApplyStats *stats);
extern bool cb_tree_batch_is_dense(const CbKeyDesc *kd, CbSortEntry *entries,
								   int n);
extern void cb_tree_check_still_locked(Relation rel, Buffer buf);
extern void cb_tree_insert_at(Relation rel, Buffer buf, uint8 info, int n,
							  const OffsetNumber *offsets, const char *tuples,
							  Size len, Buffer *child_bufs, int nchildren);
extern void cb_redo_insert(XLogReaderState *record);

/* cb_dead.c */

extern Relation cb_tree_open_table(Relation index);
extern void cb_tree_close_table(Relation heap);

/* Applies in between ask the table which entries are dead. */
extern void cb_dead_begin(CbKeyDesc *kd, bool new_versions);
extern void cb_dead_end(CbKeyDesc *kd);

/* Drops entries that are dead to everyone, of a leaf and a batch. */
extern bool cb_dead_drop(const CbKeyDesc *kd, Buffer buf,
						 const CbLeafBatch *batch, CbSortEntry *entries,
						 CbApplyStats *stats);
extern void cb_redo_leaf_delete(XLogReaderState *record);

/* cb_repack.c */

/* Merges a copy of a leaf with a batch. */
extern int	cb_repack_merge(const CbKeyDesc *kd, BlockNumber blkno, Page page,
							CbLeafBatch *batch, CbArena *arena,
							CbRepack *repack, IndexTuple **items);

/* Packs the leaf with the merged entries. */
extern bool cb_repack_leaf(Relation rel, Buffer buf, const CbLeafBatch *batch,
						   CbArena *arena, CbRepack *repack, IndexTuple *items,
						   int n);
extern void cb_redo_leaf_pack(XLogReaderState *record);

/* cb_redistribute.c */

/*
 * Spreads a leaf's entries over it and its right neighbour, in place of a
 * split.
 */
extern bool cb_redistribute_leaf(const CbKeyDesc *kd, Buffer buf, CbArena *arena,
								 IndexTuple *items, int n);
extern void cb_redo_redistribute(XLogReaderState *record);

/* Has the leaf so much room, or so much to pack? */
extern bool cb_redistribute_is_worth_filling(Page page);

/* Moves as many entries as possible to the right neighbour. */
extern bool cb_redistribute_fill(const CbKeyDesc *kd, Buffer buf, CbArena *arena);

/* Makes an image of the right leaf with the left one's entries as well. */
extern bool cb_redistribute_merge(const CbKeyDesc *kd, Buffer left_buf,
								  Buffer right_buf, Page image);

/* cb_compact.c */

typedef struct CbCompactTask
{
	CbBound		lo;
	CbBound		at;				/* in: the right end; out: where to go on */
	PGAlignedBlock tuple;		/* of at */
	BlockNumber leaf;			/* out: one whose right end is there, or was */
	int64		budget;			/* steps at most, of a leaf or two each */
	TimestampTz until;			/* nor later than that; 0: however long it
								 * takes */

	/*
	 * asked for each leaf, from right to left: is it to be packed to the
	 * right?
	 */
	bool		(*is_cold) (Relation rel, BlockNumber leaf, void *arg);
	void	   *arg;			/* of is_cold, which is NULL: all leaves are */

	int64		freed;			/* out: leaves taken out of the tree */
	bool		done;			/* out: the left end was reached */
} CbCompactTask;

extern void cb_tree_compact_go_on(Relation rel, CbCompactTask *task,
								  BlockNumber leaf);
extern void cb_tree_compact(const CbKeyDesc *kd, CbCompactTask *task);

/* cb_predicate.c */

/* What a serializable transaction has locked of an index, for a scan. */
typedef struct CbLockedKeys
{
	IndexTuple	end;			/* in the scan's direction, palloc'd; NULL: it
								 * has none */
	CbLeafHint	leaf;			/* its lower bound is not right of the scan's */
	int			ncells;			/* so many were locked in its place, or 0 */
} CbLockedKeys;

/* the first column's values between two, by their exact abbreviations */
typedef struct CbNumbers
{
	uint64		low;
	uint64		high;			/* inclusive */
} CbNumbers;

extern void cb_predicate_lock_keys(const CbKeyDesc *kd, const CbBound *bound,
								   ScanDirection dir, Snapshot snapshot,
								   CbDescent *descent, const CbNumbers *numbers,
								   CbLockedKeys *locked);
extern void cb_predicate_lock_value(Relation rel, uint32 hash, Snapshot snapshot);
extern void cb_predicate_check(CbKeyDesc *kd, const CbSortEntry *entries, int n);
extern void cb_predicate_transfer(Relation rel, BlockNumber from, BlockNumber to);

/* cb_prewarm.c */
extern int64 cb_tree_prewarm(const CbKeyDesc *kd, const CbBound *lo, const CbBound *hi);

/* cb_split.c */
extern Size cb_tree_plain_space(IndexTuple *items, int nitems);
extern Size cb_tree_measure(IndexTuple *items, int nitems, Size *plain);
extern int	cb_tree_divide_bytes(IndexTuple *items, int nitems, Size target,
								 int nparts, int *first);
extern bool cb_tree_build_page(Page page, uint16 flags, uint16 level,
							   IndexTuple hikey, bool packed,
							   IndexTuple *items, int nitems);
extern bool cb_tree_split(const CbKeyDesc *kd, Buffer buf, IndexTuple *items,
						  int nitems, Buffer *child_bufs, int nchildren,
						  bool at_end);
extern bool cb_tree_split_as_is(const CbKeyDesc *kd, Buffer buf);
extern void cb_tree_finish_split(const CbKeyDesc *kd, Buffer buf);
extern void cb_redo_split(XLogReaderState *record);
extern void cb_redo_newroot(XLogReaderState *record);

/* cb_load.c */
typedef struct CbLoader CbLoader;

extern CbLoader *cb_load_begin(const CbKeyDesc *kd, int fillfactor,
							   ForkNumber fork);
extern void cb_load_add(CbLoader *loader, IndexTuple itup);
extern void cb_load_finish(CbLoader *loader);

/* cb_delete.c */

/* what is to go from one leaf, both ascending */
typedef struct CbDeletable
{
	int			nordinals;		/* of its packed part */
	uint16		ordinals[CB_PACK_MAX_ENTRIES];
	int			noffsets;		/* plain */
	OffsetNumber offsets[MaxIndexTuplesPerPage];
} CbDeletable;

/* The data of block 0 of a record that removes these, and its redo. */
extern void cb_tree_register_deletable(const CbDeletable *dead);
extern void cb_tree_redo_deletable(XLogReaderState *record, Page page,
								   int nordinals, int noffsets);

extern void cb_tree_bulk_delete(IndexVacuumInfo *info,
								IndexBulkDeleteResult *stats,
								IndexBulkDeleteCallback callback,
								void *callback_state);

extern IndexBulkDeleteResult *cb_tree_complete_map(IndexVacuumInfo *info);
extern void cb_redo_vacuum_leaf(XLogReaderState *record);

/* cb_unlink.c */

/* pages deleted by one VACUUM that are looked at again at its end */
#define CB_UNLINK_REMEMBERED	4096

typedef struct CbUnlinker
{
	Relation	rel;
	CbKeyDesc	kd;
	MemoryContext cxt;			/* reset after each page */
	IndexBulkDeleteResult *stats;
	BlockNumber scan_blkno;		/* how far VACUUM's pass has come */
	int			nremembered;
	BlockNumber remembered[CB_UNLINK_REMEMBERED];
} CbUnlinker;

extern CbUnlinker *cb_tree_unlink_begin(Relation rel,
										IndexBulkDeleteResult *stats);
extern void cb_tree_unlink(CbUnlinker *unlinker, BlockNumber leaf,
						   BlockNumber scan_blkno);
extern bool cb_tree_unlink_merged(CbUnlinker *unlinker, BlockNumber leaf);
extern void cb_tree_unlink_finish(CbUnlinker *unlinker, CbPos tail);
extern bool cb_tree_leaf_is_empty(Page page);
extern void cb_redo_unlink(XLogReaderState *record);

#endif							/* CB_TREE_H */
