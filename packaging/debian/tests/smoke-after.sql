-- What the indexes answer is what the table holds; and they are whole.
SET enable_sort = off;
SET enable_bitmapscan = off;
SET max_parallel_workers_per_gather = 0;
DO $$
DECLARE
	by_table text;
	by_index text;
	plan text := '';
	line text;
BEGIN
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_indexonlyscan = off;
	SELECT count(*) || ' ' || sum(id) INTO by_table FROM smoke;
	SET LOCAL enable_indexscan = on;
	SET LOCAL enable_seqscan = off;
	FOR line IN EXPLAIN SELECT id FROM smoke ORDER BY k LOOP
		plan := plan || line;
	END LOOP;
	ASSERT plan LIKE '%Index Scan using smoke_k%', plan;
	SELECT count(*) || ' ' || sum(id) INTO by_index FROM (SELECT id FROM smoke ORDER BY k) s;
	ASSERT by_table = '101990 5253496000' AND by_index = by_table, by_table || ', ' || by_index;
	SELECT count(*) || ' ' || min(id) INTO by_index FROM smoke WHERE t = 'text 7';
	ASSERT by_index = '103 7', by_index;
END $$;
SELECT cache_batch_verify('smoke_k', true), cache_batch_verify('smoke_t', true) \g /dev/null
