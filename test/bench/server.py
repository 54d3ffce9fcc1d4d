"""Private servers: clusters, templates of preloaded data, clones of them.

A template is a data directory that has been preloaded and shut down; each
timed run gets a copy, so that every method and every repeat starts from the
same state.  Settings go into postgresql.auto.conf before each start.

A run may have another build of the extension (--against), in a copy of the server
of its own: the method "other" is cachebatch with that one's programs.
"""

import contextlib
import os
import shutil
import subprocess
import threading
import time

import psycopg2

MB = 1024           # settings are in kB

# methods whose indexes are cachebatch's
OURS = ("cachebatch", "unbuffered")

COMMON = {
    "autovacuum": "off",
    "fsync": "on",
    "full_page_writes": "on",
    "jit": "off",
    "listen_addresses": "",
    "maintenance_work_mem": "256MB",
    "max_parallel_maintenance_workers": "0",
    "max_parallel_workers_per_gather": "0",
    "synchronous_commit": "off",
    "wal_level": "replica",
}


class Cluster:
    """One data directory and, while it runs, its server."""

    def __init__(self, env, directory, port):
        self.env = env
        self.directory = directory
        self.port = port
        self.group = None           # a confine.Group that the server starts in

    def program(self, name, *args, **more):
        """Runs one of the server's programs; its output as text."""
        done = subprocess.run([os.path.join(self.env.bindir, name), *args], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, **more)
        if done.returncode:
            raise RuntimeError(f"{name} failed:\n{done.stdout[-3000:]}")
        return done.stdout

    def start(self, settings):
        """Starts the server with these settings; seconds until it takes queries."""
        settings = dict(settings, unix_socket_directories=self.env.sockets, port=self.port)
        with open(os.path.join(self.directory, "postgresql.auto.conf"), "w") as out:
            for name, value in settings.items():
                out.write(f"{name} = '{value}'\n")
        log = self.directory + ".log"
        began = time.monotonic()
        # pg_ctl's own output must not be a pipe that the server would keep open
        code = subprocess.call(
            (self.group.prefix() if self.group else []) +
            [os.path.join(self.env.bindir, "pg_ctl"), "-w", "-t", "600",
             "-D", self.directory, "-l", log, "start"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if code:
            with open(log) as text:
                raise RuntimeError("server does not start:\n" + text.read()[-3000:])
        return time.monotonic() - began

    def stop(self, mode="fast"):
        self.program("pg_ctl", "-w", "-t", "600", "-D", self.directory, "-m", mode, "stop")

    def connect(self, options=""):
        db = psycopg2.connect(host=self.env.sockets, port=self.port, user="postgres",
                              dbname="postgres", options=options)
        db.autocommit = True
        return db

    def sql(self, text, options=""):
        """First value of the first row, on a connection of its own."""
        db = self.connect(options)
        try:
            cursor = db.cursor()
            cursor.execute(text)
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None
        finally:
            db.close()

    def column(self, text):
        """First column of all rows."""
        db = self.connect()
        try:
            cursor = db.cursor()
            cursor.execute(text)
            return [row[0] for row in cursor.fetchall()]
        finally:
            db.close()

    def indexes(self, ours=False):
        """Names of the user's indexes, or only of cachebatch's."""
        return self.column(
            "SELECT c.relname FROM pg_class c JOIN pg_am a ON a.oid = c.relam "
            "WHERE c.relkind = 'i' AND c.oid >= 16384 "
            "AND c.relnamespace = 'public'::regnamespace "
            + ("AND a.amname = 'cachebatch' " if ours else "") + "ORDER BY 1")

    def flush(self, clients=2):
        """Moves all journals into their trees, two indexes at a time."""
        names = self.indexes(ours=True)
        parallel(clients, names, lambda db, name: db.cursor().execute(
            f"SELECT cache_batch_flush('{name}')"), self.connect)

    def journal_bytes(self, index):
        return int(self.sql(f"SELECT coalesce(sum(bytes), 0) FROM cache_batch_journal('{index}')"))

    def wal_position(self):
        return int(self.sql("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    def processes(self):
        """(process id, fields of its stat after the name) of the server's
        processes; the postmaster is the first."""
        with open(os.path.join(self.directory, "postmaster.pid")) as f:
            postmaster = int(f.readline())
        found = []
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                with open(f"/proc/{entry}/stat") as f:
                    fields = f.read().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if postmaster in (int(entry), int(fields[1])):
                found.append((int(entry), fields))
        return sorted(found, key=lambda p: p[0] != postmaster)

    def cpu_seconds(self):
        """CPU time so far of the postmaster and all its children, ended ones too."""
        (_, postmaster), *children = self.processes()
        ticks = sum(int(x) for x in postmaster[11:15])
        ticks += sum(int(f[11]) + int(f[12]) for _, f in children)
        return ticks / os.sysconf("SC_CLK_TCK")

    def disk_bytes(self):
        """Bytes that all server processes have read from and written to storage
        so far.  The kernel counts a page of its cache when it becomes dirty, and
        adds a process that has ended to the postmaster."""
        read = written = 0
        for process, _ in self.processes():
            try:
                with open(f"/proc/{process}/io") as f:
                    io = dict(line.split(": ") for line in f.read().splitlines())
            except (OSError, ValueError):
                continue        # it has just ended
            read += int(io["read_bytes"])
            written += int(io["write_bytes"]) - int(io["cancelled_write_bytes"])
        return read, written

    def evict(self):
        """All files out of the operating system's cache."""
        subprocess.check_call(["sync", "-f", self.directory])
        for directory, _, names in os.walk(self.directory):
            for name in names:
                file = os.open(os.path.join(directory, name), os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)

    def prewarm(self):
        """All of the tables and indexes into shared buffers."""
        if not self.env.has_prewarm:
            self.read_by_indexes()
            return
        self.column("SELECT pg_prewarm(oid::regclass) FROM pg_class WHERE relkind IN ('r', 'i') "
                    "AND relnamespace = 'public'::regnamespace")

    def read_by_indexes(self):
        """The same where the server lacks pg_prewarm: each index is read as a whole, and
        the rows in its order."""
        db = self.connect("-c enable_seqscan=off -c enable_bitmapscan=off -c enable_sort=off")
        try:
            cursor = db.cursor()
            cursor.execute(
                "SELECT format('SELECT count(x) FROM (SELECT %1$s x FROM %1$s ORDER BY %2$s) y', "
                "i.indrelid::regclass, pg_get_indexdef(i.indexrelid, 1, true)) "
                "FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_class x "
                "ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam "
                "WHERE c.relnamespace = 'public'::regnamespace AND m.amname <> 'hash'")
            for (query,) in cursor.fetchall():
                cursor.execute(query)
        finally:
            db.close()

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)
        if os.path.exists(self.directory + ".log"):
            os.remove(self.directory + ".log")


def parallel(clients, items, work, connect):
    """Calls work(connection, item) for all items from some threads.

    Returns the seconds that each item took; the first error is raised.
    """
    items, lock, seconds, errors = list(items), threading.Lock(), [], []

    def client():
        db = connect()
        try:
            while not errors:
                with lock:
                    if not items:
                        return
                    item = items.pop(0)
                began = time.monotonic()
                work(db, item)
                seconds.append(time.monotonic() - began)
        except Exception as error:          # raised again by the main thread
            errors.append(error)
        finally:
            db.close()

    threads = [threading.Thread(target=client) for _ in range(min(clients, len(items)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return seconds


class Env:
    """Where programs, data and sockets are; which settings the library has."""

    def __init__(self, args):
        self.bindir = args.bindir
        self.other_bindir = args.other_bindir
        self.own_templates = args.own_templates
        self.scratch = args.scratch
        self.sockets = os.path.join(args.scratch, "s")
        self.port = args.port
        self.quick = args.quick
        self.extra = dict(item.split("=", 1) for item in args.set)
        self.templates = {}
        self.known = {}
        os.makedirs(self.sockets, exist_ok=True)
        self.base = Cluster(self, os.path.join(args.scratch, "base"), self.port)
        self.base.program("initdb", "-D", self.base.directory, "-U", "postgres", "--auth=trust",
                          "--no-sync", "--encoding=UTF8", "--locale=C")
        self.detect()

    def detect(self):
        """Creates the extensions and learns the library's settings."""
        self.base.start(dict(COMMON, shared_preload_libraries="cache_batch"))
        self.has_prewarm = self.base.sql(
            "SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_prewarm'") > 0
        if self.has_prewarm:
            self.base.sql("CREATE EXTENSION pg_prewarm")
        db = self.base.connect()
        cursor = db.cursor()
        cursor.execute("SELECT name, setting, coalesce(unit, ''), max_val FROM pg_settings "
                       "WHERE name LIKE 'cache_batch.%' ORDER BY 1")
        self.known = {row[0]: row[1:] for row in cursor.fetchall()}
        cursor.execute("SHOW server_version")
        self.version = cursor.fetchone()[0]
        db.close()
        self.base.stop()

    @contextlib.contextmanager
    def build_of(self, method):
        """Servers are those of the method's build meanwhile; what is its index method."""
        if method != "other":
            yield method
            return
        bindir, self.bindir = self.bindir, self.other_bindir
        try:
            yield "cachebatch"
        finally:
            self.bindir = bindir

    def template_key(self, key):
        """What a template of the present build is called."""
        other = self.own_templates and self.bindir == self.other_bindir
        return key + (("other",) if other else ())

    def has_pool(self):
        return "cache_batch.pool_size" in self.known

    def settings(self, method, shape, **more):
        """Settings of a server for one method.

        Those without a pool get the pool's size as shared buffers instead.
        """
        found = dict(COMMON, max_wal_size=f"{shape.max_wal}MB")
        buffers = shape.shared_buffers
        if method == "cachebatch" and self.has_pool():
            found["cache_batch.pool_size"] = f"{shape.pool}kB"
        else:
            buffers += shape.pool
        found["shared_buffers"] = f"{buffers}kB"
        if "checkpoint_timeout" not in more:
            found["checkpoint_timeout"] = "1h"
        if method in OURS:
            found["shared_preload_libraries"] = "cache_batch"
            found.update(self.extra)
        if method == "unbuffered":
            # the whole of a statement is sorted and goes straight to the tree
            found["cache_batch.stage_size"] = "4MB"
            found["cache_batch.stage_total_size"] = "16MB"
            if self.has_pool():
                found["cache_batch.pool_size"] = "0"
        if method == "cachebatch" and "cache_batch.max_workers" in self.known:
            found.setdefault("cache_batch.max_workers", "2")
        found.update(more)
        return found

    def no_delay(self):
        """Settings under which nothing is flushed merely because of its age."""
        if "cache_batch.max_delay" not in self.known:
            return {}
        return {"cache_batch.max_delay": self.known["cache_batch.max_delay"][2]}

    def clone(self, source, name, port=None):
        """A copy of a stopped cluster, written out before it is used (if not --quick)."""
        directory = os.path.join(self.scratch, name)
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.check_call(["cp", "-a", source.directory, directory])
        if not self.quick:
            subprocess.check_call(["sync", "-f", directory])
        return Cluster(self, directory, port or self.port)

    def has_template(self, key):
        return self.template_key(key) in self.templates

    def template(self, key, build):
        """The template of this key, made by build(cluster) when first asked for."""
        key = self.template_key(key)
        if key not in self.templates:
            name = "template-" + "-".join(str(part) for part in key)
            cluster = self.clone(self.base, name)
            build(cluster)
            self.templates[key] = cluster
        return self.templates[key]

    def drop_template(self, key):
        if key in self.templates:
            self.templates.pop(key).remove()
