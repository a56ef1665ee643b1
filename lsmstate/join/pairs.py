"""Pairs: rows of a batch of one side and the rows of the other side's state that they meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.engine import StateStore, View
from lsmstate.hashing.sameness import has_one_form
from lsmstate.join.condition import fulfils
from lsmstate.join.row_sizes import row_bytes
from lsmstate.join.shape import Columns, Shape
from lsmstate.keys import I64, U64
from lsmstate.schema import PROBE_INDEX, ROW_ID

_BYTES_MAX = 32 << 20  # of the rows that come out at once, unless one pair is larger


@dataclass(frozen=True, slots=True)
class Met:
    """Some pairs: which rows of the batch, the rows that they meet (and their ids), and both in one."""

    who: I64
    there: list[pa.Array]
    ids: U64 | None
    columns: Columns


def meet(
    state: StateStore | View,
    shape: Shape,
    side: int,
    batch: pa.RecordBatch,
    *,
    row_ids: bool = False,
    wanted: bool = True,
) -> Iterator[Met]:
    """The pairs of the rows of a batch of `side`, those that fulfil the condition. Without `wanted`, no columns of them
    are made: it is enough to know that they meet."""
    low, high = shape.kind.reach(side)
    wanted = wanted or shape.condition is not None
    view = state if isinstance(state, View) else state.view()
    pairs = zip(shape.sides[side].key_fields, shape.sides[1 - side].key_fields, strict=True)
    keys = {mine: theirs for mine, theirs in pairs if has_one_form(batch.schema.field(mine).type)}
    payload = [field for field in range(batch.num_columns) if field not in keys] if wanted else []
    sizes = row_bytes(batch) if wanted else np.zeros(1, np.int64)
    narrow = int(sizes.max(initial=0)) * view.batch_rows <= _BYTES_MAX  # so the probe may gather all that asks
    beside = [batch.column(field) for field in payload] if narrow else []
    for found in view.probe(1 - side, batch, low, high, by=side, row_ids=row_ids, beside=beside):
        there = found.columns[: len(shape.sides[1 - side].schema)]
        index = found.column(PROBE_INDEX)
        ids = found.column(ROW_ID).to_numpy() if row_ids else None
        if not wanted:
            yield Met(index.to_numpy(), there, ids, [])
            continue
        for start, end in _cuts(found, sizes):
            part = found.slice(start, end - start)
            who, rows = part.column(PROBE_INDEX), part.columns[: len(there)]
            taken = [pc.take(batch.column(field), who, boundscheck=False) for field in payload[len(beside) :]]
            mine = dict(zip(payload, [*part.columns[part.num_columns - len(beside) :], *taken], strict=True))
            asking = [rows[keys[field]] if field in keys else mine[field] for field in range(batch.num_columns)]
            columns = [*asking, *rows] if side == 0 else [*rows, *asking]
            met = Met(who.to_numpy(), rows, None if ids is None else ids[start:end], columns)
            if shape.condition is not None:
                met = _fulfilling(shape, met)
            if len(met.who):
                yield met


def _cuts(found: pa.RecordBatch, sizes: I64) -> Iterator[tuple[int, int]]:
    """First and last of the pairs that may come out at once. `sizes` are those of the rows that ask."""
    if found.nbytes + int(sizes.max()) * found.num_rows <= _BYTES_MAX:
        yield 0, found.num_rows
        return
    total = np.cumsum(sizes[found.column(PROBE_INDEX).to_numpy()] + row_bytes(found))
    start = 0
    while start < len(total):
        before = int(total[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(total, before + _BYTES_MAX, "right")))
        yield start, end
        start = end


def _fulfilling(shape: Shape, met: Met) -> Met:
    assert shape.condition is not None
    good = fulfils(shape.condition, shape.pairs(met.columns))
    if good.all():
        return met
    picked = pa.array(np.flatnonzero(good))
    ids = None if met.ids is None else met.ids[good]
    return Met(met.who[good], _taken(met.there, picked), ids, _taken(met.columns, picked))


def _taken(columns: list[pa.Array], rows: pa.Array) -> list[pa.Array]:
    return [column.take(rows) for column in columns]
