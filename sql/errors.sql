-- What is refused, and how
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
\set VERBOSITY default

CREATE TABLE errors (a int, b text, p point);
INSERT INTO errors VALUES (1, 'one', '(1,1)'), (2, 'two', '(2,2)');

-- a type without an order
CREATE INDEX ON errors USING cachebatch (p);
-- an opclass of another access method
CREATE INDEX ON errors USING cachebatch (a gin_ops);
CREATE INDEX ON errors USING cachebatch (a text_ops);
-- opclass parameters
CREATE INDEX ON errors USING cachebatch (a int4_ops (x = 1));

-- key too large, when the index is built and when a row is added (C8)
CREATE TABLE large (a int, b text);
ALTER TABLE large ALTER b SET STORAGE EXTERNAL;
INSERT INTO large SELECT 1, string_agg(md5(i::text), '') FROM generate_series(1, 85) i;
CREATE INDEX large_b ON large USING cachebatch (b);
DELETE FROM large;
VACUUM large;
CREATE INDEX large_b ON large USING cachebatch (b);
CREATE INDEX large_inc ON large USING cachebatch (a) INCLUDE (b);
-- largest that fits, as for btree: 2704 bytes with header
INSERT INTO large SELECT 1, repeat('x', 2680);
INSERT INTO large SELECT 2, repeat('x', 2704);
-- the error comes with the row, not with the end of the statement, and nothing
-- of the statement stays
INSERT INTO large SELECT i, repeat('y', 100 * i) FROM generate_series(25, 30) i;
BEGIN;
INSERT INTO large VALUES (3, 'kept');
SAVEPOINT s;
INSERT INTO large SELECT 4, repeat('x', 3000);
ROLLBACK TO s;
COMMIT;
SET enable_seqscan = off;
SELECT a, length(b) FROM large WHERE a > 0 ORDER BY a;
SELECT a, length(b) FROM large ORDER BY b;
RESET enable_seqscan;
SELECT cache_batch_verify('large_b', true), cache_batch_verify('large_inc', true);
-- the limit is btree's, to the byte
CREATE TABLE large_bt (LIKE large INCLUDING STORAGE);
CREATE INDEX ON large_bt (b);
CREATE FUNCTION fits(t regclass, n int) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('INSERT INTO %s (b) VALUES (repeat(''z'', %s))', t, n);
	RETURN true;
EXCEPTION WHEN program_limit_exceeded THEN
	RETURN false;
END $$;
DROP INDEX large_inc;
SELECT count(*) FILTER (WHERE fits('large', n)) AS fit,
	   count(*) FILTER (WHERE fits('large', n) <> fits('large_bt', n)) AS differ
FROM generate_series(2670, 2730) n;
SELECT cache_batch_verify('large_b', true);
DROP FUNCTION fits(regclass, int);
DROP TABLE large, large_bt;

-- pattern classes with a nondeterministic collation
CREATE COLLATION errors_nocase (provider = icu, locale = 'und-u-ks-level2',
								deterministic = false);
CREATE TABLE patterns (t text COLLATE errors_nocase,
					   v varchar COLLATE errors_nocase,
					   c char(5) COLLATE errors_nocase);
CREATE INDEX ON patterns USING btree (t text_pattern_ops);
CREATE INDEX ON patterns USING cachebatch (t text_pattern_ops);
CREATE INDEX ON patterns USING cachebatch (v varchar_pattern_ops);
CREATE INDEX ON patterns USING cachebatch (t, c bpchar_pattern_ops);
CREATE UNLOGGED TABLE patterns_u (t text COLLATE errors_nocase);
CREATE INDEX ON patterns_u USING cachebatch (t text_pattern_ops);
CREATE INDEX ON patterns USING cachebatch (t COLLATE "C" text_pattern_ops);
CREATE INDEX ON patterns USING cachebatch (t, v, c);
\d patterns
DROP TABLE patterns, patterns_u;
DROP COLLATION errors_nocase;

-- comparisons that fail
CREATE TYPE failing AS (x json);
CREATE TABLE fails (f failing);
INSERT INTO fails VALUES (ROW('{}')::failing), (ROW('[]')::failing);
CREATE INDEX ON fails USING cachebatch (f);
DROP TABLE fails;
DROP TYPE failing;

