/*
 * keyspace_test.c - where a scan finds the next combination of values that it
 * wants, compared with a walk through all combinations there are.
 *
 * Values are small integers.  Conditions use multiples of 4, and entries even
 * numbers, so that between any two values that differ there is another one;
 * and both stay away from the least and the greatest, but for entries where
 * neighbours are known.
 */
#include "core/cb_keyspace.h"
#include "unit.h"

#define NCOLUMNS 4
#define NCONDS 4
#define NBOUNDS 3				/* values of conditions: 0, 4, 8 */
#define LEAST (-1)
#define GREATEST 9
#define NVALUES (GREATEST - LEAST + 2)	/* and null */
#define NOTHING INT32_MIN		/* null, among values */
#define NTYPES 2

static uint64_t seed = 4711;

/* a case: the index's columns, and conditions as they were before reducing */
static struct
{
	int			ncolumns;
	bool		descending[NCOLUMNS];
	bool		types_differ;	/* values of different types: not comparable */
	CbKeySpace	space;
	CbKeyCond	conds[NCOLUMNS][NCONDS];
	uintptr_t	values[NCOLUMNS][NCONDS][NVALUES];
	CbKeyColumn asked[NCOLUMNS];
	CbKeyCond	asked_conds[NCOLUMNS][NCONDS];
	uintptr_t	asked_values[NCOLUMNS][NCONDS][NVALUES];
	bool		reduced;		/* are all conditions comparable? */
	bool		exact;			/* and no neighbours known? */
} now;

static inline int32_t
as_int(uintptr_t value)
{
	return (int32_t) value;
}

static int
type_of(const CbKeyCond *cond)
{
	return (int) (intptr_t) cond->arg / 2;
}

static int
compare_ascending(const CbKeyCond *cond, uintptr_t column, uintptr_t value)
{
	int			cmp = (as_int(column) > as_int(value)) - (as_int(column) < as_int(value));

	return (intptr_t) cond->arg % 2 != 0 ? -cmp : cmp;
}

static bool
relate(void *arg, const CbKeyCond *a, int i, const CbKeyCond *b, int j, int *cmp)
{
	(void) arg;
	if (now.types_differ && type_of(a) != type_of(b))
		return false;
	*cmp = compare_ascending(a, a->values[i], b->values[j]);
	return true;
}

static uintptr_t
get(void *arg, const void *entry, int column, bool *is_null)
{
	int32_t		value = ((const int32_t *) entry)[column];

	(void) arg;
	*is_null = value == NOTHING;
	return *is_null ? 0xDEAD : (uintptr_t) value;
}

static bool
neighbour_ascending(uintptr_t value, bool forward, uintptr_t *next)
{
	*next = (uintptr_t) (as_int(value) + (forward ? 1 : -1));
	return as_int(value) != (forward ? GREATEST : LEAST);
}

static bool
neighbour_descending(uintptr_t value, bool forward, uintptr_t *next)
{
	return neighbour_ascending(value, !forward, next);
}

/* ---------- the naive evaluator ---------- */

/* The order of two values of a column. */
static int
compare_values(int c, int32_t a, int32_t b)
{
	int			cmp = (a > b) - (a < b);

	if (a == NOTHING || b == NOTHING)
		return a == b ? 0 : (a == NOTHING) == now.space.columns[c].nulls_first ? -1 : 1;
	return now.descending[c] ? -cmp : cmp;
}

/* By the first n columns. */
static int
compare_entries(const int32_t *a, const int32_t *b, int n)
{
	int			cmp = 0;

	for (int c = 0; c < n && cmp == 0; c++)
		cmp = compare_values(c, a[c], b[c]);
	return cmp;
}

static bool
cond_holds(int c, const CbKeyCond *cond, int32_t value)
{
	int32_t		bound = cond->is_null ? NOTHING : as_int(cond->values[0]);
	int			cmp = compare_values(c, value, bound);

	if (cond->kind == CB_COND_POINTS)
	{
		if (cond->is_null || value == NOTHING)
			return cond->is_null && value == NOTHING;
		for (int i = 0; i < cond->n; i++)
		{
			if (as_int(cond->values[i]) == value)
				return true;
		}
		return false;
	}
	if (cmp == 0)
		return !cond->strict;
	return (cmp > 0) == (cond->kind == CB_COND_LOWER);
}

