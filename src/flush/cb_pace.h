/*-------------------------------------------------------------------------
 *
 * cb_pace.h
 *	  Flushes give way to scans.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_PACE_H
#define CB_PACE_H

/* what a worker has done since its last pause; begins with zeroes */
typedef struct CbPace
{
	int64		worked;			/* microseconds */
	uint64		scans;			/* that began meanwhile */
	int64		began;			/* by cb_pace.c's clock */
	uint64		scans_before;
} CbPace;

/* A scan begins in a range that has runs. */
extern void cb_pace_note_scan(void);

/* Around a worker's transaction; more: it has more to do. */
extern void cb_pace_begin(CbPace *pace);
extern void cb_pace_end(CbPace *pace, bool more);

/* Microseconds for which a worker should pause now. */
extern int64 cb_pace_left(void);

/* Waits for room in the pool while a worker pauses; false: help yourself. */
extern bool cb_pace_wait_for_room(void);

#endif							/* CB_PACE_H */
