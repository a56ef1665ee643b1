"""Columns: Arrow arrays as raw buffers in sections of a file, and back without a copy.

A column is its validity bits (if it has nulls), then its values; strings and binaries have offsets before their
bytes. Rows are gathered only after the blocks under exactly those rows were verified, offsets included, and offsets
are checked against the data, so that a damaged or hostile file can never make Arrow read outside of its section.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iopool import Bytes
from lsmstate.errors import CorruptionError
from lsmstate.keys import I64
from lsmstate.layout import Layout, layout_of
from lsmstate.sstable.blocks import Blocks, BlockWriter, Place, Section


def write_column(writer: BlockWriter, column: pa.Array) -> dict[str, Any]:
    """Writes a column's buffers; gives its place for the index. Requires: the array has offset 0."""
    nulls = column.null_count
    sections: list[Place | None] = []
    for number, (buffer, size) in enumerate(zip(column.buffers(), _sizes(column), strict=True)):
        if number == 0 and not nulls:
            sections.append(None)
        else:
            view: Bytes = b"" if buffer is None else memoryview(buffer)[:size]
            sections.append(writer.append(view))
    return {"nulls": nulls, "buffers": sections}


def _sizes(column: pa.Array) -> list[int]:
    """The bytes in use of each buffer; Arrow's own are padded."""
    rows, layout = len(column), layout_of(column.type)
    bits = -(-rows // 8)
    if not layout.varying:
        return [bits, layout.least_bytes(rows)]
    offsets = column.buffers()[1]
    end = 0 if offsets is None or not rows else int(np.frombuffer(offsets, layout.offsets, rows + 1)[rows])
    return [bits, layout.least_bytes(rows) if offsets is not None else 0, end]


class StoredColumn:
    """One column of a run in a file. Raises ValueError where the index does not fit the type."""

    def __init__(self, blocks: Blocks, layout: Layout, rows: int, told: dict[str, Any]) -> None:
        self._blocks, self._layout, self._rows = blocks, layout, rows
        self._nulls = nulls = int(told["nulls"])
        given = told["buffers"]
        if len(given) != layout.buffers or (given[0] is None) != (nulls == 0) or not 0 <= nulls <= rows:
            raise ValueError("a column's buffers do not fit its type")
        self._valid = _section(blocks, given[0], 1, -(-rows // 8)) if nulls else None
        self._values = _section(blocks, given[1], layout.width or 1, layout.least_bytes(rows))
        self._data = _section(blocks, given[2], 1, 0) if layout.varying else self._values
        self._plain = None if nulls else layout.plain  # gathered by numpy, which is quicker at it
        self._array: pa.Array | None = None
        self._checked = False

    def take(self, rows: I64) -> pa.Array:
        """The values of some rows."""
        if self._valid is not None:
            self._valid.touch_rows(rows >> 3)
        if self._layout.varying:
            self._values.touch_rows(rows, span=2)
            if not self._checked:
                starts, ends = self._offsets(rows, rows + 1)
                self._check_offsets(starts, ends)
                self._data.touch_ranges(starts, ends)
                if self._values.good and self._data.good:
                    self.whole()
        else:
            self._values.touch_rows(rows >> 3 if self._layout.bits else rows)
            if self._plain is not None:
                values = self._values.array(self._plain)[rows]
                return pa.Array.from_buffers(self._layout.kind, len(rows), [None, pa.py_buffer(values)], 0)
        return pc.take(self._arrow(), pa.array(rows), boundscheck=False)

    @property
    def is_varying(self) -> bool:
        """Whether values differ in length."""
        return self._layout.varying

    def validity(self, rows: list[int]) -> list[bool] | None:
        """Which of a few rows have a value; None if the column has no nulls."""
        if self._valid is None:
            return None
        return _bits(self._valid, rows)

    def slices(self, rows: list[int]) -> list[Any]:
        """The values of a few rows as bytes in place; booleans as such."""
        if self._layout.bits:
            return _bits(self._values, rows)
        if not self._layout.varying:
            return list(self._values.slices(rows))
        self._values.touch_few(rows, span=2)
        offsets = self._values.numbers(self._layout.code)
        ranges = [(offsets[row], offsets[row + 1]) for row in rows]
        if any(not 0 <= start <= end <= self._data.length for start, end in ranges):
            raise CorruptionError(
                self._blocks.path, self._values.start, f"offsets within {self._data.length} bytes", "others"
            )
        return list(self._data.byte_ranges(ranges))

    def whole(self) -> pa.Array:
        """The values of all rows, in place."""
        if self._valid is not None:
            self._valid.touch()
        self._values.touch()
        if self._layout.varying and not self._checked:
            self._data.touch()
            self._check_offsets(*self._offsets(slice(0, self._rows), slice(1, self._rows + 1)))
            self._checked = True
        return self._arrow()

    def _arrow(self) -> pa.Array:
        if self._array is None:
            sections = [self._valid, self._values, self._data] if self._layout.varying else [self._valid, self._values]
            buffers = [None if section is None else section.buffer() for section in sections]
            self._array = pa.Array.from_buffers(self._layout.kind, self._rows, buffers, self._nulls)
        return self._array

    def _offsets(self, starts: I64 | slice, ends: I64 | slice) -> tuple[I64, I64]:
        offsets = self._values.array(self._layout.offsets)
        return offsets[starts].astype(np.int64), offsets[ends].astype(np.int64)

    def _check_offsets(self, starts: I64, ends: I64) -> None:
        length = self._data.length
        if len(starts) and (starts.min() < 0 or ends.max() > length or (starts > ends).any()):
            raise CorruptionError(self._blocks.path, self._values.start, f"offsets within {length} bytes", "others")


def _bits(section: Section, rows: list[int]) -> list[bool]:
    section.touch_few([row >> 3 for row in rows])
    packed = section.numbers("B")
    return [bool(packed[row >> 3] >> (row & 7) & 1) for row in rows]


def _section(blocks: Blocks, told: Any, width: int, least_bytes: int) -> Section:
    section = Section(blocks, told, width)
    if section.length < least_bytes:
        raise ValueError("a column's buffer is too short")
    return section
