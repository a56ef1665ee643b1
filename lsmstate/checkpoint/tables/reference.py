"""A reference table: a table that a pipeline looks rows up in, kept up to date from a source of its changes.

    users = ReferenceTable(ParquetSource("users", follow=True), ["user"])
    users.open(context.tables, "users")
    users.poll()                                            # takes in what has changed
    rows = users.lookup(batch, on=["user_id"])              # the batch, with the columns of its users

The rows lie in a keyed table, and with them, in the same epoch, the offsets up to which the source was read: so table
and source always go back together, and no change is lost or taken twice. Threading: belongs to the operator's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lsmstate.checkpoint.connect.source import Source
from lsmstate.checkpoint.tables.table_set import KeyedTable, TableSet
from lsmstate.errors import CheckpointError, SchemaError, StoreClosedError

_BATCHES_MAX = 16
_HOWS = ("left", "inner")


@dataclass(frozen=True, slots=True)
class TableCheckpoint:
    """What a checkpoint tells of a reference table: how far its source was read, where its store lies, and the
    candidate of the epoch; None before the first."""

    offsets: Mapping[str, str]
    path: str
    candidate: str | None


class ReferenceTable:
    """The latest row of each key of a source of changes. `deleted`: a boolean column of the source that says whether
    a row removes its key; it is no column of the table."""

    def __init__(self, source: Source, keys: Sequence[str], *, deleted: str | None = None) -> None:
        self.source = source
        self.keys = (keys,) if isinstance(keys, str) else tuple(keys)
        self._deleted = deleted
        self._tables: TableSet | None = None
        self._table: KeyedTable | None = None
        self._name = ""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        schema = self.source.schema.remove_metadata()
        if self._deleted is None:
            return schema
        at = schema.get_field_index(self._deleted)
        if at < 0 or schema.field(at).type != pa.bool_():
            raise SchemaError(
                f"a reference table needs a boolean column {self._deleted!r} of its source to know deletions"
            )
        return schema.remove(at)

    @property
    def ended(self) -> bool:
        """Whether no more changes will ever come."""
        return self.source.ended

    def open(self, tables: TableSet, name: str, offsets: Mapping[str, str] | None = None) -> None:
        """Opens the table of this name, and the source where the table's epoch has left it. `offsets`: those of the
        checkpoint, where there is one; they must be the same."""
        table = tables.keyed(name, self.schema, self.keys)
        noted = table.note.get("offsets")
        if offsets is not None and dict(offsets) != (noted or {}):
            raise CheckpointError(
                f"reference table {name!r}: its store and the checkpoint tell different offsets; they do not belong "
                "together: restore both from one copy, or give the table another name to read it anew"
            )
        self.source.open(noted)
        self._tables, self._table, self._name = tables, table, name

    def poll(self) -> int:
        """Takes in changes that are there, a bounded number of batches; gives how many rows that were."""
        table, rows = self._opened(), 0
        for _ in range(_BATCHES_MAX):
            batch = self.source.read()
            if batch is None:
                break
            try:
                self._take(table, batch)
            except BaseException:
                self.source.open(table.note.get("offsets"))  # the rows come again
                raise
            rows += batch.num_rows
        return rows

    def _take(self, table: KeyedTable, batch: pa.RecordBatch) -> None:
        if self._deleted is None:
            table.put(batch)
        else:
            gone = batch.column(self._deleted).fill_null(False)
            table.put(batch.select([name for name in batch.schema.names if name != self._deleted]), gone)
        table.note = {"offsets": self.source.offsets()}

    def lookup(
        self, batch: pa.RecordBatch, on: Sequence[str] | None = None, how: str = "left", suffix: str = "_right"
    ) -> pa.RecordBatch:
        """The rows of a batch with the table's columns besides the keys. `on`: the columns that hold the keys, in the
        order of the table's. how: "left" gives NULLs where there is no such row, "inner" leaves those out. `suffix`
        goes to columns whose names the batch has already."""
        table = self._opened()
        names = self.keys if on is None else (on,) if isinstance(on, str) else tuple(on)
        if how not in _HOWS:
            raise ValueError(f"how must be 'left' or 'inner', not {how!r}")
        found = table.get(self._asked(batch, names))
        if how == "inner":
            batch, places = batch.take(pa.array(found.index)), pa.array(np.arange(len(found.index)))
        else:
            at = np.full(batch.num_rows, -1)
            at[found.index] = np.arange(len(found.index))
            places = pa.array(at, mask=at < 0)
        fields, columns = list(batch.schema), list(batch.columns)
        for field, column in zip(found.rows.schema, found.rows.columns, strict=True):
            if field.name not in self.keys:
                name = field.name + suffix if field.name in batch.schema.names else field.name
                fields.append(pa.field(name, field.type, field.nullable or how == "left"))
                columns.append(column.take(places))
        if len({field.name for field in fields}) != len(fields):
            raise SchemaError(
                f"reference table {self._name!r}: columns clash with those of the batch; give another suffix="
            )
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _asked(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """The keys that a batch asks for."""
        if not isinstance(batch, pa.RecordBatch) or len(names) != len(self.keys):
            raise SchemaError(
                f"reference table {self._name!r}: a RecordBatch and {len(self.keys)} key columns are needed to look up"
            )
        missing = [name for name in names if batch.schema.names.count(name) != 1]
        if missing:
            raise SchemaError(
                f"reference table {self._name!r}: the batch has no column {missing[0]!r:.100}, or several"
            )
        return pa.RecordBatch.from_arrays([batch.column(name) for name in names], names=list(self.keys))

    # ---- epochs, for those who do not leave them to the tables' runtime

    def prepare(self, epoch: int) -> str:
        """Makes table and offsets durable; gives the candidate. A runtime that prepares its tables does it by that."""
        self._opened()
        assert self._tables is not None
        return self._tables.prepare(epoch)[self._name]

    def commit(self, epoch: int) -> None:
        """A prepared epoch counts."""
        self._opened()
        assert self._tables is not None
        self._tables.commit(epoch)

    def abort(self, epoch: int) -> None:
        """A prepared epoch does not count; its changes go into the next one."""
        self._opened()
        assert self._tables is not None
        self._tables.abort(epoch)

    def checkpoint(self) -> TableCheckpoint:
        """What the manifest of a checkpoint tells of it."""
        table = self._opened()
        assert self._tables is not None
        offsets = dict(table.note.get("offsets") or {})
        return TableCheckpoint(offsets, self._tables.path_of(self._name), self._tables.candidates.get(self._name))

    def close(self) -> None:
        """Closes the source; the table is closed with its set."""
        self.source.close()
        self._table = self._tables = None

    def _opened(self) -> KeyedTable:
        if self._table is None:
            raise StoreClosedError("the reference table is not open; call open")
        return self._table
