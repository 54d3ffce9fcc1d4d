"""The server benchmark; started by test/bench/run.

Same rows, same order, each method on a private server of its own that starts
from a copy of the same preloaded state; methods interleaved and repeated.
Methods: heap (no index: the floor), btree, hash, cachebatch, and unbuffered
(cachebatch WITH (buffered = off) and a stage that sorts the whole statement:
the control).  What has no pool gets its 32 MB as shared buffers.

--against WHAT adds the method other, wherever cachebatch is one: cachebatch in
another build, in a server of its own.  WHAT is a directory with another tree of
the extension, a patch that is applied to a copy of this tree, or a commit of this
repository.  Both start from copies of the same preloaded state, which this build
has made, and take turns; the report has the ratios cachebatch/other, and the least
and greatest of single repeats.  So, to see what a change does:

    test/bench/run --quick --repeats 5 --against HEAD~3 --check
    test/bench/run --against without.patch --methods cachebatch absent max

test/bench/without/run does so for each mechanism that can be switched off.

"""

import argparse
import csv
import datetime
import os
import platform
import sys
import time

import confine
import data
import drive
import report
import work_crowd
import work_ingest
import work_keys
import work_parallel
import work_reads
import work_serial
import work_standby
import work_tight
import work_unique
import work_upkeep
from server import Env

CLASSES = [work_ingest.Ingest, work_ingest.Grow, work_ingest.Shards, work_ingest.Connect,
           work_ingest.Upsert, work_ingest.Big, work_reads.Reads, work_reads.FirstReads, work_reads.Mixed,
           work_reads.Churn, work_reads.Grown, work_reads.Skip, work_reads.AnyBig,
           work_keys.Keys, work_parallel.Parallel, work_upkeep.CreateIndex, work_upkeep.Vacuum, work_upkeep.CopyKeys,
           work_upkeep.Restart, work_upkeep.RestartAlter, work_upkeep.Compactor,
           work_upkeep.Logical, work_upkeep.Size, work_crowd.Crowd, work_crowd.Reader,
           work_serial.Serializable, work_standby.Standby,
           work_standby.Replay, work_standby.RestartCopy, work_standby.TightReplay,
           work_tight.Ingest,
           work_tight.Zipf, work_tight.Grid, work_tight.GridCold, work_tight.Pair, work_tight.Cpu, work_tight.Cold, work_tight.Hot,
           work_tight.Vacuum, work_unique.Copy, work_unique.Conflict, work_unique.TightUnique]

# what runs when nothing is named: the acceptance figures and one step aside
# from them in each direction
DEFAULT = """ingest-copy-4-uniform ingest-copy-1-uniform ingest-insert100-1-uniform
    ingest-insert100-4-uniform ingest-insert1-1-uniform ingest-insert1-4-uniform
    upsert-100
    reads mixed vacuum-10pct restart logical update
    ingest-copy-1-zipfian ingest-copy-1-ascending ingest-copy-1-uuid ingest-copy-1-text
    size-uniform size-uuid size-urls size-few size-ascending size-timestamps
    create-index-5m parallel copy-ascending copy-random-1 copy-random-4
    big-copy big-copy-pool128 big-insert1-async big-insert1-sync any-100-big
    churn churn-key serializable-point serializable-range""".split()

FIELDS = ["workload", "state", "method", "repeat", "rows", "seconds", "rows_per_s",
          "wal_per_row", "written_per_row", "read_per_row", "cpu_us_per_row", "tps", "p50", "p95", "p99", "p99.9",
          "p99.99", "max", "query_us",
          "longest_batch_ms", "filled", "pending_bytes", "start_ms", "answer_ms",
          "first_query_ms", "second_query_ms", "cancel_ms", "catch_up_ms", "applied", "failed_per_1000", "index_bytes",
          "cold_bytes", "compacted", "data_x", "index_x", "flushed", "leaf_visits", "leaf_share", "spilled",
          "private_bytes"]


class Bench:
    """What all workloads share."""

    def __init__(self, args):
        self.args = args
        self.env = Env(args)
        self.files = data.BatchFiles(self.env)
        self.group = confine.find()
        self.memory = data.in_memory(args.scale)
        self.big = data.larger_than_memory(args.big_scale)
        self.fills = {}
        self.records = []

    def clone(self, template):
        return self.env.clone(self.env.template(*template), "clone")

    def discard(self, cluster):
        cluster.stop("immediate")
        cluster.remove()

    def fill(self, cluster, shape, method, name, insert=data.insert_sql):
        """Fills the pool; all get as many rows as cachebatch took first."""
        filled = data.fill(self.env, cluster, shape, method, self.fills.get(name), insert)
        if method == "cachebatch":
            self.fills.setdefault(name, filled)
        return filled


def order(methods, repeat):
    """cachebatch first in the first repeat (it says how much fills the pool), next
    to it the other build; then turned round by one each time."""
    methods = sorted(methods, key=lambda m: (m != "cachebatch", m != "other", m))
    turn = repeat % len(methods)
    return methods[turn:] + methods[:turn]


