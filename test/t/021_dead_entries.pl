# Entries of dead rows that flushes drop: a standby ends the queries that could
# see them, in tree or journal, or holds them back by its feedback (U6); what a
# VACUUM has to come back to stays marked (A11).
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = new_node('primary', conf => <<EOC);
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
EOC
if (!test_points_built($primary))
{
	plan skip_all => 'needs a build with TESTPOINTS=1';
}
my $standby = new_standby($primary, 'standby', conf => <<EOC);
max_standby_streaming_delay = 0
hot_standby_feedback = off
wal_receiver_status_interval = 1s
EOC

# Few narrow rows: the table's page has room, so nothing prunes it, which would
# be a conflict of its own.
sub make_table
{
	my ($table) = @_;

	$primary->safe_psql('postgres', qq(
		CREATE TABLE $table (id int, n int);
		INSERT INTO $table SELECT i, i FROM generate_series(1, 20) i;
		CREATE INDEX ${table}_id ON $table USING cachebatch (id);
		CREATE INDEX ${table}_n ON $table USING cachebatch (n)));
	return;
}

sub update
{
	my ($table) = @_;

	$primary->safe_psql('postgres', "UPDATE $table SET n = n + 100");
	return;
}

# Flushes with a delta that is always full; returns how many entries were dropped.
sub flush
{
	my ($table) = @_;
	my $dropped = "SELECT dropped FROM cache_batch_stat_indexes WHERE indexrelname = '${table}_id'";
	my $before = $primary->safe_psql('postgres', $dropped);

	$primary->safe_psql('postgres',
		"SET cache_batch.test_delta = 0; SELECT cache_batch_flush('${table}_id')");
	return $primary->safe_psql('postgres', $dropped) - $before;
}

my $by_index = 'SET enable_seqscan = off; SET enable_bitmapscan = off;';

# A session of the standby with a snapshot.
sub open_reader
{
	my ($table) = @_;
	my $reader = $standby->background_psql('postgres', on_error_stop => 0);

	$primary->wait_for_catchup($standby);
	$reader->query_safe("$by_index BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM $table;");
	return $reader;
}

# Its answer, or that the standby has ended it.
sub ask_reader
{
	my ($reader, $table) = @_;
	my $answer = eval { $reader->query("SELECT count(*) || ' ' || sum(n) FROM $table WHERE id > 0;") };
	my $error = $reader->{stderr} // '';

	$reader->{stderr} = '';
	return $error =~ /conflict with recovery/ ? 'conflict' : ($answer // '') . $error;
}

# the versions are in the tree
make_table('t1');
my $reader = open_reader('t1');
update('t1');
is(flush('t1'), 20, 'entries of the tree are dropped');
$primary->wait_for_catchup($standby);
is(ask_reader($reader, 't1'), 'conflict', 'the standby ends the query that could see them');
eval { $reader->quit };
sound($standby, 't1', [qw(id n)], 'standby');

# they have never been there
make_table('t2');
update('t2');
is(flush('t2'), 20, 'entries of the tree are dropped');
update('t2');
$reader = open_reader('t2');
is(ask_reader($reader, 't2'), '20 4210', 'a query that sees entries of the journal only');
update('t2');
is(flush('t2'), 40, 'entries of tree and bucket are dropped');
$primary->wait_for_catchup($standby);
is(ask_reader($reader, 't2'), 'conflict', 'the standby ends the query');
eval { $reader->quit };
sound($standby, 't2', [qw(id n)], 'standby');

# an error while dropping does not keep the entries out of the tree
make_table('t4');
update('t4');
my (undef, undef, $error) = $primary->psql('postgres', q(
	SET cache_batch.test_delta = 0;
	SET cache_batch.test_points = 'flush-sealed=error';
	SELECT cache_batch_flush('t4_id')));
like($error, qr/error at test point/, 'an error while dead entries may be dropped');
is(flush('t4'), 0, 'the next flush asks for none, and works');
sound($primary, 't4', [qw(id n)], 'whole after it');

# feedback holds them back
make_table('t3');
$standby->append_conf('postgresql.conf', 'hot_standby_feedback = on');
$standby->reload;
$reader = open_reader('t3');
$primary->poll_query_until('postgres',
	'SELECT count(*) = 1 FROM pg_stat_replication WHERE backend_xmin IS NOT NULL')
  or die 'no feedback';
update('t3');
update('t3');
is(flush('t3'), 0, 'nothing that the standby needs is dropped');
$primary->wait_for_catchup($standby);
is(ask_reader($reader, 't3'), '20 210', 'its query goes on');
$reader->query_safe('COMMIT');
$reader->quit;

# redo from the records: the primary's own, and the standby's, on promotion
crash_restart($primary);
sound($primary, $_, [qw(id n)], "$_ after a crash") foreach (qw(t1 t2 t3));
$primary->wait_for_catchup($standby);
$primary->stop('immediate');
$standby->promote;
sound($standby, $_, [qw(id n)], "$_ after promotion") foreach (qw(t1 t2 t3));
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|inconsistent page/, 'nothing bad in the log')
  foreach ($primary, $standby);

# DROP INDEX CONCURRENTLY was interrupted: VACUUM passes over the index, whose
# entries lead to line pointers that are unused then
$primary = new_node('dropped', conf => <<EOC);
cache_batch.max_delay = 1h
cache_batch.test_delta = 0
EOC
make_table('t5');
update('t5');
$primary->safe_psql('postgres', q(
	UPDATE pg_index SET indisready = false, indislive = false WHERE indexrelid = 't5_id'::regclass;
	VACUUM t5;
	ALTER SYSTEM SET cache_batch.max_delay = '1s';
	SELECT pg_reload_conf()));
ok($primary->poll_query_until('postgres',
	q(SELECT flushed > 0 FROM cache_batch_stat_indexes WHERE indexrelname = 't5_id')), 'a worker flushes it');
unlike(slurp_file($primary->logfile), qr/could not flush/, 'and does not ask for its rows');

done_testing();
