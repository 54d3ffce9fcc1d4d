/*-------------------------------------------------------------------------
 *
 * cb_bucket.h
 *	  Cache-buckets: the readable copy of recent journal entries.
 *
 * One pool of chunks in main shared memory serves all indexes of all
 * databases.  An index that takes part has a bucket set with an ordered list
 * of buckets, each for a range of keys; a bucket lists the chunks that may
 * hold entries of its range.  Everything here is disposable: whatever a
 * bucket holds is in the journal until it is in the tree, or in a run.
 *
 * Invariants:
 *	a) While a bucket set is attached, its buckets hold exactly the entries
 *	   that lie in the journal at or above "from" and are in no lower tier
 *	   yet; while a chunk is flushed, also those that are there already, as
 *	   they leave only after the tree, or a run, has all of them.
 *	b) A chunk belongs to one attachment.  It is in the list of each bucket
 *	   whose range it may overlap, from its first entry to its retirement; it
 *	   never changes its entries or moves.
 *	c) The journal has each entry of a chunk at minpos or above: minpos is the
 *	   position of the first one, or of the first when all were appended again
 *	   (cb_failing.c).  So no entry of an attached index that is above the tail
 *	   and in no lower tier is needed below the least minpos of its chunks and
 *	   its head.
 *	d) A chunk is freed when its last holder (lists, pins, owner) lets go.
 *
 * Locks, in this order:
 *	table lock		the hash table of bucket sets
 *	set->publish	head; which chunks take entries; where the compactor is.
 *					Always EXCL, and taken before the append lock
 *	set->lock		state, key, attach_id, from, the list of buckets, their
 *					bounds; the list of the shared copy.  They are changed
 *					under set->publish and this one, EXCL, so holding either
 *					keeps them.  EXCL: nobody pins, seals or unlinks
 *	bucket->lock	the bucket's list of chunks, and their sorted order.  A list
 *					is also read without a lock, by whoever wants to know that
 *					there is nothing in it (cb_view.c)
 * No comparison, allocation, I/O or error under any of them, except that the
 * journal is appended to (in a critical section) under set->publish.  Under
 * set->lock, shared, nothing is waited for but bucket->lock, and nothing under
 * that: so whoever wants it EXCL gets it soon (cb_set_share()).
 *
 * "Both locks" of a bucket set are set->publish and set->lock, EXCL.  What is
 * called a hint may be read and written with no lock, and nothing goes wrong if
 * it is old or lost.  Numbers of chunks, buckets and bucket sets, and their
 * memory, stay as long as the server runs: a pointer to one is always good, but
 * whose it is has to be looked at under a lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_BUCKET_H
#define CB_BUCKET_H

#include "core/cb_chunk.h"
#include "core/cb_filter.h"
#include "core/cb_freelist.h"
#include "journal/cb_journal.h"
#include "journal/cb_sorted.h"
#include "range/cb_range.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#define CB_BUCKET_MAX_CHUNKS	16
#define CB_BUCKET_FULL_CHUNKS	8	/* asks to be flushed */
#define CB_BUCKET_FENCE_SIZE	96	/* larger separators are not used */
#define CB_SET_MAX_BUCKETS		1024
#define CB_ERROR_LENGTH			256
#define CB_NONE					UINT32_MAX

/*
 * A chunk and whose it is.  Entries are added under set->publish and the lock
 * of the bucket that lists it; those below the count need no lock.  A chunk of
 * a shared copy's component is its writer's alone until the component is
 * listed, and does not change then; of the other fields only number and
 * is_directory count there.
 */
typedef struct CbPoolChunk
{
	CbChunk		chunk;			/* first */
	CbPos		minpos;			/* of the first entry; set with bucket->lock
								 * EXCL, raised with set->lock EXCL by its
								 * owner */
	uint32		number;
	uint32		bucket;			/* that it was opened for, or that was joined
								 * with; lists it while nobody owns it */
	uint32		nlists;			/* set->lock EXCL, or its owner's */
	uint32		moved;			/* the owner's: entries of it that are not
								 * right of this one, counted from 1, have
								 * left for the tree or a run; 0: none */
	bool		is_directory;	/* of a component, or a filter: goes with its
								 * members */
	cb_atomic32 passed;			/* unsorted entries that readers went through
								 * since they were last sorted; a hint */
} CbPoolChunk;

