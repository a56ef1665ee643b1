"""Long runs under a turning watermark, epoch by epoch: ours and RocksDB's, on the same rows.

An epoch appends rows, probes as many living ones by key, lets the watermark retire what is older than the retention,
and makes all of it durable. RocksDB deletes what has expired, by keys that are remembered for it.
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
from bench.workload import TIME, keys_of, rows_of
from lsmstate import Side, StateStore

SECOND_US = 1_000_000
SCHEMA = pa.schema([("key", pa.int64()), ("ts", TIME), ("amount", pa.float64()), ("tag", pa.string())])


@dataclass(frozen=True)
class Workload:
    """rows of an epoch, which is a second long; how many epochs; how many are kept; how far back rows lie, in epochs;
    how many flushes go into a bucket, a sixteenth of the retention unless told."""

    rows: int
    epochs: int
    kept: int
    disorder: int = 0
    flushes_a_bucket: int | None = None

    def sides(self) -> list[Side]:
        bucket = None if self.flushes_a_bucket is None else timedelta(seconds=self.flushes_a_bucket)
        kept = timedelta(seconds=self.kept)
        return [Side(name, SCHEMA, ["key"], "ts", kept, bucket) for name in ("left", "right")]

    def batches(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch, int]]:
        """New rows, probes for rows that are alive, and the watermark after them."""
        rng = np.random.default_rng(11)
        for epoch in range(self.epochs):
            now = (epoch + 1) * SECOND_US
            back = (1 + self.disorder) * SECOND_US
            ids = np.arange(epoch * self.rows, (epoch + 1) * self.rows)
            asked = rng.integers(max(0, epoch - self.kept // 2) * self.rows, (epoch + 1) * self.rows, self.rows)
            rows = rows_of(keys_of(ids, "int"), now - rng.integers(0, back, self.rows), rng)
            yield rows, rows_of(keys_of(asked, "int"), np.full(self.rows, now), rng), now - back


@dataclass
class Run:
    """Seconds of each epoch; of ours, the most runs, bytes on disk as it went on, and amplifications."""

    seconds: list[float] = field(default_factory=list)
    found: int = 0
    runs_max: int = 0
    disk_bytes: list[int] = field(default_factory=list)
    write: float = 0.0
    space: float = 0.0  # without the files that only older epochs hold
    space_with_history: float = 0.0

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

    @property
    def growth(self) -> float:
        """Bytes on disk in the last third of the run over those in the middle third."""
        third = len(self.disk_bytes) // 3
        return max(self.disk_bytes[-third:]) / max(self.disk_bytes[third : 2 * third])


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # large files are unlinked in the background
        return 0


def run_ours(path: Path, work: Workload) -> Run:
    """All epochs by lsmstate."""
    told, lower = Run(), -2 * (work.kept + work.disorder) * SECOND_US
    appended = 0
    with StateStore.open(path, work.sides()) as store:
        for epoch, (rows, probes, watermark) in enumerate(work.batches(), 1):
            begun = time.perf_counter()
            store.append(0, rows)
            told.found += sum(batch.num_rows for batch in store.probe(0, probes, lower, 0))
            store.advance_watermark(watermark)
            store.snapshot_epoch(epoch)
            told.seconds.append(time.perf_counter() - begun)
            appended += rows.num_rows
            if epoch % max(1, work.epochs // 60) == 0:
                stats = store.stats()
                told.runs_max = max(told.runs_max, stats.read_amplification)
                told.disk_bytes.append(sum(map(_size, (path / "sst").iterdir())))
        stats = store.stats()
        ideal = sum(batch.num_rows for batch in store.scan(0)) * stats.flushed_bytes / appended
        told.write, told.space = stats.write_amplification, stats.file_bytes / ideal
        told.space_with_history = told.disk_bytes[-1] / ideal
    return told


def run_peer(path: Path, work: Workload) -> Run:
    """All epochs by RocksDB."""
    told, lower = Run(), -2 * (work.kept + work.disorder) * SECOND_US
    state = RocksJoinState(path)
    waiting: deque[tuple[int, np.ndarray]] = deque()
    for rows, probes, watermark in work.batches():
        begun = time.perf_counter()
        keys, ts = rows.column("key").to_numpy(), rows.column("ts").cast(pa.int64()).to_numpy()
        waiting.append((int(ts.max()), state.append(0, keys, ts, pack_payloads(rows))))
        asked = probes.column("key").to_numpy(), probes.column("ts").cast(pa.int64()).to_numpy()
        told.found += state.probe(0, *asked, lower, 0).count
        while waiting and waiting[0][0] <= watermark - work.kept * SECOND_US:
            state.delete(waiting.popleft()[1])
        state.commit()
        told.seconds.append(time.perf_counter() - begun)
    state.close()
    return told
