-- Staging when things fail: needs a build with TESTPOINTS=1.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;

CREATE FUNCTION points_check() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index text;
	by_heap text;
	q text := 'SELECT string_agg(k::text, '','' ORDER BY k) FROM sp WHERE k >= 0';
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true);
	EXECUTE q INTO by_index;
	PERFORM set_config('enable_seqscan', 'on', true);
	PERFORM set_config('enable_indexscan', 'off', true);
	PERFORM set_config('enable_bitmapscan', 'off', true);
	PERFORM set_config('enable_indexonlyscan', 'off', true);
	EXECUTE q INTO by_heap;
	PERFORM set_config('enable_indexscan', 'on', true);
	PERFORM set_config('enable_bitmapscan', 'on', true);
	PERFORM set_config('enable_indexonlyscan', 'on', true);
	IF by_index IS DISTINCT FROM by_heap THEN
		RETURN format('DIFFERENT: index %s, table %s', by_index, by_heap);
	END IF;
	RETURN by_heap;
END $$;
CREATE TABLE sp (k int);
CREATE INDEX sp_k ON sp USING cachebatch (k);

-- the setting
SET cache_batch.test_points = 'publish-start';
SET cache_batch.test_points = 'publish-start=halt';
SET cache_batch.test_points = 'publish-start=wait:x';
SET cache_batch.test_points = 'publish-start=count, publish-done=count';
INSERT INTO sp VALUES (1), (2);
SHOW cache_batch.test_point_hits;

-- an error at each point
SET cache_batch.test_points = 'stage-insert=error:2';
INSERT INTO sp VALUES (10), (11);
SET cache_batch.test_points = 'publish-start=error';
INSERT INTO sp VALUES (12), (13);
SET cache_batch.test_points = 'publish-sorted=error';
INSERT INTO sp VALUES (14), (15);
INSERT INTO sp SELECT 1000 FROM generate_series(1, 50);
SET cache_batch.test_points = 'publish-appended=error';
INSERT INTO sp VALUES (16), (17);
INSERT INTO sp SELECT 1000 FROM generate_series(1, 50);
SET cache_batch.test_points = 'publish-done=error';
INSERT INTO sp VALUES (18), (19);
RESET cache_batch.test_points;
BEGIN;
SET LOCAL cache_batch.test_points = 'precommit-published=error';
INSERT INTO sp VALUES (20), (21);
COMMIT;
BEGIN;
SET LOCAL cache_batch.test_points = 'precommit-published=error';
INSERT INTO sp VALUES (22), (23);
PREPARE TRANSACTION 'sp';
SELECT points_check();

