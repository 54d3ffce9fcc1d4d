# Workers of VACUUM over indexes with range buffers (I4): each empties buckets and runs
# of its index before it removes anything, beside flushes and merges of others; one that
# fails leaves all to the next VACUUM.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('node', conf => <<'EOC');
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.journal_limit = 1GB
cache_batch.spill_threshold = 0
cache_batch.spill_target = 1000
min_parallel_index_scan_size = 0
max_parallel_maintenance_workers = 3
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

$node->safe_psql('postgres', q(
	CREATE TABLE v (id int, k bigint, s text, n int) WITH (autovacuum_enabled = off);
	INSERT INTO v SELECT i, hashint8extended(i, 1), md5(i::text), i % 500 FROM generate_series(1, 20000) i;
	CREATE INDEX v_k ON v USING cachebatch (k);
	CREATE INDEX v_s ON v USING cachebatch (s);
	CREATE INDEX v_n ON v USING cachebatch (n, id)));
my @indexes = indexes_of($node, 'v');
my $next = 20001;

sub insert_rows
{
	my ($n) = @_;
	my $insert = sprintf('INSERT INTO v SELECT i, hashint8extended(i, 1), md5(i::text), i %% 500 FROM generate_series(%d, %d) i;',
		$next, $next + $n - 1);

	$next += $n;
	return $insert;
}

# Runs in each index, and entries in its buckets.
sub fill
{
	my $flush = join '', map { "SELECT cache_batch_flush('$_');" } @indexes;

	$node->safe_psql('postgres', 'SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1;'
		  . join('', map { insert_rows(1500) . $flush } 1 .. 3) . insert_rows(700));
	return;
}

sub runs
{
	return $node->safe_psql('postgres', 'SELECT ' . join ', ', map { "(SELECT sum(runs) FROM cache_batch_ranges('$_'))" } @indexes);
}

sub vacuum
{
	my ($settings) = @_;
	my (undef, undef, $err) = $node->psql('postgres', "$settings VACUUM (PARALLEL 3, INDEX_CLEANUP ON, TRUNCATE OFF, VERBOSE) v",
		on_error_stop => 0);

	return $err;
}

my $by_workers = qr/launched 2 parallel vacuum workers for index vacuuming/;

foreach my $round (1 .. 3)
{
	fill();
	like(runs(), qr/^[1-9]\d*\|[1-9]\d*\|[1-9]\d*$/, "round $round: runs in each index");
	$node->safe_psql('postgres', "DELETE FROM v WHERE id % 3 = $round - 1");
	like(vacuum(''), $by_workers, 'workers remove dead rows');
	is(runs(), '0|0|0', 'runs have been merged');

	# the dead rows' TIDs are others' now
	my $size = $node->safe_psql('postgres', "SELECT pg_relation_size('v')");
	$node->safe_psql('postgres', insert_rows(2000));
	is($node->safe_psql('postgres', "SELECT pg_relation_size('v')"), $size, 'their TIDs are used again');
	sound($node, 'v', [qw(k s n)], "round $round");
}

# a worker fails, where all have merged, and where one merges
foreach my $point (qw(vacuum-merged merge-applied retire-after vacuum-counted))
{
	fill();
	$node->safe_psql('postgres', 'DELETE FROM v WHERE id % 10 = 7');
	like(vacuum("SET cache_batch.test_points = '$point=error';"), qr/error at test point "$point"/, "an error at $point");
	sound($node, 'v', [qw(k s n)], "an error at $point");
	like(vacuum(''), $by_workers, 'the next VACUUM removes the rows');
	$node->safe_psql('postgres', insert_rows(1000));
	sound($node, 'v', [qw(k s n)], 'after that');
}

# others flush and merge while the workers stand at their points
fill();
$node->safe_psql('postgres', 'DELETE FROM v WHERE id % 4 = 1');
my $holder = $node->background_psql('postgres');
my $vacuum = $node->background_psql('postgres', on_error_stop => 0);
$holder->query_safe('SELECT pg_advisory_lock(7)');
$vacuum->query_until(qr/begun/, "SET cache_batch.test_points = 'vacuum-drained=wait:7';\n\\echo begun\nVACUUM (PARALLEL 3, INDEX_CLEANUP ON, TRUNCATE OFF) v;\n");
ok($node->poll_query_until('postgres', q(SELECT count(*) >= 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)),
	'workers have emptied the buckets');
fill();
$node->safe_psql('postgres', 'DELETE FROM v WHERE id % 4 = 2; ' . join '', map { "SELECT cache_batch_flush('$_');" } @indexes);
$holder->quit;
$vacuum->quit;
sound($node, 'v', [qw(k s n)], 'beside flushes');
like(vacuum(''), $by_workers, 'and a VACUUM after them');
$node->safe_psql('postgres', insert_rows(3000));
sound($node, 'v', [qw(k s n)], 'at last');

# after a crash in the midst
fill();
$node->safe_psql('postgres', 'DELETE FROM v WHERE id % 6 = 5');
ok(run_killed($node, 'vacuum-merged=kill', 'VACUUM (PARALLEL 3, INDEX_CLEANUP ON, TRUNCATE OFF) v'), 'a kill while they work');
vacuum('');
$node->safe_psql('postgres', insert_rows(2000));
sound($node, 'v', [qw(k s n)], 'after a crash');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|inconsistent page|is corrupted/, 'nothing bad in the log');
done_testing();
