# monitoring/: postgres_exporter shows the figures that README.md says to watch, as the
# views have them; alerts and dashboard ask for nothing else, and alerts come when they
# should.
use strict;
use warnings;

use CacheBatch;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $tree = $ENV{CB_SRCDIR} || '..';

# The first of these programs that is installed.
sub program
{
	foreach my $name (@_)
	{
		return $name if grep { -x "$_/$name" } split /:/, $ENV{PATH};
	}
	return;
}

# Its exit status, and what it says.
sub run_program
{
	my ($out, $err) = ('', '');

	IPC::Run::run([@_], '<', \undef, '>', \$out, '2>', \$err);
	return ($? >> 8, "$out$err");
}

# ---------- the files by themselves ----------

my $alerts = slurp_file("$tree/monitoring/alerts.yaml");
my $dashboard = decode_json(slurp_file("$tree/monitoring/dashboard.json"));
my @asked = map { [ "alert $_->[0]", $_->[1] ] } map { [ /- alert: (\w+)\n +expr: (.*)/ ] }
  $alerts =~ /(- alert: \w+\n +expr: .*)/g;

cmp_ok(scalar @asked, '==', scalar(() = $alerts =~ /\bexpr:/g), 'each alert has its expression in a line');
foreach my $panel (@{ $dashboard->{panels} })
{
	push @asked, [ "panel $panel->{title}", $_->{expr} ] foreach @{ $panel->{targets} };
}
foreach my $variable (grep { $_->{type} eq 'query' } @{ $dashboard->{templating}{list} })
{
	push @asked, [ "variable $variable->{name}", $variable->{query} =~ /^label_values\((.*), \w+\)$/ ];
}

SKIP:
{
	skip 'promtool (Debian: prometheus) is not installed', 3 unless program('promtool');
	my $rules = "$PostgreSQL::Test::Utils::tmp_check/rules.yaml";
	my ($status, $said) = run_program('promtool', 'check', 'rules', "$tree/monitoring/alerts.yaml");

	is($status, 0, 'promtool checks the alerts') or diag($said);
	($status, $said) = run_program('promtool', 'test', 'rules', "$tree/test/monitoring/alerts_test.yaml");
	is($status, 0, 'each comes when it should, and else not') or diag($said);
	open my $fh, '>', $rules or die "$rules: $!";
	print $fh "groups: [{name: g, rules: [\n";
	print $fh "{record: 'x$_', expr: '" . ($asked[$_][1] =~ s/\$__rate_interval/5m/gr) . "'},\n" foreach 0 .. $#asked;
	print $fh "]}]\n";
	close $fh;
	($status, $said) = run_program('promtool', 'check', 'rules', $rules);
	is($status, 0, "all expressions of the dashboard are Prometheus'") or diag($said);
}

SKIP:
{
	my $valid = 'import json, jsonschema, sys; s, d = (json.load(open(f)) for f in sys.argv[1:]); '
	  . 'jsonschema.Draft7Validator(s).validate(d)';
	my ($status) = run_program('python3', '-c', 'import jsonschema');
	my $said;

	skip 'python3-jsonschema is not installed', 1 if $status != 0;
	($status, $said) = run_program('python3', '-c', $valid, "$tree/test/monitoring/dashboard.schema.json",
		"$tree/monitoring/dashboard.json");
	is($status, 0, "the dashboard is as Grafana's schema has it") or diag($said);
}

# no two panels have one place or one number
my (%places, %ids);
foreach my $panel (@{ $dashboard->{panels} })
{
	my $at = $panel->{gridPos};

	$ids{ $panel->{id} }++;
	foreach my $x ($at->{x} .. $at->{x} + $at->{w} - 1)
	{
		$places{"$x,$_"}++ foreach $at->{y} .. $at->{y} + $at->{h} - 1;
	}
}
is(join(' ', grep { $places{$_} > 1 } keys %places), '', 'no panel covers another one');
is(scalar keys %ids, scalar @{ $dashboard->{panels} }, '... nor has its number');

