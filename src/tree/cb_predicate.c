/*-------------------------------------------------------------------------
 *
 * cb_predicate.c
 *	  What serializable transactions lock of an index, and look for.
 *
 * The server finds conflicts by rows that are read, and by predicate locks of
 * what is not there.  It would lock the whole index, so locks are taken and
 * looked for here (ampredlocks).
 *
 * A reader locks the range of keys that it reads, before it reads any tier
 * (A30_ORDER); a writer looks for such locks after its entries can be read by
 * all, and a full barrier (A2_EARLY, A2_SERIALIZABLE).  If the look came first
 * in time, the reader's reading came after the publication: it finds the entry,
 * wherever that is by then (I1, I2), and by it the row, which is a conflict to
 * the server.  Else the look finds the lock.  The server's own locks order the
 * two.  Entries are published before the server decides at commit whether the
 * transaction may (I3), so no look comes too late.  The locks are the server's
 * predicate locks, of three kinds:
 *
 *	- of a downlink: the range of keys from its separator to the next one.  It
 *	  is named by the block that the downlink leads to; a root that is a leaf
 *	  stands for all keys.  Mostly that is a leaf's range, as with btree.
 *	- of a value: all entries with a first column of one hash.  It is named by
 *	  the hash, as a block that no index has, and is for who wants one value
 *	  and nothing else.
 *	- of cells: where the first column is a number, or like one, so that it has
 *	  an exact abbreviation, all numbers are cut into cells, of each of several
 *	  sizes.  A few cells that lie next to each other are for who wants a range
 *	  that is much shorter than a downlink's: a packed leaf has several times
 *	  as many entries as one of btree.  They are named as values are.
 *
 * Why a downlink and not the leaf itself: a writer need not come to the leaf,
 * which it has no other reason to read; and all that changes which downlink a
 * key belongs to is done with the page of level 1 locked exclusively, or the
 * root if that is a leaf:
 *
 *	- a downlink is inserted, or a root put above the first leaf (cb_split.c);
 *	- a separator falls (cb_redistribute.c);
 *	- a downlink is taken out (cb_unlink.c).
 *
 * The locks go with the keys: whoever does that, workers and VACUUM too, has
 * them copied first, under that lock, from the downlink that loses keys to the
 * one that gets them (A31_DOWNLINK, A31_NEWROOT, A31_REDISTRIBUTE, A31_UNLINK).
 * A new page that has no downlink yet is its left neighbour's.  A root that
 * ceases to be it meanwhile is seen by its flag.  A reader locks, and a writer
 * looks, with that page locked in share mode (A30).  So from when a reader has
 * locked a range on, each key of it belongs to a downlink that the reader has
 * locked, and a writer that comes later meets that lock.  One that came earlier
 * had published before.
 *
 * The reader's window ends with the range that it locked (A32): the leaf that
 * it comes to may have got more since.
 *
 * Values' and cells' locks move nowhere; a writer looks for its values' and for
 * their cells of all sizes (A30_VALUES, A30_CELLS), and reads no leaf for that.
 * They are locked once for all tiers and pages.  Hashes serve where filters'
 * do (A10).
 *
 * A block that is used again may bring locks of the range that it was for, and
 * two values or cells may have one hash: then more conflicts are found than
 * there are.  REINDEX and the like have the server turn locks into locks of the
 * table.  Builds lock nothing.  In recovery there are no serializable
 * transactions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "base/cb_counts.h"
#include "core/cb_mix.h"
#include "miscadmin.h"
#include "storage/predicate.h"
#include "tree/cb_tree.h"

/* cells of 2^4 numbers, 2^8, ... 2^60 */
#define CB_CELL_BITS	4
#define CB_CELL_SIZES	15

/* a range is locked by so many cells at most: the server has room for few locks */
#define CB_CELLS_MAX	2

/* a downlink, in a page that is locked */
typedef struct CbDownlink
{
	BlockNumber block;			/* where it leads to */
	IndexTuple	low;			/* its range; NULL: infinite */
	IndexTuple	high;
} CbDownlink;

/* The block that stands for a value: no index is so large.  Not InvalidBlockNumber. */
static inline BlockNumber
cb_predicate_value_block(uint32 hash)
{
	return ((BlockNumber) 1 << 31) + hash % (((BlockNumber) 1 << 31) - 1);
}

/* The block that stands for a cell of numbers that differ in the last bits only. */
static inline BlockNumber
cb_predicate_cell_block(uint64 cell, int bits)
{
	return cb_predicate_value_block((uint32) (cb_mix(cb_mix(cell) + bits) >> 32));
}

