/*-------------------------------------------------------------------------
 *
 * cb_pack.c
 *	  Packed leaves: encoding, and removing entries.
 *
 * The format is described in cb_pack_format.h.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_pack_format.h"

#define CB_PACK_SAMPLE		6	/* values that are looked at first */

/* what is common to a blob's entries */
typedef struct CbPackShape
{
	int			count;
	int			nblocks;
	uint16_t	info;
	uint16_t	info_mask;
	uint8_t		offset_bits;
	CbPackForm	form;
	const unsigned char *prefix;
	uint32_t	prefix_len;
} CbPackShape;

/* how the entries are divided */
typedef struct CbPackPlan
{
	CbPackShape shape;
	uint16_t	start[CB_PACK_MAX_BLOCKS + 1];
	uint8_t		kind[CB_PACK_MAX_BLOCKS];
} CbPackPlan;

/* a blob in the making */
typedef struct CbPackWriter
{
	unsigned char *out;
	uint32_t	pos;
	uint32_t	limit;			/* of pos, so that the padding fits */
	const CbPackShape *shape;
	int			block;			/* number of blocks begun */
	const unsigned char *before;	/* content before, in a BYTES block */
	uint32_t	before_len;
} CbPackWriter;

/* what of a body is coded by prefix */
typedef struct CbPackContent
{
	const unsigned char *bytes;
	uint32_t	len;
	unsigned char head;			/* HEAD form only */
} CbPackContent;

/* the words of a block's bodies */
typedef struct CbPackColumns
{
	uint64_t	word[CB_PACK_MAX_WORDS][CB_PACK_BLOCK];
} CbPackColumns;

/* bits that a number takes */
static inline uint32_t
cb_pack_width(uint64_t number)
{
	return number == 0 ? 0 : 64 - (uint32_t) __builtin_clzll(number);
}

/* how many bytes from the start are the same in both */
static uint32_t
cb_pack_common(const unsigned char *a, const unsigned char *b, uint32_t max)
{
	uint32_t	n = 0;

	for (; n + 8 <= max; n += 8)
	{
		uint64_t	differ = cb_pack_load(a + n) ^ cb_pack_load(b + n);

		if (differ != 0)
			return n + (uint32_t) __builtin_ctzll(differ) / 8;
	}
	while (n < max && a[n] == b[n])
		n++;
	return n;
}

/* ----------------------------------------------------------------
 * Contents
 * ----------------------------------------------------------------
 */

/* Is the body the one that the TEXT form makes of its content? */
static bool
cb_pack_is_text(const unsigned char *body, uint32_t len)
{
	uint32_t	size;

	if (len == 0)
		return false;
	if (body[0] & 1)
		size = body[0] >> 1;
	else
	{
		size = (uint32_t) cb_pack_load(body) >> 2;
		if ((body[0] & 3) != 0 || size < 4 + 127)
			return false;
	}
	if (size > len || cb_pack_align(size) != len)
		return false;
	while (size < len && body[size] == 0)
		size++;
	return size == len;
}

static inline CbPackContent
cb_pack_content(CbPackForm form, const void *body, uint32_t len)
{
	CbPackContent content = {body, len, 0};

	if (form == CB_PACK_FORM_TEXT)
	{
		uint32_t	head = content.bytes[0] & 1 ? 1 : 4;

		content.len = head == 1 ? content.bytes[0] >> 1 :
			(uint32_t) cb_pack_load(body) >> 2;
		content.bytes += head;
		content.len -= head;
		return content;
	}
	for (int i = 0; i < 7 && content.len > 0 &&
		 content.bytes[content.len - 1] == 0; i++)
		content.len--;
	if (form == CB_PACK_FORM_HEAD)
	{
		content.head = content.bytes[0];
		content.bytes++;
		content.len--;
	}
	return content;
}

/* ----------------------------------------------------------------
 * Writing
 * ----------------------------------------------------------------
 */

static inline bool
cb_pack_has_room(const CbPackWriter *writer, uint32_t bytes)
{
	return bytes <= writer->limit - writer->pos;
}

static inline void
cb_pack_put_number(CbPackWriter *writer, uint32_t number)
{
	if (number >= 128)
		writer->out[writer->pos++] = (unsigned char) (number | 128);
	writer->out[writer->pos++] =
		(unsigned char) (number >= 128 ? number >> 7 : number);
}

static inline uint32_t
cb_pack_number_len(uint32_t number)
{
	return number >= 128 ? 2 : 1;
}

