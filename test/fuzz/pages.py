#!/usr/bin/python3
"""Damaged pages: whatever is on disk, the server says so or goes on, and stays up.

Each try damages one page of an index that has pages of every type, and then asks
it everything: verification, scans of all kinds, inserts, flushes, packing, VACUUM.
It may get answers or errors of corrupted data.  It must not crash, wait or run for
ever, fail in another way, or answer wrongly where the page was no page any more.

With --redo the server was stopped in the middle of its work, without full-page
images, and replays it over the damaged page.

What a try damages depends on the seed and its number; what fails is printed with both.
Many indexes are damaged at once while the server is down, and tried one by one, so
that a try costs no restart.
"""

import argparse
import collections
import concurrent.futures
import os
import random
import re
import shutil
import signal
import subprocess
import sys

import psycopg2

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "stress"))

import cluster                                          # noqa: E402
import damage                                           # noqa: E402

NKINDS = 4
TIMEOUT = 60                    # seconds, of a statement
KEYS = ["k", "s", "s", "id"]
ORDERS = ["k", 's COLLATE "C"', 's COLLATE "C"', "id"]

# what damage may lead to: data_corrupted, index_corrupted, unique_violation
PROPER = {"XX001", "XX002", "23505"}

# what the server says of a TID that leads nowhere in the table
SERVER_WORDS = re.compile("tuple offset out of range|could not open file .* previous segment is only")

# what more some may say: that the block has nothing of what is asked for
MORE = {"items": {"22023"}, "page": {"22023"}}

# of redo, which has no other way than to end the server
REDO_PROPER = re.compile(
    r"(PANIC|FATAL):  (XX001|XX002|\w+: (WAL contains references to invalid pages|corrupted page pointers|cache_batch: ))")

FAULT = re.compile(r"TRAP:|PANIC:|terminated by signal|Sanitizer|runtime error:|buffer refcount leak|could not write")

SCAN = {
    "forward": "SET enable_bitmapscan=off; SELECT count(*), sum(q.id::bigint * q.k) FROM "
               "(SELECT id, k FROM {t} ORDER BY {o}) q",
    "backward": "SET enable_bitmapscan=off; SELECT count(*), sum(q.id::bigint * q.k) FROM "
                "(SELECT id, k FROM {t} ORDER BY {o} DESC) q",
    "index-only": "SET enable_bitmapscan=off; SELECT count({c}), min({c}::text), max({c}::text) FROM "
                  "(SELECT {c} FROM {t} ORDER BY {o}) q",
    "bitmap": "SET enable_indexscan=off; SET enable_bitmapscan=on; SELECT count(*), sum(id::bigint * k) FROM {t} "
              "WHERE {o} > {low}",
    "range": "SET enable_bitmapscan=off; SELECT count(*), sum(id::bigint * k) FROM {t} "
             "WHERE {o} > {low} AND {o} < {high}",
    "any": "SET enable_bitmapscan=off; SELECT count(*), sum(id::bigint * k) FROM {t} WHERE {o} = ANY({keys})",
    "max": "SET enable_bitmapscan=off; SELECT max({o}), min({o}) FROM {t}",
}
LOOK = {
    "verify": "SELECT cache_batch_verify('{t}_i')",
    "heapallindexed": "SELECT cache_batch_verify('{t}_i', true)",
    "inspect": "SELECT (SELECT count(m) FROM cache_batch_metapage('{t}_i') m), "
               "(SELECT count(*) FROM cache_batch_journal('{t}_i')), "
               "(SELECT count(*) FROM cache_batch_bucket_list('{t}_i')), "
               "(SELECT count(*) FROM cache_batch_ranges('{t}_i')), "
               "(SELECT count(*) FROM cache_batch_tiles('{t}_i'))",
    "page": "SELECT count(cache_batch_page('{t}_i', {block}))",
    "items": "SELECT count(data), sum(length(data)) FROM cache_batch_page_items('{t}_i', {block})",
    "prewarm": "SELECT cache_batch_prewarm('{t}_i')",
}
WRITE = {
    "insert": "SELECT fuzz_fill({n}, 3000, 3060)",
    "insert one": "INSERT INTO {t} SELECT id + 10000, k, s FROM {t} WHERE id < 1000 AND id % 100 = 7",
    "dense": "INSERT INTO {t} SELECT id + 20000, k, s FROM {t} WHERE id < 400",
    "flush": "SELECT cache_batch_flush('{t}_i')",
    "spill": "SET cache_batch.test_spill = on; SELECT cache_batch_flush('{t}_i')",
    "tile": "SET cache_batch.test_spill = on; SET cache_batch.test_tiles = 1; SELECT cache_batch_flush('{t}_i')",
    "compact": "SELECT cache_batch_compact('{t}_i')",
    "update": "UPDATE {t} SET k = k + 1, s = s || 'x' WHERE id % 50 = 3",
    "delete": "DELETE FROM {t} WHERE id % 3 = 1",
    "vacuum": "VACUUM (INDEX_CLEANUP ON) {t}",
}
RESET = ("SET enable_seqscan=off; SET enable_sort=off; SET enable_indexscan=on; "
         "SET enable_bitmapscan=on; SET cache_batch.test_spill=off; SET cache_batch.test_tiles=0; ")


