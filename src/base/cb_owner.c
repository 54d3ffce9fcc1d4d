/*-------------------------------------------------------------------------
 *
 * cb_owner.c
 *	  Running as the owner of an index, or of its table.
 *
 * Functions of an index, comparisons first of all, are its owner's.  They run as
 * that owner, restricted, as when the index was built; settings that they change
 * are set back.  After an error the end of the transaction undoes all of it.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"

/*
 * Runs as the relation's owner, restricted, until cb_owner_end(), or an error:
 * then the end of the transaction sets all back.  *mark is the caller's; the
 * calls may be nested.  The relation is open.
 */
void
cb_owner_begin(Relation rel, CbOwnerMark *mark)
{
	GetUserIdAndSecContext(&mark->userid, &mark->sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   mark->sec_context | SECURITY_RESTRICTED_OPERATION);
	mark->nestlevel = NewGUCNestLevel();
}

/*
 * Ends what cb_owner_begin() began: settings that were changed meanwhile are
 * set back.
 */
void
cb_owner_end(const CbOwnerMark *mark)
{
	AtEOXact_GUC(false, mark->nestlevel);
	SetUserIdAndSecContext(mark->userid, mark->sec_context);
}
