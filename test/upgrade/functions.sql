-- Calls all functions and reads all views that the extension has; tells those of which
-- this does not know how.
CREATE TEMP TABLE call (function text, query text, least int DEFAULT 1,
	number int GENERATED ALWAYS AS IDENTITY);
INSERT INTO call VALUES
	('cache_batch_handler(internal)', $$SELECT WHERE (SELECT pg_indexam_has_property(oid, 'can_order') FROM pg_am WHERE amname = 'cachebatch')$$),
	('cache_batch_journal(regclass)', $$SELECT * FROM cache_batch_journal('up_k')$$),
	('cache_batch_ranges(regclass)', $$SELECT * FROM cache_batch_ranges('up_k')$$),
	('cache_batch_bucket_list(regclass)', $$SELECT * FROM cache_batch_bucket_list('up_k')$$),
	('cache_batch_metapage(regclass)', $$SELECT * FROM cache_batch_metapage('up_k')$$),
	('cache_batch_page(regclass,bigint)', $$SELECT * FROM cache_batch_page('up_k', 1)$$),
	('cache_batch_page_items(regclass,bigint)', $$SELECT i.* FROM cache_batch_metapage('up_k') m, cache_batch_page_items('up_k', m.root) i$$),
	('cache_batch_verify(regclass,boolean)', $$SELECT cache_batch_verify('up_k', true)$$),
	('cache_batch_flush(regclass)', $$SELECT WHERE cache_batch_flush('up_k')$$),
	('cache_batch_compact(regclass)', $$SELECT cache_batch_compact('up_k')$$),
	('cache_batch_compact(regclass,anyelement,anyelement)', $$SELECT cache_batch_compact('up_k', NULL, 0::bigint)$$),
	('cache_batch_prewarm(regclass)', $$SELECT WHERE cache_batch_prewarm('up_k') > 0$$),
	('cache_batch_prewarm(regclass,anyelement,anyelement)', $$SELECT WHERE cache_batch_prewarm('up_k', NULL, 0::bigint) > 0$$),
	('cache_batch_comparison_is_total(regclass)', $$SELECT WHERE cache_batch_comparison_is_total('up_k')$$),
	('cache_batch_adopt_operator_classes(boolean)', $$SELECT cache_batch_adopt_operator_classes()$$),
	('cache_batch_model(bigint,bigint,integer,integer,bigint,integer,double precision,double precision,double precision)',
		$$SELECT * FROM cache_batch_model(100000, 16777216)$$),
	('cache_batch_advise(regclass,bigint,bigint)', $$SELECT * FROM cache_batch_advise(min_size => 0)$$),
	('cache_batch_swap(regclass)', $$SELECT * FROM cache_batch_swap('up_b')$$),
	('cache_batch_swap_obstacle(regclass)', $$SELECT cache_batch_swap_obstacle('up_b')$$),
	('cache_batch_stat_get(oid)', $$SELECT * FROM cache_batch_stat_get('up_k'::regclass)$$),
	('cache_batch_stat_get_heat(oid)', $$SELECT * FROM cache_batch_stat_get_heat('up_k'::regclass)$$),
	('cache_batch_stat_get_pool()', $$SELECT * FROM cache_batch_stat_get_pool()$$),
	('cache_batch_stat_get_bucket_sets()', $$SELECT * FROM cache_batch_stat_get_bucket_sets()$$),
	('cache_batch_last_scans()', $$SELECT * FROM cache_batch_last_scans()$$),
	('cache_batch_stat_reset()', $$SELECT cache_batch_stat_reset()$$),
	('cache_batch_stat_reset(regclass)', $$SELECT cache_batch_stat_reset('up_k')$$);
-- nobody is at work
INSERT INTO call VALUES
	('cache_batch_stat_get_workers()', $$SELECT * FROM cache_batch_stat_get_workers()$$, 0),
	('cache_batch_stat_get_progress()', $$SELECT * FROM cache_batch_stat_get_progress()$$, 0),
	('cache_batch_key_filters()', $$SELECT * FROM cache_batch_key_filters()$$, 0),
	('cache_batch_tiles(regclass)', $$SELECT * FROM cache_batch_tiles('up_k')$$, 0),
	('cache_batch_stat_workers', $$SELECT * FROM cache_batch_stat_workers$$, 0),
	('cache_batch_stat_progress', $$SELECT * FROM cache_batch_stat_progress$$, 0);
INSERT INTO call SELECT v, 'SELECT * FROM ' || v FROM unnest(ARRAY['cache_batch_stat_indexes', 'cache_batch_stat_buckets',
	'cache_batch_stat_pool', 'cache_batch_stat_databases', 'cache_batch_stat_heat']) v;

CREATE TEMP TABLE member AS
SELECT CASE d.classid WHEN 'pg_proc'::regclass THEN d.objid::regprocedure::text ELSE d.objid::regclass::text END AS name
FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
WHERE e.extname = 'cache_batch' AND d.classid IN ('pg_proc'::regclass, 'pg_class'::regclass);

CREATE INDEX up_b ON up (id);
SELECT up_fill(60021, 60040);
SET enable_seqscan = off;
SELECT count(*) FROM up WHERE k > 0;
DO $$
DECLARE
	c call;
	n int;
BEGIN
	FOR c IN SELECT call.* FROM call JOIN member ON name = function ORDER BY number LOOP
		EXECUTE c.query;
		GET DIAGNOSTICS n = ROW_COUNT;
		IF n < c.least THEN
			RAISE '% returns % rows', c.function, n;
		END IF;
	END LOOP;
END $$;
DROP INDEX up_b;
SELECT 'unknown: ' || coalesce(string_agg(name, ', '), 'none') FROM member WHERE name NOT IN (SELECT function FROM call);
SELECT 'called ' || count(*) FROM member JOIN call ON name = function;
