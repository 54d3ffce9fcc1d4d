/* cache_batch: objects of version 1.0 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION cache_batch" to load this file. \quit

-- fails unless the library is in shared_preload_libraries
CREATE FUNCTION cache_batch_require_preload() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
SELECT cache_batch_require_preload();
DROP FUNCTION cache_batch_require_preload();

-- access method

CREATE FUNCTION cache_batch_handler(internal) RETURNS index_am_handler
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE ACCESS METHOD cachebatch TYPE INDEX HANDLER cache_batch_handler;
COMMENT ON ACCESS METHOD cachebatch IS
	'ordered index that takes insertions in batches';

-- operator classes

CREATE FUNCTION cache_batch_adopt_operator_classes(
	builtin_only boolean DEFAULT false) RETURNS integer
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE
SET search_path TO pg_catalog, pg_temp;
COMMENT ON FUNCTION cache_batch_adopt_operator_classes(boolean) IS
	'creates a cachebatch operator class for each btree operator class that has none yet; returns how many';

-- the server's own; they become members of this extension
SELECT cache_batch_adopt_operator_classes(builtin_only => true);

-- flushing

CREATE FUNCTION cache_batch_flush(index regclass) RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION cache_batch_flush(regclass) IS
	'moves all entries of an index''s journal to its tree; false if there were none';

-- checking

CREATE FUNCTION cache_batch_verify(index regclass,
								   heapallindexed boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_batch_verify(regclass, boolean) IS
	'checks the structure of an index, and if asked that it has an entry for each row; raises an error at the first fault';

-- looking inside

CREATE FUNCTION cache_batch_metapage(index regclass,
	OUT magic text,
	OUT version integer,
	OUT build_id uuid,
	OUT root bigint,
	OUT root_level integer,
	OUT journal_tail_seq bigint,
	OUT journal_tail_offset integer,
	OUT journal_tail_block bigint,
	OUT levels text[])
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cache_batch_page(index regclass, blkno bigint,
	OUT type text,
	OUT level integer,
	OUT flags text[],
	OUT next bigint,
	OUT cycleid integer,
	OUT live_items integer,
	OUT dead_items integer,
	OUT free_space integer,
	OUT journal_seq bigint)
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cache_batch_page_items(index regclass, blkno bigint,
	OUT itemoffset integer,
	OUT itemlen integer,
	OUT dead boolean,
	OUT natts integer,
	OUT child bigint,
	OUT htid tid,
	OUT data text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cache_batch_journal(index regclass,
	OUT seq bigint,
	OUT block bigint,
	OUT nentries integer,
	OUT bytes integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cache_batch_bucket_list(index regclass,
	OUT "position" integer,
	OUT bucket integer,
	OUT chunks integer,
	OUT entries bigint,
	OUT bytes bigint,
	OUT sorted_entries bigint,
	OUT flushing_chunks integer,
	OUT queued boolean,
	OUT oldest timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_batch_bucket_list(regclass) IS
	'the cache-buckets of an index in the order of their keys; none if it has none at present';

-- statistics

CREATE FUNCTION cache_batch_stat_get(index oid,
	OUT staged bigint,
	OUT journaled bigint,
	OUT direct bigint,
	OUT flushed bigint,
	OUT flushes_limit bigint,
	OUT flushes_request bigint,
	OUT flushes_vacuum bigint,
	OUT flushes_full bigint,
	OUT flushes_pressure bigint,
	OUT flushes_delay bigint,
	OUT flushes_help bigint,
	OUT leaf_visits bigint,
	OUT descents bigint,
	OUT applied bigint,
	OUT no_room bigint,
	OUT journal_reads bigint,
	OUT splits bigint)
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cache_batch_stat_reset() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_batch_stat_reset() IS
	'resets the counters of this database''s cachebatch indexes and flush workers, and that of the pool';

CREATE FUNCTION cache_batch_stat_get_pool(
	OUT pool_size bigint,
	OUT chunk_size bigint,
	OUT chunks bigint,
	OUT chunks_free bigint,
	OUT buckets bigint,
	OUT buckets_free bigint,
	OUT descriptors bigint,
	OUT descriptors_used bigint,
	OUT indexes bigint,
	OUT no_room bigint)
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cache_batch_stat_get_descriptors(
	OUT datid oid,
	OUT indexrelid oid,
	OUT relfilenode oid,
	OUT buckets integer,
	OUT chunks integer,
	OUT entries bigint,
	OUT bytes bigint,
	OUT oldest timestamptz,
	OUT journal_bytes bigint,
	OUT swept boolean,
	OUT attached_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cache_batch_stat_get_workers(
	OUT pid integer,
	OUT datid oid,
	OUT state text,
	OUT indexrelid oid,
	OUT pending bigint,
	OUT requests bigint,
	OUT entries bigint,
	OUT last_error_code text,
	OUT last_error text,
	OUT last_error_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW cache_batch_stat_indexes AS
SELECT n.nspname AS schemaname,
	   t.relname AS relname,
	   i.relname AS indexrelname,
	   t.oid AS relid,
	   i.oid AS indexrelid,
	   s.staged,
	   s.journaled,
	   s.direct,
	   s.flushed,
	   s.flushes_limit,
	   s.flushes_request,
	   s.flushes_vacuum,
	   s.flushes_full,
	   s.flushes_pressure,
	   s.flushes_delay,
	   s.flushes_help,
	   s.no_room,
	   s.applied,
	   s.leaf_visits,
	   s.descents,
	   round(s.applied::numeric / nullif(s.leaf_visits, 0), 2)
		   AS entries_per_visit,
	   s.splits,
	   s.journal_reads,
	   pg_stat_get_numscans(i.oid) AS idx_scan,
	   pg_stat_get_tuples_returned(i.oid) AS idx_tup_read,
	   pg_stat_get_tuples_fetched(i.oid) AS idx_tup_fetch
FROM pg_class i
	 JOIN pg_am a ON a.oid = i.relam
	 JOIN pg_index x ON x.indexrelid = i.oid
	 JOIN pg_class t ON t.oid = x.indrelid
	 JOIN pg_namespace n ON n.oid = i.relnamespace
	 CROSS JOIN LATERAL cache_batch_stat_get(i.oid) s
WHERE i.relkind = 'i'
  AND a.amhandler = 'cache_batch_handler(internal)'::regprocedure;
COMMENT ON VIEW cache_batch_stat_indexes IS
	'one row for each cachebatch index: how entries went from statements to its tree';

CREATE VIEW cache_batch_stat_pool AS
SELECT p.pool_size,
	   p.chunk_size,
	   p.chunks,
	   p.chunks_free,
	   p.buckets,
	   p.buckets_free,
	   p.descriptors,
	   p.descriptors_used,
	   p.indexes,
	   p.no_room
FROM cache_batch_stat_get_pool() p;
COMMENT ON VIEW cache_batch_stat_pool IS
	'one row: the shared memory for cache-buckets, of all databases';

CREATE VIEW cache_batch_stat_databases AS
SELECT s.datid,
	   d.datname,
	   count(*) AS indexes,
	   sum(s.buckets)::bigint AS buckets,
	   sum(s.chunks)::bigint AS chunks,
	   sum(s.entries)::bigint AS entries,
	   sum(s.bytes)::bigint AS bytes
FROM cache_batch_stat_get_descriptors() s
	 LEFT JOIN pg_database d ON d.oid = s.datid
GROUP BY s.datid, d.datname;
COMMENT ON VIEW cache_batch_stat_databases IS
	'one row for each database whose indexes have cache-buckets: what they use of the pool';

CREATE VIEW cache_batch_stat_buckets AS
SELECT n.nspname AS schemaname,
	   t.relname AS relname,
	   i.relname AS indexrelname,
	   t.oid AS relid,
	   i.oid AS indexrelid,
	   s.buckets,
	   s.chunks,
	   s.entries,
	   s.bytes,
	   clock_timestamp() - s.oldest AS oldest_age,
	   s.journal_bytes,
	   s.swept,
	   s.attached_at
FROM cache_batch_stat_get_descriptors() s
	 JOIN pg_database d ON d.oid = s.datid AND d.datname = current_database()
	 JOIN pg_class i ON i.oid = s.indexrelid AND i.relfilenode = s.relfilenode
	 JOIN pg_index x ON x.indexrelid = i.oid
	 JOIN pg_class t ON t.oid = x.indrelid
	 JOIN pg_namespace n ON n.oid = i.relnamespace;
COMMENT ON VIEW cache_batch_stat_buckets IS
	'one row for each index of this database that has cache-buckets: what they hold';

CREATE VIEW cache_batch_stat_workers AS
SELECT w.pid,
	   w.datid,
	   d.datname,
	   w.state,
	   w.indexrelid,
	   i.relname AS indexrelname,
	   w.pending,
	   w.requests,
	   w.entries,
	   w.last_error_code,
	   w.last_error,
	   w.last_error_at
FROM cache_batch_stat_get_workers() w
	 JOIN pg_database d ON d.oid = w.datid
	 LEFT JOIN pg_class i ON i.oid = w.indexrelid
		AND d.datname = current_database()
WHERE w.pid IS NOT NULL OR w.state <> 'idle' OR w.requests > 0
   OR w.last_error_at IS NOT NULL;
COMMENT ON VIEW cache_batch_stat_workers IS
	'one row for each flush worker and, without pid, one for each database that had any';

GRANT SELECT ON cache_batch_stat_indexes, cache_batch_stat_pool,
	cache_batch_stat_databases, cache_batch_stat_buckets,
	cache_batch_stat_workers TO PUBLIC;

-- page contents show data of the table; the rest shows sizes only, and texts
-- of errors only to members of pg_read_all_stats

REVOKE ALL ON FUNCTION cache_batch_adopt_operator_classes(boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_verify(regclass, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_metapage(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_page(regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_page_items(regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_journal(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_bucket_list(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_stat_reset() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cache_batch_verify(regclass, boolean) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION cache_batch_metapage(regclass) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION cache_batch_page(regclass, bigint) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION cache_batch_journal(regclass) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION cache_batch_bucket_list(regclass) TO pg_stat_scan_tables;
