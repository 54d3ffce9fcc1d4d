# What processes do to an index is shown while they do it, and not after an error;
# each command can be cancelled on its way, and leaves the index whole (C14).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('progress', conf => <<'EOC');
cache_batch.pool_size = 64MB
cache_batch.journal_limit = 65536
cache_batch.max_workers = 1
cache_batch.max_delay = 1h
cache_batch.test_visits = off
cache_batch.spill_threshold = off
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my $holder = $node->background_psql('postgres');
my $session = $node->background_psql('postgres', on_error_stop => 0);
$_->set_query_timer_restart foreach $holder, $session;
my $pid = $session->query_safe('SELECT pg_backend_pid()');

sub run { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }

my $key = q(lpad((hashint4(i) & 268435455)::text, 110, '0'));
my $rows = 0;

# Rows whose entries wait in a bucket.
sub insert
{
	my ($n, $more) = (@_, '');
	my $low = $rows + 1;

	$rows += $n;
	run("$more INSERT INTO p SELECT i, $key FROM generate_series($low, $rows) i");
	return;
}

# The process's row: what it does, and how much of how much is done.
sub row
{
	my ($of) = @_;

	return run("SELECT concat_ws('|', command, phase, unit, done, total, indexrelname,
			relid = 'p'::regclass, datname, started_at <= now())
		FROM cache_batch_stat_progress WHERE pid = $of");
}

# The session runs a command that waits at the point, after so many times, while
# the caller looks.
sub held
{
	my ($what, $point, $command, $look) = @_;

	$holder->query_safe('SELECT pg_advisory_lock(1)');
	$session->query_until(qr/started/, "SET cache_batch.test_points = '$point=wait:1';\n\\echo started\n$command;\n");
	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks
		WHERE pid = $pid AND NOT granted AND locktype = 'advisory'") or die "$what: it does not wait";
	$look->();
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	return $session->query(q(SET cache_batch.test_points = '';));
}

# It shows this, and nothing when it has ended.
sub shows
{
	my ($what, $point, $command, $expected) = @_;

	held($what, $point, $command, sub { like(row($pid), $expected, "$what: at $point"); });
	is(row($pid), '', "$what: and no more");
	return;
}

# It ends at its first step after it has been cancelled, holds nothing, and the
# index is whole.
sub cancelled
{
	my ($what, $point, $command) = @_;
	my $hits = $session->query("SET cache_batch.test_points = '$point=cancel:3'; $command; SHOW cache_batch.test_point_hits;");

	is($hits, "$point:3", "$what: cancelled at once");
	$session->query(q(SET cache_batch.test_points = ''));
	is(row($pid), '', "$what: cancelled, it is not shown");
	is(run("SELECT count(*) FROM pg_locks WHERE pid = $pid"), '0', "$what: cancelled, it has no lock");
	return;
}

run(qq(
	CREATE TABLE p (id int, k text) WITH (autovacuum_enabled = off);
	INSERT INTO p SELECT i, $key FROM generate_series(1, 20000) i;
	CREATE INDEX p_k ON p USING cachebatch (k) WITH (fillfactor = 50, pack_leaves = off)));
$rows = 20000;

# ------------------------------------------------------------ functions

my $whole = qr/p_k\|t\|postgres\|t$/;
my $flush = q(SELECT cache_batch_flush('p_k'));

insert(900);
cancelled('flush', 'apply-next', $flush);
shows('flush', 'apply-next', $flush, qr/^flush\|flushing buckets\|entries\|[1-9]\d*\|900\|$whole/);
is(run('SELECT sum(entries) IS NULL FROM cache_batch_bucket_list(\'p_k\') WHERE entries > 0'), 't', 'all is flushed');
sound($node, 'p', ['k'], 'whole after flushes');

# runs of a range of keys
my $spill = 'SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1;';
run('ALTER INDEX p_k SET (spill_threshold = 0)');
for (1 .. 2) { insert(300, $spill); run("$spill $flush"); }
run('ALTER INDEX p_k RESET (spill_threshold)');
cancelled('merge', 'apply-next', $flush);
shows('merge', 'apply-next', $flush, qr/^flush\|merging range buffers\|entries\|[1-9]\d*\|600\|$whole/);
sound($node, 'p', ['k'], 'whole after merges');

