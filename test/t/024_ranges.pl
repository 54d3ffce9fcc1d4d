# Range buffers: on a standby, whose queries go on when a run's pages are given
# up, or are waited for before, and after its promotion; after crashes; without WAL;
# with keys of all kinds, beside builds; and for the size of the index.
use strict;
use warnings;

use CacheBatch;
use List::Util qw(max min);
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', conf => <<'EOC');
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.spill_threshold = 0
cache_batch.spill_target = 1000
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($primary);
my $standby = new_standby($primary, 'standby', conf => <<'EOC');
max_standby_streaming_delay = 0
wal_receiver_status_interval = 1
EOC

my $forced = join ' ', map { "SET enable_$_ = off;" } qw(seqscan bitmapscan sort);

# Flushes the indexes of a table: their buckets become runs.
sub spill
{
	my ($node, $table, $sql) = @_;
	my $flush = join '', map { "SELECT cache_batch_flush('$_');" } indexes_of($node, $table);

	$node->safe_psql('postgres', "SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1; $sql; $flush");
	return;
}

# Merges their runs; what could be given up before that is given up.
sub merge
{
	my ($node, $table) = @_;

	$node->safe_psql('postgres', join '', 'SELECT pg_current_xact_id();',
		map { "SELECT cache_batch_flush('$_');" } indexes_of($node, $table));
	return;
}

# Runs that an index has, and those that are merged, but have their pages still.
sub runs
{
	my ($node, $index) = @_;

	return $node->safe_psql('postgres',
		"SELECT coalesce(sum(runs), 0), coalesce(sum(retired_runs), 0) FROM cache_batch_ranges('$index')");
}

# ------------------------------------------------------------ standby

$primary->safe_psql('postgres', q(
	CREATE TABLE rs (k int, s text);
	INSERT INTO rs SELECT i * 10, i FROM generate_series(1, 20000) i;
	CREATE INDEX rs_k ON rs USING cachebatch (k);
	CREATE INDEX rs_s ON rs USING cachebatch (s)));
my @steps = (
	[ 'runs', sub { spill($primary, 'rs', "INSERT INTO rs SELECT i * 397, i FROM generate_series($_, 500, 3) i") for 1 .. 3 } ],
	[ 'merged runs', sub { merge($primary, 'rs') } ],
	[ 'freed runs', sub { merge($primary, 'rs') } ],
	[ 'new runs', sub { spill($primary, 'rs', 'INSERT INTO rs SELECT i * 400 + 1, i FROM generate_series(1, 500) i') } ],
	[ 'runs cleaned by VACUUM', sub { $primary->safe_psql('postgres', 'DELETE FROM rs WHERE k % 7 = 0; VACUUM (INDEX_CLEANUP ON) rs') } ]);

foreach my $step (@steps)
{
	my ($what, $do) = @$step;

	$do->();
	note("$what: " . runs($primary, 'rs_k'));
	$primary->wait_for_catchup($standby);
	sound($_, 'rs', [qw(k s)], $_->name . " with $what") foreach ($primary, $standby);
}

# a query on the standby has seen runs whose pages are given up
my $cursor = "$forced BEGIN ISOLATION LEVEL REPEATABLE READ; DECLARE c CURSOR FOR SELECT k FROM rs WHERE k > 0 ORDER BY k;";
merge($primary, 'rs');
spill($primary, 'rs', 'INSERT INTO rs SELECT i * 400 + 3, i FROM generate_series(1, 500) i');
my ($live) = split /\|/, runs($primary, 'rs_k');
cmp_ok($live, '>', 0, 'runs for the reader to see');
$primary->wait_for_catchup($standby);
my $reader = $standby->background_psql('postgres', on_error_stop => 0);
$reader->query_safe("$cursor FETCH 5 FROM c;");
merge($primary, 'rs');
is(runs($primary, 'rs_k'), "0|$live", 'the runs are merged');
$primary->wait_for_catchup($standby);
like($reader->query_safe('FETCH 5 FROM c'), qr/^\d/, 'a query reads on after that');
merge($primary, 'rs');
is(runs($primary, 'rs_k'), '0|0', 'their pages are given up');
$primary->wait_for_catchup($standby);
is($reader->query_safe('MOVE ALL FROM c; SELECT count(*) FROM rs'),
	$primary->safe_psql('postgres', 'SELECT count(*) FROM rs'), 'and after that');
