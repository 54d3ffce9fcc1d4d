/*
 * stress_test.c - chunks of several buckets, used by threads as backends do.
 *
 * A bucket has one appender, and all readers and flushers use all buckets.
 * The mutex of a bucket stands for its lock: it guards the list, the active
 * chunk, the installed order and what counts as applied.  Entries are read,
 * sorted and applied without it.
 *
 * Each entry names its bucket and its number in it, and has a checksum.  What
 * must hold: a reader finds each published entry in the chunks that it holds
 * or among the applied ones; no entry is torn or of another bucket; each one
 * is applied once; and at the end all chunks are free.
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "core/cb_chunk.h"
#include "core/cb_freelist.h"
#include "unit.h"

#define NBUCKETS 3
#define NREADERS 3
#define NFLUSHERS 2
#define NCHUNKS 24
#define CHUNK_SIZE 1024
#define MAX_LIST 8
#define MAX_ENTRIES (CHUNK_SIZE / 12)
#define MAX_SEQ 2000000
#define SECONDS 2

typedef struct Entry
{
	uint32_t	bucket;
	uint32_t	seq;
	uint64_t	key;
	uint64_t	sum;
	uint64_t	more[3];		/* 0 to 3 of them */
} Entry;

typedef struct Bucket
{
	pthread_mutex_t lock;
	uint32_t	list[MAX_LIST];
	int			nlist;
	int			active;			/* index in list, or -1 */
	uint32_t	published;		/* sequence numbers below exist */
	uint32_t	low;			/* all below are applied */
	uint8_t    *applied;
} Bucket;

static uint64_t memory[NCHUNKS][CHUNK_SIZE / 8];
static CbChunk chunks[NCHUNKS];
static CbFreeList freelist;
static cb_atomic32 links[NCHUNKS];
static Bucket buckets[NBUCKETS];
static atomic_bool stop_appending;
static atomic_bool stop;
static atomic_long nread;
static atomic_long ninstalled;
static atomic_long ngave_up;
static atomic_long nflushed;

static uint64_t
mix(uint64_t x)
{
	x ^= x >> 33;
	x *= UINT64_C(0xff51afd7ed558ccd);
	x ^= x >> 33;
	return x * UINT64_C(0xc4ceb9fe1a85ec53);
}

static uint32_t
entry_length(uint32_t seq)
{
	return offsetof(Entry, more) + seq % 4 * 8;
}

static void
make_entry(Entry *entry, uint32_t bucket, uint32_t seq)
{
	entry->bucket = bucket;
	entry->seq = seq;
	entry->key = mix(seq);
	entry->sum = mix(entry->key + bucket);
	for (uint32_t i = 0; i < seq % 4; i++)
		entry->more[i] = entry->sum + i;
}

static bool
check_entry(const void *data, uint32_t bucket)
{
	Entry		expected;
	const Entry *entry = data;

	if (!CHECK(entry->bucket == bucket))
		return false;
	make_entry(&expected, bucket, entry->seq);
	return CHECK(memcmp(&expected, entry, entry_length(entry->seq)) == 0);
}

static int
compare_entries(const void *a, const void *b, void *arg)
{
	uint64_t	x = ((const Entry *) a)->key;
	uint64_t	y = ((const Entry *) b)->key;

	(void) arg;
	return (x > y) - (x < y);
}

static void
give_up_hold(uint32_t number)
{
	if (cb_chunk_release(&chunks[number]))
	{
		cb_chunk_set_state(&chunks[number], CB_CHUNK_FREE);
		cb_freelist_push(&freelist, number);
	}
}

/* The active chunk, if it has room for len bytes; else a new one, or NULL. */
static CbChunk *
chunk_for(Bucket *b, uint32_t len)
{
	uint32_t	number;

	if (b->active >= 0)
	{
		CbChunk    *chunk = &chunks[b->list[b->active]];

		if (CB_CHUNK_ALIGN(len) <= cb_chunk_room(chunk))
			return chunk;
		cb_chunk_set_state(chunk, CB_CHUNK_SEALED);
		b->active = -1;
	}
	if (b->nlist == MAX_LIST ||
		(number = cb_freelist_pop(&freelist)) == CB_FREELIST_NONE)
		return NULL;
	cb_chunk_open(&chunks[number]);
	b->active = b->nlist;
	b->list[b->nlist++] = number;
	return &chunks[number];
}

