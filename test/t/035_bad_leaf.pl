# One damaged leaf: what it keeps waiting is its own range of keys.  Other ranges
# of the index, and other indexes, are flushed as ever, the journal stays short,
# and only who writes to the bad leaf gets the error.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my ($node, $file, $leaf, $bytes, $low, $high, $left, $right);
my $next_id = 100_000;
my $journal = q(SELECT max(journal_bytes) FROM cache_batch_stat_buckets);
my $failures = q(SELECT max(failures) FROM cache_batch_bucket_list('a_k'));

sub ask
{
	return $node->safe_psql('postgres', shift);
}

# A server with two tables that have the same rows; a leaf of the one's index is
# damaged.
sub make_node
{
	my ($name, %args) = @_;

	$node = new_node($name, conf => "cache_batch.pool_size = 256kB\ncache_batch.max_delay = 200ms\ncache_batch.test_visits = off\n$args{conf}");
	ask(q(
		CREATE TABLE a (id int, k int);
		CREATE TABLE b (id int, k int);
		INSERT INTO a SELECT i, hashint4(i) FROM generate_series(1, 20000) i;
		INSERT INTO b SELECT * FROM a;
		CREATE INDEX a_k ON a USING cachebatch (k);
		CREATE INDEX b_k ON b USING cachebatch (k);
		CREATE FUNCTION is_lost(key int) RETURNS boolean LANGUAGE plpgsql
		SET enable_seqscan = off SET enable_bitmapscan = off AS $$
		BEGIN
			RETURN (SELECT count(*) = 0 FROM a WHERE k = key);
		EXCEPTION WHEN index_corrupted OR data_corrupted THEN RETURN true;
		END $$;
		CHECKPOINT));
	$file = $node->data_dir . '/' . ask(q(SELECT pg_relation_filepath('a_k')));

	$leaf = ask(q(
		SELECT b FROM generate_series(1, pg_relation_size('a_k') / 8192 - 1) b, cache_batch_page('a_k', b) p
		WHERE p.type = 'leaf' ORDER BY b OFFSET 7 LIMIT 1));
	$node->stop;
	system_or_bail('pg_checksums', '-e', '-D', $node->data_dir) if $args{checksums};
	$bytes = substr(page($file, $leaf), -2);
	damage($file, $leaf, [ 8192 - 2, 'zz' ]);
	$node->start;

	# The keys that only the bad leaf can have; and the others that go on: but
	# those next to it, and of the leaf left of it, which looks into it when it is
	# full.
	($low, $high) = split /\|/, ask('SELECT min(k + 0), max(k + 0) FROM a WHERE is_lost(k)');
	($left, $right) = ($low - 3 * ($high - $low), $high + 10_000_000);
	note("$name: block $leaf has keys $low to $high");
	return;
}

# Rows for other keys, into both tables, some at a time; returns the errors.
sub insert_good
{
	my ($rounds) = @_;
	my (undef, undef, $err) = $node->psql('postgres', qq(
		DO \$\$ BEGIN FOR r IN 1 .. $rounds LOOP
			INSERT INTO a SELECT i, hashint4(i) FROM generate_series($next_id + r * 25, $next_id + r * 25 + 24) i
				WHERE hashint4(i) NOT BETWEEN $left AND $right;
			COMMIT;
			INSERT INTO b SELECT i, hashint4(i) FROM generate_series($next_id + r * 25, $next_id + r * 25 + 24) i
				WHERE hashint4(i) NOT BETWEEN $left AND $right;
			COMMIT;
		END LOOP; END \$\$));
	$next_id += 25 * $rounds + 25;
	return $err;
}

# Rows for the bad leaf, ten at a time; returns how many there are, and the error.
sub insert_bad
{
	my ($rounds) = @_;
	my (undef, undef, $err) = $node->psql('postgres', qq(
		DO \$\$ BEGIN FOR r IN 1 .. $rounds LOOP
			INSERT INTO a SELECT -r, $low + ((r * 10 + i)::bigint * 7919 % ($high - $low)) FROM generate_series(1, 10) i;
			COMMIT;
		END LOOP; END \$\$));
	return (ask('SELECT count(*) FROM a WHERE id < 0'), $err);
}

