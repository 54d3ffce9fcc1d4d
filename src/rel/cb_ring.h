/*-------------------------------------------------------------------------
 *
 * cb_ring.h
 *	  Workers read large indexes by way of a ring of buffers.
 *
 * A batch touches many pages once.  In an index that does not fit into
 * shared_buffers they would evict what sessions use, and leave it to sessions
 * to write them.  The server has rings of buffers for such work (its buffer
 * access strategies): who needs another page takes a buffer of its ring,
 * and writes the page that was in it.  A page that others use meanwhile stays.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_RING_H
#define CB_RING_H

#include "postgres.h"

#include "storage/bufmgr.h"
#include "utils/rel.h"

extern void cb_ring_make(void);
extern Buffer cb_ring_read(Relation rel, BlockNumber blkno);
extern Buffer cb_ring_extend(Relation rel);

#endif							/* CB_RING_H */
