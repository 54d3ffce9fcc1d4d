/*-------------------------------------------------------------------------
 *
 * cb_pack_read.c
 *	  Packed leaves: opening, reading, checking, LP_DEAD hints.
 *
 * A blob may be damaged: nothing is taken from it that was not compared with
 * its length before.  That is done when a block is made the one at hand, and
 * for BYTES blocks entry by entry as they are parsed.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_pack_format.h"

#define CB_PACK_CACHE_LINE	64

/*
 * bytes of a block's bodies that tell its first one, if that is a plain number
 */
#define CB_PACK_FIRST_LEN	17

/* The number of entries, as the blob's header says. */
int
cb_pack_count(const void *blob)
{
	return ((const CbPackHeader *) blob)->count;
}

/* The number of blocks, as the blob's header says. */
int
cb_pack_nblocks(const void *blob)
{
	return ((const CbPackHeader *) blob)->nblocks;
}

/*
 * Begins reading; looks at the blob's header only.  false: not a blob of this
 * length.  The reader may be copied by value; it points to the blob, which is
 * to stay as it is but for LP_DEAD hints.
 */
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
		header->offset_bits > 16 ||
		header->form > CB_PACK_FORM_HEAD)
		return false;
	fixed = sizeof(CbPackHeader) + header->nblocks * sizeof(CbPackBlock) +
		(header->count + 7) / 8;
	reader->blob = blob;
	reader->limit = (uint32_t) len - CB_PACK_PADDING;
	reader->infos = fixed;
	reader->data = fixed + header->prefix_len +
		cb_pack_info_bytes(header->count, header->info_mask);
	reader->guess = ((uint32_t) header->nblocks << 16) / header->count;
	reader->count = header->count;
	reader->info = header->info;
	reader->info_mask = header->info_mask;
	reader->prefix_len = header->prefix_len;
	reader->nblocks = header->nblocks;
	reader->offset_bits = header->offset_bits;
	reader->form = header->form;
	reader->first = 0;
	reader->nentries = 0;
	reader->nplain = 0;
	return reader->data <= reader->limit;
}

/* The first entry of a block; the number of entries for block nblocks. */
int
cb_pack_block_start(const CbPackReader *reader, int block)
{
	if (block < 0 || block >= reader->nblocks)
		return reader->count;
	return (int) cb_pack_least(cb_pack_directory(reader)[block].start,
							   reader->count);
}

/* Has the lines of the blob between two places brought into the caches. */
static inline void
cb_pack_prefetch(const CbPackReader *reader, uint32_t from, uint32_t to)
{
	for (to = cb_pack_least(to, reader->limit); from < to;
		 from += CB_PACK_CACHE_LINE)
		__builtin_prefetch(reader->blob + from);
}

/* bits of a TID in a block */
static inline uint32_t
cb_pack_tid_bits(const CbPackReader *reader, const CbPackBlock *block)
{
	return block->tid_bits < CB_PACK_TIGHT ?
		block->tid_bits + (uint32_t) reader->offset_bits :
		block->tid_bits - (uint32_t) CB_PACK_TIGHT;
}

/* Has the places where blocks' bodies begin brought into the caches. */
static inline void
cb_pack_prefetch_blocks(const CbPackReader *reader)
{
	const CbPackBlock *directory = cb_pack_directory(reader);

	for (uint32_t b = 0; b < reader->nblocks; b++)
	{
		uint32_t	n = (uint32_t) (cb_pack_block_start(reader, (int) b + 1) -
									cb_pack_block_start(reader, (int) b));
		uint32_t	bodies = directory[b].data +
			cb_pack_bytes(n, cb_pack_tid_bits(reader, &directory[b]));

		cb_pack_prefetch(reader, bodies, bodies + 1);
		cb_pack_prefetch(reader, bodies + CB_PACK_CACHE_LINE / 2,
						 bodies + CB_PACK_CACHE_LINE / 2 + 1);
	}
}

/* the TIDs of a block */
typedef struct CbPackTids
{
	const CbPackBlock *block;
	uint32_t	first;			/* the block's first entry */
	uint32_t	n;				/* its entries */
	uint32_t	column;			/* place of the TIDs */
	uint32_t	bits;			/* of each */
	uint64_t	ref;
} CbPackTids;

/*
 * Finds the block of entry i, and its TIDs; false: damaged.  The blocks are
 * about equally long, so that a guess is near.
 */
