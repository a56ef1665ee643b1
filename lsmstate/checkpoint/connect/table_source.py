"""A source of rows in memory. Its offset is the number of rows that it has given."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lsmstate.checkpoint.connect.source import whole_number
from lsmstate.errors import CheckpointError, SchemaError

_ROWS = "rows"


class TableSource:
    """The rows of a table in their order, `batch_rows` at a time. A restart has to bring the same table."""

    def __init__(self, table: pa.Table | pa.RecordBatch, batch_rows: int = 8192) -> None:
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not isinstance(table, pa.Table):
            raise SchemaError(f"a pyarrow Table or RecordBatch is needed, not {type(table).__name__}")
        if not isinstance(batch_rows, int) or isinstance(batch_rows, bool) or batch_rows < 1:
            raise ValueError(f"batch_rows must be a whole number of at least 1, not {batch_rows!r}")
        self._table, self._batch_rows = table, batch_rows
        self._at, self._ended = 0, False

    @property
    def schema(self) -> pa.Schema:
        return self._table.schema

    @property
    def ended(self) -> bool:
        return self._ended

    def open(self, offsets: Mapping[str, str] | None) -> None:
        at = whole_number("TableSource", offsets, _ROWS) if offsets else 0
        if at > self._table.num_rows:
            raise CheckpointError(
                f"TableSource: {at} rows were given before, and the table has only {self._table.num_rows}; "
                "bring the table that the job was started with"
            )
        self._at, self._ended = at, False

    def read(self) -> pa.RecordBatch | None:
        parts = self._table.slice(self._at, self._batch_rows).to_batches(max_chunksize=self._batch_rows)
        for part in parts:
            if part.num_rows:
                self._at += part.num_rows
                return part
        self._ended = True
        return None

    def offsets(self) -> dict[str, str]:
        return {_ROWS: str(self._at)}

    def close(self) -> None:
        pass
