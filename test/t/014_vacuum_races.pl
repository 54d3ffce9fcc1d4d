# VACUUM stands at a leaf that an index-only scan has pinned.  Meanwhile
# another leaf is split and its dead entries go to a block that VACUUM has
# passed (A11, cycle ids), or it gives them to its right neighbour there, or it
# loses what it has left; the scan's session inserts and flushes (B5).
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

# nobody has to wait for a lock here
my $node = new_node('races', conf => "lock_timeout = '10s'\ncache_batch.pool_size = 32MB\n");
my $forced = 'SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off;';

# Starts VACUUM and waits until it stands at the pin.  It ends at once if it may
# not touch the dead rows, because of a snapshot or a pin of who knows whom;
# what it said tells, and it is asked again.
sub start_vacuum
{
	my ($table) = @_;
	my ($out, $said, $activity);

	foreach my $try (1 .. 5)
	{
		my $vacuum = IPC::Run::start([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-c',
			"VACUUM (VERBOSE, INDEX_CLEANUP ON, TRUNCATE OFF) $table", $node->connstr('postgres') ],
			'>', \$out, '2>', \$said);
		my $until = time + $PostgreSQL::Test::Utils::timeout_default;

		while ($vacuum->pumpable && time < $until)
		{
			$activity = $node->safe_psql('postgres', q(SELECT pid, wait_event, backend_xmin, query
				FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type <> 'checkpointer'));
			return $vacuum if $activity =~ /\|BufferPin\|[^|]*\|VACUUM /;
			usleep(20_000);
			$vacuum->pump_nb;
		}
		diag "VACUUM does not wait; it says\n$said\nand there are\n$activity";
		last if $vacuum->pumpable || !$vacuum->finish;
	}
	die 'VACUUM does not wait';
}

# Some journal pages that a flush frees, and leaves: block 1, and others behind
# the journal.  They are full, so that what two share is a third.
sub make_table
{
	my ($table) = @_;

	$node->safe_psql('postgres', join "\n",
		"CREATE TABLE $table (id int, k text);",
		"CREATE INDEX ${table}_k ON $table USING cachebatch (k) WITH (pack_leaves = off);",
		(map { "INSERT INTO $table SELECT i, lpad(i::text, 200, '0') FROM generate_series($_) i;" }
			'1, 25', '26, 50', '51, 75', '76, 100', '101, 116'),
		"SELECT cache_batch_flush('${table}_k');");
	return;
}

make_table('vs');
$node->safe_psql('postgres', 'DELETE FROM vs WHERE id BETWEEN 68 AND 99');

my $leaves = q(SELECT string_agg(blkno || '>' || (p).next, ' ' ORDER BY blkno)
	FROM (SELECT blkno, cache_batch_page('vs_k', blkno) AS p
		FROM generate_series(1, pg_relation_size('vs_k') / 8192 - 1) AS blkno) s
	WHERE (p).type = 'leaf' AND (p).next IS NOT NULL);
my ($second) = $node->safe_psql('postgres', $leaves) =~ /^1>(\d+) \1>(\d+) \2>(\d+)$/ ? ($1) : (0);
cmp_ok($second, '>', 3, 'leaves before the split');

my $reader = $node->background_psql('postgres');
$reader->query_safe("$forced BEGIN; DECLARE c CURSOR FOR SELECT k FROM vs WHERE k >= lpad('40', 200, '0') ORDER BY k; FETCH 1 FROM c;");
my $vacuum = start_vacuum('vs');

$node->safe_psql('postgres', q(
	INSERT INTO vs SELECT 1000 + i, lpad('68', 200, '0') || i FROM generate_series(1, 60) i;
	SELECT cache_batch_flush('vs_k')));
like($node->safe_psql('postgres', $leaves), qr/>[23]\b/, 'the split has used a block that VACUUM has passed');

# the session that VACUUM waits for needs nothing that VACUUM holds
$reader->query_safe("INSERT INTO vs VALUES (2000, 'own'); SELECT cache_batch_flush('vs_k');");
pass('insertion and flush while VACUUM waits');
$reader->query_safe('COMMIT');
$reader->quit;
ok($vacuum->finish, 'VACUUM ends');

