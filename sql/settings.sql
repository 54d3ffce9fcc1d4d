-- Settings: bad values of each, and effects of stage_size, stage_total_size and
-- journal_limit.  The others' effects: tap 015 (max_workers, max_delay), 016
-- (pool_size, heat_size), 003 (heat_epoch), 023 (cold_threshold, cold_rate,
-- spill_threshold), 027 (scan_delay), 030 (entry_cache_size); ranges_points
-- (spill_target); ahead_points (effective_io_concurrency).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

-- no number
ALTER SYSTEM SET cache_batch.pool_size = 'large';
ALTER SYSTEM SET cache_batch.max_workers = 'many';
ALTER SYSTEM SET cache_batch.max_delay = '10MB';
ALTER SYSTEM SET cache_batch.journal_limit = '1min';
ALTER SYSTEM SET cache_batch.scan_delay = 'short';
SET cache_batch.journal_limit = '4 MiB';
SET cache_batch.stage_size = off;
SET cache_batch.stage_total_size = '';

-- one less than the least, and one more than the most, of each
\set VERBOSITY sqlstate
SELECT format('ALTER SYSTEM SET %s = ''%s''', name, value)
FROM pg_settings, LATERAL (VALUES (min_val::numeric - 1), (max_val::numeric + 1)) v (value)
WHERE name ~ '^cache_batch\.(?!test_)' AND vartype <> 'string'
ORDER BY name COLLATE "C", value \gexec
\set VERBOSITY default

-- neither off, nor a size, nor a percentage
ALTER SYSTEM SET cache_batch.spill_threshold = 'on';
ALTER SYSTEM SET cache_batch.spill_threshold = '-1%';
ALTER SYSTEM SET cache_batch.spill_threshold = '10 %';
ALTER SYSTEM SET cache_batch.cold_threshold = '1h';
ALTER SYSTEM SET cache_batch.cold_threshold = '-1';
ALTER SYSTEM SET cache_batch.cold_threshold = '';

-- who may set them, and when
SET cache_batch.max_workers = 1;
SET cache_batch.max_delay = '1s';
SET cache_batch.no_such = 1;
CREATE ROLE regress_settings;
SET ROLE regress_settings;
SET cache_batch.journal_limit = '1MB';
SET cache_batch.stage_size = '1MB';
RESET ROLE;
RESET cache_batch.stage_size;
DROP ROLE regress_settings;
-- nothing of this has stayed
SELECT name FROM pg_settings
WHERE name LIKE 'cache\_batch.%' AND (source = 'session' OR pending_restart);

-- memory of a statement: entries that it has brought before its last row
CREATE TABLE settings (k bigint, brought bigint) WITH (autovacuum_enabled = off);
CREATE INDEX settings_k ON settings USING cachebatch (k);
CREATE INDEX settings_k2 ON settings USING cachebatch (k, brought);
CREATE FUNCTION settings_brought() RETURNS bigint VOLATILE LANGUAGE sql AS
	$$SELECT sum(journaled + direct) FROM cache_batch_stat_indexes WHERE relname = 'settings'$$;
CREATE PROCEDURE settings_bring(what text) LANGUAGE plpgsql AS $$
DECLARE
	before bigint := settings_brought();
	meanwhile bigint;
BEGIN
	INSERT INTO settings SELECT hashint8extended(i, 0), CASE WHEN i = 2000 THEN settings_brought() END
	FROM generate_series(1, 2000) i;
	SELECT max(brought) - before INTO meanwhile FROM settings;
	RAISE NOTICE '%: before the last row %', what,
		CASE WHEN meanwhile = 0 THEN 'nothing' WHEN meanwhile < 3998 THEN 'some' ELSE 'all' END;
END $$;
CALL settings_bring('64kB for an index');
SET cache_batch.stage_size = '8kB';
CALL settings_bring('8kB for an index');
SET cache_batch.stage_size = '1MB';
CALL settings_bring('1MB for an index');
SET cache_batch.stage_total_size = '64kB';
INSERT INTO settings VALUES (1, 1);
CALL settings_bring('64kB for all');
RESET cache_batch.stage_total_size;
RESET cache_batch.stage_size;
SELECT cache_batch_verify('settings_k', true), cache_batch_verify('settings_k2', true);

-- the journal's limit: is it flushed because of that, and when?
CREATE PROCEDURE settings_journal() LANGUAGE plpgsql AS $$
DECLARE
	statements int := 0;
	flushed boolean;
BEGIN
	TRUNCATE settings;
	INSERT INTO settings SELECT hashint8extended(i, 0), 0 FROM generate_series(1, 20000) i;
	COMMIT;
	PERFORM cache_batch_stat_reset();
	LOOP
		INSERT INTO settings SELECT hashint8extended(statements * 10 + i, 1), 0 FROM generate_series(1, 10) i;
		COMMIT;
		statements := statements + 1;
		flushed := flushes_limit > 0 FROM cache_batch_stat_indexes WHERE indexrelname = 'settings_k';
		EXIT WHEN flushed OR statements = 2000;
	END LOOP;
	RAISE NOTICE 'limit %: %', current_setting('cache_batch.journal_limit'),
		CASE WHEN flushed THEN 'flushed' ELSE 'not flushed' END;
END $$;
SET cache_batch.journal_limit = '64kB';
CALL settings_journal();
SET cache_batch.journal_limit = '1GB';
CALL settings_journal();
RESET cache_batch.journal_limit;
SELECT cache_batch_verify('settings_k', true), cache_batch_verify('settings_k2', true);

DROP TABLE settings;
DROP FUNCTION settings_brought();
DROP PROCEDURE settings_bring, settings_journal;
