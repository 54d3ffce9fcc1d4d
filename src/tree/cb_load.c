/*-------------------------------------------------------------------------
 *
 * cb_load.c
 *	  Building a tree bottom-up from sorted entries.
 *
 * Leaves are written one after the other, at consecutive blocks from 1 on, so
 * that a scan in key order reads sequentially.  Entries wait until there are
 * more than a page can take; then as many as fit are packed into one, or put
 * there as they are if that takes as little.  The downlinks of a level go
 * to a temporary file and are read back to build the level above it, so
 * memory use does not grow with the index.  Pages are written past the buffer
 * manager and logged whole; nobody else can see the file yet.  The metapage
 * is written last.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "miscadmin.h"
#include "rel/cb_alloc.h"
#include "storage/buffile.h"
#include "storage/smgr.h"
#include "tree/cb_tree.h"
#include "utils/memutils.h"

struct CbLoader
{
	const CbKeyDesc *kd;
	Relation	rel;
	ForkNumber	fork;
	bool		wal;
	bool		packs;			/* cb_packs_leaves(), when it began */
	BlockNumber nblocks;		/* pages written, or assigned */

	/* the level being built */
	int			level;
	Size		fill;			/* bytes of a page that may be used */
	Page		page;			/* item 1 is kept for the high key */
	BlockNumber blkno;			/* of page */
	BlockNumber npages;			/* of this level, finished */
	IndexTuple	low;			/* separator that leads to page; NULL: none */
	IndexTuple	last;			/* last item of page */
	BufFile    *downlinks;		/* of this level, for the next */
	int64		ndownlinks;

	/* entries that wait for their leaf */
	int			npending;
	IndexTuple *pending;
	CbArena		arenas[2];		/* their memory is in the first */
	int			guess;			/* how many a packed leaf is likely to take */
	Size		blob_len;
	PGAlignedBlock blob;		/* the first of them, encoded */
};

#define CB_LOAD_PENDING		(2 * CB_PACK_MAX_ENTRIES)
#define CB_LOAD_GUESS		500 /* entries of a packed leaf, to begin with */
#define CB_LOAD_TRIES		6	/* to find how many fit */

/* ---------- pages ---------- */

/*
 * Writes a page past the buffer manager, and logs it before if the fork is
 * logged.  Raises an error if the disk is full.
 */
static void
cb_load_write(CbLoader *loader, BlockNumber blkno, Page page, bool extend)
{
	SMgrRelation smgr = RelationGetSmgr(loader->rel);

	if (loader->wal)
		log_newpage(&loader->rel->rd_locator, loader->fork, blkno, page, true);
	PageSetChecksumInplace(page, blkno);
	if (extend)
		smgrextend(smgr, loader->fork, blkno, page, true);
	else
		smgrwrite(smgr, loader->fork, blkno, page, true);
}

/* Begin a page of the current level; its item 1 is kept free. */
static void
cb_load_begin_page(CbLoader *loader)
{
	cb_page_init(loader->page, loader->level == 0 ? CBP_LEAF : CBP_INTERNAL,
				 loader->level);
	((PageHeader) loader->page)->pd_lower += sizeof(ItemIdData);
	ItemIdSetUnused(PageGetItemId(loader->page, CB_HIKEY));
	loader->blkno = loader->nblocks++;
	loader->last = NULL;
}

/* Put a tuple behind the others; the page has the room. */
static IndexTuple
cb_load_put(Page page, OffsetNumber off, IndexTuple itup)
{
	PageHeader	header = (PageHeader) page;
	Size		size = IndexTupleSize(itup);
	char	   *place;

	header->pd_upper -= MAXALIGN(size);
	place = (char *) page + header->pd_upper;
	memcpy(place, itup, size);
	ItemIdSetNormal(PageGetItemId(page, off), header->pd_upper, size);
	return (IndexTuple) place;
}

