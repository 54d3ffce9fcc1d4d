/*
 * radix_test.c - the radix sort against a comparing one.
 */
#include "core/cb_radix.h"
#include "unit.h"

#define MAX_ITEMS 70000

static CbRadixItem items[MAX_ITEMS];
static CbRadixItem scratch[MAX_ITEMS];
static CbRadixItem expected[MAX_ITEMS];
static uint64_t seed = 88172645463325252u;

static int
compare_items(const void *a, const void *b)
{
	const CbRadixItem *x = a;
	const CbRadixItem *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return (x->value > y->value) - (x->value < y->value);
}

/* Sorts keys masked with mask, shifted; the values say where each was. */
static void
check_sort(size_t n, uint64_t mask, int shift)
{
	for (size_t i = 0; i < n; i++)
	{
		items[i].key = (unit_random(&seed) & mask) << shift;
		items[i].value = i;
	}
	memcpy(expected, items, n * sizeof(CbRadixItem));
	qsort(expected, n, sizeof(CbRadixItem), compare_items);
	cb_radix_sort(items, scratch, n);
	CHECK(memcmp(items, expected, n * sizeof(CbRadixItem)) == 0);
}

static const size_t sizes[] = {0, 1, 2, 3, 31, 32, 33, 34, 255, 256, 257, 4096, 13000};

#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

static void
test_random(void)
{
	for (size_t s = 0; s < NSIZES; s++)
		check_sort(sizes[s], UINT64_MAX, 0);
	check_sort(MAX_ITEMS, UINT64_MAX, 0);
}

/* Each digit alone, so an odd and an even number of passes; and no digit. */
static void
test_uniform_digits(void)
{
	for (size_t s = 0; s < NSIZES; s++)
	{
		for (int shift = 0; shift < 64; shift += 8)
			check_sort(sizes[s], 0xff, shift);
		check_sort(sizes[s], 0xff00ff, 13);
		check_sort(sizes[s], 0, 0);
	}
}

/* Few values in the highest digits, so that those below decide. */
static void
test_groups(void)
{
	for (size_t s = 0; s < NSIZES; s++)
	{
		check_sort(sizes[s], UINT64_C(0x800000000000ffff), 0);
		check_sort(sizes[s], UINT64_C(0x0100010001000103), 3);
		check_sort(sizes[s], UINT64_C(0x0300ffffff), 8);
	}
}

/* Many equal keys: they keep their order. */
static void
test_stable(void)
{
	for (size_t s = 0; s < NSIZES; s++)
	{
		check_sort(sizes[s], 1, 0);
		check_sort(sizes[s], 7, 31);
		check_sort(sizes[s], UINT64_C(0x8000000000000001), 0);
	}
}

/* A digit in which one key alone differs is no uniform one. */
static void
test_one_differs(void)
{
	for (int shift = 0; shift < 64; shift += 8)
	{
		for (uint64_t i = 0; i < 100; i++)
		{
			items[i].key = UINT64_C(0x0505050505050505);
			items[i].value = i;
		}
		items[50 + shift / 8].key -= UINT64_C(1) << shift;
		cb_radix_sort(items, scratch, 100);
		CHECK(items[0].value == 50 + (uint64_t) shift / 8);
		CHECK(items[1].value == 0 && items[99].value == 99);
	}
}

static void
test_ends(void)
{
	for (uint64_t i = 0; i < 100; i++)
	{
		items[i].key = i % 2 ? UINT64_MAX - i : i;
		items[i].value = i;
	}
	memcpy(expected, items, sizeof(items));
	qsort(expected, 100, sizeof(CbRadixItem), compare_items);
	cb_radix_sort(items, scratch, 100);
	CHECK(memcmp(items, expected, 100 * sizeof(CbRadixItem)) == 0);
}

int
main(void)
{
	unit_run("radix: random keys", test_random);
	unit_run("radix: digits that all share", test_uniform_digits);
	unit_run("radix: few values above many", test_groups);
	unit_run("radix: stable", test_stable);
	unit_run("radix: one key that differs", test_one_differs);
	unit_run("radix: least and greatest keys", test_ends);
	return unit_status;
}
