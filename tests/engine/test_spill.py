"""Spilling: rows stay readable while they are written, when writing fails, and after it was tried again."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lsmstate import StateStore, StorePoisonedError
from tests.support.simfs import SimFileSystem
from tests.support.states import World, batch, rows_of

PATIENCE = 30.0  # seconds before a test gives up; nothing here should come near


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def values(store: StateStore) -> list[str]:
    return sorted(row[2] for row in rows_of(store.scan(0)))


class Block:
    """Holds every creation of an SSTable until it is opened."""

    def __init__(self, fs: SimFileSystem) -> None:
        self.reached, self._gate = threading.Event(), threading.Event()
        fs.fault = self._fault

    def _fault(self, op: str, path: str, index: int) -> None:
        if op == "create" and path.endswith(".sst"):
            self.reached.set()
            assert self._gate.wait(PATIENCE)

    def open(self) -> None:
        self._gate.set()


@contextmanager
def blocked(fs: SimFileSystem) -> Iterator[Block]:
    block = Block(fs)
    try:
        yield block
    finally:
        block.open()


def failing(op: str, code: int) -> Callable[[str, str, int], None]:
    """A fault that fails one kind of operation on SSTables."""

    def fault(what: str, path: str, index: int) -> None:
        if what == op and path.endswith(".sst"):
            raise OSError(code, os.strerror(code), path)

    return fault


def test_rows_can_be_read_while_they_are_spilled(world: World) -> None:
    process = world.fs.spawn()
    store = world.open(fs=process, memtable_bytes=1)
    with blocked(process) as block:
        store.append(0, batch((1, 5, "a"), (2, 25, "b")))
        assert block.reached.wait(PATIENCE)
        assert store.stats().sealed_memtables == 1
        assert values(store) == ["a", "b"]
        assert rows_of(store.probe(0, batch((2, 25, None)), 0, 0)) == [(2, 25, "b", 0)]
        store.remove(0, 0, 10)
        assert values(store) == ["b"]
        view = store.snapshot()
    store.snapshot_epoch(1)
    assert values(store) == ["b"]
    assert rows_of(view.scan(0)) == [(2, 25, "b")]
    assert values(world.open()) == ["b"]


READS: dict[str, Callable[[StateStore], object]] = {
    "scan": values,
    "snapshot": lambda store: store.snapshot().close(),
    "at_epoch": lambda store: store.at_epoch(1).close(),
    "epochs": lambda store: store.epochs(),
    "stats": lambda store: store.stats(),
    "verify": lambda store: store.verify(),
}


@pytest.mark.parametrize("read", READS)
def test_reader_does_not_wait_for_an_epoch_that_is_being_written(world: World, read: str) -> None:
    process = world.fs.spawn()
    store = world.open(fs=process)
    store.append(0, batch((1, 5, "a")))
    store.snapshot_epoch(1)
    store.append(0, batch((1, 6, "b")))
    with blocked(process) as block:
        writer = threading.Thread(target=store.snapshot_epoch, args=(2,))
        writer.start()
        assert block.reached.wait(PATIENCE)
        reader = threading.Thread(target=READS[read], args=(store,))
        reader.start()
        reader.join(2.0)
        waits = reader.is_alive()
        block.open()
        writer.join(PATIENCE)
        reader.join(PATIENCE)
    assert not waits


@pytest.mark.parametrize("op", ["create", "write"])
def test_failed_spill_keeps_rows_readable_and_is_tried_again(world: World, op: str) -> None:
    process = world.fs.spawn()
    store = world.open(fs=process, memtable_bytes=1)
    store.append(0, batch((1, 0, "first")))
    store.snapshot_epoch(1)
    process.fault = failing(op, errno.ENOSPC)
    store.append(0, batch((1, 5, "a")))
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            store.snapshot_epoch(2)
        assert values(store) == ["a", "first"]
        assert values(world.open()) == ["first"]
    assert store.stats().lanes["spill"].failed >= 2
    process.fault = None
    store.append(0, batch((1, 6, "b")))
    store.snapshot_epoch(2)
    reopened = world.open()
    assert values(reopened) == ["a", "b", "first"]
    assert reopened.verify() == []


def test_epoch_after_a_failed_spill_tries_again_before_it_complains(world: World) -> None:
    process = world.fs.spawn()
    store = world.open(fs=process, memtable_bytes=1)
    process.fault = failing("create", errno.ENOSPC)
    store.append(0, batch((1, 5, "a")))
    store.append(0, batch((1, 6, "b")))
    world.pool.submit("spill", int).result(PATIENCE)  # one worker, so both spills have failed by now
    assert store.stats().lanes["spill"].failed == 2
    process.fault = None
    store.snapshot_epoch(1)
    assert values(world.open()) == ["a", "b"]


def test_failed_spill_leaves_no_file(world: World) -> None:
    process = world.fs.spawn()
    store = world.open(fs=process)
    process.fault = failing("write", errno.ENOSPC)
    store.append(0, batch((1, 5, "a")))
    with pytest.raises(OSError, match="No space left"):
        store.prepare(1)
    assert world.files("sst") == set()
    assert world.files("manifest") == set()


def test_append_that_raises_has_added_nothing(world: World) -> None:
    process = world.fs.spawn()
    store = world.open(fs=process, memtable_bytes=1)
    process.fault = failing("create", errno.ENOSPC)
    added = []
    for number in range(10):
        try:
            store.append(0, batch((1, number, f"{number}")))
        except OSError:
            assert values(store) == added
        else:
            added.append(f"{number}")
    assert len(added) < 10, "back-pressure must be felt"
    process.fault = None
    store.snapshot_epoch(1)
    assert values(world.open()) == added


def test_failed_fsync_poisons_the_handle_and_nothing_else(world: World) -> None:
    process = world.fs.spawn()
    store = world.open(fs=process)
    store.append(0, batch((1, 0, "first")))
    store.snapshot_epoch(1)
    process.fault = failing("sync", errno.EIO)
    store.append(0, batch((1, 5, "a")))
    with pytest.raises(OSError, match="Input/output"):
        store.snapshot_epoch(2)
    process.fault = None
    for write in (
        lambda: store.append(0, batch((1, 6, "b"))),
        lambda: store.remove(0, 0, 1),
        lambda: store.snapshot_epoch(2),
        lambda: store.restore(1),
    ):
        with pytest.raises(StorePoisonedError, match="reopen"):
            write()
    assert values(store) == ["a", "first"]
    store.close()
    again = world.open()
    assert values(again) == ["first"]
    again.append(0, batch((1, 5, "a")))
    again.snapshot_epoch(2)
    assert values(world.open()) == ["a", "first"]


def test_files_spilled_by_a_crashed_handle_are_collected_in_time(world: World) -> None:
    crashed = world.open(memtable_bytes=1)
    for number in range(5):
        crashed.append(0, batch((1, number, "lost")))
    crashed.prepare(1)
    left = world.files("sst")
    assert left
    store = world.open(retain=2)
    for epoch in range(1, 6):
        store.append(0, batch((1, epoch, str(epoch))))
        store.snapshot_epoch(epoch)
    assert not left & world.files("sst")
    assert values(store) == ["1", "2", "3", "4", "5"]


def test_spills_in_the_middle_of_an_epoch_show_no_row_twice(world: World) -> None:
    store = world.open(memtable_bytes=500)
    wanted = []
    for number in range(60):
        store.append(0, batch((number % 3, number, f"{number:02}")))
        wanted.append(f"{number:02}")
        assert values(store) == wanted
    store.snapshot_epoch(1)
    assert store.stats().files > 3
    assert values(store) == wanted
    assert world.open().verify() == []
