/*-------------------------------------------------------------------------
 *
 * cb_alloc.h
 *	  Getting pages of an index, and giving them up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_ALLOC_H
#define CB_ALLOC_H

#include "postgres.h"

#include "access/xlogreader.h"
#include "page/cb_page.h"
#include "storage/buf.h"
#include "utils/rel.h"

extern Buffer cb_rel_alloc_page(Relation rel);
extern void cb_rel_return_page(Relation rel, Buffer buf);
extern void cb_rel_free_pages(Relation rel, BlockNumber *pages, int n, bool early);
extern bool cb_rel_page_is_free(Page page, CbPos tail);
extern uint32 cb_rel_incarnation(void);
extern bool cb_rel_map_is_complete(Relation rel);
extern void cb_rel_note_map(Relation rel, bool complete);
extern void cb_redo_reuse_page(XLogReaderState *record);

#endif							/* CB_ALLOC_H */
