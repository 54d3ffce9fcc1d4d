/*
 * leaf.c - the leaves' formats: one insertion into a sorted leaf, or a batch to
 * a leaf's delta and, when it has no room, the leaf written anew.
 */
#include "tree.h"

#include <stdlib.h>
#include <string.h>

#include "core/cb_chunk.h"
#include "core/cb_pack.h"
#include "core/cb_radix.h"

#define MAX_PARTS	64			/* of a leaf that is split */
#define MAX_FRESH	(PAGE_ITEMS + 65536 / (int) sizeof(Tuple))
#define RADIX_BITS	16			/* of a delta's keys, behind what they share */

/* a blob's room on a page with a high key */
#define PACK_ROOM \
	((int) (PAGE_END - PAGE_HEADER - ITEM_SIZE - sizeof(uint32_t)))

static Tuple packed[CB_PACK_MAX_ENTRIES];
static Tuple fresh[MAX_FRESH];
static Tuple all[CB_PACK_MAX_ENTRIES + MAX_FRESH];

/* ---------- writing ---------- */

static size_t
encode(const Tuple *sorted, int n, void *blob, int capacity)
{
	static CbPackEntry entries[CB_PACK_MAX_ENTRIES];

	if (n > CB_PACK_MAX_ENTRIES)
		return 0;
	for (int i = 0; i < n; i++)
		entries[i] = (CbPackEntry) {&sorted[i].key, sizeof(uint64_t), 0,
		sorted[i].tid};
	return cb_pack_encode(entries, n, blob, (size_t) capacity);
}

/*
 * Makes these the entries of a leaf, whose high key and link stay.  False: less
 * than RESERVE would be left, and the leaf has no entries now.
 */
static bool
build(Page *page, Format format, const Tuple *sorted, int n)
{
	static uint64_t blob[PAGE_SIZE / sizeof(uint64_t)];
	size_t		len;

	page_init(page, 0, page_high(page), page_special(page)->right);
	if (format != PACKED)
	{
		if (n * (int) ITEM_SIZE > page_room(page) - RESERVE)
			return false;
		for (int i = 0; i < n; i++)
			page_add(page, i + 1, &sorted[i]);
		page_special(page)->npacked = (uint16_t) n;
		return true;
	}
	len = encode(sorted, n, blob, PACK_ROOM - RESERVE);
	if (len == 0)
		return false;
	page->upper -= len;
	page->lower += sizeof(uint32_t);
	memcpy(page->bytes + page->upper, blob, len);
	page->item[1] = page->upper | (uint32_t) len << 16;
	return true;
}

void
leaf_build(Page *page, Format format, const Tuple *sorted, int n)
{
	if (!build(page, format, sorted, n))
		die("a leaf does not take its entries");
}

/* How many entries a leaf takes, of so many rows with random keys. */
int
leaf_capacity(Format format, uint64_t rows)
{
	uint64_t	gap = MAX_KEY / rows;
	static uint64_t blob[PAGE_SIZE / sizeof(uint64_t)];
	int			n;

	if (format != PACKED)
		return PAGE_ITEMS;
	for (int i = 0; i < CB_PACK_MAX_ENTRIES; i++)
		packed[i] = (Tuple) {heap_tid(mix((uint64_t) i) % rows),
		(i == 0 ? 0 : packed[i - 1].key) + mix((uint64_t) i) % (2 * gap)};
	for (n = CB_PACK_MAX_ENTRIES; n > 0; n--)
	{
		if (encode(packed, n, blob, PACK_ROOM - RESERVE) != 0)
			break;
	}
	return n - n / 20;			/* others may take more bits */
}

/* ---------- reading ---------- */

/* Of n entries, all in order: packed[]; -1: the blob is damaged. */
static int
read_packed(const Page *page, Format format)
{
	CbPackReader reader;
	CbPackEntry entry;
	int			n = page_special(page)->npacked;

	if (format != PACKED)
	{
		for (int i = 0; i < n; i++)
			packed[i] = *page_tuple(page, i + 1);
		return n;
	}
	if (!cb_pack_open(&reader, page_tuple(page, 1), page->item[1] >> 16))
		return -1;
	for (int i = 0; i < reader.count; i++)
	{
		if (!cb_pack_read(&reader, i, &entry, &packed[i].key))
			return -1;
		packed[i].tid = entry.tid;
	}
	return reader.count;
}

static int
first_of_delta(const Page *page, Format format)
{
	return format == PACKED ? 2 : page_special(page)->npacked + 1;
}

/* ---------- sorting and merging ---------- */

/* Sorts by the first bits in which the keys differ, and then by all. */
static void
sort_tuples(Tuple *tuples, int n)
{
	static CbRadixItem items[MAX_FRESH];
	static CbRadixItem scratch[MAX_FRESH];
	static Tuple copy[MAX_FRESH];
	uint64_t	low = MAX_KEY;
	uint64_t	high = 0;
	int			shift = 0;

	for (int i = 0; i < n; i++)
	{
		low = tuples[i].key < low ? tuples[i].key : low;
		high = tuples[i].key > high ? tuples[i].key : high;
	}
	while ((high - low) >> shift >> RADIX_BITS != 0)
		shift++;
	for (int i = 0; i < n; i++)
		items[i] = (CbRadixItem) {(tuples[i].key - low) >> shift, (uint64_t) i};
	cb_radix_sort(items, scratch, (size_t) n);
	memcpy(copy, tuples, (size_t) n * sizeof(Tuple));
	for (int i = 0; i < n; i++)
	{
		Tuple		tuple = copy[items[i].value];
		int			j = i;

		for (; j > 0 && tuples[j - 1].key > tuple.key; j--)
			tuples[j] = tuples[j - 1];
		tuples[j] = tuple;
	}
}

