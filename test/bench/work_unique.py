"""Unique indexes, on version 18.

unique-copy        COPY of random bigints that are new, 10 000 a command, into 5
                   million rows, 1 unique index
unique-conflict    100-row INSERT ... ON CONFLICT (k1) DO NOTHING into the same;
                   half of the rows are there already
tight-unique-1     as the batches of tight-ingest-1, into a unique index
"""

import data
import work_ingest
import work_tight

PAIR = ["btree", "cachebatch"]

CONFLICT = """\\set i :i + 200
\\set j :i + 100 * :client_id
\\set last :j + 99
INSERT INTO events SELECT {columns} FROM (
SELECT CASE WHEN n % 2 = 0 THEN n ELSE 1 + (hashint8(n) & 2147483647) % {there} END
FROM generate_series(:j::bigint, :last::bigint) AS g(n)) AS v(j) ON CONFLICT (k1) DO NOTHING;
"""


class Copy(work_ingest.Ingest):
    """As ingest-copy-1-uniform."""

    statement = "copy"

    def __init__(self, bench, name):
        super().__init__(bench, f"ingest-{self.statement}-1-uniform")
        self.name = name
        self.methods = PAIR

    @staticmethod
    def names():
        return ["unique-copy"]

    def template(self, method):
        return data.template(self.bench.env, self.shape, method, self.keys, self.count,
                             self.preloaded, unique=True)


class Conflict(Copy):
    """As upsert-100, with conflicts."""

    statement = "insert100"

    @staticmethod
    def names():
        return ["unique-conflict"]

    def insert(self, cluster, first, rows):
        text = CONFLICT.replace("{there}", str(self.preloaded))
        return work_ingest.insert(cluster, text, 100, first, rows // 100, self.keys)


class TightUnique(work_tight.Ingest):
    """The batches, and nothing else."""

    def __init__(self, bench, name):
        super().__init__(bench, "tight-ingest-1")
        self.name = name
        self.methods = PAIR
        self.shape = work_tight.Shape(25_000_000, 192, 1, bench.args.tight_scale, unique="UNIQUE")

    @staticmethod
    def names():
        return ["tight-unique-1"]

    def indexed(self, method):
        cluster = self.start(method)
        feed = work_tight.Feed(cluster, self.shape)
        self.warm(feed)
        found = [dict(self.batches(feed), **self.size(cluster))]
        self.end(cluster)
        return found
