"""The probe: many rows ask for rows of another side with equal keys and near times, all at once.

Probes are sorted by hash, so that filters, directories and runs are walked forwards. A hash that agrees is only a
candidate: its key columns are compared before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.engine.ahead import Ahead
from lsmstate.engine.intake import Batch, KeyRows, null_keys, read_keys
from lsmstate.errors import SchemaError
from lsmstate.hashing.sameness import same_keys
from lsmstate.key_types import cast_to_meet
from lsmstate.keys import I64, TS_MAX, TS_MIN, shifted
from lsmstate.layout import Layout
from lsmstate.native import kernel
from lsmstate.schema import PROBE_INDEX, ROW_ID, Side
from lsmstate.sstable.gather import layout_to_take, taken
from lsmstate.sstable.order import Index
from lsmstate.sstable.reader import StoredRun
from lsmstate.sstable.run import Run
from lsmstate.sstable.search import Probes, search
from lsmstate.sstable.sparse import SPARSE_ROWS, gather

if TYPE_CHECKING:
    from lsmstate.engine.view import Source, View

_BATCH_BYTES = 32 << 20  # of rows with the average size of their run
_MANY = 16 << 10  # rows that ask, from which on two threads search
_BESIDE = "__beside_"  # and a number: the names of columns that are gathered beside
_COALESCE_ROWS = 4 << 10  # smaller batches are joined, larger ones are not worth a copy

Piece = tuple[Index, Index]  # rows that ask, and rows of a run


def probe(
    view: View,
    side: int,
    batch: Batch,
    lower: int | None,
    upper: int | None,
    by: int,
    row_ids: bool,
    beside: Sequence[pa.Array],
) -> Iterator[pa.RecordBatch]:
    """See `View.probe`. The batch is checked now, the rows come as they are asked for."""
    kind = view.sides[side]
    _check_keys_meet(kind, view.sides[by])
    if lower is not None and upper is not None and lower > upper:
        raise ValueError(f"lower ({lower}) is above upper ({upper}): no row can match")
    asked = list(read_keys(view.sides[by], batch))
    schema = with_ids(kind.schema) if row_ids else kind.schema
    schema = schema.append(pa.field(PROBE_INDEX, pa.int64(), nullable=False))
    for number, column in enumerate(beside):
        schema = schema.append(pa.field(f"{_BESIDE}{number}", column.type))
    return _coalesced(_probe(view, side, asked, lower, upper, schema, beside), view.batch_rows)


def _probe(
    view: View,
    side: int,
    asked: Sequence[KeyRows],
    lower: int | None,
    upper: int | None,
    schema: pa.Schema,
    beside: Sequence[pa.Array],
) -> Iterator[pa.RecordBatch]:
    first = 0
    for rows in asked:
        order = rows.hashed.order()
        if rows.has_null_key:
            order = order[~null_keys(rows.keys)[order]]
        if len(order):
            told = [column.slice(first, len(rows.ts)) for column in beside]
            found = _Found(view.sides[side], rows, schema, first, view.batch_rows, told)
            yield from _probe_part(view, side, rows, order, lower, upper, found)
        first += len(rows.ts)


def _probe_part(
    view: View,
    side: int,
    asked: KeyRows,
    order: Index,
    lower: int | None,
    upper: int | None,
    found: _Found,
) -> Iterator[pa.RecordBatch]:
    live = view.first_live_ts(side)
    order = _possible(asked.ts, order, lower, upper)
    if live > TS_MAX or not len(order):
        return
    ts = asked.ts[order]
    low = np.full(len(ts), TS_MIN) if lower is None else shifted(ts, lower)
    high = np.full(len(ts), TS_MAX) if upper is None else shifted(ts, upper)
    low = np.maximum(low, live)
    probes = Probes(asked.hashed.hashes[order], low, high)
    earliest, latest = int(low.min()), int(high.max())
    for run, pieces in _searched(view, view.sources(side, earliest, latest), probes, earliest, latest):
        for who, rows in pieces:
            view.check_open()
            view.probes.found += len(rows)
            dead = view.killed(run, rows)
            if dead is not None:
                who, rows = who[~dead], rows[~dead]
            if len(rows):
                yield from found.add(run, rows, order[who])
    view.probes.asked += probes.asked
    view.probes.passed += probes.passed
    yield from found.rest()


def _searched(
    view: View, sources: Sequence[Source], probes: Probes, earliest: int, latest: int
) -> Iterator[tuple[Run, Iterator[Piece]]]:
    """The runs with the pairs of each. Where many rows ask, a helper begins with the last runs while we begin with the
    first ones."""
    many = kernel is not None and len(probes.hashes) >= _MANY and len(sources) > 1
    begun: list[tuple[Run, Ahead[Iterator[Piece]]]] = []
    for source in reversed(sources) if many else sources:
        view.check_open()
        run = source.open(earliest, latest)
        if run is not None:
            pairs_max = max(1, min(view.batch_rows, _BATCH_BYTES // run.row_bytes))
            pieces = partial(search, run, probes, pairs_max, source.ref.min_ts)
            if many:
                begun.append((run, Ahead(partial(_begun, pieces))))
            else:
                yield run, pieces()
    while begun:
        run, ahead = begun.pop()
        view.check_open()
        yield run, ahead.result()


def _begun(pieces: Callable[[], Iterator[Piece]]) -> Iterator[Piece]:
    """The same, the first of them found already."""
    rest = pieces()
    return chain(list(islice(rest, 1)), rest)


def with_ids(schema: pa.Schema) -> pa.Schema:
    """The columns of a side, and the row's id."""
    return schema.append(pa.field(ROW_ID, pa.uint64(), nullable=False))