/*
 * Appends n numbers of this many bits, at most CB_PACK_MAX_WIDTH.  There is
 * room; up to 8 bytes behind them are overwritten too.  Narrow numbers are
 * joined by twos first, as each store waits for the one before it.
 */
static void
cb_pack_put_bits(CbPackWriter *writer, uint64_t *numbers, uint32_t n,
				 uint32_t width)
{
	unsigned char *p = writer->out + writer->pos;
	uint64_t	bits = 0;
	uint32_t	at = 0;

	writer->pos += cb_pack_bytes(n, width);
	if (2 * width <= CB_PACK_MAX_WIDTH)
	{
		for (uint32_t k = 0; k < n / 2; k++)
			numbers[k] = numbers[2 * k] | numbers[2 * k + 1] << width;
		if (n % 2 != 0)
			numbers[n / 2] = numbers[n - 1];
		n = (n + 1) / 2;
		width *= 2;
	}
	for (uint32_t k = 0; k < n; k++, at += width)
	{
		bits |= numbers[k] << (at & 7);
		cb_pack_store(p + (at >> 3), bits);
		bits >>= ((at & 7) + width) & ~UINT32_C(7);
	}
}

/*
 * Begins a blob: all before the blocks; the infos are left to the caller.
 */
static bool
cb_pack_begin(CbPackWriter *writer, const CbPackShape *shape, void *out,
			  size_t capacity)
{
	uint32_t	fixed = sizeof(CbPackHeader) +
		shape->nblocks * sizeof(CbPackBlock) + (shape->count + 7) / 8;
	uint32_t	infos = cb_pack_info_bytes(shape->count, shape->info_mask);

	capacity &= ~(size_t) 7;
	if (capacity > CB_PACK_MAX_LEN)
		capacity = CB_PACK_MAX_LEN;
	if (capacity < fixed + infos + shape->prefix_len + CB_PACK_PADDING)
		return false;
	memset(out, 0, fixed + infos);
	writer->out = out;
	writer->pos = fixed + infos;
	writer->limit = (uint32_t) capacity - CB_PACK_PADDING;
	writer->shape = shape;
	writer->block = 0;
	if (shape->prefix_len > 0)
		memcpy(writer->out + writer->pos, shape->prefix, shape->prefix_len);
	writer->pos += shape->prefix_len;
	return true;
}

/* Sets the info of entry i. */
static inline void
cb_pack_put_info(CbPackWriter *writer, uint32_t i, uint16_t info)
{
	const CbPackShape *shape = writer->shape;
	unsigned char *infos = writer->out + sizeof(CbPackHeader) +
		shape->nblocks * sizeof(CbPackBlock) + (shape->count + 7) / 8;

	if ((shape->info_mask & (shape->info_mask - 1)) == 0)
	{
		if ((info & shape->info_mask) != 0)
			infos[i / 8] |= (unsigned char) (1 << (i & 7));
	}
	else
	{
		infos[2 * i] = (unsigned char) (info >> 8);
		infos[2 * i + 1] = (unsigned char) info;
	}
}

/* Ends a blob: padding and header.  Its length. */
static size_t
cb_pack_end(CbPackWriter *writer)
{
	const CbPackShape *shape = writer->shape;
	CbPackHeader *header = (CbPackHeader *) writer->out;
	uint32_t	len = cb_pack_align(writer->pos) + CB_PACK_PADDING;

	memset(writer->out + writer->pos, 0, len - writer->pos);
	header->magic = CB_PACK_MAGIC;
	header->nblocks = (uint8_t) shape->nblocks;
	header->offset_bits = shape->offset_bits;
	header->form = (uint8_t) shape->form;
	header->count = (uint16_t) shape->count;
	header->info = shape->info;
	header->prefix_len = (uint16_t) shape->prefix_len;
	header->units = (uint16_t) (len / 8);
	header->info_mask = shape->info_mask;
	return len;
}

/* how the TIDs of a block are stored */
typedef struct CbPackTidForm
{
	uint64_t	ref;
	uint32_t	width;
	bool		tight;
} CbPackTidForm;

/* a TID as one number */
static inline uint64_t
cb_pack_tid_number(uint64_t tid, uint32_t offset_bits)
{
	return tid >> 16 << offset_bits | (tid & 0xffff);
}

/* How to store n TIDs between these two. */
static CbPackTidForm
cb_pack_choose_tids(uint64_t least, uint64_t most, uint32_t n,
					uint32_t offset_bits)
{
	uint64_t	first = cb_pack_tid_number(least, offset_bits);
	uint64_t	last = cb_pack_tid_number(most, offset_bits);
	CbPackTidForm wide = {least >> 16 << offset_bits, offset_bits, false};
	CbPackTidForm tight = {first, cb_pack_width(last - first), true};

	wide.width += cb_pack_width((most >> 16) - (least >> 16));
	return CB_PACK_TIGHT_HEAD + cb_pack_bytes(n, tight.width) <
		cb_pack_bytes(n, wide.width) ? tight : wide;
}

