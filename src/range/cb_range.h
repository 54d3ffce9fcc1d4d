/*-------------------------------------------------------------------------
 *
 * cb_range.h
 *	  Range buffers: sorted runs between buckets and tree, on two levels.
 *
 * Where a full bucket would bring few entries to each leaf, its entries are
 * written as a run of pages of their own, listed in the range page of their
 * range of keys.  When the range has enough of them, they are applied to its
 * leaves in one sweep; or, if even as many as a range may have are few for each
 * leaf, they go to tiles (cb_tile.c), much smaller ranges of keys that have one
 * run each, which is written anew with what comes.  A tile's entries are applied
 * when it has enough.  Whoever wants the entries in the tree (VACUUM, a request,
 * scans that read many runs) has them applied.  See cb_range_page.h for the layout.
 *
 * Invariants:
 *	a) A run is listed from the record on that writes it (SPILL) to the record
 *	   that retires it (RETIRE), which follows the records of all leaves, and
 *	   tiles, that its entries went to (I1).  Its pages never change meanwhile.
 *	   A tile's run is listed until another one takes its place, in one record
 *	   (SPILL), that has its entries as well, or until it is retired.  Then it is
 *	   the tile's old run until its pages are given up (RUN_FREE), at once, or by
 *	   who comes next to the tile if that has failed.
 *	b) The pages of a range's retired run keep their contents until no snapshot
 *	   from before its retirement is left (RUN_FREE); so a scan that has copied
 *	   the items of a range page may read the runs at any time, without pins.
 *	   Snapshots of standbys do not count: a scan that began in recovery
 *	   watches whether a page is that of the run still (CbRunWatch).  A tile's
 *	   run gives its pages up at once: every scan watches those.
 *	c) A range page covers what it has covered from the first, or loses its
 *	   right part, while it lists no live run, to a new page to its right; none
 *	   is ever deleted.  So a run lies in one range, and a place where a range
 *	   begins stays good.
 *	d) Runs are an upper tier for VACUUM: it drains the buckets to the tree,
 *	   waits for those that others flush, then merges all runs, waiting for each
 *	   range's lock; after that those of all tiles, from left to right, waiting
 *	   for each tile page's lock.  Runs that are listed later are of chunks with
 *	   nothing from below its head (I4); a tile gets its entries from a flush that
 *	   owns chunks, under the lock of a range that lists the rest, and goes to the
 *	   right only.
 *	e) A range page says from before the first of its entries goes to a tile that
 *	   tiles may have some (CBP_HAS_TILES), for good, as do the parts that it is
 *	   split into.  The root above the tile pages is made before that.
 *
 * Order of reading (I2).  SPILL is logged before the chunks leave their bucket,
 * the tiles' records and the leaves' before RETIRE, and the leaves' before a tile
 * has no run.  A scan copies a range page's items and may read those runs later:
 * safexid is read under the range page's exclusive lock, so the scan's snapshot is
 * older.  After the range page it looks at the tile, if the range says that there
 * may be some, and before the leaf.  If the tile's run is given up before it has
 * been read, all of the window is read again: what the run had is in the tile's
 * run then, or in the leaves.  A window ends where its range and its tile do
 * (A5_RANGECLIP, A5_TILECLIP), and either is divided only while it lists no live
 * run (A5_RANGESPLIT); so no run lies in two.  Pages of retired runs take up room,
 * too: a page lists 128 runs of either kind, then its buckets go to the leaves.
 *
 * Has the index ranges?  Its bucket set's count of spills says so
 * (I1_RANGEFLAG).  It never falls while the bucket set is that index's, and
 * attaching raises it from the metapage, under the sweep lock; a flush that
 * still owns chunks keeps the index attached.  Without buckets the metapage
 * tells, read with the journal's tail: what lies above that is in the scan's
 * copies.
 *
 * Merges of a range, and those who free its pages, exclude one another by its
 * page lock.  They need no snapshot.  A worker takes that lock only if it is
 * free, as it owns chunks; else its entries go to the leaves.  The same holds for
 * a tile page and all that changes it; its lock is taken after a range's, and one
 * at a time.
 *
 * An unlogged index has no tiles, as its pages' LSNs cannot tell that they have
 * changed.
 *
 * What range pages and runs say was checked when it is believed: damage raises
 * an error, and a damaged root gives up no page of the tree.
 *
 * Locks: whoever retires runs of a range or frees their pages holds LockPage
 * (index, range page), exclusively; whoever changes a tile page holds that of the
 * tile page.  Content locks: pages of a run, if new or being freed, before the
 * range page, or tile page; this before a new one to its right, before the inner
 * page above it, and so on upwards; the metapage last.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_RANGE_H
#define CB_RANGE_H

#include "base/cb_arena.h"
#include "page/cb_range_page.h"
#include "tree/cb_tree.h"

/* fewer entries than this are no run: they go to the leaves */
#define CB_RUN_MIN_ENTRIES	256

