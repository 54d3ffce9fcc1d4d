/*-------------------------------------------------------------------------
 *
 * cb_verify.h
 *	  What the parts of cache_batch_verify() share.
 *
 * Each function that checks something raises an error at the first fault.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_VERIFY_H
#define CB_VERIFY_H

#include "rel/cb_key.h"
#include "storage/bufmgr.h"
#include "utils/tuplesort.h"

/* the downlinks of one level, left to right */
typedef struct CbVerifyLinks
{
	int64		n;
	int64		size;
	BlockNumber *children;
	IndexTuple *separators;		/* NULL: minus infinity */
} CbVerifyLinks;

typedef struct CbVerify
{
	Relation	rel;
	CbKeyDesc	kd;
	bool		strict;			/* nobody else changes the index */
	BufferAccessStrategy strategy;
	MemoryContext page_cxt;		/* reset after each page */
	Tuplesortstate *indexed;	/* fingerprints of entries, or NULL */
	Tuplesortstate *visible;	/* fingerprints of rows, ... */
	int64		nrows;			/* ... of so many */
	BlockNumber nblocks;
	uint8	   *seen;			/* bitmap of blocks reached; only if strict */

	/* the page that is being checked */
	BlockNumber blkno;
	PGAlignedBlock page;
	uint64		reuses;			/* cb_counts_reuses() when it was locked */
	int			npacked;		/* items of its packed part, which come first */
	int			nitems;
	IndexTuple *items;			/* without high key */

	/* the level that is being walked */
	uint32		level;
	IndexTuple	low;			/* high key of the page on the left, or NULL */
	BlockNumber left;			/* that page, or Invalid, ... */
	XLogRecPtr	left_lsn;		/* ... when it was read */
	bool		left_incomplete;	/* that page's split is incomplete */
	int64		nextlink;		/* next of above not met yet */
	CbVerifyLinks above;		/* what should lead to this level's pages */
	CbVerifyLinks below;		/* this level's own downlinks */
} CbVerify;

/* what a data item may be */
typedef enum CbVerifyForm
{
	CB_FORM_ENTRY,
	CB_FORM_SEPARATOR,
	CB_FORM_MINUS_INFINITY
} CbVerifyForm;

/* ---------- cb_verify.c ---------- */

/* Raises the error for the current page. */
#define cb_verify_fail(v, ...) \
	cb_report_corrupt((v)->rel, (v)->blkno, __VA_ARGS__)

/* Copies a block into v->page; the link that led to it is from "from". */
extern void cb_verify_read(CbVerify *v, BlockNumber blkno, BlockNumber from);

/* Marks the current block as reached; each block has one place. */
extern void cb_verify_mark_seen(CbVerify *v);

/* Checks what every kind of page has. */
extern void cb_verify_page_frame(CbVerify *v);

/* Reads and checks the metapage. */
extern void cb_verify_meta(CbVerify *v, CbMetaPageData *meta);

/* Checks that a tuple is a plain leaf entry, and takes its fingerprint. */
extern void cb_verify_entry(CbVerify *v, IndexTuple itup, unsigned where);

/* Checks the form of a high key or of a downlink. */
extern void cb_verify_pivot(CbVerify *v, IndexTuple itup, CbVerifyForm form,
							OffsetNumber off);

/* Checks line pointers: every item inside the page, none over another. */
extern void cb_verify_line_pointers(CbVerify *v);

/* Lists the items of the current page: those of a leaf's packed part first. */
extern void cb_verify_list_items(CbVerify *v);

extern void cb_verify_add_link(CbVerifyLinks *links, BlockNumber child,
							   IndexTuple separator);
extern void cb_verify_free_links(CbVerifyLinks *links);

/* ---------- cb_verify_range.c ---------- */

/* Checks d, and what e says of range pages and runs; see cb_verify.c. */
extern void cb_verify_ranges(CbVerify *v);

#endif							/* CB_VERIFY_H */
