"""Views: the rows of a state at one moment.

A view holds runs in memory and references to runs in files, the tombstones, the watermark: all immutable. Reading it
blocks nobody, and nobody blocks it. A view that was asked for by the user also pins its files against collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.engine.heavy import Heavy, heaviest
from lsmstate.engine.intake import Batch
from lsmstate.engine.probe import probe
from lsmstate.engine.probe_stats import ProbeStats
from lsmstate.engine.scan import Only, scan
from lsmstate.errors import SchemaError, StoreClosedError
from lsmstate.keys import I64, TS_MIN, time_us
from lsmstate.refs import RunRef, Tombstone
from lsmstate.schema import Side
from lsmstate.sstable.run import Run


class Source(Protocol):
    """A run that may not be open yet."""

    @property
    def ref(self) -> RunRef:
        """What is read of it: rows before `min_ts` are elsewhere, or dead."""

    def open(self, low_ts: int, high_ts: int) -> Run | None:
        """The run; None if it surely holds no row between the two times."""


class View:
    """A read-only, unchanging state. Close it, or use it in a `with`."""

    def __init__(
        self,
        sides: Sequence[Side],
        sources: Sequence[Source],
        tombstones: Sequence[Tombstone],
        watermark: int | None,
        batch_rows: int,
        files: frozenset[str],
        release: Callable[[], None] | None = None,
        epoch: int | None = None,
        probes: ProbeStats | None = None,
    ) -> None:
        self.sides = tuple(sides)
        self.epoch = epoch
        self.watermark = watermark
        self.batch_rows = batch_rows
        self.probes = probes or ProbeStats()
        self.files = files
        self._tombstones = tuple(tombstones)
        self._sources: Mapping[int, list[Source]] = {n: [] for n in range(len(sides))}
        for source in sources:
            self._sources[source.ref.side].append(source)
        self._release = release
        self._closed = False

    def probe(
        self,
        side: int,
        batch: Batch,
        lower: int | None = None,
        upper: int | None = None,
        *,
        by: int | None = None,
        row_ids: bool = False,
        beside: Sequence[pa.Array] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `side` with the keys of `batch` and lower <= row.ts - batch.ts <= upper, plus `probe_index`.

        With `row_ids` also `__row_id`, the number that a row keeps for life. `beside` are columns of the batch: they
        come last, with the values of the row that asks."""
        self._check(side)
        low = None if lower is None else time_us(lower, "lower")
        high = None if upper is None else time_us(upper, "upper")
        return probe(self, side, batch, low, high, self._other(side, by), row_ids, beside)

    def scan(
        self,
        side: int,
        start: int | None = None,
        end: int | None = None,
        *,
        ordered: bool = False,
        row_ids: bool = False,
        only: Only | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `side` with start <= ts < end, bucket by bucket; sorted by time inside a bucket if `ordered`.

        With `row_ids` also `__row_id`. `only` picks rows by their ids before they are read."""
        self._check(side)
        first = None if start is None else time_us(start, "start")
        last = None if end is None else time_us(end, "end")
        return scan(self, side, first, last, ordered, row_ids, only)

    def heaviest(self, side: int, count: int = 10) -> list[Heavy]:
        """The keys of `side` with the most rows, heaviest first: the values of the key columns, and rows."""
        self._check(side)
        return heaviest(self, side, count)

    def close(self) -> None:
        """Lets go of the files. Iterators that are under way raise StoreClosedError."""
        self._closed = True
        if self._release is not None:
            release, self._release = self._release, None
            release()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sources(self, side: int, low_ts: int, high_ts: int) -> list[Source]:
        """The runs of a side that may hold a row between two times, both included."""
        return [s for s in self._sources[side] if s.ref.min_ts <= high_ts and s.ref.max_ts >= low_ts]

    def first_live_ts(self, side: int) -> int:
        """The first time that the watermark has not retired; beyond the last time if it has retired all."""
        retention = self.sides[side].retention_us
        if self.watermark is None or retention is None:
            return TS_MIN
        return max(self.watermark - retention + 1, TS_MIN)

    def killed(self, run: Run, rows: I64 | None) -> npt.NDArray[np.bool_] | None:
        """Which of some rows a tombstone kills; None if none can be."""
        ref = run.ref
        dead: npt.NDArray[np.bool_] | None = None
        for t in self._tombstones:
            if t.side == ref.side and t.id > ref.min_id and t.start_ts <= ref.max_ts and t.end_ts > ref.min_ts:
                ts = run.times(rows)
                hit = (run.ids(rows) < np.uint64(t.id)) & (ts >= t.start_ts) & (ts < t.end_ts)
                dead = hit if dead is None else dead | hit
        return dead

    def check_open(self) -> None:
        """Raises StoreClosedError once the view is closed."""
        if self._closed:
            raise StoreClosedError("the view is closed; take another snapshot")

    def _check(self, side: int) -> None:
        self.check_open()
        check_side(self.sides, side)

    def _other(self, side: int, by: int | None) -> int:
        if by is None:
            if len(self.sides) > 2:
                raise SchemaError(f"there are {len(self.sides)} sides: say with by= which one the batch belongs to")
            return 1 - side if len(self.sides) == 2 else side
        check_side(self.sides, by)
        return by


def check_side(sides: Sequence[Side], side: int) -> None:
    """Raises SchemaError unless the side exists."""
    if not isinstance(side, int) or isinstance(side, bool) or not 0 <= side < len(sides):
        known = ", ".join(f"{n} ({s.name})" for n, s in enumerate(sides))
        raise SchemaError(f"no side {side!r}; there are {known}")
