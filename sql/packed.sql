-- Packed leaves
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

-- how many leaves of an index are packed, and how many are not
CREATE FUNCTION packed_leaves(index regclass, OUT packed bigint, OUT plain bigint, OUT dead bigint)
LANGUAGE sql AS $$
	SELECT count(*) FILTER (WHERE 'packed' = ANY (p.flags)),
		   count(*) FILTER (WHERE 'packed' <> ALL (p.flags)),
		   coalesce(sum(p.dead_items) FILTER (WHERE 'packed' = ANY (p.flags)), 0)
	FROM generate_series(1, pg_relation_size(index) / 8192 - 1) b,
		 LATERAL cache_batch_page(index, b) p
	WHERE p.type = 'leaf'
$$;

-- an index gives the rows of the table, in order, from both ends
CREATE FUNCTION packed_agrees(tab regclass, cols text, rev text) RETURNS bool
LANGUAGE plpgsql AS $$
DECLARE
	answers text[];
	answer text;
	plan text;
BEGIN
	FOR i IN 1 .. 4 LOOP
		PERFORM set_config('enable_indexscan', CASE WHEN i IN (2, 4) THEN 'on' ELSE 'off' END, true),
				set_config('enable_indexonlyscan', 'off', true),
				set_config('enable_bitmapscan', 'off', true),
				set_config('enable_seqscan', CASE WHEN i IN (2, 4) THEN 'off' ELSE 'on' END, true),
				set_config('enable_sort', CASE WHEN i IN (2, 4) THEN 'off' ELSE 'on' END, true);
		EXECUTE format('SELECT md5(string_agg(x::text, '','')) FROM (SELECT id FROM %s ORDER BY %s) x',
					   tab, CASE WHEN i > 2 THEN rev ELSE cols END) INTO answer;
		answers := answers || answer;
	END LOOP;
	FOR plan IN EXECUTE format('EXPLAIN (COSTS off) SELECT id FROM %s ORDER BY %s', tab, cols) LOOP
		IF plan LIKE '%Sort%' OR plan LIKE '%Seq Scan%' THEN
			RAISE EXCEPTION 'not by the index: %', plan;
		END IF;
	END LOOP;
	RETURN answers[1] = answers[2] AND answers[3] = answers[4];
END
$$;