/* packed[] and fresh[] to all[] */
static int
merge(int npacked, int nfresh)
{
	int			n = 0;
	int			i = 0;

	for (int j = 0; j < nfresh; j++)
	{
		while (i < npacked && packed[i].key <= fresh[j].key)
			all[n++] = packed[i++];
		all[n++] = fresh[j];
	}
	memcpy(&all[n], &packed[i], (size_t) (npacked - i) * sizeof(Tuple));
	return n + npacked - i;
}

/* ---------- changing ---------- */

/* Writes all[] to a leaf and as many new ones to its right as it takes. */
static void
write_parts(Tree *tree, uint32_t no, int n)
{
	uint32_t	part[MAX_PARTS + 1] = {no};
	uint64_t	high = page_high(tree_page(tree, no));
	uint32_t	right = page_special(tree_page(tree, no))->right;
	int			nparts = 1;
	int			done = 0;

	while (done < nparts)
	{
		int			from = n * done / nparts;
		int			to = n * (done + 1) / nparts;
		Page	   *page = tree_page(tree, part[done]);

		/* from right to left, so that each knows its neighbour */
		page_init(page, 0, done + 1 < nparts ? all[to].key : high,
				  done + 1 < nparts ? part[done + 1] : right);
		if (build(page, tree->format, &all[from], to - from))
			done++;
		else if (nparts == MAX_PARTS)
			die("a leaf would have too many parts");
		else
		{
			part[nparts++] = tree_new_page(tree);
			done = 0;
		}
	}
	if (nparts > 1 && tree->root == 0)
		die("a leaf was filled too much");
	for (int i = 1; i < nparts; i++)
		tree_add_child(tree, all[n * i / nparts].key, part[i], 1);
	tree->nleaves += (uint64_t) nparts - 1;
}

static void
rewrite(Tree *tree, uint32_t no, const Tuple *sorted, int n)
{
	const Page *page = tree_page(tree, no);
	int			first = first_of_delta(page, tree->format);
	int			count = page_count(page);
	int			npacked = read_packed(page, tree->format);
	int			nfresh = 0;

	if (npacked < 0)
		die("a blob is damaged");
	for (int i = first; i < count; i++)
		fresh[nfresh++] = *page_tuple(page, i);
	memcpy(&fresh[nfresh], sorted, (size_t) n * sizeof(Tuple));
	nfresh += n;
	sort_tuples(fresh, nfresh);
	write_parts(tree, no, merge(npacked, nfresh));
}

/* DIRECT: one entry, into its place. */
void
leaf_insert(Tree *tree, uint32_t no, const Tuple *tuple)
{
	Page	   *page = tree_page(tree, no);

	if (page_room(page) < (int) ITEM_SIZE)
	{
		uint32_t	right = tree_split(tree, no);

		if (tuple->key >= page_high(page))
			page = tree_page(tree, right);
	}
	page_add(page, page_find(page, 1, tuple->key) + 1, tuple);
}

/* The others: entries in order, to the delta if there is room. */
void
leaf_apply(Tree *tree, uint32_t no, const Tuple *sorted, int n)
{
	Page	   *page = tree_page(tree, no);
	int			count = page_count(page);

	if (sorted[n - 1].key >= page_high(page))
		die("a key is beyond its leaf");
	if (n * (int) ITEM_SIZE > page_room(page))
	{
		rewrite(tree, no, sorted, n);
		return;
	}
	for (int i = 0; i < n; i++)
		page_add(page, count + i, &sorted[i]);
}

/* ---------- check ---------- */

/* All entries within bounds, those of the packed in order; -1: they are not. */
int
leaf_check(const Page *page, Format format, uint64_t low, Sums *sums)
{
	uint64_t	high = page_high(page);
	int			count = page_count(page);
	int			first;
	int			npacked;

	if (format == PACKED &&
		!cb_pack_check(page_tuple(page, 1), page->item[1] >> 16))
		return -1;
	if (format == DIRECT)
	{
		first = count;
		npacked = count - 1;
		for (int i = 1; i < count; i++)
			packed[i - 1] = *page_tuple(page, i);
	}
	else
	{
		first = first_of_delta(page, format);
		npacked = read_packed(page, format);
	}
	for (int i = 0; i < npacked; i++)
	{
		if (packed[i].key < (i == 0 ? low : packed[i - 1].key) || packed[i].key >= high)
			return -1;
		sums_add(sums, &packed[i]);
	}
	for (int i = first; i < count; i++)
	{
		const Tuple *tuple = page_tuple(page, i);

		if (tuple->key < low || tuple->key >= high)
			return -1;
		sums_add(sums, tuple);
	}
	return npacked;
}