my $verify = q(SELECT cache_batch_verify('p_k', true));
my $blocks = run(q(SELECT pg_relation_size('p_k') / 8192));
my $compare = q(comparing rows\|rows\|0\|) . $rows;
run('ANALYZE p');
cancelled('verify', 'verify-right', $verify);
shows('verify', 'verify-right', $verify, qr/^verify\|checking tree\|blocks\|[1-9]\d*\|$blocks\|$whole/);
shows('verify', 'verify-compare', $verify, qr/^verify\|$compare\|$whole/);
held('verify', 'verify-compare', $verify, sub {
	is(run("SELECT pg_cancel_backend($pid)"), 't', 'a session that compares rows is cancelled');
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM cache_batch_stat_progress WHERE pid = $pid"), 'and is not shown');
});

my $prewarm = q(SELECT cache_batch_prewarm('p_k'));
my $leaves = run(q(SELECT cache_batch_prewarm('p_k')));
cancelled('prewarm', 'prewarm-right', $prewarm);
shows('prewarm', 'prewarm-right', $prewarm, qr/^prewarm\|reading leaves\|leaves\|[1-9]\d*\|$leaves\|$whole/);

my $compact = q(SELECT cache_batch_compact('p_k'));
insert(200);
shows('compact', 'apply-next', $compact, qr/^compact\|flushing buckets\|entries\|[1-9]\d*\|200\|$whole/);
cancelled('compact', 'compact-step', $compact);
sound($node, 'p', ['k'], 'whole after packing some');
held('compact', 'compact-step', "$compact", sub { like(row($pid), qr/^compact\|packing leaves\|leaves\|0\|\d+\|$whole/, 'compact: packing'); });
sound($node, 'p', ['k'], 'whole after packing all');

insert(500);
run('DELETE FROM p WHERE id <= 1000');
my $vacuum = 'VACUUM (INDEX_CLEANUP ON) p';
cancelled('vacuum', 'apply-next', $vacuum);
shows('vacuum', 'vacuum-drained', $vacuum, qr/^vacuum\|flushing buckets\|entries\|500\|500\|$whole/);
run('DELETE FROM p WHERE id <= 2000');
cancelled('vacuum', 'vacuum-block', $vacuum);
shows('vacuum', 'vacuum-block', $vacuum, qr/^vacuum\|removing entries\|blocks\|1\|[1-9]\d+\|$whole/);
sound($node, 'p', ['k'], 'whole after VACUUM');

# ------------------------------------------------------------ who may see it

