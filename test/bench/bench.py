"""Fixed workloads, cachebatch beside btree; started by test/bench/run.

create-index-5m   CREATE INDEX on 5 million random bigints
vacuum-10pct      VACUUM of 2 million random bigints, a tenth of the rows dead,
                  after inserts that filled cachebatch's journal
copy-ascending    COPY of 2 million ascending bigints into an empty table
copy-random-1     COPY of 1 million random bigints, 100 000 a command, into a
                  table of 2 million rows with 1 index
copy-random-4     the same with 4 columns and 4 indexes
"""

import argparse
import csv
import datetime
import os
import platform
import random
import statistics
import struct
import sys
import time

import psycopg2

METHODS = ["btree", "cachebatch"]

# the largest time of cachebatch, relative to btree's, that is acceptable
LIMITS = {"create-index-5m": 1.5, "vacuum-10pct": 1.5, "copy-ascending": 1.0}


class Bench:
    def __init__(self, args):
        self.args = args
        self.db = psycopg2.connect("")
        self.db.autocommit = True
        self.cursor = self.db.cursor()
        self.random = random.Random(args.seed)
        self.inserted = {}

    def sql(self, text):
        self.cursor.execute(text)
        return self.cursor.fetchone()[0] if self.cursor.description else None

    def rows(self, n):
        return max(1000, int(n * self.args.scale))

    def timed(self, statements):
        """Seconds and bytes of WAL of some statements."""
        self.sql("CHECKPOINT")
        before = self.sql("SELECT pg_current_wal_insert_lsn() - '0/0'")
        start = time.monotonic()
        for text in statements:
            self.sql(text)
        seconds = time.monotonic() - start
        wal = self.sql("SELECT pg_current_wal_insert_lsn() - '0/0'") - before
        return seconds, int(wal)

    # ---- workloads: prepare once, then run(method) gives rows, seconds, WAL

    def prepare_create_index_5m(self):
        n = self.rows(5_000_000)
        self.sql(f"CREATE TABLE keys AS SELECT hashint8extended(i, 1) AS k "
                 f"FROM generate_series(1, {n}) i")
        self.sql("VACUUM ANALYZE keys")

    def run_create_index_5m(self, method, repeat):
        seconds, wal = self.timed([f"CREATE INDEX keys_k ON keys USING {method} (k)"])
        self.sql("DROP INDEX keys_k")
        return self.rows(5_000_000), seconds, wal

    def prepare_vacuum_10pct(self):
        pass

    def fill_journal(self, repeat):
        """Inserts until the journal is nine tenths full; how many rows."""
        limit = int(self.sql("SELECT setting FROM pg_settings "
                             "WHERE name = 'cache_batch.journal_limit'")) * 1024
        done, step = 0, 2000
        while done < self.rows(2_000_000):
            self.sql(f"INSERT INTO vac SELECT hashint8extended(i, {repeat + 50}) "
                     f"FROM generate_series({done + 1}, {done + step}) i")
            done += step
            size = self.sql("SELECT coalesce(sum(bytes), 0) "
                            "FROM cache_batch_journal('vac_k')")
            if size >= 0.9 * limit:
                break
        return done

    def run_vacuum_10pct(self, method, repeat):
        n = self.rows(2_000_000)
        self.sql(f"CREATE TABLE vac AS SELECT hashint8extended(i, 2) AS k "
                 f"FROM generate_series(1, {n}) i")
        self.sql(f"CREATE INDEX vac_k ON vac USING {method} (k)")
        self.sql("VACUUM (FREEZE, ANALYZE) vac")
        self.sql("DELETE FROM vac WHERE k % 10 = 0")
        if method == "cachebatch":
            self.inserted[repeat] = self.fill_journal(repeat)
        else:
            count = self.inserted.get(repeat, 150_000)
            self.sql(f"INSERT INTO vac SELECT hashint8extended(i, {repeat + 50}) "
                     f"FROM generate_series(1, {count}) i")
        seconds, wal = self.timed(["VACUUM (PARALLEL 0, INDEX_CLEANUP ON) vac"])
        self.sql("DROP TABLE vac")
        return n, seconds, wal

    def write_keys(self, name, n, columns, ascending):
        """The path of a file in COPY's binary format, written if need be."""
        path = os.path.join(self.args.scratch, name)
        if os.path.exists(path):
            return path
        head = struct.pack("!h", columns)
        with open(path, "wb") as out:
            out.write(b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0))
            for i in range(n):
                row = head
                for _ in range(columns):
                    key = i if ascending else self.random.getrandbits(63)
                    row += struct.pack("!iq", 8, key)
                out.write(row)
            out.write(struct.pack("!h", -1))
        os.chmod(path, 0o644)
        return path

    def prepare_copy_ascending(self):
        self.write_keys("ascending", self.rows(2_000_000), 1, True)

    def run_copy_ascending(self, method, repeat):
        path = os.path.join(self.args.scratch, "ascending")
        self.sql("CREATE TABLE asc_keys (k bigint)")
        self.sql(f"CREATE INDEX ON asc_keys USING {method} (k)")
        seconds, wal = self.timed([f"COPY asc_keys FROM '{path}' (FORMAT binary)"])
        self.sql("DROP TABLE asc_keys")
        return self.rows(2_000_000), seconds, wal

    def prepare_copy_random(self, columns):
        for i in range(10):
            self.write_keys(f"random{columns}-{i}", self.rows(100_000), columns, False)

    def run_copy_random(self, columns, method):
        names = [f"k{i}" for i in range(columns)]
        values = ", ".join(f"hashint8extended(i, {i + 10}) AS {name}"
                           for i, name in enumerate(names))
        self.sql(f"CREATE TABLE rand AS SELECT {values} "
                 f"FROM generate_series(1, {self.rows(2_000_000)}) i")
        for name in names:
            self.sql(f"CREATE INDEX ON rand USING {method} ({name})")
        seconds, wal = self.timed(
            [f"COPY rand FROM '{self.args.scratch}/random{columns}-{i}' (FORMAT binary)"
             for i in range(10)])
        self.sql("DROP TABLE rand")
        return 10 * self.rows(100_000), seconds, wal

    def prepare_copy_random_1(self):
        self.prepare_copy_random(1)

    def run_copy_random_1(self, method, repeat):
        return self.run_copy_random(1, method)

    def prepare_copy_random_4(self):
        self.prepare_copy_random(4)

    def run_copy_random_4(self, method, repeat):
        return self.run_copy_random(4, method)


