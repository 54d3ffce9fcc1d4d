-- which indexes have what levels; which of them answer as the table does, and are sound
CREATE FUNCTION pg_temp.answer(i kind_index, by_index bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text = format('SELECT string_agg(v::text, '','') || '' '' || sum(id) FROM (SELECT %1$s AS v, id FROM kind %2$s ORDER BY %1$s %3$s) s',
		i.value, i.condition, i.direction);
	plan text;
	answer text;
BEGIN
	SET LOCAL enable_bitmapscan = off;
	PERFORM set_config('enable_' || w, ((w IN ('seqscan', 'sort')) <> by_index)::text, true)
	FROM unnest(ARRAY['seqscan', 'sort', 'indexscan', 'indexonlyscan']) w;
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	IF (position(format('"%s"', i.name) IN plan) > 0) <> by_index THEN
		RAISE '%: %', i.name, plan;
	END IF;
	EXECUTE query INTO answer;
	RETURN coalesce(answer, 'nothing');
END $$;
SELECT 'levels ' || name || ' ' || (SELECT coalesce(sum(runs), 0) FROM cache_batch_ranges(name)) || ' '
	|| (SELECT count(*) FROM cache_batch_journal(name)) FROM kind_index ORDER BY name;
SELECT 'kinds ' || count(*) || ' ' || sum(id) FROM kind;
SELECT 'same ' || count(*) || ' of ' || (SELECT count(*) FROM kind_index) FROM kind_index i
WHERE pg_temp.answer(i, true) = pg_temp.answer(i, false);
SELECT 'sound ' || count(*) FROM (SELECT cache_batch_verify(name, true) FROM kind_index) s;