def _possible(ts: I64, order: Index, lower: int | None, upper: int | None) -> Index:
    """Those whose interval does not lie wholly before or after all times."""
    if lower is not None and len(ts) and int(ts.max()) + lower > TS_MAX:
        order = order[ts[order] <= TS_MAX - lower] if TS_MAX - lower >= TS_MIN else order[:0]
    if upper is not None and len(ts) and int(ts.min()) + upper < TS_MIN:
        order = order[ts[order] >= TS_MIN - upper] if TS_MIN - upper <= TS_MAX else order[:0]
    return order


class _Picks:
    """Rows of some runs that were found, and who asked for them."""

    def __init__(self) -> None:
        self.picks: list[tuple[Run, I64]] = []
        self.columns: list[Ahead[list[pa.Array]]] = []
        self.who: list[Index] = []
        self.rows = self.size_bytes = 0

    def add(self, run: Run, rows: I64, who: Index) -> None:
        self.picks.append((run, rows))
        self.who.append(who)
        self.rows += len(rows)
        self.size_bytes += len(rows) * run.row_bytes


@dataclass(frozen=True, slots=True)
class _Gatherer:
    """Which columns are gathered of rows that were found, and of the rows that ask for them. It knows none of the rows:
    what was to be gathered and never is must not keep them all."""

    wanted: Sequence[int]
    beside: Sequence[pa.Array]
    layouts: Sequence[Layout | None]

    def of_both(self, run: Run, rows: I64, who: Index) -> list[pa.Array]:
        return [*(run.column(field, rows) for field in self.wanted), *self.of_asking(who)]

    def of_asking(self, who: Index) -> list[pa.Array]:
        return [taken(layout, column, who) for layout, column in zip(self.layouts, self.beside, strict=True)]


