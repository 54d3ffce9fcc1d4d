/*-------------------------------------------------------------------------
 *
 * cb_pack.c
 *	  Packed leaves: encoding, reading, removing.
 *
 * A blob:
 *
 *	  header		CbPackHeader, 16 bytes
 *	  directory		CbPackBlock, 10 bytes a block
 *	  kill hints	a bit an entry
 *	  infos			0, 1 (high byte) or 2 bytes an entry
 *	  prefix		what all contents of BYTES blocks begin with
 *	  blocks		see below, each from a byte boundary
 *	  padding		8 to 15 zero bytes: whoever reads bits may read 8 bytes
 *
 * A block begins with its TIDs, bit-packed: the heap block less the block's
 * least one, then the offset number in as many bits as the blob's greatest
 * offset number needs.  Then follow the bodies, in one of two ways:
 *
 *	  WORDS(n)		All bodies are n words of 8 bytes.  A code a word: width in
 *					bits and view; the least value a word (base, 8 bytes);
 *					then, word by word, a column of differences to the base,
 *					bit-packed.  A word that gains nothing is stored raw.  The
 *					view says how a word is taken for a number so that near
 *					entries have near numbers: as it is (bigint), bytes
 *					reversed (uuid, characters), halves exchanged (two ints).
 *	  BYTES			Contents by prefix: an entry is the number of bytes that
 *					it shares with the one before it (behind the blob's
 *					prefix; not for a block's first), the number of its other
 *					bytes, and these.  Numbers take 7 bits a byte.
 *
 * The content of a body is what remains when the rest is known from its
 * length; how, is the form, one for all BYTES blocks of a blob:
 *
 *	  RAW			the body without its last, up to 7, zero bytes
 *	  TEXT			one varlena: the body without length word and padding
 *	  HEAD			like RAW, but the first byte (the length byte of a text in
 *					front, which differs between neighbours) is stored apart
 *
 * Removing entries keeps the division in blocks, and their kinds, views, form
 * and prefix; since all else is a least or greatest value of what there is,
 * or a sum over it, a blob never grows by it:
 *
 *	  - ranges of TIDs and words, so widths, of fewer entries are not wider; a
 *	    word goes from raw to packed only where that is not longer
 *	  - with entries a, b, c of a BYTES block, b removed: c shares with a at
 *	    least the lesser of what a and b, b and c share; the bytes that c has
 *	    to say more are among those that b said
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_pack.h"

#include <string.h>

#include "core/cb_assert.h"

#define CB_PACK_MAGIC		0xC5
#define CB_PACK_PADDING		8
#define CB_PACK_MAX_BLOCKS \
	((CB_PACK_MAX_ENTRIES + CB_PACK_BYTES_BLOCK - 1) / CB_PACK_BYTES_BLOCK)

/* kinds of blocks: BYTES, or WORDS + number of words */
#define CB_PACK_BYTES		0
#define CB_PACK_WORDS		1

/* a word's code: its width, or RAW, and its view */
#define CB_PACK_WIDTH(code) ((code) & 63)
#define CB_PACK_VIEW(code)	((code) >> 6)
#define CB_PACK_CODE(width, view) ((uint8_t) ((width) | (view) << 6))
#define CB_PACK_RAW			63
#define CB_PACK_MAX_WIDTH	56	/* with 7 bits of a byte before: 64 */
#define CB_PACK_ANY_CODE	(-1)

typedef enum CbPackView
{
	CB_PACK_PLAIN,
	CB_PACK_REVERSED,
	CB_PACK_HALVES
} CbPackView;

typedef enum CbPackForm
{
	CB_PACK_FORM_RAW,
	CB_PACK_FORM_TEXT,
	CB_PACK_FORM_HEAD
} CbPackForm;

typedef struct CbPackHeader
{
	uint8_t		magic;
	uint8_t		nblocks;
	uint8_t		offset_bits;	/* of an offset number */
	uint8_t		form;			/* CbPackForm */
	uint16_t	count;
	uint16_t	info;			/* of all, but for what infos say */
	uint16_t	prefix_len;
	uint16_t	units;			/* the blob's length / 8 */
	uint8_t		info_bytes;
	uint8_t		unused[3];
} CbPackHeader;

