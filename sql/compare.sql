-- What README's table says of index types: as the server tells it, and by plans.
CREATE TABLE compared (k int, a int[], v int) WITH (autovacuum_enabled = off);
INSERT INTO compared SELECT i, ARRAY[i], i FROM generate_series(1, 20000) i;
CREATE INDEX compared_btree ON compared USING btree (k);
CREATE INDEX compared_cachebatch ON compared USING cachebatch (k);
CREATE INDEX compared_hash ON compared USING hash (k);
CREATE INDEX compared_gin ON compared USING gin (a);
VACUUM ANALYZE compared;

CREATE VIEW properties AS
	SELECT p AS property,
		max(has::text) FILTER (WHERE amname = 'btree') AS btree,
		max(has::text) FILTER (WHERE amname = 'cachebatch') AS cachebatch,
		max(has::text) FILTER (WHERE amname = 'gin') AS gin,
		max(has::text) FILTER (WHERE amname = 'hash') AS hash
	FROM (
		SELECT amname, p, coalesce(pg_indexam_has_property(a.oid, p),
			pg_index_has_property(('compared_' || amname)::regclass, p),
			pg_index_column_has_property(('compared_' || amname)::regclass, 1, p)) AS has
		FROM pg_am a, unnest(ARRAY['can_unique', 'can_multi_col', 'can_exclude', 'can_include',
			'can_order', 'clusterable', 'index_scan', 'bitmap_scan', 'backward_scan',
			'returnable', 'search_array', 'search_nulls']) p
		WHERE amname IN ('btree', 'cachebatch', 'gin', 'hash')) s
	GROUP BY p;
SELECT * FROM properties WHERE property <> 'can_unique' ORDER BY property COLLATE "C";
-- the same as btree's, but before version 18
SELECT btree, cachebatch = (current_setting('server_version_num')::int >= 180000)::text AS cachebatch,
	gin, hash
FROM properties WHERE property = 'can_unique';

-- which kinds of scans the planner takes, each index alone on its table
CREATE FUNCTION scan_of(method text, condition text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE format('CREATE TABLE one AS SELECT i AS k, ARRAY[i] AS a, i AS v FROM generate_series(1, 20000) i;
		CREATE INDEX one_k ON one USING %s (%s); ANALYZE one', method,
		CASE method WHEN 'gin' THEN 'a' ELSE 'k' END);
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) SELECT count(*) FROM one WHERE ' ||
		CASE method WHEN 'gin' THEN replace(condition, 'k =', 'a @>') ELSE condition END LOOP
		IF line ~ 'Scan' THEN
			DROP TABLE one;
			RETURN trim(regexp_replace(line, 'using.*|on .*|->', '', 'g'));
		END IF;
	END LOOP;
END $$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT m AS method, scan_of(m, CASE m WHEN 'gin' THEN 'k = ARRAY[1]' ELSE 'k = 1' END) AS equal,
	scan_of(m, CASE m WHEN 'gin' THEN 'a > ARRAY[19000]' ELSE 'k > 19000' END) AS range
FROM unnest(ARRAY['btree', 'cachebatch', 'gin', 'hash']) m;
RESET enable_bitmapscan;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET enable_indexonlyscan = off;
SET enable_bitmapscan = off;
SELECT m AS method, scan_of(m, CASE m WHEN 'hash' THEN 'k = 1 AND v > 0' ELSE 'k > 0 AND v > 0' END) AS parallel
FROM unnest(ARRAY['btree', 'cachebatch', 'hash']) m;
DROP FUNCTION scan_of;
DROP VIEW properties;
DROP TABLE compared;