run(q(CREATE ROLE nobody_special; CREATE ROLE watcher IN ROLE pg_read_all_stats));
held('privileges', 'verify-right', $verify, sub {
	my $all = "SELECT num_nulls(relid, indexrelid, indexrelname, command, phase, done, total, unit, started_at), datname
		FROM cache_batch_stat_progress WHERE pid = $pid";

	is(run("SET ROLE nobody_special; $all"), '9|postgres', 'others see that there is something');
	is(run("SET ROLE watcher; $all"), '0|postgres', 'who may read all statistics sees what');
	$node->safe_psql('template1', 'CREATE EXTENSION cache_batch');
	is($node->safe_psql('template1', "SELECT num_nulls(relid, indexrelid), indexrelname IS NULL, datname
			FROM cache_batch_stat_progress WHERE pid = $pid"), '0|t|postgres', 'another database sees its number');
});

# ------------------------------------------------------------ errors

# In a subtransaction that fails, and the transaction goes on.
insert(500);
is($session->query(q(
	SET cache_batch.test_points = 'apply-next=error:2';
	CREATE TEMP TABLE seen (n int);
	DO $$ BEGIN
		BEGIN PERFORM cache_batch_flush('p_k'); EXCEPTION WHEN internal_error THEN NULL; END;
		INSERT INTO seen SELECT count(*) FROM cache_batch_stat_progress;
	END $$;
	SELECT n FROM seen;)), '0', 'not shown after an error of a subtransaction');

# ... and of one that began around it: the row is that of the outer one.
is($session->query(q(
	SET cache_batch.test_points = '';
	TRUNCATE seen;
	CREATE FUNCTION fails() RETURNS void LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'no'; EXCEPTION WHEN OTHERS THEN INSERT INTO seen SELECT count(*) FROM cache_batch_stat_progress; END $$;
	CREATE FUNCTION cache_batch_test_point(text) RETURNS void LANGUAGE sql AS 'SELECT fails()';
	SET cache_batch.test_points = 'flush-sealed=call';
	SELECT cache_batch_flush('p_k');
	SET cache_batch.test_points = '';
	DROP FUNCTION cache_batch_test_point;
	SELECT n FROM seen;)) =~ s/^.*\n//sr, '1', 'shown after an error within it that was caught');

insert(500);
ok(run_killed($node, 'apply-next=kill:2', $flush), 'killed');
$_->quit foreach $holder, $session;
is(run('SELECT count(*) FROM cache_batch_stat_progress'), '0', 'nobody is shown after a crash');

# ------------------------------------------------------------ workers

# A worker waits after each leaf while the lock is held; what it does then.
sub worker_does
{
	my ($what, $expected) = @_;

	ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_locks WHERE NOT granted AND locktype = 'advisory')), "$what: a worker is at it");
	is($node->safe_psql('postgres', q(SELECT p.command, p.phase, p.done > 0, p.total, w.state
			FROM cache_batch_stat_progress p JOIN cache_batch_stat_workers w USING (pid, indexrelid))), $expected, "$what: and is shown");
	return;
}

$node->safe_psql('postgres', q(ALTER DATABASE postgres SET cache_batch.test_points = 'apply-next=wait:1'));
$holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
is($node->safe_psql('postgres', q(SET enable_seqscan = off; SET enable_bitmapscan = off;
		SELECT count(k) FROM p WHERE k > ''; SELECT from_journal > 0, from_leaves > 0 FROM cache_batch_last_scans() WHERE number = 1)) =~ s/^\d+\n//r,
	't|t', 'a scan tells what the journal had');
worker_does('sweep', 'flush|flushing journal|t|500|flushing');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
ok($node->poll_query_until('postgres', q(SELECT bool_and(swept) FROM cache_batch_stat_buckets)), 'it comes to its end');
$holder->query_safe('SELECT pg_advisory_lock(1)');
insert(300);
$node->safe_psql('postgres', q(ALTER SYSTEM SET cache_batch.max_delay = '100ms'));
$node->reload;
worker_does('bucket', 'flush|flushing buckets|t|300|flushing');
my $worker = $node->safe_psql('postgres', 'SELECT pid FROM cache_batch_stat_progress');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($worker)");
ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM cache_batch_stat_progress WHERE pid = $worker"), 'not when it has gone');
$node->safe_psql('postgres', q(ALTER DATABASE postgres RESET cache_batch.test_points));
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$holder->quit;
ok($node->poll_query_until('postgres', q(SELECT sum(entries) IS NULL FROM cache_batch_bucket_list('p_k') WHERE entries > 0)), 'another one flushes');
sound($node, 'p', ['k'], 'whole after a crash, and what workers did');

# ------------------------------------------------------------ CREATE INDEX

# the server's own view has it, as of a btree
$holder = $node->background_psql('postgres');
$session = $node->background_psql('postgres', on_error_stop => 0);
$pid = $session->query_safe('SELECT pg_backend_pid()');
my $total = run('SELECT count(*) FROM p');
held('CREATE INDEX', 'load-page', 'CREATE INDEX p_i ON p USING cachebatch (id)', sub {
	is(run("SELECT phase, tuples_total, blocks_done = blocks_total AND blocks_total > 0
			FROM pg_stat_progress_create_index WHERE pid = $pid"), "building index: loading tuples in tree|$total|t", 'CREATE INDEX is in the server\'s view');
});
$_->quit foreach $holder, $session;

done_testing();
