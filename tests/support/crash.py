"""Power cuts: every disk that a crash could leave behind, given the journal of a `SimFileSystem`.

An image takes a subset of the directory changes that were not synced, in any combination (so later ones may
survive earlier ones), and one shape of each file's unsynced tail. What was synced is in every image.
Images are mounted afresh: all durable, no locks, no faults, a journal of their own, so that a crash during
recovery is the same call on an image. They share what they have in common.
Threading: none; the file system must be quiet.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from typing import Literal, get_args

from tests.support.simdisk import DIR, Dirs, Disk, Inode, Point, replaced
from tests.support.simfs import SimFileSystem

Shape = Literal["kept", "dropped", "torn", "zeroed", "half_zeroed", "garbled", "holed"]
SHAPES: tuple[Shape, ...] = get_args(Shape)

_EVERY_SUBSET_MAX = 6  # directory changes: 64 subsets
_RANDOM_SUBSETS = 16
_PATIENCE = 32  # duplicates in a row before a point counts as exhausted

_Plan = tuple[int, dict[Inode, Inode]]  # a bit per pending change, 1 being kept; the files as they are found


def crash_points(fs: SimFileSystem) -> range:
    """Where a crash can happen: after the first `n` entries of the journal, for each n."""
    return range(len(fs.journal) + 1)


def crash_images(fs: SimFileSystem, at: int, rng: random.Random, limit: int) -> Iterator[SimFileSystem]:
    """Up to `limit` disks, no two alike, that a crash after the first `at` entries of the journal may leave.

    First the one where everything was kept, then the one where nothing unsynced was; then a shuffle of all
    that is systematic (subsets of directory changes, each file in each shape); then random combinations,
    until nothing new comes. The same seed gives the same images. Requires: limit is 2 or more.
    """
    if limit < 2:
        raise ValueError(f"limit is {limit}: the two extreme images are always given")
    return _distinct(fs.point(at), rng, limit)


def _distinct(point: Point, rng: random.Random, limit: int) -> Iterator[SimFileSystem]:
    seen: set[bytes] = set()
    duplicates = 0
    planned, drawn = _plans(point, rng)
    for number, plan in enumerate(chain(planned, drawn)):
        image = SimFileSystem(_disk(point, plan))
        digest = image.digest()
        if digest in seen:
            duplicates += 1
            if duplicates >= _PATIENCE and number >= len(planned):
                return
            continue
        duplicates = 0
        seen.add(digest)
        yield image
        if len(seen) >= limit:
            return


def _disk(point: Point, plan: _Plan) -> Disk:
    """The disk that is left of a point if just these changes and these contents survive."""
    survivors, files = plan
    dirs: Dirs = {path: entries.copy() for path, entries in point.durable.items()}
    for number, change in enumerate(point.pending):
        if survivors >> number & 1:
            change.apply(dirs)
    reached: Dirs = {}
    for path, entries in dirs.items():  # parents come first
        parent, _, name = path.rpartition("/")
        if not path or (parent in reached and reached[parent].get(name) is DIR):
            reached[path] = entries
    return Disk(replaced(reached, files))


def _plans(point: Point, rng: random.Random) -> tuple[list[_Plan], Iterator[_Plan]]:
    """The systematic plans, extremes first; and random ones, without end if not all could be listed."""
    count = len(point.pending)
    everything = (1 << count) - 1
    files = {node: node.data()[: state.size] for node, state in point.unsettled.items()}
    kept = {node: Inode(data) for node, data in files.items()}
    dropped = {node: Inode(files[node][: state.synced]) for node, state in point.unsettled.items()}
    named = {node for entries in point.durable.values() for node in entries.values()}
    named.update(change.node for change in point.pending if change.node is not None)
    dirty = {n: s.synced for n, s in point.unsettled.items() if s.size > s.synced and n in named}

    def shaped(node: Inode, shape: Shape) -> Inode:
        if shape == "kept":
            return kept[node]
        if shape == "dropped":
            return dropped[node]
        return Inode(_damaged(shape, files[node], dirty[node], rng))

    rest: list[_Plan] = []
    for survivors in _subsets(count, rng):
        rest += [(survivors, kept), (survivors, dropped)] if dirty else [(survivors, kept)]
    for node in dirty:
        for shape in SHAPES:
            found = shaped(node, shape)
            rest += [(everything, {**kept, node: found}), (everything, {**dropped, node: found})]
    rng.shuffle(rest)

    def drawn() -> Iterator[_Plan]:
        while dirty or count > _EVERY_SUBSET_MAX:
            survivors = rng.choice((everything, rng.getrandbits(count), _mostly(count, rng)))
            yield survivors, {**kept, **{node: shaped(node, rng.choice(SHAPES)) for node in dirty}}

    return [(everything, kept), (0, dropped), *rest], drawn()


def _subsets(count: int, rng: random.Random) -> list[int]:
    """Subsets of `count` changes: all of them if few; else the telling ones, and some at random."""
    if count <= _EVERY_SUBSET_MAX:
        return list(range(1 << count))
    everything = (1 << count) - 1
    subsets = {0, everything}
    for number in range(count):
        alone = 1 << number
        subsets |= {
            alone,
            everything ^ alone,
            alone - 1,
        }  # the last: the older ones, as a journaling system keeps
    return sorted(subsets) + [rng.getrandbits(count) for _ in range(_RANDOM_SUBSETS)]


def _mostly(count: int, rng: random.Random) -> int:
    """A subset that lacks about a quarter of the changes."""
    return rng.getrandbits(count) | rng.getrandbits(count)


def _damaged(shape: Shape, data: bytes, synced: int, rng: random.Random) -> bytes:
    """A file of which only the first `synced` bytes are certain. Requires: synced < len(data)."""
    size = len(data)
    cut = rng.randrange(min(synced + 1, size - 1), size)
    if shape == "torn":
        return data[:cut]
    if shape == "zeroed":
        return data[:synced] + bytes(size - synced)
    if shape == "half_zeroed":
        return data[:cut] + bytes(size - cut)
    start = rng.randrange(synced, size)
    if shape == "garbled":
        return data[:start] + rng.randbytes(size - start)
    end = rng.randrange(start + 1, size + 1)  # a hole: later blocks were written before earlier ones
    return data[:start] + bytes(end - start) + data[end:]
