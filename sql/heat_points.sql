-- Heat with each visit sampled, as epochs go by
SET cache_batch.test_heat_rate = 1;
-- what earlier tests have accessed is forgotten
SET cache_batch.test_heat_ahead = 40000;
SET enable_seqscan = off;
SET enable_bitmapscan = off;

CREATE TABLE heat (a int) WITH (autovacuum_enabled = off);
INSERT INTO heat SELECT generate_series(1, 20000);
CREATE INDEX heat_a ON heat USING cachebatch (a)
	WITH (buffered = off, pack_leaves = off, fillfactor = 90);

CREATE VIEW heat_ages AS
SELECT min_age, max_age, blocks_read, blocks_written
FROM cache_batch_stat_heat WHERE indexrelname = 'heat_a';

-- the metapage, the root and 55 leaves: the least age of blocks that were
-- never accessed is that of the clock, or the greatest that is known
SELECT * FROM heat_ages;

-- two leaves are read, then time goes by
SELECT count(*) FROM heat WHERE a = 1000;
SELECT count(*) FROM heat WHERE a = 11000;
SELECT * FROM heat_ages;
SET cache_batch.test_heat_ahead = 40001;
SELECT * FROM heat_ages;
SET cache_batch.test_heat_ahead = 40002;
SELECT count(*) FROM heat WHERE a = 11000;
SELECT * FROM heat_ages;
SET cache_batch.test_heat_ahead = 40005;
SELECT count(*) FROM heat WHERE a BETWEEN 1 AND 800;
SELECT * FROM heat_ages;
SET cache_batch.test_heat_ahead = 41000;
SELECT * FROM heat_ages;

-- the oldest ages that are known
SET cache_batch.test_heat_ahead = 72767;
SELECT * FROM heat_ages;
SET cache_batch.test_heat_ahead = 72768;
SELECT * FROM heat_ages;
SET cache_batch.test_heat_ahead = 72773;
SELECT * FROM heat_ages;

-- a session whose clock is behind
SET cache_batch.test_heat_ahead = 40000;
SELECT * FROM heat_ages;

-- each element of an array is a read of its leaf; so is a leaf beyond a limit
REINDEX INDEX heat_a;
SELECT count(*) FROM heat WHERE a = ANY (ARRAY[1, 2, 5000, 5001, 19999]);
SELECT * FROM heat_ages;
REINDEX INDEX heat_a;
SELECT a FROM heat WHERE a > 370 ORDER BY a OFFSET 1 LIMIT 1;
SELECT * FROM heat_ages;
SELECT a FROM heat WHERE a > 18500 ORDER BY a DESC OFFSET 1 LIMIT 1;
SELECT * FROM heat_ages;

-- leaves that get entries of another, by a split or otherwise, are as warm
REINDEX INDEX heat_a;
SELECT count(*) FROM heat WHERE a = 20000;
SET cache_batch.test_heat_ahead = 40004;
INSERT INTO heat SELECT 20000 FROM generate_series(1, 500);
SELECT min_age, max_age, blocks_read > 1 AS read, blocks_written > 1 AS written
FROM heat_ages;
REINDEX INDEX heat_a;
SELECT count(*) FROM heat WHERE a = 10000;
SET cache_batch.test_heat_ahead = 40008;
INSERT INTO heat SELECT 10000 FROM generate_series(1, 100);
SELECT min_age, max_age, blocks_read > 1 AS read, blocks_written > 1 AS written
FROM heat_ages;

-- VACUUM, verification and pages that are looked at are no accesses
REINDEX INDEX heat_a;
SELECT count(*) FROM heat WHERE a = 10000;
SET cache_batch.test_heat_ahead = 40020;
DELETE FROM heat WHERE a % 3 = 0;
VACUUM heat;
SELECT cache_batch_verify('heat_a', true);
SELECT count(*) > 1000 AS items FROM generate_series(1, 20) b,
	cache_batch_page_items('heat_a', b);
SELECT * FROM heat_ages;

-- leaves of a range that will be used are as warm as can be
SET cache_batch.test_heat_ahead = 40030;
SELECT cache_batch_prewarm('heat_a', 5000, 6000);
SELECT * FROM heat_ages;

-- a batch writes each of its leaves once
SET cache_batch.test_heat_ahead = 40040;
INSERT INTO heat VALUES (1), (1), (2), (5000), (19999);
SELECT * FROM heat_ages;

RESET cache_batch.test_heat_ahead;
DROP VIEW heat_ages;
DROP TABLE heat;
