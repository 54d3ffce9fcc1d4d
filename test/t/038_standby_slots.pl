# Entries that are dropped from an index of a table that logical decoding reads
# end the standby's slots that may need them, and no others.
use strict;
use warnings;

use CacheBatch;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

if (server_version() < 16)
{
	plan skip_all => 'a standby has logical slots from version 16 on';
}
my $primary = new_node('primary', conf => <<EOC);
wal_level = logical
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
EOC

# A slot of the standby, which needs a record of the primary to begin.
sub create_slot
{
	my ($slot) = @_;
	my $creator = IPC::Run::start(
		[ 'psql', '-XAtq', '-d', $standby->connstr('postgres'), '-c',
			"SELECT pg_create_logical_replication_slot('$slot', 'pgoutput')" ],
		'>', \my $out, '2>', \my $err);

	$primary->log_standby_snapshot($standby, $slot);
	$creator->finish;
	return;
}

# Has the slot gone, with what its decoding needs?
sub is_gone
{
	my ($slot) = @_;

	$primary->wait_for_replay_catchup($standby);
	return $standby->safe_psql('postgres',
		"SELECT conflicting FROM pg_replication_slots WHERE slot_name = '$slot'");
}

# Drops entries of dead rows from the index of a new table.  Its rows are few and
# narrow, so nothing prunes the table, which would be a conflict of its own.
sub drop_entries
{
	my ($table, $options) = @_;
	my $dropped = "SELECT dropped FROM cache_batch_stat_indexes WHERE indexrelname = '${table}_id'";

	$primary->safe_psql('postgres', qq(
		CREATE TABLE $table (id int, n int) $options;
		INSERT INTO $table SELECT i, i FROM generate_series(1, 20) i;
		CREATE INDEX ${table}_id ON $table USING cachebatch (id);
		CREATE INDEX ${table}_n ON $table USING cachebatch (n)));
	$primary->wait_for_replay_catchup($standby);
	create_slot("${table}_slot");
	$primary->safe_psql('postgres', "UPDATE $table SET n = n + 100");
	$primary->safe_psql('postgres',
		"SET cache_batch.test_delta = 0; SELECT cache_batch_flush('${table}_id')");
	is($primary->safe_psql('postgres', $dropped), 20, "$table: entries are dropped");
	return is_gone("${table}_slot");
}

# Uses pages of the index again that left it just before the slot began: there was no
# transaction in between, so decoding may have links to them, and sees what has become
# of them.
sub reuse_pages
{
	my ($table) = @_;
	my $slot = "${table}_slot";
	my $size = "SELECT pg_relation_size('${table}_id')";
	my $before;

	$primary->safe_psql('postgres', qq(
		CREATE TABLE $table (id int) WITH (user_catalog_table = true);
		INSERT INTO $table SELECT i FROM generate_series(1, 50000) i;
		CREATE INDEX ${table}_id ON $table USING cachebatch (id)));
	$primary->safe_psql('postgres', $_) for ("DELETE FROM $table", "VACUUM (TRUNCATE off) $table");
	$before = $primary->safe_psql('postgres', $size);
	$primary->wait_for_replay_catchup($standby);
	create_slot($slot);
	is(is_gone($slot), 'f', "$table: VACUUM was before the slot");
	$primary->safe_psql('postgres', $_)
		for ('SELECT pg_current_xact_id()', "VACUUM $table",
		"INSERT INTO $table SELECT i FROM generate_series(1, 40000) i",
		"SELECT cache_batch_flush('${table}_id')");
	is($primary->safe_psql('postgres', $size), $before, "$table: pages are used again");
	return is_gone($slot);
}

is(drop_entries('plain', ''), 'f', 'a plain table: the slot stays');
is(drop_entries('decoded', 'WITH (user_catalog_table = true)'), 't',
	'one that decoding reads: the slot goes');
is(reuse_pages('decoded_pages'), 'f', 'its pages are used again: the slot stays');

done_testing();
