"""Joins that wait: nothing comes out before the watermark has passed it.

Each step of the watermark has three phases: harvest (the rows that are due), compute (their partners, where there are
any), clean up (the watermark retires them, which drops whole buckets without reading them again).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lsmstate.join.idset import IdSet
from lsmstate.join.matching import Matching, times_of
from lsmstate.join.pairs import Met, meet
from lsmstate.join.shape import Columns
from lsmstate.keys import I64, TS_MIN

_ALL = 2**31 - 1  # values that are shown of a list


class InstantMatching(Matching):
    """Rows with the same time meet when the watermark passes it."""

    def process(self, side: int, batch: pa.RecordBatch) -> Iterator[Columns]:
        self.store.append(side, batch)
        return iter(())

    def decide(self, start: int, watermark: int) -> Iterator[Columns]:
        kind, view = self.shape.kind, self.store.view()
        seen = IdSet()  # of the right rows
        for batch in view.scan(0, start, watermark + 1):
            met = np.zeros(batch.num_rows, bool)
            for pairs in meet(view, self.shape, 0, batch, row_ids=kind.comes_alone(1), wanted=kind.pairs):
                met[pairs.who] = True
                if pairs.ids is not None:
                    seen.add(pairs.ids)
                if kind.pairs:
                    yield pairs.columns
            if kind.how == "left_semi":
                yield from self.alone(0, batch, met)
            if kind.comes_alone(0):
                yield from self.alone(0, batch, ~met)
        if kind.comes_alone(1):
            for batch in view.scan(1, start, watermark + 1, only=lambda ids: ~seen.has(ids)):
                yield from self.alone(1, batch)


class AsOfMatching(Matching):
    """Each left row meets the latest right row at or before it, once the watermark has passed it."""

    def process(self, side: int, batch: pa.RecordBatch) -> Iterator[Columns]:
        self.store.append(side, batch)
        return iter(())

    def decide(self, start: int, watermark: int) -> Iterator[Columns]:
        view = self.store.view()
        for batch in view.scan(0, start, watermark + 1):
            best = _Best(self.shape.sides[1].schema, batch.num_rows)
            for pairs in meet(view, self.shape, 0, batch):
                best.add(pairs, times_of(self.shape.sides[1], pairs.there))
            met, there = best.chosen()
            if len(met):
                yield [*batch.take(pa.array(met)).columns, *there.columns]
            if self.shape.kind.comes_alone(0):
                rest = np.ones(batch.num_rows, bool)
                rest[met] = False
                yield from self.alone(0, batch, rest)


class _Best:
    """The latest partner of each row of a batch; of several with the same time the greatest by its columns, in their
    order (NULL is the greatest), so that it does not matter which of them came first."""

    def __init__(self, schema: pa.Schema, rows: int) -> None:
        self._schema = schema
        self._latest = np.full(rows, TS_MIN)
        self._who: list[I64] = []
        self._ts: list[I64] = []
        self._there: list[pa.RecordBatch] = []

    def add(self, pairs: Met, ts: I64) -> None:
        """Takes in partners; keeps those that none known is later than."""
        np.maximum.at(self._latest, pairs.who, ts)
        good = np.flatnonzero(ts == self._latest[pairs.who])
        columns = [column.take(pa.array(good)) for column in pairs.there]
        self._who.append(pairs.who[good])
        self._ts.append(ts[good])
        self._there.append(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def chosen(self) -> tuple[I64, pa.RecordBatch]:
        """The rows that have a partner, and their partners."""
        if not self._who:
            return np.empty(0, np.int64), pa.RecordBatch.from_pylist([], schema=self._schema)
        who, there = np.concatenate(self._who), pa.concat_batches(self._there)
        latest = np.concatenate(self._ts) == self._latest[who]
        if not latest.all():
            who, there = who[latest], there.filter(pa.array(latest))
        tied = np.bincount(who)[who] > 1
        if not tied.any():
            return who, there
        place = np.flatnonzero(tied)
        ranked = place[_ranked(who[place], there.take(pa.array(place)))]
        last = ranked[np.flatnonzero(np.diff(who[ranked], append=-1))]
        picked = np.sort(np.concatenate([np.flatnonzero(~tied), last]))
        return who[picked], there.take(pa.array(picked))


def _ranked(who: I64, rows: pa.RecordBatch) -> I64:
    """The order by `who`, then by all columns."""
    columns = [pa.array(who), *rows.columns]
    names = [f"c{number}" for number in range(len(columns))]
    table = pa.RecordBatch.from_arrays(columns, names=names)
    try:
        order: I64 = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in names]).to_numpy()
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.ArrowInvalid):  # types that Arrow cannot sort
        told = [_told(rows.slice(row, 1)) for row in range(rows.num_rows)]  # ties are few
        order = np.array(sorted(range(len(who)), key=lambda row: (who[row], told[row])))
    return order


def _told(row: pa.RecordBatch) -> list[str]:
    """The values of a row as text, which Arrow has for values that Python has no type for."""
    return [column.to_string(window=_ALL, container_window=_ALL, skip_new_lines=True) for column in row.columns]
