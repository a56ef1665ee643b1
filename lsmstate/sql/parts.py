"""Parts of pipelines that only SQL needs: columns picked and renamed, rows filtered, all counted.

A source belongs to its thread and an operator to its own; each number of `Progress` is written by one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.checkpoint.connect.source import Source
from lsmstate.checkpoint.operator import Operator
from lsmstate.join.condition import fulfils


@dataclass(slots=True)
class Progress:
    """Rows of this run: by source, and of the result. Those of the result may come before their epoch counts."""

    rows_in: dict[str, int] = field(default_factory=dict)
    rows_out: int = 0


class PickedSource:
    """Some columns of a source, under other names."""

    def __init__(self, name: str, source: Source, columns: Sequence[tuple[str, str]], progress: Progress) -> None:
        self._name, self._source, self._progress = name, source, progress
        self._columns = [column for column, _ in columns]
        fields = [source.schema.field(column).with_name(called).remove_metadata() for column, called in columns]
        self._schema = pa.schema(fields)
        progress.rows_in[name] = 0

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def ended(self) -> bool:
        return self._source.ended

    def open(self, offsets: Mapping[str, str] | None) -> None:
        self._source.open(offsets)

    def read(self) -> pa.RecordBatch | None:
        batch = self._source.read()
        if batch is None:
            return None
        self._progress.rows_in[self._name] += batch.num_rows
        return pa.RecordBatch.from_arrays([batch.column(column) for column in self._columns], schema=self._schema)

    def offsets(self) -> dict[str, str]:
        return self._source.offsets()

    def close(self) -> None:
        self._source.close()


class Selection(Operator):
    """The columns that are selected, of rows that fulfil a condition. Keeps no state."""

    def __init__(
        self, columns: Sequence[tuple[str, str]], where: pc.Expression | None, progress: Progress | None = None
    ) -> None:
        self._columns, self._where = list(columns), where
        self._progress = progress or Progress()

    def definition(self) -> dict[str, object]:
        """What is selected, and of which rows."""
        where = None if self._where is None else str(self._where)
        return {"operator": "Selection", "columns": self._columns, "where": where}

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        if self._where is not None:
            batch = batch.filter(pa.array(fulfils(self._where, batch)))
        if batch.num_rows:
            arrays = [batch.column(name) for name, _ in self._columns]
            self._progress.rows_out += batch.num_rows
            yield pa.RecordBatch.from_arrays(arrays, names=[called for _, called in self._columns])
