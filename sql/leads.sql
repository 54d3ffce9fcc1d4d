-- Keys that are compared by their first bytes: what an index finds is what a table
-- without one has, also where keys differ behind these, or are equal in other bytes.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET max_parallel_workers_per_gather = 0;
SET jit = off;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;

CREATE FUNCTION leads_rows(l int, h int, OUT id int, OUT f float8, OUT u uuid, OUT i int4,
						   OUT d date, OUT t text, OUT c text, OUT b bytea, OUT m numeric,
						   OUT p bytea)
RETURNS SETOF record LANGUAGE sql AS $$
	SELECT n,
		   CASE WHEN n % 3 = 0 THEN (n * 31 % 40 - 20) / 7.0::float8
		   ELSE (ARRAY['-0', '0', 'NaN', 'Infinity', '-Infinity', '1e-310', '-1e-310', '1e300',
					   '-1e300', NULL])[1 + n % 10]::float8 END,
		   (lpad(to_hex(n % 5 * 1000000007::int8), 16, 'f0') ||
			lpad(to_hex(n % 11 * 268435399::int8), 16, '80'))::uuid,
		   CASE n % 13 WHEN 0 THEN -2147483648 WHEN 1 THEN 2147483647 ELSE n * 31 % 60 - 30 END,
		   CASE n % 17 WHEN 0 THEN date 'infinity' WHEN 1 THEN '-infinity'
		   ELSE date '2000-01-01' + (n * 13 % 40 - 20) END,
		   'x' || n % 5,
		   CASE n % 7 WHEN 0 THEN '' WHEN 1 THEN repeat('same', 2) || n % 5
		   WHEN 2 THEN repeat('same', 2) WHEN 3 THEN left('ABCDEFGH', n % 9)
		   WHEN 4 THEN repeat('L', 130) || n % 3 WHEN 5 THEN repeat('L', 1000 + n % 3)
		   WHEN 6 THEN CASE WHEN n % 2 = 0 THEN '~' || n % 5 END END,
		   CASE n % 7 WHEN 0 THEN '' WHEN 1 THEN '\x0000000000000000' || int4send(n % 3)
		   WHEN 2 THEN substr('\xffffffffffffffff00'::bytea, 1, n % 10)
		   WHEN 3 THEN substr('\x0000000000000000'::bytea, 1, n % 9)
		   WHEN 4 THEN decode(repeat('ab', 125 + n % 4), 'hex') ELSE int8send(n * 7919 % 40 - 20) END,
		   CASE WHEN n % 3 = 0 THEN (n * 31 % 40 - 20) * 10.0 ^ (n % 5 * 2 - 4)
		   ELSE (ARRAY['NaN', 'Infinity', '-Infinity', '0.000', '1', '1.0', '1.' || repeat('0', 70),
					   '1.' || repeat('0', 70) || '1', '1e200', '-1e200', '1e-200', '1e300', '-1e300',
					   '123456789012', '123456789012.0000', '123456789012.0001', '123456789012.0002',
					   '-123456789012.0001', '-123456789012.0002', NULL])[1 + n % 20]::numeric END,
		   substr('\x6161000000626200'::bytea, 1, n % 9)
	FROM generate_series(l, h) n
$$;
CREATE TABLE leads_t (id int, f float8, u uuid, i int4, d date, t text, c text COLLATE "C",
					  b bytea, m numeric, p bytea)
	WITH (autovacuum_enabled = off);
INSERT INTO leads_t SELECT * FROM leads_rows(1, 1500);
-- with length words of 4 bytes, which COPY leaves as they are
ALTER TABLE leads_t ALTER p SET STORAGE PLAIN;
COPY leads_t (id, i, p) FROM stdin;
10001	16	\\x
10002	7	\\x61
10003	9	\\x61
10004	5	\\x6161
10005	2000000000	\\x6161
10006	255	\\x616100
10007	8	\\x61610000
10008	8	\\x6161000000
10009	3	\\x6161000000626200
\.
CREATE INDEX leads_f ON leads_t USING cachebatch (f);
CREATE INDEX leads_u ON leads_t USING cachebatch (u);
CREATE INDEX leads_it ON leads_t USING cachebatch (i, t, f);
CREATE INDEX leads_iu ON leads_t USING cachebatch (i, u);
CREATE INDEX leads_ud ON leads_t USING cachebatch (u DESC, d);
CREATE INDEX leads_d ON leads_t USING cachebatch (d) INCLUDE (t);
CREATE INDEX leads_c ON leads_t USING cachebatch (c);
CREATE INDEX leads_cp ON leads_t USING cachebatch (c text_pattern_ops, i);
CREATE INDEX leads_b ON leads_t USING cachebatch (b);
CREATE INDEX leads_m ON leads_t USING cachebatch (m);
CREATE INDEX leads_mu ON leads_t USING cachebatch (m, u);
CREATE INDEX leads_pi ON leads_t USING cachebatch (p, i);
CREATE INDEX leads_ic ON leads_t USING cachebatch (i, c);
CREATE INDEX leads_ip ON leads_t USING cachebatch (i, p);
CREATE INDEX leads_id ON leads_t USING cachebatch (i, d) INCLUDE (c);
CREATE INDEX leads_icd ON leads_t USING cachebatch (i, c DESC);
ANALYZE leads_t;
CREATE TABLE leads_plain AS SELECT * FROM leads_t;

