"""The report: acceptance figures beside their limits, medians, plots."""

import csv
import html
import os
import statistics

import data
import plot

# label, workload, state, column, at least / at most, limit; the value is
# cachebatch's median relative to btree's
LIMITS = [
    ("rows/s, in memory, 4 indexes", "ingest-copy-4-uniform", "", "rows_per_s", ">=", 3.5),
    ("rows/s, in memory, 1 index", "ingest-copy-1-uniform", "", "rows_per_s", ">=", 1.9),
    ("rows/s, 30 M rows", "big-copy", "", "rows_per_s", ">=", 6.0),
    ("100-row INSERT ON CONFLICT, 4 indexes: rows/s", "upsert-100", "", "rows_per_s", ">=", 1.5),
    ("unique index, 18: rows/s of COPY (aim 2)", "unique-copy", "", "rows_per_s", ">=", 1.2),
    ("unique index, 18: ON CONFLICT, half conflict (aim 1.5)", "unique-conflict", "", "rows_per_s",
     ">=", 1.0),
    ("unique index, 18, confined: rows/s (aim 4)", "tight-unique-1", "", "rows_per_s", ">=", 1.5),
    ("rows/s, 32 shards, 4 indexes", "shards-copy", "", "rows_per_s", ">=", 1.0),
    ("server CPU an index entry, COPY, 4 indexes (us)", "ingest-copy-4-uniform", "",
     "cpu_us_per_entry", "<=", 0.25),
    ("WAL a row, 30 M rows", "big-copy", "", "wal_per_row", "<=", 0.15),
    ("WAL a row, 30 M rows, pool 128 MB", "big-copy-pool128", "", "wal_per_row", "<=", 0.10),
    ("1-row INSERT/s, asynchronous commit", "big-insert1-async", "", "rows_per_s", ">=", 1.1),
    ("WAL an INSERT, asynchronous commit", "big-insert1-async", "", "wal_per_row", "<=", 0.25),
    ("1-row INSERT/s, synchronous commit", "big-insert1-sync", "", "rows_per_s", ">=", 1.1),
    ("WAL an INSERT, synchronous commit", "big-insert1-sync", "", "wal_per_row", "<=", 0.25),
    ("p99.9 of 1-row INSERT, asynchronous", "big-insert1-async", "", "p99.9", "<=", 1.0),
    ("p99.99 of 1-row INSERT, asynchronous", "big-insert1-async", "", "p99.99", "<=", 1.0),
    ("longest 1-row INSERT, asynchronous", "big-insert1-async", "", "max", "<=", 1.0),
    ("p99.9 of 1-row INSERT, synchronous", "big-insert1-sync", "", "p99.9", "<=", 1.0),
    ("p99.99 of 1-row INSERT, synchronous", "big-insert1-sync", "", "p99.99", "<=", 1.0),
    ("longest 1-row INSERT, synchronous", "big-insert1-sync", "", "max", "<=", 1.0),
    ("longest 10 000-row batch, 30 M rows", "big-copy", "", "longest_batch_ms", "<=", 1.2),
    ("point look-ups, empty", "point", "empty", "tps", ">=", 0.95),
    ("point look-ups, full", "point", "full", "tps", ">=", 0.85),
    ("range-100, empty", "range-100", "empty", "tps", ">=", 0.9),
    ("range-100, full", "range-100", "full", "tps", ">=", 0.9),
    ("index-only range, empty", "index-only", "empty", "tps", ">=", 0.8),
    ("index-only range, full", "index-only", "full", "tps", ">=", 0.8),
    *[(f"{label}, {state}", name, state, "tps", ">=", limit)
      for name, label, limit in (("absent", "500 absent keys (aim 1.3)", 1.0),
                                 ("max", "greatest key", 0.95))
      for state in ("empty", "full", "runs")],
    *[(f"{kind} keys, {query}, {state} (aim {aim})", f"keys-{kind}", f"{state} {query}", "tps",
       ">=", 1.0)
      for kind in data.KEY_KINDS for state in ("empty", "full", "runs")
      for query, aim in (("present", 1.3), ("absent", 1.3), ("next", 1.2), ("back", 1.2))],
    ("= ANY of 100, empty", "any-100", "empty", "tps", ">=", 0.9),
    ("= ANY of 100, full", "any-100", "full", "tps", ">=", 0.9),
    ("= ANY of 100, index-only, 30 M rows in shared buffers: time (us)", "any-100-big", "",
     "query_us", "<=", 0.7),
    ("skip scan, 100 leading values", "skip-100", "", "tps", ">=", 1.0),
    ("skip scan, 10,000 leading values", "skip-10000", "", "tps", ">=", 1.0),
    ("= ANY in the order of the column before it", "skip-any", "", "tps", ">=", 1.0),
    ("update churn, 4 indexes: tps", "churn", "", "tps", ">=", 1.0),
    ("update churn, 4 indexes: size", "churn", "", "index_bytes", "<=", 1.1),
    ("update churn of an indexed column: tps", "churn-key", "", "tps", ">=", 1.0),
    ("update churn of an indexed column: size", "churn-key", "", "index_bytes", "<=", 1.1),
    ("64 sessions of 50-row INSERTs: rows/s", "crowd", "", "rows_per_s", ">=", 1.0),
    ("longest VACUUM beside 64 sessions of INSERTs (us)", "crowd", "vacuum", "max", "<=", 1.0),
    ("longest SELECT beside 64 sessions of INSERTs (us)", "crowd", "select", "max", "<=", 1.0),
    ("serializable, look-ups: failures", "serializable-point", "", "failed_per_1000", "<=", 1.1),
    ("serializable, ranges: failures", "serializable-range", "", "failed_per_1000", "<=", 1.1),
    ("VACUUM, 10 % dead, full pool: time", "vacuum-10pct", "", "seconds", "<=", 1.1),
    ("standby, entries waiting: first query of a session (ms; aim 1.2)", "standby", "session",
     "first_query_ms", "<=", 2.0),
    ("private memory of 100 sessions of a standby (aim 1.1)", "standby", "memory",
     "private_bytes", "<=", 1.3),
    *[(f"standby, entries waiting: {label}", "standby", state, "tps", ">=", 0.95)
      for state, label in (("point", "point look-ups (aim 1.05)"), ("range-100", "range-100"),
                           ("index-only", "index-only range"),
                           ("beside", "look-ups beside INSERTs (aim 1.05)"))],
    ("replay, 1 index: rows/s (aim 2.5)", "replay-1", "", "rows_per_s", ">=", 1.5),
    ("replay, 4 indexes: rows/s (aim 5)", "replay-4", "", "rows_per_s", ">=", 3.0),
    *[(f"replay, confined, {n} index{'' if n == 1 else 'es'}: rows/s (aim 10)", f"tight-replay-{n}",
       "", "rows_per_s", ">=", 5.0) for n in (1, 4)],
    ("look-ups in the minute after a crash (aim 1)", "restart-copy", "point", "tps", ">=", 0.9),
    ("logical apply, 4 indexes: rows/s", "logical", "", "rows_per_s", ">=", 1.0),
    ("CREATE INDEX, 5 M rows: time", "create-index-5m", "", "seconds", "<=", 1.2),
    ("CREATE INDEX, 5 M rows, 2 workers: time", "parallel", "build", "seconds", "<=", 1.0),
    ("count of 5 M rows, 2 workers: time", "parallel", "count", "seconds", "<=", 1.05),
    ("bitmap scan of 1 M rows, 2 workers: time", "parallel", "bitmap", "seconds", "<=", 1.05),
    ("index size, bigint", "size-uniform", "", "index_bytes", "<=", 0.5),
    ("index size, uuid", "size-uuid", "", "index_bytes", "<=", 0.6),
    ("index size, URLs", "size-urls", "", "index_bytes", "<=", 0.6),
    ("index size, 1 024 distinct values", "size-few", "", "index_bytes", "<=", 1.0),
    ("cold index, bigint", "size-uniform", "", "cold_bytes", "<=", 0.35),
    ("cold index, uuid", "size-uuid", "", "cold_bytes", "<=", 0.55),
    ("cold index, URLs", "size-urls", "", "cold_bytes", "<=", 0.45),
    ("cold index, in order", "size-ascending", "", "cold_bytes", "<=", 0.15),
    ("cold index, timestamps", "size-timestamps", "", "cold_bytes", "<=", 0.15),
    *[(f"confined, {n} index{'' if n == 1 else 'es'}: {label}", f"tight-ingest-{n}", *rest)
      for n, speed, aim, written, small in ((1, 5, 15, 0.15, 0.08), (4, 10, 20, 0.10, 0.05))
      for label, *rest in (
          (f"rows/s (aim {aim})", "", "rows_per_s", ">=", speed),
          (f"bytes written a row (aim {small})", "", "written_per_row", "<=", written),
          ("longest 1-row INSERT (us)", "insert1", "max", "<=", 1.0),
          ("longest 1-row INSERT at btree's rate (us)", "insert1-paced", "max", "<=", 1.0),
          ("longest 10 000-row batch (ms)", "", "longest_batch_ms", "<=", 1.0),
          ("look-ups while ingesting (aim 1.5)", "look-ups", "tps", ">=", 0.8),
          ("look-ups beside btree's rate (aim 1.5)", "look-ups-paced", "tps", ">=", 0.8))],
    ("confined, zipfian, 1 index: tps (aim 4)", "tight-zipf-1", "", "tps", ">=", 1.5),
    ("confined, zipfian, 4 indexes: tps (aim 8)", "tight-zipf-4", "", "tps", ">=", 3.0),
    *[(f"confined, {state} of {cells}", name, state, "tps", ">=", 0.95)
      for name, cells in (("tight-grid", "the grid"), ("tight-grid-cold", "the grid, packed"))
      for _, _, _, state in data.grid_cells()],
    *[(f"confined, {data.GRID_INDEX_ONLY}{packed} (aim 5)", name, data.GRID_INDEX_ONLY, "tps", ">=", 3)
      for name, packed in (("tight-grid", ""), ("tight-grid-cold", ", packed"))],
    ("confined, zipfian, by two columns (aim 4)", "tight-pair", "", "tps", ">=", 2.0),
    ("first read of 0.01 % of a cold index (ms)", "tight-cold", "0.01 %", "first_query_ms",
     "<=", 1.0),
    ("first read of 1 % of a cold index (ms)", "tight-cold", "1 %", "first_query_ms", "<=", 1.0),
    ("confined, cold index, bigint", "tight-cold", "size", "cold_bytes", "<=", 0.35),
    ("VACUUM, 1 % dead, recent, random keys: time (aim 0.3)", "tight-vacuum-uniform", "", "seconds",
     "<=", 1.0),
    ("VACUUM, 1 % dead, recent, keys in order: time (aim 0.3)", "tight-vacuum-ascending", "",
     "seconds", "<=", 1.0),
    ("COPY of ascending keys: time", "copy-ascending", "", "seconds", "<=", 1.0),
]

