# Packed leaves: entries that are applied twice, plain leaves beside them, pages
# of another format, damaged packed parts, and replay.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('packed', conf => <<EOC);
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.pool_size = 1MB
EOC

# Blocks of an index by a condition on its pages.
sub blocks
{
	my ($index, $condition) = @_;

	return split /\n/, $node->safe_psql('postgres', qq(
		SELECT b FROM generate_series(1, pg_relation_size('$index') / 8192 - 1) b,
			LATERAL cache_batch_page('$index', b) p WHERE $condition ORDER BY b));
}

sub file_of
{
	my ($index) = @_;

	return $node->data_dir . '/' . $node->safe_psql('postgres', qq(SELECT pg_relation_filepath('$index')));
}

my $packed = q('packed' = ANY (p.flags));

SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 1 unless test_points_built($node);

	# U15: a flush fails after the tree has its entries, which are in the packed part by
	# then; the next flush puts them into the delta
	$node->safe_psql('postgres', q(
		CREATE TABLE twice (id int, k bigint);
		CREATE INDEX twice_k ON twice USING cachebatch (k);
		SET cache_batch.test_delta = 0;
		INSERT INTO twice SELECT i, hashint8extended(i, 1) FROM generate_series(1, 300) i;
		SELECT cache_batch_flush('twice_k')));
	my ($rc, $out, $err) = $node->psql('postgres', q(
		SET cache_batch.test_delta = 0;
		INSERT INTO twice SELECT i, hashint8extended(i, 1) FROM generate_series(3001, 3020) i;
		SET cache_batch.test_points = 'flush-applied=error';
		SELECT cache_batch_flush('twice_k')));
	like($err, qr/flush-applied/, 'a flush fails after its entries are in the tree');
	my $copies = q(SELECT count(*), count(*) FILTER (WHERE ordinal IS NULL)
		FROM generate_series(1, pg_relation_size('twice_k') / 8192 - 1) b,
			LATERAL cache_batch_page('twice_k', b) p, LATERAL cache_batch_page_items('twice_k', b) i
		WHERE p.type = 'leaf' AND htid IN (SELECT ctid FROM twice WHERE id > 3000));
	is($node->safe_psql('postgres', $copies), '20|0', 'they are in packed parts');
	$node->safe_psql('postgres', q(SELECT cache_batch_flush('twice_k')));
	is($node->safe_psql('postgres', $copies), '40|20', 'and in deltas, when they were flushed again');
	sound($node, 'twice', ['k'], 'with entries in packed part and delta');
	is($node->safe_psql('postgres', q(SET enable_seqscan = off; SET enable_bitmapscan = off;
		SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM twice WHERE k IS NOT NULL ORDER BY k DESC) x)),
		'320|320', 'a scan backward returns them once');

	$node->safe_psql('postgres', q(
		CREATE TABLE gone AS SELECT k FROM twice WHERE id BETWEEN 3001 AND 3010;
		DELETE FROM twice WHERE id BETWEEN 3001 AND 3010;
		VACUUM twice;
		INSERT INTO twice SELECT i, hashint8extended(i, 7) FROM generate_series(5001, 5010) i));
	is($node->safe_psql('postgres', q(SET enable_seqscan = off;
		SELECT count(*) FROM gone, LATERAL (SELECT 1 FROM twice WHERE twice.k = gone.k OFFSET 0) x)),
		'0', 'VACUUM has removed both, and the keys lead to no other row');
	sound($node, 'twice', ['k'], 'after VACUUM');

	$node->safe_psql('postgres', q(
		SET cache_batch.test_delta = 0;
		INSERT INTO twice SELECT i, hashint8extended(i, 1) FROM generate_series(6001, 6100) i;
		SELECT cache_batch_flush('twice_k')));
	is($node->safe_psql('postgres', $copies), '120|0', 'packed again, each stands once');
	sound($node, 'twice', ['k'], 'packed again');

	# replay of packing and of removing, from the first record on
	crash_restart($node);
	sound($node, 'twice', ['k'], 'after a crash');
}

# an index whose leaves were not to be packed: they are packed one by one
$node->safe_psql('postgres', q(
	CREATE TABLE old (id int, k bigint);
	CREATE INDEX old_k ON old USING cachebatch (k) WITH (pack_leaves = off);
	INSERT INTO old SELECT i, hashint8extended(i, 1) FROM generate_series(1, 20000) i;
	SELECT cache_batch_flush('old_k')));
is(scalar(blocks('old_k', $packed)), 0, 'no leaf is packed');
sound($node, 'old', ['k'], 'plain leaves');
$node->safe_psql('postgres', q(
	ALTER INDEX old_k RESET (pack_leaves);
	INSERT INTO old SELECT i, hashint8extended(i, 1) FROM generate_series(20001, 28000) i;
	SELECT cache_batch_flush('old_k')));
ok(scalar(blocks('old_k', $packed)) > 0, 'leaves that ran full are packed');
ok(scalar(blocks('old_k', "p.type = 'leaf' AND NOT $packed")) > 0, 'others are as they were');
sound($node, 'old', ['k'], 'plain and packed leaves');

