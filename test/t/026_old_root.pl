# A split comes up to the root of the tree while another one splits that page:
# the root that a backend remembers may then be a page that it has locked, below
# the one that it is looking for, and must not be locked again.  A comparison that
# waits, of a reader, keeps both splits from the root until they stand in line.
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'usleep';

my $node = new_node('root', conf => "cache_batch.max_workers = 0\n");

# Three levels of pages with two to four items each, and a full root.
$node->safe_psql('postgres', q(
	CREATE FUNCTION cmp_waits(a text, b text) RETURNS int4 LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		IF current_setting('test.waits', true) = 'on' THEN
			PERFORM pg_advisory_lock_shared(1), pg_advisory_unlock_shared(1);
		END IF;
		RETURN bttextcmp(a, b);
	END $$;
	CREATE OPERATOR CLASS text_waits FOR TYPE text USING cachebatch AS
		OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
		FUNCTION 1 cmp_waits(text, text);
	CREATE TABLE old (k text COLLATE "C");
	ALTER TABLE old ALTER k SET STORAGE EXTERNAL;
	CREATE FUNCTION wide(n int) RETURNS text LANGUAGE sql AS $$ SELECT lpad(n::text, 4, '0') || repeat('x', 2590) $$;
	CREATE INDEX old_k ON old USING cachebatch (k text_waits) WITH (buffered = off, pack_leaves = off);
	INSERT INTO old SELECT wide(i * 100) FROM generate_series(1, 20) i));

my $root = q(SELECT m.root_level || ' ' || p.live_items FROM cache_batch_metapage('old_k') m, cache_batch_page('old_k', m.root) p);
is($node->safe_psql('postgres', $root), '2 4', 'a full root');

# Starts a statement, and waits until so many stand before such locks.
sub start
{
	my ($sql, $event, $n) = @_;
	my $run = IPC::Run::start([ 'psql', '-XAtq', '-c', $sql, $node->connstr('postgres') ],
		'<', \undef, '>', \my $out, '2>', \my $err);

	$node->poll_query_until('postgres', "SELECT count(*) = $n FROM pg_stat_activity WHERE wait_event = '$event'")
	  or die "$sql does not wait";
	return $run;
}

my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1);');
my @runs = start(q(SET test.waits = on; SET enable_seqscan = off; SELECT count(*) FROM old WHERE k = 'a'), 'advisory', 1);
push @runs, start('INSERT INTO old SELECT wide(i) FROM generate_series(2100, 2900, 100) i', 'BufferContent', 1);
push @runs, start('INSERT INTO old SELECT wide(i) FROM generate_series(110, 190, 10) i', 'BufferContent', 2);
$holder->query_safe('SELECT pg_advisory_unlock(1);');
$holder->quit;

# whoever waits for himself does so for ever, and does not listen
foreach my $try (1 .. 150)
{
	$_->pump_nb foreach grep { $_->pumpable } @runs;
	last unless grep { $_->pumpable } @runs;
	usleep(100_000);
}
my $hanging = grep { $_->pumpable } @runs;
is($hanging, 0, 'nobody waits for ever');
if ($hanging)
{
	$node->stop('immediate');
	$_->kill_kill foreach @runs;
	done_testing();
	exit;
}
ok($_->finish, 'and ends without an error') foreach @runs;
is($node->safe_psql('postgres', 'SELECT count(*) FROM old'), '38', 'all rows are there');
like($node->safe_psql('postgres', $root), qr/^3 /, 'below a new root');
sound($node, 'old', ['k'], 'whole');
done_testing();
