"""The memtable: what was appended since the last flush, readable at once.

A SortedDict from key `[side | bucket]` to the batches appended under it: it gives the ordering that a skip list
would (sorted keys, cheap inserts, range scans), and measured in Python it is the faster of the two, because its
nodes are plain lists. It is touched once per batch, never per row. Threading: changed and read under the store's
swap lock; pieces are immutable.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from sortedcontainers import SortedDict

from lsmstate.engine.intake import Hashed, Rows
from lsmstate.keys import U64, bucket_start, encode_key
from lsmstate.refs import RunRef
from lsmstate.schema import Side
from lsmstate.sstable.run import RunData, sorted_run

_SMALL_ROWS = 8192  # pieces below this are joined, so that many small appends do not become many runs


class Piece:
    """Rows appended together. Sorted when first asked, or when flushed, whichever comes first."""

    def __init__(self, side: int, kind: Side, rows: Rows, ids: U64) -> None:
        self._kind, self.rows, self.ids = kind, rows, ids
        ts, width = rows.ts, kind.bucket_us
        low, high = int(ts.min()), int(ts.max())
        self.ref = RunRef(side, low // width, high // width, len(ts), low, high, int(ids.min()), int(ids.max()))
        self.size_bytes = rows.size_bytes
        self._run: RunData | None = None
        self._sorting = threading.Lock()

    @property
    def key(self) -> bytes:
        """The key under which the memtable files it: its first bucket's."""
        return encode_key(self.ref.side, bucket_start(self.ref.first_bucket, self._kind.bucket_us))

    def open(self, low_ts: int, high_ts: int) -> RunData:
        """As a run; it is in memory, so no filter is asked."""
        return self.run()

    def run(self) -> RunData:
        """As a run."""
        with self._sorting:  # a probe and a flush may come at the same time: one sorts, the other waits
            if self._run is None:
                rows = self.rows
                order = rows.hashed.order()
                self._run = sorted_run(self.ref.side, self._kind, rows.hashes, rows.ts, self.ids, rows.columns, order)
            return self._run


def join_pieces(side: int, kind: Side, pieces: Sequence[Piece]) -> Piece:
    """One piece of several."""
    if len(pieces) == 1:
        return pieces[0]
    parts = [piece.rows for piece in pieces]
    columns = tuple(
        None if columns[0] is None else pa.concat_arrays(columns)
        for columns in zip(*(part.columns for part in parts), strict=True)
    )
    hashes = np.concatenate([part.hashes for part in parts])
    rows = Rows(columns, Hashed(hashes), np.concatenate([part.ts for part in parts]))
    return Piece(side, kind, rows, np.concatenate([piece.ids for piece in pieces]))


class Memtable:
    """Appended pieces by key."""

    def __init__(self) -> None:
        self._pieces: SortedDict[bytes, tuple[Piece, ...]] = SortedDict()
        self.size_bytes = 0
        self.rows = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def plan(self, piece: Piece, kind: Side) -> tuple[Piece, ...]:
        """What will stand under the piece's key once it is added: small neighbours joined, so that sizes fall."""
        pieces = [*self._pieces.get(piece.key, ()), piece]
        first = len(pieces) - 1
        rows = piece.ref.rows
        while first and pieces[first - 1].ref.rows < min(2 * rows, _SMALL_ROWS):
            first -= 1
            rows += pieces[first].ref.rows
        return (*pieces[:first], join_pieces(piece.ref.side, kind, pieces[first:]))

    def put(self, piece: Piece, planned: tuple[Piece, ...]) -> None:
        """Adds a piece as planned."""
        self._pieces[piece.key] = planned
        self.size_bytes += piece.size_bytes
        self.rows += piece.ref.rows

    def pieces(self) -> tuple[Piece, ...]:
        """All pieces in key order."""
        return tuple(piece for pieces in self._pieces.values() for piece in pieces)

    def runs(self, sides: Sequence[Side]) -> list[RunData]:
        """All rows as runs to store: one of each side, whatever buckets they lie in. Compaction gathers buckets."""
        by_side = [[piece for piece in self.pieces() if piece.ref.side == side] for side in range(len(sides))]
        return [join_pieces(side, sides[side], mine).run() for side, mine in enumerate(by_side) if mine]
