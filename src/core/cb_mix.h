/*-------------------------------------------------------------------------
 *
 * cb_mix.h
 *	  Spreading numbers over the places of a table.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_MIX_H
#define CB_MIX_H

#include <stdint.h>

/* The finalizer of MurmurHash3 (Appleby, public domain). */
static inline uint64_t
cb_mix(uint64_t x)
{
	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	x ^= x >> 33;
	x *= UINT64_C(0xc4ceb9fe1a85ec53);
	return x ^ x >> 33;
}

/* A number below n. */
static inline uint32_t
cb_mix_place(uint64_t x, uint32_t n)
{
	return (uint32_t) ((cb_mix(x) >> 32) * n >> 32);
}

#endif							/* CB_MIX_H */