# label, column, (workload, state), (workload, state), at least / at most, limit:
# what a method has at the first place, relative to what it has itself at the second
OWN = [
    ("CPU an index entry at 100 M rows, of that at 1 M (aim 1.5)", "cpu_us_per_entry",
     ("tight-cpu-100", ""), ("tight-cpu-1", ""), "<=", 2.5),
    ("a reader's CPU a look-up beside a writer, of alone", "cpu_us_per_row",
     ("reader", "beside"), ("reader", "alone"), "<=", 1.05),
    ("hot reads with cold leaves packed, of those without", "tps",
     ("tight-hot", "on"), ("tight-hot", "off"), ">=", 0.98),
    *[(f"replay, {n} index{'' if n == 1 else 'es'}: rows/s, of what the primary took", "rows_per_s",
       (f"replay-{n}", ""), (f"replay-{n}", "primary"), ">=", 1.0) for n in (1, 4)],
    *[(f"replay, confined, {n} index{'' if n == 1 else 'es'}: rows/s, of what the primary took",
       "rows_per_s", (f"tight-replay-{n}", ""), (f"tight-replay-{n}", "primary"), ">=", 1.0)
      for n in (1, 4)],
    ("WAL a row after a crash, of before", "wal_per_row",
     ("restart-copy", "after"), ("restart-copy", "before"), "<=", 1.1),
    ("entries a visited leaf after a crash, for the index's size, of before", "leaf_share",
     ("restart-copy", "after"), ("restart-copy", "before"), ">=", 0.9),
]

