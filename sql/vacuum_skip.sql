-- VACUUM decodes packed leaves only where rows can be dead
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET enable_seqscan = off;
SET enable_bitmapscan = off;

-- 18 rows a page, so that 64 entries, which the codec packs together, are of four
CREATE TABLE sk (id int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO sk SELECT i, repeat('x', 400) FROM generate_series(1, 8000) i;
CREATE INDEX sk_id ON sk USING cachebatch (id) WITH (fillfactor = 10);
CREATE INDEX sk_random ON sk USING cachebatch (hashint4(id)) WITH (fillfactor = 10);
CREATE INDEX sk_plain ON sk USING cachebatch (abs(id)) WITH (pack_leaves = off);
VACUUM sk;

CREATE TABLE sk_gone (id int, place tid);
CREATE TABLE sk_before (index name, skipped bigint);
INSERT INTO sk_before SELECT indexrelname, vacuum_skipped FROM cache_batch_stat_indexes WHERE relname = 'sk';

-- leaves, and those that were skipped since the last time
CREATE FUNCTION sk_skipped(OUT index name, OUT leaves bigint, OUT skipped bigint) RETURNS SETOF record LANGUAGE sql AS $$
	WITH now AS (
		UPDATE sk_before b SET skipped = s.vacuum_skipped FROM cache_batch_stat_indexes s, sk_before o
		WHERE s.indexrelname = b.index AND o.index = b.index
		RETURNING b.index, s.indexrelid, s.vacuum_skipped - o.skipped AS skipped)
	SELECT now.index, count(*), now.skipped
	FROM now, generate_series(1, pg_relation_size(indexrelid) / 8192 - 1) b, cache_batch_page(indexrelid, b) p
	WHERE p.type = 'leaf' GROUP BY 1, 3 ORDER BY 1
$$;
-- other rows take the places of those that are gone: no entry may lead to them
CREATE FUNCTION sk_sound(OUT reused bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO sk SELECT 100000 + id, repeat('y', 400) FROM sk_gone;
	PERFORM cache_batch_flush(i) FROM unnest('{sk_id,sk_random,sk_plain}'::regclass[]) i;
	reused := (SELECT count(*) FROM sk_gone g JOIN sk ON sk.ctid = g.place);
	wrong := (SELECT count(*) FROM sk_gone g, LATERAL (SELECT 1 FROM sk WHERE sk.id = g.id OFFSET 0) x)
		+ (SELECT count(*) FROM sk_gone g, LATERAL (SELECT 1 FROM sk WHERE hashint4(sk.id) = hashint4(g.id) OFFSET 0) x)
		+ (SELECT count(*) FROM sk_gone g, LATERAL (SELECT 1 FROM sk WHERE abs(sk.id) = g.id OFFSET 0) x);
	PERFORM cache_batch_verify(i, true) FROM unnest('{sk_id,sk_random,sk_plain}'::regclass[]) i;
	TRUNCATE sk_gone;
END $$;

-- rows in the middle of the table: two leaves at most
WITH gone AS (DELETE FROM sk WHERE id BETWEEN 4001 AND 4100 RETURNING id, ctid) INSERT INTO sk_gone SELECT * FROM gone;
VACUUM (INDEX_CLEANUP ON) sk;
SELECT index, leaves - skipped BETWEEN 1 AND 2 AS two, skipped = 0 AS none FROM sk_skipped();
SELECT reused > 50 AS reused, wrong FROM sk_sound();

-- at both ends: leaves between them are skipped
WITH gone AS (DELETE FROM sk WHERE id < 10 OR id BETWEEN 7990 AND 8000 RETURNING id, ctid) INSERT INTO sk_gone SELECT * FROM gone;
VACUUM (INDEX_CLEANUP ON) sk;
SELECT index, skipped > leaves / 2 AS most, skipped = 0 AS none FROM sk_skipped();
SELECT reused > 10 AS reused, wrong FROM sk_sound();

-- a row of each fourth page, which is the first, middle or last one of 64 entries'
WITH gone AS (DELETE FROM sk WHERE id % 71 = 0 RETURNING id, ctid) INSERT INTO sk_gone SELECT * FROM gone;
VACUUM (INDEX_CLEANUP ON) sk;
SELECT index, skipped FROM sk_skipped();
SELECT reused > 50 AS reused, wrong FROM sk_sound();

-- entries that a leaf has beside its packed ones
INSERT INTO sk SELECT i * 71, 'late' || repeat('z', 400) FROM generate_series(1, 110) i;
SELECT cache_batch_flush(i) FROM unnest('{sk_id,sk_random,sk_plain}'::regclass[]) i;
WITH gone AS (DELETE FROM sk WHERE pad LIKE 'late%' RETURNING id, ctid) INSERT INTO sk_gone SELECT * FROM gone;
VACUUM (INDEX_CLEANUP ON) sk;
SELECT index, skipped > 0 AS some FROM sk_skipped();
SELECT reused > 50 AS reused, wrong FROM sk_sound();

-- in parallel
SET min_parallel_index_scan_size = 0;
WITH gone AS (DELETE FROM sk WHERE id BETWEEN 2001 AND 2100 RETURNING id, ctid) INSERT INTO sk_gone SELECT * FROM gone;
VACUUM (INDEX_CLEANUP ON, PARALLEL 2) sk;
SELECT index, skipped > leaves / 2 AS most, skipped = 0 AS none FROM sk_skipped();
SELECT reused > 50 AS reused, wrong FROM sk_sound();
RESET min_parallel_index_scan_size;

-- who asks for all entries gets them: no row is entered a second time
CREATE INDEX CONCURRENTLY sk_new ON sk USING cachebatch (id, pad);
REINDEX INDEX CONCURRENTLY sk_id;
SELECT indexrelname, staged, vacuum_skipped FROM cache_batch_stat_indexes
WHERE indexrelname IN ('sk_new', 'sk_id') ORDER BY 1;
SELECT cache_batch_verify(i, true) FROM unnest('{sk_new,sk_id}'::regclass[]) i;

DROP FUNCTION sk_skipped(), sk_sound();
DROP TABLE sk, sk_gone, sk_before;
