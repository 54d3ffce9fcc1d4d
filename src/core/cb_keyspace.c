/*-------------------------------------------------------------------------
 *
 * cb_keyspace.c
 *	  See cb_keyspace.h.
 *
 * Forward, an entry is looked at from its first column on.  The first column
 * whose value is not wanted decides: if a wanted value comes after it, the
 * next place has that, behind the entry's values of the columns before; if
 * none does, one of the columns before has to move on, the last that can.
 * Backward is the same with all orders turned round.
 *
 * What remains after cb_keyspace_reduce() of a column's conditions is mostly
 * one set of points, or a bound on each side.  Conditions that cannot be
 * compared with each other stay beside each other; then a place may be
 * nearer than the next wanted combination, but is never beyond it.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_keyspace.h"

#include <stddef.h>
#include <string.h>

#include "core/cb_assert.h"

/* ---------- conditions on a column's value ---------- */

typedef enum CbKeySide
{
	CB_SIDE_WANTED,
	CB_SIDE_BEFORE,				/* a wanted one comes in the direction */
	CB_SIDE_BEYOND				/* none does */
} CbKeySide;

/* what is known of an entry's value of a column */
typedef struct CbKeyValue
{
	uintptr_t	value;
	bool		is_null;
	bool		is_last;		/* no other one is wanted in the direction */
	const CbKeyCond *points;	/* a condition that wants it as ... */
	int			point;			/* ... this one of its points */
} CbKeyValue;

/* The order of two values of which one at least is null. */
static int
cb_key_compare_nulls(bool a_null, bool b_null, bool nulls_first)
{
	if (a_null && b_null)
		return 0;
	return a_null == nulls_first ? -1 : 1;
}

static inline int
cb_key_compare(const CbKeyCond *cond, int i, const CbKeyValue *value,
			   bool nulls_first)
{
	if (value->is_null || cond->is_null)
		return cb_key_compare_nulls(value->is_null, cond->is_null, nulls_first);
	return cond->compare(cond, value->value, cond->values[i]);
}

/*
 * The number of points that lie before the value in the column's order, and
 * whether the next one is equal.  Mostly the value is the one that was found
 * last, or lies between that and one beside it.
 */
static int
cb_key_find_point(CbKeyCond *cond, const CbKeyValue *value, bool nulls_first,
				  bool *equal)
{
	int			low = 0;
	int			high = cond->n;
	int			i = cond->near;

	*equal = false;
	for (int step = 1; low < high; step++)
	{
		int			cmp = cb_key_compare(cond, i, value, nulls_first);

		if (cmp == 0)
		{
			*equal = true;
			low = i;
			break;
		}
		if (cmp > 0)
			low = i + 1;
		else
			high = i;
		i = step > 1 ? low + (high - low) / 2 : cmp > 0 ? i + 1 : i - 1;
	}
	cond->near = low < cond->n ? low : cond->n - 1;
	return low;
}

/* On which side of the condition's points does the value lie? */
static CbKeySide
cb_key_side_of_points(CbKeyCond *cond, CbKeyValue *value, bool nulls_first,
					  bool forward, int *next)
{
	bool		equal;
	int			i = cb_key_find_point(cond, value, nulls_first, &equal);

	*next = forward ? i : i - 1;
	if (equal)
	{
		value->points = cond;
		value->point = i;
		return CB_SIDE_WANTED;
	}
	return *next >= 0 && *next < cond->n ? CB_SIDE_BEFORE : CB_SIDE_BEYOND;
}

/* On which side of the condition does the value lie?  *next: see below. */
static CbKeySide
cb_key_side(CbKeyCond *cond, CbKeyValue *value, bool nulls_first, bool forward,
			int *next)
{
	bool		lower = cond->kind == CB_COND_LOWER;
	int			cmp;

	if (cond->kind == CB_COND_POINTS)
		return cb_key_side_of_points(cond, value, nulls_first, forward, next);

	*next = 0;
	cmp = cb_key_compare(cond, 0, value, nulls_first);
	if (cmp == 0 && !cond->strict)
		value->is_last |= lower != forward;
	if (cmp == 0 ? !cond->strict : (cmp > 0) == lower)
		return CB_SIDE_WANTED;
	return lower == forward ? CB_SIDE_BEFORE : CB_SIDE_BEYOND;
}

