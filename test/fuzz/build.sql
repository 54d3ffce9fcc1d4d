-- The tables whose indexes are damaged.  fuzz_make(n) makes wn, whose index wn_i has
-- pages of every type; what the index is on goes by n % 4.
SET client_min_messages = warning;
CREATE EXTENSION cache_batch;

CREATE FUNCTION fuzz_columns(n int) RETURNS text LANGUAGE sql IMMUTABLE AS $$
	SELECT (ARRAY['(k)', '(s COLLATE "C", k) INCLUDE (id)', '(s COLLATE "C")', '(id)'])[n % 4 + 1];
$$;

-- Rows, three a statement, so that they pass through the journal.  The keys of the
-- third kind are long: a tree of three levels, and two above its ranges.
CREATE FUNCTION fuzz_fill(n int, first int, last int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 0 .. (last - first) / 3 LOOP
		EXECUTE format('INSERT INTO w%s SELECT i, abs(hashint4(i) %% 10000),
				repeat(md5(i::text), $3) FROM generate_series($1, $2) i', n)
			USING first + i * 3, least(first + i * 3 + 2, last), CASE WHEN n % 4 = 2 THEN 12 ELSE 1 END;
	END LOOP;
END $$;

-- Each step is a transaction of its own.  After this one what the pages are before is
-- read; the next one changes many of them.
CREATE PROCEDURE fuzz_begin(n int) LANGUAGE plpgsql AS $$
DECLARE
	name text := format('w%s_i', n);
	is_unique text := CASE WHEN n % 4 = 3 AND current_setting('server_version_num')::int >= 180000
		THEN 'UNIQUE' ELSE '' END;
BEGIN
	EXECUTE format('CREATE TABLE w%s (id int, k int, s text) WITH (autovacuum_enabled = off)', n);
	EXECUTE format('ALTER TABLE w%s ALTER s SET STORAGE EXTERNAL', n);
	EXECUTE format('CREATE %s INDEX %s ON w%s USING cachebatch %s WITH (spill_threshold = 0, pack_leaves = off)',
		is_unique, name, n, fuzz_columns(n));
	COMMIT;
	PERFORM fuzz_fill(n, 1, 1500);
	COMMIT;
	PERFORM cache_batch_flush(name);
END $$;

-- Packed leaves that get a delta, narrow ranges, runs, dead rows, entries in the journal.
CREATE PROCEDURE fuzz_end(n int) LANGUAGE plpgsql AS $$
DECLARE
	name text := format('w%s_i', n);
BEGIN
	EXECUTE format('ALTER INDEX %s SET (pack_leaves = on)', name);
	EXECUTE format('SELECT cache_batch_compact(%L, NULL::%s, %L)', name,
		CASE WHEN n % 4 IN (1, 2) THEN 'text' ELSE 'int' END,
		CASE n % 4 WHEN 0 THEN '3000' WHEN 3 THEN '700' ELSE '8' END);
	COMMIT;
	PERFORM set_config('cache_batch.test_spill', 'on', false);
	FOR i IN 1 .. CASE WHEN n % 4 = 2 THEN 10 ELSE 0 END LOOP
		PERFORM fuzz_fill(n, 1660 + i, 1660 + i);
		COMMIT;
		PERFORM cache_batch_flush(name);
		COMMIT;
	END LOOP;
	FOR i IN 0 .. 1 LOOP
		PERFORM fuzz_fill(n, 1501 + i * 60, 1560 + i * 60);
		COMMIT;
		PERFORM cache_batch_flush(name);
		COMMIT;
	END LOOP;
	PERFORM set_config('cache_batch.test_spill', 'off', false);
	PERFORM fuzz_fill(n, 1621, 1660);
	COMMIT;
	EXECUTE format(CASE WHEN n % 4 IN (1, 2) THEN 'DELETE FROM w%s WHERE s COLLATE "C" BETWEEN ''b'' AND ''c'''
		ELSE 'DELETE FROM w%s WHERE id BETWEEN 900 AND 1400' END, n);
END $$;

-- Tiles with runs, and a run.
CREATE PROCEDURE fuzz_tile(n int) LANGUAGE plpgsql AS $$
DECLARE
	name text := format('w%s_i', n);
BEGIN
	PERFORM set_config('cache_batch.test_spill', 'on', false);
	FOR i IN 0 .. 3 LOOP
		PERFORM set_config('cache_batch.test_tiles', CASE WHEN i IN (1, 2) THEN '1' ELSE '0' END, false);
		PERFORM fuzz_fill(n, 1701 + i * 60, 1760 + i * 60);
		COMMIT;
		PERFORM cache_batch_flush(name);
		COMMIT;
	END LOOP;
	PERFORM set_config('cache_batch.test_spill', 'off', false);
END $$;
