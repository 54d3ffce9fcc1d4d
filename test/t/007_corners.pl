# Corners of the server: what an entry belongs to when its index is rebuilt,
# moved or dropped under it (A3, A4, C3), and the concurrent builds.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('corners', conf => "allow_in_place_tablespaces = on\nmin_parallel_index_scan_size = 0\n");

sub fresh
{
	$node->safe_psql('postgres', q(
		DROP TABLE IF EXISTS t;
		CREATE TABLE t (id int, k int);
		CREATE INDEX t_k ON t USING cachebatch (k);
		CREATE INDEX t_id ON t USING cachebatch (id);
		INSERT INTO t SELECT i, hashint4(i) % 5000 FROM generate_series(1, 1000) i));
	return;
}

sub rows_by_k
{
	my ($k) = @_;
	return $node->safe_psql('postgres',
		"SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT id FROM t WHERE k = $k");
}

$node->safe_psql('postgres', "CREATE TABLESPACE moved LOCATION ''");

# A3: TRUNCATE twice keeps the relfilenode the second time
fresh();
$node->safe_psql('postgres', q(
	BEGIN; TRUNCATE t; INSERT INTO t VALUES (10, 111); TRUNCATE t;
	INSERT INTO t VALUES (20, 222); COMMIT));
is(rows_by_k(111), '', 'TRUNCATE twice: the first life is gone');
is(rows_by_k(222), '20', 'TRUNCATE twice: the second is there');
sound($node, 't', [qw(k id)], 'TRUNCATE twice');

fresh();
$node->safe_psql('postgres', q(
	BEGIN; INSERT INTO t VALUES (5000, 6000);
	SAVEPOINT a; TRUNCATE t; INSERT INTO t VALUES (10, 111); TRUNCATE t;
	INSERT INTO t VALUES (20, 222); ROLLBACK TO a;
	INSERT INTO t VALUES (5001, 6001); COMMIT));
is(rows_by_k(6000) . rows_by_k(6001) . rows_by_k(222), '50005001', 'TRUNCATE rolled back');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '1002', 'no row lost by the rollback');
sound($node, 't', [qw(k id)], 'TRUNCATE rolled back');

# TRUNCATE inside a statement that has staged entries
fresh();
$node->safe_psql('postgres', q(
	CREATE OR REPLACE FUNCTION cut(n int) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN INSERT INTO t VALUES (n, n); TRUNCATE t; INSERT INTO t VALUES (n + 1, n + 1); RETURN n; END $$;
	SELECT cut(70000)));
is(rows_by_k(70001) . rows_by_k(70000), '70001', 'TRUNCATE in a function');
sound($node, 't', [qw(k id)], 'TRUNCATE in a function');

# A4: another session moves the index while an insertion is open
fresh();
my $open = $node->background_psql('postgres');
$open->query_safe('BEGIN');
$open->query_safe('INSERT INTO t VALUES (3000, 3000)');
my ($rc, $out, $err) = $node->psql('postgres',
	"SET lock_timeout = '300ms'; ALTER INDEX t_k SET TABLESPACE moved", on_error_stop => 1);
$open->query_safe('INSERT INTO t VALUES (3001, 3001)');
$open->query_safe('COMMIT');
$open->quit;
is(rows_by_k(3000) . rows_by_k(3001), '30003001',
	'SET TABLESPACE under an open insertion' . ($rc ? ' (refused)' : ''));
$node->safe_psql('postgres', 'ALTER INDEX t_k SET TABLESPACE moved');
sound($node, 't', [qw(k id)], 'SET TABLESPACE');
$node->safe_psql('postgres', q(
	BEGIN; INSERT INTO t VALUES (3002, 3002); ALTER INDEX t_k SET TABLESPACE pg_default;
	INSERT INTO t VALUES (3003, 3003); COMMIT));
is(rows_by_k(3002) . rows_by_k(3003), '30023003', 'SET TABLESPACE in the inserting transaction');
sound($node, 't', [qw(k id)], 'SET TABLESPACE in the inserting transaction');

# the journal positions of the file that is gone are given out again
is($node->safe_psql('postgres', q(
	SET enable_seqscan = off; SET enable_bitmapscan = off;
	BEGIN; ALTER INDEX t_k SET TABLESPACE moved; INSERT INTO t VALUES (3004, 30040);
	SELECT id FROM t WHERE k = 30040; ROLLBACK;
	INSERT INTO t VALUES (3005, 30050);
	SELECT id FROM t WHERE k = 30050)), "3004\n3005", 'SET TABLESPACE rolled back');
sound($node, 't', [qw(k id)], 'SET TABLESPACE rolled back');
crash_restart($node);
sound($node, 't', [qw(k id)], 'SET TABLESPACE and a crash');

