/*-------------------------------------------------------------------------
 *
 * cb_stage.c
 *	  Stages: their arenas, their segments, and the list of them.
 *
 * A stage's entries lie one after the other in its arena, in the order in
 * which they came; a segment is a part of it.  See cb_stage.h for what holds
 * of them.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"
#include "am/cb_am.h"
#include "am/cb_stage.h"

#include "access/parallel.h"
#include "access/twophase.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "rel/cb_rel.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#define CB_STAGE_INITIAL_SIZE	1024
#define CB_STAGE_KEEP_SIZE		8192	/* kept from batch to batch */
#define CB_STAGE_KEEP_STAGES	256 /* kept from transaction to transaction */

bool		cb_stage_committing = false;
uint64		cb_stage_generation = 0;
int			cb_stage_nlisted = 0;
Size		cb_stage_total = 0;

static HTAB *cb_stage_hash = NULL;
static MemoryContext cb_stage_cxt = NULL;

/* stages with segments, in the order in which their last ones were opened */
static dlist_head cb_stage_list = DLIST_STATIC_INIT(cb_stage_list);

/* one flag per backend, each in a cache line of its own */
typedef union CbPendingFlag
{
	bool		pending;
	char		pad[PG_CACHE_LINE_SIZE];
} CbPendingFlag;

static CbPendingFlag *cb_pending = NULL;

/* ---------- shared flags ---------- */

static int
cb_pending_count(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS + max_prepared_xacts;
}

/* Asks for a flag per process in shared memory; from shmem_request_hook. */
void
cb_stage_shmem_request(void)
{
	RequestAddinShmemSpace(mul_size(cb_pending_count(), sizeof(CbPendingFlag)));
}

/* Sets up or attaches to the flags; from shmem_startup_hook. */
void
cb_stage_shmem_startup(void)
{
	Size		size = mul_size(cb_pending_count(), sizeof(CbPendingFlag));
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cb_pending = ShmemInitStruct("cache_batch unpublished entries", size,
								 &found);
	if (!found)
		memset(cb_pending, 0, size);
	LWLockRelease(AddinShmemInitLock);
}

static void
cb_stage_set_pending(bool pending)
{
	if (cb_pending != NULL && MyProc != NULL)
		cb_pending[GetNumberFromPGProc(MyProc)].pending = pending;
}

/*
 * In a parallel worker: has the leader unpublished entries?  False in any
 * other process.  The leader cannot stage any while its workers run, and
 * starting them is a barrier, so no lock is needed.
 */
bool
cb_stage_leader_is_pending(void)
{
	PGPROC	   *leader;

	if (likely(!IsParallelWorker()) || cb_pending == NULL)
		return false;
	leader = MyProc->lockGroupLeader;
	return leader != NULL && cb_pending[GetNumberFromPGProc(leader)].pending;
}

/* ---------- stages and segments ---------- */

