"""Damages of a page: each kind is a function of the page and what it may draw from."""

import struct

BLCKSZ = 8192
SPECIAL = BLCKSZ - 16
LINES = 24                      # where line pointers begin

# flags of our pages, as in src/page/cb_page.h
TYPES = [(0, "meta"), (6, "deleted"), (3, "journal"), (10, "range"), (11, "run"), (12, "tiles"), (2, "inner")]
PACKED = 1 << 9

# damages that leave no page of its kind: whoever reads the page has to notice
GROSS = {"zero", "garbage", "header", "identity"}


def type_of(page):
    """The page's type, as the fuzzer distinguishes them."""
    level, flags = struct.unpack_from("<HH", page, SPECIAL + 4)
    for bit, name in TYPES:
        if flags & 1 << bit:
            if name in ("range", "run"):
                name += str(level)
            return name + (" packed" if flags & PACKED else "")
    if flags & 2:
        return "packed leaf" if flags & PACKED else "leaf"
    return "unknown"


def number(rng, nblocks, old):
    """A number that is likely to lead somewhere wrong."""
    return rng.choice([0, 1, 2, 3, 7, 8, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF, BLCKSZ, BLCKSZ - 1, SPECIAL, nblocks - 1,
                       nblocks, nblocks + 1, 0xFFFFFFFF, old + 1, old - 1, old ^ 1 << rng.randrange(32),
                       rng.randrange(nblocks), rng.getrandbits(32)])


def put(page, at, size, value):
    page[at:at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")


def mangle(rng, page, at, size, nblocks):
    put(page, at, size, number(rng, nblocks, int.from_bytes(page[at:at + size], "little")))


def items(page):
    lower = struct.unpack_from("<H", page, 12)[0]
    return range(LINES, max(LINES, min(lower, SPECIAL)) - 3, 4)


def item_start(page, at):
    return struct.unpack_from("<I", page, at)[0] & 0x7FFF


def bits(rng, page, pool):
    for _ in range(rng.choice([1, 1, 2, 8])):
        page[rng.randrange(BLCKSZ)] ^= 1 << rng.randrange(8)


def bytes_(rng, page, pool):
    n = rng.choice([1, 2, 4, 8, 64, 512])
    at = rng.randrange(BLCKSZ - n)
    page[at:at + n] = rng.choice([bytes(n), b"\xff" * n, rng.randbytes(n)])


def zero(rng, page, pool):
    page[:] = bytes(BLCKSZ)


def torn(rng, page, pool):
    """A part of the page is of another time, or of nothing."""
    at = rng.choice([512, 4096, 7680])
    other = rng.choice([bytes(BLCKSZ), pool.older(), pool.other(rng)])
    if rng.random() < 0.5:
        page[:at] = other[:at]
    else:
        page[at:] = other[at:]


def garbage(rng, page, pool):
    page[:] = rng.randbytes(BLCKSZ)


def contents(rng, page, pool):
    """The header and the end are sound, and nothing else."""
    page[LINES:SPECIAL] = rng.randbytes(SPECIAL - LINES)


def header(rng, page, pool):
    """Of lower, upper and special one is impossible."""
    at = rng.choice([12, 14, 16])
    put(page, at, 2, rng.choice([0, 1, 23, SPECIAL + 1, BLCKSZ, 0x7FFF, 0xFFFF] if at != 16 else [0, 24, SPECIAL - 8, BLCKSZ, 0xFFFF]))


def bounds(rng, page, pool):
    """lower and upper are others."""
    mangle(rng, page, rng.choice([12, 14]), 2, pool.nblocks)


def identity(rng, page, pool):
    put(page, SPECIAL + rng.choice([10, 14]), 2, rng.choice([0, 0xFF, 0xFFFF, 0x7FFF]))


def special(rng, page, pool):
    """The right link, level, flags, cycle id."""
    at, size = rng.choice([(0, 4), (0, 4), (4, 2), (6, 2), (6, 2), (8, 2)])
    if at == 6:
        put(page, SPECIAL + 6, 2, int.from_bytes(page[SPECIAL + 6:SPECIAL + 8], "little") ^ 1 << rng.randrange(14))
    else:
        mangle(rng, page, SPECIAL + at, size, pool.nblocks)


def line(rng, page, pool):
    """A line pointer: its offset, flags or length, or another one's."""
    lines = items(page)
    if not lines:
        return bits(rng, page, pool)
    at = rng.choice(lines)
    old = struct.unpack_from("<I", page, at)[0]
    new = rng.choice([
        old & ~0x7FFF | number(rng, pool.nblocks, old) & 0x7FFF,
        old & ~0x18000 | rng.randrange(4) << 15,
        old & 0x1FFFF | (number(rng, pool.nblocks, old >> 17) & 0x7FFF) << 17,
        struct.unpack_from("<I", page, rng.choice(lines))[0],
        rng.getrandbits(32)])
    put(page, at, 4, new)


def item(rng, page, pool):
    """A few bytes at the start of an item: links, sizes, headers of packed parts, runs."""
    lines = items(page)
    if not lines:
        return word(rng, page, pool)
    at = item_start(page, rng.choice(lines)) + 2 * rng.randrange(16)
    if at + 4 > SPECIAL:
        return bits(rng, page, pool)
    mangle(rng, page, at, rng.choice([1, 2, 2, 4]), pool.nblocks)


def word(rng, page, pool):
    """A number behind the header: of the metapage, a journal page, a deleted one."""
    at = LINES + 2 * rng.randrange(rng.choice([40, SPECIAL // 2 - 24]))
    mangle(rng, page, at, rng.choice([2, 4]), pool.nblocks)


def several(rng, page, pool):
    for _ in range(rng.randrange(2, 8)):
        rng.choice([line, item, word, special, bits])(rng, page, pool)


def swap(rng, page, pool):
    """Another page of the index."""
    page[:] = pool.other(rng)


def foreign(rng, page, pool):
    """A page of the same type of another index."""
    page[:] = pool.foreign(rng)


def older(rng, page, pool):
    page[:] = pool.older()


KINDS = {f.__name__.rstrip("_"): f for f in (
    bits, bytes_, zero, torn, garbage, contents, header, bounds, identity, special, line, item, word, several, swap,
    foreign, older)}
