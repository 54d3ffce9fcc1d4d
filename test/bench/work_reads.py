"""Reads, and reads mixed with writes, on 5 million rows in memory, 1 index.

point        one row by its key
range-100    100 rows from a random key on, in order
any-100      100 rows, = ANY of an array
index-only   1000 keys from a random one on, in order, from the index alone
mixed        point look-ups and 1-row INSERTs, half and half
update       UPDATE of an indexed column by the row's id, 4 indexes

The first four with nothing pending ("empty"), and with a pool, or without one
a journal, that inserts have filled just before ("full").
"""

import data
import drive
from work_ingest import INSERT1

KEY = data.key("uniform", 1, ":i::bigint")

QUERIES = {
    "point": f"\\set i random(1, :n)\nSELECT id FROM events WHERE k1 = {KEY};\n",
    "range-100": "\\set i random(1, :n)\n"
                 f"SELECT max(id) FROM (SELECT id FROM events WHERE k1 >= {KEY} "
                 "ORDER BY k1 LIMIT 100) s;\n",
    "any-100": "\\set i random(1, :n)\n"
               "SELECT max(id) FROM events WHERE k1 = ANY (ARRAY(SELECT "
               "hashint8extended(1 + (:i::bigint * 7919 + j * 104729) % :n::bigint, 1) "
               "FROM generate_series(1, 100) j));\n",
    "index-only": "\\set i random(1, :n)\n"
                  f"SELECT max(k1) FROM (SELECT k1 FROM events WHERE k1 >= {KEY} "
                  "ORDER BY k1 LIMIT 1000) s;\n",
}

UPDATE = """\\set i random(1, :n)
\\set new random(1, 4611686018427387903)
UPDATE events SET k1 = :new WHERE id = :i;
"""

# so that the queries are answered through the index or not at all
PLAN = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off"


class Reads:
    """Some of the queries, with an empty and with a full pool."""

    def __init__(self, bench, name, queries=None):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.queries = queries or list(QUERIES)
        self.methods = ["btree", "cachebatch"]
        if self.queries == ["point"] or queries is None:
            self.methods = ["btree", "hash", "cachebatch"]

    @staticmethod
    def names():
        return ["reads"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method)

    def run(self, method, repeat):
        env = self.bench.env
        cluster = self.bench.clone(self.template(method))
        cluster.start(env.settings(method, self.shape, **env.no_delay()))
        cluster.prewarm()
        found = self.measure(cluster, method, "empty")
        filled = self.bench.fill(cluster, self.shape, method, "reads")
        pending = cluster.journal_bytes("events_k1") if method == "cachebatch" else ""
        for one in self.measure(cluster, method, "full"):
            found.append(dict(one, filled=filled, pending_bytes=pending))
        self.bench.discard(cluster)
        return found

    def measure(self, cluster, method, state):
        found = []
        for name in self.queries:
            if method == "hash" and name != "point":
                continue
            tps, _ = drive.pgbench(cluster, [QUERIES[name]], seconds=self.bench.args.seconds,
                                   variables={"n": self.shape.rows}, options=PLAN)
            found.append({"workload": name, "state": state, "tps": tps})
        return found


class Mixed:
    """mixed and update: transactions a second and their latencies."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.methods = ["btree", "cachebatch", "unbuffered"]

    @staticmethod
    def names():
        return ["mixed", "update"]

    def template(self, method):
        if self.name == "mixed":
            return data.template(self.bench.env, self.shape, method)
        return data.template(self.bench.env, self.shape, method, count=4, with_id=True)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        cluster.prewarm()
        # its own variable, so that each script leaves the other's alone
        insert = INSERT1.format(columns=data.columns("uniform", "j", cheap=True)) \
            .replace(":i", ":new").replace("\\set i", "\\set new")
        scripts = [QUERIES["point"], insert] if self.name == "mixed" else [UPDATE]
        measure = drive.Measure(cluster)
        tps, times = drive.pgbench(
            cluster, scripts, seconds=self.bench.args.seconds, log=True, options=PLAN,
            variables={"n": self.shape.rows, "new": 2_000_000_000})
        cluster.flush()
        found = measure.stop(max(1, len(times)))
        self.bench.discard(cluster)
        return [dict(found, tps=tps, **drive.latencies(times))]
