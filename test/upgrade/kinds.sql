-- Indexes on keys of every kind, with entries at every level.  After before.sql;
-- released versions run both.
SET client_min_messages = warning;
-- not every server has ICU
SELECT collname AS y FROM pg_collation WHERE collname IN ('und-x-icu', 'POSIX')
ORDER BY collname = 'POSIX' LIMIT 1
\gset
CREATE TYPE kind_colour AS ENUM ('red', 'green', 'blue');
CREATE TABLE kind (id int, i2 int2, i8 int8, f8 float8, n numeric, b bool, u uuid, s text,
	y text COLLATE :"y", p char(8), m name, h bytea, z timestamptz, l interval, ip inet,
	a int[], r int4range, c kind_colour, o oid);
CREATE FUNCTION kind_fill(first int, last int) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	INSERT INTO kind
	SELECT i, k % 100, k * 1000003::int8, sqrt(k), k / 7.0, k % 2 = 0, md5(k::text)::uuid,
		'text ' || md5(k::text), chr(192 + k % 300) || k, 'c' || k % 50, 'n' || k,
		decode(md5(k::text), 'hex'), timestamptz '2020-01-01 00:00:00+00' + k * interval '1 minute',
		k * interval '1 second', inet '10.0.0.0' + k, ARRAY[k % 10, k], int4range(k, k + 5),
		(ARRAY['red', 'green', 'blue'])[k % 3 + 1]::kind_colour, CASE WHEN k % 10 > 0 THEN k END
	FROM generate_series(first, last) i, abs(hashint4(i) % 10000) k;
END;

-- what each index is made of, and what it has in order
CREATE TABLE kind_index (name text, columns text, options text, condition text, value text, direction text);
INSERT INTO kind_index SELECT 'kind_' || attname, attname,
	CASE attname WHEN 'u' THEN 'WITH (pack_leaves = off)' WHEN 'z' THEN 'WITH (buffered = off)' ELSE '' END,
	'', attname, ''
FROM pg_attribute WHERE attrelid = 'kind'::regclass AND attnum > 1 AND attname <> 'c';
INSERT INTO kind_index VALUES
	('kind_several', 'c DESC NULLS LAST, s COLLATE "C", i8 DESC) INCLUDE (id', '', '', 'c', 'DESC NULLS LAST'),
	('kind_expression', 'upper(s), n', '', '', 'upper(s)', ''),
	('kind_part', '(i8 + 1)', '', 'WHERE b', 'i8 + 1', ''),
	('kind_empty', '(f8 + 1)', '', 'WHERE id < 0', 'f8 + 1', '');
SELECT format('CREATE INDEX %s ON kind USING cachebatch (%s) %s %s', name, columns, options, condition)
FROM kind_index
\gexec

-- packed leaves with and without new entries; dead rows, before and after VACUUM; runs;
-- entries that only the journal has
SELECT kind_fill(1, 3000);
SELECT count(cache_batch_flush(name)), count(cache_batch_compact(name)) FROM kind_index;
SELECT kind_fill(3001, 3100);
DELETE FROM kind WHERE id % 50 = 3;
VACUUM (INDEX_CLEANUP ON) kind;
SELECT format('ALTER INDEX %s SET (spill_threshold = 0)', name) FROM kind_index
\gexec
SET cache_batch.test_spill = on;
SET cache_batch.test_run_min = 1;
SELECT kind_fill(3101, 3160);
SELECT count(cache_batch_flush(name)) FROM kind_index;
SELECT kind_fill(3161, 3200);
DELETE FROM kind WHERE id % 50 = 4;
