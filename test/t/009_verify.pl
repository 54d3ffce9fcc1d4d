# cache_batch_verify() finds what is wrong, and says where.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

# what whoever reads such a page says of it, verification as all (C17)
my $unsound = qr/Its flags, its items, or their values, are damaged/;

my $node = new_node('verify', conf => "cache_batch.journal_limit = 1024\n");

# A new index: 3 levels of tree, and a journal; returns its file and blocks.
sub fresh
{
	$node->safe_psql('postgres', q(
		DROP TABLE IF EXISTS t;
		CREATE TABLE t (id int, s text);
		INSERT INTO t SELECT i, lpad(i::text, 200, 'x') FROM generate_series(1, 20000) i;
		CREATE INDEX t_s ON t USING cachebatch (s) WITH (pack_leaves = off);
		INSERT INTO t SELECT i, lpad((hashint4(i) & 16383)::text, 200, 'x') FROM generate_series(30001, 30100) i;
		CHECKPOINT));
	my $file = $node->data_dir . '/' . $node->safe_psql('postgres', q(SELECT pg_relation_filepath('t_s')));
	my %block = map { split /\|/ } split /\n/, $node->safe_psql('postgres', q(
		SELECT DISTINCT ON (name) name, b FROM
		(SELECT b, concat(p.type, p.level) AS name, p.next FROM generate_series(1, pg_relation_size('t_s') / 8192 - 1) b,
			cache_batch_page('t_s', b) p) x
		WHERE name LIKE 'journal%' OR next IS NOT NULL ORDER BY name, b));
	return ($file, %block);
}

my ($file, %block) = fresh();
note(join ', ', map { "$_: $block{$_}" } sort keys %block);
my ($leaf) = map { $block{$_} } grep { /^leaf/ } sort keys %block;
my ($inner) = map { $block{$_} } grep { /^internal/ } sort keys %block;
my ($journal) = map { $block{$_} } grep { /^journal/ } sort keys %block;
ok(defined $leaf && defined $inner && defined $journal, 'leaf, internal and journal pages are there');
sound($node, 't', ['s'], 'before any damage');

# line pointers: 4 bytes each from byte 24; item 1 is the high key
my $item = sub { my ($n) = @_; return 24 + 4 * ($n - 1) };

