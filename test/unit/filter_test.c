/*
 * filter_test.c - filters of hashes never deny what was added, and seldom
 * claim what was not.
 */
#include <pthread.h>

#include "core/cb_filter.h"
#include "unit.h"

#define NLINES 24
#define NHASHES 1200

static cb_atomic64 filter[NLINES * CB_FILTER_LINE_WORDS];
static uint32_t hashes[NHASHES];
static atomic_uint nadded;

static void
fill(uint64_t seed)
{
	cb_filter_clear(filter, NLINES);
	for (int i = 0; i < NHASHES; i++)
		hashes[i] = (uint32_t) unit_random(&seed);
}

static void
test_holds(void)
{
	uint64_t	seed = 17;
	int			claimed = 0;

	fill(42);
	for (int i = 0; i < NHASHES; i++)
	{
		cb_filter_add(filter, NLINES, hashes[i]);
		CHECK(cb_filter_may_hold(filter, NLINES, hashes[i]));
	}
	for (int i = 0; i < NHASHES; i++)
		CHECK(cb_filter_may_hold(filter, NLINES, hashes[i]));
	for (int i = 0; i < 100000; i++)
		claimed += cb_filter_may_hold(filter, NLINES, (uint32_t) unit_random(&seed));
	CHECK(claimed < 6000);
}

static void
test_clear(void)
{
	fill(7);
	for (int i = 0; i < NHASHES; i++)
		cb_filter_add(filter, NLINES, hashes[i]);
	cb_filter_clear(filter, NLINES);
	for (int i = 0; i < NHASHES; i++)
		CHECK(!cb_filter_may_hold(filter, NLINES, hashes[i]));
}

static void
test_extremes(void)
{
	static const uint32_t some[] = {0, 1, UINT32_MAX, UINT32_MAX - 1, 1u << 31};

	cb_filter_clear(filter, NLINES);
	for (int i = 0; i < 5; i++)
	{
		cb_filter_add(filter, NLINES, some[i]);
		cb_filter_add(filter, 1, some[i]);
		CHECK(cb_filter_may_hold(filter, NLINES, some[i]));
		CHECK(cb_filter_may_hold(filter, 1, some[i]));
	}
}

/* a reader finds what was added before it was told so */
static void *
read_added(void *arg)
{
	uint32_t	n;

	do
	{
		n = atomic_load_explicit(&nadded, memory_order_acquire);
		for (uint32_t i = 0; i < n; i++)
			CHECK(cb_filter_may_hold(filter, NLINES, hashes[i]));
	} while (n < NHASHES);
	return arg;
}

static void
test_readers(void)
{
	pthread_t	readers[2];

	fill(99);
	atomic_store(&nadded, 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&readers[i], NULL, read_added, NULL);
	for (uint32_t i = 0; i < NHASHES; i++)
	{
		cb_filter_add(filter, NLINES, hashes[i]);
		atomic_store_explicit(&nadded, i + 1, memory_order_release);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
}

int
main(void)
{
	unit_run("filter: holds what was added, claims little else", test_holds);
	unit_run("filter: clear", test_clear);
	unit_run("filter: extreme hashes and sizes", test_extremes);
	unit_run("filter: readers beside the writer", test_readers);
	return unit_status;
}
