# What is on disk is input: pages whose items, values or links lead out of them are
# an error for all who come, and for redo; never a read or a write outside of them.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('damage', conf => "cache_batch.max_workers = 0\n");

$node->safe_psql('postgres', q(
	CREATE TABLE d (id int, s text);
	INSERT INTO d SELECT i, md5(i::text) FROM generate_series(1, 2000) i;
	CREATE INDEX d_s ON d USING cachebatch (s COLLATE "C") WITH (pack_leaves = off)));
my $file = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('d_s')));
my $leaf = $node->safe_psql('postgres', q(
	SELECT min(b) FROM generate_series(1, pg_relation_size('d_s') / 8192 - 1) b, cache_batch_page('d_s', b) p
	WHERE p.type = 'leaf' AND p.next IS NOT NULL));
my $last = $node->safe_psql('postgres', q(
	SELECT b FROM generate_series(1, pg_relation_size('d_s') / 8192 - 1) b, cache_batch_page('d_s', b) p
	WHERE p.type = 'leaf' AND p.next IS NULL));
my $sound = do { $node->stop; page($file, $leaf) };

# what readers say of a page that they have marked
my $unsound = qr/Its flags, its items, or their values, are damaged/;

# The second item of the leaf, its first entry.
my $item = unpack('V', substr($sound, 28, 4)) & 0x7FFF;
my $scan = q(SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(s) FROM d WHERE s > '');
my @cases = (
	[ 'an item outside of the page', 28, pack('V', 8190 | 1 << 15 | 48 << 17), $unsound ],
	[ 'a value longer than its item', $item + 8, pack('V', 0x3FFFFFF0), $unsound ],
	[ 'a value in another place', $item + 8, "\x01\x12", $unsound ],
	[ 'an entry that is a separator', $item + 6, pack('v', 48 | 0x2000), $unsound ],
	[ 'an entry whose values are all said to have a fixed length', $item + 6, pack('v', 48), $unsound ],
	[ 'a TID of no block', $item, "\xff\xff\xff\xff", $unsound ],
	[ 'a page of two kinds', 8192 - 10, pack('v', 1 << 0 | 1 << 1), $unsound ],
	[ 'a link out of the file', 8192 - 16, pack('V', 4_000_000), qr/There is no block 4000000/ ],
	[ 'a link to nowhere', 8192 - 16, pack('V', 0xFFFFFFFE), qr/There is no block 4294967294/ ]);

foreach my $case (@cases)
{
	my ($what, $at, $bytes, $expected) = @$case;

	damage($file, $leaf, [ 0, $sound ], [ $at, $bytes ]);
	$node->start;
	foreach my $question ($scan, $scan, q(SELECT cache_batch_verify('d_s')))
	{
		my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$question");
		like($err, qr/XX002/, "$what: an error");
		like($err, $expected, "$what: which says so") if $question eq $scan;
	}
	$node->stop;
}

# the last leaf, which has no right neighbour that a split of it could have left
damage($file, $leaf, [ 0, $sound ]);
damage($file, $last, [ 8192 - 10, pack('v', 1 << 1 | 1 << 5) ]);
$node->start;
my (undef, undef, $split) = $node->psql('postgres', 'DELETE FROM d WHERE id % 2 = 0; VACUUM (INDEX_CLEANUP ON) d');
like($split, $unsound, 'a split of the last leaf');
$node->stop;
damage($file, $last, [ 8192 - 10, pack('v', 1 << 1) ]);

# an inner page that is its own right neighbour
$node->start;
$node->safe_psql('postgres', q(
	CREATE TABLE r (k int);
	INSERT INTO r SELECT generate_series(1, 20000);
	CREATE INDEX r_k ON r USING cachebatch (k)));
my $ring = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('r_k')));
my $inner = $node->safe_psql('postgres', q(
	SELECT b FROM generate_series(1, pg_relation_size('r_k') / 8192 - 1) b, cache_batch_page('r_k', b) p
	WHERE p.level = 1));
$node->stop;
damage($ring, $inner, [ 8192 - 16, pack('V', $inner) ]);
$node->start;
my (undef, undef, $turns) = $node->psql('postgres', q(SET statement_timeout = '60s'; SELECT cache_batch_prewarm('r_k', 1, 20000)));
like($turns, qr/The right links of level 1 form a ring/, 'a ring of inner pages');
$node->stop;

