# VACUUM takes empty leaves out of the tree: on a standby with a query that
# stands beside them, after a split that a crash left incomplete, and for the
# size of an index whose oldest rows are deleted regularly.
use strict;
use warnings;

use CacheBatch;
use List::Util qw(max min);
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', conf => "cache_batch.max_workers = 0\n");
my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = 0\n");

# Leaves of six entries; the third to sixth loses all that it has from 150 on.
sub fill
{
	my ($node, $table) = @_;

	$node->safe_psql('postgres', qq(
		CREATE TABLE $table (id int, k text);
		ALTER TABLE $table ALTER k SET STORAGE PLAIN;
		CREATE INDEX ${table}_k ON $table USING cachebatch (id, k);
		INSERT INTO $table SELECT i, lpad(i::text, 1000, '0') FROM generate_series(10, 500, 10) i;
		SELECT cache_batch_flush('${table}_k')));
	$node->safe_psql('postgres', "DELETE FROM $table WHERE id BETWEEN 150 AND 380");
	return;
}

sub pages
{
	my ($node, $index, $type) = @_;

	return $node->safe_psql('postgres', qq(
		SELECT count(*) FROM generate_series(1, pg_relation_size('$index') / 8192 - 1) b,
			cache_batch_page('$index', b) p WHERE p.type = '$type'));
}

# leaves whose right neighbours have no downlink
sub incomplete
{
	my ($node, $index) = @_;

	return $node->safe_psql('postgres', qq(
		SELECT count(*) FROM generate_series(1, pg_relation_size('$index') / 8192 - 1) b,
			cache_batch_page('$index', b) p WHERE 'incomplete_split' = ANY (p.flags)));
}

# ------------------------------------------------------------ standby

my $plain = join ' ', map { "SET enable_$_ = off;" } qw(seqscan bitmapscan indexonlyscan sort);
my $scan = 'CURSOR FOR SELECT id FROM us WHERE id > 0 ORDER BY id';
my $vacuum = 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) us';

# its last entry is dead, and leaves no conflict when it is removed
my $dead = 'BEGIN; INSERT INTO us VALUES (0); ROLLBACK;';

fill($primary, 'us');
$primary->wait_for_catchup($standby);
my $reader = $standby->background_psql('postgres', on_error_stop => 0);
$reader->query_safe("$plain BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE a $scan; DECLARE b $scan;");
is($reader->query_safe("MOVE 12 FROM $_; FETCH 1 FROM $_"), '130', "cursor $_ stands left of a leaf without rows") foreach qw(a b);

$primary->safe_psql('postgres', $vacuum);
is(pages($primary, 'us_k', 'deleted'), '3', 'leaves were deleted');
$primary->wait_for_catchup($standby);
is($reader->query_safe('FETCH 3 FROM a'), "140\n390\n400", 'a query goes on over the deleted leaves');
sound($standby, 'us', ['id'], 'standby after the deletion');

# the pages become free, and are used again
$primary->safe_psql('postgres', $dead);
$primary->safe_psql('postgres', $vacuum);
$primary->wait_for_catchup($standby);
is($reader->query_safe('SELECT count(*) FROM us'), '26', 'nothing conflicts before that');
$primary->safe_psql('postgres', q(
	INSERT INTO us SELECT i, lpad(i::text, 1000, '0') FROM generate_series(1000, 1300, 10) i;
	SELECT cache_batch_flush('us_k')));
is(pages($primary, 'us_k', 'deleted'), '0', 'the pages are used again');
$primary->wait_for_catchup($standby);
is($reader->query_safe('FETCH 3 FROM b'), "140\n390\n400", 'a query that has a link to such a page goes on');
sound($standby, 'us', ['id'], 'standby after the reuse');
sound($primary, 'us', ['id'], 'primary after the reuse');
$reader->quit;

# whole parents, with long separators
$primary->safe_psql('postgres', q(
	CREATE TABLE ud (k text);
	ALTER TABLE ud ALTER k SET STORAGE PLAIN;
	CREATE INDEX ud_k ON ud USING cachebatch (k);
	INSERT INTO ud SELECT lpad(i::text, 1000, '0') FROM generate_series(1000, 2000) i;
	SELECT cache_batch_flush('ud_k');
	DELETE FROM ud WHERE k > lpad('1100', 1000, '0');
	VACUUM (INDEX_CLEANUP ON) ud));
cmp_ok(pages($primary, 'ud_k', 'leaf'), '<', 35, 'leaves of whole parents were deleted');
cmp_ok(pages($primary, 'ud_k', 'internal'), '<', 20, 'the parents too');
$primary->wait_for_catchup($standby);
foreach my $node ($primary, $standby)
{
	sound($node, 'ud', ['k'], $node->name . ' after the deletion of parents');
}
$standby->stop;

# ------------------------------------------------------------ buckets

