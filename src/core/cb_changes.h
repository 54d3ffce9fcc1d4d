/*-------------------------------------------------------------------------
 *
 * cb_changes.h
 *	  Counts of the changes of blocks, in a table of fixed size.
 *
 * Counts only grow.  Blocks share them: a change of one makes others look
 * changed, and never the other way round.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_CHANGES_H
#define CB_CHANGES_H

#include "core/cb_atomic.h"

typedef struct CbChanges
{
	uint32_t	ncounts;
	cb_atomic64 *counts;		/* the caller's memory */
} CbChanges;

/* Nobody else may use the counts yet. */
extern void cb_changes_init(CbChanges *changes, cb_atomic64 *counts,
							uint32_t ncounts);

/* A block's count; 48 bits of it.  file: any number that tells files apart. */
extern uint64_t cb_changes_count(const CbChanges *changes, uint64_t file,
								 uint32_t block);

/* The block is being changed; nobody reads it until that is done. */
extern void cb_changes_note(const CbChanges *changes, uint64_t file,
							uint32_t block);

#endif							/* CB_CHANGES_H */
