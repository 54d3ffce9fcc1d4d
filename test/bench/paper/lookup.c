/*
 * lookup.c - Mao, Cutler, Morris: look-ups interleaved, so that one's memory is
 * fetched while others compute.
 *
 *	paper_bench lookup [entries=N] [looks=N] [rounds=N]
 *
 * Trees of test/bench/core with full leaves anywhere in memory: plain ones, as
 * nbtree's, and packed ones, read by the product's src/core/cb_pack.  Look-ups
 * of random keys, one at a time, 5 and 16 together.  A group goes down level by
 * level and halves each page's items in step, fetching what it looks at next.
 * In a packed leaf it fetches what src/am/cb_scan_group.c does before it reads.
 *
 * A round has the same keys for all; sums of the TIDs found must be equal.
 */
#include <stdio.h>

#include "load.h"

#define GROUP_MOST	16
#define DIRECTORY	256			/* bytes at the start of a packed part */

typedef struct Look
{
	uint64_t	key;
	const Page *page;
	int			low;
	int			high;
	int			mid;
} Look;

static const int groups[] = {1, 5, 16};

#define NGROUPS 3

/* page_find(page, 1, key) of each, into low. */
static void
find_together(Look *looks, int n)
{
	bool		more = true;

	for (int i = 0; i < n; i++)
	{
		looks[i].low = 1;
		looks[i].high = page_count(looks[i].page);
	}
	while (more)
	{
		more = false;
		for (int i = 0; i < n; i++)
		{
			looks[i].mid = looks[i].low + (looks[i].high - looks[i].low) / 2;
			__builtin_prefetch(&looks[i].page->item[looks[i].mid]);
		}
		for (int i = 0; i < n; i++)
			__builtin_prefetch(page_tuple(looks[i].page, looks[i].mid));
		for (int i = 0; i < n; i++)
		{
			Look	   *look = &looks[i];

			if (look->low >= look->high)
				continue;
			if (page_tuple(look->page, look->mid)->key <= look->key)
				look->low = look->mid + 1;
			else
				look->high = look->mid;
			more |= look->low < look->high;
		}
	}
	for (int i = 0; i < n; i++)
		looks[i].low--;
}

/* Inlined: gcc 12 drops calls of a function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void
fetch_directories(const Look *looks, int n)
{
	for (int i = 0; i < n; i++)
	{
		for (int at = 0; at < DIRECTORY; at += LINE_BYTES)
			__builtin_prefetch((const char *) page_tuple(looks[i].page, 1) + at);
	}
}

/* Sum of the TIDs of n keys. */
static uint64_t
look_together(const Tree *tree, Look *looks, int n)
{
	uint64_t	sum = 0;

	for (int i = 0; i < n; i++)
		looks[i].page = tree_page(tree, tree->root);
	for (int level = page_special(looks[0].page)->level; level > 0; level--)
	{
		find_together(looks, n);
		for (int i = 0; i < n; i++)
		{
			looks[i].page = tree_page(tree, (uint32_t) page_tuple(looks[i].page, looks[i].low)->tid);
			__builtin_prefetch(looks[i].page);
		}
	}
	if (tree->format == PACKED)
	{
		fetch_directories(looks, n);
		for (int i = 0; i < n; i++)
			sum += load_find(looks[i].page, PACKED, looks[i].key);
		return sum;
	}
	find_together(looks, n);
	for (int i = 0; i < n; i++)
		sum += page_tuple(looks[i].page, looks[i].low)->tid;
	return sum;
}

static uint64_t
look_up(const Tree *tree, uint64_t entries, uint64_t looks, int group, uint64_t seed)
{
	uint64_t	sum = 0;
	Look		together[GROUP_MOST];

	for (uint64_t done = 0; done < looks; done += (uint64_t) group)
	{
		for (int i = 0; i < group; i++)
			together[i].key = load_key(random_below(&seed, (uint32_t) entries), entries);
		if (group > 1)
			sum += look_together(tree, together, group);
		else
			sum += load_find(tree_page(tree, tree_descend(tree, together[0].key, 0)), tree->format,
							 together[0].key);
	}
	return sum;
}

/* What it should find. */
static uint64_t
expected_sum(uint64_t entries, uint64_t looks, uint64_t seed)
{
	uint64_t	sum = 0;

	while (looks-- > 0)
		sum += load_tid(random_below(&seed, (uint32_t) entries), entries);
	return sum;
}

int
lookup_main(void)
{
	static const Layout layouts[] = {{"plain", DIRECT, false, false}, {"packed", PACKED, false, false}};
	static double ns[2][NGROUPS][MAX_ROUNDS];
	static Tree trees[2];
	uint64_t	entries = (uint64_t) option("entries", 16e6);
	uint64_t	looks = (uint64_t) option("looks", 400e3) / 80 * 80;	/* of all groups */
	int			rounds = (int) option("rounds", 5);

	for (int i = 0; i < 2; i++)
		load_tree(&trees[i], &layouts[i], entries, 0);
	for (int round = 0; round < rounds && round < MAX_ROUNDS; round++)
	{
		uint64_t	expected = expected_sum(entries, looks, (uint64_t) round);

		for (int i = 0; i < 2 * NGROUPS; i++)
		{
			int			at = (i + round) % (2 * NGROUPS);
			double		start = now();

			if (look_up(&trees[at % 2], entries, looks, groups[at / 2], (uint64_t) round) != expected)
				die("not the entries that were looked for");
			ns[at % 2][at / 2][round] = (now() - start) / (double) looks;
		}
	}
	for (int i = 0; i < 2 * NGROUPS; i++)
		printf("leaves=%s group=%d ns=%.1f\n", layouts[i / NGROUPS].name, groups[i % NGROUPS],
			   median(ns[i / NGROUPS][i % NGROUPS], rounds));
	return 0;
}
