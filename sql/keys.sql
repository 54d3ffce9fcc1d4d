-- Conditions of all kinds on several columns: index scans give what a sequential
-- scan gives, in order, whatever the conditions are.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET max_parallel_workers_per_gather = 0;
SET jit = off;
SET enable_sort = off;
SET enable_incremental_sort = off;

CREATE TABLE keys_t (a int8, b int4, c text COLLATE "C", d date) WITH (autovacuum_enabled = off);
CREATE FUNCTION keys_fill(l int, h int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO keys_t
	SELECT nullif(i % 7, 6), nullif(i * 31 % 97, 96), nullif('c' || i * 7 % 23, 'c22'),
		   date '2020-01-01' + (i * 13 % 40)
	FROM generate_series(l, h) i
$$;
SELECT keys_fill(1, 6000);
CREATE INDEX keys_abc ON keys_t USING cachebatch (a, b, c);
CREATE INDEX keys_desc ON keys_t USING cachebatch (a DESC NULLS LAST, b NULLS FIRST, c DESC) WITH (pack_leaves = off);
CREATE INDEX keys_bda ON keys_t USING cachebatch (b DESC, d, a) WITH (fillfactor = 10);
CREATE INDEX keys_bca ON keys_t USING cachebatch (b, c, a) WITH (fillfactor = 10);
CREATE INDEX keys_bd ON keys_t USING cachebatch (b, d) INCLUDE (a);
CREATE INDEX keys_bcd ON keys_t USING cachebatch (b, c DESC, d);
ANALYZE keys_t;

-- a condition on a column: x and y are values, f a form
CREATE FUNCTION keys_condition(col text, x text, y text, z text, type text, f int) RETURNS text
LANGUAGE sql AS $$
	SELECT format((ARRAY[
		'%1$s = %2$s::%5$s',
		'%1$s = ANY (ARRAY[%2$s, %3$s, NULL, %4$s, %2$s]::%5$s[])',
		'%1$s >= %2$s::%5$s AND %1$s <= %3$s::%5$s',
		'%1$s > %2$s::%5$s',
		'%1$s < %2$s::%5$s AND %1$s < %3$s::%5$s',
		'%1$s IS NULL',
		'%1$s IS NOT NULL',
		'%1$s = ANY (ARRAY[%2$s, %3$s]::%5$s[]) AND %1$s > %4$s::%5$s',
		'%1$s = ANY (ARRAY[%2$s, %3$s]::%5$s[]) AND %1$s = ANY (ARRAY[%4$s, %3$s]::%5$s[])',
		'%1$s < ANY (ARRAY[%2$s, %3$s, NULL]::%5$s[])',
		'%1$s >= ANY (ARRAY[%2$s, %3$s]::%5$s[])',
		'%1$s = ANY (ARRAY[NULL]::%5$s[])',
		'true'])[f], col, x, y, z, type)
$$;

-- a random condition, of any type that the column is compared with
CREATE FUNCTION keys_random(col text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE col
		WHEN 'a' THEN keys_condition('a', (random() * 8 - 1)::int::text, (random() * 8 - 1)::int::text,
									 (random() * 8 - 1)::int::text,
									 (ARRAY['int8', 'int4', 'int2'])[1 + floor(random() * 3)], f)
		WHEN 'b' THEN keys_condition('b', (random() * 99)::int::text, (random() * 99)::int::text,
									 (random() * 99)::int::text,
									 (ARRAY['int8', 'int4', 'int2'])[1 + floor(random() * 3)], f)
		WHEN 'c' THEN keys_condition('c', quote_literal('c' || (random() * 23)::int), quote_literal('c' || (random() * 23)::int),
									 quote_literal('c' || (random() * 23)::int), 'text', f)
		ELSE keys_condition('d', quote_literal(date '2020-01-01' + (random() * 42)::int),
							quote_literal(date '2020-01-01' + (random() * 42)::int),
							quote_literal(date '2020-01-01' + (random() * 42)::int),
							(ARRAY['date', 'timestamp', 'timestamptz'])[1 + floor(random() * 3)], f)
		END
	FROM (SELECT 1 + floor(random() * 13)::int AS f) r
$$;

-- orders that an index gives, forward or backward
CREATE TABLE keys_orders (no int, cols text, ordering text);
INSERT INTO keys_orders VALUES
	(1, 'a, b, c', 'a, b, c'),
	(2, 'a, b, c', 'a DESC, b DESC, c DESC'),
	(3, 'a, b, c', 'a DESC NULLS LAST, b NULLS FIRST, c DESC'),
	(4, 'a, b, c', 'a NULLS FIRST, b DESC NULLS LAST, c'),
	(5, 'b, d, a', 'b DESC, d, a'),
	(6, 'b, d, a', 'b, d DESC, a DESC'),
	(7, 'b, c, a', 'b, c, a'),
	(8, 'b, c, a', 'b DESC, c DESC, a DESC'),
	(9, 'b, d', 'b, d'),
	(10, 'b, d', 'b DESC, d DESC'),
	(11, 'b, c, d', 'b, c DESC, d'),
	(12, 'b, c, d', 'b DESC, c, d DESC');

-- asks n random questions by index and by sequential scan
CREATE FUNCTION keys_ask(n int, seed float) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	q text;
	o keys_orders;
	got text;
	want text;
	mode int;
	wrong int := 0;
BEGIN
	PERFORM setseed(seed);
	FOR i IN 1 .. n LOOP
		SELECT * INTO o FROM keys_orders WHERE no = 1 + i % 12;
		SELECT string_agg(keys_random(trim(col)), ' AND ') INTO q
		FROM unnest(string_to_array(o.cols, ',')) col;
		q := format('SELECT %s FROM keys_t WHERE %s ORDER BY %s', o.cols, q, o.ordering);
		q := format('SELECT md5(string_agg(x::text, '','')) FROM (%s) x', q);
		mode := i / 12 % 3;
		SET enable_seqscan = off;
		PERFORM set_config('enable_bitmapscan', CASE WHEN mode = 0 THEN 'on' ELSE 'off' END, false),
			set_config('enable_indexscan', CASE WHEN mode = 0 THEN 'off' ELSE 'on' END, false),
			set_config('enable_indexonlyscan', CASE WHEN mode = 1 THEN 'on' ELSE 'off' END, false);
		EXECUTE q INTO got;
		SET enable_seqscan = on;
		SET enable_bitmapscan = off;
		SET enable_indexscan = off;
		SET enable_indexonlyscan = off;
		EXECUTE q INTO want;
		IF got IS DISTINCT FROM want THEN
			wrong := wrong + 1;
			RETURN NEXT mode || ': ' || q;
		END IF;
	END LOOP;
	RETURN NEXT n || ' questions, ' || wrong || ' wrong answers';
END $$;

-- in the tree; then in buckets and journal as well; then all in the tree again
SELECT * FROM keys_ask(600, 0.1);
DO $$ BEGIN FOR i IN 0 .. 19 LOOP PERFORM keys_fill(6001 + i * 50, 6050 + i * 50); END LOOP; END $$;
SELECT * FROM keys_ask(600, 0.2);
DELETE FROM keys_t WHERE a = 3 AND b % 2 = 0;
UPDATE keys_t SET b = b + 1 WHERE c = 'c7';
SELECT * FROM keys_ask(400, 0.3);
VACUUM keys_t;
SELECT * FROM keys_ask(400, 0.4);

-- an array that changes from row to row
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_indexscan = on;
SELECT count(*), sum(y.b) FROM keys_t x JOIN keys_t y
ON y.a = ANY (ARRAY[x.a, x.a + 1, NULL]) AND y.b = x.b WHERE x.d = '2020-01-05';
SET enable_indexscan = off;
SET enable_nestloop = off;
SET enable_seqscan = on;
SELECT count(*), sum(y.b) FROM keys_t x JOIN keys_t y
ON y.a = ANY (ARRAY[x.a, x.a + 1, NULL]) AND y.b = x.b WHERE x.d = '2020-01-05';
DROP TABLE keys_t, keys_orders;
RESET ALL;
SET client_min_messages = warning;
SET enable_seqscan = off;
SET enable_bitmapscan = off;

-- entries of one value in chunks that a look-up of another one leaves out: after an
-- entry of a third value that is not wanted, ...
CREATE TABLE keys_point (a int, b int);
CREATE INDEX keys_point_ab ON keys_point USING cachebatch (a, b);
INSERT INTO keys_point VALUES (1, 10000);
INSERT INTO keys_point SELECT 3, g FROM generate_series(1, 20000) g;
SELECT cache_batch_flush('keys_point_ab');
DO $$ BEGIN FOR i IN 1 .. 3 LOOP INSERT INTO keys_point VALUES (2, 10000); END LOOP; END $$;
SELECT * FROM keys_point WHERE a IN (1, 2, 3) AND b = 10000 ORDER BY a;
SELECT * FROM keys_point WHERE a IN (1, 2, 3) AND b = 10000 ORDER BY a DESC;
-- ... and where a scan's first window is full with the last entry of its value
CREATE TABLE keys_full (k int);
CREATE INDEX keys_full_k ON keys_full USING cachebatch (k);
INSERT INTO keys_full SELECT 1 FROM generate_series(1, 128);
INSERT INTO keys_full VALUES (3);
SELECT cache_batch_flush('keys_full_k');
DO $$ BEGIN FOR i IN 1 .. 3 LOOP INSERT INTO keys_full VALUES (2); END LOOP; END $$;
SELECT k, count(*) FROM keys_full WHERE k IN (1, 2, 3) GROUP BY k ORDER BY k;

-- null comes after the greatest value
CREATE TABLE keys_last (k int, d date, n int, x int);
CREATE INDEX keys_last_kdx ON keys_last USING cachebatch (k, d, x);
CREATE INDEX keys_last_nx ON keys_last USING cachebatch (n DESC, x);
INSERT INTO keys_last VALUES (1, 'infinity', 2147483647, 7), (1, NULL, NULL, 5), (1, '-infinity', -2147483648, 7);
SELECT x FROM keys_last WHERE k = 1 AND x = 5;
SELECT x FROM keys_last WHERE n IS NOT DISTINCT FROM n AND x = 5 ORDER BY n, x;
SELECT x FROM keys_last WHERE x = 7 ORDER BY n DESC, x;

-- a comparison with another type that has an order of its own: the scan ends
CREATE TABLE keys_clock (t timestamp);
INSERT INTO keys_clock SELECT timestamp '2024-03-10 00:00' + i * interval '1 second' FROM generate_series(1, 20000) i;
CREATE INDEX keys_clock_t ON keys_clock USING cachebatch (t) WITH (pack_leaves = off, fillfactor = 10);
SET timezone = 'America/New_York';
SELECT count(*) > 0 FROM (SELECT t FROM keys_clock WHERE t > timestamptz '2024-03-10 07:30+00' ORDER BY t) x;
SELECT count(*) > 0 FROM (SELECT t FROM keys_clock
	WHERE t = ANY (ARRAY[timestamptz '2024-03-10 06:30+00', '2024-03-10 07:10+00', '2024-03-10 07:30+00'])) x;
TRUNCATE keys_clock;
INSERT INTO keys_clock VALUES ('2026-03-08 02:00'), ('2026-03-08 02:30'), ('2026-03-08 03:15');
SELECT * FROM keys_clock WHERE t = ANY ('{2026-03-08 03:00,2026-03-08 03:30}'::timestamptz[]);
RESET timezone;

-- of many wanted entries not each is looked at: it is where the hour that is left out lies
-- among them (btree, too, stops before it), and where the last column has one value only
CREATE TABLE keys_whole (a int, b int, t timestamp);
INSERT INTO keys_whole
	SELECT g, i, timestamp '2024-03-10 00:00' + (g * g + i) * interval '1 s'
	FROM generate_series(1, 172) g, generate_series(0, 2 * g) i;
CREATE INDEX keys_whole_t ON keys_whole USING cachebatch (t);
CREATE INDEX keys_whole_ab ON keys_whole USING cachebatch (a, b) WITH (pack_leaves = off, fillfactor = 10);
SET timezone = 'America/New_York';
SELECT count(*) FROM (SELECT t FROM keys_whole WHERE t < timestamptz '2024-03-10 07:59+00' ORDER BY t) x;
SELECT count(*) FROM (SELECT t FROM keys_whole WHERE t < timestamptz '2024-03-10 07:59:50+00' ORDER BY t) x;
RESET timezone;
SELECT g, n FROM generate_series(4, 172) g,
	LATERAL (SELECT count(*) n FROM (SELECT b FROM keys_whole WHERE a = g AND b > 7 ORDER BY b DESC) x) y
	WHERE n <> 2 * g - 7;
CREATE INDEX keys_whole_tb ON keys_whole USING cachebatch (t, (b % 7));
SELECT count(*) FROM keys_whole WHERE t > '2024-03-10 01:00' AND b % 7 = 0;
SELECT count(*) FROM keys_whole WHERE t > '2024-03-10 01:00' AND b % 7 <> 0 AND b % 7 < 3;
SET enable_indexscan = off;
SET enable_seqscan = on;
SELECT count(*) FROM keys_whole WHERE t > '2024-03-10 01:00' AND b % 7 = 0;
SELECT count(*) FROM keys_whole WHERE t > '2024-03-10 01:00' AND b % 7 <> 0 AND b % 7 < 3;
SET enable_seqscan = off;
RESET enable_indexscan;
DROP TABLE keys_whole;

-- an operator family without the comparison that a condition on a later column needs
CREATE OPERATOR FAMILY keys_family USING cachebatch;
CREATE OPERATOR CLASS keys_ops FOR TYPE int USING cachebatch FAMILY keys_family AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	OPERATOR 1 < (int, int8), OPERATOR 5 > (int, int8), FUNCTION 1 btint4cmp(int, int);
CREATE TABLE keys_some (a int, b int);
INSERT INTO keys_some SELECT i % 3, i FROM generate_series(1, 3000) i;
CREATE INDEX keys_some_ab ON keys_some USING cachebatch (a, b keys_ops) WITH (buffered = on);
SELECT count(*) FROM keys_some WHERE b > 2000::int8;
SELECT count(*) FROM keys_some WHERE a IN (0, 1) AND b > 2000::int8 AND b < 2100::int8;
CREATE TABLE keys_nulls (a int);
INSERT INTO keys_nulls SELECT nullif(i, 50) FROM generate_series(1, 100) i;
CREATE INDEX keys_nulls_a ON keys_nulls USING cachebatch (a keys_ops NULLS FIRST) WITH (buffered = on);
SELECT count(*) FROM keys_nulls WHERE a < 20::int8;

-- a short type, many equal entries, and long ones
CREATE TABLE keys_short (s int2, k text COLLATE "C");
INSERT INTO keys_short SELECT i / 300, lpad((i / 40)::text, 10, '0') || repeat('x', 700) FROM generate_series(0, 5999) i;
CREATE INDEX keys_short_s ON keys_short USING cachebatch (s);
CREATE INDEX keys_short_k ON keys_short USING cachebatch (k) WITH (pack_leaves = off);
SELECT s, count(*) FROM keys_short WHERE s IN (1, 17, 30000) GROUP BY s ORDER BY s;
SELECT left(k, 10), count(*) FROM keys_short
WHERE k IN (lpad('3', 10, '0') || repeat('x', 700), lpad('140', 10, '0') || repeat('x', 700)) GROUP BY 1 ORDER BY 1;
DROP TABLE keys_nulls, keys_short;
DROP TABLE keys_point, keys_full, keys_last, keys_clock, keys_some;
DROP OPERATOR FAMILY keys_family USING cachebatch;
DROP FUNCTION keys_fill, keys_condition, keys_random, keys_ask;

-- the planner knows that a scan goes from value to value of a column without an
-- equality, if there are few
CREATE FUNCTION keys_cost(query text) RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan->0->'Plan'->>'Total Cost';
END $$;
CREATE TABLE keys_skip (a int, b int) WITH (autovacuum_enabled = off);
INSERT INTO keys_skip SELECT i % 10, i FROM generate_series(1, 20000) i;
CREATE INDEX keys_skip_ab ON keys_skip USING cachebatch (a, b);
VACUUM ANALYZE keys_skip;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT a, b FROM keys_skip WHERE b = 777;
SELECT keys_cost('SELECT a, b FROM keys_skip WHERE b = 777') < 0.5 * keys_cost('SELECT a, b FROM keys_skip') AS cheap;
SELECT a, b FROM keys_skip WHERE b = 777;
SELECT a, b FROM keys_skip WHERE a > 4 AND b = ANY ('{777,778,779}') ORDER BY a;
DROP INDEX keys_skip_ab;
CREATE INDEX keys_skip_ba ON keys_skip USING cachebatch (b, a);
SELECT keys_cost('SELECT a, b FROM keys_skip WHERE a = 3') > 0.5 * keys_cost('SELECT a, b FROM keys_skip') AS dear;
DROP TABLE keys_skip;
DROP FUNCTION keys_cost;
RESET enable_bitmapscan;

-- a scan that is started again with other values, and null among them; keys of one
-- column that contradict each other; a scan with more keys after one with few
CREATE TABLE keys_again (a int8, b int, t text);
INSERT INTO keys_again SELECT i % 50, i, 't' || i FROM generate_series(1, 1000) i;
CREATE INDEX keys_again_ab ON keys_again USING cachebatch (a, b);
CREATE INDEX keys_again_t ON keys_again USING cachebatch (t);
CREATE TABLE keys_outer (n int, a int4, b int, c int8, t text);
INSERT INTO keys_outer VALUES (1, 7, 107, 7, 't7'), (2, NULL, 107, 7, NULL), (3, 8, 107, 7, 't8'),
	(4, 7, 157, 7, 't1000'), (5, 7, NULL, 7, 't999'), (6, 9, 109, 9, 'none'), (7, 9, 109, 8, 't9');
ANALYZE keys_again, keys_outer;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
SET enable_bitmapscan = off;
SET enable_sort = on;
SELECT o.n, k.b, x.t FROM keys_outer o
LEFT JOIN keys_again k ON k.a = o.a AND k.b = o.b LEFT JOIN keys_again x ON x.t = o.t ORDER BY n;
SELECT o.n, count(k.b), min(k.b) FROM keys_outer o
LEFT JOIN keys_again k ON k.a = o.a AND k.a = o.c GROUP BY n ORDER BY n;
SELECT o.n, count(k.b), min(k.b) FROM keys_outer o
LEFT JOIN keys_again k ON k.a = o.a AND k.a = ANY (ARRAY[o.c, 8]) GROUP BY n ORDER BY n;
SELECT b FROM keys_again WHERE a > 40 AND a >= 41 AND a < 45 AND a <= 44 AND b > 940 AND b < 943 ORDER BY b;
SELECT t FROM keys_again WHERE t = 't500';
DROP TABLE keys_again, keys_outer;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
RESET enable_memoize;
RESET enable_bitmapscan;
RESET enable_sort;
-- arrays of numbers alone: with gaps, equal elements, nulls, both ends of what there is and
-- of the type; forward, backward, and to and fro
CREATE TABLE keys_numbers (k int8) WITH (autovacuum_enabled = off);
CREATE INDEX keys_numbers_k ON keys_numbers USING cachebatch (k);
INSERT INTO keys_numbers SELECT i * 7919 % 500 * 3 FROM generate_series(1, 3000) i;
SELECT cache_batch_flush('keys_numbers_k') IS NOT NULL AS flushed;
INSERT INTO keys_numbers VALUES (-9223372036854775808), (9223372036854775807), (0), (1497), (1500), (NULL);
INSERT INTO keys_numbers SELECT i * 6 FROM generate_series(1, 100) i;
SET enable_sort = on;
CREATE FUNCTION keys_array(seed int) RETURNS int8[] LANGUAGE sql AS $$
	SELECT array_agg(nullif((hashint4extended(i, seed) & 1023) * 2 - 20, 0)) ||
		CASE seed % 4 WHEN 0 THEN '{-9223372036854775808,9223372036854775807}'
		WHEN 1 THEN '{1497,1500,1500}' ELSE '{NULL}'::int8[] END
	FROM generate_series(1, 1 + seed) i
$$;
CREATE FUNCTION keys_read(how text, seed int) RETURNS int8[] LANGUAGE plpgsql AS $$
DECLARE
	found int8[];
BEGIN
	PERFORM set_config('enable_seqscan', (how = 'table')::text, true),
		set_config('enable_indexscan', (how <> 'table')::text, true),
		set_config('enable_indexonlyscan', (how <> 'table')::text, true);
	EXECUTE 'SELECT array_agg(k) FROM (SELECT k FROM keys_numbers WHERE k = ANY ($1) ORDER BY k ' ||
		CASE how WHEN 'backward' THEN 'DESC' ELSE 'ASC' END || ') x' INTO found USING keys_array(seed);
	RETURN found;
END $$;
SET enable_bitmapscan = off;
SELECT count(t) AS arrays, sum(cardinality(t)) > 300 AS many,
	count(*) FILTER (WHERE t IS DISTINCT FROM f) AS forward_differs,
	count(*) FILTER (WHERE t IS DISTINCT FROM (SELECT array_agg(k ORDER BY k) FROM unnest(b) k) OR
					 b IS DISTINCT FROM (SELECT array_agg(k ORDER BY k DESC) FROM unnest(b) k)) AS backward_differs
FROM (SELECT keys_read('table', seed) AS t, keys_read('forward', seed) AS f, keys_read('backward', seed) AS b
	  FROM generate_series(1, 40) seed OFFSET 0) x;
SET enable_seqscan = off;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT k FROM keys_numbers
	WHERE k = ANY ('{1500,9223372036854775807,NULL,1497,1,0,0,-9223372036854775808}'::int8[]) ORDER BY k;
FETCH 3 FROM c;
FETCH BACKWARD 2 FROM c;
MOVE 8 FROM c;
FETCH 4 FROM c;
FETCH BACKWARD 3 FROM c;
FETCH LAST FROM c;
FETCH FIRST FROM c;
COMMIT;
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP FUNCTION keys_array, keys_read;
DROP TABLE keys_numbers;
