/*-------------------------------------------------------------------------
 *
 * cb_keys.c
 *	  From the server's scan keys to conditions on columns, and from places
 *	  between these to bounds.
 *
 * Each scan key becomes a condition: an equality a point, = ANY several, an
 * inequality a bound.  What wants a bound wants no nulls, which is a bound as
 * well.  A key of a shorter integer type is made one of an int8 column, so it
 * is compared and searched for as such.  All else of another type than the
 * column is compared by the operator family's function for both.  Where the
 * family lacks that, a bound is compared by its operator, which is enough as
 * long as the scan does not have to begin there.
 *
 * Row comparisons are made for btree only, so there are none.
 *
 * What a scan concludes from its keys beside whether an entry is wanted:
 *
 *	- It comes to its end, as it goes only to values whose comparisons
 *	  follow the column's order.  One with another type can have an order of
 *	  its own, as that of timestamps has where clocks are put forward, and
 *	  could lead back (cb_keys_is_ordered()).
 *	- A window that was opened for one of several values (the hash of the
 *	  first column leaves out chunks and runs) tells nothing of the others.
 *	  It ends with the value, and the scan goes to the value that is next in
 *	  the list, not to where the entry beyond it would lead (I2_ONEVALUE,
 *	  I2_NEXTPOINT, I2_OTHERPOINT, I2_FULLWINDOW).
 *	- Where one value is wanted of each column but the last, and no several
 *	  of that, all between two wanted entries is wanted, if the columns
 *	  follow the order of these comparisons.  So once an entry of a window
 *	  is, and one further on is, or would be if it had the values of the
 *	  window's end, those between are not looked at (A18_INTERVAL,
 *	  A18_ORDERED, I2_WANTED).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_keys.h"
#include "lib/qunique.h"
#include "utils/array.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* ---------- types ---------- */

static bool
cb_keys_is_own_type(const CbKeyDesc *kd, int column, Oid type)
{
	return type == InvalidOid || type == kd->rel->rd_opcintype[column];
}

/* The 3-way comparison of two types of the column's family, or InvalidOid. */
static Oid
cb_keys_order_proc(const CbKeyDesc *kd, int column, Oid left, Oid right)
{
	Oid			own = kd->rel->rd_opcintype[column];

	return get_opfamily_proc(kd->rel->rd_opfamily[column],
							 OidIsValid(left) ? left : own,
							 OidIsValid(right) ? right : own, CB_ORDER_PROC);
}

static void
cb_keys_report_no_order(const CbKeyDesc *kd, int column, Oid left, Oid right)
{
	Oid			own = kd->rel->rd_opcintype[column];

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_FUNCTION),
			 errmsg("column %d of index \"%s\" has no comparison function for types %u and %u",
					column + 1, RelationGetRelationName(kd->rel),
					OidIsValid(left) ? left : own, OidIsValid(right) ? right : own)));
}

/*
 * Is a column in the order of this comparison with another type?  Not where
 * clocks are put forward: a timestamp of the hour that is left out is later, in
 * a time zone, than the next ones.
 */
static bool
cb_keys_proc_is_ordered(Oid proc)
{
	switch (proc)
	{
		case F_BTINT24CMP:
		case F_BTINT28CMP:
		case F_BTINT42CMP:
		case F_BTINT48CMP:
		case F_BTINT82CMP:
		case F_BTINT84CMP:
		case F_BTFLOAT48CMP:
		case F_BTFLOAT84CMP:
		case F_BTNAMETEXTCMP:
		case F_BTTEXTNAMECMP:
		case F_DATE_CMP_TIMESTAMP:
		case F_TIMESTAMP_CMP_DATE:
			return true;
		default:
			return false;
	}
}

/*
 * Makes a type of a column; what its function keeps lives in cxt, and serves all
 * bounds.  There is none if the family lacks it.
 */
