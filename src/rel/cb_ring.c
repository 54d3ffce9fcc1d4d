/*-------------------------------------------------------------------------
 *
 * cb_ring.c
 *	  A worker's ring of buffers, and which indexes are large enough for it.
 *
 *-------------------------------------------------------------------------
 */
#include "rel/cb_ring.h"

#include "base/cb_compat.h"
#include "miscadmin.h"
#include "rel/cb_sound.h"
#include "utils/memutils.h"

/* how many pages are read until it is asked again how large the index is */
#define CB_RING_TURNS	1024

static BufferAccessStrategy cb_ring = NULL;

/*
 * From now on this process uses a ring for large indexes, to its end.  To be
 * called once; the ring is in TopMemoryContext.
 */
void
cb_ring_make(void)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(TopMemoryContext);

	cb_ring = GetAccessStrategy(BAS_BULKWRITE);
	MemoryContextSwitchTo(oldcxt);
}

/* Does the index not fit into shared_buffers? */
static bool
cb_ring_is_for(Relation rel)
{
	static Oid	of = InvalidOid;
	static int	turns = 0;
	static bool large = false;

	if (of != RelationGetRelid(rel) || --turns <= 0)
	{
		large = RelationGetNumberOfBlocks(rel) > NBuffers;
		of = RelationGetRelid(rel);
		turns = CB_RING_TURNS;
	}
	return large;
}

/* The ring, if this process has one and the index is large; else NULL. */
static BufferAccessStrategy
cb_ring_for(Relation rel)
{
	return cb_ring && cb_ring_is_for(rel) ? cb_ring : NULL;
}

/*
 * As cb_sound_read().  Any process may call it: one without a ring reads as
 * usual.  In a process with a ring it asks now and then how large the index is,
 * as the file system knows it.
 */
Buffer
cb_ring_read(Relation rel, BlockNumber blkno)
{
	return cb_sound_read(rel, blkno, cb_ring_for(rel));
}

/* The same of a new block behind all others, for which the caller has the lock. */
Buffer
cb_ring_extend(Relation rel)
{
	return ReadBufferExtended(rel, MAIN_FORKNUM, P_NEW, RBM_NORMAL, cb_ring_for(rel));
}
