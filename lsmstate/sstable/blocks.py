"""Blocks: the data of an SSTable is summed in blocks of 16 KiB, each bound to its file and its place.

A reader verifies exactly the blocks that it touches, the first time that it does, before anyone parses them. So
opening costs nothing by size, a probe of a few keys reads a few blocks, and no byte is ever used unverified.
Threading: `Blocks` may be used from several threads; two may verify the same block, which does no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_WHOLE_SHARE = 8  # an eighth of the rows asked for: the rest will follow
D = TypeVar("D", bound=np.generic)


def block_seed(uid: bytes, number: int) -> int:
    """What binds a block's checksum to its file and its place in it."""
    return (int.from_bytes(uid[8:], "little") + number * 0x9E3779B97F4A7C15) & _U64_MASK


class BlockWriter:
    """Writes the data part of a file and sums its blocks on the way, without copying what it is given."""

    def __init__(self, file: WritableFile, uid: bytes) -> None:
        self._file = file
        self._uid = uid
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
        at = 0
        while at < len(data):
            inside = self.offset & (BLOCK - 1)
            part = data[at : at + BLOCK - inside]
            seed = block_seed(self._uid, len(self._sums))
            if len(part) == BLOCK:
                self._sums.append(xxhash.xxh3_64_intdigest(part, seed=seed))
            else:
                if not inside:
                    self._open = xxhash.xxh3_64(seed=seed)
                self._open.update(part)
                if inside + len(part) == BLOCK:
                    self._sums.append(self._open.intdigest())
            at += len(part)
            self.offset += len(part)
        if at:
            self._waiting.append(data)
            self._waiting_bytes += at
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
        self._uid = uid
        self._sums = sums
        self._good: npt.NDArray[np.bool_] = np.zeros(len(sums), bool)
        self._all_good = not len(sums)

    def touch(self, start: int, end: int) -> None:
        """Verifies the bytes from start to end."""
        if self._all_good or start >= end:
            return
        first, last = start >> _SHIFT, (end - 1) >> _SHIFT
        if not self._good[first : last + 1].all():
            self._verify((first + np.flatnonzero(~self._good[first : last + 1])).tolist())

    def touch_many(self, starts: I64, ends: I64) -> None:
        """Verifies many ranges of bytes; an empty range touches nothing beyond its start."""
        if self._all_good or not len(starts):
            return
        if self._good[int(starts.min()) >> _SHIFT : (max(int(ends.max()), 1) - 1 >> _SHIFT) + 1].all():
            return
        first, last = starts >> _SHIFT, np.maximum(starts, ends - 1) >> _SHIFT
        if int((last - first).max()) > 1:
            self.touch(int(starts.min()), int(ends.max()))
            return
        last = np.minimum(last, len(self._sums) - 1)
        first = np.minimum(first, last)
        if self._good[first].all() and self._good[last].all():
            return
        asked = np.zeros(len(self._sums), bool)
        asked[first] = asked[last] = True
        self._verify(np.flatnonzero(asked & ~self._good).tolist())

    def touch_all(self) -> None:
        """Verifies every block."""
        self.touch(0, len(self.data))

    def bad_blocks(self) -> list[int]:
        """The numbers of all blocks that are not what was written; for `verify`."""
        return [n for n in range(len(self._sums)) if self._sum(n) != int(self._sums[n])]

    def _verify(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            got, told = self._sum(number), int(self._sums[number])
            if got != told:
                raise CorruptionError(self.path, number * BLOCK, f"block checksum {told:016x}", f"{got:016x}")
            self._good[number] = True
        self._all_good = bool(self._good.all())

    def _sum(self, number: int) -> int:
        block = self.data[number * BLOCK : (number + 1) * BLOCK]
        return int(xxhash.xxh3_64_intdigest(block, seed=block_seed(self._uid, number)))


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
        if self._asked * self._width * _WHOLE_SHARE >= self.length:
            self.touch()
        else:
            starts = self.start + rows * self._width
            self._blocks.touch_many(starts, starts + self._width * span)

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