$reader->quit;
sound($standby, 'rs', [qw(k s)], 'standby after that');

# or the primary waits for it
$standby->append_conf('postgresql.conf', 'hot_standby_feedback = on');
$standby->reload;
spill($primary, 'rs', 'INSERT INTO rs SELECT i * 400 + 7, i FROM generate_series(1, 500) i');
$primary->wait_for_catchup($standby);
$reader = $standby->background_psql('postgres', on_error_stop => 0);
$reader->query_safe("$cursor FETCH 5 FROM c;");
$primary->poll_query_until('postgres', 'SELECT count(*) > 0 FROM pg_stat_replication WHERE backend_xmin IS NOT NULL');
merge($primary, 'rs') for 1 .. 2;
like(runs($primary, 'rs_k'), qr/^0\|[1-9]/, 'the primary keeps the pages of merged runs');
is($reader->query_safe('MOVE ALL FROM c; SELECT count(*) FROM rs'),
	$primary->safe_psql('postgres', 'SELECT count(*) FROM rs'), 'the query goes on');
$reader->quit;
ok($primary->poll_query_until('postgres', q(SELECT count(pg_current_xact_id()) + count(cache_batch_flush('rs_k')) = 2
	AND (SELECT sum(retired_runs) = 0 FROM cache_batch_ranges('rs_k')))),
	'and gives them up after it');

# ------------------------------------------------------------ crash, promotion

spill($primary, 'rs', 'INSERT INTO rs SELECT i * 400 + 9, i FROM generate_series(1, 500) i');
my $before = runs($primary, 'rs_k');
crash_restart($primary);
is(runs($primary, 'rs_k'), $before, 'runs are there after a crash');
sound($primary, 'rs', [qw(k s)], 'whole after a crash');
spill($primary, 'rs', 'INSERT INTO rs SELECT i * 400 + 11, i FROM generate_series(1, 500) i');
merge($primary, 'rs');
crash_restart($primary);
sound($primary, 'rs', [qw(k s)], 'whole after a merge and a crash');

spill($primary, 'rs', 'INSERT INTO rs SELECT i * 400 + 13, i FROM generate_series(1, 500) i');
$primary->wait_for_catchup($standby);
like(runs($standby, 'rs_k'), qr/^[1-9]/, 'the standby has runs');
$standby->promote;
sound($standby, 'rs', [qw(k s)], 'whole after promotion');
spill($standby, 'rs', 'INSERT INTO rs SELECT i * 400 + 17, i FROM generate_series(1, 500) i');
sound($standby, 'rs', [qw(k s)], 'new runs after promotion');
merge($standby, 'rs') for 1 .. 2;
is(runs($standby, 'rs_k'), '0|0', 'and no runs');
sound($standby, 'rs', [qw(k s)], 'whole after merges');
$standby->stop;

# without WAL
$primary->safe_psql('postgres', q(
	CREATE UNLOGGED TABLE ru (k int);
	CREATE INDEX ru_k ON ru USING cachebatch (k);
	INSERT INTO ru SELECT i * 10 FROM generate_series(1, 20000) i;
	SELECT cache_batch_flush('ru_k')));
spill($primary, 'ru', "INSERT INTO ru SELECT i * 401 FROM generate_series($_, 500, 3) i") for 1 .. 3;
like(runs($primary, 'ru_k'), qr/^[1-9]/, 'an unlogged index has runs');
$reader = $primary->background_psql('postgres');
$reader->query_safe("$forced BEGIN; DECLARE c CURSOR FOR SELECT count(*) OVER (), k FROM ru WHERE k > 0 ORDER BY k; FETCH 1 FROM c;");
sound($primary, 'ru', ['k'], 'an unlogged index with runs');
merge($primary, 'ru') for 1 .. 2;
$reader->query_safe('MOVE ALL FROM c; COMMIT');
$reader->quit;
sound($primary, 'ru', ['k'], 'an unlogged index with merged runs');
spill($primary, 'ru', 'INSERT INTO ru SELECT i * 403 FROM generate_series(1, 500) i');
$primary->restart;
sound($primary, 'ru', ['k'], 'after a restart');
crash_restart($primary);
is($primary->safe_psql('postgres', 'SELECT count(*) FROM ru'), '0', 'it is empty after a crash');
is(runs($primary, 'ru_k'), '0|0', 'and has no ranges');
spill($primary, 'ru', 'INSERT INTO ru SELECT generate_series(1, 50)');
sound($primary, 'ru', ['k'], 'it can be used again');

