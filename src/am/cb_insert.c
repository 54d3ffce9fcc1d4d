/*-------------------------------------------------------------------------
 *
 * cb_insert.c
 *	  Taking an entry: aminsert of the access method, and what it decides.
 *
 * An entry is staged (cb_stage.c), and published (cb_stage_publish.c) at the
 * end of its statement, for which others see (cb_stage_hooks.c); or at once,
 * if nobody would do so later in time, or the stages are full.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"
#include "am/cb_am.h"
#include "am/cb_stage.h"
#include "am/cb_unique.h"

#include "access/htup_details.h"
#include "catalog/pg_index.h"
#include "nodes/execnodes.h"
#include "rel/cb_key.h"
#include "replication/logicalworker.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* What the insertions of one plan into an index share; in its IndexInfo. */
typedef struct CbInsertState
{
	uint64		generation;		/* of the stages */
	CbStage    *stage;
	Size		fixed_len;		/* cb_key_fixed_len() of the index */
	CbUniqueState *unique;		/* NULL: nothing was checked yet */
	bool		is_alone;		/* cb_insert_is_alone(), if rows may be
								 * speculative */
} CbInsertState;

/*
 * Has the table no other index that may refuse a row, or run functions while one
 * is added?
 */
static bool
cb_insert_is_alone(Relation index, Relation heap)
{
	List	   *indexes = RelationGetIndexList(heap);
	bool		alone = true;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		HeapTuple	tuple = SearchSysCache1(INDEXRELID,
											ObjectIdGetDatum(lfirst_oid(lc)));
		Form_pg_index form;

		if (!HeapTupleIsValid(tuple))
			continue;
		form = (Form_pg_index) GETSTRUCT(tuple);
		if (form->indexrelid != RelationGetRelid(index) &&
			(form->indisunique || form->indisexclusion ||
			 !heap_attisnull(tuple, Anum_pg_index_indexprs, NULL) ||
			 !heap_attisnull(tuple, Anum_pg_index_indpred, NULL)))
			alone = false;
		ReleaseSysCache(tuple);
	}
	list_free(indexes);
	return alone;
}

/* The same for all insertions of a plan, so that they look it up once. */
static CbInsertState *
cb_insert_get_state(Relation index, Relation heap, IndexInfo *index_info)
{
	CbInsertState *state = index_info->ii_AmCache;

	if (state == NULL)
	{
		state = MemoryContextAllocZero(index_info->ii_Context,
									   sizeof(CbInsertState));
		state->fixed_len = cb_key_fixed_len(index);
		state->is_alone = index->rd_index->indisunique &&
			cb_nesting.speculative > 0 && cb_insert_is_alone(index, heap);
		index_info->ii_AmCache = state;
	}
	if (state->stage == NULL || state->generation != cb_stage_generation)
	{
		state->stage = cb_stage_get(index, heap);
		state->generation = cb_stage_generation;
	}
	return state;
}

static bool
cb_insert_has_null(Relation index, const bool *isnull)
{
	for (int i = 0; i < RelationGetNumberOfAttributes(index); i++)
	{
		if (isnull[i])
			return true;
	}
	return false;
}

/*
 * May the entry of a row be staged that may have been inserted speculatively?
 * Yes while its page is pinned (A1).  Not for an exclusion constraint, whose
 * index is scanned next, and would be for each row (A15).
 */
static bool
cb_insert_may_stage_speculative(Relation heap, ItemPointer heap_tid,
								IndexInfo *index_info)
{
	return index_info->ii_ExclusionOps == NULL && cb_pin_row(heap, heap_tid);
}

/*
 * Is an entry left out?  So it is if it may not be unique and its row is
 * speculative: the server takes that back.  In the index it would only refuse
 * the row that has the claim, and neither would stay.  While a plan with ON
 * CONFLICT runs, the server has no other rows for UNIQUE_CHECK_PARTIAL: it asks
 * for that for deferrable constraints, which we do not have, and where a logical
 * worker applies rows, which runs no plan then and may keep them.
 */
static inline bool
cb_insert_leaves_out(bool is_unique)
{
	return !is_unique && cb_nesting.speculative > 0;
}

/*
 * Must an entry be published before aminsert returns?  Yes if nobody would do
 * so later in time, and if its heap tuple may die while the transaction goes
 * on and its TID be used again.  A logical replication worker runs no
 * executor; there the commit does it.
 *
 * Of a unique index also if it may not be unique, as it has no claim then; if
 * another index may refuse its speculative row, which would leave a claim for
 * nothing, or run functions, which may wait; and if others would wait for claims
 * to more than its key.
 */
