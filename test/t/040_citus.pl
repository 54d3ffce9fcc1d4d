# Citus: shards whose indexes are cachebatch, on two workers.  Skipped unless the
# server has Citus: test/all --pg-config P --only tap:040_citus, where P is of one
# that has.
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $share = `pg_config --sharedir`;
chomp $share;
if (!-e "$share/extension/citus.control")
{
	plan skip_all => 'the server has no Citus';
}

my $conf = <<EOC;
shared_preload_libraries = 'citus, cache_batch'
citus.local_hostname = '$PostgreSQL::Test::Cluster::test_pghost'
wal_level = logical
citus.enable_statistics_collection = off
EOC
my ($front, @workers) = map { new_node($_, conf => $conf, no_extension => 1) }
  ('front', 'worker1', 'worker2');

$_->safe_psql('postgres', 'CREATE EXTENSION citus') for ($front, @workers);
$front->safe_psql('postgres', sprintf(q(SELECT citus_set_coordinator_host('%s', %s)),
	$front->host, $front->port));
$front->safe_psql('postgres', sprintf(q(SELECT citus_add_node('%s', %s)), $_->host, $_->port))
  for @workers;
$front->safe_psql('postgres', q(
	CREATE EXTENSION cache_batch;
	SET citus.shard_count = 8;
	CREATE TABLE events (device int, id bigint, k bigint, v text, PRIMARY KEY (device, id));
	SELECT create_distributed_table('events', 'device');
	CREATE TABLE kinds (id int, name text);
	SELECT create_reference_table('kinds');
	CREATE TABLE plain (LIKE events INCLUDING INDEXES);
	CREATE TABLE plain_kinds (LIKE kinds);
	CREATE INDEX events_k ON events USING cachebatch (k);
	CREATE INDEX events_v ON events USING cachebatch (v, k);
	CREATE INDEX kinds_name ON kinds USING cachebatch (name);
	CREATE INDEX plain_k ON plain (k)));

my @names = ({ T => 'events', R => 'kinds' }, { T => 'plain', R => 'plain_kinds' });

# Does the same to the distributed tables and to plain ones.
sub both
{
	my ($sql) = @_;

	psql_as($front, $sql, %$_) for @names;
	return;
}

sub same
{
	my ($what) = @_;
	my @answers;

	foreach my $names (@names)
	{
		push @answers, join "\n", map { psql_as($front, $_, %$names) } (
			'SELECT count(*), sum(id), sum(k), min(v), max(v) FROM T',
			'SELECT id, k FROM T WHERE k BETWEEN 100 AND 160 ORDER BY k, id',
			'SELECT id FROM T WHERE k = ANY (ARRAY[3, 500, 900, 1000000]) ORDER BY id',
			q(SELECT count(*) FROM T WHERE v = 'v77'),
			q(SELECT r.name, count(*) FROM T t JOIN R r ON r.id = t.k WHERE r.name < 'n5' GROUP BY 1 ORDER BY 1));
	}
	is($answers[0], $answers[1], $what);
	return;
}

# All indexes of all shards hold what their tables do.
sub verified
{
	my ($what) = @_;
	my @faults;

	foreach my $node (@workers)
	{
		my ($rc, $out, $err) = $node->psql('postgres', q(
			SET citus.override_table_visibility = off;
			SELECT c.relname, cache_batch_verify(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
			WHERE a.amname = 'cachebatch' AND c.relkind = 'i'), on_error_stop => 1);
		push @faults, $err if $rc != 0;
		push @faults, 'no shard: ' . $node->name unless $out =~ /^events_k_\d+\|/m;
	}
	is("@faults", '', $what);
	return;
}

both(q(INSERT INTO T SELECT i % 50, i, hashint8(i) & 1023, 'v' || i % 1000 FROM generate_series(1, 20000) i));
both(q(INSERT INTO R SELECT i, 'n' || i FROM generate_series(1, 1000) i));
same('rows that were inserted');
both(q(INSERT INTO T SELECT i % 50, i, 1, 'twice' FROM generate_series(19901, 20100) i
	ON CONFLICT (device, id) DO UPDATE SET k = EXCLUDED.k, v = 'updated'));
both(q(UPDATE T SET k = k + 1 WHERE id % 3 = 0));
both(q(DELETE FROM T WHERE k < 50));
both(q(BEGIN; INSERT INTO T SELECT i % 50, i, 7, 'gone' FROM generate_series(90001, 90500) i; ROLLBACK));
same('upserts, changes, deletions, a rollback');
$front->safe_psql('postgres', 'CREATE INDEX CONCURRENTLY events_kv ON events USING cachebatch (k, v)');
same('an index that was made concurrently');

# a shard moves while rows come
my $rows = IPC::Run::start(
	[ 'psql', '-XAtq', '-d', $front->connstr('postgres'), '-c',
		q(DO $$ BEGIN FOR n IN 1 .. 200 LOOP
			INSERT INTO events SELECT i % 50, 100000 + 50 * n + i, i, 'late' FROM generate_series(1, 50) i;
			COMMIT; END LOOP; END $$) ],
	'>', \my $out, '2>', \my $err);
my $moved = $front->safe_psql('postgres', sprintf(q(
	SELECT citus_move_shard_placement(shardid, '%s', %d, '%s', %d, 'force_logical')
	FROM citus_shards WHERE table_name = 'events'::regclass AND nodeport = %d ORDER BY shardid LIMIT 1),
	$workers[0]->host, $workers[0]->port, $workers[1]->host, $workers[1]->port, $workers[0]->port));
$rows->finish;
is($err, '', 'rows come while a shard moves');
$front->safe_psql('postgres', q(
	INSERT INTO plain SELECT i % 50, 100000 + 50 * n + i, i, 'late'
	FROM generate_series(1, 200) n, generate_series(1, 50) i));
same('after a shard has moved');
crash_restart($workers[1]);
same('after a crash of a worker');
verified('indexes of all shards');

done_testing();