typedef struct CbPackBlock
{
	uint16_t	start;			/* first entry */
	uint16_t	data;			/* place in the blob */
	uint16_t	heap_base_low;
	uint16_t	heap_base_high;
	uint8_t		heap_bits;		/* of a heap block */
	uint8_t		kind;
} CbPackBlock;

_Static_assert(sizeof(CbPackHeader) == 16, "header of a packed leaf");
_Static_assert(sizeof(CbPackBlock) == 10, "directory of a packed leaf");
_Static_assert(CB_PACK_MAX_BLOCKS <= UINT8_MAX, "blocks of a packed leaf");

/* what is common to a blob's entries */
typedef struct CbPackShape
{
	int			count;
	int			nblocks;
	uint16_t	info;
	uint8_t		info_bytes;
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

/* ----------------------------------------------------------------
 * Bits and bytes
 * ----------------------------------------------------------------
 */

/* blobs are little-endian in what is packed by bits */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define cb_pack_le64(x) __builtin_bswap64(x)
#else
#define cb_pack_le64(x) (x)
#endif

static inline uint64_t
cb_pack_load(const unsigned char *p)
{
	uint64_t	word;

	memcpy(&word, p, sizeof(word));
	return cb_pack_le64(word);
}

static inline void
cb_pack_store(unsigned char *p, uint64_t word)
{
	word = cb_pack_le64(word);
	memcpy(p, &word, sizeof(word));
}

/* bytes that n values of this many bits take */
static inline uint32_t
cb_pack_bytes(uint32_t n, uint32_t bits)
{
	return (n * bits + 7) / 8;
}

/* bits that a number takes */
static inline uint32_t
cb_pack_width(uint64_t number)
{
	return number == 0 ? 0 : 64 - (uint32_t) __builtin_clzll(number);
}

/* value k of a column, of at most CB_PACK_MAX_WIDTH bits; reads 8 bytes */
static inline uint64_t
cb_pack_get(const unsigned char *column, uint32_t k, uint32_t bits)
{
	uint32_t	at = k * bits;

	return (cb_pack_load(column + (at >> 3)) >> (at & 7)) &
		((UINT64_C(1) << bits) - 1);
}

/* a word as a number, and a number as a word: all views are involutions */
static inline uint64_t
cb_pack_view(uint64_t word, uint32_t view)
{
	switch (view)
	{
		case CB_PACK_REVERSED:
			return __builtin_bswap64(word);
		case CB_PACK_HALVES:
			return word << 32 | word >> 32;
		default:
			return word;
	}
}

static inline uint32_t
cb_pack_align(uint32_t len)
{
	return (len + 7) & ~UINT32_C(7);
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

static inline uint32_t
cb_pack_least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
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
	if (size == 0 || size > len || cb_pack_align(size) != len)
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
	if (form == CB_PACK_FORM_HEAD && content.len > 0)
	{
		content.head = content.bytes[0];
		content.bytes++;
		content.len--;
	}
	return content;
}

/* where the content begins in the body that has one of this length */
static inline uint32_t
cb_pack_content_place(CbPackForm form, uint32_t len)
{
	if (form == CB_PACK_FORM_TEXT)
		return len <= 126 ? 1 : 4;
	return form == CB_PACK_FORM_HEAD ? 1 : 0;
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
 * Begins a blob: all before the blocks; the infos are left to the caller.
 */
static bool
cb_pack_begin(CbPackWriter *writer, const CbPackShape *shape, void *out,
			  size_t capacity)
{
	uint32_t	fixed = sizeof(CbPackHeader) +
		shape->nblocks * sizeof(CbPackBlock) + (shape->count + 7) / 8;
	uint32_t	infos = shape->count * shape->info_bytes;

	capacity &= ~(size_t) 7;
	if (capacity > CB_PACK_MAX_LEN)
		capacity = CB_PACK_MAX_LEN;
	if (capacity < fixed + infos + shape->prefix_len + CB_PACK_PADDING)
		return false;
	memset(out, 0, fixed);
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

	if (shape->info_bytes == 1)
		infos[i] = (unsigned char) (info >> 8);
	else if (shape->info_bytes == 2)
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
	header->info_bytes = shape->info_bytes;
	return len;
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
	uint64_t	bits = 0;
	uint32_t	filled = 0;
	uint32_t	width;
	unsigned char *p = writer->out + writer->pos;

	for (uint32_t k = 1; k < n; k++)
	{
		least = tids[k] < least ? tids[k] : least;
		most = tids[k] > most ? tids[k] : most;
	}
	least >>= 16;
	block->start = (uint16_t) start;
	block->data = (uint16_t) writer->pos;
	block->heap_base_low = (uint16_t) least;
	block->heap_base_high = (uint16_t) (least >> 16);
	block->heap_bits = (uint8_t) cb_pack_width((most >> 16) - least);
	block->kind = (uint8_t) kind;
	width = block->heap_bits + offset_bits;
	if (!cb_pack_has_room(writer, cb_pack_bytes(n, width)))
		return false;
	for (uint32_t k = 0; k < n; k++)
	{
		bits |= (((tids[k] >> 16) - least) << offset_bits |
				 (tids[k] & 0xffff)) << filled;
		filled += width;
		cb_pack_store(p, bits);
		p += filled >> 3;
		bits >>= filled & ~UINT32_C(7);
		filled &= 7;
	}
	writer->pos += cb_pack_bytes(n, width);
	return true;
}

/*
 * The least value of a column in this view, and the width of its differences
 * to it: numbers may have a sign or not, whichever is narrower.  *sorted: the
 * ends of the column are its extremes.
 */
static uint32_t
cb_pack_range(const uint64_t *words, uint32_t n, uint32_t view,
			  uint64_t *base, bool *sorted)
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
			*base = least ^ flip;
			*sorted = (first ^ flip) + (last ^ flip) == least + most &&
				(first == *base || last == *base);
		}
		if (((least ^ most) >> 63) == 0)
			break;
		flip = UINT64_C(1) << 63;
	}
	return cb_pack_width(range);
}

