/*-------------------------------------------------------------------------
 *
 * cb_read.c
 *	  Reading entries from the journal's pages.
 *
 * Entries are copied while their page is locked, and taken apart afterwards: to
 * take them apart can raise an error, and may take long.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "journal/cb_read.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/*
 * Begin to read at pos, which lies in the given block, up to the limit: the
 * end of an entry, or CB_POS_MAX.  Reads nothing yet, and holds no lock.  What
 * will be read is the memory context's, cxt, and goes with it; the reader is
 * the caller's, who may set its hash now, or where the entries are sorted.
 */
void
cb_read_begin(CbReader *reader, Relation rel, MemoryContext cxt, CbPos pos,
			  BlockNumber block, CbPos limit)
{
	memset(reader, 0, sizeof(CbReader));
	cb_walk_begin(&reader->walk, rel, block, CbPosSeq(pos));
	reader->cxt = cxt;
	reader->pos = pos;
	reader->limit = limit;
}

/*
 * Adds an entry to the reader's own array, which grows in its memory context;
 * the tuple stays where it is.
 */
static void
cb_read_add_entry(const CbKeyDesc *kd, CbReader *reader, IndexTuple itup, CbPos pos)
{
	if (reader->n == reader->allocated)
	{
		reader->allocated = Max(64, reader->allocated * 2);
		reader->entries = reader->entries == NULL ?
			MemoryContextAllocHuge(reader->cxt, sizeof(CbSortEntry) * reader->allocated) :
			repalloc_huge(reader->entries, sizeof(CbSortEntry) * reader->allocated);
	}
	cb_key_fill_sort_entry(kd, &reader->entries[reader->n], itup);
	reader->entries[reader->n].pos = pos;
	reader->n++;
}

/* Is it one of the entries that are read?  Can raise an error (detoasting). */
static inline bool
cb_read_wants(const CbKeyDesc *kd, const CbReader *reader, IndexTuple itup)
{
	bool		isnull;
	Datum		first;

	if (reader->hash == NULL)
		return true;
	first = index_getattr(itup, 1, kd->tupdesc, &isnull);
	return !isnull && cb_key_hash(kd, first) == *reader->hash;
}

/*
 * Most entries are not wanted, if one value is, and these are alike.  So those that
 * begin with a number of another hash are gone over without a look at what else an
 * entry can be.  Returns where the first one lies that is not told that way, or len.
 */
static Size
cb_read_skip_numbers(const char *bytes, Size at, Size len, uint32 hash)
{
	unsigned short info = ((IndexTuple) (bytes + at))->t_info;
	Size		size = MAXALIGN(info & INDEX_SIZE_MASK);

	if ((info & INDEX_NULL_MASK) != 0 || size < sizeof(IndexTupleData) + sizeof(int64))
		return at;
	for (; len - at >= size; at += size)
	{
		IndexTuple	itup = (IndexTuple) (bytes + at);
		int64		number = *(int64 *) (itup + 1);

		if (itup->t_info != info ||
			cb_key_hash_abbrev(cb_key_abbreviate_number(number)) == hash)
			break;
	}
	return at;
}

/* Remember the page that is left behind, which a truncation may free. */
static void
cb_read_note_left(CbReader *reader)
{
	if (reader->nleft == reader->left_allocated)
	{
		reader->left_allocated = Max(64, reader->left_allocated * 2);
		reader->left = reader->left == NULL ?
			MemoryContextAlloc(reader->cxt, sizeof(BlockNumber) * reader->left_allocated) :
			repalloc_huge(reader->left, sizeof(BlockNumber) * reader->left_allocated);
	}
	reader->left[reader->nleft++] = reader->walk.block;
}

/*
 * Room for bytes of the page that come next: in the reader's memory, or at their
 * place in the piece that is sorted.  Called with the page locked: lack of memory
 * is an error, which releases that.
 */
static char *
cb_read_reserve(CbReader *reader, Size len)
{
	if (reader->sorted == NULL)
		return reader->spare != NULL ? reader->spare :
			MemoryContextAlloc(reader->cxt, reader->hash != NULL ? BLCKSZ : len);
	Assert(reader->pos + len <= reader->sorted->first + (CbPos) reader->sorted->npages * BLCKSZ);
	return (char *) cb_sorted_entry(reader->sorted, reader->pos);
}

