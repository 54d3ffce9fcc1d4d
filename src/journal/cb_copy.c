/*-------------------------------------------------------------------------
 *
 * cb_copy.c
 *	  A backend's private sorted copies of journals.
 *
 * A copy has what the index's shared copy (bucket/cb_shared.c) lacks, which is
 * little, or all, where there is none.  It is a short list of immutable sorted
 * components.  A scan that begins reads the tail and then what was appended
 * since the copy was last extended, which becomes one more component;
 * components are merged as they become many.  So no scan reads the journal
 * afresh.  Scans hold references to the components that they saw, which are
 * freed with the last one.
 *
 * Where there is no room for a shared copy, and too much for a private one, a
 * scan reads the journal in pieces, each as large as a bounded memory takes.
 * While others sort it, who looks for one value reads it for that.
 *
 * Why a scan sees all it must (I1, I11): its snapshot is taken before the tail
 * is read, and whatever the snapshot can see was published before it.  What
 * lies below the tail was in the tree or in a run before the tail moved; what lies
 * above is read here, or, if its page is recycled before we come to it, lies below a
 * newer tail and is there as well.  Runs and the tree are read later.  Entries
 * below the tail are ignored:  VACUUM may have removed them from the tree and
 * given their TIDs away.  In recovery redo counts what it has done to a file's
 * journal (cb_counts.h), after it; so a scan for which the count is as it was
 * needs no page to know that its copies are complete (I11_REPLAYED).
 *
 * A copy belongs to a build of the index and to the file that it was read
 * from.  The build id alone does not tell: a file that a rolled-back SET
 * TABLESPACE made has the same one, and positions in it mean nothing in the
 * old file.
 *
 * A private copy has all that the shared one lacks if 16 times work_mem takes
 * it.  Else a piece has what lies nearest to the scan's place, as much as fits
 * into half a megabyte.  A window ends where its piece does, and the next one
 * begins with another piece.  A piece does not outlive a rescan, nor the
 * return to a mark, nor a turn.
 *
 * Copies are the backend's own, so nothing here is locked but pages, one at a
 * time, while their bytes are copied.  Comparisons may run SQL, and that may come
 * here for another index: so a copy that is being extended is busy, and left
 * alone by all (C11).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "base/cb_base.h"
#include "base/cb_counts.h"
#include "journal/cb_read.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

typedef struct CbCopy
{
	Oid			indexoid;		/* hash key */
	RelFileLocator file;
	uint8		build_id[CB_BUILD_ID_LEN];
	CbPos		begin;			/* has what lies from here on, ... */
	CbPos		pos;			/* ... up to here */
	BlockNumber block;			/* page of pos */
	CbPos		tail;			/* that was read last */
	CbPos		seen;			/* the journal goes on beyond this: there was
								 * too much of it */
	uint64		replayed;		/* in recovery: it has the journal to its head
								 * as of this count, if not 0 */
	bool		busy;			/* being extended: comparisons may run SQL */
	int			ncomponents;
	CbCopyComponent *components[CB_COPY_MAX_COMPONENTS];
} CbCopy;

/* copies that no scan uses are dropped past this many bytes in all */
#define CB_COPY_TOTAL_LIMIT		(64 * 1024 * 1024)

static HTAB *cb_copies = NULL;
static MemoryContext cb_copy_cxt = NULL;
static Size cb_copy_total = 0;

/* ---------- components ---------- */

/* Drops a reference; the last one frees the component.  Cannot fail. */
static void
cb_copy_unref(CbCopyComponent *component)
{
	Assert(component->refcount > 0);
	if (--component->refcount == 0)
	{
		cb_copy_total -= component->bytes;
		MemoryContextDelete(component->cxt);
	}
}

/* Forgets what was read.  Scans keep the components that they hold. */
static void
cb_copy_clear(CbCopy *copy)
{
	while (copy->ncomponents > 0)
		cb_copy_unref(copy->components[--copy->ncomponents]);
	copy->begin = copy->pos = copy->seen = 0;
	copy->block = InvalidBlockNumber;
	copy->replayed = 0;
}

/*
 * Keep one of equal entries, which are sorted: the one that is in the journal
 * longest.  Of an earlier one the TID can have been used again, so its bytes can
 * differ (I11_NEWEST).  Returns how many are kept.  Comparisons run.
 */