static void
cb_keys_init_type(CbKeysType *type, CbKeyDesc *kd, int column, Oid oid,
				  MemoryContext cxt)
{
	Oid			proc;

	type->kd = kd;
	type->column = column;
	type->type = cb_keys_is_own_type(kd, column, oid) ? InvalidOid : oid;
	type->operator.fn_oid = InvalidOid;
	type->compare.fn_oid = InvalidOid;
	type->ordered = true;
	if (!OidIsValid(type->type))
		return;
	proc = cb_keys_order_proc(kd, column, InvalidOid, oid);
	if (OidIsValid(proc))
		fmgr_info_cxt(proc, &type->compare, cxt);
	type->ordered = cb_keys_proc_is_ordered(proc);
}

/* Is there a comparison of the column with the type? */
static inline bool
cb_keys_is_compared(const CbKeysType *type)
{
	return !OidIsValid(type->type) || OidIsValid(type->compare.fn_oid);
}

static inline SortSupport
cb_keys_ssup(const CbKeysType *type)
{
	return &type->kd->ssup[type->column];
}

static inline int
cb_keys_turn(const CbKeysType *type, int cmp)
{
	if (cb_keys_ssup(type)->ssup_reverse)
		INVERT_COMPARE_RESULT(cmp);
	return cmp;
}

static inline int
cb_keys_compare_own_values(const CbKeysType *type, Datum a, Datum b)
{
	SortSupport ssup = cb_keys_ssup(type);

	return cb_keys_turn(type, ssup->comparator(a, b, ssup));
}

/* CbKeyCondCompare, of the column's own type. */
static int
cb_keys_compare_own(const CbKeyCond *cond, uintptr_t column, uintptr_t value)
{
	return cb_keys_compare_own_values(cond->arg, (Datum) column, (Datum) value);
}

/* CbKeyCondCompare, of another type. */
static int
cb_keys_compare_other(const CbKeyCond *cond, uintptr_t column, uintptr_t value)
{
	CbKeysType *type = cond->arg;

	return cb_keys_turn(type,
						DatumGetInt32(FunctionCall2Coll(&type->compare,
														cb_keys_ssup(type)->ssup_collation,
														(Datum) column, (Datum) value)));
}

/*
 * CbKeyCondCompare, of a bound of another type, where only the operator is
 * known: inside the bound or outside.
 */
static int
cb_keys_compare_operator(const CbKeyCond *cond, uintptr_t column, uintptr_t value)
{
	CbKeysType *type = cond->arg;
	bool		inside =
	DatumGetBool(FunctionCall2Coll(&type->operator, cb_keys_ssup(type)->ssup_collation,
								   (Datum) column, (Datum) value));

	return inside == (cond->kind == CB_COND_LOWER) ? 1 : -1;
}

/*
 * The order of values of two types in the column; false if the family does not
 * have it.
 */
static bool
cb_keys_compare_types(CbKeys *keys, const CbKeysType *a, Datum value_a,
					  const CbKeysType *b, Datum value_b, int *cmp)
{
	int			column = a->column;
	Oid			proc;

	if (!OidIsValid(a->type) && !OidIsValid(b->type))
	{
		*cmp = cb_keys_compare_own_values(a, value_a, value_b);
		return true;
	}
	if (keys->relating != column || keys->relating_types[0] != a->type ||
		keys->relating_types[1] != b->type)
	{
		keys->relating = -1;
		proc = cb_keys_order_proc(keys->kd, column, a->type, b->type);
		if (!OidIsValid(proc))
			return false;
		fmgr_info_cxt(proc, &keys->relate, keys->kd->ssup[column].ssup_cxt);
		keys->relating = column;
		keys->relating_types[0] = a->type;
		keys->relating_types[1] = b->type;
	}
	*cmp = cb_keys_turn(a, DatumGetInt32(FunctionCall2Coll(&keys->relate,
														   cb_keys_ssup(a)->ssup_collation,
														   value_a, value_b)));
	return true;
}

