/*-------------------------------------------------------------------------
 *
 * cb_key_filter.h
 *	  Filters of unique indexes: which keys are in none of an index's entries.
 *
 * A filter has the hash of each entry's key, and of others: so a key whose hash
 * it lacks is in no entry, and who adds that need not look (I13_FILTER).
 *
 *	NONE		there is no filter
 *	FILLING		whoever claims a hash adds it.  Once the claims from before that
 *				have ended (they are "earlier"), a worker reads the index, and
 *				adds what it finds (am/cb_unique_filter.c)
 *	READY		as FILLING, and it answers
 *
 * Why it has all.  An entry of an index gets there under a claim.  Either the
 * claim was taken in FILLING or later, and has added the hash; or it is an
 * earlier one.  These have ended before the worker begins to read, so what they
 * were for is in the index, or was dropped (I13_EARLIER); and the worker's scan
 * misses nothing that is there from its beginning to its end (I1, I2).  The hash of
 * an entry without a claim is added before that is published.  Those with a null that
 * makes them distinct have no key that is looked for.
 *
 * It is of one file of an index: what is built anew has another one, or is
 * empty, and begins with NONE.  Keys that were deleted stay, which costs a look.
 * When it is full another one is filled, if there is room for a larger one or most
 * of its keys are gone; else it is given up.
 *
 * The memory is of the pool, and a directory has it as a component of a shared
 * copy has its members (cb_shared_component.c); the first of these is the
 * builder's, for the place that it has come to.  Each of the others is divided
 * among the partitions of claims: what a claim asks for and adds is under its
 * own lock, and who holds all of these changes the filter's state, and may take
 * the memory away.
 *
 * An index's filter is found by its OID, so that a claim need not know of it
 * beforehand; two indexes with the same place have one at a time.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_KEY_FILTER_H
#define CB_KEY_FILTER_H

#include "bucket/cb_bucket.h"

typedef enum CbKeyFilterState
{
	CB_KEY_FILTER_NONE,
	CB_KEY_FILTER_FILLING,
	CB_KEY_FILTER_READY
} CbKeyFilterState;

/* What is known of an index's filter, for who may fill it, or shows it. */
typedef struct CbKeyFilterInfo
{
	CbKeyFilterState state;
	Oid			indexoid;
	bool		settled;		/* the earlier claims have ended */
	uint64		nbytes;
	uint64		nkeys;			/* about */
	uint64		nlooks;			/* that read the index since one was begun, or
								 * given up */
} CbKeyFilterInfo;

/* A place between entries: beside one, or a separator, in their order. */
typedef struct CbKeyFilterPlace
{
	bool		after;			/* right of it */
	union
	{
		IndexTupleData header;
		uint64		align;
		char		data[BLCKSZ / 3];
	}			tuple;
} CbKeyFilterPlace;

extern void cb_key_filter_shmem_request(void);
extern void cb_key_filter_shmem_startup(void);

/* with the lock of a claim's partition; see cb_claim.c */
extern bool cb_key_filter_add(Oid indexoid, const RelFileLocator *file,
							  uint32 partition, uint64 hash);
extern bool cb_key_filter_lacks(Oid indexoid, const RelFileLocator *file,
								uint32 partition, uint64 hash);
extern void cb_key_filter_end_earlier(Oid indexoid);

extern void cb_key_filter_count_looks(Oid indexoid, uint32 n);
extern CbKeyFilterInfo cb_key_filter_look(Relation index);
extern bool cb_key_filter_show(uint32 place, CbKeyFilterInfo *info);
extern bool cb_key_filter_begin(Relation index, uint64 nkeys, bool renew);
extern CbKeyFilterPlace *cb_key_filter_get_place(Relation index);
extern void cb_key_filter_set_place(Relation index, const CbBound *bound);
extern void cb_key_filter_finish(Relation index);
extern void cb_key_filter_forget(const RelFileLocator *file);
extern void cb_key_filter_forget_database(Oid dboid);
extern void cb_key_filter_forget_idle(void);

/* Have two indexes of a database one place for their filters? */
extern bool cb_key_filter_shares_place(Oid indexoid, Oid other);

#endif							/* CB_KEY_FILTER_H */
