/*
 * pack_test.c - packed leaves: what is read is what was encoded, for entries
 * of many shapes; removing never grows a blob; damaged blobs do no harm.
 */
#include <math.h>

#include "core/cb_pack.h"
#include "pack_shapes.h"
#include "unit.h"

#define CAPACITY CB_PACK_MAX_LEN

static uint64_t blob_space[CAPACITY / 8];
static uint64_t other_space[CAPACITY / 8];
static unsigned char *const blob = (unsigned char *) blob_space;
static unsigned char *const other = (unsigned char *) other_space;
static PackSet set;
static uint64_t seed = 88172645463325252u;

/* Is entry i of the reader this one? */
static bool
is_entry(CbPackReader *reader, int i, const CbPackEntry *expected)
{
	uint64_t	body[CB_PACK_MAX_BODY / 8];
	CbPackEntry entry;

	memset(body, 0xa5, sizeof(body));
	if (!CHECK(cb_pack_read(reader, i, &entry, body)))
		return false;
	return CHECK(entry.body == body) && CHECK(entry.len == expected->len) &&
		CHECK(memcmp(body, expected->body, entry.len) == 0) &&
		CHECK(entry.info == expected->info) &&
		CHECK(entry.tid == expected->tid) &&
		CHECK(cb_pack_tid(reader, i) == expected->tid);
}

/*
 * What cb_pack_read_tids() reads from entry i on: is all of it in the range, and
 * in a blob that is not damaged what cb_pack_tid() reads, and the range about
 * twice as wide as it has to be at most?
 */
static int
check_tids(const CbPackReader *reader, int i, bool whole)
{
	uint64_t	tids[CB_PACK_BLOCK];
	uint32_t	low = 0;
	uint32_t	high = 0;
	uint64_t	least = UINT64_MAX;
	uint64_t	greatest = 0;
	int			found = cb_pack_read_tids(reader, i, tids);

	CHECK(cb_pack_heap_range(reader, i, &low, &high) == found);
	CHECK(found >= 0 && found <= CB_PACK_BLOCK);
	for (int k = 0; k < found; k++)
	{
		uint64_t	heap = tids[k] >> 16;

		CHECK(cb_pack_tid(reader, i + k) == tids[k] || !whole);
		CHECK(heap >= low && heap <= high);
		least = heap < least ? heap : least;
		greatest = heap > greatest ? heap : greatest;
	}
	CHECK(!whole || found > 0);
	if (whole && i == 0 && high < UINT32_MAX)
		CHECK(low == least && high - low <= 2 * (greatest - least) + 1);
	return found;
}

/* Are entries i and those behind it what cb_pack_read_words() reads? */
static int
check_words(CbPackReader *reader, int i, const CbPackEntry *entries, int n)
{
	uint64_t	out[CB_PACK_WORDS_ROOM(8) / 8];
	uint64_t	tids[CB_PACK_BLOCK];
	uint16_t	len = 0;
	int			start = cb_pack_words_start(reader, i);
	int			found = cb_pack_read_words(reader, start, 8, out, &len, tids);

	CHECK(start == i || (start >= 0 && start < i && start + found > i));
	found = cb_pack_read_words(reader, i, 8, out, &len, tids);
	if (!CHECK(found <= CB_PACK_BLOCK && i + found <= n))
		return 0;
	for (int k = 0; k < found; k++)
	{
		const CbPackEntry *entry = &entries[i + k];

		CHECK(entry->len == len && entry->tid == tids[k] &&
			  entry->info == entries[0].info &&
			  memcmp((char *) out + k * (8 + len) + 8, entry->body, len) == 0);
	}
	return found;
}

static int	numbers_found = 0;	/* searches that found numbers */

static int64_t
number_of(const CbPackEntry *entry)
{
	int64_t		number = 0;

	memcpy(&number, entry->body, entry->len < 8 ? entry->len : 8);
	return number;
}

/* Searches for the number of some entries, if these are numbers in order. */
static void
check_numbers(CbPackReader *reader, const CbPackEntry *entries, int n)
{
	bool		ordered = true;

	for (int i = 1; i < n; i++)
		ordered &= number_of(&entries[i - 1]) <= number_of(&entries[i]);
	for (int i = 0; i < n; i += 1 + n / 100)
	{
		int64_t		number = number_of(&entries[i]);
		int			less = cb_pack_search_number(reader, number, false);
		int			most = cb_pack_search_number(reader, number, true);

		CHECK(less >= -1 && less <= n && most >= -1 && most <= n);
		if (less < 0 || !ordered)
			continue;
		numbers_found++;
		CHECK(less <= i && number_of(&entries[less]) == number);
		CHECK(less == 0 || number_of(&entries[less - 1]) < number);
		CHECK(most > i && number_of(&entries[most - 1]) == number);
		CHECK(most == n || number_of(&entries[most]) > number);
	}
}

/* Does entry i come before the one that is searched? */
static bool
is_left(void *arg, int i)
{
	return i < *(const int *) arg;
}

static const CbLeadKind leads[] = {CB_LEAD_INT64, CB_LEAD_INT32, CB_LEAD_FLOAT64,
CB_LEAD_BYTES, CB_LEAD_INT32_INT32, CB_LEAD_INT32_TEXT, CB_LEAD_TEXT, CB_LEAD_NUMERIC};

#define NLEADS (sizeof(leads) / sizeof(leads[0]))

static int	leads_found[NLEADS];
static int	leads_asked[NLEADS];	/* about entries of which leads tell */

/* a search by a lead among these entries, for one of them */
typedef struct LeadSearch
{
	const CbPackEntry *entries;
	size_t		l;				/* the kind's place in leads */
	int64_t		lead;
	int			place;
} LeadSearch;

/* The lead of an entry; false: it has none. */
static bool
lead_of(CbLeadKind kind, const CbPackEntry *entry, int64_t *lead)
{
	uint64_t	head;

	if (!cb_lead_is_of_body(kind))
		return cb_lead_find_head(entry->body, entry->len, &head) &&
			cb_lead_of_content(kind, head, lead);
	memcpy(&head, entry->body, sizeof(head));
	return cb_lead(kind, head, lead);
}

/*
 * Are the leads of these entries, of those that have one, in order?  Not if a body is
 * shorter than a head.
 */
static bool
leads_ascend(CbLeadKind kind, const CbPackEntry *entries, int n)
{
	int64_t		greatest = INT64_MIN;
	int64_t		lead;

	for (int i = 0; i < n; i++)
	{
		if (entries[i].len < sizeof(lead))
			return false;
		if (!lead_of(kind, &entries[i], &lead))
			continue;
		if (lead < greatest)
			return false;
		greatest = lead;
	}
	return true;
}

