# cache_batch_verify() finds what is wrong, and says where.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('verify', conf => "cache_batch.journal_limit = 1024\n");

sub page
{
	my ($file, $block) = @_;

	open my $fh, '<:raw', $file or die "$file: $!";
	seek $fh, $block * 8192, 0;
	read $fh, my $bytes, 8192;
	close $fh;
	return $bytes;
}

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
	[ 'an item outside the page', $leaf, sub { return [ $item->(7), pack('V', 0x7ff0 | 1 << 15 | 300 << 17) ] }, qr/line pointer of item 7/ ],
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
	[ 'a journal entry without TID', $journal, sub { return [ 40 + 4, "\0\0" ] }, qr/TID/ ],
	[ 'a journal entry too long', $journal, sub { return [ 40 + 6, pack('v', 0x1fff) ] }, qr/longer than/ ],
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
	like($err, qr/block \d+|not a cachebatch index/, "$what: the error names a block");
}

# an entry that is missing altogether
fresh();
$node->safe_psql('postgres', q(
	UPDATE pg_index SET indisready = false, indisvalid = false WHERE indexrelid = 't_s'::regclass;
	INSERT INTO t VALUES (1, 'not indexed');
	UPDATE pg_index SET indisready = true, indisvalid = true WHERE indexrelid = 't_s'::regclass));
is($node->psql('postgres', q(SELECT cache_batch_verify('t_s', false))), 0, 'a missing entry is no fault of the structure');
my ($rc, $out, $err) = $node->psql('postgres', q(SELECT cache_batch_verify('t_s', true)));
like($err, qr/row \(\d+,\d+\) of table "t" has no entry/, 'a missing entry is found');

# who may, and on what
($rc, $out, $err) = $node->psql('postgres', 'CREATE ROLE nobody; GRANT EXECUTE ON FUNCTION cache_batch_verify TO nobody; SET ROLE nobody; ' . q(SELECT cache_batch_verify('t_s')));
like($err, qr/must be owner/, 'only the owner may verify');
($rc, $out, $err) = $node->psql('postgres', 'CREATE INDEX t_b ON t (id); ' . q(SELECT cache_batch_verify('t_b')));
like($err, qr/not a cachebatch index/, 'a btree index is refused');

done_testing();
