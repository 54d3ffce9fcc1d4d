-- Values that cannot all be compared with one another: as with btree, the
-- statement is refused that brings one to a place beside another, and the
-- index stays whole.  Which indexes do so, and which are known not to need it.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET enable_seqscan = off;

-- no comparison of 1 with 2; each with itself is fine
CREATE FUNCTION total_cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF least(a, b) = 1 AND greatest(a, b) = 2 THEN
		RAISE EXCEPTION 'cannot compare 1 with 2';
	END IF;
	RETURN btint4cmp(a, b);
END $$;
CREATE OPERATOR CLASS total_ops FOR TYPE int USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 total_cmp(int, int);
CREATE OPERATOR CLASS total_ops FOR TYPE int USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 total_cmp(int, int);

-- how many entries came to the tree at once, and how many to the journal
CREATE VIEW total_way AS
SELECT indexrelname, direct, journaled FROM cache_batch_stat_indexes
WHERE indexrelname LIKE 'total\_%' ORDER BY 1;

CREATE TABLE total_b (k int) WITH (autovacuum_enabled = off);
CREATE TABLE total_c (k int) WITH (autovacuum_enabled = off);
CREATE INDEX total_b_k ON total_b USING btree (k total_ops);
CREATE INDEX total_c_k ON total_c USING cachebatch (k total_ops);
\set VERBOSITY terse
INSERT INTO total_b VALUES (1);
INSERT INTO total_c VALUES (1);
INSERT INTO total_b VALUES (2);
INSERT INTO total_c VALUES (2);
INSERT INTO total_b SELECT 10 - g FROM generate_series(1, 9) g;
INSERT INTO total_c SELECT 10 - g FROM generate_series(1, 9) g;
INSERT INTO total_b VALUES (3), (0);
INSERT INTO total_c VALUES (3), (0);

-- what is refused can be caught, and the others go on
DO $$
BEGIN
	INSERT INTO total_c VALUES (4);
	BEGIN
		INSERT INTO total_c VALUES (5);
		INSERT INTO total_c VALUES (2);
	EXCEPTION WHEN raise_exception THEN
		RAISE NOTICE 'caught: %', SQLERRM;
	END;
	INSERT INTO total_c VALUES (6);
END $$;
SELECT * FROM total_way;

-- everything works
SELECT k FROM total_b WHERE k >= 0 ORDER BY k;
SELECT k FROM total_c WHERE k >= 0 ORDER BY k;
SELECT k FROM total_c WHERE k >= 0 ORDER BY k DESC LIMIT 2;
DELETE FROM total_c WHERE k = 3;
VACUUM (INDEX_CLEANUP ON) total_c;
SELECT cache_batch_flush('total_c_k');
SELECT cache_batch_verify('total_c_k', true);
REINDEX INDEX total_c_k;
SELECT k FROM total_c WHERE k >= 0 ORDER BY k;

-- the user's word: it is buffered, and packed; without it, no longer.  What is in
-- the journal then stays readable
CREATE TABLE total_on (k int) WITH (autovacuum_enabled = off);
INSERT INTO total_on SELECT g FROM generate_series(1, 2000) g WHERE g <> 2;
CREATE INDEX total_on_k ON total_on USING cachebatch (k total_ops) WITH (buffered = on);
SELECT type, 'packed' = ANY (flags) AS packed FROM cache_batch_page('total_on_k', 1);
INSERT INTO total_on VALUES (10), (2000), (5);
SELECT * FROM total_way WHERE indexrelname = 'total_on_k';
ALTER INDEX total_on_k RESET (buffered);
SELECT count(*) FROM total_on WHERE k >= 0;
-- 2 meets the packed entries
INSERT INTO total_on VALUES (2);
INSERT INTO total_on VALUES (7);
SELECT * FROM total_way WHERE indexrelname = 'total_on_k';
SELECT type, 'packed' = ANY (flags) AS packed FROM cache_batch_page('total_on_k', 1);
SELECT cache_batch_flush('total_on_k');
SELECT count(*) FROM total_on WHERE k >= 0;
VACUUM (INDEX_CLEANUP ON) total_on;
SELECT cache_batch_verify('total_on_k', true);
ALTER INDEX total_on_k SET (buffered = auto);
INSERT INTO total_on VALUES (2);
ALTER INDEX total_on_k SET (buffered = off);
INSERT INTO total_on VALUES (2);
REINDEX INDEX total_on_k;
INSERT INTO total_on VALUES (2);
SELECT count(*) FROM total_on WHERE k >= 0;

