/*-------------------------------------------------------------------------
 *
 * cb_stage.h
 *	  Stages: entries that one statement has inserted and not published yet.
 *
 * A backend has one stage per index, in private memory.  Publishing moves a
 * stage's entries to the journal, or to the tree if they come dense or the
 * index is not buffered; from then on everybody can read them.
 *
 * Calls go one way: cb_insert.c (aminsert) and cb_stage_hooks.c (when to
 * publish and when to drop), then cb_stage_publish.c (publication) and
 * cb_stage_pin.c (rows that may die early), then cb_stage.c (stages).
 *
 * Invariants:
 *	a) A stage is empty whenever no executor or utility call is running,
 *	   except in a logical replication worker, and at the end of a transaction.
 *	b) Its entries are a stack of segments, one for each subtransaction that
 *	   inserted and each build of the index, innermost last.  The end of a
 *	   subtransaction publishes or drops its segments, so a segment never
 *	   outlives its subtransaction.
 *	c) A segment holds RowExclusiveLock on its index from its first entry to
 *	   the end of the (sub)transaction: the file cannot be swapped under it.
 *	d) A segment knows the build id of its index, which it has from the
 *	   metapage.  It is compared with the index's at publication only: entries
 *	   of another build are discarded, unless the change of build may still be
 *	   rolled back; then they stay.
 *	e) Entries leave a stage only once they are readable and in WAL, and have no
 *	   conflict with a serializable transaction.  An error before that leaves
 *	   the stage as it was.
 *	f) While comparison functions may run for a publication, the stage is
 *	   marked: they can neither scan the index nor insert into it.
 *	g) An entry of a row that may die before its (sub)transaction ends is
 *	   staged only while its heap page is pinned; once the row is dead its TID
 *	   is made invalid, and it is not published (cb_stage_pin.c).
 *	h) A segment has the claims (bucket/cb_claim.h) to the keys of its entries that
 *	   were found to be unique.  They end when it leaves the stage: its entries
 *	   are published then, or dropped.  While a stage has claims their lock is
 *	   held, so they are all of one segment: what is below is published before
 *	   another one gets any.  It may be kept (d), but then nobody else can lock
 *	   the index, so nobody waits.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_STAGE_H
#define CB_STAGE_H

#include "base/cb_base.h"

#include "access/itup.h"
#include "bucket/cb_claim.h"
#include "lib/ilist.h"
#include "nodes/pg_list.h"
#include "page/cb_page.h"
#include "utils/rel.h"

typedef struct CbSegment
{
	SubTransactionId subid;
	int			nest_level;		/* nesting level of the subtransaction */
	int			n;				/* entries */
	Size		start;			/* first entry's place in the arena */
	int			first_claim;	/* the first of its claims, in the stage's */
	uint8		build_id[CB_BUILD_ID_LEN];
} CbSegment;

typedef enum CbSegmentFate
{
	CB_SEGMENT_PUBLISH,
	CB_SEGMENT_DISCARD,			/* index gone or rebuilt */
	CB_SEGMENT_KEEP				/* the same, but it may be undone */
} CbSegmentFate;

typedef struct CbStage
{
	Oid			indexoid;		/* hash key */
	Oid			heapoid;		/* its table */
	bool		publishing;		/* comparisons may be running */
	bool		sweep_due;		/* journal was past its limit at commit */
	bool		flush_due;		/* the same of buckets, and no workers */
	uint32		nunchanged;		/* entries of updates that left the index's
								 * columns alone, about */
	dlist_node	node;			/* in cb_stage_list while there are segments */
	int			nest_level;		/* of the segment that was opened last */
	char	   *data;			/* arena: entries, each MAXALIGNed */
	Size		used;
	Size		alloc;
	CbSegment  *segs;
	int			nsegs;
	int			maxsegs;
	uint64	   *claims;			/* hashes of keys */
	int			nclaims;
	int			maxclaims;
} CbStage;

/* ---------- stages (cb_stage.c) ---------- */

/*
 * Set once the transaction's stages have been published for good: from then
 * to its end aminsert writes through (A8).
 */
extern bool cb_stage_committing;

extern uint64 cb_stage_generation;	/* changes when stages may have moved */
extern int	cb_stage_nlisted;	/* stages with segments */
extern Size cb_stage_total;		/* bytes in all arenas */

extern CbStage *cb_stage_find(Oid indexoid);
extern CbStage *cb_stage_get(Relation index, Relation heap);
extern CbStage *cb_stage_get_first(void);
extern List *cb_stage_list_indexes(int min_nest_level, Size min_size);
extern bool cb_stage_is_empty(void);
extern IndexTuple cb_stage_add(CbStage *stage, Relation index, Size size);
extern bool cb_stage_has_outer_claims(const CbStage *stage, Relation index);
extern CbClaimed cb_stage_claim(CbStage *stage, Relation index, uint64 hash);
extern void cb_stage_unclaim(CbStage *stage);
extern int	cb_stage_first_segment(const CbStage *stage, int min_nest_level);
extern void cb_stage_remove(CbStage *stage, int first,
							const CbSegmentFate *fates);
extern int	cb_stage_drop(int min_nest_level);
extern void cb_stage_end_xact(void);
extern void cb_stage_void(Oid heapoid, BlockNumber block,
						  const OffsetNumber *rows, int nrows);
extern void cb_stage_refuse_reentry(const CbStage *stage, Relation index);
extern bool cb_stage_leader_is_pending(void);	/* for a parallel worker (A14) */

static inline Size
cb_stage_segment_size(const CbStage *stage, int i)
{
	Size		end = i + 1 < stage->nsegs ? stage->segs[i + 1].start :
		stage->used;

	return end - stage->segs[i].start;
}

/* ---------- publication (cb_stage_publish.c) ---------- */

extern void cb_stage_mark(CbStage *stage);
extern void cb_stage_unmark(CbStage *stage);
extern void cb_stage_publish(CbStage *stage, Relation index, int min_nest_level);
extern void cb_stage_publish_all(int min_nest_level);
extern void cb_stage_publish_largest(void);
extern void cb_stage_publish_due(CbStage *stage, Relation index);

/* ---------- nesting (cb_stage_hooks.c) ---------- */

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

/* ---------- pins on heap pages (cb_stage_pin.c) ---------- */

extern bool cb_pin_row(Relation heap, ItemPointer tid);
extern void cb_pin_release_deeper(int depth);
extern void cb_pin_forget(int min_nest_level);

#endif							/* CB_STAGE_H */
