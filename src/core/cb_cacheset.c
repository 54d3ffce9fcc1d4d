/*-------------------------------------------------------------------------
 *
 * cb_cacheset.c
 *	  Entries found by look-ups.
 *
 * A line's state: the low half is odd while somebody writes the line and grows
 * with each write, so it tells a reader whether all that it read is of one time
 * (a sequence lock; Boehm, "Can seqlocks get along with programming language
 * memory models?", MSPC 2012: words are read with acquire and written with
 * release, so no fences are needed).  Above it are a bit for each entry that
 * was found, and the entry to look at first for replacement.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_cacheset.h"

#include "core/cb_mix.h"

#define CB_ENTRY_CACHE_SEQ(state)		((uint32_t) (state))
#define CB_ENTRY_CACHE_FOUND(way)		(UINT64_C(1) << (32 + (way)))
#define CB_ENTRY_CACHE_HAND_SHIFT		40
#define CB_ENTRY_CACHE_HAND(state)		((int) ((state) >> CB_ENTRY_CACHE_HAND_SHIFT))

/*
 * Makes the set empty; the lines stay the caller's memory.  Nobody else may
 * use the set yet.
 */
void
cb_cacheset_init(CbCacheSet *set, CbCacheLine *lines, uint32_t nlines)
{
	set->lines = lines;
	set->nlines = nlines;
	for (uint32_t i = 0; i < nlines; i++)
	{
		cb_store_relaxed(&lines[i].state, 0);
		for (int way = 0; way < CB_CACHESET_WAYS; way++)
			cb_store_relaxed(&lines[i].words[way][0], 0);
	}
}

static inline CbCacheLine *
cb_cacheset_line(CbCacheSet *set, uint32_t owner, uint32_t hash)
{
	return &set->lines[cb_mix_place((uint64_t) owner << 32 | hash, set->nlines)];
}

/* What tells an entry from others of its line: owner and half of the hash. */
static inline uint64_t
cb_cacheset_tag(uint32_t owner, uint32_t hash)
{
	return (uint64_t) owner << 32 | (hash & 0xffff) << 16;
}

/* The entry of a line with the tag, or -1. */
static int
cb_cacheset_search(CbCacheLine *line, uint64_t tag)
{
	for (int way = 0; way < CB_CACHESET_WAYS; way++)
	{
		if ((cb_load_acquire(&line->words[way][0]) & ~UINT64_C(0xffff)) == tag)
			return way;
	}
	return -1;
}

/*
 * Finds owner's entry of that hash, and copies it to *item; false: it is not
 * there, or its line is being written.  Beside the line that the hash leads
 * to, only its lowest 16 bits are compared, and equal hashes need not be of
 * the same key: the caller compares keys.  Whether its leaf has changed since
 * is for the caller to see.
 */
bool
cb_cacheset_find(CbCacheSet *set, uint32_t owner, uint32_t hash, CbCacheItem *item)
{
	CbCacheLine *line = cb_cacheset_line(set, owner, hash);
	uint64_t	state = cb_load_acquire(&line->state);
	uint64_t	found;
	uint64_t	words[2];
	int			way;

	if (CB_ENTRY_CACHE_SEQ(state) & 1)
		return false;
	way = cb_cacheset_search(line, cb_cacheset_tag(owner, hash));
	if (way < 0)
		return false;
	for (int i = 0; i < 2; i++)
		words[i] = cb_load_acquire(&line->words[way][i]);
	for (int i = 0; i < CB_CACHESET_DATA; i++)
		item->data[i] = cb_load_acquire(&line->words[way][2 + i]);
	found = cb_load_relaxed(&line->state);
	if (CB_ENTRY_CACHE_SEQ(found) != CB_ENTRY_CACHE_SEQ(state))
		return false;

	item->owner = owner;
	item->hash = hash;
	item->changes = (words[0] & 0xffff) << 32 | words[1] >> 32;
	item->block = (uint32_t) words[1];
	if ((found & CB_ENTRY_CACHE_FOUND(way)) == 0)
		(void) cb_swap_if(&line->state, &found, found | CB_ENTRY_CACHE_FOUND(way));
	return true;
}

/* Takes the line to write it; false: somebody else has. */
static bool
cb_cacheset_take(CbCacheLine *line, uint64_t *state)
{
	*state = cb_load_relaxed(&line->state);
	return (CB_ENTRY_CACHE_SEQ(*state) & 1) == 0 &&
		cb_swap_if(&line->state, state, *state + 1);
}

/*
 * The line has been written; found and hand are what they are to be in state.
 */
static void
cb_cacheset_release(CbCacheLine *line, uint64_t state)
{
	uint64_t	high = state & ~UINT64_C(0xffffffff);

	cb_store_release(&line->state, high | (uint32_t) (CB_ENTRY_CACHE_SEQ(state) + 2));
}

/* Chooses the entry to replace, from the hand on; moves it on. */
static int
cb_cacheset_choose(uint64_t *state)
{
	int			way = CB_ENTRY_CACHE_HAND(*state);

	while (*state & CB_ENTRY_CACHE_FOUND(way))
	{
		*state &= ~CB_ENTRY_CACHE_FOUND(way);
		way = (way + 1) % CB_CACHESET_WAYS;
	}
	*state &= (UINT64_C(1) << CB_ENTRY_CACHE_HAND_SHIFT) - 1;
	*state |= (uint64_t) ((way + 1) % CB_CACHESET_WAYS) << CB_ENTRY_CACHE_HAND_SHIFT;
	return way;
}

/*
 * Puts an item in, in the place of its predecessor if there is one, else of
 * one that was not found lately.  Does nothing if somebody else writes the
 * line.
 */
void
cb_cacheset_put(CbCacheSet *set, const CbCacheItem *item)
{
	CbCacheLine *line = cb_cacheset_line(set, item->owner, item->hash);
	uint64_t	tag = cb_cacheset_tag(item->owner, item->hash);
	uint64_t	state;
	int			way;

	if (!cb_cacheset_take(line, &state))
		return;
	way = cb_cacheset_search(line, tag);
	if (way < 0)
		way = cb_cacheset_choose(&state);
	cb_store_release(&line->words[way][0], tag | item->changes >> 32);
	cb_store_release(&line->words[way][1], item->changes << 32 | item->block);
	for (int i = 0; i < CB_CACHESET_DATA; i++)
		cb_store_release(&line->words[way][2 + i], item->data[i]);
	cb_cacheset_release(line, state);
}

/*
 * Takes owner's entry of that hash out.  Does nothing if somebody else writes
 * the line, so it may stay.
 */
void
cb_cacheset_remove(CbCacheSet *set, uint32_t owner, uint32_t hash)
{
	CbCacheLine *line = cb_cacheset_line(set, owner, hash);
	uint64_t	state;
	int			way;

	if (!cb_cacheset_take(line, &state))
		return;
	way = cb_cacheset_search(line, cb_cacheset_tag(owner, hash));
	if (way >= 0)
	{
		cb_store_release(&line->words[way][0], 0);
		state &= ~CB_ENTRY_CACHE_FOUND(way);
	}
	cb_cacheset_release(line, state);
}