static bool
lead_is_left(void *arg, int i)
{
	LeadSearch *search = arg;
	int64_t		lead;

	if (lead_of(leads[search->l], &search->entries[i], &lead))
		leads_asked[search->l] += lead != search->lead;
	return i < search->place;
}

/* Searches for places among entries whose leads are in order. */
static void
check_leads(CbPackReader *reader, const CbPackEntry *entries, int n)
{
	for (size_t l = 0; l < NLEADS; l++)
	{
		if (!leads_ascend(leads[l], entries, n))
			continue;
		for (int i = 0; i < n; i += 1 + n / 100)
		{
			LeadSearch	search = {entries, l, 0, i};

			if (!lead_of(leads[l], &entries[i], &search.lead))
				continue;
			CHECK(cb_pack_search_lead(reader, leads[l], search.lead, lead_is_left, &search) == i);
			leads_found[l]++;
		}
	}
}

/* Are these n entries in the blob, read forward, backward and at random? */
static void
check_holds(const void *data, size_t len, const CbPackEntry *entries, int n)
{
	CbPackReader reader;
	CbPackReader fresh;
	int			start = 0;

	if (!CHECK(cb_pack_check(data, len)) ||
		!CHECK(cb_pack_open(&reader, data, len)) ||
		!CHECK(cb_pack_count(data) == n))
		return;
	fresh = reader;
	for (int i = 0; i < n; i++)
	{
		CHECK(cb_pack_tid(&fresh, i) == entries[i].tid);
		if (!is_entry(&reader, i, &entries[i]))
			return;
	}
	for (int i = n - 1; i >= 0; i--)
	{
		if (!is_entry(&reader, i, &entries[i]))
			return;
	}
	for (int i = 0; i < n; i++)
		i += check_words(&reader, i, entries, n) / 2;
	for (int i = 0; i < n; i++)
		i += check_tids(&reader, i, true) / 2;
	for (int round = 0; round < n; round++)
	{
		int			i = (int) unit_below(&seed, (uint32_t) n);

		if (!is_entry(&reader, i, &entries[i]))
			return;
	}
	for (int left = 0; left <= n; left += 1 + n / 300)
		CHECK(cb_pack_search(&reader, is_left, &left) == left);
	check_numbers(&reader, entries, n);
	check_leads(&reader, entries, n);
	for (int b = 0; b < cb_pack_nblocks(data); b++)
	{
		int			next = cb_pack_block_start(&reader, b + 1);

		CHECK(cb_pack_block_start(&reader, b) == start);
		CHECK(next > start && next - start <= CB_PACK_BLOCK);
		start = next;
	}
	CHECK(start == n);
}

/* Encodes n entries of the set from one on; 0: they do not fit in any blob. */
static size_t
encode(int from, int n)
{
	size_t		len;

	memset(blob, 0x5a, CAPACITY);
	len = cb_pack_encode(set.entries + from, n, blob, CAPACITY);
	CHECK(len % 8 == 0 && len <= CAPACITY);
	return len;
}

static const int counts[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 129, 500, 800, 2000,
CB_PACK_MAX_ENTRIES - 1, CB_PACK_MAX_ENTRIES};

#define NCOUNTS (int) (sizeof(counts) / sizeof(counts[0]))

static void
test_round_trip(void)
{
	for (int shape = 0; shape < PACK_NSHAPES; shape++)
	{
		for (int c = 0; c < NCOUNTS; c++)
		{
			size_t		len;

			pack_make(&set, (PackShape) shape, counts[c], &seed);
			len = encode(0, counts[c]);
			if (len != 0)
				check_holds(blob, len, set.entries, counts[c]);
			else
				CHECK(set.bytes > CAPACITY / 2);
		}
	}
}

/* A full leaf is what the codec is for: as many entries as 8 kB take. */
static int
fill_leaf(PackShape shape, size_t *len)
{
	int			n = CB_PACK_MAX_ENTRIES;

	pack_make(&set, shape, n, &seed);
	for (; n > 0; n = n > 64 ? n - 32 : n - 1)
	{
		*len = cb_pack_encode(set.entries, n, blob, 8120);
		if (*len != 0)
			return n;
	}
	return 0;
}

/* The sizes that the format is made for, bytes an entry in hundredths. */
static void
test_sizes(void)
{
	static const struct
	{
		PackShape	shape;
		size_t		most;
	}			sizes[] = {
		{PACK_RANDOM_INT, 950}, {PACK_DUPLICATE_INT, 350},
		{PACK_SERIAL_INT, 415}, {PACK_SIGNED_INT, 415}, {PACK_ORDERED_INT, 225},
		{PACK_TIME, 305}, {PACK_TIME_DOWN, 305}, {PACK_TIME_INT8, 740}, {PACK_UUID, 1850}, {PACK_TWO_INT4, 850},
		{PACK_URL, 2700}, {PACK_SHORT_TEXT, 900}, {PACK_EQUAL_TEXT, 350},
		{PACK_MIXED_INFO, 960}, {PACK_LONG_TEXT, 4000}, {PACK_TEXT_INT, 2500}
	};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
	{
		size_t		len;
		int			n = fill_leaf(sizes[i].shape, &len);

		if (!CHECK(n > 0 && 100 * len <= sizes[i].most * (size_t) n))
			printf("# %s: %zu bytes for %d entries\n",
				   pack_shape_names[sizes[i].shape], len, n);
	}
}

/* A blob fits where it is as long as the room, and in no less. */
static void
test_capacity(void)
{
	for (int shape = 0; shape < PACK_NSHAPES; shape++)
	{
		int			n = 1 + (int) unit_below(&seed, 100);
		size_t		len;
		unsigned char *exact;

		pack_make(&set, (PackShape) shape, n, &seed);
		len = encode(0, n);
		if (len == 0)
			continue;
		exact = malloc(len);
		CHECK(cb_pack_encode(set.entries, n, exact, len) == len);
		CHECK(memcmp(exact, blob, len) == 0);
		CHECK(cb_pack_encode(set.entries, n, exact, len - 1) == 0);
		free(exact);
		for (size_t room = 0; room < len; room += 8)
		{
			exact = malloc(room + 1);
			CHECK(cb_pack_encode(set.entries, n, exact, room) == 0);
			free(exact);
		}
	}
}

