/*
 * tree.h - a B+-tree of 8 kB pages laid out as the server's: header, line
 * pointers that grow up, tuples of 16 bytes that grow down, special space.
 *
 * A tuple is a TID of 6 bytes, 2 bytes of flags and an 8-byte key.  A page's
 * item 0 is its high key: all its keys are below it.  Inner pages hold (lower
 * bound, page number).  Leaves come in three formats:
 *
 *	DIRECT	items in order, as nbtree's
 *	DELTA	npacked items in order, the others in an order of their own
 *	PACKED	one blob of core/cb_pack, then plain items in an order of their own
 *
 * One thread, no errors: what must not be ends the program.
 */
#ifndef BENCH_TREE_H
#define BENCH_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_SIZE	8192
#define PAGE_HEADER offsetof(Page, item)
#define PAGE_END	(PAGE_SIZE - sizeof(Special))
#define ITEM_SIZE	(sizeof(Tuple) + sizeof(uint32_t))
#define PAGE_ITEMS	((int) ((PAGE_END - PAGE_HEADER) / ITEM_SIZE) - 1)
#define RESERVE		256			/* a page rewritten with less room is split */
#define MAX_KEY		UINT64_MAX
#define HEAP_ROWS	60			/* of a heap page */

typedef enum Format
{
	DIRECT,
	DELTA,
	PACKED
} Format;

typedef struct Tuple
{
	uint64_t	tid;
	uint64_t	key;
} Tuple;

typedef struct Special
{
	uint32_t	right;			/* neighbour; 0: none */
	uint16_t	level;			/* 0: leaf */
	uint16_t	npacked;			/* DELTA: items in order, without the high key */
	uint64_t	flags;
} Special;

typedef union Page
{
	struct
	{
		uint64_t	lsn;
		uint16_t	checksum;
		uint16_t	flags;
		uint16_t	lower;		/* end of line pointers */
		uint16_t	upper;		/* start of tuples */
		uint64_t	rest;
		uint32_t	item[];		/* offset | length << 16 */
	};
	char		bytes[PAGE_SIZE];
} Page;

typedef struct Tree
{
	Format		format;
	char	   *pages;
	size_t		distance;		/* from one to the next in memory */
	uint32_t   *order;			/* pages are taken in this order */
	uint32_t	used;			/* so many of them */
	uint32_t	max;
	uint32_t	root;
	uint64_t	nleaves;
} Tree;

/* what is in a tree, or should be; sums are the same in any order */
typedef struct Sums
{
	uint64_t	count;
	uint64_t	sum;
} Sums;

static inline uint64_t
mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

static inline uint64_t
heap_tid(uint64_t row)
{
	return row / HEAP_ROWS << 16 | (row % HEAP_ROWS + 1);
}

static inline void
sums_add(Sums *sums, const Tuple *tuple)
{
	sums->count++;
	sums->sum += mix(tuple->key ^ mix(tuple->tid));
}

static inline Page *
tree_page(const Tree *tree, uint32_t no)
{
	return (Page *) (tree->pages + no * tree->distance);
}

static inline Special *
page_special(const Page *page)
{
	return (Special *) (page->bytes + PAGE_END);
}

static inline int
page_count(const Page *page)
{
	return (int) ((page->lower - PAGE_HEADER) / sizeof(uint32_t));
}

static inline int
page_room(const Page *page)
{
	return page->upper - page->lower;
}

static inline Tuple *
page_tuple(const Page *page, int i)
{
	return (Tuple *) (page->bytes + (page->item[i] & 0xFFFF));
}

static inline uint64_t
page_high(const Page *page)
{
	return page_tuple(page, 0)->key;
}

/* The last item from first on whose key is not above this one; first - 1: none. */
static inline int
page_find(const Page *page, int first, uint64_t key)
{
	int			low = first;
	int			high = page_count(page);

	while (low < high)
	{
		int			mid = low + (high - low) / 2;

		if (page_tuple(page, mid)->key <= key)
			low = mid + 1;
		else
			high = mid;
	}
	return low - 1;
}

extern void die(const char *what) __attribute__((noreturn));

/* By key, for qsort(). */
extern int	tuple_compare(const void *a, const void *b);

extern void page_init(Page *page, int level, uint64_t high, uint32_t right);
extern void page_add(Page *page, int at, const Tuple *tuple);

/* stagger: bytes between two pages. */
extern void tree_init(Tree *tree, Format format, uint32_t max, size_t stagger);
extern uint32_t tree_new_page(Tree *tree);
extern uint32_t tree_descend(const Tree *tree, uint64_t key, int level);
extern void tree_add_child(Tree *tree, uint64_t low, uint32_t child, int level);
extern uint32_t tree_split(Tree *tree, uint32_t no);
extern void tree_build_upper(Tree *tree, Tuple *children, size_t n);

/* Looks at all of it: order, bounds, links; what is in it. */
extern Sums tree_check(const Tree *tree);

/* leaf.c */
extern int	leaf_capacity(Format format, uint64_t rows);
extern void leaf_build(Page *page, Format format, const Tuple *sorted, int n);
extern void leaf_insert(Tree *tree, uint32_t no, const Tuple *tuple);
extern void leaf_apply(Tree *tree, uint32_t no, const Tuple *sorted, int n);
extern int	leaf_check(const Page *page, Format format, uint64_t low, Sums *sums);

#endif							/* BENCH_TREE_H */
