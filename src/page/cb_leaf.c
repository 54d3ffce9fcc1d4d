/*-------------------------------------------------------------------------
 *
 * cb_leaf.c
 *	  Reading, building and shrinking leaves with a packed part.
 *
 * Nothing here takes a lock, writes WAL or compares keys.  An index tuple is
 * handed to the codec as its bytes behind the header, its flags and its TID,
 * and comes back the same.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "page/cb_leaf.h"

/* ---------- entries ---------- */

/* As cb_page_is_row_tid(), of a TID's number. */
static inline bool
cb_leaf_is_row_tid(uint64 number)
{
	return (OffsetNumber) number != InvalidOffsetNumber &&
		(BlockNumber) (number >> 16) != InvalidBlockNumber;
}

static inline void
cb_leaf_set_tid(ItemPointer tid, uint64 number)
{
	ItemPointerSet(tid, (BlockNumber) (number >> 16), (OffsetNumber) number);
}

static inline void
cb_leaf_fill_entry(CbPackEntry *entry, IndexTuple itup)
{
	entry->body = (char *) itup + CB_LEAF_HEADER;
	entry->len = IndexTupleSize(itup) - CB_LEAF_HEADER;
	entry->info = itup->t_info & ~INDEX_SIZE_MASK;
	entry->tid = cb_leaf_tid_number(&itup->t_tid);
}

/* Sets the header of a tuple whose body is in place. */
static inline void
cb_leaf_set_header(IndexTuple itup, const CbPackEntry *entry)
{
	cb_leaf_set_tid(&itup->t_tid, entry->tid);
	itup->t_info = (entry->info & ~INDEX_SIZE_MASK) | (entry->len + CB_LEAF_HEADER);
}

/* ---------- reading ---------- */

/*
 * The page's blob, where it stands in the page, and its length in bytes.  The
 * page has one, whose line pointer is sound.
 */
char *
cb_leaf_blob(Page page, Size *len)
{
	ItemId		item = PageGetItemId(page, CbPageFirstItem(page));

	*len = ItemIdGetLength(item);
	return (char *) PageGetItem(page, item);
}

/*
 * Begins to read a leaf; the page's header and line pointers are sound.
 * False: its packed part is damaged.  *leaf points into the page, which is to
 * stay as it is: pinned and locked, or a copy.  Raises no error.
 */
bool
cb_leaf_open(CbLeaf *leaf, Page page, TupleDesc desc)
{
	OffsetNumber off = CbPageFirstItem(page);
	ItemId		item;

	leaf->page = page;
	leaf->npacked = 0;
	leaf->desc = desc;
	if (!CbPageIsPacked(page))
		return true;
	if (PageGetMaxOffsetNumber(page) < off)
		return false;
	item = PageGetItemId(page, off);
	if (!ItemIdHasStorage(item) ||
		ItemIdGetOffset(item) != MAXALIGN(ItemIdGetOffset(item)) ||
		ItemIdGetOffset(item) < SizeOfPageHeaderData ||
		ItemIdGetOffset(item) + ItemIdGetLength(item) > BLCKSZ ||
		!cb_pack_open(&leaf->packed, PageGetItem(page, item),
					  ItemIdGetLength(item)))
		return false;
	leaf->npacked = cb_pack_count(PageGetItem(page, item));
	return true;
}

/*
 * Raises the error for a leaf, or a page of a run, whose packed part is
 * damaged.  Locks and pins go with the error.
 */
void
cb_leaf_report_damaged(Relation rel, BlockNumber blkno)
{
	cb_report_corrupt(rel, blkno, "The packed part is damaged.");
}

/*
 * Looks at every entry of the packed part, if there is one.  False: it is
 * damaged.  What it has passed can be read, and cb_leaf_delete() cannot fail
 * at it.
 */
bool
cb_leaf_check(const CbLeaf *leaf)
{
	ItemPointerData tids[CB_PACK_BLOCK];
	char	   *blob;
	Size		len;
	int			n;

	if (leaf->npacked == 0)
		return true;
	blob = cb_leaf_blob(leaf->page, &len);
	if (!cb_pack_check(blob, len))
		return false;
	for (int i = 0; i < leaf->npacked; i += n)
	{
		n = cb_leaf_read_tids(leaf, i, tids);
		if (n == 0)
			return false;
	}
	return true;
}

