"""Flat columns: Arrow arrays as raw buffers in sections of a file, and back without a copy. For others see trees.py.

A column is its validity bits (if it has nulls), then its values; strings and binaries have offsets before their
bytes. Rows are gathered only after the blocks under exactly those rows were verified, offsets included, and offsets
are checked against the data, so that a damaged or hostile file can never make Arrow read outside of its section.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from iopool import Bytes
from lsmstate.errors import CorruptionError
from lsmstate.keys import I64
from lsmstate.layout import Layout
from lsmstate.sstable.blocks import Blocks, BlockWriter, Place, Section
from lsmstate.sstable.gather import taken

_CHECK_ROWS = 128 << 10


def write_column(writer: BlockWriter, layout: Layout, pieces: Iterable[pa.Array]) -> dict[str, Any]:
    """Writes a column that comes in pieces; gives its place for the index. Requires: arrays with offset 0.

    The values of a piece are written at once; validity, bits and offsets wait until the whole column is known.
    """
    kept = _Kept(layout)
    data = writer.append_all(kept.data_of(piece) for piece in pieces)
    buffers: list[Place | None] = [
        None if not kept.nulls else writer.append(np.packbits(kept.valid(), bitorder="little").data)
    ]
    if layout.bits:
        data = writer.append(np.packbits(kept.bits(), bitorder="little").data)
    if layout.varying:
        buffers.append(writer.append_all(part.data for part in kept.offsets))
    return {"nulls": kept.nulls, "buffers": [*buffers, data]}


class _Kept:
    """What of a column has to wait until all of it is known."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._valid: list[npt.NDArray[np.bool_]] = []
        self._bits: list[npt.NDArray[np.bool_]] = []
        self.offsets: list[npt.NDArray[Any]] = []
        self.nulls = 0
        self._end = 0

    def data_of(self, piece: pa.Array) -> Bytes:
        """The bytes of a piece's values, to be written now."""
        rows, layout = len(piece), self._layout
        valid, values, *data = piece.buffers()
        self.nulls += piece.null_count
        self._valid.append(_bools(valid, rows) if piece.null_count else np.broadcast_to(True, rows))
        if layout.bits:
            self._bits.append(_bools(values, rows))
            return b""
        if not layout.varying:
            return b"" if values is None else memoryview(values)[: layout.least_bytes(rows)]
        offsets = np.zeros(1, layout.offsets)
        if values is not None and rows:
            offsets = np.frombuffer(values, layout.offsets, rows + 1)
        first, last = int(offsets[0]), int(offsets[-1])
        if self._end + last - first > np.iinfo(layout.offsets).max:
            raise ValueError("the strings of a run are too long together")
        moved = offsets if first == self._end else offsets + (self._end - first)
        self.offsets.append(moved[1:] if self.offsets else moved)
        self._end += last - first
        return b"" if not data or data[0] is None else memoryview(data[0])[first:last]

    def valid(self) -> npt.NDArray[np.bool_]:
        """Which rows have a value."""
        return np.concatenate(self._valid)

    def bits(self) -> npt.NDArray[np.bool_]:
        """The values of a boolean column."""
        return np.concatenate(self._bits)


def _bools(bits: pa.Buffer, rows: int) -> npt.NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=rows, bitorder="little").view(bool)


class StoredColumn:
    """One column of a run in a file. Raises ValueError where the index does not fit the type."""

    def __init__(self, blocks: Blocks, layout: Layout, rows: int, told: dict[str, Any]) -> None:
        self._blocks, self._layout, self._rows = blocks, layout, rows
        self._nulls = nulls = int(told["nulls"])
        given = told["buffers"]
        if len(given) != layout.buffers or (given[0] is None) != (nulls == 0) or not 0 <= nulls <= rows:
            raise ValueError("a column's buffers do not fit its type")
        self._valid = section_of(blocks, given[0], 1, -(-rows // 8)) if nulls else None
        self._values = section_of(blocks, given[1], layout.width or 1, layout.least_bytes(rows))
        self._data = section_of(blocks, given[2], 1, 0) if layout.varying else self._values
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
        return taken(self._layout, self._arrow(), rows)

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
            for start in range(0, self._rows, _CHECK_ROWS):
                end = min(start + _CHECK_ROWS, self._rows)
                self._check_offsets(*self._offsets(slice(start, end), slice(start + 1, end + 1)))
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


def section_of(blocks: Blocks, told: Any, width: int, least_bytes: int) -> Section:
    """A section of a column. Raises ValueError if it is shorter than its rows need."""
    section = Section(blocks, told, width)
    if section.length < least_bytes:
        raise ValueError("a column's buffer is too short")
    return section
