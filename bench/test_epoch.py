"""A whole epoch against RocksDB from Python: append 100k rows, probe 100k with about one match each, make it durable.

Both engines get the same Arrow batches in the same order, in turns. What each needs to take rows in is part of its
time: ours takes Arrow batches as they are, RocksDB needs keys and payloads as bytes. Probes are sorted by both.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.interleave import compare, timed
from bench.rocks_peer import RocksJoinState, pack_payloads
from bench.states import HOUR_US, SEED, build, sides
from bench.workload import STRING_KEY_BYTES, KeyKind, covering, make_probes, make_rows
from lsmstate import StateStore

ROWS = 100_000
FILES = 16
PAIRS = 11
LOWER, UPPER = covering(0, HOUR_US)


def batches(state_rows: int, key_kind: KeyKind) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """New rows near the end of the hour, and probes for random older ones."""
    for number in itertools.count():
        start = state_rows + number * ROWS
        rows = make_rows(ROWS, start_id=start, key_kind=key_kind, ts0=HOUR_US - 10**8, ts1=HOUR_US, seed=SEED)
        probes = make_probes(ROWS, state_rows=state_rows, key_kind=key_kind, ts0=0, ts1=HOUR_US, seed=SEED + number)
        yield rows, probes


class Ours:
    """One epoch of ours a call."""

    def __init__(self, store: StateStore, source: Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]) -> None:
        self.store, self._source = store, source
        self.epoch = store.epochs()[-1]
        self.next: tuple[pa.RecordBatch, pa.RecordBatch] | None = None
        self.durable_seconds: list[float] = []

    def prepare(self) -> None:
        """Makes the next batches, untimed."""
        self.next = next(self._source)

    def __call__(self) -> int:
        assert self.next is not None
        rows, probes = self.next
        self.store.append(0, rows)
        found = sum(batch.num_rows for batch in self.store.probe(0, probes, LOWER, UPPER))
        self.epoch += 1
        begun = time.perf_counter()
        self.store.snapshot_epoch(self.epoch)
        self.durable_seconds.append(time.perf_counter() - begun)
        assert found >= 0.99 * ROWS
        return found


class Peer:
    """One epoch of RocksDB a call."""

    def __init__(self, state: RocksJoinState, source: Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]) -> None:
        self.state, self._source = state, source
        self.next: tuple[pa.RecordBatch, pa.RecordBatch] | None = None
        self.packing_seconds: list[float] = []

    def prepare(self) -> None:
        """Makes the next batches, untimed, and lets RocksDB's own threads finish."""
        self.next = next(self._source)
        self.state.settle()

    def __call__(self) -> int:
        assert self.next is not None
        rows, probes = self.next
        begun = time.perf_counter()
        new, payloads, asked = keys(rows), pack_payloads(rows), keys(probes)
        self.packing_seconds.append(time.perf_counter() - begun)
        self.state.append(0, new, times(rows), payloads)
        found = self.state.probe(0, asked, times(probes), LOWER, UPPER).count
        self.state.commit()
        assert found >= 0.99 * ROWS
        return found


def keys(batch: pa.RecordBatch) -> np.ndarray | list[bytes]:
    column = batch.column("key")
    return column.to_numpy() if pa.types.is_int64(column.type) else column.cast(pa.binary()).to_pylist()


def times(batch: pa.RecordBatch) -> np.ndarray:
    return batch.column("ts").cast(pa.int64()).to_numpy()


def load_peer(path: Path, rows: int, key_kind: KeyKind) -> RocksJoinState:
    """The same rows as `build`, committed."""
    state = RocksJoinState(path, key_bytes=None if key_kind == "int" else STRING_KEY_BYTES)
    each = rows // FILES
    for number in range(FILES):
        ts0, ts1 = number * HOUR_US // FILES, (number + 1) * HOUR_US // FILES - 1
        rows_now = make_rows(each, start_id=number * each, key_kind=key_kind, ts0=ts0, ts1=ts1, seed=SEED)
        state.append(0, keys(rows_now), times(rows_now), pack_payloads(rows_now))
    state.commit()
    return state


