"""Snapshots: a view shows the rows of its moment, whoever writes, removes, flushes, restores or collects."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from lsmstate import SnapshotExpired, StateStore, StoreClosedError, View
from tests.support.peer import KINDS, write_epochs
from tests.support.states import Row, World, batch, rows_of

BEFORE: list[Row] = [(1, 5, "a"), (1, 25, "b"), (2, 7, None)]  # in the order of rows_of


@pytest.fixture
def world() -> Iterator[World]:
    with World(KINDS) as world:
        yield world


def started(store: StateStore) -> StateStore:
    """The rows of BEFORE: one committed, one spilled or in memory, one in memory."""
    store.append(0, batch(BEFORE[0]))
    store.snapshot_epoch(1)
    store.append(0, batch(BEFORE[1]))
    store.append(0, batch(BEFORE[2]))
    return store


def append(store: StateStore) -> None:
    store.append(0, batch((1, 5, "later"), (3, 3, "later")))


def remove(store: StateStore) -> None:
    store.remove(0, 0, 30)


def advance(store: StateStore) -> None:
    store.advance_watermark(10**9)


def flush(store: StateStore) -> None:
    store.prepare(2)


def epoch(store: StateStore) -> None:
    append(store)
    remove(store)
    store.snapshot_epoch(2)


def restore(store: StateStore) -> None:
    store.restore(1)


CHANGES = [append, remove, advance, flush, epoch, restore]


@pytest.mark.parametrize("memtable_bytes", [1, 1 << 20], ids=["spilled", "in-memory"])
@pytest.mark.parametrize("change", CHANGES)
def test_snapshot_ignores_what_its_own_handle_does_later(
    world: World, change: Callable[[StateStore], None], memtable_bytes: int
) -> None:
    store = started(world.open(retain=1, memtable_bytes=memtable_bytes))
    with store.snapshot() as view:
        change(store)
        assert rows_of(view.scan(0)) == BEFORE
        assert rows_of(view.probe(0, batch((1, 5, None)), 0, 20)) == [(1, 5, "a", 0), (1, 25, "b", 0)]


@pytest.mark.parametrize("change", CHANGES)
def test_snapshot_ignores_what_another_handle_does_later(world: World, change: Callable[[StateStore], None]) -> None:
    mine = started(world.open())
    with mine.snapshot() as view:
        other = world.open(retain=1)
        change(other)
        assert rows_of(view.scan(0)) == BEFORE


def test_snapshot_of_a_new_state_stays_empty(world: World) -> None:
    store = world.open()
    with store.snapshot() as view:
        append(store)
        store.snapshot_epoch(1)
        assert rows_of(view.scan(0)) == []


def test_iterator_of_the_store_shows_the_moment_of_the_call(world: World) -> None:
    store = started(world.open(retain=1))
    scan, probe = store.scan(0), store.probe(0, batch((2, 7, None)))
    epoch(store)
    store.restore(2)
    store.snapshot_epoch(3)
    assert rows_of(scan) == BEFORE
    assert rows_of(probe) == [(2, 7, None, 0)]


def test_pinned_snapshot_survives_thirty_epochs_of_another_handle(world: World) -> None:
    mine = started(world.open(memtable_bytes=1))
    view = mine.snapshot()
    other = world.open(retain=2)
    write_epochs(other, range(200, 230))
    assert other.stats().files_collected > 20
    assert rows_of(view.scan(0)) == BEFORE
    assert other.stats().collection_error is None
    view.close()


def test_closing_the_last_snapshot_lets_its_files_go(world: World) -> None:
    mine = started(world.open(memtable_bytes=1))
    view = mine.snapshot()
    pinned = world.files("sst")
    other = world.open(retain=1)
    write_epochs(other, range(200, 210))
    assert pinned <= world.files("sst")
    view.close()
    write_epochs(other, range(210, 212))
    assert not pinned & world.files("sst")
    assert world.files("pins") == set()


def test_pin_of_a_killed_reader_protects_nothing(world: World) -> None:
    process = world.fs.spawn()
    mine = started(world.open(fs=process, memtable_bytes=1))
    view = mine.snapshot()
    pinned = world.files("sst")
    process.kill()
    write_epochs(world.open(retain=1), range(200, 210))
    assert not pinned & world.files("sst")
    assert world.files("pins") == set()
    assert view is not None


def test_epoch_opened_before_it_is_retired_stays_readable(world: World) -> None:
    store = started(world.open(retain=1))
    view = store.at_epoch(1)
    write_epochs(world.open(retain=1), range(200, 210))
    assert rows_of(view.scan(0)) == [BEFORE[0]]
    view.close()


def test_read_only_handle_keeps_its_epoch_while_others_go_on(world: World) -> None:
    started(world.open()).close()
    reader = world.open(read_only=True)
    write_epochs(world.open(retain=1), range(200, 210))
    assert rows_of(reader.scan(0)) == [BEFORE[0]]
    with reader.snapshot() as view:
        assert rows_of(view.scan(0)) == [BEFORE[0]]


def stale(world: World) -> StateStore:
    """A writer whose epoch was retired and collected by another handle, and that has read nothing yet."""
    writer = world.open(retain=1)
    write_epochs(writer, range(200, 203))
    zombie = world.open()
    write_epochs(writer, range(203, 210))
    return zombie


def test_reading_a_retired_epoch_says_snapshot_expired(world: World) -> None:
    zombie = stale(world)
    with pytest.raises(SnapshotExpired):
        rows_of(zombie.scan(0))
    with pytest.raises(SnapshotExpired):
        rows_of(zombie.probe(0, batch((202, 202_000, None))))


READS: dict[str, Callable[[StateStore], View]] = {
    "snapshot": lambda store: store.snapshot(),
    "at_epoch": lambda store: store.at_epoch(202),
}


@pytest.mark.parametrize("read", READS)
def test_view_of_a_retired_epoch_says_snapshot_expired(world: World, read: str) -> None:
    zombie = stale(world)
    with pytest.raises(SnapshotExpired):
        rows_of(READS[read](zombie).scan(0))


@pytest.mark.parametrize("read", READS)
def test_view_of_a_retired_epoch_does_not_stop_collection(world: World, read: str) -> None:
    zombie = stale(world)
    views = []
    with contextlib.suppress(SnapshotExpired):
        views.append(READS[read](zombie))
    writer = world.open(retain=1)
    write_epochs(writer, range(300, 310))
    assert writer.stats().collection_error is None
    assert len(world.files("sst")) < 5


def test_branch_of_a_retired_epoch_says_snapshot_expired_and_writes_nothing(world: World) -> None:
    zombie = stale(world)
    with pytest.raises(SnapshotExpired):
        zombie.branch(202, "/branch")
    assert world.fs.kind("/branch") is None


def test_closed_view_refuses_to_read(world: World) -> None:
    view = started(world.open()).snapshot()
    view.close()
    view.close()
    with pytest.raises(StoreClosedError, match="take another snapshot"):
        view.scan(0)
    with pytest.raises(StoreClosedError):
        view.probe(0, batch((1, 5, None)))


@pytest.mark.parametrize("spread", [1, 7], ids=["one-bucket", "many-buckets"])
@pytest.mark.parametrize("ordered", [False, True])
def test_scan_under_way_raises_when_its_view_is_closed(world: World, ordered: bool, spread: int) -> None:
    store = world.open(batch_rows=2)
    store.append(0, batch(*[(1, n * spread, "x") for n in range(9)]))
    view = store.snapshot()
    scan = view.scan(0, ordered=ordered)
    assert next(scan).num_rows == 2
    view.close()
    with pytest.raises(StoreClosedError):
        next(scan)


def test_probe_under_way_raises_when_its_view_is_closed(world: World) -> None:
    store = world.open(batch_rows=2)
    store.append(0, batch(*[(1, n, "x") for n in range(9)]))
    view = store.snapshot()
    probe = view.probe(0, batch(*[(1, 0, None)] * 20_000))
    next(probe)
    view.close()
    with pytest.raises(StoreClosedError):
        next(probe)


def test_snapshot_outlives_its_store(world: World) -> None:
    store = started(world.open(memtable_bytes=1))
    view = store.snapshot()
    store.close()
    assert rows_of(view.scan(0)) == BEFORE
    view.close()
