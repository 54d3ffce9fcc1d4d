/*
 * core_bench.c - what an index entry costs without the server: one by one into
 * sorted leaves, or by way of buckets into leaves with a delta.
 *
 *	core_bench direct|delta|packed ENTRIES POOL-BYTES
 *
 * The tree is loaded with so many entries of random 64-bit keys; then five
 * pool-fulls of new ones are inserted.  Prints CPU time an entry, and under
 * callgrind only that part is counted.  At the end everything is compared with
 * what should be there.  See test/bench/core/run.
 *
 * Loading leaves what random insertions leave: shares x of a leaf's capacity
 * with density 1/x^2 from 1/2 to 1; half a capacity in order, from the split
 * before, and the rest as it came in later; leaves anywhere in memory.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#endif

#include "core/cb_chunk.h"
#include "core/cb_radix.h"
#include "tree.h"

#define POOLFULS	5
#define WARM		10			/* a tenth as many entries go first, not timed */
#define CHUNK_BYTES 65536
#define CHUNK_MAX	(CHUNK_BYTES / (sizeof(Tuple) + sizeof(CbItem)))
#define LOAD_BATCH	10			/* entries of a visit, before */

/* ../paper/run has more than any batch has leaves, too: nothing is fetched */
#ifndef AHEAD
#define AHEAD		8			/* leaves whose header is fetched ahead */
#define AHEAD_DELTA	4			/* whose end of the delta is */
#endif

typedef struct Bench
{
	Tree		tree;
	uint64_t	entries;		/* loaded */
	uint64_t	warm;			/* inserted first */
	uint64_t	inserted;		/* and then, timed */
	uint64_t	seed;
	Sums		expected;
	Tuple	   *children;		/* leaves as loaded: (page, lower bound) */
	size_t		nchildren;
	uint32_t	nranges;
	uint64_t   *bounds;			/* lower bounds of the ranges */
	CbChunk    *chunks;			/* one a range */
	uint64_t	visits;
} Bench;

/* ---------- keys ---------- */

static double
unit(Bench *bench)
{
	return ((double) (mix(bench->seed++) >> 11) + 0.5) / 9007199254740992.0;
}

static inline Tuple
new_tuple(const Bench *bench, uint64_t i)
{
	return (Tuple) {heap_tid(bench->entries + i),
	mix(i + UINT64_C(0x9E3779B97F4A7C15)) & ~UINT64_C(1)};
}

/* ---------- loading ---------- */

/* Fills a leaf with n entries in order, nlater of them one after the other. */
static void
load_leaf(Bench *bench, uint32_t no, Tuple *sorted, int n, int nlater)
{
	static Tuple later[2048];
	Tree	   *tree = &bench->tree;
	int			npacked = 0;
	int			drawn = 0;

	for (int i = 0; i < n; i++)
	{
		if (unit(bench) * (n - i) < nlater - drawn)
			later[drawn++] = sorted[i];
		else
			sorted[npacked++] = sorted[i];
	}
	for (int i = drawn - 1; i > 0; i--)
	{
		int			j = (int) (unit(bench) * (i + 1));
		Tuple		swap = later[i];

		later[i] = later[j];
		later[j] = swap;
	}
	leaf_build(tree_page(tree, no), tree->format, sorted, npacked);
	for (int i = 0; i < drawn; i += LOAD_BATCH)
	{
		int			some = drawn - i < LOAD_BATCH ? drawn - i : LOAD_BATCH;

		if (tree->format == DIRECT)
		{
			for (int j = i; j < i + some; j++)
				leaf_insert(tree, no, &later[j]);
			continue;
		}
		qsort(&later[i], (size_t) some, sizeof(Tuple), tuple_compare);
		leaf_apply(tree, no, &later[i], some);
	}
}

static void
load(Bench *bench)
{
	static Tuple sorted[2048];
	Tree	   *tree = &bench->tree;
	double		n = (double) bench->entries;
	double		gap = 18446744073709551616.0 / (n + 10 * sqrt(n) + 100);
	int			capacity = leaf_capacity(tree->format, bench->entries);
	uint32_t	no = tree_new_page(tree);
	uint64_t	low = 0;
	uint64_t	key = 0;

	for (uint64_t left = bench->entries; left > 0;)
	{
		uint64_t	share = (uint64_t) (capacity / (2 - unit(bench)));
		int			some = (int) (left < share ? left : share);
		uint32_t	right = left > share ? tree_new_page(tree) : 0;

		for (int i = 0; i < some; i++)
		{
			key += 1 + (uint64_t) (-log(unit(bench)) * gap);
			sorted[i] = (Tuple) {heap_tid(mix(key) % bench->entries), key};
			sums_add(&bench->expected, &sorted[i]);
		}
		bench->children[bench->nchildren++] = (Tuple) {no, low};
		low = right == 0 ? MAX_KEY : key + 1;
		page_init(tree_page(tree, no), 0, low, right);
		load_leaf(bench, no, sorted, some,
				  some > capacity / 2 ? some - capacity / 2 : 0);
		left -= (uint64_t) some;
		no = right;
	}
	tree->nleaves = bench->nchildren;
}

