"""compare.py DIR DIR: differences of two runs of the regression suite.

The access method's name, the width of columns, which follows from it, and the
numbers of TOAST tables do not count.  A test that differs in nothing else is named in one line.
"""
import difflib
import pathlib
import re
import sys


def lines(path):
    text = path.read_text(errors="surrogateescape")
    for line in text.splitlines():
        line = re.sub(r"pg_toast_\d+", "pg_toast_N", line)
        line = re.sub(r"-{3,}", "---", line.replace("cachebatch", "btree"))
        yield re.sub(r" +", " ", line).strip()


def main():
    old, new = (pathlib.Path(arg) for arg in sys.argv[1:3])
    sys.stdout.reconfigure(errors="surrogateescape")
    for path in sorted(old.glob("*.out")):
        other = new / path.name
        if not other.exists():
            print(f"# {path.stem}\nno output")
            continue
        if path.read_bytes() == other.read_bytes():
            continue
        diff = list(difflib.unified_diff(
            list(lines(path)), list(lines(other)), lineterm="", n=2))
        if not diff:
            print(f"# {path.stem}: names only")
            continue
        print(f"# {path.stem}")
        for line in diff[2:]:
            # the place, not its number
            print(("@@" if line.startswith("@@") else line).rstrip())


main()