/* The same entries from other memory into other memory make the same blob. */
static void
test_deterministic(void)
{
	static PackSet copy;

	for (int shape = 0; shape < PACK_NSHAPES; shape++)
	{
		uint64_t	from = seed;
		size_t		len;

		pack_make(&set, (PackShape) shape, 300, &seed);
		pack_make(&copy, (PackShape) shape, 300, &from);
		len = encode(0, 300);
		memset(other, 0xff, CAPACITY);
		CHECK(cb_pack_encode(copy.entries, 300, other, CAPACITY) == len);
		CHECK(memcmp(blob, other, len) == 0);
	}
	free(copy.space);
}

static void
test_refuses(void)
{
	uint64_t	body[400] = {0};
	CbPackEntry entries[2] = {{body, 8, 0, 1}, {body, 8, 0, 2}};
	CbPackReader reader;
	CbPackEntry entry;
	size_t		len;

	CHECK(cb_pack_encode(entries, 0, blob, CAPACITY) == 0);
	CHECK(cb_pack_encode(entries, CB_PACK_MAX_ENTRIES + 1, blob, CAPACITY) == 0);
	entries[1].len = 12;
	CHECK(cb_pack_encode(entries, 2, blob, CAPACITY) == 0);
	entries[1].len = CB_PACK_MAX_BODY + 8;
	CHECK(cb_pack_encode(entries, 2, blob, CAPACITY) == 0);
	entries[1].len = 8;
	entries[1].tid = UINT64_C(1) << 48;
	CHECK(cb_pack_encode(entries, 2, blob, CAPACITY) == 0);
	entries[1].tid--;
	len = cb_pack_encode(entries, 2, blob, CAPACITY);
	check_holds(blob, len, entries, 2);
	CHECK(cb_pack_open(&reader, blob, len));
	CHECK(!cb_pack_read(&reader, 2, &entry, body));
	CHECK(!cb_pack_read(&reader, -1, &entry, body));
	CHECK(cb_pack_tid(&reader, 2) == 0 && cb_pack_tid(&reader, -1) == 0);
	CHECK(check_tids(&reader, 2, false) == 0 && check_tids(&reader, -1, false) == 0);
	CHECK(!cb_pack_open(&reader, blob, len - 8));
	CHECK(!cb_pack_open(&reader, blob, len + 8));
	CHECK(!cb_pack_open(&reader, blob, 0));
}

static void
test_hints(void)
{
	static bool dead[500];
	size_t		len;

	pack_make(&set, PACK_MIXED, 500, &seed);
	len = encode(0, 500);
	memcpy(other, blob, len);
	for (int round = 0; round < 400; round++)
	{
		int			i = (int) unit_below(&seed, 500);

		CHECK(cb_pack_set_dead(blob, i) == !dead[i]);
		CHECK(cb_pack_has_dead(blob));
		dead[i] = true;
	}
	for (int i = 0; i < 500; i++)
	{
		int			right = cb_pack_count_alive(blob, i, 500 - i, 1);
		int			left = cb_pack_count_alive(blob, i, i + 1, -1);

		CHECK(cb_pack_is_dead(blob, i) == dead[i]);
		for (int k = 0; k < right; k++)
			CHECK(!dead[i + k]);
		for (int k = 0; k < left; k++)
			CHECK(!dead[i - k]);
		CHECK(right == 500 - i || dead[i + right]);
		CHECK(left == i + 1 || dead[i - left]);
	}
	CHECK(!cb_pack_is_dead(blob, 500) && !cb_pack_set_dead(blob, 500));
	CHECK(!cb_pack_is_dead(blob, -1) && !cb_pack_set_dead(blob, -1));
	check_holds(blob, len, set.entries, 500);
	cb_pack_clear_dead(blob);
	CHECK(!cb_pack_has_dead(blob));
	CHECK(memcmp(blob, other, len) == 0);
}

/* Picks ordinals of n to remove, about one in "in", by a pattern; how many. */
static int
pick(uint16_t *ordinals, int n, uint32_t in)
{
	int			npicked = 0;
	bool		range = unit_below(&seed, 3) == 0;
	int			from = (int) unit_below(&seed, (uint32_t) n);

	for (int i = 0; i < n; i++)
	{
		if (range ? i >= from && i < from + n / (int) in + 1 :
			unit_below(&seed, in) == 0)
			ordinals[npicked++] = (uint16_t) i;
	}
	return npicked;
}

/* Removes from a blob and from the set until nothing is left. */
static void
remove_all(size_t len, int n, uint32_t in)
{
	uint16_t	ordinals[CB_PACK_MAX_ENTRIES];

	while (n > 0)
	{
		int			npicked = pick(ordinals, n, in);
		unsigned char *exact = malloc(len);
		size_t		left;
		int			to = 0;

		cb_pack_set_dead(blob, (int) unit_below(&seed, (uint32_t) n));
		left = cb_pack_delete(blob, len, ordinals, npicked, exact);
		CHECK(left <= len && left % 8 == 0);
		for (int i = 0, p = 0; i < n; i++)
		{
			if (p < npicked && ordinals[p] == i)
				p++;
			else
				set.entries[to++] = set.entries[i];
		}
		n = to;
		CHECK((left == 0) == (n == 0));
		if (n > 0)
			check_holds(exact, left, set.entries, n);
		for (int i = 0; i < n; i++)
			CHECK(!cb_pack_is_dead(exact, i));
		memcpy(blob, exact, left);
		free(exact);
		len = left;
		if (atomic_load(&unit_failures) > 0)
			return;
	}
}

static void
test_delete(void)
{
	for (int shape = 0; shape < PACK_NSHAPES; shape++)
	{
		for (uint32_t in = 1; in <= 40; in = in * 2 + 1)
		{
			int			n = (int) unit_below(&seed, in < 10 ? 1000 : 200) + 1;
			size_t		len;

			pack_make(&set, (PackShape) shape, n, &seed);
			len = encode(0, n);
			if (len != 0)
				remove_all(len, n, in);
		}
	}
}

/* Removing one entry, whichever, never grows a blob before it is padded. */
static void
test_delete_one(void)
{
	for (int shape = 0; shape < PACK_NSHAPES; shape++)
	{
		int			n = 90;
		size_t		len;

		pack_make(&set, (PackShape) shape, n, &seed);
		len = encode(0, n);
		for (uint16_t i = 0; len != 0 && i < n; i++)
		{
			size_t		left = cb_pack_delete(blob, len, &i, 1, other);

			CHECK(left > 0 && left <= len);
			CHECK(cb_pack_check(other, left));
		}
	}
}

