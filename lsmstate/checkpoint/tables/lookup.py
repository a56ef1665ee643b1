"""The lookup: an operator that gives rows the columns of a reference table.

    pipeline.operator("enrich", lambda: Lookup(ReferenceTable(ParquetSource("users"), ["user"]), on=["user_id"]),
                      inputs=["orders"])

The table is read as far as it goes when the operator starts, and its changes are taken in before each batch. Its
rows, and how far its source was read, are part of every checkpoint, so both go back together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lsmstate.checkpoint.context import OperatorContext
from lsmstate.checkpoint.operator import Operator
from lsmstate.checkpoint.tables.reference import ReferenceTable
from lsmstate.errors import CheckpointError

_TABLE = "reference"
_POLLS_MAX = 10_000


class Lookup(Operator):
    """on: the columns of the rows that hold the table's keys. how: "left" gives NULLs where the table has no such row,
    "inner" leaves the row out. suffix: for columns that the rows have already."""

    def __init__(
        self, table: ReferenceTable, *, on: Sequence[str] | None = None, how: str = "left", suffix: str = "_right"
    ) -> None:
        self._table, self._on, self._how, self._suffix = table, on, how, suffix
        self._watermark: int | None = None

    def definition(self) -> dict[str, object]:
        """What it looks up, and by what."""
        return {"operator": "Lookup", "keys": list(self._table.keys), "on": self._on, "how": self._how}

    def on_start(self, context: OperatorContext) -> None:
        """Opens the table where the checkpoint left it, and reads what has come since."""
        if context.tables is None:
            raise CheckpointError("a lookup needs the tables of a pipeline; run it in one")
        self._table.open(context.tables, _TABLE, context.table_offsets.get(_TABLE))
        for _ in range(_POLLS_MAX):  # a table that never stops changing must not keep the job from starting
            if not self._table.poll():
                break

    def process_batch(self, number: int, batch: pa.RecordBatch, /) -> Iterator[pa.RecordBatch]:
        """The rows, with what the table holds now."""
        self._table.poll()
        found = self._table.lookup(batch, self._on, self._how, self._suffix)
        if found.num_rows:
            yield found

    def process_watermark(self, watermark: int, number: int, /) -> Iterator[pa.RecordBatch]:
        """Passes it on."""
        self._watermark = watermark
        return iter(())

    @property
    def output_watermark(self) -> int | None:
        """That of the rows."""
        return self._watermark

    def table_offsets(self) -> dict[str, dict[str, str]]:
        """How far the table's source was read."""
        return {_TABLE: dict(self._table.checkpoint().offsets)}

    def on_close(self) -> None:
        """Closes the table's source."""
        self._table.close()
