# wal_level = minimal: relations made in the same transaction are not logged,
# but synced at commit; a crash loses nothing.
use strict;
use warnings;

use CacheBatch;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('minimal', minimal => 1,
	conf => "wal_level = minimal\nmax_wal_senders = 0\nwal_skip_threshold = 0\n");

$node->safe_psql('postgres', q(
	BEGIN;
	CREATE TABLE made (id int, k int);
	CREATE INDEX made_k ON made USING cachebatch (k);
	INSERT INTO made SELECT i, hashint4(i) FROM generate_series(1, 2000) i;
	INSERT INTO made SELECT i, hashint4(i) FROM generate_series(2001, 2020) i;
	SELECT cache_batch_flush('made_k');
	INSERT INTO made VALUES (0, 0);
	COMMIT;
	BEGIN;
	CREATE TABLE late (id int, k int);
	INSERT INTO late SELECT i, hashint4(i) FROM generate_series(1, 2000) i;
	CREATE INDEX late_k ON late USING cachebatch (k);
	SAVEPOINT a; INSERT INTO late VALUES (0, 0); ROLLBACK TO a;
	INSERT INTO late VALUES (1, 1);
	COMMIT;
	CREATE TABLE cut (id int, k int);
	CREATE INDEX cut_k ON cut USING cachebatch (k);
	INSERT INTO cut SELECT i, i FROM generate_series(1, 500) i;
	BEGIN;
	TRUNCATE cut;
	INSERT INTO cut SELECT i, i FROM generate_series(1000, 1100) i;
	COMMIT;
	CREATE UNLOGGED TABLE unlogged (id int, k int);
	CREATE INDEX unlogged_k ON unlogged USING cachebatch (k);
	INSERT INTO unlogged SELECT i, i FROM generate_series(1, 500) i));
sound($node, $_, ['k'], "$_ before the crash") foreach qw(made late cut unlogged);
crash_restart($node);
is($node->safe_psql('postgres', "SELECT count(*) FROM $_->[0]"), $_->[1], "rows of $_->[0]")
  foreach [ made => 2021 ], [ late => 2001 ], [ cut => 101 ], [ unlogged => 0 ];
sound($node, $_, ['k'], "$_ after the crash") foreach qw(made late cut unlogged);
$node->safe_psql('postgres', "INSERT INTO $_ SELECT i, i FROM generate_series(1, 900) i")
  foreach qw(made late cut unlogged);
crash_restart($node);
sound($node, $_, ['k'], "$_ after another crash") foreach qw(made late cut unlogged);

done_testing();
