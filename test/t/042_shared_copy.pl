# The shared copy of a journal (cb_shared.c): on a standby the first session sorts what
# waits there, and all others read that.  Two that build at once, one that is ended or
# killed while it builds, a tail that moves, a file made anew, a pool without room,
# promotion, and a primary's restart: every answer is right (I2, I7, I11).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

my $primary = new_node('primary', conf => <<'EOC');
cache_batch.max_delay = 1h
cache_batch.journal_limit = 1GB
cache_batch.pool_size = 64MB
cache_batch.spill_threshold = off
cache_batch.spill_target = 1000
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);

# a piece of 16 pages is sorted at a time, so that there are many components
my $standby = new_standby($primary, 'standby', conf => <<'EOC');
work_mem = 64kB
EOC
# here there is no room for them: who scans goes through the journal
my $tiny = new_standby($primary, 'tiny', conf => "cache_batch.pool_size = 256kB\nwork_mem = 64kB\n");

$primary->safe_psql('postgres', q(
	CREATE TABLE c (id bigint, k bigint, s text, n numeric) WITH (autovacuum_enabled = off);
	INSERT INTO c SELECT i, hashint8extended(i, 1) % 100000, md5((i % 5000)::text), i % 700 FROM generate_series(1, 30000) i;
	CREATE INDEX c_k ON c USING cachebatch (k);
	CREATE INDEX c_s ON c USING cachebatch (s, id);
	CREATE INDEX c_n ON c USING cachebatch (n DESC NULLS FIRST)));

my $next = 30001;

# n rows whose entries wait: 100 in a statement, so that they are no dense batch
sub insert_rows
{
	my ($n) = @_;
	my @statements;

	for (1 .. $n / 100)
	{
		push @statements, sprintf(q(
			INSERT INTO c SELECT i, CASE WHEN i %% 50 <> 0 THEN hashint8extended(i, 1) %% 100000 END,
				md5((i %% 5000)::text), CASE WHEN i %% 40 <> 0 THEN (i %% 700) / 10.0 END
			FROM generate_series(%d, %d) i;), $next, $next + 99);
		$next += 100;
	}
	$primary->safe_psql('postgres', join '', @statements);
	return;
}

my $forced = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;';
my $plain = 'SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;';
my @queries = (
	q(SELECT count(*), sum(id), sum(k) FROM c WHERE k >= -100000),
	q(SELECT count(*), sum(id) FROM c WHERE k IS NULL),
	q(SELECT string_agg(k::text, ',') FROM (SELECT k FROM c WHERE k > 0 ORDER BY k LIMIT 3000) q),
	q(SELECT string_agg(k::text, ',') FROM (SELECT k FROM c WHERE k < 50000 ORDER BY k DESC LIMIT 3000) q),
	q(SELECT count(*), sum(id) FROM c WHERE s >= ''),
	q(SELECT string_agg(id::text, ',') FROM (SELECT id FROM c WHERE s = md5('77') ORDER BY id) q),
	q(SELECT string_agg(id::text, ',') FROM (SELECT id FROM c WHERE s = md5('78') ORDER BY id DESC) q),
	q(SELECT count(*), sum(id) FROM c WHERE s = ANY (SELECT md5(i::text) FROM generate_series(4900, 5100) i)),
	q(SELECT count(*), sum(id) FROM c WHERE n BETWEEN 3 AND 30.5),
	q(SELECT count(*), sum(id) FROM c WHERE n IS NULL),
	q(SELECT max(k), min(k), max(s), min(s), max(n), min(n) FROM c),
	q(SELECT count(c.id), sum(c.id) FROM generate_series(-100000, 100000, 371) v LEFT JOIN c ON c.k = v));

# Both servers' answers by index are those without.
sub answers
{
	my ($node, $what) = @_;
	my $sql = join ';', @queries;

	is($node->safe_psql('postgres', "$forced $sql"), $node->safe_psql('postgres', "$plain $sql"), "$what: answers");
	return;
}

sub copied
{
	my ($node, $index) = @_;

	return $node->safe_psql('postgres', "SELECT coalesce(sum(copied_entries), 0) FROM cache_batch_stat_buckets WHERE indexrelname = '$index'");
}

