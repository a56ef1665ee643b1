"""What a write-ahead log costs: appends with and without one, and group commit against an fsync for each writer."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from lsmstate import Options, Side, StateStore

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
SIDE = Side("events", SCHEMA, keys=["k"], time="ts", retention=timedelta(hours=1))
APPENDS, WRITERS = 64, 8


def rows(count: int) -> pa.RecordBatch:
    data = {"k": range(count), "ts": range(count), "v": [f"value {n}" for n in range(count)]}
    return pa.RecordBatch.from_pydict({name: list(column) for name, column in data.items()}, schema=SCHEMA)


@pytest.mark.parametrize("count", [1, 1_000, 100_000])
@pytest.mark.parametrize("durability", ["epoch", "wal"])
def test_append(benchmark: BenchmarkFixture, tmp_path: Path, durability: str, count: int) -> None:
    batch = rows(count)
    with StateStore.open(tmp_path / "s", [SIDE], Options(durability=durability, memtable_bytes=64 << 20)) as store:
        store.append(0, batch)
        benchmark.pedantic(store.append, (0, batch), rounds=20)


@pytest.mark.parametrize("writers", [1, WRITERS])
def test_64_appends_of_100_rows(benchmark: BenchmarkFixture, tmp_path: Path, writers: int) -> None:
    """By one writer, each append waits for an fsync of its own; by several, they share them."""
    batch = rows(100)
    with StateStore.open(tmp_path / "s", [SIDE], Options(durability="wal", memtable_bytes=64 << 20)) as store:
        store.append(0, batch)

        def write() -> None:
            for _ in range(APPENDS // writers):
                store.append(0, batch)

        def run() -> None:
            threads = [threading.Thread(target=write) for _ in range(writers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        benchmark.pedantic(run, rounds=5)


@pytest.mark.parametrize("durability", ["epoch", "wal"])
def test_commit(benchmark: BenchmarkFixture, tmp_path: Path, durability: str) -> None:
    batch, epochs = rows(10_000), iter(range(1, 100))
    with StateStore.open(tmp_path / "s", [SIDE], Options(durability=durability)) as store:

        def setup() -> tuple[tuple[int], dict[str, object]]:
            store.append(0, batch)
            return (next(epochs),), {}

        benchmark.pedantic(store.snapshot_epoch, setup=setup, rounds=10)


def test_open_and_replay_10k_rows(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with StateStore.open(tmp_path / "s", [SIDE], Options(durability="wal")) as store:
        for _ in range(100):
            store.append(0, rows(100))
    benchmark.pedantic(lambda: StateStore.open(tmp_path / "s", [SIDE], Options(durability="wal")).close(), rounds=5)
