-- What the extension offers in SQL: objects, privileges, settings, options.
\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS cache_batch;

BEGIN;
SELECT no_plan();

-- the extension and its access method
SELECT has_extension('cache_batch');
SELECT is((SELECT extversion FROM pg_extension WHERE extname = 'cache_batch'),
		  '1.1', 'version');
SELECT is((SELECT amtype FROM pg_am WHERE amname = 'cachebatch'), 'i',
		  'cachebatch is an index access method');
SELECT is(pg_indexam_has_property(am.oid, p.name), p.want,
		  'access method property ' || p.name)
FROM (VALUES ('can_order', true), ('can_unique', current_setting('server_version_num')::int >= 180000),
			 ('can_multi_col', true), ('can_exclude', true),
			 ('can_include', true)) p (name, want),
	 pg_am am WHERE am.amname = 'cachebatch';

-- operator classes: one for each of btree's in pg_catalog
SELECT is_empty(
	$$SELECT b.opcname FROM pg_opclass b JOIN pg_am ba ON ba.oid = b.opcmethod
	  WHERE ba.amname = 'btree' AND b.opcnamespace = 'pg_catalog'::regnamespace
	  AND NOT EXISTS (SELECT FROM pg_opclass c JOIN pg_am ca ON ca.oid = c.opcmethod
		WHERE ca.amname = 'cachebatch' AND c.opcname = b.opcname
		AND c.opcnamespace = b.opcnamespace AND c.opcintype = b.opcintype
		AND c.opcdefault = b.opcdefault)$$,
	'each btree operator class of the server has its cachebatch counterpart');
SELECT is_empty(
	$$SELECT c.opcname FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
	  WHERE a.amname = 'cachebatch' AND NOT amvalidate(c.oid)$$,
	'all of them are valid');
SELECT is(cache_batch_adopt_operator_classes(), 0, 'nothing left to adopt');

-- functions
SELECT has_function('cache_batch_flush', ARRAY['regclass']);
SELECT has_function('cache_batch_compact', ARRAY['regclass']);
SELECT has_function('cache_batch_compact', ARRAY['regclass', 'anyelement', 'anyelement']);
SELECT has_function('cache_batch_prewarm', ARRAY['regclass']);
SELECT has_function('cache_batch_prewarm', ARRAY['regclass', 'anyelement', 'anyelement']);
SELECT has_function('cache_batch_verify', ARRAY['regclass', 'boolean']);
SELECT has_function('cache_batch_metapage', ARRAY['regclass']);
SELECT has_function('cache_batch_page', ARRAY['regclass', 'bigint']);
SELECT has_function('cache_batch_page_items', ARRAY['regclass', 'bigint']);
SELECT has_function('cache_batch_journal', ARRAY['regclass']);
SELECT has_function('cache_batch_bucket_list', ARRAY['regclass']);
SELECT has_function('cache_batch_ranges', ARRAY['regclass']);
SELECT has_function('cache_batch_tiles', ARRAY['regclass']);
SELECT has_function('cache_batch_key_filters', ARRAY[]::text[]);
SELECT has_function('cache_batch_stat_get', ARRAY['oid']);
SELECT has_function('cache_batch_stat_get_pool', ARRAY[]::text[]);
SELECT has_function('cache_batch_stat_get_bucket_sets', ARRAY[]::text[]);
SELECT has_function('cache_batch_stat_get_workers', ARRAY[]::text[]);
SELECT has_function('cache_batch_stat_get_progress', ARRAY[]::text[]);
SELECT has_function('cache_batch_last_scans', ARRAY[]::text[]);
SELECT has_function('cache_batch_stat_get_heat', ARRAY['oid']);
SELECT has_function('cache_batch_stat_reset', ARRAY[]::text[]);
SELECT has_function('cache_batch_stat_reset', ARRAY['regclass']);
SELECT has_function('cache_batch_adopt_operator_classes', ARRAY['boolean']);
SELECT has_function('cache_batch_comparison_is_total', ARRAY['regclass']);
SELECT has_function('cache_batch_model', ARRAY['bigint', 'bigint', 'integer', 'integer', 'bigint',
	'integer', 'double precision', 'double precision', 'double precision']);
SELECT has_function('cache_batch_advise', ARRAY['regclass', 'bigint', 'bigint']);
SELECT has_function('cache_batch_swap', ARRAY['regclass']);
SELECT has_function('cache_batch_swap_obstacle', ARRAY['regclass']);
SELECT isnt(obj_description(p.oid, 'pg_proc'), NULL, p.proname || ' has a comment')
FROM pg_proc p WHERE p.proname ~ '^cache_batch_(model|advise|swap)';
SELECT lives_ok(pg_get_functiondef(p.oid), p.proname || ' as pg_upgrade dumps it')
FROM pg_proc p WHERE p.proname ~ '^cache_batch_(advise|swap)';
SELECT is_empty(
	$$SELECT p.oid::regprocedure FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	  JOIN pg_extension e ON e.oid = d.refobjid
	  WHERE d.classid = 'pg_proc'::regclass AND d.refclassid = 'pg_extension'::regclass
	  AND e.extname = 'cache_batch' AND p.proname NOT LIKE 'cache\_batch\_%'$$,
	'all functions have the prefix');

