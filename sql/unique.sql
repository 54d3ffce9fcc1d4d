-- unique indexes: from version 18 on; before, the server ties them to btree (C7)
CREATE TABLE uq (id int, k int, v text);
CREATE UNIQUE INDEX uq_k ON uq USING cachebatch (k);
SELECT current_setting('server_version_num')::int < 180000 AS refused \gset
\if :refused
DROP TABLE uq;
\quit
\endif
INSERT INTO uq SELECT g, g, 'first' FROM generate_series(1, 1000) g;

-- a key that is there; one that comes twice in a statement; nulls
INSERT INTO uq VALUES (1, 5, 'second');
INSERT INTO uq VALUES (1, 2000, 'a'), (2, 2001, 'b'), (3, 2000, 'c');
INSERT INTO uq VALUES (1, NULL, 'a'), (2, NULL, 'b');
DO $$
DECLARE
	state text; con text; tab text;
BEGIN
	INSERT INTO uq VALUES (1, 5, 'second');
EXCEPTION WHEN unique_violation THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, con = CONSTRAINT_NAME,
		tab = TABLE_NAME;
	RAISE NOTICE 'sqlstate %, constraint %, table %', state, con, tab;
END $$;
-- a key that the same transaction deletes, updates, or takes back
BEGIN;
DELETE FROM uq WHERE k = 7;
INSERT INTO uq VALUES (7, 7, 'again');
UPDATE uq SET k = 3000 WHERE k = 8;
INSERT INTO uq VALUES (8, 8, 'again');
SAVEPOINT s;
INSERT INTO uq VALUES (9, 4000, 'back');
ROLLBACK TO s;
INSERT INTO uq VALUES (9, 4000, 'stays');
COMMIT;
SELECT * FROM uq WHERE k IN (7, 8, 3000, 4000) ORDER BY k;
-- an update meets the key of a row that it comes to later
UPDATE uq SET k = k + 1 WHERE k IN (20, 21);
UPDATE uq SET k = k + 10000 WHERE k IN (20, 21);
UPDATE uq SET v = 'same key' WHERE k = 30;
-- entries in buckets, in the tree, in both
SELECT cache_batch_flush('uq_k');
INSERT INTO uq VALUES (0, 500, 'second');
INSERT INTO uq VALUES (0, 5000, 'first');
INSERT INTO uq VALUES (0, 5000, 'second');
-- more rows than claims
INSERT INTO uq SELECT 0, g, 'more' FROM generate_series(20000, 21500) g;
INSERT INTO uq SELECT 0, g % 700 + 30000, 'more' FROM generate_series(1, 1000) g;
INSERT INTO uq SELECT 0, 31000 - g, 'more' FROM generate_series(1, 600) g;
-- COPY
COPY uq FROM stdin;
0	6000	a
0	6001	b
0	6000	c
\.
-- versions of a row whose key stays, in one statement and in many
DO $$ BEGIN FOR i IN 1 .. 50 LOOP UPDATE uq SET k = k WHERE k = 40; END LOOP; END $$;
UPDATE uq SET id = -id;
SELECT count(*), count(DISTINCT k) FROM uq WHERE k IS NOT NULL;
SELECT cache_batch_verify('uq_k', true);

-- ON CONFLICT
INSERT INTO uq VALUES (9, 5, 'x') ON CONFLICT DO NOTHING;
INSERT INTO uq VALUES (9, 5, 'up') ON CONFLICT (k) DO UPDATE SET v = excluded.v RETURNING *;
INSERT INTO uq SELECT 0, g, 'new' FROM generate_series(998, 1002) g
	ON CONFLICT (k) DO UPDATE SET v = uq.v || ' met' RETURNING k, v;
INSERT INTO uq VALUES (0, 7000, 'a'), (0, 7000, 'b') ON CONFLICT DO NOTHING RETURNING *;
INSERT INTO uq VALUES (0, 7001, 'a'), (0, 7001, 'b') ON CONFLICT (k) DO UPDATE SET v = '';
WITH w AS (INSERT INTO uq VALUES (0, 7002, 'cte') RETURNING k)
	INSERT INTO uq SELECT 0, k, 'twice' FROM w ON CONFLICT DO NOTHING RETURNING *;
INSERT INTO uq VALUES (0, 5, 'x') ON CONFLICT (id) DO NOTHING;
-- the server takes the class for btree's, so ours is not found by it
INSERT INTO uq VALUES (0, 5, 'x') ON CONFLICT (k int4_ops) DO NOTHING;
MERGE INTO uq USING (VALUES (5), (8000)) AS s (k) ON uq.k = s.k
	WHEN MATCHED THEN UPDATE SET v = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (0, s.k, 'merged');
SELECT k, v FROM uq WHERE v = 'merged' ORDER BY k;
DROP TABLE uq;

