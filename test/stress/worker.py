"""One connection of the differential test: random work, its own account of it.

A worker changes only rows whose ids are its own (id % workers), so that the
rows that must be there are known without asking the server.  Its account is
written from the server's answers (RETURNING), and counts once the transaction
has committed.  If a crash hides the outcome of a COMMIT, the transaction's row
in txlog, written first of all, tells it.
"""

import collections
import io
import random
import threading
import time

import psycopg2
from psycopg2 import errors

from answers import INDEXES, SET_VALUES, VALUES, Checker

# what a statement may fail with while others work on the same objects
EXPECTED = {"40001", "40P01", "55P03", "57014", "23P01", "55006", "42704", "42P01", "25001", "25006",
            "55000"}  # verify: an index that a cancelled CONCURRENTLY left invalid
EXPECTED_TEXT = ("cannot cluster on invalid index", "could not open relation with OID", "tuple concurrently updated",
                 "tuple concurrently deleted", "cache lookup failed for")


class State:
    """What must be in the tables: table → {id: v}.  Survives every crash."""

    def __init__(self, tables):
        self.rows = {table: {} for table in tables}
        self.lock = threading.RLock()       # held over COMMIT and its account
        self.acknowledged = set()           # transactions that did commit
        self.prepared = {}                  # gid → (transaction, changes)

    def apply(self, transaction, changes):
        self.acknowledged.add(transaction)
        for kind, table, row, v in changes:
            if kind == "set":
                self.rows[table][row] = v
            elif kind == "delete":
                self.rows[table].pop(row, None)
            else:
                self.rows[table].clear()


