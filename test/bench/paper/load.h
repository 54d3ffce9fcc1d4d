/*
 * load.h - trees of test/bench/core, loaded with entries of which each key can
 * be told.
 */
#ifndef BENCH_LOAD_H
#define BENCH_LOAD_H

#include "core/cb_pack.h"
#include "paper.h"

#define KEY_SPACE	(UINT64_C(1) << 62)

typedef struct Layout
{
	const char *name;
	Format		format;
	bool		inserted;		/* leaves are 1/2 to 1 full, the newest entries
								 * in their deltas; else all are full */
	bool		in_order;		/* of memory; else anywhere */
} Layout;

/* Keys are in order, one in each of n equal parts of the space. */
static inline uint64_t
load_key(uint64_t i, uint64_t n)
{
	return i * (KEY_SPACE / n) + mix(i) % (KEY_SPACE / n);
}

static inline uint64_t
load_tid(uint64_t i, uint64_t n)
{
	return heap_tid(mix(i + n) % n);
}

/* Makes a tree of n entries; stagger: as tree_init(). */
extern void load_tree(Tree *tree, const Layout *layout, uint64_t n, size_t stagger);

/* The leftmost leaf. */
extern uint32_t load_first_leaf(const Tree *tree);

/* The TID of a key that is there; by the product's code if the leaf is packed. */
extern uint64_t load_find(const Page *leaf, Format format, uint64_t key);

#endif							/* BENCH_LOAD_H */