static void
cb_stage_make_hash(void)
{
	HASHCTL		ctl;

	if (cb_stage_cxt == NULL)
		cb_stage_cxt = AllocSetContextCreate(TopMemoryContext,
											 "cache_batch stages",
											 ALLOCSET_DEFAULT_SIZES);
	memset(&ctl, 0, sizeof(ctl));
	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(CbStage);
	ctl.hcxt = cb_stage_cxt;
	cb_stage_hash = hash_create("cache_batch stages", 64, &ctl,
								HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	cb_stage_generation++;
}

/*
 * The stage of an index; NULL: it has none.  It lives until the transaction's
 * end, and longer if few are used; see cb_stage_generation.
 */
CbStage *
cb_stage_find(Oid indexoid)
{
	if (cb_stage_hash == NULL)
		return NULL;
	return hash_search(cb_stage_hash, &indexoid, HASH_FIND, NULL);
}

/* The same, which is made if there is none, empty. */
CbStage *
cb_stage_get(Relation index, Relation heap)
{
	Oid			indexoid = RelationGetRelid(index);
	CbStage    *stage;
	bool		found;

	if (cb_stage_hash == NULL)
		cb_stage_make_hash();
	stage = hash_search(cb_stage_hash, &indexoid, HASH_ENTER, &found);
	if (!found)
		memset((char *) stage + sizeof(Oid), 0, sizeof(CbStage) - sizeof(Oid));
	stage->heapoid = RelationGetRelid(heap);
	return stage;
}

/* Has no stage of this backend a segment? */
bool
cb_stage_is_empty(void)
{
	return cb_stage_nlisted == 0;
}

/* To the list's end, where it may be already. */
static void
cb_stage_list_add(CbStage *stage, bool listed)
{
	if (listed)
		dlist_delete(&stage->node);
	dlist_push_tail(&cb_stage_list, &stage->node);
	if (!listed && cb_stage_nlisted++ == 0)
		cb_stage_set_pending(true);
}

/*
 * The first of the stages that may have segments of a nesting level and
 * deeper; such stages are at the list's end.  For when a segment is opened in
 * a subtransaction of a lower level, the deeper ones have ended, and have
 * published or dropped theirs (U1_ORDER).
 */
static dlist_node *
cb_stage_list_find(int min_nest_level)
{
	dlist_node *first = NULL;
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &cb_stage_list)
	{
		if (dlist_container(CbStage, node, iter.cur)->nest_level < min_nest_level)
			break;
		first = iter.cur;
	}
	return first;
}

static dlist_node *
cb_stage_list_next(dlist_node *node)
{
	return dlist_has_next(&cb_stage_list, node) ?
		dlist_next_node(&cb_stage_list, node) : NULL;
}

static void
cb_stage_list_remove(CbStage *stage)
{
	dlist_delete(&stage->node);
	if (--cb_stage_nlisted == 0)
		cb_stage_set_pending(false);
}

/*
 * Locks the index to the end of the current (sub)transaction, whatever
 * resource owner is in charge of the running portal (A4).
 */
static void
cb_stage_lock_index(Oid indexoid)
{
	ResourceOwner save = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelationOid(indexoid, RowExclusiveLock);
	CurrentResourceOwner = save;
}

/* Opens a segment for the current subtransaction. */
static void
cb_stage_push_segment(CbStage *stage, Relation index)
{
	CbMetaPageData meta;
	CbSegment  *seg;

	cb_stage_lock_index(stage->indexoid);
	cb_rel_read_meta(index, NULL, &meta);

	if (stage->nsegs == stage->maxsegs)
	{
		int			max = stage->maxsegs == 0 ? 2 : stage->maxsegs * 2;

		if (stage->segs == NULL)
			stage->segs = MemoryContextAlloc(cb_stage_cxt,
											 max * sizeof(CbSegment));
		else
			stage->segs = repalloc(stage->segs, max * sizeof(CbSegment));
		stage->maxsegs = max;
	}
	seg = &stage->segs[stage->nsegs];
	seg->subid = GetCurrentSubTransactionId();
	seg->nest_level = GetCurrentTransactionNestLevel();
	seg->n = 0;
	seg->start = stage->used;
	seg->first_claim = stage->nclaims;
	memcpy(seg->build_id, meta.build_id, CB_BUILD_ID_LEN);
	stage->nest_level = seg->nest_level;
	cb_stage_list_add(stage, stage->nsegs++ > 0);
}

static void
cb_stage_reserve(CbStage *stage, Size size)
{
	Size		alloc = Max(stage->alloc, CB_STAGE_INITIAL_SIZE);

	while (alloc < stage->used + size)
		alloc *= 2;
	if (alloc == stage->alloc)
		return;
	if (stage->data == NULL)
		stage->data = MemoryContextAlloc(cb_stage_cxt, alloc);
	else
		stage->data = repalloc(stage->data, alloc);
	stage->alloc = alloc;
}

