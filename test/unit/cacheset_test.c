/*
 * cacheset_test.c - cached entries: what is found, what is replaced, what is torn.
 */
#include <pthread.h>

#include "core/cb_changes.h"
#include "core/cb_cacheset.h"
#include "unit.h"

#define NLINES	4
#define NCOUNTS	64
#define NTHREADS 4
#define ROUNDS	200000

static CbCacheSet set;
static CbCacheLine lines[NLINES];
static CbChanges changes;
static cb_atomic64 counts[NCOUNTS];
static pthread_barrier_t barrier;

static void
begin(uint32_t nlines)
{
	cb_cacheset_init(&set, lines, nlines);
	cb_changes_init(&changes, counts, NCOUNTS);
}

static void
put(uint32_t owner, uint32_t hash, uint32_t block, uint64_t data)
{
	CbCacheItem	item = {owner, hash, block, cb_changes_count(&changes, 1, block), {data, ~data, data}};

	cb_cacheset_put(&set, &item);
}

/* What was put with owner and hash, 0: nothing that is good still. */
static uint64_t
get(uint32_t owner, uint32_t hash)
{
	CbCacheItem	item;

	if (!cb_cacheset_find(&set, owner, hash, &item) ||
		cb_changes_count(&changes, 1, item.block) != item.changes)
		return 0;
	CHECK(item.owner == owner && item.hash == hash);
	CHECK(item.data[1] == ~item.data[0] && item.data[2] == item.data[0]);
	return item.data[0];
}

static void
test_find(void)
{
	begin(NLINES);
	CHECK(get(1, 7) == 0);
	put(1, 7, 3, 70);
	CHECK(get(1, 7) == 70);
	CHECK(get(2, 7) == 0);
	CHECK(get(1, 8) == 0);
	put(1, 7, 3, 71);
	CHECK(get(1, 7) == 71);
	cb_cacheset_remove(&set, 1, 7);
	CHECK(get(1, 7) == 0);
	put(1, 0, 0, 5);
	CHECK(get(1, 0) == 5);
	put(UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX);
	CHECK(get(UINT32_MAX, UINT32_MAX) == UINT64_MAX);
}

static void
test_changes(void)
{
	begin(NLINES);
	put(1, 7, 3, 70);
	cb_changes_note(&changes, 1, 3);
	CHECK(get(1, 7) == 0);
	put(1, 7, 3, 71);
	CHECK(get(1, 7) == 71);

	/* counts have more than 32 bits */
	for (int i = 0; i < NCOUNTS; i++)
		cb_store_relaxed(&counts[i], UINT64_C(0xffffffff));
	put(1, 7, 3, 73);
	CHECK(get(1, 7) == 73);
	cb_changes_note(&changes, 1, 3);
	CHECK(get(1, 7) == 0);
	put(1, 7, 3, 74);
	CHECK(get(1, 7) == 74);
	for (int i = 0; i < NCOUNTS; i++)
		cb_store_relaxed(&counts[i], 0);
	CHECK(get(1, 7) == 0);
}

/* What is found stays, and what is not makes room. */
static void
test_replacement(void)
{
	begin(1);
	for (uint32_t i = 1; i <= CB_CACHESET_WAYS; i++)
		put(1, i, i, i);
	for (uint32_t i = 1; i <= CB_CACHESET_WAYS; i++)
		CHECK(get(1, i) == i);
	put(1, 100, 1, 100);
	CHECK(get(1, 100) == 100);
	CHECK(get(1, 2) == 2);
	for (uint32_t i = 200; i < 220; i++)
	{
		put(1, i, i, i);
		CHECK(get(1, 2) == 2);
	}
}

/* Threads change leaves, and put and find entries of few lines. */
static void *
run_thread(void *arg)
{
	uint32_t	self = (uint32_t) (uintptr_t) arg;
	uint64_t	x = self + 1;
	uint64_t	nfound = 0;

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < ROUNDS; i++)
	{
		uint32_t	hash;

		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		hash = (x >> 40) % 24;
		switch ((x >> 33) % 8)
		{
			case 0:
				put(1, hash, hash, x | 1);
				break;
			case 1:
				if (i % 16 == 0)
					cb_changes_note(&changes, 1, hash);
				break;
			case 2:
				if (i % 64 == 0)
					cb_cacheset_remove(&set, 1, hash);
				break;
			default:
				nfound += get(1, hash) != 0;
		}
	}
	CHECK(nfound > 0);
	return NULL;
}

static void
test_threads(void)
{
	pthread_t	threads[NTHREADS];

	begin(NLINES);
	pthread_barrier_init(&barrier, NULL, NTHREADS);
	for (uintptr_t i = 0; i < NTHREADS; i++)
		pthread_create(&threads[i], NULL, run_thread, (void *) i);
	for (int i = 0; i < NTHREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
}

int
main(void)
{
	unit_run("what was put in is found", test_find);
	unit_run("not if its leaf has changed", test_changes);
	unit_run("what was found stays longer", test_replacement);
	unit_run("threads find whole entries", test_threads);
	return unit_status;
}