class _Found:
    """Pairs that were found, on their way to becoming batches: only those whose keys are really equal.

    They wait until there are enough for a batch: few rows of each of many runs apart from many of each. The columns of
    the latter are gathered while the next runs are searched, and a batch of them comes out when the next one is full.
    """

    def __init__(
        self, kind: Side, asked: KeyRows, schema: pa.Schema, first: int, batch_rows: int, beside: list[pa.Array]
    ) -> None:
        self._kind, self._asked, self._schema, self._first = kind, asked, schema, first
        self._row_ids = ROW_ID in schema.names
        self._rows_max = batch_rows
        known = kind.key_fields if asked.exact else ()  # they are what the rows that ask have
        wanted = [field for field in range(len(kind.columns)) if field not in known]
        self._gatherer = _Gatherer(wanted, beside, [layout_to_take(column.type) for column in beside])
        self._sparse, self._full, self._dense = _Picks(), _Picks(), _Picks()

    def add(self, run: Run, rows: I64, who: Index) -> Iterator[pa.RecordBatch]:
        """Takes rows of a run; gives those before them that have become enough for a batch."""
        if len(rows) <= SPARSE_ROWS and isinstance(run, StoredRun) and not run.is_adapted:
            if self._sparse.rows + len(rows) > min(_COALESCE_ROWS, self._rows_max):
                yield from self._few()
            self._sparse.add(run, rows, who)
            return
        dense = self._dense
        if dense.rows + len(rows) > self._rows_max or dense.size_bytes + len(rows) * run.row_bytes > _BATCH_BYTES:
            yield from self._many(self._full)
            self._full, self._dense = dense, _Picks()
        self._dense.add(run, rows, who)
        self._dense.columns.append(Ahead(partial(self._gatherer.of_both, run, rows, who)))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What is left."""
        yield from self._many(self._full)
        yield from self._many(self._dense)
        yield from self._few()

    def _few(self) -> Iterator[pa.RecordBatch]:
        found, self._sparse = self._sparse, _Picks()
        if found.rows:
            columns = gather(self._kind, [(run, rows) for run, rows in found.picks if isinstance(run, StoredRun)])
            yield from self._batch(dict(enumerate(columns)), self._gatherer.of_asking(np.concatenate(found.who)), found)

    def _many(self, found: _Picks) -> Iterator[pa.RecordBatch]:
        if found.rows:
            parts = zip(*(ahead.result() for ahead in found.columns), strict=True)
            arrays = [_joined(part) for part in parts]
            wanted = self._gatherer.wanted
            yield from self._batch(dict(zip(wanted, arrays, strict=False)), arrays[len(wanted) :], found)

    def _batch(self, columns: dict[int, pa.Array], beside: list[pa.Array], found: _Picks) -> Iterator[pa.RecordBatch]:
        """The columns of the rows that were found; keys that need not be compared may be missing."""
        who = np.concatenate(found.who)
        same: npt.NDArray[np.bool_] | None = None
        for field, key in zip(self._kind.key_fields, self._asked.keys, strict=True):
            asked = taken(self._kind.layouts[field], key, who)
            if not columns.setdefault(field, asked).equals(asked):  # a hash collided, or a key is NULL: no match
                good = same_keys(columns[field], asked)
                same = good if same is None else same & good
        arrays = [columns[field] for field in range(len(columns))]
        if self._row_ids:
            arrays.append(pa.array(np.concatenate([run.ids(rows) for run, rows in found.picks])))
        arrays.append(pa.array(who + self._first if self._first else who))
        batch = pa.RecordBatch.from_arrays([*arrays, *beside], schema=self._schema)
        if same is not None:
            batch = batch.filter(pa.array(same))
        if batch.num_rows:
            yield batch


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _coalesced(batches: Iterator[pa.RecordBatch], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The same rows, small batches joined, none larger than allowed."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if waiting and rows + batch.num_rows > batch_rows:
            yield _whole(waiting)
            waiting, rows = [], 0
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= min(_COALESCE_ROWS, batch_rows):
            yield _whole(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _whole(waiting)


def _whole(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _check_keys_meet(one: Side, other: Side) -> None:
    kinds = [[side.schema.field(key).type for key in side.keys] for side in (one, other)]
    if kinds[0] != kinds[1]:
        told = " and ".join(", ".join(map(str, kind)) for kind in kinds)
        ways = "; ".join(cast_to_meet(*pair) for pair in zip(*kinds, strict=False) if pair[0] != pair[1])
        way = ways or "name as many of each"
        raise SchemaError(f"the keys of {one.name!r} and {other.name!r} cannot be equal: {told}; {way}")