# pages of another version of the format are refused: a leaf, and the metapage
$node->safe_psql('postgres', 'DELETE FROM old WHERE id % 100 = 0; CHECKPOINT');
is($node->safe_psql('postgres', q(SELECT version FROM cache_batch_metapage('old_k'))), '1', 'the version of the format');
my $file = file_of('old_k');
my ($block) = blocks('old_k', $packed);
foreach my $case ([ $block, [ 8192 - 6, pack('v', 2) ], 2 ], [ 0, [ 8192 - 6, pack('v', 0) ], 0 ], [ 0, [ 24 + 4, pack('V', 3) ], 3 ])
{
	my ($at, $change, $version) = @$case;
	my $page = page($file, $at);

	$node->stop;
	damage($file, $at, $change);
	$node->start;
	foreach my $query ('SET enable_seqscan = off; SELECT count(*) FROM old WHERE k IS NOT NULL',
		q(SELECT cache_batch_verify('old_k')), 'VACUUM (INDEX_CLEANUP ON) old',
		"SELECT cache_batch_page('old_k', $at)")
	{
		my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$query");

		# a page is shown without a look at what it holds
		next if $version == 3 && $query =~ /_page/;
		my $hint = $version > 1 ? qr/If a newer version of cache_batch was here, .*REINDEX/ : qr/Please REINDEX/;
		like($err, qr/XX002: index "old_k" has format version $version at block $at, but this version of cache_batch reads version 1\n(?:.*\n)?HINT:  $hint/,
			"version $version at block $at is refused: $query");
	}
	$node->stop;
	damage($file, $at, [ 0, $page ]);
	$node->start;
}
sound($node, 'old', ['k'], 'the version that it had');

# the hints lead somewhere
$node->stop;
damage($file, 0, [ 24 + 4, pack('V', 3) ]);
$node->start;
$node->safe_psql('postgres', 'REINDEX INDEX old_k');
sound($node, 'old', ['k'], 'REINDEX makes it of this version');
$node->safe_psql('postgres', 'CHECKPOINT');
$file = file_of('old_k');
$node->stop;
damage($file, 0, [ 24 + 4, pack('V', 3) ]);
$node->start;
$node->safe_psql('postgres', 'DROP INDEX old_k');
pass('an index of another version can be dropped');

# damaged packed parts: an error or an answer, but no crash
$node->safe_psql('postgres', q(
	CREATE TABLE bad (id int, k bigint, s text);
	INSERT INTO bad SELECT i, hashint8extended(i, 1), 'https://example.org/' || md5(i::text) FROM generate_series(1, 4000) i;
	CREATE INDEX bad_k ON bad USING cachebatch (k);
	CREATE INDEX bad_s ON bad USING cachebatch (s COLLATE "C");
	CHECKPOINT));
my $seed = $ENV{CB_SEED} || time;
srand($seed);
note("CB_SEED=$seed");
foreach my $index (qw(bad_k bad_s))
{
	my ($block) = blocks($index, $packed);
	my $file = file_of($index);
	my $page = page($file, $block);
	my %whole;
	my ($found, $missed) = (0, 0);

	# item 2, behind the high key
	my $item = unpack('V', substr($page, 28, 4));
	my ($start, $len) = ($item & 0x7fff, $item >> 17);
	foreach my $try (1 .. 12)
	{
		my @changes = map { [ $start + ($try % 2 ? int(rand(64)) : int(rand($len))), chr(int(rand(256))) ] } 1 .. 8;

		$node->stop;
		damage($file, $block, @changes);
		$node->start;
		foreach my $query ("SELECT cache_batch_verify('$index')",
			'SET enable_seqscan = off; SELECT count(*) FROM bad WHERE ' . ($index eq 'bad_k' ? 'k' : 's COLLATE "C"') . ' IS NOT NULL',
			"SELECT count(*) FROM cache_batch_page_items('$index', $block)")
		{
			my ($rc, $out, $err) = $node->psql('postgres', $query);

			$whole{crashed}++ if $rc == 2 || $err =~ /terminated|server closed/;
			$rc ? $found++ : $missed++;
		}
		$node->stop;
		damage($file, $block, [ 0, $page ]);
		$node->start;
	}
	is($whole{crashed} // 0, 0, "$index: no damage ends the server ($found errors, $missed answers)");
	ok($found > 0, "$index: damage is found");
	sound($node, 'bad', [ $index eq 'bad_k' ? 'k' : 's' ], "$index: whole again");
}

# an entry beside the packed part that lies beyond its page, when the leaf is packed again
sub insert_bad
{
	my ($first, $last) = @_;

	return "INSERT INTO bad SELECT i, hashint8extended(i, 1), '' FROM generate_series($first, $last) i;"
	  . "SELECT cache_batch_flush('bad_k')";
}
$node->safe_psql('postgres', insert_bad(4001, 4040) . '; CHECKPOINT');
($block) = blocks('bad_k', $packed);
$file = file_of('bad_k');
$node->stop;
cmp_ok(unpack('v', substr(page($file, $block), 12, 2)), '>', 24 + 3 * 4, 'there are entries beside the packed part');
damage($file, $block, [ 24 + 2 * 4, pack('V', 0x7ff8 | 1 << 15 | 16 << 17) ]);
$node->start;
my ($rc, $out, $err) = $node->psql('postgres', insert_bad(5001, 9000));
like($err, qr/index "bad_k" is corrupted at block $block\b.*Its flags, its items, or their values, are damaged/s, 'an entry beyond its page is found');

done_testing();
