/*-------------------------------------------------------------------------
 *
 * cb_append.c
 *	  Appending entries to the journal.
 *
 * The exclusive content lock of the last page is the append lock.  All that
 * can fail comes before the critical section (I6): a fresh page is obtained
 * before the append lock, and its pin kept, but not its lock: the way to the
 * last page may lead over that very page, or over another backend's, if the
 * page that we remember was truncated meanwhile.  It is locked again under the
 * append lock, only if that needs no wait (it may have become the last page),
 * and seen to be still free (M7).  No disk read or extension happens under the
 * append lock (B6).
 *
 * Locks: the sink's first, then the append lock, then the fresh page's, without
 * waiting.  Of an index without a journal page the metapage is the one whose lock
 * is the append lock; no other page of the index is locked by whoever waits for
 * it.  All are free again before another page is read.
 *
 * A session comes to the last page from the one it appended to last, from one
 * further on that others have noted (cb_recent.h), or from the tail; after some
 * steps by jumps, as after a restart nobody has noted one and the journal may be
 * long.  Where they lead is a hint: the page counts if it is a journal page of
 * this file with a greater number; numbers are not used twice, so it was
 * appended later.  If the tail has passed it the chain may break off, as from
 * any remembered page, and the way begins at the tail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "base/cb_base.h"
#include "journal/cb_journal.h"
#include "miscadmin.h"
#include "page/cb_wal.h"
#include "rel/cb_alloc.h"
#include "rel/cb_recent.h"
#include "storage/bufmgr.h"
#include "storage/indexfsm.h"
#include "storage/proc.h"

/* entries of a batch that go to one page, as the bytes that it will hold */
typedef struct CbAppendChunk
{
	int			n;
	Size		len;
	PGAlignedBlock data;
} CbAppendChunk;

/* Bytes that a journal page has room for; it is locked. */
static Size
cb_append_page_room(Page page)
{
	return CB_JOURNAL_END - ((PageHeader) page)->pd_lower;
}

/*
 * Collect as many of the entries as fit into room, as they will lie on the page;
 * none if the first does not.
 */
static void
cb_append_fill_chunk(CbAppendChunk *chunk, CbSortEntry *entries, int n, Size room)
{
	chunk->n = 0;
	chunk->len = 0;
	while (chunk->n < n)
	{
		IndexTuple	itup = entries[chunk->n].itup;

		if (chunk->len + MAXALIGN(IndexTupleSize(itup)) > room)
			break;
		chunk->len += cb_page_copy_tuple(chunk->data.data + chunk->len, itup);
		chunk->n++;
	}
}

/*
 * Append a chunk, as one atomic action.  prev: the last page, if buf is a new
 * one; meta: the metapage, if buf is the index's first journal page; else
 * InvalidBuffer.  All are exclusively locked, and stay so.  Nothing in here
 * can fail but what ends the server.
 */
