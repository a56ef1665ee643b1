"""Compaction of a store: the same rows in fewer runs, whoever reads, restores, crashes or is damaged meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from compaction import RUNS_MAX
from lsmstate import CorruptionError, Options, Side, StateStore
from lsmstate.engine.merge import PIECE_ROWS
from lsmstate.manifest import names
from lsmstate.sstable.reader import SSTable
from tests.support.simfs import SimFileSystem
from tests.support.states import PATH, World, batch, plain, sides

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.string()), ("b", pa.bool_())])
KEPT = Side("kept", SCHEMA, ["k"], "ts", timedelta(seconds=16))


@pytest.fixture
def world() -> Iterator[World]:
    with World() as made:
        yield made


def rows_between(first: int, count: int, ts: int) -> pa.RecordBatch:
    keys = range(first, first + count)
    values = [None if n % 7 == 0 else f"value {n}" for n in keys]
    return pa.RecordBatch.from_arrays(
        [pa.array(keys), pa.array([ts] * count), pa.array(values), pa.array([n % 3 == 0 for n in keys])], schema=SCHEMA
    )


def small_epochs(store: StateStore, count: int, first: int = 1) -> None:
    for epoch in range(first, first + count):
        store.append(0, batch((epoch, epoch, f"v{epoch}"), (epoch % 3, epoch, "hot")))
        store.snapshot_epoch(epoch)


def test_runs_stay_few_by_themselves_and_rows_stay_the_same(world: World) -> None:
    store = world.open(auto_compact=True)
    small_epochs(store, 100)
    assert store.stats().sides[0].runs <= RUNS_MAX
    assert store.stats().compaction.merges > 0
    assert Counter(plain(store.scan(0))) == Counter(
        row for n in range(1, 101) for row in ((n, n, f"v{n}"), (n % 3, n, "hot"))
    )
    assert store.verify() == []


def test_without_auto_compact_nothing_is_merged_until_told(world: World) -> None:
    store = world.open(auto_compact=False)
    small_epochs(store, 40)
    assert store.stats().sides[0].runs == 40
    store.compact()
    assert store.stats().sides[0].runs < 20
    store.compact(major=True)
    assert store.stats().sides[0].runs == 1


def test_older_epochs_and_snapshots_keep_what_they_read(world: World) -> None:
    store = world.open(auto_compact=False, retain=3)
    small_epochs(store, 20)
    then = Counter(plain(store.scan(0)))
    with store.snapshot() as view:
        store.remove(0, 0, 15)
        store.compact(major=True)
        store.snapshot_epoch(21)
        store.snapshot_epoch(22)
        store.snapshot_epoch(23)
        store.snapshot_epoch(24)
        assert Counter(plain(view.scan(0))) == then
    left = Counter(row for row in then.elements() if row[1] >= 15)
    assert Counter(plain(store.scan(0))) == left


def test_compaction_folds_removed_rows_and_then_the_tombstones_go(world: World) -> None:
    store = world.open(auto_compact=False)
    small_epochs(store, 5)
    store.remove(0, 2, 4)
    store.snapshot_epoch(6)
    assert store.stats().tombstones == 1
    store.compact(major=True)
    store.snapshot_epoch(7)
    assert (store.stats().tombstones, store.stats().sides[0].rows) == (0, 6)
    assert {row[1] for row in plain(store.scan(0))} == {1, 4, 5}


def test_row_removed_while_a_merge_waits_stays_removed(world: World) -> None:
    store = world.open(auto_compact=False)
    small_epochs(store, 15)
    store._core.compactor._work(store._core.working)  # a merge of another process: its note is not adopted yet
    store.remove(0, 3, 6)
    store.snapshot_epoch(16)
    assert store.stats().compaction.adopted > 0
    store.snapshot_epoch(17)
    assert {row[1] for row in plain(store.scan(0))} == {1, 2, *range(6, 16)}
    assert store.verify() == []


def test_settled_unit_ends_as_one_file_that_goes_with_the_watermark() -> None:
    fs = SimFileSystem()
    with StateStore.open(PATH, [KEPT], Options(retain=1, auto_compact=False), fs=fs) as store:
        for epoch in range(1, 9):
            for back in range(3):
                store.append(0, rows_between(epoch * 100 + back * 10, 5, (epoch - back) * SECOND))
            store.advance_watermark((epoch - 3) * SECOND)
            store.snapshot_epoch(epoch)
        store.compact()
        store.snapshot_epoch(9)
        runs = [run for run in store._core.working.parts() if run.first_bucket == run.last_bucket]
        settled = [run.first_bucket for run in runs if run.first_bucket <= 5]
        assert sorted(settled) == list(range(-1, 6))  # each once: the watermark is at the end of 5 s
        before = len(fs.list_dir(f"{PATH}/sst"))
        store.advance_watermark(20 * SECOND)
        with mock.patch("lsmstate.sstable.cache.SSTable", side_effect=AssertionError("a file was opened")):
            store.snapshot_epoch(10)
        assert len(fs.list_dir(f"{PATH}/sst")) < before
        assert min(ts for _, ts, *_ in plain(store.scan(0))) == 5 * SECOND
        assert store.verify() == []


def test_merge_larger_than_a_piece_keeps_every_value(tmp_path: Path) -> None:
    count = PIECE_ROWS + 1000
    with StateStore.open(tmp_path / "state", [KEPT], Options(auto_compact=False)) as store:
        for epoch in (1, 2, 3):
            store.append(0, rows_between(epoch * 1_000_000, count, epoch))
            store.snapshot_epoch(epoch)
        expected = pa.Table.from_batches(store.scan(0)).sort_by("k")
        with mock.patch("lsmstate.engine.shape._RUN_ROWS_MAX", 2 * PIECE_ROWS):
            store.compact(major=True)
        store.snapshot_epoch(4)
        assert store.stats().sides[0].runs == 2
        assert pa.Table.from_batches(store.scan(0)).sort_by("k").equals(expected)
        assert store.verify() == []


def test_merge_that_was_given_up_leaves_nothing(world: World) -> None:
    store = world.open(auto_compact=False)
    small_epochs(store, 15)
    before = sorted(world.fs.list_dir(f"{PATH}/sst"))
    with (
        mock.patch("lsmstate.engine.merge.merge_order", side_effect=OSError(28, "No space left on device")),
        pytest.raises(OSError, match="No space"),
    ):
        store.compact()
    assert sorted(world.fs.list_dir(f"{PATH}/sst")) == before
    assert world.fs.list_dir(f"{PATH}/{names.MERGE_DIR}") == []
    assert "No space" in (store.stats().compaction.last_error or "")
    store.compact()
    assert store.stats().sides[0].runs == 1


def test_failing_compaction_in_the_background_harms_nothing(world: World) -> None:
    store = world.open(auto_compact=True)
    with mock.patch("lsmstate.engine.merge.merge_order", side_effect=OSError(28, "No space left on device")):
        small_epochs(store, 30)
        store._core.compactor.wait_quietly()
    assert "No space" in (store.stats().compaction.last_error or "")
    small_epochs(store, 10, first=31)
    assert len(list(plain(store.scan(0)))) == 80
    assert store.verify() == []


def test_damaged_file_is_left_as_it_is_and_the_rest_is_merged(world: World) -> None:
    store = world.open(auto_compact=False)
    small_epochs(store, 15)
    bad = sorted(world.fs.list_dir(f"{PATH}/sst"))[3]
    path = f"{PATH}/sst/{bad}"
    data = bytearray(world.fs.read(path, 1 << 20))
    data[SSTable(world.fs, path).index["runs"][0]["time"][0]] ^= 1
    world.fs.unlink(path)
    with_damage = world.fs.create(path)
    with_damage.write([bytes(data)])
    with_damage.close()
    store._core.cache.clear()
    store.compact()
    assert bad in (store.stats().compaction.last_error or "")
    assert bad in store._core.working.files
    assert store.stats().sides[0].runs == 2
    with pytest.raises(CorruptionError, match=bad):
        list(store.scan(0))


def test_note_that_is_torn_or_of_another_state_is_passed_over(world: World) -> None:
    store = world.open(auto_compact=False)
    small_epochs(store, 3)
    for number, data in enumerate((b"", b"lsmstate 1 ", b"\xff" * 50)):
        file = world.fs.create(f"{PATH}/{names.MERGE_DIR}/000000000002-000001-dead-00000{number}.merge")
        file.write([data])
        file.close()
    store.snapshot_epoch(4)
    assert store.stats().compaction.adopted == 0
    store.compact(major=True)  # whose job finds that their writers have died
    assert all("dead" not in name for name in world.fs.list_dir(f"{PATH}/{names.MERGE_DIR}"))


def test_one_process_at_a_time_compacts(world: World) -> None:
    store = world.open(auto_compact=False)
    small_epochs(store, 15)
    lock = world.fs.spawn().lock(f"{PATH}/{names.COMPACTION_LOCK}")
    assert lock is not None
    store.compact()
    assert store.stats().compaction.merges == 0
    lock.release()
    store.compact()
    assert store.stats().compaction.merges == 1


def test_handle_that_is_closed_does_not_wait_for_its_merge(world: World) -> None:
    store = StateStore.open(PATH, sides(), Options(), fs=world.fs.spawn())
    small_epochs(store, 30)
    store.close()
    again = world.open()
    assert len(list(plain(again.scan(0)))) == 60


class Waited:
    """A job that is done only if somebody waits for it: its process ends before anything else would be."""

    def __init__(self, job: Callable[[], object]) -> None:
        self._job, self._done = job, False

    def done(self) -> bool:
        return self._done

    def result(self, timeout: float | None = None) -> object:
        self._done = True
        return self._job()


class ShortLived:
    """The pool of such a process. Spills are always waited for."""

    def submit(self, lane: str, job: Callable[[], object], *, timeout: float | None = None) -> Waited:
        return Waited(job)

    def metrics(self) -> dict[str, object]:
        return {}


def test_runs_stay_bounded_though_every_process_ends_at_once() -> None:
    fs, candidate, most = SimFileSystem(), None, 0
    for epoch in range(1, 81):
        pool: Any = ShortLived()  # does what the engine asks of a WorkerPool, in the caller's thread
        with StateStore.open_candidate(PATH, candidate, sides(), fs=fs.spawn(), pool=pool) as store:
            store.append(0, batch((epoch, epoch, "v")))
            candidate = store.prepare(epoch)
            store.retire(max(1, epoch - 3))
            most = max(most, store.stats().sides[0].runs)
            assert len(list(plain(store.scan(0)))) == epoch
    assert 20 < most <= RUNS_MAX
    assert len(fs.list_dir(f"{PATH}/sst")) < 2 * RUNS_MAX


def test_large_files_are_removed_in_the_background(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lsmstate.engine.garbage._LARGE_BYTES", 1)
    store = world.open(retain=1)
    small_epochs(store, 5)
    store.compact(major=True)
    for epoch in range(6, 10):
        store.snapshot_epoch(epoch)
    assert world.pool.close(30.0)
    (left,) = store._core.working.files
    assert world.fs.list_dir(f"{PATH}/sst") == [left]
    assert store._core.collector.sizes.keys() <= {left} | store._core.collector.leaving
    assert len(list(plain(store.scan(0)))) == 10