# ------------------------------------------------------------ keys

$primary->safe_psql('postgres', q(
	CREATE TABLE rk (i int, t text, u uuid, n numeric, d int, e int, w text);
	INSERT INTO rk SELECT i, md5(i::text), md5(i::text)::uuid, (hashint4(i) % 1000) / 7.0, i % 10, 5, repeat(md5(i::text), 30)
		FROM generate_series(1, 3000) i;
	ALTER TABLE rk ALTER w SET STORAGE PLAIN;
	CREATE INDEX rk_t ON rk USING cachebatch (t);
	CREATE INDEX rk_u ON rk USING cachebatch (u);
	CREATE INDEX rk_n ON rk USING cachebatch (n);
	CREATE INDEX rk_d ON rk USING cachebatch (d DESC NULLS LAST, t);
	CREATE INDEX rk_e ON rk USING cachebatch (e) INCLUDE (i);
	CREATE INDEX rk_w ON rk USING cachebatch (w)));

foreach my $round (1 .. 3)
{
	spill($primary, 'rk', qq(INSERT INTO rk SELECT i, nullif(md5(i::text), md5('$round')), md5(i::text)::uuid,
		round((hashint4(i) % 1000) / 7.0, $round), nullif(i % 10, 3), 5, repeat(md5(i::text), 30)
		FROM generate_series(-30 * $round, 30 * $round) i));
	sound($primary, 'rk', [qw(t u d e w)], "keys of all kinds, round $round");
}

# so few equal keys do not make a leaf dense
spill($primary, 'rk', 'INSERT INTO rk SELECT i, md5(i::text), md5(i::text)::uuid, i, 5, 5, i FROM generate_series(-110, -101) i');
foreach my $index (indexes_of($primary, 'rk'))
{
	like(runs($primary, $index), qr/^[1-9]/, "$index has runs");
}
my $questions = q(SELECT count(*) FROM rk WHERE n = 5; SELECT count(*) FROM rk WHERE n = 5.00; SELECT count(*) FROM rk WHERE d IS NULL;
	SELECT count(*) FROM rk WHERE t = md5('-5'); SELECT count(*) FROM rk WHERE u = md5('-5')::uuid; SELECT count(*) FROM rk WHERE d = 4 AND t > 'c';
	SELECT count(*) FROM rk WHERE w = repeat(md5('7'), 30); SELECT count(*) FROM rk WHERE e = 5; SELECT md5(string_agg(trim_scale(n)::text, ',')) FROM (SELECT n FROM rk WHERE n > -1000 ORDER BY n) s;
	SELECT sum(d::bigint) FROM rk WHERE t = ANY (ARRAY[md5('1'), md5('-30'), md5('x')]));
my $right = $primary->safe_psql('postgres', "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off; $questions");
is($primary->safe_psql('postgres', "$forced $questions"), $right, 'look-ups with runs');

# builds beside
$primary->safe_psql('postgres', 'CREATE INDEX CONCURRENTLY rk_i ON rk USING cachebatch (i)');
spill($primary, 'rk', 'INSERT INTO rk SELECT i, md5(i::text), md5(i::text)::uuid, i, 5, 5, i FROM generate_series(4000, 4040) i');
$primary->safe_psql('postgres', 'REINDEX INDEX CONCURRENTLY rk_t; REINDEX INDEX rk_u');
is(runs($primary, 'rk_t') . runs($primary, 'rk_u'), '0|00|0', 'a new index has no runs');
spill($primary, 'rk', 'INSERT INTO rk SELECT i, md5(i::text), md5(i::text)::uuid, i, 5, 5, i FROM generate_series(4050, 4090) i');
sound($primary, 'rk', [qw(t u d e w i)], 'beside new indexes');

