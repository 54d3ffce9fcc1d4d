# Filters of keys of unique indexes (I13_FILTER): new keys are not looked for, and what
# is there is refused, whenever it was added: before a filter was begun, by a session
# that had not published it, while a worker fills it, and afterwards.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'unique indexes are btree\'s before version 18' if server_version() < 18;

my $node = new_node('key_filter', conf => <<EOC);
cache_batch.pool_size = 4MB
cache_batch.max_delay = 100ms
cache_batch.spill_threshold = 0
autovacuum = off
EOC
plan skip_all => 'needs a build with TESTPOINTS=1' unless test_points_built($node);
$node->append_conf('postgresql.conf', "cache_batch.test_filters = on\n");
$node->restart;

# What adding a key gives: "added" or "there"; or the error.
sub add
{
	my ($table, $k, $clause) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "INSERT INTO $table VALUES ($k) " . ($clause // '') . ' RETURNING 1');

	return 'there' if $err =~ /duplicate key value|^$/ && $out !~ /\d/;
	return $err =~ /\S/ ? $err : 'added';
}

# How often the insertion of keys has looked for one of them: for its check, and in all.
sub looks
{
	my ($table, $keys, $clause) = @_;
	my $hits = $node->safe_psql('postgres', "SET cache_batch.test_points = 'unique-searched=count, scan-upper-copied=count';
		INSERT INTO $table $keys " . ($clause // '') . '; SHOW cache_batch.test_point_hits');

	die "no hits: $hits" unless $hits =~ /unique-searched:(\d+), *scan-upper-copied:(\d+)/;
	return ($1, $2);
}

sub state_of
{
	my ($table) = @_;

	return $node->safe_psql('postgres',
		"SELECT coalesce((SELECT state FROM cache_batch_key_filters() WHERE index = '${table}_k'::regclass), 'none')");
}

# Statements that insert single rows, so that they are no dense batch.
sub single
{
	my ($table, @keys) = @_;

	return join '', map { "INSERT INTO $table VALUES ($_);" } @keys;
}

# A table whose index has a filter, which is READY.
sub filtered
{
	my ($table, $columns, $on) = @_;

	$node->safe_psql('postgres', "CREATE TABLE $table (" . ($columns // 'k int') . ");
		CREATE UNIQUE INDEX ${table}_k ON $table USING cachebatch (" . ($on // 'k') . ");
		INSERT INTO $table SELECT g FROM generate_series(11, 100) g; " . single($table, 1 .. 10));
	ok(wait_until(sub { $node->safe_psql('postgres', "DELETE FROM $table WHERE k = -1; INSERT INTO $table VALUES (-1)");
				state_of($table) eq 'ready' }), "$table: a filter is filled");
	return;
}

# A session in the middle of a statement; \$go lets it go on.
sub adding
{
	my ($statement) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0);

	$session->query_until(qr/go/, "\\echo go\n$statement;\n");
	ok($node->poll_query_until('postgres', q(SELECT count(*) > 0 FROM pg_stat_activity
		WHERE wait_event = 'advisory' AND backend_type = 'client backend')), 'a session has a key in its stage');
	return $session;
}

# ---------- looks of ON CONFLICT that find nothing ask for a filter, too ----------

my $last = 0;

$node->safe_psql('postgres', 'CREATE TABLE conflict (k int); CREATE UNIQUE INDEX conflict_k ON conflict USING cachebatch (k)');
ok(wait_until(sub {
	$last++;
	$node->safe_psql('postgres', "INSERT INTO conflict VALUES ($last) ON CONFLICT (k) DO NOTHING");
	state_of('conflict') eq 'ready' }), 'insertions that may conflict make a filter');
is(join(',', looks('conflict', 'VALUES (-1)', 'ON CONFLICT (k) DO NOTHING')), '0,0', 'which tells that a key is new');

my $holder = $node->background_psql('postgres');

# ---------- new keys are not looked for ----------

my $new = 0;

$node->safe_psql('postgres', 'CREATE TABLE z (k int); CREATE UNIQUE INDEX z_k ON z USING cachebatch (k) WITH (buffered = off)');
foreach my $clause ('', 'ON CONFLICT DO NOTHING')
{
	my ($searched, $scanned) = looks('z', "SELECT g FROM generate_series(1000 + $new, 1099 + $new) g", $clause);

	cmp_ok($scanned, '>=', 100, "without a filter all are looked for $clause");
	$new += 100;
}
filtered('a');
$new = 0;
foreach my $clause ('', 'ON CONFLICT DO NOTHING')
{
	my ($searched, $scanned) = looks('a', "SELECT g FROM generate_series(1000 + $new, 1099 + $new) g", $clause);

	cmp_ok($scanned, '<', 60, "new keys are not looked for $clause");
	is(add('a', $_, $clause), 'there', "$_ is there $clause") foreach 1, 50, 100, 1000 + $new, 1099 + $new;
	$new += 100;
}
is(add('a', 2000), 'added', 'another one is not');
is(add('a', 2000), 'there', 'then it is');
$node->safe_psql('postgres', 'BEGIN; INSERT INTO a VALUES (3000); ROLLBACK');
is(add('a', 3000), 'added', 'rolled back: it can be added');
$node->safe_psql('postgres', 'DELETE FROM a WHERE k = 1; VACUUM a');
is(add('a', 1), 'added', 'deleted: it can be added');
sound($node, 'a', ['k'], 'filtered');

# ---------- claims from before ----------

# a session has a key in its stage when a filter is begun
$holder->query('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', "CREATE TABLE b (k int); CREATE UNIQUE INDEX b_k ON b USING cachebatch (k)");
my $session = adding(q(WITH w AS (INSERT INTO b VALUES (1) RETURNING k) SELECT pg_advisory_xact_lock_shared(k) FROM w));
$node->safe_psql('postgres', single('b', -80 .. -70));
ok(wait_until(sub { state_of('b') eq 'filling' }), 'a filter is begun');
$node->safe_psql('postgres', "INSERT INTO b VALUES ($_)"), sleep 1 foreach -60, -50;
is(state_of('b'), 'filling', 'it is not filled while there is a claim from before');
$holder->query('SELECT pg_advisory_unlock(1)');
$session->quit;
$node->safe_psql('postgres', 'INSERT INTO b VALUES (-40)');
ok(wait_until(sub { state_of('b') eq 'ready' }), 'it is filled when that has ended');
is(add('b', $_), 'there', "$_ is there") foreach 1, -40, -50, -60, -70, -80;
sound($node, 'b', ['k'], 'claimed before');

# ---------- while it is filled ----------

foreach my $end ('goes on', 'fails', 'ends', 'is killed')
{
	my $table = 'c_' . $end =~ tr/ /_/r;

	# a build counts the entries, so that the first filter is large enough
	$holder->query('SELECT pg_advisory_lock(1)');
	$node->safe_psql('postgres', "CREATE TABLE $table AS SELECT g * 10 AS k FROM generate_series(4, 20000) g;
		CREATE UNIQUE INDEX ${table}_k ON $table USING cachebatch (k);
		ALTER SYSTEM SET cache_batch.test_points = 'filter-window=wait:1'; SELECT pg_reload_conf();"
		  . single($table, 10, 20, 30));
	my $waits = q(SELECT pid FROM pg_stat_activity WHERE application_name = 'cache_batch flusher'
		AND wait_event = 'advisory' LIMIT 1);
	ok(wait_until(sub { $node->safe_psql('postgres', $waits) ne '' }), 'a worker has read a part of the index');
	is(state_of($table), 'filling', 'and no more');
	is(add($table, 15), 'added', 'a key that it has passed');
	is(add($table, 199995), 'added', 'one that it has not');
	is(add($table, 20), 'there', 'one that it has read');
	is(add($table, 199990), 'there', 'one that it has not');
	my $pid = $node->safe_psql('postgres', $waits);

	$node->safe_psql('postgres', "ALTER SYSTEM SET cache_batch.test_points = '"
		  . ($end eq 'fails' ? 'filter-window=error:2' : '') . "'; SELECT pg_reload_conf()");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)") if $end eq 'ends';
	kill 'KILL', $pid if $end eq 'is killed';
	$holder->query('SELECT pg_advisory_unlock(1)') unless $end eq 'is killed';
	if ($end eq 'is killed')
	{
		eval { $holder->quit };
		wait_back($node);
		$holder = $node->background_psql('postgres');
	}
	if ($end eq 'fails')
	{
		$node->wait_for_log(qr/could not fill filter of keys of cachebatch index/);
		$node->safe_psql('postgres', "ALTER SYSTEM RESET cache_batch.test_points; SELECT pg_reload_conf()");
	}
	my $k = 300000;
	ok(wait_until(sub { add($table, $k++); state_of($table) eq 'ready' }), "it $end: the filter is filled");
	is(add($table, $_), 'there', "$_ is there") foreach 10, 15, 20, 500, 199990, 199995, 200000, 300000;
	is(add($table, 25), 'added', '25 is not');
	sound($node, $table, ['k'], "it $end");
}

# ---------- another file ----------

# what is built has other keys than what the filter has seen
$node->safe_psql('postgres', 'CREATE FUNCTION key_of(int) RETURNS int LANGUAGE sql IMMUTABLE AS $$SELECT $1$$');
filtered('d', 'k int', 'key_of(k)');
$node->safe_psql('postgres', 'CREATE OR REPLACE FUNCTION key_of(int) RETURNS int LANGUAGE sql IMMUTABLE AS $$SELECT $1 + 5000$$;
	REINDEX INDEX d_k');
is(add('d', 50), 'there', 'REINDEX: what is built then is there');
is(add('d', 500), 'added', 'REINDEX: another one is not');
filtered('e');
$node->safe_psql('postgres', 'BEGIN; TRUNCATE e; INSERT INTO e VALUES (200), (1); ROLLBACK');
is(add('e', $_), 'there', "TRUNCATE is rolled back: $_ is there") foreach 1, 100;
is(add('e', 200), 'added', 'TRUNCATE is rolled back: 200 is not');
ok(wait_until(sub { $node->safe_psql('postgres', 'SELECT sum(entries) FROM cache_batch_stat_buckets') eq '0' }),
	'all is flushed');
$node->safe_psql('postgres', 'TRUNCATE e');
is(add('e', 1), 'added', 'TRUNCATE: 1 is not there');
is(add('e', 1), 'there', 'TRUNCATE: it is then');
ok(wait_until(sub { add('e', 300); add('e', ++$new + 300); state_of('e') eq 'ready' }), 'TRUNCATE: a filter is filled');
is(add('e', 1), 'there', 'TRUNCATE: it has what is there');

# ---------- keys ----------

# values that are equal and differ in their bytes; nulls that are not distinct
filtered('n', 'k numeric', 'k');
is(add('n', $_), 'there', "numeric: $_ is there") foreach '1.0', '100.000', '5e1';
$node->safe_psql('postgres', q(CREATE TABLE s (k text, v int); CREATE UNIQUE INDEX s_k ON s USING cachebatch (k, v) NULLS NOT DISTINCT;
	INSERT INTO s SELECT repeat(md5(g::text), 60), g FROM generate_series(1, 50) g;)
	  . single('s', 'NULL, 1', 'NULL, NULL', q('a', NULL), q('b', 1)));
ok(wait_until(sub { state_of('s') eq 'ready' }), 's: a filter is filled');
is(add('s', $_), 'there', "text: $_ is there")
  foreach 'NULL, 1', 'NULL, NULL', q('a', NULL), q('b', 1), q(repeat(md5('7'), 60), 7);
is(add('s', $_), 'added', "text: $_ is not") foreach 'NULL, 2', q('b', NULL), q(repeat(md5('7'), 60), 8);

# ---------- a filter that has become small ----------

filtered('g');
my $bytes = q(SELECT coalesce(max(bytes), 0) FROM cache_batch_key_filters() WHERE index = 'g_k'::regclass AND state = 'ready');
my $before = $node->safe_psql('postgres', $bytes);
$node->safe_psql('postgres', join '', map {
	"INSERT INTO g SELECT k FROM generate_series($_, 20000, 50) k ORDER BY md5(k::text);" } 1001 .. 1050);
ok(wait_until(sub { add('g', ++$new + 30000); $node->safe_psql('postgres', $bytes) > 2 * $before }), 'a larger one is filled');
is(add('g', $_), 'there', "$_ is there") foreach 1, 100, 1001, 5000, 19999, 20000, $new + 30000;
is(add('g', 500), 'added', '500 is not');

# ---------- two indexes that have one place ----------

my $pair = q(SELECT min(indexrelid::regclass::text) || ' ' || max(indexrelid::regclass::text) FROM pg_index
	WHERE indexrelid::regclass::text ~ '^y\d+_k$' GROUP BY indexrelid::int % 256 HAVING count(*) > 1 LIMIT 1);
my $made = 0;
until ($node->safe_psql('postgres', $pair) ne '')
{
	$node->safe_psql('postgres', join '', map {
		"CREATE TABLE y$_ (k int); CREATE UNIQUE INDEX y${_}_k ON y$_ USING cachebatch (k);" } $made .. $made + 9);
	$made += 10;
}
my ($first, $second) = map { s/_k$//r } split / /, $node->safe_psql('postgres', $pair);
$node->safe_psql('postgres', single($first, 1 .. 10));
ok(wait_until(sub { add($first, ++$new + 100); state_of($first) eq 'ready' }), 'the first one has a filter');
$node->safe_psql('postgres', single($second, 1 .. 10));
ok(wait_until(sub { $node->safe_psql('postgres', 'SELECT sum(entries) FROM cache_batch_stat_buckets') eq '0' }),
	'a worker has come to the second one');
is(state_of($first) . state_of($second), 'readynone', 'which has none');
is(add($_, 5) . add($_, 20), 'thereadded', "$_: 5 is there, 20 is not") foreach $first, $second;

sound($node, $_, ['k'], 'at the end') foreach qw(e n s g), $first, $second;
$holder->quit;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|inconsistent page|is corrupted/, 'nothing bad in the log');
done_testing();