/*
 * How to store a column: its code and base.  like: the code that it had, if
 * it is what remains of a column.  The bytes that it takes, without the code.
 */
static uint32_t
cb_pack_choose(const uint64_t *words, uint32_t n, int like, uint8_t *code,
			   uint64_t *base)
{
	uint32_t	best = CB_PACK_RAW;
	bool		sorted = false;

	if (like >= 0 && CB_PACK_WIDTH(like) == CB_PACK_RAW)
		like = CB_PACK_ANY_CODE;
	*code = CB_PACK_RAW;
	for (uint32_t view = CB_PACK_PLAIN; view <= CB_PACK_HALVES && !sorted; view++)
	{
		uint64_t	least;
		uint32_t	width;

		if (like >= 0 && CB_PACK_VIEW((uint32_t) like) != view)
			continue;
		width = cb_pack_range(words, n, view, &least, &sorted);
		if (width < best && width <= CB_PACK_MAX_WIDTH)
		{
			best = width;
			*base = least;
			*code = CB_PACK_CODE(width, view);
		}
	}
	if (best == CB_PACK_RAW || cb_pack_bytes(n, best) + 8 >= 8 * n)
	{
		*code = CB_PACK_RAW;
		return 8 * n;
	}
	return cb_pack_bytes(n, best) + 8;
}

