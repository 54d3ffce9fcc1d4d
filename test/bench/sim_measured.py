"""test/bench/sim beside a server at work, with indexes of 1, 10 and 100 M rows.

Each index of random bigints is built of half to all of its rows, depending on
the keys, and gets the others by insertion, so that its leaves are as full as a
running index's.  Then rows come in batches by COPY, none before the workers
have done what they were asked for, with shared buffers of an eighth of the
index, and a checkpoint after each quarter of a round; look-ups of values that
are not there follow, between more rows.  Range buffers off, then on; a round is
the time in which all leaves are visited once.

sim is given settings, the size at first, the heap's WAL, and the WAL between
two checkpoints; the figures that it has to find are printed beside those that
were measured.  Needs pg_walinspect, and 24 GB in --scratch for 100 M rows; run
it as the server's user:

    python3 test/bench/sim_measured.py --scratch DIR [--rows 1000000,10000000]
"""

import argparse
import importlib.machinery
import importlib.util
import io
import itertools
import os
import random
import sys
import time

from server import COMMON, MB, Env

# rows of an index: pools in kB; the last has tiles, as it is 1/4,000 of the index
CASES = {1000000: (256,), 10000000: (2 * MB, 256), 100000000: (8 * MB, 256)}
BATCH = 10000           # rows of a COPY, ...
POOL_BATCHES = 60       # ... but so many are an empty pool's room, at least
ROUNDS = 2              # that are measured, after one that is not
PARTS = 4               # checkpoints in a round
BULK_RING = 16 * MB     # what COPY takes of shared buffers, an eighth at most
ABSENT = 20000          # look-ups at a time

# rows i of each 256th part of the keys that are there when the index is built
FIRST = "i < {rows} * (0.5 + ((hashint8extended(i, 1) >> 56) & 255) / 512.0)"

FILL = """
CREATE EXTENSION cache_batch;
CREATE EXTENSION pg_walinspect;
CREATE TABLE m (k bigint);
INSERT INTO m SELECT hashint8extended(i, 1) FROM generate_series(1, {rows}) i WHERE {first};
CREATE INDEX m_k ON m USING cachebatch (k);
INSERT INTO m SELECT hashint8extended(i, 1) FROM generate_series({rows} / 2, {rows}) i
  WHERE NOT {first};
SELECT cache_batch_flush('m_k');
VACUUM ANALYZE m"""

COUNTERS = """
SELECT staged, applied, leaf_visits,
  pg_relation_size('m') / 8192 AS heap, pg_relation_size('m_k') / 8192 AS pages,
  pg_stat_get_blocks_fetched('m_k'::regclass)
    - pg_stat_get_blocks_hit('m_k'::regclass) AS read,
  buffers_checkpoint + buffers_clean + buffers_backend AS written,
  pg_current_wal_flush_lsn() - '0/0'::pg_lsn AS wal
FROM cache_batch_stat_indexes, pg_stat_bgwriter"""

INDEX_WAL = """
SELECT coalesce(sum(combined_size), 0)::float8 AS bytes
FROM pg_get_wal_stats('0/0'::pg_lsn + {0}, '0/0'::pg_lsn + {1})
WHERE "resource_manager/record_type" = 'cache_batch'"""

LEAVES = """
SELECT count(*) FROM generate_series(1, pg_relation_size('m_k') / 8192 - 1) b,
  cache_batch_page('m_k', b) p WHERE p.type = 'leaf'"""

LOOK_UP = """
SELECT count(*) FROM generate_series({0}, {0} + {1} - 1) i,
  LATERAL (SELECT 1 FROM m WHERE k = hashint8extended(i, 2) LIMIT 1) m"""

# workers have nothing to do; have ended, and reported what they read
IDLE = ("SELECT coalesce(bool_and(state = 'idle' AND pending = 0), true)"
        " FROM cache_batch_stat_workers")
GONE = "SELECT count(pid) = 0 FROM cache_batch_stat_workers"


