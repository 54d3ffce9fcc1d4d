# Workers give way to a session that waits for a lock of theirs: a merge, a
# flush, a sweep and the packing of cold leaves stop at the next leaf, and are
# gone on with where they stopped.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('waiters', conf => <<'EOC');
cache_batch.pool_size = 64MB
cache_batch.journal_limit = 65536
cache_batch.max_workers = 1
cache_batch.max_delay = 1h
cache_batch.test_visits = off
cache_batch.spill_threshold = off
cache_batch.heat_epoch = 1s
cache_batch.cold_rate = 300
max_wal_size = 2GB
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my $alone = q(SET cache_batch.test_points = '';);

sub run { my ($sql) = @_; return $node->safe_psql('postgres', "$alone $sql"); }

# In this database a worker waits after each leaf while this lock is held.
run(q(ALTER DATABASE postgres SET cache_batch.test_points = 'apply-next=wait:1,compactor-locked=wait:2,sweep-start=wait:3'));
my $holder = $node->background_psql('postgres');
# on a slow machine all that it is asked takes longer than one query may
$holder->set_query_timer_restart;

# Keys so long bound no bucket, nor range: there is one.
my $key = q(lpad((hashint4(i) & 268435455)::text, 110, '0'));
my $rows = 1000;

# An index of some hundred leaves.
sub make_table
{
	my ($table, $options, $unlogged) = (@_, '');

	run(qq(
		CREATE $unlogged TABLE $table (id int, k text) WITH (autovacuum_enabled = off);
		INSERT INTO $table SELECT i, $key FROM generate_series(1, 20000) i;
		CREATE INDEX ${table}_k ON $table USING cachebatch (k) WITH (fillfactor = 50, pack_leaves = off$options)));
	return;
}

sub insert
{
	my ($table, $n) = @_;
	my $id = run("SELECT max(id) FROM $table");

	run("INSERT INTO $table SELECT i, $key FROM generate_series($id + 1, $id + $n) i");
	return;
}

sub applied
{
	my ($index) = @_;

	return run("SELECT applied FROM cache_batch_stat_indexes WHERE indexrelname = '$index'");
}

sub waits
{
	my ($lock) = @_;

	$node->poll_query_until('postgres', "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND $lock")
	  or die "nobody waits: $lock";
	return;
}

# A worker is at work in the index, asked for it, and stopped by the holder, while
# somebody begins to wait for a lock that it has.  How many entries had reached the
# tree when he got it?  He answers a question then.
sub stopped
{
	my ($index, $ask, $lock_key, $command, $lock, $question) = @_;
	my $waiter = $node->background_psql('postgres');

	$ask->();
	waits("locktype = 'advisory'");
	$waiter->query_until(qr/started/, "\\echo started\n$alone BEGIN; $command;\n");
	waits("locktype = 'relation' AND relation = $lock");
	$holder->query_safe("SELECT pg_advisory_unlock($lock_key)");
	my $answer = $waiter->query_safe($question);
	my $applied = applied($index);
	$holder->query_safe("SELECT pg_advisory_lock($lock_key)");
	$waiter->query_safe('COMMIT');
	$waiter->quit;
	note("$index: applied $applied, $question: $answer");
	return ($applied, $answer);
}

# It is stopped again and again, and comes nearer to the end each time.
sub gives_way
{
	my ($what, $table, $ask, $question, $unfinished, $between) = @_;
	my $index = "${table}_k";
	my $start = applied($index);
	my $last = $start;

	$holder->query_safe('SELECT pg_advisory_lock(1)');
	for my $n (1 .. 4)
	{
		my ($applied, $answer) = stopped($index, $ask, 1,
			"ALTER INDEX $index SET (buffered = on)", "'$index'::regclass", $question);

		cmp_ok($applied - $start, '<', $rows / 10, "$what: it gives way after a few leaves, $n");
		cmp_ok($applied, '>', $last, "$what: it has gone on, $n");
		is($answer, $unfinished, "$what: it is unfinished, $n");
		$last = $applied;
	}
	$between->() if $between;
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	$ask->();
	ok($node->poll_query_until('postgres',
			"SELECT applied >= $start + $rows FROM cache_batch_stat_indexes WHERE indexrelname = '$index'"),
		"$what: it comes to its end");
	ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM cache_batch_stat_workers WHERE state = 'flushing')),
		"$what: and rests");
	sound($node, $table, ['k'], "$what: whole");
	return;
}