static void
cb_pack_put_column(CbPackWriter *writer, const uint64_t *words, uint32_t n,
				   uint8_t code, uint64_t base)
{
	unsigned char *p = writer->out + writer->pos;
	uint32_t	width = CB_PACK_WIDTH(code);
	uint32_t	view = CB_PACK_VIEW(code);
	uint64_t	bits = 0;
	uint32_t	filled = 0;

	if (width == CB_PACK_RAW)
	{
		for (uint32_t k = 0; k < n; k++)
			cb_pack_store(p + 8 * k, words[k]);
		writer->pos += 8 * n;
		return;
	}
	for (uint32_t k = 0; k < n; k++)
	{
		bits |= (cb_pack_view(words[k], view) - base) << filled;
		filled += width;
		cb_pack_store(p, bits);
		p += filled >> 3;
		bits >>= filled & ~UINT32_C(7);
		filled &= 7;
	}
	writer->pos += cb_pack_bytes(n, width);
}

/* Writes the bodies of a WORDS block; like: the codes that they had. */
static bool
cb_pack_put_words(CbPackWriter *writer, const CbPackColumns *columns,
				  uint32_t n, uint32_t nwords, const uint8_t *like)
{
	uint8_t		code[CB_PACK_MAX_WORDS];
	uint64_t	base[CB_PACK_MAX_WORDS];
	uint32_t	bytes = nwords;

	for (uint32_t w = 0; w < nwords; w++)
		bytes += cb_pack_choose(columns->word[w], n,
								like ? like[w] : CB_PACK_ANY_CODE,
								&code[w], &base[w]);
	if (!cb_pack_has_room(writer, bytes))
		return false;
	for (uint32_t w = 0; w < nwords; w++)
		writer->out[writer->pos++] = code[w];
	for (uint32_t w = 0; w < nwords; w++)
	{
		if (code[w] == CB_PACK_RAW)
			continue;
		cb_pack_store(writer->out + writer->pos, base[w]);
		writer->pos += 8;
	}
	for (uint32_t w = 0; w < nwords; w++)
		cb_pack_put_column(writer, columns->word[w], n, code[w], base[w]);
	return true;
}

/* Writes a body of a BYTES block; first: of the block. */
static bool
cb_pack_put_body(CbPackWriter *writer, bool first, const void *body,
				 uint32_t len)
{
	CbPackContent content = cb_pack_content(writer->shape->form, body, len);
	bool		head = writer->shape->form == CB_PACK_FORM_HEAD;
	uint32_t	shared = 0;
	uint32_t	rest;

	if (content.len < writer->shape->prefix_len)
		return false;
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
	bool		text = true;
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
	shape->info = entries[0].info;
	shape->info_bytes = info_differs == 0 ? 0 : (info_differs & 0xff) == 0 ? 1 : 2;
	shape->offset_bits = (uint8_t) cb_pack_width(offsets);
	shape->form = text ? CB_PACK_FORM_TEXT :
		odd && heads_differ ? CB_PACK_FORM_HEAD : CB_PACK_FORM_RAW;
	return true;
}

/* Gathers the words of n bodies. */
static void
cb_pack_gather(const CbPackEntry *entries, uint32_t n, uint32_t nwords,
			   CbPackColumns *columns)
{
	for (uint32_t w = 0; w < nwords; w++)
	{
		for (uint32_t k = 0; k < n; k++)
			columns->word[w][k] =
				cb_pack_load((const unsigned char *) entries[k].body + 8 * w);
	}
}

/* Bytes that n bodies take as a WORDS block. */
static uint32_t
cb_pack_words_cost(const CbPackEntry *entries, uint32_t n, uint32_t nwords)
{
	CbPackColumns columns;
	uint32_t	bytes = nwords;

	cb_pack_gather(entries, n, nwords, &columns);
	for (uint32_t w = 0; w < nwords; w++)
	{
		uint8_t		code;
		uint64_t	base;

		bytes += cb_pack_choose(columns.word[w], n, CB_PACK_ANY_CODE,
								&code, &base);
	}
	return bytes;
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
		cb_pack_words_cost(entries, n, nwords) >
		cb_pack_bytes_cost(entries, n, form))
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
		cb_pack_gather(entries, n, (uint32_t) (kind - CB_PACK_WORDS), &columns);
		return cb_pack_put_words(writer, &columns, n,
								 (uint32_t) (kind - CB_PACK_WORDS), NULL);
	}
	for (uint32_t k = 0; k < n; k++)
	{
		if (!cb_pack_put_body(writer, k == 0, entries[k].body, entries[k].len))
			return false;
	}
	return true;
}

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
	for (int i = 0; plan.shape.info_bytes > 0 && i < n; i++)
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
 * Reading
 * ----------------------------------------------------------------
 */