static int
cb_copy_drop_duplicates(const CbKeyDesc *kd, CbSortEntry *entries, int n)
{
	int			kept = 0;

	for (int i = 0; i < n; i++)
	{
		cb_key_prefetch_entry(entries, n, i);
		if (kept > 0 &&
			ItemPointerEquals(&entries[kept - 1].itup->t_tid, &entries[i].itup->t_tid) &&
			cb_key_compare(kd, entries[kept - 1].itup, entries[i].itup) == 0)
		{
			if (entries[i].pos > entries[kept - 1].pos)
				entries[kept - 1] = entries[i];
			continue;
		}
		entries[kept++] = entries[i];
	}
	return kept;
}

/*
 * Sorts entries of the journal, and leaves out all but one of equal ones: the
 * one that is in the journal longest.  Returns how many there are then.
 * Comparisons run.
 */
static int
cb_copy_sort(const CbKeyDesc *kd, CbSortEntry *entries, int n)
{
	cb_key_sort(kd, entries, n);
	return cb_copy_drop_duplicates(kd, entries, n);
}

/*
 * Make a component of entries that, with their bytes, live in cxt; n > 0.  They
 * need not be sorted.  The component has one reference, and owns cxt; after an
 * error, which a comparison may raise, cxt is still the caller's.
 */
static CbCopyComponent *
cb_copy_make_component(const CbKeyDesc *kd, MemoryContext cxt, CbSortEntry *entries,
					   int n)
{
	CbCopyComponent *component;

	n = cb_copy_sort(kd, entries, n);
	component = MemoryContextAllocZero(cxt, sizeof(CbCopyComponent));
	component->cxt = cxt;
	component->refcount = 1;
	component->entries = entries;
	component->n = n;
	component->min_pos = component->max_pos = entries[0].pos;
	for (int i = 1; i < component->n; i++)
	{
		component->min_pos = Min(component->min_pos, entries[i].pos);
		component->max_pos = Max(component->max_pos, entries[i].pos);
	}
	component->bytes = MemoryContextMemAllocated(cxt, false);
	cb_copy_total += component->bytes;
	return component;
}

/*
 * Copy the entries of a component that lie at tail or above to out, their
 * tuples to *bytes, which is left behind them; returns how many.
 */
static int
cb_copy_take(CbCopyComponent *component, CbPos tail, CbSortEntry *out, char **bytes)
{
	int			n = 0;

	for (int i = 0; i < component->n; i++)
	{
		Size		size = IndexTupleSize(component->entries[i].itup);

		if (component->entries[i].pos < tail)
			continue;
		out[n] = component->entries[i];
		memcpy(*bytes, component->entries[i].itup, size);
		out[n].itup = (IndexTuple) *bytes;
		*bytes += MAXALIGN(size);
		n++;
	}
	return n;
}

/* Bytes that all tuples of a component take at most, as cb_copy_take() lays them. */
static Size
cb_copy_component_size(CbCopyComponent *component)
{
	Size		size = 0;

	for (int i = 0; i < component->n; i++)
		size += MAXALIGN(IndexTupleSize(component->entries[i].itup));
	return size;
}

/*
 * One component of what two hold at tail or above, with one reference; NULL if
 * that is nothing.  They are left as they are.  Comparisons run; after an error
 * nothing of it is left.
 */
