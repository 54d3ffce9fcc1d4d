/*-------------------------------------------------------------------------
 *
 * cb_scan.h
 *	  State of an index scan, shared by the scan files only.
 *
 * A scan works in windows.  A window is a range of entries between two bounds,
 * inside the range of one leaf; it holds those entries of leaf and upper
 * tiers that pass the scan's quals, in order, and mostly a private copy of
 * that leaf.  The next window of either direction starts at the bound where
 * this one ends.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_SCAN_H
#define CB_SCAN_H

#include "access/relscan.h"
#include "access/tableam.h"
#include "am/cb_am.h"
#include "am/cb_explain.h"
#include "am/cb_keys.h"
#include "base/cb_arena.h"
#include "bucket/cb_bucket.h"
#include "bucket/cb_entry_cache.h"
#include "page/cb_leaf.h"
#include "range/cb_range.h"
#include "tree/cb_tree.h"

/* a window takes this many entries of upper tiers at most */
#define CB_WINDOW_UPPER_MAX		1024

/* the first window of a scan has so many items at most: it may want no more */
#define CB_WINDOW_FIRST_MAX		128
#define CB_WINDOW_END_MAX		2	/* if it begins at an end of the index */

/* when it has so many a scan that has just begun may want many */
#define CB_WINDOW_FEW			4

/* after twice as many unwanted entries a scan may go to the next wanted one */
#define CB_WINDOW_UNWANTED_STEP	16

/*
 * A bound, with its tuple or keys in memory of its own, and the place of that
 * bound in each component of the scan's CbUpper: the number of entries left of
 * it.  Where the bound is a leaf's high key, also the leaf that begins there:
 * lower bounds only fall, and a leaf that has left the tree leads to the one
 * that has its range.
 *
 * A bound of keys is where a scan has begun or gone to, in the direction dir.
 * If what it wants there has one value in the first column, which the keys
 * tell, that is point number "point" of points.
 */
typedef struct CbPlace
{
	CbBound		bound;
	char	   *buf;			/* memory for bound.tuple, or for an entry ... */
	Size		buf_size;
	int			nentry;			/* ... that so many first keys' values are of */
	CbBoundKey *keys;			/* memory for bound.keys, or NULL */
	ScanDirection dir;			/* of bound.keys */
	const CbKeyCond *points;	/* NULL: not one value */
	int			point;
	CbLeafHint	leaf;			/* its blkno is Invalid: not known */
	uint64		upper_serial;	/* the CbUpper that component_index is about */
	int			component_index[CB_COPY_MAX_COMPONENTS];
} CbPlace;

/* where an item of a window comes from */
typedef enum CbItemOrigin
{
	CB_ITEM_UPPER,				/* an upper tier */
	CB_ITEM_PLAIN,				/* the leaf's plain entry "number" */
	CB_ITEM_PACKED				/* the leaf's packed part, ordinal "number" */
} CbItemOrigin;

typedef struct CbScanItem
{
	IndexTuple	itup;			/* in the leaf's copy, or kept */
	uint16		number;
	uint8		origin;			/* CbItemOrigin */
} CbScanItem;

/*
 * xs_itup may be read up to the size of a name beyond a name column's start:
 * btree's name_ops stores a shorter cstring.
 */
#define CB_SCAN_SLACK	NAMEDATALEN

#define CbScanItemIsUpper(item) ((item)->origin == CB_ITEM_UPPER)

typedef struct CbWindow
{
	bool		valid;
	bool		clipped;		/* it ends before the leaf does */
	uint64		cached_attach_id;	/* not 0: its entry is kept as a cached
									 * one ... */
	uint32		cached_hash;	/* ... for this hash */
	CbPlace		lo;
	CbPlace		hi;
	bool		goes;			/* nothing wanted lies between its items and ... */
	CbPlace		to;				/* ... this, in the direction to.dir */
	bool		has_low;		/* the leaf does not begin right of ... */
	int64		low;			/* ... this number in the first column */
	bool		more_left;		/* may there be matches left of lo, ... */
	bool		more_right;		/* ... right of hi? */
	Buffer		buf;			/* the leaf, if it is pinned */
	CbLeafHint	leaf;			/* where the leaf is, or was */
	XLogRecPtr	lsn;			/* of the leaf when it was read */
	Page		page;			/* the leaf: the copy, or in its buffer */
	bool		copied;			/* leaf and reader are of blkno and lsn */
	int			nitems;
	int			index;			/* the item last returned */
	uint64		removals;		/* the scan's, when its entries were met */
	int			map_from;		/* items that the visibility map was asked for,
								 * from this one on ... */
	int			map_to;			/* ... up to this one; ... */
	uint64		map_all;		/* ... a bit for each whose row all see */
	int			nkilled;
	int			killed[MaxIndexTuplesPerPage];	/* indexes of items */
	int			nallocated;
	CbScanItem *items;
	CbArena		kept;			/* entries that are not in the copy */
	CbLeaf		reader;			/* of the page */
	PGAlignedBlock copy;
} CbWindow;