# How much was flushed of a and b.
sub flushed
{
	return split / /, ask(q(SELECT string_agg(flushed::text, ' ' ORDER BY indexrelname) FROM cache_batch_stat_indexes));
}

sub others_go_on
{
	my ($what) = @_;
	my @before = flushed();

	is(insert_good(2400), '', "$what: rows for other leaves are inserted");
	my @after = flushed();
	cmp_ok($after[0] - $before[0], '>', 20_000, "$what: and flushed in the damaged index");
	cmp_ok($after[1] - $before[1], '>', 20_000, "$what: and in another one");
	note(ask('SELECT chunks, chunks_free, no_room FROM cache_batch_stat_pool'), ' ',
		ask(q(SELECT pg_relation_size('a_k'), pg_relation_size('b_k'))), ' ', ask($journal));
	cmp_ok(ask($journal), '<', 512 * 1024, "$what: the journals stay short");
	return;
}

# Some rows wait for the bad leaf, until it has its share; returns how many.
sub fill_share
{
	my ($what) = @_;
	my ($waiting, $trouble) = insert_bad(2000);

	note("$waiting rows wait");
	cmp_ok($waiting, '<', 1500, "$what: at some time there is no more room for the bad leaf");
	like($trouble, qr/block $leaf\b/, "$what: who writes to it gets the error, with the block");
	is(insert_good(100), '', "$what: others do not");
	my (undef, undef, $vacuum) = $node->psql('postgres', 'VACUUM (INDEX_CLEANUP ON) a');
	like($vacuum, qr/block $leaf\b/, "$what: VACUUM does");
	return $waiting;
}

sub repair
{
	my ($what) = @_;

	ask('REINDEX INDEX a_k');
	sound($node, $_, ['k'], "$what: $_ is whole") foreach qw(a b);
	is(ask('SELECT count(*) FROM cache_batch_stat_buckets WHERE failing_buckets > 0 OR last_error IS NOT NULL'),
		'0', "$what: nothing fails");
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, "$what: nothing bad in the log");
	return;
}

# With the leaf as it was, all that has waited for it is there (I7).
sub mend
{
	my ($what) = @_;

	$node->stop;
	damage($file, $leaf, [ 8192 - 2, $bytes ]);
	$node->start;
	sound($node, $_, ['k'], "$what: $_ is whole") foreach qw(a b);
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, "$what: nothing bad in the log");
	return;
}

sub reports
{
	return scalar(() = slurp_file($node->logfile) =~ /WARNING: .*could not flush cachebatch index/g);
}

# ---------- with workers ----------

sub with_workers
{
	my ($what, %args) = @_;

	make_node($what =~ s/ /_/r, %args);
	my ($waiting, $trouble) = insert_bad(5);
	is("$waiting $trouble", '50 ', "$what: some rows for the bad leaf wait for it");
	$node->poll_query_until('postgres', "SELECT ($failures) > 0") or die 'no flush has failed';
	is(ask(qq(SELECT failing_buckets, last_error ~ 'block $leaf\\M' FROM cache_batch_stat_buckets WHERE indexrelname = 'a_k')),
		'1|t', "$what: the view says so, and names the block");
	others_go_on($what);

	# one line for many failures
	$node->poll_query_until('postgres', "SELECT ($failures) > 2") or die 'the flush is not tried again';
	is(reports(), 1, "$what: one line in the log for all failures");
	$waiting = fill_share($what);

	# what is in the journal from before a restart
	crash_restart($node);
	is(insert_good(1), '', "$what: rows after a restart");
	$node->poll_query_until('postgres', q(SELECT swept FROM cache_batch_stat_buckets WHERE indexrelname = 'a_k'))
	  or die 'the journal is not swept';
	cmp_ok(ask(q(SELECT (SELECT sum(entries) FROM cache_batch_bucket_list('a_k')) +
			(SELECT coalesce(sum(entries), 0) FROM cache_batch_ranges('a_k')))), '>=', $waiting,
		"$what: what the bad leaf does not take waits in a bucket or a run");
	others_go_on("$what, restarted");
	mend($what);
	return;
}

# ---------- without: sessions flush ----------

