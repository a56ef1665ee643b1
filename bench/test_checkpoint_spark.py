"""The latency of a checkpoint of the job on Spark: it grows with what came since the last one, not with the state.

Two parts are timed, each with the code that the job runs and without Spark's own share: what a task does to make an
epoch durable (the barrier, the last flush, the candidate, retiring old epochs), and what the driver does to complete
a checkpoint of it (reading the candidates, the manifest, the transaction in the catalog).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.interleave import compare
from bench.workload import keys_of, rows_of
from iopool import LocalFileSystem, WorkerPool
from lsmstate import Options, Side, StateStore
from lsmstate.checkpoint.catalog import Catalog
from lsmstate.join.barrier import barrier_of, retire_barriers, retiring
from lsmstate.join.checkpoints import Checkpoints, Heard
from lsmstate.join.home import Home
from lsmstate.join.kinds import INTERVAL, Kind
from lsmstate.join.pace import Pace
from lsmstate.join.runs import enter_run
from lsmstate.join.spec import JoinSpec
from lsmstate.sstable.cache import FileCache

ROWS = 100_000  # of a side, in an epoch
SPAN_US = 10_000_000
REACH_US = 86_400_000_000  # nothing expires
PAIRS = 15


class Job:
    """A join with one partition, whose state holds a number of rows; epochs as tasks and driver make them."""

    def __init__(self, path: Path, rows: int) -> None:
        path.mkdir()
        self._rng, self._epoch = np.random.default_rng(3), 0
        kind = Kind(INTERVAL, "inner", -REACH_US, REACH_US)
        schema = self._batch(0, 1).schema
        left, right = (Side(name, schema, ["key"], "ts", kind.retention(n)) for n, name in enumerate(("left", "right")))
        state = str(path / "state")
        self._spec = JoinSpec("job", state, 1, kind, (left, right), Pace((REACH_US, REACH_US)), 10)
        self._fs, self._pool, self._cache = LocalFileSystem(), WorkerPool(), FileCache()
        self._home = Home(self._fs, state)
        self._home.bind(self._spec)
        self._run = enter_run(self._home, "query", "run", 0)
        url = f"sqlite:///{path}/catalog.db"
        self._checkpoints = Checkpoints(self._home, self._spec, 0, lambda: Catalog.open(url))
        self._store: StateStore | None = None
        while self._epoch * ROWS * 2 < rows:
            self.fill()
            self.make_durable()
            self.told()
            self.complete()

    def _batch(self, side: int, count: int) -> pa.RecordBatch:
        ids = np.arange(count) + (2 * self._epoch + side) * ROWS  # nobody meets anybody: the state alone counts
        ts = self._epoch * SPAN_US + np.sort(self._rng.integers(0, SPAN_US, count))
        return rows_of(keys_of(ids, "int"), ts, self._rng)

    def fill(self) -> None:
        """Opens the state as a task does, and adds the rows of an epoch."""
        if self._store is not None:
            self._store._core.compactor.wait_quietly()  # what goes on behind is no part of an epoch
            self._store.close()
        self._epoch += 1
        self._barrier = barrier_of(self._home, self._spec, self._epoch, self._run)
        self._store = StateStore.open_candidate(
            self._home.partition(0),
            self._barrier.parent(0),
            self._spec.shape.state_sides,
            Options(retain=self._spec.retain),
            fs=self._fs,
            pool=self._pool,
            cache=self._cache,
        )
        for side in (0, 1):
            self._store.append(side, self._batch(side, ROWS))

    def make_durable(self) -> None:
        """What a task does at its end."""
        assert self._store is not None
        now = self._epoch * SPAN_US
        self._store.prepare(self._epoch, meta={"run": 1, "max_ts": [now, now], "rows": [ROWS, ROWS]})
        with retiring(self._home, self._barrier, 0):
            self._store.retire(self._barrier.min_epoch)
            retire_barriers(self._home, self._barrier.min_epoch)

    def told(self) -> None:
        """What Spark says when the batch has ended."""
        offsets = {"left": str(self._epoch), "right": str(self._epoch)}
        self._checkpoints.hear(Heard("run", self._epoch, 1, offsets, offsets, "sink"))

    def complete(self) -> None:
        """What the driver does then."""
        assert self._checkpoints.catch_up() == [self._epoch]

    def epoch(self) -> None:
        """All of an epoch but the driver's part."""
        self.fill()
        self.make_durable()
        self.told()


def test_checkpoints_cost_what_came_since_the_last_one(tmp_path: Path) -> None:
    small, large = Job(tmp_path / "small", 1_000_000), Job(tmp_path / "large", 10_000_000)
    names = ("1M rows", "10M rows")
    parts: dict[str, Callable[[Job], tuple[Callable[[], None], Callable[[], None]]]] = {
        "a task makes an epoch durable": lambda job: (job.fill, job.make_durable),
        "the driver completes a checkpoint": lambda job: (job.epoch, job.complete),
    }
    found = {}
    for part, of in parts.items():
        (before_small, do_small), (before_large, do_large) = of(small), of(large)
        told = compare(do_small, do_large, pairs=PAIRS, names=names, before=(before_small, before_large))
        found[part] = told
        print(f"\n{part}, {2 * ROWS:,} rows since the last: {told}")
        for job in (small, large):  # what the first part has left to the driver
            job.told()
            job._checkpoints.catch_up()
    assert all(told.ratio <= 1.3 for told in found.values())
