/*-------------------------------------------------------------------------
 *
 * cb_entry.h
 *	  Do the values of an entry, or of a separator, lie inside it?
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_ENTRY_H
#define CB_ENTRY_H

#include "postgres.h"

#include "access/itup.h"
#include "access/tupdesc.h"

/* Do the first natts values lie inside the first size bytes of the tuple? */
extern bool cb_entry_fits(TupleDesc desc, IndexTuple itup, Size size, int natts);

/* Is that an entry, all of whose values lie inside? */
extern bool cb_entry_is_sound(TupleDesc desc, IndexTuple itup);

#endif							/* CB_ENTRY_H */
