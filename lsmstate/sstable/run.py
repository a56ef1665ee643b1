"""Runs: rows of one side and one range of buckets, sorted by (hash, ts, id). Everything in the engine is a run.

`Run` is what readers ask; `RunData` is a run in memory, `StoredRun` (reader.py) one in a mapped file.
Threading: runs are immutable, and may be read from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.errors import CorruptionError
from lsmstate.keys import I64, U64
from lsmstate.refs import RunRef
from lsmstate.schema import Side
from lsmstate.sstable.filters import Span, build_bloom, build_directory
from lsmstate.sstable.gather import picked, taken
from lsmstate.sstable.order import Index, buckets_of, row_order

Columns = Sequence[pa.Array | None]  # by field; None for the time, which is `ts`


class Run(Protocol):
    """What a reader can ask of a run. `rows` are positions in the run; None asks for all."""

    @property
    def ref(self) -> RunRef: ...

    @property
    def span(self) -> Span: ...

    def bloom(self) -> U64:
        """The filter over the hashes."""

    def directory(self) -> npt.NDArray[np.uint32]:
        """The radix directory over the hashes."""

    def is_ready(self, asked: int) -> bool:
        """Whether directory, hashes and times can be read whole at once, where so many rows are asked for."""

    def damaged_directory(self) -> CorruptionError:
        """What to raise where the directory leads out of the run."""

    def slot_rows(self, slots: I64) -> tuple[I64, I64]:
        """The first row of some slots of the directory, and the row after their last."""

    def hashes(self, rows: I64 | None = None) -> U64:
        """The hashes of the join keys."""

    def times(self, rows: I64 | None = None) -> I64:
        """The event times."""

    def ids(self, rows: I64 | None = None) -> U64:
        """The row ids."""

    def column(self, field: int, rows: I64 | None = None) -> pa.Array:
        """The values of a column of the side's schema."""

    @property
    def row_bytes(self) -> int:
        """What a row takes on average, at least 1."""


class WritableRun(Protocol):
    """What a writer asks of a run: whole, or in pieces where it is larger than memory should hold."""

    @property
    def ref(self) -> RunRef: ...

    @property
    def span(self) -> Span: ...

    def bloom(self) -> U64: ...

    def directory(self) -> npt.NDArray[np.uint32]: ...

    def hash_pieces(self) -> Iterable[U64]: ...

    def time_pieces(self) -> Iterable[I64]: ...

    def id_pieces(self) -> Iterable[U64]: ...

    def column_pieces(self, field: int) -> Iterable[pa.Array]: ...

    def bucket_numbers(self) -> Sequence[int]:
        """The buckets that hold rows."""


class RunData:
    """A run in memory. Its columns stay in the order of arrival until they are read: `order` leads to them."""

    def __init__(
        self,
        side: int,
        kind: Side,
        buckets: tuple[int, int],
        hashes: U64,
        ts: I64,
        ids: U64,
        columns: Columns,
        order: Index,
    ) -> None:
        self._kind = kind
        self._hashes, self._ts, self._ids = hashes, ts, ids
        self._columns, self._order = columns, order
        self.ref = RunRef(
            side,
            buckets[0],
            buckets[1],
            len(hashes),
            int(ts.min()),
            int(ts.max()),
            int(ids.min()),
            int(ids.max()),
        )
        self.span = Span(int(hashes[0]), int(hashes[-1]))
        self._building = threading.Lock()
        self._bloom: U64 | None = None
        self._directory: npt.NDArray[np.uint32] | None = None

    def bloom(self) -> U64:
        with self._building:
            if self._bloom is None:
                self._bloom = build_bloom(self._hashes, self.span)
            return self._bloom

    def directory(self) -> npt.NDArray[np.uint32]:
        with self._building:
            if self._directory is None:
                self._directory = build_directory(self._hashes, self.span)
            return self._directory

    def is_ready(self, asked: int) -> bool:
        return True

    def damaged_directory(self) -> CorruptionError:
        return CorruptionError("a run in memory", 0, f"rows up to {self.ref.rows}", "others")

    def slot_rows(self, slots: I64) -> tuple[I64, I64]:
        directory = self.directory()
        return directory[slots].astype(np.int64), directory[slots + 1].astype(np.int64)

    def hashes(self, rows: I64 | None = None) -> U64:
        return self._hashes if rows is None else picked(self._hashes, rows)

    def times(self, rows: I64 | None = None) -> I64:
        return self._ts if rows is None else picked(self._ts, rows)

    def ids(self, rows: I64 | None = None) -> U64:
        return self._ids if rows is None else picked(self._ids, rows)

    def column(self, field: int, rows: I64 | None = None) -> pa.Array:
        column = self._columns[field]
        if column is None:
            return time_array(self._kind.columns[field][1], self.times(rows))
        return taken(self._kind.layouts[field], column, self._order if rows is None else picked(self._order, rows))

    @property
    def row_bytes(self) -> int:
        size: int = sum(column.nbytes for column in self._columns if column is not None)
        return max(1, size // len(self._order))

    def hash_pieces(self) -> Iterable[U64]:
        return [self._hashes]

    def time_pieces(self) -> Iterable[I64]:
        return [self._ts]

    def id_pieces(self) -> Iterable[U64]:
        return [self._ids]

    def column_pieces(self, field: int) -> Iterable[pa.Array]:
        return [self.column(field)]

    def bucket_numbers(self) -> Sequence[int]:
        if self.ref.first_bucket == self.ref.last_bucket:
            return [self.ref.first_bucket]
        numbers: list[int] = buckets_of(self._ts, self._kind.bucket_us).tolist()
        return numbers


def sorted_run(
    side: int, kind: Side, hashes: U64, ts: I64, ids: U64, columns: Columns, by_hash: Index | None = None
) -> RunData:
    """The run of rows that come in any order; that of their hashes may be known. Requires: at least one row."""
    order = row_order(hashes, ts, ids, by_hash)
    width = kind.bucket_us
    buckets = (int(ts.min()) // width, int(ts.max()) // width)
    return RunData(side, kind, buckets, picked(hashes, order), picked(ts, order), picked(ids, order), columns, order)


def time_array(kind: pa.DataType, ts: I64) -> pa.Array:
    """The time column over the bytes of `ts`."""
    return pa.Array.from_buffers(kind, len(ts), [None, pa.py_buffer(np.ascontiguousarray(ts))])
