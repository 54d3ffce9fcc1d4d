"""specs.py FROM TO: copies isolation specs with other unique indexes; prints their names.

FROM is src/test/isolation of PostgreSQL, TO a directory to be made.  A PRIMARY KEY or
UNIQUE of a table becomes a unique cachebatch index of the constraint's name, and a
CREATE UNIQUE INDEX gets USING cachebatch; nothing else is changed.
"""

import glob
import os
import re
import shutil
import sys

SPECS = ["insert-conflict-*", "read-write-unique*", "merge-delete", "merge-insert-update", "merge-join",
         "merge-match-recheck", "merge-update", "partition-key-update-1", "partition-key-update-2",
         "partition-key-update-3", "lock-update-delete", "lock-update-traversal"]

TABLE = re.compile(r"CREATE TABLE (\w+)\s*\([^;]*;", re.I)
TABLE_KEY = re.compile(r",\s*PRIMARY KEY \(([^)]*)\)(\s*INCLUDE\s*\([^)]*\))?", re.I)
COLUMN_KEY = re.compile(r"(\w+)(\s+(?:int4|integer|int|text))\s+(PRIMARY KEY|UNIQUE)", re.I)


def convert_table(match):
    table, text = match.group(1), match.group(0)
    create = " CREATE UNIQUE INDEX %s_%s ON %s USING cachebatch (%s)%s;"
    key = TABLE_KEY.search(text)
    if key:
        return text.replace(key.group(0), "") + create % (
            table, "pkey", table, key.group(1), key.group(2) or "")
    key = COLUMN_KEY.search(text)
    if not key:
        return text
    column, unique = key.group(1), key.group(3).upper() == "UNIQUE"
    return text.replace(key.group(0), column + key.group(2) + ("" if unique else " NOT NULL")) + create % (
        table, column + "_key" if unique else "pkey", table, column, "")


def convert(text):
    text = TABLE.sub(convert_table, text)
    return re.sub(r"(CREATE UNIQUE INDEX (?:\w+ )?ON \w+)\s*\(", r"\1 USING cachebatch (", text)


def main(source, target):
    for folder in ("specs", "expected"):
        os.makedirs(os.path.join(target, folder))
    for pattern in SPECS:
        for path in sorted(glob.glob("%s/specs/%s.spec" % (source, pattern))):
            name = os.path.basename(path)[:-len(".spec")]
            with open(path, encoding="utf-8") as file:
                text = convert(file.read())
            if "USING cachebatch" not in text:
                sys.exit("no unique index in " + path)
            with open("%s/specs/%s.spec" % (target, name), "w", encoding="utf-8") as file:
                file.write(text)
            for expected in glob.glob("%s/expected/%s.out" % (source, name)) + \
                    glob.glob("%s/expected/%s_[0-9].out" % (source, name)):
                shutil.copy(expected, target + "/expected")
            print(name)


main(*sys.argv[1:])