static bool
is_wanted(const int32_t *entry)
{
	for (int c = 0; c < now.ncolumns; c++)
	{
		for (int i = 0; i < now.asked[c].nconds; i++)
		{
			if (!cond_holds(c, &now.asked[c].conds[i], entry[c]))
				return false;
		}
	}
	return true;
}

/* The value at a place of a column's order. */
static int32_t
nth_value(int c, int n)
{
	bool		nulls_first = now.space.columns[c].nulls_first;

	if (n == (nulls_first ? 0 : NVALUES - 1))
		return NOTHING;
	n -= nulls_first;
	return now.descending[c] ? GREATEST - n : LEAST + n;
}

/*
 * The wanted combination next to a boundary, which is left of the entries that
 * equal entry in its first n columns, or right of them if "after".
 */
static bool
find_next(const int32_t *entry, int n, bool after, bool forward, int32_t *found)
{
	int			total = 1;

	for (int c = 0; c < now.ncolumns; c++)
		total *= NVALUES;
	for (int k = 0; k < total; k++)
	{
		int			rest = forward ? k : total - 1 - k;
		int			cmp;

		for (int c = now.ncolumns - 1; c >= 0; c--, rest /= NVALUES)
			found[c] = nth_value(c, rest % NVALUES);
		cmp = compare_entries(found, entry, n);
		if (cmp == 0)
			cmp = after ? -1 : 1;
		if ((cmp > 0) == forward && is_wanted(found))
			return true;
	}
	return false;
}

/* ---------- a random case ---------- */

static void
add_cond(int c, CbKeyCondKind kind, bool strict, bool is_null)
{
	CbKeyColumn *column = &now.space.columns[c];
	int			i = column->nconds++;
	CbKeyCond  *cond = &now.conds[c][i];
	uint32_t	subset = 1 + unit_below(&seed, (1 << NBOUNDS) - 1);

	memset(cond, 0, sizeof(*cond));
	cond->kind = kind;
	cond->strict = strict;
	cond->is_null = is_null;
	cond->values = now.values[c][i];
	cond->compare = compare_ascending;
	cond->arg = (void *) (intptr_t) (2 * unit_below(&seed, NTYPES) + now.descending[c]);
	if (kind != CB_COND_POINTS || is_null)
		subset = 1u << unit_below(&seed, NBOUNDS);
	for (int bit = 0; bit < NBOUNDS; bit++)
	{
		int			nth = now.descending[c] ? NBOUNDS - 1 - bit : bit;

		if ((subset >> nth & 1) != 0)
			cond->values[cond->n++] = (uintptr_t) (4 * nth);
	}
}

/* What an operator other than equality wants is not null. */
static void
add_not_null(int c)
{
	add_cond(c, now.space.columns[c].nulls_first ? CB_COND_LOWER : CB_COND_UPPER,
			 true, true);
}

static void
make_column(int c)
{
	CbKeyColumn *column = &now.space.columns[c];
	int			n = (int) unit_below(&seed, NCONDS);
	bool		bounded = false;

	memset(column, 0, sizeof(*column));
	now.descending[c] = unit_below(&seed, 2) != 0;
	column->nulls_first = unit_below(&seed, 2) != 0;
	column->conds = now.conds[c];
	if (unit_below(&seed, 3) == 0)
		column->neighbour = now.descending[c] ? neighbour_descending : neighbour_ascending;
	for (int i = 0; i < n; i++)
	{
		uint32_t	kind = unit_below(&seed, 8);

		if (kind < 4)
			add_cond(c, CB_COND_POINTS, false, kind == 0);
		else
			add_cond(c, kind < 6 ? CB_COND_LOWER : CB_COND_UPPER, kind % 2 != 0, false);
		bounded |= kind >= 4;
	}
	if (bounded || unit_below(&seed, 4) == 0)
	{
		if (column->nconds == NCONDS)
			column->nconds--;
		add_not_null(c);
	}
}

