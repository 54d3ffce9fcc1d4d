# Backends and workers are killed at random points of a mixed load, with a pool
# that is too small for it and range buffers for all that can be; after each
# recovery every index is verified.  CB_KILLS: how many; CB_SEED: repeats the points.
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

my $kills = $ENV{CB_KILLS} || 10;
my $seed = $ENV{CB_SEED} || time;
srand($seed);
note("CB_SEED=$seed");

my $node = new_node('random_kills', conf => <<EOC);
cache_batch.stage_size = 8
cache_batch.pool_size = 256
cache_batch.max_delay = 100ms
cache_batch.spill_threshold = 0
cache_batch.spill_target = 100
cache_batch.test_run_min = 8
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my %points = test_points();
my @points = sort keys %points;

my $script = $node->basedir . '/load.sql';
append_to_file($script, <<'EOS');
\set r random(1, 100)
\set id random(1, 2000000)
\set n random(1, 60)
\if :r <= 60
BEGIN;
INSERT INTO pk SELECT :id + i, hashint4(:id * i), md5((:id + i)::text) FROM generate_series(1, :n) i;
SAVEPOINT a;
UPDATE pk SET k = k + 1 WHERE id BETWEEN :id AND :id + 3000;
\if :r % 5 = 0
ROLLBACK TO a;
\endif
INSERT INTO pk VALUES (:id, :id, :id);
COMMIT;
\elif :r <= 80
INSERT INTO pk SELECT :id + i, 3000000 + i, i FROM generate_series(1, 700) i;
\elif :r <= 90
SELECT cache_batch_flush('pk_k'), cache_batch_flush('pk_s');
\elif :r <= 95
DELETE FROM pk WHERE id BETWEEN :id AND :id + 150000;
\elif :r <= 98
VACUUM (INDEX_CLEANUP ON) pk;
\else
REINDEX INDEX pk_s;
\endif
EOS

$node->safe_psql('postgres', q(
	CREATE TABLE pk (id int, k int, s text);
	CREATE INDEX pk_id ON pk USING cachebatch (id);
	CREATE INDEX pk_k ON pk USING cachebatch (k);
	CREATE INDEX pk_s ON pk USING cachebatch (s);
	INSERT INTO pk SELECT i * 1000, i, i FROM generate_series(1, 2000) i));

# What workers act on; the clients have a setting of their own.
sub set_points
{
	my ($points) = @_;

	$node->append_conf('postgresql.conf', "cache_batch.test_points = '$points'\n");
	$node->reload;
	return;
}

foreach my $i (1 .. $kills)
{
	my $point = $points[ int(rand(@points)) ];
	my $hit = 1 + int(rand(rand() < 0.5 ? 4 : 60));

	# of points that workers pass, too, one time in two one of theirs
	my $in_worker = $point =~ /^worker/ ||
	  ($point =~ /^(flush|sweep|apply|split|range|spill|merge|retire|run)/ && rand() < 0.5);
	my $setting = "cache_batch.test_points=$point=kill:$hit";
	local $ENV{PGOPTIONS} = $in_worker ? '-c cache_batch.test_points=' : "-c $setting";
	set_points($in_worker ? "$point=kill:$hit" : '');
	my ($out, $err) = ('', '');

	IPC::Run::run(
		[ 'pgbench', '-n', '-c', 4, '-T', 6, '-f', $script, '--max-tries', 20,
			'-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', \$out, '2>', \$err);
	delete $ENV{PGOPTIONS};
	my $killed = $err =~ /server closed|terminating connection|aborted/;
	set_points('');
	usleep(300_000) if $in_worker;
	if ($killed)
	{
		wait_back($node);
	}
	else
	{
		crash_restart($node);
	}
	sound($node, 'pk', [qw(id k s)], "kill $i: " . (
			!$killed ? 'immediate stop' : "$point, hit $hit" . ($in_worker ? ' of a worker' : '')));
	$node->safe_psql('postgres', 'DELETE FROM pk WHERE id % 3 = 0')
	  if $node->safe_psql('postgres', 'SELECT count(*) FROM pk') > 60000;
}

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log');
done_testing();
