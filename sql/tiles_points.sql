-- Tiles: answers from the second level of range buffers
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET cache_batch.test_spill = on;
SET cache_batch.test_run_min = 1;
SET cache_batch.test_tiles = 4;
SET cache_batch.test_share = 1;

CREATE TABLE tiles (k int, n int) WITH (autovacuum_enabled = off);
INSERT INTO tiles SELECT i * 10, i FROM generate_series(1, 20000) i;
CREATE INDEX tiles_k ON tiles USING cachebatch (k) WITH (spill_threshold = 0, fillfactor = 10);
SELECT count(*) FROM cache_batch_tiles('tiles_k');

-- the first flush is a run, the others go to tiles with what is there
INSERT INTO tiles SELECT i * 1000 + 3, 3 FROM generate_series(1, 60) i;
SELECT cache_batch_flush('tiles_k');
SELECT count(*) FROM cache_batch_tiles('tiles_k');
INSERT INTO tiles SELECT i * 1000 + 2, 2 FROM generate_series(1, 60) i;
SELECT cache_batch_flush('tiles_k');
SELECT sum(tiles) > 3 AS tiles, sum(runs) > 1 AS runs, sum(entries), sum(pages) > sum(runs) AS pages FROM cache_batch_tiles('tiles_k');
INSERT INTO tiles SELECT i * 1000 + 5, 5 FROM generate_series(3, 60, 3) i;
INSERT INTO tiles SELECT 30000, i FROM generate_series(1, 20) i;
SELECT cache_batch_flush('tiles_k');
INSERT INTO tiles SELECT i * 1000 + 6, 6 FROM generate_series(3, 60, 3) i;
SELECT cache_batch_flush('tiles_k');
SELECT sum(entries) FROM cache_batch_tiles('tiles_k');
SELECT cache_batch_verify('tiles_k', true);

-- a run, and entries that are not flushed yet
SET cache_batch.test_tiles = 0;
INSERT INTO tiles SELECT i * 1000 + 7, 7 FROM generate_series(3, 60, 3) i;
SELECT cache_batch_flush('tiles_k');
INSERT INTO tiles SELECT i * 1000 + 4, 4 FROM generate_series(1, 60, 2) i;
SELECT sum(runs) > 0 AS runs FROM cache_batch_ranges('tiles_k');
ANALYZE tiles;

EXPLAIN (COSTS OFF) SELECT k FROM tiles WHERE k BETWEEN 2995 AND 5005 AND k % 10 > 0 ORDER BY k;
SELECT k FROM tiles WHERE k BETWEEN 2995 AND 5005 AND k % 10 > 0 ORDER BY k;
SELECT k FROM tiles WHERE k BETWEEN 2995 AND 5005 AND k % 10 > 0 ORDER BY k DESC;
SELECT count(*), sum(k::bigint) FROM (SELECT k FROM tiles WHERE k > 0 ORDER BY k) s;
SELECT count(*), sum(k::bigint) FROM (SELECT k FROM tiles WHERE k > 0 ORDER BY k DESC) s;
SELECT k, n FROM tiles WHERE k = 3002;
SELECT k, n FROM tiles WHERE k = 3008;
SELECT k, n FROM tiles WHERE k = 3002::bigint;
SELECT count(*) FROM tiles WHERE k = 30000;
SELECT k, n FROM tiles WHERE k = ANY (ARRAY[3002, 3004, 3005, 3006, 59002, 1, 90000, 30003]) ORDER BY k;
SELECT min(k), max(k) FROM tiles WHERE k % 10 = 3;

-- a cursor that goes to and fro
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT k FROM tiles WHERE k BETWEEN 2995 AND 4005 AND k % 10 > 0 ORDER BY k;
FETCH 4 FROM c;
FETCH BACKWARD 2 FROM c;
FETCH ALL FROM c;
FETCH BACKWARD 3 FROM c;
COMMIT;

-- what the pages are
SELECT type, flags, level FROM (SELECT DISTINCT p.type, p.flags, p.level FROM cache_batch_tiles('tiles_k') t, cache_batch_page('tiles_k', t.block) p
	UNION SELECT DISTINCT p.type, p.flags, p.level FROM cache_batch_ranges('tiles_k') t, cache_batch_page('tiles_k', t.block) p) s ORDER BY 1, 2;
SELECT count(*) > 1 AS roots FROM cache_batch_tiles('tiles_k') t, cache_batch_page_items('tiles_k', t.block) i,
	cache_batch_page('tiles_k', i.child) p WHERE p.type = 'run_root';
SELECT version FROM cache_batch_metapage('tiles_k');

-- more than a tile's run can hold goes to the leaves
SET cache_batch.test_tiles = 100000;
INSERT INTO tiles SELECT i * 10 + 8, 8 FROM generate_series(1, 20000) i;
SELECT cache_batch_flush('tiles_k');
SELECT sum(entries) < 20000 AS less FROM cache_batch_tiles('tiles_k');
SELECT cache_batch_verify('tiles_k', true);
SELECT count(*), sum(k::bigint) FROM (SELECT k FROM tiles WHERE k > 0 ORDER BY k) s;

