/*-------------------------------------------------------------------------
 *
 * cb_change.h
 *	  Marking pages of the tree dirty, and counting how often each was.
 *
 * Each change of a leaf is counted while the leaf is locked exclusively, as
 * pages of the tree are marked dirty by cb_rel_mark_dirty() and by nothing
 * else.  So who finds a leaf's count as it was knows that the leaf is as it
 * was.  Redo does not count.  No function here takes a lock, allocates memory
 * or raises an error; all may be called in critical sections.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_CHANGE_H
#define CB_CHANGE_H

#include "postgres.h"

#include "base/cb_compat.h"
#include "storage/block.h"
#include "storage/buf.h"

extern void cb_change_shmem_request(uint32 ncounts);
extern void cb_change_shmem_startup(uint32 ncounts);

extern void cb_rel_mark_dirty(Buffer buf);
extern uint64 cb_rel_changes(Relation rel, BlockNumber block);

#endif							/* CB_CHANGE_H */