WORKLOADS = ["create-index-5m", "vacuum-10pct", "copy-ascending",
             "copy-random-1", "copy-random-4"]


def cpu_model():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def memory_gb():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30


def header(bench, args):
    settings = ["shared_buffers", "maintenance_work_mem", "fsync", "synchronous_commit",
                "full_page_writes", "wal_level", "max_wal_size",
                "cache_batch.journal_limit", "cache_batch.stage_size"]
    lines = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": args.commit,
        "server": bench.sql("SHOW server_version"),
        "machine": f"{cpu_model()}, {os.cpu_count()} cores, {memory_gb():.0f} GB",
        "load": "%.2f %.2f %.2f" % os.getloadavg(),
        "kernel": platform.release(),
        "settings": ", ".join(f"{name}={bench.sql('SHOW ' + name)}" for name in settings),
        "repeats": f"{args.repeats}, scale {args.scale}, seed {args.seed}",
    }
    for key, value in lines.items():
        print(f"{key + ':':10}{value}")
    return lines


def run_workload(bench, name, repeats, writer):
    function = name.replace("-", "_")
    getattr(bench, "prepare_" + function)()
    found = {method: [] for method in METHODS}
    for repeat in range(repeats):
        # vacuum-10pct takes its number of inserts from cachebatch's journal
        order = METHODS if repeat % 2 and name != "vacuum-10pct" else METHODS[::-1]
        for method in order:
            rows, seconds, wal = getattr(bench, "run_" + function)(method, repeat)
            found[method].append((seconds, wal, rows))
            writer.writerow([name, method, repeat + 1, rows, f"{seconds:.3f}", wal])
            print(f"  {name} {repeat + 1}/{repeats} {method:11}{seconds:8.2f} s", flush=True)
    bench.sql("DROP TABLE IF EXISTS keys")
    return found


def summary(results):
    """Prints the table; how many workloads are over their limit."""
    over = 0
    print()
    print(f"{'workload':17}{'btree s':>9}{'cachebatch s':>14}{'time':>8}"
          f"{'btree rows/s':>14}{'cachebatch':>12}{'WAL':>8}  limit")
    for name, found in results.items():
        seconds = {m: statistics.median(r[0] for r in found[m]) for m in METHODS}
        wal = {m: statistics.median(r[1] for r in found[m]) for m in METHODS}
        rows = found["btree"][0][2]
        ratio = seconds["cachebatch"] / seconds["btree"]
        limit = LIMITS.get(name)
        verdict = "-"
        if limit is not None:
            verdict = f"{limit:.1f}x " + ("met" if ratio <= limit else "NOT MET")
            over += ratio > limit
        print(f"{name:17}{seconds['btree']:9.2f}{seconds['cachebatch']:14.2f}"
              f"{ratio:7.2f}x{rows / seconds['btree']:14.0f}"
              f"{rows / seconds['cachebatch']:12.0f}"
              f"{wal['cachebatch'] / max(wal['btree'], 1):7.2f}x  {verdict}")
    print("medians; ratios are cachebatch's time and WAL relative to btree's")
    return over


def main():
    parser = argparse.ArgumentParser(
        prog="test/bench/run", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="*", metavar="WORKLOAD",
                        help="default: all of them")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", action="store_true",
                        help="exit with 1 if a limit is not met")
    parser.add_argument("--commit", default="unknown", help=argparse.SUPPRESS)
    parser.add_argument("--results", default=".", help=argparse.SUPPRESS)
    parser.add_argument("--scratch", default="/tmp", help=argparse.SUPPRESS)
    args = parser.parse_args()
    for name in args.workload:
        if name not in WORKLOADS:
            parser.error(f"no workload {name}; there are {', '.join(WORKLOADS)}")

    bench = Bench(args)
    bench.sql("CREATE EXTENSION cache_batch")
    lines = header(bench, args)
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    path = os.path.join(args.results, f"{stamp}-{args.commit}.csv")
    results = {}
    with open(path, "w", newline="") as out:
        for key, value in lines.items():
            out.write(f"# {key}: {value}\n")
        writer = csv.writer(out)
        writer.writerow(["workload", "method", "repeat", "rows", "seconds", "wal_bytes"])
        for name in args.workload or WORKLOADS:
            results[name] = run_workload(bench, name, args.repeats, writer)
            out.flush()
    over = summary(results)
    print(f"CSV: test/bench/results/{os.path.basename(path)}")
    return 1 if args.check and over else 0


if __name__ == "__main__":
    sys.exit(main())