# label, workload, state, column: how much more than btree's, at most
BEYOND = [
    ("first query after a crash (ms)", "restart-copy", "first", "first_query_ms", 10),
    ("first INSERT after a crash (ms)", "restart-copy", "first-insert", "first_query_ms", 10),
]

# milliseconds of cachebatch alone
ABSOLUTE = [
    ("journal caught up after restart (ms)", "restart", "", "catch_up_ms", 1000),
    ("first query after restart (ms)", "restart", "", "first_query_ms", 1000),
    ("cancelled while catching up (ms)", "restart", "", "cancel_ms", 1000),
    ("very first query of a standby, 500,000 entries waiting (ms)", "standby", "first",
     "first_query_ms", 60),
]

COLUMNS = [("rows/s", "rows_per_s", "{:.0f}"), ("tps", "tps", "{:.0f}"),
           ("seconds", "seconds", "{:.2f}"), ("WAL B/row", "wal_per_row", "{:.0f}"),
           ("written", "written_per_row", "{:.0f}"), ("read", "read_per_row", "{:.0f}"),
           ("CPU us/row", "cpu_us_per_row", "{:.2f}"), ("p50 us", "p50", "{:.0f}"),
           ("p95", "p95", "{:.0f}"), ("p99", "p99", "{:.0f}"), ("p99.9", "p99.9", "{:.0f}"),
           ("p99.99", "p99.99", "{:.0f}"),
           ("max", "max", "{:.0f}"), ("longest batch ms", "longest_batch_ms", "{:.0f}"),
           ("failed of 1000", "failed_per_1000", "{:.2f}")]

