#!/usr/bin/env python3
r"""Draws the figures of README.md beside this file.

entry.svg    how an entry travels, from the text below
ratios.svg   what cachebatch has of btree's, from figures.csv
size.svg     rows/s while an index grows, and
latency.svg  how long single INSERTs take, from curves.csv: results.csv of

    test/bench/run --repeats 2 --methods btree,cachebatch grow-big big-insert1-async \
        big-insert1-sync

Needs python3-matplotlib, as that does:

    /usr/bin/python3 doc/figures.py
"""

import csv
import os
import sys
from html import escape

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(HERE, "..", "test", "bench"))

import plot
import report

SIZE = 860, 390
INK, PAPER, MEMORY, FILE = "#1f2328", "#ffffff", "#fff1e0", "#e3edf8"

# left, top, width, height, colour, name and its height
PLACES = [
    (15, 15, 830, 150, MEMORY, "memory", 38),
    (15, 235, 830, 140, FILE, "the index's file", 366),
]

# left, top, width, height, lines: the first one is the box's name
BOXES = [
    (35, 50, 200, 95, ["the session", "a statement's entries", "are staged"]),
    (335, 50, 220, 95, ["buckets", "one for each range of keys;", "every session reads them"]),
    (35, 250, 200, 95, ["the journal", "the durable copy,", "until buckets are flushed"]),
    (335, 250, 190, 95, ["range buffers", "sorted pages,", "in large indexes only"]),
    (640, 250, 185, 95, ["the tree", "leaves are packed", "when they run full"]),
]

# points of the line, places of text and the text
ARROWS = [
    ([(235, 97), (335, 97)], [(252, 88, "buffered")]),
    ([(135, 145), (135, 250)],
     [(145, 190, "journaled, with WAL,"), (145, 208, "at the statement's end")]),
    ([(430, 145), (430, 250)], [(440, 205, "spilled")]),
    ([(555, 97), (785, 97), (785, 250)],
     [(567, 88, "flushed by a worker: sorted,"), (567, 115, "one visit for each leaf")]),
    ([(525, 297), (640, 297)], [(556, 288, "merged")]),
]


def text(x, y, line, anchor="start", more=""):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{INK}"{more}>{escape(line)}</text>'


def place(left, top, width, height, colour, name, y):
    return (f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="8" fill="{colour}"/>'
            + text(left + 20, y, name, more=' font-style="italic"'))


def box(left, top, width, height, lines):
    middle, y = left + width / 2, top + height / 2 - 9 * len(lines) + 14
    return (f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" '
            f'fill="{PAPER}" stroke="{INK}"/>'
            + "".join(text(middle, y + 18 * i, line, "middle", "" if i else ' font-weight="bold"')
                      for i, line in enumerate(lines)))


def arrow(points, texts):
    path = " ".join(f"{x},{y}" for x, y in points)
    (x0, _), (x, y) = points[-2:]
    head = [(x - 10, y - 5), (x - 10, y + 5)] if x > x0 else [(x - 5, y - 10), (x + 5, y - 10)]
    tip = " ".join(f"{a},{b}" for a, b in head + [(x, y)])
    return (f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.5"/>'
            f'<polygon points="{tip}" fill="{INK}"/>' + "".join(text(*t) for t in texts))


def entry():
    width, height = SIZE
    parts = [place(*p) for p in PLACES] + [box(*b) for b in BOXES] + [arrow(*a) for a in ARROWS]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="14">'
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>\n'
            + "\n".join(parts) + "\n</svg>")


def ratios():
    """Bars to the right of 1: better than btree, be it more of what is wanted or less."""
    with open(os.path.join(HERE, "figures.csv")) as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    groups = {}
    for row in rows:
        better = float(row["ratio"]) if row["better"] == "more" else 1 / float(row["ratio"])
        series = "1 index" if row["indexes"] == "1" else "4 indexes"
        groups.setdefault(row["figure"], []).append((series, float(f"{better:.2g}")))
    return plot.ratios("How many times better than btree (logarithmic)", list(groups.items()),
                       ["1 index", "4 indexes"])


def pictures():
    """(file name, SVG) of all."""
    medians = report.Medians(report.read(os.path.join(HERE, "curves.csv"))[1])
    return [("entry.svg", entry()), ("ratios.svg", ratios()),
            ("size.svg", report.growth(medians)),
            ("latency.svg", report.latencies(medians, report.single))]


def main():
    for name, svg in pictures():
        with open(os.path.join(HERE, name), "w") as out:
            out.write(svg + "\n")


if __name__ == "__main__":
    main()
