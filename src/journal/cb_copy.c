/*-------------------------------------------------------------------------
 *
 * cb_copy.c
 *	  A backend's private sorted copies of journals.
 *
 * A copy is a short list of immutable sorted runs.  A scan that begins reads
 * the tail and then what was appended since the copy was last extended, which
 * becomes one more run; runs are merged as they become many.  So no scan reads
 * the journal afresh.  Scans hold references to the runs that they saw, which
 * are freed with the last one.
 *
 * Why a scan sees all it must (I1, I11): its snapshot is taken before the
 * tail is read, and whatever the snapshot can see was published before it.
 * What lies below the tail was in the tree before the tail moved; what lies
 * above is read here, or, if its page is recycled before we come to it, lies
 * below a newer tail and is in the tree as well.  The tree is read later.
 * Entries below the tail are ignored: VACUUM may have removed them from the
 * tree and given their TIDs away.
 *
 * A copy belongs to a build of the index and to the file that it was read
 * from.  The build id alone does not tell: a file that a rolled-back SET
 * TABLESPACE made has the same one, and positions in it mean nothing in the
 * old file.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "journal/cb_read.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

typedef struct CbCopy
{
	Oid			indexoid;		/* hash key */
	RelFileLocator file;
	uint8		build_id[CB_BUILD_ID_LEN];
	CbPos		pos;			/* read up to here */
	BlockNumber block;			/* page of pos */
	bool		busy;			/* being extended: comparisons may run SQL */
	int			nruns;
	CbJournalRun *runs[CB_MAX_RUNS];
} CbCopy;

/* copies that no scan uses are dropped past this many bytes in all */
#define CB_COPY_TOTAL_LIMIT		(64 * 1024 * 1024)

static HTAB *cb_copies = NULL;
static MemoryContext cb_copy_cxt = NULL;
static Size cb_copy_total = 0;

/* ---------- runs ---------- */

/* Drops a reference; the last one frees the run.  Cannot fail. */
static void
cb_copy_unref(CbJournalRun *run)
{
	Assert(run->refcount > 0);
	if (--run->refcount == 0)
	{
		cb_copy_total -= run->bytes;
		MemoryContextDelete(run->cxt);
	}
}

/* Forgets what was read.  Scans keep the runs that they hold. */
static void
cb_copy_clear(CbCopy *copy)
{
	while (copy->nruns > 0)
		cb_copy_unref(copy->runs[--copy->nruns]);
	copy->pos = 0;
	copy->block = InvalidBlockNumber;
}

/*
 * Keep one of equal entries: the one that is in the journal longest.  Of an
 * earlier one the TID can have been used again, so its bytes can differ.
 */
