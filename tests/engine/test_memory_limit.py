"""Stores that share a memory controller: they spill early, wait for each other, and lose nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from unittest import mock

import pytest

from iopool import MemoryController, WorkerPool
from lsmstate import BackpressureTimeout, Options, StateStore
from tests.support.simfs import SimFileSystem
from tests.support.states import batch, plain, sides

KB = 1 << 10


def rows(first: int, count: int) -> object:
    return batch(*((n, n, "x" * 50) for n in range(first, first + count)))


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool()
    yield made
    assert made.close(30.0)


def opened(path: str, memory: MemoryController, pool: WorkerPool, fs: SimFileSystem | None = None) -> StateStore:
    options = Options(memtable_bytes=1 << 30, auto_compact=False)
    return StateStore.open(path, sides(), options, fs=fs or SimFileSystem(), pool=pool, memory=memory)


def test_soft_limit_spills_in_the_middle_of_an_epoch(pool: WorkerPool) -> None:
    memory = MemoryController(20 * KB, 200 * KB)
    with opened("/a", memory, pool) as store:
        for n in range(20):
            store.append(0, rows(n * 100, 100))
        store.snapshot_epoch(1)
        assert store.stats().files > 1
        assert memory.usage().used_bytes == 0
        assert len(list(plain(store.scan(0)))) == 2000
    assert memory.usage().peak_bytes <= 200 * KB


def test_store_that_is_not_written_to_spills_for_one_that_waits(pool: WorkerPool) -> None:
    memory = MemoryController(40 * KB, 40 * KB, timeout=30.0)
    with opened("/a", memory, pool) as idle, opened("/b", memory, pool) as busy:
        idle.append(0, rows(0, 300))
        held = memory.usage().used_bytes
        assert held > 20 * KB
        busy.append(0, rows(0, 300))
        assert memory.usage().used_bytes <= 40 * KB
        assert len(list(plain(idle.scan(0)))) == len(list(plain(busy.scan(0)))) == 300
        idle.snapshot_epoch(1)
        busy.snapshot_epoch(1)
    assert memory.usage().used_bytes == 0


def test_batch_larger_than_the_limit_passes_on_its_own(pool: WorkerPool) -> None:
    memory = MemoryController(4 * KB, 8 * KB)
    with opened("/a", memory, pool) as store:
        store.append(0, rows(0, 20))
        store.append(0, rows(1000, 1000))
        store.snapshot_epoch(1)
        assert len(list(plain(store.scan(0)))) == 1020


def test_writer_that_waits_too_long_is_told_and_nothing_is_added(pool: WorkerPool) -> None:
    memory = MemoryController(20 * KB, 20 * KB, timeout=0.3)
    other = memory.account("something else")
    other.reserve(18 * KB)
    with opened("/a", memory, pool) as store:
        with pytest.raises(BackpressureTimeout, match="/a: "):
            store.append(0, rows(0, 100))
        assert list(store.scan(0)) == []
        other.close()
        store.append(0, rows(0, 100))
        store.snapshot_epoch(1)
        assert len(list(plain(store.scan(0)))) == 100


def test_failed_spill_is_readable_counted_and_tried_again(pool: WorkerPool) -> None:
    memory = MemoryController(10 * KB, 40 * KB)
    with opened("/a", memory, pool) as store:
        with mock.patch("lsmstate.engine.flush.write_sstable", side_effect=OSError(28, "No space left on device")):
            store.append(0, rows(0, 100))
            store.append(0, rows(100, 100))
            with pytest.raises(OSError, match="No space"):
                store.prepare(1)
            assert len(list(plain(store.scan(0)))) == 200
            assert memory.usage().used_bytes > 0
        assert store.stats().lanes["spill"].failed > 0
        store.append(0, rows(200, 200))
        store.snapshot_epoch(1)
        assert len(list(plain(store.scan(0)))) == 400
        assert memory.usage().used_bytes == 0


def test_restore_gives_back_what_it_forgets(pool: WorkerPool) -> None:
    memory = MemoryController(1 << 20, 1 << 20)
    with opened("/a", memory, pool) as store:
        store.snapshot_epoch(1)
        store.append(0, rows(0, 100))
        store.restore(1)
        assert memory.usage().used_bytes == 0
        store.append(0, rows(0, 100))
    assert memory.usage().used_bytes == 0


def test_many_writers_share_a_small_limit(pool: WorkerPool) -> None:
    memory = MemoryController(30 * KB, 60 * KB)
    stores = [opened(f"/{n}", memory, pool) for n in range(4)]
    errors: list[BaseException] = []

    def write(store: StateStore) -> None:
        try:
            for epoch in range(1, 6):
                for n in range(5):
                    store.append(0, rows(epoch * 10_000 + n * 100, 100))
                store.snapshot_epoch(epoch)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    for store in stores:
        assert len(list(plain(store.scan(0)))) == 2500
        store.close()
    assert memory.usage().used_bytes == 0
    assert memory.usage().peak_bytes <= 60 * KB
