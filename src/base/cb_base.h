/*-------------------------------------------------------------------------
 *
 * cb_base.h
 *	  Settings, preload check, counters and test points, used by every layer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_BASE_H
#define CB_BASE_H

#include "base/cb_compat.h"
#include "port/atomics.h"

/* ---------- settings (cb_guc.c) ---------- */

extern int	cb_journal_limit;	/* kB an index */
extern int	cb_stage_size;		/* kB an index */
extern int	cb_stage_total_size;	/* kB, all stages of a backend */

extern int	cb_pool_size;		/* kB; -1: as large as the LLC, 0: no buckets */

extern int	cb_max_workers;		/* background workers that flush */
extern int	cb_max_delay;		/* ms until a bucket's entries are flushed */
extern double cb_scan_delay;	/* ms that a worker pauses for a scan */

extern int	cb_entry_cache_size;	/* kB; -1: by the pool, 0: none */
extern int	cb_heat_size;		/* kB; -1: by shared_buffers, 0: no heat */
extern int	cb_heat_epoch;		/* s */
extern char *cb_cold_threshold;
extern int	cb_cold_rate;
extern char *cb_spill_threshold;
extern int	cb_spill_target;	/* entries a leaf */

extern bool cb_preloaded;		/* set by _PG_init */

extern void cb_guc_define(void);

/* Raises the error of C1 unless the library was preloaded. */
extern void cb_require_preload(void);

/* what a process waits for, as views of the server show it (cb_wait.c) */
typedef enum CbWait
{
	CB_WAIT_LAUNCHER_MAIN,		/* a request, in the launcher */
	CB_WAIT_WORKER_MAIN,		/* the same in a worker */
	CB_WAIT_WORKER_PAUSE,		/* a worker pauses for scans */
	CB_WAIT_WORKERS_LEAVE,		/* a database's workers, before a command */
	CB_WAIT_FLUSH,				/* others flush what VACUUM has to see gone */
	CB_WAIT_POOL_ROOM,			/* room in the pool */
	CB_WAIT_SHARED_COPY,		/* another process that sorts a journal */
	CB_WAIT_TURN				/* another process of a parallel scan */
} CbWait;

extern void cb_wait_shmem_request(void);
extern uint32 cb_wait_event(CbWait wait);

/* who a backend was before cb_owner_begin() */
typedef struct CbOwnerMark
{
	Oid			userid;
	int			sec_context;
	int			nestlevel;
} CbOwnerMark;

/* Runs as the relation's owner until cb_owner_end(), or an error. */
extern void cb_owner_begin(Relation rel, CbOwnerMark *mark);
extern void cb_owner_end(const CbOwnerMark *mark);

/* Raises the error of C11: it is used from within its own comparisons. */
pg_noreturn extern void cb_report_reentry(Relation index);

typedef enum CbBuffered
{
	CB_BUFFERED_AUTO,			/* if its comparisons are known to be total */
	CB_BUFFERED_ON,
	CB_BUFFERED_OFF
} CbBuffered;

/* index options; rd_options of a cachebatch index */
typedef struct CbOptions
{
	int32		varlena_header_;	/* varlena header (do not touch directly!) */
	int			fillfactor;
	bool		deduplicate_items;
	CbBuffered	buffered;		/* to be asked by cb_is_buffered() */
	bool		pack_leaves;	/* to be asked by cb_packs_leaves() */
	int			cold_threshold; /* offset of the string; 0: as the setting
								 * says */
	int			spill_threshold;	/* the same */
} CbOptions;

#define CB_MIN_FILLFACTOR		10
#define CB_DEFAULT_FILLFACTOR	90

#define CbGetFillFactor(rel) \
	((rel)->rd_options ? ((CbOptions *) (rel)->rd_options)->fillfactor : \
	 CB_DEFAULT_FILLFACTOR)

/* settings that say how large: "off", a size, or a part of shared_buffers */
#define CB_THRESHOLD_OFF	(-1)

extern bool cb_guc_parse_threshold(const char *value, int64 *kilobytes);

/* Kilobytes of an index beyond which its coldest leaves are packed. */
extern int64 cb_guc_cold_threshold(Relation index);

/* Kilobytes of an index beyond which buckets are flushed to range buffers. */
extern int64 cb_guc_spill_threshold(Relation index);

