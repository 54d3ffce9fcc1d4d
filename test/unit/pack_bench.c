/*
 * pack_bench.c - sizes and times of packed leaves: for each shape, what a leaf
 * of 8 kB holds, bytes an entry beside a plain tuple's, and nanoseconds an
 * entry to encode, to read in order and at random, and to remove one in ten.
 */
#include <time.h>

#include "core/cb_pack.h"
#include "pack_shapes.h"
#include "unit.h"

#define LEAF 8120				/* room for one item on a page */
#define TUPLE 12				/* header and line pointer of a plain tuple */
#define ROUNDS 400
#define REPEATS 5

static uint64_t blob[CB_PACK_MAX_LEN / 8];
static uint64_t rest[CB_PACK_MAX_LEN / 8];
static uint64_t body[CB_PACK_MAX_BODY / 8];
static PackSet set;
static uint64_t seed = 88172645463325252u;
static uint64_t sum;			/* so that reads are not optimised away */

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static double
time_encode(size_t len, int n, int rounds)
{
	double		start = now();

	for (int r = 0; r < rounds; r++)
		sum += cb_pack_encode(set.entries, n, blob, LEAF) - len;
	return (now() - start) / rounds / n;
}

static double
time_read(size_t len, int n, int rounds)
{
	double		start = now();

	for (int r = 0; r < rounds; r++)
	{
		CbPackReader reader;
		CbPackEntry entry;

		cb_pack_open(&reader, blob, len);
		for (int i = 0; i < n; i++)
		{
			cb_pack_read(&reader, i, &entry, body);
			sum += entry.tid + body[0];
		}
	}
	return (now() - start) / rounds / n;
}

static double
time_random(size_t len, int n, int rounds)
{
	static int	places[1024];
	CbPackReader reader;
	CbPackEntry entry;
	double		start;

	for (int i = 0; i < 1024; i++)
		places[i] = (int) unit_below(&seed, (uint32_t) n);
	cb_pack_open(&reader, blob, len);
	start = now();
	for (int r = 0; r < rounds; r++)
	{
		for (int i = 0; i < 1024; i++)
		{
			cb_pack_read(&reader, places[i], &entry, body);
			sum += entry.tid + body[0];
		}
	}
	return (now() - start) / rounds / 1024;
}

static double
time_delete(size_t len, int n, int rounds)
{
	uint16_t	gone[CB_PACK_MAX_ENTRIES];
	int			ngone = 0;
	double		start;

	for (int i = 0; i < n; i += 10)
		gone[ngone++] = (uint16_t) i;
	start = now();
	for (int r = 0; r < rounds; r++)
		sum += cb_pack_delete(blob, len, gone, ngone, rest);
	return (now() - start) / rounds / n;
}

typedef double (*timer) (size_t len, int n, int rounds);

/* the least of several times: others use the machine too */
static double
least(timer measure, size_t len, int n, int rounds)
{
	double		best = measure(len, n, rounds);

	for (int i = 1; i < REPEATS; i++)
	{
		double		next = measure(len, n, rounds);

		best = next < best ? next : best;
	}
	return best;
}

static void
bench(PackShape shape)
{
	int			n = CB_PACK_MAX_ENTRIES;
	int			rounds;
	size_t		len;
	double		plain = 0;
	CbPackReader reader;

	pack_make(&set, shape, n, &seed);
	while (n > 0 && (len = cb_pack_encode(set.entries, n, blob, LEAF)) == 0)
		n--;
	for (int i = 0; i < n; i++)
		plain += set.entries[i].len + TUPLE;
	rounds = ROUNDS * 1000 / (n + 100);
	rounds = rounds > 2000 ? 2000 : rounds;
	sum += cb_pack_open(&reader, blob, len);
	printf("%-17s %5d %7.2f %7.2f %4.0f%% %7.2f %7.2f %7.2f %7.2f\n",
		   pack_shape_names[shape], n, (double) len / n, plain / n,
		   100 * len / plain, least(time_encode, len, n, rounds),
		   least(time_read, len, n, rounds), least(time_random, len, n, rounds),
		   least(time_delete, len, n, rounds));
	fflush(stdout);
}

/* pack_bench [SHAPE]: one shape, by its number, or all */
int
main(int argc, char **argv)
{
	printf("%-17s %5s %7s %7s %5s %7s %7s %7s %7s\n", "shape", "n", "bytes",
		   "plain", "", "encode", "read", "random", "delete");
	for (int shape = 0; shape < PACK_NSHAPES; shape++)
	{
		if (argc < 2 || atoi(argv[1]) == shape)
			bench((PackShape) shape);
	}
	return sum == 1;
}
