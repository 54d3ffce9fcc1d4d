-- A bitmap scan can be cancelled from leaf to leaf: needs a build with TESTPOINTS=1.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

CREATE TABLE cancelled (k int);
INSERT INTO cancelled SELECT 2 * generate_series(1, 3000);
CREATE INDEX cancelled_k ON cancelled USING cachebatch (k) WITH (pack_leaves = off, fillfactor = 10);
SET enable_seqscan = off;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;

SET cache_batch.test_points = 'scan-leaf-read=count';
SELECT count(*) FROM cancelled WHERE k > 0;
SELECT split_part(current_setting('cache_batch.test_point_hits'), ':', 2)::int > 50 AS many_leaves;

SET cache_batch.test_points = 'scan-leaf-read=cancel:3';
SELECT count(*) FROM cancelled WHERE k > 0;
SHOW cache_batch.test_point_hits;

-- between the elements of an array, where nothing is found
SET cache_batch.test_points = 'scan-leaf-read=cancel:3';
SELECT count(*) FROM cancelled
WHERE k = ANY (ARRAY[301, 1301, 2301, 3301, 4301, 5301]);
SHOW cache_batch.test_point_hits;

-- entries that are not in the tree yet, too
INSERT INTO cancelled SELECT -i FROM generate_series(1, 10) i;
SET cache_batch.test_points = 'scan-leaf-read=cancel:1';
SELECT count(*) FROM cancelled WHERE k > -5;
SHOW cache_batch.test_point_hits;

SET cache_batch.test_points = '';
SELECT count(*) FROM cancelled WHERE k > -5;
DROP TABLE cancelled;

-- from one value of the first column to the next, where only the second one has a
-- condition: not through all leaves
CREATE TABLE cancelled (a int, k int);
INSERT INTO cancelled SELECT i % 10, i FROM generate_series(1, 20000) i;
CREATE INDEX cancelled_ak ON cancelled USING cachebatch (a, k) WITH (pack_leaves = off, fillfactor = 10);
SET enable_bitmapscan = off;
SET enable_indexonlyscan = on;
SET cache_batch.test_points = 'scan-leaf-read=count';
SELECT * FROM cancelled WHERE k BETWEEN 10003 AND 10005 ORDER BY a;
SELECT split_part(current_setting('cache_batch.test_point_hits'), ':', 2)::int < 60 AS few_leaves;
SET cache_batch.test_points = 'scan-leaf-read=count';
SELECT * FROM cancelled WHERE k BETWEEN 10003 AND 10005 ORDER BY a DESC;
SELECT split_part(current_setting('cache_batch.test_point_hits'), ':', 2)::int < 60 AS few_leaves;
SET cache_batch.test_points = '';
DROP TABLE cancelled;

SET enable_indexscan = on;
-- one group is left at once; small ones are read through, not leapt over one by one
CREATE TABLE cancelled (a int, k int);
INSERT INTO cancelled SELECT 0, i FROM generate_series(0, 999) i;
INSERT INTO cancelled SELECT i, k FROM generate_series(1, 10000) i, unnest('{1,9999}'::int[]) k;
CREATE INDEX cancelled_ak ON cancelled USING cachebatch (a, k) WITH (pack_leaves = off, fillfactor = 10);
SET cache_batch.test_points = 'scan-leaf-read=count';
SELECT * FROM cancelled WHERE k = 5000 ORDER BY a;
SELECT split_part(current_setting('cache_batch.test_point_hits'), ':', 2)::int < 2000 AS few_leaves;
SET cache_batch.test_points = 'scan-leaf-read=count';
SELECT * FROM cancelled WHERE k = 5000 ORDER BY a DESC;
SELECT split_part(current_setting('cache_batch.test_point_hits'), ':', 2)::int < 2000 AS few_leaves;
SET cache_batch.test_points = '';
DROP TABLE cancelled;

-- chunks are left out by their filters also for a value of another integer type
CREATE TABLE cancelled (k int);
INSERT INTO cancelled SELECT 2 * i FROM generate_series(1, 20000) i;
CREATE INDEX cancelled_k ON cancelled USING cachebatch (k);
INSERT INTO cancelled SELECT 4000 * i FROM generate_series(1, 10) i;
SET cache_batch.test_points = 'view-filtered=count';
SELECT count(*) FROM cancelled WHERE k = 51::int8;
SELECT split_part(current_setting('cache_batch.test_point_hits'), ':', 2)::int > 0 AS filtered;
SET cache_batch.test_points = '';
DROP TABLE cancelled;
