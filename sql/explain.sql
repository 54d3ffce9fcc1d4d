-- EXPLAIN (ANALYZE, VERBOSE) tells what an index scan took from each tier, from
-- version 18 on.
SELECT current_setting('server_version_num')::int < 180000 AS old \gset
\if :old
\quit
\endif
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET max_parallel_workers_per_gather = 0;
CREATE FUNCTION ex_plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE 'EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF) ' || query;
END $$;
CREATE TABLE ex_a (id int, k int) WITH (autovacuum_enabled = off);
INSERT INTO ex_a SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX ex_a_k ON ex_a USING cachebatch (k);
INSERT INTO ex_a SELECT 5000 + i, 100 + i FROM generate_series(1, 5) i;
VACUUM ANALYZE ex_a;
INSERT INTO ex_a SELECT 6000 + i, 100 + i FROM generate_series(1, 7) i;

EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF)
SELECT id FROM ex_a WHERE k BETWEEN 101 AND 110;
-- others' snapshots may keep VACUUM from saying what is visible to all
SELECT line FROM ex_plan('SELECT k FROM ex_a WHERE k BETWEEN 101 AND 110') line
WHERE line !~ 'Heap Fetches';
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF)
SELECT id FROM ex_a WHERE k BETWEEN 101 AND 110;
RESET enable_indexscan;
RESET enable_indexonlyscan;
SET enable_bitmapscan = off;

-- other formats have each figure
CREATE FUNCTION ex_json(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE j json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, VERBOSE, FORMAT json) ' || query INTO j;
	RETURN NEXT j -> 0 -> 'Plan' ->> 'Index Reads';
	RETURN NEXT j -> 0 -> 'Plan' ->> 'Index Entries';
END $$;
SELECT ex_json('SELECT id FROM ex_a WHERE k BETWEEN 101 AND 110');

-- not without ANALYZE or VERBOSE, not for other access methods, nor where the scan
-- was not begun
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF)
SELECT id FROM ex_a WHERE k BETWEEN 101 AND 110;
EXPLAIN (VERBOSE, COSTS OFF) SELECT id FROM ex_a WHERE k BETWEEN 101 AND 110;
CREATE TABLE ex_b (k int);
CREATE INDEX ex_b_k ON ex_b (k);
EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF)
SELECT FROM ex_b WHERE k = 1;
EXPLAIN (ANALYZE, VERBOSE, COSTS OFF, TIMING OFF, SUMMARY OFF, BUFFERS OFF)
SELECT id FROM ex_a WHERE k BETWEEN 101 AND 110 AND 1 > 2 + length(current_user);

-- of a parallel scan it is the leader's part
SET debug_parallel_query = off;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_index_scan_size = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SELECT regexp_replace(line, '=.*| \(actual.*', '') AS line
FROM ex_plan('SELECT count(id) FROM ex_a WHERE k > 0') line WHERE line ~ 'Parallel Index|Leader';

DROP TABLE ex_a, ex_b;
DROP FUNCTION ex_json, ex_plan;
