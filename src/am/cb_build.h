/*-------------------------------------------------------------------------
 *
 * cb_build.h
 *	  State of an index build, shared by the build files only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CB_BUILD_H
#define CB_BUILD_H

#include "am/cb_am.h"
#include "nodes/execnodes.h"
#include "utils/tuplesort.h"

/* beside PROGRESS_CREATEIDX_SUBPHASE_INITIALIZE */
#define CB_BUILD_PHASE_SCAN		2
#define CB_BUILD_PHASE_SORT		3
#define CB_BUILD_PHASE_LOAD		4

/* Entries of the table, or of a process's part of it, that are sorted. */
typedef struct CbBuildSorts
{
	Tuplesortstate *live;
	Tuplesortstate *dead;		/* of dead rows; NULL: they are in live, too */
	bool		any_dead;
	double		index_tuples;

	/* the index as the sort sees it */
	RelationData disguise;
	FormData_pg_class disguise_class;
} CbBuildSorts;

/* how sorts are begun; coordinates are NULL for a process that sorts by itself */
typedef struct CbBuildSortOptions
{
	bool		unique;
	bool		nulls_not_distinct;
	int			live_mem;		/* kB */
	int			dead_mem;
	SortCoordinate live;
	SortCoordinate dead;
} CbBuildSortOptions;

/* cb_build.c */
extern void cb_build_begin_sorts(CbBuildSorts *sorts, Relation heap, Relation index,
								 const CbBuildSortOptions *options);
extern double cb_build_scan(CbBuildSorts *sorts, Relation heap, Relation index,
							IndexInfo *index_info, bool progress,
							TableScanDesc scan);
extern void cb_build_end_sorts(CbBuildSorts *sorts);

/* cb_build_team.c */
typedef struct CbBuildTeam CbBuildTeam;

extern CbBuildTeam *cb_build_team_begin(Relation heap, Relation index,
										const IndexInfo *index_info, int nworkers);
extern double cb_build_team_scan(CbBuildTeam *team, CbBuildSorts *sorts,
								 CbBuildSortOptions *options, bool *broken_hot_chain);
extern void cb_build_team_end(CbBuildTeam *team);
extern PGDLLEXPORT void cb_build_team_work(dsm_segment *segment, shm_toc *toc);

#endif							/* CB_BUILD_H */
