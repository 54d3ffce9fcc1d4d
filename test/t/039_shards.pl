# A table spread over servers: partitions of it are foreign tables, whose indexes are
# cachebatch.  What the server in front answers is what a plain table would.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $front = new_node('front');
if ($front->safe_psql('postgres',
		q(SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw')) == 0)
{
	plan skip_all => 'the server has no postgres_fdw';
}
my $shards = 3;
my @nodes = map { new_node("shard$_") } 1 .. $shards;

$front->safe_psql('postgres', q(
	CREATE EXTENSION postgres_fdw;
	CREATE TABLE events (id bigint, device int, k bigint, v text) PARTITION BY HASH (device);
	CREATE TABLE plain (LIKE events);
	CREATE INDEX plain_k ON plain (k);
	CREATE INDEX plain_device ON plain (device, k)));
foreach my $i (1 .. $shards)
{
	my $node = $nodes[$i - 1];
	my $place = sprintf(q(host '%s', port '%s', dbname 'postgres', batch_size '50'),
		$node->host, $node->port);
	my $rest = $i - 1;

	$node->safe_psql('postgres', q(
		CREATE TABLE events (id bigint, device int, k bigint, v text);
		CREATE INDEX events_k ON events USING cachebatch (k);
		CREATE INDEX events_device ON events USING cachebatch (device, k);
		CREATE INDEX events_v ON events USING cachebatch (v)));
	$front->safe_psql('postgres', qq(
		CREATE SERVER s$i FOREIGN DATA WRAPPER postgres_fdw OPTIONS ($place);
		CREATE USER MAPPING FOR CURRENT_USER SERVER s$i;
		CREATE FOREIGN TABLE events_$i PARTITION OF events
			FOR VALUES WITH (MODULUS $shards, REMAINDER $rest) SERVER s$i OPTIONS (table_name 'events')));
}

# Does the same to both tables.
sub both
{
	my ($sql) = @_;

	psql_as($front, $sql, T => $_) for ('events', 'plain');
	return;
}

sub same
{
	my ($what) = @_;
	my %answers;

	foreach my $table ('events', 'plain')
	{
		$answers{$table} = join "\n", map { psql_as($front, $_, T => $table) } (
			'SELECT count(*), sum(id), sum(k), min(v), max(v) FROM T',
			'SELECT id, k FROM T WHERE k BETWEEN 100 AND 160 ORDER BY k, id',
			'SELECT k, id FROM T WHERE device = 7 ORDER BY k DESC, id LIMIT 20',
			'SELECT id FROM T WHERE k = ANY (ARRAY[3, 500, 900, 1000000]) ORDER BY id',
			q(SELECT count(*) FROM T WHERE v LIKE 'new%'));
	}
	is($answers{events}, $answers{plain}, $what);
	return;
}

both(q(INSERT INTO T SELECT i, i % 50, hashint8(i) & 1023, 'v' || i FROM generate_series(1, 20000) i));
same('rows that were inserted');
both(q(UPDATE T SET k = k + 1, v = 'new' || id WHERE id % 3 = 0));
both(q(DELETE FROM T WHERE k < 50));
same('rows that were changed and deleted');
both(q(BEGIN; INSERT INTO T SELECT i, i % 50, 7, 'gone' FROM generate_series(1, 500) i; ROLLBACK));
both(q(BEGIN; SAVEPOINT s; INSERT INTO T VALUES (1, 1, 1, 'gone'); ROLLBACK TO s;
	INSERT INTO T VALUES (30001, 2, 2, 'kept'); COMMIT));
same('rolled back, as a whole and in part');

# the indexes of the shards answered
my %scans;
foreach my $node (@nodes)
{
	my $reply = $node->safe_psql('postgres',
		'SELECT indexrelname, idx_scan FROM pg_stat_user_indexes');

	$scans{$1} += $2 while $reply =~ /^(\w+)\|(\d+)$/mg;
}
cmp_ok($scans{$_}, '>', 0, "$_ was used") for ('events_k', 'events_device');

# a shard crashes with entries that wait, and the front goes on
both(q(INSERT INTO T SELECT i, i % 50, i % 1000, 'late' FROM generate_series(40001, 41000) i));
crash_restart($nodes[0]);
same('after a crash of a shard');
both(q(INSERT INTO T SELECT i, i % 50, i % 1000, 'more' FROM generate_series(50001, 51000) i));
same('and with what came after it');

sound($_, 'events', [qw(k device v)], $_->name) for @nodes;

done_testing();
