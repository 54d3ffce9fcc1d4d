/*
 * heatmap_test.c - when blocks were accessed: ages, ageing, shared slots.
 */
#include <pthread.h>

#include "core/cb_heatmap.h"
#include "unit.h"

#define NSLOTS	(3 * CB_HEAT_SLOT_UNIT)
#define NTHREADS 4
#define ROUNDS	100000

static CbHeatMap map;
static CbHeatSlot slots[NSLOTS];
static pthread_barrier_t barrier;

static void
begin(void)
{
	cb_heatmap_init(&map, slots, NSLOTS);
}

static void
note(uint32_t block, CbHeatKind kind)
{
	cb_heatmap_note(cb_heatmap_slot(&map, 1, block), kind,
					cb_heatmap_clock(&map));
}

static uint32_t
age(uint32_t block, CbHeatKind kind)
{
	return cb_heatmap_age(cb_heatmap_slot(&map, 1, block), kind,
						  cb_heatmap_clock(&map));
}

static void
test_ages(void)
{
	begin();
	CHECK(age(7, CB_HEAT_READ) == CB_HEAT_NEVER);
	CHECK(age(7, CB_HEAT_WRITE) == CB_HEAT_NEVER);
	note(7, CB_HEAT_READ);
	CHECK(age(7, CB_HEAT_READ) == 0);
	CHECK(age(7, CB_HEAT_WRITE) == CB_HEAT_NEVER);
	CHECK(age(8, CB_HEAT_READ) == CB_HEAT_NEVER);
	cb_heatmap_advance(&map, 3);
	note(7, CB_HEAT_WRITE);
	CHECK(age(7, CB_HEAT_READ) == 3);
	CHECK(age(7, CB_HEAT_WRITE) == 0);
	note(7, CB_HEAT_READ);
	CHECK(age(7, CB_HEAT_READ) == 0);
}

static void
test_classes(void)
{
	CHECK(cb_heatmap_class(CB_HEAT_NEVER) == CB_HEAT_CLASSES - 1);
	CHECK(cb_heatmap_class_age(CB_HEAT_CLASSES - 1) == CB_HEAT_NEVER);
	for (int class = 0; class < CB_HEAT_CLASSES; class++)
	{
		uint32_t	least = cb_heatmap_class_age(class);

		CHECK(cb_heatmap_class(least) == class);
		if (class > 0)
			CHECK(cb_heatmap_class(least - 1) == class - 1);
	}
}

/* Neighbours have slots of their own, in one cache line; files are apart. */
static void
test_slots(void)
{
	int			same = 0;

	begin();
	for (uint32_t block = 0; block < 64; block++)
	{
		CbHeatSlot *slot = cb_heatmap_slot(&map, 1, block);

		CHECK(slot >= slots && slot < slots + NSLOTS);
		CHECK((slot - slots) % 16 == block % 16);
		CHECK((slot - slots) / 16 ==
			  (cb_heatmap_slot(&map, 1, block / 16 * 16) - slots) / 16);
	}
	for (uint64_t file = 2; file < 1002; file++)
		same += cb_heatmap_slot(&map, file, 0) == cb_heatmap_slot(&map, 1, 0);
	CHECK(same < 5);
}

/* An index of half the slots finds nearly all of them free of others. */
static void
test_spread(void)
{
	int			taken = 0;

	begin();
	for (uint32_t block = 0; block < NSLOTS / 2; block++)
		note(block, CB_HEAT_READ);
	for (uint32_t i = 0; i < NSLOTS; i++)
		taken += cb_load_relaxed(&slots[i].stamps[CB_HEAT_READ]) != 0;
	/* 1 - 1/sqrt(e) of all are expected */
	CHECK(taken > NSLOTS * 0.37 && taken < NSLOTS * 0.42);
}

/* Over three rounds of the stamps each age is exact, until it is "never". */
static void
test_ageing(void)
{
	static const uint32_t steps[] = {1, 7, 64, CB_HEAT_MAX_STEP};

	for (int s = 0; s < 4; s++)
	{
		uint32_t	noted = 0;

		begin();
		for (uint32_t now = 0; now < 3 * 65535; now += steps[s])
		{
			/* both ends of the table, now and then */
			if (now % 131072 < steps[s])
			{
				for (uint32_t i = 0; i < NSLOTS; i += NSLOTS - 1)
					cb_heatmap_note(&slots[i], CB_HEAT_READ, now);
				noted = now;
			}
			for (uint32_t i = 0; i < NSLOTS; i += NSLOTS - 1)
			{
				uint32_t	seen = cb_heatmap_age(&slots[i], CB_HEAT_READ, now);

				CHECK(seen == (now - noted < CB_HEAT_NEVER ? now - noted :
							   CB_HEAT_NEVER));
				CHECK(cb_heatmap_age(&slots[i], CB_HEAT_WRITE, now) ==
					  CB_HEAT_NEVER);
			}
			cb_heatmap_advance(&map, steps[s]);
			CHECK(cb_heatmap_clock(&map) == now + steps[s]);
		}
	}
}

