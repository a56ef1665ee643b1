"""Retention: which rows a merge may leave out, and how time is cut into units that age together.

A merge may leave out what the version that it starts from cannot read. Older epochs and living snapshots keep the
files that they were made of, so nothing that anyone can see goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

UNITS_PER_RETENTION = 16


def unit_width(retention: int, bucket: int) -> int:
    """The width of a unit: a sixteenth of the retention, in whole buckets."""
    return max(1, -(-retention // (UNITS_PER_RETENTION * bucket))) * bucket


def dead_rows(
    ts: npt.NDArray[np.int64],
    ids: npt.NDArray[np.uint64],
    first_live: int,
    tombstones: Iterable[tuple[int, int, int]],
) -> npt.NDArray[np.bool_]:
    """Which rows are retired (before `first_live`) or removed: tombstones are (first ts, ts after the last, id)."""
    dead = ts < first_live
    for start, end, at in tombstones:
        dead |= (ts >= start) & (ts < end) & (ids < np.uint64(at))
    return dead
