/*-------------------------------------------------------------------------
 *
 * cb_lead.h
 *	  Leads: a key's first bytes as a number that is in the order of keys.
 *
 * Different leads tell the order of two keys, without a comparison function.
 * This asks that keys which are equal have equal leads, however they are written
 * (-0.0, the many NaNs, numerics with more or fewer zeros), or none.  Equal leads
 * mean equal first columns if these are numbers of 8 bytes; else nothing.  Of use on
 * little-endian machines.
 *
 * A lead is made of the key's head: of a value with a fixed length its first 8
 * bytes, of one without the first 8 behind the length word, zeros behind its end.  One
 * of a pair is of the first two columns, which the first 8 bytes are of.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_LEAD_H
#define CB_LEAD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum CbLeadKind
{
	CB_LEAD_NONE,				/* there is none */
	CB_LEAD_INT64,
	CB_LEAD_INT32,				/* in the first 4 bytes */
	CB_LEAD_FLOAT64,			/* as IEEE has it; all NaNs equal, and last */
	CB_LEAD_BYTES,				/* as memcmp() has it */
	CB_LEAD_INT32_INT32,		/* a pair */
	CB_LEAD_INT32_TEXT,			/* a pair, where the text is short */

	/* of values without a fixed length */
	CB_LEAD_TEXT,				/* as memcmp() has it */
	CB_LEAD_NUMERIC				/* the server's numeric, in its short form */
} CbLeadKind;

/* Is the head what the key begins with? */
static inline bool
cb_lead_is_of_body(CbLeadKind kind)
{
	return kind < CB_LEAD_TEXT;
}

static inline bool
cb_lead_is_pair(CbLeadKind kind)
{
	return kind == CB_LEAD_INT32_INT32 || kind == CB_LEAD_INT32_TEXT;
}

static inline int64_t
cb_lead_of_bytes(uint64_t head)
{
	return (int64_t) (__builtin_bswap64(head) ^ UINT64_C(1) << 63);
}

static inline int64_t
cb_lead_of_float(uint64_t word)
{
	uint64_t	magnitude = word & INT64_MAX;

	if (magnitude > UINT64_C(0x7FF0000000000000))
		return INT64_MAX;
	return word == magnitude ? (int64_t) magnitude : -(int64_t) magnitude;
}

/* the server's numeric (numeric.c): its header's bits, and what else there is */
#define CB_LEAD_FORM		UINT64_C(0xC000)
#define CB_LEAD_SHORT		UINT64_C(0x8000)
#define CB_LEAD_SPECIAL		UINT64_C(0xF000)
#define CB_LEAD_NAN			UINT64_C(0xC000)
#define CB_LEAD_INFINITY	UINT64_C(0xD000)
#define CB_LEAD_NEGATIVE	UINT64_C(0x2000)
#define CB_LEAD_WEIGHT		UINT64_C(0x007F)	/* two's complement */
#define CB_LEAD_DIGIT_BITS	14	/* of a digit, which is less than 10,000 */

/*
 * Three digits, the first one not 0, and how many stand in front of the point.  False:
 * it has the long form, whose digits begin further on.
 */
static inline bool
cb_lead_of_numeric(uint64_t head, int64_t *lead)
{
	int64_t		size;

	if ((head & CB_LEAD_FORM) == CB_LEAD_FORM)
	{
		*lead = (head & CB_LEAD_SPECIAL) == CB_LEAD_NAN ? INT64_MAX :
			(head & CB_LEAD_SPECIAL) == CB_LEAD_INFINITY ? INT64_MAX - 1 : -INT64_MAX;
		return true;
	}
	if ((head & CB_LEAD_FORM) != CB_LEAD_SHORT)
		return false;
	if (head >> 16 == 0)
	{
		*lead = 0;
		return true;
	}
	size = (int64_t) ((head & CB_LEAD_WEIGHT) ^ (CB_LEAD_WEIGHT + 1) / 2) + 1;
	for (int shift = 16; shift < 64; shift += 16)
		size = size << CB_LEAD_DIGIT_BITS | (int64_t) (head >> shift & UINT16_MAX);
	*lead = (head & CB_LEAD_NEGATIVE) != 0 ? -size : size;
	return true;
}

