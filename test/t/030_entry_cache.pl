# Sessions look a few keys up again and again, while others give their rows new
# places, flush, vacuum and pack: there is one row of each key at all times.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('entry_cache', conf => "cache_batch.pool_size = 1MB\ncache_batch.entry_cache_size = 64kB\njit = off\n");

# a new version of a row has entries of its own, as v is indexed, too
$node->safe_psql('postgres', q(
	CREATE TABLE hs (k bigint, v int, t text) WITH (fillfactor = 60);
	CREATE INDEX hs_k ON hs USING cachebatch (k);
	CREATE INDEX hs_v ON hs USING cachebatch (v);
	INSERT INTO hs SELECT i, 0, 'r' FROM generate_series(1, 4000) i;
	INSERT INTO hs VALUES (0, 0, 'r');
	SELECT cache_batch_flush('hs_k')));

my $dir = PostgreSQL::Test::Utils::tempdir();
my %scripts = (
	look => '\set k random_zipfian(1, 4000, 1.1)' . "\n"
	  . "SELECT 1 / (count(t) = 1)::int FROM hs WHERE k = :k::bigint;\n" x 3,
	alone => '\set k random_zipfian(1, 4000, 1.1)' . "\n"
	  . "SELECT 1 / (count(k) = 1)::int FROM hs WHERE k = :k::bigint;\n" x 3,
	update => '\set k random_zipfian(1, 4000, 1.1)' . "\n"
	  . "UPDATE hs SET v = v + 1 WHERE k = :k::bigint;\n",
	undo => '\set k random_zipfian(1, 4000, 1.1)' . "\n"
	  . "BEGIN; UPDATE hs SET v = v + 1 WHERE k = :k::bigint; ROLLBACK;\n",
	add => '\set k random(1, 4000)' . "\n"
	  . "INSERT INTO hs SELECT 10000 + :k * 100 + i, i, 'r' FROM generate_series(1, 40) i;\n",
	flush => "SELECT cache_batch_flush('hs_k');\n",
	compact => "SELECT cache_batch_compact('hs_k');\n",
	vacuum => "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) hs;\n");
my %weights = (look => 200, alone => 100, update => 60, undo => 10, add => 10, flush => 12, compact => 1, vacuum => 2);

foreach my $name (keys %scripts)
{
	append_to_file("$dir/$name", $scripts{$name});
}
my @args = map { ('-f', "$dir/$_\@$weights{$_}") } sort keys %scripts;

local $ENV{PGOPTIONS} = '-c enable_seqscan=off -c enable_bitmapscan=off';
my ($out, $err);
my $ok = IPC::Run::run([ 'pgbench', '-n', '-c', '5', '-t', '2500', @args, $node->connstr('postgres') ],
	'>', \$out, '2>', \$err);
# two that vacuum or pack at once wait for each other, and none fails
is($err =~ /ERROR:.*/ ? $& : '', '', 'one row of each key');
ok($ok, 'pgbench ends');

my $taken = $node->safe_psql('postgres', q(SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hs_k'));
cmp_ok($taken, '>', 1000, 'cached entries were used');
note "$taken look-ups took cached entries";
sound($node, 'hs', ['k', 'v'], 'sound afterwards');

# twice the same look-ups: the second time from the cache, if there is one
sub cached_reads
{
	my ($size) = @_;

	$node->append_conf('postgresql.conf', "cache_batch.entry_cache_size = $size\n");
	$node->restart;
	$node->safe_psql('postgres', 'SELECT cache_batch_stat_reset()');
	$node->safe_psql('postgres', q(INSERT INTO hs VALUES (-1, 0, 'r')));
	$node->safe_psql('postgres', join '', map { "SELECT t FROM hs WHERE k = ${_}::bigint;\n" } (1 .. 50, 1 .. 50));
	return $node->safe_psql('postgres', q(SELECT cached_reads FROM cache_batch_stat_indexes WHERE indexrelname = 'hs_k'));
}

cmp_ok(cached_reads('64kB'), '>', 0, 'entry_cache_size = 64kB: look-ups take cached entries');
is(cached_reads('0'), '0', 'entry_cache_size = 0: none does');

done_testing();