static void *
append(void *arg)
{
	uint32_t	number = (uint32_t) (intptr_t) arg;
	Bucket	   *b = &buckets[number];
	uint64_t	random = 99 + number;
	Entry		entry;

	while (!atomic_load(&stop_appending) && b->published < MAX_SEQ - 10)
	{
		pthread_mutex_lock(&b->lock);
		for (uint32_t i = unit_below(&random, 10); i > 0; i--)
		{
			CbChunk    *chunk = chunk_for(b, entry_length(b->published));

			if (chunk == NULL)
				break;
			make_entry(&entry, number, b->published);
			cb_chunk_append(chunk, &entry, entry_length(b->published));
			b->published++;
		}
		pthread_mutex_unlock(&b->lock);
		if (unit_below(&random, 4) == 0)
			sched_yield();
	}
	return NULL;
}

/* What a reader took under the lock. */
typedef struct Window
{
	uint32_t	list[MAX_LIST];
	uint32_t	counts[MAX_LIST];
	int			nlist;
	uint32_t	low;
	uint32_t	published;
} Window;

static void
take_window(Bucket *b, Window *w, uint8_t *found)
{
	pthread_mutex_lock(&b->lock);
	w->nlist = b->nlist;
	for (int i = 0; i < b->nlist; i++)
	{
		w->list[i] = b->list[i];
		w->counts[i] = cb_chunk_count(&chunks[b->list[i]]);
		cb_chunk_hold(&chunks[b->list[i]]);
	}
	w->low = b->low;
	w->published = b->published;
	memcpy(found, b->applied + w->low, w->published - w->low);
	pthread_mutex_unlock(&b->lock);
}

/* Installs the order if nobody else could be reading the old one. */
static void
install(Bucket *b, uint32_t number, const uint16_t *order, uint32_t n)
{
	CbChunk    *chunk = &chunks[number];

	pthread_mutex_lock(&b->lock);
	for (int i = 0; i < b->nlist; i++)
	{
		if (b->list[i] == number && cb_load_acquire(&chunk->holders) == 2 &&
			n > cb_load_relaxed(&chunk->nsorted))
		{
			cb_chunk_install_order(chunk, order, n);
			atomic_fetch_add(&ninstalled, 1);
		}
	}
	pthread_mutex_unlock(&b->lock);
}

/* Sorts the first n entries; they are sorted and each is there once. */
static void
sort_chunk(const CbChunk *chunk, uint32_t n, uint16_t *order)
{
	uint16_t	scratch[MAX_ENTRIES];
	uint64_t	sum = 0;
	uint64_t	expected = 0;

	cb_chunk_sort(chunk, n, order, scratch, compare_entries, NULL);
	for (uint32_t i = 0; i < n; i++)
	{
		sum += order[i];
		expected += cb_chunk_item(chunk, i)->place;
		if (i > 0)
			CHECK(compare_entries(cb_chunk_at(chunk, order[i - 1]),
								  cb_chunk_at(chunk, order[i]), NULL) < 0);
	}
	CHECK(sum == expected);
}

static int
probe_key(const void *entry, void *arg)
{
	return ((const Entry *) entry)->key < *(uint64_t *) arg ? -1 : 1;
}

/* The sorted run is sorted, as a search sees it. */
static void
search_chunk(const CbChunk *chunk, uint64_t cut)
{
	uint32_t	n = cb_load_acquire(&((CbChunk *) chunk)->nsorted);
	uint32_t	rank = cb_chunk_search(chunk, 0, n, false, probe_key, &cut);

	for (uint32_t i = 0; i < n; i++)
	{
		const Entry *entry = cb_chunk_at(chunk, cb_chunk_item(chunk, i)->order);

		CHECK((i < rank) == (entry->key < cut));
	}
}