static inline __attribute__((always_inline))
bool
cb_pack_find_block(const CbPackReader *reader, uint32_t i, CbPackTids *tids)
{
	const CbPackBlock *directory = cb_pack_directory(reader);
	uint32_t	last = reader->nblocks - 1u;
	uint32_t	b = cb_pack_least((i * reader->guess) >> 16, last);
	const CbPackBlock *block;
	uint32_t	end;

	while (b > 0 && directory[b].start > i)
		b--;
	while (b < last && directory[b + 1].start <= i)
		b++;
	block = &directory[b];
	end = b == last ? reader->count : directory[b + 1].start;
	tids->block = block;
	tids->first = block->start;
	tids->n = end - block->start;
	tids->column = block->data;
	tids->bits = cb_pack_tid_bits(reader, block);
	tids->ref = ((uint64_t) block->heap_ref_high << 16 |
				 block->heap_ref_low) << reader->offset_bits;
	if (i < block->start || i >= end || end > reader->count ||
		tids->n > CB_PACK_BLOCK || block->data < reader->data ||
		tids->bits > CB_PACK_TID_BITS)
		return false;
	if (block->tid_bits >= CB_PACK_TIGHT)
	{
		/* these bytes are in the blob: the padding is longer */
		if (block->data > reader->limit)
			return false;
		tids->ref += cb_pack_load(reader->blob + block->data) & 0xffff;
		tids->column += CB_PACK_TIGHT_HEAD;
	}
	return tids->column + cb_pack_bytes(tids->n, tids->bits) <= reader->limit;
}

/* TID k of a column */
static inline uint64_t
cb_pack_get_tid(const unsigned char *column, uint32_t k, uint32_t bits,
				uint64_t mask, uint32_t offset_bits, uint64_t ref)
{
	uint64_t	number = ref + cb_pack_get(column, k, bits, mask);
	uint64_t	heap = number >> offset_bits;

	return ((heap << 16) + (number ^ heap << offset_bits)) &
		cb_pack_ones(CB_PACK_TID_BITS);
}

/* The TID of entry i; 0: there is no entry i, or the blob is damaged. */
uint64_t
cb_pack_tid(const CbPackReader *reader, int i)
{
	CbPackTids	tids;

	if ((uint32_t) i - reader->first < reader->nentries)
		return cb_pack_get_tid(reader->blob + reader->tids,
							   (uint32_t) i - reader->first, reader->tid_bits,
							   reader->tid_mask, reader->offset_bits,
							   reader->tid_ref);
	if ((uint32_t) i >= reader->count ||
		!cb_pack_find_block(reader, (uint32_t) i, &tids))
		return 0;
	return cb_pack_get_tid(reader->blob + tids.column, (uint32_t) i - tids.first,
						   tids.bits, cb_pack_ones(tids.bits),
						   reader->offset_bits, tids.ref);
}

/*
 * The TIDs of entry i and of those behind it in its block, in tids, which has
 * room for CB_PACK_BLOCK; how many.  0: there is no entry i, or the blob is
 * damaged.
 */
int
cb_pack_read_tids(const CbPackReader *reader, int i, uint64_t *out)
{
	CbPackTids	tids;

	if ((uint32_t) i >= reader->count ||
		!cb_pack_find_block(reader, (uint32_t) i, &tids))
		return 0;
	for (uint32_t k = (uint32_t) i - tids.first; k < tids.n; k++)
		*out++ = cb_pack_get_tid(reader->blob + tids.column, k, tids.bits,
								 cb_pack_ones(tids.bits), reader->offset_bits,
								 tids.ref);
	return (int) (tids.first + tids.n) - i;
}

/*
 * The heap blocks of the TIDs that cb_pack_read_tids() would read are not
 * outside of *low to *high, whatever the blob's bytes are; O(1).  How many
 * they are; 0 as there.
 */
int
cb_pack_heap_range(const CbPackReader *reader, int i, uint32_t *low,
				   uint32_t *high)
{
	CbPackTids	tids;
	uint64_t	end;

	if ((uint32_t) i >= reader->count ||
		!cb_pack_find_block(reader, (uint32_t) i, &tids))
		return 0;
	*low = (uint32_t) (tids.ref >> reader->offset_bits);
	end = (tids.ref + cb_pack_ones(tids.bits)) >> reader->offset_bits;
	*high = (uint32_t) (end < UINT32_MAX ? end : UINT32_MAX);
	if (end > UINT32_MAX)
		*low = 0;				/* the sum of reference and difference may
								 * wrap */
	return (int) (tids.first + tids.n) - i;
}

/*
 * Reads which positions of a block of n entries are empty; the list of them is
 * at pos, which is moved behind it.
 */
static bool
__attribute__((noinline))
cb_pack_read_gone(CbPackReader *reader, uint32_t *pos, uint32_t n)
{
	uint32_t	ngone;

	if (*pos >= reader->limit)
		return false;
	ngone = reader->blob[(*pos)++];
	if (n + ngone > CB_PACK_BLOCK || *pos + ngone > reader->limit)
		return false;
	for (; ngone > 0; ngone--)
	{
		uint32_t	position = reader->blob[(*pos)++];

		if (position >= CB_PACK_BLOCK)
			return false;
		reader->gone |= UINT64_C(1) << position;
	}
	return true;
}

