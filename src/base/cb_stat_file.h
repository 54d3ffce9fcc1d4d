/*-------------------------------------------------------------------------
 *
 * cb_stat_file.h
 *	  Counters of all indexes in a file, while the server is down.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_STAT_FILE_H
#define CB_STAT_FILE_H

#include "base/cb_base.h"

typedef struct CbStatKey
{
	Oid			dboid;
	Oid			indexoid;
} CbStatKey;

/* an index's counters in the file */
typedef struct CbStatSaved
{
	CbStatKey	key;
	uint64		counters[CB_NUM_COUNTERS];
} CbStatSaved;

extern void cb_stat_file_save(const CbStatSaved *entries, uint32 n);
extern CbStatSaved *cb_stat_file_load(uint32 *n);

#endif							/* CB_STAT_FILE_H */