-- packed leaves that stand for more plain ones than a split makes: they are cut, and
-- do not cast off a page for each entry that comes
CREATE TABLE total_full (k int) WITH (autovacuum_enabled = off);
INSERT INTO total_full SELECT 5 + g / 20000 FROM generate_series(0, 39999) g;
CREATE INDEX total_full_k ON total_full USING cachebatch (k total_ops) WITH (buffered = on);
ALTER INDEX total_full_k RESET (buffered);
CREATE TEMP TABLE total_pages AS SELECT pg_relation_size('total_full_k') / 8192 AS pages;
DO $$
BEGIN
	FOR i IN 1 .. 50 LOOP
		INSERT INTO total_full VALUES (5);
		COMMIT;
	END LOOP;
END $$;
SELECT pg_relation_size('total_full_k') / 8192 - pages < 25 AS few FROM total_pages;
SELECT cache_batch_verify('total_full_k', true);
DROP TABLE total_full, total_pages;

-- where that word was wrong: the way out
CREATE TABLE total_wrong (k int) WITH (autovacuum_enabled = off);
CREATE INDEX total_wrong_k ON total_wrong USING cachebatch (k total_ops) WITH (buffered = on);
INSERT INTO total_wrong VALUES (1);
INSERT INTO total_wrong VALUES (2);
SELECT cache_batch_flush('total_wrong_k');
ALTER INDEX total_wrong_k RESET (buffered);
DELETE FROM total_wrong WHERE abs(k) = 2;
REINDEX INDEX total_wrong_k;
INSERT INTO total_wrong VALUES (2);
VACUUM (INDEX_CLEANUP ON) total_wrong;
SELECT k FROM total_wrong WHERE k >= 0;
DROP TABLE total_wrong;
\set VERBOSITY default

-- it is said once, when the index is created
CREATE TABLE total_parted (k int) PARTITION BY RANGE (k);
CREATE TABLE total_parted_1 PARTITION OF total_parted FOR VALUES FROM (0) TO (10);
CREATE INDEX ON total_parted USING cachebatch (k total_ops);
CREATE TEMP TABLE total_temp (k int);
CREATE INDEX ON total_temp USING cachebatch (k total_ops);
CREATE INDEX ON total_b USING cachebatch (k total_ops) WITH (buffered = off);
CREATE INDEX ON total_b USING cachebatch (k total_ops) WITH (buffered = auto);
TRUNCATE total_c;
VACUUM FULL total_c;
REINDEX TABLE total_c;
DROP TABLE total_b, total_c, total_on, total_parted, total_temp;

-- a type that can be compared within a currency only, and what is made of it
CREATE TYPE total_money AS (currency text, amount int);
CREATE FUNCTION total_money_cmp(a total_money, b total_money) RETURNS int
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF a.currency <> b.currency THEN
		RAISE EXCEPTION 'cannot compare % with %', a.currency, b.currency;
	END IF;
	RETURN btint4cmp(a.amount, b.amount);
END $$;
CREATE FUNCTION total_money_lt(total_money, total_money) RETURNS boolean
LANGUAGE sql IMMUTABLE AS 'SELECT total_money_cmp($1, $2) < 0';
CREATE FUNCTION total_money_eq(total_money, total_money) RETURNS boolean
LANGUAGE sql IMMUTABLE AS 'SELECT total_money_cmp($1, $2) = 0';
CREATE OPERATOR < (PROCEDURE = total_money_lt, LEFTARG = total_money, RIGHTARG = total_money);
CREATE OPERATOR = (PROCEDURE = total_money_eq, LEFTARG = total_money, RIGHTARG = total_money);
CREATE OPERATOR CLASS total_money_ops DEFAULT FOR TYPE total_money USING btree AS
	OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 total_money_cmp(total_money, total_money);
CREATE OPERATOR CLASS total_money_ops DEFAULT FOR TYPE total_money USING cachebatch AS
	OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 total_money_cmp(total_money, total_money);

