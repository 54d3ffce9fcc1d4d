"""Clients: COPY of batches, pgbench with a latency log, and what is measured."""

import contextlib
import glob
import multiprocessing
import os
import re
import shutil
import subprocess
import time

from server import parallel

CLIENTS = 2


STALL = 0.005       # seconds


def watch_clock(seconds):
    """How long this process stood still, each time that it did for more than STALL."""
    stalls = []
    last = time.monotonic()
    until = last + seconds
    while last < until:
        now = time.monotonic()
        if now - last > STALL:
            stalls.append(now - last)
        last = now
    return stalls


def machine_stalls(seconds=10):
    """The same of one busy process for each CPU together, nothing else at work:
    what the machine itself does to the longest of many transactions."""
    with multiprocessing.Pool() as pool:
        found = pool.map(watch_clock, [seconds] * os.cpu_count(), chunksize=1)
    return sorted(stall for stalls in found for stall in stalls)


class Measure:
    """Seconds, WAL and server CPU between start and stop."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.cpu = cluster.cpu_seconds()
        self.wal = cluster.wal_position()
        self.start = time.monotonic()

    def stop(self, rows):
        """The measured values of that many rows."""
        seconds = time.monotonic() - self.start
        wal = self.cluster.wal_position() - self.wal
        cpu = self.cluster.cpu_seconds() - self.cpu
        return {"rows": rows, "seconds": seconds, "rows_per_s": rows / seconds,
                "wal_per_row": wal / rows, "cpu_us_per_row": cpu * 1e6 / rows}


def copy_batches(cluster, paths, table="events"):
    """COPY of all files by two clients; seconds of each."""
    return parallel(CLIENTS, paths, lambda db, path: db.cursor().execute(
        f"COPY {table} FROM '{path}' (FORMAT binary)"), cluster.connect)


def percentile(ordered, share):
    """Of sorted values, the least that is not below `share` of them."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latencies(ordered):
    """Percentiles, in microseconds, of sorted values."""
    if not ordered:
        return {}
    found = {name: percentile(ordered, share) for name, share in
             (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999),
              ("p99.99", 0.9999))}
    found["max"] = ordered[-1]
    return found


@contextlib.contextmanager
def workspace(cluster):
    directory = cluster.directory + ".pgbench"
    os.makedirs(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def read_logs(directory):
    """Latencies of pgbench's per-transaction logs, sorted; at a given rate
    without the time that a transaction waited for its turn."""
    found = []
    for path in glob.glob(os.path.join(directory, "log.*")):
        with open(path) as log:
            for line in log:
                fields = line.split()
                found.append(int(fields[2]) - (int(fields[6]) if len(fields) > 6 else 0))
    found.sort()
    return found


def pgbench(cluster, scripts, variables=None, seconds=None, transactions=None,
            log=False, options="", clients=CLIENTS, rate=None, connect=False, failed=None):
    """Runs scripts with equal weight from two clients, or as many as are given,
    as fast as they can or at a rate of transactions a second; connect: each
    transaction in a session of its own.

    Returns transactions a second and, if logged, the sorted latencies.  failed: a
    list to which is added how many of 1 000 transactions could not be serialized.
    """
    with workspace(cluster) as directory:
        command = [os.path.join(cluster.env.bindir, "pgbench"), "-n", "-M", "prepared",
                   "-c", str(clients), "-j", str(clients), "-h", cluster.env.sockets,
                   "-p", str(cluster.port), "-U", "postgres"]
        command += ["-T", str(seconds)] if seconds else ["-t", str(transactions // clients)]
        for number, text in enumerate(scripts):
            path = os.path.join(directory, f"script{number}")
            with open(path, "w") as out:
                out.write(text)
            command += ["-f", path]
        for name, value in (variables or {}).items():
            command += ["-D", f"{name}={value}"]
        if rate:
            command += ["-R", str(rate)]
        if connect:
            command += ["-C"]
        if failed is not None:
            command += ["--failures-detailed"]
        if log:
            command += ["-l", "--log-prefix", os.path.join(directory, "log")]
        done = subprocess.run(command + ["postgres"], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=dict(os.environ, PGOPTIONS=options))
        rate = re.search(r"tps = ([0-9.]+)", done.stdout)
        if done.returncode or not rate:
            raise RuntimeError("pgbench failed:\n" + done.stdout[-3000:])
        if failed is not None:
            share = re.search(r"serialization failures: \d+ \(([0-9.]+)%\)", done.stdout)
            failed.append(10 * float(share[1]))
        return float(rate[1]), read_logs(directory) if log else []


def first_query(cluster, query, options):
    """Milliseconds that the first query of a session takes."""
    db = cluster.connect(options)
    try:
        began = time.monotonic()
        db.cursor().execute(query)
        return (time.monotonic() - began) * 1000
    finally:
        db.close()


def queries(cluster, script, seconds, **more):
    """Transactions a second of a script that reads only, and the server's CPU for each."""
    cpu = cluster.cpu_seconds()
    tps, _ = pgbench(cluster, [script], seconds=seconds, **more)
    time.sleep(0.1)     # the sessions come to their ends
    return {"tps": tps, "cpu_us_per_row": (cluster.cpu_seconds() - cpu) * 1e6 / (tps * seconds)}
