"""A standby of the rows in memory: how soon it answers, and how fast it replays.

standby      4 indexes, 500,000 rows of the primary that wait above the tree
             (as many rows for btree): the very first query by an index, and the
             first of the next sessions ("first", "session"); look-ups, ranges of 100
             rows, 1,000 keys from the index alone ("point", "range-100",
             "index-only"); look-ups while the primary inserts 10,000 rows a second
             ("beside"); private memory of 100 sessions that have asked each index
             ("memory").  Both servers' pools have room for what waits.  btree's
             servers are up as well, and queries take turns of 2 seconds, --seconds
             in all
replay-N     N 1 or 4 indexes: a standby that was down replays what COPY has
             written meanwhile, read from disk: rows a second; "primary" is what
             the primary took meanwhile
tight-replay-N  the same of servers confined as those of tight-ingest-N, of what
             batches wrote in --seconds
restart-copy COPY into 4 indexes until as much waits as will, COPY, a crash with that, and
             COPY again, each after a checkpoint: rows a second, WAL a row, entries a
             visited leaf times the rows of the table, as larger indexes have more
             leaves ("before", "after"); then, with journals of 64 MB (bytes,
             "pending_bytes"), crashes, and behind each the first INSERT
             ("first-insert"), the first query ("first"), look-ups in the minute
             ("point")
"""

import os
import shutil
import time

import data
import drive
from work_crowd import Beside
from work_reads import PLAN, QUERIES
from work_tight import Feed, Tight, counters, ingest_shape, measured
from work_upkeep import Upkeep

WAITING = 500_000

# bytes of the pool for each entry that waits: of the standby's copy, and some more
ENTRY = 40

# times the rows of other workloads: a restart's sweep is a part of the first seconds
LONG = 4

# rows whose entries are journals of 64 MB
FILLING = 1_050_000

# seconds of look-ups after a crash
MINUTE = 60

SESSIONS = 100
INDEXES = 4

# the method whose servers are up as well, and seconds of queries before it is its turn
BESIDE = "btree"
TURN = 2

# of a row that waits, if there are any
LOOK_UP = "SELECT id FROM events WHERE k{0} = hashint8extended(2000000007, {0})"


def private_bytes(process):
    """Memory of a process that no other one shares, nor could: not the server's, of which
    a page is private, too, for the kernel as long as only one process has come to it."""
    found = 0
    with open(f"/proc/{process}/smaps") as f:
        for line in f:
            name, value = line.split()[:2]
            if not name.endswith(":"):
                counts = value.endswith("p")        # the mapping's flags
            elif counts and name.startswith("Private_"):
                found += int(value)
    return 1024 * found


class Archive:
    """A directory for a primary's WAL."""

    def __init__(self, env):
        self.directory = os.path.join(env.scratch, "archive")
        self.remove()
        os.mkdir(self.directory)
        self.end = None             # of what is in it

    def settings(self):
        return {"archive_mode": "on", "archive_command": f"cp %p {self.directory}/%f"}

    def restore(self):
        return {"restore_command": f"cp {self.directory}/%f %p"}

    def complete(self, primary):
        """Waits until it has all that the primary has written."""
        self.end = primary.sql("SELECT pg_current_wal_insert_lsn()")
        primary.sql("SELECT pg_switch_wal()")
        while not primary.sql("SELECT last_archived_wal >= pg_walfile_name("
                              f"'{self.end}') FROM pg_stat_archiver"):
            time.sleep(0.05)

    def replay(self, start, standby, rows):
        """Figures of a standby that starts, to the end of the archive."""
        began = time.monotonic()
        start()
        replayed(standby, self.end)
        seconds = time.monotonic() - began
        return {"rows": rows, "seconds": seconds, "rows_per_s": rows / seconds,
                "cpu_us_per_row": standby.cpu_seconds() * 1e6 / rows}

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def make_standby(env, template, place=0):
    """A stopped standby from the template; place: of which pair of servers."""
    standby = env.clone(env.template(*template), f"standby-{place}", env.port + 2 * place + 1)
    open(os.path.join(standby.directory, "standby.signal"), "w").close()
    return standby


def replayed(standby, end):
    """Waits until the standby has replayed the WAL up to there."""
    while not standby.sql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'"):
        time.sleep(0.02)


