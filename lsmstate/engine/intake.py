"""What comes in: batches checked against their side, as columns with hashes and times.

A batch that asks for rows of the other side is usually appended to its own: the hashes of the last batch of each thread
are remembered for as long as the batch lives, so that it is hashed and sorted once.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.encodings import means, plainly
from lsmstate.errors import SchemaError
from lsmstate.hashing import hash_keys, tells_apart
from lsmstate.keys import I64, U64
from lsmstate.schema import Side, columns_difference
from lsmstate.sstable.order import Index, hash_order

_ROW_BYTES = 24  # hash, ts and id
Batch: TypeAlias = pa.RecordBatch | pa.Table


class Hashed:
    """The hashes of some keys, and their order, which is worked out once: by a probe or a flush, whoever asks first."""

    def __init__(self, hashes: U64) -> None:
        self.hashes = hashes
        self._order: Index | None = None
        self._sorting = threading.Lock()

    def order(self) -> Index:
        """The order by (hash, position)."""
        with self._sorting:
            if self._order is None:
                self._order = hash_order(self.hashes)
            return self._order


class _Last(threading.local):
    """Of each thread: the last batch that was hashed, the names of its keys, and its hashes; empty once it is gone."""

    def __init__(self) -> None:
        self.told: list[tuple[weakref.ref[pa.RecordBatch], Sequence[str], Hashed]] = []


_last = _Last()


@dataclass(frozen=True, slots=True)
class Rows:
    """Checked rows of a side, in order of arrival."""

    columns: tuple[pa.Array | None, ...]  # by field; None for the time
    hashed: Hashed
    ts: I64

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def hashes(self) -> U64:
        """The hashes of their keys."""
        return self.hashed.hashes

    @property
    def size_bytes(self) -> int:
        """What they take in memory, with the id that each row will get."""
        return sum(int(column.nbytes) for column in self.columns if column is not None) + _ROW_BYTES * len(self)


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The keys and times of rows that ask for others. `exact`: what has an equal hash has an equal key."""

    keys: tuple[pa.Array, ...]
    hashed: Hashed
    ts: I64
    has_null_key: bool
    exact: bool


def read_rows(side: Side, batch: Batch) -> list[Rows]:
    """All columns of a batch. Raises SchemaError before anything is changed."""
    parts = list(_parts(side, batch, side.schema.names, whole=True))
    return [_rows(side, batch, part) for part in parts if part.num_rows]


def read_keys(side: Side, batch: Batch) -> Iterator[KeyRows]:
    """The key and time columns of a batch, which may lack the others."""
    for part in _parts(side, batch, [*side.keys, side.time]):
        keys = tuple(part.column(name) for name in side.keys)
        nulls = any(key.null_count for key in keys)
        hashed = _hashed(side, batch, part)
        exact = tells_apart(keys, hashed.hashes)
        yield KeyRows(keys, hashed, _times(side, part.column(side.time)), nulls, exact)


def read_hashes(side: Side, batch: Batch) -> U64:
    """The hashes of the keys of a batch, whatever else it holds."""
    parts = [hash_keys(part.columns) for part in _parts(side, batch, side.keys)]
    return np.concatenate([np.empty(0, np.uint64), *parts])


def null_keys(keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Which rows have a NULL in their key, and so equal nothing."""
    found = np.zeros(len(keys[0]), bool)
    for key in keys:
        if key.null_count:
            found |= key.is_null().to_numpy(zero_copy_only=False)
    return found


def _rows(side: Side, batch: Batch, part: pa.RecordBatch) -> Rows:
    columns = tuple(None if f.name == side.time else part.column(n) for n, f in enumerate(side.schema))
    return Rows(columns, _hashed(side, batch, part), _times(side, part.column(side.time)))


def _hashed(side: Side, batch: Batch, part: pa.RecordBatch) -> Hashed:
    """The hashes of the keys of a part of a batch."""
    told = _last.told
    for last, keys, hashed in told[:]:  # a copy: another thread may be the one that lets go of the batch
        if last() is batch and keys == side.keys:
            return hashed
    hashed = Hashed(hash_keys([part.column(name) for name in side.keys]))
    if isinstance(batch, pa.RecordBatch):  # which is never changed, and is its only part
        told[:] = [(weakref.ref(batch, lambda _: told.clear()), side.keys, hashed)]
    return hashed


def _parts(side: Side, batch: Batch, wanted: Sequence[str], *, whole: bool = False) -> Iterator[pa.RecordBatch]:
    """The wanted columns in order, as batches without chunks; `whole` batches may hold no others."""
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise SchemaError(f"side {side.name!r}: a pyarrow RecordBatch or Table is needed, not {type(batch).__name__}")
    names = batch.schema.names
    if len(set(names)) != len(names):
        raise SchemaError(f"side {side.name!r}: the batch repeats a column name")
    needed = pa.schema([side.schema.field(name) for name in wanted])
    given = pa.schema([f for f in batch.schema if whole or f.name in wanted])
    fits = all(name in names and batch.schema.field(name).type == needed.field(name).type for name in wanted)
    plain = fits or all(f.name in names and means(batch.schema.field(f.name).type, f.type) for f in needed)
    if not plain or len(given) != len(wanted):
        raise SchemaError(f"side {side.name!r}: the batch does not fit: {columns_difference(needed, given)}")
    picked = batch.select(wanted)
    parts = batches_of(picked if fits else decoded(picked, needed))
    for part in parts:
        for column, field in zip(part.columns, needed, strict=True):
            if column.null_count and (not field.nullable or field.name == side.time):
                raise SchemaError(
                    f"side {side.name!r}: column {field.name!r} holds {column.null_count} NULLs and may hold none; "
                    "filter those rows out, or give them a value"
                )
    yield from parts


def batches_of(batch: Batch) -> list[pa.RecordBatch]:
    """The same rows as batches, of one chunk each."""
    return [batch] if isinstance(batch, pa.RecordBatch) else batch.combine_chunks().to_batches()


def decoded(batch: Batch, schema: pa.Schema) -> Batch:
    """The same rows with the plain types of a schema. Requires: as many columns, which mean those types."""
    try:
        parts = [
            pa.RecordBatch.from_arrays(
                [plainly(column, field.type) for column, field in zip(part.columns, schema, strict=True)], schema=schema
            )
            for part in ([batch] if isinstance(batch, pa.RecordBatch) else batch.to_batches())
        ]
    except (pa.ArrowException, IndexError) as error:
        raise SchemaError(f"the batch has an encoded column that cannot be decoded: {type(error).__name__}") from error
    return parts[0] if isinstance(batch, pa.RecordBatch) else pa.Table.from_batches(parts, schema)


def _times(side: Side, column: pa.Array) -> I64:
    ts: I64 = column.cast(pa.int64()).to_numpy(zero_copy_only=True)
    return ts