/* Reads the slope of word w; false: it is no sloped one, or damaged. */
static bool
__attribute__((noinline))
cb_pack_read_slope(CbPackReader *reader, uint32_t *pos, uint32_t w)
{
	if (CB_PACK_VIEW(reader->code[w]) != CB_PACK_SLOPED ||
		CB_PACK_WIDTH(reader->code[w]) < CB_PACK_SLOPED_WIDTH ||
		*pos + CB_PACK_SLOPE_LEN > reader->limit)
		return false;
	reader->slope[w] = (uint64_t) (int32_t) cb_pack_load(reader->blob + *pos);
	*pos += CB_PACK_SLOPE_LEN;
	return true;
}

/* Finds the columns of a WORDS block whose bodies are at pos. */
static bool
cb_pack_find_columns(CbPackReader *reader, uint32_t pos, uint32_t n,
					 uint32_t nwords)
{
	const unsigned char *codes = reader->blob + pos;
	bool		sloped = false;

	if (nwords > CB_PACK_MAX_WORDS || pos + 9 * nwords > reader->limit)
		return false;
	pos += nwords;
	reader->gone = 0;
	for (uint32_t w = 0; w < nwords; w++)
	{
		reader->code[w] = codes[w];
		if (codes[w] == CB_PACK_RAW)
		{
			reader->ref[w] = 0;
			continue;
		}
		/* slopes may have taken the room of this one */
		if (CB_PACK_WIDTH(codes[w]) > CB_PACK_MAX_WIDTH ||
			pos + 8 > reader->limit)
			return false;
		reader->ref[w] = cb_pack_load(reader->blob + pos);
		pos += 8;
		if (CB_PACK_VIEW(codes[w]) > CB_PACK_HALVES)
		{
			if (!cb_pack_read_slope(reader, &pos, w))
				return false;
			sloped = true;
		}
	}
	if (sloped && !cb_pack_read_gone(reader, &pos, n))
		return false;
	for (uint32_t w = 0; w < nwords; w++)
	{
		uint32_t	bits = codes[w] == CB_PACK_RAW ? 64 : CB_PACK_WIDTH(codes[w]);

		reader->bits[w] = (uint8_t) bits;
		reader->mask[w] = cb_pack_ones(bits);
		reader->column[w] = (uint16_t) pos;
		pos += cb_pack_bytes(n, bits);
		if (pos > reader->limit)
			return false;
	}
	reader->next = pos;
	return true;
}

/*
 * Makes the block of entry i the one at hand; false: no such entry, or it is
 * damaged; then none is at hand.
 */
bool
cb_pack_load_block(CbPackReader *reader, uint32_t i)
{
	CbPackTids	tids;
	uint32_t	n;
	uint32_t	pos;

	reader->nentries = 0;
	reader->nplain = 0;
	if (i >= reader->count || !cb_pack_find_block(reader, i, &tids))
		return false;
	n = tids.n;
	reader->kind = tids.block->kind;
	reader->tids = tids.column;
	reader->tid_bits = (uint8_t) tids.bits;
	reader->tid_mask = cb_pack_ones(tids.bits);
	reader->tid_ref = tids.ref;
	pos = tids.column + cb_pack_bytes(n, tids.bits);
	if (reader->kind == CB_PACK_BYTES)
	{
		if (n > CB_PACK_BYTES_BLOCK)
			return false;
		reader->nparsed = 0;
		reader->next = pos;
	}
	else if (!cb_pack_find_columns(reader, pos, n,
								   (uint32_t) (reader->kind - CB_PACK_WORDS)))
		return false;
	reader->first = (uint16_t) tids.first;
	reader->nentries = (uint16_t) n;
	if (reader->kind == CB_PACK_WORDS + 1 && reader->info_mask == 0 &&
		CB_PACK_VIEW(reader->code[0]) == CB_PACK_PLAIN)
		reader->nplain = reader->nentries;
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

/*
 * Which entry before number j has said the last byte that j shares: the last
 * one that shares less itself.
 */
static inline uint8_t
cb_pack_find_link(const CbPackReader *reader, uint32_t j, uint32_t shared)
{
	uint32_t	link = j;

	if (shared == 0)
		return (uint8_t) j;
	for (link = j - 1; reader->shared[link] >= shared;)
		link = reader->link[link];
	return (uint8_t) link;
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
		reader->link[j] = cb_pack_find_link(reader, j, shared);
		pos += rest;
	}
	reader->nparsed = (uint8_t) (k + 1);
	reader->next = pos;
	return true;
}

