/*
 * chunk_test.c - chunks in one thread: filling, sorting, searching, states.
 */
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cb_chunk.h"
#include "unit.h"

#define MAX_SIZE 65536
#define MAX_ENTRIES (MAX_SIZE / 12)

/* What an entry is here; some have more bytes behind. */
typedef struct Entry
{
	uint32_t	key;
	uint32_t	number;
} Entry;

static uint64_t memory[MAX_SIZE / 8];
static CbChunk chunk;
static uint16_t order[MAX_ENTRIES];
static uint16_t scratch[MAX_ENTRIES];
static uint64_t seed = 362436069;
static long ncompares;
static long jump_at;			/* 0: never */
static jmp_buf out;

static int
compare_keys(const void *a, const void *b, void *arg)
{
	uint32_t	x = ((const Entry *) a)->key;
	uint32_t	y = ((const Entry *) b)->key;

	CHECK(arg == &seed);
	if (++ncompares == jump_at)
		longjmp(out, 1);
	return (x > y) - (x < y);
}

static int
probe_key(const void *entry, void *arg)
{
	return ((const Entry *) entry)->key < *(uint32_t *) arg ? -1 : 1;
}

static uint32_t
key_of(uint16_t place)
{
	return ((const Entry *) cb_chunk_at(&chunk, place))->key;
}

static void
start(uint32_t size)
{
	cb_chunk_init(&chunk, memory, size);
	cb_chunk_open(&chunk);
}

/* Appends an entry with some bytes behind; false: no room. */
static bool
add(uint32_t key)
{
	char		bytes[64] = {0};
	Entry		entry = {key, cb_chunk_count(&chunk)};
	uint32_t	len = sizeof(Entry) + key % 3 * 7;

	memcpy(bytes, &entry, sizeof(entry));
	if (CB_CHUNK_ALIGN(len) > cb_chunk_room(&chunk))
		return false;
	cb_chunk_append(&chunk, bytes, len);
	return true;
}

static void
sort(uint32_t n)
{
	ncompares = 0;
	cb_chunk_sort(&chunk, n, order, scratch, compare_keys, &seed);
}

/* order is one of the first n entries' places, sorted, equal ones as they came. */
static void
check_order(uint32_t n)
{
	static bool missing[MAX_SIZE / 8];

	memset(missing, 0, sizeof(missing));
	for (uint32_t i = 0; i < n; i++)
		missing[cb_chunk_item(&chunk, i)->place] = true;
	for (uint32_t i = 0; i < n; i++)
	{
		if (!CHECK(missing[order[i]]))
			return;
		missing[order[i]] = false;
		if (i > 0)
		{
			uint32_t	last = key_of(order[i - 1]);
			uint32_t	key = key_of(order[i]);

			CHECK(last < key || (last == key && order[i - 1] < order[i]));
		}
	}
}

static void
test_fill(void)
{
	static const uint32_t sizes[] = {16, 24, 4096, 24576, 65536};

	for (int s = 0; s < 5; s++)
	{
		uint32_t	size = sizes[s];
		uint32_t	n = 0;

		start(size);
		CHECK(cb_chunk_count(&chunk) == 0);
		CHECK(cb_chunk_room(&chunk) == size - sizeof(CbItem));
		while (cb_chunk_room(&chunk) >= sizeof(Entry))
		{
			Entry		entry = {size ^ n, n};

			cb_chunk_append(&chunk, &entry, sizeof(entry));
			n++;
			CHECK(cb_chunk_count(&chunk) == n);
		}
		CHECK(n == size / (sizeof(Entry) + sizeof(CbItem)));
		for (uint32_t i = 0; i < n; i++)
		{
			const Entry *entry = cb_chunk_entry(&chunk, i);

			CHECK((uintptr_t) entry % 8 == 0);
			CHECK(entry->key == (size ^ i) && entry->number == i);
		}
	}
}

static void
test_largest(void)
{
	static char bytes[MAX_SIZE];

	for (uint32_t size = 16; size <= MAX_SIZE; size += size < 100 ? 8 : 6544)
	{
		uint32_t	len = CB_CHUNK_MAX_ENTRY(size);

		start(size);
		CHECK(CB_CHUNK_ALIGN(len) <= cb_chunk_room(&chunk));
		CHECK(CB_CHUNK_ALIGN(len + 1) > cb_chunk_room(&chunk));
		memset(bytes, 0x5a, len);
		cb_chunk_append(&chunk, bytes, len);
		CHECK(memcmp(cb_chunk_entry(&chunk, 0), bytes, len) == 0);
		CHECK(cb_chunk_room(&chunk) == 0);
	}
}

