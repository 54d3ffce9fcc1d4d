/*-------------------------------------------------------------------------
 *
 * cb_heatmap.h
 *	  When blocks of files were last accessed, in a table of fixed size.
 *
 * A slot has two stamps of two bytes, for reads and for writes: the epoch of
 * the latest access.  Slots belong to nobody: a block's is found by a hash, 16
 * neighbouring blocks of a file have neighbouring slots, and blocks that share
 * a slot are accessed together as far as this table knows.
 *
 * Invariants:
 *	a) A stamp is replaced by a later one only, or forgotten for its age.  So
 *	   what else shares a block's slot can only make the block look warmer.
 *	   (Two that race may leave the earlier of two neighbouring epochs.)
 *	b) The clock counts epochs and does not come back.  A stamp is the clock
 *	   modulo 65535, plus 1; 0: never.
 *	c) An age is below CB_HEAT_NEVER and exact, or it is CB_HEAT_NEVER.  That
 *	   is so as each slot is looked at once in CB_HEAT_SWEEP_EPOCHS epochs, and
 *	   a stamp of CB_HEAT_NEVER epochs is forgotten then: at most 32768 +
 *	   16384 + CB_HEAT_MAX_STEP epochs have passed since it was made, which is
 *	   well below 65535.
 *
 * Nothing waits, and as nothing is read by way of a stamp there is nothing to
 * order.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_HEATMAP_H
#define CB_HEATMAP_H

#include <stddef.h>

#include "core/cb_atomic.h"

typedef enum CbHeatKind
{
	CB_HEAT_READ,
	CB_HEAT_WRITE
} CbHeatKind;

#define CB_HEAT_KINDS		2

/* epochs; greater than all ages */
#define CB_HEAT_NEVER		32768

/* the clock is never moved by more at once */
#define CB_HEAT_MAX_STEP	4096

/*
 * in so many epochs all slots are looked at; their number is a multiple of it
 */
#define CB_HEAT_SWEEP_EPOCHS	16384
#define CB_HEAT_SLOT_UNIT	CB_HEAT_SWEEP_EPOCHS

/* ages 0, 1, 2-3, 4-7, ... 16384-32767, never */
#define CB_HEAT_CLASSES		17

typedef struct CbHeatSlot
{
	cb_atomic16 stamps[CB_HEAT_KINDS];
} CbHeatSlot;

typedef struct CbHeatMap
{
	cb_atomic32 clock;			/* epochs since cb_heatmap_init() */
	uint64_t	nslots;
	CbHeatSlot *slots;			/* the caller's memory */
} CbHeatMap;

/* Nobody else may use the map yet. */
extern void cb_heatmap_init(CbHeatMap *map, CbHeatSlot *slots,
							uint64_t nslots);

/* The slot of a block.  file: any number that tells files apart. */
extern CbHeatSlot *cb_heatmap_slot(const CbHeatMap *map, uint64_t file,
								   uint32_t block);

/* Notes an access at this time of the clock. */
extern void cb_heatmap_note(CbHeatSlot *slot, CbHeatKind kind, uint32_t clock);

/* Epochs since the latest access, or CB_HEAT_NEVER. */
extern uint32_t cb_heatmap_age(const CbHeatSlot *slot, CbHeatKind kind,
							   uint32_t clock);

/* Lets one block be as warm as another, unless it is warmer. */
extern void cb_heatmap_inherit(CbHeatSlot *heir, const CbHeatSlot *slot,
							   uint32_t clock);

/* Moves the clock by n epochs, CB_HEAT_MAX_STEP at most. */
extern void cb_heatmap_advance(CbHeatMap *map, uint32_t n);

static inline uint32_t
cb_heatmap_clock(const CbHeatMap *map)
{
	return cb_load_relaxed(&((CbHeatMap *) map)->clock);
}

/*
 * The class of an age, 0 .. CB_HEAT_CLASSES - 1, and the least age of a class.
 */
static inline int
cb_heatmap_class(uint32_t age)
{
	return age == 0 ? 0 : 32 - __builtin_clz(age);
}

static inline uint32_t
cb_heatmap_class_age(int class)
{
	return class == 0 ? 0 : UINT32_C(1) << (class - 1);
}

#endif							/* CB_HEATMAP_H */
