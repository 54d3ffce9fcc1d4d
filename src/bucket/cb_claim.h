/*-------------------------------------------------------------------------
 *
 * cb_claim.h
 *	  Claims to the keys that sessions are adding to unique indexes.
 *
 * A key is claimed before it is looked for, and until its entry can be found
 * by others or is dropped.  So of two sessions that add the same key the
 * second one meets the claim of the first, or its entry (I13).
 *
 * A claim is to a hash of the key: equal keys of an index have the same hash.
 * Different ones hardly ever have; then one session waits in vain, and nothing
 * else happens.
 *
 * While a session has claims in an index it holds a heavyweight lock that is
 * its own and the index's: so others can wait for the end of its claims, and
 * the deadlock detector sees them wait.  They do not wait for its transaction:
 * claims can end earlier, and a transaction that builds an index concurrently
 * has no id.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_CLAIM_H
#define CB_CLAIM_H

#include "base/cb_base.h"
#include "storage/lwlock.h"

/* the table is divided, with a lock for each part; so are filters of keys */
#define CB_CLAIM_PARTITIONS		64

/* who has a claim: the number of a process, or nobody */
#define CB_CLAIM_NOBODY		(-1)

typedef struct CbClaimed
{
	int			owner;			/* the process that has the claim now */
	int			count;			/* how often, if that is this one */
	uint64		ended;			/* counts claims that have ended, and entries
								 * without one: if it is as before, none of
								 * this hash has come since */
	bool		absent;			/* has no entry of the index the hash?  Then it
								 * is certain; cb_key_filter.h */
} CbClaimed;

extern void cb_claim_shmem_request(void);
extern void cb_claim_shmem_startup(void);

extern CbClaimed cb_claim_take(Oid indexoid, const RelFileLocator *file,
							   uint64 hash);
extern void cb_claim_end(Oid indexoid, uint64 hash);
extern void cb_claim_count_none(Oid indexoid, uint64 hash);
extern void cb_claim_add_key(Oid indexoid, const RelFileLocator *file,
							 uint64 hash);
extern CbClaimed cb_claim_find(Oid indexoid, const RelFileLocator *file,
							   uint64 hash);
extern bool cb_claim_is_full(void);

extern void cb_claim_lock(Oid indexoid);
extern void cb_claim_unlock(Oid indexoid);
extern void cb_claim_wait(Oid indexoid, int owner);

/* for cb_key_filter.c */
extern void cb_claim_lock_filters(LWLockMode mode);
extern void cb_claim_unlock_filters(LWLockMode mode);
extern uint32 cb_claim_mark_earlier(Oid indexoid);

#endif							/* CB_CLAIM_H */
