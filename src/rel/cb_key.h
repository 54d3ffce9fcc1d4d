/*-------------------------------------------------------------------------
 *
 * cb_key.h
 *	  Order of entries, separators and bounds.
 *
 * Entries are totally ordered by (key columns, TID).  A separator (pivot
 * tuple) stands for the boundary just before the least entry that has its
 * values; attributes that were truncated away, its TID among them, are minus
 * infinity.
 *
 * A bound is a boundary between entries.  Scans and descents speak of bounds
 * only: "the first entry right of the bound", "the last one left of it".
 *
 * Comparison functions of operator classes may raise errors and may run SQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_KEY_H
#define CB_KEY_H

#include "core/cb_lead.h"
#include "core/cb_mix.h"
#include "page/cb_page.h"
#include "utils/sortsupport.h"

#define CB_SORTSUPPORT_PROC BTSORTSUPPORT_PROC
#define CB_ORDER_PROC BTORDER_PROC

/*
 * Abbreviations of the first key column: numbers whose unsigned order agrees
 * with the index's.  Different numbers decide a comparison; equal ones say
 * that the columns are equal if EXACT, else nothing.  NULLs have none.
 */
typedef enum CbAbbrevKind
{
	CB_ABBREV_UNKNOWN,			/* cb_key_prepare_abbrev() finds out */
	CB_ABBREV_NONE,
	CB_ABBREV_EXACT,
	CB_ABBREV_PREFIX
} CbAbbrevKind;

typedef struct CbAbbrev
{
	CbAbbrevKind kind;
	uint64		flip;			/* all ones if the column is DESC */
	uint64		(*convert) (Datum value, SortSupport ssup);
	SortSupport ssup;			/* the operator class's, for its converter */
} CbAbbrev;

typedef enum CbHashKind
{
	CB_HASH_NONE,				/* equality does not allow it, or not prepared */
	CB_HASH_ABBREV,				/* of the exact abbreviation */
	CB_HASH_UUID,
	CB_HASH_BYTES				/* of a varlena's bytes */
} CbHashKind;

typedef struct CbKeyDesc
{
	Relation	rel;
	TupleDesc	tupdesc;
	int			nkeyatts;
	CbLeadKind	lead_kind;		/* CB_LEAD_INT64: the first column is like a
								 * bigint, ascending */
	CbAbbrev	abbrev;
	CbHashKind	hash;
	Relation	heap;			/* the table, to be asked which entries are
								 * dead; NULL: nobody asks (cb_dead.c) */
	bool		new_versions;	/* are new entries likely to be new versions? */
	Oid			order_proc[INDEX_MAX_KEYS]; /* each column's own comparison */
	SortSupportData ssup[INDEX_MAX_KEYS];
} CbKeyDesc;

typedef enum CbBoundKind
{
	CB_BOUND_MIN,				/* left of everything */
	CB_BOUND_MAX,				/* right of everything */
	CB_BOUND_KEYS,				/* beside all entries whose first columns
								 * equal the keys */
	CB_BOUND_TUPLE				/* beside an entry, or at a separator */
} CbBoundKind;

/* What a bound says of a column; its keys are of the first columns, in order. */
typedef struct CbBoundKey
{
	bool		is_null;
	Datum		value;			/* if it is not null */
	FmgrInfo   *compare;		/* the 3-way comparison of the column with
								 * values of another type (cross-type); NULL:
								 * it is of the column's own */
} CbBoundKey;

typedef struct CbBound
{
	CbBoundKind kind;
	bool		after;			/* right of the equal entries, else left */
	int			nkeys;			/* CB_BOUND_KEYS: number of keys */
	CbBoundKey *keys;
	CbLeadKind	lead_kind;		/* the index's, or that of its first column, if
								 * the keys have a lead; else none */
	int64		lead;
	IndexTuple	tuple;			/* CB_BOUND_TUPLE */
} CbBound;

/* an entry with its first key column at hand, for sorting */
typedef struct CbSortEntry
{
	Datum		first;
	bool		first_null;
	bool		dead;			/* to everyone: not put into the tree */
	IndexTuple	itup;
	CbPos		pos;			/* journal position, or 0 */
} CbSortEntry;

/*
 * For who goes through entries that were sorted, and is at the i-th: their bytes
 * lie in another order.
 */