def load_sim():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sim")
    loader = importlib.machinery.SourceFileLoader("sim", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sim", loader))
    loader.exec_module(module)
    return module


sim = load_sim()


def settings(**more):
    return dict(COMMON, fsync="off", wal_level="minimal", max_wal_senders=0, max_wal_size="6GB",
                checkpoint_timeout="1h", bgwriter_lru_maxpages=0,
                shared_preload_libraries="cache_batch",
                **{"cache_batch.max_delay": "1h", **more})


def fill(cluster, rows):
    """Makes the index; bytes of its leaves."""
    cluster.start(settings(shared_buffers="1GB", maintenance_work_mem="1GB",
                           **{"cache_batch.pool_size": "256MB",
                              "cache_batch.spill_threshold": "off"}))
    for statement in FILL.replace("{first}", FIRST).format(rows=rows).split(";"):
        cluster.sql(statement)
    size = float(cluster.sql(LEAVES)) * sim.PAGE
    cluster.stop()
    return size


class Case:
    """One index and pool, with range buffers or without."""

    def __init__(self, cluster, rows, pool, spills):
        self.cluster = cluster
        self.rows = rows
        self.pool = pool * 1024
        self.spills = spills
        self.buffers = int(rows * 11.2 / 8 / 1024)
        self.batch = min(BATCH, self.pool // 16 // POOL_BATCHES)
        self.rng = random.Random(rows + spills)
        self.asked = 0

    def start(self):
        self.cluster.start(settings(
            shared_buffers=f"{self.buffers}kB",
            **{"cache_batch.pool_size": f"{self.pool // 1024}kB",
               "cache_batch.spill_threshold": "10%" if self.spills else "off"}))
        self.cursor = self.cluster.connect().cursor()
        for name in ("seqscan", "bitmapscan"):
            self.cursor.execute(f"SET enable_{name} = off")

    def ask(self, text):
        """The only row, by the columns' names."""
        self.cursor.execute(text)
        names = [column.name for column in self.cursor.description]
        return {n: float(x) for n, x in zip(names, self.cursor.fetchone())}

    def wait(self, condition):
        while not self.ask(f"SELECT ({condition})::int AS met")["met"]:
            time.sleep(0.001)

    def insert(self, rows):
        for _ in range(max(1, round(rows / self.batch))):
            keys = (self.rng.getrandbits(64) - (1 << 63) for _ in range(self.batch))
            self.cursor.copy_expert("COPY m FROM STDIN",
                                    io.StringIO("\n".join(map(str, keys))))
            self.wait(IDLE)

    def counters(self):
        """After a checkpoint, when all processes have reported."""
        self.cursor.execute("CHECKPOINT")
        self.wait(GONE)
        self.ask("SELECT pg_stat_force_next_flush()::text = '' AS done")
        time.sleep(0.5)
        return self.ask(COUNTERS)

    def look_up(self, n):
        """Pages of the index that are read for a value that is not there."""
        before = self.counters()["read"]
        self.cursor.execute(LOOK_UP.format(self.asked, n))
        self.asked += n
        return (self.counters()["read"] - before) / n


def measure_rows(case, rows):
    """Counters' changes in a number of rounds of so many rows, and the index's WAL."""
    before = case.counters()
    wal, done = 0, before["wal"]
    for _ in range(ROUNDS * PARTS):
        case.insert(rows / PARTS)
        now = case.ask(COUNTERS)["wal"]
        wal += case.ask(INDEX_WAL.format(done, now))["bytes"]
        done = now
        case.cursor.execute("CHECKPOINT")
    after = case.counters()
    return {name: after[name] - before[name] for name in after}, wal


def measure_look_ups(case, rows):
    """On average over a round: as many range buffers are there as there may be."""
    found = 0
    case.look_up(case.buffers // 4)
    for _ in range(PARTS):
        case.insert(rows / PARTS)
        case.look_up(case.buffers // 8)
        found += case.look_up(ABSENT) / PARTS
    return found


def run(case, size):
    """(name, measured, simulated) of each figure."""
    p = sim.parse_arguments(["--range-buffers"] if case.spills else [])
    p.pool, p.leaf_entry = float(case.pool), size / case.rows
    p.memory = (case.buffers - min(BULK_RING, case.buffers / 8)) * 1024.0
    a_round = sim.Tiles(p, size, sim.Runs(p, size)).round

    case.start()
    case.insert(a_round)
    found, wal = measure_rows(case, a_round)
    look_ups = measure_look_ups(case, a_round)
    case.cluster.stop()

    rows = found["staged"]
    p.checkpoint = found["wal"] / (ROUNDS * PARTS)
    p.heap_wal = (found["wal"] - wal) / rows
    size *= 1 + (1 + ROUNDS / 2) * a_round / case.rows
    model = sim.cachebatch(p, size)
    p.memory = case.buffers * 1024.0
    # a page that is new is not read, and is written twice
    read = found["read"] - found["pages"]
    written = found["written"] - found["pages"] - 2 * found["heap"]
    return [("k", found["applied"] / found["leaf_visits"], model["k"]),
            ("pages read a row", read / rows, model["read"]),
            ("pages written a row", written / rows, model["written"]),
            ("bytes of WAL a row", wal / rows, model["wal"]),
            ("pages read a look-up", look_ups, sim.cachebatch(p, size)["absent"])]


def run_all(env, args):
    """How many figures are further apart than they may be."""
    missed = 0
    for rows, pools in CASES.items():
        if rows not in args.rows:
            continue
        filled = env.clone(env.base, f"sim-{rows}")
        size = fill(filled, rows)
        for pool, spills in itertools.product(pools, (False, True)):
            cluster = env.clone(filled, f"sim-{rows}-{pool}")
            for name, ours, theirs in run(Case(cluster, rows, pool, spills), size):
                ratio = theirs / ours
                missed += not 1 - args.within / 100 <= ratio <= 1 + args.within / 100
                print(f"{rows:>9} rows, pool {pool:>4} kB, range buffers"
                      f" {'on' if spills else 'off':3}  {name:20}  measured {ours:8.3f}"
                      f"  sim {theirs:8.3f}  ratio {ratio:.2f}", flush=True)
            cluster.remove()
        filled.remove()
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--bindir", default="/usr/lib/postgresql/15/bin")
    add("--scratch", required=True, help="an empty directory")
    add("--port", type=int, default=5432)
    add("--rows", default=list(CASES),
        type=lambda text: [int(x) for x in text.split(",")])
    add("--within", type=float, default=20, help="per cent, else the exit status is 1")
    args = parser.parse_args()
    args.quick, args.set, args.other_bindir, args.own_templates = True, [], "", False
    missed = run_all(Env(args), args)
    if missed:
        print(f"sim_measured: {missed} figures are more than {args.within:g} % apart")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
