-- Prepared transactions: what they have inserted is found once they are committed
CREATE TABLE prepared (k int, v text);
CREATE INDEX prepared_k ON prepared USING cachebatch (k);
INSERT INTO prepared SELECT i, 'x' FROM generate_series(1, 10) i;

CREATE FUNCTION prepared_rows(OUT by_index text, OUT by_table text) LANGUAGE plpgsql AS $$
BEGIN
	SET LOCAL enable_bitmapscan = off;
	SET LOCAL enable_seqscan = off;
	by_index := (SELECT string_agg(v, ' ' ORDER BY k) FROM prepared WHERE k > 0);
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	by_table := (SELECT string_agg(v, ' ' ORDER BY k) FROM prepared WHERE k > 0);
END $$;

BEGIN;
INSERT INTO prepared VALUES (1950, 'kept');
SAVEPOINT a;
INSERT INTO prepared VALUES (1951, 'lost');
ROLLBACK TO a;
INSERT INTO prepared VALUES (1952, 'kept');
PREPARE TRANSACTION 'kept';
BEGIN;
INSERT INTO prepared VALUES (1953, 'lost');
PREPARE TRANSACTION 'lost';
SELECT * FROM prepared_rows();
COMMIT PREPARED 'kept';
ROLLBACK PREPARED 'lost';
SELECT * FROM prepared_rows();
SELECT cache_batch_verify('prepared_k', true);

DROP TABLE prepared;
DROP FUNCTION prepared_rows;