/* The number of entries of [low, high), plus low, for which it is true. */
static inline __attribute__((always_inline))
int
cb_pack_search_block(int low, int high, bool (*is_left) (void *arg, int i),
					 void *arg)
{
	while (low < high)
	{
		int			mid = low + (high - low) / 2;

		if (is_left(arg, mid))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Made anew for each is_left() that it is called with. */
static inline __attribute__((always_inline))
int
cb_pack_search_by(const CbPackReader *reader,
				  bool (*is_left) (void *arg, int i), void *arg)
{
	const CbPackBlock *directory = cb_pack_directory(reader);
	int			first = 0;
	int			last = reader->nblocks;

	cb_pack_prefetch_blocks(reader);
	while (first < last)
	{
		int			mid = first + (last - first) / 2;

		if (is_left(arg, cb_pack_block_start(reader, mid)))
			first = mid + 1;
		else
			last = mid;
	}
	if (first == 0)
		return 0;
	cb_pack_prefetch(reader, directory[first - 1].data,
					 first < reader->nblocks ? directory[first].data :
					 reader->limit);
	return cb_pack_search_block(cb_pack_block_start(reader, first - 1) + 1,
								cb_pack_block_start(reader, first),
								is_left, arg);
}

/*
 * How many entries is_left() is true for, of which there are none behind one
 * for which it is false.  Looks at the blocks' first ones, then into a block;
 * what it may look at next is brought into the processor's caches meanwhile.
 * is_left() may longjmp.
 */
int
cb_pack_search(const CbPackReader *reader,
			   bool (*is_left) (void *arg, int i), void *arg)
{
	return cb_pack_search_by(reader, is_left, arg);
}

typedef struct CbPackNumberSearch
{
	CbPackReader *reader;
	int64_t		number;
	bool		or_equal;
	bool		failed;
} CbPackNumberSearch;

/*
 * Reads entry i, whose body is a single number; false: it is not, or there is
 * no such entry, or it is damaged.
 */
bool
cb_pack_read_number(CbPackReader *reader, int i, int64_t *number)
{
	uint32_t	k = (uint32_t) i - reader->first;

	if (k >= reader->nentries)
	{
		if (i < 0 || !cb_pack_load_block(reader, (uint32_t) i))
			return false;
		k = (uint32_t) i - reader->first;
	}
	if (reader->nplain == 0 &&
		(reader->kind != CB_PACK_WORDS + 1 || reader->info_mask != 0 ||
		 CB_PACK_VIEW(reader->code[0]) != CB_PACK_SLOPED))
		return false;
	*number = (int64_t) cb_pack_get_word(reader, k, 0);
	return true;
}

static inline bool
cb_pack_number_is_left(void *arg, int i)
{
	CbPackNumberSearch *search = arg;
	CbPackReader *reader = search->reader;
	uint32_t	k = (uint32_t) i - reader->first;
	int64_t		number;

	if (k < reader->nplain)
		number = (int64_t) cb_pack_get_plain(reader, k);
	else if (!cb_pack_read_number(reader, i, &number))
	{
		search->failed = true;
		return false;
	}
	return number < search->number ||
		(search->or_equal && number == search->number);
}

/*
 * Finds the places where blocks' bodies begin, and has them brought into the
 * caches.
 */
static inline __attribute__((always_inline))
void
cb_pack_find_bodies(const CbPackReader *reader, uint32_t *bodies)
{
	const CbPackBlock *block = cb_pack_directory(reader);

	for (uint32_t b = 0; b < reader->nblocks; b++, block++)
	{
		uint32_t	end = b + 1 < reader->nblocks ? block[1].start : reader->count;
		uint32_t	tids = cb_pack_bytes(end - block->start,
										 cb_pack_tid_bits(reader, block));

		bodies[b] = block->data + tids +
			(block->tid_bits < CB_PACK_TIGHT ? 0 : CB_PACK_TIGHT_HEAD);
		if (bodies[b] >= reader->limit)
			continue;
		__builtin_prefetch(reader->blob + bodies[b]);
		__builtin_prefetch(reader->blob + bodies[b] + CB_PACK_FIRST_LEN - 1);
	}
}

/*
 * The first word of the first entry of a block, whose bodies begin there and are so
 * many words, one at least; false: one is sloped, or it is damaged.
 */
static inline __attribute__((always_inline))
bool
cb_pack_first_word(const CbPackReader *reader, uint32_t nwords, uint32_t bodies,
				   uint64_t *word)
{
	const unsigned char *codes = reader->blob + bodies;
	uint32_t	column = bodies + nwords;

	if (column + 8 * nwords > reader->limit)
		return false;
	for (uint32_t w = 0; w < nwords; w++)
	{
		if (CB_PACK_VIEW(codes[w]) == CB_PACK_SLOPED)
			return false;
		column += codes[w] == CB_PACK_RAW ? 0 : 8;
	}
	*word = cb_pack_load(reader->blob + column);
	if (*codes != CB_PACK_RAW)
		*word = cb_pack_view(cb_pack_load(codes + nwords) +
							 (*word & cb_pack_ones(CB_PACK_WIDTH(*codes))),
							 CB_PACK_VIEW(*codes));
	return true;
}

/*
 * As cb_pack_search_number(), -1 also where numbers are not stored as they
 * are.
 */
static int
cb_pack_search_plain(CbPackReader *reader, int64_t number, bool or_equal)
{
	uint32_t	bodies[UINT8_MAX + 1];
	uint32_t	first = 0;
	uint32_t	last = reader->nblocks;
	int			low;
	int			high;

	if (reader->info_mask != 0)
		return -1;
	cb_pack_find_bodies(reader, bodies);
	while (first < last)
	{
		uint32_t	mid = first + (last - first) / 2;
		uint64_t	value;

		if (cb_pack_directory(reader)[mid].kind != CB_PACK_WORDS + 1 ||
			bodies[mid] >= reader->limit ||
			CB_PACK_VIEW(reader->blob[bodies[mid]]) != CB_PACK_PLAIN ||
			!cb_pack_first_word(reader, 1, bodies[mid], &value))
			return -1;
		if ((int64_t) value < number || (or_equal && (int64_t) value == number))
			first = mid + 1;
		else
			last = mid;
	}
	if (first == 0)
		return 0;
	cb_pack_prefetch(reader, bodies[first - 1],
					 first < reader->nblocks ?
					 cb_pack_directory(reader)[first].data : reader->limit);
	low = cb_pack_block_start(reader, first - 1);
	if (!cb_pack_load_block(reader, low) || reader->first != low || reader->nplain == 0)
		return -1;
	high = low + reader->nplain;
	low++;						/* is left of it, as seen above */
	while (low < high)
	{
		int			mid = low + (high - low) / 2;
		int64_t		value = (int64_t) cb_pack_get_plain(reader,
														mid - reader->first);

		if (value < number || (or_equal && value == number))
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/*
 * The same for the entries whose bodies are a number less than the one given,
 * or no greater if or_equal: signed, in ascending order.  -1: bodies are not
 * single numbers, or the blob is damaged.
 */
int
cb_pack_search_number(CbPackReader *reader, int64_t number, bool or_equal)
{
	CbPackNumberSearch search = {reader, number, or_equal, false};
	int			n = cb_pack_search_plain(reader, number, or_equal);

	if (n >= 0)
		return n;
	n = cb_pack_search_by(reader, cb_pack_number_is_left, &search);
	return search.failed ? -1 : n;
}

/*
 * The lead of an entry of a BYTES block whose content begins with these 8 bytes; first
 * is what stands apart of it, if that is so.  False: it has none, or its form does not
 * tell.
 */
static inline bool
cb_pack_lead_of_content(const CbPackReader *reader, CbLeadKind kind,
						uint64_t content, uint8_t first, int64_t *lead)
{
	if (cb_lead_is_of_body(kind))
	{
		if (reader->form == CB_PACK_FORM_HEAD)
			content = content << 8 | first;
		return reader->form != CB_PACK_FORM_TEXT && cb_lead(kind, content, lead);
	}
	if (reader->form == CB_PACK_FORM_HEAD && cb_lead_is_short(first))
		content = cb_lead_cut(content, cb_lead_short_len(first));
	else if (reader->form != CB_PACK_FORM_TEXT)
		return false;
	return cb_lead_of_content(kind, content, lead);
}

/* n bytes of a content, from its place on, as far as they are among the first 8. */
static inline uint64_t
cb_pack_piece(const CbPackReader *reader, uint32_t pos, uint32_t n, uint32_t place)
{
	if (place >= sizeof(uint64_t))
		return 0;
	return cb_lead_cut(cb_pack_load(reader->blob + pos), n) << 8 * place;
}

/* What the contents of entry k of the BYTES block at hand begin with. */
static uint64_t
cb_pack_content(const CbPackReader *reader, uint32_t k)
{
	uint32_t	prefix = reader->prefix_len;
	uint64_t	content = cb_pack_piece(reader, reader->data - prefix, prefix, 0);
	uint32_t	end = reader->len[k];
	uint32_t	j = k;

	for (; reader->shared[j] > 0; j = reader->link[j])
	{
		content |= cb_pack_piece(reader, reader->pos[j], end - reader->shared[j],
								 prefix + reader->shared[j]);
		end = reader->shared[j];
	}
	return content | cb_pack_piece(reader, reader->pos[j], end, prefix);
}

/* cb_pack_find_lead of any entry */
static bool
__attribute__((noinline))
cb_pack_find_any_lead(CbPackReader *reader, CbLeadKind kind, uint32_t k, int64_t *lead)
{
	uint32_t	nwords = (uint32_t) (reader->kind - CB_PACK_WORDS);
	unsigned char body[2 * sizeof(uint64_t)];
	uint64_t	head;

	if (reader->kind == CB_PACK_BYTES)
	{
		if (k >= reader->nparsed && !cb_pack_parse(reader, k))
			return false;
		return cb_pack_lead_of_content(reader, kind, cb_pack_content(reader, k),
									   reader->blob[reader->pos[k] - 1], lead);
	}
	if (nwords == 0)
		return false;
	cb_pack_store(body, cb_pack_get_word(reader, k, 0));
	if (nwords > 1)
		cb_pack_store(body + sizeof(head), cb_pack_get_word(reader, k, 1));
	return cb_lead_find_head(body, nwords > 1 ? sizeof(body) : sizeof(head), &head) &&
		cb_lead_of_content(kind, head, lead);
}

/* The lead of entry k of the block at hand; false: it has none, or is damaged. */
static inline bool
cb_pack_find_lead(CbPackReader *reader, CbLeadKind kind, uint32_t k, int64_t *lead)
{
	if (!cb_lead_is_of_body(kind) || reader->kind <= CB_PACK_WORDS)
		return cb_pack_find_any_lead(reader, kind, k, lead);
	return cb_lead(kind, cb_pack_get_word(reader, k, 0), lead);
}

/* cb_pack_first_lead of a BYTES block */
static bool
__attribute__((noinline))
cb_pack_first_of_bytes(const CbPackReader *reader, CbLeadKind kind, uint32_t pos,
					   int64_t *lead)
{
	uint32_t	prefix = reader->prefix_len;
	uint64_t	content = cb_pack_piece(reader, reader->data - prefix, prefix, 0);
	uint32_t	n = cb_pack_get_number(reader->blob, &pos);

	pos += reader->form == CB_PACK_FORM_HEAD;
	if (pos + n > reader->limit)
		return false;
	content |= cb_pack_piece(reader, pos, n, prefix);
	return cb_pack_lead_of_content(reader, kind, content, reader->blob[pos - 1], lead);
}

/*
 * The lead of the first entry of a block whose bodies begin there; false: it has none,
 * is not at hand at once, or is damaged.
 */
static inline __attribute__((always_inline))
bool
cb_pack_first_lead(const CbPackReader *reader, CbLeadKind kind, uint32_t block,
				   uint32_t bodies, int64_t *lead)
{
	uint32_t	block_kind = cb_pack_directory(reader)[block].kind;
	uint32_t	nwords = block_kind - (uint32_t) CB_PACK_WORDS;
	uint64_t	word;

	if (cb_lead_is_of_body(kind) && nwords - 1u < CB_PACK_MAX_WORDS)
	{
		return cb_pack_first_word(reader, nwords, bodies, &word) &&
			cb_lead(kind, word, lead);
	}
	return block_kind == CB_PACK_BYTES && bodies < reader->limit &&
		cb_pack_first_of_bytes(reader, kind, bodies, lead);
}

typedef struct CbPackLeadSearch
{
	CbPackReader *reader;
	CbLeadKind	kind;
	int64_t		lead;
	bool		(*is_left) (void *arg, int i);
	void	   *arg;
} CbPackLeadSearch;

static inline bool
cb_pack_lead_is_left(void *arg, int i)
{
	CbPackLeadSearch *search = arg;
	CbPackReader *reader = search->reader;
	uint32_t	k = (uint32_t) i - reader->first;
	int64_t		lead;

	if (k >= reader->nentries && cb_pack_load_block(reader, (uint32_t) i))
		k = (uint32_t) i - reader->first;
	if (k < reader->nentries && cb_pack_find_lead(reader, search->kind, k, &lead) &&
		lead != search->lead)
		return lead < search->lead;
	return search->is_left(search->arg, i);
}

/* The same of the first entry of a block whose bodies begin there. */
static inline __attribute__((always_inline))
bool
cb_pack_block_is_left(CbPackLeadSearch *search, uint32_t block, uint32_t bodies)
{
	int			start = cb_pack_block_start(search->reader, (int) block);
	int64_t		lead;

	if (!cb_pack_first_lead(search->reader, search->kind, block, bodies, &lead))
		return cb_pack_lead_is_left(search, start);
	if (lead != search->lead)
		return lead < search->lead;
	return search->is_left(search->arg, start);
}

/*
 * As cb_pack_search(), where is_left() is true for entries whose bodies have a
 * lesser lead than this one, and false for those with a greater one: it is not
 * asked for these, where they are at hand.  No body is empty.
 */
int
cb_pack_search_lead(CbPackReader *reader, CbLeadKind kind, int64_t lead,
					bool (*is_left) (void *arg, int i), void *arg)
{
	CbPackLeadSearch search = {reader, kind, lead, is_left, arg};
	uint32_t	bodies[UINT8_MAX + 1];
	uint32_t	first = 0;
	uint32_t	last = reader->nblocks;
	int			n;

	cb_pack_find_bodies(reader, bodies);
	while (first < last)
	{
		uint32_t	mid = first + (last - first) / 2;

		if (cb_pack_block_is_left(&search, mid, bodies[mid]))
			first = mid + 1;
		else
			last = mid;
	}
	if (first == 0)
		return 0;
	n = cb_pack_search_block(cb_pack_block_start(reader, (int) first - 1) + 1,
							 cb_pack_block_start(reader, (int) first),
							 cb_pack_lead_is_left, &search);
	return n <= reader->count ? n : reader->count;	/* a damaged one's */
}

/*
 * Copies bytes of the blob to a body; may write up to 15 bytes behind them
 * where the body has room for these.
 */
static inline void
cb_pack_copy(const CbPackReader *reader, unsigned char *body, uint32_t to,
			 uint32_t from, uint32_t n)
{
	uint32_t	end = to + n;

	if (end + 16 > CB_PACK_MAX_BODY || from + n + 8 > reader->limit)
	{
		memcpy(body + to, reader->blob + from, n);
		return;
	}
	for (; to < end; to += 16, from += 16)
		memcpy(body + to, reader->blob + from, 16);
}

/* The contents of entry k of a BYTES block, from this place in the body. */
static inline void
cb_pack_join(const CbPackReader *reader, uint32_t k, unsigned char *body,
			 uint32_t place)
{
	uint8_t		chain[CB_PACK_BYTES_BLOCK];
	uint32_t	n = 0;
	uint32_t	j = k;

	cb_pack_copy(reader, body, place, reader->data - reader->prefix_len,
				 reader->prefix_len);
	place += reader->prefix_len;
	for (; reader->shared[j] > 0; j = reader->link[j])
		chain[n++] = (uint8_t) j;
	while (n > 0)
	{
		uint32_t	next = chain[--n];

		cb_pack_copy(reader, body, place + reader->shared[j], reader->pos[j],
					 (uint32_t) reader->shared[next] - reader->shared[j]);
		j = next;
	}
	cb_pack_copy(reader, body, place + reader->shared[k], reader->pos[k],
				 (uint32_t) reader->len[k] - reader->shared[k]);
}

/* Reads the body of entry k of a BYTES block; its length. */
static uint32_t
cb_pack_read_bytes(const CbPackReader *reader, uint32_t k, unsigned char *body)
{
	uint32_t	len = reader->prefix_len + reader->len[k];
	uint32_t	place = cb_pack_content_place((CbPackForm) reader->form, len);
	uint32_t	size = cb_pack_align(place + len);

	cb_pack_join(reader, k, body, place);
	for (uint32_t b = place + len; b < size; b++)
		body[b] = 0;
	if (reader->form == CB_PACK_FORM_HEAD)
		body[0] = reader->blob[reader->pos[k] - 1];
	else if (place == 1)
		body[0] = (unsigned char) ((len + 1) << 1 | 1);
	else if (place == 4)
	{
		for (int b = 0; b < 4; b++)
			body[b] = (unsigned char) ((len + 4) << 2 >> 8 * b);
	}
	return size;
}

/* cb_pack_read of any entry */
static bool
__attribute__((noinline))
cb_pack_read_any(CbPackReader *reader, uint32_t i, CbPackEntry *entry,
				 unsigned char *body)
{
	uint32_t	k = i - reader->first;

	if (k >= reader->nentries)
	{
		if (!cb_pack_load_block(reader, i))
			return false;
		k = i - reader->first;
	}
	if (reader->kind != CB_PACK_BYTES)
	{
		uint32_t	nwords = (uint32_t) (reader->kind - CB_PACK_WORDS);

		for (uint32_t w = 0; w < nwords; w++)
			cb_pack_store(body + 8 * w, cb_pack_get_word(reader, k, w));
		entry->len = (uint16_t) (8 * nwords);
	}
	else
	{
		if (k >= reader->nparsed && !cb_pack_parse(reader, k))
			return false;
		entry->len = (uint16_t) cb_pack_read_bytes(reader, k, body);
	}
	entry->body = body;
	entry->info = cb_pack_get_info(reader, i);
	entry->tid = cb_pack_get_tid(reader->blob + reader->tids, k,
								 reader->tid_bits, reader->tid_mask,
								 reader->offset_bits, reader->tid_ref);
	return true;
}

/*
 * Reads entry i; its body is copied to body, which is 8-aligned and has room
 * for CB_PACK_MAX_BODY bytes.  Where bodies are packed by words any entry is
 * O(1), and a few shifts where they are plain numbers, which is the usual
 * case; else O(block), and O(1) next to the one read before.  false: there is
 * no entry i, or the blob is damaged.
 */
bool
cb_pack_read(CbPackReader *reader, int i, CbPackEntry *entry, void *body)
{
	uint32_t	k = (uint32_t) i - reader->first;

	if (k >= reader->nplain)
		return cb_pack_read_any(reader, (uint32_t) i, entry, body);
	cb_pack_store(body, cb_pack_get_plain(reader, k));
	entry->body = body;
	entry->len = 8;
	entry->info = reader->info;
	entry->tid = cb_pack_get_tid(reader->blob + reader->tids, k,
								 reader->tid_bits, reader->tid_mask,
								 reader->offset_bits, reader->tid_ref);
	return true;
}

/* Loads entry i's block: is it packed by words, with one info? */
static bool
cb_pack_load_words(CbPackReader *reader, uint32_t i)
{
	if (i - reader->first >= reader->nentries && !cb_pack_load_block(reader, i))
		return false;
	return reader->kind != CB_PACK_BYTES && reader->info_mask == 0;
}

/*
 * The first entry of entry i's block, if cb_pack_read_words() reads that, else i.
 */
int
cb_pack_words_start(CbPackReader *reader, int i)
{
	return cb_pack_load_words(reader, (uint32_t) i) ? (int) reader->first : i;
}

/*
 * Reads entry i and those behind it in its block at once, if they are packed
 * by words and share one info: out, of CB_PACK_WORDS_ROOM(gap) bytes, gets,
 * for each, gap bytes that are left alone and the body of *len bytes; tids the
 * TIDs.  gap is a multiple of 8.  How many were read; 0: not so, try
 * cb_pack_read.
 */
int
cb_pack_read_words(CbPackReader *reader, int i, uint32_t gap, void *out,
				   uint16_t *len, uint64_t *tids)
{
	uint32_t	k;
	uint32_t	nwords;
	uint32_t	stride;
	uint32_t	n;

	if (!cb_pack_load_words(reader, (uint32_t) i))
		return 0;
	k = (uint32_t) i - reader->first;
	nwords = (uint32_t) (reader->kind - CB_PACK_WORDS);
	stride = gap + 8 * nwords;
	n = reader->nentries - k;
	for (uint32_t w = 0; w < nwords; w++)
	{
		unsigned char *at = (unsigned char *) out + gap + 8 * w;

		for (uint32_t j = 0; j < n; j++, at += stride)
			cb_pack_store(at, cb_pack_get_word(reader, k + j, w));
	}
	for (uint32_t j = 0; j < n; j++)
		tids[j] = cb_pack_get_tid(reader->blob + reader->tids, k + j,
								  reader->tid_bits, reader->tid_mask,
								  reader->offset_bits, reader->tid_ref);
	*len = (uint16_t) (8 * nwords);
	return (int) n;
}

/* Have the TIDs of the block at hand heap blocks that there can be? */
static bool
cb_pack_check_tids(const CbPackReader *reader)
{
	for (uint32_t k = 0; k < reader->nentries; k++)
	{
		uint64_t	number = reader->tid_ref +
			cb_pack_get(reader->blob + reader->tids, k, reader->tid_bits,
						reader->tid_mask);

		if (number >> reader->offset_bits > UINT32_MAX)
			return false;
	}
	return true;
}

/*
 * Is this a blob of which every entry can be read, and removed?  Looks at all
 * of it.  len: its length in bytes, padding included.
 */
bool
cb_pack_check(const void *blob, size_t len)
{
	CbPackReader reader;
	uint32_t	start = 0;
	uint32_t	end;

	if (!cb_pack_open(&reader, blob, len))
		return false;
	end = reader.data;
	for (int b = 0; b < reader.nblocks; b++)
	{
		const CbPackBlock *block = &cb_pack_directory(&reader)[b];

		/* blocks that overlapped would take more when they are copied */
		if (block->start != start || block->data != end ||
			!cb_pack_load_block(&reader, start) || reader.first != start ||
			!cb_pack_check_tids(&reader))
			return false;
		if (reader.kind == CB_PACK_BYTES &&
			!cb_pack_parse(&reader, reader.nentries - 1u))
			return false;
		start += reader.nentries;
		end = reader.next;
	}
	return start == reader.count &&
		cb_pack_align(end) + CB_PACK_PADDING == len;
}

/* ----------------------------------------------------------------
 * LP_DEAD hints
 * ----------------------------------------------------------------
 */

/* the byte of entry i's hint */
static inline unsigned char *
cb_pack_hint(const void *blob, uint32_t i)
{
	return (unsigned char *) blob + sizeof(CbPackHeader) +
		((const CbPackHeader *) blob)->nblocks * sizeof(CbPackBlock) + i / 8;
}

/* Is entry i's hint set, in all entries' hints? */
static inline bool
cb_pack_hint_is_set(const unsigned char *hints, uint32_t i)
{
	return __atomic_load_n(&hints[i / 8], __ATOMIC_RELAXED) >> (i & 7) & 1;
}

/* Is entry i's LP_DEAD hint set?  False if there is no entry i. */
bool
cb_pack_is_dead(const void *blob, int i)
{
	if (i < 0 || i >= cb_pack_count(blob))
		return false;
	return cb_pack_hint_is_set(cb_pack_hint(blob, 0), (uint32_t) i);
}

/* Is the LP_DEAD hint of any entry set? */
bool
cb_pack_has_dead(const void *blob)
{
	const unsigned char *hints = cb_pack_hint(blob, 0);
	uint32_t	n = (uint32_t) (cb_pack_count(blob) + 7) / 8;
	unsigned char any = 0;

	for (uint32_t b = 0; b < n; b++)
		any |= hints[b];
	return any != 0;
}

/*
 * Of n entries, from entry i on in steps of 1 or -1, so many come before the first
 * one whose LP_DEAD hint is set.  The blob has them.
 */
int
cb_pack_count_alive(const void *blob, int i, int n, int step)
{
	const unsigned char *hints = cb_pack_hint(blob, 0);

	for (int k = 0; k < n; k++, i += step)
	{
		if (cb_pack_hint_is_set(hints, (uint32_t) i))
			return k;
	}
	return n;
}

/*
 * Sets entry i's LP_DEAD hint; true if it was not set before.  Under the
 * page's share lock: hints may be set by several at a time; one may get lost
 * then.
 */
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

/* Clears all LP_DEAD hints; nobody else looks at the blob. */
void
cb_pack_clear_dead(void *blob)
{
	memset(cb_pack_hint(blob, 0), 0, (size_t) (cb_pack_count(blob) + 7) / 8);
}
