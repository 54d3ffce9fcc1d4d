# A process is killed at test points of publication, flush, sweep, split, truncation,
# ranges, packing, build and VACUUM; after recovery the index is whole, and stays so
# in use.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

# of the pages that recovery writes only ours are compared with what they should be
my $node = new_node('killpoints', conf => <<'EOC');
cache_batch.stage_size = 8
wal_consistency_checking = 'cache_batch'
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my $sparse = q(INSERT INTO kp SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series(100001, 100040) i);
my $many = join ';', map {
	my $low = 110000 + $_ * 100;
	"INSERT INTO kp SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series($low, $low + 80) i"
} 1 .. 12;
my $flush = "$many; SELECT cache_batch_flush('kp_k'); SELECT cache_batch_flush('kp_s')";
my $spread = q(INSERT INTO kp SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series(300000, 304000) i);
my $dense = q(INSERT INTO kp SELECT i, 2000000 + i, lpad(i::text, 100, 'z') FROM generate_series(200000, 206000) i);
my $unlink = 'DELETE FROM kp WHERE k % 1000000 > 0 OR length(s) < 40; VACUUM (INDEX_CLEANUP ON) kp';
my $vacuum = "$sparse; DELETE FROM kp WHERE id % 3 = 0; VACUUM (INDEX_CLEANUP ON) kp";

# the same without buckets, and with entries from before there were any
my $unbucketed = 'SET cache_batch.test_buckets = off; REINDEX TABLE kp';
my $swept = "$unbucketed; $flush";
my $deltas = "$sparse; SET cache_batch.test_delta = 4; $flush";
my $update = 'UPDATE kp SET k = k + 1 WHERE id % 40 = 0';
my $compact = "SELECT cache_batch_compact('kp_k'), cache_batch_compact('kp_s')";
my $dead = "SET cache_batch.test_delta = 4; $update; $update; $update; $flush; $update; $flush";
my $attached = "$unbucketed; $many; RESET cache_batch.test_buckets; $flush";

# with range buffers: written, merged, given up
my $both = "SELECT cache_batch_flush('kp_k'), cache_batch_flush('kp_s')";
my $spill = join '; ', (map { "ALTER INDEX $_ SET (spill_threshold = '0')" } qw(kp_k kp_s)),
  'SET cache_batch.test_spill = on', 'SET cache_batch.test_run_min = 1', $sparse, $both, $flush;
my $merge = "$spill; $sparse; $both; RESET cache_batch.test_spill; $both";
my $free = "$merge; SELECT pg_current_xact_id(); $both";
my $clean = "$spill; DELETE FROM kp WHERE id % 3 = 0; VACUUM (INDEX_CLEANUP ON) kp";

# with tiles: made, written anew, and brought to the leaves
my $tile = "$spill; SET cache_batch.test_tiles = 1; $sparse; $both; $sparse; $both; $sparse; $both";
my $untile = "$tile; RESET cache_batch.test_spill; $both";

# ranges with bounds so long that an inner page above them has room for few
my $wide = join '; ', 'ALTER TABLE kp ALTER s SET STORAGE PLAIN', 'DROP INDEX kp_s',
  q(INSERT INTO kp SELECT i, i, lpad(i::text, 1500, 'w') FROM generate_series(500, 100000, 500) i),
  q(CREATE INDEX kp_s ON kp USING cachebatch (s) WITH (spill_threshold = '0', pack_leaves = off)),
  'SET cache_batch.test_spill = on', 'SET cache_batch.test_run_min = 1',
  map { my $low = 10000 * $_; (qq(INSERT INTO kp SELECT i, i, lpad(i::text, 1500, 'w') FROM generate_series($low + 1, $low + 3) i),
	q(SELECT cache_batch_flush('kp_s'))) } 1 .. 9;

