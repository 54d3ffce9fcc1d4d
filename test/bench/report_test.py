"""Tests the report and its plots: made from report_test.csv, read as HTML and XML, and,
where chromium is installed, opened in it.  Prints "ok" and "not ok" lines.

The browser says how large the plots come out and where their words are: none may be
cut off, none may lie on another.
"""

import html.parser
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HERE = os.path.dirname(os.path.abspath(__file__))
DOC = os.path.join(HERE, "..", "..", "doc")
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, DOC]

import matplotlib

import figures
import report

SVG = "{http://www.w3.org/2000/svg}"
PLOTS = ["cpu.svg", "ingest.svg", "insert.svg", "latency.svg", "reads.svg", "size.svg", "wal.svg"]
VOID = ("meta", "br", "img")

# appended to a copy of the page: what became of each plot, in pixels
LOOK = """<script>
const found = [...document.querySelectorAll("svg")].map(svg => {
	const box = r => [r.left, r.top, r.right, r.bottom];
	return {title: svg.querySelector("title").textContent, box: box(svg.getBoundingClientRect()),
		words: [...svg.querySelectorAll("text")].map(
			t => [t.textContent, box(t.getBoundingClientRect())])};
});
document.body.innerHTML = "<pre></pre>";
document.querySelector("pre").textContent = JSON.stringify(found);
console.log("looked at");
</script>
"""
SLACK = 2       # pixels: boxes have room around the letters


class Page(html.parser.HTMLParser):
    """What of it is not closed, and the titles of its plots."""

    def __init__(self, text):
        super().__init__()
        self.open, self.plots, self.wrong = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        if tag == "svg":
            self.plots.append("")

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, text):
        if self.open[-2:] == ["svg", "title"]:
            self.plots[-1] += text


def content(*path):
    with open(os.path.join(*path)) as file:
        return file.read()


def check(name, holds, more=""):
    print(f"{'ok' if holds else 'not ok'} - report: {name}{'' if holds else f': {more}'}", flush=True)


def made(directory):
    """The report of the sample, in a directory of its own; its plots' names."""
    os.mkdir(directory)
    shutil.copy(os.path.join(HERE, "report_test.csv"), directory)
    report.again(os.path.join(directory, "report_test.csv"))
    return sorted(name for name in os.listdir(directory) if name.endswith(".svg"))


def check_plot(name, text):
    root = ElementTree.fromstring(text)
    title = root.findtext(f"{SVG}title")
    words = [t.text for t in root.iter(f"{SVG}text")]
    check(f"{name} is an image with a title", root.get("role") == "img" and title in words, title)
    check(f"{name} has both methods", {"btree", "cachebatch"} <= set(words), words)
    return title


def check_files(directory, names):
    check("all plots are there", names == PLOTS, names)
    titles = [check_plot(name, content(directory, name)) for name in names]
    page = Page(content(directory, "report.html"))
    check("report.html: what is opened is closed", not page.wrong and not page.open,
          page.wrong + page.open)
    check("report.html has all plots", sorted(page.plots) == sorted(titles), page.plots)
    shown = re.findall(r"!\[(.+?)\]\((.+?)\)", content(directory, "report.md"))
    check("report.md shows all plots, with words for them",
          sorted(shown) == sorted(zip(titles, names)), shown)


def check_again(directory, names):
    made(directory + "-again")
    other = [n for n in names if content(directory, n) != content(directory + "-again", n)]
    check("the same figures give the same plots", not other, other)


def check_doc():
    if not (matplotlib.__version__.startswith("3.6.") and platform.machine() == "x86_64"):
        print("# another matplotlib, or machine, than what has drawn doc/*.svg: not compared")
        return
    for name, svg in figures.pictures():
        check(f"doc/{name} is what doc/figures.py draws", content(DOC, name) == svg + "\n", "draw it")


def apart(a, b):
    """Is there room between two boxes, or little of them on each other?"""
    return (a[2] - SLACK <= b[0] or b[2] - SLACK <= a[0]
            or a[3] - SLACK <= b[1] or b[3] - SLACK <= a[1])


def check_looks(plot):
    left, top, right, bottom = plot["box"]
    words = plot["words"]
    check(f"{plot['title']}: has a size", right - left > 400 and bottom - top > 80, plot["box"])
    cut = [w for w, b in words if b[0] < left or b[1] < top or b[2] > right or b[3] > bottom]
    check(f"{plot['title']}: no words are cut off", not cut, cut)
    over = [(v, w) for i, (v, a) in enumerate(words) for w, b in words[i + 1:] if not apart(a, b)]
    check(f"{plot['title']}: no words lie on others", not over, over)


def check_browser(chromium, directory, count):
    path = os.path.join(directory, "looked_at.html")
    with open(path, "w") as out:
        out.write(content(directory, "report.html") + LOOK)
    # no sandbox of its own: containers and root have none to give
    done = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--enable-logging=stderr", f"--user-data-dir={directory}-profile", "--dump-dom",
         "file://" + path], text=True, capture_output=True, stdin=subprocess.DEVNULL)
    told = re.findall(r"CONSOLE.*", done.stderr)
    check("browser: nothing else is written to the console",
          len(told) == 1 and "looked at" in told[0], told or done.stderr[-2000:])
    found = re.search(r"<pre>(.*)</pre>", done.stdout, re.DOTALL)
    plots = json.loads(html.unescape(found[1])) if found else []
    check("browser: all plots are there", len(plots) == count, done.stdout[:2000])
    for plot in plots:
        check_looks(plot)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        directory = os.path.join(scratch, "report")
        names = made(directory)
        check_files(directory, names)
        check_again(directory, names)
        check_doc()
        chromium = shutil.which("chromium")
        if chromium:
            check_browser(chromium, directory, len(names))
        else:
            print("# no chromium: not opened in a browser")


if __name__ == "__main__":
    main()