/*
 * The downlink of what lies beside the bound, and the page that has it, pinned
 * and share-locked.  The caller holds no page lock.  Comparison functions run.
 */
static Buffer
cb_predicate_find(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
				  Snapshot snapshot, CbDescent *descent, CbDownlink *downlink)
{
	Buffer		buf = cb_tree_descend_to_downlink(kd, bound, dir, snapshot, descent);
	Page		page = BufferGetPage(buf);
	OffsetNumber off;

	*downlink = (CbDownlink) {.block = BufferGetBlockNumber(buf)};
	if (CbPageIsLeaf(page))
		return buf;
	off = cb_tree_search_page(kd, bound, page, dir);
	downlink->block = BTreeTupleGetDownLink(CbPageGetTuple(page, off));
	if (off > CbPageFirstItem(page))
		downlink->low = CbPageGetTuple(page, off);
	else if (descent != NULL)
		downlink->low = descent->low;
	if (off < PageGetMaxOffsetNumber(page))
		downlink->high = CbPageGetTuple(page, off + 1);
	else if (!CbPageIsRightmost(page))
		downlink->high = CbPageGetHighKey(page);
	return buf;
}

/* The abbreviation of a separator's first column; false: there is none. */
static bool
cb_predicate_abbreviate(const CbKeyDesc *kd, IndexTuple separator, uint64 *abbrev)
{
	bool		isnull;
	Datum		value;

	if (separator == NULL || BTreeTupleGetNAtts(separator, kd->rel) == 0)
		return false;
	value = index_getattr(separator, 1, kd->tupdesc, &isnull);
	if (!isnull)
		(void) cb_key_abbreviate(kd, value, abbrev);
	return !isnull;
}

/*
 * Are the cells of first to last a shorter range than the downlink's?  If that has an
 * infinite end its length says nothing: then they have to lie within it.
 */
static bool
cb_predicate_cells_are_better(const CbKeyDesc *kd, const CbDownlink *downlink,
							  uint64 first, uint64 last)
{
	uint64		low;
	uint64		high;
	bool		has_low = cb_predicate_abbreviate(kd, downlink->low, &low);
	bool		has_high = cb_predicate_abbreviate(kd, downlink->high, &high);

	if (has_low && has_high)
		return last - first < high - low;
	return (!has_low || first >= low) && (!has_high || last <= high);
}

/*
 * Locks the cells of numbers, which may go beyond the downlink's range; how many.  0:
 * that has no advantage over locking it.
 */
static int
cb_predicate_lock_cells(const CbKeyDesc *kd, const CbDownlink *downlink,
						const CbNumbers *numbers, Snapshot snapshot)
{
	int			bits = CB_CELL_BITS;
	uint64		first;
	uint64		last;

	while (bits <= CB_CELL_SIZES * CB_CELL_BITS &&
		   (numbers->high >> bits) - (numbers->low >> bits) >= CB_CELLS_MAX)
		bits += CB_CELL_BITS;
	if (bits > CB_CELL_SIZES * CB_CELL_BITS)
		return 0;
	first = numbers->low >> bits;
	last = numbers->high >> bits;
	if (!cb_predicate_cells_are_better(kd, downlink, first << bits,
									   numbers->high | (((uint64) 1 << bits) - 1)))
		return 0;
	for (uint64 cell = first; cell <= last; cell++)
		PredicateLockPage(kd->rel, cb_predicate_cell_block(cell, bits), snapshot);
	return (int) (last - first) + 1;
}

/*
 * Locks a range of keys that begins [ends] at the bound, or before [after] it, for
 * a transaction that is serializable.  *locked gets where it ends in the scan's
 * direction, palloc'd, and a leaf to begin at.  numbers: what the scan wants of the
 * first column, if it is of numbers, or NULL; it may be that which is locked, and
 * then has no end.
 *
 * descent: the scan's.  No page is locked on entry or on exit.  Comparison
 * functions run.  An error if there is no room for the lock.
 */
