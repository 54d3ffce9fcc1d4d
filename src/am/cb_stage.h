/*-------------------------------------------------------------------------
 *
 * cb_stage.h
 *	  Staging: what cb_stage.c (stages and publication), cb_stage_hooks.c
 *	  (when to publish and when to drop) and cb_stage_pin.c (rows that may die
 *	  early) offer to each other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_STAGE_H
#define CB_STAGE_H

#include "base/cb_base.h"

/*
 * Nested ExecutorRun, ExecutorFinish and ProcessUtility calls of this backend,
 * and how many of them run a plan that may insert speculatively.
 */
typedef struct CbNesting
{
	int			depth;
	int			speculative;
} CbNesting;

extern CbNesting cb_nesting;

/*
 * Set once the transaction's stages have been published for good: from then
 * to its end aminsert writes through (A8).
 */
extern bool cb_stage_committing;

extern bool cb_stage_is_empty(void);
extern void cb_stage_publish_all(int min_level);
extern int	cb_stage_drop(int min_level);
extern void cb_stage_end_xact(void);
extern void cb_stage_void(Oid heapoid, BlockNumber block,
						  const OffsetNumber *rows, int nrows);

/* whether a backend has unpublished entries, for its parallel workers (A14) */
extern void cb_stage_set_pending(bool pending);
extern bool cb_stage_leader_is_pending(void);

/* pins on the heap pages of rows that may be speculative (A1) */
extern bool cb_pin_row(Relation heap, ItemPointer tid);
extern void cb_pin_release_deeper(int depth);
extern void cb_pin_forget(int min_level);

#endif							/* CB_STAGE_H */