/*
 * A range's runs go to tiles if they bring fewer entries to a leaf than this
 * part of cache_batch.spill_target; a tile's run goes to the leaves with twice
 * as many.
 */
#define CB_TILE_PART		8

/* ---------- cb_range_find.c ---------- */

/* a tile as it was read */
typedef struct CbTile
{
	BlockNumber blkno;			/* the tile page, ... */
	XLogRecPtr	lsn;			/* ... as it was then */
	OffsetNumber off;
	bool		first;			/* of that page */
	IndexTuple	low;			/* NULL: minus infinity; palloc'd */
	IndexTuple	high;			/* NULL: infinite; palloc'd */
	CbTileRuns	runs;
} CbTile;

#define CbTileHasRun(tile) ((tile)->runs.run.npages > 0)

extern BlockNumber cb_range_root(Relation rel, uint16 kind);
extern Buffer cb_range_read_inner(Relation rel, BlockNumber blkno, int level,
								  int lockmode);
extern Buffer cb_range_read_page(Relation rel, BlockNumber blkno, uint16 kind,
								 int lockmode, Snapshot snapshot);
extern Buffer cb_range_find(const CbKeyDesc *kd, BlockNumber root, uint16 kind,
							const CbBound *bound, ScanDirection dir, int lockmode,
							BlockNumber from, Snapshot snapshot);
extern Buffer cb_range_find_inner(const CbKeyDesc *kd, BlockNumber root,
								  const CbBound *bound, int level, int lockmode);
extern IndexTuple cb_range_copy_bound(Relation rel, IndexTuple bound);

/* where a place lies, by the bounds of a range */
extern bool cb_range_is_beyond(const CbKeyDesc *kd, const CbBound *bound,
							   ScanDirection dir, IndexTuple high);
extern bool cb_range_covers(const CbKeyDesc *kd, const CbBound *bound,
							ScanDirection dir, IndexTuple low, IndexTuple high);

/* is this block a range page of the index? */
extern bool cb_range_is_at(Relation rel, BlockNumber blkno);

extern void cb_range_check_moves(Relation rel, BlockNumber next,
								 BlockNumber moves);
extern int	cb_range_root_level(Relation rel, BlockNumber root);
extern IndexTuple *cb_range_separators(const CbKeyDesc *kd, BlockNumber root,
									   int wanted, Size max_size, int *n);
extern void cb_tile_read(const CbKeyDesc *kd, Buffer buf, const CbBound *bound,
						 ScanDirection dir, CbTile *tile);

/* ---------- cb_range_split.c ---------- */

extern BlockNumber cb_range_create(Relation rel, uint16 kind);
extern bool cb_range_split(const CbKeyDesc *kd, BlockNumber root,
						   IndexTuple separator);
extern void cb_range_note_tiles(Relation rel, BlockNumber blkno);
extern bool cb_tile_cut(const CbKeyDesc *kd, BlockNumber root, const CbTile *tile,
						IndexTuple separator);
extern void cb_tile_split_page(const CbKeyDesc *kd, BlockNumber root,
							   BlockNumber blkno, OffsetNumber off);
extern void cb_redo_range_pages(XLogReaderState *record);

/* ---------- cb_run_write.c ---------- */

extern int	cb_run_write(CbKeyDesc *kd, BlockNumber range,
						 const CbSortEntry *entries, int n);
extern bool cb_run_write_tile(CbKeyDesc *kd, CbTile *tile,
							  const CbSortEntry *entries, int n);
extern void cb_redo_spill(XLogReaderState *record);

/* ---------- cb_run_read.c ---------- */

/* tells a reader that the pages of a run have been given up */
typedef struct CbRunWatch
{
	BlockNumber range;			/* the page that listed the run, ... */
	XLogRecPtr	lsn;			/* ... as it was then */
	bool		lost;			/* out: a run that it listed is gone */
} CbRunWatch;