static void
cb_load_add_item(CbLoader *loader, IndexTuple itup)
{
	PageHeader	header = (PageHeader) loader->page;

	header->pd_lower += sizeof(ItemIdData);
	loader->last = cb_load_put(loader->page,
							   PageGetMaxOffsetNumber(loader->page), itup);
}

/* The first downlink of a page has no key. */
static void
cb_load_add_first_or_next(CbLoader *loader, IndexTuple itup)
{
	if (loader->level > 0 && loader->last == NULL)
	{
		IndexTuple	stripped = cb_key_minus_infinity(BTreeTupleGetDownLink(itup));

		cb_load_add_item(loader, stripped);
		pfree(stripped);
	}
	else
		cb_load_add_item(loader, itup);
}

/*
 * Notes a finished page for the level above, in a temporary file, which an
 * error or the end of the transaction removes.
 */
static void
cb_load_emit_downlink(CbLoader *loader)
{
	IndexTuple	downlink = loader->low ?
		cb_key_make_downlink(loader->low, loader->blkno) :
		cb_key_minus_infinity(loader->blkno);

	if (loader->downlinks == NULL)
		loader->downlinks = BufFileCreateTemp(false);
	BufFileWrite(loader->downlinks, downlink, IndexTupleSize(downlink));
	loader->ndownlinks++;
	pfree(downlink);
}

/*
 * Finishes the current page: separator is its high key, NULL for the rightmost
 * of the level.  The separator, palloc'd, becomes the loader's, as the lower
 * bound of the next page.
 */
static void
cb_load_finish_page(CbLoader *loader, IndexTuple separator)
{
	Page		page = loader->page;
	CbPageOpaque opaque = CbPageGetOpaque(page);

	if (separator)
	{
		cb_load_put(page, CB_HIKEY, separator);
		opaque->next = loader->blkno + 1;
	}
	else
	{
		/* no high key: the items move down by one */
		OffsetNumber n = PageGetMaxOffsetNumber(page) - 1;

		memmove(PageGetItemId(page, 1), PageGetItemId(page, 2),
				n * sizeof(ItemIdData));
		((PageHeader) page)->pd_lower -= sizeof(ItemIdData);
		if (loader->npages == 0)
			opaque->flags |= CBP_ROOT;
		if (n == 0)
			opaque->flags |= CBP_EMPTY;
	}
	cb_load_write(loader, loader->blkno, page, true);
	if (separator != NULL || loader->npages > 0)
		cb_load_emit_downlink(loader);	/* else it is the root */
	loader->npages++;

	if (loader->low)
		pfree(loader->low);
	loader->low = separator;
	CHECK_FOR_INTERRUPTS();
	CB_TEST_POINT("load-page");
}

/*
 * Does the item go on the current page?  A few bytes are always left, so that
 * taking one item back makes room for its separator, TID included.
 */
static bool
cb_load_has_room(CbLoader *loader, IndexTuple itup)
{
	PageHeader	header = (PageHeader) loader->page;
	Size		used = CB_PAGE_ROOM - (header->pd_upper - header->pd_lower);
	Size		need = used + CbItemSpace(itup);

	if (need > loader->fill && PageGetMaxOffsetNumber(loader->page) > 2)
		return false;
	return need + 2 * MAXALIGN(sizeof(ItemPointerData)) <= CB_PAGE_ROOM;
}

/*
 * Takes the last item back off the page; palloc'd, as its place there is used
 * again.
 */
static IndexTuple
cb_load_take_back(CbLoader *loader)
{
	PageHeader	header = (PageHeader) loader->page;
	IndexTuple	item = CopyIndexTuple(loader->last);

	header->pd_upper += MAXALIGN(IndexTupleSize(item));
	header->pd_lower -= sizeof(ItemIdData);
	loader->last = CbPageGetTuple(loader->page,
								  PageGetMaxOffsetNumber(loader->page));
	return item;
}