static void
cb_append_chunk(Relation rel, Buffer buf, uint64 seq, CbAppendChunk *chunk,
				Buffer prev, Buffer meta)
{
	Page		page = BufferGetPage(buf);
	bool		is_new = BufferIsValid(prev) || BufferIsValid(meta);

	CB_TEST_POINT("journal-append-before");
	START_CRIT_SECTION();
	if (is_new)
		cb_page_init_journal(page, seq);
	cb_page_append_journal(page, chunk->data.data, chunk->len);
	MarkBufferDirty(buf);
	if (BufferIsValid(prev))
	{
		CbPageGetOpaque(BufferGetPage(prev))->next = BufferGetBlockNumber(buf);
		MarkBufferDirty(prev);
	}
	if (BufferIsValid(meta))
	{
		CbMetaPageData *metad = CbPageGetMeta(BufferGetPage(meta));

		metad->journal_tail_block = BufferGetBlockNumber(buf);
		MarkBufferDirty(meta);
	}
	if (RelationNeedsWAL(rel))
	{
		xl_cb_journal_append xlrec;
		XLogRecPtr	lsn;

		xlrec.seq = seq;
		xlrec.is_new = is_new;
		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfCbJournalAppend);

		/*
		 * A new page needs no image.  A later append may need one, if a
		 * checkpoint came in between (A13).
		 */
		XLogRegisterBuffer(0, buf, is_new ? REGBUF_WILL_INIT | REGBUF_STANDARD :
						   REGBUF_STANDARD);
		XLogRegisterBufData(0, chunk->data.data, chunk->len);
		if (BufferIsValid(prev))
			XLogRegisterBuffer(1, prev, REGBUF_STANDARD);
		if (BufferIsValid(meta))
			XLogRegisterBuffer(2, meta, REGBUF_STANDARD);
		lsn = XLogInsert(CB_RMGR_ID, XLOG_CB_JOURNAL_APPEND);
		PageSetLSN(page, lsn);
		if (BufferIsValid(prev))
			PageSetLSN(BufferGetPage(prev), lsn);
		if (BufferIsValid(meta))
			PageSetLSN(BufferGetPage(meta), lsn);
	}
	END_CRIT_SECTION();
	CB_TEST_POINT("journal-append-after");
}

/*
 * Redo of XLOG_CB_JOURNAL_APPEND.  A new page is there before there is a link
 * to it, so a standby's readers miss nothing (I11).
 */
void
cb_redo_journal_append(XLogReaderState *record)
{
	xl_cb_journal_append *xlrec = (xl_cb_journal_append *) XLogRecGetData(record);
	BlockNumber blkno;
	Buffer		buf;
	Page		page;

	XLogRecGetBlockTag(record, 0, NULL, NULL, &blkno);
	page = xlrec->is_new ? cb_redo_begin_init(record, 0, &buf) :
		cb_redo_begin(record, 0, CBP_JOURNAL, &buf);
	if (page != NULL)
	{
		Size		len;
		char	   *data = XLogRecGetBlockData(record, 0, &len);

		if (xlrec->is_new)
			cb_page_init_journal(page, xlrec->seq);
		cb_redo_require(record, 0, ((PageHeader) page)->pd_lower + len <= CB_JOURNAL_END);
		cb_page_append_journal(page, data, len);
	}
	cb_redo_end(record, page, buf);

	/* only now is the page reachable */
	for (int i = 1; i <= 2; i++)
	{
		if (!XLogRecHasBlockRef(record, i))
			continue;
		page = cb_redo_begin(record, i, i == 1 ? CBP_JOURNAL : CBP_META, &buf);
		if (page != NULL && i == 1)
			CbPageGetOpaque(page)->next = blkno;
		else if (page != NULL)
			CbPageGetMeta(page)->journal_tail_block = blkno;
		cb_redo_end(record, page, buf);
	}
}

/* ---------- the append lock ---------- */

/* the last page of the journal, or the metapage of an index that has none */
typedef struct CbAppendLock
{
	Buffer		last;			/* pinned; or invalid, and then ... */
	Buffer		meta;			/* ... this is, else invalid */
	uint64		seq;			/* of the last page, or of the first to come */
} CbAppendLock;

/*
 * Is it a page of a journal, live or truncated?  It is locked, and may be any page
 * of the file, or a new one.
 */
static bool
cb_append_is_journal(Page page)
{
	return cb_page_has_id(page, CB_PAGE_ID) && CbPageIsJournal(page);
}

/* Is it the journal's page of this number?  Locks as above. */
static bool
cb_append_is_page(Page page, uint64 seq)
{
	return cb_append_is_journal(page) && CbJournalGetHeader(page)->seq == seq;
}

/*
 * Go from a page of the journal to a later one, if it is in this block: numbers are
 * never used twice, so a page with a greater one comes later.  False: it is not.
 * Share-locks that page for a moment; no lock is held besides.  Reads it, so an error
 * can be raised.
 */