sub chunks_used
{
	my ($node) = @_;

	return $node->safe_psql('postgres', 'SELECT chunks - chunks_free FROM cache_batch_stat_pool');
}

sub reads
{
	my ($node, $index) = @_;

	return $node->safe_psql('postgres', "SELECT journal_reads FROM cache_batch_stat_indexes WHERE indexrelname = '$index'");
}

# Gives an index its buckets: a row at a time, until it has them.
sub give_buckets
{
	my ($node, $table) = @_;
	my $has = "SELECT count(*) FROM cache_batch_stat_buckets WHERE relname = '$table' AND attached_at IS NOT NULL";

	for (1 .. 1800)
	{
		$node->safe_psql('postgres', "INSERT INTO $table VALUES (0, 0)");
		return if $node->safe_psql('postgres', $has) > 0;
		usleep(100_000);
	}
	die 'no buckets';
}

# A session that holds an advisory lock.
sub lock_holder
{
	my ($node, $key) = @_;
	my $session = $node->background_psql('postgres');

	$session->query_safe("SELECT pg_advisory_lock($key)");
	return $session;
}

sub await_waiter
{
	my ($node, $key) = @_;

	return $node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objid = $key AND NOT granted)");
}

# A session that asks, and waits at a point until the holder's lock is gone; its process.
my $holder;

sub waiting_at
{
	my ($node, $point, $sql) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $session->query_safe('SELECT pg_backend_pid()');

	$holder = lock_holder($node, 7);
	$session->query_until(qr/begun/, "$forced\nSET cache_batch.test_points = '$point=wait:7';\n\\echo begun\n$sql;\n");
	ok($node->poll_query_until('postgres', "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $pid AND locktype = 'advisory' AND NOT granted)"),
		"a session waits at $point");
	return ($session, $pid);
}

# ---------- sorted once ----------

insert_rows(40000);
$primary->wait_for_catchup($standby);
answers($standby, 'standby');
cmp_ok(copied($standby, $_), '>=', 30000, "$_: the shared copy has what waits") foreach qw(c_k c_s c_n);
my $read = reads($standby, 'c_k');
$standby->safe_psql('postgres', "$forced $queries[0]");
cmp_ok(reads($standby, 'c_k') - $read, '<', 12, 'another session reads the end of the journal only');

# A value whose entries begin with a member is not missed (I11_SHAREDNEXT): each is looked up.
my $each = 'SELECT count(c.id), sum(c.id) FROM generate_series(30001, 70000) i JOIN c ON c.k = hashint8extended(i, 1) % 100000';
is($standby->safe_psql('postgres', "$forced SET enable_hashjoin = off; SET enable_mergejoin = off; $each"),
	$standby->safe_psql('postgres', "$plain $each"), 'each value is found');

# what is appended goes there, too, and components are merged
foreach my $n (1 .. 6)
{
	insert_rows(4000);
	$primary->wait_for_catchup($standby);
	answers($standby, "standby, appended $n times");
}

# ---------- in pieces ----------

# A cursor that turns round, and a merge join that goes back to its mark.
my $turns = join ' ', "$forced SET enable_hashjoin = off; SET enable_nestloop = off; SET enable_material = off;",
	'BEGIN; DECLARE q SCROLL CURSOR FOR SELECT k FROM c WHERE k > -50000 ORDER BY k;',
	(map { "FETCH $_ FROM q;" } 5, 'ABSOLUTE 20000', 'PRIOR', 'ABSOLUTE 7000', 'BACKWARD 3', 'ABSOLUTE 60000', 'ABSOLUTE 1', 'LAST', 'BACKWARD 3'),
	'COMMIT; SELECT count(*), sum(a.id), sum(b.id) FROM c a JOIN c b ON a.k = b.k WHERE a.k BETWEEN 0 AND 60000 AND b.k BETWEEN 0 AND 60000;',
	'SELECT count(*), sum(a.id), sum(b.id) FROM c a JOIN c b ON a.s = b.s AND a.id = b.id';

$primary->wait_for_catchup($tiny);
answers($tiny, 'no room');
is($tiny->safe_psql('postgres', $turns), $standby->safe_psql('postgres', $turns), 'no room: turns and marks');
cmp_ok($tiny->safe_psql('postgres', "$forced $queries[4]; SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name ~ 'journal'") =~ /(\d+)\z/ ? $1 : 1e9,
	'<', 1_000_000, 'and little private memory');

