-- What others have put into the extension's schema before it is created, for it to
-- be taken for the server's: nothing of the extension may use it.
\set QUIET on
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pgtap;

CREATE ROLE trapper;
CREATE SCHEMA "The traps";
GRANT USAGE, CREATE ON SCHEMA "The traps" TO trapper;
SET ROLE trapper;
SET search_path TO "The traps", pg_catalog;

-- each fits better than what pg_catalog has, as types are the same
DO $$
DECLARE
	f text;
BEGIN
	FOREACH f IN ARRAY ARRAY[
		'format(text, name, name) RETURNS text', 'format(text, text, name) RETURNS text',
		'format(text, name, text) RETURNS text', 'format(text, text, text) RETURNS text',
		'format(text, text) RETURNS text',
		'concat(text, text) RETURNS text', 'quote_ident(name) RETURNS text',
		'pg_relation_size(oid) RETURNS bigint', 'pg_indexes_size(oid) RETURNS bigint',
		'pg_partition_tree(oid) RETURNS TABLE (relid regclass, parentrelid regclass, isleaf boolean, level integer)',
		'trap_step(text, name, text) RETURNS text', 'trap_join(text, oid) RETURNS text', 'trap_equal(oid, regprocedure) RETURNS boolean',
		'cache_batch_swap_obstacle(oid) RETURNS text', 'cache_batch_swap(oid) RETURNS SETOF text',
		'cache_batch_model(leaves bigint, pool_size bigint, entry_size integer, leaf_size integer,
			stagger double precision, uncached double precision,
			OUT entries_per_visit double precision, OUT cost_ratio double precision,
			OUT pool_fades bigint)',
		'cache_batch_model(leaves bigint, pool_size bigint, entry_size integer, leaf_size integer,
			stagger integer, uncached double precision,
			OUT entries_per_visit double precision, OUT cost_ratio double precision,
			OUT pool_fades bigint)']
	LOOP
		EXECUTE pg_catalog.format(
			'CREATE FUNCTION %s LANGUAGE plpgsql AS %L', f,
			pg_catalog.format('BEGIN RAISE EXCEPTION ''trapped by %s''; END', split_part(f, '(', 1)));
	END LOOP;
END $$;
CREATE OPERATOR || (FUNCTION = trap_join, LEFTARG = text, RIGHTARG = oid);
CREATE OPERATOR = (FUNCTION = trap_equal, LEFTARG = oid, RIGHTARG = regprocedure);
CREATE AGGREGATE string_agg(name, text) (SFUNC = trap_step, STYPE = text);
RESET ROLE;
RESET search_path;

CREATE EXTENSION cache_batch SCHEMA "The traps";
CREATE TABLE t (k int);
CREATE INDEX t_k ON t (k);
CREATE INDEX t_ours ON t USING cachebatch (k);
INSERT INTO t SELECT generate_series(1, 1000);

BEGIN;
SELECT no_plan();

SELECT ok((SELECT count(*) > 15 FROM pg_proc WHERE proowner = 'trapper'::regrole), 'traps are set');
-- what pg_catalog has is not recorded
SELECT is_empty($$
	SELECT pg_describe_object(d.classid, d.objid, 0), pg_describe_object(d.refclassid, d.refobjid, 0)
	FROM pg_depend d
	WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) AND d.deptype = 'n'
	AND NOT EXISTS (SELECT FROM pg_depend e
		WHERE (e.classid, e.objid) = (d.refclassid, d.refobjid) AND e.deptype = 'e')
	AND (d.objid IN (SELECT e.objid FROM pg_depend e WHERE e.classid = d.classid AND e.deptype = 'e')
		 OR d.classid = 'pg_rewrite'::regclass
			AND (SELECT r.ev_class FROM pg_rewrite r WHERE r.oid = d.objid) IN (
				SELECT e.objid FROM pg_depend e WHERE e.classid = 'pg_class'::regclass AND e.deptype = 'e'))$$,
	'nothing of the extension uses what is not the server''s or its own');
-- all that goes into them
SELECT ok((SELECT count(*) > 10 FROM pg_depend d
	WHERE d.refclassid = 'pg_proc'::regclass AND d.deptype = 'n'
	AND d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass)
	AND EXISTS (SELECT FROM pg_depend e
		WHERE (e.classid, e.objid) = (d.refclassid, d.refobjid) AND e.deptype = 'e')),
	'what it uses of its own is recorded');
SELECT is_empty($$
	SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_depend e ON e.objid = p.oid
		AND e.classid = 'pg_proc'::regclass AND e.deptype = 'e'
	WHERE e.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'cache_batch')
	AND p.pronamespace <> '"The traps"'::regnamespace$$,
	'all of its functions are in its schema');
SELECT is_empty($$
	SELECT c.oid::regclass FROM pg_class c JOIN pg_depend e ON e.objid = c.oid
		AND e.classid = 'pg_class'::regclass AND e.deptype = 'e'
	WHERE e.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'cache_batch')
	AND c.relnamespace <> '"The traps"'::regnamespace$$,
	'all of its views, too');
SELECT is(current_setting('search_path'), '"$user", public', 'the search path is as it was');

-- and as they are used
SELECT lives_ok($$SELECT * FROM "The traps".cache_batch_swap('t_k'::regclass)$$, 'cache_batch_swap()');
SELECT lives_ok($$SELECT * FROM "The traps".cache_batch_swap_obstacle('t_k'::regclass)$$, 'cache_batch_swap_obstacle()');
SELECT lives_ok($$SELECT * FROM "The traps".cache_batch_advise(min_size => 0)$$, 'cache_batch_advise()');
SELECT is((SELECT count(*)::int FROM "The traps".cache_batch_stat_indexes), 1, 'cache_batch_stat_indexes');
SELECT lives_ok(format('SELECT * FROM "The traps".%I', v), v)
FROM unnest(ARRAY['cache_batch_stat_pool', 'cache_batch_stat_databases', 'cache_batch_stat_buckets',
	'cache_batch_stat_workers', 'cache_batch_stat_progress', 'cache_batch_stat_heat']) v;

SELECT * FROM finish();
ROLLBACK;
DROP TABLE t;
DROP EXTENSION cache_batch;
DROP OWNED BY trapper;
DROP ROLE trapper;