# other rows get the TIDs
$node->safe_psql('postgres', q(INSERT INTO vs SELECT i, 'new' FROM generate_series(3001, 3040) i));
is($node->safe_psql('postgres', qq($forced SELECT count(*) FROM vs
	WHERE k >= lpad('68', 200, '0') AND k < lpad('99', 200, '0') AND id > 3000)),
	'0', 'no row is found by the key of a dead one');
sound($node, 'vs', ['k'], 'whole');

# Again; now the leaf after the one with the pin has a neighbour that VACUUM
# has passed, and gives dead entries to it.
make_table('vt');
$node->safe_psql('postgres', q(
	INSERT INTO vt SELECT 1000 + i, lpad('68', 200, '0') || i FROM generate_series(1, 24) i;
	SELECT cache_batch_flush('vt_k')));
$leaves =~ s/vs_k/vt_k/g;
my ($giving, $passed) = $node->safe_psql('postgres', $leaves) =~ /\b(\d+)>([23])\b/ ? ($1, $2) : (0, 0);
cmp_ok($giving, '>', $passed, 'a leaf whose right neighbour stands before it');
$node->safe_psql('postgres', qq(
	CREATE TABLE dead AS SELECT htid, k FROM cache_batch_page_items('vt_k', $giving) JOIN vt ON vt.ctid = htid
		WHERE itemoffset > 1;
	DELETE FROM vt WHERE ctid IN (SELECT htid FROM dead)));

$reader = $node->background_psql('postgres');
$reader->query_safe("$forced BEGIN; DECLARE c CURSOR FOR SELECT k FROM vt WHERE k >= lpad('40', 200, '0') ORDER BY k; FETCH 1 FROM c;");
$vacuum = start_vacuum('vt');
$node->safe_psql('postgres', qq(
	INSERT INTO vt SELECT 4000 + i, (SELECT min(k) FROM dead) || i FROM generate_series(1, 24) i;
	SELECT cache_batch_flush('vt_k')));
cmp_ok($node->safe_psql('postgres',
		"SELECT count(*) FROM dead JOIN cache_batch_page_items('vt_k', $passed) i ON i.htid = dead.htid"),
	'>', 0, 'dead entries have gone to a block that VACUUM has passed');

# who drops some of them, and others, leaves the mark that leads VACUUM back
my $mark = "SELECT cycleid FROM cache_batch_page('vt_k', $passed)";
my $cycle = $node->safe_psql('postgres', $mark);
my $dropped = q(SELECT dropped FROM cache_batch_stat_indexes WHERE indexrelname = 'vt_k');
my $before = $node->safe_psql('postgres', $dropped);
# one more than there is room for
my $n = 1 + $node->safe_psql('postgres', "SELECT free_space / 220 FROM cache_batch_page('vt_k', $passed)");
$node->safe_psql('postgres', qq(
	CREATE TABLE part AS SELECT min(k) AS k FROM dead JOIN cache_batch_page_items('vt_k', $passed) i ON i.htid = dead.htid;
	$forced SELECT count(id) FROM vt WHERE k = (SELECT k FROM part);
	INSERT INTO vt SELECT 5000 + i, (SELECT k FROM part) || i FROM generate_series(1, $n) i;
	SELECT cache_batch_flush('vt_k')));
cmp_ok($node->safe_psql('postgres', $dropped), '>', $before, 'dead entries are dropped there');
cmp_ok($cycle, '>', 0, 'marked for VACUUM');
is($node->safe_psql('postgres', $mark), $cycle, 'and still marked');
$reader->query_safe('COMMIT');
$reader->quit;
ok($vacuum->finish, 'VACUUM ends');
is($node->safe_psql('postgres', q(SELECT count(*) FROM dead
		JOIN (SELECT htid FROM generate_series(1, pg_relation_size('vt_k') / 8192 - 1) b,
			LATERAL cache_batch_page('vt_k', b) p, LATERAL cache_batch_page_items('vt_k', b) i
			WHERE p.type = 'leaf') i ON i.htid = dead.htid)),
	'0', 'VACUUM has removed them there');
