"""Columns: Arrow arrays as raw buffers in sections of a file, and back without a copy.

A column is its validity bits (if it has nulls), then its values; strings and binaries have offsets before their
bytes. Rows are gathered only after the blocks under exactly those rows were verified, offsets included, and offsets
are checked against the data, so that a damaged or hostile file can never make Arrow read outside of its section.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from iopool import Bytes
from lsmstate.errors import CorruptionError
from lsmstate.keys import I64
from lsmstate.schema import is_varying
from lsmstate.sstable.blocks import Blocks, BlockWriter

Section = tuple[int, int]  # offset and length in the file


def write_column(writer: BlockWriter, column: pa.Array) -> dict[str, Any]:
    """Writes a column's buffers; gives its place for the index. Requires: the array has offset 0."""
    nulls = column.null_count
    sections: list[Section | None] = []
    for number, (buffer, size) in enumerate(zip(column.buffers(), _sizes(column), strict=True)):
        if number == 0 and not nulls:
            sections.append(None)
        else:
            view: Bytes = b"" if buffer is None else memoryview(buffer)[:size]
            sections.append(writer.append(view))
    return {"nulls": nulls, "buffers": sections}


def _sizes(column: pa.Array) -> list[int]:
    """The bytes in use of each buffer; Arrow's own are padded."""
    rows, kind = len(column), column.type
    bits = -(-rows // 8)
    if is_varying(kind):
        wide = _offset_type(kind)
        offsets = column.buffers()[1]
        end = 0 if offsets is None or not rows else int(np.frombuffer(offsets, wide, rows + 1)[rows])
        return [bits, (rows + 1) * wide.itemsize if offsets is not None else 0, end]
    if pt.is_boolean(kind):
        return [bits, bits]
    return [bits, rows * (kind.bit_width // 8)]


def _offset_type(kind: pa.DataType) -> np.dtype[Any]:
    wide = pt.is_large_string(kind) or pt.is_large_binary(kind)
    return np.dtype(np.int64 if wide else np.int32)


class StoredColumn:
    """One column of a run in a file."""

    def __init__(self, blocks: Blocks, kind: pa.DataType, rows: int, told: dict[str, Any]) -> None:
        self._blocks = blocks
        self._kind = kind
        self._rows = rows
        self._nulls = int(told["nulls"])
        self._sections = self._checked(told["buffers"])
        self._array: pa.Array | None = None

    def take(self, rows: I64) -> pa.Array:
        """The values of some rows."""
        self._touch(rows)
        return self._arrow().take(pa.array(rows))

    def whole(self) -> pa.Array:
        """The values of all rows, in place."""
        for section in self._sections:
            if section:
                self._blocks.touch(section[0], sum(section))
        if is_varying(self._kind):
            self._check_offsets(*self._offsets(slice(0, self._rows), slice(1, self._rows + 1)))
        return self._arrow()

    def values(self, rows: I64) -> np.ndarray[Any, Any]:
        """The raw numbers of some rows, nulls undefined. Requires: an int64 column."""
        at, length = self._sections[1] or (0, 0)
        self._blocks.touch_many(at + rows * 8, at + rows * 8 + 8)
        return np.frombuffer(self._blocks.data, np.int64, length // 8, at)[rows]

    def _arrow(self) -> pa.Array:
        if self._array is None:
            data = self._blocks.data
            buffers = [None if s is None else pa.py_buffer(data[s[0] : sum(s)]) for s in self._sections]
            self._array = pa.Array.from_buffers(self._kind, self._rows, buffers, self._nulls)
        return self._array

    def _touch(self, rows: I64) -> None:
        touch = self._blocks.touch_many
        if self._sections[0]:
            bits = self._sections[0][0] + (rows >> 3)
            touch(bits, bits + 1)
        at = self._sections[1][0] if self._sections[1] else 0
        if is_varying(self._kind):
            wide = _offset_type(self._kind).itemsize
            touch(at + rows * wide, at + rows * wide + 2 * wide)
            starts, ends = self._offsets(rows, rows + 1)
            self._check_offsets(starts, ends)
            data_at = self._sections[2][0] if self._sections[2] else 0
            touch(data_at + starts, data_at + ends)
        elif pt.is_boolean(self._kind):
            touch(at + (rows >> 3), at + (rows >> 3) + 1)
        else:
            width = self._kind.bit_width // 8
            touch(at + rows * width, at + rows * width + width)

    def _offsets(self, starts: I64 | slice, ends: I64 | slice) -> tuple[I64, I64]:
        at, length = self._sections[1] or (0, 0)
        kind = _offset_type(self._kind)
        offsets = np.frombuffer(self._blocks.data, kind, length // kind.itemsize, at)
        return offsets[starts].astype(np.int64), offsets[ends].astype(np.int64)

    def _check_offsets(self, starts: I64, ends: I64) -> None:
        at, length = self._sections[2] or (0, 0)
        if len(starts) and (int(starts.min()) < 0 or int(ends.max()) > length or bool((starts > ends).any())):
            raise CorruptionError(self._blocks.path, at, f"offsets within {length} bytes", "others")

    def _checked(self, told: Sequence[Any]) -> list[Section | None]:
        """The sections, each inside the data, aligned, and large enough for the rows."""
        sections = [None if s is None else (int(s[0]), int(s[1])) for s in told]
        bits = -(-self._rows // 8)
        if is_varying(self._kind):
            least = [bits, (self._rows + 1) * _offset_type(self._kind).itemsize, 0]
        elif pt.is_boolean(self._kind):
            least = [bits, bits]
        else:
            least = [bits, self._rows * (self._kind.bit_width // 8)]
        if len(sections) != len(least) or (sections[0] is None) != (self._nulls == 0):
            raise ValueError("a column's buffers do not fit its type")
        if not 0 <= self._nulls <= self._rows:
            raise ValueError("more nulls than rows")
        for section, size in zip(sections[1:], least[1:], strict=True):
            if section is None or section[1] < size:
                raise ValueError("a column's buffer is too short")
        if sections[0] is not None and sections[0][1] < bits:
            raise ValueError("a column's validity bits are too short")
        for section in sections:
            check_section(section, len(self._blocks.data))
        return sections


def check_section(section: Section | None, data_bytes: int) -> None:
    """Raises ValueError unless the section is aligned and lies inside the data."""
    if section is not None:
        at, length = section
        if at < 0 or length < 0 or at % 64 or at + length > data_bytes:
            raise ValueError("a section lies outside of the data")
