-- Who has found the journal of an index empty does not look again because entries
-- are published to other indexes; but does when they are to this one
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET enable_seqscan = off;
SET enable_bitmapscan = off;

CREATE TABLE quiet (k int) WITH (autovacuum_enabled = off);
INSERT INTO quiet SELECT generate_series(1, 20000);
CREATE INDEX quiet_k ON quiet USING cachebatch (k);

-- pages of the index and the table that a look-up reads
CREATE FUNCTION quiet_pages(OUT pages int) LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT * FROM quiet WHERE k = 777'
		INTO plan;
	pages := plan->0->'Plan'->>'Shared Hit Blocks';
END $$;
SELECT FROM quiet_pages();
SELECT FROM quiet_pages();
SELECT pages AS usual FROM quiet_pages() \gset

-- another index, which has no buckets as it is new in the transaction
BEGIN;
CREATE TABLE quiet_new (k int) WITH (autovacuum_enabled = off);
CREATE INDEX quiet_new_k ON quiet_new USING cachebatch (k);
INSERT INTO quiet_new VALUES (1);
SELECT pages - :usual AS more FROM quiet_pages();
INSERT INTO quiet_new VALUES (2);
SELECT pages - :usual AS more FROM quiet_pages();
COMMIT;

-- another one that gets buckets
INSERT INTO quiet_new VALUES (3);
SELECT pages - :usual AS more FROM quiet_pages();

-- this one
INSERT INTO quiet VALUES (777);
SELECT count(*) FROM quiet WHERE k = 777;
DROP TABLE quiet, quiet_new;
DROP FUNCTION quiet_pages;
