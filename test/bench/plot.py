"""Horizontal bars, and values over time, as SVG, written by hand.

As a program: plot.py TITLE, with lines "name|cachebatch, of btree's" as input.
"""

import html
import math
import sys

COLOURS = {"heap": "#b0b0b0", "btree": "#3b6ea5", "hash": "#8a6bb1",
           "cachebatch": "#d9822b", "other": "#eec08f", "unbuffered": "#6aa56a",
           "1 index": "#d9822b", "4 indexes": "#3b6ea5",
           "uniform": "#d9822b", "clustered": "#3b6ea5", "model": "#b0b0b0", "counted": "#d9822b"}
LEFT, WIDTH, BAR, GAP = 230, 520, 13, 10


def label(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def picture(title, groups, series, span, lines=()):
    """All bars below each other; span(value): where one begins and ends.  lines:
    (place, what it stands for) across the bars."""
    out, y = [], 50
    for name, found in groups:
        out.append(f'<text x="{LEFT - 8}" y="{y + BAR * len(found) / 2 + 4}" '
                   f'text-anchor="end">{html.escape(name)}</text>')
        for method, value in found:
            begin, end = span(value)
            out.append(f'<rect x="{begin:g}" y="{y}" width="{end - begin:.1f}" '
                       f'height="{BAR - 2}" fill="{COLOURS[method]}"/>')
            out.append(f'<text x="{end + 4:.1f}" y="{y + BAR - 3}" '
                       f'font-size="10">{label(value)}</text>')
            y += BAR
        y += GAP
    for x, name in lines:
        out.insert(0, f'<path d="M{x:.1f} 46V{y}" stroke="#d0d0d0"/><text x="{x:.1f}" '
                   f'y="{y + 12}" text-anchor="middle" font-size="10">{name}</text>')
    y += 18 if lines else 0
    x = LEFT
    for method in series:
        out.append(f'<rect x="{x}" y="28" width="10" height="10" fill="{COLOURS[method]}"/>'
                   f'<text x="{x + 14}" y="37">{method}</text>')
        x += 100
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 90}" '
            f'height="{y}" font-family="sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="white"/>'
            f'<text x="{LEFT}" y="18" font-size="15">{html.escape(title)}</text>'
            + "".join(out) + "</svg>")


def bars(title, unit, groups, series, logarithmic=False):
    """groups: (name, [(series, value)]).  A bar ends at its value."""
    largest = max(value for _, found in groups for _, value in found)
    least = min(value for _, found in groups for _, value in found)

    def length(value):
        if not logarithmic or largest == least:
            return WIDTH * value / largest
        return WIDTH * (0.05 + 0.95 * math.log(value / least) / math.log(largest / least))

    return picture(f"{title} ({unit})", groups, series,
                   lambda value: (LEFT, LEFT + length(value)))


def ratios(title, groups, series):
    """As bars(), but logarithmic, and a bar leads from 1 to its value."""
    values = [1] + [value for _, found in groups for _, value in found]
    least, largest = min(values), max(values)

    def place(value):
        return LEFT + WIDTH * math.log(value / least) / math.log(largest / least)

    powers = [10 ** n for n in range(math.ceil(math.log10(least)),
                                     math.floor(math.log10(largest)) + 1)]
    return picture(title, groups, series, lambda value: sorted((place(1), place(value))),
                   [(place(value), label(value)) for value in powers])


def strips(title, series, marks):
    """Values over seconds, each series in a strip of its own from 0 to its largest value.
    series: (name, [[(second, value)]]), a line for each list; marks: seconds, for
    instance of restarts."""
    end = max(x for _, lines in series for line in lines for x, _ in line) or 1
    height, width = 60, LEFT + WIDTH
    out = []
    for number, (name, lines) in enumerate(series):
        bottom = 40 + (height + 24) * (number + 1)
        largest = max(y for line in lines for _, y in line) or 1
        out.append(f'<text x="10" y="{bottom - height - 4}">{html.escape(name)}</text>'
                   f'<text x="{width + 14}" y="{bottom - height + 8}" font-size="10">{label(largest)}</text>'
                   f'<text x="{width + 14}" y="{bottom}" font-size="10">0</text>'
                   f'<path d="M 10 {bottom}H{width + 10}" stroke="#b0b0b0"/>')
        for x in marks:
            out.append(f'<path d="M {10 + width * x / end:.1f} {bottom - height}v{height}" stroke="#d0d0d0"/>')
        for line in lines:
            points = " ".join(f"{10 + width * x / end:.1f},{bottom - height * y / largest:.1f}" for x, y in line)
            out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS["cachebatch"]}"/>')
    bottom = 40 + (height + 24) * len(series)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 90}" height="{bottom + 30}" '
            f'font-family="sans-serif" font-size="12">'
            f'<rect width="100%" height="100%" fill="white"/>'
            f'<text x="10" y="18" font-size="15">{html.escape(title)}</text>' + "".join(out) +
            f'<text x="10" y="{bottom + 20}">0</text><text x="{width + 10}" y="{bottom + 20}" '
            f'text-anchor="end">{end / 60:.0f} minutes</text></svg>')


if __name__ == "__main__":
    print(ratios(sys.argv[1], [(name, [("cachebatch", float(value))]) for name, value in
                               (line.rstrip("\n").split("|") for line in sys.stdin)],
                 ["cachebatch"]))