@pytest.mark.parametrize(
    ("key_kind", "rows", "least"),
    [("int", 1_000_000, 8.0), ("int", 10_000_000, 7.0), ("string", 1_000_000, 5.0)],
)
def test_epoch_against_rocksdb(tmp_path: Path, key_kind: KeyKind, rows: int, least: float) -> None:
    ours = Ours(build(tmp_path / "ours", rows, FILES, key_kind), batches(rows, key_kind))
    peer = Peer(load_peer(tmp_path / "peer", rows, key_kind), batches(rows, key_kind))

    def before_ours() -> None:
        peer.state.settle()  # RocksDB's threads must not run in our time either
        ours.prepare()

    before = (before_ours, peer.prepare)
    result = compare(ours, peer, pairs=PAIRS, warmups=2, names=("lsmstate", "rocksdict"), before=before)
    packing = statistics.median(peer.packing_seconds) * 1e3
    print(
        f"\nepoch at {rows // 1_000_000}M rows, {key_kind} keys: {result}; packing rows for rocksdict {packing:.0f} ms"
    )
    assert result.ratio >= least


def test_epoch_does_not_grow_with_the_state(tmp_path: Path) -> None:
    small = Ours(build(tmp_path / "small", 1_000_000, FILES, "int"), batches(1_000_000, "int"))
    large = Ours(build(tmp_path / "large", 20_000_000, FILES, "int"), batches(20_000_000, "int"))

    before = (small.prepare, large.prepare)
    result = compare(small, large, pairs=9, warmups=3, names=("1M rows", "20M rows"), before=before)
    durable = statistics.median(large.durable_seconds[3:]) / statistics.median(small.durable_seconds[3:])
    print(f"\nepoch: {result}; making it durable: {durable:.2f} times")
    assert result.ratio <= 1.5
    assert durable <= 1.3


def test_backfill_epoch(tmp_path: Path) -> None:
    """Rows spread over a year with a retention of 20 s, and rows of 100k distinct times, beside normal ones."""
    year = 365 * 24 * HOUR_US
    runs: dict[str, list[float]] = {"normal": [], "a year": [], "distinct times": []}
    store = {name: small_retention(tmp_path / name.replace(" ", "-")) for name in runs}
    for number in range(10):
        made = {
            "normal": rows_between(number, 0, 20_000_000),
            "a year": rows_between(number, 0, year),
            "distinct times": rows_between(number, 0, ROWS * 1_000_000, step=1_000_000),
        }
        for name, rows in made.items():
            runs[name].append(timed(epoch_of(store[name], rows, number + 1)))
    normal = statistics.median(runs["normal"][2:])
    for name in ("a year", "distinct times"):
        ratio = statistics.median(a / b for a, b in zip(runs[name][2:], runs["normal"][2:], strict=True))
        print(f"\nbackfill epoch, {name}: {ratio:.2f} times a normal one ({normal * 1e3:.1f} ms)", end="")
        assert ratio <= 2
    print()


def small_retention(path: Path) -> StateStore:
    return StateStore.open(path, sides("int", timedelta(seconds=20)))


def rows_between(number: int, ts0: int, ts1: int, step: int | None = None) -> pa.RecordBatch:
    rows = make_rows(ROWS, start_id=number * ROWS, key_kind="int", ts0=ts0, ts1=ts1, seed=SEED)
    if step is None:
        return rows
    ts = pa.array(np.arange(ROWS, dtype=np.int64) * step).cast(rows.schema.field("ts").type)
    return rows.set_column(1, "ts", ts)


def epoch_of(store: StateStore, rows: pa.RecordBatch, epoch: int) -> Callable[[], None]:
    def work() -> None:
        store.append(0, rows)
        for _ in store.probe(0, rows, 0, 0):
            pass
        store.snapshot_epoch(epoch)

    return work
