/*
 * fingers.c - HydraList's fingerprints against the product's filters: is a key
 * among entries that are in no order, and where?
 *
 *	paper_bench fingers [chunk=64|512] [memory=BYTES] [looks=N] [rounds=N]
 *
 * A bin is a chunk of src/core/cb_chunk; there are so many that most look-ups
 * find theirs in no cache but, in part, the last.  Ways to look:
 *
 *	scan			each entry in turn
 *	sorted			by the chunk's sorted order, as after a first reader
 *	filter-scan		src/core/cb_filter first, as the product does, then scan
 *	filter-sorted	the same, then sorted: the product once the chunk is sorted
 *	finger-*		one byte of each entry's hash stands in an array of its own,
 *					compared with the key's: a byte, 16 or 32 at a time; entries
 *					are compared where it is the same
 *	filter-sse2		the filter first, then finger-sse2
 *
 * Half of the keys are there; times of both halves.  Sums of the TIDs found must
 * be those of the entries.  What it costs to add an entry is printed as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "core/cb_chunk.h"
#include "core/cb_filter.h"
#include "core/cb_mix.h"
#include "paper.h"

#define MOST_ENTRIES	512
#define FILTER_PART		16		/* bytes of entries for one of their filter */
#define FINGERS			32		/* entries are a multiple */

typedef struct Bin
{
	CbChunk		chunk;
	cb_atomic64 *filter;
	uint8_t    *fingers;
} Bin;

static Bin *bins;
static uint32_t nbins;
static uint32_t nentries;		/* of each */
static uint32_t filter_lines;

static inline uint64_t
entry_key(uint32_t bin, uint32_t i)
{
	return cb_mix((uint64_t) bin * MOST_ENTRIES + i) | 1;
}

static inline uint32_t
hash_of(uint64_t key)
{
	return (uint32_t) (cb_mix(key) >> 32);
}

static inline uint8_t
finger_of(uint64_t key)
{
	return (uint8_t) cb_mix(key);
}

static inline const Tuple *
entry(const Bin *bin, uint32_t i)
{
	return cb_chunk_entry(&bin->chunk, i);
}

/* ---------- ways to look: the TID, or 0 ---------- */

static uint64_t
find_scan(const Bin *bin, uint64_t key)
{
	for (uint32_t i = 0; i < nentries; i++)
	{
		if (entry(bin, i)->key == key)
			return entry(bin, i)->tid;
	}
	return 0;
}

static int
probe(const void *entry, void *arg)
{
	return ((const Tuple *) entry)->key < *(uint64_t *) arg ? -1 : 1;
}

static uint64_t
find_sorted(const Bin *bin, uint64_t key)
{
	uint32_t	rank = cb_chunk_search(&bin->chunk, 0, nentries, false, probe, &key);
	const Tuple *tuple;

	if (rank == nentries)
		return 0;
	tuple = cb_chunk_at(&bin->chunk, cb_chunk_item(&bin->chunk, rank)->order);
	return tuple->key == key ? tuple->tid : 0;
}

static uint64_t
find_filter_scan(const Bin *bin, uint64_t key)
{
	return cb_filter_may_hold(bin->filter, filter_lines, hash_of(key)) ? find_scan(bin, key) : 0;
}

static uint64_t
find_filter_sorted(const Bin *bin, uint64_t key)
{
	return cb_filter_may_hold(bin->filter, filter_lines, hash_of(key)) ? find_sorted(bin, key) : 0;
}

static uint64_t
find_finger_scalar(const Bin *bin, uint64_t key)
{
	uint8_t		finger = finger_of(key);

	for (uint32_t i = 0; i < nentries; i++)
	{
		if (bin->fingers[i] == finger && entry(bin, i)->key == key)
			return entry(bin, i)->tid;
	}
	return 0;
}

#if defined(__x86_64__)
static inline uint64_t
find_among(const Bin *bin, uint32_t first, uint32_t mask, uint64_t key)
{
	for (; mask != 0; mask &= mask - 1)
	{
		const Tuple *tuple = entry(bin, first + (uint32_t) __builtin_ctz(mask));

		if (tuple->key == key)
			return tuple->tid;
	}
	return 0;
}

static uint64_t
find_finger_sse2(const Bin *bin, uint64_t key)
{
	__m128i		finger = _mm_set1_epi8((char) finger_of(key));

	for (uint32_t i = 0; i < nentries; i += 16)
	{
		__m128i		some = _mm_load_si128((const __m128i *) (bin->fingers + i));
		uint32_t	mask = (uint32_t) _mm_movemask_epi8(_mm_cmpeq_epi8(some, finger));
		uint64_t	tid = find_among(bin, i, mask, key);

		if (tid != 0)
			return tid;
	}
	return 0;
}

static uint64_t
find_filter_sse2(const Bin *bin, uint64_t key)
{
	return cb_filter_may_hold(bin->filter, filter_lines, hash_of(key)) ?
		find_finger_sse2(bin, key) : 0;
}

__attribute__((target("avx2"))) static uint64_t
find_finger_avx2(const Bin *bin, uint64_t key)
{
	__m256i		finger = _mm256_set1_epi8((char) finger_of(key));

	for (uint32_t i = 0; i < nentries; i += 32)
	{
		__m256i		some = _mm256_load_si256((const __m256i *) (bin->fingers + i));
		uint32_t	mask = (uint32_t) _mm256_movemask_epi8(_mm256_cmpeq_epi8(some, finger));
		uint64_t	tid = find_among(bin, i, mask, key);

		if (tid != 0)
			return tid;
	}
	return 0;
}
#endif

