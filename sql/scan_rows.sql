--
-- Pages of a table that an index scan turns to by itself: they are pruned, and
-- count, as those that the server turns to; and the rows are the right ones when
-- the table's pages have moved.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SET max_parallel_workers_per_gather = 0;
SET jit = off;

-- ---------- pruned ----------

CREATE TABLE sr_one (id int, n int) WITH (autovacuum_enabled = off);
CREATE INDEX sr_one_id ON sr_one USING cachebatch (id);
INSERT INTO sr_one VALUES (7, 0);

-- each UPDATE's version is dead when the next but one comes
CREATE PROCEDURE sr_update(times int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1 .. times LOOP
		UPDATE sr_one SET n = n + 1 WHERE id = 7;
		COMMIT;
	END LOOP;
END $$;
CALL sr_update(3000);
SELECT n, pg_relation_size('sr_one') / current_setting('block_size')::int <= 6 AS pruned
FROM sr_one WHERE id = 7;

-- ---------- counted ----------

-- 3,000 rows on some 40 pages, in another order by their keys
CREATE TABLE sr_many (id int, b int, k int, n int, pad text) WITH (autovacuum_enabled = off);
INSERT INTO sr_many SELECT i, i * 7919 % 30011, i * 7919 % 30011, i % 10, lpad('', 60) FROM generate_series(1, 3000) i;
CREATE INDEX sr_many_b ON sr_many (b);
CREATE INDEX sr_many_k ON sr_many USING cachebatch (k);
ANALYZE sr_many;

-- What a query answers, and how many pages of the table it visits.
CREATE FUNCTION sr_ask(query text, OUT answer text, OUT visited bigint, OUT hit bigint)
LANGUAGE plpgsql AS $$
DECLARE
	t oid := 'sr_many'::regclass;
BEGIN
	visited := -pg_stat_get_xact_blocks_fetched(t);
	hit := -pg_stat_get_xact_blocks_hit(t);
	EXECUTE query INTO answer;
	visited := visited + pg_stat_get_xact_blocks_fetched(t);
	hit := hit + pg_stat_get_xact_blocks_hit(t);
END $$;

-- as often as it takes for all pages to be known
SELECT count(*), count(DISTINCT r) AS different
FROM (SELECT sr_ask('SELECT md5(string_agg(id::text, '','')) FROM (SELECT id FROM sr_many ORDER BY b) q') AS r
	FROM generate_series(1, 12)) q;
SELECT count(*), count(DISTINCT r) AS different
FROM (SELECT sr_ask('SELECT md5(string_agg(id::text, '','')) FROM (SELECT id FROM sr_many ORDER BY k) q') AS r
	FROM generate_series(1, 12)) q;
SELECT a = b AS as_btree, a.visited > 2000 AS visits, a.visited = a.hit AS hit
FROM sr_ask('SELECT md5(string_agg(id::text, '','')) FROM (SELECT id FROM sr_many ORDER BY b) q') a,
	sr_ask('SELECT md5(string_agg(id::text, '','')) FROM (SELECT id FROM sr_many ORDER BY k) q') b;
SELECT a = b AS as_btree
FROM sr_ask('SELECT md5(string_agg(id::text, '','')) FROM (SELECT id FROM sr_many WHERE b <= 20000 ORDER BY b DESC LIMIT 700) q') a,
	sr_ask('SELECT md5(string_agg(id::text, '','')) FROM (SELECT id FROM sr_many WHERE k <= 20000 ORDER BY k DESC LIMIT 700) q') b;

-- ---------- moved ----------

CREATE FUNCTION sr_compare() RETURNS TABLE (query text, same bool) LANGUAGE sql AS $$
	SELECT q, (sr_ask(format(q, 'b'))).answer IS NOT DISTINCT FROM (sr_ask(format(q, 'k'))).answer
	FROM unnest('{"SELECT md5(string_agg(id::text || n, '','')) FROM (SELECT id, n FROM sr_many WHERE %1$s >= 0 ORDER BY %1$s) q",
		"SELECT md5(string_agg(id::text || n, '','')) FROM (SELECT id, n FROM sr_many WHERE %1$s < 25000 ORDER BY %1$s DESC) q",
		"SELECT sum(id) FROM sr_many WHERE %1$s = ANY (ARRAY(SELECT i * 7919 %% 30011 FROM generate_series(1, 3000, 7) i))"}'::text[]) q
$$;
SELECT * FROM sr_compare();
DELETE FROM sr_many WHERE id % 3 = 0;
SELECT * FROM sr_compare();
VACUUM sr_many;
INSERT INTO sr_many SELECT i, i * 7919 % 30011, i * 7919 % 30011, i % 10, lpad('', 60) FROM generate_series(3001, 5000) i;
SELECT * FROM sr_compare();
UPDATE sr_many SET n = n + 1, k = k + 1, b = b + 1 WHERE id % 2 = 0;
SELECT * FROM sr_compare();
VACUUM FULL sr_many;
SELECT * FROM sr_compare();
BEGIN;
TRUNCATE sr_many;
INSERT INTO sr_many SELECT i, i * 7919 % 30011, i * 7919 % 30011, 3, lpad('', 200) FROM generate_series(1, 500) i;
SELECT * FROM sr_compare();
ROLLBACK;
SELECT * FROM sr_compare();

DROP TABLE sr_one, sr_many;
DROP PROCEDURE sr_update;
DROP FUNCTION sr_compare, sr_ask;
