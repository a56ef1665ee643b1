"""A simulated disk with the handles that processes have opened on it, and plain rows going in and out.

A `World` closes what it opened, its pool included, so that a test leaves no thread behind, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from iopool import FileSystem, WorkerPool
from lsmstate import Options, Side, StateStore
from tests.support.simfs import SimFileSystem

Row = tuple[Any, ...]
PATH = "/s"
SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.int64()), ("v", pa.string())])
US = timedelta(microseconds=1)


def sides(count: int = 2, *, retention: int | None = None, bucket: int = 10) -> list[Side]:
    """Sides of one schema; retention and bucket in microseconds."""
    kept = None if retention is None else retention * US
    return [Side(f"side{n}", SCHEMA, ["k"], "ts", kept, bucket * US) for n in range(count)]


def batch(*rows: Row, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Rows as the store takes them; times are numbers."""
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def plain(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    """Rows as they come; times are numbers."""
    for part in batches:
        columns = [c.cast(pa.int64()) if pt.is_timestamp(c.type) else c for c in part.columns]
        yield from zip(*(c.to_pylist() for c in columns), strict=True)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[Row]:
    """Rows in an order of their own, so that results can be compared."""
    return ordered(plain(batches))


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows by their values, NULL first."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


class World:
    """One disk, and the processes on it. The first handle creates the state, others join it."""

    def __init__(self, kinds: Sequence[Side] | None = None) -> None:
        self.fs = SimFileSystem()
        self.pool = WorkerPool()
        self._kinds = list(kinds or sides())
        self._opened: list[StateStore] = []

    def open(
        self,
        *,
        path: str = PATH,
        fs: FileSystem | None = None,
        kinds: Sequence[Side] | None = None,
        read_only: bool = False,
        attempt: str | None = None,
        **options: Any,
    ) -> StateStore:
        """A handle in a process of its own, on this disk unless told; it compacts only when told."""
        fs = fs or self.fs.spawn()
        told = None if read_only else kinds or self._kinds
        store = StateStore.open(
            path,
            told,
            Options(**{"auto_compact": False, **options}),
            fs=fs,
            pool=self.pool,
            read_only=read_only,
            attempt=attempt,
        )
        self._opened.append(store)
        return store

    def files(self, directory: str, path: str = PATH) -> set[str]:
        """The names in a directory of the state."""
        return set(self.fs.list_dir(f"{path}/{directory}"))

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        for store in self._opened:
            store.close()
        assert self.pool.close(30.0)
