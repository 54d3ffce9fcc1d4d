"""Building, VACUUM, restart, logical apply, and loads into tables of their own.

create-index-5m   CREATE INDEX on 5 million random bigints
vacuum-10pct      VACUUM of the 5 million rows, a tenth of them dead, with a
                  pool (or, without one, a journal) that inserts have filled
copy-ascending    COPY of 2 million ascending bigints into an empty table
copy-random-1     COPY of 1 million random bigints, 100 000 a command, into a
                  table of 2 million rows with 1 index
copy-random-4     the same with 4 columns and 4 indexes
restart           crash with a full pool, right after a checkpoint: time from
                  the start to the first answer, and until the journal has
                  been emptied; how soon a query that catches up is cancelled
restart-alter     the same start; then single rows and DDL that locks the index,
                  again and again, until workers have emptied the journal: the
                  longest DDL ("max"), and how long it was until then
compactor            bytes of the pages that hold an index's entries once workers
                  have packed it, as cache_batch.cold_threshold has them do
logical           apply of rows by a subscriber that has 4 indexes
size-KEYS         bytes of an index that 5 million rows were inserted into:
                  uniform (bigint), uuid, urls (text), few (1 024 bigints),
                  ascending, timestamps (bigint microseconds, 1 000 a second with
                  random gaps); and of the pages that hold its entries once all
                  of it was packed (cold_bytes; btree has the same)
"""

import os
import time

import psycopg2

import data
import drive

PAIR = ("btree", "cachebatch")


def used_bytes(cluster, index):
    """Bytes of the pages of a cachebatch index that hold its entries."""
    return 8192 * cluster.sql(
        f"SELECT 1 + count(*) FROM generate_series(1, pg_relation_size('{index}') / 8192 - 1) b, "
        f"cache_batch_page('{index}', b) p WHERE p.type IN ('leaf', 'internal')")


class Upkeep:
    """btree beside cachebatch, on the rows in memory."""

    def __init__(self, bench, name):
        self.name = name
        self.bench = bench
        self.shape = bench.memory
        self.methods = list(PAIR)

    def template(self, method):
        return data.template(self.bench.env, self.shape, method)


class CreateIndex(Upkeep):
    """CREATE INDEX."""

    @staticmethod
    def names():
        return ["create-index-5m"]

    def template(self, method):
        # the same table for both, only one of them with the extension
        return ("keys", self.shape.rows, method), lambda cluster: self.build(cluster, method)

    def build(self, cluster, method):
        cluster.start(self.bench.env.settings(method, self.shape, fsync="off"))
        if method == "cachebatch":
            cluster.sql("CREATE EXTENSION cache_batch")
        cluster.sql("CREATE TABLE keys AS SELECT hashint8extended(i, 1) AS k "
                    f"FROM generate_series(1, {self.shape.rows}) i")
        cluster.sql("VACUUM ANALYZE keys")
        cluster.stop()

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        cluster.prewarm()
        measure = drive.Measure(cluster)
        cluster.sql(f"CREATE INDEX keys_k ON keys USING {method} (k)")
        found = measure.stop(self.shape.rows)
        self.bench.discard(cluster)
        return [found]


class Vacuum(Upkeep):
    """VACUUM with a tenth of the rows dead."""

    @staticmethod
    def names():
        return ["vacuum-10pct"]

    def run(self, method, repeat):
        env = self.bench.env
        cluster = self.bench.clone(self.template(method))
        cluster.start(env.settings(method, self.shape, **env.no_delay()))
        cluster.prewarm()
        cluster.sql("DELETE FROM events WHERE k1 % 10 = 0")
        filled = self.bench.fill(cluster, self.shape, method, self.name)
        pending = cluster.journal_bytes("events_k1") if method == "cachebatch" else ""
        cluster.sql("CHECKPOINT")
        measure = drive.Measure(cluster)
        cluster.sql("VACUUM (PARALLEL 0, INDEX_CLEANUP ON) events")
        found = measure.stop(self.shape.rows)
        self.bench.discard(cluster)
        return [dict(found, filled=filled, pending_bytes=pending)]


class Size(Upkeep):
    """How large an index is after the insertions of its template."""

    def __init__(self, bench, name):
        super().__init__(bench, name)
        self.distribution = name.split("-")[1]

    @staticmethod
    def names():
        return ["size-uniform", "size-uuid", "size-urls", "size-few", "size-ascending",
                "size-timestamps"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, self.distribution)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        index = "events_" + data.COLUMNS[self.distribution].split()[0]
        size = cluster.sql(f"SELECT pg_relation_size('{index}')")
        found = {"rows": self.shape.rows, "index_bytes": size, "cold_bytes": size}
        if method == "cachebatch":
            cluster.sql(f"SELECT cache_batch_compact('{index}')")
            found["cold_bytes"] = used_bytes(cluster, index)
        self.bench.discard(cluster)
        return [found]