/* The relation of conditions' values (CbKeySpace). */
static bool
cb_keys_relate(void *arg, const CbKeyCond *a, int i, const CbKeyCond *b, int j,
			   int *cmp)
{
	return cb_keys_compare_types(arg, a->arg, (Datum) a->values[i], b->arg,
								 (Datum) b->values[j], cmp);
}

/* An entry's value of a column (CbKeySpace). */
static uintptr_t
cb_keys_get(void *arg, const void *entry, int column, bool *is_null)
{
	CbKeys	   *keys = arg;

	return (uintptr_t) index_getattr(unconstify(IndexTupleData *, (const IndexTupleData *) entry),
									 column + 1, keys->kd->tupdesc, is_null);
}

/* ---------- neighbours ---------- */

static inline bool
cb_keys_step(int64 value, int64 least, int64 greatest, bool up, int64 *next)
{
	if (value == (up ? greatest : least))
		return false;
	*next = up ? value + 1 : value - 1;
	return true;
}

#define CB_KEYS_NEIGHBOUR(name, get, put, least, greatest) \
static bool \
cb_keys_neighbour_##name(uintptr_t value, bool forward, uintptr_t *next) \
{ \
	int64		number; \
\
	if (!cb_keys_step(get((Datum) value), least, greatest, forward, &number)) \
		return false; \
	*next = (uintptr_t) put(number); \
	return true; \
} \
\
static bool \
cb_keys_neighbour_##name##_desc(uintptr_t value, bool forward, uintptr_t *next) \
{ \
	return cb_keys_neighbour_##name(value, !forward, next); \
}

CB_KEYS_NEIGHBOUR(int2, DatumGetInt16, Int16GetDatum, PG_INT16_MIN, PG_INT16_MAX)
CB_KEYS_NEIGHBOUR(int4, DatumGetInt32, Int32GetDatum, PG_INT32_MIN, PG_INT32_MAX)
#ifdef USE_FLOAT8_BYVAL
CB_KEYS_NEIGHBOUR(int8, DatumGetInt64, Int64GetDatum, PG_INT64_MIN, PG_INT64_MAX)
#endif

/* Sets the function that knows the next value of the column, if one does. */
static void
cb_keys_set_neighbour(const CbKeyDesc *kd, int column, CbKeyColumn *space)
{
	bool		desc = kd->ssup[column].ssup_reverse;

	space->neighbour = NULL;
	switch (kd->order_proc[column])
	{
		case F_BTINT2CMP:
			space->neighbour = desc ? cb_keys_neighbour_int2_desc : cb_keys_neighbour_int2;
			break;
		case F_BTINT4CMP:
		case F_DATE_CMP:
			space->neighbour = desc ? cb_keys_neighbour_int4_desc : cb_keys_neighbour_int4;
			break;
#ifdef USE_FLOAT8_BYVAL
		case F_BTINT8CMP:
			space->neighbour = desc ? cb_keys_neighbour_int8_desc : cb_keys_neighbour_int8;
			break;
#endif
		default:
			break;
	}
}

/* ---------- conditions ---------- */

/* What a strategy wants of a column, in its order in the index. */
static CbKeyCondKind
cb_keys_kind(StrategyNumber strategy, bool desc, bool *strict)
{
	*strict = strategy == BTLessStrategyNumber || strategy == BTGreaterStrategyNumber;
	switch (strategy)
	{
		case BTLessStrategyNumber:
		case BTLessEqualStrategyNumber:
			return desc ? CB_COND_LOWER : CB_COND_UPPER;
		case BTEqualStrategyNumber:
			return CB_COND_POINTS;
		case BTGreaterEqualStrategyNumber:
		case BTGreaterStrategyNumber:
			return desc ? CB_COND_UPPER : CB_COND_LOWER;
		default:
			elog(ERROR, "unexpected strategy number: %d", (int) strategy);
			return CB_COND_POINTS;
	}
}

