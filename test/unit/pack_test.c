/*
 * pack_test.c - packed leaves: what is read is what was encoded, for entries
 * of many shapes; removing never grows a blob; damaged blobs do no harm.
 */
#include "core/cb_pack.h"
#include "pack_shapes.h"
#include "unit.h"

#define CAPACITY CB_PACK_MAX_LEN

static uint64_t blob_space[CAPACITY / 8];
static unsigned char *const blob = (unsigned char *) blob_space;
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
	for (int round = 0; round < n; round++)
	{
		int			i = (int) unit_below(&seed, (uint32_t) n);

		if (!is_entry(&reader, i, &entries[i]))
			return;
	}
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

static const int counts[] = {1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 129, 500, 800, 1999, 2000};

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

int
main(void)
{
	unit_run("pack: reads what was encoded", test_round_trip);
	return unit_status;
}
