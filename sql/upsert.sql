-- INSERT ... ON CONFLICT: entries are staged as those of plain INSERT, and
-- index and table say the same (A1, U4).
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;

-- verifies all cachebatch indexes whose names begin like this; how many
CREATE FUNCTION upsert_verify(prefix text) RETURNS bigint LANGUAGE sql AS $$
	SELECT count(*) FROM (
		SELECT cache_batch_verify(indexrelid, true) FROM cache_batch_stat_indexes
		WHERE starts_with(indexrelname, prefix) OFFSET 0) v;
$$;
-- compares what the index on k gives with what the table gives
CREATE FUNCTION upsert_compare(rel text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index text;
	by_heap text;
	q text := format('SELECT string_agg(r::text, '' '' ORDER BY r.id) FROM %s r', rel);
BEGIN
	PERFORM set_config('enable_seqscan', 'off', true);
	EXECUTE q || ' WHERE k > -1000000' INTO by_index;
	PERFORM set_config('enable_seqscan', 'on', true);
	EXECUTE q INTO by_heap;
	IF by_index IS DISTINCT FROM by_heap THEN
		RETURN format('DIFFERENT: index %s, table %s', by_index, by_heap);
	END IF;
	RETURN by_heap;
END $$;

-- in batches: row by row all entries would go through the journal
CREATE TABLE usb (id int PRIMARY KEY, a int, b int, c int, d int);
CREATE INDEX usb_a ON usb USING cachebatch (a);
CREATE INDEX usb_b ON usb USING cachebatch (b);
CREATE INDEX usb_c ON usb USING cachebatch (c) WHERE c % 2 = 0;
CREATE INDEX usb_d ON usb USING cachebatch (d);
INSERT INTO usb SELECT i, i, -i, i, i / 10 FROM generate_series(1, 1000) i ON CONFLICT DO NOTHING;
SELECT indexrelname, staged, journaled, direct FROM cache_batch_stat_indexes WHERE relname = 'usb' ORDER BY 1;
INSERT INTO usb SELECT i, i, -i, i, i / 10 FROM generate_series(501, 1500) i
	ON CONFLICT (id) DO UPDATE SET d = usb.d + 1;
SELECT indexrelname, staged, journaled, direct FROM cache_batch_stat_indexes WHERE relname = 'usb' ORDER BY 1;
SELECT upsert_verify('usb_');
SELECT count(*), sum(d) FROM usb;

-- partitions in turn, more of them than pages are pinned at a time
CREATE TABLE usp (id int PRIMARY KEY, k int) PARTITION BY HASH (id);
DO $$ BEGIN
	FOR i IN 0..11 LOOP
		EXECUTE format('CREATE TABLE usp%s PARTITION OF usp FOR VALUES WITH (MODULUS 12, REMAINDER %s)', i, i);
	END LOOP;
END $$;
CREATE INDEX usp_k ON usp USING cachebatch (k);
INSERT INTO usp SELECT i, i FROM generate_series(1, 2000) i ON CONFLICT DO NOTHING;
SELECT count(*) AS indexes, sum(staged) AS staged, sum(direct) > 1000 AS batched
	FROM cache_batch_stat_indexes WHERE relname LIKE 'usp%';
INSERT INTO usp SELECT i, -i FROM generate_series(1901, 2100) i ON CONFLICT (id) DO UPDATE SET k = excluded.k;
SELECT upsert_verify('usp');
SELECT count(*), sum(k) FROM usp;

-- several tables and nestings in one statement
CREATE TABLE usw (id int PRIMARY KEY, k int);
CREATE INDEX usw_k ON usw USING cachebatch (k);
CREATE TABLE usv (LIKE usw INCLUDING INDEXES);
WITH w AS (INSERT INTO usw SELECT i % 20, i FROM generate_series(1, 30) i ON CONFLICT DO NOTHING RETURNING id, k),
	v AS (INSERT INTO usv SELECT id / 2, k FROM w ON CONFLICT (id) DO NOTHING RETURNING id)
	INSERT INTO usw SELECT 100 + id, 0 FROM v ON CONFLICT DO NOTHING;
SELECT upsert_compare('usw');
SELECT upsert_compare('usv');

-- triggers that look, insert and fail on the way
CREATE TABLE ust (id int PRIMARY KEY, k int, v text);
CREATE INDEX ust_k ON ust USING cachebatch (k);
CREATE FUNCTION upsert_row() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
	n bigint;
BEGIN
	SELECT count(*) INTO n FROM ust WHERE k >= 0;
	NEW.v = n;
	BEGIN
		INSERT INTO ust VALUES (NEW.id + 100, 0, 'nested'), (NEW.id + 200, 10 / (NEW.id % 3), 'nested')
			ON CONFLICT DO NOTHING;
	EXCEPTION WHEN division_by_zero THEN
		NEW.v = NEW.v || ' failed';
	END;
	RETURN NEW;
END $$;
CREATE TRIGGER upsert_row BEFORE INSERT ON ust FOR EACH ROW WHEN (NEW.v = 'outer') EXECUTE FUNCTION upsert_row();
INSERT INTO ust SELECT i, i, 'outer' FROM generate_series(1, 4) i ON CONFLICT (id) DO NOTHING;
INSERT INTO ust SELECT i, i * 10, 'outer' FROM generate_series(3, 6) i
	ON CONFLICT (id) DO UPDATE SET k = excluded.k, v = ust.v || ', ' || excluded.v;
SELECT upsert_compare('ust');
-- the whole statement fails, in a subtransaction and not
BEGIN;
SAVEPOINT s;
INSERT INTO ust SELECT i, 10 / (33 - i), 'error' FROM generate_series(30, 33) i ON CONFLICT DO NOTHING;
ROLLBACK TO s;
INSERT INTO ust SELECT i, i, 'kept' FROM generate_series(31, 33) i ON CONFLICT DO NOTHING;
COMMIT;
INSERT INTO ust SELECT i, 10 / (43 - i), 'error' FROM generate_series(40, 43) i ON CONFLICT DO NOTHING;
SELECT upsert_compare('ust');

-- nested deeper than pages are pinned
CREATE TABLE usr (id int PRIMARY KEY, k int);
CREATE INDEX usr_k ON usr USING cachebatch (k);
CREATE FUNCTION upsert_deeper() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO usr VALUES (NEW.id + 1, -NEW.id), (NEW.id + 2, -NEW.id), (NEW.id, 0) ON CONFLICT DO NOTHING;
	RETURN NEW;
END $$;
CREATE TRIGGER upsert_deeper BEFORE INSERT ON usr FOR EACH ROW
	WHEN (NEW.k <> 0 AND NEW.id % 2 = 0 AND NEW.id < 24) EXECUTE FUNCTION upsert_deeper();
INSERT INTO usr VALUES (1, 1), (2, 2) ON CONFLICT DO NOTHING;
SELECT upsert_compare('usr');

-- no page stays pinned: those of a new table go away under the transaction
CREATE FUNCTION upsert_truncate() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO usk VALUES (1, 1), (2, 2) ON CONFLICT DO NOTHING; RETURN NULL; END $$;
BEGIN;
CREATE TABLE usk (id int PRIMARY KEY, k int);
CREATE INDEX usk_k ON usk USING cachebatch (k);
CREATE TRIGGER upsert_truncate BEFORE TRUNCATE ON usk EXECUTE FUNCTION upsert_truncate();
TRUNCATE usk;
INSERT INTO usk VALUES (2, 3), (2, 4) ON CONFLICT DO NOTHING;
COMMIT;
SELECT upsert_compare('usk');

-- temporary and unlogged tables
CREATE TEMP TABLE usm (id int PRIMARY KEY, k int);
CREATE INDEX usm_k ON usm USING cachebatch (k);
INSERT INTO usm SELECT i % 500, i FROM generate_series(1, 1000) i ON CONFLICT DO NOTHING;
SELECT upsert_verify('usm_');
CREATE UNLOGGED TABLE usu (id int PRIMARY KEY, k int);
CREATE INDEX usu_k ON usu USING cachebatch (k);
INSERT INTO usu SELECT i % 500, i FROM generate_series(1, 1000) i ON CONFLICT DO NOTHING;
SELECT upsert_verify('usu_');
SELECT count(*), sum(k) FROM usm UNION ALL SELECT count(*), sum(k) FROM usu;

-- exclusion constraints: inserted first, looked for then (A15)
CREATE TABLE use (id int, k int, PRIMARY KEY (id), EXCLUDE USING cachebatch (k WITH =));
INSERT INTO use SELECT i, i % 10 FROM generate_series(1, 30) i ON CONFLICT DO NOTHING;
SELECT upsert_compare('use');

DROP TABLE usb, usp, usw, usv, ust, usr, usk, usm, usu, use;
DROP FUNCTION upsert_verify, upsert_compare, upsert_row, upsert_deeper, upsert_truncate;