# [point, statement, hits to let pass ...]
my @scenarios = (
	[ 'publish-start', $sparse, 1, 2 ],
	[ 'publish-sorted', $sparse, 1, 2 ],
	[ 'publish-routed', $sparse, 1, 2 ],
	[ 'publish-fill', $many, 1, 5 ],
	[ 'publish-appended', $sparse, 1, 2 ],
	[ 'publish-done', $sparse, 1, 2 ],
	[ 'precommit-published', "BEGIN; $sparse; COMMIT", 1 ],
	[ 'abort-drop', 'BEGIN; INSERT INTO kp SELECT 1, i, 1 / (i - 50) FROM generate_series(1, 100) i; ROLLBACK', 1 ],
	[ 'stage-insert', $sparse, 1, 17 ],
	[ 'journal-append-before', $many, 1, 5 ],
	[ 'journal-append-after', $many, 1, 5 ],
	[ 'journal-newpage', $many, 1, 3 ],
	[ 'attach-before', $attached, 1, 2 ],
	[ 'attach-done', $attached, 1, 2 ],
	[ 'flush-sealed', $flush, 1, 2, 4 ],
	[ 'flush-applied', $flush, 1, 2, 4 ],
	[ 'flush-retired', $flush, 1, 2, 4 ],
	[ 'drain-flushed', $flush, 1, 2 ],
	[ 'flush-truncate', $flush, 1, 2 ],
	[ 'apply-leaf', $flush, 1, 5, 9 ],
	[ 'apply-leaf', $swept, 1, 21 ],
	[ 'sweep-start', $attached, 1, 2 ],
	[ 'sweep-read', $attached, 1, 2 ],
	[ 'sweep-applied', $swept, 1, 2 ],
	[ 'sweep-applied', $attached, 1, 2 ],
	[ 'sweep-truncated', $swept, 1, 2 ],
	[ 'sweep-truncated', $flush, 1, 2 ],
	[ 'split-before', $dense, 1, 2, 5 ],
	[ 'repack-before', $dense, 1, 3 ],
	[ 'repack-before', $deltas, 1, 2 ],
	[ 'repack-after', $dense, 1, 3 ],
	[ 'repack-after', $deltas, 1, 2 ],
	[ 'dead-before', $dead, 1, 2 ],
	[ 'dead-after', $dead, 1, 2 ],
	[ 'redistribute-before', $spread, 1, 2 ],
	[ 'redistribute-after', $spread, 1, 2 ],
	[ 'split-after', $dense, 1, 2, 5 ],
	[ 'split-parent', $dense, 1, 2, 5 ],
	[ 'newroot', "TRUNCATE kp; $dense", 1, 2 ],
	[ 'vacuum-drained', $vacuum, 1, 2 ],
	[ 'vacuum-leaf', $vacuum, 1, 4 ],
	[ 'unlink-planned', "$dense; $unlink", 1, 2, 20 ],
	[ 'unlink-before', "$dense; $unlink", 1, 2, 20 ],
	[ 'unlink-after', "$dense; $unlink", 1, 2, 20 ],
	[ 'compact-step', "$spread; $compact", 1, 4 ],
	[ 'unlink-planned', "$spread; $compact", 1, 4 ],
	[ 'unlink-before', "$spread; $compact", 1, 3 ],
	[ 'unlink-after', "$spread; $compact", 1, 3 ],
	[ 'redistribute-before', "$spread; RESET cache_batch.test_points; SELECT cache_batch_flush('kp_k'); SET cache_batch.test_points = 'redistribute-before=kill:2'; $compact", 1 ],
	[ 'range-created', $spill, 1, 2 ],
	[ 'range-split-planned', $spill, 1, 2 ],
	[ 'range-split-before', $spill, 1, 2 ],
	[ 'range-split-after', $spill, 1, 2 ],
	[ 'range-rise-before', $wide, 1 ],
	[ 'range-rise-after', $wide, 1 ],
	[ 'range-split-before', $wide, 9, 19 ],
	[ 'range-split-after', $wide, 9, 19 ],
	[ 'spill-planned', $spill, 1, 7 ],
	[ 'spill-before', $spill, 1, 2, 7 ],
	[ 'spill-after', $spill, 1, 2, 7 ],
	[ 'flush-applied', $spill, 2, 4 ],
	[ 'merge-read', $merge, 1, 2 ],
	[ 'apply-leaf', $merge, 1, 9 ],
	[ 'merge-applied', $merge, 1, 2, 5 ],
	[ 'retire-before', $merge, 1, 2, 5 ],
	[ 'retire-after', $merge, 1, 2, 5 ],
	[ 'run-free-found', $free, 1, 5 ],
	[ 'run-free-before', $free, 1, 2, 5 ],
	[ 'run-free-after', $free, 1, 2, 5 ],
	[ 'range-noted-tiles', $tile, 1, 2 ],
	[ 'tile-cut', $tile, 1, 2 ],
	[ 'tile-next', $tile, 1, 4 ],
	[ 'tile-before', $tile, 1, 2, 5 ],
	[ 'tile-after', $tile, 1, 2, 5 ],
	[ 'tile-applied', $untile, 1, 2 ],
	[ 'tile-retire-before', $untile, 1, 2 ],
	[ 'tile-retire-after', $untile, 1, 2 ],
	[ 'vacuum-merged', $clean, 1, 2 ],
	[ 'vacuum-leaf', $clean, 1, 4 ],
	[ 'step-down', $flush, 1, 7 ],
	[ 'load-page', 'REINDEX TABLE kp', 1, 9 ]);

