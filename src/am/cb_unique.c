/*-------------------------------------------------------------------------
 *
 * cb_unique.c
 *	  Unique indexes: is there a row with the key of an entry?
 *
 * aminsert checks a row before it returns, as btree's does, although the row's
 * entry may stay in the stage.  For an entry it
 *
 *	1. claims the key (bucket/cb_claim.h); if somebody else has, it waits until
 *	   that claim has ended, and begins again (I13_WAIT);
 *	2. looks for the key, unless the index's filter of keys says with the claim
 *	   that no entry has it (I13_FILTER, bucket/cb_key_filter.h): as a scan does,
 *	   and asks the table about each row that has it, with a dirty snapshot and no
 *	   lock of the index; if that hangs on another transaction, or a speculative
 *	   insertion, the claim ends, it waits for that one, and begins again
 *	   (I13_DOUBT);
 *	3. stages the entry.  The claim goes with it, to its publication.
 *
 * So no two sessions add the same key (A19).  One of them claims it first.
 * When its claim has ended its entry was published, with a full barrier, or
 * dropped.  The other one claims the key then, and looks for it after that
 * (I13_ORDER); so it finds what was published (I2, I3).  Rows tell of
 * transactions that are prepared, or that a promoted server has taken over; so
 * claims are not logged.
 *
 * Invariants (I13):
 *	a) The key is looked for after it was claimed; or before, if nothing has
 *	   come since (cb_unique_scan.c).
 *	b) A claim ends when whatever is read afterwards finds the entry
 *	   (I13_EARLY), or when the entry is dropped, or without an entry.  It is
 *	   a segment's of the stage, and ends when that leaves the stage: with its
 *	   subtransaction (I13_SAVEPOINT), and before a transaction is prepared.
 *	c) A process that waits for another one here has no claim in the index: it
 *	   publishes first (I13_LOCK).  Its lock stands for all its claims, so one
 *	   that waits for a claim that has ended would go on waiting, and if each
 *	   waits for the other that is a deadlock where btree has none (B7).  For
 *	   the same reason its claims are of one segment: before a subtransaction
 *	   claims a key, what outer ones have staged is published (I13_OUTER).
 *	   Claims in other indexes stay, and in this one where the executor waits:
 *	   they are to keys of rows that are there, and for which btree would have
 *	   others wait.
 *	d) What this process has in its stage was claimed by it, or has a null that
 *	   makes it distinct.  So a search need not publish it, unless the key was
 *	   claimed by this process before (I13_OWN).
 *	e) Comparison functions run with the stage marked, and with no lock (C11).
 *	   Hash functions are the server's.
 *	f) All sessions make the same hash of equal keys at any time: by functions
 *	   of the server, for its own types and enums, where the comparison is the
 *	   server's.  Any other column makes no difference to the hash.  Then a hash
 *	   says less than its key, and claims end within aminsert: the entry is
 *	   published at once (I13_HASH).
 *	g) No claim is kept for a row that may lose.  It would make others wait for
 *	   its session, which may wait for them: two upserts of one row, with two
 *	   keys, would be a deadlock.  So entries of ON CONFLICT are staged only if
 *	   the table has no other unique or exclusion index, of any method, and
 *	   no other one with expressions or a condition, whose functions could
 *	   wait (B7_SOLE): a row that has its claim does not lose then.
 *	h) TIDs of entries above the tree can be those of other rows (I8).  The scan
 *	   has a pin on a leaf, so that no VACUUM that begins from then on ends its
 *	   pass.  If none has begun since the upper tiers were read, no TID has
 *	   been given away; else the scan reads again.
 *
 * Of UNIQUE_CHECK_PARTIAL only the answer differs.  It waits for nobody who
 * adds the key, as it would do so with a speculative row, for which others
 * wait.  It says that the key may be there.  The server takes the row back and
 * looks again, with a dirty snapshot, which waits for claims
 * (cb_unique_scan.c).  Only where different keys have the same hash it waits for
 * the claim, or upserts of these would refuse each other again and again; the
 * claim ends within aminsert, and its owner waits for no row meanwhile
 * (I13_PARTIAL).
 *
 * The entry of a speculative row that is refused so is left out (cb_insert.c), as
 * the row is taken back (I13_LOSER).  Else the session that has the claim could
 * find it when it looks, and lose as well, so that neither row stays; and so again
 * and again, as the server has a means against that for exclusion constraints
 * only (CEOUC_LIVELOCK_PREVENTING_WAIT).  Refused rows that a logical worker
 * applies may stay, and get their entries (I13_APPLIED).  In two unique indexes two
 * such rows may still refuse each other, and try again, as with btree.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/transam.h"
#include "am/cb_scan.h"
#include "am/cb_unique.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "rel/cb_rel.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/typcache.h"

/* what a null adds to the hash of a key */
#define CB_UNIQUE_NULL_HASH		UINT64CONST(0x9e3779b97f4a7c15)

