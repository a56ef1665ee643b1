"""A state whose write-ahead log is damaged, lost or failed: it is refused or right, never short of rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lsmstate import CorruptionError, StorePoisonedError
from tests.support.simfs import SimFileSystem
from tests.support.states import World, batch, rows_of
from tests.support.wal_world import row, wal


def damaged(world: World, change: Callable[[bytes], bytes | None]) -> SimFileSystem:
    tree = dict(world.fs.tree())
    for path in [path for path, data in tree.items() if "/wal/" in path and data]:
        found = change(tree[path] or b"")
        if found is None:
            del tree[path]
        else:
            tree[path] = found
    return SimFileSystem.of(tree)


def test_lost_log_is_refused_and_never_taken_for_an_empty_one(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    world.fs = damaged(world, lambda data: None)
    for durability in ("epoch", "wal"):
        with pytest.raises(CorruptionError):
            world.open(durability=durability)
    reader = world.open(read_only=True)
    assert rows_of(reader.scan(0)) == [row(1)]
    assert any("/wal/" in problem.path for problem in reader.verify())


def test_every_flipped_byte_of_a_closed_log_is_refused_or_harmless(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    store.snapshot_epoch(1)
    store.append(0, batch(row(2)))
    store.remove(0, 1, 2)
    store.close()
    tree = world.fs.tree()
    (path,) = (path for path, data in tree.items() if "/wal/" in path and data)
    data, outcomes = tree[path] or b"", {"refused": 0, "right": 0}
    for at in range(0, len(data), 3):
        world.fs = SimFileSystem.of({**tree, path: data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]})
        try:
            found = wal(world)
        except CorruptionError:
            outcomes["refused"] += 1
            continue
        assert rows_of(found.scan(0)) == [row(2)]
        outcomes["right"] += 1
    assert outcomes["refused"] > 100
    assert outcomes["right"] < 40  # what the log says of its end, and a byte or two that nobody needs


def test_failed_log_says_so_and_reading_goes_on(world: World) -> None:
    store = wal(world)
    store.append(0, batch(row(1)))
    assert store._core.wal is not None
    store._core.wal.fail(OSError(5, "gone"))
    with pytest.raises(StorePoisonedError, match="reopen"):
        store.append(0, batch(row(2)))
    assert rows_of(store.scan(0)) == [row(1)]
