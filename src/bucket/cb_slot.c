/*-------------------------------------------------------------------------
 *
 * cb_slot.c
 *	  What this backend holds: pinned and owned chunks, routers in use.
 *
 * A stack of each, since a comparison function may run SQL that reads or
 * flushes another index.  Whoever takes something remembers the mark before
 * and, on an error, goes back to it (PG_CATCH of the same function: not a
 * (sub)transaction callback, which may run inside a comparison).  At the
 * end of the process all is given back (B3).
 *
 * The chunks of a process that is killed need no care: the postmaster makes
 * shared memory anew then.
 *
 * The stacks are the process's own, so no function here takes a lock.  They are
 * of fixed size, as what is held is to be noted where nothing may fail: who
 * pins or owns asks for room first (cb_slot_has_room()).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_base.h"
#include "bucket/cb_bucket.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#define CB_SLOT_PINS	128
#define CB_SLOT_OWNED	128
#define CB_SLOT_ROUTERS	64

static CbPoolChunk *cb_slot_pinned[CB_SLOT_PINS];
static CbPoolChunk *cb_slot_owned[CB_SLOT_OWNED];
static CbRouter *cb_slot_routers[CB_SLOT_ROUTERS];
static CbSlotMark cb_slot;
static bool cb_slot_registered = false;

/*
 * Gives all back at the end of the process (B3): a before_shmem_exit callback, as
 * who waits for an owner is woken, for which the process has to be one still.
 */
static void
cb_slot_exit(int code, Datum arg)
{
	CbSlotMark	none = {0, 0, 0};

	cb_slot_release_to(none);
}

/* How much the slot holds now, for cb_slot_release_to(). */
CbSlotMark
cb_slot_mark(void)
{
	return cb_slot;
}

/*
 * Is there room for so many more pins and owned chunks?  To be asked before
 * any is taken, with no lock held: the first time it sees to it that all is
 * given back when the process ends.
 */
bool
cb_slot_has_room(int npins, int nowned)
{
	if (!cb_slot_registered)
	{
		before_shmem_exit(cb_slot_exit, (Datum) 0);
		cb_slot_registered = true;
	}
	return cb_slot.npinned + npins <= CB_SLOT_PINS &&
		cb_slot.nowned + nowned <= CB_SLOT_OWNED;
}

/*
 * Pins a chunk: it is not freed until the slot is released.  The bucket that
 * lists it is locked, so it is not free.  There is room; cannot fail.
 */
void
cb_slot_pin(CbPoolChunk *chunk)
{
	Assert(cb_slot.npinned < CB_SLOT_PINS);
	cb_slot_pinned[cb_slot.npinned++] = chunk;
	cb_chunk_hold(&chunk->chunk);
}

/*
 * Takes over the hold that a chunk has been opened with, as a pin: it is in no
 * list.  There is room; cannot fail.
 */
void
cb_slot_adopt(CbPoolChunk *chunk)
{
	Assert(cb_slot.npinned < CB_SLOT_PINS);
	cb_slot_pinned[cb_slot.npinned++] = chunk;
}

/*
 * Owns a chunk, which is a hold as well.  The bucket that lists it is locked
 * exclusively, and there is room.  False: somebody else owns it.
 */
bool
cb_slot_own(CbPoolChunk *chunk)
{
	Assert(cb_slot.nowned < CB_SLOT_OWNED);
	if (!cb_chunk_own(&chunk->chunk, GetNumberFromPGProc(MyProc) + 1))
		return false;
	cb_slot_owned[cb_slot.nowned++] = chunk;
	return true;
}

/*
 * Gives up a hold; the last one frees the chunk.  No lock is needed: a chunk that
 * loses its last hold is in no list any more.  Waits for nothing, cannot fail.
 */
static void
cb_slot_let_go(CbPoolChunk *chunk)
{
	if (cb_chunk_release(&chunk->chunk))
		cb_pool_free_chunk(chunk);
}

/*
 * Gives up the ownership of a chunk that is in no list any more; it is freed
 * with the last pin.  No lock is needed; cannot fail.
 */
void
cb_slot_retire(CbPoolChunk *chunk)
{
	int			i = cb_slot.nowned - 1;

	while (cb_slot_owned[i] != chunk)
		i--;
	cb_slot_owned[i] = cb_slot_owned[--cb_slot.nowned];
	cb_chunk_set_state(&chunk->chunk, CB_CHUNK_RETIRED);
	cb_chunk_disown(&chunk->chunk);
	cb_slot_let_go(chunk);
}

/*
 * Keeps a router from being freed.  Raises an error if comparisons of indexes
 * within comparisons have left no room, and then keeps nothing.
 */
void
cb_slot_keep_router(CbRouter *router)
{
	if (cb_slot.nrouters == CB_SLOT_ROUTERS)
		ereport(ERROR,
				(errcode(ERRCODE_STATEMENT_TOO_COMPLEX),
				 errmsg("comparisons of cachebatch indexes are nested too deeply"),
				 errhint("Comparison functions should not query tables.")));
	router->users++;
	cb_slot_routers[cb_slot.nrouters++] = router;
}

/*
 * Gives back what was taken since the mark.  Owned chunks stay in their lists,
 * sealed: somebody will flush them again, and all who wait for an owner are
 * woken.  Needs no lock.  Cannot fail: called within PG_CATCH, and when the
 * process ends.
 */
void
cb_slot_release_to(CbSlotMark mark)
{
	bool		disowned = cb_slot.nowned > mark.nowned;

	while (cb_slot.nrouters > mark.nrouters)
		cb_route_unref(cb_slot_routers[--cb_slot.nrouters]);
	while (cb_slot.npinned > mark.npinned)
		cb_slot_let_go(cb_slot_pinned[--cb_slot.npinned]);
	while (cb_slot.nowned > mark.nowned)
	{
		CbPoolChunk *chunk = cb_slot_owned[--cb_slot.nowned];

		cb_chunk_set_state(&chunk->chunk, CB_CHUNK_SEALED);
		cb_chunk_disown(&chunk->chunk);
		cb_slot_let_go(chunk);
	}
	if (!disowned)
		return;
	for (uint32 i = 0; i < cb_pool->nsets; i++)
		ConditionVariableBroadcast(&cb_pool_sets[i].cv);
}