-- an exception block catches it, and nothing else is lost (A9, U1)
CREATE FUNCTION points_block(base int, point text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	trace text := '';
BEGIN
	INSERT INTO sp VALUES (base);
	BEGIN
		INSERT INTO sp VALUES (base + 1);
		BEGIN
			INSERT INTO sp VALUES (base + 2);
			PERFORM set_config('cache_batch.test_points', point, true);
			-- published when the block ends
		EXCEPTION WHEN OTHERS THEN
			trace := trace || 'caught ';
		END;
		INSERT INTO sp VALUES (base + 3);
	EXCEPTION WHEN OTHERS THEN
		trace := trace || 'caught outside ';
	END;
	PERFORM set_config('cache_batch.test_points', '', true);
	INSERT INTO sp VALUES (base + 4);
	RETURN trace;
END $$;
SELECT points_block(100, 'publish-start=error:1');
SELECT points_check();
SELECT points_block(110, 'publish-sorted=error:1');
SELECT points_check();
SELECT points_block(120, 'publish-appended=error:1');
SELECT points_check();
SELECT points_block(130, 'publish-start=error:2');
SELECT points_check();
SELECT points_block(140, 'stage-insert=error:1');
SELECT points_check();

-- within one statement that goes on
CREATE FUNCTION points_full(base int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO sp SELECT base + i FROM generate_series(1, 1000) i;
	RETURN 0;
EXCEPTION WHEN OTHERS THEN
	RETURN -1;
END $$;
SET cache_batch.stage_size = 8;
SET cache_batch.test_points = 'publish-appended=error:2';
INSERT INTO sp VALUES (200), (201 + points_full(3000)), (202);
RESET cache_batch.test_points;
RESET cache_batch.stage_size;
SELECT points_check();

-- ON CONFLICT publishes once, as plain INSERT does (A1, U4)
CREATE TABLE spc (id int PRIMARY KEY, k int);
CREATE INDEX spc_k ON spc USING cachebatch (k);
SET cache_batch.test_points = 'publish-start=count';
INSERT INTO spc SELECT i, i FROM generate_series(1, 5) i;
SHOW cache_batch.test_point_hits;
INSERT INTO spc SELECT i, i FROM generate_series(4, 8) i ON CONFLICT DO NOTHING;
SHOW cache_batch.test_point_hits;
WITH x AS (INSERT INTO spc VALUES (9, 9), (10, 10) ON CONFLICT DO NOTHING) SELECT 1 AS one;
SHOW cache_batch.test_point_hits;
INSERT INTO spc SELECT i, i FROM generate_series(1001, 2000) i ON CONFLICT DO NOTHING;
SHOW cache_batch.test_point_hits;
-- of an exclusion constraint each row's entry, for the scan that follows (A15)
CREATE TABLE spx (k int, EXCLUDE USING cachebatch (k WITH =));
INSERT INTO spx SELECT i FROM generate_series(1, 5) i ON CONFLICT DO NOTHING;
SHOW cache_batch.test_point_hits;
-- COPY and others too
SET cache_batch.test_points = 'publish-start=count';
COPY spc FROM stdin;
21	21
22	22
23	23
\.
UPDATE spc SET k = k + 1;
SHOW cache_batch.test_point_hits;

-- aborting does not publish
SET cache_batch.test_points = 'publish-start=count,abort-drop=count';
INSERT INTO spc SELECT i, 10 / (33 - i) FROM generate_series(31, 33) i;
SHOW cache_batch.test_point_hits;
RESET cache_batch.test_points;

-- entries staged behind the back of our own commit callback (a library that
-- was loaded earlier gets its callback later: A8)
CREATE FUNCTION cache_batch_test_point(name text) RETURNS void LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO sp VALUES (5000), (5001); END $$;
CREATE PROCEDURE points_commit() LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO sp VALUES (4000);
	PERFORM set_config('cache_batch.test_points', 'precommit-published=call', true);
	COMMIT;
	INSERT INTO sp VALUES (4001);
END $$;
CALL points_commit();
SELECT points_check();
BEGIN;
INSERT INTO sp VALUES (4002);
SET LOCAL cache_batch.test_points = 'precommit-published=call';
PREPARE TRANSACTION 'sp';
COMMIT PREPARED 'sp';
SELECT points_check();
DROP FUNCTION cache_batch_test_point;

-- a dense batch goes to the tree, a scattered or small one to the journal
SET cache_batch.test_points = 'journal-append-before=count';
CREATE TABLE spd (k int);
CREATE INDEX spd_k ON spd USING cachebatch (k);
INSERT INTO spd SELECT i FROM generate_series(1, 20000) i;
SHOW cache_batch.test_point_hits;
INSERT INTO spd SELECT i * 500 FROM generate_series(1, 40) i;
SHOW cache_batch.test_point_hits;
INSERT INTO spd VALUES (1);
SHOW cache_batch.test_point_hits;
RESET cache_batch.test_points;

-- a long journal is swept in pieces, as maintenance_work_mem says
SET cache_batch.test_buckets = off;
SET cache_batch.journal_limit = '1GB';
SET maintenance_work_mem = '1MB';
CREATE TABLE swept (k bigint);
INSERT INTO swept SELECT hashint8extended(i, 1) FROM generate_series(1, 200000) i;
CREATE INDEX swept_k ON swept USING cachebatch (k);
INSERT INTO swept SELECT hashint8extended(i, 2) FROM generate_series(1, 60000) i;
SELECT count(*) > 64 AS long FROM cache_batch_journal('swept_k');
SELECT cache_batch_flush('swept_k');
SELECT flushes_request > 1 AS in_pieces, flushed = journaled AS all_of_it
FROM cache_batch_stat_indexes WHERE indexrelname = 'swept_k';
SELECT cache_batch_verify('swept_k', true);
DROP TABLE swept;

DROP TABLE sp, spc, spx, spd;
DROP FUNCTION points_check, points_block, points_full;
DROP PROCEDURE points_commit;

-- a cursor turns round where a window was cut short: the journal has entries
-- beyond, which the leaf has as well
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;
BEGIN;
CREATE TABLE stage_turn (k int);
INSERT INTO stage_turn SELECT i FROM generate_series(1, 2000) i;
CREATE INDEX stage_turn_k ON stage_turn USING cachebatch (k);
INSERT INTO stage_turn VALUES (1500), (1600);
SELECT nentries FROM cache_batch_journal('stage_turn_k');
SET LOCAL cache_batch.test_points = 'sweep-applied=error';
SAVEPOINT s;
SELECT cache_batch_flush('stage_turn_k');
ROLLBACK TO s;
SET LOCAL cache_batch.test_points = '';
DECLARE c SCROLL CURSOR FOR SELECT k FROM stage_turn WHERE k > 0 ORDER BY k;
MOVE 130 FROM c;
FETCH BACKWARD 4 FROM c;
ROLLBACK;
RESET enable_seqscan;
RESET enable_sort;
RESET enable_bitmapscan;

-- the planner guesses by the ends of an index, from version 18 on, and publishes nothing
CREATE TABLE stage_guess (k int) WITH (autovacuum_enabled = off);
INSERT INTO stage_guess SELECT i FROM generate_series(1, 1000) i;
CREATE INDEX stage_guess_k ON stage_guess USING cachebatch (k);
ANALYZE stage_guess;
CREATE FUNCTION stage_plan(k int) RETURNS int LANGUAGE plpgsql VOLATILE
	SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS $$
BEGIN
	EXECUTE 'SELECT count(*) FROM stage_guess WHERE k > 1000000';
	RETURN k;
END $$;
SET cache_batch.test_points = 'publish-start=count';
INSERT INTO stage_guess SELECT stage_plan(i) FROM generate_series(2001, 2010) i;
SHOW cache_batch.test_point_hits;
RESET cache_batch.test_points;
SELECT max(k) FROM stage_guess;
DROP TABLE stage_guess;
DROP FUNCTION stage_plan;
