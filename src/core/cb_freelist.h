/*-------------------------------------------------------------------------
 *
 * cb_freelist.h
 *	  A lock-free stack of numbers 0 .. n-1, in shared memory.
 *
 * A Treiber stack; the head carries a tag that counts changes, so that a head
 * that came back is not taken for one that stayed (ABA).  Source: R. K.
 * Treiber, "Systems Programming: Coping with Parallelism", 1986.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_FREELIST_H
#define CB_FREELIST_H

#include "core/cb_atomic.h"

#define CB_FREELIST_NONE	UINT32_MAX

typedef struct CbFreeList
{
	cb_atomic64 head;			/* tag << 32 | number */
	cb_atomic32 nfree;			/* a hint */
	cb_atomic32 *next;			/* one a number, the caller's memory */
} CbFreeList;

/* All of 0 .. n-1 are free; 0 is popped first. */
extern void cb_freelist_init(CbFreeList *list, cb_atomic32 *next, uint32_t n);

/* A number, or CB_FREELIST_NONE. */
extern uint32_t cb_freelist_pop(CbFreeList *list);

extern void cb_freelist_push(CbFreeList *list, uint32_t number);

static inline uint32_t
cb_freelist_count(const CbFreeList *list)
{
	return cb_load_relaxed(&((CbFreeList *) list)->nfree);
}

#endif							/* CB_FREELIST_H */