/*
 * Entry i of the packed part, in *tuple; NULL: the packed part is damaged.
 * Next to the entry read before it is cheap, since *leaf remembers that one's
 * block.
 */
IndexTuple
cb_leaf_read(CbLeaf *leaf, int i, CbLeafTuple *tuple)
{
	CbPackEntry entry;

	if (!cb_pack_read(&leaf->packed, i, &entry, tuple->bytes + CB_LEAF_HEADER) ||
		!cb_leaf_is_row_tid(entry.tid) ||
		(entry.info & INDEX_ALT_TID_MASK) != 0)
		return NULL;
	cb_leaf_set_header(&tuple->tuple, &entry);
	return leaf->desc == NULL || cb_entry_is_sound(leaf->desc, &tuple->tuple) ?
		&tuple->tuple : NULL;
}

/*
 * The TID of entry i of the packed part; block and offset 0 if the packed part
 * is damaged.
 */
void
cb_leaf_read_tid(const CbLeaf *leaf, int i, ItemPointer tid)
{
	cb_leaf_set_tid(tid, cb_pack_tid(&leaf->packed, i));
}

/*
 * The TIDs of entry i of the packed part and of some behind it, in tids, which
 * has room for CB_PACK_BLOCK; how many.  0: the packed part is damaged.
 */
int
cb_leaf_read_tids(const CbLeaf *leaf, int i, ItemPointer tids)
{
	uint64		numbers[CB_PACK_BLOCK];
	int			n = cb_pack_read_tids(&leaf->packed, i, numbers);

	for (int k = 0; k < n; k++)
	{
		if (!cb_leaf_is_row_tid(numbers[k]))
			return 0;
		cb_leaf_set_tid(&tids[k], numbers[k]);
	}
	return n;
}

/* The same, but only blocks of the table beyond which none of these TIDs is. */
int
cb_leaf_heap_range(const CbLeaf *leaf, int i, BlockNumber *low,
				   BlockNumber *high)
{
	return cb_pack_heap_range(&leaf->packed, i, low, high);
}

/*
 * Reads entry i of the packed part into the arena; how many: 1, 0 if it is
 * damaged.
 */
static int
cb_leaf_read_one(CbLeaf *leaf, int i, CbArena *arena, IndexTuple *items)
{
	items[0] = cb_leaf_read(leaf, i, (CbLeafTuple *) arena->at);
	if (items[0] == NULL)
		return 0;
	(void) cb_arena_alloc(arena, IndexTupleSize(items[0]));
	return 1;
}

/*
 * Are these entries, of one size and one info, sound?  All are as the first is, if
 * it has neither nulls nor values with a length of their own.
 */
static bool
cb_leaf_are_sound(TupleDesc desc, IndexTuple *items, int n)
{
	if (n > 1 && !IndexTupleHasNulls(items[0]) && !IndexTupleHasVarwidths(items[0]))
		n = 1;
	for (int i = 0; i < n; i++)
	{
		if (!cb_entry_is_sound(desc, items[i]))
			return false;
	}
	return true;
}

/*
 * The same for entry i and those behind it that can be read with it; 0 also
 * if they cannot.
 */
static int
cb_leaf_read_some(CbLeaf *leaf, int i, CbArena *arena, IndexTuple *items)
{
	uint64		tids[CB_PACK_BLOCK];
	CbPackEntry entry = {.info = leaf->packed.info};
	char	   *at = arena->at;
	int			n = cb_pack_read_words(&leaf->packed, i, CB_LEAF_HEADER, at,
									   &entry.len, tids);

	if ((entry.info & INDEX_ALT_TID_MASK) != 0)
		return 0;
	for (int k = 0; k < n; k++, at += CB_LEAF_HEADER + entry.len)
	{
		if (!cb_leaf_is_row_tid(tids[k]))
			return 0;
		entry.tid = tids[k];
		items[k] = (IndexTuple) at;
		cb_leaf_set_header(items[k], &entry);
	}
	if (leaf->desc != NULL && !cb_leaf_are_sound(leaf->desc, items, n))
		return 0;
	(void) cb_arena_alloc(arena, at - arena->at);
	return n;
}

/*
 * Entry i of the packed part, and those behind it that can be read with it, in
 * the arena's memory; items has room for CB_PACK_BLOCK.  How many; 0: the packed
 * part is damaged.  They live until the arena is reset, even if the page changes.
 */