-- two unique indexes, one of them the arbiter
CREATE TABLE two (a int, b int);
CREATE UNIQUE INDEX two_a ON two USING cachebatch (a);
CREATE UNIQUE INDEX two_b ON two USING cachebatch (b);
INSERT INTO two VALUES (1, 1);
INSERT INTO two VALUES (1, 2) ON CONFLICT (a) DO NOTHING;
INSERT INTO two VALUES (2, 1) ON CONFLICT (a) DO NOTHING;
INSERT INTO two VALUES (2, 1) ON CONFLICT DO NOTHING;
INSERT INTO two VALUES (2, 2), (1, 3), (3, 3), (4, 3) ON CONFLICT DO NOTHING RETURNING *;
SELECT cache_batch_verify('two_a', true), cache_batch_verify('two_b', true);
DROP TABLE two;

-- nulls, several columns, columns that are only included, expressions, a condition
CREATE TABLE n (a int, b text, c int);
CREATE UNIQUE INDEX n_ab ON n USING cachebatch (a, b) NULLS NOT DISTINCT;
INSERT INTO n VALUES (1, NULL), (NULL, 'x'), (NULL, NULL), (1, 'x');
INSERT INTO n VALUES (1, NULL);
INSERT INTO n VALUES (NULL, NULL);
INSERT INTO n VALUES (NULL, 'x') ON CONFLICT DO NOTHING;
INSERT INTO n VALUES (NULL, NULL) ON CONFLICT (a, b) DO UPDATE SET c = 1 RETURNING *;
INSERT INTO n VALUES (2, NULL), (2, NULL);
DROP INDEX n_ab;
CREATE UNIQUE INDEX n_ab ON n USING cachebatch (a, b);
INSERT INTO n VALUES (1, NULL), (NULL, 'x'), (NULL, NULL);
INSERT INTO n VALUES (1, 'x');
TRUNCATE n;
DROP INDEX n_ab;
CREATE UNIQUE INDEX n_a ON n USING cachebatch (a) INCLUDE (c);
CREATE UNIQUE INDEX n_lower ON n USING cachebatch (lower(b));
CREATE UNIQUE INDEX n_c ON n USING cachebatch (c DESC) WHERE a > 10;
INSERT INTO n VALUES (1, 'One', 1);
INSERT INTO n VALUES (1, 'two', 2);
INSERT INTO n VALUES (2, 'ONE', 1);
INSERT INTO n VALUES (2, 'two', 1), (11, 'three', 1);
INSERT INTO n VALUES (12, 'four', 1);
INSERT INTO n VALUES (12, 'ONE', 5) ON CONFLICT (lower(b)) DO UPDATE SET b = excluded.b RETURNING *;
INSERT INTO n VALUES (12, 'four', 1) ON CONFLICT (c) WHERE a > 10 DO NOTHING;
UPDATE n SET a = 13 WHERE a = 2;
DROP TABLE n;

