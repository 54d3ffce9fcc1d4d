/*-------------------------------------------------------------------------
 *
 * cb_entry_cache.h
 *	  The entry cache: what look-ups found in leaves, in shared memory.
 *
 * A look-up for one value that found one entry, and no more, in the tree keeps
 * it here with the leaf's count of changes.  Another look-up for the value may
 * take the entry instead of reading the leaf if that count is still the same
 * once it has looked at the upper tiers (I2).  Why that is right: counts grow
 * while the leaf is locked exclusively, so no change of the leaf was over when
 * the upper tiers had been looked at.  It has the entry and no other.  Nor has
 * another leaf: the scan came to this one as the first that can have the value,
 * and its bounds said that it is the last; they pass entries of it only by
 * changing it.  What left an upper tier before had been put into a leaf (I1),
 * so whoever missed it there finds the count changed.  What comes later is of a
 * row that the snapshot does not see, or of a publication that was not over
 * when the scan began.
 *
 * Each change of a leaf is counted, while the leaf is locked exclusively
 * (rel/cb_change.h).  Redo does not count; cached entries are neither kept nor
 * looked for in recovery, nor by transactions that began in it.
 *
 * They are the attachment's whose buckets the look-up saw, so none is of
 * another build of the index.  No function here takes a lock, allocates memory
 * or raises an error; all may be called in critical sections.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_ENTRY_CACHE_H
#define CB_ENTRY_CACHE_H

#include "postgres.h"

#include "access/itup.h"
#include "core/cb_cacheset.h"
#include "storage/block.h"
#include "utils/rel.h"

/* larger entries are not kept */
#define CB_ENTRY_CACHE_MAX_TUPLE	(CB_CACHESET_DATA * sizeof(uint64))

typedef union CbCachedTuple
{
	IndexTupleData header;
	uint64		words[CB_CACHESET_DATA];
} CbCachedTuple;

/* where an entry was found, and the leaf's count of changes then */
typedef struct CbCachedLeaf
{
	BlockNumber block;
	uint64		changes;
} CbCachedLeaf;

extern void cb_entry_cache_shmem_request(uint64 pool_size);
extern void cb_entry_cache_shmem_startup(uint64 pool_size);
extern bool cb_entry_cache_is_kept(void);
extern void cb_entry_cache_keep(Relation rel, uint64 attach_id, uint32 hash,
								BlockNumber leaf, IndexTuple itup);
extern bool cb_entry_cache_find(Relation rel, uint64 attach_id, uint32 hash,
								CbCachedTuple *tuple, CbCachedLeaf *leaf);
extern bool cb_entry_cache_is_same(Relation rel, const CbCachedLeaf *leaf);
extern void cb_entry_cache_drop(uint64 attach_id, uint32 hash);

#endif							/* CB_ENTRY_CACHE_H */
