# Pages that have left the tree are used again on the primary, while queries of a standby
# without feedback still have links to them: they see that, and go on as beside btree
# (A11).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', conf => <<'EOC');
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.spill_threshold = off
max_connections = 100
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);
my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = 0\nhot_standby_feedback = off\n");

my $forced = join ' ', map { "SET enable_$_ = off;" } qw(seqscan bitmapscan sort);
my $heap = join ' ', map { "SET enable_$_ = off;" } qw(indexscan indexonlyscan bitmapscan);
my $holder = $standby->background_psql('postgres');

$primary->safe_psql('postgres', q(
	CREATE FUNCTION cache_batch_test_point(point text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM set_config('test.hits', (current_setting('test.hits')::int - 1)::text, false);
		IF current_setting('test.hits') = '0' THEN
			PERFORM pg_advisory_lock_shared(1);
		END IF;
	END $$));

# Half-full leaves over all keys, 1 to 50000: they are few enough for one root.
sub fill
{
	my ($table) = @_;

	$primary->safe_psql('postgres', qq(
		CREATE TABLE $table (k int, t text);
		ALTER TABLE $table ALTER t SET STORAGE PLAIN;
		INSERT INTO $table SELECT i * 50, repeat(md5(i::text), 15) FROM generate_series(1, 1000) i;
		CREATE INDEX ${table}_k ON $table USING cachebatch (k, t) WITH (fillfactor = 50)));
	return;
}

sub pages
{
	my ($table, $type) = @_;

	return $primary->safe_psql('postgres', qq(
		SELECT count(*) FROM generate_series(1, pg_relation_size('${table}_k') / 8192 - 1) b,
			cache_batch_page('${table}_k', b) p WHERE p.type = '$type'));
}

# Packs all leaves: every second one leaves the tree.
sub pack_leaves
{
	my ($table) = @_;

	$primary->safe_psql('postgres', "SELECT cache_batch_compact('${table}_k')");
	cmp_ok(pages($table, 'deleted'), '>', 20, "$table: leaves have left the tree");
	return;
}

# Inserts greater keys, for which all these pages are used again.
my $next = 1_000_000;

sub use_again
{
	my ($table) = @_;

	$primary->safe_psql('postgres', 'SELECT pg_current_xact_id()');
	for (1 .. 20)
	{
		$primary->safe_psql('postgres', qq(
			INSERT INTO $table SELECT i, repeat(md5(i::text), 15) FROM generate_series($next, $next + 199) i;
			SELECT cache_batch_flush('${table}_k')));
		$next += 200;
		last if pages($table, 'deleted') == 0;
	}
	is(pages($table, 'deleted'), 0, "$table: their pages are used again");
	$primary->wait_for_catchup($standby);
	return;
}

sub conflicts
{
	return $standby->safe_psql('postgres', q(SELECT sum(confl_tablespace + confl_lock + confl_snapshot + confl_bufferpin + confl_deadlock)
		FROM pg_stat_database_conflicts));
}

sub await_waiters
{
	my ($n, $what) = @_;

	ok($standby->poll_query_until('postgres', "SELECT count(*) = $n FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), $what);
	return;
}

# A transaction on the standby, with what the table answers to a question.
sub begin
{
	my ($question) = @_;
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);
	my $right = $reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; $heap $question");

	$reader->query_safe("RESET ALL; $forced");
	return ($reader, $right);
}

# Asks, to wait when it comes to a place, or does so for the nth time, until the holder's
# lock is gone.
sub ask_at
{
	my ($reader, $point, $question, $hit) = @_;
	my $action = $hit ? 'call' : 'wait:1';

	$hit ||= 0;
	$reader->query_safe("SET statement_timeout = '60s'; SET test.hits = $hit; SET cache_batch.test_points = '$point=$action'");
	$reader->query_until(qr/begun/, "\\echo begun\n$question;\n\\echo ended\n");
	return;
}

sub answer_of
{
	my ($reader) = @_;
	my ($answer) = $reader->query_until(qr/ended/, '') =~ /\A\s*(.*?)\s*ended/s;

	$reader->quit;
	return $answer;
}

# ---------- between a link and its page ----------

# Each of these has read a link: to a leaf that leaves the tree, or to one beside it.
my $digest = 'SELECT count(*), md5(string_agg(k || left(t, 9), \',\')) FROM (SELECT k, t FROM %s WHERE %s) s';
my @held = (
	(map { [ 'step-down', "k BETWEEN $_ AND $_ + 400 ORDER BY k" ] } map { 1000 + 4500 * $_ } 0 .. 9),
	(map { [ 'step-down', "k BETWEEN $_ AND $_ + 400 ORDER BY k DESC" ] } map { 3000 + 9000 * $_ } 0 .. 4),
	[ 'scan-group-found', 'k = ANY (ARRAY(SELECT i * 1500 FROM generate_series(1, 30) i))' ],
	[ 'scan-leaf-read', 'k > 10000 AND k < 40000 ORDER BY k' ],
	[ 'scan-leaf-read', 'k > 10000 AND k < 40000 ORDER BY k DESC' ]);

fill('a');
$primary->wait_for_catchup($standby);
$holder->query_safe('SELECT pg_advisory_lock(1)');
foreach my $held (@held)
{
	my ($point, $where) = @$held;
	my $question = sprintf $digest, 'a', $where;
	my ($reader, $right) = begin($question);

	push @$held, $reader, $right;
	ask_at($reader, $point, $question);
}
my @others = (
	[ 'verify-right', q(SELECT 'verified ' || (cache_batch_verify('a_k', true) IS NOT NULL)), 'verified true' ],
	[ 'prewarm-right', q(SELECT cache_batch_prewarm('a_k') > 50), 't' ]);
foreach my $other (@others)
{
	my ($point, $question) = @$other;

	# one of two leaves in a row leaves the tree
	foreach my $hit (1, 2)
	{
		my ($reader) = begin('SELECT 1');

		push @$other, $reader;
		ask_at($reader, $point, $question, $hit);
	}
}
await_waiters(@held + 2 * @others, 'queries wait where they have read a link');
pack_leaves('a');
use_again('a');
$holder->query_safe('SELECT pg_advisory_unlock(1)');
foreach my $held (@held)
{
	my ($point, $where, $reader, $right) = @$held;

	is(answer_of($reader), $right, "$point: $where");
}
foreach my $other (@others)
{
	my ($point, $question, $right, @readers) = @$other;

	is(answer_of($_), $right, $question) foreach @readers;
}

# ---------- from a page that has left the tree ----------

# Each has a link to an empty leaf.  These leave the tree, and lead to the leaf on their
# right; that leaves it later, when it has given its entries away, and is used again
# while they are not: the map has those that packing has freed.
fill('d');
$primary->safe_psql('postgres', 'DELETE FROM d WHERE k BETWEEN 10000 AND 20000');
$primary->wait_for_catchup($standby);
$holder->query_safe('SELECT pg_advisory_lock(1)');
my @old;

foreach my $k (map { 10000 + 1000 * $_ } 1 .. 9)
{
	my $question = sprintf $digest, 'd', "k BETWEEN $k AND 26000 ORDER BY k";
	my ($reader, $right) = begin($question);

	push @old, [ $k, $reader, $right ];
	ask_at($reader, 'step-down', $question);
}
await_waiters(scalar @old, 'queries wait that have a link to an empty leaf');

sub type_of
{
	my ($block) = @_;

	return $primary->safe_psql('postgres', "SELECT type FROM cache_batch_page('d_k', $block)");
}

$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) d');
my $empty = pages('d', 'deleted');
cmp_ok($empty, '>', 20, 'the leaves leave the tree');
my $neighbour = $primary->safe_psql('postgres', q(
	WITH gone AS (SELECT b, p.next FROM generate_series(1, pg_relation_size('d_k') / 8192 - 1) b,
		cache_batch_page('d_k', b) p WHERE p.type = 'deleted')
	SELECT next FROM gone WHERE next NOT IN (SELECT b FROM gone)));
like($neighbour, qr/^\d+$/, 'and lead to one');
$primary->safe_psql('postgres', "SELECT cache_batch_compact('d_k', $_, $_ + 400)") foreach 20400, 20000;
is(type_of($neighbour), 'deleted', 'which leaves it later');
$primary->safe_psql('postgres', 'SELECT pg_current_xact_id()');
for (1 .. 50)
{
	$primary->safe_psql('postgres', "INSERT INTO d SELECT i, repeat(md5(i::text), 15) FROM generate_series($next, $next + 19) i; SELECT cache_batch_flush('d_k')");
	$next += 20;
	last if type_of($neighbour) ne 'deleted';
}
isnt(type_of($neighbour), 'deleted', 'and is used again');
is(pages('d', 'deleted'), $empty, 'before them');
$primary->wait_for_catchup($standby);
$holder->query_safe('SELECT pg_advisory_unlock(1)');
is(answer_of($_->[1]), $_->[2], "from $_->[0]") foreach @old;

# ---------- a link to an internal page ----------

# Each of these has a link from the root to a page of level 1, all of whose leaves are
# empty; these pages leave the tree, and are used again.  None has come to a row yet,
# whose page it would hold.
$primary->safe_psql('postgres', q(
	CREATE TABLE e (k int, t text);
	ALTER TABLE e ALTER t SET STORAGE PLAIN;
	INSERT INTO e SELECT i, repeat(md5(i::text), 25) FROM generate_series(1, 2000) i;
	CREATE INDEX e_k ON e USING cachebatch (t) WITH (fillfactor = 50);
	DELETE FROM e WHERE t BETWEEN '3' AND 'd'));
cmp_ok($primary->safe_psql('postgres', q(SELECT root_level FROM cache_batch_metapage('e_k'))), '>', 1, 'e: three levels at least');
$primary->wait_for_catchup($standby);
$holder->query_safe('SELECT pg_advisory_lock(1)');
my @inner;

sub level_1
{
	return $primary->safe_psql('postgres', q(
		SELECT count(*) FROM generate_series(1, pg_relation_size('e_k') / 8192 - 1) b, cache_batch_page('e_k', b) p
		WHERE p.level = 1));
}
my $level_1 = level_1();

foreach my $digit (3 .. 9, 'a' .. 'c')
{
	my $few = "t = ANY (ARRAY(SELECT repeat(md5(i::text), 25) FROM generate_series(1, 2000, 9) i WHERE md5(i::text) > '$digit'))";

	my @held = ([ 'step-down', "t BETWEEN '${digit}8' AND 'd8' ORDER BY t" ], [ 'step-down', "t BETWEEN '28' AND '${digit}8' ORDER BY t DESC" ],
		map { [ 'group-step', $few, $_ ] } 1 .. 3);

	foreach my $held (@held)
	{
		my ($point, $where, $hit) = @$held;
		my $question = "SELECT count(*), sum(k) FROM (SELECT k FROM e WHERE $where) s";
		my ($reader, $right) = begin($question);

		push @inner, [ "$point, level 1: $where", $reader, $right ];
		ask_at($reader, $point, $question, $hit);
	}
}
await_waiters(scalar @inner, 'queries wait that have a link to a page of level 1');
$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) e');
cmp_ok(level_1(), '<', $level_1 - 10, 'pages of level 1 leave the tree');
$primary->safe_psql('postgres', 'SELECT pg_current_xact_id()');
$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) e');
for (1 .. 40)
{
	$primary->safe_psql('postgres', "INSERT INTO e SELECT i, 'g' || repeat(md5(i::text), 25) FROM generate_series($next, $next + 99) i; SELECT cache_batch_flush('e_k')");
	$next += 100;
	last if pages('e', 'deleted') == 0;
}
is(pages('e', 'deleted'), 0, 'they are used again');
$primary->wait_for_catchup($standby);
$holder->query_safe('SELECT pg_advisory_unlock(1)');
is(answer_of($_->[1]), $_->[2], $_->[0]) foreach @inner;

