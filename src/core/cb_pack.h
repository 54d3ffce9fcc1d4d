/*-------------------------------------------------------------------------
 *
 * cb_pack.h
 *	  Packed leaves: a sequence of index entries as one compact blob.
 *
 * Lossless for any bodies in any order; small for those that are sorted.  The
 * format is described in cb_pack_format.h.  A blob lies at an 8-aligned
 * address.
 *
 * A blob is divided into blocks of at most CB_PACK_BLOCK entries, of different
 * lengths.  The first entry of a block is O(1) to read, so a search goes over
 * the blocks first and then into one (cb_pack_search).
 *
 * Nothing here allocates, locks, or fails other than by what it returns.
 * Readers never read outside of the blob, whatever its bytes are.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_PACK_H
#define CB_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/cb_lead.h"

#define CB_PACK_MAX_ENTRIES 3800	/* 8 kB of serial numbers take 2.1 each */
#define CB_PACK_MAX_BODY	2704
#define CB_PACK_MAX_LEN		65528	/* of a blob */
#define CB_PACK_BLOCK		64	/* entries of a block, at most */
#define CB_PACK_BYTES_BLOCK 32	/* of one whose bodies are prefix-coded */
#define CB_PACK_MAX_WORDS	8	/* of a body that is packed by words */

typedef struct CbPackEntry
{
	const void *body;			/* the index tuple behind its header */
	uint16_t	len;			/* of body; multiple of 8, <= CB_PACK_MAX_BODY */
	uint16_t	info;			/* t_info without the bits of the size */
	uint64_t	tid;			/* heap block << 16 | offset number */
} CbPackEntry;

/*
 * where a blob's parts are; the block read last.  Holds no pointers but blob.
 */
typedef struct CbPackReader
{
	const unsigned char *blob;
	uint32_t	limit;			/* the blob's length without its padding */
	uint32_t	data;			/* where the blocks' data begins */
	uint32_t	infos;			/* where the entries' infos are */
	uint32_t	guess;			/* blocks an entry, in 1/65536 */
	uint16_t	count;
	uint16_t	info;
	uint16_t	prefix_len;
	uint8_t		nblocks;
	uint8_t		offset_bits;
	uint8_t		form;
	uint16_t	info_mask;

	/* the block at hand, none if nentries is 0 */
	uint16_t	first;			/* its first entry */
	uint16_t	nentries;
	uint16_t	nplain;			/* nentries if its bodies are plain numbers */
	uint8_t		kind;
	uint8_t		tid_bits;
	uint8_t		nparsed;		/* entries whose pos, shared, len are known */
	uint32_t	tids;
	uint32_t	next;			/* where the entry after those, or the next
								 * block, begins */
	uint64_t	tid_ref;		/* what is added to each number of its TIDs */
	uint64_t	tid_mask;
	uint64_t	ref[CB_PACK_MAX_WORDS];
	uint64_t	mask[CB_PACK_MAX_WORDS];	/* of a word's width */
	uint16_t	column[CB_PACK_MAX_WORDS];
	uint8_t		code[CB_PACK_MAX_WORDS];
	uint8_t		bits[CB_PACK_MAX_WORDS];	/* of a word: its width */
	uint64_t	slope[CB_PACK_MAX_WORDS];	/* of a word that is sloped */
	uint64_t	gone;			/* positions without an entry, a bit each */
	uint16_t	pos[CB_PACK_BYTES_BLOCK];	/* of the bytes not shared */
	uint16_t	shared[CB_PACK_BYTES_BLOCK];	/* with the entry before */
	uint16_t	len[CB_PACK_BYTES_BLOCK];	/* without the blob's prefix */
	uint8_t		link[CB_PACK_BYTES_BLOCK];	/* who has the last byte shared */
} CbPackReader;

/* Encodes n entries into out; the bytes written, 0: they do not fit. */
extern size_t cb_pack_encode(const CbPackEntry *entries, int n, void *out,
							 size_t capacity);

/* Is this a blob of which every entry can be read, and removed? */
extern bool cb_pack_check(const void *blob, size_t len);

extern int	cb_pack_count(const void *blob);
extern int	cb_pack_nblocks(const void *blob);

/* Begins reading; false: not a blob of this length. */
extern bool cb_pack_open(CbPackReader *reader, const void *blob, size_t len);

/* The first entry of a block; the number of entries for block nblocks. */
extern int	cb_pack_block_start(const CbPackReader *reader, int block);

/* How many entries is_left() is true for; they come first. */
extern int	cb_pack_search(const CbPackReader *reader,
						   bool (*is_left) (void *arg, int i), void *arg);

/* The same, not asked for entries whose lead is another one. */
extern int	cb_pack_search_lead(CbPackReader *reader, CbLeadKind kind,
								int64_t lead, bool (*is_left) (void *arg, int i),
								void *arg);

/* The same for bodies that are numbers less than this one; -1: they are not. */
extern int	cb_pack_search_number(CbPackReader *reader, int64_t number,
								  bool or_equal);

/* Reads entry i, whose body is a single number; false: it is not. */
extern bool cb_pack_read_number(CbPackReader *reader, int i, int64_t *number);

/* Reads entry i, with its body; false: there is none, or it is damaged. */
extern bool cb_pack_read(CbPackReader *reader, int i, CbPackEntry *entry,
						 void *body);

/* Reads entries packed by words, many at once; 0: try cb_pack_read. */
extern int	cb_pack_read_words(CbPackReader *reader, int i, uint32_t gap,
							   void *out, uint16_t *len, uint64_t *tids);

/* The first entry that can be read so together with entry i. */
extern int	cb_pack_words_start(CbPackReader *reader, int i);

/* bytes that cb_pack_read_words may write */
#define CB_PACK_WORDS_ROOM(gap) \
	(CB_PACK_BLOCK * ((gap) + 8 * CB_PACK_MAX_WORDS))

/* The TID of entry i; 0: there is no entry i, or the blob is damaged. */
extern uint64_t cb_pack_tid(const CbPackReader *reader, int i);

/* TIDs of entry i and of those behind it in its block; how many. */
extern int	cb_pack_read_tids(const CbPackReader *reader, int i,
							  uint64_t *tids);

/* Bounds of the heap blocks of these TIDs; how many they are. */
extern int	cb_pack_heap_range(const CbPackReader *reader, int i,
							   uint32_t *low, uint32_t *high);

/* LP_DEAD hints: a bit an entry, 0 in a new blob. */
extern bool cb_pack_is_dead(const void *blob, int i);
extern bool cb_pack_has_dead(const void *blob); /* of any entry */
extern int	cb_pack_count_alive(const void *blob, int i, int n, int step);
extern bool cb_pack_set_dead(void *blob, int i);
extern void cb_pack_clear_dead(void *blob);

/* Copies the blob without these entries to out; the bytes written. */
extern size_t cb_pack_delete(const void *blob, size_t len,
							 const uint16_t *ordinals, int n, void *out);

#endif							/* CB_PACK_H */