static bool
cb_append_skip_to(CbJournalWalk *walk, BlockNumber block)
{
	Buffer		buf;
	Page		page;
	bool		later;

	if (block == walk->block || !cb_sound_has_block(walk->rel, block))
		return false;
	buf = cb_sound_read(walk->rel, block, NULL);
	page = BufferGetPage(buf);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	later = cb_append_is_journal(page) && CbJournalGetHeader(page)->seq > walk->seq;
	if (later)
	{
		walk->block = block;
		walk->seq = CbJournalGetHeader(page)->seq;
	}
	UnlockReleaseBuffer(buf);
	return later;
}

/* so many pages are gone through before one jumps, as mostly that is all of the way */
#define CB_APPEND_STEPS		8

/*
 * Go to a later page of the journal without those between, by halving what of the file
 * lies behind: mostly blocks are given out in ascending order.  Has that gone over more
 * pages than it has read?
 */
static bool
cb_append_jump(CbJournalWalk *walk)
{
	uint64		seq = walk->seq;
	uint64		nread = 0;
	BlockNumber low = walk->block;
	BlockNumber high = RelationGetNumberOfBlocks(walk->rel);

	while (high > low + 1)
	{
		BlockNumber mid = low + (high - low) / 2;

		nread++;
		if (cb_append_skip_to(walk, mid))
			low = mid;
		else
			high = mid;
	}
	return walk->seq - seq > nread;
}

/*
 * Begin the way to the last page at the one that was noted as the last, so that a new
 * session need not read all pages; after a restart none is.
 */
static void
cb_append_begin_way(CbJournalWalk *walk)
{
	BlockNumber noted = cb_recent_find_end(walk->rel);

	if (walk->block != InvalidBlockNumber && noted != InvalidBlockNumber)
		(void) cb_append_skip_to(walk, noted);
}

/*
 * Goes to the last page of the journal: pinned, with *seq its number.  Invalid
 * if it has none yet.  The way begins at the page that this backend remembers;
 * where that is not the journal's any more, perhaps as the index was made
 * anew, at the tail, which may move on meanwhile.  Share-locks one page at a
 * time, holds no lock on return, and can raise an error; by then others may have
 * appended a page behind it.
 */
static Buffer
cb_append_find_last(Relation rel, uint64 *seq)
{
	CbRelCache *cache = cb_rel_cache(rel);
	bool		remembered = cache->journal_block != InvalidBlockNumber;
	int			steps = 0;
	int			patience = CB_APPEND_STEPS; /* steps that the next jump waits for */
	CbJournalWalk walk;

	if (remembered)
		cb_walk_begin(&walk, rel, cache->journal_block, cache->journal_seq);
	else
		cb_walk_begin_at_tail(&walk, rel);
	cb_append_begin_way(&walk);
	while (walk.block != InvalidBlockNumber)
	{
		Page		page = cb_walk_lock(&walk);

		if (page == NULL)
		{
			if (remembered)
				cb_walk_begin_at_tail(&walk, rel);
			else
				cb_walk_restart(&walk);
			remembered = false;
			cb_append_begin_way(&walk);
			continue;
		}
		if (CbPageIsRightmost(page))
		{
			LockBuffer(walk.buf, BUFFER_LOCK_UNLOCK);
			*seq = walk.seq;
			return walk.buf;
		}
		cb_walk_unlock(&walk);
		cb_walk_step(&walk);
		if (++steps < patience)
			continue;
		steps = 0;
		patience = cb_append_jump(&walk) ? CB_APPEND_STEPS : 2 * patience;
	}
	*seq = walk.seq;
	return InvalidBuffer;
}

/*
 * Pin the journal's last page as it is now, or the metapage if the index has
 * no journal page.  hint: the page that we remember will do, unseen.  No lock is
 * held: what has to be read from disk for the append lock is so here (B6).
 */
