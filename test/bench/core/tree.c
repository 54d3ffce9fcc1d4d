/*
 * tree.c - pages, descents, splits, and the check at the end.
 */
#include "tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define UPPER_FILL	(PAGE_ITEMS * 7 / 10)	/* what random insertions leave */

void
die(const char *what)
{
	fprintf(stderr, "benchmark: %s\n", what);
	exit(2);
}

int
tuple_compare(const void *a, const void *b)
{
	uint64_t	x = ((const Tuple *) a)->key;
	uint64_t	y = ((const Tuple *) b)->key;

	return (x > y) - (x < y);
}

/* ---------- pages ---------- */

void
page_init(Page *page, int level, uint64_t high, uint32_t right)
{
	Tuple		tuple = {0, high};

	memset(page, 0, PAGE_SIZE);
	page->lower = PAGE_HEADER;
	page->upper = PAGE_END;
	page_special(page)->right = right;
	page_special(page)->level = (uint16_t) level;
	page_add(page, 0, &tuple);
}

/* There is room. */
void
page_add(Page *page, int at, const Tuple *tuple)
{
	int			count = page_count(page);

	page->upper -= sizeof(Tuple);
	page->lower += sizeof(uint32_t);
	memcpy(page->bytes + page->upper, tuple, sizeof(Tuple));
	if (at < count)
		memmove(&page->item[at + 1], &page->item[at],
				(size_t) (count - at) * sizeof(uint32_t));
	page->item[at] = page->upper | (uint32_t) sizeof(Tuple) << 16;
}

/* ---------- the tree ---------- */

static uint64_t seed = 88172645463325252u;

static uint32_t
below(uint32_t n)
{
	return (uint32_t) (((mix(seed++) >> 32) * n) >> 32);
}

/*
 * Memory in small pages, as the server's shared memory by default, and touched
 * before it is used; pages are taken in random order, as they lie after random
 * insertions.  0 is not used.
 */
