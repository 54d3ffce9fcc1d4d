# Helpers of the TAP tests: a server with cache_batch, and the questions that
# every test asks after it has done its worst.
package CacheBatch;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use PostgreSQL::Version;
use Test::More;
use Time::HiRes 'usleep';

our @EXPORT = qw(new_node new_standby psql_as server_version test_points wait_back sound indexes_of
  run_killed test_points_built crash_restart damage page insert_ids wait_until);

sub server_version
{
	return PostgreSQL::Version->new(`pg_config --version`);
}

# A node with the library preloaded; conf: more settings.
sub new_node
{
	my ($name, %args) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);

	# of version 18 on a damaged page would not get past its checksum
	$node->init(
		allows_streaming => $args{minimal} ? 0 : 1,
		extra => server_version() >= 18 ? ['--no-data-checksums'] : []);
	$node->append_conf('postgresql.conf', <<EOC);
shared_preload_libraries = 'cache_batch'
wal_consistency_checking = 'all, cache_batch'
restart_after_crash = on
max_prepared_transactions = 10
autovacuum = off
cache_batch.journal_limit = 64
EOC
	# a standby may begin to stream late: a checkpoint must not take its WAL away
	$node->append_conf('postgresql.conf', 'wal_keep_size = 1GB') unless $args{minimal};
	$node->append_conf('postgresql.conf', $args{conf}) if $args{conf};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION cache_batch')
	  unless $args{no_extension};
	return $node;
}

# A standby that streams from a node, started; conf: more settings.
sub new_standby
{
	my ($primary, $name, %args) = @_;
	my $standby = PostgreSQL::Test::Cluster->new($name);

	$primary->backup($name);
	$standby->init_from_backup($primary, $name, has_streaming => 1);
	$standby->append_conf('postgresql.conf', $args{conf}) if $args{conf};
	$standby->start;
	return $standby;
}

# What SQL answers with other names in it: T => 'events'.
sub psql_as
{
	my ($node, $sql, %names) = @_;
	my $words = join '|', keys %names;

	return $node->safe_psql('postgres', $sql =~ s/\b($words)\b/$names{$1}/gr);
}

# Changes bytes of a block of a file of a server that is down: [offset, bytes]
# each.
sub damage
{
	my ($file, $block, @changes) = @_;

	open my $fh, '+<:raw', $file or die "$file: $!";
	foreach my $change (@changes)
	{
		seek $fh, $block * 8192 + $change->[0], 0;
		print $fh $change->[1];
	}
	close $fh;
	return;
}

# The bytes of a block of a file.
sub page
{
	my ($file, $block) = @_;

	open my $fh, '<:raw', $file or die "$file: $!";
	seek $fh, $block * 8192, 0;
	read $fh, my $bytes, 8192;
	close $fh;
	return $bytes;
}

# The names of all test points in the sources, as keys.
sub test_points
{
	my $srcdir = $ENV{CB_SRCDIR} || '..';
	my $sources = join '', map { slurp_file($_) } glob("$srcdir/src/*/*.c");
	my %points;

	$points{$1} = 1 while $sources =~ /CB_TEST_POINT\("([a-z0-9-]+)"\)/g;
	return %points;
}

# Waits until the server has recovered from the death of a backend.
my %log_read;

sub wait_back
{
	my ($node) = @_;
	my $latest = qr/.*all server processes terminated; reinitializing/s;
	my $noticed;

	# first the postmaster has to notice
	foreach my $try (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my $from = $log_read{ $node->name } // 0;
		my $log = slurp_file($node->logfile, $from);

		if ($log =~ $latest)
		{
			$log_read{ $node->name } = $from + $+[0];
			$noticed = 1;
			last;
		}
		usleep(10_000);
	}
	die 'no backend has died' unless $noticed;

	# no input for psql: one that cannot connect would break the pipe
	foreach my $try (1 .. 100 * $PostgreSQL::Test::Utils::timeout_default)
	{
		my ($out, $err) = ('', '');

		return
		  if IPC::Run::run(
			[ 'psql', '-XAtc', 'SELECT 1', '-d', $node->connstr('postgres') ],
			'<', \undef, '>', \$out, '2>', \$err);
		usleep(10_000);
	}
	die 'server did not come back';
}

