"""Pairs: joined rows of a batch of one side and the state of the other."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lsmstate.engine import StateStore
from lsmstate.schema import PROBE_INDEX


def pairs(store: StateStore, side: int, batch: pa.RecordBatch, lower: int, upper: int) -> Iterator[list[pa.Array]]:
    """For rows of `side` (0 left, 1 right): the columns of the left row, then of the right, for every pair.

    A pair has equal keys and lower <= right.ts - left.ts <= upper (us).
    """
    low, high = (lower, upper) if side == 0 else (-upper, -lower)
    for found in store.probe(1 - side, batch, low, high):
        asking = batch.take(found.column(PROBE_INDEX)).columns
        there = found.columns[:-1]
        yield [*asking, *there] if side == 0 else [*there, *asking]
