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


def value_bytes(column: pa.Array, layout: Layout) -> I64:
    """About how many bytes each value of a column takes."""
    sizes = np.full(len(column), layout.width or 1, np.int64)
    if not layout.tree:
        if layout.varying:
            sizes += pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return sizes
    if layout.varying:
        offsets, values = listed(column)
        sizes += np.diff(_sums(values, layout.children[0])[offsets])
        return sizes
    if layout.each is not None:
        values = column.values.slice(column.offset * layout.each, len(column) * layout.each)
        return sizes + np.diff(_sums(values, layout.children[0])[np.arange(len(column) + 1) * layout.each])
    for number, child in enumerate(layout.children):
        sizes += value_bytes(column.field(number), child)
    return sizes


def _sums(values: pa.Array, layout: Layout) -> I64:
    """The bytes of all values before each one, and of all."""
    sums = np.zeros(len(values) + 1, np.int64)
    np.cumsum(value_bytes(values, layout), out=sums[1:])
    return sums
