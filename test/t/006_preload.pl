# Without the library preloaded every use fails with a clear error and hint,
# but the table stays usable enough to drop the index (C1).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('preload');
$node->safe_psql('postgres', q(
	CREATE TABLE t (id int, k int);
	CREATE INDEX t_k ON t USING cachebatch (k);
	INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
	ANALYZE t;
	CREATE DATABASE other));
$node->stop;

# a setting of the library is only a placeholder now
$node->append_conf('postgresql.conf',
	"shared_preload_libraries = ''\nwal_consistency_checking = 'all'\n");
$node->start;

my %use = (
	'an insertion' => 'INSERT INTO t VALUES (0, 0)',
	'a scan' => 'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT * FROM t ORDER BY k LIMIT 1',
	'a build' => 'CREATE INDEX ON t USING cachebatch (id)',
	'VACUUM' => 'DELETE FROM t WHERE id < 10; VACUUM (INDEX_CLEANUP ON) t',
	'REINDEX' => 'REINDEX INDEX t_k',
	'verification' => "SELECT cache_batch_verify('t_k')");
foreach my $what (sort keys %use)
{
	my ($rc, $out, $err) = $node->psql('postgres', $use{$what}, on_error_stop => 1);

	# a scan may avoid the index by its cost: then its answer must be right
	if ($what eq 'a scan' && $rc == 0)
	{
		is($out, '10|10', "$what does without the index");
		next;
	}
	isnt($rc, 0, "$what fails");
	like($err, qr/ERROR:.*shared_preload_libraries/s, "$what: the error says why");
}
my ($rc, $out, $err) = $node->psql('other', 'CREATE EXTENSION cache_batch');
isnt($rc, 0, 'CREATE EXTENSION fails');
like($err, qr/shared_preload_libraries/, 'and says why');

is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE id % 2 = 0 AND id > 500'), '250',
	'the table can be read');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE k > 998 AND id > 500'), '2',
	'also where the planner of version 18 asks for the end of an index');
$node->safe_psql('postgres', 'DROP INDEX t_k');
$node->safe_psql('postgres', 'INSERT INTO t VALUES (0, 0)');
pass('the index can be dropped, and the table used');

done_testing();
