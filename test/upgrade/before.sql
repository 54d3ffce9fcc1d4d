-- An old server's indexes: entries in the tree, in packed cold leaves, in range
-- buffers and in the journal.  Released versions run it, too.
SET client_min_messages = warning;
CREATE EXTENSION cache_batch;
CREATE FUNCTION up_reverse_cmp(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
	RETURN btint4cmp($2, $1);
CREATE OPERATOR CLASS up_reverse_ops FOR TYPE int USING btree AS OPERATOR 1 >, OPERATOR 2 >=,
	OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <, FUNCTION 1 up_reverse_cmp(int, int);
SELECT cache_batch_adopt_operator_classes() = 1;
CREATE TABLE up (id int, k bigint, t text COLLATE "C", d date);
CREATE INDEX up_k ON up USING cachebatch (k);
CREATE INDEX up_t ON up USING cachebatch (t text_pattern_ops, d DESC NULLS LAST) INCLUDE (id);
CREATE INDEX up_r ON up USING cachebatch (id up_reverse_ops);
CREATE INDEX up_d ON up USING cachebatch (d) WHERE id % 2 = 0;
CREATE FUNCTION up_fill(first int, last int) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO up SELECT i, hashint8extended(i, 1), 'row ' || i % 1000, date '2020-01-01' + i % 500
	FROM generate_series(first, last) i;
END;
SELECT up_fill(1, 50000);
SELECT cache_batch_compact('up_k');
ALTER INDEX up_k SET (spill_threshold = 0);
SET cache_batch.test_spill = on;
SET cache_batch.test_run_min = 1;
SELECT up_fill(50001, 50060);
SELECT cache_batch_flush('up_k');
SELECT up_fill(51001, 51060);
SELECT cache_batch_flush('up_k');
SELECT cache_batch_flush('up_t');
SELECT up_fill(60001, 60020);
DELETE FROM up WHERE id % 1000 = 7;
