-- A bitmap scan can be cancelled from leaf to leaf: needs a build with TESTPOINTS=1.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

CREATE TABLE cancelled (k int);
INSERT INTO cancelled SELECT generate_series(1, 3000);
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
WHERE k = ANY (ARRAY[-1, -2, -3, -4, -5, -6, 4000, 5000, 6000, 7000]) AND k IS NOT NULL;
SHOW cache_batch.test_point_hits;

-- entries that are not in the tree yet, too
INSERT INTO cancelled SELECT -i FROM generate_series(1, 10) i;
SET cache_batch.test_points = 'scan-leaf-read=cancel:1';
SELECT count(*) FROM cancelled WHERE k > -5;
SHOW cache_batch.test_point_hits;

SET cache_batch.test_points = '';
SELECT count(*) FROM cancelled WHERE k > -5;
DROP TABLE cancelled;
