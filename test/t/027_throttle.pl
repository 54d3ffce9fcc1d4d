# Flushes give way to scans: when a worker has flushed, all pause for the scans
# that began meanwhile, and who brings batches waits for room; not with
# scan_delay = 0, nor where nobody reads.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $node = new_node('throttle', conf => <<'EOC');
cache_batch.pool_size = 2MB
cache_batch.journal_limit = 4096
cache_batch.max_workers = 2
cache_batch.spill_threshold = 0
cache_batch.spill_target = 1000
cache_batch.scan_delay = 1s
max_wal_size = 2GB
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

# Looks for so many seconds whether a worker of this database is in this state.
my $see = q(
	CREATE FUNCTION see(wanted text, seconds float) RETURNS bool LANGUAGE plpgsql AS $$
	DECLARE
		until timestamptz := clock_timestamp() + seconds * interval '1 second';
	BEGIN
		WHILE clock_timestamp() < until LOOP
			IF EXISTS (SELECT FROM cache_batch_stat_workers
					   WHERE state = wanted AND datname = current_database()) THEN
				RETURN true;
			END IF;
			PERFORM pg_sleep(0.001);
		END LOOP;
		RETURN false;
	END $$);
my $table = q(
	CREATE TABLE t (id int, k int);
	INSERT INTO t SELECT i, hashint4(i) FROM generate_series(1, 500000) i;
	CREATE INDEX t_k ON t USING cachebatch (k);
	VACUUM ANALYZE t);

$node->safe_psql('postgres', "$see; $table");
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION cache_batch; $see; $table");

# In the database postgres, each transaction of a worker waits while this lock is held.
$node->safe_psql('postgres',
	q(ALTER DATABASE postgres SET cache_batch.test_points = 'worker-flush=wait:1'));
my $holder = $node->background_psql('postgres');
# on a slow machine all that it is asked takes longer than one query may
$holder->set_query_timer_restart;

# Begins to insert so many times 10 000 rows.
my $row = 1_000_000;

sub start_writer
{
	my ($database, $batches) = @_;
	my $writer = $node->background_psql($database);

	$writer->query_until(qr/started/, qq(\\echo started
		SET cache_batch.stage_size = '16kB'; SET cache_batch.test_points = 'throttle-wait=count';
		DO \$\$ BEGIN FOR r IN 1..$batches LOOP
			INSERT INTO t SELECT i, hashint4(i) FROM generate_series($row + r * 10000, $row + r * 10000 + 9999) i;
			COMMIT;
		END LOOP; END \$\$;
		));
	$row += 10000 * ($batches + 1);
	return $writer;
}

# Waits until it is done; how often did it wait for room?
sub end_writer
{
	my ($writer) = @_;
	my $waits = $writer->query_safe('SHOW cache_batch.test_point_hits') =~ /throttle-wait:(\d+)/ ? $1 : 0;

	$writer->quit;
	return $waits;
}

# 400 000 rows come, and so many look-ups while a worker is within a transaction:
# does it pause, does who brings the rows wait, and does a worker of the other
# database pause?  And was that one idle at the time of the look-ups?
sub bring_rows
{
	my ($lookups) = @_;

	end_writer(start_writer('other', 5));
	$node->safe_psql('other', q(SELECT cache_batch_flush('t_k'); SELECT see('idle', 2)));
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	my $writer = start_writer('postgres', 40);
	$node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_locks
		WHERE locktype = 'advisory' AND NOT granted)) or die 'no worker waits';
	my $worker = q(SELECT pid, state, requests FROM cache_batch_stat_workers
		WHERE datname = 'other' AND pid IS NOT NULL);
	my $before = $node->safe_psql('postgres', $worker);
	$node->safe_psql('postgres', q(SET enable_seqscan = off;
		SELECT count(*) FROM t WHERE k = hashint4(1))) for 1 .. $lookups;
	# one that has left, or has yet to be started, meets no scan either
	my $after = $node->safe_psql('postgres', $worker);
	my $idle = $before =~ /idle|^$/ && ($after eq $before || $after eq '');
	my $other = start_writer('other', 100);
	$node->safe_psql('other', q(SELECT see('flushing', 2)));
	my $sees = $node->background_psql('other');
	$sees->query_until(qr/started/, q(\echo started
		SELECT see('pausing', 3)::int AS pauses \gset
		));

	my $paused = $holder->query_safe(q(SELECT pg_advisory_unlock(1) \gset
		SELECT see('pausing', 3)::int));
	my $other_paused = $sees->query_safe(q(SELECT :'pauses'::int));
	my $waits = end_writer($writer);
	end_writer($other);
	$sees->quit;
	note("idle " . ($idle ? 1 : 0) . ", paused $paused, the other $other_paused, waits $waits");
	return ($paused, $other_paused, $waits, $idle);
}

# Again, if it has not come to it: the pool must be neither nearly full, nor too empty.
sub gives_way
{
	my ($what) = @_;
	my ($paused, $other_paused, $waits) = (0, 0, 0);

	for (1 .. 12)
	{
		my ($p, $o, $w, $idle) = bring_rows(5);
		$paused += $p;
		$other_paused += $o if $idle;
		$waits += $w;
		last if $paused && $other_paused && $waits;
	}
	cmp_ok($paused, '>', 0, "$what: a worker pauses");
	cmp_ok($other_paused, '>', 0, "$what: so does one that no scan met");
	cmp_ok($waits, '>', 0, "$what: who brings batches waits");
	return;
}

is(join(' ', (bring_rows(0))[0 .. 2]), '0 0 0', 'nobody reads: no pause');
cmp_ok($node->safe_psql('postgres', q(SELECT spilled FROM cache_batch_stat_indexes)), '>', 0,
	'there are range buffers');
gives_way('scans');

$node->safe_psql('postgres', 'ALTER SYSTEM SET cache_batch.scan_delay = 0');
$node->reload;
# who has the old setting still may pause once more; a worker leaves when it is idle
$node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM cache_batch_stat_workers
	WHERE pid IS NOT NULL)) or die 'a worker stays';
is(join(' ', (bring_rows(5))[0 .. 2]), '0 0 0', 'scan_delay = 0: no pause');

$node->safe_psql('postgres', 'ALTER SYSTEM RESET cache_batch.scan_delay');
$node->reload;
gives_way('again');
$holder->quit;
sound($node, 't', ['k'], 'whole after all');

done_testing();