-- types: equal is what the operator class says, whatever hash there is
CREATE TABLE ty (n numeric, t text, p char(5), f float8, i interval, l int[], m money, d date);
CREATE UNIQUE INDEX ty_n ON ty USING cachebatch (n);
CREATE UNIQUE INDEX ty_t ON ty USING cachebatch (t);
CREATE UNIQUE INDEX ty_p ON ty USING cachebatch (p);
CREATE UNIQUE INDEX ty_f ON ty USING cachebatch (f);
CREATE UNIQUE INDEX ty_i ON ty USING cachebatch (i);
CREATE UNIQUE INDEX ty_l ON ty USING cachebatch (l);
CREATE UNIQUE INDEX ty_m ON ty USING cachebatch (m);
CREATE UNIQUE INDEX ty_dm ON ty USING cachebatch (d, m);
INSERT INTO ty (n) VALUES (1.0), (2.0), (1.00);
INSERT INTO ty (t) VALUES ('a'), ('A'), ('a');
INSERT INTO ty (p) VALUES ('a '), ('b'), ('a');
INSERT INTO ty (f) VALUES (0), (1), ('-0');
INSERT INTO ty (f) VALUES ('NaN'), ('NaN');
INSERT INTO ty (i) VALUES ('1 day'), ('24 hours');
INSERT INTO ty (l) VALUES ('{1,2}'), ('{1}'), ('{1,2}');
INSERT INTO ty (m) VALUES (1), (2), (1);
INSERT INTO ty (d, m) VALUES ('2020-01-01', 1), ('2020-01-01', 2);
INSERT INTO ty (d, m) VALUES ('2020-01-01', 3), ('2020-01-01', 1);
DROP TABLE ty;
CREATE TABLE ty (n name, b bytea, r int4range, j jsonb, z timestamptz, o bool);
CREATE UNIQUE INDEX ty_n ON ty USING cachebatch (n);
CREATE UNIQUE INDEX ty_b ON ty USING cachebatch (b);
CREATE UNIQUE INDEX ty_r ON ty USING cachebatch (r);
CREATE UNIQUE INDEX ty_j ON ty USING cachebatch (j);
CREATE UNIQUE INDEX ty_z ON ty USING cachebatch (z DESC NULLS LAST);
CREATE UNIQUE INDEX ty_o ON ty USING cachebatch (o) NULLS NOT DISTINCT;
INSERT INTO ty (n, o) VALUES ('a', true), ('b', false), ('a', NULL);
INSERT INTO ty (b, o) VALUES ('\x00', true), ('\x0000', false), ('\x00', NULL);
INSERT INTO ty (r, o) VALUES ('[1,2]', true), ('[1,4)', false), ('[1,3)', NULL);
INSERT INTO ty (j, o) VALUES ('{"a": 1}', true), ('{"a": 2}', false), ('{"a": 1.0}', NULL);
INSERT INTO ty (z, o) VALUES ('2020-01-01 00:00+0', true), ('2020-01-02', false), ('2020-01-01 01:00+1', NULL);
INSERT INTO ty (o) VALUES (true), (false), (NULL), (true);
INSERT INTO ty (o) VALUES (true), (false), (NULL), (NULL);
INSERT INTO ty (o) VALUES (true), (false), (NULL);
DROP TABLE ty;
CREATE TYPE uq_pair AS (a int, b text);
CREATE TYPE uq_mood AS ENUM ('sad', 'glad');
CREATE DOMAIN uq_word AS text CHECK (value <> '');
CREATE TABLE ty (c uq_pair, e uq_mood, w uq_word);
CREATE UNIQUE INDEX ty_c ON ty USING cachebatch (c);
CREATE UNIQUE INDEX ty_e ON ty USING cachebatch (e);
CREATE UNIQUE INDEX ty_w ON ty USING cachebatch (w);
INSERT INTO ty (c) VALUES ('(1,x)'), ('(2,x)'), ('(1,x)');
INSERT INTO ty (e) VALUES ('sad'), ('glad'), ('sad');
INSERT INTO ty (w) VALUES ('a'), ('b'), ('a');
DROP TABLE ty;
DROP TYPE uq_pair, uq_mood;
DROP DOMAIN uq_word;

-- building finds equal keys of rows that are alive, not of those that are dead
CREATE TABLE b (k int);
INSERT INTO b VALUES (1), (2), (1), (NULL), (NULL);
CREATE UNIQUE INDEX b_k ON b USING cachebatch (k);
CREATE UNIQUE INDEX CONCURRENTLY b_k ON b USING cachebatch (k);
DROP INDEX b_k;
BEGIN;
DELETE FROM b WHERE ctid = '(0,1)';
CREATE UNIQUE INDEX b_k ON b USING cachebatch (k);
SELECT cache_batch_verify('b_k', true);
COMMIT;
SELECT k FROM b WHERE k = 1;
INSERT INTO b VALUES (1);
CREATE UNIQUE INDEX b_nulls ON b USING cachebatch (k) NULLS NOT DISTINCT;
REINDEX INDEX b_k;
REINDEX INDEX CONCURRENTLY b_k;
INSERT INTO b VALUES (2);
CREATE UNLOGGED TABLE bu (k int);
CREATE UNIQUE INDEX bu_k ON bu USING cachebatch (k);
INSERT INTO bu VALUES (1), (2), (1);
CREATE TEMP TABLE bt (k int);
CREATE UNIQUE INDEX bt_k ON bt USING cachebatch (k) WITH (buffered = off);
INSERT INTO bt VALUES (1), (2), (1);

