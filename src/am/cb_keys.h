/*-------------------------------------------------------------------------
 *
 * cb_keys.h
 *	  A scan's keys as a key space (core/cb_keyspace.h).
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_KEYS_H
#define CB_KEYS_H

#include "access/itup.h"
#include "access/sdir.h"
#include "access/skey.h"
#include "core/cb_keyspace.h"
#include "rel/cb_key.h"

/* Values of one type, beside a column of the index. */
typedef struct CbKeysType
{
	CbKeyDesc  *kd;
	int			column;			/* from 0 on */
	Oid			type;			/* InvalidOid: the column's own */
	bool		ordered;		/* is the column in the order of comparisons
								 * with the type? */
	FmgrInfo	operator;		/* the key's own, if it has one */
	FmgrInfo	compare;		/* compares the column with another type; its
								 * fn_oid is invalid if there is none */
} CbKeysType;

/* A scan key, as it was given last. */
typedef struct CbKeysGiven
{
	Oid			subtype;
	CbKeysType	type;
	uintptr_t	value;			/* if there is one */
} CbKeysGiven;

typedef struct CbKeys
{
	/* stays for the next scan */
	int			room;			/* scan keys that there is memory for */
	CbKeysGiven *given;
	CbKeyCond  *conds;			/* two of each */

	CbKeyDesc  *kd;
	int			ngiven;			/* scan keys */
	bool		plain;			/* do those given last want columns of their
								 * own to be equal to one value each? */
	MemoryContext array_cxt;	/* of arrays; NULL: there were none yet */
	CbKeySpace	space;
	CbKeyCond  *numbers;		/* if nothing is wanted but some numbers of the
								 * first column, as CbKeyDesc has them: those */
	CbKeyPlace	place;			/* where cb_keys_test() says SKIP to */
	int			relating;		/* the column, or -1, of which values of two
								 * types ... */
	Oid			relating_types[2];	/* ... were compared last, by ... */
	FmgrInfo	relate;			/* ... this */
} CbKeys;

/*
 * The same as cb_keyspace_test() for a number of the column, if the last one wanted
 * or the next one tell; else -1.
 */
static inline int
cb_keys_test_number(CbKeys *keys, int64 number, bool forward)
{
	CbKeyCond  *wanted = keys->numbers;
	int64		last = DatumGetInt64(wanted->values[wanted->near]);
	int			i = wanted->near + (forward ? 1 : -1);
	int64		next;

	if (number == last)
		return CB_KEY_MATCH;
	if ((number > last) != forward)
		return -1;
	if (i < 0 || i >= wanted->n)
		return CB_KEY_END;
	next = DatumGetInt64(wanted->values[i]);
	if (number == next || (number > next) == forward)
		return -1;
	wanted->near = i;
	cb_keyspace_go_to_point(&keys->space, wanted, i, forward, &keys->place);
	return CB_KEY_SKIP;
}

/*
 * Where an entry, or a separator of that many columns, lies: see
 * cb_keyspace_test().  Comparison functions run, but for numbers that tell by
 * themselves.
 */
static inline CbKeyAnswer
cb_keys_test(CbKeys *keys, IndexTuple itup, int natts, ScanDirection dir)
{
	bool		forward = ScanDirectionIsForward(dir);
	int64		number;

	if (keys->numbers != NULL && cb_key_get_number(itup, &number))
	{
		int			answer = cb_keys_test_number(keys, number, forward);

		if (answer >= 0)
			return (CbKeyAnswer) answer;
	}
	return cb_keyspace_test(&keys->space, itup, natts, forward, &keys->place);
}

extern bool cb_keys_is_ordered(const CbKeyCond *cond);
extern void cb_keys_init(CbKeys *keys, CbKeyDesc *kd, int n, MemoryContext own_cxt);
extern bool cb_keys_set(CbKeys *keys, ScanKey given, int n, MemoryContext cxt);
extern bool cb_keys_are_interval(const CbKeys *keys);
extern bool cb_keys_place_is_ordered(const CbKeyPlace *place);
extern bool cb_keys_can_bound(const CbKeyPlace *place);
extern void cb_keys_make_bound(CbKeys *keys, const CbKeyPlace *place,
							   IndexTuple entry, ScanDirection dir,
							   CbBoundKey *bound_keys, CbBound *bound);

#endif							/* CB_KEYS_H */
