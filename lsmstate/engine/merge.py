"""The merge: rows of several stored runs as new runs, in pieces, so that memory stays bounded however large they are.

First the order of all rows that stay is worked out from hashes, times and ids, piece by piece; then every column is
gathered in that order, again piece by piece, and written as it comes. Rows keep their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compaction import cut_points, merge_order
from lsmstate.keys import I64, U64
from lsmstate.refs import RunRef
from lsmstate.schema import Side
from lsmstate.sstable.filters import Span, build_bloom, build_directory
from lsmstate.sstable.gather import taken
from lsmstate.sstable.order import buckets_of
from lsmstate.sstable.reader import StoredRun

D = TypeVar("D", bound=np.generic)
PIECE_ROWS = 128 << 10
_PIECE_BYTES = 64 << 20  # of rows with the average size of their run
Keep = Callable[[I64, U64], npt.NDArray[np.bool_]]  # by times and ids
Tick = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that come one after the other: where they lie in each run, which of them stay, and the order of those.

    kept: for each run its first row and the row after its last, and which of them stay; None if all do.
    times, ids: the least and the greatest; buckets: those that hold rows.
    """

    kept: Sequence[tuple[int, int, npt.NDArray[np.uint32] | None]]
    order: npt.NDArray[np.uint32]
    times: tuple[int, int]
    ids: tuple[int, int]
    buckets: I64


def merged_runs(
    side: int, kind: Side, runs: Sequence[StoredRun], keeps: Sequence[Keep], rows_max: int, tick: Tick
) -> list[MergedRun]:
    """The rows of some runs of a side that stay, as runs of at most about `rows_max` rows; none if none stay.

    `keeps` tells for each run which rows do. `tick` is called with the rows of each piece of a column; it may raise.
    """
    pieces: list[Piece] = []
    found: list[MergedRun] = []
    rows = 0
    for piece in _pieces(kind, runs, keeps):
        if rows and rows + len(piece.order) > rows_max:
            found.append(MergedRun(side, kind, runs, pieces, tick))
            pieces, rows = [], 0
        pieces.append(piece)
        rows += len(piece.order)
    if rows:
        found.append(MergedRun(side, kind, runs, pieces, tick))
    return found


def _pieces(kind: Side, runs: Sequence[StoredRun], keeps: Sequence[Keep]) -> Iterator[Piece]:
    for run in runs:
        run.check_order()
    hashes, times, ids = ([getattr(run, what)() for run in runs] for what in ("hashes", "times", "ids"))
    starts = [0] * len(runs)
    rows_at_once = max(1, min(PIECE_ROWS, _PIECE_BYTES // max(run.row_bytes for run in runs)))
    for ends in zip(*cut_points(hashes, times, rows_at_once), strict=True):
        kept: list[tuple[int, int, npt.NDArray[np.uint32] | None]] = []
        parts: list[tuple[U64, I64, U64]] = []
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            h, t, i = hashes[number][start:end], times[number][start:end], ids[number][start:end]
            stay = keeps[number](t, i)
            rows = None if stay.all() else np.flatnonzero(stay).astype(np.uint32)
            kept.append((start, end, rows))
            parts.append((h, t, i) if rows is None else (h[rows], t[rows], i[rows]))
        starts = list(ends)
        h, t, i = (np.concatenate(column) for column in zip(*parts, strict=True))
        if len(h):
            order = merge_order(h, t, i).astype(np.uint32)
            yield Piece(kept, order, _bounds(t), _bounds(i), buckets_of(t, kind.bucket_us))


def _bounds(values: npt.NDArray[np.integer]) -> tuple[int, int]:
    return int(values.min()), int(values.max())


class MergedRun:
    """A run that is about to be written; `pieces` hold at least one row."""

    def __init__(self, side: int, kind: Side, runs: Sequence[StoredRun], pieces: Sequence[Piece], tick: Tick) -> None:
        self._kind, self._runs, self._pieces, self._tick = kind, runs, pieces, tick
        rows = sum(len(piece.order) for piece in pieces)
        self._hashes = np.empty(rows, np.uint64)
        at = 0
        for part in self._gathered([run.hashes() for run in runs]):
            self._hashes[at : at + len(part)] = part
            at += len(part)
        (low, high), (first_id, last_id) = (
            (min(first for first, _ in bounds), max(last for _, last in bounds))
            for bounds in ([piece.times for piece in pieces], [piece.ids for piece in pieces])
        )
        width = kind.bucket_us
        self.ref = RunRef(side, low // width, high // width, rows, low, high, first_id, last_id)
        self.span = Span(int(self._hashes[0]), int(self._hashes[-1]))

    def bloom(self) -> U64:
        return build_bloom(self._hashes, self.span)

    def directory(self) -> npt.NDArray[np.uint32]:
        return build_directory(self._hashes, self.span)

    def hash_pieces(self) -> Iterable[U64]:
        return [self._hashes]

    def time_pieces(self) -> Iterator[I64]:
        return self._gathered([run.times() for run in self._runs])

    def id_pieces(self) -> Iterator[U64]:
        return self._gathered([run.ids() for run in self._runs])

    def column_pieces(self, field: int) -> Iterator[pa.Array]:
        if self._kind.layouts[field].tree or any(run.lacks(field) for run in self._runs):
            yield from self._picked_pieces(field)
            return
        layout, columns = self._kind.layouts[field], [run.column(field) for run in self._runs]
        for piece in self._pieces:
            self._tick(len(piece.order))
            parts = []
            for column, (start, end, rows) in zip(columns, piece.kept, strict=True):
                part = column.slice(start, end - start)
                parts.append(part if rows is None else taken(layout, part, rows))
            yield taken(layout, pa.concat_arrays(parts), piece.order)

    def _picked_pieces(self, field: int) -> Iterator[pa.Array]:
        """The same for columns of which only the rows of a piece should be in memory: trees, and NULLs all the way."""
        for piece in self._pieces:
            self._tick(len(piece.order))
            parts = []
            for run, (start, end, rows) in zip(self._runs, piece.kept, strict=True):
                wanted = np.arange(start, end) if rows is None else start + rows.astype(np.int64)
                parts.append(run.column(field, wanted))
            yield taken(self._kind.layouts[field], pa.concat_arrays(parts), piece.order)

    def bucket_numbers(self) -> Sequence[int]:
        numbers: list[int] = np.unique(np.concatenate([piece.buckets for piece in self._pieces])).tolist()
        return numbers

    def _gathered(self, arrays: Sequence[npt.NDArray[D]]) -> Iterator[npt.NDArray[D]]:
        """Values of all rows in order, piece by piece."""
        for piece in self._pieces:
            parts = []
            for values, (start, end, rows) in zip(arrays, piece.kept, strict=True):
                parts.append(values[start:end] if rows is None else values[start:end][rows])
            yield np.concatenate(parts)[piece.order]
