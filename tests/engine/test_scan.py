"""The scan: bucket by bucket, in bounded batches, reading only runs that can hold a row of the range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pytest

from lsmstate import StateStore
from lsmstate.keys import TS_MAX, TS_MIN
from lsmstate.sstable.filters import KeyFilter
from lsmstate.sstable.reader import StoredRun
from tests.support.model import in_bucket_order
from tests.support.states import SCHEMA, World, batch, plain, rows_of, sides

DAY = 86_400_000_000
YEAR = 365 * DAY
RUNS_MAX = 32


@pytest.fixture
def world() -> Iterator[World]:
    with World() as world:
        yield world


def times(batches: Iterable[pa.RecordBatch]) -> list[int]:
    return [row[1] for row in plain(batches)]


def backfill(count: int, seed: int = 1) -> pa.RecordBatch:
    """Rows at distinct times over a year."""
    rng = np.random.default_rng(seed)
    ts = rng.choice(YEAR // count, count) + np.arange(count) * (YEAR // count)
    columns = [pa.array(rng.integers(0, 1000, count)), pa.array(rng.permutation(ts)), pa.nulls(count, pa.string())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def test_scan_of_an_empty_store_gives_nothing(world: World) -> None:
    store = world.open()
    assert list(store.scan(0)) == []
    store.snapshot_epoch(1)
    assert list(store.scan(0, ordered=True)) == []
    assert list(store.scan(1, 0, 10)) == []


def test_scan_includes_start_and_excludes_end(world: World) -> None:
    store = world.open()
    store.append(0, batch(*[(1, ts, "x") for ts in (-11, -10, 0, 9, 10, 19, 20)]))
    assert times(store.scan(0, -10, 19, ordered=True)) == [-10, 0, 9, 10]
    assert times(store.scan(0, 20, None)) == [20]
    assert times(store.scan(0, None, -10)) == [-11]
    assert times(store.scan(0, 5, 5)) == []
    assert times(store.scan(0, 9, 5)) == []


def test_scan_reaches_the_ends_of_time(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, TS_MAX, "z"), (1, TS_MIN, "a"), (1, 0, "m")))
    for _ in range(2):
        assert times(store.scan(0)) == [TS_MIN, 0, TS_MAX]
        assert times(store.scan(0, TS_MIN, TS_MAX, ordered=True)) == [TS_MIN, 0]
        assert times(store.scan(0, -(10**30), 10**30)) == [TS_MIN, 0, TS_MAX]
        assert times(store.scan(0, TS_MAX)) == [TS_MAX]
        store.snapshot_epoch(store.stats().epoch + 1)


def test_watermark_at_the_end_of_time_retires_all() -> None:
    with World(sides(retention=0)) as world:
        store = world.open()
        store.append(0, batch((1, TS_MAX, "z"), (1, 0, "m")))
        store.advance_watermark(TS_MAX)
        assert times(store.scan(0)) == []
        assert list(store.probe(0, batch((1, 0, None)))) == []


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_scan_of_overlapping_runs_goes_bucket_by_bucket(world: World, ordered: bool, batch_rows: int) -> None:
    store = world.open(batch_rows=batch_rows)
    rng = np.random.default_rng(3)
    wanted = []
    for epoch in range(1, 13):
        low, high = sorted(rng.integers(-100, 100, 2).tolist())
        rows = [(n, int(ts), f"{epoch}/{n}") for n, ts in enumerate(rng.integers(low, high + 1, 20))]
        wanted += rows
        store.append(0, batch(*rows))
        if epoch % 3:
            store.snapshot_epoch(epoch)
    batches = list(store.scan(0, ordered=ordered))
    assert max(part.num_rows for part in batches) <= batch_rows
    assert in_bucket_order(store.sides[0], times(batches), ordered=ordered)
    assert rows_of(batches) == sorted(wanted)


def test_ordered_scan_keeps_the_order_of_arrival_of_equal_times(world: World) -> None:
    store = world.open(memtable_bytes=1)
    for number in range(10):
        store.append(0, batch((9 - number, 5, str(number))))
    assert [row[2] for row in plain(store.scan(0, ordered=True))] == [str(n) for n in range(10)]


def test_sides_do_not_mix(world: World) -> None:
    store = world.open()
    store.append(0, batch((1, 5, "left")))
    store.append(1, batch((1, 5, "right")))
    store.snapshot_epoch(1)
    assert rows_of(store.scan(0)) == [(1, 5, "left")]
    assert rows_of(store.scan(1)) == [(1, 5, "right")]


def test_backfill_of_a_year_becomes_one_run_of_each_side() -> None:
    with World(sides(bucket=1_000_000)) as world:
        store = world.open()
        rows = backfill(100_000)
        store.append(0, rows)
        store.append(1, rows)
        store.snapshot_epoch(1)
        assert [side.runs for side in store.stats().sides] == [1, 1]
        assert times(store.scan(0, ordered=True)) == sorted(rows["ts"].to_pylist())
        start, end = 100 * DAY, 101 * DAY
        wanted = [ts for ts in sorted(rows["ts"].to_pylist()) if start <= ts < end]
        assert times(store.scan(0, start, end, ordered=True)) == wanted


def test_many_flushes_of_sparse_times_stay_bounded_in_runs() -> None:
    with World(sides(bucket=1_000_000)) as world:
        store = world.open(auto_compact=True)
        for epoch in range(1, 60):
            store.append(0, backfill(500, epoch))
            store.snapshot_epoch(epoch)
            assert store.stats().sides[0].runs <= RUNS_MAX


class Asked:
    """Counts what is asked of key filters, and which runs are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.filters = self.denied = self.read = 0
        may_contain, run_times = KeyFilter.may_contain, StoredRun.times

        def asked(filter_: KeyFilter, keys: Iterable[bytes]) -> bool:
            self.filters += 1
            answer = may_contain(filter_, keys)
            self.denied += not answer
            return answer

        def read(run: StoredRun, rows: object = None) -> object:
            self.read += 1
            return run_times(run, rows)  # type: ignore[arg-type]

        monkeypatch.setattr(KeyFilter, "may_contain", asked)
        monkeypatch.setattr(StoredRun, "times", read)