-- functions: not an index of ours
CREATE INDEX errors_bt ON errors (a);
CREATE INDEX errors_cb ON errors USING cachebatch (a);
SELECT cache_batch_flush('errors_bt');
SELECT cache_batch_flush('errors');
SELECT cache_batch_metapage('errors_bt');
SELECT cache_batch_page('errors', 1);
SELECT cache_batch_page_items('errors_bt', 1);
SELECT cache_batch_journal('errors_bt');
SELECT cache_batch_page('errors_cb', 1000);
SELECT cache_batch_page('errors_cb', -1);
SELECT cache_batch_page_items('errors_cb', 0);
SELECT cache_batch_page_items('errors_cb', 4294967296);
SELECT cache_batch_flush(0);
SELECT cache_batch_flush(NULL) IS NULL AS strict;
CREATE TABLE parted (a int) PARTITION BY RANGE (a);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE INDEX parted_a ON parted USING cachebatch (a);
SELECT cache_batch_flush('parted_a');
SELECT cache_batch_flush('parted_1_a_idx');
DROP TABLE parted;

-- privileges
CREATE ROLE regress_cb_user;
CREATE ROLE regress_cb_monitor IN ROLE pg_stat_scan_tables;
GRANT SELECT, INSERT ON errors TO regress_cb_user;
SET ROLE regress_cb_user;
SELECT cache_batch_flush('errors_cb');
SELECT cache_batch_metapage('errors_cb');
SELECT cache_batch_page('errors_cb', 1);
SELECT cache_batch_page_items('errors_cb', 1);
SELECT cache_batch_journal('errors_cb');
SELECT cache_batch_verify('errors_cb');
SELECT cache_batch_stat_reset();
SELECT cache_batch_adopt_operator_classes();
SELECT indexrelname FROM cache_batch_stat_indexes WHERE relname = 'errors';
SET ROLE regress_cb_monitor;
SELECT (cache_batch_metapage('errors_cb')).version;
SELECT (cache_batch_page('errors_cb', 0)).type;
SELECT cache_batch_page_items('errors_cb', 1);
SELECT count(*) >= 0 AS allowed FROM cache_batch_journal('errors_cb');
-- takes both
SELECT cache_batch_verify('errors_cb');
RESET ROLE;
ALTER TABLE errors OWNER TO regress_cb_monitor;
SET ROLE regress_cb_monitor;
SELECT cache_batch_verify('errors_cb');
RESET ROLE;
ALTER TABLE errors OWNER TO regress_cb_user;
SET ROLE regress_cb_user;
INSERT INTO errors VALUES (3, 'three');
SELECT cache_batch_flush('errors_cb') IS NOT NULL AS allowed;
SELECT cache_batch_verify('errors_cb');
RESET ROLE;
DROP TABLE errors;
DROP ROLE regress_cb_user, regress_cb_monitor;

-- an index that a failed CREATE INDEX CONCURRENTLY has left
CREATE TABLE errors_unready (k int);
INSERT INTO errors_unready VALUES (0);
CREATE INDEX CONCURRENTLY errors_unready_k ON errors_unready USING cachebatch ((1 / k));
SELECT cache_batch_flush('errors_unready_k');
SELECT cache_batch_metapage('errors_unready_k');
SELECT count(*) FROM errors_unready;
DROP TABLE errors_unready;

-- values that cannot be compared, which a buffered index refuses from the first one on,
-- as VACUUM, which sorts them, would fail for ever after the second
CREATE TYPE errors_json AS (j json);
CREATE FUNCTION errors_cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF a < 0 OR b < 0 THEN RAISE EXCEPTION 'negative'; END IF;
	RETURN btint4cmp(a, b);
END $$;
CREATE OPERATOR CLASS errors_ops FOR TYPE int USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 errors_cmp(int, int);
CREATE TABLE uncomparable (k int, r errors_json, a json[]);
CREATE INDEX uncomparable_r ON uncomparable USING cachebatch (r) WITH (buffered = on);
INSERT INTO uncomparable VALUES (1, row('{}'));
INSERT INTO uncomparable VALUES (1, NULL), (2, row('{}'));
INSERT INTO uncomparable VALUES (1), (2);
DROP INDEX uncomparable_r;
CREATE INDEX uncomparable_a ON uncomparable USING cachebatch (k, a) WITH (buffered = on);
INSERT INTO uncomparable VALUES (1, NULL, '{1}');
INSERT INTO uncomparable SELECT i, NULL, ARRAY['1'::json] FROM generate_series(11, 20) i;
INSERT INTO uncomparable VALUES (3), (4);
DROP INDEX uncomparable_a;
CREATE INDEX uncomparable_k ON uncomparable USING cachebatch (k errors_ops) WITH (buffered = on);
INSERT INTO uncomparable VALUES (-1);
INSERT INTO uncomparable VALUES (5), (6);
SELECT cache_batch_verify('uncomparable_k', true);
VACUUM (INDEX_CLEANUP ON) uncomparable;
SELECT count(*) FROM uncomparable;
DROP TABLE uncomparable;
DROP OPERATOR FAMILY errors_ops USING cachebatch;
DROP FUNCTION errors_cmp;
DROP TYPE errors_json;