int
cb_leaf_read_from(CbLeaf *leaf, int i, CbArena *arena, IndexTuple *items)
{
	int			n;

	/* room for the most, of which the rest is given back */
	if (arena->left < CB_LEAF_READ_ROOM)
		cb_arena_extend(arena, CB_LEAF_READ_ROOM);
	n = cb_leaf_read_some(leaf, i, arena, items);
	return n > 0 ? n : cb_leaf_read_one(leaf, i, arena, items);
}

/*
 * The same for all of them, in order; items has room for npacked.  False: the
 * packed part is damaged, and some may have been read.
 */
bool
cb_leaf_read_all(CbLeaf *leaf, CbArena *arena, IndexTuple *items)
{
	int			n;

	for (int i = 0; i < leaf->npacked; i += n)
	{
		n = cb_leaf_read_from(leaf, i, arena, items + i);
		if (n == 0)
			return false;
	}
	return true;
}

/* ---------- building ---------- */

/*
 * Can these entries be part of a packed part?  Not if there are too many, or
 * one is too long or not of a MAXALIGNed size.
 */
bool
cb_leaf_can_pack(IndexTuple *items, int n)
{
	if (n > CB_PACK_MAX_ENTRIES)
		return false;
	for (int i = 0; i < n; i++)
	{
		Size		size = IndexTupleSize(items[i]);

		if (size != MAXALIGN(size) || size < CB_LEAF_HEADER ||
			size > CB_LEAF_HEADER + CB_PACK_MAX_BODY)
			return false;
	}
	return true;
}

/*
 * Encodes entries that can be part of a packed part into a blob, MAXALIGNed;
 * returns its bytes, 0 if they are more than capacity.  Entries of the same
 * order give the same bytes, on which redo relies.
 */
Size
cb_leaf_encode(IndexTuple *items, int n, char *blob, Size capacity)
{
	CbPackEntry entries[CB_PACK_MAX_ENTRIES];

	for (int i = 0; i < n; i++)
		cb_leaf_fill_entry(&entries[i], items[i]);
	return cb_pack_encode(entries, n, blob, capacity);
}

/*
 * Bytes that a packed part of these entries takes, 0 if more than capacity.
 * They can be part of a packed part.  As dear as encoding them.
 */
Size
cb_leaf_measure(IndexTuple *items, int n, Size capacity)
{
	PGAlignedBlock blob;

	return cb_leaf_encode(items, n, blob.data, Min(capacity, BLCKSZ));
}

/*
 * Puts a blob behind the high key of a page without entries.  False: it does
 * not fit; the page is as it was.  For critical sections and redo, too.
 */
bool
cb_leaf_put_blob(Page page, const char *blob, Size len)
{
	Assert(len > 0 && !CbPageIsPacked(page));
	if (PageAddItem(page, (Item) blob, len, InvalidOffsetNumber, false,
					false) == InvalidOffsetNumber)
		return false;
	CbPageGetOpaque(page)->flags |= CBP_PACKED;
	return true;
}

/*
 * Puts a packed part of n > 0 entries behind the high key of a page without
 * entries.  False: it does not fit; the page is as it was.
 */
bool
cb_leaf_put_packed(Page page, IndexTuple *items, int n)
{
	PageHeader	header = (PageHeader) page;
	Size		room = header->pd_upper - header->pd_lower;
	PGAlignedBlock blob;
	Size		len;

	Assert(n > 0);
	if (room < sizeof(ItemIdData))
		return false;
	len = cb_leaf_encode(items, n, blob.data,
						 MAXALIGN_DOWN(room - sizeof(ItemIdData)));
	return len > 0 && cb_leaf_put_blob(page, blob.data, len);
}

/*
 * Builds in image the leaf with exactly these entries, all in its packed part;
 * its high key, siblings and so on are the page's.  False: it does not fit,
 * with at least reserve bytes to spare; image is of no use then.  The page is
 * only read, and image is memory of the caller's, BLCKSZ and MAXALIGNed.
 */
bool
cb_leaf_build(Page page, IndexTuple *items, int n, Size reserve, Page image)
{
	CbPageOpaque old = CbPageGetOpaque(page);
	CbPageOpaque opaque;

	cb_page_init(image, old->flags & ~(CBP_PACKED | CBP_EMPTY | CBP_HAS_GARBAGE),
				 old->level);
	opaque = CbPageGetOpaque(image);
	opaque->next = old->next;
	opaque->cycleid = old->cycleid;
	PageSetLSN(image, PageGetLSN(page));
	if (!CbPageIsRightmost(page))
	{
		IndexTuple	high = CbPageGetHighKey(page);

		(void) PageAddItem(image, (Item) high, IndexTupleSize(high),
						   InvalidOffsetNumber, false, false);
	}
	return cb_leaf_put_packed(image, items, n) &&
		PageGetExactFreeSpace(image) >= reserve;
}

