/*-------------------------------------------------------------------------
 *
 * cb_rel.h
 *	  What a backend knows of an index, and reading the index's pages.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_REL_H
#define CB_REL_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "page/cb_page.h"
#include "rel/cb_sound.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

/* a leaf that is known by its block; buf: where it was then, if in memory */
typedef struct CbLeafHint
{
	BlockNumber blkno;
	Buffer		buf;			/* not pinned */
	uint64		reuses;			/* cb_counts_reuses() when the leaf, or the
								 * page that has the link to it, was locked
								 * and in the tree */
} CbLeafHint;

/* words that an upper layer may keep with what is known of an index */
#define CB_REL_UPPER_WORDS	6

/*
 * What a backend remembers of an index in rd_amcache.  All of it are hints,
 * but the build id (cb_rel_build_id): pages are checked under their lock
 * before they are believed.  Dropped with the relcache entry's contents, and
 * by cb_rel_forget() when the file is made, or found to have been made, anew.
 */
typedef struct CbRelCache
{
	BlockNumber nblocks;		/* there were so many, at least */
	BlockNumber root;			/* Invalid: unknown */
	uint32		root_level;
	BlockNumber journal_block;	/* last journal page seen; Invalid: unknown */
	uint64		journal_seq;
	CbPos		journal_tail;	/* a tail that was seen; it only grows */
	bool		build_known;	/* are build_id and the roots set? */
	uint8		build_id[CB_BUILD_ID_LEN];
	BlockNumber range_root;		/* 0: there was none */
	BlockNumber tile_root;		/* the same */
	uint64		total_generation;	/* cb_key_total.c's, of ... */
	bool		total;			/* ... cb_key_is_total() */
	TimestampTz locking_since;	/* a serializable transaction's beginning, ... */
	int			nlocked;		/* ... which has locked so many values and cells */
	uint64		upper[CB_REL_UPPER_WORDS];	/* an upper layer's (bucket/),
											 * which alone reads it; 0 to
											 * begin with */
	bool		hashes_known;	/* cb_unique.c's: is this set? */
	FmgrInfo   *hashes[FLEXIBLE_ARRAY_MEMBER];	/* of a unique index's key
												 * columns; NULL: there is none */
} CbRelCache;

/* ---------- what is known of an index ---------- */

extern CbRelCache *cb_rel_cache(Relation rel);
extern void cb_rel_forget(Relation rel);
extern void cb_rel_read_meta(Relation rel, Snapshot snapshot,
							 CbMetaPageData *meta);
extern const uint8 *cb_rel_build_id(Relation rel);

/* ---------- reading pages ---------- */

extern bool cb_rel_pin_recent(Relation rel, BlockNumber blkno, Buffer buf);
extern Buffer cb_rel_read_buffer(Relation rel, BlockNumber blkno);
extern bool cb_rel_has_locked(Buffer buf);
extern void cb_rel_prefetch(Relation rel, CbLeafHint *hints, int n);

/* Header and special area are looked at first: wait for both at once. */
static pg_attribute_always_inline void
cb_rel_prefetch_ends(const char *page)
{
	__builtin_prefetch(page);
	__builtin_prefetch(page + BLCKSZ - sizeof(CbPageOpaqueData));
}

#endif							/* CB_REL_H */