METHODS = ["heap", "btree", "hash", "cachebatch", "other", "unbuffered"]

TEXT = ("workload", "state", "method")      # of a record; the others are numbers
STEP = "step "                              # begins the state of a part of a growing index

PERCENTILES = ["p50", "p95", "p99", "p99.9", "p99.99", "max"]

# what two builds are compared by, and how far apart they may be
BUILDS = [("rows/s", "rows_per_s"), ("tps", "tps"), ("seconds", "seconds"),
          ("CPU us/row", "cpu_us_per_row"), ("WAL B/row", "wal_per_row"),
          ("written B/row", "written_per_row"), ("read B/row", "read_per_row"),
          ("index bytes", "index_bytes"), ("packed bytes", "cold_bytes"),
          ("first query ms", "first_query_ms"), ("caught up ms", "catch_up_ms")]
APART = 0.03


class Medians:
    """Medians over the repeats, by workload, state, method and column."""

    def __init__(self, records):
        self.values = {}
        for record in records:
            key = (record["workload"], record.get("state", "") or "", record["method"])
            for column, value in record.items():
                if isinstance(value, (int, float)):
                    self.values.setdefault(key + (column,), []).append(value)
        keys = list(dict.fromkeys(key[:3] for key in self.values))
        self.keys = [key for key in keys if not key[1].startswith(STEP)]
        self.steps = [key for key in keys if key[1].startswith(STEP)]

    def get(self, workload, state, method, column):
        if column == "cpu_us_per_entry":
            return self.entry_cpu(workload, state, method)
        found = self.values.get((workload, state, method, column))
        return statistics.median(found) if found else None

    def entry_cpu(self, workload, state, method):
        """Microseconds of server CPU an index entry: what a row takes beyond the
        heap alone, by the number of indexes (ingest-STATEMENT-N-KEYS; tight-cpu-M
        have 1 and one floor)."""
        tight = workload.startswith("tight-cpu-")
        row = self.get(workload, state, method, "cpu_us_per_row")
        floor = self.get("tight-cpu-1" if tight else workload, state, "heap", "cpu_us_per_row")
        if row is None or floor is None:
            return None
        return (row - floor) / (1 if tight else int(workload.split("-")[2]))

    def repeats(self):
        return min((len(v) for k, v in self.values.items() if k[3] == "repeat"), default=0)

    def ratio(self, workload, state, column, to="btree"):
        ours = self.get(workload, state, "cachebatch", column)
        theirs = self.get(workload, state, to, column)
        return ours / theirs if ours is not None and theirs else None

    def has_other(self):
        return any(method == "other" for _, _, method in self.keys)

    def ratios(self, workload, state, column):
        """cachebatch by the other build, of each repeat."""
        ours, theirs = (self.values.get((workload, state, method, column), [])
                        for method in ("cachebatch", "other"))
        return [a / b for a, b in zip(ours, theirs) if b]

    def own(self, method, column, first, second):
        """A method's figure at the first place by its figure at the second."""
        above, below = (self.get(*place, method, column) for place in (first, second))
        return above / below if above is not None and below else None


