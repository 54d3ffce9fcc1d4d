# Pages of merged runs are given up and used again, whatever other databases and
# slots hold; and a long query on a standby reads on beside that, where rows are
# only inserted, as beside btree.
use strict;
use warnings;

use CacheBatch;
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

# ------------------------------------------------------------ standby

my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = 0\n");

my $forced = join ' ', map { "SET enable_$_ = off;" } qw(seqscan bitmapscan sort);
my $heap = join ' ', map { "SET enable_$_ = off;" } qw(indexscan indexonlyscan bitmapscan);

# keys so long that a page of a run has few
$primary->safe_psql('postgres', q(
	CREATE TABLE rb (k text, n int);
	ALTER TABLE rb ALTER k SET STORAGE PLAIN;
	INSERT INTO rb SELECT lpad((i * 10)::text, 8, '0') || repeat(md5(i::text), 3), i FROM generate_series(1, 3000) i;
	CREATE INDEX rb_k ON rb USING cachebatch (k);
	CREATE TABLE bb (k text, n int);
	ALTER TABLE bb ALTER k SET STORAGE PLAIN;
	INSERT INTO bb SELECT * FROM rb;
	CREATE INDEX bb_k ON bb (k)));

# Inserts into both tables; what cachebatch gets becomes a run.
my $rows = 0;

sub spill_more
{
	my ($n) = @_;

	$rows++;
	my $new = "SELECT lpad((i * 17 + $rows)::text, 8, '0') || repeat(md5(i::text), 3), -i FROM generate_series(1, $n) i";
	spill('rb_k', "INSERT INTO rb $new; INSERT INTO bb $new");
	return;
}

# Merges all runs, gives up their pages, and has others use them.
sub reuse
{
	merge('rb_k') for 1 .. 2;
	is(runs('rb_k'), '0|0', 'the runs are merged, and their pages given up');
	spill_more(700);
	$primary->wait_for_catchup($standby);
	return;
}

sub conflicts
{
	return $standby->safe_psql('postgres', q(SELECT sum(confl_tablespace + confl_lock + confl_snapshot + confl_bufferpin + confl_deadlock)
		FROM pg_stat_database_conflicts));
}

spill_more(700);	# it gets buckets
$primary->wait_for_catchup($standby);

# One query each, held at a place until all of the runs that it was to read are
# given up and their pages are used again.
my @held = (
	[ 'scan-range-copied', "k > '0' ORDER BY k" ], [ 'scan-range-read', "k > '0' ORDER BY k" ],
	[ 'scan-range-read', "k < '00005' ORDER BY k DESC" ], [ 'scan-leaf-read', "k < '00005' ORDER BY k DESC" ],
	[ 'run-turn', "k > '0' ORDER BY k" ], [ 'run-turn', "k < '00005' ORDER BY k DESC" ],
	[ 'scan-range-copied', "k = lpad((200 * 17 + ROWS)::text, 8, '0') || repeat(md5('200'), 3)" ]);
my $holder = $standby->background_psql('postgres');

foreach my $held (@held)
{
	my ($point, $where) = @$held;
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);

	spill_more(400) for 1 .. 2;
	$where =~ s/ROWS/$rows/;
	my $question = "SELECT count(*), md5(string_agg(k, ',')), min(k), max(k) FROM (SELECT k FROM rb WHERE $where) s;";
	$primary->wait_for_catchup($standby);
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	my $right = $reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; $heap $question");
	$reader->query_safe("RESET ALL; $forced SET statement_timeout = '60s'; SET cache_batch.test_points = '$point=wait:1,scan-run-lost=count'");
	$reader->query_until(qr/begun/, "\\echo begun\n$question\nSHOW cache_batch.test_point_hits;\n\\echo ended\n");
	ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)),
		"a query waits at $point: $where");
	reuse();
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	my $answer = $reader->query_until(qr/ended/, '');
	like($answer, qr/^\Q$right\E$/m, 'it has the right answer');
	like($answer, qr/scan-run-lost:[1-9]/, 'though it came to pages that are no longer of its runs');
	$reader->quit;
}

