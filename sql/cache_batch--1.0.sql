/* cache_batch: objects of version 1.0 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION cache_batch" to load this file. \quit

-- Views and function bodies are bound to what names mean now: to nothing that
-- others have put into the extension's schema.  What is ours is named with it, and
-- called with all arguments, of its own types, so that no overload fits better.
SET LOCAL search_path TO pg_catalog, pg_temp;

-- fails unless the library is in shared_preload_libraries
CREATE FUNCTION @extschema@.cache_batch_require_preload() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE;
SELECT @extschema@.cache_batch_require_preload();
DROP FUNCTION @extschema@.cache_batch_require_preload();

-- access method

CREATE FUNCTION @extschema@.cache_batch_handler(internal) RETURNS index_am_handler
AS 'MODULE_PATHNAME' LANGUAGE C STRICT;

CREATE ACCESS METHOD cachebatch TYPE INDEX HANDLER @extschema@.cache_batch_handler;
COMMENT ON ACCESS METHOD cachebatch IS
	'ordered index that takes insertions in batches';

-- operator classes

CREATE FUNCTION @extschema@.cache_batch_adopt_operator_classes(
	builtin_only boolean DEFAULT false) RETURNS integer
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE
SET search_path TO pg_catalog, pg_temp;
COMMENT ON FUNCTION @extschema@.cache_batch_adopt_operator_classes(boolean) IS
	'creates a cachebatch operator class for each btree operator class that has none yet; returns how many';

CREATE FUNCTION @extschema@.cache_batch_comparison_is_total(index regclass) RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.cache_batch_comparison_is_total(regclass) IS
	'are the comparisons of a btree or cachebatch index known to compare all values, so that it is buffered by default?';

-- the server's own; they become members of this extension
SELECT @extschema@.cache_batch_adopt_operator_classes(builtin_only => true);

-- flushing

CREATE FUNCTION @extschema@.cache_batch_flush(index regclass) RETURNS boolean
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_batch_flush(regclass) IS
	'moves all entries of an index''s journal to its tree; false if there were none';

-- packing

CREATE FUNCTION @extschema@.cache_batch_compact(index regclass) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_batch_compact(regclass) IS
	'packs all leaves of an index densely; returns how many pages that freed';

CREATE FUNCTION @extschema@.cache_batch_compact(index regclass, lo anyelement, hi anyelement)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION @extschema@.cache_batch_compact(regclass, anyelement, anyelement) IS
	'the same for the leaves of a range of keys of the first column; null: no bound';

CREATE FUNCTION @extschema@.cache_batch_prewarm(index regclass) RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_prewarm(regclass) IS
	'reads all leaves of an index into memory, and lets them count as used; returns how many';

CREATE FUNCTION @extschema@.cache_batch_prewarm(index regclass, lo anyelement, hi anyelement)
RETURNS bigint
AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_prewarm(regclass, anyelement, anyelement) IS
	'the same for the leaves of a range of keys of the first column; null: no bound';

-- checking

CREATE FUNCTION @extschema@.cache_batch_verify(index regclass,
								   heapallindexed boolean DEFAULT false)
RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_verify(regclass, boolean) IS
	'checks the structure of an index, and if asked that it has an entry for each row; raises an error at the first fault';

-- looking inside

CREATE FUNCTION @extschema@.cache_batch_metapage(index regclass,
	OUT magic text,
	OUT version integer,
	OUT build_id uuid,
	OUT root bigint,
	OUT root_level integer,
	OUT journal_tail_seq bigint,
	OUT journal_tail_offset integer,
	OUT journal_tail_block bigint,
	OUT levels text[],
	OUT range_root bigint)
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION @extschema@.cache_batch_page(index regclass, blkno bigint,
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

CREATE FUNCTION @extschema@.cache_batch_page_items(index regclass, blkno bigint,
	OUT itemoffset integer,
	OUT ordinal integer,
	OUT itemlen integer,
	OUT dead boolean,
	OUT natts integer,
	OUT child bigint,
	OUT htid tid,
	OUT data text)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION @extschema@.cache_batch_journal(index regclass,
	OUT seq bigint,
	OUT block bigint,
	OUT nentries integer,
	OUT bytes integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION @extschema@.cache_batch_bucket_list(index regclass,
	OUT "position" integer,
	OUT bucket integer,
	OUT chunks integer,
	OUT entries bigint,
	OUT bytes bigint,
	OUT sorted_entries bigint,
	OUT flushing_chunks integer,
	OUT queued boolean,
	OUT oldest timestamptz,
	OUT failures integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_bucket_list(regclass) IS
	'the cache-buckets of an index in the order of their keys; none if it has none at present';

CREATE FUNCTION @extschema@.cache_batch_ranges(index regclass,
	OUT "position" integer,
	OUT block bigint,
	OUT runs integer,
	OUT entries bigint,
	OUT pages integer,
	OUT retired_runs integer,
	OUT retired_pages integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_ranges(regclass) IS
	'the ranges of an index''s range buffers in the order of their keys: what waits there for the tree; none if it has never had any';

-- statistics

CREATE FUNCTION @extschema@.cache_batch_stat_get(index oid,
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
	OUT flushes_reads bigint,
	OUT leaf_visits bigint,
	OUT descents bigint,
	OUT applied bigint,
	OUT no_room bigint,
	OUT journal_reads bigint,
	OUT splits bigint,
	OUT dropped bigint,
	OUT compacted bigint,
	OUT spilled bigint,
	OUT vacuum_skipped bigint,
	OUT cached_reads bigint)
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION @extschema@.cache_batch_stat_reset() RETURNS void
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_stat_reset() IS
	'resets the counters of this database''s cachebatch indexes and flush workers, and that of the pool';

CREATE FUNCTION @extschema@.cache_batch_stat_get_pool(
	OUT pool_size bigint,
	OUT chunk_size bigint,
	OUT chunks bigint,
	OUT chunks_free bigint,
	OUT buckets bigint,
	OUT buckets_free bigint,
	OUT bucket_sets bigint,
	OUT bucket_sets_used bigint,
	OUT indexes bigint,
	OUT no_room bigint)
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION @extschema@.cache_batch_stat_get_bucket_sets(
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
	OUT attached_at timestamptz,
	OUT failing_buckets integer,
	OUT last_error text,
	OUT copied_entries bigint,
	OUT copied_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION @extschema@.cache_batch_stat_get_workers(
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

CREATE FUNCTION @extschema@.cache_batch_stat_get_heat(index oid,
	OUT min_age integer,
	OUT max_age integer,
	OUT blocks_read bigint,
	OUT blocks_written bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE VIEW @extschema@.cache_batch_stat_indexes AS
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
	   s.flushes_reads,
	   s.no_room,
	   s.applied,
	   s.leaf_visits,
	   s.descents,
	   round(s.applied::numeric / nullif(s.leaf_visits, 0), 2)
		   AS entries_per_visit,
	   s.splits,
	   s.dropped,
	   s.compacted,
	   s.spilled,
	   s.vacuum_skipped,
	   s.cached_reads,
	   s.journal_reads,
	   pg_stat_get_numscans(i.oid) AS idx_scan,
	   pg_stat_get_tuples_returned(i.oid) AS idx_tup_read,
	   pg_stat_get_tuples_fetched(i.oid) AS idx_tup_fetch
FROM pg_class i
	 JOIN pg_am a ON a.oid = i.relam
	 JOIN pg_index x ON x.indexrelid = i.oid
	 JOIN pg_class t ON t.oid = x.indrelid
	 JOIN pg_namespace n ON n.oid = i.relnamespace
	 CROSS JOIN LATERAL @extschema@.cache_batch_stat_get(i.oid) s
WHERE i.relkind = 'i'
  AND a.amhandler = '@extschema@.cache_batch_handler(internal)'::regprocedure;
COMMENT ON VIEW @extschema@.cache_batch_stat_indexes IS
	'one row for each cachebatch index: how entries went from statements to its tree';

CREATE VIEW @extschema@.cache_batch_stat_pool AS
SELECT p.pool_size,
	   p.chunk_size,
	   p.chunks,
	   p.chunks_free,
	   p.buckets,
	   p.buckets_free,
	   p.bucket_sets,
	   p.bucket_sets_used,
	   p.indexes,
	   p.no_room
FROM @extschema@.cache_batch_stat_get_pool() p;
COMMENT ON VIEW @extschema@.cache_batch_stat_pool IS
	'one row: the shared memory for cache-buckets, of all databases';

CREATE VIEW @extschema@.cache_batch_stat_databases AS
SELECT s.datid,
	   d.datname,
	   count(*) AS indexes,
	   sum(s.buckets)::bigint AS buckets,
	   sum(s.chunks)::bigint AS chunks,
	   sum(s.entries)::bigint AS entries,
	   sum(s.bytes)::bigint AS bytes
FROM @extschema@.cache_batch_stat_get_bucket_sets() s
	 LEFT JOIN pg_database d ON d.oid = s.datid
GROUP BY s.datid, d.datname;
COMMENT ON VIEW @extschema@.cache_batch_stat_databases IS
	'one row for each database whose indexes have cache-buckets: what they use of the pool';

CREATE VIEW @extschema@.cache_batch_stat_buckets AS
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
	   s.attached_at,
	   s.failing_buckets,
	   s.last_error,
	   s.copied_entries,
	   s.copied_bytes
FROM @extschema@.cache_batch_stat_get_bucket_sets() s
	 JOIN pg_database d ON d.oid = s.datid AND d.datname = current_database()
	 JOIN pg_class i ON i.oid = s.indexrelid AND i.relfilenode = s.relfilenode
	 JOIN pg_index x ON x.indexrelid = i.oid
	 JOIN pg_class t ON t.oid = x.indrelid
	 JOIN pg_namespace n ON n.oid = i.relnamespace;
COMMENT ON VIEW @extschema@.cache_batch_stat_buckets IS
	'one row for each index of this database that has cache-buckets, or of whose journal there is a shared copy: what these hold';

CREATE VIEW @extschema@.cache_batch_stat_workers AS
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
FROM @extschema@.cache_batch_stat_get_workers() w
	 JOIN pg_database d ON d.oid = w.datid
	 LEFT JOIN pg_class i ON i.oid = w.indexrelid
		AND d.datname = current_database()
WHERE w.pid IS NOT NULL OR w.state <> 'idle' OR w.requests > 0
   OR w.last_error_at IS NOT NULL;
COMMENT ON VIEW @extschema@.cache_batch_stat_workers IS
	'one row for each flush worker and, without pid, one for each database that had any';

CREATE VIEW @extschema@.cache_batch_stat_heat AS
SELECT n.nspname AS schemaname,
	   t.relname AS relname,
	   i.relname AS indexrelname,
	   t.oid AS relid,
	   i.oid AS indexrelid,
	   s.min_age,
	   s.max_age,
	   s.blocks_read,
	   s.blocks_written
FROM pg_class i
	 JOIN pg_am a ON a.oid = i.relam
	 JOIN pg_index x ON x.indexrelid = i.oid
	 JOIN pg_class t ON t.oid = x.indrelid
	 JOIN pg_namespace n ON n.oid = i.relnamespace
	 CROSS JOIN LATERAL @extschema@.cache_batch_stat_get_heat(i.oid) s
WHERE i.relkind = 'i'
  AND a.amhandler = '@extschema@.cache_batch_handler(internal)'::regprocedure;
COMMENT ON VIEW @extschema@.cache_batch_stat_heat IS
	'how many blocks of each cachebatch index were last read, and last written, how many epochs ago: a histogram, one row for each class of ages';

-- advice

-- Arguments of which README says nothing: buckets (as many as are 64 kB large);
-- period (1), how many entries in turn belong to one leaf; stagger (1), at how many
-- times the average a bucket is flushed: about 2 here, as the fullest goes first.
-- Results: src/core/cb_model.h; ratios are null where direct updates miss nothing.
CREATE FUNCTION @extschema@.cache_batch_model(
	leaves bigint,
	pool_size bigint,
	entry_size integer DEFAULT 20,
	leaf_size integer DEFAULT 8192,
	buckets bigint DEFAULT NULL,
	period integer DEFAULT 1,
	stagger double precision DEFAULT 1,
	uncached double precision DEFAULT 0,
	measured double precision DEFAULT NULL,
	OUT n double precision,
	OUT capacity double precision,
	OUT leaves_per_flush double precision,
	OUT entries_per_visit double precision,
	OUT hit_direct double precision,
	OUT miss_direct double precision,
	OUT miss_batched double precision,
	OUT miss_ratio double precision,
	OUT lines_direct double precision,
	OUT lines_per_visit double precision,
	OUT lines_ratio double precision,
	OUT btree_ns double precision,
	OUT cachebatch_ns double precision,
	OUT cost_ratio double precision,
	OUT pool_fades bigint)
AS 'MODULE_PATHNAME' LANGUAGE C CALLED ON NULL INPUT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION @extschema@.cache_batch_model(bigint, bigint, integer, integer, bigint,
	integer, double precision, double precision, double precision) IS
	'what batching saves an index of so many leaves with a pool of so many bytes: entries a leaf visit, misses, time; estimates';

CREATE FUNCTION @extschema@.cache_batch_swap_obstacle(index regclass) RETURNS text
STABLE STRICT PARALLEL SAFE LANGUAGE sql
SET search_path TO pg_catalog, pg_temp
BEGIN ATOMIC
SELECT CASE
	WHEN a.amname <> 'btree' THEN 'not a btree index'
	WHEN c.relpersistence = 't' THEN 'temporary table'
	WHEN c.relnamespace IN ('pg_catalog'::regnamespace,
		'information_schema'::regnamespace, 'pg_toast'::regnamespace)
		THEN 'system table'
	WHEN x.indisprimary THEN 'primary key'
	WHEN x.indisreplident THEN 'replica identity'
	WHEN EXISTS (SELECT FROM pg_constraint u
				 WHERE u.conindid = c.oid AND u.contype = 'u')
		THEN 'unique constraint'
	WHEN x.indisunique AND current_setting('server_version_num')::integer < 180000
		THEN 'unique index'
	WHEN EXISTS (SELECT FROM pg_constraint f
				 WHERE f.conindid = c.oid AND f.contype = 'f')
		THEN 'foreign key'
	WHEN x.indisexclusion THEN 'exclusion constraint'
	WHEN x.indisclustered THEN 'table is clustered on it'
	WHEN NOT x.indisvalid OR NOT x.indisready OR NOT x.indislive
		THEN 'not valid'
	ELSE (SELECT 'no cachebatch operator class for '
			|| string_agg(DISTINCT o.opcname, ', ' ORDER BY o.opcname)
		FROM pg_opclass o
		WHERE o.oid = ANY (x.indclass)
		AND NOT EXISTS (SELECT FROM pg_opclass our
			JOIN pg_am m ON m.oid = our.opcmethod
			WHERE m.amname = 'cachebatch' AND our.opcname = o.opcname
			AND our.opcnamespace = o.opcnamespace
			AND our.opcintype = o.opcintype
			AND our.opcdefault = o.opcdefault))
	END
FROM pg_class c
	 JOIN pg_am a ON a.oid = c.relam
	 JOIN pg_index x ON x.indexrelid = c.oid
WHERE c.oid = index;
END;
COMMENT ON FUNCTION @extschema@.cache_batch_swap_obstacle(regclass) IS
	'why a cachebatch index cannot take the place of an index; null if it can';


-- A btree index's definition is taken from pg_get_indexdef().  It begins with
-- names and ends with options and condition, which are known, and is cut there:
-- between them are the columns with all that belongs to them.  If it does not
-- begin and end like that, nothing is returned at all.
CREATE FUNCTION @extschema@.cache_batch_swap(index regclass) RETURNS SETOF text
STABLE STRICT PARALLEL SAFE LANGUAGE sql
SET search_path TO pg_catalog, pg_temp
BEGIN ATOMIC
WITH member AS (
	-- of a partitioned index, or one that is part of it, all of it
	SELECT p.relid::oid AS oid, p.parentrelid::oid AS parent, p.isleaf, p.level
	FROM pg_partition_tree(pg_partition_root(index)) p
	UNION ALL
	SELECT index::oid, NULL, true, 0 WHERE pg_partition_root(index) IS NULL
), part AS (
	SELECT m.oid, m.parent, m.isleaf, m.level, c.relname, c.relispartition,
		   x.indexprs IS NOT NULL AS has_expressions,
		   CASE WHEN x.indisunique THEN 'UNIQUE ' END AS unique,
		   n.nspname, 'cache_batch_swap_' || m.oid AS new_name,
		   format('%I.%I', n.nspname, c.relname) AS old,
		   format('%I.%I', n.nspname, 'cache_batch_swap_' || m.oid) AS new,
		   format('%I.%I', tn.nspname, t.relname) AS tab,
		   pg_get_indexdef(m.oid) AS def,
		   format('CREATE %sINDEX %I ON %s%I.%I USING btree ',
				  CASE WHEN x.indisunique THEN 'UNIQUE ' END, c.relname,
				  CASE WHEN NOT m.isleaf THEN 'ONLY ' END,
				  tn.nspname, t.relname) AS head,
		   o.had AS had_options, o.has AS options,
		   ' TABLESPACE ' || quote_ident(s.spcname) AS tablespace,
		   c.reltablespace <> 0 OR m.isleaf AS names_tablespace,
		   ' WHERE ' || pg_get_expr(x.indpred, x.indrelid) AS condition
	FROM member m
		 JOIN pg_class c ON c.oid = m.oid
		 JOIN pg_namespace n ON n.oid = c.relnamespace
		 JOIN pg_index x ON x.indexrelid = m.oid
		 JOIN pg_class t ON t.oid = x.indrelid
		 JOIN pg_namespace tn ON tn.oid = t.relnamespace
		 JOIN pg_database d ON d.datname = current_database()
		 LEFT JOIN pg_tablespace s ON s.oid = CASE
			WHEN c.reltablespace <> 0 THEN c.reltablespace
			WHEN current_setting('default_tablespace') <> ''
				THEN d.dattablespace END
		 CROSS JOIN LATERAL (
			-- in the words of pg_get_indexdef(); and those we have
			SELECT ' WITH (' || string_agg(w.word, ', ' ORDER BY w.nth) || ')'
					   AS had,
				   ' WITH (' || string_agg(w.word, ', ' ORDER BY w.nth)
					   FILTER (WHERE w.name IN ('fillfactor',
												'deduplicate_items')) || ')'
					   AS has
			FROM (SELECT r.ordinality AS nth, r.option_name AS name,
						 quote_ident(r.option_name) || '=' || CASE
							WHEN quote_ident(r.option_value) = r.option_value
							THEN r.option_value
							ELSE quote_literal(r.option_value) END AS word
				  FROM pg_options_to_table(c.reloptions) WITH ORDINALITY r) w
		 ) o
), piece AS (
	SELECT p.*,
		   substr(p.def, length(p.head) + 1,
				  length(p.def) - length(p.head) - length(e.tail)) AS columns,
		   left(p.def, length(p.head)) = p.head
		   AND right(p.def, length(e.tail)) = e.tail
		   AND @extschema@.cache_batch_swap_obstacle(p.oid::regclass) IS NULL AS known
	FROM part p
		 CROSS JOIN LATERAL (
			SELECT concat(p.had_options, p.condition) AS tail) e
), statement (step, place, text) AS (
	-- what an attempt that failed has left
	SELECT 1, p.level, format('DROP INDEX %sIF EXISTS %s',
		CASE WHEN p.isleaf THEN 'CONCURRENTLY ' END, p.new)
	FROM piece p
	WHERE to_regclass(p.new) IS NOT NULL
	UNION ALL
	SELECT 2, p.level, format('CREATE %sINDEX %s%I ON %s%s USING cachebatch %s',
		p.unique, CASE WHEN p.isleaf THEN 'CONCURRENTLY ' END, p.new_name,
		CASE WHEN NOT p.isleaf THEN 'ONLY ' END, p.tab,
		concat(p.columns, p.options,
			   CASE WHEN p.names_tablespace THEN p.tablespace END, p.condition))
	FROM piece p
	UNION ALL
	-- the database's own must not be named for a partitioned index, but set
	SELECT 3, p.level, format('ALTER INDEX %s SET%s', p.new, p.tablespace)
	FROM piece p
	WHERE NOT p.names_tablespace AND p.tablespace IS NOT NULL
	UNION ALL
	SELECT 4, -p.level, format('ALTER INDEX %s ATTACH PARTITION %s', up.new, p.new)
	FROM piece p JOIN piece up ON up.oid = p.parent
	UNION ALL
	SELECT 5, p.level, format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s',
		p.new, a.attnum, a.attstattarget)
	FROM piece p
		 JOIN pg_attribute a ON a.attrelid = p.oid AND a.attstattarget >= 0
	UNION ALL
	SELECT 6, p.level, format('COMMENT ON INDEX %s IS %L', p.new,
							  obj_description(p.oid, 'pg_class'))
	FROM piece p
	WHERE obj_description(p.oid, 'pg_class') IS NOT NULL
	UNION ALL
	SELECT 7, p.level, format('ALTER INDEX %s DEPENDS ON EXTENSION %I', p.new,
							  e.extname)
	FROM piece p
		 JOIN pg_depend d ON d.classid = 'pg_class'::regclass
			AND d.objid = p.oid AND d.deptype = 'x'
			AND d.refclassid = 'pg_extension'::regclass
		 JOIN pg_extension e ON e.oid = d.refobjid
	UNION ALL
	-- statistics of expressions belong to the index
	SELECT 8, p.level, format('ANALYZE %s', p.tab)
	FROM piece p
	WHERE p.has_expressions AND p.level = 0
	UNION ALL
	SELECT 9, p.level, format('DROP INDEX %s%s',
		CASE WHEN p.isleaf THEN 'CONCURRENTLY ' END, p.old)
	FROM piece p
	WHERE p.level = 0
	UNION ALL
	SELECT 10, p.level, format('ALTER INDEX %s RENAME TO %I', p.new, p.relname)
	FROM piece p
)
SELECT s.text
FROM statement s
WHERE (SELECT bool_and(p.known) FROM piece p)
ORDER BY s.step, s.place, s.text;
END;
COMMENT ON FUNCTION @extschema@.cache_batch_swap(regclass) IS
	'statements that put a cachebatch index in the place of a btree index, one a row, to be run outside a transaction; none where that cannot be done';

CREATE FUNCTION @extschema@.cache_batch_advise(
	relation regclass DEFAULT NULL,
	pool_size bigint DEFAULT NULL,
	min_size bigint DEFAULT 8388608,
	OUT schemaname name,
	OUT relname name,
	OUT indexrelname name,
	OUT relid oid,
	OUT indexrelid oid,
	OUT method name,
	OUT size bigint,
	OUT writes bigint,
	OUT scans bigint,
	OUT entries_per_visit numeric,
	OUT expected_entries_per_visit numeric,
	OUT btree_ns numeric,
	OUT cachebatch_ns numeric,
	OUT cost_ratio numeric,
	OUT pool_wanted bigint,
	OUT verdict text,
	OUT reason text,
	OUT swap text)
RETURNS SETOF record
VOLATILE PARALLEL RESTRICTED LANGUAGE sql
SET search_path TO pg_catalog, pg_temp
BEGIN ATOMIC
WITH server AS (
	SELECT coalesce(cache_batch_advise.pool_size, p.pool_size) AS pool,
		   pg_size_bytes(current_setting('shared_buffers'))::double precision
			   AS shared_buffers,
		   current_setting('block_size')::integer AS block_size
	FROM @extschema@.cache_batch_stat_pool p
), stats AS MATERIALIZED (
	-- once for all: it can be looked up by names only
	SELECT g.schemaname, g.tablename, g.attname, g.avg_width, g.correlation,
		   g.n_distinct
	FROM pg_stats g
	WHERE NOT g.inherited
), keys AS (
	SELECT i.oid,
		   -- an entry in the pool: header, columns, item
		   (((8 + sum(CASE WHEN c.attlen > 0 THEN c.attlen
				ELSE coalesce(g.avg_width, 32) END) + 7) / 8)::integer * 8 + 4)
			   AS entry_size,
		   max(g.correlation) FILTER (WHERE c.attnum = 1) AS correlation,
		   max(g.n_distinct) FILTER (WHERE c.attnum = 1) AS n_distinct
	FROM pg_index x
		 JOIN pg_class i ON i.oid = x.indexrelid
		 JOIN pg_class t ON t.oid = x.indrelid
		 JOIN pg_namespace n ON n.oid = i.relnamespace
		 JOIN pg_attribute c ON c.attrelid = i.oid
		 LEFT JOIN pg_attribute tc ON tc.attrelid = t.oid
			AND tc.attnum = nullif(x.indkey[c.attnum - 1], 0)
		 LEFT JOIN stats g ON g.schemaname = n.nspname
			AND g.tablename = CASE WHEN tc.attname IS NULL
				THEN i.relname ELSE t.relname END
			AND g.attname = coalesce(tc.attname, c.attname)
	GROUP BY i.oid
), fact AS (
	SELECT n.nspname, t.relname AS tab, i.relname AS idx, t.oid AS tab_oid,
		   i.oid, a.amname, i.relispartition, i.relpersistence,
		   a.amname <> 'btree' AS ours,
		   a.amname <> 'btree' AND i.relpersistence <> 't'
			   AND o.option <> 'off' AND (o.option = 'on' OR y.total) AS buffered,
		   o.option, y.total,
		   x.indisunique, z.bytes,
		   greatest(z.bytes / v.block_size - 1, 1) AS leaves,
		   greatest(0, 1 - v.shared_buffers
			   / greatest(pg_indexes_size(t.oid), z.bytes, 1)) AS uncached,
		   ((pg_stat_get_tuples_inserted(t.oid)
			 + pg_stat_get_tuples_updated(t.oid)
			 - pg_stat_get_tuples_hot_updated(t.oid))
			* CASE WHEN x.indpred IS NOT NULL AND i.reltuples >= 0
				AND t.reltuples > 0
				THEN least(1, i.reltuples / t.reltuples) ELSE 1 END)
			   ::double precision AS writes,
		   pg_stat_get_numscans(i.oid) AS scans,
		   k.entry_size,
		   k.correlation,
		   CASE WHEN x.indnkeyatts > 1 THEN NULL
			   WHEN k.n_distinct > 0 THEN k.n_distinct
			   WHEN k.n_distinct < 0 AND t.reltuples > 0
				   THEN -k.n_distinct * t.reltuples END::double precision
			   AS distinct_keys,
		   i.reltuples::double precision AS rows,
		   s.entries_per_visit AS measured
	FROM pg_class i
		 JOIN pg_am a ON a.oid = i.relam
		 JOIN pg_index x ON x.indexrelid = i.oid
		 JOIN pg_class t ON t.oid = x.indrelid
		 JOIN pg_namespace n ON n.oid = i.relnamespace
		 CROSS JOIN server v
		 CROSS JOIN LATERAL (SELECT pg_relation_size(i.oid) AS bytes) z
		 CROSS JOIN LATERAL (
			SELECT coalesce(@extschema@.cache_batch_comparison_is_total(i.oid), true)
				   AS total) y
		 CROSS JOIN LATERAL (
			SELECT coalesce(max(CASE WHEN lower(r.option_value) IN ('on', 'true', 'yes', '1')
								THEN 'on' WHEN lower(r.option_value) = 'auto' THEN 'auto'
								ELSE 'off' END), 'auto') AS option
			FROM pg_options_to_table(i.reloptions) r
			WHERE r.option_name = 'buffered') o
		 JOIN keys k ON k.oid = i.oid
		 LEFT JOIN @extschema@.cache_batch_stat_indexes s ON s.indexrelid = i.oid
	WHERE i.relkind = 'i'
	  AND (a.amname = 'btree'
		   OR a.amhandler = '@extschema@.cache_batch_handler(internal)'::regprocedure)
	  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
	  AND NOT pg_is_other_temp_schema(n.oid)
), demand AS (
	-- who writes more has more of the pool; a btree index as if it were ours
	SELECT f.*,
		   f.writes * f.entry_size AS demand,
		   sum(CASE WHEN f.buffered THEN f.writes * f.entry_size ELSE 0 END)
			   OVER () AS demand_of_all
	FROM fact f
), share AS (
	SELECT d.*,
		   coalesce(d.demand / nullif(d.demand_of_all
			   + CASE WHEN d.buffered THEN 0 ELSE d.demand END, 0), 1) AS share,
		   CASE WHEN abs(d.correlation) >= 0.95 THEN 1
			   ELSE greatest(least(d.leaves, d.distinct_keys::bigint), 1) END
			   AS hot_leaves
	FROM demand d
), judged AS (
	SELECT s.*, v.pool,
		   e.entries_per_visit AS expected,
		   e.cost_ratio AS expected_ratio,
		   c.btree_ns, c.cachebatch_ns, c.cost_ratio,
		   (ceil(least(e.pool_fades / nullif(s.share, 0), 2e12) / 1048576)
			* 1048576)::bigint AS pool_wanted,
		   s.writes * (c.btree_ns - c.cachebatch_ns) - s.scans * 2000.0 AS gain,
		   CASE WHEN NOT s.ours THEN @extschema@.cache_batch_swap_obstacle(s.oid::regclass) END
			   AS obstacle
	FROM share s
		 CROSS JOIN server v
		 CROSS JOIN LATERAL (
			SELECT floor(least(v.pool * s.share, 4e18))::bigint AS pool,
				   CASE WHEN s.hot_leaves < s.leaves THEN 0 ELSE s.uncached END
					   AS uncached) p
		 CROSS JOIN LATERAL @extschema@.cache_batch_model(s.hot_leaves, p.pool,
			s.entry_size, v.block_size, NULL::bigint, 1, 2::double precision,
			p.uncached, NULL::double precision) e
		 CROSS JOIN LATERAL @extschema@.cache_batch_model(s.hot_leaves, p.pool,
			s.entry_size, v.block_size, NULL::bigint, 1, 2::double precision,
			p.uncached, s.measured::double precision) c
	WHERE cache_batch_advise.relation IS NULL
	   OR s.oid = cache_batch_advise.relation
	   OR s.tab_oid = cache_batch_advise.relation
	   OR s.tab_oid IN (SELECT q.relid
						FROM pg_partition_tree(cache_batch_advise.relation) q)
	   OR s.oid IN (SELECT q.relid
					FROM pg_partition_tree(cache_batch_advise.relation) q)
), said AS (
	SELECT j.*,
		   CASE
		   WHEN j.obstacle IS NOT NULL THEN j.obstacle
		   -- each row's check reads a leaf, which the model does not know
		   WHEN j.indisunique AND NOT j.ours THEN 'unique index'
		   WHEN j.ours AND j.relpersistence = 't' THEN 'temporary table'
		   WHEN j.option = 'off' THEN 'buffered is off'
		   WHEN j.option = 'auto' AND NOT j.total THEN 'comparison may fail'
		   WHEN j.bytes <= cache_batch_advise.min_size THEN 'small index'
		   WHEN j.writes < j.leaves THEN 'few writes'
		   WHEN abs(j.correlation) >= 0.95 THEN 'ascending keys'
		   WHEN j.pool = 0 THEN 'no pool'
		   WHEN j.expected_ratio > 0.9 THEN 'pool too small'
		   WHEN j.cost_ratio > 0.9 THEN 'flushed early'
		   WHEN j.gain <= 0 THEN 'many reads'
		   WHEN j.ours AND j.pool < j.pool_wanted THEN 'larger pool pays'
		   ELSE 'random keys' END AS reason
	FROM judged j
), verdict AS (
	SELECT s.*,
		   CASE
		   WHEN s.reason = 'random keys' AND NOT s.ours THEN 'swap'
		   WHEN s.ours AND s.reason IN ('no pool', 'pool too small',
			   'flushed early', 'many reads', 'larger pool pays') THEN 'tune'
		   ELSE 'keep' END AS verdict
	FROM said s
)
SELECT v.nspname, v.tab, v.idx, v.tab_oid, v.oid, v.amname, v.bytes,
	   v.writes::bigint, v.scans, v.measured, round(v.expected::numeric, 1),
	   round(v.btree_ns::numeric), round(v.cachebatch_ns::numeric),
	   round(v.cost_ratio::numeric, 2), v.pool_wanted, v.verdict,
	   CASE WHEN v.verdict = 'swap' AND v.relispartition
		   THEN 'random keys; swap ' || pg_partition_root(v.oid)::regclass
		   ELSE v.reason END,
	   CASE WHEN v.verdict = 'swap' AND NOT v.relispartition
		   THEN (SELECT string_agg(w.text || ';', E'\n' ORDER BY w.nth)
				 FROM @extschema@.cache_batch_swap(v.oid::regclass)
					  WITH ORDINALITY w (text, nth)) END
FROM verdict v
ORDER BY array_position(ARRAY['swap', 'tune', 'keep'], v.verdict), v.gain DESC,
		 v.nspname, v.idx;
END;
COMMENT ON FUNCTION @extschema@.cache_batch_advise(regclass, bigint, bigint) IS
	'one row for each btree and cachebatch index of the database, or of one table: what it costs, what it would, whether to swap it, and how; estimates';

GRANT SELECT ON @extschema@.cache_batch_stat_indexes, @extschema@.cache_batch_stat_pool,
	@extschema@.cache_batch_stat_databases, @extschema@.cache_batch_stat_buckets,
	@extschema@.cache_batch_stat_workers, @extschema@.cache_batch_stat_heat TO PUBLIC;

-- page contents show data of the table; the rest shows sizes only, and texts
-- of errors only to members of pg_read_all_stats

REVOKE ALL ON FUNCTION @extschema@.cache_batch_adopt_operator_classes(boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_verify(regclass, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_metapage(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_page(regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_page_items(regclass, bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_journal(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_bucket_list(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_ranges(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_stat_reset() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.cache_batch_verify(regclass, boolean) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION @extschema@.cache_batch_metapage(regclass) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION @extschema@.cache_batch_page(regclass, bigint) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION @extschema@.cache_batch_journal(regclass) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION @extschema@.cache_batch_bucket_list(regclass) TO pg_stat_scan_tables;
GRANT EXECUTE ON FUNCTION @extschema@.cache_batch_ranges(regclass) TO pg_stat_scan_tables;
