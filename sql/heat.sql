-- Heat: which leaves were read and written
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

-- an index of two blocks, one of them a leaf
CREATE TABLE heat (a int) WITH (autovacuum_enabled = off);
INSERT INTO heat SELECT generate_series(1, 100);
CREATE INDEX heat_a ON heat USING cachebatch (a) WITH (buffered = off);
CREATE INDEX heat_b ON heat USING btree (a);

CREATE VIEW heat_ages AS
SELECT max_age, blocks_read, blocks_written
FROM cache_batch_stat_heat WHERE indexrelname = 'heat_a';

-- a backend samples one of 127 reads at least, and one of 15 writes, but for the
-- first: after so many a leaf was accessed
CREATE PROCEDURE heat_read(query text) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 128 LOOP
		EXECUTE query;
	END LOOP;
END $$;
CREATE PROCEDURE heat_write(flush boolean) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 16 LOOP
		INSERT INTO heat VALUES (10);
		COMMIT;
		PERFORM cache_batch_flush('heat_a') WHERE flush;
		COMMIT;
	END LOOP;
END $$;

-- another file; one more if its leaves share slots with those of another index
CREATE PROCEDURE heat_rebuild() LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. 5 LOOP
		REINDEX INDEX heat_a;
		EXIT WHEN NOT EXISTS (SELECT FROM heat_ages WHERE max_age = 0);
	END LOOP;
END $$;
CALL heat_rebuild();

-- a build is no access, and neither are VACUUM, verification and inspection
SELECT * FROM heat_ages;
CALL heat_read($$SELECT cache_batch_verify('heat_a', true)$$);
CALL heat_read($$SELECT count(*) FROM cache_batch_page_items('heat_a', 1)$$);
DELETE FROM heat WHERE a % 2 = 0;
VACUUM heat;
SELECT * FROM heat_ages;

-- by index, backward, by bitmap, by an array
SET enable_seqscan = off;
SET enable_bitmapscan = off;
DROP INDEX heat_b;
CALL heat_read('SELECT count(*) FROM heat WHERE a = 5');
SELECT * FROM heat_ages;
CALL heat_rebuild();
SELECT * FROM heat_ages;
CALL heat_read('SELECT a FROM heat WHERE a < 9 ORDER BY a DESC');
SELECT * FROM heat_ages;
CALL heat_rebuild();
CALL heat_read('SELECT count(*) FROM heat WHERE a = ANY (ARRAY[1, 3, 5])');
SELECT * FROM heat_ages;
CALL heat_rebuild();
SET enable_indexscan = off;
SET enable_bitmapscan = on;
CALL heat_read('SELECT count(*) FROM heat WHERE a = 5');
SELECT * FROM heat_ages;
RESET enable_indexscan;

-- written at once
CALL heat_write(false);
SELECT * FROM heat_ages;

-- from buckets and journal it is the flush that writes
ALTER INDEX heat_a SET (buffered = on);
CALL heat_rebuild();
CALL heat_write(false);
SELECT * FROM heat_ages;
CALL heat_write(true);
SELECT * FROM heat_ages;

-- who may look
CREATE ROLE regress_heat;
SET ROLE regress_heat;
SELECT count(*) FROM cache_batch_stat_heat WHERE indexrelname = 'heat_a';
RESET ROLE;
DROP ROLE regress_heat;

-- only of cachebatch indexes that are there
CREATE INDEX heat_b ON heat USING btree (a);
SELECT count(*) FROM cache_batch_stat_heat WHERE indexrelname = 'heat_b';
SELECT * FROM cache_batch_stat_get_heat('heat'::regclass);
SELECT * FROM cache_batch_stat_get_heat('heat_b'::regclass);
SELECT * FROM cache_batch_stat_get_heat(0);
SELECT * FROM cache_batch_stat_get_heat(NULL);

DROP VIEW heat_ages;
DROP PROCEDURE heat_read, heat_write, heat_rebuild;
DROP TABLE heat;
