"""What comes in: batches checked against their side before anything is changed, and what was counted of them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from lsmstate.encodings import means
from lsmstate.engine.intake import Batch, batches_of, decoded
from lsmstate.errors import SchemaError
from lsmstate.schema import Side


@dataclass
class Counts:
    """What an operator has seen, since the state was made. Pairs are (left, right)."""

    rows_in: list[int] = field(default_factory=lambda: [0, 0])
    late: list[int] = field(default_factory=lambda: [0, 0])  # not after the watermark
    ahead: list[int] = field(default_factory=lambda: [0, 0])  # further after the newest row than max_jump
    unkeyed: list[int] = field(default_factory=lambda: [0, 0])  # NULL in the key or the time
    rows_out: int = 0


def parts_of(side: Side, batch: Batch) -> list[pa.RecordBatch]:
    """The rows of a batch with the columns of the side in their order. Raises SchemaError if they do not fit."""
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise SchemaError(f"a pyarrow RecordBatch or Table is needed, not {type(batch).__name__}")
    if sorted(batch.schema.names) != sorted(side.schema.names):
        wanted, given = ", ".join(side.schema.names), ", ".join(batch.schema.names)
        raise SchemaError(f"side {side.name!r} has the columns {wanted}; the batch has {given}")
    picked = batch.select(side.schema.names)
    for number, told in enumerate(side.schema):
        kind = picked.schema.field(number).type
        if kind != told.type and not means(kind, told.type):
            raise SchemaError(f"side {side.name!r}: column {told.name!r} is {kind} instead of {told.type}; cast it")
    parts = batches_of(picked if picked.schema.types == side.schema.types else decoded(picked, side.schema))
    for number, told in enumerate(side.schema):
        nulls = sum(part.column(number).null_count for part in parts)
        if nulls and not told.nullable:
            raise SchemaError(f"side {side.name!r}: column {told.name!r} holds {nulls} NULLs and may hold none")
    return [pa.RecordBatch.from_arrays(part.columns, schema=side.schema) for part in parts if part.num_rows]


def check_side(side: object) -> None:
    """Raises ValueError unless it is the number of a side of a join."""
    if not isinstance(side, int) or isinstance(side, bool) or side not in (0, 1):
        raise ValueError(f"side must be 0 (left) or 1 (right), not {side!r}")
