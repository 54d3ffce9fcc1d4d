/*
 * load.c - see load.h.
 */
#include "load.h"

#include <stdlib.h>
#include <string.h>

#define BATCH		10			/* entries that come to a delta at a time */

/* The leaf's entries, of which nlater come in batches, any of them. */
static void
load_leaf(Tree *tree, uint32_t no, Tuple *sorted, int n, int nlater, uint64_t *seed)
{
	static Tuple later[CB_PACK_MAX_ENTRIES];
	int			npacked = 0;
	int			drawn = 0;

	for (int i = 0; i < n; i++)
	{
		if ((int) random_below(seed, (uint32_t) (n - i)) < nlater - drawn)
			later[drawn++] = sorted[i];
		else
			sorted[npacked++] = sorted[i];
	}
	leaf_build(tree_page(tree, no), tree->format, sorted, npacked);
	for (int i = drawn - 1; i > 0; i--)
	{
		int			j = (int) random_below(seed, (uint32_t) i + 1);
		Tuple		swap = later[i];

		later[i] = later[j];
		later[j] = swap;
	}
	for (int i = 0; i < drawn; i += BATCH)
	{
		int			some = drawn - i < BATCH ? drawn - i : BATCH;

		qsort(&later[i], (size_t) some, sizeof(Tuple), tuple_compare);
		leaf_apply(tree, no, &later[i], some);
	}
}

/*
 * How many of the next entries, of a leaf's capacity.  A plain leaf that is full
 * has a tenth left, as nbtree builds them.
 */
static int
share_of(const Layout *layout, int capacity, uint64_t *seed)
{
	if (!layout->inserted)
		return layout->format == DIRECT ? capacity * 9 / 10 : capacity;
	return capacity * 1000 / (2000 - (int) random_below(seed, 1000));
}

void
load_tree(Tree *tree, const Layout *layout, uint64_t n, size_t stagger)
{
	static Tuple sorted[CB_PACK_MAX_ENTRIES];
	int			capacity = leaf_capacity(layout->format, n);
	uint32_t	most = (uint32_t) (n / (uint64_t) (capacity / 2) * 102 / 100) + 100;
	Tuple	   *children = malloc(most * sizeof(Tuple));
	size_t		nchildren = 0;
	uint64_t	seed = 1;
	uint64_t	done = 0;
	uint64_t	low = 0;
	uint32_t	no;

	tree_init(tree, layout->format, most, stagger);
	for (uint32_t i = 0; layout->in_order && i < most; i++)
		tree->order[i] = i;
	if (children == NULL)
		die("out of memory");
	no = tree_new_page(tree);
	while (done < n)
	{
		int			share = share_of(layout, capacity, &seed);
		int			some = n - done < (uint64_t) share ? (int) (n - done) : share;
		uint32_t	right = done + (uint64_t) some < n ? tree_new_page(tree) : 0;
		uint64_t	high;

		for (int i = 0; i < some; i++)
			sorted[i] = (Tuple) {load_tid(done + (uint64_t) i, n), load_key(done + (uint64_t) i, n)};
		done += (uint64_t) some;
		high = right == 0 ? MAX_KEY : load_key(done, n);
		children[nchildren++] = (Tuple) {no, low};
		page_init(tree_page(tree, no), 0, high, right);
		load_leaf(tree, no, sorted, some,
				  layout->inserted && some > capacity / 2 ? some - capacity / 2 : 0, &seed);
		low = high;
		no = right;
	}
	tree->nleaves = nchildren;
	tree_build_upper(tree, children, nchildren);
	free(children);
}

uint32_t
load_first_leaf(const Tree *tree)
{
	return tree_descend(tree, 0, 0);
}

uint64_t
load_find(const Page *leaf, Format format, uint64_t key)
{
	CbPackReader reader;
	int			i;

	if (format != PACKED)
		return page_tuple(leaf, page_find(leaf, 1, key))->tid;
	if (!cb_pack_open(&reader, page_tuple(leaf, 1), leaf->item[1] >> 16))
		die("a blob is damaged");
	i = cb_pack_search_number(&reader, (int64_t) key, true) - 1;
	return cb_pack_tid(&reader, i);
}
