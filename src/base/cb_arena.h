/*-------------------------------------------------------------------------
 *
 * cb_arena.h
 *	  Memory for many small things that go at once.
 *
 * An allocation moves a pointer.  The arena takes blocks from a memory context
 * and gives all but the first back when it is reset; the context's end ends
 * the arena.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_ARENA_H
#define CB_ARENA_H

#include "postgres.h"

typedef struct CbArenaBlock
{
	struct CbArenaBlock *next;
	Size		size;			/* of data */
	char		data[FLEXIBLE_ARRAY_MEMBER];
} CbArenaBlock;

typedef struct CbArena
{
	MemoryContext cxt;
	CbArenaBlock *blocks;		/* the newest first */
	char	   *at;
	Size		left;
} CbArena;

extern void cb_arena_init(CbArena *arena, MemoryContext cxt);
extern void cb_arena_reset(CbArena *arena);
extern void cb_arena_extend(CbArena *arena, Size size);

/* MAXALIGNed memory of this many bytes; may raise "out of memory". */
static inline void *
cb_arena_alloc(CbArena *arena, Size size)
{
	char	   *result;

	size = MAXALIGN(size);
	if (size > arena->left)
		cb_arena_extend(arena, size);
	result = arena->at;
	arena->at += size;
	arena->left -= size;
	return result;
}

#endif							/* CB_ARENA_H */