static void
make_case(int ncolumns)
{
	now.ncolumns = now.space.ncolumns = ncolumns;
	now.space.get = get;
	now.space.relate = relate;
	now.types_differ = unit_below(&seed, 3) == 0;
	now.exact = !now.types_differ;
	for (int c = 0; c < ncolumns; c++)
	{
		make_column(c);
		now.exact &= now.space.columns[c].neighbour == NULL;
		now.asked[c] = now.space.columns[c];
		now.asked[c].conds = now.asked_conds[c];
		memcpy(now.asked_conds[c], now.conds[c], sizeof(now.conds[c]));
		memcpy(now.asked_values[c], now.values[c], sizeof(now.values[c]));
		for (int i = 0; i < now.asked[c].nconds; i++)
			now.asked_conds[c][i].values = now.asked_values[c][i];
	}
}

/* ---------- checks ---------- */

/* A place's values, of the entry's first columns and others. */
static void
read_place(const CbKeyPlace *place, const int32_t *entry, int32_t *values)
{
	for (int i = 0; i < place->nparts; i++)
	{
		const CbKeyPart *part = &place->parts[i];

		if (part->source == CB_PART_ENTRY)
			values[i] = entry[i];
		else if (part->source == CB_PART_COND && part->cond->is_null)
			values[i] = NOTHING;
		else
			values[i] = as_int(part->value);
	}
}

/*
 * Nothing wanted lies between a boundary and the place; if exact, the place is
 * at the next wanted combination.
 */
static void
check_place(const CbKeyPlace *place, const int32_t *entry, int n, bool after,
			bool forward)
{
	int32_t		at[NCOLUMNS];
	int32_t		wanted[NCOLUMNS];
	int32_t		beyond[NCOLUMNS];
	bool		strict = place->nparts > 0 && place->after == forward;
	bool		found = find_next(entry, n, after, forward, wanted);

	read_place(place, entry, at);
	CHECK(find_next(at, place->nparts, place->after, forward, beyond) == found);
	CHECK(!found || compare_entries(beyond, wanted, now.ncolumns) == 0);
	if (found && now.exact)
		CHECK(compare_entries(at, wanted, place->nparts - strict) == 0);
	CHECK(found || !now.exact);
}

static void
check_entry(const int32_t *entry, int n, bool forward)
{
	bool		after = !forward && n == now.ncolumns;
	CbKeyPlace	place;
	CbKeyAnswer answer = cb_keyspace_test(&now.space, entry, n, forward, &place);
	int32_t		found[NCOLUMNS];
	int32_t		at[NCOLUMNS];
	int			cmp;

	if (n == now.ncolumns)
		CHECK((answer == CB_KEY_MATCH) == is_wanted(entry));
	if (answer == CB_KEY_END)
		CHECK(!find_next(entry, n, after, forward, found));
	if (answer != CB_KEY_SKIP)
		return;
	check_place(&place, entry, n, after, forward);
	read_place(&place, entry, at);
	cmp = compare_entries(at, entry, n < place.nparts ? n : place.nparts);
	CHECK(cmp != 0 ? (cmp > 0) == forward : place.after == forward || n < place.nparts);
}

static void
check_case(int nentries)
{
	static const int32_t none[NCOLUMNS];
	int32_t		found[NCOLUMNS];
	CbKeyPlace	place;

	if (!cb_keyspace_reduce(&now.space))
	{
		CHECK(!find_next(none, 0, false, true, found));
		return;
	}
	for (int forward = 0; forward <= 1; forward++)
	{
		cb_keyspace_start(&now.space, forward, &place);
		check_place(&place, none, 0, !forward, forward);
	}
	for (int k = 0; k < nentries; k++)
	{
		int32_t		entry[NCOLUMNS];
		int			n = unit_below(&seed, 4) == 0 ?
			1 + (int) unit_below(&seed, (uint32_t) now.ncolumns) : now.ncolumns;

		for (int c = 0; c < now.ncolumns; c++)
			entry[c] = unit_below(&seed, 8) == 0 ? NOTHING :
				now.space.columns[c].neighbour != NULL && unit_below(&seed, 4) == 0 ?
				(unit_below(&seed, 2) == 0 ? LEAST : GREATEST) :
				2 * (int32_t) unit_below(&seed, 5);
		check_entry(entry, n, unit_below(&seed, 2) != 0);
	}
}

