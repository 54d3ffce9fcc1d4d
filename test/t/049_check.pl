# cache_batch_check: the client that verifies all indexes of a database, or of all of
# them.  What it checks, what it says, and its exit status.
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('check');
my $odd = q{a "b' \\c=d $e};		# a database

$ENV{PGHOST} = $node->host;
$ENV{PGPORT} = $node->port;

sub ask
{
	my ($sql, $db) = @_;
	return $node->safe_psql($db // 'postgres', $sql);
}

# Runs it; returns exit status, standard output and standard error.
sub check
{
	my ($out, $err) = ('', '');

	IPC::Run::run([ 'cache_batch_check', @_ ], '<', \undef, '>', \$out, '2>', \$err);
	return ($? >> 8, $out, $err);
}

# Is that its status, does it print nothing, and what is right on standard error?
sub prints
{
	my ($what, $status, $message, @args) = @_;
	my ($rc, $out, $err) = check(@args);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is("$rc|$out", "$status|", "$what: exit status, and nothing on standard output");
	like($err, $message, "$what: standard error");
	return;
}

# Which indexes are checked, if all goes well.
sub checks
{
	my ($what, $names, @args) = @_;
	my ($rc, $out, $err) = check('-v', @args);
	my @checked = $err =~ /: checking index (.*) of database/g;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is("$rc|$out|" . join(', ', @checked), "0||$names", $what);
	like($err, qr/: ${\scalar @checked} indexes checked, 0 damaged, 0 gone, 0 could not be checked$/m, "$what, and no more");
	return;
}

# Starts it.
sub start
{
	my ($reply, @args) = @_;

	delete local $ENV{PGAPPNAME};
	$reply->{$_} = '' foreach qw(out err);
	return IPC::Run::start([ 'cache_batch_check', @args ], '<', \undef, '>', \$reply->{out}, '2>', \$reply->{err},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
}

# Until that many of its sessions wait for a lock.
sub await_waiting
{
	my ($n) = @_;

	$node->poll_query_until('postgres', qq(
		SELECT count(*) = $n FROM pg_stat_activity
		WHERE application_name = 'cache_batch_check' AND wait_event_type = 'Lock'))
	  or die "$n sessions do not wait";
	return;
}

ask('CREATE DATABASE plain');
ask('CREATE DATABASE "' . ($odd =~ s/"/""/gr) . '"');
ask(q(
	CREATE TABLE t (id int, s text);
	INSERT INTO t SELECT i, md5(i::text) FROM generate_series(1, 3000) i;
	CREATE INDEX t_a ON t USING cachebatch (id);
	CREATE INDEX t_b ON t USING cachebatch (s);
	CREATE INDEX t_left_out ON t USING cachebatch (id, s);
	UPDATE pg_index SET indisvalid = false WHERE indexrelid = 't_left_out'::regclass;
	CREATE INDEX t_btree ON t (id);
	CREATE TABLE p (k int) PARTITION BY LIST (k);
	CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);
	CREATE INDEX p_k ON p USING cachebatch (k);
	CREATE SCHEMA "S.1";
	CREATE TABLE "S.1"."U v" (k int);
	CREATE INDEX "dot.ted" ON "S.1"."U v" USING cachebatch (k);
	CREATE INDEX "new
line" ON "S.1"."U v" USING cachebatch (k);
	CREATE INDEX "qu""o'te $x\:y" ON "S.1"."U v" USING cachebatch (k)));
ask(q(
	CREATE SCHEMA "Odd e.:x";
	CREATE EXTENSION cache_batch SCHEMA "Odd e.:x";
	CREATE TABLE o (k int);
	INSERT INTO o SELECT generate_series(1, 3000);
	CREATE INDEX o_k ON o USING cachebatch (k)), $odd);

# ---------- what is checked ----------

my @odd_ones = ('"S.1"."dot.ted"', '"S.1"."new line"', q("S.1"."qu""o'te $x\:y"));
my $postgres = join ', ', @odd_ones, 'public.p1_k_idx', 'public.t_a', 'public.t_b';

prints('all is right', 0, qr/\A\z/);
checks('the default database', $postgres);
checks('one database', 'public.o_k', $odd);
checks('all databases', "public.o_k, $postgres", '--all', '--jobs=1');
checks('several at a time', "public.o_k, $postgres", '-aj3');
checks('and with their rows', "public.o_k, $postgres", '-a', '--heapallindexed');
prints('databases without the extension', 0,
	qr/\A.*skipping database "plain": .*not installed.*\n.*skipping database "template1": .*not installed.*\n\z/, '-a');
checks('databases by patterns', "public.o_k, $postgres", '-d', 'a*', '--database', 'POST?res', '-dplain');
checks('a database by its quoted name', 'public.o_k', '-d', q{"a ""b' \\c=d $e"});
prints('only databases without the extension', 1, qr/error: no database has the extension/, 'plain');

checks('? in a pattern', 'public.t_a, public.t_b', '-i', 't_?');
checks('* in a pattern', 'public.p1_k_idx', '-ip*');
checks('letters are folded', 'public.t_a', '--index=PUBLIC.T_A');
prints('but not in quotes', 1, qr/error: nothing to check for index ""T_A""/, '-i', '"T_A"');
checks('a regular expression', 'public.t_a, public.t_b', '-i', 't_(a|b)');
prints("not all of a name: $_", 1, qr/nothing to check for index "$_"/, '-i', $_) foreach qw(p1 _a);
checks('a dot in quotes', '"S.1"."dot.ted"', '-i', '"dot.ted"');
prints('a dot outside of them', 1, qr/nothing to check for index "dot.ted"/, '-i', 'dot.ted');
checks('a quoted schema', '"S.1"."dot.ted"', '-i', '"S.1".dot*');
checks('a new line', '"S.1"."new line"', '-i', "\"new\nline\"");
checks('a quote, and other signs', $odd_ones[2], '-i', q("qu""o'te $x\:y"));
checks('nothing special in quotes', $odd_ones[2], '-i', q(qu?o't? $x*));
prints('so * is an asterisk', 1, qr/nothing to check/, '-i', '"dot.*"');
checks('a table', join(', ', @odd_ones), '-t', '"U v"');
checks('a table of a schema', 'public.t_a, public.t_b', '--table', 'pub*.t');
checks('a schema, and an index besides', join(', ', @odd_ones, 'public.t_a'), '-s', '"S.1"', '-i', 't_a', '--schema="S.?"|"S.1"');
checks('in all databases', 'public.o_k, public.t_a', '-a', '-i', '(o_k|t_a)');
prints('one pattern that fits nothing', 1, qr/\A.*nothing to check for table "none"\n\z/, '-i', 't_a', '-t', 'none');
prints('nor does a database', 1, qr/nothing to check for database "none"/, '-d', 'none', '-d', 'postgres');
prints('too many dots', 1, qr/too many dots: a\.b\.c/, '-i', 'a.b.c');
prints('an invalid index', 1, qr/nothing to check/, '-i', 't_left_out');
prints('progress', 0, qr/^6\/6 indexes \(100%\)\n\z/m, '-P', '-j', '2');

# ---------- options, connections ----------

program_help_ok('cache_batch_check');
program_version_ok('cache_batch_check');
program_options_handling_ok('cache_batch_check');
my ($version) = slurp_file(($ENV{CB_SRCDIR} || '..') . '/cache_batch.control') =~ /default_version = '(.*)'/;
is((check('--version'))[1], "cache_batch_check (cache_batch) $version\n", 'the version is that of the extension');
prints('no number of jobs', 1, qr/not a number of jobs: 0/, '-j', '0');
prints('a value is missing', 1, qr/option --index needs a value/, '--index');
prints('two databases', 1, qr/too many arguments: b/, 'a', 'b');
prints('all and one', 1, qr/exclude each other/, '-a', 'postgres');
prints('one and another', 1, qr/exclude each other/, '-d', 'plain', 'postgres');

prints('no server', 1, qr/connection to server .* failed.*error: cannot list/s, '--port=1', 'postgres');
prints('no server to ask for databases', 1, qr/connection to server .* failed/, '-ap1');
prints('no such host', 1, qr/connection to server .* failed/, '-h', "$ENV{PGHOST}/none");
prints('no such database', 1, qr/database "none" does not exist/, 'none');
prints('no such maintenance database', 1, qr/database "none" does not exist/, '-a', '--maintenance-db=none');

ask('CREATE ROLE weak LOGIN');
prints('no privilege', 1, qr/(error: index .*: ERROR:  permission denied for function cache_batch_verify.*){6}/s, '-U', 'weak');
ask('GRANT pg_stat_scan_tables TO weak; ALTER TABLE t OWNER TO weak');
prints('the owner of some', 1, qr/ERROR:  must be owner of index p1_k_idx.* 2 indexes checked, 0 damaged, 0 gone, 4 could not be checked/s, '-vU', 'weak');

# ---------- locks, what vanishes, signals ----------

my ($holder, $run, %reply) = $node->background_psql('postgres');

$holder->query_safe('BEGIN; LOCK TABLE "S.1"."U v"');
$run = start(\%reply, '-j', '3');
await_waiting(3);
pass('three jobs are three sessions');
$holder->query_safe('ROLLBACK');
$run->finish;
is($run->result(0) . "|$reply{out}|$reply{err}", '0||', 'they end well');

foreach my $option ('-j1', '-v')
{
	$holder->query_safe('BEGIN; DROP INDEX "S.1"."dot.ted"');
	$run = start(\%reply, $option);
	await_waiting(1);
	ask('DROP INDEX t_b');
	$holder->query_safe('COMMIT');
	$run->finish;
	is($run->result(0) . "|$reply{out}", '0|', 'indexes that are dropped meanwhile are no fault');
	ask('CREATE INDEX "dot.ted" ON "S.1"."U v" USING cachebatch (k); CREATE INDEX t_b ON t USING cachebatch (s)');
	next if $option eq '-v';
	is($reply{err}, '', 'and not worth a word');
}
like($reply{err}, qr/dot\.ted" of .* is gone.*t_b of .* is gone.* 4 indexes checked, 0 damaged, 2 gone, 0 could/s, 'unless it is asked for');

foreach my $signal ('TERM', 'INT')
{
	$holder->query_safe('BEGIN; LOCK TABLE "S.1"."U v"');
	$run = start(\%reply, '-j', '2');
	await_waiting(2);
	$run->signal($signal);
	$run->finish;
	is($run->result(0) . "|$reply{out}", '1|', "$signal: it ends");
	like($reply{err}, qr/error: interrupted$/, "$signal: and says so");
	ok($node->poll_query_until('postgres', q(
		SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'cache_batch_check')),
		"$signal: no session stays");
	$holder->query_safe('ROLLBACK');
}
$holder->quit;

# ---------- a standby ----------

my $standby = new_standby($node, 'check_standby');

$node->wait_for_catchup($standby);
checks('on a standby', "public.o_k, $postgres", '-a', '--heapallindexed', '-p', $standby->port, '-h', $standby->host);
$standby->stop;

# ---------- damage ----------

# a row without an entry
ask(q(
	UPDATE pg_index SET indisready = false, indisvalid = false WHERE indexrelid = 't_b'::regclass;
	INSERT INTO t VALUES (1, 'not indexed');
	UPDATE pg_index SET indisready = true, indisvalid = true WHERE indexrelid = 't_b'::regclass));
checks('a row without an entry is not looked for', 'public.t_b', '-i', 't_b');
my ($rc, $out, $err) = check('-i', 't_b', '--heapallindexed');
is("$rc|$err", '2|', 'unless it is asked for');
like($out, qr/\Aindex public\.t_b of database "postgres": ERROR:  index "t_b" is corrupted DETAIL:  Row \(\d+,\d+\) .* has no entry.*\n\z/, 'then it is found');
ask('REINDEX INDEX t_b');

# The file and a leaf of an index.
sub leaf_of
{
	my ($index, $db, $schema) = @_;

	ask("CHECKPOINT; SELECT cache_batch_flush('$index')") if $db eq 'postgres';
	return split /\|/, ask(qq(
		SELECT pg_relation_filepath('$index'), min(b) FROM generate_series(1, pg_relation_size('$index') / 8192 - 1) b,
			$schema.cache_batch_page('$index', b) p WHERE p.type = 'leaf'), $db);
}

my ($t_a, $t_leaf) = leaf_of('t_a', 'postgres', 'public');
my ($o_k, $o_leaf) = leaf_of('o_k', $odd, q("Odd e.:x"));

# one that we find, and one that the server finds when it reads the page
$node->stop;
damage($node->data_dir . "/$t_a", $t_leaf, [ 8192 - 2, 'zz' ]);
damage($node->data_dir . "/$o_k", $o_leaf, [ 12, "\xff\xff" ]);
$node->start;
foreach my $jobs (1, 3)
{
	($rc, $out, $err) = check('-av', "-j$jobs");
	is($rc, 2, "$jobs jobs: damage is found");
	is(join('', sort split /^/, $out) =~ s/ERROR:.*?block (\d+).*/at $1/gr,
		qq(index public.o_k of database "$odd": at $o_leaf\nindex public.t_a of database "postgres": at $t_leaf\n),
		"$jobs jobs: a line for each damaged index");
	like($err, qr/ 7 indexes checked, 2 damaged, 0 gone, 0 could not be checked$/m, "$jobs jobs: the others are checked all the same");
	unlike($err, qr/ERROR/, "$jobs jobs: damage is on standard output alone");
}
($rc, $out, $err) = check('-i', 't_a', '-i', 'none');
is($rc, 2, 'damage is worse than what could not be checked');
like($err, qr/nothing to check for index "none"/, 'which is said as well');
checks('the others are whole', 'public.t_b', '-i', 't_b');

done_testing();