/*
 * Leaves of points of the scan's first column, found together.  Good for as
 * long as these are: the scan's snapshot keeps the links right, or, in
 * recovery, whoever follows one sees whether it still is.
 */
#define CB_SCAN_GROUP_MAX	64

typedef struct CbScanGroup
{
	const CbKeyCond *points;
	int			first;			/* the point that hints[0] is for */
	int			n;				/* 0: none */
	CbLeafHint	hints[CB_SCAN_GROUP_MAX];
} CbScanGroup;

/* leaves that are being read in before the scan comes to them */
typedef struct CbScanAhead
{
	bool		whole;			/* will all be read up to the scan's end? */
	bool		hops;			/* has the scan gone to where it is, other than
								 * to a point? */
	const CbKeyCond *points;	/* the scan has gone to this one's ... */
	int			point;			/* ... point; NULL: to none */
	bool		dense;			/* it comes from point to point, and so far from
								 * leaf to leaf by that */
	ScanDirection dir;			/* in which the scan goes, if it has a leaf */
	BlockNumber leaf;			/* the last one that it came to, ... */
	BlockNumber next;			/* ... and the one right of it, if known */
	int			nleaves;		/* so many in a row */
	bool		on;				/* are more asked for? */
	int			max;			/* leaves beyond the scan's, at most ... */
	int			distance;		/* ... and at present */
	int			nfound;			/* the last ones asked for were in memory */
	int			seen;			/* leaves of the list that it has come to */
	int			asked;			/* those, and the ones asked for */
	CbAhead    *list;			/* NULL: not needed yet */
	CbBoundKey *end_keys;		/* of list's end */
} CbScanAhead;

/* what the scan has seen of the index's range buffers */
typedef struct CbScanRanges
{
	MemoryContext cxt;			/* of the bounds in state */
	bool		known;			/* is there something in state? */
	CbRangeState state;			/* of the range page last read */
	CbRunWatch	watch;			/* of its runs, if the scan began in recovery */
	CbRunCursor *cursors[CB_RANGE_MAX_RUNS];	/* of state's runs, or NULL */
	MemoryContext tile_cxt;		/* of the bounds in tile; NULL: not needed yet */
	bool		tile_known;		/* is there something in tile? */
	CbTile		tile;			/* the one last read, ... */
	CbRunWatch	tile_watch;		/* ... of its run, ... */
	CbRunCursor *tile_cursor;	/* ... which this reads; NULL: not needed yet */
	int			nwanted;		/* runs that this window has to read, ... */
	CbRunCursor *wanted[CB_RANGE_MAX_RUNS + 1]; /* ... the tile's as well */
} CbScanRanges;

typedef struct CbScanOpaqueData
{
	/* the scan's memory, which outlives it */
	MemoryContext own_cxt;		/* of this struct, of the memory of places,
								 * keys and windows, and of the next two */
	MemoryContext cxt;			/* reset when the scan ends */
	MemoryContext work_cxt;		/* ... and before each window is read */

	/* from here on zeroed when the scan begins */
	MemoryContext upper_cxt;	/* holds upper, if it is of the journal */

	/* what the scan sees of the journal, for which snapshot and attachment */
	CbUpper    *upper;
	CbUpper		none;			/* upper, if there is nothing */
	uint64		upper_attach_id;
	TransactionId upper_xmin;
	TransactionId upper_xmax;
	CommandId	upper_curcid;
	uint64		upper_completions;

	CbScanRanges *ranges;		/* NULL: not needed yet */
	bool		locks;			/* is the transaction serializable? */
	bool		in_range;		/* the window has a range in ranges */
	bool		in_tile;		/* it has a tile in ranges */
	bool		possible;		/* may anything satisfy the keys? */
	bool		passed_on;		/* of a parallel scan: it is known to all where
								 * the next window starts */
	bool		for_unique;		/* it is cb_unique.c's: it publishes nothing, and
								 * does not count as one */
	bool		is_internal;	/* for_unique, or the planner's: not shown */
	bool		has_looked;		/* through the journal, for its one value */
	bool		for_point;		/* the window's tiers were asked for the point
								 * of pos only, of several, or that is all
								 * that is locked: it tells nothing of the
								 * others */
	bool		starting;		/* it has had no window since it began, or
								 * since it has gone to a place of its keys */
	BlockNumber gone_from;		/* the leaf that it has left for such a place,
								 * and has not read on since, or invalid */
	CbScanCounts counts;
	CbScanAhead ahead;
	CbWindow   *cur;
	CbWindow   *mark;			/* the marked window once the scan has left it */
	int			mark_index;		/* the marked item if it is in cur, or -1 */

	/* to see for ourselves whether an entry's row is visible */
	uint64		removals;		/* as counted before upper, and windows, were
								 * read, ... */
	bool		began_in_recovery;	/* ... when recovery was not over */
	Buffer		vm_buf;			/* page of the visibility map, or invalid */
	TupleTableSlot *slot;

	/* from here on not */
	CbKeyDesc	kd;
	CbDescent	descent;
	CbKeys		keys;
	CbScanGroup group;
	uint64		upper_serial;	/* counts what upper has been, of all scans */

	/* while a window is read */
	CbBucketView view;
	CbSharedView shared;		/* what upper lacks */
	CbRangeBounds range;
	CbLockedKeys locked;		/* what the scan has locked for the window, ... */
	bool		locks_value;	/* ... or it is one value that is locked */
	uint32		whole_hash;		/* of the window's one value of all key columns */

	CbPlace		pos;			/* where the next window starts */
	CbWindow	first;			/* cur or mark */
} CbScanOpaqueData;

