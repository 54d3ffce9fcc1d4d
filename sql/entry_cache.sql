-- The entry cache: a look-up takes what the last one for its value found, and no
-- leaf, as long as that is what the tree has.
CREATE TABLE ht (id int, k bigint) WITH (autovacuum_enabled = off);
CREATE INDEX ht_k ON ht USING cachebatch (k);
INSERT INTO ht SELECT i, i * 3 FROM generate_series(1, 20000) i;
-- gives it buckets
INSERT INTO ht VALUES (0, 1);
SELECT cache_batch_flush('ht_k');
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET jit = off;
SET plan_cache_mode = force_generic_plan;

-- the rows of a value, and of how many such look-ups read no leaf
CREATE TABLE ht_seen (hot bigint);
INSERT INTO ht_seen VALUES (0);
CREATE FUNCTION look(key bigint, OUT ids int[], OUT hot bigint) LANGUAGE plpgsql AS $$
BEGIN
	SELECT array_agg(id ORDER BY id) INTO ids FROM ht WHERE k = key;
	SELECT s.cached_reads - h.hot INTO hot FROM cache_batch_stat_indexes s, ht_seen h WHERE indexrelname = 'ht_k';
	UPDATE ht_seen h SET hot = h.hot + look.hot;
END $$;

SELECT * FROM look(300);
SELECT * FROM look(300);
SELECT * FROM look(300);
-- none, and nothing is kept of that
SELECT * FROM look(301);
SELECT * FROM look(301);

-- asked for with integers of other types
SELECT id FROM ht WHERE k = 303::int;
SELECT id FROM ht WHERE k = 303::smallint;
SELECT * FROM look(303);

-- another row with the value: in a bucket, then in the tree
INSERT INTO ht VALUES (-1, 300);
SELECT * FROM look(300);
SELECT cache_batch_flush('ht_k');
SELECT * FROM look(300);
SELECT * FROM look(300);

-- its leaf has changed, though not that value
SELECT * FROM look(330);
SELECT * FROM look(330);
INSERT INTO ht VALUES (-2, 331);
SELECT cache_batch_flush('ht_k');
SELECT * FROM look(330);
SELECT * FROM look(330);

-- a split moves it
INSERT INTO ht SELECT 100000 + i, 332 FROM generate_series(1, 3000) i;
SELECT cache_batch_flush('ht_k');
SELECT * FROM look(330);
SELECT * FROM look(330);

-- a new version of the row
SELECT * FROM look(360);
UPDATE ht SET id = -3 WHERE k = 360;
SELECT * FROM look(360);
SELECT cache_batch_flush('ht_k');
SELECT * FROM look(360);

-- one that goes, and whose place another row gets
SELECT * FROM look(390);
SELECT * FROM look(390);
DELETE FROM ht WHERE k = 390;
SELECT * FROM look(390);
VACUUM (INDEX_CLEANUP on) ht;
INSERT INTO ht SELECT 200000 + i, 1000000 + i FROM generate_series(1, 50) i;
SELECT * FROM look(390);

-- a rolled back row, and a row of this transaction
BEGIN;
INSERT INTO ht VALUES (-4, 301);
SELECT * FROM look(301);
SELECT cache_batch_flush('ht_k');
SELECT * FROM look(301);
ROLLBACK;
SELECT * FROM look(301);
SELECT * FROM look(301);

-- values of one hash
CREATE TABLE hx (id int, k text) WITH (autovacuum_enabled = off);
CREATE INDEX hx_k ON hx USING cachebatch (k);
INSERT INTO hx VALUES (1, 'a91154'), (2, 'a173620');
SELECT cache_batch_flush('hx_k');
SELECT count(DISTINCT hashtext(k)) FROM hx;
SELECT id FROM hx WHERE k = 'a91154';
SELECT id FROM hx WHERE k = 'a91154';
SELECT id FROM hx WHERE k = 'a173620';
SELECT id FROM hx WHERE k = 'a173620';
SELECT id FROM hx WHERE k = 'a91154';
SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hx_k';