/*
 * What has failed is left alone for a time that doubles with each failure in a
 * row.  Hints, without a lock.
 */
typedef struct CbFailing
{
	cb_atomic32 failures;		/* in a row; 0: it does not fail */
	cb_atomic32 reports;		/* of them, by workers */
	cb_atomic64 retry_at;		/* when workers try again */
} CbFailing;

/*
 * A range of an index's keys, and the chunks that may have entries of it.  The
 * bucket set that it is of, and its fence, are changed under both locks of that.
 * The list (nchunks, chunks, since) is changed under the bucket's lock, EXCL, by
 * those who fill or flush it; under both locks of the bucket set by those who
 * change bounds or give buckets up, who need not take the bucket's.  The place
 * has the bucket's lock alone.
 */
typedef struct CbBucket
{
	LWLock		lock;
	uint32		number;
	uint32		set;			/* CB_NONE: free; set->lock EXCL */
	cb_atomic32 removals;		/* counts when chunks are taken out of the
								 * list; odd while they are */
	uint32		nchunks;
	uint32		chunks[CB_BUCKET_MAX_CHUNKS];	/* the last one may be active */
	TimestampTz since;			/* when the first chunk was opened, or one was
								 * last taken out */
	cb_atomic32 queued;			/* a request for it is on its way; who swaps
								 * it puts that into the queue */
	cb_atomic32 run_reads;		/* runs that scans had to read in its range
								 * since they were last merged; a hint */
	cb_atomic32 read_range;		/* the range page of the last of them; a hint */
	CbFailing	failing;		/* its flush */
	uint64		place_attach_id;	/* the attachment that the place is of */
	CbRangePlace place;			/* where to go on with a merge */
	uint32		fence_len;		/* 0: minus infinity */
	union
	{
		char		bytes[CB_BUCKET_FENCE_SIZE];
		uint64		align;
	}			fence;			/* the range's lower bound, a separator */
} CbBucket;

/*
 * How far a sweep came that gave way: of the entries below upto, those that
 * are not right of the one at this position are in the tree.  Read and written
 * by holders of the sweep lock, who share set->lock so that it is attached still.
 */
typedef struct CbSweepPlace
{
	CbPos		upto;			/* 0: there is none */
	CbPos		at;
	uint64		npages;			/* the next one takes so many; 0: any number */
} CbSweepPlace;

#define CB_SHARED_MAX_COMPONENTS	8

/*
 * The shared copy of the index's journal (cb_shared.c).  Changed with both
 * locks of the bucket set, by its builder, or by whoever forgets it; so either
 * lock keeps it.  asked_at and failed_at have no lock, nor have looks whether
 * there is a copy at all.  The list has a hold on each of its directories.
 */
typedef struct CbSharedCopy
{
	cb_atomic32 builder;		/* the one process that may add to it, or 0 */
	uint32		serial;			/* counts the times that it was forgotten */
	CbPos		tail;			/* the components have what the journal has
								 * from this tail on ... */
	CbPos		upto;			/* ... up to here; 0: there is no copy */
	BlockNumber block;			/* the page of upto */
	CbJournalPage full;			/* one that it has all of, to know the journal
								 * by */
	TimestampTz extended_at;	/* a hint */
	TimestampTz asked_at;		/* when a worker was asked to extend it, who
								 * has not begun; or 0; a hint */
	TimestampTz failed_at;		/* when there was no room; a hint */
	uint32		ncomponents;
	uint32		components[CB_SHARED_MAX_COMPONENTS];	/* their directories,
														 * oldest first */
} CbSharedCopy;

/*
 * From FREE to EMPTY, and back, with the table lock, EXCL, as well as both of
 * the bucket set; between the other two with both of the bucket set.
 */
