/*-------------------------------------------------------------------------
 *
 * cb_clock.h
 *	  How long ago something was.
 *
 * Times are those of a clock that nobody sets, which goes on evenly and is the
 * same for all processes of a server: else a machine's clock that is set back by
 * an hour would have entries, failed buckets and databases wait for an hour more
 * (C16).  They are TimestampTz, so that the server's functions for differences
 * serve, but of no calendar.  0 is never now.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_CLOCK_H
#define CB_CLOCK_H

#include "portability/instr_time.h"
#include "utils/timestamp.h"

static inline TimestampTz
cb_clock_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (TimestampTz) INSTR_TIME_GET_MICROSEC(now);
}

/* The same time by the calendar, as the machine's clock says now. */
static inline TimestampTz
cb_clock_to_timestamptz(TimestampTz at)
{
	return GetCurrentTimestamp() - (cb_clock_now() - at);
}

#endif							/* CB_CLOCK_H */
