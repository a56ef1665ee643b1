"""Pairs: joined rows of a batch of one side and the state of the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.engine import StateStore
from lsmstate.keys import I64
from lsmstate.layout import layout_of
from lsmstate.schema import PROBE_INDEX

_BYTES_MAX = 32 << 20  # of the rows that come out at once, unless one pair is larger


def pairs(store: StateStore, side: int, batch: pa.RecordBatch, lower: int, upper: int) -> Iterator[list[pa.Array]]:
    """For rows of `side` (0 left, 1 right): the columns of the left row, then of the right, for every pair.

    A pair has equal keys and lower <= right.ts - left.ts <= upper (us).
    """
    low, high = (lower, upper) if side == 0 else (-upper, -lower)
    sizes = row_bytes(batch)
    for found in store.probe(1 - side, batch, low, high):
        index = found.column(PROBE_INDEX)
        total = np.cumsum(sizes[index.to_numpy()] + row_bytes(found))
        start = 0
        while start < len(total):
            before = int(total[start - 1]) if start else 0
            end = max(start + 1, int(np.searchsorted(total, before + _BYTES_MAX, "right")))
            asking = batch.take(index.slice(start, end - start)).columns
            there = [column.slice(start, end - start) for column in found.columns[:-1]]
            yield [*asking, *there] if side == 0 else [*there, *asking]
            start = end


def row_bytes(batch: pa.RecordBatch) -> I64:
    """About how many bytes each row takes: a wide row that matches often makes a large result of a small batch."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        layout = layout_of(column.type)
        sizes += layout.width or 1
        if layout.varying:
            sizes += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return sizes