/* ---------- packing again ---------- */

/* Puts the plain and the new entries where they go; the rest is NULL. */
static bool
cb_leaf_place(Page page, const CbRepack *repack, IndexTuple *items, int n)
{
	OffsetNumber first = CbPageFirstPlain(page);
	const char *at = repack->tuples;

	for (int i = 0; i < repack->nplain; i++)
	{
		if (repack->plain_at[i] == CB_PLACE_DROP)
			continue;
		if (repack->plain_at[i] >= n ||
			cb_page_get_entry(page, first + i) == NULL)
			return false;
		items[repack->plain_at[i]] = CbPageGetTuple(page, first + i);
	}
	for (int i = 0; i < repack->nnew; i++)
	{
		if (repack->new_at[i] >= n ||
			at + CB_LEAF_HEADER > repack->tuples + repack->tuples_len)
			return false;
		items[repack->new_at[i]] = (IndexTuple) at;
		at += MAXALIGN(IndexTupleSize((IndexTuple) at));
	}
	return true;
}

/*
 * The entries of the leaf, packed again, in order, in the arena's memory; the
 * new and the plain ones are not copied, and stay in the record and in the
 * page.  Returns how many; -1: the page and the places do not go together.
 * For redo, which compares no keys: the record has the places.
 */
int
cb_leaf_merge(Page page, const CbRepack *repack, CbArena *arena,
			  IndexTuple **items_p)
{
	CbLeaf		leaf;
	IndexTuple *packed;
	IndexTuple *items;
	int			n;
	int			next = 0;

	if (!cb_leaf_open(&leaf, page, NULL) ||
		PageGetMaxOffsetNumber(page) + 1 - CbPageFirstPlain(page) != repack->nplain)
		return -1;
	n = leaf.npacked + repack->nnew;
	for (int i = 0; i < repack->nplain; i++)
		n += repack->plain_at[i] != CB_PLACE_DROP;

	packed = cb_arena_alloc(arena, sizeof(IndexTuple) * (leaf.npacked + n + 1));
	items = packed + leaf.npacked;
	memset(items, 0, sizeof(IndexTuple) * n);
	if (!cb_leaf_read_all(&leaf, arena, packed) ||
		!cb_leaf_place(page, repack, items, n))
		return -1;
	for (int i = 0; i < n; i++)
	{
		if (items[i] != NULL)
			continue;
		if (next == leaf.npacked)
			return -1;
		items[i] = packed[next++];
	}
	*items_p = items;
	return next == leaf.npacked ? n : -1;
}

/* ---------- deleting ---------- */

/* Removes entries of the packed part; the page is plain if none are left. */
static void
cb_leaf_delete_packed(Page page, const uint16 *ordinals, int n)
{
	PGAlignedBlock rest;
	Size		len;
	char	   *blob = cb_leaf_blob(page, &len);
	int			count = cb_pack_count(blob);
	Size		left = cb_pack_delete(blob, len, ordinals, n, rest.data);

	if (left == 0 && n < count)
		elog(PANIC, "cache_batch: cannot remove entries from a damaged packed part");
	if (left > 0)
	{
		(void) PageIndexTupleOverwrite(page, CbPageFirstItem(page), rest.data,
									   left);
		return;
	}
	PageIndexTupleDelete(page, CbPageFirstItem(page));
	CbPageGetOpaque(page)->flags &= ~CBP_PACKED;
}

/*
 * Removes entries of the packed part by their ordinals and plain ones by their
 * offsets, both ascending.  Cannot fail, as the packed part was checked: it
 * never grows by it.  For critical sections and redo; the page is exclusively
 * locked.
 */
void
cb_leaf_delete(Page page, const uint16 *ordinals, int nordinals,
			   OffsetNumber *offsets, int noffsets)
{
	/* the plain ones first: their offsets count the packed part */
	if (noffsets > 0)
		PageIndexMultiDelete(page, offsets, noffsets);
	if (nordinals > 0)
		cb_leaf_delete_packed(page, ordinals, nordinals);
	cb_page_note_deleted(page);
}