/*
 * The same of one entry of each block, until all blocks are empty: a byte that
 * one of them grows by is not hidden by the padding.
 */
static void
test_delete_of_blocks(void)
{
	for (int shape = 0; shape < PACK_NSHAPES; shape++)
	{
		uint16_t	ordinals[CB_PACK_MAX_ENTRIES];
		int			n = 1500;
		size_t		len;

		pack_make(&set, (PackShape) shape, n, &seed);
		len = encode(0, n);
		while (len != 0)
		{
			CbPackReader reader;
			int			nblocks = cb_pack_nblocks(blob);
			size_t		left;

			CHECK(cb_pack_open(&reader, blob, len));
			for (int b = 0; b < nblocks; b++)
			{
				int			start = cb_pack_block_start(&reader, b);
				int			end = cb_pack_block_start(&reader, b + 1);

				ordinals[b] = (uint16_t)
					(start + (int) unit_below(&seed, (uint32_t) (end - start)));
			}
			left = cb_pack_delete(blob, len, ordinals, nblocks, other);
			n -= nblocks;
			CHECK(left <= len && (left == 0) == (n == 0));
			memcpy(blob, other, left);
			len = left;
		}
	}
}

/* Does with a blob that may be damaged all that one may do. */
static void
use_damaged(const unsigned char *data, size_t len)
{
	CbPackReader reader;
	CbPackEntry entry;
	uint64_t   *body;
	bool		good = cb_pack_check(data, len);
	int			n;

	if (!cb_pack_open(&reader, data, len))
	{
		CHECK(!good);
		return;
	}
	body = malloc(CB_PACK_MAX_BODY);
	n = cb_pack_count(data);
	for (int i = 0; i < n; i += 1 + (int) unit_below(&seed, CB_PACK_BLOCK))
	{
		uint64_t	out[CB_PACK_WORDS_ROOM(8) / 8];
		uint64_t	tids[CB_PACK_BLOCK];
		uint16_t	len;
		int			found = cb_pack_read_words(&reader, i, 8, out, &len, tids);

		CHECK(found <= CB_PACK_BLOCK && i + found <= n);
		CHECK(i + check_tids(&reader, i, false) <= n);
	}
	for (int i = 0; i < n; i++)
	{
		bool		read = cb_pack_read(&reader, i, &entry, body);

		CHECK(read || !good);
		CHECK(!read || (entry.len <= CB_PACK_MAX_BODY && entry.len % 8 == 0));
		CHECK(!read || cb_pack_tid(&reader, i) == entry.tid);
	}
	for (int round = 0; round < 50; round++)
	{
		int			i = (int) unit_below(&seed, (uint32_t) n + 2);

		CHECK(cb_pack_read(&reader, i, &entry, body) || !good || i >= n);
		cb_pack_tid(&reader, (int) unit_below(&seed, (uint32_t) n));
	}
	for (int b = 0; b < cb_pack_nblocks(data); b++)
	{
		int			start = cb_pack_block_start(&reader, b);
		int			end = cb_pack_block_start(&reader, b + 1);

		CHECK(start <= n && end <= n);
		CHECK(!good || (end > start && end - start <= CB_PACK_BLOCK));
	}
	for (int left = 0; left <= n; left += 1 + n / 20)
	{
		int			found = cb_pack_search(&reader, is_left, &left);

		CHECK(found == left || !good);
		CHECK(found >= 0 && found <= n);
	}
	for (size_t l = 0; l < NLEADS; l++)
	{
		int			place = (int) unit_below(&seed, (uint32_t) n + 1);
		int			found = cb_pack_search_lead(&reader, leads[l],
												(int64_t) unit_random(&seed), is_left, &place);

		CHECK(found >= 0 && found <= n);
	}
	for (int64_t number = -1; number <= 1; number++)
	{
		int			found = cb_pack_search_number(&reader, number * INT32_MAX, false);

		CHECK(found >= -1 && found <= n);
	}
	for (int i = 0; i < n; i += 7)
		cb_pack_is_dead(data, i);
	cb_pack_has_dead(data);
	free(body);
}

/* Changes some bytes or bits of it, half of them near the front. */
static void
damage(unsigned char *data, size_t len)
{
	for (uint32_t left = 1 + unit_below(&seed, 4); left > 0; left--)
	{
		uint32_t	room = unit_below(&seed, 2) ? (uint32_t) len :
			len < 100 ? (uint32_t) len : 100;
		uint32_t	place = unit_below(&seed, room);

		if (unit_below(&seed, 4) == 0)
			memset(data + place, 0,
				   1 + unit_below(&seed, (uint32_t) len - place) / 4);
		else if (unit_below(&seed, 2))
			data[place] ^= (unsigned char) (1u << unit_below(&seed, 8));
		else
			data[place] = (unsigned char) unit_random(&seed);
	}
}

/* Rounds of damage: CB_PACK_ROUNDS times as many as usual, for a long run. */
static int
rounds(int usual)
{
	const char *times = getenv("CB_PACK_ROUNDS");

	return times == NULL ? usual : usual * atoi(times);
}

/*
 * Damages blobs, and cuts them, in memory of their exact length, which the
 * address sanitizer guards.
 */
static void
test_damaged(void)
{
	for (int round = 0; round < rounds(12000); round++)
	{
		PackShape	shape = (PackShape) unit_below(&seed, PACK_NSHAPES);
		int			n = 1 + (int) unit_below(&seed, 150);
		uint16_t	ordinals[CB_PACK_MAX_ENTRIES];
		unsigned char *data;
		unsigned char *rest;
		size_t		len;

		pack_make(&set, shape, n, &seed);
		len = encode(0, n);
		if (len == 0)
			continue;
		if (unit_below(&seed, 4) == 0)
		{
			len = len * unit_below(&seed, 100) / 100 & ~(size_t) 7;
			if (unit_below(&seed, 2) && len >= 16)
				((uint16_t *) blob)[5] = (uint16_t) (len / 8);
		}
		data = malloc(len);
		rest = malloc(len);
		memcpy(data, blob, len);
		if (len > 0 && unit_below(&seed, 8) != 0)
			damage(data, len);
		use_damaged(data, len);
		if (len >= 16)
		{
			bool		good = cb_pack_check(data, len);
			int			npicked = pick(ordinals, n, 5);
			size_t		left = cb_pack_delete(data, len, ordinals, npicked, rest);

			/* what was checked can be shortened without fail */
			CHECK(left <= len);
			CHECK(left > 0 || !good || npicked >= cb_pack_count(data));
			if (left > 0)
				use_damaged(rest, left);
		}
		free(data);
		free(rest);
	}
}

