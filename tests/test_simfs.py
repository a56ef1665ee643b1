"""The simulated file system: its processes and faults, and crashes that lose all that a disk may lose."""

from __future__ import annotations

import errno
import random
from itertools import pairwise

import pytest

from tests.support.crash import crash_images, crash_points
from tests.support.simfs import ProcessKilled, SimFileSystem, fail_at

Tree = dict[str, bytes | None]


def put(fs: SimFileSystem, path: str, data: bytes, *, sync: bool = True) -> None:
    """Writes a file, in two halves."""
    file = fs.create(path)
    file.write([data[: len(data) // 2]])
    file.write([data[len(data) // 2 :]])
    if sync:
        file.sync()
    file.close()


def images(fs: SimFileSystem, at: int | None = None, limit: int = 500) -> list[Tree]:
    """The trees that a crash may leave, at the end of the journal unless told."""
    at = len(fs.journal) if at is None else at
    return [image.tree() for image in crash_images(fs, at, random.Random(7), limit)]


# Processes and faults.


def test_killed_process_frees_its_locks_only_and_works_no_more() -> None:
    fs = SimFileSystem()
    other = fs.spawn()
    file = fs.create("/f")
    assert fs.lock("/mine") is not None
    assert other.lock("/theirs") is not None
    fs.kill()
    assert other.lock("/mine") is not None
    assert other.lock("/theirs") is None
    assert other.read("/f", 0) == b""
    for call in (lambda: file.write([b"x"]), file.sync, lambda: fs.list_dir("/")):
        with pytest.raises(ProcessKilled):
            call()


def every_operation(fs: SimFileSystem) -> None:
    """Calls each operation once, in the order of OPERATIONS."""
    fs.make_dir("/d")
    file = fs.create("/d/f")
    file.write([b"0123456789"])
    file.sync()
    file.close()
    fs.link("/d/f", "/d/g")
    fs.sync_dir("/d")
    fs.kind("/d/f")
    fs.list_dir("/d")
    fs.read("/d/f", 10)
    fs.map("/d/f")
    fs.unlink("/d/f")
    fs.lock("/d/lock")


CHANGES = ["make_dir", "create", "write", "sync", "link", "sync_dir", "unlink", "lock"]
OPERATIONS = [*CHANGES[:4], "close", *CHANGES[4:6], "kind", "list_dir", "read", "map", *CHANGES[6:]]


@pytest.mark.parametrize("index", range(len(OPERATIONS)), ids=OPERATIONS)
def test_fault_fires_at_its_operation_before_or_after_the_effect(index: int) -> None:
    whole = SimFileSystem()
    every_operation(whole)
    before, after = SimFileSystem(fault=fail_at(index, errno.EIO)), SimFileSystem()
    after.fault_after = fail_at(index, errno.EIO)
    for fs in (before, after):
        with pytest.raises(OSError, match="/d"):
            every_operation(fs)
        assert fs.ops == index + 1
    entries = [entry[:3] for entry in whole.journal]
    assert [entry[:3] for entry in before.journal] == [e for e in entries if e[2] < index]
    assert [entry[:3] for entry in after.journal] == [e for e in entries if e[2] <= index]
    assert (whole.ops, [e.op for e in whole.journal]) == (len(OPERATIONS), CHANGES)
    after.fault_after = None
    assert OPERATIONS[index] != "lock" or after.lock("/d/lock") is not None


def test_short_write_leaves_the_pieces_before_the_fault() -> None:
    fs = SimFileSystem(short_write_bytes=4, fault=fail_at(3, errno.ENOSPC))
    file = fs.create("/f")
    with pytest.raises(OSError, match="No space"):
        file.write([b"01234", b"56789"])
    assert fs.read("/f", 10) == b"01234567"


@pytest.mark.parametrize("when", ["fault", "fault_after"])
def test_failed_sync_is_never_made_good_by_a_later_one(when: str) -> None:
    fs = SimFileSystem()
    file = fs.create("/f")
    fs.sync_dir("/")
    file.write([b"first"])
    setattr(fs, when, fail_at(fs.ops, errno.EIO))
    with pytest.raises(OSError, match="/f"):
        file.sync()
    file.write([b"second"])
    file.sync()
    file.close()
    certain = b"" if when == "fault" else b"first"
    assert fs.read("/f", 99) == b"firstsecond"
    assert images(fs)[:2] == [{"/f": b"firstsecond"}, {"/f": certain}]


# Crashes.


def test_missing_file_sync_leaves_every_shape() -> None:
    fs = SimFileSystem()
    file = fs.create("/f")
    fs.sync_dir("/")
    file.write([b"abcd"])
    file.sync()
    file.write([b"efghijklmnop"])
    contents = [tree["/f"] for tree in images(fs)]
    assert all(content is not None and content[:4] == b"abcd" for content in contents)
    tails = [content[4:] for content in contents if content is not None]
    assert tails[:2] == [b"efghijklmnop", b""]
    assert {b"efghijklmnop"[:cut] for cut in range(13)} <= set(tails)
    assert {b"efghijklmnop"[:cut] + bytes(12 - cut) for cut in range(12)} <= set(tails)
    assert any(t[:1] == b"\0" and t[-1:] == b"p" for t in tails)
    assert any(len(t) == 12 and set(t) - set(b"efghijklmnop\0") for t in tails)


def test_missing_directory_sync_loses_names_whose_files_are_synced() -> None:
    fs = SimFileSystem()
    put(fs, "/f", b"data")
    assert images(fs) == [{"/f": b"data"}, {}]
    fs.sync_dir("/")
    assert images(fs) == [{"/f": b"data"}]
    fs.unlink("/f")
    assert images(fs) == [{}, {"/f": b"data"}]


def test_new_directory_needs_a_sync_of_its_parent() -> None:
    fs = SimFileSystem()
    fs.make_dir("/d")
    put(fs, "/d/f", b"data")
    fs.sync_dir("/d")
    assert images(fs) == [{"/d": None, "/d/f": b"data"}, {}]
    fs.sync_dir("/")
    assert images(fs) == [{"/d": None, "/d/f": b"data"}]


@pytest.mark.parametrize("count", [4, 9])
def test_directory_changes_are_lost_in_any_order(count: int) -> None:
    fs = SimFileSystem.of({"/old": b"old"})
    for number in range(count - 2):
        put(fs, f"/{number}", b"x")
    fs.link("/0", "/published")
    fs.unlink("/old")
    found = [set(tree) for tree in images(fs, limit=5000)]
    assert len(found) == len(set(map(frozenset, found)))
    if count <= 6:
        assert len(found) == 1 << count
    names = {str(number) for number in range(count - 2)}
    everything = {f"/{name}" for name in names} | {"/published"}
    assert found[:2] == [everything, {"/old"}]
    for name in everything:
        assert everything - {name} in found
        assert {"/old", name} in found
    assert everything | {"/old"} in found
    assert set() in found


def commit(fs: SimFileSystem, epoch: int) -> None:
    """A commit as it should be: nothing is named before it is durable."""
    put(fs, f"/db/{epoch}.sst", b"rows %d" % epoch * 9)
    put(fs, f"/db/{epoch}.candidate", b"manifest %d" % epoch)
    fs.sync_dir("/db")
    fs.link(f"/db/{epoch}.candidate", f"/db/{epoch}.manifest")
    fs.sync_dir("/db")
    fs.unlink(f"/db/{epoch}.candidate")


def test_synced_data_is_in_every_image_of_every_point() -> None:
    fs = SimFileSystem()
    fs.make_dir("/db")
    fs.sync_dir("/")
    acknowledged = [len(fs.journal)]
    for epoch in (1, 2, 3):
        commit(fs, epoch)
        acknowledged.append(len(fs.journal))
    digests = set()
    for at in crash_points(fs):
        for image in crash_images(fs, at, random.Random(at), 60):
            digests.add(image.digest())
            tree = image.tree()
            for epoch in (1, 2, 3):
                if acknowledged[epoch] <= at or f"/db/{epoch}.manifest" in tree:
                    assert tree[f"/db/{epoch}.manifest"] == b"manifest %d" % epoch
                    assert tree[f"/db/{epoch}.sst"] == b"rows %d" % epoch * 9
    assert len(digests) > 300


def test_images_of_earlier_points_are_prefixes_and_repeat_with_the_seed() -> None:
    fs = SimFileSystem()
    put(fs, "/f", b"0123", sync=False)
    first = [images(fs, at) for at in crash_points(fs)]
    assert [trees[0] for trees in first] == [{}, {"/f": b""}, {"/f": b"01"}, {"/f": b"0123"}]
    assert [images(fs, at) for at in reversed(crash_points(fs))] == first[::-1]


def test_image_is_mounted_afresh_and_can_crash_again() -> None:
    fs = SimFileSystem()
    fs.lock("/lock")
    put(fs, "/f", b"unsynced", sync=False)
    before = fs.digest()
    image = next(crash_images(fs, len(fs.journal), random.Random(0), 2))
    assert image.lock("/lock") is not None
    assert (image.journal, images(image)) == ([], [{"/lock": b"", "/f": b"unsynced"}])
    image.unlink("/f")
    put(image, "/g", b"new")
    image.sync_dir("/")
    assert images(image) == [{"/lock": b"", "/g": b"new"}]
    assert fs.digest() == before


def test_digest_tells_trees_apart_and_nothing_else() -> None:
    trees: list[Tree] = [
        {},
        {"/a": b""},
        {"/a": None},
        {"/b": b""},
        {"/a": b"\0"},
        {"/a": b"x", "/b": b"y"},
        {"/a": b"y", "/b": b"x"},
        {"/d/a": b"x", "/e": None},
        {"/d": None, "/e/a": b"x"},
    ]
    assert len({SimFileSystem.of(tree).digest() for tree in trees}) == len(trees)
    for tree in trees:
        fs = SimFileSystem.of(dict(reversed(tree.items())))
        assert fs.tree() == SimFileSystem.of(fs.tree()).tree()
        assert SimFileSystem.of(tree).digest() == fs.digest() == fs.copy().digest()
    fs = SimFileSystem()
    digests = [fs.digest()]
    file = fs.create("/a")
    for part in (b"x", b"y"):
        digests.append(fs.digest())
        file.write([part])
    digests.append(fs.digest())
    fs.unlink("/a")
    assert fs.digest() == digests[0]
    assert all(earlier != later for earlier, later in pairwise(digests))


def test_copy_is_independent_of_what_is_written_later() -> None:
    fs = SimFileSystem()
    file = fs.create("/f")
    file.write([b"now"])
    copy = fs.copy()
    file.write([b" and later"])
    fs.make_dir("/d")
    copy.make_dir("/e")
    assert copy.tree() == {"/f": b"now", "/e": None}
    assert images(copy, 0) == [{"/f": b"now"}]
    assert sorted(fs.list_dir("/")) == ["d", "f"]
