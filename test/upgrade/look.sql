-- what lies above the tree, what indexes and table say, what verification says
SELECT 'runs ' || sum(runs) FROM cache_batch_ranges('up_k');
SELECT 'journal ' || count(*) FROM cache_batch_journal('up_k');
SELECT 'table ' || count(*) || ' ' || sum(id) FROM up;
SELECT 'linked ' || count(*) FROM pg_depend d JOIN pg_opclass o ON o.oid = d.objid
WHERE d.classid = 'pg_opclass'::regclass AND d.refclassid = d.classid AND o.opcname = 'up_reverse_ops';
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_sort = off;
SELECT 'up_k ' || count(*) || ' ' || sum(id) FROM (SELECT id FROM up WHERE k IS NOT NULL ORDER BY k) s;
SELECT 'up_t ' || count(*) || ' ' || sum(id) FROM (SELECT id FROM up WHERE t ~>=~ '' ORDER BY t USING ~<~, d DESC NULLS LAST) s;
SELECT 'up_d ' || count(*) || ' ' || sum(id) FROM (SELECT id FROM up WHERE id % 2 = 0 ORDER BY d) s;
SELECT 'one ' || id FROM up WHERE k = hashint8extended(60003, 1);
SET enable_indexscan = off;
SET enable_bitmapscan = on;
SELECT 'bitmap ' || count(*) FROM up WHERE k < 0;
SELECT 'sound ' || count(*) FROM (SELECT cache_batch_verify(c.oid, true) FROM pg_class c WHERE relname IN ('up_k', 'up_t', 'up_d', 'up_r')) s;
