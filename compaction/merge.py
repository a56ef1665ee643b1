"""The merge of sorted runs: the order of their rows together, and where to cut them so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Index = npt.NDArray[np.intp]


def merge_order(hashes: U64, ts: I64, ids: U64) -> Index:
    """The order by (hash, ts, id) of runs that stand one behind the other, each in this order by itself.

    A stable sort of such runs is a merge of them. Rows with equal hashes come in the order of their runs then, and are
    sorted again where that is not the order of their times and ids.
    """
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(same):
        return order
    one, other = order[same], order[same + 1]
    wrong = (ts[other] < ts[one]) | ((ts[other] == ts[one]) & (ids[other] < ids[one]))
    if not wrong.any():
        return order
    starts = np.ones(len(order), bool)
    starts[same + 1] = False
    group = np.cumsum(starts) - 1
    again = np.zeros(int(group[-1]) + 1, bool)
    again[group[same[wrong]]] = True
    at = np.flatnonzero(again[group])
    rows = order[at]
    order[at] = rows[np.lexsort((ids[rows], ts[rows], hashes[rows]))]
    return order


def cut_points(hashes: Sequence[U64], ts: Sequence[I64], rows_max: int) -> list[list[int]]:
    """Where to cut each run, so that the k-th pieces of all come before their next ones, of about `rows_max` rows.

    Gives for each run the ends of its pieces. Cuts lie between times, so only rows with one hash and one time stay
    together however many they are.
    """
    total = sum(len(run) for run in hashes)
    pieces = max(1, -(-total // rows_max))
    ends: list[list[int]] = [[] for _ in hashes]
    largest = max(range(len(hashes)), key=lambda n: len(hashes[n]))
    for piece in range(1, pieces):
        at = len(hashes[largest]) * piece // pieces
        h, t = hashes[largest][at], ts[largest][at]
        for run, times, mine in zip(hashes, ts, ends, strict=True):
            low, high = (int(run.searchsorted(h, side)) for side in ("left", "right"))
            mine.append(low + int(times[low:high].searchsorted(t)))
    for run, mine in zip(hashes, ends, strict=True):
        mine.append(len(run))
    return ends
