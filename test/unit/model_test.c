/*
 * model_test.c - the model against values computed by hand and measured, on
 * its source's grid, and at its edges.
 */
#include "core/cb_model.h"
#include "unit.h"

#include <math.h>

#define NEAR(x, y) CHECK(near((x), (y)))

static bool
near(double x, double y)
{
	return fabs(x - y) <= 1e-7 * fabs(y);
}

/* an index of the server: 8 kB leaves, 20-byte entries */
static CbModelInput
server_index(double leaves, double pool_bytes)
{
	CbModelInput in = {
		.leaves = leaves, .leaf_bytes = 8192, .pool_bytes = pool_bytes,
		.entry_bytes = 20, .period = 1, .stagger = 1
	};

	return in;
}

static CbModelResult
compute(CbModelInput in)
{
	CbModelResult out;

	cb_model_compute(&in, &out);
	return out;
}

/* one case of the source's grid: n buckets of so many bytes */
static CbModelResult
source_case(double n, double bucket_bytes, double r, double a, double m)
{
	CbModelInput in = server_index(m, n * bucket_bytes);

	in.leaf_bytes = a;
	in.entry_bytes = r;
	in.buckets = n;
	return compute(in);
}

/*
 * 12500 buckets of 1 kB, r 8, a 128, m 200000: 16 leaves a bucket, c 128,
 * rho = 16 (1 - (15/16)^128) = 16 (1 - 2.584184e-4) = 15.99586531; the buffer's
 * 12.8 MB are half of the leaves' 25.6.
 */
static void
test_source_case(void)
{
	CbModelResult r = source_case(12500, 1024, 8, 128, 200000);

	NEAR(r.capacity, 128);
	NEAR(r.leaves_per_flush, 15.99586531);
	NEAR(r.entries_per_visit, 128 / 15.99586531);
	NEAR(r.hit_direct, 0.5);
	NEAR(r.miss_direct, 0.5);
	NEAR(r.miss_batched, 15.99586531 / 128);
	NEAR(r.miss_ratio, 15.99586531 / 64);
}

/*
 * Few and large buckets are never worse.  The least misses, at m 200000, r 8,
 * a 512, where the buffer is an eighth of the leaves.
 */
static void
test_source_grid(void)
{
	static const double rs[] = {8, 16, 32};
	static const double as[] = {128, 256, 512};
	double		best = 1;
	int			cases = 0;

	for (int i = 0; i < 3; i++)
	{
		for (int j = 0; j < 3; j++)
		{
			for (double m = 200e3; m <= 800e3; m += 200e3)
			{
				CbModelResult large = source_case(12500, 1024, rs[i], as[j], m);
				CbModelResult mid = source_case(25000, 512, rs[i], as[j], m);
				CbModelResult small = source_case(50000, 256, rs[i], as[j], m);

				CHECK(large.miss_ratio <= mid.miss_ratio);
				CHECK(mid.miss_ratio <= small.miss_ratio);
				CHECK(large.miss_ratio > 0);
				best = fmin(best, large.miss_ratio);
				cases++;
			}
		}
	}
	CHECK(cases == 36);
	NEAR(best, 15.99586531 / 128 / 0.875);
}

/* 128 lines a leaf: 8 + 128 (1 - (127/128)^(11 k)) */
static void
test_lines(void)
{
	CbModelInput in = server_index(1e6, 0);
	CbModelResult r = compute(in);

	NEAR(r.lines_per_visit, 8 + 128 * (1 - pow(127. / 128, 11)));
	CHECK(fabs(r.lines_direct - 18.9) < 0.5);	/* measured */
	NEAR(r.lines_direct, r.lines_per_visit);

	in.entries_per_visit = 10;
	r = compute(in);
	NEAR(r.entries_per_visit, 10);
	NEAR(r.lines_per_visit, 8 + 128 * (1 - pow(127. / 128, 110)));
	NEAR(r.lines_ratio, r.lines_per_visit / 10 / r.lines_direct);
	CHECK(r.lines_ratio > r.miss_ratio);
}

/* measured: btree 3.04 us an entry; cachebatch 0.69 at k 47, 0.54 at 190 */
static void
test_cost(void)
{
	CbModelInput in = server_index(1e9, 0);
	CbModelResult r = compute(in);

	CHECK(r.direct_ns > 2700 && r.direct_ns < 3400);
	NEAR(r.batched_ns, 500 + 2000 + 46 * r.lines_per_visit);
	NEAR(r.cost_ratio, r.batched_ns / r.direct_ns);
	CHECK(r.cost_ratio > 1);
	in.entries_per_visit = 47;
	CHECK(fabs(compute(in).batched_ns - 690) < 50);
	in.entries_per_visit = 190;
	CHECK(fabs(compute(in).batched_ns - 540) < 50);
	in.uncached = 0.5;
	NEAR(compute(in).direct_ns - r.direct_ns, 18000);
}

