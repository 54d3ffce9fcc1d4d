/*-------------------------------------------------------------------------
 *
 * cb_waiter.c
 *	  Does somebody wait for a lock that this process holds?
 *
 * The server's LockHasWaiters() must not be asked for a lock that was taken by
 * the fast path, as weak locks on relations are.  For these another weak lock
 * is taken that this process does not hold, and given back at once.  Before
 * version 17 it is not granted if it conflicts with one that somebody waits
 * for.  From then on it is, but not by the fast path, as whoever waits for a
 * lock that conflicts with a weak one has closed that for the relation; so it
 * can be asked for.
 *
 * The table's lock that a flush holds to ask for dead rows is AccessShareLock,
 * and RowShareLock is what is asked for.  It conflicts with ExclusiveLock,
 * too, which others may hold beside ours; then the flush has not asked for the
 * table's lock in the first place (tree/cb_dead.c).
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"

#include "base/cb_clock.h"
#include "base/cb_waiter.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"

/* how often to look */
#define CB_WAITER_LOOK_MS	10

static Oid	cb_waiter_indexoid = InvalidOid;
static Oid	cb_waiter_heapoid;
static LOCKMODE cb_waiter_heapmode;
static int	cb_waiter_nheap = 0;	/* how often it was said that it is held */
static TimestampTz cb_waiter_look_at;
static bool cb_waiter_found;

/* Takes a lock if that needs no wait; *local is what this process has of it. */
static bool
cb_waiter_probe(const LOCKTAG *tag, LOCKMODE mode, LOCALLOCK **local)
{
#if PG_VERSION_NUM >= 180000
	return LockAcquireExtended(tag, mode, false, true, true, local, false) !=
		LOCKACQUIRE_NOT_AVAIL;
#else
	return LockAcquireExtended(tag, mode, false, true, true, local) !=
		LOCKACQUIRE_NOT_AVAIL;
#endif
}

/* Does somebody wait for a lock that conflicts with this one of ours? */
static bool
cb_waiter_is_for(Oid relid, LOCKMODE mode)
{
	LOCKMODE	probe = mode == AccessShareLock ? RowShareLock : AccessShareLock;
	LOCALLOCK  *local;
	LOCKTAG		tag;
	bool		found;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	if (mode >= ShareUpdateExclusiveLock)
		return LockHasWaiters(&tag, mode, false);
	if (!cb_waiter_probe(&tag, probe, &local))
		return true;
	found = local->lock != NULL && LockHasWaiters(&tag, probe, false);
	LockRelease(&tag, probe, false);
	return found;
}

/*
 * This process gives way from now on, until cb_waiter_end(), which is to be
 * called when its transaction has ended.  It holds RowExclusiveLock on the
 * index.
 */
void
cb_waiter_begin(Oid indexoid)
{
	cb_waiter_indexoid = indexoid;
	cb_waiter_nheap = 0;
	cb_waiter_found = false;
}

/* It does not give way any more; also after an error, and if it never did. */
void
cb_waiter_end(void)
{
	cb_waiter_indexoid = InvalidOid;
}

/* Does this process give way? */
bool
cb_waiter_is_watching(void)
{
	return OidIsValid(cb_waiter_indexoid);
}

/*
 * If this process gives way: to those as well who wait for this lock on the
 * index's table, which it holds, until it has said as often by
 * cb_waiter_forget_table() that it does not any more.  False: it should not
 * hold it, as somebody waits already; then that is not to be called.  May take
 * locks of the lock manager.
 */
bool
cb_waiter_watch_table(Oid heapoid, LOCKMODE mode)
{
	if (!cb_waiter_is_watching())
		return true;
	if (cb_waiter_is_for(heapoid, mode))
		return false;
	if (cb_waiter_nheap++ == 0)
	{
		cb_waiter_heapoid = heapoid;
		cb_waiter_heapmode = mode;
	}
	return true;
}

/* The table's lock is given back, or will be at once. */
void
cb_waiter_forget_table(void)
{
	if (cb_waiter_nheap > 0)
		cb_waiter_nheap--;
}

static bool
cb_waiter_look(void)
{
	/* who waits for our transaction has moved its lock to the main table */
	return !MyProc->fpVXIDLock ||
		cb_waiter_is_for(cb_waiter_indexoid, RowExclusiveLock) ||
		(cb_waiter_nheap > 0 &&
		 cb_waiter_is_for(cb_waiter_heapoid, cb_waiter_heapmode));
}

/*
 * Does somebody wait?  Looks every few milliseconds; once found, it is so to
 * the transaction's end.  False in a process that does not give way.  May take
 * locks of the lock manager.
 */
bool
cb_waiter_is_there(void)
{
	TimestampTz now;

	if (likely(!cb_waiter_is_watching()))
		return false;
	if (cb_waiter_found)
		return true;
	now = cb_clock_now();
	if (now < cb_waiter_look_at)
		return false;
	cb_waiter_look_at = TimestampTzPlusMilliseconds(now, CB_WAITER_LOOK_MS);
	cb_waiter_found = cb_waiter_look();
	return cb_waiter_found;
}
