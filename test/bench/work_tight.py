"""Servers confined by the memory controller, data several times their memory.

tight-ingest-N   N 1 or 4 indexes of random bigints, 25 million rows, 192 or 512
                 MB: batches of 10,000 rows from two clients; then 1-row INSERTs
                 from two (insert1); as many a second as btree can take, too
                 (insert1-paced); then batches from one and point look-ups from
                 another (look-ups); the same beside as many rows a second as
                 btree can take, too (look-ups-paced).  heap is the floor: a new
                 table without an index takes the rows, and the look-ups use
                 btree's index of the old one, which nothing is inserted into
tight-zipf-N     point look-ups of zipfian rows (theta 0.99) and 1-row INSERTs of
                 random keys, half and half; an eighth of btree's indexes as
                 memory; 50 million rows with 1 index, 25 with 4; heap as before.
                 Before that the same, untimed, for as long, till caches hold
                 what such work leaves in them, and the range buffers that
                 batches have filled are merged
tight-grid       point look-ups of zipfian rows, theta 0.5 to 1.5, all of the
                 statements, 90 or 50 % of them, the others 1-row INSERTs of random
                 keys; table and btree's index as large as memory, 2, 4 and 8 times
                 ("8x 0.99 90%"); and look-ups from the index alone.  Half as long
                 untimed before each.  25 million rows
tight-grid-cold  the same with all of our index packed before, and cold_threshold 1 %
tight-pair       look-ups of zipfian rows (theta 0.99) by two columns, from the index
                 alone, which is eight times the memory; batches before, and the same,
                 untimed, for as long
tight-cpu-M      server CPU of batches, two pools of entries at most, with M (1
                 or 100) million rows to begin with, 1 index, 192 MB
tight-cold       first reads of ranges of the key, from the index alone, all of it
                 packed before: of 0.01 % and of 1 % of the rows; its size
tight-hot        look-ups, from the index alone, in a hundredth of the keys' range,
                 with cold_threshold off, and with workers packing the others,
                 nine times in turn
tight-vacuum-K   VACUUM after DELETE of the last hundredth of the rows, the index
                 packed before; K uniform or ascending keys

Memory is that of the whole server and of the operating system's cache of its
files.  Seven tenths of the rows are there when the indexes are made; the others
are inserted then, by a server with the same buffers as the measured one but not
confined, so trees and buffers are settled.  Only tight-grid, tight-pair,
tight-cold, tight-hot and tight-vacuum have been vacuumed after that, and nothing
is flushed but by the server itself.  Each measured server starts from a copy with nothing cached.
Before ingest it takes batches, untimed, for a third of --seconds, or longer if
those are less than two pools.  Beside the figures of all workloads there are
data_x and index_x (heap and indexes, and indexes alone, by the memory) and, a
row, what cache_batch_stat_indexes counts: flushed, applied, leaf_visits, spilled.
These workloads need root and cgroup v1.

"""

import statistics
import threading
import time

import data
import drive
from server import MB, OURS, parallel
from work_reads import first_reads
from work_upkeep import used_bytes

PAIR = ["btree", "cachebatch"]
SETTLED = 0.3       # part of the rows that is inserted into the indexes
LIFE = 60           # MB that a server with small buffers needs
BTREE_ENTRY = 28    # bytes of btree's pages an entry, settled

POINT = (f"\\set i random(1, :n)\nSELECT id FROM {{table}} WHERE k1 = "
         f"{data.key('uniform', 1, ':i::bigint')};\n")
HOT = ("\\set k random(0, 144115188075855872)\n"
       "SELECT k1 FROM events WHERE k1 >= :k ORDER BY k1 LIMIT 1;\n")
# ranks of zipfian rows: Gray's generator, and pgbench's, which has it above 1 only
GRAY = """\\set u random(0, 999999999) / 1000000000.0
\\set r case when :u * :zeta < 1 then 1 when :u * :zeta < :second then 2 \\
else 1 + int(:n * pow(:eta * :u - :eta + 1, :alpha)) end
"""
STEEP = "\\set r random_zipfian(1, :n, :theta)\n"
# a multiplication spreads the ranks over the table
RANKED = f"""\\set z 1 + :r * 2654435761 % :n
SELECT {{what}} FROM {{table}} WHERE k1 = {data.key('uniform', 1, ':z::bigint')}{{more}};
"""
THETA = 0.99
HOT_TURNS = 9
PLAN = "-c enable_seqscan=off -c enable_bitmapscan=off"

