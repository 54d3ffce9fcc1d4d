# Logical replication: the apply and table synchronisation workers run no
# executor, so entries wait for the commit there, or for a full stage.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('logical', conf => "wal_level = logical\ncache_batch.stage_size = 8\n");

$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->safe_psql('copy', 'CREATE EXTENSION cache_batch');
foreach my $db ('postgres', 'copy')
{
	$node->safe_psql($db, q(
		CREATE TABLE t (id int PRIMARY KEY, k int);
		CREATE INDEX t_k ON t USING cachebatch (k);
		CREATE INDEX t_id ON t USING cachebatch (id);
		CREATE TABLE log (n int);
		CREATE INDEX log_n ON log USING cachebatch (n)));
}

# a trigger of the subscriber looks through the index at what is staged
$node->safe_psql('copy', q(
	CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql SET enable_seqscan = off SET search_path = public AS
		$$ BEGIN INSERT INTO log SELECT count(*) FROM t WHERE k = NEW.k; RETURN NULL; END $$;
	CREATE TRIGGER look AFTER INSERT ON t FOR EACH ROW WHEN (NEW.id >= 50000) EXECUTE FUNCTION look();
	ALTER TABLE t ENABLE ALWAYS TRIGGER look));

$node->safe_psql('postgres',
	'INSERT INTO t SELECT i, hashint4(i) % 5000 FROM generate_series(1, 5000) i');
$node->safe_psql('postgres', 'CREATE PUBLICATION p FOR TABLE t');
$node->safe_psql('postgres', q(SELECT pg_create_logical_replication_slot('s', 'pgoutput')));
my $connstr = $node->connstr('postgres') =~ s/'/''/gr;
$node->safe_psql('copy',
	"CREATE SUBSCRIPTION s CONNECTION '$connstr' PUBLICATION p WITH (create_slot = false, streaming = on)");

sub caught_up
{
	my ($what) = @_;

	$node->poll_query_until('copy',
		q(SELECT bool_and(srsubstate IN ('r', 's')) FROM pg_subscription_rel));
	$node->wait_for_catchup('s');
	is($node->safe_psql('copy', 'SELECT count(*), sum(id::bigint * k) FROM t'),
		$node->safe_psql('postgres', 'SELECT count(*), sum(id::bigint * k) FROM t'),
		"$what: all rows");
	sound($node, 't', [qw(k id)], "$what: index", 'copy');
	return;
}

caught_up('first copy');

$node->safe_psql('postgres', 'INSERT INTO t VALUES (10001, 1); INSERT INTO t VALUES (10002, 2)');
$node->safe_psql('postgres',
	'INSERT INTO t SELECT i, hashint4(i) % 5000 FROM generate_series(20001, 23000) i');
$node->safe_psql('postgres', 'UPDATE t SET k = k + 1 WHERE id % 7 = 0; DELETE FROM t WHERE id % 11 = 0');
caught_up('changes');

$node->safe_psql('postgres', q(
	BEGIN; INSERT INTO t VALUES (50000, 100001), (50001, 100001); INSERT INTO t VALUES (50002, 100001); COMMIT));
caught_up('triggers');
is($node->safe_psql('copy', 'SELECT string_agg(n::text, $$,$$ ORDER BY n) FROM log'),
	'1,2,3', 'each trigger saw the rows before it');
sound($node, 'log', ['n'], 'written by triggers', 'copy');

# the apply worker truncates without a utility command (A3)
$node->safe_psql('postgres', q(
	BEGIN; INSERT INTO t VALUES (60000, 111); TRUNCATE t; INSERT INTO t VALUES (60001, 222);
	TRUNCATE t; INSERT INTO t VALUES (60002, 333); COMMIT));
caught_up('TRUNCATE');
is($node->safe_psql('copy',
		'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k IN (111, 222)'),
	'0', 'TRUNCATE: entries of the first lives are gone');

# streamed transactions use sub-transactions on the subscriber
$node->append_conf('postgresql.conf', "logical_decoding_work_mem = 64kB\n");
$node->reload;
$node->safe_psql('postgres', q(
	BEGIN; INSERT INTO t SELECT i, hashint4(i) % 5000 FROM generate_series(100001, 103000) i;
	SAVEPOINT a; INSERT INTO t SELECT i, hashint4(i) % 5000 FROM generate_series(110001, 113000) i;
	ROLLBACK TO a; INSERT INTO t SELECT i, hashint4(i) % 5000 FROM generate_series(120001, 123000) i;
	SAVEPOINT b; INSERT INTO t SELECT i, hashint4(i) % 5000 FROM generate_series(130001, 133000) i;
	RELEASE b; COMMIT));
caught_up('streamed transaction');

# entries of an index that gets single rows only reach the tree nevertheless:
# workers see to those that get old
$node->safe_psql('postgres', q(
	DO $$ BEGIN FOR i IN 200001..206000 LOOP INSERT INTO t VALUES (i, hashint4(i) % 5000);
		IF i % 4 = 0 THEN COMMIT; END IF; END LOOP; END $$));
caught_up('small transactions');
$node->append_conf('postgresql.conf', "cache_batch.max_delay = 100ms\n");
$node->reload;
ok($node->poll_query_until('copy',
		q(SELECT sum(entries) = 0 FROM cache_batch_stat_buckets WHERE relname = 't')),
	'workers have emptied the buckets');
cmp_ok($node->safe_psql('copy',
		q(SELECT flushes_delay FROM cache_batch_stat_indexes WHERE indexrelname = 't_k')),
	'>', 0, 'because of their age');
caught_up('flushes');

crash_restart($node);
caught_up('crash');

$node->safe_psql('copy', 'ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
done_testing();
