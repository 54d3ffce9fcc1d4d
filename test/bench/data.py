"""The table `events`: shapes, key distributions, preloading, COPY files.

Every value of a row follows from its number, so that all methods and repeats
see the same rows in the same order.
"""

import copy
import glob
import os
import time

from server import MB, OURS, parallel

BATCH = 10_000

TABLE = ("CREATE TABLE events (id bigint, k1 bigint, k2 bigint, k3 bigint, k4 bigint, "
         "u uuid, payload text)")

# what is indexed, one column for each index
COLUMNS = {"uniform": "k1 k2 k3 k4", "zipfian": "k1 k2 k3 k4", "ascending": "k1 k2 k3 k4",
           "timestamps": "k1", "uuid": "u", "text": "payload", "urls": "payload", "few": "k1"}

HASH = "hashint8extended({i}, 1)"
TEXT = "md5(({i})::text)"

# kinds of keys: their columns' types, and the SQL of their values in row {i}
KEY_KINDS = {
    "bigint": [("bigint", HASH)],
    "uuid": [("uuid", TEXT + "::uuid")],
    "text": [('text COLLATE "C"', TEXT)],
    "icu": [('text COLLATE "en-x-icu"', TEXT)],
    "numeric": [("numeric", HASH + "::numeric / 1000")],
    "timestamptz": [("timestamptz",
                     f"'epoch'::timestamptz + ({HASH} & 1125899906842623) * interval '1 us'")],
    "pair": [("int", f"({HASH} & 1023)::int"), ("text", TEXT)],
    "float8": [("float8", HASH + "::float8 / 7")],
}

# of the grid beyond memory: data by memory, theta, and of ten statements so many look-ups
GRID_SIZES = [1, 2, 4, 8]
GRID_THETAS = [0.5, 0.75, 0.99, 1.25, 1.5]
GRID_READS = [10, 9, 5]
GRID_INDEX_ONLY = "8x 0.99 index-only"


def grid_cells():
    """(data by memory, theta, look-ups of ten statements, state) of each."""
    return [(size, theta, reads, f"{size}x {theta} {10 * reads}%")
            for size in GRID_SIZES for theta in GRID_THETAS for reads in GRID_READS]


ENTRY = 20          # bytes in the pool of an entry with a bigint key
ROW = 200           # bytes of a row in table and one index, with some to spare


