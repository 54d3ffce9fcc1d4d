/*-------------------------------------------------------------------------
 *
 * cb_scan_ahead.c
 *	  Reading ahead of a scan that goes from leaf to leaf.
 *
 * A scan that has had to wait for a leaf's file looks up which leaves come
 * next (tree/cb_ahead.c), and has some of them read in at a time: as many as
 * effective_io_concurrency says, by and by, as a scan may be ended at any time
 * by who has asked for it.  One for a bitmap may not, so it begins with all of
 * them, and at its first leaf; others at their second one.  A scan that finds
 * its leaves in memory does nothing but to notice that.
 *
 * Where the keys want several values the list ends with the present one, as the
 * next may be far away.  But a scan that has come to another value by reading on,
 * or has gone forward to one in its leaf or in the next one, will go on so, as a
 * rule: then the list has all leaves, until a value lies further on.
 *
 * All that is known here are hints, so nothing is checked: a page that is
 * asked for in vain costs its reading.
 *
 * No entry is looked for by the list of leaves: the scan goes as without it,
 * under the locks and in the order of I2.  A block may be read in vain; it
 * stays in the file as long as the scan has its lock on the index, and the
 * list does not outlive the scan's start, direction or keys.  The page above
 * the leaves is share-locked while the scan holds no lock (I9), by a descent
 * under its snapshot.  Nothing is concluded from it for the answer, so it is
 * not tested for its age (A16).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_scan.h"
#include "base/cb_base.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/* after so many in a row that were in memory no more are asked for */
#define CB_SCAN_AHEAD_FOUND	16

/* leaves that an ordered scan has read before it reads ahead */
#define CB_SCAN_AHEAD_MIN	2

/*
 * Pages that a scan may ask for before it needs them, by the tablespace's
 * effective_io_concurrency; 0: none.
 */
int
cb_scan_ahead_max(Relation rel)
{
	return Min(get_tablespace_io_concurrency(rel->rd_rel->reltablespace),
			   CB_AHEAD_MAX / 2);
}

/*
 * The scan goes elsewhere, or turns round: forgets which leaves come next.
 * Memory is kept for the next list.
 */
static void
cb_scan_ahead_reset(CbScanAhead *ahead)
{
	ahead->dense = false;
	ahead->dir = NoMovementScanDirection;
	ahead->leaf = ahead->next = InvalidBlockNumber;
	ahead->nleaves = 0;
	ahead->on = false;
	ahead->seen = ahead->asked = 0;
	if (ahead->list != NULL)
		ahead->list->n = 0;
}

/*
 * The scan starts, perhaps with other keys: the list may end at values that are
 * gone.  A process of a parallel scan need not be the one that begins at its start,
 * so cb_scan_ahead_go() would not do.
 */
void
cb_scan_ahead_start(CbScanAhead *ahead)
{
	cb_scan_ahead_reset(ahead);
	ahead->points = NULL;
	ahead->hops = false;
}

/*
 * The scan goes to so->pos, a place of its keys: is it the next point, in the leaf
 * that it came to last, or right of that?
 */
static bool
cb_scan_ahead_is_near(const CbScanOpaqueData *so, ScanDirection dir)
{
	const CbScanAhead *ahead = &so->ahead;
	BlockNumber leaf = so->pos.leaf.blkno;

	return ahead->dir == dir && ahead->points != NULL &&
		ahead->points == so->pos.points && leaf != InvalidBlockNumber &&
		(leaf == ahead->leaf || leaf == ahead->next);
}

static inline void
cb_scan_ahead_set_dense(CbScanAhead *ahead)
{
	if (ahead->dense)
		return;
	ahead->dense = true;
	ahead->on = false;
}

/* The scan goes to so->pos, a place of its keys, of whose leaf it knows what it can. */
void
cb_scan_ahead_go(CbScanOpaque so, ScanDirection dir)
{
	CbScanAhead *ahead = &so->ahead;

	if (cb_scan_ahead_is_near(so, dir))
		cb_scan_ahead_set_dense(ahead);
	else
		cb_scan_ahead_reset(ahead);
	ahead->points = so->pos.points;
	ahead->point = so->pos.point;
}

/* Are all leaves up to the list's end wanted? */
static inline bool
cb_scan_ahead_whole(const CbScanAhead *ahead)
{
	return ahead->whole && !ahead->hops && !ahead->dense;
}

/*
 * Takes note that the scan has come to its leaf.  Returns whether that is in
 * the list; *asked: and was asked for.
 */
static bool
cb_scan_ahead_pass(CbScanAhead *ahead, bool *asked)
{
	CbAhead    *list = ahead->list;

	*asked = false;
	for (int i = ahead->seen; list != NULL && i < list->n; i++)
	{
		if (list->leaves[i].blkno != ahead->leaf)
			continue;
		*asked = i < ahead->asked;
		ahead->seen = i + 1;
		ahead->asked = Max(ahead->asked, ahead->seen);
		return true;
	}
	return false;
}

/*
 * Sets the list's end: that of the scan, or, if it goes to points far from each
 * other, where the present one ends.  What cannot be searched for is as none.
 */