my $exporter = program('prometheus-postgres-exporter', 'postgres_exporter');
if (!$exporter)
{
	note('skipped: postgres_exporter (Debian: prometheus-postgres-exporter) is not installed');
	done_testing();
	exit;
}

# ---------- a server that has worked ----------

my $node = new_node('monitored', conf => <<EOC);
cache_batch.max_workers = 0
cache_batch.max_delay = 1h
cache_batch.pool_size = 256kB
cache_batch.journal_limit = 1MB
cache_batch.test_visits = off
EOC

sub ask
{
	return $node->safe_psql('postgres', shift);
}

ask(q(
	CREATE ROLE prometheus LOGIN IN ROLE pg_monitor;
	CREATE TABLE t (id int, k bigint);
	INSERT INTO t SELECT i, hashint8extended(i, 0) FROM generate_series(1, 20000) i;
	CREATE INDEX t_k ON t USING cachebatch (k);
	CREATE INDEX t_off ON t USING cachebatch (id) WITH (buffered = off);
	CREATE TABLE u (LIKE t);
	INSERT INTO u SELECT * FROM t;
	CREATE INDEX u_k ON u USING cachebatch (k)));
insert_ids($node, 'postgres', 't', 30_000, 1000);
ask(q(SELECT cache_batch_flush('t_k')));
insert_ids($node, 'postgres', 't', 40_000, 1000);
ask(q(DELETE FROM t WHERE id < 500));
ask('VACUUM (INDEX_CLEANUP ON) t');
# more than the pool has room for
foreach (1 .. 20)
{
	insert_ids($node, 'postgres', 'u', 50_000 + 2000 * $_, 2000);
}

# a journal is read, as there are no buckets yet
insert_ids($node, 'postgres', 't', 100_000, 500);
$node->restart;
ask('SET enable_seqscan = off; SELECT count(*) FROM t WHERE k = 1');

# a leaf is damaged, so that a bucket fails
my $leaf = ask(q(
	SELECT b FROM generate_series(1, pg_relation_size('u_k') / 8192 - 1) b, cache_batch_page('u_k', b) p
	WHERE p.type = 'leaf' ORDER BY b OFFSET 7 LIMIT 1));
my $file = $node->data_dir . '/' . ask(q(SELECT pg_relation_filepath('u_k')));
$node->stop;
damage($file, $leaf, [ 8192 - 2, 'zz' ]);
$node->append_conf('postgresql.conf', "cache_batch.max_delay = 200ms\ncache_batch.max_workers = 1");
$node->start;
# rows of the bad leaf are refused where there is no room to buffer them
$node->psql('postgres', join '', map {
	"INSERT INTO u SELECT i, hashint8extended(i, 1) FROM generate_series($_ * 100, $_ * 100 + 99) i;"
} 2000 .. 2019);
ok(wait_until(sub { ask('SELECT count(*) > 0 FROM cache_batch_stat_buckets WHERE failing_buckets > 0') eq 't' }),
	'a bucket fails');
$node->append_conf('postgresql.conf', 'cache_batch.max_delay = 1h');
$node->reload;
insert_ids($node, 'postgres', 't', 300_000, 500);

# ---------- the exporter ----------

my ($process, $url);

# not left behind by a test that dies
END
{
	local $?;
	$process->kill_kill if $process;
}

sub exporter_log
{
	my ($server) = @_;
	return "$PostgreSQL::Test::Utils::tmp_check/log/exporter_" . $server->name . '.log';
}