# a right link that leads back, to the leaf or its left neighbour, which are locked
foreach my $back (0, 1)
{
	$node->start;
	$node->safe_psql('postgres', q(
		DROP TABLE IF EXISTS b;
		CREATE TABLE b (id int, s text);
		INSERT INTO b SELECT i, md5(i::text) FROM generate_series(1, 2000) i;
		CREATE INDEX b_s ON b USING cachebatch (s COLLATE "C") WITH (pack_leaves = off, fillfactor = 60)));
	my $linked = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('b_s')));
	my @leaves = split /\n/, $node->safe_psql('postgres', q(
		SELECT b FROM generate_series(1, pg_relation_size('b_s') / 8192 - 1) b, cache_batch_page('b_s', b) p
		WHERE p.type = 'leaf' ORDER BY b));
	$node->stop;
	damage($linked, $leaves[5], [ 8192 - 16, pack('V', $leaves[ 5 - $back ]) ]);
	$node->start;
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT cache_batch_compact('b_s')");
	like($err, qr/XX002.*A link leads back to it/s, "a link that leads back to block $leaves[5 - $back]");
	$node->stop;
}

# a value in a packed part, which is looked at when it is read
$node->start;
$node->safe_psql('postgres', q(
	CREATE TABLE p (k int, s text);
	INSERT INTO p SELECT i, CASE i WHEN 300 THEN 'MARKER' ELSE md5(i::text) || repeat('x', i % 7) END
		FROM generate_series(1, 1000) i;
	CREATE INDEX p_k ON p USING cachebatch (k, s COLLATE "C");
	CHECKPOINT));
my $packed = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('p_k')));
$node->stop;
my ($number) = grep { index(page($packed, $_), 'MARKER') >= 0 } 1 .. (-s $packed) / 8192 - 1;
my $length = index(page($packed, $number), 'MARKER') - 1;
damage($packed, $number, [ $length, "\xff" ]);
$node->start;
foreach my $question (q(SELECT s FROM p WHERE k = 300), q(SELECT cache_batch_verify('p_k')))
{
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET enable_seqscan = off; $question");
	like($err, qr/XX002.*The packed part is damaged/s, "a packed value longer than its entry: $question");
}
$node->stop;

# a leaf in the metapage's place, which comes from disk as that, with an empty packed part
my $first = page($packed, $number);
my $pointer = unpack('V', substr($first, 8192 - 16, 4)) == 0xFFFFFFFF ? 24 : 28;
damage($packed, 0, [ 0, $first ], [ $pointer, pack('V', unpack('V', substr($first, $pointer, 4)) & 0x1FFFF) ]);
$node->start;
foreach my $question (q(SELECT s FROM p WHERE k = 300), q(SELECT * FROM cache_batch_page('p_k', 0)),
	q(SELECT * FROM cache_batch_page_items('p_k', 0)))
{
	my (undef, undef, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET enable_seqscan = off; $question");
	like($err, qr/XX002/, "a leaf in the metapage's place: $question");
}
$node->stop;

# bytes that would be a text with a length word of four bytes, where no such word can be
$node->start;
$node->safe_psql('postgres', q(
	CREATE TABLE u (a int2, s text);
	INSERT INTO u SELECT i, 'some words' FROM generate_series(1, 10) i;
	CREATE INDEX u_as ON u USING cachebatch (a, s COLLATE "C") WITH (pack_leaves = off)));
my $unaligned = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('u_as')));
$number = $node->safe_psql('postgres', q(
	SELECT b FROM generate_series(1, pg_relation_size('u_as') / 8192 - 1) b, cache_batch_page('u_as', b) p
	WHERE p.type = 'leaf'));
$node->stop;
damage($unaligned, $number, [ (unpack('V', substr(page($unaligned, $number), 24, 4)) & 0x7FFF) + 10, pack('V', 16) ]);
$node->start;
my (undef, undef, $said) = $node->psql('postgres', q(SET enable_seqscan = off; SELECT s FROM u WHERE a = 1));
like($said, $unsound, 'a length word that is not aligned');
$node->stop;

