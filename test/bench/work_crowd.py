"""Many sessions at one index, and who has to get past them.

crowd        50-row INSERTs of 64 sessions into 5 million rows in memory, 1
             index, for --seconds: their rows a second and latencies; beside
             them one session that deletes a row and VACUUMs, and one that looks
             rows up by their keys, each as fast as it can: how long the longest
             of either took ("vacuum", "select"); and how long a flusher was seen
             waiting for the same lock of ours, at most ("flusher": samples every
             few ms, so that short waits close together may count as one)
reader       CPU of one session a point look-up, all in memory, in turns while nothing
             else is done ("alone") and while another inserts 10,000-row batches as
             fast as it can ("beside")
"""

import threading
import time

import data
import drive
from work_reads import PLAN

SESSIONS = 64

LOOK_UPS = 10000    # of a statement
TURNS = 4

INSERT50 = """\\set i :i + 3200
\\set j :i + 50 * :client_id
\\set last :j + 49
INSERT INTO events SELECT {columns} FROM generate_series(:j::bigint, :last::bigint) AS v(j);
"""

WAITS = ("SELECT pid, wait_event FROM pg_stat_activity "
         "WHERE backend_type = 'cache_batch flusher' AND wait_event LIKE 'CacheBatch%'")


class Beside(threading.Thread):
    """Calls step(cursor, n) for n = 0, 1, ... until stopped; what each returned."""

    def __init__(self, cluster, step, options=""):
        super().__init__()
        self.db = cluster.connect(options)
        self.work = step
        self.found = []
        self.error = None
        self.over = threading.Event()
        self.start()

    def run(self):
        try:
            with self.db.cursor() as cursor:
                while not self.over.is_set():
                    self.found.append(self.work(cursor, len(self.found)))
        except Exception as error:          # raised again by the main thread
            self.error = error
        finally:
            self.db.close()

    def stop(self):
        self.over.set()
        self.join()
        if self.error:
            raise self.error
        return sorted(self.found)


class Waits:
    """The longest time for which a flusher was seen at the same wait."""

    def __init__(self):
        self.since = {}

    def __call__(self, cursor, n):
        time.sleep(0.005)
        now = time.monotonic()
        cursor.execute(WAITS)
        seen = cursor.fetchall()
        self.since = {wait: self.since.get(wait, now) for wait in seen}
        return int(max((now - since for since in self.since.values()), default=0) * 1e6)


def timed(cursor, statement):
    """Microseconds."""
    began = time.monotonic()
    cursor.execute(statement)
    return int((time.monotonic() - began) * 1e6)


class Crowd:
    """64 sessions, VACUUM and a reader."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.methods = ["btree", "cachebatch"]

    @staticmethod
    def names():
        return ["crowd"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, with_id=True)

    def vacuum(self, cursor, n):
        cursor.execute(f"DELETE FROM events WHERE id = {n + 1}")
        return timed(cursor, "VACUUM (PARALLEL 0, INDEX_CLEANUP ON, TRUNCATE OFF) events")

    def select(self, cursor, n):
        key = data.key("uniform", 1, f"{1 + n * 7919 % self.shape.rows}::bigint")
        return timed(cursor, f"SELECT id FROM events WHERE k1 = {key}")

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        cluster.prewarm()
        beside = {"vacuum": Beside(cluster, self.vacuum),
                  "select": Beside(cluster, self.select, "-c enable_seqscan=off"),
                  "flusher": Beside(cluster, Waits())}
        measure = drive.Measure(cluster)
        _, times = drive.pgbench(cluster, [INSERT50.format(columns=data.columns("uniform", "j", True))],
                                 variables={"i": self.shape.rows + 1}, clients=SESSIONS,
                                 seconds=self.bench.args.seconds, log=True)
        found = [dict(measure.stop(50 * len(times)), **drive.latencies(times))]
        for state, one in beside.items():
            found.append(dict(drive.latencies(one.stop()), state=state))
        self.bench.discard(cluster)
        return found if method == "cachebatch" else found[:-1]


def on_cpu(process):
    """Nanoseconds that it has been on a processor."""
    with open(f"/proc/{process}/schedstat") as f:
        return int(f.read().split()[0])


class Reader(Crowd):
    """What a writer takes from one who reads, or makes him do."""

    @staticmethod
    def names():
        return ["reader"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        cluster.prewarm()
        db = cluster.connect(PLAN)
        cursor = db.cursor()
        self.look_up(cursor, 1)
        micros = {"alone": [], "beside": []}
        for turn in range(TURNS):
            micros["alone"].append(self.look_up(cursor))
            writer = Beside(cluster, lambda c, n: self.insert(c, turn, n))
            micros["beside"].append(self.look_up(cursor))
            writer.stop()
        db.close()
        self.bench.discard(cluster)
        return [{"state": state, "cpu_us_per_row": sum(found) / TURNS} for state, found in micros.items()]

    def insert(self, cursor, turn, n):
        first = 10 ** 9 * (turn + 1) + n * data.BATCH
        cursor.execute("INSERT INTO events " + data.rows_sql("uniform", first, first + data.BATCH - 1))
        return data.BATCH

    def look_up(self, cursor, seconds=None):
        """Microseconds of the session's CPU a look-up, of look-ups for a turn's time."""
        row = f"(1 + (n + %s) * 2654435761 %% {self.shape.rows})"
        statement = ("SELECT count(e.id) FROM (SELECT " + data.key("uniform", 1, row) + " AS k "
                     f"FROM generate_series(1::bigint, {LOOK_UPS}) AS g(n) OFFSET 0) AS s, "
                     "LATERAL (SELECT id FROM events WHERE k1 = s.k OFFSET 0) AS e")
        cursor.execute("SELECT pg_backend_pid()")
        process = cursor.fetchone()[0]
        until = time.monotonic() + (seconds or max(1, self.bench.args.seconds // TURNS))
        done, before = 0, on_cpu(process)
        while time.monotonic() < until:
            cursor.execute(statement, (done,))
            if cursor.fetchone()[0] != LOOK_UPS:
                raise RuntimeError("a row is not found by its key")
            done += LOOK_UPS
        return (on_cpu(process) - before) / 1000 / done
