#!/usr/bin/env python3
"""What has grown?  Slopes and plots of a soak's samples.

    judge.py DIR        judges DIR/samples.csv, and draws DIR/*.svg
    judge.py --check    a series that grows is found, and one that does not is not

Figures of a process begin anew with the process.  So their slope is that within the
life of one, by least squares, over all that there were.  Other figures go on over
restarts.  While caches fill up nothing counts: a fifth of the longest life, in each, or of
all the time.
"""

import collections
import csv
import os
import random
import statistics
import sys

FIELDS = ["part", "second", "group", "series", "process", "value"]

WARM_UP = 0.2           # of the time
LEAST_SECONDS = 1200    # with less than that behind the warm-up nothing is judged
LEAST_SAMPLES = 3
PER_CENT = 10           # an hour, of the median: what may be

# floor: what may be, an hour, of small figures; None: shown, but not judged.
Group = collections.namedtuple("Group", "unit floor of_process")
GROUPS = {
    "memory": Group("kB", 1024, True),
    "descriptors": Group("files", 10, True),
    "shared memory": Group("kB", 256, False),
    "slots": Group("slots", 8, False),
    "sizes": Group("kB", 2048, False),
    "files": Group("files", 20, False),
    "work": Group("", None, False),
}

Fit = collections.namedtuple("Fit", "samples median slope seconds longest scatter")


def read(path):
    """{(group, series): [(part, second, process, value)]}, and how many samples."""
    found, times = collections.defaultdict(list), set()
    with open(path, newline="") as text:
        for row in csv.DictReader(text):
            if row["value"] is None:
                continue        # cut off by a kill
            key = (int(row["part"]), float(row["second"]))
            found[row["group"], row["series"]].append(key + (int(row["process"]), float(row["value"])))
            times.add(key)
    return found, len(times)


def segments(rows, of_process):
    """The stretches of time in which a figure goes on: [[(second, value)]]."""
    found = collections.defaultdict(list)
    for part, second, process, value in rows:
        found[(part, process) if of_process else None].append((second, value))
    return list(found.values())


def warm(stretches):
    """What is left of them without the warm-up; of those that are short, nothing."""
    skipped = WARM_UP * max(points[-1][0] - points[0][0] for points in stretches)
    left = [[point for point in points if point[0] >= points[0][0] + skipped] for points in stretches]
    return [points for points in left if points]


def fit(stretches):
    """One slope, in units an hour, for all of them; each has a level of its own."""
    xx = xy = yy = 0
    for points in stretches:
        x_mean = statistics.fmean(x for x, _ in points)
        y_mean = statistics.fmean(y for _, y in points)
        xx += sum((x - x_mean) ** 2 for x, _ in points)
        xy += sum((x - x_mean) * (y - y_mean) for x, y in points)
        yy += sum((y - y_mean) ** 2 for _, y in points)
    values = [y for points in stretches for _, y in points]
    slope = xy / xx if xx else 0
    spans = [points[-1][0] - points[0][0] for points in stretches]
    return Fit(len(values), statistics.median(values), slope * 3600, sum(spans), max(spans),
               (max(0, yy - slope * xy) / len(values)) ** 0.5)


def verdict(group, found):
    """flat or GROWS; "" if that cannot be told.  A rise that is smaller than the
    scatter about the line is none."""
    if group.floor is None or found.seconds < LEAST_SECONDS or found.samples < LEAST_SAMPLES:
        return ""
    grows = (found.slope > group.floor and found.slope * 100 > PER_CENT * found.median
             and found.slope * found.longest / 3600 > found.scatter)
    return "GROWS" if grows else "flat"


def judge(series):
    """[(group, series, Fit, verdict)], in the order of the groups."""
    found = []
    for (name, title), rows in series.items():
        group = GROUPS[name]
        fitted = fit(warm(segments(rows, group.of_process)))
        found.append((name, title, fitted, verdict(group, fitted)))
    return sorted(found, key=lambda row: (list(GROUPS).index(row[0]), row[1]))


def draw(directory, series, judged):
    """One picture for each group; a line at each restart."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
    import plot                 # needs matplotlib, which the rest does not

    begins = {}
    for rows in series.values():
        for part, second, _, _ in rows:
            begins[part] = min(second, begins.get(part, second))
    for name, group in GROUPS.items():
        strips = [("%s: %+.3g %s/h %s" % (title, fitted.slope, group.unit, said),
                   segments(series[name, title], group.of_process))
                  for found, title, fitted, said in judged if found == name]
        if strips:
            with open(os.path.join(directory, name.replace(" ", "_") + ".svg"), "w") as out:
                out.write(plot.strips("%s over time, %s" % (name, group.unit) if group.unit else name,
                                      strips, list(begins.values())))


def report(directory):
    """Prints a line for each series, and draws; (samples, parts, how many grow)."""
    series, samples = read(os.path.join(directory, "samples.csv"))
    judged = judge(series)
    draw(directory, series, judged)
    print("%-14s %-30s %8s %12s %13s %8s" % ("group", "series", "minutes", "median", "an hour", "% an h"))
    for name, title, found, said in judged:
        share = 100 * found.slope / found.median if found.median else 0
        print("%-14s %-30s %8.1f %12.1f %+13.2f %+8.1f  %s" % (
            name, title, found.seconds / 60, found.median, found.slope, share, said))
    parts = {row[0] for rows in series.values() for row in rows}
    return samples, len(parts), sum(row[3] == "GROWS" for row in judged)


def check():
    """The judgement of made-up series; "ok" or "not ok" for each."""
    rng = random.Random(1)
    times = range(0, 7200, 5)

    def of(value, processes=1):
        length = 7200 // processes
        return [(t // length, t, t // length, value(t, t % length)) for t in times]

    cases = [
        ("flat and noisy", "memory", of(lambda t, age: 8000 + rng.gauss(0, 800)), "flat"),
        ("a leak under noise", "memory", of(lambda t, age: 8000 + t + rng.gauss(0, 800)), "GROWS"),
        ("a leak of processes", "memory", of(lambda t, age: 8000 + age + rng.gauss(0, 100), 4), "GROWS"),
        ("larger processes later", "memory", of(lambda t, age: 8000 + t - age, 4), "flat"),
        ("caches fill up", "memory", of(lambda t, age: 8000 + 10 * min(age, 300), 4), "flat"),
        ("short lives", "memory", of(lambda t, age: 8000, 2) +
         [(p, t, 1000 + p, 3000 + 20 * (t % 200)) for p in range(36) for t in range(200 * p, 200 * p + 200, 5)], "flat"),
        ("a small figure", "descriptors", of(lambda t, age: 2 + t / 1800), "flat"),
        ("descriptors", "descriptors", of(lambda t, age: 20 + t / 60), "GROWS"),
        ("a file, over restarts", "sizes", of(lambda t, age: 9000 + t, 4), "GROWS"),
        ("a saw", "sizes", of(lambda t, age: 9000 + 20 * (t % 900)), "flat"),
        ("less and less", "sizes", of(lambda t, age: 90000 - 5 * t), "flat"),
        ("too short", "sizes", [row for row in of(lambda t, age: 9000 + t) if row[1] < 1200], ""),
    ]
    failed = 0
    for name, group, rows, expected in cases:
        (_, _, found, said), = judge({(group, name): rows})
        failed += said != expected
        print("%sok - soak: %s is %s%s" % ("" if said == expected else "not ", name, expected or "not judged",
                                           "" if said == expected else ": %r, %s" % (said, found)))
    return failed > 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(check())
    sys.exit(report(sys.argv[1])[2] > 0)
