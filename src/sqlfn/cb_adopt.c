/*-------------------------------------------------------------------------
 *
 * cb_adopt.c
 *	  Operator classes: mirrors btree's, from the catalogs.
 *
 * Each btree operator family and class gets a counterpart of the same name in
 * the same schema, with the same operators and support functions, so that an
 * operator class that is good for btree is found for cachebatch by the same
 * name.  Whatever is there already is left alone, so the function can be
 * called again at any time, and then brings what is missing.
 *
 * The extension's script has it mirror the server's own classes; these belong
 * to the extension.  Classes of other extensions are mirrored on request, and
 * the mirrors belong to nobody: pg_dump dumps them, and they go with their
 * original, for they depend on it (cb_adopt_link.c).  The script must not do
 * that: a class that belongs to cache_batch and uses another extension's type
 * would make DROP EXTENSION of the other drop cache_batch with all its
 * indexes, and a restore would find its mirrors there before it gets to
 * create them.
 *
 * The catalogs are searched and the commands put together in SQL.  The SQL
 * function has a fixed search_path, so names are safe and unambiguous.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "base/cb_base.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "sqlfn/cb_adopt.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(cache_batch_require_preload);
PG_FUNCTION_INFO_V1(cache_batch_adopt_operator_classes);

/*
 * Parameters of all queries: $1 our access method, $2 btree, $3 least OID
 * that is left out.
 *
 * "pair": btree families with their mirrors (or null); "member": all members
 * of btree families that their mirror lacks.
 */
#define CB_ADOPT_PAIR \
	"WITH pair AS (" \
	" SELECT bt.oid AS family, our.oid AS mirror, bt.opfname AS name," \
	"  n.nspname AS schema" \
	" FROM pg_opfamily bt" \
	" JOIN pg_namespace n ON n.oid = bt.opfnamespace" \
	" LEFT JOIN pg_opfamily our ON our.opfmethod = $1" \
	"  AND our.opfname = bt.opfname AND our.opfnamespace = bt.opfnamespace" \
	" WHERE bt.opfmethod = $2 AND bt.oid < $3" \
	"  AND NOT pg_is_other_temp_schema(n.oid)) "

#define CB_ADOPT_MEMBER \
	CB_ADOPT_PAIR \
	", member AS (" \
	" SELECT p.family, o.amoplefttype AS lefttype," \
	"  o.amoprighttype AS righttype," \
	"  format('OPERATOR %s %s', o.amopstrategy," \
	"   o.amopopr::regoperator) AS item" \
	" FROM pair p JOIN pg_amop o ON o.amopfamily = p.family" \
	" WHERE o.amoppurpose = 's' AND NOT EXISTS (SELECT FROM pg_amop m" \
	"  WHERE m.amopfamily = p.mirror AND m.amopstrategy = o.amopstrategy" \
	"   AND m.amoplefttype = o.amoplefttype" \
	"   AND m.amoprighttype = o.amoprighttype)" \
	" UNION ALL" \
	" SELECT p.family, f.amproclefttype, f.amprocrighttype," \
	"  format('FUNCTION %s (%s, %s) %s', f.amprocnum," \
	"   f.amproclefttype::regtype, f.amprocrighttype::regtype," \
	"   f.amproc::regprocedure)" \
	" FROM pair p JOIN pg_amproc f ON f.amprocfamily = p.family" \
	" WHERE NOT EXISTS (SELECT FROM pg_amproc m" \
	"  WHERE m.amprocfamily = p.mirror AND m.amprocnum = f.amprocnum" \
	"   AND m.amproclefttype = f.amproclefttype" \
	"   AND m.amprocrighttype = f.amprocrighttype)) "

static const char cb_adopt_families[] =
CB_ADOPT_PAIR
"SELECT format('CREATE OPERATOR FAMILY %I.%I USING " CB_ADOPT_AM_NAME "',"
" schema, name) FROM pair WHERE mirror IS NULL ORDER BY family";

/*
 * A class takes its type's own members along, the first one if a family has
 * several classes for the type.  "STORAGE" with the class's own type says
 * nothing; it is there because the command wants at least one item.
 */