/* The lead of a key without a fixed length that has this head; false: it has none. */
static inline bool
cb_lead_of_content(CbLeadKind kind, uint64_t head, int64_t *lead)
{
	if (kind == CB_LEAD_NUMERIC)
		return cb_lead_of_numeric(head, lead);
	*lead = cb_lead_of_bytes(head);
	return true;
}

/*
 * The head of n bytes, of which the first 8 are given with whatever stands behind
 * their end.
 */
static inline uint64_t
cb_lead_cut(uint64_t bytes, uint32_t n)
{
	return n >= sizeof(bytes) ? bytes : bytes & ((UINT64_C(1) << 8 * n) - 1);
}

/* Is this the first byte of a value without a fixed length that is short? */
static inline bool
cb_lead_is_short(uint8_t first)
{
	return (first & 1) != 0 && first != 1;
}

/* that byte, of a short value that has as much as a head */
#define CB_LEAD_FULL		((8 + 1) << 1 | 1)

/* The length of what stands behind that byte. */
static inline uint32_t
cb_lead_short_len(uint8_t first)
{
	return (first >> 1) - 1u;
}

/*
 * The lead of a pair: that of its first column, and a number that is in the order of
 * the second, and 0 for the least value that there can be, or minus infinity.
 */
static inline int64_t
cb_lead_of_pair(int32_t first, uint32_t second)
{
	return (int64_t) ((uint64_t) (uint32_t) first << 32 | second);
}

/* That number, of an int. */
static inline uint32_t
cb_lead_of_second_int32(int32_t value)
{
	return (uint32_t) value ^ UINT32_C(1) << 31;
}

#define CB_LEAD_SECOND_LEN	3	/* bytes of a pair's text that are in its head */

/* That number, of a text that begins with these bytes, the first one lowest. */
static inline uint32_t
cb_lead_of_second_text(uint64_t head)
{
	return (uint32_t) (__builtin_bswap64(cb_lead_cut(head, CB_LEAD_SECOND_LEN)) >> 32);
}

/* The lead of a pair of an int and a text; false: the text is long. */
static inline bool
cb_lead_of_int32_text(uint64_t head, int64_t *lead)
{
	uint8_t		first = (uint8_t) (head >> 32);

	if (!cb_lead_is_short(first))
		return false;
	head = cb_lead_cut(head, 5 + cb_lead_short_len(first));
	*lead = cb_lead_of_pair((int32_t) head, cb_lead_of_second_text(head >> 40));
	return true;
}

/*
 * The lead of a key that begins with this head, of which the first byte is the lowest.
 * False: it has none.
 */
static inline bool
cb_lead(CbLeadKind kind, uint64_t head, int64_t *lead)
{
	if (kind == CB_LEAD_INT64)
		*lead = (int64_t) head;
	else if (kind == CB_LEAD_BYTES)
		*lead = cb_lead_of_bytes(head);
	else if (kind == CB_LEAD_INT32)
		*lead = (int32_t) head;
	else if (kind == CB_LEAD_FLOAT64)
		*lead = cb_lead_of_float(head);
	else if (kind == CB_LEAD_INT32_INT32)
		*lead = cb_lead_of_pair((int32_t) head,
								cb_lead_of_second_int32((int32_t) (head >> 32)));
	else
		return cb_lead_of_int32_text(head, lead);
	return true;
}

/*
 * The head of a value without a fixed length, with which room begins, of 8 bytes at
 * least; a sound one's are a multiple of that.  False: it is compressed, or elsewhere.
 */
static inline bool
cb_lead_find_head(const unsigned char *room, uint32_t len, uint64_t *head)
{
	uint64_t	word;
	uint32_t	size;

	/* as most are */
	if ((room[0] & 1) != 0 && room[0] >= CB_LEAD_FULL && len > sizeof(word))
	{
		memcpy(head, room + 1, sizeof(word));
		return true;
	}
	memcpy(&word, room, sizeof(word));
	if (cb_lead_is_short(room[0]))
	{
		*head = cb_lead_cut(word >> 8, cb_lead_short_len(room[0]));
		return true;
	}
	size = (uint32_t) word >> 2;
	if ((word & 3) != 0 || size < sizeof(size))
		return false;
	*head = word >> 32;
	if (len >= sizeof(size) + sizeof(word))
		memcpy(head, room + sizeof(size), sizeof(word));
	*head = cb_lead_cut(*head, size - (uint32_t) sizeof(size));
	return true;
}

#endif							/* CB_LEAD_H */
