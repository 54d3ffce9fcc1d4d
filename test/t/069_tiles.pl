# Tiles on a standby: a query that was to read a tile's run, which has been given up
# and its pages used again, reads the window again; so does verification.  A standby
# is promoted; and indexes get tiles when a range has no room for more runs.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', conf => <<'EOC');
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.spill_threshold = 0
cache_batch.spill_target = 1000
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);

my $forced = join ' ', map { "SET enable_$_ = off;" } qw(seqscan bitmapscan sort);
my $heap = join ' ', map { "SET enable_$_ = off;" } qw(indexscan indexonlyscan bitmapscan);

# keys so long that a page of a run has few
$primary->safe_psql('postgres', q(
	CREATE TABLE tb (k text, n int);
	ALTER TABLE tb ALTER k SET STORAGE PLAIN;
	INSERT INTO tb SELECT lpad((i * 10)::text, 8, '0') || repeat(md5(i::text), 3), i FROM generate_series(1, 3000) i;
	CREATE INDEX tb_k ON tb USING cachebatch (k)));

my $standby = new_standby($primary, 'standby', conf => "max_standby_streaming_delay = 0\n");

# Inserts some rows; they become a run, or go to tiles with those that are there.
my $rows = 0;

sub insert
{
	my ($tiles) = @_;

	$rows++;
	$primary->safe_psql('postgres', qq(
		SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1; SET cache_batch.test_tiles = $tiles;
		INSERT INTO tb SELECT lpad((i * 17 + $rows)::text, 8, '0') || repeat(md5(i::text), 3), -i FROM generate_series(1, 400) i;
		SELECT cache_batch_flush('tb_k')));
	return;
}

sub tiled
{
	return $primary->safe_psql('postgres', q(SELECT coalesce(sum(entries), 0) FROM cache_batch_tiles('tb_k')));
}

insert(0);
insert(8) for 1 .. 2;
cmp_ok(tiled(), '>', 400, 'there are tiles');
$primary->wait_for_catchup($standby);
sound($standby, 'tb', ['k'], 'whole on the standby');

# One query each, held at a place until the runs of all tiles have been replaced, or
# are in the leaves, and their pages are used again.
my @held = (
	[ 'scan-tile-copied', "k > '0' ORDER BY k" ], [ 'scan-range-read', "k < '00005' ORDER BY k DESC" ],
	[ 'run-turn', "k > '0' ORDER BY k" ], [ 'scan-leaf-read', "k < '00005' ORDER BY k DESC" ],
	[ 'scan-tile-copied', "k = lpad((200 * 17 + 2)::text, 8, '0') || repeat(md5('200'), 3)" ]);
my $holder = $standby->background_psql('postgres');
my $next = 0;

sub waits
{
	return $standby->poll_query_until('postgres',
		q(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted));
}

# Replaces, or merges, the runs of tiles; has their pages used.
sub replace
{
	if ($next++ % 2 == 0)
	{
		insert(8) for 1 .. 2;
	}
	else
	{
		$primary->safe_psql('postgres', q(SELECT cache_batch_flush('tb_k')));
		is(tiled(), '0', 'all of them are in the leaves');
		insert(0) for 1 .. 3;
		insert(8);
	}
	$primary->wait_for_catchup($standby);
	return;
}

foreach my $held (@held)
{
	my ($point, $where) = @$held;
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);
	my $question = "SELECT count(*), md5(string_agg(k, ',')), min(k), max(k) FROM (SELECT k FROM tb WHERE $where) s;";

	$holder->query_safe('SELECT pg_advisory_lock(1)');
	my $right = $reader->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; $heap $question");
	$reader->query_safe("RESET ALL; $forced SET statement_timeout = '60s'; SET cache_batch.test_points = '$point=wait:1,scan-run-lost=count'");
	$reader->query_until(qr/begun/, "\\echo begun\n$question\nSHOW cache_batch.test_point_hits;\n\\echo ended\n");
	ok(waits(), "a query waits at $point: $where");
	replace();
	$holder->query_safe('SELECT pg_advisory_unlock(1)');
	my $answer = $reader->query_until(qr/ended/, '');
	like($answer, qr/^\Q$right\E$/m, 'it has the right answer');
	like($answer, qr/scan-run-lost:[1-9]/, 'though it came to pages that are no longer of its tile');
	$reader->quit;
}
is($standby->safe_psql('postgres', q(SELECT sum(confl_tablespace + confl_lock + confl_snapshot + confl_bufferpin + confl_deadlock)
		FROM pg_stat_database_conflicts)), 0, 'no query was ended');

