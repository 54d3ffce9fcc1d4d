/*-------------------------------------------------------------------------
 *
 * cb_adopt_link.c
 *	  Mirrors of operator classes and families go with their originals.
 *
 * A mirror is our operator class, or family, that has the name and the schema of
 * one of btree's.  When the second of the two is created, by cb_adopt.c or from a
 * dump, the mirror is made to depend on its original, so that DROP EXTENSION of
 * the original's extension needs no CASCADE.  pg_dump has no command for that
 * dependency; therefore it is made here, whoever says CREATE.
 *
 * Invariant: of each such pair that no extension's script has created the mirror
 * has one dependency on its original, of the kind AUTO.  (Not if one was renamed
 * or moved to another schema, and then dumped.)  What a script creates belongs to
 * its extension, and goes with that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_am.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_opfamily.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "sqlfn/cb_adopt.h"
#include "utils/syscache.h"

typedef struct CbNamedObject
{
	Oid			am;
	Oid			schema;
	NameData	name;
} CbNamedObject;

static object_access_hook_type prev_object_access = NULL;

static CbNamedObject
cb_link_describe(Oid catalog, Oid object)
{
	bool		is_class = catalog == OperatorClassRelationId;
	HeapTuple	tuple = SearchSysCache1(is_class ? CLAOID : OPFAMILYOID,
										ObjectIdGetDatum(object));
	CbNamedObject found;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class or family %u",
			 object);
	if (is_class)
	{
		Form_pg_opclass form = (Form_pg_opclass) GETSTRUCT(tuple);

		found = (CbNamedObject) {form->opcmethod, form->opcnamespace, form->opcname};
	}
	else
	{
		Form_pg_opfamily form = (Form_pg_opfamily) GETSTRUCT(tuple);

		found = (CbNamedObject) {form->opfmethod, form->opfnamespace, form->opfname};
	}
	ReleaseSysCache(tuple);
	return found;
}

/* The one that has this name, in this schema, with this access method. */
static Oid
cb_link_find(Oid catalog, CbNamedObject *wanted)
{
	if (catalog == OperatorClassRelationId)
		return GetSysCacheOid3(CLAAMNAMENSP, Anum_pg_opclass_oid,
							   ObjectIdGetDatum(wanted->am),
							   NameGetDatum(&wanted->name),
							   ObjectIdGetDatum(wanted->schema));
	return GetSysCacheOid3(OPFAMILYAMNAMENSP, Anum_pg_opfamily_oid,
						   ObjectIdGetDatum(wanted->am),
						   NameGetDatum(&wanted->name),
						   ObjectIdGetDatum(wanted->schema));
}

static void
cb_link_created(Oid catalog, Oid created)
{
	Oid			our_am = get_index_am_oid(CB_ADOPT_AM_NAME, true);
	CbNamedObject other;
	ObjectAddress mirror;
	ObjectAddress original;
	bool		is_ours;

	/* until then the new one cannot be seen */
	CommandCounterIncrement();
	other = cb_link_describe(catalog, created);
	is_ours = other.am == our_am;
	if (!OidIsValid(our_am) || (!is_ours && other.am != BTREE_AM_OID))
		return;
	other.am = is_ours ? BTREE_AM_OID : our_am;

	ObjectAddressSet(mirror, catalog,
					 is_ours ? created : cb_link_find(catalog, &other));
	ObjectAddressSet(original, catalog,
					 is_ours ? cb_link_find(catalog, &other) : created);
	/* the server's own are there forever */
	if (OidIsValid(mirror.objectId) && original.objectId >= FirstNormalObjectId)
		recordDependencyOn(&mirror, &original, DEPENDENCY_AUTO);
}

static void
cb_link_object_access(ObjectAccessType access, Oid catalog, Oid object,
					  int subid, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, catalog, object, subid, arg);
	if (access == OAT_POST_CREATE && !creating_extension &&
		(catalog == OperatorClassRelationId ||
		 catalog == OperatorFamilyRelationId))
		cb_link_created(catalog, object);
}

/* Installs the hook; only while the library is preloaded. */
void
cb_adopt_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = cb_link_object_access;
}
