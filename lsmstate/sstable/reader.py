"""Reads an SSTable: maps it, checks footer and index, hands out its runs. Data are verified when touched (blocks.py).

Threading: everything here is immutable once built, and may be shared by threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from iopool import FileSystem
from lsmstate.errors import CorruptionError, SchemaError
from lsmstate.evolution import Adapted, adaptation
from lsmstate.keys import I64, U64
from lsmstate.layout import value_bytes
from lsmstate.limited_json import loads
from lsmstate.refs import FileRef, RunRef, check_run
from lsmstate.schema import Side
from lsmstate.sstable.blocks import Blocks, Section
from lsmstate.sstable.columns import StoredColumn
from lsmstate.sstable.filters import KeyFilter, Span, directory_bits
from lsmstate.sstable.format import FLAT, FOOTER_BYTES, META_MAX_BYTES, meta_sum, unpack_footer
from lsmstate.sstable.gather import picked
from lsmstate.sstable.run import time_array
from lsmstate.sstable.trees import StoredTree, bytes_of, stored_column

D = TypeVar("D", bound=np.generic)
_U64, _I64, _U32 = np.dtype(np.uint64), np.dtype(np.int64), np.dtype(np.uint32)
_BLOOM_BYTES_MAX = 8 << 30  # more words could not be told apart by the 31 bits that choose one
_DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    OverflowError,
    RecursionError,
    AttributeError,
    pa.ArrowException,
)


class SSTable:
    """An open SSTable. Requires for `sides`: the schemas of its runs; None takes them from the file itself."""

    def __init__(
        self,
        fs: FileSystem,
        path: str,
        sides: Mapping[int, Side] | None = None,
        expect: FileRef | None = None,
    ) -> None:
        self.path = path
        file = fs.map(path)
        self.footer = footer = unpack_footer(path, file)
        self.digest: str = xxhash.xxh3_128_hexdigest(file[-FOOTER_BYTES:])
        if expect is not None and (expect.digest, expect.size_bytes) != (self.digest, len(file)):
            raise CorruptionError(path, len(file) - FOOTER_BYTES, f"the file with digest {expect.digest}", self.digest)
        meta = file[footer.data_bytes : -FOOTER_BYTES]
        if len(meta) > META_MAX_BYTES:
            raise CorruptionError(path, footer.data_bytes, f"at most {META_MAX_BYTES} bytes of index", len(meta))
        got = meta_sum(footer.uid, meta)
        if got != footer.meta_sum:
            raise CorruptionError(path, footer.data_bytes, f"index checksum {footer.meta_sum:016x}", f"{got:016x}")
        sums = np.frombuffer(meta, np.uint64, footer.sums_bytes // 8, footer.index_bytes)
        self.blocks = Blocks(path, footer.uid, file[: footer.data_bytes], sums)
        self.key_filter = KeyFilter(path, meta[footer.index_bytes + footer.sums_bytes :])
        try:
            runs, _, described = bytes(meta[: footer.index_bytes]).partition(b"\n")
            self.index: dict[str, Any] = loads(runs)
            self.epoch = int(self.index["epoch"])
            self._adapted: dict[int, tuple[Side, tuple[Adapted, ...]]] = {}
            self.sides = self._sides(sides, described)
            written = [self._adapted[n][0] if n in self._adapted else side for n, side in self.sides.items()]
            if footer.version == FLAT and any(side.is_nested for side in written):
                raise ValueError("a file of this version has no trees")
            self.runs = [StoredRun(self.blocks, self.sides, told, self._adapted) for told in self.index["runs"]]
        except SchemaError:
            raise
        except _DAMAGED as error:
            raise CorruptionError(path, footer.data_bytes, "a readable index", type(error).__name__) from error
        if expect is not None and tuple(run.ref for run in self.runs) != expect.runs:
            raise CorruptionError(path, footer.data_bytes, "the runs named in the manifest", "others")

    def _sides(self, given: Mapping[int, Side] | None, described: bytes) -> dict[int, Side]:
        """The sides of the runs. What the file tells of them is parsed only where it is needed."""
        ids = {int(number): told for number, told in self.index["schema_ids"].items()}
        if given is not None and all(n in given and given[n].schema_id == told for n, told in ids.items()):
            return {number: given[number] for number in ids}
        told = loads(described)
        sides = {number: Side.parse(told[str(number)]) for number in ids}
        if given is None:
            return sides
        for number, side in sides.items():
            try:
                if number not in given:
                    raise SchemaError("the state has no such side")
                adapted = adaptation(side, given[number])
            except SchemaError as error:
                raise SchemaError(f"{self.path}: side {number} was written with another schema: {error}") from None
            if adapted is not None:
                self._adapted[number] = (side, adapted)
        return {number: given[number] for number in ids}

    def fits(self, sides: Mapping[int, Side]) -> bool:
        """Whether its rows are read as those of some sides."""
        return all(n in sides and sides[n].schema_id == side.schema_id for n, side in self.sides.items())


class StoredRun:
    """A run in a mapped file."""

    def __init__(
        self,
        blocks: Blocks,
        sides: Mapping[int, Side],
        told: dict[str, Any],
        adapted: Mapping[int, tuple[Side, tuple[Adapted, ...]]],
    ) -> None:
        number, rows = int(told["side"]), int(told["rows"])
        first, last = told["buckets"]
        self.ref = RunRef(number, first, last, rows, *told["ts"], *told["ids"])
        if any(type(told) is not int for told in self.ref):
            raise TypeError("a run is told by whole numbers")
        check_run(self.ref)
        low, high = (int(h) for h in told["hashes"])
        if not 0 <= low <= high < 1 << 64:
            raise ValueError("a run needs a range of hashes")
        self.span = Span(low, high)
        self._blocks = blocks
        self._side = sides[number]
        self._written: Side = self._side
        self._adapted: tuple[Adapted, ...] | None = None
        if number in adapted:
            self._written, self._adapted = adapted[number]
        self._bloom = self._section(told["bloom"], 8)
        if self._bloom.length > _BLOOM_BYTES_MAX:
            raise ValueError("a filter is too large")
        self._directory = self._section(told["directory"], 4, (1 << directory_bits(rows)) + 1)
        self._hash = self._section(told["hash"], 8, rows)
        self._time = self._section(told["time"], 8, rows)
        self._id = self._section(told["id"], 8, rows)
        if len(told["columns"]) != len(self._written.schema):
            raise ValueError("the columns do not fit the schema")
        self._told = told["columns"]
        self._columns: dict[int, StoredColumn | StoredTree] = {}

    def bloom(self) -> U64:
        self._bloom.touch()
        return self._bloom.array(_U64)

    def directory(self) -> npt.NDArray[np.uint32]:
        self._directory.touch()
        return self._directory.array(_U32)

    def is_ready(self, asked: int) -> bool:
        return all([section.is_ready(asked) for section in (self._directory, self._hash, self._time)])

    def damaged_directory(self) -> CorruptionError:
        return CorruptionError(self._blocks.path, self._directory.start, f"rows up to {self.ref.rows}", "others")

    def slot_rows(self, slots: I64) -> tuple[I64, I64]:
        self._directory.touch_rows(slots, span=2)
        directory = self._directory.array(_U32)
        starts, ends = directory[slots].astype(np.int64), directory[slots + 1].astype(np.int64)
        if len(ends) and (int(ends.max()) > self.ref.rows or bool((starts > ends).any())):
            raise self.damaged_directory()
        return starts, ends

    def find_few(self, slots: list[int], hashes: list[int], wide: int) -> tuple[list[int], list[int]] | None:
        """For a few hashes and their slots in the directory: which of them the run holds, and at which rows.

        Without the cost of arrays. None if a slot has more than `wide` rows.
        """
        self._directory.touch_few(slots, span=2)
        directory, limit = self._directory.numbers("I"), self.ref.rows
        who: list[int] = []
        rows: list[int] = []
        for number, slot in enumerate(slots):
            start, end = directory[slot], directory[slot + 1]
            if not start <= end <= limit:
                raise self.damaged_directory()
            if end - start > wide:
                return None
            for row in range(start, end):
                who.append(number)
                rows.append(row)
        self._hash.touch_few(rows)
        stored = self._hash.numbers("Q")
        same = [n for n, row in enumerate(rows) if stored[row] == hashes[who[n]]]
        return [who[n] for n in same], [rows[n] for n in same]

    def check_order(self) -> None:
        """Raises CorruptionError unless rows are in the order of their hashes and within the bounds that the run tells:
        what a merge takes for granted, and would write down anew."""
        hashes, ts, ids, ref = self.hashes(), self.times(), self.ids(), self.ref
        bounds = (int(ts.min()), int(ts.max()), int(ids.min()), int(ids.max()))
        is_sorted = bool((hashes[1:] >= hashes[:-1]).all())
        told = (ref.min_ts, ref.max_ts, ref.min_id, ref.max_id)
        if not is_sorted or (int(hashes[0]), int(hashes[-1])) != (self.span.low, self.span.high) or bounds != told:
            raise CorruptionError(self._blocks.path, self._hash.start, "rows in order, within their bounds", "others")

    def few_times(self, rows: list[int]) -> list[int]:
        """The event times of a few rows, as plain numbers."""
        self._time.touch_few(rows)
        times = self._time.numbers("q")
        return [times[row] for row in rows]

    def hashes(self, rows: I64 | None = None) -> U64:
        return _picked(self._hash, _U64, rows)

    def times(self, rows: I64 | None = None) -> I64:
        return _picked(self._time, _I64, rows)

    def ids(self, rows: I64 | None = None) -> U64:
        return _picked(self._id, _U64, rows)

    def column(self, field: int, rows: I64 | None = None) -> pa.Array:
        kind = self._side.columns[field][1]
        if self._is_time(field):
            return time_array(kind, self.times(rows))
        if self._adapted is not None:
            return self._adapted_column(self._adapted[field], kind, rows)
        column = self.stored_column(field)
        return column.whole() if rows is None else column.take(rows)

    @property
    def is_adapted(self) -> bool:
        """Whether its columns are not those of its side, but what an earlier schema wrote."""
        return self._adapted is not None

    def lacks(self, field: int) -> bool:
        """Whether a column was not written, and so is NULL in all rows."""
        return self._adapted is not None and self._adapted[field].place is None and not self._is_time(field)

    def _is_time(self, field: int) -> bool:
        return self._side.columns[field][0] == self._side.time

    def _adapted_column(self, adapted: Adapted, kind: pa.DataType, rows: I64 | None) -> pa.Array:
        if adapted.place is None:
            return pa.nulls(self.ref.rows if rows is None else len(rows), kind)
        column = self.stored_column(adapted.place)
        values = column.whole() if rows is None else column.take(rows)
        return values.cast(kind) if adapted.casts else values

    def stored_column(self, field: int) -> StoredColumn | StoredTree:
        """A column other than the time, as it lies in the file, where it is the one at this place."""
        column = self._columns.get(field)
        if column is None:
            try:
                column = stored_column(self._blocks, self._written.layouts[field], self.ref.rows, self._told[field])
            except _DAMAGED as error:
                raise self._bad_index(error) from error
            self._columns[field] = column
        return column

    @cached_property
    def row_bytes(self) -> int:
        most = len(self._blocks.data)
        try:
            size = sum(bytes_of(column) for column in self._told if column)
        except _DAMAGED as error:
            raise self._bad_index(error) from error
        missing = [kind for number, (_, kind) in enumerate(self._side.columns) if self.lacks(number)]
        return max(1, min(size, most) // self.ref.rows + sum(map(value_bytes, missing)))

    def _bad_index(self, error: Exception) -> CorruptionError:
        return CorruptionError(self._blocks.path, len(self._blocks.data), "a readable index", str(error))

    def time_slices(self, rows: list[int]) -> list[memoryview]:
        """The event times of a few rows, as bytes in place."""
        return self._time.slices(rows)

    def _section(self, told: Any, width: int, count: int | None = None) -> Section:
        section = Section(self._blocks, told, width)
        size = section.length
        if size < width or size % width or (count is not None and size != count * width):
            raise ValueError("a section has the wrong length")
        return section


def _picked(section: Section, kind: np.dtype[D], rows: I64 | None) -> npt.NDArray[D]:
    if rows is None:
        section.touch()
        return section.array(kind)
    section.touch_rows(rows)
    return picked(section.array(kind), rows)
