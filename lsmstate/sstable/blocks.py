"""Blocks and sections: the data of an SSTable is summed twice, each sum bound to its file and its place.

By blocks of 4 KiB, for readers who want a few rows, and by sections, for readers who want many.

A reader verifies exactly the blocks that it touches, the first time that it does, before anyone parses them. So
opening costs nothing by size, a probe of a few keys reads a few blocks, and no byte is ever used unverified.
Threading: `Blocks` may be used from several threads; two may verify the same block, which does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from iopool import Bytes, WritableFile
from lsmstate.errors import CorruptionError
from lsmstate.keys import I64, U64
from lsmstate.sstable.format import ALIGN, BLOCK

_SHIFT = BLOCK.bit_length() - 1
_GATHER_BYTES = 8 << 20
_U64_MASK = (1 << 64) - 1
_SPREAD = 0x9E3779B97F4A7C15  # odd, so that no two blocks of a file share a seed
_SMALL_BYTES = 256 << 10  # a section up to this size is verified whole at once
_FEW = 32  # rows; below, sets are faster than arrays
_WHOLE_BLOCKS = 4  # a block on its own costs as much as this many of a whole section
D = TypeVar("D", bound=np.generic)
Place = tuple[int, int, int]  # of a section: offset, length, checksum


def block_seed(uid: bytes, number: int) -> int:
    """What binds a block's checksum to its file and its place in it."""
    return (int.from_bytes(uid[8:], "little") + number * _SPREAD) & _U64_MASK


def section_seed(uid: bytes, start: int) -> int:
    """What binds a section's checksum to its file and its place in it."""
    return (int.from_bytes(uid[:8], "little") + start * _SPREAD) & _U64_MASK


class BlockWriter:
    """Writes the data part of a file and sums its blocks on the way, without copying what it is given."""

    def __init__(self, file: WritableFile, uid: bytes) -> None:
        self._file = file
        self._uid = uid
        self._seed = block_seed(uid, 0)
        self._waiting: list[Bytes] = []
        self._waiting_bytes = 0
        self._open = xxhash.xxh3_64()
        self._sums: list[int] = []
        self.offset = 0

    def append(self, data: Bytes) -> Place:
        """Adds a section at the next aligned place."""
        return self.append_all([data])

    def append_all(self, pieces: Iterable[Bytes]) -> Place:
        """Adds a section that comes in pieces, each taken when the one before it is written."""
        self._push(bytes(-self.offset % ALIGN))
        start = self.offset
        summed = xxhash.xxh3_64(seed=section_seed(self._uid, start))
        for piece in pieces:
            view = memoryview(piece).cast("B")
            summed.update(view)
            self._push(view)
        return start, self.offset - start, summed.intdigest()

    def finish(self) -> U64:
        """Ends the data at an aligned place; gives the sums of all blocks."""
        self._push(bytes(-self.offset % ALIGN))
        if self.offset & (BLOCK - 1):
            self._sums.append(self._open.intdigest())
        self._flush()
        return np.array(self._sums, np.uint64)

    def _push(self, data: Bytes) -> None:
        if not len(data):
            return
        inside = self.offset & (BLOCK - 1)
        at = min(-inside % BLOCK, len(data))
        if at:
            self._open.update(data[:at])
            if inside + at == BLOCK:
                self._sums.append(self._open.intdigest())
        whole = (len(data) - at) & ~(BLOCK - 1)
        if whole:
            first, count, digest = len(self._sums), whole >> _SHIFT, xxhash.xxh3_64_intdigest
            seeds = [(self._seed + n * _SPREAD) & _U64_MASK for n in range(first, first + count)]
            places = range(at, at + whole, BLOCK)
            self._sums += [digest(data[p : p + BLOCK], s) for p, s in zip(places, seeds, strict=True)]
        if at + whole < len(data):
            self._open = xxhash.xxh3_64(seed=(self._seed + len(self._sums) * _SPREAD) & _U64_MASK)
            self._open.update(data[at + whole :])
        self.offset += len(data)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _GATHER_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.write(self._waiting)
        self._waiting, self._waiting_bytes = [], 0