typedef enum CbBucketSetState
{
	CB_SET_FREE,
	CB_SET_EMPTY,				/* has no buckets: not attached */
	CB_SET_ATTACHED
} CbBucketSetState;

/*
 * What an index has in shared memory.  Whose it is (key, build_id, indexoid) is
 * changed when its state is, from FREE; what is reset by attaching, with both
 * locks.  attach_id is 0 before the buckets are given up, and is never used
 * again: who knows it from a look under a lock, and finds it the same after one
 * without, has seen nothing of another attachment (I2_LAYOUT).
 */
typedef struct CbBucketSet
{
	LWLock		lock;			/* these two: see above */
	LWLock		publish;
	LWLock		gate;			/* held while "lock" is waited for, EXCL */
	cb_atomic32 wanted;			/* it is */
	ConditionVariable cv;		/* broadcast when an owner lets go, or the
								 * builder of the shared copy does */
	uint32		number;
	CbBucketSetState state;
	RelFileLocator key;
	uint8		build_id[CB_BUILD_ID_LEN];
	Oid			indexoid;
	uint64		attach_id;		/* never used twice; 0: not attached */
	CbPos		from;			/* the journal's head at the attachment */
	CbPos		head;			/* behind what was published last; publish
								 * lock, and changed under the append lock */
	cb_atomic64 again;			/* behind what was last appended again;
								 * publish lock */
	cb_atomic64 tail;			/* a tail that was seen since the attachment */
	cb_atomic64 journal_limit;	/* bytes; past it the oldest buckets are due */
	cb_atomic64 asked_at;		/* the journal's head when a publication last
								 * asked for one of these; a hint */
	TimestampTz attached_at;
	TimestampTz used_at;		/* by an insertion, or a reader of the shared
								 * copy, about; a hint */
	cb_atomic32 nrecent;		/* entries published lately, and those of them */
	cb_atomic32 nunchanged;		/* that are new versions; hints */
	cb_atomic32 npaused;		/* flushes that do not ask the table; a hint */
	CbSweepPlace sweep_place;	/* where to go on with a sweep */
	cb_atomic32 hurry;			/* 1: what lies below "from" is to be swept
								 * at once */

	/*
	 * Counts what writes runs, from 1 if there may be any when it is
	 * attached; 0: no entries are in range buffers.  Raised before they leave
	 * their chunks; never falls for as long as the bucket set is this
	 * index's.
	 */
	cb_atomic64 spills;

	CbFailing	failing;		/* what workers do, but flushes of buckets */
	CbFailing	filling;		/* ... and but filling its filter of keys */
	char		error[CB_ERROR_LENGTH]; /* their last one of any kind;
										 * set->lock EXCL */

	CbSharedCopy copy;

	/*
	 * Packing of cold leaves, by flush/cb_compactor.c; publish lock, but for
	 * compact_at: whoever swaps that has the turn.
	 */
	cb_atomic64 compact_at;		/* when to go on with it; 0: not wanted */
	TimestampTz compacted_at;	/* when it was last at work; a hint */
	uint32		compact_since;	/* leaves written since that epoch are warm */
	uint32		compact_streak; /* leaves in turn that were not */
	BlockNumber compact_leaf;	/* at whose right end to go on; 0: at that of
								 * the tree */
	uint32		layout_gen;		/* counts changes of the bounds, each before
								 * it is made; never reset */
	uint32		nbuckets;
	uint32		buckets[CB_SET_MAX_BUCKETS];	/* in key order */
} CbBucketSet;

/* ---------- pool (cb_pool.c) ---------- */

/*
 * The pool itself.  How many of what there are is set at the server's start and
 * does not change.  Free lists and counters need no lock; what is free is
 * nobody's, and who pops it sees what was done to it before (cb_freelist.c).
 */
