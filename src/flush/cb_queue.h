/*-------------------------------------------------------------------------
 *
 * cb_queue.h
 *	  Requests to flush buckets, from any backend to the workers.
 *
 * Each database that has work for workers has a place of its own with a
 * queue.  What a request says is a hint: whoever takes it looks at the bucket
 * again, so a request that reached the wrong database's queue is passed on.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_QUEUE_H
#define CB_QUEUE_H

#include "flush/cb_flush.h"

typedef struct CbRequest
{
	uint32		bucket;
	CbFlushCause cause;
} CbRequest;

typedef enum CbTaken
{
	CB_TAKEN_NOTHING,			/* the queue is empty */
	CB_TAKEN_REQUEST,
	CB_TAKEN_LATER				/* somebody is putting one in just now */
} CbTaken;

extern void cb_queue_shmem_request(void);
extern void cb_queue_shmem_startup(void);

/* Asks that a bucket be flushed; a hint. */
extern void cb_queue_request(uint32 bucket, CbFlushCause cause);

/* Are requests of this database served, or should callers flush themselves? */
extern bool cb_queue_is_served(void);
extern bool cb_queue_will_be_served(void);

/* ---------- for those who serve them; place: of a database ---------- */

extern CbTaken cb_queue_take(int place, CbRequest *request);
extern bool cb_queue_is_empty(int place);
extern void cb_queue_discard(int place);

#endif							/* CB_QUEUE_H */
