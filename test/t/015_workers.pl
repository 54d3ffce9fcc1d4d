# Workers: they flush, and are in nobody's way (B1, C9).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

$SIG{PIPE} = 'IGNORE';

my $node = new_node('workers', conf => <<'EOC');
cache_batch.pool_size = 256kB
cache_batch.journal_limit = 4096
cache_batch.max_delay = 1s
cache_batch.max_workers = 3
max_worker_processes = 12
EOC

my $flushers = q(SELECT count(*) FROM pg_stat_activity
	WHERE backend_type = 'cache_batch flusher');

sub make_table
{
	my ($db) = @_;

	$node->safe_psql($db, q(
		CREATE EXTENSION IF NOT EXISTS cache_batch;
		CREATE TABLE t (id int, k int);
		CREATE INDEX t_k ON t USING cachebatch (k);
		INSERT INTO t SELECT i, hashint4(i) FROM generate_series(1, 3000) i));
	return;
}

sub flushes
{
	my ($db) = @_;

	return $node->safe_psql($db || 'postgres', q(
		SELECT coalesce(sum(flushes_full + flushes_pressure + flushes_delay), 0)
		FROM cache_batch_stat_indexes));
}

sub insert
{
	my ($db, $n) = @_;

	$node->safe_psql($db, "INSERT INTO t SELECT i, hashint4(i * 7)
		FROM generate_series(1, 500) i") foreach 1 .. $n;
	return;
}

# A session that inserts without end; killed by finish_writer().
sub start_writer
{
	my ($db) = @_;
	my $writer = $node->background_psql($db, on_error_stop => 0);

	$writer->query_until(qr/started/, qq(\\echo started
		DO \$\$ BEGIN LOOP
			INSERT INTO t SELECT i, hashint4(i + (random() * 1e6)::int)
			FROM generate_series(1, 500) i;
			COMMIT;
		END LOOP; END \$\$;
		));
	return $writer;
}

sub stop_writers
{
	my ($db, @writers) = @_;

	$node->safe_psql('postgres', qq(SELECT pg_cancel_backend(pid)
		FROM pg_stat_activity WHERE datname = '$db' AND query ~ 'LOOP'
		AND pid <> pg_backend_pid()));
	$node->poll_query_until('postgres', qq(SELECT count(*) = 0
		FROM pg_stat_activity WHERE datname = '$db' AND state = 'active'
		AND query ~ 'LOOP' AND pid <> pg_backend_pid()));
	eval { $_->quit } foreach @writers;
	$node->poll_query_until('postgres', qq(SELECT count(*) = 0
		FROM pg_stat_activity WHERE datname = '$db'
		AND backend_type = 'client backend' AND pid <> pg_backend_pid()));
	return;
}

# Runs a command that must not be held up.
sub quickly
{
	my ($sql, $what) = @_;
	my $start = time;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);

	is($rc, 0, $what) or diag($err);
	cmp_ok(time - $start, '<', 4, "$what: soon");
	return;
}

# ---------- they flush ----------

make_table('postgres');
$node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'cache_batch launcher'));
insert('postgres', 60);
ok($node->poll_query_until('postgres', q(SELECT sum(flushes_full + flushes_pressure) > 0
	FROM cache_batch_stat_indexes)), 'full buckets are flushed');
sound($node, 't', ['k'], 'after flushes by workers');

ok($node->poll_query_until('postgres', q(SELECT journaled = flushed
	FROM cache_batch_stat_indexes WHERE indexrelname = 't_k')),
	'max_delay empties the buckets of an idle index');
ok($node->poll_query_until('postgres', "$flushers HAVING count(*) = 0", '0'),
	'workers leave when there is nothing to do');

# ---------- killed and ended ----------

my $before = flushes();
my $writer = start_writer('postgres');
my $ended = 0;
for (1 .. 200)
{
	$ended += $node->safe_psql('postgres', q(SELECT count(pg_terminate_backend(pid))
		FROM pg_stat_activity WHERE backend_type = 'cache_batch flusher'));
	last if $ended >= 3;
	sleep 0.05;
}
cmp_ok($ended, '>=', 3, 'workers were ended');
ok($node->poll_query_until('postgres', qq(SELECT sum(flushes_full + flushes_pressure + flushes_delay)
	> $before + 20 FROM cache_batch_stat_indexes)), 'others go on');
stop_writers('postgres', $writer);
sound($node, 't', ['k'], 'after the end of workers');

$node->safe_psql('postgres', q(SELECT pg_terminate_backend(pid)
	FROM pg_stat_activity WHERE backend_type = 'cache_batch launcher'));
insert('postgres', 20);
ok($node->poll_query_until('postgres', q(SELECT count(*) = 1 FROM pg_stat_activity
	WHERE backend_type = 'cache_batch launcher')), 'the launcher comes back');