def acceptance(medians):
    """Rows of the acceptance table, and how many limits are not met."""
    rows, missed = [], 0
    for label, workload, state, column, sense, limit in LIMITS:
        figures = {m: medians.get(workload, state, m, column) for m in METHODS}
        ratio = medians.ratio(workload, state, column)
        if ratio is None:
            continue
        met = ratio >= limit if sense == ">=" else ratio <= limit
        missed += not met
        rows.append(accepted(medians, label, figures, ratio, f"{sense} {limit}", met))
    for label, column, first, second, sense, limit in OWN:
        figures = {m: medians.own(m, column, first, second) for m in METHODS}
        ratio = figures["cachebatch"]
        if ratio is None:
            continue
        met = ratio >= limit if sense == ">=" else ratio <= limit
        missed += not met
        rows.append(accepted(medians, label, figures, ratio, f"{sense} {limit}", met))
    for label, workload, state, column, limit in BEYOND:
        figures = {m: medians.get(workload, state, m, column) for m in METHODS}
        if figures["cachebatch"] is None or figures["btree"] is None:
            continue
        met = figures["cachebatch"] - figures["btree"] <= limit
        missed += not met
        rows.append(accepted(medians, label, figures, None, f"<= btree + {limit}", met))
    for label, workload, state, column, limit in ABSOLUTE:
        figures = {m: medians.get(workload, state, m, column) for m in METHODS}
        value = figures["cachebatch"]
        if value is None:
            continue
        missed += value > limit
        rows.append(accepted(medians, label, figures, None, f"<= {limit} ms", value <= limit))
    return rows, missed


def accepted(medians, label, figures, ratio, limit, met):
    """A row of the acceptance table, as acceptance_head() says."""
    ours, other = figures["cachebatch"], figures["other"]
    beside = (number(other), quotient(ours / other if other else None)) if medians.has_other() else ()
    return (label, number(figures["btree"]), number(ours), quotient(ratio), *beside, limit,
            "met" if met else "NOT MET")


def acceptance_head(medians):
    beside = ("other", "cachebatch/other") if medians.has_other() else ()
    return ("figure", "btree", "cachebatch", "ratio", *beside, "limit", "")


