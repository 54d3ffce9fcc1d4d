/*
 * buckets.c - the experiment of Chang's thesis (2017): updates of records in
 * memory buckets, one by one or by way of cache-buckets.
 *
 *	paper_bench buckets [NAME=VALUE...]
 *		scale		of the thesis's numbers of cache-buckets and memory buckets;
 *					1: 12.8 MB of cache-buckets, for its cache of 15 MB
 *		r, a, m		bytes of a request, which a record has as well; of a memory
 *					bucket; thousands of memory buckets, 200 to 800
 *		clustered	1: 800 thousand of them, of which m thousand are in use at a
 *					time; others after every PERIOD rounds
 *		rounds, requests	so many rounds, each of so many times what the
 *					cache-buckets of "few" hold
 *		methods		of the names below
 *		base		1: nothing is done to memory buckets; what the rest costs
 *		way, part	bytes of one way of the cache, and how many of them the
 *					cache-buckets have for themselves (page colouring); 0: none
 *
 * The product's are the cache-buckets, chunks of src/core/cb_chunk, and the
 * model, src/core/cb_model.  Memory buckets, their locks and the search in them
 * are made here after the thesis: the product has leaves in their place.
 *
 * A search compares all records of a bucket, without a branch for each, so that
 * an update reads a bytes, as the model has it.  Entries are applied in the order
 * in which they came, as there: what a chunk leads to stays in the nearest
 * caches.  Lines of memory buckets are fetched AHEAD, but for "plain".
 *
 * Each method has the same requests in turn in each round.  At the end the sum of
 * all records is compared with that of the requests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cb_atomic.h"
#include "core/cb_chunk.h"
#include "core/cb_model.h"
#include "paper.h"

#define FEW_BUCKETS 12500		/* the thesis's cache-buckets, of 1 kB */
#define UNITS		4			/* of a cache-bucket of 1 kB: many x small */
#define UNIT_MOST	16			/* memory buckets of a unit */
#define NLOCKS		4096		/* of memory buckets */
#define AHEAD		8			/* entries */
#define PERIOD		4			/* rounds */
#define MAX_REQUEST 32

typedef struct Request
{
	uint32_t	key;			/* bucket * records of a bucket + place */
	uint32_t	value;
	char		rest[MAX_REQUEST - 8];
} Request;

/* a line, which foreground and flush both write */
typedef struct CacheBucket
{
	_Alignas(LINE_BYTES) CbChunk chunk;
	cb_atomic32 lock;
} CacheBucket;

_Static_assert(sizeof(CacheBucket) == LINE_BYTES, "a cache-bucket's header has one line");

typedef struct Method
{
	const char *name;
	uint32_t	bytes;			/* of a cache-bucket; 0: there are none */
	int			shift;			/* from a unit to its cache-bucket */
	bool		ahead;
	uint32_t	n;				/* cache-buckets */
	CacheBucket *buckets;
	uint64_t	applied;
	uint64_t	visits;			/* memory buckets that a flush came to */
	double		ns[MAX_ROUNDS];
} Method;

static Method methods[] = {
	{.name = "direct"},
	{.name = "few", .bytes = 1024, .shift = 2, .ahead = true},
	{.name = "plain", .bytes = 1024, .shift = 2},
	{.name = "middle", .bytes = 512, .shift = 1, .ahead = true},
	{.name = "many", .bytes = 256, .shift = 0, .ahead = true}
};

#define NMETHODS	((int) (sizeof(methods) / sizeof(methods[0])))

static uint32_t request_bytes;
static uint32_t bucket_bytes;
static uint32_t per_bucket;		/* records */
static uint32_t nunits;
static uint32_t unit_buckets;	/* memory buckets of a unit */
static uint32_t unit_active;	/* of which so many are in use */
static bool base_only;
static char *memory;
static uint64_t way;
static uint64_t part;
static cb_atomic32 locks[NLOCKS];
static uint32_t expected;		/* sum of the values, of 32 bits */

/* ---------- memory ---------- */

/* Where byte o of what has these bytes of each way is. */
static inline char *
coloured(uint64_t o, uint64_t first, uint64_t bytes)
{
	return memory + o / bytes * way + first + o % bytes;
}

static inline char *
memory_bucket(uint32_t bucket)
{
	uint64_t	o = (uint64_t) bucket * bucket_bytes;

	return way == 0 ? memory + o : coloured(o, part, way - part);
}

/* Memory for the next chunk, of bytes that divide a page. */
static char *
chunk_data(uint32_t bytes)
{
	static uint64_t given;
	static char *rest;
	static uint64_t left;

	given += bytes;
	if (way != 0)
		return coloured(given - bytes, 0, part);
	if (left < bytes)
	{
		left = (uint64_t) nunits * (1024 / UNITS);
		rest = memory_get(left);
	}
	left -= bytes;
	rest += bytes;
	return rest - bytes;
}

