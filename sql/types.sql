-- Every type that has a btree operator class, and every form of index:
-- answers through the index, in each way it can be scanned, against those of
-- a sequential scan
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
CREATE SCHEMA types;
SET search_path = types, public;
SET timezone = 'UTC';
RESET client_min_messages;

CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2',
						 deterministic = false);
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
ALTER TYPE mood ADD VALUE 'so so' BEFORE 'ok';
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN posint AS int CHECK (VALUE > 0);

-- a query's answer when only one way to scan is enabled
CREATE FUNCTION answer(q text, mode text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	PERFORM set_config('enable_seqscan', (mode = 'seq')::text, true),
			set_config('enable_indexscan', (mode IN ('index', 'only'))::text, true),
			set_config('enable_indexonlyscan', (mode = 'only')::text, true),
			set_config('enable_bitmapscan', (mode = 'bitmap')::text, true);
	EXECUTE q INTO result;
	RETURN result;
END $$;

-- whether a query's plan has the node and has no other sort than allowed
CREATE FUNCTION plan_has(q text, mode text, sorts boolean) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	line text;
	found_node boolean := false;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || q LOOP
		IF line LIKE '%Sort%' AND NOT sorts THEN
			RETURN false;
		END IF;
		found_node := found_node OR line LIKE
			CASE mode WHEN 'only' THEN '%Index Only Scan%using x_%'
					  WHEN 'bitmap' THEN '%Bitmap Index Scan on x_%'
					  ELSE '%Index Scan%using x_%' END;
	END LOOP;
	RETURN found_node;
END $$;

CREATE TYPE verdict AS (queries int, mismatches int, unindexed int,
						first_bad text);

-- runs a query in the given ways; the answer must be the same, and the index
-- must be used
CREATE FUNCTION compare(v verdict, q text, modes text[], sorts boolean = true)
RETURNS verdict
LANGUAGE plpgsql AS $$
DECLARE
	expected text := answer(q, 'seq');
	mode text;
	got text;
BEGIN
	FOREACH mode IN ARRAY modes LOOP
		v.queries := v.queries + 1;
		got := answer(q, mode);
		IF got IS DISTINCT FROM expected THEN
			v.mismatches := v.mismatches + 1;
			v.first_bad := coalesce(v.first_bad, mode || ': ' || q);
		END IF;
		IF NOT plan_has(q, mode, sorts) THEN
			v.unindexed := v.unindexed + 1;
			v.first_bad := coalesce(v.first_bad, mode || ' plan: ' || q);
		END IF;
	END LOOP;
	RETURN v;
END $$;

CREATE TABLE cases (
	name text PRIMARY KEY,
	type text NOT NULL,
	vals text[] NOT NULL,
	opclass text NOT NULL DEFAULT '',
	coll text NOT NULL DEFAULT '',
	ops text[] NOT NULL DEFAULT '{<,<=,=,>=,>}',
	probes text[] NOT NULL DEFAULT '{}'	-- other types to compare with
);

INSERT INTO cases (name, type, vals, opclass, coll) VALUES
('text_c', 'text', '{a,B,b,"",ab,aB,"a b",zz,ä,Z}', '', '"C"'),
('text_icu', 'text', '{a,B,b,"",ab,aB,"a b",zz,ä,Z}', '', '"und-x-icu"'),
('text_nocase', 'text', '{a,A,b,"",ab,aB,AB,zz,ä,Z,z}', '', 'nocase'),
('varchar', 'varchar(20)', '{a,B,b,"",ab,zz}', '', ''),
('varchar_ops', 'varchar', '{a,B,b,"",ab,zz}', 'varchar_ops', '"C"'),
('bpchar', 'char(5)', '{a,B,"b ",ab,zz,""}', '', '"und-x-icu"'),
('name', 'name', '{a,B,b,"",ab,zz,pg_class}', '', ''),
('char', '"char"', '{a,B,"",z}', '', ''),
('numeric', 'numeric',
 '{1.0,1.00,1,-1,NaN,0,0.00,1e-50,-1e50,Infinity,-Infinity,123456789.123}',
 '', ''),
('int2', 'int2', '{0,-1,1,32767,-32768,7}', '', ''),
('int4', 'int4', '{0,-1,1,2147483647,-2147483648,7}', '', ''),
('int8', 'int8', '{0,-1,1,9223372036854775807,-9223372036854775808,7}', '', ''),
('float4', 'float4', '{0,-0,1.5,NaN,Infinity,-Infinity,-1e30,1e-30}', '', ''),
('float8', 'float8', '{0,-0,1.5,NaN,Infinity,-Infinity,-1e300,1e-300}', '', ''),
('bool', 'bool', '{t,f}', '', ''),
('bytea', 'bytea', '{"","\\x00","\\x0001","\\xff","\\x61"}', '', ''),
('uuid', 'uuid', '{00000000-0000-0000-0000-000000000000,
 a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,
 ffffffff-ffff-ffff-ffff-ffffffffffff,
 a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12}', '', ''),
('date', 'date', '{2000-01-01,1999-12-31,infinity,-infinity,2024-02-29}',
 '', ''),
('timestamp', 'timestamp',
 '{2000-01-01,1999-12-31 23:59:59.999999,infinity,-infinity}', '', ''),
('timestamptz', 'timestamptz',
 '{2000-01-01 00:00+00,2000-01-01 02:00+02,1999-12-31 23:59+00,infinity,
   -infinity}', '', ''),
('time', 'time', '{00:00,24:00,12:34:56.789}', '', ''),
('timetz', 'timetz', '{00:00+00,12:00+02,10:00+00,11:00-01}', '', ''),
('interval', 'interval', '{1 mon,30 days,720:00,-1 day,0,1 year}', '', ''),
('money', 'money', '{0,-1.5,100,99999}', '', ''),
('oid', 'oid', '{0,1,4294967295,16384}', '', ''),
('oidvector', 'oidvector', '{"",1,"1 2","2 1","1 2 3"}', '', ''),
('tid', 'tid', '{"(0,1)","(0,2)","(1,1)","(4294967295,65535)"}', '', ''),
('xid8', 'xid8', '{0,1,18446744073709551615,4294967296}', '', ''),
('pg_lsn', 'pg_lsn', '{0/0,0/1,1/0,FFFFFFFF/FFFFFFFF}', '', ''),
('inet', 'inet', '{10.0.0.1,10.0.0.1/8,10.0.0.0/8,::1,192.168.1.0/24}', '', ''),
('cidr', 'cidr', '{10.0.0.0/8,10.0.0.0/16,::/0,192.168.1.0/24}', '', ''),
('cidr_ops', 'inet', '{10.0.0.1,10.0.0.1/8,::1}', 'cidr_ops', ''),
('macaddr', 'macaddr', '{08:00:2b:01:02:03,00:00:00:00:00:00,
 ff:ff:ff:ff:ff:ff}', '', ''),
('macaddr8', 'macaddr8', '{08:00:2b:01:02:03:04:05,00:00:00:00:00:00:00:00,
 ff:ff:ff:ff:ff:ff:ff:ff}', '', ''),
('bit', 'bit(4)', '{0000,0001,1000,1111}', '', ''),
('varbit', 'varbit', '{"",0,00,1,10,1111}', '', ''),
('int_array', 'int[]', '{"{}","{1}","{1,2}","{2}","{NULL}","{{1},{2}}"}',
 '', ''),
('text_array', 'text[]', '{"{}","{a}","{a,b}","{B}","{NULL,x}"}', '',
 '"und-x-icu"'),
('enum', 'mood', '{sad,"so so",ok,happy}', '', ''),
('domain', 'posint', '{1,2,3,2147483647}', '', ''),
('range', 'int4range', '{empty,"[1,5)","[1,6)","(,)","[3,)","(,2)"}', '', ''),
('multirange', 'nummultirange', '{"{}","{[1,5)}","{[1,2),[3,4)}","{(,)}"}',
 '', ''),
('record', 'pair', '{"(1,a)","(1,b)","(2,)","(,a)","(1,)"}', '', ''),
('tsvector', 'tsvector', '{"","a:1","a:1 b:2","b"}', '', ''),
('tsquery', 'tsquery', '{"a","a & b","!a","a | b"}', '', ''),
('jsonb', 'jsonb', '{"null","1","1.0","\"a\"","[]","[1]","{}","{\"a\":1}",
 "true"}', '', '');

INSERT INTO cases (name, type, vals, opclass, coll, ops) VALUES
('text_pattern', 'text', '{a,B,b,"",ab,aB,zz,ä}', 'text_pattern_ops',
 '"und-x-icu"', '{~<~,~<=~,=,~>=~,~>~}'),
('varchar_pattern', 'varchar', '{a,B,b,"",ab,zz}', 'varchar_pattern_ops',
 '', '{~<~,~<=~,=,~>=~,~>~}'),
('bpchar_pattern', 'char(5)', '{a,B,b,ab,zz,""}', 'bpchar_pattern_ops', '',
 '{~<~,~<=~,=,~>=~,~>~}'),
('record_image', 'pair', '{"(1,a)","(1,b)","(2,)","(,a)"}',
 'record_image_ops', '', '{*<,*<=,*=,*>=,*>}');

UPDATE cases SET probes = '{int4,int8}' WHERE name = 'int2';
UPDATE cases SET probes = '{int8}' WHERE name = 'int4';
UPDATE cases SET probes = '{float8}' WHERE name = 'float4';
UPDATE cases SET probes = '{timestamp,timestamptz}' WHERE name = 'date';
UPDATE cases SET probes = '{timestamptz,date}' WHERE name = 'timestamp';
UPDATE cases SET probes = '{timestamp}' WHERE name = 'timestamptz';
UPDATE cases SET probes = '{text}' WHERE name = 'name';

-- no class of btree's is left out, by name and input type
SELECT c.opcname, c.opcintype::regtype
FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
WHERE a.amname = 'btree' AND c.oid < 16384
  AND NOT EXISTS (
	SELECT FROM cases
	WHERE CASE WHEN opclass <> '' THEN c.opcname = opclass
			   ELSE c.opcdefault AND c.opcintype =
				CASE WHEN type = 'posint' THEN 'int4'::regtype
					 WHEN type LIKE 'varchar%' THEN 'text'::regtype
					 WHEN type = 'cidr' THEN 'inet'::regtype
					 WHEN type LIKE '%[]' THEN 'anyarray'::regtype
					 WHEN type = 'mood' THEN 'anyenum'::regtype
					 WHEN type = 'int4range' THEN 'anyrange'::regtype
					 WHEN type = 'nummultirange' THEN 'anymultirange'::regtype
					 WHEN type = 'pair' THEN 'record'::regtype
					 ELSE split_part(type, '(', 1)::regtype END END)
ORDER BY 1, 2;

-- Rows before the index is built, and more after, in statements small enough
-- for the journal: each value many times, spread, and nulls.  Some rows go.
CREATE VIEW fillings AS
SELECT name, part, format('INSERT INTO t_%s (v) '
	'SELECT (%L::text[])[1 + (i * 7) %% %s]::%s FROM generate_series(%s, %s) i '
	'UNION ALL SELECT NULL', name, vals, cardinality(vals), type,
	part * 25, part * 25 + 24) AS command
FROM cases, generate_series(1, 17) part;

-- each operator with each value, and full scans in both orders
CREATE FUNCTION check_case(c cases) RETURNS verdict
LANGUAGE plpgsql AS $$
DECLARE
	v verdict := (0, 0, 0, NULL);
	all_modes text[] := '{index,only,bitmap}';
	digest text := 'SELECT count(*) || md5(coalesce(string_agg(v::text, '','' '
		'ORDER BY v::text COLLATE "C"), '''')) FROM t_' || c.name;
	value text;
	op text;
	probe text;
BEGIN
	FOREACH value IN ARRAY c.vals LOOP
		FOREACH op IN ARRAY c.ops LOOP
			FOREACH probe IN ARRAY c.type || c.probes LOOP
				v := compare(v, format('%s WHERE v %s %L::%s', digest, op,
									   value, probe), all_modes);
			END LOOP;
		END LOOP;
		v := compare(v, format('%s WHERE v %s %L::%s AND v %s %L::%s', digest,
							   c.ops[4], c.vals[1], c.type, c.ops[2], value,
							   c.type), all_modes);
	END LOOP;
	IF c.type NOT LIKE '%[]' THEN
		v := compare(v, format('%s WHERE v %s ANY (%L::text[]::%s[])', digest,
							   c.ops[3], c.vals || NULL, c.type), all_modes);
	END IF;
	IF c.type <> 'pair' THEN
		v := compare(v, digest || ' WHERE v IS NULL', all_modes);
		v := compare(v, digest || ' WHERE v IS NOT NULL', all_modes);
	END IF;
	v := compare(v, format('SELECT (count(*) FILTER (WHERE p %s v), count(*), '
						   'count(v))::text FROM (SELECT v, lag(v) OVER () AS p '
						   'FROM (SELECT v FROM t_%s ORDER BY v USING %s) s) x',
						   c.ops[5], c.name, c.ops[1]), '{index,only}', false);
	v := compare(v, format('SELECT (count(*) FILTER (WHERE p %s v), count(*), '
						   'count(v))::text FROM (SELECT v, lag(v) OVER () AS p '
						   'FROM (SELECT v FROM t_%s ORDER BY v USING %s) s) x',
						   c.ops[1], c.name, c.ops[5]), '{index,only}', false);
	RETURN v;
END $$;

\set ECHO none
SELECT format('CREATE TABLE t_%s (id serial, v %s %s) '
			  'WITH (autovacuum_enabled = off)', name, type,
			  CASE WHEN coll <> '' THEN 'COLLATE ' || coll END)
FROM cases ORDER BY name \gexec
SELECT command FROM fillings WHERE part <= 9 \gexec
SELECT format('CREATE INDEX x_%s ON t_%s USING cachebatch (v %s)', name, name,
			  opclass)
FROM cases ORDER BY name \gexec
SELECT command FROM fillings WHERE part > 9 \gexec
SELECT format('DELETE FROM t_%s WHERE id %% 9 = 0', name) FROM cases \gexec
\set ECHO all
SELECT count(*) AS journals, min(n) AS least, max(n) AS most
FROM cases, LATERAL (SELECT sum(nentries) AS n
					 FROM cache_batch_journal(('x_' || name)::regclass)) j;
ANALYZE;

SELECT c.name, v.mismatches, v.unindexed, v.first_bad
FROM cases c, LATERAL check_case(c) v
WHERE v.mismatches + v.unindexed > 0 OR v.queries < 30
ORDER BY 1;

-- once more, after the journals were flushed, and with all pages all-visible
SELECT count(cache_batch_flush(('x_' || name)::regclass)) AS flushed
FROM cases;
\set ECHO none
SELECT format('VACUUM t_%s', name) FROM cases ORDER BY name \gexec
\set ECHO all
SELECT c.name, v.mismatches, v.unindexed, v.first_bad
FROM cases c, LATERAL check_case(c) v
WHERE v.mismatches + v.unindexed > 0
ORDER BY 1;
SELECT count(cache_batch_verify(('x_' || name)::regclass, true)) AS verified
FROM cases;

-- and rebuilt from what is there
\set ECHO none
SELECT format('REINDEX INDEX x_%s', name) FROM cases ORDER BY name \gexec
\set ECHO all
SELECT c.name, v.mismatches, v.unindexed, v.first_bad
FROM cases c, LATERAL check_case(c) v
WHERE c.name IN ('text_icu', 'numeric', 'record') AND
	  v.mismatches + v.unindexed > 0
ORDER BY 1;

-- and after CLUSTER, which reads all row versions through the index (C2)
INSERT INTO t_record (v) VALUES ('(7,x)');
CLUSTER t_record USING x_record;
SELECT v.mismatches, v.unindexed, v.first_bad
FROM cases c, LATERAL check_case(c) v WHERE c.name = 'record';

-- forms of indexes
CREATE TABLE forms (id serial, a int, b text COLLATE "und-x-icu", c numeric,
					d timestamptz, e text, f boolean, n inet)
	WITH (autovacuum_enabled = off);
CREATE PROCEDURE fill_forms(n int) LANGUAGE sql AS $$
	INSERT INTO forms (a, b, c, d, e, f, n)
	SELECT nullif(i % 13, 5), nullif('k' || i % 7, 'k3'),
		   nullif((i % 5) / 2.0, 1), '2024-01-01'::timestamptz + i % 11 * '1h'::interval,
		   repeat('x', i % 40), nullif(i % 3, 2) = 0, '10.0.0.0'::inet + i % 99
	FROM generate_series(1, n) i;
$$;
CALL fill_forms(1500);
CREATE INDEX x_abc ON forms USING cachebatch (a, b DESC, c NULLS FIRST);
CREATE INDEX x_inc ON forms USING cachebatch (d DESC NULLS LAST)
	INCLUDE (id, e);
CREATE INDEX x_expr ON forms USING cachebatch (lower(b), (a * 2))
	WITH (fillfactor = 50);
CREATE INDEX x_part ON forms USING cachebatch (c, id) WHERE a > 6;
CREATE INDEX x_e ON forms USING cachebatch (e text_pattern_ops);
CREATE INDEX x_f ON forms USING cachebatch (f, id);
CREATE INDEX x_n ON forms USING cachebatch (n);
\set ECHO none
SELECT format('CALL fill_forms(%s)', n) FROM generate_series(1, 35) n \gexec
\set ECHO all
SELECT bool_and((SELECT sum(nentries) FROM cache_batch_journal(c.oid)) > 100)
	AS journals
FROM pg_class c WHERE relname LIKE 'x\_%' AND relnamespace = 'types'::regnamespace
	AND c.relkind = 'i' AND relname NOT IN (SELECT 'x_' || name FROM cases);
DELETE FROM forms WHERE id % 10 = 3;
UPDATE forms SET a = a + 1 WHERE id % 10 = 4;
ANALYZE forms;

CREATE TABLE form_queries (modes text[], sorts boolean, q text);
INSERT INTO form_queries SELECT '{index,bitmap}', true,
	'SELECT count(*) || md5(string_agg(id::text, '','' ORDER BY id)) '
	'FROM forms WHERE ' || w
FROM unnest(ARRAY[
	'a = 4', 'a = 4 AND b = ''k2''', 'a = 4 AND b < ''k2''',
	'a = 4 AND b >= ''k2'' AND c > 0.5', 'a = 4 AND b IS NULL',
	'a IS NULL AND b = ''k1'' AND c IS NULL', 'a > 3 AND a <= 5 AND c = 0.5',
	'a = ANY (''{1,4,4,9,NULL}'') AND b = ANY (''{k1,k6}'')',
	'a IN (1, 2, 3) AND b > ''k2''', 'a > 3 AND a > 8::bigint',
	'a = 3.0::int AND b <> ''k1''',
	'a < 3 AND a > 7', 'a IS NOT NULL AND a < 2', '(a, b) = (4, ''k2'')',
	'a IN (3, 8) AND c IS NULL AND b IN (''k0'', ''k5'')',
	'd = ''2024-01-01 03:00+00''', 'd > ''2024-01-01 03:00+00''',
	'd < ''2024-01-01''::date',
	'd BETWEEN ''2024-01-01 03:00+00'' AND ''2024-01-01 04:00+00''',
	'lower(b) = ''k4''', 'lower(b) = ''k4'' AND a * 2 > 10',
	'lower(b) >= ''k4'' AND lower(b) <= ''k5'' AND a * 2 = 8',
	'f', 'NOT f', 'f IS TRUE', 'f = false AND id < 50', 'f IS NULL',
	'e LIKE ''xxx%''', 'e LIKE ''xx''', 'n << ''10.0.0.8/29''', 'n <<= ''10.0.0.8''',
	'c = 0.5 AND a > 6', 'c < 1.5 AND a > 6 AND id > 700', 'c IS NULL AND a > 7'
	]) w;