class Pool:
    """What a page may be replaced by."""

    def __init__(self, image, before, others, block):
        self.image = image
        self.before = before
        self.others = others
        self.block = block
        self.nblocks = len(image) // damage.BLCKSZ

    @staticmethod
    def page(image, block):
        return image[block * damage.BLCKSZ:(block + 1) * damage.BLCKSZ]

    def other(self, rng):
        return self.page(self.image, rng.randrange(self.nblocks))

    def foreign(self, rng):
        image = rng.choice(self.others)
        wanted = damage.type_of(self.page(self.image, self.block))
        blocks = range(len(image) // damage.BLCKSZ)
        like = [b for b in blocks if damage.type_of(self.page(image, b)) == wanted]
        return self.page(image, rng.choice(like or blocks))

    def older(self):
        page = self.page(self.before, self.block)
        return page if page else bytes(damage.BLCKSZ)


class Try:
    """One damage: which index, page and kind, and the page afterwards."""

    def __init__(self, fuzz, number):
        self.number = number
        self.rng = random.Random(fuzz.args.seed * 1000003 + number)
        self.kind = number % NKINDS
        image = fuzz.images[self.kind]
        by_type = collections.defaultdict(list)
        for block in range(len(image) // damage.BLCKSZ):
            by_type[damage.type_of(Pool.page(image, block))].append(block)
        self.type = self.rng.choice(sorted(by_type))
        self.block = self.rng.choice(by_type[self.type])
        pool = Pool(image, fuzz.before[self.kind],
                    [i for k, i in enumerate(fuzz.images) if k != self.kind], self.block)
        self.damage = self.rng.choice(sorted(damage.KINDS))
        page = bytearray(Pool.page(image, self.block))
        damage.KINDS[self.damage](self.rng, page, pool)
        self.page = bytes(page)
        self.changed = self.page != Pool.page(image, self.block)

    def apply(self, data, path):
        with open(os.path.join(data, path), "r+b") as file:
            file.seek(self.block * damage.BLCKSZ)
            file.write(self.page)

    def __str__(self):
        return "try %d, index of kind %d, block %d (%s), %s" % (
            self.number, self.kind, self.block, self.type, self.damage)


class Fuzz:
    def __init__(self, args):
        self.args = args
        self.workdir = cluster.make_workdir("cb_fuzz_")
        self.golden = cluster.Cluster(args.bindir, self.workdir, "golden", args.port or cluster.free_port())
        self.server = cluster.Cluster(args.bindir, self.workdir, "server", self.golden.port)
        self.outcomes = collections.Counter()
        self.silent = collections.Counter()
        self.failures = []
        self.alike = collections.Counter()
        self.conn = None
        self.watch = concurrent.futures.ThreadPoolExecutor(1)

    # ---------- the sound cluster ----------

    def settings(self):
        return {
            "shared_preload_libraries": "cache_batch", "fsync": "off", "autovacuum": "off", "shared_buffers": "128MB",
            "max_wal_size": "4GB", "checkpoint_timeout": "1d", "log_error_verbosity": "verbose",
            "full_page_writes": "off" if self.args.redo else "on", "restart_after_crash": "on",
            "max_parallel_workers_per_gather": 0, "synchronous_commit": "off", "statement_timeout": "%ds" % TIMEOUT,
            "cache_batch.journal_limit": 1024, "cache_batch.pool_size": "4MB", "cache_batch.max_workers": 0,
            "cache_batch.max_delay": "1h", "cache_batch.spill_threshold": 0, "cache_batch.spill_target": 1000,
            "cache_batch.test_run_min": 1, "log_statement": "none",
        }

    def make_golden(self):
        off = "--no-data-checksums"
        self.golden.init(self.settings(), *[off for _ in [0] if off in self.golden.run("initdb", "--help").stdout])
        self.golden.start()
        conn = self.golden.connect()
        cur = conn.cursor()
        cur.execute("SET statement_timeout = 0")
        with open(os.path.join(HERE, "build.sql")) as script:
            cur.execute(script.read())
        for step in ("begin", "end", "tile"):
            for n in range(self.args.batch):
                cur.execute("CALL fuzz_%s(%d)" % (step, n))
                if step == "end":
                    cur.execute("VACUUM w%d" % n)
            cur.execute("CHECKPOINT")
            images = self.read_images(cur)
            if step == "begin":
                self.before = images
        for n in range(self.args.batch):
            cur.execute("SELECT fuzz_fill(%d, 2001, 2045)" % n)
        if self.args.redo:
            self.write_more(cur)
            images = self.images_on_disk()
        else:
            cur.execute("CHECKPOINT")
            images = self.read_images(cur)
            self.expected = [{name: self.ask(cur, RESET + "SET enable_seqscan=on; SET enable_sort=on; SET enable_indexscan=off;"
                                             "SET enable_indexonlyscan=off;" + self.question(sql, kind, kind).split("; ")[-1])
                              for name, sql in SCAN.items()} for kind in range(NKINDS)]
        self.images = images
        conn.close()
        self.golden.stop("immediate" if self.args.redo else "fast", check=True)

    def read_images(self, cur):
        cur.execute("SELECT pg_relation_filepath('w' || n || '_i') FROM generate_series(0, %d) n ORDER BY n"
                    % (self.args.batch - 1))
        self.paths = [path for (path,) in cur.fetchall()]
        return self.images_on_disk()

    def images_on_disk(self):
        """The indexes of each kind are alike, so one of each is kept."""
        images = []
        for path in self.paths[:NKINDS]:
            with open(os.path.join(self.golden.data, path), "rb") as file:
                images.append(file.read())
        return images

    @staticmethod
    def write_more(cur):
        """What is to be replayed: all kinds of records of all indexes."""
        for n in range(NKINDS):
            for name in ("insert", "spill", "dense", "tile", "delete", "update", "flush", "vacuum", "compact",
                         "insert one", "vacuum", "spill"):
                cur.execute("RESET cache_batch.test_spill; RESET cache_batch.test_tiles")
                for statement in WRITE[name].format(n=n, t="w%d" % n).split("; "):
                    cur.execute(statement)

    @staticmethod
    def ask(cur, sql):
        cur.execute(sql)
        try:
            return cur.fetchone() if cur.description else None
        except UnicodeDecodeError:
            return ("bytes of a damaged text",)

    @staticmethod
    def question(sql, n, kind, block=0):
        words = ["repeat(md5('%d'), %d)" % (i, 12 if kind == 2 else 1) for i in (5, 90, 500, 1505, 1530, 1570, 2010)]
        numbers = ["5", "90", "500", "1505", "1530", "1570", "2010"]
        keys = words if kind in (1, 2) else numbers
        low, high = ("'3'", "'c'") if kind in (1, 2) else ("300", "1700")
        return sql.format(n=n, t="w%d" % n, o=ORDERS[kind], c=KEYS[kind], low=low, high=high, block=block,
                          keys="ARRAY[%s]" % ", ".join(keys))

    # ---------- a batch of tries ----------

    def fail(self, attempt, what):
        """Each try fails once, and what is the same but for numbers is printed five times."""
        if self.failures and self.failures[-1] is attempt:
            return
        self.failures.append(attempt)
        like = re.sub(r"[0-9]+", "N", re.sub(r"^[a-z -]+: ", "", what))
        self.alike[like] += 1
        if self.alike[like] <= 5 or self.args.verbose:
            print("FAILED (seed %d): %s: %s" % (self.args.seed, attempt, what), flush=True)
        with open(os.path.join(self.workdir, "failed-%d-%d.page" % (self.args.seed, attempt.number)), "wb") as file:
            file.write(attempt.page)

    def fresh_copy(self):
        shutil.rmtree(self.server.data, ignore_errors=True)
        subprocess.run(["cp", "-r", self.golden.data, self.server.data], check=True)

    def connect(self):
        self.conn = self.server.wait_ready(120)
        self.cur = self.conn.cursor()
        self.pid = self.conn.get_backend_pid()

    def log_since(self, place):
        with open(self.server.log, errors="replace") as log:
            log.seek(place)
            return [line.rstrip()[:300] for line in log if FAULT.search(line)]

    def log_end(self):
        return os.path.getsize(self.server.log)

    def execute(self, sql):
        """Runs a statement; one that ignores even the cancel of its timeout is killed."""
        self.cur.execute(RESET)
        future = self.watch.submit(self.ask, self.cur, sql)
        try:
            return future.result(TIMEOUT * 6)
        except concurrent.futures.TimeoutError:
            os.kill(self.pid, signal.SIGABRT)
            future.exception()
            raise

    def is_of_table(self, attempt, message):
        return SERVER_WORDS.search(message) and self.paths[attempt.index] not in message

    def statement(self, attempt, name, sql, place):
        """One statement of a try: its answer, or the SQLSTATE; None: the server has gone."""
        sql = self.question(sql, attempt.index, attempt.kind, attempt.block)
        try:
            answer = self.execute(sql)
            self.outcomes[name, "no error"] += 1
            return answer
        except concurrent.futures.TimeoutError:
            self.fail(attempt, "%s cannot be cancelled" % name)
        except psycopg2.Error as error:
            if error.pgcode is not None and not error.pgcode.startswith("57P"):
                self.outcomes[name, error.pgcode] += 1
                if error.pgcode == "57014":
                    self.fail(attempt, "%s does not end" % name)
                elif error.pgcode not in PROPER | MORE.get(name, set()) and \
                        not self.is_of_table(attempt, str(error)):
                    self.fail(attempt, "%s: %s %s" % (name, error.pgcode, str(error).split("\n")[0]))
                return error.pgcode
            self.server.wait_ready(120)
            self.fail(attempt, "%s: %s" % (name, " / ".join(self.log_since(place)[:6]) or str(error)))
        self.outcomes[name, "crash"] += 1
        return None

    def one(self, attempt, index):
        attempt.index = index
        place = self.log_end()
        write = list(WRITE.items())
        attempt.rng.shuffle(write)
        look = list(LOOK.items())
        attempt.rng.shuffle(look)
        found = {}
        for phase, questions in enumerate((look + list(SCAN.items()), write + list(SCAN.items()) + look[:2])):
            for name, sql in questions:
                answer = self.statement(attempt, name, sql, place)
                if answer is None and name not in WRITE:
                    return self.connect()
                if answer is None and self.conn.closed:
                    return self.connect()
                if phase == 0:
                    found[name] = answer
        self.judge(attempt, found)
        faults = self.log_since(place)
        if faults:
            self.fail(attempt, faults[0])

    def judge(self, attempt, found):
        """Wrong answers without an error, where verification finds fault."""
        wrong = [name for name in SCAN if not isinstance(found[name], str) and
                 found[name] != self.expected[attempt.kind][name]]
        sound = found["verify"] == ("",) and found["heapallindexed"] == ("",)
        self.outcomes["verdict", "unharmed" if sound and not wrong else "whatever" if sound else "found"] += 1
        if wrong and not sound:
            self.silent[attempt.damage] += 1
            if attempt.damage in damage.GROSS:
                self.fail(attempt, "wrong answers without an error: %s" % ", ".join(wrong))
            elif self.args.verbose:
                print("silent: %s: %s" % (attempt, ", ".join(wrong)))

    def batch(self, attempts):
        self.fresh_copy()
        free = collections.defaultdict(list)
        for index in reversed(range(self.args.batch)):
            free[index % NKINDS].append(index)
        places = [free[attempt.kind].pop() for attempt in attempts]
        for attempt, index in zip(attempts, places):
            attempt.apply(self.server.data, self.paths[index])
        self.server.start()
        self.connect()
        for attempt, index in zip(attempts, places):
            self.one(attempt, index)
        self.conn.close()
        self.server.stop("immediate")

    # ---------- redo ----------

    def redo(self, attempt):
        """Replays over the page in a single-user server, which then answers questions."""
        self.fresh_copy()
        attempt.apply(self.server.data, self.paths[attempt.kind])
        questions = "\n".join(RESET + self.question(sql, attempt.kind, attempt.kind, attempt.block)
                              for sql in list(LOOK.values()) + list(SCAN.values()))
        try:
            end = subprocess.run(
                [os.path.join(self.args.bindir, "postgres"), "--single", "-D", self.server.data, "postgres"],
                input=questions, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
                timeout=TIMEOUT * 30)
        except subprocess.TimeoutExpired:
            return self.fail(attempt, "redo does not end")
        self.judge_redo(attempt, end)

    def judge_redo(self, attempt, end):
        attempt.index = attempt.kind
        lines = [line for line in end.stderr.splitlines() if not self.is_of_table(attempt, line)]
        codes = set(re.findall(r"ERROR:  (\w{5}):", "\n".join(lines)))
        for code in codes:
            self.outcomes["after redo", code] += 1
        bad = [line for line in lines if FAULT.search(line) or re.search("(ERROR|FATAL):  XX000", line)
               if not REDO_PROPER.search(line)]
        if bad or codes - PROPER - {"22023"}:
            self.fail(attempt, " / ".join(bad[:4]) or "errors " + " ".join(sorted(codes)))
        elif end.returncode == 0:
            self.outcomes["redo", "done"] += 1
        elif REDO_PROPER.search(end.stderr):
            self.outcomes["redo", "refused"] += 1
        else:
            self.fail(attempt, "exit status %d: %s" % (end.returncode, end.stderr[-300:]))

    # ---------- all ----------

    def attempts(self):
        numbers = [self.args.only] if self.args.only is not None else range(self.args.tries)
        for number in numbers:
            attempt = Try(self, number)
            if attempt.changed:
                yield attempt
            else:
                self.outcomes["try", "unchanged"] += 1

    def run(self):
        self.make_golden()
        done = 0
        pending = []
        for attempt in self.attempts():
            done += 1
            if self.args.redo:
                self.redo(attempt)
                continue
            room = self.args.batch // NKINDS
            if sum(1 for a in pending if a.kind == attempt.kind) == room:
                self.batch(pending)
                pending = []
            pending.append(attempt)
        if pending:
            self.batch(pending)
        self.report(done)

    def report(self, done):
        for (name, what), n in sorted(self.outcomes.items()):
            print("%-16s %-14s %6d" % (name, what, n))
        for name, n in sorted(self.silent.items()):
            print("%-16s %-14s %6d" % ("wrong, verified", name, n))
        for like, n in self.alike.most_common():
            print("failed %d times: %s" % (n, like))
        print("seed %d: %d tries, %d failures" % (self.args.seed, done, len(self.failures)))
        print("%d passed, %d failed" % (done - len(self.failures), len(self.failures)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--tries", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this try alone")
    parser.add_argument("--redo", action="store_true")
    parser.add_argument("--batch", type=int, default=100, help="indexes that are damaged at once")
    parser.add_argument("--port", type=int)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--keep", action="store_true", help="the work directory")
    args = parser.parse_args()
    if args.redo or args.only is not None:
        args.batch = NKINDS
    cluster.drop_root(__file__)
    fuzz = Fuzz(args)
    try:
        fuzz.run()
    finally:
        for server in (fuzz.server, fuzz.golden):
            if os.path.isdir(server.data):
                server.stop("immediate")
        if args.keep:
            print("kept: " + fuzz.workdir)
        else:
            cluster.remove_workdir(fuzz.workdir)
    sys.exit(1 if fuzz.failures else 0)


if __name__ == "__main__":
    main()
