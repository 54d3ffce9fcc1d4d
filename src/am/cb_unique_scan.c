/*-------------------------------------------------------------------------
 *
 * cb_unique_scan.c
 *	  Scans of unique indexes that look for a key which may be inserted next.
 *
 * The server makes them with a dirty snapshot: to see whether a row of INSERT
 * ...  ON CONFLICT has a conflict, and to find the row that a change is applied
 * to.  Before it reads anything such a scan waits for others' claims to its
 * key, and finds their entries then (I13_DIRTY).  Else it would find none, the
 * server would insert again, and so on until the other session publishes.
 *
 * There is such a scan for each row, so it publishes the stage only if this
 * session has claimed the key: what is not claimed is not in the stage
 * (I13_STAGED), as an entry without a claim is published at once.
 *
 * If it finds nothing the row is inserted next, as a rule.  Then cb_unique.c
 * need not look for the key again.  Whoever else could add it has a claim
 * meanwhile, and claims that end are counted, under the lock of the hash's
 * partition.  The scan reads that count before anything else.  If it is the
 * same when the key is claimed (I13_ABSENT), and the key is the same, byte for
 * byte, there is still nothing.  An entry that got no claim is counted when it
 * is published (I13_UNCLAIMED), as one of a logical worker stays if the claim's
 * owner is rolled back; if it is counted later than the key is claimed, its
 * session meets the claim when it looks again.  The end of a subtransaction
 * makes the look void, as its rollback can bring back what a TRUNCATE in it
 * took away (I13_LOOK).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_am.h"
#include "am/cb_unique.h"
#include "miscadmin.h"
#include "utils/datum.h"

/* The key that was looked for last by a scan of this process. */
typedef struct CbUniqueKey
{
	IndexScanDesc scan;			/* until it has found something, or nothing */
	Oid			indexoid;
	bool		filtered;		/* does no entry have it, by the index's filter? */
	bool		absent;			/* was nothing found, and no entry added since? */
	uint64		ended;			/* claims, before the scan read anything */
	int			len;
	char		image[256];		/* of its values; longer ones are not kept */
} CbUniqueKey;

static CbUniqueKey cb_unique_last;

/*
 * Writes the image of a key, in which equal bytes mean the same value; 0 if it is
 * too long, else its length.
 */
static int
cb_unique_write_image(Relation index, const Datum *values, const bool *isnull,
					  char *image)
{
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	char	   *end = image;
	Size		size = 0;

	for (int i = 0; i < nkeys; i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(index), i);

		size += datumEstimateSpace(values[i], isnull[i], att->attbyval, att->attlen);
		if (size > sizeof(cb_unique_last.image))
			return 0;
		datumSerialize(values[i], isnull[i], att->attbyval, att->attlen, &end);
	}
	return end - image;
}

/* Can the value be one that an entry has which was claimed? */
static bool
cb_unique_is_value(Relation index, const ScanKeyData *key)
{
	if (key->sk_flags & SK_SEARCHNULL)
		return index->rd_index->indnullsnotdistinct;
	return key->sk_flags == 0 && key->sk_strategy == BTEqualStrategyNumber &&
		(!OidIsValid(key->sk_subtype) ||
		 key->sk_subtype == index->rd_opcintype[key->sk_attno - 1]);
}

/*
 * Takes the one key that a scan looks for, and its hash, if no entry without a
 * claim can have it; false if the scan looks for anything else.
 */
static bool
cb_unique_get_key(IndexScanDesc scan, uint64 *hash)
{
	Relation	index = scan->indexRelation;
	FmgrInfo   *functions[INDEX_MAX_KEYS];
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	if (scan->numberOfKeys != IndexRelationGetNumberOfKeyAttributes(index))
		return false;
	(void) cb_unique_get_hashes(index, functions);
	*hash = 0;
	for (int i = 0; i < scan->numberOfKeys; i++)
	{
		ScanKey		key = &scan->keyData[i];

		if (key->sk_attno != i + 1 || !cb_unique_is_value(index, key))
			return false;
		values[i] = key->sk_argument;
		isnull[i] = (key->sk_flags & SK_SEARCHNULL) != 0;
		*hash = cb_unique_add_hash(index, i, functions[i], values[i], isnull[i],
								   *hash);
	}
	cb_unique_last.indexoid = RelationGetRelid(index);
	cb_unique_last.len = cb_unique_write_image(index, values, isnull,
											   cb_unique_last.image);
	return true;
}

/*
 * Called before a scan with a dirty snapshot reads anything.  One that looks for a
 * key of a unique index waits until nobody else claims that: the row is found then.
 *
 * Returns whether what the scan looks for may be in this process's stage, cannot
 * be there, or is in no entry at all (I13_FILTER).  No LWLock, buffer lock or pin is
 * held.  May publish the index's stage.
 */
CbUniqueLook
cb_unique_settle_claims(IndexScanDesc scan)
{
	Relation	index = scan->indexRelation;
	CbClaimed	claimed;
	uint64		hash;

	cb_unique_last.scan = NULL;
	cb_unique_last.absent = false;
	if (!CB_HAS_UNIQUE || !index->rd_index->indisunique ||
		!cb_unique_get_key(scan, &hash))
		return CB_UNIQUE_LOOK_STAGED;
	cb_unique_last.scan = scan;
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		claimed = cb_claim_find(RelationGetRelid(index), &index->rd_locator, hash);
		cb_unique_last.ended = claimed.ended;
		cb_unique_last.filtered = claimed.absent;
		if (claimed.owner == CB_CLAIM_NOBODY)
			return claimed.absent ? CB_UNIQUE_LOOK_ABSENT : CB_UNIQUE_LOOK_UNSTAGED;
		if (claimed.count > 0)
			return CB_UNIQUE_LOOK_STAGED;
		cb_stage_publish_index(index);
		cb_claim_wait(RelationGetRelid(index), claimed.owner);
	}
}

/*
 * A scan with a dirty snapshot has found nothing, or something, when it began.  If a
 * filter could have told that there is nothing, the look counts as one for it.
 */
void
cb_unique_note_found(IndexScanDesc scan, bool found)
{
	bool		absent = !found && cb_unique_last.scan == scan;

	if (absent && !cb_unique_last.filtered)
		cb_unique_count_look(scan->indexRelation);
	cb_unique_last.absent = absent && cb_unique_last.len > 0;
	cb_unique_last.scan = NULL;
}

/* A (sub)transaction ends.  Cannot fail. */
void
cb_unique_forget_look(void)
{
	cb_unique_last.scan = NULL;
	cb_unique_last.absent = false;
}

/*
 * Is it known already that no row has the key of an entry, which was just claimed?
 * ended: as the claim says.  Only the server's UNIQUE_CHECK_PARTIAL comes after a
 * look for the key.
 */
bool
cb_unique_is_absent(const CbUniqueEntry *entry, uint64 ended)
{
	char		image[sizeof(cb_unique_last.image)];

	if (!cb_unique_last.absent || entry->check != UNIQUE_CHECK_PARTIAL ||
		cb_unique_last.indexoid != RelationGetRelid(entry->index))
		return false;
	cb_unique_last.absent = false;
	return cb_unique_last.ended == ended &&
		cb_unique_write_image(entry->index, entry->values, entry->isnull,
							  image) == cb_unique_last.len &&
		memcmp(image, cb_unique_last.image, cb_unique_last.len) == 0;
}