-- Comparisons of a column with each value that it has, and with one more, by six
-- operators, in both directions: keys in order and rows, against the other table's.
CREATE FUNCTION leads_compare(col text, type text, other text, more text, ordered text,
							  OUT asked int, OUT different int)
LANGUAGE plpgsql AS $$
DECLARE
	value	text;
	cond	text;
	dir		text;
	differs	bool;
BEGIN
	asked := 0;
	different := 0;
	FOR value IN EXECUTE format('SELECT DISTINCT %1$I::text FROM leads_plain WHERE %1$I IS NOT NULL '
								'UNION SELECT %2$L', col, other)
	LOOP
		FOR cond, dir IN SELECT format(c, col, value, other, type) || more, d
			FROM unnest(ARRAY['%1$I = %2$L::%4$s', '%1$I < %2$L::%4$s', '%1$I <= %2$L::%4$s', '%1$I > %2$L::%4$s', '%1$I >= %2$L::%4$s',
							  '%1$I = ANY (ARRAY[%2$L, %3$L, NULL]::%4$s[])']) c,
				 unnest(ARRAY['ASC', 'DESC']) d
		LOOP
			EXECUTE format('SELECT a IS DISTINCT FROM b FROM '
						   '(SELECT array_agg(%1$I) AS keys, sum(id) FROM '
						   '(SELECT %1$I, id FROM leads_t WHERE %2$s ORDER BY %3$s) s) a, '
						   '(SELECT array_agg(%1$I) AS keys, sum(id) FROM '
						   '(SELECT %1$I, id FROM leads_plain WHERE %2$s ORDER BY %3$s) s) b',
						   col, cond, replace(ordered, ',', ' ' || dir || ',') || ' ' || dir) INTO differs;
			asked := asked + 1;
			different := different + differs::int;
		END LOOP;
	END LOOP;
END
$$;
CREATE FUNCTION leads_compare_all(OUT col text, OUT asked int, OUT different int)
RETURNS SETOF record LANGUAGE sql AS $$
	SELECT c, l.* FROM (VALUES
		('f', 'float8', '0.5', '', 'f'),
		('u', 'uuid', 'f0f0f0f0-f0f0-f0f0-8080-808080808080', '', 'u'),
		('i', 'int4', '7', $q$ AND t >= 'x1'$q$, 'i,t,f'),
		('i', 'int4', '7', $q$ AND t = 'x3' AND f > 0$q$, 'i,t,f'),
		('i', 'int8', '3000000000', $q$ AND u > 'f0f0f0f0-f0f0-f0f0-8080-808080808080'$q$, 'i,u'),
		('u', 'uuid', 'f0f0f0f0-f0f0-f0f0-8080-808080808080', $q$ AND d > '2000-01-01'$q$, 'u'),
		('d', 'date', '2001-01-01', '', 'd'),
		('c', 'text', 'sameother', '', 'c'),
		('b', 'bytea', '\x00', '', 'b'),
		('m', 'numeric', '123456789012.00015', '', 'm'),
		('p', 'bytea', '\x6100', ' AND i >= 3', 'p,i'),
		('i', 'int4', '7', $q$ AND c >= 'samesame'$q$, 'i,c'),
		('i', 'int4', '7', $q$ AND c > repeat('L', 999)$q$, 'i,c'),
		('i', 'int4', '7', $q$ AND p >= '\x6161'$q$, 'i,p'),
		('i', 'int4', '7', $q$ AND d < '2000-01-01'$q$, 'i,d'),
		('m', 'numeric', '7.5', $q$ AND u > 'f0f0f0f0-f0f0-f0f0-8080-808080808080'$q$, 'm,u')) v (c, ty, o, m, s),
		leads_compare(c, ty, o, m, s) l
$$;

-- texts in an order of their own
CREATE FUNCTION leads_pattern(OUT asked int, OUT different int) LANGUAGE plpgsql AS $$
DECLARE
	value	text;
	op		text;
	differs	bool;
