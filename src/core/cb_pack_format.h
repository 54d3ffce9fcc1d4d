/*-------------------------------------------------------------------------
 *
 * cb_pack_format.h
 *	  Packed leaves: their format, for cb_pack.c and cb_pack_read.c alone.
 *
 * A blob:
 *
 *	  header		CbPackHeader, 16 bytes
 *	  directory		CbPackBlock, 10 bytes a block
 *	  LP_DEAD hints	a bit an entry
 *	  infos			0, 1 (one bit differs) or 16 bits an entry
 *	  prefix		what all contents of BYTES blocks begin with
 *	  blocks		see below, each from a byte boundary
 *	  padding		8 to 15 zero bytes: whoever reads bits may read 8 bytes
 *
 * A block begins with its TIDs.  A TID is a number: the heap block, then the
 * offset number in as many bits as the blob's greatest one needs.  What is
 * bit-packed is the difference to a reference, in the way that takes fewer
 * bytes:
 *
 *	  wide			The reference is the number of the block's least heap block with
 *					offset number 0.
 *	  tight			The reference is the block's least TID; its offset number stands
 *					in front, in 2 bytes.  So of rows in the table's order.
 *
 * Then follow the bodies, in one of two ways:
 *
 *	  WORDS(n)		All bodies are n words of 8 bytes.  A code a word: width in
 *					bits and view; the least value a word (ref, 8 bytes);
 *					then, word by word, a column of differences to the reference,
 *					bit-packed.  A word that gains nothing is stored raw.  The
 *					view says how a word is taken for a number so that near
 *					entries have near numbers: as it is (bigint), bytes
 *					reversed (uuid, characters), halves exchanged (two ints),
 *					or sloped: as it is, less the entry's position in the block
 *					times a slope, 4 bytes behind the reference (timestamps).  If a
 *					word is sloped, what stands before the columns are the
 *					positions of entries that were removed: how many, and
 *					each, in a byte.  A sloped column is 8 bits wide at least.
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
 * Bytes an entry in a leaf of 8 kB, a plain tuple with its line pointer after
 * it (make -C test/unit bench): neighbours of 5 million random bigints 9.3 /
 * 20, a thousand distinct bigints 2.5 / 20, serial 4.1 / 20, with rows in the
 * same order 2.1 to 2.3 / 20, timestamps of 1000 events a second so 3.0 / 20
 * (3.3 not sloped, 3.6 with wide TIDs), uuid 17.4 / 28, URLs of 50 characters
 * 15 / 68.  Blocks of 64 make words one bit wider than blocks of 32 do, and
 * what is once a block, 19 to 26 bytes for a bigint, half as much; 128 gain
 * nothing more.  BYTES blocks of 16 are a tenth longer, and a fifth faster
 * to read at random: a block is parsed up to the entry that is asked for.
 *
 * Removing entries keeps the division in blocks, and their kinds, views, form
 * and prefix; since all else is a least or greatest value of what there is,
 * or a sum over it, a blob never grows by it:
 *
 *	  - ranges of TIDs and words, so widths, of fewer entries are not wider; a
 *	    word goes from raw to packed, TIDs between wide and tight, only where
 *	    that is not longer
 *	  - an entry of a sloped column keeps its position, so what it is less the
 *	    slope; its byte in the column pays for the one that tells that the
 *	    position is empty
 *	  - with entries a, b, c of a BYTES block, b removed: c shares with a at
 *	    least the lesser of what a and b, b and c share; the bytes that c has
 *	    to say more are among those that b said
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_PACK_FORMAT_H
#define CB_PACK_FORMAT_H

#include <string.h>

#include "core/cb_pack.h"

#define CB_PACK_MAGIC		0xC5
#define CB_PACK_PADDING		8
#define CB_PACK_TID_BITS	48
#define CB_PACK_MAX_BLOCKS \
	((CB_PACK_MAX_ENTRIES + CB_PACK_BYTES_BLOCK - 1) / CB_PACK_BYTES_BLOCK)

/* bits of a block's TIDs, if these are tight */
#define CB_PACK_TIGHT		64
#define CB_PACK_TIGHT_HEAD	2	/* bytes in front of them */

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
#define CB_PACK_SLOPED_WIDTH 8	/* of a sloped column, at least */
#define CB_PACK_SLOPED_MOST	37	/* of what may become one: 64 slopes */
#define CB_PACK_SLOPE_LEN	4	/* bytes of a slope */

