# Queries of standbys beside a load that only inserts: no record of ours cancels them,
# even if replay does not wait for anybody, whatever tiers the entries go through.
# (Pages of the tree that packing has given up are another matter, once they are used
# again.)  The standby has one of its own, which replays late, and stands still for a
# while.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', conf => <<'EOC');
cache_batch.max_delay = 1h
cache_batch.journal_limit = 4096
cache_batch.spill_threshold = 0
cache_batch.spill_target = 1000
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);

my $at_once = <<'EOC';
max_standby_streaming_delay = 0
hot_standby_feedback = off
EOC
my $standby = new_standby($primary, 'standby', conf => $at_once);
my $second = new_standby($standby, 'second', conf => "${at_once}recovery_min_apply_delay = 100ms\n");

# In memory; in range buffers; with leaves that are packed for good; and splits of all.
$primary->safe_psql('postgres', q(
	CREATE TABLE l (id bigint, k bigint, s bigint, c bigint) WITH (autovacuum_enabled = off);
	INSERT INTO l SELECT i, hashint8extended(i, 1), hashint8extended(i, 2), i FROM generate_series(1, 20000) i;
	CREATE INDEX l_k ON l USING cachebatch (k) WITH (spill_threshold = '1GB');
	CREATE INDEX l_s ON l USING cachebatch (s);
	CREATE INDEX l_c ON l USING cachebatch (c) WITH (spill_threshold = '1GB')));

# Both have replayed all that there is.
sub caught_up
{
	$primary->wait_for_catchup($standby);
	$standby->wait_for_catchup($second, 'replay', $primary->lsn('flush'));
	return;
}

my $sums = join ' UNION ALL ', map {
	"SELECT '$_ ' || count(*) || ' ' || sum(id) FROM l WHERE $_ > -9223372036854775807"
} qw(k s c);
$sums .= ' ORDER BY 1';
my $forced = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;';

sub load
{
	my ($n) = @_;
	my $first = 100_000 * ($n + 1);

	foreach my $batch (1 .. 20)
	{
		$primary->safe_psql('postgres', sprintf(q(
			SET cache_batch.test_run_min = 1;
			INSERT INTO l SELECT i, hashint8extended(i, 1), hashint8extended(i, 2), i
			FROM generate_series(%d, %d) i), $first + $batch * 1000, $first + $batch * 1000 + 999));
	}
	return;
}

my @steps = (
	'entries that wait' => sub { load(1) },
	'flushes, and runs' => sub {
		$primary->safe_psql('postgres', "SET cache_batch.test_spill = on; SELECT cache_batch_flush('l_s')");
		$primary->safe_psql('postgres', "SELECT cache_batch_flush('l_k'), cache_batch_flush('l_c')");
	},
	'more of them, and merges' => sub {
		load(2);
		$primary->safe_psql('postgres', "SELECT cache_batch_flush('l_s'), cache_batch_flush('l_k')");
	},
	'pages of runs that are used again' => sub {
		$primary->safe_psql('postgres', 'SELECT pg_current_xact_id()');
		load(3);
		$primary->safe_psql('postgres', join '', map { "SELECT cache_batch_flush('l_$_');" } qw(k s c));
	},
	'cold ranges' => sub {
		$primary->safe_psql('postgres', "SELECT cache_batch_compact('l_c'), cache_batch_compact('l_k')");
	});

# Sessions of both standbys: a snapshot that lives through all of it, and a scan that
# stands still in the midst of the index.
my @readers;
my %before;
caught_up();
foreach my $node ($standby, $second)
{
	my $reader = $node->background_psql('postgres', on_error_stop => 0);

	$reader->query("$forced BEGIN ISOLATION LEVEL REPEATABLE READ");
	$before{ $node->name } = $reader->query($sums);
	like($before{ $node->name }, qr/^c 20000 /m, $node->name . ': a snapshot');
	$reader->query('DECLARE walk CURSOR FOR SELECT s FROM l WHERE s > -9223372036854775807 ORDER BY s');
	$reader->query('MOVE 5000 FROM walk');
	push @readers, [ $node, $reader ];
}

while (my ($what, $do) = splice(@steps, 0, 2))
{
	$do->();
	caught_up();
	foreach (@readers)
	{
		my ($node, $reader) = @$_;

		is($reader->query($sums), $before{ $node->name }, $node->name . ": $what");
		is($node->safe_psql('postgres', "$forced $sums"), $primary->safe_psql('postgres', $sums),
			$node->name . ": $what, a new session");
	}
}
foreach (@readers)
{
	my ($node, $reader) = @$_;

	is($reader->query('MOVE ALL FROM walk'), '', $node->name . ': the scan goes on');
	like($reader->query('COMMIT; SELECT 1'), qr/^1$/m, $node->name . ': and its session is there');
	$reader->quit;
	is($node->safe_psql('postgres', q(SELECT sum(confl_snapshot + confl_lock + confl_bufferpin)
		FROM pg_stat_database_conflicts)), '0', $node->name . ': no conflict');
}

# replay stands still while the primary goes on, and catches up
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
my $still = $standby->safe_psql('postgres', "$forced $sums");
load(4);
$primary->safe_psql('postgres', "SELECT cache_batch_flush('l_k')");
is($standby->safe_psql('postgres', "$forced $sums"), $still, 'replay stands still');
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
caught_up();
sound($_, 'l', [qw(k s c)], $_->name . ': at last') for ($primary, $standby, $second);

done_testing();
