-- The model's figures, and swaps of btree for cachebatch indexes, which are run.
\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;
CREATE EXTENSION IF NOT EXISTS cache_batch;

-- definitions to swap, awkward ones
CREATE SCHEMA "Odd ""Schema";
CREATE COLLATION "Odd ""Schema"."my C" (LOCALE = 'C');
CREATE FUNCTION "Odd ""Schema".twice(int) RETURNS int IMMUTABLE LANGUAGE sql
	RETURN $1 * 2;
CREATE OPERATOR CLASS "Odd ""Schema"."Other ints" FOR TYPE int4 USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 btint4cmp(int4, int4);
CREATE TABLE "Odd ""Schema"."T x" (id int PRIMARY KEY, k int, "K 2" text, e text,
								   at timestamptz);
INSERT INTO "Odd ""Schema"."T x"
	SELECT i, i * 7919 % 1000, 'k' || i % 77, 'e' || i % 99, now() FROM generate_series(1, 1000) i;
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE "pgtap swap" LOCATION '';
SET search_path TO "Odd ""Schema", public;
CREATE INDEX "plain" ON "T x" (k);
CREATE INDEX " USING btree (k)" ON "T x" (k DESC, "K 2" NULLS FIRST, e DESC NULLS LAST, at ASC);
CREATE INDEX "q""uo'te" ON "T x" (twice(k), ("K 2" || ' WHERE a''b\c'), (k + 1) DESC);
CREATE INDEX "Partial" ON "T x" (e) WHERE k > 3 AND "K 2" <> ' WITH (x=y)' OR e IN ('a', 'b');
CREATE INDEX "include" ON "T x" (k) INCLUDE ("K 2", at);
CREATE INDEX "collate" ON "T x" (e COLLATE "my C", "K 2" COLLATE "POSIX" DESC);
CREATE INDEX "opclass" ON "T x" (e text_pattern_ops, k "Other ints");
CREATE INDEX "with" ON "T x" (k) WITH (fillfactor = 71, deduplicate_items = off);
CREATE INDEX "old option" ON "T x" (k)
	WITH (fillfactor = 72, vacuum_cleanup_index_scale_factor = 0.25) WHERE k < 9;
CREATE INDEX "only old" ON "T x" (k) WITH (vacuum_cleanup_index_scale_factor = 0.5);
CREATE INDEX "space" ON "T x" (at) WITH (fillfactor = 73) TABLESPACE "pgtap swap" WHERE k > 4;
CREATE INDEX "all of it" ON "T x" ((k * 2) "Other ints" DESC, e COLLATE "my C" text_pattern_ops NULLS FIRST)
	INCLUDE (at, id) WITH (deduplicate_items = on) TABLESPACE "pgtap swap" WHERE e IS NOT NULL;
CREATE INDEX a_name_of_sixty_three_bytes_which_is_all_that_a_name_can_have_1 ON "T x" (at, k);
COMMENT ON INDEX "q""uo'te" IS 'it''s a "comment"\';
ALTER INDEX "q""uo'te" ALTER COLUMN 2 SET STATISTICS 77;
ALTER INDEX "include" DEPENDS ON EXTENSION pgtap;
-- the server has unique indexes of other methods from 18 on
SELECT CASE WHEN current_setting('server_version_num')::int >= 180000 THEN
	'CREATE UNIQUE INDEX "unique" ON "T x" (id DESC, (k + 1)) INCLUDE (at) NULLS NOT DISTINCT WITH (fillfactor = 74) WHERE k > 0'
	END \gexec
RESET search_path;

CREATE TABLE part (k int, v int) PARTITION BY RANGE (k);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10000);
CREATE TABLE "Part 2" PARTITION OF part FOR VALUES FROM (10000) TO (90000) PARTITION BY LIST ((v % 2));
CREATE TABLE part_20 PARTITION OF "Part 2" FOR VALUES IN (0);
CREATE TABLE part_21 PARTITION OF "Part 2" FOR VALUES IN (1);
CREATE INDEX part_v ON part (v DESC) WITH (fillfactor = 75) WHERE k <> 3;
INSERT INTO part SELECT i, i::bigint * 7919 % 100003 FROM generate_series(1, 40000) i;

-- what the swaps are to keep
CREATE TABLE swapped AS
SELECT i.oid AS old_oid, i.relnamespace AS namespace, i.relname AS name, pg_get_indexdef(i.oid) AS def,
	   i.reltablespace AS tablespace, obj_description(i.oid, 'pg_class') AS comment,
	   (SELECT array_agg(attstattarget ORDER BY attnum) FROM pg_attribute WHERE attrelid = i.oid) AS targets,
	   (SELECT count(*) FROM pg_depend WHERE objid = i.oid AND deptype = 'x') AS extensions