/*
 * On which side of what the column wants does the value lie?  If before, *cond
 * and *next are the condition and the place of its value that comes next.
 */
static CbKeySide
cb_key_side_of_column(CbKeyColumn *column, CbKeyValue *value, bool forward,
					  CbKeyCond **cond, int *next)
{
	CbKeySide	found = CB_SIDE_WANTED;

	value->points = NULL;
	value->is_last = false;
	for (int i = 0; i < column->nconds; i++)
	{
		int			place;
		CbKeySide	side = cb_key_side(&column->conds[i], value,
									   column->nulls_first, forward, &place);

		if (side == CB_SIDE_BEYOND)
			return side;
		if (side == CB_SIDE_BEFORE && found == CB_SIDE_WANTED)
		{
			found = side;
			*cond = &column->conds[i];
			*next = place;
		}
	}
	return found;
}

/* ---------- places ---------- */

/*
 * Adds the value of a condition with which a place goes on.  False if no
 * other column can follow: the value itself is not wanted.
 */
static bool
cb_key_add_cond(CbKeyPlace *place, const CbKeyCond *cond, int i, bool forward)
{
	place->parts[place->nparts++] = (CbKeyPart) {CB_PART_COND, cond, i, cond->values[i]};
	if (cond->kind == CB_COND_POINTS || !cond->strict)
		return true;
	place->after = forward;
	return false;
}

/* The condition with which a scan in this direction begins, or NULL. */
static const CbKeyCond *
cb_key_first_cond(const CbKeyColumn *column, bool forward)
{
	CbKeyCondKind kind = forward ? CB_COND_LOWER : CB_COND_UPPER;

	for (int i = 0; i < column->nconds; i++)
	{
		if (column->conds[i].kind == CB_COND_POINTS || column->conds[i].kind == kind)
			return &column->conds[i];
	}
	return NULL;
}

/* Adds the first wanted values of the columns from place->nparts on. */
static void
cb_key_add_first(const CbKeySpace *space, bool forward, CbKeyPlace *place)
{
	place->after = !forward;
	while (place->nparts < space->ncolumns)
	{
		const CbKeyCond *cond =
			cb_key_first_cond(&space->columns[place->nparts], forward);

		if (cond == NULL ||
			!cb_key_add_cond(place, cond, forward ? 0 : cond->n - 1, forward))
			return;
	}
}

static void
cb_key_begin_place(CbKeyPlace *place, int nentry)
{
	for (int i = 0; i < nentry; i++)
		place->parts[i].source = CB_PART_ENTRY;
	place->nparts = nentry;
}

/*
 * The place where a scan in this direction begins: nothing before it is
 * wanted.  No part is of an entry.
 */
void
cb_keyspace_start(const CbKeySpace *space, bool forward, CbKeyPlace *place)
{
	place->nparts = 0;
	cb_key_add_first(space, forward, place);
}

/* The same where the first column has point i of its points. */
void
cb_keyspace_go_to_point(const CbKeySpace *space, const CbKeyCond *points, int i,
						bool forward, CbKeyPlace *place)
{
	place->nparts = 0;
	(void) cb_key_add_cond(place, points, i, forward);
	cb_key_add_first(space, forward, place);
}

/*
 * The place of the column's next wanted value beyond that of the entry, which
 * is wanted; false if there is none.
 */