/* A prefix of zeros is not the one of any body; it can be shortened all the same. */
static void
test_damaged_prefix(void)
{
	char		bodies[2][17] = {"abcdefgh", "abcdefghi"};
	CbPackEntry entries[2] = {{bodies[0], 8, 0, 1}, {bodies[1], 16, 0, 2}};
	size_t		len = cb_pack_encode(entries, 2, blob, CAPACITY);
	uint16_t	second = 1;
	unsigned char *rest = malloc(len);
	size_t		left;
	int			found = 0;

	for (size_t i = 0; i + 8 <= len; i++)
	{
		if (memcmp(blob + i, "abcdefgh", 8) == 0)
		{
			memset(blob + i, 0, 8);
			found++;
		}
	}
	CHECK(found == 1);
	use_damaged(blob, len);
	left = cb_pack_delete(blob, len, &second, 1, rest);
	CHECK(left > 0 && left <= len && cb_pack_check(rest, left));
	free(rest);
}

/* Slopes where there were none leave no room for the references behind them. */
static void
test_damaged_slopes(void)
{
	uint64_t	body[CB_PACK_MAX_WORDS];
	CbPackEntry entries[8];
	unsigned char *data;
	unsigned char *refs;
	size_t		len;

	for (int w = 0; w < CB_PACK_MAX_WORDS; w++)
		body[w] = unit_random(&seed);
	for (int i = 0; i < 8; i++)
		entries[i] = (CbPackEntry) {body, sizeof(body), 0, 1};
	len = cb_pack_encode(entries, 8, blob, CAPACITY);
	data = malloc(len);
	memcpy(data, blob, len);

	/* all are alike: what stands behind the codes is the body */
	refs = data + CB_PACK_MAX_WORDS;
	while (refs + sizeof(body) < data + len &&
		   memcmp(refs, body, sizeof(body)) != 0)
		refs++;
	if (CHECK(refs + sizeof(body) < data + len))
	{
		memset(refs - CB_PACK_MAX_WORDS, 3 << 6 | 8, 5);
		CHECK(!cb_pack_check(data, len));
		use_damaged(data, len);
	}
	free(data);
}

/* ---------- the format ---------- */

#define FROZEN_ENTRIES 40

/* FNV-1a, of all that an entry is */
static uint64_t
hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hash = (hash ^ ((const unsigned char *) bytes)[i]) * 0x100000001b3u;
	return hash;
}

static uint64_t
hash_entry(uint64_t hash, const CbPackEntry *entry, const void *body)
{
	hash = hash_bytes(hash, &entry->len, sizeof(entry->len));
	hash = hash_bytes(hash, &entry->info, sizeof(entry->info));
	hash = hash_bytes(hash, &entry->tid, sizeof(entry->tid));
	return hash_bytes(hash, body, entry->len);
}

/* Of what the blob's entries are, as they are read. */
static uint64_t
hash_decoded(const unsigned char *data, size_t len)
{
	static uint64_t body[CB_PACK_MAX_BODY / 8 + 1];
	CbPackReader reader;
	CbPackEntry entry;
	uint64_t	hash = 0xcbf29ce484222325u;

	if (!CHECK(cb_pack_open(&reader, data, len)))
		return 0;
	for (int i = 0; i < cb_pack_count(data); i++)
	{
		if (!CHECK(cb_pack_read(&reader, i, &entry, body)))
			return 0;
		hash = hash_entry(hash, &entry, body);
	}
	return hash;
}

/* Makes entries of a shape, the same each time; their hash. */
static uint64_t
make_frozen(PackShape shape)
{
	uint64_t	own_seed = 0x9E3779B97F4A7C15u + (uint64_t) shape;
	uint64_t	hash = 0xcbf29ce484222325u;

	set.key = 0;
	pack_make(&set, shape, FROZEN_ENTRIES, &own_seed);
	for (int i = 0; i < FROZEN_ENTRIES; i++)
		hash = hash_entry(hash, &set.entries[i], set.entries[i].body);
	return hash;
}

static bool
same_hex(const char *hex, const unsigned char *data, size_t len)
{
	if (strlen(hex) != 2 * len)
		return false;
	for (size_t i = 0; i < len; i++)
	{
		char		two[3];

		snprintf(two, sizeof(two), "%02x", data[i]);
		if (memcmp(two, hex + 2 * i, 2) != 0)
			return false;
	}
	return true;
}

/*
 * Blobs of pack_vectors.txt, which were encoded by version 1 of the format: a
 * shape, the hash of its entries, the blob.  They are read as what they were, and
 * the same entries still give the same bytes, on which redo relies.  Who changes
 * the format on purpose writes the file anew: CB_PACK_VECTORS=write.
 */
static void
test_frozen(void)
{
	bool		write = getenv("CB_PACK_VECTORS") != NULL;
	FILE	   *file = fopen("pack_vectors.txt", write ? "w" : "r");
	static char hex[2 * CAPACITY + 1];
	int			shape;
	uint64_t	hash;
	int			n = 0;

	if (!CHECK(file != NULL))
		return;
	for (int s = 0; write && s < PACK_NSHAPES; s++)
	{
		size_t		len;

		hash = make_frozen((PackShape) s);
		len = s == PACK_HUGE ? 0 : encode(0, FROZEN_ENTRIES);
		if (len == 0)
			continue;
		fprintf(file, "%d %016llx ", s, (unsigned long long) hash);
		for (size_t i = 0; i < len; i++)
			fprintf(file, "%02x", blob[i]);
		fputc('\n', file);
	}
	while (!write && fscanf(file, "%d %lx %s", &shape, &hash, hex) == 3)
	{
		size_t		len = strlen(hex) / 2;

		for (size_t i = 0; i < len; i++)
		{
			unsigned int byte;

			CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1);
			other[i] = (unsigned char) byte;
		}
		CHECK(hash_decoded(other, len) == hash);
		CHECK(make_frozen((PackShape) shape) == hash);
		CHECK(same_hex(hex, blob, encode(0, FROZEN_ENTRIES)));
		n++;
	}
	CHECK(write || n == PACK_NSHAPES - 1);
	fclose(file);
}