/* Adds a condition to the column that is being made, the space's last. */
static CbKeyCond *
cb_keys_add_cond(CbKeys *keys, CbKeysGiven *given, CbKeyCondKind kind,
				 bool strict, bool is_null)
{
	CbKeyColumn *column = &keys->space.columns[keys->space.ncolumns - 1];
	CbKeyCond  *cond = &column->conds[column->nconds++];

	*cond = (CbKeyCond)
	{
		.kind = kind,
		.strict = strict,
		.is_null = is_null,
		.n = 1,
		.values = &given->value,
		.compare = OidIsValid(given->type.type) ? cb_keys_compare_other :
		cb_keys_compare_own,
		.arg = &given->type
	};
	return cond;
}

/* Wants what is not null: what lies beyond it. */
static void
cb_keys_add_not_null(CbKeys *keys, CbKeysGiven *given)
{
	bool		nulls_first = keys->space.columns[keys->space.ncolumns - 1].nulls_first;

	cb_keys_add_cond(keys, given, nulls_first ? CB_COND_LOWER : CB_COND_UPPER,
					 true, true);
}

/* what an array's elements are sorted by */
typedef struct CbKeysSort
{
	CbKeys	   *keys;
	CbKeysType *type;
} CbKeysSort;

static int
cb_keys_compare_elements(const void *a, const void *b, void *arg)
{
	CbKeysSort *sort = arg;
	int			cmp;

	if (!OidIsValid(sort->type->type))
		return cb_keys_compare_own_values(sort->type, *(const Datum *) a,
										  *(const Datum *) b);
	if (!cb_keys_compare_types(sort->keys, sort->type, *(const Datum *) a,
							   sort->type, *(const Datum *) b, &cmp))
		cb_keys_report_no_order(sort->keys->kd, sort->type->column,
								sort->type->type, sort->type->type);
	return cmp;
}

/* Are the key's values, if not null, numbers of the first column, as CbKeyDesc has it? */
static inline bool
cb_keys_are_numbers(const CbKeys *keys, const CbKeysGiven *given)
{
	return keys->kd->lead_kind == CB_LEAD_INT64 && given->type.column == 0 &&
		!OidIsValid(given->type.type);
}

static int
cb_keys_compare_numbers(const void *a, const void *b, void *arg)
{
	int64		x = DatumGetInt64(*(const Datum *) a);
	int64		y = DatumGetInt64(*(const Datum *) b);

	return (x > y) - (x < y);
}

/*
 * The elements of an array that are not null, in the column's order, each
 * once; returns how many.  They live as long as the scan's keys.
 */
static int
cb_keys_read_array(CbKeys *keys, CbKeysGiven *given, Datum value, Datum **elements)
{
	ArrayType  *array = DatumGetArrayTypeP(value);
	CbKeysSort	sort = {keys, &given->type};
	qsort_arg_comparator compare = cb_keys_are_numbers(keys, given) ?
		cb_keys_compare_numbers : cb_keys_compare_elements;
	int			column = given->type.column;
	bool	   *nulls;
	int			nall;
	int			n = 0;
	int16		len;
	bool		by_value;
	char		align;

	get_typlenbyvalalign(ARR_ELEMTYPE(array), &len, &by_value, &align);
	deconstruct_array(array, ARR_ELEMTYPE(array), len, by_value, align,
					  elements, &nulls, &nall);
	for (int i = 0; i < nall; i++)
	{
		if (nulls[i])
			continue;
		(*elements)[n] = (*elements)[i];
		(void) cb_key_widen_integer(keys->kd->order_proc[column], given->subtype,
									&(*elements)[n]);
		n++;
	}
	if (n < 2)
		return n;
	qsort_arg(*elements, n, sizeof(Datum), compare, &sort);
	return qunique_arg(*elements, n, sizeof(Datum), compare, &sort);
}

/*
 * Sets a condition's values from an array: of a bound the one that leaves
 * most.  False if the array has none.
 */
