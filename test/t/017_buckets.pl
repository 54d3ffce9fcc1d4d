# What a flush by the writer himself does: there are no workers, and the pool
# is small, so that buckets fill up and are divided.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('buckets', conf => <<EOC);
cache_batch.pool_size = 256
cache_batch.max_workers = 0
cache_batch.journal_limit = 4096
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

sub stat_of
{
	my ($column, $index) = @_;

	return $node->safe_psql('postgres',
		"SELECT coalesce(max($column), 0) FROM cache_batch_stat_buckets WHERE indexrelname = '$index'");
}

# ---------- what lies in the journal from before the buckets (I7) ----------

$node->safe_psql('postgres', q(
	CREATE TABLE f (id int, s text);
	ALTER TABLE f ALTER s SET STORAGE PLAIN;
	CREATE INDEX f_s ON f USING cachebatch (s)));
$node->safe_psql('postgres', q(
	SET cache_batch.test_buckets = off;
	DO $$ BEGIN FOR i IN 1 .. 200 LOOP INSERT INTO f VALUES (i, md5(i::text) || repeat('x', 1800)); COMMIT; END LOOP; END $$));
is(stat_of('buckets', 'f_s'), 0, 'no buckets yet');
is($node->safe_psql('postgres', q(
		SET cache_batch.test_points = 'flush-truncate=count';
		INSERT INTO f SELECT i, md5(i::text) || repeat('y', 1800) FROM generate_series(201, 220) i;
		SHOW cache_batch.test_point_hits)),
	'flush-truncate:1', 'the first statement fills a bucket');
cmp_ok(stat_of('buckets', 'f_s'), '>', 0, 'buckets');
sound($node, 'f', ['s'], 'flushed before the sweep');
crash_restart($node);
sound($node, 'f', ['s'], '... and crashed');

# ---------- a bucket is divided while it is read and written (A5) ----------

$node->safe_psql('postgres', q(
	CREATE TABLE d (id int, k int, s text);
	CREATE INDEX d_k ON d USING cachebatch (k, s) WITH (pack_leaves = off)));
$node->safe_psql('postgres', q(INSERT INTO d VALUES (0, -1, '')));
is(stat_of('buckets', 'd_k'), 1, 'one bucket');

# at once, and so into the tree itself
$node->safe_psql('postgres', q(
	INSERT INTO d SELECT i, i, repeat('x', 40) FROM generate_series(1, 30000) i));

my $holder = $node->background_psql('postgres');
my $writer = $node->background_psql('postgres');
my $reader = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
$writer->query_safe(q(SET cache_batch.test_points = 'flush-applied=wait:1'));
$reader->query_safe('SET enable_seqscan = off; SET enable_bitmapscan = off');

# a scan that stands in the middle of the range
my $read = 'FROM d WHERE k > 0 AND id > 30000';
$node->safe_psql('postgres', q(INSERT INTO d SELECT 40000 + i, i, 'r' FROM generate_series(1000, 30000, 1000) i));
$reader->query_safe("BEGIN; DECLARE c CURSOR FOR SELECT k $read ORDER BY k; DECLARE b CURSOR FOR SELECT k $read ORDER BY k DESC");
is($reader->query_safe('FETCH 5 FROM c'), join("\n", map { $_ * 1000 } 1 .. 5), 'a scan has begun');
is($reader->query_safe('FETCH 5 FROM b'), join("\n", map { $_ * 1000 } reverse 26 .. 30), '... and one backwards');

$writer->query_until(qr/^start/, join("\n", '\echo start', map {
		"INSERT INTO d SELECT 50000 + $_, 1 + (i * 1009 + $_ * 17) % 30000, repeat('w', 40) FROM generate_series(1, 30) i;"
	} 1 .. 40) . "\n");
ok($node->poll_query_until('postgres',
		q(SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)),
	'the writer flushes a full bucket');
is(stat_of('buckets', 'd_k'), 1, 'not divided yet');