/* Reads all entries, also those that were appended since the lock. */
static void
read_window(uint32_t number, const Window *w, uint8_t *found)
{
	for (int i = 0; i < w->nlist; i++)
	{
		const CbChunk *chunk = &chunks[w->list[i]];
		uint32_t	n = cb_chunk_count(chunk);

		CHECK(n >= w->counts[i]);
		for (uint32_t e = 0; e < n; e++)
		{
			const Entry *entry = cb_chunk_entry(chunk, e);

			if (!check_entry(entry, number))
				return;
			CHECK(entry->seq >= w->low);
			if (entry->seq < w->published)
				CHECK(++found[entry->seq - w->low] == 1);
			else
				CHECK(e >= w->counts[i]);
		}
		atomic_fetch_add(&nread, n);
	}
	for (uint32_t seq = w->low; seq < w->published; seq++)
		CHECK(found[seq - w->low] == 1);
}

static void *
read_all(void *arg)
{
	uint64_t	random = 4242 + (uint64_t) (intptr_t) arg;
	uint8_t    *found = malloc(MAX_SEQ);
	uint16_t	order[MAX_ENTRIES];
	Window		w;

	while (!atomic_load(&stop))
	{
		uint32_t	number = unit_below(&random, NBUCKETS);
		Bucket	   *b = &buckets[number];

		take_window(b, &w, found);
		read_window(number, &w, found);
		for (int i = 0; i < w.nlist; i++)
		{
			CbChunk    *chunk = &chunks[w.list[i]];

			search_chunk(chunk, unit_random(&random));
			if (unit_below(&random, 3) == 0)
			{
				sort_chunk(chunk, w.counts[i], order);
				install(b, w.list[i], order, w.counts[i]);
			}
			give_up_hold(w.list[i]);
		}
	}
	free(found);
	return NULL;
}

/* Takes what nobody else is flushing; returns how many chunks. */
static int
take_chunks(Bucket *b, uint32_t me, uint32_t *taken)
{
	int			n = 0;

	pthread_mutex_lock(&b->lock);
	for (int i = 0; i < b->nlist; i++)
	{
		CbChunk    *chunk = &chunks[b->list[i]];

		if (!cb_chunk_own(chunk, me))
			continue;
		if (b->active == i)
		{
			cb_chunk_set_state(chunk, CB_CHUNK_SEALED);
			b->active = -1;
		}
		cb_chunk_set_state(chunk, CB_CHUNK_FLUSHING);
		taken[n++] = b->list[i];
	}
	pthread_mutex_unlock(&b->lock);
	return n;
}

/* Marks the chunk's entries as applied; the bucket is locked. */
static void
apply(Bucket *b, const CbChunk *chunk)
{
	uint32_t	n = cb_chunk_count(chunk);

	for (uint32_t e = 0; e < n; e++)
	{
		const Entry *entry = cb_chunk_entry(chunk, e);

		CHECK(b->applied[entry->seq] == 0);
		b->applied[entry->seq] = 1;
	}
	while (b->low < b->published && b->applied[b->low])
		b->low++;
	atomic_fetch_add(&nflushed, n);
}

static void
unlink_chunk(Bucket *b, uint32_t number)
{
	int			i = 0;

	while (i < b->nlist && b->list[i] != number)
		i++;
	if (!CHECK(i < b->nlist))
		return;
	CHECK(b->active != i);
	if (b->active > i)
		b->active--;
	b->nlist--;
	memmove(&b->list[i], &b->list[i + 1], (b->nlist - i) * sizeof(uint32_t));
}

/* Ends a flush: applied and unlinked, or given up. */
static void
finish_chunk(Bucket *b, uint32_t number, bool done)
{
	CbChunk    *chunk = &chunks[number];

	pthread_mutex_lock(&b->lock);
	if (done)
	{
		apply(b, chunk);
		unlink_chunk(b, number);
		cb_chunk_set_state(chunk, CB_CHUNK_RETIRED);
	}
	else
		cb_chunk_set_state(chunk, CB_CHUNK_SEALED);
	cb_chunk_disown(chunk);
	pthread_mutex_unlock(&b->lock);

	if (done)
		give_up_hold(number);	/* the list's */
	else
		atomic_fetch_add(&ngave_up, 1);
	give_up_hold(number);
}

