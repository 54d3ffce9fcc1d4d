# Free pages of an index: what it takes to put them into the map does not depend
# on the index's size; those that a crash took out of it are found again, also if
# nothing ever dies in the table.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('free_pages', conf => <<'EOC');
cache_batch.max_workers = 0
cache_batch.journal_limit = '1GB'
EOC

# ------------------------------------------------------------ a large map

# Two indexes with the same entries.  One has many free pages as well, all-zero
# ones at its end, and as many pages in its map as one of 800 MB.
foreach my $table (qw(small large))
{
	$node->safe_psql('postgres', qq(
		CREATE TABLE $table (k int) WITH (autovacuum_enabled = off);
		CREATE INDEX ${table}_k ON $table USING cachebatch (k) WITH (fillfactor = 50);
		INSERT INTO $table SELECT i * 1000 FROM generate_series(1, 20000) i;
		SELECT cache_batch_flush('${table}_k')));
}
my $file = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('large_k')));
$node->stop;
truncate($file, 100_000 * 8192) or die "$file: $!";
$node->start;
foreach my $table (qw(small large))
{
	$node->safe_psql('postgres', "DELETE FROM $table WHERE k = 1000; VACUUM (INDEX_CLEANUP ON) $table");
}

# Buffers that a query uses, those of maps among them.
sub buffers
{
	my ($setup, $query) = @_;
	my $plan = $node->safe_psql('postgres', "$setup; EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) $query");
	my ($buffers) = $plan =~ /^\s*Buffers: shared (.*)$/m;
	my $n = 0;

	$n += $1 while $buffers =~ /(?:hit|read)=(\d+)/g;
	return $n;
}

sub same_for_both
{
	my ($setup, $query, $what) = @_;
	my %n;

	foreach my $table (qw(small large))
	{
		$n{$table} = buffers(map { s/TABLE/$table/gr } $setup, $query);
	}
	cmp_ok($n{large} - $n{small}, '<', 15, "$what: $n{small} buffers of a small index, $n{large} of a large one");
	return;
}

# few entries for each leaf, so that they are journaled, and split none
my $some = join ';', map { "INSERT INTO TABLE SELECT i * 40000 + $_ FROM generate_series(1, 500) i" } 1 .. 3;
same_for_both($some, q(SELECT cache_batch_flush('TABLE_k')), 'a flush that truncates the journal');
same_for_both('SELECT 1', q(SELECT cache_batch_compact('TABLE_k')), 'packing');
sound($node, 'large', ['k'], 'whole after that');
$node->safe_psql('postgres', 'DROP TABLE small, large');

# ------------------------------------------------------------ a lost map

# Entries for 70 pages of the journal, few for each leaf.
my $unbucketed = 'SET cache_batch.test_buckets = off';
my $entries = join ';', map { "INSERT INTO lost SELECT i * 1000 + $_ FROM generate_series(1, 500) i" } 1 .. 60;

# The index's pages, used or free.
sub pages
{
	my ($server) = @_;

	return $server->safe_psql('postgres', q(SELECT pg_relation_size('lost_k') / 8192));
}

# How many free pages does VACUUM find, which finds no dead row?  0: it does not look.
sub looks
{
	my ($server, $table) = @_;
	my (undef, undef, $err) = $server->psql('postgres', "VACUUM (VERBOSE, INDEX_CLEANUP ON, TRUNCATE OFF) $table");

	like($err, qr/tuples: 0 removed/, 'nothing is dead');
	return $err =~ /index "${table}_k": pages: .* (\d+) reusable/ ? $1 : 0;
}

SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 15 unless test_points_built($node);

	$node->safe_psql('postgres', "$unbucketed;
		CREATE TABLE lost (k int) WITH (autovacuum_enabled = off);
		INSERT INTO lost SELECT i * 10 FROM generate_series(1, 50000) i;
		CREATE INDEX lost_k ON lost USING cachebatch (k);
		$entries");
	ok(run_killed($node, 'sweep-truncated=kill:1', "$unbucketed; SELECT cache_batch_flush('lost_k')"),
		'killed between the truncation and the map');
	cmp_ok(looks($node, 'lost'), '>', 20, 'VACUUM finds the pages');
	my $before = pages($node);
	$node->safe_psql('postgres', "$unbucketed; $entries");
	is(pages($node), $before, 'they are used again');
	is(looks($node, 'lost'), 0, 'it does not look for more');
	$node->restart;
	is(looks($node, 'lost'), 0, 'nor after the server was stopped and started');
	sound($node, 'lost', ['k'], 'whole after that');

	# a standby has no map
	my $standby = new_standby($node, 'standby');
	$node->safe_psql('postgres', "$unbucketed; $entries; SELECT cache_batch_flush('lost_k')");
	$node->wait_for_catchup($standby);
	$standby->promote;
	cmp_ok(looks($standby, 'lost'), '>', 20, 'VACUUM finds the free pages of a standby that was promoted');
	sound($standby, 'lost', ['k'], 'standby after that');
}

# ------------------------------------------------------------ not free yet

# Leaves that VACUUM deletes while a query could still come to them by a link.
$node->safe_psql('postgres', q(
	CREATE TABLE late (k int) WITH (autovacuum_enabled = off);
	INSERT INTO late SELECT generate_series(1, 50000);
	CREATE INDEX late_k ON late USING cachebatch (k) WITH (pack_leaves = off);
	DELETE FROM late WHERE k > 10000));
my $reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM late');
$node->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) late');
is(looks($node, 'late'), 0, 'none of them is free as long as the query runs');
$reader->quit;
$node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
cmp_ok(looks($node, 'late'), '>', 50, 'the next VACUUM finds them');
is(looks($node, 'late'), 0, 'and does not look again');

# Those that packing puts into the map do not hide others, which are free.
sub grown
{
	my ($first) = @_;

	$node->safe_psql('postgres', "INSERT INTO hidden SELECT hashint4(i) FROM generate_series($first, $first + 4999) i;
		SELECT cache_batch_flush('hidden_k')");
	return $node->safe_psql('postgres', q(SELECT pg_relation_size('hidden_k') / 8192));
}
$node->safe_psql('postgres', q(
	CREATE TABLE hidden (k int) WITH (autovacuum_enabled = off);
	CREATE INDEX hidden_k ON hidden USING cachebatch (k);
	INSERT INTO hidden SELECT hashint4(i) FROM generate_series(1, 60000) i;
	SELECT cache_batch_flush('hidden_k');
	INSERT INTO hidden SELECT hashint4(i) FROM generate_series(1, 30000) i;
	SELECT cache_batch_flush('hidden_k');
	VACUUM hidden));
$reader = $node->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hidden');
cmp_ok($node->safe_psql('postgres', q(SELECT cache_batch_compact('hidden_k'))), '>', 4, 'packing has deleted leaves');
my $size = grown(100_001);
is(grown(100_001 + $_ * 5000), $size, 'free pages are used beside those that are not free yet') foreach 1 .. 4;
$reader->quit;
sound($node, 'hidden', ['k'], 'whole after that');

done_testing();
