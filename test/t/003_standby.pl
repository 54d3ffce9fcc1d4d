# A standby answers as its primary does while the journal fills, is flushed and
# truncated, and VACUUM runs; after promotion it goes on (A6, A7, I11).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary');
my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = 2s\n");

$primary->safe_psql('postgres', q(
	CREATE TABLE t (id int, k int, s text);
	CREATE INDEX t_k ON t USING cachebatch (k) INCLUDE (id);
	CREATE INDEX t_s ON t USING cachebatch (s);
	CREATE UNLOGGED TABLE u (k int);
	CREATE INDEX u_k ON u USING cachebatch (k);
	INSERT INTO u SELECT generate_series(1, 1000)));

# a session whose private copy of the journal lives through all steps
my $reader = $standby->background_psql('postgres');
my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off; ';
my $sums = q(SELECT count(*) || ' ' || coalesce(sum(k), 0) FROM t WHERE k > -1);

my @steps = (
	'a full journal' => join(';', map {
			"INSERT INTO t SELECT i, hashint4(i) & 65535, md5(i::text) FROM generate_series($_ * 50, $_ * 50 + 49) i"
		} 0 .. 30),
	'a flush' => "SELECT cache_batch_flush('t_k'), cache_batch_flush('t_s')",
	'updates' => 'UPDATE t SET k = k / 2 WHERE id % 4 = 0',
	'deletions' => 'DELETE FROM t WHERE id % 9 = 0',
	'VACUUM' => 'VACUUM t',
	'recycled journal pages and TIDs' => join(';', map {
			"INSERT INTO t SELECT -i, hashint4(-i) & 65535, md5(i::text) FROM generate_series($_ * 50, $_ * 50 + 49) i"
		} 1 .. 60),
	'VACUUM again' => 'DELETE FROM t WHERE id % 2 = 0; VACUUM t; INSERT INTO t SELECT i, i, i FROM generate_series(1, 300) i',
	'leaves that fill up' => join(';', map {
			"INSERT INTO t SELECT i, hashint4(i) & 65535, md5(i::text) FROM generate_series($_ * 3000, $_ * 3000 + 2999) i; SELECT cache_batch_flush('t_s')"
		} 10 .. 15),
	'leaves that go to their neighbours' => "SELECT 1 / cache_batch_compact('t_s'), cache_batch_compact('t_k')",
	'REINDEX' => 'REINDEX TABLE t');

while (my ($what, $sql) = splice(@steps, 0, 2))
{
	$primary->safe_psql('postgres', $sql);
	$primary->wait_for_catchup($standby);
	my $expected = $primary->safe_psql('postgres', "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off; $sums");
	is($reader->query_safe("$by_index $sums"), $expected, "a lasting session on the standby after $what");
	sound($standby, 't', [qw(k s)], "standby after $what");
	sound($primary, 't', [qw(k s)], "primary after $what");
}
$reader->quit;

# an unlogged index has no file on a standby
foreach my $query ((map { "SELECT v.* FROM cache_batch_stat_$_ v" } qw(indexes pool databases buckets workers heat)),
	'SELECT cache_batch_advise(min_size => 0)', q(SELECT cache_batch_verify('u_k', true)))
{
	my ($ret, $out, $err) = $standby->psql('postgres', $query);

	is("$ret $err", '0 ', "$query with an unlogged index");
}
is($primary->safe_psql('postgres', q(SELECT sum(blocks_read) > 0 FROM cache_batch_stat_heat WHERE indexrelname = 'u_k')),
	't', 'an unlogged index has heat on the primary');

# heat is of the standby's own reads, and its clock goes by itself
my $accessed = 'SELECT count(*) > 0 FROM cache_batch_stat_heat WHERE';
$standby->append_conf('postgresql.conf', "cache_batch.heat_epoch = 1s\n");
$standby->reload;
$standby->safe_psql('postgres', "$by_index " . q(
	DO $$ BEGIN
		FOR i IN 1 .. 128 LOOP PERFORM count(*) FROM t WHERE k = 5; END LOOP;
	END $$));
is($standby->safe_psql('postgres', "$accessed max_age IS NOT NULL AND blocks_read > 0"), 't',
	'reads on a standby are noted');
is($standby->safe_psql('postgres', "$accessed max_age IS NOT NULL AND blocks_written > 0"), 'f',
	'replayed writes are not');
ok($standby->poll_query_until('postgres', "$accessed max_age > 0 AND blocks_read > 0"),
	'they get older');

# reading a range changes nothing, so it does on a standby, too
$standby->restart;
my $prewarm = "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT cache_batch_prewarm('t_k')";
like($standby->safe_psql('postgres', $prewarm), qr/Buffers: shared .*read=/, 'cache_batch_prewarm() reads leaves');
unlike($standby->safe_psql('postgres', $prewarm), qr/Buffers: shared .*read=/, 'they are in memory then');

foreach my $function ('cache_batch_compact', 'cache_batch_flush')
{
	my ($ret, $out, $err) = $standby->psql('postgres', "SELECT $function('t_k')");
	like($err, qr/recovery is in progress.*HINT:  $function/s, "$function() is refused");
}

$primary->safe_psql('postgres', 'INSERT INTO t SELECT i, hashint4(i) & 65535, i FROM generate_series(5000, 5100) i');
$primary->wait_for_catchup($standby);
$standby->safe_psql('postgres', "$by_index $sums");
$primary->stop('immediate');
$standby->promote;
sound($standby, 't', [qw(k s)], 'after promotion');
$standby->safe_psql('postgres', q(
	INSERT INTO t SELECT i, hashint4(i) & 65535, i FROM generate_series(6000, 6400) i;
	DELETE FROM t WHERE id % 3 = 0; VACUUM t;
	INSERT INTO t SELECT i, hashint4(i) & 65535, i FROM generate_series(7000, 7400) i));
sound($standby, 't', [qw(k s)], 'writes after promotion');
crash_restart($standby);
is($standby->safe_psql('postgres', "$accessed max_age IS NOT NULL"), 'f', 'a crash forgets heat');
sound($standby, 't', [qw(k s)], 'crash after promotion');
unlike(slurp_file($standby->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log');

done_testing();
