# Who waits for a bucket set's lock gets its turn, however many others go on
# (I9): sessions are stopped while they publish, or read, one always before the
# other lets go, and a flush that divides its bucket comes to its end between
# them.  A SELECT does not wait for them at all.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

plan skip_all => 'needs /proc' unless -r "/proc/$$/stat";
my $node = new_node('turns', conf => <<EOC);
cache_batch.pool_size = 256
cache_batch.max_workers = 0
cache_batch.journal_limit = 4096
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my $rounds = 10;
my $control = $node->background_psql('postgres');
my @sessions;
my $begun = 0;

# stopped ones would not end
END { kill 'CONT', map { $_->{pid} } @sessions }

sub session
{
	my ($points) = @_;
	my $psql = $node->background_psql('postgres');
	my $pid = $psql->query_safe('SELECT pg_backend_pid()');

	$psql->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off');
	push @sessions, { psql => $psql, pid => $pid };
	return $sessions[-1];
}

# Does it without waiting for the end: as one query, which state_of() knows again.
sub begin
{
	my ($session, $query) = @_;

	$session->{mark} = '/* ' . ++$begun . ' */';
	$session->{psql}->query_until(qr/^begun/m, "\\echo begun\n$session->{mark} $query;\n");
	return;
}

# When it is at rest: what it began is over, or it has stopped, or it waits for one
# of our locks, or for the test.
sub state_of
{
	my ($session) = @_;

	foreach my $try (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return 'stopped' if slurp_file("/proc/$session->{pid}/stat") =~ /\) T /;
		my $state = $control->query_safe(qq(
			SELECT CASE WHEN state = 'idle' THEN state
				WHEN wait_event LIKE 'CacheBatch%' OR wait_event = 'advisory' THEN wait_event END
			FROM pg_stat_activity
			WHERE pid = $session->{pid} AND strpos(query, '$session->{mark}') > 0));

		return $state if $state ne '';
		usleep(10_000);
	}
	die 'a session does not come to rest';
}

# Until what it began is over, whatever it stops at.
sub finish
{
	my ($session) = @_;

	while ((my $state = state_of($session)) ne 'idle')
	{
		kill 'CONT', $session->{pid} if $state eq 'stopped';
		usleep(10_000);
	}
	return;
}

sub buckets
{
	my ($table) = @_;

	return $control->query_safe("SELECT count(*) FROM cache_batch_bucket_list('${table}_k')");
}

# A table with one bucket, and a session that has flushed it, as it was full, and
# is about to divide it.
sub flusher
{
	my ($table) = @_;
	my $flusher = session();

	$node->safe_psql('postgres', qq(
		CREATE TABLE $table (id int, k int, s text);
		CREATE INDEX ${table}_k ON $table USING cachebatch (k, s) WITH (pack_leaves = off)));
	$node->safe_psql('postgres', "INSERT INTO $table VALUES (0, -1, '')");
	$node->safe_psql('postgres', qq(
		INSERT INTO $table SELECT i, i, repeat('x', 40) FROM generate_series(1, 30000) i));
	$flusher->{psql}->query_safe("SET cache_batch.test_points = 'flush-applied=wait:1,bucket-divided=wait:2'");
	$control->query_safe('SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
	begin($flusher, join '\;', map {
			"INSERT INTO $table SELECT 50000 + $_, 1 + (i * 1009 + $_ * 17) % 30000, repeat('w', 40) FROM generate_series(1, 30) i"
		} 1 .. 40);
	is(state_of($flusher), 'advisory', "a bucket of $table is flushed");

	# at commit, when nothing is flushed: in a chunk that both halves list
	$node->safe_psql('postgres', qq(
		DO \$\$ BEGIN INSERT INTO $table SELECT 200000, i, '' FROM generate_series(100, 29900, 200) i; COMMIT; END \$\$));
	is(buckets($table), 1, '... and not divided yet');
	return $flusher;
}

# Two sessions do the same again and again, and one stops with a lock held before
# the other lets go, while the flusher goes on.  Then a reader sorts the chunk that
# both halves list, while one has stopped there.
sub take_turns
{
	my ($table, $point, $query) = @_;
	my $flusher = flusher($table);
	my ($one, $other, $reader) = map { session() } 1 .. 3;
	my $round = 0;

	foreach my $session ($one, $other)
	{
		$session->{psql}->query_safe($query);
		$session->{psql}->query_safe("SET cache_batch.test_lock_views = on; SET cache_batch.test_points = '$point=stop'");
	}
	$reader->{psql}->query_safe("SELECT count(*) FROM $table WHERE k = 1");
	$reader->{psql}->query_safe("SET cache_batch.test_points = 'view-sorted=count'");

	begin($one, $query);
	is(state_of($one), 'stopped', "one session stops at $point");
	$control->query_safe('SELECT pg_advisory_unlock(1)');
	ok($node->poll_query_until('postgres', qq(
			SELECT wait_event LIKE 'CacheBatch%' FROM pg_stat_activity WHERE pid = $flusher->{pid})),
		'the flush waits for it');
	while (state_of($flusher) ne 'advisory' && $round++ < $rounds)
	{
		begin($other, $query);
		state_of($other);
		finish($one);
		state_of($other);
		($one, $other) = ($other, $one);
	}
	is(state_of($flusher), 'advisory', '... but not for all those that come after it');
	finish($_) foreach ($one, $other);

	begin($one, $query);
	is(state_of($one), 'stopped', 'a session stops there again');
	begin($reader, "SELECT count(*) FROM $table WHERE k BETWEEN 1000 AND 29000 AND id = 200000");
	is(state_of($reader), 'idle', '... and a SELECT does not wait for it');
	finish($_) foreach ($one, $reader);
	like($reader->{psql}->query_safe('SHOW cache_batch.test_point_hits'), qr/^view-sorted:[1-9]/m,
		'... having sorted a chunk');

	$control->query_safe('SELECT pg_advisory_unlock(2)');
	finish($flusher);
	is(buckets($table), 2, 'the bucket is divided');
	sound($node, $table, ['k'], "turns at $point");
	$_->{psql}->quit foreach ($one, $other, $reader, $flusher);
	$control->query_safe("DROP TABLE $table");
	@sessions = ();
	return;
}

take_turns('p', 'publish-fill', 'INSERT INTO p VALUES (300000, 15000), (300000, 15001)');
take_turns('r', 'view-pin', 'SELECT count(*) FROM r WHERE k = 1');

done_testing();
