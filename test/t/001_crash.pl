# Rows whose entries were staged, journaled or flushed survive a crash, and so
# does a prepared transaction.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('crash');

$node->safe_psql('postgres', q(
	CREATE TABLE t (id int, k int, s text);
	CREATE INDEX t_k ON t USING cachebatch (k);
	CREATE INDEX t_s ON t USING cachebatch (s);
	INSERT INTO t SELECT i, i * 7919 % 10007, md5(i::text) FROM generate_series(1, 5000) i;
	SELECT cache_batch_flush('t_k');
	CHECKPOINT;
	INSERT INTO t SELECT i, i * 7919 % 10007, md5(i::text) FROM generate_series(5001, 5300) i));
cmp_ok($node->safe_psql('postgres',
		q(SELECT sum(nentries) FROM cache_batch_journal('t_s'))), '>', 0,
	'the journal is not empty before the crash');

# the records of our resource manager carry images for the check of redo
my $start = $node->safe_psql('postgres',
	'SELECT redo_lsn FROM pg_control_checkpoint()');
$node->safe_psql('postgres', 'INSERT INTO t VALUES (0, 0, NULL)');
my ($dump, $errors) = run_command([ 'pg_waldump', '-r', 'custom203', '-b', '-s', $start,
	'-p', $node->data_dir . '/pg_wal' ]);
like($dump, qr/FPW for WAL verification/, 'redo of our records is checked')
  or diag($errors);

crash_restart($node);
is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), '5301', 'all rows are there');
sound($node, 't', [qw(k s)], 'flushed and journaled entries survive');

# an open transaction, killed with its backend
my $session = $node->background_psql('postgres');
$session->query_safe('BEGIN');
$session->query_safe('INSERT INTO t SELECT i, i, i FROM generate_series(6000, 6400) i');
my $pid = $session->query_safe('SELECT pg_backend_pid()');
kill 'KILL', $pid;
$session->{run}->finish;
wait_back($node);
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE id >= 6000'), '0',
	'the killed transaction is gone');
sound($node, 't', [qw(k s)], 'entries of a killed transaction do no harm');

# prepared transactions across a crash
$node->safe_psql('postgres', q(
	BEGIN; INSERT INTO t SELECT i, i, i FROM generate_series(7000, 7099) i;
	SAVEPOINT a; INSERT INTO t VALUES (7100, 7100, 'gone'); ROLLBACK TO a;
	PREPARE TRANSACTION 'keep'));
$node->safe_psql('postgres', q(
	BEGIN; INSERT INTO t SELECT i, i, i FROM generate_series(8000, 8099) i;
	PREPARE TRANSACTION 'drop'));
crash_restart($node);
$node->safe_psql('postgres', q(COMMIT PREPARED 'keep'));
$node->safe_psql('postgres', q(ROLLBACK PREPARED 'drop'));
is($node->safe_psql('postgres', q(SET enable_seqscan = off;
		SELECT count(*) FROM t WHERE k >= 7000 AND k = id)), '100',
	'a prepared transaction is found through the index once it is committed');
sound($node, 't', [qw(k s)], '2PC across a crash');

# twice in a row, with a flush between
$node->safe_psql('postgres', q(
	UPDATE t SET k = k + 1 WHERE id % 3 = 0; SELECT cache_batch_flush('t_k');
	DELETE FROM t WHERE id % 5 = 0; VACUUM t;
	INSERT INTO t SELECT i, i, i FROM generate_series(9000, 9050) i));
crash_restart($node);
crash_restart($node);
sound($node, 't', [qw(k s)], 'updates, VACUUM and two crashes');

done_testing();
