# A13: the last journal page is torn by a crash after a checkpoint; the first
# append after the checkpoint has an image of it.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('torn');

$node->safe_psql('postgres', q(
	CREATE TABLE o (k int);
	CREATE INDEX o_k ON o USING cachebatch (k);
	INSERT INTO o SELECT i FROM generate_series(1, 20) i));
my $block = $node->safe_psql('postgres', q(SELECT block FROM cache_batch_journal('o_k')));
my $file = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('o_k')));

$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', 'INSERT INTO o SELECT i FROM generate_series(21, 40) i');
$node->stop('immediate');

# half of the page is from another time
open my $fh, '+<:raw', $file or die "$file: $!";
seek $fh, $block * 8192, 0;
print $fh "\xff" x 4096;
close $fh;

$node->start;
sound($node, 'o', ['k'], 'whole after recovery');
is($node->safe_psql('postgres', 'SELECT count(*) FROM o WHERE k > 0'), '40', 'all rows are there');

# the record of a split has images of all its pages, whatever the settings (U12)
$node->append_conf('postgresql.conf', 'full_page_writes = off');
$node->reload;
$node->safe_psql('postgres', q(SELECT cache_batch_flush('o_k')));
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', 'INSERT INTO o SELECT i FROM generate_series(1, 3000) i') for 1 .. 2;
$node->safe_psql('postgres', q(SELECT cache_batch_flush('o_k')));
cmp_ok($node->safe_psql('postgres', q(SELECT sum(splits) FROM cache_batch_stat_indexes)), '>', 0, 'there were splits');
crash_restart($node);
sound($node, 'o', ['k'], 'whole after a crash in which pages were split');
done_testing();