/*
 * Does the next entry need a segment of its own?  Yes in another
 * subtransaction, and if the index was built anew since: a trigger, or a
 * logical replication worker, can insert before and after a TRUNCATE.  The
 * cached build id goes with the relation cache's entry, and with each build.
 */
static bool
cb_stage_needs_segment(const CbStage *stage, Relation index)
{
	const CbSegment *seg;

	if (stage->nsegs == 0)
		return true;
	seg = &stage->segs[stage->nsegs - 1];
	if (seg->subid != GetCurrentSubTransactionId())
		return true;
	return memcmp(seg->build_id, cb_rel_build_id(index), CB_BUILD_ID_LEN) != 0;
}

/*
 * Makes room for an entry of this size in bytes, MAXALIGNed, at the end of the
 * stage; the caller fills it in at once, as the room moves when more is added.
 *
 * The first entry of a subtransaction, or of a build, opens a segment: it
 * takes RowExclusiveLock on the index until the (sub)transaction ends, and
 * reads the metapage, so no buffer lock is held.  After an error the stage is
 * as it was.
 */
IndexTuple
cb_stage_add(CbStage *stage, Relation index, Size size)
{
	IndexTuple	itup;

	Assert(size == MAXALIGN(size));
	cb_stage_reserve(stage, size);
	if (cb_stage_needs_segment(stage, index))
		cb_stage_push_segment(stage, index);

	itup = (IndexTuple) (stage->data + stage->used);
	stage->used += size;
	stage->segs[stage->nsegs - 1].n++;
	cb_stage_total += size;
	return itup;
}

/* ---------- claims ---------- */

static void
cb_stage_enlarge_claims(CbStage *stage)
{
	int			max = Max(stage->maxclaims * 2, 8);

	if (stage->nclaims < stage->maxclaims)
		return;
	if (stage->claims == NULL)
		stage->claims = MemoryContextAlloc(cb_stage_cxt, max * sizeof(uint64));
	else
		stage->claims = repalloc(stage->claims, max * sizeof(uint64));
	stage->maxclaims = max;
}

/* Would a claim be of another segment than those that there are? */
bool
cb_stage_has_outer_claims(const CbStage *stage, Relation index)
{
	return stage->nclaims > 0 && cb_stage_needs_segment(stage, index);
}

/*
 * Claims a hash for an entry that the caller is about to add to the stage; not
 * if the result says that another process has it.  Opens a segment, as
 * cb_stage_add() does, to which the claim belongs: an error in whatever follows
 * ends the claim with the (sub)transaction.  The caller has published what
 * cb_stage_has_outer_claims().
 */
CbClaimed
cb_stage_claim(CbStage *stage, Relation index, uint64 hash)
{
	CbClaimed	claimed;

	if (cb_stage_needs_segment(stage, index))
		cb_stage_push_segment(stage, index);
	cb_stage_enlarge_claims(stage);
	if (stage->nclaims == 0)
		cb_claim_lock(stage->indexoid);
	claimed = cb_claim_take(stage->indexoid, &index->rd_locator, hash);
	if (claimed.count > 0)
		stage->claims[stage->nclaims++] = hash;
	if (stage->nclaims == 0)
		cb_claim_unlock(stage->indexoid);
	if (claimed.owner == CB_CLAIM_NOBODY)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("too many keys of unique indexes are being inserted")));
	return claimed;
}

/* Ends the claims from first to last - 1; cannot fail. */
static void
cb_stage_end_claims(CbStage *stage, int first, int last)
{
	for (int i = first; i < last; i++)
		cb_claim_end(stage->indexoid, stage->claims[i]);
}

/* Ends the claim that was made last, for which nothing was added. */
void
cb_stage_unclaim(CbStage *stage)
{
	cb_stage_end_claims(stage, stage->nclaims - 1, stage->nclaims);
	if (--stage->nclaims == 0)
		cb_claim_unlock(stage->indexoid);
}