class Worker(threading.Thread):
    def __init__(self, number, test):
        super().__init__(daemon=True, name="worker%d" % number)
        self.number = number
        self.test = test
        self.rng = random.Random("%s/%d" % (test.seed, number))
        self.state = test.state
        self.conn = None
        self.next_id = number
        self.next_tx = number
        self.last = collections.deque(maxlen=60)
        self.reset()
        self.in_doubt = None        # (transaction, changes) of a COMMIT that broke
        self.doubtful_gids = set()  # PREPARE or its end was under way in a crash
        self.checker = Checker(lambda text: test.difference(self, text))

    def reset(self):
        self.tx = None
        self.changes = []
        self.savepoints = []
        self.isolation = None

    # ---------- talking to the server ----------

    def connect(self):
        self.conn = self.test.primary.connect()
        self.cur = self.conn.cursor()
        self.cur.execute("SET lock_timeout = '400ms'; SET statement_timeout = '120s'")
        self.reset()

    def sql(self, text):
        self.last.append("%.3f %s" % (time.time(), text[:600]))
        self.test.count()
        self.cur.execute(text)

    def begin(self):
        if self.tx is not None:
            return
        self.isolation = self.rng.choice(["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
        self.tx = self.next_tx
        self.next_tx += self.test.workers_max
        self.sql("BEGIN ISOLATION LEVEL " + self.isolation)
        self.sql("INSERT INTO txlog VALUES (%d)" % self.tx)

    def rollback(self):
        self.reset()
        self.sql("ROLLBACK")

    def commit(self):
        if self.tx is None:
            return
        with self.state.lock:
            if self.rng.random() < 0.12:
                self.prepare()
                return
            self.in_doubt = (self.tx, self.changes)
            try:
                self.sql("COMMIT")
            except psycopg2.Error as error:
                # refused is not in doubt, but a lost connection is
                if error.pgcode and not self.conn.closed and not error.pgcode.startswith("57P"):
                    self.in_doubt = None
                raise
            self.state.apply(self.tx, self.changes)
            self.in_doubt = None
        self.reset()

    def prepare(self):
        gid = "g%d" % self.tx
        self.state.prepared[gid] = (self.tx, self.changes)
        self.doubtful_gids.add(gid)
        try:
            self.sql("PREPARE TRANSACTION '%s'" % gid)
        except psycopg2.Error as error:
            if error.pgcode and not self.conn.closed and not error.pgcode.startswith("57P"):
                del self.state.prepared[gid]
                self.doubtful_gids.discard(gid)
            raise
        self.doubtful_gids.discard(gid)
        self.reset()

    def finish_prepared(self):
        """End one of our prepared transactions."""
        mine = [gid for gid, (tx, _) in list(self.state.prepared.items())
                if tx % self.test.workers_max == self.number]
        if not mine or self.tx is not None:
            return
        gid = self.rng.choice(sorted(mine))
        with self.state.lock:
            self.doubtful_gids.add(gid)
            if self.rng.random() < 0.7:
                self.sql("COMMIT PREPARED '%s'" % gid)
                self.state.apply(*self.state.prepared.pop(gid))
            else:
                self.sql("ROLLBACK PREPARED '%s'" % gid)
                self.state.prepared.pop(gid)
            self.doubtful_gids.discard(gid)

    # ---------- rows ----------

    def table(self):
        return self.rng.choice(self.test.tables)

    def note(self, kind, table):
        """Account for the rows (id, v) that a statement returned."""
        self.changes += [(kind, table, row, v) for row, v in self.cur.fetchall()]

    def own_ids(self, table, count):
        ids = [i for i in list(self.state.rows[table]) if i % self.test.workers_max == self.number] \
            if len(self.state.rows[table]) < 60000 else []
        if not ids:
            return []
        ids.sort()
        if self.rng.random() < 0.5:
            start = self.rng.randrange(len(ids))
            return ids[start:start + count]
        return self.rng.sample(ids, min(count, len(ids)))

    def new_ids(self, count):
        """An expression for new ids: ascending, or strewn over the key space."""
        step = self.test.workers_max
        first = self.next_id
        self.next_id += count * step
        return "generate_series(%d::bigint, %d, %d) AS id" % (first, first + (count - 1) * step, step)

    def batch(self):
        return self.rng.choice([1, 1, 2, 5, 20, 100, 400, self.rng.randrange(1, 2001)])

    def do_insert(self):
        table, count = self.table(), self.batch()
        order = self.rng.choice(["", " ORDER BY md5(id::text)"])
        self.sql("INSERT INTO %s (id, v, a, b, c, d, e, f, x) SELECT %s FROM %s%s RETURNING id, v" % (
            table, VALUES.format(v=0), self.new_ids(count), order))
        self.note("set", table)

    def do_copy(self):
        table, count = self.table(), self.batch()
        ids = self.new_ids(count)
        text = io.StringIO()
        self.sql("SELECT 1")
        self.cur.copy_expert("COPY (SELECT %s FROM %s) TO STDOUT" % (VALUES.format(v=1), ids), text)
        text.seek(0)
        self.last.append("COPY %s from %s" % (table, ids))
        self.cur.copy_expert("COPY %s (id, v, a, b, c, d, e, f, x) FROM STDIN" % table, text)
        lines = text.getvalue().splitlines()
        self.changes += [("set", table, int(line.split("\t")[0]), 1) for line in lines]

    def do_update(self):
        table = self.table()
        ids = self.own_ids(table, self.batch())
        if not ids:
            return
        v = self.rng.randrange(2, 1000)
        what = "g = g + 1" if self.rng.random() < 0.4 else SET_VALUES.format(v=v)
        self.sql("UPDATE %s t SET %s WHERE id = ANY ('{%s}') RETURNING id, v" % (
            table, what, ",".join(map(str, ids))))
        self.note("set", table)

    def do_delete(self):
        table = self.table()
        ids = self.own_ids(table, self.rng.choice([1, 10, 300, 1500]))
        if not ids:
            return
        self.sql("DELETE FROM %s WHERE id = ANY ('{%s}') RETURNING id, v" % (table, ",".join(map(str, ids))))
        self.note("delete", table)

    def do_delete_range(self):
        table = self.table()
        a = self.rng.randrange(-500, 500)
        self.sql("DELETE FROM %s WHERE a BETWEEN %d AND %d AND id %% %d = %d RETURNING id, v" % (
            table, a, a + self.rng.randrange(20), self.test.workers_max, self.number))
        self.note("delete", table)

    def do_truncate(self):
        table = self.table()
        for _ in range(self.rng.choice([1, 1, 2, 2, 3])):
            self.sql("TRUNCATE " + table)
            self.changes.append(("truncate", table, 0, 0))
            self.sql("INSERT INTO %s (id, v, a, b, c, d, e, f, x) SELECT %s FROM %s RETURNING id, v" % (
                table, VALUES.format(v=2), self.new_ids(self.batch())))
            self.note("set", table)

    def do_savepoint(self):
        name = "s%d" % len(self.savepoints)
        self.sql("SAVEPOINT " + name)
        self.savepoints.append((name, len(self.changes)))

    def do_end_savepoint(self):
        if not self.savepoints:
            return
        at = self.rng.randrange(len(self.savepoints))
        name, length = self.savepoints[at]
        if self.rng.random() < 0.6:
            self.sql("ROLLBACK TO " + name)
            del self.changes[length:]
            del self.savepoints[at + 1:]
        else:
            self.sql("RELEASE " + name)
            del self.savepoints[at:]

    def do_move(self):
        """Give an index another file in the transaction; often undone (A3)."""
        table = self.table()
        index = "%s_%s" % (table, self.rng.choice(sorted(INDEXES)))
        self.do_savepoint()
        self.sql(self.rng.choice(["ALTER INDEX IF EXISTS %s SET TABLESPACE ts1" % index,
                                  "ALTER INDEX IF EXISTS %s SET TABLESPACE pg_default" % index,
                                  "REINDEX INDEX %s" % index]))
        self.do_insert()
        self.do_compare()
        if self.rng.random() < 0.6:
            self.do_end_savepoint()

    def do_conflict(self):
        """Speculative insertions that lose, and an exclusion constraint."""
        k = self.rng.randrange(3000)
        count = self.rng.choice([1, 5, 50])
        if self.rng.random() < 0.3:
            self.do_savepoint()
            name = self.savepoints[-1][0]
            try:
                self.sql("INSERT INTO tx (k, w) VALUES (%d, %d)" % (k, self.number))
            except errors.ExclusionViolation:
                self.savepoints.pop()
                self.sql("ROLLBACK TO " + name)
            return
        action = self.rng.choice(["NOTHING", "(k) DO NOTHING", "(k) DO UPDATE SET w = excluded.w, n = tu.n + 1"])
        if action == "NOTHING":
            action = "DO NOTHING"
        self.sql("INSERT INTO tu (k, w, n) SELECT i, (i * 7919 + %d) %% 500, 0 FROM generate_series(%d, %d) i "
                 "ON CONFLICT %s" % (self.number, k, k + count, action))
        if self.rng.random() < 0.2:
            self.sql("DELETE FROM tu WHERE w = %d" % self.rng.randrange(500))

    def do_plpgsql(self):
        """Exception blocks, one of them nested, around insertions."""
        table = self.table()
        first = self.next_id
        self.next_id += 20 * self.test.workers_max
        self.sql("SELECT * FROM blocks('%s', %d, %d)" % (table, first, self.test.workers_max))
        self.note("set", table)

    def do_cursor(self):
        """A cursor must not see what is done after it was opened."""
        table = self.table()
        query = "SELECT a, id, v FROM %s WHERE a BETWEEN %d AND %d" % ((table,) + self.span())
        self.sql(query)
        before = sorted(self.cur.fetchall())
        name = "c%d" % self.rng.randrange(1 << 30)
        self.sql("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off")
        self.sql("DECLARE %s SCROLL CURSOR FOR %s ORDER BY a" % (name, query))
        self.sql("FETCH %d FROM %s" % (self.rng.choice([0, 1, 7, 100]), name))
        self.rng.choice([self.do_insert, self.do_delete_range, self.do_update, self.do_insert])()
        self.sql("FETCH BACKWARD 3 FROM " + name)
        self.sql("MOVE ABSOLUTE 0 IN " + name)
        self.sql("FETCH ALL FROM " + name)
        forward = self.cur.fetchall()
        self.sql("FETCH BACKWARD ALL FROM " + name)
        backward = self.cur.fetchall()
        self.sql("CLOSE " + name)
        self.sql("RESET enable_seqscan; RESET enable_sort")
        if self.isolation != "READ COMMITTED" and sorted(forward) != before:
            self.test.difference(self, "cursor over %s: %d rows before, %d by the cursor" % (
                query, len(before), len(forward)))
        # rows with equal keys may come in any order
        if sorted(forward) != sorted(backward) or \
                [row[0] for row in forward] != [row[0] for row in backward[::-1]]:
            self.test.difference(self, "cursor over %s: %d rows forward, %d backward, or in another order" % (
                query, len(forward), len(backward)))
        self.checker.comparisons += 1

    def span(self):
        a = self.rng.randrange(-520, 500)
        return a, a + self.rng.randrange(60)

    def do_compare(self):
        """Within the transaction's snapshot, its own changes included."""
        if self.isolation == "READ COMMITTED":
            return
        for _ in range(self.rng.randrange(1, 4)):
            self.test.count()
            self.checker.compare(self.cur, self.rng, self.table(), (0, max(1, self.next_id)))

    # ---------- DDL, each a transaction of its own ----------

    def ddl(self):
        table = self.table()
        name = self.rng.choice(sorted(INDEXES))
        index = "%s_%s" % (table, name)
        am = self.test.am
        choices = [
            "VACUUM %s" % table, "VACUUM (FREEZE) %s" % table, "VACUUM (ANALYZE) %s" % table,
            "VACUUM (PARALLEL 2, INDEX_CLEANUP ON) %s" % table, "VACUUM (INDEX_CLEANUP OFF) %s" % table,
            "VACUUM tu", "VACUUM tx", "VACUUM (INDEX_CLEANUP ON) %s" % table,
            "VACUUM FULL %s" % table, "CLUSTER %s USING %s_a" % (table, table),
            "REINDEX INDEX %s" % index, "REINDEX TABLE %s" % table,
            "REINDEX INDEX CONCURRENTLY %s" % index,
            "DROP INDEX IF EXISTS %s" % index,
            "CREATE %sINDEX CONCURRENTLY IF NOT EXISTS %s ON %s USING %s %s" % (
                self.test.kind(name), index, table, am, INDEXES[name]),
            "CREATE %sINDEX IF NOT EXISTS %s ON %s USING %s %s" % (
                self.test.kind(name), index, table, am, INDEXES[name]),
            "ALTER INDEX IF EXISTS %s SET TABLESPACE %s" % (index, self.rng.choice(["ts1", "pg_default"])),
            "ALTER TABLE t2 SET %s" % self.rng.choice(["LOGGED", "UNLOGGED"]),
            "CHECKPOINT",
        ]
        if self.test.am != "btree":
            choices += ["SELECT cache_batch_verify('%s', false)" % index] * 3
            choices += ["SELECT cache_batch_flush('%s')" % index] * 3
            choices += ["SELECT cache_batch_compact('%s')" % index] * 4
            choices += ["SELECT cache_batch_prewarm('%s')" % index]
        self.sql(self.rng.choice(choices))

    # ---------- the loop ----------

    STEPS = [("do_insert", 20), ("do_copy", 6), ("do_update", 16), ("do_delete", 8), ("do_delete_range", 6),
             ("do_truncate", 1), ("do_move", 1), ("do_savepoint", 6), ("do_end_savepoint", 6), ("do_conflict", 10),
             ("do_plpgsql", 3), ("do_cursor", 3), ("do_compare", 16)]

    def step(self):
        if self.tx is None:
            kind = self.rng.random()
            if kind < 0.12:
                self.ddl()
                return
            if kind < 0.25:
                self.finish_prepared()
                return
        self.begin()
        names, weights = zip(*self.STEPS)
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            getattr(self, self.rng.choices(names, weights)[0])()
        end = self.rng.random()
        if end < 0.55:
            self.commit()
        elif end < 0.65:
            self.rollback()

    def tolerate(self, error):
        """Roll back after an error that concurrency explains; else complain."""
        if self.conn.closed or error.pgcode is None or error.pgcode.startswith("57P"):
            if not self.test.crashing.is_set():
                self.test.difference(self, "connection lost: %s" % error)
            return False
        if error.pgcode not in EXPECTED and not any(text in str(error) for text in EXPECTED_TEXT):
            self.test.difference(self, "unexpected error %s: %s" % (error.pgcode, error))
        self.reset()
        self.cur.execute("ROLLBACK")
        return True

    def work(self, until):
        """Steps until the time is over or the connection is gone."""
        while time.time() < until and not self.test.failed.is_set():
            try:
                self.step()
            except psycopg2.Error as error:
                try:
                    if not self.tolerate(error):
                        return
                except psycopg2.Error:
                    return

    def run(self):
        while True:
            self.test.go.wait()
            if self.test.stop:
                return
            try:
                if self.conn is None or self.conn.closed:
                    self.connect()
                self.work(self.test.until)
            except psycopg2.Error as error:
                if not self.test.crashing.is_set():
                    self.test.difference(self, "cannot connect: %s" % error)
            except Exception as error:          # a fault of the test itself
                self.test.difference(self, "worker failed: %r" % error)
            self.test.paused.wait()
            self.test.resumed.wait()
