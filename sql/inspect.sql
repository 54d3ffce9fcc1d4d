-- Looking inside: metapage, pages, entries, journal, counters
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS cache_batch;
RESET client_min_messages;

CREATE TABLE inspect (a int, b text) WITH (autovacuum_enabled = off);
CREATE INDEX inspect_a ON inspect USING cachebatch (a);

-- empty
SELECT magic, version, build_id IS NOT NULL AS has_id, root_level,
	   journal_tail_seq, journal_tail_block, levels, range_root
FROM cache_batch_metapage('inspect_a');
SELECT blkno, p.type, level, flags, next, live_items, dead_items, journal_seq
FROM generate_series(0, pg_relation_size('inspect_a') / 8192 - 1) blkno,
	 cache_batch_page('inspect_a', blkno) p;
SELECT * FROM cache_batch_journal('inspect_a');
SELECT * FROM cache_batch_ranges('inspect_a');

-- a few entries: in the journal
SELECT cache_batch_stat_reset();
INSERT INTO inspect SELECT i, 'x' FROM generate_series(1, 10) i;
INSERT INTO inspect VALUES (11, 'x');
SELECT seq, nentries, bytes FROM cache_batch_journal('inspect_a');
SELECT p.type, p.journal_seq, p.free_space > 0 AS free
FROM cache_batch_journal('inspect_a') j, cache_batch_page('inspect_a', j.block) p;
SELECT staged, journaled, direct, flushed, flushes_limit, flushes_request,
	   flushes_vacuum, leaf_visits, descents, entries_per_visit
FROM cache_batch_stat_indexes WHERE indexrelname = 'inspect_a';

-- flushed: in the tree
SELECT cache_batch_flush('inspect_a');
SELECT cache_batch_flush('inspect_a');
SELECT seq, nentries, bytes FROM cache_batch_journal('inspect_a');
SELECT i.* FROM cache_batch_metapage('inspect_a') m,
	 cache_batch_page_items('inspect_a', m.root) i;
SELECT staged, journaled, direct, flushed, flushes_limit, flushes_request > 0
	   AS requested, flushes_vacuum, leaf_visits, descents, entries_per_visit
FROM cache_batch_stat_indexes WHERE indexrelname = 'inspect_a';

-- the same position twice, and further on
INSERT INTO inspect VALUES (-1, 'x'), (NULL, 'y');
SELECT seq, nentries, bytes FROM cache_batch_journal('inspect_a');
SELECT cache_batch_flush('inspect_a');

-- a tree of more levels
INSERT INTO inspect SELECT i * 7919 % 30000, 'y' FROM generate_series(1, 30000) i;
SELECT cache_batch_flush('inspect_a') IS NOT NULL AS flushed;
SELECT root_level FROM cache_batch_metapage('inspect_a');
SELECT count(*) > 5 AS many_leaves, sum(live_items) AS entries,
	   sum(dead_items) AS dead, count(*) FILTER (WHERE next IS NULL) AS rightmost
FROM generate_series(0, pg_relation_size('inspect_a') / 8192 - 1) blkno,
	 cache_batch_page('inspect_a', blkno) p
WHERE p.type = 'leaf';
SELECT count(*), p.flags, p.next
FROM generate_series(0, pg_relation_size('inspect_a') / 8192 - 1) blkno,
	 cache_batch_page('inspect_a', blkno) p
WHERE p.type = 'internal' GROUP BY 2, 3;
-- the root's downlinks lead to all leaves; the first has no key
SELECT bool_and(p.type = 'leaf') AS leaves, min(i.natts) AS least,
	   max(i.natts) AS most, count(*) FILTER (WHERE i.natts = 0) AS no_key,
	   count(*) = count(DISTINCT i.child) AS distinct_children
FROM cache_batch_metapage('inspect_a') m,
	 cache_batch_page_items('inspect_a', m.root) i,
	 cache_batch_page('inspect_a', i.child) p;

-- full sweeps: few descents, many entries a visit
SELECT staged, journaled + direct AS accepted, journaled = flushed AS all_flushed,
	   flushes_limit > 0 AS by_limit, descents <= leaf_visits AS few_descents,
	   entries_per_visit > 1 AS batched
FROM cache_batch_stat_indexes WHERE indexrelname = 'inspect_a';

-- scans count as for any index
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SELECT count(*) FROM inspect WHERE a = 5;
SELECT count(*) FROM inspect WHERE a < 10;
RESET enable_seqscan;
RESET enable_bitmapscan;
SELECT pg_stat_force_next_flush();
SELECT idx_scan, idx_tup_read > 0 AS read FROM cache_batch_stat_indexes
WHERE indexrelname = 'inspect_a';

-- VACUUM drains too
INSERT INTO inspect SELECT i * 7919 % 30000, 'z' FROM generate_series(1, 50) i;
DELETE FROM inspect WHERE b = 'z' AND a % 2 = 0;
VACUUM inspect;
SELECT seq > 0 AS seq, nentries, bytes FROM cache_batch_journal('inspect_a');
SELECT flushes_vacuum > 0 AS by_vacuum FROM cache_batch_stat_indexes
WHERE indexrelname = 'inspect_a';
SELECT cache_batch_verify('inspect_a', true);

-- a new build has a new identity and an empty journal
CREATE TABLE build_ids AS SELECT build_id FROM cache_batch_metapage('inspect_a');
REINDEX INDEX inspect_a;
INSERT INTO build_ids SELECT build_id FROM cache_batch_metapage('inspect_a');
TRUNCATE inspect;
INSERT INTO build_ids SELECT build_id FROM cache_batch_metapage('inspect_a');
SELECT count(DISTINCT build_id) FROM build_ids;
SELECT * FROM cache_batch_journal('inspect_a');
DROP TABLE build_ids;

-- temporary and unlogged indexes
CREATE TEMP TABLE inspect_t (a int);
CREATE INDEX inspect_t_a ON inspect_t USING cachebatch (a);
INSERT INTO inspect_t SELECT generate_series(1, 5);
SELECT count(*) FROM cache_batch_journal('inspect_t_a');
SELECT type, live_items FROM cache_batch_metapage('inspect_t_a') m,
	 cache_batch_page('inspect_t_a', m.root);
CREATE UNLOGGED TABLE inspect_u (a int);
CREATE INDEX inspect_u_a ON inspect_u USING cachebatch (a);
INSERT INTO inspect_u SELECT generate_series(1, 5);
SELECT cache_batch_flush('inspect_u_a') IS NOT NULL AS flushed;
SELECT type, live_items FROM cache_batch_metapage('inspect_u_a') m,
	 cache_batch_page('inspect_u_a', m.root);
SELECT cache_batch_verify('inspect_t_a', true), cache_batch_verify('inspect_u_a', true);

-- a second access method with our handler
CREATE ACCESS METHOD regress_cb_second TYPE INDEX HANDLER cache_batch_handler;
CREATE OPERATOR CLASS regress_cb_int FOR TYPE int4 USING regress_cb_second AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 btint4cmp(int4, int4);
CREATE INDEX inspect_second ON inspect USING regress_cb_second
	(a regress_cb_int);
SELECT count(*) AS shown FROM cache_batch_stat_indexes
WHERE relname LIKE 'inspect%';
SELECT cache_batch_flush('inspect_second');

DROP TABLE inspect, inspect_t, inspect_u;
DROP OPERATOR FAMILY regress_cb_int USING regress_cb_second;
DROP ACCESS METHOD regress_cb_second;
