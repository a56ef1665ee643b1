"""An interval join in its steady state, by our operator, on RocksDB from Python, by Polars and by DuckDB.

A step is a batch of 100k rows a side. Every right row has the key of a left row that came up to `REACH` steps before,
so it meets one; and as many rows expire as come. What the others have to do is less than what ours does: Polars and
DuckDB keep nothing on disk and expire nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from bench.rocks_peer import RocksJoinState, pack_payloads
from bench.workload import keys_of, rows_of
from lsmstate import Side
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.join import IntervalJoin

ROWS = 100_000
STEP_US = 10_000_000
Step = tuple[pa.RecordBatch, pa.RecordBatch]


class Feed:
    """The steps, one after another."""

    def __init__(self, reach: int) -> None:
        self.reach, self.number = reach, 0
        self.next: Step | None = None
        self._rng = np.random.default_rng(7)

    def prepare(self) -> None:
        """Makes the next step, untimed."""
        n, rng = self.number, self._rng
        self.number += 1
        ts = n * STEP_US + np.sort(rng.integers(0, STEP_US, (2, ROWS)))
        ids = np.arange(n * ROWS, (n + 1) * ROWS)
        asked = rng.integers(max(0, n - self.reach + 2) * ROWS, (n + 1) * ROWS, ROWS)
        self.next = rows_of(keys_of(ids, "int"), ts[0], rng), rows_of(keys_of(asked, "int"), ts[1], rng)

    def take(self) -> Step:
        assert self.next is not None
        return self.next

    @property
    def reach_us(self) -> int:
        return self.reach * STEP_US


class Ours:
    """Our operator; a step ends with a committed checkpoint."""

    def __init__(self, path: Path, reach: int, how: str) -> None:
        self.feed = Feed(reach)
        self.feed.prepare()
        schema = self.feed.take()[0].schema
        sides = [Side(name, schema, ["key"], "ts") for name in ("left", "right")]
        span = timedelta(microseconds=self.feed.reach_us)
        self.join = IntervalJoin(*sides, lower=-span, upper=span, how=how)
        self.join.on_start(OperatorContext(path))
        self.feed.number = self.epoch = 0

    def __call__(self) -> int:
        found = 0
        for side, batch in enumerate(self.feed.take()):
            found += sum(rows.num_rows for rows in self.join.process_batch(side, batch))
        watermark = (self.feed.number - 1) * STEP_US
        found += sum(rows.num_rows for rows in self.join.process_watermark(watermark))
        self.epoch += 1
        self.join.handle_checkpoint(CheckpointBarrier(self.epoch))
        self.join.commit(self.epoch)
        return found

    def fill(self) -> None:
        """Brings the state to its steady size, and waits until nothing is merged any more."""
        for _ in range(self.feed.reach + 2):
            self.feed.prepare()
            self()

    def rows(self) -> int:
        return sum(side.rows for side in self.join.store.stats().sides[:2])


class Rocks:
    """The same on RocksDB, keyed `[side|key|ts|seq]`; marks and what is to expire are looked after by hand."""

    def __init__(self, path: Path, reach: int, how: str) -> None:
        self.feed, self.state, self.is_left = Feed(reach), RocksJoinState(path), how == "left"
        self._kept: deque[tuple[list[Any], Any, list[bytes]]] = deque()

    def __call__(self) -> int:
        found = 0
        left, right = self.feed.take()
        records = []
        for side, batch in ((0, left), (1, right)):
            keys, ts = batch.column("key").to_numpy(), batch.column("ts").cast(pa.int64()).to_numpy()
            payloads = pack_payloads(batch)
            matches = self.state.probe(1 - side, keys, ts, -self.feed.reach_us, self.feed.reach_us)
            found += matches.count
            records.append(self.state.append(side, keys, ts, payloads))
            if self.is_left:
                marked = np.unique(keys[matches.probe_index])
                records.append(self.state.append(2, marked, np.zeros(len(marked), np.int64), [b""] * len(marked)))
        self._kept.append((records, left.column("key").to_numpy(), pack_payloads(left)))
        if len(self._kept) > self.feed.reach + 1:
            old, keys, payloads = self._kept.popleft()
            if self.is_left:
                marks = self.state.probe(2, keys, np.zeros(len(keys), np.int64), 0, 0)
                alone = np.setdiff1d(np.arange(len(keys)), marks.probe_index)
                found += len([payloads[row] for row in alone.tolist()])
            for record in old:
                self.state.delete(record)
        self.state.commit()
        return found

    def fill(self) -> None:
        """Rows without their probes: those cost minutes."""
        for _ in range(self.feed.reach + 2):
            self.feed.prepare()
            left, right = self.feed.take()
            records = [
                self.state.append(
                    side,
                    batch.column("key").to_numpy(),
                    batch.column("ts").cast(pa.int64()).to_numpy(),
                    pack_payloads(batch),
                )
                for side, batch in ((0, left), (1, right))
            ]
            self._kept.append((records, left.column("key").to_numpy(), pack_payloads(left)))
        self.state.commit()
        self.state.settle()


class Whole(ABC):
    """Polars or DuckDB: each batch is joined with the whole state of the other side, and put to that of its own. Only
    pairs are looked for, also beside our left join: that favours them."""

    def __init__(self, reach: int) -> None:
        self.feed = Feed(reach)

    def fill(self) -> None:
        parts: list[list[pa.RecordBatch]] = [[], []]
        for _ in range(self.feed.reach + 2):
            self.feed.prepare()
            for side, batch in enumerate(self.feed.take()):
                parts[side].append(batch)
        self.load([pa.Table.from_batches(part) for part in parts])

    @abstractmethod
    def load(self, tables: list[pa.Table]) -> None:
        """Takes the state of both sides in."""


class Polars(Whole):
    """In memory, with both cores."""

    def load(self, tables: list[pa.Table]) -> None:
        self._states = [pl.DataFrame(table).rechunk() for table in tables]

    def __call__(self) -> int:
        found = 0
        for side, batch in enumerate(self.feed.take()):
            rows = pl.DataFrame(pa.Table.from_batches([batch]))
            pairs = rows.join(self._states[1 - side], on="key", suffix="_other")
            near = (pl.col("ts_other") - pl.col("ts")).dt.total_microseconds().abs() <= self.feed.reach_us
            found += len(pairs.filter(near))
            self._states[side] = pl.concat([self._states[side], rows], rechunk=False)
        return found


class DuckDB(Whole):
    """In memory, with both cores."""

    def load(self, tables: list[pa.Table]) -> None:
        self._db = duckdb.connect()
        self._db.execute("set timezone = 'UTC'")
        for side, table in enumerate(tables):
            self._db.register("loading", table)
            self._db.execute(f"create table state{side} as select * from loading")

    def __call__(self) -> int:
        found = 0
        for side, batch in enumerate(self.feed.take()):
            self._db.register("batch", pa.Table.from_batches([batch]))
            sql = f"""select b.*, s.* from batch b join state{1 - side} s on b.key = s.key
                and abs(epoch_us(s.ts) - epoch_us(b.ts)) <= {self.feed.reach_us}"""
            found += self._db.execute(sql).to_arrow_table().num_rows
            self._db.execute(f"insert into state{side} select * from batch")
        return found


def marks_share(path: Path) -> tuple[float, int, int]:
    """A left join in which every left row meets right rows in a hundred epochs, compacted: bytes of the marks (what an
    inner join of the same rows does without) over those of the left rows, and both."""
    left, inner, alone = (
        _compacted(path / name, how, epochs)
        for name, how, epochs in (("l", "left", 100), ("i", "inner", 100), ("a", "inner", 0))
    )
    return (left - inner) / alone, left - inner, alone


def _compacted(path: Path, how: str, epochs: int) -> int:
    """The bytes of a state whose left rows have met right rows in so many epochs."""
    ours = Ours(path, 200, how)
    join, rng, keys = ours.join, np.random.default_rng(3), keys_of(np.arange(ROWS), "int")
    list(join.process_batch(0, rows_of(keys, np.arange(ROWS), rng)))
    for epoch in range(1, epochs + 3):
        join.handle_checkpoint(CheckpointBarrier(epoch))
        join.commit(epoch)
        if epoch <= epochs:
            met = sum(rows.num_rows for rows in join.process_batch(1, rows_of(keys, np.full(ROWS, epoch), rng)))
            assert met == ROWS
        elif epoch == epochs + 1:
            join.store.compact(major=True)
    size = join.store.stats().file_bytes
    join.on_close()
    return size