static void
cb_scan_ahead_set_end(CbScanOpaque so)
{
	CbScanAhead *ahead = &so->ahead;
	bool		forward = ScanDirectionIsForward(ahead->dir);
	CbKeyPlace	end;

	if (ahead->points != NULL && !ahead->dense)
		cb_keyspace_go_to_point(&so->keys.space, ahead->points, ahead->point,
								!forward, &end);
	else
		cb_keyspace_start(&so->keys.space, !forward, &end);
	if (!cb_keys_can_bound(&end))
		end.nparts = 0;
	cb_keys_make_bound(&so->keys, &end, NULL, forward ? BackwardScanDirection :
					   ForwardScanDirection, ahead->end_keys, &ahead->list->end);
}

/* Begins the list of leaves beyond the scan's window. */
static void
cb_scan_ahead_begin_list(IndexScanDesc scan)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanAhead *ahead = &so->ahead;
	CbAhead    *list = ahead->list;
	const CbBound *from;

	if (list == NULL)
	{
		ahead->end_keys = MemoryContextAlloc(so->cxt, sizeof(CbBoundKey) * INDEX_MAX_KEYS);
		list = ahead->list = MemoryContextAlloc(so->cxt, sizeof(CbAhead));
	}
	from = ScanDirectionIsForward(ahead->dir) ? &so->cur->hi.bound : &so->cur->lo.bound;
	list->dir = ahead->dir;
	cb_scan_ahead_set_end(so);
	cb_tree_ahead_begin(&so->kd, list, from->kind == CB_BOUND_TUPLE ? from->tuple : NULL);
	ahead->seen = ahead->asked = 0;
	if (!list->done)
		cb_tree_ahead_extend(&so->kd, list);
}

/* Extends the list; what the scan is past is dropped. */
static void
cb_scan_ahead_extend_list(CbScanOpaque so)
{
	CbScanAhead *ahead = &so->ahead;
	CbAhead    *list = ahead->list;

	list->n -= ahead->seen;
	memmove(list->leaves, list->leaves + ahead->seen, list->n * sizeof(CbLeafHint));
	ahead->asked -= ahead->seen;
	ahead->seen = 0;
	cb_tree_ahead_extend(&so->kd, list);
}

/*
 * Asks for a leaf of the list.  One that stands in the file behind the leaf
 * before it is left to the kernel, which reads ahead in larger pieces there.
 */
static void
cb_scan_ahead_ask_leaf(CbScanOpaque so, CbLeafHint *leaf)
{
	CbScanAhead *ahead = &so->ahead;
	BlockNumber before = leaf > ahead->list->leaves ? leaf[-1].blkno : ahead->leaf;

	CB_TEST_POINT("scan-read-ahead");
	if (leaf->blkno == before + 1)
	{
		CB_TEST_POINT("scan-read-sequential");
		return;
	}
	cb_rel_prefetch(so->kd.rel, leaf, 1);
	ahead->nfound = BufferIsValid(leaf->buf) ? ahead->nfound + 1 : 0;
}

/* Asks for the leaves that the scan comes to within the distance. */
static void
cb_scan_ahead_ask(CbScanOpaque so)
{
	CbScanAhead *ahead = &so->ahead;
	CbAhead    *list = ahead->list;
	int			goal;

	if (ahead->seen + ahead->distance > list->n && !list->done)
		cb_scan_ahead_extend_list(so);
	goal = Min(ahead->seen + ahead->distance, list->n);
	for (; ahead->asked < goal; ahead->asked++)
		cb_scan_ahead_ask_leaf(so, &list->leaves[ahead->asked]);
	ahead->distance = Min(2 * ahead->distance, ahead->max);
	ahead->on = ahead->nfound < CB_SCAN_AHEAD_FOUND;
}

/*
 * The scan has read its window's leaf in this direction, and holds no lock.
 * missed: the leaf was not in memory.  Asks the kernel for leaves that come
 * next, if that pays; internal pages may be read for it, and comparison
 * functions run.
 */
void
cb_scan_read_ahead(IndexScanDesc scan, ScanDirection dir, bool missed)
{
	CbScanOpaque so = (CbScanOpaque) scan->opaque;
	CbScanAhead *ahead = &so->ahead;
	bool		listed;
	bool		asked;

	if (ahead->dir != dir)
	{
		cb_scan_ahead_reset(ahead);
		ahead->dir = dir;
	}
	ahead->next = so->cur->hi.bound.kind == CB_BOUND_TUPLE ? so->cur->hi.leaf.blkno :
		InvalidBlockNumber;
	if (ahead->leaf == so->cur->leaf.blkno)
		return;
	ahead->leaf = so->cur->leaf.blkno;
	ahead->nleaves++;
	if (ahead->points != NULL && ahead->points->near != ahead->point)
		cb_scan_ahead_set_dense(ahead);
	listed = cb_scan_ahead_pass(ahead, &asked);
	if (missed && !asked && (cb_scan_ahead_whole(ahead) || ahead->nleaves >= CB_SCAN_AHEAD_MIN))
	{
		ahead->max = cb_scan_ahead_max(scan->indexRelation);
		if (ahead->max == 0)
			return;
		if (!listed)
		{
			/* the leaf is in it if the window ends before the leaf does */
			cb_scan_ahead_begin_list(scan);
			(void) cb_scan_ahead_pass(ahead, &asked);
		}
		if (!ahead->on)
			ahead->distance = cb_scan_ahead_whole(ahead) ? ahead->max : 1;
		ahead->on = true;
		ahead->nfound = 0;
	}
	if (ahead->on)
		cb_scan_ahead_ask(so);
}
