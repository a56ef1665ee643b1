"""How many bytes rows take: a wide row that matches often makes a large result of a small batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.encodings import listed
from lsmstate.keys import I64
from lsmstate.layout import Layout, layout_of


def row_bytes(batch: pa.RecordBatch) -> I64:
    """About how many bytes each row takes, what lies inside of lists and structs included."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += value_bytes(column, layout_of(column.type))
    return sizes


def value_bytes(column: pa.Array, layout: Layout) -> I64 | int:
    """About how many bytes each value of a column takes; one number where all take as many."""
    if not layout.tree:
        return (layout.width or 1) + (_lengths(column, layout) if layout.varying else 0)
    if layout.varying:
        offsets, values = listed(column)
        lengths: I64 = np.diff(_sums(values, layout.children[0])[offsets])
        return layout.width + lengths
    if layout.each is not None:
        values = column.values.slice(column.offset * layout.each, len(column) * layout.each)
        lengths = np.diff(_sums(values, layout.children[0])[np.arange(len(column) + 1) * layout.each])
        return 1 + lengths
    sizes: I64 | int = 1
    for number, child in enumerate(layout.children):
        sizes = sizes + value_bytes(column.field(number), child)
    return sizes


def _lengths(column: pa.Array, layout: Layout) -> I64:
    """The bytes of each text of a column."""
    offsets = column.buffers()[1]
    if column.null_count or not len(column) or offsets is None:
        lengths: I64 = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return lengths
    ends = np.frombuffer(offsets, layout.offsets, len(column) + 1, column.offset * layout.width)
    return np.diff(ends).astype(np.int64)


def _sums(values: pa.Array, layout: Layout) -> I64:
    """The bytes of all values before each one, and of all."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.broadcast_to(value_bytes(values, layout), len(values)), out=sums[1:])
    return sums
