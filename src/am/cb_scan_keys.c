/*-------------------------------------------------------------------------
 *
 * cb_scan_keys.c
 *	  From a scan's preprocessed keys to the bound where it starts.
 *
 * The rules are btree's, so that a scan reads what btree would read.  For
 * each index column in turn, one key that bounds the scan on the side it
 * starts from is chosen; an equality is preferred, since _bt_checkkeys ends
 * the scan at the first entry that fails one.  A column without such a key,
 * or with a strict inequality, is the last one used.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_scan.h"
#include "utils/lsyscache.h"

/*
 * Does the key bound the scan on its starting side?  If it bounds the other
 * side it still tells that the column is not null.
 */
static void
cb_scan_consider_key(ScanKey key, ScanDirection dir, ScanKey *chosen,
					 ScanKey *implies_not_null)
{
	bool		bounds_start;

	switch (key->sk_strategy)
	{
		case BTEqualStrategyNumber:
			*chosen = key;
			return;
		case BTLessStrategyNumber:
		case BTLessEqualStrategyNumber:
			bounds_start = ScanDirectionIsBackward(dir);
			break;
		case BTGreaterStrategyNumber:
		case BTGreaterEqualStrategyNumber:
			bounds_start = ScanDirectionIsForward(dir);
			break;
		default:
			elog(ERROR, "unexpected strategy number: %d",
				 (int) key->sk_strategy);
			return;
	}

	if (*chosen != NULL)
		return;
	if (bounds_start)
		*chosen = key;
	else
		*implies_not_null = key;
}

/*
 * Makes *key start the scan beyond the nulls of a column, if they are on the
 * side that the scan starts from.
 */
static bool
cb_scan_make_not_null_key(ScanKey key, ScanKey implied_by, ScanDirection dir)
{
	bool		nulls_first = (implied_by->sk_flags & SK_BT_NULLS_FIRST) != 0;

	if (nulls_first != ScanDirectionIsForward(dir))
		return false;

	ScanKeyEntryInitialize(key,
						   SK_SEARCHNOTNULL | SK_ISNULL |
						   (implied_by->sk_flags & (SK_BT_DESC | SK_BT_NULLS_FIRST)),
						   implied_by->sk_attno,
						   nulls_first ? BTGreaterStrategyNumber :
						   BTLessStrategyNumber,
						   InvalidOid, InvalidOid, InvalidOid, (Datum) 0);
	return true;
}

/*
 * Chooses at most one key for each leading column.  Returns how many; *strat
 * is the strategy of the bound as a whole.
 */
static int
cb_scan_choose_keys(BTScanOpaque bt, ScanDirection dir, ScanKey *chosen,
					ScanKey not_null_keys, StrategyNumber *strat)
{
	int			n = 0;
	int			i = 0;

	*strat = BTEqualStrategyNumber;

	while (i < bt->numberOfKeys && bt->keyData[i].sk_attno == n + 1)
	{
		ScanKey		best = NULL;
		ScanKey		implies_not_null = NULL;

		for (; i < bt->numberOfKeys && bt->keyData[i].sk_attno == n + 1; i++)
			cb_scan_consider_key(&bt->keyData[i], dir, &best,
								 &implies_not_null);

		if (best == NULL && implies_not_null != NULL &&
			cb_scan_make_not_null_key(&not_null_keys[n], implies_not_null, dir))
			best = &not_null_keys[n];
		if (best == NULL)
			break;

		chosen[n++] = best;
		if (best->sk_strategy != BTEqualStrategyNumber)
			*strat = best->sk_strategy;
		if (best->sk_strategy == BTLessStrategyNumber ||
			best->sk_strategy == BTGreaterStrategyNumber)
			break;
	}
	return n;
}

/* The 3-way comparison of the column's type with the key's, if there is one. */
static RegProcedure
cb_scan_order_proc(Relation rel, ScanKey key)
{
	int			col = key->sk_attno - 1;

	if (key->sk_subtype == InvalidOid ||
		key->sk_subtype == rel->rd_opcintype[col])
		return index_getprocid(rel, key->sk_attno, BTORDER_PROC);
	return get_opfamily_proc(rel->rd_opfamily[col], rel->rd_opcintype[col],
							 key->sk_subtype, BTORDER_PROC);
}

/*
 * Copies a search key, with that comparison.  What the function keeps from
 * call to call goes to the current memory context, which has to live as long
 * as the key is compared.  A key for int8 is compared as such if its value can
 * be made one: it is searched for by its number, and nothing is looked up for
 * each scan.
 */
static void
cb_scan_make_bound_key(const CbKeyDesc *kd, ScanKey bound_key, ScanKey key)
{
	Relation	rel = kd->rel;
	int			col = key->sk_attno - 1;
	Datum		value = key->sk_argument;
	RegProcedure proc;

	if (key->sk_subtype == InvalidOid ||
		key->sk_subtype == rel->rd_opcintype[col] ||
		((key->sk_flags & SK_ISNULL) == 0 &&
		 cb_key_widen_integer(kd->order_proc[col], key->sk_subtype, &value)))
	{
		ScanKeyEntryInitializeWithInfo(bound_key, key->sk_flags, key->sk_attno,
									   InvalidStrategy, key->sk_subtype,
									   key->sk_collation,
									   index_getprocinfo(rel, key->sk_attno,
														 BTORDER_PROC),
									   value);
		return;
	}

	proc = cb_scan_order_proc(rel, key);
	if (!RegProcedureIsValid(proc))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("column %d of index \"%s\" has no comparison function for types %u and %u",
						col + 1, RelationGetRelationName(rel),
						rel->rd_opcintype[col], key->sk_subtype)));
	ScanKeyEntryInitialize(bound_key, key->sk_flags, key->sk_attno,
						   InvalidStrategy, key->sk_subtype,
						   key->sk_collation, proc, key->sk_argument);
}

