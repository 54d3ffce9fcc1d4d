"""Serializable transactions that fail though nothing has gone wrong.

serializable-point, serializable-range
             8 sessions, for --seconds, each transaction SERIALIZABLE: looks one
             random key up, which is hardly ever there, or 5 rows beside a random
             key, and inserts a row with another random key, into 20 000 rows and
             what was added; transactions a second, and of 1 000 how many failed.
             Hardly one of them has to: what counts is the ratio to btree's
"""

import drive

SESSIONS = 8
ROWS = 20_000
KEYS = 2 ** 30
FOUND = 5           # rows of a range

READS = {"serializable-point": "k = :read",
         "serializable-range": f"k BETWEEN :read AND :read + {FOUND * KEYS // ROWS}"}

SCRIPT = """\\set read random(0, {keys})
\\set write random(0, {keys})
BEGIN;
SELECT count(id) FROM serial WHERE {reads};
INSERT INTO serial VALUES (0, :write);
END;
"""

OPTIONS = ("-c default_transaction_isolation=serializable -c enable_seqscan=off "
           "-c enable_bitmapscan=off")


class Serializable:
    """Reads and writes of random keys."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.methods = ["btree", "cachebatch"]

    @staticmethod
    def names():
        return list(READS)

    def template(self, method):
        return ("serializable", method), lambda cluster: self.preload(cluster, method)

    def preload(self, cluster, method):
        cluster.start(self.bench.env.settings(method, self.bench.memory))
        if method == "cachebatch":
            cluster.sql("CREATE EXTENSION cache_batch")
        cluster.sql("CREATE TABLE serial (id bigint, k bigint) WITH (autovacuum_enabled = off)")
        cluster.sql(f"CREATE INDEX serial_k ON serial USING {method} (k)")
        cluster.sql(f"INSERT INTO serial SELECT i, hashint8extended(i, 1) & {KEYS - 1} "
                    f"FROM generate_series(1, {ROWS}) i")
        if method == "cachebatch":
            cluster.sql("SELECT cache_batch_flush('serial_k')")
        cluster.sql("VACUUM ANALYZE serial")
        cluster.stop()

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.bench.memory,
                                              max_pred_locks_per_transaction="1024"))
        failed = []
        tps, _ = drive.pgbench(cluster, [SCRIPT.format(keys=KEYS - 1, reads=READS[self.name])],
                               seconds=self.bench.args.seconds, clients=SESSIONS,
                               options=OPTIONS, failed=failed)
        self.bench.discard(cluster)
        return [{"tps": tps, "failed_per_1000": failed[0]}]