# Starts it for a server, in place of the one that there is.
sub start_exporter
{
	my ($server) = @_;
	my $at = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	local $ENV{DATA_SOURCE_NAME} = sprintf "host=%s port=%d user=prometheus dbname=postgres sslmode=disable",
	  $server->host, $server->port;

	$process->kill_kill if $process;
	$process = IPC::Run::start(
		[
			$exporter, "--extend.query-path=$tree/monitoring/queries.yaml", "--web.listen-address=$at",
			'--disable-default-metrics', '--disable-settings-metrics', '--no-collector.bgwriter',
			'--no-collector.database'
		], '<', \undef, '>', exporter_log($server), '2>&1');

	$url = "http://$at/metrics";
	return;
}

# The figures on a page: values by "name", and by "name index" where there is one.
sub figures
{
	my ($page) = @_;
	my %values;

	while ($page =~ /^(cache_batch_\w+)(?:\{(.*)\})? (\S+)$/mg)
	{
		my ($name, $labels, $value) = ($1, $2 // '', $3);
		my ($index) = $labels =~ /\bindexrelname="([^"]*)"/;

		$values{$name} = $value;
		$values{"$name $index"} = $value if defined $index;
		push @{ $values{types}{$name} }, $page =~ /^# TYPE $name (\w+)$/m;
	}
	return \%values;
}

# What is asked of views, by the figure's name; and what it is here at least.
my %views = (
	(map { ("cache_batch_index_${_}_total t_k" => "SELECT $_ FROM cache_batch_stat_indexes WHERE indexrelname = 't_k'") }
		qw(staged direct applied leaf_visits flushes_request flushes_vacuum flushes_full flushes_pressure
		flushes_delay flushes_limit flushes_help flushes_reads no_room journal_reads)),
	'cache_batch_index_entries_per_visit t_k' =>
	  q(SELECT entries_per_visit FROM cache_batch_stat_indexes WHERE indexrelname = 't_k'),
	'cache_batch_index_staged_total t_off' =>
	  q(SELECT staged FROM cache_batch_stat_indexes WHERE indexrelname = 't_off'),
	(map { ("cache_batch_bucket_$_ t_k" => "SELECT $_ FROM cache_batch_stat_buckets WHERE indexrelname = 't_k'") }
		qw(entries bytes journal_bytes)),
	'cache_batch_bucket_failing u_k' =>
	  q(SELECT failing_buckets FROM cache_batch_stat_buckets WHERE indexrelname = 'u_k'),
	'cache_batch_pool_size_bytes' => 'SELECT pool_size FROM cache_batch_stat_pool',
	(map { ("cache_batch_pool_$_" => "SELECT $_ FROM cache_batch_stat_pool") } qw(chunks chunks_free bucket_sets indexes)),
	'cache_batch_pool_no_room_total' => 'SELECT no_room FROM cache_batch_stat_pool',
	'cache_batch_worker_last_error_seconds' =>
	  'SELECT extract(epoch FROM max(last_error_at)) FROM cache_batch_stat_workers',
	'cache_batch_worker_failing' => q(SELECT count(*) FROM cache_batch_stat_workers WHERE state = 'failing'),
	'cache_batch_heat_blocks t_k' =>
	  q(SELECT sum(blocks_read) FROM cache_batch_stat_heat WHERE indexrelname = 't_k'));
my %at_least = (
	'cache_batch_index_staged_total t_k' => 3000,
	'cache_batch_index_applied_total t_k' => 2000,
	'cache_batch_index_leaf_visits_total t_k' => 10,
	'cache_batch_index_entries_per_visit t_k' => 1,
	'cache_batch_index_flushes_request_total t_k' => 1,
	'cache_batch_index_flushes_vacuum_total t_k' => 1,
	'cache_batch_index_journal_reads_total t_k' => 1,
	'cache_batch_bucket_entries t_k' => 500,
	'cache_batch_bucket_journal_bytes t_k' => 5000,
	'cache_batch_bucket_failing u_k' => 1,
	'cache_batch_pool_size_bytes' => 200_000,
	'cache_batch_pool_chunks' => 2,
	'cache_batch_worker_last_error_seconds' => 1_500_000_000,
	'cache_batch_heat_blocks t_k' => 10);

