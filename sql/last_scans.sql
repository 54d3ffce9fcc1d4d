-- What scans took from each tier: cache_batch_last_scans(), and EXPLAIN from
-- version 18 on (sql/explain.sql).
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE TABLE last_a (id int, k int) WITH (autovacuum_enabled = off);
INSERT INTO last_a SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX last_a_k ON last_a USING cachebatch (k);
CREATE FUNCTION last_scan(n int DEFAULT 1) RETURNS SETOF record LANGUAGE sql AS $$
	SELECT index, leaves_read > 0 AS leaves, cached, from_leaves, from_runs, from_buckets,
		from_journal
	FROM cache_batch_last_scans() WHERE number = n $$;

-- leaves alone
SELECT count(*) FROM last_a WHERE k BETWEEN 101 AND 110;
SELECT * FROM last_scan() AS (index regclass, leaves boolean, cached bigint,
	from_leaves bigint, from_runs bigint, from_buckets bigint, from_journal bigint);

-- buckets, too
INSERT INTO last_a SELECT 5000 + i, 100 + i FROM generate_series(1, 5) i;
SELECT count(*) FROM last_a WHERE k BETWEEN 101 AND 110;
SELECT * FROM last_scan() AS (index regclass, leaves boolean, cached bigint,
	from_leaves bigint, from_runs bigint, from_buckets bigint, from_journal bigint);

-- what is not wanted does not count; a scan of which nothing is does
SELECT count(*) FROM last_a WHERE k BETWEEN 101 AND 110 AND k % 2 = 0;
SELECT * FROM last_scan() AS (index regclass, leaves boolean, cached bigint,
	from_leaves bigint, from_runs bigint, from_buckets bigint, from_journal bigint);
SELECT count(*) FROM last_a WHERE k = -1;
SELECT * FROM last_scan() AS (index regclass, leaves boolean, cached bigint,
	from_leaves bigint, from_runs bigint, from_buckets bigint, from_journal bigint);

-- the entry cache
SELECT cache_batch_flush('last_a_k');
SELECT id FROM last_a WHERE k = 500;
SELECT id FROM last_a WHERE k = 500;
SELECT * FROM last_scan() AS (index regclass, leaves boolean, cached bigint,
	from_leaves bigint, from_runs bigint, from_buckets bigint, from_journal bigint);

-- a scan that is started again counts all its times
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_material = off;
SET enable_memoize = off;
SELECT count(*) FROM (VALUES (1), (2), (3)) v (i), last_a WHERE k = i;
SELECT * FROM last_scan() AS (index regclass, leaves boolean, cached bigint,
	from_leaves bigint, from_runs bigint, from_buckets bigint, from_journal bigint);
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
RESET enable_memoize;

-- bitmaps
SET enable_bitmapscan = on;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SELECT count(*) FROM last_a WHERE k BETWEEN 101 AND 110;
SELECT * FROM last_scan() AS (index regclass, leaves boolean, cached bigint,
	from_leaves bigint, from_runs bigint, from_buckets bigint, from_journal bigint);
RESET enable_indexscan;
RESET enable_indexonlyscan;

-- the last 16, and no more; not those of the planner, nor of other access methods
CREATE TABLE last_b (k int);
CREATE INDEX last_b_k ON last_b (k);
SET enable_bitmapscan = off;
DO $$ BEGIN
	FOR i IN 1 .. 20 LOOP PERFORM FROM last_a WHERE k = i; END LOOP;
	PERFORM FROM last_b WHERE k = 1;
END $$;
SELECT count(*), max(number), min(index::text), max(index::text), max(windows)
FROM cache_batch_last_scans();
EXPLAIN (COSTS OFF) SELECT FROM last_a WHERE k > 990;
SELECT count(*), sum(from_leaves + cached) FROM cache_batch_last_scans();

DROP TABLE last_a, last_b;
DROP FUNCTION last_scan;
