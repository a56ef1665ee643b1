"""The latency of a pipeline's checkpoint: it grows with what came since the last one, not with the state."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.interleave import compare
from bench.workload import keys_of, rows_of
from lsmstate import Side
from lsmstate.checkpoint import FileSink, Pipeline
from lsmstate.join import IntervalJoin

ROWS = 100_000  # of a side, between two checkpoints
SPAN_US = 10_000_000
REACH = timedelta(days=1)  # nothing expires


class Fed:
    """A source that gives what it is fed."""

    ended = False

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._given, self._waiting = 0, deque[pa.RecordBatch]()
        self.empty = threading.Event()

    def feed(self, batch: pa.RecordBatch) -> None:
        self.empty.clear()
        self._waiting.append(batch)

    def open(self, offsets: Mapping[str, str] | None) -> None:
        self._given = int((offsets or {"n": "0"})["n"])

    def read(self) -> pa.RecordBatch | None:
        if not self._waiting:
            self.empty.set()
            return None
        batch = self._waiting.popleft()
        self._given += batch.num_rows
        return batch

    def offsets(self) -> dict[str, str]:
        return {"n": str(self._given)}

    def close(self) -> None:
        pass


class Job:
    """A pipeline with a join whose state holds a number of rows."""

    def __init__(self, path: Path, rows: int) -> None:
        self._rng, self._step = np.random.default_rng(3), 0
        schema = self._batch(1).schema
        sides = [Side(name, schema, ["key"], "ts") for name in ("left", "right")]
        self.sources = [Fed(schema), Fed(schema)]
        self.pipeline = Pipeline(
            "job",
            catalog=f"sqlite:///{path}/catalog.db",
            state=path / "state",
            checkpoint_interval=timedelta(hours=10),
        )
        for name, source in zip(("left", "right"), self.sources, strict=True):
            self.pipeline.source(name, source, time="ts", delay=timedelta(days=1))
        self.pipeline.operator(
            "join", lambda: IntervalJoin(*sides, lower=-REACH, upper=REACH), inputs=["left", "right"]
        )
        self.pipeline.sink("out", FileSink(path / "out"), input="join")
        self.pipeline.start()
        while self._step * ROWS * 2 < rows:
            self.feed()
            self.checkpoint()

    def _batch(self, side: int, count: int = 10) -> pa.RecordBatch:
        ids = np.arange(count) + (2 * self._step + side) * ROWS  # nobody meets anybody: the state alone counts
        ts = self._step * SPAN_US + np.sort(self._rng.integers(0, SPAN_US, count))
        return rows_of(keys_of(ids, "int"), ts, self._rng)

    def feed(self) -> None:
        """Rows since the last checkpoint: a step of both sides, all of them in the state when it returns."""
        self._step += 1
        for number, source in enumerate(self.sources):
            source.feed(self._batch(number, ROWS))
        for source in self.sources:
            assert source.empty.wait(60)
        driver = self.pipeline._running()[1]
        while any(queue for task in driver._tasks.values() for queue in task.inbox._queues):
            driver.ended.wait(0.001)

    def checkpoint(self) -> int:
        """What is timed: from the wish to the commit."""
        return self.pipeline.checkpoint(120)


def test_checkpoints_cost_what_came_since_the_last_one(tmp_path: Path) -> None:
    small, large = Job(_made(tmp_path / "small"), 1_000_000), Job(_made(tmp_path / "large"), 10_000_000)
    told = compare(
        small.checkpoint,
        large.checkpoint,
        pairs=15,
        names=("1M rows", "10M rows"),
        before=(small.feed, large.feed),
    )
    print(f"\ncheckpoint of a pipeline, {2 * ROWS:,} rows since the last: {told}")
    for job in (small, large):
        job.pipeline.stop(savepoint=False)
    assert told.ratio <= 1.3


def _made(path: Path) -> Path:
    path.mkdir()
    return path
