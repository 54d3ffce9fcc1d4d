# Scans of what is not in memory read ahead, and those of what is do not; leaves
# that are split or deleted after they were listed do not matter.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# string_agg() is parallel from version 16 on, and the order of rows is compared
my $node = new_node('main', conf => <<'EOC');
max_parallel_workers_per_gather = 0
shared_buffers = 64MB
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.spill_threshold = 0
cache_batch.spill_target = 1000
effective_io_concurrency = 16
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);

my $count = q(SET cache_batch.test_points = 'scan-read-ahead=count,run-read-ahead=count,run-read-next=count,scan-read-sequential=count';);
my %use = (
	index => 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;',
	bitmap => 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;',
	table => 'SET enable_bitmapscan = off; SET enable_indexscan = off; SET enable_indexonlyscan = off;');

# The answer to a query, and how often it came upon leaves to ask for, asked for
# pages where runs are begun to be read, and for next pages of these, and left a
# leaf to the kernel.  cold: after a restart, so that nothing is in shared buffers.
sub ask
{
	my ($how, $query, %args) = @_;
	my $set = $args{set} // '';

	$node->restart if $args{cold};
	my $out = $node->safe_psql('postgres', qq($use{$how} $set $count
		SELECT count(*), md5(string_agg(x::text, ',')) FROM ($query) x;
		SHOW cache_batch.test_point_hits;));
	my ($answer, $hits) = split /\n/, $out;
	return ($answer, $hits =~ /:(\d+)/g);
}

# plain leaves, not in the order of their blocks, of which two levels are above
$node->safe_psql('postgres', q(
	CREATE TABLE ra (a int, b bigint);
	CREATE INDEX ra_a ON ra USING cachebatch (a, b) WITH (buffered = off, pack_leaves = off);
	DO $$ BEGIN FOR n IN 0 .. 79 LOOP
		INSERT INTO ra SELECT i * 7919 % 80000, i FROM generate_series(n * 1000 + 1, n * 1000 + 1000) i;
	END LOOP; END $$;
	VACUUM ra));
my $leaves = $node->safe_psql('postgres', q(SELECT count(*)
	FROM generate_series(1, pg_relation_size('ra_a') / 8192 - 1) AS b,
		 cache_batch_page('ra_a', b) AS p WHERE p.type = 'leaf'));
cmp_ok($leaves, '>', 300, 'many leaves, with several pages above them');
my $forward = 'SELECT a FROM ra ORDER BY a';
my $backward = 'SELECT a FROM ra ORDER BY a DESC';
my $tenth = 'SELECT a FROM ra WHERE a BETWEEN 20000 AND 27999';

foreach my $case (
	[ 'forward', 'index', $forward, $leaves - 2 ],
	[ 'backward', 'index', $backward, $leaves - 2 ],
	[ 'for a bitmap', 'bitmap', 'SELECT a FROM ra WHERE a >= 0', $leaves - 1 ])
{
	my ($what, $how, $query, $expected) = @$case;
	my ($table) = ask('table', $query);
	my ($answer, $asked) = ask($how, $query, cold => 1);
	my ($again, $asked_again) = ask($how, $query);
	my (undef, $switched_off) = ask($how, $query, cold => 1, set => 'SET effective_io_concurrency = 0;');

	is($answer, $table, "$what: the answer");
	is($asked, $expected, "$what: each leaf is asked for once, but those at the start");
	is($again, $table, "$what: the answer with all in memory");
	is($asked_again, 0, "$what: nothing is asked for with all in memory");
	is($switched_off, 0, "$what: nothing is asked for where that is switched off");
}

# no further than the query goes
foreach my $case (
	[ 'forward', 'index', "$tenth ORDER BY a" ],
	[ 'backward', 'index', "$tenth ORDER BY a DESC" ],
	[ 'for a bitmap', 'bitmap', $tenth ],
	[ 'over values', 'index', 'SELECT a FROM ra WHERE a = ANY (ARRAY(SELECT generate_series(20000, 27999))) ORDER BY a' ])
{
	my ($what, $how, $query) = @$case;
	my ($table) = ask('table', $query);
	my ($answer, $asked) = ask($how, $query, cold => 1);

	is($answer, $table, "a tenth $what: the answer");
	cmp_ok($asked, '>', $leaves / 10 - 6, "a tenth $what: read ahead");
	cmp_ok($asked, '<', $leaves / 10 + 6, "a tenth $what: no further");
}
foreach my $query ('SELECT a FROM ra WHERE a = 5000', 'SELECT a FROM ra ORDER BY a LIMIT 1',
	'SELECT a FROM ra WHERE a < 100 ORDER BY a DESC LIMIT 10')
{
	my (undef, $asked) = ask('index', $query, cold => 1);
	is($asked, 0, "nothing is asked for: $query");
}

# leaves in the order of their blocks are the kernel's, if it sees them so
$node->safe_psql('postgres', q(
	CREATE TABLE seq (a int);
	INSERT INTO seq SELECT generate_series(1, 60000);
	CREATE INDEX seq_a ON seq USING cachebatch (a) WITH (buffered = off, pack_leaves = off)));
