"""Random queries, asked by a sequential scan and through an index."""

import collections
import re

# The tables: every column is a function of id and v, so that rows can be made
# on the server, and checked there.
HELPER = """
CREATE FUNCTION h(id bigint, v int, k int) RETURNS bigint IMMUTABLE PARALLEL SAFE
 LANGUAGE sql AS $$ SELECT hashint8extended($1, $2 * 16 + $3) & 1073741823 $$;
CREATE FUNCTION word(h bigint) RETURNS text IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
 SELECT (ARRAY['Alpha','alpha','ALPHA','bravo','\u00e4pfel','Zed','zed','stra\u00dfe','','-x'])[1 + $1 % 10]
  || ($1 / 10 % 40)::text || CASE WHEN $1 % 37 = 0 THEN repeat(md5($1::text), 10) ELSE '' END $$;
"""

# a server without ICU has these names for something plainer
COLLATIONS = "CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
NO_ICU = 'CREATE COLLATION ci FROM "C"; CREATE COLLATION "und-x-icu" FROM "C"'

COLUMNS = ("id bigint, v int, a int, b text, c numeric, d uuid, e smallint, f text, "
           "x bool, g int DEFAULT 0")

VALUES = """id, {v},
 CASE WHEN h(id,{v},0) % 20 = 0 THEN NULL ELSE (h(id,{v},1) % 1000 - 500)::int END,
 CASE WHEN h(id,{v},2) % 25 = 0 THEN NULL ELSE word(h(id,{v},3)) END,
 round((h(id,{v},4) % 3000) / 10.0, (h(id,{v},5) % 4)::int),
 md5((h(id,{v},6) % 400)::text)::uuid, (h(id,{v},7) % 20)::smallint,
 word(h(id,{v},8) % 300), h(id,{v},9) % 3 = 0"""

SET_VALUES = "(id, v, a, b, c, d, e, f, x) = (SELECT " + VALUES + ")"

# name: definition after "USING am"
INDEXES = {
    "id": "(id)",
    "a": "(a)",
    "b": '(b COLLATE "und-x-icu")',
    "f": "(f COLLATE ci)",
    "eb": '(e DESC, b COLLATE "C" NULLS FIRST)',
    "c": "(c) INCLUDE (id, v)",
    "ex": "(lower(b), (a % 100))",
    "d": "(d)",
    "dp": "(d, a) WHERE x",
    "ae": "(a NULLS FIRST, e, c DESC)",
    "wide": "((f || repeat(md5(id::text), 7)), a)",     # few keys a page: a deep tree
}

REFERENCE = "enable_indexscan=off enable_indexonlyscan=off enable_bitmapscan=off enable_seqscan=on"
MODES = {
    "index": "enable_seqscan=off enable_bitmapscan=off enable_indexonlyscan=off enable_indexscan=on",
    "indexonly": "enable_seqscan=off enable_bitmapscan=off enable_indexonlyscan=on enable_indexscan=on",
    "bitmap": "enable_seqscan=off enable_bitmapscan=on enable_indexonlyscan=off enable_indexscan=off",
}
ORDERED = MODES["indexonly"] + " enable_sort=off"
JOINS = {
    "merge": " enable_hashjoin=off enable_nestloop=off enable_sort=off enable_mergejoin=on",
    "nestloop": " enable_hashjoin=off enable_mergejoin=off enable_material=off enable_memoize=off enable_nestloop=on",
}
ALL = (REFERENCE + " enable_sort=on enable_hashjoin=on enable_mergejoin=on "
       "enable_nestloop=on enable_material=on enable_memoize=on "
       "max_parallel_workers_per_gather=0 parallel_leader_participation=on cpu_tuple_cost=0.01")
# parallel plans, if there are any
PARALLEL = (" max_parallel_workers_per_gather=2 min_parallel_index_scan_size=0 min_parallel_table_scan_size=0 "
            "parallel_setup_cost=0 parallel_tuple_cost=0 cpu_tuple_cost=1")

