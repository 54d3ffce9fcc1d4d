#!/usr/bin/env python3
"""test/bench/without/table.py: the mechanisms that can be left out, as a table in
Markdown: what they cost and, if test/bench/without/run has measured any, what they
buy.

NAME.patch in this directory switches a mechanism off, with as few changes as will
do; it does not remove the code.  test/lint/mutants checks that all of them apply
and compile.
"""
import csv
import os
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(os.path.dirname(HERE), "results/without.tsv")

# the columns of RESULTS; "with" is this tree, "without" the one with the patch
COLUMNS = ["mechanism", "arguments", "workload", "figure", "with", "without", "ratio",
           "least", "greatest"]
# what is taken from the CSV file of a run (test/bench/bench.py)
FIGURES = ["rows_per_s", "tps", "query_us", "cpu_us_per_row", "wal_per_row",
           "written_per_row", "read_per_row", "seconds", "index_bytes", "cold_bytes",
           "first_query_ms", "catch_up_ms", "p99.9", "max", "longest_batch_ms"]

# name: of the patch.  src: lines that would go with the mechanism, about; tests: the
# same, with expected outputs.  checks: rules and tests that would go.  buys: what it is
# for.  leaning: what else would have to go or change, or what stays.  runs: arguments
# of test/bench/run for the workloads that it should show in, and for those that pay; a
# version (--pg) comes first.
Mechanism = namedtuple("Mechanism", "name src tests title checks buys leaning runs")

