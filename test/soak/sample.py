"""Samples of two servers, appended to a CSV file: what their processes have, what is in
shared memory, how large the files are."""

import csv
import glob
import os
import threading
import time

import psycopg2

import judge

# Those whose life is long: background processes by their type, sessions by their name.
PROCESSES = {"cache_batch launcher": "launcher", "cache_batch flusher": "flusher", "checkpointer": "checkpointer",
             "startup": "startup", "soak writer": "a writer", "soak reader": "a reader", "soak sampler": "sampler"}
PROCESS_QUERY = """SELECT pid, CASE WHEN application_name LIKE 'soak %' THEN application_name ELSE backend_type END
FROM pg_stat_activity"""

POOL_QUERY = """SELECT (chunks - chunks_free) * chunk_size / 1024, buckets - buckets_free, bucket_sets_used
FROM cache_batch_stat_pool"""
JOURNAL_QUERY = """SELECT coalesce(sum(journal_bytes), 0) / 1024, coalesce(sum(copied_bytes), 0) / 1024
FROM cache_batch_stat_buckets"""
SIZE_QUERY = """SELECT CASE WHEN relkind = 'i' THEN 'indexes ' || regexp_replace(relname, '^[^_]*_', '')
 ELSE 'tables' END, sum(pg_relation_size(oid)) / 1024
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i') AND relname !~ '_cc(new|old)' GROUP BY 1"""
COUNT_QUERY = """SELECT coalesce(sum(spilled), 0), coalesce(sum(flushed), 0), coalesce(sum(compacted), 0),
 coalesce(sum(leaf_visits), 0) FROM cache_batch_stat_indexes"""


def memory(process):
    """kB of a process that it shares with none."""
    with open("/proc/%d/status" % process) as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
    return 0        # it is about to end


def drop_torn_row(path):
    """Cuts off what a kill has left of the last row."""
    with open(path, "r+b") as samples:
        samples.truncate(samples.read().rfind(b"\n") + 1)


def size(directory):
    """kB, and how many files; of what is there for a moment only, either."""
    total = files = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
                files += 1
            except FileNotFoundError:
                pass
    return total / 1024, files


def statistics_kb(server):
    """What of a stopped server's pg_stat is ours; none after an immediate stop."""
    return [os.stat(path).st_size / 1024 for path in glob.glob(os.path.join(server.data, "pg_stat", "cache_batch.stat"))]


class Sampler(threading.Thread):
    """Takes samples of one part until it is told to stop."""

    def __init__(self, soak, path, part, offset):
        super().__init__(daemon=True, name="sampler")
        self.soak = soak
        self.part = part
        self.offset = offset            # seconds of the parts before
        self.began = time.time()
        self.samples = 0
        self.stopped = threading.Event()
        new = not os.path.exists(path)
        if not new:
            drop_torn_row(path)
        self.file = open(path, "a", newline="")
        self.csv = csv.writer(self.file)
        if new:
            self.csv.writerow(judge.FIELDS)

    def add(self, group, series, value, process=0):
        self.csv.writerow([self.part, "%.1f" % self.second, group, series, process, "%.6g" % value])

    def now(self):
        self.second = self.offset + time.time() - self.began

    def add_processes(self, cur, prefix):
        cur.execute(PROCESS_QUERY)
        for process, kind in cur.fetchall():
            if kind not in PROCESSES:
                continue
            try:
                kilobytes, files = memory(process), len(os.listdir("/proc/%d/fd" % process))
            except OSError:
                continue        # it has just ended
            self.add("memory", prefix + PROCESSES[kind], kilobytes, process)
            self.add("descriptors", prefix + PROCESSES[kind], files, process)

    def add_shared(self, cur, prefix):
        cur.execute(POOL_QUERY)
        kilobytes, buckets, sets = cur.fetchone()
        self.add("shared memory", prefix + "chunks", kilobytes)
        self.add("slots", prefix + "buckets", buckets)
        self.add("slots", prefix + "bucket sets", sets)
        cur.execute(JOURNAL_QUERY)
        journal, copied = cur.fetchone()
        self.add("sizes", prefix + "journals", journal)
        self.add("shared memory", prefix + "copies of journals", copied)

    def add_files(self, server, prefix):
        self.add("sizes", prefix + "pg_wal", size(os.path.join(server.data, "pg_wal"))[0])
        self.add("files", prefix + "in base", size(os.path.join(server.data, "base"))[1])

    def sample(self, cursors):
        self.now()
        for server, cur in cursors:
            prefix = "" if server is self.soak.primary else "standby: "
            self.add_processes(cur, prefix)
            self.add_shared(cur, prefix)
            self.add_files(server, prefix)
        cur = cursors[0][1]
        cur.execute(SIZE_QUERY)
        for series, kilobytes in cur.fetchall():
            self.add("sizes", series, kilobytes)
        cur.execute(COUNT_QUERY)
        for series, value in zip(("entries spilled", "entries flushed", "leaves compacted", "leaf visits"),
                                 cur.fetchone()):
            self.add("work", series, value)
        self.add("work", "rows", sum(map(len, self.soak.state.rows.values())))
        self.add("work", "statements", self.soak.operations)
        self.file.flush()
        self.samples += 1

    def run(self):
        try:
            cursors = []
            for server in (self.soak.primary, self.soak.standby):
                cur = server.connect(application_name="soak sampler").cursor()
                cur.execute("SET lock_timeout = '1s'")
                cursors.append((server, cur))
            while not self.stopped.wait(self.soak.args.every):
                try:
                    self.sample(cursors)
                except (psycopg2.errors.LockNotAvailable, psycopg2.errors.UndefinedObject,
                        psycopg2.errors.UndefinedTable, psycopg2.errors.SerializationFailure):
                    pass        # an index is being replaced: the next one
            for _, cur in cursors:
                cur.connection.close()
        except Exception as error:          # a server that is gone, or a fault of the test itself
            self.soak.difference(None, "no samples any more: %r" % error)

    def finish(self):
        """At the end of the part, with the servers stopped."""
        self.now()
        for server, prefix in ((self.soak.primary, ""), (self.soak.standby, "standby: ")):
            for kilobytes in statistics_kb(server):
                self.add("sizes", prefix + "statistics file", kilobytes)
            self.add("sizes", prefix + "base", size(os.path.join(server.data, "base"))[0])
        self.add("work", "differences", len(self.soak.differences))
        self.file.close()