def builds(medians):
    """Rows of the table of the two builds, and how many figures are further apart
    than they may be.  seconds only where nothing else tells the speed."""
    rows, apart = [], 0
    for workload, state in dict.fromkeys(key[:2] for key in medians.keys):
        fast = any(medians.ratio(workload, state, c, "other") for c in ("rows_per_s", "tps"))
        for label, column in BUILDS:
            ratio = medians.ratio(workload, state, column, "other")
            if ratio is None or (column == "seconds" and fast):
                continue
            each = medians.ratios(workload, state, column)
            near = abs(ratio - 1) <= APART
            apart += not near
            rows.append((f"{workload} {state}".strip(), label,
                         *(number(medians.get(workload, state, m, column))
                           for m in ("other", "cachebatch")),
                         f"{ratio:.3f}", f"{min(each):.3f}", f"{max(each):.3f}",
                         "" if near else "apart"))
    return rows, apart


def quotient(ratio):
    return "" if ratio is None else f"{ratio:.{2 if ratio >= 1 else 3}f}"


def number(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def details(medians):
    """One row for each workload and method: medians of everything measured."""
    rows = []
    for workload, state, method in medians.keys:
        cells = []
        for _, column, form in COLUMNS:
            value = medians.get(workload, state, method, column)
            cells.append("" if value is None else form.format(value))
        if any(cells):
            rows.append((f"{workload} {state}".strip(), method, *cells))
    return rows


def chart(medians, title, unit, column, wanted):
    """SVG of one column for all workloads that `wanted` accepts, or None."""
    groups = []
    for workload, state in dict.fromkeys(key[:2] for key in medians.keys):
        if wanted(workload):
            bars = [(m, medians.get(workload, state, m, column)) for m in METHODS]
            bars = [bar for bar in bars if bar[1]]
            if bars:
                groups.append((f"{workload} {state}".strip(), bars))
    return plot.bars(title, unit, groups, METHODS) if groups else None


def growth(medians):
    """SVG of rows/s against the size of the index, or None."""
    panels = {}
    for workload, state, method in medians.steps:
        entries, speed = (medians.get(workload, state, method, c) for c in ("rows", "rows_per_s"))
        panels.setdefault(workload, {}).setdefault(method, []).append((entries / 1e6, speed))
    return plot.curves("Rows/s while an index grows",
                       [(name, list(found.items())) for name, found in panels.items()], METHODS,
                       "size of the index, million entries", "rows/s") if panels else None


def latencies(medians, wanted):
    """SVG of how long single statements take, for workloads that `wanted` accepts, or None."""
    panels = {}
    for workload, state, method in medians.keys:
        times = [medians.get(workload, state, method, p) for p in PERCENTILES]
        if wanted(workload) and all(times):
            panels.setdefault(f"{workload} {state}".strip(), []).append(
                (method, list(enumerate(times))))
    return plot.curves("How long a single statement takes", list(panels.items()), METHODS,
                       "percentile of the statements", "us, logarithmic", PERCENTILES, True) \
        if panels else None


def single(name):
    """Is it a workload of single statements?"""
    return name.startswith(("ingest-insert1-", "big-insert1", "connect", "mixed", "update", "churn",
                            "tight-ingest"))


def charts(medians):
    """(file name, SVG) of all plots that have something to show."""
    def ingest(name):
        return name.startswith(("ingest-copy", "ingest-insert100", "grow", "upsert", "big-copy",
                                "logical"))

    def reads(name):
        return name in ("point", "range-100", "any-100", "any-100-big", "index-only", "absent", "max",
                        "point-zipf", "near", "mixed", "update", "churn", "churn-key")

    def rows(name):
        return single(name) and not name.startswith("tight")

    found = [
        ("size.svg", growth(medians)),
        ("latency.svg", latencies(medians, single)),
        ("ingest.svg", chart(medians, "Ingest", "rows/s", "rows_per_s", ingest)),
        ("insert.svg", chart(medians, "Single rows", "rows/s", "rows_per_s", rows)),
        ("wal.svg", chart(medians, "WAL", "bytes a row", "wal_per_row",
                          lambda n: ingest(n) or rows(n))),
        ("cpu.svg", chart(medians, "Server CPU", "us a row", "cpu_us_per_row",
                          lambda n: ingest(n) or rows(n))),
        ("reads.svg", chart(medians, "Reads", "transactions/s", "tps", reads)),
    ]
    return [(name, svg) for name, svg in found if svg]


def markdown_table(head, rows):
    lines = ["| " + " | ".join(head) + " |",
             "|---|" + "---:|" * (len(head) - 2) + "---|"]
    return lines + ["| " + " | ".join(str(c) for c in row) + " |" for row in rows]


def html_table(head, rows):
    def line(cells, tag):
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(c))}</{tag}>" for c in cells) + "</tr>"
    body = "\n".join(line(row, "td").replace("<td>NOT MET", '<td class="no">NOT MET')
                     .replace("<td>met", '<td class="yes">met')
                     .replace("<td>apart", '<td class="no">apart') for row in rows)
    return f"<table>{line(head, 'th')}\n{body}</table>"


