/*-------------------------------------------------------------------------
 *
 * cb_owner.c
 *	  Running as the owner of an index, or of its table.
 *
 * Functions of an index, comparisons first of all, are its owner's and run as
 * he, restricted, as when the index was built; settings that they change are
 * set back.  After an error the end of the transaction undoes all of it.
 *
 *-------------------------------------------------------------------------
 */
#include "base/cb_base.h"

#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/rel.h"

void
cb_owner_begin(Relation rel, CbOwnerMark *mark)
{
	GetUserIdAndSecContext(&mark->userid, &mark->sec_context);
	SetUserIdAndSecContext(rel->rd_rel->relowner,
						   mark->sec_context | SECURITY_RESTRICTED_OPERATION);
	mark->nestlevel = NewGUCNestLevel();
}

void
cb_owner_end(const CbOwnerMark *mark)
{
	AtEOXact_GUC(false, mark->nestlevel);
	SetUserIdAndSecContext(mark->userid, mark->sec_context);
}
