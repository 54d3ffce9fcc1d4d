# Requests that pile up while no worker serves them: when the pool is not low any
# more, those made since it was are dropped, and their buckets fill up further.
# Single rows ask for the bucket that keeps too long a journal's tail back.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('requests', conf => <<'EOC');
cache_batch.pool_size = 2MB
cache_batch.journal_limit = 65536
cache_batch.max_workers = 1
cache_batch.max_delay = 1h
cache_batch.spill_threshold = off
max_wal_size = 2GB
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

$node->safe_psql('postgres', q(
	CREATE TABLE t (id int, k int);
	INSERT INTO t SELECT i, hashint4(i) FROM generate_series(1, 500000) i;
	CREATE INDEX t_k ON t USING cachebatch (k);
	VACUUM ANALYZE t;
	ALTER DATABASE postgres SET cache_batch.test_points = 'worker-flush=wait:1'));

my $free = q(SELECT chunks_free::float / chunks FROM cache_batch_stat_pool);
my $idle = q(SELECT count(*) = 0 FROM cache_batch_stat_workers WHERE state <> 'idle');

# Rows that come some at a time, until little of the pool is left.
sub fill_pool
{
	$node->safe_psql('postgres', q(
		SET cache_batch.test_points = '';
		DO $$
		DECLARE
			n int := (SELECT max(id) FROM t);
		BEGIN
			WHILE (SELECT chunks_free > chunks / 20 FROM cache_batch_stat_pool) LOOP
				INSERT INTO t SELECT i, hashint4(i) FROM generate_series(n + 1, n + 20) i;
				COMMIT;
				n := n + 20;
			END LOOP;
		END $$));
	return;
}

my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
fill_pool();
cmp_ok($node->safe_psql('postgres', $free), '<', 0.06, 'the pool is full');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$node->poll_query_until('postgres', $idle) or die 'a worker does not rest';

my $left = $node->safe_psql('postgres', $free);
note("free $left");
cmp_ok($left, '>=', 0.12, 'workers make room');
cmp_ok($left, '<', 0.3, 'and no more than that');
$holder->quit;
sound($node, 't', ['k'], 'whole after all');

# ---------- too long a journal, of single rows ----------

# one entry keeps the tail back, in a bucket that no other comes to
$node->adjust_conf('postgresql.conf', 'cache_batch.journal_limit', '64');
$node->restart;
$node->safe_psql('postgres', q(
	ALTER DATABASE postgres RESET cache_batch.test_points;
	CREATE TABLE l (id int, k int);
	INSERT INTO l SELECT i, hashint4(i) FROM generate_series(1, 200000) i;
	CREATE INDEX l_k ON l USING cachebatch (k);
	INSERT INTO l VALUES (0, -2147483648)));
$node->safe_psql('postgres', q(
	DO $$ BEGIN
		FOR i IN 200001 .. 216000 LOOP
			INSERT INTO l VALUES (i, hashint4(i) & 2147483647);
			COMMIT;
		END LOOP;
	END $$));
ok($node->poll_query_until('postgres', q(SELECT flushes_limit > 0 AND journal_bytes < 220000
	FROM cache_batch_stat_indexes JOIN cache_batch_stat_buckets USING (indexrelid)
	WHERE indexrelid = 'l_k'::regclass)), 'what keeps the tail back is flushed')
	or diag($node->safe_psql('postgres', q(SELECT * FROM cache_batch_stat_indexes JOIN
		cache_batch_stat_buckets USING (indexrelid) WHERE indexrelid = 'l_k'::regclass)));
sound($node, 'l', ['k'], 'whole after that');

done_testing();
