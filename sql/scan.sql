--
-- Index scans of every kind give the same answers as sequential scans: with
-- all rows in the tree, with a journal full of entries, after a flush, after
-- deletions and after VACUUM.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET cache_batch.journal_limit = '256MB';
SET max_parallel_workers_per_gather = 0;
SET jit = off;

CREATE TABLE scan_t (
	id int,
	a int,
	b text COLLATE "C",
	c numeric,
	n int,
	d bigint,
	w name
) WITH (autovacuum_enabled = off);

-- rows l to h; values repeat, and are spread over the whole range
CREATE FUNCTION scan_fill(l int, h int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO scan_t
	SELECT i,
		   i::bigint * 7919 % 5003,
		   md5((i::bigint * 31 % 1009)::text),
		   (i::bigint * 104729 % 20011) / 7.0,
		   CASE WHEN i % 5 = 0 THEN NULL ELSE i::bigint * 15485863 % 701 END,
		   i::bigint * 611953 % 100003,
		   'w' || i::bigint * 13 % 3001
	FROM generate_series(l, h) i
$$;

SELECT scan_fill(1, 20000);

CREATE INDEX scan_a ON scan_t USING cachebatch (a) WITH (pack_leaves = off);
CREATE INDEX scan_ab ON scan_t USING cachebatch (a DESC NULLS LAST, b);
CREATE INDEX scan_n ON scan_t USING cachebatch (n) WITH (pack_leaves = off);
CREATE INDEX scan_nf ON scan_t USING cachebatch (n NULLS FIRST, c DESC);
CREATE INDEX scan_nd ON scan_t USING cachebatch (n DESC, d) WITH (pack_leaves = off);
CREATE INDEX scan_c ON scan_t USING cachebatch (c DESC) INCLUDE (id, w);
CREATE INDEX scan_d ON scan_t USING cachebatch (d, a, id);
CREATE INDEX scan_w ON scan_t USING cachebatch (w);
ANALYZE scan_t;

-- how a query is to be run, what its plan must show, and the query
CREATE TABLE scan_q (
	no int GENERATED ALWAYS AS IDENTITY,
	mode text,
	plan text,
	query text
);

INSERT INTO scan_q (mode, plan, query) VALUES
-- single column: points, ranges, both ends, both directions
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a = 17'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a = 999999'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a < 0'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a <= 20'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a > 4990'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a BETWEEN 1000 AND 3000'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a > 1000 AND a < 1002'),
('index', 'Result', 'SELECT id FROM scan_t WHERE a > 1000 AND a < 1002 AND false'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a > 1002 AND a < 1000'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a = 5::bigint'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a > 4000::bigint AND a <= 4100::smallint'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a >= 4000::bigint AND a >= 4500'),
('index', 'Index Scan', 'SELECT id FROM scan_t WHERE a < 5000000000'),
('index', 'Index Scan using scan_a ', 'SELECT a FROM scan_t ORDER BY a'),
('index', 'Index Scan Backward using scan_a ', 'SELECT a FROM scan_t ORDER BY a DESC NULLS FIRST'),
('index', 'Index Scan Backward using scan_a ', 'SELECT a FROM scan_t WHERE a < 2500 ORDER BY a DESC'),
('index', 'Index Scan Backward using scan_a ', 'SELECT a FROM scan_t WHERE a <= 2500 AND a > 2400 ORDER BY a DESC LIMIT 50'),
('index', 'Index Scan Backward using scan_a ', 'SELECT max(a) FROM scan_t'),
('index', 'Index Scan using scan_a ', 'SELECT min(a) FROM scan_t'),
-- arrays
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a = ANY (''{5,17,17,4000,99999,-3,null,2}'')'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a = ANY (''{}''::int[])'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a = ANY (''{1,2,3,4,5}''::bigint[]) AND a > 2'),
('index', 'Index Scan using scan_a', 'SELECT id FROM scan_t WHERE a < ANY (''{30,20,10}'')'),
('index', 'Index Scan using scan_a ', 'SELECT a FROM scan_t WHERE a = ANY (''{5,17,4000,2}'') ORDER BY a'),
('index', 'Index Scan Backward using scan_a ', 'SELECT a FROM scan_t WHERE a = ANY (''{5,17,4000,2}'') ORDER BY a DESC'),
('bitmap', 'Bitmap Index Scan on scan_a', 'SELECT id FROM scan_t WHERE a = ANY (''{5,17,4000,2}'')'),
('index', 'Index Scan using scan_d ', 'SELECT id FROM scan_t WHERE d = ANY (''{50,170,40000,20,99}'') AND a = ANY (''{1,2,3,1000,4000,4001}'')'),
('index', 'Index Scan using scan_d ', 'SELECT id FROM scan_t WHERE d = ANY (ARRAY(SELECT DISTINCT d FROM scan_t WHERE id < 50)) AND a > 300'),
-- several columns
('index', 'Index Scan using scan_ab ', 'SELECT a, b FROM scan_t ORDER BY a DESC NULLS LAST, b'),
('index', 'Index Scan Backward using scan_ab ', 'SELECT a, b FROM scan_t ORDER BY a NULLS FIRST, b DESC'),
('index', 'Index Scan using scan_ab ', 'SELECT id FROM scan_t WHERE a = 700 AND b > ''8'''),
('index', 'Index Scan using scan_ab ', 'SELECT a, b FROM scan_t WHERE a = 700 AND b > ''8'' ORDER BY b'),
('index', 'Index Scan Backward using scan_ab ', 'SELECT a, b FROM scan_t WHERE a = 700 AND b < ''8'' ORDER BY b DESC'),
('index', 'Index Scan using scan_ab ', 'SELECT a, b FROM scan_t WHERE a < 700 AND b < ''8'' ORDER BY a DESC NULLS LAST, b'),
('index', 'Index Scan using scan_ab ', 'SELECT a, b FROM scan_t WHERE a >= 700 AND b >= ''1'' ORDER BY a DESC NULLS LAST, b LIMIT 3000'),
('index', 'Index Scan Backward using scan_ab ', 'SELECT a, b FROM scan_t WHERE a > 700 AND b < ''8'' ORDER BY a NULLS FIRST, b DESC'),
('index', 'Index Scan using scan_d ', 'SELECT d, a, id FROM scan_t WHERE (d, a, id) > (50000, 2000, 7) AND d < 52000 ORDER BY d, a, id'),
('index', 'Index Scan using scan_d ', 'SELECT d, a, id FROM scan_t WHERE (d, a) >= (50000, 2000) AND d < 52000 ORDER BY d, a, id'),
('index', 'Index Scan using scan_d ', 'SELECT d, a, id FROM scan_t WHERE (d, id) >= (50000, 2000) AND d < 52000 ORDER BY d, a, id'),
('index', 'Index Scan using scan_d ', 'SELECT d, a, id FROM scan_t WHERE (d, a) < (900, 2000) ORDER BY d, a, id'),
('index', 'Index Scan Backward using scan_d ', 'SELECT d, a, id FROM scan_t WHERE (d, a, id) <= (900, 2000, 7) ORDER BY d DESC, a DESC, id DESC'),
('index', 'Index Scan Backward using scan_d ', 'SELECT d, a, id FROM scan_t WHERE (d, a) > (99000, 2000) ORDER BY d DESC, a DESC, id DESC'),
('index', 'Index Scan using scan_d ', 'SELECT d, a, id FROM scan_t WHERE (d, a) > (99000, null) ORDER BY d, a, id'),
-- nulls
('index', 'Index Scan using scan_n', 'SELECT id FROM scan_t WHERE n IS NULL'),
('index', 'Index Scan using scan_n', 'SELECT id FROM scan_t WHERE n IS NOT NULL'),
('index', 'Index Scan using scan_n', 'SELECT id FROM scan_t WHERE n < 10'),
('index', 'Index Scan using scan_n', 'SELECT id FROM scan_t WHERE n > 690'),
('index', 'Index Scan using scan_nf ', 'SELECT n, c FROM scan_t ORDER BY n NULLS FIRST, c DESC'),
('index', 'Index Scan Backward using scan_nf ', 'SELECT n, c FROM scan_t ORDER BY n DESC NULLS LAST, c'),
('index', 'Index Scan using scan_nf ', 'SELECT n, c FROM scan_t WHERE n < 300 ORDER BY n NULLS FIRST, c DESC'),
('index', 'Index Scan Backward using scan_nf ', 'SELECT n, c FROM scan_t WHERE n > 300 ORDER BY n DESC NULLS LAST, c'),
('index', 'Index Scan using scan_nf ', 'SELECT n, c FROM scan_t WHERE n IS NULL AND c < 1000 ORDER BY n NULLS FIRST, c DESC'),
('index', 'Index Scan Backward using scan_nf ', 'SELECT n, c FROM scan_t WHERE n IS NULL AND c > 1000 ORDER BY n DESC NULLS LAST, c'),
('index', 'Index Scan using scan_nf ', 'SELECT n, c FROM scan_t WHERE n IS NOT NULL ORDER BY n NULLS FIRST, c DESC LIMIT 4000'),
('index', 'Index Scan using scan_nd ', 'SELECT n, d FROM scan_t ORDER BY n DESC, d'),
('index', 'Index Scan Backward using scan_nd ', 'SELECT n, d FROM scan_t ORDER BY n, d DESC'),
('index', 'Index Scan using scan_nd ', 'SELECT n, d FROM scan_t WHERE n < 300 ORDER BY n DESC, d'),
('index', 'Index Scan Backward using scan_nd ', 'SELECT n, d FROM scan_t WHERE n > 300 ORDER BY n, d DESC'),
('index', 'Index Scan using scan_nd ', 'SELECT n, d FROM scan_t WHERE n IS NULL AND d BETWEEN 1000 AND 50000 ORDER BY n DESC, d'),
-- index-only
('only', 'Index Only Scan using scan_a ', 'SELECT a FROM scan_t WHERE a < 1000'),
('only', 'Index Only Scan using scan_ab ', 'SELECT a, b FROM scan_t ORDER BY a DESC NULLS LAST, b'),
('only', 'Index Only Scan Backward using scan_ab ', 'SELECT a, b FROM scan_t ORDER BY a NULLS FIRST, b DESC'),
('only', 'Index Only Scan using scan_c ', 'SELECT c, id, w FROM scan_t WHERE c < 500'),
('only', 'Index Only Scan using scan_c ', 'SELECT c FROM scan_t ORDER BY c DESC'),
('only', 'Index Only Scan using scan_d ', 'SELECT d, a, id FROM scan_t ORDER BY d, a, id'),
('only', 'Index Only Scan Backward using scan_d ', 'SELECT d, a, id FROM scan_t WHERE d < 60000 ORDER BY d DESC, a DESC, id DESC'),
('only', 'Index Only Scan using scan_d ', 'SELECT d, id FROM scan_t WHERE d > 100 AND a > 77 AND a < 1500 ORDER BY d'),
('only', 'Index Only Scan using scan_w ', 'SELECT w FROM scan_t WHERE w > ''w20'' AND w < ''w29'' ORDER BY w'),
('only', 'Index Only Scan using scan_n', 'SELECT count(*) FROM scan_t WHERE n IS NULL'),
('only', 'Index Only Scan using scan_a ', 'SELECT a FROM scan_t WHERE a = ANY (''{5,17,4000,2}'') ORDER BY a'),
-- bitmaps
('bitmap', 'Bitmap Index Scan on scan_a', 'SELECT id FROM scan_t WHERE a BETWEEN 100 AND 1500'),
('bitmap', 'Bitmap Index Scan on scan_n', 'SELECT id FROM scan_t WHERE n IS NULL'),
('bitmap', 'Bitmap', 'SELECT id FROM scan_t WHERE a < 200 AND n BETWEEN 5 AND 25'),
('bitmap', 'BitmapOr', 'SELECT id FROM scan_t WHERE a < 100 OR n = 25'),
-- joins
('merge', 'Merge Join', 'SELECT x.a, x.id, y.id FROM scan_t x JOIN scan_t y ON x.a = y.a WHERE x.a BETWEEN 40 AND 340'),
('merge', 'Merge Join', 'SELECT count(*), sum(x.id), sum(y.id) FROM scan_t x JOIN scan_t y ON x.n = y.n WHERE x.id % 97 = 1'),
('merge', 'Merge Join', 'SELECT count(*), sum(x.d), sum(y.d) FROM (SELECT d, a, id FROM scan_t WHERE d < 40000) x JOIN (SELECT d, a FROM scan_t) y ON x.d = y.d'),
('merge', 'Merge (Left|Right) Join', 'SELECT count(*), count(y.a), sum(y.a) FROM scan_t x LEFT JOIN (SELECT a FROM scan_t WHERE a = ANY (''{5,17,4000,2}'')) y ON x.a = y.a'),
('merge', 'Index Only Scan using scan_a on scan_t y', 'SELECT count(*), sum(y.a) FROM scan_t x JOIN scan_t y ON x.a = y.a WHERE x.a < 1500'),
('merge', 'Index Only Scan', 'SELECT count(*), sum(x.n), sum(y.n) FROM scan_t x JOIN scan_t y ON x.n = y.n WHERE x.n > 600'),
('nest', 'Nested Loop', 'SELECT count(*), sum(y.id) FROM scan_t x JOIN scan_t y ON x.a = y.n WHERE x.id % 7 = 1'),
('nest', 'Nested Loop', 'SELECT count(*), sum(y.id) FROM scan_t x JOIN scan_t y ON y.a = ANY (ARRAY[x.a, x.a + 1, x.n]) WHERE x.id % 770 = 1');

CREATE FUNCTION scan_set(mode text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	seq bool := mode = 'seq';
	one text;
BEGIN
	FOREACH one IN ARRAY
		ARRAY['seqscan', 'indexscan', 'indexonlyscan', 'bitmapscan', 'sort',
			  'hashjoin', 'mergejoin', 'nestloop', 'material', 'memoize']
	LOOP
		PERFORM set_config('enable_' || one, CASE one
			WHEN 'seqscan' THEN seq
			WHEN 'indexscan' THEN NOT seq AND mode <> 'bitmap'
			WHEN 'indexonlyscan' THEN mode IN ('only', 'merge')
			WHEN 'bitmapscan' THEN mode = 'bitmap'
			WHEN 'sort' THEN mode IN ('seq', 'bitmap')
			WHEN 'hashjoin' THEN seq
			WHEN 'mergejoin' THEN mode = 'merge'
			WHEN 'nestloop' THEN mode = 'nest'
			ELSE false END::text, true);
	END LOOP;
END $$;

-- the answer as an array, in the query's order if it gives one
CREATE FUNCTION scan_run(query text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	res text[];
BEGIN
	EXECUTE format('SELECT array_agg(x::text%s) FROM (%s) x',
				   CASE WHEN query ~ 'ORDER BY' THEN '' ELSE ' ORDER BY x::text' END,
				   query) INTO res;
	RETURN coalesce(res, '{}');
END $$;

CREATE FUNCTION scan_plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	res text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		res := res || line || E'\n';
	END LOOP;
	RETURN res;
END $$;

-- runs all queries; one line for each that fails, and one for all
CREATE FUNCTION scan_suite() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	q scan_q;
	want text[];
	got text[];
	plan text;
	done int := 0;
	failed int := 0;
BEGIN
	FOR q IN SELECT * FROM scan_q ORDER BY no LOOP
		PERFORM scan_set('seq');
		want := scan_run(q.query);
		PERFORM scan_set(q.mode);
		plan := scan_plan(q.query);
		got := scan_run(q.query);
		done := done + 1;
		IF plan !~ q.plan THEN
			RETURN NEXT format('%s %s: plan is %s', q.mode, q.query, plan);
		END IF;
		IF got IS DISTINCT FROM want THEN
			failed := failed + 1;
			RETURN NEXT format('%s %s: %s rows, not %s', q.mode, q.query,
							   cardinality(got), cardinality(want));
		END IF;
	END LOOP;
	RETURN NEXT format('%s queries, %s differences', done, failed);
END $$;

-- a random walk with a cursor, compared with the answer as an array
CREATE FUNCTION scan_walk(mode text, plan text, query text, steps int)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	want text[];
	n int;
	at int := 0;
	go int;
	c refcursor;
	r record;
	wrong int := 0;
BEGIN
	PERFORM scan_set('seq');
	want := scan_run(query);
	n := cardinality(want);
	PERFORM scan_set(mode);
	IF scan_plan(query) !~ plan THEN
		RETURN 'plan is ' || scan_plan(query);
	END IF;
	PERFORM setseed(0.5);
	OPEN c SCROLL FOR EXECUTE query;
	FOR i IN 1 .. steps LOOP
		go := (random() * random() * 1000 * (CASE WHEN random() < 0.1 THEN 30 ELSE 0.3 END))::int + 1;
		IF random() < 0.5 THEN
			MOVE FORWARD go FROM c;
			at := least(at + go, n + 1);
			FETCH NEXT FROM c INTO r;
			at := least(at + 1, n + 1);
		ELSE
			MOVE BACKWARD go FROM c;
			at := greatest(at - go, 0);
			FETCH PRIOR FROM c INTO r;
			at := greatest(at - 1, 0);
		END IF;
		IF at BETWEEN 1 AND n THEN
			IF r::text IS DISTINCT FROM want[at] THEN
				wrong := wrong + 1;
			END IF;
		ELSIF FOUND THEN
			wrong := wrong + 1;
		END IF;
	END LOOP;
	CLOSE c;
	RETURN format('%s rows, %s steps, %s wrong', n > 1000, steps, wrong);
END $$;

CREATE FUNCTION scan_walks() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT scan_walk('index', 'Index Scan using scan_d ', 'SELECT d, a, id FROM scan_t ORDER BY d, a, id', 300)
	UNION ALL
	SELECT scan_walk('index', 'Index Scan Backward using scan_d ', 'SELECT d, a, id FROM scan_t WHERE d BETWEEN 1000 AND 70000 ORDER BY d DESC, a DESC, id DESC', 300)
	UNION ALL
	SELECT scan_walk('only', 'Index Only Scan using scan_ab ', 'SELECT a, b FROM scan_t WHERE a > 300 AND b < ''c'' ORDER BY a DESC NULLS LAST, b', 300)
	UNION ALL
	SELECT scan_walk('index', 'Index Scan using scan_a ', 'SELECT a FROM scan_t WHERE a = ANY (ARRAY(SELECT i FROM generate_series(1, 9000, 3) i)) ORDER BY a', 300)
	UNION ALL
	SELECT scan_walk('only', 'Index Only Scan Backward using scan_nf ', 'SELECT n, c FROM scan_t WHERE n IS NULL ORDER BY n DESC NULLS LAST, c', 300)
$$;

-- entries in the journals of all indexes of the table
CREATE FUNCTION scan_journaled() RETURNS SETOF text LANGUAGE sql AS $$
	SELECT format('%s: %s', indexrelid::regclass,
				  CASE WHEN coalesce((SELECT sum(nentries) FROM cache_batch_journal(indexrelid::regclass)), 0) > 0
				  THEN 'entries' ELSE 'empty' END)
	FROM pg_index WHERE indrelid = 'scan_t'::regclass
	ORDER BY indexrelid::regclass::text
$$;

-- 1. all in the tree
SELECT * FROM scan_suite();
SELECT * FROM scan_walks();

-- 2. many small batches in the journal
DO $$
BEGIN
	FOR i IN 0 .. 39 LOOP
		PERFORM scan_fill(20001 + i * 200, 20200 + i * 200);
	END LOOP;
END $$;
SELECT * FROM scan_journaled();
SELECT * FROM scan_suite();
SELECT * FROM scan_walks();

-- a rescan does not read the journal again
BEGIN;
SELECT scan_set('nest');
SELECT journal_reads AS reads FROM cache_batch_stat_get('scan_a'::regclass) \gset
SELECT count(*) > 1000 FROM scan_t x JOIN scan_t y ON y.a = x.n WHERE x.id < 1000;
SELECT journal_reads - :reads < 10 AS few_reads FROM cache_batch_stat_get('scan_a'::regclass);
COMMIT;

-- 3. updates and deletions, with the journal still full
DELETE FROM scan_t WHERE id % 11 = 3;
UPDATE scan_t SET a = a + 1, n = n + 1, d = d - 5, c = c + 0.5 WHERE id % 41 = 2;
SELECT * FROM scan_suite();
-- again, with the dead entries marked
SELECT * FROM scan_suite();

-- 4. one's own rows, and rows of a sub-transaction that is rolled back
BEGIN;
SELECT scan_fill(40001, 40100);
SAVEPOINT s;
SELECT scan_fill(41001, 41100);
SELECT * FROM scan_suite();
ROLLBACK TO s;
SELECT * FROM scan_suite();
COMMIT;

-- 5. a cursor sees neither later rows nor a flush
BEGIN;
SELECT scan_set('index');
DECLARE c SCROLL CURSOR FOR SELECT d, a, id FROM scan_t WHERE d < 50000 ORDER BY d, a, id;
CREATE TEMP TABLE scan_before AS SELECT d, a, id FROM scan_t WHERE d < 50000;
FETCH 2 FROM c;
MOVE 3000 FROM c;
SELECT scan_fill(42001, 42300);
DELETE FROM scan_t WHERE id % 13 = 5;
MOVE FORWARD ALL FROM c;
MOVE BACKWARD ALL FROM c;
MOVE FORWARD 5000 FROM c;
MOVE BACKWARD 4999 FROM c;
FETCH RELATIVE 0 FROM c;
FETCH 1 FROM c;
ROLLBACK;

-- 6. flushed
SELECT count(cache_batch_flush(indexrelid::regclass)) FROM pg_index WHERE indrelid = 'scan_t'::regclass;
SELECT * FROM scan_journaled();
SELECT * FROM scan_suite();
SELECT * FROM scan_walks();

-- 7. vacuumed, so that index-only scans need no heap, and more in the journal
VACUUM scan_t;
SELECT * FROM scan_suite();
SELECT scan_fill(50001, 50300);
SELECT scan_fill(50301, 50600);
SELECT * FROM scan_suite();
SELECT * FROM scan_walks();

-- CLUSTER reads the index with a snapshot that sees everything
SELECT count(*) AS rows FROM scan_t \gset
CLUSTER scan_t USING scan_ab;
SELECT count(*) = :rows AS all_there, bool_and((a <= before) IS NOT FALSE) AS in_order
FROM (SELECT a, lag(a) OVER (ORDER BY ctid) AS before FROM scan_t) x;

-- 8. more entries of one leaf's range in the journal than a window takes
CREATE TABLE scan_m (k int, v int) WITH (autovacuum_enabled = off);
INSERT INTO scan_m SELECT i * 1000, i FROM generate_series(1, 20000) i;
CREATE INDEX scan_m_k ON scan_m USING cachebatch (k);
-- a scan publishes what its session has staged; such small batches are journaled
DO $$
BEGIN
	PERFORM scan_set('index');
	FOR i IN 0 .. 199 LOOP
		INSERT INTO scan_m SELECT 5000 * 1000 + (j * 37 + i * 11) % 1000, i * 100 + j FROM generate_series(0, 24) j;
		PERFORM FROM scan_m WHERE k = -1;
		INSERT INTO scan_m SELECT 777, i * 100 + j FROM generate_series(0, 24) j;
		PERFORM FROM scan_m WHERE k = -1;
	END LOOP;
END $$;
SELECT sum(nentries) > 5000 AS journaled FROM cache_batch_journal('scan_m_k');
TRUNCATE scan_q;
INSERT INTO scan_q (mode, plan, query) VALUES
('index', 'Index Scan using scan_m_k ', 'SELECT k, v FROM scan_m WHERE k = 777'),
('index', 'Index Scan using scan_m_k ', 'SELECT k, v FROM scan_m WHERE k BETWEEN 4999000 AND 5002000'),
('only', 'Index Only Scan using scan_m_k ', 'SELECT k FROM scan_m WHERE k > 4000000 ORDER BY k'),
('only', 'Index Only Scan Backward using scan_m_k ', 'SELECT k FROM scan_m ORDER BY k DESC'),
('only', 'Index Only Scan Backward using scan_m_k ', 'SELECT k FROM scan_m WHERE k <= 777 ORDER BY k DESC'),
('only', 'Index Only Scan using scan_m_k ', 'SELECT k FROM scan_m ORDER BY k LIMIT 5100'),
('bitmap', 'Bitmap Index Scan on scan_m_k', 'SELECT k, v FROM scan_m WHERE k BETWEEN 4999000 AND 5002000'),
('merge', 'Merge Join', 'SELECT count(*), sum(x.v), sum(y.v) FROM scan_m x JOIN scan_m y ON x.k = y.k WHERE x.k BETWEEN 5000000 AND 5001000'),
('merge', 'Merge Join', 'SELECT count(*), sum(x.v), sum(y.v) FROM (SELECT * FROM scan_m WHERE v < 100) x JOIN scan_m y ON x.k = y.k WHERE x.k < 1000');
SELECT * FROM scan_suite();
SELECT scan_walk('only', 'Index Only Scan using scan_m_k ', 'SELECT k FROM scan_m ORDER BY k', 400);
SELECT scan_walk('index', 'Index Scan Backward using scan_m_k ', 'SELECT k FROM scan_m WHERE k < 6000000 ORDER BY k DESC', 400);
SELECT cache_batch_flush('scan_m_k');
SELECT * FROM scan_suite();

-- 9. an exclusion constraint looks at entries wherever they are
CREATE TABLE scan_x (k int, EXCLUDE USING cachebatch (k WITH =));
INSERT INTO scan_x SELECT generate_series(1, 1000);
INSERT INTO scan_x VALUES (2001);
INSERT INTO scan_x VALUES (2001);
INSERT INTO scan_x VALUES (2002), (2002);
INSERT INTO scan_x VALUES (500);
DELETE FROM scan_x WHERE k = 2001;
INSERT INTO scan_x VALUES (2001);
UPDATE scan_x SET k = 7 WHERE k = 2001;
SELECT cache_batch_flush('scan_x_k_excl');
INSERT INTO scan_x VALUES (2001);
SELECT count(*), count(DISTINCT k) FROM scan_x;

-- 10. temporary and unlogged tables
TRUNCATE scan_q;
INSERT INTO scan_q (mode, plan, query) VALUES
('index', 'Index Scan', 'SELECT k, v FROM %s WHERE k < 3000'),
('only', 'Index Only Scan', 'SELECT k FROM %s ORDER BY k'),
('only', 'Index Only Scan Backward', 'SELECT k FROM %s ORDER BY k DESC'),
('bitmap', 'Bitmap Index Scan', 'SELECT k, v FROM %s WHERE k > 3000'),
('merge', 'Merge Join', 'SELECT count(*), sum(x.v), sum(y.v) FROM %1$s x JOIN %1$s y ON x.k = y.k');
INSERT INTO scan_q (mode, plan, query)
SELECT q.mode, q.plan, format(q.query, t)
FROM scan_q q, unnest('{scan_tmp,scan_unl}'::text[]) t;
DELETE FROM scan_q WHERE query ~ '%';
CREATE TEMP TABLE scan_tmp (k int, v int);
CREATE UNLOGGED TABLE scan_unl (k int, v int) WITH (autovacuum_enabled = off);
INSERT INTO scan_tmp SELECT i * 7919 % 5003, i FROM generate_series(1, 20000) i;
INSERT INTO scan_unl SELECT * FROM scan_tmp;
CREATE INDEX ON scan_tmp USING cachebatch (k);
CREATE INDEX ON scan_unl USING cachebatch (k);
INSERT INTO scan_tmp SELECT i * 7919 % 5003, i FROM generate_series(20001, 20400) i;
INSERT INTO scan_unl SELECT * FROM scan_tmp WHERE v > 20000;
DELETE FROM scan_tmp WHERE v % 10 = 1;
DELETE FROM scan_unl WHERE v % 10 = 1;
SELECT * FROM scan_suite();
SELECT * FROM scan_suite();

DROP FUNCTION scan_walks(), scan_walk(text, text, text, int), scan_suite(),
	scan_plan(text), scan_run(text), scan_set(text), scan_journaled(),
	scan_fill(int, int);
DROP TABLE scan_t, scan_m, scan_x, scan_q, scan_tmp, scan_unl;
