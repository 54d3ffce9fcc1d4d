/*
 * unit.h - what the tests of src/core share: checks, and a line per test.
 */
#ifndef UNIT_H
#define UNIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef UNIT_BUILD
#define UNIT_BUILD "plain"
#endif

static atomic_int unit_failures;
static int	unit_status;

#define CHECK(condition) \
	unit_check((condition), #condition, __FILE__, __LINE__)

/* May be called by any thread; the first few failures are explained. */
static inline bool
unit_check(bool ok, const char *what, const char *file, int line)
{
	if (!ok && atomic_fetch_add(&unit_failures, 1) < 10)
		printf("# %s:%d: not true: %s\n", file, line, what);
	return ok;
}

static inline void
unit_run(const char *name, void (*test) (void))
{
	atomic_store(&unit_failures, 0);
	test();
	if (atomic_load(&unit_failures) != 0)
		unit_status = 1;
	printf("%s - %s [%s]\n", atomic_load(&unit_failures) == 0 ? "ok" : "not ok",
		   name, UNIT_BUILD);
	fflush(stdout);
}

/* xorshift: the same numbers in each run; one state a thread */
static inline uint64_t
unit_random(uint64_t *state)
{
	uint64_t	x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* a number in 0 .. n-1 */
static inline uint32_t
unit_below(uint64_t *state, uint32_t n)
{
	return (uint32_t) (unit_random(state) >> 11) % n;
}

#endif							/* UNIT_H */
