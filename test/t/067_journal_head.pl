# The journal's last page is found without its other pages, also by the first session
# after a restart, when nobody has noted it.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('journal_head', conf => <<EOC);
cache_batch.pool_size = 64MB
cache_batch.journal_limit = 64MB
cache_batch.max_workers = 0
autovacuum = off
EOC

sub one
{
	my ($query) = @_;

	return $node->safe_psql('postgres', $query);
}

sub insert_rows
{
	my ($from, $to) = @_;

	one("INSERT INTO t SELECT hashint4(n), repeat('x', 100) || n FROM generate_series($from, $to) n");
	return;
}

# One row, published at commit, where nothing is flushed.
sub insert_at_commit
{
	one("DO \$\$ BEGIN INSERT INTO t VALUES (1, 'x'); COMMIT; END \$\$");
	return;
}

# Pages of the index that were asked for since the server was started.
sub pages
{
	my $read = "SELECT idx_blks_hit + idx_blks_read FROM pg_statio_user_indexes "
		. "WHERE indexrelname = 't_k'";

	$node->poll_query_until('postgres', "SELECT ($read) > 0") or die 'no statistics came';
	return one($read);
}

sub journal_pages
{
	return one("SELECT journal_bytes / 8192 FROM cache_batch_stat_buckets WHERE indexrelname = 't_k'");
}

one('CREATE TABLE t (k int, s text); CREATE INDEX t_k ON t USING cachebatch (k, s)');
insert_rows(1, 20000);
cmp_ok(journal_pages(), '>', 200, 'there is a journal');
crash_restart($node);
insert_at_commit();
cmp_ok(pages(), '<', 80, 'its end is found by a few pages');
cmp_ok(journal_pages(), '>', 200, '... and all of it is there');
sound($node, 't', ['k'], 'one run of pages');

# its pages come from here and there in the file: leaves have got some between
insert_rows(20001, 100000);
for (1 .. 300)
{
	one("SELECT cache_batch_flush('t_k')");
	insert_rows(100001 + 30 * $_, 100030 + 30 * $_);
}
one("SELECT cache_batch_flush('t_k')");
insert_rows(200001, 300000);
crash_restart($node);
insert_at_commit();
my $n = journal_pages();
cmp_ok($n, '>', 200, 'there is a journal again');
cmp_ok(pages(), '<', 0.4 * $n, '... whose end is found by a part of them');
sound($node, 't', ['k'], 'many runs of pages');

$node->stop;
done_testing();