INSERT INTO form_queries SELECT '{index}', false,
	'SELECT count(*) || md5(string_agg(x::text, '','')) FROM (' || w || ') x'
FROM unnest(ARRAY[
	'SELECT a, b, c FROM forms ORDER BY a, b DESC, c NULLS FIRST',
	'SELECT a, b, c FROM forms ORDER BY a DESC, b, c DESC NULLS LAST',
	'SELECT a, b, c FROM forms WHERE a = 4 ORDER BY b DESC, c NULLS FIRST',
	'SELECT a, b, c FROM forms WHERE a = 4 ORDER BY b, c DESC NULLS LAST LIMIT 25',
	'SELECT a, b FROM forms WHERE a > 3 ORDER BY a, b DESC LIMIT 100',
	'SELECT d FROM forms ORDER BY d DESC NULLS LAST LIMIT 500',
	'SELECT d FROM forms ORDER BY d NULLS FIRST LIMIT 500 OFFSET 100',
	'SELECT lower(b) AS l, a * 2 AS m FROM forms ORDER BY lower(b), a * 2',
	'SELECT lower(b) AS l FROM forms WHERE lower(b) < ''k4'' ORDER BY lower(b) DESC',
	'SELECT c, id FROM forms WHERE a > 6 ORDER BY c, id',
	'SELECT c, id FROM forms WHERE a > 6 ORDER BY c DESC, id DESC LIMIT 50',
	'SELECT min(d) AS l FROM forms', 'SELECT max(a) AS l FROM forms'
	]) w;