class Shape:
    """How much of everything; scaled all together."""

    def __init__(self, name, rows, shared_buffers, max_wal, scale):
        self.name = name
        self.rows = max(BATCH, int(rows * scale))
        self.pool = max(1 * MB, int(32 * MB * scale))
        self.shared_buffers = shared_buffers
        self.max_wal = max_wal

    def with_pool(self, factor):
        """The same rows and buffers, another pool."""
        other = copy.copy(self)
        other.pool = factor * self.pool
        return other

    def with_all_in_buffers(self):
        """The same rows and pool; table and index fit into shared buffers."""
        other = copy.copy(self)
        other.shared_buffers = max(64 * MB, self.rows * ROW // 1024)
        return other

    def ingest_rows(self, indexes):
        """Five pool-fulls of entries."""
        return batches(5 * self.pool * 1024 // ENTRY // indexes) * BATCH


def in_memory(scale):
    """5 million rows, all in shared buffers."""
    return Shape("mem", 5_000_000, max(256 * MB, int(4 * 1024 * MB * scale)), 16384, scale)


def larger_than_memory(scale):
    """30 million rows, 128 MB of shared buffers, 1 GB of WAL between checkpoints."""
    return Shape("big", 30_000_000, max(4 * MB, int(128 * MB * scale)),
                 max(64, int(1024 * scale)), scale)


def batches(rows):
    return max(4, -(-rows // BATCH))


def key(distribution, column, i):
    """SQL of a bigint key of row i."""
    if distribution == "ascending":
        return f"{i} * 4 + {column}"
    if distribution == "timestamps":
        # microseconds, as a timestamptz is: 1 000 events a second, with gaps of an
        # exponential distribution; those of a command end where the next ones begin
        gap = (f"ln(((hashint8extended({i}, {column + 30}) & 1048575) + 1) "
               "/ 1048577.0::float8)")
        return (f"820454400000000 + 1000 * min({i}) OVER () + (1000 * count(*) OVER () "
                f"* (sum({gap}) OVER (ROWS UNBOUNDED PRECEDING)) / sum({gap}) OVER ())::bigint")
    if distribution == "zipfian":
        # rank of a Zipf distribution with exponent 1 over a million, scattered
        unit = f"(hashint8extended({i}, {column + 20}) & 4503599627370495) / 4503599627370496.0"
        return f"hashint8extended(power(1e6, ({unit})::float8)::bigint, {column})"
    if distribution == "few":
        return f"hashint8extended(hashint8extended({i}, 9) & 1023, {column})"
    return f"hashint8extended({i}, {column})"


def columns(distribution, i, cheap=False):
    """SQL of all columns of row i; cheap: constants where nothing is indexed."""
    uuid = f"overlay(overlay(md5({i}::text) placing '4' from 13) placing '8' from 17)::uuid"
    text = f"md5({i}::text) || left(md5(({i})::text || 'x'), 28)"
    if cheap and distribution != "uuid":
        uuid = "'6d1f0b7c-93e5-4f5e-8a51-5c3b1f0e7d2a'::uuid"
    if cheap and distribution not in ("text", "urls"):
        text = f"'some words that stand for the payload of ev' || {i}::text"
    if distribution == "urls":
        text = (f"'https://www.example.com/' || (ARRAY['books','garden','toys','music'])[1 + ({i}) % 4]"
                f" || '/item-' || (hashint8extended({i}, 5) & 2147483647) || '?ref=' || ({i}) % 97")
    keys = ", ".join(key(distribution, c, i) for c in (1, 2, 3, 4))
    return f"{i}, {keys}, {uuid}, {text}"


def rows_sql(distribution, first, last, cheap=False):
    return f"SELECT {columns(distribution, 'i', cheap)} FROM generate_series({first}::bigint, {last}) i"


def index_sql(method, distribution, count, unique=False):
    """CREATE INDEX statements of a method, none for the heap alone."""
    if method == "heap":
        return []
    am = "cachebatch" if method in OURS else method
    tail = " WITH (buffered = off)" if method == "unbuffered" else ""
    names = COLUMNS[distribution].split()[:count]
    what = "UNIQUE INDEX" if unique else "INDEX"
    return [f"CREATE {what} events_{name} ON events USING {am} ({name}){tail}" for name in names]


def template(env, shape, method, distribution="uniform", count=1, rows=None, with_id=False,
             primary_key=False, shards=0, unique=False):
    """A cluster with rows 1..n of events, inserted into the indexed table, which
    has so many partitions, if any."""
    rows = shape.rows if rows is None else rows
    tag = (shape.name, method, distribution, count, rows) + \
        (("id",) if with_id else ()) + (("pk",) if primary_key else ()) + \
        ((f"{shards}-shards",) if shards else ()) + (("unique",) if unique else ())

    def build(cluster):
        fast = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "4GB",
                "shared_buffers": "2GB"}
        cluster.start(env.settings(method, shape, **fast))
        if method in OURS:
            cluster.sql("CREATE EXTENSION cache_batch")
        cluster.sql(TABLE + (" PARTITION BY HASH (id)" if shards else ""))
        for n in range(shards):
            cluster.sql(f"CREATE TABLE events_{n} PARTITION OF events "
                        f"FOR VALUES WITH (MODULUS {shards}, REMAINDER {n})")
        if primary_key:
            cluster.sql("ALTER TABLE events ADD PRIMARY KEY (id)")
        if with_id:
            cluster.sql("CREATE INDEX events_id ON events USING btree (id)")
        for statement in index_sql(method, distribution, count, unique):
            cluster.sql(statement)
        parallel(2, range(1, rows + 1, BATCH), lambda db, first: db.cursor().execute(
            "INSERT INTO events " + rows_sql(distribution, first, min(first + BATCH - 1, rows))),
            cluster.connect)
        cluster.flush()
        cluster.sql("VACUUM (FREEZE, ANALYZE) events")
        cluster.sql("CHECKPOINT")
        cluster.stop()

    return tag, build


def drain(cluster):
    """Lets workers empty the pool, as a start with a long journal takes memory.

    Not by cache_batch_flush(), which would leave range buffers empty, too.
    """
    cluster.sql("ALTER SYSTEM SET cache_batch.max_delay = '1s'")
    cluster.sql("SELECT pg_reload_conf()")
    until = time.monotonic() + 600
    while cluster.sql("SELECT coalesce(sum(entries), 0)::bigint FROM cache_batch_stat_buckets"):
        if time.monotonic() > until:
            raise RuntimeError("the pool is not emptied")
        time.sleep(0.2)


class BatchFiles:
    """COPY files in binary format, 10 000 rows each, written by a server."""

    def __init__(self, env):
        self.env = env
        self.directory = os.path.join(env.scratch, "batches")
        os.makedirs(self.directory, exist_ok=True)

    def get(self, distribution, first, rows):
        """Paths of the files of rows first .. first + rows - 1."""
        count = batches(rows)
        paths = [os.path.join(self.directory, f"{distribution}-{first + n * BATCH}")
                 for n in range(count)]
        missing = [n for n in range(count) if not os.path.exists(paths[n])]
        if missing:
            self.write(distribution, first, paths, missing)
        return paths

    def write(self, distribution, first, paths, missing):
        cluster = self.env.clone(self.env.base, "writer")
        cluster.start({"unix_socket_directories": self.env.sockets, "listen_addresses": "",
                       "jit": "off", "max_parallel_workers_per_gather": "0"})

        def one(db, n):
            start = first + n * BATCH
            db.cursor().execute(f"COPY ({rows_sql(distribution, start, start + BATCH - 1)}) "
                                f"TO '{paths[n]}' (FORMAT binary)")
        parallel(2, missing, one, cluster.connect)
        cluster.stop()
        cluster.remove()

    def forget(self, keep=()):
        """Removes the files of all distributions but some."""
        for path in glob.glob(os.path.join(self.directory, "*")):
            if os.path.basename(path).split("-")[0] not in keep:
                os.remove(path)


def insert_sql(first, last):
    return "INSERT INTO events " + rows_sql("uniform", first, last, cheap=True)


def fill(env, cluster, shape, method, rows=None, insert=insert_sql):
    """Inserts `rows` new rows; how many.

    None: until the pool (or the journal) is full, if cachebatch has one to look at,
    else what would be about as many.  insert: the SQL for the rows of these numbers.
    """
    first = 2_000_000_000
    limit = shape.pool * 1024 if env.has_pool() else \
        int(env.known["cache_batch.journal_limit"][0]) * 1024
    index = next(iter(cluster.indexes(ours=True)), None)
    watch = method == "cachebatch" and index is not None and rows is None
    step = max(500, limit // ENTRY // 50)
    most = 2 * limit // ENTRY if watch else (rows or limit // ENTRY)
    done = 0
    while done < most:
        step = min(step, most - done)
        cluster.sql(insert(first + done, first + done + step - 1))
        done += step
        if watch and cluster.journal_bytes(index) >= 0.9 * limit:
            break
    return done


def fill_runs(env, cluster, shape, index, insert=insert_sql):
    """Inserts two pool-fulls of rows, as many for each method; how many.  index: that of
    ours, if the cluster has one, which has runs then."""
    filled = fill(env, cluster, shape, "btree", 2 * shape.pool * 1024 // ENTRY, insert)
    if index and not cluster.sql(f"SELECT sum(runs) > 0 FROM cache_batch_ranges('{index}')"):
        raise RuntimeError("there are no runs")
    return filled
