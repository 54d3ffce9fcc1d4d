-- What serializable transactions lock: each short range of numbers some cells, wherever
-- it lies (A30).  A cell is named as a block that no index has.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
SET default_transaction_isolation = serializable;
SET enable_seqscan = off;
SET enable_bitmapscan = off;

CREATE TABLE predicate (k bigint) WITH (autovacuum_enabled = off);
CREATE INDEX predicate_k ON predicate USING cachebatch (k);

-- of the ranges of 51 numbers up to n, one beside the other, so many locked anything else
CREATE PROCEDURE predicate_ranges(n int, direction text, INOUT other int DEFAULT 0)
LANGUAGE plpgsql AS $$
BEGIN
	FOR start IN 1..n BY 50 LOOP
		COMMIT;
		EXECUTE format('SELECT k FROM predicate WHERE k BETWEEN %s AND %s ORDER BY k %s',
					   start, start + 50, direction);
		other := other + (SELECT (count(*) NOT IN (1, 2) OR bool_or(page >= 0))::int
						  FROM pg_locks WHERE relation = 'predicate_k'::regclass AND
						  mode = 'SIReadLock' AND pid = pg_backend_pid());
	END LOOP;
END $$;

-- the root is the only leaf
INSERT INTO predicate SELECT i FROM generate_series(1, 500) i;
CALL predicate_ranges(500, 'ASC');
CALL predicate_ranges(500, 'DESC');

-- many leaves: few ranges, beside the first separator and the last
INSERT INTO predicate SELECT i FROM generate_series(501, 20000) i;
SELECT cache_batch_flush('predicate_k') IS NOT NULL AS flushed;
DO $$
DECLARE
	other int := 0;
BEGIN
	CALL predicate_ranges(20000, 'ASC', other);
	CALL predicate_ranges(20000, 'DESC', other);
	RAISE WARNING 'others: %', CASE WHEN other < 40 THEN 'few' ELSE other::text END;
END $$;

-- long ranges lock downlinks, those at the ends too
CREATE FUNCTION predicate_downlinks(OUT locked text)
RETURN (SELECT CASE WHEN bool_and(page >= 0) THEN 'downlinks' ELSE 'cells' END
		FROM pg_locks WHERE relation = 'predicate_k'::regclass AND mode = 'SIReadLock' AND
		pid = pg_backend_pid());
SELECT count(*), predicate_downlinks() FROM predicate WHERE k BETWEEN 100 AND 15000;
SELECT count(*), predicate_downlinks() FROM predicate WHERE k BETWEEN -1000000 AND 100;
SELECT count(*), predicate_downlinks() FROM predicate WHERE k BETWEEN 19900 AND 1000000;
DROP FUNCTION predicate_downlinks;
DROP PROCEDURE predicate_ranges;
DROP TABLE predicate;