# no longer wanted
$primary->safe_psql('postgres', "ALTER INDEX $_ SET (spill_threshold = off)") foreach indexes_of($primary, 'rk');
spill($primary, 'rk', 'INSERT INTO rk SELECT i, md5(i::text), md5(i::text)::uuid, i, 5, 5, i FROM generate_series(5000, 5040) i');
sound($primary, 'rk', [qw(t u d e w i)], 'entries beside runs');
$primary->safe_psql('postgres', 'DELETE FROM rk WHERE i % 5 = 0; VACUUM (INDEX_CLEANUP ON) rk');
is(join(' ', map { (split /\|/, runs($primary, $_))[0] } indexes_of($primary, 'rk')), '0 0 0 0 0 0 0', 'VACUUM leaves no runs');
sound($primary, 'rk', [qw(t u d e w i)], 'whole without');

# ------------------------------------------------------------ inner pages

# Ranges are made from left to right, many more than one page can name; a standby
# follows.
$primary->safe_psql('postgres', q(
	CREATE TABLE rr (k text);
	ALTER TABLE rr ALTER k SET STORAGE PLAIN;
	INSERT INTO rr SELECT lpad(i::text, 5, '0') || repeat('x', 1000) FROM generate_series(10, 30000, 10) i;
	CREATE INDEX rr_k ON rr USING cachebatch (k) WITH (pack_leaves = off)));
my $follower = new_standby($primary, 'follower');

# Inserts, and makes ranges, in so many places.
sub make_ranges
{
	my ($first, $last, $j) = @_;

	$primary->safe_psql('postgres', qq(
		SET cache_batch.test_spill = on;
		SET cache_batch.test_run_min = 1;
		DO \$\$ BEGIN
			FOR i IN $first .. $last LOOP
				INSERT INTO rr SELECT lpad((i * 400 + j)::text, 5, '0') || repeat('x', 1000) FROM generate_series($j, $j + 2) j;
				PERFORM cache_batch_flush('rr_k');
			END LOOP;
		END \$\$;));
	return;
}

# How many levels of inner pages, inner pages, and downlinks to ranges are there?
sub inner_pages
{
	return split /\|/, $primary->safe_psql('postgres', q(
		SELECT max(level), count(*), sum(live_items) FILTER (WHERE level = 1)
		FROM generate_series(1, pg_relation_size('rr_k') / 8192 - 1) b, cache_batch_page('rr_k', b) p
		WHERE p.type = 'range internal'));
}

my $levels = 1;
foreach my $step (0 .. 6)
{
	make_ranges(10 * $step + 1, 10 * $step + 10, 1);
	my ($now) = inner_pages();
	sound($primary, 'rr', ['k'], "whole with $now levels above ranges") if $now > $levels;
	$levels = $now;
}
make_ranges(1, 70, 101);
my ($top, $inner, $downlinks) = inner_pages();
my $nranges = $primary->safe_psql('postgres', q(SELECT count(*) FROM cache_batch_ranges('rr_k')));
cmp_ok($top, '>=', 3, "there are three levels above ranges ($inner pages)");
is($downlinks, $nranges, "each range has a downlink ($nranges)");
is($primary->safe_psql('postgres', q(SELECT level FROM cache_batch_metapage('rr_k') m, cache_batch_page('rr_k', m.range_root))),
	$top, 'the root is the topmost');
foreach my $key (401, 14001, 28001)
{
	my $question = "SELECT count(*) FROM rr WHERE k = lpad('$key', 5, '0') || repeat('x', 1000)";
	my $plan = $primary->safe_psql('postgres', "$forced $question; EXPLAIN (ANALYZE, BUFFERS) $question");

	my ($read) = $plan =~ /shared hit=(\d+)/;
	cmp_ok($read, '<', 40, "a range is found without reading most of the others ($key)");
}
sound($primary, 'rr', ['k'], 'whole with levels above ranges');
$primary->wait_for_catchup($follower);
sound($follower, 'rr', ['k'], 'whole on the standby, too');
crash_restart($primary);
sound($primary, 'rr', ['k'], 'whole after a crash');

# The root rises while somebody who has found it, for a page that he splits, is held up.
$primary->safe_psql('postgres', q(
	CREATE TABLE ri (k text);
	ALTER TABLE ri ALTER k SET STORAGE PLAIN;
	INSERT INTO ri SELECT lpad(i::text, 1500, '0') FROM generate_series(100, 90000, 100) i;
	CREATE INDEX ri_k ON ri USING cachebatch (k) WITH (spill_threshold = '0', pack_leaves = off)));

