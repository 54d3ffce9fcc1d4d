# An error at every test point leaves nothing behind: what the rest of the
# transaction staged is published, locks and marks are gone (A9, B3, I5).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('errors', conf => "cache_batch.stage_size = 8\n");
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my %points = test_points();

my $many = join ';', map {
	my $low = 110000 + $_ * 100;
	"INSERT INTO e SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series($low, $low + 80) i"
} 1 .. 12;
my $dense = q(INSERT INTO e SELECT i, 2000000 + i, lpad(i::text, 100, 'z') FROM generate_series(200000, 206000) i);
my $work = "$many; $dense; SELECT cache_batch_flush('e_k'), cache_batch_flush('e_s')";

foreach my $point (sort keys %points)
{
	# these run while a transaction ends: an error is of another kind there
	next if $point eq 'abort-drop';

	foreach my $hit (1, 3, 20)
	{
		$node->safe_psql('postgres', q(
			DROP TABLE IF EXISTS e;
			CREATE TABLE e (id int, k int, s text);
			CREATE INDEX e_k ON e USING cachebatch (k);
			CREATE INDEX e_s ON e USING cachebatch (s) WITH (fillfactor = 100);
			INSERT INTO e SELECT i, hashint4(i) % 1000000, md5(i::text) FROM generate_series(1, 3000) i));

		# all in one session: rows before, the error, rows after
		my ($rc, $out, $err) = $node->psql('postgres', qq(
			BEGIN;
			INSERT INTO e SELECT -i, i, i FROM generate_series(1, 60) i;
			SAVEPOINT a;
			SET LOCAL cache_batch.test_points = '$point=error:$hit';
			$work;
			ROLLBACK TO a;
			INSERT INTO e SELECT -i, i, i FROM generate_series(61, 120) i;
			COMMIT;
			SET cache_batch.test_points = '$point=error:$hit';
			$work;
			DELETE FROM e WHERE id % 3 = 0;
			VACUUM (INDEX_CLEANUP ON) e;
			REINDEX TABLE e;
			RESET cache_batch.test_points;
			INSERT INTO e SELECT -i, i, i FROM generate_series(121, 180) i;),
			on_error_stop => 0);
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
