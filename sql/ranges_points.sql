-- Range buffers: settings, and answers from runs
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET cache_batch.test_spill = on;
SET cache_batch.test_run_min = 1;

-- the option
CREATE TABLE ranges (k int, n int) WITH (autovacuum_enabled = off);
CREATE INDEX ranges_bad ON ranges USING cachebatch (k) WITH (spill_threshold = 'many');
CREATE INDEX ranges_bad ON ranges USING cachebatch (k) WITH (spill_threshold = '-1kB');
CREATE INDEX ranges_bad ON ranges USING cachebatch (k) WITH (spill_threshold = '2 hours');
INSERT INTO ranges SELECT i * 10, i FROM generate_series(1, 10000) i;
CREATE INDEX ranges_k ON ranges USING cachebatch (k) WITH (spill_threshold = '1TB');
SELECT reloptions FROM pg_class WHERE relname = 'ranges_k';
ALTER INDEX ranges_k SET (spill_threshold = '100 %');
ALTER INDEX ranges_k SET (spill_threshold = off);
SET cache_batch.spill_threshold = 0;
SET cache_batch.spill_target = 5;
ALTER SYSTEM SET cache_batch.spill_threshold = 'much';
ALTER SYSTEM SET cache_batch.spill_target = 0;
SELECT name, setting, unit, context FROM pg_settings WHERE name LIKE 'cache_batch.spill%' ORDER BY name;

-- no ranges unless the index is large
INSERT INTO ranges SELECT i * 1000 + 1, 1 FROM generate_series(1, 20) i;
SELECT cache_batch_flush('ranges_k');
SELECT count(*) FROM cache_batch_ranges('ranges_k');

-- several runs, with entries that the leaves have too, and that nobody has
ALTER INDEX ranges_k SET (spill_threshold = 0);
INSERT INTO ranges SELECT i * 1000 + 3, 3 FROM generate_series(1, 60) i;
SELECT cache_batch_flush('ranges_k');
INSERT INTO ranges SELECT i * 1000 + 2, 2 FROM generate_series(1, 60) i;
SELECT cache_batch_flush('ranges_k');
INSERT INTO ranges SELECT i * 1000 + 5, 5 FROM generate_series(3, 60, 3) i;
INSERT INTO ranges SELECT 30000, i FROM generate_series(1, 20) i;
SELECT cache_batch_flush('ranges_k');
SELECT count(*) > 0 AS ranges, sum(runs) > 2 AS runs, sum(entries) > 50 AS entries FROM cache_batch_ranges('ranges_k');
SELECT spilled > 50 AS spilled FROM cache_batch_stat_indexes WHERE indexrelname = 'ranges_k';
SELECT cache_batch_verify('ranges_k', true);

-- and some that are not flushed yet
INSERT INTO ranges SELECT i * 1000 + 4, 4 FROM generate_series(1, 60, 2) i;
ANALYZE ranges;

EXPLAIN (COSTS OFF) SELECT k FROM ranges WHERE k BETWEEN 2995 AND 5005 AND k % 10 > 0 ORDER BY k;
SELECT k FROM ranges WHERE k BETWEEN 2995 AND 5005 AND k % 10 > 0 ORDER BY k;
SELECT k FROM ranges WHERE k BETWEEN 2995 AND 5005 AND k % 10 > 0 ORDER BY k DESC;
SELECT count(*), sum(k::bigint) FROM (SELECT k FROM ranges WHERE k > 0 ORDER BY k) s;
SELECT count(*), sum(k::bigint) FROM (SELECT k FROM ranges WHERE k > 0 ORDER BY k DESC) s;
SELECT k, n FROM ranges WHERE k = 3002;
SELECT k, n FROM ranges WHERE k = 3006;
SELECT k, n FROM ranges WHERE k = 3002::bigint;
SELECT count(*) FROM ranges WHERE k = 30000;
SELECT k, n FROM ranges WHERE k = ANY (ARRAY[3002, 3004, 3005, 3006, 59002, 1, 90000, 30003]) ORDER BY k;
SELECT min(k), max(k) FROM ranges WHERE k % 10 = 3;

