# Requests that pile up while no worker serves them: when the pool is not low any
# more, those made since it was are dropped, and their buckets fill up further.
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

done_testing();