/* p in turn to one leaf: as many visits as c / p entries, p times the entries */
static void
test_period(void)
{
	CbModelInput in = server_index(100000, 1 << 20);
	CbModelInput sparse = in;
	CbModelResult r;

	in.buckets = sparse.buckets = 100;
	in.period = 4;
	sparse.pool_bytes = in.pool_bytes / 4;
	r = compute(in);
	NEAR(r.leaves_per_flush, compute(sparse).leaves_per_flush);
	NEAR(r.entries_per_visit, 4 * compute(sparse).entries_per_visit);
	NEAR(r.miss_direct, (1 - r.hit_direct) / 4);
}

static void
test_stagger(void)
{
	CbModelInput in = server_index(100000, 1 << 26);
	CbModelInput twice = server_index(100000, 1 << 27);

	in.buckets = twice.buckets = 100;
	in.stagger = 2;
	NEAR(compute(in).entries_per_visit, compute(twice).entries_per_visit);
	NEAR(compute(in).leaves_per_flush, compute(twice).leaves_per_flush);
	NEAR(2 * compute(in).hit_direct, compute(twice).hit_direct);
}

static void
test_monotone(void)
{
	static const double entry_bytes[] = {8, 20, 300, 5000};

	for (int i = 0; i < 4; i++)
	{
		double		fade = 0;

		for (double m = 1; m <= 1e12; m *= 3)
		{
			double		k = 1;
			double		ns = INFINITY;
			CbModelInput in = server_index(m, 0);

			in.entry_bytes = entry_bytes[i];
			for (in.pool_bytes = 0; in.pool_bytes < 1e13;
				 in.pool_bytes = in.pool_bytes * 1.7 + 1)
			{
				CbModelResult r = compute(in);

				CHECK(r.entries_per_visit >= k * (1 - 1e-9));
				CHECK(r.batched_ns <= ns * (1 + 1e-9));
				k = r.entries_per_visit;
				ns = r.batched_ns;
			}
			CHECK(k <= fmax(8192 / in.entry_bytes, 1));
			CHECK(compute(in).fade_bytes >= fade * (1 - 1e-9));
			fade = compute(in).fade_bytes;
		}
	}
}

/* with that pool, nine tenths of what the largest visits save are saved */
static void
test_fade(void)
{
	CbModelInput in = server_index(100000, 0);
	CbModelInput most = server_index(100000, 1e15);
	double		worst;
	double		best;

	for (in.uncached = 0; in.uncached <= 1; in.uncached += 0.25)
	{
		most.uncached = in.uncached;
		in.pool_bytes = 0;
		worst = compute(in).batched_ns;
		best = compute(most).batched_ns;
		in.pool_bytes = compute(in).fade_bytes;
		NEAR((worst - compute(in).batched_ns) / (worst - best), 0.9);
	}
	CHECK(compute(in).entries_per_visit > 8 &&
		  compute(in).entries_per_visit < 40);
}

static void
check_sane(CbModelInput in)
{
	CbModelResult r = compute(in);
	double		all[] = {
		r.buckets, r.capacity, r.leaves_per_flush, r.hit_direct, r.miss_direct,
		r.lines_direct, r.direct_ns, r.batched_ns, r.fade_bytes
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		CHECK(isfinite(all[i]) && all[i] >= 0);
	CHECK(r.entries_per_visit >= 1 && isfinite(r.entries_per_visit));
	CHECK(r.miss_batched > 0 && r.miss_batched <= 1);
	CHECK(r.hit_direct <= 1 && r.miss_direct <= 1);
	CHECK((r.miss_ratio == -1) == (r.miss_direct == 0));
	CHECK(isfinite(r.miss_ratio) && isfinite(r.lines_ratio));
}

static void
test_edges(void)
{
	static const double sizes[] = {0, 1, 2, 8192, 1 << 20, 9.3e18};
	static const double entries[] = {1, 20, 8192, 1e9};

	for (int leaves = 0; leaves < 6; leaves++)
	{
		for (int pool = 0; pool < 6; pool++)
		{
			for (int entry = 0; entry < 4; entry++)
			{
				CbModelInput in = server_index(sizes[leaves], sizes[pool]);

				in.entry_bytes = entries[entry];
				check_sane(in);
				in.buckets = 1;
				check_sane(in);
				in.buckets = 9.3e18;
				check_sane(in);
				in.period = 1e9;
				check_sane(in);
			}
		}
	}
	CHECK(compute(server_index(1e6, 0)).entries_per_visit == 1);
	CHECK(compute(server_index(0, 1 << 20)).miss_ratio == -1);
	/* what does not fit into a leaf divides it */
	NEAR(compute(server_index(1, 1 << 30)).entries_per_visit, 8192. / 20);
}

int
main(void)
{
	unit_run("model: a case of the source by hand", test_source_case);
	unit_run("model: the source's grid", test_source_grid);
	unit_run("model: lines of a visit", test_lines);
	unit_run("model: cost beside what was measured", test_cost);
	unit_run("model: clustered requests", test_period);
	unit_run("model: buckets that are flushed in turn", test_stagger);
	unit_run("model: more pool, more entries a visit", test_monotone);
	unit_run("model: where returns fade", test_fade);
	unit_run("model: edges", test_edges);
	return unit_status;
}