class Blocks:
    """The mapped data of a file, verified block by block on first touch."""

    def __init__(self, path: str, uid: bytes, data: memoryview, sums: U64) -> None:
        if len(sums) != -(-len(data) // BLOCK):
            raise CorruptionError(path, 0, f"{-(-len(data) // BLOCK)} block sums", len(sums))
        self.path, self.uid = path, uid
        self.data = data
        self._seed = block_seed(uid, 0)
        self._sums = sums.data
        self._good = bytearray(len(sums))
        self._marks = np.frombuffer(self._good, bool)  # the same bytes, for many at once

    def touch_many(self, starts: I64, ends: I64) -> None:
        """Verifies many ranges of bytes."""
        full = ends > starts
        if not full.all():
            starts, ends = starts[full], ends[full]
        if len(starts):
            first, last = starts >> _SHIFT, (ends - 1) >> _SHIFT
            low, high = int(first.min()), int(last.max()) + 1
            if self._marks[low:high].all():
                return
            if int((last - first).max()) > 1:
                low, high = int(starts.min()) >> _SHIFT, (int(ends.max()) - 1 >> _SHIFT) + 1
                self._verify((low + np.flatnonzero(~self._marks[low:high])).tolist())
                return
            asked = np.zeros(high - low, bool)
            asked[first - low] = asked[last - low] = True
            self._verify((low + np.flatnonzero(asked & ~self._marks[low:high])).tolist())

    def need(self, places: Sequence[int], size: int) -> None:
        """Verifies the blocks under `size` bytes at a few places, without the cost of arrays. Requires: 1 to BLOCK."""
        good, last = self._good, size - 1
        blocks = {at >> _SHIFT for at in places}
        if last:
            blocks.update([at + last >> _SHIFT for at in places])
        self._verify([number for number in blocks if not good[number]])

    def need_ranges(self, ranges: Iterable[tuple[int, int]]) -> None:
        """The same for ranges of any length."""
        good = self._good
        for start, end in ranges:
            for number in range(start >> _SHIFT, (end - 1 >> _SHIFT) + 1 if end > start else 0):
                if not good[number]:
                    self._verify((number,))

    def bad_blocks(self) -> list[int]:
        """The numbers of all blocks that are not what was written; for `verify`."""
        bad = []
        for number in range(len(self._sums)):
            try:
                self._verify((number,))
            except CorruptionError:
                bad.append(number)
        return bad

    def _verify(self, numbers: Sequence[int]) -> None:
        data, sums, seed, digest, good = self.data, self._sums, self._seed, xxhash.xxh3_64_intdigest, self._good
        for number in numbers:
            at = number << _SHIFT
            if digest(data[at : at + BLOCK], (seed + number * _SPREAD) & _U64_MASK) != sums[number]:
                raise CorruptionError(self.path, at, f"block checksum {sums[number]:016x}", "another")
            good[number] = 1


class Section:
    """A part of the data with values of one width. Once many of its rows were asked for, it is verified whole."""

    __slots__ = ("_asked", "_blocks", "_good", "_sum", "_width", "length", "start")

    def __init__(self, blocks: Blocks, place: Sequence[int], width: int) -> None:
        start, length, self._sum = place
        if not type(start) is type(length) is type(self._sum) is int:
            raise TypeError("a section is told by whole numbers")
        if start < 0 or length < 0 or width < 1 or start % ALIGN or start + length > len(blocks.data):
            raise ValueError("a section lies outside of the data")
        self.start, self.length = start, length
        self._blocks, self._width = blocks, width
        self._asked, self._good = 0, False

    @property
    def good(self) -> bool:
        """Whether all of it was verified."""
        return self._good

    @property
    def end(self) -> int:
        """The place after its last byte."""
        return self.start + self.length

    def touch(self) -> None:
        """Verifies all of it."""
        if not self._good:
            data, seed = self._blocks.data[self.start : self.end], section_seed(self._blocks.uid, self.start)
            if xxhash.xxh3_64_intdigest(data, seed) != self._sum:
                raise CorruptionError(self._blocks.path, self.start, f"section checksum {self._sum:016x}", "another")
            self._good = True

    def touch_rows(self, rows: I64, span: int = 1) -> None:
        """Verifies the values of some rows, and of the `span - 1` after each."""
        if self._good:
            return
        if len(rows) <= _FEW:
            self.touch_few(rows.tolist(), span)
            return
        self._asked += len(rows)
        if self._is_worth_all():
            self.touch()
        else:
            starts = self.start + rows * self._width
            self._blocks.touch_many(starts, starts + self._width * span)

    def is_ready(self, asked: int) -> bool:
        """Whether all of it is verified; it is verified now if a reader of so many rows would come to that."""
        if not self._good and (self._asked + asked) * _WHOLE_BLOCKS * BLOCK >= self.length:
            self.touch()
        return self._good

    def slices(self, rows: list[int]) -> list[memoryview]:
        """The bytes of a few rows, verified, in place."""
        self.touch_few(rows)
        data, start, width = self._blocks.data, self.start, self._width
        return [data[start + row * width : start + row * width + width] for row in rows]

    def byte_ranges(self, ranges: list[tuple[int, int]]) -> list[memoryview]:
        """A few ranges of bytes inside it, verified, in place."""
        self._touch_few_ranges(ranges)
        data, at = self._blocks.data, self.start
        return [data[at + start : at + end] for start, end in ranges]

    def touch_few(self, rows: list[int], span: int = 1) -> None:
        """As `touch_rows`, without the cost of arrays. Requires: rows that the section has."""
        if not self._good:
            self._asked += len(rows)
            start, width = self.start, self._width
            if self._is_worth_all() or width * span > BLOCK:
                self.touch()
            else:
                size = 1 if span == 1 and ALIGN % width == 0 else width * span  # such a value lies in one block
                self._blocks.need([start + row * width for row in rows], size)

    def _touch_few_ranges(self, ranges: list[tuple[int, int]]) -> None:
        if not self._good:
            self._asked += len([1 for start, end in ranges if end > start])
            if self._is_worth_all():
                self.touch()
            else:
                at = self.start
                self._blocks.need_ranges([(at + start, at + end) for start, end in ranges])

    def _is_worth_all(self) -> bool:
        return self._asked * _WHOLE_BLOCKS * BLOCK >= self.length or self.length <= _SMALL_BYTES

    def touch_ranges(self, starts: I64, ends: I64) -> None:
        """Verifies some ranges of bytes inside it."""
        if self._good:
            return
        if len(starts) <= _FEW:
            self._touch_few_ranges(list(zip(starts.tolist(), ends.tolist(), strict=True)))
            return
        self._asked += int((ends > starts).sum())
        if self._is_worth_all():
            self.touch()
        else:
            self._blocks.touch_many(self.start + starts, self.start + ends)

    def numbers(self, code: Literal["B", "i", "I", "q", "Q"]) -> memoryview:
        """Its bytes as numbers for single look-ups. Requires: what is read of them was touched."""
        return self._blocks.data[self.start : self.end].cast(code)

    def array(self, kind: np.dtype[D]) -> npt.NDArray[D]:
        """Its bytes as numbers, in place. Requires: what is read of them was touched."""
        return np.frombuffer(self._blocks.data, kind, self.length // kind.itemsize, self.start)

    def buffer(self) -> pa.Buffer:
        """Its bytes for Arrow, in place. Requires: what is read of them was touched."""
        return pa.py_buffer(self._blocks.data[self.start : self.end])