struct CbUniqueState
{
	IndexScanDesc scan;			/* for a key; begins anew with each */
	SnapshotData dirty;			/* the scan's, and what it says of a row */
	FmgrInfo   *hash[INDEX_MAX_KEYS];	/* of the key columns */
	bool		hashes_all;		/* has each one? */
	ScanKeyData keys[FLEXIBLE_ARRAY_MEMBER];
};

/* What a search has found. */
typedef enum CbUniqueAnswer
{
	CB_UNIQUE_FREE,				/* no row has the key, or that will have it */
	CB_UNIQUE_TAKEN,			/* one has; if that was all that was asked for,
								 * one may have */
	CB_UNIQUE_IN_DOUBT			/* one has, or had, if a transaction says so */
} CbUniqueAnswer;

typedef struct CbUniqueResult
{
	CbUniqueAnswer answer;
	bool		found_own;		/* the entry that is looked at */
	TransactionId xid;			/* IN_DOUBT: to be waited for ... */
	uint32		token;			/* ... until it has decided on the row, if not 0 */
} CbUniqueResult;

/* ---------- hashes of keys ---------- */

/* The operator by which the column's values are equal, if there is one. */
static Oid
cb_unique_equality(Relation index, int column)
{
	Oid			type = index->rd_opcintype[column];

	return get_opfamily_member(index->rd_opfamily[column], type, type,
							   BTEqualStrategyNumber);
}

/*
 * The hash function of a type's values, if equal has to be the same as having
 * equal hashes: NULL if there is none that all sessions agree on at any time.
 * So it is the server's own, of a type of its own or an enum; others' can be
 * made or dropped while keys are claimed.
 */
static FmgrInfo *
cb_unique_type_hash(Oid type, Oid equal)
{
	Oid			element = get_element_type(type);
	TypeCacheEntry *entry;

	if (type >= FirstUnpinnedObjectId && !type_is_enum(type))
		return NULL;
	if (OidIsValid(element) && cb_unique_type_hash(element, InvalidOid) == NULL)
		return NULL;
	entry = lookup_type_cache(type, TYPECACHE_EQ_OPR |
							  TYPECACHE_HASH_EXTENDED_PROC |
							  TYPECACHE_HASH_EXTENDED_PROC_FINFO);
	if (!OidIsValid(entry->hash_extended_proc) ||
		entry->hash_extended_proc >= FirstUnpinnedObjectId ||
		(OidIsValid(equal) && entry->eq_opr != equal))
		return NULL;
	return &entry->hash_extended_proc_finfo;
}

/*
 * The hash function of a key column.  A comparison that is not the server's may
 * call equal what its operator does not (A10).
 */
static FmgrInfo *
cb_unique_column_hash(Relation index, int column)
{
	Oid			type = TupleDescAttr(RelationGetDescr(index), column)->atttypid;
	Oid			equal = cb_unique_equality(index, column);

	if (!OidIsValid(equal) ||
		index_getprocid(index, column + 1, BTORDER_PROC) >= FirstUnpinnedObjectId)
		return NULL;
	return cb_unique_type_hash(getBaseType(type), equal);
}

/*
 * Finds the hash functions of the key columns, NULL for one without: its values
 * make no difference to a key's hash.  Returns whether all have one.  They are
 * looked up once for a relation cache's entry, and copied, as that may go while
 * they run.
 */
bool
cb_unique_get_hashes(Relation index, FmgrInfo **hash)
{
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	CbRelCache *cache = cb_rel_cache(index);
	bool		all = true;

	if (!cache->hashes_known)
	{
		for (int i = 0; i < nkeys; i++)
			hash[i] = cb_unique_column_hash(index, i);
		cache = cb_rel_cache(index);
		memcpy(cache->hashes, hash, nkeys * sizeof(FmgrInfo *));
		cache->hashes_known = true;
	}
	memcpy(hash, cache->hashes, nkeys * sizeof(FmgrInfo *));
	for (int i = 0; i < nkeys; i++)
		all &= hash[i] != NULL;
	return all;
}

