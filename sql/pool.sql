-- Cache-buckets as the statistics show them: who has them, and since when
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

SELECT pool_size > 0 AS pool, pool_size = chunks * chunk_size AS cut_up,
	   chunks >= chunks_free AS free_chunks, buckets >= buckets_free AS free_buckets
FROM cache_batch_stat_pool;

-- which indexes get buckets when something is inserted
CREATE TABLE pool (a int) WITH (autovacuum_enabled = off);
CREATE INDEX pool_a ON pool USING cachebatch (a);
CREATE INDEX pool_direct ON pool USING cachebatch (a) WITH (buffered = off);
CREATE UNLOGGED TABLE pool_u (a int);
CREATE INDEX pool_u_a ON pool_u USING cachebatch (a);
CREATE TEMP TABLE pool_t (a int);
CREATE INDEX pool_t_a ON pool_t USING cachebatch (a);
SELECT indexrelname FROM cache_batch_stat_buckets WHERE relname LIKE 'pool%';
INSERT INTO pool SELECT generate_series(1, 10);
INSERT INTO pool_u SELECT generate_series(1, 10);
INSERT INTO pool_t SELECT generate_series(1, 10);
SELECT indexrelname, schemaname, buckets, entries <= 10 AS entries,
	   oldest_age < interval '1 hour' OR entries = 0 AS age, swept,
	   attached_at <= clock_timestamp() AS attached
FROM cache_batch_stat_buckets WHERE relname LIKE 'pool%' ORDER BY 1;
SELECT position, entries <= 10 AS entries, sorted_entries <= entries AS sorted
FROM cache_batch_bucket_list('pool_a');
SELECT * FROM cache_batch_bucket_list('pool_direct');
SELECT * FROM cache_batch_bucket_list('pool_t_a');
SELECT * FROM cache_batch_bucket_list('pool');
SELECT * FROM cache_batch_bucket_list(NULL);

-- not in the transaction that makes or rewrites it
BEGIN;
TRUNCATE pool;
INSERT INTO pool SELECT generate_series(1, 10);
SELECT count(*) FROM cache_batch_bucket_list('pool_a');
SELECT count(*) FROM cache_batch_stat_buckets WHERE indexrelname = 'pool_a';
COMMIT;
SELECT count(*) FROM cache_batch_stat_buckets WHERE indexrelname = 'pool_a';
INSERT INTO pool SELECT generate_series(1, 10);
SELECT count(*) FROM cache_batch_stat_buckets WHERE indexrelname = 'pool_a';
SELECT count(*) FROM pool WHERE a = 7;

-- a flush empties them, VACUUM too
SELECT cache_batch_flush('pool_a') IS NOT NULL AS flushed;
SELECT chunks, entries, bytes, oldest_age, journal_bytes, swept
FROM cache_batch_stat_buckets WHERE indexrelname = 'pool_a';
INSERT INTO pool SELECT generate_series(1, 10);
DELETE FROM pool WHERE a % 2 = 0;
VACUUM pool;
SELECT chunks, entries, bytes, oldest_age, journal_bytes, swept
FROM cache_batch_stat_buckets WHERE indexrelname = 'pool_a';

-- use by database
SELECT indexes >= 2 AS indexes, buckets >= indexes AS buckets,
	   chunks >= 0 AS chunks, entries >= 0 AS entries, bytes >= entries AS bytes
FROM cache_batch_stat_databases WHERE datname = current_database();

-- counters
SELECT cache_batch_stat_reset();
SELECT no_room FROM cache_batch_stat_pool;
SELECT count(*) FROM cache_batch_stat_workers WHERE last_error IS NOT NULL;

-- an index that is gone is shown no more
REINDEX INDEX pool_a;
SELECT count(*) FROM cache_batch_stat_buckets WHERE indexrelname = 'pool_a';
DROP TABLE pool, pool_t, pool_u;
SELECT count(*) FROM cache_batch_stat_buckets WHERE relname LIKE 'pool%';