MECHANISMS = [
    Mechanism(
        "nothing", src=0, tests=0,
        title="nothing: a comment is changed",
        checks="none",
        buys="how far two equal builds are apart",
        leaning="",
        runs=["--scale 0.6 --big-scale 0.2 --seconds 5 point-empty absent-empty point-full "
              "any-100-big mixed"]),

    # reading: the leaf
    Mechanism(
        "in-place", src=79, tests=46,
        title="first windows read in place",
        checks="I2_INPLACE; parts of regress reads",
        buys="nested loops and = ANY",
        leaning="the entry cache, which keeps an entry while the leaf is locked; absent numbers; "
                "windows of 2",
        runs=["--scale 0.6 --seconds 4 absent-empty near-full any-100-empty any-100-full",
              "--scale 0.6 --seconds 4 --set cache_batch.entry_cache_size=0 point-empty point-full "
              "max-empty"]),
    Mechanism(
        "entry-cache", src=869, tests=1111,
        title="entry cache",
        checks="I2_CACHED, I2_CACHEDMARK, I2_CACHEDUPPER, I2_CACHEDKEY, I2_CACHEDCOLUMN, "
               "I2_CACHEDSTART, I8_CACHED; regress entry_cache, tap 030, unit cacheset, lint dirty",
        buys="zipfian look-ups",
        leaning="nothing; with it go `entry_cache_size`, column `cached_reads`, and shared memory of half "
                "the pool's size",
        runs=["--scale 0.6 --seconds 5 point-zipf-full point-full",
              "--tight-scale 0.1 --seconds 8 tight-zipf-1"]),
    Mechanism(
        "leaf-known", src=59, tests=92,
        title="a rescan begins at the leaf it read last",
        checks="I9_LOW, part of I9_HINT; parts of regress absent, reads",
        buys="a join of neighbouring keys",
        leaning="nothing",
        runs=["--scale 0.6 --seconds 5 near-empty near-full absent-full"]),
    Mechanism(
        "leaf-copy", src=16, tests=61,
        title="a leaf's copy serves again while its LSN is the same",
        checks="I2_COPY; parts of regress reads",
        buys="windows after the first in a leaf",
        leaning="nothing",
        runs=["--scale 0.6 --seconds 5 index-only-full near-full"]),
    Mechanism(
        "lacks-number", src=63, tests=26,
        title="an absent number is told by the leaf's first entries",
        checks="I2_LACKS; part of regress absent",
        buys="look-ups of absent keys",
        leaning="nothing",
        runs=["--scale 0.6 --seconds 5 absent-empty"]),
    Mechanism(
        "end-window", src=34, tests=15,
        title="windows of 2 at an end of the index",
        checks="part of regress absent",
        buys="min and max",
        leaning="nothing",
        runs=["--scale 0.6 --seconds 4 max-empty max-full max-runs"]),
    Mechanism(
        "upper-map", src=142, tests=232,
        title="index-only scans trust the visibility map for entries above the tree",
        checks="I8_SINCE, I8_BEGIN, I8_COUNT; regress index_only_points, parts of isolation "
               "copy-vacuum",
        buys="index-only scans while the pool is full",
        leaning="nothing",
        runs=["--scale 0.6 --seconds 5 index-only-full index-only-runs"]),

    # reading: the way to the leaf
    Mechanism(
        "root-copy", src=66, tests=46,
        title="copy of the root",
        checks="I9_ROOTCOPY; parts of regress absent",
        buys="nested loops",
        leaning="nothing",
        runs=["--scale 0.6 --seconds 5 absent-empty near-empty"]),
    Mechanism(
        "buffer-hints", src=145, tests=0,
        title="buffers in which pages were lately (`cb_recent`)",
        checks="none of its own; every test runs through it",
        buys="look-ups",
        leaning="`cb_rel_prefetch` asks it before the server's table, and works without",
        runs=["--scale 0.6 --big-scale 0.2 --seconds 4 any-100-big point-empty absent-empty "
              "range-100-empty"]),
    Mechanism(
        "rows-near", src=190, tests=90,
        title="rows that a scan returns soon brought near, their pages pinned by hints",
        checks="I9_ROWPRUNE, I9_ROWCOUNT; regress scan_rows",
        buys="ranges in the order of keys",
        leaning="half of `cb_recent`'s slots",
        runs=["--scale 0.6 --seconds 4 range-100-empty range-100-full index-only-full point-empty"]),
    Mechanism(
        "any-groups", src=216, tests=409,
        title="leaves of = ANY found together",
        checks="part of I9_HINT; isolation read-groups, parts of regress reads",
        buys="= ANY",
        leaning="the next leaf brought into the caches",
        runs=["--scale 0.6 --big-scale 0.2 --seconds 5 any-100-big any-100-empty any-100-full"]),
    Mechanism(
        "any-prefetch", src=28, tests=0,
        title="= ANY: the next leaf brought into the caches",
        checks="none",
        buys="= ANY",
        leaning="nothing",
        runs=["--scale 0.6 --big-scale 0.2 --seconds 6 any-100-empty any-100-big"]),
    Mechanism(
        "read-ahead", src=426, tests=756,
        title="read-ahead of scans",
        checks="regress ahead_points, tap 025",
        buys="ranges that are not in memory",
        leaning="prefetch of runs",
        runs=["--scale 0.6 first-reads"]),

    # reading: the tiers above the tree
    Mechanism(
        "empty-journal-memo", src=87, tests=320,
        title="memo that the journal is empty",
        checks="I3_EMPTY, I3_EMPTYFROM; regress empty_journal, isolation empty-journal, detach-empty",
        buys="look-ups in an index that nobody writes",
        leaning="nothing; the pairs of counters stay for `table_gen`, `no_set_gen` goes",
        runs=["--scale 0.6 --seconds 5 point-empty absent-empty"]),
    Mechanism(
        "chunk-filters", src=138, tests=151,
        title="filters of chunks",
        checks="parts of A10_HASH, A10_CROSSTYPE; unit filter, regress equality",
        buys="look-ups while the pool is full; inserts pay",
        leaning="nothing; hashes stay for runs and the entry cache, and go with the last of the "
                "three (`rel/cb_key_hash.c`, `cb_window_set_hash`: 180 lines)",
        runs=["--scale 0.6 --seconds 4 point-full absent-full any-100-full "
              "ingest-copy-1-uniform"]),
    Mechanism(
        "install-order", src=63, tests=163,
        title="a scan's order becomes the chunk's own",
        checks="A5_JOIN, I9_SCANWAIT; isolation bucket-join, part of tap 033",
        buys="reads while the pool is full",
        leaning="reading in place at an end of the index, which wants chunks in order",
        runs=["--scale 0.6 --seconds 4 point-full range-100-full"]),
    Mechanism(
        "install-order-shared", src=9, tests=21,
        title="the same where several buckets list the chunk",
        checks="I9_SCANWAIT, part of tap 033",
        buys="reads while buckets are divided",
        leaning="nothing; that no scan waits for the bucket set's lock would be plain to see",
        runs=["--scale 0.6 --seconds 8 mixed range-100-full"]),
    Mechanism(
        "run-filters", src=431, tests=25,
        title="filters of runs",
        checks="part of regress ranges_points",
        buys="look-ups with runs",
        leaning="the unions (counted here; 40 lines of them stay, for ranges without runs); "
                "the format of runs",
        runs=["--scale 0.6 --seconds 5 absent-runs point-runs"]),
    Mechanism(
        "run-unions", src=373, tests=37,
        title="unions of runs' filters in each backend",
        checks="I2_RANGESEEN; part of regress ranges_points",
        buys="look-ups with runs",
        leaning="nothing; `spills` of the bucket set stays, as it tells that there are runs",
        runs=["--scale 0.6 --seconds 5 absent-runs point-runs"]),
    Mechanism(
        "run-prefetch", src=105, tests=25,
        title="prefetch of runs",
        checks="parts of regress ahead_points, tap 025",
        buys="ranges with runs that are not in memory",
        leaning="nothing",
        runs=["--scale 0.6 first-reads"]),
    Mechanism(
        "read-merges", src=94, tests=30,
        title="merges of runs asked for by reads",
        checks="parts of tap 024",
        buys="ranges that are read often and written seldom",
        leaning="column `flushes_reads`",
        runs=["--scale 0.6 --seconds 8 max-runs range-100-runs"]),

    # writing
    Mechanism(
        "key-filter", src=1090, tests=206,
        title="filters of unique indexes' keys",
        checks="I13_FILTER, I13_FILLING, I13_EARLIER, I13_FILE, I13_SLICE; tap 066",
        buys="checks of new keys",
        leaning="nothing; with it goes `cache_batch_key_filters()`",
        runs=["--pg 18 unique-copy unique-conflict", "--pg 18 tight-unique-1"]),
    Mechanism(
        "upsert-pins", src=261, tests=566,
        title="rows of ON CONFLICT staged while their pages are pinned",
        checks="A1_DEAD, A1_PIN, A1_NESTED; part of regress upsert, isolation speculative, "
               "stage-speculative",
        buys="INSERT ... ON CONFLICT",
        leaning="nothing; such rows would be published one by one, as those of other table "
                "methods are",
        runs=["--scale 0.2 upsert-100"]),
    Mechanism(
        "journal-end", src=95, tests=48,
        title="the journal's last page noted for other sessions (`cb_recent`)",
        checks="isolation append-recycled",
        buys="the first insertion of a new session",
        leaning="nothing",
        runs=["--scale 0.6 --seconds 6 connect-insert1"]),
    Mechanism(
        "bounds", src=404, tests=210,
        title="bounds of buckets adapt (dividing, joining)",
        checks="A5_SPLIT, A5_JOIN; half of tap 017, isolation bucket-join",
        buys="a table that grows from nothing; keys that move",
        leaning="chunks in the lists of several buckets (`nlists`)",
        runs=["--scale 0.6 --seconds 5 grow-copy grown", "--scale 0.2 ingest-copy-1-zipfian "
              "ingest-insert100-1-uniform"]),
    Mechanism(
        "bounds-join", src=133, tests=168,
        title="joining of buckets alone",
        checks="A5_JOIN; isolation bucket-join, parts of tap 017",
        buys="ascending keys",
        leaning="dividing: ascending keys would use up an index's 1,024 buckets",
        runs=["--scale 0.1 ingest-insert1-1-ascending grow-copy"]),
    Mechanism(
        "redistribute-leaf", src=141, tests=120,
        title="redistribution between siblings before a split",
        checks="parts of isolation redistribute, tap 014, 020, 037",
        buys="size after random inserts; their time pays",
        leaning="nothing; packing cold ranges writes the same record, so the rest of "
                "`cb_redistribute.c` stays",
        runs=["--own-templates --scale 0.4 size-uniform grow-copy"]),
    Mechanism(
        "apply-prefetch", src=24, tests=0,
        title="leaves of a batch prefetched",
        checks="none",
        buys="flushes of an index larger than memory",
        leaning="nothing",
        runs=["--tight-scale 0.2 --seconds 6 tight-ingest-1"]),
    Mechanism(
        "ring", src=90, tests=66,
        title="ring of buffers",
        checks="tap 029",
        buys="what sessions read stays in memory",
        leaning="nothing",
        runs=["--tight-scale 0.2 --seconds 6 tight-ingest-1"]),
    Mechanism(
        "workers", src=2090, tests=1000,
        title="workers",
        checks="B1_GIVEWAY; tap 015, 018, 027, 036",
        buys="flushes beside the sessions that insert",
        leaning="pauses for scans, giving way, the compactor, entries that are flushed for their age",
        runs=["--scale 0.6 --seconds 5 ingest-copy-1-uniform ingest-insert100-1-uniform"]),
    Mechanism(
        "throttle", src=281, tests=159,
        title="workers pause for scans",
        checks="tap 027",
        buys="look-ups beside a load larger than memory",
        leaning="state `pausing`, `scan_delay`",
        runs=["--tight-scale 0.2 --seconds 6 tight-ingest-1"]),

    # upkeep
    Mechanism(
        "giving-way", src=214, tests=261,
        title="giving way to those who wait for a lock",
        checks="B1_GIVEWAY; tap 036",
        buys="the longest wait of DDL",
        leaning="the notes where to go on",
        runs=["--scale 0.6 restart-alter"]),
    Mechanism(
        "resume-notes", src=313, tests=132,
        title="notes where to go on after giving way",
        checks="I1_MOVED, I1_LATERRUN; half of tap 036",
        buys="time to catch up (`catch_up_ms`)",
        leaning="giving way: a flush stopped again and again would begin anew each time, and "
                "might never end",
        runs=["--scale 0.6 restart-alter"]),
    Mechanism(
        "sweep-rest", src=70, tests=45,
        title="workers rest from sweeps behind a start",
        checks="B4_HURRY; a part of tap 068",
        buys="look-ups in the minute after a crash: `restart-copy`",
        leaning="nothing",
        runs=["--scale 0.6 restart-copy"]),
    Mechanism(
        "dead-entries", src=781, tests=685,
        title="dead entries deleted when a leaf is full",
        checks="U6_ASK, U6_HORIZON, U6_DROPPED, U6_PAUSE, A11_DEAD; regress dead_entries, isolation "
               "dead-entries, tap 021",
        buys="rows that are updated often",
        leaning="record LEAF_DELETE; LP_DEAD hints, which would serve scans only; column "
                "`dropped`",
        runs=["--quick --scale 0.1 --seconds 1 churn-key churn"]),
    Mechanism(
        "vacuum-skip", src=160, tests=241,
        title="VACUUM skips what cannot be dead",
        checks="I4_SKIP, I4_SKIPCALLER; regress vacuum_skip",
        buys="retention: old rows deleted",
        leaning="column `vacuum_skipped`",
        runs=["--tight-scale 0.2 tight-vacuum-ascending tight-vacuum-uniform"]),
    Mechanism(
        "heat-compactor", src=1085, tests=1156,
        title="heat and compactor",
        checks="regress heat, heat_points, tap 023, unit heatmap, part of tap 036",
        buys="size of cold ranges; all others pay",
        leaning="`cold_threshold`, `cold_rate`, `heat_size`, `heat_epoch`, view "
                "`cache_batch_stat_heat`; `cache_batch_compact()` does the same by hand",
        runs=["--scale 0.2 --seconds 4 compactor point-empty ingest-copy-1-uniform"]),
    Mechanism(
        "heat-reads", src=26, tests=60,
        title="heat of reads alone",
        checks="parts of regress heat, heat_points",
        buys="a column of a view; look-ups pay",
        leaning="`blocks_read` of `cache_batch_stat_heat`; not the compactor, which goes by writes",
        runs=["--scale 0.6 --seconds 5 point-empty near-empty"]),
    Mechanism(
        "append-again", src=175, tests=154,
        title="failing buckets' entries appended again",
        checks="I7_AGAIN, I4_AGAIN; parts of tap 035, isolation drain-again",
        buys="the journal is truncated beside a damaged leaf",
        leaning="nothing; the sweep's own way to do so stays",
        runs=[]),
]