/* Adds a value of a column to the hash of a key, which begins with 0. */
uint64
cb_unique_add_hash(Relation index, int column, FmgrInfo *function, Datum value,
				   bool isnull, uint64 hash)
{
	Oid			collation = index->rd_indcollation[column];
	uint64		added = CB_UNIQUE_NULL_HASH;

	if (function == NULL)
		return hash;
	if (!isnull)
		added = DatumGetUInt64(FunctionCall2Coll(function, collation, value,
												 UInt64GetDatum(0)));
	return hash_combine64(hash, added);
}

static uint64
cb_unique_hash(const CbUniqueState *state, const CbUniqueEntry *entry)
{
	uint64		hash = 0;

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(entry->index); i++)
		hash = cb_unique_add_hash(entry->index, i, state->hash[i],
								  entry->values[i], entry->isnull[i], hash);
	return hash;
}

/* ---------- looking for a key ---------- */

/*
 * Has the entry of a row to be unique?  Not where it has a null, unless nulls
 * are not distinct in the index.
 */
bool
cb_unique_is_checked(Relation index, const bool *isnull, IndexUniqueCheck check)
{
	if (check == UNIQUE_CHECK_NO)
		return false;
	if (index->rd_index->indnullsnotdistinct)
		return true;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		if (isnull[i])
			return false;
	}
	return true;
}

/* Looks functions up, and makes the scan, all in a context. */
CbUniqueState *
cb_unique_make_state(Relation index, MemoryContext cxt)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	CbUniqueState *state = palloc0(offsetof(CbUniqueState, keys) +
								   nkeys * sizeof(ScanKeyData));

	for (int i = 0; i < nkeys; i++)
	{
		Oid			equal = cb_unique_equality(index, i);

		ScanKeyEntryInitialize(&state->keys[i], 0, i + 1, BTEqualStrategyNumber,
							   InvalidOid, index->rd_indcollation[i],
							   get_opcode(equal), (Datum) 0);
	}
	state->hashes_all = cb_unique_get_hashes(index, state->hash);
	InitDirtySnapshot(state->dirty);
	state->scan = cb_am_beginscan(index, nkeys, 0);
	state->scan->xs_snapshot = &state->dirty;
	((CbScanOpaque) state->scan->opaque)->for_unique = true;
	MemoryContextSwitchTo(old);
	return state;
}

/*
 * May entries of keys that were claimed stay in the stage?  Not if claims are to
 * less than the whole key, as they would keep others' keys waiting.
 */
bool
cb_unique_may_stage(const CbUniqueState *state)
{
	return state->hashes_all;
}

static void
cb_unique_start_scan(CbUniqueState *state, const CbUniqueEntry *entry)
{
	int			nkeys = state->scan->numberOfKeys;

	for (int i = 0; i < nkeys; i++)
	{
		state->keys[i].sk_flags = entry->isnull[i] ? SK_ISNULL | SK_SEARCHNULL : 0;
		state->keys[i].sk_argument = entry->isnull[i] ? (Datum) 0 : entry->values[i];
	}
	cb_am_rescan(state->scan, state->keys, nkeys, NULL, 0);
}

/* Is the row that is being added still alive? */
static bool
cb_unique_row_lives(const CbUniqueEntry *entry)
{
	ItemPointerData tid = *entry->tid;	/* is moved along a HOT chain */

	return table_index_fetch_tuple_check(entry->heap, &tid, SnapshotSelf, NULL);
}

/*
 * What the row of an entry with the key says.  *done: there is nothing more to
 * be looked for.
 */
static CbUniqueAnswer
cb_unique_ask_row(CbUniqueState *state, const CbUniqueEntry *entry,
				  CbUniqueResult *result, bool *done)
{
	ItemPointerData tid = state->scan->xs_heaptid;
	SnapshotData *dirty = &state->dirty;
	bool		all_dead = false;

	if (entry->check == UNIQUE_CHECK_EXISTING && ItemPointerEquals(&tid, entry->tid))
	{
		result->found_own = true;
		return CB_UNIQUE_FREE;
	}
	if (!table_index_fetch_tuple_check(entry->heap, &tid, dirty, &all_dead))
	{
		state->scan->kill_prior_tuple = all_dead;
		return CB_UNIQUE_FREE;
	}
	*done = true;
	if (entry->check == UNIQUE_CHECK_PARTIAL)
		return CB_UNIQUE_TAKEN;
	result->xid = TransactionIdIsValid(dirty->xmin) ? dirty->xmin : dirty->xmax;
	result->token = dirty->speculativeToken;
	if (TransactionIdIsValid(result->xid))
		return CB_UNIQUE_IN_DOUBT;

	/* CREATE INDEX CONCURRENTLY adds entries of rows that may have gone since */
	return cb_unique_row_lives(entry) ? CB_UNIQUE_TAKEN : CB_UNIQUE_FREE;
}