static const char cb_adopt_classes[] =
CB_ADOPT_MEMBER
"SELECT format('CREATE OPERATOR CLASS %I.%I%s FOR TYPE %s USING "
CB_ADOPT_AM_NAME " FAMILY %I.%I AS %s',"
" n.nspname, c.opcname,"
" CASE WHEN c.opcdefault AND NOT EXISTS (SELECT FROM pg_opclass d"
"  WHERE d.opcmethod = $1 AND d.opcdefault AND d.opcintype = c.opcintype)"
"  THEN ' DEFAULT' END,"
" c.opcintype::regtype, p.schema, p.name,"
" coalesce((SELECT string_agg(m.item, ', ') FROM member m"
"   WHERE m.family = c.opcfamily AND m.lefttype = c.opcintype"
"    AND m.righttype = c.opcintype AND c.nth = 1),"
"  'STORAGE ' || c.opcintype::regtype))"
" FROM (SELECT bt.*, row_number() OVER (PARTITION BY opcfamily, opcintype"
"   ORDER BY bt.oid) AS nth"
"  FROM pg_opclass bt WHERE bt.opcmethod = $2 AND bt.oid < $3"
"   AND NOT EXISTS (SELECT FROM pg_opclass our WHERE our.opcmethod = $1"
"    AND our.opcname = bt.opcname"
"    AND our.opcnamespace = bt.opcnamespace)) c"
" JOIN pg_namespace n ON n.oid = c.opcnamespace"
" JOIN pair p ON p.family = c.opcfamily"
" WHERE NOT pg_is_other_temp_schema(n.oid) ORDER BY c.oid";

static const char cb_adopt_members[] =
CB_ADOPT_MEMBER
"SELECT format('ALTER OPERATOR FAMILY %I.%I USING " CB_ADOPT_AM_NAME
" ADD %s', p.schema, p.name, string_agg(m.item, ', '))"
" FROM member m JOIN pair p USING (family)"
" GROUP BY p.family, p.schema, p.name ORDER BY p.family";

static SPITupleTable *
cb_adopt_query(const char *query, Oid am, Oid least_left_out)
{
	Oid			types[3] = {OIDOID, OIDOID, OIDOID};
	Datum		args[3];

	args[0] = ObjectIdGetDatum(am);
	args[1] = ObjectIdGetDatum(BTREE_AM_OID);
	args[2] = ObjectIdGetDatum(least_left_out);

	if (SPI_execute_with_args(query, 3, types, args, NULL, false,
							  0) != SPI_OK_SELECT)
		elog(ERROR, "could not search operator families");
	return SPI_tuptable;
}

/* runs a query that returns commands, then these; returns their number */
static int
cb_adopt_run(const char *query, Oid am, Oid least_left_out)
{
	SPITupleTable *commands = cb_adopt_query(query, am, least_left_out);
	uint64		n = commands->numvals;

	for (uint64 i = 0; i < n; i++)
	{
		char	   *command = SPI_getvalue(commands->vals[i],
										   commands->tupdesc, 1);

		if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
			elog(ERROR, "could not execute \"%s\"", command);
		pfree(command);
	}
	SPI_freetuptable(commands);

	return (int) n;
}

/* cache_batch_require_preload(): for the extension's script */
Datum
cache_batch_require_preload(PG_FUNCTION_ARGS)
{
	cb_require_preload();
	PG_RETURN_VOID();
}

/*
 * cache_batch_adopt_operator_classes(builtin_only boolean) returns integer:
 * the number of operator classes that it created.
 *
 * Runs DDL by SPI, as the user.  Locks the access method to the transaction's
 * end, so that one does it at a time; an error leaves nothing behind.
 */
Datum
cache_batch_adopt_operator_classes(PG_FUNCTION_ARGS)
{
	bool		builtin_only = PG_GETARG_BOOL(0);
	Oid			least_left_out = builtin_only ? FirstNormalObjectId : OID_MAX;
	Oid			am;
	int			n;

	cb_require_preload();

	/* one at a time, and not while the access method is being dropped */
	am = get_index_am_oid(CB_ADOPT_AM_NAME, false);
	LockDatabaseObject(AccessMethodRelationId, am, 0, ShareUpdateExclusiveLock);

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	cb_adopt_run(cb_adopt_families, am, least_left_out);
	n = cb_adopt_run(cb_adopt_classes, am, least_left_out);
	cb_adopt_run(cb_adopt_members, am, least_left_out);
	SPI_finish();

	PG_RETURN_INT32(n);
}