void
tree_init(Tree *tree, Format format, uint32_t max, size_t stagger)
{
	size_t		size = (size_t) max * (PAGE_SIZE + stagger);

	memset(tree, 0, sizeof(*tree));
	tree->format = format;
	tree->distance = PAGE_SIZE + stagger;
	tree->max = max;
	tree->used = 1;
	tree->pages = mmap(NULL, size, PROT_READ | PROT_WRITE,
					   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	tree->order = malloc(max * sizeof(uint32_t));
	if (tree->pages == MAP_FAILED || tree->order == NULL)
		die("out of memory");
	(void) madvise(tree->pages, size, MADV_NOHUGEPAGE);
	memset(tree->pages, 0, size);
	for (uint32_t i = 0; i < max; i++)
		tree->order[i] = i;
	for (uint32_t i = max - 1; i > 1; i--)
	{
		uint32_t	j = 1 + below(i);
		uint32_t	swap = tree->order[i];

		tree->order[i] = tree->order[j];
		tree->order[j] = swap;
	}
}

uint32_t
tree_new_page(Tree *tree)
{
	if (tree->used == tree->max)
		die("too many pages");
	return tree->order[tree->used++];
}

/*
 * The page of a level that covers a key.  As in nbtree, each page's high key
 * is looked at: its right neighbour might have to be.
 */
uint32_t
tree_descend(const Tree *tree, uint64_t key, int level)
{
	uint32_t	no = tree->root;

	for (;;)
	{
		const Page *page = tree_page(tree, no);

		if (key >= page_high(page))
			die("a key is beyond its page");
		if (page_special(page)->level == level)
			return no;
		no = (uint32_t) page_tuple(page, page_find(page, 1, key))->tid;
	}
}

static void
tree_new_root(Tree *tree, uint64_t low, uint32_t child, int level)
{
	uint32_t	no = tree_new_page(tree);
	Page	   *page = tree_page(tree, no);
	Tuple		first = {tree->root, 0};
	Tuple		second = {child, low};

	page_init(page, level, MAX_KEY, 0);
	page_add(page, 1, &first);
	page_add(page, 2, &second);
	tree->root = no;
}

/* Makes a new page known to its parent's level. */
void
tree_add_child(Tree *tree, uint64_t low, uint32_t child, int level)
{
	Tuple		tuple = {child, low};
	uint32_t	no;

	if (page_special(tree_page(tree, tree->root))->level < level)
	{
		tree_new_root(tree, low, child, level);
		return;
	}
	no = tree_descend(tree, low, level);
	if (page_room(tree_page(tree, no)) < (int) ITEM_SIZE)
	{
		tree_split(tree, no);
		no = tree_descend(tree, low, level);
	}
	page_add(tree_page(tree, no),
			 page_find(tree_page(tree, no), 1, low) + 1, &tuple);
}

/* Splits a page whose items are in order in two halves; the new one. */
uint32_t
tree_split(Tree *tree, uint32_t no)
{
	Page	   *left = tree_page(tree, no);
	Page		old;
	uint32_t	new = tree_new_page(tree);
	Page	   *right = tree_page(tree, new);
	int			level = page_special(left)->level;
	int			count = page_count(left);
	int			cut = count / 2 + 1;
	uint64_t	low = page_tuple(left, cut)->key;

	memcpy(&old, left, PAGE_SIZE);
	page_init(left, level, low, new);
	for (int i = 1; i < cut; i++)
		page_add(left, i, page_tuple(&old, i));
	page_init(right, level, page_high(&old), page_special(&old)->right);
	for (int i = cut; i < count; i++)
		page_add(right, i - cut + 1, page_tuple(&old, i));
	if (level == 0)
		tree->nleaves++;
	tree_add_child(tree, low, new, level + 1);
	return new;
}

/* Builds the inner levels over n children: (page, lower bound), used up. */
void
tree_build_upper(Tree *tree, Tuple *children, size_t n)
{
	for (int level = 1; n > 1; level++)
	{
		size_t		nparents = 0;
		uint32_t	next = tree_new_page(tree);

		for (size_t i = 0; i < n; i += UPPER_FILL)
		{
			size_t		end = i + UPPER_FILL < n ? i + UPPER_FILL : n;
			uint32_t	no = next;
			Page	   *page = tree_page(tree, no);
			uint64_t	low = children[i].key;

			next = end < n ? tree_new_page(tree) : 0;
			page_init(page, level, end < n ? children[end].key : MAX_KEY, next);
			for (size_t j = i; j < end; j++)
				page_add(page, (int) (j - i) + 1, &children[j]);
			children[nparents++] = (Tuple) {no, low};
		}
		n = nparents;
	}
	tree->root = (uint32_t) children[0].tid;
}

/* ---------- check ---------- */

typedef struct Check
{
	const Tree *tree;
	uint32_t	expected[16];	/* of each level: the page that comes next */
	Sums		sums;
	uint64_t	nleaves;
} Check;

static void
check_page(Check *check, uint32_t no, int level, uint64_t low, uint64_t high)
{
	const Page *page = tree_page(check->tree, no);
	int			count = page_count(page);

	if (page_special(page)->level != level || page_high(page) != high ||
		(check->expected[level] != 0 && check->expected[level] != no))
		die("check: level, high key or link of a page is wrong");
	check->expected[level] = page_special(page)->right;
	if (level == 0)
	{
		check->nleaves++;
		if (leaf_check(page, check->tree->format, low, &check->sums) < 0)
			die("check: entries of a leaf are damaged or out of order");
		return;
	}
	if (count < 2 || page_tuple(page, 1)->key != low)
		die("check: the first child of a page is wrong");
	for (int i = 1; i < count; i++)
	{
		const Tuple *child = page_tuple(page, i);

		check_page(check, (uint32_t) child->tid, level - 1, child->key,
				   i + 1 < count ? page_tuple(page, i + 1)->key : high);
	}
}

Sums
tree_check(const Tree *tree)
{
	Check		check = {.tree = tree};

	check_page(&check, tree->root,
			   page_special(tree_page(tree, tree->root))->level, 0, MAX_KEY);
	if (check.expected[0] != 0 || check.nleaves != tree->nleaves)
		die("check: leaves are missing");
	return check.sums;
}
