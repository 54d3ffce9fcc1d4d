/*
 * paper.h - what the programs of test/bench/paper share: arguments, random
 * numbers, time, and which part callgrind counts.
 *
 * One thread, no errors: what must not be ends the program.
 */
#ifndef BENCH_PAPER_H
#define BENCH_PAPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "tree.h"

#define LINE_BYTES	64
#define MAX_ROUNDS	15

/* The value of NAME=VALUE among the arguments, or this one. */
extern double option(const char *name, double otherwise);
extern const char *option_text(const char *name, const char *otherwise);

/* Is this one of those that METHODS=A,B,... names?  All are, without it. */
extern bool option_has(const char *method);

/* ns of CPU time of this process */
extern double now(void);
extern double median(double *values, int n);

/*
 * From count_begin() on callgrind simulates the caches, and it counts between
 * count_on() and count_off().
 */
extern void count_begin(void);
extern void count_on(void);
extern void count_off(void);

/* Memory in small pages, as the server's by default; not yet touched. */
extern void *memory_get(size_t size);

static inline uint64_t
next_random(uint64_t *state)
{
	*state += UINT64_C(0x9E3779B97F4A7C15);
	return mix(*state);
}

/* below n, which has 32 bits */
static inline uint32_t
random_below(uint64_t *state, uint32_t n)
{
	return (uint32_t) ((next_random(state) >> 32) * n >> 32);
}

extern int	buckets_main(void);
extern int	lookup_main(void);
extern int	leaves_main(void);
extern int	fingers_main(void);
extern int	place_main(void);

#endif							/* BENCH_PAPER_H */