#define CB_KEY_AHEAD	16

static inline void
cb_key_prefetch_entry(const CbSortEntry *entries, int n, int i)
{
	if (i + CB_KEY_AHEAD < n)
		__builtin_prefetch(entries[i + CB_KEY_AHEAD].itup);
}

/*
 * The abbreviation of a value of the first column, not NULL; false if there
 * is none, or none was prepared.  May raise an error (detoasting).
 */
static inline bool
cb_key_abbreviate(const CbKeyDesc *kd, Datum first, uint64 *abbrev)
{
	if (kd->abbrev.kind < CB_ABBREV_EXACT)
		return false;
	*abbrev = kd->abbrev.convert(first, kd->abbrev.ssup) ^ kd->abbrev.flip;
	return true;
}

extern bool cb_key_get_content_lead(CbLeadKind kind, IndexTuple itup, int64 *lead);
extern bool cb_key_get_pair_lead(CbLeadKind kind, IndexTuple itup, int64 *lead);

/* A tuple's lead, if it has one: columns, none of which is null. */
static inline bool
cb_key_get_lead(CbLeadKind kind, IndexTuple itup, int64 *lead)
{
	if (IndexTupleHasNulls(itup) ||
		IndexTupleSize(itup) < sizeof(IndexTupleData) + sizeof(int64))
		return false;
	if (kind != CB_LEAD_INT64 && !cb_lead_is_of_body(kind))
		return cb_key_get_content_lead(kind, itup, lead);
	if (cb_lead_is_pair(kind))
		return cb_key_get_pair_lead(kind, itup, lead);
	return cb_lead(kind, *(uint64 *) ((char *) itup + sizeof(IndexTupleData)), lead);
}

/* The same, if it is the first column itself, a number. */
static inline bool
cb_key_get_number(IndexTuple itup, int64 *number)
{
	return cb_key_get_lead(CB_LEAD_INT64, itup, number);
}

/* The exact abbreviation of a number. */
#define CB_KEY_SIGN			(UINT64CONST(1) << 63)

static inline uint64
cb_key_abbreviate_number(int64 number)
{
	return (uint64) number ^ CB_KEY_SIGN;
}

/* Where a tuple lies by its lead and the bound's; 0: that does not tell. */
static inline int
cb_key_compare_lead(const CbBound *bound, IndexTuple itup)
{
	int64		lead;

	if (!cb_key_get_lead(bound->lead_kind, itup, &lead))
		return 0;
	return (lead > bound->lead) - (lead < bound->lead);
}

extern int	cb_key_compare_whole(const CbKeyDesc *kd, IndexTuple a, IndexTuple b);

/*
 * Compares two entries or separators: <0 a first, 0 the same.  Leads that differ
 * tell; else see cb_key_compare_whole().
 */
static inline int
cb_key_compare(const CbKeyDesc *kd, IndexTuple a, IndexTuple b)
{
	int64		x;
	int64		y;

	if (kd->lead_kind != CB_LEAD_NONE && cb_key_get_lead(kd->lead_kind, a, &x) &&
		cb_key_get_lead(kd->lead_kind, b, &y) && x != y)
		return x < y ? -1 : 1;
	return cb_key_compare_whole(kd, a, b);
}

/*
 * Is the bound at an end of the index, or at its nulls, as those of min and
 * max?
 */
static inline bool
cb_bound_is_at_end(const CbBound *bound)
{
	return bound->kind == CB_BOUND_MIN || bound->kind == CB_BOUND_MAX ||
		(bound->kind == CB_BOUND_KEYS && bound->keys[0].is_null);
}

/* Is that a value of the column's own type, not null? */
static inline bool
cb_key_is_own(const CbBoundKey *key)
{
	return key->compare == NULL && !key->is_null;
}

extern CbLeadKind cb_key_find_lead(const CbKeyDesc *kd, const CbBound *bound, int64 *lead);

/*
 * Sets the lead of a bound of keys, if its first value has one: one of the column's
 * own type, and not null.
 */
static inline void
cb_bound_set_lead(const CbKeyDesc *kd, CbBound *bound)
{
	bound->lead_kind = CB_LEAD_NONE;
	if (kd->lead_kind == CB_LEAD_NONE || !cb_key_is_own(&bound->keys[0]))
		return;
	if (kd->lead_kind == CB_LEAD_INT64)
	{
		bound->lead_kind = CB_LEAD_INT64;
		bound->lead = DatumGetInt64(bound->keys[0].value);
	}
	else
		bound->lead_kind = cb_key_find_lead(kd, bound, &bound->lead);
}