static void
test_one_column(void)
{
	for (int i = 0; i < 20000; i++)
	{
		make_case(1);
		check_case(20);
	}
}

static void
test_two_columns(void)
{
	for (int i = 0; i < 4000; i++)
	{
		make_case(2);
		check_case(20);
	}
}

static void
test_more_columns(void)
{
	for (int i = 0; i < 150; i++)
	{
		make_case(3);
		check_case(10);
	}
	for (int i = 0; i < 15; i++)
	{
		make_case(4);
		check_case(6);
	}
}

/*
 * A scan that goes by the answers comes to all that is wanted, in the order of
 * the index, and to few other places.
 */
static void
walk(bool forward)
{
	int32_t		entry[NCOLUMNS];
	int32_t		at[NCOLUMNS];
	CbKeyPlace	place;
	CbKeyAnswer answer = CB_KEY_SKIP;
	int			nwanted = 0;
	int			nskips = 0;
	int			expected = 0;

	for (int k = 0; k < NVALUES * NVALUES; k++)
	{
		for (int c = 0; c < 2; c++)
			entry[c] = nth_value(c, c == 0 ? k / NVALUES : k % NVALUES);
		expected += is_wanted(entry);
	}
	cb_keyspace_start(&now.space, forward, &place);
	for (int k = 0; k < NVALUES * NVALUES && answer != CB_KEY_END; k++)
	{
		int			n = forward ? k : NVALUES * NVALUES - 1 - k;

		entry[0] = nth_value(0, n / NVALUES);
		entry[1] = nth_value(1, n % NVALUES);
		if (answer == CB_KEY_SKIP)
		{
			int			cmp = compare_entries(entry, at, place.nparts);

			if (k == 0)
			{
				int32_t		none[NCOLUMNS] = {0};

				read_place(&place, none, at);
				cmp = compare_entries(entry, at, place.nparts);
			}
			if (cmp == 0)
				cmp = place.after ? -1 : 1;
			if ((cmp > 0) != forward)
				continue;
			nskips++;
		}
		answer = cb_keyspace_test(&now.space, entry, 2, forward, &place);
		if (answer == CB_KEY_SKIP)
			read_place(&place, entry, at);
		nwanted += answer == CB_KEY_MATCH;
	}
	CHECK(nwanted == expected);
	CHECK(now.types_differ || nskips <= 2 * NVALUES + nwanted);
}

/*
 * Between two wanted combinations nothing is left out of an interval, and
 * there are intervals of two columns.
 */
static void
test_intervals(void)
{
	int			nintervals = 0;

	for (int i = 0; i < 20000; i++)
	{
		int32_t		entry[NCOLUMNS];
		int			nruns = 0;
		bool		last = false;

		make_case(2);
		if (!cb_keyspace_reduce(&now.space))
			continue;
		for (int k = 0; k < NVALUES * NVALUES; k++)
		{
			bool		wanted;

			for (int c = 0; c < 2; c++)
				entry[c] = nth_value(c, c == 0 ? k / NVALUES : k % NVALUES);
			wanted = is_wanted(entry);
			nruns += wanted && !last;
			last = wanted;
		}
		if (!cb_keyspace_is_interval(&now.space))
			continue;
		CHECK(nruns <= 1);
		nintervals += now.space.columns[1].nconds > 0;
	}
	CHECK(nintervals > 100);
}

static void
test_walks(void)
{
	for (int i = 0; i < 20000; i++)
	{
		make_case(2);
		if (!cb_keyspace_reduce(&now.space))
			continue;
		walk(true);
		walk(false);
	}
}

int
main(void)
{
	unit_run("keyspace: one column", test_one_column);
	unit_run("keyspace: two columns", test_two_columns);
	unit_run("keyspace: three and four columns", test_more_columns);
	unit_run("keyspace: scans", test_walks);
	unit_run("keyspace: intervals", test_intervals);
	return unit_status;
}
