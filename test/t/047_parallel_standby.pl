# Parallel scans on a standby while entries wait (I14, I11): processes that read the
# journal by themselves, with and without room; the shared copy, which a leader or a
# worker extends; a tail that moves, and a promotion, while one has the turn.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', conf => <<'EOC');
cache_batch.max_delay = 1h
cache_batch.journal_limit = 1GB
cache_batch.pool_size = 64MB
cache_batch.spill_threshold = off
cache_batch.max_workers = 0
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);
my $standby = new_standby($primary, 'standby');

$primary->safe_psql('postgres', q(
	CREATE TABLE p (id bigint, k bigint, s text) WITH (autovacuum_enabled = off, parallel_workers = 2);
	INSERT INTO p SELECT i, hashint8extended(i, 1) % 100000, md5((i % 3000)::text) FROM generate_series(1, 20000) i;
	CREATE INDEX p_k ON p USING cachebatch (k);
	CREATE INDEX p_s ON p USING cachebatch (s, k);
	ANALYZE p));

my $next = 20001;

# n rows whose entries wait: 100 in a statement, so that they are no dense batch.  A
# third of them lies close together: there a window ends before its leaf does.
sub insert_rows
{
	my ($n) = @_;
	my @statements;

	for (1 .. $n / 100)
	{
		push @statements, sprintf(q(
			INSERT INTO p SELECT i, CASE WHEN i %% 3 = 0 THEN 500 + i %% 7 ELSE hashint8extended(i, 1) %% 100000 END, md5((i %% 3000)::text)
			FROM generate_series(%d, %d) i;), $next, $next + 99);
		$next += 100;
	}
	$primary->safe_psql('postgres', join '', @statements);
	$primary->wait_for_catchup($standby);
	return;
}

my $forced = join ' ', 'SET jit = off;', (map { "SET enable_$_ = off;" } qw(seqscan bitmapscan sort hashjoin mergejoin memoize)),
	'SET min_parallel_table_scan_size = 0; SET min_parallel_index_scan_size = 0; SET parallel_setup_cost = 0;',
	'SET parallel_tuple_cost = 0; SET cpu_tuple_cost = 1; SET max_parallel_workers_per_gather = 2;';
my $plain = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0;';
# no bound is near an end of the histogram, where the planner of 18 would scan the index
my @leaders = map { "SET parallel_leader_participation = $_;" } qw(off on);
my @queries = (
	q(SELECT count(*), sum(id), sum(k) FROM p WHERE k > -90000),
	q(SELECT count(*), sum(k) FROM p WHERE k > -90000),
	q(SELECT count(*), sum(id), sum(k) FROM p WHERE k = ANY (ARRAY(SELECT i FROM generate_series(400, 600) i))),
	q(SELECT md5(string_agg(s || k, ',')) FROM (SELECT s, k FROM p WHERE s > '3' ORDER BY s DESC, k DESC) o),
	q(SELECT count(*), sum(id) FROM p WHERE s = ANY (ARRAY(SELECT md5(i::text) FROM generate_series(0, 900) i))),
	q(SELECT count(*), sum(n) FROM generate_series(1, 3) g (i) LEFT JOIN (SELECT count(*) AS n FROM p WHERE k > 400) o ON true));

# What its index tells of each, in parallel, is what the table tells; with and without
# the leader's help.
sub answers
{
	my ($node, $what, $more) = @_;
	my $want = $node->safe_psql('postgres', "$plain " . join ';', @queries);

	is($node->safe_psql('postgres', "$forced $_ $more " . join ';', @queries), $want, "$what: answers, $_")
	  foreach @leaders;
	return;
}

# The query's plan as it ran.
sub ran
{
	my ($node, $settings, $query) = @_;

	return $node->safe_psql('postgres',
		"$forced $settings EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) $query");
}

sub copied
{
	return $standby->safe_psql('postgres', "SELECT coalesce(sum(copied_entries), 0) FROM cache_batch_stat_buckets WHERE indexrelname = 'p_k'");
}

