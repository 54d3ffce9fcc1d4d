-- Operator classes: equal to btree's, adopted for other extensions, validated
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

-- what of btree's has no counterpart, and what has a counterpart only here
CREATE VIEW both_classes AS
SELECT a.amname, n.nspname, c.opcname, c.opcintype::regtype, c.opcdefault,
	   fn.nspname AS famschema, f.opfname
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
	 JOIN pg_namespace n ON n.oid = c.opcnamespace
	 JOIN pg_opfamily f ON f.oid = c.opcfamily
	 JOIN pg_namespace fn ON fn.oid = f.opfnamespace
WHERE a.amname IN ('btree', 'cachebatch');

CREATE VIEW both_members AS
SELECT a.amname, n.nspname, f.opfname, 'operator' AS kind,
	   o.amoplefttype::regtype AS lefttype,
	   o.amoprighttype::regtype AS righttype,
	   o.amopstrategy AS number, o.amopopr AS object,
	   o.amoppurpose::text || o.amopsortfamily AS purpose
FROM pg_amop o JOIN pg_opfamily f ON f.oid = o.amopfamily
	 JOIN pg_am a ON a.oid = f.opfmethod
	 JOIN pg_namespace n ON n.oid = f.opfnamespace
WHERE a.amname IN ('btree', 'cachebatch')
UNION ALL
SELECT a.amname, n.nspname, f.opfname, 'function', p.amproclefttype::regtype,
	   p.amprocrighttype::regtype, p.amprocnum, p.amproc, ''
FROM pg_amproc p JOIN pg_opfamily f ON f.oid = p.amprocfamily
	 JOIN pg_am a ON a.oid = f.opfmethod
	 JOIN pg_namespace n ON n.oid = f.opfnamespace
WHERE a.amname IN ('btree', 'cachebatch');

CREATE VIEW differences AS
WITH bc AS (SELECT to_jsonb(b) - 'amname' AS x FROM both_classes b
			WHERE amname = 'btree'),
	 cc AS (SELECT to_jsonb(b) - 'amname' AS x FROM both_classes b
			WHERE amname = 'cachebatch'),
	 bm AS (SELECT to_jsonb(b) - 'amname' AS x FROM both_members b
			WHERE amname = 'btree'),
	 cm AS (SELECT to_jsonb(b) - 'amname' AS x FROM both_members b
			WHERE amname = 'cachebatch')
SELECT 'class' AS kind, 'btree only' AS side, x
FROM (TABLE bc EXCEPT ALL TABLE cc) d
UNION ALL
SELECT 'class', 'cachebatch only', x FROM (TABLE cc EXCEPT ALL TABLE bc) d
UNION ALL
SELECT 'member', 'btree only', x FROM (TABLE bm EXCEPT ALL TABLE cm) d
UNION ALL
SELECT 'member', 'cachebatch only', x FROM (TABLE cm EXCEPT ALL TABLE bm) d;

SELECT count(*) > 40 AS many_classes FROM both_classes
WHERE amname = 'cachebatch';
SELECT count(*) > 300 AS many_members FROM both_members
WHERE amname = 'cachebatch';
SELECT count(*) AS differences FROM differences;

-- btree keeps names as cstring, which SQL cannot ask for; we keep names
SELECT c.opcname, a.amname, c.opckeytype::regtype
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname IN ('btree', 'cachebatch') AND c.opckeytype <> 0;

-- all valid
SELECT count(*) AS invalid FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'cachebatch' AND NOT amvalidate(c.oid);

-- a class needs its operators as firmly as a btree class does
SELECT count(*) AS loose
FROM pg_amop o JOIN pg_opfamily f ON f.oid = o.amopfamily
	 JOIN pg_am a ON a.oid = f.opfmethod AND a.amname = 'cachebatch'
WHERE o.amoplefttype = o.amoprighttype
  AND EXISTS (SELECT FROM pg_opclass c WHERE c.opcfamily = f.oid
			  AND c.opcintype = o.amoplefttype)
  AND NOT EXISTS (SELECT FROM pg_depend d
				  WHERE d.classid = 'pg_amop'::regclass AND d.objid = o.oid
				  AND d.refclassid = 'pg_opclass'::regclass
				  AND d.deptype = 'i');

