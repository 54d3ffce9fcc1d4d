/*-------------------------------------------------------------------------
 *
 * cb_handler.c
 *	  The access method's handler function.
 *
 * The server calls it whenever it opens an index, also to drop one, so it
 * never raises an error, preloaded or not (C1): the callbacks that read or
 * write do that.  Everything a btree opclass relies on has btree's numbers:
 * strategies, support functions, and options among these.
 *
 * Unique indexes are not offered before version 18: there the server ties ON
 * CONFLICT to btree's unique indexes, and one of another access method breaks
 * every ON CONFLICT on its table (C7).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "am/cb_am.h"
#include "commands/vacuum.h"
#include "fmgr.h"

PG_FUNCTION_INFO_V1(cache_batch_handler);

static void
cb_handler_set_properties(IndexAmRoutine *am)
{
	am->amstrategies = BTMaxStrategyNumber;
	am->amsupport = BTNProcs;
	am->amoptsprocnum = BTOPTIONS_PROC;
	am->amcanorder = true;
	am->amcanorderbyop = false;
	am->amcanbackward = true;
	am->amcanunique = CB_HAS_UNIQUE;
	am->amcanmulticol = true;
	am->amoptionalkey = true;
	am->amsearcharray = true;
	am->amsearchnulls = true;
	am->amstorage = false;
	am->amclusterable = true;
	am->ampredlocks = true;		/* cb_window_lock.c, tree/cb_predicate.c */
	am->amcanparallel = true;
	am->amcaninclude = true;
	am->amusemaintenanceworkmem = false;
	am->amparallelvacuumoptions = VACUUM_OPTION_PARALLEL_BULKDEL |
		VACUUM_OPTION_PARALLEL_COND_CLEANUP;
	am->amkeytype = InvalidOid;
#if PG_VERSION_NUM >= 170000
	am->amcanbuildparallel = true;
#endif
#if PG_VERSION_NUM >= 180000
	am->amconsistentequality = true;
	am->amconsistentordering = true;
#endif
}

static void
cb_handler_set_callbacks(IndexAmRoutine *am)
{
	am->ambuild = cb_am_build;
	am->ambuildempty = cb_am_buildempty;
	am->ambuildphasename = cb_am_buildphasename;
	am->aminsert = cb_am_insert;
	am->ambulkdelete = cb_am_bulkdelete;
	am->amvacuumcleanup = cb_am_vacuumcleanup;
	am->amcanreturn = cb_am_canreturn;
	am->amcostestimate = cb_am_costestimate;
	am->amoptions = cb_am_options;
	am->amproperty = btproperty;
	am->amvalidate = cb_am_validate;
	am->amadjustmembers = btadjustmembers;
	am->ambeginscan = cb_am_beginscan;
	am->amrescan = cb_am_rescan;
	am->amgettuple = cb_am_gettuple;
	am->amgetbitmap = cb_am_getbitmap;
	am->amendscan = cb_am_endscan;
	am->ammarkpos = cb_am_markpos;
	am->amrestrpos = cb_am_restrpos;
	am->amestimateparallelscan = cb_am_estimateparallelscan;
	am->aminitparallelscan = cb_am_initparallelscan;
	am->amparallelrescan = cb_am_parallelrescan;
#if PG_VERSION_NUM >= 180000
	am->amtranslatestrategy = bttranslatestrategy;
	am->amtranslatecmptype = bttranslatecmptype;
#endif
}

Datum
cache_batch_handler(PG_FUNCTION_ARGS)
{
	IndexAmRoutine *am = makeNode(IndexAmRoutine);

	cb_handler_set_properties(am);
	cb_handler_set_callbacks(am);

	PG_RETURN_POINTER(am);
}
