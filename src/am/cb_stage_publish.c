/*-------------------------------------------------------------------------
 *
 * cb_stage_publish.c
 *	  Publication: what moves a stage's entries to the journal and buckets, or
 *	  to the tree.
 *
 * They go to the tree if they come dense or the index is not buffered.  From
 * then on everybody can read them.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"
#include "am/cb_am.h"
#include "am/cb_stage.h"

#include "access/relation.h"
#include "access/xact.h"
#include "bucket/cb_key_filter.h"
#include "flush/cb_queue.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

/* batches below this are not worth sorting, nor a look at the tree */
#define CB_STAGE_DENSE_MIN		32

/* entries that go straight to the tree at a time, when there is no room */
#define CB_STAGE_DIRECT_MAX		1024

/* buckets that one batch flushes to make room, at most */
#define CB_STAGE_HELP_MAX		16

static int	cb_stage_npublishing = 0;	/* stages that are marked */

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
	CbPublishResult buckets;	/* what they ask for, if there is a set */
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
	int			nest_level = GetCurrentTransactionNestLevel();

	pub->n = 0;
	pub->size = 0;
	for (int i = 0; i < pub->nsegs; i++)
	{
		CbSegment  *seg = &stage->segs[pub->first + i];
		bool		same = pub->rel != NULL;

		same = same &&
			memcmp(seg->build_id, cb_rel_build_id(pub->rel), CB_BUILD_ID_LEN) == 0;
		if (same)
		{
			pub->fates[i] = CB_SEGMENT_PUBLISH;
			pub->n += seg->n;
			pub->size += cb_stage_segment_size(stage, pub->first + i);
		}
		else
			pub->fates[i] = seg->nest_level < nest_level ? CB_SEGMENT_KEEP :
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
	cb_dead_begin(kd, pub->stage->nunchanged > 0);
	(void) cb_tree_apply(kd, entries, n, &stats);
	cb_dead_end(kd);
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
		cb_flush_help(pub->rel, result->set, result->attach_id))
	{
		pub->nhelped++;
		return 0;
	}
	cb_key_filter_forget_idle();
	if (!cb_shared_evict(NULL, false))
		(void) cb_set_detach_idle();
	n = Min(n, CB_STAGE_DIRECT_MAX);
	cb_publish_to_tree(pub, kd, entries, n);
	return n;
}

/*
 * The next entries are for a bucket that fails, and has its share: they go
 * straight to the tree, each to its leaf.  Who writes to a damaged one so gets
 * the error, as with btree, and who writes to others does not.  Where no
 * worker tries the bucket again, we do.  Returns how many went there.
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
		else if (result.set != NULL)
			pub->buckets = result;
		else
			pub->journal_size = result.journal_length;
	}
	if (pub->buckets.set != NULL)
		cb_set_note_versions(pub->buckets.set, pub->buckets.attach_id, pub->n,
							 pub->stage->nunchanged);
}

static inline bool
cb_publish_is_direct(Relation rel)
{
	return rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP ||
		!cb_is_buffered(rel);
}

/*
 * Sorts a copy of the entries and sends it to the tree or to the journal, then
 * looks for conflicts of serializable transactions.  Comparison functions run
 * here, and may raise errors or run SQL.
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

	/*
	 * Readers that start after this see the entries: pairs with the barrier
	 * that a scan has before it reads the journal's end (A15).  Before the
	 * locks of readers are looked for, too (A2).
	 */
	pg_memory_barrier();
	CB_TEST_POINT("publish-readable");
	cb_predicate_check(&kd, entries, pub->n);
}

/* Comparison functions may run for the stage from now on (f). */
void
cb_stage_mark(CbStage *stage)
{
	stage->publishing = true;
	cb_stage_npublishing++;
}

/*
 * They are over, by an error as well: to be called by the PG_FINALLY of whoever
 * has marked it.  Cannot fail.
 */
void
cb_stage_unmark(CbStage *stage)
{
	stage->publishing = false;
	cb_stage_npublishing--;
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
	cb_stage_mark(stage);
	PG_TRY();
	{
		step(pub);
	}
	PG_FINALLY();
	{
		cb_slot_release_to(mark);
		cb_stage_unmark(stage);
	}
	PG_END_TRY();
	if (need_snapshot)
		PopActiveSnapshot();
	MemoryContextSwitchTo(old);
	MemoryContextDelete(cxt);
}

