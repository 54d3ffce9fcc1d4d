# Replay moves entries from a leaf to the one on its right.  Who verifies the index on a
# standby between the two leaves finds nothing wrong (I11).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $primary = new_node('primary');
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);

# seven entries a leaf; there is room in the second
$primary->safe_psql('postgres', q(
	CREATE TABLE sh (id int, k text) WITH (autovacuum_enabled = off);
	ALTER TABLE sh ALTER k SET STORAGE PLAIN;
	CREATE INDEX sh_k ON sh USING cachebatch (k) WITH (pack_leaves = off, fillfactor = 100);
	INSERT INTO sh SELECT i, lpad(i::text, 1000, '0') FROM generate_series(100, 1400, 10) i;
	SELECT cache_batch_flush('sh_k');
	DELETE FROM sh WHERE id BETWEEN 170 AND 210;
	VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) sh));
my $standby = new_standby($primary, 'standby', conf => "cache_batch.test_points = 'redo-redistribute=stop'\n");
$primary->wait_for_catchup($standby);
my $startup = $standby->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'));

END { kill 'CONT', $startup if $startup }

sub startup_is_stopped
{
	return slurp_file("/proc/$startup/stat") =~ /\) T /;
}

$primary->safe_psql('postgres', q(
	INSERT INTO sh SELECT i, lpad(i::text, 1000, '0') FROM generate_series(131, 133) i;
	SELECT cache_batch_flush('sh_k')));
ok(wait_until(\&startup_is_stopped), 'replay has the right leaf, and not yet the left one');

my $state = q(SELECT coalesce(string_agg(state || ' ' || coalesce(wait_event, ''), ','), '')
	FROM pg_stat_activity WHERE query ~ 'verify' AND pid <> pg_backend_pid());
my $verify = $standby->background_psql('postgres', on_error_stop => 0);
$verify->query_until(qr/begun/, "\\echo begun\nSELECT cache_batch_verify('sh_k', true);\n");
ok(wait_until(sub { $standby->safe_psql('postgres', $state) =~ /BufferContent|idle/ }), 'a session verifies, and waits or is done');
for (1 .. 1800)
{
	last if !startup_is_stopped() && $standby->safe_psql('postgres', 'SELECT pg_last_wal_replay_lsn()') eq
	  $primary->safe_psql('postgres', 'SELECT pg_current_wal_flush_lsn()');
	kill 'CONT', $startup;
	usleep(100_000);
}
$verify->quit;
unlike(slurp_file($standby->logfile), qr/corrupted|PANIC|TRAP/, 'and found nothing wrong');
sound($standby, 'sh', ['k'], 'the standby');

done_testing();