static void
make_cache_buckets(Method *method)
{

	if (method->bytes == 0)
		return;
	method->n = nunits >> method->shift;
	method->buckets = aligned_alloc(LINE_BYTES, (size_t) method->n * sizeof(CacheBucket));
	if (method->buckets == NULL)
		die("out of memory");
	for (uint32_t i = 0; i < method->n; i++)
	{
		char	   *at = chunk_data(method->bytes);

		memset(at, 0, method->bytes);
		cb_chunk_init(&method->buckets[i].chunk, at, method->bytes);
		cb_chunk_open(&method->buckets[i].chunk);
		atomic_init(&method->buckets[i].lock, 0);
	}
}

static void
make_memory_buckets(void)
{
	uint32_t	n = nunits * unit_buckets;
	uint64_t	size = (uint64_t) n * bucket_bytes;

	/* in colours, the cache-buckets of all methods lie between them */
	if (way != 0)
		size = (size / (way - part) + (uint64_t) nunits * 1024 / part + 2) * way;
	memory = memory_get(size + way);
	if (way != 0)
		memory += way - (uintptr_t) memory % way;
	for (uint32_t bucket = 0; bucket < n; bucket++)
	{
		char	   *records = memory_bucket(bucket);

		memset(records, 0, bucket_bytes);
		for (uint32_t i = 0; i < per_bucket; i++)
			((Request *) (records + i * request_bytes))->key = bucket * per_bucket + i;
	}
}

/* ---------- updates ---------- */

static inline void
lock(cb_atomic32 *its)
{
	uint32_t	nobody = 0;

	while (!cb_swap_if(its, &nobody, 1))
		nobody = 0;
}

static inline void
unlock(cb_atomic32 *its)
{
	cb_store_release(its, 0);
}

static inline void
update(uint32_t key, uint32_t value)
{
	char	   *records = memory_bucket(key / per_bucket);
	uint32_t	found = 0;

	for (uint32_t o = 0; o < bucket_bytes; o += request_bytes)
		found = *(uint32_t *) (records + o) == key ? o : found;
	((uint32_t *) (records + found))[1] += value;
}

/* Inlined: gcc 12 drops calls of a function that does nothing but prefetch. */
static inline __attribute__((always_inline)) void
fetch(uint32_t key)
{
	const char *records = memory_bucket(key / per_bucket);

	for (uint32_t o = 0; o < bucket_bytes; o += LINE_BYTES)
		__builtin_prefetch(records + o, 1);
}

static void
flush(Method *method, CacheBucket *bucket)
{
	CbChunk    *chunk = &bucket->chunk;
	uint32_t	group = unit_buckets << method->shift;
	uint32_t	first = (uint32_t) (bucket - method->buckets) * group;
	uint32_t	n = cb_chunk_count(chunk);
	uint64_t	seen = 0;

	cb_chunk_set_state(chunk, CB_CHUNK_SEALED);
	cb_chunk_set_state(chunk, CB_CHUNK_FLUSHING);
	for (uint32_t i = 0; i < n && !base_only; i++)
	{
		const Request *request = cb_chunk_entry(chunk, i);

		if (method->ahead && i + AHEAD < n)
			fetch(((const Request *) cb_chunk_entry(chunk, i + AHEAD))->key);
		seen |= UINT64_C(1) << (request->key / per_bucket - first);
		update(request->key, request->value);
	}
	method->applied += n;
	method->visits += (uint64_t) __builtin_popcountll(seen);
	cb_chunk_set_state(chunk, CB_CHUNK_RETIRED);
	(void) cb_chunk_release(chunk);
	cb_chunk_set_state(chunk, CB_CHUNK_FREE);
	cb_chunk_open(chunk);
}

static void
update_direct(const Request *request, uint32_t bucket)
{
	cb_atomic32 *its = &locks[bucket % NLOCKS];

	lock(its);
	if (!base_only)
		update(request->key, request->value);
	unlock(its);
}

static void
update_buffered(Method *method, const Request *request, uint32_t unit)
{
	CacheBucket *bucket = &method->buckets[unit >> method->shift];

	lock(&bucket->lock);
	if (cb_chunk_room(&bucket->chunk) < request_bytes)
		flush(method, bucket);
	cb_chunk_append(&bucket->chunk, request, request_bytes);
	unlock(&bucket->lock);
}

/* ---------- rounds ---------- */

/*
 * Which memory bucket of a unit comes first among those in use: another one in
 * each unit, as places that are the same in all would share few sets of a cache.
 */
static inline uint32_t
first_active(uint32_t unit, uint32_t period)
{
	return (uint32_t) ((uint64_t) ((unit + period) * UINT32_C(2654435761)) * unit_buckets >> 32);
}