# Verification has come to the tile page: what its runs had is in those that come
# in their place.
$holder->query_safe('SELECT pg_advisory_lock(1)');
my $verifier = $standby->background_psql('postgres', on_error_stop => 0);
$verifier->query_until(qr/begun/, q(
	SET cache_batch.test_points = 'verify-tiles-read=wait:1';
	\echo begun
	SELECT 'verified ' || (cache_batch_verify('tb_k', true) IS NOT NULL);
	\echo ended
));
ok(waits(), 'verification waits');
insert(8) for 1 .. 2;
$primary->wait_for_catchup($standby);
$holder->query_safe('SELECT pg_advisory_unlock(1)');
like($verifier->query_until(qr/ended/, ''), qr/^verified true$/m, 'it finds no fault, and all rows');
$verifier->quit;
$holder->quit;

# A copy of the files has later LSNs on its runs than on the pages that list them.
$primary->safe_psql('postgres', 'CREATE DATABASE copied TEMPLATE postgres STRATEGY wal_log');
$primary->wait_for_catchup($standby);
my $digest = q(SELECT count(*), md5(string_agg(k, ',')) FROM (SELECT k FROM tb WHERE k > '0' ORDER BY k) s);
foreach my $node ($primary, $standby)
{
	is($node->safe_psql('copied', "SET statement_timeout = '20s'; $forced $digest"), $primary->safe_psql('postgres', "$heap $digest"),
		'tiles are read in a copy of the database, ' . $node->name);
}

# A crash, with all pages from before a checkpoint
$primary->safe_psql('postgres', 'CHECKPOINT');
insert(8) for 1 .. 2;
crash_restart($primary);
sound($primary, 'tb', ['k'], 'whole after a crash');
$primary->wait_for_catchup($standby);

# A query goes on after its standby's promotion.
my $lasting = $standby->background_psql('postgres', on_error_stop => 0);
my $right = $lasting->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ; $heap SELECT left(k, 8) FROM tb ORDER BY k");
my $answer = $lasting->query_safe("RESET ALL; $forced DECLARE c CURSOR FOR SELECT left(k, 8) FROM tb ORDER BY k; FETCH 300 FROM c");
$standby->promote;
$primary->stop;
my @nodes = ($primary, $standby);
$primary = $standby;
insert(8) for 1 .. 2;
$answer .= "\n" . $lasting->query_safe('FETCH 300 FROM c');
$primary->safe_psql('postgres', q(SELECT cache_batch_flush('tb_k')));
insert(0);
insert(8);
$answer .= "\n" . $lasting->query_safe('FETCH ALL FROM c');
ok($answer eq $right, 'a query has the right answer beyond promotion');
$lasting->quit;
sound($primary, 'tb', ['k'], 'whole after promotion');

# ------------------------------------------------------------ by themselves

# A range that has no room for more runs, which are few entries for each leaf
$primary->safe_psql('postgres', q(
	CREATE TABLE l (k bigint, t text, n int);
	INSERT INTO l SELECT hashint8extended(i, 1), md5(i::text), i FROM generate_series(1, 30000) i;
	CREATE INDEX l_k ON l USING cachebatch (k) WITH (fillfactor = 30);
	CREATE INDEX l_t ON l USING cachebatch (t)));
$primary->safe_psql('postgres', join ';', 'SET cache_batch.test_spill = on', 'SET cache_batch.test_run_min = 1', map {;
	"INSERT INTO l SELECT hashint8extended(i, 1), md5(i::text), i FROM generate_series(30000 + 200 * $_, 30199 + 200 * $_) i",
	"SELECT cache_batch_flush('l_k'), cache_batch_flush('l_t')" } 0 .. 69);
foreach my $index ('l_k', 'l_t')
{
	cmp_ok($primary->safe_psql('postgres', "SELECT sum(entries) FROM cache_batch_tiles('$index')"), '>', 0, "$index has tiles");
}
sound($primary, 'l', [qw(k t)], 'whole with tiles');
crash_restart($primary);
sound($primary, 'l', [qw(k t)], 'whole after a crash');
$primary->safe_psql('postgres', 'DELETE FROM l WHERE n % 5 = 0; VACUUM l');
is($primary->safe_psql('postgres', q(SELECT sum(entries) FROM cache_batch_tiles('l_k'))), 0, 'VACUUM has emptied them');
sound($primary, 'l', [qw(k t)], 'whole after VACUUM');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|not a valid page/, 'nothing bad in the log of ' . $_->name)
  foreach (@nodes);
done_testing();