# beside those of all servers
SETTINGS = {"checkpoint_timeout": "5min", "maintenance_work_mem": "16MB",
            "max_connections": "20"}
FAST = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "4GB",
        "checkpoint_timeout": "1h"}


class Shape(data.Shape):
    """Rows, keys of `count` indexes k1 to kN, and MB of memory at scale 1; unique
    is "UNIQUE" or nothing, more what else each index has."""

    def __init__(self, rows, memory, count, scale, keys="uniform", unique="", more=""):
        super().__init__("tight", rows, 0, max(96, int(1024 * scale)), scale)
        self.unique = unique
        self.more = more
        self.count = count
        self.distribution = keys
        self.memory = int(LIFE + (memory - LIFE) * scale)
        self.shared_buffers = self.memory // 4 * MB

    def keys(self, i):
        return ", ".join(data.key(self.distribution, c, i) for c in range(1, self.count + 1))

    def rows_sql(self, first, rows):
        return (f"INSERT INTO events SELECT i, {self.keys('i')} "
                f"FROM generate_series({first}::bigint, {first + rows - 1}) i")

    def text(self):
        """For the report's header."""
        return (f"{self.rows} rows, {self.count} x {self.distribution}, {self.memory} MB "
                f"(shared_buffers {self.shared_buffers // MB}, pool {self.pool / MB:.3g})")


def ingest_shape(bench, count):
    """Of tight-ingest-N and tight-replay-N."""
    return Shape(25_000_000, {1: 192, 4: 512}[count], count, bench.args.tight_scale)


def header(bench, workloads):
    """(name, value) pairs about the confinement."""
    where = (f"cgroup v1 memory controller ({bench.group.directory})" if bench.group
             else "NOT AT ALL")
    return {
        "confined": f"{where}; tight scale {bench.args.tight_scale}, "
                    f"{bench.args.tight_seconds} s a phase; "
                    + "; ".join(f"{w.name}: {w.shape.text()}" for w in workloads),
        "written": "write_bytes less cancelled_write_bytes of /proc/PID/io of all server "
                   "processes, from a checkpoint to a checkpoint",
    }


def template(env, shape, method, kept=""):
    """Key and builder of a cluster with the shape's rows and indexes, settled.

    kept: "vacuumed", or "compacted": that and packed as well.
    """
    key = ("tight", method, shape.distribution, shape.count, shape.rows) \
        + ((kept,) if kept else ()) + (("unique",) if shape.unique else ()) + (("pair",) if shape.more else ())
    return key, lambda cluster: build(env, cluster, shape, method, kept)


def build(env, cluster, shape, method, kept):
    ready = int(shape.rows * (1 - SETTLED)) // data.BATCH * data.BATCH
    cluster.start(env.settings(method, shape, **dict(FAST, shared_buffers="2GB")))
    if method in OURS:
        cluster.sql("CREATE EXTENSION cache_batch")
    columns = [f"k{c}" for c in range(1, shape.count + 1)]
    cluster.sql("CREATE TABLE events (id bigint, "
                + ", ".join(f"{k} bigint" for k in columns) + ")")
    insert(cluster, shape, 1, ready)
    if method != "heap":
        parallel(2, columns, lambda db, k: db.cursor().execute(
            f"CREATE {shape.unique} INDEX events_{k} ON events USING {method} ({k}{shape.more})"), cluster.connect)
    cluster.sql("VACUUM (FREEZE, ANALYZE) events")
    cluster.stop()
    # btree's trees come out the same whatever the buffers
    more = FAST if method == "cachebatch" else dict(FAST, shared_buffers="2GB")
    cluster.start(env.settings(method, shape, **more))
    insert(cluster, shape, ready + 1, shape.rows - ready)
    if method == "cachebatch" and not kept:
        data.drain(cluster)
    counted = counters(cluster)
    if counted:
        print("    settled:", ", ".join(f"{n} {v}" for n, v in counted.items()), flush=True)
    if kept:
        cluster.sql("VACUUM (FREEZE, ANALYZE) events")
    if kept == "compacted" and method == "cachebatch":
        for k in columns:
            cluster.sql(f"SELECT cache_batch_compact('events_{k}')")
    cluster.stop()


def insert(cluster, shape, first, rows):
    """Rows first .. first + rows - 1, by two clients."""
    starts = range(first, first + rows, data.BATCH)
    parallel(drive.CLIENTS, starts, lambda db, start: db.cursor().execute(
        shape.rows_sql(start, min(data.BATCH, first + rows - start))), cluster.connect)


