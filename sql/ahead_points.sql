-- Scans that read ahead although all is in memory: answers, and leaves asked for
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET effective_io_concurrency = 16;
SET cache_batch.test_read_ahead = on;
SET enable_sort = off;
SET max_parallel_workers_per_gather = 0;

-- some 450 leaves, with two pages above them
CREATE TABLE ahead (a int, b int) WITH (autovacuum_enabled = off);
INSERT INTO ahead SELECT i, i % 3 FROM generate_series(1, 16000) i;
INSERT INTO ahead SELECT NULL, i FROM generate_series(1, 400) i;
CREATE INDEX ahead_a ON ahead USING cachebatch (a)
	WITH (buffered = off, pack_leaves = off, fillfactor = 10);

-- The leaves that a query has asked for, and whether it is answered as it is
-- without indexes; how: what it is to use.
CREATE FUNCTION ask(how text, query text, OUT asked text, OUT right_answer boolean)
LANGUAGE plpgsql AS $$
DECLARE
	digest text := format('SELECT count(*) || coalesce(md5(string_agg(x::text, '','')), '''') FROM (%s) x', query);
	plan text := '';
	line text;
	answer text;
	expected text;
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true),
		set_config('enable_indexscan', (how = 'index')::text, true),
		set_config('enable_indexonlyscan', (how = 'index')::text, true),
		set_config('enable_bitmapscan', (how = 'bitmap')::text, true),
		set_config('cache_batch.test_points', 'scan-read-ahead=count', true);
	EXECUTE digest INTO answer;
	asked := split_part(current_setting('cache_batch.test_point_hits'), ':', 2);
	FOR line IN EXECUTE 'EXPLAIN ' || digest LOOP
		plan := plan || line;
	END LOOP;
	PERFORM set_config('enable_seqscan', 'on', true),
		set_config('enable_indexscan', 'off', true),
		set_config('enable_indexonlyscan', 'off', true),
		set_config('enable_bitmapscan', 'off', true);
	EXECUTE digest INTO expected;
	right_answer := answer = expected AND plan LIKE '%ahead%' AND plan NOT LIKE '%Seq Scan%';
END $$;

-- all of it
SELECT * FROM ask('index', 'SELECT a FROM ahead ORDER BY a');
SELECT * FROM ask('index', 'SELECT a FROM ahead ORDER BY a DESC');
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a > 0');

-- up to the end of a range, and no further
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a BETWEEN 5000 AND 5700 ORDER BY a');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a BETWEEN 5000 AND 5700 ORDER BY a DESC');
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a BETWEEN 5000 AND 5700');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a < 700::int8 ORDER BY a');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a > 15300 ORDER BY a');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a > 15300 ORDER BY a DESC');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a IS NULL');
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a IS NULL');

-- nothing for one leaf
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a = 777');
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a = 777');
SELECT * FROM ask('index', 'SELECT a FROM ahead ORDER BY a LIMIT 1');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a = ANY (ARRAY[1, 7777, 15000]) ORDER BY a');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a BETWEEN 5 AND 3');

-- from value to value, where they are in leaf after leaf
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a = ANY (ARRAY(SELECT generate_series(5000, 5700, 7))) ORDER BY a');
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a = ANY (ARRAY(SELECT generate_series(5000, 5700, 7)))');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a = ANY (ARRAY(SELECT generate_series(5000, 5700) UNION SELECT generate_series(9000, 9700))) ORDER BY a');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a BETWEEN 5000 AND 5700 AND a = ANY (ARRAY(SELECT generate_series(1, 16000))) ORDER BY a');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a = ANY (ARRAY(SELECT generate_series(1, 16000, 200))) ORDER BY a');

-- more from leaf to leaf
SELECT * FROM ask('index', 'SELECT a FROM ahead ORDER BY a LIMIT 100');
SELECT * FROM ask('index', 'SELECT a FROM ahead ORDER BY a LIMIT 150');
SELECT * FROM ask('index', 'SELECT a FROM ahead ORDER BY a LIMIT 200');

-- no more than the setting says, up to none
SET effective_io_concurrency = 1;
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a BETWEEN 5000 AND 5700');
SET effective_io_concurrency = 1000;
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a > 0');
SET effective_io_concurrency = 0;
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a > 0');
SET effective_io_concurrency = 16;

-- nor where all is in memory
SET cache_batch.test_read_ahead = off;
SELECT * FROM ask('index', 'SELECT a FROM ahead ORDER BY a');
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a > 0');
SET cache_batch.test_read_ahead = on;

-- other orders, and bounds of several columns
CREATE INDEX ahead_ba ON ahead USING cachebatch (b DESC NULLS FIRST, a DESC)
	WITH (buffered = off, pack_leaves = off, fillfactor = 10);
DROP INDEX ahead_a;
SELECT * FROM ask('index', 'SELECT b, a FROM ahead WHERE b = 1 AND a > 8000 ORDER BY b DESC, a DESC');
SELECT * FROM ask('index', 'SELECT b, a FROM ahead WHERE b = 1 AND a > 8000 ORDER BY b, a');
SELECT * FROM ask('index', 'SELECT b, a FROM ahead WHERE b < 2 AND a < 5000 ORDER BY b, a');
SELECT * FROM ask('index', 'SELECT b, a FROM ahead WHERE b IS NOT NULL ORDER BY b DESC NULLS FIRST, a DESC');
SELECT * FROM ask('bitmap', 'SELECT b, a FROM ahead WHERE b = ANY (ARRAY[0, 1, 399]) AND a < 1000');
DROP INDEX ahead_ba;

-- an operator family that cannot compare the end's type
CREATE OPERATOR CLASS ahead_ops FOR TYPE int USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 btint4cmp(int, int);
ALTER OPERATOR FAMILY ahead_ops USING cachebatch ADD OPERATOR 1 < (int, int8);
CREATE INDEX ahead_a ON ahead USING cachebatch (a ahead_ops)
	WITH (buffered = off, pack_leaves = off, fillfactor = 10);
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a > 5000 AND a < 5700::int8 ORDER BY a USING <');

-- one whose comparison with the end's type keeps memory from call to call
CREATE FUNCTION ahead_cmp(int, int8) RETURNS int LANGUAGE internal
	IMMUTABLE STRICT SET work_mem = '4MB' AS 'btint48cmp';
ALTER OPERATOR FAMILY ahead_ops USING cachebatch ADD
	OPERATOR 2 <= (int, int8), OPERATOR 4 >= (int, int8),
	FUNCTION 1 (int, int8) ahead_cmp(int, int8);
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a >= 1 AND a <= 15900::int8 ORDER BY a USING <');
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a >= 1::int8 AND a <= 15900 ORDER BY a USING >');
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a >= 1 AND a <= 15900::int8');
DROP OPERATOR FAMILY ahead_ops USING cachebatch CASCADE;
DROP FUNCTION ahead_cmp;
CREATE INDEX ahead_a ON ahead USING cachebatch (a)
	WITH (buffered = off, pack_leaves = off, fillfactor = 10);

-- turning round, and coming back to a mark
SET enable_seqscan = off;
SET enable_bitmapscan = off;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT a FROM ahead ORDER BY a;
MOVE 3000 FROM c;
MOVE BACKWARD 2000 FROM c;
FETCH 1 FROM c;
MOVE 6000 FROM c;
FETCH 1 FROM c;
MOVE BACKWARD ALL FROM c;
FETCH 1 FROM c;
COMMIT;
SET enable_hashjoin = off;
SET enable_nestloop = off;
SET enable_material = off;
CREATE TABLE ahead_dup (a int) WITH (autovacuum_enabled = off);
INSERT INTO ahead_dup SELECT i / 400 * 300 FROM generate_series(1, 8000) i;
CREATE INDEX ahead_dup_a ON ahead_dup USING cachebatch (a)
	WITH (buffered = off, pack_leaves = off, fillfactor = 10);
EXPLAIN (COSTS OFF) SELECT count(*), sum(x.a) FROM ahead_dup x JOIN ahead_dup y USING (a) WHERE x.a < 900;
SELECT count(*), sum(x.a) FROM ahead_dup x JOIN ahead_dup y USING (a) WHERE x.a < 900;

-- leaves that are split, emptied and deleted after they were listed
BEGIN;
DECLARE c CURSOR FOR SELECT a FROM ahead WHERE a < 9000 ORDER BY a;
MOVE 1000 FROM c;
INSERT INTO ahead SELECT i % 8000, 9 FROM generate_series(1, 12000) i;
MOVE ALL FROM c;
COMMIT;
SELECT * FROM ask('index', 'SELECT a FROM ahead WHERE a < 9000 ORDER BY a');
SELECT * FROM ask('bitmap', 'SELECT a FROM ahead WHERE a < 9000');
DELETE FROM ahead WHERE a BETWEEN 4000 AND 8000;
VACUUM (INDEX_CLEANUP ON) ahead;
-- which pages were free, and stand in a row now, depends on the server
SELECT asked::int > 280 AS asked, right_answer FROM ask('index', 'SELECT a FROM ahead ORDER BY a DESC');
SELECT cache_batch_verify('ahead_a');

-- runs of range buffers; where windows end depends on the pool, so on earlier tests
SET cache_batch.test_spill = on;
SET cache_batch.test_run_min = 1;
ALTER INDEX ahead_a SET (buffered = on, spill_threshold = 0);
INSERT INTO ahead SELECT i * 2, 11 FROM generate_series(1, 3000) i;
SELECT cache_batch_flush('ahead_a');
INSERT INTO ahead SELECT i * 3, 12 FROM generate_series(1, 3000) i;
SELECT cache_batch_flush('ahead_a');
SELECT sum(runs) > 1 AS several FROM cache_batch_ranges('ahead_a');
SELECT asked::int > 30 AS asked, right_answer FROM ask('index', 'SELECT a FROM ahead ORDER BY a');
SELECT asked::int > 30 AS asked, right_answer FROM ask('index', 'SELECT a FROM ahead WHERE a < 7000 ORDER BY a DESC');
SELECT asked::int > 30 AS asked, right_answer FROM ask('bitmap', 'SELECT a FROM ahead WHERE a BETWEEN 1000 AND 4100');
DROP TABLE ahead, ahead_dup;
DROP FUNCTION ask;