extern bool cb_run_is_lost(Relation rel, CbRunWatch *watch, Page page);

/*
 * Reads one run, page by page.  If it is lost it has no entries from there on,
 * and what it had is in the leaves.
 */
typedef struct CbRunCursor
{
	CbRunItem	item;
	CbRunWatch *watch;			/* NULL: the run cannot be given up */
	int			npages;			/* data pages; 0: not known yet, or lost */
	BlockNumber pages[CB_RUN_MAX_PAGES];
	XLogRecPtr	lsn;			/* of the root: greater than of earlier runs */
	int			at;				/* the one in the copy, -1: none */
	int			ahead_of;		/* the one whose next was asked for, -1: none */
	int			nentries;		/* of it */
	CbLeaf		leaf;
	PGAlignedBlock copy;
} CbRunCursor;

extern void cb_run_open(CbRunCursor *cursor, const CbRunItem *item,
						CbRunWatch *watch);

/* by the run's filters, may it hold entries with this hash? */
extern bool cb_run_may_hold(Relation rel, const CbRunItem *item, uint32 hash,
							CbRunWatch *watch);

extern void cb_run_add_filter(Relation rel, const CbRunItem *item, int filter,
							  cb_atomic64 *to);
extern int	cb_run_seek(const CbKeyDesc *kd, CbRunCursor *cursor,
						const CbBound *bound, ScanDirection dir);
extern bool cb_run_turn(Relation rel, CbRunCursor *cursor, ScanDirection dir);
extern void cb_run_prefetch(const CbKeyDesc *kd, CbRunCursor *const *cursors,
							int n, const CbBound *bound, ScanDirection dir);
extern void cb_run_prefetch_next(const CbKeyDesc *kd, CbRunCursor *cursor,
								 const CbBound *end, ScanDirection dir);
extern IndexTuple cb_run_entry(Relation rel, CbRunCursor *cursor, int i,
							   CbLeafTuple *tuple);
extern void cb_run_check_page(Relation rel, Buffer buf);
extern int	cb_run_list_pages(Relation rel, const CbRunItem *item,
							  BlockNumber *pages);

/* entries of runs, collected to be merged */
typedef struct CbRunEntries
{
	const CbKeyDesc *kd;
	BlockNumber listed;			/* the page that lists the runs */
	CbArena		arena;			/* of what is not the caller's */
	int			n;
	int64		allocated;
	CbSortEntry *entries;
	CbRunCursor cursor;			/* of the last run that was read */
} CbRunEntries;

extern void cb_run_entries_init(CbRunEntries *all, const CbKeyDesc *kd,
								BlockNumber listed, int64 n);
extern void cb_run_entries_add_run(CbRunEntries *all, const CbRunItem *item);
extern void cb_run_entries_add(CbRunEntries *all, const CbSortEntry *entries, int n);
extern int	cb_run_entries_left_of(const CbKeyDesc *kd, const CbSortEntry *entries,
								   int n, IndexTuple itup);
extern int	cb_run_entries_inside(const CbKeyDesc *kd, const CbSortEntry *entries,
								  int n, IndexTuple high);

/* ---------- cb_range_merge.c ---------- */

/* a range page as it was read */
typedef struct CbRangeState
{
	BlockNumber blkno;
	XLogRecPtr	lsn;
	IndexTuple	low;			/* NULL: minus infinity; palloc'd */
	IndexTuple	high;			/* NULL: infinite; palloc'd */
	BlockNumber next;
	bool		has_room;		/* for another run */
	bool		has_tiles;		/* tiles may have entries of the range */
	int			nruns;			/* live ones */
	CbRunItem	runs[CB_RANGE_MAX_RUNS];
	int64		nentries;		/* of those */
	int			nretired;
} CbRangeState;

extern bool cb_range_is_inside(const CbKeyDesc *kd, IndexTuple low,
							   IndexTuple high, IndexTuple separator);
extern void cb_range_read(Relation rel, Page page, CbRangeState *state);
extern void cb_range_look(Relation rel, BlockNumber blkno, CbRangeState *state);

extern bool cb_range_lock(Relation rel, BlockNumber range, bool wait);
extern void cb_range_unlock(Relation rel, BlockNumber range);

/*
 * How far a merge came that gave way to one who waits for its lock: of the
 * range's live runs that are no later than lsn, what is not right of that
 * entry is in the tree.  It is entry number "ordinal" of the run with this
 * root.
 */