/* Random bytes behind a header that is right. */
static void
test_garbage(void)
{
	for (int round = 0; round < rounds(6000); round++)
	{
		size_t		len = 24 + 8 * (size_t) unit_below(&seed, 200);
		unsigned char *data = malloc(len);
		uint32_t	zeros = unit_below(&seed, 8);

		for (size_t i = 0; i < len; i++)
			data[i] = unit_below(&seed, 8) < zeros ? 0 :
				(unsigned char) unit_random(&seed);
		cb_pack_encode(&(CbPackEntry) {data, 8, 0, 1}, 1, blob, CAPACITY);
		data[0] = blob[0];
		data[1] = (unsigned char) (1 + unit_below(&seed, 8));
		data[2] = (unsigned char) unit_below(&seed, 17);
		data[3] = (unsigned char) unit_below(&seed, 3);
		((uint16_t *) data)[2] = (uint16_t) (1 + unit_below(&seed, 100));
		((uint16_t *) data)[4] = (uint16_t) unit_below(&seed, 100);
		((uint16_t *) data)[5] = (uint16_t) (len / 8);
		use_damaged(data, len);
		free(data);
	}
}

/* Encodes, removes, and encodes what is left with others, over and over. */
static void
test_random(void)
{
	for (int round = 0; round < 400; round++)
	{
		PackShape	shape = (PackShape) unit_below(&seed, PACK_NSHAPES);
		int			n = 1 + (int) unit_below(&seed, 700);
		int			from = (int) unit_below(&seed, (uint32_t) n);
		size_t		len;

		pack_make(&set, shape, n, &seed);
		len = encode(from, n - from);
		if (len == 0)
			continue;
		check_holds(blob, len, set.entries + from, n - from);
		memmove(set.entries, set.entries + from,
				(size_t) (n - from) * sizeof(CbPackEntry));
		remove_all(len, n - from, 2 + unit_below(&seed, 6));
	}
}

/* Were numbers searched for as such? */
static void
test_numbers(void)
{
	CHECK(numbers_found > 1000);
}

static const double doubles[] = {-INFINITY, -1e300, -2.5, -1, -1e-310, -0.0, 0.0, 1e-310, 1,
2.5, 1e300, INFINITY, NAN, -NAN};

#define NDOUBLES (int) (sizeof(doubles) / sizeof(doubles[0]))

static int64_t
lead_of_double(double value)
{
	uint64_t	word;
	int64_t		lead = 0;

	memcpy(&word, &value, sizeof(word));
	CHECK(cb_lead(CB_LEAD_FLOAT64, word, &lead));
	return lead;
}

/* Is a key with the first head before one with the other, by their leads? */
static bool
is_less(CbLeadKind kind, uint64_t a, uint64_t b)
{
	int64_t		x = 0;
	int64_t		y = 0;

	if (cb_lead_is_of_body(kind))
		CHECK(cb_lead(kind, a, &x) && cb_lead(kind, b, &y));
	else
		CHECK(cb_lead_of_content(kind, a, &x) && cb_lead_of_content(kind, b, &y));
	return x < y;
}

/* Does the lead's order say what the numbers' says, all NaNs being the same? */
static void
test_leads(void)
{
	for (int i = 0; i < NDOUBLES * NDOUBLES; i++)
	{
		double		a = doubles[i / NDOUBLES];
		double		b = doubles[i % NDOUBLES];
		int			less = isnan(b) ? !isnan(a) : a < b;
		int			equal = isnan(b) ? isnan(a) : a == b;

		CHECK((lead_of_double(a) < lead_of_double(b)) == less);
		CHECK((lead_of_double(a) == lead_of_double(b)) == equal);
	}
	for (int round = 0; round < 10000; round++)
	{
		uint64_t	a = unit_random(&seed);
		uint64_t	b = a ^ (unit_random(&seed) & unit_random(&seed) << unit_below(&seed, 64));

		CHECK(is_less(CB_LEAD_BYTES, a, b) == (memcmp(&a, &b, sizeof(a)) < 0));
		CHECK(is_less(CB_LEAD_TEXT, a, b) == (memcmp(&a, &b, sizeof(a)) < 0));
		CHECK(is_less(CB_LEAD_INT32, a, b) == ((int32_t) a < (int32_t) b));
	}
}

static int
compare_doubles(const void *a, const void *b)
{
	int64_t		x = lead_of_double(*(const double *) a);
	int64_t		y = lead_of_double(*(const double *) b);

	return (x > y) - (x < y);
}

/* Does a blob of these entries hold them?  It is made anew, if they fit. */
static void
check_encoded(const CbPackEntry *entries, int n)
{
	size_t		len = cb_pack_encode(entries, n, blob, CAPACITY);

	if (len != 0)
		check_holds(blob, len, entries, n);
}

/* Doubles, of some of which there are many, with or without another word. */
static void
test_search_doubles(void)
{
	static double bodies[2000][2];
	static CbPackEntry entries[2000];

	for (int round = 0; round < 40; round++)
	{
		int			n = 1 + (int) unit_below(&seed, 2000);

		for (int i = 0; i < n; i++)
		{
			bodies[i][0] = unit_below(&seed, 4) == 0 ?
				doubles[unit_below(&seed, (uint32_t) NDOUBLES)] :
				(double) (int64_t) unit_random(&seed) / 7;
			bodies[i][1] = (double) unit_below(&seed, 3);
		}
		qsort(bodies, (size_t) n, sizeof(bodies[0]), compare_doubles);
		for (int i = 0; i < n; i++)
			entries[i] = (CbPackEntry) {bodies[i], (uint16_t) (round % 2 ? 8 : 16), 0,
				unit_random(&seed) >> 16 | 1};
		check_encoded(entries, n);
	}
}

/* a body that is one text, with or without a word behind it; its length */
#define TEXT_BODY	160

static uint16_t
make_text(unsigned char *body, const unsigned char *content, uint32_t n, bool more)
{
	uint32_t	len = n + 1;

	memset(body, 0, TEXT_BODY);
	if (n > 126)
	{
		body[0] = (unsigned char) ((n + 4) << 2);
		body[1] = (unsigned char) ((n + 4) << 2 >> 8);
		memcpy(body + 4, content, n);
		len = n + 4;
	}
	else
	{
		body[0] = (unsigned char) ((n + 1) << 1 | 1);
		memcpy(body + 1, content, n);
	}
	len = (len + 7) & ~UINT32_C(7);
	if (more)
	{
		body[len] = (unsigned char) unit_below(&seed, 256);
		len += 8;
	}
	return (uint16_t) len;
}