-- the server's own mirrors belong to the extension
SELECT count(*) AS not_members
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'cachebatch'
  AND NOT EXISTS (SELECT FROM pg_depend d
				  WHERE d.classid = 'pg_opclass'::regclass AND d.objid = c.oid
				  AND d.deptype = 'e');

-- nothing is left to adopt
SELECT cache_batch_adopt_operator_classes();

-- access method
SELECT a.amname, p.name, pg_indexam_has_property(a.oid, p.name)
FROM pg_am a, unnest(ARRAY['can_order', 'can_multi_col',
						   'can_exclude', 'can_include']) p(name)
WHERE a.amname = 'cachebatch' ORDER BY 2;

-- classes of other extensions
SET client_min_messages = warning;
CREATE EXTENSION citext;
CREATE EXTENSION ltree;
RESET client_min_messages;
SELECT kind, count(*) FROM differences GROUP BY 1 ORDER BY 1;
-- until then: none for ltree, and text's for citext
CREATE TABLE adopted (c citext, l ltree);
CREATE INDEX ON adopted USING cachebatch (l);
CREATE INDEX ON adopted USING cachebatch (c);
DROP INDEX adopted_c_idx;

SELECT cache_batch_adopt_operator_classes();
SELECT count(*) AS differences FROM differences;
SELECT cache_batch_adopt_operator_classes();
SELECT c.opcname, amvalidate(c.oid), c.opcdefault
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'cachebatch' AND c.oid >= 16384
  AND c.opcname ~ 'citext|ltree' ORDER BY 1;

INSERT INTO adopted SELECT CASE i % 3 WHEN 0 THEN 'Key ' ELSE 'KEY ' END || i % 50,
						   ('Top.n' || i % 7 || '.m' || i)::ltree
FROM generate_series(1, 500) i;
CREATE INDEX adopted_c ON adopted USING cachebatch (c);
CREATE INDEX adopted_l ON adopted USING cachebatch (l);
CREATE INDEX adopted_p ON adopted USING cachebatch (c citext_pattern_ops);
INSERT INTO adopted SELECT 'kEY ' || i % 50, ('Top.n' || i % 7)::ltree
FROM generate_series(1, 100) i;
ANALYZE adopted;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM adopted WHERE c = 'key 7';
SELECT count(*) FROM adopted WHERE c = 'key 7';
EXPLAIN (COSTS OFF) SELECT count(*) FROM adopted WHERE l = 'Top.n3';
SELECT count(*) FROM adopted WHERE l = 'Top.n3';
SELECT l FROM adopted ORDER BY l LIMIT 3;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SET enable_seqscan = on;
SELECT count(*) FROM adopted WHERE c = 'key 7';
SELECT count(*) FROM adopted WHERE l = 'Top.n3';
SELECT l FROM adopted ORDER BY l LIMIT 3;
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_indexscan;
RESET enable_indexonlyscan;

-- mirrors go with their originals, and cache_batch stays
DROP EXTENSION ltree;
SET client_min_messages = warning;
DROP EXTENSION ltree CASCADE;
RESET client_min_messages;
\d adopted
DROP TABLE adopted;
DROP EXTENSION citext;
SELECT count(*) AS differences FROM differences;
SELECT extname FROM pg_extension WHERE extname = 'cache_batch';

-- a class of one's own: adopted, with members that come later
CREATE SCHEMA mine;
CREATE OPERATOR FAMILY mine.fam USING btree;
CREATE OPERATOR CLASS mine.abs_ops FOR TYPE int4 USING btree FAMILY mine.fam AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 btint4cmp(int4, int4);
SELECT cache_batch_adopt_operator_classes();
ALTER OPERATOR FAMILY mine.fam USING btree ADD
	OPERATOR 1 < (int4, int8), OPERATOR 2 <= (int4, int8),
	OPERATOR 3 = (int4, int8), OPERATOR 4 >= (int4, int8),
	OPERATOR 5 > (int4, int8), FUNCTION 1 (int4, int8) btint48cmp(int4, int8);