$writer = start_writer('postgres');
my $pid = '';
for (1 .. 200)
{
	$pid = $node->safe_psql('postgres', q(SELECT pid FROM pg_stat_activity
		WHERE backend_type = 'cache_batch flusher' LIMIT 1));
	last if $pid ne '';
	sleep 0.05;
}
kill 'KILL', $pid;
wait_back($node);
eval { $writer->quit };
sound($node, 't', ['k'], 'after kill -9 of a worker');
insert('postgres', 20);
sound($node, 't', ['k'], 'and insertions after it');

# ---------- commands on databases ----------

mkdir $node->basedir . '/ts';
$node->safe_psql('postgres', "CREATE TABLESPACE ts LOCATION '" . $node->basedir . "/ts'");
$node->safe_psql('postgres', 'CREATE DATABASE d');
make_table('d');
for my $command ('CREATE DATABASE copy TEMPLATE d', 'ALTER DATABASE d RENAME TO e',
	'ALTER DATABASE e RENAME TO d', 'ALTER DATABASE d SET TABLESPACE ts',
	'DROP DATABASE copy')
{
	my $db = $command =~ /DROP/ ? 'copy' : $command =~ /DATABASE e/ ? 'e' : 'd';
	my $writing = start_writer($db);

	$node->poll_query_until('postgres', qq(SELECT count(*) > 0 FROM pg_stat_activity
		WHERE backend_type = 'cache_batch flusher' AND datname = '$db'));
	stop_writers($db, $writing);
	quickly($command, $command);
}
sound($node, 't', ['k'], 'the database that was moved and renamed', 'd');
insert('d', 10);
sound($node, 't', ['k'], 'insertions after it', 'd');

# a database that nobody may connect to, and one that goes by force
insert('d', 5);
$node->safe_psql('postgres', 'ALTER DATABASE d ALLOW_CONNECTIONS false');
ok($node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_stat_activity
	WHERE backend_type = 'cache_batch flusher' AND datname = 'd')),
	'a database without connections is served');
$node->safe_psql('postgres', 'ALTER DATABASE d ALLOW_CONNECTIONS true');

# a worker in the middle of a comparison that takes a minute
$node->safe_psql('d', q(
	CREATE TABLE mood (sleepy boolean);
	CREATE TABLE f (k int);
	CREATE FUNCTION f_cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.mood) THEN PERFORM pg_sleep(60); END IF;
		RETURN CASE WHEN a < b THEN -1 WHEN a > b THEN 1 ELSE 0 END;
	END $$;
	CREATE OPERATOR CLASS f_ops FOR TYPE int USING cachebatch AS
		OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
		FUNCTION 1 f_cmp(int, int);
	CREATE INDEX f_k ON f USING cachebatch (k f_ops) WITH (buffered = on);
	INSERT INTO f SELECT hashint4(i) FROM generate_series(1, 300) i;
	INSERT INTO f SELECT hashint4(-i) FROM generate_series(1, 20) i;
	INSERT INTO mood VALUES (true)));
ok($node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_stat_activity
	WHERE backend_type = 'cache_batch flusher' AND datname = 'd' AND wait_event = 'PgSleep')),
	'a worker sleeps in a comparison');

# who may not copy the database does not send its worker away
my $sleeping = q(FROM pg_stat_activity
	WHERE backend_type = 'cache_batch flusher' AND datname = 'd' AND wait_event = 'PgSleep');
my $sleeper = $node->safe_psql('postgres', "SELECT pid $sleeping");
my $copy = 'SET ROLE creator; CREATE DATABASE copy TEMPLATE d';
$node->safe_psql('postgres', 'CREATE ROLE creator CREATEDB');
my (undef, undef, $denied) = $node->psql('postgres', $copy);
like($denied, qr/permission denied to copy database "d"/, 'only the owner may copy a database');
is($node->safe_psql('postgres', "SELECT pid $sleeping"), $sleeper, 'its worker goes on');
$node->safe_psql('postgres', 'ALTER DATABASE d IS_TEMPLATE true');
quickly($copy, 'CREATE DATABASE from a template with a sleeping worker');
$node->safe_psql('postgres', 'ALTER DATABASE d IS_TEMPLATE false; DROP DATABASE copy');
ok($node->poll_query_until('postgres', "SELECT count(*) > 0 $sleeping"), 'a worker sleeps again');
$node->safe_psql('postgres', 'ALTER DATABASE d OWNER TO creator');
quickly($copy, 'CREATE DATABASE by the owner with a sleeping worker');
$node->safe_psql('postgres', 'DROP DATABASE copy');
ok($node->poll_query_until('postgres', "SELECT count(*) > 0 $sleeping"), 'and again');
quickly('ALTER DATABASE d RENAME TO e', 'ALTER DATABASE RENAME with a sleeping worker');
$node->safe_psql('e', q(DELETE FROM mood;
	SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
	WHERE backend_type = 'cache_batch flusher' AND datname = 'e'));