foreach my $case ([ 'index', 'SELECT a FROM seq ORDER BY a', '>' ],
	[ 'index', 'SELECT a FROM seq ORDER BY a DESC', '<' ], [ 'bitmap', 'SELECT a FROM seq WHERE a > 0', '>' ])
{
	my ($how, $query, $relation) = @$case;
	my (undef, $asked, undef, undef, $left) = ask($how, $query, cold => 1);
	cmp_ok($left, $relation, $asked * 0.9, "$left of $asked are left to the kernel: $query");
}

# a part in memory: asks for the rest as soon as it comes to it, and stops
$node->restart;
my (undef, $first) = ask('index', 'SELECT a FROM ra WHERE a < 30000 ORDER BY a');
my (undef, $rest) = ask('index', $forward);
cmp_ok($rest, '>', $leaves - $first - 6, 'what is not in memory is asked for');
cmp_ok($rest, '<', $leaves - $first + 6, 'what is in memory is not');
$node->restart;
ask('index', 'SELECT a FROM ra WHERE a > 30000 ORDER BY a');
my (undef, $until) = ask('index', $forward);
cmp_ok($until, '<', $leaves - $first + 22, 'stops where the rest is in memory');

# leaves are split, and emptied and deleted, after they have been listed
foreach my $order ('a', 'a DESC')
{
	my $query = "SELECT a FROM ra WHERE b <= 80000 ORDER BY $order";
	my ($table) = ask('table', $query);
	my $reader = $node->background_psql('postgres');

	$node->restart;
	$reader->quit;
	$reader = $node->background_psql('postgres');
	$reader->query_safe("$use{index} $count SET cache_batch.test_read_ahead = on; BEGIN ISOLATION LEVEL REPEATABLE READ;
		DECLARE c CURSOR FOR $query; CREATE TEMP TABLE got (n serial, a int);");
	my $take = q(DO $$ DECLARE c refcursor := 'c'; r record;
		BEGIN FOR i IN 1 .. %d LOOP FETCH c INTO r; EXIT WHEN NOT FOUND;
			INSERT INTO got (a) VALUES (r.a); END LOOP; END $$);
	$reader->query_safe(sprintf $take, 3000);
	$node->safe_psql('postgres', 'INSERT INTO ra SELECT i * 3 % 80000, 80000 + i FROM generate_series(1, 60000) i');
	$reader->query_safe(sprintf $take, 3000);
	$node->safe_psql('postgres', 'DELETE FROM ra WHERE a BETWEEN 20000 AND 40000 AND b > 80000; VACUUM ra');
	$reader->query_safe(sprintf $take, 1000000);
	is($reader->query_safe(q(SELECT count(*), md5(string_agg(row(a)::text, ',' ORDER BY n)) FROM got)),
		$table, "leaves change during a scan by $order");
	like($reader->query_safe('SHOW cache_batch.test_point_hits'), qr/scan-read-ahead:[1-9]\d\d/,
		"it reads ahead, by $order");
	$reader->quit;

	# while its snapshot is there VACUUM leaves these rows to the next one, which would
	# wait for the pin of the next cursor, as with btree
	ok($node->poll_query_until('postgres', q(SELECT count(*) = 0 FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())), "the reader by $order is gone");
	$node->safe_psql('postgres', 'DELETE FROM ra WHERE b > 80000; VACUUM ra');
}

# range buffers: a range's runs are asked for together, and their next pages
$node->safe_psql('postgres', q(
	SET cache_batch.test_spill = on;
	SET cache_batch.test_run_min = 1;
	CREATE TABLE rr (a text);
	CREATE FUNCTION long(i int) RETURNS text LANGUAGE sql AS
		$$ SELECT lpad(i::text, 10, '0') || string_agg(md5(i + j / 20.0 || ''), '') FROM generate_series(1, 18) j $$;
	INSERT INTO rr SELECT long(i) FROM generate_series(1, 10000) i;
	CREATE INDEX rr_a ON rr USING cachebatch (a);
	INSERT INTO rr SELECT long(i) FROM generate_series(1, 10000, 3) i;
	SELECT cache_batch_flush('rr_a');
	INSERT INTO rr SELECT long(i) FROM generate_series(2, 10000, 3) i;
	SELECT cache_batch_flush('rr_a')));
cmp_ok($node->safe_psql('postgres', q(SELECT sum(runs) FROM cache_batch_ranges('rr_a'))), '>', 1, 'runs');
foreach my $case ([ 'forward', 'index', 'SELECT a FROM rr ORDER BY a' ],
	[ 'backward', 'index', 'SELECT a FROM rr ORDER BY a DESC' ],
	[ 'for a bitmap', 'bitmap', q(SELECT a FROM rr WHERE a > '0') ])
{
	my ($what, $how, $query) = @$case;
	my ($table) = ask('table', $query);
	my ($answer, undef, $begun, $next) = ask($how, $query, cold => 1);
	my (undef, @again) = ask($how, $query);

	is($answer, $table, "runs $what: the answer");
	cmp_ok($begun, '>', 0, "runs $what: asked for together");
	cmp_ok($next, '>', 0, "runs $what: and their next pages");
	is("@again", '0 0 0 0', "runs $what: not with all in memory");
}

sound($node, 'ra', ['a'], 'sound');
sound($node, 'rr', ['a'], 'sound with runs');
$node->stop;
done_testing();