/* Begins a block: its directory entry and TIDs. */
static bool
cb_pack_begin_block(CbPackWriter *writer, int start, int kind,
					const uint64_t *tids, uint32_t n)
{
	CbPackBlock *block = (CbPackBlock *)
		(writer->out + sizeof(CbPackHeader)) + writer->block++;
	uint32_t	offset_bits = writer->shape->offset_bits;
	uint64_t	least = tids[0];
	uint64_t	most = tids[0];
	uint64_t	numbers[CB_PACK_BLOCK];
	CbPackTidForm how;

	for (uint32_t k = 1; k < n; k++)
	{
		least = tids[k] < least ? tids[k] : least;
		most = tids[k] > most ? tids[k] : most;
	}
	how = cb_pack_choose_tids(least, most, n, offset_bits);
	block->start = (uint16_t) start;
	block->data = (uint16_t) writer->pos;
	block->heap_ref_low = (uint16_t) (least >> 16);
	block->heap_ref_high = (uint16_t) (least >> 32);
	block->tid_bits = (uint8_t) (how.tight ? CB_PACK_TIGHT + how.width :
								 how.width - offset_bits);
	block->kind = (uint8_t) kind;
	if (!cb_pack_has_room(writer, (how.tight ? CB_PACK_TIGHT_HEAD : 0) +
						  cb_pack_bytes(n, how.width)))
		return false;
	if (how.tight)
	{
		writer->out[writer->pos++] = (unsigned char) least;
		writer->out[writer->pos++] = (unsigned char) (least >> 8);
	}
	for (uint32_t k = 0; k < n; k++)
		numbers[k] = cb_pack_tid_number(tids[k], offset_bits) - how.ref;
	cb_pack_put_bits(writer, numbers, n, how.width);
	return true;
}

/*
 * The least value of a column in this view, and the width of its differences
 * to it: numbers may have a sign or not, whichever is narrower.  *sorted: the
 * ends of the column are its extremes.
 */
static uint32_t
cb_pack_range(const uint64_t *words, uint32_t n, uint32_t view,
			  uint64_t *ref, bool *sorted)
{
	uint64_t	first = cb_pack_view(words[0], view);
	uint64_t	last = cb_pack_view(words[n - 1], view);
	uint64_t	flip = 0;
	uint64_t	range = UINT64_MAX;

	for (int round = 0; round < 2; round++)
	{
		uint64_t	least = first ^ flip;
		uint64_t	most = first ^ flip;

		for (uint32_t k = 1; k < n; k++)
		{
			uint64_t	number = cb_pack_view(words[k], view) ^ flip;

			least = number < least ? number : least;
			most = number > most ? number : most;
		}
		if (round == 0 || most - least < range)
		{
			range = most - least;
			*ref = least ^ flip;
			*sorted = (first ^ flip) + (last ^ flip) == least + most &&
				(first == *ref || last == *ref);
		}
		if (((least ^ most) >> 63) == 0)
			break;
		flip = UINT64_C(1) << 63;
	}
	return cb_pack_width(range);
}

/* how a column is stored */
typedef struct CbPackColumnForm
{
	uint8_t		code;
	uint64_t	ref;
	uint64_t	slope;			/* a signed number of 4 bytes */
} CbPackColumnForm;

/*
 * The columns that a block had, if words are what remains of them, and the
 * position of each entry in it.
 */
typedef struct CbPackLike
{
	const uint8_t *code;
	const uint64_t *slope;
	uint8_t		position[CB_PACK_BLOCK];
} CbPackLike;

/* the position of entry k */
static inline uint32_t
cb_pack_like_position(const CbPackLike *like, uint32_t k)
{
	return like != NULL ? like->position[k] : k;
}

/* Bytes of a column, without its code. */
static uint32_t
cb_pack_column_cost(const CbPackColumnForm *column, uint32_t n)
{
	if (column->code == CB_PACK_RAW)
		return 8 * n;
	return cb_pack_bytes(n, CB_PACK_WIDTH(column->code)) + 8 +
		(CB_PACK_VIEW(column->code) == CB_PACK_SLOPED ? CB_PACK_SLOPE_LEN : 0);
}

