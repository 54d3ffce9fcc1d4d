# Flushes give way to scans: a worker pauses for those that began while it flushed,
# and who brings batches waits for room meanwhile; not with scan_delay = 0, nor
# where nobody reads.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

$SIG{PIPE} = 'IGNORE';

my $node = new_node('pace', conf => <<'EOC');
cache_batch.pool_size = 2MB
cache_batch.journal_limit = 4096
cache_batch.max_workers = 1
cache_batch.spill_threshold = 0
cache_batch.spill_target = 1000
cache_batch.scan_delay = 1s
max_wal_size = 2GB
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

$node->safe_psql('postgres', q(
	CREATE TABLE t (id int, k int);
	INSERT INTO t SELECT i, hashint4(i) FROM generate_series(1, 500000) i;
	CREATE INDEX t_k ON t USING cachebatch (k);
	VACUUM ANALYZE t));

# A session that reads until it is cancelled.
sub start_reader
{
	my $reader = $node->background_psql('postgres', on_error_stop => 0);

	$reader->query_until(qr/started/, q(\echo started
		SET enable_seqscan = off;
		DO $$ BEGIN LOOP
			PERFORM FROM t WHERE k = hashint4((random() * 1e5)::int);
			COMMIT;
		END LOOP; END $$;
		));
	return $reader;
}

sub stop_reader
{
	my ($reader) = @_;

	$node->safe_psql('postgres', q(SELECT pg_cancel_backend(pid) FROM pg_stat_activity
		WHERE query ~ 'LOOP' AND pid <> pg_backend_pid()));
	$reader->quit;
	return;
}

# 500 000 rows, in batches: does the session wait, and is a worker seen to pause?
my $row = 1_000_000;

sub bring_rows
{
	my $writer = $node->background_psql('postgres');
	my $paused = 0;

	$writer->query_until(qr/started/, qq(\\echo started
		SET cache_batch.stage_size = '16kB'; SET cache_batch.test_points = 'pace-wait=count';
		DO \$\$ BEGIN FOR r IN 1..50 LOOP
			INSERT INTO t SELECT i, hashint4(i) FROM generate_series($row + r * 10000, $row + r * 10000 + 9999) i;
			COMMIT;
		END LOOP; END \$\$;
		));
	$node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_stat_activity
		WHERE query ~ 'generate_series' AND pid <> pg_backend_pid())) or die 'no writer';
	while ($node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity
			WHERE state = 'active' AND query ~ 'generate_series' AND pid <> pg_backend_pid())))
	{
		$paused ||= $node->safe_psql('postgres',
			q(SELECT count(*) FROM cache_batch_stat_workers WHERE state = 'pausing'));
	}
	my $waits = $writer->query_safe('SHOW cache_batch.test_point_hits') =~ /pace-wait:(\d+)/ ? $1 : 0;
	$writer->quit;
	$row += 1_000_000;
	note("paused $paused, waits $waits");
	return ($paused, $waits);
}

# With a reader; again, if it has not come to it.
sub gives_way
{
	my ($what) = @_;
	my $reader = start_reader();
	my ($paused, $waits) = (0, 0);

	for (1 .. 60)
	{
		my ($p, $w) = bring_rows();
		$paused += $p;
		$waits += $w;
		last if $paused && $waits;
	}
	stop_reader($reader);
	cmp_ok($paused, '>', 0, "$what: a worker pauses");
	cmp_ok($waits, '>', 0, "$what: who brings batches waits");
	return;
}

my ($paused, $waits) = bring_rows();
is("$paused $waits", '0 0', 'nobody reads: no pause');
cmp_ok($node->safe_psql('postgres', q(SELECT spilled FROM cache_batch_stat_indexes)), '>', 0,
	'there are range buffers');
gives_way('scans');

$node->safe_psql('postgres', 'ALTER SYSTEM SET cache_batch.scan_delay = 0');
$node->reload;
# who has the old setting still may pause once more; a worker leaves when it is idle
$node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM cache_batch_stat_workers
	WHERE pid IS NOT NULL)) or die 'a worker stays';
my $reader = start_reader();
($paused, $waits) = bring_rows();
stop_reader($reader);
is("$paused $waits", '0 0', 'scan_delay = 0: no pause');

$node->safe_psql('postgres', 'ALTER SYSTEM RESET cache_batch.scan_delay');
$node->reload;
gives_way('again');
sound($node, 't', ['k'], 'whole after all');

done_testing();
