/*-------------------------------------------------------------------------
 *
 * cb_alloc.c
 *	  Getting pages for the tree and the journal.
 *
 * The free space map is a hint: it is not WAL-logged, can name a page twice,
 * and can name a page in use.  A page from it is used only if, under its
 * exclusive lock, it is seen to be free (A13).
 *
 * A deleted page of the tree is free once nobody can hold a link to it any
 * more (see cb_unlink.c).  On a standby somebody still can: there replay of the
 * record of the reuse is counted, and whoever follows a link sees that
 * (cb_search.c).  A page that was one of a run is free at once.
 *
 * A crash takes pages out of the map: those that were put into it after they
 * were freed in WAL, and those that were taken and not used.  A standby has no
 * map but that of the backup.  So VACUUM notes in the metapage when it has
 * seen that the map has all free pages: in which incarnation of the server,
 * which ends with a crash or a promotion.  It looks for them again in the next
 * one.
 *
 * The note says that the map was complete; each pass of VACUUM and each build
 * makes it if few deleted pages were not free yet.  An incarnation begins with
 * a start after a crash, when the server begins its statistics anew, and with
 * a new timeline.  The note is a hint, not logged and masked.  It cannot
 * outlive what it says: a crash that takes pages out of the map ends the
 * incarnation, and one of another server is never this one's.  A page that an
 * error leaves out of the map is found when rows die, or in the next
 * incarnation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "base/cb_counts.h"
#include "common/hashfn.h"
#include "page/cb_wal.h"
#include "rel/cb_alloc.h"
#include "rel/cb_rel.h"
#include "rel/cb_ring.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/fsm_internals.h"
#include "storage/indexfsm.h"
#include "storage/lmgr.h"
#include "utils/pgstat_internal.h"
#include "utils/snapmgr.h"

/*
 * deleted pages from the map that are not free yet, before it is left alone
 */
#define CB_ALLOC_TRIES	4

/*
 * what the map says of a deleted page that may not be free yet: less than the
 * server's functions for free pages look for
 */
#define CB_ALLOC_EARLY	(BLCKSZ / 4)

/*
 * May the page be used for something else?  The caller has it locked; tail is
 * a journal tail that was read at any time before (it only grows), or 0, and
 * then no page of the journal is free.  A page that is found free stays so
 * until somebody takes it.
 *
 * May bring this backend's horizon up to date, which takes ProcArrayLock; no
 * other lock is taken, and no error raised.
 */
bool
cb_rel_page_is_free(Page page, CbPos tail)
{
	if (PageIsNew(page))
		return true;
	if (!cb_page_has_id(page, CB_PAGE_ID))
		return false;
	if (CbPageIsJournal(page))
		return CbJournalGetHeader(page)->seq < CbPosSeq(tail);
	if (CbPageGetOpaque(page)->flags & CBP_DELETED)
		return GlobalVisCheckRemovableFullXid(NULL,
											  CbPageGetDeleted(page)->safexid);
	return false;
}

/*
 * A page that is free, and locked, is taken: tells standbys, whose queries may
 * still hold a link to it.  Before the page is changed, and not in a critical
 * section.
 */
static void
cb_alloc_log_reuse(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	xl_cb_reuse_page xlrec;

	if (PageIsNew(page) || !CbPageIsGone(page) ||
		!FullTransactionIdIsValid(CbPageGetDeleted(page)->safexid) ||
		!RelationNeedsWAL(rel) || !XLogStandbyInfoActive())
		return;
	xlrec.file = rel->rd_locator;
	xlrec.block = BufferGetBlockNumber(buf);
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfCbReusePage);
	(void) XLogInsert(CB_RMGR_ID, XLOG_CB_REUSE_PAGE);
}

/*
 * Redo of XLOG_CB_REUSE_PAGE: counted before the page changes, which is under
 * its lock, for those of a standby who hold a link to it.  No page is touched.
 */
void
cb_redo_reuse_page(XLogReaderState *record)
{
	xl_cb_reuse_page *xlrec = (xl_cb_reuse_page *) XLogRecGetData(record);

	cb_counts_add(xlrec->file.relNumber, CB_COUNT_REUSES);
}

/*
 * Takes a page out of the map: InvalidBlockNumber if it has none.  One that may not
 * be free yet only if there is no other, or few of those would hide all that are (C18).
 */
static BlockNumber
cb_alloc_take(Relation rel)
{
	BlockNumber blkno = GetFreeIndexPage(rel);

	if (blkno != InvalidBlockNumber)
		return blkno;
	blkno = GetPageWithFreeSpace(rel, CB_ALLOC_EARLY);
	if (blkno != InvalidBlockNumber)
		RecordUsedIndexPage(rel, blkno);
	return blkno;
}

/*
 * A free page that the map names, exclusively locked, or InvalidBuffer.  Pages
 * that somebody may still hold a link to are put back.  Of the index's own
 * pages it waits for the metapage's lock alone.
 */