/*
 * The separator between the current page and next, palloc'd.  Comparison
 * functions run for a leaf.
 */
static IndexTuple
cb_load_make_separator(CbLoader *loader, IndexTuple next)
{
	return loader->level == 0 ?
		cb_key_make_separator(loader->kd, loader->last, next) :
		CopyIndexTuple(next);
}

/*
 * Finish the current page before the item next, and begin another.  If the
 * separator does not fit, the last item moves to the new page.
 */
static void
cb_load_turn_page(CbLoader *loader, IndexTuple next)
{
	PageHeader	header = (PageHeader) loader->page;
	IndexTuple	separator = cb_load_make_separator(loader, next);
	IndexTuple	moved = NULL;

	if (MAXALIGN(IndexTupleSize(separator)) > header->pd_upper - header->pd_lower)
	{
		pfree(separator);
		moved = cb_load_take_back(loader);
		separator = cb_load_make_separator(loader, moved);
	}
	cb_load_finish_page(loader, separator);
	cb_load_begin_page(loader);
	if (moved)
	{
		cb_load_add_first_or_next(loader, moved);
		pfree(moved);
	}
}

/* ---------- levels ---------- */

static void
cb_load_begin_level(CbLoader *loader, int level, Size fill)
{
	loader->level = level;
	loader->fill = fill;
	loader->npages = 0;
	loader->low = NULL;
	loader->downlinks = NULL;
	loader->ndownlinks = 0;
	cb_load_begin_page(loader);
}

/*
 * Adds an item to the current level, copied to its page; finishes the page
 * before if it is full, and writes it.
 */
static void
cb_load_add_to_level(CbLoader *loader, IndexTuple itup)
{
	if (loader->last && !cb_load_has_room(loader, itup))
		cb_load_turn_page(loader, itup);
	cb_load_add_first_or_next(loader, itup);
}

/* ---------- leaves ---------- */

/* How many of the pending entries a plain leaf takes. */
static int
cb_load_count_plain(CbLoader *loader)
{
	Size		used = 0;
	int			n = 0;

	while (n < loader->npending)
	{
		used += CbItemSpace(loader->pending[n]);
		if (used > loader->fill)
			break;
		n++;
	}
	return Max(n, 1);
}

/* Bytes that the first n pending entries may take, packed into one leaf. */
static Size
cb_load_room_for(CbLoader *loader, int n)
{
	Size		hikey = n < loader->npending ?
		CbItemSpace(loader->pending[n]) + MAXALIGN(sizeof(ItemPointerData)) : 0;
	Size		room = CB_PAGE_ROOM - sizeof(ItemIdData);

	return Min(loader->fill, room - Min(hikey, room));
}

/* Encodes the first n pending entries; false: they do not fit into a leaf. */
static bool
cb_load_encode(CbLoader *loader, int n, Size room)
{
	if (!cb_leaf_can_pack(loader->pending, n))
		return false;
	loader->blob_len = cb_leaf_encode(loader->pending, n, loader->blob.data,
									  MAXALIGN_DOWN(room));
	return loader->blob_len > 0;
}

/*
 * How many of the pending entries go into one packed leaf: about as many as
 * there is room for.  They are in the blob then.  least: fewer do not pay.
 */
static int
cb_load_count_packed(CbLoader *loader, int least)
{
	int			fits = 0;
	int			encoded = 0;
	int			beyond = Min(loader->npending, CB_PACK_MAX_ENTRIES) + 1;
	int			n = loader->guess;

	for (int try = 0; try < CB_LOAD_TRIES && fits + 1 < beyond; try++)
	{
		Size		room;

		n = Max(fits + 1, Min(n, beyond - 1));
		room = cb_load_room_for(loader, n);
		encoded = n;
		if (!cb_load_encode(loader, n, room))
		{
			beyond = n;
			if (n <= least)
				break;
			if (fits == 0 && try == CB_LOAD_TRIES - 2)
				n = least;
			else
				n = fits + (beyond - fits) * (try == 0 ? 15 : 8) / 16;
			continue;
		}
		fits = n;
		n = (int) (n * room / loader->blob_len);
		if (loader->blob_len * 64 > room * 62)
			break;
	}
	/* the next ones differ a bit */
	loader->guess = fits > 0 ? Max(n - n / 100, 1) : least;
	if (fits > 0 && encoded != fits)
		(void) cb_load_encode(loader, fits, cb_load_room_for(loader, fits));
	return fits;
}