Query = collections.namedtuple("Query", "columns where order")


def settings(text):
    """One statement that applies settings to the transaction."""
    chosen = dict(item.split("=") for item in (ALL + " " + text).split())
    return "SELECT " + ", ".join("set_config('%s', '%s', true)" % pair
                                 for pair in chosen.items())


def word(rng):
    return rng.choice(["Alpha", "alpha", "bravo", "\u00e4pfel", "ZED", "stra\u00dfe", "", "-x"]) \
        + str(rng.randrange(40))


def number(rng):
    return rng.randrange(-510, 510)


def some(rng, make, top=6):
    return ",".join(make() for _ in range(rng.randrange(1, top)))


def uuid(rng):
    return "md5('%d')::uuid" % rng.randrange(400)


def query_a(rng, low, high):
    x = number(rng)
    where = rng.choice([
        "a = %d" % x, "a = %d::bigint" % x, "a BETWEEN %d AND %d" % (x, x + rng.randrange(60)),
        "a IS NULL", "a IS NOT NULL AND a < -490", "a < %d" % (x // 2 - 250), "a >= %d" % (x // 4 + 370),
        "a = ANY (ARRAY[%s])" % some(rng, lambda: str(number(rng))),
        "a IN (%d, NULL, %d) AND a > %d" % (x, x + 3, x), "a > %d AND a <= %d AND a = %d" % (x, x + 9, x + 2),
        "a = %d AND a = %d" % (x, x + 1), "a > %d::smallint AND a < %d::bigint" % (x, x + 20), "true"])
    return Query("a", where, "a")


def query_ae(rng, low, high):
    x = number(rng)
    where = rng.choice([
        "a = %d AND e = %d" % (x, rng.randrange(20)), "a = %d AND e > %d" % (x, rng.randrange(20)),
        "(a, e) > (%d, %d) AND a < %d" % (x, rng.randrange(20), x + 30),
        "(a, e) <= (%d, %d) AND a > %d" % (x, rng.randrange(20), x - 30),
        "a IS NULL AND e = ANY (ARRAY[%s]::smallint[])" % some(rng, lambda: str(rng.randrange(20))),
        "a = ANY (ARRAY[%s]) AND e = ANY (ARRAY[%s]::smallint[]) AND c > 100" % (
            some(rng, lambda: str(number(rng))), some(rng, lambda: str(rng.randrange(20)))),
        "a BETWEEN %d AND %d AND c < 50.0" % (x, x + 30)])
    return Query("a, e, c", where, "a NULLS FIRST, e, c DESC")


def query_b(rng, low, high):
    w = word(rng)
    coll = 'b COLLATE "und-x-icu"'
    where = rng.choice(["%s = '%s'" % (coll, w), "%s > '%s' AND %s < '%s~'" % (coll, w, coll, w),
                        "%s IS NULL" % coll, "%s < '%s'" % (coll, w[:2]),
                        "%s = ANY (ARRAY[%s])" % (coll, some(rng, lambda: "'%s'" % word(rng)))])
    return Query("b", where, coll)


def query_f(rng, low, high):
    return Query("f", "f COLLATE ci %s '%s'" % (rng.choice(["=", "=", "<", ">="]), word(rng)), "f COLLATE ci")


def query_eb(rng, low, high):
    e = rng.randrange(-1, 21)
    coll = 'b COLLATE "C"'
    where = rng.choice(["e = %d AND %s > '%s'" % (e, coll, word(rng)), "e = %d" % e, "e > %d" % e,
                        "e = %d AND %s IS NULL" % (e, coll), "e = %d::bigint AND %s = '%s'" % (e, coll, word(rng)),
                        "e IN (%d, %d) AND %s IS NOT NULL" % (e, e + 2, coll)])
    return Query("e, b", where, "e DESC, %s NULLS FIRST" % coll)


def query_c(rng, low, high):
    x = rng.randrange(3000) / 10
    where = rng.choice(["c = %s" % x, "c = %s00" % x, "c BETWEEN %s AND %s" % (x, x + 4), "c > %s" % (x / 3 + 200),
                        "c = ANY (ARRAY[%s])" % some(rng, lambda: str(rng.randrange(3000) / 10))])
    return Query("c, id, v", where, "c")


def query_ex(rng, low, high):
    w = word(rng).lower()
    where = rng.choice(["lower(b) = '%s'" % w, "lower(b) = '%s' AND a %% 100 = %d" % (w, rng.randrange(100)),
                        "lower(b) < '%s' AND a %% 100 > 90" % w[:2]])
    return Query("b, a", where, "lower(b), (a % 100)")


def query_d(rng, low, high):
    where = rng.choice(["d = " + uuid(rng), "d = %s AND x" % uuid(rng), "d < %s AND x" % uuid(rng),
                        "x AND d = ANY (ARRAY[%s]) AND a > 0" % some(rng, lambda: uuid(rng)),
                        "d IN (%s)" % some(rng, lambda: uuid(rng))])
    return Query("d", where, "d")


def query_id(rng, low, high):
    x = rng.randrange(low, max(high, low) + 1)
    where = rng.choice(["id = %d" % x, "id BETWEEN %d AND %d" % (x, x + rng.randrange(2000)), "id >= %d" % (high - 50),
                        # a few again and again: cached entries
                        "id = %d::bigint" % (low + (high - low) // 16 * rng.randrange(17)),
                        "id = ANY (ARRAY[%s]::bigint[])" % some(rng, lambda: str(rng.randrange(low, high + 1)), 30)])
    return Query("id", where, "id")


def query_wide(rng, low, high):
    w = word(rng)
    key = "(f || repeat(md5(id::text), 7))"
    where = rng.choice(["%s > '%s' AND %s < '%s~'" % (key, w, key, w), "%s < '%s'" % (key, w[:3]),
                        "%s > '%s' AND %s < '%s~' AND a > 0" % (key, w, key, w)])
    return Query("f, id, a", where, key)


QUERIES = {"wide": query_wide, "a": query_a, "ae": query_ae, "b": query_b, "f": query_f, "eb": query_eb,
           "c": query_c, "ex": query_ex, "d": query_d, "id": query_id}


def fetch(cur, mode, sql):
    cur.execute(settings(mode))
    cur.execute(sql)
    return cur.fetchall()


def first_differences(expected, got):
    e, g = collections.Counter(expected), collections.Counter(got)
    return "missing %s\nextra %s" % (list((e - g).items())[:5], list((g - e).items())[:5])


class Checker:
    """Compares answers on one cursor, inside a transaction with one snapshot."""

    def __init__(self, report):
        self.report = report        # called with a text for each difference
        self.comparisons = 0
        self.by_index = 0           # of those explained, how many used one
        self.explained = 0
        self.in_parallel = 0        # and of these, how many were parallel index scans

    def compare(self, cur, rng, table, bounds):
        name = rng.choice(sorted(QUERIES))
        query = QUERIES[name](rng, *bounds)
        kind = rng.choice(["index", "indexonly", "bitmap", "forward", "backward", "merge", "nestloop", "limit"])
        getattr(self, "ask_" + kind, self.ask_plain)(cur, rng, table, query, kind)
        self.comparisons += 1

    def ask_plain(self, cur, rng, table, query, kind):
        columns = query.columns if kind == "indexonly" else "ctid::text, id, v, " + query.columns
        sql = "SELECT %s FROM %s WHERE %s" % (columns, table, query.where)
        self.settle(cur, rng, sql, MODES[kind], kind, False)

    def ask_forward(self, cur, rng, table, query, kind):
        sql = "SELECT %s FROM %s WHERE %s ORDER BY %s" % (query.columns, table, query.where, query.order)
        self.settle(cur, rng, sql, ORDERED, kind, "ci" not in query.order)

    def ask_backward(self, cur, rng, table, query, kind):
        order = ", ".join(self.reverse(key) for key in re.split(r", (?![^(]*\))", query.order))
        sql = "SELECT %s FROM %s WHERE %s ORDER BY %s" % (query.columns, table, query.where, order)
        self.settle(cur, rng, sql, ORDERED, kind, "ci" not in query.order)

    @staticmethod
    def reverse(key):
        nulls_first = "NULLS FIRST" in key
        key = key.replace(" NULLS FIRST", "")
        descending = key.endswith(" DESC")
        key = key[:-5] if descending else key
        if descending and nulls_first or not descending and not nulls_first:
            return key + (" ASC NULLS LAST" if descending else " DESC NULLS FIRST")
        return key + (" ASC NULLS FIRST" if descending else " DESC NULLS LAST")

    def ask_limit(self, cur, rng, table, query, kind):
        """First keys only: a scan that is stopped early."""
        key = "min" if rng.random() < 0.5 else "max"
        column = query.columns.split(",")[0]
        if column in ("b", "f", "d"):
            column = "a"
        sql = "SELECT %s(%s) FROM %s WHERE %s" % (key, column, table, query.where)
        self.settle(cur, rng, sql, ORDERED, kind, True)

    def ask_merge(self, cur, rng, table, query, kind):
        key = rng.choice(["a", "c", "d", "id"])
        sql = ("SELECT count(*), sum(hashint8extended(x.id, 1) %% 1000 + hashint8extended(y.id, 2) %% 1000) "
               "FROM %s x JOIN (SELECT * FROM %s WHERE %s) y USING (%s) WHERE x.id %% 3 = 0"
               % (table, table, query.where, key))
        self.settle(cur, rng, sql, MODES[rng.choice(["index", "indexonly"])] + JOINS[kind], kind, True)

    ask_nestloop = ask_merge

    def settle(self, cur, rng, sql, mode, kind, ordered):
        """Ask both ways; ordered: the sequence counts."""
        expected = fetch(cur, REFERENCE, sql)
        got = fetch(cur, mode + self.parallel(cur, rng), sql)
        if rng.random() < 0.1 and "index" in mode:
            cur.execute("EXPLAIN " + sql)
            plan = "\n".join(row[0] for row in cur.fetchall())
            self.explained += 1
            self.by_index += " using " in plan or "Bitmap Index Scan" in plan
            self.in_parallel += "Parallel Index" in plan
        if "ORDER BY" in sql and ordered:
            same = collections.Counter(expected) == collections.Counter(got) and self.keys_match(expected, got, sql)
        else:
            same = collections.Counter(expected) == collections.Counter(got)
        if not same:
            cur.execute("EXPLAIN " + sql)
            plan = "\n".join(row[0] for row in cur.fetchall())
            self.report("%s: %s\n%s\nexpected %d rows, got %d\n%s" % (
                kind, sql, plan, len(expected), len(got), first_differences(expected, got)))

    @staticmethod
    def parallel(cur, rng):
        """Settings for a share of the questions: parallel plans, with and without the leader, or forced ones."""
        leader = rng.choice(["on", "off"])
        forced = "debug_parallel_query" if cur.connection.server_version >= 160000 else "force_parallel_mode"
        share = rng.random()
        if share > 0.3:
            return " %s=off" % forced
        return PARALLEL + " parallel_leader_participation=%s %s=%s" % (leader, forced, "on" if share < 0.03 else "off")

    @staticmethod
    def keys_match(expected, got, sql):
        """Equal keys may come in any order: compare the keys only."""
        if "SELECT c, id" in sql:
            return [row[0] for row in expected] == [row[0] for row in got]
        if "lower(b)" in sql.split("ORDER BY")[1]:
            def key(row):
                # columns b, a; the remainder takes its sign from a, as in C
                b, a = row
                return (None if b is None else b.lower(),
                        None if a is None else (abs(a) % 100) * (-1 if a < 0 else 1))
            return [key(row) for row in expected] == [key(row) for row in got]
        return expected == got