/* Takes an entry of the page, at an offset in it. */
static void
cb_read_take(const CbKeyDesc *kd, CbReader *reader, IndexTuple itup, uint32 off)
{
	CbPos		pos = CbPosMake(reader->walk.seq, off);

	if (!cb_page_is_row_tid(&itup->t_tid))
		cb_report_corrupt(kd->rel, reader->walk.block,
						  "The journal entry at %u has no valid TID.", off);
	if (reader->sorted != NULL)
		cb_sorted_add(kd, reader->sorted, pos);
	else
		cb_read_add_entry(kd, reader, itup, pos);
}

/*
 * Take the entries out of a copy of the page's bytes from offset off on.  Raises
 * an error if they do not add up (C17), or a value cannot be hashed or
 * abbreviated; no page is locked.
 */
static void
cb_read_parse(const CbKeyDesc *kd, CbReader *reader, char *bytes, Size len,
			  uint32 off)
{
	bool		numbers = reader->hash != NULL && kd->lead_kind == CB_LEAD_INT64 &&
		kd->hash == CB_HASH_ABBREV;
	Size		at = 0;

	while (at < len)
	{
		IndexTuple	itup;
		Size		size;

		if (numbers && len - at >= sizeof(IndexTupleData))
			at = cb_read_skip_numbers(bytes, at, len, *reader->hash);
		if (at == len)
			break;
		itup = (IndexTuple) (bytes + at);
		size = len - at < sizeof(IndexTupleData) ? 0 :
			MAXALIGN(IndexTupleSize(itup));

		if (size < sizeof(IndexTupleData) || size > len - at)
			cb_report_corrupt(kd->rel, reader->walk.block,
							  "The journal entry at %u is longer than the page.",
							  (unsigned) (off + at));
		if (cb_read_wants(kd, reader, itup))
			cb_read_take(kd, reader, itup, off + at);
		at += size;
	}
}

/*
 * Read one page from reader->pos on, and step to the next page if there is one
 * (*more).  False: the page has been recycled.  No lock is held on return; the
 * page is share-locked while its bytes are copied, and taken apart after that.
 */
static bool
cb_read_page(const CbKeyDesc *kd, CbReader *reader, Snapshot snapshot, bool *more)
{
	CbJournalWalk *walk = &reader->walk;
	uint32		off = CbPosOff(reader->pos);
	Page		page = cb_walk_lock(walk);
	char	   *bytes = NULL;
	int			before = reader->n;
	XLogRecPtr	lsn;
	Size		len;

	if (page == NULL)
		return false;
	lsn = PageGetLSN(page);
	if (((PageHeader) page)->pd_lower < off)
	{
		cb_walk_unlock(walk);
		return false;
	}
	if (snapshot)
		TestForOldSnapshot(snapshot, kd->rel, page);
	len = ((PageHeader) page)->pd_lower - off;
	if (reader->limit < reader->pos + len)
		len = Max(reader->limit, reader->pos) - reader->pos;
	if (len > 0)
	{
		bytes = cb_read_reserve(reader, len);
		memcpy(bytes, (char *) page + off, len);
	}
	cb_walk_unlock(walk);

	reader->npages++;
	if (len > 0)
		cb_read_parse(kd, reader, bytes, len, off);
	reader->spare = reader->hash != NULL && reader->n == before ? bytes : NULL;
	*more = walk->next != InvalidBlockNumber &&
		reader->pos + len < reader->limit;
	if (*more)
	{
		reader->full = (CbJournalPage) {walk->block, walk->seq, lsn};
		cb_read_note_left(reader);
		cb_walk_step(walk);
		reader->pos = CbPosMake(walk->seq, CB_JOURNAL_FIRST);
	}
	else
		reader->pos += len;
	return true;
}

/*
 * Read all entries from reader->pos to the head, or to the limit; afterwards
 * reader->pos is there.  They are in the order of the journal, equal ones
 * among them.  Holds one page lock at a time, none on entry.  False: a page
 * was recycled, so what was to be read is in the tree or in runs; begin again
 * from the new tail.
 *
 * snapshot: the scan's, which each page must not be too new for, else an error
 * is raised; NULL: there is none.  Damage raises an error as well.  No
 * comparison runs, but values are hashed where a hash is asked for.
 */
bool
cb_read_to_head(const CbKeyDesc *kd, CbReader *reader, Snapshot snapshot)
{
	bool		more = true;

	while (more)
	{
		if (!cb_read_page(kd, reader, snapshot, &more))
			return false;
		if (more)
			CB_TEST_POINT("read-next");
	}
	return true;
}
