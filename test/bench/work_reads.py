"""Reads, and reads mixed with writes, on 5 million rows in memory, 1 index.

point        one row by its key
range-100    100 rows from a random key on, in order
any-100      100 rows, = ANY of an array
index-only   1000 keys from a random one on, in order, from the index alone
absent       500 keys that are not there, NOT EXISTS as a nested loop, from the index
             alone
max          the greatest key
point-zipf   one row by its key, of rows of which few are wanted often
near         one row for each of 100 neighbouring keys, a nested loop
first-reads  the first reads of 1 % of the keys, each of a range of its own, nothing
             in memory; the same when two pool-fulls wait in runs ("runs")
mixed        point look-ups and 1-row INSERTs, half and half
update       UPDATE of an indexed column by the row's id, 4 indexes
churn        UPDATE of a column without index by the primary key, 4 other
             indexes, autovacuum on, for 30 times --seconds: transactions a
             second, and bytes of the 4 indexes at the end
churn-key    the same, of one of the 4 indexed columns
grown        point and range-100 when COPY has filled an empty table just before
skip-100     one row by its key k, of an index on (a, k) where a has 100 values
skip-10000   the same, where it has 10,000
skip-any     ten rows by their keys = ANY, in the order of (a, k), where a has 100
             values
any-100-big  100 keys of 30 million, = ANY of an array, from the index alone,
             all of it in shared buffers, nothing pending

The first six with nothing pending ("empty"), and with a pool, or without one
a journal, that inserts have filled just before ("full"); absent and max also when
two pool-fulls have been written as runs ("runs").  A query can be named with one of
these states: absent-runs.  point-zipf and near are measured only where they are named.
"""

import random
import statistics
import time

import data
import drive
from work_ingest import Grow, INSERT1

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
    "absent": "SELECT count(*) FROM absent_keys a WHERE NOT EXISTS "
              "(SELECT 1 FROM events WHERE k1 = a.k);\n",
    "max": "SELECT max(k1) FROM events;\n",
    "point-zipf": "\\set i random_zipfian(1, :n, 1.1)\n"
                  f"SELECT id FROM events WHERE k1 = {KEY};\n",
    "near": "\\set i random(1, :n)\n"
            f"SELECT sum(e.id) FROM (SELECT k1 FROM events WHERE k1 >= {KEY} "
            "ORDER BY k1 LIMIT 100) a JOIN events e ON e.k1 = a.k1;\n",
}
NAMED = ("point-zipf", "near")  # measured only where they are asked for by name
RUNS = ("absent", "max")        # measured with range buffers, too
STATES = ("empty", "full", "runs")
SPILL = {"cache_batch.spill_threshold": "0", "cache_batch.spill_target": "1000"}

UPDATE = """\\set i random(1, :n)
\\set new random(1, 4611686018427387903)
UPDATE events SET k1 = :new WHERE id = :i;
"""

CHURN = {
    "churn": "\\set i random(1, :n)\n"
             "UPDATE events SET payload = lpad(:i::text, 60, random()::text) WHERE id = :i;\n",
    "churn-key": UPDATE,
}

SKIP = f"\\set i random(1, :n)\nSELECT id FROM skips WHERE k = {KEY};\n"
SKIP_ANY = ("\\set i random(1, :n)\nSELECT id FROM skips WHERE k = ANY (ARRAY(SELECT "
            + data.key("uniform", 1, "(1 + (:i::bigint * 7919 + j * 104729) % :n::bigint)")
            + " FROM generate_series(1, 10) j)) ORDER BY a, k;\n")

ARRAYS = 10_000
ANY_BIG = ("\\set i random(1, :arrays)\nSELECT count(k1) FROM events "
           "WHERE k1 = ANY ((SELECT keys FROM arrays WHERE i = :i)::bigint[]);\n")

# so that the queries are answered through the index or not at all
PLAN = "-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off"
LOOP = " -c enable_hashjoin=off -c enable_mergejoin=off -c enable_memoize=off -c enable_material=off"


def cases(name):
    """The (query, state) pairs that a name stands for, none if it is no query's."""
    if name in QUERIES:
        return [(name, state) for state in STATES if state != "runs" or name in RUNS]
    query, _, state = name.rpartition("-")
    return [(query, state)] if query in QUERIES and state in STATES else []