# ---------- by themselves, and a copy ----------

insert_rows(12000);
my $plan = ran($standby, $leaders[0], $queries[0]);
like($plan, qr/Workers Launched: 2.*Parallel Index Scan using p_k/s, 'two workers scan the index');
like(ran($standby, $leaders[0], $queries[1]), qr/Workers Launched: 2.*Parallel Index Only Scan using p_k/s, 'or the index only');
is(copied(), 0, 'workers alone make no shared copy');
is($standby->safe_psql('postgres', "$forced $leaders[0] SET work_mem = '64kB'; $queries[$_]"),
	$standby->safe_psql('postgres', "$plain $queries[$_]"), "in pieces: query $_") foreach 0 .. 2;
is(copied(), 0, 'nor do they in pieces');
answers($standby, 'the copy is made', '');
cmp_ok(copied(), '>', 10000, 'a leader makes it');
answers($standby, 'the copy is there', '');

foreach my $n (1 .. 3)
{
	my $before = copied();

	insert_rows(4000);
	is($standby->safe_psql('postgres', "$forced $leaders[0] $queries[0]"),
		$standby->safe_psql('postgres', "$plain $queries[0]"), "appended $n times: workers alone");
	cmp_ok(copied(), '>', $before, 'one of them extends the copy');
	answers($standby, "appended $n times", "SET work_mem = '64kB';");
}

# ---------- while one has the turn ----------

# A query whose first worker stops when it has read a window, or before it reads one;
# what it has to tell; and what the primary does meanwhile.
sub beside
{
	my ($what, $point, $query, $do) = @_;
	my $want = $standby->safe_psql('postgres', "$plain $query");
	my $holder = $standby->background_psql('postgres');
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);

	$holder->query_safe('SELECT pg_advisory_lock(7)');
	$reader->query_until(qr/begun/, "$forced $leaders[0] SET cache_batch.test_points = '$point=wait:7';\n\\echo begun\n$query;\n");
	ok($standby->poll_query_until('postgres', q(SELECT EXISTS (SELECT FROM pg_stat_activity a JOIN pg_locks l USING (pid)
		WHERE a.backend_type = 'parallel worker' AND l.locktype = 'advisory' AND NOT l.granted))), "$what: a worker has the turn");
	$do->();
	$holder->quit;
	like($reader->query('SELECT 1'), qr/^\Q$want\E$/m, "$what: the others go on behind it");
	$reader->quit;
	return;
}

my $move = sub {
	$primary->safe_psql('postgres', q(SELECT cache_batch_flush('p_k'), cache_batch_flush('p_s')));
	insert_rows(4000);
	$standby->safe_psql('postgres', "$forced $leaders[1] $queries[0]; $queries[3]");
};
foreach my $query (0, 1, 3)
{
	foreach my $point (qw(turn-taken turn-pass))
	{
		insert_rows(4000);
		beside("the tail moves, $point, query $query", $point, $queries[$query], $move);
	}
}
answers($standby, 'the tail has moved', '');

# rows go, and their TIDs are given to others
insert_rows(4000);
$primary->safe_psql('postgres', 'DELETE FROM p WHERE id % 5 = 0');
insert_rows(100);
beside('rows go', 'turn-pass', $queries[0], sub {
	$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) p');
	insert_rows(4000);
});
answers($standby, 'rows have gone', '');

insert_rows(4000);
beside('promotion', 'turn-pass', $queries[0], sub {
	$standby->promote;
	$primary->stop('immediate');
	$standby->safe_psql('postgres', q(INSERT INTO p SELECT i, 500, 'new' FROM generate_series(1, 1000) i;
		SELECT cache_batch_flush('p_k'), cache_batch_flush('p_s')));
});
answers($standby, 'promoted', '');
sound($standby, 'p', [qw(k s)], 'promoted');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|is corrupted/, 'nothing bad in the log of ' . $_->name)
  foreach ($primary, $standby);
done_testing();