# what to do to which block, and what the error must say
my @cases = (
	[ 'two items change places', $leaf, sub {
			my $page = page($file, $leaf);
			return ([ $item->(5), substr($page, $item->(6), 4) ], [ $item->(6), substr($page, $item->(5), 4) ]);
		}, qr/not in order/ ],
	[ 'a high key too low', $leaf, sub {
			my $page = page($file, $leaf);
			my $start = unpack('V', substr($page, $item->(1), 4)) & 0x7fff;
			return [ $start + 20, "\0\0\0\0" ];
		}, qr/not below the high key/ ],
	[ 'the level', $leaf, sub { return [ 8192 - 12, pack('v', 3) ] }, qr/Its level is 3/ ],
	[ 'the page id', $leaf, sub { return [ 8192 - 2, 'zz' ] }, qr/page id/ ],
	[ 'a zero page', $leaf, sub { return [ 0, "\0" x 8192 ] }, qr/all zero/ ],
	[ 'a right link to itself', $leaf, sub { return [ 8192 - 16, pack('V', $leaf) ] }, qr/Two links|high key/ ],
	[ 'a right link past the end', $leaf, sub { return [ 8192 - 16, pack('V', 999_999) ] }, qr/999999/ ],
	[ 'a lost right link', $leaf, sub { return [ 8192 - 16, pack('V', 0xFFFFFFFF) ] }, qr// ],
	[ 'an item outside the page', $leaf, sub { return [ $item->(7), pack('V', 0x7ff0 | 1 << 15 | 300 << 17) ] }, $unsound ],
	[ 'downlinks change places', $inner, sub {
			my $page = page($file, $inner);
			return ([ $item->(4), substr($page, $item->(5), 4) ], [ $item->(5), substr($page, $item->(4), 4) ]);
		}, qr/not in order/ ],
	[ 'a wrong downlink', $inner, sub {
			my $page = page($file, $inner);
			my $start = unpack('V', substr($page, $item->(4), 4)) & 0x7fff;
			my $other = unpack('V', substr($page, $item->(5), 4)) & 0x7fff;
			return [ $start, substr($page, $other, 4) ];
		}, qr/downlink/ ],
	[ 'a sequence number', $journal, sub { return [ 24, pack('Q', 77) ] }, qr/journal page/ ],
	[ 'a journal entry without TID', $journal, sub { return [ 40 + 4, "\0\0" ] }, $unsound ],
	[ 'a journal entry too long', $journal, sub { return [ 40 + 6, pack('v', 0x1fff) ] }, $unsound ],
	[ 'the root', 0, sub { return [ 24 + 24, pack('V', $leaf) ] }, qr// ],
	[ 'the magic number', 0, sub { return [ 24, 'abcd' ] }, qr// ]);

foreach my $case (@cases)
{
	my ($what, $at, $changes, $message) = @$case;

	($file) = fresh();
	$node->stop;
	damage($file, $at, $changes->());
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', q(SELECT cache_batch_verify('t_s', true)));
	isnt($rc, 0, "$what is found");
	like($err, $message, "$what: the error says so");
	like($err, qr/index "t_s" is corrupted at block \d+/, "$what: the error names a block");
}

# Damage that VACUUM meets where a leaf loses entries is an error, not the server's
# end: its items are said to begin further right.
($file, %block) = fresh();
($leaf) = map { $block{$_} } grep { /^leaf/ } sort keys %block;
$node->safe_psql('postgres', 'DELETE FROM t WHERE id % 3 = 0; CHECKPOINT');
$node->stop;
damage($file, $leaf, [ 14, pack('v', unpack('v', substr(page($file, $leaf), 14, 2)) + 800) ]);
$node->start;
my ($vacuumed, undef, $trouble) = $node->psql('postgres', 'VACUUM t');
isnt($vacuumed, 0, 'VACUUM fails where items are outside of their page');
like($trouble, qr/is corrupted at block $leaf\b.*$unsound/s, 'and says so');
unlike(slurp_file($node->logfile), qr/PANIC/, 'which ends no server');

# an entry that is missing altogether
fresh();
$node->safe_psql('postgres', q(
	UPDATE pg_index SET indisready = false, indisvalid = false WHERE indexrelid = 't_s'::regclass;
	INSERT INTO t VALUES (1, 'not indexed');
	UPDATE pg_index SET indisready = true, indisvalid = true WHERE indexrelid = 't_s'::regclass));
is($node->psql('postgres', q(SELECT cache_batch_verify('t_s', false))), 0, 'a missing entry is no fault of the structure');
my ($rc, $out, $err) = $node->psql('postgres', q(SELECT cache_batch_verify('t_s', true)));
like($err, qr/index "t_s" is corrupted\n.*Row \(\d+,\d+\) of table "t" has no entry/, 'a missing entry is found');

# who may, and on what
($rc, $out, $err) = $node->psql('postgres', 'CREATE ROLE nobody; GRANT EXECUTE ON FUNCTION cache_batch_verify TO nobody; SET ROLE nobody; ' . q(SELECT cache_batch_verify('t_s')));
like($err, qr/must be owner/, 'only the owner may verify');
($rc, $out, $err) = $node->psql('postgres', 'CREATE INDEX t_b ON t (id); ' . q(SELECT cache_batch_verify('t_b')));
like($err, qr/not a cachebatch index/, 'a btree index is refused');

# ---------- range buffers ----------

# Flushes happen in the inserting session only, so nothing changes by itself.
my $ranges = new_node('ranges', conf => <<'EOC');
cache_batch.max_workers = 0
cache_batch.pool_size = 256kB
cache_batch.spill_threshold = 64kB
cache_batch.spill_target = 1000
EOC

# Live runs on top of retired ones: batches of keys not used before.
my @spills = map { my $first = $_; qq(DO \$\$ BEGIN FOR j IN 1..20 LOOP
	INSERT INTO r SELECT hashint8extended(i, 0), 'https://example.org/' || md5(i::text)
		FROM generate_series($first + 2000 * j, $first + 2000 * j + 1999) i;
	COMMIT; END LOOP; END \$\$;) } 1_000_000, 2_000_000;

$ranges->safe_psql('postgres', qq(
	CREATE TABLE r (k bigint, s text COLLATE "C");
	INSERT INTO r SELECT hashint8extended(i, 0), 'https://example.org/' || md5(i::text) FROM generate_series(1, 40000) i;
	CREATE INDEX r_k ON r USING cachebatch (k);
	CREATE INDEX r_s ON r USING cachebatch (s);
	$spills[0]
	-- an old transaction: the pages of what is retired are kept
	CREATE TABLE old ();
	BEGIN;
	INSERT INTO old DEFAULT VALUES;
	PREPARE TRANSACTION 'old';
	SELECT cache_batch_flush('r_k'), cache_batch_flush('r_s');
	$spills[1]
	CHECKPOINT));

# What is the index's file like?  Blocks of a range that has runs, and items.
sub look
{
	my ($index) = @_;
	my %at = (file => $ranges->data_dir . '/' . $ranges->safe_psql('postgres', qq(SELECT pg_relation_filepath('$index'))));

	$at{range_root} = $ranges->safe_psql('postgres', qq(SELECT range_root FROM cache_batch_metapage('$index')));
	# a range between others, and a run of several pages in it
	($at{range}, $at{item}, $at{root}) = split /\|/, $ranges->safe_psql('postgres', qq(
		SELECT r.block, i.itemoffset, i.child
		FROM cache_batch_ranges('$index') r, cache_batch_page_items('$index', r.block) i,
			cache_batch_page('$index', r.block) p, cache_batch_page('$index', i.child) root
		WHERE NOT i.dead AND i.itemlen = 32 AND i.child IS NOT NULL
			AND r.position > 0 AND r.runs > 1 AND p.next IS NOT NULL AND root.live_items > 1
		ORDER BY 1, 2 LIMIT 1));
	($at{data}, $at{data2}) = split /\n/, $ranges->safe_psql('postgres',
		qq(SELECT child FROM cache_batch_page_items('$index', $at{root}) ORDER BY itemoffset));
	$at{retired} = $ranges->safe_psql('postgres', qq(
		SELECT min(i.child) FROM cache_batch_ranges('$index') r, cache_batch_page_items('$index', r.block) i WHERE i.dead));
	$at{leaf} = $ranges->safe_psql('postgres', qq(
		SELECT min(b) FROM generate_series(1, pg_relation_size('$index') / 8192 - 1) b, cache_batch_page('$index', b) p
		WHERE p.type = 'leaf'));
	return %at;
}

# The start of an item in its page.
sub start
{
	my ($page, $n) = @_;
	return unpack('V', substr($page, $item->($n), 4)) & 0x7fff;
}

foreach my $index (qw(r_k r_s))
{
	my $column = substr($index, 2);

	is($ranges->safe_psql('postgres', qq(
		SELECT count(*) > 2, sum(runs) > 2, sum(entries) > 10000, sum(pages) > sum(runs), sum(retired_runs) > 0,
			sum(retired_pages) > sum(retired_runs), sum(entries) <= max(s.spilled)
		FROM cache_batch_ranges('$index'), cache_batch_stat_indexes s WHERE s.indexrelname = '$index')),
		't|t|t|t|t|t|t', "$index: there are ranges, runs, and retired ones");
	is($ranges->safe_psql('postgres', qq(
		SELECT bool_and(n = w) FROM (
			SELECT p.type, count(*) AS n,
				(SELECT CASE p.type WHEN 'range' THEN count(*) WHEN 'range internal' THEN 1
					WHEN 'run_root' THEN sum(runs + retired_runs)
					ELSE sum(pages + retired_pages - runs - retired_runs) END FROM cache_batch_ranges('$index')) AS w
			FROM generate_series(0, pg_relation_size('$index') / 8192 - 1) b, cache_batch_page('$index', b) x,
				LATERAL (SELECT CASE x.type WHEN 'run_filter' THEN 'run' ELSE x.type END AS type) p
			WHERE x.type ~ '^r' GROUP BY 1) y)),
		't', "$index: each page of range buffers belongs to a range");
	is($ranges->safe_psql('postgres', qq(
		SELECT r.block, r.runs, r.entries FROM cache_batch_ranges('$index') r, cache_batch_page('$index', r.block) p,
			LATERAL (SELECT sum(d.live_items) FILTER (WHERE d.type = 'run') AS n
				FROM cache_batch_page_items('$index', r.block) i, cache_batch_page_items('$index', i.child) c,
					cache_batch_page('$index', c.child) d
				WHERE NOT i.dead AND i.child IS NOT NULL) z
		WHERE (p.live_items, p.dead_items) <> (r.runs, r.retired_runs) OR coalesce(z.n, 0) <> r.entries)),
		'', "$index: ranges and pages say the same");
}
sound($ranges, 'r', [ 'k', 's' ], 'range buffers');
$ranges->safe_psql('postgres', q(ROLLBACK PREPARED 'old'));

# what to do to which page; what the error of verify must say; does a scan meet it?
my %at = look('r_k');
note(join ', ', map { "$_: $at{$_}" } sort keys %at);
my %page = map { $_ => page($at{file}, $at{$_}) } grep { $at{$_} =~ /^\d+$/ && !/item/ } keys %at;
my $run = start($page{range}, $at{item});
my $other = start($page{range}, $at{item} + 1);
my @filters = unpack('V*', substr($page{range}, $run + 20, 12));
my $in_run = sub { my ($at, $bytes) = @_; return [ $run + $at, $bytes ] };
my $key = sub { my ($page, $n, $by) = @_; my $at = start($page, $n) + 8; return [ $at, pack('q', unpack('q', substr($page, $at, 8)) + $by) ] };

$at{filter} = $filters[0];
$at{meta} = 0;
my @damages = (
	[ 'no range root', 'meta', qr/list of tiers do not agree/, 0, [ 80, pack('V', 0) ] ],
	[ 'another range root', 'meta', qr/not a range root: it has level 0/, 1, [ 80, pack('V', $at{leaf}) ] ],
	[ 'no more range pages', 'range_root', qr/all zero/, 1, [ 0, "\0" x 8192 ] ],
	[ 'a downlink twice in the range root', 'range_root', qr/A downlink leads to it/, 0, [ start($page{range_root}, 2), substr($page{range_root}, start($page{range_root}, 1), 4) ] ],
	[ 'a downlink of the range root to a leaf', 'range_root', qr/not a range page/, 1, [ start($page{range_root}, 1), pack('v2', 0, $at{leaf}) ] ],
	[ 'a separator of the range root', 'range_root', qr/separator of its downlink/, 0, $key->($page{range_root}, 2, 1) ],
	[ 'the level of the range root', 'range_root', qr/has level 2, but the metapage has version 1/, 1, [ 8192 - 12, pack('v', 2) ] ],
	[ 'the low key', 'range', qr/low key differs/, 0, $key->($page{range}, 2, 1) ],
	[ 'the high key', 'range', qr/low key differs|not in its range/, 0, $key->($page{range}, 1, -1) ],
	[ 'a right link to itself', 'range', qr/low key differs|Two links/, 1, [ 8192 - 16, pack('V', $at{range}) ] ],
	[ 'a right link to a leaf', 'range', qr/not a range page/, 0, [ 8192 - 16, pack('V', $at{leaf}) ] ],
	[ 'a zero range page', 'range', qr/all zero/, 1, [ 0, "\0" x 8192 ] ],
	[ 'the level of a range page', 'range', $unsound, 1, [ 8192 - 12, pack('v', 1) ] ],
	[ 'a run that is not listed', 'range', qr/no range or tile lists|line pointer/, 0, [ 12, pack('v', unpack('v', substr($page{range}, 12, 2)) - 4) ] ],
	[ 'an item outside the page', 'range', $unsound, 1, [ $item->($at{item}), pack('V', 0x7ff0 | 1 << 15 | 32 << 17) ] ],
	[ 'the number of entries of a run', 'range', qr/has \d+ entries, not \d+/, 0, $in_run->(8, pack('V', 17)) ],
	[ 'a run of no entries', 'range', qr/has 0 entries/, 0, $in_run->(8, pack('V', 0)) ],
	[ 'the root of another run', 'range', qr/root has|Two links|filter/, 0, $in_run->(12, substr($page{range}, $other + 12, 4)) ],
	[ 'a root that is a data page', 'range', qr/not a page of level 1 of a run/, 1, $in_run->(12, pack('V', $at{data})) ],
	[ 'a root past the end', 'range', qr/links to block 99999/, 1, $in_run->(12, pack('V', 99_999)) ],
	[ 'no root', 'range', qr/links to block 4294967295/, 1, $in_run->(12, pack('V', 0xFFFFFFFF)) ],
	[ 'too many pages', 'range', qr/root has \d+ downlinks/, 0, $in_run->(16, pack('v', 29)) ],
	[ 'too many filters', 'range', $unsound, 1, $in_run->(18, pack('v', 4)) ],
	[ 'a filter that is a leaf', 'range', qr/not a page of level 2 of a run/, 0, $in_run->(20, pack('V', $at{leaf})) ],
	[ 'a run retired too early', 'range', qr/Row .* has no entry/, 0, $in_run->(0, pack('Q', 3)) ],
	[ 'a zero root', 'root', qr/all zero/, 1, [ 0, "\0" x 8192 ] ],
	[ 'a downlink to a leaf', 'root', qr/not a page of level 0 of a run/, 1, [ start($page{root}, 1), pack('v2', 0, $at{leaf}) ] ],
	[ 'a downlink twice', 'root', qr/Two links/, 0, [ start($page{root}, 2), substr($page{root}, start($page{root}, 1), 4) ] ],
	[ 'a separator too high', 'root', qr/not between the separators/, 0, $key->($page{root}, 2, 1 << 50) ],
	[ 'a downlink outside the page', 'root', $unsound, 1, [ $item->(2), pack('V', 0x7ff0 | 1 << 15 | 16 << 17) ] ],
	[ 'a zero root of a retired run', 'retired', qr/all zero/, 0, [ 0, "\0" x 8192 ] ],
	[ 'a zero data page', 'data', qr/all zero/, 1, [ 0, "\0" x 8192 ] ],
	[ 'a leaf in the place of a data page', 'data', qr/not a page of level 0 of a run/, 1, [ 0, $page{leaf} ] ],
	[ 'the next data page twice', 'data', qr/not between the separators|not in order/, 0, [ 0, $page{data2} ] ],
	[ 'a data page with a right link', 'data', $unsound, 0, [ 8192 - 16, pack('V', $at{leaf}) ] ],
	[ 'a damaged packed part', 'data', qr/The packed part at item 1 is damaged/, 1, [ start($page{data}, 1), "\xff" x 32 ] ],
	[ 'an empty filter', 'filter', qr/not in the filter/, 0, [ 64, "\0" x 8064 ] ],
	[ 'a filter that is none', 'filter', $unsound, 0, [ 8192 - 12, pack('v', 1) ] ]);

# Copies the file of an index that is whole, and puts it back.
sub keep
{
	my ($from, $to) = @_;
	open my $in, '<:raw', $from or die "$from: $!";
	open my $out, '>:raw', $to or die "$to: $!";
	local $/ = undef;
	print $out scalar <$in>;
	close $out;
	return;
}

my $scan = 'SET statement_timeout = 60000; SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off; ';
my $crashes = 0;
my $hangs = 0;

sub ask
{
	my ($sql) = @_;
	my ($rc, $out, $err) = $ranges->psql('postgres', "\\set VERBOSITY verbose\n$sql");

	$hangs++ if $err =~ /57014/;
	if ($rc == 2 || $err =~ /terminat|server closed|PANIC/)
	{
		$crashes++;
		diag("$sql: $err");
		wait_back($ranges);
	}
	return $err;
}

$ranges->stop;
keep($at{file}, "$at{file}.whole");
foreach my $case (@damages)
{
	my ($what, $where, $message, $scanned, @changes) = @$case;

	damage($at{file}, $at{$where}, @changes);
	$ranges->start;
	my $err = ask(q(SELECT cache_batch_verify('r_k', true)));
	like($err, qr/XX002: .*$message/s, "$what: verify says so");
	$err = ask(q(SELECT cache_batch_verify('r_k')));
	like($err, qr/^(psql:\S+ ERROR:  XX002|$)/, "$what: verify without lock");
	$err = ask("$scan SELECT count(*) FROM r WHERE k IS NOT NULL");
	like($err, $scanned ? qr/XX00[12]/ : qr/^(psql:\S+ ERROR:  XX00[12]|$)/, "$what: a scan" . ($scanned ? ' is refused' : ''));
	ask($_) foreach (
		"$scan SELECT count(*) FROM r WHERE k IN (SELECT hashint8extended(i, 0) FROM generate_series(2002000, 2002100) i)",
		q(SELECT * FROM cache_batch_ranges('r_k')),
		qq(SELECT count(*) FROM cache_batch_page_items('r_k', $at{$where})),
		q(SELECT cache_batch_flush('r_k')), 'SELECT txid_current()', 'VACUUM r');
	$ranges->stop;
	keep("$at{file}.whole", $at{file});
}
is($crashes, 0, 'no such damage ends the server');

# Bytes changed at random: an error or an answer, but no crash.  Entries that
# are texts are left alone: the server reads their lengths without looking.
my $seed = $ENV{CB_SEED} || 1;
srand($seed);
note("CB_SEED=$seed");
foreach my $index (qw(r_k r_s))
{
	my $column = substr($index, 2);
	my $found = 0;

	$ranges->start;
	%at = look($index);
	$ranges->stop;
	my $range = page($at{file}, $at{range});
	$at{filter} = unpack('V', substr($range, start($range, $at{item}) + 20, 4));
	keep($at{file}, "$at{file}.whole");
	foreach my $where (qw(range_root filter), $index eq 'r_k' ? 'data' : ())
	{
		foreach my $try (1 .. 3)
		{
			# line pointers and items, or anything
			my $upper = unpack('v', substr(page($at{file}, $at{$where}), 14, 2));

			damage($at{file}, $at{$where}, map {
				[ $try == 1 ? 24 + int(rand(16)) : $try == 2 ? $upper + int(rand(64)) : int(rand(8192)), chr(int(rand(256))) ] } 1 .. 6);
			$ranges->start;
			$found += (ask($_) ne '') foreach (
				"SELECT cache_batch_verify('$index')",
				"SELECT cache_batch_verify('$index', true)",
				"$scan SELECT count(*) FROM r WHERE $column IS NOT NULL",
				"$scan SELECT count(*) FROM (SELECT $column FROM r ORDER BY $column DESC) x",
				"SELECT * FROM cache_batch_ranges('$index')",
				"SELECT count(*) FROM cache_batch_page('$index', $at{$where})",
				"SELECT count(*) FROM cache_batch_page_items('$index', $at{$where})",
				"SELECT cache_batch_flush('$index')");
			$ranges->stop;
			keep("$at{file}.whole", $at{file});
		}
	}
	ok($found > 0, "$index: damage is found");
}
is($crashes, 0, 'no damage ends the server');
is($hangs, 0, 'nor lets a scan go round for ever');
$ranges->start;
sound($ranges, 'r', [ 'k', 's' ], 'whole again');

done_testing();