typedef struct CbPool
{
	uint32		nchunks;
	uint32		chunk_size;
	uint32		filter_lines;	/* cache lines of a chunk's filter */
	uint32		nbuckets;
	uint32		nsets;
	LWLock		table_lock;
	cb_atomic64 next_attach_id; /* from 1 on; never used twice */
	CbFreeList	free_chunks;
	CbFreeList	free_buckets;
	cb_atomic64 no_room;		/* publications that found none */
	cb_atomic64 scans;			/* that began in ranges with runs */
	int			lock_tranche;
} CbPool;

/*
 * What is counted makes backends look again for an index's bucket set, and at
 * its journal.  An index has the counters of its file's number, which it
 * shares with few others.  They only grow, and begin at 1.  table_gen is
 * raised with the table lock, EXCL; no_set_gen under the append lock, before
 * the entries are there (I3_EMPTY).
 */
#define CB_POOL_GENS	256

typedef struct CbGens
{
	cb_atomic64 table_gen;		/* bucket sets made and removed */
	cb_atomic64 no_set_gen;		/* publications to indexes without bucket set */
	char		pad[PG_CACHE_LINE_SIZE - 2 * sizeof(cb_atomic64)];
} CbGens;

/* NULL if there are no buckets: pool_size is 0, or not preloaded */
extern CbPool *cb_pool;
extern CbGens *cb_pool_gens;
extern CbPoolChunk *cb_pool_chunks;
extern CbBucket *cb_pool_buckets;
extern CbBucketSet *cb_pool_sets;
extern cb_atomic64 *cb_pool_filters;

extern void cb_pool_shmem_request(void);
extern void cb_pool_shmem_startup(void);
extern uint64 cb_pool_size_bytes(void);
extern bool cb_pool_is_low(void);
extern bool cb_pool_is_very_low(void);
extern bool cb_pool_is_nearly_full(void);
extern uint32 cb_pool_open_chunk(void);
extern void cb_pool_free_chunk(CbPoolChunk *chunk);
extern CbBucket *cb_pool_heaviest_bucket(void);

/* The filter of a chunk's entries' hashes, if they have any. */
static inline cb_atomic64 *
cb_pool_filter(uint32 chunk)
{
	return cb_pool_filters +
		(Size) chunk * cb_pool->filter_lines * CB_FILTER_LINE_WORDS;
}

static inline CbGens *
cb_pool_gens_of(const RelFileLocator *file)
{
	return &cb_pool_gens[file->relNumber % CB_POOL_GENS];
}

/* ---------- the backend's slot (cb_slot.c) ---------- */

struct CbRouter;

/* how much the slot holds; to go back to it after an error */
typedef struct CbSlotMark
{
	int			npinned;
	int			nowned;
	int			nrouters;
} CbSlotMark;

extern CbSlotMark cb_slot_mark(void);
extern void cb_slot_release_to(CbSlotMark mark);
extern bool cb_slot_has_room(int npins, int nowned);
extern void cb_slot_pin(CbPoolChunk *chunk);
extern void cb_slot_adopt(CbPoolChunk *chunk);
extern bool cb_slot_own(CbPoolChunk *chunk);
extern void cb_slot_retire(CbPoolChunk *chunk);
extern void cb_slot_keep_router(struct CbRouter *router);

/* ---------- bucket sets (cb_set.c) ---------- */

extern void cb_set_shmem_request(uint32 nsets);
extern void cb_set_shmem_startup(uint32 nsets);
extern void cb_set_share(CbBucketSet *set);

/* both of its locks, to change it */
extern bool cb_set_lock(CbBucketSet *set, bool wait);
extern void cb_set_unlock(CbBucketSet *set);
extern void cb_set_begin_change(CbBucketSet *set);

extern CbBucketSet *cb_set_find(Relation rel);
extern CbBucketSet *cb_set_find_or_make(Relation rel);
extern bool cb_set_is_first_copy(Relation rel);

/* is it still that of this build in this file? */
extern bool cb_set_is_current(const CbBucketSet *set, Relation rel);
extern bool cb_set_belongs_to(CbBucketSet *set, Relation rel);

