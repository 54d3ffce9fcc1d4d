#!/usr/bin/python3
"""Soak: hours of mixed work on one primary and its standby, in parts.

Each part starts the servers on the same data directories, works, verifies all indexes,
compares all answers and stops the servers: at once every second time.  Samples of memory,
descriptors and sizes go to samples.csv; at the end judge.py says what has grown.  A part
goes on where the last one in the directory ended.

The work is that of the differential test, but tables keep their sizes: each worker
deletes what it has inserted.  Beside the workers are a transaction that stays open for
minutes, VACUUM, indexes and databases that come and go, and a reader on the standby.
"""

import argparse
import contextlib
import csv
import os
import random
import sys
import threading
import time

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "stress"))

import cluster
import differential
import judge
from answers import INDEXES, Checker
from sample import Sampler
from worker import EXPECTED, EXPECTED_TEXT, Worker

# only by sockets, so ports are free; the standby's connection outlives a part
PORT, STANDBY_PORT = 5432, 5433
STRESS = ["--seconds", "0", "--tiny", "--standby", "--queries", "40", "--port", str(PORT)]


class Writer(Worker):
    """Inserts, updates, deletes and asks as in the differential test."""

    STEPS = [step for step in Worker.STEPS if step[0] not in ("do_truncate", "do_move")]

    def connect(self):
        super().connect()
        self.cur.execute("SET application_name = 'soak writer'" if self.number == 0 else "SELECT 1")

    def begin(self):
        """Without a row in txlog: that table would grow, and no COMMIT is in doubt here."""
        if self.tx is None:
            self.isolation = self.rng.choice(["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
            self.tx = self.next_tx
            self.next_tx += self.test.workers_max
            self.sql("BEGIN ISOLATION LEVEL " + self.isolation)

    def ddl(self):
        """One row of its own instead: an entry that is journaled alone."""
        self.begin()
        self.sql("INSERT INTO t0 (id, v, a) VALUES (%d, 0, NULL) RETURNING id, v" % self.next_id)
        self.next_id += self.test.workers_max
        self.note("set", "t0")
        self.commit()

    def trim(self):
        """Half of what is too much at the low end, half anywhere."""
        for table in self.tables_too_large():
            ids = sorted(i for i in list(self.state.rows[table]) if i % self.test.workers_max == self.number)
            surplus = len(ids) - self.test.args.rows // self.test.workers_max
            if surplus > 0:
                gone = ids[:surplus // 2] + self.rng.sample(ids[surplus // 2:], surplus - surplus // 2)
                self.begin()
                self.sql("DELETE FROM %s WHERE id = ANY ('{%s}') RETURNING id, v" % (table, ",".join(map(str, gone))))
                self.note("delete", table)
                self.commit()

    def tables_too_large(self):
        return [table for table in self.test.tables if len(self.state.rows[table]) > self.test.args.rows * 1.05]

    def step(self):
        if self.tx is None and self.tables_too_large():
            self.finish_prepared()      # it can have locked the rows
            self.trim()
        super().step()

    def run(self):
        try:
            while not self.test.over() and (self.conn is None or self.conn.closed):
                self.connect()
                self.work(self.test.until)
        except Exception as error:          # a server that is gone, or a fault of the test itself
            self.test.difference(self, "worker failed: %r" % error)


class Helper(threading.Thread):
    """Work of another kind: loop() again and again, on a connection of its own."""

    PAUSE = 0.2

    def __init__(self, soak, name, server):
        super().__init__(daemon=True, name=name)
        self.soak = soak
        self.server = server
        self.rng = soak.rng_of(name)
        self.conn = None

    def sql(self, text):
        self.cur.execute(text)

    def run(self):
        try:
            while not self.soak.over():
                if self.conn is None or self.conn.closed:
                    self.conn = self.server.connect(application_name="soak " + self.name)
                    self.cur = self.conn.cursor()
                try:
                    self.loop()
                except psycopg2.Error as error:
                    self.tolerate(error)
                self.soak.pause(self.PAUSE)
        except Exception as error:          # a server that is gone, or a fault of the test itself
            self.soak.difference(None, "%s failed: %r" % (self.name, error))

    def tolerate(self, error):
        if not self.soak.expected(error):
            self.soak.difference(None, "%s: %s: %s" % (self.name, error.pgcode, error))
        if not self.conn.closed:
            self.sql("ROLLBACK")


class Reader(Helper):
    """Answers on the standby, in one session."""

    def loop(self):
        self.sql("SET lock_timeout = '400ms'")
        with self.soak.standby_snapshot:
            self.sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for _ in range(3):
                self.soak.reader.compare(self.cur, self.rng, self.rng.choice(self.soak.tables), (0, self.soak.highest()))
            self.sql("COMMIT")


class Vacuum(Helper):
    PAUSE = 5

    def loop(self):
        table = self.rng.choice(self.soak.tables)
        index = "%s_%s" % (table, self.rng.choice(sorted(INDEXES)))
        self.sql("SET lock_timeout = '2s'")
        self.sql("DELETE FROM tx WHERE k %% 100 = %d" % self.rng.randrange(100))
        self.sql(self.rng.choice(["VACUUM (INDEX_CLEANUP ON) %s" % table, "VACUUM %s" % table,
                                  "VACUUM (ANALYZE) %s" % table, "VACUUM tu", "VACUUM tx",
                                  "VACUUM (PARALLEL 2, INDEX_CLEANUP ON) %s" % table,
                                  "SELECT cache_batch_flush('%s')" % index, "SELECT cache_batch_compact('%s')" % index]))


class LongTransaction(Helper):
    """A transaction that stays open, and then commands that would wait for its end."""

    PAUSE = 1

    def loop(self):
        self.hold()
        for command in (self.reindex, self.replace, self.database):
            if not self.soak.over():
                command()
        self.soak.create_missing_indexes_patiently(self.cur)
        self.soak.changes += 1

    def hold(self):
        self.sql("BEGIN ISOLATION LEVEL REPEATABLE READ")
        self.sql("SET LOCAL enable_seqscan = off")
        self.sql("INSERT INTO tu (k, w, n) VALUES (1000000, 1, 1)")
        answers = []
        for _ in range(2):
            self.sql("SELECT count(*), sum(id), sum(v) FROM t1 WHERE a > -300")
            answers.append(self.cur.fetchone())
            self.soak.pause(self.soak.hold)
        self.sql("ROLLBACK")
        if answers[0] != answers[1]:
            self.soak.difference(None, "in one snapshot first %s, then %s" % tuple(answers))

    def index(self):
        table, name = self.rng.choice(self.soak.tables), self.rng.choice(sorted(INDEXES))
        return table, name, "%s_%s" % (table, name)

    def patiently(self, command):
        """Who waits for a table's lock makes all others wait: a moment at a time."""
        self.sql("SET lock_timeout = '300ms'")
        while not self.soak.over():
            try:
                self.sql(command)
                return
            except psycopg2.errors.LockNotAvailable:
                self.soak.pause(0.5)

    def reindex(self):
        """It waits for older snapshots of the primary alone: one of the standby would miss in the
        new index, btree's too, what was deleted before it was built."""
        self.sql("SET lock_timeout = '30s'")
        with self.soak.standby_snapshot:
            self.sql("REINDEX INDEX CONCURRENTLY %s" % self.index()[2])
            self.soak.catch_up()

    def replace(self):
        table, name, index = self.index()
        self.patiently("DROP INDEX IF EXISTS " + index)
        self.patiently("CREATE %sINDEX IF NOT EXISTS %s ON %s USING cachebatch %s" % (self.soak.kind(name), index, table, INDEXES[name]))

    def database(self):
        self.sql("CREATE DATABASE other")
        try:
            with contextlib.closing(self.server.connect(dbname="other")) as conn:
                cur = conn.cursor()
                cur.execute("CREATE EXTENSION cache_batch; CREATE TABLE t (k int); CREATE INDEX t_k ON t USING cachebatch (k)")
                for _ in range(5):
                    cur.execute("INSERT INTO t SELECT random() * 1000000 FROM generate_series(1, 3000)")
                self.soak.pause(2)      # for workers to come
        finally:
            self.sql("DROP DATABASE other WITH (FORCE)")


class Soak(differential.Test):
    """One part."""

    def __init__(self, args, part):
        stress = STRESS + ["--bindir", args.bindir, "--workdir", args.dir, "--rows", str(args.rows),
                           "--seed", str(args.seed + part)]
        for option in ("delta", "run_min"):
            if getattr(args, option) is not None:
                stress += ["--" + option.replace("_", "-"), str(getattr(args, option))]
        super().__init__(differential.arguments().parse_args(stress))
        self.args.every = args.every
        self.seconds = args.minutes * 60
        self.hold = min(90, self.seconds / 10)      # seconds, twice
        self.part = part
        self.changes = 0        # rounds of indexes and databases that came and went
        self.reader = Checker(lambda text: self.difference(None, text))
        self.standby_snapshot = threading.Lock()    # held while the reader has one
        self.standby = cluster.Cluster(args.bindir, self.workdir, "standby", STANDBY_PORT)
        for server in (self.primary, self.standby):
            server.log = os.path.join(self.workdir, "%s-%d.log" % (server.name, part))

    def settings(self):
        """Large enough for all indexes to have buckets, small enough for them to fill up."""
        return dict(super().settings(), **{
            "cache_batch.pool_size": 1024, "cache_batch.spill_target": 100, "cache_batch.max_delay": "5s",
            "cache_batch.cold_rate": 1000, "wal_consistency_checking": "''", "min_wal_size": "96MB",
            "wal_keep_size": 0, "primary_slot_name": "soak", "hot_standby_feedback": "on",
            "max_standby_streaming_delay": "10s", "autovacuum_naptime": "10s"})

    def rng_of(self, name):
        return random.Random("%s/%s" % (self.seed, name))

    def over(self):
        return time.time() >= self.until or self.failed.is_set()

    def pause(self, seconds):
        """Sleeps, unless the part ends before."""
        self.failed.wait(max(0, min(seconds, self.until - time.time())))

    @staticmethod
    def expected(error):
        return error.pgcode in EXPECTED or any(text in str(error) for text in EXPECTED_TEXT)

    def highest(self):
        return max(worker.next_id for worker in self.workers)

    # ---------- servers ----------

    def open(self):
        """The servers of the last part, or new ones."""
        if os.path.exists(self.standby.data):
            for server in (self.primary, self.standby):
                server.start()
            with contextlib.closing(self.primary.connect()) as conn:
                self.unique = conn.server_version >= 180000
            return
        self.create()
        with contextlib.closing(self.primary.connect()) as conn:
            cur = conn.cursor()
            cur.execute("SELECT pg_create_physical_replication_slot('soak', true)")
            # all keys that do_conflict() has, so that these tables grow no more
            cur.execute("INSERT INTO tu SELECT i, i % 500, 0 FROM generate_series(0, 3050) i")
            cur.execute("INSERT INTO tx SELECT i, 0 FROM generate_series(0, 2999) i")

    def load(self):
        """What the last part has left."""
        self.workers = [Writer(n, self) for n in range(self.workers_max)]
        with contextlib.closing(self.primary.connect()) as conn:
            cur = conn.cursor()
            cur.execute("SELECT gid FROM pg_prepared_xacts")
            for (gid,) in cur.fetchall():
                cur.execute("ROLLBACK PREPARED '%s'" % gid)
            cur.execute("DROP DATABASE IF EXISTS other")
            self.create_missing_indexes(cur)
            for table in self.tables:
                cur.execute("SELECT id, v FROM " + table)
                self.state.rows[table].update(cur.fetchall())
        high = max([max(rows or [0]) for rows in self.state.rows.values()])
        for worker in self.workers:
            worker.next_id = (high // self.workers_max + 1) * self.workers_max + worker.number

    def close(self):
        mode = "immediate" if self.failed.is_set() or self.part % 2 == 0 else "fast"
        for server in (self.primary, self.standby):
            if not server.running():
                self.difference(None, "%s is not running:\n%s" % (server.name, server.log_tail()))
            server.stop(mode)
            for line in server.log_faults():
                self.difference(None, "log of %s: %s" % (server.name, line))

    # ---------- the part ----------

    def work(self):
        helpers = [Reader(self, "reader", self.standby), Vacuum(self, "vacuum", self.primary),
                   LongTransaction(self, "long transaction", self.primary)]
        for thread in self.workers + helpers:
            thread.start()
        for thread in self.workers + helpers:
            thread.join()

    def end(self):
        """Nobody works any more: verify, and compare all."""
        self.finish_transactions()
        self.check("primary", True)
        for worker in self.workers:
            worker.conn.close()

    def run(self, path, offset):
        began = time.time()
        self.until = began + 3600
        self.open()
        self.load()
        self.until = time.time() + self.seconds
        sampler = Sampler(self, path, self.part, offset)
        sampler.start()
        try:
            self.work()
            sampler.stopped.set()
            sampler.join()
            if not self.failed.is_set():
                self.end()
        except (psycopg2.Error, RuntimeError) as error:
            self.difference(None, "part %d failed: %s" % (self.part, error))
        self.close()
        sampler.finish()
        print("part %d, %d s: %d samples, %d changes of indexes and databases, %d comparisons on the standby, %s" % (
            self.part, time.time() - began, sampler.samples, self.changes, self.reader.comparisons, self.summary()),
            flush=True)


def last(path):
    """Number and end of the last part, and the differences of all."""
    part, second, differences = 0, 0, 0
    if os.path.exists(path):
        with open(path, newline="") as text:
            for row in csv.DictReader(text):
                if row["value"] is not None:
                    part, second = int(row["part"]), float(row["second"])
                    differences += float(row["value"]) if row["series"] == "differences" else 0
    return part, second, int(differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bindir", required=True, help="PostgreSQL programs, with the extension installed")
    parser.add_argument("--dir", required=True, help="for servers, logs, samples and plots; is made, or gone on with")
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=30, help="of work, in each part")
    parser.add_argument("--every", type=float, default=5, metavar="SECONDS", help="between samples")
    parser.add_argument("--rows", type=int, default=8000, help="of each table")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--delta", type=int, help="as in the differential test")
    parser.add_argument("--run-min", type=int, help="the same")
    args = parser.parse_args()
    args.dir = os.path.abspath(args.dir)
    os.makedirs(args.dir, exist_ok=True)
    path = os.path.join(args.dir, "samples.csv")
    differences = 0
    for _ in range(args.parts):
        part, second, _ = last(path)
        Soak(args, part + 1).run(path, second)
        differences = last(path)[2]
        if differences:
            break
    samples, parts, growing = judge.report(args.dir)
    print("soak: %d samples, %d parts, %d differences, %d growing" % (samples, parts, differences, growing), flush=True)
    # threads may wait for ever: leave without them
    os._exit(1 if differences or growing or not samples else 0)


if __name__ == "__main__":
    main()
