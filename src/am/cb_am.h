/*-------------------------------------------------------------------------
 *
 * cb_am.h
 *	  The access method's callbacks, and staging.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_AM_H
#define CB_AM_H

#include "base/cb_base.h"

#include "access/amapi.h"
#include "access/reloptions.h"
#include "nodes/pathnodes.h"

/* cb_build.c */
extern IndexBuildResult *cb_am_build(Relation heap, Relation index,
									 struct IndexInfo *index_info);
extern void cb_am_buildempty(Relation index);
extern char *cb_am_buildphasename(int64 phasenum);

/* cb_insert.c */
extern bool cb_am_insert(Relation index, Datum *values, bool *isnull,
						 ItemPointer heap_tid, Relation heap,
						 IndexUniqueCheck check_unique, bool index_unchanged,
						 struct IndexInfo *index_info);

/* cb_stage.c, cb_stage_publish.c, cb_stage_hooks.c */
extern void cb_stage_shmem_request(void);
extern void cb_stage_shmem_startup(void);
extern void cb_stage_publish_index(Relation index); /* before any scan of it */
extern void cb_stage_init(void);	/* hooks and callbacks, at preload */

/* cb_vacuum.c */
extern IndexBulkDeleteResult *cb_am_bulkdelete(IndexVacuumInfo *info,
											   IndexBulkDeleteResult *stats,
											   IndexBulkDeleteCallback callback,
											   void *callback_state);
extern IndexBulkDeleteResult *cb_am_vacuumcleanup(IndexVacuumInfo *info,
												  IndexBulkDeleteResult *stats);

/* cb_handler.c, cb_options.c, cb_cost.c, cb_validate.c */
extern bytea *cb_am_options(Datum reloptions, bool validate);
extern void cb_options_init(void);
extern void cb_check_index_columns(Relation index); /* at build */
extern void cb_am_costestimate(struct PlannerInfo *root, struct IndexPath *path,
							   double loop_count, Cost *startup_cost,
							   Cost *total_cost, Selectivity *selectivity,
							   double *correlation, double *pages);
extern bool cb_am_validate(Oid opclassoid);
extern List *cb_validate_btree_families(Oid operator, StrategyNumber strategy,
										Oid left, Oid right);

/* cb_planner.c */
extern void cb_planner_init(void);

/* cb_turns.c */
extern Size cb_am_estimateparallelscan(CB_ESTIMATE_PARALLEL_PARAMETERS);
extern void cb_am_initparallelscan(void *target);
extern void cb_am_parallelrescan(IndexScanDesc scan);

/* cb_scan.c */
extern IndexScanDesc cb_am_beginscan(Relation index, int nkeys, int norderbys);
extern void cb_am_rescan(IndexScanDesc scan, ScanKey keys, int nkeys,
						 ScanKey orderbys, int norderbys);
extern bool cb_am_gettuple(IndexScanDesc scan, ScanDirection dir);
extern int64 cb_am_getbitmap(IndexScanDesc scan, TIDBitmap *tbm);
extern void cb_am_endscan(IndexScanDesc scan);
extern void cb_scan_forget(IndexScanDesc scan);
extern void cb_am_markpos(IndexScanDesc scan);
extern void cb_am_restrpos(IndexScanDesc scan);
extern bool cb_am_canreturn(Relation index, int attno);

#endif							/* CB_AM_H */
