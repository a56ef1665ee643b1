"""Another parallelism: the states of some instances of a join become those of others.

Instances hold ranges of key hashes. Ranges are split and merged by copying rows: ids are new in a new state, so marks
are written anew, each with the epoch that it was made in. What the instances remember besides (watermarks, counts) is
merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa

from lsmstate.engine import StateStore
from lsmstate.engine.intake import Batch, read_hashes
from lsmstate.join.marks import Marks, marked_since
from lsmstate.join.matching import times_of
from lsmstate.join.partition import partition_of
from lsmstate.join.shape import Shape, marks_number
from lsmstate.keys import I64, U64
from lsmstate.options import Options
from lsmstate.schema import Side

_ROW_ID = "__row_id"


def route(side: Side, batch: Batch, parallelism: int) -> I64:
    """For each row of a side which of the instances holds its key. Raises SchemaError if the keys do not fit."""
    return partition_of(read_hashes(side, batch).view(np.int64), parallelism)


def rescale(
    shape: Shape, options: Options | None, before: Sequence[tuple[str, str]], after: Sequence[str], epoch: int
) -> None:
    """Makes new states, one in each directory of `after`, of all rows of the old ones (directory and candidate)."""
    with ExitStack() as stack:
        old = [
            stack.enter_context(StateStore.open_candidate(path, candidate, shape.state_sides, read_only=True))
            for path, candidate in before
        ]
        told = merged([store.meta["join"] for store in old])
        for instance, path in enumerate(after):
            with StateStore.open(path, shape.state_sides, options) as new:
                marks = {
                    side: Marks(new, side, number)
                    for side in (0, 1)
                    if (number := marks_number(shape.kind, side)) is not None
                }
                for store in old:
                    _copy(shape, store, new, marks, instance, len(after))
                watermarks = [store.watermark for store in old if store.watermark is not None]
                if len(watermarks) == len(old):
                    new.advance_watermark(min(watermarks))
                counts = told["counts"] if instance == 0 else _none_of(told["counts"])
                new.snapshot_epoch(epoch, meta={"join": {**told, "counts": counts}})


def merged(told: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What several instances remember, as one: the lower watermarks, the newer times, the sums."""
    first = told[0]
    counts = {
        name: [sum(each["counts"][name][side] for each in told) for side in (0, 1)]
        if isinstance(value, list)
        else sum(each["counts"][name] for each in told)
        for name, value in first["counts"].items()
    }
    marks: list[int | None] = []
    newest: list[int | None] = []
    for side in (0, 1):
        known = [each["watermarks"][side] for each in told]
        marks.append(None if None in known else min(known))
        newest.append(max((each["newest"][side] for each in told if each["newest"][side] is not None), default=None))
    idle = set.intersection(*(set(each["idle"]) for each in told))
    return {"kind": first["kind"], "watermarks": marks, "idle": sorted(idle), "newest": newest, "counts": counts}


def _copy(
    shape: Shape, old: StateStore, new: StateStore, marks: dict[int, Marks], instance: int, parallelism: int
) -> None:
    for number in range(4):  # rows of both sides, and those that came too late
        side = shape.state_sides[number]
        for batch in old.view().scan(number, row_ids=True):
            mine = np.flatnonzero(route(side, batch, parallelism) == instance)
            if not len(mine):
                continue
            rows = batch.take(pa.array(mine))
            ids: U64 = rows.column(_ROW_ID).to_numpy().astype(np.uint64)
            kept = rows.select(side.schema.names)
            first = new.append(number, kept)
            if number in marks:
                since = marked_since(old, marks_number(shape.kind, number) or 0, ids)
                ts = times_of(side, kept.columns)
                for epoch in np.unique(since[since > 0]).tolist():
                    at = np.flatnonzero(since == epoch)
                    marks[number].add(ts[at], (first + at).astype(np.uint64))
                    marks[number].write(epoch, -(1 << 63))


def _none_of(counts: dict[str, Any]) -> dict[str, Any]:
    return {name: [0, 0] if isinstance(value, list) else 0 for name, value in counts.items()}
