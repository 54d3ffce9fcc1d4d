/*-------------------------------------------------------------------------
 *
 * cb_freelist.c
 *	  A lock-free stack of free numbers.
 *
 * Ordering: the compare-and-swap of a push releases what was done to the
 * number's object before; that of a pop acquires it.  A pop may read the link
 * of a number that another has popped meanwhile; the tag has changed then, and
 * the swap fails.  The tag comes back after 2^32 changes: a popper would have
 * to sleep through exactly so many.
 *
 * The hint nfree is raised before a push and lowered after a pop, so it never
 * falls below the true number.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_freelist.h"

#include "core/cb_assert.h"

static inline uint32_t
cb_freelist_head_number(uint64_t head)
{
	return (uint32_t) head;
}

/* The successor of a head: another number, and the next tag. */
static inline uint64_t
cb_freelist_next_head(uint64_t head, uint32_t number)
{
	return (((head >> 32) + 1) << 32) | number;
}

/*
 * All of 0 .. n-1 are free; 0 is popped first.  next has room for n numbers,
 * and stays the caller's.  Nobody else may use the list yet.
 */
void
cb_freelist_init(CbFreeList *list, cb_atomic32 *next, uint32_t n)
{
	assert(n < CB_FREELIST_NONE);

	list->next = next;
	for (uint32_t i = 0; i < n; i++)
		atomic_init(&next[i], i + 1 < n ? i + 1 : CB_FREELIST_NONE);
	atomic_init(&list->nfree, n);
	atomic_init(&list->head, n > 0 ? 0 : CB_FREELIST_NONE);
}

/*
 * Takes a number off the list, or returns CB_FREELIST_NONE; takes no lock and
 * never waits.
 */
uint32_t
cb_freelist_pop(CbFreeList *list)
{
	uint64_t	head = cb_load_acquire(&list->head);

	for (;;)
	{
		uint32_t	number = cb_freelist_head_number(head);
		uint32_t	next;

		if (number == CB_FREELIST_NONE)
			return CB_FREELIST_NONE;
		next = cb_load_relaxed(&list->next[number]);
		if (cb_swap_if(&list->head, &head, cb_freelist_next_head(head, next)))
		{
			cb_fetch_sub(&list->nfree, 1);
			return number;
		}
	}
}

/* Gives a popped number back; takes no lock and never waits. */
void
cb_freelist_push(CbFreeList *list, uint32_t number)
{
	uint64_t	head = cb_load_relaxed(&list->head);

	cb_fetch_add(&list->nfree, 1);
	do
		cb_store_relaxed(&list->next[number], cb_freelist_head_number(head));
	while (!cb_swap_if(&list->head, &head, cb_freelist_next_head(head, number)));
}