class Reads:
    """Some of the queries, each in some states."""

    def __init__(self, bench, name, pairs=None):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.pairs = pairs or [pair for q in QUERIES if q not in NAMED for pair in cases(q)]
        self.methods = ["btree", "cachebatch"]
        if not pairs or all(query == "point" for query, _ in pairs):
            self.methods = ["btree", "hash", "cachebatch"]

    @staticmethod
    def names():
        return ["reads"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method)

    def run(self, method, repeat):
        return self.run_without_runs(method) + self.run_with_runs(method)

    def queries(self, method, state):
        """Those to be measured in the state; hash is of use for points alone."""
        return [query for query, s in self.pairs if s == state and
                (method != "hash" or (query == "point" and state != "runs"))]

    def run_without_runs(self, method):
        if not self.queries(method, "empty") + self.queries(method, "full"):
            return []
        cluster = self.start(method)
        found = self.measure(cluster, method, "empty")
        if self.queries(method, "full"):
            filled = self.bench.fill(cluster, self.shape, method, "reads")
            pending = cluster.journal_bytes("events_k1") if method == "cachebatch" else ""
            for one in self.measure(cluster, method, "full"):
                found.append(dict(one, filled=filled, pending_bytes=pending))
        self.bench.discard(cluster)
        return found

    def start(self, method, **more):
        env = self.bench.env
        cluster = self.bench.clone(self.template(method))
        cluster.start(env.settings(method, self.shape, **env.no_delay(), **more))
        cluster.sql("CREATE TABLE absent_keys AS SELECT " + data.key("uniform", 1, "(-j)")
                    + " AS k FROM generate_series(1::bigint, 500) j")
        cluster.sql("VACUUM ANALYZE absent_keys")
        cluster.prewarm()
        return cluster

    def run_with_runs(self, method):
        ours = method == "cachebatch"
        if not self.queries(method, "runs") or \
                (ours and "cache_batch.spill_threshold" not in self.bench.env.known):
            return []
        cluster = self.start(method, **(SPILL if ours else {}))
        filled = data.fill_runs(self.bench.env, cluster, self.shape, ours and "events_k1")
        found = [dict(one, filled=filled) for one in self.measure(cluster, method, "runs")]
        self.bench.discard(cluster)
        return found

    def measure(self, cluster, method, state):
        found = []
        for name in self.queries(method, state):
            figures = drive.queries(cluster, QUERIES[name], self.bench.args.seconds,
                                    variables={"n": self.shape.rows}, options=PLAN + LOOP)
            found.append({"workload": name, "state": state, **figures})
        return found


class Grown(Grow):
    """Queries of an index that has grown from nothing, not flushed since."""

    @staticmethod
    def names():
        return ["grown"]

    def run(self, method, repeat):
        env = self.bench.env
        cluster = self.bench.clone(self.template(method))
        files = self.bench.files.get(self.keys, 1, self.shape.ingest_rows(self.count))
        cluster.start(env.settings(method, self.shape, **env.no_delay()))
        drive.copy_batches(cluster, files)
        cluster.sql("ANALYZE events")
        found = [dict(drive.queries(cluster, QUERIES[name], self.bench.args.seconds,
                                    variables={"n": len(files) * data.BATCH}, options=PLAN),
                      workload=f"{self.name}-{name}") for name in ("point", "range-100")]
        self.bench.discard(cluster)
        return found


def first_reads(cluster, share, repeat):
    """Median of the milliseconds that twenty ranges take, none read before."""
    db = cluster.connect(PLAN)
    cursor = db.cursor()
    times = []
    draw = random.Random(repeat)
    for n in range(21):
        # a place in each twenty-first of the keys' range; the first fills the catalogues' cache
        low = int(((n + draw.random() * (1 - 21 * share)) / 21 - 0.5) * 2 ** 64)
        began = time.monotonic()
        cursor.execute(f"SELECT count(k1) FROM events WHERE k1 >= {low} "
                       f"AND k1 < {low + int(share * 2 ** 64)}")
        times.append((time.monotonic() - began) * 1000)
    db.close()
    return statistics.median(times[1:])