-- index-only, bitmap
EXPLAIN (COSTS OFF) SELECT n FROM ranges WHERE k BETWEEN 20001 AND 21009;
SELECT n, count(*) FROM ranges WHERE k BETWEEN 20001 AND 23009 GROUP BY n HAVING n < 10 ORDER BY n;
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
EXPLAIN (COSTS OFF) SELECT k FROM ranges WHERE k BETWEEN 2995 AND 3005 OR k = 30003;
SELECT count(*), sum(k) FROM ranges WHERE k BETWEEN 2995 AND 3005 OR k = 30003;
SELECT count(*), sum(k::bigint) FROM ranges WHERE k > 0;
SET enable_bitmapscan = off;
SET enable_indexscan = on;
SET enable_indexonlyscan = on;

-- cursors that turn round
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT k FROM ranges WHERE k > 2989 ORDER BY k;
FETCH 4 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH 6 FROM c;
MOVE 2000 IN c;
FETCH BACKWARD 2 FROM c;
MOVE BACKWARD ALL IN c;
FETCH 3 FROM c;
MOVE ALL IN c;
FETCH BACKWARD 3 FROM c;
-- while the runs are merged
SELECT count(*) FROM (SELECT cache_batch_flush('ranges_k')) s;
SET LOCAL cache_batch.test_spill = off;
SELECT cache_batch_flush('ranges_k');
SELECT sum(runs) FROM cache_batch_ranges('ranges_k');
MOVE BACKWARD ALL IN c;
FETCH 6 FROM c;
MOVE ALL IN c;
FETCH BACKWARD 3 FROM c;
COMMIT;
SELECT cache_batch_verify('ranges_k', true);

-- mark and restore
CREATE TABLE ranges_other (k int);
CREATE INDEX ranges_other_k ON ranges_other USING cachebatch (k) WITH (spill_threshold = 0, pack_leaves = off);
INSERT INTO ranges_other SELECT i * 10 FROM generate_series(1, 5000) i;
SELECT cache_batch_flush('ranges_other_k');
INSERT INTO ranges_other SELECT i * 500 + 2 FROM generate_series(1, 60) i, generate_series(1, 2);
SELECT cache_batch_flush('ranges_other_k');
INSERT INTO ranges SELECT i * 1000 + 2, 7 FROM generate_series(1, 60) i, generate_series(1, 3);
SELECT cache_batch_flush('ranges_k');
SET enable_hashjoin = off;
SET enable_nestloop = off;
SET enable_material = off;
EXPLAIN (COSTS OFF) SELECT count(*), sum(a.n) FROM ranges a JOIN ranges_other b USING (k);
SELECT count(*), sum(a.n) FROM ranges a JOIN ranges_other b USING (k);
SELECT count(*), sum(a.n) FROM ranges a JOIN ranges_other b USING (k) WHERE k % 10 = 2;

-- what is known of the filters is of the runs that were listed then
SELECT sum((SELECT count(*) FROM ranges r WHERE r.k = 7777 + 0 * i)) FROM generate_series(1, 10) i;
INSERT INTO ranges VALUES (7777, 1);
SELECT cache_batch_flush('ranges_k');
SELECT sum((SELECT count(*) FROM ranges r WHERE r.k = 7777 + 0 * i)) FROM generate_series(1, 10) i;
SELECT sum((SELECT count(*) FROM ranges r WHERE r.k = 7778 + 0 * i)) FROM generate_series(1, 10) i;

-- they are there until somebody wants the tree to have all
SELECT sum(runs) > 0 AS runs FROM cache_batch_ranges('ranges_k');
RESET cache_batch.test_spill;
SELECT cache_batch_flush('ranges_k');
SELECT cache_batch_flush('ranges_k');
SELECT sum(runs) AS runs FROM cache_batch_ranges('ranges_k');
SELECT count(*), sum(a.n) FROM ranges a JOIN ranges_other b USING (k) WHERE k % 10 = 2;

-- what is known to have no runs has none until one is added
CREATE FUNCTION ranges_ends(n int) RETURNS TABLE (lo int, hi int, last int[]) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..n LOOP
		SELECT min(k), max(k) INTO lo, hi FROM ranges;
		last := ARRAY(SELECT k FROM ranges WHERE k > 0 ORDER BY k DESC LIMIT 4);
	END LOOP;
	RETURN NEXT;