class CopyKeys(Upkeep):
    """COPY of keys alone: ascending into nothing, random into 2 million."""

    def __init__(self, bench, name):
        super().__init__(bench, name)
        self.ascending = name == "copy-ascending"
        self.count = 4 if name == "copy-random-4" else 1

    @staticmethod
    def names():
        return ["copy-ascending", "copy-random-1", "copy-random-4"]

    def scaled(self, rows):
        return max(1000, int(rows * self.bench.args.scale))

    def template(self, method):
        return ("rand", self.name, method), lambda cluster: self.build(cluster, method)

    def build(self, cluster, method):
        """The table, filled before it gets its indexes, and the files."""
        cluster.start(self.bench.env.settings(method, self.shape, fsync="off"))
        if method == "cachebatch":
            cluster.sql("CREATE EXTENSION cache_batch")
        rows = 0 if self.ascending else self.scaled(2_000_000)
        cluster.sql("CREATE TABLE rand AS " + self.keys(1, rows))
        for n in range(self.count):
            cluster.sql(f"CREATE INDEX ON rand USING {method} (k{n})")
        for path, first, last in self.files():
            if not os.path.exists(path):
                cluster.sql(f"COPY ({self.keys(first, last)}) TO '{path}' (FORMAT binary)")
        cluster.stop()

    def keys(self, first, last):
        names = [f"{'i' if self.ascending else f'hashint8extended(i, {n + 10})'} AS k{n}"
                 for n in range(self.count)]
        return f"SELECT {', '.join(names)} FROM generate_series({first}::bigint, {last}) i"

    def files(self):
        """Path, first and last row of each file."""
        count, rows = (1, 2_000_000) if self.ascending else (10, 100_000)
        rows = self.scaled(rows)
        for n in range(count):
            yield (os.path.join(self.bench.files.directory, f"{self.name}-{n}"),
                   3_000_000_000 + n * rows, 3_000_000_000 + (n + 1) * rows - 1)

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        cluster.prewarm()
        rows = sum(last - first + 1 for _, first, last in self.files())
        measure = drive.Measure(cluster)
        for path, _, _ in self.files():
            cluster.sql(f"COPY rand FROM '{path}' (FORMAT binary)")
        cluster.flush()
        found = measure.stop(rows)
        self.bench.discard(cluster)
        return [found]


class Restart(Upkeep):
    """Start with a full pool's journal on disk."""

    QUERY = "SELECT id FROM events WHERE k1 = hashint8extended(2000000007, 1)"

    @staticmethod
    def names():
        return ["restart"]

    def run(self, method, repeat):
        env = self.bench.env
        settings = env.settings(method, self.shape, **env.no_delay())
        cluster = self.bench.clone(self.template(method))
        filled, pending = self.crash(cluster, method, settings)
        began = time.monotonic()
        up = cluster.start(settings)
        first = self.query(cluster)
        answered = time.monotonic() - began
        second = self.query(cluster)
        cancelled = self.cancel(cluster)
        began = time.monotonic()
        cluster.flush()
        found = {"rows": filled, "filled": filled, "pending_bytes": pending,
                 "start_ms": up * 1000, "answer_ms": answered * 1000,
                 "first_query_ms": first, "second_query_ms": second,
                 "cancel_ms": cancelled, "catch_up_ms": (time.monotonic() - began) * 1000}
        self.bench.discard(cluster)
        return [found]

    def crash(self, cluster, method, settings):
        """Leaves a full pool's journal on disk: of how many rows, and its bytes."""
        cluster.start(settings)
        filled = self.bench.fill(cluster, self.shape, method, self.name)
        pending = cluster.journal_bytes("events_k1") if method == "cachebatch" else ""
        cluster.sql("CHECKPOINT")
        cluster.stop("immediate")
        return filled, pending

    def query(self, cluster, options=""):
        """Milliseconds that a new connection's first look-up takes."""
        return drive.first_query(cluster, self.QUERY, "-c enable_seqscan=off " + options)

    def cancel(self, cluster):
        """Milliseconds until a look-up with 5 ms to go has ended, either way."""
        began = time.monotonic()
        try:
            self.query(cluster, "-c statement_timeout=5")
        except psycopg2.errors.QueryCanceled:
            pass
        return (time.monotonic() - began) * 1000


