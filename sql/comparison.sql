-- Comparison functions that do what they must not: they get an error, and
-- nothing is lost.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

CREATE FUNCTION cmp_exception(a int4, b int4) RETURNS int4 LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	BEGIN
		IF a = 666 OR b = 666 THEN
			RAISE EXCEPTION 'caught below';
		END IF;
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
	RETURN btint4cmp(a, b);
END $$;
CREATE OPERATOR CLASS int4_exception_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 cmp_exception(int4, int4);

CREATE TABLE comparison (k int4);
CREATE INDEX comparison_k ON comparison USING cachebatch (k int4_exception_ops) WITH (buffered = off);
INSERT INTO comparison SELECT g FROM generate_series(1, 100) g;

-- this comparison gives up the locks of its caller
INSERT INTO comparison VALUES (666);
SELECT cache_batch_verify('comparison_k', true);
INSERT INTO comparison SELECT g FROM generate_series(101, 200) g;
SELECT count(*) FROM comparison;
SET enable_seqscan = off;
SELECT count(*) FROM comparison WHERE k BETWEEN 50 AND 150;
SELECT count(*) FROM comparison WHERE k >= 666;
RESET enable_seqscan;

-- the same while a journal is swept
CREATE TABLE comparison_journal (k int4);
CREATE INDEX comparison_journal_k ON comparison_journal USING cachebatch (k int4_exception_ops) WITH (buffered = on);
INSERT INTO comparison_journal SELECT g FROM generate_series(1, 100) g;
SELECT cache_batch_flush('comparison_journal_k');
INSERT INTO comparison_journal VALUES (666);
SELECT cache_batch_flush('comparison_journal_k');
DROP TABLE comparison, comparison_journal;
DROP OPERATOR CLASS int4_exception_ops USING cachebatch;
DROP FUNCTION cmp_exception;

-- one that sees how much memory applying takes: not more for more entries, though
-- all of them belong to the last leaf
CREATE FUNCTION cmp_memory(a int4, b int4) RETURNS int4 LANGUAGE plpgsql AS $$
BEGIN
	-- seldom, other than while entries are sorted
	IF b > a + 500 THEN
		IF (SELECT sum(total_bytes) > 400000 FROM pg_backend_memory_contexts WHERE name = 'cache_batch apply') THEN
			RAISE EXCEPTION 'applying takes more than 400 kB';
		END IF;
	END IF;
	RETURN btint4cmp(a, b);
END $$;
CREATE OPERATOR CLASS int4_memory_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 cmp_memory(int4, int4);
SET cache_batch.stage_size = '1MB';
CREATE TABLE comparison (k int4);
CREATE INDEX comparison_k ON comparison USING cachebatch (k int4_memory_ops) WITH (buffered = on);
INSERT INTO comparison SELECT g FROM generate_series(1, 40000) g;
DROP TABLE comparison;
DROP OPERATOR CLASS int4_memory_ops USING cachebatch;
DROP FUNCTION cmp_memory;
RESET cache_batch.stage_size;

-- one of two types, in SQL: what it keeps from call to call is kept once, to however many
-- values a scan goes, and however often it starts; and so is what arrays take
CREATE FUNCTION cmp_sql(a int4, b int8) RETURNS int4 LANGUAGE sql AS 'SELECT btint48cmp(a, b)';
CREATE OPERATOR CLASS int4_sql_ops FOR TYPE int4 USING cachebatch AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	OPERATOR 3 = (int4, int8),
	FUNCTION 1 btint4cmp(int4, int4), FUNCTION 1 (int4, int8) cmp_sql(int4, int8),
	FUNCTION 1 (int8, int8) btint8cmp(int8, int8);
CREATE FUNCTION memory_used() RETURNS bigint LANGUAGE sql AS
	'SELECT sum(used_bytes)::bigint FROM pg_backend_memory_contexts';
CREATE TABLE comparison (k int4, n int4);
INSERT INTO comparison SELECT g, g FROM generate_series(1, 20000) g;
CREATE INDEX comparison_k ON comparison USING cachebatch (k int4_sql_ops) WITH (fillfactor = 10, pack_leaves = off);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT count(*), max(used) - min(used) < 100000 AS kept_once FROM (
	SELECT CASE WHEN n IN (501, 19901) THEN memory_used() END AS used FROM comparison
	WHERE k = ANY (ARRAY(SELECT generate_series(1::int8, 20000, 10)))) s;
SELECT count(*), max(used) - min(used) < 100000 AS kept_once FROM (
	SELECT CASE WHEN n IN (51, 1951) THEN memory_used() END AS used
	FROM generate_series(1::int8, 2000) g JOIN comparison ON k = g) s;
SELECT count(*), max(used) - min(used) < 100000 AS kept_once FROM (
	SELECT CASE WHEN n IN (51, 1951) THEN memory_used() END AS used
	FROM generate_series(1, 2000) g JOIN comparison ON k = ANY (array_append(ARRAY(SELECT generate_series(-200, 0)), g))) s;
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_hashjoin;
RESET enable_mergejoin;
DROP TABLE comparison;
DROP OPERATOR FAMILY int4_sql_ops USING cachebatch CASCADE;
DROP FUNCTION cmp_sql, memory_used;