static inline const CbPackBlock *
cb_pack_directory(const CbPackReader *reader)
{
	return (const CbPackBlock *) (reader->blob + sizeof(CbPackHeader));
}

int
cb_pack_count(const void *blob)
{
	return ((const CbPackHeader *) blob)->count;
}

int
cb_pack_nblocks(const void *blob)
{
	return ((const CbPackHeader *) blob)->nblocks;
}

bool
cb_pack_open(CbPackReader *reader, const void *blob, size_t len)
{
	const CbPackHeader *header = blob;
	uint32_t	fixed;

	if (len < sizeof(CbPackHeader) + CB_PACK_PADDING ||
		len > CB_PACK_MAX_LEN || len != (size_t) header->units * 8 ||
		header->magic != CB_PACK_MAGIC ||
		header->count < 1 || header->count > CB_PACK_MAX_ENTRIES ||
		header->nblocks < 1 || header->nblocks > header->count ||
		header->offset_bits > 16 || header->info_bytes > 2 ||
		header->form > CB_PACK_FORM_HEAD)
		return false;
	fixed = sizeof(CbPackHeader) + header->nblocks * sizeof(CbPackBlock) +
		(header->count + 7) / 8;
	reader->blob = blob;
	reader->limit = (uint32_t) len - CB_PACK_PADDING;
	reader->infos = fixed;
	reader->data = fixed + header->count * header->info_bytes +
		header->prefix_len;
	reader->guess = ((uint32_t) header->nblocks << 16) / header->count;
	reader->count = header->count;
	reader->info = header->info;
	reader->prefix_len = header->prefix_len;
	reader->nblocks = header->nblocks;
	reader->offset_bits = header->offset_bits;
	reader->info_bytes = header->info_bytes;
	reader->form = header->form;
	reader->first = 0;
	reader->nentries = 0;
	return reader->data <= reader->limit;
}

int
cb_pack_block_start(const CbPackReader *reader, int block)
{
	if (block < 0 || block >= reader->nblocks)
		return reader->count;
	return (int) cb_pack_least(cb_pack_directory(reader)[block].start,
							   reader->count);
}

/*
 * The block of entry i, its first entry and their number; NULL: damaged.  The
 * blocks are about equally long, so that a guess is near.
 */
static inline const CbPackBlock *
cb_pack_find_block(const CbPackReader *reader, uint32_t i, uint32_t *first,
				   uint32_t *n)
{
	const CbPackBlock *directory = cb_pack_directory(reader);
	uint32_t	last = reader->nblocks - 1u;
	uint32_t	b = cb_pack_least((i * reader->guess) >> 16, last);
	uint32_t	end;

	while (b > 0 && directory[b].start > i)
		b--;
	while (b < last && directory[b + 1].start <= i)
		b++;
	end = b == last ? reader->count : directory[b + 1].start;
	*first = directory[b].start;
	*n = end - *first;
	if (i < *first || i >= end || *n > CB_PACK_BLOCK ||
		directory[b].data < reader->data || directory[b].heap_bits > 32 ||
		directory[b].data + cb_pack_bytes(*n, directory[b].heap_bits +
										  reader->offset_bits) > reader->limit)
		return NULL;
	return &directory[b];
}

/* the least TID that a block may have */
static inline uint64_t
cb_pack_heap_base(const CbPackBlock *block)
{
	return (uint64_t) block->heap_base_low << 16 |
		(uint64_t) block->heap_base_high << 32;
}

/* TID k of a column */
static inline uint64_t
cb_pack_get_tid(const unsigned char *column, uint32_t k, uint32_t bits,
				uint32_t offset_bits, uint64_t heap_base)
{
	uint64_t	tid = cb_pack_get(column, k, bits);

	return (heap_base + (tid >> offset_bits << 16) +
			(tid & ((UINT64_C(1) << offset_bits) - 1))) &
		((UINT64_C(1) << 48) - 1);
}