typedef struct Way
{
	const char *name;
	uint64_t	(*find) (const Bin *bin, uint64_t key);
	double		ns[2][MAX_ROUNDS];	/* absent, present */
} Way;

static Way ways[] = {
	{.name = "scan", .find = find_scan},
	{.name = "sorted", .find = find_sorted},
	{.name = "filter-scan", .find = find_filter_scan},
	{.name = "filter-sorted", .find = find_filter_sorted},
	{.name = "finger-scalar", .find = find_finger_scalar},
#if defined(__x86_64__)
	{.name = "finger-sse2", .find = find_finger_sse2},
	{.name = "filter-sse2", .find = find_filter_sse2},
	{.name = "finger-avx2", .find = find_finger_avx2},
#endif
};

static int
count_ways(void)
{
	int			n = (int) (sizeof(ways) / sizeof(ways[0]));

#if defined(__x86_64__)
	return __builtin_cpu_supports("avx2") ? n : n - 1;
#else
	return n;
#endif
}

/* ---------- bins ---------- */

static int
compare(const void *a, const void *b, void *arg)
{
	(void) arg;
	return tuple_compare(a, b);
}

static void
make_bins(uint64_t bytes)
{
	uint32_t	size = nentries * (uint32_t) (sizeof(Tuple) + sizeof(CbItem));
	uint32_t	distance = (size + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
	char	   *data;
	char	   *filters;
	uint8_t    *fingers;

	nbins = (uint32_t) (bytes / distance) + 1;
	filter_lines = size / (FILTER_PART * CB_FILTER_LINE_BYTES);
	data = memory_get((size_t) nbins * distance);
	filters = memory_get((size_t) nbins * filter_lines * CB_FILTER_LINE_BYTES);
	fingers = memory_get((size_t) nbins * nentries);
	bins = calloc(nbins, sizeof(Bin));
	if (bins == NULL)
		die("out of memory");
	for (uint32_t i = 0; i < nbins; i++)
	{
		bins[i].filter = (cb_atomic64 *) (filters + (size_t) i * filter_lines *
										   CB_FILTER_LINE_BYTES);
		bins[i].fingers = fingers + (size_t) i * nentries;
		cb_chunk_init(&bins[i].chunk, data + (size_t) i * distance, size);
		cb_chunk_open(&bins[i].chunk);
		cb_filter_clear(bins[i].filter, filter_lines);
	}
}

static void
add_entries(Bin *bin, uint32_t number)
{
	for (uint32_t i = 0; i < nentries; i++)
	{
		Tuple		tuple = {heap_tid(i), entry_key(number, i)};

		cb_chunk_append(&bin->chunk, &tuple, sizeof(tuple));
	}
}

static void
add_filter(Bin *bin, uint32_t number)
{
	for (uint32_t i = 0; i < nentries; i++)
		cb_filter_add(bin->filter, filter_lines, hash_of(entry_key(number, i)));
}

static void
add_fingers(Bin *bin, uint32_t number)
{
	for (uint32_t i = 0; i < nentries; i++)
		bin->fingers[i] = finger_of(entry_key(number, i));
}

static void
sort_entries(Bin *bin, uint32_t number)
{
	uint16_t	order[MOST_ENTRIES];
	uint16_t	scratch[MOST_ENTRIES];

	(void) number;
	cb_chunk_sort(&bin->chunk, nentries, order, scratch, compare, NULL);
	cb_chunk_install_order(&bin->chunk, order, nentries);
}

static void
add_to_all(const char *what, void (*add) (Bin *bin, uint32_t number))
{
	double		start = now();

	for (uint32_t i = 0; i < nbins; i++)
		add(&bins[i], i);
	printf("add=%s ns=%.2f\n", what, (now() - start) / ((double) nbins * nentries));
}

/* ---------- look-ups ---------- */

/* Seconds of n look-ups of keys that are there, or are not. */
static double
look_up(const Way *way, bool present, uint32_t n, uint64_t seed)
{
	uint64_t	wrong = 0;
	double		start = now();

	for (uint32_t j = 0; j < n; j++)
	{
		uint32_t	bin = random_below(&seed, nbins);
		uint32_t	i = random_below(&seed, nentries);
		uint64_t	key = entry_key(bin, i) ^ (present ? 0 : 1);

		wrong |= way->find(&bins[bin], key) ^ (present ? heap_tid(i) : 0);
	}
	if (wrong != 0)
		die("not the entries that were looked for");
	return (now() - start) / n;
}

int
fingers_main(void)
{
	uint32_t	looks = (uint32_t) option("looks", 100e3);
	int			rounds = (int) option("rounds", 5);
	int			n = count_ways();

	nentries = (uint32_t) option("chunk", 64);
	if (nentries > MOST_ENTRIES || nentries < 64 || nentries % FINGERS != 0)
		die("no such number of entries");
	make_bins((uint64_t) option("memory", 64 << 20));
	add_to_all("entries", add_entries);
	add_to_all("filter", add_filter);
	add_to_all("fingers", add_fingers);
	add_to_all("order", sort_entries);
	for (int round = 0; round < rounds && round < MAX_ROUNDS; round++)
	{
		for (int i = 0; i < 2 * n; i++)
		{
			int			at = (i + round) % (2 * n);

			ways[at / 2].ns[at % 2][round] = look_up(&ways[at / 2], at % 2 != 0, looks,
													 (uint64_t) round);
		}
	}
	for (int i = 0; i < n; i++)
		printf("way=%s absent=%.1f present=%.1f\n", ways[i].name,
			   median(ways[i].ns[0], rounds), median(ways[i].ns[1], rounds));
	return 0;
}