static inline bool
cb_insert_must_write_through(const CbInsertState *state,
							 const CbUniqueEntry *entry, bool is_unique,
							 IndexInfo *index_info)
{
	if (cb_stage_committing || !is_unique)
		return true;
	if (entry->check != UNIQUE_CHECK_NO && cb_nesting.speculative > 0 &&
		!state->is_alone)
		return true;
	if (state->unique != NULL && !cb_unique_may_stage(state->unique))
		return true;
	if (cb_nesting.speculative > 0 &&
		!cb_insert_may_stage_speculative(entry->heap, entry->tid, index_info))
		return true;
	return cb_nesting.depth == 0 && !IsLogicalWorker();
}

/* Forms the entry at the end of the stage. */
static void
cb_insert_stage_entry(const CbInsertState *state, Relation index,
					  Datum *values, bool *isnull, ItemPointer heap_tid)
{
	IndexTuple	itup;

	if (state->fixed_len != 0 && !cb_insert_has_null(index, isnull))
	{
		itup = cb_stage_add(state->stage, index,
							CbFixedEntrySize(state->fixed_len));
		cb_key_form_fixed(index, values, isnull, heap_tid, state->fixed_len,
						  itup);
		return;
	}
	itup = cb_key_form_entry(index, values, isnull, heap_tid);
	memcpy(cb_stage_add(state->stage, index, IndexTupleSize(itup)), itup,
		   IndexTupleSize(itup));
	pfree(itup);
}

/* Checks that the entry is unique, if it has to be: see cb_unique_claim(). */
static bool
cb_insert_check(CbInsertState *state, const CbUniqueEntry *entry,
				IndexInfo *index_info)
{
	/* the server never leaves it out, so what a claim adds to a filter is all */
	Assert(entry->check != UNIQUE_CHECK_NO || !entry->index->rd_index->indisunique);
	if (!cb_unique_is_checked(entry->index, entry->isnull, entry->check))
		return true;
	if (state->unique == NULL)
		state->unique = cb_unique_make_state(entry->index,
											 index_info->ii_Context);
	return cb_unique_claim(state->unique, state->stage, entry);
}

/*
 * aminsert: takes an entry, which is staged, and published at once if it must
 * be or the stages are full; or leaves it out.  Returns whether it is known to
 * be unique, which means nothing if that was not asked for.
 *
 * The caller holds RowExclusiveLock on the index, the row is in the table, and
 * no LWLock or buffer lock is held.  The values are copied.  Comparison
 * functions run only if something is checked or published, or a commit has left
 * something to do.  Raises the error of C11 from within the index's own
 * comparisons, one for an entry that is too long, or not unique, and those of a
 * publication; then the transaction's rollback drops what was staged.
 */
bool
cb_am_insert(Relation index, Datum *values, bool *isnull,
			 ItemPointer heap_tid, Relation heap,
			 IndexUniqueCheck check_unique, bool index_unchanged,
			 struct IndexInfo *index_info)
{
	CbInsertState *state;
	CbStage    *stage;
	CbUniqueEntry entry = {index, heap, values, isnull, heap_tid, check_unique};
	bool		write_through;
	bool		is_unique;

	cb_require_preload();
	state = cb_insert_get_state(index, heap, index_info);
	stage = state->stage;
	cb_stage_refuse_reentry(stage, index);
	if (unlikely(stage->sweep_due || stage->flush_due) && !cb_stage_committing)
		cb_stage_publish_due(stage, index);
	is_unique = cb_insert_check(state, &entry, index_info);
	if (check_unique == UNIQUE_CHECK_EXISTING || cb_insert_leaves_out(is_unique))
		return is_unique;
	write_through = cb_insert_must_write_through(state, &entry, is_unique,
												 index_info);
	if (!is_unique)
		cb_unique_add_unclaimed(state->unique, &entry);
	cb_insert_stage_entry(state, index, values, isnull, heap_tid);
	stage->nunchanged += index_unchanged;
	CB_TEST_POINT("stage-insert");

	if (write_through || stage->used >= (Size) cb_stage_size * 1024)
		cb_stage_publish(stage, index, 1);
	else if (cb_stage_total >= (Size) cb_stage_total_size * 1024)
		cb_stage_publish_largest();
	else if (cb_claim_is_full())
		cb_stage_publish_all(1);
	if (!is_unique)
		cb_unique_note_unclaimed(state->unique, &entry);
	return is_unique;
}
