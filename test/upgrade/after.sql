-- the new server goes on with the old one's indexes
SELECT cache_batch_adopt_operator_classes() >= 0;
SELECT up_fill(70001, 70040);
UPDATE up SET d = d + 1 WHERE id % 100 = 3;
DELETE FROM up WHERE id % 1000 = 8;
VACUUM (INDEX_CLEANUP ON) up;
SELECT cache_batch_flush('up_k');
SELECT up_fill(80001, 80040);
REINDEX INDEX up_d;
