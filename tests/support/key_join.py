"""An interval join by keys of one type, in a random life, and the same by Python's own comparison of keys."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from lsmstate import Options, Side
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.join import IntervalJoin
from tests.support.key_values import plain_key, random_key

REACH = 30
END = 1 << 40
Result = Counter[tuple[int | None, int | None]]  # the numbers of a left and a right row


@dataclass(frozen=True)
class KeyCase:
    """Rows of both sides: keys, times, numbers."""

    how: str
    sides: tuple[pa.RecordBatch, pa.RecordBatch]
    keys: int

    @property
    def kinds(self) -> tuple[Side, Side]:
        """The sides."""
        left, right = ([f"{mark}{number}" for number in range(self.keys)] for mark in "lr")
        return Side("left", self.sides[0].schema, left, "ts"), Side("right", self.sides[1].schema, right, "ts")


def key_case(rng: random.Random, kinds: list[pa.DataType], how: str, rows: int = 60) -> KeyCase:
    """Random rows with few keys, so that many meet."""
    batches = []
    for mark in "lr":
        keys = [random_key(rng, kind, rows, few=True) for kind in kinds]
        ts = pa.array([rng.randint(0, 120) for _ in range(rows)])
        names = [f"{mark}{number}" for number in range(len(kinds))]
        batches.append(pa.RecordBatch.from_arrays([*keys, ts, pa.array(range(rows))], names=[*names, "ts", "n"]))
    return KeyCase(how, (batches[0], batches[1]), len(kinds))


def by_python(case: KeyCase) -> Result:
    """The join, by comparing everything with everything."""
    told = []
    for batch in case.sides:
        keys = zip(*(plain_key(batch.column(number)) for number in range(case.keys)), strict=True)
        told.append(list(zip(keys, batch.column("ts").to_pylist(), strict=True)))
    pairs = [
        (one, other)
        for one, (key, ts) in enumerate(told[0])
        for other, (its, when) in enumerate(told[1])
        if key == its and None not in key and abs(when - ts) <= REACH
    ]
    found: Result = Counter(pairs)
    for side, how in ((0, "left"), (1, "right")):
        if case.how in (how, "full"):
            alone = set(range(len(told[side]))) - {pair[side] for pair in pairs}
            found.update((row, None) if side == 0 else (None, row) for row in alone)
    return found


def by_join(case: KeyCase, rng: random.Random, path: Path) -> tuple[pa.Table, Result]:
    """The join by an operator that is cut into batches, makes checkpoints and is restarted."""
    reach = timedelta(microseconds=REACH)
    options = Options(memtable_bytes=rng.choice([300, 4 << 20]), batch_rows=rng.choice([3, 64 << 10]))
    waiting = [case.sides[0], case.sides[1]]
    out: list[pa.RecordBatch] = []
    epoch = 0
    join = _opened(case, reach, options, path)
    while any(batch.num_rows for batch in waiting):
        side, count = rng.randrange(2), rng.choice([1, 7, 25])
        out += join.process_batch(side, waiting[side].slice(0, count))
        waiting[side] = waiting[side].slice(count)
        if rng.random() < 0.3:
            epoch += 1
            join.handle_checkpoint(CheckpointBarrier(epoch))
            join.commit(epoch)
            if rng.random() < 0.5:
                join.on_close()
                join = _opened(case, reach, options, path)
    assert join.store.verify() == []
    join.store.compact(major=True)
    out += join.process_watermark(END)
    join.on_close()
    table = pa.Table.from_batches([batch for batch in out if batch.num_rows], schema=join.shape.output)
    return table, Counter(zip(table["n"].to_pylist(), table["n_right"].to_pylist(), strict=True))


def _opened(case: KeyCase, reach: timedelta, options: Options, path: Path) -> IntervalJoin:
    left, right = case.kinds
    join = IntervalJoin(left, right, lower=-reach, upper=reach, how=case.how, options=options)
    join.on_start(OperatorContext(path))
    return join


def as_stored(column: pa.Array | pa.ChunkedArray) -> Any:
    """What tells values apart that are the same key but not the same bytes."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pt.is_floating(array.type):
        return array.view(pa.uint32() if pt.is_float32(array.type) else pa.uint64()).to_pylist()
    return repr(array.to_pylist()) if pt.is_nested(array.type) else array
