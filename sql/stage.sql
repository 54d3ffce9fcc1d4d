-- Staging: every row must be found through the index whenever it is visible.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;

-- compares what the index gives with what the table gives
CREATE FUNCTION stage_check(rel text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index text;
	by_heap text;
	n bigint;
	q text := format('SELECT string_agg(k || '':'' || v, '','' ORDER BY k, v) FROM %s WHERE k >= -1000000', rel);
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true);
	PERFORM set_config('enable_indexscan', 'on', true);
	EXECUTE q INTO by_index;
	PERFORM set_config('enable_seqscan', 'on', true);
	PERFORM set_config('enable_indexscan', 'off', true);
	PERFORM set_config('enable_bitmapscan', 'off', true);
	PERFORM set_config('enable_indexonlyscan', 'off', true);
	EXECUTE q INTO by_heap;
	EXECUTE format('SELECT count(*) FROM %s', rel) INTO n;
	PERFORM set_config('enable_indexscan', 'on', true);
	PERFORM set_config('enable_bitmapscan', 'on', true);
	PERFORM set_config('enable_indexonlyscan', 'on', true);
	IF by_index IS DISTINCT FROM by_heap THEN
		RETURN format('DIFFERENT: index %s, table %s', by_index, by_heap);
	END IF;
	RETURN format('same, %s rows', n);
END $$;

-- counts through the index, in whatever statement it is called from
CREATE FUNCTION stage_count(rel text) RETURNS bigint LANGUAGE plpgsql VOLATILE
	SET enable_seqscan = off AS $$
DECLARE
	n bigint;
BEGIN
	EXECUTE format('SELECT count(*) FROM %s WHERE k >= -1000000', rel) INTO n;
	RETURN n;
END $$;

CREATE TABLE st (k int, v text);
CREATE INDEX st_k ON st USING cachebatch (k);

-- statements
INSERT INTO st VALUES (1, 'a');
SELECT stage_check('st');
INSERT INTO st VALUES (3, 'c'), (2, 'b');
SELECT stage_check('st');
INSERT INTO st SELECT i, 'x' FROM generate_series(10, 40) i;
SELECT stage_check('st');
UPDATE st SET k = k + 100 WHERE k > 30;
SELECT stage_check('st');
DELETE FROM st WHERE k = 2;
SELECT stage_check('st');
COPY st FROM stdin;
200	copied
201	copied
\.
SELECT stage_check('st');
MERGE INTO st USING (VALUES (1), (300)) s (k) ON st.k = s.k
	WHEN MATCHED THEN UPDATE SET k = 301
	WHEN NOT MATCHED THEN INSERT VALUES (s.k, 'merged');
SELECT stage_check('st');
WITH ins AS (INSERT INTO st VALUES (400, 'cte'), (401, 'cte') RETURNING k)
	SELECT k FROM ins LIMIT 1;
SELECT stage_check('st');
-- a CTE that nobody reads runs when the executor finishes (U2)
WITH ins AS (INSERT INTO st VALUES (402, 'cte')) SELECT 1 AS one;
SELECT stage_check('st');

-- a function sees the rows that its own statement has inserted before (I3)
INSERT INTO st SELECT 500 + i, stage_count('st')::text FROM generate_series(1, 4) i
	RETURNING k, v;
-- and rows deleted by it are gone
DELETE FROM st WHERE k > 500 RETURNING stage_count('st');
SELECT stage_check('st');

-- prepared statement, DO, EXPLAIN ANALYZE, SQL function
PREPARE st_ins (int) AS INSERT INTO st VALUES ($1, 'prepared');
EXECUTE st_ins (600);
DO $$ BEGIN INSERT INTO st VALUES (601, 'do'); ASSERT stage_count('st') > 0; END $$;
CREATE FUNCTION stage_sql(int) RETURNS bigint LANGUAGE sql AS
	$$ INSERT INTO st VALUES ($1, 'sql'); SELECT stage_count('st'); $$;
SELECT stage_sql(602) - stage_sql(603) AS difference;
SELECT stage_check('st');