/*
 * Uses the members of a row comparison beyond its first for further columns,
 * as far as they are in index order, all of one direction and not null.  The
 * part that is used bounds the scan inclusively, unless it is the whole row.
 */
static int
cb_scan_add_row_members(ScanKey header, ScanKey bound_keys, int n,
						StrategyNumber *strat)
{
	ScanKey		member = (ScanKey) DatumGetPointer(header->sk_argument);

	while (!(member->sk_flags & SK_ROW_END))
	{
		member++;
		if (member->sk_attno != n + 1 ||
			member->sk_strategy != header->sk_strategy ||
			(member->sk_flags & SK_ISNULL) != 0 ||
			n >= INDEX_MAX_KEYS)
		{
			if (*strat == BTLessStrategyNumber)
				*strat = BTLessEqualStrategyNumber;
			else if (*strat == BTGreaterStrategyNumber)
				*strat = BTGreaterEqualStrategyNumber;
			break;
		}
		bound_keys[n++] = *member;
	}
	return n;
}

/*
 * Turns the chosen keys into keys of a bound.  Returns how many, or -1 if a
 * null in a row comparison means that nothing can match.
 */
static int
cb_scan_make_bound_keys(const CbKeyDesc *kd, ScanKey *chosen, int nchosen,
						ScanKey bound_keys, StrategyNumber *strat)
{
	int			i;

	for (i = 0; i < nchosen; i++)
	{
		ScanKey		member;

		if (!(chosen[i]->sk_flags & SK_ROW_HEADER))
		{
			cb_scan_make_bound_key(kd, &bound_keys[i], chosen[i]);
			continue;
		}

		/* members of a row comparison have the 3-way function already */
		member = (ScanKey) DatumGetPointer(chosen[i]->sk_argument);
		if (member->sk_flags & SK_ISNULL)
			return -1;
		bound_keys[i] = *member;
		if (i == nchosen - 1)
			return cb_scan_add_row_members(chosen[i], bound_keys, nchosen, strat);
	}
	return nchosen;
}

/*
 * The bound where a scan in this direction starts, with its keys in
 * bound_keys.  False if nothing can match.
 */
static bool
cb_scan_make_bound(IndexScanDesc scan, ScanDirection dir, ScanKey bound_keys,
				   CbBound *bound)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	ScanKey		chosen[INDEX_MAX_KEYS];
	ScanKeyData not_null_keys[INDEX_MAX_KEYS];
	StrategyNumber strat;
	int			n;

	memset(bound, 0, sizeof(CbBound));
	n = cb_scan_choose_keys(&so->bt, dir, chosen, not_null_keys, &strat);
	if (n == 0)
	{
		bound->kind = ScanDirectionIsForward(dir) ? CB_BOUND_MIN : CB_BOUND_MAX;
		return true;
	}

	n = cb_scan_make_bound_keys(&so->kd, chosen, n, bound_keys, &strat);
	if (n < 0)
		return false;

	bound->kind = CB_BOUND_KEYS;
	bound->nkeys = n;
	bound->keys = bound_keys;
	bound->is_number = so->kd.is_number &&
		bound->keys[0].sk_func.fn_oid == so->kd.order_proc[0] &&
		(bound->keys[0].sk_flags & SK_ISNULL) == 0;

	/* equal entries are to be read unless the bound is a strict one */
	if (ScanDirectionIsForward(dir))
		bound->after = (strat == BTGreaterStrategyNumber);
	else
		bound->after = (strat != BTLessStrategyNumber);
	return true;
}

/*
 * The bound where a scan in this direction starts; its keys stay in the scan's
 * opaque data, but are compared during this call of the access method only.
 * False if nothing can match.  _bt_preprocess_keys has been called, and found
 * the quals satisfiable.  Raises an error if an operator family lacks a
 * comparison.
 */
bool
cb_scan_start_bound(IndexScanDesc scan, ScanDirection dir, CbBound *bound)
{
	return cb_scan_make_bound(scan, dir,
							  ((CbScanOpaque) scan->opaque)->start_keys, bound);
}

/*
 * The bound where it ends: where one in the other direction would start.  Its
 * keys are in bound_keys, which has room for INDEX_MAX_KEYS, and what their
 * functions keep goes to the current memory context.  Where that one would
 * raise an error, as an operator family lacks a comparison, the scan ends with
 * the index.
 */
void
cb_scan_end_bound(IndexScanDesc scan, ScanDirection dir, ScanKey bound_keys,
				  CbBound *bound)
{
	BTScanOpaque bt = &((CbScanOpaque) scan->opaque)->bt;
	bool		forward = ScanDirectionIsForward(dir);
	bool		known = true;

	for (int i = 0; i < bt->numberOfKeys; i++)
		known &= RegProcedureIsValid(cb_scan_order_proc(scan->indexRelation,
														&bt->keyData[i]));
	if (known && cb_scan_make_bound(scan, forward ? BackwardScanDirection :
									ForwardScanDirection, bound_keys, bound))
		return;
	memset(bound, 0, sizeof(CbBound));
	bound->kind = forward ? CB_BOUND_MAX : CB_BOUND_MIN;
}
