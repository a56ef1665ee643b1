"""Long runs under a turning watermark, epoch by epoch: ours and RocksDB's, on the same rows.

An epoch appends rows, probes as many of the last ones by key, lets the watermark retire what is older than the
retention, and makes all of it durable.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.rocks_peer import RocksJoinState, pack_payloads
from bench.states import sides
from bench.workload import TIME, _batch, keys_of
from lsmstate import StateStore

SECOND_US = 1_000_000


@dataclass(frozen=True)
class Workload:
    """rows: of an epoch. epochs: how many. kept: the retention, in epochs. disorder: how far back rows lie."""

    rows: int
    epochs: int
    kept: int
    disorder: float

    @property
    def retention(self) -> timedelta:
        return timedelta(seconds=self.kept)

    def batches(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, int]]:
        """New rows, probes for rows that are alive, and the watermark after them. An epoch is a second long."""
        rng = np.random.default_rng(11)
        for epoch in range(self.epochs):
            now = (epoch + 1) * SECOND_US
            back = int((1 + self.disorder) * SECOND_US)
            ts = now - rng.integers(0, back, self.rows)
            ids = np.arange(epoch * self.rows, (epoch + 1) * self.rows)
            first = max(0, epoch - self.kept // 2) * self.rows
            asked = rng.integers(first, (epoch + 1) * self.rows, self.rows)
            probes = _batch(keys_of(asked, "int"), np.full(self.rows, now), rng)
            yield _batch(keys_of(ids, "int"), ts, rng), probes, now - back


@dataclass
class Run:
    """What one engine did: seconds of each epoch, and of ours what the state looked like."""

    seconds: list[float] = field(default_factory=list)
    found: int = 0
    runs: list[int] = field(default_factory=list)
    disk_bytes: list[int] = field(default_factory=list)
    amplification: dict[str, float] = field(default_factory=dict)

    def tenth(self, number: int) -> float:
        size = len(self.seconds) // 10
        return statistics.median(self.seconds[number * size : (number + 1) * size])

    @property
    def flatness(self) -> float:
        """The median of the last tenth of epochs over that of the second."""
        return self.tenth(9) / self.tenth(1)

    @property
    def tail(self) -> float:
        """The 99th percentile over the median, from the second tenth on."""
        warm = self.seconds[len(self.seconds) // 10 :]
        return float(np.percentile(warm, 99)) / statistics.median(warm)


def run_ours(path: Path, work: Workload) -> Run:
    """All epochs by lsmstate."""
    told = Run()
    lower = -2 * work.kept * SECOND_US
    flushed = 0
    with StateStore.open(path, sides("int", work.retention)) as store:
        for epoch, (rows, probes, watermark) in enumerate(work.batches(), 1):
            begun = time.perf_counter()
            store.append(0, rows)
            told.found += sum(batch.num_rows for batch in store.probe(0, probes, lower, 0))
            store.advance_watermark(watermark)
            store.snapshot_epoch(epoch)
            told.seconds.append(time.perf_counter() - begun)
            stats = store.stats()
            told.runs.append(stats.sides[0].runs)
            if epoch % max(1, work.epochs // 30) == 0:
                told.disk_bytes.append(sum(file.stat().st_size for file in (path / "sst").iterdir()))
        store.compact()
        store.snapshot_epoch(work.epochs + 1)
        stats = store.stats()
        live = sum(batch.num_rows for batch in store.scan(0))
        counters = store._core.compactor.counters
        flushed = sum(store._flushed) if hasattr(store, "_flushed") else 0
        per_row = stats.file_bytes / max(stats.sides[0].rows, 1)
        told.amplification = {
            "merged bytes": counters.bytes_written,
            "space": stats.file_bytes / (live * per_row) if live else 0.0,
        }
        del flushed
    return told


def run_peer(path: Path, work: Workload) -> Run:
    """All epochs by RocksDB, which deletes what has expired."""
    told = Run()
    lower = -2 * work.kept * SECOND_US
    state = RocksJoinState(path)
    waiting: deque[tuple[np.ndarray, np.ndarray, np.ndarray]] = deque()
    for rows, probes, watermark in work.batches():
        begun = time.perf_counter()
        keys, ts = rows.column("key").to_numpy(), rows.column("ts").cast(pa.int64()).to_numpy()
        first = state._seq
        state.append(0, keys, ts, pack_payloads(rows))
        asked = probes.column("key").to_numpy(), probes.column("ts").cast(pa.int64()).to_numpy()
        told.found += state.probe(0, *asked, lower, 0).count
        waiting.append((keys, ts, np.arange(first, first + len(ts))))
        while waiting and int(waiting[0][1].max()) <= watermark - work.kept * SECOND_US:
            state.delete(0, *waiting.popleft())
        state.commit()
        told.seconds.append(time.perf_counter() - begun)
    state.close()
    return told


__all__ = ["TIME", "Run", "Workload", "run_ours", "run_peer"]
