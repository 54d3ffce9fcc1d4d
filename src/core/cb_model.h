/*-------------------------------------------------------------------------
 *
 * cb_model.h
 *	  What batching saves: misses, entries a leaf visit, time an entry.
 *
 * The figures in ns are estimates, measured on one machine (2 cores of an AMD
 * EPYC, PostgreSQL 15): a btree index costs about 3 us an entry in memory, a
 * cachebatch index 0.69 us at 47 entries a visit and 0.54 us at 190; a direct
 * insertion touches about 19 cache lines that are not in the cache, at 46 ns
 * each; one into a leaf that is not in shared_buffers costs 36 us more (read,
 * eviction of another, full-page image).
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_MODEL_H
#define CB_MODEL_H

#define CB_MODEL_LINE_BYTES		64
#define CB_MODEL_VISIT_LINES	8	/* lines of a visit, whatever it brings */
#define CB_MODEL_ENTRY_LINES	11	/* lines of a leaf that an entry touches */

#define CB_MODEL_ENTRY_NS		500 /* stage, journal, bucket, sort */
#define CB_MODEL_VISIT_NS		2000	/* descent, page checks, WAL record */
#define CB_MODEL_LINE_NS		46	/* a line that is not in the cache */
#define CB_MODEL_PAGE_NS		36000	/* a leaf that is not in memory */

#define CB_MODEL_BUCKET_BYTES	65536	/* larger buckets bring no more */
#define CB_MODEL_FADE_SHARE		0.9 /* of what can be saved at most */

/*
 * All are finite and not negative; counts are numbers that need not be whole.
 */
typedef struct CbModelInput
{
	double		leaves;			/* m; below 1 counts as 1 */
	double		leaf_bytes;		/* a, > 0 */
	double		pool_bytes;		/* S; 0: no buckets, each entry is a visit */
	double		entry_bytes;	/* r, > 0 */
	double		buckets;		/* n; 0: as many as are large enough */
	double		period;			/* p, >= 1: so many in turn go to one leaf */
	double		stagger;		/* > 0: a bucket is flushed at so many times
								 * the average; 1: all fill up together */
	double		uncached;		/* 0 to 1: leaves that are not in memory */
	double		entries_per_visit;	/* k, if it is known; 0: to be computed */
} CbModelInput;

typedef struct CbModelResult
{
	double		buckets;		/* n */
	double		capacity;		/* c = S / (n r) */
	double		leaves_per_flush;	/* rho: visits of one flush */
	double		entries_per_visit;	/* k, from 1 to what a leaf has room for */
	double		hit_direct;		/* H_b */
	double		miss_direct;	/* M_b, an entry */
	double		miss_batched;	/* M_c = 1 / k, an entry */
	double		miss_ratio;		/* M_r = M_c / M_b; -1 if M_b is 0 */
	double		lines_direct;	/* lines missed by an entry */
	double		lines_per_visit;	/* lines missed by a visit of k entries */
	double		lines_ratio;	/* of an entry, to direct; -1 if that is 0 */
	double		direct_ns;		/* an entry */
	double		batched_ns;
	double		cost_ratio;		/* batched / direct */
	double		fade_bytes;		/* pool that brings CB_MODEL_FADE_SHARE */
} CbModelResult;

extern void cb_model_compute(const CbModelInput *in, CbModelResult *out);

#endif							/* CB_MODEL_H */