static CbCopyComponent *
cb_copy_merge(const CbKeyDesc *kd, CbCopyComponent *a, CbCopyComponent *b, CbPos tail)
{
	MemoryContext cxt = AllocSetContextCreate(cb_copy_cxt,
											  "cache_batch journal component",
											  ALLOCSET_DEFAULT_SIZES);
	CbCopyComponent *component = NULL;

	/* the comparison may raise an error */
	PG_TRY();
	{
		CbSortEntry *entries = MemoryContextAllocHuge(cxt, sizeof(CbSortEntry) * (a->n + b->n));
		char	   *bytes = MemoryContextAllocHuge(cxt, cb_copy_component_size(a) +
												   cb_copy_component_size(b) + 1);
		int			n = cb_copy_take(a, tail, entries, &bytes);

		n += cb_copy_take(b, tail, entries + n, &bytes);
		for (int i = 0; i < n; i++)
		{
			CbPos		pos = entries[i].pos;

			cb_key_fill_sort_entry(kd, &entries[i], entries[i].itup);
			entries[i].pos = pos;
		}
		if (n > 0)
			component = cb_copy_make_component(kd, cxt, entries, n);
	}
	PG_CATCH();
	{
		MemoryContextDelete(cxt);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (component == NULL)
		MemoryContextDelete(cxt);
	return component;
}

/*
 * Keep the components few, each at least twice as large as the next, and fewer
 * than a copy can have.  Comparisons run; after an error the copy has all that
 * it had.
 */
static void
cb_copy_compact(const CbKeyDesc *kd, CbCopy *copy, CbPos tail)
{
	while (copy->ncomponents >= 2)
	{
		CbCopyComponent *a = copy->components[copy->ncomponents - 2];
		CbCopyComponent *b = copy->components[copy->ncomponents - 1];
		CbCopyComponent *merged;

		if (copy->ncomponents < CB_COPY_MAX_COMPONENTS && a->n > b->n * 2)
			break;
		merged = cb_copy_merge(kd, a, b, tail);
		copy->ncomponents -= 2;
		if (merged)
			copy->components[copy->ncomponents++] = merged;
		cb_copy_unref(a);
		cb_copy_unref(b);
	}
}

/*
 * Drops the components that lie wholly below the tail: they are in lower tiers.
 * Scans keep those that they hold.  Cannot fail.
 */
static void
cb_copy_drop_below(CbCopy *copy, CbPos tail)
{
	int			kept = 0;

	for (int i = 0; i < copy->ncomponents; i++)
	{
		if (copy->components[i]->max_pos < tail)
			cb_copy_unref(copy->components[i]);
		else
			copy->components[kept++] = copy->components[i];
	}
	copy->ncomponents = kept;
}

/* ---------- copies ---------- */

/* Makes the table of copies, and the memory of all. */
static void
cb_copy_init(void)
{
	HASHCTL		ctl = {0};

	if (cb_copies != NULL)
		return;
	cb_copy_cxt = AllocSetContextCreate(CacheMemoryContext,
										"cache_batch journal copies",
										ALLOCSET_SMALL_SIZES);
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(CbCopy);
	ctl.hcxt = cb_copy_cxt;
	cb_copies = hash_create("cache_batch journal copies", 64, &ctl,
							HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

/*
 * The index's copy, empty if it had none or that was of another build or file.
 * It is good until the journal is seen to be empty.  Raises an error if it is
 * being extended: a comparison has come back to its own index (C11).
 */
static CbCopy *
cb_copy_find(Relation rel, const CbMetaPageData *meta)
{
	Oid			indexoid = RelationGetRelid(rel);
	CbCopy	   *copy;
	bool		found;

	cb_copy_init();
	copy = hash_search(cb_copies, &indexoid, HASH_ENTER, &found);
	if (!found)
	{
		copy->ncomponents = 0;
		copy->busy = false;
		cb_copy_clear(copy);
	}
	else if (copy->busy)
		cb_report_reentry(rel);
	else if (memcmp(copy->build_id, meta->build_id, CB_BUILD_ID_LEN) != 0 ||
			 !RelFileLocatorEquals(copy->file, rel->rd_locator))
		cb_copy_clear(copy);
	copy->file = rel->rd_locator;
	memcpy(copy->build_id, meta->build_id, CB_BUILD_ID_LEN);
	return copy;
}

/* Let go of all copies but this one; scans keep what they use. */
static void
cb_copy_clear_others(CbCopy *keep)
{
	HASH_SEQ_STATUS seq;
	CbCopy	   *copy;

	hash_seq_init(&seq, cb_copies);
	while ((copy = hash_seq_search(&seq)) != NULL)
		if (copy != keep && !copy->busy)
			cb_copy_clear(copy);
}

/*
 * Append what the journal holds from copy->pos on to the copy, as a component.
 * False: a page was recycled under us, and the tail has moved past it (I11).
 * It has room for a component.  Comparisons run; after an error, or false, the
 * copy is as it was.
 */
static bool
cb_copy_extend(const CbKeyDesc *kd, CbCopy *copy, Snapshot snapshot,
			   CbPos limit)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch journal component",
											  ALLOCSET_DEFAULT_SIZES);
	CbReader	reader;
	bool		complete;

	cb_read_begin(&reader, kd->rel, cxt, copy->pos, copy->block, limit);
	complete = cb_read_to_head(kd, &reader, snapshot);
	cb_stat_add(kd->rel, CB_STAT_JOURNAL_READS, reader.npages);
	if (complete && reader.n > 0)
	{
		CbCopyComponent *component = cb_copy_make_component(kd, cxt, reader.entries,
															reader.n);

		/* from here on the copy owns it */
		MemoryContextSetParent(cxt, cb_copy_cxt);
		copy->components[copy->ncomponents++] = component;
	}
	else
		MemoryContextDelete(cxt);
	if (complete)
	{
		copy->pos = reader.pos;
		copy->block = reader.walk.block;
	}
	else
		cb_walk_restart(&reader.walk);
	return complete;
}

/*
 * Compact and extend the copy, and keep others out meanwhile: comparison
 * functions may run SQL (C11).  False as cb_copy_extend().
 */
static bool
cb_copy_catch_up(const CbKeyDesc *kd, CbCopy *copy, CbPos tail,
				 Snapshot snapshot, CbPos limit)
{
	volatile bool complete = false;

	copy->busy = true;
	PG_TRY();
	{
		cb_copy_compact(kd, copy, tail);
		CB_TEST_POINT("copy-read");
		complete = cb_copy_extend(kd, copy, snapshot, limit);
	}
	PG_FINALLY();
	{
		copy->busy = false;
	}
	PG_END_TRY();
	return complete;
}

/*
 * What lies below a position is not needed, be it in the tree or in the shared
 * copy: reading goes on there, on this page, if it has not come so far, or not
 * begun so early.
 */
static void
cb_copy_begin_at(CbCopy *copy, CbPos pos, BlockNumber block)
{
	cb_copy_drop_below(copy, pos);
	if (copy->begin > pos)
		cb_copy_clear(copy);
	if (copy->pos < pos || copy->block == InvalidBlockNumber)
	{
		copy->pos = pos;
		copy->block = block;
	}
	copy->begin = pos;
}

/*
 * Bring the copy up to the journal's head or the limit, from a position on, or
 * from the tail, if that is beyond it.  False: that would be more than npages
 * pages.  *copy_p is the backend's, true or false.
 *
 * In recovery redo's count is read before the tail, and kept only if the copy has
 * all up to the head: what is replayed later is counted later (I11_REPLAYED).
 */
static bool
cb_copy_refresh(const CbKeyDesc *kd, Snapshot snapshot, CbPos from,
				BlockNumber from_block, CbPos limit, uint64 npages,
				CbCopy **copy_p)
{
	for (;;)
	{
		uint64		replayed = cb_counts_journal(kd->rel);
		CbMetaPageData meta;
		CbCopy	   *copy;
		CbPos		end;

		cb_rel_read_meta(kd->rel, snapshot, &meta);
		*copy_p = copy = cb_copy_find(kd->rel, &meta);
		copy->tail = meta.journal_tail;
		copy->replayed = 0;
		if (from > meta.journal_tail)
			cb_copy_begin_at(copy, from, from_block);
		else
			cb_copy_begin_at(copy, meta.journal_tail, meta.journal_tail_block);
		end = Min(limit, CbPosMake(CbPosSeq(copy->begin) + npages, CB_JOURNAL_FIRST));
		if (copy->block == InvalidBlockNumber || copy->pos >= limit)
			return true;
		if (copy->pos < end && copy->seen >= end && end < limit)
			return false;
		if (copy->pos < end &&
			!cb_copy_catch_up(kd, copy, meta.journal_tail, snapshot, end))
			continue;
		if (copy->pos >= end && end < limit)
		{
			copy->seen = copy->pos;
			return false;
		}
		if (limit == CB_POS_MAX)
			copy->replayed = replayed;
		return true;
	}
}

/*
 * Drops the references; the end of the CbUpper's memory context, also after an
 * error.  Cannot fail.
 */
static void
cb_copy_release(void *arg)
{
	CbUpper    *upper = arg;

	for (int i = 0; i < upper->ncomponents; i++)
		cb_copy_unref(upper->components[i]);
}

/*
 * A CbUpper in the current memory context, which releases it at its end: it
 * takes over a reference to each component.
 */
static CbUpper *
cb_copy_make_upper(CbPos from, CbPos tail, CbCopyComponent **components, int ncomponents)
{
	CbUpper    *upper = palloc0(sizeof(CbUpper));

	upper->from = from;
	upper->tail = tail;
	upper->ncomponents = ncomponents;
	for (int i = 0; i < ncomponents; i++)
		upper->components[i] = components[i];
	upper->cb.func = cb_copy_release;
	upper->cb.arg = upper;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &upper->cb);
	return upper;
}