/* Flushes a bucket; returns how many chunks it took. */
static int
flush_bucket(uint32_t number, uint32_t me, uint64_t *random)
{
	Bucket	   *b = &buckets[number];
	uint32_t	taken[MAX_LIST];
	uint16_t	order[MAX_ENTRIES];
	int			n = take_chunks(b, me, taken);

	for (int i = 0; i < n; i++)
	{
		const CbChunk *chunk = &chunks[taken[i]];
		uint32_t	count = cb_chunk_count(chunk);

		sort_chunk(chunk, count, order);
		for (uint32_t e = 0; e < count; e++)
			check_entry(cb_chunk_entry(chunk, e), number);
		CHECK(cb_chunk_count(chunk) == count);
		finish_chunk(b, taken[i], random == NULL || unit_below(random, 4) > 0);
	}
	return n;
}

static void *
flush_all(void *arg)
{
	uint32_t	me = (uint32_t) (intptr_t) arg;
	uint64_t	random = 777 + me;

	while (!atomic_load(&stop))
	{
		flush_bucket(unit_below(&random, NBUCKETS), me, &random);
		if (unit_below(&random, 4) == 0)
			sched_yield();
	}
	return NULL;
}

static void
set_up(void)
{
	cb_freelist_init(&freelist, links, NCHUNKS);
	for (int i = 0; i < NCHUNKS; i++)
		cb_chunk_init(&chunks[i], memory[i], CHUNK_SIZE);
	for (int i = 0; i < NBUCKETS; i++)
	{
		pthread_mutex_init(&buckets[i].lock, NULL);
		buckets[i].active = -1;
		buckets[i].applied = calloc(MAX_SEQ, 1);
	}
}

/* All that was published is applied, once; all chunks are free. */
static void
check_end(void)
{
	for (uint32_t i = 0; i < NBUCKETS; i++)
	{
		while (flush_bucket(i, 1, NULL) > 0)
			;
		CHECK(buckets[i].nlist == 0 && buckets[i].active == -1);
		CHECK(buckets[i].published > 0);
		CHECK(buckets[i].low == buckets[i].published);
		free(buckets[i].applied);
	}
	CHECK(cb_freelist_count(&freelist) == NCHUNKS);
	for (int i = 0; i < NCHUNKS; i++)
	{
		CHECK(cb_chunk_state(&chunks[i]) == CB_CHUNK_FREE);
		CHECK(cb_load_relaxed(&chunks[i].holders) == 0);
		CHECK(cb_load_relaxed(&chunks[i].owner) == 0);
		CHECK(cb_freelist_pop(&freelist) != CB_FREELIST_NONE);
	}
	CHECK(cb_freelist_pop(&freelist) == CB_FREELIST_NONE);
	/* each kind of work was done */
	CHECK(nread > 0 && nflushed > 0 && ninstalled > 0 && ngave_up > 0);
}

static void
test_all(void)
{
	pthread_t	threads[NBUCKETS + NREADERS + NFLUSHERS];
	struct timespec pause = {SECONDS, 0};
	intptr_t	n = 0;

	set_up();
	for (intptr_t i = 0; i < NBUCKETS; i++)
		CHECK(pthread_create(&threads[n++], NULL, append, (void *) i) == 0);
	for (intptr_t i = 0; i < NREADERS; i++)
		CHECK(pthread_create(&threads[n++], NULL, read_all, (void *) i) == 0);
	for (intptr_t i = 0; i < NFLUSHERS; i++)
		CHECK(pthread_create(&threads[n++], NULL, flush_all, (void *) (i + 1)) == 0);

	nanosleep(&pause, NULL);
	atomic_store(&stop_appending, true);
	for (int i = 0; i < NBUCKETS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&stop, true);
	for (int i = NBUCKETS; i < n; i++)
		pthread_join(threads[i], NULL);
	check_end();
	printf("# %ld entries read, %ld flushed, %ld orders installed, %ld flushes given up\n",
		   nread, nflushed, ninstalled, ngave_up);
}

int
main(void)
{
	unit_run("stress: appenders, readers and flushers", test_all);
	return unit_status;
}
