/*-------------------------------------------------------------------------
 *
 * cb_replay.h
 *	  What replay has done with an index, for a standby's readers.
 *
 * Redo counts what it has done to a file, when it is done, without a look at
 * its contents.  A scan that finds a count as it was knows without reading a
 * page that nothing of that kind has been replayed since:
 *
 *	journal		entries appended, or the tail moved
 *	removals	entries taken out of a level, of which the row can be gone
 *	reuses		deleted pages of the tree about to be used again; counted before
 *				they change
 *
 * Counted in shared memory, in slots that indexes may share: then one is taken
 * for the other's, which does no harm.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_REPLAY_H
#define CB_REPLAY_H

#include "postgres.h"

#include "base/cb_compat.h"

typedef enum CbReplayKind
{
	CB_REPLAY_NOTHING = 0,
	CB_REPLAY_JOURNAL = 1,
	CB_REPLAY_REMOVAL = 2,
	CB_REPLAY_REUSE = 4
} CbReplayKind;

extern void cb_replay_shmem_request(void);
extern void cb_replay_shmem_startup(void);
extern void cb_replay_count(Oid file, int kinds);
extern uint64 cb_replay_journal(Relation index);
extern uint64 cb_replay_removals(Relation index);
extern uint64 cb_replay_reuses(Relation index);

#endif							/* CB_REPLAY_H */