typedef CbScanOpaqueData *CbScanOpaque;

/*
 * Where the next window of a parallel scan starts.  TAKEN: a process is about to
 * find out.
 */
typedef enum CbTurnState
{
	CB_TURN_START,				/* where the scan begins */
	CB_TURN_TAKEN,
	CB_TURN_TUPLE,				/* beside a tuple */
	CB_TURN_POINT,				/* at a point of the first column */
	CB_TURN_END					/* nowhere */
} CbTurnState;

typedef struct CbTurn
{
	int			cond;			/* CB_TURN_POINT: the column's condition, ... */
	int			point;			/* ... and its point */
	bool		after;			/* CB_TURN_TUPLE: right of the tuple */
	CbLeafHint	leaf;			/* the leaf there, if it is known */
	PGAlignedBlock tuple;
} CbTurn;

/* cb_turns.c */
extern CbTurnState cb_turns_take(IndexScanDesc scan, const CbTurn **turn);
extern void cb_turns_pass_point(IndexScanDesc scan, int cond, int point);
extern void cb_turns_pass_place(IndexScanDesc scan, const CbPlace *place);
extern void cb_turns_end(IndexScanDesc scan);

/* cb_scan_group.c */
extern CbLeafHint cb_scan_find_leaf(IndexScanDesc scan, ScanDirection dir);

/* cb_scan_ahead.c */
extern int	cb_scan_ahead_max(Relation rel);
extern void cb_scan_ahead_start(CbScanAhead *ahead);
extern void cb_scan_ahead_go(CbScanOpaque so, ScanDirection dir);
extern void cb_scan_read_ahead(IndexScanDesc scan, ScanDirection dir,
							   bool missed);

/* cb_scan_rows.c */
extern void cb_scan_rows_ask_some(IndexScanDesc scan, int from, uint64 some);
extern void cb_scan_rows_note(IndexScanDesc scan);
extern void cb_scan_rows_turn(IndexScanDesc scan, ItemPointer tid);
extern void cb_scan_rows_come(IndexScanDesc scan, ScanDirection dir);

/* cb_window.c */
extern bool cb_window_first(IndexScanDesc scan, ScanDirection dir);
extern void cb_window_read_beside(IndexScanDesc scan, IndexTuple tuple, bool after);
extern void cb_window_read_next(IndexScanDesc scan);
extern bool cb_window_next(IndexScanDesc scan, ScanDirection dir);
extern void cb_window_leave(IndexScanDesc scan);
extern void cb_window_forget(CbWindow *window);
extern void cb_window_end(CbWindow *window);

/* cb_window_leaf.c */
extern bool cb_window_covers(CbScanOpaque so, const CbBound *bound);

/* cb_window_journal.c */
extern void cb_window_release_upper(CbScanOpaque so);
extern bool cb_window_upper_is_current(CbScanOpaque so, Snapshot snapshot);

/* cb_window_cached.c */
extern void cb_window_drop_cached(CbWindow *window);

/* cb_window_range.c */
extern void cb_window_forget_ranges(CbScanOpaque so);

/* cb_kill.c */
extern void cb_kill_items(IndexScanDesc scan);

#endif							/* CB_SCAN_H */