sound($node, 'f', ['k'], 'after it', 'e');
quickly('ALTER DATABASE e RENAME TO d', 'the way back');

# one that is broken, as an interrupted DROP DATABASE leaves it
my $from = -s $node->logfile;
insert('d', 5);
$node->safe_psql('postgres', q(
	UPDATE pg_database SET datconnlimit = -2 WHERE datname = 'd'));
sleep 4;
my $attempts = () = slurp_file($node->logfile, $from) =~ /FATAL: .*invalid database/g;
cmp_ok($attempts, '<=', 2, 'workers do not try for ever');
$node->safe_psql('postgres', q(
	UPDATE pg_database SET datconnlimit = -1 WHERE datname = 'd'));
sound($node, 't', ['k'], 'nothing is lost by that', 'd');
$writer = start_writer('d');
quickly('DROP DATABASE d WITH (FORCE)', 'DROP DATABASE WITH (FORCE)');
eval { $writer->quit };

# ---------- commands on indexes ----------

$writer = start_writer('postgres');
for my $round (1 .. 5)
{
	foreach my $command ('REINDEX INDEX t_k', 'DROP INDEX t_k',
		'CREATE INDEX t_k ON t USING cachebatch (k)', 'TRUNCATE t')
	{
		my ($rc, $out, $err) = $node->psql('postgres', "SET lock_timeout = '20s'; $command");

		is($rc, 0, "$command during flushes, round $round") or diag($err);
		sleep 0.2;
	}
}
stop_writers('postgres', $writer);
sound($node, 't', ['k'], 'after changes of the index');

# ---------- an index whose comparisons fail ----------

$node->safe_psql('postgres', q(
	CREATE TABLE mood (angry boolean);
	CREATE TABLE f (k int);
	CREATE FUNCTION f_cmp(a int, b int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		IF EXISTS (SELECT FROM public.mood) THEN RAISE 'angry'; END IF;
		RETURN CASE WHEN a < b THEN -1 WHEN a > b THEN 1 ELSE 0 END;
	END $$;
	CREATE OPERATOR CLASS f_ops FOR TYPE int USING cachebatch AS
		OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
		FUNCTION 1 f_cmp(int, int);
	CREATE INDEX f_k ON f USING cachebatch (k f_ops) WITH (buffered = on);
	INSERT INTO f SELECT hashint4(i) FROM generate_series(1, 300) i));
$node->safe_psql('postgres', q(INSERT INTO f SELECT hashint4(-i) FROM generate_series(1, 20) i;
	INSERT INTO mood VALUES (true)));
my $offset = -s $node->logfile;
for (1 .. 100)
{
	last if slurp_file($node->logfile, $offset) =~ /could not flush cachebatch index/;
	sleep 0.1;
}
like(slurp_file($node->logfile, $offset), qr/WARNING: .*could not flush cachebatch index .*angry/,
	'a failing flush is reported');
insert('postgres', 30);
sleep 3;
my $reports = () = slurp_file($node->logfile, $offset) =~ /could not flush/g;
cmp_ok($reports, '<', 5, 'but not all the time');
$node->safe_psql('postgres', 'DELETE FROM mood');
sound($node, 'f', ['k'], 'and does no harm');

# ---------- shutdown, and no workers ----------

$writer = start_writer('postgres');
sleep 1;
my $start = time;
$node->stop('fast');
cmp_ok(time - $start, '<', 10, 'a fast shutdown is quick');
eval { $writer->quit };
$node->append_conf('postgresql.conf', 'cache_batch.max_workers = 0');
$node->start;
sound($node, 't', ['k'], 'after the shutdown');
insert('postgres', 40);
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity
	WHERE backend_type ~ 'cache_batch')), '0', 'max_workers = 0: no process');
sound($node, 't', ['k'], 'max_workers = 0');

# one at a time, for two databases
$node->append_conf('postgresql.conf', 'cache_batch.max_workers = 1');
$node->restart;
my @databases = ('one', 'two');
my $most = 0;
foreach my $db (@databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	make_table($db);
}
insert($_, 20) foreach @databases;
ok(wait_until(sub {
			my $workers = $node->safe_psql('postgres', $flushers);

			$most = $workers if $workers > $most;
			return !grep { $node->safe_psql($_, q(SELECT journaled > 0 AND journaled = flushed
				FROM cache_batch_stat_indexes WHERE indexrelname = 't_k')) ne 't' } @databases;
		}), 'max_workers = 1: both databases are flushed');
is($most, 1, 'by one worker at a time');

$node->append_conf('postgresql.conf', "cache_batch.max_workers = 2\ncache_batch.pool_size = 0");
$node->restart;
insert('postgres', 10);
sound($node, 't', ['k'], 'no pool');

done_testing();