/* Who looks with a clock that is a little behind sees no old age. */
static void
test_ahead(void)
{
	begin();
	cb_heatmap_advance(&map, 10);
	note(7, CB_HEAT_READ);
	CHECK(cb_heatmap_age(cb_heatmap_slot(&map, 1, 7), CB_HEAT_READ, 8) == 0);
}

static void
test_inherit(void)
{
	CbHeatSlot *a = cb_heatmap_slot(&map, 1, 1);
	CbHeatSlot *b = cb_heatmap_slot(&map, 1, 2);

	begin();
	note(1, CB_HEAT_READ);
	cb_heatmap_advance(&map, 5);
	note(2, CB_HEAT_WRITE);
	cb_heatmap_inherit(b, a, 5);
	CHECK(age(2, CB_HEAT_READ) == 5);
	CHECK(age(2, CB_HEAT_WRITE) == 0);
	cb_heatmap_advance(&map, 5);
	note(1, CB_HEAT_READ);
	cb_heatmap_inherit(a, b, 10);
	CHECK(age(1, CB_HEAT_READ) == 0);
	CHECK(age(1, CB_HEAT_WRITE) == 5);
	CHECK(age(2, CB_HEAT_READ) == 10);
}

/*
 * Notes its own slot and one of all, and moves the clock now and then.  Nobody
 * falls behind by as many epochs as a clock may.
 */
static void *
note_and_advance(void *arg)
{
	uint32_t	me = (uint32_t) (intptr_t) arg;
	uint64_t	random = 1234567 + me * 7919;

	for (int i = 0; i < ROUNDS; i++)
	{
		if (i % (CB_HEAT_MAX_STEP / 4) == 0)
			pthread_barrier_wait(&barrier);
		note(me, CB_HEAT_READ);
		note(100, CB_HEAT_WRITE);
		if (unit_below(&random, 4) == 0)
			cb_heatmap_advance(&map, 1);
		CHECK(age(me, CB_HEAT_READ) < CB_HEAT_NEVER);
		CHECK(age(100, CB_HEAT_WRITE) < CB_HEAT_NEVER);
		cb_heatmap_inherit(cb_heatmap_slot(&map, 1, 200 + me),
						   cb_heatmap_slot(&map, 1, 100),
						   cb_heatmap_clock(&map));
	}
	return NULL;
}

/* What is noted all the time is never taken for old, however the clock goes. */
static void
test_together(void)
{
	pthread_t	threads[NTHREADS];

	begin();
	pthread_barrier_init(&barrier, NULL, NTHREADS);
	for (intptr_t i = 0; i < NTHREADS; i++)
		pthread_create(&threads[i], NULL, note_and_advance, (void *) i);
	for (int i = 0; i < NTHREADS; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&barrier);
	CHECK(cb_heatmap_clock(&map) > 65535);
	for (uint32_t i = 0; i < CB_HEAT_SWEEP_EPOCHS + CB_HEAT_NEVER; i++)
		cb_heatmap_advance(&map, 1);
	for (uint32_t i = 0; i < NSLOTS; i++)
	{
		CHECK(cb_load_relaxed(&slots[i].stamps[CB_HEAT_READ]) == 0);
		CHECK(cb_load_relaxed(&slots[i].stamps[CB_HEAT_WRITE]) == 0);
	}
}

int
main(void)
{
	unit_run("heatmap: ages of reads and writes", test_ages);
	unit_run("heatmap: classes", test_classes);
	unit_run("heatmap: slots", test_slots);
	unit_run("heatmap: slots are spread", test_spread);
	unit_run("heatmap: ageing", test_ageing);
	unit_run("heatmap: a clock that is behind", test_ahead);
	unit_run("heatmap: inheritance", test_inherit);
	unit_run("heatmap: several at once", test_together);
	return unit_status;
}
