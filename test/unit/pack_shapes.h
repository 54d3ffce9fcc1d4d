/*
 * pack_shapes.h - index entries of many shapes, as leaves have them.
 */
#ifndef PACK_SHAPES_H
#define PACK_SHAPES_H

#include <math.h>

#include "core/cb_pack.h"
#include "unit.h"

#define PACK_SPACE (CB_PACK_MAX_ENTRIES * (size_t) CB_PACK_MAX_BODY)
#define PACK_HEAP 80000			/* heap blocks of a table */
#define PACK_ROWS 63			/* rows of a heap block */
#define PACK_NARROW_ROWS 226	/* of one whose rows are in the index's order */

typedef enum PackShape
{
	PACK_RANDOM_INT,			/* neighbours of 5 million random bigints */
	PACK_DUPLICATE_INT,			/* 1000 distinct bigints */
	PACK_SERIAL_INT,
	PACK_SIGNED_INT,			/* on both sides of 0 */
	PACK_WRAPPED_INT,			/* on both sides of the greatest */
	PACK_DESCENDING_INT,
	PACK_NOISE_INT,				/* in no order */
	PACK_ORDERED_INT,			/* each fourth, rows in the same order */
	PACK_TIME,					/* about 1000 a second, the same */
	PACK_TIME_DOWN,				/* the latest first */
	PACK_TICKS,					/* each a second later than the one before */
	PACK_TWO_INT4,
	PACK_FLOAT,
	PACK_UUID,
	PACK_TWO_INT8,
	PACK_TIME_INT8,				/* a timestamp and a bigint */
	PACK_URL,
	PACK_SHORT_TEXT,
	PACK_LONG_TEXT,				/* some with a long length word */
	PACK_TEXT_INT,				/* a text and a bigint */
	PACK_DIRTY_TEXT,			/* bytes behind the end of some */
	PACK_EQUAL_TEXT,
	PACK_HUGE,					/* bodies of the greatest length */
	PACK_EMPTY,					/* no bodies */
	PACK_ZEROS,					/* bodies of zeros, of many lengths */
	PACK_MIXED_INFO,			/* some with nulls */
	PACK_MIXED,					/* runs of other shapes */
	PACK_NOISE,					/* random bytes */
	PACK_NSHAPES
} PackShape;

static const char *const pack_shape_names[] = {
	"random bigint", "duplicate bigint", "serial bigint", "signed bigint",
	"wrapped bigint", "descending bigint", "noise bigint",
	"ordered bigint", "timestamp", "timestamp down", "ticks", "two int4",
	"float8", "uuid", "two int8", "timestamp and int8", "url", "short text", "long text",
	"text and bigint", "dirty text", "equal text", "huge", "empty", "zeros", "mixed info",
	"mixed", "noise"
};

typedef struct PackSet
{
	CbPackEntry entries[CB_PACK_MAX_ENTRIES];
	size_t		bytes;			/* of all bodies */
	unsigned char *space;		/* PACK_SPACE bytes */
	uint64_t	key;			/* what the generators count on */
} PackSet;

