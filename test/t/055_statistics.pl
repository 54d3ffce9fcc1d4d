# C15: counters survive a clean restart, and begin at zero after anything else.
# What is dropped has none after a while; a reset is of one index, or of all.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = <<EOC;
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
max_locks_per_transaction = 512
wal_consistency_checking = ''
EOC
my $node = new_node('statistics', conf => $conf);
my $file = $node->data_dir . '/pg_stat/cache_batch.stat';

sub sql
{
	my ($query, $db) = @_;
	return $node->safe_psql($db // 'postgres', $query);
}

# What is counted of an index.
sub counters
{
	my ($index, $db, $on) = @_;
	return ($on // $node)->safe_psql($db // 'postgres', "SELECT cache_batch_stat_get('$index'::regclass)");
}

sub is_zero
{
	my ($index, $what) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like(counters($index), qr/^\(0(,0)*\)$/, $what);
	return;
}

# The saved counters, staged of each index, while the server is down.
sub saved
{
	my $bytes = slurp_file($file);
	my ($magic, $format, $ncounters, $n) = unpack 'L4', $bytes;
	my %staged;

	foreach my $entry (unpack '(a' . (8 + 8 * $ncounters) . ')*', substr $bytes, 40)
	{
		my ($db, $index, $staged) = unpack 'LLQ', $entry;
		$staged{"$db/$index"} = $staged;
	}
	is(scalar keys %staged, $n, 'as many entries as the header says');
	return \%staged;
}

# "database/index" of an index.
sub name_of
{
	my ($index, $db) = @_;
	return sql("SELECT oid || '/' || '$index'::regclass::oid FROM pg_database WHERE datname = current_database()", $db);
}

my $count = q(
	CREATE TABLE t (k int, l int);
	CREATE INDEX t_k ON t USING cachebatch (k);
	CREATE INDEX t_l ON t USING cachebatch (l);
	INSERT INTO t SELECT i, i % 7 FROM generate_series(1, 100) i;
	SELECT cache_batch_flush('t_k');
	INSERT INTO t VALUES (1, 1), (2, 2));

sql($count);
sql('CREATE DATABASE other');
sql("CREATE EXTENSION cache_batch; $count", 'other');

# ---------- a clean restart ----------

my %before = map { $_ => counters('t_k', $_) } ('postgres', 'other');
my $t_l = counters('t_l');
like($before{postgres}, qr/^\(102,/, 'entries are counted');
ok(!-e $file, 'no file while the server runs');
foreach my $mode ('fast', 'smart')
{
	my $name = name_of('t_k');

	$node->stop($mode);
	is(saved()->{$name}, 102, "$mode shutdown: counters are saved");
	$node->start;
	is(counters('t_k', $_), $before{$_}, "$mode shutdown: counters are back, in $_") foreach sort keys %before;
	is(counters('t_l'), $t_l, '... of the other index, too');
	ok(!-e $file, '... and the file is gone');
}
sql('INSERT INTO t VALUES (3, 3)');
like(counters('t_k'), qr/^\(103,/, 'counting goes on from there');

# ---------- a crash ----------

$node->stop('immediate');
ok(!-e $file, 'an immediate shutdown saves nothing');
$node->start;
is_zero('t_k', '... and counters begin at zero');

sub count_again
{
	sql('INSERT INTO t SELECT i, i FROM generate_series(1, 10) i');
	return counters('t_k');
}

count_again();
run_killed($node, 'stage-insert=kill', 'INSERT INTO t VALUES (4, 4)') if test_points_built($node);
$node->stop('immediate') unless test_points_built($node);
$node->start unless test_points_built($node);
is_zero('t_k', 'so they do after a backend was killed');

# ---------- files that are not to be trusted ----------

sub put
{
	my ($bytes) = @_;

	open my $fh, '>:raw', $file or die "$file: $!";
	print $fh $bytes;
	close $fh;
	return;
}

# Starts with that in place of what was saved, or with nothing if that is undefined.
sub ignores
{
	my ($what, $bytes, $why) = @_;
	my $from = -s $node->logfile;

	put($bytes);
	$node->start;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is_zero('t_k', "$what: counters begin at zero");
	like(slurp_file($node->logfile, $from), qr/LOG:  ignoring statistics file "pg_stat\/cache_batch.stat"\n.*DETAIL:  $why/,
		"$what: the log says so");
	ok(!-e $file, "$what: the file is gone");
	return;
}

my $earlier;
foreach my $case (
	[ 'empty', 'It is damaged', sub { '' } ],
	[ 'half a header', 'It is damaged', sub { substr $_[0], 0, 21 } ],
	[ 'header alone', 'It is damaged', sub { substr $_[0], 0, 40 } ],
	[ 'another file', 'It is damaged', sub { 'x' x length $_[0] } ],
	[ 'cut', 'It is damaged', sub { substr $_[0], 0, -1 } ],
	[ 'too long', 'It is damaged', sub { $_[0] . "\0" } ],
	[ 'many entries', 'It is damaged', sub { substr($_[0], 12, 4) = pack 'L', 0xffffffff; $_[0] } ],
	[ 'a bit of a counter', 'It is damaged', sub { substr($_[0], -3, 1) ^= "\1"; $_[0] } ],
	[ 'a bit of the identifier', 'It is damaged', sub { substr($_[0], 17, 1) ^= "\1"; $_[0] } ],
	[ 'another format', 'It is of another version', sub { substr($_[0], 4, 4) = pack 'L', 2; $_[0] } ],
	[ 'another number of counters', 'It is of another version', sub { substr($_[0], 8, 4) = pack 'L', 24; $_[0] } ])
{
	my ($what, $why, $change) = @$case;

	count_again();
	$node->stop;
	$earlier = slurp_file($file);
	ignores($what, $change->(my $copy = $earlier), $why);
}

count_again();
$node->stop;
ignores('an earlier shutdown', $earlier, q{It is not of the server's last shutdown});

my $kept = count_again();
$node->stop;
$earlier = slurp_file($file);
$node->start;
is(counters('t_k'), $kept, 'what is whole is taken again');
$node->stop('immediate');
ignores('a crash since', $earlier, q{It is not of the server's last shutdown});

# the same checkpoint may have been the last one when a server has crashed later
$node->stop;
$earlier = slurp_file($file);
$node->start;
$node->stop('immediate');
ignores('a crash before the next checkpoint', $earlier, q{It is not of the server's last shutdown});

my $stranger = new_node('stranger', conf => $conf);
$stranger->safe_psql('postgres', $count);
$stranger->stop;
my $strange = slurp_file($stranger->data_dir . '/pg_stat/cache_batch.stat');
count_again();
$node->stop;
ignores('another server', $strange, q{It is another server's});

# cannot be read at all, nor removed
count_again();
$node->stop;
unlink $file;
mkdir $file;
$node->start;
is_zero('t_k', 'a directory of that name: the server starts, and counts from zero');
my $from = -s $node->logfile;
$node->stop;
like(slurp_file($node->logfile, $from), qr/LOG:  could not \w+ file "pg_stat\/cache_batch.stat/, '... and stops');
rmdir $file;
$node->start;
is_zero('t_k', '... nothing was saved');

# ---------- reset ----------

sql('INSERT INTO t SELECT i, i FROM generate_series(1, 10) i');
$t_l = counters('t_l');
sql('CREATE ROLE plain; CREATE ROLE reader IN ROLE pg_monitor');
foreach my $role ('plain', 'reader')
{
	foreach my $call (q(cache_batch_stat_reset()), q(cache_batch_stat_reset('t_k')))
	{
		my (undef, undef, $err) = $node->psql('postgres', "SET ROLE $role; SELECT $call");
		like($err, qr/permission denied for function cache_batch_stat_reset/, "$role may not call $call");
	}
}
like(counters('t_k'), qr/^\(10,/, 'nothing is reset by that');
sql('GRANT EXECUTE ON FUNCTION cache_batch_stat_reset(regclass) TO plain');
sql(q(SET ROLE plain; SELECT cache_batch_stat_reset('t_k')));
is_zero('t_k', 'who was granted it resets an index');
is(counters('t_l'), $t_l, '... and no other one');
foreach my $relation ('t', 'pg_class_oid_index')
{
	my (undef, undef, $err) = $node->psql('postgres', "SELECT cache_batch_stat_reset('$relation')");
	like($err, qr/"$relation" is not a cachebatch index/, "$relation has nothing to reset");
}
is(sql('SELECT cache_batch_stat_reset(NULL)'), '', 'nor has null');
is(counters('t_l'), $t_l, '... no index is reset by these');
sql('INSERT INTO t VALUES (1, 1)', 'other');
my $other = counters('t_k', 'other');
sql('SELECT cache_batch_stat_reset()');
is_zero('t_l', 'reset of all indexes');
is(counters('t_k', 'other'), $other, '... of this database');

# ---------- many indexes, and those that are dropped ----------

sub make_many
{
	my ($table) = @_;

	sql(qq(CREATE TABLE $table (k int);
		DO \$\$ BEGIN FOR i IN 1 .. 1100 LOOP
			EXECUTE format('CREATE INDEX ON $table USING cachebatch (k)');
			IF i % 100 = 0 THEN COMMIT; END IF;
		END LOOP; END \$\$));
	sql("INSERT INTO $table VALUES (1)");
	return;
}

sub counted
{
	my ($table) = @_;
	return sql("SELECT count(*) FROM cache_batch_stat_indexes WHERE relname = '$table' AND staged = 1");
}

make_many('many');
is(counted('many'), 1100, 'more than 1,024 indexes are counted');
$node->restart;
is(counted('many'), 1100, '... and still so after a restart');

my %gone = map { $_ => name_of('t_k', $_) } ('other');
my %left = (t_k => name_of('t_k'));
sql('INSERT INTO t VALUES (5, 5)');
sql('CREATE DATABASE third');
sql("CREATE EXTENSION cache_batch; $count", 'third');
$left{third} = name_of('t_k', 'third');
sql('DROP TABLE many');
sql('DROP DATABASE other');
# more than twice as many as are left
make_many('more');
is(counted('more'), 1100, 'later ones are counted');
sql('DROP TABLE more');
make_many('last');
$node->stop;
my $saved = saved();
cmp_ok(scalar keys %$saved, '<', 2300, 'dropped indexes make room');
ok(!exists $saved->{ $gone{other} }, '... a dropped database, too');
ok(exists $saved->{$_}, "... what is there stays: $_") foreach values %left;
$node->start;
is(counted('last'), 1100, '... and has its counters');

SKIP:
{
	skip 'no test points in this build', 3 unless test_points_built($node);
	my $few = 'SET cache_batch.test_stat_indexes = 1';

	is(sql("$few; CREATE TABLE n (k int); CREATE INDEX n_k ON n USING cachebatch (k);
		INSERT INTO n VALUES (1); SELECT staged FROM cache_batch_stat_indexes WHERE indexrelname = 'n_k'"),
		'', 'an index for which there is no room shows no figures');
	sql("$few; INSERT INTO t VALUES (6, 6)");
	like(counters('t_k'), qr/^\(2,/, '... others are counted');
	sql('INSERT INTO n VALUES (2)');
	like(counters('n_k'), qr/^\(1,/, '... it is, when there is room');
}
sql('DROP TABLE last');

# ---------- a standby has counters of its own ----------

sql('SELECT cache_batch_stat_reset()');
sql('INSERT INTO t SELECT i, i FROM generate_series(1, 50) i');
my $standby = new_standby($node, 'standby');
$node->wait_for_catchup($standby);
sub read_standby
{
	return $standby->safe_psql('postgres', 'SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');
}
read_standby();
my $reads = counters('t_k', undef, $standby);
my @reads = $reads =~ /(\d+)/g;
is($reads[0], 0, 'a standby counts nothing that the primary did');
cmp_ok($reads[16], '>', 0, '... but what it reads of a journal');
$standby->restart;
is(counters('t_k', undef, $standby), $reads, '... and knows it after a restart');
unlike(slurp_file($standby->logfile), qr/ignoring statistics/, '... as it does not get the file from the primary');
$standby->promote;
is(counters('t_k', undef, $standby), $reads, '... and after its promotion');
$standby->safe_psql('postgres', 'INSERT INTO t VALUES (7, 7)');
like(counters('t_k', undef, $standby), qr/^\(1,/, '... goes on with that');

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|WARNING/, 'nothing bad in the log');
done_testing();