/* Gives a bound of keys another value of the first column, not null. */
static inline void
cb_bound_set_first(const CbKeyDesc *kd, CbBound *bound, Datum value)
{
	bound->keys[0].value = value;
	cb_bound_set_lead(kd, bound);
}

/* Sets the bound left of a tuple, which is copied to the bound's memory. */
static inline void
cb_bound_copy_tuple(CbBound *bound, IndexTuple tuple, PGAlignedBlock *memory)
{
	memcpy(memory->data, tuple, IndexTupleSize(tuple));
	memset(bound, 0, sizeof(CbBound));
	bound->kind = CB_BOUND_TUPLE;
	bound->tuple = (IndexTuple) memory->data;
}

extern int	cb_key_compare_bound_whole(const CbKeyDesc *kd, const CbBound *bound,
									   IndexTuple itup);

/*
 * Where a tuple lies as seen from a bound: <0 left of it, >0 right of it, 0
 * for a separator that is the same boundary as the bound.
 */
static inline int
cb_key_compare_bound(const CbKeyDesc *kd, const CbBound *bound, IndexTuple itup)
{
	int			cmp = bound->kind == CB_BOUND_KEYS && bound->lead_kind != CB_LEAD_NONE ?
		cb_key_compare_lead(bound, itup) : 0;

	return cmp != 0 ? cmp : cb_key_compare_bound_whole(kd, bound, itup);
}

extern void cb_key_init(CbKeyDesc *kd, Relation rel);
extern CbAbbrevKind cb_key_prepare_abbrev(CbKeyDesc *kd);
extern bool cb_key_prepare_exact(CbKeyDesc *kd);

/* cb_key_total.c */
extern int	cb_key_find_partial(Relation index);
extern bool cb_key_is_total(Relation rel);
extern bool cb_key_is_trusted(Relation rel);
extern void cb_key_prepare_trust(Relation rel);
extern bool cb_is_buffered(Relation rel);
extern bool cb_packs_leaves(Relation rel);

/* cb_key_hash.c */
extern CbHashKind cb_key_prepare_hash(CbKeyDesc *kd);
extern uint32 cb_key_hash(const CbKeyDesc *kd, Datum first);

/* The same by the abbreviation, where kd->hash is CB_HASH_ABBREV. */
static inline uint32
cb_key_hash_abbrev(uint64 abbrev)
{
	return (uint32) (cb_mix(abbrev) >> 32);
}

extern bool cb_key_convert_integer(Oid equality, Datum *value);
extern bool cb_key_widen_integer(Oid order_proc, Oid type, Datum *value);

/* cb_key.c and cb_key_sort.c */
extern void cb_key_fill_sort_entry(const CbKeyDesc *kd, CbSortEntry *entry,
								   IndexTuple itup);
extern void cb_key_check_comparable(const CbKeyDesc *kd,
									const CbSortEntry *entries, int n);
extern void cb_key_sort(const CbKeyDesc *kd, CbSortEntry *entries, int n);
extern int	cb_key_keep_right(const CbKeyDesc *kd, CbSortEntry *entries, int n,
							  IndexTuple itup);
extern IndexTuple cb_key_make_separator(const CbKeyDesc *kd,
										IndexTuple lastleft,
										IndexTuple firstright);
extern IndexTuple cb_key_make_downlink(IndexTuple separator, BlockNumber child);
extern IndexTuple cb_key_minus_infinity(BlockNumber child);
extern void cb_key_check_size(Relation rel, IndexTuple itup);
extern IndexTuple cb_key_form_entry(Relation rel, Datum *values, bool *isnull,
									ItemPointer tid);
extern Size cb_key_fixed_len(Relation rel);
extern void cb_key_form_fixed(Relation rel, Datum *values, bool *isnull,
							  ItemPointer tid, Size len, IndexTuple itup);

/* size of an entry whose values take that many bytes */
#define CbFixedEntrySize(len)	MAXALIGN(sizeof(IndexTupleData) + (len))

#endif							/* CB_KEY_H */
