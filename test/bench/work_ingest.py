"""Ingest: COPY, 100-row and 1-row INSERT, into memory and into 30 M rows.

ingest-STATEMENT-N-KEYS   STATEMENT copy, insert100, insert1; N 1 or 4 indexes
                          (1 for uuid and text); KEYS uniform, zipfian,
                          ascending, uuid, text; 5 million rows preloaded
big-copy                  COPY into 30 million rows, 128 MB of shared buffers,
                          1 GB of WAL between checkpoints, 1 index
big-copy-pool128          the same with a pool of 128 MB; five pool-fulls are 33
                          million rows
big-insert1-async         1-row INSERT there, synchronous_commit off
big-insert1-sync          the same with synchronous_commit on; begins and ends
                          with a full pool, without the flush at the end
grow-copy                 COPY into an empty table with 1 index; beside the whole each
                          of 20 parts of it (of fewer, if these are less than 10 batches):
                          entries so far, size of the index, speed
grow-big                  the same, to 30 million rows, by INSERT of 10,000 rows a
                          statement, with the settings of big-copy
shards-copy               COPY into 5 million rows in 32 partitions by a hash of the
                          id, as a node of Citus has them, 4 indexes each
connect-insert1           1-row INSERTs into 5 million rows with 1 index, a
                          session for each; with a full pool
upsert-100                100-row INSERT ... ON CONFLICT DO NOTHING into 5
                          million rows with a btree primary key and 4 indexes;
                          no row conflicts

All but big-insert1-sync and connect-insert1 end with a flush of every index inside the time.
"""

import time

import data
import drive
import report
from server import parallel

ALL = ("heap", "btree", "hash", "cachebatch", "unbuffered")

INSERT1 = """\\set i :i + 2
\\set j :i + :client_id
INSERT INTO events SELECT {columns} FROM (VALUES (:j::bigint)) AS v(j);
"""

INSERT100 = """\\set i :i + 200
\\set j :i + 100 * :client_id
\\set last :j + 99
INSERT INTO events SELECT {columns} FROM generate_series(:j::bigint, :last::bigint) AS v(j);
"""


UPSERT100 = INSERT100.rstrip(";\n") + " ON CONFLICT DO NOTHING;\n"


class Ingest:
    """One statement, one number of indexes, one distribution of keys."""

    def __init__(self, bench, name):
        _, self.statement, count, self.keys = name.split("-")
        self.name = name
        self.bench = bench
        self.count = int(count)
        self.shape = bench.memory
        self.preloaded = self.shape.rows
        self.methods = [m for m in ALL if m != "hash" or
                        self.keys in ("uniform", "ascending")]

    @staticmethod
    def names():
        return [f"ingest-{statement}-{count}-{keys}"
                for statement in ("copy", "insert100", "insert1")
                for keys in data.COLUMNS for count in (1, 4)
                if count == 1 or keys not in ("uuid", "text", "urls", "few")]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, self.keys, self.count,
                             self.preloaded)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        first = self.preloaded + 1
        rows = self.shape.ingest_rows(self.count)
        if self.statement == "copy":
            files = self.bench.files.get(self.keys, first, rows)
        cluster.start(self.bench.env.settings(method, self.shape))
        cluster.prewarm()
        measure = drive.Measure(cluster)
        if self.statement == "copy":
            seconds = drive.copy_batches(cluster, files)
            rows = len(files) * data.BATCH
            extra = {"longest_batch_ms": max(seconds) * 1000}
        else:
            extra, rows = self.insert(cluster, first, rows)
        cluster.flush()
        found = measure.stop(rows)
        self.bench.discard(cluster)
        return [dict(found, **extra)]

    def insert(self, cluster, first, rows):
        each = 100 if self.statement == "insert100" else 1
        text = INSERT100 if each == 100 else INSERT1
        count = rows // each if each == 100 else rows // 8
        return insert(cluster, text, each, first, count, self.keys)


