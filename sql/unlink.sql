-- VACUUM takes empty leaves out of the tree, and their pages are used again
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
CREATE TABLE ul (id int, k text) WITH (autovacuum_enabled = off);
ALTER TABLE ul ALTER k SET STORAGE PLAIN;
CREATE FUNCTION ul_fill(low int, high int, step int) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO ul SELECT i, lpad(i::text, 1000, '0') FROM generate_series(low, high, step) i;
	RETURN cache_batch_flush('ul_k');
END $$;
CREATE FUNCTION ul_count(wanted text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN (SELECT count(*) FROM generate_series(1, pg_relation_size('ul_k') / 8192 - 1) b,
		cache_batch_page('ul_k', b) p WHERE p.type = wanted);
END $$;
-- counts through the index, forward and backward, and of the table
CREATE FUNCTION ul_counts(OUT forward bigint, OUT backward bigint, OUT rows bigint)
	LANGUAGE plpgsql AS $$
BEGIN
	SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
	SET LOCAL enable_sort = off;
	SELECT count(id) INTO forward FROM (SELECT id FROM ul WHERE id > 0 ORDER BY id, k) s;
	SELECT count(id) INTO backward FROM (SELECT id FROM ul WHERE id > 0 ORDER BY id DESC, k DESC) s;
	SET LOCAL enable_seqscan = on; SET LOCAL enable_indexscan = off;
	SELECT count(id) INTO rows FROM ul;
END $$;

-- long entries with short separators; the bounds of buckets are those of leaves
INSERT INTO ul SELECT i, lpad(i::text, 1000, '0') FROM generate_series(1000, 2000) i;
CREATE INDEX ul_k ON ul USING cachebatch (id, k) WITH (pack_leaves = off);
SELECT ul_fill(1000, 2000, 100);
SELECT buckets > 0 AS has_buckets FROM cache_batch_stat_buckets
	WHERE indexrelname = 'ul_k';
DELETE FROM ul WHERE id BETWEEN 1100 AND 1900;
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) ul;
SELECT ul_count('leaf') < 60 AS few_leaves, ul_count('deleted') > 100 AS deleted;
SELECT * FROM ul_counts();
SELECT cache_batch_verify('ul_k', true);

-- leaves that took over the range of others have entries of several buckets
SELECT ul_fill(1100, 1900, 100);
INSERT INTO ul SELECT i, 'waiting' FROM generate_series(1110, 1900, 20) i;
SELECT * FROM ul_counts();
SELECT cache_batch_verify('ul_k', true);
DROP INDEX ul_k;

-- long separators: a tree of several levels, whose parents go with their last
-- child, except for those at the ends
DELETE FROM ul;
CREATE INDEX ul_k ON ul USING cachebatch (k, id) WITH (pack_leaves = off);
SELECT ul_fill(1000, 2000, 1);
SELECT root_level FROM cache_batch_metapage('ul_k');
DELETE FROM ul WHERE id > 0;
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) ul;
SELECT ul_count('leaf') < 15 AS few_leaves, ul_count('internal') < 10 AS few_internal;
SELECT cache_batch_verify('ul_k', true);
SELECT count(*) FROM ul WHERE k > '';

-- once another transaction has run, the next VACUUM finds the pages free
BEGIN;
INSERT INTO ul VALUES (0, '');
ROLLBACK;
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) ul;
CREATE TEMP TABLE size AS SELECT pg_relation_size('ul_k') AS bytes;
SELECT ul_fill(1000, 1700, 1);
SELECT pg_relation_size('ul_k') - bytes AS growth FROM size;
SELECT count(*) FROM ul WHERE k > '';
SELECT cache_batch_verify('ul_k', true);
DROP TABLE ul, size;
DROP FUNCTION ul_fill, ul_count, ul_counts;
