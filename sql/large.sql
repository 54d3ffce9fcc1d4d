-- Large keys, whatever the fillfactor: internal pages have several children,
-- and the tree stays low.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

CREATE FUNCTION large_keys(size int, fillfactor int, ascending bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	CREATE TABLE large (k text COLLATE "C") WITH (autovacuum_enabled = off);
	ALTER TABLE large ALTER k SET STORAGE PLAIN;
	EXECUTE format('CREATE INDEX large_k ON large USING cachebatch (k) WITH (fillfactor = %s)', fillfactor);
	FOR i IN 1..60 LOOP
		INSERT INTO large VALUES (lpad((CASE WHEN ascending THEN i ELSE 997 * i % 101 END)::text, 8, '0') || repeat('x', size - 8 - i % 3));
		PERFORM cache_batch_flush('large_k');
	END LOOP;
	PERFORM cache_batch_verify('large_k', true);
	SELECT CASE WHEN root_level <= 5 THEN 'low' ELSE 'level ' || root_level END INTO result FROM cache_batch_metapage('large_k');
	REINDEX INDEX large_k;
	PERFORM cache_batch_verify('large_k', true);
	DROP TABLE large;
	RETURN result;
END $$;

SELECT size, fillfactor, ascending, large_keys(size, fillfactor, ascending)
FROM unnest('{2680, 2000, 1300}'::int[]) size, unnest('{10, 50, 90, 100}'::int[]) fillfactor,
	unnest('{t, f}'::bool[]) ascending ORDER BY 1, 2, 3;
DROP FUNCTION large_keys;