-- the views
SELECT has_view('cache_batch_stat_indexes');
SELECT columns_are('cache_batch_stat_indexes', ARRAY[
	'schemaname', 'relname', 'indexrelname', 'relid', 'indexrelid',
	'staged', 'journaled', 'direct', 'flushed',
	'flushes_limit', 'flushes_request', 'flushes_vacuum', 'flushes_full',
	'flushes_pressure', 'flushes_delay', 'flushes_help', 'flushes_reads', 'no_room',
	'applied', 'leaf_visits', 'descents', 'entries_per_visit', 'splits',
	'dropped', 'compacted', 'spilled', 'vacuum_skipped', 'cached_reads', 'journal_reads', 'idx_scan', 'idx_tup_read', 'idx_tup_fetch']);
SELECT columns_are('cache_batch_stat_pool', ARRAY[
	'pool_size', 'chunk_size', 'chunks', 'chunks_free', 'buckets',
	'buckets_free', 'bucket_sets', 'bucket_sets_used', 'indexes', 'no_room']);
SELECT columns_are('cache_batch_stat_databases', ARRAY[
	'datid', 'datname', 'indexes', 'buckets', 'chunks', 'entries', 'bytes']);
SELECT columns_are('cache_batch_stat_buckets', ARRAY[
	'schemaname', 'relname', 'indexrelname', 'relid', 'indexrelid',
	'buckets', 'chunks', 'entries', 'bytes', 'oldest_age', 'journal_bytes',
	'swept', 'attached_at', 'failing_buckets', 'last_error', 'copied_entries',
	'copied_bytes']);
SELECT columns_are('cache_batch_stat_workers', ARRAY[
	'pid', 'datid', 'datname', 'state', 'indexrelid', 'indexrelname',
	'pending', 'requests', 'entries', 'last_error_code', 'last_error',
	'last_error_at']);
SELECT columns_are('cache_batch_stat_progress', ARRAY[
	'pid', 'datid', 'datname', 'relid', 'indexrelid', 'indexrelname',
	'command', 'phase', 'done', 'total', 'unit', 'started_at']);
SELECT columns_are('cache_batch_stat_heat', ARRAY[
	'schemaname', 'relname', 'indexrelname', 'relid', 'indexrelid',
	'min_age', 'max_age', 'blocks_read', 'blocks_written']);
SELECT isnt(obj_description(v::regclass), NULL, v || ' has a comment')
FROM unnest(ARRAY['cache_batch_stat_indexes', 'cache_batch_stat_pool',
				  'cache_batch_stat_databases', 'cache_batch_stat_buckets',
				  'cache_batch_stat_workers', 'cache_batch_stat_progress',
				  'cache_batch_stat_heat']) v;

-- privileges
CREATE ROLE pgtap_cachebatch_user;
CREATE ROLE pgtap_cachebatch_monitor IN ROLE pg_stat_scan_tables;
SELECT is(has_function_privilege('pgtap_cachebatch_user', f, 'EXECUTE'), false,
		  'ordinary users may not call ' || f)
FROM unnest(ARRAY['cache_batch_verify(regclass,boolean)',
				  'cache_batch_metapage(regclass)',
				  'cache_batch_page(regclass,bigint)',
				  'cache_batch_page_items(regclass,bigint)',
				  'cache_batch_journal(regclass)',
				  'cache_batch_bucket_list(regclass)',
				  'cache_batch_ranges(regclass)',
				  'cache_batch_stat_reset()',
				  'cache_batch_stat_reset(regclass)',
				  'cache_batch_adopt_operator_classes(boolean)']) f;
SELECT is(has_function_privilege('pgtap_cachebatch_monitor', f, 'EXECUTE'), true,
		  'pg_stat_scan_tables may call ' || f)
FROM unnest(ARRAY['cache_batch_verify(regclass,boolean)',
				  'cache_batch_metapage(regclass)',
				  'cache_batch_page(regclass,bigint)',
				  'cache_batch_journal(regclass)',
				  'cache_batch_bucket_list(regclass)',
				  'cache_batch_ranges(regclass)']) f;
SELECT table_privs_are(v, 'pgtap_cachebatch_user', ARRAY['SELECT'])
FROM unnest(ARRAY['cache_batch_stat_indexes', 'cache_batch_stat_pool',
				  'cache_batch_stat_databases', 'cache_batch_stat_buckets',
				  'cache_batch_stat_workers', 'cache_batch_stat_progress',
				  'cache_batch_stat_heat']) v;