/* ---------- counters of an index (cb_stat.c) ---------- */

typedef enum CbCounter
{
	CB_STAT_STAGED,				/* entries taken by aminsert */
	CB_STAT_JOURNALED,			/* entries appended to the journal */
	CB_STAT_DIRECT,				/* entries applied to the tree without it */
	CB_STAT_FLUSHED,			/* entries moved from journal and buckets */
	CB_STAT_FLUSHES_LIMIT,		/* flushes and sweeps, by cause, as CbFlushCause */
	CB_STAT_FLUSHES_REQUEST,
	CB_STAT_FLUSHES_VACUUM,
	CB_STAT_FLUSHES_FULL,
	CB_STAT_FLUSHES_PRESSURE,
	CB_STAT_FLUSHES_DELAY,
	CB_STAT_FLUSHES_HELP,
	CB_STAT_FLUSHES_READS,
	CB_STAT_LEAF_VISITS,		/* leaves locked and changed by applies */
	CB_STAT_DESCENTS,			/* descents from the root by applies */
	CB_STAT_APPLIED,			/* entries those applies put into leaves */
	CB_STAT_NO_ROOM,			/* publications that found the pool full */
	CB_STAT_JOURNAL_READS,		/* journal pages read into private copies */
	CB_STAT_SPLITS,
	CB_STAT_DROPPED,			/* dead entries dropped by applies */
	CB_STAT_COMPACTED,			/* leaves freed by packing cold ranges */
	CB_STAT_SPILLED,			/* entries flushed to range buffers */
	CB_STAT_VACUUM_SKIPPED,		/* packed leaves that VACUUM need not decode */
	CB_STAT_CACHED_READS,		/* look-ups that took a cached entry, not a
								 * leaf */
	CB_NUM_COUNTERS
} CbCounter;

extern void cb_stat_shmem_request(void);
extern void cb_stat_shmem_startup(void);
extern void cb_stat_add(Relation rel, CbCounter counter, uint64 n);
extern void cb_stat_add_oid(Oid indexoid, CbCounter counter, uint64 n);

/* Copies the counters of an index of this database; false: not counted. */
extern bool cb_stat_get(Oid indexoid, uint64 counters[CB_NUM_COUNTERS]);

/* of this database: of one index, or, InvalidOid, of all */
extern void cb_stat_reset(Oid indexoid);

/* ---------- test points (cb_testpoint.c) ---------- */

/*
 * A named place where tests can raise an error, kill the backend or wait.
 * Compiled out of release builds.  CB_TEST_POINT may stand anywhere;
 * only "kill" is honoured while an LWLock is held or in a critical section.
 */
#ifdef CB_TESTPOINTS
extern bool cb_test_buckets;	/* setting of tests: may this backend attach? */
extern bool cb_test_visits;	/* the same: do workers visit databases? */
extern int	cb_test_delta;		/* the same: plain entries a leaf, at most */
extern int	cb_test_max_buckets;	/* the same: of an index, at most */
extern int	cb_test_share;		/* the same: to begin with; 0: a fair share */
extern bool cb_test_join;		/* the same: join buckets that are flushed? */
extern int	cb_test_run_min;	/* the same: entries of a run, at least */
extern bool cb_test_spill;		/* the same: do flushes on request spill? */
extern int	cb_test_tiles;		/* the same: ranges' runs go to tiles at once, of
								 * so many leaves; 0: no */
extern bool cb_test_filters;	/* are filters of keys filled at once, and in
									 * small slices? */
extern bool cb_test_read_ahead; /* the same: do scans, with all in memory? */
extern bool cb_test_lock_views; /* the same: do scans lock without need? */
extern int	cb_test_heat_rate;	/* the same: one in so many visits is sampled */
extern int	cb_test_stat_indexes;	/* the same: indexes counted, at most */
extern int	cb_test_heat_ahead; /* the same: epochs added to the clock */
extern void cb_testpoint_hit(const char *name);
extern void cb_testpoint_define_guc(void);	/* called by cb_guc_define */
#define CB_TEST_POINT(name) cb_testpoint_hit(name)
#else
#define CB_TEST_POINT(name) ((void) 0)
#endif

#endif							/* CB_BASE_H */
