/*-------------------------------------------------------------------------
 *
 * cb_scan_rows.c
 *	  Rows that a scan returns soon are brought near.
 *
 * In the order of the keys rows can lie anywhere.  For each one the server waits
 * for memory several times in turn: for its table of buffers, the buffer's
 * descriptor, the page, and the row.  A window has the entries that come next,
 * so their rows are asked for beforehand, and the page of the one that is
 * returned is pinned without the server's table, by the hints of cb_recent.h.
 *
 * A hint may be wrong.  What is read of a page that is not pinned tells which
 * bytes to bring into the processor's caches, no more.  A page that is pinned is
 * the right one (ReadRecentBuffer), and is left to the table scan, which has it
 * pinned between rows anyway: it finds that it need not turn to another page,
 * and lets go of it as of its own.  What it does when it turns to one, prune it,
 * is done here.
 *
 * So this knows how heap tables are scanned, and is for them alone.  No lock is
 * taken but to pin a page, and by pruning.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "am/cb_scan.h"
#include "port/pg_bitutils.h"
#include "rel/cb_recent.h"
#include "storage/buf_internals.h"

/* so many entries before its turn ... */
#define CB_ROWS_FIND	8		/* the hint of a row's page is asked for, */
#define CB_ROWS_PAGE	6		/* the page, */
#define CB_ROWS_ROW		3		/* and the row */

/* What the table scan has at hand, NULL if it is none of a heap. */
static inline IndexFetchHeapData *
cb_rows_get_fetch(IndexScanDesc scan)
{
	if (scan->xs_heapfetch == NULL ||
		scan->heapRelation->rd_tableam != GetHeapamTableAmRoutine())
		return NULL;
	return (IndexFetchHeapData *) scan->xs_heapfetch;
}

/* ---------- asking beforehand ---------- */

/* The row's page will be looked for. */
static pg_attribute_always_inline void
cb_rows_ask_place(Relation heap, ItemPointer tid)
{
	cb_recent_prefetch(heap, ItemPointerGetBlockNumberNoCheck(tid));
}

/* The row's page will be pinned and read: its header and the row's line pointer. */
static pg_attribute_always_inline void
cb_rows_ask_page(Relation heap, ItemPointer tid)
{
	Buffer		buf = cb_recent_find(heap, ItemPointerGetBlockNumberNoCheck(tid));
	const char *page;

	if (!BufferIsValid(buf))
		return;
	page = (const char *) BufferGetBlock(buf);
	__builtin_prefetch(GetBufferDescriptor(buf - 1), 1);
	__builtin_prefetch(page);
	__builtin_prefetch(page + SizeOfPageHeaderData +
					   sizeof(ItemIdData) * ItemPointerGetOffsetNumberNoCheck(tid));
}

/* The row will be read.  Its page may be another one by now, or be changing. */
static pg_attribute_always_inline void
cb_rows_ask_row(Relation heap, ItemPointer tid)
{
	Buffer		buf = cb_recent_find(heap, ItemPointerGetBlockNumberNoCheck(tid));
	uint32		i = ((uint32) ItemPointerGetOffsetNumberNoCheck(tid) - 1) % MaxHeapTuplesPerPage;
	const char *page;

	if (!BufferIsValid(buf))
		return;
	page = (const char *) BufferGetBlock(buf);
	__builtin_prefetch(page + ((volatile PageHeaderData *) page)->pd_linp[i].lp_off % BLCKSZ);
}

/*
 * The TID of the entry so many behind the current one; NULL if there is none in
 * the window, or if it is on the current row's page.
 */
static inline ItemPointer
cb_rows_get_ahead(const CbWindow *window, int by)
{
	int			i = window->index + by;
	ItemPointer tid;

	if (i < 0 || i >= window->nitems)
		return NULL;
	tid = &window->items[i].itup->t_tid;
	return ItemPointerGetBlockNumberNoCheck(tid) ==
		ItemPointerGetBlockNumberNoCheck(&window->items[window->index].itup->t_tid) ? NULL : tid;
}

