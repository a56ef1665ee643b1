"""The interval join: pairs at once, rows without a partner when the watermark says so.

Rows are put into the state of their side and meet what is in that of the other, so each pair is found by the later of
the two. A row that meets nobody comes out once the watermark has passed the last time at which anybody could meet it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.engine import StateStore
from lsmstate.errors import LsmStateError
from lsmstate.join.marks import Marks
from lsmstate.join.matching import Matching, times_of
from lsmstate.join.pairs import meet
from lsmstate.join.shape import Columns, Shape, marks_number
from lsmstate.keys import TS_MAX, TS_MIN, U64, saturate, shifted


class IntervalMatching(Matching):
    """Pairs at once; rows without a partner when the watermark says so."""

    def __init__(self, shape: Shape, store: StateStore) -> None:
        super().__init__(shape, store)
        numbers = [marks_number(shape.kind, side) for side in (0, 1)]
        self._marks = [None if number is None else Marks(store, side, number) for side, number in enumerate(numbers)]
        self._unfinished = False  # rows are in the state, and their pairs have not all come out

    def process(self, side: int, batch: pa.RecordBatch) -> Iterator[Columns]:
        self._check_finished()
        first = self.store.append(side, batch)  # rows of a side do not meet each other: the disk works, and we go on
        self._unfinished = True
        yield from self._met(side, batch, first)
        self._unfinished = False

    def _met(self, side: int, batch: pa.RecordBatch, first: int) -> Iterator[Columns]:
        """What comes out at once because of rows that are in the state, by ids from `first` on."""
        kind = self.shape.kind
        mine, theirs = self._marks[side], self._marks[1 - side]
        is_semi = kind.how == "left_semi"
        met = np.zeros(batch.num_rows, bool)
        for pairs in meet(self.store, self.shape, side, batch, row_ids=theirs is not None, wanted=kind.pairs):
            if mine is not None:
                met[pairs.who] = True
            if theirs is not None and pairs.ids is not None:
                new = theirs.add(times_of(self.shape.sides[1 - side], pairs.there), pairs.ids)
                if is_semi and new.any():
                    yield self._once(pairs.there, pairs.ids, new)
            if kind.pairs:
                yield pairs.columns
        if mine is None:
            return
        ts = times_of(self.shape.sides[side], batch.columns)
        rows = np.flatnonzero(met)
        mine.add(ts[rows], (first + rows).astype(np.uint64))
        if is_semi:
            yield from self.alone(side, batch, met)
        if kind.comes_alone(side) and self.store.watermark is not None:  # it came when nobody could meet it any more
            yield from self.alone(side, batch, ~met & (shifted(ts, kind.reach(side)[1]) <= self.store.watermark))

    def decide(self, start: int, watermark: int) -> Iterator[Columns]:
        for side, marks in enumerate(self._marks):
            if marks is not None and self.shape.kind.comes_alone(side):
                reach = self.shape.kind.reach(side)[1]
                last = TS_MAX if watermark == TS_MAX else min(watermark - reach, TS_MAX)
                if last >= TS_MIN:
                    first = TS_MIN if start == TS_MIN else saturate(start - reach)
                    for batch in self.store.view().scan(side, first, last + 1, only=marks.lacks):
                        yield from self.alone(side, batch)

    def seal(self, epoch: int) -> None:
        self._check_finished()
        watermark = self.store.watermark
        for side, marks in enumerate(self._marks):
            if marks is not None:
                retention = self.shape.sides[side].retention_us or 0
                marks.write(epoch, TS_MIN if watermark is None else watermark - retention + 1)

    def _check_finished(self) -> None:
        if self._unfinished:
            raise LsmStateError(
                "rows were not joined to their end, and pairs would be missing; start at the last epoch"
            )

    def is_marked(self, side: int, ids: U64) -> npt.NDArray[np.bool_]:
        marks = self._marks[side]
        return super().is_marked(side, ids) if marks is None else ~marks.lacks(ids)

    def _once(self, there: list[pa.Array], ids: U64, new: npt.NDArray[np.bool_]) -> Columns:
        """Left rows that have met somebody for the first time, each once."""
        at = np.flatnonzero(new)
        _, firsts = np.unique(ids[at], return_index=True)
        picked = pa.array(at[firsts])
        return self.shape.alone(0, [column.take(picked) for column in there])
