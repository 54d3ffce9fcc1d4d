-- Parallel index scans: each entry is returned once, in order where that is asked for,
-- whatever level it is in (I14).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET jit = off;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET cpu_tuple_cost = 1;
SET max_parallel_workers_per_gather = 2;

CREATE TABLE parallel_t (a int8, b int4, c text COLLATE "C", v int) WITH (autovacuum_enabled = off, parallel_workers = 2);
CREATE FUNCTION parallel_fill(l int, h int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO parallel_t
	SELECT nullif(i % 7, 6), nullif(i * 31 % 197, 196), nullif('c' || i * 7 % 23, 'c22'), i
	FROM generate_series(l, h) i
$$;
SELECT parallel_fill(1, 20000);
CREATE INDEX parallel_abc ON parallel_t USING cachebatch (a, b, c);
CREATE INDEX parallel_ba ON parallel_t USING cachebatch (b DESC NULLS LAST, a) WITH (pack_leaves = off, fillfactor = 10);
CREATE INDEX parallel_v ON parallel_t USING cachebatch (v);
VACUUM ANALYZE parallel_t;

-- plans
EXPLAIN (COSTS OFF) SELECT count(*) FROM parallel_t WHERE v > 100;
EXPLAIN (COSTS OFF) SELECT count(*), sum(b) FROM parallel_t WHERE v > 100;
EXPLAIN (COSTS OFF) SELECT count(*), sum(v) FROM parallel_t WHERE b IN (1, 5, 7) AND a = 3;
SET parallel_leader_participation = off;
EXPLAIN (COSTS OFF) SELECT * FROM (SELECT v, b FROM parallel_t WHERE v > 100 ORDER BY v DESC OFFSET 0) x WHERE b = 3;
SELECT count(*), sum(b), sum(v) FROM parallel_t WHERE v > 100;
RESET parallel_leader_participation;

-- a random condition on a column
CREATE FUNCTION parallel_condition(col text, most int) RETURNS text LANGUAGE sql AS $$
	SELECT format((ARRAY[
		'%1$s = %2$s',
		'%1$s = ANY (ARRAY[%2$s, %3$s, NULL, %4$s, %5$s])',
		'%1$s BETWEEN least(%2$s, %3$s) AND greatest(%2$s, %3$s)',
		'%1$s > %2$s',
		'%1$s <= %2$s',
		'%1$s IS NULL',
		'%1$s = ANY (ARRAY[%2$s, %3$s]) AND %1$s >= %4$s',
		'true', 'true'])[1 + floor(random() * 9)], col, floor(random() * most),
		floor(random() * most), floor(random() * most), floor(random() * most))
$$;
CREATE TABLE parallel_forms (no int, cols text, ordering text);
INSERT INTO parallel_forms VALUES
	(1, 'a, b, c', 'a, b, c'), (2, 'a, b, c', 'a DESC, b DESC, c DESC'), (3, 'b, a', 'b DESC NULLS LAST, a'),
	(4, 'b, a', 'b NULLS FIRST, a DESC'), (5, 'v, c', 'v'), (6, 'v, c', 'v DESC'),
	(7, 'a, b, c, v', NULL), (8, 'b, a, v', NULL), (9, 'v', NULL);

-- asks n random questions by a parallel scan of an index and by a sequential scan
CREATE FUNCTION parallel_ask(n int, seed float) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	f parallel_forms;
	q text;
	plan json;
	got text;
	want text;
	nparallel int := 0;
	wrong int := 0;
BEGIN
	PERFORM setseed(seed);
	FOR i IN 1 .. n LOOP
		SELECT * INTO f FROM parallel_forms WHERE no = 1 + i % 9;
		q := format('SELECT %s FROM parallel_t WHERE %s', f.cols,
					CASE WHEN f.cols ~ 'v' AND f.ordering IS NOT NULL OR f.cols = 'v' THEN parallel_condition('v', 20000)
					ELSE parallel_condition('a', 7) || ' AND ' || parallel_condition('b', 197) END);
		q := format('SELECT md5(string_agg(x::text, '','' %s)) FROM (%s) x',
					CASE WHEN f.ordering IS NULL THEN 'ORDER BY x' ELSE '' END,
					q || coalesce(' ORDER BY ' || f.ordering, ''));
		PERFORM set_config('enable_indexonlyscan', (i % 2 = 0)::text, false),
			set_config('parallel_leader_participation', (i % 4 > 1)::text, false);
		EXECUTE 'EXPLAIN (FORMAT JSON) ' || q INTO plan;
		nparallel := nparallel + (plan::text ~ '"Parallel Aware": true,\s*"Async Capable": false,\s*"Scan Direction"')::int;
		EXECUTE q INTO got;
		SET enable_seqscan = on;
		SET enable_indexscan = off;
		SET enable_indexonlyscan = off;
		SET max_parallel_workers_per_gather = 0;
		EXECUTE q INTO want;
		SET enable_seqscan = off;
		SET enable_indexscan = on;
		SET max_parallel_workers_per_gather = 2;
		IF got IS DISTINCT FROM want THEN
			wrong := wrong + 1;
			RETURN NEXT q;
		END IF;
	END LOOP;
	RETURN NEXT format('%s questions, %s wrong answers, many in parallel: %s', n, wrong, nparallel > n / 2);
END $$;

-- in the tree; then in buckets and journal as well; then all in the tree again
SELECT * FROM parallel_ask(45, 0.1);
DO $$ BEGIN FOR i IN 0 .. 59 LOOP PERFORM parallel_fill(i * 333, i * 333 + 60); END LOOP; END $$;
SELECT * FROM parallel_ask(90, 0.2);
DELETE FROM parallel_t WHERE a = 3 AND b % 2 = 0;
UPDATE parallel_t SET v = v + 1 WHERE c = 'c7';
SELECT * FROM parallel_ask(27, 0.3);
VACUUM parallel_t;
SELECT * FROM parallel_ask(27, 0.4);

-- what the transaction itself has inserted
BEGIN;
INSERT INTO parallel_t SELECT 1, 1, 'mine', 100000 + i FROM generate_series(1, 2000) i;
SELECT count(*), sum(v) FROM parallel_t WHERE v > 100000;
SELECT count(*), sum(v) FROM parallel_t WHERE b = ANY ('{0,1}') AND c = 'mine';
ROLLBACK;

-- started again
SET enable_material = off;
EXPLAIN (COSTS OFF) SELECT x, n FROM (VALUES (1), (2), (3)) v (x)
	LEFT JOIN (SELECT count(*) AS n FROM parallel_t WHERE v > 5000) s ON true;
SELECT x, n FROM (VALUES (1), (2), (3)) v (x)
	LEFT JOIN (SELECT count(*) AS n FROM parallel_t WHERE v > 5000) s ON true;
SELECT x, n FROM (VALUES (1), (2), (3)) v (x)
	LEFT JOIN (SELECT count(*) AS n FROM (SELECT a FROM parallel_t WHERE a IN (1, 5, 9) ORDER BY a DESC) o) s ON true;
RESET enable_material;

-- ended early; nothing to find
SELECT count(*) FROM (SELECT v FROM parallel_t WHERE v > 5000 LIMIT 700) s;
SELECT count(*) FROM parallel_t WHERE v > 5000 AND v < 4000;
SELECT count(*) FROM parallel_t WHERE v > 500000;

-- far apart: in leaves of their own, and several to a leaf
CREATE TABLE parallel_far (k int, g int) WITH (autovacuum_enabled = off, parallel_workers = 2);
INSERT INTO parallel_far SELECT k, g FROM generate_series(1, 60) k, generate_series(1, k * k) g;
CREATE INDEX parallel_far_kg ON parallel_far USING cachebatch (k, g);
ANALYZE parallel_far;
SET parallel_leader_participation = off;
EXPLAIN (COSTS OFF) SELECT count(*), sum(k) FROM parallel_far WHERE k > 10 AND g IN (1, 77, 1000);
SELECT count(*), sum(k) FROM parallel_far WHERE k > 10 AND g IN (1, 77, 1000);
SELECT count(*), sum(g) FROM parallel_far WHERE k = 55 AND g BETWEEN 400 AND 2500;
CREATE INDEX parallel_far_gk ON parallel_far USING cachebatch (g, k) WITH (pack_leaves = off);
SELECT count(*), sum(k) FROM parallel_far WHERE g = ANY (ARRAY(SELECT i * 3 FROM generate_series(1, 1000) i)) AND k > 50;
RESET parallel_leader_participation;

-- a bitmap is made by one process and read by several
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF) SELECT count(*), sum(b) FROM parallel_t WHERE v BETWEEN 100 AND 15000;
SELECT count(*), sum(b) FROM parallel_t WHERE v BETWEEN 100 AND 15000;
SET enable_seqscan = on;
SET enable_bitmapscan = off;
SELECT count(*), sum(b) FROM parallel_t WHERE v BETWEEN 100 AND 15000;
SELECT count(*), sum(k) FROM parallel_far WHERE k > 10 AND g IN (1, 77, 1000);
SELECT count(*), sum(g) FROM parallel_far WHERE k = 55 AND g BETWEEN 400 AND 2500;
SELECT count(*), sum(k) FROM parallel_far WHERE g = ANY (ARRAY(SELECT i * 3 FROM generate_series(1, 1000) i)) AND k > 50;
RESET ALL;
DROP TABLE parallel_t, parallel_forms, parallel_far;
DROP FUNCTION parallel_fill, parallel_condition, parallel_ask;