/* ---------- buckets ---------- */

/* As many ranges, of as many leaves each, as chunks fit into the pool. */
static void
make_buckets(Bench *bench, uint64_t pool)
{
	size_t		n = pool / (CHUNK_BYTES + sizeof(CbChunk));

	n = n < 1 ? 1 : n > bench->nchildren ? bench->nchildren : n;
	bench->nranges = (uint32_t) n;
	bench->bounds = malloc(n * sizeof(uint64_t));
	bench->chunks = malloc(n * sizeof(CbChunk));
	for (size_t i = 0; i < n; i++)
	{
		void	   *data = aligned_alloc(64, CHUNK_BYTES);

		if (data == NULL)
			die("out of memory");
		memset(data, 0, CHUNK_BYTES);
		bench->bounds[i] = bench->children[bench->nchildren * i / n].key;
		cb_chunk_init(&bench->chunks[i], data, CHUNK_BYTES);
		cb_chunk_open(&bench->chunks[i]);
	}
}

static inline uint32_t
route(const Bench *bench, uint64_t key)
{
	uint32_t	at = 0;

	for (uint32_t n = bench->nranges; n > 1; n -= n / 2)
		at += bench->bounds[at + n / 2] <= key ? n / 2 : 0;
	return at;
}

/* what of a batch goes to one leaf */
typedef struct Visit
{
	uint32_t	leaf;
	int			from;
	int			to;
} Visit;

/* Inlined: gcc 12 drops calls of a function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void
fetch_ahead(const Tree *tree, const Visit *visits, int n, int at)
{
	if (at + AHEAD < n)
	{
		const Page *page = tree_page(tree, visits[at + AHEAD].leaf);

		__builtin_prefetch(page, 1);
		__builtin_prefetch(page_special(page));
	}
	if (at + AHEAD_DELTA < n)
	{
		const Visit *visit = &visits[at + AHEAD_DELTA];
		const Page *page = tree_page(tree, visit->leaf);
		int			bytes = (visit->to - visit->from) * (int) sizeof(Tuple);

		__builtin_prefetch(page->bytes + page->lower, 1);
		for (int i = 64; i < bytes + 64; i += 64)
			__builtin_prefetch(page->bytes + page->upper - i, 1);
	}
}

/* Entries in order that are below one parent: which leaf gets which. */
static int
plan_visits(const Page *parent, const Tuple *sorted, int from, int n, Visit *visits)
{
	int			slot = page_find(parent, 1, sorted[from].key);
	int			count = page_count(parent);
	int			nvisits = 0;

	for (; from < n && slot < count; slot++)
	{
		uint64_t	high = slot + 1 < count ? page_tuple(parent, slot + 1)->key :
			page_high(parent);
		int			to = from;

		while (to < n && sorted[to].key < high)
			to++;
		if (to == from)
			continue;
		visits[nvisits++] = (Visit) {(uint32_t) page_tuple(parent, slot)->tid, from, to};
		from = to;
	}
	return nvisits;
}

static void
apply(Bench *bench, const Tuple *sorted, int n)
{
	Visit		visits[PAGE_ITEMS + 1];
	Tree	   *tree = &bench->tree;

	for (int done = 0; done < n;)
	{
		uint32_t	parent = tree_descend(tree, sorted[done].key, 1);
		int			nvisits = plan_visits(tree_page(tree, parent), sorted, done, n,
										  visits);

		for (int i = 0; i < nvisits; i++)
		{
			fetch_ahead(tree, visits, nvisits, i);
			leaf_apply(tree, visits[i].leaf, sorted + visits[i].from,
					   visits[i].to - visits[i].from);
		}
		bench->visits += (uint64_t) nvisits;
		done = visits[nvisits - 1].to;
	}
}

