# Adopted operator classes after pg_dump: they go with their originals, and with
# the extension, as they did before.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('dump', conf => "cache_batch.max_workers = 0\n");
if ($node->safe_psql('postgres',
	q(SELECT count(*) FROM pg_available_extensions WHERE name = 'citext')) eq '0')
{
	plan skip_all => 'needs citext';
}

# What each mirror depends on, and how, apart from our access method.
my $mirrors = q{
	SELECT pg_describe_object(d.classid, d.objid, 0), d.deptype,
		pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
	FROM pg_depend d
	WHERE d.objid >= 16384
	  AND (d.classid, d.objid) IN (
		SELECT 'pg_opclass'::regclass, c.oid FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
		WHERE amname = 'cachebatch' AND opcname ~ 'citext|reverse|moved|left'
		UNION ALL
		SELECT 'pg_opfamily'::regclass, f.oid FROM pg_opfamily f JOIN pg_am a ON a.oid = f.opfmethod
		WHERE amname = 'cachebatch' AND opfname ~ 'citext|reverse|moved|left')
	ORDER BY 1, 2, 3};
my $dir = PostgreSQL::Test::Utils::tempdir();

sub database
{
	my ($name, $template) = @_;

	$node->safe_psql('postgres', "CREATE DATABASE $name" . ($template ? " TEMPLATE $template" : ''));
	return $name;
}

# Of both kinds: another extension's, and of our own making, in a family of another
# name and of the same name.
database('before');
$node->safe_psql('before', q{
	CREATE EXTENSION cache_batch;
	CREATE EXTENSION citext;
	CREATE SCHEMA elsewhere;
	CREATE FUNCTION reverse_cmp(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
		RETURN btint4cmp($2, $1);
	CREATE OPERATOR CLASS reverse_ops FOR TYPE int USING btree AS
		OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <,
		FUNCTION 1 reverse_cmp(int, int);
	CREATE OPERATOR FAMILY elsewhere.reverse_family USING btree;
	CREATE OPERATOR CLASS elsewhere.moved_ops FOR TYPE int USING btree FAMILY elsewhere.reverse_family AS
		OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <,
		FUNCTION 1 reverse_cmp(int, int);
	SELECT cache_batch_adopt_operator_classes();
	CREATE TABLE t (c citext, i int);
	CREATE INDEX t_c ON t USING cachebatch (c, i reverse_ops);
	CREATE INDEX t_i ON t USING cachebatch (i elsewhere.moved_ops);
	INSERT INTO t SELECT 'Key ' || i % 7, i FROM generate_series(1, 100) i});
my $wanted = $node->safe_psql('before', $mirrors);
foreach my $pair ('class citext_ops', 'class reverse_ops', 'class elsewhere.moved_ops',
	'family citext_ops', 'family reverse_ops', 'family elsewhere.reverse_family')
{
	like($wanted,
		qr/^operator \Q$pair\E for access method cachebatch\|a\|operator \Q$pair\E for access method btree$/m,
		"adopted: operator $pair goes with its original");
}

my $port = $node->port;
my $host = $node->host;
command_ok(['pg_dump', '-Fc', '-f', "$dir/dump", '-h', $host, '-p', $port, 'before'], 'dump');
command_ok(['pg_dump', '-f', "$dir/dump.sql", '-h', $host, '-p', $port, 'before'], 'dump as a script');
database('restored');
command_ok(['pg_restore', '-e', '-h', $host, '-p', $port, '-d', 'restored', "$dir/dump"], 'restore');
database('script');
$node->command_ok(['psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', 'script', '-f', "$dir/dump.sql"],
	'restore from a script');

# A mirror that comes before its original, as in a dump it may, is linked as well.
database('swapped');
my $reverse_ops = q{AS OPERATOR 1 >, OPERATOR 2 >=, OPERATOR 3 =, OPERATOR 4 <=, OPERATOR 5 <,
	FUNCTION 1 reverse_cmp(int, int)};
$node->safe_psql('swapped', qq{
	CREATE EXTENSION cache_batch;
	CREATE FUNCTION reverse_cmp(int, int) RETURNS int LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
		RETURN btint4cmp(\$2, \$1);
	CREATE OPERATOR CLASS reverse_ops FOR TYPE int USING cachebatch $reverse_ops;
	CREATE OPERATOR CLASS reverse_ops FOR TYPE int USING btree $reverse_ops});
is($node->safe_psql('swapped', $mirrors),
	join("\n", grep { / reverse_ops for access method cachebatch\|/ } split /\n/, $wanted),
	'the mirror comes first: the same dependencies');

foreach my $db ('restored', 'script')
{
	is($node->safe_psql($db, $mirrors), $wanted, "$db: the same dependencies");
	is($node->safe_psql($db, 'SELECT cache_batch_adopt_operator_classes()'), '0', "$db: nothing to adopt");
	is($node->safe_psql($db, $mirrors), $wanted, "$db: nor to link");
	is($node->safe_psql($db, q{SET enable_seqscan = off; SELECT count(*) FROM t WHERE c = 'KEY 3'}),
		14, "$db: an index of an adopted class answers");
}

# What each statement says, in databases as they were before and as they are now.
my @statements_said = (
	['DROP EXTENSION citext', qr/column c of table t depends on type citext/],
	['DROP EXTENSION cache_batch', qr/index t_c depends on operator class/],
	['DROP TABLE t', qr/^$/],
	['DROP OPERATOR CLASS elsewhere.moved_ops USING btree', qr/^$/],
	['DROP EXTENSION citext', qr/^$/],
	['DROP EXTENSION cache_batch', qr/^$/]);
database("${_}_copy", $_) foreach ('before', 'restored');
foreach my $db ('before', 'restored')
{
	foreach my $step (@statements_said)
	{
		my ($statement, $says) = @$step;
		my ($rc, $out, $err) = $node->psql($db, $statement);

		like($err, $says, "$db: $statement");
	}
	is($node->safe_psql($db, $mirrors), '', "$db: no mirror is left");
}
# the extension first: the other one stays whole
foreach my $db ('before_copy', 'restored_copy')
{
	$node->safe_psql($db, 'DROP TABLE t; DROP EXTENSION cache_batch');
	is($node->safe_psql($db, $mirrors), '', "$db: mirrors go with the extension");
	is($node->safe_psql($db, q{SELECT count(*) FROM pg_opclass
		WHERE opcname ~ 'citext|reverse|moved' AND amvalidate(oid)
		  AND opcmethod = (SELECT oid FROM pg_am WHERE amname = 'btree')}),
		4, "$db: their originals stay");
}

$node->stop;
done_testing();
