/*-------------------------------------------------------------------------
 *
 * cb_stage.c
 *	  Stages: entries that one statement has inserted and not published yet.
 *
 * A backend has one stage per index, in private memory.  Publishing moves a
 * stage's entries to the journal, or to the tree if they come dense or the
 * index is not buffered; from then on everybody can read them.
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
 *	d) A segment knows the build id of its index, which it has from the metapage.
 *	   It is compared with the index's at publication only: entries of another
 *	   build are discarded, unless the change of build may still be rolled back;
 *	   then they stay.
 *	e) Entries leave a stage only once they are readable and in WAL.  An error
 *	   before that leaves the stage as it was.
 *	f) While comparison functions may run for a publication, the stage is
 *	   marked: they can neither scan the index nor insert into it.
 *	g) An entry of a row that may die before its (sub)transaction ends is
 *	   staged only while its heap page is pinned; once the row is dead its TID
 *	   is made invalid, and it is not published (cb_stage_pin.c).
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"
#include "am/cb_am.h"
#include "am/cb_stage.h"

#include "access/relation.h"
#include "access/xact.h"
#include "flush/cb_queue.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "replication/logicalworker.h"
#include "storage/lmgr.h"
#include "storage/predicate.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* batches below this are not worth sorting, nor a look at the tree */
#define CB_STAGE_DENSE_MIN		32

/* entries that go straight to the tree at a time, when there is no room */
#define CB_STAGE_DIRECT_MAX		1024

/* buckets that one batch flushes to make room, at most */
#define CB_STAGE_HELP_MAX		16

#define CB_STAGE_INITIAL_SIZE	1024
#define CB_STAGE_KEEP_SIZE		8192	/* kept from batch to batch */
#define CB_STAGE_KEEP_STAGES	256 /* kept from transaction to transaction */

typedef struct CbSegment
{
	SubTransactionId subid;
	int			level;			/* nesting level of the subtransaction */
	int			n;				/* entries */
	Size		start;			/* first entry's place in the arena */
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
	int			level;			/* of the segment that was opened last */
	char	   *data;			/* arena: entries, each MAXALIGNed */
	Size		used;
	Size		alloc;
	CbSegment  *segs;
	int			nsegs;
	int			maxsegs;
} CbStage;

/* What the insertions of one plan into an index share; in its IndexInfo. */
typedef struct CbInsertState
{
	uint64		generation;		/* of the stages */
	CbStage    *stage;
	Size		fixed_len;		/* cb_key_fixed_len() of the index */
} CbInsertState;

bool		cb_stage_committing = false;

static HTAB *cb_stage_hash = NULL;
static uint64 cb_stage_generation = 0;	/* counts what cb_stage_hash was */
static MemoryContext cb_stage_cxt = NULL;

/* stages with segments, in the order in which their last ones were opened */
static dlist_head cb_stage_list = DLIST_STATIC_INIT(cb_stage_list);
static int	cb_stage_nlisted = 0;
static int	cb_stage_npublishing = 0;	/* stages that are marked */
static Size cb_stage_total = 0; /* bytes in all arenas */

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

static CbStage *
cb_stage_find(Oid indexoid)
{
	if (cb_stage_hash == NULL)
		return NULL;
	return hash_search(cb_stage_hash, &indexoid, HASH_FIND, NULL);
}

static CbStage *
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

/* The same for all insertions of a plan, so that they look it up once. */
static CbInsertState *
cb_stage_get_state(Relation index, Relation heap, IndexInfo *index_info)
{
	CbInsertState *state = index_info->ii_AmCache;

	if (state == NULL)
	{
		state = MemoryContextAllocZero(index_info->ii_Context,
									   sizeof(CbInsertState));
		state->fixed_len = cb_key_fixed_len(index);
		index_info->ii_AmCache = state;
	}
	if (state->stage == NULL || state->generation != cb_stage_generation ||
		cb_stage_hash == NULL)
	{
		state->stage = cb_stage_get(index, heap);
		state->generation = cb_stage_generation;
	}
	return state;
}

