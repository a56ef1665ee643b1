"""Sparse gathers: a few rows each from many runs, as one batch.

Gathering by array costs about the same for three rows as for three thousand, so a probe that finds a few rows in each
of hundreds of files would spend its time on arrays of three. Here the values of all those rows are collected as slices
of the mapped files, and every column becomes an array once. Trees have no such slices: they are taken run by run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lsmstate.keys import I64
from lsmstate.schema import Side
from lsmstate.sstable.columns import StoredColumn
from lsmstate.sstable.reader import StoredRun
from lsmstate.sstable.trees import StoredTree

SPARSE_ROWS = 32  # of one run; above, arrays are quicker


def gather(side: Side, picks: Sequence[tuple[StoredRun, I64]]) -> list[pa.Array]:
    """The columns of some rows of some runs, in the given order. Requires: at most SPARSE_ROWS of each run."""
    rows = [(run, numbers.tolist()) for run, numbers in picks]
    arrays = []
    for field, (name, kind) in enumerate(side.columns):
        values = _Values(kind)
        trees: list[pa.Array] = []
        for run, numbers in rows:
            if name == side.time:
                values.add_times(run, numbers)
                continue
            column = run.stored_column(field)
            if isinstance(column, StoredTree):
                trees.append(column.take(np.array(numbers, np.int64)))
            else:
                values.add(column, numbers)
        arrays.append(pa.concat_arrays(trees) if trees else values.array())
    return arrays


class _Values:
    """The values of one column, collected."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._parts: list[Any] = []
        self._lengths: list[int] = []
        self._valid: list[bool] = []
        self._rows = 0

    def add_times(self, run: StoredRun, rows: list[int]) -> None:
        self._parts += run.time_slices(rows)
        self._rows += len(rows)

    def add(self, column: StoredColumn, rows: list[int]) -> None:
        valid = column.validity(rows)
        if valid is not None and not self._valid:
            self._valid = [True] * self._rows
        if valid is not None or self._valid:
            self._valid += [True] * len(rows) if valid is None else valid
        parts = column.slices(rows)
        self._parts += parts
        if column.is_varying:
            self._lengths += [len(part) for part in parts]
        self._rows += len(rows)

    def array(self) -> pa.Array:
        nulls = self._valid.count(False)
        buffers = [pa.py_buffer(np.packbits(self._valid, bitorder="little")) if nulls else None]
        if pa.types.is_boolean(self._kind):
            buffers.append(pa.py_buffer(np.packbits(self._parts, bitorder="little")))
        else:
            if self._lengths:
                wide = pa.types.is_large_string(self._kind) or pa.types.is_large_binary(self._kind)
                offsets = np.zeros(self._rows + 1, np.int64 if wide else np.int32)
                np.cumsum(self._lengths, out=offsets[1:])
                buffers.append(pa.py_buffer(offsets))
            buffers.append(pa.py_buffer(b"".join(self._parts)))
        return pa.Array.from_buffers(self._kind, self._rows, buffers, nulls)