FROM pg_class i JOIN pg_index x ON x.indexrelid = i.oid
WHERE NOT indisprimary AND (i.relnamespace = '"Odd ""Schema"'::regnamespace OR i.relname ~ '^(part|Part)');
CREATE TABLE refused AS
SELECT s.name, cache_batch_swap_obstacle(s.old_oid) AS obstacle,
	   (SELECT count(*) FROM cache_batch_swap(s.old_oid)) AS statements
FROM swapped s WHERE s.def LIKE '%Other ints%';
SELECT cache_batch_adopt_operator_classes() \g /dev/null
-- one was tried before, in vain
CREATE INDEX cache_batch_swap_left ON "Odd ""Schema"."T x" USING cachebatch (k);
SELECT format('ALTER INDEX "Odd ""Schema".cache_batch_swap_left RENAME TO cache_batch_swap_%s', old_oid)
FROM swapped WHERE name = 'plain' \gexec
-- default_tablespace must not move what has the database's own
SET default_tablespace = "pgtap swap";
SELECT st.text FROM swapped s,
	cache_batch_swap(s.old_oid) WITH ORDINALITY st (text, nth)
WHERE s.name NOT LIKE 'part%' AND s.name NOT LIKE 'Part %' ORDER BY s.old_oid, nth \gexec
SELECT * FROM cache_batch_swap('part_20_v_idx') \gexec
RESET default_tablespace;

BEGIN;
SELECT no_plan();

-- the model: by hand, as in test/unit/model_test.c
SELECT results_eq(
	$$SELECT n, capacity, round(leaves_per_flush::numeric, 6), round(entries_per_visit::numeric, 6),
	  hit_direct, miss_direct, round(miss_batched::numeric, 6), round(miss_ratio::numeric, 6),
	  lines_direct, lines_per_visit, round(lines_ratio::numeric, 6),
	  btree_ns, round(cachebatch_ns::numeric, 3), round(cost_ratio::numeric, 6)
	  FROM cache_batch_model(200000, 12800000, entry_size => 8, leaf_size => 64, buckets => 12500)$$,
	-- c 128; 16 (1 - (15/16)^128); H_b = 12.8 / 12.8, all hit; 1 line and 8 a visit; k at most 64 / 8
	$$VALUES (12500::float8, 128::float8, 16.000000, 8.000000, 1::float8, 0::float8,
	  0.125000, NULL::numeric, 0::float8, 9::float8, NULL::numeric, 2000::float8,
	  500 + (2000 + 46 * 9) / 8.0, round((500 + (2000 + 46 * 9) / 8.0) / 2000, 6))$$,
	'the model, where a leaf holds what comes to it');
SELECT results_eq(
	$$SELECT round(leaves_per_flush::numeric, 6), round(entries_per_visit::numeric, 6),
	  hit_direct, miss_direct, round(miss_batched::numeric, 6), round(miss_ratio::numeric, 6)
	  FROM cache_batch_model(200000, 12800000, entry_size => 8, leaf_size => 128, buckets => 12500)$$,
	$$VALUES (15.995865, 8.002068, 0.5::float8, 0.5::float8, 0.124968, 0.249935)$$,
	'the model, a case of its source');
SELECT is(round(entries_per_visit), 10::float8, 'a measured figure takes the place of the computed one')
FROM cache_batch_model(1000, 1000, measured => 10);
SELECT is(entries_per_visit, 1::float8, 'without a pool each entry is a visit')
FROM cache_batch_model(1000, 0);
SELECT ok(cost_ratio > 1, 'which costs more than btree') FROM cache_batch_model(1000000, 0);
SELECT is(round(entries_per_visit::numeric, 3), round(8192 / 20.0, 3), 'no leaves count as one')
FROM cache_batch_model(0, 1000000);
SELECT ok(entries_per_visit >= 1 AND cachebatch_ns > 0 AND cost_ratio > 0 AND pool_fades >= 0,
		  format('edges: %s leaves, pool of %s', leaves, pool))
FROM unnest(ARRAY[0, 1, 9223372036854775807]) leaves, unnest(ARRAY[0, 1, 9223372036854775807]) pool,
	 cache_batch_model(leaves, pool);
