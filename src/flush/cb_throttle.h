/*-------------------------------------------------------------------------
 *
 * cb_throttle.h
 *	  Flushes give way to scans.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_THROTTLE_H
#define CB_THROTTLE_H

/* what a worker has done since its last pause; begins with zeroes */
typedef struct CbThrottle
{
	int64		worked;			/* microseconds */
	uint64		scans;			/* that began meanwhile */
	int64		began;			/* by cb_throttle.c's clock */
	uint64		scans_before;
} CbThrottle;

/* A scan begins in a range that has runs. */
extern void cb_throttle_note_scan(void);

/* Around a worker's transaction; more: it has more to do. */
extern void cb_throttle_begin(CbThrottle *throttle);
extern void cb_throttle_end(CbThrottle *throttle, bool more);

/* Microseconds for which a worker should pause now. */
extern int64 cb_throttle_left(void);

/* Waits for room in the pool while a worker pauses; false: help yourself. */
extern bool cb_throttle_wait_for_room(void);

#endif							/* CB_THROTTLE_H */
