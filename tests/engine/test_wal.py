"""`durability="wal"`: what was acknowledged is there when the state is opened again, on top of the newest epoch."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from lsmstate.engine.wal import WriteAheadLog
from tests.support.states import World, batch, rows_of
from tests.support.wal_world import after_power_cut, row, wal


def test_acknowledged_writes_are_there_without_any_epoch(world: World) -> None:
    store = wal(world)
    assert store.append(0, batch(row(1), row(2))) == 1
    assert store.append(1, batch((3, 3, None))) == 3
    store.remove(0, 1, 2)
    store.advance_watermark(7)
    again = after_power_cut(world)
    assert rows_of(again.scan(0)) == [row(2)]
    assert rows_of(again.scan(1)) == [(3, 3, None)]
    assert (again.watermark, again.next_id, again.epochs()) == (7, 5, [])


def test_rows_get_the_ids_again_that_they_had(world: World) -> None:
    store = wal(world)
    given = [store.append(n % 2, batch(*(row(10 * n + i) for i in range(n)))) for n in range(1, 5)]
    ids = [part.column("__row_id").to_pylist() for part in store.view().scan(0, row_ids=True)]
    again = after_power_cut(world)
    assert [part.column("__row_id").to_pylist() for part in again.view().scan(0, row_ids=True)] == ids
    assert again.append(0, batch(row(99))) == given[-1] + 4


def test_spilled_rows_come_once(world: World) -> None:
    store = wal(world, memtable_bytes=1)
    for n in range(8):
        store.append(n % 2, batch(row(n)))
    again = after_power_cut(world, memtable_bytes=1)
    assert rows_of(again.scan(0)) == [row(n) for n in (0, 2, 4, 6)]
    again.snapshot_epoch(1)
    assert rows_of(after_power_cut(world).scan(1)) == [row(n) for n in (1, 3, 5, 7)]
    assert again.verify() == []


def test_batches_in_many_forms_come_back_as_they_were(world: World) -> None:
    store = wal(world)
    whole = batch(*(row(n) for n in range(20)))
    store.append(0, whole.slice(3, 5))
    store.append(0, pa.Table.from_batches([whole.slice(10, 2), whole.slice(15, 3)]))
    store.append(0, whole.slice(0, 0))
    store.append(0, whole.select(["v", "k", "ts"]).slice(19, 1))
    expected = rows_of(store.scan(0))
    assert rows_of(after_power_cut(world).scan(0)) == expected
    assert len(expected) == 11


def test_closed_store_is_there_when_it_is_opened_again(world: World) -> None:
    for n in range(4):
        with wal(world) as store:
            assert rows_of(store.scan(0)) == [row(m) for m in range(n)]
            store.append(0, batch(row(n)))


def test_writers_in_threads_all_find_their_rows(world: World) -> None:
    store = wal(world)
    errors: list[Exception] = []

    def write(n: int) -> None:
        try:
            for m in range(8):
                store.append(n % 2, batch((n, m, f"{n} {m}")))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for epoch in range(1, 4):
        store.snapshot_epoch(epoch)
    for thread in threads:
        thread.join()
    assert errors == []
    again = after_power_cut(world)
    for side in (0, 1):
        expected = sorted((n, m, f"{n} {m}") for n in range(side, 6, 2) for m in range(8))
        assert sorted(rows_of(again.scan(side))) == expected
    assert again.verify() == []


def test_write_lock_is_not_held_during_the_fsync(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = wal(world)
    free: list[bool] = []
    sync, lock = WriteAheadLog.sync, store._core.write_lock

    def look() -> None:
        free.append(lock.acquire(timeout=10))
        if free[-1]:
            lock.release()

    def watched(log: WriteAheadLog, position: int) -> None:
        other = threading.Thread(target=look)
        other.start()
        other.join()
        sync(log, position)

    store.append(0, batch(row(1)))
    monkeypatch.setattr(WriteAheadLog, "sync", watched)
    store.append(0, batch(row(2)))
    assert free == [True]