SELECT kind, count(*) FROM differences GROUP BY 1;
SELECT cache_batch_adopt_operator_classes();
SELECT kind, count(*) FROM differences GROUP BY 1;
SET client_min_messages = warning;
DROP SCHEMA mine CASCADE;
RESET client_min_messages;
SELECT count(*) AS differences FROM differences;

-- amvalidate finds what is wrong
CREATE OPERATOR CLASS missing_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 btint4cmp(int4, int4);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'missing_ops';

CREATE OPERATOR CLASS reverse_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <,
	FUNCTION 1 btint4cmp(int4, int4);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'reverse_ops';

CREATE FUNCTION other_cmp(int4, int4) RETURNS int4
	LANGUAGE sql IMMUTABLE STRICT AS 'SELECT btint4cmp($1, $2)';
CREATE OPERATOR CLASS other_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 other_cmp(int4, int4);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'other_ops';

CREATE OPERATOR CLASS mixed_ops FOR TYPE text USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 ~<=~, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 bttextcmp(text, text);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'mixed_ops';

-- such classes are refused when an index is built
CREATE TABLE refused (a int4, t text);
CREATE INDEX ON refused USING cachebatch (a reverse_ops);
CREATE INDEX ON refused USING cachebatch (t, a reverse_ops);
CREATE INDEX ON refused USING cachebatch (a missing_ops);
DROP TABLE refused;

-- an order that no btree family has any more: the planner must not crash (C6)
CREATE OPERATOR <<<< (LEFTARG = int4, RIGHTARG = int4, PROCEDURE = int4lt);
CREATE OPERATOR FAMILY unordered_fam USING btree;
CREATE OPERATOR CLASS unordered_bt FOR TYPE int4 USING btree
	FAMILY unordered_fam AS
	OPERATOR 1 <<<<, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 btint4cmp(int4, int4);
CREATE OPERATOR CLASS unordered_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <<<<, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 btint4cmp(int4, int4);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'unordered_ops';
CREATE TABLE unordered AS SELECT i % 100 AS a FROM generate_series(1, 2000) i;
CREATE INDEX unordered_a ON unordered USING cachebatch (a unordered_ops);
ANALYZE unordered;
DROP OPERATOR FAMILY unordered_fam USING btree;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'unordered_ops';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT a FROM unordered WHERE a <<<< 3;
SELECT count(*) FROM unordered WHERE a <<<< 3;
EXPLAIN (COSTS OFF) SELECT a FROM unordered WHERE a = 3 ORDER BY a;
SELECT count(*) FROM unordered WHERE a = 3;
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP TABLE unordered;

SET client_min_messages = warning;
DROP OPERATOR FAMILY missing_ops USING cachebatch;
DROP OPERATOR FAMILY reverse_ops USING cachebatch;
DROP OPERATOR FAMILY other_ops USING cachebatch;
DROP OPERATOR FAMILY mixed_ops USING cachebatch;
DROP OPERATOR FAMILY unordered_ops USING cachebatch;
DROP OPERATOR <<<< (int4, int4);
DROP FUNCTION other_cmp(int4, int4);
DROP VIEW differences, both_members, both_classes;

-- everything goes with the extension, indexes included, and comes back
CREATE TABLE dropped AS SELECT i, i::text AS t FROM generate_series(1, 100) i;
CREATE INDEX dropped_i ON dropped USING cachebatch (i, t);
DROP EXTENSION cache_batch CASCADE;
\d dropped
SELECT count(*) AS left_over FROM pg_opclass c
WHERE NOT EXISTS (SELECT FROM pg_am a WHERE a.oid = c.opcmethod);
SELECT count(*) AS left_over FROM pg_opfamily c
WHERE NOT EXISTS (SELECT FROM pg_am a WHERE a.oid = c.opfmethod);
CREATE EXTENSION cache_batch;
CREATE INDEX dropped_i ON dropped USING cachebatch (i, t);
DROP TABLE dropped;
RESET client_min_messages;