sub without_workers
{
	my ($what) = @_;

	make_node($what, conf => "cache_batch.max_workers = 0\n");
	is((insert_bad(5))[0], 50, "$what: some rows for the bad leaf wait for it");
	my (undef, undef, $err) = $node->psql('postgres', q(SELECT cache_batch_flush('a_k')));
	like($err, qr/block $leaf\b/, "$what: cache_batch_flush() gets the error");
	others_go_on($what);
	fill_share($what);
	repair($what);
	$node->stop;
	return;
}

without_workers('sessions');
with_workers('checksums', conf => '', checksums => 1);
$node->stop;
with_workers('range buffers', conf => "cache_batch.spill_threshold = 64kB\ncache_batch.spill_target = 1000\n");
$node->stop;
with_workers('workers', conf => '');

# ---------- a scan while a sweep sends an entry up ----------

# Until somebody waits for the advisory lock.
sub await_lock
{
	my ($lock, $failure) = @_;

	$node->poll_query_until('postgres',
		"SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $lock")
	  or die $failure;
	return;
}

# A session with a scan that has stopped at the point, and waits for lock 7; its
# answer is "found|" and how many rows.
sub scan_stopped_at
{
	my ($point, $from) = @_;
	my $scan = $node->background_psql('postgres');

	$scan->query_safe("SET enable_seqscan = off; SET enable_bitmapscan = off; SET cache_batch.test_points = '$point=wait:7'");
	$scan->query_until(qr/begun/, "\\echo begun\nSELECT 'found', count(*) FROM $from;\n");
	await_lock(7, 'the scan does not wait');
	return $scan;
}

# A scan of c that has stopped at the point, and a sweep that has been at work since;
# the session that holds lock 7, and the scan's.
sub swept_beside_scan
{
	my ($point, $condition) = @_;
	my $holder = $node->background_psql('postgres');

	$holder->query_safe('SELECT pg_advisory_lock(7), pg_advisory_lock(8)');
	ask('INSERT INTO c VALUES (3)');
	await_lock(8, 'no worker comes');
	my $scan = scan_stopped_at($point, "c WHERE $condition");
	$holder->query_safe('SELECT pg_advisory_unlock(8)');
	$node->poll_query_until('postgres', q(SELECT swept FROM cache_batch_stat_buckets WHERE indexrelname = 'c_k'))
	  or die 'the journal is not swept';
	return ($holder, $scan);
}

SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 15 unless test_points_built($node);

	my $alone = q(SET cache_batch.test_points = '';);

	# other indexes take all bucket sets
	my $take = q(DO $$ BEGIN PERFORM pg_sleep(1.2); FOR i IN 1 .. 260 LOOP
		EXECUTE format('INSERT INTO o.t%s VALUES (1)', i);
		COMMIT;
	END LOOP; END $$);

	ask(q(CREATE TABLE c (k int); CREATE INDEX c_k ON c USING cachebatch (k);
		ALTER SYSTEM SET cache_batch.max_delay = '1h'));

	# before it reads the journal, and when it has seen that no chunk has its key
	foreach my $case ([ 'scan-copy-journal', 'k < 3' ], [ 'view-filtered', 'k = 1' ])
	{
		my ($point, $condition) = @$case;

		ask(q(ALTER DATABASE postgres SET cache_batch.test_points = 'worker-flush=wait:8,sweep-try=error:1'));
		ask('INSERT INTO c VALUES (1), (2)');
		crash_restart($node);
		my ($holder, $scan) = swept_beside_scan($point, $condition);

		is(ask(q(SELECT sum(entries) FROM cache_batch_bucket_list('c_k'))), '2', 'an entry that met an error is in its bucket');
		$holder->query_safe('SELECT pg_advisory_unlock(7)');
		like($scan->query('SELECT 1'), qr/found\|2/, 'and a scan that was at work finds it');
		$_->quit foreach $scan, $holder;
		ask(q(ALTER DATABASE postgres RESET cache_batch.test_points));
		sound($node, 'c', ['k'], 'c is whole');
	}

	# The same, and the index loses its bucket set to another one before the scan
	# goes on.
	ask(q(CREATE SCHEMA o;
		DO $$ BEGIN FOR i IN 1 .. 260 LOOP
			EXECUTE format('CREATE TABLE o.t%1$s (k int); CREATE INDEX ON o.t%1$s USING cachebatch (k)', i);
		END LOOP; END $$;
		ALTER DATABASE postgres SET cache_batch.test_points = 'worker-flush=wait:8,sweep-try=error:1'));
	ask(q(ALTER SYSTEM SET cache_batch.pool_size = '4MB'));	# room for all of them
	ask('INSERT INTO c VALUES (1), (2)');
	crash_restart($node);
	my ($holder, $scan) = swept_beside_scan('scan-copy-journal', 'k < 3');

	ask($take);
	is(ask(q(SELECT count(*) FROM cache_batch_stat_buckets WHERE indexrelname = 'c_k')), '0', 'its bucket set is gone');
	$holder->query_safe('SELECT pg_advisory_unlock(7)');
	like($scan->query('SELECT 1'), qr/found\|6/, 'and the scan finds the entry all the same');
	$_->quit foreach $scan, $holder;
	ask(q(ALTER DATABASE postgres RESET cache_batch.test_points));
	sound($node, 'c', ['k'], 'c is whole then');

	# The same for a scan that is in the middle of the list: a chunk that it has yet
	# to look at becomes another index's, and has its key no more.
	ask(q(CREATE TABLE d (k int, s text); ALTER TABLE d ALTER s SET STORAGE PLAIN;
		CREATE INDEX d_k ON d USING cachebatch (k, s)));
	ask(q(SELECT pg_sleep(1.2)));	# so that it gets a bucket set
	ask(q(INSERT INTO d VALUES (0, '')));
	ask(q(DO $$ BEGIN
		WHILE (SELECT sum(chunks) FROM cache_batch_bucket_list('d_k')) < 2 LOOP
			INSERT INTO d SELECT 1, repeat('x', 900) FROM generate_series(1, 10);
			COMMIT;
		END LOOP;
		INSERT INTO d VALUES (777, '');
	END $$));
	cmp_ok(ask(q(SELECT sum(chunks) FROM cache_batch_bucket_list('d_k'))), '>', 1, 'there are two chunks or more');
	$holder = $node->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(7)');
	$scan = scan_stopped_at('view-filtered', 'd WHERE k = 777');
	ask($take);
	is(ask(q(SELECT count(*) FROM cache_batch_stat_buckets WHERE indexrelname = 'd_k')), '0', 'both are gone');
	$holder->query_safe('SELECT pg_advisory_unlock(7)');
	like($scan->query('SELECT 1'), qr/found\|1/, 'and the scan finds what was in the second one');
	$_->quit foreach $scan, $holder;
	sound($node, 'd', ['k'], 'd is whole');

	# Or the sweep itself gives it another one, to publish the entry.
	ask(q(ALTER DATABASE postgres SET cache_batch.test_points = 'sweep-read=wait:8,sweep-try=error:1,publish-routed=wait:9'));
	ask(qq($alone INSERT INTO c VALUES (1), (2)));
	crash_restart($node);
	$holder = $node->background_psql('postgres');
	$holder->query_safe('SELECT pg_advisory_lock(7), pg_advisory_lock(8), pg_advisory_lock(9)');
	ask(qq($alone INSERT INTO c VALUES (3)));
	await_lock(8, 'no worker comes');
	ask($alone . $take);
	ask(q(SELECT pg_sleep(1.2)));	# so that it gets one of them
	$holder->query_safe('SELECT pg_advisory_unlock(8)');
	await_lock(9, 'the sweep does not publish');
	$scan = scan_stopped_at('scan-copy-journal', 'c WHERE k < 3');
	$holder->query_safe('SELECT pg_advisory_unlock(9)');
	$node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM cache_batch_stat_workers WHERE state = 'flushing'))
	  or die 'the sweep does not end';
	$holder->query_safe('SELECT pg_advisory_unlock(7)');
	like($scan->query('SELECT 1'), qr/found\|8/, 'and a scan that came in between finds it');
	$_->quit foreach $scan, $holder;
	ask(q(ALTER DATABASE postgres RESET cache_batch.test_points));
	sound($node, 'c', ['k'], 'c is whole in the end');
}
unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'nothing bad in the log');

done_testing();
