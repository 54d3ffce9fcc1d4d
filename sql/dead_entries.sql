-- Entries of rows that are dead to everyone make room at the leaf
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
CREATE TABLE ch (id int, n int, k bigint, s text, few int) WITH (autovacuum_enabled = off);
INSERT INTO ch SELECT i, i, hashint8extended(i, 1), md5(i::text), i % 20 FROM generate_series(1, 5000) i;
-- n is in an index, so that no update is HOT
CREATE INDEX ch_n ON ch USING cachebatch (n);
CREATE INDEX ch_k ON ch USING cachebatch (k);
CREATE INDEX ch_s ON ch USING cachebatch (s) WITH (pack_leaves = off);
CREATE INDEX ch_few ON ch USING cachebatch (few) INCLUDE (id);
CREATE FUNCTION ch_leaves(index regclass) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM generate_series(1, pg_relation_size(index) / 8192 - 1) b,
		cache_batch_page(index, b) p WHERE p.type = 'leaf' $$;
CREATE FUNCTION ch_dropped(index regclass) RETURNS bigint LANGUAGE sql AS $$
	SELECT dropped FROM cache_batch_stat_indexes WHERE indexrelid = index $$;
CREATE PROCEDURE ch_update(times int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		UPDATE ch SET n = n + 100000;
		COMMIT;
		PERFORM cache_batch_flush(x) FROM unnest('{ch_n,ch_k,ch_s,ch_few}'::regclass[]) x;
		COMMIT;
	END LOOP;
END $$;
CREATE TABLE ch_before AS SELECT i, ch_leaves(i) AS leaves
	FROM unnest('{ch_k,ch_s,ch_few}'::regclass[]) i;

-- eleven versions of each row; those of the last two statements are not dead yet
CALL ch_update(10);
SELECT i, ch_leaves(i) < 5 * leaves AS bounded, ch_dropped(i) > 30000 AS dropped FROM ch_before ORDER BY 1;
SELECT cache_batch_verify(i, true) FROM unnest('{ch_n,ch_k,ch_s,ch_few}'::regclass[]) i;
SET enable_seqscan = off; SET enable_bitmapscan = off;
SELECT count(*), sum(id), min(n), max(n) FROM ch WHERE k IS NOT NULL;
SELECT count(*), sum(id), min(n), max(n) FROM ch WHERE s > '';
SELECT count(*), sum(id), min(n), max(n) FROM ch WHERE few >= 0;

-- several versions that meet in a bucket: all but one are never in the tree
CREATE TABLE ch_mark AS SELECT ch_dropped('ch_k') AS dropped;
UPDATE ch SET n = n + 1;
UPDATE ch SET n = n + 1;
UPDATE ch SET n = n + 1;
SELECT cache_batch_flush('ch_k');
SELECT ch_dropped('ch_k') - dropped > 10000 AS dropped FROM ch_mark;
SELECT count(*), sum(id) FROM ch WHERE k IS NOT NULL;
SELECT cache_batch_verify('ch_k', true);

-- who inserts alone asks for nothing, though the keys were there before
CREATE TABLE ci (k int) WITH (autovacuum_enabled = off);
CREATE INDEX ci_k ON ci USING cachebatch (k);
INSERT INTO ci SELECT i % 1000 FROM generate_series(1, 5000) i;
DELETE FROM ci;
INSERT INTO ci SELECT i % 1000 FROM generate_series(1, 5000) i;
SELECT cache_batch_flush('ci_k');
SELECT ch_dropped('ci_k');

-- what a scan has found dead goes all the same
SELECT count(*) FROM ci WHERE k >= 0;
INSERT INTO ci SELECT i % 1000 FROM generate_series(1, 5000) i;
SELECT cache_batch_flush('ci_k');
SELECT ch_dropped('ci_k') > 2000 AS dropped;
SELECT count(*) FROM ci WHERE k >= 0;
SELECT cache_batch_verify('ci_k', true);

-- a leaf that loses all its entries is one that VACUUM can delete
CREATE TABLE ce (k int, pad text) WITH (autovacuum_enabled = off);
CREATE INDEX ce_k ON ce USING cachebatch (k, pad) WITH (pack_leaves = off);
INSERT INTO ce SELECT i, repeat('x', 400) FROM generate_series(1, 200) i;
SELECT cache_batch_flush('ce_k');
DELETE FROM ce WHERE k BETWEEN 50 AND 150;
SELECT count(*) FROM ce WHERE k BETWEEN 40 AND 160;
INSERT INTO ce SELECT 100, repeat('y', 400) FROM generate_series(1, 40) i;
SELECT cache_batch_flush('ce_k');
SELECT ch_dropped('ce_k') > 0 AS dropped;
SELECT cache_batch_verify('ce_k', true);
DELETE FROM ce WHERE k BETWEEN 50 AND 150;
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) ce;
SELECT cache_batch_verify('ce_k', true);
SELECT count(*) FROM ce WHERE k > 0;

-- temporary tables and indexes without journal have it, too
CREATE TEMP TABLE ct (n int, k int) WITH (autovacuum_enabled = off);
INSERT INTO ct SELECT i, i FROM generate_series(1, 2000) i;
CREATE INDEX ct_n ON ct USING cachebatch (n);
CREATE INDEX ct_k ON ct USING cachebatch (k);
UPDATE ct SET n = n + 10000;
UPDATE ct SET n = n + 10000;
UPDATE ct SET n = n + 10000;
UPDATE ct SET n = n + 10000;
SELECT ch_dropped('ct_k') > 3000 AS dropped;
SELECT count(*), sum(k) FROM ct WHERE k > 0;
DROP TABLE ch, ch_before, ch_mark, ci, ce, ct;
DROP FUNCTION ch_leaves, ch_dropped;
DROP PROCEDURE ch_update;
