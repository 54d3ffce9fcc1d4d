/*-------------------------------------------------------------------------
 *
 * cb_walk.c
 *	  The way from one page of the journal to the next.
 *
 * Who appends goes to the last page, copies and sweeps read what is between
 * the tail and the head, a truncation goes from the tail to where it shall be,
 * and inspection and verification show and check all pages.  A page is
 * believed only if, under its lock, it is a journal page with the sequence
 * number that is expected: truncated pages are reused (I11).  One page is
 * locked at a time.
 *
 * A page that is not the expected one any more was truncated, so the tail has
 * moved past it.  If it has not, the journal is broken.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "journal/cb_journal.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

/*
 * Begins at a page that has, or once had, this number.  Reads nothing; the
 * walk holds neither pin nor lock until cb_walk_lock(), and needs no end.  A
 * caller that wants a strategy sets it afterwards.
 */
void
cb_walk_begin(CbJournalWalk *walk, Relation rel, BlockNumber block, uint64 seq)
{
	walk->rel = rel;
	walk->strategy = NULL;
	walk->tail = 0;
	walk->block = block;
	walk->seq = seq;
	walk->buf = InvalidBuffer;
}

/*
 * Begins at the page that holds the tail, which walk->tail tells.  Of an index
 * that has no journal page the block is invalid, and the number that of the
 * first to come.  Reads the metapage, share-locked for a moment, so it can
 * raise an error; no lock is held on return.
 */
void
cb_walk_begin_at_tail(CbJournalWalk *walk, Relation rel)
{
	CbMetaPageData meta;

	cb_rel_read_meta(rel, NULL, &meta);
	cb_walk_begin(walk, rel, meta.journal_tail_block,
				  CbPosSeq(meta.journal_tail));
	walk->tail = meta.journal_tail;
}

/*
 * Pins and share-locks the page that the walk is at, for cb_walk_unlock().
 * NULL, with neither pin nor lock: it is not the journal's any more; the
 * caller begins anew, or goes on by cb_walk_restart().  Raises an error if it
 * is none of the index's pages, or says that its entries end outside of it;
 * can be cancelled.  The caller holds no lock.
 */
Page
cb_walk_lock(CbJournalWalk *walk)
{
	Page		page;
	bool		expected;

	CHECK_FOR_INTERRUPTS();
	walk->buf = cb_sound_read(walk->rel, walk->block, walk->strategy);
	page = BufferGetPage(walk->buf);
	LockBuffer(walk->buf, BUFFER_LOCK_SHARE);
	if (!PageIsNew(page))
		cb_page_check(walk->rel, walk->block, page);
	expected = !PageIsNew(page) && CbPageIsJournal(page);
	expected = expected && CbJournalGetHeader(page)->seq == walk->seq;
	if (!expected)
	{
		cb_walk_unlock(walk);
		return NULL;
	}
	if (((PageHeader) page)->pd_lower < CB_JOURNAL_FIRST ||
		((PageHeader) page)->pd_lower > CB_JOURNAL_END)
		cb_report_corrupt(walk->rel, walk->block, "Its entries end at %u.",
						  ((PageHeader) page)->pd_lower);
	walk->next = CbPageGetOpaque(page)->next;
	return page;
}

/* Lets go of the page, which the walk stays at: lock and pin. */
void
cb_walk_unlock(CbJournalWalk *walk)
{
	UnlockReleaseBuffer(walk->buf);
	walk->buf = InvalidBuffer;
}

/*
 * Goes to the next page, by the right link that the page had when it was
 * locked; it is unlocked.  If it was the last one the block becomes invalid.
 */
void
cb_walk_step(CbJournalWalk *walk)
{
	Assert(!BufferIsValid(walk->buf));
	walk->block = walk->next;
	walk->seq++;
}

/*
 * The page is not the journal's any more: goes on from the tail.  Raises an
 * error unless that has moved past the page.  What is left out by that has
 * gone to lower tiers.  No lock is held, on entry or on return.
 */
void
cb_walk_restart(CbJournalWalk *walk)
{
	CbJournalWalk from_tail;

	cb_walk_begin_at_tail(&from_tail, walk->rel);
	if (from_tail.seq <= walk->seq)
		cb_walk_report_broken(walk);
	from_tail.strategy = walk->strategy;
	*walk = from_tail;
}

/*
 * Raises the error for a page that should be the journal's, and is not: the
 * index is corrupted, and the page is named.
 */
void
cb_walk_report_broken(const CbJournalWalk *walk)
{
	cb_report_corrupt(walk->rel, walk->block,
					  "It is not journal page " UINT64_FORMAT ".", walk->seq);
}