static bool
cb_key_move_on(const CbKeySpace *space, int c, const CbKeyValue *value,
			   bool forward, CbKeyPlace *place)
{
	const CbKeyColumn *column = &space->columns[c];
	uintptr_t	next;

	if (value->is_last || (value->points == NULL && value->is_null &&
						   column->nulls_first != forward))
		return false;
	cb_key_begin_place(place, c);
	if (value->points != NULL)
	{
		int			i = value->point + (forward ? 1 : -1);

		if (i < 0 || i >= value->points->n)
			return false;
		(void) cb_key_add_cond(place, value->points, i, forward);
	}
	else if (column->neighbour != NULL && !value->is_null &&
			 column->neighbour(value->value, forward, &next))
		place->parts[place->nparts++] = (CbKeyPart) {CB_PART_VALUE, NULL, 0, next};
	else
	{
		place->parts[place->nparts++].source = CB_PART_ENTRY;
		place->after = forward;
		return true;
	}
	cb_key_add_first(space, forward, place);
	return true;
}

/*
 * Is the entry wanted, and if not, where does the next one lie that may be, in
 * this direction?  Only its first columns are looked at, ncolumns or fewer; of
 * a separator, which stands for a boundary, those that it has.  MATCH then
 * says that nothing is known against what begins there.
 *
 * SKIP: the place is beyond the entry, and nothing wanted lies between them.
 * With other answers *place says nothing.
 */
CbKeyAnswer
cb_keyspace_test(CbKeySpace *space, const void *entry, int ncolumns,
				 bool forward, CbKeyPlace *place)
{
	CbKeyValue	values[CB_KEYSPACE_COLUMNS];
	int			n = ncolumns < space->ncolumns ? ncolumns : space->ncolumns;
	CbKeySide	side;
	CbKeyCond  *cond;
	int			next;
	int			c;

	for (c = 0; c < n; c++)
	{
		values[c].value = space->get(space->arg, entry, c, &values[c].is_null);
		side = cb_key_side_of_column(&space->columns[c], &values[c], forward,
									 &cond, &next);
		if (side == CB_SIDE_BEFORE)
		{
			cb_key_begin_place(place, c);
			if (cb_key_add_cond(place, cond, next, forward))
				cb_key_add_first(space, forward, place);
			return CB_KEY_SKIP;
		}
		if (side == CB_SIDE_BEYOND)
			break;
	}
	if (c == n)
		return CB_KEY_MATCH;

	while (c-- > 0)
	{
		if (cb_key_move_on(space, c, &values[c], forward, place))
			return CB_KEY_SKIP;
	}
	return CB_KEY_END;
}

/* ---------- conditions that say less than others ---------- */

/* As the space's relate, and for nulls too. */
static bool
cb_key_relate(const CbKeySpace *space, const CbKeyColumn *column,
			  const CbKeyCond *a, int i, const CbKeyCond *b, int j, int *cmp)
{
	if (!a->is_null && !b->is_null)
		return space->relate(space->arg, a, i, b, j, cmp);
	*cmp = cb_key_compare_nulls(a->is_null, b->is_null, column->nulls_first);
	return true;
}

/* Leaves in a what both have; false: they cannot be compared. */
static bool
cb_key_intersect(const CbKeySpace *space, const CbKeyColumn *column,
				 CbKeyCond *a, const CbKeyCond *b)
{
	int			n = 0;

	for (int i = 0, j = 0; i < a->n && j < b->n;)
	{
		int			cmp;

		if (!cb_key_relate(space, column, a, i, b, j, &cmp))
			return false;
		if (cmp == 0)
			a->values[n++] = a->values[i];
		i += cmp <= 0;
		j += cmp >= 0;
	}
	a->n = n;
	return true;
}

/* Leaves the points that a bound wants; false: they cannot be compared. */
static bool
cb_key_clip(const CbKeySpace *space, const CbKeyColumn *column,
			CbKeyCond *points, const CbKeyCond *bound)
{
	int			n = 0;

	for (int i = 0; i < points->n; i++)
	{
		int			cmp;

		if (!cb_key_relate(space, column, points, i, bound, 0, &cmp))
			return false;
		if (cmp == 0 ? !bound->strict : (cmp > 0) == (bound->kind == CB_COND_LOWER))
			points->values[n++] = points->values[i];
	}
	points->n = n;
	return true;
}

