/*-------------------------------------------------------------------------
 *
 * cb_key_hash.c
 *	  Hashes of the first key column, where equality allows it (A10).
 *
 * Only for comparisons that are known to call equal what has the same hash:
 * those with exact abbreviations, uuid, bytea, and text under a deterministic
 * collation.  Not for numeric (1.0 and 1.00), bpchar (blanks), citext and
 * whatever else may call equal what has different bytes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type_d.h"
#include "common/hashfn.h"
#include "rel/cb_key.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/uuid.h"

/*
 * Finds out how the first column is hashed; once for a CbKeyDesc.  May read a
 * catalog, and raise an error.  CB_HASH_NONE: entries of this index have no
 * hashes.
 */
CbHashKind
cb_key_prepare_hash(CbKeyDesc *kd)
{
	Oid			collation = kd->rel->rd_indcollation[0];

	switch (index_getprocid(kd->rel, 1, BTORDER_PROC))
	{
		case F_UUID_CMP:
			kd->hash = CB_HASH_UUID;
			break;
		case F_BYTEACMP:
			kd->hash = CB_HASH_BYTES;
			break;
		case F_BTTEXTCMP:
			kd->hash = OidIsValid(collation) &&
				get_collation_isdeterministic(collation) ?
				CB_HASH_BYTES : CB_HASH_NONE;
			break;
		default:
			kd->hash = cb_key_prepare_exact(kd) ? CB_HASH_ABBREV : CB_HASH_NONE;
	}
	return kd->hash;
}

static uint32
cb_key_hash_varlena(Datum value)
{
	struct varlena *original = (struct varlena *) DatumGetPointer(value);
	struct varlena *bytes = pg_detoast_datum_packed(original);
	uint32		hash = hash_bytes((unsigned char *) VARDATA_ANY(bytes),
								  VARSIZE_ANY_EXHDR(bytes));

	if (bytes != original)
		pfree(bytes);
	return hash;
}

/*
 * The hash of a value of the first column, not NULL; cb_key_prepare_hash() has
 * not said CB_HASH_NONE.  May raise an error (a compressed value).  Runs keep
 * filters of hashes on disk, so what a value hashes to is part of the format.
 */
uint32
cb_key_hash(const CbKeyDesc *kd, Datum first)
{
	uint64		abbrev = 0;

	switch (kd->hash)
	{
		case CB_HASH_UUID:
			return hash_bytes(DatumGetUUIDP(first)->data, UUID_LEN);
		case CB_HASH_BYTES:
			return cb_key_hash_varlena(first);
		default:
			(void) cb_key_abbreviate(kd, first, &abbrev);
			return cb_key_hash_abbrev(abbrev);
	}
}

/*
 * Makes of an integer one of the column's type; equality is the function that
 * compares a column with it.  What the type has no value for becomes another
 * number: no entry equals it, so any hash will do.  False: the function is
 * none that compares integers of two types, and *value is as it was.  Raises
 * no error.
 */
bool
cb_key_convert_integer(Oid equality, Datum *value)
{
	switch (equality)
	{
		case F_INT84EQ:
			*value = Int64GetDatum(DatumGetInt32(*value));
			return true;
		case F_INT82EQ:
			*value = Int64GetDatum(DatumGetInt16(*value));
			return true;
		case F_INT48EQ:
			*value = Int32GetDatum((int32) DatumGetInt64(*value));
			return true;
		case F_INT42EQ:
			*value = Int32GetDatum(DatumGetInt16(*value));
			return true;
		case F_INT28EQ:
			*value = Int16GetDatum((int16) DatumGetInt64(*value));
			return true;
		case F_INT24EQ:
			*value = Int16GetDatum((int16) DatumGetInt32(*value));
			return true;
		default:
			return false;
	}
}

/*
 * Makes of an integer of a shorter type one of the column's, int8: compared by
 * the column's own comparison it has the same place.  order_proc is that, type
 * the integer's.  False: it is something else, and *value is as it was.
 * Raises no error.
 */
bool
cb_key_widen_integer(Oid order_proc, Oid type, Datum *value)
{
#ifdef USE_FLOAT8_BYVAL
	switch (order_proc == F_BTINT8CMP ? type : InvalidOid)
	{
		case INT4OID:
			*value = Int64GetDatum(DatumGetInt32(*value));
			return true;
		case INT2OID:
			*value = Int64GetDatum(DatumGetInt16(*value));
			return true;
		default:
			break;
	}
#endif
	return false;
}