# Those that differ from the views, in a look before and one after.
sub different
{
	my %before = map { $_ => ask($views{$_}) } keys %views;
	my $got = HTTP::Tiny->new(timeout => 60)->get($url);
	my $values = figures($got->{content});
	my %after = map { $_ => ask($views{$_}) } keys %views;
	my @faults;

	return ({}, $got->{content}) unless $got->{success};
	foreach my $name (sort keys %views)
	{
		my $value = $values->{$name} // 'nothing';

		push @faults, "$name: $value, not $before{$name} .. $after{$name}"
		  unless $value ne 'nothing' && $value >= $before{$name} && $value <= $after{$name};
	}
	return ($values, join "\n", @faults);
}

start_exporter($node);
my ($values, $faults);
# until it listens, and no worker has come in between
foreach (1 .. 10)
{
	($values, $faults) = different();
	last if $faults eq '';
	sleep 1;
}
is($faults, '', 'all figures are there, as the views have them');
cmp_ok($values->{$_} // -1, '>=', $at_least{$_}, $_) foreach sort keys %at_least;

foreach my $name (sort keys %{ $values->{types} })
{
	is($values->{types}{$name}[0], $name =~ /_total$/ ? 'counter' : 'gauge', "$name: its type");
}

# all that README names by its view's column, and the rest of its table
my $readme = slurp_file("$tree/README.md");
my ($watch) = $readme =~ /^## Monitoring\n(.*?)^## /ms;
my %column = (map { $_ => "cache_batch_index_${_}_total" } qw(flushes_request flushes_vacuum flushes_help flushes_limit journal_reads no_room));
%column = (%column, entries_per_visit => 'cache_batch_index_entries_per_visit',
	failing_buckets => 'cache_batch_bucket_failing', journal_bytes => 'cache_batch_bucket_journal_bytes',
	last_error => 'cache_batch_worker_last_error_seconds');
like($watch, qr/`$_`/, "README says to watch $_") foreach sort keys %column;
ok(exists $values->{ $column{$_} }, "... and there is $column{$_}") foreach sort keys %column;
my %waits = map { $_ => 1 } $watch =~ /`(CacheBatch\w+)`/g;
delete @waits{qw(CacheBatchLauncherMain CacheBatchWorkerMain)};
my $page = HTTP::Tiny->new->get($url)->{content};
my %shown = map { $_ => 1 } $page =~ /^cache_batch_wait_processes\{event="(\w+)"/mg;
is(join(' ', sort keys %shown), join(' ', sort keys %waits), 'all waits that README names');

# ---------- alerts and panels ----------

my %words = map { $_ => 1 } qw(sum max min count by and rate deriv min_over_time absent);
foreach my $asked (@asked)
{
	my ($what, $expression) = @$asked;
	my $bare = $expression =~ s/\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)//gr;
	my @unknown = grep { !$words{$_} && !exists $values->{$_} } $bare =~ /\b([a-zA-Z_]\w*)/g;

	is("@unknown", '', "$what: nothing that there is not");
	like($expression, qr/\bcache_batch_/, '... and something that there is');
}

# ---------- a standby ----------

my $standby = new_standby($node, 'standby');
$node->wait_for_catchup($standby);
start_exporter($standby);
my $missing = 'all';
foreach (1 .. 10)
{
	my $got = HTTP::Tiny->new(timeout => 60)->get($url);
	my $there = figures($got->{content});

	$missing = join ' ', grep { !exists $there->{$_} && !/^cache_batch_bucket_/ } sort keys %{ $values->{types} };
	last if $missing eq '';
	sleep 1;
}
is($missing, '', 'a standby shows the same figures, but for buckets');
unlike(slurp_file(exporter_log($_)), qr/level=(?:error|warn)/, 'the exporter has nothing to complain of: ' . $_->name)
  foreach ($node, $standby);

done_testing();
