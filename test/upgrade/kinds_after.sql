-- the indexes take more
SELECT kind_fill(4001, 4100);
UPDATE kind SET i8 = i8 + 1, s = s || '!' WHERE id % 20 = 5;
DELETE FROM kind WHERE id % 50 = 6;
SELECT count(cache_batch_flush(name)) FROM kind_index;
VACUUM (INDEX_CLEANUP ON) kind;
SELECT kind_fill(5001, 5040);