STYLE = """body { font: 15px sans-serif; max-width: 70em; margin: 2em auto; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
td { white-space: nowrap; }
td, th { padding: .2em .6em; border-bottom: 1px solid #ccc; text-align: right; }
td:first-child, th:first-child { text-align: left; }
.yes { color: #176d2c; } .no { color: #b00020; font-weight: bold; }"""

BUILDS_HEAD = ("workload", "figure", "other", "cachebatch", "cachebatch/other", "least", "greatest", "")


def write(directory, lines, records):
    """report.md, report.html and the plots; how many limits are not met, or, of two
    builds, how many figures are too far apart."""
    medians = Medians(records)
    rows, missed = acceptance(medians)
    verdict = f"{len(rows) - missed} of {len(rows)} acceptance figures met"
    sections = [("Acceptance", acceptance_head(medians), rows)]
    if medians.has_other():
        rows, missed = builds(medians)
        verdict += (f"; {len(rows) - missed} of {len(rows)} figures within {100 * APART:g} % "
                    "of the other build's")
        sections.append(("Two builds", BUILDS_HEAD, rows))
    details_head = ("workload", "method") + tuple(c[0] for c in COLUMNS)
    pictures = charts(medians)
    note = (f"Medians of {medians.repeats()} repeats, methods in turn; each ingest ends with a flush "
            "inside the time, but for those of tight-*. Figures at a scale below 1 say little about those at 1.")
    text = ["# cachebatch beside btree", "", f"**{verdict}.** {note}", ""]
    text += [f"- {key}: {value}" for key, value in lines.items()]
    page = [f"<!DOCTYPE html><meta charset=utf-8><title>cachebatch</title><style>{STYLE}</style>",
            f"<h1>cachebatch beside btree</h1><p><b>{verdict}.</b> {note}</p><ul>"]
    page += [f"<li>{key}: {html.escape(value)}</li>" for key, value in lines.items()] + ["</ul>"]
    for title, head, rows in sections:
        text += ["", f"## {title}", ""] + markdown_table(head, rows)
        page += [f"<h2>{title}</h2>", html_table(head, rows)]
    text += ["", "## Plots", ""] + [f"![{plot.title_of(svg)}]({name})" for name, svg in pictures]
    text += ["", "## All medians", ""] + markdown_table(details_head, details(medians))
    page += ["<h2>Plots</h2>"] + [svg for _, svg in pictures]
    page += ["<h2>All medians</h2>", html_table(details_head, details(medians))]
    for name, content in [("report.md", "\n".join(text)), ("report.html", "\n".join(page)),
                          *pictures]:
        with open(os.path.join(directory, name), "w") as out:
            out.write(content + "\n")
    return missed


def read(path):
    """What an earlier run's CSV file says: the head's lines, and the records."""
    with open(path) as file:
        text = file.read().splitlines()
    lines = dict(line[2:].split(": ", 1) for line in text if line.startswith("# "))
    rows = csv.DictReader(line for line in text if not line.startswith("#"))
    return lines, [{k: v if k in TEXT else float(v) for k, v in row.items() if v} for row in rows]


def again(path):
    """The report of an earlier run's CSV file, written beside it."""
    write(os.path.dirname(os.path.abspath(path)), *read(path))
    return 0
