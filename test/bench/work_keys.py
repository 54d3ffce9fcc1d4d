"""Keys of each kind, a fifth of the rows in memory, 1 index.

keys-KIND    KIND bigint, uuid, text (COLLATE "C"), icu (text of "en-x-icu"), numeric,
             timestamptz, pair (int, text), float8: one row by its key ("present"), none by
             one that is not there ("absent"), 100 rows from a random key on in order
             ("next"), and backward ("back")

Each with nothing pending ("empty"), with a pool that inserts have filled just before
("full"), and when two pool-fulls have been written as runs ("runs").
"""

import copy

import data
import drive
from work_reads import PLAN, SPILL

QUERIES = ("present", "absent", "next", "back")


def insert(kind, first, last):
    values = ", ".join(value.format(i="i") for _, value in data.KEY_KINDS[kind])
    return f"INSERT INTO keys SELECT i, {values} FROM generate_series({first}::bigint, {last}) i"


def query(kind, name):
    """The script of a query; those of a pair stay within its first column's value."""
    values = [value.format(i="(-(:i::bigint))" if name == "absent" else ":i::bigint")
              for _, value in data.KEY_KINDS[kind]]
    columns = [f"k{n + 1}" for n in range(len(values))]
    operator, direction = {"next": (">=", "ASC"), "back": ("<=", "DESC")}.get(name, ("=", None))
    where = " AND ".join([f"{c} = {v}" for c, v in zip(columns[:-1], values)]
                         + [f"{columns[-1]} {operator} {values[-1]}"])
    select = f"SELECT id FROM keys WHERE {where}"
    if direction:
        order = ", ".join(f"{c} {direction}" for c in columns)
        select = f"SELECT max(id) FROM ({select} ORDER BY {order} LIMIT 100) s"
    return f"\\set i random(1, :n)\n{select};\n"


class Keys:
    """All queries of one kind of keys, in all states."""

    def __init__(self, bench, name):
        self.name = name
        self.kind = name.split("-")[1]
        self.bench = bench
        self.shape = copy.copy(bench.memory)
        self.shape.rows //= 5
        self.methods = ["btree", "cachebatch"]

    @staticmethod
    def names():
        return [f"keys-{kind}" for kind in data.KEY_KINDS]

    def template(self, method):
        return ("keys", self.kind, self.shape.rows, method), \
            lambda cluster: self.build(cluster, method)

    def build(self, cluster, method):
        cluster.start(self.bench.env.settings(method, self.shape, fsync="off"))
        if method != "btree":
            cluster.sql("CREATE EXTENSION cache_batch")
        columns = [f"k{n + 1}" for n in range(len(data.KEY_KINDS[self.kind]))]
        cluster.sql("CREATE TABLE keys (id bigint, " + ", ".join(
            f"{name} {kind}" for name, (kind, _) in zip(columns, data.KEY_KINDS[self.kind])) + ")")
        cluster.sql(f"CREATE INDEX keys_k ON keys USING {method} ({', '.join(columns)})")
        for first in range(1, self.shape.rows + 1, 10 * data.BATCH):
            cluster.sql(insert(self.kind, first,
                               min(first + 10 * data.BATCH - 1, self.shape.rows)))
        cluster.flush()
        cluster.sql("VACUUM (FREEZE, ANALYZE) keys")
        cluster.sql("CHECKPOINT")
        cluster.stop()

    def run(self, method, repeat):
        cluster = self.start(method)
        found = self.measure(cluster, "empty")
        self.bench.fill(cluster, self.shape, method, self.name, self.insert)
        found += self.measure(cluster, "full")
        self.bench.discard(cluster)

        ours = method == "cachebatch"
        cluster = self.start(method, **(SPILL if ours else {}))
        data.fill_runs(self.bench.env, cluster, self.shape, ours and "keys_k", self.insert)
        found += self.measure(cluster, "runs")
        self.bench.discard(cluster)
        return found

    def insert(self, first, last):
        return insert(self.kind, first, last)

    def start(self, method, **more):
        env = self.bench.env
        cluster = self.bench.clone(self.template(method))
        cluster.start(env.settings(method, self.shape, **env.no_delay(), **more))
        cluster.prewarm()
        return cluster

    def measure(self, cluster, state):
        return [dict(drive.queries(cluster, query(self.kind, name), self.bench.args.seconds,
                                   variables={"n": self.shape.rows}, options=PLAN),
                     state=f"{state} {name}") for name in QUERIES]
