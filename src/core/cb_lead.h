/*-------------------------------------------------------------------------
 *
 * cb_lead.h
 *	  Leads: a key's first 8 bytes as a number that is in the order of keys.
 *
 * Different leads tell the order of two keys, without a comparison function.
 * This asks that keys which are equal have equal leads, however they are written
 * (-0.0, the many NaNs).  Equal leads mean equal first columns if these are numbers
 * of 8 bytes; else nothing.  Of use on little-endian machines.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_LEAD_H
#define CB_LEAD_H

#include <stdint.h>

typedef enum CbLeadKind
{
	CB_LEAD_NONE,				/* there is none */
	CB_LEAD_INT64,
	CB_LEAD_INT32,				/* in the first 4 bytes */
	CB_LEAD_FLOAT64,			/* as IEEE has it; all NaNs equal, and last */
	CB_LEAD_BYTES				/* as memcmp() has it */
} CbLeadKind;

static inline int64_t
cb_lead_of_float(uint64_t word)
{
	uint64_t	magnitude = word & INT64_MAX;

	if (magnitude > UINT64_C(0x7FF0000000000000))
		return INT64_MAX;
	return word == magnitude ? (int64_t) magnitude : -(int64_t) magnitude;
}

/* The lead of a key that begins with these bytes, the first one the lowest. */
static inline int64_t
cb_lead(CbLeadKind kind, uint64_t word)
{
	if (kind == CB_LEAD_INT64)
		return (int64_t) word;
	if (kind == CB_LEAD_BYTES)
		return (int64_t) (__builtin_bswap64(word) ^ UINT64_C(1) << 63);
	if (kind == CB_LEAD_INT32)
		return (int32_t) word;
	return cb_lead_of_float(word);
}

#endif							/* CB_LEAD_H */