static bool
cb_keys_set_array(CbKeys *keys, CbKeysGiven *given, CbKeyCond *cond, Datum value,
				  MemoryContext cxt)
{
	MemoryContext oldcxt;
	Datum	   *elements;
	int			n;

	if (keys->array_cxt == NULL)
		keys->array_cxt = AllocSetContextCreate(cxt, "cachebatch scan arrays",
												ALLOCSET_SMALL_SIZES);
	oldcxt = MemoryContextSwitchTo(keys->array_cxt);
	n = cb_keys_read_array(keys, given, value, &elements);
	MemoryContextSwitchTo(oldcxt);
	if (n == 0)
		return false;
	if (cond->kind == CB_COND_POINTS)
	{
		cond->values = (uintptr_t *) elements;
		cond->n = n;
	}
	else
		given->value = elements[cond->kind == CB_COND_LOWER ? 0 : n - 1];
	return true;
}

/* Sets the value of a key that is no array and not null. */
static inline void
cb_keys_set_value(CbKeys *keys, CbKeysGiven *given, ScanKey key)
{
	given->value = key->sk_argument;
	(void) cb_key_widen_integer(keys->kd->order_proc[key->sk_attno - 1],
								given->subtype, &given->value);
}

/* Adds what a scan key wants of its column; false if nothing can satisfy it. */
static bool
cb_keys_add(CbKeys *keys, CbKeysGiven *given, ScanKey key, MemoryContext cxt)
{
	bool		desc = cb_keys_ssup(&given->type)->ssup_reverse;
	CbKeyCond  *cond;
	CbKeyCondKind kind;
	bool		strict;

	if ((key->sk_flags & SK_SEARCHNULL) != 0)
	{
		cb_keys_add_cond(keys, given, CB_COND_POINTS, false, true);
		return true;
	}
	if ((key->sk_flags & SK_SEARCHNOTNULL) != 0)
	{
		cb_keys_add_not_null(keys, given);
		return true;
	}
	if ((key->sk_flags & SK_ISNULL) != 0)
		return false;

	kind = cb_keys_kind(key->sk_strategy, desc, &strict);
	cond = cb_keys_add_cond(keys, given, kind, strict, false);
	if (given->type.operator.fn_oid != key->sk_func.fn_oid)
		given->type.operator = key->sk_func;
	if (kind != CB_COND_POINTS)
		cb_keys_add_not_null(keys, given);
	if (!cb_keys_is_compared(&given->type))
	{
		if (kind == CB_COND_POINTS)
			cb_keys_report_no_order(keys->kd, key->sk_attno - 1, InvalidOid, key->sk_subtype);
		cond->compare = cb_keys_compare_operator;
	}
	if ((key->sk_flags & SK_SEARCHARRAY) != 0)
		return cb_keys_set_array(keys, given, cond, key->sk_argument, cxt);
	cb_keys_set_value(keys, given, key);
	return true;
}

/* Begins the columns up to this one; those in between have no condition. */
static void
cb_keys_begin_column(CbKeys *keys, int column, CbKeyCond *conds)
{
	CbKeySpace *space = &keys->space;

	if (column + 1 < space->ncolumns)
		elog(ERROR, "scan keys must be in the order of the index's columns");
	while (space->ncolumns <= column)
	{
		CbKeyColumn *next = &space->columns[space->ncolumns];

		next->nulls_first = keys->kd->ssup[space->ncolumns].ssup_nulls_first;
		next->nconds = 0;
		next->conds = conds;
		cb_keys_set_neighbour(keys->kd, space->ncolumns, next);
		space->ncolumns++;
	}
}

/* The type of a scan key, which mostly is that of the last time. */
static void
cb_keys_set_type(CbKeys *keys, CbKeysGiven *given, ScanKey key, MemoryContext cxt)
{
	int			column = key->sk_attno - 1;
	Datum		any = (Datum) 0;
	Oid			oid = key->sk_subtype;

	if (given->type.kd != NULL && given->subtype == oid &&
		given->type.column == column)
		return;
	given->type.kd = NULL;
	given->subtype = oid;
	if (cb_key_widen_integer(keys->kd->order_proc[column], oid, &any))
		oid = InvalidOid;
	cb_keys_init_type(&given->type, keys->kd, column, oid, cxt);
}