/* Sets reference and code of a column of this slope. */
static void
cb_pack_set_sloped(const uint64_t *words, uint32_t n, uint64_t slope,
				   const CbPackLike *like, CbPackColumnForm *column)
{
	uint64_t	first = words[0] - slope * cb_pack_like_position(like, 0);
	int64_t		least = 0;
	int64_t		most = 0;
	uint32_t	width;

	for (uint32_t k = 1; k < n; k++)
	{
		int64_t		number = (int64_t)
			(words[k] - slope * cb_pack_like_position(like, k) - first);

		least = number < least ? number : least;
		most = number > most ? number : most;
	}
	width = cb_pack_width((uint64_t) most - (uint64_t) least);
	if (width < CB_PACK_SLOPED_WIDTH)
		width = CB_PACK_SLOPED_WIDTH;
	column->code = width > CB_PACK_MAX_WIDTH ? CB_PACK_RAW :
		CB_PACK_CODE(width, CB_PACK_SLOPED);
	column->ref = first + (uint64_t) least;
	column->slope = slope;
}

/*
 * Makes a column of ascending or descending numbers a sloped one, if that
 * saves two bits an entry.
 */
static void
cb_pack_try_slope(const uint64_t *words, uint32_t n, CbPackColumnForm *column)
{
	int64_t		slope;
	CbPackColumnForm sloped;

	if (CB_PACK_WIDTH(column->code) < CB_PACK_SLOPED_WIDTH + 2 ||
		CB_PACK_WIDTH(column->code) > CB_PACK_SLOPED_MOST)
		return;
	slope = (int64_t) (words[n - 1] - words[0]) / (int64_t) (n - 1);
	if (slope == 0 || slope != (int32_t) slope)
		return;
	cb_pack_set_sloped(words, n, (uint64_t) slope, NULL, &sloped);
	if (CB_PACK_WIDTH(sloped.code) + 2 <= CB_PACK_WIDTH(column->code) &&
		cb_pack_column_cost(&sloped, n) < cb_pack_column_cost(column, n))
		*column = sloped;
}

/*
 * How to store a column.  like: how it was stored, as word w, if it is what
 * remains of one.  The bytes that it takes, without the code.
 */
static uint32_t
cb_pack_choose(const uint64_t *words, uint32_t n, const CbPackLike *like,
			   uint32_t w, CbPackColumnForm *column)
{
	int			code = like != NULL && like->code[w] != CB_PACK_RAW ?
		like->code[w] : CB_PACK_ANY_CODE;
	uint32_t	best = CB_PACK_RAW;
	bool		sorted = false;

	if (code >= 0 && CB_PACK_VIEW((uint32_t) code) == CB_PACK_SLOPED)
	{
		cb_pack_set_sloped(words, n, like->slope[w], like, column);
		return cb_pack_column_cost(column, n);
	}
	column->code = CB_PACK_RAW;
	for (uint32_t view = CB_PACK_PLAIN; view <= CB_PACK_HALVES && !sorted; view++)
	{
		uint64_t	least;
		uint32_t	width;

		/* a few show already if the range is too wide */
		if ((code >= 0 && CB_PACK_VIEW((uint32_t) code) != view) ||
			(n > 4 * CB_PACK_SAMPLE &&
			 cb_pack_range(words, CB_PACK_SAMPLE, view, &least, &sorted) >
			 CB_PACK_MAX_WIDTH))
		{
			sorted = false;
			continue;
		}
		width = cb_pack_range(words, n, view, &least, &sorted);
		if (width < best && width <= CB_PACK_MAX_WIDTH)
		{
			best = width;
			column->ref = least;
			column->code = CB_PACK_CODE(width, view);
		}
	}
	if (best == CB_PACK_RAW || cb_pack_column_cost(column, n) >= 8 * n)
		column->code = CB_PACK_RAW;
	else if (like == NULL && sorted && CB_PACK_VIEW(column->code) == CB_PACK_PLAIN)
		cb_pack_try_slope(words, n, column);
	return cb_pack_column_cost(column, n);
}

static void
cb_pack_put_column(CbPackWriter *writer, const uint64_t *words, uint32_t n,
				   const CbPackLike *like, const CbPackColumnForm *column)
{
	uint64_t	numbers[CB_PACK_BLOCK];
	uint32_t	view = CB_PACK_VIEW(column->code);

	if (column->code == CB_PACK_RAW)
	{
		for (uint32_t k = 0; k < n; k++)
			cb_pack_store(writer->out + writer->pos + 8 * k, words[k]);
		writer->pos += 8 * n;
		return;
	}
	for (uint32_t k = 0; k < n; k++)
		numbers[k] = cb_pack_view(words[k], view) - column->ref;
	for (uint32_t k = 0; view == CB_PACK_SLOPED && k < n; k++)
		numbers[k] -= column->slope * cb_pack_like_position(like, k);
	cb_pack_put_bits(writer, numbers, n, CB_PACK_WIDTH(column->code));
}

