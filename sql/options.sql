-- Storage parameters
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

CREATE TABLE options WITH (autovacuum_enabled = off) AS
SELECT i AS a, md5(i::text) AS b FROM generate_series(1, 5000) i;

CREATE INDEX options_90 ON options USING cachebatch (a)
	WITH (pack_leaves = off);
CREATE INDEX options_50 ON options USING cachebatch (a)
	WITH (fillfactor = 50, pack_leaves = off);
CREATE INDEX options_100 ON options USING cachebatch (a)
	WITH (fillfactor = 100, pack_leaves = off);
CREATE INDEX options_all ON options USING cachebatch (b)
	WITH (fillfactor = 70, deduplicate_items = off, buffered = off);
SELECT relname, reloptions FROM pg_class
WHERE relname LIKE 'options\_%' ORDER BY 1;

-- the fill factor shows in the size
SELECT pg_relation_size('options_50') > 1.6 * pg_relation_size('options_90')
		   AS half_filled,
	   pg_relation_size('options_100') < pg_relation_size('options_90')
		   AS filled;

-- changed later; the next build goes by it
ALTER INDEX options_50 SET (fillfactor = 100);
REINDEX INDEX options_50;
SELECT pg_relation_size('options_50') = pg_relation_size('options_100')
	AS filled;
ALTER INDEX options_50 RESET (fillfactor);
ALTER INDEX options_50 SET (deduplicate_items = true);
ALTER INDEX options_50 SET (buffered = off);
SELECT reloptions FROM pg_class WHERE relname = 'options_50';

-- unbuffered: nothing in the journal; buffered: in the journal at first
SELECT cache_batch_stat_reset();
INSERT INTO options SELECT i * 997 % 5000, md5(i::text)
FROM generate_series(5001, 5020) i;
SELECT indexrelname, staged > 0 AS staged, journaled > 0 AS journaled,
	   direct > 0 AS direct
FROM cache_batch_stat_indexes WHERE indexrelname LIKE 'options\_%' ORDER BY 1;

-- switched off with entries in the journal, and on again
ALTER INDEX options_90 SET (buffered = off);
SET enable_seqscan = off;
SELECT count(*) FROM options WHERE a >= 0;
INSERT INTO options VALUES (10001, 'x');
ALTER INDEX options_90 SET (buffered = on);
INSERT INTO options VALUES (10002, 'y');
SELECT a FROM options WHERE a >= 4999 ORDER BY a;
RESET enable_seqscan;
SELECT indexrelid::regclass, cache_batch_verify(indexrelid, true)
FROM cache_batch_stat_indexes WHERE relname = 'options' ORDER BY 1;

-- refused
CREATE INDEX ON options USING cachebatch (a) WITH (fillfactor = 9);
CREATE INDEX ON options USING cachebatch (a) WITH (fillfactor = 101);
CREATE INDEX ON options USING cachebatch (a) WITH (fillfactor = much);
CREATE INDEX ON options USING cachebatch (a) WITH (buffered = 2);
CREATE INDEX ON options USING cachebatch (a) WITH (deduplicate_items = maybe);
CREATE INDEX ON options USING cachebatch (a) WITH (pack_leaves = 3);
CREATE INDEX ON options USING cachebatch (a) WITH (spill_threshold = 'on');
CREATE INDEX ON options USING cachebatch (a) WITH (cold_threshold = '-1');
CREATE INDEX ON options USING cachebatch (a) WITH (fastupdate = on);
ALTER INDEX options_90 SET (fillfactor = 200);
ALTER INDEX options_90 SET (buffered);
SELECT relname, reloptions FROM pg_class WHERE relname = 'options_90';

DROP TABLE options;