-- a value that two leaves, and two buckets, can have: what is found in one of
-- them is not all
CREATE TABLE hd (id int, k bigint) WITH (autovacuum_enabled = off);
CREATE INDEX hd_k ON hd USING cachebatch (k) WITH (pack_leaves = off);
INSERT INTO hd VALUES (0, 999999);
SELECT cache_batch_flush('hd_k');
INSERT INTO hd SELECT i, CASE WHEN i <= 5000 THEN 5 ELSE i END FROM generate_series(1, 10000) i;
DELETE FROM hd WHERE k = 5::bigint AND id < 5000;
VACUUM (INDEX_CLEANUP on) hd;
SELECT id FROM hd WHERE k = 5::bigint;
SELECT id FROM hd WHERE k = 5::bigint;
INSERT INTO hd VALUES (-1, 5);
SELECT id FROM hd WHERE k = 5::bigint ORDER BY id;
SELECT cache_batch_flush('hd_k');
SELECT id FROM hd WHERE k = 5::bigint ORDER BY id;
REINDEX INDEX hd_k;
DELETE FROM hd WHERE id = -1;
VACUUM (INDEX_CLEANUP on) hd;
INSERT INTO hd VALUES (0, 999999);
SELECT cache_batch_flush('hd_k');
SELECT id FROM hd WHERE k = 5::bigint;
SELECT id FROM hd WHERE k = 5::bigint;
INSERT INTO hd SELECT 20000 + i, 20000 + i FROM generate_series(1, 6000) i;
INSERT INTO hd VALUES (-2, 5);
SELECT id FROM hd WHERE k = 5::bigint ORDER BY id;
SELECT cache_batch_flush('hd_k');
SELECT id FROM hd WHERE k = 5::bigint ORDER BY id;

-- many values, twice
SELECT count(*), sum(CASE WHEN l.ids = ARRAY[i] THEN 0 ELSE 1 END) AS wrong
FROM generate_series(10001, 13000) i, LATERAL look(i * 3) l;
SELECT count(*), sum(CASE WHEN l.ids = ARRAY[i] THEN 0 ELSE 1 END) AS wrong, sum(l.hot) > 2000 AS hot
FROM generate_series(10001, 13000) i, LATERAL look(i * 3) l;

-- index-only scans take them if the visibility map says that all see the row
CREATE TABLE hi (k bigint) WITH (autovacuum_enabled = off);
CREATE INDEX hi_k ON hi USING cachebatch (k);
INSERT INTO hi VALUES (0);
SELECT cache_batch_flush('hi_k');
INSERT INTO hi SELECT i FROM generate_series(1, 100) i;
SELECT cache_batch_flush('hi_k');
EXPLAIN (COSTS OFF) SELECT k FROM hi WHERE k = 7::bigint;
SELECT k FROM hi WHERE k = 7::bigint;
SELECT k FROM hi WHERE k = 7::bigint;
SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hi_k';
VACUUM hi;
SELECT k FROM hi WHERE k = 7::bigint;
SELECT k FROM hi WHERE k = ANY ('{5, 7, 9}');
SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hi_k';
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT k FROM hi WHERE k = 7::bigint;
COMMIT;
SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hi_k';
BEGIN;
DELETE FROM hi WHERE k = ANY ('{7}') AND ctid = '(0,8)';
SELECT k FROM hi WHERE k = 7::bigint;
ROLLBACK;
SELECT k FROM hi WHERE k = 7::bigint;
-- others of the value need not
SELECT id FROM ht WHERE k = ANY ('{30303, 30306, 5, 30309}') ORDER BY k;
SELECT id FROM ht WHERE k BETWEEN 30303 AND 30309 ORDER BY k;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM ht WHERE k = 30303::bigint;
FETCH c;
FETCH c;
FETCH BACKWARD c;
FETCH BACKWARD c;
FETCH c;
COMMIT;

