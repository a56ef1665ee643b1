"""A global keyed table: the latest row of each key, on a store of the engine.

Every row that is put gets the next version, which is the time of the store's only side; a key that is deleted gets a
row that says so. So a put is an append, and a get is a probe that keeps the greatest version. Once there are twice as
many versions as rows were left the last time, the table is folded: the latest rows are appended anew, and the watermark
retires all before them, file by file. Folding changes nothing that can be read, so it may fail and be done again.
Threading: belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.checkpoint.tables.latest import latest
from lsmstate.engine import StateStore
from lsmstate.engine.intake import Batch
from lsmstate.errors import CorruptionError, SchemaError
from lsmstate.keys import I64
from lsmstate.schema import PROBE_INDEX, Side, columns_difference

_VERSION = "__version"
_DELETED = "__deleted"
_META = "keyed"
_FOLD_ROWS = 8192  # smaller tables are left alone
_BATCH_ROWS = 64 << 10


@dataclass(frozen=True, slots=True)
class Found:
    """What `get` has found: rows, and which of the keys that were asked for each of them has, ascending."""

    rows: pa.RecordBatch
    index: I64


def keyed_side(name: str, schema: pa.Schema, keys: Sequence[str]) -> Side:
    """The side that a keyed table is stored as. Raises SchemaError for columns that it cannot have."""
    names = (keys,) if isinstance(keys, str) else tuple(keys)
    for taken in (_VERSION, _DELETED):
        if taken in schema.names:
            raise SchemaError(f"table {name!r}: the name {taken!r} is taken; rename the column")
    stored = [column.with_nullable(True) for column in schema]  # deleted keys have no values; `put` looks at NULLs
    stored += [pa.field(_VERSION, pa.int64(), nullable=False), pa.field(_DELETED, pa.bool_(), nullable=False)]
    return Side(name, pa.schema(stored), names, _VERSION, retention=timedelta(0))


class KeyedTable:
    """An open table; get one from `TableSet.keyed`. `note` is kept with every epoch: small JSON of the user's."""

    def __init__(self, store: StateStore, schema: pa.Schema) -> None:
        self.store, self.schema = store, schema.remove_metadata()
        self._side = store.sides[0]
        self.keys = tuple(self._side.keys)
        self._recall()

    def _recall(self) -> None:
        """Takes what the store's epoch tells."""
        told = self.store.meta.get(_META, {"version": 0, "versions": 0, "folded": 0, "note": {}})
        try:
            self._next, self._versions, self._folded = (int(told[k]) for k in ("version", "versions", "folded"))
            self.note: Mapping[str, Any] = dict(told["note"])
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptionError(self._side.name, 0, "what a keyed table keeps", type(error).__name__) from None

    # ---- write

    def put(self, batch: Batch, deleted: pa.BooleanArray | None = None) -> None:
        """Sets the rows of their keys; of several with one key the last one counts. `deleted` says of each row whether
        it removes its key instead."""
        if deleted is not None and (len(deleted) != len(batch) or deleted.null_count):
            raise SchemaError(f"table {self._side.name!r}: `deleted` needs one true or false for each row")
        flags, at = pa.array(np.zeros(len(batch), bool)) if deleted is None else deleted, 0
        for part in self._parts(batch, self.schema.names):
            self._append(list(part.columns), flags.slice(at, part.num_rows))
            at += part.num_rows
        self._fold_if_due()

    def delete(self, keys: Batch) -> None:
        """Removes the rows with these keys, where there are any. Other columns of the batch are ignored."""
        for part in self._parts(keys, self.keys):
            columns = [
                part.column(field.name) if field.name in self.keys else pa.nulls(part.num_rows, field.type)
                for field in self.schema
            ]
            self._append(columns, pa.array(np.ones(part.num_rows, bool)))
        self._fold_if_due()

    # ---- read

    def get(self, keys: Batch) -> Found:
        """The rows with these keys. A NULL in a key finds nothing."""
        rows, first, found = [], 0, []
        for part in self._parts(keys, self.keys, nulls=True):
            best = self._best(part)
            if best is not None:
                found.append(best.column(PROBE_INDEX).to_numpy() + first)
                rows.append(self._shown(best))
            first += part.num_rows
        if not rows:
            return Found(self._empty(), np.empty(0, np.int64))
        return Found(_whole(rows), np.concatenate(found))

    def items(self) -> Iterator[pa.RecordBatch]:
        """All rows, in no order, in bounded batches; as of this moment."""
        with self.store.snapshot() as view:
            for rows in latest(view, self._side.key_fields, len(self.schema) + 1, _BATCH_ROWS):
                yield self._shown(rows)

    # ---- epochs

    def prepare(self, epoch: int) -> str:
        """Makes all that was written durable as a candidate of an epoch; gives its name."""
        told = {"version": self._next, "versions": self._versions, "folded": self._folded, "note": dict(self.note)}
        return self.store.prepare(epoch, meta={_META: told})

    def commit(self, epoch: int) -> None:
        """A prepared epoch counts."""
        self.store.commit(epoch)

    def abort(self, epoch: int) -> None:
        """A prepared epoch does not: what was written goes into the next one."""
        self.store.abort(epoch)

    def restore(self, epoch: int) -> None:
        """Goes back to a committed epoch; what came later is discarded."""
        self.store.restore(epoch)
        self._recall()

    def close(self) -> None:
        """Closes the store. What was not committed is not kept."""
        self.store.close()

    # ---- inside

    def _append(self, columns: list[pa.Array], deleted: pa.BooleanArray) -> None:
        rows = len(deleted)
        if rows:
            columns += [pa.array(np.arange(self._next, self._next + rows)), deleted]
            self.store.append(0, pa.RecordBatch.from_arrays(columns, schema=self._side.schema))
            self._next += rows
            self._versions += rows

    def _fold_if_due(self) -> None:
        if self._versions > 2 * max(self._folded, _FOLD_ROWS):
            self.fold()

    def fold(self) -> None:
        """Leaves the latest version of each key only. Done by itself when it is worth it."""
        first, kept = self._next, 0
        for rows in latest(self.store.view(), self._side.key_fields, len(self.schema) + 1, _BATCH_ROWS):
            self._append(list(rows.columns[: len(self.schema)]), pa.array(np.zeros(rows.num_rows, bool)))
            kept += rows.num_rows
        if first:
            self.store.advance_watermark(first - 1)
        self._versions = self._folded = kept

    def _best(self, part: pa.RecordBatch) -> pa.RecordBatch | None:
        """Of each key that was asked for the greatest version, unless it is deleted."""
        zeros = pa.array(np.zeros(part.num_rows, np.int64))
        asked = pa.RecordBatch.from_arrays([*part.columns, zeros], names=[*self.keys, _VERSION])
        best: pa.RecordBatch | None = None
        for found in self.store.probe(0, asked):
            best = _greatest(found if best is None else _whole([best, found]))
        return None if best is None else best.filter(pc.invert(best.column(_DELETED)))

    def _shown(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(stored.columns[: len(self.schema)], schema=self.schema)

    def _empty(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in self.schema], schema=self.schema)

    def _parts(self, batch: Batch, names: Sequence[str], *, nulls: bool = False) -> Iterator[pa.RecordBatch]:
        """The named columns of a batch, checked before anything is changed."""
        what = f"table {self._side.name!r}"
        if not isinstance(batch, pa.RecordBatch | pa.Table):
            raise SchemaError(f"{what}: a pyarrow RecordBatch or Table is needed, not {type(batch).__name__}")
        needed, whole = pa.schema([self.schema.field(name) for name in names]), len(names) == len(self.schema)
        given = pa.schema([field for field in batch.schema if whole or field.name in names])
        if sorted(given.names) != sorted(names) or any(given.field(f.name).type != f.type for f in needed):
            raise SchemaError(f"{what}: the batch does not fit: {columns_difference(needed, given)}")
        picked = batch.select(list(names))
        for field, column in zip(needed, picked.columns, strict=True):
            if not nulls and column.null_count and (field.name in self.keys or not field.nullable):
                is_key = "is a key" if field.name in self.keys else "is not nullable"
                raise SchemaError(f"{what}: column {field.name!r} {is_key} and holds {column.null_count} NULLs")
        parts = [picked] if isinstance(picked, pa.RecordBatch) else picked.combine_chunks().to_batches()
        return iter(parts)


def _greatest(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Of each row that asked the one with the greatest version, in the order of those that asked."""
    index, versions = rows.column(PROBE_INDEX).to_numpy(), rows.column(_VERSION).to_numpy()
    order = np.lexsort((versions, index))
    last = np.r_[index[order][1:] != index[order][:-1], True]
    return rows.take(pa.array(order[last]))


def _whole(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    columns = [pa.concat_arrays([batch.column(n) for batch in batches]) for n in range(len(batches[0].schema))]
    return pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