/*
 * Looks at all entries with the key, those excepted that this process has in its
 * stage.  Holds a pin on the leaf while it asks the table, and nothing on return.
 * Comparison functions run.
 */
static CbUniqueResult
cb_unique_search(CbUniqueState *state, const CbUniqueEntry *entry)
{
	CbUniqueResult result = {CB_UNIQUE_FREE};
	IndexScanDesc scan = state->scan;
	bool		done = false;

	scan->heapRelation = entry->heap;
	scan->kill_prior_tuple = false;
	cb_unique_start_scan(state, entry);
	while (!done && cb_am_gettuple(scan, ForwardScanDirection))
	{
		CHECK_FOR_INTERRUPTS();
		scan->kill_prior_tuple = false;
		result.answer = cb_unique_ask_row(state, entry, &result, &done);
	}
	cb_scan_forget(scan);
	return result;
}

/* ---------- claims ---------- */

/*
 * Waits for what makes an answer doubtful, without claims in the index (c).
 * Nothing is locked or pinned.
 */
static void
cb_unique_wait_for_row(CbStage *stage, const CbUniqueEntry *entry,
					   const CbUniqueResult *result)
{
	cb_stage_publish(stage, entry->index, 1);
	if (result->token != 0)
		SpeculativeInsertionWait(result->xid, result->token);
	else
		XactLockTableWait(result->xid, entry->index, entry->tid, XLTW_InsertIndex);
}

/* Waits for the end of another process's claims, also without. */
static void
cb_unique_wait_for_claim(CbStage *stage, const CbUniqueEntry *entry, int owner)
{
	cb_stage_publish(stage, entry->index, 1);
	cb_claim_wait(RelationGetRelid(entry->index), owner);
}

/*
 * Looks for conflicts of serializable transactions as if the entry were added,
 * before a duplicate is reported: their error would explain more, as the other
 * row is not visible (A2_UNIQUE).  The search locks nothing, as its snapshot is
 * not MVCC.
 */
static void
cb_unique_check_conflict(CbStage *stage, const CbUniqueEntry *entry)
{
	CbKeyDesc	kd;
	CbSortEntry sorted;

	cb_key_init(&kd, entry->index);
	sorted.itup = cb_key_form_entry(entry->index, entry->values, entry->isnull,
									entry->tid);
	cb_stage_mark(stage);
	PG_TRY();
	{
		cb_predicate_check(&kd, &sorted, 1);
	}
	PG_FINALLY();
	{
		cb_stage_unmark(stage);
	}
	PG_END_TRY();
}

pg_noreturn static void
cb_unique_report(CbStage *stage, const CbUniqueEntry *entry)
{
	char	   *key;

	cb_unique_check_conflict(stage, entry);
	key = BuildIndexValueDescription(entry->index, entry->values, entry->isnull);
	ereport(ERROR,
			(errcode(ERRCODE_UNIQUE_VIOLATION),
			 errmsg("duplicate key value violates unique constraint \"%s\"",
					RelationGetRelationName(entry->index)),
			 key != NULL ? errdetail("Key %s already exists.", key) : 0,
			 errtableconstraint(entry->heap,
								RelationGetRelationName(entry->index))));
}

/* The row that is looked at has no entry. */
pg_noreturn static void
cb_unique_report_lost(const CbUniqueEntry *entry)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("failed to re-find tuple within index \"%s\"",
					RelationGetRelationName(entry->index)),
			 errhint("This may be because of a non-immutable index expression."),
			 errtableconstraint(entry->heap,
								RelationGetRelationName(entry->index))));
}

