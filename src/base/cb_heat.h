/*-------------------------------------------------------------------------
 *
 * cb_heat.h
 *	  Heat: when leaves were last read and written, as far as was sampled.
 *
 * Who reads a leaf for a scan, or puts entries into one, says so with
 * cb_heat_note().  VACUUM, verification and inspection do not.  Of a backend's
 * notes one in CB_HEAT_READ_SAMPLE or CB_HEAT_WRITE_SAMPLE goes to the table
 * in shared memory; the distance to the next is random, so that a pattern in
 * what a backend does cannot hide a leaf, and less than twice that.  So a leaf
 * that is visited so often in each epoch has the right age.  Others can look
 * colder than they are, for want of a sample, and warmer, as they share a
 * slot: of a range, how many of its leaves are young tells more than the age
 * of one.
 *
 * An epoch is cache_batch.heat_epoch long.  The clock moves on when somebody
 * samples or looks and finds that it is due; so it stands still, to be moved
 * later by what has passed, while nobody does either.
 *
 * A file is known by its number, and nothing has to be told when it goes: the
 * number does not come back soon, and stamps age.  Heat is lost at a restart.
 *
 * No function here takes a lock, allocates memory or raises an error; all but
 * cb_heat_clock() may be called with pages locked and in critical sections.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_HEAT_H
#define CB_HEAT_H

#include "postgres.h"

#include "core/cb_heatmap.h"
#include "storage/block.h"
#include "utils/rel.h"

/*
 * powers of 2; a sample takes half a microsecond, a read of a leaf one or two
 */
#define CB_HEAT_READ_SAMPLE		64
#define CB_HEAT_WRITE_SAMPLE	8

/* notes of this backend until the next that is sampled */
extern int	cb_heat_left[CB_HEAT_KINDS];

extern void cb_heat_shmem_request(void);
extern void cb_heat_shmem_startup(void);

extern void cb_heat_sample(Relation rel, BlockNumber block, CbHeatKind kind);

/* The leaf is being read or written, or was a moment ago. */
static inline void
cb_heat_note(Relation rel, BlockNumber block, CbHeatKind kind)
{
	if (unlikely(--cb_heat_left[kind] == 0))
		cb_heat_sample(rel, block, kind);
}

/* The leaf will be needed: it counts as read and written at present. */
extern void cb_heat_touch(Relation rel, BlockNumber block);

/* A page takes over entries of a leaf: it is as warm, unless it is warmer. */
extern void cb_heat_inherit(Relation rel, BlockNumber block, BlockNumber from);

/* Is any heat kept? */
extern bool cb_heat_is_kept(void);

/* Brings the clock up to date; epochs since the start of the server. */
extern uint32 cb_heat_clock(void);

/* Epochs since the latest sampled access to the leaf; or CB_HEAT_NEVER. */
extern uint32 cb_heat_age(Relation rel, BlockNumber block, CbHeatKind kind,
						  uint32 clock);

#endif							/* CB_HEAT_H */