uint64_t
cb_pack_tid(const CbPackReader *reader, int i)
{
	const CbPackBlock *block;
	uint32_t	first;
	uint32_t	n;

	if ((uint32_t) i - reader->first < reader->nentries)
		return cb_pack_get_tid(reader->blob + reader->tids,
							   (uint32_t) i - reader->first, reader->tid_bits,
							   reader->offset_bits, reader->heap_base);
	if ((uint32_t) i >= reader->count)
		return 0;
	block = cb_pack_find_block(reader, (uint32_t) i, &first, &n);
	if (block == NULL)
		return 0;
	return cb_pack_get_tid(reader->blob + block->data, (uint32_t) i - first,
						   block->heap_bits + reader->offset_bits,
						   reader->offset_bits, cb_pack_heap_base(block));
}

/* Finds the columns of a WORDS block whose bodies are at pos. */
static bool
cb_pack_find_columns(CbPackReader *reader, uint32_t pos, uint32_t n,
					 uint32_t nwords)
{
	const unsigned char *codes = reader->blob + pos;

	if (nwords > CB_PACK_MAX_WORDS || pos + 9 * nwords > reader->limit)
		return false;
	pos += nwords;
	for (uint32_t w = 0; w < nwords; w++)
	{
		reader->code[w] = codes[w];
		if (codes[w] == CB_PACK_RAW)
			continue;
		if (CB_PACK_WIDTH(codes[w]) > CB_PACK_MAX_WIDTH ||
			CB_PACK_VIEW(codes[w]) > CB_PACK_HALVES)
			return false;
		reader->base[w] = cb_pack_load(reader->blob + pos);
		pos += 8;
	}
	for (uint32_t w = 0; w < nwords; w++)
	{
		uint32_t	bits = codes[w] == CB_PACK_RAW ? 64 : CB_PACK_WIDTH(codes[w]);

		reader->column[w] = (uint16_t) pos;
		pos += cb_pack_bytes(n, bits);
		if (pos > reader->limit)
			return false;
	}
	return true;
}

/* Makes the block of entry i the one at hand. */
static bool
cb_pack_load_block(CbPackReader *reader, uint32_t i)
{
	const CbPackBlock *block;
	uint32_t	first;
	uint32_t	n;
	uint32_t	pos;

	reader->nentries = 0;
	if (i >= reader->count)
		return false;
	block = cb_pack_find_block(reader, i, &first, &n);
	if (block == NULL)
		return false;
	reader->kind = block->kind;
	reader->tids = block->data;
	reader->tid_bits = (uint8_t) (block->heap_bits + reader->offset_bits);
	reader->heap_base = cb_pack_heap_base(block);
	pos = block->data + cb_pack_bytes(n, reader->tid_bits);
	if (block->kind == CB_PACK_BYTES)
	{
		if (n > CB_PACK_BYTES_BLOCK)
			return false;
		reader->nparsed = 0;
		reader->next = pos;
	}
	else if (!cb_pack_find_columns(reader, pos, n,
								   (uint32_t) (block->kind - CB_PACK_WORDS)))
		return false;
	reader->first = (uint16_t) first;
	reader->nentries = (uint16_t) n;
	return true;
}

/* a number of at most two bytes */
static inline uint32_t
cb_pack_get_number(const unsigned char *blob, uint32_t *pos)
{
	uint32_t	number = blob[(*pos)++];

	if (number >= 128)
		number = (number & 127) | (uint32_t) blob[(*pos)++] << 7;
	return number;
}

