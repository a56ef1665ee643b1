"""Blocks: the data of an SSTable is summed in blocks of 4 KiB, each bound to its file and its place.

A reader verifies exactly the blocks that it touches, the first time that it does, before anyone parses them. So
opening costs nothing by size, a probe of a few keys reads a few blocks, and no byte is ever used unverified.
Threading: `Blocks` may be used from several threads; two may verify the same block, which does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

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
_FEW = 32  # rows; below, sets are faster than arrays
_WHOLE_SHARE = 8  # an eighth of the rows asked for: the rest will follow
D = TypeVar("D", bound=np.generic)


def block_seed(uid: bytes, number: int) -> int:
    """What binds a block's checksum to its file and its place in it."""
    return (int.from_bytes(uid[8:], "little") + number * _SPREAD) & _U64_MASK


class BlockWriter:
    """Writes the data part of a file and sums its blocks on the way, without copying what it is given."""

    def __init__(self, file: WritableFile, uid: bytes) -> None:
        self._file = file
        self._seed = block_seed(uid, 0)
        self._waiting: list[Bytes] = []
        self._waiting_bytes = 0
        self._open = xxhash.xxh3_64()
        self._sums: list[int] = []
        self.offset = 0

    def append(self, data: Bytes) -> tuple[int, int]:
        """Adds a section at the next aligned place; gives its offset and length."""
        self._push(bytes(-self.offset % ALIGN))
        start = self.offset
        view = memoryview(data).cast("B")
        self._push(view)
        return start, len(view)

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
        self.path = path
        self.data = data
        self._seed = block_seed(uid, 0)
        self._sums = sums.data
        self._good = bytearray(len(sums))
        self._marks = np.frombuffer(self._good, bool)  # the same bytes, for many at once

    def touch(self, start: int, end: int) -> None:
        """Verifies the bytes from start to end."""
        if start < end:
            first, last = start >> _SHIFT, (end - 1) >> _SHIFT
            self._verify((first + np.flatnonzero(~self._marks[first : last + 1])).tolist())

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
                self.touch(int(starts.min()), int(ends.max()))
                return
            asked = np.zeros(high - low, bool)
            asked[first - low] = asked[last - low] = True
            self._verify((low + np.flatnonzero(asked & ~self._marks[low:high])).tolist())

    def need(self, numbers: Iterable[int]) -> None:
        """Verifies a few blocks, without the cost of arrays."""
        good = self._good
        self._verify([number for number in numbers if not good[number]])

    def bad_blocks(self) -> list[int]:
        """The numbers of all blocks that are not what was written; for `verify`."""
        return [number for number in range(len(self._sums)) if not self._is_right(number)]

    def _verify(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if not self._is_right(number):
                told = self._sums[number]
                raise CorruptionError(self.path, number * BLOCK, f"block checksum {told:016x}", "another")
            self._good[number] = 1

    def _is_right(self, number: int) -> bool:
        at = number << _SHIFT
        seed = (self._seed + number * _SPREAD) & _U64_MASK
        return xxhash.xxh3_64_intdigest(self.data[at : at + BLOCK], seed) == self._sums[number]


class Section:
    """A part of the data with values of one width. Once many of its rows were asked for, it is verified whole."""

    __slots__ = ("_asked", "_blocks", "_good", "_width", "length", "start")

    def __init__(self, blocks: Blocks, start: int, length: int, width: int) -> None:
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
            self._blocks.touch(self.start, self.end)
            self._good = True

    def touch_rows(self, rows: I64, span: int = 1) -> None:
        """Verifies the values of some rows, and of the `span - 1` after each."""
        if self._good:
            return
        self._asked += len(rows)
        start, width = self.start, self._width
        if self._asked * width * _WHOLE_SHARE >= self.length:
            self.touch()
        elif len(rows) <= _FEW and width * span <= BLOCK:
            places = [start + row * width for row in rows.tolist()]
            last = width * span - 1
            self._blocks.need({at >> _SHIFT for at in places} | {at + last >> _SHIFT for at in places})
        else:
            starts = start + rows * width
            self._blocks.touch_many(starts, starts + width * span)

    def touch_ranges(self, starts: I64, ends: I64) -> None:
        """Verifies some ranges of bytes inside it."""
        if self._good:
            return
        self._asked += int((ends - starts).sum())
        if self._asked * _WHOLE_SHARE >= self.length:
            self.touch()
        else:
            self._blocks.touch_many(self.start + starts, self.start + ends)

    def array(self, kind: np.dtype[D]) -> npt.NDArray[D]:
        """Its bytes as numbers, in place. Requires: what is read of them was touched."""
        return np.frombuffer(self._blocks.data, kind, self.length // kind.itemsize, self.start)

    def buffer(self) -> pa.Buffer:
        """Its bytes for Arrow, in place. Requires: what is read of them was touched."""
        return pa.py_buffer(self._blocks.data[self.start : self.end])
