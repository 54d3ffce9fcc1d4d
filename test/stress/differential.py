#!/usr/bin/python3
"""Differential test: answers through indexes against a sequential scan.

Several connections do random work on a private server.  From time to time all
stop, and the answers to random questions through the indexes are compared with
those of a sequential scan, each index is verified, and the rows are compared
with the account that the workers keep.  With --crash the server is then killed
in the middle of the next round and must come back with the same answers; with
--standby a streaming replica must give them too.

The seed fixes what each connection does; the interleaving is the server's.
"""

import argparse
import collections
import contextlib
import os
import random
import sys
import threading
import time

import psycopg2

import cluster
from answers import COLLATIONS, COLUMNS, HELPER, INDEXES, NO_ICU, Checker
from worker import State, Worker

TABLES = ["t0", "t1", "t2"]

BLOCKS = """
CREATE FUNCTION blocks(t text, first bigint, step int)
 RETURNS TABLE (rid bigint, rv int) LANGUAGE plpgsql AS $$
DECLARE n bigint := first; kept bool;
BEGIN
 FOR i IN 1..10 LOOP
  kept := i % 3 <> 0;
  BEGIN
   BEGIN
    EXECUTE format('INSERT INTO %I (id, v, a) VALUES ($1, 0, $2)', t) USING n, i;
    IF NOT kept THEN RAISE division_by_zero; END IF;
   EXCEPTION WHEN division_by_zero THEN
    PERFORM 1;
   END;
   IF i = 7 THEN kept := false; RAISE division_by_zero; END IF;
  EXCEPTION WHEN division_by_zero THEN
   NULL;
  END;
  IF kept THEN rid := n; rv := 0; RETURN NEXT; END IF;
  n := n + step;
 END LOOP;
END $$;
"""


