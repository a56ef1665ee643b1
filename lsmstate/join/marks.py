"""Marks: which rows of a side have met somebody, and since which epoch.

They lie in a side of the state of their own, beside the rows: a mark row holds the ids of many rows of one **unit** of
time (a bucket of the side), as differences of as few bytes as they need. So a mark takes two bytes or so instead of the
forty that a row under its own key would, a unit's marks go with its rows when the watermark retires them, epochs and
branches see the marks of their time, and compaction needs to know nothing of them. A row is marked once, by the first
that it meets; a unit that has gathered many mark rows is folded into one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.engine import StateStore, View
from lsmstate.errors import CorruptionError
from lsmstate.join.idset import IdSet
from lsmstate.keys import I64, U64, bucket_end
from lsmstate.schema import Side

_SCHEMA = pa.schema(
    [
        pa.field("unit", pa.int64(), nullable=False),
        pa.field("ts", pa.int64(), nullable=False),  # the last time of the unit
        pa.field("epoch", pa.int64(), nullable=False),  # since when, the earliest of them
        pa.field("count", pa.int64(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),  # the least id
        pa.field("steps", pa.binary(), nullable=False),  # from each id to the next
        pa.field("later", pa.binary()),  # how many epochs after the earliest, of each; NULL if none is
    ]
)
_FOLD_AT = 64  # mark rows of a unit
_IDS_MAX = 1 << 20  # of a mark row
_WIDTHS: dict[int, npt.DTypeLike] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_PAGES_SLACK = 64


def marks_side(of: Side) -> Side:
    """The side that holds the marks of another."""
    return Side(f"{of.name}_marks", _SCHEMA, ["unit"], "ts", of.retention, timedelta(microseconds=of.bucket_us))


class Marks:
    """The marks of one side of an open state. Belongs to the thread that writes."""

    def __init__(self, store: StateStore, side: int, number: int) -> None:
        """`side` is the one that is marked, `number` the one that holds its marks."""
        self._store, self._number = store, number
        self._width = store.sides[side].bucket_us
        self._pending: dict[int, list[U64]] = {}
        self._known: IdSet | None = None
        self._pages_once = 0
        self._rows_of_unit: dict[int, int] = {}

    def add(self, ts: I64, ids: U64) -> npt.NDArray[np.bool_]:
        """Marks rows, told by times and ids; says which were not marked before."""
        known = self._loaded()
        new = ~known.has(ids)
        picked = np.flatnonzero(new)
        if len(picked):
            fresh, units = ids[picked], ts[picked] // self._width
            known.add(fresh)
            order = _order(units)
            units = units[order]
            cuts = np.flatnonzero(np.diff(units)) + 1
            for unit, part in zip(units[np.r_[0, cuts]].tolist(), np.split(fresh[order], cuts), strict=True):
                self._pending.setdefault(unit, []).append(part)
        return new

    def lacks(self, ids: U64) -> npt.NDArray[np.bool_]:
        """Which rows have met nobody."""
        return ~self._loaded().has(ids)

    def write(self, epoch: int, live_from: int) -> None:
        """Puts what was marked since the last time into the state, but for units that end before `live_from`."""
        rows: list[dict[str, Any]] = []
        for unit, parts in sorted(self._pending.items()):
            end = bucket_end(unit, self._width)
            if end < live_from:
                continue
            ids = np.sort(np.concatenate(parts))
            ids = ids[np.r_[True, ids[1:] != ids[:-1]]]
            epochs = np.full(len(ids), epoch)
            count = self._rows_of_unit.get(unit, 0) + 1
            if count > _FOLD_AT:
                before = _decoded(self._store.scan(self._number, end, end + 1))
                ids, epochs = _folded([*before, (ids, epochs)])
                self._pending[unit] = [ids]  # should the append below fail, the next attempt has all of them
                self._store.remove(self._number, end, end + 1)
                count = 1
            rows += [_encoded(unit, end, ids[at : at + _IDS_MAX], epochs[at : at + _IDS_MAX]) for at in _cuts(len(ids))]
            self._rows_of_unit[unit] = count
        if rows:
            self._store.append(self._number, pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
        self._pending = {}
        if self._known is not None and len(self._known) > 2 * self._pages_once + _PAGES_SLACK:
            self._known = None  # most of it may be of rows that are gone

    def _loaded(self) -> IdSet:
        if self._known is None:
            self._known, self._rows_of_unit = IdSet(), {}
            for batch in self._store.scan(self._number):
                for unit in batch.column("unit").to_pylist():
                    self._rows_of_unit[unit] = self._rows_of_unit.get(unit, 0) + 1
                for ids, _ in _decoded([batch]):
                    if int(ids[-1]) >= self._store.next_id or (ids[1:] <= ids[:-1]).any():
                        raise CorruptionError("the marks of the state", 0, "ids of its rows, ascending", "others")
                    self._known.add(ids)
            for parts in self._pending.values():
                for part in parts:
                    self._known.add(part)
            self._pages_once = len(self._known)
        return self._known


def _order(units: I64) -> npt.NDArray[np.intp]:
    """The stable order by unit; by a radix sort where they lie close together."""
    steps = units - units.min()
    return np.argsort(steps.astype(np.uint16) if int(steps.max()) < 1 << 16 else steps, kind="stable")


def marked_since(state: StateStore | View, number: int, ids: U64) -> I64:
    """For each row since which epoch it is marked, 0 if it is not. `number` is the side that holds the marks."""
    since = np.zeros(len(ids), np.int64)
    for known, epochs in _decoded(state.scan(number)):
        order = np.argsort(known)
        at = np.minimum(np.searchsorted(known, ids, sorter=order), len(known) - 1)
        found = known[order[at]] == ids
        since[found] = epochs[order[at]][found]
    return since


def _cuts(count: int) -> range:
    return range(0, count, _IDS_MAX)


def _folded(parts: list[tuple[U64, I64]]) -> tuple[U64, I64]:
    ids, epochs = (np.concatenate(each) for each in zip(*parts, strict=True))
    order = np.lexsort((epochs, ids))
    ids, epochs = ids[order], epochs[order]
    first = np.r_[True, ids[1:] != ids[:-1]]
    return ids[first], epochs[first]


def _encoded(unit: int, end: int, ids: U64, epochs: I64) -> dict[str, Any]:
    """A mark row. Requires: ids that ascend."""
    earliest = int(epochs.min())
    later = epochs - earliest
    return {
        "unit": unit,
        "ts": end,
        "epoch": earliest,
        "count": len(ids),
        "first": int(ids[0]),
        "steps": _narrow(np.diff(ids)),
        "later": _narrow(later) if later.any() else None,
    }


def _narrow(values: U64 | I64) -> bytes:
    most = int(values.max()) if len(values) else 0
    width = next(width for width in _WIDTHS if most < 1 << 8 * width)
    return values.astype(_WIDTHS[width]).tobytes()


def _decoded(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[U64, I64]]:
    """Ids and epochs, mark row by mark row."""
    for batch in batches:
        for row in batch.to_pylist():
            count = row["count"]
            steps, later = _widened(row["steps"], count - 1), row["later"]
            if steps is None or count < 1 or row["first"] < 0:
                raise _damaged(row)
            ids = np.empty(count, np.uint64)
            ids[0] = row["first"]
            ids[1:] = steps
            epochs = np.full(count, row["epoch"], np.int64)
            if later is not None:
                added = _widened(later, count)
                if added is None:
                    raise _damaged(row)
                epochs += added.astype(np.int64)
            yield np.cumsum(ids, dtype=np.uint64), epochs


def _widened(data: bytes, count: int) -> npt.NDArray[Any] | None:
    if count <= 0 or len(data) % count:
        return np.empty(0, np.uint64) if count == 0 and not data else None
    width = _WIDTHS.get(len(data) // count)
    return None if width is None else np.frombuffer(data, width)


def _damaged(row: dict[str, Any]) -> CorruptionError:
    return CorruptionError(f"the marks of unit {row['unit']}", 0, f"{row['count']} ids", f"{len(row['steps'])} bytes")