BEGIN
	asked := 0;
	different := 0;
	FOR value IN SELECT DISTINCT c FROM leads_plain WHERE c IS NOT NULL UNION SELECT 'sameother'
	LOOP
		FOREACH op IN ARRAY ARRAY['~<~', '~<=~', '~>=~', '~>~']
		LOOP
			EXECUTE format('SELECT a IS DISTINCT FROM b FROM '
						   '(SELECT array_agg(c) AS keys, sum(id) FROM '
						   '(SELECT c, id FROM leads_t WHERE c %1$s %2$L AND i > 3 ORDER BY c USING ~<~) s) a, '
						   '(SELECT array_agg(c) AS keys, sum(id) FROM '
						   '(SELECT c, id FROM leads_plain WHERE c %1$s %2$L AND i > 3 ORDER BY c USING ~<~) s) b',
						   op, value) INTO differs;
			asked := asked + 1;
			different := different + differs::int;
		END LOOP;
	END LOOP;
END
$$;

-- packed, as they were built
SELECT * FROM leads_compare_all();
SELECT * FROM leads_pattern();
-- above the tree
INSERT INTO leads_t SELECT * FROM leads_rows(1501, 2500);
INSERT INTO leads_plain SELECT * FROM leads_rows(1501, 2500);
SELECT * FROM leads_compare_all();
SELECT * FROM leads_pattern();
-- and merged into it
SELECT count(cache_batch_flush(indexrelid)) FROM pg_index WHERE indrelid = 'leads_t'::regclass;
SELECT * FROM leads_compare_all();
SELECT * FROM leads_pattern();
SELECT count(cache_batch_verify(indexrelid, true)) FROM pg_index WHERE indrelid = 'leads_t'::regclass;
DROP FUNCTION leads_rows, leads_compare, leads_compare_all, leads_pattern;
DROP TABLE leads_t, leads_plain;

-- pairs, in many leaves: separators have one column, or both
CREATE TABLE leads_pairs AS SELECT n % 400 - 200 AS i, n / 400 - 60 AS j, md5(n::text) AS t
	FROM generate_series(0, 47999) n;
CREATE INDEX leads_ij ON leads_pairs USING cachebatch (i, j);
CREATE INDEX leads_it ON leads_pairs USING cachebatch (i, t COLLATE "C");
ANALYZE leads_pairs;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SELECT sum((SELECT count(*) FROM leads_pairs p WHERE p.i = a - 200 AND p.j = b))
	FROM generate_series(0, 399) a, generate_series(-61, 60) b;
SELECT sum((SELECT count(*) FROM leads_pairs p WHERE p.i = a - 200 AND p.j >= b))
	FROM generate_series(0, 399) a, generate_series(-1, 1) b;
SELECT count(*) FROM leads_pairs WHERE i = 7 AND j > -4294967296;
SELECT sum((SELECT count(*) FROM leads_pairs p
			WHERE p.i = n % 400 - 200 AND p.t = md5(n::text) COLLATE "C"))
	FROM generate_series(0, 47999) n;
-- backward, to separators of which the first column is all that is left
SELECT sum((SELECT sum(j) FROM (SELECT j FROM leads_pairs p WHERE p.i = a - 200 AND p.j >= b
								ORDER BY p.i DESC, p.j DESC OFFSET 0) s))
	FROM generate_series(0, 399) a, generate_series(-1, 1) b;
SELECT cache_batch_verify('leads_ij', true), cache_batch_verify('leads_it', true);
DROP TABLE leads_pairs;

-- texts of more than 126 bytes, which cannot be compressed, and the least seconds
CREATE TABLE leads_long AS SELECT i, t, CASE WHEN n = 0 THEN -2147483648 ELSE n END AS j, b
	FROM generate_series(-20, 20) i, generate_series(0, 50) n,
		 LATERAL (SELECT CASE n % 5 WHEN 0 THEN '' WHEN 1 THEN md5(n::text) ELSE
						 (SELECT string_agg(md5((n * 7 + k)::text), '') FROM generate_series(0, n % 5 + 3) k) END,
						 substr('\x000000000000'::bytea, 1, n % 7)) x (t, b);
CREATE INDEX leads_long_it ON leads_long USING cachebatch (i, t COLLATE "C");
CREATE INDEX leads_long_ij ON leads_long USING cachebatch (i, j) WITH (pack_leaves = off, fillfactor = 10);
CREATE INDEX leads_long_ib ON leads_long USING cachebatch (i, b) WITH (pack_leaves = off, fillfactor = 10);
ANALYZE leads_long;
SELECT count(*), sum(n) FROM leads_long l,
	LATERAL (SELECT count(*) n FROM leads_long p WHERE p.i = l.i AND p.t = l.t COLLATE "C") x;
SELECT count(*), sum(n) FROM leads_long l,
	LATERAL (SELECT count(*) n FROM leads_long p WHERE p.i = l.i AND p.j = l.j) x;
SELECT count(*), sum(n) FROM leads_long l,
	LATERAL (SELECT count(*) n FROM leads_long p WHERE p.i = l.i AND p.b >= l.b) x;
DROP TABLE leads_long;
