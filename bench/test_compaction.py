"""A join's state over a long life: flat epochs, few runs, little written twice; and what compaction and GC cost."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.retention_runs import SCHEMA, SECOND_US, Workload, run_ours, run_peer
from bench.workload import keys_of, rows_of, texts
from lsmstate import Options, Side, StateStore

WORKLOADS = {
    "a: ordered times": (Workload(50_000, 300, kept=48), 3.0),
    "b: disorder over half of the retention": (Workload(50_000, 300, kept=32, disorder=16), 5.0),
    "c: 2,000 flushes into each bucket": (Workload(300, 18_000, kept=10_000, flushes_a_bucket=2000), 8.0),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_long_life(name: str, tmp_path: Path) -> None:
    work, write_most = WORKLOADS[name]
    ours = run_ours(tmp_path / "ours", work)
    warm = ours.seconds[len(ours.seconds) // 10 :]
    print(f"\n{name}: {work.epochs} epochs of {work.rows:,} rows, median {np.median(warm) * 1e3:.1f} ms")
    print(f"last tenth {ours.flatness:.2f} of the second; 99th percentile {ours.tail:.2f} of the median", end="")
    print(f" (max {max(warm) * 1e3:.0f} ms); at most {ours.runs_max} runs; disk grows by {ours.growth:.2f}")
    print(f"write amplification {ours.write:.2f}; space {ours.space:.2f}", end="")
    print(f", with older epochs {ours.space_with_history:.2f}")
    if work.rows > 1000:
        peer = run_peer(tmp_path / "peer", work)
        ratio = sum(peer.seconds) / sum(ours.seconds)
        print(f"whole run {sum(ours.seconds):.1f} s, rocksdict {sum(peer.seconds):.1f} s: ratio {ratio:.2f}")
        assert ratio >= 6
    assert ours.runs_max <= 32
    assert ours.flatness <= 1.2
    assert ours.tail <= 2.5
    assert ours.growth <= 1.15
    assert ours.write <= write_most
    assert ours.space <= 1.3


def bucket_store(path: Path, rows: int) -> StateStore:
    """A store with one settled bucket of so many rows, in a file of its own, and a little beside it."""
    side = Side("s", SCHEMA, ["key"], "ts", timedelta(seconds=16), timedelta(seconds=1))
    store = StateStore.open(path, [side], Options(retain=1, auto_compact=False))
    rng = np.random.default_rng(3)
    for number in range(10):
        ids = np.arange(number * (rows // 10), (number + 1) * (rows // 10))
        store.append(0, rows_of(keys_of(ids, "int"), rng.integers(0, SECOND_US, len(ids)), rng))
        store.snapshot_epoch(number + 1)
    store.append(0, rows_of(keys_of(np.arange(-100, 0), "int"), np.full(100, 20 * SECOND_US), rng))
    store.advance_watermark(2 * SECOND_US)
    store.snapshot_epoch(11)
    store.compact()
    store.snapshot_epoch(12)
    store.snapshot_epoch(13)
    return store


def test_gc_of_a_bucket_costs_the_same_however_large(tmp_path: Path) -> None:
    took: dict[int, list[float]] = {50_000: [], 5_000_000: []}
    for turn in range(5):
        for rows, times in took.items():
            with bucket_store(tmp_path / f"{rows}-{turn}", rows) as store:
                files = store.stats().files
                store.advance_watermark(18 * SECOND_US)
                begun = time.perf_counter()
                store.snapshot_epoch(14)
                times.append(time.perf_counter() - begun)
                assert store.stats().files == files - 1
                assert sum(batch.num_rows for batch in store.scan(0)) == 100
    small, large = (float(np.median(times)) * 1e3 for times in took.values())
    print(f"\nGC of an expired bucket: 50k rows {small:.2f} ms, 5M rows {large:.2f} ms, {large / small:.2f} times")
    assert large <= 2 * small


def test_compaction_speed(tmp_path: Path) -> None:
    """int64 key, payload of 50 bytes: eight runs of 500k rows become one."""
    schema = pa.schema([("key", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("payload", pa.string())])
    side = Side("s", schema, ["key"], "ts", timedelta(hours=1))
    rates, writes = [], []
    for turn in range(3):
        rng = np.random.default_rng(turn)
        with StateStore.open(tmp_path / f"{turn}", [side], Options(auto_compact=False)) as store:
            for number in range(8):
                rows = 500_000
                ts = pa.array(rng.integers(0, SECOND_US, rows)).cast(schema.field("ts").type)
                keys = pa.array(rng.integers(-(2**63), 2**63 - 1, rows))
                store.append(0, pa.RecordBatch.from_arrays([keys, ts, texts(rows, 50, rng)], schema=schema))
                store.snapshot_epoch(number + 1)
            begun = time.perf_counter()
            store.compact(major=True)
            took = time.perf_counter() - begun
            stats = store.stats()
            assert (stats.sides[0].runs, stats.sides[0].rows) == (1, 4_000_000)
            rates.append(stats.compaction.rows_merged / took)
            size = stats.compaction.bytes_written
        writes.append(4_000_000 / merely_written(tmp_path / f"plain-{turn}", size))
    rate, write = float(np.median(rates)), float(np.median(writes))
    print(f"\ncompaction: {rate / 1e6:.2f}M rows/s, {rate / write:.2f} of merely writing those bytes")
    assert rate >= 5e6 or rate >= 0.5 * write


def merely_written(path: Path, size: int) -> float:
    """Seconds to write and fsync so many bytes."""
    block = os.urandom(8 << 20)
    begun = time.perf_counter()
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    for at in range(0, size, len(block)):
        os.write(fd, block[: size - at])
    os.fsync(fd)
    os.close(fd)
    return time.perf_counter() - begun