class Replicated(Upkeep):
    """A primary, and a standby that streams from it."""

    count = INDEXES

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, count=self.count)

    def settings(self, method, **more):
        """Of both: nothing leaves the buckets merely because of its age."""
        env = self.bench.env
        return env.settings(method, self.shape, wal_keep_size="8GB", **env.no_delay(), **more)

    def pair(self, method, place=0):
        """The two, stopped, from the same template; the standby with its signal."""
        env, template = self.bench.env, self.template(method)
        return (env.clone(env.template(*template), f"primary-{place}", env.port + 2 * place),
                make_standby(env, template, place))

    def look_up(self, cluster, column=1):
        """Milliseconds that a new session's first look-up takes."""
        return drive.first_query(cluster, LOOK_UP.format(column), PLAN)

    def look_ups(self, cluster, columns):
        """The median of these, each by a session of its own."""
        return drive.percentile(sorted(self.look_up(cluster, column) for column in columns), 0.5)

    def queries(self, cluster, name, seconds=None):
        return drive.queries(cluster, QUERIES[name], seconds or self.bench.args.seconds, options=PLAN,
                             variables={"n": self.shape.rows})


def record(method, state, **found):
    """Figures of the workload's method, or of the one beside it."""
    return dict(found, state=state, **({"method": method} if method == BESIDE else {}))