# ------------------------------------------------------------ a bucket

make_table('f', '');
insert('f', $rows);
my $age = sub {
	$node->safe_psql('postgres', q(ALTER SYSTEM SET cache_batch.max_delay = '100ms'; SELECT pg_reload_conf()));
};
gives_way('flush', 'f', $age, q(SELECT sum(entries) FROM cache_batch_bucket_list('f_k')), $rows);

# who waits for a transaction's end, or for a lock of the table; a worker takes one
# step when the holder lets go and asks for the lock again
my $step = 'SELECT pg_advisory_unlock(1), pg_advisory_lock(1)';
foreach my $command ('CREATE INDEX CONCURRENTLY x_i ON x (i)', 'LOCK TABLE f')
{
	$holder->query_safe('SELECT pg_advisory_lock(1)');
	insert('f', 100);
	waits("locktype = 'advisory'");
	run('CREATE TABLE IF NOT EXISTS x (i int)');
	my $waiter = $node->background_psql('postgres');
	$waiter->query_until(qr/started/, "\\echo started\n$alone " .
		($command =~ /LOCK/ ? "BEGIN; $command; COMMIT" : $command) . "; CREATE TABLE done ();\n");
	waits("locktype IN ('virtualxid', 'relation')");
	$holder->query_safe($step);
	ok($node->poll_query_until('postgres', q(SELECT to_regclass('done') IS NOT NULL)), "$command waits for a leaf");
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	$waiter->query_safe('DROP TABLE done');
	$waiter->quit;
}
ok($node->poll_query_until('postgres', q(SELECT sum(entries) IS NULL FROM cache_batch_bucket_list('f_k') WHERE entries > 0)),
	'all is flushed then');
sound($node, 'f', ['k'], 'whole then');
$node->safe_psql('postgres', q(ALTER SYSTEM RESET cache_batch.max_delay; SELECT pg_reload_conf()));

# a bucket that fails does so until all of it has been flushed
insert('f', $rows);
my (undef, undef, $failed) = $node->psql('postgres', q(SET cache_batch.test_points = 'flush-sealed=error'; SELECT cache_batch_flush('f_k')));
like($failed, qr/test point/, 'a flush fails');
$holder->query_safe('SELECT pg_advisory_lock(1)');
is((stopped('f_k', $age, 1, 'ALTER INDEX f_k SET (buffered = on)', "'f_k'::regclass",
	q(SELECT sum(failures) FROM cache_batch_bucket_list('f_k'))))[1], '1', 'it fails still when the next one has given way');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
ok($node->poll_query_until('postgres', q(SELECT sum(entries) IS NULL AND sum(failures) IS NULL
		FROM cache_batch_bucket_list('f_k') WHERE entries > 0 OR failures > 0)), 'and no more when it has been flushed');
$node->safe_psql('postgres', q(ALTER SYSTEM RESET cache_batch.max_delay; SELECT pg_reload_conf()));

# ------------------------------------------------------------ a merge of runs