/* Memory for so many scan keys, and for those of scans to come. */
static void
cb_keys_reserve(CbKeys *keys, int n, MemoryContext own_cxt)
{
	if (keys->room > 0)
	{
		keys->room = 0;
		pfree(keys->given);
		pfree(keys->conds);
	}
	keys->given = MemoryContextAlloc(own_cxt, sizeof(CbKeysGiven) * n);
	keys->conds = MemoryContextAlloc(own_cxt, sizeof(CbKeyCond) * 2 * n);
	keys->room = n;
}

/*
 * Before the first of a scan's keys are set, which are n.  *keys has been another
 * scan's, or its room is 0; own_cxt lives as long as it.  The key description lives
 * as long as the scan.
 */
void
cb_keys_init(CbKeys *keys, CbKeyDesc *kd, int n, MemoryContext own_cxt)
{
	if (n > keys->room)
		cb_keys_reserve(keys, n, own_cxt);
	for (int i = 0; i < n; i++)
		keys->given[i].type.kd = NULL;
	keys->kd = kd;
	keys->ngiven = n;
	keys->plain = false;
	keys->numbers = NULL;
	keys->array_cxt = NULL;
	keys->relating = -1;
	keys->space.ncolumns = 0;
	keys->space.get = cb_keys_get;
	keys->space.relate = cb_keys_relate;
	keys->space.arg = keys;
}

/* Does the key want its column to be equal to one value? */
static inline bool
cb_keys_is_plain(ScanKey key)
{
	return key->sk_flags == 0 && key->sk_strategy == BTEqualStrategyNumber;
}

/*
 * Do the keys differ from those of the last time, which were plain, in values
 * only?
 */
static inline bool
cb_keys_are_as_before(const CbKeys *keys, ScanKey given, int n)
{
	if (!keys->plain)
		return false;
	for (int i = 0; i < n; i++)
	{
		const CbKeysGiven *last = &keys->given[i];

		if (!cb_keys_is_plain(&given[i]) || given[i].sk_subtype != last->subtype ||
			given[i].sk_attno != last->type.column + 1 ||
			given[i].sk_func.fn_oid != last->type.operator.fn_oid)
			return false;
	}
	return true;
}

/*
 * Takes the scan's keys, in the order of the index's columns, in place of
 * those from before.  Values passed by reference stay the caller's, for as
 * long as the keys are; what else is needed lives in cxt.  False if nothing can
 * match.  Comparison functions run; raises an error if an operator family lacks
 * one.
 */
bool
cb_keys_set(CbKeys *keys, ScanKey given, int n, MemoryContext cxt)
{
	bool		plain = true;

	Assert(n == keys->ngiven);
	if (cb_keys_are_as_before(keys, given, n))
	{
		for (int i = 0; i < n; i++)
			cb_keys_set_value(keys, &keys->given[i], &given[i]);
		return true;
	}
	if (keys->array_cxt != NULL)
		MemoryContextReset(keys->array_cxt);
	keys->space.ncolumns = 0;
	keys->plain = false;
	keys->numbers = NULL;
	for (int i = 0; i < n; i++)
	{
		plain = plain && cb_keys_is_plain(&given[i]) &&
			(i == 0 || given[i].sk_attno > given[i - 1].sk_attno);
		cb_keys_begin_column(keys, given[i].sk_attno - 1, keys->conds + 2 * i);
		cb_keys_set_type(keys, &keys->given[i], &given[i], cxt);
		if (!cb_keys_add(keys, &keys->given[i], &given[i], cxt))
			return false;
	}
	keys->plain = plain;
	if (!cb_keyspace_reduce(&keys->space))
		return false;
	if (n == 1 && cb_keys_are_numbers(keys, &keys->given[0]) &&
		keys->conds[0].kind == CB_COND_POINTS && !keys->conds[0].is_null)
		keys->numbers = &keys->conds[0];
	return true;
}