bool
cb_stage_is_empty(void)
{
	return cb_stage_nlisted == 0;
}

/* To the list's end, where it may be already. */
static void
cb_stage_list_add(CbStage *stage, bool listed)
{
#ifdef CB_MUTATE_U1_ORDER
	if (listed)
		return;
#endif
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
 * published or dropped theirs.
 */
static dlist_node *
cb_stage_list_find(int min_level)
{
	dlist_node *first = NULL;
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &cb_stage_list)
	{
		if (dlist_container(CbStage, node, iter.cur)->level < min_level)
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
#ifndef CB_MUTATE_A4_INDEXLOCK
	ResourceOwner save = CurrentResourceOwner;

	CurrentResourceOwner = CurTransactionResourceOwner;
	LockRelationOid(indexoid, RowExclusiveLock);
	CurrentResourceOwner = save;
#endif
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
	seg->level = GetCurrentTransactionNestLevel();
	seg->n = 0;
	seg->start = stage->used;
	memcpy(seg->build_id, meta.build_id, CB_BUILD_ID_LEN);
	stage->level = seg->level;
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
#ifdef CB_MUTATE_A3_SEGMENT
	return false;
#endif
	return memcmp(seg->build_id, cb_rel_build_id(index), CB_BUILD_ID_LEN) != 0;
}

/* Makes room for an entry of this size at the end of the stage. */
static IndexTuple
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

static bool
cb_stage_has_null(Relation index, const bool *isnull)
{
	for (int i = 0; i < RelationGetNumberOfAttributes(index); i++)
	{
		if (isnull[i])
			return true;
	}
	return false;
}

/* First segment of a nesting level or deeper. */
static int
cb_stage_first_segment(const CbStage *stage, int min_level)
{
	int			first = stage->nsegs;

	while (first > 0 && stage->segs[first - 1].level >= min_level)
		first--;
	return first;
}

static Size
cb_stage_segment_size(const CbStage *stage, int i)
{
	Size		end = i + 1 < stage->nsegs ? stage->segs[i + 1].start :
		stage->used;

	return end - stage->segs[i].start;
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
	stage->data = NULL;
	stage->segs = NULL;
	stage->alloc = 0;
	stage->maxsegs = 0;
}

/* Removes the segments from first on, except those to keep; cannot fail. */
static void
cb_stage_remove(CbStage *stage, int first, const CbSegmentFate *fates)
{
	Size		used = first < stage->nsegs ? stage->segs[first].start :
		stage->used;
	int			nsegs = first;

	for (int i = first; i < stage->nsegs; i++)
	{
		Size		size = cb_stage_segment_size(stage, i);
		CbSegment	seg = stage->segs[i];

		if (fates == NULL || fates[i - first] != CB_SEGMENT_KEEP)
		{
			cb_stage_total -= size;
			continue;
		}
		memmove(stage->data + used, stage->data + seg.start, size);
		seg.start = used;
		stage->segs[nsegs++] = seg;
		used += size;
	}
	if (stage->nsegs > 0 && nsegs == 0)
		cb_stage_list_remove(stage);
	stage->nsegs = nsegs;
	stage->used = used;

	if (nsegs == 0)
		stage->nunchanged = 0;
	if (nsegs == 0 &&
		(stage->alloc > CB_STAGE_KEEP_SIZE || cb_stage_are_many()))
		cb_stage_free(stage);
}

/* ---------- publication ---------- */

/* Where the entries of one publication go, and where they came from. */
typedef struct CbPublication
{
	CbStage    *stage;
	Relation	rel;
	int			first;			/* first segment */
	int			nsegs;
	CbSegmentFate *fates;
	int			n;				/* entries to publish */
	Size		size;
	uint64		journal_size;	/* after the append, or 0 */
	CbPublishResult buckets;	/* what they ask for, if desc is set */
	int			nhelped;		/* buckets flushed to make room */
} CbPublication;

/*
 * Decides what becomes of each segment (C3, A3).  A segment of an outer
 * subtransaction stays if its index is another one now: the change can still
 * be rolled back, and the segment's own subtransaction decides later.
 */
static void
cb_publish_classify(CbPublication *pub)
{
	CbStage    *stage = pub->stage;
	int			level = GetCurrentTransactionNestLevel();

	pub->n = 0;
	pub->size = 0;
	for (int i = 0; i < pub->nsegs; i++)
	{
		CbSegment  *seg = &stage->segs[pub->first + i];
		bool		same = pub->rel != NULL;

#ifndef CB_MUTATE_A3_BUILDID
		same = same &&
			memcmp(seg->build_id, cb_rel_build_id(pub->rel), CB_BUILD_ID_LEN) == 0;
#endif
		if (same)
		{
			pub->fates[i] = CB_SEGMENT_PUBLISH;
			pub->n += seg->n;
			pub->size += cb_stage_segment_size(stage, pub->first + i);
		}
		else
			pub->fates[i] = seg->level < level ? CB_SEGMENT_KEEP :
				CB_SEGMENT_DISCARD;
	}
}

/* Points to the entries to publish, in the arena or in a copy of them. */
static void
cb_publish_list_entries(const CbPublication *pub, char *copy,
						CbSortEntry *entries)
{
	CbStage    *stage = pub->stage;
	int			n = 0;

	for (int i = 0; i < pub->nsegs; i++)
	{
		int			segno = pub->first + i;
		Size		size = cb_stage_segment_size(stage, segno);
		char	   *data = stage->data + stage->segs[segno].start;

		if (pub->fates[i] != CB_SEGMENT_PUBLISH)
			continue;
		if (copy != NULL)
		{
			memcpy(copy, data, size);
			data = copy;
			copy += size;
		}
		for (Size off = 0; off < size;)
		{
			IndexTuple	itup = (IndexTuple) (data + off);

			off += MAXALIGN(IndexTupleSize(itup));
			if (!ItemPointerIsValid(&itup->t_tid))
				continue;
			entries[n].itup = itup;
			entries[n].pos = 0;
			n++;
		}
	}
	Assert(n == pub->n);
}

static void
cb_publish_to_tree(CbPublication *pub, CbKeyDesc *kd, CbSortEntry *entries,
				   int n)
{
	CbApplyStats stats;

	memset(&stats, 0, sizeof(stats));
	cb_churn_begin(kd, pub->stage->nunchanged > 0);
	(void) cb_tree_apply(kd, entries, n, &stats);
	cb_churn_end(kd);
	cb_stat_add(pub->rel, CB_STAT_DIRECT, n);
	cb_tree_count_applied(pub->rel, &stats);
}

/*
 * The pool has no room.  A large batch makes some, by flushing a bucket; the
 * next entries of a small one, or where there is nothing to flush, go straight
 * to the tree.  Returns how many did.  Never waits for others (B4).
 */
static int
cb_publish_without_room(CbPublication *pub, CbKeyDesc *kd,
						CbSortEntry *entries, int n,
						const CbPublishResult *result)
{
	cb_stat_add(pub->rel, CB_STAT_NO_ROOM, 1);
	(void) cb_fetch_add(&cb_pool->no_room, 1);
	if (n >= CB_STAGE_DENSE_MIN && pub->nhelped < CB_STAGE_HELP_MAX &&
		cb_flush_help(pub->rel, result->desc, result->attach_id))
	{
		pub->nhelped++;
		return 0;
	}
	(void) cb_desc_detach_idle();
	n = Min(n, CB_STAGE_DIRECT_MAX);
	cb_publish_to_tree(pub, kd, entries, n);
	return n;
}

/*
 * The next entries are for a bucket that fails, and has its share: they go
 * straight to the tree, each to its leaf.  Who writes to a damaged one so gets
 * the error, as with btree, and who writes to others does not.  Where no worker
 * tries the bucket again, we do.  Returns how many went there.
 */
static int
cb_publish_refused(CbPublication *pub, CbKeyDesc *kd, CbSortEntry *entries,
				   const CbPublishResult *result)
{
	if (!cb_stage_committing && !cb_queue_is_served() &&
		cb_flush_retry(pub->rel, result))
		return 0;
	cb_publish_to_tree(pub, kd, entries, result->nrefused);
	return result->nrefused;
}

/* Sorted entries go to the journal, and to the index's buckets. */
static void
cb_publish_to_journal(CbPublication *pub, CbKeyDesc *kd,
					  CbSortEntry *entries)
{
	int			done = 0;

	pub->nhelped = 0;
	while (done < pub->n)
	{
		CbPublishResult result;
		int			m = cb_bucket_publish(kd, entries + done, pub->n - done,
										  &result);

		cb_stat_add(pub->rel, CB_STAT_JOURNALED, m);
		done += m;
		if (result.nrefused > 0)
			done += cb_publish_refused(pub, kd, entries + done, &result);
		else if (result.no_room)
			done += cb_publish_without_room(pub, kd, entries + done,
											pub->n - done, &result);
		else if (result.desc != NULL)
			pub->buckets = result;
		else
			pub->journal_size = result.journal_length;
	}
	if (pub->buckets.desc != NULL)
		cb_desc_note_churn(pub->buckets.desc, pub->buckets.attach_id, pub->n,
						   pub->stage->nunchanged);
}

static inline bool
cb_publish_is_direct(Relation rel)
{
	return rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		!cb_is_buffered(rel);
}

/*
 * Sorts a copy of the entries and sends it to the tree or to the journal.
 * Comparison functions run here, and may raise errors or run SQL.
 */
static void
cb_publish_sorted(CbPublication *pub)
{
	CbKeyDesc	kd;
	CbSortEntry *entries;
	char	   *copy = palloc(pub->size);

	entries = MemoryContextAllocHuge(CurrentMemoryContext,
									 pub->n * sizeof(CbSortEntry));
	cb_publish_list_entries(pub, copy, entries);
	cb_key_init(&kd, pub->rel);
	for (int i = 0; i < pub->n; i++)
		cb_key_fill_sort_entry(&kd, &entries[i], entries[i].itup);
	if (!cb_key_is_total(pub->rel))
		cb_key_check_comparable(&kd, entries, pub->n);
	cb_key_sort(&kd, entries, pub->n);
	CB_TEST_POINT("publish-sorted");

	if (cb_publish_is_direct(pub->rel) ||
		(pub->n >= CB_STAGE_DENSE_MIN &&
		 cb_tree_batch_is_dense(&kd, entries, pub->n)))
		cb_publish_to_tree(pub, &kd, entries, pub->n);
	else
		cb_publish_to_journal(pub, &kd, entries);
}

/*
 * Calls a step that may compare keys, with the stage marked, in a memory
 * context of its own, and with a snapshot for functions that look for one.
 */
static void
cb_publish_guarded(CbPublication *pub, void (*step) (CbPublication *))
{
	CbStage    *stage = pub->stage;
	MemoryContext cxt = AllocSetContextCreate(CurTransactionContext,
											  "cache_batch publication",
											  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(cxt);
	bool		need_snapshot = !ActiveSnapshotSet();
	CbSlotMark	mark = cb_slot_mark();

	if (need_snapshot)
		PushActiveSnapshot(GetTransactionSnapshot());
	stage->publishing = true;
	cb_stage_npublishing++;
	PG_TRY();
	{
		step(pub);
	}
	PG_FINALLY();
	{
		cb_slot_release_to(mark);
#ifndef CB_MUTATE_B3_MARK
		stage->publishing = false;
		cb_stage_npublishing--;
#endif
	}
	PG_END_TRY();
#ifdef CB_MUTATE_B3_MARK
	stage->publishing = false;
	cb_stage_npublishing--;
#endif
	if (need_snapshot)
		PopActiveSnapshot();
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

static void
cb_publish_sweep(CbPublication *pub)
{
	bool		wait = false;

#ifdef CB_MUTATE_B1_NOWAIT
	wait = true;
#endif
	(void) cb_flush_sweep(pub->rel, CB_FLUSH_LIMIT, wait);
}

/* Flushes that have become due. */
static void
cb_publish_after(CbPublication *pub)
{
	cb_flush_after_publish(pub->rel, &pub->buckets,
						   pub->n >= CB_STAGE_DENSE_MIN,
						   !cb_stage_committing);
}

/*
 * Empties the journal if it is past its limit.  Not at commit: there the next
 * insertion of this backend sees to it.
 */
static void
cb_publish_check_limit(CbPublication *pub)
{
	if (cb_flush_is_due(&pub->buckets) && cb_stage_committing &&
		!cb_queue_is_served())
		pub->stage->flush_due = true;
	else if (cb_flush_is_due(&pub->buckets))
		cb_publish_guarded(pub, cb_publish_after);
	if (pub->journal_size <= (uint64) cb_journal_limit * 1024)
		return;
	pub->stage->sweep_due = true;
	if (cb_stage_committing)
		return;
	cb_publish_guarded(pub, cb_publish_sweep);
	pub->stage->sweep_due = false;
}

/* Makes the entries readable, then takes the segments out of the stage. */
static void
cb_publish_segments(CbPublication *pub)
{
	CbStage    *stage = pub->stage;
	int			taken = 0;

	cb_publish_classify(pub);
	if (pub->n > 0)
	{
		cb_publish_guarded(pub, cb_publish_sorted);
		CB_TEST_POINT("publish-appended");
	}
	for (int i = 0; i < pub->nsegs; i++)
	{
		if (pub->fates[i] != CB_SEGMENT_KEEP)
			taken += stage->segs[pub->first + i].n;
	}
	cb_stage_remove(stage, pub->first, pub->fates);
	cb_stat_add_oid(stage->indexoid, CB_STAT_STAGED, taken);
	if (pub->n == 0)
		return;

	/*
	 * Readers that start after this see the entries: pairs with the barrier
	 * that a scan has before it reads the journal's end (A15).
	 */
	pg_memory_barrier();

	/*
	 * The check before aminsert came too early: a reader may have looked for
	 * the key since, and not have found it (A2).
	 */
#ifndef CB_MUTATE_A2_SERIALIZABLE
	CheckForSerializableConflictIn(pub->rel, NULL, InvalidBlockNumber);
#endif
	cb_publish_check_limit(pub);
	CB_TEST_POINT("publish-done");
}

/*
 * Publishes the segments of a nesting level and deeper.  index may be NULL.
 * Does nothing if the index is being published further up the call stack.
 */
static void
cb_stage_publish(CbStage *stage, Relation index, int min_level)
{
	CbSegmentFate fates[8];
	CbPublication pub;

	if (stage->publishing)
		return;
	pub.stage = stage;
	pub.first = cb_stage_first_segment(stage, min_level);
	pub.nsegs = stage->nsegs - pub.first;
	if (pub.nsegs == 0)
		return;
	CB_TEST_POINT("publish-start");
	pub.journal_size = 0;
	pub.buckets.desc = NULL;
	pub.fates = fates;
	if (pub.nsegs > lengthof(fates))
		pub.fates = palloc(pub.nsegs * sizeof(CbSegmentFate));

	pub.rel = index;
	if (index == NULL)
#ifndef CB_MUTATE_C3_GONE
		pub.rel = try_relation_open(stage->indexoid, NoLock);
#else
		pub.rel = relation_open(stage->indexoid, NoLock);
#endif
	cb_publish_segments(&pub);
	if (index == NULL && pub.rel != NULL)
		relation_close(pub.rel, NoLock);
	if (pub.fates != fates)
		pfree(pub.fates);
}

/*
 * The indexes whose stages hold min_size bytes or more, and may have segments
 * of a nesting level and deeper.
 */
static List *
cb_stage_list_indexes(int min_level, Size min_size)
{
	List	   *result = NIL;

	for (dlist_node *node = cb_stage_list_find(min_level); node != NULL;
		 node = cb_stage_list_next(node))
	{
		CbStage    *stage = dlist_container(CbStage, node, node);

		if (stage->used >= min_size)
			result = lappend_oid(result, stage->indexoid);
	}
	return result;
}

/*
 * Publishes several stages.  Comparison functions can publish and stage on
 * their own, so the list is not walked while publishing.
 */
static void
cb_stage_publish_many(int min_level, Size min_size)
{
	List	   *indexes;
	ListCell   *lc;

	if (cb_stage_nlisted == 1)
	{
		cb_stage_publish(dlist_head_element(CbStage, node, &cb_stage_list),
						 NULL, min_level);
		return;
	}
	indexes = cb_stage_list_indexes(min_level, min_size);
	foreach(lc, indexes)
	{
		CbStage    *stage = cb_stage_find(lfirst_oid(lc));

		if (stage != NULL && stage->nsegs > 0)
			cb_stage_publish(stage, NULL, min_level);
	}
	list_free(indexes);
}

/* Publishes the segments of a nesting level and deeper of all indexes. */
void
cb_stage_publish_all(int min_level)
{
	if (cb_stage_nlisted > 0)
		cb_stage_publish_many(min_level, 0);
}

/* Publishes stages of average size and above, to make room (C10). */
static void
cb_stage_publish_largest(void)
{
	cb_stage_publish_many(1, cb_stage_total / cb_stage_nlisted);
}

/*
 * Drops what subtransactions of a nesting level and deeper have staged; they
 * are rolled back.  Cannot fail.  Returns the number of entries dropped.
 */
int
cb_stage_drop(int min_level)
{
	dlist_node *next = cb_stage_list_find(min_level);
	int			dropped = 0;

	while (next != NULL)
	{
		CbStage    *stage = dlist_container(CbStage, node, next);
		int			first = cb_stage_first_segment(stage, min_level);
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
 * The page is pinned since before they were staged, so what carries these
 * TIDs is theirs.  Cannot fail.
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
#ifndef CB_MUTATE_B4_DUE
		if (stage->sweep_due || stage->flush_due)
			continue;
#endif
		(void) hash_search(cb_stage_hash, &stage->indexoid, HASH_REMOVE, NULL);
	}
	if (hash_get_num_entries(cb_stage_hash) > 0)
		return;
	cb_stage_hash = NULL;
	MemoryContextReset(cb_stage_cxt);
}

/* The transaction is over: gives memory back if many indexes were used. */
void
cb_stage_end_xact(void)
{
	cb_stage_committing = false;
	if (cb_stage_are_many())
		cb_stage_forget_all();
}

/* ---------- callers ---------- */

/*
 * May the entry of a row be staged that may have been inserted speculatively?
 * Yes while its page is pinned (A1).  Not for an exclusion constraint, whose
 * index is scanned next, and would be for each row (A15).
 */
static bool
cb_stage_may_keep_speculative(Relation heap, ItemPointer heap_tid,
							  IndexInfo *index_info)
{
#ifdef CB_MUTATE_A1_SPECULATIVE
	return true;
#endif
	return index_info->ii_ExclusionOps == NULL && cb_pin_row(heap, heap_tid);
}

/*
 * Must an entry be published before aminsert returns?  Yes if nobody would do
 * so later in time, and if its heap tuple may die while the transaction goes
 * on and its TID be used again.  A logical replication worker runs no
 * executor; there the commit does it.
 */
static inline bool
cb_stage_must_write_through(Relation heap, ItemPointer heap_tid,
							IndexInfo *index_info)
{
#ifndef CB_MUTATE_A8_WRITETHROUGH
	if (cb_stage_committing)
		return true;
#endif
	if (cb_nesting.speculative > 0 &&
		!cb_stage_may_keep_speculative(heap, heap_tid, index_info))
		return true;
	return cb_nesting.depth == 0 && !IsLogicalWorker();
}

static void
cb_stage_refuse_reentry(CbStage *stage, Relation index)
{
#ifndef CB_MUTATE_C11_REENTRY
	if (stage->publishing)
		cb_report_reentry(index);
#endif
}

static void
cb_publish_overdue(CbPublication *pub)
{
	CbStage    *stage = pub->stage;

	if (stage->sweep_due)
		cb_publish_sweep(pub);
#ifndef CB_MUTATE_B4_COMMIT
	if (stage->flush_due)
		cb_flush_overdue(pub->rel);
#endif
	stage->sweep_due = stage->flush_due = false;
}

/* What a commit had left to us. */
static void
cb_stage_do_due(CbStage *stage, Relation index)
{
	CbPublication pub;

	memset(&pub, 0, sizeof(pub));
	pub.stage = stage;
	pub.rel = index;
	cb_publish_guarded(&pub, cb_publish_overdue);
}

/* Takes an entry; aminsert of the access method. */
bool
cb_am_insert(Relation index, Datum *values, bool *isnull,
			 ItemPointer heap_tid, Relation heap,
			 IndexUniqueCheck check_unique, bool index_unchanged,
			 struct IndexInfo *index_info)
{
	CbInsertState *state;
	CbStage    *stage;
	IndexTuple	itup = NULL;
	bool		write_through;

	cb_require_preload();
	state = cb_stage_get_state(index, heap, index_info);
	stage = state->stage;
	if (state->fixed_len == 0 || cb_stage_has_null(index, isnull))
		itup = cb_key_form_entry(index, values, isnull, heap_tid);
	cb_stage_refuse_reentry(stage, index);
	if (unlikely(stage->sweep_due || stage->flush_due) && !cb_stage_committing)
		cb_stage_do_due(stage, index);
	write_through = cb_stage_must_write_through(heap, heap_tid, index_info);
	if (itup == NULL)
		cb_key_form_fixed(index, values, isnull, heap_tid, state->fixed_len,
						  cb_stage_add(stage, index,
									   CbFixedEntrySize(state->fixed_len)));
	else
	{
		memcpy(cb_stage_add(stage, index, IndexTupleSize(itup)), itup,
			   IndexTupleSize(itup));
		pfree(itup);
	}
	stage->nunchanged += index_unchanged;
	CB_TEST_POINT("stage-insert");

	if (write_through)
		cb_stage_publish(stage, index, 1);
	else if (stage->used >= (Size) cb_stage_size * 1024)
		cb_stage_publish(stage, index, 1);
#ifdef CB_MUTATE_C10_TOTAL
	else if (false)
#else
	else if (cb_stage_total >= (Size) cb_stage_total_size * 1024)
#endif
		cb_stage_publish_largest();
	return false;
}

/*
 * Publishes what this backend has staged for an index, before it reads it.
 * The caller reads shared state only after this returns.
 */
void
cb_stage_publish_index(Relation index)
{
	CbStage    *stage;

	if (cb_stage_leader_is_pending())
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("parallel worker would miss unpublished entries of index \"%s\"",
						RelationGetRelationName(index))));
	if (likely(cb_stage_nlisted == 0 && cb_stage_npublishing == 0))
		return;
	stage = cb_stage_find(RelationGetRelid(index));
	if (stage == NULL)
		return;
	cb_stage_refuse_reentry(stage, index);
#ifndef CB_MUTATE_I3_SCAN
	if (stage->nsegs > 0)
		cb_stage_publish(stage, index, 1);
#endif
}