/* Behind the last claim of a segment. */
static int
cb_stage_claims_end(const CbStage *stage, int i)
{
	return i + 1 < stage->nsegs ? stage->segs[i + 1].first_claim : stage->nclaims;
}

/* First segment of a nesting level or deeper; their number if there is none. */
int
cb_stage_first_segment(const CbStage *stage, int min_nest_level)
{
	int			first = stage->nsegs;

	while (first > 0 && stage->segs[first - 1].nest_level >= min_nest_level)
		first--;
	return first;
}

/* So many that their memory is not kept: that of few is, for the next batch. */
static bool
cb_stage_are_many(void)
{
	return cb_stage_hash != NULL &&
		hash_get_num_entries(cb_stage_hash) > CB_STAGE_KEEP_STAGES;
}

/* Gives the memory of a stage without segments back; cannot fail. */
static void
cb_stage_free(CbStage *stage)
{
	if (stage->data != NULL)
		pfree(stage->data);
	if (stage->segs != NULL)
		pfree(stage->segs);
	if (stage->claims != NULL)
		pfree(stage->claims);
	stage->data = NULL;
	stage->segs = NULL;
	stage->claims = NULL;
	stage->alloc = 0;
	stage->maxsegs = 0;
	stage->maxclaims = 0;
}

/*
 * Removes the segments from first on, except those to keep; cannot fail.
 * fates has one for each of them, or is NULL: none is kept.  Their claims end.
 * The locks on the index stay.
 */
void
cb_stage_remove(CbStage *stage, int first, const CbSegmentFate *fates)
{
	Size		used = first < stage->nsegs ? stage->segs[first].start :
		stage->used;
	int			nclaims = first < stage->nsegs ? stage->segs[first].first_claim :
		stage->nclaims;
	int			nsegs = first;

	for (int i = first; i < stage->nsegs; i++)
	{
		Size		size = cb_stage_segment_size(stage, i);
		int			claims_end = cb_stage_claims_end(stage, i);
		CbSegment	seg = stage->segs[i];

		if (fates == NULL || fates[i - first] != CB_SEGMENT_KEEP)
		{
			cb_stage_end_claims(stage, seg.first_claim, claims_end);
			cb_stage_total -= size;
			continue;
		}
		memmove(stage->data + used, stage->data + seg.start, size);
		for (int j = seg.first_claim; j < claims_end; j++)
			stage->claims[nclaims + j - seg.first_claim] = stage->claims[j];
		seg.start = used;
		seg.first_claim = nclaims;
		nclaims += claims_end - stage->segs[i].first_claim;
		stage->segs[nsegs++] = seg;
		used += size;
	}
	if (stage->nclaims > 0 && nclaims == 0)
		cb_claim_unlock(stage->indexoid);
	if (stage->nsegs > 0 && nsegs == 0)
		cb_stage_list_remove(stage);
	stage->nsegs = nsegs;
	stage->used = used;
	stage->nclaims = nclaims;

	if (nsegs == 0)
		stage->nunchanged = 0;
	if (nsegs == 0 &&
		(stage->alloc > CB_STAGE_KEEP_SIZE || cb_stage_are_many()))
		cb_stage_free(stage);
}

/*
 * The indexes whose stages hold min_size bytes or more, and may have segments
 * of a nesting level and deeper; palloc'd in the current memory context.
 */
List *
cb_stage_list_indexes(int min_nest_level, Size min_size)
{
	List	   *result = NIL;

	for (dlist_node *node = cb_stage_list_find(min_nest_level); node != NULL;
		 node = cb_stage_list_next(node))
	{
		CbStage    *stage = dlist_container(CbStage, node, node);

		if (stage->used >= min_size)
			result = lappend_oid(result, stage->indexoid);
	}
	return result;
}

/* The first of the stages that have segments; there is at least one. */
CbStage *
cb_stage_get_first(void)
{
	return dlist_head_element(CbStage, node, &cb_stage_list);
}

