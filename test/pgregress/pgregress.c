/*-------------------------------------------------------------------------
 *
 * pgregress.c
 *	  Makes CREATE INDEX cachebatch, for the server's own regression suite.
 *
 * A test tool, never installed with the extension.  Preloaded after
 * cache_batch, it looks at each utility statement before the server does, and
 * changes the access method of a CREATE INDEX that would make a plain btree:
 * not one that belongs to a constraint, not a unique one (unless
 * pgregress.unique is on), and not one whose text names USING btree (unless
 * pgregress.explicit_btree is on).
 *
 * Invariant: the caller's parse tree is never changed, as it may be kept in a
 * cached plan and run again under other settings.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "tcop/utility.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static bool pgregress_enabled = true;
static bool pgregress_unique = false;
static bool pgregress_explicit_btree = false;
static bool pgregress_adopt = false;
static ProcessUtility_hook_type prev_process_utility;

/* Is there "USING btree" in the statement's text? */
static bool
names_btree(const char *query, int location, int len)
{
	const char *p = query + Max(location, 0);
	const char *end = len > 0 ? p + len : query + strlen(query);

	for (; p < end; p++)
	{
		const char *q = p + 5;

		if (pg_strncasecmp(p, "using", 5) != 0)
			continue;
		while (q < end && isspace((unsigned char) *q))
			q++;
		if (q > p + 5 && pg_strncasecmp(q, "btree", 5) == 0)
			return true;
	}
	return false;
}

static bool
wants_cachebatch(PlannedStmt *pstmt, const char *query)
{
	IndexStmt  *stmt;

	if (!pgregress_enabled || !IsA(pstmt->utilityStmt, IndexStmt))
		return false;
	stmt = (IndexStmt *) pstmt->utilityStmt;
	if (stmt->primary || stmt->isconstraint ||
		(stmt->unique && !pgregress_unique) ||
		stmt->accessMethod == NULL || strcmp(stmt->accessMethod, "btree") != 0)
		return false;
	if (!pgregress_explicit_btree &&
		names_btree(query, pstmt->stmt_location, pstmt->stmt_len))
		return false;

	/* not in a database without the extension */
	return IsTransactionState() &&
		OidIsValid(get_index_am_oid("cachebatch", true));
}

/* The operator classes that were created since the extension was. */
static void
adopt_operator_classes(void)
{
	Oid			user;
	int			sec_context;
	int			guc_level = NewGUCNestLevel();

	GetUserIdAndSecContext(&user, &sec_context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   sec_context | SECURITY_LOCAL_USERID_CHANGE);
	(void) set_config_option("client_min_messages", "error", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	SPI_connect();
	SPI_execute("SELECT public.cache_batch_adopt_operator_classes()", false, 0);
	SPI_finish();
	AtEOXact_GUC(true, guc_level);
	SetUserIdAndSecContext(user, sec_context);
}

static void
pgregress_process_utility(PlannedStmt *pstmt, const char *query,
						  bool readonly_tree, ProcessUtilityContext context,
						  ParamListInfo params, QueryEnvironment *env,
						  DestReceiver *dest, QueryCompletion *qc)
{
	if (wants_cachebatch(pstmt, query))
	{
		IndexStmt  *stmt;

		pstmt = copyObject(pstmt);
		stmt = (IndexStmt *) pstmt->utilityStmt;
		stmt->accessMethod = pstrdup("cachebatch");
		if (pgregress_adopt && !stmt->concurrent)
			adopt_operator_classes();
	}
	if (prev_process_utility)
		prev_process_utility(pstmt, query, readonly_tree, context, params,
							 env, dest, qc);
	else
		standard_ProcessUtility(pstmt, query, readonly_tree, context, params,
								env, dest, qc);
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	DefineCustomBoolVariable("pgregress.enabled",
							 "Makes CREATE INDEX cachebatch.",
							 NULL, &pgregress_enabled, true,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgregress.unique",
							 "Changes CREATE UNIQUE INDEX too.",
							 NULL, &pgregress_unique, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgregress.explicit_btree",
							 "Changes an explicit USING btree too.",
							 NULL, &pgregress_explicit_btree, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("pgregress.adopt",
							 "Adopts new operator classes before CREATE INDEX.",
							 NULL, &pgregress_adopt, false,
							 PGC_SUSET, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("pgregress");
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = pgregress_process_utility;
}