static inline int
pack_compare(const void *a, const void *b)
{
	const CbPackEntry *x = a;
	const CbPackEntry *y = b;
	int			order = memcmp(x->body, y->body,
							   x->len < y->len ? x->len : y->len);

	if (order != 0)
		return order;
	if (x->len != y->len)
		return x->len < y->len ? -1 : 1;
	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

/* a varlena of n bytes; its size */
static inline size_t
pack_varlena(unsigned char *to, const void *bytes, size_t n)
{
	uint32_t	word = (uint32_t) (n + 4) << 2;

	if (n <= 126)
	{
		to[0] = (unsigned char) ((n + 1) << 1 | 1);
		memcpy(to + 1, bytes, n);
		return n + 1;
	}
	memcpy(to, &word, 4);
	memcpy(to + 4, bytes, n);
	return n + 4;
}

static inline size_t
pack_url(char *to, uint64_t *seed)
{
	static const char *const hosts[] = {"shop.example.org", "www.example.com"};
	static const char *const parts[] = {"articles", "products", "category", "people"};

	/* one after the other: the order of arguments is the compiler's */
	const char *host = hosts[unit_below(seed, 2)];
	const char *part = parts[unit_below(seed, 4)];
	uint32_t	year = 2015 + unit_below(seed, 10);
	const char *name = parts[unit_below(seed, 4)];
	uint32_t	number = (uint32_t) unit_random(seed);

	return (size_t) sprintf(to, "https://%s/%s/%u/%s-%08x", host, part, year, name, number);
}

/* microseconds between two events */
static inline uint64_t
pack_gap(uint64_t *seed)
{
	return (uint64_t) (-1000 * log((unit_below(seed, 1000000) + 1) / 1e6));
}

/* Fills a body of bigints; entry i of a set that began at key. */
static inline size_t
pack_make_int(PackSet *set, PackShape shape, int i, uint64_t *body,
			  uint64_t *seed)
{
	switch (shape)
	{
		case PACK_RANDOM_INT:
		case PACK_MIXED_INFO:
			set->key += unit_random(seed) % (UINT64_MAX / 5000000 * 2);
			break;
		case PACK_DUPLICATE_INT:
			set->key += unit_below(seed, 1500) == 0 ? 1 : 0;
			break;
		case PACK_SIGNED_INT:
			set->key = (uint64_t) ((int64_t) i - 20);
			break;
		case PACK_WRAPPED_INT:
			set->key = INT64_MAX - UINT64_C(20) + (uint64_t) i;
			break;
		case PACK_DESCENDING_INT:
			set->key -= unit_below(seed, 1000);
			break;
		case PACK_NOISE_INT:
			set->key = unit_random(seed);
			set->key >>= unit_below(seed, 64);
			break;
		case PACK_ORDERED_INT:
			set->key += 4;
			break;
		case PACK_TIME:
			set->key += pack_gap(seed);
			break;
		case PACK_TIME_DOWN:
			set->key -= pack_gap(seed);
			break;
		case PACK_TICKS:
			set->key += 1000000;
			break;
		case PACK_TWO_INT4:
			set->key += unit_below(seed, 100);
			*body = set->key >> 8 | (uint64_t) unit_below(seed, 5000) << 32;
			return 8;
		case PACK_FLOAT:
			set->key += unit_random(seed) >> 20;
			break;
		default:
			set->key++;
	}
	*body = set->key;
	return 8;
}

/* Fills a body of other types. */
static inline size_t
pack_make_other(PackSet *set, PackShape shape, unsigned char *body,
				uint64_t *seed)
{
	char		text[1024];
	size_t		n;
	uint64_t	word;

	switch (shape)
	{
		case PACK_UUID:
			set->key += unit_random(seed) % (UINT64_MAX / 5000000 * 2);
			for (int b = 0; b < 8; b++)
				body[b] = (unsigned char) (set->key >> (56 - 8 * b));
			word = unit_random(seed);
			memcpy(body + 8, &word, 8);
			return 16;
		case PACK_TWO_INT8:
			set->key += unit_below(seed, 3) == 0;
			word = unit_below(seed, 100000);
			memcpy(body, &set->key, 8);
			memcpy(body + 8, &word, 8);
			return 16;
		case PACK_TIME_INT8:
			set->key += pack_gap(seed);
			word = unit_below(seed, 100000);
			memcpy(body, &set->key, 8);
			memcpy(body + 8, &word, 8);
			return 16;
		case PACK_URL:
			return pack_varlena(body, text, pack_url(text, seed));
		case PACK_SHORT_TEXT:
			n = (size_t) sprintf(text, "%x", unit_below(seed, 1 << 20));
			return pack_varlena(body, text, n);
		case PACK_LONG_TEXT:
			n = 100 + unit_below(seed, 60);
			memset(text, 'a', n);
			for (size_t b = n - 30; b < n; b++)
				text[b] = (char) ('a' + unit_below(seed, 4));
			return pack_varlena(body, text, n);
		case PACK_TEXT_INT:
			n = pack_varlena(body, text, pack_url(text, seed));
			word = unit_below(seed, 1000);
			memset(body + n, 0, 8);
			n = (n + 7) & ~(size_t) 7;
			memcpy(body + n, &word, 8);
			return n + 8;
		case PACK_DIRTY_TEXT:
			n = (size_t) sprintf(text, "%x", unit_below(seed, 1 << 20));
			n = pack_varlena(body, text, n);
			if (n % 8 != 0 && unit_below(seed, 10) == 0)
				body[n++] = 1;
			return n;
		case PACK_EQUAL_TEXT:
			return pack_varlena(body, "the same for all", 16);
		case PACK_HUGE:
			memset(body, 'x', CB_PACK_MAX_BODY);
			body[CB_PACK_MAX_BODY - 1 - unit_below(seed, 20)] = 'y';
			body[0] = (unsigned char) unit_below(seed, 256);
			return CB_PACK_MAX_BODY;
		case PACK_EMPTY:
			return 0;
		case PACK_ZEROS:
			n = 8 * unit_below(seed, 12);
			memset(body, 0, n);
			return n;
		default:
			n = 8 * unit_below(seed, 12);
			for (size_t b = 0; b < n; b++)
				body[b] = (unsigned char) unit_random(seed);
			return n;
	}
}

/* Makes entry i, its body at the end of what there is. */
static inline void
pack_make_entry(PackSet *set, PackShape shape, int i, uint64_t *seed)
{
	CbPackEntry *entry = &set->entries[i];
	unsigned char *body = set->space + set->bytes;
	size_t		len;

	if (shape <= PACK_FLOAT || shape == PACK_MIXED_INFO)
	{
		uint64_t	word;

		len = pack_make_int(set, shape, i, &word, seed);
		memcpy(body, &word, 8);
	}
	else
		len = pack_make_other(set, shape, body, seed);
	memset(body + len, 0, 8);
	entry->body = body;
	entry->len = (uint16_t) ((len + 7) & ~(size_t) 7);
	entry->info = (uint16_t) (shape >= PACK_URL ? 0x4000 : 0);
	if (shape == PACK_MIXED_INFO)
		entry->info |= unit_below(seed, 4) == 0 ? 0x8000 : 0;
	if (shape == PACK_NOISE)
		entry->info = (uint16_t) unit_random(seed);
	entry->tid = (uint64_t) unit_below(seed, PACK_HEAP) << 16 |
		(1 + unit_below(seed, PACK_ROWS));
	if (shape >= PACK_ORDERED_INT && shape <= PACK_TIME_DOWN)
		entry->tid = (uint64_t) (i / PACK_NARROW_ROWS + 100) << 16 |
			(1 + i % PACK_NARROW_ROWS);
	if (shape == PACK_TICKS)
		entry->tid = 1;			/* takes no space, nor gives some back */
	if (shape == PACK_NOISE)
	{
		entry->tid = unit_random(seed);
		entry->tid >>= 16 + unit_below(seed, 40);
	}
	set->bytes += entry->len;
}

/* TIDs of duplicates ascend. */
static inline void
pack_sort_tids(PackSet *set, int n, uint64_t *seed)
{
	uint64_t	block = 0;

	for (int i = 0; i < n; i++)
	{
		if (i > 0 && pack_compare(&set->entries[i - 1], &set->entries[i]) != 0 &&
			memcmp(set->entries[i - 1].body, set->entries[i].body, 8) != 0)
			block = 0;
		block += unit_below(seed, 32);
		set->entries[i].tid = block << 16 | (1 + unit_below(seed, PACK_ROWS));
	}
}

/* Makes n entries of a shape. */
static inline void
pack_make(PackSet *set, PackShape shape, int n, uint64_t *seed)
{
	PackShape	now = shape;

	if (set->space == NULL)
		set->space = malloc(PACK_SPACE + 8);
	set->bytes = 0;
	set->key = unit_random(seed);
	for (int i = 0; i < n; i++)
	{
		if (shape == PACK_MIXED && unit_below(seed, 20) == 0)
			now = (PackShape) unit_below(seed, PACK_HUGE);
		pack_make_entry(set, now, i, seed);
	}
	if (shape >= PACK_URL && shape <= PACK_EQUAL_TEXT)
		qsort(set->entries, (size_t) n, sizeof(CbPackEntry), pack_compare);
	if (shape == PACK_DUPLICATE_INT || shape == PACK_EQUAL_TEXT)
		pack_sort_tids(set, n, seed);
}

#endif							/* PACK_SHAPES_H */