extern uint64 cb_set_attachment(CbBucketSet *set, Relation rel, CbPos *from);
extern CbBucketSet *cb_set_attach(const CbKeyDesc *kd, bool wait);
extern bool cb_set_detach(CbBucketSet *set, uint64 attach_id);
extern bool cb_set_detach_idle(void);
extern void cb_set_note_tail(CbBucketSet *set, uint64 attach_id, CbPos tail);
extern void cb_set_note_spill(CbBucketSet *set, uint64 attach_id);
extern bool cb_set_show_error(CbBucketSet *set, uint64 attach_id,
							  const char *message);
extern void cb_set_limit_journal(CbBucketSet *set, uint64 attach_id,
								 Relation rel);

/* new versions among what is published */
extern void cb_set_note_versions(CbBucketSet *set, uint64 attach_id, uint32 n,
								 uint32 nunchanged);
extern bool cb_set_has_versions(const CbBucketSet *set);

/* may flushes ask the table for dead rows? */
extern void cb_set_pause_asking(CbBucketSet *set);
extern bool cb_set_may_ask(CbBucketSet *set);

extern void cb_set_forget_database(Oid dboid);
extern void cb_set_forget_file(RelFileLocator file);

/* where an index's counters stood */
typedef struct CbEmptyJournal
{
	uint64		table_gen;		/* 0: never */
	uint64		no_set_gen;
} CbEmptyJournal;

/* is the journal of an index without bucket set empty? */
extern bool cb_set_journal_is_empty(Relation rel, CbEmptyJournal *now);
extern void cb_set_note_empty_journal(Relation rel, const CbEmptyJournal *seen);

/* ---------- routing (cb_route.c) ---------- */

/*
 * A backend's private copy of the bounds of an attachment's buckets.  Once it
 * is made nothing but the number of its users changes; the last one frees it.
 */
typedef struct CbRouter
{
	int			users;			/* the table of routers, and slot entries */
	uint64		attach_id;
	uint32		layout_gen;
	uint32		nbuckets;
	uint32		allocated;
	char	   *fences;			/* CB_BUCKET_FENCE_SIZE bytes each */
	uint16	   *lens;
	int64	   *numbers;		/* first columns of the fences but the first
								 * ... */
	bool		has_numbers;	/* ... if all have one; of use if the column
								 * is a number, as in CbKeyDesc */
} CbRouter;

extern CbRouter *cb_route_get(const CbKeyDesc *kd, CbBucketSet *set);
extern void cb_route_unref(CbRouter *router);
extern IndexTuple cb_route_fence(const CbRouter *router, uint32 i);
extern uint32 cb_route_bound(const CbKeyDesc *kd, const CbRouter *router,
							 const CbBound *bound, ScanDirection dir);
extern uint32 cb_route_entry(const CbKeyDesc *kd, const CbRouter *router,
							 IndexTuple itup);

/* ---------- publication (cb_publish.c) ---------- */

/*
 * What a publication tells its caller: hints, of the moment when it was done,
 * but no_room and nrefused, which say why entries are left.
 */
typedef struct CbPublishResult
{
	CbBucketSet *set;			/* NULL: the index has no buckets */
	uint64		attach_id;
	uint64		journal_length; /* bytes, afterwards, about */
	bool		no_room;		/* the pool has no room for the rest */
	bool		pressed;		/* the pool is nearly full */
	uint32		full_bucket;	/* one that should be flushed, or CB_NONE */
	int			nrefused;		/* of the rest, so many are for that bucket,
								 * which fails and has its share */
} CbPublishResult;

extern int	cb_bucket_publish(CbKeyDesc *kd, CbSortEntry *entries, int n,
							  CbPublishResult *result);

/* ---------- the shared copy of a journal (cb_shared.c) ---------- */

typedef struct CbSharedMember
{
	int64		number;			/* the first column of its first entry */
	uint32		chunk;
} CbSharedMember;

/*
 * A sorted part of a shared copy.  It stands in its directory, a chunk that is
 * in no bucket's list; its members have the entries, one after the other, each
 * with its position in the journal behind it.
 */
