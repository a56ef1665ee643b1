"""The latest version of each key of a view: what a keyed table holds, and what is left of it when it is folded.

Runs are sorted by the hash of the key, so all versions of a key lie in one range of hashes in every run. A range of
them is looked at together, so memory is bounded however large the table is. A hash is only a hint: where several
versions share one, their key columns are compared. Threading: reads only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lsmstate.engine import View
from lsmstate.hashing.sameness import same_keys
from lsmstate.keys import I64, TS_MAX, TS_MIN, U64
from lsmstate.sstable.run import Run

_RANGE_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of several runs, by (hash, version)."""

    runs: Sequence[Run]
    which: I64
    rows: I64
    hashes: U64

    def taken(self, picked: npt.NDArray[np.bool_]) -> _Rows:
        """Some of them."""
        return _Rows(self.runs, self.which[picked], self.rows[picked], self.hashes[picked])

    def column(self, field: int) -> pa.Array:
        """The values of a column, in order."""
        parts, places = [], []
        for number in np.unique(self.which).tolist():
            mine = np.flatnonzero(self.which == number)
            parts.append(self.runs[number].column(field, self.rows[mine]))
            places.append(mine)
        back = np.empty(len(self.rows), np.int64)
        back[np.concatenate(places)] = np.arange(len(self.rows))
        return pa.concat_arrays(parts).take(pa.array(back))


def latest(view: View, keys: Sequence[int], deleted: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The row with the greatest version of each key, unless that says that the key is deleted; in no order.

    `keys` and `deleted` are places of columns; the version is the time of the view's only side.
    """
    live = view.first_live_ts(0)
    opened = [(source.open(TS_MIN, TS_MAX), max(source.ref.min_ts, live)) for source in view.sources(0, live, TS_MAX)]
    found = [(run, first) for run, first in opened if run is not None]
    ranges = -(-sum(run.ref.rows for run, _ in found) // _RANGE_ROWS)
    schema = view.sides[0].schema
    for number in range(ranges):
        low, high = (number << 64) // ranges, ((number + 1) << 64) // ranges - 1
        rows = _range(view, found, low, high)
        if not len(rows.rows):
            continue
        rows = rows.taken(_winners(rows, keys))
        gone = rows.column(deleted).to_numpy(zero_copy_only=False)
        rows = rows.taken(~gone)
        for at in range(0, len(rows.rows), batch_rows):
            part = np.zeros(len(rows.rows), bool)
            part[at : at + batch_rows] = True
            some = rows.taken(part)
            yield pa.RecordBatch.from_arrays([some.column(field) for field in range(len(schema))], schema=schema)


def _range(view: View, found: Sequence[tuple[Run, int]], low: int, high: int) -> _Rows:
    """The living rows whose hashes lie between two, both included."""
    which, places, hashed, times = [], [], [], []
    for number, (run, first) in enumerate(found):
        hashes = run.hashes()
        start = int(hashes.searchsorted(np.uint64(low), "left"))
        end = int(hashes.searchsorted(np.uint64(high), "right"))
        rows = np.arange(start, end)
        ts = run.times(rows)
        keep = ts >= first
        dead = view.killed(run, rows)
        if dead is not None:
            keep &= ~dead
        places.append(rows[keep])
        which.append(np.full(int(keep.sum()), number))
        hashed.append(hashes[start:end][keep])
        times.append(ts[keep])
    hashes = np.concatenate(hashed)
    order = np.lexsort((np.concatenate(times), hashes))
    return _Rows([run for run, _ in found], np.concatenate(which)[order], np.concatenate(places)[order], hashes[order])


def _winners(rows: _Rows, keys: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which rows are the last ones of their key."""
    hashes = rows.hashes
    follows = np.r_[hashes[1:] == hashes[:-1], False]  # a later version, or a hash that collides
    if not follows.any():
        return np.ones(len(hashes), bool)
    shared = follows | np.r_[False, follows[:-1]]
    some, alike = rows.taken(shared), follows[shared][:-1]
    columns = [some.column(field) for field in keys]
    same = np.ones(len(alike), bool)
    for column in columns:
        same &= same_keys(column[:-1], column[1:])
    last = np.r_[~alike, True]
    mixed = alike & ~same
    if mixed.any():
        last = _last_exactly(some.hashes, columns)
    winners = np.ones(len(hashes), bool)
    winners[shared] = last
    return winners


def _last_exactly(hashes: U64, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Which rows are the last ones of their key, where hashes collide: each looks among those after it with its hash
    for its own key."""
    last = np.ones(len(hashes), bool)
    rows, ahead = np.arange(len(hashes)), 0
    while len(rows):
        ahead += 1
        rows = rows[rows + ahead < len(hashes)]
        rows = rows[hashes[rows + ahead] == hashes[rows]]
        same = np.ones(len(rows), bool)
        for column in columns:
            same &= same_keys(column.take(pa.array(rows)), column.take(pa.array(rows + ahead)))
        last[rows[same]] = False
        rows = rows[~same]
    return last
