# An index-only scan that is open on a standby keeps no page of the index pinned:
# replay of VACUUM goes on, no query is cancelled for it, and the answer is right
# although TIDs have other rows by then.  So it is when the standby is promoted
# meanwhile, and VACUUM runs there (I8).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary');
my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = 0\n");

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;';
my $query = 'SELECT k FROM p WHERE k >= 2 ORDER BY k';
my $vacuum = "SET statement_timeout = '20s'; VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) p";

# Even keys stay.  Odd ones are dead in the same leaves, and on pages of the table
# that the scan has not come to when it stops at the first row.
$primary->safe_psql('postgres', q(
	CREATE TABLE p (k int, t text) WITH (autovacuum_enabled = off);
	INSERT INTO p SELECT 2 * i, repeat('x', 500) FROM generate_series(1, 100) i;
	CREATE INDEX p_k ON p USING cachebatch (k)));

sub make_dead
{
	$primary->safe_psql('postgres', q(
		INSERT INTO p SELECT 2 * i + 1, repeat('x', 500) FROM generate_series(1, 100) i;
		SELECT cache_batch_flush('p_k');
		DELETE FROM p WHERE k % 2 = 1));
	$primary->wait_for_catchup($standby);
}

# The session that has opened the scan.
sub open_scan
{
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);

	like($reader->query_safe("$by_index EXPLAIN $query"), qr/Index Only Scan using p_k/, 'an index-only scan');
	is($reader->query_safe("BEGIN; DECLARE c CURSOR FOR $query; FETCH 1 FROM c"), '2', 'it has begun');
	return $reader;
}

# What the scan has yet to return; '' if its session was ended.
sub rest_of_scan
{
	my ($reader) = @_;
	my $rest = eval { $reader->query('FETCH ALL FROM c; COMMIT') } // '';

	eval { $reader->quit };
	return $rest;
}

# VACUUM removes the dead entries, and their TIDs are given to other rows.
sub reuse_tids
{
	my ($node) = @_;
	my $name = $node->name;
	my $size = $node->safe_psql('postgres', q(SELECT pg_relation_size('p')));
	my ($ret, $out, $err) = $node->psql('postgres', $vacuum);

	is("$ret $err", '0 ', "VACUUM on the $name");
	$node->safe_psql('postgres', q(INSERT INTO p SELECT 1001, repeat('x', 500) FROM generate_series(1, 80)));
	is($node->safe_psql('postgres', q(SELECT pg_relation_size('p'))), $size, "TIDs have new rows on the $name");
}

my $rest = join("\n", map { 2 * $_ } 2 .. 100);

make_dead();
my $reader = open_scan();
reuse_tids($primary);
$primary->wait_for_catchup($standby);
is(rest_of_scan($reader), $rest, 'a scan on the standby while VACUUM is replayed');
$primary->safe_psql('postgres', "DELETE FROM p WHERE k = 1001; $vacuum");

# the visibility map says then that all see what is on these pages
make_dead();
$reader = open_scan();
$primary->safe_psql('postgres', $vacuum);
$primary->wait_for_catchup($standby);
is(rest_of_scan($reader), $rest, 'a scan on the standby while dead rows go');

make_dead();
$reader = open_scan();
my $old = $standby->background_psql('postgres', on_error_stop => 0);
$old->query_safe("$by_index BEGIN; SELECT 1");
$primary->stop;
$standby->promote;
reuse_tids($standby);
is(rest_of_scan($reader), $rest, 'a scan that was begun before the promotion');

# a transaction from before it that scans when VACUUM has begun, and not yet come to the leaf
SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 1 unless test_points_built($standby);
	my $holder = $standby->background_psql('postgres');
	my $vacuums = $standby->background_psql('postgres', on_error_stop => 0);

	$standby->safe_psql('postgres', 'DELETE FROM p WHERE k = 1001');
	$standby->safe_psql('postgres', $vacuum);
	$standby->safe_psql('postgres', q(INSERT INTO p SELECT 2 * i + 1, repeat('x', 500) FROM generate_series(1, 100) i;
		SELECT cache_batch_flush('p_k')));
	$standby->safe_psql('postgres', 'DELETE FROM p WHERE k % 2 = 1');
	$holder->query_safe('SELECT pg_advisory_lock(9)');
	$vacuums->query_until(qr/begun/, "SET cache_batch.test_points = 'vacuum-counted=wait:9';\n\\echo begun\nVACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) p;\n");
	$standby->poll_query_until('postgres', q(SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)));
	$old->query_safe("DECLARE c CURSOR FOR $query; FETCH 1 FROM c");
	$holder->quit;
	$vacuums->quit;
	is(rest_of_scan($old), $rest, 'a transaction from before the promotion, and VACUUM after it');
}
sound($standby, 'p', ['k'], 'the promoted server');

done_testing();