/* Searches with the stage marked (e). */
static CbUniqueResult
cb_unique_search_marked(CbUniqueState *state, CbStage *stage,
						const CbUniqueEntry *entry)
{
	CbUniqueResult result;

	cb_stage_mark(stage);
	PG_TRY();
	{
		result = cb_unique_search(state, entry);
	}
	PG_FINALLY();
	{
		cb_stage_unmark(stage);
	}
	PG_END_TRY();
	return result;
}

/*
 * Does the check wait for somebody else's claim?  UNIQUE_CHECK_PARTIAL, with a row
 * that others may wait for, only if the claim can be to another key.  It ends soon
 * then (f), and who has it waits for no row (c).
 */
static bool
cb_unique_waits(const CbUniqueState *state, const CbUniqueEntry *entry)
{
	return entry->check != UNIQUE_CHECK_PARTIAL || !state->hashes_all;
}

/*
 * Claims the key's hash.  False: somebody else has it; then, if that is to be
 * waited for, its claims have ended since.  If this process had it before,
 * that entry is published, so that it is found.  So are those of outer
 * subtransactions: their claims would keep the lock when this one's are rolled
 * back.
 */
static bool
cb_unique_take(CbStage *stage, const CbUniqueEntry *entry, uint64 hash, bool wait,
			   CbClaimed *claimed)
{
	if (cb_stage_has_outer_claims(stage, entry->index))
		cb_stage_publish(stage, entry->index, 1);
	*claimed = cb_stage_claim(stage, entry->index, hash);
	if (claimed->count > 1)
	{
		cb_stage_unclaim(stage);
		cb_stage_publish(stage, entry->index, 1);
		*claimed = cb_stage_claim(stage, entry->index, hash);
	}
	if (claimed->count > 0)
		return true;
	if (wait)
		cb_unique_wait_for_claim(stage, entry, claimed->owner);
	return false;
}

/*
 * Claims the key of an entry that cb_unique_is_checked(), and looks for it.  True:
 * no other row has it; the stage has a claim to it, and the caller adds the entry
 * before anything else.  False, for UNIQUE_CHECK_PARTIAL only: a row may have it,
 * and there is no claim.  UNIQUE_CHECK_EXISTING leaves no claim.
 *
 * Waits for other sessions, so no LWLock or buffer lock is held.  May publish the
 * index's stage.  Comparison functions run.  Raises the error of a row that has
 * the key.
 */
bool
cb_unique_claim(CbUniqueState *state, CbStage *stage, const CbUniqueEntry *entry)
{
	uint64		hash = cb_unique_hash(state, entry);
	bool		wait = cb_unique_waits(state, entry);
	CbClaimed	claimed;
	CbUniqueResult result;

	CB_TEST_POINT("unique-start");
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		if (!cb_unique_take(stage, entry, hash, wait, &claimed))
		{
			if (!wait)
				return false;
			continue;
		}
		CB_TEST_POINT("unique-claimed");
		if (cb_unique_is_absent(entry, claimed.ended) ||
			(claimed.absent && entry->check != UNIQUE_CHECK_EXISTING))
			return true;
		cb_unique_count_look(entry->index);
		result = cb_unique_search_marked(state, stage, entry);
		CB_TEST_POINT("unique-searched");
		if (result.answer == CB_UNIQUE_FREE && entry->check != UNIQUE_CHECK_EXISTING)
			return true;

		cb_stage_unclaim(stage);
		if (result.answer == CB_UNIQUE_IN_DOUBT)
			cb_unique_wait_for_row(stage, entry, &result);
		else if (result.answer == CB_UNIQUE_FREE && result.found_own)
			return true;
		else if (result.answer == CB_UNIQUE_FREE)
			cb_unique_report_lost(entry);
		else if (entry->check == UNIQUE_CHECK_PARTIAL)
			return false;
		else
			cb_unique_report(stage, entry);
	}
}

/*
 * An entry that may not be unique, and so has no claim, is going to be published:
 * the index's filter shall have its key then.
 */
void
cb_unique_add_unclaimed(const CbUniqueState *state, const CbUniqueEntry *entry)
{
	cb_claim_add_key(RelationGetRelid(entry->index), &entry->index->rd_locator,
					 cb_unique_hash(state, entry));
}

/*
 * It was published: who has looked for the key before looks again
 * (cb_unique_is_absent()).
 */
void
cb_unique_note_unclaimed(const CbUniqueState *state, const CbUniqueEntry *entry)
{
	cb_claim_count_none(RelationGetRelid(entry->index), cb_unique_hash(state, entry));
}