-- constraints are btree's; what else needs a unique index takes ours
ALTER TABLE b ADD UNIQUE USING INDEX b_k;
ALTER TABLE b ADD PRIMARY KEY USING INDEX b_k;
DELETE FROM b WHERE k IS NULL;
ALTER TABLE b ALTER k SET NOT NULL;
ALTER TABLE b REPLICA IDENTITY USING INDEX b_k;
CREATE TABLE child (k int REFERENCES b (k) ON UPDATE CASCADE);
INSERT INTO child VALUES (1), (2);
INSERT INTO child VALUES (3);
UPDATE b SET k = 10 WHERE k = 1;
DELETE FROM b WHERE k = 2;
SELECT * FROM child ORDER BY k;
DROP INDEX b_k;
DROP TABLE child, b, bu, bt;
CREATE TABLE src (k int, v text);
INSERT INTO src VALUES (1, 'a'), (2, 'b');
CREATE MATERIALIZED VIEW mv AS SELECT * FROM src;
CREATE UNIQUE INDEX mv_k ON mv USING cachebatch (k);
UPDATE src SET v = 'c' WHERE k = 2;
INSERT INTO src VALUES (3, 'd');
REFRESH MATERIALIZED VIEW CONCURRENTLY mv;
SELECT * FROM mv ORDER BY k;
INSERT INTO src VALUES (3, 'e');
\set SHOW_CONTEXT never
REFRESH MATERIALIZED VIEW CONCURRENTLY mv;
\set SHOW_CONTEXT errors
REFRESH MATERIALIZED VIEW mv;
DROP TABLE src CASCADE;
CREATE TABLE pt (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE pt1 PARTITION OF pt FOR VALUES FROM (0) TO (10);
CREATE UNIQUE INDEX pt_b ON pt USING cachebatch (b);
CREATE UNIQUE INDEX pt_ab ON pt USING cachebatch (a, b);
CREATE TABLE pt2 (a int, b int);
INSERT INTO pt2 VALUES (11, 1), (11, 1);
ALTER TABLE pt ATTACH PARTITION pt2 FOR VALUES FROM (10) TO (20);
DELETE FROM pt2 WHERE ctid = '(0,1)';
ALTER TABLE pt ATTACH PARTITION pt2 FOR VALUES FROM (10) TO (20);
INSERT INTO pt SELECT g, g FROM generate_series(0, 19) g;
INSERT INTO pt VALUES (3, 3);
UPDATE pt SET a = 12, b = 12 WHERE a = 3;
INSERT INTO pt VALUES (12, 12) ON CONFLICT (a, b) DO UPDATE SET b = 100 RETURNING *;
DROP TABLE pt;

-- putting one in the place of a btree
CREATE TABLE sw (id int PRIMARY KEY, k int, t text, CONSTRAINT sw_constraint UNIQUE (k, id));
CREATE UNIQUE INDEX sw_k ON sw (k DESC, (id + 1)) INCLUDE (t) NULLS NOT DISTINCT WITH (fillfactor = 74) WHERE k > 0;
CREATE UNIQUE INDEX sw_t ON sw (t);
CREATE TABLE sw_child (t text REFERENCES sw (t));
SELECT i, cache_batch_swap_obstacle(i)
FROM unnest(ARRAY['sw_k', 'sw_t', 'sw_constraint', 'sw_pkey']::regclass[]) i;
SELECT regexp_replace(cache_batch_swap('sw_k'), 'swap_\d+', 'swap_OID') AS swap;
\set ECHO none
SELECT cache_batch_swap('sw_k') \gexec
\set ECHO all
SELECT pg_get_indexdef('sw_k'::regclass);
DROP TABLE sw, sw_child;

-- the planner knows
CREATE TABLE pl (k int, v int);
INSERT INTO pl SELECT g, g FROM generate_series(1, 1000) g;
CREATE UNIQUE INDEX pl_k ON pl USING cachebatch (k);
ANALYZE pl;
EXPLAIN (COSTS OFF) SELECT a.v FROM pl a LEFT JOIN pl b ON a.v = b.k;
DROP TABLE pl;

-- a comparison that adds to the very index (C11)
CREATE TABLE rec (k int);
CREATE FUNCTION rec_cmp(int, int) RETURNS int LANGUAGE plpgsql VOLATILE AS $$
BEGIN
	IF $1 = 77 OR $2 = 77 THEN
		INSERT INTO rec VALUES (78);
	END IF;
	RETURN btint4cmp($1, $2);
END $$;
CREATE OPERATOR CLASS rec_ops FOR TYPE int USING btree AS
	OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
	FUNCTION 1 rec_cmp(int, int);
SELECT cache_batch_adopt_operator_classes();
CREATE UNIQUE INDEX rec_k ON rec USING cachebatch (k rec_ops);
INSERT INTO rec VALUES (1), (2);
\set VERBOSITY terse
INSERT INTO rec VALUES (77);
\set VERBOSITY default
INSERT INTO rec VALUES (3);
SELECT * FROM rec ORDER BY k;
DROP TABLE rec;
DROP OPERATOR FAMILY rec_ops USING btree CASCADE;
DROP FUNCTION rec_cmp;

-- what an upsert has looked for in vain may come back
CREATE TABLE back (k int, b int);
CREATE UNIQUE INDEX back_k ON back USING cachebatch (k);
CREATE UNIQUE INDEX back_b ON back (b);
INSERT INTO back VALUES (1, 1);
BEGIN;
SAVEPOINT s;
TRUNCATE back;
INSERT INTO back VALUES (5, 9);
INSERT INTO back VALUES (1, 9) ON CONFLICT DO NOTHING;
ROLLBACK TO s;
INSERT INTO back VALUES (1, 10);
ROLLBACK;
DROP TABLE back;
-- no claim has been left
SELECT count(*) FROM pg_locks WHERE locktype = 'tuple';