def counters(cluster):
    """What the extension has counted of flushes, of all indexes together."""
    if not cluster.indexes(ours=True):
        return {}
    return cluster.sql(
        "SELECT jsonb_object_agg(key, n) FROM (SELECT key, sum(value::bigint) AS n "
        "FROM cache_batch_stat_indexes s, jsonb_each(to_jsonb(s)) "
        "WHERE key IN ('flushed', 'applied', 'leaf_visits', 'spilled') "
        "AND jsonb_typeof(value) = 'number' GROUP BY key) s")


class Feed:
    """Batches of new rows for one cluster; each number is used once."""

    def __init__(self, cluster, shape, repeat=0):
        self.cluster = cluster
        self.shape = shape
        self.next = shape.rows + 1 + repeat * 10 ** 10
        self.lock = threading.Lock()

    def take(self, rows):
        """The first of that many row numbers."""
        with self.lock:
            self.next += rows
            return self.next - rows

    def run(self, seconds, clients=drive.CLIENTS, rows=10 ** 9, batch=data.BATCH, pause=0):
        """Batches for some time, or until there were that many rows; how long
        each took.  With a pause (seconds) they begin no sooner after each other."""
        until = time.monotonic() + seconds
        last = self.next + rows
        taken, errors = [], []

        def client():
            try:
                db = self.cluster.connect()
                while not errors and time.monotonic() < until and self.next < last:
                    began = time.monotonic()
                    db.cursor().execute(self.shape.rows_sql(self.take(batch), batch))
                    taken.append(time.monotonic() - began)
                    time.sleep(max(0, pause - taken[-1]))
                db.close()
            except Exception as error:          # raised again by the main thread
                errors.append(error)

        threads = [threading.Thread(target=client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return taken


class Tight:
    """What the workloads share: a confined server and its measured phases."""

    kept = ""
    floor_has = "heap"          # what the heap method's copy was made with

    def __init__(self, bench, name, shape):
        self.name = name
        self.bench = bench
        self.methods = PAIR
        self.seconds = bench.args.tight_seconds
        self.shape = shape

    def template(self, method):
        return template(self.bench.env, self.shape,
                        self.floor_has if method == "heap" else method, self.kept)

    def run(self, method, repeat):
        """The phases; if the server died for want of memory, says so."""
        try:
            return self.phases(method, repeat)
        except Exception:
            self.check()
            raise

    def start(self, method, **more):
        """A copy of the template, confined, with nothing in any cache."""
        cluster = self.bench.clone(self.template(method))
        self.confine(cluster, method, **more)
        return cluster

    def confine(self, cluster, method, **more):
        if not self.bench.group:
            raise RuntimeError(f"{self.name} needs root and the cgroup v1 memory controller")
        cluster.group = self.bench.group
        cluster.evict()
        cluster.group.limit(self.shape.memory)
        cluster.start(self.bench.env.settings(method, self.shape, **dict(SETTINGS, **more)))

    def size(self, cluster):
        """Heap and indexes, and indexes alone, by the server's memory."""
        return {name: cluster.sql(f"SELECT {what}('events')") / (self.shape.memory * 2 ** 20)
                for name, what in (("data_x", "pg_total_relation_size"),
                                   ("index_x", "pg_indexes_size"))}

    def warm(self, feed):
        """Batches until caches and pool are as they will be."""
        least = 2 * self.shape.pool * 1024 // (data.ENTRY * self.shape.count)
        began = feed.next
        for _ in range(4):
            feed.run(self.seconds / 3)
            if feed.next - began >= least:
                break

    def end(self, cluster):
        self.check()
        self.bench.discard(cluster)

    def check(self):
        if self.bench.group and self.bench.group.killed():
            raise RuntimeError("the server had too little memory: a process was killed")


def set_aside(cluster):
    """Rows go to a new table without indexes from now on; the old one's name."""
    cluster.sql("ALTER TABLE events RENAME TO earlier; CREATE TABLE events (LIKE earlier)")
    return "earlier"


class Ingest(Tight):
    """Batches, single rows, batches beside look-ups."""

    floor_has = "btree"

    def __init__(self, bench, name):
        count = int(name.split("-")[2])
        super().__init__(bench, name, ingest_shape(bench, count))
        self.methods = ["heap"] + PAIR
        self.table = "events"       # that look-ups read

    @staticmethod
    def names():
        return ["tight-ingest-1", "tight-ingest-4"]

    def phases(self, method, repeat):
        return self.floor() if method == "heap" else self.indexed(method)

    def floor(self):
        """What the machine and the heap alone let through."""
        cluster = self.start("heap")
        self.table = set_aside(cluster)
        feed = Feed(cluster, self.shape)
        self.warm(feed)
        found = [self.batches(feed), dict(self.single(feed), state="insert1"),
                 dict(self.lookups(feed), state="look-ups")]
        self.table = "events"
        self.end(cluster)
        return found

    def indexed(self, method):
        cluster = self.start(method)
        feed = Feed(cluster, self.shape)
        self.warm(feed)
        found = [dict(self.batches(feed), **self.size(cluster)), dict(self.single(feed), state="insert1"),
                 dict(self.single(feed, 4000 // self.shape.count), state="insert1-paced"),
                 dict(self.lookups(feed), state="look-ups"),
                 dict(self.lookups(feed, batch=1000, pause=0.25 * self.shape.count),
                      state="look-ups-paced")]
        self.end(cluster)
        return found

    def batches(self, feed):
        found, taken = measured(feed, lambda: feed.run(self.seconds))
        return dict(found, longest_batch_ms=max(taken) * 1000)

    def single(self, feed, rate=None):
        """1-row INSERTs, committed asynchronously."""
        feed.cluster.sql("CHECKPOINT")
        tps, times = drive.pgbench(feed.cluster, [insert1(self.shape)], {"i": feed.take(10 ** 8)},
                                   self.seconds, log=True, rate=rate)
        return dict(drive.latencies(times), tps=tps)

    def lookups(self, feed, **batches):
        """Look-ups a second beside one client's batches, and the rate of these."""
        feed.cluster.sql("CHECKPOINT")
        side = threading.Thread(target=lambda: feed.run(self.seconds, 1, **batches))
        first, began = feed.next, time.monotonic()
        side.start()
        tps, times = drive.pgbench(feed.cluster, [POINT.format(table=self.table)],
                                   {"n": self.shape.rows}, self.seconds, log=True, options=PLAN, clients=1)
        side.join()
        found = {"rows_per_s": (feed.next - first) / (time.monotonic() - began)}
        return dict(found, **drive.latencies(times), tps=tps)


def insert1(shape):
    """pgbench script: one row, numbered from :i + 2 on."""
    return ("\\set i :i + 2\n\\set j :i + :client_id\nINSERT INTO events SELECT j, "
            f"{shape.keys('j')} FROM (VALUES (:j::bigint)) AS v(j);\n")


def measured(feed, work):
    """Figures of the rows that `work` takes from the feed, and its result."""
    cluster = feed.cluster
    cluster.sql("CHECKPOINT")
    first, counted, (read, written) = feed.next, counters(cluster), cluster.disk_bytes()
    measure = drive.Measure(cluster)
    result = work()
    rows = feed.next - first
    found = measure.stop(rows)
    cluster.sql("CHECKPOINT")
    after = cluster.disk_bytes()
    for name, value in counters(cluster).items():
        found[name] = (value - counted[name]) / rows
    return dict(found, read_per_row=(after[0] - read) / rows,
                written_per_row=(after[1] - written) / rows), result


class Zipf(Tight):
    """Zipfian look-ups and single rows, indexes eight times the memory."""

    floor_has = "btree"

    def __init__(self, bench, name):
        count = int(name.split("-")[2])
        rows = {1: 50_000_000, 4: 25_000_000}[count]
        memory = rows * BTREE_ENTRY * count // 8 // 2 ** 20
        super().__init__(bench, name, Shape(rows, memory, count, bench.args.tight_scale))
        self.methods = ["heap"] + PAIR

    @staticmethod
    def names():
        return ["tight-zipf-1", "tight-zipf-4"]

    def phases(self, method, repeat):
        cluster = self.start(method)
        feed = Feed(cluster, self.shape)
        table = set_aside(cluster) if method == "heap" else "events"
        self.warm(feed)
        self.mix(feed, table, self.seconds)
        cluster.sql("CHECKPOINT")
        size = self.size(cluster)
        tps, times = self.mix(feed, table, self.seconds)
        self.end(cluster)
        return [dict(drive.latencies(times), tps=tps, **size)]

    def mix(self, feed, table, seconds):
        return zipfian(feed, [look_up(THETA, "id", table), insert1(self.shape)], THETA, seconds)


def look_up(theta, what, table="events", more=""):
    """pgbench script: a row by its key, and more, for zipfian()."""
    return (GRAY if theta < 1 else STEEP) + RANKED.format(what=what, table=table, more=more)


def zipfian(feed, scripts, theta, seconds):
    """Runs scripts of look_up() and insert1() in turn: as drive.pgbench()."""
    n = feed.shape.rows
    variables = {"i": feed.take(10 ** 8), "n": n, "theta": theta}
    if theta < 1:
        variables.update(zeta=zeta(n, theta), second=zeta(2, theta), alpha=1 / (1 - theta),
                         eta=(1 - (2 / n) ** (1 - theta)) / (1 - zeta(2, theta) / zeta(n, theta)))
    return drive.pgbench(feed.cluster, scripts, seconds=max(1, int(seconds)), log=True,
                         options=PLAN, variables=variables)


def zeta(n, theta):
    """Sum of 1 / i ^ theta, below 1, up to n; from 1000 on by its integral."""
    exact = min(n, 1000)
    head = sum(i ** -theta for i in range(1, exact + 1))
    return head + (n ** (1 - theta) - exact ** (1 - theta)) / (1 - theta) \
        + (n ** -theta - exact ** -theta) / 2


GRID_ROW = 72       # bytes of the table and of btree's pages a row


class Grid(Tight):
    """DeBrabant's: data of several times the memory, and how unequally rows are wanted."""

    kept = "vacuumed"
    settings = {}       # of cachebatch's server

    def __init__(self, bench, name):
        super().__init__(bench, name, self.of_memory(bench, data.GRID_SIZES[-1]))

    @staticmethod
    def names():
        return ["tight-grid"]

    def of_memory(self, bench, size):
        rows = 25_000_000
        return Shape(rows, LIFE + rows * GRID_ROW // size // 2 ** 20, 1, bench.args.tight_scale)

    def phases(self, method, repeat):
        found = []
        for size in data.GRID_SIZES:
            self.shape = self.of_memory(self.bench, size)
            cluster = self.start(method, **(self.settings if method == "cachebatch" else {}))
            feed = Feed(cluster, self.shape)
            self.read_all(cluster)
            for _, theta, reads, state in (cell for cell in data.grid_cells() if cell[0] == size):
                scripts = reads * [look_up(theta, "id")] + (10 - reads) * [insert1(self.shape)]
                found.append(self.cell(feed, scripts, theta, state))
            if size == data.GRID_SIZES[-1]:
                found.append(self.cell(feed, [look_up(0.99, "k1")], 0.99, data.GRID_INDEX_ONLY))
            self.end(cluster)
        return found

    def read_all(self, cluster):
        """The table and its index, once, in their order."""
        cluster.sql("SELECT sum(id) FROM events")
        cluster.sql("SELECT count(k1) FROM events", PLAN)

    def cell(self, feed, scripts, theta, state):
        """Half as long untimed before it."""
        zipfian(feed, scripts, theta, self.seconds / 2)
        tps, times = zipfian(feed, scripts, theta, self.seconds)
        return dict(drive.latencies(times), tps=tps, state=state)


class GridCold(Grid):
    """The same with all leaves packed before, and by workers where they become cold."""

    kept = "compacted"
    settings = {"cache_batch.cold_threshold": "1%"}

    @staticmethod
    def names():
        return ["tight-grid-cold"]


class Pair(Tight):
    """Zipfian look-ups by two columns, which have all, the index eight times the memory."""

    kept = "vacuumed"

    def __init__(self, bench, name):
        rows = 25_000_000
        super().__init__(bench, name, Shape(rows, rows * (BTREE_ENTRY + 8) // 8 // 2 ** 20, 1,
                                            bench.args.tight_scale, more=", id"))

    @staticmethod
    def names():
        return ["tight-pair"]

    def phases(self, method, repeat):
        cluster = self.start(method)
        feed = Feed(cluster, self.shape)
        self.warm(feed)
        scripts = [look_up(THETA, "id", more=" AND id = :z")]
        zipfian(feed, scripts, THETA, self.seconds)
        tps, times = zipfian(feed, scripts, THETA, self.seconds)
        self.end(cluster)
        return [dict(drive.latencies(times), tps=tps)]


class Cpu(Tight):
    """Server CPU a row; the figure of an entry is made in the report."""

    def __init__(self, bench, name):
        self.millions = int(name.split("-")[2])
        super().__init__(bench, name, Shape(self.millions * 1_000_000, 192, 1,
                                            bench.args.tight_scale))
        if self.millions == 1:
            self.methods = ["heap"] + PAIR      # the floor, for both

    @staticmethod
    def names():
        return ["tight-cpu-1", "tight-cpu-100"]

    def phases(self, method, repeat):
        if self.millions == 1:
            cluster = self.start(method)
        else:
            # as much as it inserts is little: no copy
            cluster = self.bench.env.template(*self.template(method))
            self.confine(cluster, method)
        feed = Feed(cluster, self.shape, repeat)
        pool = self.shape.pool * 1024 // data.ENTRY
        feed.run(self.seconds, rows=pool)
        found, _ = measured(feed, lambda: feed.run(self.seconds, rows=2 * pool))
        if self.millions == 1:
            self.end(cluster)
        else:
            self.check()
            if method == "cachebatch":
                data.drain(cluster)
            cluster.stop()
        return [found]


class Cold(Tight):
    """Reads from disk, of an index all of which was packed; its size."""

    kept = "compacted"

    def __init__(self, bench, name):
        super().__init__(bench, name, Shape(25_000_000, 192, 1, bench.args.tight_scale))

    @staticmethod
    def names():
        return ["tight-cold"]

    def phases(self, method, repeat):
        cluster = self.start(method)
        found = [{"state": state, "first_query_ms": first_reads(cluster, share, repeat)}
                 for state, share in (("0.01 %", 1e-4), ("1 %", 1e-2))]
        size = cluster.sql("SELECT pg_relation_size('events_k1')")
        cold = used_bytes(cluster, "events_k1") if method == "cachebatch" else size
        self.end(cluster)
        return found + [{"state": "size", "index_bytes": size, "cold_bytes": cold}]


class Hot(Tight):
    """What workers that pack the cold leaves take from reads of hot ones."""

    kept = "vacuumed"

    def __init__(self, bench, name):
        super().__init__(bench, name, Shape(25_000_000, 192, 1, bench.args.tight_scale))
        self.methods = ["cachebatch"]

    @staticmethod
    def names():
        return ["tight-hot"]

    def phases(self, method, repeat):
        cluster = self.start(method, **{"cache_batch.heat_epoch": "1s",
                                        "cache_batch.max_delay": "1s"})
        feed = Feed(cluster, self.shape)
        drive.pgbench(cluster, [HOT], seconds=max(1, self.seconds // 3), options=PLAN)
        states = [("off", "off"), ("on", "1%")]
        tps = {state: [] for state, _ in states}
        compacted = dict.fromkeys(tps, 0)
        for turn in range(2 * HOT_TURNS):
            state, threshold = states[(turn + turn // 2 + repeat) % 2]
            cluster.sql(f"ALTER SYSTEM SET cache_batch.cold_threshold = '{threshold}'")
            cluster.sql("SELECT pg_reload_conf()")
            cluster.sql(self.shape.rows_sql(feed.take(100), 100))   # workers come to what is written
            before = self.compacted(cluster)
            tps[state].append(drive.pgbench(cluster, [HOT], options=PLAN,
                                            seconds=max(1, self.seconds // HOT_TURNS))[0])
            compacted[state] += self.compacted(cluster) - before
        self.end(cluster)
        return [{"state": state, "tps": statistics.median(tps[state]), "compacted": compacted[state]}
                for state in tps]

    def compacted(self, cluster):
        return cluster.sql("SELECT coalesce(sum(compacted), 0)::bigint FROM cache_batch_stat_indexes")


class Vacuum(Tight):
    """VACUUM with the newest rows dead."""

    kept = "compacted"

    def __init__(self, bench, name):
        super().__init__(bench, name, Shape(25_000_000, 192, 1, bench.args.tight_scale,
                                            name.split("-")[2]))

    @staticmethod
    def names():
        return ["tight-vacuum-uniform", "tight-vacuum-ascending"]

    def phases(self, method, repeat):
        cluster = self.start(method)
        pages = cluster.sql("SELECT pg_relation_size('events') / 8192")
        cluster.sql(f"DELETE FROM events WHERE ctid >= '({pages * 99 // 100},0)'")
        cluster.stop()
        self.confine(cluster, method)
        measure = drive.Measure(cluster)
        cluster.sql("VACUUM (PARALLEL 0, INDEX_CLEANUP ON) events")
        found = measure.stop(self.shape.rows)
        self.end(cluster)
        return [found]
