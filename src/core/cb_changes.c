/*-------------------------------------------------------------------------
 *
 * cb_changes.c
 *	  Counts of the changes of blocks.
 *
 *-------------------------------------------------------------------------
 */
#include "core/cb_changes.h"

#include "core/cb_mix.h"

#define CB_CHANGES_MASK		((UINT64_C(1) << 48) - 1)

/*
 * Sets all counts to 0.  Nobody else may use the counts yet; they are the
 * caller's memory, of which *changes keeps the address.
 */
void
cb_changes_init(CbChanges *changes, cb_atomic64 *counts, uint32_t ncounts)
{
	changes->counts = counts;
	changes->ncounts = ncounts;
	for (uint32_t i = 0; i < ncounts; i++)
		cb_store_relaxed(&counts[i], 0);
}

static inline cb_atomic64 *
cb_changes_slot(const CbChanges *changes, uint64_t file, uint32_t block)
{
	return &changes->counts[cb_mix_place(cb_mix(file) + block,
										 changes->ncounts)];
}

/*
 * A block's count; 48 bits of it.  file: any number that tells files apart.
 * An acquire: what is read of the block afterwards is not older than the
 * count.
 */
uint64_t
cb_changes_count(const CbChanges *changes, uint64_t file, uint32_t block)
{
	return cb_load_acquire(cb_changes_slot(changes, file, block)) &
		CB_CHANGES_MASK;
}

/*
 * The block is being changed; nobody reads it until that is done.  An acquire
 * and a release.
 */
void
cb_changes_note(const CbChanges *changes, uint64_t file, uint32_t block)
{
	(void) cb_fetch_add(cb_changes_slot(changes, file, block), 1);
}