/* The same of a copy, which keeps its own references. */
static CbUpper *
cb_copy_share(const CbCopy *copy, CbPos from)
{
	CbUpper    *upper = cb_copy_make_upper(from, copy->tail,
										   unconstify(CbCopy *, copy)->components,
										   copy->ncomponents);

	for (int i = 0; i < upper->ncomponents; i++)
		upper->components[i]->refcount++;
	return upper;
}

/*
 * In recovery: the index's copy, if it has the journal to its head, and nothing
 * has been replayed since that concerns that; else NULL.
 */
static CbCopy *
cb_copy_find_current(Relation rel)
{
	Oid			indexoid = RelationGetRelid(rel);
	CbRelCache *cache = cb_rel_cache(rel);
	CbCopy	   *copy;

	if (cb_copies == NULL || !cache->build_known || !RecoveryInProgress())
		return NULL;
	copy = hash_search(cb_copies, &indexoid, HASH_FIND, NULL);
	if (copy == NULL || copy->busy || copy->replayed == 0 ||
		copy->replayed != cb_counts_journal(rel) ||
		memcmp(copy->build_id, cache->build_id, CB_BUILD_ID_LEN) != 0 ||
		!RelFileLocatorEquals(copy->file, rel->rd_locator))
		return NULL;
	return copy;
}

