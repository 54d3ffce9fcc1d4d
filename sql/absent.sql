-- Look-ups of keys that are not there: a leaf's first entries tell it, and the next
-- key is looked for in the same leaf, if it can be there.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
CREATE TABLE absent (k bigint, n int) WITH (autovacuum_enabled = off);
CREATE INDEX absent_k ON absent USING cachebatch (k) WITH (pack_leaves = off);
-- even numbers; one of them fills several leaves
INSERT INTO absent SELECT i * 2, i FROM generate_series(-3000, 3000) i;
INSERT INTO absent SELECT 1000, i FROM generate_series(1, 2000) i;
INSERT INTO absent SELECT NULL, i FROM generate_series(1, 10) i;
SELECT cache_batch_flush('absent_k');
VACUUM ANALYZE absent;

-- what an outer table asks for, in its order; a third of it is not there
CREATE TABLE absent_asked (i int, k8 bigint, k4 int, k2 smallint);
INSERT INTO absent_asked
SELECT i, k, k, k FROM (SELECT i, i - 4000 + (i % 3 = 0 AND i % 2 = 1)::int AS k FROM generate_series(0, 8000) i) s;
ANALYZE absent_asked;
-- the rows for each order and type of the keys, and what is right
CREATE FUNCTION absent_ask(want text, arrange text)
RETURNS TABLE (plan text, hits bigint, wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE format('CREATE TEMP TABLE absent_answers AS SELECT a.i, (SELECT count(*) FROM absent t WHERE t.k = a.%1$I) AS n '
				   'FROM (SELECT * FROM absent_asked ORDER BY %2$s OFFSET 0) a', want, arrange);
	FOR line IN EXECUTE format('EXPLAIN (COSTS off) SELECT a.i, (SELECT count(*) FROM absent t WHERE t.k = a.%I) FROM absent_asked a', want)
	LOOP
		plan := coalesce(plan, substring(line FROM 'Index Only Scan using absent_k'));
	END LOOP;
	SELECT count(*) FILTER (WHERE f.n > 0), count(*) FILTER (WHERE f.n <> coalesce(r.n, 0))
	INTO hits, wrong
	FROM absent_answers f JOIN absent_asked a USING (i)
	LEFT JOIN (SELECT (k + 0) AS k, count(*) AS n FROM absent GROUP BY 1) r ON r.k = a.k8;
	DROP TABLE absent_answers;
	RETURN NEXT;
END $$;
SET client_min_messages = warning;
SELECT want, arrange, f.* FROM (VALUES ('k8'), ('k4'), ('k2')) w (want),
	(VALUES ('i'), ('i DESC'), ('hashint4(i)')) o (arrange), absent_ask(want, arrange) f ORDER BY 1, 2;

-- the last rows of a leaf go: what is looked for begins in the next one
REINDEX INDEX absent_k;
DELETE FROM absent WHERE k = 1000 AND n < 1500;
VACUUM absent;
SELECT want, f.* FROM (VALUES ('k8'), ('k4')) w (want), absent_ask(want, 'i') f ORDER BY 1;

-- the same of packed leaves, with a delta, and of entries in buckets
ALTER INDEX absent_k SET (pack_leaves = on);
REINDEX INDEX absent_k;
SELECT want, f.* FROM (VALUES ('k8'), ('k4')) w (want), absent_ask(want, 'hashint4(i)') f ORDER BY 1;
INSERT INTO absent SELECT i, i FROM generate_series(-3999, 3999, 40) i;
INSERT INTO absent SELECT i, i FROM generate_series(-3995, 3999, 1000) i;
INSERT INTO absent SELECT i, i FROM generate_series(-3993, 3999, 1000) i;
SELECT want, f.* FROM (VALUES ('k8'), ('k4')) w (want), absent_ask(want, 'hashint4(i)') f ORDER BY 1;
SELECT cache_batch_flush('absent_k');
SELECT want, f.* FROM (VALUES ('k8'), ('k4')) w (want), absent_ask(want, 'hashint4(i)') f ORDER BY 1;

-- descending, and an array of shorter integers
DROP INDEX absent_k;
CREATE INDEX absent_k ON absent USING cachebatch (k DESC);
SELECT want, f.* FROM (VALUES ('k8'), ('k4')) w (want), absent_ask(want, 'i') f ORDER BY 1;
SELECT count(*), sum(k) FROM absent WHERE k = ANY (ARRAY[-7, -6, -5999, 5, 6, 7, 41]::int[]);
DROP INDEX absent_k;
CREATE INDEX absent_k ON absent USING cachebatch (k);
SELECT count(*), sum(k) FROM absent WHERE k = ANY (ARRAY[-7, -6, -5999, 5, 6, 7, 41]::int[]);
SELECT count(*), sum(k) FROM absent WHERE k = ANY (ARRAY[-7, -6, -5999, 5, 6, 7, 41]::smallint[]);
SELECT count(*), sum(k) FROM absent WHERE k > -9::int AND k <= 5::smallint;

-- a second column
DROP INDEX absent_k;
CREATE INDEX absent_k ON absent USING cachebatch (k, n);
SELECT i, (SELECT count(*) FROM absent t WHERE t.k = a.k8 AND t.n = a.i) AS n
FROM (VALUES (1::bigint, 2), (2, 1), (2, 2), (1000, 1499), (1000, 1500), (1000, 3000), (2, 1)) a (k8, i);

-- a scan that begins at an end of the index, and goes on, and turns
SELECT min(k), max(k) FROM absent;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT k, n FROM absent WHERE k IS NOT NULL ORDER BY k DESC, n DESC;
FETCH 7 FROM c;
FETCH 3 FROM c;
FETCH BACKWARD 4 FROM c;
MOVE FORWARD ALL FROM c;
FETCH BACKWARD 2 FROM c;
COMMIT;
SELECT count(*), sum(k), min(n) FROM (SELECT k, n FROM absent WHERE k IS NOT NULL ORDER BY k, n LIMIT 20) s;
SELECT count(*), sum(k), min(n) FROM (SELECT k, n FROM absent WHERE k IS NOT NULL ORDER BY k DESC, n DESC LIMIT 20) s;
SELECT count(*) FROM (SELECT k FROM absent ORDER BY k DESC, n DESC) s;

-- the same where the bucket at the end has entries in order (with ctid the table is read)
CREATE FUNCTION absent_ends() RETURNS TABLE (low boolean, high boolean, ends boolean) LANGUAGE sql AS $$
SELECT (SELECT array_agg(k) FROM (SELECT k FROM absent ORDER BY k LIMIT 30) s) =
		(SELECT array_agg(k) FROM (SELECT k FROM (SELECT k, ctid FROM absent OFFSET 0) a ORDER BY k LIMIT 30) s),
	(SELECT array_agg(k) FROM (SELECT k FROM absent ORDER BY k DESC LIMIT 30) s) IS NOT DISTINCT FROM
		(SELECT array_agg(k) FROM (SELECT k FROM (SELECT k, ctid FROM absent OFFSET 0) a ORDER BY k DESC LIMIT 30) s),
	(SELECT (min(k), max(k)) FROM absent) = (SELECT (min(k), max(k)) FROM (SELECT k, ctid FROM absent OFFSET 0) a)
$$;
DELETE FROM absent WHERE k IS NULL;
INSERT INTO absent SELECT i * 30 - 7000, i FROM generate_series(1, 500) i;
INSERT INTO absent SELECT i * 50 - 6990, i FROM generate_series(500, 1, -1) i;
SELECT count(*) FROM generate_series(1, 10) i, LATERAL (SELECT k FROM absent WHERE k > -10000 + 0 * i ORDER BY k OFFSET 0) s;
SELECT count(*) > 0 AS buckets, sum(chunks) > 0 AS chunks, sum(entries) = sum(sorted_entries) AS sorted
FROM cache_batch_bucket_list('absent_k');
EXPLAIN (COSTS off) SELECT k FROM absent ORDER BY k DESC LIMIT 30;
SELECT * FROM absent_ends();
-- the first entries belong to rows that are gone
DELETE FROM absent WHERE k IN (SELECT k FROM absent ORDER BY k DESC LIMIT 3) OR k IN (SELECT k FROM absent ORDER BY k LIMIT 3);
SELECT * FROM absent_ends();
SELECT * FROM absent_ends();
-- a publication that is not in order yet; then nulls
INSERT INTO absent SELECT 20000 - i, i FROM generate_series(1, 20) i;
SELECT * FROM absent_ends();
INSERT INTO absent SELECT NULL, i FROM generate_series(1, 15) i;
SELECT * FROM absent_ends();
SELECT count(*) FROM generate_series(1, 40) i, LATERAL (SELECT k FROM absent ORDER BY k DESC, i LIMIT 250) s;
SELECT sum(entries) = sum(sorted_entries) AS sorted FROM cache_batch_bucket_list('absent_k');
SELECT * FROM absent_ends();
DROP FUNCTION absent_ends;
DROP TABLE absent, absent_asked;
DROP FUNCTION absent_ask;

-- look-ups that go on from a copy of the root, while the tree gets a level more
CREATE TABLE absent_grows (k bigint) WITH (autovacuum_enabled = off);
CREATE INDEX absent_grows_k ON absent_grows USING cachebatch (k) WITH (pack_leaves = off);
INSERT INTO absent_grows SELECT i * 100 FROM generate_series(1, 4000) i;
SELECT cache_batch_flush('absent_grows_k');
-- the index gets new keys after some of the look-ups
CREATE FUNCTION absent_grow(want text, n int, after int, new text,
	OUT levels_before int, OUT levels_after int, OUT asked int, OUT hits bigint, OUT few_pages boolean)
LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	answer bigint;
	pages bigint;
BEGIN
	levels_before := root_level FROM cache_batch_metapage('absent_grows_k');
	asked := 0;
	hits := 0;
	OPEN c FOR EXECUTE format('SELECT (SELECT count(*) FROM absent_grows t WHERE t.k = %s) FROM generate_series(1, %s) i', want, n);
	LOOP
		FETCH c INTO answer;
		EXIT WHEN NOT FOUND;
		asked := asked + 1;
		hits := hits + answer;
		IF asked = after THEN
			EXECUTE 'INSERT INTO absent_grows ' || new;
			PERFORM cache_batch_flush('absent_grows_k');
			pages := pg_stat_get_xact_blocks_fetched('absent_grows_k'::regclass);
		END IF;
	END LOOP;
	few_pages := pg_stat_get_xact_blocks_fetched('absent_grows_k'::regclass) - pages < 20 * (n - after);
	levels_after := root_level FROM cache_batch_metapage('absent_grows_k');
END $$;
SELECT * FROM absent_grow('i * 50', 8000, 1000, 'SELECT i * 7919 % 400000 FROM generate_series(1, 250000) i');
-- and at its right end: nobody walks over all new leaves for each key
TRUNCATE absent_grows;
INSERT INTO absent_grows SELECT i * 100 FROM generate_series(1, 4000) i;
SELECT cache_batch_flush('absent_grows_k') IS NOT NULL AS flushed;
SELECT * FROM absent_grow('400001 + 2 * (i * 7919 % 100000)', 1500, 500, 'SELECT 400000 + 2 * i FROM generate_series(1, 100000) i');
DROP TABLE absent_grows;
DROP FUNCTION absent_grow;