class Standby(Replicated):
    """What a standby answers while entries wait; btree's pair of servers is up, too."""

    def __init__(self, bench, name):
        super().__init__(bench, name)
        self.methods = ["cachebatch"]

    @staticmethod
    def names():
        return ["standby"]

    def run(self, method, repeat):
        methods = [method, BESIDE] if BESIDE in self.bench.args.methods else [method]
        pairs = [(m, *self.pair(m, place)) for place, m in enumerate(methods)]
        for pair in pairs:
            self.fill(*pair)
        found = []
        for m, _, standby in pairs:
            for state, columns in (("first", range(1, INDEXES + 1)), ("session", 10 * [1])):
                found.append(record(m, state, first_query_ms=self.look_ups(standby, columns)))
        for name in ("point", "range-100", "index-only"):
            found += self.in_turns(pairs, name)
        for m, primary, standby in pairs:
            found += [record(m, "memory", private_bytes=self.memory(standby)),
                      record(m, "beside", **self.beside(primary, standby))]
            self.bench.discard(standby)
            self.bench.discard(primary)
        return found

    def in_turns(self, pairs, name):
        """A query's figures, of each turn of a method's standby."""
        seconds = min(TURN, self.bench.args.seconds)
        return [record(m, name, **self.queries(standby, name, seconds))
                for turn in range(self.bench.args.seconds // seconds)
                for m, _, standby in (pairs[::-1] if turn % 2 else pairs)]

    def fill(self, method, primary, standby):
        """Starts both; the standby has replayed what waits."""
        waiting = max(1000, int(WAITING * self.bench.args.scale))
        still = self.still(waiting)
        primary.start(self.settings(method, **still))
        standby.start(self.settings(
            method, primary_conninfo=f"host={primary.env.sockets} port={primary.port} user=postgres",
            **still))
        standby.prewarm()
        data.fill(self.bench.env, primary, self.shape, method, waiting)
        replayed(standby, primary.sql("SELECT pg_current_wal_insert_lsn()"))

    def still(self, waiting):
        """Settings under which nothing is flushed: no worker, and room for what waits."""
        pool = max(4096, ENTRY * INDEXES * waiting // 1024)
        return {"cache_batch.max_workers": "0", "cache_batch.pool_size": f"{pool}kB"} \
            if "cache_batch.max_workers" in self.bench.env.known else {}

    def memory(self, cluster):
        """Private memory of sessions that have asked each index."""
        sessions = [cluster.connect(PLAN) for _ in range(SESSIONS)]
        try:
            processes = []
            for db in sessions:
                cursor = db.cursor()
                for column in range(1, INDEXES + 1):
                    cursor.execute(LOOK_UP.format(column))
                cursor.execute("SELECT pg_backend_pid()")
                processes.append(cursor.fetchone()[0])
            return sum(private_bytes(process) for process in processes)
        finally:
            for db in sessions:
                db.close()

    def beside(self, primary, standby):
        """Look-ups while the primary takes 1,000 rows each 100 ms."""
        first = 4_000_000_000
        began = time.monotonic()

        def step(cursor, n):
            time.sleep(max(0.0, began + 0.1 * n - time.monotonic()))
            cursor.execute("INSERT INTO events " + data.rows_sql(
                "uniform", first + 1000 * n, first + 1000 * n + 999))
            return 1000

        inserts = Beside(primary, step)
        found = self.queries(standby, "point")
        rows = sum(inserts.stop())
        found["rows_per_s"] = rows / (time.monotonic() - began)
        return found


class Replay(Replicated):
    """How fast a standby replays what a COPY wrote."""

    def __init__(self, bench, name):
        super().__init__(bench, name)
        self.count = int(name[-1])

    @staticmethod
    def names():
        return ["replay-1", "replay-4"]

    def run(self, method, repeat):
        files = self.bench.files.get("uniform", self.shape.rows + 1,
                                     self.shape.ingest_rows(self.count))
        rows = len(files) * data.BATCH
        archive = Archive(self.bench.env)
        primary, standby = self.pair(method)
        primary.start(self.settings(method, **archive.settings()))
        primary.prewarm()
        primary.sql("CHECKPOINT")
        measure = drive.Measure(primary)
        drive.copy_batches(primary, files)
        primary.flush()
        taken = measure.stop(rows)
        archive.complete(primary)
        primary.stop()
        found = archive.replay(
            lambda: standby.start(self.settings(method, **archive.restore())), standby, rows)
        self.bench.discard(standby)
        primary.remove()
        archive.remove()
        return [found, dict(taken, state="primary")]


class TightReplay(Tight):
    """The same with little memory."""

    def __init__(self, bench, name):
        super().__init__(bench, name, ingest_shape(bench, int(name[-1])))

    @staticmethod
    def names():
        return ["tight-replay-1", "tight-replay-4"]

    def phases(self, method, repeat):
        archive = Archive(self.bench.env)
        standby = make_standby(self.bench.env, self.template(method))
        most = {"max_connections": "100"}      # as the template's
        primary = self.start(method, **most, **archive.settings())
        feed = Feed(primary, self.shape)
        first = feed.next
        taken, _ = measured(feed, lambda: feed.run(self.seconds))
        archive.complete(primary)
        primary.stop()
        found = archive.replay(
            lambda: self.confine(standby, method, **most, **archive.restore()),
            standby, feed.next - first)
        self.end(standby)
        primary.remove()
        archive.remove()
        return [found, dict(taken, state="primary")]


class RestartCopy(Replicated):
    """What a crash does to the rows that come after it."""

    @staticmethod
    def names():
        return ["restart-copy"]

    def run(self, method, repeat):
        rows = LONG * self.shape.ingest_rows(self.count)
        filling = max(data.BATCH, int(FILLING * self.bench.args.scale))
        files = self.bench.files.get("uniform", self.shape.rows + 1, 3 * rows + filling)
        third = rows // data.BATCH
        primary = self.bench.clone(self.template(method))
        settings = self.bench.env.settings(method, self.shape)
        primary.start(settings)
        primary.prewarm()
        self.copy(primary, files[:third])
        primary.sql("CHECKPOINT")
        found = [dict(self.copy(primary, files[third:2 * third]), state="before")]
        primary.sql("CHECKPOINT")
        self.crash(primary, settings)
        found.append(dict(self.copy(primary, files[2 * third:3 * third]), state="after"))
        primary.flush()
        drive.copy_batches(primary, files[3 * third:])
        primary.sql("CHECKPOINT")
        waiting = {"pending_bytes": self.journals(primary, method)}
        self.crash(primary, settings)
        found.append(dict(waiting, state="first-insert",
                          first_query_ms=self.insert(primary, len(files) * data.BATCH)))
        self.crash(primary, settings)
        found.append(dict(waiting, state="first", first_query_ms=self.look_up(primary)))
        self.crash(primary, settings)
        seconds = max(1, round(MINUTE * self.bench.args.scale))
        found.append(dict(self.queries(primary, "point", seconds), state="point"))
        self.bench.discard(primary)
        return found

    def journals(self, cluster, method):
        """Bytes that wait in all of them."""
        return sum(cluster.journal_bytes(f"events_k{column}")
                   for column in range(1, INDEXES + 1)) if method == "cachebatch" else ""

    def crash(self, cluster, settings):
        cluster.stop("immediate")
        cluster.start(settings)

    def insert(self, cluster, rows):
        """Milliseconds of a new session's first row, behind so many in the files."""
        row = self.shape.rows + rows + 1
        return drive.first_query(cluster, "INSERT INTO events " + data.rows_sql("uniform", row, row), PLAN)

    def copy(self, cluster, files):
        """COPY without a flush at its end, and what flushes did meanwhile."""
        before = counters(cluster)
        measure = drive.Measure(cluster)
        drive.copy_batches(cluster, files)
        found = measure.stop(len(files) * data.BATCH)
        found.update({name: n - before[name] for name, n in counters(cluster).items()})
        if found.get("leaf_visits"):
            rows = cluster.sql("SELECT count(*) FROM events") - found["rows"] / 2
            found["leaf_share"] = found["flushed"] / found["leaf_visits"] * rows
        return found
