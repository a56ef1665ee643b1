"""What comes in: batches checked against their side, as columns with hashes and times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.errors import SchemaError
from lsmstate.hashing import hash_keys
from lsmstate.keys import I64, U64
from lsmstate.schema import Side, columns_difference

_ROW_BYTES = 24  # hash, ts and id
Batch: TypeAlias = pa.RecordBatch | pa.Table


@dataclass(frozen=True, slots=True)
class Rows:
    """Checked rows of a side, in order of arrival."""

    columns: tuple[pa.Array | None, ...]  # by field; None for the time
    hashes: U64
    ts: I64

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def size_bytes(self) -> int:
        """What they take in memory, with the id that each row will get."""
        return sum(int(column.nbytes) for column in self.columns if column is not None) + _ROW_BYTES * len(self)


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The keys and times of rows that ask for others."""

    keys: tuple[pa.Array, ...]
    hashes: U64
    ts: I64
    has_null_key: bool


def read_rows(side: Side, batch: Batch) -> list[Rows]:
    """All columns of a batch. Raises SchemaError before anything is changed."""
    parts = list(_parts(side, batch, side.schema.names))
    return [_rows(side, part) for part in parts if part.num_rows]


def read_keys(side: Side, batch: Batch) -> Iterator[KeyRows]:
    """The key and time columns of a batch, which may lack the others."""
    for part in _parts(side, batch, [*side.keys, side.time]):
        keys = tuple(part.column(name) for name in side.keys)
        nulls = any(key.null_count for key in keys)
        yield KeyRows(keys, hash_keys(keys), _times(side, part.column(side.time)), nulls)


def null_keys(keys: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Which rows have a NULL in their key, and so equal nothing."""
    found = np.zeros(len(keys[0]), bool)
    for key in keys:
        if key.null_count:
            found |= key.is_null().to_numpy(zero_copy_only=False)
    return found


def _rows(side: Side, part: pa.RecordBatch) -> Rows:
    columns = tuple(None if f.name == side.time else part.column(n) for n, f in enumerate(side.schema))
    hashes = hash_keys([part.column(name) for name in side.keys])
    return Rows(columns, hashes, _times(side, part.column(side.time)))


def _parts(side: Side, batch: Batch, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The wanted columns in order, as batches without chunks."""
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise SchemaError(f"side {side.name!r}: a pyarrow RecordBatch or Table is needed, not {type(batch).__name__}")
    names = batch.schema.names
    if len(set(names)) != len(names):
        raise SchemaError(f"side {side.name!r}: the batch repeats a column name")
    whole = len(wanted) == len(side.schema)
    needed = pa.schema([side.schema.field(name) for name in wanted])
    given = pa.schema([f for f in batch.schema if whole or f.name in wanted])
    fits = all(name in names and batch.schema.field(name).type == needed.field(name).type for name in wanted)
    if not fits or len(given) != len(wanted):
        raise SchemaError(f"side {side.name!r}: the batch does not fit: {columns_difference(needed, given)}")
    picked = batch.select(wanted)
    parts = [picked] if isinstance(picked, pa.RecordBatch) else picked.combine_chunks().to_batches()
    for part in parts:
        for column, field in zip(part.columns, needed, strict=True):
            if column.null_count and (not field.nullable or field.name == side.time):
                raise SchemaError(
                    f"side {side.name!r}: column {field.name!r} holds {column.null_count} NULLs and may hold none; "
                    "filter those rows out, or give them a value"
                )
    yield from parts


def _times(side: Side, column: pa.Array) -> I64:
    ts: I64 = column.cast(pa.int64()).to_numpy(zero_copy_only=True)
    return ts
