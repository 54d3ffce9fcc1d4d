# Sessions are killed while they build shared copies, on a standby and on a primary
# after a crash, at each point of building in turn; then every answer is right, and
# another session builds.  CB_KILLS: how many times at each point; CB_SEED: repeats
# which run it is at.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $rounds = $ENV{CB_KILLS} || 1;
my $seed = $ENV{CB_SEED} || time;
srand($seed);
note("CB_SEED=$seed");

# nothing is flushed, so the journals stay as long as they are
my $primary = new_node('primary', conf => <<'EOC');
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.journal_limit = 1GB
cache_batch.pool_size = 64MB
cache_batch.spill_threshold = off
work_mem = 64kB
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);
my $standby = new_standby($primary, 'standby');

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
my $by_table = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;';
my $all = 'SELECT count(*), sum(id), sum(k) FROM t WHERE k > -9223372036854775807';
my $looks = join ';', map { "SELECT id FROM t WHERE k = hashint8extended($_, 1)" } 77, 4711, 89999;

# The index's answers, of a session that may build, are the table's.
sub answers_right
{
	my ($node) = @_;

	return $node->safe_psql('postgres', "$by_index $looks; $all") eq $node->safe_psql('postgres', "$by_table $looks; $all");
}

# more than eight components of sixteen pages, so that some are merged
$primary->safe_psql('postgres', q(
	CREATE TABLE t (id bigint, k bigint) WITH (autovacuum_enabled = off);
	INSERT INTO t SELECT -i, hashint8extended(-i, 1) FROM generate_series(1, 300000) i;
	CREATE INDEX t_k ON t USING cachebatch (k)));
insert_ids($primary, 'postgres', 't', 1, 90000);
$primary->wait_for_catchup($standby);

# the primary's entries lie below its buckets' from now on
crash_restart($primary);
ok(answers_right($primary), 'a crashed primary');
$standby->restart;
ok(answers_right($standby), 'a standby');

my %points = ('shared-read' => 9, 'shared-write' => 9, 'shared-merge' => 1);

foreach my $point (sort keys %points)
{
	my ($killed, $right) = (0, 0);

	foreach my $round (1 .. $rounds)
	{
		foreach my $node ($standby, $primary)
		{
			my $hit = 1 + int(rand($points{$point}));

			# a copy that is there is not built again
			$node->restart if $node->safe_psql('postgres', 'SELECT coalesce(sum(copied_entries), 0) FROM cache_batch_stat_buckets') > 0;
			$killed += run_killed($node, "$point=kill:$hit", "$by_index $all");
			$right += answers_right($node);
		}
	}
	is($killed, 2 * $rounds, "$point: killed on both sides");
	is($right, 2 * $rounds, "$point: answers after it");
}
sound($primary, 't', ['k'], 'at the end');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|is corrupted/, 'nothing bad in the log of ' . $_->name)
  foreach ($primary, $standby);
done_testing();
