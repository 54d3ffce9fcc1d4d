# An error at every test point leaves nothing behind: what the rest of the
# transaction staged is published, locks and marks are gone (A9, B3, I5).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

# nothing is recovered here, so that there is nothing to compare then
my $node = new_node('errors', conf => <<'EOC');
cache_batch.stage_size = 8
wal_consistency_checking = ''
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my %points = test_points();

my $many = join ';', map {
	my $low = 110000 + $_ * 100;
	"INSERT INTO e SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series($low, $low + 80) i"
} 1 .. 12;
my $dense = q(INSERT INTO e SELECT i, 2000000 + i, lpad(i::text, 100, 'z') FROM generate_series(200000, 202000) i);
my $work = "$many; $dense; SELECT cache_batch_flush('e_k'), cache_batch_flush('e_s')";

sub make_table
{
	$node->safe_psql('postgres', q(
		DROP TABLE IF EXISTS e;
		CREATE TABLE e (id int, k int, s text);
		CREATE INDEX e_k ON e USING cachebatch (k);
		CREATE INDEX e_s ON e USING cachebatch (s) WITH (fillfactor = 100);
		INSERT INTO e SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series(1, 3000) i));
	return;
}

# All in one session: rows before, the error, rows after; in a subtransaction,
# and without one.  Shows the hits of each time.
sub work_with
{
	my ($test_points) = @_;

	return $node->psql('postgres', qq(
		BEGIN;
		INSERT INTO e SELECT -i, i, i FROM generate_series(1, 60) i;
		SAVEPOINT a;
		SET LOCAL cache_batch.test_points = '$test_points';
		$work;
		SHOW cache_batch.test_point_hits;
		ROLLBACK TO a;
		INSERT INTO e SELECT -i, i, i FROM generate_series(61, 120) i;
		COMMIT;
		SET cache_batch.test_points = '$test_points';
		$work;
		DELETE FROM e WHERE id % 3 = 0;
		VACUUM (INDEX_CLEANUP ON) e;
		REINDEX TABLE e;
		SHOW cache_batch.test_point_hits;
		RESET cache_batch.test_points;
		INSERT INTO e SELECT -i, i, i FROM generate_series(121, 180) i;),
		on_error_stop => 0);
}

# how often each point is reached, a list of points at a time
my @uncounted = sort keys %points;
my %hits;

while (my @list = splice @uncounted, 0, 30)
{
	make_table();
	my ($rc, $out) = work_with(join ',', map { "$_=count" } @list);
	while ($out =~ /([a-z-]+):(\d+)/g)
	{
		$hits{$1} = $2 if $2 > ($hits{$1} // 0);
	}
}
cmp_ok(scalar(keys %hits), '>=', 30, 'most points are reached');

foreach my $point (sort keys %hits)
{
	# these run while a transaction ends: an error is of another kind there
	next if $point eq 'abort-drop';

	foreach my $hit (grep { $_ <= $hits{$point} } 1, 3, 20)
	{
		make_table();
		my ($rc, $out, $err) = work_with("$point=error:$hit");
		isnt($rc, 2, "$point, hit $hit: the session lives") or diag($err);
		my @others = grep { /ERROR|FATAL|PANIC|WARNING/ && !/error at test point|current transaction is aborted/ } split /\n/, $err;
		is(join("\n", @others), '', "$point, hit $hit: no error but ours");
		is($node->safe_psql('postgres', 'SELECT count(*) FROM e WHERE id < -120'), 60,
			"$point, hit $hit: rows inserted after the errors");
		sound($node, 'e', [qw(k s)], "$point, hit $hit: whole");
		is($node->safe_psql('postgres', "$work; VACUUM e; SELECT 'used'") =~ s/.*\n//sr, 'used', "$point, hit $hit: in use");
		sound($node, 'e', [qw(k s)], "$point, hit $hit: whole in use");
	}
}

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|still unpublished|leak/, 'nothing bad in the log');
done_testing();
