"""specs.py FROM TO: copies isolation specs that make indexes; prints their names.

FROM is src/test/isolation of PostgreSQL, TO a directory to be made.  The library pgregress
makes each CREATE INDEX and CREATE UNIQUE INDEX of a spec cachebatch, but no constraint's.  So a
PRIMARY KEY or UNIQUE that a spec declares before its sessions becomes a unique index of the
constraint's name, unless the spec has foreign keys, which need the constraint.  A spec that
then makes no index of its own is left out.  Nothing else is changed.
"""

import glob
import os
import re
import sys

TABLE = re.compile(r"CREATE (?:TEMPORARY )?TABLE (\w+)\s*\([^;]*;", re.I)
TABLE_KEY = re.compile(r",\s*(?:CONSTRAINT \w+ )?PRIMARY KEY \(([^)]*)\)(\s*INCLUDE\s*\([^)]*\))?", re.I)
COLUMN_KEY = re.compile(r"(\w+)(\s+\w+(?: NOT NULL)?)\s+(PRIMARY KEY|UNIQUE)", re.I)
ADD_KEY = re.compile(r"ALTER TABLE (\w+) ADD PRIMARY KEY \((\w+)\);", re.I)
INDEX = re.compile(r"CREATE (UNIQUE )?INDEX (CONCURRENTLY )?(\w+ )?ON \w+\s*\(", re.I)


def convert_table(match):
    table, text = match.group(1), match.group(0)
    create = " CREATE UNIQUE INDEX %s_%s ON %s (%s)%s;"
    key = TABLE_KEY.search(text)
    if key:
        not_null = "".join(" ALTER TABLE %s ALTER %s SET NOT NULL;" % (table, column)
                           for column in key.group(1).split(","))
        return text.replace(key.group(0), "") + not_null + create % (
            table, "pkey", table, key.group(1), key.group(2) or "")
    key = COLUMN_KEY.search(text)
    if not key:
        return text
    column, unique = key.group(1), key.group(3).upper() == "UNIQUE"
    return text.replace(key.group(0), column + key.group(2) + ("" if unique else " NOT NULL")) + create % (
        table, column + "_key" if unique else "pkey", table, column, "")


def convert(text):
    if re.search(r"\bREFERENCES\b", text, re.I):
        return text
    setup, session, rest = text.partition("\nsession")
    setup = TABLE.sub(convert_table, setup)
    setup = ADD_KEY.sub(r"ALTER TABLE \1 ALTER \2 SET NOT NULL; CREATE UNIQUE INDEX \1_pkey ON \1 (\2);", setup)
    return setup + session + rest


def copy(source, target, convert_text):
    """Copies a file, converted; its new text."""
    with open(source, encoding="utf-8") as file:
        text = convert_text(file.read())
    with open(os.path.join(target, os.path.basename(source)), "w", encoding="utf-8") as file:
        file.write(text)
    return text


def main(source, target):
    for folder in ("specs", "expected"):
        os.makedirs(os.path.join(target, folder))
    for path in sorted(glob.glob(source + "/specs/*.spec")):
        name = os.path.basename(path)[:-len(".spec")]
        if not INDEX.search(copy(path, target + "/specs", convert)):
            continue
        for expected in glob.glob("%s/expected/%s.out" % (source, name)) + \
                glob.glob("%s/expected/%s_[0-9].out" % (source, name)):
            copy(expected, target + "/expected", str)
        print(name)


main(*sys.argv[1:])