class RestartAlter(Restart):
    """Who wants the index for himself while workers empty its journal."""

    ALTER = "ALTER INDEX events_k1 SET TABLESPACE pg_default"   # changes nothing
    WAITING = "SELECT count(*) FROM cache_batch_stat_buckets WHERE NOT swept"

    @staticmethod
    def names():
        return ["restart-alter"]

    def run(self, method, repeat):
        env = self.bench.env
        settings = env.settings(method, self.shape, **env.no_delay())
        cluster = self.bench.clone(self.template(method))
        filled, pending = self.crash(cluster, method, settings)
        cluster.start(settings)
        db = cluster.connect()
        cursor = db.cursor()
        waits = []
        began = time.monotonic()
        while True:
            # workers come for it, if the DDL is not in their way
            cursor.execute("INSERT INTO events " + data.rows_sql("uniform", -len(waits), -len(waits)))
            start = time.monotonic()
            cursor.execute(self.ALTER)
            waits.append(int((time.monotonic() - start) * 1e6))
            if method != "cachebatch" or cluster.sql(self.WAITING) == 0:
                break
            time.sleep(0.05)
        found = {"filled": filled, "pending_bytes": pending,
                 "catch_up_ms": (time.monotonic() - began) * 1000}
        db.close()
        self.bench.discard(cluster)
        return [dict(found, **drive.latencies(sorted(waits)))]


class Compactor(Upkeep):
    """What workers that pack cold leaves leave of an index."""

    SETTINGS = {"cache_batch.cold_threshold": "0", "cache_batch.cold_rate": "1000000",
                "cache_batch.heat_epoch": "1s", "cache_batch.max_delay": "1s"}
    QUIET = 15      # seconds without any progress: they have come to an end

    def __init__(self, bench, name):
        super().__init__(bench, name)
        self.methods = ["cachebatch"]

    @staticmethod
    def names():
        return ["compactor"]

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape, **self.SETTINGS))
        before = used_bytes(cluster, "events_k1")
        cluster.sql("INSERT INTO events " + data.rows_sql("uniform", 0, 0))     # workers come
        compacted, since = 0, time.monotonic()
        while time.monotonic() - since < self.QUIET:
            time.sleep(0.5)
            now = cluster.sql("SELECT sum(compacted)::bigint FROM cache_batch_stat_indexes")
            if now != compacted:
                compacted, since = now, time.monotonic()
        found = {"index_bytes": before, "compacted": compacted,
                 "cold_bytes": used_bytes(cluster, "events_k1")}
        self.bench.discard(cluster)
        return [found]


class Logical(Upkeep):
    """Rows a second that a subscriber applies."""

    @staticmethod
    def names():
        return ["logical"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, count=4)

    def publisher(self, files):
        """A server with an empty table, a slot, and then the rows."""
        env = self.bench.env
        cluster = env.clone(env.base, "publisher", env.port + 1)
        cluster.start(env.settings("heap", self.shape, wal_level="logical"))
        cluster.sql(data.TABLE)
        cluster.sql("CREATE PUBLICATION bench FOR TABLE events")
        cluster.sql("SELECT pg_create_logical_replication_slot('bench', 'pgoutput')")
        drive.copy_batches(cluster, files)
        return cluster

    def run(self, method, repeat):
        env = self.bench.env
        rows = self.shape.ingest_rows(4) // 2
        files = self.bench.files.get("uniform", self.shape.rows + 1, rows)
        rows = len(files) * data.BATCH
        publisher = self.publisher(files)
        cluster = self.bench.clone(self.template(method))
        cluster.start(env.settings(method, self.shape, max_replication_slots="4"))
        cluster.prewarm()
        cluster.sql("CREATE SUBSCRIPTION bench CONNECTION "
                    f"'host={env.sockets} port={publisher.port} user=postgres dbname=postgres' "
                    "PUBLICATION bench WITH (create_slot = false, copy_data = false, "
                    "enabled = false, slot_name = 'bench')")
        end = publisher.sql("SELECT pg_current_wal_lsn()")
        measure = drive.Measure(cluster)
        cluster.sql("ALTER SUBSCRIPTION bench ENABLE")
        self.wait(publisher, end)
        cluster.flush()
        found = measure.stop(rows)
        found["applied"] = cluster.sql("SELECT count(*) FROM events") - self.shape.rows
        if found["applied"] != rows:
            raise RuntimeError(f"applied {found['applied']} rows of {rows}")
        self.bench.discard(cluster)
        publisher.stop("immediate")
        publisher.remove()
        return [found]

    def wait(self, publisher, end):
        """Until the subscriber says that it has written everything up to `end`."""
        deadline = time.monotonic() + 3600
        while time.monotonic() < deadline:
            if publisher.sql("SELECT coalesce(bool_or(write_lsn >= "
                             f"'{end}'), false) FROM pg_stat_replication"):
                return
            time.sleep(0.02)
        raise RuntimeError("the subscriber does not keep up")
