/*-------------------------------------------------------------------------
 *
 * cb_keyspace.h
 *	  The combinations of column values that a scan wants, and where to look
 *	  for the next one.
 *
 * A scan's conditions are each on one column of the index, and all have to
 * hold.  A column's condition wants one value of several (points: =, = ANY,
 * IS NULL) or what lies on one side of a value (lower and upper bounds: <, <=,
 * >=, >; IS NOT NULL is a bound beside null).  So the wanted combinations of
 * values lie in the index's order like teeth of a comb: whoever stands at an
 * entry between two teeth can tell from the entry where the next one begins.
 * Nothing is remembered from entry to entry, so a scan may turn round, jump,
 * or go back to a mark.
 *
 * Values and comparisons are the caller's: a value is a word, null is told
 * apart, and a comparison follows the order of the column in the index, which
 * is turned round for a descending one.
 *
 * Source for going from tooth to tooth where a column has no condition, or a
 * range: H. Leslie, R. Jain, D. Birdsall, H. Yaghmai, "Efficient Search of
 * Multidimensional B-Trees", 1995.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_KEYSPACE_H
#define CB_KEYSPACE_H

#include <stdbool.h>
#include <stdint.h>

#define CB_KEYSPACE_COLUMNS		32

typedef struct CbKeyCond CbKeyCond;

/* Where the column's value lies as seen from the condition's: <0, 0, >0. */
typedef int (*CbKeyCondCompare) (const CbKeyCond *cond, uintptr_t column,
								 uintptr_t value);

typedef enum CbKeyCondKind
{
	CB_COND_POINTS,				/* one of these values */
	CB_COND_LOWER,				/* beyond values[0], or that */
	CB_COND_UPPER				/* before values[0], or that */
} CbKeyCondKind;

struct CbKeyCond
{
	CbKeyCondKind kind;
	bool		strict;			/* of a bound: not the value itself */
	bool		is_null;		/* values[0], the only one, stands for null */
	int			n;				/* how many values, at least 1 */
	int			near;			/* place in values that was found last, or 0 */
	uintptr_t  *values;			/* in the column's order, all different */
	CbKeyCondCompare compare;	/* neither is null */
	void	   *arg;			/* the caller's */
};

typedef struct CbKeyColumn
{
	bool		nulls_first;
	int			nconds;
	CbKeyCond  *conds;			/* the caller's memory, for the space's life */

	/*
	 * The value next to this one in the column's order, forward or backward;
	 * false: there is none.  NULL: not known for values of this type.
	 */
	bool		(*neighbour) (uintptr_t value, bool forward, uintptr_t *next);
} CbKeyColumn;

typedef struct CbKeySpace
{
	int			ncolumns;		/* up to the last one with a condition */
	CbKeyColumn columns[CB_KEYSPACE_COLUMNS];

	/* an entry's value of a column */
	uintptr_t	(*get) (void *arg, const void *entry, int column, bool *is_null);

	/*
	 * Where value i of a condition lies as seen from value j of another one
	 * of the column, neither null; false: no two values of these conditions
	 * can be compared.
	 */
	bool		(*relate) (void *arg, const CbKeyCond *a, int i,
						   const CbKeyCond *b, int j, int *cmp);
	void	   *arg;
} CbKeySpace;

typedef enum CbKeyAnswer
{
	CB_KEY_MATCH,				/* the entry is wanted */
	CB_KEY_SKIP,				/* it is not, nor is what lies before a place */
	CB_KEY_END					/* nor is anything from there on */
} CbKeyAnswer;

/*
 * A place in the index's order: beside all entries with these values in the
 * first columns.  A part's value is the entry's, or the condition's, or stands
 * here.
 */
typedef enum CbKeyPartSource
{
	CB_PART_ENTRY,
	CB_PART_COND,
	CB_PART_VALUE				/* of the column's own type */
} CbKeyPartSource;

typedef struct CbKeyPart
{
	CbKeyPartSource source;
	const CbKeyCond *cond;		/* CB_PART_COND: value is its ... */
	int			index;			/* ... with this place in values */
	uintptr_t	value;			/* not of CB_PART_ENTRY */
} CbKeyPart;

typedef struct CbKeyPlace
{
	int			nparts;			/* 0: at an end of the index */
	bool		after;			/* right of the equal entries, else left */
	CbKeyPart	parts[CB_KEYSPACE_COLUMNS];
} CbKeyPlace;

extern bool cb_keyspace_reduce(CbKeySpace *space);
extern bool cb_keyspace_is_interval(const CbKeySpace *space);
extern void cb_keyspace_start(const CbKeySpace *space, bool forward,
							  CbKeyPlace *place);
extern void cb_keyspace_go_to_point(const CbKeySpace *space,
									const CbKeyCond *points, int i,
									bool forward, CbKeyPlace *place);
extern CbKeyAnswer cb_keyspace_test(CbKeySpace *space, const void *entry,
									int ncolumns, bool forward,
									CbKeyPlace *place);

#endif							/* CB_KEYSPACE_H */
