/*-------------------------------------------------------------------------
 *
 * cb_model.c
 *	  What batching saves: misses, entries a leaf visit, time an entry.
 *
 * The pool's S bytes are n buckets for c entries of r bytes; the index has m
 * leaves of a bytes.  If the same S bytes were a cache of leaves, a direct
 * update would hit with H_b = S / (m a), at most 1, and miss with M_b = 1 -
 * H_b.  A flush of c entries, spread over the m / n leaves of a bucket, visits
 *
 *	   rho = (m / n) (1 - (1 - n / m)^c)
 *
 * of them, so k = c / rho entries come to a visit and an entry has M_c = 1 / k
 * misses: M_r = M_c / M_b of a direct update's.  (If p entries in turn belong
 * to one leaf, a flush brings c / p times p, and a direct update misses M_b /
 * p.)
 *
 * That charges each visit alike.  But one with many entries touches more of
 * the leaf's lines: of L = a / 64 lines those that e k random touches hit,
 *
 *	   v + L (1 - (1 - 1 / L)^(e k))
 *
 * with v lines that each visit touches.  v and e are fitted to 18.9 misses of
 * a direct insertion.
 *
 * k grows with S, never with m; it is at least 1, and at most what fits into
 * a leaf: a leaf that gets more is divided, and each part is visited.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_model.h"

#include <math.h>

#define CB_MODEL_STEPS		200 /* of a bisection, halving a logarithm */
#define CB_MODEL_POOL_MAX	0x1p62

static double
cb_model_clamp(double x, double least, double most)
{
	return x < least ? least : x > most ? most : x;
}

/* how many of n are hit by so many random touches, on average */
static double
cb_model_distinct(double n, double touches)
{
	if (n <= 1)
		return n;
	return n * -expm1(touches * log1p(-1 / n));
}

static double
cb_model_leaves(const CbModelInput *in)
{
	return fmax(in->leaves, 1);
}

/* n: what was asked for, or large ones, but one for each leaf at most */
static double
cb_model_buckets(const CbModelInput *in, double pool_bytes)
{
	if (in->buckets > 0)
		return in->buckets;
	return cb_model_clamp(pool_bytes / CB_MODEL_BUCKET_BYTES, 1,
						  cb_model_leaves(in));
}

/* the most entries that one visit can bring */
static double
cb_model_max_visit(const CbModelInput *in)
{
	return fmax(in->leaf_bytes / in->entry_bytes, 1);
}

/* k with a pool of so many bytes */
static double
cb_model_visit(const CbModelInput *in, double pool_bytes)
{
	double		n = cb_model_buckets(in, pool_bytes);
	double		entries = in->stagger * pool_bytes / (n * in->entry_bytes);
	double		range = fmax(cb_model_leaves(in) / n, 1);

	if (entries <= 1)
		return 1;
	return cb_model_clamp(entries /
						  cb_model_distinct(range, entries / in->period), 1,
						  fmin(entries, cb_model_max_visit(in)));
}

/* lines that a visit with k entries touches */
static double
cb_model_lines(const CbModelInput *in, double k)
{
	double		lines = fmax(in->leaf_bytes / CB_MODEL_LINE_BYTES, 1);

	return CB_MODEL_VISIT_LINES +
		cb_model_distinct(lines, CB_MODEL_ENTRY_LINES * k);
}

/* an entry's part of a visit with k */
static double
cb_model_visit_ns(const CbModelInput *in, double k)
{
	return (CB_MODEL_VISIT_NS + CB_MODEL_PAGE_NS * in->uncached +
			CB_MODEL_LINE_NS * cb_model_lines(in, k)) / k;
}

/* the least k that saves its share of what the largest one would save */
static double
cb_model_fade_visit(const CbModelInput *in)
{
	double		low = 1;
	double		high = cb_model_max_visit(in);
	double		worst = cb_model_visit_ns(in, low);
	double		best = cb_model_visit_ns(in, high);
	double		wanted = worst - CB_MODEL_FADE_SHARE * (worst - best);

	for (int i = 0; i < CB_MODEL_STEPS; i++)
	{
		double		k = sqrt(low * high);

		if (cb_model_visit_ns(in, k) > wanted)
			low = k;
		else
			high = k;
	}
	return high;
}

/* the least pool that brings that k */
static double
cb_model_fade_bytes(const CbModelInput *in)
{
	double		k = cb_model_fade_visit(in);
	double		low = 1;
	double		high = CB_MODEL_POOL_MAX;

	if (k <= 1)
		return 0;
	for (int i = 0; i < CB_MODEL_STEPS; i++)
	{
		double		pool = sqrt(low * high);

		if (cb_model_visit(in, pool) < k)
			low = pool;
		else
			high = pool;
	}
	return high;
}

static double
cb_model_ratio(double batched, double direct)
{
	return direct > 0 ? batched / direct : -1;
}

/*
 * Computes all of *out from *in, which holds what CbModelInput says; a pure
 * function.
 */
void
cb_model_compute(const CbModelInput *in, CbModelResult *out)
{
	double		k = cb_model_visit(in, in->pool_bytes);

	if (in->entries_per_visit > 0)
		k = fmax(in->entries_per_visit, 1);
	out->buckets = cb_model_buckets(in, in->pool_bytes);
	out->capacity = in->pool_bytes / (out->buckets * in->entry_bytes);
	out->leaves_per_flush = in->stagger * out->capacity / k;
	out->entries_per_visit = k;

	out->hit_direct = fmin(in->pool_bytes /
						   (cb_model_leaves(in) * in->leaf_bytes), 1);
	out->miss_direct = (1 - out->hit_direct) / in->period;
	out->miss_batched = 1 / k;
	out->miss_ratio = cb_model_ratio(out->miss_batched, out->miss_direct);

	out->lines_direct = cb_model_lines(in, 1) * out->miss_direct;
	out->lines_per_visit = cb_model_lines(in, k);
	out->lines_ratio = cb_model_ratio(out->lines_per_visit / k,
									  out->lines_direct);

	out->direct_ns = CB_MODEL_VISIT_NS +
		CB_MODEL_PAGE_NS * in->uncached / in->period +
		CB_MODEL_LINE_NS * out->lines_direct;
	out->batched_ns = CB_MODEL_ENTRY_NS + cb_model_visit_ns(in, k);
	out->cost_ratio = out->batched_ns / out->direct_ns;
	out->fade_bytes = cb_model_fade_bytes(in);
}