/*
 * What cb_copy_acquire() returned last, if that is good still; else NULL.
 * Reads no page, takes no lock; the result is as that.
 */
CbUpper *
cb_copy_acquire_again(const CbKeyDesc *kd)
{
	CbCopy	   *copy = cb_copy_find_current(kd->rel);

	return copy == NULL ? NULL : cb_copy_share(copy, copy->begin);
}

/*
 * The same if that has no entries: fills *upper, which is the caller's and need
 * not be released.  False: it has, or is not good.
 */
bool
cb_copy_acquire_empty(const CbKeyDesc *kd, CbUpper *upper)
{
	const CbCopy *copy = cb_copy_find_current(kd->rel);

	if (copy == NULL || copy->ncomponents > 0)
		return false;
	memset(upper, 0, offsetof(CbUpper, components));
	upper->from = copy->begin;
	upper->tail = copy->tail;
	return true;
}

/*
 * What a scan with this snapshot has to see of the journal from a position,
 * which lies on that page, or from the tail, if that is beyond it, up to the
 * limit, the end of some entry, or CB_POS_MAX: as far as its head.  NULL: that
 * is more than npages pages.  The result lives in the current memory context
 * and is released with it.
 *
 * No LWLock is held on entry; pages are locked one at a time.  Also in
 * recovery.  Comparison functions run; errors are raised if the snapshot is
 * too old, if a page is damaged, and if a comparison uses the index that it
 * compares for (C11).
 */
CbUpper *
cb_copy_acquire(const CbKeyDesc *kd, Snapshot snapshot, CbPos from,
				BlockNumber from_block, CbPos limit, uint64 npages)
{
	CbCopy	   *copy;
	bool		complete = cb_copy_refresh(kd, snapshot, from, from_block, limit,
										   npages, &copy);

	if (cb_copy_total > CB_COPY_TOTAL_LIMIT)
		cb_copy_clear_others(copy);
	return complete ? cb_copy_share(copy, from) : NULL;
}

/* ---------- pieces ---------- */

/*
 * Bytes of entries that a piece has at least, if there are so many, and half
 * of what it has at most.
 */
#define CB_COPY_PIECE_SIZE	(256 * 1024)

/* pages that are read for it at a time */
#define CB_COPY_PIECE_PAGES	16

