/*
 * leaves.c - Mao, Cutler, Morris: what is read in order lies in that order.
 *
 *	paper_bench leaves [entries=N] [rounds=N]
 *
 * All entries of an index in key order, by right links, and by the product's
 * src/core/cb_pack: leaves as insertions leave them, as packing does (full, at
 * the same places), and as CREATE INDEX does (full, one behind the other); with
 * the next leaf's lines fetched, and without.
 */
#include <stdio.h>

#include "load.h"

static const Layout layouts[] = {
	{"inserted", PACKED, true, false},
	{"packed", PACKED, false, false},
	{"built", PACKED, false, true}
};

#define NLAYOUTS	3

static inline __attribute__((always_inline)) void
fetch_next(const Tree *tree, const Page *page)
{
	const Page *next = tree_page(tree, page_special(page)->right);

	for (int at = 0; at < PAGE_SIZE; at += LINE_BYTES)
		__builtin_prefetch(next->bytes + at);
}

/* Adds what the leaf holds. */
static void
read_leaf(const Page *page, Sums *sums)
{
	static uint64_t words[CB_PACK_WORDS_ROOM(0) / sizeof(uint64_t)];
	uint64_t	tids[CB_PACK_BLOCK];
	CbPackReader reader;
	uint16_t	len;

	if (!cb_pack_open(&reader, page_tuple(page, 1), page->item[1] >> 16))
		die("a blob is damaged");
	for (int i = 0; i < reader.count;)
	{
		int			n = cb_pack_read_words(&reader, i, 0, words, &len, tids);

		if (n == 0)
			die("a block is not of numbers");
		for (int j = 0; j < n; j++)
			sums->sum += words[j] ^ tids[j];
		i += n;
	}
	sums->count += reader.count;
	for (int i = 2; i < page_count(page); i++)
	{
		sums->sum += page_tuple(page, i)->key ^ page_tuple(page, i)->tid;
		sums->count++;
	}
}

static Sums
read_all(const Tree *tree, bool ahead)
{
	Sums		sums = {0, 0};

	for (uint32_t no = load_first_leaf(tree); no != 0;)
	{
		const Page *page = tree_page(tree, no);

		if (ahead)
			fetch_next(tree, page);
		read_leaf(page, &sums);
		no = page_special(page)->right;
	}
	return sums;
}

int
leaves_main(void)
{
	static double ns[NLAYOUTS][2][MAX_ROUNDS];
	static Tree trees[NLAYOUTS];
	uint64_t	entries = (uint64_t) option("entries", 16e6);
	int			rounds = (int) option("rounds", 5);
	Sums		expected = {entries, 0};

	for (uint64_t i = 0; i < entries; i++)
		expected.sum += load_key(i, entries) ^ load_tid(i, entries);
	for (int i = 0; i < NLAYOUTS; i++)
		load_tree(&trees[i], &layouts[i], entries, 0);
	for (int round = 0; round < rounds && round < MAX_ROUNDS; round++)
	{
		for (int i = 0; i < 2 * NLAYOUTS; i++)
		{
			int			at = (i + round) % (2 * NLAYOUTS);
			double		start = now();
			Sums		sums = read_all(&trees[at / 2], at % 2 != 0);

			if (sums.count != expected.count || sums.sum != expected.sum)
				die("not the entries that were loaded");
			ns[at / 2][at % 2][round] = (now() - start) / (double) entries;
		}
	}
	for (int i = 0; i < 2 * NLAYOUTS; i++)
		printf("layout=%s ahead=%d ns=%.3f\n", layouts[i / 2].name, i % 2,
			   median(ns[i / 2][i % 2], rounds));
	return 0;
}