# ---------- the tail moves ----------

$primary->safe_psql('postgres', q(DELETE FROM c WHERE id % 7 = 0; SELECT cache_batch_flush('c_k')));
$primary->wait_for_catchup($standby);
answers($standby, 'standby, the tail has moved');
$primary->safe_psql('postgres', 'VACUUM c');
insert_rows(4000);
$primary->wait_for_catchup($standby);
answers($standby, 'standby, TIDs are used again');
$primary->wait_for_catchup($tiny);
answers($tiny, 'no room, TIDs are used again');
$tiny->stop;

# A run lies on both sides of the tail: it was sorted when VACUUM had not moved that.
$primary->safe_psql('postgres', q(CREATE TABLE g (id bigint, k bigint) WITH (autovacuum_enabled = off); CREATE INDEX g_k ON g USING cachebatch (k)));

# VACUUM empties the buckets twice: before it removes entries, and after their TIDs are
# free.  It stops before it moves the tail, either time.
insert_ids($primary, 'postgres', 'g', 0, 3000);
$primary->safe_psql('postgres', 'DELETE FROM g WHERE id % 2 = 0');
my ($first, $counted) = (lock_holder($primary, 7), lock_holder($primary, 8));
my $vacuum = $primary->background_psql('postgres', on_error_stop => 0);
$vacuum->query_until(qr/begun/, "SET cache_batch.test_points = 'flush-truncate=wait:7,vacuum-counted=wait:8';\n\\echo begun\nVACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) g;\n");
ok(await_waiter($primary, 7), 'VACUUM has not moved the tail');
insert_ids($primary, 'postgres', 'g', 10000, 2000);
$primary->wait_for_catchup($standby);
my $in_g = 'SELECT count(*), sum(id) FROM g WHERE k > -9223372036854775807';
my $size = $primary->safe_psql('postgres', q(SELECT pg_relation_size('g')));
$standby->safe_psql('postgres', "$forced $in_g");
cmp_ok(copied($standby, 'g_k'), '>', 4000, 'a copy from before it');
$first->quit;
ok(await_waiter($primary, 8), 'VACUUM has moved the tail');
my $second = lock_holder($primary, 7);
$counted->quit;
ok(await_waiter($primary, 7), 'TIDs are free');
insert_ids($primary, 'postgres', 'g', 20000, 1000);
is($primary->safe_psql('postgres', q(SELECT pg_relation_size('g'))), $size, 'they are used again');
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', "$forced $in_g"), $primary->safe_psql('postgres', "$plain $in_g"), 'standby, a run on both sides of the tail: answers');
$second->quit;
$vacuum->quit;

# while a session builds
insert_rows(20000);
$primary->wait_for_catchup($standby);
my ($builder, $pid) = waiting_at($standby, 'shared-read', $queries[4]);
$primary->safe_psql('postgres', q(SELECT cache_batch_flush('c_s')));
$primary->wait_for_catchup($standby);
answers($standby, 'standby, a builder is left behind');
insert_rows(8000);
$primary->wait_for_catchup($standby);
answers($standby, 'standby, a builder is late');
$holder->quit;
$builder->quit;
answers($standby, 'standby, the late builder is done');

# A cursor has read the tail when the index had no range buffers.  Then what it has to
# return goes there, and a builder finds it below the tail.
$primary->safe_psql('postgres', q(
	CREATE TABLE r (id bigint, k bigint) WITH (autovacuum_enabled = off);
	INSERT INTO r SELECT i, hashint8extended(i, 1) FROM generate_series(1, 50000) i;
	CREATE INDEX r_k ON r USING cachebatch (k) WITH (spill_threshold = '0')));