def methods_of(bench, workload):
    """Its methods among those asked for; --quick keeps to the two that matter,
    except where the others are of most interest.  Beside cachebatch the other build,
    if there is one."""
    methods = [m for m in workload.methods if m in bench.args.methods]
    if bench.args.quick and workload.name not in ("ingest-copy-1-uniform", "tight-cpu-1"):
        methods = [m for m in methods if m in ("btree", "cachebatch")]
    if bench.args.against and "cachebatch" in methods:
        methods.insert(methods.index("cachebatch") + 1, "other")
    return methods


def preload(bench, workload, method):
    """Makes the template that the method starts from, if it is not there."""
    began = time.monotonic()
    with bench.env.build_of(method) as how:
        key, build = workload.template(how)
        if not bench.env.has_template(key):
            bench.env.template(key, build)
            print(f"  {workload.name}: preloaded {method} in "
                  f"{time.monotonic() - began:.1f} s", flush=True)


def run_workload(bench, workload, writer):
    """All repeats and methods of one workload, each written to the CSV file."""
    methods = methods_of(bench, workload)
    for method in methods:
        preload(bench, workload, method)
    for repeat in range(bench.args.repeats):
        for method in order(methods, repeat):
            began = time.monotonic()
            with bench.env.build_of(method) as how:
                results = workload.run(how, repeat)
            for found in results:
                record = {"workload": workload.name, "method": method,
                          "repeat": repeat + 1, **found}
                bench.records.append(record)
                writer.writerow({k: round(v, 6) if isinstance(v, float) else v
                                 for k, v in record.items()})
                if record.get("state", "").startswith(report.STEP):
                    continue
                print(f"  {record['workload']}{(' ' + record['state']) if 'state' in record else ''}"
                      f" {repeat + 1}/{bench.args.repeats} {record['method']:11}{brief(record)}"
                      f"  [{time.monotonic() - began:.0f} s]", flush=True)


def brief(record):
    """The main figures of a record in a line."""
    words = []
    for name, form in (("rows_per_s", "{:.0f} rows/s"), ("seconds", "{:.2f} s"), ("wal_per_row", "{:.0f} WAL B/row"),
                       ("written_per_row", "{:.0f} B/row written"),
                       ("read_per_row", "{:.0f} read"), ("cpu_us_per_row", "{:.2f} us/row"), ("tps", "{:.0f} tps"), ("failed_per_1000", "{:.2f} of 1000 failed"),
                       ("p99.9", "p99.9 {} us"), ("p99.99", "p99.99 {} us"),
                       ("query_us", "{:.0f} us a query"), ("max", "max {} us"),
                       ("longest_batch_ms", "batch {:.0f} ms"), ("answer_ms", "answer {:.0f} ms"),
                       ("first_query_ms", "first query {:.1f} ms"),
                       ("catch_up_ms", "caught up {:.0f} ms"), ("cancel_ms", "cancel {:.0f} ms"),
                       ("index_bytes", "{:.0f} bytes"), ("private_bytes", "{:.0f} bytes of their own"), ("data_x", "{:.1f} x memory"),
                       ("spilled", "{:.2f} spilled a row")):
        if name in record:
            words.append(form.format(record[name]))
    return "  ".join(words)


def drop_unused(bench, later):
    """Removes templates and files that no later workload starts from."""
    wanted = set()
    for workload in later:
        for method in methods_of(bench, workload):
            with bench.env.build_of(method) as how:
                wanted.add(bench.env.template_key(workload.template(how)[0]))
    for key in list(bench.env.templates):
        if key not in wanted:
            bench.env.drop_template(key)
    keep = {w.keys for w in later if hasattr(w, "keys") and isinstance(w.keys, str)}
    bench.files.forget(keep | {"uniform"} if later else ())


def cpu_model():
    with open("/proc/cpuinfo") as info:
        for line in info:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def describe_stalls():
    """What the machine does to processes that keep all its CPUs busy."""
    stalls = drive.machine_stalls()
    if not stalls:
        return "none"
    return (f"one busy process a CPU, 10 s: stood still {len(stalls)} times for more than "
            f"{drive.STALL * 1000:.0f} ms, {stalls[-1] * 1000:.1f} ms at most")