void
cb_predicate_lock_keys(const CbKeyDesc *kd, const CbBound *bound, ScanDirection dir,
					   Snapshot snapshot, CbDescent *descent,
					   const CbNumbers *numbers, CbLockedKeys *locked)
{
	CbDownlink	downlink;
	IndexTuple	end = NULL;
	Buffer		buf;

	descent->want_low = true;
	buf = cb_predicate_find(kd, bound, dir, snapshot, descent, &downlink);
	locked->ncells = numbers == NULL ? 0 :
		cb_predicate_lock_cells(kd, &downlink, numbers, snapshot);
	if (locked->ncells == 0)
	{
		PredicateLockPage(kd->rel, downlink.block, snapshot);
		end = ScanDirectionIsForward(dir) ? downlink.high : downlink.low;
	}
	locked->end = end != NULL ? CopyIndexTuple(end) : NULL;
	locked->leaf = (CbLeafHint) {downlink.block, InvalidBuffer, cb_counts_reuses(kd->rel)};
	UnlockReleaseBuffer(buf);
}

/* Locks all entries whose first column has the hash. */
void
cb_predicate_lock_value(Relation rel, uint32 hash, Snapshot snapshot)
{
	PredicateLockPage(rel, cb_predicate_value_block(hash), snapshot);
}

/*
 * Looks for locks of the cells that the value is in, but for those that the last
 * one was in, which are in last.
 */
static void
cb_predicate_check_cells(const CbKeyDesc *kd, Datum value, BlockNumber *last)
{
	uint64		abbrev = 0;

	(void) cb_key_abbreviate(kd, value, &abbrev);
	for (int i = 0; i < CB_CELL_SIZES; i++)
	{
		int			bits = CB_CELL_BITS * (i + 1);
		BlockNumber block = cb_predicate_cell_block(abbrev >> bits, bits);

		if (block != last[i])
			CheckForSerializableConflictIn(kd->rel, NULL, block);
		last[i] = block;
	}
}

/* Looks for locks of the entries' values, and of their cells. */
static void
cb_predicate_check_values(CbKeyDesc *kd, const CbSortEntry *entries, int n)
{
	BlockNumber last = InvalidBlockNumber;
	BlockNumber last_cells[CB_CELL_SIZES];

	if (kd->hash == CB_HASH_NONE && cb_key_prepare_hash(kd) == CB_HASH_NONE)
		return;
	memset(last_cells, 0xff, sizeof(last_cells));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;
		Datum		value = index_getattr(entries[i].itup, 1, kd->tupdesc, &isnull);
		BlockNumber block;

		if (isnull)
			continue;
		block = cb_predicate_value_block(cb_key_hash(kd, value));
		if (block != last)
			CheckForSerializableConflictIn(kd->rel, NULL, block);
		last = block;
		if (kd->hash == CB_HASH_ABBREV)
			cb_predicate_check_cells(kd, value, last_cells);
	}
}

/*
 * Tells the server of conflicts with those who have locked what these entries,
 * which are sorted, belong to.  They can be read by all, and a full barrier has
 * come since.  Or they were refused, and the caller wants to know.
 *
 * Does nothing for a transaction that is not serializable.  No page is locked
 * on entry or on exit; the caller has a snapshot or a transaction id.
 * Comparison functions run.  Raises the error of a conflict, if this
 * transaction is to fail.
 */
void
cb_predicate_check(CbKeyDesc *kd, const CbSortEntry *entries, int n)
{
	int			i = 0;

	if (!IsolationIsSerializable() || RelationUsesLocalBuffers(kd->rel))
		return;
	cb_predicate_check_values(kd, entries, n);
	while (i < n)
	{
		CbBound		bound = {.kind = CB_BOUND_TUPLE,.tuple = entries[i].itup};
		CbDownlink	downlink;
		Buffer		buf = cb_predicate_find(kd, &bound, ForwardScanDirection, NULL,
											NULL, &downlink);

		CheckForSerializableConflictIn(kd->rel, NULL, downlink.block);
		do
			i++;
		while (i < n && (downlink.high == NULL ||
						 cb_key_compare(kd, entries[i].itup, downlink.high) < 0));
		UnlockReleaseBuffer(buf);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Keys that belong to one downlink are about to belong to another one: who has
 * locked the one has locked the other as well.  The page of level 1 that says
 * so is exclusively locked, or the root if that is a leaf.  Not in a critical
 * section.
 *
 * If the server has no room for the copies it locks the whole index for who has
 * locked the one, but in trying it loses all locks of the other one, which, unless
 * that is new, others may hold (DeleteLockTarget() in the server's predicate.c).
 * So it is with btree where a page is deleted, and nothing here can prevent it.
 */
void
cb_predicate_transfer(Relation rel, BlockNumber from, BlockNumber to)
{
	PredicateLockPageSplit(rel, from, to);
}