sound($node, 'vt', ['k'], 'whole, again');

# Again, with two entries a leaf and long separators.  The leaf that is split loses
# the rest of its entries to a batch, and has no sibling but one that VACUUM
# empties first, and takes out of the tree.  It must not go with that one, as it is
# what leads VACUUM to the dead entry.  The reader's rows have a page of their own.
$node->safe_psql('postgres', join "\n",
	q(CREATE TABLE vu (id int, k text, pad text);
	ALTER TABLE vu ALTER k SET STORAGE EXTERNAL;
	CREATE INDEX vu_k ON vu USING cachebatch (k) WITH (pack_leaves = off);
	CREATE FUNCTION vu_k(id int) RETURNS text LANGUAGE sql AS $$ SELECT lpad(id::text, 4, '0') || repeat('x', 2590) $$;),
	(map { "INSERT INTO vu SELECT i, vu_k(i), CASE WHEN i < 150 THEN repeat('y', 600) END FROM generate_series($_, 10) i;" }
		'10, 80', '90, 160', '170, 240'),
	q(SELECT cache_batch_flush('vu_k');
	CREATE TABLE gone AS SELECT ctid AS htid, id FROM vu WHERE id BETWEEN 150 AND 180;
	DELETE FROM vu WHERE id BETWEEN 150 AND 180;));

# of a leaf that has the TID of one of the rows that have gone
sub leaf_of
{
	my ($id) = @_;

	return $node->safe_psql('postgres', qq(SELECT b FROM generate_series(1, pg_relation_size('vu_k') / 8192 - 1) b,
		LATERAL cache_batch_page('vu_k', b) p, LATERAL cache_batch_page_items('vu_k', b) i
		WHERE p.type = 'leaf' AND i.htid = (SELECT htid FROM gone WHERE id = $id)));
}

# a row that is dead at once, with its entry in the tree if that is not dropped
sub add_dead
{
	my ($id) = @_;

	$node->safe_psql('postgres', "BEGIN; INSERT INTO vu VALUES ($id, vu_k($id)); ROLLBACK");
	$node->safe_psql('postgres', q(SELECT cache_batch_flush('vu_k')));
	return;
}

my ($first, $split) = (leaf_of(150), leaf_of(170));
cmp_ok($first, '<', $split, 'VACUUM comes to the sibling first');
$reader = $node->background_psql('postgres');
$reader->query_safe("$forced BEGIN; DECLARE c CURSOR FOR SELECT k FROM vu WHERE k >= '0070' ORDER BY k; FETCH 1 FROM c;");
$vacuum = start_vacuum('vu');
add_dead(175);
is(leaf_of(170), $split, 'the leaf has kept a dead entry');
like(leaf_of(180), qr/^[2-8]$/, 'and given one to a block that VACUUM has passed');
$node->safe_psql('postgres', "$forced SELECT count(id) FROM vu WHERE k BETWEEN '0170' AND '0179'");
add_dead(172);
is($node->safe_psql('postgres', "SELECT flags FROM cache_batch_page('vu_k', $split)"), '{leaf,empty}', 'a batch has dropped what the leaf had');
$reader->query_safe('COMMIT');
$reader->quit;
ok($vacuum->finish, 'VACUUM ends');
is(leaf_of(180), '', 'VACUUM has come to the dead entry');
is($node->safe_psql('postgres', "SELECT type FROM cache_batch_page('vu_k', $_)"), 'deleted', "and has deleted leaf $_") foreach ($first, $split);
$node->safe_psql('postgres', q(INSERT INTO vu SELECT i, 'new' FROM generate_series(3001, 3040) i));
is($node->safe_psql('postgres', "$forced SELECT count(*) FROM vu WHERE k BETWEEN '0150' AND '0189' AND id > 3000"),
	'0', 'no row is found by the key of a dead one');
sound($node, 'vu', ['k'], 'whole, once more');

done_testing();