/* Finds the parts of the entries of a BYTES block up to number k. */
static bool
cb_pack_parse(CbPackReader *reader, uint32_t k)
{
	uint32_t	pos = reader->next;

	for (uint32_t j = reader->nparsed; j <= k; j++)
	{
		uint32_t	shared = 0;
		uint32_t	rest;
		uint32_t	len;

		/* these are at most 5 bytes: the padding is 8 */
		if (j > 0)
			shared = cb_pack_get_number(reader->blob, &pos);
		rest = cb_pack_get_number(reader->blob, &pos);
		pos += reader->form == CB_PACK_FORM_HEAD;
		len = reader->prefix_len + shared + rest;
		if ((j > 0 && shared > reader->len[j - 1]) ||
			cb_pack_content_place((CbPackForm) reader->form, len) + len >
			CB_PACK_MAX_BODY || pos + rest > reader->limit)
			return false;
		reader->pos[j] = (uint16_t) pos;
		reader->shared[j] = (uint16_t) shared;
		reader->len[j] = (uint16_t) (shared + rest);
		pos += rest;
	}
	reader->nparsed = (uint8_t) (k + 1);
	reader->next = pos;
	return true;
}

/*
 * Puts entry k of a BYTES block together: its own bytes, and before these,
 * going back, what entries before have said last.  The length of the body.
 */
static uint32_t
cb_pack_join(const CbPackReader *reader, uint32_t k, unsigned char *body)
{
	uint32_t	prefix_len = reader->prefix_len;
	uint32_t	len = prefix_len + reader->len[k];
	uint32_t	place = cb_pack_content_place((CbPackForm) reader->form, len);
	uint32_t	size = cb_pack_align(place + len);
	uint32_t	need = reader->len[k];
	unsigned char *content = body + place + prefix_len;

	if (size > 0)
		cb_pack_store(body + size - 8, 0);
	memcpy(body + place, reader->blob + reader->data - prefix_len, prefix_len);
	for (uint32_t j = k; need > 0; j--)
	{
		uint32_t	shared = reader->shared[j];

		if (shared >= need)
			continue;
		memcpy(content + shared, reader->blob + reader->pos[j], need - shared);
		need = shared;
	}
	if (reader->form == CB_PACK_FORM_HEAD)
		body[0] = reader->blob[reader->pos[k] - 1];
	else if (place == 1)
		body[0] = (unsigned char) ((len + 1) << 1 | 1);
	else if (place == 4)
	{
		uint32_t	word = (len + 4) << 2;

		for (int b = 0; b < 4; b++)
			body[b] = (unsigned char) (word >> 8 * b);
	}
	return size;
}

/* Reads entry k of a WORDS block. */
static void
cb_pack_read_words(const CbPackReader *reader, uint32_t k, uint32_t nwords,
				   unsigned char *body)
{
	for (uint32_t w = 0; w < nwords; w++)
	{
		const unsigned char *column = reader->blob + reader->column[w];
		uint32_t	code = reader->code[w];

		if (code == CB_PACK_RAW)
			memcpy(body + 8 * w, column + 8 * k, 8);
		else
			cb_pack_store(body + 8 * w,
						  cb_pack_view(reader->base[w] +
									   cb_pack_get(column, k, CB_PACK_WIDTH(code)),
									   CB_PACK_VIEW(code)));
	}
}

/* The info of entry i. */
static inline uint16_t
cb_pack_get_info(const CbPackReader *reader, uint32_t i)
{
	const unsigned char *infos = reader->blob + reader->infos;

	if (reader->info_bytes == 0)
		return reader->info;
	if (reader->info_bytes == 1)
		return (uint16_t) (infos[i] << 8 | (reader->info & 0xff));
	return (uint16_t) (infos[2 * i] << 8 | infos[2 * i + 1]);
}