-- a value of two columns: both have to be asked for
CREATE TABLE hm (id int, a int, b text, c numeric) WITH (autovacuum_enabled = off);
CREATE INDEX hm_ab ON hm USING cachebatch (a, b) INCLUDE (c);
INSERT INTO hm SELECT i, i % 3, 'b' || i, i FROM generate_series(1, 3000) i;
INSERT INTO hm VALUES (-1, 7, 'a91154', 0), (-2, 7, 'a173620', 0), (-3, 7, NULL, 0), (-4, 8, 'x', 0), (-5, 8, 'x', 0);
SELECT cache_batch_flush('hm_ab');
CREATE TABLE hm_seen (hot bigint);
INSERT INTO hm_seen VALUES (0);
CREATE FUNCTION pair(x int, y text, OUT ids int[], OUT hot bigint) LANGUAGE plpgsql AS $$
BEGIN
	SELECT array_agg(id ORDER BY id) INTO ids FROM hm WHERE a = x AND b = y;
	SELECT s.cached_reads - h.hot INTO hot FROM cache_batch_stat_indexes s, hm_seen h WHERE indexrelname = 'hm_ab';
	UPDATE hm_seen h SET hot = h.hot + pair.hot;
END $$;
SELECT * FROM pair(1, 'b100');
SELECT * FROM pair(1, 'b100');
SELECT * FROM pair(2, 'b100');
SELECT * FROM pair(1, 'b101');
SELECT c FROM hm WHERE a = 1::bigint AND b = 'b100';
SELECT id FROM hm WHERE a = ANY ('{0, 1, 2}') AND b = 'b100';
SELECT * FROM pair(1, 'b100');
-- parts of it, and more than equality
SELECT count(*) FROM hm WHERE a = 1;
SELECT count(*) FROM hm WHERE a = 1 AND b >= 'b100' AND b < 'b103';
SELECT count(*) FROM hm WHERE a = 1 AND b = 'b100' AND b > 'b';
SELECT id FROM hm WHERE a = 7 ORDER BY b;
SELECT id FROM hm WHERE a = 7 AND b IS NULL;
SELECT id FROM hm WHERE a = 1 AND b = ANY ('{b100, b103}') ORDER BY id;
SELECT id FROM hm WHERE a = 1 AND b = 'b100' AND b = ANY ('{b100, b103}');
SELECT id FROM hm WHERE a = 1 AND b = 'b100' AND b = 'b103';
SELECT count(*) FROM hm WHERE a = 7 AND b IS NOT NULL;
-- values of one hash
SELECT * FROM pair(7, 'a91154');
SELECT * FROM pair(7, 'a173620');
SELECT * FROM pair(7, 'a91154');
-- two rows of a value, and one more of another
SELECT * FROM pair(8, 'x');
SELECT * FROM pair(8, 'x');
INSERT INTO hm VALUES (-6, 1, 'b100');
SELECT * FROM pair(1, 'b100');
SELECT cache_batch_flush('hm_ab');
SELECT * FROM pair(1, 'b100');
SELECT count(*), sum(CASE WHEN p.ids = ARRAY[i] THEN 0 ELSE 1 END) AS wrong
FROM generate_series(1001, 2000) i, LATERAL pair(i % 3, 'b' || i) p;
SELECT count(*), sum(CASE WHEN p.ids = ARRAY[i] THEN 0 ELSE 1 END) AS wrong, sum(p.hot) > 500 AS hot
FROM generate_series(1001, 2000) i, LATERAL pair(i % 3, 'b' || i) p;
-- equal values that look otherwise
CREATE TABLE hq (id int, a int, n numeric) WITH (autovacuum_enabled = off);
CREATE INDEX hq_an ON hq USING cachebatch (a, n);
INSERT INTO hq VALUES (1, 1, 1.0), (2, 1, 2.0), (3, 1, 2.00);
SELECT cache_batch_flush('hq_an');
SELECT id FROM hq WHERE a = 1 AND n = 1.000;
SELECT id FROM hq WHERE a = 1 AND n = 1.000;
SELECT id FROM hq WHERE a = 1 AND n = 1;
SELECT id FROM hq WHERE a = 1 AND n = 2.0 ORDER BY id;
SELECT id FROM hq WHERE a = 1 AND n = 2.0 ORDER BY id;
SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hq_an';
-- columns in other orders, and a cursor that turns round
CREATE TABLE ho (id int, a int, n text) WITH (autovacuum_enabled = off);
CREATE INDEX ho_an ON ho USING cachebatch (a DESC, n DESC NULLS LAST);
INSERT INTO ho SELECT i, i % 3, 'n' || i FROM generate_series(1, 300) i;
INSERT INTO ho VALUES (-1, 1, NULL);
SELECT cache_batch_flush('ho_an');
SELECT id FROM ho WHERE a = 1 AND n = 'n100';
SELECT id FROM ho WHERE a = 1 AND n = 'n100';
SELECT id FROM ho WHERE a = ANY ('{0, 1, 2}') AND n = 'n100';
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM ho WHERE a = ANY ('{0, 1, 2}') AND n = 'n100';
FETCH ALL c;
FETCH BACKWARD ALL c;
FETCH c;
COMMIT;
SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'ho_an';

