/*-------------------------------------------------------------------------
 *
 * cb_rel.c
 *	  What a backend knows of an index, and reading the index's pages.
 *
 *-------------------------------------------------------------------------
 */
#include "rel/cb_rel.h"

#include "pgstat.h"
#include "rel/cb_recent.h"
#include "rel/cb_ring.h"
#include "storage/buf_internals.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* ---------- what is known of an index ---------- */

/*
 * The hints about an index that this backend keeps; never NULL.  Borrowed:
 * they are gone with the next invalidation of the relcache entry, that is,
 * where a lock of a relation is taken or a catalog read, or with
 * cb_rel_forget().  So a caller that does such a thing asks again afterwards.
 *
 * Allocated with the relcache entry (rd_indexcxt), in one piece, as rd_amcache
 * has to be.  Only lack of memory is an error.
 */
CbRelCache *
cb_rel_cache(Relation rel)
{
	if (rel->rd_amcache == NULL)
	{
		int			nhashes = rel->rd_index->indisunique ?
			IndexRelationGetNumberOfKeyAttributes(rel) : 0;
		CbRelCache *cache = MemoryContextAllocZero(rel->rd_indexcxt,
												   offsetof(CbRelCache, hashes) +
												   nhashes * sizeof(FmgrInfo *));

		cache->root = InvalidBlockNumber;
		cache->journal_block = InvalidBlockNumber;
		rel->rd_amcache = cache;
	}
	return rel->rd_amcache;
}

/*
 * Forgets the hints: the index's file is being made anew.  What cb_rel_cache()
 * has returned is freed.
 */
void
cb_rel_forget(Relation rel)
{
	if (rel->rd_amcache)
		pfree(rel->rd_amcache);
	rel->rd_amcache = NULL;
}

/*
 * Copies the metapage, under its share lock, and remembers what it says.
 * snapshot: test it against old_snapshot_threshold, as a truncation moves the
 * metapage's LSN (A16); NULL: don't.
 *
 * The caller does not have the metapage locked; its lock is the last in the
 * order (I9).  If the build id is another one than was known all hints are
 * forgotten first.  An error if the metapage is damaged or of another version.
 */
void
cb_rel_read_meta(Relation rel, Snapshot snapshot, CbMetaPageData *meta)
{
	Buffer		buf = ReadBuffer(rel, CB_METAPAGE_BLKNO);
	Page		page = BufferGetPage(buf);
	CbRelCache *cache;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (snapshot)
		TestForOldSnapshot(snapshot, rel, page);
	*meta = *cb_page_check_meta(rel, page);
	UnlockReleaseBuffer(buf);

	/* made anew, and nobody told us: what is known is of other pages */
	cache = cb_rel_cache(rel);
	if (cache->build_known &&
		memcmp(cache->build_id, meta->build_id, CB_BUILD_ID_LEN) != 0)
	{
		cb_rel_forget(rel);
		cache = cb_rel_cache(rel);
	}
	cache->root = meta->root;
	cache->root_level = meta->root_level;
	cache->journal_tail = meta->journal_tail;
	cache->range_root = meta->range_root;
	cache->tile_root = meta->tile_root;
	memcpy(cache->build_id, meta->build_id, CB_BUILD_ID_LEN);
	cache->build_known = true;
}

/*
 * The index's build id, as this backend knows it: CB_BUILD_ID_LEN bytes, to be
 * used at once, as they are those of cb_rel_cache().  It is right if the
 * metapage has been read since the caller got a lock that conflicts with
 * builds by others, as this backend's own builds forget it.  Otherwise it may
 * be that of an earlier build: when a table was moved to another tablespace and
 * truncated, and both were rolled back, the server has built the index's old
 * file anew and need not have told others.
 *
 * Reads the metapage if it is not known; errors and locks are those of
 * cb_rel_read_meta().
 */
const uint8 *
cb_rel_build_id(Relation rel)
{
	CbMetaPageData meta;

	if (!cb_rel_cache(rel)->build_known)
		cb_rel_read_meta(rel, NULL, &meta);
	return cb_rel_cache(rel)->build_id;
}