bool
cb_pack_read(CbPackReader *reader, int i, CbPackEntry *entry, void *body)
{
	uint32_t	k = (uint32_t) i - reader->first;

	if (k >= reader->nentries)
	{
		if (!cb_pack_load_block(reader, (uint32_t) i))
			return false;
		k = (uint32_t) i - reader->first;
	}
	if (reader->kind != CB_PACK_BYTES)
	{
		uint32_t	nwords = (uint32_t) (reader->kind - CB_PACK_WORDS);

		cb_pack_read_words(reader, k, nwords, body);
		entry->len = (uint16_t) (8 * nwords);
	}
	else
	{
		if (k >= reader->nparsed && !cb_pack_parse(reader, k))
			return false;
		entry->len = (uint16_t) cb_pack_join(reader, k, body);
	}
	entry->body = body;
	entry->info = cb_pack_get_info(reader, (uint32_t) i);
	entry->tid = cb_pack_get_tid(reader->blob + reader->tids, k,
								 reader->tid_bits, reader->offset_bits,
								 reader->heap_base);
	return true;
}

bool
cb_pack_check(const void *blob, size_t len)
{
	CbPackReader reader;
	uint32_t	start = 0;

	if (!cb_pack_open(&reader, blob, len))
		return false;
	for (int b = 0; b < reader.nblocks; b++)
	{
		if (cb_pack_directory(&reader)[b].start != start ||
			!cb_pack_load_block(&reader, start) || reader.first != start)
			return false;
		if (reader.kind == CB_PACK_BYTES &&
			!cb_pack_parse(&reader, reader.nentries - 1u))
			return false;
		start += reader.nentries;
	}
	return start == reader.count;
}

/* ----------------------------------------------------------------
 * Kill hints
 * ----------------------------------------------------------------
 */

/* the byte of entry i's hint */
static inline unsigned char *
cb_pack_hint(const void *blob, uint32_t i)
{
	return (unsigned char *) blob + sizeof(CbPackHeader) +
		((const CbPackHeader *) blob)->nblocks * sizeof(CbPackBlock) + i / 8;
}

bool
cb_pack_is_dead(const void *blob, int i)
{
	if (i < 0 || i >= cb_pack_count(blob))
		return false;
	return __atomic_load_n(cb_pack_hint(blob, (uint32_t) i),
						   __ATOMIC_RELAXED) >> (i & 7) & 1;
}

bool
cb_pack_set_dead(void *blob, int i)
{
	unsigned char *hint;
	unsigned char was;

	if (i < 0 || i >= cb_pack_count(blob))
		return false;
	hint = cb_pack_hint(blob, (uint32_t) i);
	was = __atomic_load_n(hint, __ATOMIC_RELAXED);
	if (was >> (i & 7) & 1)
		return false;
	__atomic_store_n(hint, (unsigned char) (was | 1 << (i & 7)),
					 __ATOMIC_RELAXED);
	return true;
}

void
cb_pack_clear_dead(void *blob)
{
	memset(cb_pack_hint(blob, 0), 0, (size_t) (cb_pack_count(blob) + 7) / 8);
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
	CbPackColumns columns;
	uint32_t	nwords = (uint32_t) (rest->reader.kind - CB_PACK_WORDS);

	for (uint32_t k = 0; k < n; k++)
	{
		uint64_t	body[CB_PACK_MAX_WORDS];

		cb_pack_read_words(&rest->reader,
						   (uint32_t) ordinals[k] - rest->reader.first, nwords,
						   (unsigned char *) body);
		for (uint32_t w = 0; w < nwords; w++)
			columns.word[w][k] = cb_pack_load((unsigned char *) &body[w]);
	}
	return cb_pack_put_words(writer, &columns, n, nwords, rest->reader.code);
}

/* The same, bodies coded by prefix: each is compared with the one before. */
static bool
cb_pack_copy_bytes(CbPackRest *rest, CbPackWriter *writer, const int *ordinals,
				   uint32_t n)
{
	uint64_t	bodies[2][CB_PACK_MAX_BODY / 8];

	for (uint32_t k = 0; k < n; k++)
	{
		CbPackEntry entry;

		if (!cb_pack_read(&rest->reader, ordinals[k], &entry, bodies[k % 2]) ||
			!cb_pack_put_body(writer, k == 0, entry.body, entry.len))
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
		cb_pack_put_info(writer, (uint32_t) start + k,
						 cb_pack_get_info(&rest->reader, (uint32_t) ordinals[k]));
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
	shape->info_bytes = reader->info_bytes;
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