static Buffer
cb_alloc_from_map(Relation rel)
{
	CbPos		tail = 0;
	int			tries = 0;

	while (tries < CB_ALLOC_TRIES)
	{
		BlockNumber blkno = cb_alloc_take(rel);
		bool		early = false;
		Buffer		buf;

		if (blkno == InvalidBlockNumber)
			return InvalidBuffer;
		if (tail == 0)
		{
			CbMetaPageData meta;

			cb_rel_read_meta(rel, NULL, &meta);
			tail = meta.journal_tail;
		}

		/* the map is no more than a hint, also of what was lost at a crash */
		if (!cb_sound_has_block(rel, blkno))
			continue;

		/* others may be looking at the page; never wait for them here */
		buf = cb_ring_read(rel, blkno);
		if (ConditionalLockBuffer(buf))
		{
			if (cb_rel_page_is_free(BufferGetPage(buf), tail))
			{
				cb_alloc_log_reuse(rel, buf);
				return buf;
			}
			early = cb_page_has_id(BufferGetPage(buf), CB_PAGE_ID) &&
				CbPageIsGone(BufferGetPage(buf));
			LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		}
		ReleaseBuffer(buf);
		if (early)
		{
			RecordPageWithFreeSpace(rel, blkno, CB_ALLOC_EARLY);
			tries++;
		}
	}
	return InvalidBuffer;
}

/*
 * A page for the caller to initialise: pinned, exclusively locked, and safe to
 * overwrite in full.  The caller must not hold the metapage's lock, nor be in
 * a critical section; it may hold locks on other pages of the index, which are
 * not waited for here.
 *
 * May raise an error (disk full); nothing is changed then.  If the page is not
 * needed it goes back by cb_rel_return_page(); after an error VACUUM finds it.
 */
Buffer
cb_rel_alloc_page(Relation rel)
{
	Buffer		buf = cb_alloc_from_map(rel);

	if (BufferIsValid(buf))
		return buf;

	for (;;)
	{
		if (!RELATION_IS_LOCAL(rel))
			LockRelationForExtension(rel, ExclusiveLock);
		buf = cb_ring_extend(rel);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		if (!RELATION_IS_LOCAL(rel))
			UnlockRelationForExtension(rel, ExclusiveLock);

		/* VACUUM may have put the page into the map, and another taken it */
		if (PageIsNew(BufferGetPage(buf)))
			return buf;
		UnlockReleaseBuffer(buf);
	}
}

static int
cb_alloc_compare_blocks(const void *a, const void *b)
{
	BlockNumber left = *(const BlockNumber *) a;
	BlockNumber right = *(const BlockNumber *) b;

	return (left > right) - (left < right);
}

/*
 * Puts pages into the map, so that they are found; sorts the array.  Of the
 * map only the parts that have these pages are brought up to date: one of its
 * pages is for SlotsPerFSMPage of ours, and to read them all could take as
 * long as an index is large.
 *
 * early: they were deleted just now, and may not be free yet.  The pages themselves
 * are not looked at: whoever takes one looks.  The caller has no page of the index
 * locked but new ones, and is in no critical section; not logged.
 */
void
cb_rel_free_pages(Relation rel, BlockNumber *pages, int n, bool early)
{
	int			next;

	qsort(pages, n, sizeof(BlockNumber), cb_alloc_compare_blocks);
	for (int i = 0; i < n; i++)
		RecordPageWithFreeSpace(rel, pages[i], early ? CB_ALLOC_EARLY : BLCKSZ - 1);
	for (int i = 0; i < n; i = next)
	{
		for (next = i + 1; next < n; next++)
		{
			if (pages[next] - pages[next - 1] > SlotsPerFSMPage)
				break;
		}
		FreeSpaceMapVacuumRange(rel, pages[i], pages[next - 1] + 1);
	}
}

/*
 * Gives back a page from cb_rel_alloc_page() that was not needed, and has not
 * been changed: unlocks and unpins it, and puts it into the map.  The caller may
 * have locked other new pages, and is in no critical section.
 */
void
cb_rel_return_page(Relation rel, Buffer buf)
{
	BlockNumber blkno = BufferGetBlockNumber(buf);

	UnlockReleaseBuffer(buf);
	cb_rel_free_pages(rel, &blkno, 1, false);
}

/*
 * A number for the time since the server last began to redo WAL, other than 0:
 * after a crash its cumulative statistics begin anew, and so does the timeline
 * where an archive was restored or a standby promoted.  (The statistics can be
 * reset, too: then VACUUM looks for free pages in vain.)  They are read in
 * place, as the transaction would keep a copy and show that in pg_stat_wal.
 *
 * Takes the lock of these statistics for a moment; for a server that is not in
 * recovery.
 */
uint32
cb_rel_incarnation(void)
{
	PgStatShared_Wal *wal = &pgStatLocal.shmem->wal;
	TimestampTz since;
	uint32		hash;

	LWLockAcquire(&wal->lock, LW_SHARED);
	since = wal->stats.stat_reset_timestamp;
	LWLockRelease(&wal->lock);
	hash = hash_combine(hash_bytes((unsigned char *) &since, sizeof(since)),
						GetWALInsertionTimeLine());
	return hash == 0 ? 1 : hash;
}

/*
 * Has the map all free pages, as far as is known?  Reads the metapage, under
 * its share lock.
 */
bool
cb_rel_map_is_complete(Relation rel)
{
	CbMetaPageData meta;

	cb_rel_read_meta(rel, NULL, &meta);
	return meta.map_incarnation == cb_rel_incarnation();
}

/*
 * Notes whether it has.  Not logged: after a crash it is not true any more.
 * Takes the metapage's lock, exclusively; the caller has no page locked.  An
 * error if the metapage is damaged.
 */
void
cb_rel_note_map(Relation rel, bool complete)
{
	uint32		incarnation = complete ? cb_rel_incarnation() : 0;
	Buffer		buf = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	CbMetaPageData *meta;

	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	meta = cb_page_check_meta(rel, BufferGetPage(buf));
	if (meta->map_incarnation != incarnation)
	{
		meta->map_incarnation = incarnation;
		MarkBufferDirtyHint(buf, true);
	}
	UnlockReleaseBuffer(buf);
}