sub make_table
{
	$node->safe_psql('postgres', q(
		DROP TABLE IF EXISTS kp;
		CREATE TABLE kp (id int, k int, s text);
		CREATE INDEX kp_k ON kp USING cachebatch (k);
		CREATE INDEX kp_s ON kp USING cachebatch (s) WITH (fillfactor = 100);
		INSERT INTO kp SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series(1, 4000) i));
	return;
}

# Again if it was not: a worker may have flushed what the session was to flush.
sub killed_at
{
	my ($point, $sql) = @_;

	foreach my $try (1 .. 5)
	{
		make_table();
		return 1 if run_killed($node, $point, $sql);
	}
	return 0;
}

# The indexes are what they should be, and go on being so.
sub whole
{
	my ($what) = @_;

	sound($node, 'kp', [qw(k s)], "$what: whole after recovery");
	$node->safe_psql('postgres', "$many; $dense; DELETE FROM kp WHERE id % 7 = 0; VACUUM kp");
	sound($node, 'kp', [qw(k s)], "$what: whole in use");
	return;
}

foreach my $scenario (@scenarios)
{
	my ($point, $sql, @hits) = @$scenario;

	foreach my $hit (@hits)
	{
		ok(killed_at("$point=kill:$hit", $sql), "killed at hit $hit of $point");
		whole("$point, hit $hit");
	}
}

# a drain waits for a session that has been flushing since it was stopped
make_table();
$node->safe_psql('postgres', $sparse);
my $holder = $node->background_psql('postgres');
my $flusher = $node->background_psql('postgres', on_error_stop => 0);
$holder->query_safe('SELECT pg_advisory_lock(1)');
$flusher->query_safe(q(SET cache_batch.test_points = 'flush-sealed=wait:1'));
$flusher->query_until(qr/^start/, "\\echo start\nSELECT cache_batch_flush('kp_k');\n");
$node->poll_query_until('postgres',
	q(SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
ok(run_killed($node, 'drain-wait=kill:1', q(SELECT cache_batch_flush('kp_k'))),
	'killed while waiting for another flush');
$_->{run}->finish foreach ($holder, $flusher);
whole('drain-wait');

# Workers take their settings from the file; one that is there has started before.
# The server stays down after it, as the next one would be killed there, too, and the
# one after it, and no session might get in between.
foreach my $point (qw(worker-start worker-flush flush-sealed flush-applied flush-truncate))
{
	make_table();
	$node->poll_query_until('postgres',
		q(SELECT NOT EXISTS (SELECT FROM cache_batch_stat_workers WHERE pid IS NOT NULL OR pending > 0)));
	$node->append_conf('postgresql.conf', <<"EOC");
restart_after_crash = off
cache_batch.max_delay = 100ms
cache_batch.test_points = '$point=kill'
EOC
	$node->reload;
	# one that flushes what is there already may die before psql has connected
	eval { $node->psql('postgres', $many) };
	ok(wait_until(sub { !-e $node->data_dir . '/postmaster.pid' }), "$point: a worker was killed");
	$node->stop('immediate', fail_ok => 1);
	$node->append_conf('postgresql.conf', <<'EOC');
restart_after_crash = on
cache_batch.max_delay = 1h
cache_batch.test_points = ''
EOC
	$node->start;
	whole("$point in a worker");
}

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log');
done_testing();