def workloads(mechanism):
    """The names in the arguments of its runs, without options and their values."""
    return [word for arguments in mechanism.runs for word in arguments.split()
            if word[0].isalpha() and "=" not in word]


def read_results():
    """The lines of RESULTS; none if there is no such file."""
    if not os.path.exists(RESULTS):
        return []
    with open(RESULTS, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def describe(line):
    """A line of RESULTS in words."""
    return "{workload} {figure} {with} / {without} = {ratio} ({least}–{greatest})".format(**line)


def main_figures(lines):
    """Of each workload the figure that comes first in FIGURES."""
    found = {}
    for line in sorted(lines, key=lambda line: FIGURES.index(line["figure"])):
        found.setdefault(line["workload"], line)
    return found.values()


def print_row(cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def main():
    results = read_results()
    heads = ["mechanism", "src", "tests", "rules and tests", "what it buys: workloads",
             "what leans on it"]
    rules = ["---", "---:", "---:", "---", "---", "---"]
    if results:
        heads.insert(5, "with / without = ratio (least–greatest)")
        rules.insert(5, "---")
    print_row(heads)
    print("|" + "|".join(rules) + "|")
    for mechanism in MECHANISMS:
        names = ", ".join(f"`{name}`" for name in workloads(mechanism)) or "none"
        cells = [f"{mechanism.title} (`{mechanism.name}`)", mechanism.src, mechanism.tests,
                 mechanism.checks, f"{mechanism.buys}: {names}", mechanism.leaning]
        if results:
            lines = [line for line in results if line["mechanism"] == mechanism.name]
            missing = "not yet" if mechanism.runs else "nothing to time, see below"
            cells.insert(5, "; ".join(map(describe, main_figures(lines))) or missing)
        print_row(cells)


if __name__ == "__main__":
    main()