-- the same function of the server, under another name
CREATE FUNCTION total_alias(int, int) RETURNS int LANGUAGE internal IMMUTABLE AS 'btint4cmp';
CREATE FUNCTION total_array_alias(anyarray, anyarray) RETURNS int LANGUAGE internal IMMUTABLE AS 'btarraycmp';
CREATE OPERATOR CLASS total_alias_ops FOR TYPE int USING cachebatch AS
	OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 total_alias(int, int);
CREATE OPERATOR CLASS total_array_alias_ops FOR TYPE anyarray USING cachebatch AS
	OPERATOR 1 <, OPERATOR 3 =, FUNCTION 1 total_array_alias(anyarray, anyarray);

SET client_min_messages = warning;
CREATE EXTENSION citext;
CREATE EXTENSION ltree;
SELECT cache_batch_adopt_operator_classes() > 0 AS adopted;
CREATE DOMAIN total_positive AS int CHECK (VALUE > 0);
CREATE TYPE total_row AS (a int, b text[], c total_positive);
CREATE DOMAIN total_row_domain AS total_row;
CREATE TYPE total_enum AS ENUM ('a', 'b');
CREATE TYPE total_money_range AS RANGE (SUBTYPE = total_money);
CREATE TYPE total_own_range AS RANGE (SUBTYPE = int, SUBTYPE_OPCLASS = total_ops);
CREATE TYPE total_citext_range AS RANGE (SUBTYPE = citext);
CREATE TYPE total_deep AS (a int, m total_money[]);
CREATE TYPE total_json AS (j json);
CREATE DOMAIN total_deeps AS total_deep[];
CREATE TABLE total_types (
	t01 int, t02 text, t03 numeric, t04 name, t05 uuid, t06 jsonb, t07 oidvector,
	t08 int[], t09 total_row, t10 total_row_domain, t11 total_row[], t12 total_enum,
	t13 int4range, t14 tstzmultirange, t15 total_positive, t16 inet, t17 bpchar(3),
	t18 citext, t19 ltree, t20 citext[], t21 total_citext_range, t22 interval,
	f01 total_money, f02 total_money[], f03 total_deep, f04 total_deeps, f05 total_money_range,
	f06 total_money_multirange, f07 total_own_range, f08 total_json, f09 json[]);
DO $$
DECLARE
	c name;
BEGIN
	FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = 'total_types'::regclass AND attnum > 0
	LOOP
		EXECUTE format('CREATE INDEX total_%s ON total_types USING cachebatch (%I)', c, c);
	END LOOP;
END $$;
CREATE INDEX total_p20 ON total_types USING cachebatch (t02 text_pattern_ops);
CREATE INDEX total_p21 ON total_types USING cachebatch (t01 total_alias_ops);
CREATE INDEX total_p22 ON total_types USING cachebatch (t08 total_array_alias_ops);
CREATE INDEX total_p23 ON total_types USING cachebatch (f02 total_array_alias_ops);
CREATE INDEX total_p24 ON total_types USING cachebatch (t01) INCLUDE (f01);
CREATE INDEX total_p25 ON total_types USING cachebatch (t01, f01);
CREATE INDEX total_p26 ON total_types USING btree (t01, f01);
CREATE INDEX total_p27 ON total_types USING hash (t01);
RESET client_min_messages;
SELECT c.relname, pg_get_indexdef(c.oid, 1, true) AS first, c.relnatts AS columns,
	   cache_batch_comparison_is_total(c.oid) AS total
FROM pg_class c WHERE c.relname ~ '^total_[tfp]\d\d$' ORDER BY c.relname !~ 'total_t', 4, 1;
SELECT cache_batch_comparison_is_total('total_types') IS NULL AS no_index,
	   cache_batch_comparison_is_total(1) IS NULL AS gone;

-- only those that are have buckets, whatever comes
SELECT cache_batch_stat_reset();
INSERT INTO total_types (t01, t08, t09, t18, t21, f01, f02, f03)
VALUES (1, '{1,2}', (1, '{x}', 2), 'Key', '[a,b]', ('EUR', 1), ARRAY[('EUR', 1)]::total_money[],
		(1, ARRAY[('EUR', 1)]::total_money[]));
