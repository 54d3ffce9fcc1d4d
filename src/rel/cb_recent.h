/*-------------------------------------------------------------------------
 *
 * cb_recent.h
 *	  Where things were lately: hints for all sessions, in shared memory.
 *
 * In which buffers pages of indexes and their tables were: a short cut past the
 * server's table.
 *
 * A look-up of the server's takes a lock of its table and, where that is not
 * in the processor's caches, waits for memory several times in turn; here it
 * is once, or not at all for those who ask beforehand (cb_recent_prefetch).
 *
 * All that is found here is a hint, and may be of another page: whoever pins
 * the buffer looks at its tag (ReadRecentBuffer).  A page has one slot in a
 * table in shared memory, which it may share with others; the last one noted
 * is in it.  Nothing waits, and as all that counts of what is read by way of a
 * slot is the buffer's descriptor, which has a lock, there is nothing to order.
 *
 * And which page was the last of an index's journal: for a session that has
 * not seen it yet, or long ago, a short cut past all pages of the journal.
 * That is a hint, too, and may be of an index of the same number in another
 * database: whoever reads the page looks at what it is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_RECENT_H
#define CB_RECENT_H

#include "postgres.h"

#include "base/cb_compat.h"
#include "core/cb_atomic.h"
#include "storage/buf.h"
#include "storage/block.h"

/* each is block << 32 | buffer; NULL: the library was not preloaded */
extern cb_atomic64 *cb_recent_slots;
extern uint32 cb_recent_mask;

/* each is number of the index's file << 32 | block; NULL, too */
#define CB_RECENT_ENDS		1024
extern cb_atomic64 *cb_recent_ends;

extern void cb_recent_shmem_request(void);
extern void cb_recent_shmem_startup(void);

/* a page of the main fork */
static inline cb_atomic64 *
cb_recent_slot(Relation rel, BlockNumber block)
{
	uint64		page = (uint64) rel->rd_locator.relNumber << 32 | block;

	return &cb_recent_slots[(page * UINT64CONST(0x9E3779B97F4A7C15)) >> 32 &
							cb_recent_mask];
}

/* Where the page may be; InvalidBuffer: not known.  Never a local buffer. */
static inline Buffer
cb_recent_find(Relation rel, BlockNumber block)
{
	uint64		found;

	if (cb_recent_slots == NULL || RelationUsesLocalBuffers(rel))
		return InvalidBuffer;
	found = cb_load_relaxed(cb_recent_slot(rel, block));
	return found >> 32 == block ? (Buffer) (uint32) found : InvalidBuffer;
}

/* The page is in this buffer, or was a moment ago. */
static inline void
cb_recent_note(Relation rel, BlockNumber block, Buffer buf)
{
	if (cb_recent_slots != NULL && !RelationUsesLocalBuffers(rel))
		cb_store_relaxed(cb_recent_slot(rel, block),
						 (uint64) block << 32 | (uint32) buf);
}

/* The page will be looked for.  Inlined, as in am/cb_scan_group.c. */
static pg_attribute_always_inline void
cb_recent_prefetch(Relation rel, BlockNumber block)
{
	if (cb_recent_slots != NULL)
		__builtin_prefetch(cb_recent_slot(rel, block));
}

static inline cb_atomic64 *
cb_recent_end_slot(Relation rel)
{
	return &cb_recent_ends[rel->rd_locator.relNumber % CB_RECENT_ENDS];
}

/* What may be the journal's last page, or one before it; invalid: not known. */
static inline BlockNumber
cb_recent_find_end(Relation rel)
{
	uint64		found;

	if (cb_recent_ends == NULL || RelationUsesLocalBuffers(rel))
		return InvalidBlockNumber;
	found = cb_load_relaxed(cb_recent_end_slot(rel));
	return found >> 32 == rel->rd_locator.relNumber ?
		(BlockNumber) found : InvalidBlockNumber;
}

/* The page is the journal's last one. */
static inline void
cb_recent_note_end(Relation rel, BlockNumber block)
{
	if (cb_recent_ends != NULL && !RelationUsesLocalBuffers(rel))
		cb_store_relaxed(cb_recent_end_slot(rel),
						 (uint64) rel->rd_locator.relNumber << 32 | block);
}

#endif							/* CB_RECENT_H */
