-- cache_batch_compact() packs the leaves of a range of keys densely; cache_batch_prewarm()
-- reads them
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;
CREATE TABLE co (id int, k bigint, t text) WITH (autovacuum_enabled = off);
CREATE INDEX co_k ON co USING cachebatch (k);
CREATE INDEX co_t ON co USING cachebatch (t DESC, id);
CREATE INDEX co_few ON co USING cachebatch ((id % 20));
CREATE INDEX co_plain ON co USING cachebatch (k) WITH (pack_leaves = off);
CREATE FUNCTION co_fill(low int, high int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO co SELECT i, hashint8extended(i, 1), 'event of ' || md5(i::text) FROM generate_series(low, high) i;
	PERFORM cache_batch_flush(i) FROM unnest('{co_k,co_t,co_few,co_plain}'::regclass[]) i;
END $$;
CREATE FUNCTION co_pages(index regclass, wanted text, OUT n bigint, OUT loose bigint) LANGUAGE sql AS $$
	SELECT count(*), count(*) FILTER (WHERE free_space > 500)
	FROM generate_series(1, pg_relation_size(index) / 8192 - 1) b, cache_batch_page(index, b) p WHERE p.type = wanted
$$;
CREATE TABLE co_before (index regclass, leaves bigint, loose bigint, pages bigint);
CREATE FUNCTION co_note() RETURNS void LANGUAGE sql AS $$
	TRUNCATE co_before;
	INSERT INTO co_before SELECT i, n, loose, pg_relation_size(i) / 8192
	FROM unnest('{co_k,co_t,co_few,co_plain}'::regclass[]) i, co_pages(i, 'leaf')
$$;
-- what the indexes have, forward and backward, and what the table has
CREATE FUNCTION co_sound() RETURNS TABLE (index text, forward bigint, backward bigint, missing bigint)
LANGUAGE plpgsql SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
	rows bigint := (SELECT n_live FROM (SELECT count(*) AS n_live FROM co WHERE ctid IS NOT NULL) s);
	e text;
BEGIN
	FOREACH e IN ARRAY '{k,t,id % 20}'::text[] LOOP
		index := e;
		EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM co WHERE %1$s IS NOT NULL ORDER BY %1$s) s', e) INTO forward;
		EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM co WHERE %1$s IS NOT NULL ORDER BY %1$s DESC) s', e) INTO backward;
		missing := rows - forward;
		RETURN NEXT;
	END LOOP;
	PERFORM cache_batch_verify(i, true) FROM unnest('{co_k,co_t,co_few,co_plain}'::regclass[]) i;
END $$;

-- of an index without entries, and of one leaf
SELECT cache_batch_compact('co_k'), cache_batch_compact('co_k', 1::bigint, 2::bigint);
SELECT co_fill(1, 3);
SELECT cache_batch_compact('co_k'), cache_batch_compact('co_k', NULL::bigint, NULL::bigint);

-- a part of the range, then all of it; after that there is nothing to do
SELECT co_fill(4, 30000);
SELECT co_note();
SELECT cache_batch_compact('co_k', 0::bigint, NULL::bigint) > 0 AS freed;
SELECT n - (SELECT leaves FROM co_before WHERE index = 'co_k'::regclass) < 0 AS fewer, loose > 5 AS others_are_loose FROM co_pages('co_k', 'leaf');
SELECT cache_batch_compact(i) > 0 AS freed FROM unnest('{co_k,co_t,co_few,co_plain}'::regclass[]) i;
-- a leaf has 2000 entries at most, which 20 values do not fill
SELECT index, n < leaves AS fewer, p.loose <= 3 OR index = 'co_few'::regclass AS dense FROM co_before, co_pages(index, 'leaf') p;
SELECT * FROM co_sound();
SELECT cache_batch_compact(i) AS freed FROM unnest('{co_k,co_t,co_plain}'::regclass[]) i;

-- bounds go by the column's order: t descends
SELECT co_fill(30001, 50000);
SELECT co_note();
SELECT cache_batch_compact('co_t', 'event of 8'::text, 'event of f'::text) > 0 AS freed, cache_batch_compact('co_t', 'event of f'::text, 'event of 8'::text) AS none;
SELECT cache_batch_compact('co_t', 'z'::varchar, NULL) AS none, cache_batch_compact('co_t', NULL, 'a'::text) AS none;
SELECT * FROM co_sound();

-- pages are used again once nobody can come to them, though VACUUM had nothing to do
SELECT cache_batch_compact('co_t') > 0 AS freed, n > 0 AS deleted FROM co_pages('co_t', 'deleted');
SELECT pg_current_xact_id() IS NULL AS is_null;
SELECT co_fill(50001, 65000);
SELECT n AS deleted FROM co_pages('co_t', 'deleted');
DELETE FROM co WHERE id % 3 = 0;
VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) co;
SELECT cache_batch_compact(i) > 0 AS freed FROM unnest('{co_k,co_t,co_few,co_plain}'::regclass[]) i;
SELECT * FROM co_sound();

-- a range that will be used: leaves of one level-1 page, and of several
SELECT cache_batch_prewarm(i) - n AS missed FROM unnest('{co_k,co_t,co_few,co_plain}'::regclass[]) i, co_pages(i, 'leaf');
SELECT cache_batch_prewarm('co_t', 'event of 8'::text, 'event of f'::text) BETWEEN 2 AND n - 2 AS some,
	cache_batch_prewarm('co_t', 'z'::varchar, NULL) AS first, cache_batch_prewarm('co_t', NULL, 'a'::text) AS last,
	cache_batch_prewarm('co_t', 'event of f'::text, 'event of 8'::text) AS none
FROM co_pages('co_t', 'leaf');
CREATE TABLE co_wide (k text) WITH (autovacuum_enabled = off);
ALTER TABLE co_wide ALTER k SET STORAGE PLAIN;
CREATE INDEX co_wide_k ON co_wide USING cachebatch (k) WITH (pack_leaves = off);
SELECT cache_batch_prewarm('co_wide_k') AS of_one_leaf;
INSERT INTO co_wide SELECT lpad(i::text, 1000, '0') FROM generate_series(1, 700) i;
REINDEX INDEX co_wide_k;
SELECT n AS leaves FROM co_pages('co_wide_k', 'leaf');
SELECT root_level FROM cache_batch_metapage('co_wide_k');
SELECT lo, hi, cache_batch_prewarm('co_wide_k', lpad(lo::text, 1000, '0'), lpad(hi::text, 1000, '0')) AS leaves
FROM (VALUES (NULL, NULL), (1, 700), (1, 1), (1, 350), (351, 700), (350, 350), (700, NULL), (NULL, 0), (701, NULL), (400, 300)) v (lo, hi);

-- what is refused
SELECT cache_batch_compact(NULL, 1, 2) IS NULL AS is_null;
SELECT cache_batch_compact('co_k', 1, 2);
SELECT cache_batch_compact('co_t', 'a'::name, 'b'::name);
SELECT cache_batch_compact('co');
SELECT cache_batch_prewarm(NULL, 1, 2) IS NULL AS is_null;
SELECT cache_batch_prewarm('co_k', 1, 2);
SELECT cache_batch_prewarm('co');
CREATE ROLE co_role;
SET ROLE co_role;
SELECT cache_batch_compact('co_k');
SELECT cache_batch_prewarm('co_k');
RESET ROLE;
DROP ROLE co_role;

DROP FUNCTION co_sound(), co_note(), co_fill(int, int), co_pages(regclass, text);
DROP TABLE co, co_wide, co_before;
