-- Equality is the operator class's: what has other bytes, or another type, is
-- found in buckets as it is in the tree (A10).
SET datestyle = iso;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE COLLATION equality_ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE equality (
	n numeric, c char(6), f4 real, f8 float8, d date, t text,
	ci text COLLATE equality_ci, i8 bigint, u uuid, b bytea,
	i4 int, i2 smallint);
CREATE INDEX equality_n ON equality USING cachebatch (n);
CREATE INDEX equality_c ON equality USING cachebatch (c);
CREATE INDEX equality_f4 ON equality USING cachebatch (f4);
CREATE INDEX equality_f8 ON equality USING cachebatch (f8 DESC);
CREATE INDEX equality_d ON equality USING cachebatch (d);
CREATE INDEX equality_t ON equality USING cachebatch (t);
CREATE INDEX equality_ci ON equality USING cachebatch (ci);
CREATE INDEX equality_i8 ON equality USING cachebatch (i8);
CREATE INDEX equality_u ON equality USING cachebatch (u);
CREATE INDEX equality_b ON equality USING cachebatch (b);
CREATE INDEX equality_i4 ON equality USING cachebatch (i4);
CREATE INDEX equality_i2 ON equality USING cachebatch (i2 DESC);
-- few rows a statement: a dense batch goes to the tree
CREATE FUNCTION equality_fill(first int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO equality
	SELECT i / 10.0, 'c' || i, i / 4.0, i / 4.0, date '2020-01-01' + i,
		't' || i, 'Word' || i, i - 50, md5(i::text)::uuid,
		decode(md5(i::text), 'hex'), i - 50, i - 50
	FROM generate_series(first, first + 19) i $$;
SELECT equality_fill(1);
SELECT equality_fill(21);
SELECT equality_fill(41);
SELECT equality_fill(61);
SELECT equality_fill(81);
INSERT INTO equality (f8) VALUES ('-0'), ('NaN');
SELECT count(*) FROM cache_batch_stat_buckets
WHERE relname = 'equality' AND entries >= 100;

SELECT n FROM equality WHERE n = 1.5000;
SELECT c FROM equality WHERE c = 'c17'::char(20);
SELECT f4 FROM equality WHERE f4 = 1.25::float8;
SELECT f8 FROM equality WHERE f8 = 1.25::real;
SELECT f8 FROM equality WHERE f8 = 0;
SELECT f8 FROM equality WHERE f8 = 'NaN';
SELECT d FROM equality WHERE d = timestamp '2020-01-05';
SELECT t FROM equality WHERE t = 't42';
SELECT ci FROM equality WHERE ci = 'WORD42';
SELECT i8 FROM equality WHERE i8 = (-7)::int4;
SELECT i8 FROM equality WHERE i8 = (-7)::int2;
SELECT i8 FROM equality WHERE i8 = ANY ('{-7, 3, 1000}'::int[]) ORDER BY i8;
SELECT i4 FROM equality WHERE i4 = (-7)::bigint;
SELECT i4 FROM equality WHERE i4 = (1::bigint << 32) - 7;
SELECT i4 FROM equality WHERE i4 = (-7)::int2;
SELECT i2 FROM equality WHERE i2 = (-7)::bigint;
SELECT i2 FROM equality WHERE i2 = (1::bigint << 32) - 7;
SELECT i2 FROM equality WHERE i2 = (-7)::int4;
SELECT i2 FROM equality WHERE i2 = (1 << 16) - 7;
SELECT i2 FROM equality WHERE i2 = ANY ('{-7, 3, 65529, 4294967289}'::bigint[]) ORDER BY i2;
SELECT count(*) FROM equality WHERE u = md5('42')::uuid;
SELECT count(*) FROM equality WHERE b = decode(md5('42'), 'hex');
SELECT n FROM equality WHERE n = ANY ('{1.50, 2.500, 77}') ORDER BY n;
SELECT t FROM equality WHERE t = ANY ('{t1, t99, t100, none}') ORDER BY t DESC;
SELECT count(*) FROM equality WHERE t IS NULL;

DROP FUNCTION equality_fill;
DROP TABLE equality;
DROP COLLATION equality_ci;
