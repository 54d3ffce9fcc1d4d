/*-------------------------------------------------------------------------
 *
 * cb_progress.h
 *	  What each process does to an index at present, and how far it has come.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_PROGRESS_H
#define CB_PROGRESS_H

#include "base/cb_compat.h"
#include "datatype/timestamp.h"

/* what was asked for; in the order of their names in cb_progress.c */
typedef enum CbProgressCommand
{
	CB_PROGRESS_NONE,
	CB_PROGRESS_FLUSH,			/* a bucket, the journal, range buffers, or all */
	CB_PROGRESS_VACUUM,
	CB_PROGRESS_COMPACT,
	CB_PROGRESS_PREWARM,
	CB_PROGRESS_VERIFY
} CbProgressCommand;

/* what is done for it, and so what is counted; in the order of their names */
typedef enum CbProgressPhase
{
	CB_PHASE_STARTING,
	CB_PHASE_JOURNAL,			/* entries go from the journal to lower tiers */
	CB_PHASE_BUCKETS,
	CB_PHASE_RANGES,
	CB_PHASE_REMOVE,			/* VACUUM's pass */
	CB_PHASE_PACK,
	CB_PHASE_READ,
	CB_PHASE_CHECK_JOURNAL,		/* this and the next two count all blocks */
	CB_PHASE_CHECK_RANGES,
	CB_PHASE_CHECK_TREE,
	CB_PHASE_CHECK_TABLE,
	CB_PHASE_COMPARE
} CbProgressPhase;

#define CB_PROGRESS_UNKNOWN		(-1)

/* a copy of what one process shows */
typedef struct CbProgressRow
{
	int			pid;
	Oid			dboid;
	Oid			userid;			/* of the session */
	Oid			heapoid;
	Oid			indexoid;
	int			command;		/* CbProgressCommand */
	int			phase;			/* CbProgressPhase */
	TimestampTz started_at;
	int64		done;
	int64		total;			/* or CB_PROGRESS_UNKNOWN */
} CbProgressRow;

extern void cb_progress_shmem_request(void);
extern void cb_progress_shmem_startup(void);

/* A command begins; false: it is a part of one that has begun. */
extern bool cb_progress_begin(CbProgressCommand command, Relation index);
extern void cb_progress_end(bool begun);

/* The next phase begins with nothing done, of so much. */
extern void cb_progress_phase(CbProgressPhase phase, int64 total);

/* The next phase counts on from what the last one has done. */
extern void cb_progress_go_on(CbProgressPhase phase);

extern void cb_progress_add(int64 n);
extern void cb_progress_expect(int64 n);

/* for views */
extern int	cb_progress_count_slots(void);
extern bool cb_progress_read(int slot, CbProgressRow *row);
extern const char *cb_progress_command_name(int command);
extern const char *cb_progress_phase_name(int phase);
extern const char *cb_progress_unit(int phase);

#endif							/* CB_PROGRESS_H */
