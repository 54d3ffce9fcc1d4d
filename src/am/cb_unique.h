/*-------------------------------------------------------------------------
 *
 * cb_unique.h
 *	  Uniqueness of the entries of unique indexes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_UNIQUE_H
#define CB_UNIQUE_H

#include "access/genam.h"
#include "am/cb_stage.h"
#include "nodes/execnodes.h"

/* What the checks of one plan in an index share. */
typedef struct CbUniqueState CbUniqueState;

/* An entry that is to be added, or looked at (UNIQUE_CHECK_EXISTING). */
typedef struct CbUniqueEntry
{
	Relation	index;
	Relation	heap;
	Datum	   *values;
	bool	   *isnull;
	ItemPointer tid;
	IndexUniqueCheck check;
} CbUniqueEntry;

extern bool cb_unique_is_checked(Relation index, const bool *isnull,
								 IndexUniqueCheck check);
extern CbUniqueState *cb_unique_make_state(Relation index, MemoryContext cxt);
extern bool cb_unique_may_stage(const CbUniqueState *state);
extern bool cb_unique_claim(CbUniqueState *state, CbStage *stage,
							const CbUniqueEntry *entry);
extern void cb_unique_add_unclaimed(const CbUniqueState *state,
									const CbUniqueEntry *entry);
extern void cb_unique_note_unclaimed(const CbUniqueState *state,
									 const CbUniqueEntry *entry);

/* cb_unique.c, for the file below */
extern bool cb_unique_get_hashes(Relation index, FmgrInfo **hash);
extern uint64 cb_unique_add_hash(Relation index, int column, FmgrInfo *function,
								 Datum value, bool isnull, uint64 hash);

/* cb_unique_scan.c: where can be what a scan looks for? */
typedef enum CbUniqueLook
{
	CB_UNIQUE_LOOK_STAGED,		/* anywhere */
	CB_UNIQUE_LOOK_UNSTAGED,	/* not in this process's stage */
	CB_UNIQUE_LOOK_ABSENT		/* nowhere */
} CbUniqueLook;

extern CbUniqueLook cb_unique_settle_claims(IndexScanDesc scan);
extern void cb_unique_note_found(IndexScanDesc scan, bool found);
extern void cb_unique_forget_look(void);
extern bool cb_unique_is_absent(const CbUniqueEntry *entry, uint64 ended);

/* cb_unique_filter.c */
extern void cb_unique_count_look(Relation index);
extern bool cb_unique_fill_filter(Relation index);

#endif							/* CB_UNIQUE_H */
