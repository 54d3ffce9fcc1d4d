# One small pool for all indexes of all databases: full of another's entries,
# with more indexes than it has bucket sets, without workers, without a pool,
# and on a standby (I12).  What is in it comes free again, whatever happens to those
# who use it.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

my $node = new_node('pool', conf => <<EOC);
cache_batch.pool_size = 256
cache_batch.max_workers = 2
cache_batch.journal_limit = 4096
cache_batch.max_delay = 1h
max_worker_processes = 16
EOC

$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION cache_batch');

# Restarts the server with other settings.
sub restart_with
{
	$node->append_conf('postgresql.conf', join("\n", @_) . "\n");
	$node->restart;
	return;
}

sub pool
{
	my ($what) = @_;

	return $node->safe_psql('postgres', "SELECT $what FROM cache_batch_stat_pool");
}

# Flushes every index of every database: then no chunk is held by anybody.
sub comes_free
{
	my ($what) = @_;

	foreach my $db ('postgres', 'other')
	{
		$node->safe_psql($db, 'SELECT count(cache_batch_flush(indexrelid)) FROM cache_batch_stat_indexes');
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(pool('chunks - chunks_free'), '0', "$what: all chunks come free");
	return;
}

# Tables n1 .. nN in schema s, with an index each.
sub make_tables
{
	my ($db, $n) = @_;

	$node->safe_psql($db, qq(
		SET client_min_messages = warning;
		DROP SCHEMA IF EXISTS s CASCADE; CREATE SCHEMA s;
		DO \$\$ BEGIN FOR i IN 1 .. $n LOOP
			EXECUTE format('CREATE TABLE s.n%1\$s (id int, k int); CREATE INDEX ON s.n%1\$s USING cachebatch (k)', i);
			COMMIT;
		END LOOP; END \$\$));
	return;
}

# Rows for each of them, in turn; published at commit, where nothing is flushed.
sub fill_tables
{
	my ($db, $n, $rounds) = @_;

	$node->safe_psql($db, qq(
		DO \$\$ BEGIN FOR r IN 1 .. $rounds LOOP FOR i IN 1 .. $n LOOP
			EXECUTE format('INSERT INTO s.n%s SELECT %s, hashint4(%s * 31 + j) %% 100000 FROM generate_series(1, 20) j', i, r, r);
			COMMIT;
		END LOOP; END LOOP; END \$\$));
	return;
}

# How many of the tables differ from their index.
sub check_tables
{
	my ($db, $n, $what) = @_;

	$node->safe_psql($db, qq(
		CREATE OR REPLACE FUNCTION s.answer(query text, by_index bool) RETURNS text LANGUAGE plpgsql AS \$\$
		DECLARE result text;
		BEGIN
			PERFORM set_config('enable_seqscan', (NOT by_index)::text, true),
				set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', (NOT by_index)::text, true),
				set_config('enable_indexscan', by_index::text, true), set_config('enable_indexonlyscan', by_index::text, true);
			EXECUTE query INTO result;
			RETURN result;
		END \$\$));
	my $differ = $node->safe_psql($db, qq(
		SELECT count(*) FROM generate_series(1, $n) i,
			format('SELECT count(*) || md5(string_agg(k::text, \$q\$,\$q\$)) FROM (SELECT k FROM s.n%s WHERE k IS NOT NULL ORDER BY k) x', i) q
		WHERE s.answer(q, true) IS DISTINCT FROM s.answer(q, false)));
	my ($rc, $out, $err) = $node->psql($db,
		q(SELECT count(cache_batch_verify(indexrelid, true)) FROM cache_batch_stat_indexes WHERE schemaname = 's'));

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is("$differ $err", '0 ', "$what: indexes of $db");
	return;
}

sub vacuum_tables
{
	my ($db, $n) = @_;

	$node->safe_psql($db, join '', map { "DELETE FROM s.n$_ WHERE id % 2 = 0; VACUUM (INDEX_CLEANUP ON) s.n$_;" } 1 .. $n);
	return;
}

# Inserts into a table, a hundred rows at a time, until the condition is true.
sub fill_until
{
	my ($table, $condition) = @_;

	for my $i (1 .. 500)
	{
		$node->safe_psql('postgres', "INSERT INTO $table SELECT hashint4(i + 100000 * $i) FROM generate_series(1, 100) i");
		return if $node->safe_psql('postgres', $condition) eq 't';
	}
	return;
}

# ---------- many indexes, two databases ----------

foreach my $workers (0, 2)
{
	restart_with("cache_batch.max_workers = $workers");
	make_tables($_, 20) foreach ('postgres', 'other');

	# fill the pool from the one, then use the other
	fill_tables('other', 20, 60);
	cmp_ok(pool('chunks_free'), '<', pool('chunks / 4'), "workers $workers: the pool is nearly full")
	  if $workers == 0;
	fill_tables('postgres', 20, 30);
	check_tables('postgres', 20, "workers $workers, pool full of the other's");
	check_tables('other', 20, "workers $workers, pool full of its own");
	$node->safe_psql('postgres', join '', map { "INSERT INTO s.n$_ SELECT 100, i FROM generate_series(1, 5000) i; INSERT INTO s.n$_ VALUES (101, 1);" } 1 .. 20);
	vacuum_tables('postgres', 20);
	check_tables('postgres', 20, "workers $workers, after VACUUM");
	ok($node->poll_query_until('postgres', 'SELECT chunks_free > 0 FROM cache_batch_stat_pool'),
		"workers $workers: there is room again");
	vacuum_tables('other', 20);
	fill_tables('other', 20, 5);
	check_tables('other', 20, "workers $workers, filled again");
	comes_free("workers $workers");
}

# ---------- more indexes than bucket sets ----------

make_tables('postgres', 300);
fill_tables('postgres', 300, 2);
check_tables('postgres', 300, 'more indexes than bucket sets');
is(pool('bucket_sets_used'), pool('bucket_sets'), 'all bucket sets are in use');
usleep(1_200_000);
fill_tables('postgres', 300, 2);
vacuum_tables('postgres', 300);
check_tables('postgres', 300, 'bucket sets changed hands');
comes_free('more indexes than bucket sets');
make_tables($_, 8) foreach ('postgres', 'other');

# ---------- errors, and sessions that are ended ----------

SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 1 unless test_points_built($node);
	# nobody else flushes or takes buckets away meanwhile
	restart_with('cache_batch.pool_size = 2048', 'cache_batch.max_workers = 0');

	my $scan = 'SET enable_seqscan = off; SET enable_bitmapscan = off; ';
	my %failing = (
		'flush-sealed' => q(SELECT cache_batch_flush('s.n1_k_idx')),
		'flush-applied' => q(SELECT cache_batch_flush('s.n1_k_idx')),
		'flush-retired' => q(SELECT cache_batch_flush('s.n1_k_idx')),
		'drain-flushed' => 'VACUUM (INDEX_CLEANUP ON) s.n1',
		'publish-routed' => 'INSERT INTO s.n1 VALUES (1, 1)',
		'publish-done' => 'INSERT INTO s.n1 VALUES (1, 1)',
		'scan-bucket-pinned' => "$scan SELECT count(*) FROM s.n1 WHERE k > 0",
		'scan-leaf-read' => "$scan SELECT count(*) FROM s.n1 WHERE k > 0");

	foreach my $point (sort keys %failing)
	{
		fill_tables('postgres', 2, 3);
		$node->safe_psql('postgres', 'DELETE FROM s.n1 WHERE k % 5 = 0');
		my ($rc, $out, $err) = $node->psql('postgres',
			"SET cache_batch.test_points = '$point=error'; $failing{$point};");
		like($err, qr/error at test point/, "error at $point");
		check_tables('postgres', 2, "error at $point");
		comes_free("error at $point");

		# the same, ended while it waits there
		fill_tables('postgres', 2, 3);
		$node->safe_psql('postgres', 'DELETE FROM s.n1 WHERE k % 5 = 0');
		my $holder = $node->background_psql('postgres');
		my $victim = $node->background_psql('postgres', on_error_stop => 0);
		$holder->query_safe('SELECT pg_advisory_lock(1)');
		$victim->query_safe("SET cache_batch.test_points = '$point=wait:1'");
		$victim->query_until(qr/start/, "\\echo start\n$failing{$point};\n");
		$node->poll_query_until('postgres',
			q(SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
		$node->safe_psql('postgres',
			q(SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
		$holder->quit;
		$victim->{run}->finish;
		check_tables('postgres', 2, "ended at $point");
		comes_free("ended at $point");
	}

	# a cursor that has pinned a bucket
	fill_tables('postgres', 2, 3);
	my $reader = $node->background_psql('postgres', on_error_stop => 0);
	my $pid = $reader->query_safe('SELECT pg_backend_pid()');
	$reader->query_safe("$scan BEGIN; DECLARE c CURSOR FOR SELECT k FROM s.n1 WHERE k > -100000 ORDER BY k; FETCH 1 FROM c");
	$node->safe_psql('postgres', "SELECT cache_batch_flush('s.n1_k_idx')");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid, 10000)");
	$reader->{run}->finish;
	comes_free('ended with a cursor');
}

# ---------- few buckets, and many ----------

SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 1 unless test_points_built($node);
	restart_with('cache_batch.pool_size = 256', 'cache_batch.max_workers = 1');
	$node->safe_psql('postgres', "CREATE TABLE $_ (k int); INSERT INTO $_ SELECT hashint4(i) FROM generate_series(1, 20000) i;
		CREATE INDEX ${_}_k ON $_ USING cachebatch (k)") foreach ('few', 'many');
	$node->safe_psql('postgres', "SET cache_batch.test_share = 2; INSERT INTO few VALUES (1)");
	$node->safe_psql('postgres', "SET cache_batch.test_share = 20; INSERT INTO many VALUES (1)");
	fill_until('few', q(SELECT chunks >= 10 FROM cache_batch_stat_buckets WHERE indexrelname = 'few_k'));
	fill_until('many', q(SELECT sum(flushes_pressure) > 0 FROM cache_batch_stat_indexes
		WHERE indexrelname IN ('few_k', 'many_k')));
	is($node->safe_psql('postgres', q(SELECT string_agg(indexrelname, ' ') FROM cache_batch_stat_indexes
		WHERE flushes_pressure > 0 AND indexrelname IN ('few_k', 'many_k'))), 'many_k',
		'the pool is low: who holds most gives way, not who has the fullest bucket');
}

# ---------- no pool, and no heat ----------

fill_tables('postgres', 8, 3);
restart_with('cache_batch.pool_size = 0', 'cache_batch.heat_size = 0');
is(pool('chunks'), '0', 'no pool');
check_tables('postgres', 8, 'written with a pool, read without');
fill_tables('postgres', 8, 3);
vacuum_tables('postgres', 8);
fill_tables('postgres', 8, 3);
check_tables('postgres', 8, 'no pool');
is($node->safe_psql('postgres', 'SELECT count(*) FROM cache_batch_stat_heat'), '0', 'no heat');
restart_with('cache_batch.pool_size = 256', 'cache_batch.max_workers = 0', 'cache_batch.heat_size = 1');
check_tables('postgres', 8, 'written without a pool, read with one');
fill_tables('postgres', 8, 3);
vacuum_tables('postgres', 8);
check_tables('postgres', 8, 'a pool again');
comes_free('a pool again');
is($node->safe_psql('postgres', 'SELECT sum(blocks_written) > 0 FROM cache_batch_stat_heat WHERE max_age IS NOT NULL'), 't',
	'heat in the least of memory');

# ---------- a standby with a smaller one ----------

restart_with('cache_batch.pool_size = 2048', 'cache_batch.max_workers = 2');
fill_tables('postgres', 8, 3);
my $standby = new_standby($node, 'standby', conf => "cache_batch.pool_size = 256\n");
fill_tables('postgres', 8, 3);
vacuum_tables('postgres', 4);
fill_tables('postgres', 8, 3);
$node->wait_for_catchup($standby);
my $primary = $node;
$node = $standby;
my $query = join ' UNION ALL ', map { "(SELECT count(*), sum(k) FROM s.n$_ WHERE k > 0)" } 1 .. 8;
my $off = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';
is($standby->safe_psql('postgres', "$off $query"), $primary->safe_psql('postgres', $query), 'standby: answers');
is(pool('chunks_free'), pool('chunks'), 'standby: its pool is not used');
$standby->promote;
fill_tables('postgres', 8, 3);
check_tables('postgres', 8, 'promoted');
cmp_ok(pool('indexes'), '>', 0, 'promoted: buckets');
vacuum_tables('postgres', 8);
check_tables('postgres', 8, 'promoted, after VACUUM');
comes_free('promoted');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log of ' . $_->name)
  foreach ($primary, $standby);
done_testing();
