"""The brute-force model of a state: lists of rows, and what scans and probes of them must give.

Immutable, so that a snapshot of the model is the model itself. Arithmetic is Python's: nothing ever overflows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lsmstate import Side
from tests.support.states import Row


@dataclass(frozen=True)
class Model:
    """All rows that were written and not removed, and the watermark that hides some of them."""

    kinds: tuple[Side, ...]
    rows: tuple[tuple[Row, ...], ...]
    watermark: int | None = None

    @classmethod
    def empty(cls, kinds: Sequence[Side]) -> Model:
        """A new state."""
        return cls(tuple(kinds), ((),) * len(kinds))

    def appended(self, side: int, rows: Sequence[Row]) -> Model:
        """The state with more rows."""
        return self._with(side, (*self.rows[side], *rows))

    def removed(self, side: int, start: int, end: int) -> Model:
        """The state without the rows from start to end."""
        return self._with(side, tuple(r for r in self.rows[side] if not start <= self.ts(side, r) < end))

    def advanced(self, ts: int) -> Model:
        """The state after a watermark; one that goes back changes nothing."""
        return self if self.watermark is not None and ts <= self.watermark else replace(self, watermark=ts)

    def scan(self, side: int, start: int | None = None, end: int | None = None) -> Counter[Row]:
        """What a scan must give, in any order."""
        return Counter(
            row
            for row in self._live(side)
            if (start is None or start <= self.ts(side, row)) and (end is None or self.ts(side, row) < end)
        )

    def probe(self, side: int, by: int, asked: Sequence[Row], lower: int | None, upper: int | None) -> Counter[Row]:
        """What a probe must give, in any order; the last value is the probe's index."""
        found: Counter[Row] = Counter()
        live = [(self.key(side, row), self.ts(side, row), row) for row in self._live(side)]
        for number, one in enumerate(asked):
            key, ts = self.key(by, one), self.ts(by, one)
            if None in key:
                continue
            for other, at, row in live:
                apart = at - ts
                if other == key and (lower is None or lower <= apart) and (upper is None or apart <= upper):
                    found[(*row, number)] += 1
        return found

    def ts(self, side: int, row: Row) -> int:
        """The time of a row."""
        kind = self.kinds[side]
        return int(row[kind.schema.get_field_index(kind.time)])

    def key(self, side: int, row: Row) -> Row:
        """The key of a row."""
        kind = self.kinds[side]
        return tuple(row[kind.schema.get_field_index(name)] for name in kind.keys)

    def _live(self, side: int) -> Iterator[Row]:
        kept = self.kinds[side].retention_us
        for row in self.rows[side]:
            if self.watermark is None or kept is None or self.ts(side, row) > self.watermark - kept:
                yield row

    def _with(self, side: int, rows: tuple[Row, ...]) -> Model:
        return replace(self, rows=tuple(rows if n == side else old for n, old in enumerate(self.rows)))


def in_bucket_order(kind: Side, times: Sequence[int], *, ordered: bool) -> bool:
    """Whether times come bucket by bucket, and by time if `ordered`."""
    marks = times if ordered else [ts // kind.bucket_us for ts in times]
    return all(a <= b for a, b in pairwise(marks))