/* the entries nearest to a bound, as far as the journal was read */
typedef struct CbCopyPiece
{
	const CbKeyDesc *kd;
	const CbBound *near;
	ScanDirection dir;
	const uint32 *hash;			/* of the one value that is wanted, or NULL */
	MemoryContext cxt;			/* of the entries */
	CbSortEntry *entries;		/* in the journal's order, or sorted and cut */
	int			n;
	int			allocated;
	Size		bytes;			/* of them and their tuples */
	IndexTuple	end;			/* the nearest entry that is left out, or NULL;
								 * in memory of its own */
} CbCopyPiece;

/* Makes it empty, with memory of its own, a child of the current context. */
static void
cb_piece_begin(CbCopyPiece *piece)
{
	piece->cxt = AllocSetContextCreate(CurrentMemoryContext,
									   "cache_batch journal piece",
									   ALLOCSET_DEFAULT_SIZES);
	piece->allocated = 1024;
	piece->entries = MemoryContextAlloc(piece->cxt,
										sizeof(CbSortEntry) * piece->allocated);
	piece->n = 0;
	piece->bytes = 0;
}

/*
 * Is the entry beyond the bound, and not beyond what is left out?  Comparisons
 * run.
 */
static bool
cb_piece_wants(const CbCopyPiece *piece, IndexTuple itup)
{
	bool		is_right = cb_key_compare_bound(piece->kd, piece->near, itup) > 0;

	if (is_right != ScanDirectionIsForward(piece->dir))
		return false;
	return piece->end == NULL ||
		cb_key_compare(piece->kd, itup, piece->end) * piece->dir < 0;
}

/* Adds a copy of the entry, and of its tuple, in the piece's memory. */
static void
cb_piece_add(CbCopyPiece *piece, const CbSortEntry *entry)
{
	Size		size = IndexTupleSize(entry->itup);
	CbSortEntry *added;

	if (piece->n == piece->allocated)
	{
		piece->allocated *= 2;
		piece->entries = repalloc_huge(piece->entries,
									   sizeof(CbSortEntry) * piece->allocated);
	}
	added = &piece->entries[piece->n++];
	cb_key_fill_sort_entry(piece->kd, added,
						   memcpy(MemoryContextAlloc(piece->cxt, size), entry->itup, size));
	added->pos = entry->pos;
	piece->bytes += size + sizeof(CbSortEntry);
}

/*
 * Leaves out all but the nearest entries, and notes the first that is left out:
 * there the piece ends.  What is kept is copied, so that the memory of the rest
 * can go.  Comparisons run.
 */
static void
cb_piece_cut(CbCopyPiece *piece)
{
	CbCopyPiece all = *piece;
	bool		forward = ScanDirectionIsForward(piece->dir);
	int			n = cb_copy_sort(piece->kd, all.entries, all.n);
	int			i = forward ? 0 : n - 1;

	cb_piece_begin(piece);
	for (; i >= 0 && i < n && piece->bytes < CB_COPY_PIECE_SIZE; i += piece->dir)
		cb_piece_add(piece, &all.entries[i]);
	if (i >= 0 && i < n)
	{
		if (piece->end != NULL)
			pfree(piece->end);
		piece->end = CopyIndexTuple(all.entries[i].itup);
	}
	MemoryContextDelete(all.cxt);
}

/*
 * Reads the journal from a position, on this page, up to its head or the limit; for
 * one value by a ring of buffers: behind a restart nothing of it is in shared buffers,
 * and to be the first to touch so many takes longer than to read them.  False: a page
 * was recycled under us, and the tail has moved past it.
 */
static bool
cb_piece_read(CbCopyPiece *piece, CbPos pos, BlockNumber block, CbPos limit,
			  Snapshot snapshot)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch journal pages",
											  ALLOCSET_DEFAULT_SIZES);
	BufferAccessStrategy strategy = piece->hash == NULL ? NULL :
		GetAccessStrategy(BAS_BULKREAD);
	CbReader	reader;
	bool		complete;
	CbPos		end;

	do
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(cxt);
		end = Min(limit, CbPosMake(CbPosSeq(pos) + CB_COPY_PIECE_PAGES, CB_JOURNAL_FIRST));
		cb_read_begin(&reader, piece->kd->rel, cxt, pos, block, end);
		reader.hash = piece->hash;
		reader.walk.strategy = strategy;
		complete = cb_read_to_head(piece->kd, &reader, snapshot);
		cb_stat_add(piece->kd->rel, CB_STAT_JOURNAL_READS, reader.npages);
		for (int i = 0; complete && i < reader.n; i++)
		{
			if (!cb_piece_wants(piece, reader.entries[i].itup))
				continue;
			cb_piece_add(piece, &reader.entries[i]);
			if (piece->bytes > 2 * CB_COPY_PIECE_SIZE)
				cb_piece_cut(piece);
		}
		pos = reader.pos;
		block = reader.walk.block;
	} while (complete && pos >= end && pos < limit);
	if (!complete)
		cb_walk_restart(&reader.walk);
	FreeAccessStrategy(strategy);
	MemoryContextDelete(cxt);
	return complete;
}

