# Machines and owners that are out of luck: no library on a standby, no room on a
# disk, files that can't be written, a worker that is killed, no workers to be had, a
# clock that is set back, many indexes, an extension that is dropped while it is
# used, a comparison that lies.  The user sees an error that says what is wrong, and
# nothing is lost.  CB_TABLES: how many tables with 5 indexes each.
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = $ENV{CB_SRCDIR} || '..';
my $dir = PostgreSQL::Test::Utils::tempdir();
my $fault = "$dir/fault";
system_or_bail('cc', '-O1', '-shared', '-fPIC', '-o', "$dir/fault.so", "$tree/test/perl/fault.c", '-ldl');

# The machine of all servers from now on.
sub have_faults
{
	open my $fh, '>', "$fault.new" or die "$fault: $!";
	print $fh map { "$_\n" } @_;
	close $fh;
	rename "$fault.new", $fault or die "$fault: $!";
	return;
}

sub start_with_faults
{
	my ($node) = @_;
	local $ENV{LD_PRELOAD} = "$dir/fault.so";
	local $ENV{ASAN_OPTIONS} = join ":", $ENV{ASAN_OPTIONS} // (), "verify_asan_link_order=0";
	local $ENV{CB_FAULT} = $fault;

	$node->start;
	return;
}

# Statements of which each ends in its own way: the errors.
sub errors_of
{
	my ($node, @statements) = @_;
	my (undef, undef, $err) = $node->psql('postgres', join(";\n", @statements), on_error_stop => 0);

	return $err;
}

sub rows_of
{
	my ($node, $table) = @_;

	return $node->safe_psql('postgres', "SELECT count(*) FROM $table");
}

# Ten statements of 500 rows each.
sub insertions
{
	my ($table, $first) = @_;

	return map {
		my $i = $first + 500 * $_;
		"INSERT INTO $table SELECT i, hashint8(i) FROM generate_series($i, $i + 499) i"
	} 0 .. 9;
}

have_faults();
my $node = new_node('unlucky', conf => "shared_buffers = 64MB\nwal_consistency_checking = 'cache_batch'\n");
$node->safe_psql('postgres', q(
	CREATE TABLE t (id int, k int);
	CREATE INDEX t_k ON t USING cachebatch (k);
	CREATE TABLE other (id int, k int)));
$node->safe_psql('postgres', join ";\n", insertions('t', 1));

# ---------- a standby that has not got the library ----------

$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('unprepared');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->append_conf('postgresql.conf', "shared_preload_libraries = ''\nwal_consistency_checking = ''\n");
$node->safe_psql('postgres', join ";\n", insertions('t', 5001));
$standby->start(fail_ok => 1);
ok(wait_until(sub { slurp_file($standby->logfile) =~ /database system is shut down/ }),
	'a standby without the library stops at the first record of ours');
like(slurp_file($standby->logfile), qr/FATAL:  resource manager with ID 203 not registered/, 'it says why');
like(slurp_file($standby->logfile), qr/HINT:.*shared_preload_libraries/, 'and what to do');
$standby->append_conf('postgresql.conf', "shared_preload_libraries = 'cache_batch'\n");
$standby->stop('immediate', fail_ok => 1);
$standby->start;
$node->wait_for_catchup($standby);
sound($standby, 't', ['k'], 'with the library it goes on');
$standby->stop;

# ---------- the index's disk is full ----------

$node->stop;
start_with_faults($node);
my $rows = rows_of($node, 't');
have_faults('full ' . $node->safe_psql('postgres', "SELECT pg_relation_filepath('t_k')"));
my $err = errors_of($node, map { insertions('t', 20001 + 5000 * $_) } 0 .. 9);
like($err, qr/ERROR:  could not extend file .*: No space left on device/, 'full disk: the insertion fails');
like($err, qr/HINT:  Check free disk space/, 'and says what to do');
my $kept = rows_of($node, 't') - $rows;
is($kept % 500, 0, 'each statement has all of its rows, or none');
sound($node, 't', ['k'], 'the index is whole while there is no room');
crash_with_faults();
sound($node, 't', ['k'], 'also after a crash');
have_faults();
is(errors_of($node, insertions('t', 80001)), '', 'with room, insertions go on');
is(errors_of($node, "SELECT cache_batch_flush('t_k')"), '', 'and so do flushes');
sound($node, 't', ['k'], 'nothing is lost');

# It may have ended by itself: recovery, too, needs room for WAL.
sub crash_with_faults
{
	$node->stop('immediate', fail_ok => 1);
	start_with_faults($node);
	return;
}

# ---------- files that can't be written ----------

have_faults('readonly /base/');
$err = errors_of($node, insertions('t', 90001), 'CHECKPOINT');
like($err, qr/ERROR:  (?:could not (?:write|extend)|checkpoint request failed)/, 'read-only files: an error says so');
sound($node, 't', ['k'], 'what there is can be read');
have_faults();
is(errors_of($node, 'CHECKPOINT', insertions('t', 100001)), '', 'once they can be written all goes on');
sound($node, 't', ['k'], 'nothing is lost');

# ---------- WAL's disk is full ----------