-- two zeros are one number, and what is not a number is itself
CREATE TABLE hf (id int, k float8) WITH (autovacuum_enabled = off);
CREATE INDEX hf_k ON hf USING cachebatch (k);
INSERT INTO hf VALUES (1, '-0'), (2, 'NaN'), (3, 1.5);
SELECT cache_batch_flush('hf_k');
SELECT id FROM hf WHERE k = 0;
SELECT id FROM hf WHERE k = '-0';
SELECT id FROM hf WHERE k = 0;
INSERT INTO hf VALUES (4, 0);
SELECT cache_batch_flush('hf_k');
SELECT id FROM hf WHERE k = '-0' ORDER BY id;
SELECT id FROM hf WHERE k = 'NaN';
SELECT id FROM hf WHERE k = 'NaN';

-- an index that is emptied in its file, and filled anew
SELECT * FROM look(30303);
SELECT * FROM look(30303);
TRUNCATE ht;
SELECT * FROM look(30303);
INSERT INTO ht SELECT i, 7 FROM generate_series(1, 300) i;
SELECT cache_batch_flush('ht_k');
SELECT * FROM look(30303);
REINDEX INDEX ht_k;
SELECT ids[1] FROM look(7);
-- a file that is this transaction's own has no cached entries: it is emptied in place
BEGIN;
CREATE TABLE hn (id int, k bigint);
CREATE INDEX hn_k ON hn USING cachebatch (k);
INSERT INTO hn VALUES (1, 7);
SELECT cache_batch_flush('hn_k');
SELECT id FROM hn WHERE k = 7;
SELECT id FROM hn WHERE k = 7;
SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hn_k';
TRUNCATE hn;
INSERT INTO hn VALUES (2, 8), (3, 7);
SELECT cache_batch_flush('hn_k');
SELECT id FROM hn WHERE k = 7;
SELECT id FROM hn WHERE k = 7;
TRUNCATE hn;
SELECT id FROM hn WHERE k = 7;
COMMIT;

-- what is dead to everyone is looked up no more than twice: the leaf's entry is
-- marked, and not kept again
CREATE TABLE hk (id int, k bigint) WITH (autovacuum_enabled = off);
CREATE INDEX hk_k ON hk USING cachebatch (k);
INSERT INTO hk VALUES (1, 7);
SELECT cache_batch_flush('hk_k');
SELECT id FROM hk WHERE k = 7;
DELETE FROM hk;
SELECT id FROM hk WHERE k = 7;
SELECT id FROM hk WHERE k = 7;
SELECT id FROM hk WHERE k = 7;
SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hk_k';

SELECT cache_batch_verify('ht_k', true), cache_batch_verify('hf_k', true),
	cache_batch_verify('hm_ab', true), cache_batch_verify('ho_an', true);
DROP FUNCTION look;
DROP TABLE ht, ht_seen, hf, hn, hk, hx, hd;
