-- A table with two indexes: built, filled in batches and row by row, thinned out,
-- vacuumed, checked.
CREATE EXTENSION cache_batch;
CREATE TABLE smoke (id int, k bigint, t text);
INSERT INTO smoke SELECT i, hashint8extended(i, 1), 'text ' || i % 1000
FROM generate_series(1, 50000) i;
CREATE INDEX smoke_k ON smoke USING cachebatch (k);
CREATE INDEX smoke_t ON smoke USING cachebatch (t, id DESC);
DO $$
BEGIN
	FOR batch IN 0..9 LOOP
		INSERT INTO smoke SELECT i, hashint8extended(i, 1), 'text ' || i % 1000
		FROM generate_series(50001 + batch * 5000, 55000 + batch * 5000) i;
		COMMIT;
	END LOOP;
	FOR i IN 100001..101000 LOOP
		INSERT INTO smoke VALUES (i, hashint8extended(i, 1), 'text ' || i % 1000);
	END LOOP;
END $$;
DELETE FROM smoke WHERE id % 100 = 0;
VACUUM ANALYZE smoke;
INSERT INTO smoke SELECT i, hashint8extended(i, 1), 'text ' || i % 1000
FROM generate_series(101001, 103000) i;