foreach my $table ('m', 'u')
{
	my $runs_of = "SELECT sum(runs) FROM cache_batch_ranges('${table}_k')";
	my $spill = 'SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1;';

	make_table($table, q(, spill_threshold = 0), $table eq 'u' ? 'UNLOGGED' : '');
	for (1 .. 4)
	{
		my $n = $rows / 4;
		run("$spill INSERT INTO $table SELECT i, $key FROM generate_series(20000 + $_ * $n + 1, 20000 + $_ * $n + $n) i;
			SELECT cache_batch_flush('${table}_k')");
	}
	is(run($runs_of), '4', 'there are runs');

	# Scans have to read runs until a merge is asked for.
	my $reads = sub {
		run(qq(SET enable_seqscan = off; SET enable_bitmapscan = off;
			DO \$\$ BEGIN FOR i IN 1 .. 800 LOOP
				PERFORM k FROM $table WHERE k > lpad((i * 100000)::text, 110, '0') ORDER BY k LIMIT 1;
			END LOOP; END \$\$));
	};
	gives_way("merge in $table", $table, $reads, $runs_of, 4, sub {
		# and a later run, with keys left of that place
		is((stopped("${table}_k", $reads, 1, "ALTER INDEX ${table}_k SET (buffered = on)", "'${table}_k'::regclass",
			"$spill INSERT INTO $table SELECT i, lpad(i::text, 110, '0') FROM generate_series(1, 20) i;
			SELECT cache_batch_flush('${table}_k') \\gset\n $runs_of"))[1], 5, 'a run comes in between');
	});
	is(run($runs_of), '0', 'no run is left');
}

# Where the bucket's entries are all right of many of the runs', an attempt brings
# some of these only.
make_table('r', q(, spill_threshold = 0));
for (1 .. 4)
{
	run("SET cache_batch.test_spill = on; INSERT INTO r SELECT i, $key FROM generate_series(20000 + $_ * 400, 20000 + $_ * 400 + 399) i;
		SELECT cache_batch_flush('r_k')");
}
run(q(ALTER SYSTEM SET cache_batch.spill_target = 2));
run(q(SELECT pg_reload_conf()));
run(qq(INSERT INTO r SELECT i, k FROM (SELECT i, $key AS k FROM generate_series(30000, 31199) i) s WHERE k > lpad('200000000', 110, '0')));
gives_way('flush with a merge', 'r', $age, q(SELECT sum(runs) FROM cache_batch_ranges('r_k')), 4);
is(run(q(SELECT sum(runs) FROM cache_batch_ranges('r_k'))), '0', 'no run is left');
run(q(ALTER SYSTEM RESET cache_batch.spill_target));
$node->safe_psql('postgres', q(ALTER SYSTEM RESET cache_batch.max_delay; SELECT pg_reload_conf()));

# ------------------------------------------------------------ a tile

# Its entries are enough for the leaves, with those of a run and of the bucket: what has
# not reached the leaves becomes its run, and the bucket is empty.
make_table('t', q(, spill_threshold = 0));
for (1 .. 4)
{
	run("SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1; SET cache_batch.test_tiles = " . ($_ < 4 ? 10000 : 0) . ";
		INSERT INTO t SELECT i, $key FROM generate_series(20000 + $_ * 400, 20000 + $_ * 400 + 399) i;
		SELECT cache_batch_flush('t_k')");
}
my $in_tiles = q(SELECT sum(entries) FROM cache_batch_tiles('t_k'));
is(run($in_tiles), '800', 'there is a tile, and there are runs');
run(q(ALTER SYSTEM SET cache_batch.spill_target = 2));
run(q(ALTER SYSTEM SET cache_batch.test_tiles = 10000));
run(q(SELECT pg_reload_conf()));
insert('t', 400);
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $applied_before = applied('t_k');
my ($applied_then, $kept) = stopped('t_k', $age, 1, 'ALTER INDEX t_k SET (buffered = on)', "'t_k'::regclass", $in_tiles);
cmp_ok($applied_then - $applied_before, '<', 200, 'a tile that is merged gives way after a few leaves');
cmp_ok($applied_then, '>', $applied_before, 'it has come to some');
is($applied_then - $applied_before + $kept, 2000, 'the tile has the others');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM cache_batch_stat_workers WHERE state = 'flushing')),
	'it rests');
sound($node, 't', ['k'], 'a tile: whole');
run(q(ALTER SYSTEM RESET cache_batch.spill_target));
run(q(ALTER SYSTEM RESET cache_batch.test_tiles));
$node->safe_psql('postgres', q(ALTER SYSTEM RESET cache_batch.max_delay; SELECT pg_reload_conf()));

# ------------------------------------------------------------ cold leaves

make_table('c', '');
run(q(SELECT cache_batch_flush('c_k')));
# the clock of accesses begins with the server, and is moved by those who look
ok($node->poll_query_until('postgres', q(SELECT now() - pg_postmaster_start_time() > interval '8 s'
		AND (SELECT count(*) > 0 FROM cache_batch_stat_heat))),
	'leaves get colder');
run(q(ALTER INDEX c_k SET (cold_threshold = 0)));
# its first pass has time for few leaves
insert('c', 1);
$age->();
$node->poll_query_until('postgres', q(SELECT applied > 0 AND NOT EXISTS (
		SELECT FROM cache_batch_stat_workers WHERE state = 'flushing')
	FROM cache_batch_stat_indexes WHERE indexrelname = 'c_k')) or die 'it is not flushed';
$holder->query_safe('SELECT pg_advisory_lock(2)');
waits("locktype = 'advisory'");
my $compacted_before = run(q(SELECT compacted FROM cache_batch_stat_indexes WHERE indexrelname = 'c_k'));
my (undef, $compacted) = stopped('c_k', sub { }, 2, 'LOCK TABLE c IN SHARE UPDATE EXCLUSIVE MODE',
	"'c'::regclass", q(SELECT compacted FROM cache_batch_stat_indexes WHERE indexrelname = 'c_k'));
$holder->query_safe('SELECT pg_advisory_unlock(2)');
note("compacted $compacted_before, $compacted");
cmp_ok($compacted - $compacted_before, '<', 2, 'cold leaves: it gives way to VACUUM at the next leaf');
ok($node->poll_query_until('postgres',
		"SELECT compacted > $compacted + 20 FROM cache_batch_stat_indexes WHERE indexrelname = 'c_k'"), 'cold leaves: it goes on');
sound($node, 'c', ['k'], 'cold leaves: whole');

# ------------------------------------------------------------ a sweep

make_table('s', '');
insert('s', $rows);
$holder->quit;
crash_restart($node);
$holder = $node->background_psql('postgres');
$holder->set_query_timer_restart;
gives_way('sweep', 's', sub { insert('s', 1) },
	q(SELECT count(*) > 5 FROM cache_batch_journal('s_k')), 't');

# where somebody waits each time, it takes smaller pieces, of which it comes to the end
$node->safe_psql('postgres', q(ALTER SYSTEM RESET cache_batch.max_delay; SELECT pg_reload_conf()));
run(q(CREATE TABLE p (id int, k bigint) WITH (autovacuum_enabled = off);
	INSERT INTO p SELECT i, hashint8extended(i, 1) FROM generate_series(1, 400000) i;
	CREATE INDEX p_k ON p USING cachebatch (k)));
# in statements so short that they are no dense batches
run(join '', map { "INSERT INTO p SELECT i, hashint8extended(i, 1) FROM generate_series(${_}0001, ${_}9999 + 1) i;" } 50 .. 59);
$holder->quit;
crash_restart($node);
$holder = $node->background_psql('postgres');
$holder->set_query_timer_restart;
my $pages = q(SELECT count(*) FROM cache_batch_journal('p_k'));
my $long = run($pages);
cmp_ok($long, '>', 150, 'a long journal');
$holder->query_safe('SELECT pg_advisory_lock(1)');
for (1 .. 4)
{
	(undef, my $left) = stopped('p_k', sub { run('INSERT INTO p VALUES (0, 0)') }, 1,
		'ALTER INDEX p_k SET (buffered = on)', q('p_k'::regclass), $pages);
	cmp_ok($left, '>=', $long, 'a sweep of all of it is not done');
}
$holder->query_safe('SELECT pg_advisory_lock(3), pg_advisory_unlock(1)');
run('INSERT INTO p VALUES (0, 0)');
my $after = $long;
foreach (1 .. 3)
{
	waits(q(locktype = 'advisory' AND objid = 3));
	$after = run($pages);
	last if $after < $long;
	$holder->query_safe('SELECT pg_advisory_unlock(3), pg_advisory_lock(3)');
}
cmp_ok($after, '<', $long, 'a smaller piece is');
cmp_ok($after, '>', $long / 2, 'before the next one begins');
$holder->query_safe('SELECT pg_advisory_unlock(3)');
ok($node->poll_query_until('postgres', q(SELECT bool_and(swept) FROM cache_batch_stat_buckets WHERE indexrelname = 'p_k')), 'swept');
sound($node, 'p', ['k'], 'after smaller pieces');

$holder->quit;
$node->stop;
done_testing();
