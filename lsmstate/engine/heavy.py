"""The heaviest keys of a side: those with the most rows. Found from the sorted hashes of its runs, on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lsmstate.errors import CorruptionError
from lsmstate.keys import TS_MAX, TS_MIN, U64
from lsmstate.sstable.run import Run

if TYPE_CHECKING:
    from lsmstate.engine.view import View

_CANDIDATES = 16  # of each run, for each key that is wanted

Heavy = tuple[tuple[object, ...], int]  # the values of the key columns (Scalars where Python has none), and rows


def heaviest(view: View, side: int, count: int) -> list[Heavy]:
    """The keys with the most rows, heaviest first; dead rows that were not compacted away yet count too.

    A key that is heavy in the whole is among the heaviest of some run: only those are counted in all of them.
    """
    opened = [source.open(TS_MIN, TS_MAX) for source in view.sources(side, TS_MIN, TS_MAX)]
    runs = [run for run in opened if run is not None]
    if not runs:
        return []
    found = np.unique(np.concatenate([_heavy_hashes(run, count * _CANDIDATES) for run in runs]))
    rows = np.zeros(len(found), np.int64)
    where: list[tuple[Run, int] | None] = [None] * len(found)
    for run in runs:
        hashes = run.hashes()
        first, last = hashes.searchsorted(found, "left"), hashes.searchsorted(found, "right")
        rows += last - first
        for number in np.flatnonzero(last > first).tolist():
            where[number] = where[number] or (run, int(first[number]))
    told = []
    for number in np.argsort(-rows, kind="stable")[:count].tolist():
        place = where[number]
        if place is None:
            raise CorruptionError(f"side {side} of the state", 0, "hashes in order", "others")
        run, row = place
        key = tuple(_plain(run.column(field, np.array([row]))[0]) for field in view.sides[side].key_fields)
        told.append((key, int(rows[number])))
    return told


def _plain(value: pa.Scalar) -> object:
    if value.type == pa.time64("ns") and value.is_valid and value.value % 1000:
        return value  # Python's times would lose it
    try:
        told: object = value.as_py()
    except (OverflowError, ValueError):
        return value
    return told


def _heavy_hashes(run: Run, count: int) -> U64:
    hashes = run.hashes()
    starts = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]])
    lengths = np.diff(starts, append=len(hashes))
    if len(lengths) > count:
        starts = starts[np.argpartition(lengths, -count)[-count:]]
    return hashes[starts]
