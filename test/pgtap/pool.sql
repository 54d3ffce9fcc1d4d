-- What the statistics say about cache-buckets and those who flush them.
\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS cache_batch;

-- an index has buckets from the transaction after the one that made it
CREATE TABLE pool (k int);
INSERT INTO pool SELECT i FROM generate_series(1, 20000) i;
CREATE INDEX pool_k ON pool USING cachebatch (k);
INSERT INTO pool SELECT i * 7919 % 20000 FROM generate_series(1, 150) i;

BEGIN;
SELECT no_plan();
SELECT is((SELECT count(*) FROM cache_batch_stat_pool), 1::bigint,
		  'one row for the pool');
SELECT ok(pool_size = chunks * chunk_size AND chunks_free <= chunks
		  AND buckets_free < buckets AND buckets >= chunks
		  AND bucket_sets_used BETWEEN indexes AND bucket_sets AND indexes >= 1
		  AND no_room >= 0, 'figures of the pool agree')
FROM cache_batch_stat_pool;
SELECT ok(abs(pool_size / 1024 - s.setting::bigint) <= chunk_size / 1024
		  OR s.setting::bigint < 256, 'the pool has the size that was set')
FROM cache_batch_stat_pool, pg_settings s WHERE s.name = 'cache_batch.pool_size';
SELECT is((SELECT count(*) FROM cache_batch_stat_buckets
		   WHERE indexrelid = 'pool_k'::regclass AND relname = 'pool'),
		  1::bigint, 'the index has buckets');
SELECT ok(b.buckets >= 1 AND b.entries <= 150
		  AND (b.entries > 0) = (b.chunks > 0)
		  AND (b.entries > 0) = (b.oldest_age IS NOT NULL)
		  AND b.bytes >= b.entries * 16 AND b.journal_bytes >= 0
		  AND b.attached_at < clock_timestamp(), 'figures of its buckets agree')
FROM cache_batch_stat_buckets b WHERE indexrelname = 'pool_k';
SELECT ok(d.indexes >= 1 AND d.datid IS NOT NULL AND d.chunks >= 0,
		  'the database uses the pool')
FROM cache_batch_stat_databases d WHERE datname = current_database();
SELECT ok(min(l."position") = 1 AND max(l."position") = count(*)
		  AND count(DISTINCT l."position") = count(*) AND count(DISTINCT l.bucket) = count(*)
		  AND bool_and(l.sorted_entries <= l.entries AND l.flushing_chunks <= l.chunks
					   AND (l.chunks > 0) = (l.oldest IS NOT NULL)),
		  'list of its buckets')
FROM cache_batch_bucket_list('pool_k') l;
SELECT lives_ok('SELECT cache_batch_flush(''pool_k'')', 'flush');
SELECT is((SELECT sum(entries)::bigint FROM cache_batch_bucket_list('pool_k')),
		  0::bigint, 'a flush empties the buckets');
SELECT is((SELECT row(entries, chunks, journal_bytes, swept)::text
		   FROM cache_batch_stat_buckets WHERE indexrelname = 'pool_k'),
		  '(0,0,0,t)', 'and the journal');
SELECT throws_like('SELECT * FROM cache_batch_bucket_list(''pg_class_oid_index'')',
				   '%is not a cachebatch index', 'buckets are cachebatch''s');
SELECT is_empty($$SELECT * FROM cache_batch_stat_workers
	WHERE (pid IS NULL) <> (pending IS NOT NULL)
	   OR state NOT IN ('starting', 'idle', 'flushing', 'suspended', 'failing',
						'waiting')
	   OR last_error IS NOT NULL AND last_error_at IS NULL
	   OR requests < 0 OR entries < 0$$, 'rows of workers make sense');
SELECT lives_ok('SELECT cache_batch_stat_reset()', 'reset');
SELECT is((SELECT no_room FROM cache_batch_stat_pool), 0::bigint,
		  'the pool''s counter is reset');
SELECT * FROM finish();
ROLLBACK;
DROP TABLE pool;