/* Makes a the narrower of two bounds of one kind; false as above. */
static bool
cb_key_narrow(const CbKeySpace *space, const CbKeyColumn *column,
			  CbKeyCond *a, const CbKeyCond *b)
{
	int			cmp;

	if (!cb_key_relate(space, column, a, 0, b, 0, &cmp))
		return false;
	if (cmp == 0)
		a->strict |= b->strict;
	else if ((cmp > 0) != (a->kind == CB_COND_LOWER))
		*a = *b;
	return true;
}

/*
 * Makes a say all that a and b do together, if it can; a is points if one of
 * them is.
 */
static bool
cb_key_unite(const CbKeySpace *space, const CbKeyColumn *column, CbKeyCond *a,
			 CbKeyCond *b)
{
	if (a->kind != CB_COND_POINTS && b->kind == CB_COND_POINTS)
	{
		CbKeyCond	bound = *a;

		*a = *b;
		*b = bound;
	}
	if (a->kind == CB_COND_POINTS)
		return b->kind == CB_COND_POINTS ?
			cb_key_intersect(space, column, a, b) :
			cb_key_clip(space, column, a, b);
	return a->kind == b->kind && cb_key_narrow(space, column, a, b);
}

/* Is there nothing between a lower and an upper bound, as far as is known? */
static bool
cb_key_excludes(const CbKeySpace *space, const CbKeyColumn *column,
				const CbKeyCond *lower, const CbKeyCond *upper)
{
	int			cmp;

	return lower->kind == CB_COND_LOWER && upper->kind == CB_COND_UPPER &&
		cb_key_relate(space, column, lower, 0, upper, 0, &cmp) &&
		(cmp > 0 || (cmp == 0 && (lower->strict || upper->strict)));
}

static bool
cb_key_reduce_column(const CbKeySpace *space, CbKeyColumn *column)
{
	CbKeyCond  *conds = column->conds;

	for (int i = 0; i < column->nconds; i++)
	{
		for (int j = i + 1; j < column->nconds;)
		{
			if (cb_key_unite(space, column, &conds[i], &conds[j]))
			{
				if (conds[i].n == 0)
					return false;
				conds[j] = conds[--column->nconds];
				j = i + 1;
			}
			else
				j++;
		}
	}
	for (int i = 0; i < column->nconds; i++)
	{
		for (int j = 0; j < column->nconds; j++)
		{
			if (cb_key_excludes(space, column, &conds[i], &conds[j]))
				return false;
		}
	}
	return true;
}

/*
 * Drops conditions that follow from others, and values that others exclude;
 * the lists of values are changed.  False if nothing can be wanted.  To be
 * called once, before the space is used.
 */
bool
cb_keyspace_reduce(CbKeySpace *space)
{
	assert(space->ncolumns <= CB_KEYSPACE_COLUMNS);
	for (int c = 0; c < space->ncolumns; c++)
	{
		CbKeyColumn *column = &space->columns[c];

		if (column->nconds > 1 && !cb_key_reduce_column(space, column))
			return false;
	}
	return true;
}

/* ---------- the space as a whole ---------- */

/* Does a condition of the column want one of several values? */
static bool
cb_key_wants_points(const CbKeyColumn *column)
{
	for (int i = 0; i < column->nconds; i++)
	{
		if (column->conds[i].kind == CB_COND_POINTS && column->conds[i].n > 1)
			return true;
	}
	return false;
}

/* Do the column's conditions want a single value? */
static bool
cb_key_wants_one(const CbKeyColumn *column)
{
	for (int i = 0; i < column->nconds; i++)
	{
		if (column->conds[i].kind != CB_COND_POINTS || column->conds[i].n > 1)
			return false;
	}
	return column->nconds > 0;
}

/*
 * Is all wanted that lies between two wanted entries?  So it is where each
 * column but the last has to be equal to one value, provided that the columns
 * are in the order of all comparisons.
 */
bool
cb_keyspace_is_interval(const CbKeySpace *space)
{
	for (int c = 0; c + 1 < space->ncolumns; c++)
	{
		if (!cb_key_wants_one(&space->columns[c]))
			return false;
	}
	return space->ncolumns == 0 ||
		!cb_key_wants_points(&space->columns[space->ncolumns - 1]);
}