/* The content of a text, of at most 140 bytes of few kinds; its length. */
static uint32_t
make_content(unsigned char *content, uint32_t common, uint32_t most)
{
	uint32_t	n = common + unit_below(&seed, most);

	for (uint32_t i = 0; i < n; i++)
		content[i] = (unsigned char) (i < common ? 'a' + i % 5 :
									  unit_below(&seed, 4) * (1 + unit_below(&seed, 80)));
	return n;
}

static int
compare_texts(const void *a, const void *b)
{
	const CbPackEntry *x = a;
	const CbPackEntry *y = b;
	int64_t		leads_of[2] = {0, 0};

	CHECK(lead_of(CB_LEAD_TEXT, x, &leads_of[0]));
	CHECK(lead_of(CB_LEAD_TEXT, y, &leads_of[1]));
	return (leads_of[0] > leads_of[1]) - (leads_of[0] < leads_of[1]);
}

/* Texts, with and without a common prefix, some of which are long. */
static void
test_search_texts(void)
{
	static unsigned char bodies[500][TEXT_BODY];
	static CbPackEntry entries[500];
	unsigned char content[TEXT_BODY];

	for (int round = 0; round < 200; round++)
	{
		int			n = 1 + (int) unit_below(&seed, 500);
		uint32_t	common = unit_below(&seed, 2) * unit_below(&seed, 20);
		uint32_t	most = round % 5 == 0 ? 120 : 1 + unit_below(&seed, 20);

		for (int i = 0; i < n; i++)
			entries[i] = (CbPackEntry) {bodies[i],
				make_text(bodies[i], content, make_content(content, common, most),
						  round % 2 != 0),
				0, unit_random(&seed) >> 16 | 1};
		qsort(entries, (size_t) n, sizeof(entries[0]), compare_texts);
		check_encoded(entries, n);
	}
}

/* Lengths of texts around what a head has, and ones that have none. */
static void
test_heads(void)
{
	unsigned char content[TEXT_BODY];
	unsigned char body[TEXT_BODY];
	uint64_t	expected;
	uint64_t	head = 0;

	for (uint32_t n = 0; n < 140; n++)
	{
		for (uint32_t i = 0; i < sizeof(content); i++)
			content[i] = (unsigned char) (1 + unit_below(&seed, 255));
		expected = 0;
		memcpy(&expected, content, n < 8 ? n : 8);
		for (int more = 0; more < 2; more++)
		{
			uint16_t	len = make_text(body, content, n, more);

			CHECK(cb_lead_find_head(body, len, &head) && head == expected);
		}
	}
	memset(body, 0xFF, sizeof(body));
	for (uint32_t n = 0; n < 12; n++)
	{
		body[0] = (unsigned char) ((n + 4) << 2);
		body[1] = body[2] = body[3] = 0;
		CHECK(cb_lead_find_head(body, 16, &head));
		CHECK(head == (n < 8 ? (UINT64_C(1) << 8 * n) - 1 : UINT64_MAX));
	}
	body[0] = 1;				/* elsewhere */
	CHECK(!cb_lead_find_head(body, 24, &head));
	body[0] = 2;				/* compressed */
	CHECK(!cb_lead_find_head(body, 24, &head));
}

/* A body that is a number and a text, with which it ends; its length. */
static uint16_t
make_pair(unsigned char *body, int32_t number, const unsigned char *content, uint32_t n)
{
	unsigned char text[TEXT_BODY];
	uint32_t	len = make_text(text, content, n, false);

	memset(body, 0, TEXT_BODY);
	memcpy(body, &number, sizeof(number));
	memcpy(body + sizeof(number), text, len);
	return (uint16_t) ((sizeof(number) + len + 7) & ~UINT64_C(7));
}

typedef struct Pair
{
	int32_t		number;
	uint32_t	n;				/* bytes of the text */
	unsigned char content[TEXT_BODY];	/* zeros behind them */
} Pair;

static void
make_random_pair(Pair *pair, uint32_t numbers, uint32_t most)
{
	memset(pair, 0, sizeof(Pair));
	pair->number = (int32_t) unit_below(&seed, numbers) - 1;
	if (unit_below(&seed, 50) == 0)
		pair->number = unit_below(&seed, 2) ? INT32_MIN : INT32_MAX;
	pair->n = make_content(pair->content, 0, most);
}

static int
compare_pairs(const void *a, const void *b)
{
	const Pair *x = a;
	const Pair *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return memcmp(x->content, y->content, TEXT_BODY);
}

/* Leads of pairs are in the order of both columns, but for texts that are long. */
static void
test_pairs(void)
{
	for (int round = 0; round < 10000; round++)
	{
		Pair		pairs[2];
		unsigned char body[TEXT_BODY];
		uint64_t	head;
		int64_t		lead[2] = {0, 0};

		for (int i = 0; i < 2; i++)
		{
			make_random_pair(&pairs[i], 3, round % 9 == 0 ? 140 : 6);
			(void) make_pair(body, pairs[i].number, pairs[i].content, pairs[i].n);
			memcpy(&head, body, sizeof(head));
			CHECK(cb_lead(CB_LEAD_INT32_TEXT, head, &lead[i]) == (pairs[i].n <= 126));
			if (pairs[i].n > 126)
				lead[i] = cb_lead_of_pair(pairs[i].number, 0);
		}
		if (lead[0] != lead[1])
			CHECK((lead[0] < lead[1]) == (compare_pairs(&pairs[0], &pairs[1]) < 0) ||
				  pairs[0].n > 126 || pairs[1].n > 126);
		else
			CHECK(pairs[0].number == pairs[1].number);
		CHECK(lead[0] >= cb_lead_of_pair(pairs[0].number, 0));
	}
	for (int round = 0; round < 10000; round++)
	{
		int32_t		a[2] = {(int32_t) unit_below(&seed, 3) - 1, (int32_t) unit_random(&seed)};
		int32_t		b[2] = {(int32_t) unit_below(&seed, 3) - 1, (int32_t) unit_random(&seed)};
		uint64_t	x;
		uint64_t	y;

		memcpy(&x, a, sizeof(x));
		memcpy(&y, b, sizeof(y));
		CHECK(is_less(CB_LEAD_INT32_INT32, x, y) ==
			  (a[0] < b[0] || (a[0] == b[0] && a[1] < b[1])));
	}
}