sub crash_restart
{
	my ($node) = @_;

	$node->stop('immediate');
	$node->start;
	return;
}

# The valid cachebatch indexes of a table.
sub indexes_of
{
	my ($node, $table, $db) = @_;

	return split /\n/, $node->safe_psql($db || 'postgres', qq(
		SELECT i.indexrelid::regclass FROM pg_index i
		JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
		WHERE i.indrelid = '$table'::regclass AND a.amname = 'cachebatch'
		AND i.indisvalid ORDER BY 1));
}

# Asks for a digest of a column by a sequential scan, for one through an index,
# and for the latter's plan.
sub ask_answers
{
	my ($table, $column) = @_;
	my $query = qq(SELECT 'answer', count(*), md5(string_agg($column\::text, ','))
		FROM (SELECT $column FROM $table WHERE $column IS NOT NULL
			  ORDER BY $column) s;);
	my $off = join ' ', map { "SET enable_$_ = off;" }
	  qw(indexscan indexonlyscan bitmapscan);
	my $on = join ' ', map { "SET enable_$_ = off;" }
	  qw(seqscan bitmapscan sort);

	return "\\echo column\n$off $query RESET ALL; $on $query EXPLAIN $query RESET ALL;\n";
}

# Are both answers there, the same, and by an index as the plan says?
sub same_answers
{
	my ($reply, $column) = @_;
	my ($by_heap, $by_index, @more) = $reply =~ /^(answer\|.*)$/mg;
	my $index_used = $reply =~ / using /;

	diag("no index used for $column:\n$reply") unless $index_used;
	return defined $by_index && !@more && $by_heap eq $by_index && $index_used;
}

# The indexes of a table pass verification, and answer as the table does.
sub sound
{
	my ($node, $table, $columns, $what, $db) = @_;
	my @verify = map { "SELECT cache_batch_verify('$_', true);\n" } indexes_of($node, $table, $db);
	my ($rc, $out, $err) = $node->psql($db || 'postgres',
		join('', @verify, map { ask_answers($table, $_) } @$columns), on_error_stop => 0);
	my (undef, @replies) = split /^column$/m, $out;
	my @faults;

	push @faults, $err if $rc != 0 || $err =~ /ERROR:/;
	foreach my $column (@$columns)
	{
		push @faults, "answers by $column differ"
		  unless same_answers(shift @replies // '', $column);
	}
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(join("\n", @faults), '', $what);
	return;
}

# Test points exist in test builds only.
sub test_points_built
{
	my ($node) = @_;
	my ($rc) = $node->psql('postgres',
		q(DO $$ BEGIN PERFORM set_config('cache_batch.test_points', '', true);
		  IF NOT EXISTS (SELECT 1 FROM pg_settings WHERE name = 'cache_batch.test_points')
		  THEN RAISE 'no'; END IF; END $$), on_error_stop => 1);
	return $rc == 0;
}

# Runs a statement in a session that is to be killed at a test point; returns
# whether it was.
sub run_killed
{
	my ($node, $point, $sql) = @_;
	my ($rc, $out, $err) = $node->psql('postgres',
		"SET cache_batch.test_points = '$point';\n$sql;",
		on_error_stop => 1);
	my $killed = $rc == 2 && $err =~ /connection|server closed/;

	wait_back($node) if $killed;
	diag("at $point: $err") if !$killed && $rc != 0;
	return $killed;
}

# n rows of id and k, with ids from the first one on, whose entries wait: 100 in a
# statement, so that they are no dense batch.
sub insert_ids
{
	my ($node, $db, $table, $first, $n) = @_;

	$node->safe_psql($db, join '', map {
		sprintf('INSERT INTO %s SELECT i, hashint8extended(i, 1) FROM generate_series(%d, %d) i;',
			$table, $first + 100 * $_, $first + 100 * $_ + 99)
	} 0 .. $n / 100 - 1);
	return;
}

# Until the condition holds, for three minutes at most; whether it does.
sub wait_until
{
	my ($condition) = @_;

	for (1 .. 1800)
	{
		return 1 if $condition->();
		usleep(100_000);
	}
	return 0;
}

1;