class Test:
    def __init__(self, args):
        self.args = args
        self.seed = args.seed
        self.am = args.am
        self.rng = random.Random(args.seed)
        self.workdir = args.workdir or cluster.make_workdir("cb_diff_")
        self.tables = TABLES
        self.workers_max = args.connections
        self.state = State(TABLES)
        self.operations = 0
        self.checks = collections.Counter()
        self.differences = []
        self.failed = threading.Event()
        self.crashing = threading.Event()
        self.sentinel = None
        self.counter_lock = threading.Lock()
        self.go = threading.Event()
        self.stop = False
        self.until = 0
        self.paused = threading.Barrier(args.connections + 1)
        self.resumed = threading.Barrier(args.connections + 1)
        self.primary = cluster.Cluster(args.bindir, self.workdir, "primary", args.port or cluster.free_port())
        self.standby = None
        self.checker = Checker(lambda text: self.difference(None, text))

    def count(self):
        with self.counter_lock:
            self.operations += 1

    def difference(self, worker, text):
        with self.counter_lock:
            self.differences.append(text)
            print("DIFFERENCE (seed %s, %s): %s" % (self.seed, worker.name if worker else "check", text), flush=True)
            if worker:
                print("last statements of %s:" % worker.name)
                for line in list(worker.last)[-15:]:
                    print("  " + line)
            sys.stdout.flush()
        self.failed.set()

    # ---------- set-up ----------

    def settings(self):
        args = self.args
        settings = {
            "fsync": "off", "shared_buffers": "32MB", "max_connections": 40, "max_prepared_transactions": 30,
            "wal_level": "replica", "max_wal_senders": 4, "hot_standby": "on", "checkpoint_timeout": "30s",
            "max_wal_size": "128MB", "autovacuum_naptime": "1s", "autovacuum_vacuum_cost_delay": 0,
            "log_min_messages": "warning", "log_line_prefix": "'%m [%p] '", "deadlock_timeout": "100ms",
            "allow_in_place_tablespaces": "on", "max_standby_streaming_delay": "-1",
            "min_parallel_table_scan_size": "64kB", "min_parallel_index_scan_size": "64kB",
            "maintenance_work_mem": "8MB", "max_worker_processes": 20, "max_parallel_workers": 12, "wal_keep_size": "1GB",
        }
        if self.am != "btree":
            settings["shared_preload_libraries"] = "cache_batch"
            # "all" is read before our library is loaded, and does not include
            # it.  With crashes, only our records: the server's own check of
            # heap records fails on a page that was truncated, extended again
            # and not written before the crash.
            settings["wal_consistency_checking"] = \
                "cache_batch" if args.crash else "'all, cache_batch'"
            if args.tiny:
                settings["cache_batch.journal_limit"] = 64
                settings["cache_batch.stage_size"] = 8
                settings["cache_batch.pool_size"] = 256
                settings["cache_batch.max_delay"] = "500ms"
                settings["cache_batch.heat_epoch"] = 1
                settings["cache_batch.cold_threshold"] = 0
                settings["cache_batch.cold_rate"] = 1000000
                settings["cache_batch.spill_threshold"] = 0
                # merges where there is enough, or no room for more runs
                settings["cache_batch.spill_target"] = (100, 1000, 8)[self.seed % 3]
            if args.delta is not None:
                settings["cache_batch.test_delta"] = args.delta
                settings["cache_batch.test_read_ahead"] = "on"
                settings["cache_batch.test_filters"] = "on"
            if args.run_min is not None:
                settings["cache_batch.test_run_min"] = args.run_min
        return settings

    def create(self):
        self.primary.init(self.settings())
        self.primary.start()
        with contextlib.closing(self.primary.connect()) as conn:
            cur = conn.cursor()
            if self.am != "btree":
                cur.execute("CREATE EXTENSION cache_batch")
            cur.execute("SELECT count(*) FROM pg_collation WHERE collname = 'und-x-icu'")
            cur.execute(HELPER + (COLLATIONS if cur.fetchone()[0] else NO_ICU))
            cur.execute(BLOCKS)
            cur.execute("CREATE TABLE txlog (tx bigint)")
            cur.execute("CREATE TABLESPACE ts1 LOCATION ''")
            for table in self.tables:
                cur.execute("CREATE TABLE %s (%s) WITH (fillfactor = 80%s)" % (
                    table, COLUMNS, ", parallel_workers = 2" if table == "t1" else ""))
            cur.execute("ALTER TABLE t1 ADD CONSTRAINT t1_key UNIQUE (id)")
            self.unique = self.am == "btree" or conn.server_version >= 180000
            cur.execute("CREATE TABLE tu (k int%s, w int, n int)" % ("" if self.unique else " UNIQUE"))
            if self.unique:
                cur.execute("CREATE UNIQUE INDEX tu_unique ON tu USING %s (k)" % self.am)
            cur.execute("CREATE INDEX tu_w ON tu USING %s (w)" % self.am)
            cur.execute("CREATE INDEX tu_k ON tu USING %s (k DESC, n)" % self.am)
            cur.execute("CREATE TABLE tx (k int, w int, EXCLUDE USING %s (k WITH =))" % self.am)
            self.create_missing_indexes(cur)
        if self.args.standby:
            self.standby = self.standby or \
                cluster.Cluster(self.args.bindir, self.workdir, "standby", cluster.free_port())
            self.primary.copy_to(self.standby, self.settings())
            self.standby.start()

    def create_missing_indexes(self, cur):
        """Also drops what an interrupted concurrent build left behind."""
        cur.execute("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid")
        for (name,) in cur.fetchall():
            cur.execute("DROP INDEX " + name)
        for table in self.tables:
            for name, definition in INDEXES.items():
                cur.execute("CREATE %sINDEX IF NOT EXISTS %s_%s ON %s USING %s %s" % (
                    self.kind(name), table, name, table, self.am, definition))

    def kind(self, name):
        """Ids are unique, so nobody may be refused who adds one."""
        return "UNIQUE " if self.unique and name == "id" else ""

    # ---------- comparing ----------

    def indexes(self, cur):
        cur.execute("SELECT c.oid::regclass::text, t.relname, t.relpersistence FROM pg_index i "
                    "JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid "
                    "JOIN pg_am a ON a.oid = c.relam WHERE a.amname = %s AND i.indisvalid AND t.relkind = 'r' "
                    "AND t.relnamespace = 'public'::regnamespace", (self.am,))
        return cur.fetchall()

    def verify(self, cur, heapallindexed, where):
        if self.am == "btree":
            return
        for name, _, persistence in self.indexes(cur):
            if where == "standby" and persistence == "u":
                continue
            try:
                cur.execute("SELECT cache_batch_verify(%s::regclass, %s)", (name, heapallindexed))
                self.checks["verify"] += 1
                cur.execute("SELECT coalesce(sum(entries), 0) FROM cache_batch_tiles(%s::regclass)", (name,))
                self.checks["in tiles"] += int(cur.fetchone()[0])
            except psycopg2.Error as error:
                if error.pgcode == "55P03":
                    continue
                self.difference(None, "verify of %s on %s: %s" % (name, where, error))

    def compare_account(self, cur, where):
        """The rows against the workers' account, by a sequential scan."""
        cur.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        cur.execute("SET LOCAL enable_indexscan=off; SET LOCAL enable_bitmapscan=off; SET LOCAL enable_indexonlyscan=off")
        for table in self.tables:
            if where == "standby" and self.persistence(cur, table) == "u":
                continue
            cur.execute("SELECT id, v FROM " + table)
            rows = dict(cur.fetchall())
            expected = self.state.rows[table]
            if rows != expected:
                lost = [i for i in expected if rows.get(i) != expected[i]]
                extra = [i for i in rows if i not in expected]
                self.difference(None, "%s on %s: %d rows are not as committed (%s ...), %d extra (%s ...)" % (
                    table, where, len(lost), lost[:5], len(extra), extra[:5]))
            self.checks["account"] += 1
        cur.execute("COMMIT")

    @staticmethod
    def persistence(cur, table):
        cur.execute("SELECT relpersistence FROM pg_class WHERE oid = %s::regclass", (table,))
        return cur.fetchone()[0]

    def compare_answers(self, cur, where, count):
        cur.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        tables = [t for t in self.tables if where != "standby" or self.persistence(cur, t) != "u"]
        high = max([max(rows or [1]) for rows in self.state.rows.values()])
        for _ in range(count):
            self.checker.compare(cur, self.rng, self.rng.choice(tables), (0, high))
            if self.failed.is_set():
                break
        for table, key in (("tu", "w"), ("tu", "k"), ("tx", "k")):
            self.checker.settle(cur, self.rng, "SELECT %s FROM %s ORDER BY %s" % (key, table, key),
                                "enable_seqscan=off enable_sort=off", "whole", True)
            self.checker.comparisons += 1
        cur.execute("SELECT k FROM tx GROUP BY k HAVING count(*) > 1")
        if cur.fetchall():
            self.difference(None, "the exclusion constraint has let equal keys pass")
        if self.unique:
            cur.execute("SET LOCAL enable_indexscan=off; SET LOCAL enable_bitmapscan=off; "
                        "SET LOCAL enable_indexonlyscan=off")
            cur.execute("SELECT k FROM tu GROUP BY k HAVING count(*) > 1")
            if cur.fetchall():
                self.difference(None, "the unique index has let equal keys pass")
        cur.execute("COMMIT")

    def note_dropped(self, cur):
        """Entries of dead rows that flushes dropped, and that went to range buffers, since a start, at most."""
        if self.am != "btree":
            cur.execute("SELECT coalesce(sum(dropped), 0)::bigint, coalesce(sum(spilled), 0)::bigint "
                        "FROM cache_batch_stat_indexes")
            dropped, spilled = cur.fetchone()
            self.checks["dropped"] = max(self.checks["dropped"], dropped)
            self.checks["spilled"] = max(self.checks["spilled"], spilled)

    def compare(self, cur, where, count):
        try:
            self.compare_account(cur, where)
            self.compare_answers(cur, where, count)
        except psycopg2.errors.LockNotAvailable:
            # an open transaction has truncated a table
            self.checks["skipped"] += 1

    def check(self, where, quiet):
        with contextlib.closing(self.primary.connect()) as conn:
            cur = conn.cursor()
            cur.execute("SET lock_timeout = '500ms'")
            self.verify(cur, quiet, where)
            self.note_dropped(cur)
            self.compare(cur, where, self.args.queries)
        if self.standby and quiet:
            self.check_standby()

    def catch_up(self):
        """Waits until the standby has replayed what the primary has written."""
        with contextlib.closing(self.primary.connect()) as conn:
            cur = conn.cursor()
            cur.execute("SELECT pg_current_wal_insert_lsn()")
            lsn = cur.fetchone()[0]
        with contextlib.closing(self.standby.connect()) as conn:
            cur = conn.cursor()
            end = time.time() + 300
            while True:
                cur.execute("SELECT pg_last_wal_replay_lsn() >= %s", (lsn,))
                if cur.fetchone()[0]:
                    return True
                if time.time() > end:
                    self.difference(None, "the standby does not catch up")
                    return False
                time.sleep(0.1)

    def check_standby(self):
        if not self.catch_up():
            return
        with contextlib.closing(self.standby.connect()) as conn:
            cur = conn.cursor()
            # replay can hold a table's lock and wait for our snapshot: nobody ends that
            cur.execute("SET lock_timeout = '2s'")
            self.verify(cur, True, "standby")
            self.compare(cur, "standby", self.args.queries // 2)

    # ---------- crashing ----------

    def crash(self):
        """Kill the server at once, or one of its backends."""
        self.crashing.set()
        if self.rng.random() < 0.3:
            worker = self.rng.choice(self.workers)
            if worker.conn is not None and not worker.conn.closed:
                try:
                    self.sentinel = self.primary.connect()
                    cluster.kill_backend(worker.conn.get_backend_pid())
                    self.checks["backends killed"] += 1
                    return
                except (ProcessLookupError, psycopg2.Error):
                    pass
        self.primary.stop("immediate")
        self.checks["immediate restarts"] += 1

    def wait_for_restart(self):
        """Until the server has noticed that a backend was killed.

        Before that, what the backend had just committed is not visible.
        """
        if self.sentinel is None:
            return
        until = time.time() + 60
        try:
            while time.time() < until:
                self.sentinel.cursor().execute("SELECT 1")
                time.sleep(0.02)
        except psycopg2.Error:
            pass
        self.sentinel.close()
        self.sentinel = None

    def recover(self):
        self.wait_for_restart()
        if not self.primary.running():
            self.primary.start()
        conn = self.primary.wait_ready()
        for worker in self.workers:
            if worker.conn is not None:
                worker.conn.close()
        self.resolve(conn.cursor())
        self.create_missing_indexes_patiently(conn.cursor())
        conn.close()
        self.crashing.clear()

    def create_missing_indexes_patiently(self, cur):
        cur.execute("SET lock_timeout = '300ms'")
        try:
            self.create_missing_indexes(cur)
        except psycopg2.errors.LockNotAvailable:
            pass

    def resolve(self, cur):
        """Learn what became of the transactions that the crash met."""
        cur.execute("SELECT tx FROM txlog")
        committed = {tx for (tx,) in cur.fetchall()}
        cur.execute("SELECT gid FROM pg_prepared_xacts")
        alive = {gid for (gid,) in cur.fetchall()}
        lost = self.state.acknowledged - committed
        if lost:
            self.difference(None, "committed transactions are lost: %s" % sorted(lost)[:5])
        for worker in self.workers:
            if worker.in_doubt:
                tx, changes = worker.in_doubt
                if tx in committed:
                    self.state.apply(tx, changes)
                worker.in_doubt = None
        doubtful = set().union(*(worker.doubtful_gids for worker in self.workers))
        for gid in sorted(self.state.prepared):
            tx, changes = self.state.prepared[gid]
            if gid in alive:
                continue
            if tx in committed:
                self.state.apply(tx, changes)
            elif gid not in doubtful:
                self.difference(None, "prepared transaction %s is lost" % gid)
            del self.state.prepared[gid]
        for worker in self.workers:
            worker.doubtful_gids.clear()
        for table in self.tables:
            if self.persistence(cur, table) == "u":
                self.forget(table)

    def forget(self, table):
        """An unlogged table is empty after a crash, for prepared transactions too."""
        self.state.rows[table].clear()
        for gid, (tx, changes) in self.state.prepared.items():
            self.state.prepared[gid] = (tx, [c for c in changes if c[1] != table])

    # ---------- rounds ----------

    def finish_transactions(self):
        """Nobody holds a lock: end what is open and what is prepared."""
        for worker in self.workers:
            if worker.conn is None or worker.conn.closed:
                continue
            if worker.tx is not None:
                try:
                    worker.commit() if self.rng.random() < 0.6 else worker.rollback()
                except psycopg2.Error as error:
                    worker.tolerate(error)
        for gid in sorted(self.state.prepared):
            with contextlib.closing(self.primary.connect()) as conn:
                if self.rng.random() < 0.7:
                    conn.cursor().execute("COMMIT PREPARED '%s'" % gid)
                    self.state.apply(*self.state.prepared.pop(gid))
                else:
                    conn.cursor().execute("ROLLBACK PREPARED '%s'" % gid)
                    self.state.prepared.pop(gid)

    def round(self, number):
        self.until = time.time() + self.rng.uniform(1, self.args.round)
        crash = self.args.crash and self.rng.random() < 0.5
        self.go.set()
        if crash:
            time.sleep(max(0, self.until - time.time()) * self.rng.random())
            self.crash()
        self.paused.wait()
        self.go.clear()
        if crash and not self.failed.is_set():
            self.recover()
            where = "primary after a crash"
        else:
            where = "primary"
        quiet = self.rng.random() < 0.6
        if quiet and not self.failed.is_set():
            self.finish_transactions()
        if not self.failed.is_set():
            self.check(where, quiet)
            self.clip()
        if number % 5 == 0:
            print("%4d s: %s" % (time.time() - self.started, self.summary()), flush=True)

    def clip(self):
        """Keep the tables small enough for short rounds."""
        for table in self.tables:
            if len(self.state.rows[table]) > self.args.rows:
                with contextlib.closing(self.primary.connect()) as conn:
                    cur = conn.cursor()
                    cur.execute("SET lock_timeout = '300ms'")
                    try:
                        cur.execute("DELETE FROM %s WHERE h(id, 0, 15) %% 2 = 0 RETURNING id" % table)
                        for (row,) in cur.fetchall():
                            self.state.rows[table].pop(row)
                    except psycopg2.errors.LockNotAvailable:
                        pass

    def summary(self):
        comparisons = self.checker.comparisons + sum(w.checker.comparisons for w in self.workers)
        extra = ", ".join("%s %d" % item for item in sorted(self.checks.items()))
        return "%d operations, %d comparisons, rows %s, %s" % (
            self.operations, comparisons, [len(r) for r in self.state.rows.values()], extra)

    def run(self):
        self.started = time.time()
        self.create()
        self.workers = [Worker(n, self) for n in range(self.args.connections)]
        for worker in self.workers:
            worker.start()
        number = 0
        while time.time() - self.started < self.args.seconds and not self.failed.is_set():
            number += 1
            try:
                self.round(number)
            except (psycopg2.Error, RuntimeError) as error:
                self.difference(None, "round %d failed: %s" % (number, error))
            if not self.failed.is_set() and time.time() - self.started < self.args.seconds:
                self.resumed.wait()
        self.finish()

    def finish(self):
        for server in (self.primary, self.standby):
            if server:
                server.stop("fast" if not self.failed.is_set() else "immediate")
                for line in server.log_faults():
                    self.difference(None, "log of %s: %s" % (server.name, line))
        explained = [self.checker] + [w.checker for w in self.workers]
        print("seed: %s" % self.seed)
        print("operations: %d" % self.operations)
        print("comparisons: %d" % sum(c.comparisons for c in explained))
        print("plans looked at: %d, by index: %d, in parallel: %d" % (
            sum(c.explained for c in explained), sum(c.by_index for c in explained),
            sum(c.in_parallel for c in explained)))
        print("checks: %s" % dict(self.checks))
        print("differences: %d" % len(self.differences))
        if self.differences:
            print("data directory kept: %s" % self.workdir)
        else:
            cluster.remove_workdir(self.workdir)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bindir", required=True, help="PostgreSQL programs, with the extension installed")
    parser.add_argument("--workdir", help="an empty directory, for servers and logs")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--standby", action="store_true", help="compare on a streaming replica too")
    parser.add_argument("--crash", action="store_true", help="kill the server or a backend now and then")
    parser.add_argument("--delta", type=int, metavar="N",
                        help="pack leaves with more than N plain entries (build with test points)")
    parser.add_argument("--run-min", type=int, metavar="N",
                        help="write runs of N entries or more (build with test points)")
    parser.add_argument("--tiny", action="store_true", help="small stages, journals and pool; all leaves are cold, all indexes large")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--am", default="cachebatch", help="btree tests the test")
    parser.add_argument("--rows", type=int, default=15000, help="rows a table before it is thinned out")
    parser.add_argument("--round", type=float, default=4, help="longest round in seconds")
    parser.add_argument("--queries", type=int, default=60, help="questions at each check")
    return parser


def main():
    args = arguments().parse_args()
    cluster.drop_root(__file__)
    print("seed %s" % args.seed, flush=True)
    test = Test(args)
    test.run()
    sys.stdout.flush()
    # worker threads may wait for ever: leave without them
    os._exit(1 if test.differences else 0)


if __name__ == "__main__":
    main()
