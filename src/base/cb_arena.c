/*-------------------------------------------------------------------------
 *
 * cb_arena.c
 *	  Blocks of an arena.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "base/cb_arena.h"

/* just below the size from which a context asks the system for each chunk */
#define CB_ARENA_BLOCK	(8192 - 64)

/*
 * An arena without a block; cxt: where it will take them.  Allocates nothing.
 */
void
cb_arena_init(CbArena *arena, MemoryContext cxt)
{
	arena->cxt = cxt;
	arena->blocks = NULL;
	arena->at = NULL;
	arena->left = 0;
}

/*
 * Takes a block with room for size bytes, MAXALIGNed; what was left of the
 * last one is given up.  May raise "out of memory"; the arena is as it was
 * then.
 */
void
cb_arena_extend(CbArena *arena, Size size)
{
	Size		room = Max(size, CB_ARENA_BLOCK);
	CbArenaBlock *block = MemoryContextAlloc(arena->cxt,
											 offsetof(CbArenaBlock, data) + room);

	block->next = arena->blocks;
	block->size = room;
	arena->blocks = block;
	arena->at = block->data;
	arena->left = room;
}

/*
 * Everything that was allocated is gone.  The first block is kept for what
 * comes.
 */
void
cb_arena_reset(CbArena *arena)
{
	CbArenaBlock *block = arena->blocks;

	if (block == NULL)
		return;
	while (block->next != NULL)
	{
		CbArenaBlock *next = block->next;

		pfree(block);
		block = next;
	}
	arena->blocks = block;
	arena->at = block->data;
	arena->left = block->size;
}