have_faults('full /pg_wal/');
$err = errors_of($node, map { insertions('t', 110001 + 5000 * $_), 'SELECT pg_switch_wal()' } 0 .. 9);
like($err, qr/PANIC|server closed the connection|terminat/, q(full WAL disk: the server stops, as the server's own changes make it));
have_faults();
crash_with_faults();
sound($node, 't', ['k'], 'what was committed is there');

# ---------- a worker is killed ----------

my $worker = qq(SELECT pid FROM cache_batch_stat_workers WHERE pid IS NOT NULL LIMIT 1);
$node->safe_psql('postgres', join ";\n", insertions('t', 170001));
ok(wait_until(sub { $node->safe_psql('postgres', $worker) ne '' }), 'there is a worker');
kill 'KILL', $node->safe_psql('postgres', $worker);
wait_back($node);
sound($node, 't', ['k'], 'a worker is killed: the server restarts, nothing is lost');

# ---------- the clock is set back ----------

$node->safe_psql('postgres', 'ALTER SYSTEM SET cache_batch.max_delay = 1000');
$node->safe_psql('postgres', 'SELECT pg_reload_conf()');
$node->safe_psql('postgres', "SELECT cache_batch_flush('t_k')");
$node->safe_psql('postgres', join ";\n", insertions('t', 180001));
have_faults('clock -7200');
is($node->safe_psql('postgres', "SELECT count(*) FROM cache_batch_stat_buckets WHERE oldest_age < '0'"), '0',
	'the clock is set back: no entry is of the future');
ok(wait_until(sub { $node->safe_psql('postgres', 'SELECT sum(entries) FROM cache_batch_stat_buckets') eq '0' }),
	'entries are flushed in time');
have_faults();
sound($node, 't', ['k'], 'nothing is lost');

# ---------- no workers to be had ----------

$node->stop;
$node->append_conf('postgresql.conf',
	"max_worker_processes = 1\nmax_logical_replication_workers = 0\ncache_batch.pool_size = 256\n");
start_with_faults($node);
is(errors_of($node, map { insertions('t', 200001 + 5000 * $_) } 0 .. 9), '', 'no workers: sessions flush themselves');
sound($node, 't', ['k'], 'nothing is lost');

# ---------- many indexes ----------

my $tables = $ENV{CB_TABLES} || 40;
my @many = map { "many_$_" } 1 .. $tables;

sub in_all
{
	return $node->safe_psql('postgres', join '', map { $_[0] =~ s/EACH/$_/gr . ";\n" } @many);
}

in_all('CREATE TABLE EACH (id int, a int, b text, c int, d int, e int)');
in_all("CREATE INDEX ON EACH USING cachebatch ($_)") foreach qw(a b c d), 'e, a';
foreach my $round (1 .. 3)
{
	in_all('INSERT INTO EACH SELECT i, hashint4(i + j), hashint4(i), -i, hashint4(-i), i % 7
		FROM generate_series(1, 20) i, (VALUES (' . $round . ')) v (j)');
}
is($node->safe_psql('postgres', 'SELECT count(*), bool_and(cache_batch_verify(indexrelid, true) IS NOT NULL)
	FROM cache_batch_stat_indexes'), 5 * $tables + 1 . '|t', "$tables tables with 5 indexes each are whole");
$node->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM many_1 WHERE a > 0');

# ---------- a comparison that lies ----------

$node->safe_psql('postgres', q(
	CREATE FUNCTION lies(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		IF current_setting('unlucky.lies', true) = 'on' THEN RETURN hashint8($1 * 100000::bigint + $2) % 2; END IF;
		RETURN btint4cmp($1, $2);
	END $$;
	CREATE OPERATOR CLASS lying FOR TYPE int USING cachebatch AS
		OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 lies(int, int);
	CREATE TABLE liars (id int, k int);
	CREATE INDEX liars_k ON liars USING cachebatch (k lying) WITH (buffered = on)));
$node->safe_psql('postgres', join ";\n", insertions('liars', 1));
$node->append_conf('postgresql.conf', 'unlucky.lies = on');
$node->reload;
$err = errors_of($node, insertions('liars', 5001), 'SET enable_seqscan = off', "SET statement_timeout = '60s'",
	(map { "SELECT count(*) FROM liars WHERE k $_ 0" } '<', '<=', '=', '>=', '>'),
	'SELECT k FROM liars ORDER BY k DESC LIMIT 100', "SELECT cache_batch_flush('liars_k')",
	'DELETE FROM liars WHERE id % 3 = 0', 'VACUUM liars', "SELECT cache_batch_verify('liars_k')");
unlike($err, qr/server closed|PANIC|terminat/, 'a comparison that lies does not take the server down');
unlike($err, qr/timeout/, 'no statement goes on for ever');
$node->append_conf('postgresql.conf', 'unlucky.lies = off');
$node->reload;
$node->safe_psql('postgres', 'REINDEX INDEX liars_k');
sound($node, 'liars', ['k'], 'REINDEX makes the index whole');

# ---------- the extension is dropped while it is used ----------

my @writers = map {
	my $first = 300001 + 100000 * $_;
	IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $node->connstr('postgres') ],
		'<', \join(";\n", map { insertions('t', $first + 5000 * $_) } 0 .. 9), '>', '/dev/null', '2>', "$dir/writer_$_");
} 0 .. 2;
$node->safe_psql('postgres', 'DROP EXTENSION cache_batch CASCADE');
$_->finish foreach @writers;
is(join('', map { slurp_file("$dir/writer_$_") } 0 .. 2), '', 'the extension is dropped: insertions go on');
is($node->safe_psql('postgres', 'SELECT count(*) FROM t WHERE id > 300000'), 3 * 50000, 'no row is lost');
$node->safe_psql('postgres', 'CREATE EXTENSION cache_batch; CREATE INDEX ON t USING cachebatch (k)');
sound($node, 't', ['k'], 'and the index can be made again');

done_testing();
