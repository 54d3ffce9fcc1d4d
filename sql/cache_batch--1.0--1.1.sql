/* cache_batch: what version 1.1 adds to the objects of 1.0 */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "ALTER EXTENSION cache_batch UPDATE TO '1.1'" to load this file. \quit

-- names are bound as in the script of 1.0
SET LOCAL search_path TO pg_catalog, pg_temp;

-- statistics

CREATE FUNCTION @extschema@.cache_batch_stat_reset(index regclass) RETURNS void
AS 'MODULE_PATHNAME', 'cache_batch_stat_reset_index' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_stat_reset(regclass) IS
	'resets the counters of one cachebatch index';

CREATE FUNCTION @extschema@.cache_batch_stat_get_progress(
	OUT pid integer,
	OUT datid oid,
	OUT relid oid,
	OUT indexrelid oid,
	OUT command text,
	OUT phase text,
	OUT done bigint,
	OUT total bigint,
	OUT unit text,
	OUT started_at timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;

CREATE FUNCTION @extschema@.cache_batch_last_scans(
	OUT number integer,
	OUT index regclass,
	OUT windows bigint,
	OUT leaves_read bigint,
	OUT cached bigint,
	OUT from_leaves bigint,
	OUT from_runs bigint,
	OUT from_buckets bigint,
	OUT from_journal bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_last_scans() IS
	'what this session''s last scans of cachebatch indexes took from each tier, the last one first';

CREATE FUNCTION @extschema@.cache_batch_key_filters(
	OUT index regclass,
	OUT state text,
	OUT bytes bigint,
	OUT keys bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_key_filters() IS
	'filters that tell for unique indexes of this database which keys are not there, and about how many keys they have';

CREATE FUNCTION @extschema@.cache_batch_tiles(index regclass,
	OUT "position" integer,
	OUT block bigint,
	OUT tiles integer,
	OUT runs integer,
	OUT entries bigint,
	OUT pages integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME' LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION @extschema@.cache_batch_tiles(regclass) IS
	'the tile pages of an index''s range buffers in the order of their keys: what waits in tiles for the tree; none if it has never had any';

CREATE VIEW @extschema@.cache_batch_stat_progress AS
SELECT p.pid,
	   p.datid,
	   d.datname,
	   p.relid,
	   p.indexrelid,
	   i.relname AS indexrelname,
	   p.command,
	   p.phase,
	   p.done,
	   p.total,
	   p.unit,
	   p.started_at
FROM @extschema@.cache_batch_stat_get_progress() p
	 LEFT JOIN pg_database d ON d.oid = p.datid
	 LEFT JOIN pg_class i ON i.oid = p.indexrelid
		AND d.datname = current_database();
COMMENT ON VIEW @extschema@.cache_batch_stat_progress IS
	'one row for each process that flushes, vacuums, packs, reads or checks a cachebatch index at present: how far it has come';

-- rights

GRANT SELECT ON @extschema@.cache_batch_stat_progress TO PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_stat_reset(regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION @extschema@.cache_batch_tiles(regclass) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION @extschema@.cache_batch_tiles(regclass) TO pg_stat_scan_tables;
