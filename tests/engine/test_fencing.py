"""Two writers: whoever publishes second is told so, can no longer write, and has changed nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lsmstate import FencedError, SnapshotExpired, StateStore
from tests.support.peer import KINDS, write_epochs
from tests.support.states import World, batch, rows_of


@pytest.fixture
def world() -> Iterator[World]:
    with World(KINDS) as world:
        yield world


PUBLISHES: dict[str, Callable[[StateStore], None]] = {
    "snapshot_epoch": lambda store: store.snapshot_epoch(101),
    "same epoch": lambda store: store.snapshot_epoch(2),
    "restore": lambda store: store.restore(1),
}


@pytest.mark.parametrize("epochs", [1, 2, 40], ids="{} epochs later".format)
@pytest.mark.parametrize("publish", PUBLISHES)
def test_writer_that_was_overtaken_is_fenced(world: World, publish: str, epochs: int) -> None:
    zombie = world.open()
    write_epochs(zombie, range(1, 2))
    other = world.open(retain=2)
    write_epochs(other, range(2, 2 + epochs))
    before = rows_of(other.scan(0))
    zombie.append(0, batch((7, 10**9, "zombie")))
    with pytest.raises(FencedError, match="reopen"):
        PUBLISHES[publish](zombie)
    reopened = world.open()
    assert reopened.epochs() == other.epochs()
    assert rows_of(reopened.scan(0)) == before
    assert reopened.verify() == []
    other.snapshot_epoch(200)


@pytest.mark.parametrize("epochs", [1, 2, 40], ids="{} epochs later".format)
def test_prepared_writer_that_was_overtaken_is_fenced(world: World, epochs: int) -> None:
    zombie = world.open()
    write_epochs(zombie, range(1, 2))
    zombie.append(0, batch((7, 10**9, "zombie")))
    zombie.prepare(2)
    other = world.open(retain=2)
    write_epochs(other, range(2, 2 + epochs))
    before = rows_of(other.scan(0))
    for _ in range(2):
        with pytest.raises(FencedError, match="reopen"):
            zombie.commit(2)
    assert rows_of(world.open().scan(0)) == before


def test_merge_of_files_that_another_handle_has_retired_says_so(world: World) -> None:
    zombie = world.open(memtable_bytes=1)
    for number in range(4):
        zombie.append(
            0,
            batch((number, number, "x")),
        )
        zombie.append(1, batch((number, number, "x")))
    zombie.snapshot_epoch(1)
    other = world.open(retain=2)
    write_epochs(other, range(2, 12))
    with pytest.raises(SnapshotExpired, match="retired by another handle; reopen"):
        zombie.compact(major=True)
    assert world.open().verify() == []


WRITES: dict[str, Callable[[StateStore], object]] = {
    "append": lambda store: store.append(0, batch((1, 1, "x"))),
    "remove": lambda store: store.remove(0, 0, 1),
    "advance_watermark": lambda store: store.advance_watermark(10**12),
    "prepare": lambda store: store.prepare(300),
    "commit": lambda store: store.commit(2),
    "abort": lambda store: store.abort(2),
    "restore": lambda store: store.restore(1),
}


@pytest.mark.parametrize("write", WRITES)
def test_fenced_handle_refuses_to_write_and_still_reads(world: World, write: str) -> None:
    zombie = world.open()
    write_epochs(zombie, range(1, 2))
    write_epochs(world.open(), range(2, 3))
    with pytest.raises(FencedError):
        zombie.snapshot_epoch(2)
    before = world.fs.digest()
    with pytest.raises(FencedError):
        WRITES[write](zombie)
    assert world.fs.digest() == before
    assert rows_of(zombie.scan(0)) == [(1, 1000, "x")]


def test_two_creators_make_one_state(world: World) -> None:
    one, other = world.open(), world.open()
    one.append(0, batch((1, 1, "one")))
    other.append(0, batch((1, 1, "other")))
    other.snapshot_epoch(1)
    with pytest.raises(FencedError):
        one.snapshot_epoch(1)
    assert rows_of(world.open().scan(0)) == [(1, 1, "other")]


def test_reopened_handle_goes_on_after_fencing(world: World) -> None:
    zombie = world.open()
    write_epochs(world.open(), range(1, 5))
    with pytest.raises(FencedError):
        zombie.snapshot_epoch(1)
    zombie.close()
    again = world.open()
    write_epochs(again, range(5, 8))
    assert rows_of(world.open().scan(0)) == [(7, 7000, "x")]
