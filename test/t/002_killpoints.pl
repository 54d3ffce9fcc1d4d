# A backend is killed at every test point of publish, sweep, split, truncate,
# build and VACUUM; after recovery the index is whole, and stays so in use.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('killpoints', conf => "cache_batch.stage_size = 8\n");
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my $srcdir = $ENV{CB_SRCDIR} || '..';
my $sources = join '', map { slurp_file($_) } glob("$srcdir/src/*/*.c");

my $sparse = q(INSERT INTO kp SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series(100001, 100040) i);
my $many = join ';', map {
	my $low = 110000 + $_ * 100;
	"INSERT INTO kp SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series($low, $low + 80) i"
} 1 .. 12;
my $flush = "$many; SELECT cache_batch_flush('kp_k'); SELECT cache_batch_flush('kp_s')";
my $dense = q(INSERT INTO kp SELECT i, 2000000 + i, lpad(i::text, 100, 'z') FROM generate_series(200000, 206000) i);
my $vacuum = "$sparse; DELETE FROM kp WHERE id % 3 = 0; VACUUM (INDEX_CLEANUP ON) kp";

# point => [statement, hits to let pass ...]
my %scenario = (
	'publish-start' => [ $sparse, 1, 2 ],
	'publish-sorted' => [ $sparse, 1, 2 ],
	'publish-appended' => [ $sparse, 1, 2 ],
	'publish-done' => [ $sparse, 1, 2 ],
	'precommit-published' => [ "BEGIN; $sparse; COMMIT", 1 ],
	'abort-drop' => [ 'BEGIN; INSERT INTO kp SELECT 1, i, 1 / (i - 50) FROM generate_series(1, 100) i; ROLLBACK', 1 ],
	'stage-insert' => [ $sparse, 1, 17 ],
	'journal-append-before' => [ $many, 1, 5 ],
	'journal-append-after' => [ $many, 1, 5 ],
	'journal-newpage' => [ $many, 1, 3 ],
	'sweep-start' => [ $flush, 1, 2 ],
	'sweep-read' => [ $flush, 1, 2 ],
	'sweep-applied' => [ $flush, 1, 2 ],
	'sweep-truncate' => [ $flush, 1, 2 ],
	'sweep-truncated' => [ $flush, 1, 2 ],
	'apply-leaf' => [ $flush, 1, 7, 31 ],
	'split-before' => [ $dense, 1, 2, 5 ],
	'split-after' => [ $dense, 1, 2, 5 ],
	'split-parent' => [ $dense, 1, 2, 5 ],
	'newroot' => [ "TRUNCATE kp; $dense", 1, 2 ],
	'vacuum-drained' => [ $vacuum, 1, 2 ],
	'vacuum-leaf' => [ $vacuum, 1, 4 ],
	'load-page' => [ 'REINDEX TABLE kp', 1, 9 ]);

foreach my $point (sort keys %scenario)
{
	my ($sql, @hits) = @{ $scenario{$point} };

  SKIP:
	{
		skip "no test point $point", 1 unless $sources =~ /"$point"/;
		foreach my $hit (@hits)
		{
			$node->safe_psql('postgres', q(
				DROP TABLE IF EXISTS kp;
				CREATE TABLE kp (id int, k int, s text);
				CREATE INDEX kp_k ON kp USING cachebatch (k);
				CREATE INDEX kp_s ON kp USING cachebatch (s) WITH (fillfactor = 100);
				INSERT INTO kp SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series(1, 4000) i));
			ok(run_killed($node, "$point=kill:$hit", $sql), "killed at hit $hit of $point");
			sound($node, 'kp', [qw(k s)], "$point, hit $hit: whole after recovery");
			$node->safe_psql('postgres', "$many; $dense; DELETE FROM kp WHERE id % 7 = 0; VACUUM kp");
			sound($node, 'kp', [qw(k s)], "$point, hit $hit: whole in use");
		}
	}
}

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log');
done_testing();
