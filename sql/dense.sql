-- Leaves of thousands of entries: keys in the order of the table's rows
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

-- leaves of an index, and the entries of the fullest
CREATE FUNCTION dense_leaves(index regclass, OUT leaves bigint, OUT most int)
LANGUAGE sql AS $$
	SELECT count(*), max(p.live_items + p.dead_items)
	FROM generate_series(1, pg_relation_size(index) / 8192 - 1) b, cache_batch_page(index, b) p
	WHERE p.type = 'leaf'
$$;

-- is the index sound, and does it give what the table has, in order?
CREATE FUNCTION dense_agrees(tab regclass, index regclass, cols text) RETURNS bool
LANGUAGE plpgsql AS $$
DECLARE
	answers text[];
	answer text;
BEGIN
	PERFORM cache_batch_verify(index, true);
	FOR i IN 1 .. 2 LOOP
		PERFORM set_config('enable_indexscan', CASE i WHEN 1 THEN 'on' ELSE 'off' END, true),
				set_config('enable_indexonlyscan', 'off', true),
				set_config('enable_bitmapscan', 'off', true),
				set_config('enable_seqscan', CASE i WHEN 1 THEN 'off' ELSE 'on' END, true),
				set_config('enable_sort', CASE i WHEN 1 THEN 'off' ELSE 'on' END, true);
		EXECUTE format('SELECT count(*) || md5(coalesce(string_agg(x::text, '',''), '''')) FROM (SELECT %2$s FROM %1$s ORDER BY %2$s) x',
					   tab, cols) INTO answer;
		answers := answers || answer;
	END LOOP;
	RETURN answers[1] = answers[2];
END
$$;

-- about 1000 events a second, with gaps of an exponential distribution
CREATE TABLE dense_time (id int, t timestamptz, k bigint) WITH (autovacuum_enabled = off);
CREATE INDEX dense_time_t ON dense_time USING cachebatch (t);
CREATE INDEX dense_time_k ON dense_time USING cachebatch (k);
INSERT INTO dense_time
	SELECT i, '2026-01-01'::timestamptz + round(sum(-1000 *
				ln(((hashint8extended(i, 1) & 1048575) + 1) / 1048576.0::float8)) OVER (ORDER BY i))
			* interval '1 microsecond', i * 4 + 1
	FROM generate_series(1, 50000) i ORDER BY i;
SELECT cache_batch_compact('dense_time_t') > 0 AS t, cache_batch_compact('dense_time_k') > 0 AS k;
-- 3.2 and 2.4 bytes an entry
SELECT leaves <= 20 AS leaves, most > 2600 AS most FROM dense_leaves('dense_time_t');
SELECT leaves <= 15 AS leaves, most > 3450 AS most FROM dense_leaves('dense_time_k');
SELECT dense_agrees('dense_time', 'dense_time_t', 't'), dense_agrees('dense_time', 'dense_time_k', 'k');

-- look-ups
SET enable_seqscan = off;
SELECT count(*) FROM dense_time a, LATERAL
	(SELECT 1 FROM dense_time b WHERE b.t = a.t AND b.id = a.id LIMIT 1 OFFSET 0) x WHERE a.id % 10 = 0;
SELECT count(*) FROM dense_time WHERE k = ANY (ARRAY(SELECT i * 4 + i % 2 FROM generate_series(1, 4000) i));
SELECT count(*), min(id), max(id) FROM dense_time
	WHERE t >= (SELECT t FROM dense_time WHERE k = 80001) AND t < (SELECT t FROM dense_time WHERE k = 120001);
RESET enable_seqscan;

-- entries between them, few and many
INSERT INTO dense_time SELECT 60000 + i, t + interval '1 microsecond', k + 1 FROM dense_time, generate_series(1, 2) i WHERE id % 1000 = 7;
SELECT (cache_batch_flush('dense_time_t'), cache_batch_flush('dense_time_k')) IS NOT NULL AS flushed;
SELECT dense_agrees('dense_time', 'dense_time_t', 't'), dense_agrees('dense_time', 'dense_time_k', 'k');
INSERT INTO dense_time SELECT 70000 + id, t - interval '1 second', k + 2 FROM dense_time WHERE id % 5 = 0;
SELECT (cache_batch_flush('dense_time_t'), cache_batch_flush('dense_time_k')) IS NOT NULL AS flushed;
SELECT dense_agrees('dense_time', 'dense_time_t', 't'), dense_agrees('dense_time', 'dense_time_k', 'k');

-- they go one by one, and all
DELETE FROM dense_time WHERE hashint4(id) % 7 = 0;
VACUUM dense_time;
SELECT dense_agrees('dense_time', 'dense_time_t', 't'), dense_agrees('dense_time', 'dense_time_k', 'k');
SELECT cache_batch_compact('dense_time_t') > 0 AS t, cache_batch_compact('dense_time_k') > 0 AS k;
DELETE FROM dense_time WHERE hashint4(id) % 3 <> 0 OR k BETWEEN 50000 AND 100000;
VACUUM dense_time;
SELECT dense_agrees('dense_time', 'dense_time_t', 't'), dense_agrees('dense_time', 'dense_time_k', 'k');
INSERT INTO dense_time SELECT i, '2026-01-01'::timestamptz + i * interval '1 ms', i * 4 FROM generate_series(1, 30000) i;
SELECT (cache_batch_flush('dense_time_t'), cache_batch_flush('dense_time_k')) IS NOT NULL AS flushed;
SELECT dense_agrees('dense_time', 'dense_time_t', 't'), dense_agrees('dense_time', 'dense_time_k', 'k');
DELETE FROM dense_time;
VACUUM dense_time;
SELECT dense_agrees('dense_time', 'dense_time_t', 't'), dense_agrees('dense_time', 'dense_time_k', 'k');

-- an event each second: one of each block of a full leaf's packed part goes, which must
-- not become longer
CREATE TABLE dense_tick (id int, t timestamptz) WITH (autovacuum_enabled = off);
INSERT INTO dense_tick SELECT i, '2026-01-01'::timestamptz + i * interval '1 s' FROM generate_series(1, 20000) i;
CREATE INDEX dense_tick_t ON dense_tick USING cachebatch (t) WITH (fillfactor = 100);
SELECT leaves <= 7 AS leaves, most > 3300 AS most FROM dense_leaves('dense_tick_t');
DELETE FROM dense_tick WHERE id % 64 = 5;
VACUUM dense_tick;
SELECT dense_agrees('dense_tick', 'dense_tick_t', 't');
DELETE FROM dense_tick WHERE id % 64 IN (4, 6, 60);
VACUUM dense_tick;
SELECT dense_agrees('dense_tick', 'dense_tick_t', 't');
SELECT cache_batch_compact('dense_tick_t') IS NOT NULL AS compacted;
SELECT dense_agrees('dense_tick', 'dense_tick_t', 't');

-- a leaf of as many as there can be gets long ones, which need pages for
-- themselves
CREATE TABLE dense_text (id int, s text COLLATE "C") WITH (autovacuum_enabled = off);
INSERT INTO dense_text SELECT i, CASE WHEN i <= 1900 THEN 'a' ELSE 'b' END FROM generate_series(1, 3800) i;
CREATE INDEX dense_text_s ON dense_text USING cachebatch (s, id);
CREATE INDEX dense_text_r ON dense_text USING cachebatch (s);
SELECT leaves, most FROM dense_leaves('dense_text_r');
INSERT INTO dense_text SELECT 5000 + i, 'ab' || string_agg(md5((i * 100 + j)::text), '')
	FROM generate_series(1, 40) i, generate_series(1, 80) j WHERE j <= 40 + i GROUP BY i;
SELECT (cache_batch_flush('dense_text_s'), cache_batch_flush('dense_text_r')) IS NOT NULL AS flushed;
SELECT dense_agrees('dense_text', 'dense_text_s', 's, id'), dense_agrees('dense_text', 'dense_text_r', 's');
DELETE FROM dense_text WHERE s = 'a' OR id % 2 = 0;
VACUUM dense_text;
SELECT dense_agrees('dense_text', 'dense_text_s', 's, id'), dense_agrees('dense_text', 'dense_text_r', 's');

-- one entry that spoils the coding of all, and leaves that are not to be packed
-- any more: they become too many plain pages for one split
CREATE TABLE dense_null (k bigint, n int) WITH (autovacuum_enabled = off);
INSERT INTO dense_null SELECT i / 2000, 5 FROM generate_series(1, 3790) i;
CREATE INDEX dense_null_k ON dense_null USING cachebatch (k, n);
CREATE INDEX dense_null_o ON dense_null USING cachebatch (k);
SELECT leaves, most FROM dense_leaves('dense_null_k');
SELECT leaves, most FROM dense_leaves('dense_null_o');
ALTER INDEX dense_null_o SET (pack_leaves = off);
INSERT INTO dense_null VALUES (0, NULL);
SELECT (cache_batch_flush('dense_null_k'), cache_batch_flush('dense_null_o')) IS NOT NULL AS flushed;
SELECT dense_agrees('dense_null', 'dense_null_k', 'k, n'), dense_agrees('dense_null', 'dense_null_o', 'k');
INSERT INTO dense_null SELECT i % 3 - 1, nullif(i % 2, 1) FROM generate_series(1, 1500) i;
SELECT (cache_batch_flush('dense_null_k'), cache_batch_flush('dense_null_o')) IS NOT NULL AS flushed;
SELECT dense_agrees('dense_null', 'dense_null_k', 'k, n'), dense_agrees('dense_null', 'dense_null_o', 'k');

-- new entries that spoil the coding of all others while there are few of them:
-- together they would be too many for one split, so the leaf is cut as it is
CREATE TABLE dense_wide (k bigint, a uuid, b uuid, c uuid) WITH (autovacuum_enabled = off);
INSERT INTO dense_wide SELECT i * 10, md5('a')::uuid, md5('b')::uuid, md5('c')::uuid FROM generate_series(1, 4000) i;
CREATE INDEX dense_wide_k ON dense_wide USING cachebatch (k) INCLUDE (a, b, c) WITH (fillfactor = 75);
CREATE INDEX dense_wide_p ON dense_wide USING cachebatch (k) INCLUDE (a, b, c) WITH (fillfactor = 75) WHERE k <= 18500;
SELECT leaves, most > 1800 AS most FROM dense_leaves('dense_wide_k');
SELECT leaves, most > 1800 AS most FROM dense_leaves('dense_wide_p');
INSERT INTO dense_wide SELECT i * 640 + 5, md5('a' || i)::uuid, md5('b' || i)::uuid, md5('c' || i)::uuid FROM generate_series(1, 28) i;
SELECT (cache_batch_flush('dense_wide_k'), cache_batch_flush('dense_wide_p')) IS NOT NULL AS flushed;
SELECT leaves, most > 1800 AS most FROM dense_leaves('dense_wide_p');
INSERT INTO dense_wide SELECT i * 1000 + 7, md5('d' || i)::uuid, md5('e' || i)::uuid, md5('f' || i)::uuid FROM generate_series(1, 10) i;
SELECT (cache_batch_flush('dense_wide_k'), cache_batch_flush('dense_wide_p')) IS NOT NULL AS flushed;
SELECT leaves FROM dense_leaves('dense_wide_p');
SELECT dense_agrees('dense_wide', 'dense_wide_k', 'k');
SELECT cache_batch_verify('dense_wide_p', true);
INSERT INTO dense_wide SELECT i * 41 + 3, md5('g' || i)::uuid, md5('h' || i)::uuid, md5('i' || i)::uuid FROM generate_series(1, 400) i;
SELECT (cache_batch_flush('dense_wide_k'), cache_batch_flush('dense_wide_p')) IS NOT NULL AS flushed;
SELECT dense_agrees('dense_wide', 'dense_wide_k', 'k');
SELECT cache_batch_verify('dense_wide_p', true);

-- the same where a half that loses little of its packed part gets a high key as long as
-- a third of a page: short keys that are equal to long ones, all far to the left
CREATE TABLE dense_blank (id int, s bpchar) WITH (autovacuum_enabled = off);
ALTER TABLE dense_blank ALTER s SET STORAGE PLAIN;
INSERT INTO dense_blank SELECT i, CASE WHEN i % 2 = 0 OR i > 340 THEN rpad('a', 2650) END FROM generate_series(1, 800) i;
CREATE INDEX dense_blank_s ON dense_blank USING cachebatch (s) WITH (fillfactor = 100, buffered = off) WHERE s IS NOT NULL;
SELECT leaves, most > 600 AS most FROM dense_leaves('dense_blank_s');
DELETE FROM dense_blank WHERE s IS NULL;
VACUUM dense_blank;
INSERT INTO dense_blank SELECT 1000 + i, 'a' FROM generate_series(1, 225) i;
SELECT leaves > 1 AS leaves FROM dense_leaves('dense_blank_s');
SELECT cache_batch_verify('dense_blank_s', true);

-- what a scan finds dead, far behind in its leaf, makes room for new ones
CREATE TABLE dense_dead (k bigint) WITH (autovacuum_enabled = off);
INSERT INTO dense_dead SELECT i * 4 FROM generate_series(1, 3500) i;
CREATE INDEX dense_dead_k ON dense_dead USING cachebatch (k);
SELECT most > 3000 AS most FROM dense_leaves('dense_dead_k');
DELETE FROM dense_dead WHERE k > 9000;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM dense_dead WHERE k > 8000;
SELECT count(*) FROM dense_dead WHERE k > 8000;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT p.dead_items > 300 AS marked FROM cache_batch_page('dense_dead_k', 1) p;
INSERT INTO dense_dead SELECT i * 4 + 1 FROM generate_series(2300, 3500) i;
SELECT cache_batch_flush('dense_dead_k') IS NOT NULL AS flushed;
SELECT dropped > 300 AS dropped FROM cache_batch_stat_indexes WHERE indexrelname = 'dense_dead_k';
SELECT dense_agrees('dense_dead', 'dense_dead_k', 'k');

DROP TABLE dense_time, dense_tick, dense_text, dense_null, dense_wide, dense_blank, dense_dead;
DROP FUNCTION dense_leaves, dense_agrees;