# Verification has come to a range page.
spill_more(400) for 1 .. 2;
$primary->wait_for_catchup($standby);
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $verifier = $standby->background_psql('postgres', on_error_stop => 0);
$verifier->query_until(qr/begun/, q(
	SET cache_batch.test_points = 'verify-range-read=wait:1';
	\echo begun
	SELECT 'verified ' || (cache_batch_verify('rb_k', true) IS NOT NULL);
	\echo ended
));
ok($standby->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)),
	'verification waits');
reuse();
$holder->query_safe('SELECT pg_advisory_unlock(1)');
like($verifier->query_until(qr/ended/, ''), qr/^verified true$/m, 'it finds no fault in runs that have gone');
$verifier->quit;
$holder->quit;

# Long queries beside btree's.
my @readers;

foreach my $table ('rb', 'bb')
{
	foreach my $what ('SELECT left(k, 8) FROM %s ORDER BY k', 'SELECT left(k, 8), n FROM %s ORDER BY k DESC', 'SELECT n FROM %s ORDER BY k')
	{
		my $query = sprintf $what, $table;
		my $reader = $standby->background_psql('postgres', on_error_stop => 0);

		push @readers, [ $reader, $query, $reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; $heap $query") ];
		$readers[-1][3] = $reader->query_safe("RESET ALL; $forced DECLARE c CURSOR FOR $query; FETCH 10 FROM c");
	}
}
foreach my $n (1 .. 20)
{
	spill_more(300 + 50 * ($n % 4));
	merge('rb_k') if $n % 3 == 0;
	$primary->wait_for_catchup($standby);
	$_->[3] .= "\n" . $_->[0]->query_safe('FETCH 150 FROM c') foreach @readers;
	sound($standby, 'rb', ['k'], "beside long queries, round $n") if $n % 5 == 0;
}
foreach my $reader (@readers)
{
	my ($session, $query, $right, $answer) = @$reader;

	$answer .= "\n" . $session->query_safe('FETCH ALL FROM c');
	ok($answer eq $right, "long on a standby: $query");
	$session->quit;
}
is(conflicts(), 0, 'no query was ended');

# A copy of the files has later LSNs on its runs than on the pages that list them.
$primary->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE postgres STRATEGY wal_log');
$primary->wait_for_catchup($standby);
my $digest = q(SELECT count(*), md5(string_agg(k, ',')) FROM (SELECT k FROM rb WHERE k > '0' ORDER BY k) s);
is($standby->safe_psql('copied', "SET statement_timeout = '20s'; $forced $digest"), $primary->safe_psql('postgres', "$heap $digest"),
	'runs are read in a copy of the database');

# A query goes on after its standby's promotion.
spill_more(400) for 1 .. 2;
$primary->wait_for_catchup($standby);
my $lasting = $standby->background_psql('postgres', on_error_stop => 0);
my $right = $lasting->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; $heap SELECT left(k, 8) FROM rb ORDER BY k");
my $answer = $lasting->query_safe("RESET ALL; $forced DECLARE c CURSOR FOR SELECT left(k, 8) FROM rb ORDER BY k; FETCH 300 FROM c");
reuse();
$answer .= "\n" . $lasting->query_safe('FETCH 300 FROM c');
$standby->promote;
$primary->stop;
my @nodes = ($primary, $standby);
$primary = $standby;
spill_more(400) for 1 .. 2;
$answer .= "\n" . $lasting->query_safe('FETCH 300 FROM c');
merge('rb_k') for 1 .. 2;
like(runs('rb_k'), qr/^0\|[1-9]/, 'what was merged since is kept for it');
spill_more(700);
$answer .= "\n" . $lasting->query_safe('FETCH ALL FROM c');
ok($answer eq $right, 'a query has the right answer beyond promotion');
$lasting->quit;
merge('rb_k') for 1 .. 2;
is(runs('rb_k'), '0|0', 'and is kept no longer');
sound($primary, 'rb', ['k'], 'whole after promotion');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|not a valid page/, 'nothing bad in the log of ' . $_->name)
  foreach (@nodes);
done_testing();