static int
cb_copy_drop_duplicates(const CbKeyDesc *kd, CbSortEntry *entries, int n)
{
	int			kept = 0;

	for (int i = 0; i < n; i++)
	{
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
 * Make a run of entries that, with their bytes, live in cxt; n > 0.  They need
 * not be sorted.  The run has one reference, and owns cxt; after an error,
 * which a comparison may raise, cxt is still the caller's.
 */
static CbJournalRun *
cb_copy_make_run(const CbKeyDesc *kd, MemoryContext cxt, CbSortEntry *entries,
				 int n)
{
	CbJournalRun *run;

	cb_key_sort(kd, entries, n);
	run = MemoryContextAllocZero(cxt, sizeof(CbJournalRun));
	run->cxt = cxt;
	run->refcount = 1;
	run->entries = entries;
	run->n = cb_copy_drop_duplicates(kd, entries, n);
	run->min_pos = run->max_pos = entries[0].pos;
	for (int i = 1; i < run->n; i++)
	{
		run->min_pos = Min(run->min_pos, entries[i].pos);
		run->max_pos = Max(run->max_pos, entries[i].pos);
	}
	run->bytes = MemoryContextMemAllocated(cxt, false);
	cb_copy_total += run->bytes;
	return run;
}

/*
 * Copy the entries of a run that lie at tail or above to out; returns how
 * many.
 */
static int
cb_copy_take(CbJournalRun *run, CbPos tail, CbSortEntry *out, char **bytes)
{
	int			n = 0;

	for (int i = 0; i < run->n; i++)
	{
		Size		size = IndexTupleSize(run->entries[i].itup);

		if (run->entries[i].pos < tail)
			continue;
		out[n] = run->entries[i];
		memcpy(*bytes, run->entries[i].itup, size);
		out[n].itup = (IndexTuple) *bytes;
		*bytes += MAXALIGN(size);
		n++;
	}
	return n;
}

static Size
cb_copy_run_size(CbJournalRun *run)
{
	Size		size = 0;

	for (int i = 0; i < run->n; i++)
		size += MAXALIGN(IndexTupleSize(run->entries[i].itup));
	return size;
}

/*
 * One run of what two hold at tail or above; NULL if that is nothing.  They
 * are left as they are.
 */
static CbJournalRun *
cb_copy_merge(const CbKeyDesc *kd, CbJournalRun *a, CbJournalRun *b, CbPos tail)
{
	MemoryContext cxt = AllocSetContextCreate(cb_copy_cxt,
											  "cache_batch journal run",
											  ALLOCSET_DEFAULT_SIZES);
	CbJournalRun *run = NULL;

	/* the comparison may raise an error */
	PG_TRY();
	{
		CbSortEntry *entries = MemoryContextAllocHuge(cxt, sizeof(CbSortEntry) * (a->n + b->n));
		char	   *bytes = MemoryContextAllocHuge(cxt, cb_copy_run_size(a) + cb_copy_run_size(b) + 1);
		int			n = cb_copy_take(a, tail, entries, &bytes);

		n += cb_copy_take(b, tail, entries + n, &bytes);
		for (int i = 0; i < n; i++)
		{
			CbPos		pos = entries[i].pos;

			cb_key_fill_sort_entry(kd, &entries[i], entries[i].itup);
			entries[i].pos = pos;
		}
		if (n > 0)
			run = cb_copy_make_run(kd, cxt, entries, n);
	}
	PG_CATCH();
	{
		MemoryContextDelete(cxt);
		PG_RE_THROW();
	}
	PG_END_TRY();

	if (run == NULL)
		MemoryContextDelete(cxt);
	return run;
}

/* Keep the runs few, each at least twice as large as the next. */
static void
cb_copy_compact(const CbKeyDesc *kd, CbCopy *copy, CbPos tail)
{
	while (copy->nruns >= 2)
	{
		CbJournalRun *a = copy->runs[copy->nruns - 2];
		CbJournalRun *b = copy->runs[copy->nruns - 1];
		CbJournalRun *merged;

		if (copy->nruns < CB_MAX_RUNS && a->n > b->n * 2)
			break;
		merged = cb_copy_merge(kd, a, b, tail);
		copy->nruns -= 2;
		if (merged)
			copy->runs[copy->nruns++] = merged;
		cb_copy_unref(a);
		cb_copy_unref(b);
	}
}

/* Runs that lie wholly below the tail are in the tree. */
static void
cb_copy_drop_below(CbCopy *copy, CbPos tail)
{
	int			kept = 0;

	for (int i = 0; i < copy->nruns; i++)
	{
		if (copy->runs[i]->max_pos < tail)
			cb_copy_unref(copy->runs[i]);
		else
			copy->runs[kept++] = copy->runs[i];
	}
	copy->nruns = kept;
}

/* ---------- copies ---------- */

/*
 * The index's copy, empty if it had none or that was of another build or file.
 * It is good as long as the backend.  Raises an error if it is being extended:
 * a comparison has come back to its own index (C11).
 */
static CbCopy *
cb_copy_find(Relation rel, const CbMetaPageData *meta)
{
	Oid			indexoid = RelationGetRelid(rel);
	CbCopy	   *copy;
	bool		found;

	if (cb_copies == NULL)
	{
		HASHCTL		ctl = {0};

		cb_copy_cxt = AllocSetContextCreate(CacheMemoryContext,
											"cache_batch journal copies",
											ALLOCSET_SMALL_SIZES);
		ctl.keysize = sizeof(Oid);
		ctl.entrysize = sizeof(CbCopy);
		ctl.hcxt = cb_copy_cxt;
		cb_copies = hash_create("cache_batch journal copies", 64, &ctl,
								HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	copy = hash_search(cb_copies, &indexoid, HASH_ENTER, &found);
	if (!found)
	{
		copy->nruns = 0;
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
 * Append what the journal holds from copy->pos on to the copy, as a run.
 * False: a page was recycled under us, and the tail has moved past it.
 */
static bool
cb_copy_extend(const CbKeyDesc *kd, CbCopy *copy, Snapshot snapshot,
			   CbPos limit)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "cache_batch journal run",
											  ALLOCSET_DEFAULT_SIZES);
	CbReader	reader;
	bool		complete;

	cb_read_begin(&reader, kd->rel, cxt, copy->pos, copy->block, limit);
	complete = cb_read_to_head(kd, &reader, snapshot);
	cb_stat_add(kd->rel, CB_STAT_JOURNAL_READS, reader.npages);
	if (complete && reader.n > 0)
	{
		CbJournalRun *run = cb_copy_make_run(kd, cxt, reader.entries, reader.n);

		/* from here on the copy owns it */
		MemoryContextSetParent(cxt, cb_copy_cxt);
		copy->runs[copy->nruns++] = run;
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
 * Bring the copy up to the journal's head or the limit; returns the tail that
 * it is valid from.
 */
static CbPos
cb_copy_refresh(const CbKeyDesc *kd, Snapshot snapshot, CbPos limit,
				CbCopy **copy_p)
{
	for (;;)
	{
		CbMetaPageData meta;
		CbCopy	   *copy;

		cb_rel_read_meta(kd->rel, snapshot, &meta);
		*copy_p = copy = cb_copy_find(kd->rel, &meta);
		cb_copy_drop_below(copy, meta.journal_tail);
		if (meta.journal_tail_block == InvalidBlockNumber)
			return meta.journal_tail;
		if (copy->pos < meta.journal_tail)
		{
			copy->pos = meta.journal_tail;
			copy->block = meta.journal_tail_block;
		}
		if (copy->pos >= limit ||
			cb_copy_catch_up(kd, copy, meta.journal_tail, snapshot, limit))
			return meta.journal_tail;
	}
}

/* Drops the references; the end of the CbUpper's memory context. */
static void
cb_copy_release(void *arg)
{
	CbUpper    *upper = arg;

	for (int i = 0; i < upper->nruns; i++)
		cb_copy_unref(upper->runs[i]);
}

/* A CbUpper in the current memory context, which releases it at its end. */
static CbUpper *
cb_copy_make_upper(CbPos tail, const CbCopy *copy)
{
	CbUpper    *upper = palloc0(sizeof(CbUpper));

	upper->tail = tail;
	upper->nruns = copy->nruns;
	for (int i = 0; i < upper->nruns; i++)
	{
		upper->runs[i] = copy->runs[i];
		upper->runs[i]->refcount++;
	}
	upper->cb.func = cb_copy_release;
	upper->cb.arg = upper;
	MemoryContextRegisterResetCallback(CurrentMemoryContext, &upper->cb);
	return upper;
}

/*
 * What a scan with this snapshot has to see of the journal up to the limit,
 * the end of some entry, or CB_POS_MAX: as far as its head.  The result lives
 * in the current memory context and is released with it.
 *
 * No LWLock is held on entry; pages are locked one at a time.  Also in
 * recovery.  Comparison functions run; errors are raised if the snapshot is
 * too old, if a page is damaged, and if a comparison uses the index that it
 * compares for (C11).
 */
CbUpper *
cb_copy_acquire(const CbKeyDesc *kd, Snapshot snapshot, CbPos limit)
{
	CbCopy	   *copy;
	CbPos		tail = cb_copy_refresh(kd, snapshot, limit, &copy);
	CbUpper    *upper = cb_copy_make_upper(tail, copy);

	if (cb_copy_total > CB_COPY_TOTAL_LIMIT)
		cb_copy_clear_others(copy);
	return upper;
}

/*
 * The same where the caller knows that all of it is in the tree: nothing.
 * tail is one that was seen.  Fills *upper, which is the caller's and need not
 * be released.  Lets go of the copy's memory.  Reads nothing, cannot fail.
 */
void
cb_copy_acquire_none(const CbKeyDesc *kd, CbPos tail, CbUpper *upper)
{
	Oid			indexoid = RelationGetRelid(kd->rel);
	CbCopy	   *copy = cb_copies == NULL ? NULL :
		hash_search(cb_copies, &indexoid, HASH_FIND, NULL);

	if (copy != NULL && !copy->busy)
		cb_copy_clear(copy);
	upper->tail = tail;
	upper->nruns = 0;
}