-- sub-transactions: one function with nested exception blocks (A9, U1)
CREATE FUNCTION stage_nested(base int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	trace text := '';
BEGIN
	INSERT INTO st VALUES (base, 'outer');
	BEGIN
		INSERT INTO st VALUES (base + 1, 'kept');
		BEGIN
			INSERT INTO st VALUES (base + 2, 'lost');
			BEGIN
				INSERT INTO st VALUES (base + 3, 'lost with its parent');
			EXCEPTION WHEN OTHERS THEN
				trace := trace || 'wrong ';
			END;
			RAISE EXCEPTION 'inner';
		EXCEPTION WHEN raise_exception THEN
			trace := trace || 'inner ';
		END;
		INSERT INTO st VALUES (base + 4, 'kept');
	EXCEPTION WHEN OTHERS THEN
		trace := trace || 'wrong ';
	END;
	INSERT INTO st VALUES (base + 5, 'outer');
	RETURN trace || stage_count('st');
END $$;
SELECT stage_nested(700);
SELECT stage_check('st');
-- the same called for each row of an INSERT
INSERT INTO st SELECT 800 + 10 * i, stage_nested(801 + 10 * i) FROM generate_series(0, 2) i;
SELECT stage_check('st');
SELECT k, v FROM st WHERE k BETWEEN 800 AND 899 ORDER BY k;

CREATE FUNCTION stage_fails(k int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO st VALUES (k, 'inner');
	IF k % 2 = 0 THEN
		RAISE EXCEPTION 'even';
	END IF;
	RETURN k;
EXCEPTION WHEN raise_exception THEN
	RETURN -k;
END $$;
INSERT INTO st SELECT stage_fails(i), 'outer' FROM generate_series(900, 905) i;
SELECT stage_check('st');
SELECT k, v FROM st WHERE abs(k) BETWEEN 900 AND 905 ORDER BY k, v;

-- many levels
CREATE FUNCTION stage_deep(level int) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO st VALUES (1000 + level, 'deep');
	IF level < 15 THEN
		PERFORM stage_deep(level + 1);
	END IF;
	IF level % 4 = 3 THEN
		RAISE EXCEPTION 'deep';
	END IF;
	RETURN level;
EXCEPTION WHEN raise_exception THEN
	RETURN -level;
END $$;
INSERT INTO st SELECT 1100 + stage_deep(1), 'top';
SELECT stage_check('st');
SELECT k FROM st WHERE k BETWEEN 1000 AND 1199 ORDER BY k;

-- savepoints
BEGIN;
INSERT INTO st VALUES (1200, 'kept');
SAVEPOINT a;
INSERT INTO st VALUES (1201, 'lost');
SAVEPOINT b;
INSERT INTO st VALUES (1202, 'lost');
RELEASE b;
ROLLBACK TO a;
INSERT INTO st VALUES (1203, 'kept');
RELEASE a;
SELECT stage_check('st');
COMMIT;
SELECT stage_check('st');
SELECT k FROM st WHERE k BETWEEN 1200 AND 1299 ORDER BY k;
BEGIN;
INSERT INTO st VALUES (1300, 'lost');
ROLLBACK;
SELECT stage_check('st');

-- a statement that fails half-way
INSERT INTO st SELECT 1400 + 10 / (5 - i), 'lost' FROM generate_series(1, 6) i;
SELECT stage_check('st');

-- cursors over a function that inserts
CREATE FUNCTION stage_ins(k int) RETURNS int LANGUAGE plpgsql VOLATILE AS
	$$ BEGIN INSERT INTO st VALUES (k, 'cursor'); RETURN k; END $$;
BEGIN;
DECLARE c CURSOR FOR SELECT stage_ins(i) FROM generate_series(1500, 1510) i;
FETCH 2 FROM c;
SELECT stage_check('st');
FETCH 3 FROM c;
SAVEPOINT a;
FETCH 1 FROM c;
SELECT stage_check('st');
ROLLBACK TO a;
SELECT stage_check('st');
COMMIT;
SELECT stage_check('st');
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT stage_ins(i) FROM generate_series(1520, 1522) i;
COMMIT;
SELECT stage_check('st');
CLOSE c;
CREATE FUNCTION stage_loop() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r record;
	n text := '';
BEGIN
	FOR r IN INSERT INTO st SELECT i, 'loop' FROM generate_series(1530, 1532) i RETURNING k LOOP
		n := n || r.k || '/' || stage_count('st') || ' ';
		INSERT INTO st VALUES (r.k + 10, 'loop');
	END LOOP;
	RETURN n;
END $$;
SELECT stage_loop();
SELECT stage_check('st');

-- procedures that end transactions
CREATE PROCEDURE stage_proc() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..6 LOOP
		INSERT INTO st VALUES (1600 + i, 'proc');
		IF i % 3 = 0 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
	END LOOP;
	INSERT INTO st VALUES (1610, 'proc');
END $$;
CALL stage_proc();
SELECT stage_check('st');
SELECT k FROM st WHERE k BETWEEN 1600 AND 1699 ORDER BY k;

-- triggers: AFTER in the statement, and at COMMIT
CREATE TABLE std (k int, v text);
CREATE INDEX std_k ON std USING cachebatch (k);
CREATE FUNCTION stage_trigger() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO std VALUES (NEW.k, TG_NAME || ' ' || stage_count('std')); RETURN NULL; END $$;
CREATE TABLE stt (k int, v text);
CREATE INDEX stt_k ON stt USING cachebatch (k);
CREATE TRIGGER now AFTER INSERT ON stt FOR EACH ROW EXECUTE FUNCTION stage_trigger();
CREATE CONSTRAINT TRIGGER late AFTER INSERT ON stt DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION stage_trigger();
BEGIN;
INSERT INTO stt VALUES (1, 'x'), (2, 'x');
SELECT * FROM std ORDER BY k, v;
COMMIT;
SELECT * FROM std ORDER BY v;
SELECT stage_check('std'), stage_check('stt');

-- speculative insertion (A1, U4)
CREATE TABLE stc (id int PRIMARY KEY, k int, v text);
CREATE INDEX stc_k ON stc USING cachebatch (k);
INSERT INTO stc SELECT i, i, 'new' FROM generate_series(1, 10) i;
INSERT INTO stc SELECT i, i * 10, 'again' FROM generate_series(5, 15) i ON CONFLICT DO NOTHING;
SELECT stage_check('stc');
INSERT INTO stc SELECT i, i * 100, 'again' FROM generate_series(14, 17) i
	ON CONFLICT (id) DO UPDATE SET k = excluded.k, v = stage_count('stc');
SELECT stage_check('stc');
WITH up AS (INSERT INTO stc VALUES (17, 1, 'w'), (18, 2, 'w') ON CONFLICT (id) DO UPDATE SET v = 'cte')
	SELECT 1 AS one;
SELECT stage_check('stc');
SELECT id, k, v FROM stc WHERE id > 13 ORDER BY id;

-- the index changes under the transaction (A3)
CREATE TABLE sti (k int, v text);
CREATE INDEX sti_k ON sti USING cachebatch (k);
BEGIN;
TRUNCATE sti;
INSERT INTO sti VALUES (10, 'first');
TRUNCATE sti;
INSERT INTO sti VALUES (20, 'second');
COMMIT;
SELECT stage_check('sti');
SELECT * FROM sti WHERE k >= 0;
BEGIN;
INSERT INTO sti VALUES (30, 'kept');
SAVEPOINT a;
TRUNCATE sti;
INSERT INTO sti VALUES (40, 'lost');
SELECT stage_check('sti');
ROLLBACK TO a;
SELECT stage_check('sti');
COMMIT;
SELECT stage_check('sti');
-- all in one statement, in a function
CREATE FUNCTION stage_truncate(fail bool) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO sti VALUES (50, 'before');
	BEGIN
		TRUNCATE sti;
		INSERT INTO sti VALUES (60, 'between');
		TRUNCATE sti;
		INSERT INTO sti VALUES (70, 'after');
		IF fail THEN
			RAISE EXCEPTION 'undo';
		END IF;
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
	RETURN stage_check('sti');
END $$;
INSERT INTO st SELECT 1700, stage_truncate(true);
SELECT v FROM st WHERE k = 1700;
SELECT stage_check('sti');
INSERT INTO st SELECT 1701, stage_truncate(false);
SELECT v FROM st WHERE k = 1701;
SELECT stage_check('sti');
CREATE FUNCTION stage_reindex() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO sti VALUES (80, 'before');
	REINDEX INDEX sti_k;
	INSERT INTO sti VALUES (81, 'after');
	CLUSTER sti USING sti_k;
	INSERT INTO sti VALUES (82, 'after');
	ALTER TABLE sti ALTER v TYPE varchar;
	INSERT INTO sti VALUES (83, 'after');
	ALTER TABLE sti SET UNLOGGED;
	INSERT INTO sti VALUES (84, 'after');
	ALTER TABLE sti SET LOGGED;
	INSERT INTO sti VALUES (85, 'after');
	RETURN stage_check('sti');
END $$;
INSERT INTO st SELECT 1702, stage_reindex();
SELECT v FROM st WHERE k = 1702;
SELECT stage_check('sti'), stage_check('st');

-- and goes away (C3)
BEGIN;
INSERT INTO sti VALUES (90, 'x');
DROP INDEX sti_k;
COMMIT;
BEGIN;
CREATE INDEX sti_k ON sti USING cachebatch (k);
INSERT INTO sti VALUES (91, 'x');
SELECT stage_check('sti');
DROP TABLE sti;
COMMIT;
CREATE FUNCTION stage_drop(fail bool) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO stx VALUES (1, 'x');
	BEGIN
		DROP INDEX stx_k;
		INSERT INTO stx VALUES (2, 'no index');
		IF fail THEN
			RAISE EXCEPTION 'undo';
		END IF;
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
	INSERT INTO stx VALUES (3, 'x');
	RETURN stage_check('stx');
END $$;
CREATE TABLE stx (k int, v text);
CREATE INDEX stx_k ON stx USING cachebatch (k);
INSERT INTO st SELECT 1703, stage_drop(true);
SELECT stage_check('stx');
INSERT INTO st SELECT 1704, stage_drop(false);
SELECT stage_check('stx'), stage_check('st');
SELECT v FROM st WHERE k IN (1703, 1704) ORDER BY k;

-- rebuilt or dropped by the very command whose event trigger has inserted (A3, C3)
CREATE TABLE stv (k int, v text);
CREATE INDEX stv_k ON stv USING cachebatch (k);
INSERT INTO stv SELECT i, 'x' FROM generate_series(1, 10) i;
DELETE FROM stv WHERE k < 6;
CREATE FUNCTION stage_event() RETURNS event_trigger LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO stv VALUES (99, TG_TAG); END $$;
CREATE EVENT TRIGGER stage_event ON ddl_command_start
	WHEN TAG IN ('ALTER TABLE', 'DROP INDEX') EXECUTE FUNCTION stage_event();
ALTER TABLE stv ALTER v TYPE varchar(20) USING upper(v);
INSERT INTO stv SELECT i, 'y' FROM generate_series(100, 120) i;
SELECT stage_check('stv');
SELECT * FROM stv WHERE k = 99;
DROP INDEX stv_k;
SELECT * FROM stv WHERE k = 99;
DROP EVENT TRIGGER stage_event;
DROP TABLE stv;
DROP FUNCTION stage_event;

-- exclusion constraint (A15)
CREATE TABLE ste (k int, v text, EXCLUDE USING cachebatch (k WITH =));
INSERT INTO ste VALUES (1, 'a'), (2, 'b');
INSERT INTO ste VALUES (3, 'c'), (4, 'd'), (3, 'e');
INSERT INTO ste VALUES (2, 'c');
UPDATE ste SET k = 1 WHERE k = 2;
BEGIN;
DELETE FROM ste WHERE k = 1;
INSERT INTO ste VALUES (1, 'again');
COMMIT;
INSERT INTO ste VALUES (2, 'z'), (5, 'f') ON CONFLICT DO NOTHING;
SELECT stage_check('ste');
SELECT * FROM ste ORDER BY k;
ALTER TABLE ste DROP CONSTRAINT ste_k_excl,
	ADD EXCLUDE USING cachebatch (k WITH =) DEFERRABLE INITIALLY DEFERRED;
BEGIN;
INSERT INTO ste VALUES (1, 'twice');
UPDATE ste SET k = k + 10 WHERE v = 'twice';
COMMIT;
BEGIN;
INSERT INTO ste VALUES (2, 'twice');
COMMIT;
SELECT stage_check('ste');

-- full stages, one index and many (C10)
SET cache_batch.stage_size = 8;
INSERT INTO st SELECT 10000 + (i * 7919) % 5000, 'bulk' FROM generate_series(1, 5000) i;
SELECT stage_check('st');
RESET cache_batch.stage_size;
CREATE TABLE stp (k int, v text) PARTITION BY LIST (k);
DO $$ BEGIN
	FOR i IN 0..39 LOOP
		EXECUTE format('CREATE TABLE stp%s PARTITION OF stp FOR VALUES IN (%s)', i, i);
	END LOOP;
END $$;
CREATE INDEX stp_k ON stp USING cachebatch (k);
SET cache_batch.stage_total_size = 64;
INSERT INTO stp SELECT i % 40, i::text FROM generate_series(1, 20000) i;
SELECT stage_check('stp');
UPDATE stp SET k = (k + 1) % 40 WHERE k < 10;
SELECT stage_check('stp');
RESET cache_batch.stage_total_size;

-- ascending and random bulk loads, tables without a journal
CREATE TABLE stu (k int, v text) WITH (autovacuum_enabled = off);
CREATE INDEX stu_k ON stu USING cachebatch (k) WITH (buffered = off);
INSERT INTO stu SELECT i, 'asc' FROM generate_series(1, 3000) i;
INSERT INTO stu SELECT (i * 7919) % 3000, 'random' FROM generate_series(1, 3000) i;
INSERT INTO stu VALUES (1, 'one');
SELECT stage_check('stu');
ALTER INDEX stu_k SET (buffered = on);
INSERT INTO stu SELECT i, 'asc' FROM generate_series(3000, 6000) i;
INSERT INTO stu VALUES (1, 'two');
SELECT stage_check('stu');
CREATE TEMP TABLE stm (k int, v text);
CREATE INDEX stm_k ON stm USING cachebatch (k);
INSERT INTO stm SELECT i, 'x' FROM generate_series(1, 3000) i;
INSERT INTO stm VALUES (1, 'one');
BEGIN;
SAVEPOINT a;
INSERT INTO stm VALUES (2, 'lost');
ROLLBACK TO a;
INSERT INTO stm VALUES (3, 'kept');
COMMIT;
SELECT stage_check('stm');
CREATE UNLOGGED TABLE stn (k int, v text);
CREATE INDEX stn_k ON stn USING cachebatch (k);
INSERT INTO stn SELECT (i * 7919) % 3000, 'x' FROM generate_series(1, 3000) i;
INSERT INTO stn VALUES (1, 'one');
SELECT stage_check('stn');

-- a parallel worker sees what its leader has inserted (A14)
CREATE TABLE stw (k int, v text);
CREATE INDEX stw_k ON stw USING cachebatch (k);
CREATE FUNCTION stage_parallel(i int) RETURNS text LANGUAGE plpgsql VOLATILE
	SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
	n bigint;
BEGIN
	INSERT INTO stw VALUES (i, 'x');
	EXECUTE 'SELECT count(*) FROM stw WHERE k >= 0' INTO n;
	RETURN n;
END $$;
-- before version 16 it has another name
DO $$ BEGIN
	EXECUTE (SELECT format('ALTER FUNCTION stage_parallel SET %I = on', name) FROM pg_settings
			 WHERE name IN ('force_parallel_mode', 'debug_parallel_query'));
END $$;
INSERT INTO st SELECT 1800 + i, stage_parallel(i) FROM generate_series(1, 4) i RETURNING v;
SELECT stage_check('stw');

-- serializable, nothing in the way
BEGIN ISOLATION LEVEL SERIALIZABLE;
INSERT INTO st VALUES (1900, 'x');
SELECT stage_check('st');
COMMIT;

-- too large an entry is the statement's error, not COMMIT's (C8)
CREATE TABLE stl (k text);
CREATE INDEX stl_k ON stl USING cachebatch (k);
\set VERBOSITY terse
DO $$
BEGIN
	INSERT INTO stl SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i;
EXCEPTION WHEN program_limit_exceeded THEN
	RAISE WARNING 'too large, as expected';
END $$;
\set VERBOSITY default

-- each subtransaction publishes or drops its own entries, whichever of the
-- indexes was staged for last (U1)
CREATE TABLE sta (k int4, v text);
CREATE INDEX sta_k ON sta USING cachebatch (k);
CREATE TABLE stb (k int4, v text);
CREATE INDEX stb_k ON stb USING cachebatch (k);
DO $$
BEGIN
	INSERT INTO sta VALUES (1, 'outer');
	INSERT INTO stb VALUES (1, 'outer');
	BEGIN
		INSERT INTO sta VALUES (2, 'kept');
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
	BEGIN
		INSERT INTO stb VALUES (3, 'dropped');
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
	BEGIN
		INSERT INTO stb VALUES (4, 'kept');
		BEGIN
			INSERT INTO sta VALUES (5, 'dropped');
			PERFORM 1 / 0;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
		INSERT INTO sta VALUES (6, 'kept');
	EXCEPTION WHEN division_by_zero THEN NULL;
	END;
END $$;
SELECT rel, stage_check(rel) FROM unnest('{sta,stb}'::text[]) rel;

-- the comparison function must not use the index that it compares for (C11)
CREATE TABLE stz (k int4, v text);
CREATE FUNCTION stage_cmp(int, int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF current_setting('stage.bad', true) = 'scan' THEN
		PERFORM count(*) FROM stz WHERE k >= 0;
	ELSIF current_setting('stage.bad', true) = 'error' THEN
		RAISE EXCEPTION 'comparison fails';
	ELSIF current_setting('stage.bad', true) = 'insert' THEN
		INSERT INTO stz VALUES (1, 'by comparison');
	END IF;
	RETURN btint4cmp($1, $2);
END $$;
CREATE OPERATOR CLASS stage_int_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 stage_cmp(int, int);
CREATE INDEX stz_k ON stz USING cachebatch (k stage_int_ops) WITH (buffered = on);
INSERT INTO stz SELECT i, 'x' FROM generate_series(1, 40) i;
SELECT stage_check('stz');
SET enable_seqscan = off;
SET stage.bad = 'scan';
\set VERBOSITY terse
INSERT INTO stz SELECT i, 'y' FROM generate_series(1, 40) i;
\set VERBOSITY default
SET stage.bad = 'insert';
\set VERBOSITY terse
INSERT INTO stz SELECT i, 'y' FROM generate_series(1, 40) i;
\set VERBOSITY default
SET stage.bad = 'error';
\set VERBOSITY terse
INSERT INTO stz SELECT i, 'y' FROM generate_series(1, 40) i;
\set VERBOSITY default
RESET stage.bad;
RESET enable_seqscan;
SELECT stage_check('stz');

-- everything once more after VACUUM
VACUUM st, std, stt, stc, stp, stu, stm, stn, stw, stx, stz, sta, stb;
SELECT rel, stage_check(rel) FROM unnest('{st,std,stt,stc,stp,stu,stm,stn,stw,stx,ste,stz,sta,stb}'::text[]) rel;

DROP TABLE st, std, stt, stc, stx, ste, stp, stu, stm, stn, stw, stl, stz, sta, stb;
DROP FUNCTION stage_check, stage_count, stage_sql, stage_nested, stage_fails, stage_deep,
	stage_ins, stage_loop, stage_trigger, stage_truncate, stage_reindex, stage_drop, stage_parallel;
DROP PROCEDURE stage_proc;
DROP OPERATOR FAMILY stage_int_ops USING cachebatch;
DROP FUNCTION stage_cmp;
