-- Items that scans find dead are marked, in leaves only: not in journal and buckets
CREATE TABLE marks (k int, v int) WITH (autovacuum_enabled = off);
INSERT INTO marks SELECT i, i FROM generate_series(1, 2000) i;
CREATE INDEX marks_k ON marks USING cachebatch (k);
INSERT INTO marks SELECT 777, i FROM generate_series(1, 500) i;
SELECT cache_batch_flush('marks_k') IS NOT NULL AS flushed;
INSERT INTO marks SELECT 777, i FROM generate_series(501, 510) i;

CREATE FUNCTION marks_dead() RETURNS bigint LANGUAGE sql AS $$
	SELECT sum(p.dead_items) FROM generate_series(1, pg_relation_size('marks_k') / 8192 - 1) b,
		cache_batch_page('marks_k', b) p
	WHERE p.type = 'leaf'
$$;

SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
SELECT count(*) FROM marks WHERE k = 777;
DELETE FROM marks WHERE k = 777;
SELECT marks_dead();
SELECT count(*) FROM marks WHERE k = 777;
SELECT count(*) FROM marks WHERE k = 777;
SELECT marks_dead();

DROP TABLE marks;
DROP FUNCTION marks_dead;
