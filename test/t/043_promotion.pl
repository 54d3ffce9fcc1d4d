# Standbys that are asked without pause while their primary is written to: one reader
# in three is killed at a point of the shared copies, then the standby is promoted
# under the load, verified, and is the next round's primary.  CB_KILLS: how many
# rounds; CB_SEED: repeats the points.
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

my $rounds = $ENV{CB_KILLS} || 3;
my $seed = $ENV{CB_SEED} || time;
srand($seed);
note("CB_SEED=$seed");

my $primary = new_node('node0', conf => <<'EOC');
cache_batch.stage_size = 8
cache_batch.pool_size = 1MB
cache_batch.max_delay = 500ms
cache_batch.journal_limit = 1MB
cache_batch.spill_threshold = 0
cache_batch.spill_target = 100
cache_batch.test_run_min = 8
max_standby_streaming_delay = -1
work_mem = 256kB
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);

my @points = grep { /^(shared|copy|read|scan|view)-/ } sort keys %{ { test_points() } };
my $writer = $primary->basedir . '/write.sql';
append_to_file($writer, <<'EOS');
\set id random(1, 2000000)
\set n random(1, 200)
\set r random(1, 100)
INSERT INTO p SELECT :id + i, hashint4(:id * i), md5((:id + i)::text) FROM generate_series(1, :n) i;
\if :r <= 4
DELETE FROM p WHERE id BETWEEN :id AND :id + 40000;
\elif :r <= 6
VACUUM p;
\elif :r <= 8
SELECT cache_batch_flush('p_k');
\endif
EOS
my $reader = $primary->basedir . '/read.sql';

# an answer by index that is not that of the table divides by zero
append_to_file($reader, <<'EOS');
\set id random(1, 2000000)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_indexscan = off;
SET LOCAL enable_indexonlyscan = off;
SELECT count(*) AS n, coalesce(sum(id), 0) AS s FROM p WHERE k BETWEEN :id AND :id + 30000000 \gset plain_
SET LOCAL enable_seqscan = off;
SET LOCAL enable_indexscan = on;
SET LOCAL enable_indexonlyscan = on;
SELECT 1 / (count(*) = :plain_n AND coalesce(sum(id), 0) = :plain_s)::int FROM p WHERE k BETWEEN :id AND :id + 30000000;
SELECT s FROM p WHERE s = md5(:id::text);
SELECT max(k), min(s) FROM p;
COMMIT;
EOS

$primary->safe_psql('postgres', q(
	CREATE TABLE p (id int, k int, s text);
	CREATE INDEX p_k ON p USING cachebatch (k);
	CREATE INDEX p_s ON p USING cachebatch (s);
	INSERT INTO p SELECT i * 1000, hashint4(i), md5(i::text) FROM generate_series(1, 2000) i;
	ANALYZE p));

# A pgbench with this script against the node.
sub bench
{
	my ($node, $script, $clients, $err) = @_;

	return IPC::Run::start(
		[ 'pgbench', '-n', '-c', $clients, '-T', 60, '-f', $script, '--max-tries', 20,
			'-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', \my $out, '2>', $err);
}

# Lets it run for so many tenths of a second, or until the condition holds.
sub go_on
{
	my ($bench, $n, $condition) = @_;

	for (1 .. $n)
	{
		return if !$bench->pumpable || ($condition && $condition->());
		$bench->pump_nb;
		usleep(100_000);
	}
	return;
}

# What a server's log says, but for a fault of version 18's own, found with assertions: it
# crashed after a page's rows were frozen and before the visibility map said so; VACUUM then
# logs the page, which it leaves as it is.
sub log_of_ours
{
	my ($file) = @_;

	return slurp_file($file) =~ s/^TRAP:.*xloginsert\.c.*\n(?:.*\n){0,3}?.*\blog_heap_visible\b//mgr;
}

my $died = qr/server closed|terminating connection|aborted/;

foreach my $round (1 .. $rounds)
{
	my $standby = new_standby($primary, "node$round");
	my ($write_err, $read_err, $killed_err) = ('', '', '');
	my $what = "round $round";
	my $write = bench($primary, $writer, 2, \$write_err);

	if ($round % 3 == 1)
	{
		my $point = $points[ int(rand(@points)) ] . '=kill:' . (1 + int(rand(20)));

		local $ENV{PGOPTIONS} = "-c enable_seqscan=off -c cache_batch.test_points=$point";
		my $killed = bench($standby, $reader, 2, \$killed_err);

		go_on($killed, 50, sub { $killed_err =~ $died });
		$killed->kill_kill;
		unlike($killed_err, qr/division by zero/, "$what: answers until one is killed at $point");
		wait_back($standby) if $killed_err =~ $died;
	}
	my $read = bench($standby, $reader, 2, \$read_err);

	go_on($read, 20);
	$standby->promote;
	go_on($read, 10);
	$primary->stop('immediate');
	$write->kill_kill;
	$read->kill_kill;
	unlike($read_err, qr/division by zero|PANIC|server closed/, "$what: answers before and after the promotion");
	sound($standby, 'p', [qw(k s)], "$what: promoted");
	$primary = $standby;
}
unlike(log_of_ours($_), qr/PANIC|TRAP|inconsistent page|is corrupted/, "nothing bad in $_")
  foreach glob("$PostgreSQL::Test::Utils::log_path/*node*.log");
done_testing();
