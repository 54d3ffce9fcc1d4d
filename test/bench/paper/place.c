/*
 * place.c - Conan's placement by cache sets: what is used together is moved
 * apart by a line, or is not.
 *
 *	paper_bench place [what=tree] [entries=N] [looks=N] [stagger=BYTES]
 *	paper_bench place what=chunks [chunks=N] [bytes=N] [rounds=N]
 *					  [stagger=BYTES] [header=BYTES]
 *
 * tree: look-ups in packed leaves.  Pages of 8 kB at multiples of 8 kB have
 * their headers in one set of 128; with a stagger of a line these are in all.
 *
 * chunks: entries of 16 bytes to random chunks, which are emptied when full, with
 * their bit in the chunk's filter.  stagger: bytes between chunks.  header: the
 * distance of their headers, 72 in the product; 0: each is in front of its data.
 *
 * The first half of look-ups or entries is neither counted nor timed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cb_chunk.h"
#include "core/cb_filter.h"
#include "load.h"

#define FRONT_BYTES 128			/* of a header in front of its data */
#define FILTER_PART 16			/* bytes of a chunk for one of its filter */

static void
look_up(const Tree *tree, uint64_t entries, uint64_t looks, uint64_t *seed)
{
	while (looks-- > 0)
	{
		uint64_t	i = random_below(seed, (uint32_t) entries);
		uint64_t	key = load_key(i, entries);
		const Page *leaf = tree_page(tree, tree_descend(tree, key, 0));

		if (load_find(leaf, tree->format, key) != load_tid(i, entries))
			die("not the entry that was looked for");
	}
}

/* Prints what was counted, and ns for each since the start. */
static void
print_counted(uint64_t counted, double start)
{
	printf("counted=%llu ns=%.2f\n", (unsigned long long) counted,
		   (now() - start) / (double) counted);
}

static void
place_tree(void)
{
	static const Layout layout = {"packed", PACKED, false, false};
	static Tree tree;
	uint64_t	entries = (uint64_t) option("entries", 1e6);
	uint64_t	looks = (uint64_t) option("looks", 100e3) / 2;
	uint64_t	seed = 1;
	double		start;

	load_tree(&tree, &layout, entries, (size_t) option("stagger", 0));
	count_begin();
	look_up(&tree, entries, looks, &seed);
	count_on();
	start = now();
	look_up(&tree, entries, looks, &seed);
	count_off();
	print_counted(looks, start);
}

typedef struct Pool
{
	uint32_t	n;
	uint32_t	bytes;
	uint32_t	filter_lines;
	char	   *headers;
	size_t		header_distance;
	cb_atomic64 *filters;
} Pool;

static inline CbChunk *
pool_chunk(const Pool *pool, uint32_t i)
{
	return (CbChunk *) (pool->headers + i * pool->header_distance);
}

static void
make_pool(Pool *pool)
{
	size_t		stagger = (size_t) option("stagger", 0);
	size_t		header = (size_t) option("header", 72);
	size_t		front = header == 0 ? FRONT_BYTES : 0;
	size_t		distance;
	char	   *data;

	pool->n = (uint32_t) option("chunks", 1300);
	pool->bytes = (uint32_t) option("bytes", 24 * 1024);
	pool->filter_lines = pool->bytes / (FILTER_PART * CB_FILTER_LINE_BYTES);
	distance = pool->bytes + stagger;
	data = memory_get(pool->n * distance);
	pool->headers = header == 0 ? data : memory_get(pool->n * header);
	pool->header_distance = header == 0 ? distance : header;
	pool->filters = memory_get((size_t) pool->n * pool->filter_lines * CB_FILTER_LINE_BYTES);
	for (uint32_t i = 0; i < pool->n; i++)
	{
		cb_chunk_init(pool_chunk(pool, i), data + i * distance + front,
					  pool->bytes - (uint32_t) front);
		cb_chunk_open(pool_chunk(pool, i));
	}
}

static void
empty(CbChunk *chunk)
{
	cb_chunk_set_state(chunk, CB_CHUNK_RETIRED);
	(void) cb_chunk_release(chunk);
	cb_chunk_set_state(chunk, CB_CHUNK_FREE);
	cb_chunk_open(chunk);
}

static void
append(const Pool *pool, uint64_t entries, uint64_t *seed)
{
	while (entries-- > 0)
	{
		uint32_t	i = random_below(seed, pool->n);
		CbChunk    *chunk = pool_chunk(pool, i);
		Tuple		tuple = {heap_tid(entries), next_random(seed)};

		if (cb_chunk_room(chunk) < sizeof(tuple))
			empty(chunk);
		cb_filter_add(pool->filters + (size_t) i * pool->filter_lines * CB_FILTER_LINE_WORDS,
					  pool->filter_lines, (uint32_t) tuple.key);
		cb_chunk_append(chunk, &tuple, sizeof(tuple));
	}
}

static void
place_chunks(void)
{
	Pool		pool;
	uint64_t	entries;
	uint64_t	seed = 1;
	double		start;

	make_pool(&pool);
	entries = (uint64_t) (option("rounds", 2) * pool.n * pool.bytes /
						  (sizeof(Tuple) + sizeof(CbItem)) / 2);
	count_begin();
	append(&pool, entries, &seed);
	count_on();
	start = now();
	append(&pool, entries, &seed);
	count_off();
	print_counted(entries, start);
}

int
place_main(void)
{
	if (strcmp(option_text("what", "tree"), "chunks") == 0)
		place_chunks();
	else
		place_tree();
	return 0;
}