# redo, without full-page images; what it has read in stays there
damage($file, $leaf, [ 0, $sound ]);
$node->append_conf('postgresql.conf', "full_page_writes = off\nwal_consistency_checking = ''\nshared_buffers = 32MB\n");
$node->start;
$node->safe_psql('postgres', q(INSERT INTO d VALUES (0, 'a')));
my $block = $node->safe_psql('postgres', q(SELECT block FROM cache_batch_journal('d_s')));
$node->safe_psql('postgres', 'CHECKPOINT');
$node->safe_psql('postgres', q(INSERT INTO d VALUES (0, 'b')));
$node->stop('immediate');
my $journal = page($file, $block);
damage($file, $block, [ 12, pack('v', 8168) ]);
is($node->start(fail_ok => 1), 0, 'a record is not replayed into a damaged page');
my $log = slurp_file($node->logfile);
like($log, qr/cannot replay a change of block $block of file/, 'and the log says which page it is');
damage($file, $block, [ 0, $journal ], [ 8192 - 6, pack('v', 2) ]);
is($node->start(fail_ok => 1), 0, 'nor into one of another version of the format');
like(substr(slurp_file($node->logfile), length $log),
	qr/cannot replay a change of block $block of file.*\n.*HINT:  If a newer version of cache_batch was here, install that again/,
	'and the log says what to do');
damage($file, $block, [ 0, $journal ]);
$node->start;
sound($node, 'd', ['s'], 'whole when the page is');

# Redo looks at items, not at values: one that has another length then differs from
# itself, and scans end their windows at bounds.
SKIP:
{
	skip 'needs a build with TESTPOINTS=1', 3 unless test_points_built($node);
	$node->safe_psql('postgres', q(
		CREATE TABLE v (k text);
		INSERT INTO v SELECT md5(i::text) FROM generate_series(1, 2000) i;
		CREATE INDEX v_k ON v USING cachebatch (k COLLATE "C") WITH (spill_threshold = 0, pack_leaves = off);
		SET cache_batch.test_spill = on; SET cache_batch.test_run_min = 1;
		INSERT INTO v VALUES ('7'); SELECT cache_batch_flush('v_k');
		INSERT INTO v VALUES ('00'); SELECT cache_batch_flush('v_k');
		INSERT INTO v VALUES ('01'); CHECKPOINT; SELECT cache_batch_flush('v_k'); INSERT INTO v VALUES ('02')));
	my $bounds = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('v_k')));
	my $range = $node->safe_psql('postgres', q(SELECT block FROM cache_batch_ranges('v_k') WHERE position = 0));
	$node->stop('immediate');
	damage($bounds, $range, [ (unpack('V', substr(page($bounds, $range), 24, 4)) & 0x7FFF) + 8, pack('v', 0x8000) ]);
	$node->start;
	foreach my $order ('', 'DESC')
	{
		(undef, undef, $said) = $node->psql('postgres', "\\set VERBOSITY verbose\nSET statement_timeout = '20s'; SET enable_seqscan = off; "
			. "SET enable_bitmapscan = off; SET enable_sort = off; SELECT count(*) FROM (SELECT k FROM v ORDER BY k COLLATE \"C\" $order) s");
		like($said, qr/XX002.*not a valid range page/s, "a bound of a range whose value is too long, after redo: a scan $order");
	}
	$node->safe_psql('postgres', 'REINDEX INDEX v_k');
	sound($node, 'v', ['k'], 'whole when it is built anew');
}

# A reader's mark is no damage of its own: a query on a standby, whose page has a value
# that is damaged, and no item, does not end what that replays.
$node->safe_psql('postgres', q(SELECT cache_batch_flush('d_s')));
$node->safe_psql('postgres', 'CHECKPOINT');
my $standby = new_standby($node, 'damage_standby');
$standby->stop;
$file =~ s/^\Q${\$node->data_dir}\E/$standby->data_dir/e;
$item = unpack('V', substr(page($file, $leaf), 28, 4)) & 0x7FFF;
damage($file, $leaf, [ $item + 8, pack('V', 0x3FFFFFF0) ]);
$standby->start;
my (undef, undef, $err) = $standby->psql('postgres', $scan);
like($err, qr/are damaged/, 'a query on a standby says that a page is damaged');
$node->safe_psql('postgres', q(INSERT INTO d VALUES (0, '000'); SELECT cache_batch_flush('d_s')));
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('postgres', q(SELECT count(*) FROM d WHERE id = 0)), 3, 'and replay goes on');
$standby->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nobody has crashed');

done_testing();
