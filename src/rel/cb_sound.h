/*-------------------------------------------------------------------------
 *
 * cb_sound.h
 *	  Reading pages in, and looking whether they are sound.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_SOUND_H
#define CB_SOUND_H

#include "page/cb_page.h"
#include "storage/bufmgr.h"

/* What entries read from disk are to look like; NULL: nobody need look. */
extern TupleDesc cb_sound_desc(Relation rel);

/* Is there such a block? */
extern bool cb_sound_has_block(Relation rel, BlockNumber blkno);

/* As ReadBufferExtended() of the main fork; an unsound page is marked. */
extern Buffer cb_sound_read(Relation rel, BlockNumber blkno,
							BufferAccessStrategy strategy);

/* As LockBuffer() of a page that a link has led to. */
extern void cb_sound_lock(Relation rel, Buffer buf, int mode);

/* Are the items from first to last, which lie inside the page, separators or bounds? */
extern bool cb_sound_pivots(Relation rel, Page page, OffsetNumber first,
							OffsetNumber last);

/* As PrefetchBuffer(); a block that there is not is left alone. */
extern PrefetchBufferResult cb_sound_prefetch(Relation rel, BlockNumber blkno);

#endif							/* CB_SOUND_H */
