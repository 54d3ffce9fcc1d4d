--
-- Reads that begin where the scan has been before: arrays whose elements are
-- looked up in groups, rescans with other keys, windows that were cut short.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET max_parallel_workers_per_gather = 0;
SET jit = off;

CREATE TABLE rd (id int, k int, d bigint, t text COLLATE "C", n int)
	WITH (autovacuum_enabled = off);
CREATE FUNCTION rd_fill(l int, h int, step int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO rd SELECT i, i * 7919 % 30011, i, md5((i % 4001)::text),
		CASE WHEN i % 3 = 0 THEN NULL ELSE i % 500 END
	FROM generate_series(l, h, step) i
$$;
SELECT rd_fill(1, 20000, 1);
CREATE INDEX rd_k ON rd USING cachebatch (k);
CREATE INDEX rd_d ON rd USING cachebatch (d DESC, n) WITH (pack_leaves = off);
CREATE INDEX rd_t ON rd USING cachebatch (t, k);
CREATE INDEX rd_n ON rd USING cachebatch (n, id);
-- some in deltas of leaves, some in buckets
SELECT rd_fill(20001, 24000, 1);
SELECT count(cache_batch_flush(i)) FROM unnest('{rd_k,rd_d,rd_t,rd_n}'::regclass[]) i;
DELETE FROM rd WHERE id % 17 = 3;
SELECT rd_fill(24001, 27000, 1);
ANALYZE rd;

-- the queries, and what their plans must show
CREATE TABLE rd_q (no int GENERATED ALWAYS AS IDENTITY, plan text, query text);
CREATE FUNCTION rd_set(plan text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('enable_' || s,
		CASE s WHEN 'seqscan' THEN plan = '' WHEN 'indexscan' THEN plan ~ '^(Index|Nested)'
		WHEN 'indexonlyscan' THEN plan ~ 'Only' WHEN 'bitmapscan' THEN plan ~ 'Bitmap'
		WHEN 'nestloop' THEN plan <> '' WHEN 'sort' THEN plan = '' OR plan ~ 'Bitmap|Nested'
		ELSE plan = '' END::text, true)
	FROM unnest('{seqscan,indexscan,indexonlyscan,bitmapscan,nestloop,hashjoin,mergejoin,sort,memoize,material}'::text[]) s;
END $$;
CREATE FUNCTION rd_run(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE res text[];
BEGIN
	EXECUTE format('SELECT array_agg(x::text%s) FROM (%s) x',
		CASE WHEN query ~ 'ORDER BY' THEN '' ELSE ' ORDER BY x::text' END, query) INTO res;
	RETURN coalesce(res, '{}');
END $$;
CREATE FUNCTION rd_suite() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	q rd_q; line text; plan text; want text[]; got text[]; wrong int := 0; rows int := 0;
BEGIN
	FOR q IN SELECT * FROM rd_q ORDER BY no LOOP
		PERFORM rd_set('');
		want := rd_run(q.query);
		PERFORM rd_set(q.plan);
		plan := '';
		FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || q.query LOOP
			plan := plan || line || E'\n';
		END LOOP;
		IF plan !~ q.plan THEN
			RETURN NEXT format('%s: %s', q.query, plan);
		END IF;
		got := rd_run(q.query);
		rows := rows + cardinality(want);
		IF got IS DISTINCT FROM want THEN
			wrong := wrong + 1;
			RETURN NEXT format('%s: %s rows, not %s', q.query, cardinality(got), cardinality(want));
		END IF;
	END LOOP;
	RETURN NEXT format('%s queries with rows: %s, %s differences', (SELECT count(*) FROM rd_q), rows > 5000, wrong);
END $$;

INSERT INTO rd_q (plan, query)
SELECT plan, format(query, CASE WHEN plan ~ 'Only' THEN 'k' ELSE 'id, k' END)
FROM unnest('{Index Scan using rd_k,Index Only Scan using rd_k,Bitmap Index Scan on rd_k}'::text[]) plan,
	 unnest(ARRAY[
	-- several groups, in no order, with duplicates, nulls, and beyond both ends
	'SELECT %s FROM rd WHERE k = ANY (ARRAY(SELECT CASE WHEN i %% 50 = 0 THEN NULL ELSE i * 7919 %% 30100 - 40 END FROM generate_series(1, 700) i))',
	'SELECT %s FROM rd WHERE k = ANY (ARRAY(SELECT i / 3 FROM generate_series(-30, 900) i))',
	-- one after the other in one leaf
	'SELECT %s FROM rd WHERE k = ANY (ARRAY(SELECT 15000 + i FROM generate_series(1, 300) i))',
	'SELECT %s FROM rd WHERE k = ANY (ARRAY(SELECT i * 100 FROM generate_series(1, 290) i)) AND k > 5000 AND k <= 20000',
	'SELECT %s FROM rd WHERE k = ANY (ARRAY(SELECT i::bigint * 1000003 %% 40000 FROM generate_series(1, 500) i))',
	'SELECT %s FROM rd WHERE k = ANY (''{}''::int[])',
	'SELECT %s FROM rd WHERE k = ANY (''{NULL,NULL}''::int[])',
	'SELECT %s FROM rd WHERE k = ANY (''{-5,99999,2147483647,-2147483648}'')',
	'SELECT %s FROM rd WHERE k < ANY (''{30,20,NULL,10}'')']) query;
INSERT INTO rd_q (plan, query) VALUES
('Index Scan using rd_k', 'SELECT k FROM rd WHERE k = ANY (ARRAY(SELECT i * 37 FROM generate_series(1, 400) i)) ORDER BY k'),
('Index Scan Backward using rd_k', 'SELECT k FROM rd WHERE k = ANY (ARRAY(SELECT i * 37 FROM generate_series(1, 400) i)) ORDER BY k DESC'),
('Index Scan using rd_d', 'SELECT id, d FROM rd WHERE d = ANY (ARRAY(SELECT i * 61 FROM generate_series(1, 400) i))'),
('Index Scan using rd_d', 'SELECT d FROM rd WHERE d = ANY (ARRAY(SELECT (i * 61)::bigint FROM generate_series(1, 400) i)) ORDER BY d DESC'),
('Index Scan Backward using rd_d', 'SELECT d FROM rd WHERE d = ANY (ARRAY(SELECT (i * 61)::bigint FROM generate_series(1, 400) i)) ORDER BY d'),
('Index Scan using rd_d', 'SELECT id, d FROM rd WHERE d = ANY (ARRAY(SELECT i * 61 FROM generate_series(1, 400) i)) AND n > 250'),
('Index Scan using rd_d', 'SELECT id, d FROM rd WHERE d = ANY (ARRAY(SELECT i * 61 FROM generate_series(1, 400) i)) AND n IS NULL'),
('Index Scan using rd_t', 'SELECT id, t FROM rd WHERE t = ANY (ARRAY(SELECT md5(i::text) FROM generate_series(1, 200) i))'),
('Index Scan using rd_t', 'SELECT id, t FROM rd WHERE t = ANY (ARRAY(SELECT md5(i::text) FROM generate_series(1, 200) i)) AND k > 20000'),
('Index Scan using rd_n', 'SELECT id, n FROM rd WHERE n = ANY (ARRAY(SELECT i FROM generate_series(1, 120) i))'),
('Index Scan using rd_n', 'SELECT id, n FROM rd WHERE n = ANY (ARRAY(SELECT i FROM generate_series(1, 120) i)) AND id > 12000'),
('Index Scan using rd_n', 'SELECT id, n FROM rd WHERE n = ANY (ARRAY(SELECT i FROM generate_series(1, 120) i)) AND id = ANY (ARRAY(SELECT i * 11 FROM generate_series(1, 900) i))'),
('Index Only Scan using rd_n', 'SELECT n, id FROM rd WHERE id = ANY (ARRAY(SELECT i * 11 FROM generate_series(1, 30) i)) AND n BETWEEN 3 AND 5'),
-- rescans: keys at random, ascending, the same again, arrays
('Nested Loop', 'SELECT i, y.id FROM (SELECT i * 7919 % 40000 AS i FROM generate_series(1, 900) i OFFSET 0) x JOIN rd y ON y.k = x.i'),
('Nested Loop', 'SELECT i, y.id FROM (SELECT i FROM generate_series(900, -90, -1) i OFFSET 0) x JOIN rd y ON y.k = x.i'),
('Nested Loop', 'SELECT i, y.id FROM (SELECT i / 4 AS i FROM generate_series(-90, 3000) i OFFSET 0) x JOIN rd y ON y.k = x.i'),
('Nested Loop', 'SELECT i, y.id FROM (SELECT i * 200 AS i FROM generate_series(-9, 160) i OFFSET 0) x JOIN rd y ON y.k >= x.i AND y.k < x.i + 5'),
('Nested Loop', 'SELECT i, y.id FROM (SELECT i * 200 AS i FROM generate_series(-9, 160) i OFFSET 0) x JOIN rd y ON y.d = x.i'),
('Nested Loop', 'SELECT i, y.id FROM (SELECT i FROM generate_series(1, 40) i OFFSET 0) x JOIN rd y ON y.k = ANY (ARRAY[x.i, x.i * 500, x.i * 501, x.i + 3, x.i * 700])'),
-- longer than a scan's first window, with many equal keys
('Index Scan using rd_k', 'SELECT k FROM rd WHERE k >= 100 ORDER BY k LIMIT 1000'),
('Index Scan Backward using rd_k', 'SELECT k FROM rd WHERE k <= 20000 ORDER BY k DESC LIMIT 1000'),
('Index Only Scan using rd_n', 'SELECT n, id FROM rd WHERE n >= 7 ORDER BY n, id LIMIT 2000'),
('Index Only Scan Backward using rd_n', 'SELECT n, id FROM rd WHERE n <= 477 ORDER BY n DESC, id DESC LIMIT 2000'),
('Bitmap Index Scan on rd_n', 'SELECT n, id FROM rd WHERE n BETWEEN 7 AND 14');

SELECT * FROM rd_suite();
-- again, with dead entries marked
SELECT * FROM rd_suite();

-- mark and restore: the inner side of a merge join is an array's elements
BEGIN;
SET LOCAL enable_hashjoin = off; SET LOCAL enable_nestloop = off; SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off; SET LOCAL enable_material = off; SET LOCAL enable_bitmapscan = off;
SELECT count(*), sum(x.k), sum(y.k) FROM (SELECT k FROM rd WHERE k = ANY (ARRAY(SELECT i * 21 / 20 FROM generate_series(1, 500) i)) ORDER BY k) x
	JOIN rd y ON x.k = y.k WHERE y.k = ANY (ARRAY(SELECT i FROM generate_series(1, 600) i));
SET LOCAL enable_hashjoin = on; SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off;
SET LOCAL enable_indexonlyscan = off; SET LOCAL enable_mergejoin = off;
SELECT count(*), sum(x.k), sum(y.k) FROM (SELECT k FROM rd WHERE k = ANY (ARRAY(SELECT i * 21 / 20 FROM generate_series(1, 500) i))) x
	JOIN rd y ON x.k = y.k WHERE y.k = ANY (ARRAY(SELECT i FROM generate_series(1, 600) i));
COMMIT;

-- a cursor that turns round, within an array's groups and first windows
CREATE FUNCTION rd_walk(plan text, query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	want text[]; at int := 0; go int; c refcursor; r record; wrong int := 0;
BEGIN
	PERFORM rd_set('');
	want := rd_run(query);
	PERFORM rd_set(plan), setseed(0.25);
	OPEN c SCROLL FOR EXECUTE query;
	FOR i IN 1 .. 400 LOOP
		go := (random() * random() * 200)::int + 1;
		IF random() < 0.55 THEN
			MOVE FORWARD go FROM c;
			FETCH NEXT FROM c INTO r;
			at := least(at + go + 1, cardinality(want) + 1);
		ELSE
			MOVE BACKWARD go FROM c;
			FETCH PRIOR FROM c INTO r;
			at := greatest(at - go - 1, 0);
		END IF;
		wrong := wrong + (r::text IS DISTINCT FROM want[at] AND at BETWEEN 1 AND cardinality(want))::int;
	END LOOP;
	RETURN format('%s rows, %s wrong', cardinality(want) > 300, wrong);
END $$;
SELECT rd_walk('Index Scan', 'SELECT k FROM rd WHERE k = ANY (ARRAY(SELECT i * 37 FROM generate_series(1, 500) i)) ORDER BY k');
SELECT rd_walk('Index Scan', 'SELECT k FROM rd WHERE k = ANY (ARRAY(SELECT i * 37 FROM generate_series(1, 500) i)) ORDER BY k DESC');
SELECT rd_walk('Index Only Scan', 'SELECT n, id FROM rd WHERE n >= 7 ORDER BY n, id');

-- While a query runs, entries leave the buckets for the leaves that its scan has
-- read, and leaves are split.
CREATE TABLE rr (k int) WITH (autovacuum_enabled = off);
INSERT INTO rr SELECT generate_series(2, 3000, 2);
CREATE INDEX rr_k ON rr USING cachebatch (k);
CREATE FUNCTION rr_flush(i int, at int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF i = at THEN
		PERFORM cache_batch_flush('rr_k');
		INSERT INTO rr SELECT generate_series(1, 300, 70);
		PERFORM FROM rr WHERE k = -1;
	END IF;
	RETURN i;
END $$;
-- small batches are journaled; a scan publishes what its session has staged
DO $$
BEGIN
	PERFORM rd_set('Index Scan');
	FOR i IN 0 .. 29 LOOP
		INSERT INTO rr SELECT generate_series(1 + 100 * i, 99 + 100 * i, 10);
		PERFORM FROM rr WHERE k = -1;
	END LOOP;
END $$;
SELECT sum(nentries) AS pending FROM cache_batch_journal('rr_k');
BEGIN;
SELECT rd_set('Nested Loop, Only');
EXPLAIN (COSTS OFF) SELECT count(*), sum(y.k) FROM (SELECT rr_flush(i, 100) AS i FROM generate_series(1, 300) i OFFSET 0) x JOIN rr y ON y.k = x.i;
SELECT count(*), sum(y.k) FROM (SELECT rr_flush(i, 100) AS i FROM generate_series(1, 300) i OFFSET 0) x JOIN rr y ON y.k = x.i;
COMMIT;
SELECT sum(nentries) AS pending FROM cache_batch_journal('rr_k');
-- the same while there are entries in buckets all the time
BEGIN;
SELECT rd_set('Nested Loop');
SELECT count(*), sum(y.k) FROM (SELECT rr_flush(i, 100) AS i FROM generate_series(1, 300) i OFFSET 0) x JOIN rr y ON y.k >= x.i AND y.k <= x.i;
SELECT rd_set('');
SELECT count(*), sum(y.k) FROM generate_series(1, 300) i JOIN rr y ON y.k = i;
COMMIT;
DELETE FROM rr WHERE k > 1000;
VACUUM rr;
INSERT INTO rr SELECT i % 300 FROM generate_series(1, 20000) i;
BEGIN;
SELECT rd_set('Nested Loop');
SELECT count(*), sum(y.k) FROM (SELECT rr_flush(i, 100) AS i FROM generate_series(1, 300) i OFFSET 0) x JOIN rr y ON y.k = x.i;
COMMIT;
SELECT cache_batch_verify('rr_k', true);

DROP FUNCTION rd_walk(text, text), rd_suite(), rd_run(text), rd_set(text), rd_fill(int, int, int), rr_flush(int, int);
DROP TABLE rd, rd_q, rr;

-- a scan that starts by another equality than the array's, of another type
CREATE TABLE rx (a float8, t timestamp, k text);
INSERT INTO rx SELECT i - 5000, timestamp '1990-01-01' + i * interval '10 hours', md5(i::text)
	FROM generate_series(1, 10000) i;
CREATE INDEX rx_a ON rx USING cachebatch (a);
CREATE INDEX rx_t ON rx USING cachebatch (t);
CREATE INDEX rx_k ON rx USING cachebatch (k);
ANALYZE rx;
SET enable_seqscan = off; SET enable_bitmapscan = off;
SELECT a FROM rx WHERE a = ANY ('{-4000,7}'::float4[]) AND a = (-4000)::float8;
SELECT a FROM rx WHERE a = (-4000)::float8 AND a = ANY ('{-4000,7}'::float4[]);
SELECT t FROM rx WHERE t = ANY ('{1991-02-05,1992-01-01}'::date[]) AND t = timestamp '1991-02-05';
SELECT k = md5('5') FROM rx WHERE k = ANY (ARRAY[md5('5'), md5('6')]) AND k = md5('5')::name;
SELECT k = md5('5') FROM rx WHERE k = md5('5') AND k = ANY (ARRAY[md5('5'), md5('6')]::name[]);
RESET enable_seqscan; RESET enable_bitmapscan;
DROP TABLE rx;

-- a scan reads its first window in place: what it found there stays as it was
-- when the leaf is split behind it
CREATE TABLE rp (k int, t text) WITH (autovacuum_enabled = off);
INSERT INTO rp SELECT 4 * i, 'row ' || i FROM generate_series(1, 120) i;
CREATE INDEX rp_kt ON rp USING cachebatch (k, t) WITH (pack_leaves = off);
VACUUM ANALYZE rp;
SET enable_seqscan = off; SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT k, t FROM rp WHERE k > 0 ORDER BY k;
BEGIN;
DECLARE rp_c CURSOR FOR SELECT k, t FROM rp WHERE k > 0 ORDER BY k;
FETCH 1 FROM rp_c;
INSERT INTO rp SELECT i, 'new' FROM generate_series(1, 480) i WHERE i % 4 <> 0;
SELECT cache_batch_flush('rp_kt');
CREATE TEMP TABLE rp_found (k int, t text);
DO $$
DECLARE
	c refcursor := 'rp_c';
	r record;
BEGIN
	LOOP
		FETCH c INTO r;
		EXIT WHEN NOT FOUND;
		INSERT INTO rp_found VALUES (r.k, r.t);
	END LOOP;
END $$;
SELECT count(*), count(*) FILTER (WHERE t = 'row ' || k / 4), min(k), max(k) FROM rp_found;
COMMIT;
SELECT cache_batch_verify('rp_kt', true);
RESET enable_seqscan; RESET enable_bitmapscan;
DROP TABLE rp, rp_found;