class FirstReads:
    """Reads of what is not in memory, of the tree alone and with runs above it."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.methods = ["btree", "cachebatch"]

    @staticmethod
    def names():
        return ["first-reads"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method)

    def run(self, method, repeat):
        ours = method == "cachebatch"
        settings = self.bench.env.settings(method, self.shape, **(SPILL if ours else {}))
        cluster = self.bench.clone(self.template(method))
        found = [self.measure(cluster, settings, repeat)]
        data.fill(self.bench.env, cluster, self.shape, method,
                  2 * self.shape.pool * 1024 // data.ENTRY)
        if ours:
            data.drain(cluster)
        cluster.stop()
        found.append(dict(self.measure(cluster, settings, repeat), state="runs"))
        self.bench.discard(cluster)
        return found

    def measure(self, cluster, settings, repeat):
        cluster.evict()
        cluster.start(settings)
        return {"first_query_ms": first_reads(cluster, 0.01, repeat)}


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


class Churn:
    """Updates for ten minutes: what row versions do to the indexes."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.methods = ["btree", "cachebatch"]

    @staticmethod
    def names():
        return list(CHURN)

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, count=4, primary_key=True)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape, autovacuum="on"))
        cluster.prewarm()
        measure = drive.Measure(cluster)
        args = self.bench.args
        tps, times = drive.pgbench(
            cluster, [CHURN[self.name]], seconds=(3 if args.quick else 30) * args.seconds,
            log=True, options=PLAN, variables={"n": self.shape.rows})
        cluster.flush()
        found = measure.stop(max(1, len(times)))
        size = int(cluster.sql("SELECT sum(pg_relation_size(indexrelid)) FROM pg_index "
                               "WHERE indrelid = 'events'::regclass AND NOT indisprimary"))
        self.bench.discard(cluster)
        return [dict(found, tps=tps, index_bytes=size, **drive.latencies(times))]


class Skip:
    """Queries of an index without a condition on its first column."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.leading = 100 if name == "skip-any" else int(name.split("-")[1])
        self.methods = ["btree", "cachebatch"]

    @staticmethod
    def names():
        return ["skip-100", "skip-10000", "skip-any"]

    def template(self, method):
        return ("skips", self.shape.rows, method, self.leading), \
            lambda cluster: self.build(cluster, method)

    def build(self, cluster, method):
        cluster.start(self.bench.env.settings(method, self.shape, fsync="off"))
        if method != "btree":
            cluster.sql("CREATE EXTENSION cache_batch")
        cluster.sql(f"CREATE TABLE skips AS SELECT (i % {self.leading})::int AS a, "
                    + data.key("uniform", 1, "i") + " AS k, i AS id "
                    f"FROM generate_series(1::bigint, {self.shape.rows}) i")
        cluster.sql(f"CREATE INDEX skips_a_k ON skips USING {method} (a, k)")
        cluster.sql("VACUUM ANALYZE skips")
        cluster.stop()

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        cluster.prewarm()
        found = drive.queries(cluster, SKIP_ANY if self.name == "skip-any" else SKIP,
                              self.bench.args.seconds, variables={"n": self.shape.rows},
                              options=PLAN)
        self.bench.discard(cluster)
        return [found]


class AnyBig:
    """= ANY of many keys, index-only, with everything in shared buffers."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.big.with_all_in_buffers()
        self.methods = ["btree", "cachebatch"]

    @staticmethod
    def names():
        return ["any-100-big"]

    def template(self, method):
        return data.template(self.bench.env, self.bench.big, method)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        # made before, so that the query does little else than look keys up
        cluster.sql(
            "CREATE TABLE arrays AS SELECT i, array_agg("
            + data.key("uniform", 1, f"(1 + (i * 7919 + j * 104729) % {self.shape.rows})")
            + f") AS keys FROM generate_series(1, {ARRAYS}::bigint) i, generate_series(1, 100) j "
            "GROUP BY i")
        cluster.sql("CREATE UNIQUE INDEX arrays_i ON arrays USING btree (i)")
        cluster.sql("VACUUM ANALYZE arrays")
        # asynchronous commits just before the template's VACUUM hid their rows from it
        cluster.sql("VACUUM events")
        cluster.prewarm()
        self.check(cluster)
        found = drive.queries(cluster, ANY_BIG, self.bench.args.seconds,
                              variables={"arrays": ARRAYS}, options=PLAN)
        self.bench.discard(cluster)
        return [dict(found, query_us=drive.CLIENTS * 1e6 / found["tps"])]

    def check(self, cluster):
        """All of it is found, in the index, and is in shared buffers."""
        db = cluster.connect(PLAN)
        cursor = db.cursor()
        for _ in range(2):      # the first one reads the visibility map
            cursor.execute("EXPLAIN (ANALYZE, BUFFERS) "
                           + ANY_BIG.split("\n")[1].replace("= :i", "= 1"))
        plan = "\n".join(row[0] for row in cursor.fetchall())
        db.close()
        for wanted in ("Index Only Scan using events_k1", "rows=100 loops=1", "Heap Fetches: 0\n"):
            if wanted not in plan:
                raise RuntimeError(f"not {wanted.strip()}:\n{plan}")
        if " read=" in plan.split("Planning")[0]:
            raise RuntimeError(f"not all in shared buffers:\n{plan}")
