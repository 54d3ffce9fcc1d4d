-- Parallel index scans of range buffers, and of one entry to a window at an end (I14).
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
SET cache_batch.test_spill = on;
SET cache_batch.test_run_min = 1;

CREATE TABLE parallel_runs (k int, n int) WITH (autovacuum_enabled = off, parallel_workers = 2);
INSERT INTO parallel_runs SELECT i * 10, i FROM generate_series(1, 10000) i;
CREATE INDEX parallel_runs_k ON parallel_runs USING cachebatch (k) WITH (spill_threshold = 0);
INSERT INTO parallel_runs SELECT i * 100 + 3, 3 FROM generate_series(1, 900) i;
SELECT cache_batch_flush('parallel_runs_k');
INSERT INTO parallel_runs SELECT 30000, i FROM generate_series(1, 2000) i;
INSERT INTO parallel_runs SELECT i * 77 + 2, 2 FROM generate_series(1, 900) i;
SELECT cache_batch_flush('parallel_runs_k');
INSERT INTO parallel_runs SELECT i * 100 + 4, 4 FROM generate_series(1, 900, 2) i;
SELECT sum(runs) > 1 AS runs, sum(entries) > 2000 AS entries FROM cache_batch_ranges('parallel_runs_k');
ANALYZE parallel_runs;

EXPLAIN (COSTS OFF) SELECT count(*), sum(n) FROM parallel_runs WHERE k > 200;
SELECT count(*), sum(n) FROM parallel_runs WHERE k > 200;
SELECT count(*), sum(n) FROM parallel_runs WHERE k = 30000;
SELECT count(*), sum(n) FROM parallel_runs WHERE k IN (30000, 30003, 30007, 30010, 77 * 5 + 2, 90000, 100004);
SELECT count(*), sum(n), bool_and(ordered) FROM (SELECT n, k <= lag(k, 1, k) OVER () AS ordered
	FROM (SELECT k, n FROM parallel_runs WHERE k > 200 ORDER BY k DESC) o) s;
SET max_parallel_workers_per_gather = 0;
SET enable_indexscan = off;
SET enable_seqscan = on;
SELECT count(*), sum(n) FROM parallel_runs WHERE k > 200;
SELECT count(*), sum(n) FROM parallel_runs WHERE k = 30000;
SELECT count(*), sum(n) FROM parallel_runs WHERE k IN (30000, 30003, 30007, 30010, 77 * 5 + 2, 90000, 100004);
RESET ALL;
DROP TABLE parallel_runs;