typedef struct CbDirectory
{
	CbPos		max_pos;		/* of its entries */
	uint64		nentries;
	bool		has_numbers;	/* members' numbers are set, as in CbKeyDesc */
	uint32		nmembers;
	CbSharedMember members[FLEXIBLE_ARRAY_MEMBER];
} CbDirectory;

/* a place between two entries of a component: so many of this member lie left */
typedef struct CbSharedPlace
{
	uint32		member;
	int			rank;
} CbSharedPlace;

/* what has come of extending a shared copy */
typedef enum CbSharedEnd
{
	CB_SHARED_COMPLETE,			/* up to the limit */
	CB_SHARED_PAUSED,			/* the slice is over */
	CB_SHARED_NOT_NOW			/* no room, or others are at it */
} CbSharedEnd;

/*
 * What a scan has pinned of one, newest first, and where it begins there.  The
 * slot has the pins; components that the list has dropped meanwhile stay as
 * they are.
 */
typedef struct CbSharedView
{
	int			ncomponents;
	const CbDirectory *components[CB_SHARED_MAX_COMPONENTS];
	CbSharedPlace places[CB_SHARED_MAX_COMPONENTS];
} CbSharedView;

extern CbPos cb_shared_end(Relation rel, BlockNumber *block);
extern bool cb_shared_is_due(Relation rel);
extern bool cb_shared_leave_to_others(CbBucketSet *set, bool served);
extern bool cb_shared_has_failed(const CbBucketSet *set);
extern CbSharedEnd cb_shared_extend(CbKeyDesc *kd, CbPos limit, int slice_ms);
extern bool cb_shared_pin(Relation rel, CbPos from, CbPos tail,
						  CbSharedView *view);
extern void cb_shared_forget(CbBucketSet *set);
extern void cb_shared_forget_below(CbBucketSet *set, Relation rel, CbPos tail);
extern bool cb_shared_evict(const CbBucketSet *keep, bool idle);

/* cb_shared_component.c */
extern CbPoolChunk *cb_shared_write(const CbKeyDesc *kd,
									const CbBucketSet *set,
									const CbSorted *sorted);
extern CbPoolChunk *cb_shared_merge_components(const CbKeyDesc *kd,
											   const CbBucketSet *set,
											   const CbDirectory **components, int n,
											   CbPos tail);
extern uint32 cb_directory_max_members(void);
extern void cb_directory_free_members(CbPoolChunk *directory);
extern bool cb_shared_seek(const CbKeyDesc *kd, const CbDirectory *component,
						   const CbBound *bound, const uint32 *hash,
						   CbSharedPlace *place);

static inline CbDirectory *
cb_directory(uint32 directory)
{
	return (CbDirectory *) cb_pool_chunks[directory].chunk.data;
}

static inline const CbChunk *
cb_directory_member(const CbDirectory *component, uint32 i)
{
	return &cb_pool_chunks[component->members[i].chunk].chunk;
}

/* The position of an entry of a component. */
static inline CbPos
cb_shared_entry_pos(IndexTuple itup)
{
	return *(CbPos *) ((char *) itup + MAXALIGN(IndexTupleSize(itup)));
}

/* ---------- reading (cb_view.c) ---------- */

/* bytes of first entries that a view has room for, together */
#define CB_VIEW_END_DATA	1024

/*
 * What a scan has pinned of one bucket.  What was read of its bucket set, from
 * "from" to "spills", is of one attachment, and was read in the order that
 * cb_view.c argues with.
 */
typedef struct CbBucketView
{
	uint64		attach_id;		/* 0: the index has no buckets */
	CbPos		from;			/* entries below are in journal or tree */
	bool		swept;			/* ... in the tree, in fact */
	CbPos		again;			/* see CbBucketSet */
	uint64		spills;			/* see CbBucketSet; 0 also without buckets */
	IndexTuple	lo;				/* the bucket's range, NULL: infinite */
	IndexTuple	hi;
	CbBucketSet *set;
	CbBucket   *bucket;
	CbSlotMark	mark;
	bool		has_hash;		/* set by the scan: it wants this key only */
	uint32		hash;
	bool		wants_end;		/* set by the scan: the first entry will
								 * mostly do */
	IndexTuple	end;			/* the bucket's first entry as the scan goes,
								 * a copy: nothing else of it is pinned; or
								 * NULL */
	CbChunk		ends;			/* over end_data, which has it */
	uint16		end_place;		/* in ends */
	char		end_data[CB_VIEW_END_DATA] pg_attribute_aligned(8);
	int			nchunks;
	struct
	{
		CbPoolChunk *chunk;
		uint32		count;		/* entries that the scan may read */
		uint32		nsorted;
	}			chunks[CB_BUCKET_MAX_CHUNKS];
} CbBucketView;

