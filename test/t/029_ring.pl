# A worker that brings a batch to most leaves of an index larger than
# shared_buffers leaves there what sessions read.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('ring', conf => <<'EOC');
shared_buffers = 16MB
cache_batch.pool_size = 64MB
cache_batch.journal_limit = 262144
cache_batch.max_workers = 1
cache_batch.max_delay = 500ms
cache_batch.spill_threshold = off
max_wal_size = 2GB
EOC
my $rows = q(SELECT i, (SELECT string_agg(md5(i::text || j), '') FROM generate_series(1, 5) j)
	FROM generate_series(%d, %d) i);
$node->safe_psql('postgres', sprintf(q(
	CREATE TABLE t (id int, k text);
	ALTER TABLE t ALTER k SET STORAGE PLAIN;
	INSERT INTO t %s;
	CREATE INDEX t_k ON t USING cachebatch (k);
	CREATE TABLE quiet AS SELECT i FROM generate_series(1, 90000) i;
	VACUUM ANALYZE), sprintf($rows, 1, 120000)));
$node->restart;
cmp_ok($node->safe_psql('postgres', q(SELECT pg_relation_size('t_k') / 8192)), '>', 2048,
	'the index is larger than shared_buffers');

# How many pages of the other table had to be read.
sub read_quiet
{
	my $plan = $node->safe_psql('postgres',
		'EXPLAIN (ANALYZE, BUFFERS) SELECT count(*) FROM quiet');

	return $plan =~ /Seq Scan[^\n]*\n\s+Buffers:[^\n]* read=(\d+)/ ? $1 : 0;
}

# Not more rows than a bucket takes: nobody but the worker goes to the leaves.
sub insert_some
{
	my ($first) = @_;

	$node->safe_psql('postgres', 'INSERT INTO t ' . sprintf($rows, $first, $first + 1499));
	$node->poll_query_until('postgres',
		q(SELECT chunks_free = chunks FROM cache_batch_stat_pool))
	  or die 'the worker does not come to an end';
	return;
}

insert_some(120001);
cmp_ok(read_quiet(), '>', 300, 'the other table is read');
is(read_quiet(), 0, 'and stays in memory');
insert_some(120001 + 1500 * $_) foreach (1 .. 3);
is($node->safe_psql('postgres', q(
	SELECT flushes_help = 0 AND leaf_visits > 4000 FROM cache_batch_stat_indexes
	WHERE indexrelid = 't_k'::regclass)), 't', 'the worker went to many leaves');

my $evicted = read_quiet();
note("read again $evicted");
cmp_ok($evicted, '<', 60, 'little of the other table had to be read again');
sound($node, 't', ['k'], 'whole after all');

done_testing();