-- VACUUM leaves none, nor does a flush of all
INSERT INTO tiles SELECT i * 1000 + 9, 9 FROM generate_series(1, 60) i;
SET cache_batch.test_tiles = 0;
SELECT cache_batch_flush('tiles_k');
SET cache_batch.test_tiles = 4;
INSERT INTO tiles SELECT i * 1000 + 1, 1 FROM generate_series(1, 60) i;
SELECT cache_batch_flush('tiles_k');
SELECT sum(entries) > 0 AS entries FROM cache_batch_tiles('tiles_k');
DELETE FROM tiles WHERE n = 9;
VACUUM (INDEX_CLEANUP ON) tiles;
SELECT sum(runs), sum(entries), sum(pages) FROM cache_batch_tiles('tiles_k');
SELECT cache_batch_verify('tiles_k', true);
INSERT INTO tiles SELECT i * 1000 + 9, 9 FROM generate_series(1, 60) i;
SET cache_batch.test_tiles = 0;
SELECT cache_batch_flush('tiles_k');
SET cache_batch.test_tiles = 4;
INSERT INTO tiles SELECT i * 1000 + 1, 1 FROM generate_series(1, 60) i;
SELECT cache_batch_flush('tiles_k');
SELECT sum(entries) > 0 AS entries FROM cache_batch_tiles('tiles_k');
RESET cache_batch.test_spill;
SELECT cache_batch_flush('tiles_k');
SELECT sum(runs), sum(entries), sum(pages) FROM cache_batch_tiles('tiles_k');
SELECT cache_batch_verify('tiles_k', true);
SELECT count(*), sum(k::bigint) FROM (SELECT k FROM tiles WHERE k > 0 ORDER BY k) s;

-- a leaf that has taken over what lies in the tiles on its left
SET cache_batch.test_spill = on;
SET cache_batch.test_tiles = 1;
DELETE FROM tiles WHERE k BETWEEN 50000 AND 100000;
VACUUM (INDEX_CLEANUP ON) tiles;
INSERT INTO tiles SELECT i * 100 + 3, 3 FROM generate_series(495, 1005, 60) i;
SELECT cache_batch_flush('tiles_k');
INSERT INTO tiles SELECT i * 100 + 4, 4 FROM generate_series(495, 1005, 60) i;
SELECT cache_batch_flush('tiles_k');
SELECT sum(runs) > 1 AS runs, sum(entries) FROM cache_batch_tiles('tiles_k');
SELECT cache_batch_verify('tiles_k', true);
SELECT count(*), sum(k::bigint), min(k), max(k) FROM (SELECT k FROM tiles WHERE k BETWEEN 49000 AND 101000 AND k % 100 IN (3, 4) ORDER BY k) s;
SELECT count(*), sum(k::bigint), min(k), max(k) FROM (SELECT k FROM tiles WHERE k BETWEEN 49000 AND 101000 AND k % 100 IN (3, 4) ORDER BY k DESC) s;

-- long keys, of which a page of tiles has few, in both directions
SET cache_batch.test_spill = on;
SET cache_batch.test_tiles = 1;
CREATE TABLE tiles_long (k text COLLATE "C", n int) WITH (autovacuum_enabled = off);
ALTER TABLE tiles_long ALTER k SET STORAGE PLAIN;
INSERT INTO tiles_long SELECT repeat(md5(i::text), 25) || i, i FROM generate_series(1, 400) i;
CREATE INDEX tiles_long_k ON tiles_long USING cachebatch (k) WITH (spill_threshold = 0);
DO $$
BEGIN
	FOR i IN 1 .. 6 LOOP
		INSERT INTO tiles_long SELECT repeat(md5(j::text), 25) || -j, -j FROM generate_series(i, 100, 6) j;
		PERFORM cache_batch_flush('tiles_long_k');
	END LOOP;
END $$;
SELECT count(*) > 3 AS pages, sum(runs) > 20 AS runs FROM cache_batch_tiles('tiles_long_k');
SELECT cache_batch_verify('tiles_long_k', true);
SELECT count(*), sum(n), md5(string_agg(k, '')) FROM (SELECT * FROM tiles_long WHERE k > '' ORDER BY k) s;
SET enable_sort = on;
SET enable_indexscan = off;
SET enable_seqscan = on;
SELECT count(*), sum(n), md5(string_agg(k, '')) FROM (SELECT * FROM tiles_long WHERE k > '' ORDER BY k) s;

-- an unlogged index has none
CREATE UNLOGGED TABLE tiles_un (k int, n int);
INSERT INTO tiles_un SELECT i * 10, i FROM generate_series(1, 20000) i;
CREATE INDEX tiles_un_k ON tiles_un USING cachebatch (k) WITH (spill_threshold = 0);
INSERT INTO tiles_un SELECT i * 1000 + 3, 3 FROM generate_series(1, 60) i;
SELECT cache_batch_flush('tiles_un_k');
SELECT sum(runs) > 0 AS runs FROM cache_batch_ranges('tiles_un_k');
INSERT INTO tiles_un SELECT i * 1000 + 2, 2 FROM generate_series(1, 60) i;
SELECT cache_batch_flush('tiles_un_k');
SELECT count(*) FROM cache_batch_tiles('tiles_un_k');
SELECT cache_batch_verify('tiles_un_k', true);

DROP TABLE tiles, tiles_long, tiles_un;