give_buckets($primary, 'r');
my $rows = 60000 - 1000 + $primary->safe_psql('postgres', 'SELECT count(*) FROM r WHERE id = 0');
insert_ids($primary, 'postgres', 'r', 100100, 10000);
$primary->wait_for_catchup($standby);
my $by_k = 'SELECT count(*), sum(id) FROM r WHERE k > -9223372036854775807';
$standby->safe_psql('postgres', "$forced $by_k");
my $old = $standby->background_psql('postgres');
$old->query_safe("$forced BEGIN; DECLARE q CURSOR FOR SELECT k FROM r WHERE k > -9223372036854775807 ORDER BY k");
is(scalar split(/\n/, $old->query_safe('FETCH 1000 FROM q')), 1000, 'a cursor begins');
$primary->safe_psql('postgres', q(SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1; SELECT cache_batch_flush('r_k')));
is($primary->safe_psql('postgres', q(SELECT sum(runs) > 0 FROM cache_batch_ranges('r_k'))), 't', 'its entries are in runs');
insert_ids($primary, 'postgres', 'r', 200100, 5000);
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', "$forced $by_k"), $primary->safe_psql('postgres', "$plain $by_k"), 'a builder has seen the new tail');
is(scalar split(/\n/, $old->query_safe('FETCH ALL FROM q')), $rows, 'the cursor misses nothing');
$old->quit;

# ---------- the newest of equal entries ----------

# Builders have read entries, and go to the next page.  VACUUM removes them, and equal
# keys with other bytes, or another payload, get their TIDs, on a page that they come to.
# The copies have these: the older ones are below the tail.  (20 entries in a statement
# are no dense batch.)
$primary->safe_psql('postgres', q(
	CREATE TABLE e (n numeric, k bigint, v int) WITH (autovacuum_enabled = off);
	CREATE INDEX e_n ON e USING cachebatch (n);
	CREATE INDEX e_k ON e USING cachebatch (k) INCLUDE (v);)
	  . 'INSERT INTO e SELECT 1.0, 1, 10 FROM generate_series(1, 20);' x 5
	  . join '', map { "INSERT INTO e SELECT 1000 + i, 1000 + i, i FROM generate_series($_ * 20, $_ * 20 + 19) i;" } 1 .. 200);
my $first_page = q(SELECT count(*) FROM e WHERE k = 1 AND ctid < '(1,0)');
is($primary->safe_psql('postgres', $first_page), 100, 'entries of one page');
$primary->safe_psql('postgres', 'DELETE FROM e WHERE k = 1');
$primary->wait_for_catchup($standby);
my $begin = lock_holder($standby, 7);
my @builders;
foreach my $column (qw(n k))
{
	my $session = $standby->background_psql('postgres', on_error_stop => 0);

	$session->query_until(qr/begun/, "$forced SET cache_batch.test_points = 'shared-begin=wait:7,read-next=wait:8';\n\\echo begun\nSELECT count(*) FROM e WHERE $column > 1000;\n");
	push @builders, $session;
}
my $waiting = q(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = %d AND NOT granted);
ok($standby->poll_query_until('postgres', sprintf($waiting, 7), '2'), 'two builders begin');
my $turn = lock_holder($standby, 8);
$begin->quit;
ok($standby->poll_query_until('postgres', sprintf($waiting, 8), '2'), 'they have read a page');
$primary->safe_psql('postgres', $_) foreach ('VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) e', 'INSERT INTO e SELECT 1.00, 1, 20 FROM generate_series(1, 20);' x 20);
cmp_ok($primary->safe_psql('postgres', $first_page), '>=', 100, 'their TIDs are used again');
$primary->wait_for_catchup($standby);
$turn->quit;
$_->quit foreach @builders;
is($standby->safe_psql('postgres', "$forced SELECT count(*), min(n::text), max(n::text) FROM e WHERE n = 1; SELECT count(*), min(v), max(v) FROM e WHERE k = 1"),
	"400|1.00|1.00\n400|20|20", 'standby, the newest of equal entries');

# ---------- a look for one value ----------

# Who wants one value does not wait for a builder: it goes through the journal.  What it
# has found serves for no other value: the inner side of a join goes to one after the other.
insert_rows(20000);
$primary->wait_for_catchup($standby);
($builder, $pid) = waiting_at($standby, 'shared-read', $queries[0]);
my $keys = $primary->safe_psql('postgres', q(SELECT string_agg(format('(%s)', k), ',') FROM (SELECT k FROM c WHERE k IS NOT NULL ORDER BY id DESC LIMIT 200) q));
my ($one) = $keys =~ /(-?\d+)/;
my $looks = $forced . ' SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off;'
  . " SELECT string_agg(id::text, ',' ORDER BY id) FROM c WHERE k = $one;"
  . " SELECT count(*), sum(id) FROM (VALUES $keys) v (k) JOIN c USING (k);";