static void
cb_append_find_lock(Relation rel, bool hint, CbAppendLock *lock)
{
	CbRelCache *cache = cb_rel_cache(rel);

	lock->meta = InvalidBuffer;
	if (hint && cache->journal_block != InvalidBlockNumber)
	{
		lock->seq = cache->journal_seq;
		lock->last = cb_rel_read_buffer(rel, cache->journal_block);
		return;
	}
	lock->last = cb_append_find_last(rel, &lock->seq);
	if (!BufferIsValid(lock->last))
		lock->meta = ReadBuffer(rel, CB_METAPAGE_BLKNO);
}

/*
 * Lock what was pinned; false, and not locked: the journal has gone on since.
 * A page that is only remembered may be something else by now: don't wait for
 * its lock (I9).  The sink's locks are held, and nothing is read from disk.  That
 * the metapage is sound was seen a moment before, when the tail was read.
 */
static bool
cb_append_try_lock(Relation rel, bool hint, CbAppendLock *lock)
{
	Buffer		buf = BufferIsValid(lock->last) ? lock->last : lock->meta;
	Page		page = BufferGetPage(buf);
	bool		is_last;

	if (!hint)
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	else if (!ConditionalLockBuffer(buf))
		return false;
	if (BufferIsValid(lock->last))
		is_last = cb_append_is_page(page, lock->seq) &&
			CbPageGetOpaque(page)->next == InvalidBlockNumber;
	else
		is_last = cb_page_check_meta(rel, page)->journal_tail_block ==
			InvalidBlockNumber;
	if (!is_last)
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	return is_last;
}

/* Gives up the pin of what was not locked, or is not any more; cannot fail. */
static void
cb_append_unpin_lock(CbAppendLock *lock)
{
	ReleaseBuffer(BufferIsValid(lock->last) ? lock->last : lock->meta);
}

/*
 * Unlocks the append lock first, then lets the sink release its locks, then
 * unpins.  Cannot fail.
 */
static void
cb_append_release_lock(CbAppendLock *lock, const CbAppendSink *sink, void *arg)
{
	LockBuffer(BufferIsValid(lock->last) ? lock->last : lock->meta,
			   BUFFER_LOCK_UNLOCK);
	if (sink)
		sink->unlock(arg);
	cb_append_unpin_lock(lock);
}

/*
 * Remember the last page, for this backend and, as a hint, for others.  Takes
 * no lock; called under the append lock.
 */
static void
cb_append_remember(Relation rel, Buffer buf, uint64 seq)
{
	CbRelCache *cache = cb_rel_cache(rel);

	if (cache->journal_block == BufferGetBlockNumber(buf) &&
		cache->journal_seq == seq)
		return;
	cache->journal_block = BufferGetBlockNumber(buf);
	cache->journal_seq = seq;
	cb_recent_note_end(rel, cache->journal_block);
}

/*
 * Take the append lock, with the sink's locks before it.  All that may read
 * from disk is done before.  False: the sink does not want it, and nothing is
 * held.  Else cb_append_release_lock() is to be called, and nothing between
 * them fails.
 */
