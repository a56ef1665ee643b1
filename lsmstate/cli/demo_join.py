"""The join of the demonstration: each row asks the other side for its partners, then waits for those that come later.

So every pair is found exactly once, by the later of the two. All rows are kept beside the state, to check it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lsmstate.cli.demo_rows import CLICKS, I64, IMPRESSIONS, LATENESS_US, WITHIN_US, Arrivals, expected_pairs, times_us
from lsmstate.engine import StateStore, View
from lsmstate.keys import TS_MIN


@dataclass(frozen=True, slots=True)
class Step:
    """What one epoch did."""

    epoch: int
    rows: int
    seconds: float
    matched: int
    state_rows: int
    files: int
    file_bytes: int
    watermark_us: int


class Join:
    """A join of impressions and clicks on a store."""

    def __init__(self, store: StateStore) -> None:
        self.store = store
        self.steps: list[Step] = []
        self.impressions: list[pa.RecordBatch] = []
        self.clicks: list[pa.RecordBatch] = []
        self._arrivals = Arrivals()
        self._newest_us = TS_MIN + LATENESS_US
        self._pairs: list[I64] = []

    @property
    def rows(self) -> int:
        """All rows that came in."""
        return sum(step.rows for step in self.steps)

    def step(self, epoch: int) -> Step:
        """Takes in the rows of an epoch and commits it."""
        impressions, clicks = self._arrivals.impressions(epoch), self._arrivals.clicks(epoch)
        self.impressions.append(impressions)
        self.clicks.append(clicks)
        started = time.perf_counter()
        matched = self._ask_clicks(impressions)
        self.store.append(0, impressions)
        matched += self._ask_impressions(clicks)
        self.store.append(1, clicks)
        self._newest_us = max(self._newest_us, int(times_us(impressions).max()), int(times_us(clicks).max()))
        self.store.advance_watermark(self._newest_us - LATENESS_US)
        self.store.snapshot_epoch(epoch)
        seconds = time.perf_counter() - started
        stats = self.store.stats()
        step = Step(
            epoch,
            impressions.num_rows + clicks.num_rows,
            seconds,
            matched,
            sum(side.rows for side in stats.sides),
            stats.files,
            stats.file_bytes,
            self._newest_us - LATENESS_US,
        )
        self.steps.append(step)
        return step

    def _ask_clicks(self, impressions: pa.RecordBatch) -> int:
        """Clicks that came before their impression did."""
        numbers, found = impressions.column("impression"), 0
        for rows in self.store.probe(1, impressions, lower=0, upper=WITHIN_US):
            self._pairs.append(_pairs(numbers.take(rows.column("probe_index")), rows.column("click")))
            found += rows.num_rows
        return found

    def _ask_impressions(self, clicks: pa.RecordBatch) -> int:
        numbers, found = clicks.column("click"), 0
        for rows in self.store.probe(0, clicks, lower=-WITHIN_US, upper=0):
            self._pairs.append(_pairs(rows.column("impression"), numbers.take(rows.column("probe_index"))))
            found += rows.num_rows
        return found

    def found_pairs(self) -> I64:
        """All pairs that the engine found, sorted."""
        return np.sort(np.concatenate(self._pairs))

    def expected_pairs(self) -> I64:
        """All pairs that there are, sorted, without the engine."""
        left, right = expected_pairs(pa.Table.from_batches(self.impressions), pa.Table.from_batches(self.clicks))
        return np.sort(_pairs(left, right))

    def newest_file(self) -> str:
        """The name of the last SSTable."""
        with self.store.snapshot() as view:
            return max(view.files)

    def some_key(self) -> int:
        """A key that the last SSTable holds."""
        return int(self.clicks[-1].column("ad_id")[0].as_py())


def live_rows(view: View, side: int) -> int:
    """How many rows of a side a view sees."""
    return sum(batch.num_rows for batch in view.scan(side))


def counted_rows(join: Join, epoch: int) -> list[int]:
    """How many rows of each side are live at an epoch, counted without the engine."""
    watermark = join.steps[epoch - 1].watermark_us
    counts = []
    for side, batches in ((IMPRESSIONS, join.impressions), (CLICKS, join.clicks)):
        cut = watermark - (side.retention_us or 0)
        counts.append(sum(int((times_us(batch) > cut).sum()) for batch in batches[:epoch]))
    return counts


def _pairs(impressions: pa.Array, clicks: pa.Array) -> I64:
    """One number for each pair."""
    left: I64 = impressions.to_numpy()
    right: I64 = clicks.to_numpy()
    return (left << 32) | right