def header(bench, args):
    """What ran where: (name, value) pairs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    shapes = "; ".join(f"{s.name}: {s.rows} rows, shared_buffers {s.shared_buffers // 1024} MB, "
                       f"max_wal_size {s.max_wal} MB, pool {s.pool} kB"
                       for s in (bench.memory, bench.big))
    other = {"other": args.against + (", with templates of its own" if args.own_templates else "")} \
        if args.against else {}
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": args.commit,
        **other,
        "server": f"PostgreSQL {bench.env.version}, release build of the extension",
        "machine": f"{len(os.sched_getaffinity(0))} x {cpu_model()}, {memory:.0f} GB, {platform.release()}",
        "stalls": describe_stalls(),
        "scale": f"{args.scale} (big: {args.big_scale}), {args.repeats} repeats, 2 clients",
        "shapes": shapes,
        "library": ", ".join(f"{n[12:]} {v[0]}{v[1]}" for n, v in bench.env.known.items())
                   + ("" if bench.env.has_pool() else " (no pool_size: measured without a pool)"),
    }


def arguments():
    parser = argparse.ArgumentParser(
        prog="test/bench/run", formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        description=__doc__ + "\n".join(
            m.__doc__ for m in (work_ingest, work_reads, work_keys, work_parallel, work_crowd, work_serial,
                                work_upkeep, work_standby, work_tight, work_unique)))
    add = parser.add_argument
    add("workload", nargs="*", help="fixed names, see above; one of the queries of `reads` "
        "alone, or with its state; `all` for the whole matrix; default: " + " ".join(DEFAULT))
    add("--quick", action="store_true", help="small, once; under 5 minutes")
    add("--repeats", type=int)
    add("--scale", type=float, default=1.0, help="of rows, buffers and pool")
    add("--big-scale", type=float, help="the same for big-*; default: --scale")
    add("--tight-scale", type=float, help="the same for tight-*, of memory too "
        "(default 1, with --quick 0.02)")
    add("--seconds", type=float, help="of each timed read (default 20; tight-*: 90)")
    add("--methods", default="heap,btree,hash,cachebatch,unbuffered")
    add("--against", metavar="WHAT", help="another build, see above; it goes where "
        "cachebatch does, whatever --methods are")
    add("--own-templates", action="store_true", help="the other build preloads rows itself: "
        "where the builds' files differ, or what is in them after the same inserts")
    add("--set", action="append", default=[], metavar="NAME=VALUE",
        help="a setting of the servers that have cachebatch indexes")
    add("--check", action="store_true", help="exit with 1 if a limit is not met; with "
        "--against, if a figure of the builds is more than "
        f"{100 * report.APART:g} %% apart")
    add("--report", metavar="CSV", help="make the report of an earlier run again")
    for name, value in (("--commit", "unknown"), ("--results", "."), ("--scratch", "/tmp"),
                        ("--bindir", "/usr/lib/postgresql/15/bin"), ("--other-bindir", "")):
        add(name, default=value, help=argparse.SUPPRESS)
    add("--port", type=int, default=5432, help=argparse.SUPPRESS)
    args = parser.parse_args()
    quick = args.quick
    if quick and args.scale == 1.0:
        args.scale = 0.02
    args.big_scale = args.big_scale or (args.scale / 2 if quick else args.scale)
    args.repeats = args.repeats or (1 if quick else 3)
    args.tight_scale = args.tight_scale or (0.02 if quick else 1.0)
    args.tight_seconds = int(args.seconds or (2 if quick else 90))
    args.seconds = int(args.seconds or (1 if quick else 20))
    args.methods = args.methods.split(",")
    return parser, args


def chosen(bench, parser, names):
    """The workloads that were named, in that order."""
    known = {name: cls for cls in CLASSES for name in cls.names()}
    if names == ["all"]:
        names = DEFAULT + [n for n in known if n not in DEFAULT
                           and (bench.group or not n.startswith("tight-"))]
    queries = [n for n in names if n not in known and work_reads.cases(n)]
    pairs = [pair for n in queries for pair in work_reads.cases(n)]
    found = []
    for name in names or DEFAULT:
        if name in queries:
            if name == queries[0]:
                found.append(work_reads.Reads(bench, "reads", pairs))
        elif name in known:
            found.append(known[name](bench, name))
        else:
            parser.error(f"no workload {name}; there are {' '.join(known)} "
                         f"{' '.join(work_reads.QUERIES)}")
    return found


def main():
    parser, args = arguments()
    if args.report:
        return report.again(args.report)
    bench = Bench(args)
    workloads = chosen(bench, parser, args.workload)
    lines = header(bench, args)
    tight = [w for w in workloads if isinstance(w, work_tight.Tight)]
    if tight:
        lines.update(work_tight.header(bench, tight))
    for key, value in lines.items():
        print(f"{key + ':':10} {value}")
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%S")
    directory = os.path.join(args.results, f"{stamp}-{args.commit}")
    os.makedirs(directory)
    with open(os.path.join(directory, "results.csv"), "w", newline="") as out:
        for key, value in lines.items():
            out.write(f"# {key}: {value}\n")
        writer = csv.DictWriter(out, FIELDS)
        writer.writeheader()
        for number, workload in enumerate(workloads):
            run_workload(bench, workload, writer)
            out.flush()
            report.write(directory, lines, bench.records)
            drop_unused(bench, workloads[number + 1:])
    missed = report.write(directory, lines, bench.records)
    with open(os.path.join(directory, "report.md")) as text:
        print("\n" + text.read().split("\n## Plots")[0])
    print(f"results: test/bench/results/{os.path.basename(directory)}/report.html, .md, .csv")
    return 1 if args.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
