# Pages of merged runs are given up and used again, whatever other databases and
# slots hold; and a long query on a standby reads on beside that, where rows are
# only inserted, as beside btree.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', conf => <<'EOC');
wal_level = logical
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.spill_threshold = 0
cache_batch.spill_target = 1000
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);

# Flushes an index: its buckets become runs.
sub spill
{
	my ($index, $sql) = @_;

	$primary->safe_psql('postgres', "SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1; $sql; SELECT cache_batch_flush('$index')");
	return;
}

# Merges its runs, and gives up the pages of those that were merged before.
sub merge
{
	my ($index) = @_;

	$primary->safe_psql('postgres', "SELECT pg_current_xact_id(); SELECT cache_batch_flush('$index')");
	return;
}

# Runs that an index has, and those that are merged, but have their pages still.
sub runs
{
	my ($index) = @_;

	return $primary->safe_psql('postgres',
		"SELECT coalesce(sum(runs), 0), coalesce(sum(retired_runs), 0) FROM cache_batch_ranges('$index')");
}

# Spills and merges; returns what is left of the runs.
my $round = 0;

sub cycle
{
	my ($table) = @_;

	$round++;
	spill("${table}_k", "INSERT INTO $table SELECT i * 400 + $round FROM generate_series(1, 500) i");
	return 'no runs' unless runs("${table}_k") =~ /^[1-9]/;
	merge("${table}_k") for 1 .. 2;
	return runs("${table}_k");
}

sub size
{
	my ($index) = @_;

	return $primary->safe_psql('postgres', "SELECT pg_relation_size('$index')");
}

# ------------------------------------------------------------ horizons

$primary->safe_psql('postgres', 'CREATE DATABASE other');
foreach my $table ('ra', 'rc')
{
	$primary->safe_psql('postgres', qq(
		CREATE TABLE $table (k int);
		INSERT INTO $table SELECT i * 10 FROM generate_series(1, 20000) i;
		CREATE INDEX ${table}_k ON $table USING cachebatch (k)));
}
$primary->safe_psql('postgres', 'ALTER TABLE rc SET (user_catalog_table = on)');
cycle($_) foreach ('ra', 'rc');	# they get buckets
is(cycle('ra'), '0|0', 'runs are given up once they are merged');

my $old = $primary->background_psql('other');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
is(cycle('ra'), '0|0', 'also while another database has an old snapshot');
cycle('ra') for 1 .. 3;
my $size = size('ra_k');
cycle('ra') for 1 .. 3;
is(size('ra_k'), $size, 'and their pages are used again');
$old->quit;

my $own = $primary->background_psql('postgres');
$own->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
like(cycle('ra'), qr/^0\|[1-9]/, 'not while this database has one');
$own->quit;

$primary->safe_psql('postgres', q(SELECT pg_create_logical_replication_slot('stalled', 'pgoutput')));
merge('ra_k');
is(cycle('ra'), '0|0', 'a stalled slot keeps none');
like(cycle('rc'), qr/^0\|[1-9]/, 'but those of a table that logical decoding may read');
my $locker = $primary->background_psql('postgres');
$primary->safe_psql('postgres', q(SELECT pg_drop_replication_slot('stalled')));
merge('rc_k');
is(runs('rc_k'), '0|0', 'until it is dropped');

# the table's lock cannot be had: nobody waits for it, nor forgets who else is there
$old = $primary->background_psql('other');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
spill('ra_k', 'INSERT INTO ra SELECT i * 400 + 111 FROM generate_series(1, 500) i');
merge('ra_k');
$locker->query_safe('BEGIN; LOCK TABLE ra');
merge('ra_k');
like(runs('ra_k'), qr/^0\|[1-9]/, 'where the table is locked, the horizon of all databases counts');
$locker->query_safe('COMMIT');
$locker->quit;
merge('ra_k');
is(runs('ra_k'), '0|0', 'and this one\'s afterwards');
$old->quit;
sound($primary, $_, ['k'], "$_ is whole") foreach ('ra', 'rc');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|not a valid page/, 'nothing bad in the log of ' . $_->name)
  foreach ($primary);
done_testing();
