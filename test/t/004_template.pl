# CREATE DATABASE from a template with a live journal, both strategies (A3).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('template');

$node->safe_psql('postgres', 'CREATE DATABASE origin');
$node->safe_psql('origin', q(
	CREATE EXTENSION cache_batch;
	CREATE TABLE t (id int, k int);
	CREATE INDEX t_k ON t USING cachebatch (k);
	INSERT INTO t SELECT i, hashint4(i) FROM generate_series(1, 3000) i;
	INSERT INTO t SELECT i, hashint4(i) FROM generate_series(3001, 3100) i));
cmp_ok($node->safe_psql('origin', q(SELECT sum(nentries) FROM cache_batch_journal('t_k'))),
	'>', 0, 'the journal is live');

foreach my $strategy ('file_copy', 'wal_log')
{
	$node->safe_psql('postgres', "CREATE DATABASE $strategy TEMPLATE origin STRATEGY $strategy");
	sound($node, 't', ['k'], "$strategy: the copy", $strategy);
	$node->safe_psql($strategy, q(
		INSERT INTO t SELECT i, hashint4(i) FROM generate_series(4001, 4200) i;
		DELETE FROM t WHERE id % 2 = 0; VACUUM t));
	sound($node, 't', ['k'], "$strategy: the copy in use", $strategy);
	sound($node, 't', ['k'], "$strategy: the original is not touched", 'origin');
	$node->safe_psql('origin', 'INSERT INTO t SELECT i, i FROM generate_series(1, 20) i');
}
crash_restart($node);
sound($node, 't', ['k'], "$_ after a crash", $_) foreach 'origin', 'file_copy', 'wal_log';

# the same OID again, with another history
my $oid = $node->safe_psql('postgres', q(SELECT oid FROM pg_database WHERE datname = 'wal_log'));
$node->safe_psql('postgres', 'DROP DATABASE wal_log');
$node->safe_psql('postgres', "CREATE DATABASE wal_log TEMPLATE origin OID $oid");
sound($node, 't', ['k'], 'a database made again with the same OID', 'wal_log');
$node->safe_psql('postgres', 'DROP DATABASE origin');

done_testing();
