-- Index builds and VACUUM with parallel workers
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET max_parallel_maintenance_workers = 2;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET max_parallel_workers_per_gather = 0;

CREATE TABLE parallel_build (k int, t text, u int) WITH (autovacuum_enabled = off, parallel_workers = 2);
INSERT INTO parallel_build SELECT i * 7919 % 20011, 'x' || i % 5000, i FROM generate_series(1, 20000) i;
INSERT INTO parallel_build (u) SELECT i FROM generate_series(20001, 20100) i;
DELETE FROM parallel_build WHERE k % 10 = 3;

-- several processes make entries: each says which one it is
CREATE FUNCTION parallel_who(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
	PERFORM pg_sleep(0.0005);
	RETURN pg_backend_pid();
END $$;
CREATE INDEX parallel_build_who ON parallel_build USING cachebatch (parallel_who(u), u) WHERE u % 10 = 0;
VACUUM ANALYZE parallel_build;
SELECT count(*), count(DISTINCT who) > 1 AS parallel FROM (SELECT parallel_who(u) AS who FROM parallel_build WHERE u % 10 = 0 OFFSET 0) s;
DROP INDEX parallel_build_who;
-- a function that workers may not call
ALTER FUNCTION parallel_who PARALLEL RESTRICTED;
CREATE INDEX parallel_build_who ON parallel_build USING cachebatch (parallel_who(u), u) WHERE u % 100 = 0;
SELECT count(*), count(DISTINCT who) > 1 AS parallel FROM (SELECT parallel_who(u) AS who FROM parallel_build WHERE u % 100 = 0 OFFSET 0) s;
DROP INDEX parallel_build_who;

-- of all kinds
CREATE INDEX parallel_build_k ON parallel_build USING cachebatch (k);
CREATE INDEX parallel_build_tk ON parallel_build USING cachebatch (lower(t) DESC NULLS LAST, k) INCLUDE (u) WITH (pack_leaves = off);
CREATE INDEX CONCURRENTLY parallel_build_part ON parallel_build USING cachebatch (u) WHERE k > 100;
INSERT INTO parallel_build SELECT 5, 'late', 30000 + i FROM generate_series(1, 10) i;
REINDEX TABLE parallel_build;
REINDEX INDEX CONCURRENTLY parallel_build_tk;
CREATE UNLOGGED TABLE parallel_unlogged WITH (parallel_workers = 2) AS SELECT * FROM parallel_build;
CREATE INDEX parallel_unlogged_k ON parallel_unlogged USING cachebatch (k);
CREATE TEMP TABLE parallel_temp AS SELECT * FROM parallel_build;
ALTER TABLE parallel_temp SET (parallel_workers = 2);
CREATE INDEX parallel_temp_k ON parallel_temp USING cachebatch (k);
SELECT cache_batch_verify(i, true) FROM unnest('{parallel_build_k,parallel_build_tk,parallel_build_part,parallel_unlogged_k,parallel_temp_k}'::regclass[]) i;
SELECT indexrelid::regclass, reltuples FROM pg_index JOIN pg_class ON oid = indexrelid
WHERE indrelid = 'parallel_build'::regclass ORDER BY indexrelid::regclass::text;
SELECT count(*), sum(k), sum(u) FROM parallel_build WHERE k >= 0;

-- in the transaction that fills the table; rows of it that are dead, but not to all
BEGIN;
CREATE TABLE parallel_new (k int) WITH (parallel_workers = 2);
INSERT INTO parallel_new SELECT generate_series(1, 5000);
UPDATE parallel_new SET k = k + 1;
CREATE INDEX parallel_new_k ON parallel_new USING cachebatch (k);
SELECT cache_batch_verify('parallel_new_k', true);
SELECT count(*), sum(k) FROM parallel_new WHERE k > 0;
COMMIT;

-- unique, from version 18 on, with entries of rows that are dead, but not to all (A21);
-- equal keys in parts of two processes, and in one
CREATE TABLE parallel_dead (k int) WITH (autovacuum_enabled = off, parallel_workers = 2);
INSERT INTO parallel_dead SELECT generate_series(1, 5000);
CREATE FUNCTION parallel_unique() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	entries text;
BEGIN
	IF current_setting('server_version_num')::int < 180000 THEN
		RETURN QUERY VALUES ('built'), ('with dead rows: t'), ('could not create unique index "parallel_build_t"'),
			('could not create unique index "parallel_build_kn"');
		RETURN;
	END IF;
	CREATE UNIQUE INDEX parallel_build_u ON parallel_build USING cachebatch (u);
	PERFORM cache_batch_verify('parallel_build_u', true);
	RETURN NEXT 'built';
	UPDATE parallel_dead SET k = k;
	CREATE UNIQUE INDEX parallel_dead_k ON parallel_dead USING cachebatch (k);
	PERFORM cache_batch_verify('parallel_dead_k', true);
	SELECT 'with dead rows: ' || left((count(DISTINCT htid) = 10000)::text, 1) INTO entries
	FROM generate_series(1, pg_relation_size('parallel_dead_k') / 8192 - 1) b, cache_batch_page_items('parallel_dead_k', b)
	WHERE child IS NULL AND htid IS NOT NULL;
	RETURN NEXT entries;
	BEGIN
		CREATE UNIQUE INDEX parallel_build_t ON parallel_build USING cachebatch (t);
	EXCEPTION WHEN unique_violation THEN
		RETURN NEXT SQLERRM;
	END;
	BEGIN
		CREATE UNIQUE INDEX parallel_build_kn ON parallel_build USING cachebatch (nullif(u, u / 20001 * u)) NULLS NOT DISTINCT;
	EXCEPTION WHEN unique_violation THEN
		RETURN NEXT SQLERRM;
	END;
END $$;
SELECT parallel_unique();

-- what cannot be indexed
CREATE FUNCTION parallel_error(command text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE command;
	RETURN 'no error';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLERRM;
END $$;
SELECT parallel_error('CREATE INDEX parallel_build_e ON parallel_build USING cachebatch ((1 / (u - 777)))');
CREATE TABLE parallel_long WITH (parallel_workers = 2) AS SELECT string_agg(md5(i::text), '') AS t FROM generate_series(1, 200) i;
SELECT regexp_replace(parallel_error('CREATE INDEX parallel_build_e ON parallel_long USING cachebatch (t)'), '\d+', 'N', 'g');
SELECT count(*) FROM pg_class WHERE relname = 'parallel_build_e';

-- VACUUM has a worker for each index: dead rows of the tree, and of buckets and journal
INSERT INTO parallel_build SELECT i * 13 % 20011, 'x' || i % 5000, 40000 + i FROM generate_series(1, 3000) i;
DELETE FROM parallel_build WHERE u % 3 = 0;
VACUUM (PARALLEL 2, INDEX_CLEANUP ON) parallel_build;
SELECT cache_batch_verify(i, true) FROM unnest('{parallel_build_k,parallel_build_tk,parallel_build_part}'::regclass[]) i;
INSERT INTO parallel_build SELECT i, 'reused', 50000 + i FROM generate_series(1, 3000) i;
SELECT count(*), sum(k), sum(u) FROM parallel_build WHERE k >= 0;
SET enable_indexscan = off;
SET enable_indexonlyscan = off;
SET enable_seqscan = on;
SELECT count(*), sum(k), sum(u) FROM parallel_build WHERE k >= 0;
SELECT cache_batch_verify(i, true) FROM unnest('{parallel_build_k,parallel_build_tk,parallel_build_part}'::regclass[]) i;

RESET ALL;
DROP TABLE parallel_long, parallel_dead, parallel_build, parallel_unlogged, parallel_temp, parallel_new;
DROP FUNCTION parallel_who, parallel_unique, parallel_error;
