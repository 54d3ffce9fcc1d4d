/*-------------------------------------------------------------------------
 *
 * cb_filter.h
 *	  A filter of hashes: may a chunk hold an entry of this key?
 *
 * A Bloom filter whose bits for one hash are all in one cache line, so that a
 * question costs one cache miss.  Source: F. Putze, P. Sanders, J. Singler,
 * "Cache-, Hash- and Space-Efficient Bloom Filters", 2007.
 *
 * One writer at a time adds, before it publishes the entry; whoever may read
 * the entry so finds its bits.  Others may read at any time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_FILTER_H
#define CB_FILTER_H

#include "core/cb_atomic.h"

#define CB_FILTER_LINE_WORDS	8
#define CB_FILTER_LINE_BYTES	(CB_FILTER_LINE_WORDS * sizeof(uint64_t))
#define CB_FILTER_BITS			3	/* of each hash */

/* where the bits of a hash are: in one line, 9 bits each to name them */
static inline cb_atomic64 *
cb_filter_line(cb_atomic64 *filter, uint32_t nlines, uint32_t hash)
{
	return filter +
		(((uint64_t) hash * nlines) >> 32) * CB_FILTER_LINE_WORDS;
}

static inline uint32_t
cb_filter_mix(uint32_t hash)
{
	hash = (hash ^ (hash >> 15)) * UINT32_C(0x85EBCA6B);
	hash = (hash ^ (hash >> 13)) * UINT32_C(0xC2B2AE35);
	return hash ^ (hash >> 16);
}

static inline void
cb_filter_clear(cb_atomic64 *filter, uint32_t nlines)
{
	for (uint32_t i = 0; i < nlines * CB_FILTER_LINE_WORDS; i++)
		cb_store_relaxed(&filter[i], 0);
}

static inline void
cb_filter_add(cb_atomic64 *filter, uint32_t nlines, uint32_t hash)
{
	cb_atomic64 *line = cb_filter_line(filter, nlines, hash);
	uint32_t	bits = cb_filter_mix(hash);

	for (int i = 0; i < CB_FILTER_BITS; i++, bits >>= 9)
	{
		cb_atomic64 *word = &line[(bits >> 6) & 7];

		cb_store_relaxed(word, cb_load_relaxed(word) |
						 UINT64_C(1) << (bits & 63));
	}
}

static inline bool
cb_filter_may_hold(const cb_atomic64 *filter, uint32_t nlines, uint32_t hash)
{
	cb_atomic64 *line = cb_filter_line((cb_atomic64 *) filter, nlines, hash);
	uint32_t	bits = cb_filter_mix(hash);
	uint64_t	held = 1;

	/* which bits are set cannot be foreseen, so no branch depends on one */
	for (int i = 0; i < CB_FILTER_BITS; i++, bits >>= 9)
		held &= cb_load_relaxed(&line[(bits >> 6) & 7]) >> (bits & 63);
	return held != 0;
}

#endif							/* CB_FILTER_H */
