/*-------------------------------------------------------------------------
 *
 * cb_heatmap.c
 *	  When blocks of files were last accessed, in a table of fixed size.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_heatmap.h"

#include "core/cb_assert.h"

#define CB_HEAT_STAMPS	65535	/* different ones, besides 0 */

/* blocks of a file whose slots are neighbours: a cache line of them */
#define CB_HEAT_LINE	16

static inline uint16_t
cb_heatmap_stamp(uint32_t clock)
{
	return (uint16_t) (1 + clock % CB_HEAT_STAMPS);
}

/*
 * Epochs from a stamp to the clock.  One that is ahead of it was made by
 * somebody who has seen a later clock: it counts as of now.
 */
static inline uint32_t
cb_heatmap_stamp_age(uint16_t stamp, uint32_t clock)
{
	uint32_t	age;

	if (stamp == 0)
		return CB_HEAT_NEVER;
	age = (cb_heatmap_stamp(clock) + CB_HEAT_STAMPS - stamp) % CB_HEAT_STAMPS;
	if (age < CB_HEAT_NEVER)
		return age;
	return age < CB_HEAT_STAMPS - CB_HEAT_MAX_STEP ? CB_HEAT_NEVER : 0;
}

/*
 * All slots say that there was no access.  nslots is a multiple of
 * CB_HEAT_SLOT_UNIT; the slots stay the caller's memory.  Nobody else may use
 * the map yet.
 */
void
cb_heatmap_init(CbHeatMap *map, CbHeatSlot *slots, uint64_t nslots)
{
	assert(nslots > 0 && nslots % CB_HEAT_SLOT_UNIT == 0);
	assert(nslots / CB_HEAT_LINE <= UINT32_MAX);

	atomic_init(&map->clock, 0);
	map->nslots = nslots;
	map->slots = slots;
	for (uint64_t i = 0; i < nslots; i++)
	{
		atomic_init(&slots[i].stamps[CB_HEAT_READ], 0);
		atomic_init(&slots[i].stamps[CB_HEAT_WRITE], 0);
	}
}

/*
 * The slot of a block, which others share.  file: any number that tells files
 * apart.  The hash is splitmix64's (Steele, Lea, Flood, "Fast splittable
 * pseudorandom number generators", OOPSLA 2014).
 */
CbHeatSlot *
cb_heatmap_slot(const CbHeatMap *map, uint64_t file, uint32_t block)
{
	uint64_t	hash = file * UINT64_C(0x9E3779B97F4A7C15) + block / CB_HEAT_LINE;

	/* the upper half of splitmix64's output says which line */
	hash = (hash ^ hash >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	hash = (hash ^ hash >> 27) * UINT64_C(0x94D049BB133111EB);
	hash = (hash >> 32) * (map->nslots / CB_HEAT_LINE) >> 32;
	return &map->slots[hash * CB_HEAT_LINE + block % CB_HEAT_LINE];
}

/*
 * Notes an access at this time of the clock.  Nothing is written if that is
 * noted already.
 */
void
cb_heatmap_note(CbHeatSlot *slot, CbHeatKind kind, uint32_t clock)
{
	uint16_t	stamp = cb_heatmap_stamp(clock);

	/* the line stays shared by the CPUs that read a hot block */
	if (cb_load_relaxed(&slot->stamps[kind]) != stamp)
		cb_store_relaxed(&slot->stamps[kind], stamp);
}

/* Epochs since the latest access, or CB_HEAT_NEVER. */
uint32_t
cb_heatmap_age(const CbHeatSlot *slot, CbHeatKind kind, uint32_t clock)
{
	return cb_heatmap_stamp_age(cb_load_relaxed(&((CbHeatSlot *) slot)->stamps[kind]),
								clock);
}

/* Lets one block be as warm as another, unless it is warmer. */
void
cb_heatmap_inherit(CbHeatSlot *heir, const CbHeatSlot *slot, uint32_t clock)
{
	for (int kind = 0; kind < CB_HEAT_KINDS; kind++)
	{
		uint16_t	stamp = cb_load_relaxed(&((CbHeatSlot *) slot)->stamps[kind]);

		if (cb_heatmap_stamp_age(stamp, clock) <
			cb_heatmap_age(heir, (CbHeatKind) kind, clock))
			cb_store_relaxed(&heir->stamps[kind], stamp);
	}
}

/* Forgets a stamp if it is too old; one that is made meanwhile stays. */
static inline void
cb_heatmap_age_out(cb_atomic16 *stamp, uint32_t clock)
{
	uint16_t	seen = cb_load_relaxed(stamp);

	if (seen != 0 && cb_heatmap_stamp_age(seen, clock) == CB_HEAT_NEVER)
		(void) cb_swap_if(stamp, &seen, 0);
}

/*
 * Moves the clock by n epochs, CB_HEAT_MAX_STEP at most, and looks at the
 * slots whose turn it is: n times nslots / CB_HEAT_SWEEP_EPOCHS.  May be
 * called by several at once.
 */
void
cb_heatmap_advance(CbHeatMap *map, uint32_t n)
{
	uint32_t	clock = cb_fetch_add(&map->clock, n);
	uint64_t	share = map->nslots / CB_HEAT_SWEEP_EPOCHS;

	assert(n <= CB_HEAT_MAX_STEP);
	for (uint32_t i = 0; i < n; i++)
	{
		CbHeatSlot *slots = map->slots +
			share * ((clock + i) % CB_HEAT_SWEEP_EPOCHS);

		for (uint64_t j = 0; j < share; j++)
		{
			cb_heatmap_age_out(&slots[j].stamps[CB_HEAT_READ], clock + n);
			cb_heatmap_age_out(&slots[j].stamps[CB_HEAT_WRITE], clock + n);
		}
	}
}
