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

-- statistics

CREATE FUNCTION cache_batch_stat_get(index oid,
	OUT staged bigint,
	OUT journaled bigint,
	OUT direct bigint,
	OUT flushed bigint,
	OUT flushes_limit bigint,
	OUT flushes_request bigint,
	OUT flushes_vacuum bigint,
	OUT leaf_visits bigint,
	OUT descents bigint,
	OUT applied bigint,
	OUT journal_reads bigint,
	OUT splits bigint)
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION cache_batch_stat_reset() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION cache_batch_stat_reset() IS
	'resets the counters of all cachebatch indexes of this database';

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

GRANT SELECT ON cache_batch_stat_indexes TO PUBLIC;

-- page contents show data of the table; the rest shows sizes only

REVOKE ALL ON FUNCTION cache_batch_adopt_operator_classes(boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_verify(regclass, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_metapage(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_page(regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_page_items(regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_journal(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION cache_batch_stat_reset() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cache_batch_verify(regclass, boolean) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION cache_batch_metapage(regclass) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION cache_batch_page(regclass, bigint) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION cache_batch_journal(regclass) TO pg_stat_scan_tables;