/*
 * Drops what subtransactions of a nesting level and deeper have staged; they
 * are rolled back.  Cannot fail.  Returns the number of entries dropped.
 */
int
cb_stage_drop(int min_nest_level)
{
	dlist_node *next = cb_stage_list_find(min_nest_level);
	int			dropped = 0;

	while (next != NULL)
	{
		CbStage    *stage = dlist_container(CbStage, node, next);
		int			first = cb_stage_first_segment(stage, min_nest_level);
		int			n = 0;

		next = cb_stage_list_next(next);
		for (int i = first; i < stage->nsegs; i++)
			n += stage->segs[i].n;
		cb_stage_remove(stage, first, NULL);
		cb_stat_add_oid(stage->indexoid, CB_STAT_STAGED, n);
		dropped += n;
	}
	return dropped;
}

/* Makes a stage's entries for these rows invalid; how many. */
static int
cb_stage_void_entries(CbStage *stage, BlockNumber block,
					  const OffsetNumber *rows, int nrows)
{
	int			voided = 0;

	for (int i = 0; i < stage->nsegs; i++)
	{
		CbSegment  *seg = &stage->segs[i];
		Size		end = seg->start + cb_stage_segment_size(stage, i);

		for (Size off = seg->start; off < end;)
		{
			IndexTuple	itup = (IndexTuple) (stage->data + off);

			off += MAXALIGN(IndexTupleSize(itup));
			if (ItemPointerGetBlockNumberNoCheck(&itup->t_tid) != block)
				continue;
			for (int j = 0; j < nrows; j++)
			{
				if (ItemPointerGetOffsetNumberNoCheck(&itup->t_tid) != rows[j])
					continue;
				ItemPointerSetInvalid(&itup->t_tid);
				seg->n--;
				voided++;
				break;
			}
		}
	}
	return voided;
}

/*
 * Some rows of a page of a table have died: their entries are not published.
 * The page is pinned since before they were staged, so what carries these TIDs
 * is theirs.  Cannot fail.  Looks at all that is staged for the table.
 */
void
cb_stage_void(Oid heapoid, BlockNumber block, const OffsetNumber *rows,
			  int nrows)
{
	dlist_iter	iter;

	dlist_foreach(iter, &cb_stage_list)
	{
		CbStage    *stage = dlist_container(CbStage, node, iter.cur);

		if (stage->heapoid == heapoid)
			cb_stat_add_oid(stage->indexoid, CB_STAT_STAGED,
							cb_stage_void_entries(stage, block, rows, nrows));
	}
}

/* Forgets all stages, but those that the commit has left something to do. */
static void
cb_stage_forget_all(void)
{
	HASH_SEQ_STATUS seq;
	CbStage    *stage;

	cb_stage_generation++;
	hash_seq_init(&seq, cb_stage_hash);
	while ((stage = hash_seq_search(&seq)) != NULL)
	{
		cb_stage_free(stage);
		if (stage->sweep_due || stage->flush_due)
			continue;
		(void) hash_search(cb_stage_hash, &stage->indexoid, HASH_REMOVE, NULL);
	}
	if (hash_get_num_entries(cb_stage_hash) > 0)
		return;
	cb_stage_hash = NULL;
	MemoryContextReset(cb_stage_cxt);
}

/*
 * The transaction is over: gives memory back if many indexes were used.
 * Stages move then, which cb_stage_generation tells.  Called while it commits
 * or aborts, so no error may be raised.
 */
void
cb_stage_end_xact(void)
{
	cb_stage_committing = false;
	if (cb_stage_are_many())
		cb_stage_forget_all();
}

/*
 * Raises the error of C11 if comparison functions may be running for this
 * stage.
 */
void
cb_stage_refuse_reentry(const CbStage *stage, Relation index)
{
	if (stage->publishing)
		cb_report_reentry(index);
}
