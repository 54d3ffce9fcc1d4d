/*-------------------------------------------------------------------------
 *
 * cb_entry.c
 *	  Do the values of an entry, or of a separator, lie inside it?
 *
 * What is read from disk may be damaged.  A value's length stands in it, and
 * whoever compares or copies the value follows that.  Nothing here raises an
 * error, or reads beyond the tuple.
 *
 *-------------------------------------------------------------------------
 */
#include "page/cb_entry.h"

#include "access/toast_compression.h"
#include "access/toast_internals.h"
#include "base/cb_compat.h"
#include "page/cb_page.h"

/*
 * Bytes of a value that has a length of its own, of which room > 0 bytes are
 * inside the tuple; 0: it is damaged.
 */
static Size
cb_entry_varlena(const char *value, Size room)
{
	if (VARATT_IS_1B_E(value))
		return 0;				/* indexes have no values elsewhere */
	if (VARATT_IS_1B(value))
		return VARSIZE_1B(value);
	if (room < VARHDRSZ_COMPRESSED && (room < VARHDRSZ || VARATT_IS_4B_C(value)))
		return 0;
	if (!VARATT_IS_4B_C(value))
		return VARSIZE_4B(value) < VARHDRSZ ? 0 : VARSIZE_4B(value);
	if (VARSIZE_4B(value) < VARHDRSZ_COMPRESSED ||
		TOAST_COMPRESS_METHOD(value) > TOAST_LZ4_COMPRESSION_ID)
		return 0;
	return VARSIZE_4B(value);
}

/*
 * The same of a value of a type without a fixed length; it may be more than room.
 */
static Size
cb_entry_value(Form_pg_attribute attr, const char *value, Size room)
{
	const char *end;

	if (attr->attlen == -1)
		return cb_entry_varlena(value, room);
	end = memchr(value, '\0', room);
	return end == NULL ? 0 : end - value + 1;
}

/*
 * Does a value begin where one may?  Short ones may anywhere; with what else would
 * seem to be one's length word, among bytes of padding, nothing is aligned.
 */
static bool
cb_entry_is_aligned(Form_pg_attribute attr, IndexTuple itup, Size off)
{
	return attr->attlen != -1 || VARATT_IS_1B((char *) itup + off) ||
		off == att_align_nominal(off, attr->attalign);
}

/*
 * Do the first natts values lie inside the tuple, which has size bytes for them
 * and its header?
 */
bool
cb_entry_fits(TupleDesc desc, IndexTuple itup, Size size, int natts)
{
	Size		off = IndexInfoFindDataOffset(itup->t_info);
	bits8	   *nulls = (bits8 *) (itup + 1);

	if (off > size)
		return false;
	for (int i = 0; i < natts; i++)
	{
		Form_pg_attribute attr = TupleDescAttr(desc, i);
		Size		len;

		if (IndexTupleHasNulls(itup) && att_isnull(i, nulls))
			continue;
		if (attr->attlen > 0)
		{
			off = att_align_nominal(off, attr->attalign) + attr->attlen;
			if (off > size)
				return false;
			continue;
		}
		/* the server finds later values by that bit, and remembers where they are */
		if (off >= size || !IndexTupleHasVarwidths(itup))
			return false;
		off = att_align_pointer(off, attr->attalign, attr->attlen, (char *) itup + off);
		if (off >= size || !cb_entry_is_aligned(attr, itup, off))
			return false;
		len = cb_entry_value(attr, (char *) itup + off, size - off);
		if (len == 0 || len > size - off)
			return false;
		off += len;
	}
	return true;
}

/*
 * Is that an entry, all of whose values lie inside?  Its size is known to be that
 * of the memory that it is in, or less.
 */
bool
cb_entry_is_sound(TupleDesc desc, IndexTuple itup)
{
	return (itup->t_info & INDEX_ALT_TID_MASK) == 0 &&
		cb_page_is_row_tid(&itup->t_tid) &&
		cb_entry_fits(desc, itup, IndexTupleSize(itup), desc->natts);
}