extern void cb_bucket_view_open(const CbKeyDesc *kd, const CbBound *bound,
								ScanDirection dir, CbBucketView *view);
extern bool cb_bucket_view_is_late(const CbBucketView *view);

/*
 * Entries of a chunk, sorted: n places, stride numbers apart.  Going forward
 * they begin at the near bound, going backward they end there.  open: they go
 * on beyond the far bound.
 */
typedef struct CbChunkPlaces
{
	int			n;
	const uint16 *order;
	int			stride;
	bool		open;
} CbChunkPlaces;

extern void cb_bucket_view_entries(const CbKeyDesc *kd, CbBucketView *view,
								   int i, const CbBound *lo, const CbBound *hi,
								   ScanDirection dir, CbChunkPlaces *places);

/* ---------- for flushes (cb_seal.c) ---------- */

extern int	cb_bucket_seal(CbBucketSet *set, uint64 attach_id, uint32 bucket,
						   CbPoolChunk **chunks);
extern void cb_bucket_retire(CbBucketSet *set, CbPoolChunk **chunks, int n);

/* where a merge of the bucket's range, or a sweep, is to be gone on with */
extern CbRangePlace cb_bucket_get_place(uint32 bucket, uint64 attach_id);
extern void cb_bucket_set_place(uint32 bucket, uint64 attach_id,
								const CbRangePlace *place);
extern CbSweepPlace cb_set_get_sweep_place(CbBucketSet *set, uint64 attach_id);
extern void cb_set_set_sweep_place(CbBucketSet *set, uint64 attach_id,
								   const CbSweepPlace *place);

/* where an attachment stands in the journal */
typedef struct CbBucketPositions
{
	CbPos		from;
	CbPos		head;			/* when it was read */
	CbPos		min;			/* entries below are in the tree, or below
								 * from */
	CbPos		again;			/* see CbBucketSet */
	uint64		failing_bytes;	/* of entries that failing buckets hold */
	int64		nentries;		/* in all buckets */
} CbBucketPositions;

extern bool cb_bucket_positions(CbBucketSet *set, uint64 attach_id,
								CbBucketPositions *positions);
extern uint32 cb_bucket_find_fullest(CbBucketSet *set, uint64 attach_id);
extern uint32 cb_bucket_find_below(CbBucketSet *set, uint64 attach_id, CbPos pos,
								   bool failing, bool *owned);

/* ---------- what fails (cb_failing.c) ---------- */

extern void cb_failing_note(CbFailing *failing);
extern void cb_failing_forget(CbFailing *failing);
extern bool cb_failing_waits(CbFailing *failing);

static inline bool
cb_bucket_is_failing(CbBucket *bucket)
{
	return cb_load_relaxed(&bucket->failing.failures) != 0;
}

/* so that the journal's tail can pass the entries of a bucket that fails */
extern bool cb_bucket_append_again(Relation rel, CbBucketSet *set,
								   uint64 attach_id, uint32 bucket);
extern void cb_bucket_note_again(CbBucketSet *set, uint64 attach_id);

/* ---------- bounds (cb_layout.c) ---------- */

extern bool cb_layout_split(const CbKeyDesc *kd, CbBucketSet *set,
							uint64 attach_id, uint32 bucket,
							IndexTuple separator);
extern bool cb_layout_join_next(CbBucketSet *set, uint64 attach_id, uint32 bucket);

#endif							/* CB_BUCKET_H */
