-- what the extension has, one object a line, with all that an update script may forget
SELECT pg_describe_object(d.classid, d.objid, 0) AS object,
	   (SELECT array_agg(a::text ORDER BY a::text) FROM unnest(coalesce(p.proacl, c.relacl)) a) AS acl,
	   (SELECT array_agg(a::text ORDER BY a::text) FROM pg_init_privs i, unnest(i.initprivs) a
		WHERE i.classoid = d.classid AND i.objoid = d.objid) AS first_acl,
	   obj_description(d.objid, d.classid::regclass::text) AS comment,
	   CASE d.classid WHEN 'pg_proc'::regclass THEN pg_get_functiondef(d.objid)
		WHEN 'pg_class'::regclass THEN pg_get_viewdef(d.objid) END AS definition,
	   (SELECT array_agg(pg_describe_object('pg_amop'::regclass, o.oid, 0)
					  ORDER BY pg_describe_object('pg_amop'::regclass, o.oid, 0)) FROM pg_amop o
		WHERE o.amopfamily = d.objid AND d.classid = 'pg_opfamily'::regclass) AS operators,
	   (SELECT array_agg(pg_describe_object('pg_amproc'::regclass, o.oid, 0)
					  ORDER BY pg_describe_object('pg_amproc'::regclass, o.oid, 0)) FROM pg_amproc o
		WHERE o.amprocfamily = d.objid AND d.classid = 'pg_opfamily'::regclass) AS support,
	   (SELECT o.opcdefault || ' ' || o.opckeytype::regtype FROM pg_opclass o
		WHERE o.oid = d.objid AND d.classid = 'pg_opclass'::regclass) AS class
FROM pg_depend d
	 JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	 LEFT JOIN pg_proc p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass
	 LEFT JOIN pg_class c ON c.oid = d.objid AND d.classid = 'pg_class'::regclass
WHERE e.extname = 'cache_batch'
ORDER BY 1;
