# README.md and doc/reference.md, here "README": the examples are run, in their order,
# and what is said of settings, index options, functions, views, errors and files is so.
# An example that is neither run nor listed here fails the test, and so does a list that
# README has left behind.
use strict;
use warnings;

use CacheBatch;
use File::Basename qw(dirname);
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = $ENV{CB_SRCDIR} || '..';
my @pages = ('README.md', 'doc/reference.md');
my $readme = join "\n", map { slurp_file("$tree/$_") } @pages;
my $in_a_line = $readme =~ s/\s*\n\s*/ /gr;
my $version = server_version();

# with the settings' own defaults, and without the library at first
delete $ENV{TEMP_CONFIG};
my $node = PostgreSQL::Test::Cluster->new('readme');
$node->init;
$node->append_conf('postgresql.conf', "fsync = off\nautovacuum = off\n");
$node->start;

# ---------- the examples, and what is none ----------

my $preload = "# postgresql.conf, then restart\nshared_preload_libraries = 'cache_batch'\n";

# by their first lines
my %listed_blocks = (
	'make && sudo make install' => 'installs into the machine; test/all does it in a copy of a server',
	'# postgresql.conf, then restart' => 'is what this server is started with',
	'test/demo --pg 18       # cachebatch beside btree on 5 million real flights, 4 minutes' =>
	  'takes minutes, and installs packages; files and options are looked at below',
	'cache_batch_check --all --jobs=4 --progress' => '049_check.pl runs it',
	"  indexrelname  |   method   |   k   | expected | cost_ratio |  pool   | verdict |     reason" =>
	  'is what a statement prints, and compared with that',
	'CREATE INDEX CONCURRENTLY cache_batch_swap_27847 ON public.events USING cachebatch (device_id);' =>
	  'is what a statement prints, and compared with that');

# names of commands, and parts of statements
my @listed_words = ('ALTER DATABASE', 'ALTER INDEX', 'ALTER INDEX … SET (buffered = off)',
	'ALTER OPERATOR FAMILY', 'CLUSTER', 'COPY', 'CREATE DATABASE', 'CREATE EXTENSION', 'CREATE INDEX',
	'CREATE INDEX CONCURRENTLY', 'CREATE INDEX … USING cachebatch',
	'CREATE UNIQUE INDEX … USING cachebatch', 'DROP DATABASE', 'DROP INDEX',
	'EXPLAIN (ANALYZE, VERBOSE)', 'INSERT … SELECT',
	'REFRESH MATERIALIZED VIEW CONCURRENTLY', 'REINDEX', 'TRUNCATE', 'VACUUM', 'a = b AND b = 1');

# what has to be there before an example runs
my %before = (
	'CREATE EXTENSION cache_batch;' => q(
		CREATE TABLE events (device_id int, at timestamptz, booking_id bigint);
		INSERT INTO events SELECT hashint4(i), now() - i * interval '1 hour', hashint8extended(i, 0)
		FROM generate_series(1, 2000) i),
	q(SELECT cache_batch_compact('events_at', NULL, now() - interval '30 days');) =>
	  'CREATE INDEX events_at ON events USING cachebatch (at)',
	'DROP EXTENSION cache_batch CASCADE' => \&without_library,
	'SELECT indexrelname, method, entries_per_visit AS k, expected_entries_per_visit AS expected,' => q(
		CREATE EXTENSION cache_batch;
		CREATE INDEX events_device ON events (device_id);
		CREATE INDEX events_booking ON events USING cachebatch (booking_id);
		ANALYZE events),
	'\set ON_ERROR_STOP on' => \&compare_swap);