END $$;
SELECT * FROM ranges_ends(10);
SET cache_batch.test_spill = on;
INSERT INTO ranges VALUES (3, 1), (200001, 1);
SELECT cache_batch_flush('ranges_k');
SELECT sum(runs) > 0 AS runs FROM cache_batch_ranges('ranges_k');
SELECT * FROM ranges_ends(10);
RESET cache_batch.test_spill;
SELECT cache_batch_flush('ranges_k');
SELECT * FROM ranges_ends(10);

DROP FUNCTION ranges_ends;
DROP TABLE ranges, ranges_other;

-- a comparison that reads the index meanwhile, by way of the same bucket
SET cache_batch.test_spill = on;
SET cache_batch.test_run_min = 1;
SET cache_batch.test_max_buckets = 1;
CREATE TABLE ranges_nested (k int) WITH (autovacuum_enabled = off);
CREATE FUNCTION ranges_cmp(int, int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('ranges.nest', true) = 'on' THEN
		PERFORM set_config('ranges.nest', 'off', false);
		PERFORM k FROM ranges_nested WHERE k > 95000 ORDER BY k LIMIT 1;
	END IF;
	RETURN btint4cmp($1, $2);
END $$;
CREATE OPERATOR CLASS ranges_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 ranges_cmp(int, int);
CREATE INDEX ranges_nested_k ON ranges_nested USING cachebatch (k ranges_ops)
	WITH (buffered = on, spill_threshold = '1TB', pack_leaves = off);
CREATE INDEX ranges_nested_k2 ON ranges_nested USING cachebatch ((k + 0))
	WITH (spill_threshold = '1TB', pack_leaves = off);
INSERT INTO ranges_nested VALUES (0);
SELECT cache_batch_flush('ranges_nested_k'), cache_batch_flush('ranges_nested_k2');
INSERT INTO ranges_nested SELECT i * 10 FROM generate_series(1, 10000) i;
SELECT cache_batch_flush('ranges_nested_k'), cache_batch_flush('ranges_nested_k2');
ALTER INDEX ranges_nested_k SET (spill_threshold = 0);
ALTER INDEX ranges_nested_k2 SET (spill_threshold = 0);
-- ranges: some at first, none of which has a run when all has been merged
INSERT INTO ranges_nested VALUES (50507);
SELECT cache_batch_flush('ranges_nested_k'), cache_batch_flush('ranges_nested_k2');
SELECT count(*) > 1 AS several, sum(runs) > 0 AS runs FROM cache_batch_ranges('ranges_nested_k');
SET cache_batch.test_spill = off;
INSERT INTO ranges_nested VALUES (50508);
SELECT cache_batch_flush('ranges_nested_k');
SELECT cache_batch_flush('ranges_nested_k');
VACUUM ranges_nested;
SELECT sum(runs) AS runs FROM cache_batch_ranges('ranges_nested_k');
SET cache_batch.test_spill = on;
SELECT sum((SELECT k FROM ranges_nested r WHERE r.k > 50500 + 0 * i ORDER BY k LIMIT 1)) FROM generate_series(1, 10) i;
-- one of them gets a run
INSERT INTO ranges_nested VALUES (50502);
SELECT cache_batch_flush('ranges_nested_k'), cache_batch_flush('ranges_nested_k2');
SET ranges.nest = on;
SELECT k FROM ranges_nested WHERE k > 50501 ORDER BY k LIMIT 3;

-- other scans leave look-ups what they know of the filters
CREATE FUNCTION ranges_pages(n int, beside bool) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	pages bigint := 0;
	before bigint;
BEGIN
	FOR i IN 1..n LOOP
		IF beside THEN
			PERFORM k FROM ranges_nested WHERE k + 0 > 90000 ORDER BY k + 0 LIMIT 1;
		END IF;
		before := pg_stat_get_xact_blocks_fetched('ranges_nested_k2'::regclass);
		PERFORM k FROM ranges_nested WHERE k + 0 = 50503;
		pages := pages + pg_stat_get_xact_blocks_fetched('ranges_nested_k2'::regclass) - before;
	END LOOP;
	RETURN pages;
END $$;
SELECT ranges_pages(20, false) > 0 AS known;
SELECT ranges_pages(100, false) = ranges_pages(100, true) AS same;
RESET cache_batch.test_spill;
RESET cache_batch.test_run_min;
RESET cache_batch.test_max_buckets;
DROP FUNCTION ranges_pages;
DROP TABLE ranges_nested;
DROP OPERATOR FAMILY ranges_ops USING cachebatch;
DROP FUNCTION ranges_cmp;