/* Keys of all sorts: one a pattern. */
static uint32_t
make_key(int pattern, uint32_t i)
{
	switch (pattern)
	{
		case 0:
			return unit_below(&seed, UINT32_MAX);
		case 1:
			return i;
		case 2:
			return UINT32_MAX - i;
		case 3:
			return unit_below(&seed, 3);
		case 4:					/* batches, each sorted */
			return (i % 50) * 100 + unit_below(&seed, 100);
		case 5:					/* up and down */
			return i % 200 < 100 ? i % 200 : 200 - i % 200;
		case 6:					/* nearly sorted */
			return unit_below(&seed, 20) == 0 ? unit_below(&seed, 1000) : i;
		default:
			return 42;
	}
}

#define NPATTERNS 8

static void
test_sort_once(void)
{
	for (int pattern = 0; pattern < NPATTERNS; pattern++)
	{
		for (uint32_t n = 0; n < 600; n += n < 40 ? 1 : 37)
		{
			start(24576);
			for (uint32_t i = 0; i < n; i++)
				CHECK(add(make_key(pattern, i)));
			sort(n);
			check_order(n);
		}
	}
}

/* Sorted again and again as it grows, and once for fewer than there are. */
static void
test_sort_growing(void)
{
	for (int round = 0; round < 60; round++)
	{
		bool		room = true;

		start(4096 + 8 * unit_below(&seed, round % 2 ? 500 : 7000));
		while (room)
		{
			uint32_t	few = unit_below(&seed, round % 2 ? 10 : 300);
			uint32_t	n;

			for (uint32_t i = 0; i < few && room; i++)
				room = add(make_key(round % NPATTERNS, i));
			n = cb_chunk_count(&chunk);
			n -= unit_below(&seed, n - cb_load_relaxed(&chunk.nsorted) + 1);
			sort(n);
			check_order(n);
			if (unit_below(&seed, 3) > 0)
			{
				cb_chunk_install_order(&chunk, order, n);
				CHECK(cb_load_relaxed(&chunk.nsorted) == n);
			}
		}
	}
}

/* It is cheap where it can be. */
static void
test_sort_cost(void)
{
	uint32_t	n;

	start(MAX_SIZE);
	for (uint32_t i = 0; add(i * 3); i++)
		;
	n = cb_chunk_count(&chunk);
	sort(n);
	CHECK(ncompares < n);		/* was in order */

	start(MAX_SIZE);
	for (uint32_t i = 0; i < 2000; i++)
		CHECK(add(unit_below(&seed, 1000000)));
	sort(2000);
	CHECK(ncompares < 2000 * 12);
	cb_chunk_install_order(&chunk, order, 2000);
	sort(2000);
	CHECK(ncompares == 0);
	for (uint32_t i = 0; i < 5; i++)
		CHECK(add(unit_below(&seed, 1000000)));
	sort(2005);
	check_order(2005);
	CHECK(ncompares < 5 * 26);	/* not 2000 */
}

/* A comparison that does not return leaves the chunk as it was. */
static void
test_longjmp(void)
{
	static uint64_t copy[MAX_SIZE / 8];
	CbChunk		chunk_copy;
	volatile long at = 1;

	start(8192);
	for (uint32_t i = 0; i < 60; i++)
		CHECK(add(unit_below(&seed, 1000)));
	sort(60);
	cb_chunk_install_order(&chunk, order, 60);
	for (uint32_t i = 60; i < 120; i++)
		CHECK(add(unit_below(&seed, 1000)));
	memcpy(copy, memory, sizeof(copy));
	memcpy(&chunk_copy, &chunk, sizeof(chunk));

	while (setjmp(out) == 0 || at < 1000000)
	{
		jump_at = at++;
		sort(120);
		break;
	}
	jump_at = 0;
	CHECK(at > 100);
	CHECK(memcmp(copy, memory, sizeof(copy)) == 0);
	CHECK(memcmp(&chunk_copy, &chunk, sizeof(chunk)) == 0);
	sort(120);
	check_order(120);
}