/* The positions, up to the last entry's, that are empty, a bit each. */
static uint64_t
cb_pack_gone(const CbPackLike *like, uint32_t n)
{
	uint64_t	present = 0;

	if (like == NULL)
		return 0;
	for (uint32_t k = 0; k < n; k++)
		present |= UINT64_C(1) << like->position[k];
	return cb_pack_ones(like->position[n - 1] + 1u) & ~present;
}

/* Writes what is told about columns before they come. */
static void
cb_pack_put_codes(CbPackWriter *writer, const CbPackColumnForm *columns,
				  uint32_t nwords)
{
	for (uint32_t w = 0; w < nwords; w++)
		writer->out[writer->pos++] = columns[w].code;
	for (uint32_t w = 0; w < nwords; w++)
	{
		if (columns[w].code == CB_PACK_RAW)
			continue;
		cb_pack_store(writer->out + writer->pos, columns[w].ref);
		writer->pos += 8;
		if (CB_PACK_VIEW(columns[w].code) != CB_PACK_SLOPED)
			continue;
		cb_pack_store(writer->out + writer->pos, columns[w].slope);
		writer->pos += CB_PACK_SLOPE_LEN;
	}
}

/* Writes the bodies of a WORDS block; like: how it was. */
static bool
cb_pack_put_words(CbPackWriter *writer, const CbPackColumns *columns,
				  uint32_t n, uint32_t nwords, const CbPackLike *like)
{
	CbPackColumnForm column[CB_PACK_MAX_WORDS];
	uint32_t	bytes = nwords;
	uint64_t	gone = cb_pack_gone(like, n);
	bool		sloped = false;

	for (uint32_t w = 0; w < nwords; w++)
	{
		bytes += cb_pack_choose(columns->word[w], n, like, w, &column[w]);
		sloped |= CB_PACK_VIEW(column[w].code) == CB_PACK_SLOPED;
	}
	if (sloped)
		bytes += 1 + (uint32_t) __builtin_popcountll(gone);
	if (!cb_pack_has_room(writer, bytes))
		return false;
	cb_pack_put_codes(writer, column, nwords);
	if (sloped)
		writer->out[writer->pos++] = (unsigned char) __builtin_popcountll(gone);
	for (; sloped && gone != 0; gone &= gone - 1)
		writer->out[writer->pos++] = (unsigned char) __builtin_ctzll(gone);
	for (uint32_t w = 0; w < nwords; w++)
		cb_pack_put_column(writer, columns->word[w], n, like, &column[w]);
	return true;
}

/* Writes the content of a body of a BYTES block; first: of the block. */
static bool
cb_pack_put_content(CbPackWriter *writer, bool first, CbPackContent content)
{
	bool		head = writer->shape->form == CB_PACK_FORM_HEAD;
	uint32_t	shared = 0;
	uint32_t	rest;

	content.bytes += writer->shape->prefix_len;
	content.len -= writer->shape->prefix_len;
	if (!first)
		shared = cb_pack_common(writer->before, content.bytes,
								cb_pack_least(writer->before_len, content.len));
	rest = content.len - shared;
	if (!cb_pack_has_room(writer, (first ? 0 : cb_pack_number_len(shared)) +
						  cb_pack_number_len(rest) + head + rest))
		return false;
	if (!first)
		cb_pack_put_number(writer, shared);
	cb_pack_put_number(writer, rest);
	if (head)
		writer->out[writer->pos++] = content.head;
	memcpy(writer->out + writer->pos, content.bytes + shared, rest);
	writer->pos += rest;
	writer->before = content.bytes;
	writer->before_len = content.len;
	return true;
}

/* ----------------------------------------------------------------
 * Encoding
 * ----------------------------------------------------------------
 */