-- fills a table in parts, so that leaves get packed parts, deltas, and are split
CREATE FUNCTION packed_fill(tab regclass, vals text, parts int[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
	last int := 0;
BEGIN
	FOR i IN 1 .. array_length(parts, 1) LOOP
		EXECUTE format('INSERT INTO %s SELECT i, %s FROM generate_series(%s, %s) i',
					   tab, vals, last + 1, last + parts[i]);
		last := last + parts[i];
		PERFORM cache_batch_flush(indexrelid) FROM pg_index WHERE indrelid = tab;
	END LOOP;
END
$$;

CREATE TABLE packed_int8 (id int, k int8) WITH (autovacuum_enabled = off);
CREATE INDEX packed_int8_k ON packed_int8 USING cachebatch (k, id);
CREATE TABLE packed_asc (id int, k int8) WITH (autovacuum_enabled = off);
CREATE INDEX packed_asc_k ON packed_asc USING cachebatch (k);
CREATE TABLE packed_desc (id int, k int4) WITH (autovacuum_enabled = off);
CREATE INDEX packed_desc_k ON packed_desc USING cachebatch (k DESC NULLS LAST, id);
CREATE TABLE packed_few (id int, k int8) WITH (autovacuum_enabled = off);
CREATE INDEX packed_few_k ON packed_few USING cachebatch (k);
CREATE TABLE packed_uuid (id int, k uuid) WITH (autovacuum_enabled = off);
CREATE INDEX packed_uuid_k ON packed_uuid USING cachebatch (k);
CREATE TABLE packed_text (id int, k text COLLATE "C") WITH (autovacuum_enabled = off);
CREATE INDEX packed_text_k ON packed_text USING cachebatch (k, id);
CREATE TABLE packed_mixed (id int, k numeric, t text, f float8) WITH (autovacuum_enabled = off);
CREATE INDEX packed_mixed_k ON packed_mixed USING cachebatch (k, t DESC, id) INCLUDE (f);

SELECT packed_fill('packed_int8', 'hashint8extended(i, 1)', '{1000,3000,10,10000,1,6000}');
SELECT packed_fill('packed_asc', 'i * 3', '{1000,3000,10,10000,1,6000}');
SELECT packed_fill('packed_desc', 'nullif(hashint4(i) % 5000, 7)', '{1000,3000,10,10000,1,6000}');
SELECT packed_fill('packed_few', 'i % 3', '{1000,3000,10,10000,1,6000}');
SELECT packed_fill('packed_uuid', 'md5(i::text)::uuid', '{1000,3000,10,10000,1,6000}');
SELECT packed_fill('packed_text',
	$$'https://example.org/' || md5((i % 400)::text) || '/' || repeat('x', i % 30)$$, '{1000,3000,10,10000}');
SELECT packed_fill('packed_mixed',
	$$nullif(i % 901, 13) / 7.0, CASE WHEN i % 5 > 0 THEN md5((i % 77)::text) || repeat('y', i % 200) END, i$$,
	'{1000,3000,10,4000}');

SELECT relname, (packed_leaves(oid)).packed > 0 AS packed
FROM pg_class WHERE relname ~ '^packed_.*_k$' ORDER BY relname;

CREATE FUNCTION packed_all() RETURNS TABLE (name text, agrees bool) LANGUAGE sql AS $$
	SELECT 'int8', packed_agrees('packed_int8', 'k, id', 'k DESC, id DESC')
	UNION ALL SELECT 'asc', packed_agrees('packed_asc', 'k', 'k DESC')
	UNION ALL SELECT 'desc', packed_agrees('packed_desc', 'k DESC NULLS LAST, id', 'k NULLS FIRST, id DESC')
	UNION ALL SELECT 'uuid', packed_agrees('packed_uuid', 'k', 'k DESC')
	UNION ALL SELECT 'text', packed_agrees('packed_text', 'k, id', 'k DESC, id DESC')
	UNION ALL SELECT 'mixed', packed_agrees('packed_mixed', 'k, t DESC, id', 'k DESC, t, id DESC')
	UNION ALL SELECT relname, cache_batch_verify(oid, true) IS NOT NULL
	FROM pg_class WHERE relname ~ '^packed_.*_k$'
$$;
SELECT * FROM packed_all();
SELECT k, count(*) FROM packed_few GROUP BY k ORDER BY k;

-- look-ups: every row is found by its key, and nothing by others
SET enable_seqscan = off;
SELECT count(*) FROM packed_int8 a, LATERAL
	(SELECT 1 FROM packed_int8 b WHERE b.k = hashint8extended(a.id, 1) AND b.id = a.id LIMIT 1 OFFSET 0) x;
SELECT count(*) FROM packed_uuid a WHERE EXISTS
	(SELECT 1 FROM packed_uuid b WHERE b.k = md5(a.id::text)::uuid OFFSET 0);
SELECT count(*) FROM packed_asc WHERE k = ANY (ARRAY(SELECT i * 3 + i % 2 FROM generate_series(1, 2000) i));
RESET enable_seqscan;

-- dead entries are marked in the packed part, and VACUUM removes them from there
DELETE FROM packed_int8 WHERE id % 3 = 0;
DELETE FROM packed_text WHERE id % 3 = 0;
DELETE FROM packed_asc WHERE id BETWEEN 4000 AND 9000;
DELETE FROM packed_few WHERE k = 1;
SELECT * FROM packed_all();
SELECT dead > 0 AS marked FROM packed_leaves('packed_int8_k');
SELECT * FROM packed_all();
VACUUM packed_int8, packed_text, packed_asc, packed_few;
SELECT dead FROM packed_leaves('packed_int8_k');
SELECT * FROM packed_all();
SELECT k, count(*) FROM packed_few GROUP BY k ORDER BY k;

-- what was emptied is filled again
INSERT INTO packed_asc SELECT i, i * 3 FROM generate_series(4000, 9000) i;
SELECT * FROM packed_all() WHERE name LIKE '%asc%';

-- the entries of one leaf
SELECT count(*) FILTER (WHERE ordinal IS NULL) > 0 AS plain,
	   count(*) FILTER (WHERE ordinal IS NOT NULL) > 100 AS packed,
	   bool_and(itemlen = 16 AND NOT dead AND htid IS NOT NULL) AS whole
FROM cache_batch_page_items('packed_asc_k',
	(SELECT b FROM generate_series(1, pg_relation_size('packed_asc_k') / 8192 - 1) b,
	 LATERAL cache_batch_page('packed_asc_k', b) p
	 WHERE 'packed' = ANY (p.flags) ORDER BY p.live_items DESC LIMIT 1))
WHERE itemoffset > 1;

-- builds pack too; the parameter says whether
REINDEX INDEX packed_int8_k;
SELECT packed > 0, plain FROM packed_leaves('packed_int8_k');
SELECT pg_relation_size('packed_int8_k') AS size \gset
ALTER INDEX packed_int8_k SET (pack_leaves = off);
REINDEX INDEX packed_int8_k;
SELECT packed, plain > 0 FROM packed_leaves('packed_int8_k');
SELECT pg_relation_size('packed_int8_k') > 2 * :size AS larger;
SELECT * FROM packed_all() WHERE name LIKE '%int8%';
ALTER INDEX packed_int8_k RESET (pack_leaves);
INSERT INTO packed_int8 SELECT i, hashint8extended(i, 1) FROM generate_series(30001, 40000) i;
SELECT cache_batch_flush('packed_int8_k');
SELECT packed > 0 FROM packed_leaves('packed_int8_k');
SELECT * FROM packed_all() WHERE name LIKE '%int8%';

-- a packed part of one key many times, then keys that do not repeat: more than a split
-- into pages of as many plain bytes could hold
CREATE FUNCTION packed_noise(i int, n int) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(md5((i * 1000 + j)::text), '') FROM generate_series(1, n) j
$$;
CREATE TABLE packed_mix (id int, k text) WITH (autovacuum_enabled = off);
CREATE INDEX packed_mix_k ON packed_mix USING cachebatch (k);
INSERT INTO packed_mix SELECT i, 'm' || packed_noise(0, 6) FROM generate_series(1, 1500) i;
SELECT cache_batch_flush('packed_mix_k');
INSERT INTO packed_mix SELECT i, 'z' || packed_noise(i, 6) FROM generate_series(2001, 2100) i;
INSERT INTO packed_mix SELECT i, 'a' || packed_noise(i, 6) FROM generate_series(3001, 3100) i;
-- what waits in journal and buckets gets there, too
DO $$ BEGIN FOR i IN 4001 .. 4060 LOOP
	INSERT INTO packed_mix SELECT i, 'm' || packed_noise(i, 80);
	COMMIT;
END LOOP; END $$;
DELETE FROM packed_mix WHERE id % 10 = 0;
VACUUM packed_mix;
SELECT count(*) AS rows FROM packed_mix \gset
SET enable_seqscan = off;
SELECT count(*) = :rows AS all_there, count(DISTINCT id) = :rows AS once
FROM (SELECT id FROM packed_mix WHERE k > '' ORDER BY k DESC OFFSET 0) x;
RESET enable_seqscan;
SELECT cache_batch_verify('packed_mix_k', true) IS NOT NULL AS whole;
-- ... and where packing is switched off afterwards
CREATE TABLE packed_off (id int, k text) WITH (autovacuum_enabled = off);
CREATE INDEX packed_off_k ON packed_off USING cachebatch (k);
INSERT INTO packed_off SELECT i, 'm' || packed_noise(0, 6) FROM generate_series(1, 1500) i;
SELECT cache_batch_flush('packed_off_k');
ALTER INDEX packed_off_k SET (pack_leaves = off);
INSERT INTO packed_off SELECT i, 'z' || packed_noise(i, 3) FROM generate_series(2001, 2100) i;
SELECT cache_batch_flush('packed_off_k') IS NOT NULL AS flushed;
SELECT count(*) FROM packed_off WHERE k > '';
SELECT cache_batch_verify('packed_off_k', true) IS NOT NULL AS whole;
-- a build goes from plain leaves to packed ones, with long separators
CREATE TABLE packed_build (k text) WITH (autovacuum_enabled = off);
ALTER TABLE packed_build ALTER k SET STORAGE EXTERNAL;
INSERT INTO packed_build SELECT 'a' || lpad(i::text, 5, '0') || packed_noise(i, 21) FROM generate_series(1, 500) i;
INSERT INTO packed_build SELECT 'b' || packed_noise(0, 78) FROM generate_series(1, 2000) i;
INSERT INTO packed_build SELECT 'c' || lpad(i::text, 5, '0') || packed_noise(i, 21) FROM generate_series(1, 500) i;
CREATE INDEX packed_build_k ON packed_build USING cachebatch (k);
SELECT packed > 0 AS packed, plain > 100 AS plain FROM packed_leaves('packed_build_k');
SELECT cache_batch_verify('packed_build_k', true) IS NOT NULL AS whole;
-- ... and packs long entries of which few go into a leaf
TRUNCATE packed_build;
INSERT INTO packed_build SELECT packed_noise(0, 20) || packed_noise(i, 10) FROM generate_series(1, 2000) i;
REINDEX INDEX packed_build_k;
SELECT packed > plain AS packed FROM packed_leaves('packed_build_k');
SELECT cache_batch_verify('packed_build_k', true) IS NOT NULL AS whole;

DROP TABLE packed_mix, packed_off, packed_build;
DROP FUNCTION packed_noise(int, int);
DROP FUNCTION packed_all(), packed_fill(regclass, text, int[]), packed_agrees(regclass, text, text),
	packed_leaves(regclass);
DROP TABLE packed_int8, packed_asc, packed_desc, packed_few, packed_uuid, packed_text, packed_mixed;