$read = reads($standby, 'c_k');
is($standby->safe_psql('postgres', $looks), $primary->safe_psql('postgres', $looks), 'looks while a builder stands: answers');
cmp_ok(reads($standby, 'c_k') - $read, '>', 20, 'they go through the journal');
$holder->quit;
$builder->quit;
is($standby->safe_psql('postgres', $looks), $primary->safe_psql('postgres', $looks), 'looks after it: answers');

# Where nobody builds it adds a piece, if that takes its time, and goes through the rest.
$primary->safe_psql('postgres', q(
	CREATE TABLE w (id bigint, k bigint) WITH (autovacuum_enabled = off);
	INSERT INTO w SELECT i, hashint8extended(i, 1) FROM generate_series(100001, 150000) i;
	CREATE INDEX w_k ON w USING cachebatch (k);
	CREATE FUNCTION cache_batch_test_point(text) RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(0.03)'));
give_buckets($primary, 'w');
insert_ids($primary, 'postgres', 'w', 1, 80000);
$primary->wait_for_catchup($standby);
my $slowly = "$forced SET cache_batch.test_points = 'shared-begin=call';";
my $copied = 0;

foreach my $id (79999, 1)
{
	is($standby->safe_psql('postgres', "$slowly SELECT id FROM w WHERE k = hashint8extended($id, 1); SELECT count(*) FROM w WHERE k = 5"),
		"$id\n0", "a look for $id builds");
	cmp_ok(copied($standby, 'w_k'), '>', $copied, '... a piece');
	$copied = copied($standby, 'w_k');
	cmp_ok($copied, '<', 80000, '... and not all');
}
$slowly = "$forced SET cache_batch.test_points = 'shared-begin=call, shared-merge=call';";
is(join(' ', map { $standby->safe_psql('postgres', "$slowly SELECT id FROM w WHERE k = hashint8extended($_, 1)") } 70001 .. 70012),
	join(' ', 70001 .. 70012), 'others merge pieces');
cmp_ok(copied($standby, 'w_k'), '>', $copied, '... and add some');
is($standby->safe_psql('postgres', "$slowly SELECT count(*), sum(id) FROM w WHERE k IS NOT NULL"),
	$standby->safe_psql('postgres', "$plain SELECT count(*), sum(id) FROM w"), 'who wants more goes on with it');
cmp_ok(copied($standby, 'w_k'), '>=', 80000, '... to its end');
$primary->safe_psql('postgres', 'DROP FUNCTION cache_batch_test_point; DROP TABLE w');

# ---------- builders that end ----------

foreach my $point ('shared-read', 'shared-write', 'shared-merge')
{
	insert_rows(20000);
	$primary->wait_for_catchup($standby);
	($builder, $pid) = waiting_at($standby, $point, "$queries[0]; $queries[4]; $queries[8]");
	answers($standby, "standby, a builder stands at $point");
	$standby->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	$standby->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)");
	$holder->quit;
	$builder->{run}->kill_kill;
	answers($standby, "standby, a builder was ended at $point");
	insert_rows(8000);
	$primary->wait_for_catchup($standby);
	my (undef, undef, $err) = $standby->psql('postgres', "$forced SET cache_batch.test_points = '$point=error'; $queries[0]; $queries[4]; $queries[8]");
	like($err, qr/test point/, "an error at $point") unless $point eq 'shared-merge';
	answers($standby, "standby, an error at $point");
}
insert_rows(20000);
$primary->wait_for_catchup($standby);
($builder, $pid) = waiting_at($standby, 'shared-write', $queries[4]);
kill 'KILL', $pid;
wait_back($standby);
$_->{run}->kill_kill foreach ($builder, $holder);
answers($standby, 'standby, a builder was killed');

# ---------- the file is made anew ----------

$primary->safe_psql('postgres', 'REINDEX INDEX c_k');
insert_rows(8000);
$primary->wait_for_catchup($standby);
answers($standby, 'standby, one index made anew');
$primary->safe_psql('postgres', q(BEGIN; TRUNCATE c; INSERT INTO c SELECT i, i, i::text, i FROM generate_series(1, 100) i; COMMIT));
insert_rows(20000);
$primary->wait_for_catchup($standby);
answers($standby, 'standby, truncated');

# ---------- a database made again with the same OID (U22) ----------

$primary->safe_psql('postgres', 'CREATE DATABASE origin');
$primary->safe_psql('origin', q(
	CREATE EXTENSION cache_batch;
	CREATE TABLE d (id bigint, k bigint) WITH (autovacuum_enabled = off);
	INSERT INTO d SELECT i, hashint8extended(i, 1) FROM generate_series(1, 20000) i;
	CREATE INDEX d_k ON d USING cachebatch (k)));
insert_ids($primary, 'origin', 'd', 100000, 2000);
my $in_d = 'SELECT count(*), sum(id) FROM d WHERE k > -9223372036854775807';
my $oid = '';
foreach my $life (1, 2)
{
	$primary->safe_psql('postgres', "CREATE DATABASE again TEMPLATE origin $oid");
	insert_ids($primary, 'again', 'd', 200000 * $life, 2000 + 2000 * $life);
	$primary->wait_for_catchup($standby);
	is($standby->safe_psql('again', "$forced $in_d"), $primary->safe_psql('again', "$plain $in_d"), "standby, a database's life $life");
	cmp_ok($standby->safe_psql('again', q(SELECT coalesce(sum(copied_entries), 0) FROM cache_batch_stat_buckets)), '>', 0, 'with a shared copy');
	$oid = 'OID ' . $primary->safe_psql('postgres', q(SELECT oid FROM pg_database WHERE datname = 'again'));
	$primary->safe_psql('postgres', 'DROP DATABASE again') if $life == 1;
}

# ---------- promotion ----------

my $cursor = $standby->background_psql('postgres');
$cursor->query_safe("$forced BEGIN; DECLARE q CURSOR FOR SELECT k, id FROM c WHERE k > -100000 ORDER BY k");
my $expected = $standby->safe_psql('postgres', 'SELECT count(*) FROM c WHERE k > -100000');
$cursor->query_safe('MOVE 1000 IN q');
$standby->promote;
$primary->stop('immediate');
$standby->safe_psql('postgres', q(INSERT INTO c SELECT i, i, i::text, i FROM generate_series(1, 1000) i));
$standby->safe_psql('postgres', q(SELECT cache_batch_flush(i) FROM unnest('{c_k,c_s,c_n}'::regclass[]) i));
is(1000 + split(/\n/, $cursor->query_safe('FETCH ALL IN q')), $expected, 'a cursor from before the promotion misses nothing');
$cursor->query_safe('COMMIT');
$cursor->quit;
answers($standby, 'promoted');
sound($standby, 'c', [qw(k s)], 'promoted');
is(copied($standby, 'c_k'), 0, 'promoted: the copy is gone when all is in the tree');

# ---------- a primary's restart ----------

# A restart with these settings, rows, and a crash while their entries wait.
sub crash_with
{
	my ($node, $conf) = @_;

	$node->append_conf('postgresql.conf', $conf);
	$node->restart;
	$node->safe_psql('postgres', 'INSERT INTO c SELECT i, hashint8extended(i, 3) % 100000, md5(i::text), i % 90 FROM generate_series(1, 3000) i')
	  for 1 .. 10;
	crash_restart($node);
	return;
}

my $node = $standby;
crash_with($node, "cache_batch.max_workers = 0\ncache_batch.pool_size = 4MB\n");
answers($node, 'restarted');
cmp_ok(copied($node, 'c_s'), '>', 0, 'restarted: there is a copy');
$node->safe_psql('postgres', q(SELECT cache_batch_flush(i) FROM unnest('{c_k,c_s,c_n}'::regclass[]) i));
is(copied($node, 'c_s'), 0, 'restarted: it is gone when all is in the tree');
is(chunks_used($node), 0, 'and all of the pool is free');
answers($node, 'restarted, flushed');

# ---------- a sweep to range buffers ----------

# as a flush of a bucket would have, had there been no crash
$node->append_conf('postgresql.conf', "cache_batch.max_workers = 2\ncache_batch.spill_target = 1000\ncache_batch.test_visits = off\n");
$node->restart;
$node->safe_psql('postgres', q(
	CREATE TABLE f (id bigint, k bigint) WITH (autovacuum_enabled = off);
	INSERT INTO f SELECT i, hashint8extended(i, 1) FROM generate_series(1, 50000) i;
	CREATE INDEX f_k ON f USING cachebatch (k) WITH (spill_threshold = '0')));
give_buckets($node, 'f');
insert_ids($node, 'postgres', 'f', 300100, 10000);
$node->stop('immediate');

# who comes before the launcher expects it
$node->append_conf('postgresql.conf', "cache_batch.test_points = 'launcher-start=stop'\n");
$node->start;
my $look_up = "$forced SET cache_batch.test_points = 'shared-read=error'; SELECT id FROM f WHERE k = hashint8extended(300150, 1)";
my $launcher;

END { kill 'CONT', $launcher if $launcher }

ok(wait_until(sub {
		$launcher = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'cache_batch launcher'");
		return $launcher && slurp_file("/proc/$launcher/stat") =~ /\) T /;
	}), 'restarted: the launcher is on its way');