/* Make one leaf, or the beginning of one, of the first pending entries. */
static void
cb_load_put_pending(CbLoader *loader)
{
	int			plain = cb_load_count_plain(loader);
	int			packed = cb_load_count_packed(loader, plain * 5 / 4 + 1);
	bool		pays = packed * 4 > plain * 5;
	int			n = pays ? packed : plain;

	if (loader->last && (pays || CbPageIsPacked(loader->page)))
		cb_load_turn_page(loader, loader->pending[0]);

	/* an item that has come along is plain, and so is its page */
	if (loader->last)
	{
		pays = false;
		n = plain;
	}
	if (pays)
	{
		if (!cb_leaf_put_blob(loader->page, loader->blob.data, loader->blob_len))
			elog(ERROR, "cache_batch: no room for the packed part of a new leaf");
		loader->last = loader->pending[n - 1];
	}
	else
	{
		for (int i = 0; i < n; i++)
			cb_load_add_to_level(loader, loader->pending[i]);
	}
	loader->npending -= n;
	memmove(loader->pending, loader->pending + n,
			loader->npending * sizeof(IndexTuple));
}

/*
 * Takes an entry of the current page, and the pending ones, out of the arena:
 * they move to the other one, and what has been written is freed.  The two
 * arenas change places.
 */
static void
cb_load_save_pending(CbLoader *loader)
{
	CbArena		old = loader->arenas[0];
	CbArena    *arena = &loader->arenas[1];

	for (int i = -1; i < loader->npending; i++)
	{
		IndexTuple *itup = i < 0 ? &loader->last : &loader->pending[i];
		IndexTuple	copy;

		if (*itup == NULL)
			continue;
		copy = cb_arena_alloc(arena, IndexTupleSize(*itup));
		memcpy(copy, *itup, IndexTupleSize(*itup));
		*itup = copy;
	}
	loader->arenas[0] = *arena;
	loader->arenas[1] = old;
	cb_arena_reset(&loader->arenas[1]);
}

/* ---------- upper levels ---------- */

/*
 * Builds the level above one whose downlinks are in the file, which stays
 * open.
 */