# and what is to be seen after it
my %after = (
	'CREATE EXTENSION citext' => sub {
		cmp_ok(answer('SELECT cache_batch_adopt_operator_classes()'), '>', 0, 'citext: classes are adopted');
		answer('CREATE TABLE c (c citext); CREATE INDEX ON c USING cachebatch (c)');
	},
	'CHECKPOINT' => sub {
		restart_with("shared_preload_libraries = ''");
		is(answer('SELECT count(*) FROM events WHERE device_id IS NOT NULL'), '2000',
			'the library is not needed after its removal');
		restart_with("shared_preload_libraries = 'cache_batch'");
	},
	'SELECT indexrelname, method, entries_per_visit AS k, expected_entries_per_visit AS expected,' =>
	  \&compare_advice,
	'\set ON_ERROR_STOP on' => sub {
		is(answer(q(SELECT string_agg(i.relname || ' ' || amname, ', ' ORDER BY i.relname) FROM pg_class i
				JOIN pg_index x ON x.indexrelid = i.oid JOIN pg_am a ON a.oid = i.relam
				WHERE indrelid = 'events'::regclass)),
			'events_booking cachebatch, events_device cachebatch', 'the index is swapped');
	});

# Indented and fenced blocks, and what stands between backticks, in README's order.
sub code
{
	my @code;

	while ($readme =~ /(?<=\n\n)((?:    .*\n)+)|^```\w*\n((?:.*\n)*?)```$|`([^`]+)`/gm)
	{
		my ($indented, $fenced, $words) = ($1, $2, $3);

		push @code, { block => $indented =~ s/^ {4}//gmr } if defined $indented;
		push @code, { block => $fenced } if defined $fenced;
		push @code, { words => $words =~ s/\s*\n\s*/ /gr } if defined $words;
	}
	return @code;
}

# The links of a page to files, or sections of pages, that are not there.
sub broken_links
{
	my ($page) = @_;
	my @links = slurp_file("$tree/$page") =~ /\]\(([^)\s]+)/g;

	return grep { !/^https?:/ && !is_there($page, split /#/, $_, 2) } @links;
}

# A file by its path from that of a page, and its section by the name that links have.
sub is_there
{
	my ($page, $path, $section) = @_;
	my $file = "$tree/" . ($path eq '' ? $page : dirname($page) . "/$path");

	return 0 if !-e $file;
	return 1 if !defined $section;
	my %sections = map { lc(s/[^\w\- ]//gr =~ s/ /-/gr) => 1 } slurp_file($file) =~ /^#+ (.*)/mg;
	return $sections{$section};
}

sub answer
{
	return $node->safe_psql('postgres', $_[0]);
}

sub restart_with
{
	$node->append_conf('postgresql.conf', "$_\n") foreach @_;
	$node->restart;
	return;
}

# The error is the one that README names; "…" stands for a name.
sub fails
{
	my ($sql, $message, $what) = @_;
	my ($rc, undef, $err) = $node->psql('postgres', $sql, on_error_stop => 1);
	my $pattern = join '.*', map { quotemeta } split /…/, $message;

	isnt(index($in_a_line, $message), -1, "README has: $message");
	isnt($rc, 0, "$what fails");
	like($err, qr/$pattern/, "$what: as README says");
	return;
}

my ($run, %seen) = (0);

sub run_example
{
	my ($sql) = @_;
	my ($name) = split /\n/, $sql;
	my ($before, $after) = ($before{$name}, $after{$name});

	ref $before ? $before->() : answer($before) if $before;
	my ($rc, undef, $err) = $node->psql('postgres', $sql, on_error_stop => 1);
	ok($rc == 0 && $err !~ /ERROR/, "runs: $name") or diag($err);
	$after->() if $after;
	$seen{$name} = 1;
	$run++;
	return;
}

# "name = value", of an index or of the server.
sub run_assignment
{
	my ($name, $value) = @_;

	if (answer("SELECT count(*) FROM pg_settings WHERE name = '$name'") == 1)
	{
		run_example("ALTER SYSTEM SET $name = $value");
		answer("ALTER SYSTEM RESET $name");
	}
	else
	{
		run_example("ALTER INDEX events_device SET ($name = $value)");
		answer("ALTER INDEX events_device RESET ($name)");
	}
	return;
}

my $command = qr/ALTER|ANALYZE|CHECKPOINT|CLUSTER|COPY|CREATE|DELETE|DROP|EXPLAIN|GRANT|INSERT|REFRESH|REINDEX|RESET|SELECT|SET|TRUNCATE|UPDATE|VACUUM/;

sub run_words
{
	my ($words) = @_;

	if (grep { $_ eq $words } @listed_words)
	{
		$seen{$words} = 1;
	}
	elsif ($words =~ /^$command\b/)
	{
		run_example($words);
	}
	elsif ($words =~ /^([a-z_.]+) = (.*)$/)
	{
		run_assignment($1, $2);
	}
	return;
}

sub run_block
{
	my ($block) = @_;
	my ($name) = split /\n/, $block;

	if ($listed_blocks{$name})
	{
		$seen{$name} = 1;
	}
	elsif ($name =~ /^(?:$command\b|\\)/)
	{
		run_example($block);
	}
	else
	{
		fail("neither run nor listed: $name");
	}
	return;
}

# A block of README, by what it begins with.
sub block
{
	my ($begin) = @_;
	my ($block) = grep { defined && index($_, $begin) == 0 } map { $_->{block} } code();

	return $block // '';
}

# The columns are those that README shows.
sub compare_advice
{
	my $sql = block('SELECT indexrelname, method');
	my ($header) = split /\n/, answer("\\pset tuples_only off\n$sql");
	my ($shown) = split /\n/, block('  indexrelname  |');

	is($header, join('|', $shown =~ /(\w+)/g), 'the advice has the columns that README shows');
	return;
}

# The statements are those that README shows, but for the number.
sub compare_swap
{
	my $statements = answer(q(SELECT swap || ';' FROM cache_batch_swap('events_device') swap)) . "\n";
	my $shown = block('CREATE INDEX CONCURRENTLY cache_batch_swap_');

	is($statements =~ s/swap_\K\d+//gr, $shown =~ s/swap_\K\d+//gr, 'the swap has the statements that README shows');
	return;
}

# The server does not start without the library, and nothing is lost.
sub without_library
{
	my $segment = answer('CHECKPOINT; SELECT pg_walfile_name(pg_current_wal_lsn())');
	my ($records, $err);

	answer(q(INSERT INTO events SELECT i, now(), i FROM generate_series(1, 20) i; DELETE FROM events WHERE device_id BETWEEN 1 AND 20));
	$node->stop('immediate');
	IPC::Run::run([ 'pg_waldump', '--rmgr=custom203', $node->data_dir . "/pg_wal/$segment" ],
		'>', \$records, '2>', \$err);
	like($records, qr/^rmgr: custom203/, 'pg_waldump shows custom203') or diag($err);

	my $logged = -s $node->logfile;
	my $message = 'resource manager with ID 203 not registered';
	$node->append_conf('postgresql.conf', "shared_preload_libraries = ''\n");
	ok(!$node->start(fail_ok => 1), 'the server does not start without the library');
	isnt(index($in_a_line, $message), -1, "README has: $message");
	like(slurp_file($node->logfile, $logged), qr/$message/, 'and says why');
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'cache_batch'\n");
	$node->start;
	sound($node, 'events', [ 'device_id', 'at' ], 'with the library nothing is lost');
	return;
}

fails('CREATE EXTENSION cache_batch', 'cache_batch must be loaded via shared_preload_libraries', 'no preloading');
is(block('# postgresql.conf'), $preload, 'README says how to preload');
restart_with($preload);
fails('CREATE TABLE n (k int); CREATE INDEX ON n USING cachebatch (k)', 'access method "cachebatch" does not exist',
	'no extension');

foreach my $code (code())
{
	run_block($code->{block}) if exists $code->{block};
	run_words($code->{words}) if exists $code->{words};
}
my @gone = grep { !$seen{$_} } (@listed_words, keys %listed_blocks, keys %before, keys %after);
is(join("\n", @gone), '', 'README has all examples that are named here');
note("$run examples run; listed: " . scalar(keys %listed_blocks) . ' blocks, ' . scalar(@listed_words) . ' names');

# ---------- errors that README names ----------

answer('CREATE TABLE u (k int NOT NULL)');
if ($version < 18)
{
	fails('CREATE UNIQUE INDEX ON u USING cachebatch (k)',
		'access method "cachebatch" does not support unique indexes', 'a unique index');
}
else
{
	answer('CREATE UNIQUE INDEX u_k ON u USING cachebatch (k)');
	fails("ALTER TABLE u ADD $_ USING INDEX u_k", 'index "…" is not a btree', $_) foreach ('UNIQUE', 'PRIMARY KEY');
}

# ---------- tables of README ----------

# The cells of the rows of the table with this head.
sub table
{
	my ($head) = @_;
	my ($rows) = $readme =~ /^\Q| $head |\E.*\n\|[-:| ]+\n((?:\|.*\n)+)/m;

	ok($rows, "README has the table \"$head\"");
	return map { [ /\|\s*(.*?)\s*(?=\|)/g ] } split /\n/, $rows // '';
}

# The words between backticks.
sub words
{
	return $_[0] =~ /`([^`]+)`/g;
}

sub same_names
{
	my ($ours, $theirs, $what) = @_;

	return is(join(' ', sort @$ours), join(' ', sort @$theirs), $what);
}

# ---------- settings ----------

my %who = (postmaster => 'restart', sighup => 'reload', superuser => 'superuser', user => 'anyone');
my %context = map { split /\|/ } split /\n/, answer(q(SELECT name, context FROM pg_settings
	WHERE name ~ '^cache_batch\.(?!test_)' OR name = 'effective_io_concurrency'));
my @developer = split /\n/, answer(q(SELECT name FROM pg_settings
	WHERE name ~ '^cache_batch\.(?!test_)' AND 'NOT_IN_SAMPLE' = ANY (pg_settings_get_flags(name))));
my @settings;

foreach my $row (table('setting | default | who'))
{
	my ($name, $default, $who) = ((words($row->[0]))[0], @$row[ 1, 2 ]);

	push @settings, $name;
	is($who{ $context{$name} // '' }, $who, "$name: who may set it");
	is(answer("SELECT source || ' ' || current_setting(name) FROM pg_settings WHERE name = '$name'"),
		"default $default", "$name: its default")
	  unless $default eq "the server's";
}
same_names([ @settings, @developer ], [ keys %context ], 'README has all settings but for developer options');

my ($options) = slurp_file("$tree/test/README") =~ /^Developer options\n-+\n(.*)/ms;
my %developer_who = $options =~ /^ {4}(\w+) +(restart|reload|anyone) /mg;
same_names([ map { "cache_batch.$_ $developer_who{$_}" } keys %developer_who ],
	[ map { "$_ $who{$context{$_}}" } @developer ], 'test/README has those');
note(scalar(@settings) . ' settings, and ' . scalar(@developer) . ' developer options');

# ---------- index options ----------

answer(q(CREATE TABLE o (k bigint);
	INSERT INTO o SELECT hashint8extended(i, 0) FROM generate_series(1, 10000) i));

# The size of an index with these options.
sub size_with
{
	return answer("CREATE INDEX o_k ON o USING cachebatch (k) WITH ($_[0]); SELECT pg_relation_size('o_k'); DROP INDEX o_k");
}

my %options = map { (words($_->[0]))[0] => $_ } table('option | default');
same_names([ keys %options ], [ slurp_file("$tree/src/am/cb_options.c") =~ /add_\w+_reloption\(\w+, "(\w+)"/g ],
	'README has all index options');
foreach my $name (sort keys %options)
{
	my ($default, $text) = @{ $options{$name} }[ 1, 2 ];

	$default = answer("SHOW cache_batch.$name") if $default eq 'as the setting';
	cmp_ok(size_with("$name = '$default'"), '==', size_with('deduplicate_items = on'), "$name = $default changes nothing");
	my ($least, $most) = $text =~ /\((\d+)–(\d+)\)/ or next;
	size_with("$name = $_") foreach ($least, $most);
	foreach my $value ($least - 1, $most + 1)
	{
		my ($rc, undef, $err) = $node->psql('postgres', "CREATE INDEX ON o USING cachebatch (k) WITH ($name = $value)");
		like($err, qr/value $value out of bounds.*between "$least" and "$most"/s, "$name = $value is refused");
	}
}
# a value that is not the default shows
cmp_ok(size_with('pack_leaves = off'), '>', size_with('pack_leaves = on'), 'pack_leaves = off: larger');
cmp_ok(size_with("fillfactor = $options{fillfactor}[1], pack_leaves = off"), '==', size_with('pack_leaves = off'),
	'fillfactor: its default');
cmp_ok(size_with('fillfactor = 80, pack_leaves = off'), '>', size_with('pack_leaves = off'), 'fillfactor = 80: larger');
is(size_with('deduplicate_items = off'), size_with('deduplicate_items = on'), 'deduplicate_items has no effect');
answer("CREATE INDEX o_$_ ON o USING cachebatch (k) WITH (buffered = $_)") foreach ('auto', 'off');
answer('CREATE INDEX o_default ON o USING cachebatch (k)');
answer('INSERT INTO o VALUES (1)');
is(answer(q(SELECT string_agg(indexrelname || ' ' || journaled, ', ' ORDER BY indexrelname)
		FROM cache_batch_stat_indexes WHERE relname = 'o')), 'o_auto 1, o_default 1, o_off 0', 'buffered: its default');

# ---------- functions ----------

# for the views alone, or for the server
my @internal = qw(cache_batch_handler cache_batch_stat_get cache_batch_stat_get_bucket_sets
  cache_batch_stat_get_heat cache_batch_stat_get_pool cache_batch_stat_get_progress
  cache_batch_stat_get_workers);
my %overloads;

answer('CREATE ROLE plain; CREATE ROLE monitor IN ROLE pg_stat_scan_tables');
foreach my $line (split /\n/, answer(q(
	SELECT p.proname, p.pronargdefaults, format_type(p.prorettype, NULL),
		has_function_privilege('plain', p.oid, 'EXECUTE'), has_function_privilege('monitor', p.oid, 'EXECUTE'),
		(SELECT string_agg(p.proargnames[n] || ' ' || format_type(t, NULL), ', ' ORDER BY n)
		 FROM unnest(p.proargtypes) WITH ORDINALITY a (t, n)),
		pg_get_function_arguments(p.oid)
	FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
	JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'cache_batch')))
{
	my ($name, $defaults, $returns, $plain, $monitor, $args, $all) = split /\|/, $line, -1;
	my @args = split /, /, $args;

	push @{ $overloads{$name} },
	  { args => \@args, defaults => $defaults, returns => $returns, who => "$plain$monitor", all => $all };
}

# Does README's "a type, b type [, c]" name this function's arguments, and can those
# be left out that it leaves out?
sub takes
{
	my ($function, $signature) = @_;
	my @have = @{ $function->{args} };
	my $more = $signature =~ s/, …$//;

	foreach my $want (split / *, */, $signature)
	{
		my $have = shift @have // return 0;
		my ($bare, $default) = $want =~ /^(.*?)(?: DEFAULT (\w+))?$/;

		return 0 if $have ne $bare && $have !~ /^\Q$bare\E /;
		return 0 if defined $default && $function->{all} !~ /\b\Q$have\E DEFAULT $default\b/;
	}
	return @have <= $function->{defaults};
}

# by an ordinary user, by a member of pg_stat_scan_tables
my %may = (
	'owner' => 'tt',
	'everybody' => 'tt',
	'owner, if in `pg_stat_scan_tables`' => 'ft',
	'`pg_stat_scan_tables`' => 'ft',
	'superuser' => 'ff');
my %described;

foreach my $row (table('function | who'))
{
	foreach my $signature (words($row->[0]))
	{
		my ($name, $args, $returns) = $signature =~ /^(\w+)\((.*)\)(?: → (\w+))?$/
		  or die "no function: $signature";
		my $shortest = $args =~ s/ *\[.*?\]//gr;
		my $longest = $args =~ s/ *[][]//gr;
		my @takes = map { my $form = $_; [ grep { takes($_, $form) } @{ $overloads{$name} } ] } ($shortest, $longest);
		my ($function) = @{ $takes[1] };

		$described{$name} = 1;
		ok(@{ $takes[0] } && $function, "$signature: its arguments") or next;
		is($function->{returns}, $returns, "$name: what it returns") if $returns;
		is($_->{who}, $may{ $row->[1] }, "$name: who may call it") foreach @{ $overloads{$name} };
		next unless $name eq 'cache_batch_model';
		like($function->{all}, qr/\b$_/, "$name: $_")
		  foreach map { s/` \(/\\b.* DEFAULT /r } $row->[2] =~ /`(\w+` \(\d+)/g;
	}
}
same_names([ keys %described, @internal ], [ keys %overloads ], 'README has all functions but for internal ones');

# ---------- views ----------

my @views = split /\n/, answer(q(SELECT viewname FROM pg_views WHERE viewname LIKE 'cache\_batch\_%'));
my %in_words = (6 => 'six', 7 => 'seven', 8 => 'eight');
my $count = $in_words{ scalar(@views) };
same_names([ map { words($_->[0]) } table('view') ], \@views, 'README has all views');
like($in_a_line, qr/The extension adds $count views/, 'and counts them');

sub columns
{
	return split /\n/, answer("SELECT attname FROM pg_attribute WHERE attrelid = '$_[0]'::regclass AND attnum > 0");
}

my @names = qw(schemaname relname indexrelname relid indexrelid);
same_names([ @names, map { words($_->[0]) } table('column of `cache_batch_stat_indexes`') ],
	[ columns('cache_batch_stat_indexes') ], 'README has the columns of cache_batch_stat_indexes');
answer('CREATE VIEW advice AS SELECT * FROM cache_batch_advise()');
same_names([ @names, qw(method reason swap), map { words($_->[0]) } table('column') ],
	[ columns('advice') ], 'README has the columns of cache_batch_advise()');

# ---------- all other names ----------

my %known = map { $_ => 1 } (@views, keys %overloads, 'cache_batch',
	grep { -x "$tree/$_" } 'cache_batch_check');
my @unknown = grep { !$known{$_} } map { /\b(cache_batch(?:_\w+)?)/g } words($in_a_line);
is(join(' ', @unknown), '', 'what README names cache_batch... is there');

my @paths = grep { m{^(?:doc|sql|src|test)/} } words($in_a_line);
is(join(' ', grep { !-e "$tree/$_" } @paths), '', 'all files that README names are there');
is(join(' ', map { broken_links($_) } @pages), '', 'all that README has links to is there');

my $sources = join '', map { slurp_file($_) } glob("$tree/src/*/*.[ch]");
my %waits = map { $_ => 1 } grep { /^CacheBatch/ } words($in_a_line);
my %named = map { $_ => 1 } $sources =~ /"(CacheBatch\w*)"/g;
same_names([ keys %waits ], [ keys %named ], 'README has all waits');
my $script = slurp_file("$tree/sql/cache_batch--1.0.sql");
my @reasons = map { words($_->[0]) } table('reason');
is(join(', ', grep { index($script, s/ …//r) < 0 } @reasons), '', 'there are the reasons that README has for an advice');

foreach my $line (split /\n/, block('test/demo'))
{
	my ($program, @args) = split / /, $line =~ s/ *#.*//r;
	my $help = '';

	IPC::Run::run([ "$tree/$program", '--help' ], '>&', \$help);
	like($help, qr/$program.*\[?\Q$_\E\b/, "$program has $_") foreach grep { /^-/ } @args;
}

$node->stop;
done_testing();