/*
 * The entries that were read become a component that the result has, and nobody
 * else.  It lives in the current memory context, the component in that of all
 * copies.  Comparisons run.
 */
static CbUpper *
cb_piece_make_upper(CbCopyPiece *piece, CbPos from, CbPos tail)
{
	CbCopyComponent *component = NULL;
	CbUpper    *upper;

	if (piece->n > 0)
	{
		component = cb_copy_make_component(piece->kd, piece->cxt, piece->entries, piece->n);
		MemoryContextSetParent(piece->cxt, cb_copy_cxt);
	}
	else
		MemoryContextDelete(piece->cxt);
	upper = cb_copy_make_upper(from, tail, &component, component != NULL ? 1 : 0);
	upper->dir = piece->dir;
	upper->end = piece->end;
	return upper;
}

/* Lets go of the index's copy: there is too much for it. */
static void
cb_copy_give_up(Relation rel, const CbMetaPageData *meta)
{
	CbCopy	   *copy = cb_copy_find(rel, meta);
	CbPos		seen = copy->seen;

	cb_copy_clear(copy);
	copy->seen = seen;
}

/*
 * As cb_copy_acquire(), but only what lies beyond a bound in the direction, and
 * of that no more than a bounded memory takes: the result says where it ends.
 * hash: only entries whose first column has this hash, as a window for one
 * value wants; NULL: all.  Hashes have been prepared.  It goes through all of
 * the journal, so it is for where there is no room for a copy, or none yet; what
 * there is of one is given up.
 */
CbUpper *
cb_copy_acquire_piece(const CbKeyDesc *kd, Snapshot snapshot, CbPos from,
					  BlockNumber from_block, CbPos limit, const CbBound *near,
					  ScanDirection dir, const uint32 *hash)
{
	CbCopyPiece piece = {.kd = kd,.near = near,.dir = dir,.hash = hash};
	CbMetaPageData meta;
	bool		complete;

	do
	{
		CHECK_FOR_INTERRUPTS();
		complete = true;
		if (piece.cxt != NULL)
			MemoryContextDelete(piece.cxt);
		piece.end = NULL;
		cb_piece_begin(&piece);
		cb_rel_read_meta(kd->rel, snapshot, &meta);
		cb_copy_give_up(kd->rel, &meta);
		if (from > meta.journal_tail)
			complete = cb_piece_read(&piece, from, from_block, limit, snapshot);
		else if (meta.journal_tail_block != InvalidBlockNumber)
			complete = cb_piece_read(&piece, meta.journal_tail, meta.journal_tail_block,
									 limit, snapshot);
	} while (!complete);
	return cb_piece_make_upper(&piece, from, meta.journal_tail);
}

/* ---------- nothing ---------- */

/*
 * The same where the caller knows that all of it is in the tree: nothing.
 * tail is one that was seen.  Fills *upper, which is the caller's and need not
 * be released.  Lets go of the copy's memory.  Reads nothing, cannot fail.
 */
void
cb_copy_acquire_none(const CbKeyDesc *kd, CbPos tail, CbUpper *upper)
{
	Oid			indexoid = RelationGetRelid(kd->rel);
	CbCopy	   *copy = cb_copies == NULL || hash_get_num_entries(cb_copies) == 0 ? NULL :
		hash_search(cb_copies, &indexoid, HASH_FIND, NULL);

	if (copy != NULL && !copy->busy)
	{
		cb_copy_clear(copy);
		(void) hash_search(cb_copies, &indexoid, HASH_REMOVE, NULL);
	}
	memset(upper, 0, offsetof(CbUpper, components));
	upper->tail = tail;
}
