"""Many sessions at one index, and who has to get past them.

crowd        50-row INSERTs of 64 sessions into 5 million rows in memory, 1
             index, for --seconds: their rows a second and latencies; beside
             them one session that deletes a row and VACUUMs, and one that looks
             rows up by their keys, each as fast as it can: how long the longest
             of either took ("vacuum", "select"); and how long a flusher was seen
             waiting for the same lock of ours, at most ("flusher": samples every
             few ms, so that short waits close together may count as one)
"""

import threading
import time

import data
import drive

SESSIONS = 64

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
