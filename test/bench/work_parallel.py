"""Parallel plans with two workers, beside btree's with as many.

parallel          of 5 million random bigints: CREATE INDEX ("build"); an index-only
                  count of all of them ("count"), and a bitmap scan of a fifth
                  ("bitmap"), everything in memory: seconds, the median of nine
"""

import statistics
import time

from work_upkeep import CreateIndex

WORKERS = ("-c max_parallel_workers_per_gather=2 -c max_parallel_maintenance_workers=2 "
           "-c maintenance_work_mem=256MB -c work_mem=64MB -c min_parallel_table_scan_size=0 "
           "-c min_parallel_index_scan_size=0 -c parallel_setup_cost=0 -c parallel_tuple_cost=0 "
           "-c enable_seqscan=off -c jit=off ")
QUERIES = {
    "count": ("Parallel Index Only Scan", "SELECT count(*) FROM keys WHERE k IS NOT NULL",
              "-c enable_bitmapscan=off"),
    "bitmap": ("Parallel Bitmap Heap Scan",
               f"SELECT count(k) FROM keys WHERE k BETWEEN 0 AND {2 ** 64 // 5}",
               "-c enable_indexscan=off -c enable_indexonlyscan=off"),
}
TIMES = 9


def timed(cluster, node, query, options):
    """Median of the seconds that the query takes, whose plan has that node."""
    db = cluster.connect(WORKERS + options)
    cursor = db.cursor()
    cursor.execute("EXPLAIN (ANALYZE) " + query)
    plan = "\n".join(row[0] for row in cursor.fetchall())
    for wanted in (node, "Workers Launched: 2"):
        if wanted not in plan:
            raise RuntimeError(f"not {wanted}:\n{plan}")
    times = []
    for _ in range(TIMES):
        began = time.monotonic()
        cursor.execute(query)
        times.append(time.monotonic() - began)
    db.close()
    return statistics.median(times)


class Parallel(CreateIndex):
    """A build and queries, each with two workers."""

    @staticmethod
    def names():
        return ["parallel"]

    def run(self, method, repeat):
        cluster = self.bench.clone(self.template(method))
        cluster.start(self.bench.env.settings(method, self.shape))
        cluster.prewarm()
        began = time.monotonic()
        cluster.sql(f"CREATE INDEX keys_k ON keys USING {method} (k)", WORKERS)
        found = [{"state": "build", "seconds": time.monotonic() - began}]
        cluster.sql("VACUUM ANALYZE keys")
        cluster.prewarm()
        found += [{"state": state, "seconds": timed(cluster, *query)} for state, query in QUERIES.items()]
        self.bench.discard(cluster)
        return found