/* ---------- reading pages ---------- */

/*
 * Would a look-up leave the buffer as it is?  The other way to pin it does not
 * count as a use, so that one that is used so alone would be evicted first.
 */
static inline bool
cb_rel_is_used(Buffer buf)
{
	return BUF_STATE_GET_USAGECOUNT(pg_atomic_read_u32(&GetBufferDescriptor(buf - 1)->state)) ==
		BM_MAX_USAGE_COUNT;
}

/*
 * Pins a page in the buffer where it was lately, if it is there still, and used
 * so often that it stays.  Counts as ReadBuffer() does, but for VACUUM's delays.
 * For the main fork.
 */
bool
cb_rel_pin_recent(Relation rel, BlockNumber blkno, Buffer buf)
{
	if (!BufferIsValid(buf) || !cb_rel_is_used(buf) ||
		!ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, blkno, buf))
		return false;
	pgstat_count_buffer_read(rel);
	pgstat_count_buffer_hit(rel);
	pgstat_count_io_op(IOOBJECT_RELATION, IOCONTEXT_NORMAL, IOOP_HIT, 1, 0);
	return true;
}

/*
 * Pins a page as ReadBuffer() does: where it was lately, or wherever it is.
 * Not locked, and not looked at.  A worker reads large indexes by way of its
 * ring.  For the main fork; P_NEW is not for it.
 */
Buffer
cb_rel_read_buffer(Relation rel, BlockNumber blkno)
{
	Buffer		buf = cb_recent_find(rel, blkno);

	if (BufferIsValid(buf))
		cb_rel_prefetch_ends(BufferGetBlock(buf));
	if (cb_rel_pin_recent(rel, blkno, buf))
		return buf;
	buf = cb_ring_read(rel, blkno);
	cb_recent_note(rel, blkno, buf);
	return buf;
}

/* Does this backend hold the lock of the page?  One of a temporary index has none. */
bool
cb_rel_has_locked(Buffer buf)
{
	return !BufferIsLocal(buf) &&
		LWLockHeldByMe(BufferDescriptorGetContentLock(GetBufferDescriptor(buf - 1)));
}

/* Is the page in the buffer, as far as can be seen without a lock? */
static inline bool
cb_rel_is_in(Relation rel, BlockNumber blkno, Buffer buf)
{
	const BufferTag *tag = &GetBufferDescriptor(buf - 1)->tag;

	return tag->blockNum == blkno && BufTagGetForkNum(tag) == MAIN_FORKNUM &&
		BufTagMatchesRelFileLocator(tag, &rel->rd_locator);
}

/*
 * Has the pages that the hints name read in, where they are not in memory, and
 * sets where they are.  What is waited for is asked for beforehand: the slots,
 * then the buffers' descriptors and the pages' headers.
 *
 * Nothing is pinned or locked, and nothing is waited for but to start the
 * reads.  hints[i].buf is InvalidBuffer if the page is not in memory yet.
 */
void
cb_rel_prefetch(Relation rel, CbLeafHint *hints, int n)
{
	for (int i = 0; i < n; i++)
		cb_recent_prefetch(rel, hints[i].blkno);
	for (int i = 0; i < n; i++)
	{
		Buffer		buf = hints[i].buf = cb_recent_find(rel, hints[i].blkno);

		if (!BufferIsValid(buf))
			continue;
		__builtin_prefetch(GetBufferDescriptor(buf - 1), 1);
		__builtin_prefetch(BufferGetBlock(buf));
	}
	for (int i = 0; i < n; i++)
	{
		BlockNumber blkno = hints[i].blkno;
		Buffer		buf = hints[i].buf;

		if (BufferIsValid(buf) && cb_rel_is_in(rel, blkno, buf))
			continue;
		buf = cb_sound_prefetch(rel, blkno).recent_buffer;
		hints[i].buf = buf;
		if (BufferIsValid(buf))
		{
			cb_recent_note(rel, blkno, buf);
			__builtin_prefetch(BufferGetBlock(buf));
		}
	}
}