SELECT is((SELECT bool_and(k >= k_before AND ns <= ns_before) FROM (
	SELECT m.entries_per_visit AS k, m.cachebatch_ns AS ns,
		   lag(m.entries_per_visit, 1, 1::float8) OVER w AS k_before,
		   lag(m.cachebatch_ns, 1, 'inf'::float8) OVER w AS ns_before
	FROM generate_series(0, 60) p, cache_batch_model(100000, 1::bigint << p) m
	WINDOW w AS (ORDER BY p)) s), true, 'a larger pool is never worse');
SELECT is(cache_batch_model(NULL, 1), NULL, 'null for null');
SELECT throws_ok(format('SELECT cache_batch_model(%s)', args), '22023', NULL, 'refused: ' || args)
FROM unnest(ARRAY['-1, 0', '0, -1', '1, 1, 0', '1, 1, leaf_size => 63', '1, 1, buckets => 0',
				  '1, 1, period => 0', '1, 1, stagger => 0.5', '1, 1, uncached => 1.1',
				  '1, 1, uncached => ''NaN''', '1, 1, measured => -1']) args;

-- swaps
SELECT is(r.obstacle, 'no cachebatch operator class for Other ints', r.name || ' waits for its class')
FROM refused r;
SELECT is(array_agg(r.statements), ARRAY[0, 0]::bigint[], 'no swap without a class') FROM refused r;
SELECT is(replace(pg_get_indexdef(i.oid), ' USING cachebatch ', ' USING btree '),
		  CASE s.name WHEN 'old option' THEN replace(s.def, ', vacuum_cleanup_index_scale_factor=''0.25''', '')
			  WHEN 'only old' THEN replace(s.def, ' WITH (vacuum_cleanup_index_scale_factor=''0.5'')', '')
			  ELSE s.def END, 'definition of ' || s.name)
FROM swapped s LEFT JOIN pg_class i ON i.relname = s.name AND i.relnamespace = s.namespace;
SELECT is(row(a.amname, x.indisvalid, i.reltablespace, obj_description(i.oid, 'pg_class'),
			  (SELECT array_agg(attstattarget ORDER BY attnum) FROM pg_attribute WHERE attrelid = i.oid),
			  (SELECT count(*) FROM pg_depend WHERE objid = i.oid AND deptype = 'x'))::text,
		  row('cachebatch', true, s.tablespace, s.comment, s.targets, s.extensions)::text,
		  'the rest of ' || s.name)
FROM swapped s
	 LEFT JOIN pg_class i ON i.relname = s.name AND i.relnamespace = s.namespace
	 LEFT JOIN pg_index x ON x.indexrelid = i.oid LEFT JOIN pg_am a ON a.oid = i.relam;
SELECT cmp_ok((SELECT count(*) FROM swapped), '>=', 18::bigint, 'all were there');
SELECT ok(EXISTS (SELECT FROM pg_stats WHERE tablename = 'q"uo''te'), 'statistics of expressions are there again');
SELECT is_empty($$SELECT s.name FROM swapped s JOIN pg_class c ON c.oid = s.old_oid$$, 'the old ones are gone');
SELECT is_empty($$SELECT relname FROM pg_class WHERE relname LIKE 'cache\_batch\_swap\_%'$$, 'no name is left over');
SELECT is((SELECT array_agg(inhparent::regclass::text || ' ' || inhrelid::regclass
			  ORDER BY inhparent::regclass::text COLLATE "C", inhrelid::regclass::text COLLATE "C")
		   FROM pg_inherits WHERE inhrelid::regclass::text LIKE '%idx%'),
	ARRAY['"Part 2_v_idx" part_20_v_idx', '"Part 2_v_idx" part_21_v_idx',
		  'part_v "Part 2_v_idx"', 'part_v part_1_v_idx'], 'partitions are attached');
SELECT is((SELECT count(*) FROM cache_batch_swap('part_v')), 0::bigint, 'what is swapped is not swapped again');
CREATE INDEX last ON "Odd ""Schema"."T x" ((k + 3));
COMMENT ON INDEX "Odd ""Schema".last IS 'x';
SELECT is((SELECT array_agg(substring(s FROM '^[A-Z ]+[A-Z]')) FROM cache_batch_swap('"Odd ""Schema".last') s),
		  ARRAY['CREATE INDEX CONCURRENTLY', 'COMMENT ON INDEX', 'ANALYZE', 'DROP INDEX CONCURRENTLY', 'ALTER INDEX'],
		  'the old one goes when the new one is complete');
SELECT * FROM finish();
ROLLBACK;

DROP TABLE swapped, refused, part;
DROP SCHEMA "Odd ""Schema" CASCADE;
DROP TABLESPACE "pgtap swap";