typedef struct CbRangePlace
{
	XLogRecPtr	lsn;			/* 0: there is none */
	BlockNumber range;
	BlockNumber root;
	uint32		ordinal;
} CbRangePlace;

extern int	cb_range_merge(const CbKeyDesc *kd, BlockNumber range,
						   CbRangePlace *place, const CbSortEntry *entries,
						   int n, bool may_tile, CbApplyStats *stats);
extern void cb_range_free_retired(Relation rel, BlockNumber range);
extern void cb_tile_retire(Relation rel, CbTile *tile);
extern void cb_tile_free_old(Relation rel, CbTile *tile);
extern void cb_tile_check_page(Relation rel, const CbTile *tile, Page page);
extern void cb_redo_retire(XLogReaderState *record);
extern void cb_redo_run_free(XLogReaderState *record);

/* ---------- cb_tile.c ---------- */

extern int64 cb_tile_width(const CbRangeState *state);
extern BlockNumber cb_tile_find_root(Relation rel);
extern int	cb_tile_apply(const CbKeyDesc *kd, BlockNumber root, IndexTuple low,
						  CbSortEntry *entries, int n, int64 width,
						  CbApplyStats *stats);
extern void cb_tile_merge_between(const CbKeyDesc *kd, const CbBound *lo,
								  const CbBound *hi, bool wait,
								  CbApplyStats *stats);

/* ---------- cb_range_seen.c ---------- */

/*
 * When a look-up comes to range pages, and by way of which bucket: in this
 * attachment of the index, with its spills counted before it reads any.
 */
typedef struct CbRangeMoment
{
	uint32		bucket;
	uint64		attach_id;
	uint64		spills;
} CbRangeMoment;

/* a range page as it was at this LSN, in memory of the backend's own */
typedef struct CbRangeSeen
{
	uint64		attach_id;		/* 0: nothing is known here */
	uint64		spills;			/* it was so when these had been counted */
	XLogRecPtr	lsn;
	BlockNumber blkno;
	int			visits;			/* look-ups that found it so, without filters */
	IndexTuple	low;			/* NULL: minus infinity */
	IndexTuple	high;			/* NULL: infinite */
	int			nfilters;		/* as many as each run has */
	bool		has_tiles;
	int			npages;			/* of unions, each of nfilters pages */
	cb_atomic64 *filters;		/* unions of the runs' filters, none if there
								 * are no runs; NULL: not made */
} CbRangeSeen;

#define CB_RANGE_BOUND_ROOM	64	/* of MAXALIGN; longer ones are palloc'd */

/* a range's bounds, copied; NULL: it has none; and may it have runs? */
typedef struct CbRangeBounds
{
	bool		has_runs;
	bool		has_tiles;
	IndexTuple	low;
	IndexTuple	high;
	char		room[2][CB_RANGE_BOUND_ROOM] pg_attribute_aligned(MAXIMUM_ALIGNOF);
} CbRangeBounds;

extern bool cb_range_seen_lacks(const CbKeyDesc *kd, const CbRangeMoment *now,
								const CbBound *bound, ScanDirection dir,
								const uint32 *hash, Snapshot snapshot,
								CbRangeBounds *range);
extern void cb_range_seen_note(Relation rel, const CbRangeMoment *now,
							   const CbRangeState *state, bool by_hash);

/* ---------- cb_range_flush.c ---------- */

typedef enum CbSpillMode
{
	CB_SPILL_NEVER,				/* all goes to the leaves, the runs of ranges
								 * that are met stay */
	CB_SPILL_ONLY,				/* runs are not merged, unless there is no
								 * room */
	CB_SPILL_OR_MERGE
} CbSpillMode;

extern int	cb_range_apply(CbKeyDesc *kd, CbSortEntry *entries, int n,
						   CbSpillMode mode, CbRangePlace *place,
						   CbApplyStats *stats, int64 *spilled);
extern bool cb_range_is_wanted(Relation rel);
extern void cb_range_merge_between(const CbKeyDesc *kd, const CbBound *lo,
								   const CbBound *hi, bool wait,
								   CbApplyStats *stats);
extern void cb_range_merge_at(const CbKeyDesc *kd, BlockNumber blkno,
							  CbRangePlace *place, CbApplyStats *stats);
extern void cb_range_free_all(const CbKeyDesc *kd);

#endif							/* CB_RANGE_H */