/* ---------- bounds ---------- */

/* Is there a comparison of the part's value with entries? */
static bool
cb_keys_can_compare(const CbKeyPart *part)
{
	return part->source != CB_PART_COND || part->cond->is_null ||
		cb_keys_is_compared(part->cond->arg);
}

/* Can the place be searched for, or one before it that is as good? */
bool
cb_keys_can_bound(const CbKeyPlace *place)
{
	return place->nparts == 0 || cb_keys_can_compare(&place->parts[0]);
}

/* Is the column in the order of comparisons with the condition's values? */
bool
cb_keys_is_ordered(const CbKeyCond *cond)
{
	return cond->is_null || ((CbKeysType *) cond->arg)->ordered;
}

/*
 * The same of all values of a place: it is certain to be searched for in the
 * index's order.
 */
bool
cb_keys_place_is_ordered(const CbKeyPlace *place)
{
	for (int i = 0; i < place->nparts; i++)
	{
		const CbKeyPart *part = &place->parts[i];

		if (part->source == CB_PART_COND && !cb_keys_is_ordered(part->cond))
			return false;
	}
	return true;
}

/* Is all that lies between two wanted entries wanted? */
bool
cb_keys_are_interval(const CbKeys *keys)
{
	const CbKeySpace *space = &keys->space;

	for (int c = 0; c < space->ncolumns; c++)
	{
		const CbKeyColumn *column = &space->columns[c];

		for (int i = 0; i < column->nconds; i++)
		{
			if (!cb_keys_is_ordered(&column->conds[i]))
				return false;
		}
	}
	return cb_keyspace_is_interval(space);
}

/* A key of a bound, for one part of a place. */
static void
cb_keys_make_bound_key(CbKeys *keys, const CbKeyPart *part, int column,
					   IndexTuple entry, CbBoundKey *key)
{
	CbKeysType *type = part->source == CB_PART_COND ? part->cond->arg : NULL;

	key->is_null = type != NULL && part->cond->is_null;
	key->compare = type != NULL && OidIsValid(type->type) ? &type->compare : NULL;
	if (part->source == CB_PART_ENTRY)
		key->value = index_getattr(entry, column + 1, keys->kd->tupdesc,
								   &key->is_null);
	else
		key->value = (Datum) part->value;
}

/*
 * The bound of a place, which lies in this direction of the entry that its
 * parts speak of; NULL, if there is none.  Its keys are in bound_keys, which
 * has room for INDEX_MAX_KEYS; they point to the entry and to values of the
 * scan's keys.  From a value on, other than the first, for which the operator
 * family has no comparison, the bound is nearer; if it is the first that raises
 * an error.
 */
void
cb_keys_make_bound(CbKeys *keys, const CbKeyPlace *place, IndexTuple entry,
				   ScanDirection dir, CbBoundKey *bound_keys, CbBound *bound)
{
	int			n = 0;

	memset(bound, 0, sizeof(CbBound));
	if (place->nparts == 0)
	{
		bound->kind = ScanDirectionIsForward(dir) ? CB_BOUND_MIN : CB_BOUND_MAX;
		return;
	}
	for (; n < place->nparts && cb_keys_can_compare(&place->parts[n]); n++)
		cb_keys_make_bound_key(keys, &place->parts[n], n, entry, &bound_keys[n]);
	if (n == 0)
		cb_keys_report_no_order(keys->kd, 0, InvalidOid,
								((CbKeysType *) place->parts[0].cond->arg)->type);
	bound->kind = CB_BOUND_KEYS;
	bound->after = n < place->nparts ? ScanDirectionIsBackward(dir) : place->after;
	bound->nkeys = n;
	bound->keys = bound_keys;
	cb_bound_set_lead(keys->kd, bound);
}