static bool
cb_append_take_lock(Relation rel, CbAppendLock *lock, const CbAppendSink *sink,
					void *arg)
{
	for (bool hint = true;; hint = false)
	{
		cb_append_find_lock(rel, hint, lock);
		if (sink && !sink->lock(arg))
		{
			cb_append_unpin_lock(lock);
			return false;
		}
		if (cb_append_try_lock(rel, hint, lock))
			return true;
		if (sink)
			sink->unlock(arg);
		cb_append_unpin_lock(lock);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * The position behind the journal's last entry, or of the first to come; the
 * append lock is held, and keeps the answer.
 */
static CbPos
cb_append_lock_head(const CbAppendLock *lock)
{
	if (!BufferIsValid(lock->last))
		return CbPosMake(lock->seq, CB_JOURNAL_FIRST);
	return CbPosMake(lock->seq,
					 ((PageHeader) BufferGetPage(lock->last))->pd_lower);
}

/*
 * Shows the head to the sink, as reserve() for no entries: with the append
 * lock, and with what the sink's lock() has taken.  Nothing but unlock() is
 * called after that; nothing at all if lock() says no.  No LWLock is held, on
 * entry or on return.  Pages are read before, so errors can be raised; no
 * comparison runs.
 */
void
cb_journal_visit_head(Relation rel, const CbAppendSink *sink, void *arg)
{
	CbAppendLock lock;

	if (!cb_append_take_lock(rel, &lock, sink, arg))
		return;
	(void) sink->reserve(arg, 0, 0, cb_append_lock_head(&lock));
	if (BufferIsValid(lock.last))
		cb_append_remember(rel, lock.last, lock.seq);
	cb_append_release_lock(&lock, sink, arg);
}

/* ---------- appending ---------- */

/* what one call of cb_journal_append() works on */
typedef struct CbAppend
{
	Relation	rel;
	CbSortEntry *entries;
	int			n;
	int			done;
	const CbAppendSink *sink;
	void	   *arg;
	Buffer		fresh;			/* a pinned page to go on with, if valid; not
								 * locked but by cb_append_claim() */
	CbPos		tail;			/* below this, fresh was a free page */
	bool		want_fresh;		/* there must be one */
	bool		stopped;		/* by the sink */
} CbAppend;

/*
 * Lock the fresh page under the append lock.  False: it cannot be used any
 * more.  Standbys were told of its reuse when it was obtained.  A page that
 * others have used and deleted since is not free, as our snapshot or
 * transaction id is older than that.  Waits for no page (M7), raises no error.
 */
static bool
cb_append_claim(CbAppend *append)
{
	if (!ConditionalLockBuffer(append->fresh))
		return false;
	if (cb_rel_page_is_free(BufferGetPage(append->fresh), append->tail))
		return true;
	LockBuffer(append->fresh, BUFFER_LOCK_UNLOCK);
	return false;
}

/*
 * Give a fresh page back that was not used, if there is one; it is not locked, nor
 * is any other.  After an error the pin goes by itself, and VACUUM finds the page.
 */
static void
cb_append_drop_fresh(CbAppend *append)
{
	BlockNumber blkno;

	if (!BufferIsValid(append->fresh))
		return;
	/* the map is only a hint, should it be in use by now */
	blkno = BufferGetBlockNumber(append->fresh);
	ReleaseBuffer(append->fresh);
	cb_rel_free_pages(append->rel, &blkno, 1, false);
	append->fresh = InvalidBuffer;
}

/*
 * Append what goes to one page: the last one, or (*is_new) the fresh one,
 * which is locked.  The append lock and the sink's locks are held, and stay
 * so.  Returns the number of entries, 0 if the sink wants none.  Nothing in here
 * can fail but what ends the server (I6).
 */
static int
cb_append_to_page(CbAppend *append, CbAppendLock *lock, bool is_new)
{
	CbAppendChunk chunk;
	Buffer		buf = is_new ? append->fresh : lock->last;
	CbPos		pos = cb_append_lock_head(lock);
	Size		room = is_new ? CB_JOURNAL_END - CB_JOURNAL_FIRST :
		cb_append_page_room(BufferGetPage(buf));
	uint64		seq = lock->seq + (is_new && BufferIsValid(lock->last));
	CbSortEntry *entries = append->entries + append->done;
	const CbAppendSink *sink = append->sink;

	cb_append_fill_chunk(&chunk, entries, append->n - append->done, room);
	if (sink)
	{
		int			m = sink->reserve(append->arg, append->done, chunk.n, pos);

		append->stopped = m < chunk.n;
		if (m == 0)
			return 0;
		if (m < chunk.n)
			cb_append_fill_chunk(&chunk, entries, m, room);
	}
	if (is_new)
		pos = CbPosMake(seq, CB_JOURNAL_FIRST);
	cb_append_chunk(append->rel, buf, seq, &chunk,
					is_new ? lock->last : InvalidBuffer,
					is_new ? lock->meta : InvalidBuffer);
	if (sink && sink->fill)
		sink->fill(append->arg, append->done, chunk.n, pos, pos + chunk.len);
	cb_append_remember(append->rel, buf, seq);
	return chunk.n;
}

/*
 * Append what goes to the next page that has room, and release the append
 * lock.  No lock is held, on entry or on return.  If a fresh page is needed, and
 * there is none that can be used, nothing is appended, and want_fresh says so.
 */
static void
cb_append_some(CbAppend *append)
{
	CbAppendLock lock;
	Size		first = MAXALIGN(IndexTupleSize(append->entries[append->done].itup));
	int			m = 0;

	append->want_fresh = false;
	if (!cb_append_take_lock(append->rel, &lock, append->sink, append->arg))
	{
		append->stopped = true;
		return;
	}
	if (BufferIsValid(lock.last) &&
		first <= cb_append_page_room(BufferGetPage(lock.last)))
		m = cb_append_to_page(append, &lock, false);
	else if (BufferIsValid(append->fresh) && cb_append_claim(append))
	{
		CB_TEST_POINT("journal-newpage");
		m = cb_append_to_page(append, &lock, true);
		LockBuffer(append->fresh, BUFFER_LOCK_UNLOCK);
		if (m > 0)
		{
			ReleaseBuffer(append->fresh);
			append->fresh = InvalidBuffer;
		}
	}
	else
		append->want_fresh = true;
	append->done += m;
	cb_append_release_lock(&lock, append->sink, append->arg);
}

/*
 * Obtain a fresh page, before the append lock is taken: pinned and not locked.
 * May wait for the lock for extension, and raise an error as the disk is full;
 * nothing is held then.
 */
static void
cb_append_get_fresh(CbAppend *append)
{
	CbMetaPageData meta;

	cb_append_drop_fresh(append);
	Assert(TransactionIdIsValid(MyProc->xmin) || TransactionIdIsValid(MyProc->xid));
	append->fresh = cb_rel_alloc_page(append->rel);
	LockBuffer(append->fresh, BUFFER_LOCK_UNLOCK);
	cb_rel_read_meta(append->rel, NULL, &meta);
	append->tail = meta.journal_tail;
}

/*
 * The journal's length, in bytes of whole pages, from the tail to the last page
 * that this backend knows of.  A hint: no page is read.
 */
static uint64
cb_append_journal_length(Relation rel)
{
	CbRelCache *cache = cb_rel_cache(rel);
	uint64		tail_seq = CbPosSeq(cache->journal_tail);

	/* a sweep may have passed the last page that we know */
	if (cache->journal_seq < tail_seq)
		return 0;
	return (cache->journal_seq + 1 - tail_seq) * BLCKSZ;
}

/*
 * Append n entries, in the order given.  They are copied.  Returns how many
 * were: fewer if the sink stopped it.  *length: of the journal afterwards, in
 * bytes, as far as this backend knows.  sink, and with it arg, can be NULL:
 * then all are appended.
 *
 * The caller holds RowExclusiveLock on the index and no LWLock, and has a
 * snapshot or a transaction id: by that a page that is used again is safe.
 * Not in recovery.  No comparison runs.  It can be cancelled between two
 * pages; after an error a prefix of the entries may have been appended, each
 * page's with its fill().
 */
int
cb_journal_append(Relation rel, CbSortEntry *entries, int n,
				  const CbAppendSink *sink, void *arg, uint64 *length)
{
	CbAppend	append = {.rel = rel,.entries = entries,.n = n,
	.sink = sink,.arg = arg};

	while (append.done < n && !append.stopped)
	{
		cb_append_some(&append);
		if (append.want_fresh)
			cb_append_get_fresh(&append);
		CHECK_FOR_INTERRUPTS();
	}
	cb_append_drop_fresh(&append);

	*length = cb_append_journal_length(rel);
	if (*length > (uint64) cb_journal_limit * 1024)
	{
		CbMetaPageData meta;

		/* the tail that we know may be an old one */
		cb_rel_read_meta(rel, NULL, &meta);
		*length = cb_append_journal_length(rel);
	}
	return append.done;
}