# what makes two ranges more, on either side of so much
sub insert_wide
{
	my ($low) = @_;
	return qq(SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1;
		INSERT INTO ri SELECT lpad(i::text, 1500, '0') FROM generate_series($low + 1, $low + 3) i;
		SELECT cache_batch_flush('ri_k'););
}

sub root_level
{
	return $primary->safe_psql('postgres', q(SELECT level FROM cache_batch_metapage('ri_k') m, cache_batch_page('ri_k', m.range_root)));
}

$primary->safe_psql('postgres', insert_wide($_)) foreach (10000, 20000);
is($primary->safe_psql('postgres', q(SELECT count(*) FROM cache_batch_ranges('ri_k'))), 5, 'there are five ranges');
my $slow = $primary->background_psql('postgres', on_error_stop => 0);
my $pid = $slow->query_safe('SELECT pg_backend_pid()');

END { kill 'CONT', $pid if $pid }

sub is_stopped
{
	return slurp_file("/proc/$pid/stat") =~ /\) T /;
}

# at its first hit it looks for room, at the second it has locked what it splits
$slow->query_until(qr/begun/, "SET cache_batch.test_points = 'range-inner-found=stop';\n\\echo begun\n" . insert_wide(80000) . "\n\\echo ended\n");
ok(wait_until(\&is_stopped), 'one looks for room above ranges');
my $hits = 1;
ok(wait_until(sub {
		return 0 unless is_stopped();
		return 1 if $hits++ == 2;
		kill 'CONT', $pid;
		return 0;
	}), 'it has locked the page that it splits');
my $fast = $primary->background_psql('postgres', on_error_stop => 0);
$fast->query_until(qr/begun/, "\\echo begun\n" . insert_wide(5000) . "\n\\echo ended\n");
ok(wait_until(sub { root_level() > 1 }), 'meanwhile the root has risen');
ok(wait_until(sub {
		kill 'CONT', $pid;
		$primary->safe_psql('postgres', "SELECT state FROM pg_stat_activity WHERE pid = $pid") eq 'idle';
	}), 'it has split it');
$pid = undef;
$fast->query_until(qr/ended/, '');
$_->quit foreach ($slow, $fast);
sound($primary, 'ri', ['k'], 'whole though the root has risen');

# ------------------------------------------------------------ size

# keys that go round: the table and its index need no more room
$primary->safe_psql('postgres', q(
	CREATE TABLE rz (k bigint);
	CREATE INDEX rz_k ON rz USING cachebatch (k);
	INSERT INTO rz SELECT hashint4(i) FROM generate_series(1, 60000) i;
	SELECT cache_batch_flush('rz_k')));

# A cycle; returns the index's size in pages.
sub cycle
{
	my ($n) = @_;

	$primary->safe_psql('postgres', "DELETE FROM rz WHERE ctid IN (SELECT ctid FROM rz ORDER BY ctid LIMIT 3000)");
	spill($primary, 'rz', "INSERT INTO rz SELECT hashint4(i) FROM generate_series($n * 100000, $n * 100000 + 999) i") foreach 1 .. 3;
	$primary->safe_psql('postgres', 'VACUUM (INDEX_CLEANUP ON) rz');
	return $primary->safe_psql('postgres', q(SELECT pg_relation_size('rz_k') / 8192));
}

cycle($_) foreach 1 .. 4;
my @sizes = map { cycle($_) } 5 .. 12;
note("pages: @sizes");
cmp_ok(max(@sizes) - $sizes[0], '<', 0.1 * $sizes[0], 'the size stays as it is');
$reader = $primary->background_psql('postgres');
$reader->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
push @sizes, cycle($_) foreach 13 .. 15;
$reader->query_safe('COMMIT');
$reader->quit;
cycle($_) foreach 16 .. 17;
my $size = cycle(18);
cmp_ok(cycle($_), '<=', $size, 'room that a snapshot had kept is used again') foreach 19 .. 20;
sound($primary, 'rz', ['k'], 'whole after many cycles');

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page|not a valid page/, 'nothing bad in the log of ' . $_->name)
  foreach ($primary, $standby, $follower);
done_testing();