is($node->safe_psql('postgres', $look_up), 300150, '... and the first look-up builds no copy');
kill 'CONT', $launcher;
$launcher = undef;
$node->stop('immediate');

$node->append_conf('postgresql.conf', "cache_batch.test_points = 'sweep-start=wait:8'\n");
$node->start;
my $in_ranges = q(SELECT coalesce(sum(entries), 0) FROM cache_batch_ranges('f_k'));
my $in_f = $by_k =~ s/FROM r/FROM f/r;
my $sums = $node->safe_psql('postgres', "$plain $in_f");
my $sweeper = lock_holder($node, 8);
is($node->safe_psql('postgres', $look_up), 300150, 'restarted: the first look-up builds no copy');
ok($node->poll_query_until('postgres', q(SELECT sum(copied_entries) >= 9000 FROM cache_batch_stat_buckets WHERE indexrelname = 'f_k')),
	'a worker does, before it sweeps');
is($node->safe_psql('postgres', "$forced $in_f"), $sums, 'restarted: what waits for a sweep');

# one that has looked into its bucket, and knew of no runs, before the worker makes some
my ($late) = waiting_at($node, 'scan-bucket-pinned', "SELECT 'sums ' || count(*) || ' ' || sum(id) FROM f WHERE k > -9223372036854775807");
$sweeper->quit;
ok($node->poll_query_until('postgres', q(SELECT bool_and(swept) FROM cache_batch_stat_buckets WHERE indexrelname = 'f_k')), 'swept');
cmp_ok($node->safe_psql('postgres', $in_ranges), '>=', 9000, 'its entries are in range buffers');
$holder->quit;
$sums =~ /(\d+)\|(\d+)/;
like($late->query('SELECT 1'), qr/sums $1 $2\b/, 'a late scan finds them');
$late->quit;
is($node->safe_psql('postgres', "$forced $in_f"), $sums, 'and others do');
sound($node, 'f', ['k'], 'after a sweep to range buffers');

# a worker that cannot build what it was asked for sweeps when it comes again
insert_ids($node, 'postgres', 'f', 500100, 4000);
$node->append_conf('postgresql.conf', "cache_batch.test_points = 'shared-read=error'\n");
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "$forced SELECT id FROM f WHERE k = hashint8extended(500150, 1)"), 500150, 'a look-up that asks a worker');
my $asks = "SET cache_batch.test_points = ''; INSERT INTO f VALUES (600000, 1);";
ok(wait_until(sub {
		$node->safe_psql('postgres', "$asks SELECT bool_and(swept) FROM cache_batch_stat_buckets WHERE indexrelname = 'f_k'") =~ /t\z/;
	}), 'swept after an error');
like(slurp_file($node->logfile), qr/error at test point "shared-read"/, 'of the build');
$node->append_conf('postgresql.conf', "cache_batch.test_points = ''\n");

# ---------- no room ----------

crash_with($node, "cache_batch.pool_size = 256kB\n");
answers($node, 'a pool too small');
sound($node, 'c', [qw(k s)], 'a pool too small');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|is corrupted/, 'nothing bad in the log of ' . $_->name)
  foreach ($primary, $standby, $tiny);
done_testing();
