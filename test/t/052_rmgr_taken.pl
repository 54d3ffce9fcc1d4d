# Another library has taken our resource manager's id, 203: the server refuses to
# start, and names both.  It does not go on with WAL that it would read wrongly.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/other.c", <<'EOC');
#include "postgres.h"
#include "access/xlog_internal.h"
#include "fmgr.h"

PG_MODULE_MAGIC;
void		_PG_init(void);
static void other_redo(XLogReaderState *record) {}
static void other_desc(StringInfo buf, XLogReaderState *record) {}
static const char *other_identify(uint8 info) { return NULL; }
static RmgrData other = {.rm_name = "another_library", .rm_redo = other_redo,
	.rm_desc = other_desc, .rm_identify = other_identify};

void
_PG_init(void)
{
	RegisterCustomRmgr(203, &other);
}
EOC
chomp(my $include = `pg_config --includedir-server`);
system_or_bail('cc', '-shared', '-fPIC', '-w', "-I$include", '-o', "$dir/other.so", "$dir/other.c");

my $node = new_node('taken');
$node->safe_psql('postgres', q(
	CREATE TABLE t (k int);
	CREATE INDEX t_k ON t USING cachebatch (k);
	INSERT INTO t SELECT i FROM generate_series(1, 100) i));
$node->stop('immediate');

my %says = (
	"cache_batch, $dir/other" => [ 'another_library', 'cache_batch' ],
	"$dir/other, cache_batch" => [ 'cache_batch', 'another_library' ]);
foreach my $libraries (sort keys %says)
{
	my ($second, $first) = @{ $says{$libraries} };
	my $place = -s $node->logfile;

	$node->append_conf('postgresql.conf', "shared_preload_libraries = '$libraries'");
	is($node->start(fail_ok => 1), 0, "$second comes second: the server does not start");
	my $log = substr(slurp_file($node->logfile), $place);
	like($log, qr/FATAL:  failed to register custom resource manager "$second" with ID 203\n/, 'and says why');
	like($log, qr/DETAIL:  Custom resource manager "$first" already registered with the same ID\.\n/, 'and who has it');
}

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'cache_batch'");
$node->start;
sound($node, 't', ['k'], 'without the other library it starts, and nothing is lost');
$node->stop;
done_testing();
