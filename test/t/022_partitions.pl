# A table of 1 000 partitions with two cachebatch indexes each: more than there
# are bucket sets, and more than the stages take at a time.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $parts = 1000;

my $node = new_node('partitions', conf => <<EOC);
cache_batch.pool_size = 2048
cache_batch.max_workers = 2
cache_batch.max_delay = 1h
cache_batch.test_visits = off
cache_batch.journal_limit = 4096
cache_batch.stage_total_size = 256
max_locks_per_transaction = 256
max_worker_processes = 16
max_wal_size = 2GB
shared_buffers = 64MB
wal_consistency_checking = 'cache_batch'
EOC

sub sql
{
	my ($query) = @_;

	return $node->safe_psql('postgres', $query);
}

sub pool
{
	my ($what) = @_;

	return sql("SELECT $what FROM cache_batch_stat_pool");
}

# So many rows for each of the partitions, by turns.
sub rows
{
	my ($n, $seed) = @_;

	return qq(SELECT i % $parts, hashint4(i + $seed), md5((i + $seed)::text)
		FROM generate_series(0, $n * $parts - 1) i);
}

# The same answers by each index as without, and all of them pass verification.
# In one session, as each has to get to know all partitions first.
sub all_sound
{
	my ($what) = @_;
	my @queries = map {
		"SELECT count(*), md5(string_agg($_\::text, ',')) FROM (SELECT $_ FROM p ORDER BY $_) x;"
	} ('k', 's');
	my ($rc, $out, $err) = $node->psql('postgres', qq(
		SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off;
		@queries
		RESET enable_indexscan; RESET enable_indexonlyscan; SET enable_seqscan = off; SET enable_sort = off;
		@queries
		EXPLAIN (COSTS OFF) $queries[0]
		EXPLAIN (COSTS OFF) $queries[1]
		SELECT count(cache_batch_verify(indexrelid, true)) > 0 FROM cache_batch_stat_indexes;
	));
	my ($heap_k, $heap_s, $index_k, $index_s) = split /\n/, $out;
	my $scans = () = $out =~ /Index (?:Only )?Scan using/g;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($scans, '>=', $parts, "$what: indexes are used");
	is("$index_k $index_s $err", "$heap_k $heap_s ", $what);
	return;
}

sql(qq(
	CREATE TABLE p (part int, k int, s text) PARTITION BY LIST (part);
	DO \$\$ BEGIN FOR i IN 0 .. $parts - 1 LOOP
		EXECUTE format('CREATE TABLE p%1\$s PARTITION OF p FOR VALUES IN (%1\$s)', i);
		IF i % 100 = 99 THEN COMMIT; END IF;
	END LOOP; END \$\$;
	CREATE INDEX p_k ON p USING cachebatch (k);
	CREATE INDEX p_s ON p USING cachebatch (s)));

# ---------- one statement for all: what it stages is published early ----------

# looked at when the last row comes: half of the entries are still to come in
# the first statement, all but the last twelve rows in the second
sql(q(
	CREATE TABLE seen (entries bigint, bytes bigint);
	CREATE FUNCTION note_seen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO seen
		SELECT (SELECT sum(journaled + direct) FROM cache_batch_stat_indexes),
			(SELECT sum(total_bytes) FROM pg_backend_memory_contexts WHERE name = 'cache_batch stages');
		RETURN NEW;
	END $$;
	CREATE TRIGGER note BEFORE INSERT ON p999 FOR EACH ROW EXECUTE FUNCTION note_seen()));