@pytest.fixture
def sparse() -> Iterator[StateStore]:
    """One wide run of a file: buckets of a second, with rows in few of them."""
    with World(sides(bucket=1_000_000)) as world:
        store = world.open()
        store.append(0, batch(*[(1, day * DAY, str(day)) for day in range(0, 400, 2)]))
        store.snapshot_epoch(1)
        yield store


def test_key_filter_keeps_a_narrow_scan_from_reading(sparse: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    for day in range(1, 399, 2):
        assert times(sparse.scan(0, day * DAY, day * DAY + 5_000_000)) == []
    assert asked.filters > 150  # not asked where the range lies between two runs
    assert asked.denied > asked.filters * 0.8  # the filter may err
    assert asked.read <= 2 * (asked.filters - asked.denied)  # a run that is read is asked twice for its times
    before = asked.read
    assert times(sparse.scan(0, 200 * DAY, 200 * DAY + 5_000_000)) == [200 * DAY]
    assert asked.read > before


def test_key_filter_keeps_a_narrow_probe_from_reading(sparse: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    for day in range(1, 399, 2):
        assert list(sparse.probe(0, batch((1, day * DAY, None)), -1000, 1000)) == []
    assert asked.denied > asked.filters * 0.8 > 100
    assert rows_of(sparse.probe(0, batch((1, 200 * DAY, None)), -1000, 1000)) == [(1, 200 * DAY, "200", 0)]


def test_scan_outside_of_all_runs_opens_no_file(sparse: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sparse.stats().open_files == 0
    assert times(sparse.scan(0, -5 * DAY, -DAY)) == []
    assert times(sparse.scan(0, YEAR * 10, None)) == []
    assert list(sparse.probe(0, batch((1, -DAY, None)), -5, 5)) == []
    assert sparse.stats().open_files == 0