/* Pairs, of whose numbers there are few or many, some with texts that are long. */
static void
test_search_pairs(void)
{
	static Pair pairs[500];
	static unsigned char bodies[500][TEXT_BODY];
	static CbPackEntry entries[500];

	for (int round = 0; round < 200; round++)
	{
		int			n = 1 + (int) unit_below(&seed, 500);
		uint32_t	numbers = round % 3 == 0 ? 1 : 1 + unit_below(&seed, 300);
		uint32_t	most = round % 5 == 0 ? 140 : 1 + unit_below(&seed, 20);

		for (int i = 0; i < n; i++)
			make_random_pair(&pairs[i], numbers, most);
		qsort(pairs, (size_t) n, sizeof(pairs[0]), compare_pairs);
		for (int i = 0; i < n; i++)
			entries[i] = (CbPackEntry) {bodies[i],
				make_pair(bodies[i], pairs[i].number, pairs[i].content, pairs[i].n),
				0, unit_random(&seed) >> 16 | 1};
		check_encoded(entries, n);
	}
}

/* the head of a numeric of 3 digits, in its short form */
static uint64_t
numeric(bool negative, int weight, int first, int second, int third)
{
	return UINT64_C(0x8000) | (negative ? UINT64_C(0x2000) : 0) | ((uint64_t) weight & 0x7F) |
		(uint64_t) first << 16 | (uint64_t) second << 32 | (uint64_t) third << 48;
}

/* Numerics in ascending order; digits behind the point that are shown do not count. */
static void
test_numerics(void)
{
	const uint64_t ascending[] = {
		0xF000, numeric(true, 63, 9999, 0, 0), numeric(true, 1, 1, 0, 0),
		numeric(true, 0, 9999, 9999, 9999), numeric(true, 0, 1, 0, 1),
		numeric(true, 0, 1, 0, 0), numeric(true, -64, 1, 0, 0), 0x8000,
		numeric(false, -64, 1, 0, 0), numeric(false, -1, 9999, 0, 0),
		numeric(false, 0, 1, 0, 0), numeric(false, 0, 1, 0, 1),
		numeric(false, 0, 1, 1, 0), numeric(false, 0, 9999, 0, 0),
		numeric(false, 1, 1, 0, 0), numeric(false, 63, 9999, 9999, 9999), 0xD000, 0xC000
	};
	int64_t		lead;
	int64_t		same;

	for (size_t i = 1; i < sizeof(ascending) / sizeof(ascending[0]); i++)
		CHECK(is_less(CB_LEAD_NUMERIC, ascending[i - 1], ascending[i]));
	CHECK(cb_lead_of_content(CB_LEAD_NUMERIC, numeric(false, 0, 1, 0, 0), &lead));
	CHECK(cb_lead_of_content(CB_LEAD_NUMERIC, numeric(false, 0, 1, 0, 0) | 3 << 7, &same));
	CHECK(lead == same);
	CHECK(!cb_lead_of_content(CB_LEAD_NUMERIC, 0x0003, &lead));	/* the long form */
	CHECK(!cb_lead_of_content(CB_LEAD_NUMERIC, 0x4003, &lead));
}

static int
compare_numerics(const void *a, const void *b)
{
	uint64_t	x = *(const uint64_t *) a;
	uint64_t	y = *(const uint64_t *) b;

	return is_less(CB_LEAD_NUMERIC, y, x) - is_less(CB_LEAD_NUMERIC, x, y);
}

/* Numerics of 3 or 4 digits, many of them equal in the first 3. */
static void
test_search_numerics(void)
{
	static uint64_t heads[500];
	static unsigned char bodies[500][TEXT_BODY];
	static CbPackEntry entries[500];

	for (int round = 0; round < 100; round++)
	{
		int			n = 1 + (int) unit_below(&seed, 500);
		uint32_t	digits = 1 + unit_below(&seed, 9999);

		for (int i = 0; i < n; i++)
			heads[i] = unit_below(&seed, 20) == 0 ? 0x8000 :
				numeric(unit_below(&seed, 2), (int) unit_below(&seed, 4) - 2,
						1 + (int) unit_below(&seed, digits), (int) unit_below(&seed, digits),
						(int) unit_below(&seed, 10));
		qsort(heads, (size_t) n, sizeof(heads[0]), compare_numerics);
		for (int i = 0; i < n; i++)
		{
			unsigned char content[10];

			memcpy(content, &heads[i], sizeof(heads[i]));
			memcpy(content + 8, &heads[unit_below(&seed, (uint32_t) n)], 2);
			entries[i] = (CbPackEntry) {bodies[i],
				make_text(bodies[i], content, heads[i] == 0x8000 ? 2 : round % 2 ? 8 : 10,
						  round % 3 == 0),
				0, unit_random(&seed) >> 16 | 1};
		}
		check_encoded(entries, n);
	}
	for (size_t l = 0; l < NLEADS; l++)
	{
		CHECK(leads_found[l] > 1000);
		/* what looks like a text by chance, and is none, has no number at hand */
		CHECK(leads_asked[l] < leads_found[l] * (cb_lead_is_of_body(leads[l]) ? 2 : 0.01));
	}
}

int
main(void)
{
	if (getenv("CB_SEED") != NULL)
		seed ^= (uint64_t) atoll(getenv("CB_SEED")) << 20;
	unit_run("pack: reads what was encoded", test_round_trip);
	unit_run("pack: sizes", test_sizes);
	unit_run("pack: capacity", test_capacity);
	unit_run("pack: the same entries make the same blob", test_deterministic);
	unit_run("pack: the format's bytes are as they were", test_frozen);
	unit_run("pack: refuses what is no entry", test_refuses);
	unit_run("pack: LP_DEAD hints", test_hints);
	unit_run("pack: removing until nothing is left", test_delete);
	unit_run("pack: removing one", test_delete_one);
	unit_run("pack: removing one of each block", test_delete_of_blocks);
	unit_run("pack: random sequences", test_random);
	unit_run("pack: numbers found", test_numbers);
	unit_run("pack: leads are in the order of keys", test_leads);
	unit_run("pack: heads of texts", test_heads);
	unit_run("pack: leads of numerics", test_numerics);
	unit_run("pack: leads of pairs", test_pairs);
	unit_run("pack: searches by leads", test_search_doubles);
	unit_run("pack: searches by leads of texts", test_search_texts);
	unit_run("pack: searches by leads of pairs", test_search_pairs);
	unit_run("pack: searches by leads of numerics", test_search_numerics);
	unit_run("pack: damaged blobs", test_damaged);
	unit_run("pack: a damaged prefix", test_damaged_prefix);
	unit_run("pack: damaged slopes", test_damaged_slopes);
	unit_run("pack: random bytes", test_garbage);
	free(set.space);
	return unit_status;
}