static void
flush(Bench *bench, CbChunk *chunk)
{
	static CbRadixItem items[CHUNK_MAX];
	static CbRadixItem scratch[CHUNK_MAX];
	static Tuple sorted[CHUNK_MAX];
	uint32_t	n = cb_chunk_count(chunk);

	cb_chunk_set_state(chunk, CB_CHUNK_SEALED);
	cb_chunk_set_state(chunk, CB_CHUNK_FLUSHING);
	for (uint32_t i = 0; i < n; i++)
	{
		const Tuple *tuple = cb_chunk_entry(chunk, i);

		items[i] = (CbRadixItem) {tuple->key, tuple->tid};
	}
	cb_radix_sort(items, scratch, n);
	for (uint32_t i = 0; i < n; i++)
		sorted[i] = (Tuple) {items[i].value, items[i].key};
	apply(bench, sorted, (int) n);
	cb_chunk_set_state(chunk, CB_CHUNK_RETIRED);
	(void) cb_chunk_release(chunk);
	cb_chunk_set_state(chunk, CB_CHUNK_FREE);
	cb_chunk_open(chunk);
}

/* ---------- inserting ---------- */

static void
insert(Bench *bench, uint64_t from, uint64_t to)
{
	for (uint64_t i = from; i < to; i++)
	{
		Tuple		tuple = new_tuple(bench, i);
		CbChunk    *chunk;

		if (bench->tree.format == DIRECT)
		{
			leaf_insert(&bench->tree, tree_descend(&bench->tree, tuple.key, 0), &tuple);
			continue;
		}
		chunk = &bench->chunks[route(bench, tuple.key)];
		if (cb_chunk_room(chunk) < sizeof(Tuple))
			flush(bench, chunk);
		cb_chunk_append(chunk, &tuple, sizeof(Tuple));
	}
	for (uint32_t i = 0; i < bench->nranges && bench->tree.format != DIRECT; i++)
		flush(bench, &bench->chunks[i]);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double) t.tv_sec * 1e9 + (double) t.tv_nsec;
}

static void
run(Bench *bench)
{
	uint64_t	warm = bench->warm;
	uint64_t	n = bench->inserted;
	double		start;
	double		ns;
	Sums		found;

	insert(bench, 0, warm);
	bench->visits = 0;
	CALLGRIND_START_INSTRUMENTATION;
	start = now();
	insert(bench, warm, warm + n);
	ns = (now() - start) / (double) n;
	CALLGRIND_STOP_INSTRUMENTATION;

	for (uint64_t i = 0; i < warm + n; i++)
	{
		Tuple		tuple = new_tuple(bench, i);

		sums_add(&bench->expected, &tuple);
	}
	found = tree_check(&bench->tree);
	if (found.count != bench->expected.count || found.sum != bench->expected.sum)
		die("the tree does not hold what was inserted");
	printf("inserted=%llu ns=%.1f leaves=%llu k=%.1f\n", (unsigned long long) n, ns,
		   (unsigned long long) bench->tree.nleaves,
		   bench->visits == 0 ? 1.0 : (double) n / (double) bench->visits);
}

int
main(int argc, char **argv)
{
	static const char *const names[] = {"direct", "delta", "packed"};
	static Bench bench;
	int			format = 0;
	uint64_t	most;
	uint64_t	pool;

	while (argc == 4 && format <= PACKED && strcmp(argv[1], names[format]) != 0)
		format++;
	if (argc != 4 || format > PACKED || atoll(argv[2]) < 10000 || atoll(argv[3]) < 1)
	{
		fprintf(stderr, "usage: core_bench direct|delta|packed ENTRIES POOL-BYTES\n");
		return 2;
	}
	bench.entries = (uint64_t) atoll(argv[2]);
	pool = (uint64_t) atoll(argv[3]);
	bench.inserted = POOLFULS * pool / (sizeof(Tuple) + sizeof(CbItem));
	bench.warm = bench.inserted / WARM;
	/* all leaves half full, and inner pages */
	most = (bench.entries + bench.warm + bench.inserted) / (PAGE_ITEMS / 2) * 102 / 100 + 1000;
	tree_init(&bench.tree, (Format) format, (uint32_t) most, 0);
	bench.children = malloc(most * sizeof(Tuple));
	if (bench.children == NULL)
		die("out of memory");
	load(&bench);
	make_buckets(&bench, pool);
	tree_build_upper(&bench.tree, bench.children, bench.nchildren);
	run(&bench);
	return 0;
}