sql('INSERT INTO p ' . rows(20, 0));
cmp_ok(sql('SELECT max(entries) FROM seen'), '>', 8000, 'the stages of all indexes have a common limit');
sql('TRUNCATE seen');
sql("INSERT INTO p SELECT i / 12, i, (SELECT string_agg(md5((i * 16 + j)::text), '') FROM generate_series(1, 13) j)
	FROM generate_series(0, 12 * $parts - 1) i");
cmp_ok(sql('SELECT max(bytes) FROM seen'), '<', 8 * 1024 * 1024, '... and do not keep their memory');
sql('DROP TRIGGER note ON p999');
all_sound('one statement for all partitions');

# ---------- more indexes than bucket sets ----------

is(pool('indexes = bucket_sets'), 't', 'all bucket sets are in use');
my $without = sql(q(
	WITH i AS MATERIALIZED (
		SELECT indexrelid FROM cache_batch_stat_indexes
		WHERE indexrelid NOT IN (SELECT indexrelid FROM cache_batch_stat_buckets))
	SELECT indexrelid::regclass FROM i
	WHERE EXISTS (SELECT FROM cache_batch_journal(indexrelid) WHERE nentries > 0) LIMIT 1));
like($without, qr/p\d+_[ks]_idx/, 'an index without one has its journal');
is(sql("SELECT cache_batch_flush('$without')"), 't', '... and is flushed from there');
is(sql("SELECT coalesce(sum(nentries), 0) FROM cache_batch_journal('$without')"), '0', '... to the end');

is(sql('SELECT count(*) FROM cache_batch_stat_indexes WHERE staged > 0'), 2 * $parts, 'all indexes are counted');

# dense batches need none
my $direct = 'SELECT sum(direct) FROM cache_batch_stat_indexes';
my $before = sql($direct);
sql("INSERT INTO p SELECT i / 40, hashint4(i), md5(i::text) FROM generate_series(0, 40 * $parts - 1) i");
cmp_ok(sql($direct), '>', $before + 40_000, 'dense batches go straight to the trees');
all_sound('more indexes than bucket sets');

# ---------- who writes much has much of the pool ----------

# Writes to four partitions, and looks after each transaction what they and the
# others have of the pool, as workers may have flushed it in the next moment.
# While all bucket sets are taken the four go without until others have not used
# theirs for a second, so nothing is asked of the time in which all are written.
sql(q(
	CREATE VIEW held AS
		SELECT coalesce(sum(chunks) FILTER (WHERE part < 4), 0) AS four,
			coalesce(sum(chunks) FILTER (WHERE part >= 4), 0) AS others
		FROM (SELECT chunks, substr(relname, 2)::int AS part FROM cache_batch_stat_buckets) b;
	CREATE PROCEDURE write_much(condition text, INOUT seen boolean DEFAULT false) LANGUAGE plpgsql AS $$
	BEGIN FOR i IN 1 .. 40 LOOP
		INSERT INTO p SELECT j % 4, hashint4(i * 1000 + j), md5((i * 1000 + j)::text)
		FROM generate_series(1, 400) j;
		COMMIT;
		EXECUTE 'SELECT $1 OR ' || condition || ' FROM held' INTO seen USING seen;
	END LOOP; END $$));

# Is that seen, at least once?
sub seen_in_pool
{
	my ($condition) = @_;

	foreach (1 .. 20)
	{
		return 1 if sql("CALL write_much('$condition')") eq 't';
	}
	diag(sql('SELECT * FROM held'));
	return 0;
}

# Entries older than this are flushed; counted from when they came.
sub max_delay
{
	my ($delay) = @_;

	sql("ALTER SYSTEM SET cache_batch.max_delay = '$delay'");
	$node->reload;
	return;
}

sql('INSERT INTO p SELECT i % 4, hashint4(-i), md5((-i)::text) FROM generate_series(1, 40000) i');
sql('INSERT INTO p ' . rows(5, 1_000_000));
max_delay('1s');
ok($node->poll_query_until('postgres', 'SELECT chunks_free = chunks FROM cache_batch_stat_pool'),
	'workers empty the buckets of all that is idle');
max_delay('1h');
ok(seen_in_pool('four > 30 AND others = 0'),
	'those who write on have the pool to themselves, as the others have given it back');
all_sound('by demand');

# ---------- advice for all of them ----------

# column statistics are read once, and not for each index
sql('ANALYZE p');
my ($advised, $read, $stored) = split /[|\n]/, sql(q(
	BEGIN;
	SELECT count(*) FROM cache_batch_advise('p');
	SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_sys_tables WHERE relname = 'pg_statistic';
	SELECT count(*) FROM pg_statistic;
	COMMIT));
is($advised, 2 * $parts, 'advice for each index');
cmp_ok($read, '<', 20 * $stored, '... does not read statistics over and over');

# ---------- restart: buckets come with the first use ----------

foreach my $crash (0, 1)
{
	sql('INSERT INTO p ' . rows(2, 2_000_000 + $crash * 1_000_000));
	$crash ? crash_restart($node) : $node->restart;
	is(pool('indexes'), '0', "restart $crash: no index has buckets");
	sql(q(SET enable_seqscan = off; SELECT count(*) FROM p17 WHERE k = 1));
	is(pool('indexes'), '1', "restart $crash: one is read");
	all_sound("restart $crash: answers");
	sql('INSERT INTO p ' . rows(2, 2_500_000 + $crash * 1_000_000));
	is(pool('indexes = bucket_sets'), 't', "restart $crash: as many as can have buckets");
	all_sound("restart $crash: more rows");
}

# ---------- transactions that do not come to their end ----------

my $rows = sql('SELECT count(*) FROM p');
sql('BEGIN; INSERT INTO p ' . rows(3, 5_000_000) . '; ROLLBACK');
my ($rc, $out, $err) = $node->psql('postgres',
	'INSERT INTO p SELECT i % 1000, 10 / (9999 - i), md5(i::text) FROM generate_series(0, 9999) i');
like($err, qr/division by zero/, 'an error in the last row');
is(sql('SELECT count(*) FROM p'), $rows, 'nothing is left of it');
all_sound('rolled back');

# Of each subtransaction that ends just its own entries are published or dropped.
sql(qq(
	CREATE FUNCTION nested(a int, b int, c int) RETURNS int LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO p VALUES (a, 1, 'kept'), (b, 1, 'kept');
		BEGIN
			INSERT INTO p VALUES (a, 2, 'kept');
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
		BEGIN
			INSERT INTO p VALUES (b, 3, 'dropped');
			PERFORM 1 / 0;
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
		BEGIN
			INSERT INTO p VALUES (b, 4, 'kept');
			BEGIN
				INSERT INTO p VALUES (a, 5, 'kept');
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
			BEGIN
				INSERT INTO p VALUES (b, 6, 'dropped'), (c, 6, 'dropped');
				PERFORM 1 / 0;
			EXCEPTION WHEN division_by_zero THEN NULL;
			END;
			INSERT INTO p VALUES (a, 7, 'kept');
		EXCEPTION WHEN division_by_zero THEN NULL;
		END;
		RETURN a;
	END \$\$;
	SELECT count(nested(i, (i + 1) % $parts, (i + 2) % $parts)) FROM generate_series(0, $parts - 1) i));
is(sql('SELECT count(*) FROM p'), $rows + 6 * $parts, 'subtransactions: rows');
all_sound('subtransactions');

# ---------- VACUUM ----------

sql('DELETE FROM p WHERE k % 3 = 0');
sql('VACUUM (INDEX_CLEANUP ON) p');
is(sql('SELECT sum(entries) FROM cache_batch_stat_buckets'), '0', 'VACUUM leaves nothing in the buckets');
all_sound('VACUUM');
sql('INSERT INTO p ' . rows(3, 6_000_000));
all_sound('rows in the places of the removed ones');

# ---------- partitions come and go ----------

sql('ALTER TABLE p DETACH PARTITION p5; INSERT INTO p5 ' . "SELECT 5, i, i::text FROM generate_series(1, 50) i");
sound($node, 'p5', [ 'k', 's' ], 'a partition that was detached');
sql('ALTER TABLE p ATTACH PARTITION p5 FOR VALUES IN (5)');
sql('BEGIN; TRUNCATE p; INSERT INTO p ' . rows(1, 7_000_000) . '; ROLLBACK');
all_sound('TRUNCATE, rolled back');
my $half = $parts / 2;
sql(qq(DO \$\$ BEGIN FOR i IN $half .. $parts - 1 LOOP
		EXECUTE format('DROP TABLE p%s', i);
		IF i % 100 = 99 THEN COMMIT; END IF;
	END LOOP; END \$\$));
sql("INSERT INTO p SELECT i % $half, hashint4(i), md5(i::text) FROM generate_series(1, 5 * $half) i");
all_sound('half of the partitions are dropped');
is(sql('SELECT count(*) FROM cache_batch_stat_indexes WHERE staged > 0'), $parts, 'all that are left are counted');
max_delay('1s');
ok($node->poll_query_until('postgres', q(SELECT chunks_free = chunks AND b.bucket_sets = b.indexes
	FROM cache_batch_stat_pool, (SELECT count(*) AS bucket_sets, count(i.oid) AS indexes
		FROM cache_batch_stat_get_bucket_sets() d LEFT JOIN pg_class i ON i.oid = d.indexrelid) b)),
	'they hold nothing of the pool');
sql('TRUNCATE p');
sql("INSERT INTO p SELECT i % $half, hashint4(i), md5(i::text) FROM generate_series(1, 5 * $half) i");
all_sound('TRUNCATE');

# ---------- what a commit finds due is done by the next insertion ----------

# without buckets, so that nobody else does it
$node->append_conf('postgresql.conf', 'cache_batch.pool_size = 0');
$node->restart;
sql(qq(
	SET cache_batch.journal_limit = 64;
	DO \$\$ BEGIN FOR i IN 1 .. 12 LOOP
		INSERT INTO p SELECT j % $half, hashint4(i * 1000 + j), '' FROM generate_series(1, $half) j;
		INSERT INTO p SELECT 0, j, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 13))
		FROM generate_series(1, 30) j;
		COMMIT;
	END LOOP; END \$\$));
cmp_ok(sql(q(SELECT sum(bytes) FROM cache_batch_journal('p0_s_idx'))), '<', 128 * 1024,
	'a journal past its limit is emptied, however many indexes the transactions used');
all_sound('no pool');
sql('DROP TABLE p');
$node->append_conf('postgresql.conf', 'cache_batch.pool_size = 2048');
$node->restart;
ok($node->poll_query_until('postgres', 'SELECT chunks_free = chunks FROM cache_batch_stat_pool'),
	'all chunks come free');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|inconsistent page|WARNING/, 'nothing bad in the log');
done_testing();