/* Finds what is common to all entries; false: one is no entry. */
static bool
cb_pack_survey(const CbPackEntry *entries, int n, CbPackShape *shape)
{
	uint16_t	info_differs = 0;
	uint64_t	offsets = 0;
	uint64_t	tids = 0;
	uint32_t	lens = 0;
	bool text = true;
	bool		odd = true;
	bool		heads_differ = false;

	for (int i = 0; i < n; i++)
	{
		const CbPackEntry *entry = &entries[i];

		if (entry->len > CB_PACK_MAX_BODY)
			return false;
		lens |= entry->len;
		tids |= entry->tid;
		offsets |= entry->tid & 0xffff;
		info_differs |= entry->info ^ entries[0].info;
		if (text)
			text = cb_pack_is_text(entry->body, entry->len);

		if (odd)
		{
			odd = entry->len > 0 && (*(const unsigned char *) entry->body & 1);
			heads_differ |= odd && *(const unsigned char *) entry->body !=
				*(const unsigned char *) entries[0].body;
		}
	}
	if ((lens & 7) != 0 || tids >> 48 != 0)
		return false;
	memset(shape, 0, sizeof(*shape));
	shape->count = n;
	shape->info = entries[0].info & (uint16_t) ~info_differs;
	shape->info_mask = info_differs;
	shape->offset_bits = (uint8_t) cb_pack_width(offsets);
	shape->form = text ? CB_PACK_FORM_TEXT :
				odd && heads_differ ? CB_PACK_FORM_HEAD : CB_PACK_FORM_RAW;

	return true;
}

/* Gathers word w of n bodies. */
static inline void
cb_pack_gather(const CbPackEntry *entries, uint32_t n, uint32_t w,
			   uint64_t *words)
{
	for (uint32_t k = 0; k < n; k++)
		words[k] = cb_pack_load((const unsigned char *) entries[k].body + 8 * w);
}

/* Do n bodies take at most so many bytes as a WORDS block? */
static bool
cb_pack_words_fit(const CbPackEntry *entries, uint32_t n, uint32_t nwords,
				  uint32_t most)
{
	uint32_t	bytes = nwords;

	for (uint32_t w = 0; w < nwords && bytes <= most; w++)
	{
		uint64_t	words[CB_PACK_BLOCK];
		CbPackColumnForm column;

		cb_pack_gather(entries, n, w, words);
		bytes += cb_pack_choose(words, n, NULL, w, &column);
	}
	return bytes <= most;
}

/* Bytes that n bodies take by prefix, without the blob's own prefix. */
static uint32_t
cb_pack_bytes_cost(const CbPackEntry *entries, uint32_t n, CbPackForm form)
{
	CbPackContent before = {NULL, 0, 0};
	uint32_t	bytes = 0;

	for (uint32_t k = 0; k < n; k++)
	{
		CbPackContent content = cb_pack_content(form, entries[k].body,
												entries[k].len);
		uint32_t	shared = 0;

		if (k % CB_PACK_BYTES_BLOCK != 0)
			shared = cb_pack_common(before.bytes, content.bytes,
									cb_pack_least(before.len, content.len));
		bytes += content.len - shared + 2 + (form == CB_PACK_FORM_HEAD);
		before = content;
	}
	return bytes;
}

/* The kind of the block that begins with these n entries. */
static int
cb_pack_choose_kind(const CbPackEntry *entries, uint32_t n, CbPackForm form)
{
	uint32_t	len = entries[0].len;
	uint32_t	nwords = len / 8;

	if (nwords > CB_PACK_MAX_WORDS)
		return CB_PACK_BYTES;
	for (uint32_t k = 1; k < n; k++)
	{
		if (entries[k].len != len)
			return CB_PACK_BYTES;
	}
	if ((nwords > 1 || form == CB_PACK_FORM_TEXT) &&
		!cb_pack_words_fit(entries, n, nwords,
						   cb_pack_bytes_cost(entries, n, form)))
		return CB_PACK_BYTES;
	return CB_PACK_WORDS + (int) nwords;
}

/* Makes the prefix as long as the contents of these entries have it. */
static void
cb_pack_take_prefix(CbPackShape *shape, const CbPackEntry *entries, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++)
	{
		CbPackContent content = cb_pack_content(shape->form, entries[k].body,
												entries[k].len);

		if (shape->prefix == NULL)
		{
			shape->prefix = content.bytes;
			shape->prefix_len = content.len;
		}
		shape->prefix_len =
			cb_pack_common(shape->prefix, content.bytes,
						   cb_pack_least(shape->prefix_len, content.len));
	}
}

/* Divides the entries in blocks. */
static void
cb_pack_divide(const CbPackEntry *entries, CbPackPlan *plan)
{
	CbPackShape *shape = &plan->shape;

	for (int start = 0; start < shape->count;)
	{
		uint32_t	left = (uint32_t) (shape->count - start);
		uint32_t	n = cb_pack_least(left, CB_PACK_BLOCK);
		int			kind = cb_pack_choose_kind(entries + start, n, shape->form);

		if (kind == CB_PACK_BYTES)
		{
			n = cb_pack_least(left, CB_PACK_BYTES_BLOCK);
			cb_pack_take_prefix(shape, entries + start, n);
		}
		plan->start[shape->nblocks] = (uint16_t) start;
		plan->kind[shape->nblocks++] = (uint8_t) kind;
		start += (int) n;
	}
	plan->start[shape->nblocks] = (uint16_t) shape->count;
}