SET LOCAL ROLE pgtap_cachebatch_user;
SELECT lives_ok('SELECT * FROM ' || v, 'ordinary users may read ' || v)
FROM unnest(ARRAY['cache_batch_stat_indexes', 'cache_batch_stat_pool',
				  'cache_batch_stat_databases', 'cache_batch_stat_buckets',
				  'cache_batch_stat_workers', 'cache_batch_stat_progress',
				  'cache_batch_stat_heat']) v;
RESET ROLE;

-- settings
SELECT ok(EXISTS (SELECT FROM pg_settings WHERE name = s AND short_desc <> ''
				  AND vartype = 'integer' AND unit = 'kB'), 'setting ' || s)
FROM unnest(ARRAY['cache_batch.journal_limit', 'cache_batch.stage_size',
				  'cache_batch.stage_total_size',
				  'cache_batch.pool_size', 'cache_batch.heat_size']) s;
SELECT is((SELECT context || ' ' || coalesce(unit, '-') FROM pg_settings
		   WHERE name = s), want, 'setting ' || s)
FROM (VALUES ('cache_batch.pool_size', 'postmaster kB'),
			 ('cache_batch.max_workers', 'postmaster -'),
			 ('cache_batch.max_delay', 'sighup ms'),
			 ('cache_batch.heat_size', 'postmaster kB'),
			 ('cache_batch.heat_epoch', 'sighup s'),
			 ('cache_batch.cold_threshold', 'sighup -'),
			 ('cache_batch.cold_rate', 'sighup -'),
			 ('cache_batch.journal_limit', 'superuser kB'),
			 ('cache_batch.stage_size', 'user kB')) v (s, want);
SELECT throws_ok('SET cache_batch.pool_size = 1024', '55P02', NULL,
				 'the pool has its size from the start');
SELECT throws_ok('SET cache_batch.no_such = 1', '42602', NULL,
				 'the prefix is reserved');

-- an index and its options
CREATE TABLE surface (k int, v text);
INSERT INTO surface SELECT i % 1000, 'v' || i FROM generate_series(1, 5000) i;
SELECT lives_ok($$CREATE INDEX surface_k ON surface USING cachebatch (k) INCLUDE (v)
	WITH (fillfactor = 70, deduplicate_items = off, buffered = on)$$,
	'options of btree and one of its own');
SELECT index_is_type('surface', 'surface_k', 'cachebatch');
SELECT throws_ok('CREATE INDEX ON surface USING cachebatch (k) WITH (fillfactor = 5)',
				 '22023', NULL, 'fillfactor is checked');
SELECT throws_ok('CREATE INDEX ON surface USING cachebatch (k) WITH (colour = 3)',
				 '22023', NULL, 'unknown options are refused');
SELECT CASE WHEN current_setting('server_version_num')::int < 180000
	THEN throws_like('CREATE UNIQUE INDEX ON surface USING cachebatch (k)',
					 '%does not support unique indexes%', 'UNIQUE is refused')
	ELSE throws_like('CREATE UNIQUE INDEX ON surface USING cachebatch ((k / 2))',
					 '%could not create unique index%', 'UNIQUE is checked') END;
INSERT INTO surface SELECT i, 'w' || i FROM generate_series(2001, 2400) i;
SET LOCAL enable_seqscan = off;
SELECT is((SELECT count(*) FROM surface WHERE k BETWEEN 2001 AND 2400), 400::bigint,
		  'rows are found before a flush');
SELECT lives_ok('SELECT cache_batch_flush(''surface_k'')', 'flush');
SELECT is((SELECT count(*) FROM surface WHERE k BETWEEN 2001 AND 2400), 400::bigint,
		  'rows are found after it');
SELECT is(cache_batch_flush('surface_k'), false, 'nothing left to flush');
SELECT is((SELECT count(*) FROM cache_batch_stat_indexes
		   WHERE indexrelname = 'surface_k' AND staged >= 400), 1::bigint,
		  'statistics show the index');
SELECT is((SELECT magic FROM cache_batch_metapage('surface_k')) IS NOT NULL, true,
		  'metapage');
SELECT ok((SELECT count(*) FROM generate_series(1,
	pg_relation_size('surface_k') / current_setting('block_size')::int - 1) b,
	cache_batch_page('surface_k', b) p WHERE p.type = 'leaf') > 1, 'pages');
SELECT throws_ok('SELECT cache_batch_flush(''pg_class_oid_index'')', NULL, NULL,
				 'functions refuse other indexes');
SELECT throws_ok('SELECT * FROM cache_batch_page(''surface_k'', 1000000)', '22023',
				 NULL, 'block numbers are checked');

-- the pool: entries of an index that an earlier transaction has made
SELECT is((SELECT count(*) FROM cache_batch_stat_buckets
		   WHERE indexrelname = 'surface_k'), 0::bigint,
		  'no buckets in the transaction that made the index');
SELECT is((SELECT count(*) FROM cache_batch_bucket_list('surface_k')), 0::bigint,
		  'none listed either');
SELECT * FROM finish();
ROLLBACK;