/* Asks for the rows that come behind the window's current entry. */
static void
cb_rows_ask_next(Relation heap, const CbWindow *window, ScanDirection dir)
{
	ItemPointer tid;

	if ((tid = cb_rows_get_ahead(window, CB_ROWS_FIND * (int) dir)) != NULL)
		cb_rows_ask_place(heap, tid);
	if ((tid = cb_rows_get_ahead(window, CB_ROWS_PAGE * (int) dir)) != NULL)
		cb_rows_ask_page(heap, tid);
	if ((tid = cb_rows_get_ahead(window, CB_ROWS_ROW * (int) dir)) != NULL)
		cb_rows_ask_row(heap, tid);
}

/* Asks for the rows of some of the window's entries from one on: a bit each. */
void
cb_scan_rows_ask_some(IndexScanDesc scan, int from, uint64 some)
{
	const CbScanItem *items = ((CbScanOpaque) scan->opaque)->cur->items + from;
	Relation	heap = scan->heapRelation;

	if (cb_rows_get_fetch(scan) == NULL)
		return;
	for (uint64 left = some; left != 0; left &= left - 1)
		cb_rows_ask_place(heap, &items[pg_rightmost_one_pos64(left)].itup->t_tid);
	for (uint64 left = some; left != 0; left &= left - 1)
		cb_rows_ask_page(heap, &items[pg_rightmost_one_pos64(left)].itup->t_tid);
	for (uint64 left = some; left != 0; left &= left - 1)
		cb_rows_ask_row(heap, &items[pg_rightmost_one_pos64(left)].itup->t_tid);
}

/* ---------- the table's scan ---------- */

/* Notes where the row was that the server has looked at last. */
void
cb_scan_rows_note(IndexScanDesc scan)
{
	IndexFetchHeapData *fetch = cb_rows_get_fetch(scan);
	BlockNumber blkno;

	if (fetch == NULL || !BufferIsValid(fetch->xs_cbuf))
		return;
	blkno = BufferGetBlockNumber(fetch->xs_cbuf);
	if (cb_recent_find(scan->heapRelation, blkno) != fetch->xs_cbuf)
		cb_recent_note(scan->heapRelation, blkno, fetch->xs_cbuf);
}

/*
 * Turns the table scan to the row's page, if it is known where that is: the row
 * is looked at next.  The pin is the table scan's.  No lock is held on entry or
 * on return; the page may be pruned.
 */
static void
cb_rows_turn(Relation heap, IndexFetchHeapData *fetch, ItemPointer tid)
{
	BlockNumber blkno = ItemPointerGetBlockNumberNoCheck(tid);
	Buffer		buf;

	if (BufferIsValid(fetch->xs_cbuf) && BufferGetBlockNumber(fetch->xs_cbuf) == blkno)
		return;
	buf = cb_recent_find(heap, blkno);
	if (!cb_rel_pin_recent(heap, blkno, buf))
		return;
	if (BufferIsValid(fetch->xs_cbuf))
		ReleaseBuffer(fetch->xs_cbuf);
	fetch->xs_cbuf = buf;
	heap_page_prune_opt(heap, buf);
}

/* The row is looked at next: as cb_rows_turn(). */
void
cb_scan_rows_turn(IndexScanDesc scan, ItemPointer tid)
{
	IndexFetchHeapData *fetch = cb_rows_get_fetch(scan);

	if (fetch != NULL)
		cb_rows_turn(scan->heapRelation, fetch, tid);
}

/*
 * The same for that of the window's current entry; those of the next ones are
 * asked for.
 */
void
cb_scan_rows_come(IndexScanDesc scan, ScanDirection dir)
{
	const CbWindow *window = ((CbScanOpaque) scan->opaque)->cur;
	IndexFetchHeapData *fetch = cb_rows_get_fetch(scan);

	if (fetch == NULL)
		return;
	cb_rows_ask_next(scan->heapRelation, window, dir);
	cb_rows_turn(scan->heapRelation, fetch, &window->items[window->index].itup->t_tid);
}
