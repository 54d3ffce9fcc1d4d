# After a start the indexes whose journals have entries get their buckets, and the
# journals go to the trees, though nobody uses them: in each database, after a clean
# restart, a crash and a promotion, with one worker for many databases, beside what is
# damaged, in nobody's way, and with rests.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('resume', conf => <<EOC);
cache_batch.pool_size = 16384
cache_batch.journal_limit = 32768
cache_batch.max_delay = 1h
EOC
my $points = test_points_built($node);

sub make_table
{
	my ($db, $table) = @_;

	$node->safe_psql($db, "CREATE TABLE $table (id bigint, k bigint);
		CREATE INDEX ${table}_k ON $table USING cachebatch (k)");
	insert_ids($node, $db, $table, 1, 2000);
	return;
}

# Bytes of the journals of a database that wait, of the indexes that have buckets, and
# how many these are.
sub waiting
{
	my ($on, $db) = @_;

	return $on->safe_psql($db, 'SELECT coalesce(sum(journal_bytes), 0), count(attached_at) FROM cache_batch_stat_buckets');
}

# Do n indexes have buckets in the end, and all journals nothing?
sub taken_up
{
	my ($on, $db, $n) = @_;

	return wait_until(sub { waiting($on, $db) eq "0|$n" });
}

# Does the database come to have nothing to do?
sub visited
{
	my ($db) = @_;

	return wait_until(sub {
		$node->safe_psql('postgres', "SELECT string_agg(state, ' ') FROM cache_batch_stat_get_workers()
			WHERE datid = (SELECT oid FROM pg_database WHERE datname = '$db')") eq 'idle'
	});
}

# Stops and starts the server; then a worker waits at a test point until the prepared
# transaction 'hold' ends, and none that comes later.
sub hold_worker
{
	my ($db, $mode, $point) = @_;

	$node->safe_psql($db, "BEGIN; SELECT pg_advisory_xact_lock(8); PREPARE TRANSACTION 'hold'");
	$node->append_conf('postgresql.conf', "cache_batch.test_points = '$point=wait:8'");
	$node->stop($mode);
	$node->start;
	$node->poll_query_until($db, q(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)) or die;
	$node->append_conf('postgresql.conf', "cache_batch.test_points = ''");
	$node->reload;
	return;
}

sub log_from { return slurp_file($node->logfile, $_[0]); }

$node->safe_psql('postgres', 'CREATE DATABASE other; CREATE DATABASE empty');
$node->safe_psql('other', 'CREATE EXTENSION cache_batch');
make_table('postgres', $_) foreach 'a', 'b';
make_table('other', 'c');
$node->safe_psql('postgres', 'CREATE TABLE d (k int); CREATE INDEX d_k ON d USING cachebatch (k)');
unlike(waiting($node, 'postgres'), qr/^0\|/, 'entries wait in one database');
unlike(waiting($node, 'other'), qr/^0\|/, '... and in another one');
$node->restart;
ok(taken_up($node, 'other', 1), 'after a restart they have gone to the tree');
ok(taken_up($node, 'postgres', 2), '... but an index without any is left alone');

insert_ids($node, 'postgres', $_, 2001, 2000) foreach 'a', 'b';
insert_ids($node, 'other', 'c', 2001, 2000);
$node->safe_psql('postgres', 'CHECKPOINT');
crash_restart($node);
ok(taken_up($node, 'other', 1), 'after a crash, too, of which replay has nothing to tell');
ok(taken_up($node, 'postgres', 2), '... in each database');
sound($node, $_, ['k'], "table $_") foreach 'a', 'b';
sound($node, 'c', ['k'], 'table c', 'other');

# one worker for all: each database has its turn
$node->append_conf('postgresql.conf', 'cache_batch.max_workers = 1');
insert_ids($node, 'postgres', $_, 4001, 2000) foreach 'a', 'b';
insert_ids($node, 'other', 'c', 4001, 2000);
$node->restart;
ok(taken_up($node, 'other', 1), 'by one worker');
ok(taken_up($node, 'postgres', 2), '... that goes from one database to the next');
$node->restart;
ok(visited($_), "nothing is left to do in $_") foreach 'postgres', 'other', 'template1';
$node->append_conf('postgresql.conf', 'cache_batch.max_workers = 2');

# beside a damaged one
my $offset;
insert_ids($node, 'postgres', $_, 6001, 2000) foreach 'a', 'b';
my $path = $node->safe_psql('postgres', "SELECT pg_relation_filepath('a_k')");
$node->stop;
damage($node->data_dir . "/$path", 0, [ 24, "\0" x 100 ]);
$offset = -s $node->logfile;
$node->start;
ok(taken_up($node, 'postgres', 1), 'beside a damaged index the other one is taken up');
my @named = log_from($offset) =~ /could not look for entries in the journal of cachebatch index/g;
is(@named, 1, '... which is named once');
$node->safe_psql('postgres', 'DROP TABLE a');

# databases are there for commands at once
insert_ids($node, 'other', 'c', 6001, 1000);
$offset = -s $node->logfile;
$node->restart;
$node->safe_psql('postgres', 'DROP DATABASE empty; CREATE DATABASE copy TEMPLATE other; DROP DATABASE other');
sound($node, 'c', ['k'], 'a database was copied right after the start', 'copy');
sleep 1;
unlike(log_from($offset), qr/FATAL: .*does not exist/, '... and nobody looks for those that were dropped');

# a database that cannot be connected to
my $oid = $node->safe_psql('postgres', "CREATE DATABASE broken" ) . $node->safe_psql('postgres', "SELECT oid FROM pg_database WHERE datname = 'broken'");
$node->stop;
unlink($node->data_dir . "/base/$oid/PG_VERSION") or die;
$offset = -s $node->logfile;
$node->start;
ok(wait_until(sub { log_from($offset) =~ /FATAL: .*base\/$oid/ }), 'one that cannot be connected to is tried');
sleep 8;
@named = log_from($offset) =~ /FATAL: .*base\/$oid/g;
is(@named, 3, '... three times');

# a worker that is ended in the middle
SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 2 unless $points;
	make_table('copy', 'e');
	insert_ids($node, 'copy', 'c', 8001, 1000);
	hold_worker('copy', 'fast', 'worker-visit');
	$node->safe_psql('copy', q(SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
	$node->safe_psql('copy', "ROLLBACK PREPARED 'hold'");
	ok(wait_until(sub { waiting($node, 'copy') =~ /\|1$/ }), 'where a worker was ended another one goes on behind it');
	sound($node, 'e', ['k'], '... rightly', 'copy');
}

# a standby that is promoted
my $standby = new_standby($node, 'resume_standby');
insert_ids($node, 'postgres', 'b', 8001, 2000);
$node->wait_for_catchup($standby);
$standby->promote;
ok(taken_up($standby, 'postgres', 1), 'after a promotion');
sound($standby, 'b', ['k'], '... all is there');

# Workers rest from what they sweep, but not for ever, and not from a journal that is too
# long.  A piece is 64 pages here, 32,512 entries; the longer it takes the longer they rest:
# three minutes behind one of 10 seconds or more.
SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 6 unless $points;
	my $journal = q(SELECT sum(journal_bytes) FROM cache_batch_stat_buckets);
	my $busy = q(SELECT count(*) FROM cache_batch_stat_get_workers() WHERE state = 'flushing');

	# Bytes left when one piece of three was swept, in so many seconds.
	my $sweep_piece = sub {
		my ($table, $seconds) = @_;

		$node->safe_psql('postgres', "CREATE TABLE $table (id bigint, k bigint);
			INSERT INTO $table SELECT i, hashint8extended(i, 1) FROM generate_series(1, 300000) i;
			CREATE INDEX ${table}_k ON $table USING cachebatch (k)");
		insert_ids($node, 'postgres', $table, 300001, 120000);
		hold_worker('postgres', 'immediate', 'sweep-read');
		sleep $seconds;
		my $before = $node->safe_psql('postgres', $journal);
		$node->safe_psql('postgres', "ROLLBACK PREPARED 'hold'");
		wait_until(sub { $node->safe_psql('postgres', $journal) < $before }) or die;
		wait_until(sub { $node->safe_psql('postgres', $busy) == 0 }) or die;
		return $node->safe_psql('postgres', $journal);
	};

	$node->append_conf('postgresql.conf', "maintenance_work_mem = 1MB\ncache_batch.max_workers = 1");
	$node->safe_psql('postgres', 'DROP TABLE b');
	my $left = $sweep_piece->('f', 1);
	cmp_ok($left, '>', 0, 'behind a piece that took long workers rest');
	ok(wait_until(sub { $node->safe_psql('postgres', $journal) == 0 }), '... and go on by themselves');
	sound($node, 'f', ['k'], '... rightly');
	$node->append_conf('postgresql.conf', 'cache_batch.journal_limit = 1024');
	$left = $sweep_piece->('g', 15);
	cmp_ok($left, '>', 1024 * 1024, 'behind one that took longer they rest longer');
	my $swept;
	for (1 .. 60)
	{
		$node->safe_psql('postgres', 'INSERT INTO g VALUES (0, 0)');
		$swept = $node->safe_psql('postgres', $journal) < $left;
		last if $swept;
		sleep 1;
	}
	ok($swept, '... but not from a journal that is too long');
	sound($node, 'g', ['k'], '... rightly');
}

foreach my $server ($node, $standby)
{
	$server->stop;
	unlike(slurp_file($server->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log of ' . $server->name);
}
done_testing();