static bool
cb_pack_encode_block(CbPackWriter *writer, const CbPackEntry *entries,
					 int start, uint32_t n, int kind)
{
	uint64_t	tids[CB_PACK_BLOCK];
	CbPackColumns columns;

	entries += start;
	for (uint32_t k = 0; k < n; k++)
		tids[k] = entries[k].tid;
	if (!cb_pack_begin_block(writer, start, kind, tids, n))
		return false;
	if (kind != CB_PACK_BYTES)
	{
		uint32_t	nwords = (uint32_t) (kind - CB_PACK_WORDS);

		for (uint32_t w = 0; w < nwords; w++)
			cb_pack_gather(entries, n, w, columns.word[w]);
		return cb_pack_put_words(writer, &columns, n, nwords, NULL);
	}
	for (uint32_t k = 0; k < n; k++)
	{
		CbPackContent content = cb_pack_content(writer->shape->form,
												entries[k].body, entries[k].len);

		if (!cb_pack_put_content(writer, k == 0, content))
			return false;
	}
	return true;
}

/*
 * Encodes n entries, 1 to CB_PACK_MAX_ENTRIES, into out, which is 8-aligned.
 * The bytes written, a multiple of 8 and at most capacity; 0: they do not fit,
 * or an entry is none.  What is written depends on the entries alone.
 */
size_t
cb_pack_encode(const CbPackEntry *entries, int n, void *out, size_t capacity)
{
	CbPackPlan	plan;
	CbPackWriter writer;

	if (n < 1 || n > CB_PACK_MAX_ENTRIES ||
		!cb_pack_survey(entries, n, &plan.shape))
		return 0;
	cb_pack_divide(entries, &plan);
	if (!cb_pack_begin(&writer, &plan.shape, out, capacity))
		return 0;
	for (int i = 0; plan.shape.info_mask != 0 && i < n; i++)
		cb_pack_put_info(&writer, (uint32_t) i, entries[i].info);
	for (int b = 0; b < plan.shape.nblocks; b++)
	{
		if (!cb_pack_encode_block(&writer, entries, plan.start[b],
								  (uint32_t) (plan.start[b + 1] - plan.start[b]),
								  plan.kind[b]))
			return 0;
	}
	return cb_pack_end(&writer);
}

/* ----------------------------------------------------------------
 * Removing
 * ----------------------------------------------------------------
 */

/* what remains of a blob */
typedef struct CbPackRest
{
	CbPackReader reader;
	uint8_t		gone[(CB_PACK_MAX_ENTRIES + 7) / 8];
} CbPackRest;

static inline bool
cb_pack_is_gone(const CbPackRest *rest, int i)
{
	return rest->gone[i / 8] >> (i & 7) & 1;
}

/* The ordinals, less than CB_PACK_BLOCK, of what remains of a block. */
static uint32_t
cb_pack_remaining(const CbPackRest *rest, int block, int *ordinals)
{
	int			end = cb_pack_block_start(&rest->reader, block + 1);
	uint32_t	n = 0;

	for (int i = cb_pack_block_start(&rest->reader, block);
		 i < end && n < CB_PACK_BLOCK; i++)
	{
		if (!cb_pack_is_gone(rest, i))
			ordinals[n++] = i;
	}
	return n;
}

/* Copies what remains of a block at hand whose bodies are words. */
static bool
cb_pack_copy_words(CbPackRest *rest, CbPackWriter *writer, const int *ordinals,
				   uint32_t n)
{
	const CbPackReader *reader = &rest->reader;
	CbPackColumns columns;
	CbPackLike	like = {.code = reader->code,.slope = reader->slope};
	uint32_t	nwords = (uint32_t) (reader->kind - CB_PACK_WORDS);

	for (uint32_t k = 0; k < n; k++)
	{
		uint32_t	at = (uint32_t) ordinals[k] - reader->first;

		like.position[k] = (uint8_t) cb_pack_position(reader, at);
		for (uint32_t w = 0; w < nwords; w++)
			columns.word[w][k] = cb_pack_get_word(reader, at, w);
	}
	return cb_pack_put_words(writer, &columns, n, nwords, &like);
}

