"""Bars, curves and strips as SVG, drawn by matplotlib: the same input gives the same file.

As a program: plot.py TITLE, with lines "name|cachebatch, of btree's" as input.
"""

import html
import io
import re
import sys

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

COLOURS = {"heap": "#b0b0b0", "btree": "#3b6ea5", "hash": "#8a6bb1",
           "cachebatch": "#d9822b", "other": "#eec08f", "unbuffered": "#6aa56a",
           "1 index": "#d9822b", "4 indexes": "#3b6ea5",
           "uniform": "#d9822b", "clustered": "#3b6ea5", "model": "#b0b0b0", "counted": "#d9822b"}
WIDTH, BAR, PANEL, STRIP = 8.5, 0.14, 3.0, 0.9  # inches: all, a bar's height, a panel's, a strip's

# text stays text, so that a file is small and can be searched
matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "cache_batch", "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False})


def label(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def finish(figure, title, series, patches):
    """The SVG, with title and legend above all, to stand alone or within a page of HTML."""
    height = figure.get_figheight()
    figure.suptitle(title, fontsize=12, y=1 - 0.08 / height).set_in_layout(False)
    shown = [s for s in series if s in patches]
    if shown:
        figure.legend([patches[s] for s in shown], shown, loc="upper center", ncols=len(shown),
                      bbox_to_anchor=(0.5, 1 - 0.27 / height), frameon=False).set_in_layout(False)
    figure.get_layout_engine().set(rect=(0, 0, 1, 1 - 0.55 / height))
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Title": title, "Date": None, "Creator": None})
    # names of groups, which nothing refers to, would be there twice in a page
    svg = re.sub(r'<g id="[^"]*"', "<g", out.getvalue())
    return svg[svg.index("<svg"):].rstrip().replace("<svg", '<svg role="img"', 1)


def title_of(svg):
    """What a plot is called, for those who do not see it."""
    return html.unescape(re.search("<title>(.*)</title>", svg)[1])


def drawn_bars(title, groups, series, first, logarithmic):
    """All bars below each other, those of a group together, from first to their values."""
    count = sum(len(found) + 1 for _, found in groups)
    figure = Figure((WIDTH, 1.1 + BAR * count), layout="constrained")
    axes = figure.subplots()
    if logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    patches, places, y = {}, [], 0
    for _, found in groups:
        places.append(y + (len(found) - 1) / 2)
        for method, value in found:
            patches[method] = axes.barh(y, value - first, 0.85, first, color=COLOURS[method])
            axes.annotate(label(value), (max(first, value), y), (3, 0), va="center_baseline",
                          textcoords="offset points", fontsize=7)
            y += 1
        y += 1
    axes.set_yticks(places, [name for name, _ in groups])
    axes.set_ylim(y - 1, -1)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
    axes.grid(axis="x", color="#e0e0e0")
    axes.set_axisbelow(True)
    return finish(figure, title, series, patches)


def bars(title, unit, groups, series):
    """groups: (name, [(series, value)])."""
    return drawn_bars(f"{title} ({unit})", groups, series, 0, False)


def ratios(title, groups, series):
    """As bars(), but logarithmic, and a bar leads from 1 to its value."""
    return drawn_bars(title, groups, series, 1, True)


def curves(title, panels, series, x, y, ticks=None, logarithmic=False):
    """panels: (name, [(series, [(x, y)])]), two beside each other; x and y: what the
    axes stand for; ticks: names of the places 0, 1, ... of x; logarithmic: of y."""
    rows = -(-len(panels) // 2)
    figure = Figure((WIDTH, 0.8 + PANEL * rows), layout="constrained")
    patches = {}
    for number, (name, found) in enumerate(panels):
        axes = figure.add_subplot(rows, min(2, len(panels)), number + 1)
        for method, points in found:
            patches[method], = axes.plot(*zip(*points), color=COLOURS[method], marker="o",
                                         markersize=3)
        axes.set(title=name, xlabel=x, ylabel=y)
        if ticks:
            axes.set_xticks(range(len(ticks)), ticks)
        else:
            axes.set_xlim(left=0)
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
        axes.grid(color="#e0e0e0")
    return finish(figure, title, series, patches)


def strips(title, series, marks):
    """Values over seconds, each series in a strip of its own from 0.  series: (name,
    [[(second, value)]]), a line for each list; marks: seconds, for instance of restarts."""
    figure = Figure((WIDTH, 0.8 + STRIP * len(series)), layout="constrained")
    axes = None
    for number, (name, lines) in enumerate(series):
        axes = figure.add_subplot(len(series), 1, number + 1, sharex=axes)
        for line in lines:
            axes.plot([x / 60 for x, _ in line], [y for _, y in line], color=COLOURS["cachebatch"])
        for x in marks:
            axes.axvline(x / 60, color="#d0d0d0", zorder=0)
        axes.set_title(name, loc="left")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: label(value)))
        axes.tick_params(axis="x", labelbottom=number == len(series) - 1)
    axes.set_xlabel("minutes")
    return finish(figure, title, [], {})


if __name__ == "__main__":
    print(ratios(sys.argv[1], [(name, [("cachebatch", float(value))]) for name, value in
                               (line.rstrip("\n").split("|") for line in sys.stdin)],
                 ["cachebatch"]))