SELECT indexrelname, direct, journaled FROM total_way
WHERE indexrelname ~ '^total_(t01|t08|t09|t18|t21|f01|f02|f03)$';
SELECT DISTINCT indexrelid::regclass AS buffered FROM cache_batch_stat_buckets
WHERE indexrelid::regclass::text ~ '^total_(t01|t08|t09|t18|t21|f01|f02|f03)$' ORDER BY 1;
\set VERBOSITY terse
INSERT INTO total_types (f02) VALUES (ARRAY[('USD', 1)]::total_money[]);
INSERT INTO total_types (f03) VALUES ((1, ARRAY[('USD', 1)]::total_money[]));
INSERT INTO total_types (f03) VALUES ((2, ARRAY[('USD', 1)]::total_money[]));
\set VERBOSITY default
DROP TABLE total_types;

-- composite types can get other attributes, and types other operator classes: the
-- index is judged anew, and its journal stays readable
CREATE TABLE total_alter (r total_row) WITH (autovacuum_enabled = off);
CREATE INDEX total_alter_r ON total_alter USING cachebatch (r);
INSERT INTO total_alter VALUES ((1, '{x}', 2));
SELECT * FROM total_way WHERE indexrelname = 'total_alter_r';
ALTER TYPE total_row ADD ATTRIBUTE m total_money;
SELECT cache_batch_comparison_is_total('total_alter_r') AS total;
INSERT INTO total_alter VALUES ((1, '{x}', 2, ('EUR', 1)));
\set VERBOSITY terse
INSERT INTO total_alter VALUES ((1, '{x}', 2, ('USD', 1)));
\set VERBOSITY default
SELECT * FROM total_way WHERE indexrelname = 'total_alter_r';
SET enable_sort = off;
SELECT r FROM total_alter ORDER BY r;
RESET enable_sort;
SELECT cache_batch_flush('total_alter_r');
SELECT cache_batch_verify('total_alter_r', true);
VACUUM (INDEX_CLEANUP ON) total_alter;
ALTER TYPE total_row DROP ATTRIBUTE m;
SELECT cache_batch_comparison_is_total('total_alter_r') AS total;
INSERT INTO total_alter VALUES ((3, '{x}', 2));
CREATE OR REPLACE FUNCTION total_alias(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT btint4cmp($1, $2)';
CREATE TABLE total_replaced (k int);
CREATE INDEX total_replaced_k ON total_replaced USING cachebatch (k total_alias_ops);
INSERT INTO total_replaced VALUES (1);
CREATE OR REPLACE FUNCTION total_alias(int, int) RETURNS int LANGUAGE internal IMMUTABLE AS 'btint4cmp';
INSERT INTO total_replaced VALUES (2);
SELECT * FROM total_way;
DROP TABLE total_alter, total_replaced;

-- a value that cannot be compared with itself is refused even where btree would
-- not compare it, as scans have to find the place where they go on
CREATE TABLE total_j (k int, r total_json) WITH (autovacuum_enabled = off);
CREATE INDEX total_j_k ON total_j USING cachebatch (k, r);
INSERT INTO total_j VALUES (1, ROW('{}'));
INSERT INTO total_j SELECT g, ROW('{}')::total_json FROM generate_series(2, 2000) g;
INSERT INTO total_j SELECT g, NULL FROM generate_series(1, 2000) g;
SELECT count(*) FROM total_j WHERE k > 0;
SELECT cache_batch_verify('total_j_k', true);
DROP INDEX total_j_k;
INSERT INTO total_j VALUES (0, ROW('{}'));
CREATE INDEX total_j_k ON total_j USING cachebatch (k, r);
CREATE INDEX total_j_k ON total_j USING cachebatch (k) INCLUDE (r);
INSERT INTO total_j VALUES (3000, ROW('{}'));
SELECT count(*) FROM total_j WHERE k > 0;
DROP TABLE total_j;

DROP VIEW total_way;
SET client_min_messages = warning;
DROP EXTENSION ltree CASCADE;
DROP EXTENSION citext CASCADE;
DROP TYPE total_money_range, total_own_range, total_json;
DROP DOMAIN total_deeps, total_row_domain;
DROP TYPE total_deep, total_row, total_enum;
DROP DOMAIN total_positive;
DROP OPERATOR FAMILY total_ops USING cachebatch;
DROP OPERATOR FAMILY total_ops USING btree;
DROP OPERATOR FAMILY total_alias_ops USING cachebatch;
DROP OPERATOR FAMILY total_array_alias_ops USING cachebatch;
DROP TYPE total_money CASCADE;
DROP OPERATOR FAMILY total_money_ops USING btree;
DROP FUNCTION total_cmp, total_alias, total_array_alias;