# others go on writing to it; at commit, when nothing is flushed
$node->safe_psql('postgres', q(
	DO $$ BEGIN INSERT INTO d SELECT 200000 + i, i, 'o' FROM generate_series(500, 29500, 1000) i; COMMIT; END $$));
$holder->query_safe('SELECT pg_advisory_unlock(1)');
$node->poll_query_until('postgres',
	q(SELECT buckets > 1 FROM cache_batch_stat_buckets WHERE indexrelname = 'd_k'));
cmp_ok(stat_of('buckets', 'd_k'), '>', 1, 'divided');
is($node->safe_psql('postgres',
		'SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM d WHERE k > 0 AND id > 200000'),
	30, 'what was written meanwhile is found in both');
is($reader->query_safe('FETCH ALL FROM c'), join("\n", map { $_ * 1000 } 6 .. 30), 'the scan goes on');
is($reader->query_safe('FETCH ALL FROM b'), join("\n", map { $_ * 1000 } reverse 1 .. 25), '... as the one backwards');
$_->quit foreach ($reader, $writer, $holder);
sound($node, 'd', ['k'], 'divided');

# divided often, and joined again when others need the room
$node->safe_psql('postgres', join '', map {
		"INSERT INTO d SELECT 100000 + $_, hashint4(i * 1000 + $_) % 30000, repeat('v', 40) FROM generate_series(1, 30) i;"
	} 1 .. 300);
cmp_ok(stat_of('buckets', 'd_k'), '>', 3, 'divided often');
sound($node, 'd', ['k'], 'divided often');
crash_restart($node);
sound($node, 'd', ['k'], '... and crashed');

# ---------- the first ranges of a large index are equally wide ----------

# more pages above the leaves than could be read once, and too few bounds above
$node->append_conf('postgresql.conf', 'cache_batch.pool_size = 8192');
$node->restart;
$node->safe_psql('postgres', q(
	CREATE TABLE w (s text);
	INSERT INTO w SELECT md5(i::text) || md5((-i)::text) || '0123456789' FROM generate_series(1, 50000) i;
	CREATE INDEX w_s ON w USING cachebatch (s) WITH (fillfactor = 10, pack_leaves = off)));
is($node->safe_psql('postgres', q(
		SELECT count(*) BETWEEN 80 AND 150
		FROM generate_series(1, pg_relation_size('w_s') / 8192 - 1) b, cache_batch_page('w_s', b) WHERE level = 1)),
	't', 'a large index');
$node->safe_psql('postgres', q(
	INSERT INTO w SELECT md5(i::text) || md5((-i)::text) || '0123456789' FROM generate_series(50001, 54000) i));
is($node->safe_psql('postgres', q(
		SELECT count(*) > 150, max(entries) < 5 * avg(entries) FROM cache_batch_bucket_list('w_s'))),
	't|t', 'its buckets get the same');
sound($node, 'w', ['s'], 'a large index');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log');

# ---------- keys that go on do not use up the buckets ----------

$node->append_conf('postgresql.conf', 'cache_batch.pool_size = 16384');
$node->restart;
$node->safe_psql('postgres', q(
	CREATE TABLE g (k int, s text);
	CREATE INDEX g_k ON g USING cachebatch (k, s) WITH (pack_leaves = off)));
my $hits = $node->safe_psql('postgres', q(
	SET cache_batch.test_max_buckets = 8;
	SET cache_batch.test_points = 'bucket-divided=count';
	DO $$ BEGIN FOR i IN 1 .. 400 LOOP
		INSERT INTO g SELECT i * 150000 + (hashint4(i * 300 + j) & 1048575), repeat('g', 300) FROM generate_series(1, 300) j;
		COMMIT;
	END LOOP; END $$;
	SHOW cache_batch.test_point_hits));
cmp_ok((split /:/, $hits)[1], '>', 7, "buckets are divided again and again ($hits)");
cmp_ok(stat_of('buckets', 'g_k'), '<=', 8, 'and are no more than there may be');
sound($node, 'g', ['k'], 'with buckets joined');

done_testing();
