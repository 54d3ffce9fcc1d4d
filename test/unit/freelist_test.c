/*
 * freelist_test.c - the free list, alone and by several threads.
 */
#include <pthread.h>

#include "core/cb_freelist.h"
#include "unit.h"

#define NTHREADS 4
#define MAX_NUMBERS 64
#define ROUNDS 300000
#define HELD 8

static CbFreeList list;
static cb_atomic32 links[MAX_NUMBERS];
static int	holder[MAX_NUMBERS];	/* not atomic: the list orders accesses */
static uint32_t nnumbers;
static pthread_barrier_t barrier;

static void
test_alone(void)
{
	cb_freelist_init(&list, links, 10);
	CHECK(cb_freelist_count(&list) == 10);
	for (uint32_t i = 0; i < 10; i++)
		CHECK(cb_freelist_pop(&list) == i);
	CHECK(cb_freelist_pop(&list) == CB_FREELIST_NONE);
	CHECK(cb_freelist_count(&list) == 0);
	cb_freelist_push(&list, 7);
	cb_freelist_push(&list, 3);
	CHECK(cb_freelist_count(&list) == 2);
	CHECK(cb_freelist_pop(&list) == 3);
	CHECK(cb_freelist_pop(&list) == 7);
	CHECK(cb_freelist_pop(&list) == CB_FREELIST_NONE);
}

static void
test_empty(void)
{
	cb_freelist_init(&list, links, 0);
	CHECK(cb_freelist_count(&list) == 0);
	CHECK(cb_freelist_pop(&list) == CB_FREELIST_NONE);
	cb_freelist_init(&list, links, 1);
	CHECK(cb_freelist_pop(&list) == 0);
	CHECK(cb_freelist_pop(&list) == CB_FREELIST_NONE);
}

/* A head that came back is not taken for one that stayed. */
static void
test_tag(void)
{
	uint64_t	head;

	cb_freelist_init(&list, links, 3);
	head = cb_load_acquire(&list.head);
	CHECK(cb_freelist_pop(&list) == 0);
	CHECK(cb_freelist_pop(&list) == 1);
	cb_freelist_push(&list, 0);
	CHECK((uint32_t) cb_load_acquire(&list.head) == (uint32_t) head);
	CHECK(!cb_swap_if(&list.head, &head, head));
}

/* Takes and gives numbers back; each one that is held has one holder. */
static void *
take_and_give(void *arg)
{
	int			me = (int) (intptr_t) arg;
	uint64_t	random = 1234567 + (uint64_t) me * 7919;
	uint32_t	held[HELD];
	int			nheld = 0;

	pthread_barrier_wait(&barrier);
	for (int i = 0; i < ROUNDS; i++)
	{
		uint32_t	number;

		if (nheld < HELD && unit_below(&random, 2) == 0 &&
			(number = cb_freelist_pop(&list)) != CB_FREELIST_NONE)
		{
			if (!CHECK(number < nnumbers) || !CHECK(holder[number] == 0))
				return NULL;
			holder[number] = me;
			held[nheld++] = number;
		}
		else if (nheld > 0)
		{
			number = held[--nheld];
			CHECK(holder[number] == me);
			holder[number] = 0;
			cb_freelist_push(&list, number);
		}
		CHECK(cb_freelist_count(&list) <= nnumbers + NTHREADS);
	}
	while (nheld > 0)
	{
		holder[held[--nheld]] = 0;
		cb_freelist_push(&list, held[nheld]);
	}
	return NULL;
}

static void
check_threads(uint32_t n)
{
	pthread_t	threads[NTHREADS];
	bool		seen[MAX_NUMBERS] = {false};

	nnumbers = n;
	memset(holder, 0, sizeof(holder));
	cb_freelist_init(&list, links, n);
	pthread_barrier_init(&barrier, NULL, NTHREADS);
	for (int i = 0; i < NTHREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, take_and_give,
							 (void *) (intptr_t) (i + 1)) == 0);
	for (int i = 0; i < NTHREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);

	CHECK(cb_freelist_count(&list) == n);
	for (uint32_t i = 0; i < n; i++)
	{
		uint32_t	number = cb_freelist_pop(&list);

		if (CHECK(number < n))
		{
			CHECK(!seen[number]);
			seen[number] = true;
		}
	}
	CHECK(cb_freelist_pop(&list) == CB_FREELIST_NONE);
}

static void
test_threads_few(void)
{
	check_threads(2);
	check_threads(3);
}

static void
test_threads_many(void)
{
	check_threads(MAX_NUMBERS);
}

int
main(void)
{
	unit_run("freelist: last in, first out", test_alone);
	unit_run("freelist: none and one", test_empty);
	unit_run("freelist: the tag tells heads apart", test_tag);
	unit_run("freelist: threads that contend for 2 and 3", test_threads_few);
	unit_run("freelist: threads with 64", test_threads_many);
	return unit_status;
}