static void
cb_publish_sweep(CbPublication *pub)
{
	(void) cb_flush_sweep(pub->rel, CB_FLUSH_LIMIT, false);
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
	cb_publish_check_limit(pub);
	CB_TEST_POINT("publish-done");
}

/*
 * Publishes the segments of a nesting level and deeper.  index may be NULL:
 * then it is opened here, under the lock that its segments hold.  Does nothing
 * if the index is being published further up the call stack.
 *
 * No LWLock or buffer lock is held.  Comparison functions run, with a snapshot.
 * What the entries have made due is flushed, or asked for; at commit it is left
 * to the next insertion of this backend.  Never waits for flushes of others
 * (B4), but may for room in the pool, a while, if workers pause.  An error
 * before the entries are readable leaves the stage as it was; so does one of a
 * serialization conflict, which comes after and may end an inner subtransaction
 * alone: what is not rolled back is published again (I5), and looked at again
 * (A33_REMOVED).  One of a flush comes when they have left the stage (e).
 */
void
cb_stage_publish(CbStage *stage, Relation index, int min_nest_level)
{
	CbSegmentFate fates[8];
	CbPublication pub;

	if (stage->publishing)
		return;
	pub.stage = stage;
	pub.first = cb_stage_first_segment(stage, min_nest_level);
	pub.nsegs = stage->nsegs - pub.first;
	if (pub.nsegs == 0)
		return;
	CB_TEST_POINT("publish-start");
	pub.journal_size = 0;
	pub.buckets.set = NULL;
	pub.fates = fates;
	if (pub.nsegs > lengthof(fates))
		pub.fates = palloc(pub.nsegs * sizeof(CbSegmentFate));

	pub.rel = index;
	if (index == NULL)
		pub.rel = try_relation_open(stage->indexoid, NoLock);
	cb_publish_segments(&pub);
	if (index == NULL && pub.rel != NULL)
		relation_close(pub.rel, NoLock);
	if (pub.fates != fates)
		pfree(pub.fates);
}

/*
 * Publishes several stages.  Comparison functions can publish and stage on
 * their own, so the list is not walked while publishing.
 */
static void
cb_stage_publish_many(int min_nest_level, Size min_size)
{
	List	   *indexes;
	ListCell   *lc;

	if (cb_stage_nlisted == 1)
	{
		cb_stage_publish(cb_stage_get_first(), NULL, min_nest_level);
		return;
	}
	indexes = cb_stage_list_indexes(min_nest_level, min_size);
	foreach(lc, indexes)
	{
		CbStage    *stage = cb_stage_find(lfirst_oid(lc));

		if (stage != NULL && stage->nsegs > 0)
			cb_stage_publish(stage, NULL, min_nest_level);
	}
	list_free(indexes);
}

/*
 * Publishes the segments of a nesting level and deeper of all indexes, as
 * cb_stage_publish() does one's.
 */
void
cb_stage_publish_all(int min_nest_level)
{
	if (cb_stage_nlisted > 0)
		cb_stage_publish_many(min_nest_level, 0);
}

/*
 * Publishes stages of average size and above, to make room (C10).  At least
 * one stage has segments.
 */
void
cb_stage_publish_largest(void)
{
	cb_stage_publish_many(1, cb_stage_total / cb_stage_nlisted);
}

static void
cb_publish_overdue(CbPublication *pub)
{
	CbStage    *stage = pub->stage;

	if (stage->sweep_due)
		cb_publish_sweep(pub);
	if (stage->flush_due)
		cb_flush_overdue(pub->rel);
	stage->sweep_due = stage->flush_due = false;
}

/*
 * What a commit had left to us: empties a journal past its limit, and flushes
 * buckets.  The caller is aminsert, with its lock on the index, and is not at
 * commit.  Comparison functions run; after an error it is still due.
 */
void
cb_stage_publish_due(CbStage *stage, Relation index)
{
	CbPublication pub;

	memset(&pub, 0, sizeof(pub));
	pub.stage = stage;
	pub.rel = index;
	cb_publish_guarded(&pub, cb_publish_overdue);
}

/*
 * Publishes what this backend has staged for an index, before it reads it.
 * The caller reads shared state only after this returns.
 *
 * Locks and errors as in cb_stage_publish().  Raises the error of C11 from
 * within the index's own comparisons, and one in a parallel worker whose
 * leader has unpublished entries, which it would miss (A14).
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
	if (stage->nsegs > 0)
		cb_stage_publish(stage, index, 1);
}