def insert(cluster, text, each, first, count, keys, options=""):
    """`count` statements of `each` rows: latencies, and how many rows."""
    count = max(2, count // 2 * 2)
    tps, times = drive.pgbench(
        cluster, [text.format(columns=data.columns(keys, "j", cheap=True))],
        variables={"i": first}, transactions=count, log=True, options=options)
    return dict(drive.latencies(times), tps=tps), count * each


class Grow:
    """Batches from nothing, with 1 index; how fast each of PARTS was, by when its last
    batch ended, so that no client waits for the other one between them."""

    PARTS = 20
    LEAST = 10      # batches of a part: their ends come in pairs, from two clients

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.copy = name == "grow-copy"
        self.shape = bench.memory if self.copy else bench.big
        self.keys = "uniform"
        self.methods = [m for m in ALL if self.copy or m in ("heap", "btree", "cachebatch")]

    @staticmethod
    def names():
        return ["grow-copy", "grow-big"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, rows=0)

    def statements(self):
        """One for each batch."""
        if self.copy:
            files = self.bench.files.get(self.keys, 1, self.shape.ingest_rows(1))
            return [f"COPY events FROM '{path}' (FORMAT binary)" for path in files]
        return ["INSERT INTO events "
                + data.rows_sql(self.keys, first, first + data.BATCH - 1, cheap=True)
                for first in range(1, self.shape.rows + 1, data.BATCH)]

    def run(self, method, repeat):
        statements = self.statements()
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        ends = []       # (seconds since the start, bytes of the index) of each batch

        def batch(db, statement):
            cursor = db.cursor()
            cursor.execute(statement)
            cursor.execute("SELECT pg_indexes_size('events')")
            ends.append((time.monotonic() - measure.start, cursor.fetchone()[0]))

        measure = drive.Measure(cluster)
        seconds = parallel(drive.CLIENTS, statements, batch, cluster.connect)
        cluster.flush()
        found = measure.stop(len(statements) * data.BATCH)
        self.bench.discard(cluster)
        return [dict(found, longest_batch_ms=max(seconds) * 1000)] + self.parts(ends)

    def parts(self, ends):
        """A record for each part: rows so far, and the rest of that part alone."""
        ends = [(0, 0)] + sorted(ends)
        count = max(1, min(self.PARTS, len(ends) // self.LEAST))
        bounds = [(len(ends) - 1) * n // count for n in range(count + 1)]
        found = []
        for n, (first, last) in enumerate(zip(bounds, bounds[1:]), 1):
            seconds = ends[last][0] - ends[first][0]
            found.append({"state": f"{report.STEP}{n}", "rows": last * data.BATCH,
                          "seconds": seconds, "index_bytes": ends[last][1],
                          "rows_per_s": (last - first) * data.BATCH / seconds})
        return found


class Shards(Ingest):
    """As ingest-copy-4-uniform, into many small indexes."""

    def __init__(self, bench, name):
        super().__init__(bench, "ingest-copy-4-uniform")
        self.name = name
        self.methods = ["heap", "btree", "cachebatch"]

    @staticmethod
    def names():
        return ["shards-copy"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, self.keys, self.count,
                             self.preloaded, shards=32)


class Connect:
    """Single rows of sessions that have not been at the index before."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.methods = ["heap", "btree", "cachebatch"]

    @staticmethod
    def names():
        return ["connect-insert1"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape, **self.bench.env.no_delay()))
        cluster.prewarm()
        filled = self.bench.fill(cluster, self.shape, method, self.name)
        tps, times = drive.pgbench(
            cluster, [INSERT1.format(columns=data.columns("uniform", "j", cheap=True))],
            variables={"i": self.shape.rows + 1}, seconds=self.bench.args.seconds, log=True,
            connect=True)
        self.bench.discard(cluster)
        return [dict(drive.latencies(times), tps=tps, filled=filled)]


class Upsert(Ingest):
    """As ingest-insert100-4-uniform, with a primary key that is asked first."""

    def __init__(self, bench, name):
        super().__init__(bench, "ingest-insert100-4-uniform")
        self.name = name
        self.methods = ["heap", "btree", "cachebatch", "unbuffered"]

    @staticmethod
    def names():
        return ["upsert-100"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, self.keys, self.count,
                             primary_key=True)

    def insert(self, cluster, first, rows):
        return insert(cluster, UPSERT100, 100, first, rows // 100, self.keys)


class Big:
    """30 million rows, an index much larger than shared buffers."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.big.with_pool(4) if name.endswith("-pool128") else bench.big
        self.methods = ["heap", "btree", "cachebatch", "unbuffered"]
        if name.startswith("big-insert1"):
            self.methods = ["heap", "btree", "cachebatch"]

    @staticmethod
    def names():
        return ["big-copy", "big-copy-pool128", "big-insert1-async", "big-insert1-sync"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        first = self.shape.rows + 1
        rows = self.shape.ingest_rows(1)
        copy = self.name.startswith("big-copy")
        if copy:
            # one more batch of a hundred goes first, untimed, to warm the caches
            warm = data.batches(rows // 100)
            files = self.bench.files.get("uniform", first, rows + warm * data.BATCH)
        cluster.start(self.bench.env.settings(method, self.shape))
        if copy:
            drive.copy_batches(cluster, files[:warm])
            cluster.flush()
            found = self.copy(cluster, files[warm:])
        else:
            found = self.insert(cluster, method, first, rows)
        self.bench.discard(cluster)
        return [found]

    def copy(self, cluster, files):
        measure = drive.Measure(cluster)
        seconds = drive.copy_batches(cluster, files)
        cluster.flush()
        found = measure.stop(len(files) * data.BATCH)
        return dict(found, longest_batch_ms=max(seconds) * 1000)

    def insert(self, cluster, method, first, rows):
        sync = self.name.endswith("-sync")
        if sync:
            self.bench.fill(cluster, self.shape, method, self.name)
        measure = drive.Measure(cluster)
        extra, done = insert(cluster, INSERT1, 1, first, rows // (40 if sync else 4), "uniform",
                             "-c synchronous_commit=" + ("on" if sync else "off"))
        if not sync:
            cluster.flush()
        return dict(measure.stop(done), **extra)
