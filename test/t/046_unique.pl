# Unique indexes (I13): rows in doubt over crashes and promotions, sessions that end
# with claims, and many that add the same keys.  CB_UNIQUE_SECONDS: how long each
# crowd is at work; CB_UNIQUE_KILLS: how many crowds there are.
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'unique indexes are btree\'s before version 18' if server_version() < 18;

my $seconds = $ENV{CB_UNIQUE_SECONDS} || 4;
my $crowds = $ENV{CB_UNIQUE_KILLS} || 4;
my $conf = <<EOC;
cache_batch.pool_size = 1MB
cache_batch.max_delay = 100ms
cache_batch.spill_threshold = 0
deadlock_timeout = 50ms
wal_level = logical
wal_retrieve_retry_interval = 100ms
EOC
my $node = new_node('unique', conf => $conf);
my $points_built = test_points_built($node);

$node->safe_psql('postgres', q(
	CREATE TABLE u (k int, s text);
	CREATE UNIQUE INDEX u_k ON u USING cachebatch (k);
	CREATE UNIQUE INDEX u_s ON u USING cachebatch (s);
	INSERT INTO u SELECT g, md5(g::text) FROM generate_series(-2000, -1) g));

# What adding a key gives: "added", "there", "waits"; or the error.
sub add
{
	my ($on, $k, $clause) = @_;
	my ($rc, $out, $err) = $on->psql('postgres',
		"SET lock_timeout = '200ms'; SET deadlock_timeout = '10s';
		INSERT INTO u VALUES ($k, md5('$k')) " . ($clause // '') . ' RETURNING k');

	return 'there' if $err =~ /duplicate key value|^$/ && $out !~ /\d/;
	return 'waits' if $err =~ /lock timeout/;
	return $err =~ /\S/ ? $err : 'added';
}

my $nothing = 'ON CONFLICT DO NOTHING';

# ---------- prepared transactions ----------

$node->safe_psql('postgres', "BEGIN; INSERT INTO u VALUES (1, md5('1')); PREPARE TRANSACTION 'one';
	BEGIN; INSERT INTO u VALUES (2, md5('2')); PREPARE TRANSACTION 'two';
	BEGIN; DELETE FROM u WHERE k = -1; PREPARE TRANSACTION 'gone';");
foreach my $when ('prepared', 'prepared, after a crash')
{
	is(add($node, 1), 'waits', "$when: another row waits");
	is(add($node, 2, $nothing), 'waits', "$when: an upsert waits");
	is(add($node, -1), 'waits', "$when: a row in the place of one that is deleted waits");
	is(add($node, $when eq 'prepared' ? 100 : 101), 'added', "$when: other keys do not");
	crash_restart($node) if $when eq 'prepared';
}
$node->safe_psql('postgres', "COMMIT PREPARED 'one'; ROLLBACK PREPARED 'two'; COMMIT PREPARED 'gone'");
is(add($node, 1), 'there', 'committed: refused');
is(add($node, 1, $nothing), 'there', 'committed: an upsert finds it');
is(add($node, 2), 'added', 'rolled back: added');
is(add($node, -1), 'added', 'deleted: added');

# ---------- sessions that end with claims ----------

SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 1 unless $points_built;

	my $k = 1000;

	foreach my $point (qw(stage-insert unique-claimed unique-searched publish-start publish-sorted
		publish-appended publish-done))
	{
		my ($first, $rows) = ($k, "SELECT g, md5(g::text) FROM generate_series($k, $k + 20) g");

		$k += 100;
		ok(run_killed($node, "$point=kill:2", "INSERT INTO u $rows"), "killed at $point");
		is(add($node, $first), 'added', 'its key is free');

		my ($rc, $out, $err) = $node->psql('postgres',
			"SET cache_batch.test_points = '$point=error:2'; INSERT INTO u " . $rows =~ s/\d+ \+ 20/$first + 40/r
			  =~ s/series\(\d+/'series(' . ($first + 21)/er);
		like($err, qr/ERROR/, "error at $point");
		is(add($node, $first + 21), 'added', 'its key is free');
	}
	sound($node, 'u', [qw(k s)], 'after kills and errors');
}

# The backend is told to leave while its entry is staged.
my $session = $node->background_psql('postgres', on_error_stop => 0);
my $pid = $session->query('SELECT pg_backend_pid()');
my $holder = $node->background_psql('postgres');
$holder->query('SELECT pg_advisory_lock(1)');
$session->query_until(qr/go/, "\\echo go
	WITH w AS (INSERT INTO u VALUES (5000, '5000') RETURNING k) SELECT pg_advisory_lock_shared(k - 4999) FROM w;\n");
ok($node->poll_query_until('postgres', "SELECT wait_event = 'advisory' FROM pg_stat_activity WHERE pid = $pid"),
	'a session waits with an entry in its stage');
is(add($node, 5000), 'waits', 'another one waits for it');
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'tuple' AND pid = $pid"), 2,
	'its claims are seen as a lock for each index');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 60000)");
is(add($node, 5000), 'added', 'the key is free when it has left');
$holder->quit;
eval { $session->quit };

# ---------- logical replication ----------

# The worker that applies a null waits for another one, which is not distinct from it;
# meanwhile VACUUM deletes entries.  The server's recheck says of nulls that they differ
# (A20), so it must not be asked for.
my $table = 'CREATE TABLE l (k int PRIMARY KEY, n int) WITH (autovacuum_enabled = off)';
$node->safe_psql('postgres', "$table; CREATE PUBLICATION p FOR TABLE l;
	SELECT pg_create_logical_replication_slot('s', 'pgoutput')");
$node->safe_psql('postgres', 'CREATE DATABASE copy');
my $connstr = $node->connstr('postgres') =~ s/'/''/gr;
$node->safe_psql('copy', "CREATE EXTENSION cache_batch; $table;
	CREATE UNIQUE INDEX l_n ON l USING cachebatch (n) NULLS NOT DISTINCT;
	INSERT INTO l SELECT g, g FROM generate_series(-20, -1) g; DELETE FROM l WHERE k < -10");
$node->safe_psql('copy',
	"CREATE SUBSCRIPTION s CONNECTION '$connstr' PUBLICATION p WITH (create_slot = false, copy_data = false)");
$node->poll_query_until('copy', q(SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel));
$session = $node->background_psql('copy');
$holder = $node->background_psql('copy');
$holder->query('SELECT pg_advisory_lock(1)');
$session->query_until(qr/go/, "\\echo go
	WITH w AS (INSERT INTO l VALUES (1, NULL) RETURNING k) SELECT pg_advisory_xact_lock_shared(k) FROM w;\n");
$node->poll_query_until('copy', q(SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = 'copy' AND wait_event = 'advisory'));
$node->safe_psql('postgres', 'INSERT INTO l VALUES (2, NULL)');
ok($node->poll_query_until('copy',
		q(SELECT wait_event = 'tuple' FROM pg_stat_activity WHERE backend_type = 'logical replication apply worker')),
	'a worker waits for a claim to a null');
$node->safe_psql('copy', 'VACUUM (INDEX_CLEANUP ON) l');
$holder->quit;
$session->quit;
$node->poll_query_until('copy', q(SELECT confl_insert_exists > 0 OR EXISTS (SELECT FROM l WHERE k = 2)
	FROM pg_stat_subscription_stats));
is($node->safe_psql('copy', 'SELECT string_agg(k::text, $$,$$) FROM l WHERE n IS NULL'), '1',
	'it finds the null');
$node->safe_psql('copy', 'DELETE FROM l WHERE k = 1');
ok($node->poll_query_until('copy', 'SELECT EXISTS (SELECT FROM l WHERE k = 2)'), 'and goes on when that is gone');
sound($node, 'l', ['n'], 'applied', 'copy');

# A worker looks for a row whose entry is in its own stage.
$table = 'CREATE TABLE r (k int NOT NULL, v text)';
$node->safe_psql('copy', "$table; CREATE UNIQUE INDEX r_k ON r USING cachebatch (k);
	ALTER TABLE r REPLICA IDENTITY USING INDEX r_k");
$node->safe_psql('postgres', "$table; CREATE UNIQUE INDEX r_k ON r USING cachebatch (k);
	ALTER TABLE r REPLICA IDENTITY USING INDEX r_k; ALTER PUBLICATION p ADD TABLE r");
$node->safe_psql('copy', 'ALTER SUBSCRIPTION s REFRESH PUBLICATION WITH (copy_data = false)');
$node->poll_query_until('copy', q(SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel));
$node->safe_psql('postgres', q(BEGIN; INSERT INTO r SELECT g, 'added' FROM generate_series(1, 5) g;
	UPDATE r SET v = 'changed' WHERE k = 2; DELETE FROM r WHERE k = 3; UPDATE r SET k = 30 WHERE k = 4; COMMIT;
	INSERT INTO r VALUES (99, 'last')));
$node->poll_query_until('copy', 'SELECT EXISTS (SELECT FROM r WHERE k = 99)');
is($node->safe_psql('copy', q(SELECT string_agg(k || ' ' || v, ', ' ORDER BY k) FROM r)),
	'1 added, 2 changed, 5 added, 30 added, 99 last', 'rows of one transaction are found and changed');
sound($node, 'r', ['k'], 'applied in one transaction', 'copy');

# A worker's row is refused by the claim of a session that is rolled back, and stays.  Its
# entry has no claim.  A session has looked for the key before that is published.
$node->safe_psql('copy', q(ALTER DATABASE copy SET cache_batch.test_points = 'stage-insert=wait:5';
	ALTER SUBSCRIPTION s DISABLE));
$node->poll_query_until('copy', q(SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type ~ 'apply'));
my ($claimant, $upsert) = map { $node->background_psql('copy', on_error_stop => 0) } 1 .. 2;
$holder = $node->background_psql('copy');
$holder->query('SELECT pg_advisory_lock(n) FROM generate_series(4, 6) n');
$node->safe_psql('copy', 'ALTER SUBSCRIPTION s ENABLE');
$claimant->query(q(SET cache_batch.test_points = ''));
$claimant->query_until(qr/go/, "\\echo go
	WITH w AS (INSERT INTO r VALUES (200, 'undone') RETURNING k)
	SELECT pg_advisory_xact_lock_shared(4), 1 / (k - 200) FROM w;\n");
my $waits = q(SELECT count(*) = %d FROM pg_stat_activity WHERE datname = 'copy' AND wait_event = 'advisory');
ok($node->poll_query_until('copy', sprintf($waits, 1)), 'a session has a claim');
$node->safe_psql('postgres', q(INSERT INTO r VALUES (200, 'applied')));
ok($node->poll_query_until('copy', sprintf($waits, 2)), 'it refuses the row of a worker');
$holder->query('SELECT pg_advisory_unlock(4)');
ok($node->poll_query_until('copy', sprintf($waits, 1)), 'and is rolled back');
$upsert->query(q(SET cache_batch.test_points = 'unique-start=wait:6'));
$upsert->query_until(qr/go/, "\\echo go
	INSERT INTO r VALUES (200, 'inserted') ON CONFLICT (k) DO NOTHING;\n");
ok($node->poll_query_until('copy', sprintf($waits, 2)), 'an upsert has looked for the key');
$holder->query('SELECT pg_advisory_unlock(5)');
ok($node->poll_query_until('copy', 'SELECT EXISTS (SELECT FROM r WHERE k = 200)'), 'the worker goes on');
$holder->query('SELECT pg_advisory_unlock(6)');
$holder->quit;
$upsert->quit;
eval { $claimant->quit };
is($node->safe_psql('copy', 'SELECT string_agg(v, $$, $$) FROM r WHERE k = 200'), 'applied', 'there is one row');
sound($node, 'r', ['k'], 'applied without a claim', 'copy');
$node->safe_psql('copy', 'ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
$node->safe_psql('postgres', q(SELECT pg_drop_replication_slot('s')));
$node->safe_psql('postgres', 'DROP DATABASE copy; DROP TABLE l, r');

# ---------- promotion ----------

$node->safe_psql('postgres', "BEGIN; INSERT INTO u VALUES (6000, md5('6000')); PREPARE TRANSACTION 'six'");
my $open = $node->background_psql('postgres');
$open->query("BEGIN; INSERT INTO u VALUES (7000, md5('7000')); INSERT INTO u VALUES (7001, md5('7001'))");
$node->safe_psql('postgres', "INSERT INTO u VALUES (8000, md5('8000'))");
my $standby = new_standby($node, 'unique_standby', conf => $conf);
$node->wait_for_catchup($standby);
$node->stop('immediate');
eval { $open->quit };
$standby->promote;
is(add($standby, 6000), 'waits', 'promoted: a prepared row is in doubt');
is(add($standby, 6000, $nothing), 'waits', 'promoted: for an upsert, too');
is(add($standby, 7000), 'added', 'promoted: one of a transaction that was running is not there');
is(add($standby, 8000), 'there', 'promoted: a committed one is');
$standby->safe_psql('postgres', "COMMIT PREPARED 'six'");
is(add($standby, 6000), 'there', 'promoted and committed: refused');
sound($standby, 'u', [qw(k s)], 'promoted');
$node = $standby;

# ---------- crowds ----------

# Keys below 4000 are never taken away again, but by rollbacks: who is refused has to
# find the row.  Rows come by single statements, some of many rows, and triggers.
$node->safe_psql('postgres', q(
	CREATE TABLE c (k int, s text, n int);
	CREATE UNIQUE INDEX c_k ON c USING cachebatch (k);
	CREATE UNIQUE INDEX c_s ON c USING cachebatch (s, k) INCLUDE (n);
	CREATE FUNCTION must_be_there(key int) RETURNS void LANGUAGE plpgsql
		SET enable_indexscan = off SET enable_bitmapscan = off SET enable_indexonlyscan = off AS $$
	BEGIN
		IF key < 4000 AND NOT EXISTS (SELECT FROM c WHERE k = key) THEN
			RAISE EXCEPTION 'key % was refused and is not there', key;
		END IF;
	END $$;
	CREATE FUNCTION add_one(key int, undo boolean) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO c VALUES (key, md5(key::text), 1);
		IF undo THEN
			RAISE EXCEPTION SQLSTATE 'UNDOX';
		END IF;
	EXCEPTION
		WHEN unique_violation THEN PERFORM must_be_there(key);
		WHEN SQLSTATE 'UNDOX' THEN NULL;
	END $$;
	CREATE FUNCTION add_or_nothing(key int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO c VALUES (key, md5(key::text), 2) ON CONFLICT DO NOTHING;
		IF NOT FOUND THEN
			PERFORM must_be_there(key);
		END IF;
	END $$;
	-- who loses a race for the arbiter may be refused by the other index, as with btree
	CREATE FUNCTION add_or_count(a int, b int) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		name text;
	BEGIN
		INSERT INTO c VALUES (a, md5(a::text), 3), (b, md5(b::text), 3) ON CONFLICT (k) DO UPDATE SET n = c.n + 1;
	EXCEPTION
		WHEN cardinality_violation THEN NULL;
		WHEN unique_violation THEN
			GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME;
			IF name <> 'c_s' THEN
				RAISE;
			END IF;
	END $$));
my $script = $node->basedir . '/crowd.sql';
append_to_file($script, <<'EOS');
\set r random(1, 100)
\set k random(1, 8000)
\set l random(1, 8000)
\if :r <= 30
SELECT add_one(:k, :r % 4 = 0);
\elif :r <= 45
SELECT add_or_nothing(:k);
\elif :r <= 55
SELECT add_or_count(:k, :l);
\elif :r <= 65
SELECT add_one(i, false) FROM generate_series(:k, :k + 20) i;
\elif :r <= 70
INSERT INTO c SELECT i, md5(i::text), 4 FROM generate_series(:k, :k + 50) i ON CONFLICT DO NOTHING;
\elif :r <= 75
BEGIN;
SELECT add_one(:k, false);
SAVEPOINT a;
SELECT add_one(:l, false);
ROLLBACK TO a;
SELECT add_or_nothing(:l);
ROLLBACK;
\elif :r <= 85
DELETE FROM c WHERE k >= 4000 AND k BETWEEN :k AND :k + 30;
\elif :r <= 95
UPDATE c SET n = n + 1, s = s || '' WHERE k = :k;
\elif :r <= 97
DO $$ BEGIN UPDATE c SET k = k + 1 WHERE k >= 4000 AND k % 97 = 0; EXCEPTION WHEN unique_violation THEN NULL; END $$;
\elif :r <= 98
SELECT cache_batch_flush('c_k');
\else
VACUUM c;
\endif
EOS

# filters of keys are filled again and again
if ($points_built)
{
	$node->append_conf('postgresql.conf', 'cache_batch.test_filters = on');
	$node->reload;
}
my @points = grep { /^(unique|publish|stage|abort)/ } sort(my %all = test_points());

foreach my $i (1 .. $crowds)
{
	my $point = $points_built && $i > 1 ? $points[ int(rand(@points)) ] . '=kill:' . (1 + int(rand(300))) : '';
	local $ENV{PGOPTIONS} = $point ? "-c cache_batch.test_points=$point" : '';
	my ($out, $err) = ('', '');

	IPC::Run::run(
		[ 'pgbench', '-n', '-c', 8, '-T', $seconds, '-f', $script, '--max-tries', 50,
			'-h', $node->host, '-p', $node->port, 'postgres' ],
		'>', \$out, '2>', \$err);
	delete $ENV{PGOPTIONS};
	my $killed = $err =~ /server closed|terminating connection/;

	wait_back($node) if $killed;
	unlike($err, qr/is not there|ERROR:(?!.*(deadlock|terminat|recovery|starting up|unexpected))/,
		"crowd $i" . ($point ? ", to be killed at $point" : '') . ': no refusal in vain, no other error');
	is($node->safe_psql('postgres', q(
		SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off;
		SELECT count(*) FROM (SELECT k FROM c GROUP BY k HAVING count(*) > 1) d)), 0, "crowd $i: no key is there twice");
	sound($node, 'c', [qw(k s)], "crowd $i: sound");
	# pgbench may end before its sessions have
	ok($node->poll_query_until('postgres', "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'tuple'"),
		"crowd $i: no claim is left");
}
unlike(slurp_file($_), qr/PANIC|TRAP|inconsistent page|is corrupted/, "nothing bad in $_")
  foreach glob("$PostgreSQL::Test::Utils::log_path/*unique*.log");
done_testing();
