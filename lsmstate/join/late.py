"""Rows that cannot take part: late ones, those from the far future, those without a key or a time.

They are sorted out row by row. Late and far ones are counted and, if wanted, kept in sides of the state of their own
with the reason, the watermark and the epoch, for a week of event time after they were judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.errors import SchemaError
from lsmstate.schema import Side

LATE, AHEAD = "late", "ahead"
REASON, WATERMARK, EPOCH = "__reason", "__watermark", "__epoch"
LATE_KEPT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Sorted:
    """The rows of a batch: those that take part, and the others. max_ts is the newest time that is not far ahead."""

    living: pa.RecordBatch
    late: pa.RecordBatch
    ahead: pa.RecordBatch
    unkeyed: pa.RecordBatch  # NULL in the key or in the time: they equal nothing
    max_ts: int | None


def sort_out(batch: pa.RecordBatch, side: Side, watermark: int | None, ahead_of: int | None) -> Sorted:
    """Late is what is not after the watermark, ahead what is after `ahead_of`."""
    column = batch.column(side.time)
    if batch.num_rows and not any(batch.column(name).null_count for name in (*side.keys, side.time)):
        known = column.cast(pa.int64()).to_numpy()
        oldest, newest = int(known.min()), int(known.max())
        if (watermark is None or oldest > watermark) and (ahead_of is None or newest <= ahead_of):
            none = batch.slice(0, 0)
            return Sorted(batch, none, none, none, newest)
    timed = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else np.ones(len(column), bool)
    ts = column.cast(pa.int64()).fill_null(0).to_numpy()
    late = timed & (ts <= watermark) if watermark is not None else np.zeros(len(ts), bool)
    ahead = timed & (ts > ahead_of) if ahead_of is not None else np.zeros(len(ts), bool)
    keyed = timed
    for name in side.keys:
        if batch.column(name).null_count:
            keyed = keyed & batch.column(name).is_valid().to_numpy(zero_copy_only=False)
    counted = timed & ~ahead
    last = int(ts[counted].max()) if counted.any() else None
    others = late | ahead
    return Sorted(
        _picked(batch, keyed & ~others),
        _picked(batch, late),
        _picked(batch, ahead),
        _picked(batch, ~keyed & ~others),
        last,
    )


def _picked(batch: pa.RecordBatch, rows: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    if rows.all():
        return batch
    return batch.filter(pa.array(rows)) if rows.any() else batch.slice(0, 0)


def check_names(sides: tuple[Side, Side]) -> None:
    """Raises SchemaError if a side has columns that the side of its late rows needs for itself."""
    for side in sides:
        taken = sorted({REASON, WATERMARK, EPOCH} & {*side.schema.names})
        if taken:
            raise SchemaError(
                f"side {side.name!r}: the names {', '.join(taken)} are lsmstate's own; rename the columns"
            )


def late_side(of: Side) -> Side:
    """The side that keeps rows of another which could not take part."""
    fields = [pa.field(kept.name, kept.type) for kept in of.schema]
    told = [
        pa.field(REASON, pa.string(), nullable=False),
        pa.field(WATERMARK, pa.int64(), nullable=False),
        pa.field(EPOCH, pa.int64(), nullable=False),
    ]
    return Side(f"{of.name}_late", pa.schema([*fields, *told]), of.keys, WATERMARK, LATE_KEPT)


def as_kept(side: Side, rows: pa.RecordBatch, reason: str, watermark: int, epoch: int) -> pa.RecordBatch:
    """Rows for the side that keeps them."""
    count = rows.num_rows
    told = [pa.array([reason] * count), pa.array(np.full(count, watermark)), pa.array(np.full(count, epoch))]
    return pa.RecordBatch.from_arrays([*rows.columns, *told], schema=side.schema)
