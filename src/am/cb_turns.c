/*-------------------------------------------------------------------------
 *
 * cb_turns.c
 *	  The windows of a parallel index scan, which its processes read in turn.
 *
 * The windows are those of one scan.  Shared memory has the place where the
 * next one starts.  Who takes its turn there (I14_TURN) reads the window, and
 * passes the turn on with the place that comes after it, as soon as that is
 * certain:
 *
 *	- where the leaf alone has entries for the window, when the leaf has been
 *	  read.  The window ends at the leaf's bound then, whatever is in it;
 *	- else when the window has been read, as it may end earlier, or tell where
 *	  the scan goes (I14_GOES), which is the next point where the window was for
 *	  one (I14_POINT).
 *
 * A scan that starts again starts the turns again (I14_RESCAN).  A bitmap is
 * made by one process, and a mark is never set.
 *
 * Others wait meanwhile.  They hold no lock, and no pin of the index, and can
 * be cancelled.  Who has the turn waits for nobody who waits for it.  If it
 * fails the query does, and the server ends the others.
 *
 * A place is a bound beside an entry, or at a separator, so that it needs no
 * memory of a process; what the scan's keys say of it the next process finds
 * out for itself.  Or it is one of the points of the first column (CbPlace), by
 * its number: all processes have the same keys, so the same points.
 *
 * Why each entry is returned once, by one process (I14):
 *
 *	- Bounds are in the order of (key, TID), in which an entry never moves.  The
 *	  next window starts where this one ends, or where this one says that the
 *	  scan goes, with nothing wanted in between.  So windows do not overlap,
 *	  and leave out nothing that is wanted, whatever is split, merged, flushed
 *	  or unlinked from one to the other.
 *	- Each window is read by one process, upper tiers first (I2), with copies
 *	  of the journal that it made itself, under the query's one snapshot.
 *	- What has been passed on stands: a window is read again only in recovery,
 *	  where a run was lost, and that is known before.  It ends where it was
 *	  said to, as nothing ends it early then (I14_UPPER, I14_WHOLE).
 *
 * The leaf where the next window starts is passed on as well.  A link is good
 * as long as the snapshot is held under which it was read, and all processes
 * have the leader's, which it holds until they have ended; in recovery the
 * count of pages used again is in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "am/cb_scan.h"
#include "storage/condition_variable.h"
#include "storage/spin.h"

/*
 * In the scan's shared memory.  state is under the lock.  The rest belongs to
 * the process that has the turn.
 */
typedef struct CbTurns
{
	slock_t		lock;
	CbTurnState state;
	ConditionVariable cv;		/* signalled when the turn has been passed on */
	CbTurn		next;
} CbTurns;

/* amestimateparallelscan */
Size
cb_am_estimateparallelscan(CB_ESTIMATE_PARALLEL_PARAMETERS)
{
	return sizeof(CbTurns);
}

/* aminitparallelscan: nobody has had a turn yet. */
void
cb_am_initparallelscan(void *target)
{
	CbTurns    *turns = target;

	SpinLockInit(&turns->lock);
	ConditionVariableInit(&turns->cv);
	turns->state = CB_TURN_START;
}

static inline CbTurns *
cb_turns_of(IndexScanDesc scan)
{
	return (CbTurns *) OffsetToPointer(scan->parallel_scan,
									   scan->parallel_scan->ps_offset_am);
}

/*
 * The only place where the state changes.  A turn is taken when nobody has it;
 * it is passed on, or the scan ended, by who has it; a scan starts again when
 * all processes have come to its end or are gone.  Returns what the state was,
 * which is what it is if it cannot be changed so.
 */
static CbTurnState
cb_turns_change(CbTurns *turns, CbTurnState to)
{
	CbTurnState was;

	SpinLockAcquire(&turns->lock);
	was = turns->state;
	if (to != CB_TURN_TAKEN || (was != CB_TURN_TAKEN && was != CB_TURN_END))
		turns->state = to;
	SpinLockRelease(&turns->lock);
	return was;
}

/* amparallelrescan: no other process takes part in the scan at present. */
void
cb_am_parallelrescan(IndexScanDesc scan)
{
	(void) cb_turns_change(cb_turns_of(scan), CB_TURN_START);
}

/*
 * Waits for a turn.  Returns where its window starts: CB_TURN_START,
 * CB_TURN_POINT or CB_TURN_TUPLE, of which *turn tells more until the turn is
 * passed on; or CB_TURN_END, and it has no turn.  Holds no lock or pin.
 */
CbTurnState
cb_turns_take(IndexScanDesc scan, const CbTurn **turn)
{
	CbTurns    *turns = cb_turns_of(scan);
	CbTurnState was;

	while ((was = cb_turns_change(turns, CB_TURN_TAKEN)) == CB_TURN_TAKEN)
		ConditionVariableSleep(&turns->cv, cb_wait_event(CB_WAIT_TURN));
	ConditionVariableCancelSleep();
	*turn = &turns->next;
	if (was != CB_TURN_END)
		CB_TEST_POINT("turn-taken");
	return was;
}

/* Passes the turn on, or ends the scan, for all. */
static void
cb_turns_pass(CbTurns *turns, CbTurnState to)
{
	CB_TEST_POINT("turn-pass");
	(void) cb_turns_change(turns, to);
	if (to == CB_TURN_END)
		ConditionVariableBroadcast(&turns->cv);
	else
		ConditionVariableSignal(&turns->cv);
}

/* Ends the scan. */
void
cb_turns_end(IndexScanDesc scan)
{
	cb_turns_pass(cb_turns_of(scan), CB_TURN_END);
}

/* The next window is of this point. */
void
cb_turns_pass_point(IndexScanDesc scan, int cond, int point)
{
	CbTurns    *turns = cb_turns_of(scan);

	turns->next.cond = cond;
	turns->next.point = point;
	cb_turns_pass(turns, CB_TURN_POINT);
}

/* The next window starts at the place, whose bound is of a tuple. */
void
cb_turns_pass_place(IndexScanDesc scan, const CbPlace *place)
{
	CbTurns    *turns = cb_turns_of(scan);
	Size		size = IndexTupleSize(place->bound.tuple);

	Assert(place->bound.kind == CB_BOUND_TUPLE && size <= sizeof(PGAlignedBlock));
	memcpy(turns->next.tuple.data, place->bound.tuple, size);
	turns->next.after = place->bound.after;
	turns->next.leaf = place->leaf;
	cb_turns_pass(turns, CB_TURN_TUPLE);
}
