"""The state of a full join whose rows hold every type, made by its operator, and all that is read from it: for flips.

Three epochs can be read. In the first, units have mark rows of two epochs. In the second these are folded, which leaves
tombstones; a row was removed, others came too late, and the watermark has retired one. The third is merged, with marks
that came after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pyarrow as pa

from iopool import FileSystem
from lsmstate import Options, StateStore
from lsmstate.checkpoint import CheckpointBarrier, OperatorContext
from lsmstate.engine import View
from lsmstate.join import IntervalJoin
from lsmstate.join.interval import IntervalMatching
from lsmstate.join.kinds import interval
from lsmstate.join.marks import marked_since
from lsmstate.join.shape import LATE_SIDES, marks_number, shape_of
from lsmstate.join.why import Why, explain
from lsmstate.keys import TS_MAX, TS_MIN
from lsmstate.sstable.cache import FileCache
from tests.support import nested_store
from tests.support.flips import Readers
from tests.support.random_values import ALL, NESTED

SECOND = 1_000_000
REACH = timedelta(seconds=32)  # so units are two seconds
OPTIONS = Options(retain=3, auto_compact=False)
SIDES = [nested_store.side_of("left", ALL), nested_store.side_of("right", [NESTED[-1], pa.string()])]
SHAPE = shape_of(SIDES[0], SIDES[1], interval(-REACH, REACH, "full"))
MARKS = {side: number for side in (0, 1) if (number := marks_number(SHAPE.kind, side)) is not None}
KEYS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
TOLD = (4, 5)  # of left and right, to `why`: one that is late and was removed, one whose mark was folded
_NAMES = [side.name for side in SHAPE.state_sides]
_FOLD_AT = 2  # mark rows of a unit, instead of many
_IDS = np.arange(64, dtype=np.uint64)  # more than there are


def build(fs: FileSystem, path: str = "/state") -> None:
    """Writes the state."""
    with _started(fs, path) as join:
        _put(join, 0, (1, 1.0), (2, 1.2), (3, 1.8), (4, 1.9), (5, 1.4), (10, 1.6), (6, -30.0))
        _put(join, 1, (1, 1.1), (8, 3.2))
        _end(join, 1)
        _put(join, 1, (2, 1.5), (9, 3.6))
        _end(join, 2)
        _advance(join, 0.4)
        _put(join, 0, (4, 0.2))
        _put(join, 1, (5, 1.7), (7, 0.3))
        join.store.remove(0, 1_900_000, 1_900_001)
        _advance(join, 4.5)
        _end(join, 3)
        join.store.compact()
        _put(join, 1, (3, 5.0))
        _end(join, 4)
    for name in fs.list_dir(f"{path}/merges"):  # adopted; what is left of it is nobody's
        fs.unlink(f"{path}/merges/{name}")


def _put(join: IntervalJoin, side: int, *rows: tuple[int, float]) -> None:
    """Rows with some keys and times in seconds, and values of all types of their side."""
    keys, seconds = zip(*rows, strict=True)
    payload = nested_store.rows_of(SIDES[side], sum(keys), len(rows)).columns[2:]
    columns = [pa.array(keys, pa.int64()), pa.array([round(s * SECOND) for s in seconds], pa.int64()), *payload]
    list(join.process_batch(side, pa.RecordBatch.from_arrays(columns, schema=SIDES[side].schema)))


def _advance(join: IntervalJoin, seconds: float) -> None:
    list(join.process_watermark(round(seconds * SECOND)))


def _end(join: IntervalJoin, epoch: int) -> None:
    join.handle_checkpoint(CheckpointBarrier(epoch))
    join.commit(epoch)


def open_store(fs: FileSystem, *, read_only: bool, cache: FileCache | None = None) -> StateStore:
    """The state, opened."""
    return StateStore.open("/state", None, OPTIONS, fs=fs, read_only=read_only, cache=cache)


@contextmanager
def _started(fs: FileSystem, path: str) -> Iterator[IntervalJoin]:
    """The operator, on a disk that no context can tell it of, folding early."""
    join = IntervalJoin(*SIDES, lower=-REACH, upper=REACH, how="full", late="keep", options=OPTIONS)
    there = SimpleNamespace(open=partial(StateStore.open, fs=fs, attempt="marked"))
    with mock.patch("lsmstate.join.operator.StateStore", there), mock.patch("lsmstate.join.marks._FOLD_AT", _FOLD_AT):
        join.on_start(OperatorContext(path))
        try:
            yield join
        finally:
            join.on_close()


_ASKING = pa.RecordBatch.from_pydict({"k": pa.array(KEYS, pa.int64()), "ts": pa.array([2 * SECOND] * len(KEYS))})


def _scan(view: View, number: int) -> list[pa.RecordBatch]:
    return list(view.scan(number, ordered=True, row_ids=True))


def _probe(view: View, number: int) -> list[pa.RecordBatch]:
    """The rows of a side, late ones too, that rows of the other one meet."""
    span = 2 * SECOND if number < 2 else None
    return list(view.probe(number, _ASKING, None if span is None else -span, span, by=1 - number % 2, row_ids=True))


def _marked(view: View, number: int) -> list[int]:
    return marked_since(view, number, _IDS).tolist()


def _alone(store: StateStore) -> list[list[pa.Array]]:
    """The rows that would come out alone."""
    return list(IntervalMatching(SHAPE, store).decide(TS_MIN, TS_MAX))


def _why(store: StateStore, side: int) -> Why:
    """What became of the rows with a key."""
    with ExitStack() as stack:
        past = [(epoch, stack.enter_context(store.at_epoch(epoch))) for epoch in store.epochs()]
        return explain(past, SHAPE.sides, SHAPE.kind, side, TOLD[side])


READERS = Readers(
    {"rows alone": _alone, "why of left": partial(_why, side=0), "why of right": partial(_why, side=1)},
    {
        **{f"scan of {_NAMES[number]}": partial(_scan, number=number) for number in range(len(_NAMES))},
        **{f"probe of {_NAMES[number]}": partial(_probe, number=number) for number in (0, 1, *LATE_SIDES)},
        **{f"marks in {_NAMES[number]}": partial(_marked, number=number) for number in MARKS.values()},
    },
)
