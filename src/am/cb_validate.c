/*-------------------------------------------------------------------------
 *
 * cb_validate.c
 *	  Checks an operator class: amvalidate().
 *
 * What the catalogs must hold is what btree asks for, and the server's own
 * validator checks that (its messages call the access method "btree").
 *
 * Beyond that, a family must agree with one btree family: the planner
 * describes sort orders by btree families, so an index whose order differs
 * from what the btree family of its "<" says would be taken to deliver an
 * order that it does not deliver.  Hence there must be one btree family that
 * has all operators of the family, with the same types and strategies, and
 * the same comparison functions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "am/cb_am.h"
#include "catalog/pg_am.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_opclass.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

/*
 * The btree families that have the operator with this strategy for these
 * types: a list of OIDs, palloc'd.  Reads the catalog caches.
 */
List *
cb_validate_btree_families(Oid operator, StrategyNumber strategy, Oid left,
						   Oid right)
{
	List	   *families = NIL;
	CatCList   *list;
	int			i;

	list = SearchSysCacheList1(AMOPOPID, ObjectIdGetDatum(operator));
	for (i = 0; i < list->n_members; i++)
	{
		Form_pg_amop form;

		form = (Form_pg_amop) GETSTRUCT(&list->members[i]->tuple);
		if (form->amopmethod == BTREE_AM_OID &&
			form->amopstrategy == strategy && form->amoplefttype == left &&
			form->amoprighttype == right)
			families = lappend_oid(families, form->amopfamily);
	}
	ReleaseCatCacheList(list);

	return families;
}

/* complains of each operator that no btree family has */
static bool
cb_validate_operators(const char *opclassname, CatCList *operators,
					  List **candidates)
{
	bool		result = true;
	int			i;

	*candidates = NIL;
	for (i = 0; i < operators->n_members; i++)
	{
		Form_pg_amop form;
		List	   *families;

		form = (Form_pg_amop) GETSTRUCT(&operators->members[i]->tuple);
		families = cb_validate_btree_families(form->amopopr, form->amopstrategy,
											  form->amoplefttype, form->amoprighttype);
		if (families == NIL)
		{
			ereport(INFO,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("operator class \"%s\" of access method %s contains operator %s, which no btree operator family has with strategy number %d",
							opclassname, "cachebatch",
							format_operator(form->amopopr),
							form->amopstrategy)));
			result = false;
		}
		if (i == 0)
			*candidates = families;
		else					/* keep those that are in both lists */
			*candidates = list_difference_oid(*candidates,
											  list_difference_oid(*candidates,
																  families));
	}

	if (result && operators->n_members > 0 && *candidates == NIL)
	{
		ereport(INFO,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("operators of operator class \"%s\" of access method %s belong to different btree operator families",
						opclassname, "cachebatch")));
		result = false;
	}

	return result;
}

/* whether a btree family has the same comparison function for the types */
static bool
cb_validate_same_order(Form_pg_amproc ours, List *families)
{
	ListCell   *lc;

	foreach(lc, families)
	{
		if (get_opfamily_proc(lfirst_oid(lc), ours->amproclefttype,
							  ours->amprocrighttype,
							  BTORDER_PROC) == ours->amproc)
			return true;
	}
	return false;
}

static bool
cb_validate_comparisons(const char *opclassname, CatCList *functions,
						List *families)
{
	bool		result = true;
	int			i;

	for (i = 0; i < functions->n_members; i++)
	{
		Form_pg_amproc form;

		form = (Form_pg_amproc) GETSTRUCT(&functions->members[i]->tuple);
		if (form->amprocnum == BTORDER_PROC &&
			!cb_validate_same_order(form, families))
		{
			ereport(INFO,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("operator class \"%s\" of access method %s compares by function %s, but the btree operator family of its operators does not",
							opclassname, "cachebatch",
							format_procedure(form->amproc))));
			result = false;
		}
	}

	return result;
}

/*
 * amvalidate: is the operator class, with its family, sound?  Says what is
 * wrong by INFO messages; raises an error only if there is no such class.
 */
bool
cb_am_validate(Oid opclassoid)
{
	bool		result = btvalidate(opclassoid);
	HeapTuple	tuple;
	Form_pg_opclass form;
	CatCList   *operators;
	CatCList   *functions;
	List	   *families;

	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclassoid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", opclassoid);
	form = (Form_pg_opclass) GETSTRUCT(tuple);

	operators = SearchSysCacheList1(AMOPSTRATEGY,
									ObjectIdGetDatum(form->opcfamily));
	functions = SearchSysCacheList1(AMPROCNUM,
									ObjectIdGetDatum(form->opcfamily));

	if (cb_validate_operators(NameStr(form->opcname), operators, &families))
	{
		if (!cb_validate_comparisons(NameStr(form->opcname), functions,
									 families))
			result = false;
	}
	else
		result = false;

	ReleaseCatCacheList(functions);
	ReleaseCatCacheList(operators);
	ReleaseSysCache(tuple);

	return result;
}