/* The n requests of a round, which are the same for each method. */
static void
run_requests(Method *method, int round, uint64_t n)
{
	uint32_t	period = (uint32_t) mix((uint64_t) (round / PERIOD));
	uint64_t	seed = mix((uint64_t) round + 1);
	Request		request = {0};

	for (uint64_t i = 0; i < n; i++)
	{
		uint32_t	unit = random_below(&seed, nunits);
		uint64_t	random = next_random(&seed);
		uint32_t	place = first_active(unit, period) +
			(uint32_t) ((random & UINT32_MAX) * unit_active >> 32);
		uint32_t	bucket;

		place -= place >= unit_buckets ? unit_buckets : 0;
		bucket = unit * unit_buckets + place;
		request.key = bucket * per_bucket + ((uint32_t) (random >> 32) & (per_bucket - 1));
		request.value = (uint32_t) (random >> 40);
		expected += request.value;
		if (method->bytes == 0)
			update_direct(&request, bucket);
		else
			update_buffered(method, &request, unit);
	}
}

/* Every method once, another one first each time. */
static void
run_round(int round, uint64_t n)
{
	for (int i = 0; i < NMETHODS; i++)
	{
		Method	   *method = &methods[(i + round) % NMETHODS];
		double		start = now();

		if (!option_has(method->name))
			continue;
		run_requests(method, round, n);
		if (round > 0)
			method->ns[round - 1] = (now() - start) / (double) n;
		else
			method->applied = method->visits = 0;
	}
}

/* All records together have what was added to them. */
static void
check(void)
{
	uint32_t	sum = 0;

	for (int i = 0; i < NMETHODS; i++)
	{
		for (uint32_t j = 0; j < methods[i].n; j++)
			flush(&methods[i], &methods[i].buckets[j]);
	}
	for (uint32_t bucket = 0; bucket < nunits * unit_buckets; bucket++)
	{
		for (uint32_t i = 0; i < per_bucket; i++)
			sum += ((Request *) (memory_bucket(bucket) + i * request_bytes))->value;
	}
	if (!base_only && sum != expected)
		die("records do not have what was added to them");
}

static void
print_method(Method *method, int rounds, double k)
{
	CbModelInput in = {
		.leaves = (double) nunits * unit_active, .leaf_bytes = bucket_bytes,
		.entry_bytes = request_bytes + sizeof(CbItem), .period = 1, .stagger = 1,
		.buckets = method->n, .pool_bytes = (double) method->n * method->bytes
	};
	CbModelResult out;

	printf("method=%s ns=%.2f", method->name, median(method->ns, rounds));
	if (method->bytes != 0)
	{
		cb_model_compute(&in, &out);
		printf(" k=%.4f model_k=%.4f model_mc=%.4f model_mr=%.4f", k,
			   out.entries_per_visit, out.miss_batched, out.miss_ratio);
	}
	printf("\n");
}

/* The numbers of units, and of memory buckets of each. */
static void
shape(void)
{
	uint32_t	few = (uint32_t) (FEW_BUCKETS * option("scale", 1) + 0.5);

	request_bytes = (uint32_t) option("r", 16);
	bucket_bytes = (uint32_t) option("a", 512);
	per_bucket = bucket_bytes / request_bytes;
	nunits = (few < 1 ? 1 : few) * UNITS;
	unit_active = (uint32_t) option("m", 400) * 1000 / (FEW_BUCKETS * UNITS);
	unit_buckets = option("clustered", 0) != 0 ? UNIT_MOST : unit_active;
	base_only = option("base", 0) != 0;
	way = (uint64_t) option("way", 0);
	part = (uint64_t) option("part", 0);
	if (request_bytes < 8 || request_bytes > MAX_REQUEST || per_bucket == 0 ||
		(per_bucket & (per_bucket - 1)) != 0 || unit_active < 1 ||
		unit_active > UNIT_MOST || (way != 0 && (part == 0 || part >= way)))
		die("no such case");
}

int
buckets_main(void)
{
	int			rounds = (int) option("rounds", 4);
	double		k[NMETHODS];
	uint64_t	n;

	if (rounds < 1 || rounds > MAX_ROUNDS)
		die("no such number of rounds");
	shape();
	make_memory_buckets();
	for (int i = 0; i < NMETHODS; i++)
	{
		if (option_has(methods[i].name))
			make_cache_buckets(&methods[i]);
	}
	n = (uint64_t) (option("requests", 1) * nunits / UNITS *
					(1024 / (request_bytes + sizeof(CbItem))));
	count_begin();
	run_round(0, n);
	count_on();
	for (int round = 1; round <= rounds; round++)
		run_round(round, n);
	count_off();
	for (int i = 0; i < NMETHODS; i++)
		k[i] = methods[i].visits == 0 ? 0 :
			(double) methods[i].applied / (double) methods[i].visits;
	check();
	printf("requests=%llu\n", (unsigned long long) n * (unsigned) rounds);
	for (int i = 0; i < NMETHODS; i++)
	{
		if (option_has(methods[i].name))
			print_method(&methods[i], rounds, k[i]);
	}
	return 0;
}
