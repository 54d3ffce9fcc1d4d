-- Index-only scans ask the heap about entries of range buffers only where the
-- visibility map does not tell; who packs a range of keys brings what waits for it
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET cache_batch.test_spill = on;
SET cache_batch.test_run_min = 1;
CREATE TABLE ios (k int, filler text) WITH (autovacuum_enabled = off, fillfactor = 10);
INSERT INTO ios SELECT i * 10 FROM generate_series(1, 30000) i;
CREATE INDEX ios_k ON ios USING cachebatch (k) WITH (spill_threshold = 0);
VACUUM ios;
CREATE FUNCTION ios_waiting() RETURNS bigint LANGUAGE sql AS
$$ SELECT coalesce(sum(entries), 0)::bigint FROM cache_batch_ranges('ios_k') $$;
CREATE FUNCTION ios_pages() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT count(k) FROM ios WHERE k > 0' INTO plan;
	RETURN (plan->0->'Plan'->>'Shared Hit Blocks')::bigint + (plan->0->'Plan'->>'Shared Read Blocks')::bigint;
END $$;

-- a row of those takes a page
INSERT INTO ios SELECT i * 990 + 1, repeat('x', 1000) FROM generate_series(1, 300) i;
SELECT cache_batch_flush('ios_k');
SELECT ios_waiting();
EXPLAIN (COSTS OFF) SELECT count(k) FROM ios WHERE k > 0;
SELECT ios_pages() >= 300 AS each_of_them;
VACUUM ios;
SELECT ios_waiting(), ios_pages() < 200 AS none_of_them;
SELECT count(k), sum(k::bigint), sum(k % 10) FROM ios WHERE k > 0;

-- rows that have gone, with their entries and without
DELETE FROM ios WHERE k % 4 = 1;
SELECT ios_waiting(), ios_pages() BETWEEN 150 AND 299 AS some_of_them;
SELECT count(k), sum(k::bigint), sum(k % 10) FROM ios WHERE k > 0;
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) ios;
SELECT ios_waiting(), ios_pages() < 200 AS none_of_them;
SELECT count(k), sum(k::bigint), sum(k % 10) FROM ios WHERE k > 0;

-- what waits for a part of the keys, for others, and for all
INSERT INTO ios SELECT i * 490 + 2 FROM generate_series(1, 300) i;
SELECT cache_batch_flush('ios_k');
INSERT INTO ios SELECT i * 490 + 2 FROM generate_series(301, 600) i;
SELECT cache_batch_flush('ios_k');
SELECT count(*) > 3 AS ranges, sum(entries) FROM cache_batch_ranges('ios_k');
SELECT cache_batch_compact('ios_k', 290000, NULL) >= 0 AS compacted, ios_waiting() BETWEEN 1 AND 599 AS others;
SELECT ios_waiting() AS others \gset
SELECT cache_batch_compact('ios_k', NULL, 1000) >= 0 AS compacted, ios_waiting() BETWEEN 1 AND :others - 1 AS fewer;
SELECT cache_batch_compact('ios_k') >= 0 AS compacted, ios_waiting();
SELECT cache_batch_verify('ios_k', true);
SELECT count(k), sum(k::bigint), sum(k % 10) FROM ios WHERE k > 0;
DROP TABLE ios;
DROP FUNCTION ios_waiting, ios_pages;
