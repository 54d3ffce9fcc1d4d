# A16: with old_snapshot_threshold VACUUM may remove what an old snapshot could
# see.  A reader that could miss entries has to fail: one that comes to a tree
# page changed since, and one that finds the journal truncated since.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

if (server_version() >= 17)
{
	plan skip_all => 'version 17 has no old_snapshot_threshold';
}
my $node = new_node('old', conf => "old_snapshot_threshold = 0\n");
my $forced = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';

$node->safe_psql('postgres', q(
	CREATE TABLE tree (k int);
	CREATE INDEX tree_k ON tree USING cachebatch (k) WITH (buffered = off);
	INSERT INTO tree VALUES (10), (20);
	CREATE TABLE journal (k int);
	CREATE INDEX journal_k ON journal USING cachebatch (k);
	INSERT INTO journal VALUES (10), (20)));

my %old;
foreach my $table (qw(tree journal))
{
	$old{$table} = $node->background_psql('postgres', on_error_stop => 0);
	$old{$table}->query_safe("$forced BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_am;");
}
is($old{journal}->query('SELECT k FROM journal WHERE k = 10;'), '10', 'nothing has changed yet');

# with a threshold of 0 a snapshot is old after five seconds
sleep 6;
$node->safe_psql('postgres', 'INSERT INTO tree VALUES (30)');
$node->safe_psql('postgres', q(SELECT cache_batch_flush('journal_k')));
foreach my $table (qw(tree journal))
{
	my $out = $old{$table}->query("SELECT k FROM $table WHERE k = 20;");

	like($old{$table}->{stderr}, qr/snapshot too old/, "the reader fails ($table)");
	is($out, '', "and returns nothing ($table)");
	$old{$table}->quit;
}

done_testing();