INSERT INTO form_queries VALUES ('{only}', true,
	'SELECT count(*) || md5(string_agg(d::text || id || e, '','' ORDER BY id)) '
	'FROM forms WHERE d > ''2024-01-01 03:00+00'''),
	('{only}', true, 'SELECT count(*) || md5(string_agg(a::text || b || c, '','' '
	'ORDER BY a, b, c)) FROM forms WHERE a > 3 AND c > 0.5');

SELECT v.mismatches, v.unindexed, v.first_bad
FROM form_queries f, compare((0, 0, 0, NULL)::verdict, q, modes, sorts) v
WHERE v.mismatches + v.unindexed > 0;
VACUUM forms;
SELECT v.mismatches, v.unindexed, v.first_bad
FROM form_queries f, compare((0, 0, 0, NULL)::verdict, q, modes, sorts) v
WHERE v.mismatches + v.unindexed > 0;
SELECT count(cache_batch_verify(('types.' || indexname)::regclass, true))
	AS verified
FROM pg_indexes WHERE schemaname = 'types' AND tablename = 'forms';

-- merge join, and nested loop with rescans
SET enable_hashjoin = off;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET enable_nestloop = off;
EXPLAIN (COSTS OFF)
SELECT count(*) FROM t_int4 x JOIN t_int8 y ON x.v = y.v;
SELECT count(*) FROM t_int4 x JOIN t_int8 y ON x.v = y.v;
SET enable_nestloop = on;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
EXPLAIN (COSTS OFF)
SELECT count(*) FROM t_int4 x JOIN t_int8 y ON x.v = y.v;
SELECT count(*) FROM t_int4 x JOIN t_int8 y ON x.v = y.v;
SET enable_hashjoin = on;
SET enable_seqscan = on;
SET enable_nestloop = off;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT count(*) FROM t_int4 x JOIN t_int8 y ON x.v = y.v;
RESET ALL;

SET client_min_messages = warning;
DROP SCHEMA types CASCADE;