# rewrites
foreach my $rewrite ('ALTER TABLE t SET UNLOGGED', 'ALTER TABLE t SET LOGGED', 'CLUSTER t USING t_k',
	'VACUUM FULL t', 'ALTER TABLE t ALTER COLUMN id TYPE bigint', 'REINDEX TABLE t',
	'REINDEX INDEX CONCURRENTLY t_k', 'REINDEX TABLE CONCURRENTLY t',
	'DROP INDEX t_k; CREATE INDEX CONCURRENTLY t_k ON t USING cachebatch (k)',
	'DELETE FROM t WHERE id % 2 = 0; VACUUM (PARALLEL 2) t')
{
	$node->safe_psql('postgres', 'INSERT INTO t SELECT i, hashint4(i) % 5000 FROM generate_series(1, 300) i');
	$node->safe_psql('postgres', $rewrite);
	sound($node, 't', [qw(k id)], $rewrite);
	crash_restart($node) if $rewrite =~ /LOGGED/;
	sound($node, 't', [qw(k id)], "$rewrite, after a crash") if $rewrite =~ /LOGGED/;
}

# in one transaction with insertions before and after
foreach my $rewrite ('CLUSTER t USING t_k', 'ALTER TABLE t SET UNLOGGED', 'ALTER TABLE t SET LOGGED', 'REINDEX TABLE t')
{
	$node->safe_psql('postgres', qq(
		BEGIN; INSERT INTO t SELECT i, i FROM generate_series(1, 50) i; $rewrite;
		INSERT INTO t SELECT i, i FROM generate_series(51, 99) i; COMMIT));
	sound($node, 't', [qw(k id)], "$rewrite between insertions");
	$node->safe_psql('postgres', qq(
		BEGIN; INSERT INTO t SELECT i, i FROM generate_series(1, 50) i; SAVEPOINT a; $rewrite;
		INSERT INTO t SELECT i, i FROM generate_series(51, 99) i; ROLLBACK TO a;
		INSERT INTO t VALUES (1, 1); COMMIT));
	sound($node, 't', [qw(k id)], "$rewrite rolled back");
}

# C3: DROP in the inserting transaction
$node->safe_psql('postgres', 'BEGIN; INSERT INTO t VALUES (1, 1); DROP INDEX t_k; INSERT INTO t VALUES (2, 2); COMMIT');
sound($node, 't', ['id'], 'DROP INDEX after an insertion');
$node->safe_psql('postgres', 'BEGIN; INSERT INTO t VALUES (1, 1); DROP TABLE t; COMMIT');
pass('DROP TABLE after an insertion');

# parallel VACUUM with several indexes
$node->safe_psql('postgres', q(
	CREATE TABLE p (a int, b int, c int, d int);
	CREATE INDEX ON p USING cachebatch (a); CREATE INDEX ON p USING cachebatch (b);
	CREATE INDEX ON p USING cachebatch (c); CREATE INDEX ON p USING cachebatch (d);
	INSERT INTO p SELECT hashint4(i), i, -i, i % 10 FROM generate_series(1, 20000) i;
	DELETE FROM p WHERE b % 3 = 0;
	INSERT INTO p SELECT hashint4(i), i, -i, i % 10 FROM generate_series(20001, 20100) i;
	VACUUM (PARALLEL 4, INDEX_CLEANUP ON) p));
sound($node, 'p', [qw(a b c d)], 'parallel VACUUM');

# a new session finds the end of a long journal without reading all of it, and
# so does one that has not inserted for long; without a pool it grows undisturbed
$node->append_conf('postgresql.conf', "cache_batch.pool_size = 0\ncache_batch.journal_limit = 4MB\n");
$node->restart;
$node->safe_psql('postgres', q(
	CREATE TABLE j (k int);
	CREATE INDEX j_k ON j USING cachebatch (k)));
my $idle = $node->background_psql('postgres');
$idle->query_safe('INSERT INTO j VALUES (0); SELECT pg_stat_force_next_flush()');
$idle->query_safe('SELECT 1');
$node->safe_psql('postgres', q(
	DO $$ BEGIN FOR n IN 1 .. 120 LOOP
		INSERT INTO j SELECT hashint4(n * 1000 + i) FROM generate_series(1, 500) i;
		COMMIT;
	END LOOP; END $$));
my $pages = $node->safe_psql('postgres', "SELECT sum(bytes) / 8192 FROM cache_batch_journal('j_k')");
cmp_ok($pages, '>', 50, 'a long journal');
my $blocks = sub {
	return ($node->safe_psql('postgres', q(SELECT pg_stat_force_next_flush();
		SELECT idx_blks_read + idx_blks_hit FROM pg_statio_user_tables WHERE relname = 'j')) =~ /(\d+)/)[0];
};
foreach my $session ('new', 'idle')
{
	my $query = sub { my ($sql) = @_; return $session eq 'new' ? $node->safe_psql('postgres', $sql) : $idle->query_safe($sql) };
	my $before = $blocks->();

	$query->("INSERT INTO j VALUES (1); SELECT pg_stat_force_next_flush()");
	$query->('SELECT 1');
	cmp_ok($blocks->() - $before, '<', 20, "an insertion by the $session session reads a few pages of it");
}
$idle->quit;

# a row looks up the metapage and the last page of the journal, and no other
my $before = $blocks->();
$node->safe_psql('postgres', 'INSERT INTO j VALUES (2); ' x 100 . 'SELECT pg_stat_force_next_flush()');
cmp_ok($blocks->() - $before, '<', 230, '100 transactions of one row look up 200 pages');

done_testing();