/*
 * The same, bodies coded by prefix: each is compared with the one before.  The
 * contents are as long as they were, whatever damage has made of their ends.
 */
static bool
cb_pack_copy_bytes(CbPackRest *rest, CbPackWriter *writer, const int *ordinals,
				   uint32_t n)
{
	uint64_t	bodies[2][CB_PACK_MAX_BODY / 8];
	CbPackReader *reader = &rest->reader;

	for (uint32_t k = 0; k < n; k++)
	{
		unsigned char *body = (unsigned char *) bodies[k % 2];
		CbPackContent content;
		CbPackEntry entry;

		if (!cb_pack_read(reader, ordinals[k], &entry, body))
			return false;
		content.len = reader->prefix_len +
			reader->len[(uint32_t) ordinals[k] - reader->first];
		content.bytes = body + cb_pack_content_place(writer->shape->form,
													 content.len);
		content.head = writer->shape->form == CB_PACK_FORM_HEAD ? body[0] : 0;
		if (!cb_pack_put_content(writer, k == 0, content))
			return false;
	}
	return true;
}

/* Copies what remains of a block, as entries from number start on. */
static bool
cb_pack_copy_block(CbPackRest *rest, CbPackWriter *writer, int start,
				   const int *ordinals, uint32_t n)
{
	uint64_t	tids[CB_PACK_BLOCK];

	if (!cb_pack_load_block(&rest->reader, (uint32_t) ordinals[0]))
		return false;
	for (uint32_t k = 0; k < n; k++)
	{
		if ((uint32_t) ordinals[k] - rest->reader.first >= rest->reader.nentries)
			return false;
		tids[k] = cb_pack_tid(&rest->reader, ordinals[k]);
		if (rest->reader.info_mask != 0)
			cb_pack_put_info(writer, (uint32_t) start + k,
							 cb_pack_get_info(&rest->reader,
											  (uint32_t) ordinals[k]));
	}
	if (!cb_pack_begin_block(writer, start, rest->reader.kind, tids, n))
		return false;
	if (rest->reader.kind == CB_PACK_BYTES)
		return cb_pack_copy_bytes(rest, writer, ordinals, n);
	return cb_pack_copy_words(rest, writer, ordinals, n);
}

/* Finds what is common to what remains. */
static void
cb_pack_rest_shape(const CbPackRest *rest, CbPackShape *shape)
{
	const CbPackReader *reader = &rest->reader;
	int			ordinals[CB_PACK_BLOCK];

	memset(shape, 0, sizeof(*shape));
	shape->info = reader->info;
	shape->info_mask = reader->info_mask;
	shape->offset_bits = reader->offset_bits;
	shape->form = (CbPackForm) reader->form;
	for (int b = 0; b < reader->nblocks; b++)
	{
		uint32_t	n = cb_pack_remaining(rest, b, ordinals);

		shape->count += (int) n;
		shape->nblocks += n > 0;
		if (n > 0 && cb_pack_directory(reader)[b].kind == CB_PACK_BYTES)
		{
			shape->prefix = reader->blob + reader->data - reader->prefix_len;
			shape->prefix_len = reader->prefix_len;
		}
	}
}

/*
 * Copies the blob without the entries of n ascending ordinals to out, which
 * has room for len bytes, is 8-aligned, and not the blob.  The bytes written,
 * never more than len; LP_DEAD hints are 0.  0: nothing is left, or the blob
 * is damaged and was not checked.
 */
size_t
cb_pack_delete(const void *blob, size_t len, const uint16_t *ordinals, int n,
			   void *out)
{
	CbPackRest	rest;
	CbPackShape shape;
	CbPackWriter writer;
	int			kept[CB_PACK_BLOCK];
	int			start = 0;

	if (!cb_pack_open(&rest.reader, blob, len))
		return 0;
	memset(rest.gone, 0, sizeof(rest.gone));
	for (int i = 0; i < n; i++)
	{
		if (ordinals[i] < CB_PACK_MAX_ENTRIES)
			rest.gone[ordinals[i] / 8] |= (uint8_t) (1 << (ordinals[i] & 7));
	}
	cb_pack_rest_shape(&rest, &shape);
	if (shape.count == 0 || !cb_pack_begin(&writer, &shape, out, len))
		return 0;
	for (int b = 0; b < rest.reader.nblocks; b++)
	{
		uint32_t	nkept = cb_pack_remaining(&rest, b, kept);

		if (nkept == 0)
			continue;
		if (!cb_pack_copy_block(&rest, &writer, start, kept, nkept))
			return 0;
		start += (int) nkept;
	}
	return cb_pack_end(&writer);
}