static void
cb_load_build_level(CbLoader *loader, BufFile *downlinks, int64 n, int level)
{
	PGAlignedBlock tuple;

	if (BufFileSeek(downlinks, 0, 0L, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not rewind temporary file")));
	cb_load_begin_level(loader, level,
						CB_PAGE_ROOM * CB_INTERNAL_FILLFACTOR / 100);
	while (n-- > 0)
	{
		IndexTuple	itup = (IndexTuple) tuple.data;
		Size		header = sizeof(IndexTupleData);
		Size		rest;

		if (BufFileRead(downlinks, tuple.data, header) != header)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not read temporary file")));
		rest = IndexTupleSize(itup) - header;
		if (BufFileRead(downlinks, tuple.data + header, rest) != rest)
			ereport(ERROR,
					(errcode_for_file_access(),
					 errmsg("could not read temporary file")));
		cb_load_add_to_level(loader, itup);
	}
	cb_load_finish_page(loader, NULL);
}

/* ---------- interface ---------- */

/*
 * Begins to build into an empty fork.  fillfactor, in percent, is for the
 * leaves.  Nobody else can see the file: it is new, or the index is locked
 * against all.
 *
 * The loader is palloc'd and takes memory from the context that is current
 * here, and temporary files; an error or the end of the transaction frees them
 * all.  kd has to stay as long as the loader does.  Raises an error if the
 * disk is full.
 */
CbLoader *
cb_load_begin(const CbKeyDesc *kd, int fillfactor, ForkNumber fork)
{
	CbLoader   *loader = palloc0(sizeof(CbLoader));
	PGIOAlignedBlock zero;

	loader->kd = kd;
	loader->rel = kd->rel;
	loader->fork = fork;
	loader->wal = fork == INIT_FORKNUM || RelationNeedsWAL(kd->rel);
	loader->packs = cb_packs_leaves(kd->rel);
	loader->page = palloc_aligned(BLCKSZ, PG_IO_ALIGN_SIZE, 0);

	/* the metapage's place; it is written last */
	memset(zero.data, 0, BLCKSZ);
	smgrextend(RelationGetSmgr(loader->rel), fork, CB_METAPAGE_BLKNO, zero.data,
			   true);
	loader->nblocks = 1;
	cb_load_begin_level(loader, 0, CB_PAGE_ROOM * fillfactor / 100);

	loader->pending = palloc(sizeof(IndexTuple) * CB_LOAD_PENDING);
	loader->guess = CB_LOAD_GUESS;
	cb_arena_init(&loader->arenas[0], CurrentMemoryContext);
	cb_arena_init(&loader->arenas[1], CurrentMemoryContext);
	return loader;
}

/*
 * Adds the next entry, in (key, TID) order, which is copied.  It is not over
 * the size limit (cb_key_check_size).  Comparison functions run, to find
 * separators; no page is locked.  Raises an error if the disk is full.
 */
void
cb_load_add(CbLoader *loader, IndexTuple itup)
{
	IndexTuple	copy;

	if (!loader->packs)
	{
		cb_load_add_to_level(loader, itup);
		return;
	}
	if (loader->npending == CB_LOAD_PENDING)
	{
		while (loader->npending > CB_PACK_MAX_ENTRIES)
			cb_load_put_pending(loader);
		cb_load_save_pending(loader);
	}
	copy = cb_arena_alloc(&loader->arenas[0], IndexTupleSize(itup));
	memcpy(copy, itup, IndexTupleSize(itup));
	loader->pending[loader->npending++] = copy;
}

/*
 * Finishes the tree, writes the metapage with a fresh build id (I0), and sees
 * to it that the file is on disk.  What this backend remembered of the index
 * is forgotten.
 *
 * An index without an entry has one empty leaf, its root.  The loader must not
 * be used any more; its memory goes with the context.  Comparison functions
 * run.  Raises an error if the disk is full.
 */
void
cb_load_finish(CbLoader *loader)
{
	PGIOAlignedBlock meta;
	uint8		build_id[CB_BUILD_ID_LEN];

	while (loader->npending > 0)
		cb_load_put_pending(loader);
	cb_load_finish_page(loader, NULL);
	while (loader->npages > 1)
	{
		BufFile    *downlinks = loader->downlinks;

		cb_load_build_level(loader, downlinks, loader->ndownlinks,
							loader->level + 1);
		BufFileClose(downlinks);
	}
	if (loader->downlinks)
		BufFileClose(loader->downlinks);

	if (!pg_strong_random(build_id, CB_BUILD_ID_LEN))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	cb_page_init_meta((Page) meta.data, build_id, loader->blkno, loader->level);
	CbPageGetMeta((Page) meta.data)->map_incarnation = cb_rel_incarnation();
	cb_load_write(loader, CB_METAPAGE_BLKNO, (Page) meta.data, false);

	/*
	 * The pages went past the buffer manager, so checkpoints don't know them;
	 * an unlogged index has to outlive a shutdown, too.
	 */
	if (loader->wal || loader->rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		smgrimmedsync(RelationGetSmgr(loader->rel), loader->fork);
	cb_rel_forget(loader->rel);
}