typedef enum CbPackView
{
	CB_PACK_PLAIN,
	CB_PACK_REVERSED,
	CB_PACK_HALVES,
	CB_PACK_SLOPED				/* a number, once its position is added */
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
	uint16_t	info_mask;		/* bits in which infos differ */
	uint16_t	unused;
} CbPackHeader;

typedef struct CbPackBlock
{
	uint16_t	start;			/* first entry */
	uint16_t	data;			/* place in the blob */
	uint16_t	heap_ref_low;
	uint16_t	heap_ref_high;
	uint8_t		tid_bits;		/* wide: of a heap block; else CB_PACK_TIGHT +
								 * of a TID */
	uint8_t		kind;
} CbPackBlock;

_Static_assert(sizeof(CbPackHeader) == 16, "header of a packed leaf");
_Static_assert(sizeof(CbPackBlock) == 10, "directory of a packed leaf");
_Static_assert(CB_PACK_MAX_BLOCKS <= UINT8_MAX, "blocks of a packed leaf");

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

/* bytes that the infos of n entries take */
static inline uint32_t
cb_pack_info_bytes(uint32_t n, uint16_t info_mask)
{
	if (info_mask == 0)
		return 0;
	return (info_mask & (info_mask - 1)) == 0 ? (n + 7) / 8 : 2 * n;
}

/* as many ones, up to 64 */
static inline uint64_t
cb_pack_ones(uint32_t bits)
{
	return bits == 0 ? 0 : UINT64_MAX >> (64 - bits);
}

/*
 * Value k of a column, of 64 or at most CB_PACK_MAX_WIDTH bits, of which the
 * mask is given; reads 8 bytes.
 */
static inline uint64_t
cb_pack_get(const unsigned char *column, uint32_t k, uint32_t bits,
			uint64_t mask)
{
	uint32_t	at = k * bits;

	return (cb_pack_load(column + (at >> 3)) >> (at & 7)) & mask;
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

static inline uint32_t
cb_pack_least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* where the content begins in the body that has one of this length */
static inline uint32_t
cb_pack_content_place(CbPackForm form, uint32_t len)
{
	if (form == CB_PACK_FORM_TEXT)
		return len <= 126 ? 1 : 4;
	return form == CB_PACK_FORM_HEAD ? 1 : 0;
}

/* the blocks of a blob */
static inline const CbPackBlock *
cb_pack_directory(const CbPackReader *reader)
{
	return (const CbPackBlock *) (reader->blob + sizeof(CbPackHeader));
}

/* the info of entry i */
static inline uint16_t
cb_pack_get_info(const CbPackReader *reader, uint32_t i)
{
	const unsigned char *infos = reader->blob + reader->infos;

	if (reader->info_mask == 0)
		return reader->info;
	if ((reader->info_mask & (reader->info_mask - 1)) == 0)
		return infos[i / 8] >> (i & 7) & 1 ?
			reader->info | reader->info_mask : reader->info;
	return (uint16_t) (infos[2 * i] << 8 | infos[2 * i + 1]);
}

/* the position of entry k of the WORDS block at hand */
static inline uint32_t
cb_pack_position(const CbPackReader *reader, uint32_t k)
{
	uint64_t	left = ~reader->gone;

	if (reader->gone == 0)
		return k;
	while (k-- > 0)
		left &= left - 1;
	return (uint32_t) __builtin_ctzll(left);
}

/* word w of entry k of the WORDS block at hand */
static inline uint64_t
cb_pack_get_word(const CbPackReader *reader, uint32_t k, uint32_t w)
{
	uint64_t	number = reader->ref[w] +
		cb_pack_get(reader->blob + reader->column[w], k, reader->bits[w],
					reader->mask[w]);
	uint32_t	view = CB_PACK_VIEW(reader->code[w]);

	if (view == CB_PACK_SLOPED)
		return number + reader->slope[w] * cb_pack_position(reader, k);
	return cb_pack_view(number, view);
}

/* the body of entry k of the block at hand, a plain number */
static inline uint64_t
cb_pack_get_plain(const CbPackReader *reader, uint32_t k)
{
	return reader->ref[0] + cb_pack_get(reader->blob + reader->column[0], k,
										reader->bits[0], reader->mask[0]);
}

/* Makes the block of entry i the one at hand; false: no such entry. */
extern bool cb_pack_load_block(CbPackReader *reader, uint32_t i);

#endif							/* CB_PACK_FORMAT_H */