# their bounds were those of leaves, which are deleted; the leaves that take
# over the ranges have entries of several buckets
$primary->safe_psql('postgres', q(
	CREATE TABLE ub (id int, k text);
	ALTER TABLE ub ALTER k SET STORAGE PLAIN;
	INSERT INTO ub SELECT i, lpad(i::text, 1000, '0') FROM generate_series(1000, 2000) i;
	CREATE INDEX ub_k ON ub USING cachebatch (id, k);
	INSERT INTO ub SELECT i, 'attached' FROM generate_series(1000, 2000, 100) i;
	DELETE FROM ub WHERE id BETWEEN 1050 AND 1950));
cmp_ok($primary->safe_psql('postgres', q(SELECT buckets FROM cache_batch_stat_buckets WHERE indexrelname = 'ub_k')),
	'>', 4, 'an index with several buckets');
$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) ub');
$primary->safe_psql('postgres', q(
	INSERT INTO ub SELECT i, lpad(i::text, 1000, '0') FROM generate_series(1100, 1900, 50) i;
	SELECT cache_batch_flush('ub_k');
	INSERT INTO ub SELECT i, 'waiting' FROM generate_series(1100, 1900, 40) i));
sound($primary, 'ub', ['id'], 'whole with bounds of buckets inside leaves');

# ------------------------------------------------------------ crash

# the left neighbour of the first empty leaf is split, but its parent not told
SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 14 unless test_points_built($primary);

	fill($primary, 'uc');
	$primary->safe_psql('postgres', q(INSERT INTO uc SELECT i, lpad(i::text, 1000, '0') FROM generate_series(181, 189) i;
		INSERT INTO uc SELECT i, lpad(i::text, 1000, '0') || 'x' FROM generate_series(181, 189) i));
	ok(run_killed($primary, 'split-after=kill:1', q(SELECT cache_batch_flush('uc_k'))), 'killed after a split');
	$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) uc');
	is(pages($primary, 'uc_k', 'deleted'), '3', 'leaves were deleted all the same');
	sound($primary, 'uc', ['id'], 'whole after the split was completed');
	crash_restart($primary);
	sound($primary, 'uc', ['id'], 'whole after another crash');

	# A leaf was split into nine by a transaction that is gone, so no writer comes
	# there again.  The first two have a row that is alive each and stay, so the
	# first one to go stands right of one that has no downlink itself.
	foreach my $sql ('VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) um', "SELECT cache_batch_compact('um_k')")
	{
		fill($primary, 'um');
		$primary->safe_psql('postgres', q(
			INSERT INTO um VALUES (205, lpad('0', 1000, '0')), (205, lpad('106', 1000, '0'));
			SELECT cache_batch_flush('um_k')));
		ok(run_killed($primary, 'split-after=kill:1',
			q(INSERT INTO um SELECT 205, lpad(i::text, 1000, '0') FROM generate_series(101, 250) i)),
			'killed after a split into many');
		is(incomplete($primary, 'um_k'), '8', 'all of them lack downlinks');
		my (undef, undef, $err) = $primary->psql('postgres', $sql);
		is($err, '', "$sql finds no fault");
		is(incomplete($primary, 'um_k'), '0', 'it has completed the splits');
		sound($primary, 'um', ['id'], 'whole after that');
		$primary->safe_psql('postgres', 'DROP TABLE um');
	}
}

# ------------------------------------------------------------ retention

# by keys that ascend, descend, and are random; with those leaves seldom become
# empty, and now and then one is split yet

$primary->safe_psql('postgres', q(
	CREATE TABLE r (at int, k int, t text);
	CREATE INDEX r_at ON r USING cachebatch (at);
	CREATE INDEX r_desc ON r USING cachebatch (at DESC);
	CREATE INDEX r_t ON r USING cachebatch (t);
	CREATE INDEX r_k ON r USING cachebatch (k)));
my %sizes;
my $cycles = 20;
foreach my $cycle (1 .. $cycles)
{
	$primary->safe_psql('postgres', join ';', map {
		"INSERT INTO r SELECT i, hashint4(i), lpad(i::text, 100, '0') FROM generate_series($cycle * 4000 + $_ * 500, $cycle * 4000 + $_ * 500 + 499) i"
	} 0 .. 7);
	$primary->safe_psql('postgres', "DELETE FROM r WHERE at < ($cycle - 1) * 4000; VACUUM (INDEX_CLEANUP ON) r");
	push @{ $sizes{$_} }, $primary->safe_psql('postgres', "SELECT pg_relation_size('$_') / 8192") foreach indexes_of($primary, 'r');
}
foreach my $index (sort keys %sizes)
{
	my @last = @{ $sizes{$index} }[ $cycles - 10 .. $cycles - 1 ];

	my $slack = $index eq 'r_k' ? 0.1 * $last[0] : 2;

	cmp_ok(max(@last) - min(@last), '<=', $slack, "$index keeps its size over ten cycles");
	note("$index: @{ $sizes{$index} }");
}
sound($primary, 'r', [qw(at k t)], 'whole after all cycles');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log of ' . $_->name)
  foreach ($primary, $standby);
done_testing();
