"""Matching: what happens to the rows of a join, on an open state. The heart of operators and of tasks on Spark.

    for columns in matching.process(side, rows): ...     # rows that are on time, with keys and times
    for columns in matching.advance(watermark): ...      # what is decided now comes out, what is dead is retired
    matching.seal(epoch)                                 # before the epoch is made durable

Iterators have to be taken to their end before the next call. Belongs to one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.engine import StateStore
from lsmstate.join.shape import Columns, Shape
from lsmstate.keys import I64, TS_MIN, U64
from lsmstate.schema import Side


class Matching(ABC):
    """One join on one state."""

    def __init__(self, shape: Shape, store: StateStore) -> None:
        self.shape, self.store = shape, store

    @abstractmethod
    def process(self, side: int, batch: pa.RecordBatch) -> Iterator[Columns]:
        """Takes rows in; gives what comes out at once."""

    @abstractmethod
    def decide(self, start: int, watermark: int) -> Iterator[Columns]:
        """What comes out now that the watermark has moved; before `start`, all was decided by the one before."""

    def advance(self, watermark: int) -> Iterator[Columns]:
        """Moves the watermark; one that would go back changes nothing."""
        before = self.store.watermark
        if before is not None and watermark <= before:
            return
        yield from self.decide(TS_MIN if before is None else before + 1, watermark)
        self.store.advance_watermark(watermark)

    def seal(self, epoch: int) -> None:  # noqa: B027  # those that wait have nothing to add
        """Puts into the state what this epoch has to remember besides its rows."""

    def is_marked(self, side: int, ids: U64) -> npt.NDArray[np.bool_]:
        """Which rows of a side have met somebody, as far as that is kept; also in this epoch."""
        return np.zeros(len(ids), bool)

    def alone(self, side: int, batch: pa.RecordBatch, rows: npt.NDArray[np.bool_] | None = None) -> Iterator[Columns]:
        """Rows of a side that come without a partner."""
        if rows is not None and not rows.all():
            batch = batch.filter(pa.array(rows))
        if batch.num_rows:
            yield self.shape.alone(side, batch.columns)


def times_of(side: Side, columns: list[pa.Array]) -> I64:
    """The times of rows, told by their columns."""
    ts: I64 = columns[side.schema.get_field_index(side.time)].cast(pa.int64()).to_numpy()
    return ts