# ---------- between two windows ----------

fill('b');
$primary->wait_for_catchup($standby);
my @cursors;

foreach my $order ('k', 'k DESC')
{
	my ($reader, $right) = begin("SELECT k FROM b WHERE k < 60000 ORDER BY $order");

	$reader->query_safe("DECLARE q SCROLL CURSOR FOR SELECT k FROM b WHERE k < 60000 ORDER BY $order");
	push @cursors, [ $reader, $order, $right, $reader->query_safe('FETCH 100 FROM q') ];
}
foreach my $round (1 .. 3)
{
	pack_leaves('b');
	use_again('b');
	$primary->safe_psql('postgres', "INSERT INTO b SELECT i * 50 + $round, repeat(md5(i::text), 15) FROM generate_series(1, 1000) i; SELECT cache_batch_flush('b_k')");
	$primary->wait_for_catchup($standby);
	$_->[3] .= "\n" . $_->[0]->query_safe('FETCH 100 FROM q') foreach @cursors;
	sound($standby, 'b', ['k'], "b, round $round");
}
foreach my $cursor (@cursors)
{
	my ($reader, $order, $right, $answer) = @$cursor;

	is("$answer\n" . $reader->query_safe('FETCH ALL FROM q'), $right, "a cursor by $order");
	is($reader->query_safe('MOVE ABSOLUTE 50 IN q; FETCH ALL FROM q'), join("\n", (split /\n/, $right)[ 50 .. 999 ]), 'and again from near its beginning');
	$reader->quit;
}
is(conflicts(), 0, 'no query was ended');

