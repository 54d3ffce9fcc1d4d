# Free pages of an index: what it takes to put them into the map does not depend
# on the index's size.
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
same_for_both('SELECT 1', q(SELECT cache_batch_cool('TABLE_k')), 'packing');
sound($node, 'large', ['k'], 'whole after that');

done_testing();
