-- The adviser's verdicts, each provoked by a real index.
\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS cache_batch;

CREATE OPERATOR CLASS other_ints FOR TYPE int4 USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 btint4cmp(int4, int4);
CREATE TABLE t (id int PRIMARY KEY, k bigint NOT NULL, few int, r int);
CREATE INDEX t_random ON t (k);
CREATE INDEX t_two ON t (k, id) WHERE k % 4 = 0;
CREATE INDEX t_expr ON t ((k % 99991));
CREATE UNIQUE INDEX t_unique ON t (k, id);
ALTER TABLE t ADD CONSTRAINT t_constraint UNIQUE (id, k, few);
CREATE UNIQUE INDEX t_refers ON t (k, few, id);
CREATE TABLE refers (a bigint, b int, c int, FOREIGN KEY (a, b, c) REFERENCES t (k, few, id));
CREATE UNIQUE INDEX t_replica ON t (id, k);
CREATE INDEX t_clustered ON t (k, r);
CREATE INDEX t_ascending ON t (id, few);
CREATE INDEX t_descending ON t (r);
CREATE INDEX t_few ON t (few);
CREATE INDEX t_class ON t (r other_ints);
CREATE INDEX t_hash ON t USING hash (k);
-- whose comparison nobody knows
CREATE FUNCTION unknown_cmp(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btint4cmp($1, $2)';
CREATE OPERATOR CLASS unknown_ints FOR TYPE int4 USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 unknown_cmp(int4, int4);
CREATE OPERATOR CLASS unknown_ints FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 unknown_cmp(int4, int4);
CREATE TABLE unknown (k int);
CREATE INDEX unknown_btree ON unknown (k unknown_ints);
CREATE INDEX unknown_auto ON unknown USING cachebatch (k unknown_ints) WITH (buffered = auto);
CREATE INDEX unknown_off ON unknown USING cachebatch (k unknown_ints) WITH (buffered = off);
INSERT INTO unknown SELECT i * 7919 % 1003 FROM generate_series(1, 100) i;
ALTER TABLE t RENAME r TO renamed;
ALTER TABLE t REPLICA IDENTITY USING INDEX t_replica;
ALTER TABLE t CLUSTER ON t_clustered;
ALTER TABLE t ADD CONSTRAINT t_excluded EXCLUDE USING btree (id WITH =);
INSERT INTO t SELECT i, i::bigint * 7919 % 100003, i % 10, -i FROM generate_series(1, 10000) i;
\set ON_ERROR_STOP off
\o /dev/null
CREATE INDEX CONCURRENTLY t_invalid ON t ((1 / (id - 77)));
\o
\set ON_ERROR_STOP on

-- as many scans as writes
CREATE TABLE reads (k bigint);
INSERT INTO reads SELECT i::bigint * 7919 % 100003 FROM generate_series(1, 20000) i;
CREATE INDEX reads_k ON reads (k);
-- what was written before the statistics were reset
CREATE TABLE calm (k bigint);
INSERT INTO calm SELECT i::bigint * 7919 % 100003 FROM generate_series(1, 20000) i;
CREATE INDEX calm_k ON calm (k);
CREATE TABLE part (k bigint) PARTITION BY RANGE (k);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (1000000);
CREATE INDEX part_k ON part (k);
INSERT INTO part SELECT i::bigint * 7919 % 100003 FROM generate_series(1, 20000) i;
CREATE TEMP TABLE temporary (k bigint);
CREATE INDEX temporary_k ON temporary (k);
CREATE INDEX temporary_our ON temporary USING cachebatch (k);
-- updates: the others are HOT
CREATE TABLE updates (k bigint, v int) WITH (fillfactor = 50);
CREATE INDEX updates_k ON updates (k);
INSERT INTO updates SELECT i::bigint * 7919 % 100003, 0 FROM generate_series(1, 1000) i;
UPDATE updates SET v = v + 1;
UPDATE updates SET k = k + 1 WHERE k % 2 = 0;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET enable_memoize = off;
ANALYZE;
DO $$BEGIN PERFORM count(r.k) FROM generate_series(1, 60000) i LEFT JOIN reads r ON r.k = i; END$$;
SELECT pg_stat_force_next_flush() \g /dev/null
SELECT pg_stat_reset_single_table_counters('calm'::regclass) \g /dev/null
RESET ALL;
SET client_min_messages = warning;

-- with no other index to share the pool, of 8 kB
CREATE TABLE alone AS SELECT * FROM cache_batch_advise('t_random', 8192, 0);

-- cachebatch's own
CREATE TABLE ours (id int, k bigint);
CREATE TABLE early (k bigint);
CREATE INDEX ours_early ON early USING cachebatch (k);
CREATE INDEX ours_batched ON ours USING cachebatch (k);
CREATE INDEX ours_through ON ours USING cachebatch (k) WITH (buffered = off);
CREATE INDEX ours_ascending ON ours USING cachebatch (id);
INSERT INTO ours SELECT i, i::bigint * 7919 % 100003 FROM generate_series(1, 40000) i;
INSERT INTO early SELECT k FROM ours;
SELECT cache_batch_flush('ours_batched'), cache_batch_flush('ours_early') \g /dev/null
-- the counters say how many entries came to a visit: since now
SELECT cache_batch_stat_reset() \g /dev/null
INSERT INTO ours SELECT i, i::bigint * 7919 % 100003 FROM generate_series(40001, 41000) i;
SELECT cache_batch_flush('ours_batched') \g /dev/null
\o /dev/null
SELECT sql FROM generate_series(50001, 50020) i,
	LATERAL (VALUES (format('INSERT INTO early VALUES (%s)', i * 7919 % 100003)),
			 ('SELECT cache_batch_flush(''ours_early'')')) v (sql) \gexec
\o
ANALYZE ours, early;
SELECT pg_stat_force_next_flush() \g /dev/null

BEGIN;
SELECT no_plan();
CREATE FUNCTION said(regclass, pool_size bigint DEFAULT NULL, min_size bigint DEFAULT 0)
RETURNS text LANGUAGE sql AS
$$SELECT verdict || ': ' || reason FROM cache_batch_advise($1, $2, $3)$$;

SELECT is(said(index::regclass, 1048576), verdict, verdict || ' ' || index)
FROM (VALUES ('t_random', 'swap: random keys'), ('t_two', 'swap: random keys'),
	('t_expr', 'swap: random keys'),
	('t_pkey', 'keep: primary key'), ('t_unique', 'keep: unique index'),
	('t_constraint', 'keep: unique constraint'),
	('t_refers', CASE WHEN current_setting('server_version_num')::int >= 180000
		THEN 'keep: foreign key' ELSE 'keep: unique index' END),
	('t_replica', 'keep: replica identity'), ('t_excluded', 'keep: exclusion constraint'),
	('t_clustered', 'keep: table is clustered on it'), ('t_invalid', 'keep: not valid'),
	('t_class', 'keep: no cachebatch operator class for other_ints'),
	('unknown_btree', 'keep: comparison may fail'), ('unknown_auto', 'keep: comparison may fail'),
	('unknown_off', 'keep: buffered is off'),
	('t_ascending', 'keep: ascending keys'), ('t_descending', 'keep: ascending keys'),
	('t_few', 'swap: random keys'), ('reads_k', 'keep: many reads'),
	('calm_k', 'keep: few writes'), ('part_1_k_idx', 'swap: random keys; swap public.part_k'),
	('temporary_k', 'keep: temporary table'), ('temporary_our', 'keep: temporary table'),
	('ours_through', 'keep: buffered is off'), ('ours_ascending', 'keep: ascending keys')) v (index, verdict);
SELECT is(said('t_random', 1048576, NULL), 'swap: random keys', 'no least size');
SELECT is((SELECT verdict || ': ' || reason FROM cache_batch_advise('t_random')), 'keep: small index',
		  'less than 8 MB stay in the cache');
SELECT is(said('t_random', 1048576, size), 'keep: small index', 'at the least size')
FROM cache_batch_advise('t_random');
SELECT is(said('t_random', 1048576, size - 1), 'swap: random keys', 'above the least size')
FROM cache_batch_advise('t_random');
SELECT is(said('t_random', 0), 'keep: no pool', 'without a pool');
SELECT is(said('t_random', 100), 'keep: pool too small', 'a pool that holds too little');
SELECT is(said('ours_batched', 0), 'tune: no pool', 'ours without a pool');
SELECT is(said('ours_batched', 100), 'tune: pool too small', 'ours with too small a pool');
SELECT is(said('ours_batched', 1 << 30), 'keep: random keys', 'ours as it should be');
SELECT is(said('ours_batched', pool_wanted - 1), 'tune: larger pool pays', 'ours with somewhat too small a pool')
FROM cache_batch_advise('ours_batched', NULL, 0);
SELECT is(said('ours_batched', pool_wanted), 'keep: random keys', 'with the pool that was wanted')
FROM cache_batch_advise('ours_batched', NULL, 0);
SELECT is(said('ours_early', 1 << 30), 'tune: flushed early', 'ours, flushed row by row');
SELECT ok(a.entries_per_visit BETWEEN 1 AND 1.5 AND a.cost_ratio > 1
		  AND a.expected_entries_per_visit > 10, 'cost by what was measured')
FROM cache_batch_advise('ours_early', 1 << 30, 0) a;
SELECT is(a.entries_per_visit, s.entries_per_visit, 'measured entries a visit, ' || a.indexrelname)
FROM cache_batch_advise(NULL, NULL, 0) a JOIN cache_batch_stat_indexes s USING (indexrelid);
SELECT cache_batch_adopt_operator_classes() \g /dev/null
SELECT is(said('t_class', 1048576), 'keep: ascending keys', 'an adopted class is no obstacle');

-- rows
SELECT is((SELECT array_agg(indexrelname::text ORDER BY indexrelname) FROM cache_batch_advise('part')),
		  ARRAY['part_1_k_idx'], 'a partitioned table: its partitions'' indexes');
SELECT is((SELECT array_agg(indexrelname::text) FROM cache_batch_advise('part_k')),
		  ARRAY['part_1_k_idx'], 'a partitioned index likewise');
SELECT is((SELECT count(*) FROM cache_batch_advise('t')), 15::bigint, 'a table''s btree indexes, no hash index');
SELECT set_eq('SELECT indexrelid FROM cache_batch_advise()',
	$$SELECT i.oid FROM pg_class i JOIN pg_am a ON a.oid = i.relam WHERE i.relkind = 'i'
	  AND amname IN ('btree', 'cachebatch') AND i.oid >= 16384
	  AND i.relnamespace NOT IN ('pg_toast'::regnamespace)$$, 'all of the database');
SELECT is_empty('SELECT * FROM cache_batch_advise(''t_hash'')', 'no other access methods');
SELECT is((SELECT array_agg(DISTINCT verdict ORDER BY verdict) FROM cache_batch_advise()),
		  ARRAY['keep'], 'no small index of a default advice is to be swapped');
SELECT results_eq('SELECT (verdict = ''swap'' AND indexrelname NOT LIKE ''part%'') FROM cache_batch_advise(NULL, NULL, 0)',
				  'SELECT swap IS NOT NULL FROM cache_batch_advise(NULL, NULL, 0)', 'the SQL goes with the verdict');
SELECT is(swap, (SELECT string_agg(s || E';', E'\n') FROM cache_batch_swap('t_random') s), 'the swap in one piece')
FROM cache_batch_advise('t_random', 1048576, 0);

-- figures
SELECT ok(schemaname = 'public' AND relname = 't' AND relid = 't'::regclass AND method = 'btree'
		  AND size = pg_relation_size('t_random') AND writes = 10000 AND scans = 0
		  AND entries_per_visit IS NULL AND btree_ns > 0 AND cachebatch_ns > 0, 'figures of an index')
FROM cache_batch_advise('t_random', 1048576, 0);
SELECT is(scans, 60000::bigint, 'scans are counted') FROM cache_batch_advise('reads_k');
SELECT is(writes, 1000 + (SELECT count(*) FROM updates WHERE k % 2 = 1 AND v = 1) * 0 + u.cold, 'HOT updates write no entries')
FROM cache_batch_advise('updates_k'),
	 LATERAL (SELECT n_tup_upd - n_tup_hot_upd AS cold FROM pg_stat_user_tables WHERE relname = 'updates') u;
SELECT cmp_ok(writes, '<', 2000::bigint, 'which many were') FROM cache_batch_advise('updates_k');
SELECT ok(writes BETWEEN 2400 AND 2600, 'a partial index gets its part') FROM cache_batch_advise('t_two');
-- one bucket, of 20-byte entries, flushed at twice the average
SELECT is(expected_entries_per_visit, round(c / (m * (1 - (1 - 1 / m) ^ c)), 1), 'expected entries a visit')
FROM alone, LATERAL (SELECT size / 8192 - 1.0 AS m, 2 * 8192 / 20.0 AS c) v;
SELECT cmp_ok(b.expected_entries_per_visit, '<', a.expected_entries_per_visit, 'the pool is shared')
FROM alone a, cache_batch_advise('t_random', 8192, 0) b;
SELECT is(a.expected_entries_per_visit, round(c / (m * (1 - (1 - 1 / m) ^ c)), 1), 'by what each index writes')
FROM (SELECT sum(writes) AS ours FROM cache_batch_advise()
	  WHERE indexrelname IN ('ours_batched', 'ours_ascending', 'ours_early')) w,
	 cache_batch_advise('t_random', 262144, 0) a,
	 LATERAL (SELECT size / 8192 - 1.0 AS m, 2 * floor(262144 * a.writes / (w.ours + a.writes)) / 20 AS c) v;
SELECT is(a.pool_wanted % 1048576, 0::bigint, 'whole megabytes of pool') FROM alone a;
SELECT is((SELECT bool_and(k >= before) FROM (
	SELECT a.expected_entries_per_visit AS k, lag(a.expected_entries_per_visit, 1, 1.0) OVER (ORDER BY p) AS before
	FROM generate_series(0, 62, 6) p, cache_batch_advise('t_random', 1::bigint << p, 0) a) s), true,
	'more pool, more entries a visit');
SELECT lives_ok('SELECT * FROM cache_batch_advise(NULL, 9223372036854775807, 9223372036854775807)', 'a huge pool');
SELECT throws_ok('SELECT * FROM cache_batch_advise(NULL, -1)', '22023', NULL, 'a negative pool is refused');

-- an empty table, and one never analyzed
CREATE TABLE empty (k bigint, e text);
CREATE INDEX empty_k ON empty (k);
CREATE INDEX empty_our ON empty USING cachebatch (lower(e));
SELECT is(said(index), 'keep: few writes', 'an empty index, ' || index)
FROM unnest(ARRAY['empty_k', 'empty_our']) index
WHERE said(index) IS DISTINCT FROM 'keep: small index';
SELECT ok(cachebatch_ns > 0 AND expected_entries_per_visit >= 1, 'figures of ' || indexrelname)
FROM cache_batch_advise('empty', NULL, 0);

ALTER INDEX unknown_auto SET (buffered = 'On');
SELECT is(said('unknown_auto', 1 << 30), 'keep: random keys', 'the user says that it compares all');

-- everybody may ask
CREATE ROLE pgtap_advise_user;
SET LOCAL ROLE pgtap_advise_user;
SELECT lives_ok('SELECT * FROM public.cache_batch_advise()', 'ordinary users may ask');
SELECT lives_ok('SELECT * FROM public.cache_batch_swap(''t_random'')', 'ordinary users may see how to swap');
RESET ROLE;
SELECT * FROM finish();
ROLLBACK;
DROP TABLE refers, t, reads, calm, part, updates, alone, ours, early, unknown;