# ---------- promotion ----------

# A transaction commits between the choice of a deletion's id and its record.  So a
# standby's snapshot that is from before the record does not keep the page.
fill('c');
$holder->quit;
my $packer = $primary->background_psql('postgres', on_error_stop => 0);
my $pid = $packer->query_safe('SELECT pg_backend_pid()');

END { kill 'CONT', $pid if $pid }

$packer->query_until(qr/begun/, "SET cache_batch.test_points = 'unlink-before=stop';\n\\echo begun\nSELECT cache_batch_compact('c_k', 20000, 24000);\n\\echo ended\n");
ok(wait_until(sub { slurp_file("/proc/$pid/stat") =~ /\) T / }), 'a leaf is about to leave the tree');
$primary->safe_psql('postgres', 'CREATE TABLE later ()');
$primary->wait_for_catchup($standby);

# one stands left of each leaf there is
my ($reader, $right) = begin('SELECT k FROM c ORDER BY k');
my @right = split /\n/, $right;
$reader->query_safe("DECLARE q$_ CURSOR FOR SELECT k FROM c ORDER BY k; MOVE 300 FROM q$_; MOVE $_ FROM q$_") for 1 .. 250;
ok(wait_until(sub {
		kill 'CONT', $pid;
		$primary->safe_psql('postgres', "SELECT state FROM pg_stat_activity WHERE pid = $pid") eq 'idle';
	}), 'it has left it');
$pid = undef;
$packer->quit;
$primary->wait_for_catchup($standby);
my $deleted = pages('c', 'deleted');
$primary->stop;
$standby->promote;
my @nodes = ($primary, $standby);
$primary = $standby;
$primary->safe_psql('postgres', 'SELECT pg_current_xact_id()');
$primary->safe_psql('postgres', q(
	INSERT INTO c SELECT i, repeat(md5(i::text), 15) FROM generate_series(60001, 62000) i;
	SELECT cache_batch_flush('c_k')));
is(pages('c', 'deleted'), $deleted - 1, 'its page alone is used again');
my @wrong = grep { $reader->query_safe("FETCH 50 FROM q$_") ne join("\n", @right[ 300 + $_ .. 349 + $_ ]) } 1 .. 250;
is("@wrong", '', 'cursors from before the promotion miss nothing');
$reader->quit;
sound($primary, 'c', ['k'], 'promoted');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|is corrupted/, 'nothing bad in the log of ' . $_->name)
  foreach @nodes;
done_testing();
