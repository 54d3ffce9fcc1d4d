-- Every function of the extension with arguments that nobody should give it: an
-- error has a SQLSTATE of its own, never that of an internal error.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;

CREATE TABLE arguments (id int, s text) PARTITION BY RANGE (id);
CREATE TABLE arguments_1 PARTITION OF arguments FOR VALUES FROM (0) TO (1000);
CREATE INDEX arguments_p ON arguments USING cachebatch (id);
CREATE INDEX arguments_i ON arguments_1 USING cachebatch (id);
CREATE INDEX arguments_s ON arguments_1 USING cachebatch (s);
CREATE INDEX arguments_b ON arguments_1 (id);
CREATE INDEX arguments_h ON arguments_1 USING hash (id);
CREATE VIEW arguments_v AS SELECT * FROM arguments;
CREATE SEQUENCE arguments_q;
CREATE TEMP TABLE arguments_t (id int);
CREATE INDEX arguments_ti ON arguments_t USING cachebatch (id);
INSERT INTO arguments SELECT i, repeat('x', i) FROM generate_series(1, 300) i;

-- Values of a type: the first one is good.
CREATE FUNCTION arguments_of(type regtype) RETURNS text[] LANGUAGE sql AS $$
	SELECT CASE
		WHEN type = 'regclass'::regtype THEN ARRAY['arguments_i', 'arguments_s', 'arguments_p', 'arguments_b',
			'arguments_h', 'arguments', 'arguments_1', 'arguments_v', 'arguments_q', 'arguments_ti', 'pg_class',
			'pg_class_oid_index', '0', '1', '4294967295', NULL]
		WHEN type = 'oid'::regtype THEN ARRAY['arguments_i'::regclass::oid::text, 'arguments_1'::regclass::oid::text,
			'0', '1', '4294967295', NULL]
		WHEN type = 'bigint'::regtype THEN ARRAY['1', '0', '-1', '2147483648', '4294967295', '4294967296',
			'9223372036854775807', '-9223372036854775808', NULL]
		WHEN type = 'integer'::regtype THEN ARRAY['1', '0', '-1', '2147483647', '-2147483648', NULL]
		WHEN type = 'double precision'::regtype THEN ARRAY['1', '0', '-1', 'NaN', 'Infinity', '-Infinity', '1e308',
			'5e-324', NULL]
		WHEN type = 'boolean'::regtype THEN ARRAY['true', 'false', NULL]
		WHEN type = 'interval'::regtype THEN ARRAY['1 s', '0', '-1 day', '178000000 years', NULL]
		WHEN type IN ('text'::regtype, 'name'::regtype) THEN ARRAY['arguments_i', '', E'\x01\x7f', 'ä"''\', repeat('x', 5000), NULL]
		ELSE ARRAY[NULL]
	END
$$;

-- Calls a function with one argument after the other that is not good; what it does is
-- rolled back.  Returns what ended in an internal error.
CREATE FUNCTION arguments_try(f regprocedure, types regtype[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	good text[];
	list text[];
BEGIN
	SELECT array_agg(quote_nullable((arguments_of(t))[1]) || '::' || t ORDER BY n) INTO good
	FROM unnest(types) WITH ORDINALITY u (t, n);
	FOR i IN 1 .. greatest(cardinality(types), 1) LOOP
		FOR k IN 1 .. CASE WHEN types = '{}' THEN 1 ELSE cardinality(arguments_of(types[i])) END LOOP
			list := good;
			IF types <> '{}' THEN
				list[i] := quote_nullable((arguments_of(types[i]))[k]) || '::' || types[i];
			END IF;
			BEGIN
				EXECUTE format('SELECT count(q) FROM (SELECT * FROM %s(%s)) q',
					f::oid::regproc, array_to_string(list, ', '));
				RAISE division_by_zero;
			EXCEPTION
				WHEN division_by_zero THEN NULL;
				WHEN internal_error THEN RETURN NEXT format('%s(%s): %s', f::oid::regproc, array_to_string(list, ', '), SQLERRM);
				WHEN OTHERS THEN NULL;
			END;
		END LOOP;
	END LOOP;
END $$;

-- bounds of a range of keys are of any type: here of the index's, and of another one
CREATE VIEW arguments_all AS
SELECT p.oid::regprocedure AS f, array(
	SELECT CASE WHEN t.t = 'anyelement'::regtype THEN other ELSE t.t END
	FROM unnest(p.proargtypes) WITH ORDINALITY t (t, n) ORDER BY n) AS types
FROM pg_proc p
	JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'cache_batch',
	unnest('{integer,text,double precision}'::regtype[]) other
WHERE NOT 'internal'::regtype = ANY (p.proargtypes) AND p.prokind = 'f';

SELECT count(DISTINCT f) > 20 AS many FROM arguments_all;
SELECT t FROM (SELECT DISTINCT f, types FROM arguments_all) a, arguments_try(f, types) t ORDER BY t COLLATE "C";

-- and whole once more
SELECT cache_batch_verify('arguments_i', true), cache_batch_verify('arguments_s', true);
DROP VIEW arguments_all, arguments_v;
DROP TABLE arguments, arguments_t;
DROP SEQUENCE arguments_q;
DROP FUNCTION arguments_of, arguments_try;