static void
test_search(void)
{
	for (uint32_t n = 0; n < 70; n++)
	{
		start(4096);
		for (uint32_t i = 0; i < n; i++)
			CHECK(add(unit_below(&seed, 40)));
		sort(n);
		cb_chunk_install_order(&chunk, order, n);
		for (uint32_t cut = 0; cut <= 41; cut++)
		{
			uint32_t	left = 0;
			uint32_t	from = n / 3;

			while (left < n && key_of(order[left]) < cut)
				left++;
			for (int near = 0; near <= 1; near++)
			{
				CHECK(cb_chunk_search(&chunk, 0, n, near, probe_key, &cut) == left);
				CHECK(cb_chunk_search(&chunk, from, n, near, probe_key, &cut) ==
					  (left > from ? left : from));
				CHECK(cb_chunk_search(&chunk, 0, from, near, probe_key, &cut) ==
					  (left < from ? left : from));
			}
		}
	}
}

/* Does this change of state stop the program? */
static bool
edge_is_refused(CbChunkState from, CbChunkState to)
{
	int			status = 0;
	pid_t		child = fork();

	if (child == 0)
	{
		if (freopen("/dev/null", "w", stderr) == NULL)
			_exit(1);
		signal(SIGABRT, SIG_DFL);
		cb_store_release(&chunk.state, from);
		cb_chunk_set_state(&chunk, to);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
		  (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
	return WIFSIGNALED(status);
}

static void
test_edges(void)
{
	static const char *const legal[] = {
		[CB_CHUNK_FREE] = ".a...",
		[CB_CHUNK_ACTIVE] = "..s.r",
		[CB_CHUNK_SEALED] = "...fr",
		[CB_CHUNK_FLUSHING] = "..s.r",
		[CB_CHUNK_RETIRED] = "f....",
	};

	start(4096);
	for (int from = CB_CHUNK_FREE; from <= CB_CHUNK_RETIRED; from++)
	{
		for (int to = CB_CHUNK_FREE; to <= CB_CHUNK_RETIRED; to++)
			CHECK(edge_is_refused(from, to) == (legal[from][to] == '.'));
	}
}

static void
test_life(void)
{
	start(4096);
	CHECK(cb_chunk_state(&chunk) == CB_CHUNK_ACTIVE);
	CHECK(add(1) && add(2));
	cb_chunk_hold(&chunk);		/* a reader */
	cb_chunk_set_state(&chunk, CB_CHUNK_SEALED);
	CHECK(cb_chunk_own(&chunk, 7));
	CHECK(!cb_chunk_own(&chunk, 8));
	CHECK(!cb_chunk_own(&chunk, 7));
	CHECK(cb_load_relaxed(&chunk.owner) == 7);
	CHECK(cb_load_relaxed(&chunk.holders) == 3);
	cb_chunk_set_state(&chunk, CB_CHUNK_FLUSHING);

	cb_chunk_set_state(&chunk, CB_CHUNK_SEALED);	/* gave up */
	cb_chunk_disown(&chunk);
	CHECK(!cb_chunk_release(&chunk));

	CHECK(cb_chunk_own(&chunk, 8));
	cb_chunk_set_state(&chunk, CB_CHUNK_FLUSHING);
	cb_chunk_set_state(&chunk, CB_CHUNK_RETIRED);
	cb_chunk_disown(&chunk);
	CHECK(!cb_chunk_release(&chunk));	/* the flusher's */
	CHECK(!cb_chunk_release(&chunk));	/* the list's */
	CHECK(key_of(cb_chunk_item(&chunk, 1)->place) == 2);
	CHECK(cb_chunk_release(&chunk));	/* the reader's */
	cb_chunk_set_state(&chunk, CB_CHUNK_FREE);

	cb_chunk_open(&chunk);
	CHECK(cb_chunk_count(&chunk) == 0);
	CHECK(cb_load_relaxed(&chunk.nsorted) == 0);
	CHECK(cb_chunk_room(&chunk) == 4096 - sizeof(CbItem));
	CHECK(cb_load_relaxed(&chunk.holders) == 1);
}

int
main(void)
{
	unit_run("chunk: filled to the last byte", test_fill);
	unit_run("chunk: largest entry", test_largest);
	unit_run("chunk: sorts all patterns", test_sort_once);
	unit_run("chunk: sorts as it grows", test_sort_growing);
	unit_run("chunk: number of comparisons", test_sort_cost);
	unit_run("chunk: comparison that jumps out", test_longjmp);
	unit_run("chunk: search", test_search);
	unit_run("chunk: legal changes of state", test_edges);
	unit_run("chunk: life, owner and holders", test_life);
	return unit_status;
}
